"""A nightly job's folder of Parquet files by different writers, as one table: equal to plain DuckDB over the same rows."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsql
from dpsql.engine.sources import choose_files
from tests.support import inside, nights
from tests.support.nights import write_day

pl = pytest.importorskip("polars")

CITIES = ["Delft", "Leiden", "Gouda", "Breda"]
FIRST = datetime.date(2024, 1, 1)
_SCHEMA = pa.schema([
    ("unit", pa.int64()), ("night", pa.date32()), ("seen", pa.timestamp("us")), ("amount", pa.float64()), ("city", pa.string()),
    ("tags", pa.list_(pa.string())), ("info", pa.struct([("a", pa.int64()), ("b", pa.string())])),
])  # fmt: skip
COLUMNS = {
    "unit": "BIGINT", "night": "DATE", "seen": "TIMESTAMP", "amount": "DOUBLE", "city": "VARCHAR", "tags": "VARCHAR[]",
    "info": "STRUCT(a BIGINT, b VARCHAR)",
}  # fmt: skip


def make_night(number: int) -> pa.Table:
    """Return the rows of a night, of which no person has more than one; amounts are quarters."""
    chance = random.Random(number)
    night = FIRST + datetime.timedelta(number)
    rows = []
    for unit in chance.sample(range(2_000), 25):
        moment = datetime.datetime.combine(night, datetime.time(chance.randrange(24), chance.randrange(60)))
        row: dict[str, Any] = {
            "unit": unit,
            "night": night,
            "seen": moment,
            "amount": chance.randrange(400) / 4,
        }
        row |= {"city": chance.choice([*CITIES, None]), "tags": chance.choice([["a"], ["a", "b"], [], None])}
        row["info"] = chance.choice([None, {"a": unit % 7, "b": "x"}, {"a": None, "b": "y"}])
        rows.append(row)
    return pa.Table.from_pylist(rows, _SCHEMA)


def _write_pandas(table: pa.Table, path: Path, zone: str | None = None) -> None:
    frame = table.to_pandas()
    frame["city"] = frame["city"].astype("category")
    frame["seen"] = frame["seen"].astype("datetime64[ns]")
    if zone is not None:
        frame["seen"] = frame["seen"].dt.tz_localize("UTC").dt.tz_convert(zone)
    frame["amount"] = frame["amount"].astype("Float64")
    frame.to_parquet(path)


def _write_pandas_zoned(table: pa.Table, path: Path) -> None:
    _write_pandas(table, path, "Europe/Berlin")


def _write_polars(table: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(table).with_columns(
        pl.col("city").cast(pl.Categorical), pl.col("seen").cast(pl.Datetime("ms"))
    )
    frame.write_parquet(path)


def _write_polars_zoned(table: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(table).with_columns(
        pl.col("city").cast(pl.Enum(CITIES)),
        pl.col("seen").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
    )
    frame.write_parquet(path, compression="lz4")


def _write_duckdb(table: pa.Table, path: Path, items: str = "*", options: str = "") -> None:
    with duckdb.connect() as con:
        con.register("rows", table)
        con.execute(f"COPY (SELECT {items} FROM rows) TO '{path}' (FORMAT parquet{options})")


def _write_duckdb_typed(table: pa.Table, path: Path) -> None:
    words = ", ".join(f"'{city}'" for city in CITIES)
    typed = f"city::ENUM({words}) AS city, amount::DECIMAL(9, 2) AS amount, unit::INTEGER AS unit"
    items = f"* REPLACE ({typed}, timezone('UTC', seen) AS seen)"
    _write_duckdb(table, path, items, ", COMPRESSION zstd, PARQUET_VERSION v2")


def _write_spark(table: pa.Table, path: Path) -> None:
    """INT96, snappy, a column in the folder's name alone, nullable columns in another order."""
    home = path.parent / f"night={table['night'][0]}"
    home.mkdir()
    (home / "_SUCCESS").touch()
    found = table.drop_columns(["night"]).select(["info", "tags", "city", "seen", "amount", "unit"])
    name = home / "part-00000-6d6e2f8c.c000.snappy.parquet"
    pyarrow.parquet.write_table(found, name, use_deprecated_int96_timestamps=True, flavor="spark")


