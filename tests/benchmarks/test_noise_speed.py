"""Samples per second, beside OpenDP's in the same run: prints the ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import pytest

from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_discrete_laplace, draw_rounded_gaussian

pytestmark = pytest.mark.benchmark
N = 1_000_000


def nanoseconds(job: Callable[[], object], n: int) -> float:
    start = time.perf_counter()
    job()
    return (time.perf_counter() - start) / n * 1e9


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10**6)])
def test_laplace_against_opendp(scale: Fraction, capsys: pytest.CaptureFixture[str]) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    theirs = dp.m.make_laplace(*space, scale=float(scale))
    zeros, few = [0] * (N // 10), N // 10
    entropy = Entropy()
    draw_discrete_laplace(scale, 1000, entropy)
    ours_ns, theirs_ns = [], []
    for _ in range(5):
        ours_ns.append(nanoseconds(lambda: draw_discrete_laplace(scale, N, entropy), N))
        theirs_ns.append(nanoseconds(lambda: theirs(zeros), few))
    ours, other = statistics.median(ours_ns), statistics.median(theirs_ns)
    with capsys.disabled():
        print(
            f"\n  discrete Laplace, scale {float(scale):g}: {ours:.0f} ns; "
            f"OpenDP {other:.0f} ns; {other / ours:.0f} x"
        )
    assert ours < other


@pytest.mark.parametrize("sigma", [Fraction(3, 2), Fraction(10**6), Fraction(10**9), Fraction(1 << 60)])
def test_gaussian(sigma: Fraction, capsys: pytest.CaptureFixture[str]) -> None:
    n, entropy = N // 5, Entropy()
    times = [nanoseconds(lambda: draw_rounded_gaussian(sigma, n, entropy), n) for _ in range(3)]
    with capsys.disabled():
        print(f"\n  rounded Gaussian, sigma {float(sigma):g}: {statistics.median(times):.0f} ns")
    assert min(times) > 0
