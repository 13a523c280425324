"""Statements mutated from the corpora: parser and binder answer with a plan or with one of our errors, never otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from tests.support.hostile_statements import CORPUS
from tests.support.neighbours import CANARY, open_neighbours

ROOT = Path(__file__).parents[2]
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_][A-Za-z0-9_]*|[0-9.]+|\s+|=>|<=|>=|<>|::|//|\|\||.", re.DOTALL
)


def _seeds() -> list[str]:
    texts = [item.text for item in CORPUS]
    for path in sorted((ROOT / "grammar" / "corpora").glob("*/*.sql")):
        for chunk in path.read_text(encoding="utf-8").split("\n====\n"):
            lines = chunk.partition("\n----")[0].strip().split("\n")
            texts.append("\n".join(line for line in lines if not line.startswith("-- ")))
    lines = (
        (ROOT / "tests" / "binding" / "values" / "expressions.sql").read_text(encoding="utf-8").splitlines()
    )
    texts += [
        f"SELECT COUNT(*) FROM people WHERE ({line.partition('  -- ')[0]}) IS NULL" for line in lines[2:]
    ]
    return [text for text in texts if text.strip()]


SEEDS = _seeds()
WORDS = sorted({token for text in SEEDS for token in _TOKEN.findall(text) if not token.isspace()})
ODD = [
    "\x00", "\ufeff", "é", "😀", "--", "/*", "*/", ";", "'", '"', "$$", "(", ")", "[", "]", "{", "}", "{{", "\\", "`", "@",
    "9" * 50, "1e999", "0x1F", "$1", "?", ":x", "...", "\u00a0", "\u212a", "LATERAL", "RECURSIVE", "WITHIN GROUP",
]  # fmt: skip


@st.composite
def statements(draw: st.DrawFn) -> str:
    """A statement of the corpora after one to six blows."""
    tokens = _TOKEN.findall(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(0, len(tokens) - 1)))
        blow = draw(
            st.sampled_from(["drop", "repeat", "replace", "insert", "swap", "odd", "splice", "cut", "wrap"])
        )
        if blow == "drop":
            del tokens[place : place + draw(st.integers(1, 4))]
        elif blow == "repeat":
            tokens[place:place] = tokens[place : place + draw(st.integers(1, 8))] * draw(st.integers(1, 3))
        elif blow == "replace" and tokens:
            tokens[place] = draw(st.sampled_from(WORDS))
        elif blow == "insert":
            tokens.insert(place, f" {draw(st.sampled_from(WORDS))} ")
        elif blow == "swap" and tokens:
            other = draw(st.integers(0, len(tokens) - 1))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif blow == "odd":
            tokens.insert(place, draw(st.sampled_from(ODD)))
        elif blow == "splice":
            donor = _TOKEN.findall(draw(st.sampled_from(SEEDS)))
            start = draw(st.integers(0, len(donor) - 1))
            tokens[place:place] = donor[start : start + draw(st.integers(1, 15))]
        elif blow == "cut":
            del tokens[place:]
        elif blow == "wrap":
            tokens = ["SELECT COUNT(*) FROM (", *tokens, ") AS q"]
        if not tokens:
            tokens = ["SELECT"]
    return "".join(tokens)


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    given, without = open_neighbours()
    without.close()
    yield given
    given.close()


def check(session: dpsql.Session, text: str) -> None:
    before = str(session.budget())
    try:
        said = str(session.explain(text))
    except dpsql.Error as error:
        said = "\n".join(error.lines())
        assert not isinstance(error, dpsql.EngineError)
        assert error.__cause__ is None
        if error.span is not None:
            assert 0 <= error.span[0] <= error.span[1]
    if CANARY not in text:
        assert CANARY not in said
    assert str(session.budget()) == before


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=statements())
def test_mutated_statements(session: dpsql.Session, text: str) -> None:
    check(session, text)


@pytest.mark.stochastic
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=statements())
def test_ten_thousand_mutated_statements(session: dpsql.Session, text: str) -> None:
    check(session, text)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text(session: dpsql.Session, text: str) -> None:
    check(session, text)
