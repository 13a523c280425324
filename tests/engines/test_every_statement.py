"""Statements that analysts write, on Spark: every answered statement of the other suites has the same exact rows there as on DuckDB.

The clinic's statements (``tests/binding/analyst.sql``), those over the demo's tables (``tests/corpora/test_equals_duckdb.py``), and more of
each form of the language. What Spark has not is listed, statement by statement, with its reason. DuckDB itself runs them in
the suites that they come from.
"""

# ruff: noqa: E501  (statements in one line each)
from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import BindError
from dpsql.language.dialect import parse_fragment, to_sql
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.subsample.blocks import write_block_number
from dpsql.spark.spark_engine import SparkEngine
from tests.support import clinic, demo, inside
from tests.support.analyst import ANSWERED
from tests.support.both import Both, dealt, plan_of, released
from tests.support.engines import Engine, Kept, across
from tests.support.spark import SPENT, fill

pytestmark = pytest.mark.timeout(900)
SPARK = ("spark", "connect")


@dataclasses.dataclass
class Opened:
    """A session on the engine under test, and a reader that asks it and DuckDB."""

    session: dpsql.Session
    read: Both


def compared(opened: Opened, text: str) -> None:
    plan = plan_of(opened.session, text)
    assert released(opened.session, plan, opened.read) >= 1 or not plan.blocks


def refused(opened: Opened, text: str, said: str) -> None:
    """Before anything is charged."""
    before = str(opened.session.budget().spent)
    with pytest.raises(BindError, match=said):
        opened.session.sql(text)
    assert str(opened.session.budget().spent) == before


# -- the clinic -------------------------------------------------------------------------------------------------

_AS_SPARK_HAS_THEM = {
    "{'city': ['Delft','Leiden'][1+i%2], 'zip': 1000+i%5} AS address,": "",  # a STRUCT
    "INTERVAL (i%10) DAY AS stay, uuid() AS uid,": "i::VARCHAR AS uid,",  # an INTERVAL, a UUID
    "(['sad','ok','happy'][1+i%3])::mood AS feeling": "['sad','ok','happy'][1+i%3] AS feeling",
    "::UTINYINT AS u8": "::SMALLINT AS u8",
    "::HUGEINT AS h": "::DECIMAL(38,0) AS h",
    "::UBIGINT as u64": "::BIGINT as u64",
}
"""Columns of types that tables of Spark have not: by the nearest ones, or left out."""
_STRUCT, _INTERVAL = r"(column|table) address|table alias", r"column stay"
_NUMBER = r"no equivalent of a cast from VARCHAR to \w+"
_PATTERN = r"no equivalent of REGEXP_LIKE"
ABSENT = {
    "SELECT SUM(TRY_CAST(code AS INTEGER), contribution_bounds_per_row => (0, 4)) FROM visits": _NUMBER,
    "SELECT SUM(CAST(code AS INTEGER), contribution_bounds_per_row => (0, 4)) FROM visits": _NUMBER,
    "SELECT SAFE_CAST(code AS INT64) c, COUNT(*) FROM visits GROUP BY c": _NUMBER,
    "SELECT COUNT(*) FROM visits WHERE TRY_CAST(code AS INTEGER) = 2": _NUMBER,
    "SELECT COUNT(*) FROM visits WHERE regexp_matches(doctor, '^C')": _PATTERN,
    "SELECT address.city, COUNT(*) FROM visits GROUP BY address.city": _STRUCT,
    "SELECT address['city'] AS c, COUNT(*) FROM visits GROUP BY c": _STRUCT,
    "SELECT visits.address.zip AS z, COUNT(*) FROM visits GROUP BY 1": _STRUCT,
    "SELECT address, COUNT(*) FROM visits GROUP BY address": _STRUCT,
    "SELECT FLOOR(EPOCH(stay))::BIGINT AS s, COUNT(*) FROM visits GROUP BY s": _INTERVAL,
}
"""Statements that are refused on Spark, with the words that refuse them.

They have texts that are numbers (the two engines read other texts as such), regular expressions (Java's backtrack), or
columns of types that the engine does not take from Spark."""


