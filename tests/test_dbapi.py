"""The PEP 249 driver, on the demo's data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql import dbapi
from dpsql.demo import POLICY

COUNT = "SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(DISTINCT person_id) AS n FROM visits"


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dbapi.Connection]:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    with dbapi.connect(policy=POLICY, ledger=tmp_path / "l.ledger") as connection:
        yield connection


def test_module_globals() -> None:
    assert (dbapi.apilevel, dbapi.paramstyle) == ("2.0", "qmark")
    assert dpsql.dbapi is dbapi
    databases = ("DatabaseError", "DataError", "OperationalError", "ProgrammingError")
    for name in ("Warning", "Error", "InterfaceError", *databases):
        assert getattr(dbapi.Connection, name) is getattr(dbapi, name)


def test_rows_are_fetched_as_pep_249_says(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.description is None
    assert cursor.rowcount == -1
    cursor.execute("SELECT plan, coinsurance FROM plans ORDER BY plan")
    assert [d[0] for d in cursor.description or []] == ["plan", "coinsurance"]
    kinds = [d[1] for d in cursor.description or []]
    assert kinds[0] == dbapi.STRING
    assert kinds[1] == dbapi.NUMBER
    assert kinds[1] != dbapi.DATETIME
    assert cursor.rowcount == 5
    assert cursor.fetchone() == ("25%", 25)
    assert cursor.fetchmany(2) == [("50%", 50), ("95%", 95)]
    assert [row[0] for row in cursor] == ["deductible", "free"]
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


def test_parameters_by_place_and_by_name(connection: dbapi.Connection) -> None:
    cursor = connection.execute(
        "SELECT '?' AS a, plan FROM plans WHERE plan = ? OR coinsurance = ? -- ?", ["free", 95]
    )
    assert sorted(cursor.fetchall()) == [("?", "95%"), ("?", "free")]
    named = connection.execute("SELECT plan FROM plans WHERE plan = $p", {"p": "free"})
    assert named.fetchall() == [("free",)]
    with pytest.raises(dbapi.ProgrammingError, match=r"1 \? marks, but 2 parameters"):
        connection.execute("SELECT ?", [1, 2])


def test_errors_are_pep_249s_and_keep_ours(connection: dbapi.Connection) -> None:
    for text, kind in [
        ("SELEC 1", dbapi.ProgrammingError),
        ("SELECT nothing FROM plans", dbapi.ProgrammingError),
        ("SELECT * FROM visits", dbapi.NotSupportedError),
        (COUNT.replace("0.1", "2") + ";" + COUNT.replace("0.1", "1.9"), dbapi.OperationalError),
    ]:
        with pytest.raises(kind) as caught:
            connection.execute(text)
        assert isinstance(caught.value.reason, dpsql.Error)
        assert caught.value.__cause__ is None
    connection.close()
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor()


def test_pandas_reads_it_and_is_quiet(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dbapi.connect(policy=POLICY, ledger=tmp_path / "l.ledger") as connection:
            frame = pandas.read_sql(f"{COUNT} WHERE plan = ?", connection, params=["free"])
            named = pandas.read_sql(f"{COUNT} WHERE plan = $p", connection, params={"$p": "free"})
    assert list(frame.columns) == ["n"]
    assert 1500 < frame["n"][0] < 2500
    assert named.equals(frame), "the same statement is answered once"


def test_a_cursor_tells_the_cost_and_the_intervals(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert (cursor.loss, cursor.intervals) == (None, None)
    cursor.execute(COUNT)
    assert cursor.loss == "ε=0.1"
    ((low, high),) = cursor.intervals["n"]
    assert low < cursor.fetchall()[0][0] < high
    assert cursor.execute(COUNT).loss == "no charge"


def test_intervals_are_columns_on_request(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with dbapi.connect(policy=POLICY, ledger=tmp_path / "l.ledger", intervals="columns") as connection:
        frame = pandas.read_sql(COUNT, connection)
    assert list(frame.columns) == ["n", "n_low", "n_high"]
    assert frame["n_low"][0] < frame["n"][0] < frame["n_high"][0]
    with pytest.raises(dbapi.ProgrammingError, match="intervals"):
        dbapi.connect(policy=POLICY, ledger=tmp_path / "l.ledger", intervals="yes")


def test_jupysql_runs_on_it(tmp_path: Path) -> None:
    pytest.importorskip("sql.magic")  # JupySQL
    from tests.support.kernel import run, text

    cells = [
        "import warnings; warnings.simplefilter('ignore')\n%load_ext sql\n"
        "import dpsql\nfrom dpsql.demo import POLICY\n"
        "con = dpsql.dbapi.connect(policy=POLICY, ledger='j.ledger')\n%sql con",
        f"%%sql\n{COUNT}",
        "print(_.DataFrame()['n'][0] > 0)",
    ]
    outputs: Any = run(cells, tmp_path)
    assert "True" in text(outputs[2]), text(outputs[1])
