"""A session end to end: what is charged, what is not, what is said."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import Error
from tests.support import inside
from tests.support.own_process import run_python

DEMO = Path(dpsql.__file__).parent / "demo"
POLICY = f"""
budget = {{ epsilon = 2, delta = 1e-6, accountant = "basic", max_epsilon_per_query = 1, default_epsilon = 0.1, \
    default_delta = 1e-8 }}
[tables]
visits = {{ source = "{DEMO}/visits.parquet", privacy_unit = "person_id", max_rows_per_group = 5, max_groups = 2, \
    columns = {{ plan = {{ values = ["free", "25%", "50%", "95%", "deductible"] }}, age = {{ bounds = [0, 65] }} }} }}
unlimited = {{ source = "{DEMO}/visits.parquet", privacy_unit = "person_id" }}
rows = {{ source = "{DEMO}/visits.parquet", privacy_unit = "ROW" }}
plans = {{ source = "{DEMO}/plans.parquet", public = true }}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def session(policy: Path) -> Iterator[dpsql.Session]:
    with dpsql.connect(policy=policy) as session:
        yield session


def spent(session: dpsql.Session) -> Fraction:
    return session.budget().spent_epsilon


@pytest.mark.parametrize(
    ("value", "count"),
    [("free", "="), ("x' OR '1' = '1", "0"), (None, "0"), (3.5, "error"), (float("nan"), "error")],
)
def test_parameters_are_values(session: dpsql.Session, value: Any, count: str) -> None:
    query = "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM visits WHERE concat(plan) = $plan"
    if count == "error":
        with pytest.raises(dpsql.BindError):
            session.sql(query, {"plan": value})
        assert spent(session) == 0
        return
    answer = session.sql(query, {"plan": value}).fetchone()[0]
    assert abs(answer - (6822 if count == "=" else 0)) < 200


