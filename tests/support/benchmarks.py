"""Figures of speed: ours and plain DuckDB's in turn. ``DPSQL_BENCHMARKS`` names a file for the figures, a line of JSON each.

A ratio is the median over pairs: in each pair both sides run once, one after the other, so a slow moment slows both.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import dpsql

FILE = "DPSQL_BENCHMARKS"


def alternate(*jobs: Callable[[], object], times: int = 5) -> list[list[float]]:
    """Return the seconds of each job, run in turns after one run that isn't measured."""
    for job in jobs:
        job()
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(times):
        for job, taken in zip(jobs, seconds, strict=True):
            start = time.perf_counter()
            job()
            taken.append(time.perf_counter() - start)
    return seconds


def note_pairs(
    name: str, ours: Sequence[float], plain: Sequence[float], target: float | None = None, **more: object
) -> float:
    """Print and write the ratio of seconds that were measured in turn, and return it."""
    ratio = statistics.median(mine / other for mine, other in zip(ours, plain, strict=True))
    record = {"name": name, "ratio": ratio, "target": target, "dpsql": dpsql.__version__, **more}
    record |= {"seconds": statistics.median(ours), "plain": statistics.median(plain)}
    print(f"\n{name}: {ratio:.3g} (target {target})")
    if path := os.environ.get(FILE):
        with Path(path).open("a") as file:
            print(json.dumps(record), file=file)
    return ratio
