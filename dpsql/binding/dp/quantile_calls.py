"""Quantiles, medians, and the least and the greatest value: chosen among the points of a public grid.

Quantiles of one column share a histogram. Several of them are released one by one, each with its share of epsilon, or all
from one noisy tree. The choice depends on public numbers alone: the ranks, the points of the grid, epsilon and the caps.
AUTO takes the tree if its expected error in rank is smaller in each column of the answer, both for :data:`TYPICAL_ROWS` rows
in a group and for very many. The tree costs the requested epsilon, and in the currency of the session's accountant no more
than the quantiles one by one. The exponential mechanism costs little rho and mu, so under zcdp, gdp and rdp a tree pays only
for more quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

from sqlglot import exp

from dpsql.binding.dp.aggregates import Aggregate, AggregateCall, BindingsByName, QuantileRequest
from dpsql.binding.dp.ordered_steps import find_forced
from dpsql.binding.plan import StrategyVariant
from dpsql.binding.relations.binder import Binder
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.fixed_point import MOMENT_KINDS, place_on_line
from dpsql.binding.values.sql_types import DOUBLE, Bounds, Type, Typed
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME
from dpsql.errors import BindError
from dpsql.exact.exact_query import Exact
from dpsql.language.dialect import bind_error, span_of, to_sql
from dpsql.language.options import Call, Options, call_of, read_number, read_whole
from dpsql.mechanisms.aggregation import Part, Together
from dpsql.mechanisms.histograms import GRID_STEP, STEP_ROWS
from dpsql.mechanisms.moments import TYPICAL_ROWS
from dpsql.mechanisms.order_statistics import GeometricGrid, GradedGrid, WantedRank
from dpsql.mechanisms.quantile_tree import (
    MAX_KEPT_POINTS,
    KeptTree,
    QuantileTree,
    RankErrors,
    expect_plain,
    expect_tree,
    make_tree_of,
)
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.queries import As, Select, Subquery
from dpsql.mechanisms.strategies import CLEARLY, EVEN, TREE, StrategyChoice
from dpsql.privacy.amounts import SYMBOLS, Amount
from dpsql.privacy.events import Event
from dpsql.privacy.filters import ACCOUNTANTS

_FEWEST = 2
"""Quantiles of one column from which on a tree may be asked for."""
_MANY = 3
"""Quantiles of one column from which on AUTO compares the ways."""
_KEPT = "The tree is kept with the answer: other quantiles of these rows, asked alone at the same {}, are read from it for free."


def choose_quantiles(binder: Binder, name: str, options: Options, currency: str) -> Collection[str]:
    """Set the best or the requested strategy of a block's quantiles; return the ones that fit them.

    ``currency``: that of the block's requested loss.
    """
    place = next(i for i, item in enumerate(binder.blocks) if item.name == name)
    item, word = binder.blocks[place], find_forced(options)
    operator = item.operator
    if type(operator) is not Together or word not in (None, EVEN, TREE):
        return ()
    fewest = _FEWEST if word == TREE else _MANY
    quantiles = [p for p in operator.parts if type(p) is Quantiles]
    parts = [p for p in quantiles if len(p.ranks) >= fewest]
    if not quantiles or (word == EVEN and not parts):
        return ()
    whole = item.asked if len(operator.parts) == 1 and operator.aggregation is None else None
    forced: dict[Part, Part] = {part: make_tree_within(part, (currency,), whole) for part in quantiles}
    if not parts:
        if word is None and isinstance(_swap(operator, forced), KeptTree):
            binder.blocks[place] = replace(item, variants=_list_variants(operator, quantiles, {}, forced))
        return ()
    kind = ACCOUNTANTS[binder.catalog.accountant]
    own = (kind.currency or "rho",) if kind.has_rule and word != TREE else ()
    shown: dict[str, RankErrors] = {EVEN: {}, TREE: {}}
    chosen: dict[Part, Part] = {}
    for part in parts:
        tree = make_tree_within(part, (currency, *own), whole)
        even, errors = expect_plain(part, TYPICAL_ROWS), expect_tree(tree, TYPICAL_ROWS)
        better = _is_better(errors, even) and _is_better(expect_tree(tree, None), expect_plain(part, None))
        shown[EVEN] |= even
        shown[TREE] |= errors
        if word == TREE or (better and word is None):
            chosen[part] = tree
    best = TREE if chosen else EVEN
    if word is None and chosen:  # the other parts stay as they are
        shown[TREE] = expect_chosen(parts, chosen)
    choice = StrategyChoice(best, word is not None, tuple((w, tuple(e.items())) for w, e in shown.items()))
    many = max(len(part.ranks) for part in parts)
    said = (
        f"Up to {many} quantiles are asked of one column; the errors of strategies are in rows of rank, for {TYPICAL_ROWS:,} "
        "rows of a group, spread evenly."
    )
    open_parts = [part for part in parts if part not in chosen and word is None]
    dearer = [line for part in open_parts for other in own for line in _say_dearer(part, currency, other)]
    changed = _swap(operator, chosen)
    same = all(tree == forced[part] for part, tree in chosen.items())
    kept = (_KEPT.format(SYMBOLS[currency]),) if isinstance(changed, KeptTree) and same else ()
    variants = () if word else _list_variants(operator, parts, chosen, forced)
    said_of = (*item.sentences, said, *kept, *dict.fromkeys(dearer))
    item = replace(item, operator=changed, strategy=choice, sentences=said_of, variants=variants)
    binder.blocks[place] = item
    return (TREE,)


def expect_chosen(parts: Iterable[Quantiles], chosen: Mapping[Part, Part]) -> RankErrors:
    """Return the errors of quantiles by the strategy that was chosen for each part."""
    found: RankErrors = {}
    for part in parts:
        tree = chosen.get(part)
        of_tree = expect_tree(tree, TYPICAL_ROWS) if isinstance(tree, QuantileTree) else None
        found |= expect_plain(part, TYPICAL_ROWS) if of_tree is None else of_tree
    return found


def _say_dearer(part: Quantiles, asked: str, currency: str) -> Iterator[str]:
    """Yield the error of a tree with equal epsilon, if it is better, and its cost in the session's own currency."""
    tree = make_tree_within(part, (asked,))
    errors, plain = expect_tree(tree, TYPICAL_ROWS), expect_plain(part, TYPICAL_ROWS)
    if asked == "epsilon" and _is_better(errors, plain):
        spent = Amount(currency, Fraction(1))
        times = float(spent.cost(tree.event) / spent.cost(part.event))
        mine, its = max(errors.values()), max(plain.values())
        yield (
            f"OPTIONS (strategy = TREE) would cost the same ε and have a root mean squared error of ±{mine:.4g} of these rows, "
            f"not ±{its:.4g}, but take {times:.3g} times as much {SYMBOLS[currency]}{'²' * (currency == 'mu')}."
        )


