"""Limits of what one unit can make a query do: the public rows that its rows meet, and its own rows where they meet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.binding.plan import Plan
from dpsql.binding.public_statement import find_held_columns
from dpsql.binding.relations import catalog, fan_out, unit_rows
from dpsql.binding.relations.fan_out import DEFAULT_MAX_UNIT_ROWS, floor_root
from dpsql.binding.relations.unit_rows import FRAMED_ROWS, SORTED_CHARACTERS, SORTED_ROWS, frames_of
from dpsql.binding.values import declared_values
from dpsql.errors import Error
from dpsql.language.dialect import list_nodes
from dpsql.language.statements import parse
from dpsql.mechanisms.base import SALT
from tests.support import inside

POLICY = """
budget = { epsilon = 1e6, delta = 1e-3, accountant = "basic", default_epsilon = 1, default_delta = 1e-6 }
[tables]
visits = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2, columns = { x = { bounds = [0, 10] } } }
notes = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2 }
other = { public = true }
wards = { public = true }
hundred = { public = true }
"""
ALARM, HEAVY = 4242, 5_000
SETUP = """
CREATE TABLE hundred AS SELECT i FROM range(100) t(i);
CREATE TABLE visits AS SELECT i % 1000 AS patient_id, i AS visit_id, i % 10 AS x,
    DATE '2024-01-01' + (i % 300)::INTEGER AS day, [i, i] AS li FROM range(3000) t(i);
