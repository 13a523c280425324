"""Samples per second, beside OpenDP's in the same run: prints the ratios."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import pytest

from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_discrete_laplace, draw_rounded_gaussian
from tests.support.benchmarks import Benchmarks, Figure, alternate

pytestmark = pytest.mark.benchmark
N = 1_000_000


def nanoseconds(job: Callable[[], object], n: int) -> float:
    start = time.perf_counter()
    job()
    return (time.perf_counter() - start) / n * 1e9


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10**6)])
def test_laplace_against_opendp(scale: Fraction, benchmarks: Benchmarks) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    theirs = dp.m.make_laplace(*space, scale=float(scale))
    zeros, few = [0] * (N // 10), N // 10
    entropy = Entropy()
    ours, others = alternate(lambda: draw_discrete_laplace(scale, N, entropy), lambda: theirs(zeros))
    name = f"W11 discrete Laplace, scale {float(scale):g}, one of a vector beside OpenDP's"
    assert benchmarks.note_pairs(name, [t / N for t in ours], [t / few for t in others], target=0.1) < 1


@pytest.mark.parametrize("sigma", [Fraction(3, 2), Fraction(10**6), Fraction(10**9), Fraction(1 << 60)])
def test_gaussian(sigma: Fraction, benchmarks: Benchmarks) -> None:
    n, entropy = N // 5, Entropy()
    times = [nanoseconds(lambda: draw_rounded_gaussian(sigma, n, entropy), n) for _ in range(3)]
    benchmarks.note(Figure(f"rounded Gaussian, sigma {float(sigma):g}", sorted(times)[1], unit="ns"))
    assert min(times) > 0
