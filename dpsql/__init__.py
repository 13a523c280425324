"""dpsql: differential privacy as SQL in notebooks.

    session = dpsql.connect("visits.duckdb", policy="policy.toml")
    session.sql("SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward").df()

In a notebook: ``%load_ext dpsql``, then ``%%dpsql`` and SQL. Names are imported when they are first used, so
that ``import dpsql`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsql.errors import (
    BindError,
    BudgetExceeded,
    EngineError,
    Error,
    Interrupted,
    LedgerError,
    ParseError,
    PolicyError,
    PostprocessingError,
    PrivacyError,
    ServerError,
    warn_deprecated,
)

if TYPE_CHECKING:
    from dpsql import dbapi, privacy
    from dpsql.client.connect import connect_session as connect
    from dpsql.owner.policy_check import check_policy
    from dpsql.owner.policy_init import init_policy
    from dpsql.policy.model import Policy
    from dpsql.session.result import Result
    from dpsql.session.session import Session

__version__ = "1.0.0rc1"

_HOMES = {
    "connect": ("dpsql.client.connect", "connect_session"),
    "Session": ("dpsql.session.session", "Session"),
    "Result": ("dpsql.session.result", "Result"),
    "Policy": ("dpsql.policy.model", "Policy"),
    "init_policy": ("dpsql.owner.policy_init", "init_policy"),
    "check_policy": ("dpsql.owner.policy_check", "check_policy"),
    "load_ipython_extension": ("dpsql.notebook.magic", "load"),
    "unload_ipython_extension": ("dpsql.notebook.magic", "unload"),
}
"""The place that a name is imported from when it is first used: its module, and what it is called there."""

_RENAMED: dict[str, tuple[str, str]] = {}
"""Deprecated names of this package: what to write instead, and the version that deprecates it."""

__all__ = [
    "BindError",
    "BudgetExceeded",
    "EngineError",
    "Error",
    "Interrupted",
    "LedgerError",
    "ParseError",
    "Policy",
    "PolicyError",
    "PostprocessingError",
    "PrivacyError",
    "Result",
    "ServerError",
    "Session",
    "__version__",
    "check_policy",
    "connect",
    "dbapi",
    "init_policy",
    "privacy",
]


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        new, since = _RENAMED[name]
        warn_deprecated(f"dpsql.{name}", f"dpsql.{new}", since)
        return getattr(importlib.import_module("dpsql"), new)
    if name in _HOMES:
        from dpsql.interrupts import pausing_collection

        module, there = _HOMES[name]
        with pausing_collection(lasting=True):
            return getattr(importlib.import_module(module), there)
    if name in ("dbapi", "privacy"):
        return importlib.import_module(f"dpsql.{name}")
    raise AttributeError(f"module 'dpsql' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
