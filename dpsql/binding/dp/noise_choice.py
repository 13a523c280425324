"""The noise of a block's moments: Laplace noise by shares, Gaussian noise of one calibration, or the better of the two.

With Laplace noise, each aggregate divides its share of epsilon into equal parts for its moments. A moment that several
aggregates need is released once, with all of their parts.

Gaussian noise is calibrated once, for all moments of the block: the shares of epsilon are shares of the joint squared mu.
Moment i, which one unit moves by Δ_i in L2, has deviation ``Δ_i / (mu * sqrt(share_i))``, with the mu of (epsilon, delta)
by the analytic formula. A moment that several aggregates need has all of their shares, too. This has about sqrt(k) times
less noise than k moments of (epsilon / k, delta / k) each.

``noise = AUTO`` takes the noise with the smaller expected error, by the geometric mean over all moments, at equal cost.
Neither costs more than the requested epsilon (and delta), and in the currency of the session's accountant (rho, or mu under
gdp) Gaussian noise costs no more than Laplace noise would. The choice depends on public numbers, not on data or on the
budget spent.

``OPTIONS (error = x)`` asks for an accuracy. The interval of a count or a sum is as wide as its noise, which is public: its
epsilon is found here, and refused if the block has less, before anything is paid. If the width also depends on private
counts, noise is reduced step by step during the release (:mod:`dpsql.mechanisms.aggregation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from dpsql.binding.dp.aggregates import Aggregate
from dpsql.binding.dp.budget_split import BudgetShare, Priced, choose_declared_delta
from dpsql.binding.relations.catalog import Catalog
from dpsql.errors import BindError, Error, PrivacyError
from dpsql.exact.exact_query import Exact
from dpsql.language.dialect import span_of
from dpsql.language.options import Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import MEAN_ROWS, ErrorBasis
from dpsql.mechanisms.moments import Count, Output, Sum
from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
    Statistic,
)
from dpsql.numerics.exact_numbers import compute_root, round_significant, shorten, write_number
from dpsql.privacy.amounts import Amount
from dpsql.privacy.conversions import gaussian_epsilon, gaussian_mu
from dpsql.privacy.events import DiscreteLaplace, Event, compose_events

SMALLEST_DELTA = Fraction(1, 10**25)
"""The smallest delta of Gaussian noise: deltas are computed in steps of a 10^30th."""
_DIGITS = 4
"""Digits of an epsilon that is found: people read it."""
_CLEARLY = 1 - 1e-9
"""The ratio of errors below which Gaussian noise is taken: a margin for the rounding of floats."""

Dealt = Sequence[tuple[Aggregate, Amount]]
"""Aggregates that are formulas of moments, each with its share."""


@dataclass(frozen=True)
class MomentNoise:
    """The statistics of a block's moments, by aggregate and moment, with noise of one kind."""

    statistics: Mapping[tuple[str, str], Statistic]
    said: str = ""
    """EXPLAIN's sentence on the choice; empty if there was none."""
    part: Fraction = Fraction(1)
    """The part of the requested epsilon at which Gaussian noise is calibrated."""

    def build(self, aggregate: Aggregate) -> Output:
        """Return the output of an aggregate."""
        assert aggregate.formula is not None
        partials = aggregate.formula.partials
        return aggregate.formula.build(*(self.statistics[aggregate.name, p.name] for p in partials))

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return any(isinstance(s.noise, GaussianNoise) for s in self.statistics.values())

    @property
    def event(self) -> Event:
        """The charge of all moments."""
        return compose_events(s.noise.event for s in dict.fromkeys(self.statistics.values()))

    def compare(self, other: MomentNoise) -> float:
        """Return the geometric mean, over all moments, of the ratio of its expected error to another's."""
        pairs = ((s.noise, other.statistics[key].noise) for key, s in self.statistics.items())
        logs = [math.log(mine.mean_error) - math.log(its.mean_error) for mine, its in pairs]
        return math.exp(sum(logs) / len(logs))


@dataclass(frozen=True)
class DealtMoment:
    """A moment as one aggregate needs it: its part of the share, and its sensitivity in a number of groups."""

    aggregate: str
    column: str
    part: Amount
    parts: int
    sensitivity: int
    groups: int


