"""The noise of a block's moments: Laplace noise by shares, Gaussian noise of one calibration, or the better of the two.

Laplace noise is dealt out: each aggregate has its share of epsilon, in equal parts for the moments that it is made of.

Gaussian noise is calibrated once, for all moments of the block together: the shares of epsilon are shares of the joint squared
mu, so moment i, which one unit moves by Δ_i in L2, has deviation ``Δ_i / (mu * sqrt(share_i))``, where mu is what (epsilon,
delta) allow by the analytic formula. A moment that several aggregates need has all of their shares. To k moments dealt
(epsilon / k, delta / k) each, that is about sqrt(k) times less noise.

``noise = AUTO`` takes whichever has the smaller expected error, by the geometric mean over all moments, where both pay the
same: neither more than the epsilon (and delta) that were asked for, nor does Gaussian noise cost the session more than Laplace
noise would, in the currency of its accountant (rho, or mu under gdp; plain sums of epsilon and delta count what was asked).
Both figures are public: the choice depends on no data, and not on what was spent.

OPTIONS (error = x): the epsilon that an answer of this accuracy takes, found before or while it is released.

The interval of a count or of a sum is as wide as its noise, which is public: its epsilon is found here, and what more would be
asked for than the block has is refused before anything is paid. Where the width depends on private counts too, noise is
reduced step by step when it is released (:mod:`dpsql.mechanisms.noise_reduction`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.binding.dp.aggregates import Aggregate
from dpsql.binding.dp.budget_split import BudgetShare, choose_declared_delta
from dpsql.binding.public_statement import label_of
from dpsql.binding.relations.catalog import Catalog
from dpsql.errors import BindError, Error, PrivacyError
from dpsql.exact.exact_query import Exact
from dpsql.language.dialect import span_of
from dpsql.language.options import Options
from dpsql.mechanisms.base import ErrorBasis
from dpsql.mechanisms.moments import MEAN_ROWS, Count, Output, Sum
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
from dpsql.privacy.filters import ACCOUNTANTS

SMALLEST_DELTA = Fraction(1, 10**25)
"""The smallest delta of Gaussian noise: deltas are computed in steps of a 10^30th."""
_DIGITS = 4
"""Digits of an epsilon that is looked for: people read it."""
_CLEARLY = 1 - 1e-9
"""Gaussian noise is taken where its error is smaller by more than the rounding of floats."""

Dealt = Sequence[tuple[Aggregate, Amount]]
"""Aggregates that are made of moments, each with its share."""


@dataclass(frozen=True)
class MomentNoise:
    """The statistics of a block's moments, by aggregate and moment, with noise of one kind.

    Args:
        said: what EXPLAIN says of the choice; empty where there was none.
        part: the part of the epsilon asked for that Gaussian noise is calibrated at.
    """

    statistics: Mapping[tuple[str, str], Statistic]
    said: str = ""
    part: Fraction = Fraction(1)

    def build(self, aggregate: Aggregate) -> Output:
        """Return the output of an aggregate."""
        assert aggregate.formula is not None
        partials = aggregate.formula.partials
        return aggregate.formula.build(*(self.statistics[aggregate.name, p.name] for p in partials))

    @property
    def is_gaussian(self) -> bool:
        """Tell whether the noise is Gaussian."""
        return any(isinstance(s.noise, GaussianNoise) for s in self.statistics.values())

    @property
    def event(self) -> Event:
        """The charge of all moments."""
        return compose_events(s.noise.event for s in dict.fromkeys(self.statistics.values()))

    def compare(self, other: MomentNoise) -> float:
        """Return its expected error in parts of that of another, in the geometric mean over all moments."""
        pairs = ((s.noise, other.statistics[key].noise) for key, s in self.statistics.items())
        logs = [math.log(mine.mean_error) - math.log(its.mean_error) for mine, its in pairs]
        return math.exp(sum(logs) / len(logs))


@dataclass(frozen=True)
class DealtMoment:
    """A moment as one aggregate needs it: its part of the share, and how far one unit moves it in how many groups."""

    aggregate: str
    column: str
    part: Amount
    parts: int
    sensitivity: int
    groups: int


@dataclass(frozen=True)
class NoiseMaker:
    """A maker of the noise of a block's moments.

    Args:
        exact: what one unit moves each moment by.
        groups: groups that one unit may be in.
    """

    exact: Exact
    groups: int

    def list_moments(self, dealt: Dealt, gaussian: bool) -> Iterator[DealtMoment]:
        """Yield the moments of all aggregates, for noise of a kind; one that several need comes for each of them."""
        for aggregate, amount in dealt:
            partials = aggregate.formula.partials if aggregate.formula is not None else ()
            for partial in partials:
                reach = self.exact.reach(partial, self.groups, gaussian)
                parts = len(partials)
                yield DealtMoment(aggregate.name, partial.name, amount / parts, parts, *reach)

    def add_laplace(self, dealt: Dealt) -> MomentNoise:
        """Return moments with Laplace noise, each of its part of the aggregate's share."""
        found = {}
        for moment in self.list_moments(dealt, gaussian=False):
            reach = moment.sensitivity, moment.groups
            epsilon = moment.part.find_epsilon(_price_laplace(*reach))
            noise = LaplaceNoise(epsilon, *reach)
            found[moment.aggregate, moment.column] = Statistic(moment.column, noise)
        return MomentNoise(found)

    def add_gaussian(self, dealt: Dealt, epsilon: Fraction, delta: Fraction, blocks: int = 1) -> MomentNoise:
        """Return moments with Gaussian noise that is calibrated for all of them, in so many blocks, at (epsilon, delta)."""
        whole = blocks * sum((amount.total for _, amount in dealt), Fraction(0))

        def make(moments: Sequence[DealtMoment]) -> Noise:
            reach, share = (moments[0].sensitivity, moments[0].groups), _add_parts(moments) / whole
            if share == 1:
                return GaussianNoise.calibrate(epsilon, delta, *reach)
            return JointGaussianNoise.calibrate_share(epsilon, delta, *reach, share)

        return self._add_by_column(dealt, make)

    def add_gaussian_of_mu(self, dealt: Dealt, declared: Fraction) -> MomentNoise:
        """Return moments with Gaussian noise whose squared mus are the shares.

        Args:
            dealt: with shares in mu or rho.
            declared: the delta of the pair that basic composition adds for one aggregate.
        """

        def make(moments: Sequence[DealtMoment]) -> Noise:
            squared = sum((moment.part.mu_squared or Fraction(0) for moment in moments), Fraction(0))
            delta = sum((declared / moment.parts for moment in moments), Fraction(0))
            return GaussianNoiseByMu.of_mu(squared, delta, moments[0].sensitivity, moments[0].groups)

        return self._add_by_column(dealt, make)

    def _add_by_column(self, dealt: Dealt, make: Callable[[Sequence[DealtMoment]], Noise]) -> MomentNoise:
        """Return moments with the noise that is made once for each column, of all shares of it."""
        columns: dict[str, list[DealtMoment]] = {}
        for moment in self.list_moments(dealt, gaussian=True):
            columns.setdefault(moment.column, []).append(moment)
        found: dict[tuple[str, str], Statistic] = {}
        for column, moments in columns.items():
            statistic = Statistic(column, make(moments))
            found |= {(moment.aggregate, column): statistic for moment in moments}
        return MomentNoise(found)


