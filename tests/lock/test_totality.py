"""Casts, arithmetic, aggregates and calls that may fail for some value are refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.binding.relations import exact_aggregates
from dpsql.binding.values import operators, temporal
from dpsql.errors import Error
from dpsql.language.dialect import to_sql
from dpsql.lock.totality import prove_total
from dpsql.lock.tree import AGGREGATES, Unproved
from tests.support.fixtures import session_fixture
from tests.support.nasty import EXPRESSIONS, bound, fill
from tests.support.totality import prove


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM t WHERE tiny = 100",
        "SELECT n FROM t WHERE x > n",
        "SELECT n FROM t WHERE TRUE OR FALSE",
        "SELECT TRY(day + INTERVAL '3' YEAR) AS d FROM t",
        "SELECT TRY_CAST(s AS INTEGER) AS i FROM t",
        "SELECT COALESCE(n, 0.5) AS y FROM t",
    ],
)
def test_casts_without_a_failing_value_are_proved(text: str) -> None:
    prove(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM t WHERE n = ANY (SELECT CAST(1 AS DECIMAL(38, 37)))",
        "SELECT n FROM t WHERE day = s",
        "SELECT CAST(s AS INTEGER) AS i FROM t",
        "SELECT n FROM t WHERE (s, 1) = (SELECT true, 1)",
        "SELECT tiny FROM t UNION ALL SELECT CAST(1 AS DECIMAL(38, 37)) FROM t",
    ],
)
def test_casts_with_a_failing_value_are_refused(text: str) -> None:
    with pytest.raises(Unproved):
        prove(text)


@pytest.mark.parametrize("kind", ["SEMI", "ANTI"])
def test_joins_of_intervals_that_fail_when_there_is_a_row_are_refused(kind: str) -> None:
    text = f"SELECT a.n FROM t AS a {kind} JOIN t AS b ON "
    for condition in ("a.iv = b.iv", "a.iv = b.iv AND a.n < b.n", "EPOCH(a.iv) < EPOCH(b.iv)"):
        prove(text + condition)
    for condition in (
        "a.iv < b.iv",
        "a.n = b.n AND a.iv >= b.iv",
        "a.iv IS DISTINCT FROM b.iv",
        "a.iv = b.iv OR a.n = 1",
        "a.ts - b.ts < INTERVAL '1' DAY",
    ):
        with pytest.raises(Unproved):
            prove(text + condition)


@pytest.mark.parametrize(
    ("proved", "refused"),
    [
        ("TRY(time_bucket(INTERVAL '1' DAY, ts))", "TRY(time_bucket(INTERVAL '-1' DAY, ts))"),
        ("TRY(time_bucket(INTERVAL '2' MONTH, ts))", "TRY(time_bucket(INTERVAL '0' MONTH, ts))"),
        ("TRY(time_bucket(INTERVAL '2' HOUR, ts))", "TRY(time_bucket(iv, ts))"),
        ("TRY(date_part('hour', hm))", "TRY(date_part('day', hm))"),
        ("TRY(date_part('week', day))", "TRY(date_part(s, hm))"),
        ("TRY(dayofweek(ts))", "TRY(dayofweek(iv))"),
        ("TRY(date_diff('day', ts, ts))", "TRY(date_diff('day', hm, hm))"),
        ("TRY(date_trunc('day', ts))", "TRY(date_trunc('era', iv))"),
        ("s LIKE 'x' ESCAPE '!'", "s LIKE 'x' ESCAPE '!!'"),
        ("s NOT ILIKE 'x' ESCAPE '!'", "s NOT ILIKE 'x' ESCAPE s"),
    ],
)
def test_calls_that_fail_inside_try_are_refused(proved: str, refused: str) -> None:
    prove(f"SELECT {proved} AS y FROM t")
    with pytest.raises(Unproved):
        prove(f"SELECT {refused} AS y FROM t")


@pytest.mark.parametrize(
    ("proved", "refused"),
    [
        ("CAST(n AS BIGINT) + 1", "n + 1"),
        ("CAST(n AS BIGINT) - n", "n - n"),
        ("CAST(n AS BIGINT) * n", "n * n"),
        ("CAST(n AS BIGINT) * n", "CAST(n AS BIGINT) * n * n"),
        ("-CAST(n AS BIGINT)", "-n"),
        ("abs(CAST(n AS BIGINT))", "abs(n)"),
        ("n // 2", "n // -1"),
        ("n % 2", "n % n"),
        ("TRY(n << 2)", "n << 2"),
        ("TRY(day + n)", "day + n"),
        ("TRY(ts + iv)", "ts + iv"),
        ("TRY(iv + iv)", "iv + iv"),
        ("TRY(make_date(n, 1, 1))", "make_date(n, 1, 1)"),
        ("TRY(lcm(n, 7))", "lcm(n, 7)"),
        ("TRY(factorial(n))", "factorial(n)"),
        ("list_transform([n], lambda e : TRY(e + 1))", "list_transform([n], lambda e : e + 1)"),
        ("year(day) * 12", "date_diff('day', day, day) * 12"),
        ("LEAST(GREATEST(n, 0), 9) + 1", "GREATEST(n, 0) + 1"),
        ("LEAST(GREATEST(n, 0), 9) + 1", "GREATEST(LEAST(n, NULLIF(9, 8)), 0) + 1"),
        ("CAST(LEAST(GREATEST(x, 0), 9) AS INTEGER)", "CAST(GREATEST(x, 0) AS INTEGER)"),
        ("TRY_CAST(x AS INTEGER)", "CAST(x AS INTEGER)"),
        ("TRY_CAST(x AS FLOAT)", "CAST(x AS FLOAT)"),
        (
            "CAST(CASE WHEN n BETWEEN 0 AND 9 THEN n END AS TINYINT)",
            "CAST(CASE WHEN n < 9 THEN n END AS TINYINT)",
        ),
        ("TRY(n + 1)", "CASE WHEN n < 9 THEN n + 1 END"),
        ("TRY(TRY(n + n) + n)", "TRY(n + n + n)"),  # DuckDB 1.5 computes n + n before another TRY with it
        ("DATE '2024-02-29'", "DATE '2023-02-29'"),
        ("SUM(n)", "SUM(h)"),
        ("AVG(n)", "AVG(h)"),
        (
            "SUM(CAST(n AS HUGEINT) * n)",
            "SUM(CAST(TRY_CAST(h AS BIGINT) AS HUGEINT) * TRY_CAST(h AS BIGINT))",
        ),
        ("SUM(LEAST(GREATEST(h, 0), 9))", "SUM(TRY(h + 1))"),
        ("CAST(dayofweek(day) AS TINYINT)", "CAST(year(day) AS TINYINT)"),
        ("CAST(date_part('month', ts) AS TINYINT)", "CAST(hour(iv) AS INTEGER)"),
        ("CAST(length(s) AS UBIGINT)", "CAST(ascii(s) AS UBIGINT)"),
        # of floats: infinities have no difference and no remainder, NaN is no integer
        ("CAST(n % 3 AS SMALLINT)", "CAST(x % 3 AS SMALLINT)"),
        ("CAST(CASE WHEN abs(x) < 99 THEN x END % 30 AS SMALLINT)", "CAST(n % x AS HUGEINT)"),
        (
            "CAST(CASE WHEN abs(x) < 9 THEN x END AS TINYINT)",
            "CAST(CASE WHEN abs(x - 1) < 9 THEN x END AS TINYINT)",
        ),
        (
            "CAST(abs(CAST(n AS BIGINT) - 1) - abs(CAST(n AS BIGINT) - 7) AS TINYINT)",
            "CAST(abs(x - 1) - abs(x - 7) AS TINYINT)",
        ),
        ("CAST(n - (n // 7) * 7 AS TINYINT)", "CAST(x - (x // 7) * 7 AS TINYINT)"),
        ("CAST(9 - LEAST(GREATEST(x, 0), 9) AS TINYINT)", "CAST(LEAST(GREATEST(9 - x, 0), NULL) AS HUGEINT)"),
        # DuckDB 1.5 has an error where 2.0 has NaN, and no squares beyond doubles
        ("sqrt(abs(x))", "sqrt(x)"),
        ("log2(GREATEST(x, 10))", "log2(abs(x))"),
        ("TRY(ln(x))", "ln(x)"),
        ("STDDEV(n)", "STDDEV(x)"),
        ("CORR(n, CASE WHEN abs(x) < 1e70 THEN x END)", "CORR(n, CASE WHEN x < 1e70 THEN x END)"),
    ],
)
def test_what_may_overflow_is_refused(proved: str, refused: str) -> None:
    prove(f"SELECT {proved} AS y FROM t")
    with pytest.raises(Unproved):
        prove(f"SELECT {refused} AS y FROM t")


EXTREMES = {
    "DOUBLE": "1.7976931348623157e308 -1.7976931348623157e308 nan inf -inf 1e200 -1e200 0 5e-324",
    "FLOAT": "3.4028234e38 -3.4028234e38 nan inf -inf 0",
    "TINYINT": "127 -128 0",
    "BIGINT": "9223372036854775807 -9223372036854775808 0",
    "UBIGINT": "18446744073709551615 0",
    "HUGEINT": "170141183460469231731687303715884105727 -170141183460469231731687303715884105728 0",
    "DECIMAL(38,0)": "99999999999999999999999999999999999999 -99999999999999999999999999999999999999 0",
    "DECIMAL(18,3)": "999999999999999.999 -999999999999999.999 0",
    "VARCHAR": "a \U0010ffff",
    "DATE": "infinity -infinity 5881580-07-10 0001-01-01",
    "TIMESTAMP": "infinity -infinity 294247-01-10T04:00:54.775806 0001-01-01",
    "TIME": "00:00:00 24:00:00",
    "INTERVAL": "2147483647months 2147483647days 1day",
    "BOOLEAN": "true false",
}
"""Values of each type, as texts."""


def _calls(name: str) -> Iterator[str]:
    """Yield the calls of an aggregate of ``v`` that may have a type."""
    more = {"string_agg": "v, ','", "listagg": "v, ','", "group_concat": "v, ','"}
    yield f"{'count' if name == 'count_star' else name}({'*' if name == 'count_star' else more.get(name, 'v')})"
    yield f"{name}(v, v)"
    yield f"{name}(v, 0.5)"


@pytest.mark.parametrize(
    "call",
    ["max(n, {})", "min(tiny, {})", "arg_max(n, tiny, {})", "argmin(n, tiny, {})", "max_by(n, tiny, {})"],
)
def test_aggregates_list_a_constant_number_of_values(call: str) -> None:
    """Zero, and a million, is an error as soon as there is a row."""
    prove(f"SELECT {call.format(3)} AS a FROM t")
    for number in ("tiny", "0", "n", "1000000"):
        with pytest.raises(Unproved):
            prove(f"SELECT {call.format(number)} AS a FROM t")


def test_no_proved_aggregate_fails_for_extremes() -> None:
    """Each alone, each pair, and all together."""
    proved, refused = Counter[str](), Counter[str]()
    with duckdb.connect() as con:
        plan = "SELECT json_serialize_plan(?, optimize := false)"
        for kind, words in EXTREMES.items():
            values = words.split()
            groups = [*itertools.product(values), *itertools.product(values, repeat=2), tuple(values)]
            rows = [(place, value) for place, group in enumerate(groups) for value in group]
            con.execute(f"CREATE OR REPLACE TABLE t AS SELECT 0 AS g, CAST(NULL AS {kind}) AS v")
            con.execute(
                f"INSERT INTO t SELECT unnest(?), CAST(unnest(?) AS {kind})",
                [[place for place, _ in rows], [value for _, value in rows]],
            )
            for text in (text for name in sorted(AGGREGATES) for text in _calls(name)):
                query = f"SELECT g, {text} AS a FROM t GROUP BY g"
                try:
                    prove_total(query, lambda sql: str(con.execute(plan, [sql]).fetchall()[0][0]))
                except Unproved:
                    refused[text.partition("(")[0]] += 1
                    continue
                con.execute(f"CREATE OR REPLACE TEMP TABLE made AS {query}")
                proved[text.partition("(")[0]] += 1
    never = {"kurtosis", "kurtosis_pop", "skewness", "geomean", "geometric_mean"}
    assert refused.keys() - proved.keys() - {"count_star"} == never
    assert len(proved) == len(AGGREGATES) - len(never) - 1, "COUNT(*) counts as COUNT"


LARGE = 10**21
SHARE = f"(CAST(1000000000 AS HUGEINT) * a.c // a.r) * {LARGE} AS y"
SUMS = """
(SELECT n AS k, COUNT(*) AS c, SUM(h) AS s FROM (SELECT n, TRY_CAST(h AS INTEGER) AS h FROM t) AS r
WHERE h IS NOT NULL GROUP BY n)
"""
OF_DAYS = """
(SELECT COUNT({}) AS c, SUM(h) AS s FROM (SELECT TRY_CAST(h AS INTEGER) AS h, day FROM t) AS r
WHERE h IS NOT NULL AND day IS NOT NULL)
"""


@pytest.mark.parametrize(
    ("proved", "refused"),
    [
        # a sum divided by its number of rows
        (
            f"SELECT (a.s // a.c) * a.s AS y FROM {SUMS} AS a",
            f"SELECT (a.s // a.k) * a.s AS y FROM {SUMS} AS a",
        ),
        (
            f"SELECT (a.s // a.c) * a.s AS y FROM {SUMS} AS a",
            f"WITH r AS {SUMS} SELECT (a.s // b.c) * a.s AS y FROM r AS a CROSS JOIN r AS b",
        ),
        (
            f"SELECT (a.s // a.c) * a.s AS y FROM {SUMS} AS a",
            f"SELECT (a.s // a.c) * a.s AS y FROM {SUMS.replace('COUNT(*)', 'COUNT(DISTINCT h)')} AS a",
        ),
        (  # an infinite date has no month, so fewer rows may be counted than added up
            f"SELECT (a.s // a.c) * a.s AS y FROM {OF_DAYS.format('day')} AS a",
            f"SELECT (a.s // a.c) * a.s AS y FROM {OF_DAYS.format('month(day)')} AS a",
        ),
        # the rest of a division
        (
            f"SELECT (a.s - (a.s // a.c) * a.c) * {LARGE} AS y FROM {SUMS} AS a",
            f"SELECT (a.s - (a.s // a.c) * a.k) * {LARGE} AS y FROM {SUMS} AS a",
        ),
        # a filter right below, whose condition comes first
        (
            "SELECT n + 1 AS y FROM t WHERE n BETWEEN 0 AND 9",
            "SELECT n + 1 AS y FROM t WHERE n < 9 OR n BETWEEN 0 AND 9",
        ),
        (
            "SELECT SUM(h) AS y FROM t WHERE h BETWEEN 0 AND 9",
            "SELECT a.y FROM (SELECT n + 1 AS y FROM t WHERE n BETWEEN 0 AND 9) AS a WHERE a.y > 3",
        ),
        ("SELECT n FROM t WHERE n < 9", "SELECT n FROM t WHERE n BETWEEN 0 AND 9 AND n + 1 > 3"),
        # a condition of a join that compares no two sides
        (
            "SELECT a.n FROM t AS a LEFT JOIN t AS b ON a.n = b.n AND a.n > 9",
            "SELECT a.n FROM t AS a LEFT JOIN t AS b ON a.n = b.n AND a.n + 1 > 9",
        ),
        # sums of sums of disjoint rows
        (
            "SELECT SUM(a.y) AS y FROM (SELECT SUM(CAST(n AS HUGEINT) * n) AS y FROM t GROUP BY s) AS a",
            "SELECT SUM(a.y) AS y FROM (SELECT SUM(CAST(n AS HUGEINT) * n) AS y FROM t GROUP BY s) AS a CROSS JOIN t",
        ),
        # a share of the count of all rows
        (
            f"SELECT {SHARE} FROM (SELECT COUNT(n) AS c, COUNT(*) AS r FROM t) AS a",
            f"SELECT {SHARE} FROM (SELECT COUNT(*) AS c, COUNT(n) AS r FROM t) AS a",
        ),
    ],
)
def test_ranges_follow_from_what_expressions_are_of_each_other(proved: str, refused: str) -> None:
    prove(proved)
    with pytest.raises(Unproved):
        prove(refused)


OUTER = {
    "NUMBER": """({0}) + 1;-({0});({0})::TINYINT;({0})::DECIMAL(9, 2);round({0});({0}) % 7 - 1;({0}) - ({0});({0}) // 3 * 2
        ;to_days(({0})::INTEGER);({0}) & 7;sign(({0}) * 2);coalesce({0}, 0)::UTINYINT;greatest({0}, 5)::SMALLINT""",
    "TEXT": """ascii({0}) - 9;unicode({0})::DECIMAL(9, 2);strpos({0}, 'a')::UTINYINT;levenshtein({0}, 'ab')::TINYINT
        ;substr({0} || 'x', 2, 3);string_split({0}, ' ')[1];bit_length({0})::DECIMAL(9, 2);-ord({0})""",
    "DATE": """month({0})::TINYINT;dayofweek({0}) * 2;decade({0})::SMALLINT;extract(week FROM {0})::UTINYINT;({0})::DATE + 1
        ;date_diff('day', {0}, DATE '2020-01-01') + 1;time_bucket(INTERVAL 1 DAY, {0});strftime({0}, '%Y')""",
    "LIST": "list_count({0}) - 1;len({0})::UTINYINT;list_contains(list_sort({0}), ({0})[1]);list_position({0}, NULL) * 2",
    "BOOLEAN": "({0})::INTEGER - 1;CASE WHEN {0} THEN 1 ELSE 2 END::UTINYINT",
}
"""Expressions around another of a kind, whose ranges both the binder and the lock derive."""
KINDS = {"INTEGER": "NUMBER", "DECIMAL": "NUMBER", "DOUBLE": "NUMBER", "TIMESTAMP": "DATE"}


@pytest.mark.parametrize("start", range(0, len(EXPRESSIONS), 100))
def test_an_expression_of_an_expression_that_the_binder_takes_is_proved(start: int) -> None:
    with duckdb.connect() as con:
        fill(con)
        con.execute("SET TimeZone = 'UTC'")
        plan = lambda sql: str(con.execute("SELECT json_serialize_plan(?)", [sql]).fetchall()[0][0])  # noqa: E731
        for place, inner in enumerate(EXPRESSIONS[start : start + 100]):
            kind = bound(inner).type.kind
            listed = OUTER.get(KINDS.get(kind, kind), "{0}").split(";")
            for turn in (place, 3 * place + 1):
                try:
                    sql = to_sql(bound(listed[turn % len(listed)].format(inner)).node)
                except Error:
                    continue
                try:
                    prove_total(f"SELECT {sql} AS y FROM t", plan, exact=True)
                except Unproved as error:
                    pytest.fail(f"{error.why}: {sql}")


POLICY = """
budget = { epsilon = 1e6 }
[tables]
t = { privacy_unit = "u", max_rows = 5 }
"""

SPREAD = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (0, 9), blocks = 20) VAR_POP(x) FROM t"


TABLES = """
CREATE TABLE t AS SELECT range % 40 AS u, range::INTEGER AS a, range / 7 AS x FROM range(100);
ALTER TABLE t ADD COLUMN day DATE; ALTER TABLE t ADD COLUMN b BIGINT; ALTER TABLE t ADD COLUMN h HUGEINT;
"""
session = session_fixture(POLICY, TABLES, scope="function")


def unchanged(node: Any) -> Any:
    return node


@pytest.mark.parametrize(
    ("module", "name", "other", "text"),
    [
        (operators, "_hold", lambda reach, own, *operands: own, "SELECT COUNT(*) FROM t WHERE a + a > 3"),
        (operators, "_hold", lambda reach, own, *operands: own, "SELECT COUNT(*) FROM t WHERE b * a > 3"),
        (operators, "make_try", unchanged, "SELECT COUNT(*) FROM t WHERE h + a > 3"),
        (operators, "make_try", unchanged, "SELECT COUNT(*) FROM t WHERE b // a > 3"),
        (operators, "make_try", unchanged, "SELECT COUNT(*) FROM t WHERE day + a > day"),
        (temporal, "make_try", unchanged, "SELECT COUNT(*) FROM t WHERE last_day(day) > day"),
        (temporal, "make_try", unchanged, "SELECT COUNT(*) FROM t WHERE make_date(a, 1, 1) > day"),
        (exact_aggregates, "_STEPS", 2.0**62, SPREAD),
    ],
)  # fmt: skip
def test_without_one_of_the_binders_clamps_the_lock_refuses(
    session: dpsql.Session,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    other: Callable[..., Any],
    text: str,
) -> None:
    text = text if "WITH" in text else text.replace("SELECT", "SELECT WITH DP OPTIONS (epsilon = 1)")
    session.sql(text)
    spent = session.budget().spent
    monkeypatch.setattr(module, name, other)
    with pytest.raises(Unproved):
        session.sql(f"{text} ")
        session.sql(text.replace("FROM t", "FROM t AS t"))
    assert session.budget().spent == spent
