"""Caps on a unit's rows in all, in one group, and on its groups: what a text keeps, what noise is for, and what is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.binding.relations.unit_rows import RowCaps
from dpsql.errors import Error
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from tests.support import inside
from tests.support.fixtures import con_fixture

HEAD = '[budget]\nepsilon = 1e12\ndelta = 0.5\naccountant = "basic"\ndefault_epsilon = 1\n'
KEYS = "abcdef"
COLUMNS = f"[tables.t.columns]\nk = {{ values = {list(KEYS)} }}\nx = {{ bounds = [10, 50] }}\n"
Caps = tuple[int | None, int | None, int | None]


def policy_of(caps: Caps) -> dpsql.Policy:
    names = ("max_rows", "max_rows_per_group", "max_groups")
    lines = [f"{name} = {cap}" for name, cap in zip(names, caps, strict=True) if cap is not None]
    return dpsql.Policy.loads(f'{HEAD}[tables.t]\nprivacy_unit = "u"\n' + "\n".join(lines) + "\n" + COLUMNS)


TABLES = """
CREATE TABLE t (u INTEGER, k VARCHAR, p VARCHAR, x DOUBLE);
"""
con = con_fixture(TABLES, scope="function")


def vectors(caps: Caps, sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every vector of rows by group that the caps allow, of a unit with so many rows in each group."""
    in_all, each, groups = caps
    for vector in itertools.product(*(range(min(size, each or size) + 1) for size in sizes)):
        if (in_all is None or sum(vector) <= in_all) and (groups is None or sum(map(bool, vector)) <= groups):
            yield vector


def draw_caps(dice: random.Random) -> Caps:
    while True:
        caps = tuple(dice.choice((None, *range(1, most))) for most in (9, 5, 5))
        if caps[0] is not None or (caps[1] is not None and caps[2] is not None):
            return caps  # type: ignore[return-value]


def aggregation(session: dpsql.Session, text: str) -> Aggregation:
    operator = inside.bind(session, text).blocks[0].operator
    assert isinstance(operator, Aggregation)
    return operator


def test_the_distances_are_the_least_that_caps_allow() -> None:
    """By brute force: all vectors of up to nine rows in six groups."""
    dice = random.Random(1)
    for _ in range(25):
        caps = draw_caps(dice)
        found = list(vectors(caps, (4,) * 5 if caps[0] is None else (min(caps[0], 4),) * 4))
        small = RowCaps(caps[0], min(caps[1] or 4, 4), min(caps[2] or 9, 5 if caps[0] is None else 4))
        assert small.total == max(map(sum, found)), caps
        assert small.squared == max(sum(c * c for c in vector) for vector in found), caps
        rows, groups = small.reach(gaussian=False)
        assert rows * groups == small.total
        rows, groups = small.reach(gaussian=True)
        assert rows**2 * groups == small.squared


@pytest.mark.parametrize("key", ["k", "p"])
def test_a_text_keeps_what_the_caps_allow_and_noise_is_for_it(
    con: duckdb.DuckDBPyConnection, key: str
) -> None:
    dice = random.Random(2)
    for _ in range(12):
        caps = draw_caps(dice)
        in_all, each, groups = caps
        with dpsql.connect(con, policy=policy_of(caps)) as session:
            numbers = "COUNT(*), COUNT(DISTINCT u)"
            plain = f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-4, noise = {{}}) {key}, {numbers} FROM t GROUP BY {key}"
            laplace, gaussian = (aggregation(session, plain.format(word)) for word in ("LAPLACE", "GAUSSIAN"))
            public = None
            if key == "k":
                public = aggregation(session, f"SELECT {key}, COUNT(*) AS n FROM t GROUP BY {key}")
        size = len(KEYS) if key == "k" else 99
        known = RowCaps(in_all, each, min(groups or size, size))
        rows = laplace.statistics[0].noise
        assert isinstance(rows, LaplaceNoise)
        assert rows.sensitivity * rows.groups == known.total
        units = min(n for n in (in_all, groups, size) if n is not None)
        assert laplace.statistics[1].noise.groups == units
        wide = gaussian.statistics[0].noise
        assert isinstance(wide, GaussianNoise)
        assert wide.sensitivity**2 * wide.groups == known.squared
        for _ in range(6):
            sizes = [dice.choice((0, 1, 2, 9)) for _ in KEYS]
            con.execute("DELETE FROM t")
            for value, size_ in zip(KEYS, sizes, strict=True):
                con.execute(f"INSERT INTO t SELECT 1, '{value}', '{value}', 20 FROM range({size_})")
            for operator in (laplace, *([public] if public is not None else [])):
                kept = con.sql(operator.query.replace(SALT, str(dice.randint(1, 10**9)))).fetchall()
                counts = [int(row[1] or 0) for row in kept]
                assert max(counts, default=0) <= (each or 99)
                assert sum(counts) <= (known.total or 0)
                assert sum(c * c for c in counts) <= known.squared
                if operator is laplace:
                    assert sum(map(bool, counts)) <= units
            if public is not None:  # nothing more is lost than the distances need
                assert sum(counts) == min(known.total or 0, sum(min(n, each or n) for n in sizes))


