"""PTR through a session: what is released when it is stable, NULL and a charge when it is not, and odd data."""

from __future__ import annotations

import math
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support import inside
from tests.support.fixtures import open_session

COLUMNS = {
    "steep": "CASE WHEN i % 2 = 0 THEN 10 ELSE 90 END",
    "usual": "CASE WHEN i % 10 < 8 THEN 5 ELSE i % 97 END",
    "same": "7",
    "nothing": "NULL::INTEGER",
    "wild": "CASE i % 4 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE END",
    "even": "i * 0.25",
    "city": "CASE WHEN i % 5 = 0 THEN 'Delft' ELSE 'Leiden' END",
    "half": "['a', 'b'][1 + i % 2]",
    "sex": "['f', 'm'][1 + i % 2]",
}


def policy(accountant: str, unit: str = "ROW") -> dpsql.Policy:
    rows = "" if unit == "ROW" else "max_rows = 4\nmax_groups = 2\n"
    return dpsql.Policy.loads(f"""
[budget]
epsilon = 1000
delta = 0.1
accountant = "{accountant}"
default_epsilon = 5
default_delta = 1e-9
[tables.t]
privacy_unit = "{unit}"
{rows}[tables.t.columns]
steep = {{ bounds = [0, 100] }}
usual = {{ bounds = [0, 100] }}
sex = {{ values = ["f", "m", "x"] }}
""")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        items = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
        con.execute(f"CREATE TABLE t AS SELECT i % 2000 AS u, {items} FROM range(8000) r(i)")
        yield con


@pytest.fixture(params=["basic", "zcdp", "gdp"])
def session(con: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest) -> Iterator[dpsql.Session]:
    with dpsql.connect(con, policy=policy(request.param)) as session:
        yield session


def spent(session: dpsql.Session) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


def test_stable_answers_are_exact(session: dpsql.Session) -> None:
    text = "SELECT WITH PTR OPTIONS (epsilon = 20) MEDIAN(usual) AS m, QUANTILE_DISC(usual, 0.3) AS q, MODE(city) AS c FROM t"
    assert session.sql(text).dicts() == [{"m": 5, "q": 5, "c": "Leiden"}]
    assert spent(session) > 0


def test_an_unstable_answer_is_null_and_charged(session: dpsql.Session) -> None:
    result = session.sql("SELECT WITH PTR MODE(half) AS m FROM t")
    assert result.fetchone() == (None,)
    assert "not stable" in " ".join(result.notes)
    assert spent(session) > 0


def test_the_spread(session: dpsql.Session) -> None:
    (width,) = session.sql("SELECT WITH PTR OPTIONS (epsilon = 40) IQR(even) AS w FROM t").fetchone() or (
        None,
    )
    assert width is not None
    assert 500 < width < 2000


@pytest.mark.parametrize("column", ["same", "nothing", "wild"])
def test_constants_and_nothing_have_no_spread_to_release(session: dpsql.Session, column: str) -> None:
    (width,) = session.sql(f"SELECT WITH PTR IQR({column}) AS w FROM t").fetchone() or (1.0,)
    assert width is None or width == 0


@pytest.mark.parametrize("where", ["FALSE", "u = 3 AND i = 0"])
def test_few_rows_release_nothing(con: duckdb.DuckDBPyConnection, session: dpsql.Session, where: str) -> None:
    where = where.replace("i = 0", "even = 0.75")
    result = session.sql(
        f"SELECT WITH PTR IQR(even) AS w, MEDIAN(usual) AS m, MODE(city) AS c FROM t WHERE {where}"
    )
    assert result.fetchone() == (None, None, None)


