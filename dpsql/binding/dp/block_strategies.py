"""The strategy of a block: the noise with the least error in what a statement shows.

All choices depend on public numbers alone. All strategies cost the same epsilon as the plain one, and no more than it in the
session's own currency unless OPTIONS name them.

*Groups in a public order*: noise may follow the order of their steps. What counts is the number of steps, what the statement
shows (window sums above the block, and single cells), and how each strategy's noise adds up over them. Its shape depends on
the number of steps alone, so a stored answer under any strategy serves every statement over the block.

*Several quantiles of one column* are released one by one, each with its share of epsilon, or all from one noisy tree. AUTO
takes the tree if its expected error in rank is smaller in each column of the answer, both for :data:`TYPICAL_ROWS` rows in a
group and for very many. The exponential mechanism costs little rho and mu, so under zcdp, gdp and rdp a tree pays only for
more quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from statistics import fmean

import numpy as np
from sqlglot import exp

from dpsql.binding.plan import PeriodParts, PrivateBlock, StrategyVariant
from dpsql.binding.relations.binder import Binder
from dpsql.binding.traced_columns import OrderedRelease, Uses, WindowFinder, find_uses
from dpsql.language.options import AUTO, Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, Part, Together
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.empty_groups import RangedGroups
from dpsql.mechanisms.moments import TYPICAL_ROWS, Count, Sum
from dpsql.mechanisms.ordered_noise import (
    MAX_SQUARE_ROOT_STEPS,
    GrowingTree,
    OrderedNoise,
    make_square_root,
    make_tree,
)
from dpsql.mechanisms.per_group import LaplaceNoise, Noise, Statistic, change_statistics
from dpsql.mechanisms.quantile_tree import (
    KeptTree,
    RankErrors,
    exchange_parts,
    expect_chosen,
    expect_plain,
    expect_tree,
    make_tree_within,
)
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.strategies import (
    CLEARLY,
    EVEN,
    MARGINALS,
    SQUARE_ROOT,
    TREE,
    StrategyChoice,
    choose_strategy,
)
from dpsql.mechanisms.window_widths import WindowSum
from dpsql.privacy.amounts import SYMBOLS

_FITS = {
    MARGINALS: "several grouping sets of the same rows, with public groups and with counts or sums that add up",
    TREE: "running totals of counts or sums over one ordered public key, and for several quantiles of one column",
    SQUARE_ROOT: "running totals of counts or sums over one ordered public key",
}
"""The questions that a strategy other than EVEN is for."""


def find_forced(options: Options) -> str | None:
    """Return the strategy that the statement names; None if it leaves the choice open."""
    word = options.get("strategy", AUTO)
    return None if word == AUTO else str(word)


def refuse_unfit(options: Options, fits: Collection[str] = (), why: str = "") -> None:
    """Raise BindError, with a particular reason ``why`` if any, for a named strategy other than EVEN and ``fits``."""
    word = find_forced(options)
    if word is None or word == EVEN or word in fits:
        return
    what = f"{word} is for {_FITS[word]}{f', and {why}' if why else ''}."
    raise options.refuse("strategy", what, "leave strategy out: AUTO takes the best that fits.")


def keep_even(options: Options) -> Options:
    """Return the options with the plain strategy."""
    return replace(options, values={**options.values, "strategy": EVEN})


def note_strategy(binder: Binder, name: str, choice: StrategyChoice) -> None:
    """Record the strategy of a block of the plan, and of those chosen with it."""
    place = _find_place(binder, name)
    binder.blocks[place] = replace(binder.blocks[place], strategy=choice)


def _find_place(binder: Binder, name: str) -> int:
    return next(place for place, block in enumerate(binder.blocks) if block.name == name)


MAKERS: Mapping[str, Callable[[Noise, int], OrderedNoise]] = {TREE: make_tree, SQUARE_ROOT: make_square_root}
"""The strategies for ordered steps, by the word that forces them."""
MAX_ORDERED_STEPS = 1 << 16
"""The most steps with such strategies."""
_ORDERED_KINDS = frozenset({"INTEGER", "DECIMAL", "DOUBLE", "DATE", "TIMESTAMP", "TEXT"})
_MIXED = 2
"""The most statistics for which stored answers of all mixtures of strategies are looked up."""


@dataclass(frozen=True)
class StepBlock:
    """A block of public groups, as far as a strategy depends on it.

    Args:
        name: the relation that it releases.
        options: its options, as written.
        keys: the kinds of its keys' types, by column.
        count_steps: returns the most values of a key; None if that is not known.
        labels: the analyst's expressions of its keys.
        nullable: whether a key may be NULL.
        fits: the strategies that fit its quantiles.
        grow: returns its parts if it may have a growing tree; None if its keys decide no periods.
    """

    name: str
    options: Options
    keys: Mapping[str, str]
    count_steps: Callable[[str], int | None]
    labels: Mapping[str, str]
    nullable: bool = False
    fits: Collection[str] = ()
    grow: Callable[[PrivateBlock], PeriodParts | None] | None = None

    def list_orders(self) -> Iterator[tuple[str, int]]:
        """Yield the keys whose values have an order that noise can follow, with the number of their steps."""
        for key, kind in self.keys.items():
            steps = self.count_steps(key) if kind in _ORDERED_KINDS else None
            if steps is not None and 2 <= steps <= MAX_ORDERED_STEPS:
                yield key, steps


def choose_order(binder: Binder, block: StepBlock, tree: exp.Expr) -> None:
    """Set the best or the requested strategy of a block of the plan for the bound statement ``tree``.

    Raises:
        PrivacyError: the requested strategy does not fit the block.
    """
    place = _find_place(binder, block.name)
    item = binder.blocks[place]
    word = find_forced(block.options)
    outputs = _list_adding(item.operator)
    windowed = tree.find(exp.Window) is not None
    if windowed and outputs:
        names = tuple(output.name for output in outputs)
        steps = tuple((key, n) for key in block.keys if (n := block.count_steps(key)) is not None)
        keys = tuple(block.keys)
        binder.ordered_releases.append(OrderedRelease(block.name, keys, names, block.nullable, steps))
    if word == EVEN and not windowed:
        return
    orders, levels = dict(block.list_orders()), 0
    if word == TREE and outputs and block.grow is not None and {*block.keys.values()} <= _ORDERED_KINDS:
        parts = block.grow(item)
        if parts is not None:
            levels, orders = parts.levels, {parts.keys[0]: len(parts.starts)}
    if not orders or not outputs:
        refuse_unfit(
            block.options, block.fits, "here no output adds up, or no key has an order of known steps"
        )
        return
    uses = Uses()
    if windowed:
        uses = find_uses(tree, block.name, block.keys, [output.name for output in outputs])
        most = max(orders.values())
        some = tuple(window for window in uses.windows if len(window.list_ranges(most)[0]))
        uses = replace(uses, windows=some)  # frames outside of all steps are empty
    if word == EVEN and not uses.windows:
        return
    if word is None and not uses.windows:
        found = (_Strategies(binder, item.operator, key, n, uses) for key, n in orders.items())
        variants = tuple(strategy for one in found for strategy in (*one.list_uniform(), *one.list_forced()))
        binder.blocks[place] = replace(item, variants=(*item.variants, *variants))
        return
    key = _choose_order(uses, orders, _list_windows(tree, block, outputs) if windowed else [])
    if word == SQUARE_ROOT and orders[key] > MAX_SQUARE_ROOT_STEPS:
        why = f"here it has {orders[key]:,} steps, and at most {MAX_SQUARE_ROOT_STEPS:,} are supported"
        refuse_unfit(block.options, why=why)
    strategies = _Strategies(binder, item.operator, key, orders[key], uses, word, levels)
    choice, best = strategies.choose()
    shown = "what is shown of each column" if uses.windows else "its running totals"
    said = f"Sums follow the order of {block.labels[key]}, {orders[key]:,} steps; the errors of strategies are those of {shown}."
    if levels:
        said += f" {_KEPT_NODES.format(f'{1 << levels - 1:,}', levels)}"
        binder.notes += strategies.list_doubts()
    before = () if item.strategy is None else (item.strategy.sentence(),)  # that of quantiles
    variants = () if word else (*item.variants, *strategies.list_others(best), *strategies.list_forced(best))
    binder.blocks[place] = replace(
        item,
        operator=strategies.apply(best),
        variants=variants,
        sentences=(*item.sentences, *before, said),
        strategy=choice,
    )


_KEPT_NODES = (
    "The tree's sums of 1, 2, 4, ... and {} steps are each drawn and stored once, when their last step is closed: a step is in "
    "at most {} of them, and pays an equal part for each."
)
SOME_SHOWN = "those that differ from a group without rows appear"
_STEPS_SHOWN = "all of them appear, since a window follows their order"


def show_ranges(
    binder: Binder, name: str, shown: tuple[str, ...], ranged: frozenset[str], tree: exp.Expr
) -> None:
    """Show, of groups of a range, those that differ from a group without rows.

    A window in the order of such a key needs all steps, and cells of grouping sets add up only if all are shown.

    Args:
        name: the block's.
        shown: its keys with ranges, in order.
        ranged: all columns with ranges.
        tree: the bound statement.
    """
    place = next((i for i, block in enumerate(binder.blocks) if block.name == name), None)
    if place is None:
        return
    if not WindowFinder(tree, name, ranged, frozenset()).has_ordered(ranged):
        binder.ranged.append(RangedGroups(name, shown))
        return
    block = binder.blocks[place]
    sentences = tuple(line.replace(SOME_SHOWN, _STEPS_SHOWN) for line in block.sentences)
    binder.blocks[place] = replace(block, sentences=sentences)


Words = Mapping[Statistic, str]
"""The strategy of each statistic that adds up."""


def _list_adding(operator: Operator) -> list[Count | Sum]:
    aggregation = _find_aggregation(operator)
    return [] if aggregation is None else [o for o in aggregation.outputs if isinstance(o, Count | Sum)]


def _find_aggregation(operator: Operator) -> Aggregation | None:
    inner = operator.aggregation if isinstance(operator, Together) else operator
    return inner if type(inner) is Aggregation else None


def _list_windows(tree: exp.Expr, block: StepBlock, outputs: Sequence[Count | Sum]) -> list[WindowSum]:
    """Return all window sums of a block's columns, including those with unknown errors."""
    names = frozenset(output.name for output in outputs)
    finder = WindowFinder(tree, block.name, frozenset(block.keys), names)
    return [window for select in tree.find_all(exp.Select) for _, window in finder.read_windows(select)]


