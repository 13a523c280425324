"""Flight SQL as its owner has it: answer times, clients that go away, TLS, certificates, and a server without the extra."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as adbc
import pyarrow.flight as flight
import pytest

import dpsql
from dpsql.server.flight.flight_sql import StatementHandle, list_sql_info, list_tables, make_sql_info
from dpsql.server.flight.protobuf import NotFlightSql, make_message, pack_message, unpack_message
from tests.support.certificates import make_certificate
from tests.support.flight_sql_client import BareFlightSql
from tests.support.served import ServerProcess, make_token, try_until, write_data, write_policy

pytestmark = pytest.mark.timeout(600)
COUNT = "SELECT COUNT(*) AS n FROM visits"
SLOW = "SELECT ward, MEDIAN(cost) AS m, MEDIAN(day) AS d FROM visits GROUP BY ward"
"""Takes more than a second on the data of ``slow``."""
WITHOUT_PROTOBUF = (
    "import sys; sys.modules['google.protobuf'] = None; from dpsql.cli import main; sys.exit(main())"
)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("slow")
    write_data(folder, 1_500_000)
    with ServerProcess(
        write_policy(folder, {"ada": 100}, "answer_times = [0.25, 0.5, 1, 2, 4, 8]")
    ) as running:
        yield running


def connect(server: ServerProcess) -> BareFlightSql:
    return BareFlightSql.with_token(server.url, make_token(server.policy, "ada"))


def test_rows_leave_at_the_times_of_the_grid(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 100}, "answer_times = [0.4, 0.8, 1.6, 3.2, 6.4]")
    with ServerProcess(policy) as server:
        client = connect(server)
        client.sql(COUNT)
        for number in range(3):
            ticket = (
                client.info("CommandStatementQuery", query=f"{COUNT} WHERE day < {number}")
                .endpoints[0]
                .ticket
            )
            begun = time.monotonic()
            client.flight.do_get(ticket, client.options).read_all()
            took = time.monotonic() - begun
            assert took >= 0.395, "answers that read private data wait"

        def prepare() -> float:
            begun = time.monotonic()
            client.prepare(f"{COUNT} WHERE day < 77")
            return time.monotonic() - begun

        try_until(prepare, lambda took: took < 0.395)  # what reads none does not
        client.close()


def list_outcomes(server: ServerProcess) -> list[str]:
    return [e["outcome"] for e in server.events if e["event"] == "answer" and e["operation"] == "run"]


def test_a_client_that_goes_away_stops_its_statement(slow: ServerProcess) -> None:
    """The client leaves after longer and longer times: it may be before the statement begins, or after it has ended."""
    client = connect(slow)
    client.sql("SELECT 1 AS a")
    patience = iter([0.4, 0.4, 0.4, 0.8, 0.8, 1.6, 1.6, 3.2, 3.2, 6.4])

    def leave() -> str:
        before, seconds = len(list_outcomes(slow)), next(patience)
        text = SLOW.replace("GROUP", f"WHERE day < {1000 + before} GROUP")
        ticket = client.info("CommandStatementQuery", query=text).endpoints[0].ticket
        hurried = flight.FlightCallOptions(headers=client.options_headers, timeout=seconds)
        try:
            client.flight.do_get(ticket, hurried).read_all()
        except flight.FlightTimedOutError:
            end = time.monotonic() + 12
            while time.monotonic() < end and len(list_outcomes(slow)) == before:
                time.sleep(0.05)
        return "".join(list_outcomes(slow)[before:])

    try_until(leave, lambda outcome: outcome in ("interrupted", "stopped"), 10)
    assert client.sql("SELECT 1 AS a").num_rows == 1
    client.close()


def test_a_server_without_the_extra_says_what_to_install(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 100}, "answer_times = []")
    with ServerProcess(policy, command=[sys.executable, "-c", WITHOUT_PROTOBUF]) as server:
        client = connect(server)
        for ask in (
            lambda: client.sql(COUNT),
            lambda: client.prepare(COUNT),
            lambda: client.table("CommandGetTables"),
            lambda: client.act("ClosePreparedStatement"),
        ):
            with pytest.raises(flight.FlightServerError, match=r"pip install 'dpsql\[server\]'"):
                ask()
        with dpsql.connect(server.url, token=make_token(policy, "ada")) as own:
            assert own.sql(COUNT).fetchall()
        client.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate with")
def test_tls(folder: Path) -> None:
    make_certificate(folder, "own")
    certificate, key = folder / "own.pem", folder / "own.key"
    policy = write_policy(folder, {"ada": 100}, "answer_times = []")
    arguments = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with ServerProcess(policy, *arguments, listen="127.0.0.1:0") as server:
        url = f"grpc+tls://localhost:{server.url.rpartition(':')[2]}"
        known = {
            "username": "ada", "password": make_token(policy, "ada"),
            adbc_driver_flightsql.DatabaseOptions.TLS_ROOT_CERTS.value: certificate.read_text(),
        }  # fmt: skip
        with adbc.connect(url, db_kwargs=known, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(COUNT)
            assert cursor.fetch_arrow_table().num_rows == 1


# -- its parts ----------------------------------------------------------------------------------------------------------


def test_handles_round_trip() -> None:
    for held in (StatementHandle("SELECT 'ß'", {"1": None, "2": {"int": "5"}}), StatementHandle("")):
        assert StatementHandle.read(held.write()) == held


def test_messages_round_trip() -> None:
    name, message = unpack_message(
        pack_message("CommandGetTables", catalog="", table_types=["TABLE", "VIEW"])
    )
    assert name == "CommandGetTables"
    assert message.HasField("catalog")
    assert not message.HasField("table_name_filter_pattern")
    assert list(message.table_types) == ["TABLE", "VIEW"]
    for wrong in (
        b"",
        b"x",
        pack_message("CommandGetTables").replace(b"CommandGet", b"CommandSet"),
        b"\n\xff\xff\xff\xff\x0f",
    ):
        with pytest.raises(NotFlightSql):
            unpack_message(wrong)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("%", ["visits", "wards"]), ("vis%", ["visits"]), ("VIS%", ["visits"]), ("%s", ["visits", "wards"]), ("w_rds", ["wards"]),
        ("", []), ("visits", ["visits"]), ("v\\_sits", []), ("visit\\s", ["visits"]), ("%a%d%", ["wards"]), ("_", []),
        ("%_" * 400 + "x", []),
    ],
)  # fmt: skip
def test_patterns_of_names(pattern: str, names: list[str], data: Path) -> None:
    policy = dpsql.Policy.load(write_policy(data, {}))
    command = make_message("CommandGetTables", table_name_filter_pattern=pattern)
    assert list_tables("clinic", policy, command) == names


def test_every_fact_that_a_driver_may_ask() -> None:
    facts = list_sql_info("1.0", 100)
    assert set(facts) == {*range(6), 8, 9, 10, 11, 100, 101, *range(500, 577)}
    table = make_sql_info([], "1.0", 100)
    table.validate(full=True)
    values = dict(zip(table["info_name"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert (values[0], values[1], values[3], values[8], values[557]) == ("dpsql", "1.0", True, 0, 100)
    assert make_sql_info([9999], "1.0", 100).num_rows == 0
