"""The error of each accountant's choice, and the least that is known to be possible, as one table.

Errors are those of plans: of the strategy that AUTO chose, and of the noise of each number. Bounds are computed here from the
workload alone, and share no code with the mechanisms:

* Gaussian noise. Let W be the workload: its rows are linear queries of counts, its columns the kinds of rows that one unit may
  add. Any mechanism that adds Gaussian noise to linear measurements, and combines them linearly, factorises W = B C. Its total
  squared error is ``|B|_F^2 max_j |C_j|^2 / mu^2``. For weights w that add up to 1, the nuclear norm of ``W diag(w)^(1/2)`` is at
  most ``|B|_F |C diag(w)^(1/2)|_F``, so at most the root of that error. Each w gives a lower bound; an iteration finds a good one
  (Li, Miklau, Hay, McGregor, Rastogi 2015; Denisov, McMahan, Rush, Smith, Thakurta 2022).
* One number, pure epsilon: the staircase mechanism has the least variance of all noise (Geng, Viswanath 2016).
* Several numbers, pure epsilon: the first bound, with the variance of the best noise for one number in place of 1. It is a
  reference for noise on linear measurements: their L1 sensitivity is at least the L2 sensitivity.
* Ranks: Hammersley, Chapman and Robbins. One row more moves a median by half a rank, and an unbiased estimate has a variance of
  at least ``1/4`` over the chi-squared divergence: ``4 sinh(epsilon / 2)^2`` for pure epsilon, ``exp(mu^2) - 1`` for mu.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

import dpsql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.moments import Mean
from dpsql.mechanisms.quantiles import Quantiles
from tests.support.inside import planned

PAGE = Path(__file__).parents[2] / "notebooks" / "docs" / "explanation" / "error_table.md"
NEAR = 1.3
"""The ratio of error to bound above which a line gives its reason."""
Matrix = NDArray[np.float64]
PURE, ZCDP, GDP = "ε = 1", "ρ = 1/8", "μ = 1/2"
OPTIONS = {
    PURE: ("basic", "epsilon = 1"),
    "ε = 3": ("basic", "epsilon = 3"),
    ZCDP: ("zcdp", "rho = 0.125"),
    GDP: ("gdp", "mu = 0.5"),
}
MU = 0.5
OFF = 25.0
"""The distance of the mean from the middle of the bounds, 50: a quarter of their distance."""
REACH = 100


def bound_factorisation(workload: Matrix) -> float:
    """Return a lower bound of the total squared error of Gaussian noise at mu = 1."""
    gram = workload.T @ workload
    weights = np.full(len(gram), 1 / len(gram))
    best, before = 0.0, -1.0
    while best > before * (1 + 1e-4):
        before = best
        roots = np.sqrt(weights)
        values, vectors = np.linalg.eigh(roots[:, None] * gram * roots)
        singular = np.sqrt(np.maximum(values, 0))
        best = max(best, float(singular.sum()))
        weights = ((vectors * singular) @ vectors.T).diagonal()
        weights = np.maximum(weights, 0) / weights.sum()
    return best**2


def bound_one_number(epsilon: float, sensitivity: int) -> float:
    """Return the least variance of noise on an integer: the best of all staircases."""
    steps = np.arange(math.ceil(60 / epsilon) + 2)
    variances = []
    for first in range(sensitivity):
        most = first + steps * sensitivity
        weights = np.exp(-epsilon * steps) * (2 * most + 1)
        variances.append(float((weights * most * (most + 1)).sum() / weights.sum() / 3))
    return min(variances)


def read_epsilon(asked: str) -> float:
    return float(asked.rpartition(" ")[2])


def find_one_row(asked: str) -> float:
    """Return the variance of the best noise for a number that one row moves by 1, in a fine grid."""
    return 1 / MU**2 if asked in (ZCDP, GDP) else bound_one_number(read_epsilon(asked), REACH) / REACH**2


@dataclass(frozen=True)
class Line:
    """A line of the table: a statement, the bound of its root mean squared error, and why it is missed, if it is."""

    name: str
    asked: str
    statement: str
    bound: Callable[[str], float]
    reason: str = ""


def expect_error(plan: Any, told: Any) -> tuple[str, float]:
    """Return the choice, and the root mean squared error of one number."""
    if told.get("strategies"):
        (strategy,) = told["strategies"]
        (error,) = strategy["expected_rmse"][strategy["chosen"]].values()
        return strategy["chosen"].lower().replace("_", " "), error
    (block,) = plan.blocks
    outputs = getattr(block.operator, "outputs", None)
    if outputs is None:
        (part,) = block.operator.parts
        assert isinstance(part, Quantiles)
        return "exponential", math.sqrt(2) / float(part.epsilon)
    squares = []
    for output in outputs:
        if isinstance(output, Mean):
            total, count = output.total.noise.variance, output.count.noise.variance
            squares.append(total / float(output.steps * output.whole) ** 2 + OFF**2 * count / output.whole**2)
        else:
            squares.append(output.statistics[0].noise.variance / float(getattr(output, "steps", 1)) ** 2)
    noise = type(outputs[0].statistics[0].noise).__name__
    kind = "Gaussian" if "Gaussian" in noise else noise.removesuffix("Noise").lower()
    return kind, math.sqrt(np.mean(squares))


# -- workloads ----------------------------------------------------------------------------------------------------------


@lru_cache
def bound_totals(steps: int) -> float:
    return bound_factorisation(np.tril(np.ones((steps, steps)))) / steps


def totals(steps: int) -> Callable[[str], float]:
    """Return the bound of running totals: the matrix of ones on and below the diagonal."""
    return lambda asked: math.sqrt(bound_totals(steps) * find_one_row(asked))


def marginals(sizes: Sequence[int], sets: Sequence[tuple[int, ...]]) -> Callable[[str], float]:
    """Return the bound of counts by each set of keys."""
    cells = list(product(*map(range, sizes)))
    rows = [
        [float(all(cell[i] == value for i, value in zip(places, values, strict=True))) for cell in cells]
        for places in sets
        for values in product(*(range(sizes[i]) for i in places))
    ]
    return lambda asked: math.sqrt(bound_factorisation(np.array(rows)) / len(rows) * find_one_row(asked))


def linear(*queries: Callable[[float], float]) -> Callable[[str], float]:
    """Return the bound of sums of functions of a value from 0 to 100."""
    rows = np.array([[query(float(y)) for y in range(REACH + 1)] for query in queries])
    return lambda asked: math.sqrt(bound_factorisation(rows) / len(rows) * find_one_row(asked))


def one_count(asked: str) -> float:
    return 1 / MU if asked in (ZCDP, GDP) else math.sqrt(bound_one_number(read_epsilon(asked), 1))


def half_a_rank(asked: str) -> float:
    if asked in (ZCDP, GDP):
        return 0.5 / math.sqrt(math.expm1(MU**2))
    return 0.25 / math.sinh(read_epsilon(asked) / 2)


CUBE = "SELECT k, j, COUNT(*) AS n FROM t GROUP BY CUBE (k, j)"
PAIRS = "SELECT k, j, i, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((k), (j), (i), (k, j), (k, i), (j, i))"
RUN = "SELECT {0}, SUM(COUNT(*)) OVER (ORDER BY {0}) AS c FROM t GROUP BY {0}"
CUBE_SETS = [places for n in range(3) for places in combinations(range(2), n)]
PAIR_SETS = [places for n in (1, 2) for places in combinations(range(3), n)]
TREES = "the bound is of L2, and noise of pure epsilon pays for L1; other shares of a tree's levels gain 2 % at most"
SETS = "no marginal may err more than alone; without that condition, noise on the finest cells alone gives {}"
MIDDLE = "the mean is not known before: noise serves means at both ends of the bounds alike"
RANKS = "the exponential mechanism covers ranks that move unevenly; the bound is of one place alone"


def list_lines() -> Iterator[Line]:
    for asked in OPTIONS:
        yield Line("one count", asked, "SELECT COUNT(*) AS n FROM t", one_count)
        yield Line("one sum", asked, "SELECT SUM(x) AS s FROM t", linear(lambda y: y))
    for asked in (PURE, ZCDP, GDP):
        pure = asked == PURE
        mean = linear(lambda y: y - 50 - OFF)
        yield Line("a mean × rows", asked, "SELECT AVG(x) AS a FROM t", mean, MIDDLE if pure else "")
        three = linear(lambda y: 1.0, lambda y: y, lambda y: y - 50 - OFF)
        all_of = "SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a FROM t"
        yield Line("count, sum, mean × rows", asked, all_of, three, SHARED)
        for key, steps in (("day", 12), ("d", 365)):
            yield Line(
                f"{steps} running totals", asked, RUN.format(key), totals(steps), TREES if pure else ""
            )
        cube, pairs = marginals((7, 5), CUBE_SETS), marginals((7, 5, 3), PAIR_SETS)
        yield Line("CUBE of 7 and 5", asked, CUBE, cube, SETS.format("2.4") if pure else "")
        yield Line("1- and 2-way counts of 7, 5, 3", asked, PAIRS, pairs, SETS.format("4.0") if pure else "")
        yield Line("a median, in ranks", asked, "SELECT MEDIAN(x) AS m FROM t", half_a_rank, RANKS)


SHARED = "each of the three is answered alone, although the mean's count and total determine the sum"


@pytest.fixture(scope="module")
def measured() -> list[tuple[Line, str, float, float]]:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT range % 365 AS d, range % 12 AS day, range % 7 AS k, range % 5 AS j, range % 3 AS i, "
        "(range % 101)::INTEGER AS x FROM range(1000)"
    )
    sizes = {"d": 365, "day": 12, "k": 7, "j": 5, "i": 3}
    values = "\n".join(f"{name} = {{ values = {list(range(size))} }}" for name, size in sizes.items())
    found = []
    sessions = {}
    for asked, (accountant, _) in OPTIONS.items():
        delta = "" if accountant == "basic" else "delta = 0.1\ndefault_delta = 1e-6\n"
        policy = (
            f'[budget]\nepsilon = 1e6\naccountant = "{accountant}"\n{delta}[tables.t]\nprivacy_unit = "ROW"\n'
            f"[tables.t.columns]\nx = {{ bounds = [0, {REACH}] }}\n{values}\n"
        )
        sessions[asked] = dpsql.connect(con, policy=dpsql.Policy.loads(policy))
    for line in list_lines():
        session, option = sessions[line.asked], OPTIONS[line.asked][1]
        text = line.statement.replace("SELECT", f"SELECT WITH DP OPTIONS ({option})", 1)
        told = json.loads(session.explain(text).json())
        chosen, error = expect_error(planned(session, text), told)
        found.append((line, chosen, error, line.bound(line.asked)))
    for session in sessions.values():
        session.close()
    return found


def write_table(measured: Sequence[tuple[Line, str, float, float]]) -> str:
    lines = ["| numbers | loss | choice | error | bound | ratio |", "|---|---|---|---|---|---|"]
    reasons: dict[str, int] = {}
    for line, chosen, error, bound in measured:
        mark = ""
        if error / bound > NEAR:
            mark = f" [{reasons.setdefault(line.reason, len(reasons) + 1)}]"
        lines.append(
            f"| {line.name} | {line.asked} | {chosen} | {error:.3g} | {bound:.3g} | {error / bound:.2f}{mark} |"
        )
    return "\n".join([*lines, "", *(f"{number}. {reason}." for reason, number in reasons.items())])


def test_errors_are_near_the_least_possible_or_say_why(
    measured: list[tuple[Line, str, float, float]],
) -> None:
    """No error is below its bound, which would refute the bound or the noise; one far above it has a reason."""
    print("\n" + write_table(measured))
    for line, _, error, bound in measured:
        assert error >= bound * 0.999, line
        assert error <= NEAR * bound or line.reason, line


def test_the_page_has_this_table(measured: list[tuple[Line, str, float, float]]) -> None:
    assert write_table(measured) in PAGE.read_text()


def test_bounds_are_sharp_where_the_optimum_is_known() -> None:
    """Identity: noise on each count is optimal. One total: one draw. A factorisation errs by no less than the bound."""
    assert bound_factorisation(np.eye(7)) == pytest.approx(7)
    assert bound_factorisation(np.ones((1, 9))) == pytest.approx(1)
    root = np.tril(np.ones((12, 12)))
    by_one = np.linalg.norm(root) ** 2  # EVEN: a factorisation, so never below the bound
    assert bound_factorisation(root) < by_one
    geometric = 2 * math.exp(-1) / (1 - math.exp(-1)) ** 2
    assert bound_one_number(1, 1) == pytest.approx(geometric)
    laplace = 2 * math.exp(-1 / 40) / (1 - math.exp(-1 / 40)) ** 2
    assert 0.9 * laplace < bound_one_number(1, 40) < laplace


def test_running_totals_one_by_one_are_far_from_the_bound() -> None:
    """A negative control: independent noise on 60 steps would not pass for near."""
    assert math.sqrt(61 / 2 / MU**2) > NEAR * totals(60)(GDP)
