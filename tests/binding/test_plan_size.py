"""Plans have a size: what binding does grows with the statement, and a plan that is too large is refused before it is paid."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from types import FrameType

import pytest

import dpsql
from dpsql.binding.relations import plan_size
from dpsql.language.dialect import parse_fragment
from dpsql.language.statements import parse
from dpsql.mechanisms.base import fill_parameters
from tests.support import inside
from tests.support.growing import WIDE
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


def calls(session: dpsql.Session, text: str, bound: bool = False) -> int:
    """The functions that binding a statement calls: a count, which no other process changes.

    Args:
        session: who binds it. text: the statement. bound: whether it must not be refused.
    """
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
        assert not bound
    finally:
        sys.setprofile(before)
    return found


def test_binding_grows_with_the_chain(session: dpsql.Session) -> None:
    assert calls(session, chain(120)) <= 4.5 * calls(session, chain(40))


def test_binding_grows_with_the_aggregates(session: dpsql.Session) -> None:
    assert calls(session, sums(200)) <= 6 * calls(session, sums(40))


def test_what_is_refused_takes_little_more_than_what_is_bound(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(len(text) for text in inside.bind(session, sums(60)).blocks[0].operator.checked)
    monkeypatch.setattr(plan_size, "MAX_WRITTEN_SIZE", size)
    assert calls(session, sums(600)) <= 4 * calls(session, sums(60))
    with pytest.raises(dpsql.BindError, match=r"exact SQL would have .* the limit is") as caught:
        session.sql(sums(600))
    assert caught.value.hint is not None
    assert "ask for fewer numbers" in caught.value.hint
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


@pytest.mark.stochastic
def test_nine_hundred_sums_are_answered(session: dpsql.Session) -> None:
    before = time.process_time()
    found = session.sql(sums(900))
    taken = time.process_time() - before
    print(f"\n900 different sums are answered in {taken:.1f} s of processor time")
    assert found.shape == (1, 900)
    assert taken <= 20
    with pytest.raises(dpsql.BindError, match="the limit is 250,000"):
        session.sql(sums(1000))


@pytest.mark.parametrize("twice", [None, MET])
def test_many_doublings_are_refused_as_soon_as_few(session: dpsql.Session, twice: str | None) -> None:
    more = () if twice is None else (twice,)
    assert calls(session, doubled(30, *more)) < 2 * calls(session, doubled(10, *more))
    said = r"exact SQL would have .* characters; the limit is 2,000,000|more rows of one privacy unit than can be counted"
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
    with pytest.raises(dpsql.BindError, match="the limit is"):
        inside.bind(session, " UNION ALL ".join(one.format(i) for i in range(4)))


@pytest.mark.parametrize("strategy", ["EVEN", "MARGINALS"])
def test_sets_that_are_measured_together_count_with_what_was_bound_before(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    options = f"OPTIONS (epsilon = 1, strategy = {strategy}, max_rows_contributed = 1)"
    cube = f"SELECT WITH DP {options} SUM(x) AS n FROM t GROUP BY CUBE (k, f)"
    plan = inside.bind(session, cube)
    size = sum(len(text) for block in plan.blocks for text in block.operator.checked)
    monkeypatch.setattr(plan_size, "MAX_WRITTEN_SIZE", 8 * size)
    inside.bind(session, cube)
    with pytest.raises(dpsql.BindError, match="the limit is"):
        inside.bind(session, " UNION ALL ".join(cube.replace("(x)", f"(x + {i})") for i in range(20)))


def joined(many: int, form: str = "SELECT COUNT(*) FROM t{0}") -> str:
    return form.format("".join(f" JOIN g AS g{i} ON t.k = g{i}.k" for i in range(many)))


def in_queries(many: int) -> str:
    conditions = " AND ".join(f"k IN (SELECT k FROM g WHERE label > {i})" for i in range(many))
    return f"SELECT COUNT(*) FROM t WHERE {conditions}"


def beside(many: int) -> str:
    return f"SELECT COUNT(*) FROM t{''.join(f', LATERAL (SELECT n + {i} AS m) AS l{i}' for i in range(many))}"


def correlated(many: int) -> str:
    values = " OR ".join(f"n > (SELECT MAX(y) + {i} FROM s WHERE s.unit = t.unit)" for i in range(many))
    return f"SELECT COUNT(*) FROM t WHERE {values}"


CUBE = "SELECT SUM(n) FROM t{0} GROUP BY CUBE(t.k, f)"
KEYS = "SELECT t.k, COUNT(*) FROM t{0} GROUP BY t.k"


@pytest.mark.parametrize(
    ("few", "many"),
    [
        (joined(60), " UNION ALL ".join(joined(60, f"SELECT COUNT(*) + {i} FROM t{{0}}") for i in range(3))),
        (joined(30, KEYS), joined(45, KEYS)),
        (joined(20, CUBE), joined(40, CUBE)),
        (in_queries(50), in_queries(90)),
        (beside(30), beside(50)),
        (correlated(20), correlated(40)),
        (" UNION ALL ".join(joined(i % 9) for i in range(90)), joined(60, CUBE)),
    ],
    ids=["three blocks", "keys", "cube", "IN", "LATERAL", "values", "a wide union"],
)
def test_relations_that_meet_count_by_all_texts(session: dpsql.Session, few: str, many: str) -> None:
    """A limit for each FROM would let a statement of several plan them all."""
    inside.bind(session, few)
    with pytest.raises(dpsql.BindError, match=r"the limit is 250,000. Up to \d+ relations meet") as caught:
        session.sql(many)
    assert caught.value.hint is not None
    assert "join the public ones in a statement before" in caught.value.hint
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


WRITTEN = {
    "SELECT a FROM b": 1,
    "SELECT a FROM b JOIN c ON b.x = c.x CROSS JOIN UNNEST([1]) AS u(v)": 4,
    "SELECT a FROM b CROSS JOIN LATERAL (SELECT b.x FROM c) AS u(v)": 3,
    "SELECT a FROM b WHERE x > (SELECT MAX(c.x) FROM c WHERE c.a = b.a) AND EXISTS (SELECT 1 FROM c WHERE c.a = b.a)": 4,
    "SELECT a FROM (SELECT a FROM b JOIN c ON b.x = c.x) AS d WHERE a IN (SELECT a FROM e)": 3,
    "SELECT a FROM (SELECT a FROM b UNION ALL SELECT a FROM b JOIN c ON b.x = c.x) AS d": 2,
    "WITH d AS (SELECT a FROM b JOIN c ON b.x = c.x), e AS (SELECT * FROM d JOIN d AS f ON d.a = f.a) "
    "SELECT * FROM e JOIN e AS g ON e.a = g.a": 8,
    "WITH d AS (SELECT a FROM b JOIN c ON b.x = c.x) SELECT a FROM d LEFT JOIN b ON d.a = b.a": 2,
    "SELECT a FROM b LEFT JOIN c ON b.x = c.x WHERE c.x > 1": 2,
}


@pytest.mark.parametrize("text", WRITTEN)
def test_relations_that_meet_are_counted(text: str) -> None:
    """As a tree has them; what the words alone say is never less."""
    met = WRITTEN[text]
    assert plan_size._count_met(parse_fragment(text), {}, outermost=True)[0] == met
    assert plan_size._join_at_most(text) >= met


def values_above(many: int) -> str:
    values = " AND ".join(f"c > (SELECT MAX(label) + {i} FROM g WHERE g.k = s.k)" for i in range(many))
    return f"SELECT k, c FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k) AS s WHERE {values}"


def test_relations_that_meet_above_the_private_part_are_limited(session: dpsql.Session) -> None:
    inside.bind(session, values_above(20))
    with pytest.raises(dpsql.BindError, match="meet above the private part"):
        session.sql(values_above(50))
    lent = (
        f"WITH c AS ({values_above(50).replace('FROM t', 'FROM g')}) SELECT COUNT(*) FROM t JOIN c USING (k)"
    )
    with pytest.raises(dpsql.BindError, match="meet above the private part"):
        session.sql(lent)
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


def chosen(candidates: int, terms: int = 1) -> str:
    sums = " + ".join(f"COUNT(*) FILTER (n > v + {i})" for i in range(terms))
    return f"WITH c AS (SELECT range AS v FROM range({candidates})) SELECT EXPMECH({sums}) OVER c FROM t"


BLOCK = "SELECT WITH SUBSAMPLE OPTIONS (blocks = {}, bounds = (0, 10)) {} FROM t"
READ_FIRST = "AVG(n + (SELECT COUNT(*) FROM (SELECT 1 FROM range(9))))"  # no one query does for all blocks


@pytest.mark.parametrize(
    ("few", "many", "said"),
    [
        (chosen(100_000), chosen(9_000_000), "9,000,000 candidates with 3 numbers"),
        (chosen(100_000, 20), chosen(1_000_000, 40), "1,000,000 candidates with 42 numbers"),
        (chosen(1000), " UNION ALL ".join([f"({chosen(1_000_000)})"] * 9), "candidates with 3 numbers"),
        (BLOCK.format(2000, READ_FIRST), BLOCK.format(20_000, READ_FIRST), "blocks are too many"),
        (
            BLOCK.format(10**6, "AVG(n)"),
            BLOCK.format(10**6, "AVG(n), AVG(x)"),
            "1,000,000 blocks of 2 outputs",
        ),
    ],
    ids=["candidates", "terms", "choices", "queries of blocks", "blocks"],
)
def test_candidates_and_blocks_count(session: dpsql.Session, few: str, many: str, said: str) -> None:
    """Ten million candidates took 1.3 GB, a million of a hundred terms 3.5 GB, twenty thousand queries a minute."""
    inside.bind(session, few)
    with pytest.raises(dpsql.BindError, match=said) as caught:
        session.sql(many)
    assert caught.value.span is not None
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


def test_statements_of_a_cell_count_together(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven statements of 600 sums in one text took more than a minute, and 1,700 small ones half a minute."""
    few = "SELECT COUNT(*), AVG(x) FROM t"
    size = inside.bind(session, sums(60)).size
    small = inside.bind(session, few).size
    assert size > small > plan_size.SMALL_STATEMENT
    most = 3 * size
    monkeypatch.setattr(plan_size, "MAX_CELL_SIZE", most)
    session.sql("; ".join(sums(60).replace("FROM t", f"FROM t WHERE n > {i}") for i in range(2)))
    before = session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"]
    session.sql("; ".join([few] * (most // small)))
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == before + 1
    for form, many in (
        (sums(60).replace("FROM t", "FROM t WHERE x > {}"), 4),
        (f"{few} WHERE n <> {{}}", most // small + 1),
        ("SHOW BUDGET", most // plan_size.SMALL_STATEMENT + 1),
    ):
        text = "; ".join(form.format(i) for i in range(many))
        with pytest.raises(dpsql.BindError, match="statements up to here count as") as caught:
            session.sql(text)
        assert caught.value.hint == "run them in several cells; each counts as 750 or more."
        assert caught.value.span[0] > 0
        with pytest.raises(dpsql.BindError, match="statements up to here count as"):
            session.explain(text.replace("SHOW BUDGET", few))
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == before + 1


def test_one_large_statement_is_not_too_much_for_a_cell() -> None:
    plan_size.refuse_cell([plan_size.MAX_PLAN_SIZE], (0, 1))
    with pytest.raises(dpsql.BindError):
        plan_size.refuse_cell([plan_size.MAX_PLAN_SIZE, 1], (0, 1))


@pytest.mark.parametrize(
    "group",
    [
        "CUBE ({keys})",
        "CUBE ({keys}), ROLLUP ({keys})",
        "GROUPING SETS (CUBE ({keys}), ())",
        "GROUPING SETS (ROLLUP ({keys})), CUBE ({keys})",
    ],
)
def test_grouping_sets_are_counted_before_they_are_made(session: dpsql.Session, group: str) -> None:
    """A CUBE of thirty columns was written out before it was refused, for hours."""
    few, many = (
        calls(session, f"SELECT COUNT(*) FROM t GROUP BY {group.format(keys=', '.join(keys))}")
        for keys in ([f"n + {i}" for i in range(size)] for size in (20, 60))
    )
    assert many <= 5 * few
    with pytest.raises(
        dpsql.BindError, match=r"these are .* grouping sets; at most 64 are answered"
    ) as caught:
        session.sql(
            f"SELECT COUNT(*) FROM t GROUP BY {group.format(keys=', '.join(f'n + {i}' for i in range(60)))}"
        )
    assert caught.value.span is not None
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("shape", ["aliases", "aliases above", "aliases far above"])
def test_names_that_are_read_more_and_more_often(session: dpsql.Session, shape: str) -> None:
    """``COUNT(*) AS a, a + a AS b, b + b AS c``: forty names were written out for ever, by us or by DuckDB."""
    few, many = (calls(session, WIDE[shape](size)) for size in (20, 60))
    assert many <= 5 * few
    for size in (20, 60, 1000):
        with pytest.raises(dpsql.BindError, match=r"more than (10|50),000 parts") as caught:
            session.sql(WIDE[shape](size))
        assert caught.value.span is not None
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0
    assert len(session.sql(WIDE[shape](5)).columns) >= 1


@pytest.mark.parametrize("clause", ["HAVING {}", "QUALIFY {}", "ORDER BY {}", "LIMIT ({})"])
def test_names_are_counted_wherever_they_are_read(session: dpsql.Session, clause: str) -> None:
    aliases = "".join(f", a{i} + a{i} AS a{i + 1}" for i in range(10))
    read = clause.format(" + ".join(["a10"] * 60) + " > 1")
    with pytest.raises(dpsql.BindError, match="more than 50,000 parts"):
        session.sql(f"SELECT COUNT(*) AS a0{aliases} FROM t {read}")


def test_the_text_above_the_private_part_has_a_size(session: dpsql.Session) -> None:
    """Three hundred products of noisy sums took 33 s and 1 GB, most of it for the ends of their intervals."""
    sums = ", ".join(f"SUM(n + {i}) AS s{i}" for i in range(300))
    products = ", ".join(f"s0 * s{i} AS p{i}" for i in range(300))
    with pytest.raises(dpsql.BindError, match="characters with its intervals; the limit is 500,000"):
        session.sql(f"SELECT {products} FROM (SELECT {sums} FROM t)")
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0
