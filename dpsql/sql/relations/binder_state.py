"""Snapshots of a binder before a trial binding, to be restored for another attempt.

Notes on a discarded block (such as choices pending until the statement is complete) must be discarded too; otherwise
the plan mentions a missing block.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dpsql.sql.relations.catalog import Binder

LISTS = ("blocks", "notes", "limits", "adjustments", "ranged", "when_whole", "ordered_releases")
"""The lists of a binder that grow with its blocks."""
DICTS = ("public", "intervals", "noise_steps", "once", "lent_inputs", "key_values")
"""The dicts of a binder that grow with its blocks."""


class BinderState:
    """The part of a plan in a binder at one moment; later bindings can be undone.

    Names and the indices of FROM items are not reused.
    """

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self._lists: dict[str, list[Any]] = {name: list(getattr(binder, name)) for name in LISTS}
        self._dicts: dict[str, dict[Any, Any]] = {name: dict(getattr(binder, name)) for name in DICTS}
        self._written = deepcopy(binder.written)

    def restore(self) -> None:
        """Restore everything, in place."""
        for name, items in self._lists.items():
            getattr(self._binder, name)[:] = items
        for name, entries in self._dicts.items():
            held = getattr(self._binder, name)
            held.clear()
            held.update(entries)
        self._binder.written = self._written
