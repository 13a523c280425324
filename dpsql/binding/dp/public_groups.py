"""Public groups: keys with public values, so that all of them appear and no delta is spent.

Each column of a key has the values or days that the policy declares, or those of a public table that an outer join keeps;
the keys are computed from these. Keys that share a column are computed together: year(d) and month(d) give the months of
d's range, not all pairs of a year and a month.

A key computed from columns may be NULL, as NULLIF(gender, 'male') is for one value: then NULL is a group. It may also turn
NULL into a value, as COALESCE(gender, 'unknown') does: then that value is a group. A plain column of declared values or of
booleans has no group for NULL, nor has a key that is NULL only if a column is: rows with other values are left out. NULL is a
group where the statement itself makes it: for rows that an outer join leaves without a match.

Conditions of WHERE restrict the groups if they name only such columns: no data can have a row in a group whose public
values all fail them. A condition that names another column restricts nothing, since private rows would decide the groups.

Bounds make values countable: days, hours, whole numbers and results of rounding. A range follows from the policy's bounds, from
a clamp in the statement, or from a part's unit. Values outside, and missing ones, are in no group: a rule that reveals no data.

Times have steps (a day, an hour, a minute) if a statement reads no finer part of them: a value then represents all times of
its step. If only the time of day counts, the steps are those of one day.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.relations.fan_out import split_conjuncts
from dpsql.binding.relations.relation import Field, Relation, column
from dpsql.binding.values.fixed_point import DAY
from dpsql.binding.values.sql_types import Typed
from dpsql.catalogue.date_units import UNIT_OF_NAME, UNIT_SECONDS
from dpsql.catalogue.row_names import ROW_OF_NAME, STRICT_CALLS
from dpsql.errors import Error, PrivacyError
from dpsql.exact.exact_query import GroupKey, PublicGroups
from dpsql.language.dialect import join_word, to_sql
from dpsql.language.parameters import make_literal
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Query, Select, Source, Subquery, cross
from dpsql.privacy.periods import intersect

MAX_RANGE_GROUPS = 1_000
"""The most groups of ranges without a request for public groups: with more, groups stay private."""
MAX_VALUES = 100_000
"""Values of a range that groups are computed from."""
_MAX_DIGITS = 15
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_STEPS = {name: int(seconds) for name, seconds in UNIT_SECONDS.items() if 60 <= seconds <= 86_400}
"""The seconds of the units that a use of a time may depend on: days, hours, minutes."""
_STEP_NAMES = tuple(_STEPS)

Place = tuple[str, str]
"""A column of the exact query: its table's alias there, and its name."""


@dataclass(frozen=True)
class Values:
    """The public values of one column: a query of them, their number, and their origin."""

    name: str
    size: int
    origin: str
    value: str = "v"
    """SQL of a value, over the number ``i`` of a numbered one or the listed one ``v``."""
    listed: tuple[str, ...] | None = None
    """The values that are written out; None for numbered ones."""
    distinct: bool = False
    step: str = ""
    """A unit if the values are times, each of which represents all times of that unit."""
    cyclic: bool = False
    """Whether they are the times of one day, which represent those of every day."""
    kind: str = ""
    """The SQL type of listed values."""
    missing: bool = False
    """Whether NULL is one of them."""
    ranged: bool = False
    """Whether they follow from bounds: many of them may have no rows."""
    present: bool = False
    """Whether no row lacks a value."""
    unmatched: bool = False
    """Whether NULL is one of them as the value of rows that an outer join leaves without a match."""

    def with_missing(self) -> Values:
        """Return the values and NULL; only the values if none is missing."""
        if self.missing or self.present:
            return self
        size = self.size + 1
        if self.listed is not None:
            return replace(self, listed=(f"CAST(NULL AS {self.kind})", *self.listed), size=size, missing=True)
        value = f"CASE WHEN i < {self.size} THEN {self.value} END"
        return replace(self, value=value, size=size, missing=True)

    def query(self, name: str = "") -> Select:
        """Return the query under the column's name, or under another name, which is written as it is."""
        source = f"range({self.size}) AS s(i)"
        if self.listed is not None:
            source = f"(VALUES {', '.join(f'({sql})' for sql in self.listed)}) AS t(v)"
        return Select(As(self.value, name or quote_column(self.name)), source, distinct=self.distinct)


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
    sql = value.format(i=f"CAST(i AS BIGINT) + ({low})" if low else "CAST(i AS BIGINT)")
    return Values(name, size, origin, sql, step=step, cyclic=cyclic, ranged=True)


