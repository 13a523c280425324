"""Proofs of many texts at once: what a pattern covers would be proved by itself, and what a proof reads is never left open."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import duckdb
import pytest

import dpsql
from dpsql.exact.normal_form import restore_values
from dpsql.lock import lock
from dpsql.lock.check import Serialise, check, check_pattern
from dpsql.lock.lock import Patterns, ShapedText
from dpsql.lock.tree import Known, Unproved
from dpsql.mechanisms.base import Claim, ClaimedText, RowsClaim, SensitivityClaim, SumsClaim
from tests.support import inside
from tests.support.fixtures import session_fixture
from tests.support.lock_faults import FAULTS, POLICY, make_visits
from tests.support.lock_texts import KNOWN, forge_texts, serialise, visits, why

STATEMENTS = [
    "SELECT COUNT(*) AS n, SUM(amount) AS s FROM visits WHERE amount > {}",
    "SELECT COUNT(*) AS n FROM visits WHERE amount BETWEEN {} AND {} OR note IN ('a', '{}')",
    "SELECT note, AVG(amount) AS a FROM visits WHERE patient_id <> {} GROUP BY note",
    "SELECT MEDIAN(amount) AS m FROM visits WHERE note = '{}'",
    "SELECT COUNT(DISTINCT note) AS n FROM visits WHERE amount < {}.5",
    "SELECT COUNT(*) AS n FROM visits AS a JOIN visits AS b USING (patient_id) WHERE a.amount > {} AND b.amount < {}",
    "SELECT COUNT(*) AS n FROM visits AS v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id "
    "AND w.amount > {})",
    "SELECT WITH STABLE ward, IQR(amount) AS w FROM visits WHERE amount <> {} GROUP BY ward",
    "SELECT HISTOGRAM(amount, [{}, 1000]) AS h FROM visits",
]
"""Statements with places for values."""
Covered = list[tuple[ClaimedText, Known]]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        make_visits(con)
        yield con


session = session_fixture(POLICY, scope="function")


def fill(statement: str, number: int) -> str:
    """Return a statement with values that differ from those of any other number."""
    return statement.format(*(3 * number + place for place in range(statement.count("{}"))))


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> Covered:
    """All texts that are proved by themselves from here on."""
    made: Covered = []

    def counted(claimed: ClaimedText, known: Known, parser: Serialise) -> None:
        made.append((claimed, known))
        check(claimed, known, parser)

    monkeypatch.setattr(lock, "check", counted)
    return made


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_differs_in_values_alone_is_proved_already(
    session: dpsql.Session, proofs: Covered, statement: str
) -> None:
    session.sql(fill(statement, 1))
    first = len(proofs)
    session.sql(fill(statement, 2))
    del proofs[:]
    for number in (3, 4):
        session.sql(fill(statement, number))
    assert first > 0
    assert not proofs


def draw_value(kind: str, rng: random.Random) -> str:
    if kind == "[integer]":
        return str(rng.choice([0, 1, 2, 5, 2**31, 10**18 - 1, rng.randrange(1000)]))
    if kind == "[number]":
        return rng.choice(["0.0", ".5", "99999999999.25", "1.", "3.000"])
    return "'" + rng.choice(["", "x", "''", "$salt", "r0.c1 -- ", "1) OR (1 = 1", "t", "\n"]) + "'"


def test_whatever_a_pattern_covers_is_proved_by_itself(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that reads more into an open value than that it is one fails here."""
    known: list[tuple[ShapedText, ClaimedText, Known]] = []
    prove = lock.Lock.prove

    def noted(
        self: lock.Lock, claimed: ClaimedText, lent: lock.Columns, shaped: ShapedText | None = None
    ) -> None:
        prove(self, claimed, lent, shaped)
        if shaped is not None:
            known.append((shaped, claimed, self._known(lent)))

    monkeypatch.setattr(lock.Lock, "prove", noted)
    for statement in STATEMENTS:
        for number in (1, 2):
            session.sql(fill(statement, number))
    families = session._pipeline.compiler.queries.gate._lock._patterns._families
    rng, tried = random.Random(7), 0
    for shaped, claimed, tables in known:
        for (shape, _), family in families.items():
            for pattern in family.proved if shape == shaped.shape else ():
                for _ in range(4):
                    values = [
                        draw_value(found, rng) if found in ("[integer]", "[number]", "[text]") else found
                        for found in pattern
                    ]
                    text = restore_values(shape, tuple(values))
                    check(replace(claimed, text=text), tables, serialise)
                    tried += 1
    assert tried > 100


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_binder_is_refused_although_patterns_are_proved(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statement, pattern, wrong = FAULTS[name]
    asked = re.sub("FROM visits", "FROM visits WHERE amount <> {}", statement)
    for number in (1, 2, 3):
        session.sql(fill(asked, number))
    before, hits = str(session.budget().spent), forge_texts(monkeypatch, pattern, wrong)
    for number in (4, 5):
        with pytest.raises(dpsql.PrivacyError, match="could not be proved safe"):
            session.sql(fill(asked, number))
    assert sum(hits), "the text has no such place"
    assert str(session.budget().spent) == before


# -- what a proof reads is never left open ----------------------------------------------------------------------------------

UNIT = '"r1"."unit7f3a"'
COUNTS = SumsClaim((), (("p0", SensitivityClaim(3)),))
HELD = (
    f'SELECT COALESCE(SUM(LEAST("r90"."p0", $value0)), 0) AS "p0" FROM (SELECT "r91"."u" AS "u", COUNT(*) AS "p0" FROM '
    f'(SELECT {UNIT} AS "u" FROM {visits(1)} WHERE "r1"."c3" > $value1) AS "r91" GROUP BY "r91"."u") AS "r90"'
)
CAPPED = (
    f'SELECT {UNIT} AS "u", "r1"."c3" AS "c3" FROM {visits(1)} WHERE "r1"."c3" > $value0 '
    f'QUALIFY row_number() OVER (PARTITION BY {UNIT} ORDER BY hash($salt, "r1"."c1", "r1"."c3")) <= $value1'
)


def learn(patterns: Patterns, shape: str, values: Sequence[str], claim: Claim) -> None:
    """Prove a text, and the pattern that it suggests."""
    shaped = ShapedText(shape, tuple(values))
    check(ClaimedText(restore_values(shape, tuple(values)), claim), KNOWN, serialise)

    def prove(pattern: str, names: frozenset[str]) -> None:
        check_pattern(ClaimedText(pattern, claim), KNOWN, serialise, names)

    patterns.learn(shaped, claim, prove)


@pytest.mark.parametrize(
    ("shape", "claim", "cap", "open_"),
    [(HELD, COUNTS, 0, 1), (CAPPED, RowsClaim(3, 1), 1, 0)],
    ids=["a count that is held", "a cap on rows"],
)
def test_a_cap_is_never_left_open(shape: str, claim: Claim, cap: int, open_: int) -> None:
    def values(at_cap: str, at_open: str) -> list[str]:
        return [at_cap, at_open] if cap == 0 else [at_open, at_cap]

    patterns = Patterns()
    for at_cap in ("2", "3", "1", "2"):  # all are within the claim, so only the pattern itself can be refused
        learn(patterns, shape, values(at_cap, "7"), claim)
    assert not patterns.cover(ShapedText(shape, tuple(values("4", "7"))), claim)
    assert "charged" in why(restore_values(shape, tuple(values("4", "7"))), claim)
    for at_open in ("8", "9"):
        learn(patterns, shape, values("2", at_open), claim)
    assert patterns.cover(ShapedText(shape, tuple(values("2", "1000"))), claim)
    assert not patterns.cover(ShapedText(shape, tuple(values("3", "1000"))), claim)
    assert not patterns.cover(ShapedText(shape, tuple(values("4", "1000"))), claim)
    assert not patterns.cover(ShapedText(shape, tuple(values("2", "'x'"))), claim), "another kind of value"
    assert not patterns.cover(ShapedText(shape, tuple(values("2", "1e9"))), claim), (
        "no kind that is left open"
    )
    other = SumsClaim((), (("p0", SensitivityClaim(2)),))
    assert not patterns.cover(ShapedText(shape, tuple(values("2", "1000"))), other), "another claim"


@pytest.mark.parametrize(
    ("tail", "first", "second"),
    [
        (' AND "r1"."c4" = e$value0', "'a'", "'b'"),
        (' AND "r1"."c4" = U&$value0', "'a'", "'b'"),
        (' AND "r1"."c3" > $value0e5', "1", "2"),
        (' AND "r1"."c3" > -$value0', "1", "2"),
        (' AND "r1"."c3" > $value0 -- that is all', "1", "2"),
        (' AND "r1"."c3" > $value0 /* that is all */', "1", "2"),
        (' AND "r1"."c4" = $$ $value0 $$', "1", "2"),
        (' AND "r1"."c4" = DATE $value0', "'2020-01-01'", "'2020-01-02'"),
        (' AND "r1"."c3" > $value0', "1e3", "1e4"),
        (' AND "r1"."c3" > $value0', "1", "9" * 40),
    ],
)
def test_a_value_that_could_be_read_as_more_is_not_left_open(tail: str, first: str, second: str) -> None:
    shape = f'SELECT {UNIT} AS "u" FROM {visits(1)} WHERE TRUE{tail}'
    patterns = Patterns()

    def prove(pattern: str, names: frozenset[str]) -> None:
        check_pattern(ClaimedText(pattern, RowsClaim(3, 1)), KNOWN, serialise, names)

    for value in (first, second, first):  # as if each had been proved by itself
        patterns.learn(ShapedText(shape, (value,)), "claim", prove)
    assert not patterns.cover(ShapedText(shape, (second,)), "claim")


@pytest.mark.parametrize(
    "tail",
    ["ORDER BY $any_integer_0", "GROUP BY $any_integer_0", "LIMIT $any_integer_0", "LIMIT $any_value_0"],
)
def test_a_place_and_a_limit_are_not_left_open(tail: str) -> None:
    text = f'SELECT "r1"."ward" AS "w" FROM "memory"."main"."wards" AS "r1" {tail}'
    names = frozenset(re.findall(r"\$(\w+)", tail))
    with pytest.raises(Unproved):
        check_pattern(ClaimedText(text, RowsClaim(1, 1)), KNOWN, serialise, names)


def test_a_pattern_that_the_parser_reads_otherwise_is_refused() -> None:
    text = 'SELECT "r1"."ward" AS "w" FROM "memory"."main"."wards" AS "r1" WHERE "r1"."ward" > $any_integer_0'
    check_pattern(ClaimedText(text, RowsClaim(1, 1)), KNOWN, serialise, frozenset({"any_integer_0"}))
    for names in (frozenset[str](), frozenset({"any_integer_0", "any_integer_1"})):
        with pytest.raises(Unproved):
            check_pattern(ClaimedText(text, RowsClaim(1, 1)), KNOWN, serialise, names)


def test_the_parameters_of_a_pattern_stand_in_no_text_that_is_run(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, texts = inside.engine(session), list[str]()
    execute = engine.execute

    def note(sql: str, *given: Any) -> Any:
        texts.append(sql)
        return execute(sql, *given)

    monkeypatch.setattr(engine, "execute", note)
    for statement in STATEMENTS:
        for number in (1, 2, 3):
            session.sql(fill(statement, number))
    assert texts
    assert not any("$any_" in text for text in texts)


@pytest.mark.parametrize(
    "count", ["COUNT(*) FILTER (WHERE amount > {})", "SUM(CASE WHEN amount > {} THEN 1 ELSE 0 END)"]
)
def test_a_value_that_nothing_reads_is_no_part_of_a_pattern(session: dpsql.Session, count: str) -> None:
    """Columns that nothing reads are left out of exact texts, so that their values must not be counted either."""
    for more in ("*", "*, 5 AS z", "*, 5 AS z, 'x' AS y", "*"):
        for least in (50, 60):
            text = f"SELECT {count.format(least)} AS a FROM (SELECT {more} FROM visits) AS v"
            assert session.sql(text).columns == ["a"]


def test_patterns_go_with_the_outputs_that_were_proved_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pattern of the shape would otherwise vouch for outputs of a pattern whose own were dropped."""
    monkeypatch.setattr(lock, "MAX_PROVED", 3)
    found = lock.Lock(cast(Any, None), serialise)
    for value in ("1", "2"):
        found._patterns.learn(ShapedText("SELECT $value0", (value,)), "claim", lambda pattern, names: None)
    later = ShapedText("SELECT $value0", ("5",))
    assert found._patterns.cover(later, "claim")
    for key in range(3):
        found._remember((key,), None)
    assert found._patterns.cover(later, "claim"), "there is room yet"
    found._remember((3,), None)
    assert not found._patterns.cover(later, "claim")
    assert [*found._proved] == [(3,)]
