"""Time zones: moments are counted and compared, and have local times in a zone that is named, as DuckDB's ICU library says.

Expected values come from plain DuckDB with TimeZone set to the zone. The zone of the machine and of a connection decide nothing.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsql
from dpsql.owner.policy_check import check_policy
from dpsql.owner.policy_init import init_policy
from dpsql.policy.tables import TIME_ZONES
from tests.support.own_process import run_python

HEAD = """
budget = { epsilon = 1e15, delta = 0.5, accountant = "basic", default_epsilon = 1e7, default_delta = 1e-9 }
"""
TABLE = """
[tables.{0}]
privacy_unit = "uid"
max_rows = 1
max_groups = 1
"""
ZONED = 'columns.ts = {{ time_zone = "{0}", bounds = [{1}, {2}] }}\n'


def open_session(
    con: duckdb.DuckDBPyConnection, *tables: str, zones: dict[str, str] | None = None
) -> dpsql.Session:
    policy = HEAD + "".join(TABLE.format(name) + (zones or {}).get(name, "") for name in tables)
    return dpsql.connect(con, policy=dpsql.Policy.loads(policy))


# -- changes of clocks ----------------------------------------------------------------------------------------------

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Casablanca",
    "Asia/Kathmandu",
)
MOMENTS = 2_000


def find_changes(zone: str) -> list[datetime]:
    """The moments, to the hour, at which a zone's clocks change."""
    info, found = ZoneInfo(zone), []
    moment, last = datetime(1930, 1, 1, tzinfo=UTC), None
    while moment.year < 2037:
        offset = moment.astimezone(info).utcoffset()
        if last is not None and offset != last:
            for hour in range(24):
                before = moment - timedelta(hours=hour)
                if before.astimezone(info).utcoffset() != offset:
                    found.append(before)
                    break
        moment, last = moment + timedelta(days=1), offset
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_and_moments_around_changes_of_clocks(zone: str) -> None:
    chance, changes = random.Random(zone), find_changes(zone)
    moments = [
        chance.choice(changes) + timedelta(microseconds=chance.randrange(-4 * 3600 * 10**6, 4 * 3600 * 10**6))
        for _ in range(MOMENTS)
    ]
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    given = pa.table({"uid": range(MOMENTS), "ts": pa.array(moments, pa.timestamp("us", "UTC"))})
    con.register("given", given)
    con.execute("CREATE TABLE m AS SELECT uid, ts, CAST(ts AS TIMESTAMP) AS clock FROM given")
    con.execute(f"SET TimeZone = '{zone}'")
    # As DuckDB says with that zone set: local times, and the moments of clocks, which a change leaves out or repeats.
    con.execute(
        "CREATE TABLE t AS SELECT *, ts::TIMESTAMP AS local, ts::DATE AS day, date_trunc('day', ts::TIMESTAMP) AS midnight, "
        "hour(ts) AS h, strftime(ts, '%Y-%m-%d %H:%M:%S.%f') AS shown, clock::TIMESTAMPTZ AS back, "
        "date_trunc('month', ts::TIMESTAMP) AS month FROM m"
    )
    con.execute("CREATE TABLE z AS SELECT * FROM t")
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    with open_session(
        con, "t", "z", zones={"z": ZONED.format(zone, date(1900, 1, 1), date(2050, 1, 1))}
    ) as session:
        local = f"ts AT TIME ZONE '{zone}'"
        counts = (
            f"{local} = local", f"timezone('{zone}', ts) = local", f"({local})::DATE = day",
            f"date_trunc('day', ts, '{zone}') = midnight", f"hour({local}) = h",
            f"strftime({local}, '%Y-%m-%d %H:%M:%S.%f') = shown", f"clock AT TIME ZONE '{zone}' = back",
            f"date_trunc('month', {local}) = month",
        )  # fmt: skip
        listed = ", ".join(f"COUNT_IF({text}) AS c{i}" for i, text in enumerate(counts))
        assert session.sql(f"SELECT {listed} FROM t").fetchall() == [(MOMENTS,) * len(counts)]
        counts = (
            "ts = local", "ts::DATE = day", "date_trunc('day', ts) = midnight", "hour(ts) = h",
            "strftime(ts, '%Y-%m-%d %H:%M:%S.%f') = shown", "date_trunc('month', ts) = month",
        )  # fmt: skip
        listed = ", ".join(f"COUNT_IF({text}) AS c{i}" for i, text in enumerate(counts))
        assert session.sql(f"SELECT {listed} FROM z").fetchall() == [(MOMENTS,) * len(counts)]
        middle = sorted(moments)[MOMENTS // 2]
        for table in ("t", "z", "(SELECT * FROM z) AS z"):  # moments are compared as moments, in a fold too
            found = session.sql(
                f"SELECT COUNT(*) FROM {table} WHERE ts < $middle", {"middle": middle}
            ).fetchall()
            assert found == [(sum(moment < middle for moment in moments),)]


# -- statements -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    """Tables of hours from 2024-03-01 00:00 UTC on: ``t`` without a zone, ``z`` in Berlin's."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'America/New_York'")
    con.execute(
        "CREATE TABLE t AS SELECT i AS uid, TIMESTAMPTZ '2024-03-01 00:00:00+00' + to_hours(i::INT) AS ts, "
        "TIMESTAMP '2024-03-01 00:00:00' + to_hours(i::INT) AS clock, (1709251200 + i * 3600)::BIGINT AS seconds "
        "FROM range(600) r(i)"
    )
    con.execute("CREATE TABLE z AS FROM t")
    zones = {"z": ZONED.format("Europe/Berlin", "2024-03-01", "2024-04-01")}
    with open_session(con, "t", "z", zones=zones) as made:
        yield made


ANSWERS = (
    ("SELECT COUNT(ts) FROM t", 600),
    ("SELECT COUNT(*) FROM t WHERE ts IS NULL", 0),
    ("SELECT COUNT(DISTINCT ts) FROM t", 600),
    ("SELECT COUNT(*) FROM t WHERE ts < TIMESTAMPTZ '2024-03-05 00:00:00+00'", 96),
    ("SELECT COUNT(*) FROM t WHERE ts < TIMESTAMP WITH TIME ZONE '2024-03-05 01:00:00+01:00'", 96),
    ("SELECT COUNT(*) FROM t WHERE ts >= '2024-03-05T00:00:00Z'", 504),
    ("SELECT COUNT(*) FROM t WHERE ts BETWEEN '2024-03-05T00:00:00Z' AND '2024-03-06T00:00:00Z'", 25),
    ("SELECT COUNT(*) FROM t WHERE ts IN ('2024-03-05T00:00:00Z', '2024-03-06 02:00:00+02', '2024-03-07 00:00:00 UTC')", 3),
    ("SELECT COUNT(*) FROM t WHERE ts < $moment", 96),
    ("SELECT COUNT(*) FROM t WHERE clock < $moment", 96),
    ("SELECT COUNT(*) FROM t WHERE clock BETWEEN '2024-03-05T00:00:00Z' AND '2024-03-06T00:00:00Z'", 25),
    ("SELECT COUNT(*) FROM t WHERE clock < TIMESTAMPTZ '2024-03-05 00:00:00+00'", 96),
    ("SELECT COUNT(*) FROM t WHERE ts AT TIME ZONE 'Europe/Berlin' < '2024-03-05'", 95),
    ("SELECT COUNT(*) FROM t WHERE ts AT TIME ZONE 'europe/berlin' < '2024-03-05'", 95),
    ("SELECT COUNT(*) FROM t WHERE date_trunc('day', ts, 'Europe/Berlin') = '2024-03-05'", 24),
    ("SELECT COUNT(*) FROM t WHERE datetrunc('day', ts, 'Europe/Berlin') = '2024-03-05'", 24),
    ("SELECT COUNT(*) FROM t WHERE time_bucket(INTERVAL 1 DAY, ts AT TIME ZONE 'Europe/Berlin') = '2024-03-05'", 24),
    ("SELECT COUNT(*) FROM t WHERE clock AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' < '2024-03-05'", 95),
    ("SELECT COUNT(*) FROM t WHERE clock AT TIME ZONE 'UTC' = ts", 600),
    ("SELECT COUNT(*) FROM t WHERE to_timestamp(seconds) = ts", 600),
    ("SELECT COUNT(*) FROM t WHERE epoch_ms(seconds * 1000) = clock AND make_timestamp(seconds * 1000000) = clock", 600),
    ("SELECT COUNT(*) FROM t WHERE epoch(ts) = seconds AND epoch_ms(ts) = seconds * 1000", 600),
    ("SELECT COUNT(*) FROM t WHERE epoch_ms(clock) = epoch_ms(ts)", 600),
    ("SELECT COUNT(*) FROM t WHERE make_timestamp(2024, 3, 1, 5, 0, 0.0) = clock", 1),
    ("SELECT COUNT(*) FROM t WHERE GREATEST(ts, '2024-03-05T00:00:00Z') > '2024-03-05T00:00:00Z'", 503),
    ("SELECT COUNT(*) FROM t WHERE COALESCE(ts, '2024-03-05T00:00:00Z') > CASE WHEN uid < 9 THEN ts ELSE $moment END", 503),
    ("SELECT COUNT(*) FROM (SELECT uid, MAX(ts) AS last FROM t GROUP BY uid) WHERE last < '2024-03-05T00:00:00Z'", 96),
    ("SELECT COUNT(*) FROM (SELECT uid, lag(ts) OVER (PARTITION BY uid ORDER BY ts) AS b FROM t) WHERE b IS NULL", 600),
    ("SELECT COUNT(*) FROM t JOIN z ON t.uid = z.uid WHERE t.ts = z.ts AND z.ts < '2024-03-05T00:00:00Z'", 96),
    ("SELECT COUNT(*) FROM t WHERE ts + INTERVAL 1 DAY > '2024-03-05T00:00:00Z'", 527),
    ("SELECT COUNT(*) FROM t WHERE date_diff('hour', ts - INTERVAL 1 MONTH, ts) = 696", 600),
    ("SELECT COUNT(*) FROM t JOIN z ON t.uid = z.uid WHERE t.ts - z.ts = INTERVAL 0 HOUR", 600),
    ("SELECT COUNT(*) FROM t JOIN z ON t.uid = z.uid WHERE date_diff('minute', z.ts, t.ts + INTERVAL 1 HOUR) = 60", 600),
    ("SELECT COUNT(*) FROM z WHERE ts < '2024-03-05'", 95),
    ("SELECT COUNT(*) FROM z WHERE ts < '2024-03-05T00:00:00Z'", 96),
    ("SELECT COUNT(*) FROM z WHERE ts < $moment", 96),
    ("SELECT COUNT(*) FROM z WHERE ts < TIMESTAMPTZ '2024-03-06 00:00:00Z' - INTERVAL 1 DAY", 96),
    ("SELECT COUNT(*) FROM t WHERE ts < INTERVAL 1 DAY + TIMESTAMPTZ '2024-03-04 00:00:00Z'", 96),
    ("SELECT COUNT(*) FROM z WHERE ts - TIMESTAMPTZ '2024-03-05 00:00:00Z' < INTERVAL 0 HOUR", 96),
    ("SELECT COUNT(*) FROM z WHERE ts + INTERVAL 1 DAY < '2024-03-06'", 95),
    ("WITH a AS (SELECT * FROM z), b AS (SELECT uid, ts AS x FROM a) SELECT COUNT(*) FROM b WHERE x < $moment", 96),
    ("SELECT COUNT(*) FROM (SELECT uid, MIN(ts) AS first FROM z GROUP BY uid) WHERE first < '2024-03-05'", 95),
    ("SELECT COUNT(*) FROM z WHERE epoch(ts) = seconds", 600),
    ("SELECT COUNT(*) FROM z WHERE COALESCE(ts, '2024-03-05') < '2024-03-05'", 95),
    ("SELECT COUNT(*) FROM z WHERE date_trunc('day', ts, 'America/New_York') = '2024-03-05'", 24),
)  # fmt: skip
MOMENT = datetime(2024, 3, 5, 1, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(("text", "count"), ANSWERS)
def test_moments_are_counted_compared_and_local_in_a_zone(
    session: dpsql.Session, text: str, count: int
) -> None:
    params = {"moment": MOMENT} if "$moment" in text else None
    assert session.sql(text, params).fetchall() == [(count,)]


def test_groups_and_ends_of_local_times(session: dpsql.Session) -> None:
    for day in ("ts::DATE", "date_trunc('day', ts)", "date_trunc('day', ts, 'Europe/Berlin')"):
        options = "OPTIONS (group_selection_strategy = PUBLIC_GROUPS)"
        text = f"SELECT WITH DP {options} {day} AS day, COUNT(*) AS n FROM z GROUP BY day"
        found = {str(key)[:10]: n for key, n in session.sql(text).fetchall()}
        assert len(found) == 32
        assert [found[f"2024-03-{d:02}"] for d in (1, 2, 25, 26, 27)] == [23, 24, 24, 1, 0]
    low, high, middle = session.sql("SELECT MIN(ts), MAX(ts), MEDIAN(ts) FROM z").fetchall()[0]
    near = timedelta(minutes=5)
    assert abs(low - datetime(2024, 3, 1, 1)) < near
    assert abs(high - datetime(2024, 3, 26, 0)) < near
    assert abs(middle - datetime(2024, 3, 13, 12, 30)) < timedelta(hours=1)


REFUSED = (
    ("SELECT COUNT(*) FROM t WHERE ts::DATE = '2024-03-05'", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT COUNT(*) FROM t WHERE hour(ts) = 3", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT COUNT(*) FROM t WHERE date_trunc('day', ts) = '2024-03-05'", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT COUNT(*) FROM t WHERE date_diff('day', ts, ts) < 5", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT COUNT(*) FROM t JOIN z USING (uid) WHERE date_diff('day', z.ts, t.ts) = 0", "(t.ts AT TIME ZONE 'Europe/Berlin')"),
    ("SELECT COUNT(*) FROM t WHERE ts::VARCHAR = 'a'", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT ts, COUNT(*) FROM t GROUP BY ts", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT MIN(ts) FROM t", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT MODE(ts) FROM t", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT WITH PTR MODE(ts) FROM t", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode') MAX(ts) FROM t", "(ts AT TIME ZONE 'UTC')"),
    ("SELECT COUNT(*) FROM t WHERE ts < '2024-03-05'", "'2024-03-05T00:00:00Z'"),
    ("SELECT COUNT(*) FROM t WHERE ts < '2024-03-05 10:00:00'", "'2024-03-05 10:00:00Z'"),
    ("SELECT COUNT(*) FROM t WHERE ts < clock", "write (clock AT TIME ZONE 'UTC') instead of clock"),
    ("SELECT COUNT(*) FROM t WHERE TIMESTAMPTZ '2024-03-05' < ts", "TIMESTAMPTZ '2024-03-05 00:00:00+00'"),
    ("SELECT COUNT(*) FROM t WHERE clock::TIMESTAMPTZ < ts", "(clock AT TIME ZONE 'UTC')"),
    ("SELECT COUNT(*) FROM t WHERE ts AT TIME ZONE 'Europe/Berln' < '2024-03-05'", "did you mean 'Europe/Berlin'?"),
    ("SELECT COUNT(*) FROM t WHERE ts AT TIME ZONE 'CEST' < '2024-03-05'", "write a name such as 'Europe/Berlin'"),
    ("SELECT COUNT(*) FROM t WHERE ts AT TIME ZONE uid::VARCHAR < '2024-03-05'", "write 'Europe/Berlin'"),
    ("SELECT COUNT(*) FROM (SELECT uid, MIN(ts) AS f FROM z GROUP BY uid) WHERE f < '2024-03-05T00:00:00Z'", "a local time"),
    ("SELECT COUNT(*) FROM z WHERE ts + INTERVAL 1 HOUR < '2024-03-05T00:00:00Z'", "a local time"),
    ("SELECT COUNT(*) FROM z WHERE date_trunc('hour', ts) < '2024-03-05T00:00:00Z'", "a local time"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "hint"), REFUSED)
def test_what_needs_a_zone_is_refused_free_of_charge(session: dpsql.Session, text: str, hint: str) -> None:
    before = session.budget().spent_epsilon
    with pytest.raises(dpsql.Error) as caught:
        session.sql(text)
    assert hint in str(caught.value.hint)
    assert "OTHER" not in str(caught.value)
    assert session.budget().spent_epsilon == before


def test_an_unknown_zone_is_refused_with_and_without_rows() -> None:
    """DuckDB raises on an unknown name only where there is a row."""
    said = []
    for rows in (0, 1):
        con = duckdb.connect()
        con.execute(
            f"CREATE TABLE t AS SELECT i AS uid, TIMESTAMPTZ '2024-03-01 00:00:00+00' AS ts FROM range({rows}) r(i)"
        )
        with open_session(con, "t") as session, pytest.raises(dpsql.BindError) as caught:
            session.sql("SELECT COUNT(*) FROM t WHERE ts AT TIME ZONE 'Mars/Olympus' < '2024-03-05'")
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_each_listed_zone_is_known_to_duckdb() -> None:
    con = duckdb.connect()
    listed = ", ".join(f"timezone('{name}', ts) AS c{i}" for i, name in enumerate(TIME_ZONES.values()))
    row = con.execute(f"SELECT {listed} FROM (SELECT TIMESTAMPTZ '2024-03-01 00:00:00+00' AS ts)").fetchone()
    assert row is not None
    assert None not in row
    assert len(row) > 500


# -- policies -------------------------------------------------------------------------------------------------------


def make_tables() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i AS uid, TIMESTAMPTZ '2024-03-01 00:00:00+00' AS ts, TIMESTAMP '2024-03-01' AS clock "
        "FROM range(9) r(i)"
    )
    return con


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("columns.ts = { bounds = [2024-01-01, 2024-12-31] }", 'ts = { time_zone = "UTC", bounds = [2024-01-01, 2024-12-31] }'),
        ('columns.clock = { time_zone = "UTC" }', "remove time_zone"),
        ('columns.ts = { time_zone = "Europe/Berln" }', 'time_zone = "Europe/Berlin"'),
        ('columns.ts = { type = "DATE", time_zone = "UTC" }', "remove time_zone"),
    ],
)  # fmt: skip
def test_declarations_that_do_not_fit(line: str, says: str) -> None:
    with pytest.raises(dpsql.PolicyError) as caught:
        policy = dpsql.Policy.loads(HEAD + TABLE.format("t") + line + "\n")
        with dpsql.connect(make_tables(), policy=policy) as session:
            session.sql("SELECT COUNT(*) FROM t")
    assert says in str(caught.value.hint)
    assert "OTHER" not in str(caught.value)


