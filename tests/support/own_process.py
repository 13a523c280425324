"""One statement in a process of its own under a memory limit: seconds, the peak of the process, and the bytes that it spilled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHILD = """
import json, os, resource, sys, threading, time
import dpsql
import dpsql.session.session
place, policy, limit, statements = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
most = [0]
def watch():
    while True:
        time.sleep(PAUSE)
        size = 0
        for root, _, names in os.walk(place):
            for name in names:
                try:
                    size += os.stat(os.path.join(root, name)).st_blocks * 512
                except OSError:
                    pass
        most[0] = max(most[0], size)
threading.Thread(target=watch, daemon=True).start()
def written():
    # All bytes that it wrote, where Linux tells: the thread that watches may be late for what is there briefly.
    try:
        with open("/proc/self/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("wchar"))
    except OSError:
        return 0
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)
found = {}
resources = {"memory_limit": limit, "temp_directory": place, **MORE}
with dpsql.connect(policy=policy, resources=resources) as session:
    before = peak()
    for name, text in statements.items():
        most[0], start, wrote = 0, time.monotonic(), written()
        result = session.sql(text, fresh=True)
        row = [str(v) for v in result.fetchone() or ()]
        wrote = written() - wrote
        if not most[0] and wrote > 2**20:
            most[0] = wrote
        found[name] = {"row": row, "rows": len(result), "spilled": most[0], "peak": peak() - before,
                       "whole": peak(), "seconds": round(time.monotonic() - start, 1)}
print("\\n" + json.dumps(found), flush=True)
os._exit(0)
"""
"""What such a process runs; its peak is that of the whole process, and what a statement added to what it began with."""


def run_python(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in a process of its own, and return what it prints; ``more`` is subprocess.run's."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **more)


def run_apart(
    folder: Path,
    policy: Path,
    limit: int,
    statements: dict[str, str],
    pause: float = 0.002,
    seconds: float | None = None,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run statements in one process, which prints in its last line what it found of each.

    Args:
        folder: what is spilled goes to ``spilled`` in it.
        policy: the owner's declaration.
        limit: bytes that DuckDB may take.
        statements: by their names.
        pause: seconds between looks at what is spilled.
        seconds: the most that it may take.
        more: of the resources.
    """
    script = CHILD.replace("PAUSE", repr(pause)).replace("MORE", repr(more))
    given = [str(folder / "spilled"), str(policy), f"{limit >> 20}MiB", json.dumps(statements)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return run_python("-c", script, *given, timeout=seconds, env=environment)


def read_found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what such a process found; around it may stand what the engine shows of its progress."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1])
    return found
