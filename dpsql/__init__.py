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
    PrivacyError,
)

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql import dbapi, privacy
    from dpsql.policy.model import Policy
    from dpsql.result import Result
    from dpsql.session import Session, connect

__version__ = "0.1.0"

_HOMES = {
    "connect": "dpsql.session", "Session": "dpsql.session", "Result": "dpsql.result", "Policy": "dpsql.policy.model",
}  # fmt: skip

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
    "PrivacyError",
    "Result",
    "Session",
    "__version__",
    "connect",
    "dbapi",
    "privacy",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("dbapi", "privacy"):
        return importlib.import_module(f"dpsql.{name}")
    raise AttributeError(f"module 'dpsql' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the line and cell magic, and completion in our cells, for ``%load_ext dpsql``."""
    from dpsql.notebook.magic import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take away what loading added, for ``%unload_ext dpsql``; open sessions wait for the next load."""
    from dpsql.notebook.magic import unload

    unload(shell)