def test_a_proposed_line_opens_a_session(tmp_path: Path) -> None:
    con = make_tables()
    text = str(init_policy(con, "uid"))
    proposed = re.search(r"(?m)^# (ts = \{ .* \})  +# TIMESTAMP WITH TIME ZONE", text)
    policy = dpsql.Policy.loads(HEAD + TABLE.format("t") + f"columns.{proposed[1]}\n")
    with dpsql.connect(con, policy=policy) as session:
        assert session.sql("SELECT COUNT(ts) FROM t WHERE ts < '2030-01-01'").fetchall() == [(9,)]
    file = tmp_path / "policy.toml"
    file.write_text(HEAD + TABLE.format("t") + "columns.ts = { bounds = [2024-01-01, 2024-12-31] }\n")
    report = str(check_policy(file, con))
    assert 'Write ts = { bounds = [2024-01-01, 2024-12-31], time_zone = "UTC" }' in report or (
        'Write ts = { time_zone = "UTC", bounds = [2024-01-01, 2024-12-31] }' in report
    )


# -- sources, and the zones of machines ------------------------------------------------------------------------------

SCRIPT = """
import json, sys
from datetime import datetime
import duckdb, pyarrow as pa, pyarrow.parquet
import dpsql
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.binding.test_time_zones import ask_all
print(json.dumps(ask_all(Path(sys.argv[1]))))
"""
QUESTIONS = (
    "SELECT COUNT(ts) FROM {0}",
    "SELECT COUNT(*) FROM {0} WHERE ts < '2024-03-02T00:00:00Z'",
    "SELECT COUNT(*) FROM {0} WHERE ts AT TIME ZONE 'Europe/Berlin' < '2024-03-02'",
    "SELECT COUNT(*) FROM {0} WHERE date_trunc('day', ts, 'Asia/Tokyo') = '2024-03-02'",
    "SELECT COUNT(*) FROM {0} WHERE utc < '2024-03-02'",
)


