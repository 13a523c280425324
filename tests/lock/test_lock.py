# ruff: noqa: E501 - a text stands on one line
"""The second lock in its place: before the payment, at run time, and with the binder's own defences switched off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.exact import gate
from dpsql.lock.check import check
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.base import (
    ClaimedText,
    LentTotals,
    PackingClaim,
    RouteClaim,
    RowsClaim,
    SensitivityClaim,
    SumsClaim,
    list_claims,
)
from tests.support import inside
from tests.support.case_files import read_part
from tests.support.fixtures import session_fixture
from tests.support.lock_faults import FAULTS, POLICY, make_visits
from tests.support.lock_texts import KNOWN, forge_texts, serialise, visits, why
from tests.support.lock_texts import order as secret_order

STATEMENTS = read_part(__file__, "STATEMENTS")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        make_visits(con)
        yield con


session = session_fixture(POLICY, scope="function")


def spent(session: dpsql.Session) -> str:
    return str(session.budget().spent)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_the_binder_writes_is_proved_and_answered(session: dpsql.Session, statement: str) -> None:
    assert len(session.sql(statement).fetchall()) >= 0


# -- the binder deceived ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_binder_is_refused_and_costs_nothing(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statement, pattern, wrong = FAULTS[name]
    assert session.sql(statement) is not None
    before, hits = spent(session), forge_texts(monkeypatch, pattern, wrong)
    with pytest.raises(dpsql.PrivacyError, match="could not be proved safe") as caught:
        session.sql(statement)
    assert sum(hits), "the text has no such place"
    assert spent(session) == before
    assert "visits" not in str(caught.value)
    assert "SELECT" not in str(caught.value)


@pytest.mark.parametrize("ask", ["sql", "explain"])
def test_explain_names_no_price_for_what_would_be_refused(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    statement, pattern, wrong = FAULTS["a count held to one row more"]
    explained = session.sql(f"EXPLAIN {statement}") if ask == "sql" else session.explain(statement)
    assert "COUNT" in str(explained)
    forge_texts(monkeypatch, pattern, wrong)
    with pytest.raises(Unproved) as running:
        session.sql(statement, fresh=True)
    with pytest.raises(Unproved) as told:
        session.sql(f"EXPLAIN {statement}") if ask == "sql" else session.explain(statement)
    assert str(told.value) == str(running.value)


@pytest.mark.parametrize("kept", [1, gate.MAX_KEPT])
def test_a_text_that_was_not_proved_is_not_read(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    from dpsql.mechanisms.aggregation import Aggregation

    seen = []
    monkeypatch.setattr(gate, "MAX_KEPT", kept)

    def release(self: Aggregation, read: Any, entropy: object) -> object:
        seen.append(True)
        return read("SELECT v.amount AS a FROM memory.main.visits AS v")

    monkeypatch.setattr(Aggregation, "release", release)
    with pytest.raises(dpsql.EngineError):
        session.sql("SELECT COUNT(*) AS n FROM visits")
    assert seen


def test_texts_that_are_many_are_proved_again(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell of 373 counts was paid, and its first one refused: its texts were forgotten over the others."""
    monkeypatch.setattr(gate, "MAX_KEPT", 1)
    for statement in STATEMENTS:
        session.sql(statement, fresh=True)
    session.sql("; ".join(STATEMENTS), fresh=True)
    with session.plan() as plan:
        answers = [plan.sql(f"SELECT COUNT(*) AS n FROM visits WHERE amount > {i}") for i in range(3)]
    assert all(len(answer.fetchall()) == 1 for answer in answers)


def test_an_operator_that_claims_nothing_reads_nothing() -> None:
    with pytest.raises(dpsql.PrivacyError, match="states no bounds on its reads"):
        list_claims(object())


# -- what an operator reads as counts -------------------------------------------------------------------------------------

