"""Counts of different values in parts of the values: those of all together, proved before they are read, and when they are."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engine.duckdb import estimate_rows
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.base import OutOfMemory, Reader, bind_parameters
from dpsql.mechanisms.histograms import DistinctCount
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.parts import count_parts
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(1e9, 0.5, 1e6, 1e-6),
    t=table("who", 3, 2, ward=["A", "B", "it's"]),
    plain=table("ROW", None, None, {"source": "t"}),
)
STATEMENTS = [
    *(f"SELECT COUNT(DISTINCT {column}) FROM t" for column in ("note", "y", "d", "k", "span", "list")),
    "SELECT COUNT(DISTINCT y) FROM plain",
    "SELECT COUNT(DISTINCT note) FILTER (WHERE k > 0) FROM t WHERE y > 0",
    "SELECT ward, COUNT(DISTINCT note) FROM t GROUP BY ward",
    "SELECT note, COUNT(DISTINCT k) FROM t GROUP BY note",
    "SELECT WITH DP OPTIONS (max_rows_contributed = 4) ward, COUNT(DISTINCT note) FROM t GROUP BY ward",
]


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    """Values that are missing, not numbers, zeros of two signs, a month and its thirty days."""
    dice = random.Random(27)

    def row() -> str:
        pick = dice.choice
        who = pick(["NULL", *(f"'{'somebody ' * 4}{i}'" for i in range(150))])
        ward = pick(["NULL", "'A'", "'B'", "'it''s'", "'Z'"])
        note = pick(["NULL", "''", *(f"'a long note {i}'" for i in range(400))])
        y = pick(
            [
                "NULL",
                "'nan'",
                "'-nan'",
                "'inf'",
                "'-inf'",
                "'0.0'",
                "'-0.0'",
                *(f"'{i / 7}'" for i in range(50)),
            ]
        )
        day = pick(["NULL", "'infinity'", *(f"'2024-01-{i:02}'" for i in range(1, 30))])
        span = pick(["NULL", "'1 month'", "'30 days'", "'720 hours'", "'1 year'"])
        many = pick(["NULL", "[]", "[NULL]", "['0.0']", "['-0.0']", "['nan', '1']"])
        return f"({who}, {ward}, {note}, {day}, {dice.choice([*range(90)])}, {y}, {span}, {many})"

    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t (who VARCHAR, ward VARCHAR, note VARCHAR, d DATE, k HUGEINT, y DOUBLE, span INTERVAL, "
            "list DOUBLE[])"
        )
        con.execute("INSERT INTO t VALUES " + ", ".join(row() for _ in range(900)))
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            yield session


def plan(session: dpsql.Session, text: str) -> tuple[DistinctCount, Reader]:
    """Return the part, and a reader that proves its texts; one salt for all."""
    operator = inside.bind(session, text).blocks[0].operator
    assert isinstance(operator, Together)
    (part,) = operator.parts
    assert isinstance(part, DistinctCount)
    return part, bind_parameters(Reader.over(session._pipeline.reader({}, operator)), {"salt": 2027})


def count(part: DistinctCount, reader: Reader) -> dict[object, int]:
    """Return how many values each group has."""
    found: dict[object, int] = {}
    for row in part.read_exact(reader, Entropy()).to_pylist():
        group = tuple(row[key] for key in part.keys)
        found[group] = found.get(group, 0) + row["n"]
    return found


def watch(reader: Reader, most: int, seen: list[str]) -> Reader:
    """Return a reader that has memory for so many parts, and writes down what it reads."""

    def execute(sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        seen.append(sql)
        if "APPROX" not in sql and count_parts(sql) > most:
            raise OutOfMemory("no room")
        return reader.execute(sql, lent)

    return replace(reader, execute=execute)


@pytest.mark.parametrize("most", [16, 4])
@pytest.mark.parametrize("text", STATEMENTS)
def test_parts_add_up_to_the_whole(session: dpsql.Session, text: str, most: int) -> None:
    """Of the same secret order: which rows of a unit are kept is the same, in part and in whole."""
    part, reader = plan(session, text)
    wanted, seen = count(part, reader), []
    assert any(wanted.values())
    assert count(part, watch(reader, most, seen)) == wanted
    assert len(seen) == 1 + (64 // 16 if most == 16 else 1 + 64 // 4)


def test_a_part_that_is_forgotten_is_seen(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above would fail."""
    part, reader = plan(session, STATEMENTS[0])
    wanted = count(part, reader)
    monkeypatch.setattr("dpsql.mechanisms.unit_parts.PARTS", 48)
    assert count(part, watch(reader, 16, [])) != wanted


