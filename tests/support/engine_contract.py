"""The contract of an engine: a test class that a newcomer subclasses with one fixture.

    class TestMine(EngineContract):
        absent = {"median": "no equal"}

        @pytest.fixture
        def open_engine(self, tmp_path):
            def opened(tables, policy): ...  # put the Arrow tables where the engine reads, and return the engine
            return opened

Every statement of :data:`CAPABILITIES` must give the exact rows that DuckDB gives, or stand in `absent` and be refused
before anything is paid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

import dpsql
from dpsql.engine.base import WITHHELD, Engine
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import BindError, EngineError
from dpsql.policy.model import Policy
from tests.support import inside
from tests.support.both import Both, assert_same, plan_of, released
from tests.support.stop_button import pressed

OpenEngine = Callable[[Mapping[str, pa.Table], Policy], Engine]

POLICY = Policy.loads("""
budget = { epsilon = 1000, delta = 1e-3, default_epsilon = 1, default_delta = 1e-6 }
[tables]
visits = { privacy_unit = "person", max_rows_per_group = 3, max_groups = 2, columns.age.bounds = [0, 120], \
    columns.amount.bounds = [0, 500], columns.ward.values = ["A", "B", "C"] }
rooms = { privacy_unit = "ROW" }
wards = { public = true }
""")
# No unit has more rows or groups than the policy allows, so no row is chosen by a hash, which differs by engine.
TABLES = {
    "visits": pa.table(
        {
            "person": pa.array([1, 1, 2, 3, 4, 5, 5, None, 6, 7], pa.int64()),
            "ward": ["A", "A", "B", "A", None, "B", "B", "A", "a", "é"],
            "age": pa.array([30, 30, 121, -5, 44, None, 18, 60, 2**62, -(2**63)], pa.int64()),
            "amount": [0.5, 1e300, -3.25, None, float("nan"), 2.5, 99.75, 1.0, 250.125, float("inf")],
            "city": ["Delft", "Delft", "Ede", "Epe", "Delft", "Ede", "Ede", "Goes", "", None],
        }
    ),
    "rooms": pa.table({"floor": pa.array([1, 2, 2, None], pa.int64()), "name": ["x", "X", "y", "x"]}),
    "wards": pa.table({"ward": ["A", "B", "D"], "beds": pa.array([10, 20, None], pa.int64())}),
}

CAPABILITIES = {
    "count": "SELECT COUNT(*) AS n FROM visits",
    "row-level count": "SELECT COUNT(*) AS n FROM rooms WHERE floor > 1",
    "public groups": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "private groups": "SELECT city, COUNT(*) AS n FROM visits GROUP BY city",
    "sum of integers": "SELECT ward, SUM(age) AS s FROM visits GROUP BY ward",
    "sum of doubles": "SELECT SUM(amount) AS s FROM visits",
    "mean": "SELECT ward, AVG(age) AS a, AVG(amount) AS b FROM visits GROUP BY ward",
    "variance": "SELECT VARIANCE(age) AS v FROM visits",
    "distinct units": "SELECT COUNT(DISTINCT person) AS n FROM visits",
    "filter": "SELECT COUNT(*) FILTER (WHERE age > 20 AND ward IN ('A', 'B')) AS n FROM visits",
    "arithmetic": "SELECT COUNT(*) AS n FROM visits WHERE age + age > 60 AND age * 2 - 1 < 100",
    "case": "SELECT SUM(CASE WHEN age > 20 THEN 2 ELSE 1 END, contribution_bounds_per_row => (0, 2)) AS s FROM visits",
    "public join": "SELECT SUM(beds, contribution_bounds_per_row => (0, 9)) AS s FROM visits JOIN wards USING (ward)",
    "pattern": "SELECT COUNT(*) AS n FROM visits WHERE city LIKE 'D%'",
    "median": "SELECT MEDIAN(age) AS m FROM visits",
    "best of a relation": "WITH r(x) AS (VALUES (10), (50)) SELECT EXPMECH(COUNT(*) FILTER (WHERE age > x), epsilon => 1) "
    "OVER r FROM visits",
    "stable mode": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(ward) AS m FROM visits",
    "inverse sensitivity": "SELECT WITH STABLE OPTIONS (epsilon = 1) ward, IQR(age) AS w FROM visits GROUP BY ward",
    "blocks": "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 3, bounds = (0, 120)) AVG(age) AS a FROM visits",
}  # fmt: skip
"""The statements that an engine may be asked, one of each kind, over :data:`TABLES`."""


class EngineContract:
    """The tests that every engine passes, over the tables and statements above."""

    absent: ClassVar[Mapping[str, str]] = {}
    """Capabilities that the engine does not have, with a pattern of the words that refuse them."""
    stopped_joins: ClassVar[int] = 12
    """Tables of ten rows that are joined for a query to stop; fewer where an engine hears a stop at the end of a task alone."""

    @pytest.fixture
    def open_engine(self) -> OpenEngine:
        """Return a function that puts Arrow tables where the engine reads, and opens it. Subclasses give it."""
        raise NotImplementedError

    @pytest.fixture
    def engine(self, open_engine: OpenEngine) -> Iterator[Engine]:
        """Open the engine over the tables."""
        engine = open_engine(TABLES, POLICY)
        yield engine
        engine.close()

    @pytest.fixture
    def session(self, engine: Engine) -> Iterator[dpsql.Session]:
        """Open a session on the engine."""
        with dpsql.connect(engine, policy=POLICY) as session:
            yield session

    def test_schemas_are_those_of_duckdb(self, engine: Engine) -> None:
        duck = DuckDBEngine(TABLES, POLICY, Path())
        for table in POLICY.tables.values():
            assert dict(engine.schema(table)) == dict(duck.schema(table)), table.name
            assert engine.relation(table).count('"') % 2 == 0
        duck.close()

    @pytest.mark.parametrize("name", CAPABILITIES)
    def test_exact_rows_are_those_of_duckdb_or_the_statement_is_refused(
        self, name: str, engine: Engine, session: dpsql.Session
    ) -> None:
        if name in self.absent:
            before = session.budget().spent
            with pytest.raises(BindError, match=self.absent[name]):
                session.sql(CAPABILITIES[name])
            assert session.budget().spent == before
            return
        read = Both(DuckDBEngine(TABLES, POLICY, Path()), engine)
        assert released(session, plan_of(session, CAPABILITIES[name]), read) >= 1
        read.here.close()
        result = session.sql(CAPABILITIES[name])
        assert result.shape[1] >= 1
        assert result.loss

    def test_public_rows_and_lent_relations(self, engine: Engine) -> None:
        table = POLICY.tables["wards"]
        assert_same(engine.public(table), TABLES["wards"].cast(engine.public(table).schema))
        lent = {"lent": pa.table({"x": pa.array([1, 3], pa.int64())})}
        for ask in (engine.execute, engine.apart):
            assert ask("SELECT l.x AS x FROM lent AS l WHERE l.x > 2", lent).to_pylist() == [{"x": 3}]
        with pytest.raises(EngineError):
            engine.execute("SELECT l.x AS x FROM lent AS l")  # taken back

    def test_batches_are_the_rows(self, engine: Engine) -> None:
        text = f"SELECT v.age AS age FROM {engine.relation(POLICY.tables['visits'])} AS v"
        parts = list(engine.batches(text))
        assert parts
        assert_same(pa.concat_tables(parts), engine.execute(text))

    def test_a_column_of_numbers_is_the_rows(self, engine: Engine) -> None:
        text = f"SELECT v.person AS who FROM {engine.relation(POLICY.tables['visits'])} AS v"
        found = [number for part in engine.numbers(text) for number in part.column(0).to_pylist()]
        assert Counter(found) == Counter(engine.execute(text).column(0).to_pylist())

    def test_a_failure_says_nothing(self, engine: Engine) -> None:
        with pytest.raises(EngineError) as caught:
            engine.execute("SELECT x.secret AS s FROM nowhere AS x")
        assert caught.value.message == WITHHELD
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None

    def test_what_can_not_run_is_refused_before_it_is_paid(self, engine: Engine) -> None:
        with pytest.raises(BindError):
            engine.check(f"SELECT v.nothing AS n FROM {engine.relation(POLICY.tables['visits'])} AS v", {})

    def test_the_user_can_stop_a_query(self, engine: Engine) -> None:
        # A million million combinations of rows, or fewer; statistics do not tell that few fit.
        where = engine.relation(POLICY.tables["visits"])
        names = [f"v{i}" for i in range(self.stopped_joins)]
        total = " + ".join(f"COALESCE({name}.person, 0)" for name in names)
        text = f"SELECT COUNT(*) AS n FROM {', '.join(f'{where} AS {name}' for name in names)} WHERE {total} = 83"
        with pytest.raises(KeyboardInterrupt), pressed(engine.interrupt, every=0.5):
            engine.execute(text)
        assert engine.execute(f"SELECT COUNT(*) AS n FROM {where} AS v").to_pylist() == [{"n": 10}]

    def test_versions_tell_other_data(self, open_engine: OpenEngine, engine: Engine) -> None:
        fewer = {**TABLES, "rooms": TABLES["rooms"].slice(1)}
        other = open_engine(fewer, POLICY)
        assert set(engine.versions) == set(POLICY.tables)
        assert other.versions["rooms"] != engine.versions["rooms"]
        assert other.version() != engine.version()
        assert engine.version() == engine.version()
        assert engine.dataset == engine.dataset
        other.close()

    def test_answers_are_stored_under_the_engine(self, session: dpsql.Session) -> None:
        first = session.sql(CAPABILITIES["count"])
        again = session.sql(CAPABILITIES["count"])
        assert again.fetchall() == first.fetchall()
        assert "no charge" in again.cost_line
        assert inside.engine(session).room >= 0
        assert inside.engine(session).time_zone
