"""PostgreSQL's protocol byte by byte: who is let in, portals, errors, cancel, TLS, and hostile bytes."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsql.errors import ServerError
from dpsql.server.postgres import types
from dpsql.server.postgres.connection import read_postgres_place
from tests.support.certificates import make_certificate
from tests.support.clinic import BUDGET
from tests.support.hostile_clients import HostileClient, attack
from tests.support.postgres import (
    END,
    FLUSH,
    SYNC,
    BarePostgres,
    PostgresServer,
    bind,
    describe,
    execute,
    message,
    parse,
    query,
    read_error,
    read_fields,
    read_rows,
    text,
)
from tests.support.served import SECRET, make_token, write_data, write_policy

pytestmark = pytest.mark.timeout(600)
WRONG = "no valid token of this analyst."


def refused(server: PostgresServer, user: str, token: str, **more: str) -> dict[str, str]:
    """Return the fields of the error that a login ends with."""
    client = BarePostgres(server.port)
    try:
        client.log_in(user, token, more)
    except PermissionError as error:
        return dict(error.args[0])
    finally:
        client.close()
    raise AssertionError("it was let in")


# -- who is let in ---------------------------------------------------------------------------------------------------------


def test_a_wrong_token_and_an_unknown_analyst_hear_the_same(server: PostgresServer) -> None:
    make_token(server.policy, "ada")
    known, unknown = (refused(server, user, "dpsql_" + "A" * 43) for user in ("ada", "nobody"))
    assert known == unknown
    assert known["C"] == "28P01"
    assert known["M"] == WRONG
    assert refused(server, "bob", make_token(server.policy, "ada"))["C"] == "28P01"
    server.open("ada").close()


def test_salts_of_unknown_analysts_stay_the_same(server: PostgresServer) -> None:
    salts = []
    for user in ("nobody", "nobody", "nobody else"):
        client = BarePostgres(server.port)
        client.start({"user": user, "database": "clinic"})
        first = b"n,,n=,r=abc"
        _, body = client.prove(text("SCRAM-SHA-256") + struct.pack(">i", len(first)) + first)
        salts.append(body.split(b",")[1:])
        client.close()
    assert salts[0] == salts[1] != salts[2]


def test_another_database_is_told_after_the_token(server: PostgresServer) -> None:
    client = BarePostgres(server.port)
    with pytest.raises(PermissionError) as raised:
        client.log_in("ada", make_token(server.policy, "ada"), {"database": "payroll"})
    told = raised.value.args[0]
    assert told["C"] == "3D000"
    assert told["H"] == "you may use: clinic."
    client.close()
    for database in ("ada", "postgres", "CLINIC"):
        client = server.open("ada", database=database)
        client.close()


def test_a_proof_is_bound_to_its_exchange(server: PostgresServer) -> None:
    token = make_token(server.policy, "ada")
    client = BarePostgres(server.port)
    sent: list[bytes] = []
    plain = client.prove
    client.prove = lambda body: (sent.append(body), plain(body))[1]  # type: ignore[assignment]
    client.log_in("ada", token)
    client.close()
    again = BarePostgres(server.port)
    again.start({"user": "ada", "database": "clinic"})
    again.prove(sent[0])
    kind, _ = again.prove(sent[1])
    assert kind == b"E", "an exchange that was heard opens nothing"
    again.close()


def test_later_versions_are_talked_down(server: PostgresServer) -> None:
    client = BarePostgres(server.port)
    kind, body = client.start({"user": "ada", "database": "clinic", "_pq_.new": "1"}, version=196610)
    assert kind == b"v"
    assert struct.unpack(">ii", body[:8]) == (0, 1)
    client.close()
    client = BarePostgres(server.port)
    kind, body = client.start({"user": "ada"}, version=2 << 16)
    assert read_fields(body)["C"] == "0A000"
    client.close()


# -- extended queries ------------------------------------------------------------------------------------------------------


def test_portals_give_rows_in_parts(server: PostgresServer) -> None:
    client = server.open()
    asked = parse("SELECT unnest([1, 2, 3, 4, 5]) AS i") + bind() + describe() + execute(most=2)
    first = client.ask(query("BEGIN"))
    assert first[-1] == (b"Z", b"T")
    came = client.ask(asked, SYNC)
    assert [kind for kind, _ in came] == [b"1", b"2", b"T", b"D", b"D", b"s", b"Z"]
    came += client.ask(execute(most=2), SYNC)
    came += client.ask(execute(), SYNC)
    assert read_rows(came) == [[str(i).encode()] for i in range(1, 6)]
    assert (b"C", b"SELECT 5\0") in came
    assert client.kinds(execute(), SYNC) == "CZ", "nothing is left"
    client.ask(query("COMMIT"))
    assert read_error(client.ask(execute(), SYNC))["C"] == "34000", "and it ended with the transaction"
    client.send(END)
    client.close()


def test_a_portal_is_paid_once(server: PostgresServer) -> None:
    client = server.open()
    budget = query("SELECT 1; SHOW BUDGET")
    asked = "SELECT COUNT(*) AS n FROM visits WHERE day = 123 AND cost < 7"
    before = read_rows(client.ask(budget))
    client.ask(
        parse(asked, "one"),
        bind(name="one", portal="p"),
        describe("P", "p"),
        describe("S", "one"),
        FLUSH,
        SYNC,
    )
    assert read_rows(client.ask(budget)) == before, "to describe spends nothing"
    client.ask(bind(name="one"), describe(), execute(), execute(), SYNC)
    after = read_rows(client.ask(budget))
    assert after != before
    client.ask(bind(name="one"), execute(), SYNC)
    assert read_rows(client.ask(budget)) == after, "what is stored is free"
    client.close()


def test_after_an_error_all_is_skipped_up_to_sync(server: PostgresServer) -> None:
    client = server.open()
    came = client.ask(parse("SELEC 1"), bind(), execute(), parse("SELECT 1"), bind(), execute(), SYNC)
    assert [kind for kind, _ in came] == [b"1", b"2", b"E", b"Z"]
    assert read_error(came)["P"] == "1"
    assert client.kinds(parse("SELECT 1"), bind(), describe(), execute(), SYNC) == "12TDCZ"
    assert client.kinds(parse(""), bind(), describe(), execute(), SYNC) == "12nIZ"
    assert client.kinds(query("")) == "IZ"
    assert client.kinds(query("; ;")) == "IZ"
    client.close()


UNKNOWN: list[tuple[str, bytes]] = [
    ("26000", bind(name="nowhere")),
    ("34000", execute("nowhere")),
    ("26000", describe("S", "nowhere")),
    ("34000", describe("P", "nowhere")),
    ("08P01", message(b"D", b"Xa\0")),
    ("08P01", message(b"B", b"\0\0\0\5")),
    ("08P01", message(b"B", text("", ""), b"\0\1\0\7\0\0\0\0")),
    ("08P01", message(b"P", b"no end")),
    ("08P01", message(b"P", text("", "SELECT 1"), b"\x7f\xff")),
    ("08P01", message(b"P", b"\0\xff\xfe\0\0\0")),
    ("08P01", message(b"Q", b"SELECT 1\0more")),
    ("0A000", message(b"F", b"\0\0\0\1\0\0\0\0\0\0")),
    ("0A000", message(b"d", b"data")),
    ("0A000", message(b"c")),
]


@pytest.mark.parametrize(("state", "sent"), UNKNOWN)
def test_messages_that_do_not_fit_are_errors(server: PostgresServer, state: str, sent: bytes) -> None:
    client = server.open()
    came = client.ask(sent) if sent[:1] == b"Q" else client.ask(sent, SYNC)
    assert read_error(came)["C"] == state
    assert client.kinds(query("SELECT 1")) == "TDCZ"
    client.close()


def test_names_are_taken_once(server: PostgresServer) -> None:
    client = server.open()
    assert client.kinds(parse("SELECT 1", "a"), SYNC) == "1Z"
    assert read_error(client.ask(parse("SELECT 2", "a"), SYNC))["C"] == "08P01"
    assert client.kinds(message(b"C", b"S", text("a")), parse("SELECT 2", "a"), SYNC) == "31Z"
    assert client.kinds(query("DEALLOCATE a"), bind(name="a"), SYNC) == "CZ"
    assert read_error(client.until())["C"] == "26000"
    client.close()


def test_results_come_in_the_formats_asked_for(server: PostgresServer) -> None:
    client = server.open()
    asked = parse("SELECT $1 AS a, 'x' AS b, 7 AS c", kinds=(23,))
    came = client.ask(
        asked, bind([struct.pack(">i", 5)], formats=[1], results=[1, 0, 1]), describe(), execute(), SYNC
    )
    assert read_rows(came) == [[struct.pack(">i", 5), b"x", struct.pack(">i", 7)]]
    came = client.ask(asked, bind([b"6"], results=[1, 0]), execute(), SYNC)
    assert read_error(came)["M"] == "there are more or fewer formats than columns."
    came = client.ask(asked, bind([b"six"]), execute(), SYNC)
    assert read_error(came)["M"] == "$1 is not a valid integer."
    client.close()


def test_many_statements_of_a_simple_query(server: PostgresServer) -> None:
    client = server.open()
    came = client.ask(query("BEGIN; SET extra_float_digits = 2; SELECT 1 AS a; SELECT version(); COMMIT"))
    tags = [body for kind, body in came if kind == b"C"]
    assert tags == [b"BEGIN\0", b"SET\0", b"SELECT 1\0", b"SELECT 1\0", b"COMMIT\0"]
    came = client.ask(query("SELECT 1 AS a; SELECT cots FROM visits; SELECT 2"))
    assert read_error(came)["P"] == "23", "the place is one in the whole text"
    assert read_error(client.ask(parse("SELECT 1; SELECT 2"), bind(), execute(), SYNC))["C"] == "42601"
    client.close()


TOOLS = [
    ("SELECT CURRENT_SCHEMA", [[b"public"]]),
    ("SELECT pg_advisory_unlock_all()", [[b""]]),
    ("SELECT quote_literal('it''s')", [[b"'it''s'"]]),
    ("SELECT typreceive FROM pg_type WHERE typname = 'int4' AND typreceive != 0", [[b"int4recv"]]),
    ("SELECT typname FROM pg_type WHERE oid = ANY('{23}'::oid[])", [[b"int4"]]),
    ("TABLE wards ORDER BY ward DESC LIMIT 1", [[b"C", b"Eyes"]]),
    (
        "SELECT word FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs}'::text[]) LIMIT 1",
        [[b"above_threshold"]],
    ),
    ('SELECT name FROM "clinic"."public"."wards" AS w WHERE ward = \'A\'', [[b"Heart"]]),
    ("SELECT [1, 2]::int[] AS l", [[b"{1,2}"]]),
    ("SELECT current_setting('server_version_num')::int / 100, 7.0 / 2 FROM pg_am", [[b"1500", b"3.5"]]),
    ("SELECT oid FROM pg_type WHERE oid = ANY('{23,25}') AND typname <> ALL('{int4}')", [[b"25"]]),
    ("SELECT current_schemas(false), current_schemas(true)", [[b"{public}", b"{pg_catalog,public}"]]),
    ("SELECT typlen - 1 FROM pg_type WHERE typname = 'name'", [[b"63"]]),
    ("SELECT relname FROM pg_class WHERE reltype > 0 AND relname = 'wards'", [[b"wards"]]),
    (
        "SELECT udt_name::regtype::text, numeric_scale FROM information_schema.columns WHERE column_name = 'day'",
        [[b"integer", b"0"]],
    ),
    ("SELECT setting FROM pg_show_all_settings() WHERE name = 'bytea_output'", [[b"hex"]]),
    ("SET my.own = 'x'; SHOW my.own", [[b"x"]]),
    (r"SELECT '\x00ff'::bytea", [[rb"\x00ff"]]),
    (r"SELECT CAST('\x00ff' AS bytea)", [[rb"\x00ff"]]),
    ("SELECT make_interval(days := 2), make_interval(0, 0, 0, 3)", [[b"2 days", b"3 days"]]),
    ("SELECT 3 <> ALL([1, 2]::bigint[]), 3 <> ALL([1, NULL]::bigint[])", [[b"t", None]]),
    (
        "SET intervalstyle = iso_8601; SELECT INTERVAL '14 months' AS a, [INTERVAL '-90 seconds'] AS b",
        [[b"P1Y2M", b"{PT-1M-30S}"]],
    ),
    ("SELECT EXTRACT(YEAR FROM now()) > 2000", [[b"t"]]),
    (
        "DECLARE c CURSOR FOR SELECT relname FROM pg_class WHERE relname IN ('visits', 'wards', 'pg_am') ORDER BY 1; "
        "MOVE FORWARD 1 FROM c; FETCH 1 FROM c; CLOSE c",
        [[b"visits"]],
    ),
]


@pytest.mark.parametrize(("asked", "rows"), TOOLS)
def test_names_that_tools_write(server: PostgresServer, asked: str, rows: list[list[bytes | None]]) -> None:
    client = server.open()
    came = client.ask(query(asked))
    assert not read_error(came)
    assert read_rows(came) == rows
    client.close()


def test_columns_have_the_names_of_postgresql(server: PostgresServer) -> None:
    client = server.open()
    asked = "SELECT string_agg(relname, ','), (SELECT COUNT(*) FROM pg_am), TRUE OR FALSE, max(oid) + 1 FROM pg_class"
    (body,) = [body for kind, body in client.ask(query(asked)) if kind == b"T"]
    names, at = [], 2
    while at < len(body):
        end = body.index(b"\0", at)
        names.append(body[at:end])
        at = end + 19
    assert names == [b"string_agg", b"count", b"?column?", b"?column?"]
    client.close()


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        ("SELECT * FROM pg_nothing", "42P01"),
        ("SELECT nothing FROM pg_class", "42703"),
        ("SELECT current_setting('nothing')", "42704"),
        ("SELECT '{'::text[] FROM pg_class", "22P02"),
    ],
)
def test_errors_of_the_catalogue_have_codes(server: PostgresServer, asked: str, state: str) -> None:
    client = server.open()
    assert read_error(client.ask(query(asked)))["C"] == state
    client.close()


def test_copies_of_the_catalogue_and_of_no_rows(server: PostgresServer) -> None:
    client = server.open()
    for asked, rows in (
        ("SELECT table_name FROM information_schema.tables", b"visits\nwards\n"),
        ("SELECT ward FROM visits WHERE 1=0", b""),
    ):
        came = client.ask(query(f"COPY ({asked}) TO STDOUT"))
        assert b"".join(body for kind, body in came if kind == b"d") == rows
    client.close()


def test_a_pool_that_resets_a_session_keeps_its_statements(server: PostgresServer) -> None:
    client = server.open()
    client.ask(parse("SELECT 1", "one"), SYNC)
    client.ask(query("RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD SEQUENCES; DISCARD TEMP"))
    assert read_rows(client.ask(bind((), "one"), execute(), SYNC)) == [[b"1"]]
    client.ask(query("DISCARD ALL"))
    assert read_error(client.ask(bind((), "one"), execute(), SYNC))["C"] == "26000"
    client.ask(query("BEGIN"))
    assert client.ask(query("COMMIT AND CHAIN"))[-1] == (b"Z", b"T")
    assert client.ask(query("ROLLBACK AND NO CHAIN"))[-1] == (b"Z", b"I")
    client.close()


def test_a_description_changes_no_setting(server: PostgresServer) -> None:
    client = server.open()
    client.ask(parse("SELECT set_config('my.own', 'x', false)"), describe("S"), SYNC)
    assert read_error(client.ask(query("SHOW my.own")))["C"] == "42704"
    client.close()


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        ("SELECT $1", [25]),
        ("SELECT $1 + 1", [701]),
        ("SELECT DATE_TRUNC($1::VARCHAR, TIMESTAMP '2024-01-01')", [25]),
        (
            "SELECT WIDTH_BUCKET(cost, $1::INTEGER, $2::INTEGER, $3::INTEGER) AS b, COUNT(*) FROM visits GROUP BY b",
            [23] * 3,
        ),
        ("SELECT PERCENTILE_CONT($1::FLOAT) WITHIN GROUP (ORDER BY cost) FROM visits", [700]),
        (
            "SELECT attname FROM pg_attribute WHERE attrelid = $1 AND attnum > $2 AND attname = $3",
            [26, 20, 25],
        ),
    ],
)
def test_types_of_parameters_without_values(server: PostgresServer, asked: str, kinds: list[int]) -> None:
    client = server.open()
    came = client.ask(parse(asked), describe("S"), SYNC)
    assert not read_error(came)
    (told,) = [body for kind, body in came if kind == b"t"]
    assert list(struct.unpack(f">h{len(kinds)}I", told)) == [len(kinds), *kinds]
    client.close()


PROBES = [
    ("SELECT * FROM visits LIMIT 0", [b"patient", b"ward", b"cost", b"day", b"city"]),
    ('SELECT * FROM "public"."visits" WHERE 1 = 0', [b"patient", b"ward", b"cost", b"day", b"city"]),
    ("SELECT v.* FROM (SELECT ward, cost * 2 AS twice FROM visits) AS v WHERE 1=0;", [b"ward", b"twice"]),
    (
        "SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY ward LIMIT 0",
        [b"ward", b"n", b"mean"],
    ),
]


@pytest.mark.parametrize(("asked", "names"), PROBES)
def test_tools_that_want_columns_only_pay_nothing(
    server: PostgresServer, asked: str, names: list[bytes]
) -> None:
    client = server.open()
    before = read_rows(client.ask(query("SHOW BUDGET")))
    came = client.ask(query(asked))
    described = client.ask(parse(asked, "probe"), describe("S", "probe"), bind(name="probe"), execute(), SYNC)
    for part in (came, described):
        (body,) = [body for kind, body in part if kind == b"T"]
        at, found = 2, []
        for _ in range(struct.unpack(">h", body[:2])[0]):
            end = body.index(b"\0", at)
            found.append(body[at:end])
            at = end + 19
        assert found == names
        assert (b"C", b"SELECT 0\0") in part
    assert read_rows(client.ask(query("SHOW BUDGET"))) == before
    client.close()


def test_a_row_that_an_empty_table_has_is_not_told_for_free(server: PostgresServer) -> None:
    client = server.open()
    before = read_rows(client.ask(query("SHOW BUDGET")))
    assert len(read_rows(client.ask(query("SELECT COUNT(*) AS n FROM visits WHERE 1 = 0")))) == 1
    assert read_rows(client.ask(query("SHOW BUDGET"))) != before, "its noisy number is charged"
    came = client.ask(query("SELECT ward FROM wards UNION ALL SELECT ward FROM visits WHERE FALSE"))
    assert read_error(came)["C"] == "42501", "the first side has rows"
    came = client.ask(query("SELECT STRING_AGG(city, ',') AS all_cities FROM visits WHERE FALSE"))
    assert read_error(came)["C"] in ("42501", "42000"), "no aggregate over empty copies is shown as an answer"
    client.close()


# -- cancel, limits, the end -----------------------------------------------------------------------------------------------


def test_cancel_stops_a_statement(server: PostgresServer) -> None:
    client, other = server.open(), server.open()
    long = "SELECT COUNT(*) FROM range(100000) a, range(100000) b, range(50) c WHERE (a.range + b.range * c.range) % 7 = 3"
    client.send(query(long))

    def cancel(key: bytes) -> None:
        asker = socket.create_connection(("127.0.0.1", server.port))
        asker.sendall(struct.pack(">ii", 16, 80877102) + key)
        assert asker.recv(10) == b"", "nothing is said of whether that was right"
        asker.close()

    def is_told(seconds: float) -> bool:
        return bool(select.select([client.socket], [], [], seconds)[0])

    assert not is_told(1.0)
    cancel(client.key[:4] + bytes(4))
    assert not is_told(0.3)
    end = time.monotonic() + 60
    while not is_told(0.5):  # what has not begun is not cancelled
        assert time.monotonic() < end
        cancel(client.key)
    told = read_error(client.until())
    assert told["C"] == "57014", told
    assert client.kinds(query("SELECT 1")) == other.kinds(query("SELECT 1")) == "TDCZ"
    client.close(), other.close()


def test_a_statement_that_is_too_large_ends_the_connection(server: PostgresServer) -> None:
    client = server.open()
    assert "the owner allows" in read_error(client.ask(query("SELECT 1 -- " + "x" * 30_000)))["M"]
    client.send(b"Q" + struct.pack(">i", 1 << 30))
    told = read_error(client.until())
    assert (told["S"], told["C"]) == ("FATAL", "54000")
    client.close()


def test_another_client_of_the_analyst_is_not_met(server: PostgresServer) -> None:
    one, two = server.open(), server.open()
    one.ask(parse("SELECT 1", "mine"), SYNC)
    assert read_error(two.ask(bind(name="mine"), SYNC))["C"] == "26000"
    one.ask(query("mine << SELECT 1 AS a"))
    assert read_error(two.ask(query("SELECT * FROM mine")))["C"] == "42P01"
    assert read_error(two.ask(query("SELECT SUM(mine) FROM visits")))["C"] == "42703"
    one.close(), two.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of a server and of two analysts, each signed by itself: ``NAME.pem`` and ``NAME.key``."""
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "localhost")
    for name in ("ada", "bob"):
        make_certificate(folder, name, common=name, names="")
    (folder / "analysts.pem").write_text((folder / "ada.pem").read_text() + (folder / "bob.pem").read_text())
    return folder


