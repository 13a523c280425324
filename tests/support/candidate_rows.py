"""Candidates, and the column that they are compared with, of a reader that notes what is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_PLACE,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
)
from dpsql.mechanisms.fast.thresholds import HistogramQuery

NAN, INF = math.nan, math.inf


class Rows(Reader):
    """A reader of candidates ``c``, and of the column ``x`` in parts."""

    candidates: pa.Table
    column: np.ndarray
    asked: list[str]

    def __init__(self, candidates: pa.Table, column: np.ndarray, room: int = 1 << 20) -> None:
        super().__init__(self._execute, {}, room, self._stream)
        for name, value in (("candidates", candidates), ("column", column), ("asked", [])):
            object.__setattr__(self, name, value)

    def _execute(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        if sql == "c":
            return self.candidates
        assert "(h)" in sql
        x, n = np.unique(self.column, return_counts=True)
        return pa.table({"x": x, "n": n})

    def _stream(self, sql: str, lent: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        self.asked.append(sql)
        for some in np.array_split(self.column, 3):
            yield pa.table({"x": some})


FACTORS = {
    "count": CandidateFactor(1),
    "minus": CandidateFactor(-3),
    "price": CandidateFactor(1, "f", 0, 50),
    "cost": CandidateFactor(-2, "f", 0, 50),
}
NOT_KNOWN = [
    ScoreTerm(0, CandidateFactor(1), (("=", "v"),)),
    ScoreTerm(0, CandidateFactor(1), ((">=", "v"), ("<=", "f"))),
    ScoreTerm(0, CandidateFactor(1), (), "v"),
    ScoreTerm(0, CandidateFactor(1, "f", -9, 9), ((">=", "v"),)),
]
"""Terms that rough counts do not bound: of two bounds, of none, of equality, and of a factor of both signs."""


def made(
    seed: int, op: str, factor: str, shuffled: bool, doubles: bool = False
) -> tuple[CandidateScores, Rows]:
    dice = np.random.default_rng(seed)
    n = 100
    v = np.sort(dice.integers(-5, 60, n))
    v = dice.permutation(v) if shuffled else v
    # a price that is the threshold, and one that has nothing to do with it
    f = v if seed % 2 else dice.integers(-3, 60, n)
    table = pa.table({"v": v / 7 if doubles else v.astype(np.int32), "f": f, CANDIDATE_PLACE: np.arange(n)})
    x = dice.integers(-20, 80, 400) if seed % 3 else np.repeat(dice.integers(0, 50, 4), 100)
    counted = HistogramQuery("h", "x", doubles=doubles)
    sweep = CandidateScores(
        "c", (counted,), (ScoreTerm(0, FACTORS[factor], ((op, "v"),)),), rows=1 + seed % 2, varying=True
    )
    column = np.append(x / 7, [NAN, INF, -INF, NAN]) if doubles else x.astype(np.int32)
    return sweep, Rows(table, column, room=1 << 20 if seed % 5 or doubles else 1)
