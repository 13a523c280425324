"""SHOW's relations; and the columns, parameters and price of a statement before it is asked, for clients that prepare it.

They follow from the text, the policy, the schema and the ledger: nothing is spent, and no private row is read.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import pyarrow as pa

from dpsql.binding.plan import Plan
from dpsql.engine.sandbox import quote_identifier
from dpsql.errors import BindError, Error, did_you_mean
from dpsql.language.dialect import quote_where_needed
from dpsql.language.parameter_values import Params, StandIn, number_marks
from dpsql.language.parameters import list_parameter_names
from dpsql.language.statements import Statement, parse
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.queries import As, Select
from dpsql.policy.model import Policy
from dpsql.policy.validate import fold
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.periods import list_periods, remove_days, unite_periods
from dpsql.report.figures import FIGURES, list_figures
from dpsql.report.tables import list_budget, list_entries
from dpsql.session.explain import NO_CHARGE
from dpsql.session.explanation import Description
from dpsql.session.pipeline import Bound, Pipeline
from dpsql.session.releases import make_status
from dpsql.session.result import Result

MAX_GUESSED = 8
"""The most parameters whose types are guessed; a statement with more is bound once their values are known."""
SQL_TYPE = "ARROW:FLIGHT:SQL:TYPE_NAME"
"""The key of the SQL type in a field's metadata, as in Flight SQL."""
REMARKS = "ARROW:FLIGHT:SQL:REMARKS"
"""The key of a description in the metadata of a field or a schema, as in Flight SQL."""
_THRESHOLD = pa.schema([("threshold", pa.string()), ("status", pa.string())])
_Values = dict[str, object]
"""Values of parameters by name."""
_UNKNOWN = pa.string()
"""The reported type of a parameter whose type can't be guessed."""
_STAND_INS: tuple[tuple[object, pa.DataType], ...] = (
    (0.5, pa.float64()),
    (1, pa.int64()),
    ("x", pa.string()),
    (datetime.date(2000, 1, 1), pa.date32()),
    (datetime.datetime(2000, 1, 1), pa.timestamp("us")),
    (True, pa.bool_()),
    (datetime.time(), pa.time64("us")),
    (datetime.timedelta(1), pa.duration("us")),
    (b"", pa.binary()),
)
"""Values tried for a parameter without one, with their types; doubles first, or clients would truncate decimals."""


# -- SHOW -------------------------------------------------------------------------------------------------------------


def show(line: Pipeline, policy: Policy, what: str, limit: int | None = None) -> Result:
    """Return the relation that ``SHOW <what>`` displays, or DESCRIBE and SUMMARIZE of a table.

    ``policy`` is the part that the analyst may see; ``limit`` is SHOW LEDGER's number of rows, the last ones.
    """
    ledger = line.ledger
    word, _, table = what.partition(" ")
    if word in ("DESCRIBE", "SUMMARIZE"):
        names, rows = _list_columns(policy, word, table, line.find_columns)
    elif what == "RELEASES":
        names, rows = _RELEASES, [*_list_releases(line)]
    elif word == "VALUES":
        names, rows = ("table", "column", "value"), [*_list_values(line, policy, table)]
    elif what == "LEDGER":
        names, rows = list_entries(ledger.entries(limit), ledger.accountant)
    elif what in FIGURES:
        names, rows = list_figures(ledger, what)
    elif what == "BUDGET":
        names, rows = list_budget(ledger.state(), ledger.lasting)
    elif what == "TABLES":
        names = ("table", "kind", "privacy_unit", "max_rows", "max_rows_per_group", "max_groups")
        tables = policy.tables.values()
        rows = [(t.name, "public" if t.public else "private", t.unit_label, *t.caps.values()) for t in tables]
        rows += [(name, "kept result", "", None, None, None) for name in line.kept.names]
        rows += [(name, "release", "", None, None, None) for name in line.releases.names]
        if any(table.description for table in tables):
            told = [*(table.description for table in tables), *(None for _ in rows[len(tables) :])]
            names, rows = (
                (*names, "description"),
                [(*row, text) for row, text in zip(rows, told, strict=True)],
            )
    else:
        names, rows = ("where", "name", "declared"), [*_list_settings(policy)]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if word in ("DESCRIBE", "SUMMARIZE", "RELEASES"):
        columns = {
            name: pa.array(values, pa.int64() if name in _COUNTED else pa.string())
            for name, values in columns.items()
        }
    return Result(pa.table(columns), cost_line=NO_CHARGE, lasting=ledger.lasting or what != "BUDGET")