def _is_better(tree: RankErrors, plain: RankErrors) -> bool:
    return all(error < plain[name] * CLEARLY for name, error in tree.items())


def _list_variants(
    operator: Together, parts: Sequence[Quantiles], chosen: Mapping[Part, Part], forced: Mapping[Part, Part]
) -> tuple[StrategyVariant, ...]:
    """Return the block under other strategies, whose stored answers also serve the statement."""
    best, found = expect_chosen(parts, chosen), []
    for word, others in ((TREE, forced), (EVEN, {})):
        errors = expect_chosen(parts, others)
        gain = math.exp(fmean(math.log(errors[name] / error) for name, error in best.items()))
        other = _swap(operator, others)
        if other != _swap(operator, chosen):
            found.append(StrategyVariant(word, other, gain))
    return tuple(found)


def _swap(operator: Together, others: Mapping[Part, Part]) -> Together:
    """Return a block with other parts; a single tree over few enough points is stored with its answers."""
    parts = tuple(others.get(part, part) for part in operator.parts)
    alone = parts[0] if len(parts) == 1 and operator.aggregation is None else None
    if isinstance(alone, QuantileTree) and alone.high - alone.low < MAX_KEPT_POINTS:
        return KeptTree(None, parts)
    return replace(operator, parts=parts)


def make_tree_within(part: Quantiles, currencies: Iterable[str], whole: Amount | None = None) -> QuantileTree:
    """Return the best tree for a part's quantiles that costs no more than they do one by one, in any of these currencies.

    ``whole``: their requested loss, if nothing else shares it: a tree of that loss serves other quantiles as well.
    """
    ruled = [word for word in dict.fromkeys(currencies) if word != "epsilon"]
    tree = make_tree_of(part, part.epsilon, 1 if ruled else 2)
    for word in ruled:
        if whole is not None and word == whole.currency:
            tree = replace(tree, epsilon=whole.find_epsilon(_price(tree)))
            continue
        most = Amount(word, Amount(word, Fraction(1)).cost(part.event))
        if not most.covers(tree.event):
            tree = replace(tree, epsilon=min(tree.epsilon, most.find_epsilon(_price(tree))))
    return tree