def _choose_order(uses: Uses, orders: Mapping[str, int], windows: Sequence[WindowSum]) -> str:
    """Return the key that orders most windows (the first of equals in ``uses``), or the last that partitions none."""
    for some in (uses.windows, windows):
        if asked := [window.order for window in some if window.order in orders]:
            return max(orders, key=asked.count)
    parting = frozenset[str]().union(*(window.partition for window in windows))
    return [*(key for key in orders if key in parting), *(key for key in orders if key not in parting)][-1]


def _make_noise(noise: Noise, word: str, steps: int, currency: str | None) -> OrderedNoise:
    """Return the noise of a strategy; with a currency, its cost in that is at most that of plain noise."""
    made = MAKERS[word](noise, steps)
    if currency is None or not isinstance(made.base, LaplaceNoise):
        return made

    def cost(one: Noise) -> Fraction:
        return one.event.mu**2 if currency == "mu" else one.event.rho

    most, scaled, factor = cost(made.base), made, Fraction(1)
    while cost(scaled) > most:
        root = math.sqrt(float(most / cost(scaled)))
        factor = factor * Fraction(math.floor(min(root, 0.999) * 1000), 1000)
        scaled = made.rescale(factor)
    return scaled


_REMEMBERED_STEPS = 1000
_make_remembered = lru_cache(maxsize=128)(_make_noise)
"""The cache for few steps: statements repeat their noise, and its variances take most of a small plan's time."""


