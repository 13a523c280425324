"""Sources of data: files, globs, databases, frames by name."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest

import dpsql
from dpsql.owner.policy_init import init_policy
from tests.support import inside

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

ROWS = {
    "unit": [1, 1, 2, 3, 4, 5],
    "amount": [1.5, 2.0, 4.0, 8.0, 16.0, 32.5],
    "kind": ["a", "b", "a", "a", None, "b"],
}
SUMS = (6, 64.0)


TYPES = {"unit": "BIGINT", "amount": "DOUBLE", "kind": "VARCHAR"}


def policy(source: str | None, types: dict[str, str] | None = None) -> str:
    named = f"source = '{source}'\n" if source else ""
    typed = "".join(f"columns.{name}.type = '{kind}'\n" for name, kind in (types or {}).items())
    return (
        "[budget]\nepsilon = 1e9\naccountant = 'basic'\ndefault_epsilon = 1e7\n[tables.visits]\n"
        f"{named}privacy_unit = 'unit'\nmax_rows = 3\ncolumns.amount.bounds = [0, 40]\n{typed}"
    )


def asked(session: dpsql.Session) -> None:
    count, total = session.sql("SELECT COUNT(*), SUM(amount) FROM visits").fetchone() or (0, 0)
    assert (count, round(total, 3)) == SUMS
    assert session.sql("SELECT COUNT(*) AS n FROM visits WHERE kind = 'a'").fetchall() == [(3,)]


def table() -> pa.Table:
    return pa.table(ROWS)


def halves() -> list[pa.Table]:
    return [table().slice(0, 2), table().slice(2)]


def _parquet(folder: Path) -> str:
    pyarrow.parquet.write_table(table(), folder / "visits.parquet")
    return "visits.parquet"


def _parquet_glob(folder: Path) -> str:
    (folder / "deep" / "er").mkdir(parents=True)
    for name, part in zip(("deep/one.parquet", "deep/er/two.parquet"), halves(), strict=True):
        pyarrow.parquet.write_table(part, folder / name)
    return "deep/**/*.parquet"


def _csv(folder: Path) -> str:
    pyarrow.csv.write_csv(table(), folder / "visits.csv")
    return "visits.csv"


def _csv_glob(folder: Path) -> str:
    for i, part in enumerate(halves()):
        pyarrow.csv.write_csv(part, folder / f"visits-{i}.csv")
    return "visits-*.csv"


def _csv_gz(folder: Path) -> str:
    _csv(folder)
    (folder / "visits.csv.gz").write_bytes(gzip.compress((folder / "visits.csv").read_bytes()))
    return str(folder / "visits.csv.gz")


def _tsv(folder: Path) -> str:
    pyarrow.csv.write_csv(table(), folder / "v.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    return "v.tsv"


def _jsonl(folder: Path) -> str:
    table().to_pandas().to_json(folder / "visits.jsonl", orient="records", lines=True)
    return "visits.jsonl"


def _json_gz(folder: Path) -> str:
    _jsonl(folder)
    (folder / "visits.json.gz").write_bytes(gzip.compress((folder / "visits.jsonl").read_bytes()))
    return "visits.json.gz"


def _ndjson_zst(folder: Path) -> str:
    _jsonl(folder)
    packed = pa.Codec("zstd").compress((folder / "visits.jsonl").read_bytes())
    (folder / "visits.ndjson.zst").write_bytes(packed)
    return "visits.ndjson.zst"


def _hive(folder: Path) -> str:
    """Folders whose names have a column that the files lack."""
    for kind in ("a", "b", None):
        home = folder / "data" / ("plain" if kind is None else f"kind={kind}")
        home.mkdir(parents=True)
        of_kind = table().filter(pa.compute.is_null(table()["kind"]))
        if kind is not None:
            of_kind = table().filter(pa.compute.equal(table()["kind"], kind))
        pyarrow.parquet.write_table(of_kind.drop_columns(["kind"]), home / "part-0.parquet")
    return "data/*/*.parquet"


def _csv_zst(folder: Path) -> str:
    _csv(folder)
    packed = pa.Codec("zstd").compress((folder / "visits.csv").read_bytes())
    (folder / "visits.csv.zst").write_bytes(packed)
    return "visits.csv.zst"


def _arrow(folder: Path) -> str:
    with (
        pa.OSFile(str(folder / "visits.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table().schema) as writer,
    ):
        writer.write_table(table())
    return "visits.arrow"


def _feather(folder: Path) -> str:
    pyarrow.feather.write_feather(table(), str(folder / "visits.feather"))
    return "visits.feather"


def _feather_glob(folder: Path) -> str:
    for i, part in enumerate(halves()):
        pyarrow.feather.write_feather(part, str(folder / f"visits-{i}.feather"))
    return "visits-*.feather"


SELF_DESCRIBED = (_parquet, _arrow, _feather)


@pytest.mark.parametrize(
    "make",
    [
        _parquet,
        _parquet_glob,
        _csv,
        _csv_glob,
        _csv_gz,
        _csv_zst,
        _tsv,
        _jsonl,
        _json_gz,
        _ndjson_zst,
        _hive,
        _arrow,
        _feather,
        _feather_glob,
    ],
)
def test_files(tmp_path: Path, make: Callable[[Path], str]) -> None:
    """Relative to the policy's folder, wherever the session is opened."""
    source = make(tmp_path)
    (tmp_path / "policy.toml").write_text(policy(source, None if make in SELF_DESCRIBED else TYPES))
    with dpsql.connect(policy=tmp_path / "policy.toml") as session:
        asked(session)


