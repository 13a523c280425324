"""PostgreSQL's clients on a real server: psql, psycopg 3, SQLAlchemy, pgcli, and what Grafana, JDBC and Metabase ask.

Each statement is paid once, by whoever asks it first; the answer is stored, so tables of all clients can be compared.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from tests.support import postgres_tools
from tests.support.postgres import PostgresServer
from tests.support.served import make_token
from tests.support.thirty_statements import THIRTY, same

psycopg = pytest.importorskip("psycopg")
sqlalchemy = pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.timeout(600)
PSQL = shutil.which("psql")


@pytest.fixture(scope="module")
def here(server: PostgresServer) -> Iterator[Any]:
    """A session over Flight on the same server, whose tables are what others are compared with."""
    with dpsql.connect(server.url, token=make_token(server.policy, "ada")) as session:
        yield session


@pytest.fixture(scope="module")
def connection(server: PostgresServer) -> Iterator[Any]:
    with psycopg.connect(server.make_url(), autocommit=True) as made:
        yield made


@pytest.fixture(scope="module")
def engine(server: PostgresServer) -> Iterator[Any]:
    token = make_token(server.policy, "ada")
    made = sqlalchemy.create_engine(f"postgresql+psycopg://ada:{token}@127.0.0.1:{server.port}/clinic")
    yield made
    made.dispose()


def run_psql(server: PostgresServer, *arguments: str) -> str:
    if PSQL is None:
        pytest.skip("psql is not installed")
    done = subprocess.run(
        [PSQL, "-X", "-A", "-t", "-F", "\x1f", "-R", "\x1e", "-P", "null=<null>", *arguments], capture_output=True, text=True,
        env={**os.environ, **server.environment(), "PGOPTIONS": "-c client_min_messages=warning"}, timeout=120,
    )  # fmt: skip
    assert done.stderr in ("", "Did not find any relations.\n"), done.stderr
    return done.stdout.strip("\n")


def write_for_psql(value: Any) -> str:
    if isinstance(value, list):
        return f"{{{','.join(map(write_for_psql, value))}}}"
    if value is None:
        return "<null>"
    if isinstance(value, bool):
        return "t" if value else "f"
    return (
        str(value).rstrip("0") if isinstance(value, datetime.datetime) and value.microsecond else str(value)
    )


def test_thirty_statements_give_the_same_table(
    server: PostgresServer, here: Any, connection: Any, engine: Any
) -> None:
    different = []
    for statement in THIRTY:
        result = here.sql(statement)
        rows = result.fetchall()
        columns = result.columns
        for binary in (False, True):
            cursor = connection.cursor(binary=binary).execute(statement)
            if [item.name for item in cursor.description] != columns or not same(rows, cursor.fetchall()):
                different.append((f"psycopg, binary {binary}", statement))
        cursor = connection.cursor().execute(statement, prepare=True)
        if not same(rows, cursor.fetchall()):
            different.append(("psycopg, prepared", statement))
        with engine.connect() as opened:
            answer = opened.exec_driver_sql(statement.replace("%", "%%"))
            if list(answer.keys()) != list(columns) or not same(
                rows, [tuple(row) for row in answer.fetchall()]
            ):
                different.append(("SQLAlchemy", statement))
    assert not different


def test_psql_gives_the_same_tables(server: PostgresServer, here: Any) -> None:
    shown = run_psql(
        server, *(part for statement in THIRTY for part in ("-c", statement, "-c", "SELECT 'next'"))
    )
    blocks = [block.strip("\x1e\n") for block in shown.split("next")]
    for statement, block in zip(THIRTY, blocks, strict=False):
        rows = here.sql(statement).fetchall()
        lines = [line for line in block.replace("\n", "\x1e").split("\x1e") if line]
        assert len(lines) == len(rows), (statement, block)
        for line, row in zip(lines, rows, strict=True):
            for cell, value in zip(line.split("\x1f"), row, strict=True):
                if isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
                    assert math.isclose(float(cell), value, rel_tol=1e-6), (statement, line, row)
                elif isinstance(value, dict):  # shown as JSON
                    assert same(json.loads(cell), value), (statement, line, row)
                else:
                    assert cell == write_for_psql(value), (statement, line, row)


def test_psql_lists_the_policys_tables(server: PostgresServer) -> None:
    listed = run_psql(server, "-c", r"\d").replace("\x1e", "\n").splitlines()
    assert [line.split("\x1f")[:3] for line in listed] == [
        ["public", "visits", "table"],
        ["public", "wards", "table"],
    ]
    described = run_psql(server, "-c", r"\d visits").replace("\x1e", "\n").splitlines()
    assert [line.split("\x1f")[:2] for line in described] == [
        ["patient", "bigint"], ["ward", "text"], ["cost", "double precision"], ["day", "integer"], ["city", "text"],
    ]  # fmt: skip
    assert "clinic" in run_psql(server, "-c", r"\l")
    assert "public" in run_psql(server, "-c", r"\dn")
    for command in (r"\dt+", r"\d+ wards", r"\dv", r"\df", r"\du", r"\di", r"\dx", r"\dT", r"\dp"):
        run_psql(server, "-c", command)


def test_types_of_columns_are_told_in_their_order(connection: Any) -> None:
    """Ask as psql does for what ``\\gdesc`` shows: without ORDER BY."""
    columns = [
        ("ward", 25, "text"),
        ("n", 20, "bigint"),
        ("mean", 701, "double precision"),
        ("a", 25, "text"),
    ]
    values = ", ".join(f"('{name}', '{oid}'::pg_catalog.oid, -1)" for name, oid, _ in columns)
    asked = f'SELECT name AS "Column", pg_catalog.format_type(tp, tpm) AS "Type" FROM (VALUES {values}) s(name, tp, tpm)'
    assert connection.execute(asked).fetchall() == [(name, spoken) for name, _, spoken in columns]


def test_errors_have_a_caret_and_a_hint(connection: Any) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn) as raised:
        connection.execute("SELECT COUNT(*) AS n FROM visits WHERE cots > 3")
    told = raised.value.diag
    assert told.statement_position == "40"
    assert told.message_hint == "did you mean cost?"
    assert told.severity_nonlocalized == "ERROR"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT cost FROM visits")
    for asked, kind in (
        ("SELECT cost::text FROM visits LIMIT", psycopg.errors.SyntaxError),
        ("COPY visits TO STDOUT", psycopg.errors.InsufficientPrivilege),
        ("SELECT 'abc'::int", psycopg.errors.InvalidTextRepresentation),
        ("SELECT COUNT(*) FROM visits WHERE day = 'abc'", psycopg.errors.InvalidTextRepresentation),
        (
            "SELECT COUNT(*) FROM visits WHERE make_date(2024, 1, day) < '2024-x'",
            psycopg.errors.InvalidDatetimeFormat,
        ),
        ("SET statement_timeout = 'soon'", psycopg.errors.InvalidParameterValue),
    ):
        with pytest.raises(kind):
            connection.execute(asked)


def test_prepared_by_statement(here: Any, connection: Any) -> None:
    expected = here.sql("SELECT COUNT(*) FROM visits WHERE day > 30 AND ward = 'A'").fetchall()
    connection.execute(
        "PREPARE counts (int, text) AS SELECT COUNT(*) FROM visits WHERE day > $1 AND ward = $2"
    )
    assert connection.execute("EXECUTE counts(30, 'A')").fetchall() == expected
    assert connection.execute("EXECUTE counts(15 * 2, 'A')", prepare=True).fetchall() == expected
    for asked, kind in (
        ("PREPARE counts AS SELECT 1", psycopg.errors.DuplicatePreparedStatement),
        ("EXECUTE counts(30)", psycopg.errors.SyntaxError),
        ("EXECUTE counts('x', 'A')", psycopg.errors.InvalidTextRepresentation),
        ("EXECUTE other", psycopg.errors.InvalidSqlStatementName),
        ("PREPARE wrong AS SELEC 1", psycopg.errors.SyntaxError),
        ("PREPARE wrong AS DEALLOCATE counts", psycopg.errors.SyntaxError),
    ):
        with pytest.raises(kind) as raised:
            connection.execute(asked)
        assert "EXECUTE" not in asked or raised.value.diag.statement_position is None
    connection.execute("DEALLOCATE counts")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.execute("EXECUTE counts(30, 'A')")


def test_statements_are_stopped_in_time(server: PostgresServer) -> None:
    long = "SELECT COUNT(*) FROM range(1000000) AS a, range(1000000) AS b WHERE a.range * b.range = 7"
    with psycopg.connect(server.make_url(), autocommit=True, options="-c statement_timeout=100ms") as made:
        with pytest.raises(psycopg.errors.QueryCanceled):
            made.execute(long)
        made.execute("SET statement_timeout = 0")
        assert made.execute("SELECT 1").fetchone() == (1,)
        made.execute("SET statement_timeout TO '0 s'; SET statement_timeout = 100")
        with pytest.raises(psycopg.errors.QueryCanceled):
            made.execute(long)


def test_filter_boxes_are_free(server: PostgresServer, here: Any, connection: Any) -> None:
    before = str(here.budget())
    for asked in (
        "SELECT DISTINCT ward FROM visits ORDER BY 1",
        'SELECT "visits"."ward" FROM "public"."visits" GROUP BY 1 ORDER BY 1 LIMIT 1000',
    ):
        cursor = connection.execute(asked, prepare=True)
        assert cursor.fetchall() == [("A",), ("B",), ("C",), ("D",)]
    assert here.sql("SHOW VALUES visits.ward").fetchall() == [("visits", "ward", ward) for ward in "ABCD"]
    assert here.sql("SELECT DISTINCT ward FROM visits ORDER BY 1").fetchall() == [(ward,) for ward in "ABCD"]
    assert connection.execute("SHOW VALUES visits.ward").fetchall()[0] == ("visits", "ward", "A")
    assert str(here.budget()) == before


def test_moments_as_parameters(connection: Any) -> None:
    asked = "SELECT COUNT(*) FROM visits WHERE make_timestamp(2024, 1, 1, 0, day, 0) < %s"
    noon = datetime.datetime(2024, 1, 1, 0, 30, tzinfo=datetime.UTC)
    counts = {
        connection.execute(text, [value]).fetchone()
        for text in (asked, f"{asked}::timestamptz")
        for value in (noon, noon.astimezone(datetime.timezone(datetime.timedelta(hours=2))))
    }
    assert len(counts) == 1
    assert connection.execute(f"{asked} AND now() > %s", [noon, noon]).fetchone() in counts


@pytest.mark.parametrize("binary", [False, True])
def test_cursors_on_the_server(here: Any, connection: Any, binary: bool) -> None:
    asked = "SELECT ward, COUNT(*) AS n FROM visits WHERE day > {} GROUP BY ward ORDER BY ward"
    expected = here.sql(asked.format(20)).fetchall()
    with connection.transaction(), connection.cursor("wards in parts", binary=binary) as cursor:
        cursor.execute(asked.format("%s"), [20])
        assert [item.name for item in cursor.description] == ["ward", "n"]
        cursor.itersize = 3
        assert same(expected[:1], [cursor.fetchone()])
        assert same(expected[1:], list(cursor))
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute('FETCH 1 FROM "wards in parts"')


def test_rows_are_streamed_to_sqlalchemy(here: Any, engine: Any) -> None:
    asked = "SELECT unnest(range(1000)) AS i"
    with engine.connect().execution_options(stream_results=True, max_row_buffer=100) as opened:
        assert opened.exec_driver_sql(asked).fetchall() == here.sql(asked).fetchall()


def test_columns_have_the_names_that_postgresql_gives(connection: Any) -> None:
    asked = 'SELECT COUNT(*), AVG(cost) + 1, MAX(day)::TEXT, COUNT(*) AS "COUNT(*)", 1.5::NUMERIC, now() FROM visits'
    names = ["count", "?column?", "max", "COUNT(*)", "numeric", "now"]
    for prepare in (False, True):
        assert [item.name for item in connection.execute(asked, prepare=prepare).description] == names
    cursor = connection.execute(f"DECLARE named CURSOR FOR {asked}; FETCH 1 FROM named; CLOSE named")
    assert cursor.nextset()
    assert [item.name for item in cursor.description] == names
    with connection.cursor().copy(f"COPY ({asked}) TO STDOUT CSV HEADER") as copy:
        assert b"".join(map(bytes, copy)).split(b"\n")[0] == ",".join(names).encode()


def test_cursors_of_a_script(connection: Any) -> None:
    declared = "DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT unnest([1, 2, 3]) AS i"
    script = f"BEGIN; {declared}; FETCH 2 FROM c; FETCH ALL IN c; CLOSE c; COMMIT"
    cursor = connection.execute(script)
    told = []
    while True:
        told.append((cursor.statusmessage, cursor.fetchall() if cursor.description else None))
        if not cursor.nextset():
            break
    assert told == [
        ("BEGIN", None), ("DECLARE CURSOR", None), ("FETCH 2", [(1,), (2,)]), ("FETCH 1", [(3,)]),
        ("CLOSE CURSOR", None), ("COMMIT", None),
    ]  # fmt: skip
    for refused in (
        "FETCH BACKWARD 1 FROM c",
        "FETCH 1 FROM c",
        "CLOSE c",
        "DECLARE c CURSOR FOR SELECT cost FROM visits",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1; DISCARD ALL; FETCH 1 FROM c",
    ):
        with pytest.raises(psycopg.Error):
            connection.execute(refused)


COPIED = "SELECT 7 AS n, 'a\tb' AS s, NULL::DOUBLE AS nothing, '' AS empty, DATE '2024-02-29' AS day, '\"' AS q, TRUE AS yes"
COPIES = [
    ("", b'7\ta\\tb\t\\N\t\t2024-02-29\t"\tt\n'),
    ("CSV HEADER", b'n,s,nothing,empty,day,q,yes\n7,a\tb,,"",2024-02-29,"""",t\n'),
    ("WITH (FORMAT csv)", b'7,a\tb,,"",2024-02-29,"""",t\n'),
]