# -- columns ------------------------------------------------------------------------------------------------------


def list_days(name: str, typed: Typed, columns: list[exp.Column]) -> Values | None:
    """Return the days of a DATE, or of a TIMESTAMP of which only the day matters: within bounds, or those that a scan reads."""
    kind = typed.type.kind
    daily = kind == "DATE" or (kind == "TIMESTAMP" and all(step_of(node) == "DAY" for node in columns))
    ends, days = typed.ends, typed.days
    if not daily or (days is None and ends is None):
        return None
    declared = days is None
    if ends is not None:
        earliest, latest = (_EPOCH + math.floor(end / DAY) for end in ends)
        within = ((earliest, latest + 1),)
        days = within if days is None else intersect(days, within)
    size = sum(high - low for low, high in days or ())
    if not days or not 0 < size <= MAX_VALUES:
        return None
    first, listed, later = days[0][0], 0, ""
    for low, high in days[:-1]:
        later += f" WHEN i < {listed + high - low} THEN {low - first - listed}"
        listed += high - low
    if later:
        later = f" + CASE{later} ELSE {days[-1][0] - first - listed} END"
    start = datetime.date.fromordinal(first)
    day = f"CAST(CAST('{start.isoformat()}' AS DATE) + CAST(i{later} AS INTEGER) AS {kind})"
    origin = "the days that the policy declares" if declared else "the days that are read"
    step, present = "DAY" if kind == "TIMESTAMP" else "", not typed.nullable
    return Values(name, size, origin, day, step=step, ranged=declared, present=present)


