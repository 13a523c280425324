"""Quicker routes to exact numbers, for data on this machine.

Each mechanism reads its plain queries; a :class:`FastRoute` beside them may give the same numbers sooner. A route decides
by public numbers and by exact ones that stay inside the operator, and both ways release the same distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from dpsql.mechanisms.base import Claim, ClaimedText, Columns, Reader
from dpsql.noise.entropy import Entropy

Found = TypeVar("Found", covariant=True)


class FastRoute(ABC, Generic[Found]):
    """A quicker way to what an operator's plain queries give."""

    @property
    @abstractmethod
    def queries(self) -> tuple[str, ...]:
        """Every text that it may read."""

    @property
    def provides(self) -> Mapping[str, Columns]:
        """Relations that it lends to its own texts."""
        return {}

    @abstractmethod
    def claims(self, plain: Claim) -> Iterable[ClaimedText]:
        """Yield every text that it may read, with its claim; ``plain`` is that of the plain query."""

    @abstractmethod
    def take(self, read: Reader, entropy: Entropy) -> Found | None:
        """Return what the plain way would give, or None where the plain way must be taken."""
