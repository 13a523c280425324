"""The tree that is built from a query's parts is the one that its text has, and the normal form changes no normal form."""

from __future__ import annotations

from functools import partial

import duckdb
import pytest

import dpsql
from dpsql.exact import normal_form
from dpsql.exact.normal_form import (
    TreeBuilder,
    normalise,
    restore_values,
    strip_values,
    write_by_shape,
    write_parameters,
)
from dpsql.language.dialect import parse_fragment
from dpsql.language.statements import parse
from dpsql.mechanisms.queries import As, Join, Query, QueryText, Select, Subquery, Union
from dpsql.session.gated_queries import name_columns
from tests.support import inside
from tests.support.corpora import CORPORA, POLICIES, cases
from tests.support.small import open_small

ROWS = Select(
    (As('"base"."c1"', "k0"), As("CAST('a' AS VARCHAR)", "y0"), "u"), 'm.main."t2" AS "base"', "y1 > 2.5"
)
DOMAIN = Select("v", "(VALUES (1), (2)) AS s(v)")
QUERIES: tuple[Query, ...] = (
    ROWS,
    DOMAIN,
    Select("*", "t", limit=3, offset=2, order=("a", "b DESC NULLS LAST")),
    Select(("k0", As("SUM(y0) FILTER (WHERE y0 > 1)", "p0")), Subquery(ROWS, "rows"), group=("k0", "u"), having="COUNT(*) > 2"),
    Select(As("COUNT(*)", "n"), Subquery(ROWS, "r1"), where=("a = 1 OR b = 2", "c1 IN (SELECT k0 FROM domain)")),
    Select("u", Subquery(ROWS, "r1"), qualify=("lag(u, 2) OVER (ORDER BY u) IS DISTINCT FROM u", "n > 1"), distinct=True),
    Select("*", Join(Subquery(ROWS, "rows"), As("domain", "d0"), "rows.k0 = d0.k0", side="LEFT")),
    Select("*", Join(Join("domain", Subquery(DOMAIN, "t(v)")), As("range(12)", "s(i)"))),
    Select("a", Join("t", "u JOIN w ON u.x = w.x")),
    Select("a, b", "t", with_={"domain": DOMAIN, "c1": "SELECT 1 AS a, 'x''1' AS b"}),
    Union((ROWS, Select(("k1", "y2"), "t"), DOMAIN)),
    Union((DOMAIN, DOMAIN), distinct=True),
    Select("*", Subquery(Union((DOMAIN, DOMAIN)), "both"), where="log2(x1) > 1 AND x1.f2 = $salt AND \"a\"\"1\" = '\"c1\"'"),
)  # fmt: skip


def build(text: QueryText) -> None:
    """Compare the tree of a query's parts with that of its text, both without values."""
    shape, values = strip_values(text)
    builder = TreeBuilder()
    assert builder.query(QueryText.of(text.query, shape).query) == parse_fragment(shape)
    assert builder.values == len(values)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_tree_is_built_from_parts(query: Query) -> None:
    build(query.sql)


@pytest.mark.parametrize("part", range(4))
def test_texts_of_the_corpora(part: int) -> None:
    """The trees of plans' queries are those of their texts, and a text in normal form is its own normal form."""
    built = 0
    with duckdb.connect() as con:
        con.execute((CORPORA / "schema.sql").read_text())
        sessions = {name: dpsql.connect(con, policy=policy) for name, policy in POLICIES.items()}
        for case in [*cases("plan")][part::4]:
            session = sessions[case.keys.get("policy", "usual")]
            (statement,) = parse(case.text, case.params)
            plan = inside.bind(session, statement)
            for block in plan.blocks:
                lent = name_columns(inside.lent_columns(session, plan, block))
                taken = {name for relation in lent for name in (relation, *lent[relation])}
                normal = partial(normalise, columns=lent, reserved=inside.catalog(session).names | taken)
                for text in {*block.operator.checked} - {*block.operator.apart}:
                    if isinstance(text, QueryText):
                        built += 1
                        build(text)
                    once = inside.gate(session).shown(text, lent)
                    again = write_by_shape(once, lambda shape, normal=normal: write_parameters(normal(shape)))
                    assert restore_values(*again) == once
        for session in sessions.values():
            session.close()
    assert built > 10


def test_a_form_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty sums need no parse after three."""
    parsed: list[str] = []

    def count(text: str) -> object:
        parsed.append(text)
        return parse_fragment(text)

    con, session = open_small()
    with con, session:
        monkeypatch.setattr(normal_form, "parse_fragment", count)
        for number, many in enumerate((3, 40)):
            parsed.clear()
            sums = ", ".join(f"SUM(x + {i}.25) AS s{i}" for i in range(many))
            inside.planned(session, f"SELECT k, {sums} FROM t WHERE n > {number} GROUP BY k")
            assert bool(parsed) is (number == 0), parsed