def list_range(name: str, typed: Typed, columns: list[exp.Column]) -> Values | None:
    """Return the whole numbers, or the steps of times, between the bounds that the policy declares."""
    ends, kind = typed.ends, typed.type
    if ends is None:
        return None
    if kind.kind == "INTEGER":
        low, high = math.ceil(ends[0]), math.floor(ends[1])
        if kind.reach is not None and (most := kind.reach.ends) is not None:
            low, high = max(low, int(most[0])), min(high, int(most[1]))
        return _counted(name, low, high, "the range that the policy declares", f"CAST({{i}} AS {kind.sql})")
    if kind.kind != "TIMESTAMP" or kind.sql != "TIMESTAMP":
        return None
    steps = [step_of(node) for node in columns]
    if None in steps:
        return None
    step = max((s for s in steps if s is not None), key=_STEP_NAMES.index, default="DAY")
    seconds, words = _STEPS[step], f"the {step.lower()}s"
    first, last = (math.floor(end / seconds) for end in ends)
    moment = f"make_timestamp(({{i}}) * {seconds * 1_000_000})"
    if all(_is_of_day(node) for node in columns) and last - first >= DAY // seconds:
        return _counted(name, 0, int(DAY) // seconds - 1, f"{words} of a day", moment, step, True)
    return _counted(name, first, last, f"{words} that the policy declares", moment, step)


_FORMATS = {**dict.fromkeys("aAwdbBmyYjUWGVux%n", "DAY"), **dict.fromkeys("HIp", "HOUR"), "M": "MINUTE"}


def _use(column: exp.Expr) -> tuple[str, str] | None:
    """Return the use of a time: the name of the call around it, and its unit or format."""
    node: exp.Expr | None = column.parent
    wrappers = exp.Try | exp.Paren
    while isinstance(node, wrappers) or (isinstance(node, exp.TryCast) and node.to.is_type("timestamp")):
        node = node.parent
    if isinstance(node, exp.Cast):
        return ("cast", "day") if node.to.is_type("date") else None
    if not isinstance(node, exp.Anonymous):
        return None
    name = node.name.lower()
    if (row := ROW_OF_NAME.get(name)) is not None and row.of_day:
        return name, "day"
    literal = next((item for item in node.expressions if isinstance(item, exp.Literal)), None)
    if name == "strftime" and literal is not None:
        return name, literal.name
    if name in ("date_trunc", "date_part") and literal is not None:
        return name, literal.name.lower()
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
    """Return the coarsest unit that a use of a time depends on; None if it may depend on all of it."""
    name, part = _use(column) or ("", "")
    if name == "strftime":
        steps = [_FORMATS.get(letter) for letter in _letters(part)]
        known = [s for s in steps if s is not None]
        return max(known, key=_STEP_NAMES.index, default="DAY") if len(known) == len(steps) else None
    unit = UNIT_OF_NAME.get(part.upper())
    return None if unit is None else "DAY" if not unit.clock else unit.name if unit.name in _STEPS else None


def _is_of_day(column: exp.Expr) -> bool:
    """Return whether a use of a time reads only its hour and minute."""
    name, part = _use(column) or ("", "")
    if name == "strftime":
        return all(letter in "HIpM%" for letter in _letters(part))
    return name == "date_part" and part in ("hour", "minute")


# -- rounded numbers ----------------------------------------------------------------------------------------------

_ROUNDED = (exp.Floor, exp.Ceil, exp.Round, exp.Trunc)
_WHOLE = (exp.Cast, exp.TryCast, exp.Extract, exp.WidthBucket, exp.Hour, exp.Minute, exp.Second)


def may_be_grid(node: exp.Expr) -> bool:
    """Return whether an analyst's expression may have few values: it is rounded, or a whole number by its type."""
    return isinstance(node, (*_ROUNDED, *_WHOLE))


def list_grid(name: str, node: exp.Expr, typed: Typed) -> Values | None:
    """Return the results of rounding within bounds, as values called ``name``; ``typed`` is the bound ``node``."""
    bounds, ends, kind = typed.bounds, typed.ends, typed.type
    digits = _digits(node) if isinstance(node, _ROUNDED) else 0
    if bounds is None or ends is None or digits is None:
        return None
    step = Fraction(10) ** -digits
    low, high = math.ceil(ends[0] / step), math.floor(ends[1] / step)
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
        if digits > after or max(map(abs, ends)) >= Fraction(10) ** before:
            return None
        factor = f" * CAST('{scale if digits <= 0 else f'0.{1:0{digits}d}'}' AS DECIMAL({abs(digits) + 1},{max(digits, 0)}))"
        value = f"CAST(CAST({{i}} AS DECIMAL(18,0)){factor if digits else ''} AS {kind.sql})"
        return _counted(name, low, high, origin, value)
    return None


def list_part(name: str, node: exp.Anonymous) -> Values | None:
    """Return the values of a part of a time, such as its day of the week, which are few for all times."""
    unit = UNIT_OF_NAME.get(node.expressions[0].name.upper()) if node.name.lower() == "date_part" else None
    if unit is None or unit.calendar or not list_key_columns(node):
        return None
    return _counted(name, unit.low, unit.high, f"all values of {unit.name.lower()}", "CAST({i} AS BIGINT)")


def _digits(node: exp.Expr) -> int | None:
    place = node.args.get("decimals")
    if place is None:
        return 0
    inner = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit() or int(inner.name) > _MAX_DIGITS:
        return None
    return -int(inner.name) if isinstance(place, exp.Neg) else int(inner.name)


# -- conditions on rows that restrict groups ----------------------------------------------------------------------

_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE)


def with_keys(node: exp.Expr, keys: Mapping[str, Place]) -> exp.Expr:
    """Return the condition with its keys, spelled as they are in the exact query, as columns of their own."""
    holder = exp.Paren(this=node.copy())
    for found in list(holder.this.walk()) if keys else []:
        place = keys.get(to_sql(found))
        if place is not None:
            found.replace(column(place[1], place[0]))
    inner: exp.Expr = holder.this
    return inner


def by_steps(node: exp.Expr, steps: Mapping[Place, str]) -> list[exp.Expr]:
    """Return the condition with comparisons of steps' times, if the other side names no column, as conditions on steps.

    A day has a time before another time if its first time is before it, and a time after it if its last time is.
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
    # If the bound is the step's last microsecond, exclusive, the step stays.
    length = one if step == "DAY" else exp.Interval(this=exp.Literal.string("1"), unit=exp.var(step))
    following = exp.Add(this=first, expression=length)
    return exp.GT(this=exp.cast(following, "TIMESTAMP", dialect="duckdb"), expression=bound)


def _step(node: exp.Expr, steps: Mapping[Place, str]) -> str | None:
    inner = node.unnest()
    return steps.get((inner.table, inner.name)) if isinstance(inner, exp.Column) else None


def reads_no_more(found: exp.Expr, values: Values) -> bool:
    """Return whether a use of a column is constant within each of its values' steps."""
    if not values.step:
        return True
    step = step_of(found)
    if step is None or (values.cyclic and not _is_of_day(found)):
        return False
    return _STEP_NAMES.index(step) <= _STEP_NAMES.index(values.step)


