"""Statements that grow until they are refused or answered: whichever, in little memory and in little time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import dpsql
from tests.support.growing import DEEP, MAX_TEXT, WIDE, grow_at_random, longest
from tests.support.own_process import run_python
from tests.support.small import open_small

MAX_MEGABYTES, MAX_SECONDS = 1024, 20
RUN = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 61))
import dpsql
from tests.support.small import open_small
con, session = open_small()
session.sql("SELECT COUNT(*) FROM t WHERE n = 1")
before = resource.getrusage(resource.RUSAGE_SELF)
text = sys.stdin.read()
try:
    session.sql(text, {name: 1 for name in re.findall(r"[$](p\\d+)", text)})
    said = ["answered", ""]
except dpsql.Error as error:
    said = [type(error).__name__, error.message]
spent = session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] - 1
session.close()
after, child = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + child.ru_utime + child.ru_stime
print(json.dumps([*said, spent, took, max(after.ru_maxrss, child.ru_maxrss) >> 10]))
"""


@dataclass(frozen=True)
class End:
    """The end of a statement: by what kind of error, in which words, at which charge and cost."""

    kind: str
    message: str
    spent: float
    seconds: float
    megabytes: int

    @property
    def answered(self) -> bool:
        return self.kind == "answered"

    def check(self) -> None:
        """Hold it to the limits: what has no answer costs nothing, but for public SQL whose corrected text is free."""
        assert self.seconds <= MAX_SECONDS
        assert self.megabytes <= MAX_MEGABYTES
        refused = self.kind in ("ParseError", "BindError", "PrivacyError", "BudgetExceeded")
        assert self.answered or self.kind == "PostprocessingError" or (refused and self.spent == 0)


def run(text: str) -> End:
    """Answer a statement in a process of its own."""
    ran = run_python("-c", RUN, input=text, cwd=".", timeout=3000)
    if ran.returncode != 0:
        return End("killed", f"{ran.returncode}: {ran.stderr[-300:]}", 0, 60, 0)
    return End(*json.loads(ran.stdout))


@pytest.mark.parametrize("shape", DEEP)
def test_depth_is_refused_in_words_or_answered(shape: str) -> None:
    """At some depth each is refused, by an error of ours; before that it is answered."""
    con, session = open_small()
    ends: list[str] = []
    with con, session:
        for depth in (2, 31, 47, 63, 200, 900, 3000):
            text = DEEP[shape](depth)
            try:
                session.sql(text)
                ends.append("answered")
            except dpsql.Error as error:
                ends.append("refused")
                assert len(error.message) < 300
        spent = session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"]
        assert spent <= ends.count("answered"), "what is refused costs nothing"
    assert ends[0] == "answered"


@pytest.fixture(scope="module")
def small() -> Iterator[dpsql.Session]:
    con, session = open_small()
    with con, session:
        yield session


@pytest.mark.parametrize("form", WIDE)
def test_each_form_is_answered_while_it_is_small(small: dpsql.Session, form: str) -> None:
    """A form that is refused while small would be refused for another reason than its size, and say nothing about size."""
    text = WIDE[form](2)
    small.sql(text, {f"p{i}": 1 for i in range(2) if f"$p{i}" in text})


@pytest.mark.stochastic
@pytest.mark.parametrize("shape", [*DEEP, *WIDE])
def test_the_longest_text_of_a_shape_takes_little(shape: str) -> None:
    """Try from the longest text down to the first that is answered, and between these two."""
    form = {**DEEP, **WIDE}[shape]
    size = refused = longest(form)
    ends = [(size, run(form(size)))]
    while not ends[-1][1].answered and size > 2:
        refused, size = size, size // 2
        ends.append((size, run(form(size))))
    for _ in range(2 if refused - size > 1 else 0):
        middle = (size + refused) // 2
        ends.append((middle, run(form(middle))))
        size, refused = (middle, refused) if ends[-1][1].answered else (size, middle)
    print()
    for at, end in ends:
        print(f"{shape} {at}: {end.kind} {end.message[:70]} {end.seconds:.1f} s, {end.megabytes} MB")
    for _, end in ends:
        end.check()


@pytest.mark.stochastic
@pytest.mark.parametrize("seed", range(60))
def test_random_statements_take_little(seed: int) -> None:
    text = grow_at_random(seed)
    end = run(text)
    print(
        f"\n{seed}, {len(text)} characters: {end.kind} {end.message[:70]} {end.seconds:.1f} s, {end.megabytes} MB"
    )
    end.check()


def test_the_limits_are_held_to() -> None:
    """A control: what takes too long, too much, or a charge without an answer, is found."""
    good = End("answered", "", 1, 1, 100)
    good.check()
    for bad in (
        End("answered", "", 1, 21, 100),
        End("answered", "", 1, 1, 1025),
        End("EngineError", "", 1, 1, 100),
        End("BindError", "", 1, 1, 100),
        End("killed", "", 0, 1, 100),
    ):
        with pytest.raises(AssertionError):
            bad.check()
    assert len(grow_at_random(1)) <= MAX_TEXT + 1
