"""What an operator says of each exact text that it may read, in the numbers that its noise is made of.

The second lock (:mod:`dpsql.sql.lock.check`) derives the same numbers from the text and compares: a text may do less
than its claim allows, never more. A claim is built from the noise, never from the text.

What each operator says of the exact texts that it may read: see :mod:`dpsql.mechanisms.claims`.

Every claim is made of the numbers that calibrate the operator's noise, so that what the second lock compares with is what
is charged. An operator that is not known here claims nothing, and may read nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Protocol

from dpsql.errors import PrivacyError
from dpsql.mechanisms.additive import Aggregation
from dpsql.mechanisms.auto_bounds import ROWS, TOTAL, AutoBounded
from dpsql.mechanisms.composite import Together
from dpsql.mechanisms.fast.block_means import NearBlocks
from dpsql.mechanisms.fast.candidate_scores import MOVES, ORD, SCORE, Sweep
from dpsql.mechanisms.fast.packed_aggregation import TOTALS, Packed
from dpsql.mechanisms.histograms import COUNT, DistinctCount, Histogram
from dpsql.mechanisms.order_statistics import order_queries
from dpsql.mechanisms.ptr.ptr_statistics import ArgMax, Iqr, ProposedMedian
from dpsql.mechanisms.ptr.stability_test import Stable
from dpsql.mechanisms.quantile import Quantiles
from dpsql.mechanisms.selection.above_threshold import AboveThreshold, Probe
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.mechanisms.subsample.blocks import BlockQueries, LiftedBlocks, PythonBlocks
from dpsql.mechanisms.subsample.subsample import SubsampleAggregate
from dpsql.mechanisms.subsample.votes import FeatureVotes, StableMode


class Noisy(Protocol):
    """Noise of one statistic: what one privacy unit may move it by in a group, and in how many groups."""

    @property
    def sensitivity(self) -> int: ...

    @property
    def groups(self) -> int: ...


@dataclass(frozen=True)
class Moves:
    """At most this much moves in a group when one privacy unit comes or goes (in grid steps), in at most ``groups``.

    What is charged is the pair: noise of an L1 distance of ``steps * groups`` and an L2 distance of ``steps`` times the
    root of ``groups``.
    """

    steps: int
    groups: int = 1

    @classmethod
    def of(cls, noise: Noisy) -> Moves:
        return cls(noise.sensitivity, noise.groups)


@dataclass(frozen=True)
class Sums:
    """One row for each group of ``keys``; a column's exact number moves as its noise is made for.

    ``selected``: groups are kept by a mechanism of their own; else which groups there are must be public.
    """

    keys: tuple[str, ...]
    columns: tuple[tuple[str, Moves], ...]
    selected: bool = False


@dataclass(frozen=True)
class Scores:
    """The column of candidates' scores, which one privacy unit moves by at most ``most``: by ``rows`` of its rows.

    Args:
        terms: how far a row moves each statistic of it, where the operator says so. clipped: some hold values to a limit.
        own: the column of each candidate's own sensitivity, where they differ.
    """

    column: str
    most: int
    rows: int
    terms: tuple[int, ...] | None = None
    clipped: bool = False
    own: str | None = None


@dataclass(frozen=True)
class Rows:
    """Any function, group by group of ``keys``, of at most ``rows`` rows of a privacy unit in each of at most ``groups``.

    ``within`` are columns that are held to a distance from zero; ``moves`` sums, with what one row moves each by.
    """

    rows: int
    groups: int = 1
    keys: tuple[str, ...] = ()
    within: tuple[tuple[str, int], ...] = ()
    moves: tuple[tuple[str, int], ...] = ()
    each: str | None = None
    """A column of public candidates: a unit's rows may count for each of them."""
    scores: Scores | None = None


@dataclass(frozen=True)
class Blocks:
    """Any function, block by block: a row is made of what has the number in ``column``. A unit is in ``most`` of them.

    ``most`` is None where a text of its own counts how many blocks a unit is in (:class:`Participates`).
    """

    column: str
    most: int | None = 1


@dataclass(frozen=True)
class Participates:
    """The greatest number of blocks that a privacy unit is in."""