@dataclass(frozen=True)
class NoiseMaker:
    """Makes the noise of a block's moments, by the sensitivities of its exact query and the groups of one unit."""

    exact: Exact
    groups: int

    def list_moments(self, dealt: Dealt, gaussian: bool) -> Iterator[DealtMoment]:
        """Yield the moments of each aggregate, for noise of a kind."""
        for aggregate, amount in dealt:
            partials = aggregate.formula.partials if aggregate.formula is not None else ()
            parts = len(partials)
            for moment in partials:
                reach = self.exact.reach(moment, self.groups, gaussian)
                yield DealtMoment(aggregate.name, moment.name, amount / parts, parts, *reach)

    def add_laplace(self, dealt: Dealt) -> MomentNoise:
        """Return moments with Laplace noise; one that several aggregates need has all of their parts."""

        def make(moments: Sequence[DealtMoment]) -> Noise:
            reach = moments[0].sensitivity, moments[0].groups
            price = partial(DiscreteLaplace, sensitivity=reach[0], count=reach[1])
            whole = sum((moment.part.total for moment in moments), Fraction(0))
            return LaplaceNoise(replace(moments[0].part, total=whole).find_epsilon(price), *reach)

        return self._add_by_column(dealt, make, gaussian=False)

    def add_gaussian(self, dealt: Dealt, epsilon: Fraction, delta: Fraction, blocks: int = 1) -> MomentNoise:
        """Return moments with Gaussian noise that is calibrated for all of them, in all blocks, at (epsilon, delta)."""
        whole = blocks * sum((amount.total for _, amount in dealt), Fraction(0))

        def make(moments: Sequence[DealtMoment]) -> Noise:
            reach = moments[0].sensitivity, moments[0].groups
            share = sum((moment.part.total for moment in moments), Fraction(0)) / whole
            if share == 1:
                return GaussianNoise.calibrate(epsilon, delta, *reach)
            return JointGaussianNoise.calibrate_share(epsilon, delta, *reach, share)

        return self._add_by_column(dealt, make)

    def add_gaussian_of_mu(self, dealt: Dealt, declared: Fraction) -> MomentNoise:
        """Return moments with Gaussian noise for shares of mu or rho; ``declared``: the delta that basic composition adds."""

        def make(moments: Sequence[DealtMoment]) -> Noise:
            squared = sum((moment.part.mu_squared or Fraction(0) for moment in moments), Fraction(0))
            delta = sum((declared / moment.parts for moment in moments), Fraction(0))
            return GaussianNoiseByMu.of_mu(squared, delta, moments[0].sensitivity, moments[0].groups)

        return self._add_by_column(dealt, make)

    def _add_by_column(
        self, dealt: Dealt, make: Callable[[Sequence[DealtMoment]], Noise], gaussian: bool = True
    ) -> MomentNoise:
        """Return moments with one noise for each column, of all shares of it."""
        columns: dict[str, list[DealtMoment]] = {}
        for moment in self.list_moments(dealt, gaussian):
            columns.setdefault(moment.column, []).append(moment)
        found: dict[tuple[str, str], Statistic] = {}
        for column, moments in columns.items():
            statistic = Statistic(column, make(moments))
            found |= {(moment.aggregate, column): statistic for moment in moments}
        return MomentNoise(found)


_CLOSE = 1 - Fraction(1, 10**7)
"""The least part of its amount that a block uses."""


def deal_epsilons(
    own: Dealt, currency: str, list_parts: Callable[[Sequence[tuple[Aggregate, Fraction]]], Iterable[Priced]]
) -> list[tuple[Aggregate, Fraction]]:
    """Return the epsilon of each aggregate with an exact query of its own.

    Quantiles of one column become one mechanism, whose cost in mu or rho is not the sum of theirs: the epsilons of all
    are then scaled until together they cost their shares.

    Args:
        own: these aggregates, with their shares.
        currency: of the shares.
        list_parts: returns the mechanisms of aggregates with their epsilons.
    """

    def price(dealt: Sequence[tuple[Aggregate, Fraction]]) -> Event:
        return compose_events(part.event for part in list_parts(dealt))

    def price_one(item: Aggregate) -> Callable[[Fraction], Event]:
        return lambda epsilon: price([(item, epsilon)])

    dealt = [(a, amount.find_epsilon(price_one(a))) for a, amount in own]
    if not own or currency == "epsilon":
        return dealt
    together = Amount(currency, sum((amount.total for _, amount in own), Fraction(0)))
    if together.covers(price(dealt)) and together.cost(price(dealt)) > together.total * _CLOSE:
        return dealt
    moved = together.find_epsilon(lambda factor: price([(a, epsilon * factor) for a, epsilon in dealt]))
    return [(a, epsilon * moved) for a, epsilon in dealt]


