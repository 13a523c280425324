"""Cases in text files: each has lines ``-- key: value``, a statement, and below a rule what must come of it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OURS = re.compile(
    r"\b_?dpsql_\w+|\bDPSQL_\w+|\bTokenType\b|<class\b|\b[bck]\d+\b|\bvalueslist\b|values list", re.ASCII
)


def internal_names(said: str, text: str) -> list[str]:
    """Names of exact SQL, of sqlglot and of its tokens in what is said about a text that does not have them itself."""
    return [name for name in _OURS.findall(said) if name not in text]


@dataclass
class Case:
    """One statement, and what is expected of it; ``ruled`` where its file says so."""

    path: Path
    index: int
    keys: dict[str, str]
    text: str
    expected: str
    ruled: bool = True

    @property
    def params(self) -> dict[str, Any] | None:
        return json.loads(self.keys["params"]) if "params" in self.keys else None

    def __str__(self) -> str:
        return f"{self.path.stem}: {self.keys.get('case', self.index)}"


def read_cases(path: Path, known: Collection[str]) -> Iterator[Case]:
    """Yield the cases of a file; a key that is written twice has both texts."""
    for index, chunk in enumerate(path.read_text(encoding="utf-8").split("\n====\n")):
        head, rule, expected = chunk.strip("\n").partition("\n----")
        lines = head.split("\n")
        keys: dict[str, str] = {}
        while lines and lines[0].startswith("-- ") and lines[0][3:].partition(":")[0] in known:
            key, _, value = lines.pop(0)[3:].partition(":")
            keys[key] = f"{keys[key]} {value.strip()}" if key in keys else value.strip()
        yield Case(path, index, keys, "\n".join(lines), expected.strip("\n"), bool(rule))


def read_part(test: str, part: str) -> list[str]:
    """Return the statements of a part of the ``.sql`` file beside a test: one a line; what is indented continues a statement.

    A part begins with ``== its name``; a line that begins with ``--`` is a remark.
    """
    path = Path(test)
    path = path.with_name(f"{path.stem.removeprefix('test_')}.sql")
    found = re.search(rf"(?ms)^== {re.escape(part)}\n(.*?)(?=^== |\Z)", path.read_text(encoding="utf-8"))
    assert found, f"{path} has no part {part}"
    remarks = re.sub(r"(?m)^--.*\n", "", found[1])
    return [text for text in re.split(r"\n(?! )", remarks.strip("\n")) if text]