@dataclass(frozen=True)
class _Strategies:
    """The strategies of one block in the order of the key ``key`` with ``steps`` values, and their errors.

    ``even`` is the operator with plain noise; ``forced`` a requested strategy, whose cost is limited in epsilon only. ``levels``
    are those of a growing tree; 0 without one.
    """

    binder: Binder
    even: Operator
    key: str
    steps: int
    uses: Uses
    forced: str | None = None
    levels: int = 0

    @cached_property
    def outputs(self) -> list[Count | Sum]:
        """The outputs that add up over groups."""
        return _list_adding(self.even)

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics of these outputs."""
        return tuple(dict.fromkeys(output.statistic for output in self.outputs))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The available strategies."""
        long = self.steps > MAX_SQUARE_ROOT_STEPS or self.levels > 0
        return tuple(word for word in (EVEN, *MAKERS) if not (long and word == SQUARE_ROOT))

    @cached_property
    def noises(self) -> Mapping[tuple[Statistic, str], Noise]:
        """The noise of each statistic under each strategy."""
        return {(s, word): self._make(s.noise, word) for s in self.statistics for word in self.words}

    @cached_property
    def squared(self) -> Mapping[tuple[Statistic, str], float]:
        """The expected squared errors of all shown numbers of each statistic, in parts of its plain noise's variance."""
        noises = self.noises.items()
        return {(s, word): sum(self._list_errors(s, n)) / s.noise.variance for (s, word), n in noises}

    def _make(self, noise: Noise, word: str) -> Noise:
        if word == EVEN:
            return noise
        if self.levels:
            return GrowingTree(noise, self.steps, 2, self.levels)
        make = _make_remembered if self.steps <= _REMEMBERED_STEPS else _make_noise
        limited = self.forced in (None, EVEN)
        return make(noise, word, self.steps, self.binder.catalog.rule_currency if limited else None)

    def choose(self) -> tuple[StrategyChoice, Words]:
        """Return the strategy, with the errors of all, and the one of each statistic.

        Unless it is forced, a strategy keeps the plain noise of a column that it would make worse.
        """
        errors = {word: self._find_errors(word) for word in self.words}
        if self.forced is not None:
            return choose_strategy(errors, self.forced), dict.fromkeys(self.statistics, self.forced)
        plain = errors[EVEN]
        least = {word: {c: min(e, plain[c]) for c, e in own.items()} for word, own in errors.items()}
        choice = choose_strategy(least, None)
        shown = errors | {choice.chosen: least[choice.chosen]}
        choice = replace(choice, errors=tuple((w, tuple(own.items())) for w, own in shown.items()))
        squared, words = self.squared, dict.fromkeys(self.statistics, EVEN)
        better = (s for s in words if squared[s, choice.chosen] < squared[s, EVEN] * CLEARLY)
        return choice, words | dict.fromkeys(better, choice.chosen)

    def _find_errors(self, word: str) -> dict[str, float]:
        """Return the root mean squared error of each column's shown numbers, in its own units."""
        found = {}
        for output in self.outputs:
            shown = list(self._list_errors(output.statistic, self.noises[output.statistic, word]))
            steps = float(output.steps) if isinstance(output, Sum) else 1.0
            if shown:
                found[output.name] = math.sqrt(sum(shown) / len(shown)) / steps
        return found

    def list_doubts(self) -> Iterator[str]:
        """Yield a note if the growing tree errs more than EVEN so far, with the number of steps from which on it errs less."""
        many = 1 << (self.levels - 1)
        for statistic in self.statistics:
            now, even = (self.squared[statistic, word] for word in (TREE, EVEN))
            if now <= even:
                continue
            tree = GrowingTree(statistic.noise, many, 2, self.levels)
            totals = tree.expect_variances(np.zeros(many, dtype=np.intp), np.arange(many))
            better = np.cumsum(totals) < statistic.noise.variance * np.cumsum(np.arange(1.0, many + 1))
            since = (
                f"from {int(better.argmax()) + 1:,} on" if better.any() else f"for no number up to {many:,}"
            )
            yield (
                f"of running totals over {self.steps:,} steps, strategy = EVEN would have {math.sqrt(even / now):.3g} times the "
                f"error: TREE has less {since}"
            )
            return

    def measure(self, words: Words) -> float:
        """Return the expected squared error of all shown numbers, each in parts of its plain noise's variance."""
        return sum(self.squared[s, word] for s, word in words.items())

    def list_uniform(self) -> Iterator[StrategyVariant]:
        """Yield the block with each strategy for ordered steps in all of its sums, for statements that show no window."""
        for word in self.words[1:]:
            ratios = [self.noises[s, word].variance / s.noise.variance for s in self.statistics]
            gain = math.sqrt(math.exp(fmean(map(math.log, ratios))))
            yield StrategyVariant(word, self.apply(dict.fromkeys(self.statistics, word)), single_gain=gain)

    def list_forced(self, best: Words | None = None) -> Iterator[StrategyVariant]:
        """Yield the block with each forced strategy, if that may cost the session more than plain noise."""
        plain = not any(isinstance(s.noise, LaplaceNoise) for s in self.statistics)
        if plain or not self.binder.catalog.has_rule:
            return
        for variant in replace(self, forced=TREE).list_uniform():
            words = dict.fromkeys(self.statistics, variant.word)
            if best is None:
                yield variant
                continue
            least, own = self.measure(best), replace(self, forced=variant.word).measure(words)
            yield replace(variant, gain=math.sqrt(own / least) if least else 1.0, single_gain=1.0)

    def list_others(self, best: Words) -> tuple[StrategyVariant, ...]:
        """Return the block under other strategies than the best, the better first."""
        many = len(self.statistics)
        uniform = [(word,) * many for word in self.words]
        chosen = list(product(self.words, repeat=many)) if many <= _MIXED else uniform
        every = [dict(zip(self.statistics, words, strict=True)) for words in chosen]
        others = sorted((words for words in every if words != best), key=self.measure)
        least = self.measure(best)
        gains = [math.sqrt(self.measure(words) / least) if least else 1.0 for words in others]
        names = [" and ".join(dict.fromkeys(words.values())) for words in others]
        found = zip(names, map(self.apply, others), gains, strict=True)
        return tuple(StrategyVariant(*variant) for variant in found)

    def apply(self, words: Words) -> Operator:
        """Return the operator with other noise on statistics that add up, also in other outputs that share them."""

        def change(statistic: Statistic) -> Statistic:
            word = words.get(statistic)
            return statistic if word is None else replace(statistic, noise=self.noises[statistic, word])

        aggregation = _find_aggregation(self.even)
        assert aggregation is not None
        if set(words.values()) == {EVEN}:
            return self.even
        outputs = tuple(change_statistics(output, change) for output in aggregation.outputs)
        made = replace(aggregation, outputs=outputs, ordered=self.key)
        return replace(self.even, aggregation=made) if isinstance(self.even, Together) else made

    def _list_errors(self, statistic: Statistic, noise: Noise) -> Iterator[float]:
        """Yield the mean squared error of each shown number of a statistic; without windows, that of its running totals."""
        names = {output.name for output in self.outputs if output.statistic == statistic}
        if not self.uses.windows:
            yield _average(noise, WindowSum("", self.key), self.steps)
            return
        for window in self.uses.windows:
            if window.value in names and window.order in ("", self.key):
                if len(window.list_ranges(self.steps)[0]):
                    yield _average(noise, window, self.steps)
            elif window.value in names:
                yield noise.variance
        yield from (noise.variance for name in self.uses.cells if name in names)
        for output in _find_aggregation(self.even).outputs:  # type: ignore[union-attr]
            if not isinstance(output, Count | Sum):
                yield from (noise.variance for other in output.statistics if other == statistic)


