"""Public groups that share a unit's rows: no more than is charged, never fewer rows than whole groups would keep."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.exact.exact_query import Exact
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.fast import packed_aggregation
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import share_rows
from dpsql.privacy.conversions import laplace_mu, laplace_rho
from tests.support import inside
from tests.support.fixtures import both_fixture
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.lock_texts import forge_texts
from tests.support.moves import group_of, loss_beyond, make_reader, read, violations

POLICY = """
budget = { epsilon = 1e12, delta = 0.1, accountant = "basic", default_epsilon = 1e9, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", max_rows_per_group = 3, max_groups = 2, columns = { k = { values = [0, 1, 2, 3, 4] }, \
    x = { bounds = [-2, 5] } } }
"""
GAUSSIAN = "WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = GAUSSIAN)"
ASKED = "k, COUNT(*), COUNT(x), SUM(x), SUM(x, contribution_bounds_per_row => (1, 4)), AVG(x), VAR_POP(x) FROM t GROUP BY k"
STATEMENTS = [f"SELECT {ASKED}", f"SELECT {GAUSSIAN} {ASKED}"]
Opened = tuple[duckdb.DuckDBPyConnection, dpsql.Session]
TABLES = """
CREATE TABLE t (u INTEGER, k INTEGER, x INTEGER);
"""
opened = both_fixture(POLICY, TABLES, scope="function")


def operator(session: dpsql.Session, text: str) -> Aggregation:
    (block,) = inside.bind(session, text).blocks
    assert isinstance(block.operator, Aggregation)
    return block.operator


def fill(con: duckdb.DuckDBPyConnection, dice: random.Random) -> None:
    """Few units of many rows in many groups, some outside of the public ones or without a value."""
    many = dice.choice((4, 12, 40))
    values = [
        (dice.choice((1, 1, 1, 2, 3, None)), dice.choice((0, 1, 2, 3, 4, 9)), dice.choice((-9, -2, 0, 5, 50, None)))
        for _ in range(many)
    ]  # fmt: skip
    con.execute("DELETE FROM t")
    con.executemany("INSERT INTO t VALUES (?, ?, ?)", values)


def search(opened: Opened, cases: int, seed: int) -> Iterator[list[str]]:
    """Yield what a unit that goes moves beyond what is declared, in random tables."""
    con, session = opened
    dice = random.Random(seed)
    for _ in range(cases):
        fill(con, dice)
        asked = operator(session, dice.choice(STATEMENTS) + " " * dice.choice((0, 1)))
        before = read(con, asked)
        con.execute("DELETE FROM t WHERE u = 1")
        after = read(con, asked)
        yield violations(asked, before, after, False) + loss_beyond(asked, before, after)


def test_no_unit_moves_more_than_is_declared(opened: Opened) -> None:
    assert not any(search(opened, 80, 1))


@pytest.mark.stochastic
@pytest.mark.timeout(3600)
def test_no_unit_moves_more_than_is_declared_at_length(opened: Opened) -> None:
    assert not any(search(opened, 5000, 2))


@pytest.mark.parametrize("wrong", ["a row more", "all of a group's rows", "no sum"])
def test_the_search_notices_more_rows(opened: Opened, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = {"a row more": ("6 - COALESCE", "7 - COALESCE"), "all of a group's rows": (r"LEAST\(COUNT\(\*\), 3\)", "COUNT(*)"),
                "no sum": ("6 - COALESCE", "6 - 0 * COALESCE")}  # fmt: skip
    plain = Exact.sql

    def sql(self: Exact, in_parts: bool = False) -> str:
        text, count = re.subn(*patterns[wrong], plain(self, in_parts))
        assert count
        return text

    monkeypatch.setattr(Exact, "sql", sql)
    assert any(search(opened, 400, 3))


FORGED = [("6 - COALESCE", "7 - COALESCE"), (r"LEAST\(COUNT\(\*\), 3\)", "LEAST(COUNT(*), 4)"), (r"\$salt", "7"),
          ("UNBOUNDED PRECEDING AND 1 PRECEDING", "UNBOUNDED PRECEDING AND 2 PRECEDING"),
          (r"PARTITION BY u ", ""), (r"1 \* counted", "1 * n")]  # fmt: skip


@pytest.mark.parametrize(("pattern", "wrong"), FORGED)
def test_the_second_lock_refuses_more(
    opened: Opened, pattern: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, asked = opened[1], f"SELECT {GAUSSIAN} k, COUNT(*), SUM(x) FROM t GROUP BY k"
    assert session.sql(asked) is not None
    hits = forge_texts(monkeypatch, pattern, wrong)
    with pytest.raises(dpsql.PrivacyError, match="could not be proved safe"):
        session.sql(asked, fresh=True)
    assert sum(hits), "the text has no such place"


def totals(con: duckdb.DuckDBPyConnection, asked: Aggregation, packed: bool) -> dict[object, dict[str, int]]:
    """The exact totals by the query, or by the packed route."""
    if not packed:
        return dict(read(con, asked))
    table = asked.packed.take(make_reader(con), Entropy())
    return {
        group_of(row, asked.keys): {c: int(v) for c, v in row.items() if c not in asked.keys}
        for row in table.to_pylist()
    }


@pytest.mark.parametrize("packed", [False, True], ids=["query", "packed"])
def test_as_many_rows_count_as_the_caps_allow_together(opened: Opened, packed: bool) -> None:
    """Rows in all of min(6, the sum of min(3, n)), and weights and clamped sums to match."""
    con, session = opened
    con.execute("INSERT INTO t SELECT 1, i % 5, 5 FROM range(5) r(i)")  # one row in each: 5 of 6
    con.execute("INSERT INTO t SELECT 2, 0, 5 FROM range(50)")  # 50 in one: 3
    con.execute("INSERT INTO t SELECT 3, i % 5, 5 FROM range(25) r(i)")  # 5 in each: 6 of 15
    con.execute("INSERT INTO t SELECT 4, i % 2, -9 FROM range(4) r(i)")  # 2 in each of two: all
    made = operator(session, "SELECT k, COUNT(*), SUM(x), AVG(x) FROM t GROUP BY k")
    for _ in range(3):
        found = totals(con, made, packed).values()
        assert sum(group["p0"] for group in found) == 5 + 3 + 6 + 4
        # The rows of a COUNT and a SUM weigh alike, in parts of a row.
        assert sum(group["p1"] for group in found) == (5 * (5 + 3 + 6) - 2 * 4) << 20
    means = session.sql("SELECT k, AVG(x) FROM t GROUP BY k", fresh=True).fetchall()
    assert [mean for k, mean in means if k > 1] == pytest.approx([5, 5, 5], abs=1e-3)
    cut = operator(
        session, "SELECT WITH DP OPTIONS (max_groups_contributed = 2) k, COUNT(*) FROM t GROUP BY k"
    )
    assert sum(group["p0"] for group in totals(con, cut, packed).values()) == 2 + 3 + 6 + 4


def test_both_routes_agree_where_nothing_is_chosen(opened: Opened) -> None:
    con, session = opened
    dice = random.Random(7)
    for _ in range(20):
        fill(con, dice)
        con.execute("DELETE FROM t WHERE k > 1")
        made = operator(session, f"SELECT {ASKED}".replace(", VAR_POP(x)", ""))
        ((many,),) = con.sql("SELECT COUNT(*) FROM t WHERE u IS NOT NULL AND k < 5").fetchall()
        if many:
            assert totals(con, made, True) == totals(con, made, False)


def test_never_fewer_rows_than_whole_groups(opened: Opened) -> None:
    con, session = opened
    dice, more = random.Random(8), 0
    for _ in range(60):
        fill(con, dice)
        counts = (
            read(con, operator(session, f"SELECT {options} k, COUNT(*) FROM t GROUP BY k"))
            for options in ("", "WITH DP OPTIONS (max_groups_contributed = 2)")
        )
        shared, whole = (sum(group["p0"] for group in found.values()) for found in counts)
        assert shared >= whole
        more += shared > whole
    assert more > 10


def test_units_and_means_of_units_still_choose_groups(opened: Opened) -> None:
    """A number that a unit moves by 1 in each group, whatever its rows, needs the cap on groups."""
    for asked in ("COUNT(*), COUNT(DISTINCT u)", "SUM(x, contribution_bounds_per_group => (0, 4)), COUNT(*)"):
        text = operator(opened[1], f"SELECT k, {asked} FROM t GROUP BY k").query
        assert "lag(u, 2)" in text
        assert "counted" not in text


@pytest.mark.parametrize("loss", [laplace_rho, laplace_mu])
def test_noise_loses_most_where_few_numbers_move_far(loss: object) -> None:
    """The loss of Laplace noise (its square, for mu) in parts of the distance grows with it, so splitting it loses no more."""
    losses = [float(loss(Fraction(i, 20))) for i in range(1, 121)]  # type: ignore[operator]
    if loss is laplace_mu:
        losses = [found**2 for found in losses]
    rates = [found / i for i, found in enumerate(losses, 1)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(rates))


def test_every_group_is_as_likely_to_be_cut_whoever_else_is_there() -> None:
    rows = np.array([2, 1, 2])
    others = np.repeat(np.arange(1, 300), 3)
    for crowd in (np.zeros(0, dtype=np.int64), others):
        units = np.concatenate([np.zeros(3, dtype=np.int64), crowd])
        many = np.concatenate([rows, np.full(len(crowd), 2)])
        entropy, seen = fixed(f"shared {len(crowd)}"), []
        for _ in range(900):
            counted = share_rows(units, many, 3, entropy)
            assert (counted <= many).all()
            assert np.bincount(units, weights=counted).max() == 3
            seen.append({(2, 1, 0): 0, (2, 0, 1): 1, (0, 1, 2): 2, (1, 0, 2): 3}[tuple(counted[:3].tolist())])
        # Orders of the three groups, each 1/6: two leave nothing for the third, or one row of the second.
        law = [2 / 6, 1 / 6, 2 / 6, 1 / 6]
        assert p_value(np.array(seen), lambda i, law=law: law[i] if i < 4 else 0.0, signed=False) > REFUSED
        assert p_value(np.array(seen), lambda i: 0.25 if i < 4 else 0.0, signed=False) < REFUSED
    assert share_rows(np.array([0, 0, 1]), np.array([1, 2, 3]), 3, Entropy()) is None
    assert share_rows(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 3, Entropy()) is None
    assert packed_aggregation.share_rows is share_rows
