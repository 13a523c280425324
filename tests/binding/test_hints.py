"""Hints are executable: each is pasted back into the statement that it was given for, and leads to one that is bound.

The hints are those of all refusals in ``grammar/corpora``, ``tests/peers`` and ``tests/binding/analyst.sql``. The code of a hint
is put where the hint says (``tests/support/pasting.py``); statements are only bound, so nothing is paid and no data are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from tests.support import peers
from tests.support.analyst import ASKED
from tests.support.clinic import open_clinic
from tests.support.corpora import CORPORA, POLICIES, cases
from tests.support.fixtures import session_fixture
from tests.support.pasting import follow, paste

SOURCES = Path(dpsql.__file__).parent
PASTED = {"corpora": 180, "peers": 110, "analyst": 80}
"""The number of hints of each collection that lead to a bound statement, at least; the others have no code."""
CODE = re.compile(
    r"\b(SELECT|FROM|WHERE|GROUP|HAVING|ORDER|LIMIT|JOIN|ON|AS|WITH|OPTIONS|CASE|WHEN|THEN|ELSE|END|AND|OR|NOT|IN|IS|BETWEEN|"
    r"UNION|EXCEPT|INTERSECT|PIVOT|UNPIVOT|DISTINCT|OVER|PARTITION|FILTER|USING|VALUES|LATERAL|CREATE|TABLE|CAST|QUALIFY|"
    r"ROWS|DATE|TIMESTAMP|SHOW|EXPLAIN|DECLARE|LIKE|TRUE|FALSE|NULL)\b|=|\w\(|`"
)
"""A keyword in capitals, an equals sign or an arrow, a call, or a backtick."""
NOT_CODE = {
    r"there is [A-Z]+, [A-Z]+, ": "a list of words, of which the analyst chooses one",
    r"; STABLE knows IQR, ": "a list of words, of which the analyst chooses one",
    r"to lead one to the other, privacy_unit = ": "a line of the policy, for the data owner",
    r"for the rows outside of the declared values, write ward NOT IN ": "a condition, and the value is in the list of a PIVOT",
    r"write COUNT\(DISTINCT driver\) instead of the group: ": "MAX of the same statement needs the data owner's bounds",
}
"""Hints with code that is not pasted, each with its reason."""
Refused = Iterator[tuple[dpsql.Session, str, dict[str, Any] | list[Any] | None]]


def in_corpora() -> Refused:
    with duckdb.connect() as con:
        con.execute((CORPORA / "schema.sql").read_text())
        opened = {name: dpsql.connect(con, policy=policy) for name, policy in POLICIES.items()}
        for case in cases("reject"):
            yield opened[case.keys.get("policy", "usual")], case.text, case.params
        for session in opened.values():
            session.close()


def in_peers() -> Refused:
    refused = [case for case in peers.cases() if case.verdict != peers.ANSWERED]
    for suite in sorted({case.suite for case in refused}):
        with duckdb.connect() as con:
            con.execute(peers.data_of(suite))
            with dpsql.connect(con, policy=peers.policy_of(suite)) as session:
                for case in (one for one in refused if one.suite == suite):
                    yield session, case.text, case.params


def in_analyst() -> Refused:
    con, session = open_clinic()
    with con, session:
        for case in ASKED:
            if case.message:
                yield session, case.text, None


def refuse(session: dpsql.Session, text: str, params: Any) -> dpsql.Error | None:
    """Bind a statement, and return its refusal. A parameter that a hint proposes has a value."""
    given = dict(params) if isinstance(params, dict) else params
    if not given:
        given = {}
    if isinstance(given, dict):
        for name in re.findall(r"\$([A-Za-z_]\w*)", text):
            given.setdefault(name, "A")
    try:
        if text.upper().startswith(("SHOW", "EXPLAIN")):
            session.run(text, given or None)
        else:
            session.explain(text, given or None)
    except dpsql.Error as error:
        return error
    return None


@pytest.mark.parametrize(
    ("name", "collect"), [("corpora", in_corpora), ("peers", in_peers), ("analyst", in_analyst)]
)
def test_hints_lead_to_statements_that_are_bound(name: str, collect: Callable[[], Refused]) -> None:
    pasted, circles, code = 0, [], []
    for session, text, params in collect():
        before = session.budget().spent
        error = refuse(session, text, params)
        if error is None or error.hint is None:
            continue
        whole = error.text or text
        bound, back = follow(whole, error, lambda made: refuse(session, made, params))  # noqa: B023
        pasted += bound is not None
        circles += [f"{text}: {error.hint}"] * back
        if bound is None and CODE.search(error.hint):
            code += [f"{text}: {error.hint}"] * (not any(re.search(one, error.hint) for one in NOT_CODE))
        assert not re.search(r"\.\.\.(?!\.?$)", error.hint), f"{text}: half a statement, {error.hint}"
        assert session.budget().spent == before
    assert not code, "hints with code that leads to no statement:\n" + "\n".join(code)
    assert not circles, "hints that lead back:\n" + "\n".join(circles)
    assert pasted >= PASTED[name], f"{pasted} hints were pasted"


def test_at_least_two_hundred_hints_are_pasted() -> None:
    assert sum(PASTED.values()) >= 200
    assert len(NOT_CODE) <= 6


PLACEHOLDER = re.compile(r"\b[A-Za-z_]+\(x\b|\bFROM t\b|\bu\(y\)|\bSUM\(x\)|\(condition\)|THEN a ELSE b")
FORMS = {"FILTER belongs behind an aggregate: write SUM(x) FILTER (WHERE ...)."}
"""Hints on the form of a clause."""


def test_no_hint_has_a_placeholder() -> None:
    """A hint has the names of the statement, or words alone: x, t and u(y) are names of nobody."""
    found = []
    for path in sorted([*SOURCES.glob("binding/**/*.py"), *SOURCES.glob("language/**/*.py")]):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if PLACEHOLDER.search(source.replace("{x}", "")) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.replace("{x}", "")
                if (
                    re.search(r"\b(write|such as|would fit)\b", text)
                    and PLACEHOLDER.search(text)
                    and "\n" not in text
                ):
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert not [line for line in found if not any(form in line for form in FORMS)], found


# -- hints that failed, or misled ------------------------------------------------------------------------------------------

POLICY = """
budget = { epsilon = 1e9, delta = 1e-2, accountant = "basic", default_epsilon = 10, default_delta = 1e-9 }
[tables]
trips = { privacy_unit = "my id", max_rows = 1, max_groups = 1 }
stops = { privacy_unit = "my id", max_rows = 1 }
areas = { public = true }
"""
TABLES = """
CREATE TABLE trips AS SELECT i AS "my id", i * 1.0 AS "distance (mi)", i % 5 AS boss, i % 3 AS "group",
    i % 2 = 0 AS far, 'a' || i % 4 AS area, i::VARCHAR AS note FROM range(300) r(i);
