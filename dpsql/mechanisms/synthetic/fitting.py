"""The graphical model of synthetic rows, fitted by the package ``mbi`` to releases: pure post-processing.

This module imports no engine, query or operator. Its inputs are :class:`ReleasedMarginal` objects and sizes of public
domains, so it never sees a private row. The package is an extra, imported when a model is fitted.

Source: McKenna, Sheldon, Miklau, *Graphical-model based estimation and inference for differential privacy*, ICML 2019.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.synthetic.released import MarginalColumns, Model, ReleasedMarginal

PACKAGE, MAJOR = "mbi", "2"
"""The package, and its major version."""
ITERATIONS = 2_000
"""The most steps of the fit, which ends earlier once it converges."""
_TOLERANCE = 1e-9
MAX_COUNTED = 200_000
"""The most model rows that are counted instead of its cells, if these are too many."""
MAX_JOINT = 1 << 20
"""The most cells of the joint distribution that are kept in memory."""


def require_package() -> None:
    """Import the package before payment; ImportError if it is missing, or has another interface."""
    _import()
    version = importlib.metadata.version(PACKAGE)
    if version.partition(".")[0] != MAJOR:
        raise ImportError(f"{PACKAGE} {version} is installed, and {MAJOR}.x is needed.")


def _import() -> Any:
    """Import the package without its warnings about settings that each fit makes here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(PACKAGE)


@contextmanager
def _in_doubles() -> Iterator[None]:
    """Compute in doubles within the block: single precision stalls above some 100,000 rows."""
    jax = importlib.import_module("jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.enable_x64(True):
            yield


@dataclass(frozen=True)
class GraphicalModel:
    """A fitted model: the distribution of largest entropy among those nearest to the releases."""

    sizes: tuple[int, ...]
    fitted: Any
    total: int

    @cached_property
    def _joint(self) -> NDArray[np.float64] | None:
        """All cells, if they are few: summing these is faster than computing marginals."""
        if math.prod(self.sizes) > MAX_JOINT:
            return None
        names = tuple(_name(i) for i in range(len(self.sizes)))
        with _in_doubles():
            factor = self.fitted.project(names).transpose(names)
            return np.asarray(factor.datavector(), dtype=np.float64).reshape(self.sizes)

    def project(self, columns: MarginalColumns) -> NDArray[np.float64]:
        if self._joint is None:
            return self._count(columns)
        others = tuple(i for i in range(len(self.sizes)) if i not in columns)
        summed: NDArray[np.float64] = self._joint.sum(axis=others).ravel()
        return summed

    @cached_property
    def _drawn(self) -> NDArray[np.int64]:
        return self.draw_rows(min(self.total, MAX_COUNTED))

    def _count(self, columns: MarginalColumns) -> NDArray[np.float64]:
        """Count rows of the model, since a sum over a large model is compiled anew for each marginal."""
        place = np.ravel_multi_index(tuple(self._drawn[:, columns].T), [self.sizes[i] for i in columns])
        counted = np.bincount(place, minlength=math.prod(self.sizes[i] for i in columns))
        scaled: NDArray[np.float64] = counted * np.float64(self.total / len(self._drawn))
        return scaled

    def draw_rows(self, rows: int) -> NDArray[np.int64]:
        with _in_doubles():
            data = self.fitted.synthetic_data(rows=rows, method="round").to_dict()
        return np.stack([np.asarray(data[_name(i)], dtype=np.int64) for i in range(len(self.sizes))], axis=1)


@dataclass(frozen=True)
class GraphicalFitter:
    """Fits by mirror descent, with at most ``iterations`` steps."""

    iterations: int = ITERATIONS

    def fit(self, sizes: tuple[int, ...], released: Sequence[ReleasedMarginal], total: int) -> Model:
        mbi = _import()
        with _in_doubles():
            domain = mbi.Domain([_name(i) for i in range(len(sizes))], list(sizes))
            given = [
                mbi.LinearMeasurement(
                    np.asarray(marginal.counts, dtype=np.float64),
                    tuple(map(_name, marginal.columns)),
                    stddev=marginal.deviation,
                )
                for marginal in released
            ]
            fitted = mbi.estimation.MirrorDescent().estimate(
                domain, given, known_total=float(total), iters=self.iterations, tol=_TOLERANCE
            )
        return GraphicalModel(sizes, fitted, total)


def _name(place: int) -> str:
    return f"c{place:04d}"
