"""Every type of DuckDB in every place of a statement: key, argument, privacy unit, filter, candidate.

At an epsilon that hides nothing, answers are DuckDB's own, with its names and types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import pytest

import dpsql
from dpsql.binding.public_statement import schemas
from dpsql.mechanisms.aggregation import Aggregation
from tests.support import inside
from tests.support.moves import read, violations


class Kind(NamedTuple):
    """A type, two of its values in SQL, and what a policy declares of a column of it."""

    sql: str
    low: str
    high: str
    bounds: str = "[0, 100]"
    values: str = "[1, 3]"


WHOLE = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
)
DECIMALS = ("DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(38,4)")
IDS = ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
DAYS = "[2020-01-01, 2020-02-15]"
KINDS = {
    **{kind: Kind(kind, "1", "3") for kind in WHOLE},
    **{kind: Kind(kind, "1.5", "3.5", values="[1.5, 3.5]") for kind in DECIMALS},
    **{kind: Kind(kind, "1.5", "3.5", values="[1.5, 3.5]") for kind in ("FLOAT", "DOUBLE")},
    "BOOLEAN": Kind("BOOLEAN", "FALSE", "TRUE", "", "[false, true]"),
    "DATE": Kind("DATE", "'2020-01-05'", "'2020-02-01'", DAYS, "[2020-01-05, 2020-02-01]"),
    "TIMESTAMP": Kind(
        "TIMESTAMP", "'2020-01-05 06:30:00'", "'2020-02-01 12:00:00'", DAYS,
        "[2020-01-05 06:30:00, 2020-02-01 12:00:00]",
    ),
    "TIME": Kind("TIME", "'10:00:00'", "'12:30:15'", "[08:00:00, 20:00:00]", ""),
    "INTERVAL": Kind("INTERVAL", "'5 days'", "'9 days 3 hours'", "[0, 2000000]", ""),
    "VARCHAR": Kind("VARCHAR", "'a'", "'b'", "", '["a", "b"]'),
    "ENUM('a', 'b')": Kind("ENUM('a', 'b')", "'a'", "'b'", "", '["a", "b"]'),
    "UUID": Kind("UUID", f"'{IDS[0]}'", f"'{IDS[1]}'", "", f'["{IDS[0]}", "{IDS[1]}"]'),
}  # fmt: skip
NAMES = {kind: f"c{i}" for i, kind in enumerate(KINDS)}
NUMBERS = (*WHOLE, *DECIMALS, "FLOAT", "DOUBLE")
MOMENTS = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")


def policy() -> str:
    text = [
        "[budget]", "epsilon = 1e12", "delta = 0.5", 'accountant = "basic"', "default_epsilon = 1e9",
        "default_delta = 1e-9",
    ]  # fmt: skip
    for table in ("t", "v"):
        text += [
            f"[tables.{table}]",
            'privacy_unit = "u"',
            "max_rows_per_group = 4",
            "max_groups = 4",
            f"[tables.{table}.columns]",
        ]
        for kind, item in KINDS.items():
            word, own = ("bounds", item.bounds) if table == "t" else ("values", item.values)
            told = own and f"{word} = {own}"
            if told:
                text.append(f"{NAMES[kind]} = {{ {told} }}")
    for kind, name in NAMES.items():  # a table whose privacy unit is of the type
        text += [f"[tables.by_{name}]", f'privacy_unit = "{name}"', "max_rows = 1000", f"# {kind}"]
    return "\n".join(text)


def cast(text: str, kind: str) -> str:
    return f"CAST({text} AS {kind})"


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Session]]:
    con = duckdb.connect()
    columns = ", ".join(
        f"CASE i % 3 WHEN 0 THEN {cast(k.low, k.sql)} WHEN 1 THEN {cast(k.high, k.sql)} END AS {NAMES[kind]}"
        for kind, k in KINDS.items()
    )
    names = ", ".join(NAMES.values())
    con.execute(f"CREATE TABLE t AS SELECT i // 3 AS u, {columns} FROM range(300) AS s(i)")
    con.execute(f"CREATE TABLE v AS SELECT u, {names}, [c2] AS items, {{'a': c11, 'b': c18}} AS pair FROM t")
    for name in NAMES.values():
        con.execute(f"CREATE TABLE by_{name} AS SELECT * FROM t")
    with con, dpsql.connect(con, policy=dpsql.Policy.loads(policy())) as session:
        yield con, session


Both = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


def same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, tuple | list):
        return len(mine) == len(theirs) and all(same(a, b) for a, b in zip(mine, theirs, strict=True))
    if isinstance(mine, str):  # a UUID is text in our answers
        return mine == str(theirs)
    if isinstance(mine, float) or (isinstance(theirs, float) and mine is not None):
        return float(mine) == pytest.approx(float(theirs), rel=1e-4)
    if hasattr(mine, "total_seconds"):
        return abs((mine - theirs).total_seconds()) < 60
    if hasattr(mine, "timestamp") and hasattr(theirs, "timestamp"):
        return abs((mine - theirs).total_seconds()) < 120
    if hasattr(mine, "hour") and not hasattr(mine, "year"):
        return abs((mine.hour * 60 + mine.minute) - (theirs.hour * 60 + theirs.minute)) <= 1
    if not isinstance(mine, bool | str | int | type(None)) and not hasattr(mine, "year"):
        return str(mine) == str(theirs) or float(mine) == pytest.approx(float(theirs), rel=1e-4)
    return bool(mine == theirs)


def types_of(con: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    kinds = (str(kind).replace('"', "") for kind in con.sql(query).types)
    # a mean of dates, from DuckDB 2.0.1 on
    return [kind.replace("TIMESTAMP_NS", "TIMESTAMP") for kind in kinds]


def shown_types(session: dpsql.Session, query: str) -> list[str]:
    """The types of the finished statement's columns, as DuckDB describes it."""
    plan = inside.bind(session, query)
    described = dict(inside.finisher(session).describe(plan.finish, schemas(plan.blocks), plan.public))
    return [described[name] for name in plan.columns]


