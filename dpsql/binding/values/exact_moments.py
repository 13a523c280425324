"""Variances, correlations and regressions of many groups, from exact integers: the same whatever the order of the rows.

Floating-point addition depends on the order of rows, which rows of other groups may decide, so such an aggregate would need
its rows sorted: some forty times the work. Here each value is put on a fine public grid, and counts, sums and sums of
products are added up as integers of 128 bits, which is exact in any order. What is subtracted to get from these to a sum of
squares about the mean is subtracted exactly, too, so nothing is lost where the spread is small beside the mean.

The grid needs a size. It is public where a type has few digits or bounds are declared; for other numbers each block has a
grid of its own (:mod:`dpsql.binding.values.exact_moments`), where their rows may be read twice.

Moments of numbers without a public size: each block has a grid of its own, between the least and the greatest of its rows.

The rows are read twice: for these ends, and then for sums of integers as in :mod:`dpsql.binding.values.exact_moments`. To
sort the rows of a block takes three times as long.

A block's grid is made of its own rows alone, so a result is a function of these, in any order, as it must be. The grid is
2^42 steps wide, so what a value is off by is measured against the block's spread, however far from zero that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.binding.values.sql_types import Bounds, Typed
from dpsql.language.dialect import to_sql

GRID_BITS = 38
"""Half of the distance between the bounds is more than 2^38 steps, and at most twice as many."""
_MOST_STEPS = 1 << 43
"""Values farther than this from the centre, 16 times as far as the bounds, are missing: squares of 2^40 others fit 128 bits."""
_FARTHEST = 2**64
"""Bounds beyond it were not declared: of EXP(x) most values would lie below the first step."""
_NEAREST = Fraction(1, 2**200)
_FEWEST_PART = Fraction(1, 2**20)
"""Bounds that lie closer together than this part of their size get no finer grid: a double has no more digits there."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
_LONGEST = 2_000
"""Characters of the values: they stand some thirty times in a text with other aggregates, and longer ones are sorted."""
_NARROW_DIGITS, _MOST_DIGITS = 9, 12
"""Digits of decimals whose products fit 64 bits, and of those that lie within ``_MOST_STEPS`` whatever they are."""


@dataclass(frozen=True)
class ExactMoments:
    """An aggregate in layers of SQL: rows, integers that are added up over them, doubles made of these, and the result.

    Args:
        values: SQL of an integer of each row, by ``y`` and ``x``, NULL where it is missing.
        there: SQL of the condition under which a row counts, over ``{y}`` and ``{x}``.
        sums: names, and SQL of what is added up, over ``{y}`` and ``{x}``.
        moments: names, and SQL over the sums.
        result: SQL over the moments.
        limits: what EXPLAIN says of numbers that do not count.
    """

    values: Mapping[str, str]
    there: str
    sums: tuple[tuple[str, str], ...]
    moments: tuple[tuple[str, str], ...]
    result: str
    limits: tuple[str, ...]
    reads_twice: ClassVar[bool] = False
    """True where the rows are read twice: then these sums are made apart from others."""

    def add_up(self) -> list[str]:
        """Write the sums over rows of which not all count."""
        there = self.there.format(**self.values)
        held = {axis: f"CASE WHEN {there} THEN {value} END" for axis, value in self.values.items()}
        return [f"{sql.format(**held)} AS {name}" for name, sql in self.sums]

    def add_up_alone(self, owner: str, name: str, source: str) -> str:
        """Write the sums of each owner of rows (called ``name``), where no other aggregate asks for rows that do not count.

        What a condition leaves is known to lie between bounds, so the engine need not look for overflows: two thirds of the
        time that the sums take.
        """
        items = [f"{owner} AS {name}", *(f"{value} AS {axis}" for axis, value in self.values.items())]
        rows = {axis: f"rows.{axis}" for axis in self.values}
        sums = [f"{sql.format(**rows)} AS {part}" for part, sql in self.sums]
        of = f"(SELECT {', '.join(items)} FROM {source}) AS rows WHERE {self.there.format(**rows)}"
        return f"SELECT rows.{name} AS {name}, {', '.join(sums)} FROM {of} GROUP BY rows.{name}"


def write_layers(sums: str, kept: Sequence[str], made: Mapping[str, ExactMoments]) -> str:
    """Write aggregates above the query of their sums.

    Args:
        sums: SQL of the query.
        kept: columns of it that are shown as they are.
        made: the aggregates, by their names.
    """
    moments = [f"{sql} AS {part}" for given in made.values() for part, sql in given.moments]
    results = [f"{given.result} AS {name}" for name, given in made.items()]
    middle = f"SELECT {', '.join([*kept, *moments])} FROM ({sums}) AS sums"
    return f"SELECT {', '.join([*kept, *results])} FROM ({middle}) AS moments"


