"""Coercion of types: which values may meet, in which type, and whether that can fail; constants and casts.

DuckDB casts implicitly, row by row: it reads text that meets a number as a number, and raises on the first row with
other text. Here only types of one family meet. The result's type is DuckDB's own. An implicit cast that may overflow
becomes a TRY_CAST. Constants are read at plan time, and casts that may fail give NULL. Fields of structs and elements of
lists get a type that expressions take when they are read.
"""

from __future__ import annotations

import datetime
import math
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import TypeVar

from sqlglot import exp

from dpsql.binding.values.declared_values import EQUALITIES, length_of, mark_length
from dpsql.binding.values.sql_types import (
    BLOB,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    MOMENT,
    NULL,
    TEXT,
    TIME,
    TIMESTAMP,
    UUID,
    Bounds,
    Type,
    Typed,
    decimal,
    list_of,
    make_call,
    make_cast,
    make_try,
    parenthesise,
    write_local_time,
)
from dpsql.catalogue.row_names import MAP_WORDS
from dpsql.errors import BindError, clip, did_you_mean
from dpsql.language.dialect import bind_error, is_not_null, privacy_error, to_sql
from dpsql.language.options import moment_of
from dpsql.late_dataclass import dataclass
from dpsql.policy.validate import DateBound

Bind = Callable[[exp.Expr], Typed]
"""Makes a part of an expression total, in the expression's scope."""
CallBinder = Callable[[exp.Expr, list[exp.Expr], Bind], Typed]
_Binder = TypeVar("_Binder", bound=CallBinder)
CALLED: dict[str, CallBinder] = {}
"""Calls by name with binders of their own."""
NUMBER_KINDS = ("INTEGER", "DECIMAL", "DOUBLE")
ORDERED_KINDS = (*NUMBER_KINDS, "TEXT", "DATE", "TIME", "TIMESTAMP", "BOOLEAN", "INTERVAL", "UUID")
"""Kinds that can be compared, and written as text."""
COMPARED_KINDS = (*ORDERED_KINDS, "MOMENT")
"""Kinds that can be compared."""
MAX_LITERAL_COUNT = 1_000_000
"""The greatest absolute value of a literal count or position."""


# -- building nodes ---------------------------------------------------------------------------------------------


