"""Caps on what one privacy unit adds, found privately (``max_rows_contributed = AUTO`` and the like), and reports of cuts.

A cap costs twice: rows above it are lost, and the noise grows with it. From cap c to the next one, c', the statistics

    q(c) = sum over units of (min(n, c') - min(n, c)) / (c' - c)        n: the unit's rows, or its groups

measure the gain: ``(c' - c) q(c)`` rows, for noise that grows by ``c' - c`` times a public number. So the sparse vector
technique climbs from 1, mostly by doubling, and stops at the first cap with q of at most a public tolerance, at which gain
and loss are equal. The found cap is then a constant.

Relation: ADD_REMOVE. Sensitivity: a unit counts once, with all of its rows together, so it adds between 0 and 1 to every q: 1,
and monotone. The loss of a cap, the sum of ``max(0, n - c)``, has unbounded sensitivity and is never asked. Guarantee: pure
epsilon of the search (:mod:`dpsql.mechanisms.selection.above_threshold`), and that of the chosen operator: their adaptive
composition, charged for the most expensive choice. The caller's query must count each unit once.

If the questions' noise is large, a small tolerance passes caps without rows above them, up to the last; a large one stops too
early. So each cap also asks about the one two below it, with a larger tolerance, and about the one three below it, with a
tolerance that statistics of 0 rows miss with probability :data:`RUNAWAY`. The proof allows each question its own tolerance.

``halfway`` is for a cap that only has to suit most units, where a lower one loses nothing: of each unit a half is subtracted
from q, so the search stops when at most half of the units gain. Then q moves by a half either way: the proof shifts the
threshold by a half, and a question by 1.

*Reports of cuts* are noisy counts of the rows removed by caps and bounds, for an analyst who may raise a cap. A unit counts
for at most what the caps allow it to add to the answers (otherwise the sensitivity would be unbounded): with caps of m rows
in each of L groups, at most m L rows and L groups above the caps, and m L times the largest size of a value outside the
bounds (ADD_REMOVE). Guarantee: that of the noises, which share the report's epsilon equally. The caller's query must apply
these limits to each unit. Only notes are released: whether something is cut, and about how much.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dpsql.catalogue.option_names import CAP_OPTIONS
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.aggregation import Answered, Group, Part
from dpsql.mechanisms.base import ClaimedText, SensitivityClaim, SumsClaim
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_geometric
from dpsql.noise.selection import flip_coins
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import read_integers
from dpsql.privacy.events import Event, PureDP, SparseVector, compose_events

CUT_SHARE = Fraction(1, 10)


@dataclass(frozen=True)
class ClippedValue:
    """A value that aggregates clamp to ``[low, high]`` grid steps: a column of the rows, its expression, steps to a unit.

    ``farthest``: the absolute value above which it is missing instead, if that is to be said.
    """

    y: str
    low: int
    high: int
    steps: Fraction
    source: str
    farthest: Fraction | None = None


@dataclass(frozen=True)
class CutNumber:
    """One number of removed rows, groups or values.

    Args:
        column: of the query's only row, in grid steps.
        what: what exceeds which cap, in words.
        counted: the limit on one unit, in words.
    """

    column: str
    what: str
    counted: str
    noise: LaplaceNoise
    steps: Fraction = Fraction(1)

    @property
    def meaning(self) -> str:
        """Its effect on an answer in words, unless it counts rows or groups."""
        lacks = "; a sum may be off by that, an average by that divided by its rows"
        return lacks if self.what.endswith("added up") else ""

    def reach(self, confidence: float) -> float:
        """Return the half width of its interval, in units."""
        return self.noise.half_width(confidence) / float(self.steps)


@dataclass(frozen=True)
class CutReport(Part):
    """Noisy numbers of the effect of caps and bounds, as notes with confidence ``level``; ``share`` is the loss in words."""

    query: str
    numbers: tuple[CutNumber, ...]
    level: float
    share: str
    keys: tuple[str, ...] = ()

    @property
    def event(self) -> Event:
        return compose_events(number.noise.event for number in self.numbers)

    def claims(self) -> Iterator[ClaimedText]:
        moved = ((n.column, SensitivityClaim(n.noise.sensitivity)) for n in self.numbers)
        yield ClaimedText(self.query, SumsClaim((), tuple(moved)))

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        notes = (self._note(number, table, entropy) for number in self.numbers)
        return Answered({}, self.event, tuple(notes))

    def _note(self, number: CutNumber, table: pa.Table, entropy: Entropy) -> str:
        exact = int(read_integers(table.column(number.column))[0]) if table.num_rows else 0
        noisy = int(number.noise.add([exact], entropy)[0]) / float(number.steps)
        reach = number.reach(self.level)
        if noisy <= reach:
            return f"cut: {number.what}: up to {_write(max(noisy, 0) + reach)}, which the noise hides{number.meaning}"
        return f"cut: {number.what}: about {_write(noisy)} ± {_write(reach)}, counting at most {number.counted} of one unit"

    def sentences(self, confidence: float) -> tuple[str, ...]:
        told = "; ".join(f"{n.what} (±{_write(n.reach(confidence))})" for n in self.numbers)
        return (
            f"Notes report the rows that caps and bounds cut, for {self.share} of the whole: {told}, with "
            f"{confidence:.4g} probability. Rows, groups and values of one privacy unit count up to the caps.",
        )

    @property
    def price_note(self) -> str:
        return f"{self.share} of it pays for the report of cuts"


def _write(number: float) -> str:
    """Return three significant digits, rounded up, with thousands separators."""
    if number >= 1000:
        return f"{math.ceil(float(f'{number:.3g}')):,}".replace(",", " ")
    return f"{number:.3g}"


SIZE, UNITS = "n", "units"
"""Columns of the histogram: the rows or groups of a unit (at most the last cap), and the number of such units."""

RUNAWAY = Fraction(1, 10**9)
"""The greatest chance of a cap more than 8 times the first one that holds every unit whole."""

_SOONER = 7
"""The additional tolerance for the cap two below the selected one, in scales of the threshold's noise."""


