# ruff: noqa: E501 - statements are easier to compare when each has one line
"""Joins, paths to the unit, subqueries: answered as plain DuckDB answers them, or refused where one unit would decide about
another's rows."""

from __future__ import annotations

import re

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.base import SALT
from tests.support import inside
from tests.support.case_files import read_part
from tests.support.fixtures import open_session
from tests.support.shop import Shop, near

ANSWERED = read_part(__file__, "ANSWERED")


@pytest.mark.parametrize("query", ANSWERED)
def test_answers_are_plain_duckdbs(shop: Shop, query: str) -> None:
    session, plain = shop
    expected = plain.sql(re.sub(r", contribution_bounds_per_row => \([^)]*\)", "", query)).fetchall()
    ours = session.sql(query).fetchall()
    if "ORDER BY kind" not in query:
        ours, expected = (sorted(rows, key=lambda row: str(row[0])) for rows in (ours, expected))
    assert len(expected) > 0, "nothing to compare"
    assert any(value for row in expected for value in row), "nothing to compare"
    assert len(ours) == len(expected), (ours, expected)
    for mine, theirs in zip(ours, expected, strict=True):
        assert all(near(a, b) for a, b in zip(mine, theirs, strict=True)), (mine, theirs)


ON = "private tables are joined on something other than their privacy unit."
INSIDE = "a subquery over private rows would let one unit decide about the rows of others."
SEVERAL = "with rows as the privacy unit, each may meet one row of "
REFUSED = [
    # joins of private rows beside the unit
    ("SELECT COUNT(*) FROM customers, orders", ON, "no policy lets different people's rows meet; for each person's own rows, add customers.id = orders.customer to WHERE."),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.age = o.amount", ON, "no policy lets different people's rows meet; for each person's own rows, add c.id = o.customer to ON."),
    ("SELECT COUNT(*) FROM orders o JOIN items i ON i.product = o.amount", ON, "no policy lets different people's rows meet; for each person's own rows, add o.order_id = i.order_id to ON."),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.id = o.customer OR c.age > 30", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON NOT c.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.id >= o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.id = c.id", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON o.customer = o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c LEFT JOIN orders o ON c.age = 3 WHERE c.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c CROSS JOIN orders o", ON, None),
    ("SELECT COUNT(*) FROM customers a JOIN customers b USING (city)", ON,
     "no policy lets different people's rows meet; for each person's own rows, add a.id = b.id to ON."),
    ("SELECT COUNT(*) FROM customers c POSITIONAL JOIN orders o", "POSITIONAL joins match rows by their neighbours, which belong to "
     "others.", "join on equal columns."),
    ("SELECT COUNT(*) FROM orders o ASOF JOIN calls k ON o.customer = k.caller AND o.day >= k.day",
     "an ASOF join here goes from private rows to the nearest public ones.", None),
    # the unit laundered
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.id + 0 = o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.id::BIGINT = o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON hash(c.id) = hash(o.customer)", ON, None),
    ("SELECT COUNT(*) FROM (SELECT age AS id FROM customers) c JOIN orders o ON c.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM (SELECT id, age FROM customers) AS c(age, id) JOIN orders o ON c.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM (SELECT id + 0 AS id FROM customers) c JOIN orders o ON c.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM (SELECT 7 AS id FROM customers) c JOIN orders o ON c.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM (SELECT p.id FROM customers c, products p) v JOIN orders o ON v.id = o.customer", ON, None),
    ("SELECT COUNT(*) FROM customers c JOIN products p ON p.id = c.id JOIN orders o ON p.id = o.order_id", ON, None),
    ("SELECT COUNT(*) FROM (SELECT order_id + 0 AS order_id FROM items) i JOIN orders o USING (order_id)", ON, None),
    ("SELECT COUNT(*) FROM (SELECT customer FROM orders UNION ALL SELECT age FROM customers)",
     "customer is not the same kind of column on both sides.", None),
    ("SELECT COUNT(*) FROM (SELECT customer FROM orders UNION ALL SELECT caller FROM calls)",
     "the two sides have different privacy units.", None),
    ("SELECT COUNT(*) FROM (SELECT amount FROM orders UNION SELECT amount FROM orders)",
     "UNION here would compare rows of different people.",
     "keep the privacy unit among the columns of both sides, or aggregate each side first."),
    ("SELECT COUNT(*) FROM (SELECT customer, amount FROM orders EXCEPT SELECT amount, customer FROM orders)",
     "EXCEPT here would compare rows of different people.", None),
    ("SELECT COUNT(*) FROM (SELECT customer FROM orders INTERSECT ALL SELECT customer FROM orders)",
     "INTERSECT ALL would compare how often rows occur.", "write INTERSECT, with the privacy unit among the columns."),
    ("SELECT COUNT(*) FROM (SELECT customer FROM orders UNION SELECT caller FROM calls)",
     "the two sides have different privacy units.", None),
    ("SELECT COUNT(*) FROM (SELECT customer FROM orders EXCEPT SELECT id FROM products)",
     "a set operation can't combine private rows with public ones.", "aggregate each side first, then combine the answers."),
    ("SELECT WITH DP OPTIONS (privacy_unit_column = age) COUNT(*) FROM customers", "age is not the privacy unit of customers.", None),
    # units, and what leads to one, as groups
    ("SELECT customer, COUNT(*) FROM orders GROUP BY customer", "the privacy unit can't be a group: each group would be one unit.", None),
    ("SELECT order_id, COUNT(*) FROM items GROUP BY order_id", "order_id leads to one privacy unit: each group would be one unit.",
     "group by a column that units share; totals per order_id may be in a subquery."),
    ("SELECT o.order_id, COUNT(*) FROM orders o GROUP BY ALL", "order_id leads to one privacy unit: each group would be one unit.", None),
    ("SELECT n FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer)", "n must be a group or be inside an aggregate.", None),
    # subqueries that tell of others
    ("SELECT COUNT(*) FROM customers WHERE age IN (SELECT amount FROM orders)", INSIDE,
     "look at rows of the same unit: add orders.customer = customers.id to its WHERE."),
    ("SELECT COUNT(*) FROM customers WHERE EXISTS (SELECT 1 FROM orders)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM customers d WHERE d.city = c.city AND d.age > c.age)", INSIDE,
     "look at rows of the same unit: add d.id = c.id to its WHERE."),
    ("SELECT COUNT(*) FROM customers WHERE EXISTS (SELECT 1 FROM customers WHERE age > 99)", INSIDE,
     "look at rows of the same unit: call it customers2 and add customers2.id = customers.id to its WHERE."),
    ("SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id OR o.amount = 3)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer <> c.id)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers c WHERE id IN (SELECT customer + 0 FROM orders)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers c WHERE id IN (SELECT order_id FROM orders)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers c WHERE age > (SELECT amount FROM orders o WHERE o.customer = c.id)",
     "this subquery may find several rows.", "write MAX(amount), or another aggregate."),
    ("SELECT COUNT(*) FROM customers c WHERE age > (SELECT MAX(amount) FROM orders o WHERE o.order_id = c.age)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers c WHERE age > ALL (SELECT amount FROM orders o WHERE o.customer = c.id)",
     "ALL and ANY compare only by = ANY and <> ALL over private rows.", "write age > (SELECT max(amount) FROM orders AS o WHERE o.customer = c.id)."),
    ("SELECT COUNT(*) FROM badges WHERE product IN (SELECT product FROM items)", INSIDE, None),
    ("SELECT COUNT(*) FROM customers WHERE EXISTS (SELECT 1 FROM badges WHERE badges.city = customers.city)", INSIDE, None),
    ("SELECT name FROM products p WHERE EXISTS (SELECT 1 FROM items i WHERE i.product = p.product)",
     "EXISTS over private rows would show exactly whether there are any.", None),
    ("SELECT COUNT(*) FROM items i WHERE quantity < (SELECT price FROM products p WHERE p.price >= i.quantity)",
     "this subquery may find several rows.", None),
    # what chooses rows by other rows
    ("SELECT COUNT(*) FROM (SELECT * FROM orders ORDER BY amount LIMIT 3)",
     "LIMIT below the aggregation would choose rows by other people's rows.", None),
    ("SELECT AVG(n) FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer ORDER BY n LIMIT 3)",
     "LIMIT below the aggregation would choose rows by other people's rows.", None),
    ("SELECT COUNT(*) FROM (SELECT DISTINCT amount, kind FROM orders)",
     "DISTINCT below the aggregation would make one row of several people's.", "write DISTINCT customer, instead of DISTINCT: each unit's rows stay apart."),
    # rows that are units
    ("SELECT COUNT(*) FROM badges JOIN cities USING (city)", SEVERAL + "cities, and here it may meet several.",
     "join on columns that are unique there, or ask the owner for a privacy unit column."),
    ("SELECT COUNT(*) FROM badges JOIN products ON badges.product <= products.product", SEVERAL + "products, and here it may meet several.", None),
    ("SELECT COUNT(*) FROM badges, products", SEVERAL + "products, and here it may meet several.", None),
    ("SELECT COUNT(*) FROM badges JOIN products ON badges.product = products.product OR price = 2",
     SEVERAL + "products, and here it may meet several.", None),
    ("SELECT COUNT(*) FROM badges LEFT JOIN products ON badges.points = 3 WHERE badges.product = products.product",
     SEVERAL + "products, and here it may meet several.", None),
    ("SELECT COUNT(*) FROM badges a JOIN badges b USING (product)",
     "rows that are their own privacy unit can't be joined with other private rows.", None),
    ("SELECT COUNT(*) FROM badges a JOIN items b USING (product)",
     "rows that are their own privacy unit can't be joined with other private rows.", None),
]  # fmt: skip


