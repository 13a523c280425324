"""Spark against DuckDB: every corpus statement's exact queries, expressions over nasty values, whole sessions."""

from __future__ import annotations

import dataclasses
import datetime
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.relation import Names
from dpsql.binding.values.total_expressions import make_total
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import BindError, EngineError, PolicyError
from dpsql.language.dialect import parse_fragment, to_sql
from dpsql.policy.model import Budget, Policy, Table
from dpsql.spark.spark_engine import SparkEngine
from tests.support import inside
from tests.support.both import Both, assert_same
from tests.support.nights import CLOSED, FIRST, TOTALS, write_day
from tests.support.spark import NASTY, SPENT, Pair, chosen, fill, share

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pair(spark: Any) -> Iterator[Pair]:
    with duckdb.connect() as con:
        fill(con)
        share(spark, con)
        with dpsql.connect(spark, policy=SPENT) as session:
            engine = inside.engine(session)
            assert isinstance(engine, SparkEngine)
            yield Pair(session, Both(DuckDBEngine(con, SPENT, Path()), engine))


def test_a_query_that_differs_is_seen(pair: Pair) -> None:
    """The control: one row more on one side."""
    other = pa.table({"n": [1, 2]})
    with pytest.raises(AssertionError):
        assert_same(other, other.slice(0, 1))
    with pytest.raises(AssertionError):
        assert_same(other, pa.table({"n": [1, 3]}))
    with pytest.raises(AssertionError):
        assert_same(other, pa.table({"n": pa.array([1, 2], pa.int32())}))


# -- expressions ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Nasty:
    both: Both
    names: Names

    @property
    def spark(self) -> SparkEngine:
        return self.both.there

    def answers(self, query: str) -> tuple[pa.Table, pa.Table]:
        both = self.both
        return both.here.execute(both.ours(query)), both.there.execute(query)

    def query(self, expressions: list[str]) -> str:
        items = []
        for i, text in enumerate(expressions):
            typed = make_total(parse_fragment(f"SELECT {text}").expressions[0].unalias(), self.names)
            items.append(f"({to_sql(typed.node)}) AS v{i}")
        (relation,) = self.names.relations
        return f"SELECT {to_sql(relation.fields[0].typed.node)} AS id, {', '.join(items)} FROM {to_sql(relation.source)}"


@pytest.fixture(scope="module")
def nasty(spark: Any) -> Iterator[Nasty]:
    policy = Policy(Budget(1), {"t": Table("t", privacy_unit="ROW")})
    with duckdb.connect() as con:
        con.execute(NASTY)
        share(spark, con)
        engine = SparkEngine(spark, policy, Path())
        here = DuckDBEngine(con, policy, Path())
        catalog = Catalog(policy, engine, "basic")
        yield Nasty(Both(here, engine), Names((catalog.relation(policy.tables["t"], "t", "t"),)))
        engine.close()


@pytest.mark.parametrize("text", chosen("refused"))
def test_what_has_no_equal_is_refused_by_name(nasty: Nasty, text: str) -> None:
    with pytest.raises(BindError, match=r"Spark has no equivalent of"):
        nasty.spark.check(nasty.query([text]), {})


def test_an_order_is_written_out(nasty: Nasty) -> None:
    table = nasty.spark.relation(nasty.spark.policy.tables["t"])
    for column in ("d", "x", "day", "b"):
        for direction in ("", " DESC"):
            query = (
                f"SELECT id, ROW_NUMBER() OVER (PARTITION BY ok ORDER BY {column}{direction}, id) AS n "
                f"FROM {table} AS t ORDER BY {column}{direction}, id"
            )
            mine, theirs = nasty.answers(query)
            assert mine.to_pylist() == theirs.to_pylist()


# -- the engine -------------------------------------------------------------------------------------------------


def test_schema_and_bindings(pair: Pair) -> None:
    engine = pair.read.there
    assert dict(engine.schema(SPENT.tables["bids"])) == {"bid": "DECIMAL(8,2)", "item": "VARCHAR"}
    table = engine.relation(SPENT.tables["visits"])
    with pytest.raises(BindError):
        engine.check(f"SELECT hidden FROM {table}", {})
    with pytest.raises(BindError, match="there is no relation"):
        engine.translate("SELECT * FROM hidden", {})
    # tables: new in each session
    assert engine.version() != SparkEngine(engine._given, SPENT, Path()).version()


