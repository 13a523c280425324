"""The magic: ``%%dpsql`` for SQL, ``%dpsql`` for one line or a command; completion in its cells and lines; JupyterLab's
panel.

The panel shows the budget, the latest charges, the price of a cell before it runs, and its layout. It is a comm that the
front end opens once the extension is loaded. It asks for the budget and for the price of a text; the kernel also sends the
budget after each cell. These messages spend nothing, read no private row, and are not written to the ledger. Without a panel
the kernel sends nothing.
"""

from __future__ import annotations

import atexit
import gc
import getpass
import json
import keyword
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from IPython.core.error import StdinNotImplementedError
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand
from IPython.display import display
from traitlets import Enum, Int, Unicode, observe

from dpsql import __version__
from dpsql.client.connect import connect_server, connect_session, is_address
from dpsql.errors import BindError, Error, ParseError, PolicyError, ServerError, did_you_mean
from dpsql.language.parameter_values import Params, name_parameters
from dpsql.notebook import guide, inspection, render, sessions
from dpsql.notebook.completion import KnownNames
from dpsql.notebook.guide import CellOptions, parse_words
from dpsql.notebook.inspection import Matcher
from dpsql.notebook.render import Panel
from dpsql.notebook.sessions import Sessions, is_frame, show_tables
from dpsql.report.tables import BudgetPanel, Data, Html, Sheet, tag
from dpsql.session.explanation import Why, explain_refusal
from dpsql.session.result import Result

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell

    from dpsql.language.parameter_values import Params
    from dpsql.notebook.sessions import Sessions
    from dpsql.session.explanation import Explanation
    from dpsql.session.interface import AnalystSession


TARGET = "dpsql.panel"
"""The name of the comm."""
MAX_CELLS = 2_000
"""Cells whose text is remembered, so that charges can be linked to them."""
MAX_PRICED_TEXT = 65_536
"""Characters of a cell that is priced."""

_CLIPPED = "..."
_SHORTEST = 8
"""The length of the shortest statement that is searched in cells."""


