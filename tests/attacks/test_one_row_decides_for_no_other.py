"""Decisions that no row makes for others: how a group is written, whether a statement fails, how often a group is shown."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import PrivacyError
from dpsql.mechanisms.aggregation import list_groups
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from tests.support import inside

POLICY = """
[budget]
epsilon = 1e9
delta = 0.1
accountant = "basic"
default_epsilon = 1000
default_delta = 1e-3

[tables.t]
privacy_unit = "u"
max_rows = 1
max_groups = 1
[tables.t.columns]
x = {{ bounds = [{low}, {high}] }}
{more}
"""


def _session(*statements: str, low: int = 0, high: int = 10, more: str = "") -> dpsql.Session:
    con = duckdb.connect()
    for statement in statements:
        con.execute(statement)
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(low=low, high=high, more=more)))


@pytest.mark.parametrize(
    ("kind", "usual", "odd"),
    [
        ("DATE", "'2020-01-01'", ["'infinity'", "'-infinity'", "'20000-01-01'"]),
        ("TIMESTAMP", "'2020-01-01'", ["'infinity'", "'290309-12-22 (BC) 00:00:00'"]),
        ("TIME", "'10:00:00'", ["'24:00:00'"]),
        ("DATE[]", "['2020-01-01']", ["['infinity', NULL]"]),
        ("STRUCT(a DATE, b INTEGER)", "{'a': '2020-01-01', 'b': 1}", ["{'a': 'infinity', 'b': NULL}"]),
    ],
)
@pytest.mark.parametrize(
    "asked", ["MEDIAN(x)", "SUM(x, contribution_bounds_per_row => AUTO)", "COUNT(DISTINCT x)"]
)
def test_no_key_of_one_unit_stops_the_answer(kind: str, usual: str, odd: list[str], asked: str) -> None:
    rows = [f"INSERT INTO t SELECT 1000 + {i}, 5, {value}" for i, value in enumerate(odd)]
    with _session(
        f"CREATE TABLE t(u INTEGER, x DOUBLE, k {kind})",
        f"INSERT INTO t SELECT n, 5, {usual} FROM range(60) r(n)",
        *rows,
    ) as session:
        answer = session.sql(f"SELECT WITH DP k, {asked} AS m FROM t GROUP BY k").arrow()
    assert answer.num_rows >= 1
    wanted = {"MEDIAN(x)": 5, "COUNT(DISTINCT x)": 1}.get(asked, 300)
    assert any(abs(m - wanted) < 20 * wanted / 100 for m in answer.column("m").to_pylist())


def test_far_values_are_groups_of_their_own() -> None:
    far = duckdb.sql(
        "SELECT UNNEST(['infinity'::DATE, '-infinity'::DATE, '20000-01-01'::DATE, '2020-01-01'::DATE, NULL]) AS d"
    ).to_arrow_table()
    assert len(set(list_groups(far, ("d",)))) == 5
    with pytest.raises((OverflowError, ValueError)):  # the control: as Python values they can't be had
        far.column("d").to_pylist()
    plain = pa.table({"d": far.column("d").filter(pa.array([False, False, False, True, True]))})
    assert set(list_groups(plain, ("d",))) < set(list_groups(far, ("d",)))  # whatever else is in the table


@pytest.mark.parametrize("kind", ["INTERVAL", "DOUBLE[]", "STRUCT(a FLOAT)", "STRUCT(a INTERVAL)[]"])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT WITH DP k, COUNT(*) FROM t GROUP BY k",
        "SELECT WITH PTR MODE(k) FROM t",
        "SELECT WITH PTR ARG_MAX(k, COUNT(*)) FROM t",
    ],
)
def test_equal_values_that_look_different_are_no_groups(kind: str, statement: str) -> None:
    with (
        _session(f"CREATE TABLE t(u INTEGER, x DOUBLE, k {kind})") as session,
        pytest.raises(PrivacyError, match="look different"),
    ):
        session.sql(statement)


@pytest.mark.parametrize(
    "kind", ["INTEGER[]", "UUID", "DECIMAL(9,2)", "STRUCT(a VARCHAR, b DATE)", "STRUCT(a INTEGER)[]"]
)
def test_equal_values_that_look_the_same_are(kind: str) -> None:
    with _session(f"CREATE TABLE t(u INTEGER, x DOUBLE, k {kind})") as session:
        session.sql("SELECT WITH DP k, COUNT(*) FROM t GROUP BY k")
        session.sql("SELECT WITH PTR MODE(k) FROM t")


def _shown(collation: str, ask: Callable[[dpsql.Session], object]) -> tuple[object, object]:
    """With and without a unit, the first of all, that writes the group's name in its own way."""
    made = f"CREATE TABLE t(u INTEGER, x DOUBLE, k VARCHAR {collation})"
    usual = "INSERT INTO t SELECT n, 5, 'hello' FROM range(60) r(n)"
    with (
        _session(made, "INSERT INTO t VALUES (-1, 5, 'HELLO')", usual) as more,
        _session(made, usual) as less,
    ):
        return ask(more), ask(less)


