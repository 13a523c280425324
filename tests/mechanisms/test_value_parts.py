"""Counts of different values in parts of the values: those of all together, proved before they are read, and when they are."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

import dpsql
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.base import OutOfMemory, Reader, bind_parameters
from dpsql.mechanisms.histograms import DistinctCount
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import open_session
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


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    """Values that are missing, not numbers, zeros of two signs, a month and its thirty days."""
    dice = random.Random(27)

    def row() -> str:
        pick = dice.choice
        who = pick(["NULL", *(f"'{'somebody ' * 4}{i}'" for i in range(150))])
        ward = pick(["NULL", "'A'", "'B'", "'it''s'", "'Z'"])
        note = pick(["NULL", "''", *(f"'a long note {i}'" for i in range(400))])
        numbers = ("nan", "-nan", "inf", "-inf", "0.0", "-0.0", *(i / 7 for i in range(50)))
        y = pick(["NULL", *(f"'{number}'" for number in numbers)])
        day = pick(["NULL", "'infinity'", *(f"'2024-01-{i:02}'" for i in range(1, 30))])
        span = pick(["NULL", "'1 month'", "'30 days'", "'720 hours'", "'1 year'"])
        many = pick(["NULL", "[]", "[NULL]", "['0.0']", "['-0.0']", "['nan', '1']"])
        return f"({who}, {ward}, {note}, {day}, {dice.choice([*range(90)])}, {y}, {span}, {many})"

    with open_session(
        POLICY,
        "CREATE TABLE t (who VARCHAR, ward VARCHAR, note VARCHAR, d DATE, k HUGEINT, y DOUBLE, span INTERVAL, "
        "list DOUBLE[])",
        "INSERT INTO t VALUES " + ", ".join(row() for _ in range(900)),
    ) as session:
        yield session


def plan(session: dpsql.Session, text: str) -> tuple[DistinctCount, Reader]:
    """Return the part, and a reader that proves its texts; one salt for all."""
    operator = inside.bind(session, text).blocks[0].operator
    assert isinstance(operator, Together)
    (part,) = operator.parts
    assert isinstance(part, DistinctCount)
    return part, bind_parameters(
        Reader.over(session._pipeline.compiler.queries.reader({}, operator)), {"salt": 2027}
    )


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
