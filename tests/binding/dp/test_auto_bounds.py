"""AUTO in statements: declared bounds end the search and hold the values, too few rows give NULL, and EXPLAIN says so."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.exact.exact_query import Exact, write_bounded_rows
from tests.support.policies import budget, table, write_policy

AUTO = "contribution_bounds_per_row => AUTO"

POLICY = write_policy(
    budget(1000, 1e-6, 1, accountant=None),
    t=table("id", None, 1, {"max_rows": 1}, id={}, age=(17, 90), free={}, g=[0, 1]),
)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dpsql.Session]:
    (tmp_path / "policy.toml").write_text(POLICY)
    with duckdb.connect() as con:
        # One age is against the policy, and stays so: it must weigh no more than the declared 90.
        con.execute(
            "CREATE TABLE t AS SELECT i AS id, CASE WHEN i = 7 THEN 1e12 ELSE 17 + (i * 7919) % 74 END AS age, "
            "CASE WHEN i = 7 THEN NULL ELSE 40::DOUBLE + i % 20 END AS free, i % 2 AS g FROM range(30000) r(i)"
        )
        with dpsql.connect(con, policy=tmp_path / "policy.toml") as made:
            yield made


def test_declared_bounds_end_the_search(session: dpsql.Session) -> None:
    got = session.sql(f"SELECT AVG(age, {AUTO}) AS mean, SUM(age, {AUTO}) AS total FROM t")
    (row,) = got.dicts()
    assert row["mean"] == pytest.approx(53.5, abs=1)
    assert row["total"] == pytest.approx(53.5 * 30_000, rel=0.02)
    assert any("[0, 90]" in note for note in got.notes)
    said = str(session.explain(f"SELECT AVG(age, {AUTO}) FROM t"))
    assert "up to 90 and none below 0, by the declared bounds" in said
    assert re.search(r"LEAST\(r\d+\.v, CAST\('90\.0' AS DOUBLE\)\)", said)


def test_bounds_of_an_expression(session: dpsql.Session) -> None:
    said = str(session.explain(f"SELECT SUM(-2 * age, {AUTO}) FROM t"))
    assert "none above 0 and down to -180, by the declared bounds" in said


def test_nothing_declared(session: dpsql.Session) -> None:
    (row,) = session.sql(f"SELECT AVG(free, {AUTO}) AS mean FROM t").dicts()
    assert row["mean"] == pytest.approx(49.5, abs=1)
    said = str(session.explain(f"SELECT AVG(free, {AUTO}) FROM t"))
    assert re.search(r"AUTO needs about 21\d rows between one power of two and the next", said)
    assert "has a chance of at most 1.3e-10" in said
    assert "the answer is NULL" in said


@pytest.mark.parametrize("where", ["id < 60", "id < 0", "id = 7"])
@pytest.mark.parametrize("kind", ["SUM", "AVG", "STDDEV"])
def test_too_few_rows(session: dpsql.Session, where: str, kind: str) -> None:
    enough = session.sql(f"SELECT {kind}(free, {AUTO}) AS a FROM t")
    got = session.sql(f"SELECT {kind}(free, {AUTO}) AS a FROM t WHERE {where}")
    assert got.fetchall() == [(None,)]
    assert got.event == enough.event
    assert [note for note in got.notes if "is NULL" in note and "about 21" in note]


@pytest.mark.parametrize("call", ["SUM(free, {})", "AVG(free, {})", "STDDEV(free, {})"])
def test_explain_proposes_auto_where_bounds_are_loose(session: dpsql.Session, call: str) -> None:
    """Read the bounds alone: nobody looks at the data for it, and narrow bounds, or AUTO itself, have no such words."""
    words = "contribution_bounds_per_row => AUTO finds nearer bounds"

    def told(bounds: str) -> str:
        bounded = call.format(f"contribution_bounds_per_row => {bounds}")
        _, _, after_price = str(session.explain(f"SELECT {bounded} FROM t")).partition(
            "Nothing has been spent"
        )
        return " ".join(after_price.split())

    assert f"if values rarely reach 4e+05, {words}" in told("(0, 1000000)")
    assert f"if values rarely reach 2e+03, {words}" in told("(-5000, 10)")
    assert words not in told("(0, 120)")
    assert words not in told("AUTO")
    before = told("(0, 1000000)")
    session.sql(f"SELECT {call.format(AUTO)} FROM t")
    assert told("(0, 1000000)") == before


@pytest.mark.parametrize("call", ["SUM", "AVG", "VARIANCE", "STDDEV"])
def test_bounds_that_are_found_stand_beside_no_others(session: dpsql.Session, call: str) -> None:
    text = f"SELECT {call}(age, contribution_bounds_per_row => AUTO, contribution_bounds_per_group => (0, 9)) AS m FROM t"
    with pytest.raises(dpsql.BindError, match="per row") as caught:
        session.sql(text)
    assert caught.value.span is not None


def test_all_of_a_statement_share_the_chance(session: dpsql.Session) -> None:
    """Twenty in one statement, whether in one block or in as many."""
    calls = ", ".join(f"AVG(free + {i}, {AUTO}) AS a{i}" for i in range(20))
    ctes = ", ".join(f"b{i} AS (SELECT WITH DP AVG(free + {i}, {AUTO}) AS a{i} FROM t)" for i in range(20))
    for text in (f"SELECT {calls} FROM t", f"WITH {ctes} SELECT a0, a19 FROM b0, b19"):
        said = re.findall(r"has a chance of at most (\S*\d)\.\s", str(session.explain(text)))
        chances = [float(chance) for chance in said]
        assert len(chances) == 20
        assert math.fsum(chances) < 1.001e-9
    assert sum(20 * [1.25e-10]) > 1e-9  # what each has in a statement of few


SPREADS = ("VARIANCE", "VAR_SAMP", "VAR_POP", "STDDEV", "STDDEV_SAMP", "STDDEV_POP")


def test_spreads_are_those_of_duckdb_at_a_huge_epsilon(tmp_path: Path) -> None:
    """Nothing is clipped where the bounds are found at a huge epsilon, but for the six digits that a value keeps."""
    (tmp_path / "policy.toml").write_text(POLICY.replace("epsilon = 1000\n", "epsilon = 1e9\n"))
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS id, 17 + i % 70 AS age, -7 + sqrt(i) / 3 AS free, i % 2 AS g FROM range(3000) r(i)"
        )
        with dpsql.connect(con, policy=tmp_path / "policy.toml") as session:
            for column in ("free", "age", "g - 3"):
                calls = ", ".join(f"{name}({column}, {AUTO})" for name in SPREADS)
                got = session.sql(f"SELECT WITH DP OPTIONS (epsilon = 1e7) {calls} FROM t").fetchone()
                want = con.execute(f"SELECT {', '.join(f'{s}({column})' for s in SPREADS)} FROM t").fetchone()
                assert got == pytest.approx(want, rel=1e-4)
            text = (
                f"SELECT WITH DP OPTIONS (epsilon = 1e7) g, STDDEV(free, {AUTO}) FROM t GROUP BY g ORDER BY g"
            )
            want = con.execute("SELECT g, STDDEV(free) FROM t GROUP BY g ORDER BY g").fetchall()
            got = session.sql(text).fetchall()
            assert [row[1] for row in got] == pytest.approx([row[1] for row in want], rel=1e-4)


def test_the_lock_proves_that_bounds_are_found_from_one_row_of_each_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample of two rows of a unit would move the search by 2 and is charged as 1: the second lock refuses it."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i // 5 AS id, 50.0 + i % 7 AS x, i % 2 AS g FROM range(20000) AS r(i)"
    )
    policy = dpsql.Policy.loads("""
        budget = { epsilon = 100 }
        [tables]
        t = { privacy_unit = "id", max_rows = 5, max_groups = 2, columns = { g = { values = [0, 1] } } }
    """)
    call = "AVG(x, contribution_bounds_per_row => AUTO) AS m FROM t"
    for text in (f"SELECT {call}", f"SELECT g, {call} GROUP BY g"):
        asked = f"{text.replace('SELECT', 'SELECT WITH DP OPTIONS (epsilon = 10)', 1)}"
        with dpsql.connect(con, policy=policy) as session:
            assert all(abs(row[-1] - 53) < 3 for row in session.sql(asked).fetchall())
        with monkeypatch.context() as patched, dpsql.connect(con, policy=policy) as session:

            def two_rows(self: Exact, value: str) -> str:
                return write_bounded_rows(
                    self.bound, self.where, self.keys, {"v": value}, 2, None, self.domain, True
                )

            patched.setattr(Exact, "one_row", two_rows)
            with pytest.raises(dpsql.Error):
                session.sql(asked)
            assert session.budget().spent_epsilon == 0
