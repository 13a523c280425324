"""The strategy of a block whose groups have a public order: which noise serves best what a statement asks of it.

The choice depends on public numbers alone: how many steps there are, what the statement shows (window sums above the block,
and single cells), and how each strategy's noise adds up over them. All strategies cost the same: what the plain noise costs,
and where the session counts in another currency than epsilon, no more there.

The strategy belongs to the block, not to what is shown: its shape depends on the number of steps, so a stored answer under any
strategy serves every statement over the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from statistics import fmean
from typing import TypeVar

import numpy as np
from sqlglot import exp

from dpsql.binding.plan import StrategyVariant
from dpsql.binding.public.window_sums import OrderedRelease, Uses, WindowFinder, find_uses
from dpsql.binding.relations.catalog import Binder
from dpsql.language.options import AUTO, Options
from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.ordered_noise import MAX_SQUARE_ROOT_STEPS, OrderedNoise, make_square_root, make_tree
from dpsql.mechanisms.per_group import LaplaceNoise, Noise, Statistic
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
from dpsql.privacy.filters import ACCOUNTANTS

_FITS = {
    MARGINALS: "several grouping sets of the same rows, with public groups and with counts or sums that add up",
    TREE: "running totals of counts or sums over one ordered public key, and for several quantiles of one column",
    SQUARE_ROOT: "running totals of counts or sums over one ordered public key",
}
"""The questions that a strategy other than EVEN is for."""


def find_forced(options: Options) -> str | None:
    """Return the strategy that the statement names; None where it leaves the choice open."""
    word = options.get("strategy", AUTO)
    return None if word == AUTO else str(word)


def refuse_unfit(options: Options, fits: Collection[str] = (), why: str = "") -> None:
    """Refuse a strategy that is named where it does not fit.

    Args:
        options: of the block.
        fits: the strategies that fit besides EVEN.
        why: the reason why the one that is named does not, where it is a particular one; a clause without a full stop.

    Raises:
        BindError: the strategy that is named answers other questions.
    """
    word = find_forced(options)
    if word is None or word == EVEN or word in fits:
        return
    what = f"{word} is for {_FITS[word]}{f', and {why}' if why else ''}."
    raise options.refuse("strategy", what, "leave strategy out: AUTO takes the best that fits.")


def note_strategy(binder: Binder, name: str, choice: StrategyChoice) -> None:
    """Let a block that was given to the plan say how its numbers, and those chosen with it, are measured.

    Args:
        binder: of the statement.
        name: of the block.
        choice: what was chosen, and among what.
    """
    place = next(place for place, block in enumerate(binder.blocks) if block.name == name)
    binder.blocks[place] = replace(binder.blocks[place], strategy=choice)


MAKERS: Mapping[str, Callable[[Noise, int], OrderedNoise]] = {
    TREE: make_tree,
    SQUARE_ROOT: make_square_root,
}
"""The strategies for steps in an order, by the word that forces them."""
MAX_ORDERED_STEPS = 1 << 16
"""Steps for which there are such strategies."""
_ORDERED_KINDS = frozenset({"INTEGER", "DECIMAL", "DOUBLE", "DATE", "TIMESTAMP", "TEXT"})
_Made = TypeVar("_Made")
_MIXED = 2
"""Statistics up to which stored answers of all mixtures of strategies are looked for."""


@dataclass(frozen=True)
class StepBlock:
    """A block of public groups, as far as a strategy depends on it.

    Args:
        name: the relation that it releases.
        options: its options, as written.
        keys: the kinds of its keys' types, by column.
        count_steps: returns the most values of a key; None where that is not known.
        labels: the words for its keys, as the analyst wrote them.
        nullable: whether a key may be NULL.
        fits: the strategies that fit its quantiles, whatever fits its sums.
    """

    name: str
    options: Options
    keys: Mapping[str, str]
    count_steps: Callable[[str], int | None]
    labels: Mapping[str, str]
    nullable: bool = False
    fits: Collection[str] = ()

    def list_orders(self) -> Iterator[tuple[str, int]]:
        """Yield the keys whose values have an order that noise can follow, with the number of their steps."""
        for key, kind in self.keys.items():
            steps = self.count_steps(key) if kind in _ORDERED_KINDS else None
            if steps is not None and 2 <= steps <= MAX_ORDERED_STEPS:
                yield key, steps


def choose_order(binder: Binder, block: StepBlock, tree: exp.Expr) -> None:
    """Give a block of a plan the strategy that serves a statement best, or the one that is asked for.

    Args:
        binder: holds the plan's blocks.
        block: one of them.
        tree: the whole statement, bound.

    Raises:
        PrivacyError: a strategy is asked for that the block can't have.
    """
    place = next(i for i, item in enumerate(binder.blocks) if item.name == block.name)
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
    orders = dict(block.list_orders())
    if not orders or not outputs:
        refuse_unfit(block.options, block.fits, "here nothing adds up, or no key has an order of known steps")
        return
    uses = Uses()
    if windowed:
        uses = find_uses(tree, block.name, block.keys, [output.name for output in outputs])
        most = max(orders.values())
        some = tuple(window for window in uses.windows if len(window.list_ranges(most)[0]))
        uses = replace(uses, windows=some)  # frames beyond all steps hold nothing
    if word == EVEN and not uses.windows:
        return
    if word is None and not uses.windows:
        found = (_Strategies(binder, item.operator, key, n, uses) for key, n in orders.items())
        variants = tuple(strategy for one in found for strategy in (*one.list_uniform(), *one.list_forced()))
        binder.blocks[place] = replace(item, variants=(*item.variants, *variants))
        return
    key = _choose_order(uses, orders, _list_windows(tree, block, outputs) if windowed else [])
    if word == SQUARE_ROOT and orders[key] > MAX_SQUARE_ROOT_STEPS:
        refuse_unfit(
            block.options,
            why=f"here it has {orders[key]:,} steps, and at most {MAX_SQUARE_ROOT_STEPS:,} are taken",
        )
    strategies = _Strategies(binder, item.operator, key, orders[key], uses, word)
    choice, best = strategies.choose()
    shown = "what is shown of each column" if uses.windows else "its running totals"
    said = f"Sums go by the order of {block.labels[key]}, {orders[key]:,} steps; the errors of strategies are those of {shown}."
    before = () if item.strategy is None else (item.strategy.sentence(),)  # that of quantiles
    variants = () if word else (*item.variants, *strategies.list_others(best), *strategies.list_forced(best))
    binder.blocks[place] = replace(
        item, operator=strategies.apply(best), variants=variants,
        sentences=(*item.sentences, *before, said), strategy=choice,
    )  # fmt: skip


Words = Mapping[Statistic, str]
"""The strategy of each statistic that adds up."""


def _name_words(words: Iterable[str]) -> str:
    """Return the names of a block's strategies, each once."""
    return " and ".join(dict.fromkeys(words))


