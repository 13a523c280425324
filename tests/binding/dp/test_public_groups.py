"""Public groups are those that plain DuckDB could show: conditions on public values leave the others out, none else does."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.analyst import check_rows
from tests.support.case_files import read_part
from tests.support.fixtures import con_fixture
from tests.support.plain import policy_of

POLICY = policy_of("""
s = { values = [1, 2, 3] }
x = { bounds = [0, 50] }
d = { bounds = [2020-01-01, 2024-12-31] }
ts = { bounds = [2020-01-01, 2024-12-31] }
""")

_ALL = "OPTIONS (group_selection_strategy = PUBLIC_GROUPS)"
TABLES = """
CREATE TABLE v AS SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'A' ELSE 'B' END AS w, i % 3 + 1 AS s, i % 50 AS x,
            DATE '2020-01-01' + (i % 1827)::INTEGER AS d, TIMESTAMP '2020-01-01 10:00:00' + INTERVAL (i % 1827) DAY AS ts,
            i % 7 < 3 AS b, CASE WHEN i % 5 = 0 THEN NULL ELSE 'k' || (i % 3) END AS k
        FROM range(20000) AS t(i);
CREATE TABLE plans AS
        SELECT * FROM (VALUES ('A', 'good', 10), ('B', 'bad', 20), ('C', 'good', 30)) AS t(w, kind, price);
