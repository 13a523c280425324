"""What the magic asks of a session, and how the budget, a plan and the tables are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql import __version__
from dpsql.errors import BindError, did_you_mean
from dpsql.notebook.arguments import Options
from dpsql.notebook.render import Lines, Panel, Sheet, of_rows
from dpsql.policy.validate import write_bound

if TYPE_CHECKING:
    from dpsql.result import Result
    from dpsql.session import Session


def ask(session: Session, text: str, params: dict[str, Any], options: Options) -> list[Result]:
    """The results of a cell's statements, under its flags."""
    if options.plan:
        with session.plan() as plan:
            plan.sql(text, params, epsilon=options.epsilon)
        return plan.results
    return session.run(text, params, fresh=options.fresh, epsilon=options.epsilon)


def kept(text: str, params: dict[str, Any], results: list[Result]) -> list[tuple[str, Result]]:
    """The results that a cell's own statements keep by name."""
    from dpsql.sql.parse.statements import parse

    statements = parse(text, params)
    pairs = zip(statements, results, strict=True) if len(statements) == len(results) else ()
    return [(statement.keep, result) for statement, result in pairs if statement.keep]


def explanation(explained: Any) -> Lines:
    """A plan in sentences, in fixed width."""
    return Lines(tuple(str(explained).splitlines()))


def one_line(session: Session) -> str:
    """What loading and connecting say: version, tables, what is left."""
    tables = ", ".join(session.policy.tables) or "no tables"
    parts = [f"dpsql {__version__}", tables, session.budget().sentence]
    if session.account.path is None:
        parts.append("this budget lasts for this kernel only")
    return " · ".join(parts)


def budget(session: Session) -> Panel:
    """The bar, and the latest charges."""
    from dpsql.report.tables import write_budget_html, write_budget_text

    return Panel(write_budget_text(session.account), write_budget_html(session.account))


def example_table(session: Session) -> str | None:
    """A private table to ask about; a public one where there is no other."""
    tables = sorted(session.policy.tables.values(), key=lambda table: table.public)
    return tables[0].name if tables else None


def default_epsilon(session: Session) -> str | None:
    """The policy's epsilon of a statement that names none."""
    epsilon = session.policy.budget.default_epsilon
    return None if epsilon is None else f"{float(epsilon):g}"


def schema(session: Session) -> dict[str, list[str]]:
    """Tables and kept results with their columns, for completion. No private rows are read."""
    return {name: list(session.columns(name)) for name, *_ in session.tables().fetchall()}


def columns(session: Session, name: str) -> Sheet:
    """The columns of a table: type, and the bounds or values that the policy declares.

    Raises:
        BindError: no table is named, or there is none of that name.
    """
    tables = session.policy.tables
    if not name:
        raise BindError("which table?", hint=f"%dpsql columns {example_table(session) or 'visits'}")
    table = next((t for t in tables.values() if t.name.lower() == name.lower()), None)
    listed = {row[0].lower(): row for row in session.tables().fetchall() if row[1] == "kept result"}
    if name.lower() in listed:
        shown = session.columns(name)
        return of_rows(
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
    return of_rows(("column", "type", "declared"), rows, (f"{table.name}: {len(rows)} columns",))


def report(session: Session, path: str) -> Lines:
    """The owner's report as text, or written to a file (by its ending .html, .csv, .json, else text)."""
    from dpsql.report.pages import report_text, write_report

    if not path:
        return Lines(tuple(report_text(session.account, session.policy).splitlines()))
    written = write_report(session.account, session.policy, path)
    return Lines((f"written to {written}",))