def _list_adding(operator: Operator) -> list[Count | Sum]:
    aggregation = _find_aggregation(operator)
    return [] if aggregation is None else [o for o in aggregation.outputs if isinstance(o, Count | Sum)]


def _find_aggregation(operator: Operator) -> Aggregation | None:
    inner = operator.aggregation if isinstance(operator, Together) else operator
    return inner if type(inner) is Aggregation else None


def _list_windows(tree: exp.Expr, block: StepBlock, outputs: Sequence[Count | Sum]) -> list[WindowSum]:
    """Return all window sums of a block's columns, those too whose errors nobody can tell."""
    names = frozenset(output.name for output in outputs)
    finder = WindowFinder(tree, block.name, frozenset(block.keys), names)
    return [window for select in tree.find_all(exp.Select) for window in finder.find_windows(select)]


def _choose_order(uses: Uses, orders: Mapping[str, int], windows: Sequence[WindowSum]) -> str:
    """Return the key of most windows that have one, weighed ones first; without such, the last that parts no window.

    Args:
        uses: the windows that are weighed.
        orders: the keys that there are, with their steps, in the order of GROUP BY.
        windows: all windows.
    """
    for some in (uses.windows, windows):
        if asked := [window.order for window in some if window.order in orders]:
            return max(orders, key=asked.count)
    parting = frozenset[str]().union(*(window.partition for window in windows))
    return [*(key for key in orders if key in parting), *(key for key in orders if key not in parting)][-1]