# -- the choice -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseChoice:
    """The noise that a block asks for, and the session that it is charged in.

    Args:
        maker: makes the noise.
        options: of the block.
        catalog: with the session's accountant and budget.
        private: whether groups are selected, which needs a delta.
        moments: whether the block has moments.
        blocks: the number of blocks that are calibrated together.
        chosen: the noise of the first of them.
    """

    maker: NoiseMaker
    options: Options
    catalog: Catalog
    private: bool
    moments: bool
    blocks: int = 1
    chosen: MomentNoise | None = None

    @property
    def word(self) -> str:
        """LAPLACE, GAUSSIAN or AUTO. The default is GAUSSIAN for a mu or a rho, and AUTO if the block's OPTIONS have a delta."""
        written = self.options.get("noise")
        if written is not None:
            return str(written)
        if self._in_own_currency:
            return "GAUSSIAN"
        return "AUTO" if self._has_own_delta and self.options.get("error") is None else "LAPLACE"

    @property
    def _in_own_currency(self) -> bool:
        asked = self.options.amount
        return asked is not None and asked.currency != "epsilon"

    @property
    def _has_own_delta(self) -> bool:
        return "delta" in self.options.nodes and bool(self.options.get("delta"))

    @property
    def delta_parts(self) -> int:
        """The parts of delta for the noise: one if it is or may be Gaussian; selected groups have one part, too."""
        if not self.moments or self._in_own_currency:
            return 0
        return int(self.word == "GAUSSIAN" or (self.word == "AUTO" and self._may_be_gaussian))

    @property
    def _may_be_gaussian(self) -> bool:
        """Whether AUTO may take Gaussian noise: the block has a delta anyway, and the session can count it."""
        budget = self.catalog.policy.budget
        given = self.options.get("delta", budget.default_delta)
        delta = given if self.private or self._has_own_delta else None
        if not delta or delta / 2 < SMALLEST_DELTA or self.options.get("error") is not None:
            return False
        if self.catalog.has_rule:
            return bool(budget.delta) or budget.own is not None
        return bool(delta <= budget.delta)

    def choose(self, dealt: Dealt, share: BudgetShare, aggregates: int) -> MomentNoise:
        """Return the noise of a block's moments, of ``aggregates`` aggregates in all.

        Raises:
            PrivacyError: the delta is too small for Gaussian noise.
        """
        if self.word == "LAPLACE" or not dealt:
            return self.maker.add_laplace(dealt)
        if self._in_own_currency:
            declared = choose_declared_delta(self.catalog.policy.budget, self.options) / aggregates
            gaussian = self.maker.add_gaussian_of_mu(dealt, declared)
            if self.word != "GAUSSIAN" and self.chosen is not None:
                return gaussian if self.chosen.is_gaussian else self.maker.add_laplace(dealt)
            return gaussian if self.word == "GAUSSIAN" else self._take_better(dealt, gaussian, "")
        if not self.delta_parts:
            why = "only a delta in the statement's own OPTIONS allows Gaussian noise"
            return self._take_laplace(dealt, why)
        epsilon, delta = sum((amount.total for _, amount in dealt), Fraction(0)), share.delta_part
        if self.word == "GAUSSIAN":
            if delta < SMALLEST_DELTA:
                what = "this delta is too small for Gaussian noise."
                hint = "leave noise out, or write delta = 1e-6."
                raise self.options.refuse("delta", what, hint, private=True)
            return self.maker.add_gaussian(dealt, epsilon, delta)
        if self.chosen is not None:
            if not self.chosen.is_gaussian:
                return self.maker.add_laplace(dealt)
            return self.maker.add_gaussian(dealt, epsilon * self.chosen.part, delta)
        whole, all_of_delta = epsilon * self.blocks, delta * self.blocks
        most = self._limit(self.maker.add_laplace(dealt).event, whole, all_of_delta)
        if most <= 0:
            return self._take_laplace(dealt, "Gaussian noise of the same charge would exceed every number")
        pair = f" of ε={write_number(most)}, δ={write_number(all_of_delta)}"
        if most < whole:
            pair += f" (which costs the session as much as Laplace noise of ε={write_number(whole)})"
        compared = self.maker.add_gaussian(dealt, most, all_of_delta, self.blocks)
        noise = self._take_better(dealt, compared, pair)
        if not noise.is_gaussian:
            return noise
        alone = self.maker.add_gaussian(dealt, most / self.blocks, delta)
        return replace(alone, said=noise.said, part=most / whole)

    def _take_laplace(self, dealt: Dealt, why: str) -> MomentNoise:
        return replace(self.maker.add_laplace(dealt), said=f"Noise: AUTO takes Laplace noise: {why}.")

    def _take_better(self, dealt: Dealt, gaussian: MomentNoise, pair: str) -> MomentNoise:
        laplace = self.maker.add_laplace(dealt)
        ratio = gaussian.compare(laplace)
        if ratio < _CLEARLY:
            said = f"Noise: AUTO takes Gaussian noise{pair}: its expected error is {ratio:.3g} times that of Laplace noise."
            if self.catalog.has_rule and self.catalog.policy.budget.own is None:
                said += " It has no pure loss, so the session's plain sum of ε ends with it."
            return replace(gaussian, said=said)
        why = f"its expected error is {1 / ratio:.3g} times that of Gaussian noise{pair}"
        return self._take_laplace(dealt, why)

    def _limit(self, laplace: Event, epsilon: Fraction, delta: Fraction) -> Fraction:
        """Return the epsilon, at most the given one, at which Gaussian noise costs the session no more than Laplace noise."""
        rule = self.catalog.rule_currency
        if rule is None:
            return epsilon
        most = self.blocks * (laplace.mu**2 if rule == "mu" else 2 * laplace.rho)
        if gaussian_mu(epsilon, delta) ** 2 <= most:
            return epsilon
        found = round_significant(gaussian_epsilon(shorten(compute_root(most)), delta), _DIGITS)
        while found > 0 and gaussian_mu(found, delta) ** 2 > most:
            found = round_significant(found * (1 - Fraction(1, 10**_DIGITS)), _DIGITS)
        return min(found, epsilon)