def agree(both: Both, query: str, types: bool = True) -> None:
    con, session = both
    mine, theirs = session.sql(query), con.sql(query)
    assert list(mine.columns) == list(theirs.columns)
    assert same(mine.fetchall(), theirs.fetchall()), query
    if types:
        assert shown_types(session, query) == types_of(con, query)


# -- arguments --------------------------------------------------------------------------------------------------

CALLS = {
    "COUNT": ("COUNT({c})", tuple(KINDS)),
    "COUNT(DISTINCT)": ("COUNT(DISTINCT {c})", tuple(KINDS)),
    "SUM": ("SUM({c})", (*NUMBERS, "BOOLEAN")),
    "AVG": ("AVG({c})", (*NUMBERS, *MOMENTS)),
    "VAR_POP": ("VAR_POP({c})", NUMBERS),
    "STDDEV": ("STDDEV({c})", NUMBERS),
    "CORR": ("COVAR_POP({c}, {c})", NUMBERS),
    "MIN": ("MIN({c})", (*NUMBERS, *MOMENTS, "BOOLEAN")),
    "MAX": ("MAX({c})", (*NUMBERS, *MOMENTS, "BOOLEAN")),
    "QUANTILE_DISC": ("QUANTILE_DISC({c}, 0.25)", (*NUMBERS, *MOMENTS, "BOOLEAN")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arguments(both: Both, kind: str) -> None:
    calls = [text.format(c=NAMES[kind]) for text, kinds in CALLS.values() if kind in kinds]
    agree(both, f"SELECT {', '.join(f'{call} AS r{i}' for i, call in enumerate(calls))} FROM t")
    agree(both, f"SELECT {calls[-1]} FROM t")


@pytest.mark.parametrize("kind", MOMENTS)
def test_medians(both: Both, kind: str) -> None:
    """DuckDB's median of two equally frequent values lies between them; ours may be one of them."""
    text = f"SELECT MEDIAN({NAMES[kind]}) AS m FROM t"
    ((value,),) = both[1].sql(text).fetchall()
    low, high = both[0].sql(f"SELECT MIN({NAMES[kind]}), MAX({NAMES[kind]}) FROM t").fetchall()[0]
    assert str(low) <= str(value) <= f"{high}~"
    assert shown_types(both[1], text) == types_of(both[0], text)


def test_intervals_add_up(both: Both) -> None:
    """DuckDB has no sum of intervals of its own."""
    name = NAMES["INTERVAL"]
    ((mine,),) = both[1].sql(f"SELECT SUM({name}) FROM t").fetchall()
    ((theirs,),) = both[0].sql(f"SELECT SUM(epoch({name})) FROM t").fetchall()
    assert mine.total_seconds() == pytest.approx(theirs, rel=1e-4)
    assert shown_types(both[1], f"SELECT SUM({name}) FROM t") == ["INTERVAL"]


# -- keys -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["t", "v"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("FLOAT", "DOUBLE", "INTERVAL")])
def test_keys(both: Both, table: str, kind: str) -> None:
    """Private keys in t (with NULL as a group of its own), public ones in v."""
    name = NAMES[kind]
    known = f" WHERE {name} IS NOT NULL" if table == "v" or kind == "BOOLEAN" else ""
    query = (
        f"SELECT {name} AS k, COUNT(*) AS n FROM {table}{known} GROUP BY {name} ORDER BY {name} NULLS LAST"
    )
    if kind in ("DATE", *WHOLE) and table == "t":  # their bounds make every day, or number, of them a group
        query = query.replace(" GROUP", f" WHERE {name} IS NOT NULL GROUP").replace(
            " ORDER", " HAVING COUNT(*) > 0 ORDER"
        )
    agree(both, query, types=not kind.startswith("ENUM"))


def test_parts_of_lists_and_structs(both: Both) -> None:
    agree(both, "SELECT items[1] AS k, COUNT(*) AS n FROM v GROUP BY items[1] ORDER BY k NULLS LAST")
    agree(both, "SELECT pair.b AS k, COUNT(*) AS n FROM v WHERE pair.a > 2 GROUP BY pair.b ORDER BY k")
    agree(both, "SELECT SUM(LEAST(GREATEST(pair.a, 0), 10)) AS s FROM v", types=False)
    agree(both, "SELECT COUNT(*) AS n FROM v WHERE list_contains(items, 3) AND len(items) = 1")


# -- units, filters, candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_privacy_units(both: Both, kind: str) -> None:
    """Rows without a unit are nobody's and are not counted."""
    name = NAMES[kind]
    con, session = both
    mine = session.sql(f"SELECT COUNT(DISTINCT {name}) AS units, COUNT(*) AS n FROM by_{name}").fetchall()
    assert mine == con.sql(f"SELECT COUNT(DISTINCT {name}), COUNT({name}) FROM by_{name}").fetchall()


@pytest.mark.parametrize("kind", KINDS)
def test_filters(both: Both, kind: str) -> None:
    name, item = NAMES[kind], KINDS[kind]
    plain = (
        item.low if kind in (*NUMBERS, "BOOLEAN") else cast(item.low, "VARCHAR" if "ENUM" in kind else kind)
    )
    value = "INTERVAL 5 DAY" if kind == "INTERVAL" else plain
    more = "" if kind == "UUID" or "ENUM" in kind else f", COUNT(*) FILTER (WHERE {name} > {value}) AS more"
    agree(both, f"SELECT COUNT(*) FILTER (WHERE {name} = {value}) AS n{more} FROM t")
    agree(both, f"SELECT COUNT(*) AS n FROM t WHERE {name} IN ({value}) OR {name} IS NULL", types=False)


@pytest.mark.parametrize("kind", KINDS)
def test_candidates(both: Both, kind: str) -> None:
    name, item = NAMES[kind], KINDS[kind]
    plain = "VARCHAR" if "ENUM" in kind else kind
    session = both[1]
    chosen = session.sql(
        f"WITH c(v) AS (VALUES ({cast(item.low, plain)}), ({cast(item.high, plain)})) "
        f"SELECT v, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE {name} = v), 50, max_hits => 2) OVER c FROM t"
    )
    assert chosen.shape[0] == 2
    best = session.sql(
        f"WITH c(v) AS (VALUES ({cast(item.low, plain)}), ({cast(item.high, plain)})) "
        f"SELECT v, EXPMECH(COUNT(*) FILTER (WHERE {name} = v AND u < 3) + COUNT(*) FILTER (WHERE {name} = v)) OVER c FROM t"
    )
    assert best.shape[0] == 1


# -- dates in policies and statements ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT AVG(c17) + INTERVAL 1 DAY AS d FROM t",
        "SELECT AVG(c18, contribution_bounds_per_row => (DATE '2020-01-01', TIMESTAMP '2020-03-01 00:00:00')) AS d FROM v",
        "SELECT AVG(c20, contribution_bounds_per_row => (INTERVAL 0 DAY, INTERVAL 30 DAY)) AS d FROM v",
        "SELECT AVG(LEAST(GREATEST(c17, DATE '2020-01-01'), DATE '2020-03-01')) AS d FROM v",
        "SELECT MAX(CAST(c18 AS DATE)) AS d FROM t",
        "SELECT SUM(c17 - DATE '2020-01-01') AS days FROM t",
        "SELECT AVG(EXTRACT(epoch FROM c19)) AS s FROM t",
        "SELECT SUM(year(c17)) AS y FROM t",
        "SELECT AVG(c18 - TIMESTAMP '2020-01-01 00:00:00') AS span FROM t",
        "SELECT c16, MIN(c17) AS d, AVG(c17) AS e FROM t WHERE c16 IS NOT NULL GROUP BY c16 ORDER BY c16",
    ],
)  # fmt: skip
def test_dates(both: Both, query: str) -> None:
    con, session = both
    plain = query
    for named in ("DATE '2020-01-01', TIMESTAMP '2020-03-01 00:00:00'", "INTERVAL 0 DAY, INTERVAL 30 DAY"):
        plain = plain.replace(f", contribution_bounds_per_row => ({named})", "")
    assert same(session.sql(query).fetchall(), con.sql(plain).fetchall()), query


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT AVG(c17, contribution_bounds_per_row => (0, 10)) FROM t", "can't be a number"),
        ("SELECT AVG(c2, contribution_bounds_per_row => (DATE '2020-01-01', DATE '2020-01-02')) FROM t", "can't be a DATE"),
        ("SELECT AVG(c17, report_format => 'JSON') FROM t", "JSON"),
        ("SELECT AVG(c17) FROM v WHERE c17 > DATE '2020-01-01'", "needs bounds"),
    ],
)  # fmt: skip
def test_bounds_of_the_wrong_kind(both: Both, query: str, message: str) -> None:
    with pytest.raises(dpsql.Error, match=message):
        both[1].sql(query)


