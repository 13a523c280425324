"""The reach of one privacy unit: exact queries of random statements, on random tables with and without a unit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from sqlglot import exp

import dpsql
from dpsql.binding.dp import unit_caps
from dpsql.binding.dp.budget_split import BudgetShare
from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.binding.relations import joins, subqueries
from dpsql.errors import Error
from dpsql.exact.exact_query import Exact, write_bounded_rows
from dpsql.mechanisms.aggregation import Aggregation, Part, Together
from dpsql.mechanisms.auto_bounds import AutoBounded
from dpsql.mechanisms.base import SALT, Operator, Reader
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.histograms import DistinctSum, Histogram
from dpsql.mechanisms.inverse_sensitivity import InverseSensitivity
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, change_noise
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.queries import Select, Subquery
from dpsql.mechanisms.selection.exponential import MostFrequent
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import find_runs
from tests.support import inside
from tests.support.grammar import LIMITS, UNITS, WITHOUT_CAPS, Databases, open_databases, statements
from tests.support.moves import (
    fill,
    group_of,
    histogram,
    loss_beyond,
    read,
    rows_by_key,
    rungs,
    units_beyond,
    violations,
    violations_of_part,
)
from tests.support.small import open_small

DATABASES = 32
CASES, SLICES = 20_000, 16
SMALL = tuple[duckdb.DuckDBPyConnection, dpsql.Session]
QUIET = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@pytest.fixture(scope="module")
def small() -> Iterator[SMALL]:
    con, session = open_small()
    with con, session:
        yield con, session


# -- the check --------------------------------------------------------------------------------------------------


def check(small: SMALL, text: str, given: list[tuple[str, ...]], more: list[tuple[str, ...]]) -> list[str]:
    con, session = small
    plan = bound(session, text)
    if plan is None:
        return []
    row_level = " FROM r" in text
    name = "r" if row_level else "t"
    fill(con, name, given)
    fill(con, "s", more)
    found: list[str] = []
    for block in plan.blocks:
        operator = block.operator
        assert isinstance(operator, Aggregation)
        before = read(con, operator)
        budgeted = "max_rows_contributed" in text
        for gone in sorted({0, len(given) // 2, len(given) - 1}) if row_level else ("1", "2"):
            con.execute("BEGIN")
            if row_level:
                fill(con, name, [row for i, row in enumerate(given) if i != gone])
            else:
                con.execute(f"DELETE FROM t WHERE unit = {gone}; DELETE FROM s WHERE unit = {gone}")
            found += violations(operator, before, read(con, operator), budgeted)
            con.execute("ROLLBACK")
    return found


# Rows of one unit at the far ends of everything, beside a unit of ordinary rows.
FAR = [
    ("1", "'a'", "1", "1e300", "2147483647", "9223372036854775807", "99999999.99", "TRUE"),
    ("1", "'a'", "1", "5", "2147483647", "9223372036854775807", "99999999.99", "TRUE"),
    ("1", "'a'", "2", "32767.9", "7", "4", "1.99", "TRUE"),
    ("1", "'b'", "3", "-9", "-2147483648", "-9223372036854775808", "-99999999.99", "FALSE"),
    ("1", "'c'", "3", "40", "2147483647", "4", "1.99", "TRUE"),
    ("1", "'b'", "2", "NULL", "NULL", "NULL", "NULL", "NULL"),
    ("2", "'b'", "1", "2.71828", "3", "4", "0.25", "FALSE"),
    ("2", "'a'", "3", "0.3", "5", "-1", "0.25", "TRUE"),
]
EVERY = [
    "COUNT(*)", "COUNT(b)", "COUNT(DISTINCT unit)", "COUNT(DISTINCT unit) FILTER (WHERE f)", "COUNT_IF(x > 1)",
    *(f"COUNT(*, contribution_bounds_per_group => {pair})" for pair in LIMITS),
    *(f"{name}({number})" for name in ("SUM", "AVG", "VARIANCE", "STDDEV_POP") for number in ("x", "n", "d", "x * n")),
    *(f"{name}({pair})" for name in ("CORR", "COVAR_SAMP", "REGR_SLOPE") for pair in ("x, n", "d, x * n", "n, n")),
    "REGR_R2(b, x, contribution_bounds_per_row => (-3, 2))", "REGR_INTERCEPT(x, d) FILTER (WHERE f)",
    *(f"{name}({number}, contribution_bounds_per_{per} => {pair})"
      for name in ("SUM", "AVG") for number in "xnbd" for per in ("row", "group") for pair in LIMITS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "keys", "limit"),
    [
        ("t", "", ""), ("t", "", "max_rows_contributed = 3, "), ("t", "k", ""), ("t", "k", "max_rows_contributed = 3, "),
        ("t", "p", "max_groups_contributed = 1, "), ("t", "f, k", ""), ("r", "", ""), ("r", "k", ""), ("r", "p", ""),
    ],
)  # fmt: skip
def test_every_aggregate_at_the_far_ends(small: SMALL, table: str, keys: str, limit: str) -> None:
    noise = "GAUSSIAN, delta = 1e-4" if keys == "k" else "LAPLACE"
    parts = [part.replace("DISTINCT unit", "*") if table == "r" else part for part in EVERY]
    text = (
        f"SELECT WITH DP OPTIONS ({limit}epsilon = 1, noise = {noise}) {keys + ', ' if keys else ''}{', '.join(parts)} "
        f"FROM {table}" + (f" GROUP BY {keys}" if keys else "")
    )
    assert bound(small[1], text) is not None, "refused"
    assert check(small, text, FAR, []) == []


@pytest.mark.parametrize(
    ("doctored", "text"),
    [
        ("clamp", "SELECT COUNT(*), SUM(x) FROM t"),
        ("clamp", "SELECT k, SUM(n, contribution_bounds_per_group => (0, 4)) FROM t GROUP BY k"),
        (
            "groups",
            "SELECT WITH DP OPTIONS (max_groups_contributed = 1) k, COUNT(DISTINCT unit) FROM t GROUP BY k",
        ),
        ("groups", "SELECT p, COUNT(DISTINCT unit) FROM t GROUP BY p"),
        ("budget", "SELECT WITH DP OPTIONS (max_rows_contributed = 2) k = 'a', COUNT(*) FROM t GROUP BY 1"),
    ],
)
def test_the_check_notices_a_missing_bound(
    small: SMALL, doctored: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(small, text, FAR, []) == []
    if doctored == "clamp":
        monkeypatch.setattr(Exact, "_clamp", lambda self, partial, budgeted: partial.name)
    elif doctored == "groups":
        original = Exact._user_level

        def keep_all(self: Exact, in_parts: bool) -> Select:
            totals = original(self, in_parts)
            kept = totals.source
            assert isinstance(kept, Subquery)
            assert isinstance(kept.query, Select)
            assert kept.query.qualify
            return replace(totals, source=Subquery(replace(kept.query, qualify=()), kept.name))

        monkeypatch.setattr(Exact, "_user_level", keep_all)
    else:
        monkeypatch.setattr(Exact, "_clamp", lambda self, partial, budgeted: f"LEAST({partial.name}, 9)")
    _PLANS.pop(text)
    found = check(small, text, FAR, [])
    _PLANS.pop(text)
    assert found, "the doctored query passed"


_PLANS: dict[str, Plan | None] = {}
_BOUND = {"answered": 0, "refused": 0, "packed": 0}


def bound(session: dpsql.Session, text: str) -> Plan | None:
    """The plan, or None where the statement is refused (the grammar draws some that must be)."""
    if text not in _PLANS:
        if len(_PLANS) > 1000:
            _PLANS.clear()
        try:
            _PLANS[text] = inside.bind(session, text)
        except Error as error:
            _PLANS[text] = None
            assert type(error) in (dpsql.PrivacyError, dpsql.BindError), text
        _BOUND["refused" if _PLANS[text] is None else "answered"] += 1
    return _PLANS[text]


# -- random statements -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    opened = open_databases(DATABASES)
    with opened.con, opened.session:
        yield opened


def in_schema(query: str, schema: str) -> str:
    return query.replace('"memory"."main"."g"', "main.g").replace('"memory"."main".', f"{schema}.")


def parts_of(operator: Operator) -> tuple[Aggregation | Part | CapSearch, ...]:
    """Return what reads exact rows: the search of a cap, then what is answered for the caps 1 and 2 where it found one of these.

    Of higher caps a unit with few rows in a small table moves no more, and the noise is for more.
    """
    if isinstance(operator, CapSearch):
        return (operator, *(part for choice in operator.choices[:2] for part in parts_of(choice)))
    if isinstance(operator, Together):
        return operator.parts if operator.aggregation is None else (operator.aggregation, *operator.parts)
    assert isinstance(operator, Aggregation)
    return (operator,)


def first_groups(units: Any, groups: int, entropy: Entropy) -> Any:
    """In the place of a choice at random: each unit's first groups, whoever else is there."""
    starts = find_runs(units)
    return np.arange(len(units)) - np.repeat(starts, np.diff(starts, append=len(units))) < groups


