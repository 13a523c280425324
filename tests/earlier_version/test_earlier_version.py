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


ASKED_ANEW = (
    "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) AS m FROM visits",  # another base, another test
    "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) CAST(age AS INTEGER) AS years, COUNT(*) AS n FROM visits GROUP BY 1",
    "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) family_size, SUM(doctor_visits) AS s FROM visits GROUP BY family_size "
    "HAVING COUNT(*) > 100 ORDER BY s DESC",  # ranges that the policy declares are public groups
    "SELECT MEDIAN(age) AS m, QUANTILE_CONT(medical_dollars, 0.9) AS q FROM visits",  # points of quantiles lie elsewhere
    "SELECT plan, MIN(age) AS least, MAX(age) AS most FROM visits GROUP BY plan",
    # public groups share a unit's rows
    "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan",
    "SELECT plan, COUNT(*) AS n FROM visits WHERE plan IN ('free', '95%') GROUP BY plan",
    "SELECT plan, health, COUNT(*) AS n, SUM(medical_dollars) AS dollars FROM visits GROUP BY plan, health",
    "SELECT year, AVG(doctor_visits) AS m, STDDEV(doctor_visits) AS s FROM visits GROUP BY year",
    "SELECT health, year, COUNT(*) AS n FROM visits GROUP BY ROLLUP (health, year)",
    "SELECT health, plan, COUNT(*) AS n FROM visits GROUP BY CUBE (health, plan)",
    "SELECT WITH DP OPTIONS (epsilon = 0.5, noise = 'gaussian', delta = 1e-7) plan, SUM(doctor_visits) AS s FROM visits "
    "GROUP BY plan",
)
"""Statements that mean something else today: their answers of before are no longer theirs."""


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


def test_a_ledger_of_an_earlier_version_opens_replays_and_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "kept.ledger"
    shutil.copy(LEDGER, path)
    written = json.loads(ANSWERS.read_text(encoding="utf-8"))
    with connect(path) as session:
        assert write_fields(session.budget()) == written["budget"]
        assert set(ASKED_ANEW) <= written["answers"].keys()
        for text, rows in written["answers"].items():
            if text in ASKED_ANEW:
                continue
            answer = session.sql(text)
            assert json.loads(json.dumps(answer.dicts(), default=str, ensure_ascii=False)) == rows, text
        assert write_fields(session.budget()) == written["budget"]  # nothing was paid again
        session.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 41")
        assert write_fields(session.budget()) != written["budget"]


REKEYED = (
    "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 40, bounds = (0, 65)) AVG(age) AS m FROM visits"
)
"""The statement whose answer stands under a key that today's version does not make."""


@pytest.mark.parametrize(
    "text",
    [
        REKEYED.replace("epsilon = 1", "epsilon = 0.5"),
        REKEYED.replace("blocks = 40", "blocks = 50"),
        REKEYED.replace("(0, 65)", "(0, 60)"),
        REKEYED + " WHERE age > 3",
    ],
)
def test_another_question_is_not_answered_by_what_stands_under_an_older_key(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "kept.ledger"
    shutil.copy(LEDGER, path)
    with connect(path) as session:
        assert session.sql(REKEYED).loss == "no charge"
        assert session.sql(text).loss != "no charge"
