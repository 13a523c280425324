"""The confinement of a worker by the operating system, tried in processes that confine themselves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dpsql.policy.model import Policy
from dpsql.server import worker_process
from dpsql.server.isolation import ADDRESS_SPACE, MemoryGroups, list_readable, list_unconfined
from dpsql.server.worker_process import WorkerProcess, WorkerSetup
from tests.support.own_process import run_python
from tests.support.served import write_data, write_policy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
MEMORY = 512 << 20


def confined(code: str, memory: str = str(MEMORY)) -> Any:
    """Run code in a process that has confined itself; it prints JSON."""
    text = f"from dpsql.server.isolation import *\nimport json\nheld = confine({memory})\n" + textwrap.dedent(
        code
    )
    done = run_python("-c", text, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_socket_can_be_made() -> None:
    said = confined("""
        import errno, socket, subprocess, sys
        found = []
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
            try:
                socket.socket(family).close()
                found.append("made")
            except OSError as error:
                found.append(errno.errorcode[error.errno])
        child = subprocess.run([sys.executable, "-c", "import socket; socket.socket()"], capture_output=True)
        pair = socket.socketpair()
        pair[0].sendall(b"x")
        print(json.dumps([held, found, child.returncode, pair[1].recv(1).decode()]))
        """)
    held, found, child, through = said
    if "filter" not in held["network"]:
        pytest.skip("this system filters no calls")
    assert found == ["EACCES"] * 3
    assert child == 1, "what it starts is filtered too"
    assert through == "x", "the socket that it has works"


def test_the_network_is_empty() -> None:
    said = confined("""
        from pathlib import Path
        lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
        print(json.dumps([held, [line.split(":")[0].strip() for line in lines]]))
        """)
    if "namespace" not in said[0]["network"]:
        pytest.skip("this system makes no namespaces")
    assert set(said[1]) <= {"lo"}


def test_memory_of_other_processes_stays_closed() -> None:
    said = confined("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print(json.dumps([held, libc.ptrace(16, os.getppid(), 0, 0), ctypes.get_errno()]))
        """)
    if not said[0]["peeking"]:
        pytest.skip("this system filters no calls")
    assert said[1:] == [-1, 13]


def test_memory_files_and_core_dumps_are_bounded() -> None:
    said = confined(f"""
        import resource
        try:
            bytearray({ADDRESS_SPACE + 2 * MEMORY})
            told = "allocated"
        except MemoryError:
            told = "refused"
        limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]
        print(json.dumps([held["memory"], told, limits]))
        """)
    assert said[:2] == ["address space", "refused"]
    assert said[2][0] == 0
    assert said[2][1] <= 1024


def test_a_cgroup_bounds_memory_alone() -> None:
    said = confined(
        "import resource\nprint(json.dumps([held['memory'], resource.getrlimit(resource.RLIMIT_AS)[0]]))",
        "None",
    )
    assert said == ["cgroup", -1]


def test_processor_time_ends() -> None:
    code = """
        from dpsql.server.isolation import *
        confine(None)
        bound_processor_time(0.2)
        while True:
            pass
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=240)
    assert done.returncode < 0


def test_what_is_missing_is_told() -> None:
    assert list_unconfined({"memory": "cgroup", "network": "filter", "peeking": "filter"}, 512) == []
    assert len(list_unconfined({"memory": "", "network": "", "peeking": ""}, 512)) == 3
    mapped = list_unconfined({"memory": "address space", "network": "x", "peeking": "x"}, 512)
    assert "512 + 4,096 MiB" in mapped[0]


def test_files_that_others_can_read_are_listed() -> None:
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        for file in ("a.parquet", "b.parquet"):
            (folder / file).touch(0o600)
        pattern = str(folder / "*.parquet")
        folder.chmod(0o711)
        assert list_readable([pattern, ":memory:"]) == []
        (folder / "a.parquet").chmod(0o604)
        (folder / "b.parquet").chmod(0o640)
        assert list_readable([pattern]) == [str(folder / "a.parquet"), str(folder / "b.parquet")]
        folder.chmod(0o710)
        assert list_readable([pattern]) == [str(folder / "b.parquet")], "others can't enter the folder"
        folder.chmod(0o700)
        assert list_readable([pattern]) == []


class FakeGroups:
    """A folder that stands for the system's groups; like there, a group is removed as long as it holds no group."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, controllers: str = "cpu memory"
    ) -> None:
        self.own = folder / "groups" / "user" / "service"
        self.own.mkdir(parents=True)
        (self.own / "cgroup.controllers").write_text(controllers)
        self.membership = folder / "membership"
        self.membership.write_text("4:memory:/old\n0::/user/service\n")
        monkeypatch.setattr(Path, "rmdir", lambda group: shutil.rmtree(group))

    def open(self) -> MemoryGroups:
        return MemoryGroups(self.own.parents[1], self.membership)

    def workers(self) -> list[Path]:
        return sorted(self.own.glob("worker-*"))

    def wait_until_empty(self) -> None:
        end = time.monotonic() + 60
        while self.workers():
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    return FakeGroups(tmp_path, monkeypatch)