MAX_GROUPS = 1_000_000

Pairs = list[tuple[GroupKey, Typed]]


@dataclass
class KeyGroup:
    """Keys that are computed from the same columns or public rows, and the conditions on these."""

    keys: Pairs = field(default_factory=list)
    places: dict[Place, Values] = field(default_factory=dict)
    relations: dict[str, exp.Expr] = field(default_factory=dict)
    """Public tables by alias, as in the exact query."""
    conditions: list[exp.Expr] = field(default_factory=list)
    kept: bool = False
    """Whether a key is of a table that an outer join keeps: its number of rows is unknown."""
    missing: frozenset[str] = frozenset()
    """Names of the keys that may be NULL."""
    complete: bool = False
    """Whether all rows have values of its groups."""
    without: frozenset[str] = frozenset()
    """Names of the booleans that may be NULL in rows, but in no group."""

    @property
    def most(self) -> int:
        """The largest number of groups that it may have."""
        return math.prod(values.size for values in self.places.values())

    def meets(self, other: KeyGroup) -> bool:
        """Return whether the two have a column or a table in common."""
        tables = self.relations.keys() & other.relations.keys()
        return bool(self.places.keys() & other.places.keys() or tables)

    def join(self, other: KeyGroup) -> KeyGroup:
        """Return both as one."""
        return KeyGroup(
            [*self.keys, *other.keys],
            {**self.places, **other.places},
            {**self.relations, **other.relations},
            [*self.conditions, *other.conditions],
            self.kept or other.kept,
            self.missing | other.missing,
            self.complete and other.complete,
            self.without | other.without,
        )


def find_public_groups(block: AggregatingBlock, keys: Pairs, most: int = 0) -> PublicGroups | None:
    """Return the domain of all keys together, with at most ``most`` groups of ranges; None if one of the keys is private.

    Raises:
        PrivacyError: there are too many groups.
    """
    found = _find(block, keys, False)
    if found is None and most:
        found = _find(block, keys, True)
        if found is None or found.size is None or (found.size > most and most < MAX_GROUPS):
            return None
    if found is not None and found.size is not None and found.size > MAX_GROUPS:
        raise PrivacyError(f"these are more than {MAX_GROUPS} public groups.", hint="group by fewer columns.")
    return found


def _find(block: AggregatingBlock, keys: Pairs, ranges: bool) -> PublicGroups | None:
    known = _Known(block, keys, ranges)
    parts: list[KeyGroup] = []
    for key, typed in keys:
        part = known.part(key, typed)
        if part is None:
            return None
        parts = _joined(parts, part)
    parts = _restricted(parts, known.conditions())
    queries = []
    size: int | None = 1
    nullable = False
    left_out: list[str] = []
    for part in parts:
        found = None
        if not part.kept:
            found, part.missing = _size(block, part)
            extended = _with_missing(part)
            if extended is not None:
                more, missing = _size(block, extended)
                if more > found or _is_uncounted(block, extended):
                    part, found, part.missing = extended, more, missing
        left_out += _left_out(part)
        query = _query(part)
        nullable = nullable or part.kept or bool(part.missing)
        size = None if found is None or size is None else size * found
        if found is not None and found < part.most:
            # The noise covers the groups counted here; the engine may find no more than these.
            listed = tuple(key.name for key, _ in part.keys)
            query = Select(listed, Subquery(query, "counted"), order=listed, limit=found)
        queries.append(query)
    origins = [values.origin for part in parts for values in part.places.values()]
    origin = " and ".join(dict.fromkeys([*origins, *(f"the rows of {table}" for table in known.kept)]))
    size = None if size is None else max(1, size)
    complete = all(part.complete for part in parts)
    made = (part for part in parts if any(values.ranged for values in part.places.values()))
    ranged = frozenset(key.name for part in made for key, _ in part.keys)
    sources = cross(*(Subquery(query, f"d{i}") for i, query in enumerate(queries)))
    whole = Select(tuple(key.name for key, _ in keys), sources)
    return PublicGroups(whole, size, origin, nullable, complete, tuple(left_out), ranged)


