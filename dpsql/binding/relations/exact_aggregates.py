"""Exact aggregates: of each unit's own rows, or of a subsample block, with the expressions above them.

Variances, correlations and regressions of many groups are made of exact integers, independent of the order of rows.
Addition of floats depends on the order of rows, which other groups' rows may determine. Sorting the rows would take
some forty times the work. Here each value is put on a fine public grid. Counts, sums and sums of products are integers
of 128 bits, which are exact in any order. The sum of squares about the mean is an exact difference of these, so a
spread that is small relative to the mean keeps its digits.

The grid's size is public if the type has few digits or bounds are declared. Otherwise each block has its own grid between
its least and greatest value, and the rows are read twice: for these ends, and for the sums. Sorting a block's rows would
take three times as long. Such a grid depends on the block's rows alone, and so does the result. It has 2^42 steps, so
errors are relative to the block's spread, however far from zero that is.

Aggregates of numbers shared by many rows are written in layers if that is faster than sorting, and as separate queries
if some of them read the rows separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import ClassVar

from sqlglot import exp

from dpsql.binding.relations import relation as rel
from dpsql.binding.values.coercion import refuse_order
from dpsql.binding.values.declared_values import DEFAULT_MAX_LENGTH, MAX_TEXT, hold, length_of
from dpsql.binding.values.fixed_point import (
    bound_any_sum,
    find_power,
    make_canonical,
    snap_to_decimal,
    sum_exactly,
    unify_zeros,
    write_group_keys,
    write_order_independent,
)
from dpsql.binding.values.sql_types import (
    BIGINT,
    DOUBLE,
    HUGEINT,
    NARROW_INTEGERS,
    TEXT,
    Bounds,
    Type,
    Typed,
)
from dpsql.binding.values.total_expressions import make_condition, make_total
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME, FORMULAS, names_of
from dpsql.errors import BindError
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.language.options import Call, call_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Join, Select, Source, Subquery, write_filter

GRID_BITS = 38
"""Half of the distance between the bounds is between 2^38 and 2^39 steps."""
_MOST_STEPS = 1 << 43
"""Values farther from the centre, 16 times as far as the bounds, are missing: 2^40 squares of others fit 128 bits."""
_FARTHEST = 2**64
"""Bounds above it aren't declared: of EXP(x), most values would be below the first step."""
_NEAREST = Fraction(1, 2**200)
_FEWEST_PART = Fraction(1, 2**20)
"""Bounds closer together than this part of their size get no finer grid: a double has no more digits."""
_LONGEST = 2_000
"""The most characters of the values, which occur some thirty times in a text; rows of longer ones are sorted."""
_NARROW_DIGITS, _MOST_DIGITS = 9, 12
"""Digits of decimals whose products fit 64 bits, and of decimals that are always within ``_MOST_STEPS``."""


@dataclass(frozen=True)
class ExactMoments:
    """An aggregate in layers of SQL: rows, sums of integers over them, doubles made of these, and the result.

    Args:
        values: each row's integers ``y`` and ``x``, NULL if missing.
        there: the condition under which a row counts, over ``{y}`` and ``{x}``.
        sums: names and sums, over ``{y}`` and ``{x}``.
        moments: names and doubles, over the sums.
        result: the result, over the moments.
        limits: EXPLAIN's sentences about numbers that don't count.
    """

    values: Mapping[str, str]
    there: str
    sums: tuple[tuple[str, str], ...]
    moments: tuple[tuple[str, str], ...]
    result: str
    limits: tuple[str, ...]
    reads_twice: ClassVar[bool] = False
    """Whether the rows are read twice; these sums then have a query of their own."""

    def add_up(self) -> list[As]:
        """Return the sums over rows, some of which don't count."""
        there = self.there.format(**self.values)
        held = {axis: f"CASE WHEN {there} THEN {value} END" for axis, value in self.values.items()}
        return [As(sql.format(**held), name) for name, sql in self.sums]

    def add_up_alone(self, owner: str, name: str, rows: Select) -> Select:
        """Return the sums of each owner of rows, called ``name``, if no other aggregate needs rows that don't count.

        The condition bounds the values, so the engine needn't check for overflows: two thirds of the sums' time.
        """
        of = {axis: f"rows.{axis}" for axis in self.values}
        sums = (As(sql.format(**of), part) for part, sql in self.sums)
        given, by = Subquery(self._take_values(owner, name, rows), "rows"), f"rows.{name}"
        return Select((As(by, name), *sums), given, where=self.there.format(**of), group=by)

    def _take_values(self, owner: str, name: str, rows: Select) -> Select:
        values = (As(value, axis) for axis, value in self.values.items())
        return replace(rows, columns=(As(owner, name), *values))


