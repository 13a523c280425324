"""Combiners of block results, and votes for results that are not numbers.

Every block casts one vote (or one per feature), so one privacy unit changes ``rounds`` votes, each moving 1 from one
count to another: no count moves by more than 1 per round, two do, and in opposite directions (so the sharper noise for
monotone counts is not valid). The relation is substitution of block results, whatever the relation of rows, and the
number of blocks is public.

Sources: Dwork and Roth (2014) examples 7.1 to 7.3 and algorithms 13 and 14; Smith and Thakurta (2013).
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import mpmath
import numpy as np
import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import ClaimedText, Read, Release
from dpsql.mechanisms.moments import Estimate
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import NOT_STABLE, OptimalTest, StabilityTest, measure_votes_radius
from dpsql.mechanisms.subsample.blocks import BlockOperator
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential, permute_and_flip
from dpsql.privacy.events import BoundedRange, Event, PureDP, compose_events

Results = Sequence[Any]
"""The results of blocks: any objects that a query or an analyst's function returns."""
ResultKind: TypeAlias = pa.DataType | None
"""The common type of all results, if known."""
Combined = tuple[Mapping[str, pa.Array], tuple[str, ...]]
"""Released columns, and notes."""


class Combiner(ABC):
    """Computes one released value from the block results of one output column."""

    name: str

    @property
    @abstractmethod
    def event(self) -> Event: ...

    @abstractmethod
    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        """Return the released columns, and notes."""

    @abstractmethod
    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]: ...


_TIMES = (datetime.date, datetime.time, datetime.timedelta)
_SCALARS = (bool, int, str, bytes, decimal.Decimal, uuid.UUID, pa.MonthDayNano, *_TIMES)


def read_vote(value: object) -> tuple[str, Any] | None:
    """Return the label that equal results share, and its value; None for results that can't be voted for.

    Labels distinguish types (1, 1.0 and TRUE are three results), so the value released for a label does not depend on
    the order of blocks. NaN, NULL and foreign objects are no votes; lists and sets become tuples.

    >>> read_vote([3, 4])
    ('(int 3, int 4)', (3, 4))
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else (f"float {value + 0.0!r}", value + 0.0)
    if type(value) in _SCALARS or isinstance(value, datetime.datetime):
        return f"{type(value).__name__} {value!r}", value
    if isinstance(value, dict):  # independent of the order of keys
        pairs = sorted((read_vote(item) for item in value.items()), key=lambda pair: pair[0] if pair else "")
        known = [pair for pair in pairs if pair is not None]
        if len(known) < len(pairs):
            return None
        return "{" + ", ".join(label for label, _ in known) + "}", dict(pair for _, pair in known)
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        parts = [read_vote(part) for part in value]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if isinstance(value, set | frozenset):
            known.sort(key=lambda part: part[0])
        return "(" + ", ".join(label for label, _ in known) + ")", tuple(v for _, v in known)
    return None


def count_votes(values: Sequence[object], default: object = None) -> dict[str, tuple[int, object]]:
    """Count votes, with values, by label; results that can't be voted for count for the default, if there is one."""
    counts: dict[str, tuple[int, object]] = {}
    for value in values:
        found = _tried(value) or read_vote(default)
        if found:
            counts[found[0]] = (counts.get(found[0], (0, None))[0] + 1, found[1])
    return counts


def _tried(value: object) -> tuple[str, object] | None:
    """Read a vote, or None if an analyst's object fails, so that one block's result stops no others."""
    try:
        return read_vote(value)
    except Exception:
        return None


def find_winner(
    values: Sequence[object], default: object = None, rounds: int = 1
) -> tuple[tuple[str, object] | None, int]:
    """Return label and value of the most frequent vote, and its radius: :func:`measure_votes_radius`.

    The first label wins ties, so that the winner is a function of the counts. Without votes there is none.
    """
    leading = sorted(count_votes(values, default).items(), key=lambda item: (-item[1][0], item[0]))
    counts = [count for _, (count, _) in leading[:2]] + [0, 0]
    radius = measure_votes_radius(counts[0], counts[1], rounds)
    return (leading[0][0], leading[0][1][1]) if leading else None, radius