def test_an_error_over_private_rows_says_nothing(nasty: Nasty) -> None:
    table = nasty.spark.relation(nasty.spark.policy.tables["t"])
    with pytest.raises(EngineError) as caught:
        nasty.spark.execute(f"SELECT b * b AS v FROM {table} AS t")
    assert "withheld" in str(caught.value)
    assert "9223372036854775807" not in repr(caught.value.__context__)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert nasty.spark.execute(f"SELECT COUNT(*) AS n FROM {table} AS t")["n"][0].as_py() == 12


def test_lent_relations(pair: Pair) -> None:
    engine = pair.read.there
    lent = pa.table(
        {
            "h": pa.array([10**30, None, -5], pa.decimal128(38, 0)),
            "u": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "t": pa.array([0, 1, None], pa.timestamp("us")),
            "x": pa.array(["a", "b", None]).dictionary_encode(),
            "l": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
        }
    )
    query = "SELECT h, u, t, x, len(l) AS l FROM lent WHERE h IS NULL OR h > 0"
    assert_same(pair.read.here.execute(query, {"lent": lent}), engine.execute(query, {"lent": lent}))
    with pytest.raises(EngineError):
        engine.execute(query)  # it is forgotten


def test_a_result_in_parts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.spark.spark_engine.ROWS_PER_BATCH", 100)
    engine = pair.read.there
    query = "SELECT n, n % 7 AS k FROM lent"
    lent = {"lent": pa.table({"n": range(1000)})}
    parts = list(engine.batches(query, lent))
    assert len(parts) == 10
    assert all(0 < part.num_rows < 250 for part in parts)
    assert_same(pa.concat_tables(parts), pair.read.here.execute(query, lent))


def test_the_stop_button(pair: Pair) -> None:
    engine = pair.read.there
    slow = "SELECT COUNT(*) AS n FROM range(2000000) AS a(i) CROSS JOIN range(2000000) AS b(j) WHERE a.i % 97 = b.j % 89"
    timer = threading.Timer(3, engine.interrupt)
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.execute(slow)
    assert time.monotonic() - start < 60
    assert engine.execute("SELECT COUNT(*) AS n FROM range(3) AS a(i)")["n"][0].as_py() == 3


def test_the_callers_session_is_left_alone(spark: Any, pair: Pair) -> None:
    assert spark.conf.get("spark.sql.decimalOperations.allowPrecisionLoss", "true") == "true"
    assert not [t.name for t in spark.catalog.listTables() if t.name.startswith("dpsql_source")]


def test_collations_do_not_make_one_person_of_two(spark: Any) -> None:
    spark.sql(
        "SELECT collate(x, 'UTF8_LCASE') AS who FROM VALUES ('ann'), ('ANN') AS t(x)"
    ).createOrReplaceTempView("people")
    policy = Policy(Budget(1000), {"people": Table("people", privacy_unit="who", max_rows=1)})
    engine = SparkEngine(spark, policy, Path())
    table = engine.relation(policy.tables["people"])
    assert engine.execute(f"SELECT COUNT(DISTINCT who) AS n FROM {table} AS p")["n"][0].as_py() == 2
    engine.close()


def test_parquet_and_what_is_missing(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"who": [1, 2, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"who": [3]}), tmp_path / "b.parquet")
    policy = Policy(Budget(1), {"p": Table("p", privacy_unit="who", source="*.parquet")})
    engine, again = (SparkEngine(spark, policy, tmp_path) for _ in range(2))
    found = engine.execute(f"SELECT COUNT(*) AS n FROM {engine.relation(policy.tables['p'])} AS p")
    assert found["n"][0].as_py() == 4
    assert engine.version() == again.version()
    assert engine.dataset == again.dataset
    for source, said in (
        ("c.parquet", "does not exist"),
        ("a.csv", "not Parquet"),
        ("nobody", "does not have"),
    ):
        with pytest.raises(PolicyError, match=said):
            SparkEngine(
                spark, Policy(Budget(1), {"p": Table("p", privacy_unit="who", source=source)}), tmp_path
            )


def test_salted_choices_are_independent(pair: Pair) -> None:
    """Blocks under two salts, as the plans write them: a contingency table without a pattern. A hash that takes the salt
    in beside the unit, without a mix in between, has one."""
    engine, n, m = pair.read.there, 40_000, 8

    def joint(block: str) -> Counter[tuple[int, int]]:
        query = (
            f"SELECT a, b, COUNT(*) AS n FROM (SELECT {block.format(salt=12345678901234567)} AS a, "
            f"{block.format(salt=7654321)} AS b FROM range({n}) AS r(i)) AS t GROUP BY a, b"
        )
        rows = engine.execute(query).to_pylist()
        return Counter({(int(row["a"]), int(row["b"])): row["n"] for row in rows})

    def chi_square(found: Counter[tuple[int, int]]) -> float:
        expected = n / m**2
        return sum((found[a, b] - expected) ** 2 / expected for a in range(m) for b in range(m))

    good = chi_square(joint(f"CAST(hash(xor(hash(r.i), {{salt}})) % {m} AS INTEGER)"))
    assert good < 130, "chi-square of 63 degrees of freedom: 130 is beyond one in a hundred thousand"
    assert chi_square(joint(f"CAST(xor(hash(r.i), {{salt}}) % {m} AS INTEGER)")) > 1000