def write_layers(sums: Select, kept: Sequence[str], made: Mapping[str, ExactMoments]) -> Select:
    """Return aggregates above the query of their sums.

    Args:
        sums: the query.
        kept: columns of it that are shown unchanged.
        made: the aggregates, by name.
    """
    moments = (As(sql, part) for given in made.values() for part, sql in given.moments)
    results = (As(given.result, name) for name, given in made.items())
    middle = Select((*kept, *moments), Subquery(sums, "sums"))
    return Select((*kept, *results), Subquery(middle, "moments"))


@dataclass(frozen=True)
class _Steps:
    """A number as an integer of steps from a centre.

    Args:
        value: SQL of a BIGINT.
        there: SQL of the condition under which it counts, over ``{}``.
        steps: the steps per unit.
        centre: the number at step 0.
        narrow: whether products of two fit 64 bits.
    """

    value: str
    there: str = "{} IS NOT NULL"
    steps: float = 1.0
    centre: float = 0.0
    narrow: bool = False

    @property
    def limit(self) -> str:
        """EXPLAIN's sentence about numbers that don't count; empty if there are none."""
        if self.there == "{} IS NOT NULL":
            return ""
        far = _MOST_STEPS / self.steps
        return f"numbers farther than {far:,.6g} from {self.centre:,.6g} count as missing."


def write_exact_moments(
    name: str, typed: Sequence[Typed], condition: str | None, prefix: str
) -> ExactMoments | None:
    """Return an aggregate of one or two numbers; None if it is no moment, or a number has no public grid.

    Args:
        name: the aggregate's name.
        typed: its arguments.
        condition: SQL of its FILTER.
        prefix: starts the names of the layers' columns.
    """
    if name not in FORMULAS:
        return None
    numbers = [_write_steps(t) for t in typed]
    known = [n for n in numbers if n is not None]
    if len(known) < len(numbers):
        return None
    axes = dict(zip("yx", known, strict=False))  # as in REGR_SLOPE(y, x)
    values = filter_values({axis: number.value for axis, number in axes.items()}, condition)
    if values is None:
        return None
    sums, moments = write_parts(
        name,
        prefix,
        {axis: number.narrow for axis, number in axes.items()},
        lambda axis: f" / {axes[axis].steps!r} + ({axes[axis].centre!r})",
        lambda a, b: f" / {axes[a].steps * axes[b].steps!r}",
    )
    there = " AND ".join(number.there.format(f"{{{axis}}}") for axis, number in axes.items())
    limits = tuple(f"{name}: {number.limit}" for number in axes.values() if number.limit)
    return ExactMoments(values, there, sums, moments, write_moment(name, prefix), limits)


def filter_values(values: Mapping[str, str], condition: str | None) -> Mapping[str, str] | None:
    """Return the values with NULL in rows that a FILTER removes; None if they are too long to be repeated."""
    if condition is not None:
        values = {**values, "y": f"CASE WHEN {condition} THEN {values['y']} END"}
    return values if sum(map(len, values.values())) <= _LONGEST else None


Named = tuple[tuple[str, str], ...]
"""Names of columns, and their SQL."""


def write_parts(
    name: str,
    prefix: str,
    axes: Mapping[str, bool],
    mean: Callable[[str], str],
    scale: Callable[[str, str], str],
) -> tuple[Named, Named]:
    """Return an aggregate's sums, and the doubles made of them.

    Args:
        axes: the numbers in steps, each with whether products of two fit 64 bits.
        mean: returns the SQL after a mean in steps that makes it a number.
        scale: returns the SQL after a sum of products of steps.
    """
    result = FORMULAS[name]
    products = [(a, b) for a, b in _PRODUCTS if f"{{{a}{b}}}" in result]
    means = [axis for axis in axes if f"{{{axis}}}" in result]
    sums = {"n": "NULLIF(COUNT({y}), 0)"}
    summed = {*means, *(axis for pair in products for axis in pair)}
    sums |= {axis: f"SUM({{{axis}}})" for axis in axes if axis in summed}
    for a, b in products:
        narrow = axes[a] and axes[b]
        sums[a + b] = f"SUM({{{a}}} * {{{b}}})" if narrow else f"SUM(CAST({{{a}}} AS HUGEINT) * {{{b}}})"
    names = {part: f"{prefix}_{part}" for part in sums}
    n, moments = names["n"], {"n": names["n"]}
    for axis in means:
        moments[axis] = f"CAST({names[axis]} AS DOUBLE) / {n}{mean(axis)}"
    for a, b in products:
        moments[a + b] = f"{_write_about_means(n, names[a], names[b], names[a + b])}{scale(a, b)}"
    made = tuple((f"{prefix}_m{part}", sql) for part, sql in moments.items())
    return tuple((names[part], sql) for part, sql in sums.items()), made


