"""SUBSAMPLE through a session: queries lifted or run block by block, Python functions, progress, interruption."""

from __future__ import annotations

import dataclasses

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.base import watch_progress
from dpsql.mechanisms.subsample.blocks import BlockQueries, LiftedBlocks
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import con_fixture
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(1e9, 0.5, 1e6, 1e-6),
    t=table("u", None, None, {"max_rows": 2}, x=(0, 100)),
    named=table(None, None, None, {"public": True}),
)
TABLES = """
CREATE TABLE t AS SELECT i % 900 AS u, (i * 37) % 101 AS x, (i * 37) % 101 * 2.0 + i % 5 AS y,
    ['a', 'b', 'b', 'c'][1 + i % 4] AS site FROM range(1800) r(i);
CREATE TABLE named AS SELECT unnest(['a', 'b', 'c']) AS site, unnest([1, 2, 3]) AS rank;
"""
con = con_fixture(TABLES)


def source(session: dpsql.Session, text: str) -> object:
    plan = inside.bind(session, text)
    return plan.blocks[0].operator.source  # type: ignore[attr-defined]


NUMBER = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 32, bounds = (-300, 300))"
LIFTED = [
    (f"{NUMBER} AVG(x) AS a FROM t", 50, 5),
    (f"{NUMBER} CORR(x, y) AS a FROM t", 1, 2),
    (f"{NUMBER} REGR_SLOPE(y, x) AS a FROM t", 2, 2),
    (f"{NUMBER} AVG(n) AS a FROM (SELECT u, COUNT(*) AS n FROM t GROUP BY u)", 2, 1),
]
SINGLE = [
    (f"{NUMBER} AVG(d) AS a FROM (SELECT x - LAG(x) OVER (ORDER BY y) AS d FROM t)", 0, 20),
    (f"{NUMBER} MAX(n) AS a FROM (SELECT DISTINCT x AS n FROM t)", 97, 8),
    (f"{NUMBER} mad(x) AS a FROM t", 25, 6),
    (f"{NUMBER} entropy(site) AS a FROM t", 1.5, 0.2),
    (f"{NUMBER} geomean(x + 1) AS a FROM t", 38, 8),
]


@pytest.mark.parametrize(("text", "near", "within"), LIFTED + SINGLE)
def test_a_query_on_each_block(session: dpsql.Session, text: str, near: float, within: float) -> None:
    found = source(session, text)
    assert isinstance(found, LiftedBlocks if (text, near, within) in LIFTED else BlockQueries)
    result = session.sql(text)
    (value,) = result.fetchone() or (None,)
    assert result.columns == ["a"]
    assert abs(value - near) <= within


AUTO = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 20, delta = 1e-6, bounds = AUTO, blocks = 128)"


@pytest.mark.parametrize(
    ("text", "near", "within"),
    [
        (f"{AUTO} AVG(x) AS a FROM t", 50, 25),
        (f"{AUTO} 1000000 + AVG(x) AS a FROM t", 1_000_050, 25),
        (f"{AUTO.replace(')', ', trim = 0.3, combine = trimmed_mean)')} MAX(x) AS a FROM t", 95, 25),
        (f"{AUTO} AVG(d) AS a FROM (SELECT x - LAG(x) OVER (ORDER BY y) AS d FROM t)", 0, 25),
    ],
)
def test_numbers_of_blocks_without_bounds(
    session: dpsql.Session, text: str, near: float, within: float
) -> None:
    result = session.sql(text)
    ((low, high),) = result.intervals["a"]
    (value,) = result.fetchone() or (None,)
    assert low < value < high
    assert abs(value - near) <= within


def test_numbers_that_blocks_do_not_agree_on_are_null_and_paid(session: dpsql.Session) -> None:
    # An answer here is one of delta, or of some more where few blocks agree by chance.
    text = AUTO.replace("128", "16").replace("epsilon = 20, delta = 1e-6", "epsilon = 1, delta = 1e-12")
    result = session.sql(f"{text} AVG(x) AS a, MODE(site) AS s FROM t")
    assert result.dicts()[0]["a"] is None
    assert "a: not stable enough to release" in result.notes
    assert session.sql("SHOW LEDGER").dicts()[-1]["epsilon"] > 0.9


def test_a_vote_by_a_whole_query(session: dpsql.Session) -> None:
    text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 16) site FROM t GROUP BY site ORDER BY COUNT(*) DESC, site LIMIT 1"
    assert session.sql(text).fetchone() == ("b",)


