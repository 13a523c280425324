"""The language by example: every case of grammar/corpora, run as its README says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.language.dialect import mode_clauses, remove_modes, to_sql
from dpsql.language.statements import parse
from tests.support import inside
from tests.support.case_files import Case, internal_names
from tests.support.corpora import CORPORA, POLICIES, WRITE, cases


def rewrite(case: Case, came: str) -> None:
    """Writes what came out into the case's file."""
    chunks = case.path.read_text(encoding="utf-8").strip("\n").split("\n====\n")
    head = chunks[case.index].strip("\n").partition("\n----")[0]
    chunks[case.index] = f"{head}\n----\n{came}"
    case.path.write_text("\n====\n".join(chunks) + "\n", encoding="utf-8")


def compare(case: Case, came: str) -> None:
    came = "\n".join(line.rstrip() for line in came.split("\n"))
    if WRITE:
        rewrite(case, came)
    else:
        assert came == case.expected


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, dpsql.Session]]:
    with duckdb.connect() as con:
        con.execute((CORPORA / "schema.sql").read_text())
        opened = {name: dpsql.connect(con, policy=policy) for name, policy in POLICIES.items()}
        yield opened
        for session in opened.values():
            session.close()


def session_of(case: Case, sessions: dict[str, dpsql.Session]) -> dpsql.Session:
    return sessions[case.keys.get("policy", "usual")]


def spent(session: dpsql.Session) -> str:
    return str(session.budget().spent)


@pytest.mark.parametrize("case", cases("parse"), ids=str)
def test_parse(case: Case) -> None:
    rows = []
    for statement in parse(case.text, case.params):
        said = to_sql(remove_modes(statement.tree)) if statement.tree is not None else ""
        rows.append(" ".join(filter(None, (statement.kind, statement.name, "json" * statement.json, said))))
        for clause in mode_clauses(statement.tree) if statement.tree is not None else ():
            rows.append(f"  with {clause.name} ({', '.join(to_sql(option) for option in clause.options)})")
    compare(case, "\n".join(rows) or "(no statement)")


@pytest.mark.parametrize("case", cases("plan"), ids=str)
def test_plan(case: Case, sessions: dict[str, dpsql.Session]) -> None:
    session = session_of(case, sessions)
    before = spent(session)
    (statement,) = parse(case.text, case.params)
    plan = inside.bind(session, statement)
    rows = [f"columns: {', '.join(plan.columns)}"]
    rows.append(f"cost: {plan.event.sentence() if plan.event is not None else 'nothing'}")
    for block in plan.blocks:
        event = json.dumps(block.operator.event.to_json(), sort_keys=True)
        rows.append(f"block: {type(block.operator).__name__} {event}")
    for note in plan.notes:
        rows.append(f"note: {note}")
    compare(case, "\n".join(rows))
    assert spent(session) == before


@pytest.mark.parametrize("case", cases("explain"), ids=str)
def test_explain(case: Case, sessions: dict[str, dpsql.Session]) -> None:
    session = session_of(case, sessions)
    before = spent(session)
    text = str(session.explain(case.text, case.params))
    compare(case, text.partition("\n\nExact SQL:")[0])
    assert spent(session) == before


@pytest.mark.parametrize("case", cases("reject"), ids=str)
def test_reject(case: Case, sessions: dict[str, dpsql.Session]) -> None:
    session = session_of(case, sessions)
    before = spent(session)
    with pytest.raises(dpsql.Error) as caught:
        session.run(case.text, case.params)
    error = caught.value
    rows = error.lines()
    compare(case, "\n".join(rows))
    assert not internal_names("\n".join(rows), case.text)
    assert not isinstance(error, dpsql.EngineError), "refused before data are touched"
    assert spent(session) == before, "an error costs nothing"
    assert "not a number" not in "\n".join(rows).replace(case.text, "")
    if case.keys.get("caret") != "none":
        assert any(row.strip().strip("^") == "" and "^" in row for row in rows), "an error shows where"


_MISSING = ("this needs an epsilon", "this needs a delta")


def paste(text: str, error: dpsql.Error) -> str:
    """Return the text as the hint of a missing option says to write it."""
    hint = str(error.hint).partition(", or declare")[0].rstrip(".")
    if added := re.fullmatch(r"add (.+) to OPTIONS", hint):
        return text.replace("OPTIONS (", f"OPTIONS ({added[1]}, ", 1)
    new, _, old = hint.removeprefix("write ").partition(" instead of ")
    assert hint.startswith("write SELECT WITH DP OPTIONS (") or old.startswith("WITH "), hint
    assert old or "PIVOT" in new, hint
    before = text[: error.span[1]] if error.span is not None else text
    return before[: before.rindex(old)] + new + text[before.rindex(old) + len(old) :] if old else new


@pytest.mark.parametrize(
    "text",
    [
        *(case.text for case in cases("plan")[::3] if case.text.count("SELECT") == 1 and not case.params),
        "PIVOT visits ON ward IN ('A', 'B') USING COUNT(*) GROUP BY city",
        "SELECT * FROM (SELECT ward, city FROM visits) PIVOT (COUNT(*) FOR ward IN ('A', 'B'))",
        "FROM (SELECT ward, city FROM visits) PIVOT (COUNT(*) FOR ward IN ('A', 'B'))",
        "SELECT city, A FROM (PIVOT visits ON ward IN ('A', 'B') USING COUNT(*) GROUP BY city)",
        "CREATE SYNTHETIC TABLE s AS SELECT ward FROM visits",
        "CREATE SYNTHETIC TABLE s AS SELECT WITH DP ward FROM visits",
    ],
)
def test_hints_of_missing_options_run_when_pasted(text: str, sessions: dict[str, dpsql.Session]) -> None:
    for _ in _MISSING:
        try:
            inside.bind(sessions["strict"], text)
        except dpsql.Error as error:
            if not error.message.startswith(_MISSING):
                return  # the strict policy refuses it for another reason
            text = paste(text, error.located(text))
    inside.bind(sessions["strict"], text)
