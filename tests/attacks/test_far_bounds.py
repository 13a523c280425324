"""Bounds at the ends of what floats hold: an answer, or a refusal before payment; never another error."""

from __future__ import annotations

import pytest

import dpsql
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e15, delta = 0.5, accountant = "basic", default_epsilon = 20, default_delta = 1e-9 }
[tables.t]
privacy_unit = "u"
max_rows = 1
"""
BOUNDS = "contribution_bounds_per_row => ({}, {})"
FAR = [("-1e200", "1e200"), ("0", "1e280"), ("1e200", "1.0000001e200")]
ANSWERED = [
    *(f"SELECT {name}(d, {BOUNDS.format(*ends)}) FROM t" for name in ("SUM", "AVG") for ends in FAR),
    f"SELECT VAR_POP(d, {BOUNDS.format(0, '1e100')}) FROM t",
    "SELECT COUNT(*) * 1e308 + COUNT(u) FROM t",
    *(
        f"SELECT WITH SUBSAMPLE OPTIONS (bounds = {bounds}, blocks = 20, combine = '{combine}') SUM(d) FROM t"
        for bounds in ("(0, 1e-320)", "(-1e308, 1e308)")
        for combine in ("mean", "median", "winsorized_mean")
    ),
]
REFUSED = [
    f"SELECT {name}, {BOUNDS.format(*ends)}) FROM t"
    for name in ("VARIANCE(d", "STDDEV_POP(d", "CORR(d, d")
    for ends in [*FAR, ("0", "1e-200"), ("0", "5e-324")]
]
TABLES = """
CREATE TABLE t AS SELECT i AS u, i::DOUBLE AS d FROM range(100) r(i);
"""
session = session_fixture(POLICY, TABLES)


@pytest.mark.parametrize("text", ANSWERED)
def test_far_bounds_are_answered(session: dpsql.Session, text: str) -> None:
    assert len(session.sql(text).fetchall()) == 1


@pytest.mark.parametrize("text", REFUSED)
def test_products_that_are_no_floats_are_refused_before_payment(session: dpsql.Session, text: str) -> None:
    before = session.budget().spent_epsilon
    with pytest.raises(dpsql.errors.BindError, match="exact sums"):
        session.sql(text)
    assert session.budget().spent_epsilon == before
