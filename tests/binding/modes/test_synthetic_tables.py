"""CREATE SYNTHETIC TABLE: what is bound and refused, what is charged, and the table that is there afterwards.

The model is a plain one: the package that fits models is an extra.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import BindError, BudgetExceeded, ParseError, PrivacyError
from dpsql.language.statements import parse
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.base import add_salt
from dpsql.mechanisms.synthetic import models, rounds
from dpsql.mechanisms.synthetic.rounds import SyntheticRows
from dpsql.noise.entropy import Entropy
from dpsql.server.client_session import ClientSession
from dpsql.session.result import MissingLibrary
from tests.support.plain_model import PlainFitter, use_plain_models
from tests.support.remote import connect_near

POLICY = """
budget = { epsilon = 1000, delta = 1e-3, accountant = "basic" }
[tables]
visits = { privacy_unit = "patient", max_rows_per_group = 3, max_groups = 2, columns = { \
    ward = { values = ["A", "B", "it's"] }, age = { bounds = [0, 99] }, day = { bounds = [2024-01-01, 2024-01-05] }, \
    cost = { bounds = [0, 500] } } }
people = { privacy_unit = "ROW", columns = { ward = { values = ["A", "B"] } } }
bare = { privacy_unit = "patient", columns = { ward = { values = ["A", "B"] } } }
wards = { public = true }
"""
SELECT = "SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 1) ward, urgent FROM visits"


def fill(con: duckdb.DuckDBPyConnection, more: str = "") -> None:
    con.execute(
        "CREATE TABLE visits AS SELECT i AS patient, CASE i % 3 WHEN 0 THEN 'A' WHEN 1 THEN 'B' ELSE 'it''s' END AS ward, "
        "i % 2 = 0 AS urgent, i % 100 AS age, DATE '2024-01-01' + (i % 5)::INTEGER AS day, i % 500 AS cost, "
        "'n' || i AS note, i / 7 AS weight "
        "FROM range(3000) t(i)"
    )
    if more:
        con.execute(more)
    con.execute("CREATE TABLE people AS SELECT ward, urgent FROM visits")
    con.execute("CREATE TABLE bare AS SELECT patient, ward FROM visits")
    con.execute("CREATE TABLE wards AS SELECT 'A' AS ward, 'x' AS label")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[dpsql.Session]:
    use_plain_models(monkeypatch)
    with duckdb.connect() as con:
        fill(con)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as opened:
            yield opened


def leave_out_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("there is no module of that name")

    monkeypatch.setattr(rounds, "require_package", fail)


# -- the table --------------------------------------------------------------------------------------------------------


def test_the_table_stands_in_the_session_for_free(session: dpsql.Session) -> None:
    made = session.sql(f"CREATE SYNTHETIC TABLE s AS {SELECT}")
    assert made.columns == ["ward", "urgent"]
    assert abs(len(made) - 3000) < 200
    assert any(note.startswith("only 1 row per patient is used") for note in made.notes)
    left = session.budget().left_epsilon
    assert left == 999
    counted = session.sql("SELECT ward, COUNT(*) AS n FROM s GROUP BY ward ORDER BY ward")
    assert counted.event is None
    assert dict(counted.fetchall()) == pytest.approx({"A": 1000, "B": 1000, "it's": 1000}, abs=150)
    listed = {row["table"]: row["kind"] for row in session.sql("SHOW TABLES").dicts()}
    assert listed["s"] == "kept result"
    assert session.budget().left_epsilon == left


def test_the_same_again_is_free_whatever_number_of_rows(session: dpsql.Session) -> None:
    first = session.sql(f"CREATE SYNTHETIC TABLE s AS {SELECT}")
    for rows in (1, 17, 1000, 3001, 100_000):
        again = session.sql(f"CREATE OR REPLACE SYNTHETIC TABLE t ROWS {rows} AS {SELECT}")
        assert (len(again), again.loss) == (rows, "no charge")
        shares = Counter(first.fetchall())
        for cell, count in Counter(again.fetchall()).items():
            assert abs(count - shares[cell] * rows / len(first)) <= 1
    assert session.synthesise(SELECT).table.equals(first.table)
    assert session.synthesise(SELECT, rows=5).loss == "no charge"
    assert len(session.sql(f"CREATE SYNTHETIC TABLE u ROWS $n AS {SELECT}", {"n": 12})) == 12
    assert session.synthesise(SELECT, fresh=True).loss == "ε=1"
    assert session.budget().left_epsilon == 998


def test_synthesise_keeps_what_create_names(session: dpsql.Session) -> None:
    made = session.synthesise(f"CREATE SYNTHETIC TABLE s AS {SELECT}", rows=40)
    assert session.sql("SELECT COUNT(*) FROM s").fetchone() == (40,)
    assert len(made) == 40
    assert "visits" not in session.kept
    session.synthesise(SELECT.replace("ward, urgent", "urgent"))
    assert set(session.kept) == {"s"}
    texts = [entry.text for entry in session.ledger()]
    assert texts[0].startswith("CREATE SYNTHETIC TABLE s")
    assert texts[1].endswith("/* synthetic rows */")


def test_a_plain_select_of_the_same_text_is_another_statement(session: dpsql.Session) -> None:
    session.synthesise(SELECT)
    with pytest.raises(PrivacyError, match="must be a group"):
        session.sql(SELECT)
    session.synthesise(SELECT)


def test_columns_may_have_any_name_and_be_computed(session: dpsql.Session) -> None:
    made = session.sql(
        "CREATE SYNTHETIC TABLE mine AS SELECT WITH DP OPTIONS (epsilon = 50, max_rows_contributed = 1) "
        'ward AS drawn, urgent AS "total", FLOOR(age / 25)::INTEGER AS k0, day AS copy, ward AS upto FROM visits '
        "WHERE age < 75 AND urgent"
    )
    assert made.columns == ["drawn", "total", "k0", "copy", "upto"]
    rows = made.fetchall()
    assert {row[0] for row in rows} == {"A", "B", "it's"}
    assert {row[2] for row in rows} == {0, 1, 2}
    assert len({row[3] for row in rows}) == 5
    assert all(row[0] == row[4] for row in rows)
    assert sum(row[1] for row in rows) > 0.95 * len(rows)


def test_rows_may_be_the_units(session: dpsql.Session) -> None:
    made = session.synthesise("SELECT WITH DP OPTIONS (epsilon = 5) ward, urgent FROM people")
    assert abs(len(made) - 2000) < 100  # the third ward is not declared
    assert {row[0] for row in made.fetchall()} == {"A", "B"}


def test_currencies_and_noise(session: dpsql.Session) -> None:
    with duckdb.connect() as con:
        fill(con)
        policy = POLICY.replace('accountant = "basic"', 'accountant = "zcdp"')
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as other:
            for asked in (
                "rho = 0.5",
                "mu = 1",
                "epsilon = 1, delta = 1e-6",
                "epsilon = 1, noise = 'LAPLACE'",
            ):
                text = SELECT.replace("epsilon = 1", asked).replace("urgent", "urgent, age // 25 AS a, day")
                other.synthesise(text)
            spent = [entry.event for entry in other.ledger()]
    assert float(spent[0].rho) == pytest.approx(0.5, rel=1e-6)
    assert spent[0].rho <= 0.5
    assert float(spent[1].mu) == pytest.approx(1, rel=1e-6)
    assert spent[1].mu <= 1
    assert spent[2].basic == (1, Fraction(1, 10**6))
    assert spent[3].basic == (1, 0)


def test_what_is_explained_is_what_is_charged(session: dpsql.Session) -> None:
    text = f"CREATE SYNTHETIC TABLE s ROWS 10 AS {SELECT}"
    explained = session.explain(text)
    assert "Would cost ε=1" in str(explained)
    assert "one row" in str(explained) or "1 row" in str(explained)
    assert session.sql(f"EXPLAIN {text}").fetchall()
    assert session.budget().left_epsilon == 1000
    assert session.describe(text).schema.names == ["ward", "urgent"]
    assert session.sql(text).loss == "ε=1"
    assert "Synthetic" in str(session.why()) or "synthetic" in str(session.why())


def test_the_ledger_has_what_was_measured(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = PlainFitter(sweeps=2)
    monkeypatch.setattr(models.GraphicalFitter, "fit", lambda _self, *given: plain.fit(*given))
    text = "ward, urgent, FLOOR(age / 25)::INTEGER AS quarter, day FROM visits"
    asked = f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = GAUSSIAN, max_rows_contributed = 2) {text}"
    made = session.synthesise(asked)
    (entry,) = session.ledger()
    assert entry.event == made.event
    assert entry.event.basic == (1, Fraction(1, 10**6))
    noisy, *choices = entry.event.leaves()
    _, released, _ = plain.seen[-1]
    variances = [float(sigma) ** 2 + 1 / 12 for sigma in noisy.sigmas]
    assert [marginal.deviation**2 for marginal in released] == pytest.approx(variances)  # type: ignore[attr-defined]
    assert set(noisy.squares) == {2**2}
    assert len(choices) == len(plain.seen) - 1 == len(variances) - 4


# -- refusals ---------------------------------------------------------------------------------------------------------

WITH = "SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 1)"
REFUSED: list[tuple[str, type[Exception], str | None]] = [
    (f"CREATE SYNTHETIC TABLE s AS {WITH} note FROM visits", PrivacyError, "not public"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} weight FROM visits", PrivacyError, "not public"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} patient FROM visits", PrivacyError, "unit"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} * FROM visits", PrivacyError, "names its columns"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} ward, COUNT(*) FROM visits GROUP BY ward", BindError, "no GROUP BY"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} COUNT(*) FROM visits", BindError, "counts them"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} ward FROM visits LIMIT 5", BindError, "no LIMIT"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} 1 AS one FROM visits", BindError, "computed from the rows"),
    ("CREATE SYNTHETIC TABLE s AS SELECT ward FROM bare", PrivacyError, "needs a limit on the rows"),
    ("CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward FROM bare", PrivacyError, "a limit on the rows"),
    ("CREATE SYNTHETIC TABLE s AS SELECT ward FROM visits", PrivacyError, "needs an epsilon"),
    (f"CREATE SYNTHETIC TABLE visits AS {WITH} ward FROM visits", BindError, "private table"),
    (f"CREATE SYNTHETIC TABLE AS {WITH} ward FROM visits", ParseError, "needs a name"),
    (f"CREATE SYNTHETIC s AS {WITH} ward FROM visits", ParseError, "followed by TABLE"),
    (f"CREATE SYNTHETIC TABLE s ROWS AS {WITH} ward FROM visits", ParseError, "whole number"),
    ("CREATE SYNTHETIC TABLE s ROWS 2 AS SELECT ward FROM wards", BindError, "copied as they are"),
    (f"CREATE SYNTHETIC TABLE s ROWS 0 AS {WITH} ward FROM visits", ParseError, "whole number"),
    (f"CREATE SYNTHETIC TABLE s ROWS 1e3 AS {WITH} ward FROM visits", ParseError, "whole number"),
    (f"CREATE SYNTHETIC TABLE s ROWS 99999999999 AS {WITH} ward FROM visits", ParseError, "whole number"),
    (f"CREATE SYNTHETIC TABLE s {WITH} ward FROM visits", ParseError, "AS SELECT"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} FROM visits", PrivacyError, "names its columns"),
    ("CREATE SYNTHETIC TABLE s AS", ParseError, "AS SELECT"),
    ("CREATE SYNTHETIC TABLE", ParseError, "needs a name"),
    ("CREATE SYNTHETIC", ParseError, "followed by TABLE"),
    ("CREATE SYNTHETIC TABLE s AS SHOW BUDGET", ParseError, None),
    ("CREATE SYNTHETIC TABLE s AS SELECT WITH PTR OPTIONS (epsilon = 1) ward FROM visits", ParseError, "mode PTR"),
    (f"CREATE SYNTHETIC TABLE s AS {WITH} ward FROM visits UNION ALL SELECT ward FROM visits", ParseError, "one SELECT"),
    ("CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (consistent = TRUE) ward FROM visits", BindError, "no consist"),
    ("CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) ward FROM visits", BindError, "a number"),
    ("CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 2000) ward FROM visits", BudgetExceeded, None),
    ("CREATE VIEW s AS SELECT ward FROM visits", ParseError, "not a statement"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "message"), REFUSED)
def test_refusals_cost_nothing(
    session: dpsql.Session, text: str, kind: type[Exception], message: str | None
) -> None:
    with pytest.raises(kind, match=message) as caught:
        session.sql(text)
    assert isinstance(caught.value, dpsql.Error)
    assert caught.value.hint
    assert session.budget().left_epsilon == 1000
    assert not session.kept


def test_what_may_not_be_asked_together(session: dpsql.Session) -> None:
    for text, rows in (
        (f"{SELECT}; {SELECT}", None),
        ("SHOW BUDGET", None),
        (SELECT, 0),
        (SELECT, True),
        (SELECT, 1.5),
    ):
        with pytest.raises(dpsql.Error):
            session.synthesise(text, rows=rows)  # type: ignore[arg-type]
    with pytest.raises(BindError, match="twice"):
        session.synthesise(f"CREATE SYNTHETIC TABLE s ROWS 5 AS {SELECT}", rows=5)
    with pytest.raises(BindError, match="to keep"), session.plan() as plan:
        plan.sql(f"CREATE SYNTHETIC TABLE s AS {SELECT}")
    assert session.budget().left_epsilon == 1000


def test_without_the_package_nothing_is_charged(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session.synthesise(SELECT)
    leave_out_package(monkeypatch)
    assert session.synthesise(SELECT, rows=10).loss == "no charge"  # a stored one needs no package
    session.explain(f"CREATE SYNTHETIC TABLE s AS {SELECT.replace('= 1', '= 2')}")
    for ask in (
        lambda: session.synthesise(SELECT, fresh=True),
        lambda: session.sql(f"CREATE SYNTHETIC TABLE s AS {WITH} urgent FROM visits"),
    ):
        with pytest.raises(MissingLibrary) as caught:
            ask()
        assert "pip install" in str(caught.value.hint)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    remote, _ = connect_near(session)
    with pytest.raises(dpsql.Error, match="needs 'dpsql"):
        remote.synthesise(SELECT, fresh=True)
    assert session.budget().left_epsilon == 999
    assert len(made)


# -- the exact scan ---------------------------------------------------------------------------------------------------


def read_cells(session: dpsql.Session, text: str) -> Counter[tuple[Any, ...]]:
    """Return what the exact query of a synthetic table gives, under a fresh salt."""
    line: Any = session._pipeline.compiler
    (statement,) = parse(text)
    plan = line.bind(statement, line.open_cell())
    (block,) = plan.blocks
    operator = block.operator
    assert isinstance(operator, SyntheticRows)
    table = add_salt(line.queries.reader({}, operator), operator.queries, Entropy())(operator.query)
    keys = zip(*(table.column(key).to_pylist() for key in operator.keys), strict=True)
    return Counter(dict(zip(keys, map(int, table.column(operator.count).to_pylist()), strict=True)))


def open_pair(rows: list[tuple[str, bool, int]]) -> list[dpsql.Session]:
    """Open two databases, of which one has these rows of a unit more."""
    listed = ", ".join(
        f"(-1, '{ward}', {urgent}, {age}, NULL, NULL, 'secret', 1.5)" for ward, urgent, age in rows
    )
    opened = []
    for more in ("", f"INSERT INTO visits VALUES {listed}"):
        con = duckdb.connect()
        fill(con, more)
        opened.append(dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)))
    return opened


def test_one_unit_moves_the_exact_cells_by_no_more_than_is_charged() -> None:
    draw = random.Random(25)
    uncapped = 0
    for caps, reach in (
        ("max_rows_contributed = 4", 4),
        ("max_groups_contributed = 2", 6),
        ("max_groups_contributed = 1", 3),
    ):
        text = f"CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1, {caps}) "
        text += "ward, urgent, FLOOR(age / 10)::INTEGER AS a FROM visits"
        for spread in (1, 3, 40):
            wards, many = ["A", "B", "it's", "Z"][:spread], 40
            rows = [
                (draw.choice(wards).replace("'", "''"), draw.random() < 0.5, draw.randrange(3 * spread))
                for _ in range(many)
            ]
            without, with_ = open_pair(rows)
            before, after = read_cells(without, text), read_cells(with_, text)
            moved = sum(abs(after[c] - before[c]) for c in {*before, *after})
            assert 0 < moved <= reach
            public = Counter(row for row in rows if row[0] != "Z")
            uncapped += sum(public.values()) > reach
            for one in (without, with_):
                one.close()
    assert uncapped == 9  # without caps every one of them would have moved more


def test_a_text_that_does_more_than_is_charged_is_not_read(session: dpsql.Session) -> None:
    line: Any = session._pipeline.compiler
    (statement,) = parse(
        f"CREATE SYNTHETIC TABLE s AS {SELECT.replace('_contributed = 1', '_contributed = 2')}"
    )
    plan = line.bind(statement, line.open_cell())
    operator = plan.blocks[0].operator
    less = replace(operator.single, sensitivity=1), replace(operator.measured, sensitivity=1)
    with pytest.raises(Unproved):
        line.queries.gate.prove(replace(operator, steps=1, single=less[0], measured=less[1]), {})
    line.queries.gate.prove(operator, {})


# -- a server ---------------------------------------------------------------------------------------------------------


def test_a_synthetic_table_is_made_again_from_stored_answers(session: dpsql.Session) -> None:
    remote, channel = connect_near(session)
    remote.sql(f"CREATE SYNTHETIC TABLE s AS {SELECT}")
    remote.synthesise(f"CREATE SYNTHETIC TABLE t AS {SELECT}", rows=30)
    remote.keep("u", remote.synthesise(SELECT, rows=20))
    expected = remote.sql(
        "SELECT (SELECT COUNT(*) FROM s), (SELECT COUNT(*) FROM t), (SELECT COUNT(*) FROM u)"
    ).fetchall()
    assert expected[0][1:] == (30, 20)
    other = ClientSession(
        dpsql.Session(session.policy, session._pipeline.engine, session.account), session.policy.server
    )
    other.restore(channel.near.read_journal())
    again = other.session.sql(
        "SELECT (SELECT COUNT(*) FROM s), (SELECT COUNT(*) FROM t), (SELECT COUNT(*) FROM u)"
    ).fetchall()
    assert again == expected
    assert session.budget().left_epsilon == 999
    assert other.read_journal() == channel.near.read_journal()
