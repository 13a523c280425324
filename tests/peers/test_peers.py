"""Statements of public suites: each is answered as plain DuckDB answers it, or refused for the reason written beside it."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support import peers

Open = dict[str, tuple[dpsql.Session, duckdb.DuckDBPyConnection]]


OTHER_DRAWS = 5
"""Further releases if one is wrong: each shows a group without rows with probability 1/20 at most."""


@pytest.fixture(scope="module")
def opened() -> Iterator[Open]:
    """Sessions and connections by suite, opened when the first case of a suite asks."""
    found: Open = {}
    yield found
    for session, con in found.values():
        session.close()
        con.close()


def _marked(case: peers.Case) -> object:
    marks = [pytest.mark.xfail(reason=case.keys["xfail"], strict=True)] if "xfail" in case.keys else []
    return pytest.param(case, marks=marks, id=str(case))


@pytest.mark.parametrize("case", [_marked(case) for case in peers.cases()])
def test_case(case: peers.Case, opened: Open) -> None:
    if case.suite not in opened:
        con = duckdb.connect()
        con.execute(peers.data_of(case.suite))
        opened[case.suite] = dpsql.connect(con, policy=peers.policy_of(case.suite)), con
    came = peers.judge(case, *opened[case.suite])
    for _ in range(OTHER_DRAWS):
        if came.verdict != "wrong":
            break
        with dpsql.connect(opened[case.suite][1], policy=peers.policy_of(case.suite)) as another:
            came = peers.judge(case, another, opened[case.suite][1])
    assert came.fault is None, f"{came.verdict}: {came.fault}"
    if peers.WRITE:
        peers.rewrite(case, came.verdict)
    else:
        assert came.verdict.startswith(case.verdict)