def test_tls(tmp_path: Path, certificates: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    write_data(tmp_path, 500)
    policy = write_policy(tmp_path, {"ada": 1e12}, "answer_times = []", BUDGET)
    arguments = {
        "--tls-cert": "localhost.pem",
        "--tls-key": "localhost.key",
        "--tls-client-ca": "analysts.pem",
    }
    placed = [word for option, name in arguments.items() for word in (option, str(certificates / name))]
    with PostgresServer(policy, *placed) as server:
        trusted = f"{server.make_url()} sslmode=verify-full sslrootcert={certificates / 'localhost.pem'}"
        own, others = (
            f"{trusted} sslcert={certificates}/{n}.pem sslkey={certificates}/{n}.key" for n in ("ada", "bob")
        )
        with psycopg.connect(own, channel_binding="require", require_auth="scram-sha-256") as made:
            assert made.pgconn.ssl_in_use
            assert made.execute("SELECT 1").fetchone() == (1,)
        with psycopg.connect(own, channel_binding="disable") as made:
            assert made.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="different analysts"):
            psycopg.connect(others)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(trusted)
        with pytest.raises(psycopg.OperationalError, match="requires TLS"):
            psycopg.connect(f"{server.make_url()} sslmode=disable")
        client = BarePostgres(server.port)
        client.send(struct.pack(">ii", 8, 80877103), struct.pack(">ii", 8, 196608))
        assert client.take(1) == b"E", "what came before TLS is not taken for what came after it"
        client.close()
        context = ssl._create_unverified_context()
        context.load_cert_chain(certificates / "ada.pem", certificates / "ada.key")
        client = BarePostgres(server.port)
        assert client.secure(context) == b"S"
        _, body = client.start({"user": "ada", "database": "clinic"})
        assert body[4:] == text("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256") + b"\0"
        first = b"y,,n=,r=abc"  # it could bind, and thinks that the server can't: somebody is in between
        _, body = client.prove(text("SCRAM-SHA-256") + struct.pack(">i", len(first)) + first)
        assert read_fields(body)["C"] == "28P01"
        client.close()


