"""A model of small joint domains by iterative proportional fitting, in place of the package that fits synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from dpsql.mechanisms.synthetic import models, rounds
from dpsql.mechanisms.synthetic.models import MarginalColumns, ReleasedMarginal


@dataclass(frozen=True)
class PlainModel:
    """All cells of a small domain, held one by one."""

    joint: np.ndarray

    def project(self, columns: MarginalColumns) -> np.ndarray:
        others = tuple(i for i in range(self.joint.ndim) if i not in columns)
        return self.joint.sum(axis=others).ravel()

    def draw_rows(self, rows: int) -> np.ndarray:
        """Return each cell as often as the running total of all cells before it says."""
        upto = np.rint(np.cumsum(self.joint.ravel()) * rows / self.joint.sum()).astype(np.int64)
        codes = np.unravel_index(np.arange(self.joint.size), self.joint.shape)
        return np.repeat(np.stack(codes, axis=1), np.diff(upto, prepend=0), axis=0)


@dataclass
class PlainFitter:
    """A fitter that remembers what it was given."""

    seen: list[tuple[object, ...]] = field(default_factory=list)
    sweeps: int = 20

    def fit(self, sizes: tuple[int, ...], released: Sequence[ReleasedMarginal], total: int) -> PlainModel:
        self.seen.append((sizes, tuple(released), total))
        joint = np.full(sizes, total / math.prod(sizes))
        for _ in range(self.sweeps):
            for marginal in released:
                shape = [sizes[i] if i in marginal.columns else 1 for i in range(len(sizes))]
                others = tuple(i for i in range(len(sizes)) if i not in marginal.columns)
                wanted = np.maximum(np.array(marginal.counts, dtype=float), 1e-6).reshape(shape)
                joint = (
                    joint
                    * wanted
                    * (total / wanted.sum())
                    / np.maximum(joint.sum(axis=others, keepdims=True), 1e-9)
                )
        return PlainModel(joint)


def use_plain_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit plain models in place of the package's, which is an extra and need not be there."""
    plain = PlainFitter(sweeps=5)
    monkeypatch.setattr(models.GraphicalFitter, "fit", lambda _self, *given: plain.fit(*given))
    monkeypatch.setattr(rounds, "require_package", lambda: None)
