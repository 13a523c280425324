"""A moment that several aggregates need is released once, with the shares of all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

import dpsql
from dpsql.mechanisms import per_group
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import Release
from dpsql.mechanisms.moments import Count, Mean
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import unpack_integers
from dpsql.privacy.events import DiscreteLaplace
from tests.support.inside import engine, planned

POLICY = """
[budget]
epsilon = 100
[tables.t]
privacy_unit = "ROW"
columns.x.bounds = [0, 50]
"""


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT range % 51 AS x FROM range(100)")
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as opened:
        yield opened


def plan(session: dpsql.Session, option: str, numbers: str) -> Aggregation:
    (block,) = planned(session, f"SELECT WITH DP OPTIONS ({option}) {numbers} FROM t").blocks
    assert isinstance(block.operator, Aggregation)
    return block.operator


@pytest.mark.parametrize(
    ("numbers", "shares"),
    [
        ("AVG(x)", {"p0": (1, 2), "p1": (1, 2)}),
        ("COUNT(x), AVG(x)", {"p0": (3, 4), "p1": (1, 4)}),
        ("AVG(x), STDDEV(x)", {"p0": (5, 12), "p1": (5, 12), "p2": (1, 6)}),
        ("AVG(x), STDDEV(x), VARIANCE(x)", {"p0": (7, 18), "p1": (7, 18), "p2": (2, 9)}),
        ("COUNT(x, epsilon => 0.1), AVG(x)", {"p0": (11, 20), "p1": (9, 20)}),
    ],
)
def test_a_moment_has_the_shares_of_all_that_need_it(
    session: dpsql.Session, numbers: str, shares: dict[str, tuple[int, int]]
) -> None:
    operator = plan(session, "epsilon = 1", numbers)
    found = {s.column: s.noise.epsilon for s in operator.statistics}
    assert found == {column: Fraction(*share) for column, share in shares.items()}
    assert len(operator.statistics) == len(shares), "one draw for each"
    assert operator.event.basic == (1, 0)


def test_the_parts_of_a_rho_add_up() -> None:
    """Laplace noise that is asked for in rho costs the whole rho, and hardly less."""
    numbers = "COUNT(x), AVG(x)"
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 1 AS x")
    policy = POLICY.replace("epsilon = 100", "epsilon = 100\ndelta = 1e-6")
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as opened:
        operator = plan(opened, "rho = 0.1, noise = LAPLACE", numbers)
    assert len(operator.statistics) == 2
    assert Fraction(99, 1000) < operator.event.rho <= Fraction(1, 10)


def test_the_charge_is_that_of_the_draws(session: dpsql.Session) -> None:
    operator = plan(session, "epsilon = 1", "COUNT(x), AVG(x)")
    assert set(operator.event.parts) == {
        DiscreteLaplace(Fraction(3, 4), 1),
        DiscreteLaplace(Fraction(1, 4), 25),
    }


# -- the loss of a block, by exact ratios ------------------------------------------------------------------------------

DOMAIN = (None, 0, 20, 50)
REACH = 3
"""The outputs beyond the exact numbers that are tried: the ratio is constant there."""


class Played:
    """A block over tiny tables, its Laplace noise replaced by given integers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.con = duckdb.connect()
        self.con.execute("CREATE TABLE t (x INTEGER)")
        self.session = dpsql.connect(self.con, policy=dpsql.Policy.loads(POLICY))
        self.noise: Iterator[int] = iter(())
        self.scales: list[Fraction] = []
        monkeypatch.setattr(per_group, "draw_discrete_laplace", self._draw)

    def _draw(self, scale: Fraction, n: int, _: Entropy) -> NDArray[np.int64]:
        self.scales.append(scale)
        return np.array([next(self.noise, 0) for _ in range(n)])

    def release(self, block: Aggregation, rows: tuple[int | None, ...], noise: Sequence[int] = ()) -> Release:
        self.con.execute("DELETE FROM t")
        for x in rows:
            self.con.execute("INSERT INTO t VALUES (?)", [x])
        self.noise, self.scales = iter(noise), []
        return block.release(engine(self.session).execute, Entropy())

    def list_exact(self, block: Aggregation, rows: tuple[int | None, ...]) -> list[int]:
        """Return the exact number behind each draw, in the order of the draws."""
        found = block.list_noisy(self.release(block, rows))
        return [int(unpack_integers(column)[0]) for column in found.columns]

    def find_loss(self, block: Aggregation, rows: tuple[int | None, ...]) -> Fraction:
        """Return the greatest logarithm of a ratio of probabilities of an output, with and without the last row."""
        exact = self.list_exact(block, rows), self.list_exact(block, rows[:-1])
        worst = []
        for x, y in (exact, exact[::-1]):
            outputs = [_find_best(*pair, scale) for *pair, scale in zip(x, y, self.scales, strict=True)]
            worst.append(sum((ratio for _, ratio in outputs), Fraction(0)))
            self._compare(block, rows, exact, [output for output, _ in outputs])
        return max(worst)

    def _compare(
        self,
        block: Aggregation,
        rows: tuple[int | None, ...],
        exact: tuple[list[int], list[int]],
        drawn: list[int],
    ) -> None:
        """The release is a function of the noisy integers: no more of the rows shows."""
        with_row, without = (
            self.release(block, table, [z - v for z, v in zip(drawn, own, strict=True)])
            for table, own in zip((rows, rows[:-1]), exact, strict=True)
        )
        assert with_row.table.equals(without.table)
        assert with_row.event == without.event == block.event


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    made = Played(monkeypatch)
    yield made
    made.session.close()


def _find_best(x: int, y: int, scale: Fraction) -> tuple[int, Fraction]:
    """Return the output that is most in favour of x, and the logarithm of the ratio: exp(-|z - x| / scale) to that of y."""
    outputs = range(min(x, y) - REACH, max(x, y) + REACH + 1)
    ratio, best = max(((abs(z - y) - abs(z - x)) / scale, z) for z in outputs)
    return best, ratio


TABLES = [rows for many in (1, 2) for rows in itertools.product(DOMAIN, repeat=many)]


@pytest.mark.parametrize(
    "numbers",
    ["COUNT(x), AVG(x)", "AVG(x), STDDEV(x), VARIANCE(x)", "COUNT(x, epsilon => 0.1), AVG(x), COUNT(*)"],
)
def test_no_output_is_likelier_than_the_charge_allows(played: Played, numbers: str) -> None:
    block = plan(played.session, "epsilon = 1", numbers)
    worst = max(played.find_loss(block, rows) for rows in TABLES)
    assert worst == block.event.basic[0], "the charge, and it is met"


def test_a_moment_drawn_for_each_aggregate_would_exceed_the_charge(played: Played) -> None:
    """The control: the count of the mean is drawn once more, with noise of the same scale, for the same charge."""
    block = plan(played.session, "epsilon = 1", "COUNT(x), AVG(x)")
    count, mean = block.outputs
    assert isinstance(count, Count)
    assert isinstance(mean, Mean)
    assert mean.count == count.statistic
    noise = mean.count.noise
    assert isinstance(noise, LaplaceNoise)
    again = Statistic(mean.count.column, LaplaceNoise(2 * noise.epsilon, 2 * noise.sensitivity))
    twice = replace(block, outputs=(count, replace(mean, count=again)))
    assert len(twice.statistics) == len(block.statistics) + 1
    worst = max(played.find_loss(twice, rows) for rows in TABLES)
    assert worst == Fraction(7, 4) > block.event.basic[0]