def test_bounds_of_the_wrong_kind_in_a_policy() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (u INTEGER, d DATE, n INTEGER)")
    for column, bounds, message in (("d", "[0, 5]", "numbers"), ("n", "[2020-01-01, 2020-02-01]", "dates")):
        text = f"[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = 'u'\n[tables.t.columns]\n{column}.bounds = {bounds}"
        with (
            dpsql.connect(con, policy=dpsql.Policy.loads(text)) as session,
            pytest.raises(dpsql.PolicyError, match=message),
        ):
            session.sql("SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(*) FROM t")


def test_policies_keep_their_dates() -> None:
    text = (
        '[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = "u"\n[tables.t.columns]\n'
        "a.bounds = [2020-01-01, 2020-02-01]\nb.bounds = [2020-01-01 10:00:00, 2020-01-02 11:30:00.5]\n"
        "c.bounds = [08:00:00, 20:15:00]\n"
    )
    read = dpsql.Policy.loads(text)
    again = dpsql.Policy.loads(read.dumps())
    assert again == read
    assert again.dumps() == read.dumps()
    assert "bounds = [2020-01-01, 2020-02-01]" in read.dumps()
    assert "20:15:00" in read.dumps()
    assert [str(end) for end in read.tables["t"].columns["a"].bounds or ()] == ["2020-01-01", "2020-02-01"]
    for wrong in (
        "[2020-02-01, 2020-01-01]",
        "[2020-01-01, 5]",
        "[2020-01-01 10:00:00Z, 2020-01-02 10:00:00Z]",
    ):
        with pytest.raises(dpsql.PolicyError):
            dpsql.Policy.loads(text.replace("[2020-01-01, 2020-02-01]", wrong))