def by_packed_rows(databases: Databases, operator: Aggregation, schema: str) -> dict[Any, Any] | None:
    """The same statistics by the other route, where there is one and the data fit."""
    if operator.packed is None:
        return None

    def execute(sql: str, lent: Any) -> pa.Table:
        for name, table in lent.items():
            databases.con.register(name, table)
        return databases.con.sql(
            in_schema(inside.write_alone(databases.session, sql), schema)
        ).to_arrow_table()

    table = operator.packed.take(Reader(execute, {}, 10**6), Entropy())
    if table is None:
        return None
    _BOUND["packed"] += 1
    return {
        group_of(row, operator.keys): {c: int(v or 0) for c, v in row.items() if c not in operator.keys}
        for row in table.to_pylist()
    }


def exact(databases: Databases, operator: Operator, schema: str) -> list[dict[Any, Any]]:
    """Return what the operator's queries give in a schema; equal queries are asked once."""
    held: dict[tuple[object, str], dict[Any, Any]] = {}
    found = []
    for part in parts_of(operator):
        query = in_schema(inside.write_alone(databases.session, part.query), schema)
        if (type(part), query) not in held:
            held[type(part), query] = read_part(databases.con, part, query)
        found.append(held[type(part), query])
    return found


def read_part(con: duckdb.DuckDBPyConnection, part: Any, query: str) -> dict[Any, Any]:
    if isinstance(part, Histogram | MostFrequent):
        return histogram(con, query, part.keys, ("bin", "n"))
    if isinstance(part, CapSearch):
        return histogram(con, query, (), ("n", "units")).get((), {})
    if isinstance(part, AutoBounded):
        return rungs(con, query, part.keys)
    if isinstance(part, Quantiles | InverseSensitivity | DistinctSum):
        return histogram(con, query, part.keys)
    return rows_by_key(con, query, part.keys)