@pytest.mark.parametrize(("query", "message", "hint"), REFUSED, ids=[query for query, _, _ in REFUSED])
def test_refused(shop: Shop, query: str, message: str | None, hint: str | None) -> None:
    with pytest.raises((dpsql.PrivacyError, dpsql.BindError)) as caught:
        shop[0].sql(query)
    assert message is None or caught.value.message == message
    assert hint is None or caught.value.hint == hint


# -- policies of their own ----------------------------------------------------------------------------------------

BUDGET = '[budget]\nepsilon = 1e12\naccountant = "basic"\ndefault_epsilon = 1e6\n'


def opened(tables: str, **units: str) -> dpsql.Session:
    """A session over these tables; a name maps to its privacy unit, or to nothing where it is public."""
    con = duckdb.connect()
    con.execute(tables)
    text = BUDGET
    for name, unit in units.items():
        text += f"[tables.{name}]\n" + (
            f'privacy_unit = "{unit}"\nmax_rows = 9\n' if unit else "public = true\n"
        )
    return dpsql.connect(con, policy=dpsql.Policy.loads(text))


def test_a_path_may_lead_through_a_public_table() -> None:
    tables = """
        CREATE TABLE scans AS SELECT * FROM (VALUES (1), (1), (2), (3), (NULL), (99)) AS v(badge);
        CREATE TABLE gates AS SELECT * FROM (VALUES (1), (2), (2)) AS v(badge);
        CREATE TABLE holders AS SELECT * FROM (VALUES (1, 10), (2, 20), (3, NULL)) AS v(badge, person);
    """
    path = "badge -> holders.badge, person"
    with opened(tables, scans=path, gates=path, holders="") as session:
        assert session.sql("SELECT COUNT(*) FROM scans").fetchone() == (3,)
        assert session.sql("SELECT COUNT(*) FROM scans JOIN gates USING (badge)").fetchone() == (4,)


