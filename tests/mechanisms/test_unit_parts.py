"""Totals in parts of the units: those of all units together, whatever did not fit, and proved before they are read."""

from __future__ import annotations

import random
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import dpsql
from dpsql.lock.tree import Unproved
from dpsql.mechanisms import unit_parts
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import OutOfMemory, Reader, bind_parameters
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import open_session
from tests.support.parts import count_parts

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "who", max_rows_per_group = 3, max_groups = 2, columns = { \
    ward = { values = ["A", "B", "it's"] }, x = { bounds = [-3, 10] }, y = { bounds = [0.5, 1] } } }
plain = { source = "t", privacy_unit = "ROW" }
"""
STATEMENTS = [
    "SELECT COUNT(*), COUNT(x), SUM(x), AVG(y) FROM t",
    "SELECT COUNT(DISTINCT who), VAR_SAMP(x), CORR(x, y) FROM t WHERE x > 0",
    "SELECT ward, COUNT(*), SUM(x), AVG(y) FROM t GROUP BY ward",
    "SELECT note, COUNT(*), SUM(y) FROM t GROUP BY note",
    "SELECT note, d, b, k, COUNT(*) FROM t GROUP BY note, d, b, k",
    "SELECT WITH DP OPTIONS (max_rows_contributed = 4) ward, SUM(x) FROM t GROUP BY ward",
    "SELECT WITH DP OPTIONS (max_rows_contributed = 4) note, SUM(x) FROM t GROUP BY note",
    "SELECT WITH DP OPTIONS (max_groups_contributed = 1) note, COUNT(*) FROM t AS a GROUP BY note",
    "SELECT note, COUNT(*) FROM (SELECT who, note, MAX(x) AS x FROM t GROUP BY who, note) GROUP BY note",
]


MANY = "SELECT who, note, COUNT(*) FROM plain GROUP BY who, note"


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    """Units that are long texts, an empty one and none; values that are missing, not numbers, or beyond all bounds."""
    dice = random.Random(26)

    def row() -> str:
        pick = dice.choice
        who = pick(["NULL", "''", *(f"'{'somebody ' * 4}{i}'" for i in range(150))])
        x = pick(["NULL", "-90", "-3", "0", "4", "10", "2000000"])
        y = pick(["NULL", "'nan'", "'inf'", "-1.0", "0.5", "0.75", "1e30"])
        ward = pick(["NULL", "'A'", "'B'", "'it''s'", "'Z'"])
        day = pick(["NULL", "'2024-01-31'", "'infinity'"])
        return f"({who}, {ward}, {pick(['NULL', '1', '2'])} || 'note', {day}, {pick(['NULL', 'TRUE'])}, {pick('01')}, {x}, {y})"

    with open_session(
        POLICY,
        "CREATE TABLE t (who VARCHAR, ward VARCHAR, note VARCHAR, d DATE, b BOOLEAN, k HUGEINT, x INTEGER, y DOUBLE)",
        "INSERT INTO t VALUES " + ", ".join(row() for _ in range(900)),
    ) as session:
        yield session


def plan(session: dpsql.Session, text: str) -> tuple[Aggregation, Reader]:
    """Return the operator, and a reader that proves its texts; one salt for all."""
    operator = inside.bind(session, text).blocks[0].operator
    assert isinstance(operator, Aggregation)
    reader = Reader.over(session._pipeline.compiler.queries.reader({}, operator))
    return replace(operator, packed=None), bind_parameters(reader, {"salt": 2026})


def lack_memory(reader: Reader, fails: Callable[[str], bool]) -> Reader:
    """Return a reader that has no memory for some texts."""

    def execute(sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        if fails(sql):
            raise OutOfMemory("no room")
        return reader.execute(sql, lent)

    return replace(reader, execute=execute, stream=lambda sql, lent: iter((execute(sql, lent),)))


def totals(operator: Aggregation, reader: Reader) -> list[dict[str, object]]:
    """Return the totals of all groups, as integers; each group once."""
    tables = list(operator._totals(reader, Entropy()))
    assert len(tables) == 1 or operator.selection is not None
    table = pa.concat_tables(tables)
    names = [name for name in table.column_names if name != unit_parts.KEY_PART_COLUMN]
    table = table.select(names)
    if any(pa.types.is_date32(field.type) for field in table.schema):
        kinds = [pa.int32() if pa.types.is_date32(field.type) else field.type for field in table.schema]
        # Python has no infinite day
        table = table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
    whole = [
        {name: int(v or 0) if name not in operator.keys else v for name, v in row.items()}
        for row in table.to_pylist()
    ]
    groups = [repr([row[key] for key in operator.keys]) for row in whole]
    assert len(set(groups)) == len(groups)
    return sorted(whole, key=lambda row: repr([row[key] for key in operator.keys]))


@pytest.mark.parametrize("most", [16, 4, 1])
@pytest.mark.parametrize("text", STATEMENTS)
def test_parts_add_up_to_the_whole(session: dpsql.Session, text: str, most: int) -> None:
    """Of the same secret order: which rows and groups of a unit are kept is the same, in part and in whole."""
    operator, reader = plan(session, text)
    wanted = totals(operator, reader)
    assert any(row["units"] for row in wanted)
    read: list[int] = []

    def fails(sql: str) -> bool:
        read.append(count_parts(sql))
        return read[-1] > most

    assert totals(operator, lack_memory(reader, fails)) == wanted
    assert read.count(most) == unit_parts.PARTS // most
    assert read[:2] == [64, 16]


def test_a_part_that_is_forgotten_is_seen(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above would fail."""
    operator, reader = plan(session, STATEMENTS[0])
    wanted = totals(operator, reader)
    monkeypatch.setattr(unit_parts, "PARTS", 48)
    assert totals(operator, lack_memory(reader, lambda sql: ">> 58" not in sql)) != wanted