def _write_arrow(table: pa.Table, path: Path) -> None:
    """Dictionaries, halves of seconds, single floats, large texts, a further column, and names in capitals."""
    table = table.set_column(4, "city", table["city"].dictionary_encode())
    table = table.set_column(2, "seen", table["seen"].cast(pa.timestamp("ms")))
    table = table.set_column(3, "amount", table["amount"].cast(pa.float32()))
    table = table.append_column("more", pa.array(["x"] * len(table), pa.large_string()))
    names = [name.upper() for name in table.column_names]
    pyarrow.parquet.write_table(table.rename_columns(names), path, version="1.0", row_group_size=10)


WRITERS: list[Callable[[pa.Table, Path], None]] = [
    _write_pandas, _write_pandas_zoned, _write_polars, _write_polars_zoned, _write_duckdb, _write_duckdb_typed, _write_spark,
    _write_arrow,
]  # fmt: skip


POLICY = """
[budget]
epsilon = 1e12
delta = 0.1
accountant = "basic"
default_epsilon = 1e8
default_delta = 1e-9
[tables.visits]
source = "data/**/*.parquet"
privacy_unit = "unit"
max_rows = 400
max_groups = 400
[tables.visits.columns]
amount.bounds = [0, 100]
city.values = ["Delft", "Leiden", "Gouda", "Breda"]
"""
_VISITS = dpsql.Policy.loads(POLICY).tables["visits"]
SAME: list[str] = [
    "SELECT COUNT(*) AS n, COUNT(city) AS c, COUNT(tags) AS t, COUNT(info) AS i, COUNT(seen) AS a FROM visits",
    "SELECT SUM(amount) AS s, AVG(amount) AS m, STDDEV_POP(amount) AS d FROM visits",
    "SELECT COUNT(DISTINCT unit) AS u, COUNT(DISTINCT city) AS c FROM visits",
    "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM visits WHERE city IS NOT NULL GROUP BY city ORDER BY city",
    "SELECT date_trunc('month', seen) AS k, COUNT(*) AS n FROM visits GROUP BY k ORDER BY k",
    "SELECT night, SUM(amount) AS s FROM visits WHERE night < '2024-01-10' GROUP BY night ORDER BY night",
    "SELECT hour(seen) AS h, COUNT(*) AS n FROM visits GROUP BY h ORDER BY h",
    "SELECT COUNT(*) AS n FROM visits WHERE seen >= '2024-01-05 12:00:00' AND seen < '2024-01-20 06:30:00'",
    "SELECT COUNT(*) AS n FROM visits WHERE seen::DATE <> night",
    "SELECT tag, COUNT(*) AS n FROM (SELECT unit, UNNEST(tags) AS tag FROM visits) GROUP BY tag ORDER BY tag",
    "SELECT info.b AS b, SUM(LEAST(GREATEST(info.a, 0), 6)) AS s FROM visits WHERE info IS NOT NULL GROUP BY b ORDER BY b",
    "SELECT AVG(n) AS m FROM (SELECT unit, COUNT(*) AS n FROM visits GROUP BY unit)",
    "SELECT COUNT(*) AS n FROM (SELECT unit, row_number() OVER (PARTITION BY unit ORDER BY seen) AS r FROM visits) WHERE r = 2",
    "SELECT COUNT(*) AS n FROM visits AS a JOIN visits AS b USING (unit) WHERE a.night < b.night",
    "SELECT SUM(amount) FILTER (WHERE len(tags) = 2) AS s FROM visits",
    "SELECT MEDIAN(amount) AS m, QUANTILE_DISC(amount, 0.9) AS q FROM visits",
    "SELECT MODE(city) AS c FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE city IS NOT NULL GROUP BY GROUPING SETS ((city), ()) ORDER BY n",
]  # fmt: skip
"""Statements of each kind, which mean the same in DuckDB."""
FOUND: dict[str, str] = {
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 20, bounds = (0, 100)) AVG(amount) AS m FROM visits":
        "SELECT AVG(amount) FROM visits",
    "SELECT AVG(amount, contribution_bounds_per_row => (0, 100)) AS m FROM visits WHERE tags IS NULL":
        "SELECT AVG(amount) FROM visits WHERE tags IS NULL",
}  # fmt: skip
"""Statements of further modes, and what they are near."""


