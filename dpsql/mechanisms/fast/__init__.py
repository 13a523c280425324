"""Quicker routes to exact numbers, for data on this machine.

Each mechanism reads its plain queries; a :class:`FastRoute` beside them may give the same numbers sooner. A route decides
by public numbers and by exact ones that stay inside the operator, and both ways release the same distribution.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from dpsql.mechanisms.base import Claim, ClaimedText, Reader, TextReader
from dpsql.noise.entropy import Entropy

Found = TypeVar("Found", covariant=True)


class FastRoute(TextReader, Generic[Found]):
    """A quicker way to what an operator's plain queries give."""

    @abstractmethod
    def claims(self, plain: Claim) -> Iterable[ClaimedText]:
        """Yield every text that it may read, with its claim; ``plain`` is that of the plain query."""

    @abstractmethod
    def take(self, read: Reader, entropy: Entropy) -> Found | None:
        """Return what the plain way would give, or None where the plain way must be taken."""
