"""Cases of accuracy: a statement, the truth by plain DuckDB, and how far releases are off. One line of a table for each.

A case says what the error was before (measured with the version in ``version``, by the statement that was best then) and what
other systems are off by, as published or measured once. ``Table.check`` notes what is found, and refuses what is worse than
before by more than chance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np

import dpsql

BEFORE = "6755a19"
"""The commit that figures of record are of, where a case names no other: the last one before this table."""
FIGURES = Path(__file__).parents[1] / "accuracy" / "before.json"
"""The figures of record of cases by their names, each with its standard error."""
CHANCE = 4.0
"""Standard errors by which a figure may be beyond another before that is no chance any more."""
POLICY = """
budget = { epsilon = 1e15, delta = 0.5, accountant = "basic", default_delta = 1e-6 }
"""
Rows = Sequence[Sequence[object]]


@dataclass(frozen=True)
class Found:
    """The figures of how far releases are off.

    Args:
        errors: one number for each release.
        median: whether the middle one counts, where seldom errors are huge; else their mean.
    """

    errors: Sequence[float]
    median: bool = False

    @property
    def error(self) -> float:
        """The figure."""
        return float(np.median(self.errors) if self.median else np.mean(self.errors))

    @property
    def chance(self) -> float:
        """The standard error of the figure."""
        if len(self.errors) < 2:
            return 0.0
        one = float(np.std(self.errors, ddof=1)) / math.sqrt(len(self.errors))
        return one * (1.2533 if self.median else 1.0)


@dataclass
class Table:
    """The table of all that was measured in a run."""

    lines: list[tuple[str, ...]] = field(default_factory=list)

    def check(
        self,
        name: str,
        found: Found | Iterable[float],
        *,
        before: float,
        chance: float = 0.0,
        version: str = BEFORE,
        peers: str = "",
        closed: float | None = None,
        most: float | None = None,
        best: float | None = None,
        times: float = 2.0,
    ) -> None:
        """Note a figure, and compare it.

        Args:
            name: of the case, with what the figure is.
            found: the errors of releases.
            before: the figure of record.
            chance: its standard error, where it was measured.
            version: what it was measured with.
            peers: figures of other systems, in words.
            closed: what the error is by a closed form.
            most: what it must be below, whatever it was before.
            best: what the best choice in hindsight is off by, with all of epsilon.
            times: how many times as much a choice that is made privately may be off by.
        """
        found = found if isinstance(found, Found) else Found(list(found))
        shown = "" if closed is None else write(closed)
        if best is not None:
            shown = f"{write(best)}, in hindsight"
        self.lines.append((name, f"{write(before)} ({version})", write(found.error), shown, peers))
        slack = CHANCE * found.chance + 1e-9 * found.error
        most_before = before + CHANCE * math.hypot(found.chance, chance) + 1e-9 * before
        assert found.error <= most_before, (
            f"{name}: {found.error:g} ± {found.chance:g}, and {before:g} before"
        )
        if closed is not None:
            assert abs(found.error - closed) <= slack, f"{name}: {found.error:g}, by the formula {closed:g}"
        if best is not None:
            assert found.error <= times * best + slack, f"{name}: {found.error:g}, and {best:g} in hindsight"
        if most is not None:
            assert found.error < most, f"{name}: {found.error:g}, more than {most:g}"

    def __str__(self) -> str:
        heads = ("case", "before (version)", "now", "closed form, or best", "other systems")
        widths = [max(map(len, column)) for column in zip(heads, *self.lines, strict=True)]
        lines = [heads, ["-" * width for width in widths], *self.lines]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def write(figure: float) -> str:
    """Write a figure with three digits."""
    return f"{figure:.3g}"


@dataclass(frozen=True)
class Case:
    """A statement whose answers are compared with the truth.

    Args:
        name: of the case, with what the figure is.
        data: SQL that makes its tables.
        policy: what follows the budget.
        statement: private; ``keys`` columns first, then numbers.
        truth: plain SQL with the same columns.
        keys: how many columns say which row it is.
        relative: whether errors are in parts of the truth.
        median: as of :class:`Found`.
        draws: releases in the long form, and in the short one (0: left out there).
    """

    name: str
    data: str
    policy: str
    statement: str
    truth: str
    keys: int = 0
    relative: bool = False
    median: bool = False
    draws: tuple[int, int] = (200, 0)
    version: str = BEFORE
    peers: str = ""
    closed: Callable[[], float] | None = None
    most: float | None = None
    best: Callable[[duckdb.DuckDBPyConnection], float] | None = None

    def find_best(self) -> float | None:
        """Return the error of the best choice in hindsight."""
        if self.best is None:
            return None
        with duckdb.connect() as con:
            con.execute(self.data)
            return self.best(con)

    def measure(self, draws: int) -> Found:
        """Release so often, and return by how much each release is off, on average over its numbers."""
        with duckdb.connect() as con:
            con.execute(self.data)
            truth = self._read(con.sql(self.truth).fetchall())
            with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY + self.policy)) as session:
                released = (session.sql(self.statement, fresh=True).fetchall() for _ in range(draws))
                return Found([self._compare(self._read(rows), truth) for rows in released], self.median)

    def _read(self, rows: Rows) -> dict[tuple[object, ...], list[float]]:
        found = {}
        for row in rows:
            values = [math.nan if value is None else float(value) for value in row[self.keys :]]  # type: ignore[arg-type]
            found[tuple(row[: self.keys])] = values
        return found

    def _compare(
        self,
        released: Mapping[tuple[object, ...], list[float]],
        truth: Mapping[tuple[object, ...], list[float]],
    ) -> float:
        """Return the mean error over all numbers of the truth; what is not released is off by all that it is."""
        errors = []
        for key, values in truth.items():
            answers = released.get(key, [math.nan] * len(values))
            for answer, value in zip(answers, values, strict=True):
                off = abs(value) if math.isnan(answer) else abs(answer - value)
                errors.append(off / abs(value) if self.relative else off)
        return float(np.mean(errors))

    def check(self, table: Table, draws: int) -> None:
        """Measure, and compare with the figures of record."""
        before, chance = json.loads(FIGURES.read_text())[self.name]
        closed = None if self.closed is None else self.closed()
        table.check(
            self.name, self.measure(draws), before=before, chance=chance, version=self.version,
            peers=self.peers, closed=closed, most=self.most, best=self.find_best(),
        )  # fmt: skip
