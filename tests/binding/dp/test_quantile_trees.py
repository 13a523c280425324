"""Many quantiles of one column: which way is chosen, what it costs, what it shows, and what a stored answer serves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.quantile_tree import KeptTree, QuantileTree
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.strategies import EVEN, TREE
from tests.support import inside

POLICY = """
[budget]
epsilon = 1e15
delta = 0.5
accountant = "{accountant}"
default_delta = 1e-6

[tables.t]
privacy_unit = "id"
max_rows_per_group = {rows}
max_groups = {groups}
[tables.t.columns]
x = { bounds = [0, 100000] }
y = { bounds = [-10, 10] }
g = { values = [0, 1, 2] }
day = { bounds = [2024-01-01, 2024-12-30] }
"""
DATA = """
CREATE TABLE t AS
SELECT n AS id, CASE WHEN n % 50 = 7 THEN NULL WHEN n % 50 = 8 THEN 'NaN'::DOUBLE WHEN n % 100 = 9 THEN 1e9
       WHEN n % 100 = 59 THEN -5 ELSE (n * 7919) % 100003 END AS x,
       (n % 21) - 10 AS y, n % 3 AS g, n % 7 AS private, DATE '2024-01-01' + (n % 365)::INTEGER AS day
FROM range(20000) r(n)
"""
HALF = Fraction(1, 2)
LEVELS = [i / 20 for i in range(1, 20)]
MANY = "QUANTILE_CONT(x, [" + ", ".join(map(str, LEVELS)) + "])"


def opened(accountant: str = "basic", rows: int = 1, groups: int = 1) -> dpsql.Session:
    con = duckdb.connect()
    con.execute(DATA)
    text = POLICY
    for name, value in {"rows": rows, "groups": groups, "accountant": accountant}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return dpsql.connect(con, policy=dpsql.Policy.loads(text))


@pytest.fixture(scope="module")
def plain() -> Iterator[dpsql.Session]:
    with opened() as session:
        yield session


def parts(session: dpsql.Session, text: str) -> list[Quantiles]:
    """Return the parts with quantiles of a statement's last block."""
    operator = inside.bind(session, text).blocks[-1].operator
    assert isinstance(operator, Together)
    return [part for part in operator.parts if isinstance(part, Quantiles)]


def ask(options: str, what: str = MANY, rest: str = "") -> str:
    return f"SELECT WITH DP OPTIONS ({options}) {what} FROM t{rest}"


# -- which way ------------------------------------------------------------------------------------------------


def test_many_quantiles_of_one_column_are_read_from_a_tree(plain: dpsql.Session) -> None:
    (part,) = parts(plain, ask("epsilon = 1"))
    assert isinstance(part, QuantileTree)
    assert len(part.ranks) == 19
    assert part.event.basic == (1, 0)
    calls = ", ".join(f"QUANTILE_CONT(x, {p})" for p in LEVELS) + ", MEDIAN(x)"
    (part,) = parts(plain, ask("epsilon = 1", calls))
    assert isinstance(part, QuantileTree)
    assert len(part.ranks) == 20


@pytest.mark.parametrize(
    "what", ["MEDIAN(x)", "QUANTILE_CONT(x, [0.25, 0.5, 0.75])", "MIN(x), MAX(x), MEDIAN(x)", "QUANTILE_CONT(x, [0.2, 0.8])"]
)  # fmt: skip
def test_few_quantiles_are_chosen_one_by_one(plain: dpsql.Session, what: str) -> None:
    assert [type(part) for part in parts(plain, ask("epsilon = 1", what))] == [Quantiles]


def test_each_column_goes_its_own_way(plain: dpsql.Session) -> None:
    """And so do the same rows under a filter, which are other rows."""
    text = ask(
        "epsilon = 2", f"{MANY}, {MANY} FILTER (WHERE g = 1), MEDIAN(x) FILTER (WHERE g = 2), COUNT(*)"
    )
    found = parts(plain, text)
    assert [type(part) for part in found] == [QuantileTree, QuantileTree, Quantiles]
    said = str(plain.explain(text))
    assert "Strategy: TREE" in said