CREATE TABLE notes AS SELECT i % 1000 AS patient_id, 'n' || i AS note, i / 7 AS w FROM range(2000) t(i);
CREATE TABLE other AS SELECT i % 500 AS k, i AS v FROM range(20000) t(i);
CREATE TABLE wards AS SELECT i AS k, i AS bed FROM range(20) t(i);
"""


def tables(person: int) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(SETUP)
    if person:
        con.execute(
            f"INSERT INTO visits SELECT {ALARM}, 10000 + i, i % 10, DATE '2024-01-01' + (i % 300)::INTEGER, [i] "
            f"FROM range({person}) t(i)"
        )
        con.execute(f"INSERT INTO notes SELECT {ALARM}, 'h' || i, i FROM range({person}) t(i)")
    return con


@pytest.fixture(scope="module")
def neighbours() -> Iterator[list[dpsql.Session]]:
    """Sessions on the data with a unit of 5,000 rows, and without it."""
    cons = [tables(HEAVY), tables(0)]
    sessions = [dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) for con in cons]
    yield sessions
    for each in (*sessions, *cons):
        each.close()


def planned(session: dpsql.Session, text: str) -> Plan:
    [statement] = parse(text)
    return inside.bind(session, statement)


def outcome(session: dpsql.Session, text: str) -> str:
    try:
        return str([len(row) for row in session.sql(text).fetchall()][:1])
    except Error as error:
        return f"{type(error).__name__}: {error}"


COUNT = "SELECT WITH DP COUNT(*) FROM"
REFUSED = {
    "range x range": f"{COUNT} visits v, range(1000000) r(i), range(100000) s(i) WHERE v.patient_id = {ALARM}",
    "one range": f"{COUNT} visits v, range(10001) r(i) WHERE v.patient_id = {ALARM}",
    "no key": f"{COUNT} visits v, other o WHERE v.x < o.v",
    "in a subquery": f"{COUNT} (SELECT v.* FROM visits v, range(200) r(i)) AS t, range(200) s(i)",
    "lateral": f"{COUNT} visits v, LATERAL (SELECT o.v FROM other o WHERE o.v > v.x) AS l",
    "correlated": f"{COUNT} visits v WHERE (SELECT COUNT(*) FROM other o WHERE o.v > v.x) > 3",
    "correlated twice": f"{COUNT} visits v, wards w WHERE (SELECT COUNT(*) FROM range(1000) o(v) WHERE o.v > v.x) > 3",
    "two lists": f"{COUNT} visits v, UNNEST(li) AS a(y), UNNEST(li) AS b(z)",
    "public first": f"{COUNT} other o JOIN visits v ON o.v > v.x",
    "keys in a circle": f"{COUNT} visits v, other o JOIN wards w USING (k) WHERE o.k = w.k",
    "kept by an outer join": f"{COUNT} visits v CROSS JOIN other o LEFT JOIN wards w ON o.k = v.patient_id AND w.k = o.k",
    "another's key": f"{COUNT} visits v JOIN other o ON o.k = o.v",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_could_meet_many_public_rows_is_refused(
    neighbours: list[dpsql.Session], name: str
) -> None:
    before = [session.budget().spent_epsilon for session in neighbours]
    said = {outcome(session, REFUSED[name]) for session in neighbours}
    assert len(said) == 1
    assert "public rows here, and max_fan_out is 10,000" in said.pop()
    assert [session.budget().spent_epsilon for session in neighbours] == before


ANSWERED = (
    f"{COUNT} visits v JOIN other o ON v.patient_id = o.k", f"{COUNT} visits v JOIN other o ON v.patient_id + 1 = o.k",
    f"{COUNT} visits v, other o WHERE v.patient_id = o.k AND o.v > 3", f"{COUNT} visits v, wards w WHERE v.x < w.k",
    f"{COUNT} other o JOIN visits v ON o.k = v.patient_id", f"{COUNT} visits v, UNNEST(li) AS u(y) WHERE y > 3",
    f"{COUNT} visits v, LATERAL (SELECT o.v FROM other o WHERE o.k = v.patient_id) AS l",
    f"{COUNT} visits v ASOF JOIN other o ON v.x >= o.v", f"{COUNT} visits v WHERE v.x IN (SELECT o.v FROM other o)",
    f"{COUNT} visits v LEFT JOIN wards w ON w.k = v.x", f"{COUNT} wards w JOIN visits v ON w.k = v.x",
    f"{COUNT} visits v LEFT JOIN wards w ON w.k = v.x",
    f"{COUNT} (SELECT patient_id, x AS k FROM visits) AS v JOIN other USING (k)",
    f"{COUNT} other JOIN (SELECT patient_id, x AS k FROM visits) AS v USING (k)", f"{COUNT} visits v, range(10000) r(i)",
    f"WITH m AS (SELECT WITH DP x, COUNT(*) AS n FROM visits GROUP BY x) {COUNT} visits v JOIN m ON m.x = v.x WHERE m.n > 3",
    f"WITH m AS (SELECT WITH DP AVG(x) AS n FROM visits) {COUNT} visits v, m WHERE v.x > m.n",
)  # fmt: skip


@pytest.mark.parametrize("text", ANSWERED)
def test_joins_with_few_public_rows_for_a_row_are_answered(
    neighbours: list[dpsql.Session], text: str
) -> None:
    assert outcome(neighbours[1], text) == "[1]"


MEETINGS = {
    "three self-joins": f"{COUNT} visits a JOIN visits b USING (patient_id) JOIN visits c USING (patient_id) WHERE a.x < b.x",
    "four": f"{COUNT} visits a JOIN visits b USING (patient_id) JOIN visits c USING (patient_id) "
    "JOIN visits d USING (patient_id)",
    "two tables": f"{COUNT} visits a JOIN notes b ON a.patient_id = b.patient_id WHERE a.x < b.w",
    "exists": f"{COUNT} visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE b.patient_id = a.patient_id AND b.day < a.day)",
    "scalar": f"{COUNT} (SELECT patient_id, (SELECT COUNT(*) FROM visits b WHERE b.patient_id = a.patient_id AND b.day < a.day)"
    " AS n FROM visits a) AS t WHERE n > 2",
    "left join": f"{COUNT} visits a LEFT JOIN visits b ON a.patient_id = b.patient_id AND a.day > b.day",
    "nested": f"{COUNT} (SELECT a.patient_id, a.x FROM visits a JOIN visits b USING (patient_id)) AS t "
    "JOIN visits c USING (patient_id)",
    "quantile": "SELECT WITH DP QUANTILE_CONT(a.x, 0.5) FROM visits a JOIN visits b ON a.patient_id = b.patient_id",
    "distinct": "SELECT WITH DP COUNT(DISTINCT b.visit_id) FROM visits a JOIN visits b ON a.patient_id = b.patient_id",
    "groups": "SELECT WITH DP b.x, COUNT(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id GROUP BY b.x",
    "with public rows": f"{COUNT} visits a JOIN visits b ON a.patient_id = b.patient_id, hundred h",
    "frames": f"{COUNT} (SELECT patient_id, SUM(x) OVER (PARTITION BY patient_id ORDER BY day ROWS BETWEEN 4000 PRECEDING AND "
    "CURRENT ROW) AS n FROM visits) AS t WHERE n > 2",
    "running": f"{COUNT} (SELECT patient_id, SUM(x) OVER (PARTITION BY patient_id ORDER BY day) AS n FROM visits) AS t "
    "WHERE n > 2",
    "short frames": f"{COUNT} (SELECT patient_id, SUM(x) OVER (PARTITION BY patient_id ORDER BY day ROWS BETWEEN 6 PRECEDING "
    "AND CURRENT ROW) AS n FROM visits) AS t WHERE n > 2",
    "frames of pairs": f"{COUNT} (SELECT a.patient_id, SUM(a.x) OVER (PARTITION BY a.patient_id ORDER BY b.day) AS n "
    "FROM visits a JOIN visits b ON a.patient_id = b.patient_id) AS t WHERE n > 2",
    "lag": f"{COUNT} (SELECT patient_id, x - LAG(x) OVER (PARTITION BY patient_id ORDER BY day) AS n FROM visits) AS t "
    "WHERE n > 2",
    "each unit's median": f"{COUNT} (SELECT patient_id, MEDIAN(visit_id) AS n, COUNT(DISTINCT day) AS m FROM visits "
    "GROUP BY patient_id) AS t WHERE n > m",
    "each unit's own": f"{COUNT} (SELECT patient_id, MAX(note) AS n, MODE(note) AS m FROM notes GROUP BY patient_id) AS t "
    "WHERE n > 'a'",
}  # fmt: skip


@pytest.mark.parametrize("name", MEETINGS)
def test_a_unit_with_many_rows_changes_no_outcome(neighbours: list[dpsql.Session], name: str) -> None:
    assert [outcome(session, MEETINGS[name]) for session in neighbours] == ["[1]"] * 2 or name == "groups"
    if name == "groups":
        assert [outcome(session, MEETINGS[name]).startswith("[2") for session in neighbours] == [True, True]


def joined(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str, salt: int = 7
) -> dict[int, int]:
    """The exact rows of each unit, before any is bounded."""
    query = planned(session, text).blocks[0].operator.query.replace(SALT, str(salt))
    inner = query[query.index("SELECT u, COUNT(*)") : query.rindex(") AS kept")]
    return {unit: rows for unit, rows, *_ in con.execute(inner).fetchall()}


def test_pairs_of_one_unit_are_as_many_as_the_policy_says(neighbours: list[dpsql.Session]) -> None:
    con = tables(HEAVY)
    text = f"{COUNT} visits a JOIN visits b USING (patient_id) JOIN visits c USING (patient_id)"
    found = joined(neighbours[0], con, text)
    assert found[ALARM] == floor_root(DEFAULT_MAX_UNIT_ROWS, 3) ** 3
    assert {rows for unit, rows in found.items() if unit != ALARM} == {27}  # who has three rows loses none
    text = f"{COUNT} visits a JOIN visits b USING (patient_id), hundred h"
    assert joined(neighbours[0], con, text)[ALARM] == floor_root(DEFAULT_MAX_UNIT_ROWS // 100, 2) ** 2 * 100
    con.close()


def test_a_table_is_cut_alike_wherever_it_is_mentioned(neighbours: list[dpsql.Session]) -> None:
    """A row that meets itself stays; another salt chooses others; other units' rows choose nothing."""
    con = tables(HEAVY)
    text = f"{COUNT} visits a JOIN visits b USING (patient_id) WHERE a.visit_id = b.visit_id"
    assert joined(neighbours[0], con, text)[ALARM] == 1000
    rows = []
    for salt in (7, 8):
        query = planned(neighbours[0], text).blocks[0].operator.query.replace(SALT, str(salt))
        inner = query[query.index('FROM (SELECT "dpsql_table_1"."c0"') : query.index(" JOIN (SELECT")]
        chosen = f"SELECT c1 {inner} WHERE c0 = {ALARM}"
        rows.append({v for (v,) in con.execute(chosen).fetchall()})
        con.execute("CREATE OR REPLACE TABLE kept AS SELECT * FROM visits")
        con.execute("DELETE FROM visits WHERE patient_id < 500")
        con.execute("CREATE OR REPLACE TABLE visits AS SELECT * FROM visits ORDER BY x DESC, visit_id")
        assert {v for (v,) in con.execute(chosen).fetchall()} == rows[-1]
        con.execute("CREATE OR REPLACE TABLE visits AS SELECT * FROM kept")
    assert len(rows[0]) == len(rows[1]) == 1000
    assert 100 < len(rows[0] & rows[1]) < 400  # a fifth of a thousand by chance
    con.close()


