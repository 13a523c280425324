"""Variances, correlations and regressions of many groups from exact integers, independent of the order of rows.

Addition of floats depends on the order of rows, which other groups' rows may determine. Sorting the rows would take some
forty times the work. Here each value is put on a fine public grid. Counts, sums and sums of products are integers of 128
bits, which are exact in any order. The sum of squares about the mean is an exact difference of these, so a spread that
is small relative to the mean keeps its digits.

The grid's size is public if the type has few digits or bounds are declared. Otherwise each block has its own grid between
its least and greatest value, and the rows are read twice: for these ends, and for the sums. Sorting a block's rows would
take three times as long. Such a grid depends on the block's rows alone, and so does the result. It has 2^42 steps, so
errors are relative to the block's spread, however far from zero that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

from dpsql.binding.values.sql_types import NARROW_INTEGERS, Bounds, Typed
from dpsql.catalogue.aggregate_names import FORMULAS
from dpsql.language.dialect import to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Join, Select, Subquery

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
    if not is_moment(name):
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


def is_moment(name: str) -> bool:
    """Return whether an aggregate is made of sums."""
    return name in FORMULAS


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
    ends = _find_ends(typed.bounds)
    if ends is None:
        return None
    low, high = ends
    if kind.kind == "INTEGER" and max(abs(low), abs(high)) <= 1 << GRID_BITS:
        return _hold(f"TRY_CAST({own} AS BIGINT)")
    size = max((high - low) / 2, max(abs(low), abs(high)) * _FEWEST_PART, _NEAREST)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size > Fraction(2) ** exponent  # now size <= 2^exponent
    steps = 2.0 ** (GRID_BITS + 1 - exponent)
    centre = float((low + high) / 2)
    # NaN, the infinities and values too far for 64 bits are missing
    return _hold(f"TRY_CAST((CAST({own} AS DOUBLE) - ({centre!r})) * {steps!r} AS BIGINT)", steps, centre)


def _hold(value: str, steps: float = 1.0, centre: float = 0.0) -> _Steps:
    return _Steps(value, f"{{}} BETWEEN {-_MOST_STEPS} AND {_MOST_STEPS}", steps, centre)


def _find_ends(bounds: Bounds | None) -> tuple[Fraction, Fraction] | None:
    """Return the bounds of a number, if both are known and of a reasonable size."""
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    fits = max(abs(bounds.low), abs(bounds.high)) <= _FARTHEST
    return (bounds.low, bounds.high) if fits else None


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
        ends, steps = [As(f"given.{name}", name)], [As(f"rows.{name}", name)]
        for axis in self.values:
            low, high = f"MIN(given.{axis})", f"MAX(given.{axis})"
            fine = f"WHEN {high} - {low} > {_NEAREST_POINT} THEN {_STEPS!r} / ({high} - {low})"
            ends.append(As(f"({low} + {high}) / 2", f"c{axis}"))
            ends.append(As(f"CASE {fine} ELSE CAST(1 AS DOUBLE) END", f"s{axis}"))
            steps += [As(f"ends.{one}", one) for one in (f"c{axis}", f"s{axis}")]
            steps.append(As(f"TRY_CAST((rows.{axis} - ends.c{axis}) * ends.s{axis} AS BIGINT)", axis))
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
    if not is_moment(name):
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