def start_worker(tmp_path: Path, groups: MemoryGroups) -> WorkerProcess:
    write_data(tmp_path, 100)
    policy = write_policy(tmp_path, {"ada": 5}, "max_memory_mb = 700")
    rules = Policy.load(policy).server
    return WorkerProcess(WorkerSetup(policy.read_text(), policy.name, tmp_path, ":memory:", rules), groups)


def test_the_front_moves_and_a_worker_has_a_group_of_its_own(tmp_path: Path, groups: FakeGroups) -> None:
    opened = groups.open()
    assert (groups.own / "front" / "cgroup.procs").read_text() == str(os.getpid())
    assert (groups.own / "cgroup.subtree_control").read_text() == "+memory"
    worker = start_worker(tmp_path, opened)
    try:
        (group,) = groups.workers()
        assert (group / "memory.max").read_text() == str(700 << 20)
        assert (group / "memory.swap.max").read_text() == "0"
        assert (group / "memory.oom.group").read_text() == "1"
        assert (group / "cgroup.procs").read_text() == str(worker.pid)
        worker.wait_until_ready()
        assert worker.held["memory"] == "cgroup"
        limits = Path(f"/proc/{worker.pid}/limits").read_text()
        assert re.search(r"Max address space +unlimited", limits), "the group bounds it, and nothing else"
    finally:
        worker.close()
    groups.wait_until_empty()


@pytest.mark.parametrize("controllers", ["", "cpu io"])
def test_without_the_memory_controller_the_address_space_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: str
) -> None:
    groups = FakeGroups(tmp_path, monkeypatch, controllers)
    assert groups.open().make(5) is None
    assert not (groups.own / "front").exists(), "the front stays where it is"


def refuse_to_write(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    """Let files of a name refuse to be written from now on."""
    write = Path.write_text

    def refuse(path: Path, text: str, *given: object, **named: object) -> int:
        if path.name == name:
            raise OSError(why)
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)


def test_a_group_that_can_t_be_made_leaves_no_worker_without_a_bound(
    tmp_path: Path, groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = groups.open()
    refuse_to_write(monkeypatch, "memory.max", "read only")
    worker = start_worker(tmp_path, opened)
    try:
        worker.wait_until_ready()
        assert worker.held["memory"] == "address space"
        groups.wait_until_empty()
    finally:
        worker.close()


def test_a_system_that_can_not_fork_starts_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_find_fork_server", lambda: None)
    worker = start_worker(tmp_path, MemoryGroups(tmp_path, tmp_path / "none"))
    try:
        worker.wait_until_ready()
        assert worker.held["memory"] == "address space"
    finally:
        worker.close()


def test_a_forked_worker_has_its_own_zone_and_session(tmp_path: Path) -> None:
    worker = start_worker(tmp_path, MemoryGroups(tmp_path, tmp_path / "none"))
    try:
        worker.wait_until_ready()
        assert os.getsid(worker.pid) == os.getpgid(worker.pid) == worker.pid
        held = {os.readlink(file) for file in Path(f"/proc/{worker.pid}/fd").iterdir() if file.exists()}
        assert sum(name.startswith("socket:") for name in held) == 1, "the front's alone"
        if os.getuid() == 0 or "namespace" in worker.held["network"]:
            assert worker.held["network"] == "namespace and filter"
    finally:
        worker.close()


def test_a_worker_that_can_t_enter_its_group_is_not_used(
    tmp_path: Path, groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = groups.open()
    refuse_to_write(monkeypatch, "cgroup.procs", "busy")
    with pytest.raises(OSError, match="busy"):
        start_worker(tmp_path, opened)
    groups.wait_until_empty()


def test_a_worker_stands_back_for_the_front_and_its_threads_for_replies() -> None:
    said = confined("""
        import os, threading, time
        before = os.getpriority(os.PRIO_PROCESS, 0)
        yield_to_front()
        go_on = threading.Event()
        thread = threading.Thread(target=go_on.wait)
        thread.start()
        known = set()
        for _ in range(3):
            yield_to_this_thread(known)
        nice = [os.getpriority(os.PRIO_PROCESS, number) for number in (0, thread.native_id)]
        go_on.set()
        print(json.dumps([before, os.sched_getscheduler(0), *nice]))
        """)
    before, kind, mine, other = said
    if kind == 0:
        assert mine == min(19, before + 5)
        assert other == min(19, mine + 5), "once, however often it is told"


def test_nobody_waits_until_a_killed_worker_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To free what it held takes a time that tells how much that was, and a reply would leave later."""
    worker = start_worker(tmp_path, MemoryGroups(tmp_path, tmp_path / "none"))
    go_on, waited = threading.Event(), threading.Event()
    wait = worker._process.wait

    def linger(seconds: float) -> int:
        assert go_on.wait(60)
        waited.set()
        return wait(seconds)

    monkeypatch.setattr(worker._process, "wait", linger)
    worker.kill()
    worker.close()
    assert not waited.is_set()
    assert not worker.is_alive
    go_on.set()
    assert waited.wait(60)
