"""The pictures of growth: what was measured is drawn, in colours for light and dark, and each point once. An ordinary test."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).parents[2] / "notebooks" / "make_growth.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_growth", SCRIPT)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def write_records(path: Path) -> Path:
    records = [{"name": "W1", "ratio": 2.5}]
    for case in ("total", "10 keys"):
        for units in ("integers", "texts"):
            for rows, threads in ((10**6, 2), (10**7, 2), (10**7, 1), (10**7, 2)):
                point = {
                    "case": case,
                    "units": units,
                    "rows": rows,
                    "threads": threads,
                    "seconds": rows / 1e7,
                }
                records.append(
                    {
                        **point,
                        "plain": rows / 2e7,
                        "scan": rows / 1e8,
                        "peak": rows * 100,
                        "plain_peak": rows * 90,
                    }
                )
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_each_picture_has_its_lines(script: ModuleType, tmp_path: Path) -> None:
    script.main(write_records(tmp_path / "figures.json"), tmp_path)
    for name in ("time", "memory", "threads"):
        text = (tmp_path / f"growth-{name}.svg").read_text()
        assert "plain DuckDB" in text
        assert "10 keys" in text
        assert ("one scan of the columns" in text) == (name != "memory")
        assert not {"#000000", "#ffffff"} & {text[i : i + 7] for i in range(len(text)) if text[i] == "#"}, (
            name
        )


def test_a_picture_is_the_same_when_it_is_drawn_again(script: ModuleType, tmp_path: Path) -> None:
    source = write_records(tmp_path / "figures.json")
    drawn = []
    for _ in range(2):
        script.main(source, tmp_path)
        drawn.append((tmp_path / "growth-time.svg").read_bytes())
    assert drawn[0] == drawn[1]


def test_the_last_record_of_a_point_counts(script: ModuleType, tmp_path: Path) -> None:
    points = script.read_points(write_records(tmp_path / "figures.json"))
    assert len(points) == 2 * 2 * 3


def test_a_name_may_tell_the_case(script: ModuleType, tmp_path: Path) -> None:
    """As the sweep beside COUNT(DISTINCT) writes it, which has no scan."""
    path = tmp_path / "growth.json"
    point = {"name": "growth, text units, 10 keys", "rows": 10**6, "threads": 2, "seconds": 2, "plain": 1}
    path.write_text(
        json.dumps({**point, "peak": 2**30, "plain_peak": 2**29}) + '\n{"name": "growth, wide", "ratio": 1}'
    )
    (found,) = script.read_points(path)
    assert (found["units"], found["case"]) == ("texts", "10 keys")
    script.main(path, tmp_path)
    assert "10 keys" in (tmp_path / "growth-time.svg").read_text()


def test_pictures_are_those_of_the_figures_of_record(script: ModuleType, tmp_path: Path) -> None:
    """Whoever measures anew draws anew."""
    points = script.read_points(script.FIGURES)
    assert {point["units"] for point in points} == {"integers", "texts"}
    script.main(script.FIGURES, tmp_path)
    for name in ("time", "memory", "threads"):
        kept = (script.PICTURES / f"growth-{name}.svg").read_text()
        titles = [point["case"] for point in points]
        assert all(title in kept for title in titles)
        assert len(kept.splitlines()) == len((tmp_path / f"growth-{name}.svg").read_text().splitlines())
