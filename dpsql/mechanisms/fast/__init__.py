"""Faster routes to exact numbers, for local data.

Each mechanism has plain queries; its :class:`FastRoute` may compute equal numbers faster. A route decides by public
numbers and by exact ones that stay inside the operator, and both routes release the same distribution.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from dpsql.mechanisms.base import Claim, ClaimedText, Reader, TextReader
from dpsql.noise.entropy import Entropy

Found = TypeVar("Found", covariant=True)


class FastRoute(TextReader, Generic[Found]):
    """A faster route to the result of an operator's plain queries."""

    @abstractmethod
    def claims(self, plain: Claim) -> Iterable[ClaimedText]:
        """Yield every text it may read, with its claim; ``plain`` is that of the plain query."""

    @abstractmethod
    def take(self, read: Reader, entropy: Entropy) -> Found | None:
        """Return the plain queries' result, or None if they must be run."""