def _add_parts(moments: Iterable[DealtMoment]) -> Fraction:
    return sum((moment.part.total for moment in moments), Fraction(0))


def _price_laplace(sensitivity: int, groups: int) -> Callable[[Fraction], Event]:
    return lambda epsilon: DiscreteLaplace(epsilon, sensitivity, groups)


# -- which of the two -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseChoice:
    """The noise that a block asks for, and the session that it is charged in.

    Args:
        maker: makes the noise.
        options: of the block.
        catalog: with the session's accountant and budget.
        private: whether groups are selected, which takes a delta.
        moments: whether there is anything that needs such noise.
        blocks: how many blocks like this are calibrated together.
        chosen: what was chosen for the first of them.
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
        """LAPLACE, GAUSSIAN or AUTO: AUTO by itself where the block's own OPTIONS give a delta.

        A mu or a rho means Gaussian noise of exactly that, where no other is asked for.
        """
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
        """The parts of delta that are for the noise: one, where it is Gaussian or may be; selected groups have as much."""
        if not self.moments or self._in_own_currency:
            return 0
        return int(self.word == "GAUSSIAN" or (self.word == "AUTO" and self._may_be_gaussian))

    @property
    def _may_be_gaussian(self) -> bool:
        """Tell whether AUTO may take Gaussian noise: the block has a delta anyway, and the session can count it."""
        budget = self.catalog.policy.budget
        given = self.options.get("delta", budget.default_delta)
        delta = given if self.private or self._has_own_delta else None
        if not delta or delta / 2 < SMALLEST_DELTA or self.options.get("error") is not None:
            return False
        if ACCOUNTANTS[self.catalog.accountant].has_rule:
            return bool(budget.delta) or budget.own is not None
        return bool(delta <= budget.delta)

    def choose(self, dealt: Dealt, share: BudgetShare, aggregates: int) -> MomentNoise:
        """Return the noise of a block's moments.

        Args:
            dealt: aggregates that are made of moments, each with its share.
            share: the block's budget, with :attr:`delta_parts` for the noise.
            aggregates: how many the block has in all.

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
            return self._take_laplace(
                dealt, "only a delta in the statement's own OPTIONS allows Gaussian noise"
            )
        epsilon, delta = sum((amount.total for _, amount in dealt), Fraction(0)), share.delta_part
        if self.word == "GAUSSIAN":
            if delta < SMALLEST_DELTA:
                raise self.options.refuse(
                    "delta", "this delta is too small for Gaussian noise.", "leave noise out, or write delta = 1e-6.",
                    PrivacyError,
                )  # fmt: skip
            return self.maker.add_gaussian(dealt, epsilon, delta)
        if self.chosen is not None:
            if not self.chosen.is_gaussian:
                return self.maker.add_laplace(dealt)
            return self.maker.add_gaussian(dealt, epsilon * self.chosen.part, delta)
        whole, all_of_delta = epsilon * self.blocks, delta * self.blocks
        held = self._hold(self.maker.add_laplace(dealt).event, whole, all_of_delta)
        if held <= 0:
            return self._take_laplace(dealt, "Gaussian noise of the same charge would drown everything")
        pair = f" of ε={write_number(held)}, δ={write_number(all_of_delta)}"
        if held < whole:
            pair += f" (which costs the session as much as Laplace noise of ε={write_number(whole)})"
        compared = self.maker.add_gaussian(dealt, held, all_of_delta, self.blocks)
        noise = self._take_better(dealt, compared, pair)
        if not noise.is_gaussian:
            return noise
        alone = self.maker.add_gaussian(dealt, held / self.blocks, delta)
        return replace(alone, said=noise.said, part=held / whole)

    def _take_laplace(self, dealt: Dealt, why: str) -> MomentNoise:
        return replace(self.maker.add_laplace(dealt), said=f"Noise: AUTO takes Laplace noise: {why}.")

    def _take_better(self, dealt: Dealt, gaussian: MomentNoise, pair: str) -> MomentNoise:
        laplace = self.maker.add_laplace(dealt)
        ratio = gaussian.compare(laplace)
        if ratio < _CLEARLY:
            said = f"Noise: AUTO takes Gaussian noise{pair}: its expected error is {ratio:.3g} times that of Laplace noise."
            if ACCOUNTANTS[self.catalog.accountant].has_rule and self.catalog.policy.budget.own is None:
                said += " It has no pure loss, so the session's plain sum of ε ends with it."
            return replace(gaussian, said=said)
        why = f"its expected error is {1 / ratio:.3g} times that of Gaussian noise{pair}"
        return self._take_laplace(dealt, why)

    def _hold(self, laplace: Event, epsilon: Fraction, delta: Fraction) -> Fraction:
        """Return the epsilon, at most the one given, at which Gaussian noise costs the session no more than Laplace noise."""
        kind = ACCOUNTANTS[self.catalog.accountant]
        if not kind.has_rule:
            return epsilon
        most = self.blocks * (laplace.mu**2 if kind.currency == "mu" else 2 * laplace.rho)
        if gaussian_mu(epsilon, delta) ** 2 <= most:
            return epsilon
        held = round_significant(gaussian_epsilon(shorten(compute_root(most)), delta), _DIGITS)
        while held > 0 and gaussian_mu(held, delta) ** 2 > most:
            held = round_significant(held * (1 - Fraction(1, 10**_DIGITS)), _DIGITS)
        return min(held, epsilon)