def write_moment(name: str, prefix: str) -> str:
    """Write an aggregate over the doubles of :func:`write_parts`."""
    parts = ("n", "y", "x", *(a + b for a, b in _PRODUCTS))
    return FORMULAS[name].format(**{part: f"{prefix}_m{part}" for part in parts})


def _write_about_means(n: str, a: str, b: str, ab: str) -> str:
    """Write the sum of products of distances from the means, from exact sums, rounded to a double at the end.

    With ``a = n q + r`` and ``b = n p + s`` it is ``ab - q b - p r - r s / n``. Only the last quotient may not be an
    integer, and no product has more bits than the sum of products may have.
    """
    q, r, p, s = f"({a} // {n})", f"({a} % {n})", f"({b} // {n})", f"({b} % {n})"
    whole = f"{ab} - {q} * {b} - {p} * {r} - ({r} * {s}) // {n}"
    return f"(CAST({whole} AS DOUBLE) - CAST(({r} * {s}) % {n} AS DOUBLE) / {n})"


def _write_steps(typed: Typed) -> _Steps | None:
    kind, own = typed.type, to_sql(typed.node)
    if kind.sql in NARROW_INTEGERS:
        return _Steps(f"CAST({own} AS BIGINT)", narrow=True)
    if kind.sql == "UINTEGER":
        return _Steps(f"CAST({own} AS BIGINT)")
    if kind.kind == "DECIMAL" and sum(kind.digits) <= _MOST_DIGITS:
        # by DOUBLE, which is exact here: the error of two roundings is far below half a step
        steps = float(10 ** kind.digits[1])
        value = f"CAST(CAST({own} AS DOUBLE) * {steps!r} AS BIGINT)"
        return _Steps(value, steps=steps, narrow=sum(kind.digits) <= _NARROW_DIGITS)
    ends = typed.ends
    if ends is None or max(map(abs, ends)) > _FARTHEST:
        return None
    low, high = ends
    if kind.kind == "INTEGER" and max(abs(low), abs(high)) <= 1 << GRID_BITS:
        return _hold(f"TRY_CAST({own} AS BIGINT)")
    size = max((high - low) / 2, max(abs(low), abs(high)) * _FEWEST_PART, _NEAREST)
    steps = float(find_power(GRID_BITS + 1, size))
    centre = float((low + high) / 2)
    # NaN, the infinities and values too far for 64 bits are missing
    return _hold(f"TRY_CAST((CAST({own} AS DOUBLE) - ({centre!r})) * {steps!r} AS BIGINT)", steps, centre)


def _hold(value: str, steps: float = 1.0, centre: float = 0.0) -> _Steps:
    return _Steps(value, f"{{}} BETWEEN {-_MOST_STEPS} AND {_MOST_STEPS}", steps, centre)


_PRODUCTS = (("y", "y"), ("x", "x"), ("x", "y"))
_STEPS = 2.0**42
"""Steps between the ends: 2^40 squares of half of them fit 128 bits."""
_NEAREST_POINT = "1e-170"
"""Ends that are closer count as one number, since squares of such distances underflow."""


