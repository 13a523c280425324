"""The parts of a cost in words: each mechanism of an event with its loss.

It uses events only, which are public: the requested cost, and the ledger's charge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dpsql.numerics.exact_numbers import write_number
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    Event,
    GroupSelection,
    PureDP,
    RoundedGaussian,
    SparseVector,
    StableTest,
)
from dpsql.privacy.gaussian_events import GaussianTest, JointGaussian
from dpsql.privacy.gradual_events import NoiseReduction
from dpsql.privacy.selection_events import RenyiSelection
from dpsql.privacy.threshold_events import GaussianSparseVector, StableQuestions


def _say_laplace(event: Event) -> str:
    assert isinstance(event, DiscreteLaplace)
    many = f", in each of the {event.count} groups that one privacy unit may touch" if event.count > 1 else ""
    return f"discrete Laplace noise on one number{many}"


def _say_joint(event: Event) -> str:
    assert isinstance(event, JointGaussian)
    return f"Gaussian noise on {len(event.sigmas)} numbers, calibrated once for all of them"


def _say_threshold(event: Event) -> str:
    hits, most = getattr(event, "hits", None), getattr(event, "max_hits", 1)
    what = "questions to" if isinstance(event, StableQuestions) else "comparisons with"
    told = f"{what} one noisy threshold, at most {most} hit{'s' if most != 1 else ''}"
    if getattr(event, "refresh", False):
        told = f"{what} a noisy threshold that is drawn afresh for each of at most {most} hits"
    return told if hits is None else f"{told}, of which {hits} {'was' if hits == 1 else 'were'} found"


def _say_reduction(event: Event) -> str:
    assert isinstance(event, NoiseReduction)
    return f"noise reduced until the answers were accurate, at most ε={write_number(event.most)}"


_CHOOSING = "choosing which private groups may be shown"
_WORDS: tuple[tuple[type[Event], Callable[[Event], str]], ...] = (
    (DiscreteLaplace, _say_laplace),
    (RoundedGaussian, lambda event: "Gaussian noise on one number"),
    (JointGaussian, _say_joint),
    (BoundedRange, lambda event: "a choice by the exponential mechanism"),
    (PureDP, lambda event: "a choice, or noise without delta"),
    (SparseVector, _say_threshold),
    (GaussianSparseVector, _say_threshold),
    (GroupSelection, lambda event: _CHOOSING),
    (RenyiSelection, lambda event: _CHOOSING),
    (StableTest, lambda event: "a noisy test of how stable the answer is"),
    (GaussianTest, lambda event: "a noisy test of how stable the answer is, with Gaussian noise"),
    (NoiseReduction, _say_reduction),
)


def describe_mechanism(event: Event) -> str:
    """Return a description of one mechanism of a statement."""
    return next(
        (write(event) for kind, write in _WORDS if isinstance(event, kind)), event.kind.replace("_", " ")
    )


def chooses_groups(event: Event | None) -> bool:
    """Return whether a part of an event chose among private groups."""
    leaves = () if event is None else event.leaves()
    return any(isinstance(leaf, GroupSelection | RenyiSelection) for leaf in leaves)


def list_cost_parts(event: Event | None) -> list[str]:
    """Return a sentence for each mechanism of an event (None: none) with its loss; equal ones are counted."""
    if event is None:
        return []
    said = Counter(f"{leaf.sentence()}: {describe_mechanism(leaf)}" for leaf in event.leaves())
    return [f"{text}." if count == 1 else f"{count} times {text}." for text, count in said.items()]


def explain_difference(asked: Event | None, used: Event | None, write: Callable[[Event], str]) -> str:
    """Return why less was charged than was reserved; empty if ``asked``, the reserved event, is the used one.

    ``write`` writes the charge of the session's accountant for an event.
    """
    if asked is None or used is None or asked == used:
        return ""
    if write(asked) == write(used):
        return f"{used.sentence()} of {asked.sentence()} was used; this accountant charges the whole."
    return f"{write(asked)} was reserved and {write(used)} was used: only that is charged."