@pytest.mark.parametrize(
    "key",
    [
        "c17", "date_trunc('month', c17)", "month(c17)", "c17 > DATE '2020-01-20'", "date_trunc('week', c17)", "dayname(c17)",
        "date_trunc('month', c18)", "date_trunc('day', c18)", "CAST(c18 AS DATE)", "EXTRACT(doy FROM c18)", "last_day(c18)",
    ],
)  # fmt: skip
def test_bounded_dates_are_public_groups(both: Both, key: str) -> None:
    """PUBLIC_GROUPS shows each of them, empty or not, and no delta is spent; those that have rows are as DuckDB counts them."""
    con, session = both
    query = f"SELECT {key} AS k, COUNT(*) AS n FROM t WHERE ({key}) IS NOT NULL GROUP BY 1 ORDER BY 1"
    head = "SELECT WITH DP OPTIONS (group_selection_strategy = PUBLIC_GROUPS)"
    result = session.sql(query.replace("SELECT", head, 1), fresh=True)
    mine = result.fetchall()
    assert result.event.delta == 0
    shown = session.sql(query, fresh=True)
    assert shown.event.delta == 0
    assert shown.fetchall() == con.sql(query).fetchall()
    assert [row for row in mine if row[1]] == con.sql(query).fetchall()
    days = "SELECT CAST(DATE '2020-01-01' + CAST(i AS INTEGER) AS {}) AS {} FROM range(46) AS s(i)"
    column = "c17" if "c17" in key else "c18"
    domain = days.format("DATE" if column == "c17" else "TIMESTAMP", column)
    assert [row[0] for row in mine] == [
        row[0] for row in con.sql(f"SELECT DISTINCT {key} AS k FROM ({domain}) AS d ORDER BY k").fetchall()
    ]


