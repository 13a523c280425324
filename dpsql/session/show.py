"""The relations of SHOW, DESCRIBE and SUMMARIZE.

They follow from the policy, the schema, the ledger and public rows: nothing is spent, and no private row is read.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import pyarrow as pa

from dpsql.binding.plan import Plan
from dpsql.engine.sandbox import quote_identifier
from dpsql.errors import BindError, Error, did_you_mean
from dpsql.language.dialect import quote_where_needed
from dpsql.language.statements import Statement
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.queries import As, Select
from dpsql.numerics.exact_numbers import make_values
from dpsql.policy.model import Policy, fold
from dpsql.privacy.events import Event
from dpsql.report.tables import list_budget, list_entries
from dpsql.session.outcomes import NO_CHARGE
from dpsql.session.pipeline import Pipeline
from dpsql.session.result import Result


def show(line: Pipeline, policy: Policy, what: str, limit: int | None = None) -> Result:
    """Return what SHOW, DESCRIBE or SUMMARIZE displays, of the analyst's part of the policy; ``limit``: SHOW LEDGER's rows."""
    ledger = line.ledger
    word, _, table = what.partition(" ")
    if word in ("DESCRIBE", "SUMMARIZE"):
        names, rows = _list_columns(policy, word, table, line.compiler.find_columns)
    elif what == "RELEASES":
        names, rows = _RELEASES, [*_list_releases(line)]
    elif word == "VALUES":
        names, rows = ("table", "column", "value"), [*_list_values(line, policy, table)]
    elif what == "LEDGER":
        names, rows = list_entries(ledger.entries(limit), ledger.accountant)
    elif what == "BUDGET":
        names, rows = list_budget(ledger.state(), ledger.lasting)
    elif what == "TABLES":
        names = ("table", "kind", "privacy_unit", "max_rows", "max_rows_per_group", "max_groups")
        tables = policy.tables.values()
        rows = [(t.name, "public" if t.public else "private", t.unit_label, *t.caps.values()) for t in tables]
        rows += [(name, "kept result", "", None, None, None) for name in line.compiler.kept.names]
        rows += [(name, "release", "", None, None, None) for name in line.compiler.releases.names]
        if any(table.description for table in tables):
            told = [*(table.description for table in tables), *(None for _ in rows[len(tables) :])]
            names, rows = (
                (*names, "description"),
                [(*row, text) for row, text in zip(rows, told, strict=True)],
            )
    elif what == "POLICY":
        names, rows = ("where", "name", "declared"), [*_list_settings(policy)]
    else:
        from dpsql.report.figures import list_figures  # loads the loss distributions

        names, rows = list_figures(ledger, what)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if word in ("DESCRIBE", "SUMMARIZE", "RELEASES"):
        columns = {
            name: make_values(values, pa.int64() if name in _COUNTED else pa.string())
            for name, values in columns.items()
        }
    return Result(pa.table(columns), cost_line=NO_CHARGE, lasting=ledger.lasting or what != "BUDGET")


def _list_releases(line: Pipeline) -> Iterator[tuple[str | int | None, ...]]:
    """Yield the rows of SHOW RELEASES: each definition, its answer's time and rows, the next refresh's cost, and more.

    The last columns are the number of refreshes that the budget allows (NULL if each period is drawn once, and all have
    been) and ``paid_until``, the last day whose period is paid.
    """
    for draft, when, count in line.compiler.releases.walk():
        statement = Statement("query", draft.text, (0, len(draft.text)), release=draft.name, step="refresh")
        try:
            plan = line.compiler.bind(statement, line.compiler.open_cell())
        except Error as error:
            yield draft.name, draft.text, when, count, f"refused: {error.message}", None, None
            continue
        assert isinstance(plan, Plan)
        (now,), (anew,) = line.look_up([plan]), line.look_up([plan], fresh=True)
        cost, due = "nothing" if now.event is None else line.price(now.event), now.event
        if due is None and not all(item.parts for item in anew.asked):
            # parts that are new have a budget of their own
            due = anew.event
        more = None if due is None else _count_more(line.ledger, due)
        yield draft.name, draft.text, when, count, cost, more, now.paid_until


MAX_REFRESHES = 1000
"""The most further refreshes that are counted."""


def _count_more(ledger: Ledger, event: Event) -> int:
    """Return how many events like this one fit one after another, at most :data:`MAX_REFRESHES`."""
    most = range(1, MAX_REFRESHES + 1)
    return bisect.bisect_left(most, True, key=lambda count: ledger.find_excess(*[event] * count) is not None)


def _list_values(line: Pipeline, policy: Policy, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield a column's public values in each table: declared ones, truths, public rows; BindError if there is none."""
    parent, _, name = path.rpartition(".")
    asked = fold(parent.rpartition(".")[2])
    tables = [
        table for table in policy.tables.values() if not asked or fold(table.name).rpartition(".")[2] == asked
    ]
    columns = {table.name: line.compiler.find_columns(table.name) for table in tables}
    found = [
        (table, column) for table in tables for column in columns[table.name] if fold(column) == fold(name)
    ]
    if not found:
        known = [column for table in columns.values() for column in table]
        raise BindError(f"there is no column {path}.", hint=did_you_mean(name, known), sqlstate="42703")
    any_public = False
    for table, column in found:
        rules = {fold(key): item for key, item in table.columns.items()}.get(fold(column))
        values: Sequence[object] | None = None if rules is None else rules.values
        if values is None and columns[table.name][column] == "BOOLEAN":
            values = (False, True)
        if table.public:
            shown = As(quote_identifier(column), "v")
            query = Select(shown, quote_identifier(table.name), order="v", distinct=True)
            values = line.compiler.finisher.finish(query.sql, {}, [table.name]).column(0).to_pylist()
        any_public = any_public or values is not None
        for value in values or ():
            yield table.name, column, str(value).lower() if isinstance(value, bool) else str(value)
    if not any_public:
        key, owner = quote_where_needed(found[0][1]), quote_where_needed(found[0][0].name)
        hint = f"write {Select((key, 'COUNT(*)'), owner, group=key)}, which is paid."
        raise BindError(f"the policy declares no values of {path}.", hint=hint)