PLAIN = (
    f"{COUNT} visits", "SELECT WITH DP x, COUNT(*) FROM visits GROUP BY x",
    "SELECT WITH DP SUM(x) FROM visits WHERE day > '2024-02-01'",
    f"{COUNT} visits v JOIN wards w ON v.x = w.k", f"{COUNT} (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)",
    f"{COUNT} visits a WHERE EXISTS (SELECT 1 FROM notes b WHERE b.patient_id = a.patient_id AND b.note = 'x')",
    f"{COUNT} visits a WHERE a.patient_id IN (SELECT patient_id FROM notes)",
    "SELECT WITH DP QUANTILE_CONT(x, 0.5) FROM visits",
    f"{COUNT} (SELECT patient_id, MEDIAN(x) AS n FROM visits GROUP BY patient_id) AS t WHERE n > 2",
    f"{COUNT} (SELECT patient_id, x - LAG(x) OVER (PARTITION BY patient_id ORDER BY day) AS n FROM visits) AS t WHERE n > 2",
    f"{COUNT} (SELECT patient_id, SUM(x) OVER (PARTITION BY patient_id) AS n FROM visits) AS t WHERE n > 2",
    "SELECT WITH DP x, COUNT(*), SUM(COUNT(*)) OVER (ORDER BY x) FROM visits GROUP BY x",
)  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_statements_without_a_meeting_are_not_cut(neighbours: list[dpsql.Session], text: str) -> None:
    plan = planned(neighbours[0], text)
    assert not any(
        "ROW_NUMBER()" in query.upper() for block in plan.blocks for query in block.operator.queries
    )
    assert not any("max_unit_rows" in note for note in plan.notes)


