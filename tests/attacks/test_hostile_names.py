"""No name decides: whatever is called whatever, one person moves no exact statistic by more than is charged."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.binding.relations import relation
from dpsql.exact.gate import Gate
from tests.support import inside
from tests.support.hostile import FORMS, FORMS_OF_CAPS, NAMES, Neighbours, every_pair, written

SHORT, LONG, SLICES = 240, 52_000, 8


@pytest.fixture(scope="module")
def neighbours() -> Iterator[Neighbours]:
    made = Neighbours.open()
    yield made
    made.close()


def run(neighbours: Neighbours, texts: Iterator[str]) -> tuple[int, int]:
    answered = asked = 0
    for text in texts:
        found = neighbours.check(text)
        assert not found, f"{text}\n{found}"
        asked += 1
        answered += found is not None
    return asked, answered


def test_every_form_is_answered_under_some_name_or_refused_under_all(neighbours: Neighbours) -> None:
    """A control of the forms: most are statements that have an answer."""
    known = [neighbours.check(written(form, "a9", "b9")) is not None for form in FORMS]
    assert sum(known) > 0.8 * len(FORMS), [
        f for f, answered in zip(FORMS, known, strict=True) if not answered
    ]


def test_no_name_moves_a_statistic_beyond_its_sensitivity(neighbours: Neighbours) -> None:
    every = len(NAMES) * len(FORMS)
    texts = itertools.islice(every_pair(1), 0, every, 2 * every // SHORT)
    drawn = itertools.islice(every_pair(2), every, every + SHORT // 2)
    asked, answered = run(neighbours, itertools.chain(texts, drawn))
    assert asked >= SHORT
    assert answered > 0.6 * asked


@pytest.mark.parametrize("form", FORMS)
def test_no_name_of_the_analyst_stands_in_exact_sql(neighbours: Neighbours, form: str) -> None:
    marks = ("mark_one", 'Mark "two"')
    plan = neighbours.plan(written(form, *marks))
    if plan is None:
        return
    for block in plan.blocks:
        operator: Any = block.operator
        names = {
            n: [c for c, _ in columns]
            for n, columns in inside.lent_columns(neighbours.session, plan, block).items()
        }
        for query in getattr(operator, "checked", operator.queries):
            if query in getattr(operator, "apart", ()):
                continue  # it reads the rows of one block, and nothing else
            text = inside.gate(neighbours.session).exact(query, names)
            without_values = re.sub(r"'(?:[^']|'')*'", "''", text).lower()
            assert "mark" not in without_values, text


def test_a_value_is_never_taken_for_a_parameter_of_ours(neighbours: Neighbours) -> None:
    """The salt, the numbers of runs, a rank: what stands in quotes stays as it was written."""
    for value in (
        "$salt",
        "__dpsql_salt__",
        "{at}",
        "$first",
        "range($first, $last) AS runs(turn)",
        "it's $salt",
    ):
        literal = value.replace("'", "''")
        text = f"SELECT ward || '{literal}' AS k, COUNT(*) AS n FROM visits GROUP BY k"
        keys = [row["k"] for row in neighbours.session.sql(text, fresh=True).dicts()]
        assert keys == [f"{ward}{value}" for ward in "ABC"]
        text = f"SELECT kind || '{literal}' AS k, COUNT(*) AS n FROM stays GROUP BY k"
        plan = neighbours.plan(text)
        before, _ = neighbours.read(plan, plan.blocks[0], plan.blocks[0].operator.queries[0])
        assert {row["k0"] for row in before} == {f"n{i}{value}" for i in range(4)}


@pytest.mark.stochastic
@pytest.mark.parametrize("part", range(SLICES))
def test_no_name_moves_a_statistic_in_the_long_form(neighbours: Neighbours, part: int) -> None:
    """All names in all forms, then names drawn for both places."""
    count = int(os.environ.get("DPSQL_PAIRS", LONG))
    texts = itertools.islice(every_pair(3), part, count, SLICES)
    asked, answered = run(neighbours, texts)
    assert answered > 0.6 * asked


FORGED = [written(form, "dpsql_unit", "w9") for form in FORMS]
FORGED_CAPS = [written(form, "dpsql_unit", "w9") for form in FORMS_OF_CAPS]


def _deceived(monkeypatch: pytest.MonkeyPatch) -> Neighbours:
    """A binder that calls a derived column what the analyst calls it: the hidden unit is taken from one of that name."""
    monkeypatch.setattr(relation, "column_name", lambda place: "dpsql_unit" if place == 0 else f"c{place}")
    return Neighbours.open()


@pytest.mark.parametrize("forged", [FORGED, FORGED_CAPS], ids=["any", "caps"])
def test_it_would_be_seen_if_names_decided(forged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the second lock, such a binder lets one person move what they should not."""
    monkeypatch.setattr(Gate, "prove", lambda self, *given: None)
    made = _deceived(monkeypatch)
    try:
        with pytest.raises(AssertionError, match=r"moves by|move by one|rows of one unit|blocks change"):
            run(made, iter(forged))
    finally:
        made.close()
    assert relation.column_name(3) == "c3"


def test_the_second_lock_refuses_what_a_deceived_binder_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _deceived(monkeypatch)
    try:
        asked, answered = run(made, iter(FORGED))
    finally:
        made.close()
    assert asked > answered
