"""The event of noise that is removed step by step until the answers are as accurate as requested.

Each look at the answers is the next one plus independent noise (:mod:`dpsql.noise.gradual`), so a path of looks reveals no
more than its last look. The decision to stop depends on the looks. The whole is reserved before data are touched, and never
is more charged.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.privacy.events import Event, PureDP, compose_events, require

_PACE = Fraction(8, 5)
_FIRST = 4096


@dataclass(frozen=True)
class NoiseReduction(Event):
    """Answers whose noise was reduced until they were accurate, at no more than ``most``.

    ``epsilon`` is ``most`` while it is reserved, and is settled with that of the last look. On every path the likelihood ratio is
    at most ``exp(epsilon)``, with the epsilon of that path; so plain sums of pure losses, which hold path by path, charge the
    used part (ex-post privacy: Ligett et al. 2017; Rogers et al. 2023).

    Divergences average over paths, so for them the looks are divided into stages, each with epsilons up to 8/5 of the previous
    stage's. To begin a stage is to choose a mechanism from earlier looks, and every filter allows that. Everything up to the end
    of a stage has a likelihood ratio of at most ``exp(top)``, and everything before it one of at least ``exp(-top)`` of the
    previous stage; so, given the earlier looks, the stage itself is pure with the sum of both tops. Stages that were begun are
    charged so, the others are not.

    Raises:
        ValueError: more was used than was reserved.
    """

    kind: ClassVar[str] = "noise_reduction"
    positive = ("most", "epsilon")
    delta = Fraction(0)
    most: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.epsilon <= self.most, "epsilon: at most what was reserved")

    @property
    def tops(self) -> tuple[Fraction, ...]:
        """The largest epsilon of each stage that was begun, the first stage first."""
        falling = itertools.takewhile(
            lambda top: top >= self.most / _FIRST, (self.most / _PACE**i for i in itertools.count())
        )
        rising = tuple(falling)[::-1]
        begun = 1 + sum(top < self.epsilon for top in rising)
        return rising[:begun]

    @property
    def stages(self) -> tuple[Event, ...]:
        """The event of each stage that was begun, whatever the earlier looks."""
        return tuple(PureDP(top + before) for before, top in itertools.pairwise((Fraction(0), *self.tops)))

    @property
    def rho(self) -> Fraction:
        return compose_events(self.stages).rho

    def renyi(self, order: Fraction) -> Fraction:
        return compose_events(self.stages).renyi(order)

    @property
    def mu(self) -> Fraction:
        return compose_events(self.stages).mu

    @property
    def parts(self) -> tuple[Event, ...]:
        return (PureDP(self.most),)

    def is_within(self, reserved: Event) -> bool:
        return replace(self, epsilon=self.most) == reserved
