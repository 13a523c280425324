"""Spilled rows are private: nobody else may read them, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engine import base
from dpsql.engine.base import SPILL_PREFIX, SpillDirectory
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import PolicyError
from dpsql.policy.model import Policy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and signals are those of POSIX")

POLICY = Policy.loads(
    """
budget = { epsilon = 10 }
[tables]
visits = { source = "visits.parquet", privacy_unit = "unit", max_rows = 1 }
"""
)
SPILLING = "SELECT COUNT(*) AS n FROM (SELECT unit, note, COUNT(*) FROM visits GROUP BY ALL) AS t"
CHILD = """
import sys
from pathlib import Path
from tests.engine.test_spill import POLICY, SPILLING
from dpsql.engine.duckdb import DuckDBEngine
data, place = map(Path, sys.argv[1:])
engine = DuckDBEngine(":memory:", POLICY, data, {"memory_limit": "100MiB", "threads": 1, "temp_directory": str(place)})
visits = engine.relation(POLICY.tables["visits"])
print("ready", flush=True)
for _ in range(1000):
    engine.execute(SPILLING.replace("visits", visits))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    duckdb.sql(
        "COPY (SELECT i AS unit, md5(i::VARCHAR) AS note FROM range(1500000) AS t(i)) "
        f"TO '{folder / 'visits.parquet'}' (FORMAT parquet)"
    )
    return folder


@pytest.fixture
def umask() -> Iterator[None]:
    """The one that closes nothing: what is private is private by its own mode."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter, as /tmp is; tests' own are closed already."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def spilled(place: Path) -> list[Path]:
    return [path for path in place.rglob("*.tmp") if path.is_file() and path.stat().st_size]


def closed_above(path: Path, top: Path) -> bool:
    """Return whether a directory between keeps everybody else out."""
    between = [parent for parent in path.parents if parent.is_relative_to(top) and parent != top]
    return any(stat.S_IMODE(parent.stat().st_mode) == 0o700 for parent in between)


def read_by_others(path: Path) -> bool | None:
    """Return whether another user of the machine can read a file; None where this process can't become one."""
    if os.geteuid() != 0:
        return None
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            path.read_bytes()
            os._exit(1)
        except OSError:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_spilled_rows_are_private_also_after_a_kill(data: Path, place: Path, umask: None) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, str(data), str(place)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    try:
        assert child.stdout.readline() == b"ready\n"
        while child.poll() is None and not spilled(place):
            time.sleep(0.01)
        assert spilled(place), "it was to spill"
        (directory,) = (path for path in place.iterdir() if path.is_dir())
        alive = SpillDirectory(place)  # a second process sweeps nothing of one that runs
        assert directory.exists()
        assert alive.path != directory
        alive.close()
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    (directory,) = (path for path in place.iterdir() if path.is_dir())
    for file in place.rglob("*"):
        assert file == directory or file.suffix == ".lock" or closed_above(file, place), file
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    left = [path for path in directory.rglob("*") if path.is_file()]
    assert left, "a kill leaves something behind, else this shows nothing"
    assert not any(read_by_others(file) for file in left)
    policy = Policy.loads("[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = 'u'\nmax_rows = 1")
    frames = {"t": pa.table({"u": [1]})}
    with dpsql.connect(frames, policy=policy, resources={"temp_directory": str(place)}):
        assert not directory.exists()
    assert list(place.iterdir()) == []


def test_the_check_can_fail(data: Path, place: Path, umask: None) -> None:
    """Files that DuckDB itself spills can be read by others."""
    config = {"memory_limit": "100MiB", "threads": "1", "temp_directory": str(place / "its own")}
    with duckdb.connect(config=config) as con:
        rows = con.execute(
            SPILLING.replace("COUNT(*) AS n", "*").replace("visits", f"'{data}/visits.parquet'")
        )
        rows.fetchmany(1)  # the query stays open, and with it what it spilled
        files = spilled(place)
        assert files
        assert not any(closed_above(file, place) for file in files)
        assert all(read_by_others(file) in (True, None) for file in files)


def test_nothing_stays_when_a_session_ends(data: Path, tmp_path: Path) -> None:
    resources = {"memory_limit": "100MiB", "threads": 1, "temp_directory": str(tmp_path / "a" / "b")}
    engine = DuckDBEngine(":memory:", POLICY, data, resources)
    rows = engine.execute(SPILLING.replace("visits", engine.relation(POLICY.tables["visits"])))
    assert rows.to_pylist() == [{"n": 1_500_000}]
    (directory,) = (path for path in (tmp_path / "a" / "b").iterdir() if path.is_dir())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    engine.close()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_without_a_place_it_is_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: None
) -> None:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    policy = Policy.loads("[budget]\nepsilon = 1\n[tables.t]\npublic = true")
    with dpsql.connect({"t": pa.table({"u": [1, 2]})}, policy=policy) as session:
        assert session.sql("SELECT SUM(u) AS s FROM t").fetchall() == [(3,)]
        found = [path for path in (tmp_path / "state" / "spill").iterdir() if path.is_dir()]
        assert found
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in found)
        modes = {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "state").rglob("*") if p.is_file()}
        assert modes == {0o600}
    assert list((tmp_path / "state" / "spill").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["state"], "nothing where the process runs"


def test_a_place_that_can_not_be_is_refused_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PolicyError, match="create a directory for spilled rows below") as told:
        base.make_spill_directory(str(tmp_path / "file" / "below"))
    assert told.value.hint is not None
    assert "temp_directory" in told.value.hint


def test_a_forked_process_neither_removes_nor_keeps(tmp_path: Path) -> None:
    """A child that outlives its parent holds no lock of it; and one that ends removes nothing of its parent's."""
    directory = SpillDirectory(tmp_path)
    child = os.fork()
    if child == 0:
        directory.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert directory.path.is_dir()
    sleeper = subprocess.Popen(
        [
            sys.executable, "-c",
            "import os, sys, time\nfrom dpsql.engine.base import SpillDirectory\n"
            f"d = SpillDirectory({str(tmp_path)!r})\n"
            "if os.fork() == 0:\n    os.close(1)\n    time.sleep(60)\n    os._exit(0)\n"
            "print(d.path, flush=True)\nos.kill(os.getpid(), 9)\n",
        ],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )  # fmt: skip
    try:
        left = Path(sleeper.stdout.readline().decode().strip())
        sleeper.communicate()
        assert left.is_dir()
        SpillDirectory(tmp_path).close()
        assert not left.exists()
        assert directory.path.is_dir()
    finally:
        os.killpg(sleeper.pid, signal.SIGKILL)
    directory.close()
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_a_shared_place_leads_nowhere(tmp_path: Path) -> None:
    """Somebody else may put names of ours into a shared directory: what they point to stays."""
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "letters").write_text("mine")
    place = tmp_path / "shared"
    place.mkdir()
    (place / f"{SPILL_PREFIX}0").symlink_to(treasure)
    (place / f"{SPILL_PREFIX}0.lock").write_text("")
    (place / f"{SPILL_PREFIX}1.lock").symlink_to(treasure / "letters")
    SpillDirectory(place).close()
    assert (treasure / "letters").read_text() == "mine"


def test_without_locks_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f"{SPILL_PREFIX}0"
    left.mkdir()
    left.with_name(left.name + ".lock").write_text("")

    def refuse(*given: object) -> None:
        raise OSError("no locks here")

    assert base.fcntl is not None
    monkeypatch.setattr(base.fcntl, "flock", refuse)
    SpillDirectory(tmp_path).close()
    assert left.exists()
    monkeypatch.undo()
    SpillDirectory(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
