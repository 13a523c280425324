"""The module that fits models: what it may import, and the models themselves where the package is installed."""

from __future__ import annotations

import ast
import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from dpsql.mechanisms.synthetic import models
from dpsql.mechanisms.synthetic.models import GraphicalFitter, ReleasedMarginal


def list_imports(module: object) -> set[str]:
    """Return what a module imports of this package."""
    tree = ast.parse(Path(module.__file__).read_text())  # type: ignore[attr-defined]
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {item.name for node in ast.walk(tree) if isinstance(node, ast.Import) for item in node.names}
    return {name for name in found if name.startswith("dpsql")}


def test_the_fitter_knows_releases_alone() -> None:
    assert list_imports(models) == {"dpsql.late_dataclass"}


def test_another_version_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_import", lambda: None)
    for version, fits in (("1.0", False), ("2.1", True), ("20.0", False)):
        monkeypatch.setattr(importlib.metadata, "version", lambda _name, v=version: v)
        if fits:
            models.require_package()
        else:
            with pytest.raises(ImportError, match=version):
                models.require_package()


SIZES = (3, 2, 4)


def measure(joint: np.ndarray, columns: tuple[int, ...]) -> ReleasedMarginal:
    others = tuple(i for i in range(joint.ndim) if i not in columns)
    return ReleasedMarginal(columns, tuple(map(int, np.rint(joint.sum(axis=others)).ravel())), 1.0)


def test_a_model_meets_its_marginals() -> None:
    pytest.importorskip("mbi", reason="the extra synthetic is not installed")
    joint = np.arange(1, 25, dtype=float).reshape(SIZES) * 40
    given = [measure(joint, columns) for columns in ((0,), (1,), (2,), (0, 1), (1, 2))]
    total = int(joint.sum())
    model = GraphicalFitter().fit(SIZES, given, total)
    rows = model.draw_rows(total)
    assert rows.shape == (total, 3)
    assert (rows >= 0).all()
    assert (rows < np.array(SIZES)).all()
    for marginal in given:
        sizes = [SIZES[i] for i in marginal.columns]
        drawn = np.bincount(
            np.ravel_multi_index(tuple(rows[:, marginal.columns].T), sizes), minlength=np.prod(sizes)
        )
        assert np.abs(model.project(marginal.columns) - marginal.counts).max() < 2
        assert np.abs(drawn - marginal.counts).max() < 10


def test_a_large_domain_is_not_held_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mbi", reason="the extra synthetic is not installed")
    joint = np.arange(1, 25, dtype=float).reshape(SIZES) * 40
    given = [measure(joint, columns) for columns in ((0,), (1,), (2,), (0, 2))]
    model = GraphicalFitter().fit(SIZES, given, int(joint.sum()))
    held = [model.project(columns) for columns in ((1, 2), (0, 1, 2))]
    monkeypatch.setattr(models, "MAX_JOINT", 1)
    again = GraphicalFitter().fit(SIZES, given, int(joint.sum()))
    for columns, expected in zip(((1, 2), (0, 1, 2)), held, strict=True):
        assert again.project(columns) == pytest.approx(expected, abs=0.01 * joint.sum())
