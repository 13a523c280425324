"""Files that are added, replaced and removed while a session is open: the next statement reads what is there."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import dpsql
from dpsql.binding import bind
from dpsql.engine import sources
from tests.support import inside, served

HEAD = "[budget]\nepsilon = 1e9\naccountant = 'basic'\ndefault_epsilon = 1e6\n"
TYPES = {"unit": "BIGINT", "amount": "DOUBLE", "day": "BIGINT"}
TYPED = "".join(f"columns.{name}.type = '{kind}'\n" for name, kind in TYPES.items())
COUNT = "SELECT COUNT(*) AS n, SUM(amount) AS s FROM visits"


def write_policy(folder: Path, source: str, more: str = "") -> Path:
    path = folder / "policy.toml"
    table = f"[tables.visits]\nsource = '{source}'\nprivacy_unit = 'unit'\nmax_rows = 3\ncolumns.amount.bounds = [0, 40]\n"
    path.write_text(f"{HEAD}{table}{TYPED}{more}")
    return path


def rows(night: int) -> pa.Table:
    """A night's ten rows of ten people, each of amount 2."""
    return pa.table({"unit": range(10 * night, 10 * night + 10), "amount": [2.0] * 10, "day": [night] * 10})


def _parquet(folder: Path, night: int) -> None:
    pyarrow.parquet.write_table(rows(night), folder / f"part-{night}.parquet")


def _hive(folder: Path, night: int) -> None:
    home = folder / f"day={night}"
    home.mkdir()
    pyarrow.parquet.write_table(rows(night).drop_columns(["day"]), home / "part.parquet")


def _csv(folder: Path, night: int) -> None:
    pyarrow.csv.write_csv(rows(night), folder / f"part-{night}.csv")


def _csv_gz(folder: Path, night: int) -> None:
    pyarrow.csv.write_csv(rows(night), folder / "one.tmp")
    (folder / f"part-{night}.csv.gz").write_bytes(gzip.compress((folder / "one.tmp").read_bytes()))


def _jsonl(folder: Path, night: int) -> None:
    written = "\n".join(json.dumps(row) for row in rows(night).to_pylist())
    (folder / f"part-{night}.jsonl").write_text(written)


def _feather(folder: Path, night: int) -> None:
    pyarrow.feather.write_feather(rows(night), str(folder / f"part-{night}.feather"))


FOLDERS: dict[str, Callable[[Path, int], None]] = {
    "*.parquet": _parquet,
    "day=*/*.parquet": _hive,
    "**/*.parquet": _hive,
    "*.csv": _csv,
    "*.csv.gz": _csv_gz,
    "*.jsonl": _jsonl,
    "*.feather": _feather,
}


def ask(session: Any, text: str = COUNT, **more: Any) -> tuple[Any, ...]:
    ((count, total),) = session.sql(text, **more).fetchall()
    return round(count), round(total, 1)


def spent(session: Any) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


@pytest.mark.parametrize("pattern", FOLDERS)
def test_a_folder_that_grows_is_read_without_reopening(tmp_path: Path, pattern: str) -> None:
    write = FOLDERS[pattern]
    write(tmp_path, 0)
    with dpsql.connect(policy=write_policy(tmp_path, pattern)) as session:
        assert ask(session) == (10, 20)
        assert ask(session) == (10, 20)
        assert spent(session) == 1e6
        for night in (1, 2):
            write(tmp_path, night)
            assert "stored" not in str(session.explain(COUNT)).split("\n")[0]
            assert ask(session) == (10 * night + 10, 20 * night + 20)  # no stored answer of the old data
            assert spent(session) == (night + 1) * 1e6
            assert ask(session) == (10 * night + 10, 20 * night + 20)
            assert spent(session) == (night + 1) * 1e6
        last = f"SELECT COUNT(*), SUM(amount) FROM visits WHERE day = {night}"
        assert ask(session, last) == (10, 20)
    with dpsql.connect(policy=tmp_path / "policy.toml") as session:  # the ledger goes on
        assert ask(session) == (30, 60)
        assert spent(session) == 4e6


