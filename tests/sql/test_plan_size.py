"""Plans have a size: what binding does grows with the statement, and a plan that is too large is refused before it is paid."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

import dpsql
from dpsql.mechanisms.base import fill_parameters
from dpsql.sql.parse import tokens
from dpsql.sql.parse.statements import parse
from dpsql.sql.relations import plan_size
from tests.support import inside
from tests.support.small import open_small


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    con, session = open_small()
    con.execute("INSERT INTO t SELECT i, 'a', i % 3, i % 5, i, i, i, true FROM range(6) AS r(i)")
    with con, session:
        yield session


def chain(links: int) -> str:
    named = "".join(f", c{i + 1} AS (SELECT * FROM c{i} WHERE x >= -{i})" for i in range(links))
    return f"WITH c0 AS (SELECT unit, x, n FROM t){named} SELECT COUNT(*) FROM c{links}"


def doubled(times: int, twice: str = "SELECT * FROM c{0} UNION ALL SELECT * FROM c{0}") -> str:
    named = "".join(f", c{i + 1} AS ({twice.format(i)})" for i in range(times))
    return f"WITH c0 AS (SELECT unit, x, n FROM t){named} SELECT COUNT(*) FROM c{times}"


MET = "SELECT a.unit, a.x, b.n FROM c{0} AS a JOIN c{0} AS b ON a.unit = b.unit"


def sums(many: int) -> str:
    return f"SELECT {', '.join(f'SUM(n + {i})' for i in range(many))} FROM t"


def calls(session: dpsql.Session, text: str) -> int:
    """The functions that binding a statement calls: a count, which no other process changes."""
    (statement,) = parse(text)
    found = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        inside.bind(session, statement)
    except (dpsql.BindError, dpsql.PrivacyError):
        pass
    finally:
        sys.setprofile(before)
    return found


def test_binding_grows_with_the_chain(session: dpsql.Session) -> None:
    assert calls(session, chain(120)) <= 4.5 * calls(session, chain(40))


def test_binding_grows_with_the_aggregates(session: dpsql.Session) -> None:
    assert calls(session, sums(200)) <= 6 * calls(session, sums(40))


@pytest.mark.benchmark
def test_binding_grows_with_many_aggregates_and_a_long_chain(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_LENGTH", 1 << 20)
    ratio = calls(session, sums(10_000)) / calls(session, sums(1_000))
    print(f"\nbinding 10,000 aggregates calls {ratio:.1f} times the functions that 1,000 do (bound 12)")
    assert ratio <= 12
    ratio = calls(session, chain(1_000)) / calls(session, chain(100))
    print(f"binding 1,000 CTEs calls {ratio:.1f} times the functions that 100 do (bound 15)")
    assert ratio <= 15


@pytest.mark.parametrize("twice", [None, MET])
def test_many_doublings_are_refused_as_soon_as_few(session: dpsql.Session, twice: str | None) -> None:
    more = () if twice is None else (twice,)
    assert calls(session, doubled(30, *more)) < 2 * calls(session, doubled(10, *more))
    said = r"exact SQL would have .* characters, and 2,000,000 are the most|more rows than can be counted"
    with pytest.raises((dpsql.BindError, dpsql.PrivacyError), match=said) as caught:
        session.sql(doubled(30, *more))
    assert caught.value.span is not None
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


@pytest.mark.parametrize(("text", "rows"), [(doubled(10), 6 * 1024), (chain(60), 6), (doubled(5, MET), 6)])
def test_what_is_written_once_counts_as_often_as_it_is_read(
    session: dpsql.Session, text: str, rows: int
) -> None:
    plan = inside.planned(session, text)
    assert plan.shared, "it has names for what it reads twice"
    (block,) = plan.blocks
    exact = inside.gate(session).exact(block.operator.checked[0], {})
    assert len(exact) < 10 * len(text) + 10_000, "it is written once"
    with inside.engine(session)._con.cursor() as con:
        row = con.execute(fill_parameters(exact, {"salt": 7})).fetchall()[0]
    assert row[0] == rows
    session.sql(text)  # with a salt of its own


def test_what_no_plan_holds_is_forgotten(session: dpsql.Session) -> None:
    plan = inside.bind(session, doubled(10))
    assert len(inside.catalog(session).shared) == len(plan.shared) > 0
    del plan
    gc.collect()
    assert not inside.catalog(session).shared


def test_names_that_stand_for_more_and_more_are_refused(session: dpsql.Session) -> None:
    named = "".join(f", a{i} + a{i} AS a{i + 1}" for i in range(40))
    with pytest.raises(dpsql.BindError, match="once its names are written out"):
        session.sql(f"SELECT COUNT(*) FROM (SELECT unit, x AS a0{named} FROM t) AS s")


def test_the_limit_is_public_and_counts_all_blocks(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = "SELECT COUNT(*) AS n FROM t WHERE n = {}"
    size = sum(len(text) for text in inside.bind(session, one.format(1)).blocks[0].operator.checked)
    monkeypatch.setattr(plan_size, "MAX_WRITTEN_SIZE", 3 * size)
    inside.bind(session, " UNION ALL ".join(one.format(i) for i in range(3)))
    with pytest.raises(dpsql.BindError, match="are the most"):
        inside.bind(session, " UNION ALL ".join(one.format(i) for i in range(4)))
