"""Clients that analysts have already: the same tables as in a session, and nothing is paid before rows are fetched."""

from __future__ import annotations

import json
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import dpsql
from dpsql.ledger.ledger import Ledger
from tests.support.flight_sql_client import BareFlightSql, shake_hands, write_basic
from tests.support.served import ServerProcess, make_token
from tests.support.thirty_statements import THIRTY, same

pytestmark = pytest.mark.timeout(600)
COUNT = "SELECT COUNT(*) AS n FROM visits"


def connect_adbc(server: ServerProcess, name: str = "ada", **more: str) -> adbc.Connection:
    """Connect as a user with a password."""
    url = server.url.replace("grpc+tcp", "grpc")
    known = {"username": name, "password": make_token(server.policy, name), **more}
    return adbc.connect(url, db_kwargs=known, autocommit=True)


@pytest.fixture(scope="module")
def connection(server: ServerProcess) -> Iterator[adbc.Connection]:
    with connect_adbc(server) as opened:
        yield opened


@pytest.fixture(scope="module")
def bare(server: ServerProcess) -> Iterator[BareFlightSql]:
    client = BareFlightSql.with_token(server.url, make_token(server.policy, "ada"))
    yield client
    client.close()


@pytest.fixture(scope="module")
def own(server: ServerProcess) -> Iterator[Any]:
    with dpsql.connect(server.url, token=make_token(server.policy, "ada")) as session:
        yield session


def spent(session: Any) -> tuple[str, int]:
    return session.budget().sentence, len(session.ledger())


def fetch(connection: adbc.Connection, text: str, parameters: Any = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)
        return cursor.fetch_arrow_table()


