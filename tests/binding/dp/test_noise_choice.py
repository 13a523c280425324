"""The noise that a block gets: Gaussian noise of one calibration, Laplace noise, or the better of the two at equal charge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.binding.plan import Plan
from dpsql.errors import PrivacyError
from dpsql.language.statements import parse
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.moments import Sum
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Noise
from dpsql.privacy.accountants import Accountant
from dpsql.privacy.conversions import gaussian_mu
from dpsql.privacy.events import Event, JointGaussian, RenyiSelection
from tests.support import inside

TABLE = """
[tables]
t = { privacy_unit = "u", max_rows_per_group = 2, max_groups = 3, columns = { x = { bounds = [0, 10] }, \
    y = { bounds = [0, 7] }, k = { values = [1, 2, 3] }, h = { values = [1, 2] } } }
r = { privacy_unit = "ROW", columns.x.bounds = [0, 10] }
"""
BUDGETS = {
    "basic": 'epsilon = 30\ndelta = 1e-3\naccountant = "basic"',
    "zcdp": "epsilon = 30\ndelta = 1e-3",
    "gdp": 'epsilon = 30\ndelta = 1e-3\naccountant = "gdp"',
    "rdp": 'epsilon = 30\ndelta = 1e-3\naccountant = "rdp"',
    "pure": "epsilon = 30",
    "default": "epsilon = 30\ndelta = 1e-3\ndefault_delta = 1e-6",
    "rho": "rho = 5",
    "mu": "mu = 5",
}
TINY = Fraction(1, 10**6)
Open = Callable[[str], dpsql.Session]


@pytest.fixture(scope="module")
def start() -> Iterator[Open]:
    opened: dict[str, dpsql.Session] = {}
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 40 AS u, i % 10 AS x, i % 7 AS y, i % 3 + 1 AS k, i % 2 + 1 AS h, i % 9 AS p "
            "FROM range(100) AS r(i)"
        )
        con.execute("CREATE TABLE r AS SELECT x FROM t")

        def start(name: str) -> dpsql.Session:
            if name not in opened:
                opened[name] = dpsql.connect(
                    con, policy=dpsql.Policy.loads(f"[budget]\n{BUDGETS[name]}\n{TABLE}")
                )
            return opened[name]

        yield start
        for session in opened.values():
            session.close()


def counts(k: int, table: str = "t") -> str:
    return ", ".join(f"COUNT(*) FILTER (WHERE x > {i}) AS n{i}" for i in range(k)) + f" FROM {table}"


def bind(session: dpsql.Session, options: str, rest: str) -> Plan:
    (statement,) = parse(f"SELECT WITH DP OPTIONS ({options}) {rest}")
    return inside.bind(session, statement)


def noises(plan: Plan) -> list[Noise]:
    found = []
    for block in plan.blocks:
        assert isinstance(block.operator, Aggregation)
        found += [statistic.noise for statistic in block.operator.statistics]
    return found


def sums(plan: Plan) -> list[Sum]:
    """Return the block's counts, which are in parts where their rows are weighed."""
    (block,) = plan.blocks
    assert isinstance(block.operator, Aggregation)
    return [output for output in block.operator.outputs if isinstance(output, Sum)]


def event_of(plan: Plan) -> Event:
    assert plan.event is not None
    return plan.event


# -- one calibration --------------------------------------------------------------------------------------------

GAUSSIAN = "epsilon = 1, delta = 1e-6, noise = GAUSSIAN"
COMPOSITES = {
    "counts and sums": ("COUNT(*), SUM(x), COUNT(DISTINCT u) FROM t", 3),
    "means": ("AVG(x), AVG(y) FROM t", 4),
    "spreads": ("VAR_SAMP(x), STDDEV(y) FROM t", 6),
    "pairs": ("CORR(x, y), REGR_SLOPE(x, y), COVAR_POP(x, y) FROM t", 6),
    "groups": ("k, COUNT(*), AVG(x) FROM t GROUP BY k", 3),
    "rows": ("COUNT(x), AVG(x), SUM(x) FROM r", 3),
}


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp", "rdp"])
@pytest.mark.parametrize("name", COMPOSITES)
def test_a_block_has_one_calibration(start: Open, name: str, accountant: str) -> None:
    """Check that all moments are calibrated together at the pair that was asked for, in one event."""
    asked, _ = COMPOSITES[name]
    plan = bind(start(accountant), GAUSSIAN, asked)
    event, found = event_of(plan), noises(plan)
    assert isinstance(event, JointGaussian)
    assert event.basic == (1, TINY)
    assert len(event.sigmas) == len(found)
    assert float(event.mu) == pytest.approx(float(gaussian_mu(Fraction(1), TINY)), rel=1e-8)


