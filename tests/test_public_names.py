"""The names that users may lean on. A change here is a headline of the changelog."""

from __future__ import annotations

import subprocess
import sys

import dpsql

NAMES = {
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
}
SESSION = {
    "budget", "close", "explain", "ledger", "plan", "register", "run", "sql", "tables",
}  # fmt: skip
RESULT = {
    "arrow", "columns", "df", "dicts", "fetchall", "fetchnumpy", "fetchone", "intervals", "loss", "notes", "pl",
    "shape", "statement_id",
}  # fmt: skip


def test_the_packages_names() -> None:
    assert set(dpsql.__all__) == NAMES
    for name in NAMES:
        assert getattr(dpsql, name) is not None


def test_no_seed_and_no_switch_for_the_noise() -> None:
    for name in dir(dpsql):
        assert "seed" not in name
        assert "exact" not in name
        assert "noiseless" not in name


def test_what_a_session_and_a_result_offer() -> None:
    assert set(dir(dpsql.Session)) >= SESSION
    assert set(dir(dpsql.Result)) >= RESULT  # its fields are slots, so they are there too


def test_every_error_is_an_error() -> None:
    for name in NAMES:
        if name.endswith("Error") or name in ("BudgetExceeded", "Interrupted"):
            assert issubclass(getattr(dpsql, name), dpsql.Error)


def test_importing_costs_nothing() -> None:
    """``import dpsql`` loads no engine, parser or table library, the lexer a parser alone; a session loads no plots."""
    check = (
        "import sys, dpsql\n"
        "heavy = {'duckdb', 'sqlglot', 'pyarrow', 'numpy', 'pandas', 'IPython', 'matplotlib', 'polars'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import dpsql.notebook.lexer\n"
        "heavy -= {'sqlglot'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from dpsql import connect\n"
        "heavy = {'pandas', 'matplotlib', 'polars', 'scipy', 'IPython', 'pyarrow.parquet'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)