def binds_calls_of(
    name: str, count: int, takes: str, hint: str | None = None
) -> Callable[[_Binder], _Binder]:
    """Register the binder of calls of a function; with another number of arguments they are refused with these words."""

    def register(function: _Binder) -> _Binder:
        def checked(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
            if len(arguments) != count:
                raise bind_error(node, takes, hint)
            return function(node, arguments, bind)

        CALLED[name] = checked
        return function

    return register


def above_parentheses(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """Return a node with the parentheses around it, and the node above them."""
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return node, node.parent


def cast_to_double(typed: Typed) -> exp.Expr:
    """Return the value's node as a DOUBLE."""
    return typed.node if typed.type.sql == "DOUBLE" else make_cast(typed.node, DOUBLE)


def cast_fitting(typed: Typed, kind: Type) -> exp.Expr:
    """Return the value's node cast to a type; a value that doesn't fit becomes NULL."""
    return make_cast(typed.node, kind, trying=typed.type != NULL and not fits(typed, kind))


def let_meet(typed: Typed, kind: Type) -> exp.Expr:
    """Return the value's node in a type, NULL if it doesn't fit. DuckDB's own casts must be safe for the whole type."""
    if typed.type == NULL:
        return exp.Null()
    known = typed if _literal(typed) else replace(typed, reach=None)
    return typed.node if fits(known, kind) else cast_fitting(typed, kind)


def refuse_rest(node: exp.Expr, *known: str) -> None:
    """Raise BindError if a node has parts that its handler doesn't read: dropped silently, they would change its meaning."""
    for key, value in node.args.items():
        if key not in known and value is not None and value is not False and value != []:
            raise bind_error(node, f"{key.replace('_', ' ')} is not known here.")


# -- families ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommonType:
    """The common type of several values.

    Args:
        nodes: the values, cast to the type if DuckDB's implicit cast might fail.
        plain: the type in DuckDB of the analyst's own expression.
        safe: whether no cast can fail; otherwise values that don't fit become NULL.
    """

    nodes: list[exp.Expr]
    type: Type
    plain: Type
    safe: bool = True


def unify(given: Sequence[Typed], what: str) -> tuple[list[exp.Expr], Type]:
    """Return the nodes cast to one type explicitly, and that type; errors as for :func:`meet`."""
    met = meet(given, what)
    if met.type.kind == "NULL":
        return met.nodes, met.type
    nodes = list(met.nodes)
    for i, typed in enumerate(given):
        if typed.type.numeric and typed.type != met.type and fits(typed, met.type):
            nodes[i] = make_cast(nodes[i], met.type)
    return nodes, met.type


def meet(given: Sequence[Typed], what: str, compared: bool = False) -> CommonType:
    """Return the common type of values of one family.

    Compared decimals keep all digits after the point; others may lose some in favour of those before it.

    Raises:
        BindError: the types are of different families.
    """
    known = [typed for typed in given if typed.type.kind != "NULL"]
    kinds = {typed.type.kind for typed in known}
    nodes = _write_nulls(given)
    if not known:
        return CommonType(nodes, NULL, NULL)
    if kinds <= {"MOMENT", "TIMESTAMP", "DATE", "TEXT"} and kinds & {"MOMENT", "TIMESTAMP"}:
        given = [read_zoned_text(typed) or typed for typed in given]
        known = [typed for typed in given if typed.type.kind != "NULL"]
        if _are_moments(known, compared):
            return CommonType([_as_moment(typed, known, what) for typed in given], MOMENT, MOMENT)
        _refuse_zones(known, what)
        nodes = _write_nulls(given)
        kinds = {typed.type.kind for typed in known}
    if kinds <= {*NUMBER_KINDS}:
        if _unclear(known):
            message = f"{what} combines UHUGEINT with signed integers, and no type holds both."
            hint = "cast one of the two to HUGEINT."
            raise bind_error(given[0].place, message, hint, around=given[-1].place)
        kind, plain = find_common_number(known), find_common_number(known, shown=True)
        if compared and kind.kind == "DECIMAL":
            scale = max(typed.type.digits[1] for typed in known)
            kind = kind if kind.digits[1] == scale else decimal(38, scale)
        safe = all(fits(typed, kind) for typed in known)
        return CommonType([let_meet(typed, kind) for typed in given], kind, plain, safe)
    moments = kinds & {"DATE", "TIME", "TIMESTAMP", "UUID"}
    if moments and kinds <= moments | {"TEXT"} and (len(moments) == 1 or moments == {"DATE", "TIMESTAMP"}):
        wanted = {"DATE": DATE, "TIME": TIME, "UUID": UUID, "TIMESTAMP": TIMESTAMP}[max(moments)]
        wanted = next((typed.type for typed in known if typed.type.zone), wanted)
        return CommonType([_as(typed, wanted, what) for typed in given], wanted, wanted)
    if kinds == {"LIST"}:
        wanted = next((typed.type for typed in known if not typed.constant), known[0].type)
        given = [_read_list(typed, wanted) for typed in given]
        known = [typed for typed in given if typed.type.kind != "NULL"]
        nodes = _write_nulls(given)
    first = known[0].type
    if len(kinds) == 1 and (first.kind not in ("LIST", "STRUCT") or all(t.type == first for t in known)):
        return CommonType(nodes, first, first)
    raise _mismatch(known, what)


def _read_list(typed: Typed, wanted: Type) -> Typed:
    """Return a written list of whole numbers in the type of the list that it meets, if that holds them; others unchanged."""
    written = typed.node.this if isinstance(typed.node, exp.Cast) else None
    reach = None if wanted.element is None else wanted.element.reach
    if typed.type == wanted or reach is None or not isinstance(written, exp.Array):
        return typed
    numbers = [to_sql(item) for item in written.expressions if not isinstance(item, exp.Null)]
    if not all(re.fullmatch("-?[0-9]{1,40}", n) and reach.holds(Bounds.point(int(n))) for n in numbers):
        return typed
    return replace(typed, node=make_cast(written.copy(), wanted), type=wanted)


def _write_nulls(given: Sequence[Typed]) -> list[exp.Expr]:
    """Return the nodes, with NULL without a type in place of a column's."""
    return [exp.Null() if typed.type.kind == "NULL" else typed.node for typed in given]


# -- moments ----------------------------------------------------------------------------------------------------

_OFFSET = re.compile(
    r"(?P<clock>.*[0-9]) ?(?:(?P<utc>[Zz]|UTC)|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2}))?)"
)


def _split_offset(text: str) -> tuple[str, datetime.timedelta] | None:
    """Return a text without the offset from UTC at its end, and the offset; None for a text without an offset."""
    found = _OFFSET.fullmatch(text.strip())
    if found is None or not (":" in found["clock"] or text.strip()[found.end("clock")] == " "):
        return None  # the day of a date looks like an offset
    if found["utc"]:
        return found["clock"], datetime.timedelta(0)
    offset = datetime.timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
    return found["clock"], -offset if found["sign"] == "-" else offset


def read_zoned_text(typed: Typed) -> Typed | None:
    """Return a literal text that ends in Z or an offset as a moment, which is read as UTC where local times are."""
    if typed.type.kind != "TEXT" or not isinstance(typed.node, exp.Literal):
        return None
    parts = _split_offset(typed.node.name)
    if parts is None:
        return None
    try:
        clock = datetime.datetime.fromisoformat(_timestamp(parts[0])) - parts[1]
    except (ValueError, OverflowError):
        return None
    local = make_cast(exp.Literal.string(clock.isoformat(" ")), TIMESTAMP)
    moment = make_cast(exp.Literal.string(f"{clock.isoformat(' ')}+00"), MOMENT)
    bounds = Bounds.point(Fraction(DateBound(clock)))
    return Typed(local, TIMESTAMP, bounds, True, nullable=False, place=typed.place, twin=(local, moment))


def _are_moments(known: Sequence[Typed], compared: bool) -> bool:
    """Return whether values meet as moments rather than as local times.

    They do if one has no local time, and if a moment meets local times of a zone that the policy names. Elsewhere a
    constant moment is read as UTC.
    """
    if any(typed.type.kind == "MOMENT" for typed in known):
        return True
    zoned = [typed for typed in known if typed.type.zone]
    said = any(typed.constant and typed.moment is not None for typed in known)
    return bool(zoned) and (said or (compared and all(typed.moment is not None for typed in known)))


def _refuse_zones(known: Sequence[Typed], what: str) -> None:
    zones = {typed.type.zone: typed for typed in known if typed.type.zone}
    if len(zones) > 1:
        first, second, *_ = zones
        place = zones[second].place
        shown = "the column" if place is None else to_sql(place)
        hint = f"write {shown} AT TIME ZONE '{first}', for the local time there."
        raise bind_error(place, f"{what} combines local times of {first} with local times of {second}.", hint)


def _as_moment(typed: Typed, known: Sequence[Typed], what: str) -> exp.Expr:
    if typed.type.kind == "NULL":
        return exp.Null()
    if (moment := typed.moment) is not None:
        return moment
    shown = "it" if typed.place is None else to_sql(typed.place)
    if typed.type.zone:
        message = f"{what} combines a moment with local times of {typed.type.zone} whose moments are no longer known."
        hint = "compare it with a local time, such as '2024-03-01 12:00:00'."
        raise bind_error(typed.place, message, hint)
    if isinstance(typed.place, exp.Literal):
        text = typed.place.name.strip()
        hint = f"write '{text}{'Z' if ':' in text else 'T00:00:00Z'}' for UTC, or end it in another offset."
    elif typed.type.kind == "TEXT":
        hint = f"write (TRY_CAST({shown} AS TIMESTAMP) AT TIME ZONE 'UTC')."
    else:
        local = f"CAST({shown} AS TIMESTAMP)" if typed.type.kind == "DATE" else shown
        hint = f"write ({local} AT TIME ZONE 'UTC') instead of {shown}, or with another zone."
    raise bind_error(typed.place, f"{what} combines a TIMESTAMP WITH TIME ZONE with a local time.", hint)


def read_in_utc(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return two moments as times of UTC, whose distance is the same in each zone; other values unchanged."""
    both = (left, right)
    if all(typed.type.kind != "MOMENT" for typed in both) or any(typed.moment is None for typed in both):
        return both
    first, second = (
        Typed(write_local_time(moment, "UTC"), TIMESTAMP, None, typed.constant, place=typed.place)
        for typed in both
        if (moment := typed.moment) is not None
    )
    return first, second


def refuse_moment(typed: Typed, zone: str = "") -> None:
    """Raise BindError for a moment, or a struct with one, where a value with a local time is needed, perhaps of a zone."""
    if all(part.kind != "MOMENT" for part in typed.type.walk()):
        return
    shown = "ts" if typed.place is None else to_sql(parenthesise(typed.place.copy()))
    what = "this needs a local time, and a TIMESTAMP WITH TIME ZONE has one only in a named zone."
    hint = f"write ({shown} AT TIME ZONE '{zone or 'UTC'}') instead of {shown}"
    hint += "." if zone else ", or with another zone, such as 'Europe/Berlin'."
    raise bind_error(typed.place, what, hint)


def meet_public(left: Typed, there: Typed, what: str) -> tuple[exp.Expr, exp.Expr, exp.Expr | None]:
    """Return a private value and the values of a public relation in one type, for an equality.

    The public side takes the private side's type. Public values without an equal in that type are left out, since no
    private value equals them. So no private value is cast to a type that may not represent it. Floats are compared as
    floats, which represent any number.

    Returns:
        The private value, the public one, and the condition under which the public one counts; None for all. NULL
        counts: IN is NULL if no value is equal and one is NULL.

    Raises:
        BindError: the types are of different families.
    """
    mine, other = left.type, there.type
    if mine == other or "NULL" in (mine.kind, other.kind):
        made = there.node if other.kind != "NULL" or mine.kind == "NULL" else make_cast(exp.Null(), mine)
        return left.node, made, None
    given = exp.Is(this=exp.paren(there.node.copy()), expression=exp.Null())
    if mine.numeric and other.numeric and "DOUBLE" in (mine.kind, other.kind):
        kind = _common(mine, other)
        made = there.node if other == kind else make_cast(there.node, kind, trying=True)
        counts = None if other == kind else exp.or_(is_not_null(made), given)
        return left.node if mine == kind else cast_fitting(left, kind), made, counts
    if not _compares_exactly(mine, other):
        raise _mismatch((left, there), what)
    made = make_cast(there.node, mine, trying=True)
    back = make_cast(made.copy(), other, trying=True)
    return left.node, made, exp.or_(exp.EQ(this=back, expression=there.node.copy()), given)


def _compares_exactly(a: Type, b: Type) -> bool:
    """Return whether equality of values of two types is the same relation in either type."""
    if a.kind == "LIST" and b.kind == "LIST" and a.element is not None and b.element is not None:
        return _compares_exactly(a.element, b.element)
    if a.kind == "STRUCT" and b.kind == "STRUCT":
        names = [name.lower() for name, _ in a.fields] == [name.lower() for name, _ in b.fields]
        pairs = zip(a.fields, b.fields, strict=False)
        return names and all(_compares_exactly(mine, other) for (_, mine), (_, other) in pairs)
    whole = ("INTEGER", "DECIMAL")
    return a == b or (a.kind in whole and b.kind in whole) or {a.kind, b.kind} == {"DATE", "TIMESTAMP"}


def find_common_number(values: Sequence[Typed], shown: bool = False) -> Type:
    """Return DuckDB's common type of numbers; an integer literal takes the other's type if it fits."""
    fixed = [v.shown if shown else v.type for v in values if not _literal(v)]
    literals = [v for v in values if _literal(v)]
    if not fixed:
        return reduce(_common, [v.type for v in literals])
    kind = reduce(_common, fixed)
    for value in literals:
        if kind.kind != "INTEGER" or not fits(value, kind):
            kind = _common(kind, value.type)
    return kind


def _literal(value: Typed) -> bool:
    return value.type.kind == "INTEGER" and isinstance(value.node, exp.Literal | exp.Neg)


def _unclear(values: Sequence[Typed]) -> bool:
    """Return whether UHUGEINT meets signed integers, for which no type holds both."""
    sqls = {v.type.sql for v in values}
    return "UHUGEINT" in sqls and any(v.type.sql in _SIGNED and not fits(v, _UHUGEINT) for v in values)


def _common(a: Type, b: Type) -> Type:
    """Return the type that DuckDB brings two numbers to."""
    if a == b:
        return a
    if "DOUBLE" in (a.sql, b.sql):
        return DOUBLE
    if "FLOAT" in (a.sql, b.sql):
        return FLOAT
    if "DECIMAL" in (a.kind, b.kind):
        (before, after), (more, further) = a.digits, b.digits
        scale = max(after, further)
        width = max(before, more) + scale
        if width <= 38:
            return decimal(width, scale)
        return decimal(38, scale if "INTEGER" in (a.kind, b.kind) else 38 - max(before, more))
    return _common_integer(a, b)


_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_UHUGEINT = Type("INTEGER", "UHUGEINT")


def _common_integer(a: Type, b: Type) -> Type:
    for family in (_SIGNED, _UNSIGNED):
        if a.sql in family and b.sql in family:
            return a if family.index(a.sql) > family.index(b.sql) else b
    signed, unsigned = (a, b) if a.sql in _SIGNED else (b, a)
    if unsigned.sql == "UHUGEINT":
        return unsigned
    wider = _SIGNED[_UNSIGNED.index(unsigned.sql) + 1]
    return Type("INTEGER", wider if _SIGNED.index(wider) > _SIGNED.index(signed.sql) else signed.sql)


def fits(value: Typed, into: Type) -> bool:
    """Return whether every value of a number casts to another type without an error."""
    kind = value.type
    if kind == into or into.sql == "DOUBLE":
        return True
    if into.sql == "FLOAT":
        return kind.sql not in ("DOUBLE", "UHUGEINT")
    if kind.kind == "DOUBLE":
        return False
    if into.kind == "DECIMAL":
        (before, after), (room, behind) = kind.digits, into.digits
        if kind.kind == "DECIMAL":
            return before <= room and after <= behind
        most = Bounds(Fraction(1 - 10**room), Fraction(10**room - 1))
        return value.span is not None and most.holds(value.span)
    span = value.span
    return kind.kind == "INTEGER" and into.reach is not None and span is not None and into.reach.holds(span)


def _as(typed: Typed, wanted: Type, what: str) -> exp.Expr:
    if typed.type.kind in ("NULL", wanted.kind):
        return exp.Null() if typed.type.kind == "NULL" else typed.node
    if typed.type.kind == "TEXT":
        if not isinstance(typed.node, exp.Literal):
            shown = "it" if typed.place is None else to_sql(typed.place)
            hint = f"write TRY_CAST({shown} AS {wanted.sql})."
            raise bind_error(typed.place, f"{what} combines text with a {wanted.sql}.", hint)
        return _read_moment(typed.node, wanted, typed.place)
    # A date at the end of the calendar is no timestamp.
    return make_cast(typed.node, wanted, trying=True)


_EXAMPLES = {
    "DATE": "write '2024-03-01'.",
    "TIMESTAMP": "write '2024-03-01 12:00:00'.",
    "TIME": "write '12:00:00'.",
    "UUID": "write 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'.",
}


_DOTTED = re.compile("([0-9]{1,2})[.]([0-9]{1,2})[.]([0-9]{4})")
"""A date with points, which has its day first."""
_MIDNIGHT = re.compile(r"[T ]00:00(:00(\.0+)?)?$")


def _read_moment(text: exp.Expr, wanted: Type, place: exp.Expr | None) -> exp.Expr:
    """Return a text literal as a date, a time or a UUID; BindError if it is none, on which the engine would raise."""
    try:
        written = text.name
        if wanted.kind == "DATE":  # which has no zone, and of a time only midnight
            written = _MIDNIGHT.sub("", (_split_offset(written) or (written,))[0].strip())
        return make_cast(exp.Literal.string(_READERS[wanted.kind](written.strip())), wanted)
    except ValueError:
        hint = _EXAMPLES.get(wanted.kind)
        if wanted.kind == "DATE" and (dotted := _DOTTED.fullmatch(text.name.strip())):
            hint = "write '{2}-{1:0>2}-{0:0>2}'.".format(*dotted.groups())
    state = "22P02" if wanted.kind == "UUID" else "22007"
    raise bind_error(place, f"'{clip(text.name)}' is not a valid {wanted.sql}.", hint, sqlstate=state)


def _date(text: str) -> str:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", text):
        raise ValueError
    return datetime.date(*map(int, text.split("-"))).isoformat()


def _time(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?", text):
        raise ValueError
    return datetime.time.fromisoformat(text.zfill(5) if text[1] != ":" else "0" + text).isoformat()


def _timestamp(text: str) -> str:
    day, _, clock = text.replace("T", " ").partition(" ")
    return f"{_date(day)} {_time(clock) if clock.strip() else '00:00:00'}"


def _uuid(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        raise ValueError
    return str(uuid.UUID(text))


_READERS = {"DATE": _date, "TIME": _time, "TIMESTAMP": _timestamp, "UUID": _uuid}


def _find_membership(known: Sequence[Typed]) -> str | None:
    """Return the test of whether a list has a value that it is compared with; None if they are no such pair."""
    lists = [typed for typed in known if typed.type.kind == "LIST"]
    values = [typed for typed in known if lists and typed.type == lists[0].type.element]
    if len(known) != 2 or not values or lists[0].place is None or values[0].place is None:
        return None
    return f"list_contains({to_sql(lists[0].place)}, {to_sql(values[0].place)})"


def _is_text(typed: Typed) -> bool:
    return typed.type.kind == "TEXT" and isinstance(typed.node, exp.Literal)


def _mismatch(known: Sequence[Typed], what: str) -> BindError:
    for typed in known:
        refuse_moment(typed)
    first = known[0].type
    differs = next((t for t in known if t.type.kind != first.kind), None)
    last = known[-1] if differs is None else differs
    other, place = last.type, last.place
    both, state = {first.kind, other.kind}, ""
    if "TEXT" in both and any(t.numeric for t in (first, other)):
        words = [t.place for t in known if t.type.kind == "TEXT"]
        hint = f"text and numbers are not compared: {_advise_on_text(known)}."
        if all(isinstance(p, exp.Literal) for p in words):
            hint, state = "text and numbers are not compared: write the number without quotes.", "22P02"
            said = [_advise_on_infinity(p, p.name) for p in words if p is not None]
            hint = next(filter(None, said), hint)
    elif "BOOLEAN" in both:
        held = next((t.place for t in known if t.type.kind == "BOOLEAN" and t.place is not None), None)
        hint = "compare with true or false."
        if held is not None:
            hint = (
                f"write CAST({to_sql(held)} AS INT) instead of {to_sql(held)}, or compare with true or false."
            )
    elif (found := _find_membership(known)) is not None:
        hint = f"write {found}."
    elif both == {"TEXT", "INTERVAL"} and (text := next((t for t in known if _is_text(t)), None)) is not None:
        hint, place = f"write INTERVAL {to_sql(text.node)}.", text.place
        return bind_error(place, f"{what} combines {first.sql} with {other.sql}.", hint)
    elif "STRUCT" in both:
        hint = "compare a field of the struct, as in s.field."
    else:
        hint = "cast one of the two."
    if what == "CASE" and "TEXT" in both:
        hint = "write results of one type, such as '1' in quotes among texts."
    parent = None if place is None else place.parent
    what = f"{what} combines {first.sql} with {other.sql}."
    return bind_error(parent, what, hint, around=place, sqlstate=state)


def _advise_on_text(known: Sequence[Typed]) -> str:
    """Return a comparison with the numbers as text or the text as numbers, for the hint of one that mixes both."""
    above = next((t.place.parent for t in known if t.place is not None and t.place.parent is not None), None)
    if above is None or not isinstance(above, exp.Binary | exp.In | exp.Between):
        return "write the numbers as text, or cast the text to numbers"
    quoted, cast = above.copy(), above.copy()
    kinds = [(t.place.arg_key or "", t.place.index, t.type) for t in known if t.place is not None]
    for key, index, kind in kinds:
        for tree, changed in ((quoted, kind.numeric), (cast, kind.kind == "TEXT")):
            held = tree.args.get(key)
            part = held[index] if isinstance(held, list) and index is not None else held
            if not changed or not isinstance(part, exp.Expr):
                continue
            if tree is cast:
                part.replace(exp.TryCast(this=part.copy(), to=exp.DataType.build("DOUBLE")))
            elif isinstance(part, exp.Literal):
                part.replace(exp.Literal.string(part.name))
            else:
                part.replace(exp.Cast(this=part.copy(), to=exp.DataType.build("VARCHAR", dialect="duckdb")))
    return f"write {to_sql(quoted)}, or {to_sql(cast)}"


def make_boolean(node: exp.Expr, parts: Sequence[Typed], nullable: bool | None = None) -> Typed:
    """Return a boolean made of parts."""
    return Typed.made_of(node, BOOLEAN, parts, nullable=nullable)


def require_kind(typed: Typed, kinds: Sequence[str], message: str, hint: str | None = None) -> Typed:
    """Return the value; BindError unless it is of one of these kinds, or NULL."""
    if typed.type.kind not in kinds and typed.type.kind != "NULL":
        refuse_moment(typed)
        raise bind_error(typed.place, f"{message}, and this is {typed.type.sql}.", hint)
    return typed


# -- literals and casts -------------------------------------------------------------------------------------------

_SIMPLE = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE")
_SOURCES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_SIMPLE, (*_SIMPLE, "TEXT")),
    "TEXT": (*_SIMPLE, "TEXT", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID"),
    "DATE": ("DATE", "TIMESTAMP", "TEXT"),
    "TIMESTAMP": ("DATE", "TIMESTAMP", "TEXT"),
    "TIME": ("TIME", "TIMESTAMP", "TEXT"),
    "UUID": ("UUID", "TEXT"),
    "INTERVAL": ("INTERVAL",),
}
"""The kinds that may be cast to each kind. Text isn't cast to INTERVAL, since we can't check a constant as DuckDB reads it."""


def bind_text(value: str, node: exp.Expr) -> Typed:
    """Bind a text constant; BindError if it contains NUL."""
    if "\x00" in value:
        raise bind_error(node, "a text can't contain NUL.")
    return Typed(exp.Literal.string(value), TEXT, None, True, nullable=False, length=len(value))


_BYTES = re.compile(r"(?:\\x[0-9A-Fa-f]{2}|[ -\[\]-~])*")


def _list_compared(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that a value is compared with, by ``=``, ``<>`` or IN a list."""
    node, above = above_parentheses(node)
    listed: list[exp.Expr] = []
    if isinstance(above, EQUALITIES):
        listed = [above.this, above.expression]
    elif isinstance(above, exp.In):
        listed = [above.this, *above.expressions]
    return [other.unnest() for other in listed if other is not node]


def _is_bytes(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.this.is_string and Type.parse(to_sql(node.to)) == BLOB


def bind_cast(node: exp.Expr, bind: Bind) -> Typed:
    """Bind CAST, TRY_CAST and ``::``."""
    written = node.args["to"].sql(dialect="duckdb")
    kind, part = Type.parse(written), node.this.unnest()
    if _is_bytes(node) and _list_compared(node):
        if _BYTES.fullmatch(node.this.name) is None:
            raise bind_error(
                node, f"'{clip(node.this.name)}' is not a valid BLOB.", "write '\\xAB' for a byte."
            )
        return Typed(make_cast(exp.Literal.string(node.this.name), BLOB), BLOB, None, True, nullable=False)
    if isinstance(part, exp.JSONExtract) and kind != TEXT:  # a text of JSON is cast without its quotes
        inner = bind(exp.JSONExtractScalar(**part.copy().args))
    else:
        inner = bind(node.this)
    if kind.kind == "OTHER" or kind.sql.startswith("TIMESTAMP_") or written.upper().startswith("ENUM"):
        what = f"a cast to {written} is not supported here."
        hint = "cast to BIGINT, DOUBLE, DECIMAL(18,2), VARCHAR, BOOLEAN, DATE, TIME, TIMESTAMP or UUID."
        raise privacy_error(node, what, hint)
    if inner.type.kind == "NULL":
        return Typed(make_cast(exp.Null(), kind), kind, None, True, length=0)
    if kind.kind == "MOMENT":
        return _bind_moment(inner, node)
    if kind.kind == "LIST" and inner.type == kind:
        return inner
    if inner.type.kind not in _SOURCES.get(kind.kind, ()):
        refuse_moment(inner)
        raise bind_error(node, f"there is no cast from {inner.type.sql} to {kind.sql}.")
    if isinstance(inner.node, exp.Literal) and inner.type.kind == "TEXT":
        return read_constant(inner.node, kind, node)
    return replace(convert(inner, kind), order=None)


def _bind_moment(inner: Typed, node: exp.Expr) -> Typed:
    """Bind a cast to TIMESTAMP WITH TIME ZONE, in which a constant has an offset."""
    if inner.moment is not None:
        constant = inner.constant and not inner.type.zone  # it is read as UTC where local times are
        return inner if constant else Typed(inner.moment, MOMENT, None, inner.constant)
    read = read_zoned_text(inner)
    if read is not None:
        return read
    if isinstance(inner.node, exp.Literal) and inner.type.kind == "TEXT":
        if _split_offset(inner.node.name) is None:
            local = f"{inner.node.name.strip()}{'' if ':' in inner.node.name else ' 00:00:00'}"
            hint = f"write TIMESTAMPTZ '{local}+00' for UTC."
            raise bind_error(node, "a moment has an offset from UTC.", hint)
        raise bind_error(
            node, f"'{clip(inner.node.name)}' is not a valid moment.", "write '2024-03-01 12:00:00+00'."
        )
    shown = to_sql(node.this)
    local = shown if inner.type.kind == "TIMESTAMP" else f"TRY_CAST({shown} AS TIMESTAMP)"
    what = f"a cast of {inner.type.sql} to TIMESTAMP WITH TIME ZONE needs a time zone."
    hint = f"write ({local} AT TIME ZONE 'UTC'), or with another zone."
    raise bind_error(node, what, hint)


def find_common_order(values: Sequence[Typed]) -> tuple[str, ...] | None:
    """Return the common order of the labels of all values but NULL; None for values compared as texts."""
    found = {value.order for value in values if value.type != NULL}
    return found.pop() if len(found) == 1 else None


def refuse_order(values: Sequence[Typed], place: exp.Expr) -> None:
    """Raise BindError for values that DuckDB compares by the order of an ENUM's labels: exact queries compare texts."""
    if find_common_order(values) is not None:
        raise bind_error(
            place,
            "the order of an ENUM's labels is not supported over private rows, which have its labels as texts.",
            "write the order out, as in CASE x WHEN 'low' THEN 1 WHEN 'high' THEN 2 END, or cast it to VARCHAR "
            "for the order of texts.",
        )


def convert(inner: Typed, kind: Type) -> Typed:
    """Return a value cast to a type to which its kind may be cast."""
    if inner.type == kind:
        return inner
    if kind.kind == "TEXT":
        return replace(Typed.made_of(write_as_text(inner), TEXT, (inner,)), length=length_of(inner))
    bounds, reach = inner.bounds, inner.reach
    if inner.type.kind == "BOOLEAN" and kind.numeric:
        bounds = reach = Bounds(Fraction(0), Fraction(1))
    elif kind.kind == "INTEGER":
        bounds = None if bounds is None else bounds.rounded()
        reach = reach if inner.type.kind == "INTEGER" else None
    elif kind.kind == "DECIMAL" and bounds is not None:
        steps = 10 ** kind.digits[1]
        bounds = (bounds * Bounds.point(steps)).rounded() * Bounds.point(Fraction(1, steps))
    elif bounds is not None and kind.kind in _DAYS and inner.type.kind in _DAYS:
        bounds = bounds if kind.kind == "TIMESTAMP" else _whole_days(bounds)
    elif not kind.numeric:
        bounds = None
    if kind.kind != "INTEGER":
        reach = None
    safe = inner.type.kind == "BOOLEAN" and kind.kind in ("INTEGER", "DOUBLE")
    safe = safe or (inner.type.numeric and kind.numeric and fits(inner, kind))
    if reach is not None and kind.reach is not None and not kind.reach.holds(reach):
        reach = None
    made = make_cast(inner.node, kind, not safe)
    if kind.kind == "TIME":  # of an infinite timestamp: an error that the cast alone does not catch
        made = make_try(made)
    return Typed(made, kind, bounds, inner.constant, None, reach, inner.nullable or not safe)


_DAYS = ("DATE", "TIMESTAMP")


def _whole_days(bounds: Bounds) -> Bounds:
    """Round seconds down to days, as a timestamp's date does."""
    ends = (None if end is None else end // 86_400 * Fraction(86_400) for end in (bounds.low, bounds.high))
    return Bounds(*ends)


_SHOWABLE = {"TIMESTAMP": ("-infinity", "infinity"), "TIME": ("00:00:00", "24:00:00")}
"""Files can contain times and timestamps outside these ranges; writing one as text ends the engine's process."""


def write_as_text(inner: Typed) -> exp.Expr:
    """Return what DuckDB writes for a value."""
    if inner.type == TEXT:
        return inner.node
    if inner.type.kind not in _SHOWABLE or inner.constant:
        return make_cast(inner.node, TEXT)
    # Inside the cast, since the engine may cast all of a dictionary's values before it selects some.
    low, high = (make_cast(exp.Literal.string(end), inner.type) for end in _SHOWABLE[inner.type.kind])
    sane = exp.Between(this=parenthesise(inner.node), low=low, high=high)
    return make_cast(exp.Case(ifs=[exp.If(this=sane, true=inner.node.copy())]), TEXT)


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_constant(place: exp.Literal, kind: Type, node: exp.Expr) -> Typed:
    """Return a text constant as a value of a type; BindError if it is none, on which the engine would raise."""
    written = place.name.strip()
    if kind.kind == "TIMESTAMP" and (zoned := read_zoned_text(Typed(place, TEXT))) is not None:
        return zoned
    if kind.kind == "TEXT":
        return bind_text(place.name, node)
    if kind.kind in ("DATE", "TIME", "TIMESTAMP", "UUID"):
        made = _read_moment(place, kind, node)
        moment = moment_of(made)
        bounds = None if moment is None else Bounds.point(Fraction(moment[1]))
        return Typed(made, kind, bounds, True, nullable=False)
    if kind.kind == "BOOLEAN":
        if written.lower() not in ("true", "false", "t", "f", "1", "0", "yes", "no", "y", "n"):
            raise bind_error(
                node, f"'{clip(place.name)}' is not a BOOLEAN.", "write TRUE or FALSE.", sqlstate="22P02"
            )
        return Typed(exp.Boolean(this=written[:1].lower() in "ty1"), kind, None, True)
    known = kind.numeric and len(written) <= 60 and _NUMBER.fullmatch(written)
    if known and math.isfinite(float(written)):
        near = Fraction(float(written)) if kind.kind == "DOUBLE" else Fraction(written.rstrip("."))
        bounds = convert(Typed(place, decimal(38, 19), Bounds.point(near)), kind).bounds
        if kind.reach is None or (bounds is not None and kind.reach.holds(bounds)):
            return Typed(make_cast(place.copy(), kind, True), kind, bounds, True, nullable=True)
    hint = _advise_on_infinity(node, written) if kind.kind == "DOUBLE" else None
    shown = node if hint is None else above_parentheses(node)[1]
    what = f"'{clip(written)}' is not a valid {kind.sql}{'' if hint is None else ' here'}."
    raise bind_error(shown, what, hint, around=node, sqlstate="22P02")


def _advise_on_infinity(node: exp.Expr, written: str) -> str | None:
    """Return the test for a float that is no number, in place of a comparison with NaN or infinity; None for other texts."""
    word = written.strip().lstrip("+-").lower()
    if word not in ("nan", "inf", "infinity"):
        return None
    node, above = above_parentheses(node)
    if not isinstance(above, exp.Binary | exp.Nullif):
        return "isnan, isinf and isfinite test a value."
    other = to_sql(above.expression if above.this is node else above.this)
    if isinstance(above, exp.Nullif):
        return f"write CASE WHEN isfinite({other}) THEN {other} END."
    sign = "<" if written.strip().startswith("-") else ">"
    test = f"isnan({other})" if word == "nan" else f"(isinf({other}) AND {other} {sign} 0)"
    if isinstance(above, exp.NEQ | exp.NullSafeNEQ):
        return f"write NOT {test}."
    return f"write {test if isinstance(above, exp.EQ | exp.NullSafeEQ) else f'isfinite({other})'}."


def take_presence(typed: Typed) -> Typed:
    """Return TRUE for a value of any type, and NULL for NULL."""
    given = exp.Not(this=exp.Is(this=exp.paren(typed.node.copy()), expression=exp.Null()))
    return Typed(exp.Case(ifs=[exp.If(this=given, true=exp.true())]), BOOLEAN)


def take_value(typed: Typed, node: exp.Expr) -> Typed:
    """Return a value read from a column, a list or a struct, in a type that expressions take."""
    kind = typed.type
    compared = _list_compared(node) if kind == BLOB else []
    if compared and all(isinstance(other, exp.Null) or _is_bytes(other) for other in compared):
        return replace(typed, node=typed.node.copy())
    if kind.kind == "OTHER" or (kind.kind == "MAP" and not _is_read_by_key(node)):
        written = node.sql(dialect="duckdb")
        hint = f"write COUNT({written}) or {written} IS NULL, which work for each type."
        if kind.kind == "MAP":
            hint = f"write {written}['key'], map_contains({written}, 'key') or cardinality({written})."
        raise privacy_error(node, f"{written} is of type {kind.sql}, whose values can't be used.", hint)
    if kind.kind == "MOMENT" or kind.zone:
        return replace(typed, node=typed.node.copy())
    made = typed.node.copy()
    if kind.kind == "LIST" and kind.element is not None and not kind.sql.endswith("[]"):
        # of a fixed size, which others would be cast to
        whole = list_of(kind.element)
        return mark_length(replace(typed, node=make_cast(made, whole), type=whole, plain=None))
    if kind.sql == "ENUM":
        return mark_length(Typed(make_cast(made, TEXT), TEXT, None, typed.constant, typed.values))
    if kind.kind == "TIMESTAMP" and kind != TIMESTAMP:  # to microseconds; far ones of another unit don't fit
        return Typed(make_cast(made, TIMESTAMP, trying=True), TIMESTAMP, typed.bounds, typed.constant)
    return mark_length(replace(typed, node=made))


def _is_read_by_key(node: exp.Expr) -> bool:
    """Return whether a map is the operand of ``m['key']`` or the first argument of a function of maps."""
    node, above = above_parentheses(node)
    if isinstance(above, exp.Anonymous):
        return above.name.lower() in MAP_WORDS and node.index == 0
    return isinstance(above, exp.MapKeys) or (isinstance(above, exp.Bracket) and node.arg_key == "this")


def take_field(typed: Typed, name: str, node: exp.Expr) -> Typed:
    """Return a field of a struct."""
    for known, kind in typed.type.fields:
        if known.lower() == name.lower():
            made = make_call("struct_extract", typed.node.copy(), exp.Literal.string(known))
            return take_value(Typed(made, kind), node)
    hint = did_you_mean(name, [known for known, _ in typed.type.fields])
    raise bind_error(node, f"the struct has no field {name}.", hint)
