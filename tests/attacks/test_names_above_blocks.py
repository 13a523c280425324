"""Names of an analyst beside ours in the public SQL above private blocks: they change no answer and no interval."""

from __future__ import annotations

import itertools
import re

import pytest

import dpsql
from dpsql.binding.public_statement import OwnNames
from tests.support import inside
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e12, accountant = "basic", default_epsilon = 1e6 }
[tables]
t = { privacy_unit = "u", max_rows_per_group = 2, max_groups = 2, columns.x.bounds = [0, 9], \
    columns.dpsql_low_1.bounds = [0, 9] }
"""
RELEASED = "(SELECT COUNT(*) AS n, SUM(x) AS s FROM t)"
FORMS = [
    "SELECT COUNT(*) AS n, 7 AS {0}, 8 AS {1} FROM t",
    f"SELECT n FROM (SELECT n, s AS {{0}}, s AS {{1}} FROM {RELEASED})",
    f"SELECT n, 7 AS {{0}}, 8 AS {{1}} FROM {RELEASED} UNION ALL SELECT n, 7, 8 FROM {RELEASED}",
    f"WITH {{0}} AS (SELECT 5 AS n, 6 AS s), {{1}} AS (SELECT 5 AS n) SELECT r.n FROM {RELEASED} r, {{0}} a, {{1}} b",
    f"SELECT n FROM {RELEASED} AS {{0}} CROSS JOIN (SELECT 5 AS m) AS {{1}}",
    f"SELECT * FROM (SELECT n, s AS {{0}}, 1 AS {{1}} FROM {RELEASED})",
    f"SELECT n / s AS n, INTERVAL_LOW(n) AS {{0}}, INTERVAL_HIGH(n) AS {{1}} FROM (SELECT n, s FROM {RELEASED})",
]
TABLES = """
CREATE TABLE t AS SELECT i % 2000 AS u, i % 9 AS x, i % 7 AS dpsql_low_1 FROM range(4000) r(i);
"""
session = session_fixture(POLICY, TABLES)


def list_own(session: dpsql.Session, text: str) -> list[str]:
    """Return the names that are made for a statement, above and within its blocks."""
    plan = inside.bind(session, text)
    return sorted(
        set(re.findall(r"\bdpsql_[a-z]+_\d+\b", " ".join([plan.finish, *(b.name for b in plan.blocks)])))
    )


def ask(
    session: dpsql.Session, text: str
) -> tuple[list[tuple[object, ...]], list[list[tuple[float, float]]]]:
    """Return the rows of an answer, and the intervals of its columns, whatever they are called."""
    found = session.sql(text)
    rows = [tuple(round(float(value), 3) for value in row) for row in found.fetchall()]
    intervals = [[(round(a), round(b)) for a, b in ends] for ends in found.intervals.values()]
    return rows, intervals


@pytest.mark.parametrize("form", FORMS)
def test_no_name_of_a_column_or_relation_is_taken_for_one_of_ours(session: dpsql.Session, form: str) -> None:
    own = list_own(session, form.format("w1", "w2"))
    assert own
    wanted = ask(session, form.format("w1", "w2"))
    assert wanted[0]
    for first, second in zip([name.upper() for name in own], [*own[1:], "w2"], strict=True):
        assert ask(session, form.format(f'"{first}"', second)) == wanted, (first, second)


def test_it_would_be_seen(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: names that are counted, whatever else is there."""

    def count(self: OwnNames, kind: str, known: object) -> str:
        self._count += 1
        return f"dpsql_{kind}_{self._count}"

    monkeypatch.setattr(OwnNames, "make", count)
    wrong = 0
    for form in FORMS[:4]:
        wanted = ask(session, form.format("w1", "w2"))
        own = list_own(session, form.format("w1", "w2"))
        for first, second in itertools.pairwise(own):
            try:
                wrong += ask(session, form.format(first, second)) != wanted
            except Exception:
                wrong += 1
    assert wrong >= 4


def test_what_is_hidden_has_no_name(session: dpsql.Session) -> None:
    """The ends of intervals are shown where INTERVAL_LOW asks for them, and nowhere else."""
    text = f"SELECT n, {{}} FROM (SELECT n FROM {RELEASED})"
    for name in [*list_own(session, text.format("1 AS a")), "dpsql_low_of_n", "dpsql_low_2"]:
        with pytest.raises(dpsql.BindError, match="there is no column"):
            session.sql(text.format(name))


def test_a_star_over_the_data_has_no_name_of_ours(session: dpsql.Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = 1e6, delta = 1e-9) dpsql_low_1, COUNT(*) AS n FROM (SELECT * FROM t) GROUP BY ALL"
    found = session.sql(f"SELECT * FROM ({text}) ORDER BY ALL")
    assert found.columns == ["dpsql_low_1", "n"]
    assert [key for key, _ in found.fetchall()] == list(range(7)), (
        "groups of the range without rows are not shown"
    )
    assert "dpsql_low_1" not in list_own(session, "SELECT COUNT(*) AS n FROM t")