def test_shares_of_epsilon_are_shares_of_the_joint_mu(start: Open) -> None:
    plan = bind(start("basic"), GAUSSIAN, "COUNT(*, epsilon => 0.5), AVG(x), SUM(y) FROM t")
    mu_squared = float(gaussian_mu(Fraction(1), TINY)) ** 2
    shares = [n.groups * n.sensitivity**2 / float(n.sigma) ** 2 / mu_squared for n in noises(plan)]  # type: ignore[attr-defined]
    assert shares == pytest.approx([1 / 2, 1 / 8, 1 / 8, 1 / 4], rel=1e-7)


def test_a_moment_that_several_aggregates_need_has_all_of_their_shares(start: Open) -> None:
    # one row a unit: the same total and count
    plan = bind(start("basic"), GAUSSIAN, "AVG(x), VAR_POP(x) FROM r")
    shares = [getattr(noise, "share", 1) for noise in noises(plan)]
    assert shares == [Fraction(5, 12), Fraction(5, 12), Fraction(1, 6)]
    assert event_of(plan).basic == (1, TINY)
    alone = bind(start("basic"), GAUSSIAN, "COUNT(*), COUNT(*) FILTER (WHERE TRUE) AS m FROM r")
    assert event_of(alone).basic == (1, TINY)


def test_delta_is_halved_where_groups_are_selected(start: Open) -> None:
    plan = bind(start("basic"), GAUSSIAN, "p, COUNT(*), SUM(x), SUM(y) FROM t GROUP BY p")
    noise, selection = event_of(plan).parts
    assert isinstance(noise, JointGaussian)
    assert isinstance(selection, RenyiSelection)
    assert noise.basic == (Fraction(3, 4), TINY / 2)
    assert (selection.epsilon, selection.delta) == (Fraction(1, 4), TINY / 2)


def test_other_aggregates_keep_their_share(start: Open) -> None:
    plan = bind(start("basic"), GAUSSIAN, "COUNT(*), SUM(x), MEDIAN(x), COUNT(DISTINCT p) FROM t")
    joint, *others = event_of(plan).parts
    assert joint.basic == (Fraction(1, 2), TINY)
    assert sum((event.basic[0] for event in others), Fraction(0)) == Fraction(1, 2)


@pytest.mark.parametrize("accountant", ["basic", "zcdp"])
def test_grouping_sets_have_one_calibration(start: Open, accountant: str) -> None:
    plan = bind(start(accountant), GAUSSIAN, "k, h, COUNT(*), AVG(x) FROM t GROUP BY CUBE (k, h)")
    event = event_of(plan)
    assert len(plan.blocks) == 4
    assert isinstance(event, JointGaussian)
    assert event.basic == (1, TINY)
    assert float(event.mu) == pytest.approx(float(gaussian_mu(Fraction(1), TINY)), rel=1e-8)
    mixed = event_of(bind(start(accountant), GAUSSIAN, "k, p, COUNT(*) FROM t GROUP BY ROLLUP (k, p)"))
    assert mixed.basic == (1, TINY)
    assert sum(isinstance(part, JointGaussian) for part in mixed.parts) == 1


@pytest.mark.parametrize("accountant", ["basic", "zcdp"])
def test_a_declared_plan_has_one_calibration(start: Open, accountant: str) -> None:
    session = start(accountant)
    asked = "SELECT WITH DP OPTIONS (epsilon = 0.01, delta = 1e-8, noise = GAUSSIAN) {} FROM t WHERE x > {}"
    listed = [
        asked.format(what, i)
        for i, what in enumerate(("COUNT(*) AS n", "SUM(x) AS n, AVG(y) AS m", "COUNT(*) AS n"))
    ]
    before = session.budget()
    with session.plan() as plan:
        handles = [plan.sql(text) for text in [*listed, listed[0], "SELECT COUNT(*) FROM t WHERE x > 8"][:4]]
        whole = plan.event
    (joint,) = whole.leaves() if whole is not None else ()
    assert isinstance(joint, JointGaussian)
    assert joint.basic == (Fraction(3, 100), Fraction(3, 10**8))  # what is asked twice is drawn once
    assert len(joint.sigmas) == 5
    assert float(joint.mu) == pytest.approx(float(gaussian_mu(*joint.basic)), rel=1e-8)
    assert handles[0].fetchall() == handles[3].fetchall()
    assert "which cost" in handles[0].notes[-1]
    assert session.budget().spent_epsilon > before.spent_epsilon
    with session.plan() as again:
        repeated = [again.sql(text) for text in listed]
    assert [r.loss for r in repeated] == ["no charge"] * 3
    assert [r.fetchall() for r in repeated] == [h.fetchall() for h in handles[:3]]