def test_beyond_this_machine_it_speaks_tls_alone() -> None:
    with pytest.raises(ServerError, match="needs TLS"):
        read_postgres_place("0.0.0.0:0", tls=False)


# -- hostile bytes ---------------------------------------------------------------------------------------------------------

TEXTS = [
    "SELECT 1", "SELECT * FROM visits", "SELECT city FROM visits", "SELECT COUNT(*) FROM visits", "SELEC", "", ";", "\u202e" * 50,
    "SELECT " + "(" * 3000, "SELECT * FROM pg_class", r"SELECT * FROM pg_catalog.pg_class WHERE relname ~ '(((('", "SET x = y",
    "SELECT pg_read_file('/etc/passwd')", "BEGIN", "ROLLBACK", "DEALLOCATE ALL", "SHOW ALL", "SHOW LEDGER", "DISCARD ALL", "SET",
    "SELECT $1", "SELECT $1 + $99999999", "SELECT version(), $1::regclass", "COPY visits TO STDOUT", "x << SELECT 1 AS a",
    "SELECT error(city) FROM visits", "SELECT city::INTEGER FROM visits", "SELECT set_config('a', 'b', false)",
    "EXPLAIN SELECT 1",
    "SELECT ('x'::pg_catalog.regtype)[1]", "SELECT * FROM information_schema.columns", "RESET ALL", "SELECT 1" + " -- x" * 3000,
    "SELECT COUNT(*) FROM visits WHERE city = $1 AND ward = ANY($2)", "SELECT '\\u0000'::regclass FROM pg_type t, pg_type s",
]  # fmt: skip
VALUES = [
    None,
    b"",
    b"A",
    b"5",
    b"{a,b}",
    b'{"',
    b"\xff\xfe",
    b"\0\0\0\1",
    bytes(8),
    b"x" * 5000,
    b"1e999999999",
    b"{" * 500,
    b"NaN",
]
KINDS = [0, *types.NAMES, 1007, 1009, 2205, 2**32 - 1]


