"""A unit's sum of whole numbers is a whole number, by GROUP BY and by window; a sum of prices meets a threshold that it is."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.fixtures import con_fixture, session_fixture

POLICY = """
[budget]
epsilon = 1e12
delta = 0.1
accountant = "basic"
default_epsilon = 1e8
[tables.t]
privacy_unit = "u"
max_rows = 5
max_groups = 10
[tables.t.columns]
n = { bounds = [1, 4] }
price = { bounds = [0, 1000] }
"""
DATA = """
CREATE TABLE t AS SELECT i // 3 AS u, CASE WHEN i % 5 > 0 THEN i % 5 END AS n, (i % 3)::BIGINT * 4000000000000000000 AS b,
    (i % 7)::UBIGINT AS w, (i % 2)::TINYINT AS p, [19.99, 29.99, 50.02][i % 3 + 1]::DOUBLE AS price FROM range(300) r(i)
"""


con = con_fixture(DATA)
session = session_fixture(POLICY, ledger=True)


GROUPED = "(SELECT u, SUM(n) AS s, SUM(b) AS b, SUM(w) AS w, SUM(p) AS p FROM t GROUP BY u)"
_OVER = "OVER (PARTITION BY u)"
WINDOW = f"(SELECT u, SUM(n) {_OVER} AS s, SUM(b) {_OVER} AS b, SUM(p) {_OVER} AS p FROM t)"
LOOKS = [
    "s // 2 = 1", "s & 1 = 1", "s::VARCHAR = '7'", "(s // 100) * 100 = 0", "s % 2 = 0", "s * s > 20", "s / 2 = 2.5",
    "s IN (1, 2, 5)", "s BETWEEN 3 AND 6", "-s < -5", "abs(s) = 3", "s::INTEGER = 4", "s | 1 = 5", "s = 5.0",
    "concat(s, 'x') = '5x'",     "mod(s, 3) = 1", "xor(s::INTEGER, 1) = 4",
    "round(s / 3, 1) > 1", "COALESCE(s, 0) = 0", "greatest(s, 3) = 3",
    "b // 4000000000000000000 = 3",
    "b::VARCHAR = '12000000000000000000'", "b % 7 = 3", "b * 2 > 0", "p // 2 = 0", "p::VARCHAR = '1'",
]  # fmt: skip


@pytest.mark.parametrize("rows", [GROUPED, WINDOW])
def test_a_units_sum_is_what_duckdb_says(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, rows: str
) -> None:
    counts = ", ".join(f"COUNT(*) FILTER (WHERE {look})" for look in LOOKS)
    text = f"SELECT {counts} FROM {rows}"
    ours, theirs = session.sql(text).fetchone(), con.execute(text).fetchone()
    assert ours is not None
    assert theirs is not None
    assert ours == theirs, [(look, a, b) for look, a, b in zip(LOOKS, ours, theirs, strict=True) if a != b]


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT COUNT(*) FROM {GROUPED} WHERE w // 2 = 3 AND w & 1 = 1",
        "SELECT COUNT(*) FROM (SELECT u FROM t GROUP BY u HAVING SUM(n) // 2 = 3)",
        "SELECT COUNT(*) FROM (SELECT u, SUM(DISTINCT n) AS s FROM t GROUP BY u) WHERE s // 2 = 3",
        "SELECT COUNT(*) FROM (SELECT u, SUM(n) FILTER (WHERE p = 1) AS s FROM t GROUP BY u) WHERE s // 2 = 1",
        "SELECT COUNT(*) FROM (SELECT u, SUM(s) AS s FROM (SELECT u, p, SUM(n) AS s FROM t GROUP BY u, p) GROUP BY u) "
        "WHERE s // 2 = 3",
        "SELECT COUNT(*) FROM t a WHERE (SELECT SUM(n) FROM t b WHERE b.u = a.u) // 2 = 3",
        "SELECT COUNT(*) FROM (SELECT u, SUM(n) OVER (PARTITION BY u ORDER BY p) AS s FROM t) WHERE s // 2 = 3",
        "SELECT COUNT(DISTINCT s) FROM (SELECT u, SUM(n) AS s FROM t GROUP BY u)",
        "SELECT COUNT(*) FROM (SELECT u FROM t GROUP BY u HAVING SUM(price) >= 100)",
        "SELECT COUNT(*) FROM (SELECT u FROM t GROUP BY u HAVING SUM(price) = 100.00)",
        "SELECT COUNT(*) FROM (SELECT u FROM t GROUP BY u HAVING SUM(price) > 100)",
        "SELECT COUNT(*) FROM (SELECT u, SUM(price) AS s FROM t WHERE price < 40 GROUP BY u) WHERE s = 49.98",
    ],
)  # fmt: skip
def test_every_place_of_a_units_sum(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert session.sql(text).fetchall() == con.execute(text).fetchall()


def test_keys_of_sums_are_whole(session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> None:
    for key in ("s", "s // 2", "b", "s::VARCHAR"):
        rest = f"{key} AS k, COUNT(*) FROM {GROUPED} GROUP BY 1"
        ours = session.sql(f"SELECT WITH DP OPTIONS (delta = 0.001) {rest}").fetchall()
        assert sorted(ours) == sorted(con.execute(f"SELECT {rest}").fetchall())
        assert all(type(value) is (str if "VARCHAR" in key else int) for value, _ in ours)


def test_one_person_with_extremes_does_not_fail_it() -> None:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i AS u, 9223372036854775807 AS n, 1.0::DOUBLE AS price FROM range(50) r(i)"
    )
    con.execute("INSERT INTO t SELECT 7, -9223372036854775808, 'nan'::DOUBLE FROM range(10)")
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        for look in (
            "s * 2 > 0",
            "s + 1 > 0",
            "-s > 0",
            "s // 3 > 0",
            "abs(s) > 0",
            "s * s > 0",
            "s::INTEGER = 1",
            "s % 7 = 0",
        ):
            found = session.sql(
                f"SELECT COUNT(*) FROM (SELECT u, SUM(n) AS s FROM t GROUP BY u) WHERE {look}"
            ).fetchone()
            assert found is not None


DECIMALS = """
CREATE TABLE d AS SELECT i // 3 AS u, i % 3 AS o, (0.1 * (i % 7))::DECIMAL(9, 2) AS a, (0.1 * (i % 7))::DECIMAL(19, 18) AS b,
    (0.1 * (i % 7))::DECIMAL(28, 10) AS c, (0.1 * (i % 7))::DECIMAL(38, 10) AS e FROM range(300) r(i)
