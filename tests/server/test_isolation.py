"""The confinement of a worker by the operating system, tried in processes that confine themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from dpsql.server.isolation import ADDRESS_SPACE, list_unconfined

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
MEMORY = 512 << 20


def confined(code: str, memory: str = str(MEMORY)) -> Any:
    """Run code in a process that has confined itself; it prints JSON."""
    text = f"from dpsql.server.isolation import *\nimport json\nheld = confine({memory})\n" + textwrap.dedent(
        code
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
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
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=60)
    assert done.returncode < 0


def test_what_is_missing_is_told() -> None:
    assert list_unconfined({"memory": "cgroup", "network": "filter", "peeking": "filter"}) == []
    assert len(list_unconfined({"memory": "", "network": "", "peeking": ""})) == 3
    assert "address space" in list_unconfined({"memory": "address space", "network": "x", "peeking": "x"})[0]