class Attacker(HostileClient):
    """A hostile client that sends bytes."""

    forbidden = ("Traceback", SECRET, ".parquet", "site-packages", "/dpsql/", ".py", "pyarrow")

    def __init__(self, server: PostgresServer, seed: int) -> None:
        super().__init__(server, seed)
        self.port = server.port
        self.client: BarePostgres | None = None
        self.messages: list[Callable[[], bytes]] = [
            lambda: query(self.rng.choice(TEXTS)), self.make_parse, self.make_bind, self.make_bind,
            lambda: describe("S", self.name()),
            lambda: describe("P", self.name()), lambda: execute(self.name(), self.rng.choice([0, 1, -1, 2**31 - 1])),
            lambda: SYNC, lambda: FLUSH, lambda: message(b"C", self.rng.choice([b"S", b"P", b"?"]), text(self.name())),
            self.make_noise,
        ]  # fmt: skip

    def name(self) -> str:
        return self.rng.choice(["", "", "a", "b", "é" * 40, "x" * 300])

    def make_parse(self) -> bytes:
        return parse(
            self.rng.choice(TEXTS),
            self.name(),
            [self.rng.choice(KINDS) for _ in range(self.rng.randrange(3))],
        )

    def make_bind(self) -> bytes:
        values = [self.rng.choice(VALUES) for _ in range(self.rng.randrange(4))]
        formats = [self.rng.choice([0, 1, 1, 7]) for _ in range(self.rng.choice([0, 1, len(values)]))]
        return bind(
            values,
            self.name(),
            self.name(),
            formats,
            [self.rng.choice([0, 1]) for _ in range(self.rng.randrange(3))],
        )

    def make_noise(self) -> bytes:
        kind = bytes([self.rng.randrange(256)])
        return (
            kind
            + struct.pack(">i", self.rng.choice([0, 3, 4, 5, 100, -1, 2**31 - 1]))
            + self.rng.randbytes(self.rng.randrange(30))
        )

    def change(self, sent: bytes) -> bytes:
        """Change some bytes, cut some off, or leave the message as it is."""
        chance = self.rng.random()
        if chance < 0.15:
            changed = bytearray(sent)
            for _ in range(self.rng.randrange(1, 5)):
                changed[self.rng.randrange(len(changed))] = self.rng.randrange(256)
            return bytes(changed)
        return sent[: self.rng.randrange(len(sent))] if chance < 0.18 else sent

    def begin(self) -> None:
        """Begin a connection, often in a way that leads nowhere."""
        chance = self.rng.random()
        self.client = BarePostgres(self.port, timeout=20)
        if chance < 0.4:
            pieces = [
                self.rng.randbytes(self.rng.randrange(1, 200)), struct.pack(">ii", 8, 80877103) * 3, struct.pack(">i", 2**31 - 1),
                struct.pack(">ii", 16, 80877102) + self.rng.randbytes(8), struct.pack(">ii", 9, 196608) + b"\0",
                b"GET / HTTP/1.1\r\n\r\n",
                struct.pack(">ii", 30, 196608) + b"user\0ada\0database\0\0\0",
                struct.pack(">ii", 8, 80877104) + self.rng.randbytes(20),
                struct.pack(">ii", 18, 196608) + b"user\0ada\0\0" + message(b"p", text("SCRAM-SHA-256"), self.rng.randbytes(60)),
                struct.pack(">ii", 18, 196608) + b"user\0ada\0\0" + message(b"p", text("SCRAM-SHA-256"), b"\0\0\0\x0bn,,n=,r=abc")
                + message(b"p", b"c=biws,r=abc,p=" + self.rng.randbytes(20)),
                b"\x16\x03\x01\x02\x00\x01" + self.rng.randbytes(100),
            ]  # fmt: skip
            self.note(self.rng.choice(pieces))
            self.end()
        else:
            self.client.log_in("ada", self.token)

    def end(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = None

    def note(self, sent: bytes) -> None:
        """Send bytes, and read what comes."""
        assert self.client is not None
        self.sent += 1
        came = b""
        try:
            self.client.send(sent)
            self.client.socket.shutdown(socket.SHUT_WR) if self.rng.random() < 0.02 else None
            self.client.socket.settimeout(self.rng.choice([0.001, 0.001, 0.02]))
            while piece := self.client.socket.recv(1 << 16):
                came += piece
                if len(came) > 1 << 20:
                    break
            self.end()
        except TimeoutError:
            pass
        except OSError:
            self.end()
        self.judge(sent[:200], came)

    def send(self, count: int) -> None:
        while self.sent < count:
            try:
                if self.client is None:
                    self.begin()
            except (OSError, EOFError, PermissionError, struct.error, AssertionError, KeyError, ValueError):
                self.sent += 1
                self.end()
            if self.client is not None:
                self.note(self.change(self.rng.choice(self.messages)()))
        self.end()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.stochastic)])
def test_hostile_bytes(server: PostgresServer, count: int) -> None:
    attackers = [Attacker(server, seed) for seed in range(4)]
    attackers[0].send(100)
    attackers[0].sent = 0
    lines = len(server.events)
    attack(server, attackers, count)
    failures = [line for line in server.events[lines:] if line["event"] == "failure"]
    assert not failures, failures[:5]
    client = server.open("ada")
    try:
        came, end = client.ask(query("SELECT 1 AS x")), time.monotonic() + 120
        # the attackers' last ones wait
        while read_error(came).get("C") == "53400" and time.monotonic() < end:
            time.sleep(0.1)
            came = client.ask(query("SELECT 1 AS x"))
        assert read_rows(came) == [[b"1"]]
    finally:
        client.close()


def test_the_words_that_are_looked_for_would_be_found(server: PostgresServer) -> None:
    attacker, client = Attacker(server, 1), server.open()
    asked = query("SELECT 'visits.parquet' AS told")
    attacker.judge(asked, b"".join(body for _, body in client.ask(asked)))
    assert len(attacker.found) == 1
    client.close()
