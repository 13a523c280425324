"""Result: plain data with DuckDB's names and DuckDB's types."""

from __future__ import annotations

import builtins
import datetime
import decimal
import pickle
import tracemalloc
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dpsql.binding.plan import IntervalColumns
from dpsql.errors import Error
from dpsql.session.result import Result

QUERY = """
    SELECT * FROM (VALUES
        (1, 170141183460469231731687303715884105727::HUGEINT, 5::HUGEINT, 1.25::DECIMAL(10, 2), 'a', TRUE,
         DATE '2020-02-29', TIMESTAMP '2020-01-01 01:02:03', 0.5, [1, 2], INTERVAL 3 DAY),
        (NULL, NULL, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
    ) t(i, huge, whole, dec, txt, flag, day, moment, num, list, span)"""


@pytest.fixture
def result() -> Result:
    with duckdb.connect() as con:
        return Result(con.sql(QUERY).to_arrow_table())


def test_fetchall_gives_what_duckdb_gives(result: Result) -> None:
    with duckdb.connect() as con:
        expected = con.execute(QUERY).fetchall()
    assert result.fetchall() == expected
    assert [type(v) for v in result.fetchall()[0]] == [type(v) for v in expected[0]]
    assert result.fetchone() == expected[0]
    assert result.dicts() == [dict(zip(result.columns, row, strict=True)) for row in expected]
    assert result.shape == (2, 11)
    assert len(result) == 2


def test_frames_have_duckdbs_types(result: Result) -> None:
    with duckdb.connect() as con:
        expected = con.execute(QUERY).df()
    ours = result.df()
    different = {c for c in expected if ours[c].dtype != expected[c].dtype}
    exact_here = {"whole"}  # a HUGEINT that fits 64 bits: DuckDB makes it a float
    if duckdb.__version__.startswith("1."):
        exact_here |= {"i", "flag"}  # DuckDB 1 makes integers with NULLs floats
    assert different <= exact_here
    assert ours["whole"].dtype == np.int64
    assert list(ours["whole"]) == [5, 7]
    assert str(ours["i"].dtype) == "Int32"
    assert ours["huge"].dtype == np.float64


def test_an_interval_longer_than_any_of_pythons_is_a_text() -> None:
    long, short = pa.MonthDayNano([2_136_000_000, 0, 0]), pa.MonthDayNano([0, 1, 7_200_000_000_000])
    result = Result(pa.table({"span": pa.array([long, short, None])}))
    assert result.fetchall() == [
        ("64080000000 days 0 microseconds",),
        (datetime.timedelta(days=1, hours=2),),
        (None,),
    ]
    assert result.df()["span"].to_list()[:2] == ["64080000000 days 0 microseconds", "1 day, 2:00:00"]


def test_polars_and_the_arrow_stream(result: Result) -> None:
    polars = pytest.importorskip("polars")
    assert result.pl()["whole"].to_list() == [5, 7]
    assert result.pl()["span"].to_list() == [datetime.timedelta(days=3), None]
    plain = Result(result.table.drop_columns(["span"]))  # polars has no intervals in months
    assert polars.DataFrame(plain).equals(plain.pl())
    assert pa.table(result).equals(result.arrow())


def test_fetchnumpy_masks_nulls(result: Result) -> None:
    arrays = result.fetchnumpy()
    assert isinstance(arrays["i"], np.ma.MaskedArray)
    assert list(arrays["i"].mask) == [False, True]
    assert arrays["whole"].dtype == np.int64
    assert not isinstance(arrays["whole"], np.ma.MaskedArray)
    assert arrays["dec"].dtype == np.float64


def test_same_column_name_twice() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    result = Result(table)
    assert list(result.df().columns) == ["n", "n"]
    assert result.df().iloc[0].tolist() == [1, 2]
    assert result.fetchall() == [(1, 2)]
    assert "n   n" in repr(result)


def test_no_rows_and_no_columns() -> None:
    empty = Result(pa.table({"n": pa.array([], pa.int64())}))
    assert empty.fetchall() == []
    assert empty.fetchone() is None
    assert empty.df().shape == (0, 1)
    assert repr(empty).splitlines()[-1].strip() == "0 rows"
    nothing = Result(pa.table({}))
    assert nothing.fetchall() == []
    assert nothing.df().empty


def full() -> Result:
    return Result(
        pa.table({"city": ["Delft", "Leiden"], "n": [1240, 880], "m": [1.5, None]}),
        intervals={"n": [(1210.0, 1270.0), (850.5, 909.5)], "m": [(float("-inf"), 2.0), None]},
        loss="ε=0.1",
        notes=["a note"],
        statement_id=7,
        cost_line="cost ε=0.1 · ε=0.8 of ε=1 left",
        confidence=0.9,
    )


def test_a_result_comes_back_whole_from_pickle() -> None:
    result = full()
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert again.intervals == result.intervals
    assert again.arrow().schema.equals(result.arrow().schema, check_metadata=True)
    other = Result(result.table, loss="ε=0.2")
    assert other != result, "equality must be able to fail"
    assert result != "ε=0.1", "equality must be able to fail"


def test_a_result_does_not_change() -> None:
    result = full()
    with pytest.raises(AttributeError, match="cannot assign"):
        result.loss = "ε=0"
    with pytest.raises(AttributeError, match="cannot delete"):
        del result.loss
    result.intervals["n"].clear()
    assert len(result.intervals["n"]) == 2, "what is handed out is a copy"
    with pytest.raises(TypeError):
        hash(result)


