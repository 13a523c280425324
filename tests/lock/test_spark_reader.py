# ruff: noqa: E501 - a text stands on one line
"""The second lock over Spark's text: read anew in Spark's dialect, and held to what its operator charges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.relation import Names
from dpsql.binding.values.total_expressions import make_total
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import BindError
from dpsql.exact.normal_form import normalise, write_parameters
from dpsql.language.dialect import parse_fragment, to_sql
from dpsql.lock.check import check_tree
from dpsql.lock.lock import columns_of
from dpsql.lock.spark_reader import Paths, read_spark
from dpsql.lock.tree import Known, Unproved
from dpsql.mechanisms.base import ClaimedText, PackingClaim, RouteClaim, fill_parameters, list_claims
from dpsql.policy.model import Budget, Policy, Table
from dpsql.spark.spark_engine import spark_sql
from tests.support import inside
from tests.support.hostile import FORMS, Neighbours, written
from tests.support.spark import NASTY, chosen

SALT = 12345


@pytest.fixture(scope="module")
def neighbours() -> Iterator[Neighbours]:
    made = Neighbours.open()
    yield made
    made.close()


Text = tuple[str, ClaimedText, Known, Paths]


def texts_of(made: Neighbours, statement: str) -> Iterator[Text]:
    """Every text of a statement in Spark's SQL, with its claim and what its names mean."""
    plan, session = made.plan(statement), made.session
    lock = inside.gate(session)._lock
    tables = {t.name: list(inside.engine(session).schema(t).items()) for t in session.policy.tables.values()}
    paths = {t.name: inside.engine(session).place(t) for t in session.policy.tables.values()}
    for block in plan.blocks if plan is not None else ():
        lent = inside.lent_columns(session, plan, block)
        names = {name: [c for c, _ in given] for name, given in lent.items()}
        known = lock._known({i.name: names[i.name] for i in block.inputs})
        for claimed in list_claims(block.operator):
            text = inside.gate(session).exact(claimed.text, {**names, **columns_of(claimed)})
            try:
                filled = fill_parameters(text, {"salt": SALT, "first": 0, "last": 8})
                yield spark_sql(filled, {**tables, **lent}), claimed, known, paths
            except BindError:
                continue


def proved(text: str, claimed: ClaimedText, known: Known, paths: Paths) -> bool:
    try:
        check_tree(read_spark(text, paths, SALT), claimed, known)
    except Unproved:
        return False
    return True


def test_every_text_is_proved(neighbours: Neighbours) -> None:
    """Every form of the language is proved; tests/engines proves those of the other suites as it asks Spark."""
    found: Counter[str] = Counter()
    for form in FORMS:
        for text, claimed, known, paths in texts_of(neighbours, written(form, "a9", "b9")):
            check_tree(read_spark(text, paths, SALT), claimed, known)
            found[type(claimed.claim).__name__] += 1
    enough = {"SumsClaim": 52, "PackingClaim": 24, "RowsClaim": 18, "BlocksClaim": 5}
    assert all(found[name] >= least for name, least in enough.items()), found


