"""Files that tables are read from: their names, and whether they are still what they were."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.policy import Table


def found(table: Table, base: Path) -> list[str]:
    """The files of a source by their real names, in order. A relative source starts from ``base``.

    Raises:
        PolicyError: there is none.
    """
    pattern = os.path.expanduser(table.source or "")
    if not os.path.isabs(pattern):
        pattern = str(base.resolve() / pattern)
    paths = sorted(os.path.realpath(path) for path in glob.glob(pattern, recursive=True))
    if not paths:
        raise PolicyError(
            f"the source {table.source} of {table.name} does not exist.",
            hint=f"relative sources start from {base}.",
        )
    return paths


def stamps(paths: Iterable[str]) -> list[str]:
    """A line per file that is there, which changes when the file does."""
    lines = []
    for path in sorted(paths):
        try:
            stat = os.stat(path)
        except OSError:
            continue
        lines.append(f"{path}:{stat.st_size}:{stat.st_mtime_ns}")
    return lines
