"""Several quantiles in one call, and the least and greatest value where nothing is left to chance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from tests.support.fixtures import open_both

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6 }
[tables]
t = { privacy_unit = "ROW", max_groups = 1, columns = { x = { bounds = [0, 100] }, d = { bounds = [-50, 50] }, \
    g = { values = [0, 1] } } }
"""


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    with open_both(
        POLICY, "CREATE TABLE t AS SELECT i * 7 AS x, i - 3.5 AS d, i % 2 AS g FROM range(1, 11) AS r(i)"
    ) as (con, session):
        session.con = con  # type: ignore[attr-defined]
        yield session


@pytest.mark.parametrize(
    ("asked", "like"),
    [
        ("QUANTILE_DISC(x, [0.9, 0.5, 0.1])", "quantile_disc(x, [0.9, 0.5, 0.1])"),
        ("QUANTILE_DISC(x, [0.5])", "quantile_disc(x, [0.5])"),
        ("QUANTILE_DISC(x, [0.15, 0.85]) FILTER (WHERE x > 20)", None),
        ("LIST_SUM(QUANTILE_DISC(x, [0.25, 0.75])) + 1", None),
        ("QUANTILE_DISC(x, [0.35, 0.85])[2]", None),
    ],
)
def test_a_list_is_answered_as_a_list(session: dpsql.Session, asked: str, like: str | None) -> None:
    """As DuckDB answers it, at an epsilon that leaves nothing to chance (but a step where a rank is a whole number)."""
    got = session.sql(f"SELECT {asked} FROM t")
    row = session.con.sql(f"SELECT {asked} FROM t").fetchall()[0]  # type: ignore[attr-defined]
    answered = got.fetchone()
    near = (
        [answered[0], row[0]]
        if isinstance(row[0], int | float)
        else list(zip(answered[0], row[0], strict=True))
    )
    assert all(abs(a - b) <= 7 for a, b in (near if isinstance(near[0], tuple) else [near]))  # type: ignore[list-item]
    if like is not None:
        assert got.columns == [like]


def test_each_of_a_list_has_its_share(session: dpsql.Session) -> None:
    one = session.sql("SELECT QUANTILE_CONT(x, [0.25, 0.5]) FROM t")
    two = session.sql("SELECT QUANTILE_CONT(x, 0.25), QUANTILE_CONT(x, 0.5) FROM t", fresh=True)
    assert one.event.epsilon == two.event.epsilon == 1_000_000
    by_group = session.sql("SELECT g, QUANTILE_CONT(x, [0.1, 0.9]) AS q FROM t GROUP BY g ORDER BY g").dicts()
    assert [len(row["q"]) for row in by_group] == [2, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    ["QUANTILE_CONT(x, [])", "QUANTILE_CONT(x, [0.5, 2])", "QUANTILE_CONT(x, [x])", "QUANTILE_CONT(x, [0.5, 0.6], epsilon => 1)",
     "QUANTILE_CONT(x, [[0.5]])"],
)  # fmt: skip
def test_lists_that_are_refused(session: dpsql.Session, asked: str) -> None:
    with pytest.raises(dpsql.BindError):
        session.sql(f"SELECT {asked} FROM t")


def test_ends_are_those_of_the_data(session: dpsql.Session) -> None:
    for _ in range(5):
        found = session.sql("SELECT MIN(x), MAX(x), MIN(d), MAX(d) FROM t", fresh=True).fetchone()
        assert found[:2] == (7, 70)
        assert [float(v) for v in found[2:]] == [-2.5, 6.5]
