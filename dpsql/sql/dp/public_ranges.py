"""Values that bounds make countable: days and hours, whole numbers, and what a rounded number can come to.

A range is what the policy's bounds say, or those that a statement puts around a number itself. The values outside belong to no
group, as with values that the policy lists, and so do missing ones: that is a rule, and tells nothing about the data.

Times are not listed one by one, but by a step (a day, an hour, a minute) where a statement looks at no more of them than that:
each value then stands for all times of its step. Where only the time of day counts, one day's steps are all there are.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.sql.expressions.fixed_point import DAY
from dpsql.sql.expressions.types import Typed
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.relations.relation import column

MAX_RANGE_GROUPS = 1_000
"""Groups that ranges are made into where the analyst does not ask for public groups: with more, groups stay private."""
MAX_VALUES = 100_000
"""Values of a range that groups are computed from."""
_MAX_DIGITS = 15
_STEPS = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60}
_STEP_NAMES = tuple(_STEPS)

Place = tuple[str, str]
"""A column of the exact query: its table's alias there, and its name."""


@dataclass(frozen=True)
class Values:
    """The public values of one column: a query of them, how many there are, and who says so."""

    name: str
    source: str
    size: int
    origin: str
    value: str = "v"
    distinct: bool = False
    step: str = ""
    """A unit where the values are times, each standing for all the times of that unit."""
    cyclic: bool = False
    """True where they are the times of one day, standing for those of every day."""
    kind: str = ""
    """The SQL type of listed values."""
    missing: bool = False
    """True if NULL is one of them."""

    def with_missing(self) -> Values:
        """Return the values and NULL."""
        if self.missing:
            return self
        size = self.size + 1
        if self.value == "v":
            source = self.source.replace("(VALUES ", f"(VALUES (CAST(NULL AS {self.kind})), ", 1)
            return replace(self, source=source, size=size, missing=True)
        value = f"CASE WHEN i < {self.size} THEN {self.value} END"
        return replace(self, source=f"range({size}) AS s(i)", value=value, size=size, missing=True)

    ranged: bool = False
    """True where bounds make the values: many of them may have no rows."""

    @property
    def sql(self) -> str:
        """The query, under the column's name."""
        return self.query(quote_column(self.name))

    def query(self, name: str) -> str:
        """Return the query under another name, which is written as it is."""
        return f"SELECT {'DISTINCT ' if self.distinct else ''}{self.value} AS {name} FROM {self.source}"


def quote_column(name: str) -> str:
    """Return a name in quotes."""
    return to_sql(exp.to_identifier(name, quoted=True))


def _counted(
    name: str, low: int, high: int, origin: str, value: str, step: str = "", cyclic: bool = False
) -> Values | None:
    """Return one value for each whole number; ``{i}`` in its SQL is the number."""
    size = high - low + 1
    if not 0 < size <= MAX_VALUES:
        return None
    number = f"CAST(i AS BIGINT) + ({low})" if low else "CAST(i AS BIGINT)"
    return Values(
        name, f"range({size}) AS s(i)", size, origin, value.format(i=number), step=step, cyclic=cyclic,
        ranged=True,
    )  # fmt: skip


# -- columns ------------------------------------------------------------------------------------------------------


def list_days(name: str, typed: Typed, columns: list[exp.Column]) -> Values | None:
    """Return every day of a DATE whose bounds the policy declares; of a TIMESTAMP too, where only its day matters."""
    kind = typed.type.kind
    daily = kind == "DATE" or (kind == "TIMESTAMP" and all(step_of(node) == "DAY" for node in columns))
    bounds = typed.bounds if daily else None
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    first, last = math.floor(bounds.low / DAY), math.floor(bounds.high / DAY)
    if not 0 < last - first + 1 <= MAX_VALUES:
        return None
    start = datetime.date(1970, 1, 1) + datetime.timedelta(days=first)
    day = f"CAST(CAST('{start.isoformat()}' AS DATE) + CAST(i AS INTEGER) AS {kind})"
    size = last - first + 1
    origin = "the days that the policy declares"
    step = "DAY" if kind == "TIMESTAMP" else ""
    return Values(name, f"range({size}) AS s(i)", size, origin, day, step=step, ranged=True)