@dataclass(frozen=True)
class Public:
    """Reads nothing private."""


@dataclass(frozen=True)
class Choice:
    """What is read only decides between ways that release the same distribution: ranges, numbers of rows, bins."""


@dataclass(frozen=True)
class Packing:
    """One integer for each row: the unit above, then the codes of the groups, then the values with the first lowest.

    ``values`` are the greatest of each, ``keys`` how many codes there are; ``tallies`` what a unit's total is held to.
    """

    keys: int
    values: tuple[int, ...]
    tallies: tuple[tuple[str, int], ...]
    charged: tuple[tuple[str, Moves], ...]
    groups: int | None


Claim = Sums | Rows | Blocks | Participates | Public | Choice | Packing


@dataclass(frozen=True)
class Totals:
    """A relation of exact totals that an operator lends to its own queries: held to bounds before.

    ``halves`` are totals in two columns, by the first: the second, and how many of the second's steps one of the first is;
    ``columns`` says then how far a unit moves both together, in these steps.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, int]
    groups: int | None
    halves: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.keys, *self.columns, *(rest for rest, _ in self.halves.values()))


@dataclass(frozen=True)
class Claimed:
    """A text, what is said of it, and the private relations that the operator itself lends to it."""

    text: str
    claim: Claim
    lent: Mapping[str, Totals | Sequence[str]] = field(default_factory=dict)


_BLOCK = "dpsql_block"


def claims_of(operator: object) -> tuple[Claimed, ...]:
    """Every text that an operator may read beside those that run apart, with its claim."""
    return tuple(_claims(operator))


@singledispatch
def _claims(operator: object) -> Iterable[Claimed]:
    raise PrivacyError("nothing is known of what this statement would read.")


# -- sums -------------------------------------------------------------------------------------------------------------


@_claims.register
def _(operator: Aggregation) -> Iterator[Claimed]:
    charged = _charged(operator)
    claim = Sums(operator.keys, charged, operator.selection is not None)
    yield Claimed(operator.query, claim)
    if operator.packed is not None:
        yield from _packed(operator.packed, claim)


def _charged(operator: Aggregation) -> tuple[tuple[str, Moves], ...]:
    noisy = [(s.column, Moves.of(s.noise)) for s in operator.statistics]
    if operator.selection is not None:  # a unit counts once in a group
        noisy.append((operator.selection.column, Moves(1, operator.selection.groups)))
    return tuple(dict.fromkeys(noisy))


def _packed(packed: Packed, claim: Sums) -> Iterator[Claimed]:
    ranges, *texts = packed.queries
    yield Claimed(ranges, Choice())
    tallies = (*((t.name, t.far) for t in packed.tallies), (packed.units, 1))
    halves = {t.name: (t.columns[1], t.scale) for t in packed.tallies if len(t.columns) > 1}
    for route in packed.routes:
        values = tuple(v.most for v in packed.values)
        yield Claimed(texts.pop(0), Packing(len(route.keys), values, tallies, claim.columns, packed.groups))
        if route.keys:
            lent = {TOTALS: Totals(route.keys, dict(tallies), packed.groups, halves)}
            yield Claimed(texts.pop(0), claim, lent)


@_claims.register
def _(operator: Together) -> Iterator[Claimed]:
    if operator.aggregation is not None:
        yield from _claims(replace(operator.aggregation, packed=None))  # the other route is not taken here
    for part in operator.parts:
        yield from _claims(part)


# -- rows -------------------------------------------------------------------------------------------------------------


@_claims.register
def _(operator: Histogram) -> Iterator[Claimed]:
    noise = operator.noise
    yield Claimed(operator.query, Rows(noise.sensitivity, noise.groups, operator.keys, moves=((COUNT, 1),)))


@_claims.register
def _(operator: DistinctCount) -> Iterator[Claimed]:
    noise = operator.noise
    yield Claimed(operator.query, Rows(noise.sensitivity, noise.groups, operator.keys, moves=(("n", 1),)))


@_claims.register
def _(operator: Quantiles) -> Iterator[Claimed]:
    claim = Rows(operator.rows, operator.groups, operator.keys)
    yield Claimed(operator.query, claim)
    if operator.column is not None:
        yield Claimed(operator.column, claim)


@_claims.register
def _(operator: AutoBounded) -> Iterator[Claimed]:
    moves = ((ROWS, 1), (TOTAL, 1 << 20))
    yield Claimed(operator.query, Rows(operator.rows, operator.groups, operator.keys, moves=moves))


@_claims.register
def _(operator: Stable) -> Iterator[Claimed]:
    if operator.groups is not None:
        yield Claimed(operator.groups, Public())
    for item in operator.items:
        claim = Rows(item.rows, item.test.groups, operator.keys)
        if isinstance(item, Iqr | ProposedMedian):
            counted, values = order_queries(item.values, operator.keys)
            yield Claimed(counted, Choice() if operator.keys else claim)
            yield Claimed(values, claim)
            continue
        for text in item.queries(operator.keys):
            yield Claimed(text, claim)
        if isinstance(item, ArgMax):
            bounded = Rows(item.rows, item.test.groups, operator.keys, within=(("amount", item.bound),))
            yield Claimed(item.values, bounded)


# -- candidates -------------------------------------------------------------------------------------------------------


def _chosen(
    batches: tuple[str, ...], sweep: Sweep | None, sensitivity: int, varying: bool = False
) -> Iterator[Claimed]:
    rows = sensitivity if sweep is None else sweep.rows
    own = MOVES if varying else None
    scores = Scores(SCORE, sensitivity, 1, own=own)
    if sweep is not None:
        terms = tuple(term.row for term in sweep.terms)
        clipped = any(term.clip is not None for term in sweep.terms)
        scores = Scores(SCORE, sensitivity, rows, terms, clipped, own)
    for text in batches:
        yield Claimed(text, Rows(rows, each=ORD, scores=scores))
    if sweep is not None:
        yield Claimed(sweep.candidates, Public())
        for place, counted in enumerate(sweep.histograms):
            moved = max((t.row for t in sweep.terms if t.histogram == place and t.clip is None), default=None)
            sums = (("v", moved),) if moved is not None and " AS v " in counted.query else ()
            yield Claimed(counted.query, Rows(rows, moves=(("n", 1), *sums)))
            yield Claimed(counted.limited, Rows(rows))  # the same, cut: so many rows say no less
            if counted.column is not None:
                yield Claimed(counted.column, Rows(rows))


@_claims.register
def _(operator: ExponentialChoice) -> Iterator[Claimed]:
    yield from _chosen(operator.batches, operator.sweep, operator.sensitivity, operator.varying)


@_claims.register
def _(operator: AboveThreshold) -> Iterator[Claimed]:
    yield from _chosen(operator.batches, operator.sweep, operator.noise.sensitivity)


@_claims.register
def _(operator: Probe) -> Iterator[Claimed]:
    yield Claimed(operator.query, Rows(operator.sensitivity, each=ORD))


# -- blocks -----------------------------------------------------------------------------------------------------------


@_claims.register
def _(operator: SubsampleAggregate) -> Iterator[Claimed]:
    rounds = [c.rounds for c in operator.combiners if isinstance(c, StableMode)]
    most = min(rounds) if len(rounds) == len(operator.combiners) else 1
    if operator.participation is not None:
        yield Claimed(operator.participation.query, Participates())
        yield from _source(operator.source, None)
        return
    yield from _source(operator.source, most)


@_claims.register
def _(operator: FeatureVotes) -> Iterator[Claimed]:
    yield from _source(operator.source, 1)


def _source(source: object, most: int | None) -> Iterator[Claimed]:
    if isinstance(source, LiftedBlocks):
        yield Claimed(source.query, Blocks(_BLOCK, most))
    elif isinstance(source, NearBlocks):
        yield from _source(source.exact, most)
        yield Claimed(source.near.beyond, Choice())
        yield Claimed(source.near.query, Blocks(_BLOCK, most))
    elif isinstance(source, BlockQueries):
        for rows in source.rows:
            yield Claimed(rows.ordered, Blocks("block", most))
    elif isinstance(source, PythonBlocks):
        for text in source.queries:
            yield Claimed(text, Blocks("block", most))
    else:
        raise PrivacyError("nothing is known of what this statement would read.")