@pytest.mark.parametrize(
    ("key", "public"),
    [
        ("c18", False),
        ("date_trunc('hour', c18)", False),  # 1,080 of them
        ("hour(c18)", True),
        ("c18 + INTERVAL 1 HOUR", False),
        ("strftime(c18, '%H')", True),
    ],
)
def test_parts_of_a_day_are_public_groups_where_they_are_few(both: Both, key: str, public: bool) -> None:
    session = both[1]
    query = f"SELECT WITH DP OPTIONS (epsilon = 1e9, delta = 1e-9) {key} AS k, COUNT(*) AS n FROM t WHERE u < 9999 GROUP BY 1"
    assert (session.sql(query).event.delta == 0) == public


# -- what one unit moves ------------------------------------------------------------------------------------------


def test_moments_at_the_far_ends_move_no_more_than_is_declared() -> None:
    """Infinite, far and missing dates of one unit beside ordinary ones of another; then that unit is gone."""
    policy_text = (
        "[budget]\nepsilon = 1e6\naccountant = 'basic'\n[tables.t]\nprivacy_unit = 'u'\nmax_rows = 2\n[tables.t.columns]\n"
        f"d.bounds = {DAYS}\ns.bounds = {DAYS}\nc.bounds = [08:00:00, 20:00:00]\ni.bounds = [-5, 2000]\n"
    )
    con = duckdb.connect()
    con.execute("CREATE TABLE t (u INTEGER, d DATE, s TIMESTAMP, c TIME, i INTERVAL, f BOOLEAN)")
    far = [
        ("'infinity'", "'infinity'", "'24:00:00'", "'100000000 days'", "TRUE"),
        ("'-infinity'", "'-infinity'", "'00:00:00'", "'-100000000 days'", "FALSE"),
        ("'5881580-07-10'", "'294247-01-10 04:00:54.775806'", "NULL", "'100000000 years'", "NULL"),
        ("'5877642-06-25 (BC)'", "'290309-12-22 (BC) 00:00:00'", "'12:00:00'", "NULL", "TRUE"),
        ("NULL", "NULL", "'23:59:59.999999'", "'3 hours'", "TRUE"),
    ]
    for row in far:
        con.execute(
            f"INSERT INTO t VALUES (1, {', '.join(row)}), (2, '2020-01-20', '2020-01-20', '09:00:00', '5 s', TRUE)"
        )
    calls = [
        *(f"{call}({c})" for call in ("AVG", "COUNT") for c in "dsci"),
        "SUM(i)",
        "SUM(f)",
        "SUM(s - s)",
        "SUM(year(d))",
    ]
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy_text)) as session:
        text = f"SELECT WITH DP OPTIONS (epsilon = 1) {', '.join(calls)} FROM t"
        operator = inside.bind(session, text).blocks[0].operator
        assert isinstance(operator, Aggregation)
        before = read(con, operator)
        for unit in (1, 2):
            con.execute("BEGIN")
            con.execute(f"DELETE FROM t WHERE u = {unit}")
            assert violations(operator, before, read(con, operator), budgeted=False) == []
            con.execute("ROLLBACK")
        wide = session.sql(
            "SELECT WITH DP OPTIONS (epsilon = 1000) MIN(d), MAX(s), MEDIAN(c), QUANTILE_DISC(i, 0.5) FROM t"
        )
        assert all(value is not None for value in wide.fetchone() or (None,))