def test_answers_of_the_old_data_are_stored_for_the_old_data(tmp_path: Path) -> None:
    _parquet(tmp_path, 0)
    with dpsql.connect(policy=write_policy(tmp_path, "*.parquet")) as session:
        assert ask(session) == (10, 20)
        _parquet(tmp_path, 1)
        assert ask(session) == (20, 40)
        os.rename(tmp_path / "part-1.parquet", tmp_path / "away")
        assert ask(session) == (10, 20)
        assert spent(session) == 2e6  # the first answer again
        os.rename(tmp_path / "part-0.parquet", tmp_path / "more")
        for _ in range(2):
            with pytest.raises(dpsql.PolicyError, match="have changed, and can't be read"):
                session.sql(COUNT, fresh=True)
        os.rename(tmp_path / "away", tmp_path / "part-0.parquet")
        assert ask(session) == (10, 20)
        assert spent(session) == 3e6


@pytest.mark.parametrize("broken", [b"", b"PAR1 but half", b"unit,amount"])
def test_a_file_that_is_half_written_is_refused_for_free(tmp_path: Path, broken: bytes) -> None:
    _parquet(tmp_path, 0)
    with dpsql.connect(policy=write_policy(tmp_path, "*.parquet")) as session:
        assert ask(session) == (10, 20)
        (tmp_path / "part-1.parquet").write_bytes(broken)
        for _ in range(2):
            with pytest.raises(dpsql.PolicyError, match="have changed, and can't be read"):
                session.sql(COUNT, fresh=True)
        _parquet(tmp_path, 1)
        assert ask(session) == (20, 40)
        assert spent(session) == 2e6


def test_one_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    """With other columns and types, too: they are the file's own."""
    path = tmp_path / "v.parquet"
    pyarrow.parquet.write_table(rows(0), path)
    policy = tmp_path / "policy.toml"
    policy.write_text(f"{HEAD}[tables.visits]\nsource = 'v.parquet'\nprivacy_unit = 'unit'\nmax_rows = 3\n")
    with dpsql.connect(policy=policy) as session:
        assert session.sql("SELECT COUNT(*) FROM visits WHERE amount > 1").fetchone() == (10,)
        table = (
            rows(1).set_column(1, "amount", pa.array(["x"] * 10)).append_column("more", pa.array([1] * 10))
        )
        pyarrow.parquet.write_table(table, tmp_path / "next")
        os.replace(tmp_path / "next", path)
        assert session.sql("SELECT COUNT(*) FROM visits WHERE amount = 'x' AND more = 1").fetchone() == (10,)
        assert "more" in session.columns("visits")


def test_public_files_kept_results_and_frames_beside(tmp_path: Path) -> None:
    _parquet(tmp_path, 0)
    (tmp_path / "kinds.csv").write_text("day,name\n0,zero\n")
    more = "[tables.kinds]\npublic = true\nsource = 'kinds.csv'\ncolumns.day.type = 'BIGINT'\ncolumns.name.type = 'VARCHAR'\n"
    more += "[tables.people]\nprivacy_unit = 'unit'\nmax_rows = 1\n"
    policy = write_policy(tmp_path, "*.parquet", more)
    people = pa.table({"unit": range(7)})
    named = "SELECT name, COUNT(visits.unit) AS n FROM kinds LEFT JOIN visits USING (day) GROUP BY name ORDER BY name"
    with dpsql.connect({"people": people}, policy=policy, ledger=tmp_path / "l") as session:
        session.sql("out << SELECT COUNT(*) AS n FROM people")
        assert session.sql("SELECT * FROM kinds").fetchall() == [(0, "zero")]
        assert session.sql(named).fetchall() == [("zero", 10)]
        (tmp_path / "kinds.csv").write_text("day,name\n0,zero\n1,one\n")
        _parquet(tmp_path, 1)
        assert session.sql("SELECT * FROM kinds ORDER BY day").fetchall() == [(0, "zero"), (1, "one")]
        assert session.sql(named).fetchall() == [("one", 10), ("zero", 10)]
        assert session.sql("SELECT n FROM out").fetchall() == [(7,)]
        paid = spent(session)
        assert session.sql("SELECT COUNT(*) AS n FROM people").fetchall() == [(7,)]
        assert spent(session) == paid  # its rows have not changed