_FARTHEST = 1 << 20
"""The greatest multiple of the block's epsilon that is tried for a hint."""


@dataclass(frozen=True)
class FittedOutputs:
    """The outputs of a block with the noise that an error asks for.

    Args:
        outputs: in the order of the aggregates.
        reduced: names of those whose noise is reduced while they are released.
        sentences: what EXPLAIN says of the others.
        is_gaussian: whether their noise is Gaussian, and takes a part of delta.
    """

    outputs: tuple[Output, ...]
    reduced: tuple[str, ...]
    sentences: tuple[str, ...]
    is_gaussian: bool = False


def check_fits(aggregates: Sequence[Aggregate]) -> None:
    """Refuse an error where it can't be had.

    Raises:
        BindError: shares of epsilon are named beside it. PrivacyError: an aggregate has no interval that it could narrow.
    """
    for a in aggregates:
        what, name = None, label_of(a.call)
        if a.share is not None:
            what, hint = f"error decides what {name} may take of epsilon.", "leave its own epsilon out."
            raise BindError(what, span=span_of(a.call.node), hint=hint)
        if a.formula is None:
            what = f"error is for counts, sums and means, and {name} has noise of another kind."
        elif a.shown is not None:
            what = f"error is for numbers, and {name} is none."
        if what is not None:
            raise PrivacyError(
                what, span=span_of(a.call.node), hint="leave error out, or ask for it by itself."
            )


