"""Group selection for units in several groups: one table of probabilities, accounted for all groups together.

A group of n units is kept with probability p(n), independently of all others, as in
:class:`~dpsql.mechanisms.per_group.GroupSelector`. One more unit raises the counts of at most m groups by one, so a
neighbour's answer has m decisions with p(n + 1) in place of p(n). An even split of (epsilon, delta) allows each a loss
of epsilon / m, however improbable the loss. But keeping a group of few units is improbable, so a larger loss there
costs little: the pair follows from the divergence of one Rényi order, which adds up exactly over independent decisions.
For m = 5, 20 and 50 a group is kept more often than not from 41, 67 and 90 units on instead of 67, 263 and 657 (epsilon
= 1, delta = 1e-6; from 41, 67 and 106 if the session sums divergences of order 3.5, from 41, 94 and 231 if it sums rho or mu).

Relation: ADD_REMOVE. Guarantee: (epsilon, delta)-DP. With d the delta of one decision, ``1 - (1 - d)^m <= aside``, the
table has

    p(n) = (1 - d) p0,   p(n + 1) = (1 - d) q0 + d,   D_a(p0 | q0) <= R / m   and   D_a(q0 | p0) <= R / m

for the Bernoulli distributions of p0 and q0 and one order a: a part of probability d shows nothing on one side and the
group on the other, and the rest has a divergence of at most R over all m decisions. R is the bound of Canonne, Kamath
and Steinke 2020 (Proposition 12) for (epsilon, rest), with ``1 - (1 - aside) (1 - rest) = delta``. Every step is as
large as that allows, which is optimal for this order (Harrison, Manurangsi 2026, arXiv 2603.09167; Desfontaines, Voss,
Gipson, Mandayam 2022 have the optimum for one decision and (epsilon, delta)). No optimum for several groups under
(epsilon, delta) is known; the order, and the part of delta reserved as ``aside``, are a choice.

So that no session is charged more than for even shares, whatever it counts, a step may have further bounds: at each of
``orders``, which the session sums, at most the divergence of a decision of epsilon / m; and if the table is ``held``,
at most its rho and mu. The rho of a step is bounded by ``max(KL, w^2 (1 - 2x) / (4 ln((1 - x) / x)))`` over both
directions, with w the range of the loss and x the probability to keep: a coin of probability x has a centred moment
generating function below ``exp(t^2 (1 - 2x) / (4 ln((1 - x) / x)))`` (Kearns, Saul 1998), so ``D_a <= KL + (a - 1)
times that``. Its mu is ``z(q0) - z(p0)``, with z the normal quantile.

Floats only propose a step. Interval arithmetic on the table's exact numbers checks it, or makes it smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.per_group import GroupSelector, split_delta
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import round_significant
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, GroupSelection, RenyiSelection, find_rest

FEWEST_GROUPS = 3
"""The least groups per unit for which the table is used: for two it is within one unit of even shares."""
LARGEST_SHARE = Fraction(1, 3)
"""The greatest epsilon per group for which the table is used: above it, even shares need few units anyway."""
LONGEST_TABLE = 3000
"""About the most rows of a table, which takes two seconds; if more are needed, even shares are used."""

_BITS = 144
_SHRUNK = 1 - 2.0**-24
_NEAR = 0.02
"""The usual relative difference of consecutive steps."""
_TRIES = 30
_NORMAL = NormalDist()


@dataclass(frozen=True)
class SelectionTerms:
    """The bounds on the loss of one step of a table.

    Args:
        limits: Rényi orders, each with the greatest divergence of one decision.
        rho, mu: the greatest of one decision; None if unbounded.
    """

    limits: tuple[tuple[Fraction, Fraction], ...]
    step: Fraction
    rho: Fraction | None = None
    mu: Fraction | None = None


@dataclass(frozen=True)
class RenyiGroupSelector(GroupSelector):
    """Keeps each group at random by a table that is accounted for all groups of a unit together.

    Relation, guarantee and the caller's duties: as for :class:`~dpsql.mechanisms.per_group.GroupSelector`, by the proof
    in the module's docstring.

    Args:
        held: whether it may cost no more rho and mu than even shares of epsilon.
        orders: Rényi orders at which it may not diverge more than even shares.
    """

    held: bool = True
    orders: tuple[Fraction, ...] = ()

    @property
    def aside(self) -> Fraction:
        """The part of delta for the groups of one unit; the rest is for the conversion."""
        return self.delta / 2

    @property
    def order(self) -> Fraction:
        """The Rényi order: of the valid ones, one near which most groups are kept."""
        rest = find_rest(self.delta, self.aside)
        logarithm = math.log(rest.denominator) - math.log(rest.numerator)
        return 1 + Fraction(f"{1.4 * logarithm / float(self.epsilon):.3g}")

    @property
    def divergence(self) -> Fraction:
        """The greatest divergence, at that order, of all decisions on one unit's groups together."""
        limit = conversions.find_renyi_limit(self.order, self.epsilon, find_rest(self.delta, self.aside))
        return round_significant(limit, 12)

    @property
    def terms(self) -> SelectionTerms:
        rho = conversions.laplace_rho(self.epsilon / self.groups) if self.held else None
        mu = conversions.laplace_mu(self.epsilon / self.groups) if self.held else None
        even = GroupSelection(self.epsilon, self.delta, self.groups)
        limits = [(self.order, self.divergence), *((order, even.renyi(order)) for order in self.orders)]
        each = tuple((order, divergence / self.groups) for order, divergence in limits)
        return SelectionTerms(each, split_delta(self.aside, self.groups), rho, mu)

    @property
    def event(self) -> Event:
        pair, spent = (self.epsilon, self.delta), (self.order, self.divergence, self.aside)
        return RenyiSelection(*pair, self.groups, *spent, self.held, self.orders)

    @property
    def per_key(self) -> tuple[Fraction, Fraction]:
        return self.epsilon, self.terms.step

    def sentence(self) -> str:
        how = f"Rényi order {float(self.order):.3g} for {self.groups} groups of a unit together"
        return super().sentence().replace("(optimal,", f"(optimal at {how},", 1)

    def _table(self) -> tuple[int, ...]:
        return compute_renyi_table(self.terms)


