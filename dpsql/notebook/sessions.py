"""The open sessions of a notebook, the settings of a project, and displays of a session.

``[tool.dpsql]`` in pyproject.toml has the paths of data and policy, and the form of results. While a statement runs, a line
shows its progress.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from dpsql import __version__
from dpsql.client.remote_session import RemoteSession
from dpsql.errors import BindError, Error, PolicyError, did_you_mean
from dpsql.language.parameter_values import Params
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import watch_progress
from dpsql.notebook.completion import ColumnFacts, KnownNames
from dpsql.notebook.guide import NO_SESSION, CellOptions
from dpsql.notebook.render import Panel, SchemaTree, TreeTable
from dpsql.policy.tables import Column, Table
from dpsql.policy.toml import Section, declare_field, parse_toml, read_section
from dpsql.policy.validate import settle_text, settle_whole, write_bound

if TYPE_CHECKING:
    from dpsql.session.interface import AnalystSession
    from dpsql.session.result import Result


class Sessions(dict[str, "AnalystSession"]):
    """The open sessions by name. It belongs to the shell, so that reloading the extension keeps it."""

    current: str = "main"

    def get_open(self, name: str | None = None) -> AnalystSession:
        """Return the session of that name, else the current one; BindError, with the way to open one, if there is none."""
        wanted = name or self.current
        if wanted not in self:
            if name and self:
                raise BindError(f"there is no open session {name}.", hint=did_you_mean(name, self))
            raise BindError("no session is open yet.", hint=NO_SESSION)
        return self[wanted]


@dataclass(frozen=True)
class Settings(Section):
    """The settings of a project for all its notebooks; paths are relative to their file."""

    database: str | None = declare_field(settle_text)
    policy: str | None = declare_field(settle_text)
    ledger: str | None = declare_field(settle_text)
    analyst: str | None = declare_field(settle_text)
    output: str | None = declare_field(settle_text)
    rows: int | None = declare_field(settle_whole)


def read_settings(folder: Path) -> Settings:
    """Return the settings of the nearest pyproject.toml, in this folder or above; PolicyError if one is wrong."""
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        try:
            document = parse_toml(file.read_text(encoding="utf-8"), str(file))
        except (OSError, UnicodeDecodeError, PolicyError):
            continue  # other tools report a broken file
        tool = document.data.get("tool")
        if not isinstance(tool, Mapping) or not isinstance(tool.get("dpsql"), Mapping):
            break
        said = read_section(document, ("tool", "dpsql"), Settings)
        paths = (said.database, said.policy, said.ledger)
        database, policy, ledger = (p if p in (None, ":memory:") else str(place / p) for p in paths)
        return replace(said, database=database, policy=policy, ledger=ledger)
    return Settings()


def ask(
    session: AnalystSession, text: str, params: Params, options: CellOptions, *, kernel: bool = False
) -> list[Result]:
    """Answer a cell's statements under its flags, with a progress line in a kernel's cell or a terminal."""
    with show_progress(draw_in_kernel() if kernel else draw_in_terminal, stage=lambda: session.stage):
        if not options.plan:
            return session.run(text, params, fresh=options.fresh, epsilon=options.epsilon)
        with session.plan() as plan:
            plan.sql(text, params, epsilon=options.epsilon)
        return plan.results


def pair_kept_results(text: str, params: Params, results: list[Result]) -> list[tuple[str, Result]]:
    """Return the results that a cell's own statements keep, with their names."""
    from dpsql.language.statements import parse

    statements = parse(text, params)
    pairs = zip(statements, results, strict=True) if len(statements) == len(results) else ()
    return [(statement.keep, result) for statement, result in pairs if statement.keep]