# -- the same table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", THIRTY)
def test_the_same_table(connection: adbc.Connection, bare: BareFlightSql, own: Any, text: str) -> None:
    """ADBC asks first and pays; what is stored is shown to everybody else."""
    first = fetch(connection, text)
    result = own.sql(text)
    assert result.loss in ("", "no charge"), "it was paid once"
    assert first.equals(result.table), (first, result.table)
    assert bare.sql(text).equals(result.table)
    assert bare.ask_like_jdbc(text).equals(result.table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas' own, on decimals
        frame = pd.read_sql(text, connection)
    assert list(frame.columns) == result.columns
    expected = [list(row) for row in result.fetchall()]
    for rows in (frame.itertuples(index=False, name=None), shown_by_polars(connection, text, result.columns)):
        read = [
            [read_cell(c, v) for c, v in zip(*pair, strict=True)] for pair in zip(rows, expected, strict=True)
        ]
        assert same(read, expected), (read, expected)


def shown_by_polars(connection: adbc.Connection, text: str, columns: list[str]) -> list[tuple[Any, ...]]:
    frame = pl.read_database(text, connection)
    assert frame.columns == columns
    return frame.rows()


def read_cell(cell: Any, like: Any) -> Any:
    """Return a frame's cell as Python has it: NULL is NaN or NaT for pandas, and a map is a list of pairs for both."""
    if isinstance(cell, np.ndarray | pl.Series):
        cell = cell.tolist() if isinstance(cell, np.ndarray) else cell.to_list()
    if isinstance(cell, list):
        pairs = [tuple(item.values()) if isinstance(item, dict) else item for item in cell]
        return dict(pairs) if isinstance(like, dict) else cell
    missing = pd.isna(cell)
    return None if isinstance(missing, bool) and missing else cell


def test_rows_as_python_values(connection: adbc.Connection, own: Any) -> None:
    text = "SELECT ward, COUNT(*) AS n, AVG(cost) AS mean FROM visits GROUP BY ward ORDER BY ward"
    with connection.cursor() as cursor:
        cursor.execute(text)
        rows = cursor.fetchall()
        assert [d[0] for d in cursor.description] == ["ward", "n", "mean"]
    assert rows == own.sql(text).fetchall()


def test_what_an_answer_says_beside_its_rows(connection: adbc.Connection, own: Any) -> None:
    text = (
        "SELECT WITH DP OPTIONS (epsilon = 0.25, confidence = 0.9) COUNT(*) AS n FROM visits WHERE day < 77"
    )
    first = fetch(connection, text).schema.metadata
    assert first[b"dpsql.loss"].decode() == "ε=0.25"
    assert re.fullmatch(r"cost ε=0.25 · ε=\S+ of ada's ε=\S+ left", first[b"dpsql.cost_line"].decode())
    again = own.sql(text)
    assert json.loads(first[b"dpsql.intervals"]) == {"n": [list(again.intervals["n"][0])]}
    assert float(first[b"dpsql.confidence"]) == 0.9
    assert first[b"dpsql.statement_id"].decode() == again.statement_id
    second = fetch(connection, text).schema.metadata
    assert second[b"dpsql.loss"] == b"no charge"
    histogram = fetch(connection, "SELECT HISTOGRAM(ward) AS h FROM visits WHERE day < 5").schema.metadata
    assert set(json.loads(histogram[b"dpsql.intervals"])["h"][0]) == set("ABCD")


def test_parameters(connection: adbc.Connection, bare: BareFlightSql, own: Any) -> None:
    text = "SELECT COUNT(*) AS n FROM visits WHERE city = ? AND cost > ?"
    table = fetch(connection, text, ("Delft", 250.5))
    assert table.equals(own.sql(text, ["Delft", 250.5]).table)
    assert bare.ask_like_jdbc(text, {"1": "Delft", "2": 250.5}).equals(table)
    assert fetch(connection, text, ("Delft", 400.5)).schema.metadata[b"dpsql.loss"] == "ε=0.1".encode()
    named = "SELECT COUNT(*) AS n FROM visits WHERE city = $city AND cost > $least"
    values = pa.RecordBatch.from_pydict({"least": [250.5], "city": ["Delft"]})
    handle = bare.bind(bare.prepare(named).prepared_statement_handle, values)
    given = {"city": "Delft", "least": 250.5}
    found = bare.table("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    assert found.equals(own.sql(named, given).table)
    kinds = fetch(connection, "SELECT ? AS a, ? AS b, ? AS c, ? AS d", (True, None, 12, "it's"))
    assert kinds.to_pylist() == [{"a": True, "b": None, "c": 12, "d": "it's"}]


def test_parameters_that_are_none(bare: BareFlightSql, connection: adbc.Connection) -> None:
    handle = bare.prepare("SELECT ? AS a").prepared_statement_handle
    for values, said in (
        (pa.RecordBatch.from_pydict({"a": [1, 2]}), "one row"),
        (pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())}), "one row"),
        (pa.RecordBatch.from_pydict({"a": [1], "b": [2]}), None),
        (pa.RecordBatch.from_pydict({"a": ["x" * 2_000_000]}), "bytes that the owner allows"),
        (pa.RecordBatch.from_pydict({"a": pa.array([2**62], pa.timestamp("s"))}), "can't be read"),
    ):
        with pytest.raises(flight.FlightServerError, match=said or "BindError") as raised:
            bare.table("CommandPreparedStatementQuery", prepared_statement_handle=bare.bind(handle, values))
        assert "Traceback" not in str(raised.value)
    with pytest.raises(adbc_driver_manager.Error, match="2 parameters, and 1 value"):
        fetch(connection, "SELECT ? AS a, ? AS b", (1,))