GROUPED = "SELECT kind, COUNT(*) FROM stays GROUP BY kind"
WRONG = {
    "a cap of more": (", 2L)", ", 3L)"),
    "no cap": ("least(`r0`.`p0`, 2L)", "`r0`.`p0`"),
    "the greatest for the least": ("least(", "greatest("),
    "more groups": ("<= 2L", "<= 3L"),
    "a window that is divided otherwise": ("PARTITION BY `r1`.`u`", "PARTITION BY `r1`.`k0`"),
    "a window that is not divided": ("PARTITION BY `r1`.`u` ", ""),
    "rank for row_number": ("row_number()", "rank()"),
    "another unit": ("`r4`.`patient_id` AS `unit_", "`r4`.`nights` AS `unit_"),
    "a unit that is computed": ("`r4`.`patient_id` AS `unit_", "(`r4`.`patient_id` + 1L) AS `unit_"),
    "a constant unit": ("`r4`.`patient_id` AS `unit_", "1L AS `unit_"),
    "groups without the unit": ("GROUP BY `r2`.`u`, `r2`.`k0`", "GROUP BY `r2`.`k0`"),
    "rows of nobody": ("(NOT (", "(("),
    "another shift": (", 42)", ", 41)"),
    "another multiple": ("4398046511104BD", "8796093022208BD"),
    "another mask": ("2097151L", "2097150L"),
    "a part that is left out": (" + CAST(sum(CAST(least(`r0`.`p0`, 2L) AS BIGINT) & 2097151L) AS DECIMAL(20,0))", ""),
    "parts of fewer bits": ("CAST(least(`r0`.`p0`, 2L) AS BIGINT)", "CAST(least(`r0`.`p0`, 2L) AS INT)"),
    "parts of an unknown type": ("CAST(least(`r0`.`p0`, 2L) AS BIGINT)", "least(`r0`.`p0`, 2L)"),
    "no choice": ("`q` WHERE `dpsql_chosen`", "`q`"),
    "the other rows": ("WHERE `dpsql_chosen`", "WHERE NOT `dpsql_chosen`"),
    "a table of somebody else": ("FROM `stays`", "FROM `nobody`"),
    "a sample": ("`stays` AS `r4`", "`stays` TABLESAMPLE (50 PERCENT) AS `r4`"),
    "a view beside": ("AS `r4` WHERE", "AS `r4` LATERAL VIEW explode(array(1, 2)) `x` AS `y` WHERE"),
    "a file": ("FROM `stays`", "FROM parquet.`stays`"),
    "chance": ("`r3`.`c2` AS `k0`", "rand() AS `k0`"),
    "a column without its relation": ("SELECT `r0`.`k0` AS", "SELECT `k0` AS"),
    "all columns": ("SELECT `r0`.`k0` AS `k0`,", "SELECT *,"),
    "an alias twice": ("`r3`", "`r2`"),
    "units counted twice": ("count(1) AS `units`", "(2L * count(1)) AS `units`"),
    "groups of sets": ("GROUP BY `r0`.`k0`", "GROUP BY ROLLUP (`r0`.`k0`)"),
    "two statements": ("SELECT `r0`.`k0`", "SELECT 1 AS `a`; SELECT `r0`.`k0`"),
    "a hint": ("SELECT `r0`.`k0`", "SELECT /*+ BROADCAST(`r0`) */ `r0`.`k0`"),
    "what the engine has as a function": ("count(1) AS `p0`", "approx_count_distinct(`r2`.`k0`) AS `p0`"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_text_is_refused(neighbours: Neighbours, name: str) -> None:
    whole, in_parts = texts_of(neighbours, GROUPED)
    old, new = WRONG[name]
    for text, claimed, known, paths in (whole, in_parts):
        assert proved(text, claimed, known, paths)
        wrong = text.replace(old, new)
        assert wrong != text
        assert not proved(wrong, claimed, known, paths), wrong


def test_sums_of_rows_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's text has no cast of a column to its own type, so values aren't clamped as doubles there."""
    text = '[budget]\nepsilon = 10\ndefault_epsilon = 1\n[tables.t]\nprivacy_unit = "ROW"\ncolumns.x.bounds = [0, 120]\n'
    monkeypatch.setattr(DuckDBEngine, "lossless", False)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1.5 :: DOUBLE AS x")
        with dpsql.connect(con, policy=Policy.loads(text)) as session:
            made = Neighbours(con, con, session)
            texts = list(texts_of(made, "SELECT SUM(x) AS s, AVG(x) AS a, STDDEV(x) AS d FROM t"))
    assert texts
    assert all(proved(*text) for text in texts)


def test_a_cte_is_never_taken_for_a_table(neighbours: Neighbours) -> None:
    forged = "WITH `stays` AS (SELECT `r9`.`visit_id` AS `patient_id`, `r9`.`ward` AS `kind` FROM `visits` AS `r9`) "
    whole, in_parts = texts_of(neighbours, GROUPED)
    for text, claimed, known, paths in (whole, in_parts):
        assert not proved(forged + text, claimed, known, paths)


def test_only_queries_are_read() -> None:
    paths: Any = {}
    for text in (
        "DROP TABLE t",
        "SELECT",
        "SELECT 1",
        "VALUES (1)",
        "FROM t",
        "SELECT 1 AS a MINUS SELECT 1 AS a",
        "(",
    ):
        with pytest.raises(Unproved):
            read_spark(text, paths)


@pytest.mark.parametrize(("bound", "enough"), [(3_000_000, True), (1_000_000_000, False)])
def test_a_sum_of_64_bits_is_proved_to_be_enough(neighbours: Neighbours, bound: int, enough: bool) -> None:
    """Otherwise one row's number would end the statement."""
    found = []
    for text, claimed, known, paths in texts_of(
        neighbours, f"SELECT SUM(nights, contribution_bounds_per_row => (0, {bound})) FROM stays"
    ):
        if isinstance(claimed.claim, RouteClaim | PackingClaim):
            continue
        assert proved(text, claimed, known, paths)
        parts = re.search(
            r"CAST\(CAST\(sum\(shiftright\(CAST\((.*?) AS BIGINT\), 42\)\).*? & 2097151L\) AS DECIMAL\(20,0\)\) AS DECIMAL\(38,0\)\)",
            text,
        )
        if parts is not None:
            forged = text.replace(parts[0], f"CAST(sum({parts[1]}) AS DECIMAL(38,0))")
            found.append(proved(forged, claimed, known, paths))
    assert set(found) == {enough}


def test_a_sum_of_38_digits_is_not_one_of_fewer() -> None:
    whole = read_spark("SELECT sum(CAST(`t`.`a` AS DECIMAL(38,0))) AS `s` FROM `t` AS `t`", {})
    for kind in ("DECIMAL(20,0)", "BIGINT", "DECIMAL(19,2)"):
        forged = read_spark(f"SELECT sum(CAST(`t`.`a` AS {kind})) AS `s` FROM `t` AS `t`", {})
        assert "most=None" in repr(whole)
        assert "most=9223372036854775807" in repr(forged)


PARTIAL = [
    "element_at(`t`.`l`, 2)", "element_at(array(1L), 2)", "`t`.`l`[5]", "split_part(`t`.`x`, ',', 0)", "split_part(`t`.`x`, ',', `t`.`a`)",
    "slice(`t`.`l`, 0, 2)", "slice(`t`.`l`, -1, 2)", "slice(`t`.`l`, `t`.`a`, 2)", "round(`t`.`a`, -1)", "round(CAST(`t`.`a` AS DECIMAL(38,0)), -1)",
    "round(CAST(`t`.`a` AS DOUBLE), -1)", r"(`t`.`x` LIKE 'a\\U0000005Cb')", r"(`t`.`x` LIKE 'a\\U0000005C')", "(`t`.`x` LIKE `t`.`x`)",
    "to_timestamp(`t`.`x`)", "to_date(`t`.`x`, 'yyyy')", "to_date(`t`.`x`)", "to_date(CAST(`t`.`x` AS STRING), 'yyyy')", "element_at(transform(array(`t`.`a`), s -> s), 2)",
    "element_at(transform(array(), s -> s), 1)", "make_date(`t`.`a`, 1, 1)", "from_utc_timestamp(`t`.`w`, `t`.`x`)", "conv(`t`.`x`, 10, 99)",
    "elt(`t`.`a`, `t`.`x`)", "raise_error(`t`.`x`)", "assert_true(`t`.`ok`)", "sequence(1L, `t`.`a`)", "repeat(`t`.`x`, `t`.`a`)", "from_json(`t`.`x`, 'a INT')",
    "timestamp_millis(`t`.`a`)", "timestamp_seconds(`t`.`a`)", "collate(`t`.`x`, 'UTF8_LCASE')", "sum(`t`.`a`) OVER (PARTITION BY `t`.`x`)",
]  # fmt: skip


@pytest.mark.parametrize("text", PARTIAL)
def test_functions_that_fail_for_some_values_are_refused(text: str) -> None:
    with pytest.raises(Unproved):
        read_spark(f"SELECT {text} AS `v` FROM `t` AS `t`", {})


@pytest.mark.parametrize("limit", ["", " LIMIT 2"])
def test_a_scalar_subquery_has_one_row(neighbours: Neighbours, limit: str) -> None:
    statement = "SELECT COUNT(*) FROM stays WHERE nights > (SELECT MAX(beds) FROM wards)"
    text, claimed, known, paths = next(texts_of(neighbours, statement))
    assert proved(text, claimed, known, paths)
    assert " LIMIT 1" in text
    assert not proved(text.replace(" LIMIT 1", limit), claimed, known, paths)


def test_every_expression_is_read(neighbours: Neighbours) -> None:
    """Those of the suites on Spark, which run there without the lock."""
    with duckdb.connect() as con:
        con.execute(NASTY)
        policy = Policy(Budget(1), {"t": Table("t", privacy_unit="ROW")})
        engine = DuckDBEngine(con, policy, Path())
        columns = [*engine.schema(policy.tables["t"]).items()]
        names = Names((Catalog(policy, engine, "basic").relation(policy.tables["t"], "t", "t"),))
        for text in chosen("equal"):
            typed = make_total(parse_fragment(f"SELECT {text}").expressions[0].unalias(), names)
            (relation,) = names.relations
            query = f"SELECT {to_sql(typed.node)} AS v FROM {to_sql(relation.source)}"
            written = spark_sql(write_parameters(normalise(query)), {"t": columns})
            assert read_spark(written, {})
        engine.close()


ROW = "r[0-9]+"
MORE_WRONG = {
    "a row more of each unit": ("SELECT MEDIAN(amount) FROM visits", r"<= 3L\) AS `dpsql_chosen`", "<= 4L) AS `dpsql_chosen`"),
    "a group more by its rank": ("SELECT ward, MEDIAN(amount) FROM visits GROUP BY ward", "<= 2L", "<= 3L"),
    "ranks of everybody": (
        "SELECT ward, MEDIAN(amount) FROM visits GROUP BY ward", rf"dense_rank\(\) OVER \(PARTITION BY `{ROW}`.`u` ", "dense_rank() OVER (",
    ),
    "a greater weight": ("SELECT AVG(amount) FROM visits", "1288490188800L", "1288490188801L"),
    "a value outside its bounds": ("SELECT SUM(amount) FROM visits", "4915200L", "4915202L"),
    "a rung of a greater total": (
        "SELECT SUM(amount, contribution_bounds_per_row => AUTO) FROM visits", "1048576L", "1048577L",
    ),
    "predictable blocks": (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 400)) COUNT(*) FROM visits", r" \^ 12345L", " ^ 12346L",
    ),
    "blocks by another column": (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 400)) COUNT(*) FROM visits", r"`(\w+)` \^ 12345L", "`patient_id` ^ 12345L",
    ),
    "a union in another order": (
        "SELECT COUNT(*) FROM (SELECT patient_id, visit_id FROM visits UNION ALL SELECT patient_id, visit_id FROM visits) AS u",
        r"`(dpsql_own_1)`.`unit_\w+` AS", r"`\1`.`c1` AS",
    ),
    "a part of a lateral list in the unit's place": (
        "SELECT COUNT(*) FROM visits AS v, LATERAL (SELECT v.visit_id AS x) AS l", r"`r2`.`unit_\w+` AS `u`", "`r4`.`c0` AS `u`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE_WRONG)
def test_a_wrong_text_of_another_shape_is_refused(neighbours: Neighbours, name: str) -> None:
    statement, pattern, wrong = MORE_WRONG[name]
    found = []
    for text, claimed, known, paths in texts_of(neighbours, statement):
        if isinstance(claimed.claim, RouteClaim | PackingClaim):
            continue
        assert proved(text, claimed, known, paths)
        forged, count = re.subn(pattern, wrong, text)
        found += [proved(forged, claimed, known, paths)] if count else []
    assert found, "the text has no such place"
    assert not all(found)


NEAREST = (
    "SELECT COUNT(*) FROM visits AS v ASOF JOIN (SELECT 10 * beds AS b FROM wards) AS w ON v.amount >= w.b"
)


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [(r" AND \(`r\d+`.`dpsql_next` IS NULL.*?\)\)", ""), (r"lead\(", "lag("), ("ASC NULLS FIRST", "DESC NULLS FIRST"), ("ASC NULLS FIRST", "ASC NULLS LAST"),
     (r"(`r\d+`.`c3`) >= ", r"\1 > "), (r"`r\d+`.`c3` < (`r\d+`)", r"\1.`c0` < \1")],
)  # fmt: skip
def test_a_nearest_row_is_known_by_all_of_its_parts(neighbours: Neighbours, pattern: str, wrong: str) -> None:
    text, _, _, paths = next(iter(texts_of(neighbours, NEAREST)))
    assert "asof=True" in repr(read_spark(text, paths, SALT))
    forged, count = re.subn(pattern, wrong, text)
    assert count
    assert "asof=True" not in repr(read_spark(forged, paths, SALT))


def test_the_gate_refuses_what_an_engine_would_run_instead(neighbours: Neighbours) -> None:
    plan, session = neighbours.plan(GROUPED), neighbours.session
    gate = inside.gate(session)
    (block,) = plan.blocks
    operator: Any = block.operator
    text = gate.exact(operator.query, {})
    ((written_text, *_),) = [t for t in texts_of(neighbours, GROUPED) if t[1].text == operator.query]
    gate.prove_written(operator, text, written_text, {}, SALT)
    with pytest.raises(Unproved):
        gate.prove_written(operator, text, written_text.replace(", 2L)", ", 3L)"), {}, SALT)
    with pytest.raises(Unproved):
        gate.prove_written(operator, text + " ", written_text.replace(", 2L)", ", 3L)"), {}, SALT)