def _price(tree: QuantileTree) -> Callable[[Fraction], Event]:
    return lambda epsilon: replace(tree, epsilon=epsilon).event


_FRACTIONS = (-30, 64)
"""Rungs for numbers with fractions: bounds from about a billionth to 2^64."""
_FINE = 15
"""About 2^15 grid points between the bounds of a fractional column: the answer is no finer than that."""
_COARSE = 20
"""About 2^20 grid points for whole numbers and decimals that would have more than 2^24."""
_MAX_POINTS = 1 << 24
_ENDS = {Fraction(0): WantedRank.least(), Fraction(1): WantedRank.greatest()}
"""The quantiles of 0 and 1 are the ends: at such a rank, every point outside the data would be as good."""
QUANTILES = BindingsByName()


def write_histogram(exact: Exact, keys: Sequence[str], y: str, clamped: str, groups: int) -> str:
    """Return the query of the number of rows at each grid step: ``clamped`` is the step of ``v``."""
    held, step = Subquery(exact.held(y, groups), "held"), As(clamped, GRID_STEP)
    by, count = (*keys, GRID_STEP), As("COUNT(*)", STEP_ROWS)
    return Select((*keys, step, count), held, where="v IS NOT NULL", group=by).sql


def write_points(
    exact: Exact, y: str, narrow: str, grid: grids.Grid, groups: int, graded: GradedGrid | None = None
) -> tuple[str, str | None]:
    """Return the histogram of a column on its grid, and a query of ``narrow`` itself if there are no groups.

    Args:
        y: the even step of a row, or its number if the grid is ``graded``; NULL if it is missing.
        narrow: ``y`` in fewer bits.
    """
    keys = exact.names
    # LEAST keeps DuckDB's statistics of a column's range, which save a hash table; it would turn NULL into a bound, so
    # missing values are dropped first. A scaled float has no such statistics, and arithmetic is the quickest.
    clamped = grids.write_clamped("v", grid)
    if graded is not None:
        clamped = f"LEAST(GREATEST({graded.write_step('v')}, {graded.first}), {graded.last})"
    elif grid.steps == 1:
        clamped = f"LEAST(GREATEST(v, {grid.low}), {grid.high})"
    query = write_histogram(exact, keys, y, clamped, groups)
    if keys:
        return query, None
    return query, Select(As("v", "value"), Subquery(exact.held(narrow, groups), "held")).sql


def choose_points(kind: Type, low: Fraction, high: Fraction) -> grids.Grid:
    """Return the public grid of the possible answers."""
    grid = grids.choose_grid(kind, low, high, fine=_FINE)
    if grid.high - grid.low > _MAX_POINTS:  # whole numbers and decimals far apart: as fine as that allows
        grid = grids.choose_grid(DOUBLE, low, high, fine=_COARSE)
    return grid


def refine_points(kind: Type, grid: grids.Grid) -> GradedGrid | None:
    """Return the grid with more points near 0, if it is too coarse there for values much smaller than the bounds."""
    if grid.wide or not kind.numeric:
        return None
    finest = Fraction(0)
    if kind.kind in ("INTEGER", "DECIMAL"):
        finest = Fraction(1, 10 ** (kind.digits[1] if kind.kind == "DECIMAL" else 0))
    return GradedGrid.refine(Fraction(grid.steps), grid.low, grid.high, finest)


def _write_finite(typed: Typed) -> str:
    """Return a number's SQL as a DOUBLE, NULL if it is not finite."""
    number = f"CAST({to_sql(typed.node)} AS DOUBLE)"
    return f"CASE WHEN ABS({number}) < CAST('Infinity' AS DOUBLE) THEN {number} END"


def read_probability(call: Call) -> Fraction:
    """Return the second argument of a quantile; BindError unless it is a literal between 0 and 1."""
    p = read_number(call.args[1], "the quantile")
    if not 0 <= p <= 1:
        raise bind_error(call.args[1], "a quantile must be between 0 and 1.")
    return p


