"""Which sessions a notebook has open, and which of them its cells mean.

``[tool.dpsql]`` in pyproject.toml: where the data and the policy are, and how results are shown.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import BindError, PolicyError, did_you_mean
from dpsql.notebook import guide

if TYPE_CHECKING:
    from dpsql.session import Session


class Sessions(dict[str, "Session"]):
    """The open sessions by name. It belongs to the shell, so that reloading the extension keeps it."""

    current: str = "main"

    def get_open(self, name: str | None = None) -> Session:
        """The session of that name, else the current one.

        Raises:
            BindError: there is none; the hint says how to open one.
        """
        wanted = name or self.current
        if wanted not in self:
            if name and self:
                raise BindError(f"there is no open session {name}.", hint=did_you_mean(name, self))
            raise BindError("no session is open yet.", hint=guide.NO_SESSION)
        return self[wanted]


_PATHS = ("database", "policy", "ledger")
_WORDS = ("analyst", "output")


@dataclass(frozen=True)
class Settings:
    """What a project says for all its notebooks. Paths are relative to the file they stand in."""

    database: str | None = None
    policy: str | None = None
    ledger: str | None = None
    analyst: str | None = None
    output: str | None = None
    rows: int | None = None


def read(folder: Path) -> Settings:
    """The settings of the nearest pyproject.toml, in this folder or above; none is fine and says nothing.

    Raises:
        PolicyError: an unknown key, or a value of the wrong type.
    """
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue  # a broken file is other tools' to complain about
        tool = content.get("tool")
        section = tool.get("dpsql") if isinstance(tool, dict) else None
        return _checked(section, file) if isinstance(section, dict) else Settings()
    return Settings()


def _checked(section: dict[str, object], file: Path) -> Settings:
    given: dict[str, object] = {}
    for key, value in section.items():
        if key not in Settings.__dataclass_fields__:
            hint = did_you_mean(key, Settings.__dataclass_fields__)
            raise PolicyError(f"[tool.dpsql] in {file} has an unknown key {key}.", hint=hint)
        kind = int if key == "rows" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            what = "a whole number" if kind is int else "text"
            raise PolicyError(f"[tool.dpsql] in {file}: {key} must be {what}.")
        in_memory = key == "database" and value == ":memory:"
        given[key] = str(file.parent / str(value)) if key in _PATHS and not in_memory else value
    return Settings(**given)  # type: ignore[arg-type]  # each value was checked above