def differences(
    operator: Operator, before: list[dict[Any, Any]], after: list[dict[Any, Any]], budgeted: bool
) -> list[str]:
    found = []
    for part, here, there in zip(parts_of(operator), before, after, strict=True):
        if isinstance(part, Aggregation):
            found += [*violations(part, here, there, budgeted), *loss_beyond(part, here, there)]
        elif isinstance(part, CapSearch):
            found += units_beyond(here, there)
        else:
            found += violations_of_part(part, here, there)
    return found


def check_in(databases: Databases, text: str, number: int, units: Iterable[int]) -> list[str]:
    """List what moves too far in one of the databases when one of ``units`` goes, each in turn."""
    plan = bound(databases.session, text)
    if plan is None:
        return []
    found = charged_beyond(plan, text)
    for block in plan.blocks:
        for item in block.inputs:
            databases.con.execute(f"CREATE OR REPLACE TEMP TABLE {item.name} AS {item.sql}")
        budgeted = "max_rows_contributed" in text or "contributed = AUTO" in text
        first = parts_of(block.operator)[0]
        before = exact(databases, block.operator, f"d{number}")
        # groups that are kept are public for what comes after: here those of these rows
        if len(plan.blocks) > 1:
            keep_groups(databases, block, f"d{number}")
        packed = by_packed_rows(databases, first, f"d{number}") if isinstance(first, Aggregation) else None
        for gone in units:
            after = exact(databases, block.operator, f"d{number}_{gone}")
            found += differences(block.operator, before, after, budgeted)
            if packed is not None and isinstance(first, Aggregation) and gone == 1 + number % len(UNITS):
                # where nobody is left, the query is read: it says what an empty table gives
                there = by_packed_rows(databases, first, f"d{number}_{gone}")
                found += violations(first, packed, after[0] if there is None else there, budgeted)
    return found


