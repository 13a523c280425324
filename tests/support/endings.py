"""How statements end on two databases that differ in one person, whose rows hold the extremes of every type.

An ending is all that an analyst or an owner sees but for the noise: an answer or an error, its class and words, the names and
types of the columns, the notes, the charge, the lines of the ledger, the files that are left. No two may differ.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.engine import base as engine_base
from tests.support import inside
from tests.support.case_files import read_part
from tests.support.nasty import COLUMNS

PEOPLE, EXTREME = 240, 5000
POLICY = """
[budget]
epsilon = 1e12
delta = 0.5
accountant = "basic"
default_epsilon = 20
default_delta = 1e-15
[tables.t]
privacy_unit = "uid"
max_rows = 8
max_groups = 4
[tables.t.columns]
num = { bounds = [0, 10] }
ward = { values = ["a", "b"] }
hb = { bounds = [0, 5] }
hv = { values = [0, 1] }
zz = { time_zone = "America/New_York", bounds = [2019-12-30, 2020-01-03] }
[tables.other]
privacy_unit = "uid"
max_rows = 8
max_groups = 4
[tables.pub]
public = true
"""
_MOST, _MOST_UNSIGNED = 2**127 - 1, 2**128 - 1
_FURTHER: dict[str, tuple[str, list[str]]] = {
    "dt": (
        "DATE",
        [
            "'infinity'",
            "'-infinity'",
            "'5877642-06-25 (BC)'",
            "'5881580-07-10'",
            "'294247-01-11'",
            "'290309-12-21 (BC)'",
        ],
    ),
    "iv": (  # Arrow counts nanoseconds in 64 bits, so the last two wrap: the first of them to zero
        "INTERVAL",
        [
            *("'178000000 years'", "'-178000000 years'", "'2147483647 days'", "'-2147483648 days'"),
            *(f"to_microseconds({2**61})", f"to_microseconds({2**63 - 1})"),
        ],
    ),
    "jt": (  # texts of a megabyte, and JSON that is deep, wide, far or none
        "VARCHAR",
        [
            *("repeat('a', 1048576)", "repeat('[', 500000)", "'{\"a\": 1e400}'", '\'{"a": "\\ud800"}\''),
            *("'{\"a\": {\"b\": [' || repeat('{\"c\":', 3000) || '1' || repeat('}', 3000) || ']}}'", "''"),
        ],
    ),
    "uti2": ("USMALLINT", ["0", "65535"]),
    "hb": ("HUGEINT", [str(_MOST), f"-{_MOST}", str(10**38)]),
    "hv": ("HUGEINT", [str(_MOST), f"-{_MOST}", str(10**38)]),
    "wd": ("DECIMAL(38,38)", [f"'0.{'9' * 38}'", f"'-0.{'9' * 38}'"]),
    "wk": ("DECIMAL(38,37)", [f"'9.{'9' * 37}'", "0"]),
    "lh": ("HUGEINT[]", [f"[{_MOST}]", "[]", f"[NULL, -{_MOST}]"]),
    "lu": (
        "UHUGEINT[]",
        [f"[CAST('{_MOST_UNSIGNED}' AS UHUGEINT)]", f"[CAST('{2**127}' AS UHUGEINT), CAST(1 AS UHUGEINT)]"],
    ),
    "lw": ("DECIMAL(38,37)[]", ["[9.5]", "[0.1, NULL]"]),
    "lb": ("BIGINT[]", [f"[{2**63 - 1}]", "[77, 1]"]),
    "ld": ("DATE[]", ["['infinity'::DATE]", "['5877642-06-25 (BC)'::DATE]"]),
    "ar": ("INTEGER[2]", ["[77, 2147483647]", "[NULL, 1]"]),
    "sh": (
        "STRUCT(a HUGEINT, b UHUGEINT)",
        [f"{{'a': {_MOST}, 'b': {_MOST_UNSIGNED}}}", "{'a': NULL, 'b': 1}"],
    ),
    "sn": ("STRUCT(a STRUCT(b HUGEINT[]))", [f"{{'a': {{'b': [-{_MOST}, {_MOST}]}}}}"]),
    "en": ("ENUM('a', 'rare', '77')", ["'rare'", "'77'"]),
    "tms": ("TIMESTAMP_MS", ["'294247-01-10 04:00:54'", "'290309-12-22 (BC) 00:00:00'", "'infinity'"]),
    "zz": (
        "TIMESTAMPTZ",
        ["'294247-01-10 04:00:54.775806+00'", "'-infinity'", "'infinity'", "'290309-12-22 (BC) 00:00:00+00'"],
    ),
    "ttz": ("TIMETZ", ["'24:00:00+15:59:59'", "'00:00:00-15:59:59'"]),
    "bt": ("BIT", ["'1'", "'0'"]),
    "bl": ("BLOB", ["''", "'\\xFF\\x00'"]),
    "mp": ("MAP(VARCHAR, HUGEINT)", [f"MAP {{'a': {_MOST}}}"]),
}
KEYS: dict[str, tuple[str, list[str]]] = {**COLUMNS, **_FURTHER}
"""The columns of the private table: a type, and its extremes as SQL."""
_MILD = {
    "BOOLEAN": ("true", "false"),
    "VARCHAR": ("'a'", "'b'"),
    "UUID": (f"'{'0' * 32}'", f"'{'1' * 32}'"),
    "DATE": ("'2020-01-01'", "'2020-01-02'"),
    "TIME": ("'01:00:00'", "'02:00:00'"),
    "TIMETZ": ("'01:00:00+00'",) * 2,
    "INTERVAL": ("'1 day'", "'2 days'"),
    "BIT": ("'1'",) * 2,
    "BLOB": ("'a'", "'b'"),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP_S", "TIMESTAMP_MS"), ("'2020-01-01'", "'2020-01-02'")
    ),
    "TIMESTAMPTZ": ("'2020-01-01 00:00:00+00'",) * 2,
    "ENUM('a', 'rare', '77')": ("'a'",) * 2,
    "DECIMAL(38,38)": ("'0.1'", "'0.2'"),
    "INTEGER[]": ("[1]", "[1, 2]"),
    "VARCHAR[]": ("['a']", "['b']"),
    "HUGEINT[]": ("[1]", "[2]"),
    "UHUGEINT[]": ("[1]", "[2]"),
    "DECIMAL(38,37)[]": ("[1]", "[2]"),
    "BIGINT[]": ("[1]", "[2]"),
    "DATE[]": ("['2020-01-01'::DATE]",) * 2,
    "INTEGER[2]": ("[1, 2]", "[2, 1]"),
    "STRUCT(a HUGEINT, b UHUGEINT)": ("{'a': 1, 'b': 2}", "{'a': 2, 'b': 1}"),
    "STRUCT(a STRUCT(b HUGEINT[]))": ("{'a': {'b': [1]}}",) * 2,
    "MAP(VARCHAR, HUGEINT)": ("MAP {'a': 1}",) * 2,
    'STRUCT(a INTEGER, "b c" VARCHAR, d DOUBLE[])': ("{'a': 1, 'b c': 'x', 'd': [1.5]}",) * 2,
}
_RARE = "(who = 'rare')"


def _cast(value: str, kind: str) -> str:
    return f"CAST({value} AS {kind})"


def tables(person: bool, columns: Collection[str] = KEYS) -> duckdb.DuckDBPyConnection:
    """Open the database, with the person whose rows hold the extremes or without. ``columns``: those of KEYS it has."""
    con = duckdb.connect(config={"threads": 1})
    con.execute("SET TimeZone = 'UTC'")
    kinds = {name: kind for name, (kind, _) in KEYS.items() if name in columns}
    listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    for table in ("t", "other"):
        con.execute(f"CREATE TABLE {table} (uid INTEGER, who VARCHAR, num INTEGER, ward VARCHAR, {listed})")
        mild = ", ".join(_mild_of(kind, "i % 2 = 0") for kind in kinds.values())
        con.execute(
            f"INSERT INTO {table} SELECT i, 'flu', i % 7, 'ab'[1 + i % 2], {mild} FROM range({PEOPLE}) r(i)"
        )
        for place in range(6 if person else 0):
            cells = [
                _cast(KEYS[name][1][place], kind) if place < len(KEYS[name][1]) else "NULL"
                for name, kind in kinds.items()
            ]
            con.execute(f"INSERT INTO {table} SELECT {EXTREME}, 'rare', 3, 'a', {', '.join(cells)}")
    con.execute(
        f"CREATE TABLE pub AS SELECT {', '.join(f'{_mild_of(k, chr(116))} AS {c}' for c, k in kinds.items())}, "
        "'x' AS word FROM (VALUES (true), (false)) r(t)"
    )
    return con


def _mild_of(kind: str, which: str) -> str:
    first, second = _MILD.get(kind, ("1", "0"))
    if kind == "INTEGER[2]":  # DuckDB 1.5 has no CASE of arrays
        return f"CAST([CASE WHEN {which} THEN 1 ELSE 2 END, 3] AS {kind})"
    return f"CASE WHEN {which} THEN {_cast(first, kind)} ELSE {_cast(second, kind)} END"


# -- statements ---------------------------------------------------------------------------------------------------

_KEY_FORMS = tuple(read_part(__file__, "_KEY_FORMS"))
"""Every way in which a value leaves."""
_MEETINGS = tuple(read_part(__file__, "_MEETINGS"))
"""Every place in which two types meet; ``a`` is private, ``b`` of either kind, ``p`` and ``q`` public or of another table."""
_MEETING_FORMS = tuple(read_part(__file__, "_MEETING_FORMS"))
_LITERALS = (
    ("1", "INTEGER"),
    ("1.5", "DECIMAL(2,1)"),
    ("CAST(1 AS DECIMAL(38, 37))", "DECIMAL(38,37)"),
    ("CAST(0.5 AS DECIMAL(38, 38))", "DECIMAL(38,38)"),
    (f"1.{'0' * 36}1", "DECIMAL(38,37)"),
    ("CAST(1 AS HUGEINT)", "HUGEINT"),
    ("CAST(1 AS UHUGEINT)", "UHUGEINT"),
    ("CAST(1 AS UTINYINT)", "UTINYINT"),
    ("CAST(1 AS TINYINT)", "TINYINT"),
    ("CAST(1 AS UBIGINT)", "UBIGINT"),
    ("CAST(1.5 AS DOUBLE)", "DOUBLE"),
    ("CAST(1.5 AS FLOAT)", "FLOAT"),
    ("1e300", "DOUBLE"),
    ("'a'", "VARCHAR"),
    ("'1'", "VARCHAR"),
    ("'2020-01-01'", "VARCHAR"),
    ("DATE '2020-01-01'", "DATE"),
    ("TIMESTAMP '2020-01-01'", "TIMESTAMP"),
    ("TIMESTAMPTZ '2020-01-01 00:00:00+00'", "TIMESTAMPTZ"),
    ("'2020-01-01T00:00:00Z'", "TIMESTAMPTZ"),
    ("TIME '01:00:00'", "TIME"),
    ("true", "BOOLEAN"),
    ("NULL", "INTEGER"),
    ("[1]", "INTEGER[]"),
    ("[CAST(1 AS DECIMAL(38, 37))]", "DECIMAL(38,37)[]"),
    ("CAST([1] AS INTEGER[1])", "INTEGER[1]"),
    ("[DATE '2020-01-01']", "DATE[]"),
    ("INTERVAL 1 DAY", "INTERVAL"),
    ("CAST(1 AS DECIMAL(4, 1))", "DECIMAL(4,1)"),
    ("{'a': 1}", "STRUCT(a INTEGER)"),
    ("{'a': CAST(1 AS DECIMAL(38, 37))}", "STRUCT(a DECIMAL(38,37))"),
)
_CHOSEN = (
    ("100", "1", "INTEGER"),
    ("2147483647", "0", "INTEGER"),
    ("-1", "1", "INTEGER"),
    ("[1, 2]", "[1]", "INTEGER[]"),
    ("[100]", "[1]", "INTEGER[]"),
    ("'rare'", "'1'", "VARCHAR"),
    ("1e308", "1.0", "DOUBLE"),
    ("NULL", "1", "INTEGER"),
    ("DATE '5881580-07-10'", "DATE '2020-01-01'", "DATE"),
    ("CAST(77 AS UHUGEINT)", "CAST(1 AS UHUGEINT)", "UHUGEINT"),
    ("CAST(-128 AS TINYINT)", "CAST(1 AS TINYINT)", "TINYINT"),
    ("{'a': 100}", "{'a': 1}", "STRUCT(a INTEGER)"),
)


@dataclass(frozen=True)
class Composed:
    """A statement, or a condition that may stand with others in one statement."""

    text: str
    condition: bool = False

    @property
    def statement(self) -> str:
        return f"SELECT COUNT_IF({self.text}) FROM t" if self.condition else self.text


class Composer:
    """Writes random statements over some of the columns; three of four meetings are of types that may meet."""

    def __init__(self, seed: int, columns: Sequence[str] = tuple(KEYS)) -> None:
        self.random = random.Random(seed)
        self.columns = columns

    def compose(self) -> Composed:
        if self.random.random() < 0.12:
            return Composed(self._key())
        a, family = self._private()
        near = family if self.random.random() < 0.75 else None
        b, kind = self._other(near)
        literal = self._literal(near)
        c = self._column(near)
        parts = {
            "a": a,
            "b": b,
            "kind": kind,
            "p": literal[0],
            "q": self.random.choice([c, literal[0], c]),
            "c": c,
            "r": _RARE,
        }
        if self.random.random() < 0.15:
            return Composed(self.random.choice(_MEETING_FORMS).format(**parts))
        return Composed(self.random.choice(_MEETINGS).format(**parts), True)

    def _column(self, near: str | None = None) -> str:
        found = [name for name in self.columns if near in (None, _family(KEYS[name][0]))]
        return self.random.choice(found or self.columns)

    def _literal(self, near: str | None) -> tuple[str, str]:
        found = [item for item in _LITERALS if near in (None, _family(item[1]))]
        return self.random.choice(found or _LITERALS)

    def _key(self) -> str:
        c = self._column()
        k = self.random.choice(
            [
                c,
                c,
                c,
                c,
                f"[{c}]",
                f"-{c}",
                f"{c} + 1",
                f"{c} * 2",
                f"abs({c})",
                f"COALESCE({c}, NULL)",
                f"{{'x': {c}}}",
                f"(CASE WHEN {_RARE} THEN 1 ELSE 0 END)::HUGEINT * 9223372036854775807 * 9223372036854775807 * 2",
                f"CASE WHEN {_RARE} THEN {c} END",
                f"CAST({c} AS HUGEINT)",
                f"CAST({c} AS UHUGEINT)",
                f"CAST({c} AS DECIMAL(38, 0))",
                *(self._zoned(c) if "TIME" in KEYS[c][0] else ()),
            ]
        )
        return self.random.choice(_KEY_FORMS).format(k=k, c=c)

    def _zoned(self, c: str) -> list[str]:
        zone = self.random.choice(("UTC", "America/New_York", "Pacific/Kiritimati"))
        local = f"{c} AT TIME ZONE '{zone}'"
        return [
            local,
            local,
            f"date_trunc('day', {c}, '{zone}')",
            f"({local})::DATE",
            f"epoch({c})",
            f"epoch_ms({c})",
        ]

    def _private(self) -> tuple[str, str]:
        """Return a private expression, and the family of its type."""
        rare, mild, kind = self.random.choice(_CHOSEN)
        c = self._column()
        own, family = _family(KEYS[c][0]), _family(kind)
        other = self.random.choice([item[1] for item in _CHOSEN if _family(item[2]) == own] or [mild])
        return self.random.choice(
            [
                (c, own),
                (c, own),
                (f"(CASE WHEN {_RARE} THEN {rare} ELSE {mild} END)", family),
                (f"COALESCE({c}, {other})", own),
            ]
        )

    def _other(self, near: str | None) -> tuple[str, str]:
        c = self._column(near)
        return self.random.choice([self._literal(near), self._literal(near), (c, KEYS[c][0])])


def _family(kind: str) -> str:
    """Return a word for the types that a type may meet."""
    if kind.endswith("]"):
        return "list of " + _family(kind[: kind.rindex("[")])
    word = re.match("[A-Z]*", kind)
    return {"ENUM": "text", "VARCHAR": "text", "UUID": "text", "STRUCT": "struct", "MAP": "map"}.get(
        word[0], "time" if "TIME" in kind or kind == "DATE" else kind if word[0] in _APART else "number"
    )


_APART = ("BOOLEAN", "INTERVAL", "BIT", "BLOB")


# -- endings ------------------------------------------------------------------------------------------------------

_OF_RELEASES = re.compile(
    r"is noise around 0|found privately|no larger cap was found|no group was kept|not stable|did not pass|no value was|"
    r"too few rows for|of [0-9,]+ blocks|groups? of the ranges? (is|are) not shown"
)
"""Words of notes about what was released."""
Ending = tuple[object, ...]


@dataclass
class Neighbours:
    """Two sessions on some of the columns, and the statements that ended otherwise in one of them."""

    folder: Path
    columns: Sequence[str] = tuple(KEYS)
    plan_once: bool = False
    """Whether both sessions answer by one plan, bound and proved by the session that has the person."""
    different: list[tuple[str, Ending, Ending]] = field(default_factory=list)
    answered: int = 0
    tried: int = 0

    def __post_init__(self) -> None:
        policy = dpsql.Policy.loads(
            "".join(line for line in POLICY.splitlines(True) if _declares(line, self.columns))
        )
        self.places = [self.folder / name for name in ("with", "without")]
        for place in self.places:
            place.mkdir(parents=True)
        self.sessions = [
            dpsql.connect(tables(person, self.columns), policy=policy, ledger=place / "ledger")
            for person, place in zip((True, False), self.places, strict=True)
        ]
        if self.plan_once:
            inside.plan_once(*self.sessions)

    def close(self) -> None:
        for session in self.sessions:
            session.close()

    def check(self, composed: Iterable[Composed], together: int = 12) -> None:
        """Compare how statements end; conditions that are bound alone are asked together."""
        waiting: list[Composed] = []
        for item in composed:
            self.tried += 1
            if not item.condition:
                self._compare([item])
                continue
            if self._bind(item):
                waiting.append(item)
            if len(waiting) == together:
                self._compare(waiting)
                waiting = []
        if waiting:
            self._compare(waiting)

    def _bind(self, item: Composed) -> bool:
        """Return whether a statement is bound; a refusal is in the same words for both."""
        found = _bound(self.sessions[0], item.statement)
        if found == ("bound",):
            return True  # the other is asked with those that are answered
        other = found if self.plan_once else _bound(self.sessions[1], item.statement)
        if found != other or found[0] == "foreign":
            self.different.append((item.statement, found, other))
        return False

    def _compare(self, items: list[Composed]) -> None:
        text = items[0].statement
        if len(items) > 1:  # a sum evaluates all of them
            whole = " + ".join(f"(CASE WHEN {item.text} THEN 1 ELSE 0 END)" for item in items)
            text = f"SELECT COUNT_IF({whole} > 3) FROM t"
        found = [
            _end(session, text, place) for session, place in zip(self.sessions, self.places, strict=True)
        ]
        self.answered += len(items) if found[0][0] == "answer" else 0
        alike = found[0] == found[1] and found[0][0] != "foreign" and "EngineError" not in found[0]
        if alike and (len(items) == 1 or found[0][0] == "answer"):
            return
        if len(items) == 1:
            self.different.append((text, *found))
        for item in items if len(items) > 1 else ():  # one of them is refused, or ends otherwise
            self._compare([item])

    def compare_ledgers(self) -> None:
        """Compare the lines that the ledgers have of all statements."""
        lines = [_lines(session) for session in self.sessions]
        self.different += [(str(a), a, b) for a, b in zip(*lines, strict=False) if a != b]
        if len(lines[0]) != len(lines[1]):
            self.different.append(("the numbers of lines", (len(lines[0]),), (len(lines[1]),)))


def _declares(line: str, columns: Collection[str]) -> bool:
    """Return whether a line of the policy is of no column that the tables lack."""
    name = line.partition(" ")[0]
    return name not in KEYS or name in columns


def _bound(session: dpsql.Session, text: str) -> Ending:
    try:
        inside.bind(session, text)
    except dpsql.Error as error:
        return ("error", type(error).__name__, *error.lines())
    except Exception as error:
        return ("foreign", type(error).__name__, str(error))
    return ("bound",)


def _end(session: dpsql.Session, text: str, place: Path) -> Ending:
    before = session.budget()
    said: Ending
    try:
        result = session.sql(text)
        schema = result.to_arrow().schema
        notes = sorted(note for note in result.notes if not _OF_RELEASES.search(note))
        result.fetchall()
        said = ("answer", *schema.names, *map(str, schema.types), *notes, result.loss)
    except dpsql.Error as error:
        said = ("error", type(error).__name__, *error.lines())
    except Exception as error:
        said = ("foreign", type(error).__name__, str(error))
    after = session.budget()
    spent = (after.spent_epsilon - before.spent_epsilon, after.spent_delta - before.spent_delta)
    return (*said, spent, *sorted(os.listdir(place)))


def _lines(session: dpsql.Session) -> list[Ending]:
    """Return the ledger's lines without their times."""
    table = session.sql("SHOW LEDGER").to_arrow()
    kept = [
        name
        for name in table.column_names
        if name.lower() not in ("time", "at", "when", "started", "ended", "seconds")
    ]
    return [tuple(row[name] for name in kept) for row in table.select(kept).to_pylist()]