def _left_out(part: KeyGroup) -> Iterator[str]:
    """Yield the keys that may be NULL without a group for NULL, except columns whose values the policy lists."""
    if part.kept:
        return
    present: set[Place] = set()
    for node in part.conditions:
        bare = node.unnest()
        if is_strict(node) or (isinstance(bare, exp.Not) and isinstance(bare.this.unnest(), exp.Is)):
            present |= set(list_key_columns(bare))
    for key, typed in part.keys:
        listed = isinstance(typed.node, exp.Column) and (typed.values is not None or typed.days is not None)
        nullable = (typed.nullable or key.name in part.without) and key.name not in part.missing
        if nullable and not listed and not set(list_key_columns(typed.node)) <= present:
            yield key.name


def list_key_columns(node: exp.Expr) -> list[Place]:
    """Return the columns of an expression, each once."""
    return list(dict.fromkeys((c.table, c.name) for c in node.find_all(exp.Column)))


def _joined(parts: list[KeyGroup], part: KeyGroup) -> list[KeyGroup]:
    """Return the parts with one more, merged with all those that it shares a column or a table with."""
    apart = []
    for other in parts:
        if part.meets(other):
            part = other.join(part)
        else:
            apart.append(other)
    return [*apart, part]


def _restricted(parts: list[KeyGroup], asked: list[KeyGroup]) -> list[KeyGroup]:
    """Return the parts with the conditions on them, and with the public rows that these ask for."""
    waiting = [part for part in asked if part.places or part.relations]
    always = [node for part in asked if part not in waiting for node in part.conditions]
    while near := next((part for part in waiting if any(part.meets(other) for other in parts)), None):
        waiting.remove(near)
        joined = _joined(parts, near)
        if all(part.most <= MAX_GROUPS for part in joined if part not in parts):
            parts = joined
    return [replace(part, conditions=[*part.conditions, *always]) for part in parts]