def test_a_key_that_leads_to_several_units_counts_for_each_and_mixes_none() -> None:
    tables = """
        CREATE TABLE orders AS SELECT * FROM (VALUES (1, 10), (1, 20), (2, 20)) AS v(id, person);
        CREATE TABLE items AS SELECT * FROM (VALUES (1), (2)) AS v(order_id);
    """
    with opened(tables, orders="person", items="order_id -> orders.id, person") as session:
        assert session.sql("SELECT COUNT(*) FROM items").fetchone() == (3,)
        joined = session.sql("SELECT COUNT(*) FROM items JOIN orders ON order_id = id")
        assert joined.fetchone() == (3,), "the first item meets its order of each unit, not the other's"


@pytest.mark.parametrize(
    ("kind", "sure"), [("DOUBLE", False), ("BIGINT", True), ("DECIMAL(9,0)", False), ("VARCHAR", False)]
)
def test_units_of_different_types_may_look_equal(kind: str, sure: bool) -> None:
    tables = (
        f"CREATE TABLE a AS SELECT 1 AS person, 2 AS x; CREATE TABLE b AS SELECT 1::{kind} AS person, 3 AS x"
    )
    with opened(tables, a="person", b="person") as session:
        for query in ("SELECT COUNT(*) FROM a JOIN b ON a.person = b.person",
                      "SELECT COUNT(*) FROM (SELECT x FROM a UNION ALL SELECT x FROM b)"):  # fmt: skip
            if sure:
                assert session.sql(query).fetchone()[0] in (1, 2)
            else:
                with pytest.raises(dpsql.PrivacyError, match=r"different"):
                    session.sql(query)