def compose(seeds: Iterable[int], columns: Sequence[str] = tuple(KEYS)) -> Iterator[Composed]:
    """Return a statement for each seed."""
    return (Composer(seed, columns).compose() for seed in seeds)


def compare(folder: Path, seeds: range, together: int = 400) -> list[Neighbours]:
    """Compare how the statements of seeds end: so many together over tables of a few columns, which cost less to read.

    Each column is in one of the tables for each ``GROUPS`` times so many seeds. Every second part reads by the quicker routes of
    large tables. A plan depends on text, policy and schema alone, so each session binds and proves for itself only in every
    fifth part; the others compare what follows a plan.
    """
    made = []
    for place, first in enumerate(range(seeds.start, seeds.stop, together)):
        names = [*KEYS]
        random.Random(seeds.start + place // GROUPS).shuffle(names)
        columns = [*names[place % GROUPS :: GROUPS], *ALWAYS]
        number = first // together
        neighbours = Neighbours(folder / str(first), sorted({*columns}), plan_once=number % APART != 0)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("LITTLE_ROWS", "LITTLE_BYTES"):
                patch.setattr(engine_base, name, -1 if number % 2 else 10**9)
            try:
                neighbours.check(compose(range(first, min(first + together, seeds.stop)), neighbours.columns))
                neighbours.compare_ledgers()
            finally:
                neighbours.close()
        made.append(neighbours)
    return made


GROUPS, ALWAYS, APART = 5, ("h",), 5
"""The parts that the columns come in, a column that every part has, and how often both sessions plan for themselves."""
