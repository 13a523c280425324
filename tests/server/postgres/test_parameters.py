"""Values of parameters in binary: in the type that was described or named, as PostgreSQL reads them, or refused."""

from __future__ import annotations

import datetime
import decimal
import math
import random
import struct
import uuid
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import psycopg
import psycopg.types.datetime as pg_dates
import psycopg.types.uuid as pg_uuids
import pytest
from psycopg.pq import Format

from dpsql.errors import BindError
from dpsql.server.postgres import types
from dpsql.server.postgres.messages import write_own_error
from dpsql.server.postgres.types import read_parameter
from tests.support.postgres import (
    SYNC,
    BarePostgres,
    PostgresServer,
    bind,
    describe,
    execute,
    parse,
    query,
    read_error,
    read_rows,
)

GARBAGE = 10_000
"""Values of each type that are tried."""
REFUSED = {"22P03", "08P01"}


def refuse() -> Any:
    raise ValueError


def load(loader: type) -> Callable[[bytes], Any]:
    """Return how psycopg reads values of a type."""
    return lambda data: loader(0).load(data)


def exactly(size: int, read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a reader that takes values of one size alone, as PostgreSQL does."""
    return lambda data: read(data) if len(data) == size else refuse()


def read_numeric(data: bytes) -> Fraction:
    """Read a numeric as PostgreSQL's ``numeric_recv`` does."""
    count, weight, sign, scale = struct.unpack(">HhHH", data[:8])
    digits = struct.unpack(f">{count}h", data[8:])
    if sign not in (0, 0x4000) or scale > 0x3FFF or any(not 0 <= digit < 10_000 for digit in digits):
        raise ValueError  # NaN and infinities are no literals here
    value = sum(
        (Fraction(digit) * Fraction(10_000) ** (weight - at) for at, digit in enumerate(digits)), Fraction(0)
    )
    return (-1 if sign else 1) * Fraction(math.floor(value * 10**scale), 10**scale)


def finite(form: str) -> Callable[[bytes], float]:
    def read(data: bytes) -> float:
        (value,) = struct.unpack(form, data)
        return float(value) if math.isfinite(value) else refuse()

    return read


def read_text(data: bytes) -> str:
    return refuse() if b"\0" in data else data.decode()


def read_time(data: bytes) -> str:
    (micros,) = struct.unpack(">q", data)
    hours, rest = divmod(micros, 3_600_000_000)
    return str(datetime.time(hours, rest // 60_000_000, rest // 10**6 % 60, rest % 10**6))


def read_array(item: int) -> Callable[[bytes], list[Any]]:
    def read(data: bytes) -> list[Any]:
        dimensions, flags, kind = struct.unpack(">iiI", data[:12])
        if flags not in (0, 1) or kind != item or dimensions not in (0, 1):
            raise ValueError
        at, found = 12, []
        if dimensions:
            count, _ = struct.unpack(">ii", data[12:20])
            at = 20
            for _ in range(count if 0 <= count <= 10_000 else refuse()):
                (size,) = struct.unpack(">i", data[at : at + 4])
                at += 4
                part = data[at : at + size] if size >= 0 else b""
                if size < -1 or len(part) != max(0, size):
                    raise ValueError
                at += max(0, size)
                found.append(None if size == -1 else READERS[item](part))
        return found if at == len(data) else refuse()

    return read


READERS: dict[int, Callable[[bytes], Any]] = {
    types.BOOL: exactly(1, lambda data: data != b"\0"),
    types.INT2: lambda data: struct.unpack(">h", data)[0],
    types.INT4: lambda data: struct.unpack(">i", data)[0],
    types.INT8: lambda data: struct.unpack(">q", data)[0],
    types.FLOAT4: finite(">f"),
    types.FLOAT8: finite(">d"),
    types.NUMERIC: read_numeric,
    types.DATE: exactly(4, load(pg_dates.DateBinaryLoader)),
    types.TIMESTAMP: exactly(8, load(pg_dates.TimestampBinaryLoader)),
    types.TIMESTAMPTZ: exactly(
        8, lambda data: load(pg_dates.TimestampBinaryLoader)(data).replace(tzinfo=datetime.UTC)
    ),
    types.TIME: exactly(8, read_time),
    types.TEXT: read_text,
    types.VARCHAR: read_text,
    types.UUID: exactly(16, lambda data: str(load(pg_uuids.UUIDBinaryLoader)(data))),
    types.BYTEA: bytes,
}
ALL: dict[int, Callable[[bytes], Any]] = {
    **READERS,
    **{types.ARRAYS[item]: read_array(item) for item in READERS},
}
ERRORS = (ValueError, ArithmeticError, struct.error, IndexError, psycopg.DataError)


def make_item(chance: random.Random, kind: int) -> bytes:
    """Return bytes that are, or are nearly, a value of a type."""
    if kind in types.ARRAYS.values():
        item = next(item for item, array in types.ARRAYS.items() if array == kind)
        items = [chance.choice([None, make_item(chance, item)]) for _ in range(chance.randrange(4))]
        written = b"".join(
            b"\xff\xff\xff\xff" if part is None else struct.pack(">i", len(part)) + part for part in items
        )
        named = chance.choice([item, item, item, types.INT4, 0])
        head = struct.pack(
            ">iiIii", 1, chance.choice([0, 1, 1, 2]), named, len(items) + chance.choice([0, 0, 0, 1, -1]), 1
        )
        return head + written if items else struct.pack(">iiI", 0, 0, item)
    if kind == types.NUMERIC:
        digits = [
            chance.choice([0, 1, 4999, 5000, 9999, 10_000, -1, chance.randrange(10_000)])
            for _ in range(chance.randrange(5))
        ]
        sign, scale = chance.choice([0, 0x4000, 0xC000, 0xD000, 1]), chance.choice([0, 1, 3, 8, 20, 16_383])
        return struct.pack(f">HhHH{len(digits)}h", len(digits), chance.randrange(-3, 6), sign, scale, *digits)
    size = {types.BOOL: 1, types.INT2: 2, types.INT4: 4, types.DATE: 4, types.FLOAT4: 4, types.UUID: 16}.get(
        kind, 8
    )
    if kind in (types.TIMESTAMP, types.TIMESTAMPTZ, types.TIME, types.DATE) and chance.random() < 0.5:
        near = chance.choice([0, 1, -1, 86_399_999_999, 86_400_000_000, chance.randrange(10**9)])
        return struct.pack(">i", near % 10**6) if size == 4 else struct.pack(">q", near)
    if kind in (types.TEXT, types.VARCHAR):
        return chance.choice(["Delft", "\N{SNOWMAN}", "", "a\0"]).encode()
    return chance.choice([chance.randbytes(size), b"00000500"[:size], chance.randbytes(1).rjust(size, b"\0")])


def make_garbage(chance: random.Random, kind: int) -> bytes:
    data = make_item(chance, kind)
    how = chance.randrange(6)
    if how == 0:
        return data[: chance.randrange(len(data) + 1)]
    if how == 1:
        return data + chance.randbytes(chance.randrange(1, 5))
    if how == 2 and data:
        at = chance.randrange(len(data))
        return data[:at] + chance.randbytes(1) + data[at + 1 :]
    if how == 3:
        return chance.randbytes(chance.randrange(40))
    return data


def told(kind: int, value: Any) -> Any:
    """Return a value in a form in which two that are equal look the same."""
    if isinstance(value, list):
        return [told(kind, item) for item in value]
    if isinstance(value, decimal.Decimal):
        return Fraction(value)
    return (type(value).__name__, repr(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: types.PgType(kind).spoken.replace(" ", "_"))
def test_garbage_is_refused_or_read_as_postgresql_reads_it(kind: int) -> None:
    chance, read, refused = random.Random(kind), 0, 0
    for _ in range(GARBAGE):
        data = make_garbage(chance, kind)
        try:
            expected: Any = ALL[kind](data)
        except ERRORS:
            expected = ERRORS
        try:
            found = read_parameter(1, kind, 1, data)
        except BindError as error:
            refused += 1
            assert error.sqlstate in REFUSED
            # digits beyond a thousand are refused here
            bound = kind in (types.NUMERIC, types.ARRAYS[types.NUMERIC])
            assert expected is ERRORS or bound, (data, expected)
            continue
        read += 1
        assert expected is not ERRORS, (data, found)
        assert told(kind, found) == told(kind, expected), data
    assert refused > 100 or kind == types.BYTEA
    assert read > 100


def test_numerics_have_all_of_their_digits() -> None:
    digits = struct.pack(">12h", *range(1111, 9999, 800)[:12])
    data = struct.pack(">HhHH", 12, 11, 0x4000, 0) + digits
    found = read_parameter(1, types.NUMERIC, 1, data)
    assert found == -int("".join(str(d) for d in range(1111, 9999, 800)[:12]))


def test_binary_without_a_type_is_refused() -> None:
    with pytest.raises(BindError, match="type isn't known"):
        read_parameter(1, 0, 1, b"00000500")
    with pytest.raises(BindError):
        read_parameter(1, 600, 1, b"0" * 16)


# -- through a server ------------------------------------------------------------------------------------------------------


def list_own(client: BarePostgres) -> list[list[bytes | None]]:
    """Return the analyst's own statements; the row of all others has a time that goes on."""
    return [row for row in read_rows(client.ask(query("SHOW LEDGER"))) if row[0] is not None]


ASCII = struct.unpack(">d", b"00000500")[0]


@pytest.mark.parametrize("described", [True, False])
def test_eight_bytes_of_a_described_double_are_a_double(server: PostgresServer, described: bool) -> None:
    client = server.open()
    try:
        asked = parse("SELECT $1 + 0.5 AS x, COUNT(*) AS n FROM wards WHERE 500 < $1 OR TRUE", "s")
        if described:
            came = client.ask(asked, describe("S", "s"), SYNC)
            assert next(body for kind, body in came if kind == b"t") == struct.pack(">hI", 1, types.FLOAT8)
            asked = b""
        came = client.ask(asked, bind([b"00000500"], "s", formats=[1]), describe(), execute(), SYNC)
        (row,) = read_rows(came)
        assert row[0] is not None
        assert float(row[0]) == ASCII + 0.5
    finally:
        client.close()


CASES: list[tuple[str, int, bytes, float]] = [
    ("cost < $1", types.FLOAT8, struct.pack(">d", 250), 0.5),
    ("cost < $1", types.FLOAT8, b"00000500", 0),  # 1.4e-76
    ("DATE '2024-01-01' + day < $1", types.DATE, struct.pack(">i", 8766 + 100), 0.25),
    ("(cost < 250) = $1", types.BOOL, b"\1", 0.5),
    ("(cost < 125) = $1", types.BOOL, b"\0", 0.75),
    ("ward = $1", types.TEXT, b"A", 0.25),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "kind", "data", "share"), CASES)
@pytest.mark.parametrize("described", [True, False])
def test_values_are_read_in_the_type_that_is_described(
    server: PostgresServer, condition: str, kind: int, data: bytes, share: float, described: bool
) -> None:
    client = server.open()
    try:
        asked = f"SELECT WITH DP OPTIONS (epsilon = 5) COUNT(*) FROM visits WHERE {condition}"
        came = client.ask(parse(asked, "s"), describe("S", "s") if described else b"", SYNC)
        if described:
            assert next(body for sort, body in came if sort == b"t") == struct.pack(">hI", 1, kind), came
        came = client.ask(bind([data], "s", formats=[1]), execute(), SYNC)
        assert not read_error(came)
        ((value,),) = read_rows(came)
        assert value is not None
        assert abs(int(value) - 5000 * share) < 300
    finally:
        client.close()


def test_a_client_that_asks_for_types_and_sends_binary(server: PostgresServer) -> None:
    """As asyncpg, pgx and tokio-postgres do for each statement."""
    with psycopg.connect(server.make_url(), autocommit=True) as held:
        raw = held.pgconn
        raw.prepare(b"s", b"SELECT COUNT(*) AS n FROM visits WHERE cost < $1 AND ward NOT LIKE $2")
        told_kinds = raw.describe_prepared(b"s")
        assert [told_kinds.param_type(at) for at in range(2)] == [types.FLOAT8, types.TEXT]
        asked = [struct.pack("!d", 250), b"Z"]
        found = raw.exec_prepared(b"s", asked, [Format.BINARY, Format.BINARY], Format.TEXT)
        assert found.error_message == b""
        value = found.get_value(0, 0)
        assert value is not None
        assert 2000 < int(value) < 3000


def test_types_that_a_client_gives_go_with_those_that_are_found(server: PostgresServer) -> None:
    client = server.open()
    try:
        asked = parse(
            "SELECT WITH DP OPTIONS (epsilon = 5) COUNT(*) FROM visits WHERE cost < $1 AND ward = $2",
            "s",
            [types.INT8],
        )
        came = client.ask(asked, describe("S", "s"), SYNC)
        listed = next((body for kind, body in came if kind == b"t"), b"")
        assert listed == struct.pack(">hII", 2, types.INT8, types.TEXT), read_error(came)
        came = client.ask(bind([struct.pack(">q", 600), b"A"], "s", formats=[1]), execute(), SYNC)
        assert not read_error(came)
        ((value,),) = read_rows(came)
        assert value is not None
        assert abs(int(value) - 1250) < 300
    finally:
        client.close()


SUGGESTED: list[tuple[str, list[int], list[bytes]]] = [
    ("FROM visits WHERE day < $1 AND cost > $2", [types.INT4, types.FLOAT8], [b"9", b"1.5"]),
    ("FROM visits WHERE day BETWEEN $1 AND $2", [types.INT4] * 2, [b"9", b"90"]),
    ("FROM visits WHERE day = ANY($1) OR ward = ANY($2)", [1007, 1009], [b"{1,2}", b"{A}"]),
    ("FROM visits WHERE day = ANY($1::int[]) AND ward IN ($2, $3)", [1007, types.TEXT, types.TEXT], [b"{1}", b"A", b"B"]),
    ("FROM flags WHERE flag = $1 AND at >= $2 LIMIT $3", [types.BOOL, types.TIMESTAMP, types.INT8], [b"t", b"2024-01-01", b"9"]),
    ("FROM visits WHERE ward = $1::text AND day + 1 > $2", [types.TEXT, types.FLOAT8], [b"A", b"1"]),
    ("FROM (SELECT cost AS day FROM visits) AS v WHERE day < $1", [types.FLOAT8], [b"9.5"]),
    ("FROM visits WHERE DATE '2024-01-01' + day < $1", [types.DATE], [b"2024-03-31 +01"]),
    ("FROM visits WHERE to_char(DATE '2024-01-01' + day, $1) = $2", [types.TEXT, types.TEXT], [b"YYYY", b"2024"]),
    ("FROM visits WHERE day <> ALL($1::bigint[]) AND patient = ANY($2::bigint[])", [1016, 1016], [b"{1}", b"{2,3}"]),
    ("FROM visits WHERE DATE '2024-01-01' + day > TIMESTAMP '2024-02-01' - $1::interval", [types.INTERVAL], [b"3 days"]),
]  # fmt: skip


@pytest.mark.parametrize(("rest", "kinds", "values"), SUGGESTED)
def test_a_parameter_has_the_type_of_its_column(
    server: PostgresServer, rest: str, kinds: list[int], values: list[bytes]
) -> None:
    """Describe it as PostgreSQL does, and read a text of no told type in it."""
    client = server.open()
    try:
        client.ask(query("flags << SELECT TRUE AS flag, TIMESTAMP '2024-01-02' AS at"))
        came = client.ask(parse(f"SELECT COUNT(*) AS n {rest}", "s"), describe("S", "s"), SYNC)
        listed = next((body for kind, body in came if kind == b"t"), b"")
        assert listed == struct.pack(f">h{len(kinds)}I", len(kinds), *kinds), read_error(came)
        came = client.ask(bind(values, "s"), execute(), SYNC)
        assert not read_error(came)
        if "flags" in rest:
            assert read_rows(came) == [[b"1"]]
    finally:
        client.close()


def test_a_text_without_a_type_is_read_in_the_type_that_fits(server: PostgresServer) -> None:
    """As node sends numbers and truths: nothing says their types, and the statement isn't described."""
    client = server.open()
    try:
        for asked, value, found in (
            ("SELECT COUNT(*) * $1 AS x FROM wards", b"2.5", b"7.5"),
            ("SELECT COUNT(*) FROM wards WHERE $1", b"t", b"3"),
            ("SELECT $1 AS x", b"2.5", b"2.5"),
        ):
            assert read_rows(client.ask(parse(asked), bind([value]), execute(), SYNC)) == [[found]], asked
        came = client.ask(parse("SELECT COUNT(*) * $1 FROM wards"), bind([b"two"]), execute(), SYNC)
        assert read_error(came)["C"] == "22P02"
    finally:
        client.close()


def test_garbage_is_refused_for_free(server: PostgresServer) -> None:
    """Whatever arrives in a described type: an answer or a refusal of PostgreSQL's own kind, and a refusal costs nothing."""
    client, chance = server.open("bob"), random.Random(7)
    try:
        before = list_own(client)
        client.ask(parse("SELECT COUNT(*) FROM visits WHERE cost < $1", "s"), describe("S", "s"), SYNC)
        states, tried = set(), 0
        while tried < 300:
            data = make_garbage(chance, types.FLOAT8)
            try:
                READERS[types.FLOAT8](data)
                continue  # it would be answered, and charged
            except ERRORS:
                tried += 1
            came = client.ask(bind([data], "s", formats=[1]), execute(), SYNC)
            states.add(read_error(came)["C"])
        assert states <= REFUSED
        assert list_own(client) == before
    finally:
        client.close()


def test_garbage_of_all_types_ends_no_session(server: PostgresServer) -> None:
    """What arrives is told as a row or as a refusal, and the session goes on."""
    client, chance = server.open("bob"), random.Random(11)
    before = len(server.events)
    try:
        for kind, read in ALL.items():
            client.ask(parse("SELECT $1 IS NULL AS a", f"s{kind}", [kind]), SYNC)
            for _ in range(40):
                data = make_garbage(chance, kind)
                came = client.ask(bind([data], f"s{kind}", formats=[1]), execute(), SYNC)
                error = read_error(came)
                if not error:
                    read(data)
                    assert read_rows(came) == [[b"f"]]
                elif error["C"] not in REFUSED:
                    assert "holds a number of" in error["M"], (kind, data, error)
        assert not any(line["event"] in ("failure", "charge") for line in server.events[before:])
    finally:
        client.close()


def test_the_worker_says_no_state_of_its_own() -> None:
    for told, said in (("00000", b"C42000\0"), ("22P02", b"C22P02\0"), ("42703\0", b"C42000\0")):
        assert said in write_own_error(BindError("$1 is none.", sqlstate=told), "SELECT $1")


def test_uuids_are_texts_in_both_forms() -> None:
    value = uuid.UUID(int=7)
    assert read_parameter(1, types.UUID, 1, value.bytes) == read_parameter(
        1, types.UUID, 0, str(value).encode()
    )


ARRAYS = {
    "{}": [], "{ }": [], '{"p", "f" ,r}': ["p", "f", "r"], '{ " a" , b c }': [" a", "b c"],
    '{NULL,"NULL",""}': [None, "NULL", ""],
    r'{"a\"b\\","{,}"}': ['a"b\\', "{,}"],
}  # fmt: skip


@pytest.mark.parametrize("text", ARRAYS)
def test_arrays_as_text(text: str) -> None:
    assert read_parameter(1, types.ARRAYS[types.TEXT], 0, text.encode()) == ARRAYS[text]


@pytest.mark.parametrize("text", ["{a,}", "{a, }", "{,a}", '{"a"b}', '{"a', "{a", "a", '{"a" b}', "{{a}}"])
def test_texts_that_are_no_arrays(text: str) -> None:
    with pytest.raises(BindError):
        read_parameter(1, types.ARRAYS[types.TEXT], 0, text.encode())
