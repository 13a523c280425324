"""The pictures of growth: what was measured is drawn, in colours for light and dark, and each point once. An ordinary test."""

from __future__ import annotations

import importlib.util
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


def test_pictures_are_those_of_the_figures_of_record(script: ModuleType, tmp_path: Path) -> None:
    """Whoever measures anew draws anew."""
    points = script.read_points(script.FIGURES)
    assert {point["units"] for point in points} == {"integers", "texts"}
    script.main(script.FIGURES, tmp_path)
    for name in ("time", "memory", "threads"):
        kept = (script.PICTURES / f"growth-{name}.svg").read_text()
        titles = [point["case"] for point in points]
        assert all(title in kept for title in titles)
        assert "plain DuckDB" in kept
        assert ("one scan of the columns" in kept) == (name != "memory")
        assert len(kept.splitlines()) == len((tmp_path / f"growth-{name}.svg").read_text().splitlines())