@pytest.fixture
def at_the_clinic(engine: Engine, kept: Kept) -> Opened:
    def make(stack: ExitStack) -> Opened:
        tables = clinic.TABLES
        for theirs, ours in _AS_SPARK_HAS_THEM.items():
            assert theirs in tables
            tables = tables.replace(theirs, ours)
        con = stack.enter_context(duckdb.connect())
        con.execute(tables)
        policy = dpsql.Policy.loads(clinic.POLICY)
        session = stack.enter_context(engine.session(con, policy))
        return Opened(session, Both(DuckDBEngine(con, policy, Path()), inside.engine(session)))

    opened: Opened = kept.once(("clinic", engine.name), make)
    return opened


_SHORT = {
    "SELECT month, COUNT(*) FROM visits ASOF JOIN months ON visits.day >= months.month GROUP BY month",
    "SELECT t, COUNT(*) FROM visits v, UNNEST(v.tags) AS u(t) WHERE t <> 'y' GROUP BY t",
    "SELECT COUNT(*), COUNT(wing) FROM visits v LEFT JOIN LATERAL (SELECT w.wing FROM wards w WHERE w.ward = v.ward) l ON TRUE",
    "SELECT COUNT(*), AVG(cost) FROM (FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY day) = 1)",
    "SELECT COUNT(*) FROM patients p LEFT JOIN (visits v JOIN tests t ON v.visit = t.visit) ON p.patient = v.patient",
    "SELECT COUNT(*) FROM visits WHERE TRY_CAST(code AS INTEGER) = 2",
}


@pytest.mark.parametrize(
    ("engine", "text"),
    across([case.text for case in ANSWERED], _SHORT.__contains__, SPARK),
    indirect=["engine"],
)
def test_what_an_analyst_writes(engine: Engine, text: str, at_the_clinic: Opened) -> None:
    if text in ABSENT:
        refused(at_the_clinic, text, ABSENT[text])
    else:
        compared(at_the_clinic, text)


def test_what_is_listed_is_there() -> None:
    asked = {case.text for case in ANSWERED}
    assert asked >= set(ABSENT)
    assert asked >= _SHORT


ASKED = {
    "asof, equal": "SELECT COUNT(*), COUNT(floor) FROM visits ASOF LEFT JOIN wards ON visits.ward = wards.ward AND visits.small >= wards.floor",
    "asof, next": "SELECT COUNT(*), COUNT(floor) FROM visits ASOF JOIN wards ON visits.small <= wards.floor",
    "asof, turned": "SELECT AVG(floor, contribution_bounds_per_row => (0, 4)) FROM visits ASOF JOIN wards ON wards.floor > visits.small",
    "asof, before": "SELECT AVG(floor, contribution_bounds_per_row => (0, 4)) FROM visits ASOF LEFT JOIN wards ON wards.floor < visits.small",
    "frame": "SELECT AVG(x) FROM (SELECT MIN(small) FILTER (WHERE urgent) OVER (PARTITION BY patient ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS x FROM visits)",
    "two back": "SELECT AVG(x) FROM (SELECT lag(small, 2) OVER (PARTITION BY patient ORDER BY cost DESC) AS x FROM visits)",
    "sum of those": "SELECT AVG(x) FROM (SELECT SUM(small) FILTER (WHERE urgent) OVER (PARTITION BY patient) AS x FROM visits)",
    "letters": "SELECT strftime(seen, '%A %a %B %b %j %w %u %V %H:%M:%S %-d/%-m %%x') AS d, COUNT(*) FROM visits GROUP BY d",
    "elements": "SELECT COUNT(*) FROM visits WHERE tags[-1] = 'y' AND tags[5] IS NULL AND tags[-5] IS NULL",
    "signs": "SELECT COUNT(*) FROM visits WHERE signbit(score) OR signbit(0.0 - fl)",
    "semi": "SELECT COUNT(*) FROM visits v SEMI JOIN wards USING (ward)",
    "anti": "SELECT COUNT(*) FROM visits v ANTI JOIN wards w ON v.ward = w.ward AND w.floor > 1",
    "semi, private": "SELECT ward, COUNT(*) FROM visits v SEMI JOIN patients p ON v.patient = p.patient AND p.age > 40 GROUP BY ward",
    "anti, private": "SELECT COUNT(*) FROM visits v ANTI JOIN (SELECT patient FROM patients WHERE age > 40) p USING (patient)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "name"), across(ASKED, {"asof, equal"}.__contains__, SPARK), indirect=["engine"]
)
def test_what_an_analyst_may_write(engine: Engine, name: str, at_the_clinic: Opened) -> None:
    compared(at_the_clinic, ASKED[name])