def test_a_strategy_may_be_asked_for(plain: dpsql.Session) -> None:
    two = "QUANTILE_CONT(x, [0.25, 0.75])"
    assert isinstance(parts(plain, ask("epsilon = 1, strategy = TREE", two))[0], QuantileTree)
    assert type(parts(plain, ask("epsilon = 1, strategy = EVEN"))[0]) is Quantiles
    assert isinstance(parts(plain, ask("epsilon = 1, strategy = AUTO"))[0], QuantileTree)


@pytest.mark.parametrize(
    ("accountant", "options"), [("basic", ""), ("zcdp", "rho = 0.1"), ("gdp", "mu = 0.5"), ("rdp", "")]
)
@pytest.mark.parametrize("rows", [1, 3])
def test_never_worse_and_never_dearer(accountant: str, options: str, rows: int) -> None:
    """In the currency of the session, however many quantiles there are; a forced tree costs what was asked for."""
    chosen = []
    with opened(accountant, rows, 2) as session:
        for asked in ("epsilon = 2", *([options] if options else [])):
            for count, column, keys in ((4, "y", ""), (25, "x", ""), (25, "y", " GROUP BY g")):
                levels = ", ".join(str(i / (count + 1)) for i in range(1, count + 1))
                text = ask("{}", f"QUANTILE_CONT({column}, [{levels}])", keys)
                ways = (asked, f"{asked}, strategy = EVEN", f"{asked}, strategy = TREE")
                plan, even, tree = (inside.bind(session, text.format(way)) for way in ways)
                choice = plan.blocks[0].strategy
                errors = choice.by_name()
                assert all(errors[choice.chosen][c] <= error for c, error in errors[EVEN].items())
                chosen.append(choice.chosen)
                if asked.startswith("eps"):
                    assert plan.event.basic[0] <= even.event.basic[0] == tree.event.basic[0] == 2
                if accountant in ("zcdp", "rdp"):
                    assert plan.event.rho <= even.event.rho
                if accountant == "gdp":
                    assert plan.event.mu <= even.event.mu
                if asked.startswith("rho"):
                    assert tree.event.rho <= Fraction(1, 10)
                if asked.startswith("mu"):
                    assert tree.event.mu <= HALF
    assert chosen == [TREE] * 3 if accountant == "basic" else EVEN in chosen


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ask("epsilon = 1, strategy = TREE", "MEDIAN(x)"), "several quantiles of one column"),
        (ask("epsilon = 1, strategy = TREE", "MEDIAN(x), MEDIAN(y)"), "several quantiles of one column"),
        (ask("epsilon = 1, strategy = SQUARE_ROOT"), "running totals"),
        (ask("epsilon = 1, strategy = TREE, max_rows_contributed = AUTO"), "caps are found"),
        (ask("epsilon = 1, strategy = TREE", f"g, {MANY}", " GROUP BY ROLLUP (g)"), "several quantiles"),
    ],
)
def test_what_does_not_fit_is_refused_and_free(text: str, why: str) -> None:
    with opened() as session:
        before = str(session.budget())
        with pytest.raises(dpsql.Error, match=why) as caught:
            session.sql(text)
        assert caught.value.span is not None
        assert str(session.budget()) == before


def test_beside_running_totals(plain: dpsql.Session) -> None:
    """One block may have both: the sums by the order of days, the quantiles of each day by a tree."""
    text = ask(
        "epsilon = 8, strategy = TREE",
        f"day, SUM(COUNT(*)) OVER (ORDER BY day) AS n, {MANY} AS q",
        " GROUP BY day ORDER BY day",
    )
    block = inside.bind(plain, text).blocks[0]
    assert isinstance(block.operator, Together)
    assert block.operator.aggregation.ordered
    assert any(isinstance(part, QuantileTree) for part in block.operator.parts)
    said = str(plain.explain(text))
    assert said.count("Strategy: TREE") == 2