_DESCRIBED = ("column_name", "column_type", "null", "key", "default", "extra")
_SUMMARIZED = ("column_name", "column_type", "min", "max", "approx_unique", "privacy_unit", "values")
_RELEASES = ("release", "statement", "refreshed", "rows", "next_refresh", "more_refreshes", "paid_until")
_COUNTED = ("approx_unique", "rows", "more_refreshes")


def _list_columns(
    policy: Policy, word: str, name: str, columns_of: Callable[[str], Mapping[str, str]]
) -> tuple[Sequence[str], list[tuple[str | int | float | None, ...]]]:
    """Return the rows of DESCRIBE or SUMMARIZE: facts from schema and policy, none from rows."""
    last = name.rpartition(".")[2]
    table = policy.tables.get(name) or policy.tables.get(last)
    kinds = columns_of(table.name if table is not None else name if "." not in name else last)
    unit = (
        {fold(part) for part in (table.unit_text or "").split("->")[0].split(",")}
        if table is not None
        else set()
    )
    declared = {} if table is None else {fold(column): rules for column, rules in table.columns.items()}
    rows: list[tuple[str | int | float | None, ...]] = []
    for column, kind in kinds.items():
        rules = declared.get(fold(column))
        bounds = None if rules is None or rules.bounds is None else [_end(end, kind) for end in rules.bounds]
        values = None if rules is None or rules.values is None else [*map(str, rules.values)]
        if word == "SUMMARIZE":
            listed = (None, None) if values is None else (len(values), ", ".join(values))
            protected = "yes" if fold(column) in unit else None
            rows.append((column, kind, *(bounds or (None, None)), listed[0], protected, listed[1]))
            continue
        said = [rules.description] if rules is not None and rules.description else []
        said += [f"bounds {bounds[0]} to {bounds[1]}"] if bounds is not None else []
        said += [f"values {', '.join(values)}"] if values is not None else []
        said += ["privacy unit"] if fold(column) in unit else []
        rows.append((column, kind, "YES", None, None, "; ".join(said) or None))
    return (_SUMMARIZED if word == "SUMMARIZE" else _DESCRIBED), rows


def _end(end: object, kind: str) -> str:
    """Return an end of bounds; those of moments are seconds since 1970."""
    if isinstance(end, Fraction) and kind.startswith(("DATE", "TIMESTAMP")):
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=float(end))
        return str(moment.date() if moment.time() == datetime.time() else moment)
    return _text(end)


def _list_settings(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of SHOW POLICY: the section of a setting, its name and its value."""
    for field in dataclasses.fields(policy.budget):
        yield "budget", field.name, _text(getattr(policy.budget, field.name))
    if policy.ledger.keep_answers_mb is not None:
        yield "ledger", "keep_answers_mb", str(policy.ledger.keep_answers_mb)
    if not policy.ledger.prompt_history:
        yield "ledger", "prompt_history", "false"
    for name, value in policy.server.collect().items():
        yield "server", name, ", ".join(map(_text, value)) if isinstance(value, tuple) else _text(value)
    for table in policy.tables.values():
        if table.description:
            yield table.name, "description", table.description
        if not table.public:
            yield table.name, "privacy_unit", table.unit_text or "ROW"
            yield from ((table.name, name, str(cap)) for name, cap in table.caps.items() if cap is not None)
        if table.period is not None:
            rows = f"one {table.unit_path[-1].column}'s rows {table.period.words}"
            yield table.name, "privacy_period", rows
        if table.data_from is not None:
            yield table.name, "data_from", str(table.data_from)
            yield table.name, "data_until", str(table.data_until)
        if table.closed_before is not None:
            yield table.name, "closed_before", str(table.closed_before)
        if table.determines:
            yield table.name, "determines", "; ".join(table.determines)
        for name, column in table.columns.items():
            if column.description:
                yield table.name, name, column.description
            if column.bounds is not None:
                low, high = map(_text, column.bounds)
                yield table.name, name, f"bounds {low} to {high}"
            if column.values is not None:
                yield table.name, name, "values " + ", ".join(map(str, column.values))


def _text(value: object) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else "" if value is None else str(value)


def show_setting(value: str) -> Result:
    """Return the relation that ``SET intervals`` displays."""
    return Result(pa.table({"setting": ["intervals"], "value": [value]}), cost_line=NO_CHARGE)
