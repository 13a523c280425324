"""No value of a Parquet file ends a query on Spark with an error: every expression over the extremes of its columns' types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.relation import Names
from dpsql.binding.values.total_expressions import make_total
from dpsql.errors import BindError, EngineError
from dpsql.language.dialect import parse_fragment, to_sql
from dpsql.policy.model import Budget, Policy, Table
from dpsql.spark.spark_engine import SparkEngine
from tests.support.spark import chosen

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAN, INFINITY = float("nan"), float("inf")
EXTREMES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.int64(), [-(2**63), 2**63 - 1, 0, -1]),
    "s": (pa.int16(), [-(2**15), 2**15 - 1, 0, -1]),
    "d": (pa.float64(), [1.7976931348623157e308, -1.7976931348623157e308, NAN, INFINITY, -INFINITY, 5e-324, -0.0, 2.0**63]),
    "f": (pa.float32(), [3.4028234e38, -3.4028234e38, NAN, INFINITY, -INFINITY, 1e-45, -0.0]),
    "c": (pa.decimal128(8, 2), [Decimal("999999.99"), Decimal("-999999.99"), Decimal("0.00"), Decimal("0.01")]),
    "whole": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0), Decimal(5 * 10**37)]),
    "part": (pa.decimal128(38, 38), [Decimal(f"0.{'9' * 38}"), Decimal(f"-0.{'9' * 38}"), Decimal(0)]),
    "x": (pa.string(), ["", "a\0b", "\U0010ffff", "%_\\", "e\u0301", "ß", "x" * 3000]),
    "day": (pa.date32(), [-(2**31), 2**31 - 1, -719162, -719163, 2932896, 2932897, -141428]),
    "w": (pa.timestamp("us"), [-(2**63), 2**63 - 1, -62135596800000000, 253402300799999999, 253402300800000000]),
    "ok": (pa.bool_(), [True, False]),
}  # fmt: skip
MORE = [
    "abs(whole)", "-whole", "whole + whole", "whole * whole", "whole // 2", "whole % 3", "whole / part", "b * whole", "whole - part",
    "part * part", "whole % part", "c % part", "whole % c", "sign(whole)", "c % c", "whole % whole", "part % c", "c // c", "whole // whole", "b % b", "b // b", "b // whole", "-part", "abs(part)", "round(whole)", "round(part)", "ceil(part)", "floor(part)", "round(b, -18)", "round(s, -4)", "round(c, -6)",
    "CAST(whole AS UBIGINT)", "CAST(whole AS DOUBLE)", "CAST(d AS HUGEINT)", "CAST(d AS DECIMAL(38,10))", "CAST(part AS DECIMAL(4,3))",
    "day + b", "day - b", "(day + 1000000) + 1000000", "strftime(day + 1000000, '%Y-%m-%d %A')", "last_day(day + 1000000)",
    "date_diff('second', w, day + 1000000)", "w + INTERVAL 999 YEAR", "date_trunc('week', w - INTERVAL 999 YEAR)",
]  # fmt: skip


def write_extremes(path: Path) -> None:
    """Write rows with each extreme in turn, beside plain values and beside other extremes."""
    count = max(len(values) for _, values in EXTREMES.values())
    columns = {}
    for name, (kind, values) in EXTREMES.items():
        alone = [values[0] if other == name else None for other, (_, each) in EXTREMES.items() for _ in each]
        cycled = itertools.islice(itertools.cycle(values), 2 * count)
        columns[name] = pa.array([*cycled, *alone], kind)
    pq.write_table(pa.table({"id": pa.array(range(len(columns["b"]))), **columns}), path)


class Opened:
    """An engine over one Parquet file, and the names of its table."""

    def __init__(self, spark: Any, path: Path) -> None:
        policy = Policy(Budget(1), {"t": Table("t", privacy_unit="ROW", source=path.name)})
        self.engine = SparkEngine(spark, policy, path.parent)
        self.names = Names((Catalog(policy, self.engine, "basic").relation(policy.tables["t"], "t", "t"),))

    def ask(self, *texts: str) -> pa.Table:
        (relation,) = self.names.relations
        items = []
        for i, text in enumerate(texts):
            typed = make_total(parse_fragment(f"SELECT {text}").expressions[0].unalias(), self.names)
            items.append(f"({to_sql(typed.node)}) AS v{i}")
        query = f"SELECT {', '.join(items)} FROM {to_sql(relation.source)}"
        self.engine.check(query, {})
        return self.engine.execute(query)


@pytest.fixture(scope="module")
def opened(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    path = tmp_path_factory.mktemp("extremes") / "t.parquet"
    write_extremes(path)
    found = Opened(spark, path)
    yield found
    found.engine.close()


@pytest.mark.parametrize("start", range(0, len([*chosen("equal"), *MORE]), 48))
def test_no_extreme_ends_a_query(opened: Opened, start: int) -> None:
    texts = [*chosen("equal"), *MORE][start : start + 48]
    assert opened.ask(*texts).num_columns == len(texts)


def test_an_error_would_be_seen(opened: Opened) -> None:
    """The control: one function without its rewrite."""
    query = f"SELECT b + b AS v FROM {opened.engine.relation(opened.engine.policy.tables['t'])} AS t"
    with pytest.raises(EngineError):
        opened.engine.execute(query)


@pytest.mark.parametrize("text", ["round(whole, -1)", "round(whole, -37)"])
def test_spark_can_not_round_all_numbers_to_tens(opened: Opened, text: str) -> None:
    with pytest.raises(BindError, match="to tens"):
        opened.ask(text)


def test_other_texts_than_utf8_are_missing(spark: Any, tmp_path: Path) -> None:
    """Python can't read them, so a released group would end a statement."""
    given = pa.array([b"a", b"\xff\xfe"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, given.buffers())
    pq.write_table(pa.table({"x": texts, "listed": pa.array([["a"], None])}), tmp_path / "t.parquet")
    assert Opened(spark, tmp_path / "t.parquet").ask("x")["v0"].to_pylist() == ["a", None]


def test_times_that_spark_fails_to_read_are_left_out(spark: Any, tmp_path: Path) -> None:
    """Spark makes microseconds of milliseconds, and ends a query at one that overflows."""
    far = pa.array([0, 2**63 - 1], pa.timestamp("ms"))
    pq.write_table(pa.table({"id": [1, 2], "Far": far, "near": far.cast(pa.int64())}), tmp_path / "t.parquet")
    opened = Opened(spark, tmp_path / "t.parquet")
    assert [*opened.engine.schema(opened.engine.policy.tables["t"])] == ["id", "near"]
    assert opened.ask("id", "near").num_rows == 2
