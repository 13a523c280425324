"""Which sessions a notebook has open, and which of them its cells mean.

``[tool.dpsql]`` in pyproject.toml: where the data and the policy are, and how results are shown.

What the magic asks of a session, and how the budget, a plan and the tables are shown.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql import __version__
from dpsql.errors import BindError, PolicyError, did_you_mean
from dpsql.notebook import guide
from dpsql.notebook.guide import Options
from dpsql.notebook.render import Lines, Panel, make_sheet
from dpsql.policy.validate import write_bound
from dpsql.report.tables import Sheet

if TYPE_CHECKING:
    from dpsql.result import Result
    from dpsql.session import Session


class Sessions(dict[str, "Session"]):
    """The open sessions by name. It belongs to the shell, so that reloading the extension keeps it."""

    current: str = "main"

    def get_open(self, name: str | None = None) -> Session:
        """Return the session of that name, else the current one.

        Raises:
            BindError: there is none; the hint says how to open one.
        """
        wanted = name or self.current
        if wanted not in self:
            if name and self:
                raise BindError(f"there is no open session {name}.", hint=did_you_mean(name, self))
            raise BindError("no session is open yet.", hint=guide.NO_SESSION)
        return self[wanted]


_PATHS = ("database", "policy", "ledger")
_WORDS = ("analyst", "output")


@dataclass(frozen=True)
class Settings:
    """What a project says for all its notebooks. Paths are relative to the file they stand in."""

    database: str | None = None
    policy: str | None = None
    ledger: str | None = None
    analyst: str | None = None
    output: str | None = None
    rows: int | None = None


def read_settings(folder: Path) -> Settings:
    """Read the settings of the nearest pyproject.toml, in this folder or above; there need not be one.

    Raises:
        PolicyError: an unknown key, or a value of the wrong type.
    """
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue  # a broken file is other tools' to complain about
        tool = content.get("tool")
        section = tool.get("dpsql") if isinstance(tool, dict) else None
        return _checked(section, file) if isinstance(section, dict) else Settings()
    return Settings()


def _checked(section: dict[str, object], file: Path) -> Settings:
    given: dict[str, object] = {}
    for key, value in section.items():
        if key not in Settings.__dataclass_fields__:
            hint = did_you_mean(key, Settings.__dataclass_fields__)
            raise PolicyError(f"[tool.dpsql] in {file} has an unknown key {key}.", hint=hint)
        kind = int if key == "rows" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            what = "a whole number" if kind is int else "text"
            raise PolicyError(f"[tool.dpsql] in {file}: {key} must be {what}.")
        in_memory = key == "database" and value == ":memory:"
        given[key] = str(file.parent / str(value)) if key in _PATHS and not in_memory else value
    return Settings(**given)  # type: ignore[arg-type]  # each value was checked above


def ask(session: Session, text: str, params: dict[str, Any], options: Options) -> list[Result]:
    """Answer a cell's statements under its flags."""
    if options.plan:
        with session.plan() as plan:
            plan.sql(text, params, epsilon=options.epsilon)
        return plan.results
    return session.run(text, params, fresh=options.fresh, epsilon=options.epsilon)


def pair_kept_results(text: str, params: dict[str, Any], results: list[Result]) -> list[tuple[str, Result]]:
    """Return the results that a cell's own statements keep, with their names."""
    from dpsql.sql.parse.statements import parse

    statements = parse(text, params)
    pairs = zip(statements, results, strict=True) if len(statements) == len(results) else ()
    return [(statement.keep, result) for statement, result in pairs if statement.keep]


def show_explanation(explained: Any) -> Lines:
    """Show a plan in sentences, in fixed width."""
    return Lines(tuple(str(explained).splitlines()))


def summarise_session(session: Session) -> str:
    """Return one line for loading and connecting: version, tables, budget."""
    tables = ", ".join(session.policy.tables) or "no tables"
    parts = [f"dpsql {__version__}", tables, session.budget().sentence]
    if session.account.path is None:
        parts.append("this budget lasts for this kernel only")
    return " · ".join(parts)


def show_budget(session: Session) -> Panel:
    """Show the budget's bar and the latest charges."""
    from dpsql.report.tables import write_budget_html, write_budget_text

    return Panel(write_budget_text(session.account), write_budget_html(session.account))


def choose_example_table(session: Session) -> str | None:
    """Choose a private table to ask about; a public one where there is no other."""
    tables = sorted(session.policy.tables.values(), key=lambda table: table.public)
    return tables[0].name if tables else None


def format_default_epsilon(session: Session) -> str | None:
    """Write the policy's epsilon of a statement that names none; None where it has none."""
    epsilon = session.policy.budget.default_epsilon
    return None if epsilon is None else f"{float(epsilon):g}"


def list_columns(session: Session) -> dict[str, list[str]]:
    """List tables and kept results with their columns, for completion. No private row is read."""
    return {name: list(session.columns(name)) for name, *_ in session.tables().fetchall()}


def show_columns(session: Session, name: str) -> Sheet:
    """Show a table's columns: their types, and the bounds or values that the policy declares.

    Raises:
        BindError: no table is named, or there is none of that name.
    """
    tables = session.policy.tables
    if not name:
        raise BindError("which table?", hint=f"%dpsql columns {choose_example_table(session) or 'visits'}")
    table = next((t for t in tables.values() if t.name.lower() == name.lower()), None)
    listed = {row[0].lower(): row for row in session.tables().fetchall() if row[1] == "kept result"}
    if name.lower() in listed:
        shown = session.columns(name)
        return make_sheet(
            ("column", "type", "declared"),
            [(c, kind, "") for c, kind in shown.items()],
            (f"{name}: a kept result",),
        )
    if table is None:
        raise BindError(f"there is no table {name}.", hint=did_you_mean(name, tables))
    declared = {column.lower(): told for column, told in table.columns.items()}
    rows = []
    for column, kind in session.columns(table.name).items():
        told = declared.get(column.lower())
        known = ""
        if told is not None and told.bounds is not None:
            known = f"{write_bound(told.bounds[0])} to {write_bound(told.bounds[1])}"
        elif told is not None and told.values is not None:
            known = ", ".join(map(str, told.values))
        elif table.privacy_unit is not None and column.lower() == table.privacy_unit.lower():
            known = "the privacy unit: can be counted, never shown"
        rows.append((column, kind, known))
    return make_sheet(("column", "type", "declared"), rows, (f"{table.name}: {len(rows)} columns",))


def show_report(session: Session, path: str) -> Lines:
    """Return the owner's report as text, or write it to a file; the ending .html, .csv or .json says how."""
    from dpsql.report.pages import report_text, write_report

    if not path:
        return Lines(tuple(report_text(session.account, session.policy).splitlines()))
    written = write_report(session.account, session.policy, path)
    return Lines((f"written to {written}",))