class CellTexts:
    """The texts of the cells that ran in this kernel, by the notebook's identifiers."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def note(self, cell: str, text: str) -> None:
        """Remember the text of a cell; more than `MAX_CELLS` drop the oldest."""
        self._texts.pop(cell, None)
        self._texts[cell] = _flatten(text)
        while len(self._texts) > MAX_CELLS:
            del self._texts[next(iter(self._texts))]

    def find(self, statement: str) -> str:
        """Return the last cell that ran a statement; empty if none did."""
        wanted = _flatten(statement).partition(" /* $")[0].removesuffix(_CLIPPED).rstrip()
        if len(wanted) < _SHORTEST:
            return ""
        return next((cell for cell, text in reversed(self._texts.items()) if wanted in text), "")

    def link(self, panel: BudgetPanel) -> BudgetPanel:
        """Return the panel with its charges linked to their cells."""
        charges = tuple(replace(charge, cell=self.find(charge.text)) for charge in panel.charges)
        return replace(panel, charges=charges)


def write_price(explanation: Explanation) -> Html:
    """Return the cost of a cell, and the expected errors of its answers, as HTML."""
    parts = [tag("p", explanation.price)]
    for part in explanation.parts or (explanation,):
        if part.errors is not None and part.errors.own in part.errors.epsilons:
            own = part.errors.epsilons.index(part.errors.own)
            likely = f"{part.errors.confidence:.4g}"
            parts += [
                tag("p", f"{name}: within ±{errors[own]:.4g} with {likely} probability")
                for name, errors in part.errors.rows
            ]
    return Html("".join(dict.fromkeys(parts)))


def write_refusal(error: Error) -> Html:
    """Return the reason why a cell has no price, as HTML; nothing was charged."""
    hint = [tag("p", f"Hint: {error.hint}")] if error.hint else []
    return Html("".join([tag("p", f"{type(error).__name__}: {error.message}"), *hint]))


def find_problem(error: Error, source: str) -> Data | None:
    """Return the characters of a cell that an error is about, as a front end counts them; None if it names none."""
    text, span = error.text, error.span
    if not text or span is None:
        return None
    start = len(source) - len(text)  # blanks replace a name before <<
    if start < 0 or any(a != b != " " for a, b in zip(source[start:], text, strict=True)):
        start = source.find(text)
    if start < 0:
        return None
    ends = (start + span[0], start + max(span[1], span[0] + 1))
    first, last = (len(source[:end].encode("utf-16-le")) // 2 for end in ends)
    return {"from": first, "to": last, "message": " ".join(filter(None, (error.message, error.hint)))}


def lay_out(source: str) -> str:
    """Return a cell with its SQL laid out in lines; ParseError if a quote or a comment does not end."""
    from dpsql.language.formatter import format_statements  # loads the parser, which clients don't need

    head, _, text = source.partition("\n")
    return f"{head.rstrip()}\n{format_statements(text).rstrip()}"


class Comm(Protocol):
    """A channel of Jupyter between the kernel and the front end."""

    comm_id: str

    def send(self, data: Data) -> object: ...
    def on_msg(self, callback: Callable[[Data], object]) -> object: ...
    def on_close(self, callback: Callable[[Data], object]) -> object: ...
    def close(self) -> object: ...


class PanelComms:
    """The open panels of a kernel, and their messages."""

    def __init__(
        self,
        shell: InteractiveShell,
        cells: CellTexts,
        sessions: Sessions,
        find_parameters: Callable[[CellOptions, str], Params],
    ) -> None:
        self._shell = shell
        self._cells = cells
        self._sessions = sessions
        self._find_parameters = find_parameters
        self._comms: dict[str, Comm] = {}

    def start(self) -> None:
        """Note each cell that runs and, in a kernel, wait for panels."""
        self._shell.events.register("pre_run_cell", self._begin_cell)
        self._shell.events.register("post_run_cell", self._end_cell)
        manager = self._find_manager()
        if manager is not None:
            manager.register_target(TARGET, self._open)

    def stop(self) -> None:
        """Close the panels and accept no more."""
        for event, function in (("pre_run_cell", self._begin_cell), ("post_run_cell", self._end_cell)):
            with suppress(ValueError):
                self._shell.events.unregister(event, function)
        manager = self._find_manager()
        if manager is not None:
            manager.targets.pop(TARGET, None)
        for comm in list(self._comms.values()):
            with suppress(Exception):
                comm.close()
        self._comms.clear()

    def _find_manager(self) -> Any:
        return getattr(getattr(self._shell, "kernel", None), "comm_manager", None)

    def _begin_cell(self, info: ExecutionInfo) -> None:
        if info.cell_id and info.raw_cell:
            self._cells.note(info.cell_id, info.raw_cell)

    def _end_cell(self, result: object) -> None:
        for comm in list(self._comms.values()):
            self._send(comm, self._write_budget)

    def _open(self, comm: Comm, message: Data) -> None:
        self._comms[comm.comm_id] = comm
        comm.on_msg(lambda received: self._receive(comm, received))
        comm.on_close(lambda _: self._comms.pop(comm.comm_id, None))
        self._send(comm, self._write_budget)

    def _receive(self, comm: Comm, message: Data) -> None:
        asked = message.get("content", {}).get("data", {})
        if not isinstance(asked, Mapping):
            return
        if asked.get("want") == "price" and isinstance(asked.get("text"), str):
            self._send(comm, lambda: {**self._write_price(asked["text"]), "number": asked.get("number")})
        elif asked.get("want") == "layout" and isinstance(asked.get("text"), str):
            self._send(comm, lambda: self._write_layout(asked["text"]))
        else:
            self._send(comm, self._write_budget)

    def _send(self, comm: Comm, write: Callable[[], Data]) -> None:
        """Send a message. Failures are ignored, so a panel never disturbs the notebook."""
        with suppress(Exception, KeyboardInterrupt):
            comm.send(write())

    def _write_budget(self) -> Data:
        session = self._sessions.get(self._sessions.current)
        html = ""
        if session is not None:
            with session.asking_briefly():
                tables = show_tables(session).unfold(False)
                html = self._cells.link(session.budget_panel()).html() + tag("h2", "Tables") + tables
        return {"kind": "budget", "open": session is not None, "html": html}

    def explain(self, source: str) -> Explanation | None:
        """Return the plan of a cell's text, run or not; None if it has no statement that could be paid.

        Raises:
            Error: it can't be bound, or no session is open.
        """
        from dpsql.language.statements import PRICED, parse

        found = re.match(r"\s*(?:[\w.]+\s*=\s*)?(%%?)(\w+)([^\n]*)\n?", source)
        if found is None or not guide.is_ours(self._shell, "cell" if found[1] == "%%" else "line", found[2]):
            return None
        if found[1] == "%%":
            options, text = guide.parse_cell_line(found[3]), source[found.end() :]
        else:
            options, text = guide.parse_statement_line(found[3].strip())
        _, text = guide.split_name(text)
        if options.file or options.help or not guide.says_anything(text):
            return None
        if found[1] == "%" and text.split(None, 1)[0].upper() not in guide.STATEMENTS:
            return None  # a command, not a statement
        guide.refuse_templates(text)
        session = self._sessions.get_open(options.session)
        params = self._find_parameters(options, text)
        if not any(statement.kind in PRICED for statement in parse(text, params)):
            return None
        with session.asking_briefly():
            return session.explain(text, params, epsilon=options.epsilon)

    def _write_price(self, text: str) -> Data:
        source = text[:MAX_PRICED_TEXT]
        try:
            explanation = self.explain(source)
        except Error as error:
            problem = find_problem(error, source)
            return {
                "kind": "price",
                "known": False,
                "html": write_refusal(error),
                "problem": problem,
                "of": text,
            }
        html = "" if explanation is None else write_price(explanation)
        return {"kind": "price", "known": explanation is not None, "html": html, "problem": None, "of": text}

    def _write_layout(self, text: str) -> Data:
        found = re.match(r"\s*%%(\w+)", text)
        if found is None or not guide.is_ours(self._shell, "cell", found[1]):
            return {"kind": "layout", "of": text, "text": text}
        try:
            return {
                "kind": "layout",
                "of": text,
                "text": lay_out(text[:MAX_PRICED_TEXT]) + text[MAX_PRICED_TEXT:],
            }
        except Error as error:
            return {"kind": "layout", "of": text, "refused": error.message}


def _flatten(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


_PARAMETER = re.compile(r"\$([A-Za-z_]\w*)")
_KEPT = "_dpsql_sessions"
_display: Callable[..., object] = display


@magics_class
class DpsqlMagic(Magics):
    """Settings of the dpsql magic."""

    output = Enum(
        ("result", "pandas", "polars", "arrow"),
        "result",
        help="The type of a cell's value: a Result, or a frame.",
    ).tag(config=True)
    rows = Int(render.ROWS, min=2, help="The most rows shown; a longer result lacks its middle.").tag(
        config=True
    )
    ledger = Unicode("", help="The ledger of %dpsql connect, if it names none.").tag(config=True)

    def __init__(self, shell: InteractiveShell, sessions: Sessions) -> None:
        super().__init__(shell)
        self._shell = shell
        self._in_kernel = hasattr(shell, "kernel")
        self._push: Callable[[dict[str, object]], object] = shell.push
        self.sessions = sessions
        self.cells = CellTexts()
        self.panels = PanelComms(
            shell, self.cells, sessions, lambda options, text: self._parameters(options, text, {})
        )
        self._last: Result | None = None
        self._unheard: Why | None = None
        self._asked = ""
        self.find_names: Callable[[], KnownNames] = KnownNames
        """Returns the public names that help is given on."""

    @observe("rows")
    def _rows_changed(self, change: Mapping[str, Any]) -> None:
        render.ROWS = change["new"]

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def dpsql(self, line: str, cell: str | None = None, local_ns: dict[str, object] | None = None) -> object:
        if cell is None:
            return self._line(line, local_ns or {})
        options = guide.parse_cell_line(line)
        if options.help:
            return render.Panel(guide.USAGE.rstrip())
        if options.format:
            from dpsql.language.formatter import (
                format_statements,
            )  # loads the parser, which clients don't need

            flags = re.sub(r"\s*--format\b", "", f"%%dpsql {line}").rstrip()
            self._shell.set_next_input(f"{flags}\n{format_statements(cell).rstrip()}", replace=True)
            return None
        return self._run(options, cell, local_ns or {})

    dpsql.__doc__ = guide.USAGE

    def _line(self, line: str, local: dict[str, object]) -> object:
        first, _, rest = line.strip().partition(" ")
        if not first:
            return self._help("")
        command = self._commands().get(first.lower())
        if command is not None and not (
            first.lower() == "close" and rest and rest.strip() not in self.sessions
        ):
            return command(rest.strip())
        options, text = guide.parse_statement_line(line)
        if options.help:
            return render.Panel(guide.USAGE.rstrip())
        name, _ = guide.split_name(text)
        if (
            not options.file
            and name is None
            and re.fullmatch(r"[A-Za-z_]+", first)
            and first.upper() not in guide.STATEMENTS
        ):
            hint = did_you_mean(first, (*guide.COMMANDS, *guide.STATEMENTS))
            raise ParseError(f"{first} is neither a command of %dpsql nor SQL.", hint=hint)
        return self._run(options, text, local)

    # -- statements

    def _run(self, options: CellOptions, text: str, local: dict[str, object]) -> object:
        if options.file:
            text = guide.read_sql_file(options.file)
        written = text
        name, text = guide.split_name(text)
        silent = options.silent or name is not None
        name = name or options.name
        if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
            raise ParseError(f"{name} can't be the name of a variable.")
        if not guide.says_anything(text):
            return None
        with self._noting_unheard(text):
            guide.refuse_templates(text)
            session = self.sessions.get_open(options.session)
            self._asked = options.session or self.sessions.current
            params = self._parameters(options, text, local)
        try:
            with self._noting_unheard(text):
                if name is not None and not options.explain:
                    session.check_name(name)  # before anything is paid
                if options.explain:
                    return session.explain(text, params, epsilon=options.epsilon)
            results = sessions.ask(session, text, params, options, kernel=self._in_kernel)
        except Error as error:
            for answered in error.answered:
                _display(answered)
            sessions.mention_frame(error, text, self._shell.user_ns)
            if error.text == text:
                error.text = written  # show the line as it was typed
            raise
        if not results:
            return None
        for result in results[:-1]:
            _display(result)
        for kept, result in sessions.pair_kept_results(text, params, results):
            self._push({kept: self._converted(result)})
        self._last = results[-1]
        value = self._converted(results[-1])
        if name is None:
            if value is not results[-1]:
                self._cost(results[-1])
            return value
        session.keep(name, results[-1])
        self._push({name: value})
        if options.show:
            _display(results[-1])
        elif not silent or results[-1].event is not None:  # a cost is always shown
            self._cost(results[-1])
        return None

    @contextmanager
    def _noting_unheard(self, text: str) -> Iterator[None]:
        """Remember a refusal that no session knows, so that it can be explained, too."""
        self._unheard = None
        try:
            yield
        except Error as error:
            self._unheard = explain_refusal(text.strip(), error)
            raise

    def _parameters(self, options: CellOptions, text: str, local: dict[str, object]) -> Params:
        """Return values of the ``$name``s in the text: the notebook's variables, then ``--params``; a list is for ``?``."""
        space: dict[str, object] = {**self._shell.user_ns, **local}
        params = {name: space[name] for name in _PARAMETER.findall(text) if name in space}
        if options.params is None:
            return params
        written = options.params
        if written.lstrip("$").isidentifier():
            given = space.get(written.lstrip("$"))
        else:
            try:
                given = json.loads(written)
            except json.JSONDecodeError:
                given = None
        if isinstance(given, list | tuple):
            return given
        if not isinstance(given, Mapping):
            raise ParseError(
                "--params takes a JSON object or list, or the name of a dict or a list.",
                hint="""--params '{"city": "Delft"}', or --params $values""",
            )
        return {**params, **name_parameters(text, given)[1]}

    def _converted(self, result: Result) -> object:
        convert: dict[str, Callable[[], object]] = {
            "pandas": result.df,
            "polars": result.pl,
            "arrow": result.arrow,
        }
        return convert[self.output]() if self.output in convert else result

    def _cost(self, result: Result) -> None:
        _display(Sheet((), render.write_caption(result)))

    # -- commands

    def _commands(self) -> dict[str, Callable[[str], object]]:
        return {
            "tables": lambda rest: sessions.show_tables(self.sessions.get_open(rest or None)),
            "policy": self._policy,
            "connect": self._connect,
            "demo": self._demo,
            "budget": lambda rest: self.cells.link(self.sessions.get_open(rest or None).budget_panel()),
            "why": self._why,
            "ledger": self._show("ledger"),
            "log": self._show("ledger"),
            "columns": lambda rest: sessions.show_columns(self.sessions.get_open(), rest),
            "mechanisms": guide.show_mechanisms,
            "format": self._format,
            "sessions": self._sessions,
            "session": lambda rest: self.sessions.get_open(rest or None),
            "report": lambda rest: sessions.show_report(self.sessions.get_open(), rest),
            "close": self._close,
            "keep": self._keep,
            "help": self._help,
        }

    def _show(self, what: str) -> Callable[[str], object]:
        return lambda rest: self.sessions.get_open(rest or None).sql(f"SHOW {what.upper()}")

    def _format(self, rest: str) -> Panel:
        if not rest:
            raise ParseError(
                "there is no SQL to format.", hint="%dpsql format SELECT ..., or %%dpsql --format"
            )
        from dpsql.language.formatter import format_statements

        return Panel(format_statements(rest))

    def _policy(self, rest: str) -> object:
        if not is_policy_command(rest):
            return self._show("policy")(rest)
        return run_policy_command(rest, self._shell.user_ns)

    def _why(self, rest: str) -> Why:
        """Explain the last answer or refusal: of a named session, or of all, with those that no session knows."""
        if self._unheard and not rest:
            return self._unheard
        asked = self._asked if self._asked in self.sessions else None
        return self.sessions.get_open(rest or asked).why()

    def _help(self, rest: str) -> render.Panel:
        if rest:
            return render.Panel(inspection.explain_word(rest, self.find_names()))
        session = self.sessions.get(self.sessions.current)
        if session is None:
            return guide.write_help(None)
        epsilon = session.policy.budget.default_epsilon
        return guide.write_help(sessions.choose_example_table(session), epsilon is not None)

    def _connect(self, rest: str) -> None:
        given = guide.parse_flags(rest, guide.CONNECT_FLAGS)
        given = self._fill_connect(given)
        if given.database is not None:
            given = replace(given, rest=(*given.rest, given.database))
        if names_server(given):
            self._hold(given.session, open_server(given, self._in_kernel))
            return
        if given.token_file or given.tls_ca or given.tls_client_cert or given.tls_client_key:
            raise ParseError("a token and certificates are for servers.", hint=CONNECT)
        if len(given.rest) > 1:
            raise ParseError(f"%dpsql connect takes one database, not {' '.join(map(str, given.rest))}.")
        if given.policy is None:
            source = given.rest[0] if given.rest and isinstance(given.rest[0], str) else "my.parquet"
            hint = f"add --policy policy.toml; %dpsql policy init {source} -o policy.toml writes a first one."
            raise PolicyError("a session needs the policy that the data owner wrote.", hint=hint)
        database: object = given.rest[0] if given.rest else ":memory:"
        variable = self._shell.user_ns.get(database) if isinstance(database, str) else None
        if variable is not None and not isinstance(variable, str):
            # an open DuckDB connection, frames by name, or one frame, whose table has the variable's name
            database = {database: variable} if sessions.is_frame(variable) else variable
        ledger = given.ledger or self.ledger or None
        self._open(given.session, database, given.policy, ledger, given.analyst)

    def _fill_connect(self, given: CellOptions) -> CellOptions:
        """Replace ``$name`` by its value: a path, an open connection, a mapping of frames."""
        space = self._shell.user_ns

        def fill(word: object) -> Any:
            if not isinstance(word, str) or not re.fullmatch(r"\$[A-Za-z_]\w*", word):
                return word
            if word[1:] not in space:
                raise BindError(f"the parameter {word} has no value.", hint=f"assign {word[1:]} first.")
            found = space[word[1:]]
            return str(found) if isinstance(found, Path) else found

        names = {guide.name_field(flag) for flag in guide.CONNECT_FLAGS}
        texts = {name: fill(value) for name, value in vars(given).items() if name in names}
        return replace(given, rest=tuple(map(fill, given.rest)), **texts)

    def _demo(self, rest: str) -> None:
        from dpsql.demo import POLICY

        given = guide.parse_flags(rest, guide.CONNECT_FLAGS)
        self._open(given.session, ":memory:", str(POLICY), given.ledger or "dpsql-demo.ledger", given.analyst)

    def _open(
        self, name: str | None, database: object, policy: str, ledger: str | None, analyst: str | None
    ) -> None:
        self._hold(name, connect_session(database, policy=policy, ledger=ledger, analyst=analyst))

    def _hold(self, name: str | None, session: AnalystSession) -> None:
        """Store a session instead of the one of its name, and print its summary."""
        name = name or "main"
        if name in self.sessions:
            self.sessions[name].close()
        self.sessions[name] = session
        self.sessions.current = name
        print(sessions.summarise_session(session))

    def _keep(self, rest: str) -> None:
        """Keep a variable's Result or table as a relation of later cells; for a new name, the last result."""
        words = rest.split()
        if len(words) != 1:
            raise ParseError("%dpsql keep takes one name.", hint="%dpsql keep out")
        name, space = words[0], self._shell.user_ns
        if name in space:
            try:
                self.sessions.get_open().keep(name, space[name])
            except BindError as error:
                error.hint = error.hint or f"write %dpsql keep and a name that no variable has, not {name}."
                raise
            return
        if self._last is None:
            raise BindError("there is no result to keep yet.", hint="run a %%dpsql cell first.")
        self.sessions.get_open().keep(name, self._last)
        self._push({name: self._converted(self._last)})

    def _sessions(self, rest: str) -> Sheet:
        if rest:
            self.sessions.get_open(rest)
            self.sessions.current = rest
        rows = []
        for name, session in self.sessions.items():
            tables, *budget = sessions.describe_session(session)
            rows.append(
                ("current" if name == self.sessions.current else "", name, tables, " · ".join(budget))
            )
        headings = ("", "session", "tables", "budget")
        return render.make_sheet(headings, rows, () if rows else (guide.NO_SESSION,))

    def _close(self, rest: str) -> None:
        name = " ".join(shlex.split(rest)) or self.sessions.current
        self.sessions.get_open(name).close()
        del self.sessions[name]
        if name == self.sessions.current and self.sessions:
            self.sessions.current = next(iter(self.sessions))


