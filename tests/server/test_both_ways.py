"""The same statements in process and over the wire: the same answers, costs, notes and errors.

Each costs so much that its noise is nothing, so answers can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql
from tests.support.clinic import BUDGET
from tests.support.served import SECRET, TABLES, ServerProcess, make_token, write_data, write_policy

pytestmark = pytest.mark.timeout(600)
STATEMENTS = [
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n, AVG(cost) AS m FROM visits GROUP BY ward ORDER BY ward",
    "SELECT SUM(cost) / COUNT(*) AS m, 1 AS one FROM visits WHERE day > 100",
    "SELECT name, n FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) JOIN wards USING (ward) ORDER BY name",
    "SELECT city, COUNT(*) AS n FROM visits GROUP BY city",
    "SELECT MEDIAN(cost) AS m FROM visits",
    "SELECT VAR_POP(cost) AS v, STDDEV(day) AS s FROM visits",
    "WITH c(k) AS (VALUES (10), (200), (9000)) SELECT k, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE day > k), 100) OVER c "
    "FROM visits",
    "WITH c(k) AS (VALUES (10), (200), (300)) SELECT k, EXPMECH(COUNT(*) FILTER (WHERE day > k)) OVER c FROM visits",
    "SELECT r BETWEEN -1 AND 1 AS fits FROM (SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1e6, blocks = 20, bounds = (-1, 1)) "
    "CORR(cost, day) AS r FROM visits)",
    "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward) ORDER BY ward",
    "out << SELECT ward, SUM(cost) AS s FROM visits GROUP BY ward",
    "SELECT ward, s, INTERVAL_LOW(s) AS lo FROM out ORDER BY s DESC LIMIT 2",
    "SELECT 1 AS x, 'text' AS t, DATE '2024-02-29' AS d, 1.25::DECIMAL(9, 2) AS c, NULL AS z, [1, 2] AS l",
    "SELECT * FROM wards ORDER BY ward",
    "SHOW TABLES",
    "SHOW BUDGET",
    "SHOW LEDGER",
    "EXPLAIN SELECT AVG(cost) AS m FROM visits WHERE ward = 'A'",
    "DECLARE alarm ABOVE_THRESHOLD 1000 OPTIONS (epsilon = 1e6, max_hits = 2)",
    "SELECT WITH alarm COUNT(*) AS c FROM visits",
    "SELECT WITH alarm COUNT(*) AS c FROM visits WHERE day > 398",
    "CLOSE alarm",
    "SELECT COUNT(*) AS a FROM visits WHERE ward = 'A'; SELECT COUNT(*) AS b FROM visits WHERE ward = 'B'",
    "SELEC 1",
    "SELECT COUNT(*) FROM nowhere",
    "SELECT cots FROM visits",
    "SELECT cost FROM visits",
    "SELECT SUM(patient) AS s FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE day / 0 > 1 AND repeat(city, 3) IS NULL",
    "SELECT WITH DP OPTIONS (epsilon = 1e20) COUNT(*) AS n FROM visits",
    "SELECT WITH DP OPTIONS (epsilom = 1) COUNT(*) AS n FROM visits",
    "SELECT n::TINYINT AS small FROM (SELECT COUNT(*) AS n FROM visits WHERE day > 2)",
    "SELECT WITH PTR OPTIONS (epsilon = 1e6, delta = 1e-6) MEDIAN(cost) AS m FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE ward = $ward",
    "SELECT COUNT(*) FROM visits WHERE city = $city",
    "SELECT COUNT(DISTINCT patient) AS people FROM visits WHERE ward = 'D'",
    "SELECT WITH STABLE OPTIONS (epsilon = 1e6) IQR(cost) AS spread FROM visits",
    "SELECT ward, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM visits GROUP BY ward ORDER BY 2, 1",
    "SELECT COUNT(*) FROM visits;\nSELECT MAX(no) FROM visits",
    "SELECT * FROM visits",
    "SELECT patient FROM visits GROUP BY patient",
    "SELECT COUNT(*) FROM 'visits.parquet'",
    "SELECT read_text('/etc/hostname')",
    "COPY visits TO 'x.csv'",
    "visits << SELECT 1",
    "SELECT (SELECT 1",
    "CLOSE alarm",
    "",
]
PARAMS = {"ward": "C"}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A session in process, and one on a server with a ledger of its own."""
    folder = tmp_path_factory.mktemp("both")
    write_data(folder)
    server = "answer_times = []\nmax_requests_per_minute = 10000"
    policy = write_policy(folder, {"ada": 1e12}, server, BUDGET, TABLES)
    with (
        ServerProcess(policy) as running,
        dpsql.connect(policy=policy, ledger=folder / "other.ledger", analyst="ada") as here,
        dpsql.connect(running.url, token=make_token(policy, "ada")) as there,
    ):
        yield here, there


SHOWN = ("intervals", "loss", "event", "statement_id", "notes", "cost_line", "confidence")


def tell(session: Any, text: str) -> Any:
    """Return what a statement gives, as plain values; what tells the time of day is left out."""
    try:
        results = session.run(text, PARAMS if "$" in text else None)
    except dpsql.Error as error:
        told: Any = (type(error).__name__, error.lines(), error.text, error.span, len(error.answered))
    else:
        told = [
            (
                r.columns,
                [str(t) for t in r.table.schema.types],
                r.fetchall(),
                *(getattr(r, name) for name in SHOWN),
            )
            for r in results
        ]
    # what little noise there is
    told = re.sub(r"\d+\.\d+(e[+-]\d+)?", lambda found: f"{float(found[0]):.2g}", repr(told))
    # a server names its zone
    return re.sub(r"\d\d:\d\d(:\d\d)?|\d{4}-\d\d-\d\dT?|datetime\.datetime\([^)]*\)", "TIME", told).replace(
        "TIME UTC", "TIME"
    )


def test_statements_give_the_same(sessions: tuple[Any, Any]) -> None:
    here, there = sessions
    different, told = [], ""
    for number, text in enumerate(STATEMENTS):
        ours, theirs = (tell(session, text) for session in (here, there))
        told += theirs
        if ours != theirs:
            different.append((number, text, ours, theirs))
    assert not different, "\n\n".join(
        f"{n} {text}\n  {ours}\n  {theirs}" for n, text, ours, theirs in different
    )
    assert SECRET not in told


def test_the_rest_of_the_face_gives_the_same(sessions: tuple[Any, Any]) -> None:
    here, there = sessions
    assert dict(there.columns("visits")) == dict(here.columns("visits"))
    assert there.tables().fetchall() == here.tables().fetchall()
    asked = "SELECT AVG(day) AS m FROM visits WHERE ward = 'D'"
    assert str(there.explain(asked)) == str(here.explain(asked))
    assert str(there.budget()) == str(here.budget())
    assert [e.text for e in there.ledger()] == [e.text for e in here.ledger()]
    for session in sessions:
        with session.plan() as plan:
            plan.sql("SELECT COUNT(*) AS n FROM visits WHERE day = 1", epsilon="0.5")
            plan.sql("SELECT COUNT(*) AS n FROM visits WHERE day = 2", epsilon="0.5")
        assert len(plan.results) == 2
    assert str(there.budget()) == str(here.budget())


def test_the_comparison_would_tell(sessions: tuple[Any, Any], tmp_path: Path) -> None:
    here, _ = sessions
    assert tell(here, STATEMENTS[0]) != tell(here, "SELECT COUNT(*) AS n FROM visits WHERE day = 3")