@dataclass(frozen=True)
class OwnGridMoments(ExactMoments):
    """Moments over grids of the blocks' own; ``values`` are finite doubles, NULL if missing."""

    reads_twice: ClassVar[bool] = True

    def add_up(self) -> list[As]:
        raise NotImplementedError("these sums have a query of their own")

    def add_up_alone(self, owner: str, name: str, rows: Select) -> Select:
        """Return the sums of each owner of rows, called ``name``."""
        given = self._take_values(owner, name, rows)
        if len(self.values) > 1:  # without WHERE, after which the engine may expect fewer rows than blocks
            pairs = (As(f"CASE WHEN each.{b} IS NOT NULL THEN each.{a} END", a) for a, b in ("yx", "xy"))
            given = Select((As(f"each.{name}", name), *pairs), Subquery(given, "each"))
        step = {axis: f"(rows.{axis} - ends.c{axis}) * ends.s{axis}" for axis in self.values}
        # true wherever there is a value; the lock proves from it that nothing overflows
        known = " AND ".join(f"{one} BETWEEN {-_STEPS!r} AND {_STEPS!r}" for one in step.values())
        ends, steps = [As(f"given.{name}", name)], [As(f"rows.{name}", name)]
        for axis in self.values:
            low, high = f"MIN(given.{axis})", f"MAX(given.{axis})"
            fine = f"WHEN {high} - {low} > {_NEAREST_POINT} THEN {_STEPS!r} / ({high} - {low})"
            ends.append(As(f"({low} + {high}) / 2", f"c{axis}"))
            ends.append(As(f"CASE {fine} ELSE CAST(1 AS DOUBLE) END", f"s{axis}"))
            steps += [As(f"ends.{one}", one) for one in (f"c{axis}", f"s{axis}")]
            steps.append(As(f"TRY_CAST(CASE WHEN {known} THEN {step[axis]} END AS BIGINT)", axis))
        # always true: after a condition the engine expects few rows, which is right here
        few = "COALESCE(MAX(given.y) >= MIN(given.y), TRUE)"
        grid = Select(tuple(ends), Subquery(given, "given"), group=f"given.{name}", having=few)
        met = Join(Subquery(given, "rows"), Subquery(grid, "ends"), f"ends.{name} = rows.{name}")
        of = {axis: f"stepped.{axis}" for axis in (*self.values, *(k + a for k in "cs" for a in self.values))}
        sums = (As(sql.format(**of), part) for part, sql in self.sums)
        stepped, by = Subquery(Select(tuple(steps), met), "stepped"), f"stepped.{name}"
        return Select((As(by, name), *sums), stepped, group=by)


def write_own_grid_moments(
    name: str, values: Sequence[str], condition: str | None, prefix: str
) -> OwnGridMoments | None:
    """Return an aggregate of one or two numbers; None if it is no moment, or they are too long.

    Takes the arguments of :func:`write_exact_moments`, but ``values``: SQL of doubles of a reasonable size, NULL if missing.
    """
    if name not in FORMULAS:
        return None
    axes = dict(zip("yx", values, strict=False))
    given = filter_values(axes, condition)
    if given is None:
        return None
    sums, moments = write_parts(
        name,
        prefix,
        dict.fromkeys(axes, False),
        lambda axis: f" / {prefix}_s{axis} + {prefix}_c{axis}",
        lambda a, b: f" / {prefix}_s{a} / {prefix}_s{b}",
    )
    text = " ".join(sql for _, sql in moments)
    # constant within a block: MIN is the engine's cheapest aggregate of it
    kept = [f"{kind}{axis}" for axis in axes for kind in "sc"]
    sums += tuple((f"{prefix}_{one}", f"MIN({{{one}}})") for one in kept if f"{prefix}_{one}" in text)
    return OwnGridMoments(given, "", sums, moments, write_moment(name, prefix), ())


def bound_rows(bound: rel.From) -> Bounds:
    """Return the number of one unit's rows, as far as the policy or the query determines it."""
    return Bounds(Fraction(0), None if bound.most_rows is None else Fraction(bound.most_rows))


def bound_unit_aggregate(call: Call, names: rel.Names, rows: Bounds, grouped: bool) -> Bounds | None:
    """Return the public bounds of a unit's own aggregate: a count is at most its rows, an average within its column's bounds."""
    if grouped and call.name == "COUNT" and call.where is None and (not call.args or call.args[0].is_star):
        return Bounds(Fraction(1), rows.high)  # a group has a row
    row = AGGREGATE_OF_NAME[call.name]
    if "COUNT" in call.name:
        return rows
    if call.name == "CORR":
        return Bounds(Fraction(-1), Fraction(1))
    inner = make_total(call.args[0], names).bounds
    if inner is None or inner.ends is None:
        return None
    if row.within:
        return inner
    if row.form == "spread":
        return Bounds(Fraction(0), _bound_spread(row.kind, inner.ends[1] - inner.ends[0]))
    return inner * rows if call.name == "SUM" and rows.ends is not None else None


def _bound_spread(kind: str, width: Fraction) -> Fraction:
    """Return the largest spread in an interval of a width: half of the values at each end, or one of two for a sample."""
    sample = kind.endswith("samp")
    if kind.startswith("stddev"):
        return width * (3 if sample else 2) / 4
    return width**2 / (2 if sample else 4)


LIFTED_AGGREGATES = names_of("SUBSAMPLE")
_LARGEST = "1e70"
"""Larger numbers count as missing: their squares would make some aggregates fail."""
_LONGEST_QUERY = 100_000
"""The most characters of the rows' SQL, over all aggregates that read them separately."""