"""
FAR = "999999999999999999999999999.5"
"""A number of which 38 digits do not hold the sum over as many rows as a unit may have."""


@pytest.mark.parametrize("column", ["a", "b", "c", "e"])
def test_a_units_sum_of_decimals_is_exact(column: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    con = duckdb.connect()
    con.execute(DECIMALS)
    policy = POLICY.partition("[tables.t.columns]")[0].replace("tables.t", "tables.d")
    texts = [
        f"SELECT COUNT(*) FROM (SELECT u, SUM({column}) AS s FROM d GROUP BY u) WHERE s = 0.3",
        f"SELECT COUNT(*) FROM (SELECT u, SUM(DISTINCT {column}) AS s FROM d GROUP BY u) WHERE s = 0.9",
        f"SELECT COUNT(*) FROM (SELECT u, SUM(x) AS s FROM (SELECT u, o, SUM({column}) AS x FROM d GROUP BY u, o) "
        "GROUP BY u) WHERE s = 0.3",
    ]
    if column == "a":
        texts.append(
            f"SELECT COUNT(*) FROM (SELECT u, SUM({column}) OVER (PARTITION BY u) AS s FROM d) WHERE s = 0.3"
        )
    ledger = tmp_path_factory.mktemp("decimals") / "ledger"
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy), ledger=ledger) as session:
        for text in texts:
            assert session.sql(text).fetchall() == con.sql(text).fetchall()
        con.execute(f"INSERT INTO d SELECT 7, 0, 0, 0, 0, {FAR} FROM range(5)")
        text = f"SELECT COUNT(*), COUNT(s) FROM (SELECT u, SUM({column}) AS s FROM d GROUP BY u)"
        missing = column == "e"
        assert session.sql(text, fresh=True).fetchall() == [(100, 100 - missing)]


def test_count_if_keeps_its_filter(session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> None:
    rows = "(SELECT u, COUNT_IF(n > 1) FILTER (WHERE p = 0) AS c FROM t GROUP BY u)"
    text = f"SELECT COUNT(*) FILTER (WHERE c = 1), COUNT(*) FILTER (WHERE c = 2) FROM {rows}"
    assert session.sql(text).fetchone() == con.execute(text).fetchone()
