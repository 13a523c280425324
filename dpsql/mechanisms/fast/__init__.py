"""Faster routes to exact numbers, for local data.

Each mechanism has plain queries; its :class:`FastRoute` may compute equal numbers faster. A route decides by public
numbers and by exact ones that stay inside the operator, and both routes release the same distribution.

The plain queries are proved before payment, a route's texts when the route is chosen, before they are read. If one can't
be proved, the plain queries are read: no route decides how a paid statement ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from dpsql.mechanisms.base import Reader, UnprovedRoute
from dpsql.noise.entropy import Entropy

Found = TypeVar("Found", covariant=True)


class FastRoute(ABC, Generic[Found]):
    """A faster route to the result of an operator's plain queries."""

    def follow(self, read: Reader, entropy: Entropy) -> Found | None:
        """Return the plain queries' result, or None if they must be run."""
        try:
            return self.take(read.on_route(), entropy)
        except UnprovedRoute:
            return None

    @abstractmethod
    def take(self, read: Reader, entropy: Entropy) -> Found | None:
        """Return the plain queries' result, or None if they must be run; UnprovedRoute if a text can't be proved."""
