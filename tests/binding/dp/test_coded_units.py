"""Units that are no small integers: their codes are an injective map or there are none, and totals are those of the query."""

from __future__ import annotations

import os
import random
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.exact.exact_query import CODED_UNIT_TYPES
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import SALT, CodesClaim, PackingClaim, Reader, list_claims
from dpsql.mechanisms.fast.packed_aggregation import ChangedData, CodedUnit, UnitCodes
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import con_fixture, open_both
from tests.support.hostile import FORMS, TABLES, written
from tests.support.hostile import POLICY as HOSTILE
from tests.support.moves import make_reader
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(1e9, 0.5, 1e6, 1e-6),
    t=table("u", 3, 2, ward=["A", "B", "it's"], k=[0, 1, 2, 3], x=(-3, 10), y=(0, 1)),
)

SHAPES = [
    "SELECT COUNT(*), COUNT(x), SUM(x), AVG(y) FROM t",
    "SELECT COUNT(*) FROM t WHERE k < 3",
    "SELECT ward, COUNT(*), SUM(x) FILTER (WHERE y > 0.5), AVG(y) FROM t GROUP BY ward",
    "SELECT k, ward, COUNT(x), SUM(x + 1), COUNT(DISTINCT u) FROM t GROUP BY k, ward",
    "SELECT g, COUNT(*), SUM(x) FROM t WHERE x > -5 GROUP BY g",
    "SELECT g, k, COUNT(*) FROM (SELECT g, k FROM t WHERE k IS NOT NULL) AS q GROUP BY g, k",
    "WITH c AS (SELECT k, x, x * 2 AS z FROM t) SELECT k, SUM(x), COUNT(z) FROM c GROUP BY k",
]

UNITS = {
    "VARCHAR": ["", " ", "a", "A", "a ", "\u00e9", "e\u0301", "x" * 40, "x" * 41, "it's", "1", "01"],
    "UUID": [f"00000000-0000-4000-8000-{i:012d}" for i in (0, 1, 2, 255, 10**11)],
    "HUGEINT": ["0", "1", "2", str(7 * 2**64), str(-(2**100)), str(2**126)],
    "UBIGINT": ["0", "1", str(2**63), str(2**64 - 1)],
    "BIGINT": ["0", "1", "-1", str(2**40), str(-(2**63)), str(2**63 - 1)],
    "BLOB": ["", "a", "A", "\\x00", "\\x00\\x00", "\\xFF" * 20],
    "DATE": ["0001-01-01", "1969-12-31", "2026-02-03", "infinity"],
    "TIMESTAMP WITH TIME ZONE": ["2026-02-03 04:05:06+00", "2026-02-03 04:05:06.000001+00", "-infinity"],
}