def test_interval_columns_are_taken_off() -> None:
    table = pa.table(
        {"city": ["Delft"], "n": [5], "n__low": [1.0], "n__high": [9.0], "x__low": [None], "x__high": [None]}
    )
    plan = (IntervalColumns("n", "n__low", "n__high"),)
    result = Result.finished(table, ["city", "n"], plan, loss="ε=1")
    assert result.columns == ["city", "n"]
    assert result.intervals == {"n": [(1.0, 9.0)]}
    assert result.loss == "ε=1"
    none = Result.finished(table, ["city"], (IntervalColumns("city", "x__low", "x__high"),))
    assert none.intervals == {}, "a column without a single interval shows none"


@pytest.mark.parametrize(("library", "method"), [("pandas", "df"), ("polars", "pl"), ("matplotlib", "plot")])
def test_a_missing_library_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, library: str, method: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Error, match=f"pip install {library}") as caught:
        getattr(full(), method)()
    assert isinstance(caught.value, ImportError)
    assert caught.value.__cause__ is None


def test_values_survive_that_floats_would_bend() -> None:
    table = pa.table({"n": pa.array([decimal.Decimal(2**53 + 1)], pa.decimal128(38, 0))})
    assert Result(table).fetchall() == [(2**53 + 1,)]
    assert Result(table).df()["n"].tolist() == [2**53 + 1]
    big = Result(pa.table({"n": pa.array([decimal.Decimal(2**70)], pa.decimal128(38, 0))}))
    assert big.fetchall() == [(2**70,)]
    assert big.df()["n"].dtype == np.float64


def test_dates_stay_dates() -> None:
    assert Result(pa.table({"d": pa.array([datetime.date(2020, 2, 29)])})).fetchall() == [
        (datetime.date(2020, 2, 29),)
    ]


def test_intervals_are_columns_and_pairs_only_where_they_are_asked_for() -> None:
    low, high = full().ends["m"]
    assert (low.to_pylist(), high.to_pylist()) == ([float("-inf"), None], [2.0, None])
    table = pa.table({"n": [1, 2, 3], "l": [0.0, None, 2.0], "h": [4, None, None]})
    result = Result.finished(table, ["n"], (IntervalColumns("n", "l", "h"),))
    assert result.intervals == {"n": [(0.0, 4.0), None, None]}, "half an interval is none"
    assert result.ends["n"][0].null_count == 2
    rows = 200_000
    numbers = pa.array(range(rows), pa.float64())
    given = pa.table({"n": range(rows), "l": numbers, "h": numbers})
    tracemalloc.start()
    many = Result.finished(given, ["n"], (IntervalColumns("n", "l", "h"),))
    held = tracemalloc.get_traced_memory()[0]
    pairs = many.intervals["n"]
    asked = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(pairs) == rows, "a Python object for each, once they are asked for"
    assert asked > 50 * rows > 100 * held, "a Python object for each, once they are asked for"


def test_a_display_of_many_rows_looks_at_few_of_them() -> None:
    rows = 1_000_000
    numbers = pa.array(range(rows), pa.int64())
    ends = (pa.chunked_array([numbers.cast(pa.float64())]),) * 2
    result = Result(pa.table({"k": numbers, "n": numbers}), intervals={"n": ends}, loss="ε=1")
    tracemalloc.start()
    shown = repr(result)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "1 000 000 rows" in shown, peak
    assert peak < 1 << 20, peak


def test_a_result_is_a_sequence_of_rows_and_a_mapping_of_columns() -> None:
    result = Result(
        pa.table({"ward": ["A", "B", None], "n": [7, 5, 3]}), intervals={"n": [(5.0, 9.0), None, (1.0, 5.0)]}
    )
    assert list(result) == result.fetchall() == [("A", 7), ("B", 5), (None, 3)]
    assert dict(result) == {"A": 7, "B": 5, None: 3}
    assert (result[0], result[-1], result[1:]) == (("A", 7), (None, 3), [("B", 5), (None, 3)])
    assert sum(result["n"]) == 15
    assert [ward for ward, _ in result] == result["ward"]
    with pytest.raises(IndexError):
        result[3]
    with pytest.raises(KeyError) as told:
        result["m"]
    assert isinstance(told.value, Error)
    assert str(told.value) == "the result has no column m.\nHint: there is ward, n."
    assert Result(pa.table({"n": [7]})).item() == 7
    for wrong in (result, Result(pa.table({"n": []}))):
        with pytest.raises(ValueError, match="one row and one column"):
            wrong.item()


def test_intervals_go_along_into_frames() -> None:
    table = pa.table([["A", "B"], [7, 5], [1, 2]], names=["ward", "n", "n_low"])
    result = Result(table, intervals={"n": [(5.0, 9.0), None]})
    assert result.arrow(intervals=True).column_names == ["ward", "n", "n__low", "n_high", "n_low"]
    frame = result.df(intervals=True)
    assert (
        list(frame.columns) == result.pl(intervals=True).columns == result.arrow(intervals=True).column_names
    )
    assert frame["n_high"].tolist()[0] == 9.0
    assert frame["n_high"].isna().tolist() == [False, True]
    assert list(result.df().columns) == ["ward", "n", "n_low"]
    assert result.to_pandas().equals(result.df())
    assert result.to_polars().equals(result.pl())
    assert result.to_arrow() is result.arrow()


def test_other_libraries_read_a_result_as_it_is() -> None:
    result = Result(pa.table({"ward": ["A", "B"], "n": [7, 5]}))
    assert duckdb.sql("SELECT SUM(n) FROM result").fetchall() == [(12,)]
    frame = result.__dataframe__()
    assert list(frame.column_names()) == ["ward", "n"]
    assert frame.num_rows() == 2
    assert pl.DataFrame(result).shape == (2, 2)
