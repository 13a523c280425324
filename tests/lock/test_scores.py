"""Scores of candidates: wrong factors, limits and sensitivities, beside right twins."""

# ruff: noqa: E501 - a text stands on one line

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsql.lock.tree import Lent
from dpsql.mechanisms.base import RowsClaim, ScoresClaim
from tests.support.lock_texts import KNOWN, visits, why

NUMBERED = replace(KNOWN, lent={"lent1": Lent(frozenset({"c0", "c1"}), unique="c1")})

FACTOR = 'LEAST(GREATEST(COALESCE(TRY_CAST("{}"."c0" AS BIGINT), 0), 0), {})'
CHARGED = RowsClaim(3, each="ord", scores=ScoresClaim("dpsql_score", 30, 3))
VARYING = RowsClaim(3, each="ord", scores=ScoresClaim("dpsql_score", 30, 3, own="dpsql_sensitivity"))


CAPPED = f'(SELECT "r2"."c3" AS "c3" FROM {visits(2)} QUALIFY row_number() OVER (PARTITION BY "r2"."unit7f3a" ORDER BY "r2"."c3") <= 3) AS "r9"'


def scored(
    high: int = 10, factor: str = FACTOR, amount: str = "CASE WHEN \"r9\".\"c3\" >= \"r8\".\"c0\" THEN 1 ELSE 0 END",
    times: str = "", own: str = "", own_high: int = 10, rows: int = 3, base: str = "0",
) -> str:  # fmt: skip
    """A count for each candidate, times a factor of the candidate's own."""
    size = f"ABS({own or FACTOR.format('r3', own_high)}) * 1"
    candidates = f'SELECT "r3"."c0" AS "c0", "r3"."c1" AS "ord", CAST(GREATEST({size}, 1) AS HUGEINT) * {rows} AS "dpsql_sensitivity" FROM "lent1" AS "r3"'
    counted = f'SELECT "r8"."ord" AS "o", SUM({amount}) AS "v" FROM "r7" AS "r8" CROSS JOIN {CAPPED} GROUP BY "r8"."ord"'
    return (
        f'WITH "r7" AS ({candidates}), "r6" AS ({counted}) SELECT "r5"."ord" AS "ord", "r5"."dpsql_sensitivity" AS "dpsql_sensitivity", '
        f'CAST({base} + {factor.format("r5", high)} * COALESCE("r4"."v", 0){times} AS HUGEINT) AS "dpsql_score" FROM "r7" AS "r5" LEFT JOIN '
        f'"r6" AS "r4" ON "r4"."o" = "r5"."ord"'
    )


MORE = "one unit moves a score by more than is charged"
UNBOUNDED = "nothing bounds what one unit moves a score by"
RIGHT = {
    "one factor": (scored(), CHARGED),
    "its own sensitivity": (scored(), VARYING),
    "a public number beside it": (scored(base='"r5"."c0"'), CHARGED),
}
WRONG = {
    "a greater factor": (scored(high=11), CHARGED, MORE),
    "a factor without bounds": (scored(factor='(CAST("{}"."c0" AS BIGINT) + 0 * {})'), CHARGED, UNBOUNDED),
    "twice as much of a row": (scored(amount="CASE WHEN \"r9\".\"c3\" >= \"r8\".\"c0\" THEN 2 ELSE 0 END"), CHARGED, MORE),
    "the score twice": (scored(times=" * 2"), CHARGED, "a factor that is not public"),
    "a statistic more": (scored(times=' + COALESCE("r4"."v", 0)'), CHARGED, MORE),
    "a statistic in the base": (scored(base='COALESCE("r4"."v", 0)'), CHARGED, MORE),
    "a private factor": (scored(factor='COALESCE("r4"."v", 0) + 0 * LENGTH(\'{}{}\')'), CHARGED, UNBOUNDED),
    "a smaller sensitivity of its own": (scored(own_high=9), VARYING, MORE),
    "a sensitivity of another candidate's column": (scored(own=FACTOR.format("r3", 10).replace("c0", "c1")), VARYING, MORE),
    "a sensitivity of fewer rows": (scored(rows=2), VARYING, MORE),
    "no sensitivity of its own": (scored().replace("GREATEST(ABS", "LEAST(ABS"), VARYING, "a score of another shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_score_is_accepted(name: str) -> None:
    assert why(*RIGHT[name], known=NUMBERED) == ""


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_score_is_refused(name: str) -> None:
    text, claim, reason = WRONG[name]
    assert why(text, claim, known=NUMBERED) == reason