def mention_frame(error: Error, text: str, space: Mapping[str, object]) -> None:
    """Add to the refusal of an unknown table that a frame of its name is not read, and the commands to write."""
    name = text[slice(*error.span)] if error.span and error.message.startswith("there is no table") else ""
    if name in space and is_frame(space[name]):
        error.hint = (
            f"the variable {name} is not read without a policy: %dpsql policy init {name} -o policy.toml, then %dpsql connect "
            f"{name} --policy policy.toml"
        )


def is_frame(found: object) -> bool:
    """Return whether a variable is a table of columns, as in pandas, polars and Arrow."""
    return not isinstance(found, str | Mapping) and hasattr(type(found), "columns")


def summarise_session(session: AnalystSession | None) -> str:
    """Return one line for loading and connecting: version, tables, budget; or the way to open a session."""
    if session is None:
        return f"dpsql {__version__}: {NO_SESSION}"
    return " · ".join((f"dpsql {__version__}", *describe_session(session)))


def describe_session(session: AnalystSession) -> list[str]:
    """List the facts of a session: its tables, its budget, and its place."""
    parts = [", ".join(session.policy.tables) or "no tables", session.budget().sentence]
    if isinstance(session, RemoteSession):
        parts.append(f"{session.analyst} at {session.server}")
        if (
            session.expires
            and session.expires[:10] <= (date.today() + timedelta(days=NOTICE_DAYS)).isoformat()
        ):
            parts.append(f"the token ends on {session.expires[:10]}")
    elif not session.account.lasting:
        parts.append("this budget lasts for this kernel only")
    return parts


def list_schema(session: AnalystSession) -> Mapping[str, Mapping[str, str]]:
    """List tables and kept results with their columns, for completion. No private row is read."""
    try:
        return session.schema()
    except Error:  # a lost connection is reported by statements, not by completion
        return {}


def list_known_names(session: AnalystSession, parameters: Mapping[str, str] | None = None) -> KnownNames:
    """Gather the public names of a session for completion. No row is read."""
    declared = {table.name.lower(): table for table in session.policy.tables.values()}
    tables = {
        name: _describe_columns(declared.get(name.lower()), tuple(columns.items()))
        for name, columns in list_schema(session).items()
    }
    return KnownNames(tables, parameters or {}, tuple(session.open_thresholds))


@lru_cache(maxsize=512)
def _describe_columns(table: Table | None, columns: tuple[tuple[str, str], ...]) -> Mapping[str, ColumnFacts]:
    """Return the policy's declarations of a table's columns; cached, since completion needs them at each keystroke."""
    return {column: replace(describe_column(table, column), type=kind) for column, kind in columns}


def describe_column(table: Table | None, column: str) -> ColumnFacts:
    """Return the policy's declarations of a column: its values as SQL literals, its bounds, whether it is the privacy unit."""
    if table is None:
        return ColumnFacts(help="a kept result's column", declared=False)
    said = next((told for name, told in table.columns.items() if name.lower() == column.lower()), None)
    facts = _list_facts(table, column, said)
    described = None if said is None else said.description
    return replace(facts, help=f"{described} ({facts.help})") if described else facts


def _list_facts(table: Table, column: str, said: Column | None) -> ColumnFacts:
    if said is not None and said.bounds is not None:
        return ColumnFacts(help=f"{write_bound(said.bounds[0])} to {write_bound(said.bounds[1])}")
    if said is not None and said.values is not None:
        return ColumnFacts(tuple(map(_write_value, said.values)), ", ".join(map(str, said.values)))
    if table.unit_path and column.lower() == table.unit_path[0].column.lower():
        return ColumnFacts(help="the privacy unit: can be counted, never shown")
    return ColumnFacts(
        help="public" if table.public else "no bounds and no values are declared", declared=False
    )


def _write_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | Decimal):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def choose_example_table(session: AnalystSession) -> str | None:
    """Choose a private table for an example; a public one if there is no other."""
    tables = sorted(session.policy.tables.values(), key=lambda table: table.public)
    return tables[0].name if tables else None