_FARTHEST = 1 << 20
"""The greatest multiple of the block's epsilon that is tried for a hint."""


@dataclass(frozen=True)
class FittedOutputs:
    """The outputs of a block, in order, with the noise of their error: ``reduced`` during the release, or explained now."""

    outputs: tuple[Output, ...]
    reduced: tuple[str, ...]
    sentences: tuple[str, ...]
    is_gaussian: bool = False
    """Whether their noise is Gaussian, and needs a part of delta."""


def check_fits(aggregates: Sequence[Aggregate]) -> None:
    """Refuse an error that these aggregates can't have.

    Raises:
        BindError: one of them has its own share of epsilon. PrivacyError: one has no interval that noise could narrow.
    """
    for a in aggregates:
        span, name = span_of(a.call.node), a.label
        if a.share is not None:
            what, hint = f"error decides the epsilon of {name}.", "leave its own epsilon out."
            raise BindError(what, span=span, hint=hint)
        if a.formula is None or a.shown is not None:
            what = f"error is for numbers, and {name} is none."
            if a.formula is None:
                what = f"error is for counts, sums and means, and {name} has noise of another kind."
            raise PrivacyError(what, span=span, hint=f"leave error out, or ask for {name} alone.")


def _is_public(output: Output) -> bool:
    """Return whether the width of an output's interval is public."""
    return isinstance(output, Count | Sum)


def fit_outputs(
    options: Options,
    aggregates: Sequence[Aggregate],
    epsilon: Fraction,
    delta: Fraction | None,
    maker: NoiseMaker,
) -> FittedOutputs:
    """Return the outputs of aggregates, checked by :func:`check_fits`, with the noise that the error asks for.

    ``epsilon`` and ``delta`` (None for Laplace noise) are the most for all of them.

    Raises:
        PrivacyError: epsilon is too small for the error; nothing is paid.
    """
    if delta is not None:
        return _fit_gaussian(options, aggregates, epsilon, delta, maker)

    def build(a: Aggregate, own: Fraction) -> Output:
        return maker.add_laplace([(a, Amount("epsilon", own))]).build(a)

    whole = [build(a, epsilon) for a in aggregates]
    needs = [_find_need(options, output) if _is_public(output) else Fraction(0) for output in whole]
    known = [need for need in needs if need is not None]
    open_ones = [output.name for output in whole if not _is_public(output)]
    taken = sum(known, Fraction(0))
    if len(known) < len(needs) or taken > 1 or (taken == 1 and open_ones):
        most = None if len(known) < len(needs) else taken * epsilon
        public = [output for output in whole if _is_public(output)]
        each = Fraction(1, len(public) + bool(open_ones))
        reach = max(_width_of(output, options.confidence)(each) for output in public)
        raise _refuse(options, most, epsilon, public, reach, bool(open_ones))
    rest = (1 - taken) / max(1, len(open_ones))
    parts = [epsilon * (need if _is_public(o) else rest) for need, o in zip(known, whole, strict=True)]
    outputs = tuple(build(a, part) for a, part in zip(aggregates, parts, strict=True))
    pairs = zip(outputs, parts, strict=True)
    said = tuple(_say(options, o.name, part) for o, part in pairs if _is_public(o))
    return FittedOutputs(outputs, tuple(open_ones), said)