def test_what_was_answered_alone_stays_free_in_a_plan(start: Open) -> None:
    session = start("zcdp")
    asked = "SELECT WITH DP OPTIONS (epsilon = 0.01, delta = 1e-8, noise = GAUSSIAN) COUNT(*) AS n FROM t WHERE y > {}"
    alone = session.sql(asked.format(1))
    with session.plan() as plan:
        handles = [plan.sql(asked.format(i)) for i in (1, 2, 3)]
        assert plan.event.basic == (Fraction(2, 100), Fraction(2, 10**8))
    assert handles[0].loss == "no charge"
    assert handles[0].fetchall() == alone.fetchall()


# -- AUTO -------------------------------------------------------------------------------------------------------

AUTO = "epsilon = 1, delta = 1e-6, noise = AUTO"


def error_of(plan: Plan) -> float:
    return sum(noise.mean_error for noise in noises(plan))


def charge(held: Accountant, event: Event) -> Fraction:
    """Return what the session's rule counts; epsilon where it has none."""
    used = held.used_by(held.charge(event))
    return held.charge(event).basic[0] if used is None else used


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp", "rdp"])
@pytest.mark.parametrize("k", [1, 2, 4, 8, 11, 12, 16, 40])
def test_auto_takes_the_smaller_error_at_equal_charge(start: Open, accountant: str, k: int) -> None:
    session = start(accountant)
    held = session.account.accountant
    auto, laplace, gaussian = (
        bind(session, f"epsilon = 1, delta = 1e-6, noise = {word}", counts(k, "r"))
        for word in ("AUTO", "LAPLACE", "GAUSSIAN")
    )
    assert error_of(auto) <= error_of(laplace) * (1 + 1e-9)
    assert charge(held, event_of(auto)) <= charge(held, event_of(laplace)) * (1 + Fraction(1, 1000))
    assert event_of(auto).basic[0] <= 1
    taken = isinstance(noises(auto)[0], GaussianNoise)
    assert taken == (k >= 12)  # k against 3.37 sqrt(k): expected distances from 0
    if k <= 16 or accountant == "basic":
        assert error_of(auto) == pytest.approx(min(error_of(laplace), error_of(gaussian)), rel=1e-9)
    else:  # the whole pair would cost more than Laplace noise: as much noise as costs the same
        assert taken
        assert error_of(gaussian) < error_of(auto) < error_of(laplace)
        assert charge(held, event_of(gaussian)) > charge(held, event_of(laplace))
        assert charge(held, event_of(auto)) > charge(held, event_of(laplace)) * Fraction(99, 100)


def test_auto_is_the_default_where_the_statement_gives_a_delta(start: Open) -> None:
    session = start("default")
    assert isinstance(noises(bind(session, "epsilon = 1, delta = 1e-6", counts(16)))[0], GaussianNoise)
    assert isinstance(noises(bind(session, "epsilon = 1", counts(16)))[0], LaplaceNoise)
    assert isinstance(
        noises(bind(session, "epsilon = 1, delta = 1e-6, noise = LAPLACE", counts(16)))[0], LaplaceNoise
    )


def test_auto_never_adds_a_delta(start: Open) -> None:
    """The policy's default delta is for what needs one; a block that needs none stays pure."""
    session = start("default")
    plan = bind(session, "epsilon = 1, noise = AUTO", counts(16))
    assert event_of(plan).basic == (1, 0)
    assert any("only a delta in the statement's own OPTIONS" in s for s in plan.blocks[0].explain())
    few = bind(session, "epsilon = 1, delta = 1e-6", counts(2))
    assert event_of(few).basic == (1, 0), "a delta that Laplace noise has no use for is not spent"
    zero = bind(session, "epsilon = 1, delta = 0, noise = AUTO", counts(16))
    assert event_of(zero).basic == (1, 0)
    # private groups take a delta anyway: with Laplace noise all of it, with Gaussian noise half
    private = "p, " + counts(16) + " GROUP BY p"
    for options, parts in (("epsilon = 1, noise = AUTO", [TINY / 2] * 2), ("epsilon = 1", [0, TINY])):
        events = event_of(bind(session, options, private)).parts
        assert [events[0].basic[1], events[-1].basic[1]] == parts
    small = event_of(bind(session, "epsilon = 1, noise = AUTO", "p, COUNT(*) FROM t GROUP BY p"))
    assert small.parts[-1].basic[1] == TINY


def test_auto_takes_nothing_that_the_session_can_not_count(start: Open) -> None:
    session = start("pure")
    plan = bind(session, "epsilon = 1, delta = 1e-6", counts(16))
    assert event_of(plan).basic == (1, 0)
    session.sql(f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) {counts(16)}")
    basic = bind(start("basic"), "epsilon = 1, delta = 0.01", counts(16))
    assert event_of(basic).basic == (1, 0), "more than the whole delta of the budget"