class _Known:
    """The public facts about the columns of a block."""

    def __init__(self, block: AggregatingBlock, keys: Pairs, ranges: bool) -> None:
        self._block, self._ranges = block, ranges
        self._uses: dict[Place, list[exp.Column]] = {}
        """The places where the keys name a column."""
        for _, typed in keys:
            for use in typed.node.find_all(exp.Column):
                self._uses.setdefault((use.table, use.name), []).append(use)
        self._grids: dict[Place, Values] = {}
        """Rounded numbers that are treated as columns."""
        self._fields = {
            (node.table, node.name): (relation, item)
            for relation in block.bound.relations
            for item in relation.fields
            if isinstance(node := item.typed.node, exp.Column)
        }
        self._values: dict[Place, Values] = {}
        """Columns that keys are made of."""
        self.kept: dict[str, None] = {}
        """Public tables whose columns are keys, kept by an outer join."""
        self._listed: dict[str, Place] = {}
        """Keys that are listed as they are, by the SQL of their expressions."""
        self._tables, self._on = _met(block)

    def part(self, key: GroupKey, typed: Typed) -> KeyGroup | None:
        """Return the public columns or rows that a key is computed from; None if it is private."""
        places = list_key_columns(typed.node)
        kept = self._preserved(places)
        if kept is not None:
            self.kept[kept.alias] = None
            self._tables[kept.source.alias_or_name] = kept.source
            return KeyGroup([(key, typed)], {}, {places[0][0]: kept.source}, kept=True)
        missing = frozenset([key.name] if _may_be_null(typed) else [])
        values = {place: self._enumerated(place, typed) for place in places}
        found = {place: known for place, known in values.items() if known is not None}
        if places and len(found) == len(places) and math.prod(v.size for v in found.values()) <= MAX_GROUPS:
            self._values |= found
            tables = {alias: self._tables[alias] for alias, _ in places if alias in self._tables}
            return KeyGroup([(key, typed)], found, tables, missing=missing)
        made = _of_its_own(key, typed)
        if made is None:
            return self._rounded(key, typed, missing) if self._ranges else None
        place = (f"of_{key.name}", key.name)
        self._listed[key.sql] = place
        self._values[place] = made
        own = Typed(column(key.name, place[0]), typed.type, nullable=bool(missing))
        complete = not typed.nullable or bool(missing)
        without = frozenset() if complete else frozenset([key.name])
        return KeyGroup([(key, own)], {place: made}, missing=missing, complete=complete, without=without)

    def _rounded(self, key: GroupKey, typed: Typed, missing: frozenset[str]) -> KeyGroup | None:
        """Return a key computed from rounded numbers and parts of times, if those and all else in it are public."""
        parts = [(to_sql(node), list_part("n", node)) for node in typed.node.find_all(exp.Anonymous)]
        source = self._block.key_sources.get(key.name)
        for node in source.walk() if source is not None else ():
            if not may_be_grid(node):
                continue
            inner = self._block.expression(node)
            columns = list_key_columns(inner.node)
            if columns and all(c in self._fields and self._fields[c][1].declared for c in columns):
                parts.append((to_sql(inner.node), list_grid("n", node, inner)))
        grids: dict[str, Place] = {}
        for text, values in parts:
            if values is not None:
                grids[text] = (f"grid_{key.name}_{len(grids)}", "n")
                self._grids[grids[text]] = values
        made = with_keys(typed.node, grids)
        places = list_key_columns(made)
        listed = {place: self._enumerated(place, typed) for place in places}
        found = {place: known for place, known in listed.items() if known is not None}
        if not places or len(found) < len(places) or math.prod(v.size for v in found.values()) > MAX_GROUPS:
            return None
        self._values |= found
        self._listed |= {text: place for text, place in grids.items() if place in found}
        missing = missing if not isinstance(made, exp.Column) else frozenset()
        return KeyGroup([(key, replace(typed, node=made))], found, {}, missing=missing)

    def conditions(self) -> list[KeyGroup]:
        """Return the conditions that all counted rows meet, if they read only keys' columns and public relations."""
        steps = {p: values.step for p, values in self._values.items() if values.step and not values.cyclic}
        given = (*self._block.conditions, *self._on, *self._block.bound.conditions)
        found = (with_keys(node, self._listed) for node in given)
        parts = [self._condition(part) for node in found for part in by_steps(node, steps)]
        return [part for part in parts if part is not None]

    def _condition(self, node: exp.Expr) -> KeyGroup | None:
        part = KeyGroup(conditions=[node])
        for found in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(found, exp.Query) and not self._reads_inputs(found):
                return None
            if not isinstance(found, exp.Column):
                continue
            place = (found.table, found.name)
            if place in self._values:
                if not reads_no_more(found, self._values[place]):
                    return None
                part.places[place] = self._values[place]
            elif place[0] in self._tables:
                part.relations[place[0]] = self._tables[place[0]]
            else:
                return None
        return part

    def _reads_inputs(self, query: exp.Expr) -> bool:
        """Return whether a subquery reads only public inputs, and no column of the row around it."""
        names = {item.name for item in self._block.binder.lent_inputs}
        tables = list(query.find_all(exp.Table))
        own = {"", *(table.alias_or_name for table in tables)}
        public = all(table.name in names and not table.db for table in tables)
        return public and all(found.table in own for found in query.find_all(exp.Column))

    def _preserved(self, places: list[Place]) -> Relation | None:
        """Return the public table, kept by an outer join, that all columns of a key are of."""
        found = [self._fields[place][0] for place in places if place in self._fields]
        one = bool(found) and len(found) == len(places) and all(relation is found[0] for relation in found)
        return found[0] if one and found[0].public_preserved else None

    def _enumerated(self, place: Place, key: Typed) -> Values | None:
        """Return the values of a column that the policy declares, or its days, and NULL for rows without a match."""
        if place in self._grids:
            return self._grids[place]
        if (found := self._fields.get(place)) is None:
            return None
        values, missing = self._declared(place, key, *found), found[1].typed.unmatched
        return replace(values.with_missing(), unmatched=True) if values and missing else values

    def _declared(self, place: Place, key: Typed, relation: Relation, item: Field) -> Values | None:
        typed = item.typed
        if typed.values is not None:
            listed = tuple(f"CAST({to_sql(make_literal(v))} AS {typed.type.sql})" for v in typed.values)
            # '2020-1-1' and '2020-01-01' are one group: shown twice, it would be answered twice and paid once.
            distinct, origin = not _all_different(typed), "declared by the policy"
            kind, size = typed.type.sql, len(listed)
            return Values(place[1], size, origin, listed=listed, distinct=distinct, kind=kind)
        own = self._uses.get(place, []) if self._ranges else key.node.find_all(exp.Column)
        own = [node for node in own if (node.table, node.name) == place]
        days = list_days(place[1], typed, own)
        if days is not None or not (self._ranges and item.declared):
            return days
        if typed.type.kind == "TIMESTAMP" and not self._block.binder.catalog.engine.lossless:
            return None  # other engines don't compute times from numbers
        return list_range(place[1], typed, own)


