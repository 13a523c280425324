"""What happened (events), what it costs (accountants), and what may still happen (filters).

events.py     one frozen value for each mechanism that touched private data
filters.py    what decides whether the next statement may run
zcdp.py       zero-concentrated DP to (epsilon, delta) and back
plan_loss.py  the privacy loss distribution of statements that were declared together
tradeoff.py   trade-off functions (f-DP, Gaussian DP) as objects
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("constants", "events", "filters", "plan_loss", "tradeoff", "zcdp")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"dpsql.privacy.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
