"""SQLAlchemy's dialects: the same tables as in a session, here and on a server; reflection spends nothing."""

from __future__ import annotations

import datetime
import decimal
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import exc, inspect, text
from sqlalchemy.dialects import registry

import dpsql
from dpsql.dbapi.sqlalchemy_dialect import SQL_TYPE_KEY, DuckType, find_type
from dpsql.session.description import SQL_TYPE
from tests.support.own_process import run_python
from tests.support.served import ROOT, ServerProcess, make_token, write_data, write_policy
from tests.support.thirty_statements import THIRTY

pytestmark = pytest.mark.timeout(600)
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
    "sqlalchemy.dialects"
]
for point, place in POINTS.items():  # an installed package has them; these tests run without one, too
    registry.register(point, *place.split(":"))
COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clinic")
    write_data(made)
    write_policy(made, {"ada": 200, "bob": 200}, "answer_times = []\nmax_requests_per_minute = 1000000")
    return made


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"dpsql:///{folder}/clinic.toml?ledger={folder}/own.ledger&analyst=ada")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with ServerProcess(folder / "clinic.toml", listen=f"unix:{folder}/s.sock") as running:
        yield running


@pytest.fixture(scope="module")
def remote(server: ServerProcess, folder: Path) -> Iterator[Any]:
    (folder / "ada.token").write_text(make_token(server.policy, "ada"))
    (folder / "ada.token").chmod(0o600)
    engine = sqlalchemy.create_engine(f"dpsql+grpc:///{folder}/s.sock?token_file={folder}/ada.token")
    yield engine
    engine.dispose()


