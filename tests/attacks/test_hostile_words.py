"""The words AUTO, LAPLACE and GAUSSIAN where a value of an option stands: in other forms they are refused, and never guessed."""

from __future__ import annotations

import pytest

import dpsql
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 100, delta = 1e-2, accountant = "basic", default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", columns.k.values = [0, 1, 2, 3], columns.x.bounds = [0, 300] }
pub = { public = true }
"""
CAPS = "SELECT WITH DP OPTIONS (epsilon = 1, {} = {}) COUNT(*) AS n FROM t"
NOISE = "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 3, {} = {}) COUNT(*) AS n FROM t"
BOUNDS = "SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 3) SUM(x, {} => {}) AS n FROM t"
PLACES = {
    "max_rows_contributed": CAPS,
    "max_groups_contributed": CAPS.replace("epsilon = 1", "epsilon = 1, max_rows_contributed = AUTO"),
    "noise": NOISE,
    "contribution_bounds_per_row": BOUNDS,
}
SAME = ("auto", "Auto", '"AUTO"', "AUTO /* ) */", "AUTO -- (\n")
REFUSED = (
    "t.auto", "pub.auto", 't."AUTO"', "memory.main.t.auto", "AUTO()", "AUTO + 1", "-AUTO", "(AUTO)", "NOT AUTO", "AUTO::INTEGER",
    "CAST('AUTO' AS VARCHAR)", "(SELECT auto FROM pub)", "(SELECT MAX(x) FROM t)", "(SELECT MAX(auto) FROM t)", "u",
    "CASE WHEN TRUE THEN AUTO END", "AUTO AUTO", "AUTO, AUTO", "\u0410UTO", "AUTO\u200b", "\uff21\uff35\uff34\uff2f", "DEFAULT",
    "TRUE", "0", "-1", "1.5", "1e400", "'1'", "[AUTO]", "{'a': AUTO}", "AUTO = AUTO", "AUTO; DROP TABLE t", "'AUTO' || ''", "*",
    "AUTO OVER ()", "AUTO.auto", "$missing", "?",
)  # fmt: skip
TABLES = """
CREATE TABLE t AS SELECT i // 3 AS u, i % 4 AS k, i AS x, 'AUTO' AS auto, 7 AS laplace FROM range(300) r(i);
CREATE TABLE pub AS SELECT -5 AS auto, 'GAUSSIAN' AS laplace;
"""
held = session_fixture(POLICY, TABLES)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_not_the_word_is_refused_and_costs_nothing(held: dpsql.Session, name: str) -> None:
    for value in REFUSED:
        for read in (held.explain, held.sql):
            with pytest.raises(dpsql.Error) as caught:
                read(PLACES[name].format(name, value))
            assert not isinstance(caught.value, dpsql.EngineError), (name, value)
    assert held.budget().spent == "ε=0"


@pytest.mark.parametrize("name", PLACES)
def test_the_word_is_one_word_however_it_is_written(held: dpsql.Session, name: str) -> None:
    first = str(held.explain(PLACES[name].format(name, "AUTO")))
    assert "found privately" in first or "AUTO takes" in first
    for value in SAME:
        assert str(held.explain(PLACES[name].format(name, value))) == first, value


@pytest.mark.parametrize(
    "value", ["t.laplace", "pub.laplace", "pub.gaussian", "LAPLACE.laplace", "LAPLACE || ''", "(LAPLACE)"]
)
def test_a_column_is_no_kind_of_noise(held: dpsql.Session, value: str) -> None:
    with pytest.raises(dpsql.BindError, match="must be a word"):
        held.explain(NOISE.format("noise", value))


def test_a_parameter_is_a_value_and_no_word(held: dpsql.Session) -> None:
    """A parameter holds text or a number: it may name a noise, as a string may, and never a cap."""
    for name in ("max_rows_contributed", "max_groups_contributed", "contribution_bounds_per_row"):
        for value in ("AUTO", "AUTO) COUNT(*) FROM t --", "1"):
            with pytest.raises(dpsql.BindError):
                held.explain(PLACES[name].format(name, "$p"), {"p": value})
    assert "AUTO takes" in str(held.explain(NOISE.format("noise", "$p"), {"p": "AUTO"}))
    with pytest.raises(dpsql.BindError):
        held.explain(NOISE.format("noise", "$p"), {"p": "AUTO, epsilon = 9"})


def test_tables_and_columns_may_be_called_so(held: dpsql.Session) -> None:
    text = (
        "WITH auto AS (SELECT u, x AS auto FROM t) SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) "
        "SUM(auto, contribution_bounds_per_row => AUTO) AS auto FROM auto"
    )
    said = str(held.explain(text))
    assert "max_rows_contributed is found privately" in said
    assert "clamped to bounds found privately" in said