_FEWEST_JOINED = 100
"""The fewest texts of a unit that STRING_AGG must have room for."""

COUNT_CALLS = ("COUNT(", "REGR_COUNT(")
"""Prefixes of the SQL of aggregates that are 0 without rows."""
_ABOVE = "dpsql_above"


def _exact_call(node: exp.Expr) -> Call | None:
    call = call_of(node)
    return call if call is not None and call.name in LIFTED_AGGREGATES else None


def has_exact_aggregate(item: exp.Expr) -> bool:
    """Return whether an expression contains an exact aggregate."""
    return any(_exact_call(node) for node in item.walk())


@dataclass
class Grouped:
    """The scope above an exact aggregation: keys, and aggregates (``made``, by spelling), are columns of ``g``."""

    names: rel.Names
    keys: list[tuple[str, Typed, exp.Expr]] = field(default_factory=list)
    rows: Bounds | None = None
    """The number of aggregated rows, if these are one unit's; None if nothing is known of the aggregates."""
    layered: bool = False
    """Whether aggregates of many rows may be written in layers, which the engine computes faster than by sorting."""
    twice: bool = False
    """Whether these rows may be read twice."""
    made: dict[str, tuple[str, Typed]] = field(default_factory=dict)
    moments: dict[str, ExactMoments] = field(default_factory=dict)
    _by_column: dict[str, Typed] = field(default_factory=dict)

    @classmethod
    def by(
        cls,
        nodes: Iterable[exp.Expr],
        names: rel.Names,
        rows: Bounds | None = None,
        layered: bool = False,
        twice: bool = False,
    ) -> Grouped:
        """Return the scope above an aggregation grouped by these expressions."""
        keys = [(f"k{i}", unify_zeros(make_total(n, names)), n) for i, n in enumerate(nodes)]
        return cls(names, keys, rows, layered, twice)

    def inner(self, owner: str, name: str, rows: Select) -> Select:
        """Return the aggregation of rows, given without columns, for each owner of them (called ``name``) and each key."""
        if self.moments and len(self.made) == 1 and not self.keys:
            return self._alone(owner, name, rows, *self.moments)
        apart = [made for made, sums in self.moments.items() if sums.reads_twice and not self.keys]
        if len(rows.sql) * len(apart) > _LONGEST_QUERY:
            apart = []
        names = [t.node.name for _, t in self.made.values() if t.node.name not in apart]
        parts = [self._together(owner, name, rows, names)] if names or not apart else []
        parts += [self._alone(owner, name, rows, made) for made in apart]
        if len(parts) == 1:
            return parts[0]
        shown = [As(f"part0.{made}", made) for made in (name, *names)]
        shown += [As(f"part{len(parts) - len(apart) + i}.{made}", made) for i, made in enumerate(apart)]
        joined: Source = Subquery(parts[0], "part0")
        for i, part in enumerate(parts[1:], 1):
            joined = Join(joined, Subquery(part, f"part{i}"), f"part{i}.{name} = part0.{name}")
        return Select(tuple(shown), joined)

    def _alone(self, owner: str, name: str, rows: Select, made: str) -> Select:
        """Return the aggregation with one aggregate made of sums, and no key."""
        moments = self.moments[made]
        return write_layers(moments.add_up_alone(owner, name, rows), [name], {made: moments})

    def _together(self, owner: str, name: str, rows: Select, names: Sequence[str]) -> Select:
        """Return the aggregation with some of the aggregates of the rows."""
        moments = {m: sums for m, sums in self.moments.items() if m in names and not sums.reads_twice}
        items = [As(owner, name), *(As(to_sql(t.node), n) for n, t, _ in self.keys)]
        made = [(sql, t.node.name) for sql, t in self.made.values() if t.node.name in names]
        plain = [(sql, one) for sql, one in made if one not in moments]
        items += [As(sql, one) for sql, one in plain]
        items += [item for sums in moments.values() for item in sums.add_up()]
        by = (owner, *(sql for _, t, _ in self.keys for sql in write_group_keys(t)))
        grouped = replace(rows, columns=tuple(items), group=by)
        kept = [name, *(n for n, _, _ in self.keys), *(one for _, one in plain)]
        return write_layers(grouped, kept, moments) if moments else grouped

    def column(self, node: exp.Column) -> Typed:
        """Return a column of the aggregation; BindError if there is no such column."""
        if node.meta.get(_ABOVE):
            key = next((typed for name, typed, _ in self.keys if name == node.name), None)
            if (found := key or self._by_column.get(node.name)) is not None:
                return replace(found, node=node.copy(), constant=False)
        same = self.names.known(node)
        for name, typed, own in self.keys if same is not None else ():
            if self.names.known(own) is same:
                return replace(typed, node=rel.column(name, "g"), constant=False)
        hint = f"write AVG({to_sql(node)})."
        raise bind_error(node, f"{node.name} must be a group or be inside an aggregate.", hint)

    def total(self, node: exp.Expr) -> Typed:
        """Return an expression above the aggregation that can't fail."""
        return make_total(self._rewrite(node.copy()), self)

    def condition(self, node: exp.Expr) -> str:
        """Return the SQL of a condition above the aggregation."""
        return to_sql(make_condition(self._rewrite(node.copy()), self).node)

    def _rewrite(self, node: exp.Expr) -> exp.Expr:
        """Replace keys and aggregates in an expression by columns of the aggregation."""
        for name, _, key in self.keys:
            if node == key or (
                type(node) is type(key) and _resolved(node, self.names) == _resolved(key, self.names)
            ):
                return _above(name)
        if self.rows is not None:
            node = _spell_with_exact_names(node)
        asked = (_read_ordered(node) if self.rows is not None else None) or _exact_call(node)
        if asked is not None:
            text = to_sql(asked.node)
            if text not in self.made:
                if isinstance(asked, Call):
                    self._add_call(text, asked)
                else:
                    self._add(text, *self._write_ordered(asked))
            return self.made[text][1].node.copy()
        for child in list(node.iter_expressions()):
            new = self._rewrite(child)
            if new is not child:
                child.replace(new)
        return node

    def _add_call(self, text: str, call: Call) -> None:
        sql, kind = write_exact_aggregate(call, self.names, self.rows is not None)
        bounds = reach = order = None
        if self.rows is not None:
            bounds = bound_unit_aggregate(call, self.names, self.rows, bool(self.keys))
        if kind == HUGEINT:
            reach = bound_any_sum(make_total(call.args[0], self.names))
        if AGGREGATE_OF_NAME[call.name].ties:
            order = make_total(call.args[0], self.names).order
        name = self._add(text, sql, Typed(exp.null(), kind, bounds, reach=reach, order=order))
        if self.layered and (moments := self._write_moments(call, name)) is not None:
            self.moments[name] = moments

    def _write_ordered(self, asked: _Ordered) -> tuple[str, Typed]:
        """Return the SQL and the type of FIRST, LAST, LIST or STRING_AGG of a unit's rows.

        Raises:
            PrivacyError: a list of lists and the like; texts of which too few may be joined.
        """
        typed = make_total(asked.value, self.names)
        if asked.kind in (exp.First, exp.Last):  # the value itself decides ties of its order
            value = to_sql(make_canonical(typed, asked.value))
            by = ", ".join([*self._order(asked.order, asked.kind is exp.Last), value])
            kept = replace(typed, constant=False, nullable=True, plain=None)
            return f"FIRST({value} ORDER BY {by}){self._filter(asked.where)}", kept
        if asked.kind is exp.GroupConcat:
            return self._join(asked, typed), Typed(exp.null(), TEXT, length=MAX_TEXT)
        if typed.type.kind in ("LIST", "STRUCT", "OTHER", "NULL") or typed.type.sql == "ENUM":
            what = f"a list of {typed.type.sql} can't be made of a privacy unit's rows."
            raise privacy_error(asked.value, what, "list numbers, texts, dates or times.")
        kind = Type.parse(f"{typed.type.sql}[]")
        made = Typed(exp.null(), kind, length=DEFAULT_MAX_LENGTH, unchecked=True)
        return self._write_list(asked, to_sql(make_canonical(typed, asked.value))), made

    def _join(self, asked: _Ordered, typed: Typed) -> str:
        """Write a unit's texts one after another; NULL if there are more than fit a text."""
        if typed.type.kind != "TEXT" or not asked.between.is_string:
            what = "STRING_AGG takes texts, and a literal between them."
            raise bind_error(asked.node, what, "cast the value to VARCHAR.")
        declared = [len(str(value)) for value in typed.values or ()]
        longest = max(declared, default=length_of(typed))
        most = MAX_TEXT // (longest + len(asked.between.name) or 1)
        if most < _FEWEST_JOINED:
            what = f"the texts of one privacy unit may be {longest:,} characters long each, too many to join."
            shown = to_sql(asked.value)
            raise privacy_error(asked.value, what, f"shorten them: LEFT({shown}, 40) instead of {shown}.")
        value = to_sql(hold(typed, longest).node)
        listed = self._write_list(asked, value, f"{value} IS NOT NULL")
        fits = f"COUNT({value}){self._filter(asked.where)} <= {most}"
        return f"CASE WHEN {fits} THEN array_to_string({listed}, {to_sql(asked.between)}) END"

    def _write_list(self, asked: _Ordered, value: str, there: str = "") -> str:
        """Write the list of values in their order; the values themselves decide its ties."""
        if asked.distinct and any(item.this != asked.value for item in asked.order):
            what = "DISTINCT values have no order by other values."
            raise bind_error(asked.node, what, f"order by {to_sql(asked.value)} itself.")
        order = [*self._order(asked.order), value]
        if asked.distinct:  # by the very values, as DuckDB requires it
            order = [_order_by(value, item) for item in asked.order[:1]] or [value]
        where = self._filter(asked.where, there)
        return f"LIST({'DISTINCT ' * asked.distinct}{value} ORDER BY {', '.join(order)}){where}"

    def _order(self, order: Sequence[exp.Expr], reverse: bool = False) -> list[str]:
        by = []
        for item in order:
            key = make_total(item.this, self.names)
            refuse_order([key], item.this)
            by.append(_order_by(to_sql(make_canonical(key, item.this)), item, reverse))
        return by

    def _filter(self, where: exp.Expr | None, there: str = "") -> str:
        parts = [there] if there else []
        parts += [] if where is None else [f"({to_sql(make_condition(where, self.names).node)})"]
        return write_filter(" AND ".join(parts))

    def _add(self, text: str, sql: str, typed: Typed) -> str:
        """Add an aggregate with its type, under the next name, and return that."""
        above = replace(typed, node=_above(f"a{len(self.made)}"))
        self.made[text] = (sql, above)
        self._by_column[above.node.name] = above
        return above.node.name

    def _write_moments(self, call: Call, prefix: str) -> ExactMoments | None:
        """Return an aggregate's SQL from exact sums; None if it is written otherwise."""
        if call.distinct:
            return None
        condition = None if call.where is None else to_sql(make_condition(call.where, self.names).node)
        typed = [make_total(argument, self.names) for argument in call.args if not argument.is_star]
        name = AGGREGATE_OF_NAME[call.name].kind.upper()
        made = write_exact_moments(name, typed, condition, prefix)
        if made is None and self.twice:
            made = write_own_grid_moments(name, [_as_double(t) for t in typed], condition, prefix)
        return made