@pytest.mark.parametrize(("options", "expected"), COPIES)
def test_copies_of_answers(connection: Any, options: str, expected: bytes) -> None:
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY ({COPIED}) TO STDOUT {options}") as copy:
            assert b"".join(bytes(piece) for piece in copy) == expected
        assert cursor.rowcount == 1


def test_copies_of_a_public_table(connection: Any) -> None:
    for asked in ("wards", "public.wards", '"clinic"."public"."wards"'):
        with connection.cursor() as cursor, cursor.copy(f"COPY {asked} TO STDOUT") as copy:
            assert b"".join(map(bytes, copy)) == b"A\tHeart\nB\tSkin\nC\tEyes\n"


def test_binary_copies_of_private_answers(here: Any, connection: Any) -> None:
    asked = (
        "SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits WHERE day > {} GROUP BY ward ORDER BY ward"
    )
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY ({asked.format('%s')}) TO STDOUT (FORMAT BINARY)", [30]) as copy:
            copy.set_types(["text", "int8", "float8"])
            rows = list(copy.rows())
        assert cursor.rowcount == 4
    assert same(here.sql(asked.format(30)).fetchall(), rows)


@pytest.mark.parametrize(
    "asked",
    [
        "(SELECT cost FROM visits) TO STDOUT",
        "(SELECT 1) TO STDOUT (DELIMITER '|')",
        "visits TO STDOUT",
        "wards (name) TO STDOUT",
        "(SELECT 1) TO '/tmp/x'",
    ],
)
def test_copies_that_are_refused(connection: Any, asked: str) -> None:
    with pytest.raises(psycopg.Error), connection.cursor() as cursor, cursor.copy(f"COPY {asked}") as copy:
        list(copy)
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_what_an_answer_costs_is_a_notice(server: PostgresServer) -> None:
    heard: list[Any] = []
    with psycopg.connect(server.make_url(), autocommit=True) as made:
        details: list[Any] = []
        made.add_notice_handler(lambda told: heard.append(told.message_primary))
        made.add_notice_handler(lambda told: details.append(told.message_detail))
        low, high = made.execute(
            "SELECT INTERVAL_LOW(n), INTERVAL_HIGH(n) FROM (SELECT WITH DP OPTIONS (epsilon = 0.01) COUNT(*) AS n FROM visits "
            "WHERE day = 76)"
        ).fetchone()  # type: ignore[misc]
        made.execute("SELECT WITH DP OPTIONS (epsilon = 0.01) COUNT(*) AS n FROM visits WHERE day = 76")
        said = re.search(r"95% interval, at most: n ± (\d+) \(SET intervals", details[-1])
        assert said
        assert 1 <= float(said[1]) / ((high - low) / 2) < 1.11
        heard.clear()
        made.execute("SELECT COUNT(*) AS n FROM visits WHERE day = 77")
        made.execute("SELECT COUNT(*) AS n FROM visits WHERE day = 77")
        paid, stored = heard
        assert re.fullmatch(r"cost ε=[0-9.]+ · ε=\S+ of ada's ε=\S+ left", paid)
        # what is left in words, not the mark that stands for it
        assert stored.endswith(paid.partition(" · ")[2])
        heard.clear()
        made.execute("SET client_min_messages = warning")
        made.execute("SELECT COUNT(*) AS n FROM visits WHERE day = 77")
        assert not heard