def list_moments() -> list[datetime]:
    return [datetime(2024, 3, 1, tzinfo=UTC) + timedelta(hours=i) for i in range(72)]


def ask_all(folder: Path) -> dict[str, list[int]]:
    """Answers of one table in many kinds of sources. ``utc`` is the column read as a TIMESTAMP."""
    import pandas as pd

    moments = list_moments()
    tokyo = pa.table({"uid": range(72), "ts": pa.array(moments, pa.timestamp("us", "Asia/Tokyo"))})
    pa.parquet.write_table(tokyo.append_column("utc", tokyo["ts"]), folder / "t.parquet")
    nanos = pa.timestamp("ns", "America/New_York")
    kinds = {"us": tokyo, "ns": tokyo.set_column(1, "ts", tokyo["ts"].cast(nanos))}
    texts = [m.isoformat() for m in moments]
    written = {
        "z": [text.replace("+00:00", "Z") for text in texts],
        "offset": [(m.astimezone(timezone(timedelta(hours=5, minutes=30)))).isoformat(" ") for m in moments],
        "bare": [text.replace("+00:00", "") for text in texts],
    }
    typed = 'columns.uid = { type = "INTEGER" }\\ncolumns.ts = { type = "TIMESTAMP WITH TIME ZONE" }\\n'
    typed = typed.replace("\\n", "\n")
    both = 'columns.ts = { type = "TIMESTAMP WITH TIME ZONE" }\ncolumns.utc = { type = "TIMESTAMP" }\n'
    policies, frames = [], {}
    for name, lines in written.items():
        (folder / f"{name}.csv").write_text(
            "uid,ts\n" + "".join(f"{i},{text}\n" for i, text in enumerate(lines))
        )
        policies.append((f"csv_{name}", f"source = '{folder / name}.csv'\n", typed))
    policies.append(("parquet", f"source = '{folder}/t.parquet'\n", both))
    for name, table in kinds.items():
        frames[f"arrow_{name}"] = table.append_column("utc", table["ts"])
        frames[f"pandas_{name}"] = frames[f"arrow_{name}"].to_pandas()
    frames["objects"] = pd.DataFrame(
        {"uid": range(72), "ts": pd.Series(moments, dtype=object), "utc": pd.Series(moments, dtype=object)}
    )
    policies += [(name, "", both) for name in frames]
    answers = {}

    def ask(session: dpsql.Session, name: str, utc: bool) -> None:
        asked = [text.format(name) for text in QUESTIONS if utc or "utc" not in text]
        answers[name] = [session.sql(text).fetchall()[0][0] for text in asked]

    head = HEAD
    for name, source, lines in policies:
        policy = dpsql.Policy.loads(head + TABLE.format(name) + source + lines)
        if name in frames:
            with dpsql.connect({name: frames[name]}, policy=policy) as session:
                ask(session, name, True)
        else:
            with dpsql.connect(policy=policy) as session:
                ask(session, name, not name.startswith("csv"))
    for setting in ("Asia/Kolkata", "America/Los_Angeles"):
        for temporary in ("", "TEMP "):
            con = duckdb.connect()
            con.execute(f"SET TimeZone = '{setting}'")
            con.register("given", tokyo)
            name = f"attached_{setting[:4].lower()}{'_temp' if temporary else ''}"
            con.execute(f"CREATE {temporary}TABLE {name} AS SELECT uid, ts, ts AS utc FROM given")
            policy = dpsql.Policy.loads(head + TABLE.format(name) + both)
            with dpsql.connect(con, policy=policy) as session:
                ask(session, name, True)
    return answers


