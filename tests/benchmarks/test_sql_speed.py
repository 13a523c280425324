"""Private statements beside plain DuckDB on the same rows: ratios, printed. Run with ``pytest -m benchmark
-s``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import duckdb
import pytest

import dpsql
from dpsql.privacy.filters import ACCOUNTANTS
from tests.support.benchmarks import alternate, note_pairs

pytestmark = pytest.mark.benchmark
ROWS, UNITS, FEWER = 10_000_000, 1_000_000, 1_000_000
_POLICY = """
budget = { epsilon = 1e6, delta = 1e-2, accountant = "basic", default_epsilon = 1, default_delta = 1e-6 }
[tables]
rows = { source = "visits", privacy_unit = "ROW", columns = { c10 = { values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }, \
    amount = { bounds = [0, 100] } } }
users = { source = "visits", privacy_unit = "user_id", max_rows_per_group = 20, max_groups = 3, columns = { \
    c10 = { values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }, amount = { bounds = [0, 100] } } }
million = { privacy_unit = "ROW", columns.amount.bounds = [0, 100] }
tiny = { privacy_unit = "user_id", max_rows = 20 }
"""


@pytest.fixture(scope="module")
def visits() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Session]]:
    with duckdb.connect() as con:
        con.execute("SET perfect_ht_threshold = 17")  # as the engine sets it, for both sides
        con.execute(
            f"""CREATE TABLE visits AS SELECT (random() * random() * {UNITS})::BIGINT AS user_id,
            (random() * 10)::BIGINT % 10 AS c10, (random() * 100000)::BIGINT AS c100k,
            random() * 120 AS amount
            FROM range({ROWS})"""
        )
        con.execute("CREATE TABLE tiny AS SELECT range AS user_id FROM range(100)")
        con.execute(f"CREATE TABLE million AS SELECT amount FROM visits LIMIT {FEWER}")
        with dpsql.connect(con, policy=dpsql.Policy.loads(_POLICY)) as session:
            yield con, session


CASES = {
    "W1 COUNT, SUM, AVG by row": (
        2.3,
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM rows",
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM visits",
    ),
    "W1 the same of a million rows": (
        3.5,
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM million",
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM million",
    ),
    "W2 the same by user": (
        1.3,
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM users",
        "SELECT COUNT(n), SUM(s) FROM (SELECT user_id, COUNT(*) AS n, SUM(amount) AS s FROM visits GROUP "
        "BY user_id)",
    ),
    "W3 10 public groups, 3 per user": (
        1.5,
        "SELECT c10, COUNT(*), SUM(amount) FROM users GROUP BY c10",
        "SELECT c10, COUNT(*), SUM(s) FROM "
        "(SELECT user_id, c10, SUM(amount) AS s FROM visits GROUP BY user_id, c10) GROUP BY c10",
    ),
    "W4 100,000 private groups, 5 per user": (
        1.5,
        "SELECT WITH DP OPTIONS (max_groups_contributed = 5) c100k, COUNT(*) FROM users GROUP BY c100k",
        "SELECT c100k, COUNT(DISTINCT user_id) FROM visits GROUP BY c100k",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_scans(visits: tuple[duckdb.DuckDBPyConnection, dpsql.Session], name: str) -> None:
    con, session = visits
    target, ours, theirs = CASES[name]
    taken = alternate(
        lambda: session.sql(ours, fresh=True),
        lambda: con.sql(theirs).fetchall(),
        times=9 if "W1" in name else 5,
    )
    assert note_pairs(name, *taken, target) <= target


_SMALL = """
[budget]
epsilon = 1e6
delta = 1e-2
accountant = "{accountant}"
default_epsilon = 1e-3
default_delta = 1e-8
[tables.rows]
source = "tiny"
privacy_unit = "ROW"
columns.amount.bounds = [0, 100]
[tables.users]
source = "tiny"
privacy_unit = "user_id"
max_rows = 20
columns.amount.bounds = [0, 100]
"""


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_small_statements_beside_plain_ones(accountant: str) -> None:
    """A hundred rows: a new text, new values, an answer afresh, and EXPLAIN; each beside plain DuckDB, in turn."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE tiny AS SELECT range AS user_id, range % 50 AS amount FROM range(100)")
        policy = dpsql.Policy.loads(_SMALL.format(accountant=accountant))
        with dpsql.connect(con, policy=policy) as session, con.cursor() as plain:
            for unit in ("rows", "users"):
                _compare_small(session, plain, unit, accountant)


def _compare_small(
    session: dpsql.Session, plain: duckdb.DuckDBPyConnection, unit: str, accountant: str
) -> None:
    text = f"SELECT COUNT(*) AS n, SUM(amount) AS s FROM {unit} WHERE amount > {{}}"
    ways: dict[str, tuple[float | None, Callable[[int], object]]] = {
        "new text": (15, lambda i: session.sql(text.replace("AS n", f"AS n{i}").format(i % 9), fresh=True)),
        "new values": (15, lambda i: session.sql(text.format(100 + i), fresh=True)),
        "afresh": (8, lambda i: session.sql(text.format(7), fresh=True)),
        "EXPLAIN": (None, lambda i: session.explain(text.format(7))),
    }
    runs = {
        name: partial(lambda ask, places: ask(next(places)), ask, count()) for name, (_, ask) in ways.items()
    }
    places = count()
    taken = alternate(
        *runs.values(),
        lambda: plain.sql(text.format(next(places)).replace(unit, "tiny")).fetchall(),
        times=45,
    )
    *ours, theirs = (seconds[5:] for seconds in taken)
    for (name, (target, _)), mine in zip(ways.items(), ours, strict=True):
        assert note_pairs(f"small, {unit}, {accountant}, {name}", mine, theirs, target)