@pytest.mark.parametrize("source", [None, "visits", "main.visits", "s.renamed", "seen"])
@pytest.mark.parametrize("opened", [True, False])
def test_tables_and_views_of_a_database(tmp_path: Path, source: str | None, opened: bool) -> None:
    path = tmp_path / "data.duckdb"
    with duckdb.connect(str(path)) as con:
        con.register("given", table())
        con.execute(
            "CREATE TABLE visits AS SELECT * FROM given; CREATE SCHEMA s; CREATE TABLE s.renamed AS FROM visits"
        )
        con.execute("CREATE VIEW seen AS SELECT * FROM visits")
    database: Any = duckdb.connect(str(path)) if opened else str(path)
    with dpsql.connect(database, policy=dpsql.Policy.loads(policy(source))) as session:
        asked(session)
    if opened:
        database.close()


PANDAS_TEXT = "str" if pd.__version__ >= "3" else "string"
"""A type of texts; by default pandas 2 has objects, whose types a policy declares."""
FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(ROWS).astype({"kind": PANDAS_TEXT}),
    "pandas with an index": lambda: (
        pd.DataFrame(ROWS).astype({"kind": PANDAS_TEXT}).set_index("kind", drop=False)
    ),
    "pandas of Arrow's types": lambda: table().to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pytest.importorskip("polars").DataFrame(ROWS),
    "polars, lazy": lambda: pytest.importorskip("polars").LazyFrame(ROWS),
    "arrow": table,
    "arrow batch": lambda: table().to_batches()[0],
    "arrow reader": lambda: table().to_reader(),
    "arrow dataset": lambda: pyarrow.dataset.dataset(table()),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("source", [None, "frame_of_mine"])
def test_frames_by_name(kind: str, source: str | None) -> None:
    with dpsql.connect(
        {source or "visits": FRAMES[kind]()}, policy=dpsql.Policy.loads(policy(source))
    ) as session:
        asked(session)
        asked(session)  # a reader that can be read once is read once


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_that_an_open_connection_has(kind: str) -> None:
    with duckdb.connect() as con:
        con.register("mine", FRAMES[kind]())
        types = TYPES if kind == "pandas" else None
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy("mine", types))) as session:
            asked(session)


def test_several_frames_meet() -> None:
    text = policy(None) + "[tables.kinds]\npublic = true\n"
    data = {
        "visits": pd.DataFrame(ROWS).astype({"kind": PANDAS_TEXT}),
        "kinds": pa.table({"kind": ["a", "b", "c"]}),
    }
    with dpsql.connect(data, policy=dpsql.Policy.loads(text)) as session:
        query = (
            "SELECT WITH DP OPTIONS (max_groups_contributed = 2) kind, COUNT(unit) AS n FROM visits "
            "RIGHT JOIN kinds USING (kind) GROUP BY kind ORDER BY kind"
        )
        assert session.sql(query).fetchall() == [("a", 3), ("b", 2), ("c", 0)]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"unit": [1, 2], "amount": [1.0, "x"]}), "declares none for amount"),
        ([1, 2, 3], "is a list"),
        ("visits.parquet", "is a str"),
        (pd.Series([1], name="unit"), "is a Series, which is no table"),
        (pl.Series("unit", [1]), "is a Series, which is no table"),
        (pl.col("unit"), "is a Expr, which is no table"),
    ],
)
def test_frames_that_can_not_be_read(frame: object, message: str) -> None:
    """The session refuses to open, before any statement could fail on the row that is unlike the others."""
    with pytest.raises(dpsql.PolicyError, match=message):
        dpsql.connect({"visits": frame}, policy=dpsql.Policy.loads(policy(None)))