def _list_releases(line: Pipeline) -> Iterator[tuple[str | int | None, ...]]:
    """Yield the rows of SHOW RELEASES: each definition, its answer's time and rows, the cost of the next refresh, and how often
    the budget is enough for one that draws anew: NULL if each period is drawn once, and all are. ``paid_until`` is the last day
    whose period is paid.
    """
    for draft, when, count in line.releases.walk():
        statement = Statement("query", draft.text, (0, len(draft.text)), release=draft.name, step="refresh")
        try:
            plan = line.bind(statement, line.open_cell())
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
        yield draft.name, draft.text, when, count, cost, more, _find_last_paid(plan, now.event)


MAX_REFRESHES = 1000
"""The most further refreshes that are counted."""


def _count_more(ledger: Ledger, event: Event) -> int:
    """Return how many events like this one fit one after another, at most :data:`MAX_REFRESHES`."""
    most = range(1, MAX_REFRESHES + 1)
    return bisect.bisect_left(most, True, key=lambda count: ledger.find_excess(*[event] * count) is not None)


def _find_last_paid(plan: Plan, due: Event | None) -> str | None:
    """Return the last day of the periods that a plan reads and that need no payment; None without budgets per period."""
    read = unite_periods(block.periods for block in plan.blocks)
    unpaid = () if due is None else list_periods(due)
    paid = () if read is None or unpaid is None else remove_days(read, unpaid)
    return datetime.date.fromordinal(paid[-1][1] - 1).isoformat() if paid else None


