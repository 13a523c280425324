"""Statements that analysts bring, with what becomes of them."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dpsql
from tests.support.case_files import internal_names
from tests.support.shop import near

_MODE = re.compile(r"(?i)WITH\s+(DP|DIFFERENTIAL_PRIVACY)\s*(OPTIONS\s*\([^()]*(\([^()]*\))?[^()]*\))?")
_NAMED = re.compile(
    r",?\s*(epsilon|contribution_bounds_per_row|contribution_bounds_per_group)\s*=>\s*(\([^()]*\)|[\w.]+)"
)


@dataclass(frozen=True)
class Asked:
    """A statement and its outcome."""

    text: str
    plain: str = ""
    message: str = ""
    hint: str | None = None
    possible: bool = False
    """Whether it is refused, though an answer is possible."""


def read(path: str) -> list[Asked]:
    """Return the statements of a file of the tests with their outcomes: answered, refused, or refused though possible."""
    out = []
    for chunk in (Path(__file__).parents[1] / path).read_text(encoding="utf-8").split("\n\n"):
        head, _, rest = chunk.strip().partition("\n")
        if head.startswith("-- answered"):
            plain = head.partition(", as: ")[2] or _NAMED.sub("", _MODE.sub("", rest))
            out.append(Asked(rest, plain=plain))
        elif head.startswith("-- possible: "):
            out.append(Asked(rest, message=head.removeprefix("-- possible: "), possible=True))
        elif head.startswith("-- refused: "):
            hint, _, text = rest.partition("\n") if rest.startswith("-- hint: ") else ("", "", rest)
            message = head.removeprefix("-- refused: ")
            out.append(Asked(text, message=message, hint=hint.removeprefix("-- hint: ") or None))
    return out


ASKED = read("binding/analyst.sql")
ANSWERED = [case for case in ASKED if case.plain]


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort rows by the values that are not noisy in their last digits."""
    return sorted(rows, key=lambda row: ["" if isinstance(v, float | Decimal) else str(v) for v in row])


def close(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    if isinstance(theirs, Decimal):
        return near(ours, float(theirs))
    if isinstance(theirs, datetime.datetime):  # a mean of dates has the little noise of a huge epsilon
        return abs(ours - theirs) < datetime.timedelta(minutes=1)
    return near(ours, theirs)


def check_rows(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    """Check that rows are those of DuckDB, in their order or in any, but for the little noise of a huge epsilon."""
    assert len(mine) == len(theirs), (mine, theirs)
    pairs = ((mine, theirs), (ordered(mine), ordered(theirs)))
    assert any(all(map(close, a, b)) for a, b in pairs), (mine, theirs)


def check_refusal(session: dpsql.Session, case: Asked) -> None:
    """Check that a statement is refused in the words beside it, none of which is a name of ours."""
    with pytest.raises(dpsql.Error) as caught:
        session.sql(case.text)
    assert (caught.value.message, caught.value.hint) == (case.message, case.hint)
    assert not internal_names(str(caught.value), case.text)
