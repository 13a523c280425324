"""The event of noise that is taken away step by step until the answers are as accurate as was asked.

Each look at the answers is the next one plus independent noise (:mod:`dpsql.noise.gradual`), so a path of looks tells what
its last look tells, and no more. When to stop is decided from what was seen. The whole was reserved before any data were
touched, and never is more taken than that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.privacy.events import Event, PureDP, require


@dataclass(frozen=True)
class NoiseReduction(Event):
    """Answers whose noise was reduced until they were accurate, at no more than ``most``.

    ``epsilon`` is ``most`` while it is reserved, and is settled with that of the last look. On every path the likelihood
    ratio is at most ``exp(epsilon)``, with the epsilon of that path; so plain sums of pure losses, which hold path by path,
    charge what was used (ex-post privacy: Ligett et al. 2017; Rogers et al. 2023). Divergences average over paths, and are
    charged the whole.

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
    def rho(self) -> Fraction:
        return PureDP(self.most).rho

    def renyi(self, order: Fraction) -> Fraction:
        return PureDP(self.most).renyi(order)

    @property
    def mu(self) -> Fraction:
        return PureDP(self.most).mu

    @property
    def parts(self) -> tuple[Event, ...]:
        return (PureDP(self.most),)

    def is_within(self, reserved: Event) -> bool:
        return replace(self, epsilon=self.most) == reserved
