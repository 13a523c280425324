"""Compare two files of figures: ``python tests/benchmarks/compare.py old.json new.json``.

Each was written by ``DPSQL_BENCHMARKS=old.json pytest -m benchmark -s``, a line of JSON for each figure; the last line of a name
counts. It ends with 1 where a figure is worse than before by more than a fifth.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

WORSE = 1.2
"""The ratio to the figure before from which a figure is marked."""
HEADS = ("name", "before", "after", "after/before", "target", "")


def read_figures(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the last record of each name that has a figure, in the order in which names came first."""
    records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    figures = [record for record in records if isinstance(record.get("ratio"), int | float)]
    sizes: dict[str, set[object]] = {}
    for record in figures:
        sizes.setdefault(record["name"], set()).add((record.get("rows"), record.get("threads")))
    return {_write_name(record, len(sizes[record["name"]]) > 1): record for record in figures}


def _write_name(record: Mapping[str, Any], several: bool) -> str:
    """Return the name of a figure, with its unit, and with its size where there are ``several`` of that name."""
    unit = record.get("unit") or "times"
    name = record["name"] if unit == "times" else f"{record['name']}, {unit}"
    return f"{name}, {record.get('rows') or 0:,} rows, {record.get('threads')} threads" if several else name


def compare(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, ...]]:
    """Yield a line for each name of either."""
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, {}).get("ratio"), after.get(name, {}).get("ratio")
        target = (after.get(name) or before[name]).get("target")
        times = new / old if old and new is not None else None
        marks = []
        if target is not None and new is not None and new > target:
            marks.append("missed")
        if times is not None and times > WORSE:
            marks.append("worse")
        numbers = (f"{number:.3g}" if number is not None else "" for number in (old, new, times, target))
        yield (name, *numbers, ", ".join(marks))


def align(lines: Sequence[Sequence[str]]) -> str:
    """Return a table in which columns stand under each other, the first line over a rule."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in ruled
    )


def main(old: str, new: str) -> int:
    """Print the table; return 1 where something is worse."""
    lines = [*compare(read_figures(Path(old)), read_figures(Path(new)))]
    print(align([HEADS, *lines]))
    return int(any("worse" in line[-1] for line in lines))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