def test_parquet_files_of_different_types_are_read_as_the_policy_says(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(table(), tmp_path / "a.parquet")
    text = table().set_column(1, "amount", pa.array(["1", "2", "x", "4", "5", "6"])).drop_columns(["kind"])
    text = text.set_column(0, "unit", pa.array([11, 11, 12, 13, 14, 15]))
    pyarrow.parquet.write_table(text, tmp_path / "b.parquet")
    (tmp_path / "policy.toml").write_text(policy("*.parquet", TYPES))
    with dpsql.connect(policy=tmp_path / "policy.toml") as session:
        row = session.sql("SELECT COUNT(*), COUNT(amount), SUM(amount), COUNT(kind) FROM visits").fetchone()
        assert (row[0], row[1], round(row[2], 3), row[3]) == (12, 11, 82, 5)


# -- resources --------------------------------------------------------------------------------------------------------


def test_resources_are_few_and_known(tmp_path: Path) -> None:
    _parquet(tmp_path)
    (tmp_path / "policy.toml").write_text(policy("visits.parquet"))
    for wrong in ({"memory": "1GiB"}, {"enable_external_access": "true"}, {"memory_limit": "plenty"}):
        with pytest.raises(dpsql.PolicyError):
            dpsql.connect(policy=tmp_path / "policy.toml", resources=wrong)
    with duckdb.connect() as con, pytest.raises(dpsql.PolicyError, match="its own"):
        dpsql.connect(con, policy=dpsql.Policy.loads(policy(None)), resources={"threads": 1})


def test_a_time_limit_stays_charged_and_the_session_goes_on() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT i AS u, i % 1000 AS x FROM range(3000000) t(i)")
        policy = dpsql.Policy.loads(
            '[budget]\nepsilon = 10\naccountant = "basic"\ndefault_epsilon = 1\n'
            '[tables.visits]\nprivacy_unit = "u"\nmax_rows = 9\n'
            "[tables.visits.columns]\nx = { bounds = [0, 1000] }"
        )
        slow = "SELECT COUNT(*) AS n FROM visits AS a JOIN visits AS b USING (u) WHERE a.x + b.x > 3"
        # one unit that joins with itself for long
        con.execute("INSERT INTO visits SELECT 1, i FROM range(60000) t(i)")
        with dpsql.connect(con, policy=policy, resources={"time_limit": 0.3}) as session:
            told = []
            for query in (slow, slow):
                with pytest.raises(dpsql.EngineError) as caught:
                    session.sql(query, fresh=True)
                told.append(str(caught.value))
                assert caught.value.__cause__ is None
                assert caught.value.__context__ is None
            assert told[0] == told[1]
            assert "stays charged" in told[0]
            assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 2
            inside.engine(session)._time_limit = 600  # the machine may stall
            assert session.sql("SELECT COUNT(*) AS n FROM visits WHERE u = 3 AND x < 0").shape == (1, 1)
    for wrong in (0, "soon", "inf"):
        with duckdb.connect() as con, pytest.raises(dpsql.PolicyError, match="time limit"):
            con.execute("CREATE TABLE visits (u INT, x INT)")
            dpsql.connect(con, policy=policy, resources={"time_limit": wrong})


@pytest.mark.parametrize("ending", ["arrow", "feather", "csv.zst", "csv.gz", "jsonl.zst"])
def test_a_file_of_another_format_is_refused(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"v.{ending}").write_bytes(b"unit,amount,kind\n1,2,a\n")
    (tmp_path / "policy.toml").write_text(policy(f"v.{ending}", TYPES))
    with pytest.raises(dpsql.PolicyError, match=r"can't be read|is in the policy but not in"):
        dpsql.connect(policy=tmp_path / "policy.toml")


def test_a_first_policy_of_an_arrow_file_has_its_types(tmp_path: Path) -> None:
    path = str(tmp_path / _feather(tmp_path))
    text = init_policy(path).text
    assert 'amount = { bounds = "TODO" }' in text
    assert "# DOUBLE; [lowest, highest]" in text
    with pytest.raises(dpsql.PolicyError, match="can't be read as Arrow"):
        (tmp_path / "bad.arrow").write_bytes(b"no")
        init_policy(str(tmp_path / "bad.arrow"))