def make_column(name: str, value: object, type: pa.DataType | None) -> Mapping[str, pa.Array]:
    """Return a column of one value, in this type if it fits, else as text."""
    if isinstance(value, tuple) and not isinstance(value, pa.MonthDayNano):  # an INTERVAL is a tuple, too
        value = list(value)
    try:
        return {name: pa.array([value], type) if type is not None else pa.array([value])}
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # such as a list of numbers and texts
        shown = repr(value).encode("utf-8", "backslashreplace").decode()
        return {name: pa.array([shown], pa.string())}


@dataclass(frozen=True)
class NoisyMode(Combiner):
    """``combine = 'noisy_mode'``: a vote that is likely among the most frequent; never exact.

    Args:
        candidates: a public list of possible results. Then permute-and-flip (``exponential``: the exponential
            mechanism) chooses one of them, with the general factor 2: weight exp(epsilon votes / 2). Other results are
            no votes.
        selection: for possible results that are not public. First each result with votes is kept with the probability
            that the optimal test gives its count, then one of those kept is chosen. A changed vote affects two results,
            by 1 each, like a unit in two groups: so the test must be made with ``groups = 2`` and is (epsilon, delta)
            as a whole; a result seen in one block is kept with probability at most delta / 2. The choice is made among
            names already released. No result kept: NULL.
        default: vote of a block without a result; None: it does not vote.

    Loss: epsilon (pure; bounded range if ``exponential``), and the selection's.
    """

    name: str
    epsilon: Fraction
    candidates: tuple[object, ...] | None = None
    selection: OptimalTest | None = None
    exponential: bool = False
    default: object = None

    def __post_init__(self) -> None:
        if (self.candidates is None) == (self.selection is None):
            raise ValueError("either the candidates are public, or they are selected privately")
        if self.selection is not None and self.selection.groups != 2:
            raise ValueError(
                "one changed vote touches two results: the selection must be made for two groups"
            )

    @property
    def event(self) -> Event:
        choice = BoundedRange(self.epsilon) if self.exponential else PureDP(self.epsilon)
        return compose_events([choice, self.selection.event]) if self.selection else choice

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        counts = count_votes(values, self.default)
        if self.candidates is not None:
            labels = dict(filter(None, map(read_vote, self.candidates)))
            options = [(counts.get(label, (0, None))[0], value) for label, value in labels.items()]
        else:
            assert self.selection is not None
            found = list(counts.values())
            kept = self.selection.passes([count - 1 for count, _ in found], entropy) if found else []
            options = [option for option, keep in zip(found, kept, strict=True) if keep]
        if not options:
            return make_column(self.name, None, type), (
                f"{self.name}: no result had enough votes to be named",
            )
        scores = np.array([count for count, _ in options], dtype=np.int64)
        choose = choose_exponential if self.exponential else permute_and_flip
        return make_column(self.name, options[choose(scores, self.epsilon / 2, entropy)][1], type), ()

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        how = "the exponential mechanism" if self.exponential else "permute-and-flip"
        if self.candidates is not None:
            size = max(len(self.candidates), 1)
            behind = 2 / float(self.epsilon) * (math.log(size) - math.log(1 - confidence))
            return (
                f"{self.name}: a vote among {size} public candidates by {how}, ε = {float(self.epsilon):.4g}; the winner "
                f"has at most {behind:.1f} of {blocks:,} votes fewer than the best, at {confidence:.0%}.",
            )
        assert self.selection is not None
        return (
            f"{self.name}: a vote; results are named if enough blocks agree (surely from "
            f"{self.selection.cap + 1} of {blocks:,} votes, rarely below {self.selection.needed(0.5) + 1}), then {how} "
            f"chooses among them with ε = {float(self.epsilon):.4g}.",
        )