def make_group_selector(
    selector: GroupSelector, held: bool, orders: tuple[Fraction, ...] = ()
) -> GroupSelector:
    """Return the selector that keeps more groups at equal epsilon and delta: ``selector``, or one by a table for all groups.

    ``held``: whether it may cost no more rho and mu, for sessions that count in these; ``orders``: Rényi orders at
    which it may not diverge more, for sessions that sum these.
    """
    if selector.strategy != "optimal" or selector.groups < FEWEST_GROUPS:
        return selector
    if selector.epsilon > LARGEST_SHARE * selector.groups**2 or selector.delta >= Fraction(1, 10):
        return selector
    doubt = math.log(selector.delta.denominator) - math.log(selector.delta.numerator)
    growth = selector.groups / 1.5 if held else 2.2 * math.log(selector.groups)
    if (3 + growth) * doubt > LONGEST_TABLE * float(selector.epsilon):
        return selector
    other = RenyiGroupSelector(**vars(selector), held=held, orders=orders)
    return other if other.divergence > 0 else selector


# -- the table --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def compute_renyi_table(terms: SelectionTerms) -> tuple[int, ...]:
    """Compute the keep probability of 0, 1, 2, ... units, up to the first that is 1: numerators over the last one.

    The conditions are equal for a step from p to q and one from 1 - q to 1 - p, so the upper half mirrors the lower one.
    """
    return _Stepper(terms).climb()