@pytest.mark.parametrize(
    ("call", "answer", "near"),
    [
        ("QUANTILE_DISC(even, 0.75, local_sensitivity => 20)", 1500, 60),
        ("QUANTILE_CONT(even, 0.1, local_sensitivity => 20)", 200, 60),
        ("IQR(even, local_sensitivity => 20)", 1000, 60),
        ("MODE(usual, local_sensitivity => 2)", 5, 6),
        ("QUANTILE_DISC(steep, 0.5, local_sensitivity => 1)", None, 0),
        ("MODE(steep, local_sensitivity => 1)", None, 0),
        ("IQR(steep, local_sensitivity => 1)", None, 0),
    ],
)
def test_proposed_sensitivities(session: dpsql.Session, call: str, answer: float | None, near: float) -> None:
    where = " WHERE steep = 10 OR u % 3 = 0" if "IQR(steep" in call else ""
    result = session.sql(
        f"SELECT WITH PTR OPTIONS (epsilon = {5 if answer is None else 40}) {call} AS a FROM t{where}"
    )
    (found,) = result.fetchone() or (0.0,)
    assert (found is None) == (answer is None)
    if answer is not None:
        assert found == pytest.approx(answer, abs=near)


@pytest.mark.parametrize(
    ("call", "answer", "near"),
    [
        ("AVG(even)", 999.875, 40),
        ("AVG(even, trim => 0.2, test => 'gaussian')", 999.875, 40),
        ("AVG(even, local_sensitivity => 2)", 999.875, 30),
        ("VAR_POP(even, trim => 0.1)", 1600**2 / 12, 30_000),
        ("STDDEV(even, trim => 0.1)", 1600 / 12**0.5, 30),
        ("AVG(same)", 7, 0.1),
        ("AVG(wild)", None, 0),
        ("AVG(nothing)", None, 0),
        ("VARIANCE(even, local_sensitivity => 1)", None, 0),
    ],
)
def test_means_and_variances_of_the_middle(
    session: dpsql.Session, call: str, answer: float | None, near: float
) -> None:
    result = session.sql(f"SELECT WITH PTR OPTIONS (epsilon = 40) {call} AS a FROM t")
    (found,) = result.fetchone() or (0.0,)
    assert (found is None) == (answer is None)
    if answer is not None:
        assert found == pytest.approx(answer, abs=near)
        ((low, high),) = result.intervals["a"]
        assert low <= found <= high
    assert spent(session) > 0


