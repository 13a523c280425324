"""Releases and ledgers of an earlier version: the same bits under the same entropy, and its ledger goes on."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path

import duckdb
import pytest

from dpsql.privacy.records import BudgetState
from tests.support import inside
from tests.support.earlier_version import ANSWERS, BITS, LEDGER, STATEMENTS, bits, connect, fixed, released

WRITTEN_ON = 2
"""DuckDB's major version when the bits were written: others may hash rows differently."""


@pytest.mark.skipif(int(duckdb.__version__.split(".")[0]) != WRITTEN_ON, reason="other hashes of rows")
def test_released_bits_are_equal_under_a_fixed_entropy() -> None:
    assert bits() == json.loads(BITS.read_text(encoding="utf-8"))


def test_other_entropy_gives_other_bits() -> None:
    text = STATEMENTS[0]
    with connect() as session:
        inside.use_entropy(session, fixed("another"))
        assert released(text, session.sql(text, fresh=True).dicts()) != json.loads(BITS.read_text())[text]


def write_fields(state: BudgetState) -> str:
    """Return a budget's figures as the earlier version wrote them."""
    shown = [f for f in fields(state) if f.repr and f.name != "answers"]
    return f"BudgetState({', '.join(f'{f.name}={getattr(state, f.name)!r}' for f in shown)})"


def test_a_ledger_of_an_earlier_version_opens_and_adds_up(tmp_path: Path) -> None:
    """Its charges stay. Its answers were made under caps that meant something else, so none of them is shown again."""
    path = tmp_path / "kept.ledger"
    shutil.copy(LEDGER, path)
    written = json.loads(ANSWERS.read_text(encoding="utf-8"))
    with connect(path) as session:
        assert write_fields(session.budget()) == written["budget"]
        for text in list(written["answers"])[:5]:
            before = session.budget()
            assert session.sql(text).loss != "no charge"
            assert session.budget() != before
            assert session.sql(text).loss == "no charge"
