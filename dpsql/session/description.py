"""Statements described without drawing: plans, prices and the last outcome, and columns and parameters for clients.

They follow from the text, the policy, the schema and the ledger: nothing is spent, and no private row is read.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

import pyarrow as pa

from dpsql.binding.plan import Plan
from dpsql.errors import BindError, Error
from dpsql.language.parameter_values import Params, StandIn, number_marks
from dpsql.language.parameters import list_parameter_names
from dpsql.language.statements import Statement, parse
from dpsql.policy.model import Policy, fold
from dpsql.privacy.events import compose_events
from dpsql.session.compiler import Bound
from dpsql.session.explain import explain_all, explain_declaration, explain_plan, explain_why
from dpsql.session.explanation import Description, Explanation, Why
from dpsql.session.pipeline import Pipeline, locating
from dpsql.session.releases import make_status
from dpsql.session.result import Result
from dpsql.session.show import show, show_setting
from dpsql.session.stored_blocks import RequestedBlock

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
_ANY_TYPE = ("x", datetime.date(2000, 1, 1), b"")
"""Values that all fit only if the statement leaves a parameter's type open; it is a text then, as in PostgreSQL."""


def describe_statement(line: Pipeline, policy: Policy, statement: Statement, bound: Bound) -> Result:
    """Answer EXPLAIN, or SHOW to an analyst who may see ``policy``."""
    line.note(statement.source, "free")
    if statement.kind == "explain":
        return explain_bound(line, statement, bound).result()
    with locating(statement):
        return show(line, policy, statement.name, statement.limit)


def explain_bound(
    line: Pipeline, statement: Statement, bound: Bound, paid: dict[str, RequestedBlock] | None = None
) -> Explanation:
    """Explain a bound query, EXPLAIN or DECLARE; add its blocks to ``paid``, which has those of earlier statements by key."""
    if bound is not None and not isinstance(bound, Plan):
        return explain_declaration(bound, line.ledger, statement.json)
    if bound is None:
        raise BindError(
            "nothing is drawn: the release already exists.",
            span=statement.span,
            hint="write REFRESH RELEASE after EXPLAIN.",
            text=statement.text,
        )
    (prepared,) = line.look_up([bound], paid=paid)
    written = partial(line.compiler.queries.write, bound)
    return explain_plan(prepared, line.ledger, line.policy.budget, written, as_json=statement.json)


def explain_cell(
    line: Pipeline, statements: Sequence[Statement], epsilon: str | Fraction | None
) -> Explanation:
    """Explain statements that would be paid one after another, with ``epsilon`` as their default cost."""
    cell, paid = line.compiler.open_cell(epsilon), dict[str, RequestedBlock]()
    parts = [explain_bound(line, one, line.compiler.bind(one, cell), paid) for one in statements]
    return explain_all(parts, line.ledger)


def explain_last(line: Pipeline, policy: Policy) -> Why:
    """Explain the last statement to an analyst who may see ``policy``; BindError if nothing was asked yet."""
    return explain_why(line.last, line.ledger, policy)


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
    cell = line.compiler.open_cell()
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
        return explain_bound(line, statement, bound).result().table.schema
    if statement.release and bound is None:
        return make_status(statement.release, "").table.schema
    if not isinstance(bound, Plan):
        return _THRESHOLD
    found = line.compiler.finisher.find_schema(bound.finish, bound.schemas, bound.public)
    empty = pa.Table.from_arrays([pa.array([], kind) for kind in found.types], names=found.names)
    result = Result.finished(empty, bound.columns, bound.intervals, bound.spreads)
    return (result.with_interval_columns(bound.interval_columns) if intervals else result).table.schema


def describe_tables(line: Pipeline) -> dict[str, pa.Schema]:
    """Return the Arrow schemas of all tables in the policy, and of releases; SQL types and descriptions are in the metadata."""
    found = {}
    for table in line.policy.tables.values():
        kinds = line.compiler.catalog.schema(table)
        told = {fold(name): column.description for name, column in table.columns.items()}
        fields = [
            _make_field(line, name, kind).with_metadata(
                {SQL_TYPE: kind} | _write_remarks(told.get(fold(name)))
            )
            for name, kind in kinds.items()
        ]
        found[table.name] = pa.schema(fields, _write_remarks(table.description) or None)
    for release in line.compiler.releases.names:
        kinds = line.compiler.find_columns(release)
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
        (found,) = line.compiler.finisher.find_schema("SELECT x FROM typed", {"typed": [("x", kind)]}).types
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
        if all(_binds(line, text, {**values, name: other}) for other in _ANY_TYPE):
            value, kind = _ANY_TYPE[0], _UNKNOWN
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
    """Return whether a cell can be bound with these types, unlogged; BindError for constants that can't be values."""
    try:
        cell = line.compiler.open_cell()
        for statement in parse(text, _stand_in(values)):
            line.compiler.bind(statement, cell)
    except Error as error:
        if isinstance(error, BindError) and error.decided:
            raise
        return False
    return True
