"""ENUMs keep the order of their type above the private part, compared with DuckDB; below it, their order is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsql
from tests.support.served import ServerProcess, make_token

POLICY = """
[budget]
epsilon = 1e9
delta = 0.01
default_epsilon = 1e6
default_delta = 1e-6
[tables.t]
privacy_unit = "uid"
max_rows = 10
max_groups = 10
{more}
[tables.p]
public = true
"""
LABELS = ["low", "mid", "high"]
ROWS = [(i // 2, LABELS[i % 3], LABELS[(i // 3) % 3], i % 3) for i in range(600)]


def connect_owner(path: Path | str = ":memory:") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(path)
    con.execute("CREATE TYPE level AS ENUM ('low', 'mid', 'high')")
    con.execute(
        "CREATE TABLE t AS SELECT i // 2 AS uid, (['low', 'mid', 'high'][i % 3 + 1])::level AS x, "
        "(['low', 'mid', 'high'][(i // 3) % 3 + 1])::level AS y, i % 3 AS g, [x] AS l FROM range(600) r(i)"
    )
    con.execute("CREATE TABLE p AS SELECT DISTINCT x FROM t")
    return con


def opened(data: Any, more: str = "", **rest: Any) -> dpsql.Session:
    return dpsql.connect(data, policy=dpsql.Policy.loads(POLICY.format(more=more)), **rest)


BY_X = "SELECT x, COUNT(*) AS n FROM t GROUP BY x"
BY_Y = "SELECT y, COUNT(*) AS m FROM t GROUP BY y"
SORTED = [
    f"{BY_X} ORDER BY x",
    f"{BY_X} ORDER BY x DESC",
    f"{BY_X} ORDER BY 1 LIMIT 2",
    "SELECT x, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT DISTINCT x FROM t ORDER BY x",
    "SELECT x, y, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((x), (y), (x, y)) ORDER BY x NULLS FIRST, y NULLS FIRST",
    "SELECT x, COUNT(*) AS n FROM t GROUP BY ROLLUP (x) ORDER BY x NULLS FIRST",
    f"SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r FROM ({BY_X}) ORDER BY r",
    f"{BY_X} QUALIFY ROW_NUMBER() OVER (ORDER BY x) = 1",
    f"{BY_X} HAVING x > 'low' ORDER BY x",
    f"WITH c AS ({BY_X}), d AS ({BY_Y}) SELECT c.x, n, m FROM c JOIN d ON c.x = d.y ORDER BY c.x",
    f"SELECT c.x, d.y FROM ({BY_X}) AS c, ({BY_Y}) AS d WHERE c.x < d.y ORDER BY c.x, d.y",
    f"SELECT x FROM ({BY_X} UNION ALL {BY_Y}) ORDER BY x",
    f"SELECT MIN(x) AS a, MAX(x) AS b FROM ({BY_X})",
    f"SELECT list(x ORDER BY x) AS l, {{'a': MAX(x)}} AS s FROM ({BY_X})",
    f"SELECT repeat(x, 2) AS z FROM ({BY_X}) ORDER BY x",
    "SELECT z, COUNT(*) AS n FROM (SELECT uid, x AS z FROM t WHERE g < 9) GROUP BY z ORDER BY z",
    "SELECT x, COUNT(*) AS n FROM (SELECT uid, x FROM t UNION ALL SELECT uid, y FROM t) GROUP BY x ORDER BY x",
    "SELECT CASE WHEN g < 9 THEN x END AS z, COUNT(*) AS n FROM t GROUP BY z ORDER BY z",
    "SELECT NULLIF(x, 'mid') AS z, COUNT(*) AS n FROM t GROUP BY z ORDER BY z NULLS LAST",
    "SELECT COALESCE(x, y) AS z, COUNT(*) AS n FROM t GROUP BY z ORDER BY z",
    "SELECT w, COUNT(*) AS n FROM (SELECT uid, LAG(x) OVER (PARTITION BY uid ORDER BY g) AS w FROM t) GROUP BY w ORDER BY w",
    f"WITH k AS ({BY_X}) SELECT k.x, COUNT(*) AS m FROM t JOIN k USING (x) GROUP BY k.x ORDER BY k.x",
    "SELECT k, COUNT(*) AS n FROM (SELECT uid, UNNEST([x, x]) AS k FROM t) GROUP BY k ORDER BY k",
    "SELECT k, COUNT(*) AS n FROM (SELECT uid, UNNEST(l) AS k FROM t) GROUP BY k ORDER BY k",
    "SELECT l[1] AS k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k",
    # texts, as for DuckDB
    "SELECT COALESCE(x, 'none') AS z, COUNT(*) AS n FROM t GROUP BY z ORDER BY z",
    "SELECT x::VARCHAR AS z, COUNT(*) AS n FROM t GROUP BY z ORDER BY z",
    "SELECT COUNT(*) AS n FROM t WHERE x < 'mid'",
    "SELECT COUNT(*) AS n FROM t WHERE x BETWEEN 'low' AND 'mid'",
]
PUBLIC = [
    "SELECT x FROM p ORDER BY x",
    "SELECT MIN(x) FROM p",
    "SELECT p.x, COUNT(*) AS n FROM t JOIN p ON p.x = t.x GROUP BY p.x ORDER BY p.x",
    "SELECT z.x, COUNT(*) AS n FROM t JOIN (SELECT x FROM p ORDER BY x LIMIT 2) AS z ON z.x = t.x GROUP BY z.x ORDER BY z.x",
    "SELECT repeat(x, 2) AS z FROM p ORDER BY x",
]


@pytest.fixture(scope="module")
def owner() -> duckdb.DuckDBPyConnection:
    return connect_owner()


@pytest.fixture(scope="module")
def session(owner: duckdb.DuckDBPyConnection) -> Any:
    with opened(owner) as made:
        yield made


@pytest.mark.parametrize("text", [*SORTED, *PUBLIC])
def test_an_enum_sorts_as_in_duckdb(
    session: dpsql.Session, owner: duckdb.DuckDBPyConnection, text: str
) -> None:
    found = session.sql(text)
    assert found.fetchall() == owner.execute(text).fetchall()
    assert "dictionary" not in str(found.table.schema)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS n FROM t WHERE x < y",
        "SELECT COUNT(*) AS n FROM t WHERE x BETWEEN y AND y",
        "SELECT COUNT(*) AS n FROM t WHERE GREATEST(x, y) = 'high'",
        "SELECT m, COUNT(*) AS n FROM (SELECT uid, MIN(x) AS m FROM t GROUP BY uid) GROUP BY m",
        "SELECT m, COUNT(*) AS n FROM (SELECT uid, ARG_MAX(g, x) AS m FROM t GROUP BY uid) GROUP BY m",
        "SELECT COUNT(*) AS n FROM (SELECT uid, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY x) AS r FROM t) WHERE r = 1",
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1e4, blocks = 20) MAX(x) AS m FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1e4, blocks = 20) x FROM t ORDER BY x DESC LIMIT 1",
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1e4, blocks = 20) MODE(g) AS m FROM t WHERE x < y",
        "SELECT COUNT(*) AS n FROM (SELECT uid, MAX(x) OVER (PARTITION BY uid) AS r FROM t) WHERE r = 'low'",
    ],
)
def test_the_order_of_labels_is_refused_below_the_private_part(session: dpsql.Session, text: str) -> None:
    with pytest.raises(dpsql.BindError, match="order of an ENUM's labels is not supported over private rows"):
        session.sql(text)


def test_the_refusals_hints_give_duckdbs_answer(
    session: dpsql.Session, owner: duckdb.DuckDBPyConnection
) -> None:
    place = "CASE {0} WHEN 'low' THEN 1 WHEN 'mid' THEN 2 WHEN 'high' THEN 3 END"
    text = f"SELECT COUNT(*) AS n FROM t WHERE {place.format('x')} < {place.format('y')}"
    wanted = owner.execute("SELECT COUNT(*) FROM t WHERE x < y").fetchall()
    assert session.sql(text).fetchall() == wanted


def test_functions_of_a_types_labels_are_refused(session: dpsql.Session) -> None:
    for name in ("enum_code", "enum_first", "enum_last", "enum_range"):
        with pytest.raises(dpsql.Error, match=name):
            session.sql(f"SELECT {name}(x) FROM ({BY_X})")


def make_frames() -> dict[str, Any]:
    frame = pd.DataFrame(ROWS, columns=["uid", "x", "y", "g"])
    ordered, unordered = frame.copy(), frame.copy()
    for name in ("x", "y"):
        ordered[name] = pd.Categorical(frame[name], [*LABELS, "never"], ordered=True)
        unordered[name] = pd.Categorical(frame[name], LABELS, ordered=False)
    enums = pl.DataFrame(ROWS, schema=["uid", "x", "y", "g"], orient="row").with_columns(
        pl.col("x", "y").cast(pl.Enum(LABELS))
    )
    return {"pandas": ordered, "polars": enums, "arrow": enums.to_arrow(), "unordered": unordered}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "unordered"])
def test_a_frames_ordered_categories_sort_by_their_order(kind: str) -> None:
    wanted = sorted(LABELS) if kind == "unordered" else LABELS
    with opened({"t": make_frames()[kind], "p": pd.DataFrame({"a": [1]})}) as session:
        assert session.sql(f"{BY_X} ORDER BY x")["x"] == wanted
        assert session.sql(f"SELECT MIN(x) AS a, MAX(x) AS b FROM ({BY_X})").fetchall() == [
            (wanted[0], wanted[-1])
        ]


def test_labels_that_are_not_released_are_nowhere() -> None:
    with opened({"t": make_frames()["pandas"], "p": pd.DataFrame({"a": [1]})}) as session:
        found = session.sql(f"SELECT typeof(x) AS k, x, n FROM ({BY_X})")
        said = [
            str(found.fetchall()),
            str(session.describe(BY_X)),
            str(session.sql(f"EXPLAIN {BY_X}").fetchall()),
        ]
        for text in ("SELECT x + 1, COUNT(*) FROM t GROUP BY x", "SELECT COUNT(*) FROM t WHERE x < y"):
            with pytest.raises(dpsql.Error) as caught:
                session.sql(text)
            said.append(str(caught.value))
    assert not any("never" in text or "dpsql_labels" in text for text in said)


def test_whether_a_comparison_is_refused_does_not_depend_on_the_categories() -> None:
    for labels in ([], ["rare"]):
        places = pa.array(range(len(labels)), pa.int8())
        made = pa.DictionaryArray.from_arrays(places, pa.array(labels, pa.string()), ordered=True)
        frame = pa.table({"uid": pa.array(range(len(labels)), pa.int64()), "x": made, "y": made})
        with opened({"t": frame, "p": pd.DataFrame({"a": [1]})}) as session:
            with pytest.raises(dpsql.BindError, match="order of an ENUM's labels"):
                session.sql("SELECT COUNT(*) FROM t WHERE x < y")
            assert session.sql(f"{BY_X} ORDER BY x").fetchall() == []


def test_declared_values_that_are_no_labels_come_last() -> None:
    more = '[tables.t.columns]\nx = { values = ["a", "high", "mid", "low"] }'
    with opened({"t": make_frames()["polars"], "p": pd.DataFrame({"a": [1]})}, more) as session:
        assert session.sql(f"{BY_X} ORDER BY x")["x"] == [*LABELS, "a"]


def test_kept_results_have_the_order(session: dpsql.Session) -> None:
    session.keep("kept", session.sql(f"{BY_X} ORDER BY n"))
    assert session.sql("SELECT x FROM kept ORDER BY x")["x"] == LABELS
    assert session.sql(f"a << {BY_X}; SELECT x FROM a ORDER BY x DESC")["x"] == LABELS[::-1]
    session.keep("frame", make_frames()["polars"].select("x").unique())
    assert session.sql("SELECT x FROM frame ORDER BY x")["x"] == LABELS


def test_a_stored_answer_has_the_order(tmp_path: Path) -> None:
    frames = {"t": make_frames()["polars"], "p": pd.DataFrame({"a": [1]})}
    for _ in range(2):
        with opened(frames, ledger=tmp_path / "ledger") as session:
            found = session.sql(f"{BY_X} ORDER BY x DESC")
            assert found["x"] == LABELS[::-1]
    assert found.event is None


@pytest.mark.timeout(300)
def test_a_servers_answers_have_the_order(tmp_path: Path) -> None:
    connect_owner(tmp_path / "data.duckdb").close()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(more="") + "[analysts.ada]\nepsilon = 1e8\ndelta = 0.001\n[server]\n")
    token = make_token(policy, "ada")
    with (
        ServerProcess(policy, "--database", str(tmp_path / "data.duckdb")) as server,
        dpsql.connect(server.url, token=token) as session,
    ):
        for text in (
            f"{BY_X} ORDER BY x",
            f"k << {BY_X}; SELECT x FROM k ORDER BY x",
            "SELECT x FROM p ORDER BY x",
        ):
            found = session.sql(text)
            assert found["x"] == LABELS
            assert "dictionary" not in str(found.table.schema)
        with pytest.raises(dpsql.BindError, match="order of an ENUM's labels"):
            session.sql("SELECT COUNT(*) FROM t WHERE x < y")