@pytest.fixture(params=["local", "remote"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def session_of(engine: Any) -> Any:
    return engine.raw_connection().dbapi_connection.session


def spent(engine: Any) -> tuple[str, int]:
    session = session_of(engine)
    return session.budget().sentence, len(session.ledger()) if isinstance(session.ledger(), list) else 0


# -- statements -----------------------------------------------------------------------------------------------------------


def test_thirty_statements_give_the_same_table(engine: Any) -> None:
    session = session_of(engine)
    for statement in THIRTY:
        with engine.connect() as connection:
            found = connection.exec_driver_sql(statement)
            names, rows = list(found.keys()), [tuple(row) for row in found]
            again = [tuple(row) for row in connection.execute(text(statement.replace(":", "\\:")))]
        own = session.sql(statement)
        assert (names, rows) == (own.columns, own.fetchall()), statement
        assert again == rows, statement
        assert [list(map(type, row)) for row in rows] == [list(map(type, row)) for row in own.fetchall()]


def test_parameters(engine: Any) -> None:
    with engine.connect() as connection:
        named = connection.execute(text("SELECT name FROM wards WHERE ward = :ward"), {"ward": "B"})
        assert named.scalar() == "Skin"
        marks = connection.exec_driver_sql(
            "SELECT name FROM wards WHERE ward = ? OR ward = ? ORDER BY 1", ("A", "C")
        )
        assert [row.name for row in marks] == ["Eyes", "Heart"]
        hostile = "A' OR '1'='1"
        assert (
            connection.execute(text("SELECT name FROM wards WHERE ward = :ward"), {"ward": hostile}).all()
            == []
        )


def test_expressions_of_sqlalchemys_own(engine: Any) -> None:
    select, func, cast = sqlalchemy.select, sqlalchemy.func, sqlalchemy.cast
    meta = sqlalchemy.MetaData()
    visits = sqlalchemy.Table("visits", meta, autoload_with=engine)
    wards = sqlalchemy.Table("wards", meta, autoload_with=engine, schema="main")
    with engine.connect() as connection:
        counts = connection.execute(
            select(visits.c.ward, func.count().label("n"), func.avg(visits.c.cost).label("mean"))
            .where(visits.c.city == "Delft", visits.c.day.between(10, 300))
            .group_by(visits.c.ward)
            .order_by(visits.c.ward)
        ).all()
        assert [row.ward for row in counts] == ["A", "B", "C", "D"]
        joined = (
            select(wards.c.name, func.count().label("n"))
            .select_from(visits)
            .join(wards, wards.c.ward == visits.c.ward)
        )
        joined = joined.group_by(wards.c.name)
        assert "main" not in str(joined.compile(engine)), "tables have no schema in a statement"
        assert {row.name for row in connection.execute(joined)} <= {"Heart", "Skin", "Eyes"}
        some = select(wards.c.ward).order_by(wards.c.ward)
        assert connection.execute(some.limit(1)).scalars().all() == ["A"]
        assert connection.execute(some.offset(1)).scalars().all() == ["B", "C"]
        assert connection.execute(some.limit(1).offset(2)).scalars().all() == ["C"]
        assert connection.execute(select(cast(1, sqlalchemy.Float) / 3)).scalar() == 1 / 3, (
            "a double, not 32 bits"
        )
        assert connection.execute(select(cast("7", sqlalchemy.String(50)))).scalar() == "7"
        moment = connection.execute(select(cast("2024-02-29", sqlalchemy.DateTime))).scalar()
        assert moment == datetime.datetime(2024, 2, 29)


def test_patterns_of_sqlalchemys_own(engine: Any) -> None:
    wards = sqlalchemy.Table("wards", sqlalchemy.MetaData(), autoload_with=engine)
    name = wards.c.name
    cases = [
        (name.startswith("H"), {"Heart"}), (name.endswith("s"), {"Eyes"}), (name.contains("ki"), {"Skin"}),
        (name.like("%e%"), {"Heart", "Eyes"}), (name.ilike("%E%"), {"Heart", "Eyes"}), (name.not_ilike("%E%"), {"Skin"}),
        (name.contains("%", autoescape=True), set()),
    ]  # fmt: skip
    if hasattr(name, "icontains"):  # since SQLAlchemy 2
        cases.append((name.icontains("KI", autoescape=True), {"Skin"}))
    with engine.connect() as connection:
        for pattern, names in cases:
            assert set(connection.execute(sqlalchemy.select(name).where(pattern)).scalars()) == names


def test_cost_and_intervals_are_at_the_cursor(engine: Any) -> None:
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(COUNT)
        (value,), ((low, high),) = cursor.fetchone(), cursor.intervals["n"]
        assert low < value < high
        assert "ε" in cursor.cost or "charge" in cursor.cost
        found = connection.execute(text(COUNT))
        assert found.scalar() == value
        assert found.context.cursor.intervals["n"] == [(low, high)]
        assert found.context.cursor.cost


def test_intervals_are_columns_on_request(local: Any, remote: Any) -> None:
    for engine in (local, remote):
        wide = sqlalchemy.create_engine(engine.url.update_query_dict({"intervals": "columns"}))
        with wide.connect() as connection:
            (row,) = connection.execute(text(COUNT)).mappings()
        wide.dispose()
        assert row["n_low"] < row["n"] < row["n_high"]


def test_errors_say_what_to_write_instead(engine: Any) -> None:
    before = spent(engine)
    with engine.connect() as connection:
        for statement, kind, said in (
            ("SELECT * FROM visits", exc.NotSupportedError, "can't be released"),
            ("SELECT costs FROM wards", exc.ProgrammingError, "costs"),
            ("INSERT INTO wards VALUES ('Z', 'x')", exc.ProgrammingError, "Error"),
            ("CREATE TABLE t (a INTEGER)", exc.ProgrammingError, "Error"),
        ):
            with pytest.raises(kind, match=said) as caught:
                connection.execute(text(statement))
            assert isinstance(caught.value.orig.reason, dpsql.Error)
        assert connection.execute(text("SELECT 1")).scalar() == 1, "a connection goes on after an error"
    assert spent(engine)[0] == before[0]


def test_a_session_is_shared_and_kept(engine: Any) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("kept << SELECT ward FROM wards")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM kept")).scalar() == 3
        assert inspect(connection).get_temp_table_names() == ["kept"]
        assert "kept" not in inspect(connection).get_table_names()


# -- reflection -----------------------------------------------------------------------------------------------------------


def test_reflection_tells_the_policy_and_spends_nothing(engine: Any) -> None:
    before = spent(engine)
    for _ in range(100):
        seen = inspect(engine)
        assert seen.get_schema_names() == ["main"]
        assert seen.get_table_names() == seen.get_table_names("main") == ["visits", "wards"]
        assert seen.get_view_names() == seen.get_table_names("other") == []
        columns = {column["name"]: column["type"] for column in seen.get_columns("visits")}
    assert {name: str(kind) for name, kind in columns.items() if name != "cost"} == {
        "patient": "BIGINT", "ward": "VARCHAR", "day": "INTEGER", "city": "VARCHAR",
    }  # fmt: skip
    assert columns["cost"].compile(dialect=engine.dialect) == "DOUBLE"
    assert seen.has_table("visits")
    assert not seen.has_table("nothing")
    assert not seen.has_table("visits", "other")
    with pytest.raises(exc.NoSuchTableError):
        seen.get_columns("nothing")
    for what in ("foreign_keys", "indexes", "unique_constraints", "check_constraints"):
        assert getattr(seen, f"get_{what}")("visits") == []
    assert seen.get_pk_constraint("visits")["constrained_columns"] == []
    assert "patient" in seen.get_table_comment("visits")["text"]
    assert seen.get_table_comment("wards") == {"text": "public"}
    meta = sqlalchemy.MetaData()
    meta.reflect(engine)
    assert set(meta.tables) == {"visits", "wards"}
    assert spent(engine) == before


def test_a_server_needs_no_engine_here(remote: Any) -> None:
    code = (
        "import sys, sqlalchemy\nfrom sqlalchemy.dialects import registry\n"
        "registry.register('dpsql.grpc', 'dpsql.dbapi.sqlalchemy_dialect', 'DpsqlServerDialect')\n"
        f"engine = sqlalchemy.create_engine({remote.url.render_as_string()!r})\n"
        "assert sqlalchemy.inspect(engine).get_columns('visits')\n"
        "print([name for name in ('duckdb', 'sqlglot', 'sqlite3') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run_python("-c", code, env=environment)
    assert done.stdout.strip() == "[]", done
    assert SQL_TYPE_KEY.decode() == SQL_TYPE


def test_types() -> None:
    for name, kind in (
        ("BIGINT", sqlalchemy.BigInteger), ("DECIMAL(10,2)", sqlalchemy.Numeric), ("ENUM('a', 'b')", sqlalchemy.String),
        ("TIMESTAMP WITH TIME ZONE", sqlalchemy.TIMESTAMP), ("STRUCT(a INTEGER)", DuckType), ("INTEGER[]", DuckType),
        ("INTERVAL", DuckType), ("DATE", sqlalchemy.Date), ("HUGEINT", sqlalchemy.Numeric), ("BLOB", sqlalchemy.LargeBinary),
    ):  # fmt: skip
        assert isinstance(find_type(name), kind), name
    assert find_type("TIMESTAMP WITH TIME ZONE").timezone
    assert (find_type("DECIMAL(38,4)").precision, find_type("DECIMAL(38,4)").scale) == (38, 4)


def test_values_of_reflected_types(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute(
            "CREATE TABLE t AS SELECT 1::UTINYINT AS u, 12.50::DECIMAL(10,2) AS d, DATE '2024-02-29' AS day, "
            "TIME '12:30:00' AS hour, TIMESTAMP '2024-02-29 12:30:00' AS moment, true AS yes, "
            "'a'::ENUM('a', 'b') AS e, [1, 2] AS l, {'a': 1} AS s, "
            "170141183460469231731687303715884105727::HUGEINT AS h, '\\x00\\xFF'::BLOB AS b, 1.5::FLOAT AS f, INTERVAL 1 DAY AS i"
        )
    policy = tmp_path / "p.toml"
    policy.write_text("[budget]\nepsilon = 1\n[tables.t]\npublic = true\n")
    engine = sqlalchemy.create_engine(f"dpsql:///{policy}?database={tmp_path}/d.duckdb")
    table = sqlalchemy.Table("t", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        row = connection.execute(sqlalchemy.select(table)).one()._asdict()
        own = session_of(engine).sql("SELECT * FROM t").fetchone()
    assert tuple(row.values()) == own
    assert row["d"] == decimal.Decimal("12.50")
    assert row["day"] == datetime.date(2024, 2, 29)
    assert row["h"] == 2**127 - 1
    engine.dispose()


# -- addresses ------------------------------------------------------------------------------------------------------------


def test_addresses_that_are_none(folder: Path, server: ServerProcess) -> None:
    for url, said in (
        ("dpsql://", "the path of a policy"), ("dpsql://host/policy.toml", "have no host"),
        ("dpsql:///p.toml?nonsense=1", "not known"), ("dpsql:///p.toml?analyst=a&analyst=b", "given twice"),
        ("dpsql+grpc://", "the host of a server"), ("dpsql+grpc://host/x", "not both"),
        ("dpsql+grpc://host?token=secret", "not known"), ("dpsql+grpc://host?tls=maybe", "true or false"),
    ):  # fmt: skip
        with pytest.raises(exc.ArgumentError, match=said):
            sqlalchemy.create_engine(url).connect()
    with pytest.raises(exc.OperationalError):
        sqlalchemy.create_engine("dpsql:////nowhere/policy.toml").connect()
    token = make_token(server.policy, "ada")
    with pytest.raises(exc.OperationalError, match="not one of bob") as caught:
        sqlalchemy.create_engine(f"dpsql+grpc://bob:{token}@/{folder}/s.sock").connect()
    assert token not in str(caught.value)


def test_hosts_and_passwords() -> None:
    def read(url: str) -> Any:
        made = sqlalchemy.engine.make_url(url)
        return made.get_dialect()().create_connect_args(made)

    assert read("dpsql+grpc://data.example.org?token_file=t")[0] == ["grpc+tls://data.example.org"]
    assert read("dpsql+grpc://127.0.0.1:4")[0] == ["grpc+tcp://127.0.0.1:4"]
    assert read("dpsql+grpc://localhost:4?tls=true&tls_ca=c.pem") == (
        ["grpc+tls://localhost:4"], {"tls_ca": "c.pem", "analyst": None},
    )  # fmt: skip
    for certificate in ("tls_ca=c.pem", "tls_client_cert=a.pem&tls_client_key=a.key"):
        assert read(f"dpsql+grpc://localhost:4?{certificate}")[0] == ["grpc+tls://localhost:4"]
    assert read("dpsql+grpc://ana:secret@host:4") == (
        ["grpc+tls://host:4"],
        {"token": "secret", "analyst": "ana"},
    )
    assert (
        read("dpsql+grpc:////run/d.sock")[0]
        == read("dpsql+grpc:///run/d.sock")[0]
        == ["grpc+unix:///run/d.sock"]
    )
    assert "secret" not in repr(sqlalchemy.create_engine("dpsql+grpc://ana:secret@host:4").url)


def test_a_session_that_the_server_ended_is_opened_again(server: ServerProcess, folder: Path) -> None:
    token = make_token(server.policy, "bob")
    engine = sqlalchemy.create_engine(f"dpsql+grpc://bob:{token}@/{folder}/s.sock", pool_pre_ping=True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    session_of(engine).close()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


# -- tools ----------------------------------------------------------------------------------------------------------------


def test_pandas(engine: Any) -> None:
    pandas = pytest.importorskip("pandas", minversion="2.2")
    if sqlalchemy.__version__.startswith("1."):
        pytest.skip("pandas wants SQLAlchemy 2")
    frame = pandas.read_sql(THIRTY[3], engine)
    own = session_of(engine).sql(THIRTY[3]).df()
    assert frame.astype(own.dtypes).equals(own)
    assert pandas.read_sql_table("wards", engine)["name"].tolist() == ["Heart", "Skin", "Eyes"]
    with engine.connect() as connection:
        params = {"ward": "A"}
        assert (
            len(pandas.read_sql(text("SELECT name FROM wards WHERE ward = :ward"), connection, params=params))
            == 1
        )
    with pytest.raises(exc.DBAPIError):
        frame.to_sql("copied", engine)


def test_jupysql(local: Any, folder: Path) -> None:
    pytest.importorskip("sql.magic")
    from tests.support import kernel

    url = f"dpsql:///{folder}/clinic.toml?ledger={folder}/own.ledger&analyst=ada"
    setup = "\n".join(
        f"registry.register({point!r}, *{place.split(':')!r})" for point, place in POINTS.items()
    )
    local.dispose()
    outputs = kernel.run(
        [
            f"from sqlalchemy.dialects import registry\n{setup}\n%load_ext sql",
            "%config SqlMagic.displaycon = False\n%config SqlMagic.feedback = 0",
            f"%sql {url}",
            "%%sql\nSELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY ward",
            "ward = 'B'\nfound = %sql SELECT name FROM wards WHERE ward = '{{ward}}'\nprint(found.DataFrame().iloc[0, 0])",
            "%sqlcmd tables",
            "%sqlcmd columns --table wards",
        ],
        folder,
    )
    shown = [kernel.text(cell) for cell in outputs]
    assert "Traceback" not in "".join(shown)
    assert all(ward in shown[3] for ward in "ABCD")
    assert "Skin" in shown[4]
    assert "visits" in shown[5]
    assert "name" in shown[6]