def charged_beyond(plan: Plan, text: str) -> list[str]:
    """Return where the blocks of a statement cost more together than it asks for."""
    asked = [
        Fraction(found[1])
        for name in ("epsilon", "delta")
        if (found := re.search(rf"{name} = (\S+?)[,)]", text))
    ]
    event = plan.event
    if event is None or len(asked) < 2:
        return []
    return [
        f"{spent} is charged, not {most}"
        for spent, most in zip(event.basic, asked, strict=True)
        if spent > most
    ]


def keep_groups(databases: Databases, block: PrivateBlock, schema: str) -> None:
    last = parts_of(block.operator)[-1]
    if isinstance(last, Aggregation) and last.keys and not last.outputs:
        query = in_schema(inside.write_alone(databases.session, last.query), schema).replace(SALT, "12345")
        databases.con.execute(f"CREATE OR REPLACE TEMP TABLE {block.name} AS {query}")


NUMBERS = st.integers(0, DATABASES - 1)


@pytest.fixture(autouse=True)
def choices_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.mechanisms.fast.packed_aggregation.choose_groups", first_groups)


QUIET = settings(QUIET, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@settings(QUIET, max_examples=150 // len(UNITS) + 1)
@given(statements(1), NUMBERS)
def test_no_unit_moves_more_than_is_declared(databases: Databases, text: str, number: int) -> None:
    """Random cases: a statement, a database, and a unit that goes."""
    assert check_in(databases, text, number, UNITS) == [], (text, databases.contents(number))


@pytest.fixture(scope="module")
def without_caps() -> Iterator[Databases]:
    opened = open_databases(DATABASES, policy=WITHOUT_CAPS)
    with opened.con, opened.session:
        yield opened


def ask_for_everything(text: str) -> str:
    """The statement with AUTO for both caps, for noise, and for most bounds of rows, in place of what it says."""
    text = re.sub(r"(max_(rows|groups)_contributed|noise|delta|consistent) = [\w-]+(, )?", "", text).replace(
        ", )", ")"
    )
    auto = "max_rows_contributed = AUTO, max_groups_contributed = AUTO, "
    more = "" if "WITH STABLE" in text else "noise = AUTO, delta = 1e-7, "
    text = text.replace("OPTIONS (", f"OPTIONS ({auto}{more}")
    text = re.sub(
        r"((?:SUM|AVG|VAR_POP|MEDIAN)\((?!DISTINCT)[^()]*, contribution_bounds_per_row => )\(-?[\d.]+, -?[\d.]+\)",
        r"\1AUTO",
        text,
    )
    return f"{text} "  # the plan of the same text under the other policy is another


@settings(QUIET, max_examples=60 // len(UNITS) + 1)
@given(statements(1), NUMBERS)
def test_no_unit_moves_more_than_is_declared_with_everything_auto(
    without_caps: Databases, text: str, number: int
) -> None:
    """200 cases in which the policy leaves the caps out."""
    text = ask_for_everything(text)
    assert check_in(without_caps, text, number, UNITS) == [], (text, without_caps.contents(number))


@pytest.mark.stochastic
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("slice_", range(SLICES))
def test_no_unit_moves_more_than_is_declared_with_everything_auto_at_length(
    without_caps: Databases, slice_: int
) -> None:
    """20,000 cases with everything AUTO, in slices that can be run apart; every fourth has relations in relations."""
    depth = 1 if slice_ % 4 else 2

    @seed(SLICES * int(os.environ.get("DPSQL_FUZZ_SEED", "0")) + slice_)
    @settings(QUIET, max_examples=CASES // SLICES // len(UNITS) + 1)
    @given(statements(depth), NUMBERS)
    def search(text: str, number: int) -> None:
        text = ask_for_everything(text)
        assert check_in(without_caps, text, number, UNITS) == [], (text, without_caps.contents(number))

    search()


def sizes_by_group(exact: Exact, top: int, groups: bool) -> str:
    """Make a stand-in for a count for each unit: one for each unit and group."""
    by = ", ".join(["u", *exact.names])
    head = "" if exact.domain is None else f"WITH domain AS ({exact.domain.sql}) "
    pairs = f"SELECT LEAST(COUNT(*), {top}) AS n FROM ({exact.rows(inside=True)}) AS rows GROUP BY {by}"
    return f"{head}SELECT n, COUNT(*) AS units FROM ({pairs}) AS pairs GROUP BY n"


def quieter(noise: LaplaceNoise | GaussianNoise) -> Any:
    assert isinstance(noise, GaussianNoise)
    return replace(noise, sigma=noise.sigma * Fraction(9, 10))


GAUSSIAN = "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-7, noise = GAUSSIAN, max_rows_contributed = AUTO)"
CONTROLS = {
    "a count per unit and group": "SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) k, COUNT(*) FROM t GROUP BY k",
    "sigma at 0.9": f"{GAUSSIAN} k, COUNT(*), COUNT(n) FROM t GROUP BY k",
    "delta twice": f"{GAUSSIAN} x, COUNT(*) FROM t GROUP BY x",
}


@pytest.mark.parametrize("doctored", CONTROLS)
def test_the_check_notices_what_is_found_for_too_little(
    without_caps: Databases, doctored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls that must fail: how caps are found, what noise has, and what both pay."""
    text = CONTROLS[doctored]
    _PLANS.pop(text, None)
    with monkeypatch.context() as patch:
        if doctored == "a count per unit and group":
            patch.setattr(unit_caps, "write_unit_sizes", sizes_by_group)
        elif doctored == "delta twice":
            patch.setattr(BudgetShare, "delta_part", property(lambda share: share.delta))
        else:
            plan = bound(without_caps.session, text)
            (block,) = plan.blocks
            search = block.operator
            assert isinstance(search, CapSearch)
            assert isinstance(search.least, Aggregation)
            outputs = tuple(change_noise(output, quieter) for output in search.least.outputs)
            made = replace(block, operator=replace(search.least, outputs=outputs))
            patch.setitem(_PLANS, text, replace(plan, blocks=(made,)))
            patch.setattr(Plan, "event", None)
        seen = next((n for n in range(DATABASES) if check_in(without_caps, text, n, UNITS)), None)
        _PLANS.pop(text, None)
    assert seen is not None, "the doctored statement passed"
    assert check_in(without_caps, text, seen, UNITS) == []
    assert _PLANS.pop(text) is not None


@pytest.mark.stochastic
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("slice_", range(SLICES))
def test_no_unit_moves_more_than_is_declared_at_length(databases: Databases, slice_: int) -> None:
    """20,000 cases, in slices that can be run apart; ``DPSQL_FUZZ_SEED`` gives others."""

    @seed(SLICES * int(os.environ.get("DPSQL_FUZZ_SEED", "0")) + slice_)
    @settings(QUIET, max_examples=CASES // SLICES // len(UNITS) + 1)
    @given(statements(2), NUMBERS)
    def search(text: str, number: int) -> None:
        assert check_in(databases, text, number, UNITS) == [], (text, databases.contents(number))

    search()
    assert _BOUND["packed"] > 20  # the other route was taken


def test_the_grammar_is_mostly_answered() -> None:
    assert _BOUND["answered"] > 3 * _BOUND["refused"]


@pytest.mark.parametrize(
    ("doctored", "text"),
    [
        ("units meet by their keys", "SELECT COUNT(*) FROM i a JOIN i b ON a.oid = b.oid"),
        ("units meet by their keys", "SELECT SUM(q) FROM o LEFT JOIN i USING (oid)"),
        ("units meet by their keys", "SELECT COUNT(*) FROM v JOIN o USING (oid)"),
        ("units meet by their keys", "SELECT COUNT(*) FROM m a JOIN m b USING (unit)"),
        ("units meet by their keys", "SELECT COUNT(*) FROM v a JOIN v b USING (w)"),
        (
            "subqueries see all units",
            "SELECT COUNT(DISTINCT unit) FROM o WHERE oid IN (SELECT oid FROM o WHERE k = 'a')",
        ),
        (
            "subqueries see all units",
            "SELECT COUNT(DISTINCT unit) FROM o WHERE (SELECT COUNT(*) FROM i WHERE i.oid = o.oid) > 1",
        ),
        ("rows meet several", "SELECT COUNT(*) FROM r JOIN (SELECT 3 AS three FROM g) AS h ON n = three"),
    ],
)
def test_the_check_notices_a_join_that_mixes_units(
    databases: Databases, doctored: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        if doctored == "units meet by their keys":
            patch.setattr(joins._Step, "_same_unit", lambda *given: None)
        elif doctored == "subqueries see all units":
            patch.setattr(subqueries._Place, "linked", lambda *given: exp.true())
        else:
            patch.setattr(joins._Step, "hold_public", lambda *given: None)
        seen = next((n for n in range(DATABASES) if check_in(databases, text, n, UNITS)), None)
        _PLANS.pop(text)
    assert seen is not None, "the doctored query passed"
    if doctored != "rows meet several":  # in the same database
        assert check_in(databases, text, seen, UNITS) == []
        assert _PLANS.pop(text) is not None


@pytest.mark.parametrize(
    ("doctored", "text"),
    [
        ("rows", "SELECT MODE(k) FROM t"),
        ("rows", "SELECT APPROX_QUANTILES(n, 4) FROM t"),
        ("rows", "SELECT WITH STABLE IQR(n) FROM t"),
        (
            "groups",
            "SELECT WITH DP OPTIONS (max_groups_contributed = 1) k, SUM(DISTINCT n) FROM t GROUP BY k",
        ),
        ("groups", "SELECT WITH DP OPTIONS (max_groups_contributed = 1) k, MODE(f) FROM t GROUP BY k"),
        (
            "groups",
            "SELECT WITH DP OPTIONS (max_groups_contributed = 1) k, APPROX_QUANTILES(x, 3) FROM t GROUP BY k",
        ),
        (
            "groups",
            "SELECT WITH STABLE OPTIONS (max_groups_contributed = 1) k, TRIMMED_MEAN(x, 0.1) FROM t GROUP BY k",
        ),
        ("noise", "SELECT SUM(DISTINCT n) FROM t"),
        ("rows", "SELECT WITH DP OPTIONS (max_rows_contributed = 2) k, HISTOGRAM(f) FROM t GROUP BY k"),
        (
            "rows",
            "SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) k, COUNT(DISTINCT n) FROM t GROUP BY k",
        ),
    ],
)
def test_the_check_notices_rows_that_are_not_cut(
    databases: Databases, doctored: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uncut(
        bound: Any, where: Any, keys: Any, values: Any, rows: int, groups: int, domain: Any, *ways: bool
    ) -> Select:
        kept = (None, groups) if doctored == "rows" else (rows, None)
        return write_bounded_rows(bound, where, keys, values, *kept, domain)

    with monkeypatch.context() as patch:
        if doctored == "noise":  # what one row may bring, and not what all of a unit's may
            patch.setattr(
                "dpsql.binding.dp.row_queries.bound_distinct_sum", lambda rows, low, high, *more: high
            )
            patch.setattr(DistinctSum, "__post_init__", lambda self: None)
        else:
            patch.setattr("dpsql.exact.exact_query.write_bounded_rows", uncut)
        _PLANS.pop(text, None)
        seen = next((n for n in range(DATABASES) if check_in(databases, text, n, UNITS)), None)
        _PLANS.pop(text)
    assert seen is not None, "the doctored query passed"
    assert check_in(databases, text, seen, UNITS) == []
    assert _PLANS.pop(text) is not None
