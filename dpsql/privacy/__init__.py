"""Events of mechanisms, accountants that add up their losses, and filters that hold the budget.

events.py            one frozen value for each mechanism that touched private data
gaussian_events.py   events of jointly calibrated Gaussian noise, and of the noisy test
selection_events.py  the event of private groups chosen at one Rényi order
threshold_events.py  events of thresholds with a delta or with Gaussian noise
gradual_events.py    the event of noise that is removed step by step
conversions.py       losses of one currency in another, among them the Gaussian calibration
amounts.py           amounts in epsilon, mu or rho
accountants.py       the sums, and the contract of every accountant
filters.py           the accountants, with the proofs that their rules hold
guesses.py           float estimates for searches; they decide nothing
pld.py               the privacy loss distribution of statements that were declared together
curves.py            trade-off curves as objects
tradeoff.py          f-DP and Gaussian DP: curves made, compared and judged
codec.py             dataclasses as JSON values and back
records.py           the state of a budget and the entries of a ledger, for display
"""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("accountants", "conversions", "events", "filters", "pld", "tradeoff")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"dpsql.privacy.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