def _met(block: AggregatingBlock) -> tuple[dict[str, exp.Expr], list[exp.Expr]]:
    """Return the public tables that every counted row has met, by alias, and the conditions of these joins."""
    bound = block.bound
    other = any(join_word(join, "side") not in ("", "LEFT") for join in bound.joins)
    if other or any(relation.public_preserved for relation in bound.relations):
        return {}, []
    private = {r.source.alias_or_name for r in bound.relations if r.private}
    known = (r for r in bound.relations if not r.private and all(item.public for item in r.fields))
    public = {r.source.alias_or_name for r in known} - private
    kinds = ("", "INNER", "CROSS", "SEMI")
    inner = [j for j in bound.joins if not j.args.get("side") and join_word(j, "kind") in kinds]
    sources = [bound.source, *(join.this for join in inner)]
    known_sources = [source for source in sources if isinstance(source, exp.Table | exp.Subquery)]
    tables: dict[str, exp.Expr] = {s.alias_or_name: s for s in known_sources if s.alias_or_name in public}
    return tables, [node for join in inner for node in split_conjuncts(join.args.get("on"))]


def _query(part: KeyGroup) -> Select:
    """Return the query of a part's groups."""
    keys, places = part.keys, list(part.places)
    if not part.relations and not part.conditions and len(keys) == len(places) == 1:
        key, typed = keys[0]
        if isinstance(typed.node, exp.Column) and not part.places[places[0]].step:
            given = part.places[places[0]]
            if given.listed is not None:
                return given.query(key.name)
            day = As(f"days.{quote_column(given.name)}", key.name)
            return Select(day, Subquery(given.query(), "days"), distinct=True)
    items = tuple(As(to_sql(typed.node), key.name) for key, typed in keys)
    sources: list[Source] = [to_sql(source) for source in part.relations.values()]
    conditions = [to_sql(node) for node in part.conditions]
    by_alias: dict[str, list[Query]] = {}
    for (alias, name), values in part.places.items():
        if alias in part.relations:
            met = f"{quote_column(alias)}.{quote_column(name)}"
            also = f" OR {met} IS NULL" if values.missing else ""
            conditions.append(f"{met} IN ({values.query()}){also}")
        else:
            by_alias.setdefault(alias, []).append(values.query())
    for alias, found in by_alias.items():
        crossed = Select("*", cross(*(Subquery(query, f"v{i}") for i, query in enumerate(found))))
        sources.append(Subquery(found[0] if len(found) == 1 else crossed, quote_column(alias)))
    if not part.kept:
        conditions += [_write_presence(part, key, typed) for key, typed in keys]
    return Select(items, cross(*sources), tuple(f"({c})" for c in conditions), distinct=True)


def _write_presence(part: KeyGroup, key: GroupKey, typed: Typed) -> str:
    """Return the condition on a key's groups: all results of values, and those of NULL that are not NULL."""
    present = f"({to_sql(typed.node)}) IS NOT NULL"
    if key.name not in part.missing:
        return present
    columns = list_key_columns(typed.node)
    given = [p for p, v in part.places.items() if v.missing and not v.unmatched and p in columns]
    if not given:
        return "TRUE"
    known = " AND ".join(f"{quote_column(alias)}.{quote_column(name)} IS NOT NULL" for alias, name in given)
    return f"{present} OR ({known})"