def fill(con: duckdb.DuckDBPyConnection, kind: str, rows: int = 400) -> None:
    dice = random.Random(kind)

    def quote(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def row() -> str:
        pick = dice.choice
        u = pick(["NULL", *map(quote, UNITS[kind])])
        x = pick(["NULL", "-90", "-3", "0", "4", "10", "2000000"])
        y = pick(["NULL", "'nan'", "'inf'", "-1.0", "0.25", "0.75", "1e30"])
        ward = pick(["NULL", "'A'", "'B'", "'it''s'", "'Z'"])
        return f"({u}, {pick(['NULL', *'01239'])}, {pick(['NULL', '-4', '0', '7'])}, {x}, {y}, {ward})"

    con.execute(f"CREATE TABLE t (u {kind}, k INTEGER, g BIGINT, x INTEGER, y DOUBLE, ward VARCHAR)")
    con.execute("INSERT INTO t VALUES " + ", ".join(row() for _ in range(rows)))


con = con_fixture("SET TimeZone = 'UTC'", scope="function")


def operator(con: duckdb.DuckDBPyConnection, text: str, policy: str = POLICY) -> Aggregation:
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
        found = inside.bind(session, text).blocks[0].operator
        assert isinstance(found, Aggregation)
        return found


def remembering(
    con: duckdb.DuckDBPyConnection, kept: dict[str, object] | None = None, log: list[str] | None = None
) -> Reader:
    memory = {} if kept is None else kept
    return replace(make_reader(con, log), memory=lambda text: memory)


def rows(table: pa.Table | None, keys: tuple[str, ...]) -> dict[tuple[Any, ...], dict[str, int]]:
    assert table is not None, "the data fit, and were not packed"
    return {
        tuple(row[k] for k in keys): {c: int(v or 0) for c, v in row.items() if c not in keys}
        for row in table.to_pylist()
    }


# -- totals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", UNITS)
def test_the_same_totals_as_the_query_where_nothing_is_chosen(
    con: duckdb.DuckDBPyConnection, kind: str
) -> None:
    fill(con, kind)
    kept: dict[str, object] = {}
    for text in SHAPES:
        found = operator(con, text, POLICY.replace("max_groups = 2", "max_groups = 40"))
        if kind == "BIGINT" and not found.keys:
            assert found.packed.take(remembering(con, kept), Entropy()) is None, (
                "the query is sooner answered"
            )
            continue
        assert (found.packed.wide or found.packed).coded is not None
        packed = found.packed.take(remembering(con, kept), Entropy())
        query = con.sql(found.query.replace(SALT, "12345")).to_arrow_table()
        assert rows(packed, found.keys) == rows(query, found.keys)
    (codes,) = (value for value in kept.values() if isinstance(value, UnitCodes))
    assert codes.size == con.sql("SELECT COUNT(DISTINCT u) FROM t").fetchall()[0][0] == len(UNITS[kind])


def test_a_unit_counts_in_no_more_groups_than_it_may(con: duckdb.DuckDBPyConnection) -> None:
    fill(con, "VARCHAR")
    found = operator(con, "SELECT WITH DP OPTIONS (max_groups_contributed = 2) k, COUNT(*) FROM t GROUP BY k")
    touched = con.sql("SELECT COUNT(DISTINCT k) FROM t WHERE k < 4 AND u IS NOT NULL GROUP BY u").fetchall()
    totals = rows(found.packed.take(remembering(con), Entropy()), found.keys)
    assert sum(row["units"] for row in totals.values()) == sum(min(2, n) for (n,) in touched)
    assert sum(min(2, n) for (n,) in touched) < sum(n for (n,) in touched)


@pytest.mark.parametrize("kind", ["DOUBLE", "INTERVAL", "BOOLEAN", "VARCHAR COLLATE NOCASE", "INTEGER[]"])
def test_other_types_have_no_codes(con: duckdb.DuckDBPyConnection, kind: str) -> None:
    """Two zeros, or 30 days and a month, are one unit of two hashes perhaps."""
    con.execute(f"CREATE TABLE t (u {kind}, k INTEGER, g BIGINT, x INTEGER, y DOUBLE, ward VARCHAR)")
    assert kind not in CODED_UNIT_TYPES
    try:
        packed = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k").packed
    except dpsql.Error:
        return  # no unit at all
    assert packed is None or (kind.startswith("VARCHAR") and packed.coded is not None)


def test_a_late_text_that_can_not_be_proved_is_not_read(
    tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes of wide integers are proved when they are read: a fault of what writes them is found there, and costs time."""
    path = str(tmp_path / "data.duckdb")
    with duckdb.connect(path) as con:
        fill(con, "BIGINT")
    with dpsql.connect(path, policy=dpsql.Policy.loads(POLICY)) as session:
        ask(session)
        assert encoded.count(0) < len(encoded)
    monkeypatch.setattr(
        "dpsql.exact.exact_query.write_coded_unit",
        lambda source: CodedUnit(
            'SELECT 1 AS h FROM "t" AS rows', "SELECT 9 AS n", (("data", "main", "t"), "u")
        ),
    )
    encoded.clear()
    with dpsql.connect(path, policy=dpsql.Policy.loads(POLICY)) as session:
        assert ask(session)
        assert not encoded


# -- codes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 2, 3, 1000, 70_000])
@pytest.mark.parametrize("crowded", [False, True])
def test_codes_are_the_places_of_hashes(many: int, crowded: bool) -> None:
    dice = np.random.default_rng(many)
    hashes = dice.permutation(np.unique(dice.integers(0, 2**64 - 1, many, dtype=np.uint64)))
    if crowded:
        hashes = np.append(np.arange(many, dtype=np.uint64), np.uint64(2**64 - 1))
    codes = UnitCodes.of(hashes)
    asked = dice.choice(hashes, 100_000)
    assert (codes.encode(asked) == np.searchsorted(np.sort(hashes), asked)).all()
    with pytest.raises(ChangedData):
        codes.encode(np.append(asked, np.uint64(2**63 + 12345)))
    if not crowded:
        with pytest.raises(ChangedData):
            codes.encode(np.array([2**64 - 1], dtype=np.uint64))
    assert UnitCodes.of(np.append(hashes, hashes[0])) is None


def test_two_units_of_one_hash_have_no_codes(con: duckdb.DuckDBPyConnection) -> None:
    """Were they taken for one, the totals would be others."""
    fill(con, "VARCHAR")
    found = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k")
    kept: dict[str, object] = {}
    reader = remembering(con, kept)
    con.execute("CREATE MACRO hash64(x) AS CASE WHEN x IN ('a', 'A') THEN 5 ELSE hash(x) END")
    weak = replace(
        reader, execute=lambda sql, lent: reader.execute(sql.replace("hash(rows.u)", "hash64(rows.u)"), lent)
    )
    assert found.packed.take(weak, Entropy()) is None
    assert list(kept.values()).count(None) == 1, "it is not tried again"
    assert found.packed.take(remembering(con), Entropy()) is not None


def test_wide_integers_whose_halves_have_one_hash(con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB mixes the hashes of both halves by an exclusive or, so 0 and -1 have one: it is seen, and the query is read."""
    con.execute(
        "CREATE TABLE t AS SELECT (i % 2 - 1)::HUGEINT AS u, i % 4 AS k, 1 AS x FROM range(40) AS r(i)"
    )
    con.execute("ALTER TABLE t ADD COLUMN ward VARCHAR")
    con.execute("ALTER TABLE t ADD COLUMN y DOUBLE")
    assert con.sql("SELECT COUNT(DISTINCT u), COUNT(DISTINCT hash(u)) FROM t").fetchall() == [(2, 1)]
    found = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k")
    assert found.packed.take(remembering(con), Entropy()) is None


def test_a_unit_that_came_later_has_no_code(con: duckdb.DuckDBPyConnection) -> None:
    fill(con, "VARCHAR")
    found = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k")
    kept: dict[str, object] = {}
    assert found.packed.take(remembering(con, kept), Entropy()) is not None
    con.execute("INSERT INTO t (u, k) VALUES ('somebody new', 1)")
    assert found.packed.take(remembering(con, kept), Entropy()) is None
    assert found.release(remembering(con, kept), Entropy()).table.num_rows == 4
    assert found.packed.take(remembering(con), Entropy()) is not None


def test_without_a_memory_or_room_the_query_is_read(con: duckdb.DuckDBPyConnection) -> None:
    fill(con, "VARCHAR")
    found = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k")
    for reader in (
        make_reader(con),
        replace(make_reader(con), memory=lambda text: None),
        replace(remembering(con), room=0),
        replace(remembering(con), room=4 * len(UNITS["VARCHAR"]) - 1),
    ):
        assert found.packed.take(reader, Entropy()) is None


# -- sessions -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls of codes; no table is little."""
    monkeypatch.setattr("dpsql.engine.base.LITTLE_ROWS", 0)
    monkeypatch.setattr("dpsql.engine.base.LITTLE_BYTES", 0)
    calls: list[int] = []
    encode = UnitCodes.encode

    def counted(self: UnitCodes, hashes: Any) -> Any:
        calls.append(len(hashes))
        return encode(self, hashes)

    monkeypatch.setattr(UnitCodes, "encode", counted)
    return calls


def ask(session: dpsql.Session) -> list[Any]:
    table = session.sql("SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k", fresh=True).fetchall()
    return [tuple(map(round, row)) for row in table]


def test_a_session_over_a_file_takes_the_route(tmp_path: Path, encoded: list[int]) -> None:
    path = str(tmp_path / "data.duckdb")
    with duckdb.connect(path) as con:
        fill(con, "VARCHAR", 200)
        con.execute("UPDATE t SET u = u || k")  # at most two groups and three rows of each
        con.execute("DELETE FROM t WHERE rowid NOT IN (SELECT MIN(rowid) FROM t GROUP BY u, k)")
        wanted = con.sql("SELECT k, COUNT(*) FROM t WHERE u IS NOT NULL AND k < 4 GROUP BY k ORDER BY k")
        known = wanted.fetchall()
        con.execute(f"COPY t TO '{tmp_path}/t.parquet'")
    with dpsql.connect(path, policy=dpsql.Policy.loads(POLICY)) as session:
        before = inside.engine(session)._ask("SELECT COUNT(*) FROM duckdb_tables()")
        assert ask(session) == ask(session) == known
        assert encoded
        assert inside.engine(session)._ask("SELECT COUNT(*) FROM duckdb_tables()") == before
        memories = inside.engine(session)._memories
        assert any(isinstance(v, UnitCodes) for _, kept in memories.values() for v in kept.values())
    assert not memories, "nothing is kept once it is closed"
    encoded.clear()
    filed = POLICY.replace("[tables.t]", f"[tables.t]\nsource = '{tmp_path}/t.parquet'")
    with dpsql.connect(policy=dpsql.Policy.loads(filed)) as session:
        assert ask(session) == known
        assert encoded


def test_nothing_is_kept_of_data_that_may_change_unseen(encoded: list[int]) -> None:
    with duckdb.connect() as con:
        fill(con, "VARCHAR")
        con.execute("CREATE VIEW seen AS FROM t")
        con.register("given", con.sql("FROM t").to_arrow_table())
        for name in ("t", "seen", "given"):
            named = POLICY.replace("[tables.t]", f"[tables.t]\nsource = '{name}'")
            with dpsql.connect(con, policy=dpsql.Policy.loads(named)) as session:
                ask(session)
                engine = inside.engine(session)
                text = f"SELECT 1 FROM {engine.relation(session.policy.tables['t'])}"
                assert engine.remember(text) is engine.remember_units(text) is None
                with engine.hold_snapshot(text) as memory:
                    assert (memory == {}) is (name == "t")
                with engine.hold_snapshot("SELECT 1") as memory:
                    assert memory is None
            assert bool(encoded) is (name == "t")
            encoded.clear()


def test_a_statement_over_an_open_connection_sees_one_state(
    encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes are made of the state that rows are read from, whatever others commit meanwhile; the next statement makes its own."""
    with duckdb.connect() as con:
        known = one_row_each(con)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            assert ask(session) == known
            encoded.clear()
            find, changed = CodedUnit.find, []

            def find_and_change(self: CodedUnit, read: Reader, many: int) -> Any:
                found = find(self, read, many)
                con.execute("UPDATE t SET u = 'one'")
                changed.append(found)
                return found

            with monkeypatch.context() as patch:
                patch.setattr(CodedUnit, "find", find_and_change)
                assert ask(session) == known, "the rows of before"
            assert encoded
            assert changed[0].size > 1
            encoded.clear()
            assert len(ask(session)) == len(known)
            assert encoded
            con.execute("INSERT INTO t (u, k) VALUES ('two', 1)")  # no transaction of ours is left open
            with inside.engine(session)._lock:
                seen: list[Any] = []
                thread = threading.Thread(target=lambda: seen.append(ask(session)))
                encoded.clear()
                thread.start()
                thread.join(60)
            assert len(seen) == 1
            assert not encoded, "the cursor is another thread's"


def test_an_error_in_a_snapshot_leaves_no_transaction(
    encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckdb.connect() as con:
        known = one_row_each(con)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:

            def fail(self: CodedUnit, read: Reader, many: int) -> Any:
                raise dpsql.EngineError("no")

            with monkeypatch.context() as patch:
                patch.setattr(CodedUnit, "find", fail)
                with pytest.raises(dpsql.Error):
                    ask(session)
            con.execute("DELETE FROM t WHERE k = 0")
            assert ask(session) == [(k, n if k else 0) for k, n in known]
            assert encoded


def one_row_each(con: duckdb.DuckDBPyConnection) -> list[Any]:
    """Make a table of which no unit's rows are left out, and return its counts."""
    fill(con, "VARCHAR", 200)
    con.execute("UPDATE t SET u = u || k")  # at most two groups and three rows of each
    con.execute("DELETE FROM t WHERE rowid NOT IN (SELECT MIN(rowid) FROM t GROUP BY u, k)")
    return con.sql("SELECT k, COUNT(*) FROM t WHERE u IS NOT NULL AND k < 4 GROUP BY k ORDER BY k").fetchall()


@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas", "objects", "views"])
def test_units_of_frames_are_copied(kind: str, encoded: list[int]) -> None:
    """Their codes hold for the copy: who writes into the memory of a frame changes no unit."""
    with duckdb.connect() as con:
        known = one_row_each(con)
        frame: Any = con.sql("FROM t").to_arrow_table()
    if kind == "polars":
        frame = pytest.importorskip("polars").from_arrow(frame)
    elif kind == "pandas":
        frame = frame.to_pandas().astype(dict.fromkeys(["u", "ward"], "string[pyarrow]"))
    elif kind == "objects":
        frame = frame.to_pydict()
    else:
        held = frame.column("u").combine_chunks().cast(pa.string_view() if kind == "views" else pa.string())
        sizes = [None if b is None else bytearray(b.to_pybytes()) for b in held.buffers()]
        if kind == "arrow":
            mutable = [None if b is None else pa.py_buffer(b) for b in sizes]
            held = pa.Array.from_buffers(pa.string(), len(held), mutable)
        frame = frame.set_column(0, "u", held)
    named = POLICY
    if kind in ("objects", "pandas"):  # whose columns have no types, or are doubles where there is a NULL
        named += 'u.type = "VARCHAR"\ng.type = "BIGINT"\n'
        for column, type in (("k", "INTEGER"), ("x", "INTEGER"), ("y", "DOUBLE"), ("ward", "VARCHAR")):
            named = named.replace(f"{column} = {{", f'{column} = {{ type = "{type}",')
    with dpsql.connect({"t": frame}, policy=dpsql.Policy.loads(named)) as session:
        assert ask(session) == known
        if kind == "arrow":
            letters = sizes[2]
            letters[:] = b"z" * len(letters)
        assert ask(session) == known
        engine = inside.engine(session)
        text = f"SELECT 1 FROM {engine.relation(session.policy.tables['t'])}"
        assert (engine.remember(text) is not None) is (kind == "objects")
    assert encoded


def test_a_connection_to_a_file_that_nobody_may_change(tmp_path: Path, encoded: list[int]) -> None:
    path, other = str(tmp_path / "data.duckdb"), str(tmp_path / "other.duckdb")
    for place in (path, other):
        with duckdb.connect(place) as con:
            known = one_row_each(con)
            con.execute("CREATE VIEW seen AS FROM t")
    with duckdb.connect(path, read_only=True) as con:
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            assert ask(session) == ask(session) == known
            assert encoded
        encoded.clear()
        seen = POLICY.replace("[tables.t]", "[tables.t]\nsource = 'seen'")
        with dpsql.connect(con, policy=dpsql.Policy.loads(seen)) as session:
            assert ask(session) == known
        assert not encoded, "a view may read what others change"
    policy = dpsql.Policy.loads(POLICY.replace("[tables.t]", "[tables.t]\nsource = 'd.main.t'"))
    with duckdb.connect() as con:
        for how, coded in (("", False), (" (READ_ONLY)", True)):
            con.execute(f"ATTACH '{path}' AS d{how}")
            with dpsql.connect(con, policy=policy) as session:
                assert ask(session) == known
                assert encoded
                engine = inside.engine(session)
                text = f"SELECT 1 FROM {engine.relation(session.policy.tables['t'])}"
                first = engine.remember(text)
                assert (first is not None) is coded
                con.execute("DETACH d")
                assert engine.remember(text) is None
                con.execute(f"ATTACH '{other}' AS d (READ_ONLY)")
                assert engine.remember(text) is not first
                con.execute("DETACH d")


def test_a_file_that_took_the_path_before_it_was_attached_again(tmp_path: Path, encoded: list[int]) -> None:
    """Units of the old one, found while its path was the new one's already, are not taken for the new one's."""
    path, other = str(tmp_path / "data.duckdb"), str(tmp_path / "other.duckdb")
    for place, first in ((path, 0), (other, 1000)):
        with duckdb.connect(place) as con:
            con.execute(
                f"CREATE TABLE t AS SELECT {first} + i AS u, (i % 4)::INTEGER AS k FROM range(80) AS r(i)"
            )
    columns = (
        'ward = { values = ["A", "B", "it\'s"] }',
        "x = { bounds = [-3, 10] }",
        "y = { bounds = [0, 1] }",
    )
    named = POLICY.replace("[tables.t]", "[tables.t]\nsource = 'd.main.t'")
    for column in columns:
        named = named.replace(column, "")
    known = [(k, 20) for k in range(4)]
    with open_both(named, f"ATTACH '{path}' AS d (READ_ONLY)") as (con, session):
        os.replace(other, path)
        assert ask(session) == known
        con.execute("DETACH d")
        con.execute(f"ATTACH '{path}' AS d (READ_ONLY)")
        assert ask(session) == known


# -- the second lock ----------------------------------------------------------------------------------------------------

ITEM, OWN = r"(?i)hash\(r0\.u\) AS h", r'r1\."u"'
FORGED: dict[str, tuple[type, str, str]] = {
    "the hash of another column": (PackingClaim, ITEM, "HASH(r0.k0) AS h"),
    "a lossy hash": (PackingClaim, ITEM, "HASH(LOWER(r0.u)) AS h"),
    "no hash": (PackingClaim, ITEM, "r0.u AS h"),
    "a hash of two columns": (PackingClaim, ITEM, "HASH(r0.u, 1) AS h"),
    "a hash that is shortened": (PackingClaim, ITEM, "HASH(r0.u) >> 1 AS h"),
    "a constant": (PackingClaim, ITEM, "HASH(7) AS h"),
    "another column as the unit": (PackingClaim, r'"u" AS (unit_\w+)', r'"ward" AS \1'),
    "a text of the unit": (PackingClaim, r'(r\d+)\."u" AS (unit_\w+)', r'LOWER(\1."u") AS \2'),
    "a unit beside the hash": (PackingClaim, " AS p ", " + (CAST(r0.k0 AS BIGINT) - (0)) * 8 AS p "),
    "codes of a lossy hash": (CodesClaim, ITEM, "HASH(LOWER(r0.u)) AS h"),
    "no hashes": (CodesClaim, ITEM, "r0.u AS h"),
    "codes of some units": (CodesClaim, "IS NULL", "IS NULL AND r1.k = 2"),
    "codes of some units outside": (CodesClaim, "AS r0", "AS r0 WHERE r0.u > 'a'"),
    "hashes that are made different": (CodesClaim, "SELECT (?i:hash)", "SELECT DISTINCT hash"),
    "codes of rows": (CodesClaim, "SELECT DISTINCT", "SELECT"),
    "codes of another column": (CodesClaim, OWN, 'r1."ward"'),
    "codes of a unit that is changed": (CodesClaim, r'DISTINCT r1\."u"', 'DISTINCT LOWER(r1."u")'),
    "some of the codes": (CodesClaim, "$", " LIMIT 5"),
    "some of the units": (CodesClaim, "IS NULL", "IS NULL LIMIT 5"),
    "codes of two tables": (CodesClaim, "AS r1 ", 'AS r1, "memory"."main"."t" AS r7 '),
    "codes twice": (CodesClaim, "$", " UNION ALL SELECT 1 AS h"),
}
"""For each the text that it is done to, a pattern, and what a faulty binder would write."""


@pytest.mark.parametrize("kind", ["VARCHAR", "BIGINT"])
@pytest.mark.parametrize("name", FORGED)
def test_forged_codes_are_refused(name: str, kind: str, con: duckdb.DuckDBPyConnection) -> None:
    fill(con, kind, 1)
    forged_claim, pattern, wrong = FORGED[name]
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        gate = inside.gate(session)
        found = inside.bind(session, "SELECT k, COUNT(*), SUM(x) FROM t GROUP BY k").blocks[0].operator
        refused = 0
        for claimed in list_claims(found):
            text = gate.exact(claimed.text, {})
            if not isinstance(claimed.claim, forged_claim) or getattr(claimed.claim, "coded", True) is None:
                continue
            gate._lock.prove(replace(claimed, text=text), {})
            forged = re.sub(pattern, wrong, text, count=1)
            assert forged != text, text
            with pytest.raises(Unproved):
                gate._lock.prove(replace(claimed, text=forged), {})
            refused += 1
        assert refused


def test_codes_of_another_table_are_refused(con: duckdb.DuckDBPyConnection) -> None:
    """Both texts are held to one column: codes of another table's units say nothing of these."""
    fill(con, "VARCHAR", 1)
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        gate = inside.gate(session)
        found = inside.bind(session, "SELECT k, COUNT(*), SUM(x) FROM t GROUP BY k").blocks[0].operator
        for claimed in list_claims(found):
            other = (("memory", "main", "s"), "u"), (("memory", "main", "t"), "ward")
            text = gate.exact(claimed.text, {})
            for place in other:
                if isinstance(claimed.claim, CodesClaim):
                    claim: CodesClaim | PackingClaim = CodesClaim(place)
                elif isinstance(claimed.claim, PackingClaim):
                    claim = replace(claimed.claim, coded=place)
                else:
                    continue
                with pytest.raises(Unproved):
                    gate._lock.prove(replace(claimed, text=text, claim=claim), {})


def test_data_that_change_while_they_are_read_are_read_by_the_query(con: duckdb.DuckDBPyConnection) -> None:
    fill(con, "VARCHAR")
    found = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k")
    kept: dict[str, object] = {}
    steady = remembering(con, kept)
    assert found.packed.take(steady, Entropy()) is not None
    # for the ranges, for the codes, which are then taken, and once rows were read
    states = iter([kept, kept, kept, {}])
    assert found.packed.take(replace(steady, memory=lambda text: next(states)), Entropy()) is None


def test_every_form_over_units_that_are_texts_is_proved() -> None:
    """None is written whose unit the second lock could not follow to its column, and totals are those of the query."""
    text = TABLES.replace("::BIGINT AS patient_id", "::VARCHAR AS patient_id")
    seen = equal = 0
    with open_both(HOSTILE, text) as (con, session):
        for form in FORMS:
            try:
                plan = inside.planned(session, written(form, "a9", "b9"))
            except dpsql.Error as error:
                assert not isinstance(error, Unproved), form
                continue
            for block in plan.blocks if plan is not None else ():
                found = block.operator
                lent = inside.lent_columns(session, plan, block)
                names = {i.name: [c for c, _ in lent[i.name]] for i in block.inputs}
                inside.gate(session).prove(found, names)
                if isinstance(found, Aggregation) and found.packed is not None and not names:
                    assert found.packed.coded is not None
                    if found.packed.groups is None or not found.keys:
                        totals = found.packed.take(remembering(con), Entropy())
                        query = con.sql(found.query.replace(SALT, "12345")).to_arrow_table()
                        assert totals is None or rows(totals, found.keys) == rows(query, found.keys)
                        equal += totals is not None
                    seen += 1
    assert seen > 20
    assert equal > 5
