"""Plot time and memory against rows and threads, from a benchmark's figures, readable in light and dark.

DPSQL_BENCHMARKS=tests/benchmarks/growth.json pytest -m benchmark -s tests/benchmarks/test_curves.py
python notebooks/make_growth.py [FILE]

The last record of a point counts. Each picture has a panel for each statement; unmeasured points are left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parent / "tests" / "benchmarks" / "growth.json"
PICTURES = HERE / "docs" / "static"
GREY, COLOURS = "#848d97", {"integers": "#3b82c4", "texts": "#d9822b"}
"""Both colours are readable on white and on black; the background is transparent."""
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "growth", "font.family": "sans-serif", "font.size": 10,
    "text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip
Record = Mapping[str, Any]
Line = tuple[str, str, str, Callable[[Record], float | None]]
"""Kind of units, label, line style, and a function from a record to its value."""


def read_points(path: Path) -> list[Record]:
    """Return the records of growth, the last of each point."""
    found: dict[tuple[object, ...], Record] = {}
    for line in path.read_text().splitlines():
        record = _tell_case(json.loads(line)) if line.strip() else {}
        if "case" in record and "plain_peak" in record:
            found[record["case"], record["units"], record["rows"], record["threads"]] = record
    return [*found.values()]


def _tell_case(record: Record) -> Record:
    """Return a record with its statement and its kind of units, read from its name if necessary."""
    named = re.fullmatch(r"growth, (integer|text) units, (.+)", record.get("name", ""))
    return record if named is None else {**record, "units": f"{named[1]}s", "case": named[2]}


def list_lines(units: Iterable[str], of: str) -> list[Line]:
    """Return the lines for seconds or memory, for these kinds of units."""
    lines: list[Line] = []
    for kind in units:
        if of == "seconds":
            lines += [
                (kind, f"dpsql, units are {kind}", "-o", lambda record: record["seconds"]),
                (kind, f"plain DuckDB, {kind}", "--s", lambda record: record["plain"]),
                (kind, f"one scan of the columns, {kind}", ":", lambda record: record.get("scan")),
            ]
        else:
            lines += [
                (kind, f"dpsql, units are {kind}", "-o", lambda record: record["peak"] / 2**30),
                (kind, f"plain DuckDB, {kind}", "--s", lambda record: record["plain_peak"] / 2**30),
            ]
    return lines


def draw(points: Sequence[Record], across: str, of: str, label: str, path: Path) -> None:
    """Draw one picture.

    Args:
        points: the records.
        across: ``rows`` or ``threads``.
        of: ``seconds`` or ``memory``.
        label: of the upright axis.
        path: where it is written.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    cases = list(dict.fromkeys(point["case"] for point in points))
    units = sorted({point["units"] for point in points})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3 * len(cases) + 0.4, 3.6))
        FigureCanvasSVG(figure)
        panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for panel, case in zip(panels, cases, strict=True):
            for kind, name, mark, value in list_lines(units, of):
                mine = sorted(
                    (p for p in points if p["case"] == case and p["units"] == kind), key=lambda p: p[across]
                )
                drawn = [(p[across], y) for p in mine if (y := value(p)) is not None]
                xs, ys = [x for x, _ in drawn], [y for _, y in drawn]
                panel.plot(
                    xs, ys, mark, color=COLOURS.get(kind, GREY), label=name, markersize=4, linewidth=1.4
                )
            panel.set_title(case, fontsize=10, color=GREY)
            panel.set_xlabel("million rows" if across == "rows" else across)
            panel.grid(True, color=GREY, alpha=0.2)
            if across == "rows":
                panel.set_xscale("log")
                panel.set_xticks(sorted({p["rows"] for p in points}))
                panel.xaxis.set_major_formatter(FuncFormatter(lambda rows, _: f"{rows / 1e6:g}"))
            else:
                panel.set_xticks(sorted({p[across] for p in points}))
            panel.set_yscale("log", base=2 if of == "memory" else 10)
            panel.minorticks_off()
            panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        panels[0].set_ylabel(label)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="lower center", ncols=len(units), fontsize=9)
        figure.subplots_adjust(
            left=0.07, right=0.99, top=0.9, bottom=0.36 if of == "seconds" else 0.32, wspace=0.12
        )
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def main(source: Path, folder: Path = PICTURES) -> None:
    """Draw all three."""
    points = read_points(source)
    most = max(point["threads"] for point in points)
    across_rows = [point for point in points if point["threads"] == most]
    threads: dict[int, set[int]] = {}
    for point in points:
        threads.setdefault(point["rows"], set()).add(point["threads"])
    rows = max(threads, key=lambda n: (len(threads[n]), n))
    draw(across_rows, "rows", "seconds", "seconds", folder / "growth-time.svg")
    draw(across_rows, "rows", "memory", "GiB", folder / "growth-memory.svg")
    several = [point for point in points if point["rows"] == rows]
    draw(
        several, "threads", "seconds", f"seconds, {rows // 10**6} million rows", folder / "growth-threads.svg"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES)
