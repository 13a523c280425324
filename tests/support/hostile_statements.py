"""Hostile statements of attacks/hostile.sql, and what a session makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpsql
from tests.support import inside


@dataclass(frozen=True)
class Hostile:
    """A statement, what it attacks, and whether it is answered."""

    attacks: str
    verdict: str
    text: str


def read_corpus() -> list[Hostile]:
    out, attacks = [], ""
    for chunk in (
        (Path(__file__).parents[1] / "attacks" / "hostile.sql").read_text(encoding="utf-8").split("\n\n")
    ):
        head, _, rest = chunk.strip().partition("\n")
        if head.startswith("-- class: "):
            attacks = head.removeprefix("-- class: ")
        elif head.startswith("-- verdict: "):
            out.append(Hostile(attacks, head.removeprefix("-- verdict: "), rest))
    return out


CORPUS = read_corpus()


def counted(session: dpsql.Session) -> list[str]:
    """A list that grows by one name with each thing that the session asks of its engine's data."""
    asked: list[str] = []
    engine = inside.engine(session)
    for name in ("execute", "batches"):
        if hasattr(engine, name):
            setattr(engine, name, _counting(asked, name, getattr(engine, name)))
    return asked


def _counting(asked: list[str], name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*given: Any, **named: Any) -> Any:
        asked.append(name)
        return run(*given, **named)

    return ask


def outcome(session: dpsql.Session, text: str, fresh: bool = False) -> tuple[str, ...]:
    """Answered with which columns at which price, or refused in which words."""
    try:
        result = session.sql(text, fresh=fresh)
    except dpsql.Error as error:
        assert not isinstance(error, dpsql.EngineError), "the engine failed on the data"
        assert error.__cause__ is None
        assert "duckdb" not in type(error.__context__).__module__, "the engine's message hangs on the error"
        return "refused", type(error).__name__, str(error)
    columns = [f"{field.name} {field.type}" for field in result.arrow().schema]
    # What ABOVE_THRESHOLD costs depends on the hits, which are released.
    return "answered", *columns, "" if "ABOVE_THRESHOLD" in text else str(result.loss)