# -- the demo ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "case"), across(demo.CASES, lambda _: False, SPARK), indirect=["engine"])
def test_the_demo_tables(engine: Engine, case: tuple[str, str], kept: Kept) -> None:
    unit, text = case

    def make(stack: ExitStack) -> Opened:
        declared = demo.POLICY.replace("UNIT", demo.PERSON if unit == "person" else demo.ROW)
        policy = dpsql.Policy.loads(declared.replace('source = "', f'source = "{demo.DEMO}/'))
        session = stack.enter_context(dpsql.connect(engine.spark, policy=policy))
        return Opened(session, Both(DuckDBEngine(":memory:", policy, Path()), inside.engine(session)))

    compared(kept.once(("demo", engine.name, unit), make), text.partition("|")[0])


# -- the modes --------------------------------------------------------------------------------------------------

BLOCKS = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, delta = 1e-6, blocks = {}"
MODES = {
    "consistent cube": "SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) ward, urgent, COUNT(*) AS n FROM visits GROUP BY CUBE (ward, urgent)",
    "consistent rollup": "SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) ward, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY ROLLUP (ward)",
    "quantiles": "SELECT QUANTILE_CONT(age, [0.25, 0.5, 0.75]) AS q FROM visits",
    "grouped quantiles": "SELECT ward, QUANTILE_DISC(age, [0.1, 0.9]) AS q FROM visits GROUP BY ward",
    "histogram": "SELECT HISTOGRAM(ward) AS h FROM visits",
    "bins": "SELECT HISTOGRAM(age, [10, 20, 40, 80]) AS h FROM visits",
    "rows in all": "SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 5) ward, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY ward",
    "googlesql": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 1, privacy_unit_column = patient_id) city, AVG(age, contribution_bounds_per_group => (0, 130)) AS a, COUNTIF(urgent) AS u, SUM(IF(urgent, 1, 0), contribution_bounds_per_group => (0, 5)) AS k FROM visits GROUP BY city",
    "googlesql's threshold": "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 1, group_selection_strategy = LAPLACE_THRESHOLD, min_privacy_units_per_group = 3) city, COUNT(*) AS n FROM visits GROUP BY city",
    "googlesql's report": "SELECT AVG(age, report_format => 'JSON') AS a FROM visits",
    "gaussian": "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = GAUSSIAN) ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "what is cut": "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, report_cut = TRUE) city, SUM(age) AS s, AVG(weight, contribution_bounds_per_row => (40, 60)) AS a FROM visits GROUP BY city",
    "approximate": "SELECT APPROX_COUNT_DISTINCT(city) AS n FROM visits",
    "bounds found twice": "SELECT SUM(weight, contribution_bounds_per_row => AUTO) AS s, AVG(weight, contribution_bounds_per_row => AUTO) AS a FROM visits",
    "stable, grouped": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) ward, MEDIAN(age) AS m FROM visits GROUP BY ward",
    "stable, several": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(city) AS m, IQR(age) AS s FROM visits",
    "eight blocks": BLOCKS.format("8, bounds = (0, 130)) AVG(age) AS m FROM visits"),
    "many blocks": BLOCKS.format("300, bounds = (0, 130)) MEDIAN(age) AS m FROM visits"),
    "rounds": BLOCKS.format("5, combine = 'stable_mode', sampling = 'rounds') MODE(disease) AS m FROM visits"),
    "trimmed": BLOCKS.format("5, bounds = (0, 130), combine = 'trimmed_mean', trim = 0.2) AVG(age) AS m FROM visits"),
    "best of a block": BLOCKS.format("5) ARG_MAX(city, n) AS c FROM (SELECT city, COUNT(*) AS n FROM visits GROUP BY city)"),
    "least of a block": BLOCKS.format("5) ARG_MIN(city, age) AS c FROM visits"),
    "first of a block": BLOCKS.format("5) city FROM visits GROUP BY city ORDER BY COUNT(*) DESC, city LIMIT 1"),
    "block by block": BLOCKS.format("5, bounds = (0, 20)) KURTOSIS(age) AS m FROM visits"),
    "block by block, with public rows": BLOCKS.format("5, bounds = (0, 130)) KURTOSIS(age) AS m FROM visits JOIN wards USING (ward) WHERE beds > 5"),
    "a function": BLOCKS.format("5, bounds = (0, 130)) middle(age) AS m FROM visits"),
}  # fmt: skip
"""Besides those of tests/engines/test_every_engine.py. ``sampling = 'bernoulli'`` chooses by a hash with the run's own coin, which
is another one on each engine; that its runs can be cut into parts there is in tests/spark/test_spark_writer.py."""