def _spell_with_exact_names(node: exp.Expr) -> exp.Expr:
    """Return BOOL_OR, BOOL_AND and ANY_VALUE of one unit's rows as MAX or MIN; other nodes unchanged."""
    if isinstance(node, exp.Filter) and (inner := _spell_with_exact_names(node.this)) is not node.this:
        return exp.Filter(this=inner, expression=node.expression.copy())
    given = node.this if isinstance(node, exp.IgnoreNulls) else node
    kind = exp.Max if isinstance(given, exp.LogicalOr) else exp.Min
    arbitrary = (
        isinstance(given, exp.Anonymous) and given.name.lower() == "arbitrary" and len(given.expressions) == 1
    )
    if not (isinstance(given, exp.LogicalOr | exp.LogicalAnd | exp.AnyValue) or arbitrary):
        return node
    value = given.expressions[0] if arbitrary else given.this
    if not isinstance(value, exp.Expr) or isinstance(value, exp.Order | exp.HavingMax | exp.Distinct):
        return node
    if isinstance(given, exp.LogicalOr | exp.LogicalAnd):
        value = exp.cast(value.copy(), "BOOLEAN", dialect="duckdb")
    made = kind(this=value.copy())
    made.meta.update(given.meta)
    return made


@dataclass(frozen=True)
class _Ordered:
    """FIRST, LAST, LIST or STRING_AGG: its value, its order, and whether equal values are put together."""

    node: exp.Expr
    kind: type[exp.Expr]
    value: exp.Expr
    order: tuple[exp.Expr, ...]
    distinct: bool
    between: exp.Expr
    """The text between those that STRING_AGG joins."""
    where: exp.Expr | None
    """The condition of FILTER."""


