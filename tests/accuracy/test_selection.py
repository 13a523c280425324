"""Numbers of private keys that are released, before and now: at the same epsilon, delta, unit, caps and neighbouring relation.

The case has the shape of one in which others release 79 to 217 of 73,388 keys, and dpsql released 148: 30,000 units with a
geometric number of keys, ten on average, that follow Zipf's law. ``before`` is the mechanism of version 6755a19, the
optimum for one decision with even shares of epsilon and delta, on the same counts in the same run.
"""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.mechanisms.per_group import GroupSelector
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import choose_groups
from tests.support.accuracy import Table

UNITS, MEAN, KEYS = 30_000, 10.3, 330_000
POLICY = """
budget = {{ epsilon = 1e6, delta = 0.5, accountant = "{accountant}" }}
[tables]
t = {{ privacy_unit = "u", max_rows_per_group = 100, max_groups = 1000 }}
"""


def make_keys(units: int, mean: float, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Make pairs of units and keys, each once: keys of a unit are drawn from ``exp(U ln keys)``, U uniform."""
    dice = np.random.default_rng(22)
    many = dice.geometric(1 / mean, units)
    owner = np.repeat(np.arange(units), many)
    drawn = np.exp(dice.random(len(owner)) * math.log(keys)).astype(np.int64)
    pairs = np.unique(owner * (1 << 32) | drawn)
    return pairs >> 32, pairs & ((1 << 32) - 1)


def count_even_shares(owner: np.ndarray, key: np.ndarray, groups: int) -> int:
    """Count the keys that the mechanism of before keeps."""
    kept = choose_groups(owner, groups, Entropy())
    counts = np.unique(key if kept is None else key[kept], return_counts=True)[1]
    before = GroupSelector("units", Fraction(1), Fraction(1, 10**6), groups)
    return int(before.keep(counts, Entropy()).sum())


def count_keys(session: dpsql.Session, groups: int) -> int:
    """Count the keys that a session releases."""
    options = f"epsilon = 1, delta = 1e-6, max_groups_contributed = {groups}"
    return len(session.sql(f"SELECT WITH DP OPTIONS ({options}) k FROM t GROUP BY k", fresh=True).dicts())


@pytest.mark.accuracy
@pytest.mark.parametrize("accountant", ["basic", "zcdp"])
def test_more_keys_are_released_than_before(accountant: str, accuracy: Table) -> None:
    owner, key = make_keys(UNITS, MEAN, KEYS)
    with duckdb.connect() as con:
        con.register("pairs", {"u": owner, "k": key})
        con.execute("CREATE TABLE t AS SELECT u, k FROM pairs")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(accountant=accountant))) as session:
            present = len(np.unique(key))
            for groups in (1, 2, 3, 5, 10, 20, 50):
                before = [count_even_shares(owner, key, groups) for _ in range(4)]
                now = [count_keys(session, groups) for _ in range(4)]
                name = f"{present:,} private keys, units in {groups} groups, {accountant}: keys for each that is released"
                peers = "of 73,388 keys others release 79 to 217" if groups == 5 else ""
                ratios = [present / n for n in before]
                record, chance = float(np.mean(ratios)), float(np.std(ratios, ddof=1)) / 2
                accuracy.check(name, [present / n for n in now], before=record, chance=chance, peers=peers)
                print(
                    f"\n{groups} groups, {accountant}: {np.mean(before):.0f} keys before, {np.mean(now):.0f} now"
                )
                if groups >= 3:
                    assert np.mean(now) > 1.15 * np.mean(before)


def test_in_short() -> None:
    """The same with few units, so that only what is far off is seen."""
    owner, key = make_keys(6_000, MEAN, 3_000)
    with duckdb.connect() as con:
        con.register("pairs", {"u": owner, "k": key})
        con.execute("CREATE TABLE t AS SELECT u, k FROM pairs")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(accountant="zcdp"))) as session:
            assert count_keys(session, 5) > 1.2 * count_even_shares(owner, key, 5)
            said = str(
                session.explain(
                    "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 5) k FROM t GROUP BY k"
                )
            )
            assert "optimal at Rényi order 21.3 for 5 groups of a unit together" in said
            one = str(
                session.explain(
                    "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 1) k FROM t GROUP BY k"
                )
            )
            assert "(optimal, ε=1" in one
