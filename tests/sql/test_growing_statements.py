"""Statements that grow until they are refused or answered: whichever, in little memory and in little time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

import dpsql
from tests.support.small import open_small

MAX_TEXT = 65_536
MAX_MEGABYTES, MAX_SECONDS = 1024, 20
Shape = Callable[[int], str]


def listed(many: int, form: str, between: str = ", ") -> str:
    return between.join(form.format(i) for i in range(many))


COUNTED = "(SELECT COUNT(*) AS c FROM t) AS s"
DEEP: dict[str, Shape] = {
    "additions": lambda n: f"SELECT SUM(n{'+n' * n}) FROM t",
    "additions above": lambda n: f"SELECT c{'+c' * n} AS a FROM {COUNTED}",
    "concatenations": lambda n: f"SELECT COUNT(*) FROM t WHERE k{'||k' * n} = 'a'",
    "parentheses": lambda n: f"SELECT COUNT(*) FROM t WHERE {'(' * n}n = 1{')' * n}",
    "negations": lambda n: f"SELECT COUNT(*) FROM t WHERE {'NOT ' * n}n = 1",
    "cases": lambda n: f"SELECT SUM({'CASE WHEN n = 1 THEN n ELSE ' * n}n{' END' * n}) FROM t",
    "calls above": lambda n: f"SELECT {'abs(' * n}c{')' * n} AS a FROM {COUNTED}",
    "lists above": lambda n: f"SELECT {'[' * n}c{']' * n} AS a FROM {COUNTED}",
    "subqueries": lambda n: f"SELECT COUNT(*) FROM {'(SELECT * FROM ' * n}t{') AS a' * n}",
}
WIDE: dict[str, Shape] = {
    "conditions": lambda n: f"SELECT COUNT(*) FROM t WHERE {listed(n, 'n = {}', ' OR ')}",
    "IN": lambda n: f"SELECT COUNT(*) FROM t WHERE n IN ({listed(n, '{}')})",
    "unions": lambda n: listed(n, "SELECT COUNT(*) FROM t WHERE n = {}", " UNION ALL "),
    "unions of rows": lambda n: (
        f"SELECT COUNT(*) FROM ({listed(n, 'SELECT unit FROM t', ' UNION ALL ')}) AS u"
    ),
    "public joins": lambda n: f"SELECT COUNT(*) FROM t{listed(n, ' JOIN g AS g{0} ON t.k = g{0}.k', '')}",
    "columns above": lambda n: f"SELECT {listed(n, 'c + {0} AS c{0}')} FROM {COUNTED}",
    "keys": lambda n: f"SELECT COUNT(*) FROM t GROUP BY {listed(n, 'n + {}')}",
    "columns read": lambda n: (
        f"SELECT COUNT(*) FROM (SELECT unit, {listed(n, 'n + {0} AS a{0}')} FROM t) AS s "
        f"WHERE {listed(n, 'a{} > 0', ' AND ')}"
    ),
    "a cube": lambda n: f"SELECT COUNT(*) FROM t GROUP BY CUBE({listed(n, 'n > {}')})",
    "replacements above": lambda n: (
        f"SELECT {'replace(' * n}c::VARCHAR{', 1::VARCHAR, 11::VARCHAR)' * n} AS a FROM {COUNTED}"
    ),
}
RUN = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 61))
import dpsql
from tests.support.small import open_small
con, session = open_small()
session.sql("SELECT COUNT(*) FROM t WHERE n = 1")
before = resource.getrusage(resource.RUSAGE_SELF)
try:
    session.sql(sys.stdin.read())
    said = "answered"
except dpsql.Error as error:
    said = error.message
session.close()
after, child = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + child.ru_utime + child.ru_stime
print(json.dumps([said, took, after.ru_maxrss >> 10]))
"""


def longest(shape: Shape) -> str:
    """The longest text of a shape that is parsed at all."""
    few, many = 1, MAX_TEXT
    while few < many:
        middle = (few + many + 1) // 2
        few, many = (middle, many) if len(shape(middle)) <= MAX_TEXT else (few, middle - 1)
    return shape(few)


@pytest.mark.parametrize("shape", DEEP)
def test_depth_is_refused_in_words_or_answered(shape: str) -> None:
    """At some depth each is refused, by an error of ours; before that it is answered."""
    con, session = open_small()
    ends: list[str] = []
    with con, session:
        for depth in (2, 200, 900, 3000):
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


@pytest.mark.stochastic
@pytest.mark.parametrize("shape", [*DEEP, *WIDE])
def test_the_longest_text_of_a_shape_takes_little(shape: str) -> None:
    text = longest({**DEEP, **WIDE}[shape])
    ran = subprocess.run(
        [sys.executable, "-c", RUN], input=text, capture_output=True, text=True, check=True, cwd="."
    )
    said, seconds, megabytes = json.loads(ran.stdout)
    print(f"\n{shape}: {said[:60]} {seconds:.1f} s, {megabytes} MB")
    assert seconds <= MAX_SECONDS
    assert megabytes <= MAX_MEGABYTES
