"""Expected errors of released answers: under the caps and bounds that were found they are what releases are off by."""

from __future__ import annotations

import pickle
import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.client.wire import Message, WireError, parse_result, write_result
from dpsql.session.result import Result
from tests.support.fixtures import con_fixture, session_fixture

POLICY = """
budget = { epsilon = 1e9, delta = 1e-2, accountant = "basic" }
[tables]
t = { privacy_unit = "u", columns = { x = { bounds = [0, 10] }, k = { values = [0, 1, 2, 3] } } }
"""
CAPS = "max_rows_contributed = AUTO"
AUTO = "contribution_bounds_per_row => AUTO"
TRUTH = """
SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, VAR_POP(x) AS v, 3 * SUM(x) - 7 AS three, AVG(z) AS az, SUM(z) AS sz,
  STDDEV_POP(z) AS dz FROM t
"""
TABLES = """
CREATE TABLE t AS SELECT i // 8 AS u, i % 4 AS k, (i * 41 % 1000) / 100 AS x, (i * 7919 % 1000) AS z
    FROM range(8000) r(i);
"""
con = con_fixture(TABLES)
held = session_fixture(POLICY)


@pytest.mark.parametrize(
    ("shown", "options", "low", "high"),
    [
        ("COUNT(*) AS n, SUM(x) AS s, 3 * SUM(x) - 7 AS three", CAPS, 0.3, 2),
        ("AVG(x) AS a, VAR_POP(x) AS v", CAPS, 0.2, 2),
        (f"SUM(z, {AUTO}) AS sz", "max_rows_contributed = 8", 0.3, 2),
        (f"AVG(z, {AUTO}) AS az, STDDEV_POP(z, {AUTO}) AS dz", CAPS, 0.2, 2),
    ],
)
def test_releases_are_off_by_what_their_results_tell(
    held: dpsql.Session, con: duckdb.DuckDBPyConnection, shown: str, options: str, low: float, high: float
) -> None:
    """A mean of 60 errors of Laplace noise is below 0.44 or above 2.1 of what it is expected to be once in 10**8 runs."""
    (row,) = con.sql(TRUTH).to_arrow_table().to_pylist()
    text = f"SELECT WITH DP OPTIONS (epsilon = 12, {options}) {shown} FROM t"
    ratios: dict[str, list[float]] = {}
    for _ in range(60):
        result = held.sql(text, fresh=True)
        (answers,) = result.dicts()
        for name, value in answers.items():
            off, told = abs(float(value) - float(row[name])), result.expected_error[name]
            ratios.setdefault(name, []).append(off / told)
    for name, found in ratios.items():
        assert low < np.mean(found) < high, name
        assert not low < np.mean(found) / 9 < high, "it can fail"


def test_noise_of_a_found_cap_is_as_many_times_that_of_one(held: dpsql.Session) -> None:
    text = f"SELECT WITH DP OPTIONS (epsilon = 1, {CAPS}) k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k"
    explained, result = held.explain(text), held.sql(text)
    found = re.search(r"max_rows_contributed = (\d+)", " ".join(result.notes))
    assert explained.expected_error.keys() == {"n", "s"}
    for name, error in explained.expected_error.items():
        assert result.expected_error[name] == pytest.approx(int(found[1]) * error, rel=0.05)
    assert "with caps of 1 (noise grows in proportion to those that are found): n ±" in str(explained)
    fixed = held.explain(text.replace("AUTO", "1"))
    assert fixed.expected_error["n"] < explained.expected_error["n"] < 1.5 * fixed.expected_error["n"]
    assert "caps of 1" not in str(fixed)


def test_bounds_that_are_to_be_found_are_told_by_the_result_alone(held: dpsql.Session) -> None:
    text = f"SELECT WITH DP OPTIONS (epsilon = 4, max_rows_contributed = 8) COUNT(*) AS n, SUM(z, {AUTO}) AS s FROM t"
    assert held.explain(text).expected_error.keys() == {"n"}
    result = held.sql(text)
    bound = float(re.search(r"clipped to \[0, (\d+)\]", " ".join(result.notes))[1])  # type: ignore[index]
    assert result.expected_error["s"] == pytest.approx(8 * bound / (2 * 17 / 20), rel=0.01)


def test_what_is_told_stays_with_the_result(held: dpsql.Session) -> None:
    """The expected error stays where a result is stored, pickled or renamed; where no number is known, none is told."""
    text = f"SELECT WITH DP OPTIONS (epsilon = 2, {CAPS}) COUNT(*) AS n FROM t"
    result = held.sql(text)
    assert held.sql(text).expected_error == result.expected_error
    assert pickle.loads(pickle.dumps(result)).expected_error == result.expected_error
    other = held.sql(f"SELECT n AS m, SQRT(n) AS r FROM ({text}) AS a")
    assert other.loss == "no charge"
    assert other.expected_error == {"m": result.expected_error["n"]}
    assert held.sql("SHOW BUDGET").expected_error == {}


def test_errors_from_a_server_are_numbers() -> None:
    sent = write_result(Result(pa.table({"n": [1]}), expected_error={"n": 1.5}))
    assert parse_result(sent).expected_error == {"n": 1.5}
    for bad in ({"n": "x"}, {"n": None}, {"n": [1]}):
        with pytest.raises(WireError):
            parse_result(Message({**sent.head, "expected_error": bad}, sent.payload))