@dataclass(frozen=True)
class StableMode(Combiner):
    """``combine = 'stable_mode'``: the most frequent vote, exact, if it leads by enough; else NULL.

    Algorithm A_dist on the votes: radius ceil((c1 - c2) / (2 rounds)) - 1 (``measure_votes_radius``), then the test.
    Loss: the test's, independent of the number of possible results. ``rounds`` is the number of votes that one unit can
    change: 1 for disjoint blocks, J for J balanced partitions, and the cap 2mq of :class:`Participation` for the
    textbook's independent subsamples.
    """

    name: str
    test: StabilityTest
    rounds: int = 1
    default: object = None

    @property
    def event(self) -> Event:
        return self.test.event

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        winner, radius = find_winner(values, self.default, self.rounds)
        passed = self.test.passes([radius], entropy)[0] and winner is not None
        value = winner[1] if passed and winner is not None else None
        return make_column(self.name, value, type), () if passed else (f"{self.name}: {NOT_STABLE}",)

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        gap = 2 * self.rounds * (self.test.needed(0.99) + 1)
        lead = f"a lead of {gap:,} of {blocks:,} votes is released in 99 of 100 runs"
        if gap > blocks:
            lead = f"even unanimous votes rarely are enough: {gap:,} would be needed, there are {blocks:,}"
        return (f"{self.name}: the winning vote, exact, if it is stable: {lead}; {self.test.sentence()}.",)


@dataclass(frozen=True)
class Participation:
    """The textbook's independent subsamples (A_samp): each unit joins each of m runs with probability q.

    Args:
        query: returns ``most``, the largest number of runs of one unit (its id, never a value).
        q, runs: the sampling. More than ``cap`` = floor(2 m q) runs of a unit give NULL.

    Whether the check fails depends on coins alone, not on values. Under ADD_REMOVE one more unit means more coins, and
    they fail the check with probability at most ``failure``: a Chernoff bound, to be reserved from delta (the ``slack``
    of the test).
    """

    query: str
    q: Fraction
    runs: int

    @property
    def cap(self) -> int:
        """The most runs of a unit."""
        return max(1, math.floor(2 * self.runs * self.q))

    @property
    def failure(self) -> Fraction:
        """The bound Pr[Bin(m, q) > 2 m q] <= (e/4)^(m q), rounded up."""
        with mpmath.workprec(100):
            mean = mpmath.mpf((self.runs * self.q).numerator) / (self.runs * self.q).denominator
            bits = 256
            bound = mpmath.exp(mean * (1 - mpmath.log(4))) * mpmath.mpf(2) ** bits
            return Fraction(int(mpmath.floor(bound)) + 1, 1 << bits)

    def holds(self, read: Read, query: str) -> bool:
        """Return whether no unit is in too many runs."""
        most = read(query).column("most")[0].as_py()
        return most is None or int(most) <= self.cap


def compute_textbook_sampling(epsilon: Fraction, delta: Fraction, n: int) -> tuple[Fraction, int]:
    """Compute the textbook's q and m for n units (public): q = epsilon / (64 ln(1/delta)), m = ln(n/delta) / q^2.

    q is rounded down. EXPLAIN shows m, twenty million runs at epsilon = 1, delta = 1e-6 and n = 100,000, in advance.

    >>> compute_textbook_sampling(Fraction(1), Fraction(1, 10**6), 100_000)[1]
    19801688
    """
    with mpmath.workprec(120):
        rate = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        small = mpmath.mpf(delta.numerator) / delta.denominator
        q = Fraction(int(mpmath.floor(rate / (64 * mpmath.log(1 / small)) * 2**60)), 1 << 60)
        exact = rate / (64 * mpmath.log(1 / small))
        return q, int(mpmath.ceil(mpmath.log(n / small) / exact**2))