def _is_public(output: Output) -> bool:
    """Say whether the width of an output's interval is known beforehand."""
    return isinstance(output, Count | Sum)


def fit_outputs(
    options: Options, aggregates: Sequence[Aggregate], epsilon: Fraction, delta: Fraction | None, maker: NoiseMaker
) -> FittedOutputs:  # fmt: skip
    """Return the outputs with the noise that the error asks for.

    Args:
        options: with the error.
        aggregates: checked by :func:`check_fits`.
        epsilon: what they may take together.
        delta: what Gaussian noise may take of all of them; None for Laplace noise.
        maker: makes the noise.

    Raises:
        PrivacyError: epsilon can't give the error; nothing is paid.
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
    parts = [need if _is_public(o) else rest for need, o in zip(known, whole, strict=True)]
    outputs = tuple(build(a, epsilon * part) for a, part in zip(aggregates, parts, strict=True))
    said = (
        _say(options, o.name, epsilon * part) for o, part in zip(outputs, parts, strict=True) if _is_public(o)
    )
    return FittedOutputs(outputs, tuple(open_ones), tuple(said))


def _fit_gaussian(
    options: Options, aggregates: Sequence[Aggregate], epsilon: Fraction, delta: Fraction, maker: NoiseMaker
) -> FittedOutputs:  # fmt: skip
    """Return counts and sums with Gaussian noise of one calibration.

    Each alone would take a mu for its error; squared mus add up, and epsilon is what their sum comes to at delta.
    """
    whole = []
    for a in aggregates:
        alone = [(a, Amount("epsilon", epsilon))]
        whole.append(maker.add_gaussian(alone, epsilon, delta).build(a))
    if not all(map(_is_public, whole)):
        what = "the noise of means is reduced step by step, which is proved for Laplace noise."
        raise options.refuse("noise", what, "leave noise out.", PrivacyError)
    needs = [_find_need(options, output) for output in whole]
    known = [gaussian_mu(epsilon * need, delta) ** 2 for need in needs if need is not None]
    taken = round_significant(
        gaussian_epsilon(shorten(compute_root(sum(known, Fraction(0)))), delta), 5, up=True
    )
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
    """Find the least factor of epsilon at which a width is within an error, rounded up; None where there is none near."""
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
    options: Options, needed: Fraction | None, epsilon: Fraction, outputs: Sequence[Output], reach: float,
    more: bool = False,
) -> Error:  # fmt: skip
    """Make the refusal.

    Args:
        options: with the error.
        needed: the epsilon that the error takes; None where none is enough.
        epsilon: what there is.
        outputs: those whose error it is.
        reach: the error that epsilon allows.
        more: whether there are others, which need some of it too.
    """
    names = ", ".join(o.name for o in outputs)
    given = write_number(epsilon, up=False)
    error = write_number(options.get("error"))
    if needed is None:
        hint = "write a larger error."
        return options.refuse("error", f"no epsilon gives {names} within ±{error}.", hint, PrivacyError)
    within = round_significant(Fraction(reach), 3, up=True)
    what = f"{names} within ±{error} takes ε={write_number(needed)}, and there is ε={given}."
    hint = f"write epsilon = {write_number(needed * (2 if more else 1))}, or error = {write_number(within)}."
    return options.refuse("error", what, hint, PrivacyError)