@pytest.mark.parametrize(
    ("statement", "room", "rows", "sizes"),
    [
        (0, 100, 900, [64]),  # all rows fit
        (0, 80, 900, [1, 64]),  # the units fit
        (0, 4, 900, [1, 16, 16, 16, 16]),
        (0, 0, 900, [64]),  # rows stay where they are
        (3, 8, 900, [1, 16, 16, 16, 16]),  # so many private groups would not
    ],
)
def test_one_part_tells_whether_all_fit(
    session: dpsql.Session, statement: int, room: int, rows: int, sizes: list[int]
) -> None:
    """Nobody fails first: of 150 units at most, each with a row of 12 bytes."""
    operator, reader = plan(session, STATEMENTS[statement])
    wanted, seen = totals(operator, reader), []

    def fails(sql: str) -> bool:
        seen.append(count_parts(sql))
        return False

    scarce = replace(lack_memory(reader, fails), room=room, rows=lambda sql: rows)
    assert totals(operator, scarce) == wanted
    assert seen == sizes


def test_nothing_fits(session: dpsql.Session) -> None:
    operator, reader = plan(session, STATEMENTS[0])
    with pytest.raises(OutOfMemory):
        totals(operator, lack_memory(reader, lambda sql: True))


def test_rows_as_units_are_read_in_parts_of_their_groups(session: dpsql.Session) -> None:
    operator, reader = plan(session, MANY)
    wanted = totals(operator, reader)
    assert len(wanted) > 100
    assert totals(operator, lack_memory(reader, lambda sql: count_parts(sql) > 16)) == wanted


