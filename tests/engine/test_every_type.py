"""Every type of Arrow, pandas and polars through ``connect``: an answer, or an error that names the column."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

import dpsql
from tests.support.fixtures import open_session
from tests.support.policies import budget, table, write_policy

pd = pytest.importorskip("pandas")

BARE = write_policy(budget(1e9, 0.1, 1e6, 1e-6, accountant=None), t=table("uid", None, 5, {"max_rows": 5}))
N = 12
DAY, MOMENT = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 10)
HALVES = [[np.float16(1)]] * N
Make = Callable[[], Any]


def dictionary(words: pa.Array, ordered: bool = False) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 0] * 6), words, ordered=ordered)


def union(made: Any, *places: pa.Array) -> pa.Array:
    return made(pa.array([0] * N, pa.int8()), *places, [pa.array(range(N)), pa.array(["x"] * N)])


_UNITS = ("s", "ms", "us", "ns")
_POLARS_UNITS: Any = _UNITS[1:]
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
ARROW: dict[str, Make] = {
    "null": lambda: pa.nulls(N),
    "bool": lambda: pa.array([True, None] * 6),
    **{str(t): lambda t=t: pa.array([1, None, 3] * 4, t) for t in (*_WHOLE, pa.float32(), pa.float64())},  # type: ignore[misc]
    "half": lambda: pa.array(np.ones(N, np.float16)),
    "date32": lambda: pa.array([DAY] * N, pa.date32()),
    "date64": lambda: pa.array([DAY] * N, pa.date64()),
    **{f"time32 {u}": lambda u=u: pa.array([1] * N, pa.time32(u)) for u in _UNITS[:2]},  # type: ignore[misc]
    **{f"time64 {u}": lambda u=u: pa.array([1] * N, pa.time64(u)) for u in _UNITS[2:]},  # type: ignore[misc]
    **{f"timestamp {u}": lambda u=u: pa.array([1] * N, pa.timestamp(u)) for u in _UNITS},  # type: ignore[misc]
    **{f"zoned {u}": lambda u=u: pa.array([1] * N, pa.timestamp(u, "Europe/Berlin")) for u in _UNITS},  # type: ignore[misc]
    **{f"duration {u}": lambda u=u: pa.array([1] * N, pa.duration(u)) for u in _UNITS},  # type: ignore[misc]
    "months": lambda: pa.array([pa.MonthDayNano([1, 2, 3])] * N, pa.month_day_nano_interval()),
    "decimal128": lambda: pa.array([decimal.Decimal("1.5")] * N, pa.decimal128(30, 2)),
    "decimal256": lambda: pa.array([decimal.Decimal("1.5")] * N, pa.decimal256(60, 2)),
    "hundreds": lambda: pa.array([decimal.Decimal(100)] * N, pa.decimal128(5, -2)),
    "string": lambda: pa.array(["a", None] * 6),
    "large_string": lambda: pa.array(["a", None] * 6, pa.large_string()),
    "string_view": lambda: pa.array(["a", None] * 6, pa.string_view()),
    "binary": lambda: pa.array([b"a", None] * 6),
    "large_binary": lambda: pa.array([b"a", None] * 6, pa.large_binary()),
    "binary_view": lambda: pa.array([b"a", None] * 6, pa.binary_view()),
    "fixed binary": lambda: pa.array([b"abcd"] * N, pa.binary(4)),
    "list": lambda: pa.array([[1], None] * 6),
    "large_list": lambda: pa.array([[1], None] * 6, pa.large_list(pa.int64())),
    "fixed list": lambda: pa.array([[1, 2]] * N, pa.list_(pa.int64(), 2)),
    "list_view": lambda: pa.array([[1], None] * 6, pa.list_view(pa.int64())),
    "struct": lambda: pa.array([{"a": 1}] * N),
    "empty struct": lambda: pa.array([{}] * N, pa.struct([])),
    "map": lambda: pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
    "map of nothing": lambda: pa.array([None] * N, pa.map_(pa.string(), pa.int64())),
    "sparse union": lambda: union(pa.UnionArray.from_sparse),
    "dense union": lambda: union(pa.UnionArray.from_dense, pa.array(range(N), pa.int32())),
    "words": lambda: pa.array(["a", "b"] * 6).dictionary_encode(),
    "ordered words": lambda: dictionary(pa.array(["lo", "hi"]), ordered=True),
    "numbers as words": lambda: pa.array([1, 2] * 6).dictionary_encode(),
    "lists as words": lambda: dictionary(pa.array([[1]])),
    "structs as words": lambda: dictionary(pa.array([{"a": 1.5}])),
    "moments as words": lambda: dictionary(pa.array([1], pa.timestamp("us", "UTC"))),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([4, N], pa.int32()), pa.array([1, 2])),
    "uuid": lambda: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * N, pa.binary(16))),
    "json": lambda: pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'] * N)),
    "bool8": lambda: pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1] * N, pa.int8())),
    "opaque": lambda: pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), pa.array([1] * N)),
    "halves in lists": lambda: pa.array(HALVES, pa.list_(pa.float16())),
    "wide decimals in lists": lambda: pa.array([[decimal.Decimal(1)]] * N, pa.list_(pa.decimal256(50, 2))),
    "moments in lists": lambda: pa.array([[1]] * N, pa.list_(pa.timestamp("us", "UTC"))),
}  # fmt: skip
for _name, _reads in {
    "json": hasattr(pa, "json_"),  # since pyarrow 19
    "empty struct": duckdb.__version__ >= "2",  # DuckDB 1.5 does not read them
}.items():
    if not _reads:
        del ARROW[_name]


def days(**more: Any) -> Any:
    return pd.date_range("2024", periods=N, **more)


def objects(value: Any) -> Any:
    made = np.empty(N, object)
    made[:] = [value] * N
    return made


PANDAS: dict[str, Make] = {
    **{t: lambda t=t: pd.array([1, None] * 6, t) for t in ("Int8", "UInt64", "Float32", "Float64")},  # type: ignore[misc]
    "boolean": lambda: pd.array([True, None] * 6, "boolean"),
    "string": lambda: pd.array(["a", None] * 6, "string"),
    "category": lambda: pd.Categorical(["a", "b"] * 6),
    "category, ordered": lambda: pd.Categorical(["lo", "hi"] * 6, ["lo", "hi"], ordered=True),
    "category of integers": lambda: pd.Categorical([1, 2] * 6),
    "category of floats": lambda: pd.Categorical([1.5, 2] * 6),
    "category of dates": lambda: pd.Categorical(days()),
    "category of moments": lambda: pd.Categorical(days(tz="UTC")),
    "category of intervals": lambda: pd.cut(range(N), 3),
    "category of periods": lambda: pd.Categorical(pd.period_range("2024-01", periods=N, freq="M")),
    "category of objects": lambda: pd.Categorical([1, "a"] * 6),
    "sparse integers": lambda: pd.arrays.SparseArray([0, 1] * 6),
    "sparse floats": lambda: pd.arrays.SparseArray([0.5, np.nan] * 6),
    "sparse booleans": lambda: pd.arrays.SparseArray([True, False] * 6),
    "periods": lambda: pd.period_range("2024-01", periods=N, freq="M"),
    "intervals": lambda: pd.IntervalIndex.from_breaks(range(N + 1)),
    "intervals of moments": lambda: pd.IntervalIndex.from_breaks(pd.date_range("2024", periods=N + 1, tz="UTC")),
    "datetime": days,
    "datetime of seconds": lambda: days().as_unit("s"),
    "datetime with a zone": lambda: days(tz="Europe/Berlin"),
    "timedelta": lambda: pd.timedelta_range("1h", periods=N),
    "objects": lambda: np.array([1, "a"] * 6, object),
    "decimals": lambda: objects(decimal.Decimal(1)),
    "lists": lambda: objects([1]),
    "sets": lambda: objects({1}),
    "half": lambda: np.ones(N, np.float16),
    "long double": lambda: np.ones(N, np.longdouble),
    "complex": lambda: np.ones(N, complex),
    "bytes": lambda: np.array([b"a"] * N),
    "Arrow's wide decimals": lambda: pd.array([decimal.Decimal(1)] * N, pd.ArrowDtype(pa.decimal256(50, 2))),
    "Arrow's lists": lambda: pd.array([[1]] * N, pd.ArrowDtype(pa.list_(pa.int64()))),
    "Arrow's halves": lambda: pd.array([1] * N, pd.ArrowDtype(pa.float16())),
}  # fmt: skip
if pd.__version__ < "3":  # which has no Arrow type for these two
    del PANDAS["category of periods"], PANDAS["intervals of moments"]


def polars_types() -> dict[str, Any]:
    try:
        import polars as pl
    except ImportError:
        return {}
    names = [
        *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128)),
        "Float16",
        "Float32",
        "Float64",
    ]
    names += ["Boolean", "String", "Binary", "Date", "Time", "Categorical", "Null", "Object"]
    made = {name: getattr(pl, name) for name in names if hasattr(pl, name)}
    made |= {f"Datetime {u}": pl.Datetime(u) for u in _POLARS_UNITS} | {
        f"Duration {u}": pl.Duration(u) for u in _POLARS_UNITS
    }
    made |= {
        "zoned": pl.Datetime("us", "Asia/Tokyo"),
        "Decimal": pl.Decimal(38, 2),
        "Enum": pl.Enum(["a", "b"]),
    }
    made |= {"List": pl.List(pl.Int64), "Array": pl.Array(pl.Int64, 2), "Struct": pl.Struct({"a": pl.Int64})}
    return made | {"List of Int128": pl.List(pl.Int128), "List of words": pl.List(pl.Categorical)}


POLARS = polars_types()
_VALUES: dict[str, Any] = {
    "Boolean": True, "String": "a", "Binary": b"a", "Date": DAY, "Time": datetime.time(1), "Categorical": "a", "Enum": "a",
    "Null": None, "Object": {1}, "Decimal": decimal.Decimal("1.5"), "List": [1], "Array": [1, 2], "Struct": {"a": 1},
    "List of Int128": [1], "List of words": ["a"], "zoned": MOMENT,
}  # fmt: skip


def value_of(kind: str) -> Any:
    if kind.startswith(("Datetime", "Duration")):
        return MOMENT if kind.startswith("Datetime") else datetime.timedelta(1)
    return _VALUES.get(kind, 1)


REFUSED = {
    "hundreds", "sparse union", "dense union", "halves in lists", "wide decimals in lists", "objects",
    "decimals", "lists", "sets", "complex", "Object", "List of Int128",
}  # fmt: skip
"""Types that no engine reads, and objects without a declared type."""


def check(frame: Any, kind: str, missing: int) -> None:
    policy = dpsql.Policy.loads(BARE)
    if kind in REFUSED:
        with pytest.raises(dpsql.PolicyError, match=r"\bx\b"):
            dpsql.connect({"t": frame}, policy=policy)
        return
    with dpsql.connect({"t": frame}, policy=policy) as session:
        text = (
            "SELECT COUNT(x), COUNT(*) FILTER (WHERE x IS NULL), COUNT(*) FILTER (WHERE x IS NOT NULL) FROM t"
        )
        assert session.sql(text).fetchone() == (N - missing, missing, N - missing)
        try:
            session.sql("SELECT x, COUNT(*) FROM t GROUP BY x")
        except dpsql.EngineError:
            raise
        except dpsql.Error as error:
            assert "x" in str(error)


@pytest.mark.parametrize("kind", ARROW)
def test_arrow(kind: str) -> None:
    column = ARROW[kind]()
    check(pa.table({"uid": range(N), "x": column}), kind, sum(v is None for v in column.to_pylist()))


@pytest.mark.parametrize("kind", PANDAS)
def test_pandas(kind: str) -> None:
    frame = pd.DataFrame({"uid": range(N)})
    frame["x"] = PANDAS[kind]()
    check(frame, kind, int(frame["x"].isna().sum()))


@pytest.mark.parametrize("kind", POLARS)
def test_polars(kind: str) -> None:
    import polars as pl

    values = [value_of(kind)] * N if kind == "Object" else [value_of(kind), None] * 6
    frame = pl.DataFrame({"uid": range(N)}).with_columns(x=pl.Series("x", values, dtype=POLARS[kind]))
    check(frame, kind, N if kind == "Null" else 0 if kind == "Object" else 6)


def test_128_bits_of_polars_that_no_decimal_has_are_null() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"uid": range(3), "x": pl.Series([5, 2**127 - 1, -7], dtype=pl.Int128)})
    with dpsql.connect({"t": frame}, policy=dpsql.Policy.loads(BARE)) as session:
        query = "SELECT COUNT(x), COUNT(*) FILTER (WHERE x = 5), COUNT(*) FILTER (WHERE x < 0) FROM t"
        assert session.sql(query).fetchone() == (2, 1, 1)


def test_values_of_unknown_types_are_counted_in_databases_too() -> None:
    with open_session(
        BARE,
        "CREATE TABLE t AS SELECT i AS uid, CASE WHEN i < 7 THEN 'a'::BLOB END AS x, MAP {'a': i} AS y FROM range(12) r(i)",
    ) as session:
        assert session.sql(
            "SELECT COUNT(x), COUNT(y), COUNT(*) FILTER (WHERE (x) IS NULL) FROM t"
        ).fetchone() == (7, 12, 5)
        grouped = "SELECT x IS NULL AS k, COUNT(*) FROM t GROUP BY k ORDER BY k"
        assert session.sql(grouped).fetchall() == [(False, 7), (True, 5)]
        for refused in (
            "COUNT(DISTINCT x)",
            "COUNT(x || x)",
            "COUNT(*) FILTER (WHERE x = x)",
            "COUNT(x IS TRUE)",
        ):
            with pytest.raises(dpsql.Error, match=r"x is of type BLOB"):
                session.sql(f"SELECT {refused} FROM t")


LABELS = ["low", "mid", "high"]
ORDER: dict[str, list[tuple[Any, ...]]] = {
    "SELECT x FROM g ORDER BY x": [("low",), ("mid",), ("high",)],
    "SELECT x FROM g ORDER BY x DESC LIMIT 1": [("high",)],
    "SELECT MIN(x), MAX(x), arg_max(x, n) FROM g": [("low", "high", "high")],
    "SELECT x, SUM(n) OVER (ORDER BY x) AS s FROM g ORDER BY x": [("low", 200), ("mid", 400), ("high", 600)],
    "SELECT list(x ORDER BY x) FROM g": [(LABELS,)],
    "SELECT COUNT(*) FROM g WHERE x IS NOT NULL": [(3,)],
}
"""Statements above the groups g of x."""


def ordered(kind: str, folder: Path) -> tuple[Any, str]:
    """Return a database with the table t of 300 people, whose x has the labels in their order; and its source."""
    query = "SELECT i // 2 AS uid, (['low', 'mid', 'high'][i % 3 + 1])::ENUM('low', 'mid', 'high') AS x FROM range(600) r(i)"
    units, values = [i // 2 for i in range(600)], [LABELS[i % 3] for i in range(600)]
    words = pa.array(LABELS)
    arrow = pa.DictionaryArray.from_arrays(
        pa.array([i % 3 for i in range(600)], pa.int8()), words, ordered=True
    )
    table = pa.table({"uid": units, "x": arrow})
    if kind.endswith("ENUM"):
        con = duckdb.connect(str(folder / "t.duckdb") if kind == "a file's ENUM" else ":memory:")
        con.execute(f"CREATE TABLE t AS {query}")
        if kind == "ENUM":
            return con, ""
        con.close()
        return str(folder / "t.duckdb"), ""
    if kind.startswith("."):
        pyarrow.feather.write_feather(table, str(folder / f"t{kind}"))
        return ":memory:", f"source = '{folder}/t{kind}'\n"
    if kind == "polars":
        pl = pytest.importorskip("polars")
        return {"t": pl.DataFrame({"uid": units, "x": pl.Series(values, dtype=pl.Enum(LABELS))})}, ""
    if kind == "ordered categories":
        return {"t": pd.DataFrame({"uid": units, "x": pd.Categorical(values, LABELS, ordered=True)})}, ""
    return {"t": table}, ""


@pytest.mark.parametrize(
    "kind", ["ENUM", "a file's ENUM", "ordered categories", "polars", "arrow", ".arrow", ".feather"]
)
def test_enumerations_keep_their_order(kind: str, tmp_path: Path) -> None:
    data, source = ordered(kind, tmp_path)
    policy = BARE.replace("[tables.t]\n", f"[tables.t]\n{source}")
    with dpsql.connect(data, policy=dpsql.Policy.loads(policy)) as session:
        grouped = "SELECT x, COUNT(*) AS n FROM t GROUP BY x"
        for text, expected in ORDER.items():
            assert session.sql(f"WITH g AS ({grouped}) {text}").fetchall() == expected, text
        assert [row[0] for row in session.sql(f"{grouped} ORDER BY x").fetchall()] == LABELS
        counts = "SELECT COUNT(x), COUNT(*) FILTER (WHERE x IS NULL), COUNT(DISTINCT x) FROM t"
        assert session.sql(counts).fetchone() == (600, 0, 3)


def test_times_of_nanoseconds_are_times(tmp_path: Path) -> None:
    """As polars writes them."""
    bounds = "columns.x.bounds = [08:00:00, 09:00:00]"
    policy = dpsql.Policy.loads(
        f"budget.epsilon = 1e9\n[tables]\nt.privacy_unit = 'u'\nt.max_rows = 1\nt.{bounds}\n"
        f"t.source = '{tmp_path / 't.parquet'}'"
    )
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS u, CAST(TIME '08:00' + to_minutes(i % 3) AS TIME_NS) AS x FROM range(90) r(i)"
        )
        con.execute(f"COPY t TO '{tmp_path / 't.parquet'}'")
    with dpsql.connect(policy=policy) as session:
        asked = "SELECT WITH DP OPTIONS (epsilon = 1e7) COUNT(DISTINCT x), COUNT(*) FILTER (WHERE x > '08:00:30') FROM t"
        assert session.sql(asked.replace("COUNT(DISTINCT x)", "COUNT(x)")).fetchall() == [(90, 60)]
        keys = "SELECT WITH DP OPTIONS (epsilon = 1e7) hour(x) AS h, COUNT(*) FROM t GROUP BY h ORDER BY 2 DESC LIMIT 1"
        assert session.sql(keys).fetchall() == [(8, 90)]


@pytest.mark.parametrize("value", ["i::BIT", "(TIME '08:00' + to_minutes(i))::TIMETZ"])
def test_a_unit_of_a_type_without_a_proof_is_refused(value: str) -> None:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT {value} AS u FROM range(9) r(i)")
        policy = dpsql.Policy.loads("budget.epsilon = 1\ntables.t = { privacy_unit = 'u', max_rows = 1 }")
        with (
            dpsql.connect(con, policy=policy) as session,
            pytest.raises(dpsql.PolicyError, match="is the privacy unit"),
        ):
            session.sql("SELECT COUNT(*) FROM t")