"""
con = con_fixture(TABLES)


def _same(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str, plain: str | None = None
) -> None:
    check_rows(session.sql(text).fetchall(), con.execute(plain or text).fetchall())


def declare(column: str, values: str) -> dpsql.Policy:
    made = policy_of(f"{column} = {{ values = {values} }}\n")
    return dpsql.Policy.loads(made.replace('w = { values = ["A", "B"] }\n', "") if column == "w" else made)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("d", "[0, 2]", "'0', of the values of v.d, is not a valid DATE."),
        ("d", '["20240101"]', "'20240101', of the values of v.d, is not a valid DATE."),
        ("ts", '["yesterday"]', "'yesterday', of the values of v.ts, is not a valid TIMESTAMP."),
        ("x", '["1", "two"]', "'two', of the values of v.x, is not a valid BIGINT."),
        ("x", "[2024-01-01]", "'2024-01-01', of the values of v.x, is not a valid BIGINT."),
        ("x", "[1e30]", "'1000000000000000000000000000000', of the values of v.x, is not a valid BIGINT."),
        ("b", '["maybe"]', "'maybe', of the values of v.b, is not a valid BOOLEAN."),
        ("b", '["true"]', "'true', of the values of v.b, is not a valid BOOLEAN."),
        ("b", "[0, 1]", "'0', of the values of v.b, is not a valid BOOLEAN."),
    ],
)
def test_declared_values_of_another_type_are_refused(
    con: duckdb.DuckDBPyConnection, column: str, values: str, said: str
) -> None:
    """A query with them once failed after it was paid."""
    with dpsql.connect(con, policy=declare(column, values)) as session:
        with pytest.raises(dpsql.PolicyError) as caught:
            session.sql(f"SELECT {column}, COUNT(*) FROM v GROUP BY {column}")
        assert caught.value.message == said
        assert session.budget().spent_epsilon == 0


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("d", '["2020-01-01"]'),
        ("ts", "[2020-01-01]"),
        ("x", '["1", "02"]'),
        ("w", "[1, 2]"),
        ("d", '["2020-1-1", "2020-01-01"]'),
    ],
)
def test_declared_values_that_are_written_otherwise_are_read(
    con: duckdb.DuckDBPyConnection, column: str, values: str
) -> None:
    with dpsql.connect(con, policy=declare(column, values)) as session:
        session.sql(f"SELECT {column}, COUNT(*) FROM v GROUP BY {column}")


RESTRICTED = read_part(__file__, "RESTRICTED")


@pytest.mark.parametrize("condition", RESTRICTED)
def test_conditions_on_a_key_leave_groups_out(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, condition: str
) -> None:
    _same(session, con, f"SELECT w, COUNT(*), AVG(x), SUM(x) FROM v WHERE {condition} GROUP BY w")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s, w, COUNT(*) FROM v WHERE s > 1 AND w = 'A' GROUP BY ALL",
        "SELECT s, w, COUNT(*) FROM v WHERE s = 1 OR w = 'A' GROUP BY ALL",
        "SELECT b, COUNT(*) FROM v WHERE b GROUP BY b",
        "SELECT x > 5 AS y, COUNT(*) FROM v WHERE NOT x > 5 GROUP BY y",
        "SELECT CASE WHEN x > 5 THEN 'hi' ELSE 'lo' END AS c, COUNT(*) FROM v "
        "WHERE CASE WHEN x > 5 THEN 'hi' ELSE 'lo' END LIKE 'h%' GROUP BY 1",
        "SELECT year(d), month(d), COUNT(*) FROM v GROUP BY ALL",
        "SELECT year(d) AS y, month(d) AS m, COUNT(*) FROM v WHERE d >= DATE '2023-11-05' GROUP BY ALL",
        "SELECT year(d), COUNT(*) FROM v WHERE year(d) IN (2021, 2022) GROUP BY 1",
        "SELECT date_trunc('month', ts), dayname(ts), COUNT(*) FROM v "
        "WHERE ts >= TIMESTAMP '2020-01-15 09:00' AND ts < TIMESTAMP '2020-03-01' GROUP BY ALL",
        "SELECT ts::DATE, COUNT(*) FROM v WHERE ts BETWEEN '2020-01-05 09:00' AND '2020-01-07 11:00' GROUP BY 1",
        "SELECT ts::DATE, COUNT(*) FROM v WHERE ts = TIMESTAMP '2020-01-05 10:00' GROUP BY 1",
        "SELECT w, COUNT(*) FROM v JOIN plans USING (w) WHERE kind = 'good' GROUP BY w",
        "SELECT w, COUNT(*) FROM v SEMI JOIN (SELECT w FROM plans WHERE price = 20) AS p USING (w) GROUP BY w",
        "SELECT p.w, COUNT(v.id) FROM v RIGHT JOIN plans AS p ON v.w = p.w WHERE p.kind = 'good' GROUP BY p.w",
        "SELECT p.w, COUNT(v.id) FROM plans AS p LEFT JOIN v ON v.w = p.w AND p.kind = 'bad' GROUP BY p.w",
        "SELECT p.kind, COUNT(v.id) FROM plans AS p LEFT JOIN v USING (w) WHERE price < 25 GROUP BY p.kind",
        "SELECT w, s, COUNT(*) FROM v WHERE w = 'A' AND s < 3 GROUP BY ROLLUP (w, s)",
        "SELECT w, s, COUNT(*) FROM v WHERE w = 'A' GROUP BY GROUPING SETS ((w), (s), (w, s))",
        "SELECT w, s, SUM(x) FROM v WHERE s <> 2 GROUP BY CUBE (w, s)",
    ],
)  # fmt: skip
def test_all_shapes_of_keys(session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str) -> None:
    _same(session, con, text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("SELECT w, MEDIAN(x) FROM v WHERE w = 'B' GROUP BY w", "SELECT 'B', MEDIAN(x) FROM v WHERE w = 'B'"),
        ("SELECT WITH PTR w, MODE(b) FROM v WHERE w = 'B' GROUP BY w", "SELECT w, MODE(b) FROM v WHERE w = 'B' GROUP BY w"),
        (
            "SELECT WITH DP OPTIONS (consistent = TRUE) w, s, COUNT(*) FROM v WHERE w = 'A' GROUP BY ROLLUP (w, s)",
            "SELECT w, s, COUNT(*) FROM v WHERE w = 'A' GROUP BY ROLLUP (w, s)",
        ),
    ],
)  # fmt: skip
def test_all_kinds_of_blocks(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str, plain: str
) -> None:
    _same(session, con, text, plain)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT w, COUNT(*) FROM v WHERE x = 77 GROUP BY w",
        "SELECT w, COUNT(*) FILTER (WHERE w = 'A') FROM v GROUP BY w",
        "SELECT w, COUNT(*) FROM v WHERE w = 'A' OR x = 77 GROUP BY w",
        "SELECT w, COUNT(*) FROM v WHERE s = 1 AND s = 2 GROUP BY w",
        "SELECT w, COUNT(*) FROM v WHERE k = w GROUP BY w",
        "SELECT w, COUNT(*) FROM v WHERE EXISTS (SELECT 1 FROM v AS o WHERE o.id = v.id AND o.w = v.w AND o.x = 77) GROUP BY w",
        "SELECT w, COUNT(*) FROM v LEFT JOIN plans USING (w) WHERE plans.kind = 'none' GROUP BY w",
    ],
)  # fmt: skip
def test_private_conditions_and_filters_leave_no_group_out(session: dpsql.Session, text: str) -> None:
    """The control: what depends on a private row must not show in which groups there are."""
    assert {row[0] for row in session.sql(text).fetchall()} == {"A", "B"}


def test_a_time_within_a_day_keeps_the_day(session: dpsql.Session) -> None:
    found = session.sql(
        f"SELECT WITH DP {_ALL} ts::DATE AS day, COUNT(*) FROM v "
        "WHERE ts > TIMESTAMP '2020-01-05 12:00' AND ts < '2020-01-06 09:00' GROUP BY 1"
    )
    assert [str(row[0]) for row in sorted(found.fetchall())] == ["2020-01-05", "2020-01-06"]
    found = session.sql("SELECT ts::DATE, COUNT(*) FROM v WHERE date_part('hour', ts) = 10 GROUP BY 1")
    assert len(found) == 1827


def test_groups_that_are_left_out_cost_no_noise(con: duckdb.DuckDBPyConnection) -> None:
    """A unit of several groups is in one of them at most where the others are left out; no fewer where they are not."""
    wide = POLICY.replace("max_groups = 1", "max_groups = 5").replace("max_rows = ", "max_rows_per_group = ")
    with dpsql.connect(con, policy=dpsql.Policy.loads(wide)) as session:
        text = "SELECT s, COUNT(*) FROM v WHERE {} GROUP BY s"
        limits = [
            session.sql("SELECT WITH DP OPTIONS (epsilon = 1) " + text.format(c)[7:]).ends["count_star()"]
            for c in ("s = 2", "s IN (1, 2)", "x = 2")
        ]
    widths = [high[0].as_py() - low[0].as_py() for low, high in limits]
    assert widths[0] < widths[1] < widths[2]


def test_no_more_groups_than_were_counted(session: dpsql.Session) -> None:
    """Noise is made for so many; the query itself holds to that, whatever an engine would find."""
    text = "SELECT w, COUNT(*) FROM v WHERE {} GROUP BY w"
    assert "LIMIT 1" in " ".join(session.explain(text.format("w = 'A'")).sql)
    assert "LIMIT" not in " ".join(session.explain(text.format("x = 3")).sql)


def test_a_released_null_key_keeps_its_group(session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> None:
    released = "WITH r AS (SELECT k, COUNT(*) AS n FROM v GROUP BY k) "
    for from_ in (
        "v RIGHT JOIN r ON v.k IS NOT DISTINCT FROM r.k",
        "r LEFT JOIN v ON v.k IS NOT DISTINCT FROM r.k",
    ):
        _same(
            session, con, f"{released} SELECT r.k, COUNT(v.id), AVG(v.x), SUM(v.x) FROM {from_} GROUP BY r.k"
        )
    two = "WITH r AS (SELECT k, w, COUNT(*) AS n FROM v GROUP BY k, w) "
    _same(
        session, con,
        two + "SELECT r.k, r.w, COUNT(v.id) FROM v RIGHT JOIN r ON v.k IS NOT DISTINCT FROM r.k AND v.w = r.w GROUP BY ALL",
    )  # fmt: skip
    medians = session.sql(
        f"{released} SELECT r.k, MEDIAN(v.x) FROM v RIGHT JOIN r ON v.k IS NOT DISTINCT FROM r.k GROUP BY r.k"
    ).fetchall()
    assert 20 <= dict(medians)[None] <= 25


def test_groups_beyond_the_most_are_still_refused(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.PrivacyError, match="public groups"):
        session.sql("SELECT d, ts::DATE, COUNT(*) FROM v GROUP BY ALL")
    kept = session.sql(
        f"SELECT WITH DP {_ALL} d, ts::DATE, COUNT(*) FROM v WHERE d < '2020-01-03' AND ts < '2020-01-03' GROUP BY ALL"
    )
    assert len(kept) == 4


@pytest.mark.parametrize(
    "text",
    [
        "SELECT w, COUNT(*), AVG(x) FROM (SELECT id, w, x FROM v WHERE w = 'A') AS q GROUP BY w",
        "SELECT g, COUNT(*) FROM (SELECT id, w, x FROM v WHERE w = 'A' AND x > 3) AS q(i, g, y) GROUP BY g",
        "WITH q AS (SELECT * FROM v WHERE d < '2021-01-01'), r AS (SELECT *, year(d) AS y FROM q WHERE w IN ('A')) "
        "SELECT y, w, COUNT(*) FROM r GROUP BY ALL",
        "WITH q AS (SELECT id, s, w FROM v WHERE s = 1) SELECT s, w, COUNT(*) FROM q JOIN plans USING (w) GROUP BY ALL",
        "WITH q AS (SELECT * FROM v WHERE w = 'A') SELECT p.w, COUNT(q.id) FROM plans AS p LEFT JOIN q ON q.w = p.w GROUP BY p.w",
    ],
)  # fmt: skip
def test_conditions_of_queries_below(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str
) -> None:
    _same(session, con, text)


def test_what_a_query_below_hides_leaves_no_group_out(session: dpsql.Session) -> None:
    """The control: s of the outer query is x of the inner one, and nothing public is known of x."""
    text = "SELECT w, COUNT(*) FROM (SELECT id, w, x AS s FROM v WHERE s = 1 AND s = 2) AS q GROUP BY w"
    assert {row[0] for row in session.sql(text).fetchall()} == {"A", "B"}
    text = "WITH q AS (SELECT * FROM v WHERE w = 'A') SELECT v.w, COUNT(*) FROM v LEFT JOIN q USING (id) GROUP BY v.w"
    assert {row[0] for row in session.sql(text).fetchall()} == {"A", "B"}


# -- filter boxes: groups alone -----------------------------------------------------------------------------------

BOXES = [
    ("SELECT DISTINCT w FROM v", None),
    ("SELECT w FROM v GROUP BY w ORDER BY 1 LIMIT 1000", None),
    ("SELECT v.w AS ward FROM v GROUP BY v.w HAVING v.w <> 'A'", None),
    ("SELECT DISTINCT w, b FROM v WHERE w LIKE 'A%'", None),
    ("SELECT DISTINCT w FROM v WHERE x > 60", "SELECT DISTINCT w FROM v"),
    ("SELECT DISTINCT lower(w) FROM v", None),
    ("SELECT DISTINCT w FROM v WHERE w IN (SELECT w FROM plans WHERE price > 15)", None),
    ("SELECT DISTINCT year(d) FROM v", None),
    ("SELECT p.w, p.kind FROM plans AS p LEFT JOIN v USING (w) WHERE price < 25 GROUP BY ALL", None),
    ("SELECT p.kind FROM (SELECT * FROM plans WHERE price < 15) AS p LEFT JOIN v USING (w) GROUP BY 1", None),
    ("SELECT * FROM plans WHERE w IN (SELECT w FROM v GROUP BY w)", None),
    ("SELECT w, ROW_NUMBER() OVER (ORDER BY w DESC) AS n FROM v GROUP BY w", None),
]


@pytest.mark.parametrize(("text", "plain"), BOXES)
def test_groups_alone_come_from_the_policy(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str, plain: str | None
) -> None:
    before = session.budget().sentence, len(session.ledger())
    _same(session, con, text, plain)
    result = session.sql(text)
    assert (session.budget().sentence, len(session.ledger())) == before
    assert any("whether rows have them or not" in note for note in result.notes)
    assert session.describe(text).schema == result.table.schema


def test_no_row_decides_groups_alone() -> None:
    con = duckdb.connect()
    con.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE TABLE v (id INT, w TEXT, s INT, m mood)"
    )
    con.execute("CREATE TABLE plans (w TEXT)")
    policy = dpsql.Policy.loads(policy_of("m = { values = ['happy', 'sad', 'ok'] }"))
    asked = [
        "SELECT DISTINCT w FROM v",
        "SELECT DISTINCT m FROM v ORDER BY m",
        "SELECT m FROM v WHERE s > 1 GROUP BY m",
    ]
    found = []
    for row in ("", "INSERT INTO v VALUES (1, 'Z', 5, 'ok'), (2, 'A', 1, 'sad')"):
        con.execute(row or "SELECT 1")
        with dpsql.connect(con, policy=policy) as session:
            found.append([session.sql(text).fetchall() for text in asked])
    assert found[0] == found[1]
    assert found[0][:2] == [[("A",), ("B",)], [("sad",), ("ok",), ("happy",)]]


@pytest.mark.parametrize("text", ["SELECT k FROM v GROUP BY CUBE (k)", "SELECT w FROM v GROUP BY CUBE (w)"])
def test_some_groups_need_an_aggregate(session: dpsql.Session, text: str) -> None:
    with pytest.raises(dpsql.PrivacyError, match="nothing noisy"):
        session.sql(text)