@QUANTILES.of_form("quantile")
def _quantile(asked: AggregateCall) -> Aggregate:
    call = asked.call
    call.require(AGGREGATE_OF_NAME[call.name].arguments[1])
    asked.refuse_distinct()
    asked.refuse_group_bounds()
    if "local_sensitivity" in call.named:
        what = "local_sensitivity is for PTR."
        raise bind_error(call.node, what, "leave local_sensitivity out, or ask under the mode PTR.")
    ranks = _read_ranks(call)
    asked.require_rows()
    typed = asked.block.expression(call.args[0])
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return _unbounded_quantile(asked, typed, ranks)
    between = call.name in ("MEDIAN", "QUANTILE_CONT")
    kinds = {"QUANTILE_CONT": MOMENT_KINDS, "APPROX_QUANTILES": ()}.get(call.name, (*MOMENT_KINDS, "BOOLEAN"))
    low, high, origin = asked.bounds(typed, kinds=kinds)
    place = place_on_line(typed, low, high)
    grid = choose_points(place.typed.type, place.low, place.high)
    graded = refine_points(typed.type, grid)
    steps = [to_sql(grids.write_steps(place.typed, grid, narrow)) for narrow in (False, True)]
    if graded is not None:  # a number that has no even step is missing
        steps = [f"CASE WHEN {steps[1]} IS NOT NULL THEN CAST({to_sql(typed.node)} AS DOUBLE) END"] * 2
    y, narrow = (asked.block.filtered(call, sql) for sql in steps)
    whole = place.typed.type.kind == "INTEGER" and grid.steps == 1 and not between
    back = place.between if between else place.own
    kind = "BIGINT" if whole else "DOUBLE"
    if back is None:
        kind = _quantile_type(typed, low, high, between)
    many = f"{len(ranks)} quantiles " if len(ranks) > 1 else ""
    points = grid.high - grid.low + 1 if graded is None else graded.last - graded.first + 1
    said = f"{many}among {points} grid points, bounds {origin}"
    request = QuantileRequest(y, narrow, grid, ranks, whole, graded)
    plain = back is None or not (typed.type.kind == "BOOLEAN" or asked.options.get("report_format"))
    bars = len(ranks) == 1 and plain and not call.node.meta.get(IN_LIST)
    return asked.make(kind + "[]" * (len(ranks) > 1), said, quantile=request, shown=back, intervals=bars)


def _unbounded_quantile(asked: AggregateCall, typed: Typed, ranks: tuple[WantedRank, ...]) -> Aggregate:
    """Bind a quantile of numbers without bounds: the exponential mechanism over a geometric grid of both signs.

    Durfee 2023 asks the sparse vector technique about each point of such a grid. The exponential mechanism's error is fewer
    rows at equal epsilon: the tests compare them.
    """
    asked.require_number(typed)
    if asked.options.get("report_format"):
        raise bind_error(asked.call.node, "AUTO bounds have no JSON report.")
    low, high = find_ladder(typed.type)
    grid = GeometricGrid(low, max(high, low + 1))
    y = asked.block.filtered(asked.call, _write_finite(typed))
    whole = typed.type.kind == "INTEGER" and high <= 63 and asked.call.name not in ("MEDIAN", "QUANTILE_CONT")

    bars = len(ranks) == 1 and not asked.call.node.meta.get(IN_LIST)

    def part(epsilon: Fraction) -> Quantiles:
        names, exact = (asked.name,) * len(ranks), asked.exact
        query = write_histogram(exact, exact.names, y, grid.write_step("v"), asked.groups)
        return Quantiles(
            query, exact.names, names, ranks, -grid.last, grid.last, epsilon, exact.rows_per_unit, asked.groups,
            whole=whole, geometric=grid, in_all=exact.budgeted,
            confidence=asked.block.options.confidence if bars else None,
        )  # fmt: skip

    kind = ("BIGINT" if whole else "DOUBLE") + "[]" * (len(ranks) > 1)
    said = f"{asked.source()} among the {2 * grid.last + 1} points of a geometric grid"
    return asked.make(kind, said, part=part, intervals=bars)


IN_LIST = "dpsql_in_list"
"""The mark of calls whose values are in a list, which has no intervals."""
_MAX_QUANTILES = 1000
"""The most equal parts of one call."""