@pytest.mark.parametrize("text", [MANY, STATEMENTS[4]])
def test_groups_beyond_memory_are_added_up_on_disk(session: dpsql.Session, tmp_path: Path, text: str) -> None:
    """A part of the groups after another, of private files that are removed; what one of them left unfinished counts nowhere."""
    operator, reader = plan(session, text)
    wanted, failed, modes = totals(operator, reader), [], set()

    def stream(sql: str, lent: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        if count_parts(sql) == 64:
            raise OutOfMemory("no room")
        table = reader.execute(sql, lent)
        modes.update(stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir())
        yield table.slice(0, 2)
        if count_parts(sql) == 16 and "AND 63" in sql:  # the last quarter fails after its first rows
            failed.append(sql)
            raise OutOfMemory("no room")
        yield table.slice(2)

    folder = tmp_path / "own"

    def spill() -> Path:
        folder.mkdir()
        return folder

    assert totals(operator, replace(reader, stream=stream, spill=spill, room=2)) == wanted
    assert len(failed) == 1
    assert modes == {0o600}
    assert not folder.exists()


@pytest.mark.parametrize("statement", [3, 4])
def test_each_part_of_the_groups_is_read_once(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, statement: int
) -> None:
    """The keys decide a group's part, whichever part of the units it is in: that the tests above would fail."""
    operator, reader = plan(session, STATEMENTS[statement])
    tables = list(operator._totals(lack_memory(reader, lambda sql: count_parts(sql) > 4), Entropy()))
    assert len(tables) == unit_parts.PARTS
    assert sum(table.num_rows > 0 for table in tables) > 1


@pytest.mark.parametrize("text", [STATEMENTS[2], STATEMENTS[3]])
def test_a_session_answers_in_parts(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Answers at so large an epsilon that they are exact, of units of two rows and groups at most, so that none is cut."""
    asked = text.replace("FROM t", "FROM (SELECT * FROM t WHERE y = 0.75 AND b)")
    wanted = [row[:2] for row in session.sql(asked, fresh=True).fetchall()]
    monkeypatch.setattr(Aggregation, "_totals", _in_parts(Aggregation._totals))
    assert [row[:2] for row in session.sql(asked, fresh=True).fetchall()] == wanted
    assert all(n > 0 for _, n in wanted)
    monkeypatch.setattr(unit_parts, "PARTS", 16)  # of 64
    assert [row[:2] for row in session.sql(asked, fresh=True).fetchall()] != wanted, "it can fail"


def _in_parts(plain: Callable[..., object]) -> Callable[..., object]:
    def totals(self: Aggregation, read: Reader, entropy: Entropy) -> object:
        scarce = lack_memory(read, lambda sql: count_parts(sql) == 64)
        return plain(replace(self, packed=None), scarce, entropy)

    return totals


FORGED = {
    "a row more": (STATEMENTS[0], r"LEAST\(p0, 3\)", "LEAST(p0, 4)"),
    "a group more": (STATEMENTS[3], r"lag\(u, 2\)", "lag(u, 3)"),
    "another's rows": (
        STATEMENTS[0],
        r'NOT "base"."who" IS NULL|"dpsql_table_1"."dpsql_unit" IS NOT NULL',
        "1 = 1",
    ),
    "parts that look at all rows": (
        STATEMENTS[0],
        r"BETWEEN \$first AND \$last",
        "< (SELECT MAX(x) FROM memory.main.t)",
    ),
    "a part of the groups that rows decide": (
        STATEMENTS[3],
        r"CAST\(hash\(xor\(hash\(k0\), \$salt\)\) >> 58 AS UTINYINT\) AS key_part",
        "CAST(COUNT(*) % 64 AS UTINYINT) AS key_part",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_part_is_not_read(session: dpsql.Session, name: str) -> None:
    """What a deceived binder wrote into the text of parts alone: the plain text was proved, and says nothing about it."""
    text, pattern, wrong = FORGED[name]
    operator, _ = plan(session, text)
    inside.check(session, inside.bind(session, text))
    text, hits = re.subn(pattern, wrong, operator.unit_parts)
    assert hits, operator.unit_parts
    forged = replace(operator, unit_parts=text)
    reader = bind_parameters(session._pipeline.compiler.queries.reader({}, forged), {"salt": 2026})
    with pytest.raises(Unproved):
        totals(forged, lack_memory(reader, lambda sql: count_parts(sql) == 64 and "<" not in sql))