def test_python_functions_and_an_error_in_a_block(session: dpsql.Session) -> None:
    seen: list[int] = []

    def spread(x: object) -> float:
        seen.append(len(x))  # type: ignore[arg-type]
        if len(seen) % 8 == 0:
            raise RuntimeError("of the data")
        return float(x.max() - x.min())  # type: ignore[attr-defined]

    session.register("spread", spread)
    told: list[tuple[int, int]] = []
    with watch_progress(lambda done, steps: told.append((done, steps))):
        text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, bounds = (0, 200)) spread(x) AS s FROM t"
        (value,) = session.sql(text).fetchone() or (0,)
    assert 90 <= value <= 100
    assert len(seen) == 16
    assert sum(seen) == 1800
    assert told[0] == (0, 16)
    assert told[-1] == (16, 16)


def test_stopping_between_blocks_keeps_the_charge(session: dpsql.Session) -> None:
    def stop(done: int, steps: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(dpsql.Interrupted, match="stays charged"), watch_progress(stop):
        session.sql(SINGLE[0][0], fresh=True)
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 1e6
    assert session.sql(LIFTED[0][0]).shape == (1, 1)


def test_blocks_without_rows_give_the_default(session: dpsql.Session) -> None:
    text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10)) AVG(x) AS a FROM t WHERE x > 1000"
    assert (session.sql(text).fetchone() or (0,))[0] == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) random() FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) (SELECT COUNT(*) FROM read_csv('/etc/passwd')) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) x FROM t",
        "SELECT WITH SUBSAMPLE AVG(x) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), blocks = 0) AVG(x) FROM t",
        # options that nothing would read
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), trim = 0.1) AVG(x) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), rounds = 3) AVG(x) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', sampling = 'partition', rounds = 3) MODE(site) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), units = 3) AVG(x) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), top = 3) AVG(x) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (most = 3) MODE(site) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), combine = 'winsorized_mean', trim = 0.5) AVG(x) FROM t",
        # so few random subsamples that nothing of delta is left
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1000, combine = 'stable_mode', sampling = 'bernoulli', units = 50) "
        "MODE(site) FROM t",
    ],
)
def test_what_is_refused_costs_nothing(session: dpsql.Session, text: str) -> None:
    with pytest.raises(dpsql.Error):
        session.sql(text)
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


def test_a_block_that_breaks_duckdb_breaks_no_other() -> None:
    """A value that makes DuckDB give up its whole instance (2.0: a cast of a BIGNUM) fails one block alone."""
    broken = f"TRY_CAST(CAST(CASE WHEN x = 1000 THEN {'9' * 60!r} ELSE '1' END AS BIGNUM) AS INTEGER)"
    text = f"""SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, combine = 'noisy_mode') MAX({broken}) AS k
               FROM (SELECT * FROM t QUALIFY row_number() OVER (ORDER BY x DESC) < 9) AS few"""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 7 AS x, 0 AS y, 'a' AS site FROM range(900) r(i)")
        con.execute("INSERT INTO t VALUES (5000, 1000, 0, 'a')")
        con.execute("CREATE TABLE named AS SELECT 1 AS site")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            plan = inside.bind(session, text)
            blocks = plan.blocks[0].operator.source  # type: ignore[attr-defined]
            assert isinstance(blocks, BlockQueries)
            found = blocks.results(inside.reader(session), Entropy()).columns["k"]
            assert sum(value is None for value in found) <= 1
            assert set(found) <= {1, None}
            assert session.sql("SELECT COUNT(*) AS n FROM t").fetchone() == (901,)
        assert con.execute("SELECT 1").fetchone() == (1,)


BERNOULLI = (
    "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 60, delta = 1e-3, combine = 'stable_mode', sampling = 'bernoulli', units = {}) "
    "CASE WHEN COUNT(*) > 0 THEN MODE(site) END AS usual FROM t"
)


def test_random_subsamples_are_made_some_at_a_time(session: dpsql.Session) -> None:
    """The textbook's sampling: progress by steps that are public, and the same subsamples however they are cut."""
    told: list[tuple[int, int]] = []
    with watch_progress(lambda done, steps: told.append((done, steps))):
        assert session.sql(BERNOULLI.format(60_000)).fetchone() == ("b",)
    assert told[0][0] == 0
    assert told[-1] == (told[0][1], told[0][1])
    assert len(told) > 3
    found = source(session, BERNOULLI.format(60_000).replace("MODE(site)", "MAX(y) + AVG(x)"))
    assert isinstance(found, LiftedBlocks)
    assert found.together is not None
    entropy = [Entropy(lambda n: bytes(i % 251 for i in range(n))) for _ in range(2)]
    whole = dataclasses.replace(found, together=None).results(inside.reader(session), entropy[0])
    parts = dataclasses.replace(found, together=77).results(inside.reader(session), entropy[1])
    assert whole == parts
    assert len(set(map(str, whole.columns["usual"]))) > 1


