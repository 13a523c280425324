"""The prompt of ``dpsql sql``: statements of several lines with completion and colours, and commands that begin with a dot.

It uses prompt_toolkit and pygments (extra ``prompt``), as IPython's terminal does. The history is a private file. With
``prompt_history = false`` in the owner's policy, or the analyst's ``--no-history``, it ends with the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import util
from typing import TYPE_CHECKING

from dpsql.errors import BindError, Error, ParseError, did_you_mean
from dpsql.language.parameter_values import Params
from dpsql.notebook import guide, inspection, sessions
from dpsql.notebook.completion import KnownNames, Offer, complete_sql, ends_statement
from dpsql.notebook.guide import CellOptions

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History

    from dpsql.session.interface import AnalystSession
    from dpsql.session.result import Result

PROMPT_COMMANDS = {
    ".help": "this list; .help WORD explains a word of the language",
    ".tables": "the tables that the policy names, and kept results",
    ".columns": "the columns of a table: .columns visits",
    ".budget": "the remaining budget, and the cost of each statement",
    ".why": "the last answer or refusal explained",
    ".ledger": "all charges: time, analyst, statement, loss, outcome",
    ".policy": "the data owner's declarations",
    ".mechanisms": "every way to get an answer, with an example",
    ".set": 'a value for $name: .set city Delft, or as JSON: .set cities ["Delft", "Leiden"]',
    ".read": "answer the statements of a file: .read q.sql",
    ".quit": "leave; so does Ctrl-D",
}
_USAGE = """\
A statement may have several lines, and ends with a semicolon. Tab completes. Escape, then Enter, runs it without a semicolon.
Ctrl-C discards the typed text, or stops a running statement: its charge stays."""
HISTORY_FILE = "history"
"""The file in the state directory with the prompt's history."""


