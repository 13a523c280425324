"""Selection and interactive thresholds through a session: what is chosen, and what it is charged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql

TABLES = """
[tables]
t = { privacy_unit = "ROW", columns = { x = { bounds = [0, 10] } } }
c = { public = true }
"""


def policy(accountant: str = "basic") -> dpsql.Policy:
    return dpsql.Policy.loads(f"""
[budget]
epsilon = 1e7
delta = 0.5
accountant = "{accountant}"
default_epsilon = 1e4
default_delta = 1e-6
{TABLES}""")


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute("CREATE TABLE t AS SELECT unnest([1, 2, 2, 3, NULL, 5, 7, 7, 7, 9]) AS x")
        made.execute(
            "CREATE TABLE c AS SELECT unnest([1, 2, 7, NULL, 2]) AS k, unnest([0, 2, 5, 1, 9]) AS lo"
        )
        yield made


def _hits(arguments: str) -> str:
    return f"SELECT k, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE x = k), {arguments}) OVER c FROM t"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("1.5", [{"k": 2}]),
        ("100", []),
        ("1.5, max_hits => 2", [{"k": 2}, {"k": 7}]),
        ("1.5, max_hits => 9", [{"k": 2}, {"k": 7}, {"k": 2}]),
        ("1.5, max_hits => 9, refresh => TRUE", [{"k": 2}, {"k": 7}, {"k": 2}]),
        ("1.5, max_hits => 2, answer => TRUE", [{"k": 2, "answer": 2}, {"k": 7, "answer": 3}]),
        ("lo + 0.5, max_hits => 9", [{"k": 1}]),
    ],
)
def test_hits_in_the_order_of_the_candidates(
    con: duckdb.DuckDBPyConnection, arguments: str, wanted: list[dict[str, int]]
) -> None:
    assert dpsql.connect(con, policy=policy()).sql(_hits(arguments)).dicts() == wanted


def test_without_candidates_it_is_true_or_false(con: duckdb.DuckDBPyConnection) -> None:
    session = dpsql.connect(con, policy=policy())
    assert session.sql("SELECT ABOVE_THRESHOLD(COUNT(*), 5) AS many FROM t").fetchone() == (True,)
    assert session.sql("SELECT NOT ABOVE_THRESHOLD(COUNT(*), 5) AS few FROM t").fetchone() == (False,)
    case = "SELECT CASE WHEN ABOVE_THRESHOLD(COUNT(*), 50) THEN 'many' ELSE 'few' END AS said FROM t"
    assert session.sql(case).fetchone() == ("few",)


def test_hits_join_what_is_public(con: duckdb.DuckDBPyConnection) -> None:
    session = dpsql.connect(con, policy=policy())
    text = f"WITH h AS ({_hits('2.5')}) SELECT k, lo FROM h JOIN c USING (k)"
    assert session.sql(text).dicts() == [{"k": 7, "lo": 5}]


def _spent(session: dpsql.Session) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


@pytest.mark.parametrize("accountant", ["basic", "zcdp"])
def test_rounds_that_never_began_are_not_paid_for(con: duckdb.DuckDBPyConnection, accountant: str) -> None:
    """Ten hits allowed and three found: four tenths with fresh thresholds, under every accountant."""
    session = dpsql.connect(con, policy=policy(accountant))
    found = session.sql(_hits("1.5, max_hits => 10, refresh => TRUE, epsilon => 1000"))
    assert found.shape[0] == 3
    assert found.event.epsilon == 400


def test_hits_that_were_not_found_are_not_paid_for(con: duckdb.DuckDBPyConnection) -> None:
    session = dpsql.connect(con, policy=policy())
    found = session.sql(_hits("1.5, max_hits => 10, epsilon => 1000"))
    assert found.shape[0] == 3
    event = found.event
    first = float(event.epsilon1)  # type: ignore[union-attr]
    second = float(event.epsilon2)  # type: ignore[union-attr]
    assert first + second == pytest.approx(1000)
    assert _spent(session) == pytest.approx(first + 3 * second / 10)


def test_a_ledger_that_cannot_be_written_tells_no_answer(con: duckdb.DuckDBPyConnection) -> None:
    def fails(ticket: object, event: object) -> None:
        raise dpsql.LedgerError("the disk is full.")

    told = set()
    for threshold in (5, 50):  # far below the ten rows, and far above
        with dpsql.connect(con, policy=policy()) as session:
            session.sql(f"DECLARE one ABOVE_THRESHOLD {threshold} OPTIONS (epsilon = 1000)")
            session.account.note_progress = fails  # type: ignore[method-assign, assignment]
            with pytest.raises(dpsql.Error) as caught:
                session.sql("SELECT WITH one COUNT(*) FROM t")
            told.add(str(caught.value))
    assert len(told) == 1


def test_alarms_stand_side_by_side_and_are_settled(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    ledger = tmp_path / "l.ledger"
    with dpsql.connect(con, policy=policy(), ledger=str(ledger)) as session:
        session.sql("DECLARE one ABOVE_THRESHOLD 5 OPTIONS (epsilon = 1000, max_hits = 2)")
        session.sql("DECLARE two ABOVE_THRESHOLD 50 OPTIONS (epsilon = 500)")
        assert session.sql("SELECT WITH one COUNT(*) FROM t").fetchone() == (True,)
        assert session.sql("SELECT COUNT(*) AS n FROM t").fetchone() == (10,)
        assert session.sql("SELECT WITH two COUNT(*) FROM t").fetchone() == (False,)
        assert session.sql("SELECT WITH one COUNT(*) FROM t WHERE x > 8").fetchone() == (False,)
        assert session.sql("CLOSE one").fetchone() == ("one", "closed after 1 hit")
        with pytest.raises(dpsql.BindError, match="is closed"):
            session.sql("SELECT WITH one COUNT(*) FROM t")
    with dpsql.connect(con, policy=policy(), ledger=str(ledger)) as again:
        with pytest.raises(dpsql.Error):
            again.sql("SELECT WITH two COUNT(*) FROM t")
        assert 10_000 < _spent(again) < 11_500


def test_gaps_are_free_and_near_what_is_above(con: duckdb.DuckDBPyConnection) -> None:
    session = dpsql.connect(con, policy=policy())
    plain = session.sql(_hits("1.5, max_hits => 2, epsilon => 1000"))
    gapped = session.sql(_hits("1.5, max_hits => 2, gap => TRUE, epsilon => 1000"))
    assert [row["k"] for row in gapped.dicts()] == [2, 7]
    assert all(abs(row["gap"] - above) <= 1 for row, above in zip(gapped.dicts(), [0.5, 1.5], strict=True))
    assert plain.event == gapped.event


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max"])
def test_ties_are_broken_by_chance_and_not_a_number_is_never_best(
    con: duckdb.DuckDBPyConnection, method: str
) -> None:
    session = dpsql.connect(con, policy=policy())
    tied = f"EXPMECH(COUNT(*) FILTER (WHERE x = k), method => '{method}') OVER d FROM t"
    text = f"WITH d(k) AS (VALUES (3), (5)) SELECT k, {tied}"
    assert {session.sql(text, fresh=True).fetchone() for _ in range(30)} == {(3,), (5,)}
    prices = "WITH p(v) AS (VALUES (1::DOUBLE), ('nan'::DOUBLE), (3::DOUBLE))"
    call = f"EXPMECH(v * COUNT(*) FILTER (WHERE x >= v), method => '{method}')"
    assert session.sql(f"{prices} SELECT v, {call} OVER p FROM t").fetchall() == [(3.0,)]


def test_prices_are_compared_in_units_of_their_own(con: duckdb.DuckDBPyConnection) -> None:
    session = dpsql.connect(con, policy=policy())
    prices = "WITH p(v) AS (VALUES (1.00), (1.01), (3.00), (3.01))"
    text = f"{prices} SELECT v, EXPMECH(v * COUNT(*) FILTER (WHERE x >= v), top => 2) OVER p FROM t"
    assert "generalised mechanism" in str(session.explain(text))
    assert [float(v) for (v,) in session.sql(text).fetchall()] == [3.0, 3.01]