def load(shell: InteractiveShell) -> None:
    """Register the magic and completion, and print one line. Loading again keeps open opened."""
    _forget(shell)
    opened = vars(shell).get(_KEPT)
    if not isinstance(opened, Sessions):
        opened = Sessions()
        vars(shell)[_KEPT] = opened
        atexit.register(_leave, shell, opened)
    magic = DpsqlMagic(shell, opened)
    chosen = sessions.read_settings(Path.cwd())
    if chosen.output is not None:
        magic.output = chosen.output
    if chosen.rows is not None:
        magic.rows = chosen.rows
    shell.register_magics(magic)
    magic.panels.start()
    matcher = Matcher(shell, opened)
    magic.find_names = matcher.find_names
    shell.Completer.custom_matchers.append(matcher)
    shell.input_transformers_cleanup.append(MagicFirst(shell))
    if hasattr(shell, "kernel"):
        inspection.hook_kernel(shell.kernel, matcher.describe)
    if chosen.policy and not opened:
        magic._open(None, chosen.database or ":memory:", chosen.policy, chosen.ledger, chosen.analyst)
        return
    session = opened.get(opened.current)
    print(sessions.summarise_session(session) if session else f"dpsql {__version__}: {guide.NO_SESSION}")


class MagicFirst:
    """Drops blank lines and comments above ``%%dpsql``: IPython would read the cell, and so its SQL, as Python."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Return a cell's lines from our magic on, if only comments stand above it."""
        for place, line in enumerate(lines):
            if line.strip() and not line.lstrip().startswith(("#", "--")):
                found = re.match(r"%%(\w+)", line) if place else None
                return lines[place:] if found and guide.is_ours(self._shell, "cell", found[1]) else lines
        return lines