def _read_ordered(node: exp.Expr) -> _Ordered | None:
    """Return an aggregate that takes rows in an order; None for other nodes."""
    inner, where = (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)
    kinds = exp.First | exp.Last | exp.ArrayAgg | exp.GroupConcat
    if not isinstance(inner, kinds) or not isinstance(inner.this, exp.Expr):
        return None
    value, order = inner.this, tuple[exp.Expr, ...]()
    if isinstance(value, exp.Order):
        value, order = value.this, tuple(value.expressions)
    distinct = isinstance(value, exp.Distinct) and not isinstance(inner, exp.First | exp.Last)
    if distinct and len(value.expressions) == 1:
        value = value.expressions[0]
    between = inner.args.get("separator") or exp.Literal.string(",")
    return _Ordered(node, type(inner), value, order, distinct, between, where)


def _order_by(value: str, item: exp.Expr, reverse: bool = False) -> str:
    """Write a value in the order of an item; ``reverse``: in the opposite one."""
    desc, first = (bool(item.args.get(key)) != reverse for key in ("desc", "nulls_first"))
    return f"{value} {'DESC' if desc else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _resolved(node: exp.Expr, names: rel.Names) -> exp.Expr:
    """Return an expression with each column in one spelling, by its relation and name."""
    holder = exp.Paren(this=node.copy())
    for column in list(holder.find_all(exp.Column)):
        found = names.known(column)
        alias = next((alias for alias, item in names.fields() if item is found), None)
        if found is not None and column.find_ancestor(exp.Query) is None:
            column.replace(rel.column(found.name, alias))
    inner: exp.Expr = holder.this
    return inner