def test_explain_says_what_is_cut(neighbours: list[dpsql.Session]) -> None:
    text = f"EXPLAIN {COUNT} visits a JOIN visits b USING (patient_id)"
    assert "1,000 of each table's count" in str(neighbours[0].sql(text))


COUNTED = (
    f"{COUNT} visits a JOIN visits b USING (patient_id)",
    f"{COUNT} visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE b.patient_id = a.patient_id AND b.day < a.day)",
    "SELECT COUNT(a.x), COUNT_IF(b.x > 2) FROM visits a JOIN visits b USING (patient_id)",
)
SORTED = (
    "SELECT QUANTILE_CONT(a.x, 0.5) FROM visits a JOIN visits b USING (patient_id)",
    "SELECT COUNT(*), MEDIAN(a.x) FROM visits a JOIN visits b USING (patient_id)",
    "SELECT COUNT(DISTINCT a.visit_id) FROM visits a JOIN visits b USING (patient_id)",
    "SELECT b.x, COUNT(*) FROM visits a JOIN visits b USING (patient_id) GROUP BY b.x",
    "SELECT WITH PTR COUNT(*) FROM visits a JOIN visits b USING (patient_id)",
    MEETINGS["nested"], MEETINGS["frames of pairs"],
)  # fmt: skip