def _broken(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def execute(sql: str, lent: Any = None) -> Any:
        secret = 4711
        raise error if secret else None

    monkeypatch.setattr(inside.engine(session), "execute", execute)


def test_a_failure_in_the_engine_is_charged_and_says_nothing(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken(session, monkeypatch, ValueError("could not convert 'Ada Lovelace'"))
    with pytest.raises(dpsql.EngineError) as caught:
        session.sql("SELECT COUNT(*) FROM visits")
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "Ada" not in str(error)
    assert "withheld" in str(error)
    frame = caught.tb
    while frame is not None:
        assert "secret" not in frame.tb_frame.f_locals
        frame = frame.tb_next
    assert spent(session) == Fraction(1, 10)
    assert [entry.outcome for entry in session.ledger()] == ["failed"]


def test_the_budget_ends(session: dpsql.Session) -> None:
    for _ in range(2):
        session.sql("SELECT WITH DP OPTIONS (epsilon = 0.95) COUNT(*) FROM visits", fresh=True)
    with pytest.raises(dpsql.BudgetExceeded):
        session.sql("SELECT WITH DP OPTIONS (epsilon = 0.2) COUNT(*) FROM visits")
    assert spent(session) == Fraction(19, 10)
    session.sql("SELECT COUNT(*) FROM visits")
    assert spent(session) == 2
    assert session.ledger()[2].outcome == "refused"
    assert session.sql("SELECT 1 + 1 AS two").fetchone() == (2,), "public statements stay free"
    assert session.sql("SELECT COUNT(*) FROM plans").fetchone() == (5,)
    assert spent(session) == 2


def test_a_statement_of_several_blocks_is_one_charge(session: dpsql.Session) -> None:
    query = "SELECT a.n, b.n FROM (SELECT COUNT(*) AS n FROM visits) a, (SELECT AVG(age) AS n FROM visits) b"
    session.sql(query)
    assert spent(session) == Fraction(2, 10)
    (entry,) = session.ledger()
    assert entry.loss == "ε=0.2"


def test_explain_spends_nothing_and_reads_nothing(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken(session, monkeypatch, AssertionError("EXPLAIN read private data"))
    query = "SELECT plan, COUNT(*), AVG(age) FROM visits GROUP BY plan"
    text = "\n".join(row[0] for row in session.sql(f"EXPLAIN {query}").fetchall())
    for part in ("person_id", "at most 5 rows", "from the policy", "discrete Laplace", "ε=0.1", "Exact SQL"):
        assert part in text, part
    assert text == str(session.explain(query)) == str(session.explain(f"EXPLAIN {query}"))
    read = json.loads(session.sql(f"EXPLAIN (FORMAT JSON) {query}").fetchone()[0])
    assert set(read) == {"sentences", "price", "errors", "expected_error", "sql", "finish"}
    assert "visits" in read["sql"][0]
    assert read == json.loads(session.explain(query).json())
    assert spent(session) == 0
    assert session.ledger() == []
    assert "public data only" in str(session.explain("SELECT 1"))


def test_opening_needs_no_plots_or_frames() -> None:
    """A session answers without pandas, polars or matplotlib having been imported."""

    code = (
        "import sys, duckdb, pyarrow\n"  # an older DuckDB imports pandas itself
        "before = set(sys.modules)\nimport dpsql\n"
        f"p = dpsql.Policy.loads({POLICY!r})\n"
        "with dpsql.connect(policy=p) as s:\n"
        "    for _ in range(3): s.sql('SELECT COUNT(*) FROM visits', fresh=True).fetchall()\n"
        "    for asked in ('MEDIAN(age)', 'MODE(plan)', 'COUNT(*), AVG(age)', 'APPROX_QUANTILES(age, 4)', 'HISTOGRAM(plan)'):\n"
        "        for mode in ('', 'EXPLAIN '): s.sql(f'{mode}SELECT {asked} AS a FROM visits').fetchall()\n"
        "print([m for m in ('pandas', 'polars', 'matplotlib', 'scipy', 'IPython') if m in set(sys.modules) - before])"
    )
    done = run_python("-c", code, check=True)
    found = done.stdout.strip()
    # which DuckDB 1 imports itself
    assert found == "[]" or (duckdb.__version__ < "2" and found == "['pandas']")


def test_what_is_imported_is_not_visited_by_the_collector() -> None:
    """It joins the oldest generation; objects that the user froze stay frozen."""
    import gc

    from dpsql.interrupts import pausing_collection

    def collect_apart() -> bool:
        with pausing_collection(lasting=True):
            assert not gc.isenabled()
            made: list[object] = []
        assert gc.isenabled()
        return any(held is made for held in gc.get_objects(generation=2))

    assert collect_apart()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert not collect_apart()
        assert gc.get_freeze_count() > frozen // 2  # some may be gone
    finally:
        gc.unfreeze()


def test_a_failing_statement_does_not_lose_the_answers_before_it(policy, tmp_path):
    with dpsql.connect(policy=policy, ledger=tmp_path / "x.ledger") as session:
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            session.run(
                "SELECT WITH DP OPTIONS (epsilon = 0.9) COUNT(*) FROM visits;"
                "SELECT WITH DP OPTIONS (epsilon = 0.9) COUNT(*) FROM visits WHERE age > 1;"
                "SELECT WITH DP OPTIONS (epsilon = 0.9) COUNT(*) FROM visits WHERE age > 2"
            )
        assert [type(result).__name__ for result in caught.value.answered] == ["Result", "Result"]


def test_what_a_session_and_a_budget_say_of_themselves(policy: Path) -> None:
    session = dpsql.connect(policy=policy)
    session.sql("SELECT COUNT(*) AS n FROM visits")
    assert repr(session).startswith("<dpsql session: visits, unlimited, ")
    assert "(public)" in repr(session)
    assert repr(session).endswith(f"{session.budget().sentence}>")
    said = repr(session.budget())
    assert said.startswith("ε=1.9 of ε=2 left; about 19 more questions at ε=0.1     █░")
    assert said.endswith("  budget ε=2, δ=1e-06")
    assert "ε=1.9 of ε=2 left" in said
    session.close()
    assert repr(session) == "<dpsql session, closed>"
    with dpsql.connect(policy=dpsql.Policy.loads(policy.read_text())) as session:
        assert "lasts for this process only" in repr(session)


def test_parameters_as_python_writes_them(session: dpsql.Session) -> None:
    """Each spelling is the same question, so only the first is paid."""
    first = session.sql("SELECT COUNT(*) AS n FROM visits WHERE plan IN ('free', '25%') AND age > 30")
    spellings: list[tuple[str, Any]] = [
        ("plan IN $plans AND age > $age", {"plans": ["free", "25%"], "age": 30}),
        ("plan IN ($plans) AND age > $age", {"$plans": ("free", "25%"), "$age": 30}),
        ("plan IN ($a, $b) AND age > $age", {"a": "free", "b": "25%", "age": 30}),
        ("plan IN ? AND age > ?", [["free", "25%"], 30]),
        ("plan IN (?, ?) AND age > ?", ("free", "25%", 30)),
        ("plan IN (?,?) AND age>?", ("free", "25%", 30)),
        ("plan IN($a,$b)AND age>$age", {"a": "free", "b": "25%", "age": 30}),
        ("plan IN $2 AND age > $1", [30, ["free", "25%"]]),
        ("plan = ANY($plans) AND age > $age", {"plans": ["free", "25%"], "age": 30}),
    ]
    for text, params in spellings:
        again = session.sql(f"SELECT COUNT(*) AS n FROM visits WHERE {text}", params)
        assert (again.item(), again.loss) == (first.item(), "no charge"), text
    assert session.explain("SELECT COUNT(*) FROM visits WHERE age > ?", [30]).sentences


def test_patterns_are_made_of_values(session: dpsql.Session) -> None:
    """Values and literals that are put together make a pattern; the same question is paid once, and no column is in it."""
    first = session.sql("SELECT COUNT(*) AS n FROM visits WHERE plan LIKE '%re%'")
    for text, params in [
        ("?::VARCHAR", ["%re%"]),
        ("'%' || ? || '%'", ["re"]),
        ("CAST(? AS TEXT) || $$%$$", ["%re"]),
    ]:
        again = session.sql(f"SELECT COUNT(*) AS n FROM visits WHERE plan LIKE {text}", params)
        assert (again.item(), again.loss) == (first.item(), "no charge"), text
    for text in ["plan || ?", "? || plan", "lower(plan || ?)"]:
        with pytest.raises(dpsql.PrivacyError, match="a pattern must be a literal"):
            session.sql(f"SELECT COUNT(*) AS n FROM visits WHERE plan LIKE {text}", ["%"])
    assert session.sql("SELECT ?::INTEGER + 1 AS n, ? || ? AS word", ["4", "a", 5]).fetchall() == [(5, "a5")]


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("SELECT ? AS a", ["x", "y"], "there are 1 ? marks, but 2 parameters."),
        ("SELECT 1 AS a", ["x"], "there are 0 ? marks, but 1 parameter."),
        ("SELECT $2 AS a", ["x"], "the parameter $2 has no value."),
        ("SELECT ? AS a", None, "a ? mark has no value."),
        ("SELECT $1 AS a", {"p": 1}, "the parameter $1 has no value."),
        ("SELECT 1 AS a", "x", "parameters are a mapping or a list, not a str."),
    ],
)
def test_parameters_that_do_not_fit(session: dpsql.Session, text: str, params: Any, said: str) -> None:
    with pytest.raises(Error) as caught:
        session.sql(text, params)
    assert caught.value.message == said


def test_marks_in_texts_and_comments_are_none(session: dpsql.Session) -> None:
    text = "SELECT '?' AS a, ? AS b /* ? */ -- ?"
    assert session.sql(text, [3]).fetchall() == [("?", 3)]


def test_lists_by_the_names_of_columns_are_a_table() -> None:
    policy = dpsql.Policy.loads(
        '[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "person"\nmax_rows = 1\n'
        'columns.person.type = "INTEGER"\ncolumns.amount = { type = "DOUBLE", bounds = [0, 10] }'
    )
    lists = {"person": list(range(1000)), "amount": [5.0] * 999 + ["much"]}
    with dpsql.connect({"visits": lists}, policy=policy) as session:
        total = session.sql("SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount) AS s FROM visits").item()
        assert 4800 < total < 5200


def test_a_policy_made_in_python_keeps_the_folder_that_it_was_read_from(policy: Path) -> None:
    import shutil

    shutil.copy(DEMO / "plans.parquet", policy.parent / "here.parquet")
    text = '[budget]\nepsilon = 1\n[tables.plans]\npublic = true\nsource = "here.parquet"\n'
    policy.with_name("near.toml").write_text(text)
    with dpsql.connect(policy=dpsql.Policy.load(policy.with_name("near.toml"))) as session:
        assert len(session.sql("SELECT * FROM plans")) == 5


@pytest.mark.parametrize(("frames", "running"), [(range(1, 3), True), (range(4, 99), False)])
def test_a_marimo_notebook_prints_no_traceback_through_our_files(
    policy: Path, monkeypatch: pytest.MonkeyPatch, frames: range, running: bool
) -> None:
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(running_in_notebook=lambda: running))
    with dpsql.connect(policy=policy) as session:
        for ask in (session.sql, session.run):
            with pytest.raises(dpsql.PrivacyError) as caught:
                ask("SELECT * FROM visits")
            assert len(traceback.extract_tb(caught.value.__traceback__)) in frames