def _make_noise(noise: Noise, word: str, steps: int, accountant: str | None) -> OrderedNoise:
    """Return the noise of a strategy; with an accountant, such as costs the session no more than plain noise in its currency."""
    made = MAKERS[word](noise, steps)
    kind = None if accountant is None else ACCOUNTANTS[accountant]
    if kind is None or not kind.has_rule or not isinstance(made.base, LaplaceNoise):
        return made

    def cost(one: Noise) -> Fraction:
        return one.event.mu**2 if kind.currency == "mu" else one.event.rho

    most, held, factor = cost(made.base), made, Fraction(1)
    while cost(held) > most:
        root = math.sqrt(float(most / cost(held)))
        factor = factor * Fraction(math.floor(min(root, 0.999) * 1000), 1000)
        held = made.rescale(factor)
    return held


_REMEMBERED_STEPS = 1000
_make_remembered = lru_cache(maxsize=128)(_make_noise)
"""The same for few steps: statements repeat their noise, and its variances take longer than all else of a small plan."""


@dataclass(frozen=True)
class _Strategies:
    """The strategies of one block in the order of one key, and what they come to.

    Args:
        binder: of the statement.
        even: the operator with plain noise.
        key: the ordered one.
        steps: its values.
        uses: what the statement shows.
        forced: the strategy that is asked for: nothing holds that to what plain noise costs but epsilon.
    """

    binder: Binder
    even: Operator
    key: str
    steps: int
    uses: Uses
    forced: str | None = None

    @cached_property
    def outputs(self) -> list[Count | Sum]:
        """The outputs that add up over groups."""
        return _list_adding(self.even)

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics of these."""
        return tuple(dict.fromkeys(output.statistic for output in self.outputs))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The strategies that there are."""
        long = self.steps > MAX_SQUARE_ROOT_STEPS
        return tuple(word for word in (EVEN, *MAKERS) if not (long and word == SQUARE_ROOT))

    @cached_property
    def noises(self) -> Mapping[tuple[Statistic, str], Noise]:
        """The noise of each statistic under each strategy."""
        return {(s, word): self._make(s.noise, word) for s in self.statistics for word in self.words}

    @cached_property
    def squared(self) -> Mapping[tuple[Statistic, str], float]:
        """The expected squared errors of all that is shown of each statistic, in parts of its plain noise's variance."""
        return {
            (s, word): sum(self._list_errors(s, noise)) / s.noise.variance
            for (s, word), noise in self.noises.items()
        }

    def _make(self, noise: Noise, word: str) -> Noise:
        if word == EVEN:
            return noise
        make = _make_remembered if self.steps <= _REMEMBERED_STEPS else _make_noise
        held = self.binder.catalog.accountant if self.forced in (None, EVEN) else None
        return make(noise, word, self.steps, held)

    def choose(self) -> tuple[StrategyChoice, Words]:
        """Return the strategy, with the error of each, and what it is for each statistic.

        Without a forced one, a strategy leaves the plain noise where it would be worse: no column is ever worse than that.
        """
        errors = {word: self._find_errors(word) for word in self.words}
        plain = errors[EVEN]
        held = {word: {c: min(e, plain[c]) for c, e in own.items()} for word, own in errors.items()}
        choice = choose_strategy(held if self.forced is None else errors, self.forced)
        if self.forced is None:
            told = errors | {choice.chosen: held[choice.chosen]}
            choice = replace(choice, errors=tuple((w, tuple(own.items())) for w, own in told.items()))
        if self.forced is not None:
            return choice, dict.fromkeys(self.statistics, self.forced)
        better = (
            s for s in self.statistics if self.squared[s, choice.chosen] < self.squared[s, EVEN] * CLEARLY
        )
        return choice, dict.fromkeys(self.statistics, EVEN) | dict.fromkeys(better, choice.chosen)

    def _find_errors(self, word: str) -> dict[str, float]:
        """Return the root mean squared error of what is shown of each column, in its own units."""
        found = {}
        for output in self.outputs:
            shown = list(self._list_errors(output.statistic, self.noises[output.statistic, word]))
            steps = float(output.steps) if isinstance(output, Sum) else 1.0
            if shown:
                found[output.name] = math.sqrt(sum(shown) / len(shown)) / steps
        return found

    def measure(self, words: Words) -> float:
        """Return the expected squared error of all that is shown, each number's in parts of its plain noise's variance."""
        return sum(self.squared[s, word] for s, word in words.items())

    def list_uniform(self) -> Iterator[StrategyVariant]:
        """Yield the block under each strategy for steps in an order, in all of its sums, for statements that show no window."""
        for word in self.words:
            if word != EVEN:
                ratios = [self.noises[s, word].variance / s.noise.variance for s in self.statistics]
                gain = math.sqrt(math.exp(fmean(map(math.log, ratios))))
                yield StrategyVariant(
                    word, self.apply(dict.fromkeys(self.statistics, word)), single_gain=gain
                )

    def list_forced(self, best: Words | None = None) -> Iterator[StrategyVariant]:
        """Yield the block as statements that force a strategy have it, where it costs the session more than plain noise then."""
        kind = ACCOUNTANTS[self.binder.catalog.accountant]
        if not kind.has_rule or not any(isinstance(s.noise, LaplaceNoise) for s in self.statistics):
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
        mixed = len(self.statistics) <= _MIXED
        chosen = (
            list(product(self.words, repeat=len(self.statistics)))
            if mixed
            else [(w,) * len(self.statistics) for w in self.words]
        )
        every = [dict(zip(self.statistics, words, strict=True)) for words in chosen]
        others = sorted((words for words in every if words != best), key=self.measure)
        least = self.measure(best)
        gains = ((w, math.sqrt(self.measure(w) / least) if least else 1.0) for w in others)
        return tuple(StrategyVariant(_name_words(w.values()), self.apply(w), gain) for w, gain in gains)

    def apply(self, words: Words) -> Operator:
        """Return the operator with other noise on what adds up; whatever else shares a statistic has its noise too."""

        def change(statistic: Statistic) -> Statistic:
            word = words.get(statistic)
            return statistic if word is None else replace(statistic, noise=self.noises[statistic, word])

        aggregation = _find_aggregation(self.even)
        assert aggregation is not None
        if set(words.values()) == {EVEN}:
            return self.even
        outputs = tuple(_change_statistics(output, change) for output in aggregation.outputs)
        made = replace(aggregation, outputs=outputs, ordered=self.key)
        return replace(self.even, aggregation=made) if isinstance(self.even, Together) else made

    def _list_errors(self, statistic: Statistic, noise: Noise) -> Iterator[float]:
        """Yield the mean squared error of each number that is made of a statistic; of running totals where no window is."""
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


def _change_statistics(item: _Made, change: Callable[[Statistic], Statistic]) -> _Made:
    """Return a statistic, or a dataclass that is made of several, with others in their place."""
    if isinstance(item, Statistic):
        return change(item)  # type: ignore[return-value]
    held = {f.name: getattr(item, f.name) for f in fields(item)}  # type: ignore[arg-type]
    changed = {name: _change_statistics(value, change) for name, value in held.items() if is_dataclass(value)}
    return replace(item, **changed)  # type: ignore[type-var]


def _average(noise: Noise, window: WindowSum, steps: int) -> float:
    """Return the mean variance of a window's sums, or of their means."""
    first, last = window.list_ranges(steps)
    width = last - first + 1.0
    parts = width**2 if window.mean else np.ones_like(width)
    if isinstance(noise, OrderedNoise):
        return float(((noise.expect_variances(first, last) + noise.rounding) / parts).mean())
    return float(noise.variance * np.mean(width / parts))