@pytest.mark.parametrize(
    ("engine", "name"),
    across(MODES, {"googlesql", "consistent rollup"}.__contains__, SPARK),
    indirect=["engine"],
)
def test_the_modes(engine: Engine, name: str, kept: Kept) -> None:
    def make(stack: ExitStack) -> Opened:
        con = stack.enter_context(duckdb.connect())
        fill(con)
        session = stack.enter_context(engine.session(con, SPENT))
        session.register("middle", lambda x: float(np.median(x)))
        return Opened(session, Both(DuckDBEngine(con, SPENT, Path()), inside.engine(session)))

    compared(kept.once(("modes", engine.name), make), MODES[name])


# -- blocks -----------------------------------------------------------------------------------------------------

FORMS = [
    (blocks, turn, whole) for blocks in (5, 8, 128, 300) for turn in (None, "3") for whole in (False, True)
]


def test_blocks_are_dealt_by_the_unit_in_the_comparison() -> None:
    """However the number of a block is written, and printed again: or one engine would have other blocks than the other."""
    for blocks, turn, whole in FORMS:
        for key in (_KEY, 'r3."unit_0a1b2c"', "r3.unit_0a1b2c"):  # as plans have it, and in normal form
            written = f"SELECT {write_block_number(key, blocks, turn, whole)} AS b FROM t AS v".replace(
                SALT, "12345"
            )
            for text in (written, to_sql(parse_fragment(written))):
                assert "hash" not in dealt(text).lower()
                assert f"% {blocks}" in dealt(text)
    with pytest.raises(AssertionError, match="by a hash"):
        dealt(f"SELECT hash(xor(hash({_KEY}), 5)) * 2 AS b FROM t AS v")


_KEY = '"v"."dpsql_unit"'


@pytest.mark.parametrize(
    ("engine", "blocks"), across([5, 8, 300], {5, 8}.__contains__, SPARK), indirect=["engine"]
)
def test_units_are_dealt_evenly(engine: Engine, blocks: int, kept: Kept) -> None:
    """The hash that plans write deals units evenly into each block there is, and into none beside them."""

    def make(stack: ExitStack) -> SparkEngine:
        con = stack.enter_context(duckdb.connect())
        fill(con)
        there = inside.engine(stack.enter_context(engine.session(con, SPENT)))
        assert isinstance(there, SparkEngine)
        return there

    there, n = kept.once(("dealt", engine.name), make), 30_000
    for whole in (False, True):
        number = write_block_number("r.i", blocks, whole=whole).replace(SALT, "123456789012345678")
        query = f"SELECT b, COUNT(*) AS n FROM (SELECT {number} AS b FROM range({n}) AS r(i)) AS t GROUP BY b"
        found = {row["b"]: row["n"] for row in there.execute(query).to_pylist()}
        assert sorted(found) == list(range(blocks))
        off = sum((count - n / blocks) ** 2 / (n / blocks) for count in found.values())
        assert off < blocks + 6 * (2 * blocks) ** 0.5, "six standard deviations of a chi-square"