def _with_missing(part: KeyGroup) -> KeyGroup | None:
    """Return a part whose columns may be NULL too, if its keys may turn NULL into a value; otherwise None."""
    nodes = [typed.node for _, typed in part.keys]
    loose = [node for node in nodes if not isinstance(node, exp.Column) and not is_strict(node)]
    made_of = {place for node in loose for place in list_key_columns(node)}
    places = {p: values.with_missing() if p in made_of else values for p, values in part.places.items()}
    if places == part.places:
        return None
    found = replace(part, places=places)
    return found if found.most <= MAX_GROUPS else None


_STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Cast, exp.TryCast, exp.Try, exp.DataType, exp.Neg, exp.Add, exp.Sub,
    exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.DPipe, exp.Interval, exp.Var,
    exp.Between, exp.Not, exp.Boolean,
)  # fmt: skip


def is_strict(node: exp.Expr) -> bool:
    """Return whether an expression is certain to be NULL if one of its columns is."""
    return all(
        isinstance(part, _STRICT) or (isinstance(part, exp.Anonymous) and part.name.lower() in STRICT_CALLS)
        for part in node.walk()
    )


def _is_uncounted(block: AggregatingBlock, part: KeyGroup) -> bool:
    """Return whether the groups of a part can't be counted here."""
    queries = any(node.find(exp.Query) is not None for node in part.conditions)
    return bool(part.relations) or queries or not block.binder.catalog.engine.lossless


def _size(block: AggregatingBlock, part: KeyGroup) -> tuple[int, frozenset[str]]:
    """Return the number of a part's groups, and the keys that are NULL in one: counted if policy and statement decide them."""
    single = len(part.keys) == len(part.places) == 1 and isinstance(part.keys[0][1].node, exp.Column)
    if _is_uncounted(block, part) or (single and not part.conditions):
        return part.most, part.missing  # another engine may count otherwise
    names = sorted(part.missing)
    nulls = (f"COUNT(*) - COUNT({name})" for name in names)
    counted = Select(("COUNT(*)", *nulls), Subquery(_query(part), "d"))
    try:
        row = block.binder.finish.keep(counted.sql).to_pylist()[0]
    except Error:
        return part.most, part.missing
    size, *absent = row.values()
    return min(part.most, int(size)), frozenset(name for name, n in zip(names, absent, strict=True) if n)


def _may_be_null(typed: Typed) -> bool:
    """Return whether NULL is a group of a key; a plain column has only values as groups, if each row has a match."""
    node = typed.node.this if isinstance(typed.node, exp.Cast) and typed.type.kind == "TEXT" else typed.node
    return typed.nullable and (typed.unmatched or not isinstance(node, exp.Column))


def _of_its_own(key: GroupKey, typed: Typed) -> Values | None:
    """Return the few values of a boolean, or of a CASE whose outcomes are written out; None for another key."""
    if typed.type.kind == "BOOLEAN" and _may_be_null(typed):
        return Values(key.name, 3, "true, false and NULL", listed=("FALSE", "TRUE", "NULL"))
    if typed.type.kind == "BOOLEAN":
        return Values(key.name, 2, "true and false", listed=("FALSE", "TRUE"))
    outcomes = _outcomes(typed.node)
    if outcomes is None or typed.nullable:
        return None
    listed = tuple(f"CAST({sql} AS {typed.type.sql})" for sql in dict.fromkeys(outcomes))
    return Values(key.name, len(outcomes), "written in the query", listed=listed, distinct=True)


def _outcomes(node: exp.Expr) -> list[str] | None:
    """Return the outcomes of a CASE if all are literals; otherwise None."""
    case = node.unnest()
    if not isinstance(case, exp.Case):
        return None
    found: list[str] = []
    for value in [*(branch.args["true"] for branch in case.args["ifs"]), case.args.get("default")]:
        inner = _outcomes(value) if value is not None else None
        if inner is not None:
            found += inner
        elif value is None or value.find(exp.Column, exp.Query, exp.Func):
            return None
        else:
            found.append(to_sql(value))
    return found


_PLAIN = {"TEXT": str, "INTEGER": int, "BOOLEAN": bool}


def _all_different(typed: Typed) -> bool:
    """Return whether the declared values are certain to differ in the column's type."""
    values = typed.values or ()
    plain = all(type(value) is _PLAIN.get(typed.type.kind) for value in values)
    return plain and len(set(values)) == len(values)