@pytest.mark.parametrize("collation", ["", "COLLATE NOCASE", "COLLATE NOCASE.NOACCENT"])
@pytest.mark.parametrize(
    "statement",
    ["SELECT WITH DP k FROM t GROUP BY k", "SELECT WITH PTR OPTIONS (epsilon = 900) MODE(k) AS k FROM t"],
)
def test_a_unit_does_not_choose_how_a_text_is_written(collation: str, statement: str) -> None:
    more, less = _shown(
        collation, lambda session: [r["k"] for r in session.sql(statement).arrow().to_pylist()]
    )
    assert isinstance(more, list)
    assert [name for name in more if name != "HELLO"] == less == ["hello"]


def test_the_engine_would_show_what_comes_first() -> None:
    """The control: DuckDB's own groups of such a column take the name from a row."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t(k VARCHAR COLLATE NOCASE)")
    con.execute("INSERT INTO t VALUES ('HELLO'), ('hello')")
    assert con.execute("SELECT k, COUNT(*) FROM t GROUP BY k").fetchall() == [("HELLO", 2)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DATE", '["2020-01-01", "2020-1-1"]'),
        ("INTEGER", '["1", "01"]'),
        ("VARCHAR COLLATE NOCASE", '["1", "2"]'),
    ],
)
def test_a_group_is_shown_once(kind: str, values: str) -> None:
    with _session(
        f"CREATE TABLE t(u INTEGER, x DOUBLE, k {kind})", more=f"k = {{ values = {values} }}"
    ) as session:
        keys = session.sql("SELECT WITH DP k, COUNT(*) FROM t GROUP BY k").arrow().column("k").to_pylist()
    assert len(keys) == len(set(keys))
    assert keys


@pytest.mark.parametrize(("b", "w"), [(-2, 4), (1, 1), (-1, 3), (-2, 5), (2, 4), (-6, 8)])
def test_clips_that_round_apart(b: int, w: int) -> None:
    """A step of four: -2 and 2 are half a step from 0, and each is rounded away from it."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t(u INTEGER, x DOUBLE)")
    con.execute("INSERT INTO t VALUES (1, 3000000)")
    policy = dpsql.Policy.loads(POLICY.format(low=-4_000_000, high=4_000_000, more=""))
    with con, dpsql.connect(con, policy=policy) as session:
        text = (
            f"WITH c(b) AS (VALUES ({b}), (100)) "
            f"SELECT b, EXPMECH(SUM(LEAST(x, b)) - SUM(LEAST(x, b + {w})), epsilon => 1) OVER c FROM t"
        )
        plan = inside.bind(session, text)
        operator = plan.blocks[0].operator
        assert isinstance(operator, ExponentialChoice)
        lent = {
            item.name: inside.finisher(session).finish(item.sql, {}, plan.public)
            for item in plan.blocks[0].inputs
        }
        table = inside.reader(session, lent)(operator.batches[0].replace(SALT, "7"))
        scores = table.column(CANDIDATE_SCORE).to_pylist()
    assert all(abs(int(score)) <= operator.sensitivity for score in scores)
    assert (b, w) != (-2, 4) or abs(
        int(scores[0])
    ) == 8 * operator.steps  # the control: it does move by two steps


def test_far_public_groups_are_two() -> None:
    """Infinite dates on either side of the calendar, declared by the owner: a test of each reads its own rows."""
    with _session(
        "CREATE TABLE t(u INTEGER, x DOUBLE, k DATE)",
        "INSERT INTO t SELECT n, n % 2 + 1, CASE n % 2 WHEN 0 THEN 'infinity' ELSE '-infinity' END FROM range(200) r(n)",
        more='k = { values = ["infinity", "-infinity"] }',
    ) as session:
        found = session.sql(
            "SELECT WITH PTR OPTIONS (epsilon = 900) k, MODE(x) AS m FROM t GROUP BY k"
        ).arrow()
    assert sorted(found.column("m").to_pylist()) == [1.0, 2.0]


@pytest.mark.parametrize("rows", ["", "(1, 5, [1, 2, 3]), (1, 5, NULL), (2, 5, [1, 2, 3])"])
def test_arrays_of_fixed_length_are_lists(rows: str) -> None:
    """DuckDB's least of some arrays fails, where there are any: that would tell."""
    made = [
        "CREATE TABLE t(u INTEGER, x DOUBLE, k INTEGER[3])",
        *([f"INSERT INTO t VALUES {rows}"] if rows else []),
    ]
    with _session(*made) as session:
        for call in ("MIN(k)", "MAX(k)", "MODE(k)"):
            session.sql(
                f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 4, combine = 'noisy_mode') {call} AS m FROM t"
            )
        session.sql("SELECT WITH PTR MODE(k) FROM t")