def run_prompt(
    session: AnalystSession,
    show: Callable[[Result], None],
    params: Params | None = None,
    *,
    fresh: bool = False,
    history: bool = True,
) -> None:
    """Answer statements until the input ends; ``fresh``: ignore stored answers; ``history``: keep it if the policy allows."""
    if util.find_spec("prompt_toolkit") is None or util.find_spec("pygments") is None:
        raise Error(
            "the prompt needs prompt_toolkit and pygments.",
            hint="pip install 'dpsql[prompt]', or write the statement on the command line.",
        )
    prompt = Prompt(session, show, params, fresh)
    print(sessions.summarise_session(session))
    print("End a statement with a semicolon; .help lists the commands, Ctrl-D leaves.")
    reader = prompt.make_reader(open_history(session, history))
    while True:
        try:
            text = reader.prompt("dpsql> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if not prompt.answer(text):
            return


def open_history(session: AnalystSession, wanted: bool = True) -> History:
    """Return the history: a private file if the policy and the analyst (``wanted``) allow it, else memory."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from dpsql.ledger.state_files import find_state_directory, make_private_directory, make_private_file

    if wanted and session.policy.ledger.prompt_history:
        path = find_state_directory() / HISTORY_FILE
        try:
            make_private_directory(path.parent)
            make_private_file(path)
            return FileHistory(path)
        except OSError:  # without a writable file there is no history
            pass
    return InMemoryHistory()


class Prompt:
    """A prompt's state, and its reaction to a text."""

    def __init__(
        self,
        session: AnalystSession,
        show: Callable[[Result], None],
        params: Params | None = None,
        fresh: bool = False,
    ) -> None:
        self.session, self.show = session, show
        self.params: Params = {} if params is None else params
        self.options = CellOptions(fresh=fresh)

    def make_reader(self, history: History) -> PromptSession[str]:
        """Return the reader of statements from the terminal."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.lexers import PygmentsLexer

        from dpsql.notebook.lexer import DpsqlLexer

        offer = self.complete

        class Offers(Completer):
            """A completer of prompt_toolkit, with help for each completion."""

            def get_completions(self, document: Document, complete_event: object) -> Iterator[Completion]:
                """Yield replacements of the word."""
                start, offers = offer(document.text, document.cursor_position)
                for item in offers:
                    yield Completion(
                        item.text, start - document.cursor_position, display_meta=item.help or item.kind
                    )

        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state:
                buffer.complete_state = None  # keep the chosen completion
            elif is_whole(buffer.text):
                buffer.validate_and_handle()
            else:
                buffer.newline()

        return PromptSession(
            multiline=True,
            lexer=PygmentsLexer(DpsqlLexer),
            completer=Offers(),
            key_bindings=keys,
            history=history,
            complete_while_typing=False,
            enable_history_search=True,
            prompt_continuation="   ... ",
        )

    def complete(self, text: str, at: int) -> tuple[int, list[Offer]]:
        """Return the start of the word at the cursor, and its completions. No private row is read."""
        held = self.params.items() if isinstance(self.params, Mapping) else ()
        known = sessions.list_known_names(self.session, {name: type(value).__name__ for name, value in held})
        if not text.startswith("."):
            return complete_sql(text, at, known)
        command, _, typed = text[:at].rpartition(" ")
        offers = self._list_operands(command.strip(), known)
        return at - len(typed), [offer for offer in offers if offer.text.lower().startswith(typed.lower())]

    def _list_operands(self, command: str, known: KnownNames) -> list[Offer]:
        if not command:
            return [Offer(name, "command", help) for name, help in PROMPT_COMMANDS.items()]
        if command == ".columns":
            return [Offer(name, "table") for name in known.tables]
        return [Offer(word, "word") for word in inspection.list_helped_words()] if command == ".help" else []

    def answer(self, text: str) -> bool:
        """Answer a text, and show the result; errors go to standard error. Return False to leave."""
        said = text.strip()
        if said.lower().rstrip(";") in ("quit", "exit", ".quit", ".exit"):
            return False
        try:
            if said.startswith("."):
                self._do(said.rstrip(";"))
            elif guide.says_anything(said):
                self._ask(text)
        except Error as error:
            for answered in error.answered:
                self.show(answered)  # type: ignore[arg-type]  # a session's own results
            print("\n".join(error.lines()), file=sys.stderr)
        except KeyboardInterrupt:
            print("stopped.", file=sys.stderr)
        return True

    def _ask(self, text: str) -> None:
        guide.refuse_templates(text)
        for result in sessions.ask(self.session, text, self.params, self.options):
            self.show(result)

    def _do(self, line: str) -> None:
        """Run a command; ParseError if there is none of that name."""
        command, _, rest = line.partition(" ")
        rest = rest.strip()
        if command not in PROMPT_COMMANDS:
            raise ParseError(f"there is no command {command}.", hint=did_you_mean(command, PROMPT_COMMANDS))
        if command == ".set":
            self._set(rest)
        elif command == ".read":
            self._read(rest)
        elif command == ".columns":
            print(sessions.show_columns(self.session, rest))
        elif command == ".budget":
            print(self.session.budget_panel().text())
        elif command == ".why":
            print(self.session.why())
        elif command == ".mechanisms":
            print(guide.show_mechanisms())
        elif command == ".help":
            print(self._help(rest))
        else:
            print(self.session.sql(f"SHOW {command[1:].upper()}"))

    def _help(self, word: str) -> str:
        if word:
            return inspection.explain_word(word, sessions.list_known_names(self.session))
        table = sessions.choose_example_table(self.session) or "visits"
        lines = [f"  {name:<12} {help}" for name, help in PROMPT_COMMANDS.items()]
        return "\n".join([_USAGE, "", *lines, "", f"  for example: SELECT COUNT(*) AS n FROM {table};"])

    def _set(self, rest: str) -> None:
        name, _, written = rest.partition(" ")
        name = name.removeprefix("$")
        if not name.isidentifier() or not written.strip():
            raise ParseError(".set takes a name and a value.", hint=".set city Delft")
        if not isinstance(self.params, Mapping):
            raise BindError(
                "the parameters of this prompt are a list, for ? marks.", hint="--params takes an object too."
            )
        text = written.strip()
        try:
            value: object = json.loads(text)
        except json.JSONDecodeError:
            value = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
        self.params = {**self.params, name: value}

    def _read(self, rest: str) -> None:
        words, _ = guide.parse_words(rest, ())
        if len(words) != 1:
            raise ParseError(".read takes one file.", hint=".read q.sql")
        self._ask(guide.read_sql_file(words[0]))


def is_whole(text: str) -> bool:
    """Return whether Enter sends the text: a command, a statement that ends with a semicolon, or nothing.

    >>> is_whole("SELECT 1"), is_whole("SELECT ';"), is_whole("SELECT 1; -- that's it"), is_whole(".tables")
    (False, False, True, True)
    """
    said = text.strip()
    return not said or said.startswith(".") or said.lower() in ("quit", "exit") or ends_statement(text)