def _above(name: str) -> exp.Column:
    made = rel.column(name, "g")
    made.meta[_ABOVE] = True
    return made


def refuse_arguments(node: exp.Expr) -> BindError:
    """Return the refusal of named arguments inside a block."""
    what = "aggregates inside SUBSAMPLE are exact: they take no named arguments."
    return bind_error(node, what, "leave out the arguments with names.")


def write_exact_aggregate(call: Call, names: rel.Names, own: bool = False) -> tuple[str, Type]:
    """Return the SQL of a total aggregate: numbers as doubles in a safe range, others unchanged; BindError if invalid.

    ``own``: the rows are one unit's, whose sum of integers is an integer that may be compared.
    """
    condition = "" if call.where is None else to_sql(make_condition(call.where, names).node)
    where = write_filter(condition)
    if call.named:
        raise refuse_arguments(call.node)
    distinct = "DISTINCT " if call.distinct else ""
    if call.name == "COUNT" and (not call.args or call.args[0].is_star):
        return f"COUNT({distinct}*){where}", BIGINT
    if call.name == "COUNT_IF":
        true = to_sql(make_condition(call.args[0], names).node)
        return f"COUNT(*){write_filter(f'({condition}) AND ({true})' if condition else true)}", BIGINT
    if call.name == "COUNT":
        return f"COUNT({distinct}{to_sql(make_total(call.args[0], names).node)}){where}", BIGINT
    name = AGGREGATE_OF_NAME[call.name].kind.upper()
    call.require(AGGREGATE_OF_NAME[call.name].arguments[1])
    typed = [make_total(argument, names) for argument in call.args]
    if AGGREGATE_OF_NAME[call.name].chosen:
        if call.name != "MODE":
            refuse_order(typed[-1:], call.args[-1])
        given = [to_sql(make_canonical(t, place)) for t, place in zip(typed, call.args, strict=True)]
        # DuckDB takes the first of equals, which other blocks' rows may determine: so take the smallest.
        first = f" ORDER BY {given[0]}" if AGGREGATE_OF_NAME[call.name].ties else ""
        return f"{name}({', '.join(given)}{first}){where}", typed[0].type
    for t, place in zip(typed, call.args, strict=True):
        if not t.type.numeric:
            raise bind_error(place, f"{call.name} needs a number, and this is {t.type.sql}.")
    if own and call.name == "SUM" and (exact := sum_exactly(typed[0], distinct, where)) is not None:
        return exact
    values = [_as_double(t) for t in typed]
    if call.name.startswith("QUANTILE"):
        if not typed[1].constant:
            raise bind_error(call.args[1], "the quantile must be a literal.")
        values[1] = to_sql(typed[1].node)
    total = write_order_independent(name, typed, values, distinct, condition)
    if own and name in ("SUM", "AVG") and typed[0].type.kind == "DOUBLE":
        total = to_sql(snap_to_decimal(exp.Var(this=total), typed[0].bounds))
    return total, DOUBLE


def _as_double(typed: Typed) -> str:
    """Return the SQL of a number as a double in a safe range; other numbers are missing."""
    double = f"CAST({to_sql(typed.node)} AS DOUBLE)"
    return f"CASE WHEN ABS({double}) < {_LARGEST} THEN {double} END"