def _average(noise: Noise, window: WindowSum, steps: int) -> float:
    """Return the mean variance of a window's sums, or of their means."""
    first, last = window.list_ranges(steps)
    width = last - first + 1.0
    parts = width**2 if window.mean else np.ones_like(width)
    if isinstance(noise, OrderedNoise):
        return float(((noise.expect_variances(first, last) + noise.rounding) / parts).mean())
    return float(noise.variance * np.mean(width / parts))


# -- several quantiles of one column ------------------------------------------------------------------------------------

_FEWEST = 2
"""Quantiles of one column from which on a tree may be asked for."""
_MANY = 3
"""Quantiles of one column from which on AUTO compares the ways."""
_KEPT = "The tree is kept with the answer: other quantiles of these rows, asked alone at the same {}, are read from it for free."


def choose_quantiles(binder: Binder, name: str, options: Options, currency: str) -> Collection[str]:
    """Set the best or requested strategy of a block's quantiles, and return those that fit; ``currency``: of its loss."""
    place = _find_place(binder, name)
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
        if word is None and isinstance(exchange_parts(operator, forced), KeptTree):
            binder.blocks[place] = replace(
                item, variants=_list_tree_variants(operator, quantiles, {}, forced)
            )
        return ()
    rule = binder.catalog.rule_currency
    own = () if rule is None or word == TREE else (rule,)
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
        f"Up to {many} quantiles of one column are requested; the strategies' errors are in ranks, for {TYPICAL_ROWS:,} "
        "evenly spread rows of a group."
    )
    changed = exchange_parts(operator, chosen)
    same = all(tree == forced[part] for part, tree in chosen.items())
    kept = (_KEPT.format(SYMBOLS[currency]),) if isinstance(changed, KeptTree) and same else ()
    variants = () if word else _list_tree_variants(operator, parts, chosen, forced)
    said_of = (*item.sentences, said, *kept)
    item = replace(item, operator=changed, strategy=choice, sentences=said_of, variants=variants)
    binder.blocks[place] = item
    return (TREE,)


def _is_better(tree: RankErrors, plain: RankErrors) -> bool:
    return all(error < plain[name] * CLEARLY for name, error in tree.items())


def _list_tree_variants(
    operator: Together, parts: Sequence[Quantiles], chosen: Mapping[Part, Part], forced: Mapping[Part, Part]
) -> tuple[StrategyVariant, ...]:
    """Return the block under other strategies, whose stored answers also serve the statement."""
    best, found = expect_chosen(parts, chosen), []
    for word, others in ((TREE, forced), (EVEN, {})):
        errors = expect_chosen(parts, others)
        gain = math.exp(fmean(math.log(errors[name] / error) for name, error in best.items()))
        other = exchange_parts(operator, others)
        if other != exchange_parts(operator, chosen):
            found.append(StrategyVariant(word, other, gain))
    return tuple(found)
