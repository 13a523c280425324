# ruff: noqa: E501 - statements are easier to compare when each has one line
"""GROUP BY in all its forms, and what may stand above a private block, as plain DuckDB answers."""

from __future__ import annotations

import pytest

from tests.support.analyst import check_rows
from tests.support.shop import Shop

MONTHS = (
    "(SELECT unnest(generate_series(DATE '2024-01-01', DATE '2024-12-01', INTERVAL 1 MONTH)) AS m) AS months"
)
ANSWERED = [
    # expressions, positions, aliases, ALL
    "SELECT COALESCE(amount > 0, FALSE) AS gain, COUNT(*) FROM orders GROUP BY gain",
    "SELECT CASE WHEN amount > 20 THEN 'high' WHEN amount > 0 THEN 'low' ELSE 'none' END AS band, COUNT(*) FROM orders GROUP BY 1",
    "SELECT upper(kind), COUNT(*), SUM(amount) FROM orders GROUP BY upper(kind)",
    "SELECT kind || '!' AS k, COALESCE(amount > 0, FALSE) AS p, COUNT(*) FROM orders GROUP BY ALL",
    "SELECT amount // 20 AS b, COUNT(*) FROM orders GROUP BY b HAVING b IN (0, 1)",
    "SELECT DISTINCT product FROM items",
    "SELECT (CASE kind WHEN 'web' THEN 'inf' WHEN 'shop' THEN '-0' ELSE '0' END)::DOUBLE AS x, COUNT(*) FROM orders GROUP BY x",
    "SELECT x, COUNT(*) FROM (SELECT DISTINCT customer, FLOOR(amount / 100.0) AS x FROM orders) GROUP BY x",
    "SELECT COUNT(*) FROM orders GROUP BY kind",
    # dates: private keys, public ones from a calendar, computed from declared values
    "SELECT month(day) AS m, COUNT(*) FROM orders WHERE day < DATE '2024-06-01' GROUP BY m",
    "SELECT date_trunc('month', day) AS m, SUM(amount) FROM orders WHERE day < '2024-06-01' GROUP BY m",
    "SELECT EXTRACT(year FROM day) AS y, EXTRACT(quarter FROM day) AS q, COUNT(*) FROM orders WHERE day < '2024-06-01' GROUP BY y, q",
    f"SELECT m, COUNT(order_id) FROM orders RIGHT JOIN {MONTHS} ON date_trunc('month', day) = m GROUP BY m",
    "SELECT m, COUNT(order_id) FROM (SELECT range::INTEGER AS m FROM range(1, 13)) AS c LEFT JOIN orders ON month(day) = m GROUP BY m",
    # several sets at once
    "SELECT kind, COALESCE(amount > 0, FALSE) AS p, COUNT(*) FROM orders GROUP BY ROLLUP (kind, p)",
    "SELECT kind, COALESCE(amount > 0, FALSE) AS p, COUNT(*) FROM orders GROUP BY CUBE (kind, p)",
    "SELECT kind, COALESCE(amount > 0, FALSE) AS p, COUNT(*), SUM(amount) FROM orders GROUP BY GROUPING SETS ((kind), (p), (kind, p), ())",
    "SELECT GROUPING(kind), kind, COUNT(*) FROM orders GROUP BY ROLLUP (kind)",
    "SELECT GROUPING_ID(kind, COALESCE(amount > 0, FALSE)) AS id, kind, COALESCE(amount > 0, FALSE) AS p, COUNT(*) FROM orders GROUP BY CUBE (kind, p)",
    "SELECT kind, COUNT(*) FROM orders GROUP BY ROLLUP (kind) HAVING GROUPING(kind) = 1 OR COUNT(*) > 29",
    "SELECT kind, city IS NULL AS lost, COUNT(*) FROM orders o JOIN customers c ON o.customer = c.id GROUP BY ROLLUP (kind, lost)",
    "SELECT kind, COUNT(*) FROM orders JOIN (SELECT kind FROM orders GROUP BY kind HAVING COUNT(*) > 29) USING (kind) GROUP BY ROLLUP (kind) "
    "HAVING COUNT(*) > 0",
    # above the block
    "SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind HAVING COUNT(*) > 29 AND n < 31",
    "SELECT kind, COUNT(*) AS n, SUM(amount) / COUNT(*) > 0 AS up FROM orders GROUP BY kind",
    "SELECT kind, COUNT(*) FROM orders GROUP BY kind QUALIFY rank() OVER (ORDER BY COUNT(*)) <= 2",
    "SELECT kind, COUNT(*) - SUM(COUNT(*)) OVER () AS rest FROM orders GROUP BY kind",
    "SELECT kind, COUNT(*) AS n, LAG(COUNT(*)) OVER (ORDER BY kind) AS before FROM orders GROUP BY kind",
    "SELECT kind, COALESCE(amount > 0, FALSE) AS p, COUNT(*), SUM(COUNT(*)) OVER (PARTITION BY kind) FROM orders GROUP BY kind, p",
    "SELECT MAX(n), MIN(n), list(kind ORDER BY kind) FROM (SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind)",
    "SELECT kind, n FROM (SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind) WHERE n > 29 ORDER BY n DESC, kind LIMIT 1",
    "SELECT a.kind, a.n, b.n FROM (SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind) a "
    "JOIN (SELECT kind, SUM(amount) AS n FROM orders GROUP BY kind) b USING (kind)",
    "SELECT COUNT(*) AS n FROM orders UNION ALL SELECT COUNT(*) FROM items",
    "SELECT name, n FROM products JOIN (SELECT product, COUNT(*) AS n FROM items GROUP BY product) USING (product)",
    # distinct values
    "SELECT COUNT(DISTINCT kind), COUNT(DISTINCT customer) FROM orders",
    "SELECT kind, COUNT(DISTINCT customer) FROM orders GROUP BY kind",
    "SELECT COUNT(DISTINCT product) FROM items",
]  # fmt: skip


@pytest.mark.parametrize("query", ANSWERED)
def test_answers_are_plain_duckdbs(shop: Shop, query: str) -> None:
    ours, expected = (side.sql(query).fetchall() for side in shop)
    assert expected
    check_rows(ours, expected)


def test_what_a_case_can_come_to_is_public(shop: Shop) -> None:
    """Outcomes that are written out are groups that everybody knows: all of them appear, and no delta is spent."""
    session, _ = shop
    out, band = "'out'", "CASE WHEN amount > 0 THEN 'in' WHEN amount > 900 THEN 'never' ELSE {} END AS band"
    public = session.sql(f"SELECT {band.format(out)}, COUNT(*) FROM orders GROUP BY band")
    assert [row[0] for row in public.fetchall()] == ["in", "never", "out"]
    assert "δ" not in public.loss
    band = band.replace("amount", "order_id")
    for other in ("NULL", "kind"):  # a missing value, or one of the data, is not written out
        private = session.sql(f"SELECT {band.format(other)}, COUNT(*) FROM orders GROUP BY band")
        assert "never" not in [row[0] for row in private.fetchall()]
        assert "δ" in private.loss
