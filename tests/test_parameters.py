"""Parameters of classes of their own: what a value holds is bound, and never what its class writes of it."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pytest
from psycopg.pq import Format

import dpsql
from dpsql.client import wire
from dpsql.language.parameter_values import name_parameters
from dpsql.language.parameters import make_literal
from tests.support.postgres import PostgresServer
from tests.support.served import make_token, write_policy


class Loud:
    """Everything that a class may write of its value is something else."""

    def __str__(self) -> str:
        return "loud"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return "loud"

    def isoformat(self, *given: object) -> str:
        return "1999-09-09"


class Ward(str, enum.Enum):  # noqa: UP042
    A = "a"


class Level(enum.IntEnum):
    HIGH = 3

    def __int__(self) -> int:
        return 99


class Text(Loud, str):
    pass


class Number(Loud, float):
    def __float__(self) -> float:
        return 99.0


class Whole(Loud, int):
    def __int__(self) -> int:
        return 99


class Money(Loud, decimal.Decimal):
    pass


class Raw(Loud, bytes):
    def __bytes__(self) -> bytes:
        return b"loud"


class Day(Loud, datetime.date):
    pass


class Moment(Loud, datetime.datetime):
    pass


NOON = datetime.datetime(2024, 3, 1, 12)
SAME: list[tuple[Any, Any]] = [
    (Ward.A, "a"), (Text("b"), "b"), (Level.HIGH, 3), (Whole(4), 4), (Number(1.5), 1.5), (Money("1.50"), decimal.Decimal("1.50")),
    (Day(2024, 3, 1), datetime.date(2024, 3, 1)), (Moment(2024, 3, 1, 12), NOON),
    (Moment(2024, 3, 1, 12, tzinfo=datetime.UTC), NOON.replace(tzinfo=datetime.UTC)),
    (np.str_("x"), "x"), (np.int8(3), 3), (np.uint64(2**64 - 1), 2**64 - 1), (np.float64(0.1), 0.1), (np.bool_(True), True),
    (np.datetime64("2024-03-01"), datetime.date(2024, 3, 1)), (np.datetime64("2024-03-01T12", "ns"), NOON),
    (pd.Timestamp(NOON), NOON), (pd.NaT, None), (pd.NA, None),
    (np.timedelta64(5, "s"), datetime.timedelta(seconds=5)), (pd.Timedelta("2D"), datetime.timedelta(2)),
    (Raw(b"\0a"), b"\0a"), (bytearray(b"a"), b"a"), (memoryview(b"a"), b"a"), (np.bytes_(b"a"), b"a"),
    ([b"a", None], [b"a", None]),
    (np.timedelta64("NaT", "s"), None), (np.timedelta64(5 * 10**9, "ns"), datetime.timedelta(seconds=5)),
    (np.datetime64("NaT"), None), (np.datetime64("NaT", "ns"), None), ([Ward.A, Text("b"), None], ["a", "b", None]),
    ((Level.HIGH, Whole(4)), [3, 4]), (np.array([Ward.A, "b"], object), ["a", "b"]),
    (pd.Series([1, None], dtype="Int64"), [1, None]),
    (pd.Series([NOON, None]), [NOON, None]), (np.array(["2024-03-01T12"], "datetime64[ns]"), [NOON]), (pd.Index(["a"]), ["a"]),
    (pd.Series(["a", None], dtype="category"), ["a", float("nan")]),
]  # fmt: skip


def literal(value: Any) -> str:
    try:
        return make_literal(value, "x").sql("duckdb")
    except dpsql.Error as error:
        return error.message


@pytest.mark.parametrize(
    ("value", "plain"), SAME, ids=[f"{at}-{type(v).__name__}" for at, (v, _) in enumerate(SAME)]
)
def test_a_value_of_a_subclass_is_the_value_that_it_holds(value: Any, plain: Any) -> None:
    assert literal(value) == literal(plain)
    sent = json.loads(json.dumps(wire.write_params({"x": value})))
    read = wire.read_params(sent)
    assert literal(read["x"]) == literal(plain)


@pytest.mark.parametrize(
    "value",
    [
        np.timedelta64(5, "ns"),
        pd.Timedelta("5ns"),
        datetime.timedelta(microseconds=1),
        NOON.timetz().replace(tzinfo=datetime.UTC),
        enum.Enum("E", "A").A,  # type: ignore[attr-defined]
    ],
)
def test_what_literals_have_no_form_for_is_refused(value: Any) -> None:
    with pytest.raises(dpsql.BindError, match="holds"):
        make_literal(value, "x")
    read = wire.read_params(wire.write_params({"x": value}))
    with pytest.raises(dpsql.BindError, match="holds"):
        make_literal(read["x"], "x")


def test_names_are_the_texts_that_they_hold() -> None:
    assert name_parameters("SELECT $a", {Ward.A: 1}) == ("SELECT $a", {"a": 1})
    assert wire.write_params({Ward.A: True}) == {"a": True}  # type: ignore[dict-item]


def test_an_answer_is_that_of_the_value(tmp_path: Path) -> None:
    policy = tmp_path / "p.toml"
    policy.write_text(
        '[budget]\nepsilon = 1e6\naccountant = "basic"\n[tables.t]\nprivacy_unit = "uid"\nmax_rows = 1\n'
        "[tables.t.columns]\nw = { max_length = 9 }\n"
    )
    rows = pd.DataFrame({"uid": range(300), "w": ["a", "b", "Ward.A"] * 100, "n": [3, 4, 99] * 100})
    with dpsql.connect({"t": rows}, policy=policy) as session:
        asked = "SELECT WITH DP OPTIONS (epsilon = 100) COUNT(*) AS n FROM t WHERE "
        assert session.sql(asked + "w = $v", {"v": Ward.A}).fetchall() == [(100,)]
        assert session.sql(asked + "w IN $v", {"v": [Ward.A, Text("b")]}).fetchall() == [(200,)]
        assert session.sql(asked + "w = ?", [Text("a")]).fetchall() == [(100,)]
        assert session.sql(asked + "n = $v", {"v": Level.HIGH}).fetchall() == [(100,)]
        assert session.sql("SELECT $v AS v", {"v": pd.NA}).fetchall() == [(None,)]


VALUES = """
CREATE TABLE t AS SELECT i AS uid, make_time(i % 3 + 10, 0, 0) AS clock, INTERVAL (i % 3) DAY AS span,
('00000000-0000-0000-0000-00000000000' || (i % 3))::UUID AS id, (18446744073709551600 + i % 10)::UBIGINT AS u,
(170141183460469231731687303715884100000 + i % 10)::HUGEINT AS h, i AS n,
CASE WHEN i % 6 < 5 THEN ('\\x0' || (i % 3) || '\\xFF')::BLOB END AS raw, 'abc'[i % 3 + 1] AS word FROM range(300) r(i)
"""


@pytest.fixture(scope="module")
def of_values() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute(VALUES)
        text = (
            "[budget]\nepsilon = 1e9\ndefault_epsilon = 1e6\n[tables.t]\nprivacy_unit = 'uid'\nmax_rows = 1\n"
        )
        with dpsql.connect(con, policy=dpsql.Policy.loads(text)) as session:
            yield session


@pytest.mark.parametrize(
    ("condition", "value", "count"),
    [
        ("clock = $v", datetime.time(10), 100), ("clock IN ($v)", [datetime.time(10), datetime.time(11)], 200),
        ("span = $v", datetime.timedelta(1), 100), ("span < $v", datetime.timedelta(hours=36), 200),
        ("span > $v", datetime.timedelta(-1), 300), ("span IN ($v)", [datetime.timedelta(1)], 100),
        ("id = $v", uuid.UUID(int=1), 100), ("id IN ($v)", [uuid.UUID(int=1), uuid.UUID(int=2)], 200),
        ("id = $v", str(uuid.UUID(int=1)), 100), ("clock = $v", pd.NaT, 0), ("span = $v", np.timedelta64(1, "D"), 100),
        ("u >= $v", 2**64 - 16, 300), ("u < $v", 2**64, 300), ("h >= $v", 170141183460469231731687303715884100005, 150),
        ("n > $v", -(2**100), 300), ("n > $v", 2**127, 0),
        ("raw = $v", b"\0\xff", 100), ("raw <> $v", b"\0\xff", 150), ("raw IN $v", [b"\0\xff", b"\1\xff"], 200),
        ("raw IS DISTINCT FROM $v", b"\0\xff", 200), ("raw = $v OR n < 2", b"", 2), ("raw = $v", bytes(range(256)), 0),
        ("raw = $v", None, 0), ("word = $v", Text("a"), 100), ("id = $v", pd.NA, 0), ("raw = $v", pd.NA, 0),
    ],
)  # fmt: skip
def test_times_intervals_uuids_and_long_integers(
    of_values: dpsql.Session, condition: str, value: Any, count: int
) -> None:
    assert of_values.sql(f"SELECT COUNT(*) FROM t WHERE {condition}", {"v": value}).fetchone() == (count,)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("u = 18446744073709551600", 30), ("n < 18446744073709551616", 300), ("n > -100000000000000000000", 300),
        ("h BETWEEN 170141183460469231731687303715884100000 AND 170141183460469231731687303715884100001", 60),
        ("h < 340282366920938463463374607431768211456", 300), (f"n < 1{'0' * 60}", 300),
        ("n IN (7, 18446744073709551616)", 1), ("n + 170141183460469231731687303715884105727 > 0", 1),
    ],
)  # fmt: skip
def test_constants_of_more_than_64_bits(of_values: dpsql.Session, condition: str, count: int) -> None:
    """Sums and products that fit no integer are NULL."""
    assert of_values.sql(f"SELECT COUNT(*) FROM t WHERE {condition}").fetchone() == (count,)


def test_bytes_are_compared_for_equality_alone(of_values: dpsql.Session) -> None:
    given = r"'\x00\xFF'::BLOB"
    assert of_values.sql(f"SELECT COUNT(*) FROM t WHERE {given} = raw").fetchone() == (100,)
    joined = "SELECT COUNT(*) FROM t AS a JOIN t AS b USING (uid) WHERE a.raw = $v AND b.n < 150"
    assert of_values.sql(joined, {"v": b"\0\xff"}).fetchone() == (50,)
    for refused in (
        "COUNT(*) FILTER (WHERE raw < $v)", "COUNT(DISTINCT raw)", "MAX(raw)", "COUNT(*) FILTER (WHERE raw || $v = $v)",
        "COUNT(*) FILTER (WHERE raw IN ($v, raw))", "COUNT(*) FILTER (WHERE word = $v)", "COUNT($v::VARCHAR)",
    ):  # fmt: skip
        with pytest.raises(dpsql.Error, match=r"BLOB"):
            of_values.sql(f"SELECT {refused} FROM t", {"v": b"\0"})
    with pytest.raises(dpsql.BindError, match="is not a valid BLOB"):
        of_values.sql("SELECT COUNT(*) FROM t WHERE raw = '\\x0'::BLOB")


PARAMETERS: list[tuple[str, Any, int]] = [
    ("clock", datetime.time(10), 100), ("span", datetime.timedelta(1), 100), ("id", uuid.UUID(int=1), 100),
    ("raw", b"\0\xff", 100), ("word", "a", 100), ("n", 7, 1), ("clock", None, 0),
]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    folder = tmp_path_factory.mktemp("served")
    with duckdb.connect() as con:
        con.execute(VALUES)
        con.execute(f"COPY t TO '{folder / 't.parquet'}'")
    table = "[tables.t]\nsource = 't.parquet'\nprivacy_unit = 'uid'\nmax_rows = 1\n"
    budget = "[budget]\nepsilon = 1e9\ndefault_epsilon = 1e4\naccountant = 'basic'\n"
    with PostgresServer(write_policy(folder, {"ada": 1e9}, "", budget, table)) as running:
        yield running


@pytest.mark.parametrize("name", [True, False])
@pytest.mark.parametrize(("column", "value", "count"), PARAMETERS)
def test_each_type_by_each_protocol(
    served: PostgresServer, column: str, value: Any, count: int, name: bool
) -> None:
    """The own client and ADBC over Flight, and psycopg in text, in binary, and as asyncpg does: by the described type."""
    asked = f"SELECT COUNT(*) AS n FROM t WHERE {column} = "
    token = make_token(served.policy, "ada")
    with dpsql.connect(served.url, token=token) as session:
        given: Any = {"v": value} if name else [value]
        assert session.sql(asked + ("$v" if name else "?"), given).fetchone() == (count,)
    url = served.url.replace("grpc+tcp", "grpc")
    known = {"username": "ada", "password": token}
    with adbc.connect(url, db_kwargs=known, autocommit=True) as opened, opened.cursor() as cursor:
        kind = pa.duration("us") if isinstance(value, datetime.timedelta) else None
        sent = pa.array([str(value) if isinstance(value, uuid.UUID) else value], kind)
        batch = pa.record_batch([sent], names=["v" if name else "1"])
        cursor.execute(asked + ("$v" if name else "?"), batch)
        assert cursor.fetchone() == (count,)
    with psycopg.connect(served.make_url(), autocommit=True) as held:
        for form in "tb":
            mark, values = (f"%(v){form}", {"v": value}) if name else (f"%{form}", [value])
            assert held.execute(asked + mark, values).fetchone() == (count,)  # type: ignore[arg-type]
        raw = held.pgconn
        raw.prepare(b"s", f"{asked}$1".encode())
        kind_number = raw.describe_prepared(b"s").param_type(0)
        dumper = (
            psycopg.adapt.Transformer(held).get_dumper(value, psycopg.adapt.PyFormat.BINARY)
            if value is not None
            else None
        )
        if dumper is not None and column not in ("n", "id"):
            assert kind_number in (dumper.oid, 25 if column == "word" else 0)
            found = raw.exec_prepared(b"s", [dumper.dump(value)], [Format.BINARY], Format.TEXT)
            assert (found.error_message, found.get_value(0, 0)) == (b"", str(count).encode())
