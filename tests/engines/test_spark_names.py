"""No name decides on Spark either: the hostile names of ``tests/support/hostile.py``, through Spark's writer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.errors import BindError
from dpsql.exact.gate import Gate
from dpsql.mechanisms.base import fill_parameters
from dpsql.spark.spark_engine import spark_sql
from tests.support import inside
from tests.support.engines import Engine
from tests.support.hostile import FORMS, NAMES, PERSON, POLICY, TABLES, Neighbours, written

pytestmark = pytest.mark.timeout(900)
VALUES = {"salt": 12345, "first": 0, "last": 8}
WRITERS = (
    "dpsql_chosen",
    "dpsql_next",
    "q",
    "counted",
    "summed",
    "upto",
    "col1",
    "dpsql_source_visits",
    "`",
    "a`b",
    "_1",
    "${x}",
)
"""Names that Spark's writer makes, and some that mean something to Spark alone."""
EACH = 4
"""Names that each form is written with."""

Rows = list[dict[str, Any]]


@dataclasses.dataclass
class OnSpark(Neighbours):
    """Two engines on one Spark, of which one lacks the person. One text has one answer, so each text is read once: names
    are not in it, and most statements of a form have the same ones."""

    engines: Sequence[Any] = ()
    known: dict[str, tuple[Rows, Rows]] = dataclasses.field(default_factory=dict)

    def read(self, plan: Plan, block: PrivateBlock, query: str) -> tuple[Rows, Rows]:
        names = {
            name: [c for c, _ in columns]
            for name, columns in inside.lent_columns(self.session, plan, block).items()
        }
        text = fill_parameters(inside.gate(self.session).exact(query, names), VALUES)
        lent = self.lend(plan, block)
        key = repr((text, [(name, table.to_pydict()) for name, table in sorted(lent.items())]))
        if key not in self.known:
            before, after = (engine.execute(text, lent).to_pylist() for engine in self.engines)
            self.known[key] = before, after
        return self.known[key]


def opened(spark: Any, folder: Path, stack: ExitStack) -> OnSpark:
    policy, sessions, databases = dpsql.Policy.loads(POLICY), [], []
    for name in ("one", "other"):
        con = stack.enter_context(duckdb.connect())
        con.execute(TABLES)
        if name == "other":
            con.execute(f"DELETE FROM visits WHERE patient_id = {PERSON}")
            con.execute(f"DELETE FROM stays WHERE patient_id = {PERSON}")
        (folder / name).mkdir(parents=True)
        sessions.append(stack.enter_context(Engine("spark", folder / name, spark).session(con, policy)))
        databases.append(con)
    return OnSpark(*databases, sessions[0], [inside.engine(session) for session in sessions])


@pytest.fixture(scope="module")
def neighbours(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnSpark]:
    with ExitStack() as stack:
        yield opened(spark, tmp_path_factory.mktemp("names"), stack)


@pytest.mark.spark
def test_the_neighbours_differ_by_a_person(neighbours: OnSpark) -> None:
    """A control of what is compared: the second database must not be a view of the first."""
    table = neighbours.engines[0].relation(neighbours.session.policy.tables["visits"])
    counts = [
        e.execute(f"SELECT COUNT(*) AS n FROM {table} AS t")["n"][0].as_py() for e in neighbours.engines
    ]
    assert counts == [360, 60]


@pytest.mark.spark
def test_no_name_moves_a_statistic_on_spark(neighbours: OnSpark) -> None:
    """Every form with some names, and every name in some forms."""
    names, asked, answered = (*WRITERS, *NAMES), 0, 0
    for place, form in enumerate(FORMS):
        for i in range(EACH):
            turn = place * EACH + i
            first, second = names[turn % len(names)], names[7 * turn % len(names)] if i % 2 else "w9"
            text = written(form, first, second)
            found = neighbours.check(text)
            assert not found, f"{text}\n{found}"
            asked += 1
            answered += found is not None
    assert asked == EACH * len(FORMS)
    assert EACH * len(FORMS) > 2 * len(names)
    assert answered > 0.5 * asked
    assert len(neighbours.known) < answered, "names are in the texts"


@pytest.mark.spark
def test_it_would_be_seen_on_spark_if_names_decided(
    neighbours: OnSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a text whose unit is another column, as a binder would write it that goes by names. (With two columns of
    one name, as that binder has them, Spark refuses.)"""
    exact = Gate.exact

    def forged(self: Gate, sql: str, lent: Mapping[str, Sequence[str]]) -> str:
        return re.sub(r'"patient_id" AS (unit_\w+)', r'"visit_id" AS \1', exact(self, sql, lent))

    text = written(FORMS[0], "dpsql_unit", "w9")
    assert neighbours.check(text) == []
    monkeypatch.setattr(Gate, "prove", lambda self, *given: None)
    for name in ("prove_typed", "prove_written"):
        monkeypatch.setattr(Gate, name, lambda self, *given, **named: None)
    monkeypatch.setattr(Gate, "exact", forged)
    assert any("moves by" in fault for fault in neighbours.check(text) or [])


@pytest.fixture(scope="module")
def here() -> Iterator[Neighbours]:
    made = Neighbours.open()
    yield made
    made.close()


def texts_of(made: Neighbours, statement: str) -> list[str]:
    """Return the texts that Spark would get of a statement: none where it is refused."""
    plan = made.plan(statement)
    if plan is None:
        return []
    session, found = made.session, []
    tables = {t.name: list(inside.engine(session).schema(t).items()) for t in session.policy.tables.values()}
    for block in plan.blocks:
        operator: Any = block.operator
        lent = inside.lent_columns(session, plan, block)
        for query in getattr(operator, "checked", operator.queries):
            if query in getattr(operator, "apart", ()):
                continue  # it reads the rows of one block, and is DuckDB's alone
            text = inside.gate(session).exact(
                query, {name: [c for c, _ in given] for name, given in lent.items()}
            )
            try:
                found.append(spark_sql(fill_parameters(text, VALUES), {**tables, **lent}))
            except BindError as refused:
                assert "Spark has no equivalent of" in str(refused)
                return []
    return found


def unquoted(text: str) -> str:
    """A text without its values."""
    return re.sub(r"'(?:[^'\\]|\\.)*'", "''", text)


def test_no_name_of_the_analyst_stands_in_sparks_text(here: Neighbours) -> None:
    written_forms = 0
    for form in FORMS:
        found = texts_of(here, written(form, "mark_one", 'Mark "two"'))
        for text in found:
            assert "mark" not in unquoted(text).lower(), text
        written_forms += bool(found)
    assert written_forms > 0.7 * len(FORMS)


def test_a_value_is_where_an_analysts_text_stands(here: Neighbours) -> None:
    """The control: the letters are in the text, in quotes."""
    text = "\n".join(texts_of(here, "SELECT ward || 'mark' AS k, COUNT(*) FROM visits GROUP BY k"))
    assert "mark" in text
    assert "mark" not in unquoted(text)


@pytest.mark.parametrize("value", ["$salt", "it's $salt", "${salt}", "a\\' OR 1 = 1 --", "`c0`", "$first"])
def test_a_value_stays_a_value(here: Neighbours, value: str) -> None:
    """Neither a parameter of ours nor an escape of Spark's is looked for in what stands in quotes."""
    literal = value.replace("'", "''")
    text = "\n".join(texts_of(here, f"SELECT ward || '{literal}' AS k, COUNT(*) FROM visits GROUP BY k"))
    plain = unquoted(text)
    assert text
    assert "'" not in plain.replace("''", "")
    assert not re.search(r"or 1|salt|first|12345(?!L)", plain, re.IGNORECASE)
