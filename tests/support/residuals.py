"""Residuals of sums over a product of keys by their definition, from matrices: independent of the code under test."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.per_group import LaplaceNoise, Noise


def residual_of(cells: NDArray[Any], places: tuple[int, ...]) -> NDArray[Any]:
    """Compute D P x_T: the sums over other keys, times the matrix ``m I - J`` along each of these."""
    other = tuple(i for i in range(cells.ndim) if i not in places)
    sums = np.asarray(cells.sum(axis=other)).astype(object)
    for axis, i in enumerate(places):
        m = cells.shape[i]
        matrix = (m * np.eye(m, dtype=np.int64) - 1).astype(object)
        sums = np.moveaxis(np.tensordot(matrix, sums, axes=(1, axis)), 0, axis)
    return np.asarray(sums).reshape(-1)


def used_of(noise: Noise, moved: NDArray[Any]) -> Fraction:
    """Return the part of what noise is made for that a move needs: of epsilon, or of squared mu; above 1 it is too little."""
    if isinstance(noise, LaplaceNoise):
        if max(abs(int(v)) for v in moved) > noise.sensitivity:
            return Fraction(2)
        return sum((abs(Fraction(int(v))) for v in moved), Fraction(0)) / (noise.sensitivity * noise.groups)
    return sum((Fraction(int(v)) ** 2 for v in moved), Fraction(0)) / (noise.sensitivity**2 * noise.groups)
