"""Errors of answers, case by case: never more than before. Run with ``pytest -m accuracy -s``."""

from __future__ import annotations

import pytest

from tests.support.accuracy import Case, Found, Table
from tests.support.accuracy_cases import CASES


@pytest.mark.accuracy
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_answer_is_further_off_than_before(case: Case, accuracy: Table) -> None:
    case.check(accuracy, case.draws[0])


@pytest.mark.parametrize("case", [case for case in CASES if case.draws[1]], ids=lambda case: case.name)
def test_in_short(case: Case) -> None:
    """The same with few draws, so that only what is far off is seen."""
    case.check(Table(), case.draws[1])


def test_what_is_worse_is_refused() -> None:
    table, errors = Table(), [0.9, 1.0, 1.1, 1.0] * 5
    table.check("as before", errors, before=1.0)
    table.check("better", errors, before=2.0, peers="another 3", closed=1.0, most=1.1)
    for worse in (
        {"before": 0.9},
        {"before": 2.0, "closed": 1.2},
        {"before": 2.0, "closed": 0.8},
        {"before": 2.0, "most": 1.0},
    ):
        with pytest.raises(AssertionError, match="worse:"):
            table.check("worse", errors, **worse)
    table.check("not known better than by chance", errors, before=0.9, chance=0.1)
    assert Found([1, 2, 9], median=True).error == 2
    assert Found([1, 2, 9]).error == 4
    lines = str(table).splitlines()
    assert len(lines) == 2 + len(table.lines)
    assert lines[3].split("  ")[0] == "better"
    assert "another 3" in lines[3]


@pytest.mark.accuracy
def test_a_case_sees_more_noise() -> None:
    """The control: the same counts at a fifth less epsilon are refused."""
    (case,) = (case for case in CASES if case.name.startswith("4 counts, noise = GAUSSIAN"))
    more = Case(**{**vars(case), "statement": case.statement.replace("epsilon = 1", "epsilon = 0.8")})
    with pytest.raises(AssertionError, match="by the formula"):
        more.check(Table(), 400)
