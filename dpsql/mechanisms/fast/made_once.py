"""Caches objects derived from a public relation, for the relation's lifetime.

A notebook asks many statements about one list of candidates. Its rows are one immutable Arrow table, so expensive
derivations are made once: its digest, and the numbers behind its candidates.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

import pyarrow as pa

Made = TypeVar("Made")


class MadeOnce(Generic[Made]):
    """The ``most`` latest objects derived from tables, by the table itself and a descriptive text."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._held: OrderedDict[tuple[int, str], tuple[weakref.ref[pa.Table], Made]] = OrderedDict()

    def get(self, table: pa.Table, text: str) -> Made | None:
        """Return the object derived from this very table; None if not cached."""
        with self._lock:
            found = self._held.get((id(table), text))
            return found[1] if found is not None and found[0]() is table else None

    def keep(self, table: pa.Table, text: str, made: Made) -> None:
        """Cache an object, and drop the oldest, and those of tables that no longer exist."""
        with self._lock:
            for key in [key for key, (held, _) in self._held.items() if held() is None]:
                del self._held[key]
            self._held[id(table), text] = (weakref.ref(table), made)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