def near(found: Any, expected: Any, slack: float) -> bool:
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        return found is not None and abs(float(found) - float(expected)) <= slack
    return bool(found == expected)


@pytest.mark.parametrize("count", [24, pytest.param(400, marks=pytest.mark.long)])
def test_statements_of_each_kind_equal_duckdb(tmp_path: Path, count: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    nights = [make_night(number) for number in range(count)]
    for number, table in enumerate(nights):
        WRITERS[number % len(WRITERS)](table, data / f"night-{number:03}.parquet")
    typed = "".join(f'{name}.type = "{kind}"\n' for name, kind in COLUMNS.items())
    (tmp_path / "policy.toml").write_text(POLICY + typed)
    whole = pa.concat_tables(nights)
    with duckdb.connect() as con, dpsql.connect(policy=tmp_path / "policy.toml") as session:
        con.execute("SET TimeZone = 'UTC'")
        con.register("given", whole)
        con.execute("CREATE TABLE visits AS FROM given")
        for text in SAME:
            expected = con.execute(text).fetchall()
            found = session.sql(text).fetchall()
            assert len(found) == len(expected), (text, found, expected)
            for mine, theirs in zip(found, expected, strict=True):
                assert all(near(a, b, 0.3) for a, b in zip(mine, theirs, strict=True)), (text, mine, theirs)
        for text, plain in FOUND.items():
            ((expected_value,),) = con.execute(plain).fetchall()
            ((value, *_),) = session.sql(text).fetchall()
            assert near(value, expected_value, 5), (text, value, expected_value)


@pytest.mark.parametrize(
    ("kind", "values", "left_out"),
    [
        ("DATE", ["2024-01-0{}", "NULL"], 4),
        ("TIMESTAMP", ["2024-01-0{} 00:00:00", "2024-01-0{} 23:59:59.999"], 4),
        ("DATE", ["2024-01-0{}", "infinity"], 0),
        ("DATE", ["2024-01-0{}", "0044-03-15 (BC)"], 0),
        ("TIMESTAMPTZ", ["2024-01-0{} 12:00:00+00"], 0),
        ("VARCHAR", ["2024-01-0{}"], 0),
        ("INTEGER", ["2024010{}"], 0),
    ],
)
def test_a_file_is_left_out_if_its_footer_says_so(
    tmp_path: Path, kind: str, values: list[str], left_out: int
) -> None:
    files = [str(tmp_path / f"{number}.parquet") for number in range(1, 6)]
    with duckdb.connect() as con:
        for number, file in enumerate(files, 1):
            rows = ", ".join("(NULL)" if v == "NULL" else f"('{v.format(number)}')" for v in values)
            con.execute(
                f"COPY (SELECT v::{kind} AS Day FROM (VALUES {rows}) t(v)) TO '{file}' (FORMAT parquet)"
            )
    day = datetime.date(2024, 1, 3).toordinal()
    with duckdb.connect() as con:
        chosen = choose_files(con, _VISITS, files, "day", ((day, day + 1), (day + 90, day + 99)))
        assert files[2] in chosen
        assert len(chosen) == 5 - left_out
        assert choose_files(con, _VISITS, files, "another", ((day, day + 1),)) == files


FOLDERS: dict[str, list[str | None]] = {
    "day=2024-01-01/ward=a": ["2024-01-01", "a"],
    "day=2024-01-02/ward=b c": ["2024-01-02", "b c"],
    "day=2024-01-03/ward=d%2Fe%3D": ["2024-01-03", "d/e="],
    "day=2024-01-04/ward=null": ["2024-01-04", "null"],
    "day=2024-01-05/ward=__HIVE_DEFAULT_PARTITION__": ["2024-01-05", None],
    "day=2024-01-06/ward=1=2": ["2024-01-06", "1=2"],
    "Day=2024-01-07/WARD=g/more=h": ["2024-01-07", "g"],
    "ward=i/day=2024-01-08": ["2024-01-08", "i"],
    "ward=j/ward=k/day=2024-01-09": ["2024-01-09", "k"],
    "day=2024-01-32/ward=l": [None, "l"],
    "day=/ward=it's": [None, "it's"],
    "day=2024-01-10/unit=7/ward=m": ["2024-01-10", "m"],
    "day=2024-01-11/ward=\u00e9?": ["2024-01-11", "\u00e9?"],
    "other": [None, None],
}
"""Folders of files, and the columns ``day`` and ``ward`` of their rows."""


@pytest.mark.parametrize("own", [False, True])
def test_columns_in_the_names_of_folders(tmp_path: Path, own: bool) -> None:
    """Each file has one row; if it has a column of its own, the folder's name counts for nothing."""
    expected = []
    for number, (folder, values) in enumerate(FOLDERS.items()):
        home = tmp_path / folder
        home.mkdir(parents=True)
        table = pa.table({"unit": [number], "seen": [None], **({"ward": ["w"]} if own else {})})
        pyarrow.parquet.write_table(table, home / "rows=1.parquet")
        day = values[0] and datetime.date.fromisoformat(values[0])
        expected.append((number, day, "w" if own else values[1]))
    types = {"unit": "BIGINT", "day": "DATE", "ward": "VARCHAR"}
    typed = "".join(f'columns.{name}.type = "{kind}"\n' for name, kind in types.items())
    policy = dpsql.Policy.loads(
        f'[budget]\nepsilon = 1\n[tables.visits]\nsource = "**/*.parquet"\nprivacy_unit = "unit"\nmax_rows = 1\n{typed}',
        base=tmp_path,
    )
    with dpsql.connect(policy=policy) as session:
        engine = inside.engine(session)
        body = engine.relation(policy.tables["visits"])
        found = engine.execute(f"SELECT unit, day, ward FROM {body} ORDER BY unit").to_pylist()
        assert [tuple(row.values()) for row in found] == expected
        day = datetime.date(2024, 1, 7).toordinal()
        files = sorted(str(path) for path in tmp_path.rglob("*.parquet"))
        with duckdb.connect() as con:
            chosen = choose_files(con, policy.tables["visits"], files, "day", ((day, day + 2),))
        read = {os.path.relpath(path, tmp_path).rpartition("/")[0] for path in chosen}
    dated = {folder for folder, values in FOLDERS.items() if values[0] is not None}
    assert {folder for folder in read if folder in dated} == {
        "Day=2024-01-07/WARD=g/more=h",
        "ward=i/day=2024-01-08",
    }
    assert read >= set(FOLDERS) - dated  # whatever has no day is read


def test_only_the_files_of_some_days_are_read(tmp_path: Path) -> None:
    for number in range(4):
        write_day(tmp_path, number)
    days = ((nights.FIRST.toordinal() + 2, nights.FIRST.toordinal() + 4),)
    with dpsql.connect(policy=dpsql.Policy.loads(nights.POLICY, base=tmp_path)) as session:
        engine = inside.engine(session)
        count = f"SELECT COUNT(*) AS n FROM {engine.relation(session.policy.tables['visits'])}"

        def read() -> int:
            return int(engine.execute(count)["n"][0].as_py())

        with engine.within(days):
            assert read() == 40
            with engine.within(((1, 2),)):  # another statement's, meanwhile
                assert read() == 40
        with engine.within(((1, 2),)):
            assert read() == 20  # at least one file, for its columns
        assert read() == 80


def test_a_query_amid_the_rows_of_another_has_its_own_cursor(tmp_path: Path) -> None:
    for number in range(4):
        write_day(tmp_path, number)
    days = ((nights.FIRST.toordinal(), nights.FIRST.toordinal() + 1),)
    with dpsql.connect(policy=dpsql.Policy.loads(nights.POLICY, base=tmp_path)) as session:
        engine = inside.engine(session)
        rows = f"SELECT x FROM {engine.relation(session.policy.tables['visits'])}"
        with engine.within(days):
            found = 0
            for batch in engine.batches(rows):
                assert engine.execute(f"SELECT COUNT(*) AS n FROM ({rows}) AS r")["n"][0].as_py() in (20, 80)
                found += batch.num_rows
            assert found == 20
        assert engine.execute(rows).num_rows == 80