PARAMETERS: list[tuple[str, list[Any]]] = [
    ("SELECT COUNT(*) AS n FROM visits WHERE ward = %s AND day > %s", ["A", 30]),
    ("SELECT COUNT(*) AS n FROM visits WHERE cost < %s OR ward = ANY(%s)", [100.5, ["B", "C"]]),
    (
        "SELECT COUNT(*) AS n FROM visits WHERE cost < %s AND ward IN (%s, %s)",
        [decimal.Decimal("99.5"), "A", "D"],
    ),
    (
        "SELECT %s AS a, %s AS b, %s AS c, %s::VARCHAR AS d, %s AS e",
        [datetime.date(2024, 2, 29), True, 2**70, None, -7],
    ),
    ("SELECT %s AS a, %s AS b", [datetime.datetime(2024, 2, 29, 1, 2, 3, 500_000), 'it\'s $1; -- "x" \\ é']),
]


@pytest.mark.parametrize(("statement", "values"), PARAMETERS)
def test_parameters_stay_values(here: Any, connection: Any, statement: str, values: list[Any]) -> None:
    marks = statement.replace("%s", "?")
    expected = here.sql(marks, values).fetchall()
    for sign in ("%s", "%t", "%b"):
        if sign == "%b" and any(isinstance(value, list) for value in values):
            continue
        got = connection.execute(statement.replace("%s", sign), values).fetchall()
        assert same(expected, got), sign