# -- the numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["AUTO", "TREE", "EVEN"])
@pytest.mark.parametrize("where", ["", " WHERE y > 3"])
def test_without_noise_all_is_as_plain_duckdb_has_it(plain: dpsql.Session, strategy: str, where: str) -> None:
    """NULL and NaN are missing, values beyond the bounds count at these; groups and filters."""
    held = "CASE WHEN NOT isnan(x) THEN LEAST(GREATEST(x, 0), 100000) END"
    con = duckdb.connect()
    con.execute(DATA)
    options = f"epsilon = 1e9, strategy = {strategy}"
    disc = f"QUANTILE_DISC({held}, {LEVELS})"
    # one by one any point up to the next row may be chosen where a rank is whole
    off = 1500 if strategy == EVEN else 130
    direct = con.sql(f"SELECT {disc}, {disc} FILTER (WHERE g = 1) FROM t{where}").fetchall()
    found = plain.sql(ask(options, f"{MANY}, {MANY} FILTER (WHERE g = 1)", where)).fetchall()
    assert_near(found[0], direct[0], off)
    for key in ("g", "private"):
        direct = con.sql(f"SELECT {key}, {disc} FROM t{where} GROUP BY {key} ORDER BY {key}").fetchall()
        found = plain.sql(ask(options, f"{key}, {MANY}", f"{where} GROUP BY {key} ORDER BY {key}")).fetchall()
        assert [row[0] for row in found] == [row[0] for row in direct]
        for mine, its in zip(found, direct, strict=True):
            assert_near(mine[1:], its[1:], off)


def assert_near(found: tuple[list[float], ...], direct: tuple[list[float], ...], off: float) -> None:
    """See that values ascend, and are no further from the true ones than this."""
    for mine, its in zip(found, direct, strict=True):
        assert mine == sorted(mine)
        assert [float(v) for v in mine] == pytest.approx([float(v) for v in its], abs=off)


def test_all_kinds_of_calls_and_their_types(plain: dpsql.Session) -> None:
    what = "MIN(y) AS a, QUANTILE_DISC(y, 0.25) AS b, APPROX_QUANTILES(y, 10) AS c, MAX(y) AS d, MEDIAN(day) AS e, MIN(day) AS f"
    tree, even = (plain.sql(ask(f"epsilon = 1e9, strategy = {word}", what)) for word in (TREE, EVEN))
    assert tree.columns == even.columns
    assert tree.arrow().schema == even.arrow().schema
    (mine,), (its,) = tree.fetchall(), even.fetchall()
    assert mine[2] == pytest.approx(its[2], abs=1)
    assert mine[:2] == its[:2]


def test_a_units_rows_are_capped_before_the_tree() -> None:
    """One unit with many rows at the top moves no quantile by more than the cap."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT n AS id, n * 100.0 AS x FROM range(1000) r(n)")
    con.execute("INSERT INTO t SELECT 5000, 100000 FROM range(100000)")
    policy = POLICY.replace("{rows}", "4").replace("{groups}", "1").replace("{accountant}", "basic")
    policy = "\n".join(line for line in policy.splitlines() if not line.startswith(("y =", "g =", "day =")))
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
        (part,) = parts(session, ask("epsilon = 1"))
        assert part.rows == 4
        values = session.sql(ask("epsilon = 1e9, strategy = TREE")).fetchall()[0][0]
        assert values[9] == pytest.approx(50000, abs=500)


def test_row_budgets_over_groups() -> None:
    with opened(rows=5, groups=3) as session:
        text = ask("epsilon = 1, max_rows_contributed = 4, strategy = TREE", f"g, {MANY}", " GROUP BY g")
        (part,) = parts(session, text)
        assert isinstance(part, QuantileTree)
        assert (part.rows, part.groups, part.in_all) == (4, 1, True)
        assert part.noise.scale == 4 * part.levels
        assert session.sql(text).loss == "ε=1"


def test_bounds_that_nobody_gave() -> None:
    """APPROX_QUANTILES of a column without bounds has a grid of both signs, and a tree over it."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT n AS id, exp(n / 1000.0) AS z FROM range(10000) r(n)")
    policy = '[budget]\nepsilon = 1e15\naccountant = "basic"\n[tables.t]\nprivacy_unit = "ROW"\n'
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
        text = ask(
            "epsilon = 1e9, strategy = TREE", "APPROX_QUANTILES(z, 40, contribution_bounds_per_row => AUTO)"
        )
        (part,) = parts(session, text)
        assert isinstance(part, QuantileTree)
        values = session.sql(text).fetchall()[0][0]
        assert values[20] == pytest.approx(math.exp(5), rel=0.01)


