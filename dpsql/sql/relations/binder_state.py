"""The state of a binder before something is bound on trial, to be put back where it is bound in another way.

What was noted for a block that is gone (what is chosen for it once the statement is whole, say) must go with it: else the plan
speaks of a block that it does not hold.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dpsql.sql.relations.catalog import Binder

LISTS = ("blocks", "notes", "limits", "adjustments", "ranged", "when_whole", "ordered_releases")
"""The lists of a binder that grow with its blocks."""
DICTS = ("public", "intervals", "noise_steps", "once", "lent_inputs", "key_values")
"""The dicts that do."""


class BinderState:
    """The part of a plan that a binder holds at one moment; what was bound since can be undone.

    Names and the places of FROM items are not taken back: nothing else may get them.

    Args:
        binder: of the statement.
    """

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self._lists: dict[str, list[Any]] = {name: list(getattr(binder, name)) for name in LISTS}
        self._dicts: dict[str, dict[Any, Any]] = {name: dict(getattr(binder, name)) for name in DICTS}
        self._written = deepcopy(binder.written)

    def restore(self) -> None:
        """Put all back, in place."""
        for name, items in self._lists.items():
            getattr(self._binder, name)[:] = items
        for name, entries in self._dicts.items():
            held = getattr(self._binder, name)
            held.clear()
            held.update(entries)
        self._binder.written = self._written