# -- nothing is paid before ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.stochastic)])
def test_prepares_spend_nothing(
    connection: adbc.Connection, bare: BareFlightSql, own: Any, count: int
) -> None:
    before = spent(own)
    texts = [f"{COUNT} WHERE day = {number % 10} AND cost < 3" for number in range(count)]
    with connection.cursor() as cursor:
        for text in texts:
            cursor.adbc_prepare(text)
    for text in texts:
        prepared = bare.prepare(text)
        schema = pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema))
        assert schema.metadata[b"dpsql.price"] == "ε=0.1".encode()
        bare.info(
            "CommandPreparedStatementQuery", prepared_statement_handle=prepared.prepared_statement_handle
        )
        bare.info("CommandStatementQuery", query=text)
    assert bare.schema("CommandStatementQuery", query=COUNT + " WHERE day = 3").names == ["n"]
    with connection.cursor() as cursor:
        assert cursor.adbc_execute_schema(COUNT + " WHERE day = 4") == pa.schema([("n", pa.int64())])
    assert spent(own) == before


def test_rows_that_are_fetched_twice_are_paid_once(bare: BareFlightSql, own: Any) -> None:
    info = bare.info("CommandStatementQuery", query=COUNT + " WHERE day > 7")
    before = own.budget().spent
    first = bare.flight.do_get(info.endpoints[0].ticket, bare.options).read_all()
    paid = own.budget().spent
    assert paid != before
    assert bare.flight.do_get(info.endpoints[0].ticket, bare.options).read_all().equals(first)
    assert own.budget().spent == paid


def test_kept_results_and_thresholds(connection: adbc.Connection) -> None:
    fetch(connection, "counts << SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    with connection.cursor() as cursor:
        cursor.execute("SELECT SUM(n) AS total FROM counts")
        assert cursor.fetch_arrow_table().num_rows == 1
    fetch(connection, "DECLARE alarm ABOVE_THRESHOLD 100000 OPTIONS (epsilon = 0.5)")
    assert fetch(connection, "SELECT WITH alarm COUNT(*) AS n FROM visits").num_rows == 1
    assert "closed" in str(fetch(connection, "CLOSE alarm").to_pylist())


# -- browsing -----------------------------------------------------------------------------------------------------------


def test_browsing(connection: adbc.Connection) -> None:
    info = connection.adbc_get_info()
    assert (info["vendor_name"], info["vendor_version"]) == ("dpsql", dpsql.__version__)
    ((catalog,),) = [connection.adbc_get_objects().read_all().to_pylist()]
    assert catalog["catalog_name"] == "clinic"
    (schema,) = catalog["catalog_db_schemas"]
    columns = {
        table["table_name"]: {c["column_name"]: c["xdbc_type_name"] for c in table["table_columns"]}
        for table in schema["db_schema_tables"]
    }
    assert columns == {
        "visits": {
            "patient": "BIGINT",
            "ward": "VARCHAR",
            "cost": "DOUBLE",
            "day": "INTEGER",
            "city": "VARCHAR",
        },
        "wards": {"ward": "VARCHAR", "name": "VARCHAR"},
    }
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_get_table_schema("wards").names == ["ward", "name"]
    found = connection.adbc_get_objects(table_name_filter="vis%", depth="tables").read_all().to_pylist()
    assert [t["table_name"] for t in found[0]["catalog_db_schemas"][0]["db_schema_tables"]] == ["visits"]
    assert list(pd.read_sql_table("wards", connection)["ward"]) == ["A", "B", "C"]


def test_tables_of_a_bare_client(bare: BareFlightSql) -> None:
    assert bare.table("CommandGetCatalogs").to_pylist() == [{"catalog_name": "clinic"}]
    assert bare.table("CommandGetDbSchemas").num_rows == 1
    assert bare.table("CommandGetDbSchemas", catalog="other").num_rows == 0
    assert bare.table("CommandGetTableTypes").to_pylist() == [{"table_type": "TABLE"}]
    assert bare.table("CommandGetTables", table_types=["VIEW"]).num_rows == 0
    names = bare.table("CommandGetTables", table_name_filter_pattern="w_rds")["table_name"].to_pylist()
    assert names == ["wards"]
    with_schema = bare.table("CommandGetTables", include_schema=True).to_pylist()
    assert pa.ipc.read_schema(pa.py_buffer(with_schema[0]["table_schema"])).field("cost").type == pa.float64()
    facts = bare.table("CommandGetSqlInfo").to_pylist()
    assert {fact["info_name"]: fact["value"] for fact in facts}[0] == "dpsql"
    assert len(facts) > 80
    (one,) = bare.table("CommandGetSqlInfo", info=[8]).to_pylist()
    assert one == {"info_name": 8, "value": 0}
    for keys in ("PrimaryKeys", "ExportedKeys", "ImportedKeys"):
        assert bare.table(f"CommandGet{keys}", table="visits").num_rows == 0
    assert bare.table("CommandGetCrossReference", pk_table="visits", fk_table="wards").num_rows == 0
    assert "CreatePreparedStatement" in {action.type for action in bare.flight.list_actions(bare.options)}


# -- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT city FROM visits", "PrivacyError: city must be a group"),
        ("SELECT nope FROM visits", "BindError: there is no column nope"),
        ("SELEC", "ParseError: SELEC is not a statement"),
        ("INSERT INTO visits VALUES (1)", "ParseError"),
        ("SELECT WITH DP OPTIONS (epsilon = 900) COUNT(*) AS n FROM visits", "BudgetExceeded"),
    ],
)
def test_errors_are_ours(connection: adbc.Connection, bare: BareFlightSql, text: str, said: str) -> None:
    with pytest.raises(adbc_driver_manager.Error) as raised:
        fetch(connection, text)
    assert said in str(raised.value)
    with pytest.raises(flight.FlightServerError) as bared:
        bare.sql(text)
    assert said in str(bared.value)
    for error in (raised, bared):
        assert "Traceback" not in str(error.value)
        assert ".py" not in str(error.value)
    if "SELECT city" in text:
        assert "^^^^" in str(raised.value)
        assert "Hint: write COUNT(DISTINCT city)" in str(raised.value)