def list_caps(top: int) -> tuple[int, ...]:
    """Return the tried caps: 1, 2, 4 and so on, and the highest.

    >>> list_caps(20), list_caps(1)
    ((1, 2, 4, 8, 16, 20), (1,))
    """
    return (*(1 << i for i in range((top - 1).bit_length())), top)


@functools.lru_cache(maxsize=256)
def find_tolerance(rates: tuple[Fraction, Fraction], doubt: Fraction) -> int:
    """Return the least tolerance that a statistic of 0 rows misses with probability at most ``doubt``.

    The probability is a**(t + 1) (1 - b) / (1 - a b), so its logarithm is solved for t, with directed rounding.
    """
    bits = 160 + 4 * sum(max(r.denominator.bit_length() - r.numerator.bit_length(), 0) for r in rates)
    one = ia.rational(Fraction(1), bits)
    b = ia.exp(ia.rational(-rates[1], bits), bits)
    ab = ia.exp(ia.rational(-rates[0] - rates[1], bits), bits)
    factor = ia.divide(ia.subtract(one, b, bits), ia.subtract(one, ab, bits), bits)
    excess = ia.log(ia.divide(factor, ia.rational(doubt, bits), bits), bits)
    return max(0, math.ceil(ia.fraction(ia.divide(excess, ia.rational(rates[0], bits), bits)[1])) - 1)