TYPES = """
SELECT 1::TINYINT AS a, 2::SMALLINT AS b, 3::INTEGER AS c, 4::BIGINT AS d, 170141183460469231731687303715884105727::HUGEINT AS e,
  0.5::FLOAT AS f, 1e300::DOUBLE AS g, -1.25::DECIMAL(9, 2) AS h, TRUE AS i, 'é"\\ ,{}' AS j, DATE '1969-12-31' AS k,
  TIMESTAMP '0044-03-15 12:00:00.000001' AS l, TIME '23:59:59.5' AS m, INTERVAL '2 days 3 hours' AS n, [1, NULL, 3] AS o,
  ['a b', NULL, 'NULL'] AS p, {'x': 1, 'y': [1.5]} AS q, MAP {'k': 2} AS r, 'ab'::BLOB AS s, NULL AS t, [['z']] AS u,
  'NaN'::DOUBLE IS NULL AS v, 18446744073709551615::UBIGINT AS w, 0.000012::DECIMAL(18, 6) AS x, 100000000::DECIMAL(20, 4) AS y,
  TIMESTAMPTZ '2024-02-29 12:00:00+02' AS z, []::INTEGER[] AS za, 0::HUGEINT AS zb, [DATE '2024-02-29'] AS zc
"""
VALUES = (
    1, 2, 3, 4, 170141183460469231731687303715884105727, 0.5, 1e300, decimal.Decimal("-1.25"), True, 'é"\\ ,{}',
    datetime.date(1969, 12, 31), datetime.datetime(44, 3, 15, 12, 0, 0, 1), datetime.time(23, 59, 59, 500_000),
    datetime.timedelta(days=2, hours=3), [1, None, 3], ["a b", None, "NULL"], {"x": 1, "y": ["1.5"]}, {"k": 2}, b"ab", None,
    [["z"]], False, 18446744073709551615, decimal.Decimal("0.000012"), decimal.Decimal("100000000.0000"),
    datetime.datetime(2024, 2, 29, 10, tzinfo=datetime.UTC), [], 0, [datetime.date(2024, 2, 29)],
)  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_types(connection: Any, binary: bool, prepare: bool) -> None:
    cursor = connection.cursor(binary=binary).execute(TYPES, prepare=prepare)
    (row,) = cursor.fetchall()
    for item, mine, theirs in zip(cursor.description, VALUES, row, strict=True):
        assert same(mine, theirs), (item.name, mine, theirs)


