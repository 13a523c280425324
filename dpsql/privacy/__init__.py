"""Events of mechanisms, accountants that add up their losses, and filters that hold the budget.

events.py         one frozen value for each mechanism that touched private data
periods.py        sets of periods, as days and in words; events that only some periods pay for
conversions.py    losses of one currency in another, among them the Gaussian calibration
amounts.py        amounts in epsilon, mu or rho
accountants.py    the sums, and the contract of every accountant
filters.py        the accountants, with the proofs that their rules hold
filter_states.py  the running sums of a filter: of one budget, or of a budget for each period
pld.py            the privacy loss distribution of statements that were declared together
tradeoff.py       f-DP and Gaussian DP: trade-off curves, made, compared and judged
codec.py          dataclasses as JSON values and back
records.py        the state of a budget and the entries of a ledger, for display
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("accountants", "conversions", "events", "filters", "pld", "tradeoff")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"dpsql.privacy.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