def test_rows_that_look_different_have_different_hashes(pair: Pair) -> None:
    """Also where something is missing or a list ends: Spark's hash passes over both, and the first rows of a unit would be
    those that arrive first."""
    numbers = pa.table({"a": [None, 1, 1, None, 1], "b": [1, None, 1, None, 0]})
    nothing, text, number = None, pa.string(), pa.int64()
    lists = [
        (["a"], ["b"]),
        (["a", "b"], []),
        ([], ["a", "b"]),
        (["a", nothing], ["b"]),
        (["a"], ["b", nothing]),
        (["a"], nothing),
    ]
    deep = [
        ([[1], [2]], 1),
        ([[1, 2], []], 1),
        ([[], [1, 2]], 1),
        ([[1], [2, nothing]], 1),
        ([[1, 2]], 1),
        ([nothing, [1, 2]], 1),
    ]
    for table in (
        numbers,
        pa.table({"a": pa.array([a for a, _ in lists], pa.list_(text)), "b": pa.array([b for _, b in lists], pa.list_(text))}),
        pa.table({"a": pa.array([a for a, _ in deep], pa.list_(pa.list_(number))), "b": [b for _, b in deep]}),
    ):  # fmt: skip
        query = "SELECT COUNT(DISTINCT hash(t.a, t.b)) AS n FROM lent AS t"
        assert pair.read.there.execute(query, {"lent": table})["n"][0].as_py() == table.num_rows


# -- whole sessions ---------------------------------------------------------------------------------------------


def test_what_is_refused_costs_nothing(pair: Pair) -> None:
    before = str(pair.session.budget().spent)
    with pytest.raises(BindError, match="REGEXP"):
        pair.session.sql("SELECT COUNT(*) FROM visits WHERE regexp_matches(note, 'a+')")
    assert str(pair.session.budget().spent) == before


# -- growing data ---------------------------------------------------------------------------------------------------

WHOLE = "".join(
    line + "\n"
    for line in CLOSED.splitlines()
    if not line.startswith(("per_", "privacy_p", "closed", "data_"))
).replace("max_rows = 40\n", "max_rows = 40\ncolumns.day.bounds = [2024-01-30, 2024-02-28]\n")
"""The same tables, with whole units protected."""


def test_a_release_over_files_that_are_added_is_refreshed(spark: Any, tmp_path: Path) -> None:
    """A pattern names the data in the ledger, not its files of one day."""
    policy = Policy.loads(WHOLE, base=tmp_path)
    totals = TOTALS.replace("TREE", "TREE, epsilon = 1e6")
    for number, said in enumerate((f"CREATE RELEASE totals AS {totals}", "REFRESH RELEASE totals"), start=1):
        for day in range(2 * number):
            write_day(tmp_path, day)
        with dpsql.connect(spark, policy=policy, ledger=tmp_path / "l.ledger") as session:
            session.sql(said)
            shown = [row["t"] for row in session.sql("SELECT t FROM totals ORDER BY day").dicts()]
            assert shown == [min(day, 2 * number) * 20 for day in range(1, 31)]
            assert len([entry for entry in session.ledger() if entry.event is not None]) == number
            assert session.sql("REFRESH RELEASE totals").loss == "no charge"


def test_periods_are_refused_before_a_charge(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree over growing time has parts of periods, which Spark's queries do not have."""
    write_day(tmp_path, 0)
    monkeypatch.setattr(dpsql.Policy, "today", FIRST + datetime.timedelta(days=1))
    with dpsql.connect(spark, policy=Policy.loads(CLOSED, base=tmp_path)) as session:
        for text in (TOTALS, f"CREATE RELEASE totals AS {TOTALS}", f"EXPLAIN {TOTALS}"):
            with pytest.raises(
                PolicyError, match="visits has a privacy period, which only DuckDB"
            ) as refused:
                session.sql(text)
            assert "query DuckDB instead" in str(refused.value.hint)
        assert session.ledger() == []