def test_rows_that_have_met_are_counted_or_sorted() -> None:
    for text, sorts in (*((text, False) for text in COUNTED), *((text, True) for text in SORTED)):
        [statement] = parse(text)
        assert statement.tree is not None
        assert (find_held_columns(list_nodes(statement.tree)) is not None) == sorts, text


@pytest.mark.parametrize("text", [SORTED[0], SORTED[2], SORTED[3]])
def test_rows_that_are_sorted_are_fewer(neighbours: list[dpsql.Session], text: str) -> None:
    most = floor_root(SORTED_ROWS, 2)
    plan = planned(neighbours[0], text)
    for query in (query for block in plan.blocks for query in block.operator.queries):
        cuts = [int(n) for n in re.findall(r"ROW_NUMBER\(\) OVER .*?\)\)\)\) <= (\d+)", query)]
        assert cuts == [most, most]
    assert f"{most:,} of each table's count" in str(plan.limits)


@pytest.mark.parametrize("cap", ["max_rows", "max_rows_per_group"])
def test_rows_within_the_policy_s_bound_are_never_fewer(cap: str) -> None:
    """With a cap of 600 a unit's 600 rows all count, though 600 times 600 is more than is sorted otherwise."""
    con = tables(600)
    policy = POLICY.replace("max_rows_per_group = 3", f"{cap} = 600")
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
        plan = planned(session, SORTED[3])
        assert "600 of each table's count" in str(plan.limits)
    con.close()


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ("LAG(x) OVER (PARTITION BY u ORDER BY d)", None),
        ("ROW_NUMBER() OVER (PARTITION BY u ORDER BY d)", None),
        ("SUM(x) OVER (PARTITION BY u)", None),
        ("SUM(x) OVER (PARTITION BY u ORDER BY d)", 0),
        ("SUM(x) FILTER (WHERE x > 2) OVER (PARTITION BY u ORDER BY d)", 0),
        ("FIRST_VALUE(x) OVER (PARTITION BY u ORDER BY d ROWS BETWEEN 5 PRECEDING AND 2 FOLLOWING)", 8),
        ("SUM(x) OVER (PARTITION BY u ORDER BY d ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)", 10),
        ("SUM(x) OVER (PARTITION BY u ORDER BY d ROWS 9 PRECEDING)", 10),
        ("SUM(x) OVER (PARTITION BY u ORDER BY d ROWS BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING)", 0),
    ],
)
def test_frames_that_move_have_a_length(window: str, length: int | None) -> None:
    for text in (f"SELECT u, {window} AS n FROM t", f"SELECT u FROM t QUALIFY {window} > 2"):
        [statement] = parse(text)
        assert isinstance(statement.tree, exp.Select)
        assert frames_of(statement.tree) == (() if length is None else (length,))
    [statement] = parse(f"SELECT u FROM t WHERE x > (SELECT MAX(n) FROM (SELECT {window} AS n FROM s) AS r)")
    assert isinstance(statement.tree, exp.Select)
    assert frames_of(statement.tree) == ()


FRAME = (
    f"{COUNT} (SELECT patient_id, SUM(x) OVER (PARTITION BY patient_id ORDER BY day ROWS BETWEEN {{}} PRECEDING AND CURRENT ROW)"
    " AS n FROM visits) AS t"
)


@pytest.mark.parametrize(
    ("length", "rows"),
    [(9, HEAVY), (999, 1000), (399, 2500), (4000, 1000), (10**6, 1000), ("UNBOUNDED", HEAVY)],
)
def test_rows_times_the_length_of_a_frame_are_bounded(
    neighbours: list[dpsql.Session], length: int | str, rows: int
) -> None:
    con = tables(HEAVY)
    found = joined(neighbours[0], con, FRAME.format(length))
    con.close()
    assert found[ALARM] == rows
    assert {count for unit, count in found.items() if unit != ALARM} == {3}