def test_stopping_between_random_subsamples(session: dpsql.Session) -> None:
    def stop(done: int, steps: int) -> None:
        if 0 < done < steps:
            raise KeyboardInterrupt

    with pytest.raises(dpsql.Interrupted), watch_progress(stop):
        session.sql(BERNOULLI.format(60_000))
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 60


@pytest.mark.parametrize(
    "items",
    ["AVG(x) FROM t", "f(x) FROM t", "AVG(d) FROM (SELECT x - LAG(x) OVER (ORDER BY y) AS d, u FROM t)"],
)
def test_a_query_can_restate_the_unit_and_never_change_it(session: dpsql.Session, items: str) -> None:
    session.register("f", lambda x: float(x.mean()))
    for unit in ("u", "U"):
        session.sql(f"SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), privacy_unit_column = {unit}) {items}")
    with pytest.raises(dpsql.PrivacyError, match="x is not the privacy unit of t"):
        session.sql(f"SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1), privacy_unit_column = x) {items}")


@pytest.mark.parametrize("name", ["sum", "MEDIAN", "split", "kurtosis"])
def test_a_function_that_sql_has_would_never_be_called_and_is_refused(
    session: dpsql.Session, name: str
) -> None:
    with pytest.raises(dpsql.BindError, match=f"SQL has a function {name} already"):
        session.register(name, lambda x: 77.0, returns=float)


def test_what_can_not_be_called_is_refused_before_anything_is_paid(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.BindError, match="can't be called"):
        session.register("f", 3)  # type: ignore[arg-type]


def test_both_ways_name_an_output_alike(session: dpsql.Session) -> None:
    options = "OPTIONS (bounds = (0, 100), combine = 'mean')"
    lifted = session.sql(f"SELECT WITH SUBSAMPLE {options} COUNT(*), AVG(x), SUM(x) AS s FROM t")
    single = session.sql(
        f"SELECT WITH SUBSAMPLE {options} COUNT(*), AVG(x), SUM(x) AS s FROM (SELECT DISTINCT x, y, u FROM t) AS d"
    )
    assert lifted.columns == single.columns == ["count_star()", "avg(x)", "s"]


@pytest.mark.parametrize(
    ("made", "candidates", "expected"),
    [
        ("1.5::DECIMAL(9, 2)", "(0.5, 1.5, 2.5)", "Decimal('1.50')"),
        ("-2::BIGINT", "(-1, -2, -3)", "-2"),
        ("2.0::DOUBLE", "(1, 2, 3)", "2.0"),
        ("0.1::FLOAT", "(0.1, 0.2, 0.3)", "0.10000000149011612"),
        ("7::HUGEINT", "(6, 7, 8)", "7"),
        ("DATE '2024-01-02'", "('2024-01-01', '2024-01-02', '2024-01-03')", "datetime.date(2024, 1, 2)"),
        ("TIME '12:00'", "('11:00', '12:00', '13:00')", "datetime.time(12, 0)"),
        ("TRUE", "(0, 1, 0)", "True"),
        ("'a'", "('b', 'a', 'c')", "'a'"),
    ],
)
def test_candidates_are_of_the_type_of_the_results(made: str, candidates: str, expected: str) -> None:
    """Else no block would vote for any of them, and the answer would be drawn by lot."""
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT range AS u, 1 AS x, {made} AS v FROM range(200)")
        policy = dpsql.Policy.loads(POLICY.replace("[tables.named]\npublic = true", ""))
        with dpsql.connect(con, policy=policy) as session:
            text = (
                f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, candidates = {candidates}) MODE(v) AS m FROM t"
            )
            text = text.replace("blocks = 8", "blocks = 8, combine = 'noisy_mode'")
            assert {repr(session.sql(text, fresh=True).fetchall()[0][0]) for _ in range(6)} == {expected}


@pytest.mark.parametrize(
    ("items", "candidates"),
    [
        ("MODE(x)", "(1.5, 2)"),
        ("MODE(x)", "('a')"),
        ("MODE(CAST('2024-01-01' AS DATE))", "('a')"),
        ("MODE(x)", "(x)"),
    ],
)
def test_candidates_of_another_type_are_refused(session: dpsql.Session, items: str, candidates: str) -> None:
    with pytest.raises(dpsql.BindError):
        session.sql(
            f"SELECT WITH SUBSAMPLE OPTIONS (combine = 'noisy_mode', candidates = {candidates}) {items} FROM t"
        )
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


def test_candidates_of_a_function_are_as_python_reads_them(session: dpsql.Session) -> None:
    session.register("f", lambda x: 1.0 if x.mean() > 0 else 2.0)
    text = "SELECT WITH SUBSAMPLE OPTIONS (candidates = (0.5, 1.0, 2.0)) f(x) AS m FROM t"
    assert {session.sql(text, fresh=True).fetchone() for _ in range(6)} == {(1.0,)}