@dataclass(frozen=True)
class _Steps:
    """A number as an integer of steps from a centre.

    Args:
        value: SQL of a BIGINT.
        there: SQL of the condition under which it counts, over ``{}``.
        steps: to a unit.
        centre: the number at step 0.
        narrow: products of two fit 64 bits.
    """

    value: str
    there: str = "{} IS NOT NULL"
    steps: float = 1.0
    centre: float = 0.0
    narrow: bool = False

    @property
    def limit(self) -> str:
        """The sentence of EXPLAIN about numbers that do not count, where there are any."""
        if self.there == "{} IS NOT NULL":
            return ""
        return (
            f"numbers farther than {_MOST_STEPS / self.steps:,.6g} from {self.centre:,.6g} count as missing."
        )


def write_exact_moments(
    name: str, typed: Sequence[Typed], condition: str | None, prefix: str
) -> ExactMoments | None:
    """Write an aggregate of one or two numbers; None where it is no moment, or a number has no public grid.

    Args:
        name: of the aggregate.
        typed: its arguments.
        condition: SQL of its FILTER.
        prefix: begins the names of the layers' columns.
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
    """Leave out the rows that a FILTER does not keep; None where the values are too long to be written over and over."""
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
    """Write what an aggregate adds up, and the doubles that are made of the sums.

    Args:
        name: of the aggregate.
        prefix: begins the names of the columns.
        axes: the numbers, as steps of a grid; with whether products of two fit 64 bits.
        mean: gives the SQL that follows a mean in steps to make a number of it.
        scale: gives the SQL that follows a sum of products of steps.
    """
    result = _RESULTS[name]
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
    return (
        tuple((names[part], sql) for part, sql in sums.items()),
        tuple((f"{prefix}_m{part}", sql) for part, sql in moments.items()),
    )


def is_moment(name: str) -> bool:
    """Tell whether an aggregate is one of those that are made of sums."""
    return name in _RESULTS


def write_moment(name: str, prefix: str) -> str:
    """Write an aggregate over the doubles of :func:`write_parts`."""
    parts = ("n", "y", "x", *(a + b for a, b in _PRODUCTS))
    return _RESULTS[name].format(**{part: f"{prefix}_m{part}" for part in parts})


def _write_about_means(n: str, a: str, b: str, ab: str) -> str:
    """Write the sum of products of distances from the means, from exact sums; rounded to a double at the end.

    With ``a = n q + r`` and ``b = n p + s`` it is ``ab - q b - p r - r s / n``. All but the last quotient's fraction are
    integers, and no product of them has more bits than the sum of products may have.
    """
    q, r, p, s = f"({a} // {n})", f"({a} % {n})", f"({b} // {n})", f"({b} % {n})"
    whole = f"{ab} - {q} * {b} - {p} * {r} - ({r} * {s}) // {n}"
    return f"(CAST({whole} AS DOUBLE) - CAST(({r} * {s}) % {n} AS DOUBLE) / {n})"


def _write_steps(typed: Typed) -> _Steps | None:
    """Return a number on its grid; None where it has none."""
    kind, own = typed.type, to_sql(typed.node)
    if kind.sql in _SMALL:
        return _Steps(f"CAST({own} AS BIGINT)", narrow=True)
    if kind.sql == "UINTEGER":
        return _Steps(f"CAST({own} AS BIGINT)")
    if kind.kind == "DECIMAL" and sum(kind.digits) <= _MOST_DIGITS:
        # over DOUBLE, which is exact here: two roundings are off by far less than half a step
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
    # NaN, the infinities and what is too far for 64 bits are missing
    return _hold(f"TRY_CAST((CAST({own} AS DOUBLE) - ({centre!r})) * {steps!r} AS BIGINT)", steps, centre)


def _hold(value: str, steps: float = 1.0, centre: float = 0.0) -> _Steps:
    return _Steps(value, f"{{}} BETWEEN {-_MOST_STEPS} AND {_MOST_STEPS}", steps, centre)


def _find_ends(bounds: Bounds | None) -> tuple[Fraction, Fraction] | None:
    """Return the bounds of a number, where both are known and of a reasonable size."""
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    fits = max(abs(bounds.low), abs(bounds.high)) <= _FARTHEST
    return (bounds.low, bounds.high) if fits else None


_PRODUCTS = (("y", "y"), ("x", "x"), ("x", "y"))
_NAN = "CAST('NaN' AS DOUBLE)"
_SAMPLE = "CASE WHEN {{n}} > 1 THEN {0} / ({{n}} - 1) END"
_SIZE = "SQRT({xx}) * SQRT({yy})"
_RESULTS = {
    "VAR_POP": "{yy} / {n}",
    "VAR_SAMP": _SAMPLE.format("{yy}"),
    "STDDEV_POP": "SQRT({yy} / {n})",
    "STDDEV_SAMP": f"SQRT({_SAMPLE.format('{yy}')})",
    "COVAR_POP": "{xy} / {n}",
    "COVAR_SAMP": _SAMPLE.format("{xy}"),
    "CORR": f"CASE WHEN {{xx}} = 0 OR {{yy}} = 0 THEN {_NAN} WHEN ABS({{xy}}) > {_SIZE} THEN CAST(SIGN({{xy}}) AS DOUBLE) "
    f"ELSE {{xy}} / ({_SIZE}) END",
    "REGR_SLOPE": f"CASE WHEN {{xx}} = 0 THEN {_NAN} ELSE {{xy}} / {{xx}} END",
    "REGR_INTERCEPT": "CASE WHEN {xx} <> 0 THEN {y} - {xy} / {xx} * {x} END",
    "REGR_R2": "CASE WHEN {xx} = 0 THEN NULL WHEN {yy} = 0 THEN 1.0 ELSE {xy} / {xx} * ({xy} / {yy}) END",
    "REGR_AVGX": "{x}",
    "REGR_AVGY": "{y}",
}
"""Aggregates over their count, means and sums about these, as DuckDB has them where there is no spread."""


_STEPS = 2.0**42
"""Steps between the ends: squares of half of them, 2^40 times, fit 128 bits."""
_NEAREST_POINT = "1e-170"
"""Ends that are closer are one number: squares of such distances are no doubles any more."""


@dataclass(frozen=True)
class OwnGridMoments(ExactMoments):
    """Moments over grids of the blocks' own. ``values`` are doubles, NULL where they are missing, none of them infinite."""

    reads_twice: ClassVar[bool] = True

    def add_up(self) -> list[str]:
        raise NotImplementedError("these sums are made apart from others")

    def add_up_alone(self, owner: str, name: str, source: str) -> str:
        """Write the sums of each owner of rows (called ``name``)."""
        items = [f"{owner} AS {name}", *(f"{value} AS {axis}" for axis, value in self.values.items())]
        rows = f"(SELECT {', '.join(items)} FROM {source})"
        if len(self.values) > 1:  # no WHERE: the engine may think then that these are fewer than blocks
            pairs = [f"CASE WHEN each.{b} IS NOT NULL THEN each.{a} END AS {a}" for a, b in ("yx", "xy")]
            rows = f"(SELECT each.{name} AS {name}, {', '.join(pairs)} FROM {rows} AS each)"
        ends, steps = [f"given.{name} AS {name}"], [f"rows.{name} AS {name}"]
        for axis in self.values:
            low, high = f"MIN(given.{axis})", f"MAX(given.{axis})"
            fine = f"WHEN {high} - {low} > {_NEAREST_POINT} THEN {_STEPS!r} / ({high} - {low})"
            ends.append(f"({low} + {high}) / 2 AS c{axis}")
            ends.append(f"CASE {fine} ELSE CAST(1 AS DOUBLE) END AS s{axis}")
            steps += [f"ends.c{axis} AS c{axis}", f"ends.s{axis} AS s{axis}"]
            steps.append(f"TRY_CAST((rows.{axis} - ends.c{axis}) * ends.s{axis} AS BIGINT) AS {axis}")
        # always true: of what passes a condition the engine thinks that it is little, as this is
        few = "HAVING COALESCE(MAX(given.y) >= MIN(given.y), TRUE)"
        grid = f"(SELECT {', '.join(ends)} FROM {rows} AS given GROUP BY given.{name} {few}) AS ends"
        on = f"{rows} AS rows JOIN {grid} ON ends.{name} = rows.{name}"
        of = {axis: f"stepped.{axis}" for axis in (*self.values, *(k + a for k in "cs" for a in self.values))}
        sums = [f"{sql.format(**of)} AS {part}" for part, sql in self.sums]
        stepped = f"(SELECT {', '.join(steps)} FROM {on}) AS stepped"
        return f"SELECT stepped.{name} AS {name}, {', '.join(sums)} FROM {stepped} GROUP BY stepped.{name}"


def write_own_grid_moments(
    name: str, values: Sequence[str], condition: str | None, prefix: str
) -> OwnGridMoments | None:
    """Write an aggregate of one or two numbers; None where it is no moment, or they are too long.

    Args:
        name: of the aggregate.
        values: SQL of its arguments as doubles of a reasonable size, NULL where they are missing.
        condition: SQL of its FILTER.
        prefix: begins the names of the layers' columns.
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
    # one number for all rows of a block: the engine has no cheaper way to keep it than its least
    kept = [f"{kind}{axis}" for axis in axes for kind in "sc"]
    sums += tuple((f"{prefix}_{one}", f"MIN({{{one}}})") for one in kept if f"{prefix}_{one}" in text)
    return OwnGridMoments(given, "", sums, moments, write_moment(name, prefix), ())
