"""Names that an analyst may write, in every place where a name may stand; and how far one person moves what comes of it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

import dpsql
from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.errors import Error
from dpsql.language.statements import parse
from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.auto_bounds import AutoBounded
from dpsql.mechanisms.base import fill_parameters
from dpsql.mechanisms.contribution_caps import SIZE, UNITS, CapSearch, CutReport
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.histograms import DistinctCount, Histogram
from dpsql.mechanisms.inverse_sensitivity import InverseSensitivity
from dpsql.mechanisms.ptr.stability_test import Stable
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.selection.above_threshold import AboveThreshold
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.mechanisms.subsample.subsample import SubsampleAggregate
from tests.support import inside
from tests.support.moves import Noise, beyond, group_of, units_beyond, violations, violations_of_part

PERSON = 4242
POLICY = """
budget = { epsilon = 1000, delta = 1e-3, accountant = "basic", default_epsilon = 1, default_delta = 1e-9, \
    max_epsilon_per_query = 1000 }
[tables]
visits = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2, columns.amount.bounds = [0, 100], \
    columns.ward.values = ["A", "B", "C"] }
stays = { privacy_unit = "patient_id", max_rows_per_group = 2, max_groups = 2, columns.nights.bounds = [0, 30] }
wards = { public = true }
shapes = { public = true }
"""
TABLES = """
CREATE TABLE visits AS
    SELECT (i // 3)::BIGINT AS patient_id, (1000 + i)::BIGINT AS visit_id, ['A', 'B', 'C'][1 + i % 3] AS ward,
           (i * 7 % 101)::DOUBLE AS amount, {'patient_id': (5 + i)::BIGINT, 'dpsql_unit': 7::BIGINT} AS info
    FROM range(60) AS t(i);
INSERT INTO visits
    SELECT 4242, 9000 + i, ['A', 'B', 'C'][1 + i % 3], 99.0, {'patient_id': i, 'dpsql_unit': i} FROM range(300) AS t(i);
CREATE TABLE stays AS SELECT (i // 2)::BIGINT AS patient_id, (i % 30)::INTEGER AS nights, 'n' || i % 4 AS kind FROM range(40) AS t(i);
INSERT INTO stays SELECT 4242, 29, 'n' || i % 4 FROM range(80) AS t(i);
CREATE TABLE wards AS FROM (VALUES ('A', 1::BIGINT), ('B', 2), ('C', 3)) AS w(ward, beds);
CREATE TABLE shapes AS
    SELECT {'patient_id': 4242::BIGINT, 'dpsql_unit': 4242::BIGINT, 'c0': 4242::BIGINT} AS v, 'A' AS ward, 4242::BIGINT AS k;
"""

GENERATED = (
    "dpsql_unit", "dpsql_table_1", "dpsql_table_2", "dpsql_cte_1", "dpsql_cte_2", "dpsql_derived_1", "dpsql_derived_3",
    "dpsql_inner_1", "dpsql_inner_2", "dpsql_rows_1", "dpsql_rows_2", "dpsql_lent_1", "dpsql_input_1", "dpsql_block",
    "dpsql_block_1", "dpsql_c", "dpsql_ord", "dpsql_score", "dpsql_sensitivity", "dpsql_threshold", "dpsql_seen",
    "dpsql_window_1", "dpsql_totals", "dpsql_beside_1", "dpsql_unnest_1", "dpsql_union_1", "dpsql_lifted_1",
    "r0", "r1", "r2", "r3", "r4", "c0", "c1", "c2", "c3", "u", "k0", "k1", "p0", "p1", "y0", "x0", "v", "g", "a0", "n",
    "o0", "rows", "units", "kept", "totals", "domain", "listed", "codes", "code", "base", "hop0", "given", "bounded",
    "held", "placed", "u_rows", "u_groups", "turns", "turn", "runs", "every", "block", "value", "count", "total", "one",
    "sign", "rung", "t0", "t0_x", "d0", "b0", "looped", "found", "salt", "$salt", "__dpsql_salt__",
    "pairs", "sized", "counted", "e0", "e1", "s0", "s1", "dpsql_kept_1", "dpsql_keys_1",
)  # fmt: skip
OWN = (
    "patient_id",
    "visit_id",
    "ward",
    "amount",
    "info",
    "visits",
    "stays",
    "wards",
    "shapes",
    "k",
    "nights",
)
WORDS = (
    "select", "from", "unit", "rowid", "lateral", "memory", "main", "temp", "COLUMNS", "Z", 'z"', "it's", "a b", "a.b", "ü",
)  # fmt: skip
NAMES = (*GENERATED, *OWN, *WORDS, "DPSQL_UNIT", "R1", "C0", "PATIENT_ID", "U")

# {0} and {1} are names, quoted.
_AUTO = "SELECT WITH DP OPTIONS (max_rows_contributed = AUTO, max_groups_contributed = AUTO)"
_CUT = "SELECT WITH DP OPTIONS (report_cut = TRUE)"
FORMS_OF_CAPS = (
    f"{_AUTO} COUNT(*) AS {{0}} FROM visits AS {{1}}",
    f"{_AUTO} COUNT(*) FROM (SELECT visit_id AS {{0}} FROM visits) AS {{1}}",
    f"{_AUTO} SUM({{0}}) FROM (SELECT amount AS {{0}}, visit_id AS {{1}} FROM visits) AS v",
    f"{_AUTO} ward AS {{0}}, COUNT(*) AS {{1}}, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward",
    f"{_AUTO} {{0}}, AVG({{1}}) FROM (SELECT ward AS {{0}}, patient_id, amount AS {{1}} FROM visits) AS v GROUP BY {{0}}",
    f"{_AUTO} {{0}}, COUNT(*), MEDIAN({{0}}) FROM (SELECT nights - 17 AS {{0}}, patient_id AS {{1}} FROM stays) AS s GROUP BY {{0}}",
    f"{_AUTO} {{1}}, COUNT(DISTINCT {{0}}) FROM (SELECT visit_id AS {{0}}, ward AS {{1}} FROM visits) AS v GROUP BY {{1}}",
    f"WITH {{0}} AS (SELECT visit_id AS {{1}} FROM visits) {_AUTO} COUNT(*) FROM {{0}}",
    f"{_AUTO} COUNT(*) FROM visits AS {{0}} JOIN stays AS {{1}} USING (patient_id)",
    f"{_CUT} SUM({{1}}, contribution_bounds_per_row => (0, 1)) FROM (SELECT visit_id AS {{0}}, amount AS {{1}} FROM visits) AS v",
    f"{_CUT} ward AS {{0}}, SUM(amount) AS {{1}} FROM visits GROUP BY ward",
    f"{_CUT} {{0}}, COUNT(*) FROM (SELECT kind AS {{0}}, patient_id AS {{1}} FROM stays) AS s GROUP BY {{0}}",
    "SELECT WITH DP OPTIONS (report_cut = TRUE, max_rows_contributed = 2) ward AS {0}, SUM({1}.amount) FROM visits AS {1} GROUP BY ward",
    "SELECT WITH DP OPTIONS (noise = GAUSSIAN) {0}, COUNT(*), VARIANCE({1}) "
    "FROM (SELECT ward AS {0}, patient_id, amount AS {1} FROM visits) AS v GROUP BY {0}",
)
FORMS = (
    "SELECT COUNT(*) FROM (SELECT visit_id AS {0} FROM visits) AS {1}",
    "SELECT COUNT(*) FROM (SELECT visit_id AS {0}, patient_id AS {1} FROM visits) AS v",
    "SELECT SUM({0}) FROM (SELECT amount AS {0}, visit_id AS {1} FROM visits) AS v",
    "SELECT COUNT(*) FROM (SELECT * RENAME (visit_id AS {0}) FROM visits) AS {1}",
    "SELECT COUNT(*) FROM (SELECT * REPLACE (visit_id AS patient_id) FROM visits) AS {0}",
    "SELECT COUNT(*) FROM (SELECT * FROM visits) AS {0}({1})",
    "SELECT COUNT(*) FROM (SELECT visit_id, patient_id FROM visits) AS v({0}, {1})",
    "WITH {0} AS (SELECT visit_id AS {1} FROM visits) SELECT COUNT(*) FROM {0}",
    "WITH {0}({1}) AS (SELECT visit_id FROM visits) SELECT COUNT({1}) FROM {0}",
    "WITH {0} AS (SELECT patient_id, visit_id AS {1} FROM visits), w AS (SELECT * FROM {0}) SELECT COUNT(*) FROM w",
    "WITH {0} AS (SELECT patient_id, amount FROM visits), {1} AS (SELECT * FROM {0}) SELECT COUNT(*) FROM {1} JOIN {0} USING (patient_id)",
    "SELECT COUNT(*) FROM visits AS {0}, range(20) AS {1}(i)",
    "SELECT COUNT(*) FROM (SELECT {1}.{0} AS {0} FROM visits, range(20) AS {1}({0})) AS w",
    "SELECT COUNT(*) FROM (SELECT i AS {0} FROM visits AS {1}, range(20) AS r(i)) AS w",
    "SELECT COUNT(*) FROM visits AS v, LATERAL (SELECT v.visit_id AS {0}) AS {1}",
    "SELECT COUNT(*) FROM (SELECT {1}.* FROM visits AS v, LATERAL (SELECT v.visit_id AS {0}) AS {1}) AS w",
    "SELECT COUNT(*) FROM visits AS {0}, UNNEST([1, 2, 3]) AS {1}(x)",
    "SELECT COUNT(*) FROM (SELECT * FROM visits AS v, UNNEST([v.visit_id, 1]) AS {1}({0})) AS w",
    "SELECT COUNT(*) FROM (SELECT patient_id, visit_id AS {0} FROM visits UNION ALL SELECT patient_id, visit_id AS {1} FROM visits) AS u",
    "SELECT COUNT(*) FROM (SELECT DISTINCT patient_id, visit_id AS {0} FROM visits) AS {1}",
    "SELECT COUNT(*) FROM (SELECT patient_id AS {0}, COUNT(*) AS {1} FROM visits GROUP BY patient_id) AS w",
    "SELECT SUM({1}) FROM (SELECT patient_id, MAX(amount) AS {1} FROM visits GROUP BY patient_id) AS {0}",
    "SELECT COUNT(*) FROM (SELECT MAX(visit_id) AS {0} FROM visits GROUP BY patient_id) AS {1}",
    "SELECT COUNT(*) FROM (SELECT patient_id, row_number() OVER (PARTITION BY patient_id ORDER BY amount) AS {0} FROM visits) AS {1}",
    "SELECT COUNT(*) FROM (SELECT visit_id AS {0}, count(*) OVER (PARTITION BY patient_id) AS {1} FROM visits) AS w",
    "SELECT COUNT(*) FROM visits AS {0} JOIN stays AS {1} USING (patient_id)",
    "SELECT COUNT(*) FROM visits AS {0} JOIN stays AS {1} ON {0}.patient_id = {1}.patient_id",
    "SELECT COUNT(*) FROM visits AS {0} LEFT JOIN stays AS {1} ON {0}.patient_id = {1}.patient_id WHERE {1}.nights IS NULL",
    "SELECT COUNT(*) FROM (SELECT patient_id AS {0} FROM visits) AS a JOIN (SELECT patient_id AS {0} FROM stays) AS {1} USING ({0})",
    "SELECT COUNT(*) FROM visits AS {0}, shapes AS {1}",
    "SELECT COUNT(*) FROM visits AS {0} WHERE EXISTS (SELECT 1 FROM stays AS {1} WHERE {1}.patient_id = {0}.patient_id)",
    "SELECT COUNT(*) FROM visits AS {0} WHERE EXISTS (SELECT 1 FROM stays s, shapes AS {1} WHERE s.patient_id = {0}.patient_id)",
    "SELECT COUNT(*) FROM visits AS {0} WHERE EXISTS (SELECT 1 FROM stays s, (SELECT v AS {0} FROM shapes) AS {1} WHERE s.patient_id = {0}.patient_id)",
    "SELECT COUNT(*) FROM visits AS {0} WHERE EXISTS (SELECT 1 FROM stays s, LATERAL (SELECT 4242 AS patient_id) AS {0} WHERE s.patient_id = {0}.patient_id)",
    "SELECT COUNT(*) FROM visits AS {0} WHERE patient_id IN (SELECT {1}.patient_id FROM stays AS {1} WHERE {1}.nights > 2)",
    "SELECT COUNT(*) FROM visits AS {0} WHERE amount > (SELECT MAX({1}.nights) FROM stays AS {1} WHERE {1}.patient_id = {0}.patient_id)",
    "SELECT COUNT(*) FROM visits AS {0} WHERE ward IN (SELECT {1}.ward FROM wards AS {1})",
    "SELECT COUNT(*) FROM (SELECT v AS {0}, patient_id FROM visits, shapes) AS {1}",
    "SELECT {0}.ward, COUNT(*) FROM visits AS {0} JOIN wards AS {1} ON {0}.ward = {1}.ward GROUP BY {0}.ward",
    "SELECT {1}.ward AS {0}, COUNT(*) AS n FROM visits RIGHT JOIN wards AS {1} USING (ward) GROUP BY {1}.ward",
    "SELECT ward AS {0}, COUNT(*) AS {1} FROM visits GROUP BY ward",
    "SELECT ward AS {0}, AVG(amount) AS {1} FROM visits GROUP BY {0}",
    "SELECT {0} AS {1}, SUM(amount) FROM (SELECT patient_id, ward AS {0}, amount FROM visits) AS v GROUP BY {0}",
    "SELECT {0}, COUNT(*) FROM (SELECT kind AS {0}, patient_id AS {1} FROM stays) AS s GROUP BY {0}",
    "SELECT AVG({0}.amount) AS {1}, VARIANCE(amount) FROM visits AS {0}",
    "SELECT MEDIAN({0}) AS {1} FROM (SELECT amount AS {0} FROM visits) AS v",
    "SELECT ward AS {0}, MEDIAN(amount) AS {1} FROM visits GROUP BY ward",
    "SELECT COUNT(DISTINCT {0}) FROM (SELECT kind AS {0}, nights AS {1} FROM stays) AS s",
    "SELECT COUNT(DISTINCT {0}.visit_id) AS {1} FROM visits AS {0}",
    "SELECT SUM({0}.amount, contribution_bounds_per_row => AUTO) AS {1} FROM visits AS {0}",
    "SELECT STDDEV({0}.amount, contribution_bounds_per_row => AUTO) AS {1} FROM visits AS {0}",
    "SELECT ward AS {0}, amount > 50 AS {1}, COUNT(*) FROM visits GROUP BY CUBE (ward, amount > 50)",
    "WITH {0}({1}) AS (SELECT ward FROM wards) SELECT EXPMECH(COUNT(*) FILTER (WHERE visits.ward = {0}.{1})) OVER {0} FROM visits",
    "WITH {0}({1}) AS (VALUES (10), (50)) SELECT {1}, EXPMECH({1} * COUNT(*) FILTER (WHERE amount >= {0}.{1})) OVER {0} FROM visits",
    "WITH c({0}, {1}) AS (VALUES ('A', 1), ('B', 2)) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE ward = c.{0}), 10) OVER c FROM visits",
    "WITH c({0}) AS (VALUES (10), (20)) SELECT {0}, EXPMECH(SUM(LEAST({1}.amount, c.{0}))) OVER c FROM visits AS {1}",
    "SELECT WITH PTR OPTIONS (delta = 1e-9) MODE({0}) AS {1} FROM (SELECT ward AS {0} FROM visits) AS v",
    "SELECT WITH PTR OPTIONS (delta = 1e-9) IQR({0}.amount) AS {1} FROM visits AS {0}",
    "SELECT WITH PTR OPTIONS (delta = 1e-9) MEDIAN(amount) AS {0} FROM visits AS {1}",
    "SELECT WITH PTR OPTIONS (delta = 1e-9) AVG({0}.amount) AS {1}, MODE({0}.amount, local_sensitivity => 9) FROM visits AS {0}",
    "SELECT STDDEV({1}) AS {0} FROM (SELECT amount AS {1} FROM visits) AS {0} WITH PTR OPTIONS (delta = 1e-9)",
    "WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = AUTO, delta = 1e-9) SELECT AVG({0}.amount) AS {1} FROM visits AS {0}",
    "SELECT WITH STABLE IQR({0}.amount) AS {1}, TRIMMED_MEAN(amount, 0.1) FROM visits AS {0}",
    "SELECT WITH STABLE ward AS {0}, IQR(amount) AS {1} FROM visits GROUP BY {0}",
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 400)) COUNT(*) AS {0} FROM visits AS {1}",
    "WITH {0} AS (SELECT visit_id AS {1}, amount FROM visits) SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 400)) COUNT(*) AS n FROM {0}",
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 400)) MAX({1}) AS {0} FROM (SELECT ward, COUNT(*) AS {1} FROM visits GROUP BY ward) AS w",
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 400)) (SELECT COUNT(*) FROM visits AS {0}) + (SELECT COUNT(*) FROM stays AS {1}) AS n",
    "SELECT COUNT(*) FROM visits AS {0} WHERE info.patient_id > 3 AND ({0}.info).dpsql_unit < 9",
    "SELECT COUNT(*) FROM (SELECT info AS {0}, amount FROM visits) AS {1} WHERE {1}.{0}.patient_id > 3",
    "SELECT COUNT(*) FROM (SELECT {{'{2}': visit_id}} AS {0} FROM visits) AS {1}",
    "SELECT COUNT(*) FROM (SELECT visit_id FROM visits) AS {0} WHERE {0}.visit_id > 3 AND '{2}' <> '$salt'",
    "SELECT ward || '{2}' AS {0}, COUNT(*) AS {1} FROM visits GROUP BY 1",
    "SELECT COUNT(*) FILTER (WHERE {0}.amount > 5) AS {1} FROM visits AS {0} HAVING COUNT(*) > 0 ORDER BY {1}",
    "SELECT COUNT(*) FROM (FROM visits SELECT visit_id AS {0}) AS a, (SELECT beds AS {0} FROM wards) AS {1}",
    "SELECT COUNT(*) FROM visits AS {0} ASOF JOIN (SELECT 10 * beds AS {1} FROM wards) AS w ON {0}.amount >= w.{1}",
    "SELECT COUNT(*) FROM main.visits AS {0} WHERE {0}.amount > 3 AND EXISTS (SELECT 1 FROM main.stays AS {1} "
    "WHERE {1}.patient_id = {0}.patient_id)",
    "SELECT COUNT(*) FROM (SELECT main.visits.visit_id AS {0}, amount AS {1} FROM main.visits) AS v WHERE v.{1} > 3",
    *FORMS_OF_CAPS,
)  # fmt: skip


def written(form: str, first: str, second: str) -> str:
    quoted = ['"' + name.replace('"', '""') + '"' for name in (first, second)]
    return form.format(*quoted, first.replace("'", "''").replace('"', ""))


def every_pair(seed: int) -> Iterator[str]:
    """Statements without end: each form with each name in its first place, then with names drawn for both."""
    for name, form in itertools.product(NAMES, FORMS):
        yield written(form, name, "w9")
    draw = random.Random(seed)
    while True:
        yield written(draw.choice(FORMS), draw.choice(NAMES), draw.choice(NAMES))


@dataclass
class Neighbours:
    """Two databases of which one lacks a person with many rows; statements are bound on the first."""

    one: duckdb.DuckDBPyConnection
    other: duckdb.DuckDBPyConnection
    session: dpsql.Session

    @staticmethod
    def open() -> Neighbours:
        one, other = duckdb.connect(), duckdb.connect()
        for con in (one, other):
            con.execute(TABLES)
        other.execute(
            f"DELETE FROM visits WHERE patient_id = {PERSON}; DELETE FROM stays WHERE patient_id = {PERSON}"
        )
        return Neighbours(one, other, dpsql.connect(one, policy=dpsql.Policy.loads(POLICY)))

    def close(self) -> None:
        self.session.close()
        self.one.close()
        self.other.close()

    def plan(self, text: str) -> Plan | None:
        """None for what is refused. Whatever else is raised is a fault."""
        try:
            (statement,) = parse(text)
            plan = inside.bind(self.session, statement)
            inside.check(self.session, plan)
        except Error:
            return None
        return plan

    def check(self, text: str) -> list[str] | None:
        """List what moves by more than is charged; None for what is refused."""
        plan = self.plan(text)
        if plan is None:
            return None
        return [fault for block in plan.blocks for fault in self.faults(plan, block)]

    def read(
        self, plan: Plan, block: PrivateBlock, query: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        names = {
            name: [c for c, _ in columns]
            for name, columns in inside.lent_columns(self.session, plan, block).items()
        }
        text = fill_parameters(
            inside.gate(self.session).exact(query, names), {"salt": 12345, "first": 0, "last": 8}
        )
        lent, found = self.lend(plan, block), []
        for con in (self.one, self.other):
            for name, table in lent.items():
                con.register(name, table)
            result = con.execute(text)
            columns = [c[0] for c in result.description or ()]
            found.append([dict(zip(columns, row, strict=True)) for row in result.fetchall()])
            for name in lent:
                con.unregister(name)
        return found[0], found[1]

    def lend(self, plan: Plan, block: PrivateBlock) -> dict[str, pa.Table]:
        """Return the relations that a block's texts read beside tables, with stand-ins for what other blocks release."""
        released = {earlier.name: self._stand_in(earlier) for earlier in plan.blocks}
        finisher = inside.finisher(self.session)
        return {i.name: finisher.finish(i.sql, released, plan.public) for i in block.inputs}

    def _stand_in(self, block: PrivateBlock) -> pa.Table:
        """Return one row of a release: the same beside both databases, as a release that was drawn before is."""
        values = ", ".join(
            f"TRY_CAST(12 AS {kind}) AS {exp.to_identifier(name, quoted=True).sql('duckdb')}"
            for name, kind in block.columns
        )
        return self.one.execute(f"SELECT {values}").to_arrow_table()

    def faults(self, plan: Plan, block: PrivateBlock, chosen: Any = None) -> list[str]:
        """List what moves too far; where caps are found, also for ``chosen`` ones at the ends and between."""
        operator: Any = block.operator if chosen is None else chosen
        if isinstance(operator, CapSearch):
            sizes = (
                {row[SIZE]: int(row[UNITS]) for row in rows}
                for rows in self.read(plan, block, operator.query)
            )
            few = (operator.least, operator.choices[len(operator.caps) // 2], operator.most)
            return units_beyond(*sizes) + [
                fault for choice in few for fault in self.faults(plan, block, choice)
            ]
        if isinstance(operator, Together):
            found = [] if operator.aggregation is None else self._totals(plan, block, operator.aggregation)
            for part in operator.parts:
                found += self._part(plan, block, part)
            return found
        if isinstance(operator, Aggregation):
            return self._totals(plan, block, operator)
        if isinstance(operator, AboveThreshold | ExponentialChoice):
            most = (
                operator.noise.sensitivity if isinstance(operator, AboveThreshold) else operator.sensitivity
            )
            moved = []
            for query in operator.batches:
                before, after = self.read(plan, block, query)
                moved += [
                    abs(int(a[CANDIDATE_SCORE]) - int(b[CANDIDATE_SCORE]))
                    for a, b in zip(before, after, strict=True)
                ]
            return [f"a score moves by {max(moved)}, not {most}"] if max(moved) > most else []
        if isinstance(operator, Stable):
            return [
                fault for item in operator.items for fault in self._rows(plan, block, item.values, item.rows)
            ]
        assert isinstance(operator, SubsampleAggregate), type(operator)
        return self._blocks(plan, block, operator)

    def _totals(self, plan: Plan, block: PrivateBlock, operator: Aggregation) -> list[str]:
        def by_key(rows: list[dict[str, Any]]) -> dict[Any, dict[str, int]]:
            return {tuple(r[k] for k in operator.keys): {c: int(v or 0) for c, v in r.items() if c not in operator.keys} for r in rows}  # fmt: skip

        before, after = map(by_key, self.read(plan, block, operator.query))
        return violations(operator, before, after, "max_rows_contributed" in plan.text)

    def _part(self, plan: Plan, block: PrivateBlock, part: Any) -> list[str]:
        before, after = self.read(plan, block, part.query)
        if isinstance(part, CutReport):
            moved = {n: abs(int(before[0][n.column]) - int(after[0][n.column])) for n in part.numbers}
            return [f for n, far in moved.items() for f in beyond(n.noise, [far] * (far > 0), n.what, False)]
        if isinstance(part, DistinctCount):
            noise: Noise = part.noise
            counts_by_key = (
                Counter({group_of(r, part.keys): int(r["n"]) for r in rows}) for rows in (before, after)
            )
            there, gone = counts_by_key
            changes = [abs(there[key] - gone[key]) for key in there.keys() | gone.keys()]
            return beyond(noise, [c for c in changes if c], "COUNT(DISTINCT)", part.in_all)
        if isinstance(part, AutoBounded):
            counts = [sum(int(r["n"]) for r in rows) for rows in (before, after)]
            most = part.rows * part.groups
            return [f"AUTO's rows move by {counts}"] if abs(counts[0] - counts[1]) > most else []
        assert isinstance(part, Quantiles | InverseSensitivity | Histogram), type(part)

        def histogram(rows: list[dict[str, Any]]) -> dict[Any, dict[Any, int]]:
            found: dict[Any, dict[Any, int]] = {}
            for row in rows:
                found.setdefault(group_of(row, part.keys), {})[row["value"]] = int(row["count"] or 0)
            return found

        return violations_of_part(part, histogram(before), histogram(after))

    def _rows(self, plan: Plan, block: PrivateBlock, query: str, most: int) -> list[str]:
        before, after = self.read(plan, block, f"SELECT COUNT(*) AS n FROM ({query}) AS counted")
        moved = abs(int(before[0]["n"]) - int(after[0]["n"]))
        return [f"{moved} rows of one unit count, not {most}"] if moved > most else []

    def _blocks(self, plan: Plan, block: PrivateBlock, operator: SubsampleAggregate) -> list[str]:
        (query, *_) = operator.source.queries
        before, after = self.read(plan, block, query)
        tables = [pa.Table.from_pylist(rows) if rows else pa.table({}) for rows in (before, after)]
        by_block: list[dict[Any, list[Any]]] = []
        for table in tables:
            found: dict[Any, list[Any]] = {}
            for row in table.to_pylist():
                number, *rest = row.values()
                found.setdefault(number, []).append(rest)
            by_block.append(found)
        changed = [
            b for b in by_block[0].keys() | by_block[1].keys() if by_block[0].get(b) != by_block[1].get(b)
        ]
        return [f"{len(changed)} blocks change"] if len(changed) > 1 else []


__all__ = ["FORMS", "NAMES", "Fraction", "Neighbours", "every_pair", "written"]