def test_a_path_between_columns_of_different_types_is_refused() -> None:
    tables = (
        "CREATE TABLE orders AS SELECT 1 AS id, 7 AS person; CREATE TABLE items AS SELECT 'one' AS order_id"
    )
    told = pytest.raises(dpsql.PolicyError, match=r"items\.order_id is VARCHAR, and orders\.id is INTEGER")
    with opened(tables, orders="person", items="order_id -> orders.id, person") as session, told:
        session.sql("SELECT COUNT(*) FROM items")


def test_units_of_different_names_meet_where_the_analyst_says_so() -> None:
    tables = "CREATE TABLE people AS SELECT range AS id FROM range(9); CREATE TABLE calls AS SELECT range AS caller FROM range(5)"
    with opened(tables, people="id", calls="caller") as session:
        assert session.sql("SELECT COUNT(*) FROM people JOIN calls ON id = caller").fetchone() == (5,)
        with pytest.raises(dpsql.PrivacyError) as caught:
            session.sql("SELECT COUNT(*) FROM people, calls")
        assert (
            caught.value.hint
            == "no policy lets different people's rows meet; for each person's own rows, add people.id = calls.caller to WHERE."
        )


@pytest.mark.parametrize("condition", ["t.day >= p.day", "t.day + 0.5 >= p.day + 1"])
def test_the_nearest_public_row_is_the_same_however_many_private_rows_there_are(condition: str) -> None:
    """DuckDB joins fewer than 64 rows in another way, and takes another of public rows that tie."""
    policy = """
        budget = { epsilon = 1, default_epsilon = 1 }
        [tables]
        t = { privacy_unit = "u", max_rows = 1 }
        p = { public = true }
    """
    found = []
    for rows in (63, 1000):
        with open_session(
            policy,
            f"CREATE TABLE t AS SELECT i AS u, 10 AS day FROM range({rows}) AS r(i)",
            "CREATE TABLE p AS SELECT 3 + 2 * (i >= 5)::INTEGER AS day, i AS v FROM range(100) AS r(i)",
        ) as session:
            text = f"SELECT COUNT(*) FILTER (WHERE v = 5) AS n FROM t ASOF JOIN p ON {condition}"
            operator = inside.bind(session, text).blocks[0].operator
            (row,) = inside.reader(session)(operator.queries[0].replace(SALT, "1")).to_pylist()
            found.append(int(row["p0"]))
            with pytest.raises(dpsql.BindError, match="compare columns of p"):
                session.explain("SELECT COUNT(*) FROM t ASOF JOIN p ON t.day >= p.day AND p.v = 3 + p.day")
    assert found == [63, 1000]


RANGES = """
budget = { epsilon = 1e6, default_epsilon = 1000 }
[tables]
t = { privacy_unit = "ROW" }
c = { public = true }
"""


@pytest.mark.parametrize("source", ["t JOIN c", "c JOIN t"])
def test_ranges_over_rows_have_a_hint_that_can_be_followed(source: str) -> None:
    """A row in two ranges would count twice; what is offered instead is answered, and counts it once."""
    policy = dpsql.Policy.loads(RANGES)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i % 100 AS x FROM range(3000) r(i)")
        con.execute("CREATE TABLE c AS FROM (VALUES (0, 9), (5, 80), (70, 75)) AS v(lo, hi)")
        with dpsql.connect(con, policy=policy) as session:
            text = f"SELECT c.lo, COUNT(*) FROM {source} ON t.x BETWEEN c.lo AND c.hi GROUP BY c.lo"
            with pytest.raises(dpsql.PrivacyError, match=SEVERAL + "c") as refused:
                session.sql(text)
            hint = str(refused.value.hint)
            found = re.search(r"write (SELECT lo, hi, EXPMECH\(.*\) OVER c FROM t):", hint)
            assert session.sql(found[1]).fetchall() == [(5, 80, pytest.approx(76 * 30, abs=1))]
            with pytest.raises(dpsql.PrivacyError, match=SEVERAL + "b") as refused:
                session.sql("SELECT b.lo, COUNT(*) FROM t JOIN c AS b ON t.x >= b.lo GROUP BY b.lo")
            assert "with a filter" in str(refused.value.hint)
            assert "EXPMECH" not in str(refused.value.hint)
            with pytest.raises(dpsql.PrivacyError, match=SEVERAL + "c") as refused:
                session.sql("SELECT c.lo, COUNT(*) FROM t, c GROUP BY c.lo")
            assert "join on columns that are unique there" in str(refused.value.hint)