def _named(result: object, features: Mapping[str, int]) -> list[str]:
    """Return the features in a block's list, without duplicates, in its order. A text is a list of one."""
    if isinstance(result, str):
        result = [result]
    if not isinstance(result, list | tuple | np.ndarray) or isinstance(result, np.ma.MaskedArray):
        return []
    named = (f.item() if isinstance(f, np.generic) else f for f in result)
    return list(dict.fromkeys(f for f in named if type(f) is str and f in features))


@dataclass(frozen=True)
class FeatureVotes(BlockOperator):
    """Lists of features by block, released as votes per feature (one row each), or as the most voted ones.

    Args:
        source: its ``column`` has a feature, or a list of them, per block.
        features: the public list, also the order of rows; a block votes for at most ``most`` distinct ones, in the
            order of its list.
        noise: for all the counts: one block changes at most 2 ``most`` counts by 1 each (L1 2s, squared L2 2s, largest
            1), so it must be made with ``sensitivity = 1`` and ``groups = 2 * most``.
        top, epsilon: instead, the ``top`` best features by peeling exponential mechanisms, epsilon / top each, best
            first. Each choice sees counts that move by at most 1, so ``most`` does not matter.
    """

    column: str
    name: str
    features: tuple[str, ...]
    most: int
    noise: LaplaceNoise | GaussianNoise | None = None
    top: int | None = None
    epsilon: Fraction | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if (self.noise is None) != (self.top is not None and self.epsilon is not None):
            raise ValueError("either noise for every count, or a number of winners and their epsilon")
        if self.noise is not None and (self.noise.sensitivity != 1 or self.noise.groups != 2 * self.most):
            raise ValueError(
                "one block moves two counts per feature it may name: noise for 2 * most groups of 1"
            )
        if self.top is not None and not 0 < self.top <= len(self.features):
            raise ValueError("more winners than features")

    @property
    def event(self) -> Event:
        if self.noise is not None:
            return self.noise.event
        assert self.top is not None and self.epsilon is not None
        return BoundedRange(self.epsilon, self.top)

    def claims(self) -> Iterator[ClaimedText]:
        yield from self.source.claims(1)

    def counts(self, results: Sequence[object]) -> list[int]:
        """Count the exact votes per feature, in the order of ``features``."""
        places = {feature: i for i, feature in enumerate(self.features)}
        counts = [0] * len(self.features)
        for result in results:
            try:
                known = _named(result, places)
            except Exception:  # a user-defined object is no vote, silently
                continue
            for feature in known[: self.most]:
                counts[places[feature]] += 1
        return counts

    def release(self, read: Read, entropy: Entropy) -> Release:
        counts = self.counts(self.source.results(read, entropy).columns[self.column])
        if self.noise is not None:
            votes = [int(v) for v in self.noise.add(counts, entropy)]
            width = self.noise.half_width(self.confidence)
            ends = (pa.array([v + side for v in votes], pa.float64()) for side in (-width, width))
            counted = Estimate(pa.array(votes, pa.int64()), *ends).columns("votes")
            return Release(pa.table({self.name: pa.array(self.features, pa.string()), **counted}), self.event)
        assert self.top is not None and self.epsilon is not None
        left = list(range(len(self.features)))
        winners = []
        for _ in range(self.top):
            scores = np.array([counts[i] for i in left], dtype=np.int64)
            winners.append(left.pop(choose_exponential(scores, self.epsilon / self.top / 2, entropy)))
        chosen = pa.array([self.features[i] for i in winners], pa.string())
        return Release(pa.table({self.name: chosen}), self.event)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        each = f"Each votes for at most {self.most} of {len(self.features)} features."
        said = f"{self.name}: {self.source.sentence()} {each}"
        if self.noise is not None:
            width = self.noise.half_width(confidence)
            return said, f"votes: every count with noise, within ±{width:.4g} votes at {confidence:.0%}."
        most = f"the {self.top} features with the most votes, by the exponential mechanism"
        return said, f"{self.name}: {most}."
