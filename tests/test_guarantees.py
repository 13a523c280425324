"""The auditors' page: its tests and proofs exist, and every test of a loss is among them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from tests.conftest import APART, AUDITORS, read_guarantees

ROOT = Path(__file__).resolve().parents[1]
PAGE = AUDITORS.read_text(encoding="utf-8")
ROWS = [row for row in PAGE.splitlines() if re.match(r"\| \d+\. ", row)]


def test_each_promise_has_a_proof_and_tests_that_exist() -> None:
    assert len(ROWS) == 13
    for row in ROWS:
        _, promise, proof, *_ = row.split("|")
        assert re.search(r"`dpsql/|\]\(", proof), promise
        assert read_guarantees(row), promise
        for path in read_guarantees(row) + re.findall(r"`(dpsql/[\w/.]+)`", proof):
            assert (ROOT / path).exists(), path
            if path.endswith(".py") and path.startswith("dpsql"):
                assert ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))), path


def test_every_test_of_a_loss_is_among_them() -> None:
    """A subclass of a contract, and whatever compares exact probabilities of neighbours."""
    promised = tuple(read_guarantees(PAGE))
    for path in (ROOT / "tests").rglob("test_*.py"):
        if re.search(r"\((Operator|Accountant)Contract\)", path.read_text(encoding="utf-8")):
            assert path.relative_to(ROOT).as_posix().startswith(promised), path


@pytest.mark.parametrize("chosen", [True, False])
def test_the_mark_selects_them(chosen: bool, request: pytest.FixtureRequest) -> None:
    """Checked on the tests of this run, whichever they are."""
    promised = tuple(read_guarantees(PAGE))
    for item in request.session.items:
        if chosen and item.nodeid.startswith(promised):
            assert any(map(item.get_closest_marker, ("guarantee", *APART)))
        elif not chosen and not item.nodeid.startswith(promised):
            assert not item.get_closest_marker("guarantee")


def test_the_file_that_the_page_watches_grows_with_a_charge_alone(tmp_path: Path) -> None:
    """Not when a session opens, nor for what is free."""
    pq.write_table(pa.table({"who": range(9)}), tmp_path / "t.parquet")
    policy = tmp_path / "p.toml"
    policy.write_text(
        '[budget]\nepsilon = 9\n[tables.t]\nsource = "t.parquet"\nprivacy_unit = "who"\nmax_rows = 1\n'
    )
    (name,) = re.findall(r"`\*(\.ledger-\w+)`", PAGE)
    (least,) = re.findall(r"more than ([0-9,]+) bytes", PAGE)
    with dpsql.connect(policy=policy) as session:
        session.sql("SHOW BUDGET")
    asked = "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM t"
    with dpsql.connect(policy=policy) as session:
        for text, charged in (("SHOW BUDGET", False), (f"EXPLAIN {asked}", False), (asked, True)):
            session.sql(text)
            size = policy.with_name(policy.name + name).stat().st_size
            assert (size > int(least.replace(",", ""))) is charged, (text, size)
