"""Figures of speed: ours beside plain DuckDB's in turn, one line of a table and one record of a file for each.

A ratio is the median over pairs: in each pair both sides run once, one after the other, so that what slows the machine down
slows both. The figures of other systems are of record: they were measured once, on two cores, with rows like these.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import duckdb

import dpsql
from tests.benchmarks.compare import align

PEERS: Mapping[str, Mapping[str, float]] = {
    "W1": {"SmartNoise": 14, "OpenDP": 115, "Qrlew": 713, "diffprivlib": 7.6},
    "W2": {"SmartNoise": 10.3, "OpenDP": 14, "Qrlew": 9.4},
    "W3": {"SmartNoise": 7.7, "OpenDP": 14, "Qrlew": 5.8},
    "W4": {"SmartNoise": 82, "OpenDP": 17, "Qrlew": 16},
}
"""Other systems' times for the same work, over the plain query's; diffprivlib had the column in memory already."""
SYSTEMS = ("SmartNoise", "OpenDP", "Qrlew")
FILE = "DPSQL_BENCHMARKS"
"""Names the file that each figure is added to, as a line of JSON; none by default."""


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Args:
        name: the same in every run.
        ratio: what is compared with the target: ours over the plain one's, or a figure in ``unit``.
        target: the most that it should be; None where there is none.
        seconds, plain: the medians of both sides; None where only ``ratio`` was measured.
        unit: ``times``, or what ``ratio`` is counted in.
        rows: how many there were, where that matters.
        threads: of the engine, where these were set.
    """

    name: str
    ratio: float
    target: float | None = None
    seconds: float | None = None
    plain: float | None = None
    unit: str = "times"
    rows: int | None = None
    threads: int | None = None

    @property
    def missed(self) -> bool:
        """Whether it is above its target."""
        return self.target is not None and self.ratio > self.target

    def as_record(self) -> dict[str, object]:
        """Return it with what it was measured by, and when."""
        return {
            **asdict(self),
            "threads": self.threads or os.cpu_count(),
            "python": platform.python_version(),
            "duckdb": duckdb.__version__,
            "dpsql": dpsql.__version__,
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def alternate(*jobs: Callable[[], object], times: int = 5) -> list[list[float]]:
    """Return the seconds of each job, run in turns; each has run once before."""
    for job in jobs:
        job()
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(times):
        for job, taken in zip(jobs, seconds, strict=True):
            start = time.perf_counter()
            job()
            taken.append(time.perf_counter() - start)
    return seconds


def divide_pairs(ours: Sequence[float], plain: Sequence[float]) -> float:
    """Return the median of the ratios of pairs."""
    return statistics.median(mine / other for mine, other in zip(ours, plain, strict=True))


@dataclass
class Benchmarks:
    """The figures of a run."""

    figures: list[Figure] = field(default_factory=list)

    def compare(
        self,
        name: str,
        ours: Callable[[], object],
        plain: Callable[[], object],
        *,
        target: float | None = None,
        rows: int | None = None,
        times: int = 5,
    ) -> float:
        """Measure both in turn, note the ratio, and return it."""
        mine, other = alternate(ours, plain, times=times)
        return self.note_pairs(name, mine, other, target=target, rows=rows)

    def note_pairs(
        self,
        name: str,
        ours: Sequence[float],
        plain: Sequence[float],
        *,
        target: float | None = None,
        rows: int | None = None,
    ) -> float:
        """Note the ratio of seconds that were measured in turn, and return it."""
        ratio = divide_pairs(ours, plain)
        self.note(Figure(name, ratio, target, statistics.median(ours), statistics.median(plain), rows=rows))
        return ratio

    def note_growth(
        self,
        case: str,
        units: str,
        rows: int,
        threads: int,
        seconds: Mapping[str, Sequence[float]],
        peaks: Mapping[str, int],
    ) -> None:
        """Note a point of the curves: seconds of ``ours``, ``plain`` and ``scan`` in turn, and peaks of the first two.

        Its record says besides what a figure does: ``case``, ``units``, ``scan`` (seconds), ``peak`` and ``plain_peak`` (bytes).
        """
        ours, plain, scan = (seconds[side] for side in ("ours", "plain", "scan"))
        figure = Figure(
            f"growth, {case}, units are {units}, {rows // 10**6} million rows, {threads} threads",
            divide_pairs(ours, plain), None, statistics.median(ours), statistics.median(plain), "times", rows, threads,
        )  # fmt: skip
        more = {"peak": peaks["ours"], "plain_peak": peaks["plain"]}
        self.note(figure, {"case": case, "units": units, "scan": statistics.median(scan), **more})

    def note(self, figure: Figure, more: Mapping[str, object] = {}) -> None:
        """Keep a figure for the table, show it, and add it to the file, with ``more`` in its record."""
        self.figures.append(figure)
        print("\n" + "  ".join(cell for cell in _write_line(figure) if cell))
        path = os.environ.get(FILE)
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with open(path, "a") as file:
                print(json.dumps({**figure.as_record(), **more}), file=file)

    def __str__(self) -> str:
        heads = ("case", "figure", "target", "", "ours", "plain", "rows", *SYSTEMS)
        return align([heads, *map(_write_line, self.figures)])


RUN = Benchmarks()
"""The figures of this run, which are printed at its end."""


def _write_line(figure: Figure) -> tuple[str, ...]:
    target = "" if figure.target is None else f"{figure.target:g}"
    sides = ("" if s is None else f"{s * 1e3:,.1f} ms" for s in (figure.seconds, figure.plain))
    rows = "" if figure.rows is None else f"{figure.rows:,}"
    peers = PEERS.get(figure.name.split()[0], {})
    others = (f"{peers[system]:g}" if system in peers else "" for system in SYSTEMS)
    unit = "x" if figure.unit == "times" else f" {figure.unit}"
    mark = "missed" if figure.missed else ""
    return (figure.name, f"{figure.ratio:.3g}{unit}", target, mark, *sides, rows, *others)
