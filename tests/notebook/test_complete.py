"""Completion, in our cells only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from dpsql.notebook.completion import ColumnFacts, KnownNames
from dpsql.notebook.matcher import Matcher


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.run_cell("%load_ext dpsql")
    yield shell
    shell.run_cell("%unload_ext dpsql")


@pytest.fixture(autouse=True)
def schema(monkeypatch: pytest.MonkeyPatch, shell: InteractiveShell) -> None:
    tables = {
        "visits": {"plan": ColumnFacts(), "doctor_visits": ColumnFacts(), "year": ColumnFacts()},
        "wards": {"beds": ColumnFacts()},
    }
    monkeypatch.setattr(Matcher, "find_names", lambda self: KnownNames(tables, {"plan": "str"}))
    matcher = next(m for m in shell.Completer.custom_matchers if isinstance(m, Matcher))
    monkeypatch.setitem(matcher._sessions, "main", object())


def offered(shell: InteractiveShell, text: str) -> list[str]:
    with provisionalcompleter():
        return [c.text for c in shell.Completer.completions(text, len(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%dpsql\nSELECT do", ["doctor_visits"]),
        ("%%dpsql\nSELECT v.do", ["v.doctor_visits"]),
        ("%%dpsql\nSELECT be FROM visits WHERE bet", ["between"]),
        ("%%dpsql\nSELECT COUNT(*) FROM vi", ["visits"]),
        ("%%dpsql\nSELECT WITH DP OPTIONS (max_g", ["max_groups_contributed"]),
        ("%%dpsql\nSELECT ABOVE", ["ABOVE_THRESHOLD"]),
        ("%%dpsql\nsel", ["select"]),
        ("%%dpsql --expl", ["--explain"]),
        ("%dpsql bud", ["budget"]),
        ("x = %dpsql SELECT COUN", ["COUNT", "COUNT_IF"]),
    ],
)
def test_what_is_offered(shell: InteractiveShell, text: str, expected: list[str]) -> None:
    assert offered(shell, text) == expected


@pytest.mark.parametrize(
    "text", ["doctor_", "%%timeit\ndoctor_", "x = 1 # %dpsql\ndoctor_", "s = '%%dpsql'\ndoctor_"]
)
def test_nothing_in_other_cells(shell: InteractiveShell, text: str) -> None:
    assert not any("doctor_visits" in name for name in offered(shell, text))


def test_python_is_not_offered_in_ours(shell: InteractiveShell) -> None:
    names = offered(shell, "%%dpsql\nex")
    assert set(names) == {"expmech", "explain"}, "Python's exec, exit and except stay away"
    assert "exec" in offered(shell, "ex")


def test_an_alias_of_ours_is_ours(shell: InteractiveShell) -> None:
    assert "doctor_visits" not in offered(shell, "%%sql\nSELECT do")
    shell.run_cell("%alias_magic sql dpsql")
    assert offered(shell, "%%sql\nSELECT do") == ["doctor_visits"]
