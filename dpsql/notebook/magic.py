"""The magic: ``%%dpsql`` for SQL, ``%dpsql`` for one line or a command."""

from __future__ import annotations

import atexit
import gc
import json
import keyword
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand
from IPython.display import display
from traitlets import Enum, Int, Unicode, observe

from dpsql.client.connect import connect_session
from dpsql.errors import BindError, Error, ParseError, PolicyError, did_you_mean
from dpsql.language.parameter_values import Params, name_parameters
from dpsql.notebook import guide, inspection, render, sessions
from dpsql.notebook.completion import KnownNames
from dpsql.notebook.guide import CellOptions
from dpsql.notebook.line_commands import (
    CONNECT,
    is_policy_command,
    names_server,
    open_server,
    run_policy_command,
)
from dpsql.notebook.panel import CellTexts, PanelComms
from dpsql.report.tables import Sheet
from dpsql.session.explanation import Why, explain_refusal
from dpsql.session.result import Result

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.session.interface import AnalystSession

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

    def __init__(self, shell: InteractiveShell, sessions: sessions.Sessions) -> None:
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

    def _format(self, rest: str) -> render.Panel:
        if not rest:
            raise ParseError(
                "there is no SQL to format.", hint="%dpsql format SELECT ..., or %%dpsql --format"
            )
        from dpsql.language.formatter import format_statements

        return render.Panel(format_statements(rest))

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
    if not isinstance(opened, sessions.Sessions):
        opened = sessions.Sessions()
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
    matcher = inspection.Matcher(shell, opened)
    magic.find_names = matcher.find_names
    shell.Completer.custom_matchers.append(matcher)
    shell.input_transformers_cleanup.append(MagicFirst(shell))
    if hasattr(shell, "kernel"):
        inspection.hook_kernel(shell.kernel, matcher.describe)
    if chosen.policy and not opened:
        magic._open(None, chosen.database or ":memory:", chosen.policy, chosen.ledger, chosen.analyst)
        return
    session = opened.get(opened.current)
    print(sessions.summarise_session(session))


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


def _leave(shell: InteractiveShell, opened: sessions.Sessions) -> None:
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
