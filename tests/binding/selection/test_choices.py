"""Answers of a session for each form of a private choice, where the noise is too small to matter; and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql


def _policy(accountant: str) -> dpsql.Policy:
    return dpsql.Policy.loads(f"""
budget = {{ epsilon = 1e9, delta = 0.5, accountant = "{accountant}", default_epsilon = 1e5, default_delta = 1e-6 }}
[tables]
t = {{ privacy_unit = "ROW", columns = {{ x = {{ bounds = [0, 10] }} }} }}
u = {{ privacy_unit = "id", max_rows = 3, columns = {{ x = {{ bounds = [0, 10] }} }} }}
c = {{ public = true }}
""")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute(
            "CREATE TABLE t AS SELECT unnest([1, 2, 2, 3, NULL, 5, 7, 7, 7, 9]) AS x, "
            "unnest([1.5, 2.5, 'nan'::DOUBLE, 3, 4, 5, 6, 7, 8, 9]::DOUBLE[]) AS y"
        )
        made.execute("CREATE TABLE u AS SELECT i // 2 AS id, (i % 10)::INTEGER AS x FROM range(40) r(i)")
        made.execute(
            "CREATE TABLE c AS SELECT unnest([1, 2, 7, NULL, 2]) AS k, unnest([0, 2, 5, 1, 9]) AS lo"
        )
        yield made


@pytest.fixture
def session(con: duckdb.DuckDBPyConnection) -> dpsql.Session:
    return dpsql.connect(con, policy=_policy("basic"))


EQUAL = "COUNT(*) FILTER (WHERE x = k)"


def test_gaps_are_free_and_near_what_is_above(session: dpsql.Session) -> None:
    text = f"SELECT k, ABOVE_THRESHOLD({EQUAL}, 1.5, max_hits => 2{{}}, epsilon => 1000) OVER c FROM t"
    plain, gapped = session.sql(text.format("")), session.sql(text.format(", gap => TRUE"))
    assert [row["k"] for row in gapped.dicts()] == [2, 7]
    assert all(abs(row["gap"] - above) <= 1 for row, above in zip(gapped.dicts(), [0.5, 1.5], strict=True))
    assert plain.event == gapped.event


def test_gaps_beside_answers(session: dpsql.Session) -> None:
    call = f"ABOVE_THRESHOLD({EQUAL}, 1.5, max_hits => 2, gap => TRUE, answer => TRUE)"
    got = session.sql(f"SELECT k, {call} OVER c FROM t").dicts()
    assert [(row["k"], row["answer"]) for row in got] == [(2, 2), (7, 3)]


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_elsewhere_hits_that_were_not_found_are_paid_for(
    con: duckdb.DuckDBPyConnection, accountant: str
) -> None:
    def charged(name: str, allowed: int) -> tuple[int, float]:
        with dpsql.connect(con, policy=_policy(name)) as session:
            call = f"ABOVE_THRESHOLD({EQUAL}, 1.5, max_hits => {allowed}, epsilon => 1000)"
            found = session.sql(f"SELECT k, {call} OVER c FROM t")
            last = [e.event for e in session.ledger() if e.event is not None][-1]
            amount = last.rho if name == "zcdp" else last.mu
            return found.shape[0], float(amount or 0)

    hits, loss = charged(accountant, 10)
    whole = {"zcdp": 490.0, "gdp": 40.0}[
        accountant
    ]  # of a pure loss of 1,000; three tenths of it are far less
    assert hits == 3
    assert loss > whole


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max"])
class TestOddCandidates:
    def test_one(self, session: dpsql.Session, method: str) -> None:
        text = f"WITH one(k) AS (VALUES (3)) SELECT k, EXPMECH({EQUAL}, method => '{method}') OVER one FROM t"
        assert session.sql(text).fetchall() == [(3,)]

    def test_duplicates_and_null_keys_take_part(self, session: dpsql.Session, method: str) -> None:
        call = f"EXPMECH({EQUAL}, method => '{method}', top => 5, answer => TRUE)"
        got = session.sql(f"SELECT k, {call} OVER c FROM t").fetchall()
        assert got == [(7, 3), (2, 2), (2, 2), (1, 1), (None, 0)]

    def test_ties_are_broken_by_chance(self, session: dpsql.Session, method: str) -> None:
        text = (
            f"WITH d(k) AS (VALUES (3), (5)) SELECT k, EXPMECH({EQUAL}, method => '{method}') OVER d FROM t"
        )
        assert {session.sql(text, fresh=True).fetchone() for _ in range(30)} == {(3,), (5,)}

    def test_not_a_number_is_never_best(self, session: dpsql.Session, method: str) -> None:
        prices = "WITH p(v) AS (VALUES (1::DOUBLE), ('nan'::DOUBLE), (3::DOUBLE))"
        call = f"EXPMECH(v * COUNT(*) FILTER (WHERE x >= v), method => '{method}')"
        assert session.sql(f"{prices} SELECT v, {call} OVER p FROM t").fetchall() == [(3.0,)]


@pytest.mark.parametrize(
    ("statistic", "reason"),
    [
        ("SUM(y)", "needs bounds"),
        ("MEDIAN(x)", "how far one row moves MEDIAN can't be derived"),
        ("AVG(x) FILTER (WHERE x = k)", "how far one row moves AVG can't be derived"),
        ("COUNT(*) / AVG(x)", "how far one row moves AVG can't be derived"),
        ("COUNT(DISTINCT x)", "not known per candidate"),
        (f"{EQUAL} * COUNT(*)", "sensitivity of a product of private numbers can't be derived"),
        ("k + 1", "does not read private rows"),
    ],
)
@pytest.mark.parametrize("mechanism", ["EXPMECH({})", "ABOVE_THRESHOLD({}, 3)"])
def test_what_has_no_sensitivity_is_refused(
    session: dpsql.Session, mechanism: str, statistic: str, reason: str
) -> None:
    with pytest.raises(dpsql.PrivacyError, match=reason):
        session.sql(f"SELECT k, {mechanism.format(statistic)} OVER c FROM t")
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


@pytest.mark.parametrize(
    ("statistic", "table", "shape", "moved"),
    [
        (EQUAL, "t", "one pass (equality)", 1),
        (EQUAL, "u", "one pass (equality)", 3),
        ("COUNT(*) FILTER (WHERE x >= k)", "t", "one pass (one-sided)", 1),
        ("COUNT(*) FILTER (WHERE x BETWEEN lo AND k)", "t", "one pass (two-sided)", 1),
        ("SUM(LEAST(x, k))", "t", "one pass (clipped sum)", 7),
        ("SUM(LEAST(x, k))", "u", "one pass (clipped sum)", 21),
        ("SUM(x) FILTER (WHERE x >= k)", "u", "one pass (one-sided)", 30),
        ("COUNT(*) FILTER (WHERE (x + k) % 3 = lo)", "t", "nested loop", 1),
    ],
)
def test_explain_names_the_shape_and_the_sensitivity(
    session: dpsql.Session, statistic: str, table: str, shape: str, moved: int
) -> None:
    said = str(session.explain(f"SELECT k, EXPMECH({statistic}, epsilon => 1) OVER c FROM {table}"))
    assert shape in said
    assert f"moves it by at most {moved}," in said
    assert "the winner is within" in said


def test_prices_are_compared_in_units_of_their_own(session: dpsql.Session) -> None:
    prices = "WITH p(v) AS (VALUES (1.00), (1.01), (3.00), (3.01))"
    text = f"{prices} SELECT v, EXPMECH(v * COUNT(*) FILTER (WHERE x >= v), top => 2) OVER p FROM t"
    assert "generalised mechanism" in str(session.explain(text))
    assert [float(v) for (v,) in session.sql(text).fetchall()] == [3.0, 3.01]


def test_bounds_found_privately(session: dpsql.Session) -> None:
    auto = "contribution_bounds_per_row => AUTO"
    mean, total = session.sql(f"SELECT AVG(x, {auto}) AS a, SUM(x, {auto}) AS s FROM t").fetchall()[0]
    assert mean == pytest.approx(43 / 9, rel=0.05)
    assert total == pytest.approx(43, rel=0.05)


def test_quantiles_of_plain_blocks(session: dpsql.Session) -> None:
    text = "SELECT MEDIAN(x), QUANTILE_DISC(x, 0.25), QUANTILE_CONT(x, 0.75), PERCENTILE_CONT(x, 0.5) FROM t"
    assert session.sql(text).fetchone() == (5, 2, 7, 5)


def test_the_ends_are_within_a_row_of_the_data(session: dpsql.Session) -> None:
    least, greatest = session.sql("SELECT MIN(x), MAX(x) FROM t").fetchall()[0]
    assert least in (1, 2)
    assert greatest in (7, 8, 9)