# -- what is said ---------------------------------------------------------------------------------------------


def test_the_note_tells_how_far_off_ranks_are(plain: dpsql.Session) -> None:
    result = plain.sql(ask("epsilon = 1"), fresh=True)
    (note,) = [note for note in result.notes if "rows in rank" in note]
    (part,) = parts(plain, ask("epsilon = 1"))
    off = max(math.ceil(part.bound_error(rank, 0.95)) for rank in part.ranks)
    assert f"off by at most {off} rows in rank" in note


# -- a stored answer ------------------------------------------------------------------------------------------


def test_a_stored_tree_serves_the_same_quantiles_under_auto_and_back() -> None:
    few = "QUANTILE_CONT(x, [0.25, 0.5, 0.75])"
    with opened() as session:
        first = session.sql(ask("epsilon = 1, strategy = TREE", few))
        assert first.loss == "ε=1"
        again = session.sql(ask("epsilon = 1", few))
        assert again.loss == "no charge"
        assert again.fetchall() == first.fetchall()
        assert any("stored answer uses the strategy TREE" in note for note in again.notes)
        assert session.sql(ask("epsilon = 1, strategy = EVEN", few)).loss == "ε=1"
    with opened() as session:
        first = session.sql(ask("epsilon = 1, strategy = EVEN"))
        again = session.sql(ask("epsilon = 1"))
        assert again.loss == "no charge"
        assert again.fetchall() == first.fetchall()
        assert any(
            "uses the strategy EVEN: a fresh one" in note and "TREE has" in note for note in again.notes
        )
        fresh = session.sql(ask("epsilon = 1"), fresh=True)
        assert fresh.loss == "ε=1"
        assert not any("strategy" in note for note in fresh.notes)
        assert session.sql(ask("epsilon = 1")).fetchall() == fresh.fetchall()


def test_a_kept_tree_serves_any_quantile_of_its_column(tmp_path: Path) -> None:
    """Later levels, other functions and types, in another process's session too: read from what was released."""
    with duckdb.connect() as con:
        con.execute(DATA)
        con.execute(f"COPY t TO '{tmp_path / 't.parquet'}'")
    text = POLICY.replace("{rows}", "1").replace("{groups}", "1").replace("{accountant}", "basic")
    (tmp_path / "policy.toml").write_text(text.replace("[tables.t]", '[tables.t]\nsource = "t.parquet"'))
    place = {"policy": tmp_path / "policy.toml", "ledger": tmp_path / "ledger"}
    with dpsql.connect(**place) as session:
        first = session.sql(ask("epsilon = 1"))
        assert first.loss == "ε=1"
        values = first.fetchall()[0][0]
        said = str(session.explain(ask("epsilon = 1", "MEDIAN(x)")))
        assert "cost nothing" in said
    with dpsql.connect(**place) as session:
        middle = session.sql(ask("epsilon = 1", "MEDIAN(x) AS m"))
        assert middle.loss == "no charge"
        assert middle.columns == ["m"]
        assert middle.fetchall() == [(values[9],)]
        assert any("uses the strategy TREE: a fresh one" in n and "by EVEN has" in n for n in middle.notes)
        ((low, high),) = middle.intervals["m"]
        assert low <= values[9] <= high
        other = session.sql(
            ask("epsilon = 1, confidence = 0.8", "QUANTILE_CONT(x, [0.05, 0.123, 0.95]) AS q, MAX(x) AS top")
        )
        assert other.loss == "no charge"
        ((low, inner, high), top) = other.fetchall()[0]
        assert (low, high) == (values[0], values[-1])
        assert values[1] <= inner <= values[2]
        assert top >= high
        disc = session.sql(ask("epsilon = 1", "QUANTILE_DISC(x, 0.5) AS m"))
        assert disc.loss == "no charge"
        assert disc.fetchall() == [(values[9],)]
        many = session.sql(ask("epsilon = 1", "APPROX_QUANTILES(x, 200)"))
        assert many.loss == "no charge"
        assert session.budget().spent_epsilon == 1
        for charged in (
            ask("epsilon = 2", "MEDIAN(x)"),
            ask("epsilon = 1", "MEDIAN(y)"),
            ask("epsilon = 1", "MEDIAN(x)", " WHERE g = 1"),
            ask("epsilon = 1", "MEDIAN(x) FILTER (WHERE g = 1)"),
            ask("epsilon = 1", "MEDIAN(x, contribution_bounds_per_row => (0, 5000))"),
            ask("epsilon = 1, strategy = EVEN", "MEDIAN(x)"),
        ):
            assert session.sql(charged).loss != "no charge", charged
        fresh = session.sql(ask("epsilon = 1", "MEDIAN(x) AS m"), fresh=True)
        assert fresh.loss == "ε=1"
        assert session.sql(ask("epsilon = 1", "MEDIAN(x) AS m")).fetchall() == fresh.fetchall()