@dataclass(frozen=True)
class CapLadder:
    """The caps to climb, and the budget for it.

    Args:
        caps: ascending; the last is taken, without a question, if no other is.
        epsilon: of the search.
        tolerance: the greatest q at which a cap is taken, in units.
        halfway: whether a half of each unit is subtracted from q.
    """

    caps: tuple[int, ...]
    epsilon: Fraction
    tolerance: Fraction
    halfway: bool = False

    def __post_init__(self) -> None:
        if not self.caps or self.caps[0] < 1 or any(a >= b for a, b in pairwise(self.caps)):
            raise ValueError("caps ascend, from 1 at least")
        if self.epsilon <= 0 or self.tolerance < 0:
            raise ValueError("a ladder needs an epsilon above 0 and a tolerance of at least 0")

    @property
    def event(self) -> SparseVector:
        from dpsql.mechanisms.selection.above_threshold import split_epsilon

        return SparseVector(*split_epsilon(self.epsilon, 1, monotone=True), 1)

    @property
    def rates(self) -> tuple[Fraction, Fraction]:
        """The rates of the threshold's and of the questions' geometric noise, per unit."""
        first, second = self.event.epsilon1, self.event.epsilon2
        return (2 * first, second) if self.halfway else (first, second)

    @cached_property
    def grid(self) -> int:
        """The steps per unit of q, so that every q is a whole number of them."""
        return math.lcm(*(b - a for a, b in pairwise(self.caps)), 2)

    @property
    def questions(self) -> tuple[tuple[int, int, int], ...]:
        """The questions in order: the cap that a positive answer selects, the compared cap, and its tolerance in steps."""
        here = math.floor(self.tolerance * self.grid)
        sooner = math.floor((self.tolerance + _SOONER / self.rates[0]) * self.grid)
        surely = max(sooner, find_tolerance((self.rates[0] / self.grid, self.rates[1] / self.grid), RUNAWAY))
        tiers = ((0, here), (2, sooner), (3, surely))
        return tuple(
            (place, place - back, tolerance)
            for place in range(len(self.caps) - 1)
            for back, tolerance in tiers
            if back <= place
        )

    def measure(self, sizes: Sequence[int], units: Sequence[int]) -> list[int]:
        """Return q of each cap but the last, in steps of the grid: one unit moves each by at most ``grid``, in one direction.

        ``sizes`` are the units' rows or groups, ``units`` the number of units of each size.
        """
        half = self.grid // 2 * sum(units) if self.halfway else 0
        found: list[int] = []
        for cap, following in pairwise(self.caps):
            gained = sum(
                many * (min(size, following) - min(size, cap))
                for size, many in zip(sizes, units, strict=True)
            )
            found.append(gained * (self.grid // (following - cap)) - half)
        return found

    def climb(self, statistics: Sequence[int], entropy: Entropy) -> int:
        """Return the place of the first cap that a question takes, or of the last; ``statistics`` are from :meth:`measure`."""
        asked = self.questions
        if not asked:
            return len(self.caps) - 1
        first, second = (rate / self.grid for rate in self.rates)
        noise = int(draw_geometric(first, 1, entropy)[0])
        short = [noise - tolerance + statistics[beyond] for _, beyond, tolerance in asked]
        # Minus q, with its noise, reaches the noisy threshold with probability exp(-rate * short), or 1: one exact coin each.
        found = np.flatnonzero(flip_coins(np.array(short, dtype=object), second, entropy))
        return asked[int(found[0])][0] if len(found) else len(self.caps) - 1


@dataclass(frozen=True)
class CapSearch(base.Operator):
    """A cap that is found privately, and the choice of an operator by it.

    Args:
        option: the cap's name, such as ``max_rows_contributed``.
        query: returns :data:`SIZE` and :data:`UNITS`; each unit is in one row only.
        caps: as of :class:`CapLadder`.
        epsilon: of the search.
        cost: the growth of the noise on one group's answer with the cap, in rows or units.
        groups: the number of answered groups, or a public query that returns it as ``n``.
        least, most: the operators for the first and for the last cap.
        between: those for the others. They follow from these two, so they are not compared.
        halfway: as of :class:`CapLadder`; then ``cost`` is unused.
        limits: the owner's caps, above which none is tried, in words; empty if there are none.
    """

    option: str
    query: str
    caps: tuple[int, ...]
    epsilon: Fraction
    cost: Fraction
    groups: int | str
    least: base.Operator
    most: base.Operator
    between: tuple[base.Operator, ...] = field(default=(), compare=False, repr=False)
    halfway: bool = False
    limits: str = field(default="", compare=False, repr=False)

    finds_cap = True

    def __post_init__(self) -> None:
        if len(self.caps) != len(self.choices) or len(self.caps) < 2:
            raise ValueError("an operator for each cap, of which there are two at least")

    @property
    def choices(self) -> tuple[base.Operator, ...]:
        """The operators by the places of their caps."""
        return (self.least, *self.between, self.most)

    def ladder(self, groups: int) -> CapLadder:
        """Return the search for ``groups`` answers: the rows lost above a cap are worth about the next cap's additional noise."""
        tolerance = Fraction(0) if self.halfway else max(1, groups) * self.cost
        return CapLadder(self.caps, self.epsilon, tolerance, self.halfway)

    @property
    def confidence(self) -> float | None:  # type: ignore[override]
        return self.least.confidence

    @cached_property
    def event(self) -> Event:
        return compose_events([self.ladder(1).event, find_dearest([choice.event for choice in self.choices])])

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query, *self.most.queries)

    @property
    def checked(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.query, *self._counts, *self.least.checked, *self.most.checked)))

    @property
    def _counts(self) -> tuple[str, ...]:
        """The query for the number of groups, if unknown."""
        return (self.groups,) if isinstance(self.groups, str) else ()

    def claims(self) -> Iterator[base.ClaimedText]:
        """Yield the texts of the search and of the choices at both ends; those between are claimed when one is taken."""
        yield base.ClaimedText(self.query, base.RowsClaim(1, moves=((UNITS, 1),)))
        for text in self._counts:
            yield base.ClaimedText(text, base.PublicClaim())
        for choice in (self.least, self.most):
            yield from choice.claims()

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        reader = base.add_salt(read, (self.query, *self.most.checked), entropy)
        groups = self.groups
        if isinstance(groups, str):
            groups = int(reader(groups).column("n")[0].as_py())
        table = reader(self.query)
        ladder = self.ladder(groups)
        sizes, units = (read_integers(table.column(name)).tolist() for name in (SIZE, UNITS))
        place = ladder.climb(ladder.measure(sizes, units), entropy)
        choice = self.choices[place]
        released = choice.release(base.hold_to(reader, choice), entropy)
        return base.Release(
            released.table, self.event, (self._note(place), *released.notes), _mark(released.noisy, place)
        )

    def _note(self, place: int) -> str:
        cap, what = self.caps[place], _WHAT[self.option]
        found = f"{self.option} = {cap}"
        if self.halfway:
            return f"groups were chosen by at most {cap} groups of each unit, a cap that was found privately"
        if not place:
            return f"{found}: no larger cap was found to be worth its noise; a larger epsilon may find one"
        if place == len(self.caps) - 1:
            of = f"that the policy allows ({self.limits})" if self.limits else "that was tried"
            more = "; a higher cap might cut less than it adds noise" if self.limits else ""
            return (
                f"{found} was found privately, the largest {of}: if a unit has more {what}, {cap} count{more}"
            )
        return f"{found} was found privately: if a unit has more {what}, {cap} count"

    @property
    def can_show_again(self) -> bool:
        return all(choice.can_show_again for choice in self.choices)

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        if noisy is None or not self.can_show_again:
            raise ValueError("the intervals of this release can't be made again")
        place, inner = _unmark(noisy)
        return self.choices[place].show_again(released, inner)

    def find_filled(self, release: base.Release, keys: tuple[str, ...], doubt: float) -> base.Booleans | None:
        if release.noisy is None:
            return None
        place, inner = _unmark(release.noisy)
        return self.choices[place].find_filled(replace(release, noisy=inner), keys, doubt)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        what, top = _WHAT[self.option], self.caps[-1]
        many = "half of the units"
        if not self.halfway:
            units = math.ceil(self.cost * (self.groups if isinstance(self.groups, int) else 1))
            each = " for each group" if isinstance(self.groups, str) else ""
            many = f"about {units} unit{'s' * (units != 1)}{each}"
        listed = ", ".join(map(str, self.caps if len(self.caps) < 6 else (*self.caps[:4], "...", top)))
        found = (
            f"{self.option} is found privately among {listed}, by ABOVE_THRESHOLD (ε={float(self.epsilon):g}): the cap is "
            f"raised as long as more than {many} have {what} above the cap."
        )
        if self.limits:
            found += f" The policy allows {self.limits}: anything more is cut, at any epsilon."
        if isinstance(self.least, CapSearch):
            return (found, *self.least.sentences(confidence))
        inner = (f"With {self.option} = 1: {line}" for line in self.least.sentences(confidence))
        return (found, *inner, f"Noise grows with {self.option}.")

    def errors(self, basis: base.ErrorBasis) -> Iterator[base.ExpectedError]:
        """Yield the errors under the cap that a release found, or else the least possible ones, under the lowest cap."""
        release = basis.release
        if release is None:
            for error in self.least.errors(basis):
                yield replace(error, condition=f"{error.condition}, with {self.option} = 1")
        elif release.noisy is not None:
            place, inner = _unmark(release.noisy)
            yield from self.choices[place].errors(replace(basis, release=replace(release, noisy=inner)))

    @property
    def price_notes(self) -> tuple[str, ...]:
        return self.least.price_notes