def test_nothing_fits(session: dpsql.Session) -> None:
    part, reader = plan(session, STATEMENTS[0])
    with pytest.raises(OutOfMemory):
        count(part, watch(reader, 0, []))


@pytest.mark.parametrize(
    ("room", "rows", "reads"),
    [(100, 900, 1), (40, 900, 1 + 1), (25, 900, 1 + 4), (25, 10, 1), (0, 900, 1)],
)
def test_the_sketch_decides_what_is_read(session: dpsql.Session, room: int, rows: int, reads: int) -> None:
    """Of some 360 texts: none is asked for where rows fit; parts are read at once where the texts do not."""
    part, reader = plan(session, STATEMENTS[0])
    wanted, seen = count(part, reader), []
    scarce = replace(watch(reader, 64, seen), room=room, rows=lambda sql: rows)
    assert count(part, scarce) == wanted
    assert len(seen) == reads
    assert ("APPROX" in seen[0]) == (reads > 1)


FORGED = {
    "a row more": (r"lag\(u, 3\)", "lag(u, 4)"),
    "others' rows": (r'NOT "base"."who" IS NULL|"dpsql_table_1"."dpsql_unit" IS NOT NULL', "1 = 1"),
    "another order": (r"ORDER BY u, u_rows", "ORDER BY u_rows"),
    "values that look at all rows": (r"BETWEEN \$first AND \$last", "< (SELECT MAX(y) FROM memory.main.t)"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_part_is_not_read(session: dpsql.Session, name: str) -> None:
    """What a deceived binder wrote into the text of parts alone."""
    pattern, wrong = FORGED[name]
    part, reader = plan(session, STATEMENTS[0])
    forged, hits = re.subn(pattern, wrong, part.parts)
    assert hits, part.parts
    with pytest.raises(Unproved):
        count(replace(part, parts=forged), watch(reader, 16, []))


def test_plans_are_equal_whatever_their_parts(session: dpsql.Session) -> None:
    part, _ = plan(session, STATEMENTS[0])
    assert replace(part, parts="", probe="") == part
    assert part.parts not in part.query


def test_rows_of_every_source_are_estimated(tmp_path: Path) -> None:
    """Without a row being read: of a table and of a footer right, of text at random, of what is not there nothing."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i, i::VARCHAR AS v FROM range(5000) AS s(i)")
        for kind in ("parquet", "csv"):
            con.execute(f"COPY t TO '{tmp_path / f't.{kind}'}'")

        def estimate(relation: str) -> int:
            return estimate_rows(lambda sql: con.execute(sql).fetchall(), relation)

        assert estimate("t") == 5000
        assert estimate(f"read_parquet('{tmp_path / 't.parquet'}')") == 5000
        assert 500 < estimate(f"read_csv('{tmp_path / 't.csv'}')") < 50_000
        assert estimate("nothing") == 0


@pytest.mark.parametrize("rows", [100, 50_000])
def test_an_engine_estimates_what_a_text_names(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tables that may be large alone, so that a small query is not kept waiting."""
    monkeypatch.setattr("dpsql.engine.base.LITTLE_ROWS", 30_000)
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT i AS who, i AS ward, i AS note FROM range({rows}) AS s(i)")
        policy = dpsql.Policy.loads(POLICY.replace("""ward = { values = ["A", "B", "it's"] }""", ""))
        with dpsql.connect(con, policy=policy) as session:
            part, reader = plan(session, STATEMENTS[0])
            assert reader.estimate_rows(part.query) == (rows if rows > 30_000 else 0)
            assert reader.estimate_rows("SELECT 1 AS one") == 0
            assert replace(reader, room=0).estimate_rows(part.query) == 0