def test_updates_and_transactions(
    bare: BareFlightSql, connection: adbc.Connection, server: ServerProcess
) -> None:
    with (
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error, match="only answers queries"),
    ):
        cursor.executemany("SELECT ? AS a", [(1,), (2,)])
    with (
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error, match="no message of Flight SQL that the server knows"),
    ):
        cursor.adbc_ingest("mine", pa.table({"a": [1]}))
    for kind in ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"):
        with pytest.raises(flight.FlightServerError, match="transactions aren't supported"):
            bare.act(kind)
    with pytest.raises(flight.FlightServerError, match="transactions aren't supported"):
        bare.table("CommandStatementQuery", query=COUNT, transaction_id=b"x")
    url = server.url.replace("grpc+tcp", "grpc")
    with (
        pytest.warns(Warning, match="[Aa]utocommit"),
        adbc.connect(
            url, db_kwargs={"username": "ada", "password": make_token(server.policy, "ada")}
        ) as plain,
    ):
        assert fetch(plain, "SELECT 1 AS a").num_rows == 1


# -- who asks -----------------------------------------------------------------------------------------------------------


def test_ways_to_say_who_asks(server: ServerProcess) -> None:
    token = make_token(server.policy, "ada")
    url = server.url.replace("grpc+tcp", "grpc")
    header = adbc_driver_flightsql.DatabaseOptions.AUTHORIZATION_HEADER.value
    with adbc.connect(url, db_kwargs={header: f"Bearer {token}"}, autocommit=True) as connection:
        assert fetch(connection, "SELECT 1 AS a").num_rows == 1
    with connect_adbc(
        server, **{adbc_driver_flightsql.DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
    ) as cookies:
        assert fetch(cookies, "SELECT 1 AS a").num_rows == 1
    for authorization in (f"Bearer {token}", write_basic("ada", token)):
        told = shake_hands(server.url, authorization)
        assert told == f"Bearer {token}"
        for asked in (told, authorization):
            client = BareFlightSql(server.url, asked)
            assert client.sql("SELECT 1 AS a").num_rows == 1
            client.close()


def test_others_are_not_let_in(server: ServerProcess) -> None:
    token = make_token(server.policy, "ada")
    wrong = "dpsql_" + "A" * 43
    for authorization in (
        "", "Basic", "Basic !!!", f"Bearer {wrong}", write_basic("ada", wrong), write_basic("bob", token), write_basic("", token),
        write_basic("ada:", token), f"Digest {token}", token,
    ):  # fmt: skip
        with pytest.raises(flight.FlightUnauthenticatedError, match="no valid token"):
            shake_hands(server.url, authorization)
        client = BareFlightSql(server.url, authorization)
        for ask in (
            lambda c=client: c.sql("SELECT 1"),
            lambda c=client: c.prepare("SELECT 1"),
            lambda c=client: c.table("CommandGetTables"),
        ):
            with pytest.raises(flight.FlightUnauthenticatedError, match="no valid token"):
                ask()
        assert client.schema("CommandStatementQuery", query="SELECT 1").names == []
        client.close()


def test_a_handle_gives_no_right(server: ServerProcess, bare: BareFlightSql) -> None:
    """A statement that another analyst prepared is the other's own statement, which the other's share pays."""
    bob = BareFlightSql.with_token(server.url, make_token(server.policy, "bob"))
    info = bare.info("CommandStatementQuery", query="SHOW BUDGET")
    ticket = info.endpoints[0].ticket
    assert "bob" in str(bob.flight.do_get(ticket, bob.options).read_all().to_pylist())
    for wrong in (b"", b"x", b"[]", b"{}", b'{"text":"SELECT 1 AS a","bound":[]}', b"[" * 100_000):
        for ask in (bob.info, bob.schema):
            with pytest.raises((flight.FlightServerError, pa.ArrowException), match="no handle of a"):
                ask("CommandPreparedStatementQuery", prepared_statement_handle=wrong)
    bob.close()


def test_many_connections_at_once(server: ServerProcess) -> None:
    """An analyst pays once for a statement. Two who ask at once may both pay, each for a draw; the later one is kept."""
    found: list[tuple[str, str, Any]] = []
    own = {name: f"{COUNT} WHERE day < {number}" for number, name in enumerate(["ada", "bob"], 40)}
    common = [f"{COUNT} WHERE day < {number}" for number in (50, 51)]
    ready = threading.Barrier(6, timeout=120)

    def ask(name: str) -> None:
        with connect_adbc(server, name) as connection:
            fetch(connection, "SELECT 1 AS a")  # its worker has been started
            ready.wait()
            for text in (common[0], own[name], common[1]):
                found.append((name, text, fetch(connection, text).to_pylist()))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ["ada", "bob"] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 18
    with Ledger.read(server.policy.with_name("clinic.toml.ledger")) as ledger:
        paid = Counter((entry.analyst, entry.text) for entry in ledger.entries() if entry.event is not None)
    for name, text in own.items():
        answers = [rows for n, asked, rows in found if (n, asked) == (name, text)]
        assert len(answers) == 3
        assert all(rows == answers[0] for rows in answers)
        assert paid[name, text] == 1
    for text in common:
        draws = [paid["ada", text], paid["bob", text]]
        assert sum(draws) >= 1
        assert max(draws) == 1
        kept = [fetch_as(server, name, text) for name in ("ada", "bob")]
        assert kept[0] == kept[1]
        answers = [kept[0], *(rows for _, asked, rows in found if asked == text)]
        assert len({str(rows) for rows in answers}) <= sum(draws)


def fetch_as(server: ServerProcess, name: str, text: str) -> list[dict[str, Any]]:
    with connect_adbc(server, name) as connection:
        rows: list[dict[str, Any]] = fetch(connection, text).to_pylist()
        return rows
