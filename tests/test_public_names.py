"""The names that the page "Stability" calls public, and how one of them is deprecated."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpsql
from dpsql.client.wire import PROTOCOL

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "notebooks" / "docs" / "stability.md").read_text(encoding="utf-8")
NAMES = set(PAGE.partition("<!-- names -->\n```text\n")[2].partition("```")[0].split())
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


def test_the_version_is_written_in_one_place_and_read_from_there() -> None:
    released = re.findall(r"^## \[(\d.*)\]$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert released[0] == dpsql.__version__
    assert f"\nversion: {dpsql.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert 'version = { attr = "dpsql.__version__" }' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"`protocol`, before anything else: it is {PROTOCOL}." in PAGE


def test_a_deprecated_name_works_and_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsql, "_RENAMED", {"open_session": ("connect", "1.1")})
    told = r"dpsql\.open_session is deprecated since dpsql 1\.1: write dpsql\.connect\."
    with pytest.warns(FutureWarning, match=told) as caught:
        assert dpsql.open_session is dpsql.connect
    assert caught[0].filename == __file__
    with pytest.raises(AttributeError):
        _ = dpsql.open_sesame


def test_a_deprecated_name_has_a_successor_that_is_public() -> None:
    for old, (new, since) in dpsql._RENAMED.items():
        assert old not in dpsql.__all__
        assert new in dpsql.__all__
        assert re.fullmatch(r"\d+\.\d+", since)


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
    """``import dpsql`` loads no engine, parser or table library, the lexer a parser alone; a plain answer loads no other mode."""
    check = (
        "import sys, dpsql\n"
        "heavy = {'duckdb', 'sqlglot', 'pyarrow', 'numpy', 'pandas', 'IPython', 'matplotlib', 'polars'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import dpsql.notebook.lexer\n"
        "heavy -= {'sqlglot'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from dpsql import connect\n"
        "heavy = {'pandas', 'matplotlib', 'polars', 'scipy', 'IPython', 'prompt_toolkit', 'pyarrow.parquet'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import duckdb\n"
        "con = duckdb.connect()\n"
        "con.execute('CREATE TABLE t AS SELECT 1 AS u')\n"
        "policy = dpsql.Policy.loads('[budget]\\nepsilon = 1\\n[tables.t]\\nprivacy_unit = \"u\"\\nmax_rows = 1')\n"
        "with connect(con, policy=policy) as session:\n"
        "    session.sql('SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM t').fetchall()\n"
        "heavy |= {'dpsql.binding.modes.ptr', 'dpsql.binding.modes.subsample_block'}\n"
        "heavy |= {'dpsql.binding.modes.choice', 'dpsql.binding.modes.declared', 'dpsql.binding.modes.utility'}\n"
        "heavy |= {'dpsql.mechanisms.synthetic', 'dpsql.mechanisms.subsample.subsample', 'dpsql.mechanisms.ptr'}\n"
        "heavy |= {'dpsql.mechanisms.selection.exponential', 'dpsql.mechanisms.selection.above_threshold'}\n"
        "heavy |= {'dpsql.exact.candidate_statistics', 'dpsql.mechanisms.fast.candidate_scores', 'dpsql.lock.scores'}\n"
        "heavy |= {'dpsql.client.channel', 'dpsql.client.wire', 'dpsql.session.explanation', 'dpsql.policy.unit_guess'}\n"
        "heavy |= {'dpsql.report', 'dpsql.engine.text_sources', 'dpsql.privacy.pld', 'dpsql.privacy.tradeoff'}\n"
        "heavy |= {'dpsql.lock.spark_reader', 'dpsql.server', 'dpsql.notebook.magic', 'asyncio', 'urllib.request', 'mpmath'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)