def test_rows_that_a_frame_passes_over_are_bounded(
    neighbours: list[dpsql.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FRAME.format("UNBOUNDED")
    assert f"{FRAMED_ROWS:,} of them count" in str(neighbours[0].sql(f"EXPLAIN {text}"))
    monkeypatch.setattr(unit_rows, "FRAMED_ROWS", 100)
    con = tables(HEAVY)
    found = joined(neighbours[0], con, text)
    assert found[ALARM] == 100
    assert {count for unit, count in found.items() if unit != ALARM} == {3}
    pairs = joined(neighbours[0], con, MEETINGS["frames of pairs"].removesuffix(" WHERE n > 2"))
    assert pairs[ALARM] == 100
    con.close()


def test_without_the_numbers_one_unit_is_amplified(
    neighbours: list[dpsql.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the tests above would fail."""
    monkeypatch.setattr(fan_out, "DEFAULT_MAX_FAN_OUT", 10**12)
    monkeypatch.setattr(fan_out, "DEFAULT_MAX_UNIT_ROWS", 10**12)
    assert planned(neighbours[1], REFUSED["range x range"]).blocks
    con = tables(2000)
    text = f"{COUNT} visits a JOIN visits b USING (patient_id)"
    assert joined(neighbours[0], con, text)[ALARM] == 2000**2 > DEFAULT_MAX_UNIT_ROWS
    con.close()


PATHS = """
budget = { epsilon = 1e6, accountant = "basic", default_epsilon = 1 }
"""


def keyed(**units: str) -> dpsql.Policy:
    """A policy of tables with these privacy units."""
    tables = (f'[tables.{name}]\nprivacy_unit = "{unit}"\nmax_rows = 3\n' for name, unit in units.items())
    return dpsql.Policy.loads(PATHS + "".join(tables))


def orders() -> duckdb.DuckDBPyConnection:
    """100 users with 3 orders each, and 3 items in each order."""
    con = duckdb.connect()
    con.execute("CREATE TABLE orders AS SELECT i AS id, i % 100 AS user_id FROM range(300) t(i)")
    con.execute("CREATE TABLE items AS SELECT i % 300 AS order_id, i AS n FROM range(900) t(i)")
    return con


KEYED = keyed(orders="user_id", items="order_id -> orders.id, user_id")


def test_a_key_that_stands_in_many_rows_of_a_unit_finds_one() -> None:
    """The claim of a path about a key is not taken on trust."""
    with orders() as con:
        con.execute(f"INSERT INTO orders SELECT 999, {ALARM} FROM range(3000)")
        con.execute("INSERT INTO items SELECT 999, i FROM range(3000) t(i)")
        with dpsql.connect(con, policy=KEYED) as session:
            joins = joined(session, con, f"{COUNT} items i JOIN orders o ON i.order_id = o.id")
            alone = joined(session, con, f"{COUNT} items")
    assert joins == alone
    assert alone.pop(ALARM) == 3000
    assert alone == dict.fromkeys(range(100), 9)


LONG_PATH = keyed(
    people="household", orders="user_id -> people.id, household",
    items="order_id -> orders.id, user_id -> people.id, household",
)  # fmt: skip


def test_a_long_path_multiplies_no_rows() -> None:
    with orders() as con:
        con.execute("CREATE TABLE people AS SELECT i AS id, i // 2 AS household FROM range(100) t(i)")
        flat = """SELECT household, COUNT(*) FROM items JOIN orders ON order_id = orders.id JOIN people ON user_id = people.id
            WHERE household IS NOT NULL GROUP BY household"""
        con.execute("INSERT INTO people VALUES (777, NULL), (NULL, 5)")
        con.execute("INSERT INTO orders VALUES (777, 777), (NULL, 5), (778, NULL)")
        con.execute("INSERT INTO items VALUES (777, 1), (778, 1), (NULL, 1)")
        true = dict(con.execute(flat).fetchall())
        with dpsql.connect(con, policy=LONG_PATH) as session:
            assert joined(session, con, f"{COUNT} items") == true  # where keys are keys, nothing changes
            con.execute(f"INSERT INTO people SELECT 999, {ALARM} FROM range(50)")
            con.execute("INSERT INTO orders SELECT 999, 999 FROM range(60)")
            con.execute("INSERT INTO items SELECT 999, i FROM range(70) t(i)")
            assert dict(con.execute(flat).fetchall())[ALARM] == 50 * 60 * 70  # that the test would fail
            assert joined(session, con, f"{COUNT} items") == {**true, ALARM: 70}
            assert joined(session, con, f"{COUNT} orders")[ALARM] == 60


NOTES = "SELECT WITH DP COUNT(DISTINCT b.note) FROM visits a JOIN notes b ON a.patient_id = b.patient_id"


@pytest.mark.parametrize("length", [65_536, 1000, 100])
def test_rows_that_hold_texts_are_as_many_as_their_lengths_allow(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of one text are not more than the memory holds; and no text is longer than what was counted on."""
    monkeypatch.setattr(declared_values, "column_length", lambda declared: length)
    con = tables(300)
    con.execute(f"UPDATE notes SET note = repeat('x', 500 + w::INTEGER) WHERE patient_id = {ALARM}")
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        query = planned(session, NOTES).blocks[0].operator.queries[0].replace(SALT, "7")
        plain = planned(session, NOTES.replace("b.note", "b.w")).blocks[0].operator.queries[0]
    most = min(floor_root(SORTED_CHARACTERS // length, 2), floor_root(SORTED_ROWS, 2))
    assert [int(n) for n in re.findall(r"AS UBIGINT\)\)\)\) <= (\d+)", query)] == [most, most]
    assert [int(n) for n in re.findall(r"AS UBIGINT\)\)\)\) <= (\d+)", plain)] == [
        floor_root(SORTED_ROWS, 2)
    ] * 2
    held = query[query.index(" FROM (SELECT *, ") + len(" FROM (") : query.index(") AS rows QUALIFY")]
    rows = con.execute(f"SELECT max(length(v)), count(*) FROM ({held}) AS t WHERE u = {ALARM}").fetchall()
    con.close()
    assert rows[0][1] == min(most, 300) ** 2
    assert rows[0][0] is None if length == 100 else rows[0][0] >= 500


def test_a_text_that_is_the_unit_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units that are longer than their max_length are no less the units that the cut is about."""
    monkeypatch.setattr(declared_values, "column_length", lambda declared: 3)
    con = tables(3)
    for table in ("visits", "notes"):
        con.execute(f"ALTER TABLE {table} ADD COLUMN name VARCHAR")
        con.execute(f"UPDATE {table} SET name = 'name ' || patient_id")
    policy = dpsql.Policy.loads(POLICY.replace('"patient_id"', '"name"'))
    with dpsql.connect(con, policy=policy) as session:
        text = "SELECT WITH DP b.w < 9, COUNT(*) FROM visits a JOIN notes b ON a.name = b.name GROUP BY ALL"
        query = planned(session, text).blocks[0].operator.query.replace(SALT, "7")
        assert "strlen" not in query.lower()
        assert sum(row[-1] for row in con.execute(query).fetchall()) > 1000
    con.close()


@pytest.mark.parametrize("wrong", [None, "another column", "another key"])
def test_the_lock_follows_long_paths_and_no_others(
    wrong: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = catalog.Catalog._follows

    def follows(self: catalog.Catalog, *args: Any) -> exp.Expr:
        equal = right(self, *args)
        if wrong is not None and args[3] == 1:  # the second hop
            column = equal.this if wrong == "another column" else equal.expression
            column.this.set("this", "id" if wrong == "another column" else "path_unit")
        return equal

    monkeypatch.setattr(catalog.Catalog, "_follows", follows)
    with orders() as con:
        con.execute("CREATE TABLE people AS SELECT i AS id, i // 2 AS household FROM range(100) t(i)")
        with dpsql.connect(con, policy=LONG_PATH) as session:
            if wrong is None:
                assert session.sql(f"{COUNT} items").fetchall()
            else:
                with pytest.raises(Error, match="could not be proved safe"):
                    session.sql(f"{COUNT} items")