@pytest.mark.parametrize(
    ("accountant", "amount", "symbol"),
    [
        ("zcdp", "rho = 0.1", "ρ"),
        ("rdp", "rho = 0.1", "ρ"),
        ("gdp", "mu = 0.5", "μ"),
        ("zcdp", "epsilon = 1", "ε"),
    ],
)
def test_a_kept_tree_is_the_same_however_many_quantiles_are_asked(
    accountant: str, amount: str, symbol: str
) -> None:
    """In every currency: its ε goes by what was asked for, and not by what so many quantiles would cost one by one."""
    with opened(accountant, rows=2, groups=6) as session:
        text = ask(f"{amount}, strategy = TREE")
        assert f"asked alone at the same {symbol}, are read" in str(session.explain(text))
        paid = session.sql(text)
        if "rho" in amount:
            assert Fraction(99, 1000) < paid.event.rho <= Fraction(1, 10)
        if "mu" in amount:
            assert Fraction(249, 1000) < paid.event.mu**2 <= Fraction(1, 4)
        for what in ("MEDIAN(x)", "QUANTILE_CONT(x, [0.2, 0.7])", "QUANTILE_CONT(x, [0.1, 0.2, 0.3, 0.4])"):
            assert session.sql(ask(amount, what)).event is None
        assert session.sql(ask(f"{amount}, strategy = TREE", "QUANTILE_CONT(x, [0.2, 0.7])")).event is None


def test_what_is_not_alone_is_not_kept() -> None:
    """Groups and other numbers beside it: then the answer serves the same question only."""
    for what, rest in ((f"{MANY}, COUNT(*)", ""), (f"g, {MANY}", " GROUP BY g"), (f"{MANY}, MEDIAN(y)", "")):
        with opened() as session:
            text = ask("epsilon = 4, strategy = TREE", what, rest)
            assert not isinstance(inside.bind(session, text).blocks[0].operator, KeptTree)
            session.sql(text)
            assert session.sql(text).loss == "no charge"
            assert session.sql(ask("epsilon = 4", what.replace(MANY, "MEDIAN(x)"), rest)).loss == "ε=4"


def test_a_median_paid_together_with_a_tree_is_its_own() -> None:
    """Within one plan nothing that is paid for is made worse; the same quantiles are one draw."""
    with opened() as session:
        with session.plan() as plan:
            for what in (MANY, "MEDIAN(x)", MANY):
                plan.sql(ask("epsilon = 1", what))
        assert 1.5 < session.budget().spent_epsilon <= 2
        assert plan.results[0].fetchall() == plan.results[2].fetchall()


def test_equal_blocks_of_one_statement_are_one_draw() -> None:
    with opened() as session:
        text = f"SELECT a.q = b.q FROM ({ask('epsilon = 1', MANY + ' AS q')}) AS a, ({ask('epsilon = 1', MANY + ' AS q')}) AS b"
        found = session.sql(text)
        assert found.loss == "ε=1"
        assert found.fetchall() == [(True,)]