def show_tables(session: AnalystSession) -> SchemaTree:
    """Return the tree of the policy's tables and the kept results with their columns. No row is read."""
    declared = {table.name: table for table in session.policy.tables.values()}
    kinds = {row[0]: row[1] for row in session.tables().fetchall()}
    listed = []
    for name, columns in list_known_names(session).tables.items():
        table = declared.get(name)
        words = (
            f"a {kinds.get(name, 'kept result')}"
            if table is None
            else "public"
            if table.public
            else "private"
        )
        if table is not None and not table.public:
            caps = [f"{cap} = {value}" for cap, value in table.caps.items() if value is not None]
            words = ", ".join([f"private: protects {table.unit_words}", *caps])
        facts = [(column, told.type, _say_declared(told, table)) for column, told in columns.items()]
        listed.append(TreeTable(name, words, tuple(facts)))
    return SchemaTree(tuple(listed))


def _say_declared(facts: ColumnFacts, table: Table | None) -> str:
    """Return a column's declaration in the tree, or the declaration that its use still needs."""
    if facts.declared:
        return facts.help
    if table is None or table.public or facts.type == "BOOLEAN":
        return ""
    return "no values" if facts.type == "VARCHAR" else "no bounds"


def show_columns(session: AnalystSession, name: str) -> Result:
    """Show a table's columns: their types, and the bounds or values that the policy declares."""
    if not name:
        raise BindError("which table?", hint=f"%dpsql columns {choose_example_table(session) or 'visits'}")
    return session.sql(f"DESCRIBE {name}")


def show_report(session: AnalystSession, path: str) -> Panel:
    """Return the owner's report as text, or write it to a file of the format .html, .csv or .json."""
    account = session.account  # a server's is refused here, before anything is loaded
    from dpsql.report.pages import report_text, write_report

    if not path:
        return Panel(report_text(account, session.policy).rstrip("\n"))
    written = write_report(account, session.policy, path)
    return Panel(f"written to {written}")


NOTICE_DAYS = 14
"""The number of days before a token's end from which it is announced."""
PATIENCE = 1.0
"""Seconds before anything is shown of a statement that runs."""


@contextmanager
def show_progress(
    show: Callable[[str], None], every: float = 1.0, stage: Callable[[], str] = str
) -> Iterator[None]:
    """Show a line with the running time of a statement, from :data:`PATIENCE` seconds on, or the ``stage`` that a server reports.

    The stop button (or Ctrl-C) interrupts the engine; the reservation stays charged. ``show`` draws a line over the last one;
    an empty line erases it. The last line, which ends with a newline, is the time that an answer took.
    """
    started, done, steps, answered = time.monotonic(), threading.Event(), [""], False

    def note(now: int, total: int) -> None:
        steps[0] = f", {now:,} of {total:,} steps"

    def tick() -> None:
        if done.wait(PATIENCE):
            return
        while not done.is_set():
            at = f", {stage()}" if stage() else steps[0]
            show(f"running for {time.monotonic() - started:.0f} s{at}; stopping it keeps the charge")
            done.wait(every)
        show(f"took {time.monotonic() - started:.0f} s\n" if answered else "")

    context = contextvars.copy_context()  # a kernel finds the cell to write to in its context
    thread = threading.Thread(target=context.run, args=(tick,), daemon=True)
    thread.start()
    try:
        with watch_progress(note):
            yield
        answered = True
    finally:
        done.set()
        thread.join()


def draw_in_kernel() -> Callable[[str], None]:
    """Return a function that draws by updating one display of the running cell."""
    from IPython.display import display

    identity = uuid4().hex
    shown = False

    def show(line: str) -> None:
        nonlocal shown
        display({"text/plain": line.rstrip()}, raw=True, display_id=identity, update=shown)  # type: ignore[no-untyped-call]
        shown = True

    return show


def draw_in_terminal(line: str) -> None:
    """Draw over the last line of standard error."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[2K" + line)
        sys.stderr.flush()