@pytest.mark.parametrize("currency", ["rho", "mu"])
@pytest.mark.parametrize(("amount", "gaussian"), [("0.1", True), ("4", None)])
def test_auto_compares_at_equal_mu_and_rho(
    start: Open, currency: str, amount: str, gaussian: bool | None
) -> None:
    session = start(currency)
    auto, laplace, other = (
        bind(session, f"{currency} = {amount}, noise = {word}", "SUM(x) AS s FROM r")
        for word in ("AUTO", "LAPLACE", "GAUSSIAN")
    )
    assert error_of(auto) == min(error_of(laplace), error_of(other))
    assert isinstance(noises(bind(session, f"{currency} = {amount}", "SUM(x) AS s FROM r"))[0], GaussianNoise)
    if gaussian is not None:
        assert isinstance(noises(auto)[0], GaussianNoise) == gaussian
    costs = [float(e.rho if currency == "rho" else e.mu) for e in map(event_of, (auto, laplace, other))]
    assert costs == pytest.approx([float(amount)] * 3, rel=1e-6)


def test_grouping_sets_choose_once_for_all(start: Open) -> None:
    for accountant in ("basic", "zcdp"):
        session = start(accountant)
        asked = "k, h, COUNT(*), SUM(x) FROM t GROUP BY CUBE (k, h)"
        auto, laplace = (
            bind(session, f"epsilon = 1, delta = 1e-6, noise = {w}", asked) for w in ("AUTO", "LAPLACE")
        )
        assert all(isinstance(noise, GaussianNoise) for noise in noises(auto))
        assert isinstance(event_of(auto), JointGaussian)
        assert error_of(auto) < error_of(laplace)
        held = session.account.accountant
        assert charge(held, event_of(auto)) <= charge(held, event_of(laplace)) * (1 + Fraction(1, 1000))
        said = [s for block in auto.blocks for s in block.explain() if "AUTO takes" in s]
        assert len(said) == 1
    few = bind(start("basic"), AUTO, "k, COUNT(*) FROM t GROUP BY ROLLUP (k)")
    assert all(isinstance(noise, LaplaceNoise) for noise in noises(few))


def test_the_choice_depends_on_no_data(start: Open) -> None:
    """The plan of other data under the same policy is the same."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS u, 1 AS x, 1 AS y, 1 AS k, 1 AS h, 1 AS p WHERE FALSE")
        con.execute("CREATE TABLE r AS SELECT 1 AS x")
        policy = dpsql.Policy.loads(f"[budget]\n{BUDGETS['zcdp']}\n{TABLE}")
        with dpsql.connect(con, policy=policy) as empty:
            for asked in (counts(16), "k, AVG(x), CORR(x, y) FROM t GROUP BY k"):
                plans = [bind(session, AUTO, asked) for session in (empty, start("zcdp"))]
                assert [p.event for p in plans[:1]] == [p.event for p in plans[1:]]


# -- what is refused, and errors that are asked for -------------------------------------------------------------


def test_a_delta_too_small_to_compute_with_is_refused_kindly(start: Open) -> None:
    with pytest.raises(PrivacyError, match="too small for Gaussian noise"):
        bind(start("basic"), "epsilon = 1, delta = 1e-60, noise = GAUSSIAN", "COUNT(*) FROM t")
    plan = bind(start("basic"), "epsilon = 1, delta = 1e-60, noise = AUTO", counts(16))
    assert event_of(plan).basic == (1, 0)


def test_an_error_takes_one_calibration_too(start: Open) -> None:
    """Four counts within 40: together a fraction of what four pairs would be."""
    options = "error = 40, epsilon = {}, delta = 1e-6, noise = GAUSSIAN"
    plan = bind(start("basic"), options.format(4), counts(4))
    event = event_of(plan)
    assert isinstance(event, JointGaussian)
    assert all(o.statistic.noise.half_width(0.95) <= 40 * o.whole for o in sums(plan))
    sigma = 40 / 1.959964
    mu = 2 * math.sqrt(4) / sigma  # each count moves by 2
    assert float(event.mu) == pytest.approx(mu, rel=0.01)
    assert float(event.basic[0]) < 1
    with pytest.raises(PrivacyError, match="takes ε=") as refused:
        bind(start("basic"), options.format("0.1"), counts(4))
    needed = str(refused.value.hint).removeprefix("write epsilon = ").partition(",")[0]
    assert bind(start("basic"), options.format(needed), counts(4)).event is not None
    reach = str(refused.value.hint).partition("error = ")[2].removesuffix(".")
    assert bind(start("basic"), options.replace("40", reach).format("0.1"), counts(4)).event is not None