def test_plans_stay_and_files_are_described_once_while_only_private_rows_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[str] = []
    described: list[str] = []
    for module, name, found in ((bind, "_bind", bound), (sources, "describe_relation", described)):
        was = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, was=was, found=found, **k: (found.append(str(a[1])), was(*a, **k))[1]
        )
    for night in range(3):
        _parquet(tmp_path, night)
    (tmp_path / "kinds.csv").write_text("day,name\n0,zero\n")
    kinds = "[tables.kinds]\npublic = true\nsource = 'kinds.csv'\ncolumns.day.type = 'BIGINT'\ncolumns.name.type = 'VARCHAR'\n"
    with dpsql.connect(policy=write_policy(tmp_path, "*.parquet", kinds)) as session:
        assert ask(session) == (30, 60)
        assert (len(bound), sum(".parquet" in text for text in described)) == (1, 3)
        _parquet(tmp_path, 3)
        assert ask(session) == (40, 80)
        assert (len(bound), sum(".parquet" in text for text in described)) == (1, 4)
        (tmp_path / "kinds.csv").write_text("day,name\n0,none\n")
        assert ask(session) == (40, 80)
        assert len(bound) == 2  # public rows have changed
        wider = rows(4).append_column("more", pa.array([1] * 10))
        pyarrow.parquet.write_table(wider, tmp_path / "part-3.parquet")
        assert ask(session) == (40, 80)
        assert len(bound) == 2  # a column that the policy doesn't have


def test_files_beside_an_open_connection(tmp_path: Path) -> None:
    _csv(tmp_path, 0)
    with duckdb.connect() as con, dpsql.connect(con, policy=write_policy(tmp_path, "*.csv")) as session:
        assert ask(session) == (10, 20)
        _csv(tmp_path, 1)
        assert ask(session) == (20, 40)


def test_a_plan_is_declared_and_run_over_the_same_files(tmp_path: Path) -> None:
    _parquet(tmp_path, 0)
    with dpsql.connect(policy=write_policy(tmp_path, "*.parquet")) as session:
        with session.plan() as plan:
            first = plan.sql(COUNT)
            _parquet(tmp_path, 1)
            second = plan.sql("SELECT COUNT(*) FROM visits WHERE day = 1")
        assert first.fetchall()[0][0] == 10
        assert second.fetchall() == [(0,)]
        with pytest.raises(dpsql.BindError, match="have changed since"), session.plan() as plan:
            plan.sql(COUNT)
            _parquet(tmp_path, 2)
            assert ask(session) == (30, 60)
        assert spent(session) == 3e6


def test_nothing_is_read_again_while_another_cell_is_asked(tmp_path: Path) -> None:
    _parquet(tmp_path, 0)
    with dpsql.connect(policy=write_policy(tmp_path, "*.parquet")) as session:
        line = session._pipeline
        opened, seen = threading.Event(), threading.Event()

        def hold() -> None:
            with line.asking(), line.turn.give_up():
                opened.set()
                seen.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        opened.wait(20)
        _parquet(tmp_path, 1)
        assert ask(session) == (10, 20)
        seen.set()
        thread.join()
        assert ask(session) == (20, 40)


def test_a_look_costs_little_and_hashes_new_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for night in range(3):
        _parquet(tmp_path, night)
    hashed: list[str] = []
    with dpsql.connect(policy=write_policy(tmp_path, "*.parquet")) as session:
        engine = inside.engine(session)
        fingerprint = engine._fingerprint
        monkeypatch.setattr(engine, "_fingerprint", lambda: (hashed.append(""), fingerprint()))
        for _ in range(3):
            ask(session)
        assert not hashed
        _parquet(tmp_path, 3)
        assert ask(session) == (40, 80)
        assert len(hashed) == 1


def test_a_server_reads_a_folder_that_grows(tmp_path: Path) -> None:
    """Its analysts see neither the names of files nor of columns that can't be read."""
    data = tmp_path / "data"
    data.mkdir()
    _csv(data, 0)
    table = "[tables.visits]\nsource = 'data/*.csv'\nprivacy_unit = 'unit'\nmax_rows = 3\n"
    table += f"columns.amount.bounds = [0, 40]\n{TYPED}"
    policy = served.write_policy(tmp_path, {"ada": 1e9}, "", HEAD, table)
    with served.ServerProcess(policy) as server:
        token = served.make_token(policy, "ada")
        with dpsql.connect(server.url, token=token) as session:
            assert ask(session) == (10, 20)
            _csv(data, 1)
            assert str(session.explain(COUNT)).startswith("Would cost ε=")
            assert ask(session) == (20, 40)
            (data / "secret.csv").write_text("unit,amounts\n1,2\n")
            with pytest.raises(dpsql.PolicyError) as caught:
                session.sql(COUNT)
            assert "secret" not in "".join(caught.value.lines())
            assert "amount" not in "".join(caught.value.lines())
            os.remove(data / "secret.csv")
            assert ask(session) == (20, 40)