_WHAT = dict(zip(CAP_OPTIONS, ("groups", "rows", "rows in one group"), strict=True))
"""The noun that a cap counts, by its option."""
_PLACES = b"dpsql_caps"


def _mark(noisy: pa.Table | None, place: int) -> pa.Table:
    """Return the noisy integers with the place of the choice that they belong to."""
    table = pa.table({}) if noisy is None else noisy
    told = dict(table.schema.metadata or {})
    places = [place, *json.loads(told.get(_PLACES, b"[]"))]
    return table.replace_schema_metadata({**told, _PLACES: json.dumps(places).encode()})


def _unmark(noisy: pa.Table) -> tuple[int, pa.Table | None]:
    told = dict(noisy.schema.metadata or {})
    place, *rest = json.loads(told.pop(_PLACES))
    if rest:
        told[_PLACES] = json.dumps(rest).encode()
    inner = noisy.replace_schema_metadata(told)
    return place, inner if noisy.num_columns or rest else None


def find_dearest(events: Iterable[Event]) -> Event:
    """Return an event that costs at least as much as any of these, in every currency, made of their most expensive parts.

    They are made alike, for different caps: each has the same kinds of parts in the same order. Noise of the lowest cap costs
    most: it has the fewest steps of sensitivity and the fewest groups, and a share of the loss never costs more than the whole
    loss. Parts of one kind are compared by their costs, up to rounding.

    Raises:
        ValueError: they are not made alike, or no part costs most in all currencies.
    """
    leaves = [event.leaves() for event in events]
    return compose_events(_find_dearest_leaf(alike) for alike in zip(*leaves, strict=True))


_ROUNDED = 1 + Fraction(1, 10**15)


def _find_dearest_leaf(events: Sequence[Event]) -> Event:
    costs = {event: (*event.basic, event.delta, event.rho, event.mu) for event in events}
    for found in sorted(costs, key=lambda event: costs[event][3:], reverse=True):
        most = [amount * _ROUNDED for amount in costs[found]]
        if all(one <= other for cost in costs.values() for one, other in zip(cost, most, strict=True)):
            return found
    pure = [event.pure for event in costs if event.pure is not None]
    if len(pure) == len(costs):
        return PureDP(max(pure))
    raise ValueError("no event is the dearest in every currency")