class _Stepper:
    """Computes the rows of a table, each from the previous one, as integers over ``one``."""

    def __init__(self, terms: SelectionTerms) -> None:
        self.one = 1 << (128 + (terms.step.denominator // terms.step.numerator).bit_length())
        self.step = math.floor(terms.step * self.one)
        self.checks = _Checks(terms)
        self.taken = 1.0

    def climb(self) -> tuple[int, ...]:
        one, found = self.one, [0]
        while 2 * found[-1] < one:
            found.append(self.advance(found[-1]))
        *below, beyond = found
        for last in range(len(below)):
            target = one - below[last]
            if target <= beyond and self._leads(below[-1], target):
                return (*below, *(one - x for x in reversed(below[: last + 1])))
        if self._leads(beyond, one - below[-1]):
            return (*found, *(one - x for x in reversed(below)))
        while found[-1] < one:  # the halves do not meet
            found.append(self.advance(found[-1]))
        return tuple(found)

    def advance(self, p: int) -> int:
        """Return, up to a negligible amount, the largest probability that a step from ``p`` may certainly reach."""
        rest = self.one - self.step
        if p >= rest:
            return self.one
        if p == 0:
            return self.step
        logit = math.log(p) - math.log(rest - p)
        self.taken = self.checks.propose(logit, self.taken)
        for tried in range(_TRIES):
            q = min(rest - 1, _at(logit + self.taken * _SHRUNK / 2**tried, rest)) + self.step
            if self._leads(p, q):
                return q
        return p + self.step * (rest - p) // rest  # only the step of delta

    def _leads(self, p: int, q: int) -> bool:
        """Return whether one more unit may certainly raise one probability to another."""
        rest = self.one - self.step
        if p >= q - self.step or q >= self.one:
            return p == q or q == self.one <= p + self.step
        return self.checks.holds(Fraction(p, rest), Fraction(q - self.step, rest))


def _at(logit: float, one: int) -> int:
    """Return the number whose odds against ``one`` have this logit."""
    small = math.exp(-abs(logit)) / (1 + math.exp(-abs(logit)))
    scaled = int(math.ldexp(small, 1000)) * one >> 1000
    return scaled if logit < 0 else one - scaled - 1


@dataclass(frozen=True)
class _Chance:
    """A probability, in floats that are exact to 15 digits at both ends."""

    logit: float

    @classmethod
    def of(cls, p: int, one: int) -> _Chance:
        return cls(math.log(p) - math.log(one - p))

    @property
    def low(self) -> float:
        return -math.log1p(math.exp(-self.logit)) if self.logit > -700 else self.logit

    @property
    def high(self) -> float:
        return -math.log1p(math.exp(self.logit)) if self.logit < 700 else -self.logit

    @property
    def quantile(self) -> float:
        if self.logit <= 0:
            return _NORMAL.inv_cdf(max(math.exp(self.low), 1e-300))
        return -_NORMAL.inv_cdf(max(math.exp(self.high), 1e-300))

    @property
    def variance(self) -> float:
        """The variance proxy of Kearns and Saul."""
        return math.tanh(self.logit / 2) / (4 * self.logit) if abs(self.logit) > 1e-4 else 0.125


class _Checks:
    """The conditions on one step of a table: proposed in floats, decided in intervals."""

    def __init__(self, terms: SelectionTerms) -> None:
        self.terms = terms
        self.limits = [
            (
                ia.rational(order, _BITS),
                ia.rational(1 - order, _BITS),
                ia.exp(ia.rational((order - 1) * divergence, _BITS), _BITS)[0],
            )
            for order, divergence in terms.limits
        ]
        self.rho = None if terms.rho is None else ia.rational(terms.rho, _BITS)[0]

    # -- floats -----------------------------------------------------------------------------------------------------

    def propose(self, logit: float, near: float) -> float:
        """Return about the largest step in the logit that all conditions allow, starting the search near another."""
        p = _Chance(logit)
        allowed = self._allowed(p)
        low, high = near * (1 - _NEAR), near * (1 + _NEAR)
        while allowed(high):
            low, high = high, 2 * high
        while low > 1e-15 and not allowed(low):
            low, high = low / 2, low
        while high - low > 1e-8 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if allowed(middle) else (low, middle)
        return low

    def _allowed(self, p: _Chance) -> Callable[[float], bool]:
        limits = [(float(a), float((a - 1) * divergence)) for a, divergence in self.terms.limits]
        rho = math.inf if self.terms.rho is None else float(self.terms.rho)
        mu = math.inf if self.terms.mu is None else float(self.terms.mu)
        p_low, p_high, least = p.low, p.high, p.variance
        start = p.quantile if mu < math.inf else 0.0

        def moment(a: float, x: float, y: float, u: float, v: float) -> float:
            """Return the logarithm of the sum of x**a u**(1-a) and y**a v**(1-a), given logarithms."""
            first, second = a * x + (1 - a) * u, a * y + (1 - a) * v
            top = max(first, second)
            return top + math.log1p(math.exp(min(first, second) - top))

        def allowed(step: float) -> bool:
            q = _Chance(p.logit + step)
            low, high = q.low, q.high
            for a, room in limits:
                if max(moment(a, low, high, p_low, p_high), moment(a, p_low, p_high, low, high)) > room:
                    return False
            if mu < math.inf and q.quantile - start > mu:
                return False
            if rho == math.inf:
                return True
            ahead = math.exp(low) * (low - p_low) + math.exp(high) * (high - p_high)
            back = math.exp(p_low) * (p_low - low) + math.exp(p_high) * (p_high - high)
            return max(ahead, back, step * step * max(least, q.variance)) <= rho

        return allowed

    # -- intervals --------------------------------------------------------------------------------------------------

    def holds(self, p: Fraction, q: Fraction) -> bool:
        """Return whether a step between two probabilities certainly meets all conditions."""
        chances = [ia.rational(x, _BITS) for x in (p, 1 - p, q, 1 - q)]
        logs = [ia.log(x, _BITS) for x in chances]
        p_low, p_high, q_low, q_high = logs
        for order, other, most in self.limits:
            for x, y, u, v in ((q_low, q_high, p_low, p_high), (p_low, p_high, q_low, q_high)):
                kept, dropped = (_enclose_moment(order, other, *ends) for ends in ((x, u), (y, v)))
                if not ia.is_at_most(ia.add(kept, dropped, _BITS)[1], most):
                    return False
        return self._within_rho(p, q, chances, logs) and self._within_mu(p, q)

    def _within_rho(
        self, p: Fraction, q: Fraction, chances: list[ia.Interval], logs: list[ia.Interval]
    ) -> bool:
        if self.rho is None:
            return True
        kept = ia.subtract(logs[2], logs[0], _BITS)  # the loss if the group is kept, and if it is not
        dropped = ia.subtract(logs[3], logs[1], _BITS)
        ahead = ia.add(ia.multiply(chances[2], kept, _BITS), ia.multiply(chances[3], dropped, _BITS), _BITS)
        behind = ia.add(ia.multiply(chances[0], kept, _BITS), ia.multiply(chances[1], dropped, _BITS), _BITS)
        wide = ia.subtract(kept, dropped, _BITS)
        square = ia.multiply(wide, wide, _BITS)
        proxies = [
            ia.multiply(square, _enclose_proxy(x, logs[i], logs[i + 1]), _BITS) for i, x in ((0, p), (2, q))
        ]
        zero = ia.rational(Fraction(0), _BITS)
        costs = [ahead, ia.subtract(zero, behind, _BITS), *proxies]
        return all(ia.is_at_most(cost[1], self.rho) for cost in costs)

    def _within_mu(self, p: Fraction, q: Fraction) -> bool:
        """Return whether Phi(z + mu) is at least q for some z with Phi(z) at most p."""
        if self.terms.mu is None:
            return True
        near = _Chance.of(p.numerator, p.denominator).quantile
        z = Fraction(near - 1e-9 * (1 + abs(near)))
        if not ia.is_at_most(_phi(z)[1], ia.rational(p, _BITS)[0]):
            return False
        return ia.is_at_most(ia.rational(q, _BITS)[1], _phi(z + self.terms.mu)[0])


def _enclose_moment(order: ia.Interval, other: ia.Interval, x: ia.Interval, u: ia.Interval) -> ia.Interval:
    """Enclose ``x**a u**(1 - a)``, given logarithms."""
    return ia.exp(ia.add(ia.multiply(order, x, _BITS), ia.multiply(other, u, _BITS), _BITS), _BITS)


def _enclose_proxy(x: Fraction, log_x: ia.Interval, log_rest: ia.Interval) -> ia.Interval:
    """Enclose ``(1 - 2x) / (4 ln((1 - x) / x))``, which is 1/8 at most."""
    eighth = ia.rational(Fraction(1, 8), _BITS)
    if abs(1 - 2 * x) < Fraction(1, 1 << 20):
        return eighth
    odds = ia.multiply(ia.rational(Fraction(4), _BITS), ia.subtract(log_rest, log_x, _BITS), _BITS)
    return ia.divide(ia.rational(1 - 2 * x, _BITS), odds, _BITS)


def _phi(z: Fraction) -> ia.Interval:
    """Enclose the normal distribution function."""
    return ia.tail(ia.rational(-z, _BITS), _BITS)
