"""Output columns that are cast without the engine: the same columns that it gives, and the same types."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.plan import Plan, Renamed
from tests.support import inside
from tests.support.small import open_small

INTEGERS = [0, 1, -1, 7, -(2**53), 2**53, 123456789, None]
DOUBLES = [0.0, -0.0, 0.5, -2.5, 1e300, float("inf"), float("nan"), None]
TABLES = {
    "int64": pa.table({"a": pa.array(INTEGERS, pa.int64())}),
    "no rows": pa.table({"a": pa.array([], pa.int64())}),
    "nothing": pa.table({"a": pa.array([None, None], pa.int64())}),
    "double": pa.table({"a": pa.array(DOUBLES, pa.float64())}),
}
CHAINS = [
    *((source, chain) for source in ("int64", "no rows", "nothing")
      for chain in (("HUGEINT",), ("DOUBLE",), ("HUGEINT", "DOUBLE"), ("HUGEINT", "HUGEINT", "DOUBLE"))),
    ("double", ("DOUBLE",)), ("double", ("DOUBLE", "DOUBLE")),
]  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    con, session = open_small()
    with con, session:
        yield session


@pytest.mark.parametrize(("source", "chain"), CHAINS)
def test_casts_are_the_engines(session: dpsql.Session, source: str, chain: tuple[str, ...]) -> None:
    table = TABLES[source]
    own = "DOUBLE" if pa.types.is_floating(table.schema.field("a").type) else "BIGINT"
    sql = "a"
    for kind in chain:
        sql = f"CAST({sql} AS {kind})"
    expected = inside.finisher(session).finish(f"SELECT {sql} AS b FROM released", {"released": table})
    found = Renamed("b", "a", (own, *chain)).read(table)
    assert found.type == expected.column("b").type
    assert list(map(repr, found.to_pylist())) == list(map(repr, expected.column("b").to_pylist()))


@pytest.mark.parametrize(
    ("values", "kind", "chain"),
    [
        ([2**53 + 1], pa.int64(), ("BIGINT", "DOUBLE")),
        ([-(2**63)], pa.int64(), ("BIGINT", "HUGEINT", "DOUBLE")),
        ([0.5], pa.float64(), ("DOUBLE", "HUGEINT")),
        ([1.0], pa.float64(), ("DOUBLE", "BIGINT")),
        ([1], pa.int64(), ("BIGINT", "VARCHAR")),
        (["1"], pa.string(), ("VARCHAR", "DOUBLE")),
        ([1.0], pa.float64(), ("DOUBLE", "DECIMAL(38, 2)", "DOUBLE")),
    ],
)
def test_the_engine_casts_what_may_round_or_fail(
    values: list[object], kind: pa.DataType, chain: tuple[str, ...]
) -> None:
    assert Renamed("b", "a", chain).read(pa.table({"a": pa.array(values, kind)})) is None


STATEMENTS = [
    "SELECT COUNT(*), COUNT(*), SUM(n), SUM(n + 1) AS s, SUM(b, contribution_bounds_per_row => (0, 5)) FROM t",
    "SELECT k, SUM(n) AS s, AVG(n) AS a, COUNT(*) AS c FROM t GROUP BY k",
    "SELECT SUM(n)::DOUBLE AS s, AVG(x)::DOUBLE AS a, COUNT(*)::HUGEINT AS c FROM t",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_no_sql_is_needed_for_names_and_casts(
    session: dpsql.Session, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns equal what the engine makes of the same release, in values and types."""
    plain = session.sql(text)
    read = Plan.direct
    met: list[bool] = []

    def direct(plan: Plan, relations: dict[str, pa.Table]) -> pa.Table | None:
        met.append(read(plan, relations) is not None)
        return None

    monkeypatch.setattr(Plan, "direct", direct)
    again = session.sql(text)  # of what is stored
    assert met == [True]
    assert again.table.equals(plain.table)
    assert again.table.schema.equals(plain.table.schema)
    assert again.intervals == plain.intervals


def test_what_types_alone_refuse_is_refused_before_it_is_paid(session: dpsql.Session) -> None:
    before = session.sql("SHOW BUDGET").dicts()
    with pytest.raises(dpsql.BindError, match="can't be cast"):
        session.sql("SELECT COUNT(*)::DATE FROM t")
    assert session.sql("SHOW BUDGET").dicts() == before