def list_range(name: str, typed: Typed, columns: list[exp.Column]) -> Values | None:
    """Return the whole numbers, or the steps of times, between the bounds that the policy declares."""
    bounds, kind = typed.bounds, typed.type
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    if kind.kind == "INTEGER":
        reach = kind.reach
        low, high = math.ceil(bounds.low), math.floor(bounds.high)
        if reach is not None and reach.low is not None and reach.high is not None:
            low, high = max(low, int(reach.low)), min(high, int(reach.high))
        return _counted(name, low, high, "the range that the policy declares", f"CAST({{i}} AS {kind.sql})")
    if kind.kind != "TIMESTAMP" or kind.sql != "TIMESTAMP":
        return None
    steps = [step_of(node) for node in columns]
    if None in steps:
        return None
    step = max((s for s in steps if s is not None), key=_STEP_NAMES.index, default="DAY")
    ends = (math.floor(end / _STEPS[step]) for end in (bounds.low, bounds.high))
    first, last = ends
    origin = f"the {step.lower()}s that the policy declares"
    moment = f"make_timestamp(({{i}}) * {_STEPS[step] * 1_000_000})"
    if all(_is_of_day(node) for node in columns) and last - first >= DAY // _STEPS[step]:
        return _counted(
            name, 0, int(DAY) // _STEPS[step] - 1, f"the {step.lower()}s of a day", moment, step, True
        )
    return _counted(name, first, last, origin, moment, step)


_LONG = (
    "day", "week", "month", "quarter", "year", "decade", "century", "millennium", "doy", "dow", "isodow", "isoyear",
    "dayofweek", "weekday", "dayofyear", "era", "yearweek",
)  # fmt: skip
_FORMATS = {**dict.fromkeys("aAwdbBmyYjUWGVux%n", "DAY"), **dict.fromkeys("HIp", "HOUR"), "M": "MINUTE"}


def _use(column: exp.Expr) -> tuple[str, str] | None:
    """Return what a time is looked at by: the name of a call, and its unit or format."""
    node: exp.Expr | None = column.parent
    while isinstance(node, exp.Try | exp.Paren) or (
        isinstance(node, exp.TryCast) and node.to.is_type("timestamp")
    ):
        node = node.parent
    if isinstance(node, exp.Cast):
        return ("cast", "day") if node.to.is_type("date") else None
    if not isinstance(node, exp.Anonymous):
        return None
    name = node.name.lower()
    if name in ("last_day", "dayname", "monthname"):
        return name, "day"
    literal = next((item for item in node.expressions if isinstance(item, exp.Literal)), None)
    if name in ("date_trunc", "date_part", "strftime") and literal is not None:
        return name, literal.name if name == "strftime" else literal.name.lower()
    if name == "time_bucket" and isinstance(node.expressions[0], exp.Interval):
        return name, node.expressions[0].args["unit"].name.lower()
    return None


def _letters(form: str) -> Iterator[str]:
    parts = iter(form)
    for letter in parts:
        if letter == "%":
            letter = next(parts, "")
            yield next(parts, "") if letter == "-" else letter


def step_of(column: exp.Expr) -> str | None:
    """Return the coarsest unit that a use of a time depends on; None where it may look at all of it."""
    found = _use(column)
    if found is None:
        return None
    name, part = found
    if name == "strftime":
        steps = [_FORMATS.get(letter) for letter in _letters(part)]
        if None in steps:
            return None
        return max((s for s in steps if s is not None), key=_STEP_NAMES.index, default="DAY")
    return "DAY" if part in _LONG else part.upper() if part.upper() in _STEPS else None


def _is_of_day(column: exp.Expr) -> bool:
    """Say whether a use of a time looks at its hour and minute alone."""
    name, part = _use(column) or ("", "")
    if name == "strftime":
        return all(letter in "HIpM%" for letter in _letters(part))
    return name == "date_part" and part in ("hour", "minute")


# -- rounded numbers ----------------------------------------------------------------------------------------------

_ROUNDED = (exp.Floor, exp.Ceil, exp.Round, exp.Trunc)
_WHOLE = (exp.Cast, exp.TryCast, exp.Extract, exp.WidthBucket, exp.Hour, exp.Minute, exp.Second)


def may_be_grid(node: exp.Expr) -> bool:
    """Say whether an analyst's expression may come to few numbers: it is rounded, or a whole number by its type."""
    return isinstance(node, (*_ROUNDED, *_WHOLE))


