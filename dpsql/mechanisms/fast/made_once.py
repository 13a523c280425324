"""Things made once of a public relation, and kept while the relation is.

A notebook asks many statements of one list of candidates. Its rows are lent as one Arrow table, which nobody changes, so
what takes time to make of it is made once: its digest, and the numbers behind its candidates.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

import pyarrow as pa

Made = TypeVar("Made")


class MadeOnce(Generic[Made]):
    """The last few things that were made of tables, by the table itself and a text that says what it is.

    Args:
        most: the number of things that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._held: OrderedDict[tuple[int, str], tuple[weakref.ref[pa.Table], Made]] = OrderedDict()

    def get(self, table: pa.Table, text: str) -> Made | None:
        """Return what was made of this very table; None where it is not kept."""
        with self._lock:
            found = self._held.get((id(table), text))
            return found[1] if found is not None and found[0]() is table else None

    def keep(self, table: pa.Table, text: str, made: Made) -> None:
        """Keep what was made, and forget the eldest, and what was made of tables that are gone."""
        with self._lock:
            for key in [key for key, (held, _) in self._held.items() if held() is None]:
                del self._held[key]
            self._held[id(table), text] = (weakref.ref(table), made)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