def test_the_machines_zone_and_the_connections_decide_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    root = Path(__file__).parents[2]
    found = {}
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        folder = tmp_path / zone.replace("/", "_")
        folder.mkdir()
        done = run_python("-c", SCRIPT, str(folder), str(root), env={**os.environ, "TZ": zone}, check=False)
        assert done.returncode == 0, done.stderr
        found[zone] = json.loads(done.stdout)
    assert found["Asia/Tokyo"] == found["America/Los_Angeles"]
    assert len(found["Asia/Tokyo"]) == 13
    for name, counts in found["Asia/Tokyo"].items():
        assert counts == [72, 24, 23, 24, 24][: len(counts)], name


# -- texts of dates with zones, as drivers send them -------------------------------------------------------------------

DATED = {
    "'2024-01-11'": 20, "'2024-01-11 +00'": 20, "'2024-01-11 +02:00'": 20, "'2024-01-11 Z'": 20,
    "'2024-01-11 00:00:00'": 20, "'2024-01-11T00:00:00.000Z'": 20,
}  # fmt: skip
TIMED = {
    "'2024-01-11 +00'": 20,
    "'2024-01-11 +01'": 20,
    "'2024-01-11 -05'": 19,
    "to_timestamp(1704931200)": 20,
}


@pytest.fixture(scope="module")
def dated() -> Iterator[dpsql.Session]:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i AS uid, DATE '2024-01-01' + i::INT AS day, TIMESTAMP '2024-01-01' + INTERVAL (i) DAY AS ts "
        "FROM range(30) r(i)"
    )
    with open_session(con, "t") as session:
        yield session


@pytest.mark.parametrize(
    ("column", "text", "count"),
    [("day", *item) for item in DATED.items()] + [("ts", *item) for item in TIMED.items()],
)
def test_dates_with_zones(dated: dpsql.Session, column: str, text: str, count: int) -> None:
    assert dated.sql(f"SELECT COUNT(*) FROM t WHERE {column} >= {text}").fetchall() == [(count,)]


@pytest.mark.parametrize(
    "text", ["2024-01-11 12:00:00", "2024-01-11-05", "2024-01-11 05", "2024-01-11+05", "2024-01 +05"]
)
def test_texts_that_are_no_dates(dated: dpsql.Session, text: str) -> None:
    with pytest.raises(dpsql.BindError, match="is not a valid DATE"):
        dated.sql(f"SELECT COUNT(*) FROM t WHERE day >= '{text}'")