def test_dates_beyond_pythons_years(connection: Any) -> None:
    """psycopg can't hold them, so they are cast to text by the client's eyes alone: the bytes of the text format."""
    asked = "SELECT DATE '12345-06-07' AS a, DATE '0044-03-15 (BC)' AS b"
    result = connection.pgconn.exec_(asked.encode())
    assert [result.get_value(0, i) for i in range(2)] == [b"12345-06-07", b"0044-03-15 BC"]


def test_transactions_and_settings_are_taken(connection: Any, server: PostgresServer) -> None:
    with psycopg.connect(server.make_url()) as made:
        made.execute("SELECT 1")
        assert made.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        made.rollback()
        assert made.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with made.transaction(), made.transaction():
            made.execute("SELECT 1")
        made.commit()
    for text in (
        "SET statement_timeout = 0",
        "SET TIME ZONE 'Europe/Amsterdam'",
        "RESET ALL",
        "DISCARD ALL",
        "DEALLOCATE ALL",
    ):
        connection.execute(text)
    connection.execute("SET application_name TO 'report'")
    assert connection.info.parameter_status("application_name") == "report"
    assert connection.execute("SHOW application_name").fetchone() == ("report",)
    assert connection.execute("SELECT current_setting('application_name')").fetchone() == ("report",)
    for text in (
        "SET client_encoding = LATIN1",
        "SET ROLE bob",
        "SET datestyle = German",
        "SHOW nothing_like_it",
    ):
        with pytest.raises(psycopg.Error):
            connection.execute(text)