CAPPED = (
    f'(SELECT "r2"."c3" AS "v" FROM {visits(2)} QUALIFY row_number() OVER (PARTITION BY "r2"."unit7f3a" ORDER BY "r2"."c3") <= 3) '
    'AS "r9"'
)
GROUPED = f'SELECT "r9"."v" AS "value", COUNT(*) AS "n" FROM {CAPPED} GROUP BY "r9"."v"'
COUNTED = RowsClaim(3, moves=(("n", 1),))
TWICE = (
    f'SELECT "r8"."value" AS "value", SUM("r8"."n") AS "n" FROM ({GROUPED}) AS "r8"{{}} GROUP BY "r8"."value"'
)
WRONGLY_COUNTED = {
    "nothing said of the counts": (GROUPED, replace(COUNTED, moves=())),
    "each cell many times": (TWICE.format(' CROSS JOIN range(9) AS "r7"("i")'), COUNTED),
    "cells by their counts": (TWICE.replace(") AS \"n\" FROM", ') FILTER (WHERE "r8"."n" > 9) AS "n" FROM').format(""), COUNTED),
    "another value than the cell's": (GROUPED.replace('"r9"."v" AS', 'MAX("r9"."v") AS').replace('BY "r9"."v"', 'BY "r9"."v" > 5'), COUNTED),
    "cut where the operator would not see it": (f"{GROUPED} LIMIT 5", COUNTED),
    "cut earlier than the operator thinks": (f"{GROUPED} LIMIT 5", replace(COUNTED, limit=6)),
}  # fmt: skip


def test_counts_are_accepted_as_they_should_be() -> None:
    for text in (GROUPED, TWICE.format("")):
        assert why(text, COUNTED) == ""
    assert why(f"{GROUPED} LIMIT 6", replace(COUNTED, limit=6)) == ""
    assert why(GROUPED, RowsClaim(3, any_function=True)) == ""


@pytest.mark.parametrize("name", WRONGLY_COUNTED)
def test_counts_that_one_row_would_move_by_more(name: str) -> None:
    assert why(*WRONGLY_COUNTED[name]) != ""


@pytest.mark.parametrize("distance", ["0", "-1", "$many", '"r1"."c2"'])
def test_a_cap_looks_back_by_a_constant(distance: str) -> None:
    order = f'OVER (ORDER BY "r1"."unit7f3a", {secret_order("r1", "unit7f3a", "c3")}) IS DISTINCT FROM "r1"."unit7f3a"'
    text = f'SELECT "r1"."c3" AS "v" FROM {visits(1)} QUALIFY lag("r1"."unit7f3a", 3) {order}'
    claim = RowsClaim(3, any_function=True)
    assert why(text, claim) == ""
    found = why(f'{text} AND lag("r1"."unit7f3a", {distance}) {order}', claim)
    assert found == "a cap that looks back by no constant number of rows"


# -- packed rows --------------------------------------------------------------------------------------------------------

U = '"unit7f3a"'
WHOLE = 'CAST(TRY_CAST("r2"."c3" AS INTEGER) AS BIGINT)'


def packed(
    unit: str = f'"r1".{U}', top: int = 256, value: str = "COALESCE(ABS(\"r1\".\"y0\" - 0) - ABS(\"r1\".\"y0\" - 100) + 102, 0)",
    at: int = 1, code: str = "", key: str = "",
) -> str:  # fmt: skip
    source = f'(SELECT "r2".{U} AS {U}, "r2"."c2" AS "k0", {WHOLE} AS "y0" FROM {visits(2)}) AS "r1"'
    return (
        f'SELECT {code}(CAST({unit} AS BIGINT) - (5)) * {top} + ({value}) * {at} AS "p" FROM {source} '
        f"WHERE {unit} BETWEEN 5 AND 90{key}"
    )


CODE = 'COALESCE(CAST("r1"."k0" AS BIGINT) - (1) + 1, 0) * 256 + '
BITS = PackingClaim(0, (202,), (("p0", 303), ("units", 1)), (("p0", SensitivityClaim(303)),), None)

PACKED = {
    "the unit's bits are another column's": (packed(unit='"r1"."k0"'), BITS, "packed rows without one unit"),
    "a value beyond its bits": (packed(value="COALESCE(ABS(\"r1\".\"y0\" - 0) - ABS(\"r1\".\"y0\" - 200) + 202, 0)"), BITS, "a packed value outside its bits"),
    "a value that is not clamped": (packed(value='"r1"."y0"'), BITS, "a packed value outside its bits"),
    "a value that may be negative": (packed(value="COALESCE(ABS(\"r1\".\"y0\" - 0) - ABS(\"r1\".\"y0\" - 100), 0)"), BITS, "a packed value outside its bits"),
    "the unit shares bits": (packed(top=128), BITS, "the unit shares bits"),
    "a value in other bits": (packed(at=2), BITS, "packed values that share bits"),
    "a group that nobody asked for": (packed(code=CODE, top=2048), BITS, "packed groups of another number"),
    "a group in a value's bits": (packed(code=CODE.replace("256", "128"), top=2048), replace(BITS, keys=1), "packed groups that share bits"),
    "a tally beyond what is charged": (packed(), replace(BITS, tallies=(("p0", 304), ("units", 1))), "one unit moves a sum by more"),
    "rows of nobody": (packed().replace(' WHERE "r2b"."patient_id" IS NOT NULL', ""), BITS, "packed rows"),
}  # fmt: skip


