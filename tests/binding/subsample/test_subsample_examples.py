"""The examples of subsample-and-aggregate: which features matter, which model is best, what many analysts would say."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1000, delta = 0.1, accountant = "basic", default_epsilon = 20, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", max_rows = 1, columns = { y = { bounds = [-10, 10] } } }
"""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    dice = np.random.default_rng(4)
    n = 6000
    x = dice.normal(size=(n, 4))
    y = 2 * x[:, 0] - 1.5 * x[:, 2] + dice.normal(size=n)
    rows = {"u": np.arange(n), "y": y, **{f"x{i}": x[:, i] for i in range(4)}}
    with duckdb.connect() as con:
        con.register("given", rows)
        con.execute("CREATE TABLE t AS SELECT * FROM given")
        con.unregister("given")
        yield con


def test_features_that_a_lasso_keeps(session: dpsql.Session) -> None:
    linear = pytest.importorskip("sklearn.linear_model")

    def kept(y: np.ndarray, *features: np.ndarray) -> list[str]:
        model = linear.Lasso(alpha=0.3).fit(np.column_stack(features), y)
        return [f"x{i}" for i, weight in enumerate(model.coef_) if weight != 0]

    session.register("kept", kept)
    text = (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 40, combine = 'noisy_votes', candidates = ('x0', 'x1', 'x2', 'x3'), top = 2) "
        "kept(y, x0, x1, x2, x3) AS feature FROM t"
    )
    assert sorted(row[0] for row in session.sql(text).fetchall()) == ["x0", "x2"]


def test_the_best_of_several_models_by_a_function(session: dpsql.Session) -> None:
    def best(y: np.ndarray, x0: np.ndarray, x1: np.ndarray, x2: np.ndarray) -> str:
        """The name of the model with the least error on the second half of the block's people."""
        half = len(y) // 2
        errors = {}
        for name, columns in {"one": [x0], "two": [x0, x1], "three": [x0, x2]}.items():
            design = np.column_stack([np.ones(len(y)), *columns])
            weights = np.linalg.lstsq(design[:half], y[:half], rcond=None)[0]
            errors[name] = float(np.mean((design[half:] @ weights - y[half:]) ** 2))
        return min(errors, key=lambda name: errors[name])

    session.register("best", best)
    text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 40) best(y, x0, x1, x2) AS model FROM t"
    assert session.sql(text).fetchone() == ("three",)


def test_the_best_of_several_models_by_a_query(session: dpsql.Session) -> None:
    text = (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 40) "
        "CASE WHEN REGR_R2(y, x0) > REGR_R2(y, x1) THEN 'x0' ELSE 'x1' END AS model FROM t"
    )
    assert session.sql(text).fetchone() == ("x0",)


def test_votes_from_lists_of_a_query(session: dpsql.Session) -> None:
    text = (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 40, combine = 'noisy_votes', candidates = ('x0', 'x1', 'x3'), top = 1) "
        "[CASE WHEN ABS(CORR(y, x0)) > 0.3 THEN 'x0' END, CASE WHEN ABS(CORR(y, x1)) > 0.3 THEN 'x1' END, 'nobody'] AS f FROM t"
    )
    assert [row[0] for row in session.sql(text).fetchall()] == ["x0"]


def test_a_stable_winner_and_none(session: dpsql.Session) -> None:
    text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 40, combine = 'stable_mode') {} AS w FROM t"
    steady = "CASE WHEN AVG(y * x0) > 0 THEN 'up' ELSE 'down' END"
    assert session.sql(text.format(steady)).fetchone() == ("up",)
    torn = "CASE WHEN AVG(y * x1) > 0 THEN 'up' ELSE 'down' END"
    # By chance one side leads by some 32 votes: that is answered in 77 times as many runs as delta says.
    result = session.sql(text.replace("OPTIONS (", "OPTIONS (epsilon = 1, delta = 1e-12, ").format(torn))
    assert result.fetchone() == (None,)
    assert result.notes