def unload(shell: InteractiveShell) -> None:
    """Remove the magic, its settings and completion. Open sessions stay for the next load."""
    _forget(shell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("dpsql", None)


def _leave(shell: InteractiveShell, opened: Sessions) -> None:
    """Close all sessions as the shell ends, since an engine that is still open prints a long warning."""
    for session in opened.values():
        session.close()
    opened.clear()
    unload(shell)
    shell.__dict__.pop(_KEPT, None)
    gc.collect()


def _forget(shell: InteractiveShell) -> None:
    """Unregister completion and settings by their names: the classes may have been reloaded since."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [m for m in matchers if type(m).__name__ != "Matcher"]
    cleaning = shell.input_transformers_cleanup
    cleaning[:] = [step for step in cleaning if type(step).__name__ != "MagicFirst"]
    if hasattr(shell, "kernel"):
        inspection.unhook_kernel(shell.kernel)
    for configurable in shell.configurables:
        if type(configurable).__name__ == "DpsqlMagic" and "panels" in vars(configurable):
            vars(configurable)["panels"].stop()
    shell.configurables[:] = [c for c in shell.configurables if type(c).__name__ != "DpsqlMagic"]
    shell.magics_manager.registry.pop("DpsqlMagic", None)


# -- connections to an owner's server -------------------------------------------------------------------------------

CONNECT = "%dpsql connect grpc+tls://host:31337 --token-file FILE"
_NO_TOKEN = "a file with the token, or the variable DPSQL_TOKEN; a notebook would store and share it."


def names_server(given: CellOptions) -> bool:
    """Return whether the line of ``%dpsql connect`` names a server."""
    return any(is_address(word) for word in given.rest)


def open_server(given: CellOptions, kernel: bool) -> AnalystSession:
    """Open a session on a server.

    ``kernel``: whether to ask for the token in a notebook, unseen and without storing it.

    Raises:
        ParseError: more than an address, or a flag that the server decides.
        ServerError: it can't be reached, or there is no token.
    """
    from dpsql.client.channel import find_token, parse_address  # most notebooks have no server

    if len(given.rest) > 1:  # not repeated: it may be the token
        raise ParseError("%dpsql connect takes one address and flags.", hint=CONNECT)
    own = {"policy": given.policy, "ledger": given.ledger, "analyst": given.analyst}
    named = [flag for flag, value in own.items() if value is not None]
    if named:
        raise ParseError(f"a server has its own {' and '.join(named)}.", hint=CONNECT)
    address = str(parse_address(given.rest[0]))
    token = find_token(None, given.token_file)
    if token is None and given.tls_client_cert is None:
        token = _ask_token(address, kernel)
    return connect_server(
        address,
        token,
        given.tls_ca,
        tls_client_cert=given.tls_client_cert,
        tls_client_key=given.tls_client_key,
    )


def _ask_token(address: str, kernel: bool) -> str | None:
    """Ask for the token, unseen; ServerError without a terminal."""
    from dpsql.client.channel import find_token

    if not kernel and not sys.stdin.isatty():
        raise ServerError(f"there is no token for {address}.", hint=f"--token-file FILE: {_NO_TOKEN}")
    try:
        return find_token(getpass.getpass(f"token for {address}: ").strip())
    except (StdinNotImplementedError, EOFError, KeyboardInterrupt):
        raise ServerError(
            f"there is no token for {address}.", hint=f"--token-file FILE: {_NO_TOKEN}"
        ) from None


# -- the owner's commands -------------------------------------------------------------------------------------------

INIT = "%dpsql policy init visits.parquet -o policy.toml"
CHECK = "%dpsql policy check policy.toml"


def is_policy_command(rest: str) -> bool:
    """Return whether the words after ``%dpsql policy`` are an owner's command rather than a session's name."""
    return rest.partition(" ")[0].lower() in ("init", "check")


def run_policy_command(rest: str, space: Mapping[str, object]) -> Panel:
    """Run ``init``, which writes a first policy, or ``check``.

    A source or a database may be a variable of ``space``: a frame, a mapping of names to frames, or a connection.

    Raises:
        ParseError: words or flags that the command does not take.
        PolicyError: the source or the policy can't be read.
    """
    first, _, words = rest.partition(" ")
    return _init(words, space) if first.lower() == "init" else _check(words, space)


def _init(words: str, space: Mapping[str, object]) -> Panel:
    from dpsql.owner.policy_init import init_policy

    given, flags = parse_words(words, guide.INIT_FLAGS)
    if "--database" in flags:
        given = (*given, str(flags["--database"]))
    if len(given) != 1:
        raise ParseError("%dpsql policy init takes one source.", hint=INIT)
    source = _find(given[0], space)
    if is_frame(source):
        source = {given[0]: source}
    unit, output = (str(flags[name]) if name in flags else None for name in ("--unit", "-o"))
    draft = init_policy(source, unit, output)
    return Panel(str(draft).rstrip("\n") if output is None else draft.summary(output, "%dpsql"))


def _check(words: str, space: Mapping[str, object]) -> Panel:
    from dpsql.owner.policy_check import check_policy

    given, flags = parse_words(words, guide.CHECK_FLAGS)
    if "--database" in flags:
        given = (*given, str(flags["--database"]))
    if not 1 <= len(given) <= 2:
        raise ParseError("%dpsql policy check takes a policy, and a database if it has one.", hint=CHECK)
    data = _find(given[1], space) if len(given) > 1 else ":memory:"
    return Panel(str(check_policy(Path(given[0]), data, "--data" in flags)))


def _find(word: str, space: Mapping[str, object]) -> object:
    """Return the variable of that name, unless it is a text; else the word, which is a path."""
    found = space.get(word) if word.isidentifier() else None
    return found if found is not None and not isinstance(found, str) else word
