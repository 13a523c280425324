"""Highlighting."""

from __future__ import annotations

import pytest
from pygments.token import Comment, Error, Keyword, Name, Operator, String

from dpsql.demo.demo import CELLS
from dpsql.notebook.lexer import DpsqlLexer


def tokens(text: str) -> dict[str, object]:
    found = list(DpsqlLexer(ensurenl=False, stripnl=False).get_tokens(text))
    assert "".join(value for _, value in found) == text
    assert not any(kind in Error for kind, _ in found)
    return {value: kind for kind, value in found}


def test_a_cell() -> None:
    found = tokens(
        "%%dpsql --fresh out\nselect WITH dp OPTIONS (epsilon = 0.1) "
        "SUM(x, contribution_bounds_per_row => (0, 1))"
        " "
        "/* a\nb */ FROM visits WHERE plan = $plan AND t = 'it''s' -- end"
    )
    assert found["dpsql"] is Keyword
    assert found["select"] is Keyword
    assert found["OPTIONS"] is Keyword
    assert found["epsilon"] is Name.Attribute
    assert found["contribution_bounds_per_row"] is Name.Attribute
    assert found["SUM"] is Name.Function
    assert found["visits"] is Name
    assert found["$plan"] is Name.Variable
    assert found["'it''s'"] is String.Single
    assert found["-- end"] is Comment.Single
    assert found["=>"] is Operator


@pytest.mark.parametrize(
    "text", [cell.text for cell in CELLS] + ["", "SELECT 'open", "/* open", "é 東 { }}", "out << SELECT 1"]
)
def test_nothing_is_lost(text: str) -> None:
    tokens(text)