@pytest.mark.parametrize(
    ("caps", "rows"),
    [((8, None, None), 8), ((8, None, 8), 8), ((None, 1, 8), 6), ((None, 8, 8), 48), ((8, 3, None), 8)],
)
def test_eight_years_of_one_man(con: duckdb.DuckDBPyConnection, caps: Caps, rows: int) -> None:
    """Each option replaces the policy's cap of its kind, and the others stay in force."""
    con.execute(
        "INSERT INTO t SELECT i // 6, chr(97 + CAST(i % 6 AS INTEGER)), 'p', 20 FROM range(600) AS r(i)"
    )
    with dpsql.connect(con, policy=policy_of(caps)) as session:
        text = "SELECT WITH DP OPTIONS ({}epsilon = 0.5) k, COUNT(*) AS n FROM t GROUP BY k"
        noise = aggregation(session, text.format("")).statistics[0].noise
        assert isinstance(noise, LaplaceNoise)
        assert noise.scale == 2 * rows
        for option in (
            "max_rows_contributed = 6, ",
            "max_rows_contributed = 6, max_groups_contributed = 5, ",
        ):
            other = aggregation(session, text.format(option)).statistics[0].noise
            assert isinstance(other, LaplaceNoise)
            assert other.scale == 2 * min(
                6, (caps[1] or 6) * (5 if "groups" in option else min(caps[2] or 6, 6))
            )
        answer = session.sql(text.format("").replace("0.5", "1e9"))
        assert sorted(n for _, n in answer.fetchall()) == [100] * 6


def test_which_caps_are_enough(con: duckdb.DuckDBPyConnection) -> None:
    grouped = "SELECT WITH DP OPTIONS (delta = 1e-6) {0}, COUNT(*) FROM t GROUP BY {0}"
    enough = {
        (5, None, None): ("", "k", "p"), (None, 5, None): ("",), (None, 5, 2): ("", "k", "p"), (None, None, 2): (),
        (5, 2, None): ("", "k", "p"),
    }  # fmt: skip
    for caps, wanted in enough.items():
        with dpsql.connect(con, policy=policy_of(caps)) as session:
            for key in ("", "k", "p"):
                text = grouped.format(key) if key else "SELECT COUNT(*) FROM t"
                if key in wanted:
                    session.explain(text)
                else:
                    with pytest.raises(Error, match=r"a limit on the (rows|groups) of one privacy unit"):
                        session.explain(text)


def test_explain_names_the_cap_that_helps(con: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    with dpsql.connect(con, policy=policy_of((None, 8, 6))) as session:
        said = str(session.explain(text))
        assert "max_rows_per_group = 8, max_groups" not in said  # six groups are all there are
        assert "The noise is that of 48 rows" in said
        assert "try max_rows_contributed = 8" in said
        assert any("try max_rows_contributed = 8" in note for note in session.sql(text).notes)
        pasted = text.replace("SELECT", "SELECT WITH DP OPTIONS (max_rows_contributed = 8)")
        assert not any("try" in note for note in session.sql(pasted).notes)
        assert "The noise is that of 8 rows" in str(session.explain(pasted))


@pytest.mark.parametrize("by", ["", " GROUP BY k"])
def test_quotients_are_means_of_the_same_rows(con: duckdb.DuckDBPyConnection, by: str) -> None:
    """Over random tables at a huge epsilon: no quotient leaves the bounds, and a sum over a count is the mean."""
    dice = random.Random(3)
    key = "k, " if by else ""
    for caps in ((3, None, None), (None, 2, 2), (5, 2, 2)):
        with dpsql.connect(con, policy=policy_of(caps)) as session:  # type: ignore[arg-type]
            numbers = "SUM(x) AS s, COUNT(x) AS n, COUNT(*) AS m, AVG(x) AS a"
            text = f"SELECT WITH DP OPTIONS (epsilon = 1e9) {key}{numbers} FROM t{by}"
            for _ in range(40):
                con.execute("DELETE FROM t")
                for unit in range(dice.randint(1, 4)):
                    value = dice.choice((10, 50, 10 + 40 * dice.random()))
                    rows = dice.randint(1, 30)
                    con.execute(
                        f"INSERT INTO t SELECT {unit}, chr(97 + CAST(i % 3 AS INTEGER)), 'p', {value} FROM range({rows}) AS r(i)"
                    )
                operator = aggregation(session, text)
                for row in con.sql(operator.query.replace(SALT, "7")).fetchall():
                    total, whole, count, many, mean, parts = exact_of(operator, row)
                    if count:
                        assert 10 * count <= total / whole <= 50 * count
                        assert 10 * many <= total / whole <= 50 * many
                        assert abs(total / whole / count - mean / parts) < 1e-6


def test_nan_is_in_no_count_sum_or_average(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        "INSERT INTO t SELECT i // 10, 'a', 'p', "
        "CASE i % 10 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN NULL ELSE 40 END FROM range(1000) AS r(i)"
    )
    with dpsql.connect(con, policy=policy_of((20, None, None))) as session:
        text = "SELECT WITH DP OPTIONS (epsilon = 1e9) COUNT(*), COUNT(x), SUM(x), AVG(x), SUM(x) / COUNT(x) FROM t"
        ((rows, count, total, mean, ratio),) = session.sql(text).fetchall()
    assert (rows, count) == (1000, 800)
    assert (total, mean, ratio) == pytest.approx((32_000, 40, 40), rel=1e-6)


def exact_of(operator: Aggregation, row: tuple[object, ...]) -> tuple[float, ...]:
    """The exact sum in parts, parts to a unit, counts of x and of all rows, and the mean's total and count."""
    at = len(operator.keys)
    by_name = {f"p{place}": float(value or 0) for place, value in enumerate(row[at:])}  # type: ignore[arg-type]
    total, count, many, mean = operator.outputs
    weighed = by_name[mean.statistics[1].column]
    centre = float(mean.centre)  # type: ignore[attr-defined]
    steps = float(mean.steps)  # type: ignore[attr-defined]
    about = by_name[mean.statistics[0].column] / steps + centre * weighed
    return (
        by_name[total.statistics[0].column], float(total.steps), by_name[count.statistics[0].column] / float(count.steps),  # type: ignore[attr-defined]
        by_name[many.statistics[0].column], about, weighed or 1.0,
    )  # fmt: skip