def test_intervals_are_columns_on_request(server: PostgresServer) -> None:
    with psycopg.connect(server.make_url(), autocommit=True) as made:
        made.execute("SET intervals = 'columns'")
        cursor = made.execute("SELECT COUNT(*) AS n FROM visits")
        low, high = (cursor.fetchone() or ())[1:]
        assert [item.name for item in cursor.description or ()] == ["n", "n_low", "n_high"]
        assert low <= high
        with pytest.raises(psycopg.Error, match="intervals is"):
            made.execute("SET intervals = 'yes'")
        made.execute("RESET intervals")
        assert len(made.execute("SELECT COUNT(*) AS n FROM visits").description or ()) == 1
    with psycopg.connect(server.make_url(), autocommit=True, options="-c intervals=columns") as made:
        assert len(made.execute("SELECT COUNT(*) AS n FROM visits").description or ()) == 3


def test_kept_results_are_tables_of_the_session(connection: Any) -> None:
    connection.execute("busy << SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    assert len(connection.execute('SELECT * FROM "public"."busy" ORDER BY n').fetchall()) == 4
    listed = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
    assert listed == [("busy",), ("visits",), ("wards",)]


def test_sqlalchemy_inspects_and_reads(engine: Any, here: Any) -> None:
    seen = sqlalchemy.inspect(engine)
    assert sorted(seen.get_table_names()) == ["visits", "wards"]
    assert seen.get_schema_names() == ["information_schema", "public"]
    names = [column["name"] for column in seen.get_columns("visits")]
    assert names == ["patient", "ward", "cost", "day", "city"]
    assert isinstance(seen.get_columns("visits")[2]["type"], sqlalchemy.Double)
    assert not seen.get_pk_constraint("visits")["constrained_columns"]
    assert not seen.get_foreign_keys("visits")
    assert not seen.get_indexes("visits")
    assert not seen.get_unique_constraints("visits")
    assert not seen.get_view_names()
    assert seen.has_table("wards")
    assert not seen.has_table("nowhere")
    assert "patient" in seen.get_table_comment("visits")["text"]
    known = sqlalchemy.MetaData()
    known.reflect(engine)
    visits = known.tables["visits"]
    asked = (
        sqlalchemy.select(visits.c.ward, sqlalchemy.func.count().label("n"))
        .group_by(visits.c.ward)
        .order_by(visits.c.ward)
    )
    with engine.connect() as opened:
        got = [tuple(row) for row in opened.execute(asked)]
        some = sqlalchemy.select(sqlalchemy.func.count().label("n")).where(
            visits.c.ward.in_(["A", "B"]), visits.c.day > 9
        )
        assert opened.execute(some).scalar() > 2000
    assert same(got, here.sql(THIRTY[3]).fetchall())


def test_pandas_reads_by_sqlalchemy(engine: Any, here: Any) -> None:
    pandas = pytest.importorskip("pandas")
    read = pandas.read_sql(THIRTY[3], engine)
    assert same(read.values.tolist(), [list(row) for row in here.sql(THIRTY[3]).fetchall()])


def test_pgcli_completes_names(server: PostgresServer) -> None:
    executed = pytest.importorskip("pgcli.pgexecute")
    token = make_token(server.policy, "ada")
    opened = executed.PGExecute("clinic", "ada", token, "127.0.0.1", server.port, server.make_url())
    assert ("public", "visits") in list(opened.tables())
    columns = {tuple(row)[:4] for row in opened.table_columns()}
    assert {("public", "visits", "cost", "double precision"), ("public", "wards", "name", "text")} <= columns
    assert "public" in list(opened.schemata())
    assert list(opened.databases()) == ["clinic"]
    assert opened.search_path() == ["pg_catalog", "public"]
    for rest in (
        opened.views,
        opened.view_columns,
        opened.foreignkeys,
        opened.functions,
        opened.datatypes,
        opened.casing,
    ):
        assert list(rest()) == []
    (_, rows, headers, *_), *_ = opened.run(THIRTY[3])
    assert headers == ["ward", "n"]
    assert len(list(rows)) == 4
    opened.conn.close()


TOOLS = [*postgres_tools.GRAFANA, *postgres_tools.JDBC, *postgres_tools.METABASE, *postgres_tools.OTHERS]


def test_what_tools_ask_when_they_connect_is_answered(server: PostgresServer) -> None:
    with psycopg.connect(server.make_url(), autocommit=True) as made:
        answers = {}
        for asked in TOOLS:
            cursor = made.execute(asked)
            answers[asked] = cursor.fetchall() if cursor.description else None
    tables = [
        answers[postgres_tools.GRAFANA[3]],
        answers[postgres_tools.METABASE[2]],
        answers[postgres_tools.JDBC[5]],
    ]
    assert tables[0] == [("visits",), ("wards",)]
    assert [row[1] for row in tables[1]] == ["visits", "wards"]
    assert [row[2] for row in tables[2]] == ["visits", "wards"]
    assert [row[3] for row in answers[postgres_tools.JDBC[6]]] == ["patient", "ward", "cost", "day", "city"]
    granted = {row[2]: (row[3], row[4]) for row in answers[postgres_tools.METABASE[3]]}
    assert granted == {"visits": (False, True), "wards": (False, True)}


UNANSWERED = [
    "SELECT pg_read_file('/etc/passwd')", "SELECT * FROM pg_shadow", "SELECT pg_sleep(10)", "SELECT * FROM pg_catalog.visits",
    "SELECT lo_import('/etc/passwd') FROM pg_class", "SELECT getenv('HOME') FROM pg_class", "SELECT * FROM pg_ls_dir('/')",
    "SELECT current_setting('data_directory')", "SELECT oid FROM pg_class WHERE relname IN (SELECT city FROM visits)",
    "SELECT * FROM read_text('/etc/passwd') WHERE current_schema() = 'x'", "SELECT version() INTO x",
    "SELECT pg_terminate_backend(1)", "COPY pg_class TO '/tmp/x'", "SELECT * FROM duckdb_settings() JOIN pg_class ON TRUE",
    "WITH x AS (DELETE FROM pg_class RETURNING 1) SELECT * FROM x", "SELECT version() FROM information_schema.nothing",
    "SELECT pg_catalog.system('id')",
    "SELECT repeat('x', 1000000000) FROM pg_class",
]  # fmt: skip


@pytest.mark.parametrize("asked", UNANSWERED)
def test_what_the_catalogue_does_not_answer_is_a_clear_error(
    server: PostgresServer, connection: Any, asked: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(asked)
    told = str(raised.value)
    assert not any(
        word in told for word in ("Traceback", str(server.policy.parent), "root:", ".py", "withholds")
    ), told
    assert raised.value.diag.sqlstate
    assert connection.execute("SELECT 1").fetchone() == (1,)
