"""MEDIAN, QUANTILE_*, PERCENTILE_*, MIN and MAX in noisy blocks: quantiles of one column share a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.mechanisms.quantile import Quantiles, Rank
from dpsql.sql.dp.aggregates import Aggregate, bounds_of, rows_bounded
from dpsql.sql.exact.exact_query import Exact
from dpsql.sql.expressions import fixed_point as grids
from dpsql.sql.expressions.bounds import Bounds
from dpsql.sql.expressions.fixed_point import MOMENT_KINDS, place_on_line
from dpsql.sql.expressions.types import DOUBLE, Typed
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import Call, call_of, read_number

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

FINE = 15
"""About 2^15 grid points between the bounds of a fractional column: the answer is no finer than that."""
_MOST = 1 << 24
COARSE = 20
"""About 2^20 grid points for whole numbers and decimals that would have more than 2^24."""


@dataclass(frozen=True)
class Wanted:
    """One quantile: the grid integer of a row (and the same in fewer bits), its grid, and the rank that is asked for."""

    y: str
    narrow: str
    grid: grids.Grid
    rank: Rank
    whole: bool


def bind_quantile(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    """Binds one call.

    Raises:
        BindError: wrong arguments. PrivacyError: no bounds.
    """
    need = 2 if call.name.startswith("QUANTILE") else 1
    if len(call.args) != need or call.distinct:
        raise BindError(
            f"{call.name} takes {need} argument{'s' if need > 1 else ''}.", span=span_of(call.node)
        )
    if options.get("contribution_bounds_per_group") is not None:
        raise BindError(f"{call.name} takes bounds per row only.", span=span_of(call.node))
    if "local_sensitivity" in call.named:
        raise BindError(
            "local_sensitivity is for PTR.", span=span_of(call.node), hint="write SELECT WITH PTR ..."
        )
    rank = {"MEDIAN": Rank(Fraction(1, 2)), "MIN": Rank.least(), "MAX": Rank.greatest()}.get(call.name)
    if rank is None:
        p = read_number(call.args[1], "the quantile")
        if not 0 <= p <= 1:
            raise BindError("a quantile lies between 0 and 1.", span=span_of(call.args[1]))
        # The quantiles of 0 and 1 are the ends: at such a rank, every point beyond the data would be as good.
        rank = {Fraction(0): Rank.least(), Fraction(1): Rank.greatest()}.get(p, Rank(p))
    rows_bounded(block, call)
    typed = block.expression(call.args[0])
    between = call.name in ("MEDIAN", "QUANTILE_CONT")
    kinds = MOMENT_KINDS if call.name == "QUANTILE_CONT" else (*MOMENT_KINDS, "BOOLEAN")
    low, high, origin = bounds_of(block, call, options, typed, kinds=kinds)
    place = place_on_line(typed, low, high)
    grid = grids.choose_grid(place.typed.type, place.low, place.high, fine=FINE)
    if grid.high - grid.low > _MOST:  # whole numbers and decimals far apart: as fine as that allows
        grid = grids.choose_grid(DOUBLE, place.low, place.high, fine=COARSE)
    y, narrow = (
        block.filtered(call, to_sql(grids.write_steps(place.typed, grid, narrow))) for narrow in (False, True)
    )
    whole = place.typed.type.kind == "INTEGER" and grid.steps == 1 and not between
    back = place.between if between else place.own
    kind = ("BIGINT" if whole else "DOUBLE") if back is not None else _type(typed, low, high, between)
    said = f"by the exponential mechanism over {grid.high - grid.low + 1} grid points, bounds {origin}"
    return Aggregate(
        name,
        call,
        options.get("epsilon"),
        None,
        kind,
        block.label(call),
        said,
        None,
        Wanted(y, narrow, grid, rank, whole),
        shown=back,
    )


def each_quantile(node: exp.Expr, call: Call) -> list[exp.Expr]:
    """``QUANTILE_CONT(x, [0.25, 0.5])`` as one call for each of the list; nothing where no list is asked for.

    Raises:
        BindError: the call names a share of epsilon, which would be meant for the whole list.
    """
    if not call.name.startswith("QUANTILE") or len(call.args) != 2 or not isinstance(call.args[1], exp.Array):
        return []
    if any(isinstance(p, exp.Array) for p in call.args[1].expressions):
        raise BindError("quantiles are a list of numbers.", span=span_of(call.node))
    if "epsilon" in call.named:
        raise BindError(
            "epsilon => is for one quantile.",
            span=span_of(call.named["epsilon"][1]),
            hint="write a call for each, with its own share.",
        )
    out = []
    for p in call.args[1].expressions:
        one = node.copy()
        inner = call_of(one)
        assert inner is not None
        inner.args[1].replace(p.copy())
        out.append(one)
    return out


def _type(typed: Typed, low: Fraction, high: Fraction, between: bool) -> str:
    """The type that DuckDB gives a quantile: its argument's own, but DOUBLE between integers. (DOUBLE also where that
    type does not hold the bounds.)"""
    held = Bounds(low, high)
    for kind in (typed.shown, typed.type):
        if kind.kind == "INTEGER" and (between or (kind.reach is not None and kind.reach.holds(held))):
            return "DOUBLE" if between else kind.sql
        if kind.kind == "DECIMAL" and max(abs(low), abs(high)) < Fraction(10) ** kind.digits[0]:
            return kind.sql
        if kind.sql == "FLOAT" and max(abs(low), abs(high)) < 10**38:
            return "FLOAT"
    return "DOUBLE"


def quantile_parts(
    exact: Exact, keys: tuple[str, ...], asked: Sequence[tuple[Aggregate, Fraction]], groups: int
) -> tuple[Quantiles, ...]:
    """One part for each column asked about: its quantiles share the histogram and the sum of their shares."""
    by_column: dict[tuple[str, str, grids.Grid, bool], list[tuple[Aggregate, Fraction]]] = {}
    for item, share in asked:
        assert item.quantile is not None
        q = item.quantile
        by_column.setdefault((q.y, q.narrow, q.grid, q.whole), []).append((item, share))
    parts = []
    for (y, narrow, grid, whole), items in by_column.items():
        by = ", ".join([*keys, "value"])
        # LEAST keeps what DuckDB knows of a column's range, so that it needs no hash table; it would make a bound of
        # NULL, so missing values go first. For a scaled float nothing is known, and arithmetic is the quickest.
        held = (
            f"LEAST(GREATEST(v, {grid.low}), {grid.high})"
            if whole or grid.steps == 1
            else grids.write_clamped("v", grid)
        )
        query = (
            f"SELECT {', '.join([*keys, held])} AS value, COUNT(*) AS count FROM ({exact.held(y, groups)}) AS held "
            f"WHERE v IS NOT NULL GROUP BY {by}"
        )
        ranks = tuple(item.quantile.rank for item, _ in items if item.quantile is not None)
        parts.append(
            Quantiles(
                query, keys, tuple(item.name for item, _ in items), ranks, grid.low, grid.high,
                sum((share for _, share in items), Fraction(0)), exact.rows_per_unit, groups, Fraction(grid.steps), whole,
                None if keys else f"SELECT v AS value FROM ({exact.held(narrow, groups)}) AS held",
            )
        )  # fmt: skip
    return tuple(parts)


NAMES = ("MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC", "MIN", "MAX")