def list_grid(name: str, node: exp.Expr, typed: Typed) -> Values | None:
    """Return what a rounded number can come to between its bounds.

    Args:
        name: what the values are called. node: the analyst's expression. typed: the same, bound.
    """
    bounds, kind = typed.bounds, typed.type
    digits = _digits(node) if isinstance(node, _ROUNDED) else 0
    if bounds is None or bounds.low is None or bounds.high is None or digits is None:
        return None
    step = Fraction(10) ** -digits
    low, high = math.ceil(bounds.low / step), math.floor(bounds.high / step)
    origin = "the range that its bounds leave"
    scale = 10 ** abs(digits)
    if kind.kind == "INTEGER" and digits <= 0:
        if kind.reach is None or not kind.reach.holds(bounds):
            return None
        return _counted(name, low, high, origin, f"CAST(({{i}}) * {scale} AS {kind.sql})")
    if kind.sql == "DOUBLE" or (kind.sql == "FLOAT" and digits <= 0):
        value = f"CAST({{i}} AS {kind.sql})"
        if digits:  # as DuckDB rounds: a whole number, divided by a power of ten
            value += f" {'/' if digits > 0 else '*'} CAST({scale} AS {kind.sql})"
        return _counted(name, low, high, origin, f"({value})")
    if kind.kind == "DECIMAL":
        before, after = kind.digits
        if digits > after or max(abs(bounds.low), abs(bounds.high)) >= Fraction(10) ** before:
            return None
        factor = f" * CAST('{scale if digits <= 0 else f'0.{1:0{digits}d}'}' AS DECIMAL({abs(digits) + 1},{max(digits, 0)}))"
        value = f"CAST(CAST({{i}} AS DECIMAL(18,0)){factor if digits else ''} AS {kind.sql})"
        return _counted(name, low, high, origin, value)
    return None


def _digits(node: exp.Expr) -> int | None:
    place = node.args.get("decimals")
    if place is None:
        return 0
    inner = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit() or int(inner.name) > _MAX_DIGITS:
        return None
    return -int(inner.name) if isinstance(place, exp.Neg) else int(inner.name)


# -- what conditions on rows say of groups ------------------------------------------------------------------------

_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE)


def with_keys(node: exp.Expr, held: Mapping[str, Place]) -> exp.Expr:
    """Return the condition with its keys, spelled as they are in the exact query, as columns of their own."""
    holder = exp.Paren(this=node.copy())
    for found in list(holder.this.walk()) if held else []:
        place = held.get(to_sql(found))
        if place is not None:
            found.replace(column(place[1], place[0]))
    inner: exp.Expr = holder.this
    return inner


def by_steps(node: exp.Expr, steps: Mapping[Place, str]) -> list[exp.Expr]:
    """Return the condition as conditions on steps, where a time whose step alone is known meets what names no column.

    Some time of a day is before another time if the day's first is, and after it if the day's last is. All other
    conditions stay as they are.
    """
    bare = node.unnest()
    parts: list[exp.Expr] = [bare]
    if isinstance(bare, exp.Between) and _step(bare.this, steps):
        ends = ((exp.GTE, bare.args["low"]), (exp.LTE, bare.args["high"]))
        parts = [kind(this=bare.this, expression=end) for kind, end in ends]
    elif isinstance(bare, exp.EQ) and any(_step(side, steps) for side in (bare.this, bare.expression)):
        parts = [kind(this=bare.this, expression=bare.expression) for kind in (exp.GTE, exp.LTE)]
    return [_within_a_step(part, steps) for part in parts]


def _within_a_step(node: exp.Expr, steps: Mapping[Place, str]) -> exp.Expr:
    if not isinstance(node, _COMPARED):
        return node
    sides = [node.this, node.expression]
    ours = [_step(side, steps) for side in sides]
    step = ours[0] or ours[1]
    other = sides[1 if ours[0] else 0] if (ours[0] is None) != (ours[1] is None) else None
    if step is None or other is None or other.find(exp.Column) is not None:
        return node
    place, before = sides[0 if ours[0] else 1], bool(ours[0]) == isinstance(node, exp.LT | exp.LTE)
    bound = exp.paren(other, copy=True)
    first: exp.Expr = exp.cast(place.copy(), "DATE", dialect="duckdb") if step == "DAY" else place.copy()
    one = exp.cast(exp.Literal.number(1), "INTEGER", dialect="duckdb")
    if before:  # the first time of the step
        strict = exp.LT if isinstance(node, exp.LT | exp.GT) else exp.LTE
        return strict(this=exp.cast(first, "TIMESTAMP", dialect="duckdb"), expression=bound)
    # Where the bound is the step's last microsecond and is not meant, the step stays.
    length = one if step == "DAY" else exp.Interval(this=exp.Literal.string("1"), unit=exp.var(step))
    following = exp.Add(this=first, expression=length)
    return exp.GT(this=exp.cast(following, "TIMESTAMP", dialect="duckdb"), expression=bound)


def _step(node: exp.Expr, steps: Mapping[Place, str]) -> str | None:
    inner = node.unnest()
    return steps.get((inner.table, inner.name)) if isinstance(inner, exp.Column) else None


def reads_no_more(found: exp.Expr, values: Values) -> bool:
    """Say whether a use of a column depends on no more than what its values stand for."""
    if not values.step:
        return True
    step = step_of(found)
    if step is None or (values.cyclic and not _is_of_day(found)):
        return False
    return _STEP_NAMES.index(step) <= _STEP_NAMES.index(values.step)