def _read_ranks(call: Call) -> tuple[WantedRank, ...]:
    """Return the ranks of a call: for ``APPROX_QUANTILES(x, n)``, those that divide the rows into n equal parts."""
    if call.name != "APPROX_QUANTILES":
        rank = AGGREGATE_OF_NAME[call.name].rank
        p = read_probability(call) if rank is None else rank
        return (_ENDS.get(p, WantedRank(p)),)
    parts = read_whole(call.args[1], "the number of quantiles")
    if parts > _MAX_QUANTILES:
        what = f"APPROX_QUANTILES divides rows into at most {_MAX_QUANTILES} parts."
        hint = "each of its values gets an equal part of epsilon: ask for fewer."
        raise bind_error(call.args[1], what, hint)
    between = (WantedRank(Fraction(i, parts)) for i in range(1, parts))
    return (WantedRank.least(), *between, WantedRank.greatest())


def split_quantiles(node: exp.Expr, call: Call) -> list[exp.Expr]:
    """Return ``QUANTILE_CONT(x, [0.25, 0.5])`` as one call for each of the list; nothing for other calls.

    Raises:
        BindError: the call has its own epsilon, which would be for the whole list.
    """
    if not call.name.startswith("QUANTILE") or len(call.args) != 2 or not isinstance(call.args[1], exp.Array):
        return []
    if any(isinstance(p, exp.Array) for p in call.args[1].expressions):
        raise bind_error(call.node, "the quantiles must be a list of numbers.")
    if "epsilon" in call.named:
        span = span_of(call.named["epsilon"][1])
        hint = "write a call for each, with its own share."
        raise BindError("epsilon => is for one quantile.", span=span, hint=hint)
    out = []
    for p in call.args[1].expressions:
        one = node.copy()
        inner = call_of(one)
        assert inner is not None
        inner.args[1].replace(p.copy())
        inner.node.meta[IN_LIST] = True
        out.append(one)
    return out


def _quantile_type(typed: Typed, low: Fraction, high: Fraction, between: bool) -> str:
    """Return DuckDB's type of a quantile: its argument's; DOUBLE between integers, or if that type lacks the bounds."""
    ends, most = Bounds(low, high), max(abs(low), abs(high))
    for kind in (typed.shown, typed.type):
        if kind.kind == "INTEGER" and (between or (kind.reach is not None and kind.reach.holds(ends))):
            return "DOUBLE" if between else kind.sql
        if kind.kind == "DECIMAL" and most < Fraction(10) ** kind.digits[0]:
            return kind.sql
        if kind.sql == "FLOAT" and most < 10**38:
            return "FLOAT"
    return "DOUBLE"


_Points = tuple[str, str, grids.Grid, bool, GradedGrid | None]


def quantile_parts(
    exact: Exact,
    keys: tuple[str, ...],
    asked: Sequence[tuple[Aggregate, Fraction]],
    groups: int,
    confidence: float,
) -> tuple[Quantiles, ...]:
    """Return one part for each column asked about: its quantiles share the histogram and the sum of their shares."""
    by_column: dict[_Points, list[tuple[str, WantedRank, Fraction]]] = {}
    for item, share in asked:
        if (q := item.quantile) is not None:
            wanted = [(item.name, rank, share / len(q.ranks)) for rank in q.ranks]
            by_column.setdefault((q.y, q.narrow, q.grid, q.whole, q.graded), []).extend(wanted)
    parts, groups = [], 1 if exact.budgeted else groups
    for (y, narrow, grid, whole, graded), items in by_column.items():
        query, values = write_points(exact, y, narrow, grid, groups, graded)
        low, high, each = grid.low, grid.high, Fraction(grid.steps)
        if graded is not None:
            low, high, each = graded.first, graded.last, Fraction(1)
        names, ranks, shares = zip(*items, strict=True)
        with_bars = {item.name for item, _ in asked if item.intervals}
        bars = tuple(name in with_bars for name in names)
        parts.append(
            Quantiles(
                query, keys, names, ranks, low, high, sum(shares, Fraction(0)), exact.rows_per_unit, groups,
                each, whole, values, graded, exact.budgeted, confidence if any(bars) else None, bars if any(bars) else (),
            )
        )  # fmt: skip
    return tuple(parts)


def find_ladder(kind: Type) -> tuple[int, int]:
    """Return the lowest and highest power of two that a type can need."""
    if kind.kind == "INTEGER" and kind.reach is not None and kind.reach.high is not None:
        return 0, int(kind.reach.high).bit_length()
    if kind.kind == "DECIMAL":
        before, after = kind.digits
        return -(-after * -10 // 3), before * 10 // 3 + 1
    return _FRACTIONS