def _fit_gaussian(
    options: Options, aggregates: Sequence[Aggregate], epsilon: Fraction, delta: Fraction, maker: NoiseMaker
) -> FittedOutputs:
    """Return counts and sums with Gaussian noise of one calibration: the squared mus of their errors add up."""
    whole = []
    for a in aggregates:
        alone = [(a, Amount("epsilon", epsilon))]
        whole.append(maker.add_gaussian(alone, epsilon, delta).build(a))
    if not all(map(_is_public, whole)):
        what = "the noise of means is reduced step by step, which is proved for Laplace noise."
        raise options.refuse("noise", what, "leave noise out.", private=True)
    needs = [_find_need(options, output) for output in whole]
    known = [gaussian_mu(epsilon * need, delta) ** 2 for need in needs if need is not None]
    mu = shorten(compute_root(sum(known, Fraction(0))))
    taken = round_significant(gaussian_epsilon(mu, delta), 5, up=True)
    if len(known) < len(needs) or taken > epsilon:
        even = maker.add_gaussian([(a, Amount("epsilon", epsilon)) for a in aggregates], epsilon, delta)
        widths = (_width_of(even.build(a), options.confidence)(Fraction(1)) for a in aggregates)
        reach = 1.001 * max(widths)
        raise _refuse(options, taken if len(known) == len(needs) else None, epsilon, whole, reach)
    dealt = [(a, Amount("epsilon", squared)) for a, squared in zip(aggregates, known, strict=True)]
    noise = maker.add_gaussian(dealt, taken, delta)
    outputs = tuple(noise.build(a) for a in aggregates)
    return FittedOutputs(outputs, (), (_say(options, ", ".join(o.name for o in outputs), taken),), True)


def _say(options: Options, names: str, epsilon: Fraction) -> str:
    error = f"±{float(options.get('error')):g} at {options.confidence:.4g} confidence"
    return f"{names}: {error} takes ε={write_number(epsilon)}."


def _find_need(options: Options, output: Output) -> Fraction | None:
    return _find_factor(_width_of(output, options.confidence), float(options.get("error")))


def _width_of(output: Output, confidence: float) -> Callable[[Fraction], float]:
    def width(factor: Fraction) -> float:
        basis = ErrorBasis(MEAN_ROWS, confidence=confidence, factor=factor)
        return next(iter(output.errors(basis))).error

    return width


def _find_factor(width: Callable[[Fraction], float], error: float) -> Fraction | None:
    """Return the least factor of epsilon, rounded up, at which a width is within an error; None if it is too large."""
    high = Fraction(1)
    while width(high) > error:
        high *= 2
        if high > _FARTHEST:
            return None
    low = high / 2
    while width(low) <= error and low > Fraction(1, 1 << 40):
        low, high = low / 2, low
    while high / low > Fraction(10001, 10000):
        middle = (low + high) / 2
        low, high = (low, middle) if width(middle) <= error else (middle, high)
    return round_significant(high, 5, up=True)


def _refuse(
    options: Options,
    needed: Fraction | None,
    epsilon: Fraction,
    outputs: Sequence[Output],
    reach: float,
    more: bool = False,
) -> Error:
    """Return the refusal of an error that takes the epsilon ``needed`` (None if none is enough).

    ``reach`` is the error of ``epsilon``; ``more``: whether other outputs need a part of it, too.
    """
    names = ", ".join(o.name for o in outputs)
    given = write_number(epsilon, up=False)
    error = write_number(options.get("error"))
    if needed is None:
        hint = "write a larger error."
        return options.refuse("error", f"no epsilon gives {names} within ±{error}.", hint, private=True)
    within = round_significant(Fraction(reach), 3, up=True)
    what = f"{names} within ±{error} takes ε={write_number(needed)}, and there is ε={given}."
    enough = needed * (2 if more else 1) * Fraction(10_003, 10_000)  # factors are found to one in 10,000
    enough = round_significant(enough, 5, up=True)
    hint = f"write epsilon = {write_number(enough)}, or error = {write_number(within)}."
    return options.refuse("error", what, hint, private=True)
