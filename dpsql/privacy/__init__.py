"""Events of mechanisms, accountants that add up their losses, and filters that hold the budget.

events.py       one frozen value for each mechanism that touched private data
conversions.py  losses of one currency in another, among them the Gaussian calibration
accountants.py  the sums of what was spent, and what every accountant must decide
filters.py      the accountants, with the proofs that their rules hold
pld.py          the privacy loss distribution of statements that were declared together
curves.py       trade-off curves as objects
tradeoff.py     f-DP and Gaussian DP: curves made, compared and judged
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("accountants", "conversions", "events", "filters", "pld", "tradeoff")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"dpsql.privacy.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