def _list_values(line: Pipeline, policy: Policy, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the public values of a column, of each table that has it: declared ones, truths, and those of public tables.

    Raises:
        BindError: there is no such column, or none with public values.
    """
    parent, _, name = path.rpartition(".")
    asked = fold(parent.rpartition(".")[2])
    tables = [
        table for table in policy.tables.values() if not asked or fold(table.name).rpartition(".")[2] == asked
    ]
    columns = {table.name: line.find_columns(table.name) for table in tables}
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
            values = line.finisher.finish(query.sql, {}, [table.name]).column(0).to_pylist()
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


# -- columns and price ------------------------------------------------------------------------------------------------


def describe_cell(
    line: Pipeline, policy: Policy, text: str, params: Params | None, intervals: bool = False
) -> Description:
    """Describe the last statement of a cell, and price all of them. The caller has the turn.

    ``policy`` is the part that the session shows; ``intervals``: whether the ends of intervals are columns. Refusals for
    privacy are recorded in the ledger.
    """
    names = list_parameter_names(text) if params is None else ()
    if not names:
        return _describe(line, policy, text, params, intervals)
    text, _ = number_marks(text)
    given = _guess(line, text, names)
    if given is None:
        return Description(None, pa.schema([(name, _UNKNOWN) for name in names]), "")
    values, kinds = given
    found = _describe(line, policy, text, _stand_in(values), intervals)
    return Description(found.schema, pa.schema(list(zip(names, kinds, strict=True))), found.price)


def _describe(
    line: Pipeline, policy: Policy, text: str, params: Params | None, intervals: bool
) -> Description:
    statements = parse(text, params)
    cell = line.open_cell()
    bound = [line.admit(statement, cell) for statement in statements]
    price = _price(line, [one for s, one in zip(statements, bound, strict=True) if s.kind != "explain"])
    if not statements:
        return Description(pa.schema([]), pa.schema([]), price)
    for statement in statements:
        intervals = statement.name == "columns" if statement.kind == "set" else intervals
    schema = _find_schema(line, policy, statements[-1], bound[-1], intervals)
    return Description(schema, pa.schema([]), price)


def _price(line: Pipeline, bound: list[Bound]) -> str:
    prepared = line.look_up([one for one in bound if isinstance(one, Plan)])
    events = [one.event for one in prepared if one.event is not None]
    events += [one.event for one in bound if one is not None and not isinstance(one, Plan)]
    return line.price(compose_events(events)) if events else ""


def _find_schema(
    line: Pipeline, policy: Policy, statement: Statement, bound: Bound, intervals: bool
) -> pa.Schema:
    """Return names and Arrow types of the columns of a bound statement's answer."""
    if statement.kind == "set":
        return show_setting(statement.name).table.schema
    if statement.kind == "show":
        return show(line, policy, statement.name, statement.limit).table.schema
    if statement.kind == "explain":
        return line.explain(statement, bound).result().table.schema
    if statement.release and bound is None:
        return make_status(statement.release, "").table.schema
    if not isinstance(bound, Plan):
        return _THRESHOLD
    found = line.finisher.find_schema(bound.finish, bound.schemas, bound.public)
    empty = pa.Table.from_arrays([pa.array([], kind) for kind in found.types], names=found.names)
    result = Result.finished(empty, bound.columns, bound.intervals, bound.spreads)
    return (result.with_interval_columns(bound.interval_columns) if intervals else result).table.schema


def describe_tables(line: Pipeline) -> dict[str, pa.Schema]:
    """Return the Arrow schemas of all tables in the policy, and of releases; SQL types and descriptions are in the metadata."""
    found = {}
    for table in line.policy.tables.values():
        kinds = line.catalog.schema(table)
        told = {fold(name): column.description for name, column in table.columns.items()}
        fields = [
            _make_field(line, name, kind).with_metadata(
                {SQL_TYPE: kind} | _write_remarks(told.get(fold(name)))
            )
            for name, kind in kinds.items()
        ]
        found[table.name] = pa.schema(fields, _write_remarks(table.description) or None)
    for release in line.releases.names:
        kinds = line.find_columns(release)
        fields = [
            _make_field(line, name, kind).with_metadata({SQL_TYPE: kind}) for name, kind in kinds.items()
        ]
        found[release] = pa.schema(fields)
    return found


def _write_remarks(text: str | None) -> dict[str, str]:
    return {REMARKS: text} if text else {}


def _make_field(line: Pipeline, name: str, kind: str) -> pa.Field:
    """Return the Arrow field of a column; types that clients can't represent are sent, and declared, as text."""
    try:
        (found,) = line.finisher.find_schema("SELECT x FROM typed", {"typed": [("x", kind)]}).types
    except Error:
        found = pa.string()
    return pa.field(name, pa.string() if pa.types.is_dictionary(found) else found)


def match_parameters(text: str, bound: Mapping[str, object]) -> tuple[str, _Values]:
    """Return a text and its parameters' values by name, given a client's bound values.

    Values are matched by name if the names are the statement's own, otherwise by order. BindError if there are more or fewer.
    """
    names = list_parameter_names(text)
    text, _ = number_marks(text)
    if set(names) == set(bound):
        return text, dict(bound)
    if len(names) != len(bound):
        raise BindError(f"the statement has {len(names)} parameters, and {len(bound)} values were bound.")
    return text, dict(zip(names, bound.values(), strict=True))


# -- parameters without values ----------------------------------------------------------------------------------------


def _guess(line: Pipeline, text: str, names: tuple[str, ...]) -> tuple[_Values, list[pa.DataType]] | None:
    """Return values that a cell can be bound with, and their types; None if no combination tried fits."""
    if len(names) > MAX_GUESSED:
        return None
    values = next((given for given in _list_tries(names) if _binds(line, text, given)), None)
    if values is None:
        return None
    kinds = []
    for name in names:
        fitting = ((value, kind) for value, kind in _STAND_INS if _binds(line, text, {**values, name: value}))
        value, kind = next(fitting, (values[name], _UNKNOWN))
        values[name] = value
        kinds.append(kind)
    return values, kinds


def _list_tries(names: tuple[str, ...]) -> Iterator[_Values]:
    """Yield trial values: one value for all parameters, and for two parameters each pair."""
    yield dict.fromkeys(names)
    for value, _ in _STAND_INS:
        yield dict.fromkeys(names, value)
    if len(names) == 2:
        for pair in itertools.permutations((value for value, _ in _STAND_INS), 2):
            yield dict(zip(names, pair, strict=True))


def _stand_in(values: Mapping[str, object]) -> dict[str, StandIn]:
    return {name: StandIn(value) for name, value in values.items()}


def _binds(line: Pipeline, text: str, values: Mapping[str, object]) -> bool:
    """Return whether a cell can be bound with values of these types. Nothing is written to the ledger.

    Raises:
        BindError: a constant is not among a column's declared values, whatever the parameters are.
    """
    try:
        cell = line.open_cell()
        for statement in parse(text, _stand_in(values)):
            line.bind(statement, cell)
    except Error as error:
        if isinstance(error, BindError) and error.decided:
            raise
        return False
    return True