def test_packed_rows_are_accepted_as_they_should_be() -> None:
    assert why(packed(), BITS) == ""
    assert why(packed(code=CODE, top=2048), replace(BITS, keys=1)) == ""
    assert why(packed(top=1 << 40), BITS) == ""
    assert why(packed().replace("* 256", "* $unit"), BITS) == ""


@pytest.mark.parametrize("name", PACKED)
def test_packed_rows_that_an_operator_would_read_wrongly(name: str) -> None:
    text, claim, reason = PACKED[name]
    assert reason in why(text, claim)


FINAL = (
    'SELECT "r1"."k0" AS "k0", COALESCE("r2"."p0", 0) AS "p0" FROM (SELECT DISTINCT "r3"."v" AS "k0" FROM (VALUES (1), (2), (3)) AS '
    '"r3"("v")) AS "r1" LEFT JOIN "totals" AS "r2" ON "r1"."k0" = "r2"."k0"'
)


@dataclass(frozen=True)
class Held:
    """Totals that an operator lends, and whether they are within what is charged."""

    most: int
    groups: int | None
    accepted: bool


@pytest.mark.parametrize(
    "held", [Held(10, 2, True), Held(11, 2, False), Held(10, 3, False), Held(10, None, False)], ids=str
)
def test_totals_that_an_operator_lends_to_itself(held: Held) -> None:
    claim = SumsClaim(("k0",), (("p0", SensitivityClaim(10, 2)),))
    found = why(FINAL, claim, {"totals": LentTotals(("k0",), {"p0": held.most}, held.groups)})
    assert (found == "") is held.accepted


@pytest.mark.parametrize(("steps", "accepted"), [("1024", True), ("1025", False), ("1", False)])
def test_totals_in_two_columns(steps: str, accepted: bool) -> None:
    claim = SumsClaim(("k0",), (("p0", SensitivityClaim(5000, 2)),))
    text = FINAL.replace(
        'COALESCE("r2"."p0", 0)', f'COALESCE(CAST("r2"."p0" AS HUGEINT) * {steps} + "r2"."p0_rest", 0)'
    )
    lent = {"totals": LentTotals(("k0",), {"p0": 5000}, 2, {"p0": ("p0_rest", 1024)})}
    assert (why(text, claim, lent) == "") is accepted
    assert why(FINAL, claim, lent) != ""


# -- what is said of an operator's texts ----------------------------------------------------------------------------------


def test_the_claims_are_made_of_the_noise(session: dpsql.Session) -> None:

    plan = inside.planned(session, "SELECT note, COUNT(*) AS n FROM visits GROUP BY note")
    (claimed, *_) = list_claims(plan.blocks[0].operator)
    assert claimed.claim == SumsClaim(
        ("k0",), (("p0", SensitivityClaim(3, 2)), ("units", SensitivityClaim(1, 2))), True
    )


def test_a_choice_may_read_what_it_likes_but_in_the_normal_form() -> None:
    assert why(f'SELECT MIN("r1"."c3") AS "m" FROM {visits(1)}', RouteClaim()) == ""
    assert why(f'SELECT MIN("r1"."c3") AS "m" FROM {visits(1)} CROSS JOIN {visits(2)}', RouteClaim()) != ""
    assert why(f'SELECT MIN("r1"."c3") AS "m" FROM {visits(1)}', RowsClaim(3)) != ""


def test_the_error_says_nothing_of_the_query() -> None:
    with pytest.raises(Unproved) as caught:
        check(ClaimedText("SELECT secret FROM nowhere", RouteClaim()), KNOWN, serialise)
    assert "secret" not in str(caught.value)
    assert "nowhere" not in str(caught.value)