def test_a_mean_of_the_middle_in_groups_of_users(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic", "u")) as session:
        text = "SELECT sex, AVG(even) AS a FROM t WITH PTR OPTIONS (epsilon = 200) GROUP BY sex ORDER BY sex"
        (f, m, x) = session.sql(text).fetchall()
        assert f[1] == pytest.approx(1000, abs=100)
        assert m[1] == pytest.approx(1000, abs=100)
        assert x == ("x", None)


def test_proposed_sensitivities_in_groups(session: dpsql.Session) -> None:
    text = (
        "SELECT sex, MODE(usual, local_sensitivity => 2) AS m, QUANTILE_DISC(even, 0.5, local_sensitivity => 9) AS q "
        "FROM t WITH PTR OPTIONS (epsilon = 80) GROUP BY sex ORDER BY sex"
    )
    (f, m, x) = session.sql(text).fetchall()
    assert f == ("f", pytest.approx(5, abs=6), pytest.approx(1000, abs=30))
    assert m == ("m", pytest.approx(5, abs=6), pytest.approx(1000, abs=30))
    assert x == ("x", None, None)


def test_public_groups(session: dpsql.Session) -> None:
    text = "SELECT WITH PTR OPTIONS (epsilon = 40) sex, MODE(city) AS c, MEDIAN(usual) AS m FROM t GROUP BY sex ORDER BY sex"
    assert session.sql(text).fetchall() == [("f", "Leiden", 5), ("m", "Leiden", 5), ("x", None, None)]


def test_the_argmax_of_group_sums(session: dpsql.Session) -> None:
    text = "SELECT WITH PTR OPTIONS (epsilon = 40) ARG_MAX(city, SUM(usual)) AS c, ARG_MAX(city, COUNT(*)) AS n FROM t"
    assert session.sql(text).fetchone() == ("Leiden", "Leiden")
    assert session.sql("SELECT WITH PTR ARG_MAX(half, COUNT(*)) AS c FROM t").fetchone() == (None,)


def test_users_give_one_row_or_are_scaled(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic", "u")) as session:
        one = "SELECT WITH PTR OPTIONS (epsilon = 40, max_rows_contributed = 1) MEDIAN(usual) AS m, MODE(city) AS c FROM t"
        scaled = "SELECT WITH PTR OPTIONS (epsilon = 40) MEDIAN(usual) AS m, MODE(city) AS c FROM t"
        assert session.sql(one).fetchone() == session.sql(scaled).fetchone() == (5, "Leiden")


def test_only_order_statistics_are_fetched(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic")) as session:
        fetched = []
        execute = inside.engine(session).execute

        def counted(sql: str, lent: object = None) -> object:
            table = execute(sql, lent)  # type: ignore[arg-type]
            fetched.append(table.num_rows)
            return table

        inside.engine(session).execute = counted  # type: ignore[method-assign, assignment]
        session.sql(
            "SELECT WITH PTR MEDIAN(even) AS m, QUANTILE_DISC(even, 0.9) AS q, MODE(city) AS c FROM t"
        )
        assert 0 < sum(fetched) < 400, "more rows came than order statistics are needed"


def test_the_unit_is_never_named(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic", "u")) as session:
        for call in ("MODE(u)", "MEDIAN(u + 1)", "ARG_MAX(u, COUNT(*))"):
            with pytest.raises(dpsql.PrivacyError):
                session.sql(f"SELECT WITH PTR {call} AS m FROM t")
        assert spent(session) == 0


AFTERWARDS = [
    ("MEDIAN(usual) * 2 AS twice", (10,)),
    ("ROUND(MEDIAN(usual) / 3, 1) AS r, UPPER(MODE(city)) AS c", (1.7, "LEIDEN")),
    ("COALESCE(MODE(half), 'torn') || '!' AS h", ("torn!",)),
    ("MEDIAN(usual) AS m, m + 1 AS n", (5, 6)),
    ("CASE WHEN MEDIAN(usual) > 4 THEN MODE(city) ELSE 'none' END AS c", ("Leiden",)),
    ("MEDIAN(usual) + (SELECT 1) AS m", (6,)),
]


@pytest.mark.parametrize(("items", "answer"), AFTERWARDS)
def test_what_is_made_of_answers_costs_nothing_more(
    session: dpsql.Session, items: str, answer: tuple[object, ...]
) -> None:
    assert session.sql(f"SELECT WITH PTR OPTIONS (epsilon = 40) {items} FROM t").fetchone() == answer
    assert spent(session) == pytest.approx(40, rel=0.01) or session.policy.budget.accountant != "basic"


def test_an_answer_asked_twice_is_tested_once(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic")) as session:
        text = "SELECT WITH PTR OPTIONS (epsilon = 10) MODE(half) = 'a' AS a, MODE(half) = 'b' AS b, MODE(half) AS h FROM t"
        result = session.sql(text)
        assert result.fetchone() == (None, None, None)
        assert sum("not stable" in note for note in result.notes) == 1


def test_notes_speak_of_the_analysts_own_names(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic")) as session:
        notes = session.sql("SELECT WITH PTR MODE(half) AS winner, 1 + IQR(nothing) AS w FROM t").notes
        assert "winner: not stable enough to release" in notes
        assert "iqr(nothing): not stable enough to release" in notes
        grouped = "SELECT WITH PTR OPTIONS (epsilon = 40) sex, MODE(city) AS c FROM t GROUP BY sex"
        assert "c: 1 of 3 groups are not stable enough to release" in session.sql(grouped).notes


def test_clauses_above_read_what_is_released(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=policy("basic")) as session:
        text = (
            "SELECT WITH PTR OPTIONS (epsilon = 40) sex, MEDIAN(usual) AS m FROM t GROUP BY sex "
            "HAVING MODE(city) = 'Leiden' ORDER BY m DESC, sex DESC LIMIT 1"
        )
        assert session.sql(text).fetchall() == [("m", 5)]
        ranked = (
            "SELECT WITH PTR OPTIONS (epsilon = 40) sex, RANK() OVER (ORDER BY MEDIAN(usual)) AS r FROM t "
            "GROUP BY sex ORDER BY sex"
        )
        assert session.sql(ranked).fetchall() == [("f", 1), ("m", 1), ("x", 3)]


@pytest.mark.parametrize(
    "items",
    ["MEDIAN(usual) + SUM(usual)", "MEDIAN(usual) + usual", "MEDIAN(usual), *", "MEDIAN(MODE(usual))", "1",
     "SUM(usual) + 1", "MODE(city) OVER ()", "kurtosis(usual)"],
)  # fmt: skip
def test_rows_stay_below(con: duckdb.DuckDBPyConnection, items: str) -> None:
    with dpsql.connect(con, policy=policy("basic")) as session:
        with pytest.raises(dpsql.PrivacyError):
            session.sql(f"SELECT WITH PTR {items} FROM t")
        assert spent(session) == 0


def test_an_argmax_counts_what_it_is_asked_to_count(con: duckdb.DuckDBPyConnection) -> None:
    """Most rows are of Leiden; those with what is asked for, of Delft."""
    with dpsql.connect(con, policy=policy("basic")) as session:
        text = (
            "SELECT WITH PTR OPTIONS (epsilon = 100) ARG_MAX(city, COUNT(*)) AS a, "
            "ARG_MAX(city, COUNT(CASE WHEN city = 'Delft' OR usual > 50 THEN 1 END)) AS b, "
            "ARG_MAX(city, COUNT(*) FILTER (WHERE city = 'Delft')) AS c, "
            "ARG_MAX(city, SUM(usual)) FILTER (WHERE city = 'Delft') AS d FROM t"
        )
        assert session.sql(text).fetchone() == ("Leiden", "Delft", "Delft", "Delft")


def test_dates_that_python_does_not_have() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT "
            "'infinity'::TIMESTAMP AS a, '-infinity'::DATE AS b, '290000-01-01 00:00:01'::TIMESTAMP AS c, "
            "'5000000-01-01'::DATE AS d, DATE '2024-01-01' AS e, 0 AS steep, 0 AS usual, 'f' AS sex FROM range(100)"
        )
        items = ", ".join(f"MODE({name}) AS {name}, MEDIAN({name}) AS {name}m" for name in "abcde")
        with dpsql.connect(con, policy=policy("basic")) as session:
            found = session.sql(f"SELECT WITH PTR OPTIONS (epsilon = 500) {items} FROM t").fetchone()
        columns = ", ".join(f"{name}, {name} AS {name}m" for name in "abcde")
        assert found == con.execute(f"SELECT {columns} FROM t LIMIT 1").fetchone()


@pytest.mark.parametrize(
    "call", ["MEDIAN(x, {0}e308)", "IQR(x, {0}e400)", "AVG(x, {0}e308)", "VAR_POP(x, {0}e308)"]
)
def test_proposals_beyond_all_doubles_have_an_answer(call: str) -> None:
    """Noise for 1e308 leaves the doubles in most draws: what is shown is held to the last one."""
    policy = (
        "[budget]\nepsilon = 100\ndelta = 0.9\n[tables.t]\nprivacy_unit = 'ROW'\ncolumns.x.bounds = [0, 9]"
    )
    with open_session(policy, "CREATE TABLE t AS SELECT i % 10 AS x FROM range(300) AS r(i)") as session:
        asked = call.format("local_sensitivity => 1")
        text = f"SELECT WITH PTR OPTIONS (epsilon = 1, delta = 0.01) {asked} AS a FROM t"
        shown = [session.sql(text, fresh=True).dicts()[0]["a"] for _ in range(6)]
        assert all(value is None or math.isfinite(value) for value in shown)
        assert any(value is not None for value in shown)