CREATE TABLE stops AS SELECT i AS "my id", i AS place FROM range(300) r(i);
CREATE TABLE areas AS SELECT 'a' || i AS name FROM range(4) r(i);
"""
trips = session_fixture(POLICY, TABLES)


def hint_of(session: dpsql.Session, text: str) -> str:
    error = refuse(session, text, None)
    assert error.hint is not None
    return error.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT COUNT(distanc) FROM trips", 'did you mean "distance (mi)"?'),
        ("SELECT COUNT(my_id) FROM trips", 'did you mean "my id"?'),
        ("SELECT COUNT(groupp) FROM trips", 'did you mean "group"?'),
        ("SELECT COUNT(distance (mi)) FROM trips", 'did you mean "distance (mi)"?'),
        ("SELECT COUNT(*) FROM trips WHERE distance(mi) > 3", 'did you mean "distance (mi)"?'),
        ("SELECT COUNT(*) FROM trips WHERE Distance (MI) > 3", 'did you mean "distance (mi)"?'),
        ('SELECT "my id" FROM trips', 'write COUNT(DISTINCT "my id"): it counts the units.'),
        ('SELECT "distance (mi)", COUNT(*) FROM trips',
         'write AVG("distance (mi)"), or add it to the groups: GROUP BY "distance (mi)".'),
        ("SELECT COUNT(*) FROM trips JOIN stops ON trips.boss = stops.place",
         "no policy lets different people's rows meet; for each person's own rows, add trips.\"my id\" = stops.\"my id\" to ON."),
        ("SELECT SUM(boss) FROM trips",
         "write SUM(boss, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know"
         " as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them."),
        ("SELECT COUNT(*) FROM trips WHERE note = 7",
         "text and numbers are not compared: write note = '7', or TRY_CAST(note AS DOUBLE) = 7."),
        ("SELECT BOOL_OR(boss > 3) FROM trips", "write COUNT_IF(boss > 3) > 0: the noisy count may be compared freely."),
        ("SELECT SUM(boss, epsilon = 1) FROM trips", "write epsilon => 1."),
        ("SELECT SUM(COUNT(*)) FROM trips",
         'write SELECT SUM(n) FROM (SELECT "my id", COUNT(*) AS n FROM trips GROUP BY "my id") AS t:'
         " a subquery aggregates first."),
        ("SELECT COUNT(*) FROM (SELECT row_number() OVER (ORDER BY boss) AS r FROM trips) WHERE r = 1",
         'write ROW_NUMBER() OVER (PARTITION BY "my id" ORDER BY boss), or aggregate first; windows may follow.'),
        ("SELECT area, COUNT(*) FROM trips WHERE COUNT(*) > 3 GROUP BY area",
         "write HAVING COUNT(*) > 3 after GROUP BY instead: it reads the noisy value."),
    ],
)  # fmt: skip
def test_a_hint_names_what_is_there(trips: dpsql.Session, text: str, hint: str) -> None:
    assert hint_of(trips, text) == hint


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(boss) FROM trips",
        "SELECT AVG(boss * 2) FROM trips",
        "SELECT MEDIAN(boss) FROM trips",
        "SELECT SUM(DISTINCT boss, contribution_bounds_per_row => AUTO) FROM trips",
        "SELECT COVAR_POP(boss, boss) FROM trips",
        "SELECT GEOMEAN(boss, contribution_bounds_per_row => AUTO) FROM trips",
        "SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(boss) FROM trips",
    ],
)
def test_no_bounds_are_invented(trips: dpsql.Session, text: str) -> None:
    assert not re.search(r"\(\s*-?\d+\s*,\s*\d+\s*\)", hint_of(trips, text))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("json_keys(note)", "json_keys"),
        ("levenshteinn(note, note)", "levenshteinn"),
        ("frobnicate(boss)", "frobnicate"),
    ],
)
def test_a_refusal_names_the_function_that_was_written(trips: dpsql.Session, call: str, name: str) -> None:
    error = refuse(trips, f"SELECT COUNT(*) FROM trips WHERE {call} = 'a'", None)
    if error is not None:
        assert f" {name} " in f" {error.message} "
        assert "there is abs, acos" not in (error.hint or "")


def test_an_aggregate_of_a_unit_is_named_as_it_was_written(trips: dpsql.Session) -> None:
    text = 'SELECT COUNT(*) FROM (SELECT "my id", bool_or(far) AS f FROM trips GROUP BY "my id") WHERE f'
    error = refuse(trips, text, None)
    assert error is None or "LOGICAL" not in error.message


def test_joins_that_keep_groups_lead_forward(trips: dpsql.Session) -> None:
    """RIGHT JOIN in place of JOIN is answered or leads on, and never back to JOIN."""
    text = (
        "SELECT WITH DP OPTIONS (group_selection_strategy = PUBLIC_GROUPS) a.name, COUNT(*) FROM trips t"
        " JOIN areas a ON t.area = a.name GROUP BY a.name"
    )
    hint = hint_of(trips, text)
    assert hint.startswith("write RIGHT JOIN in place of JOIN")
    later = refuse(trips, text.replace(" JOIN ", " RIGHT JOIN "), None)
    assert later is None or "write JOIN instead" not in (later.hint or "")
    other = hint_of(
        trips, "SELECT t.area, COUNT(*) FROM trips t RIGHT JOIN areas a ON t.area = a.name GROUP BY t.area"
    )
    assert (
        other
        == 'write COUNT(t."my id"), which counts the rows with a match, or GROUP BY a.name, the public side\'s key.'
    )


@pytest.mark.parametrize("amount", ["mu = 1e-5", "mu = 0.01", "rho = 1e-9"])
def test_an_epsilon_that_a_hint_proposes_can_be_asked_for(trips: dpsql.Session, amount: str) -> None:
    hint = hint_of(trips, f"SELECT WITH DP OPTIONS ({amount}, delta = 1e-3) COUNT(*) FROM trips")
    found = re.match(r"write epsilon = (\S+), delta", hint)
    assert float(found[1]) > 0
    assert refuse(trips, f"SELECT WITH DP OPTIONS (epsilon = {found[1]}) COUNT(*) FROM trips", None) is None


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("list_sort([area])", "SELECT WITH SUBSAMPLE runs"),
        ("octet_length(area)", "SELECT WITH SUBSAMPLE runs"),
        ("uper(area)", "did you mean upper?"),
        ("area COLLATE nocase", "write lower(area): "),
        ("repeat(area, 2)", "join texts by ||."),
        (
            "age(DATE '2024-01-01', DATE '2000-01-01')",
            "for the years between two dates, write date_diff('year', CAST('2000",
        ),
    ],
)
def test_a_function_that_exists_is_not_taken_for_a_misspelt_one(
    trips: dpsql.Session, key: str, hint: str
) -> None:
    assert hint_of(trips, f"SELECT {key} AS k, COUNT(*) FROM trips GROUP BY k").startswith(hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT COUNT(*) FROM trips WHERE boss", "write boss <> 0."),
        ("SELECT COUNT(*) FROM trips WHERE far AND boss", "write boss <> 0."),
        ("SELECT COUNT(*) FROM trips WHERE [boss] = []", "write len([boss]) = 0."),
        ("SELECT note[1:2] AS k, COUNT(*) FROM trips GROUP BY k", "write substr(note, 1, 2)."),
        ("SELECT list_slice(note, 2, 4) AS k, COUNT(*) FROM trips GROUP BY k", "write substr(note, 2, 3)."),
    ],
)
def test_a_hint_names_what_the_analyst_wrote(trips: dpsql.Session, text: str, hint: str) -> None:
    assert hint_of(trips, text) == hint


def test_a_hint_that_leads_back_would_be_found() -> None:
    def bind(text: str) -> dpsql.Error | None:
        one, other = ("RIGHT JOIN", "JOIN") if "RIGHT" in text else ("JOIN", "RIGHT JOIN")
        at = text.index(one)
        return dpsql.BindError(
            f"{one} is wrong.", span=(at, at + len(one)), hint=f"write {other} in place of {one}."
        )

    text = "SELECT 1 FROM a JOIN b"
    error = bind(text)
    assert error is not None
    assert "SELECT 1 FROM a RIGHT JOIN b" in list(paste(text, error))
    assert follow(text, error, bind) == (None, True)


EQUAL = ("x >> 3", "(x + 1) >> 1", "~x", "json_value(j, '$.p')")


@pytest.mark.parametrize("written", EQUAL)
def test_a_hint_for_an_expression_has_its_values(written: str) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS u, i - 20 AS x, "
            "('{\"p\": ' || (['1', '\"a\"', '[1]', '{}', 'null', 'true', '-1'])[i % 7 + 1] "
            "|| '}')::JSON AS j FROM range(40) r(i) UNION ALL SELECT 41, NULL, '{}'"
        )
        policy = dpsql.Policy.loads("budget.epsilon = 1\ntables.t = { privacy_unit = 'u', max_rows = 1 }")
        with dpsql.connect(con, policy=policy) as session, pytest.raises(dpsql.PrivacyError) as caught:
            session.explain(f"SELECT COUNT(*) FROM t WHERE {written} IS NULL")
        found = re.search(r"write (.+) instead of ", caught.value.hint or "")
        assert found is not None
        different = f"SELECT COUNT(*) FROM t WHERE ({written}) IS DISTINCT FROM ({found[1]})"
        assert con.execute(different).fetchall() == [(0,)]


def test_names_in_hints_are_quoted_part_by_part() -> None:
    with duckdb.connect() as con:
        con.execute('CREATE SCHEMA "my data"; CREATE TABLE "my data".visits AS SELECT 1 AS u, \'a\' AS w')
        policy = dpsql.Policy.loads(
            'budget.epsilon = 1\ntables."my data.visits" = { privacy_unit = "u", max_rows = 1 }'
        )
        with dpsql.connect(con, policy=policy) as session:
            for text, hint in (
                ("SELECT COUNT(*) FROM visits", 'did you mean "my data".visits?'),
                (
                    'SELECT SUM(w) FROM "my data".visits',
                    'SELECT w, COUNT(*) FROM "my data".visits GROUP BY w',
                ),
                (
                    'SELECT SUM(w) FROM "my data".visits AS v',
                    'SELECT w, COUNT(*) FROM "my data".visits AS v GROUP',
                ),
            ):
                with pytest.raises(dpsql.Error) as caught:
                    session.explain(text)
                assert hint in str(caught.value.hint)
