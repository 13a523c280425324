"""Statements that grow: a form for each place in the language that may be deep, long or wide.

They are for the tables of :mod:`tests.support.small`. A form takes a size, and texts grow with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

MAX_TEXT = 65_536
Shape = Callable[[int], str]


def listed(many: int, form: str, between: str = ", ") -> str:
    return between.join(form.format(i) for i in range(many))


COUNTED = "(SELECT COUNT(*) AS c FROM t) AS s"
GROUPED = "(SELECT k, COUNT(*) AS c FROM t GROUP BY k) AS s"
WITHIN = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10))"


DOUBLED = "SELECT * FROM c{0} UNION ALL SELECT * FROM c{0}"


def chain(links: int, of: str = "SELECT * FROM c{0} WHERE x >= -{0}") -> str:
    return f"{linked(links, 'SELECT unit, x, n FROM t', of)} SELECT COUNT(*) FROM c{links}"


def linked(links: int, first: str, of: str) -> str:
    """CTEs c0, c1, ..., each but the first made of the one before."""
    named = "".join(f", c{i + 1} AS ({of.format(i)})" for i in range(links))
    return f"WITH c0 AS ({first}){named}"


def linked_above(links: int, of: str = DOUBLED) -> str:
    return linked(links, "SELECT COUNT(*) AS c FROM t", of)


def aliased(many: int) -> str:
    """Columns a1, a2, ..., each made of the one before."""
    return "".join(f", a{i} + a{i} AS a{i + 1}" for i in range(many))


def columns(many: int, form: str, source: str = "t") -> str:
    """A subquery with the unit and many columns a0, a1, ..."""
    return f"(SELECT unit, {listed(many, form + ' AS a{0}')} FROM {source}) AS s"


DEEP: dict[str, Shape] = {
    "additions": lambda n: f"SELECT SUM(n{'+n' * n}) FROM t",
    "additions above": lambda n: f"SELECT c{'+c' * n} AS a FROM {COUNTED}",
    "concatenations": lambda n: f"SELECT COUNT(*) FROM t WHERE k{'||k' * n} = 'a'",
    "parentheses": lambda n: f"SELECT COUNT(*) FROM t WHERE {'(' * n}n = 1{')' * n}",
    "negations": lambda n: f"SELECT COUNT(*) FROM t WHERE {'NOT ' * n}n = 1",
    "cases": lambda n: f"SELECT SUM({'CASE WHEN n = 1 THEN n ELSE ' * n}n{' END' * n}) FROM t",
    "calls above": lambda n: f"SELECT {'abs(' * n}c{')' * n} AS a FROM {COUNTED}",
    "lists above": lambda n: f"SELECT {'[' * n}c{']' * n} AS a FROM {COUNTED}",
    "subqueries": lambda n: f"SELECT COUNT(*) FROM {'(SELECT * FROM ' * n}t{') AS a' * n}",
}
WIDE: dict[str, Shape] = {
    "conditions": lambda n: f"SELECT COUNT(*) FROM t WHERE {listed(n, 'n = {}', ' OR ')}",
    "IN": lambda n: f"SELECT COUNT(*) FROM t WHERE n IN ({listed(n, '{}')})",
    "unions": lambda n: listed(n, "SELECT COUNT(*) FROM t WHERE n = {}", " UNION ALL "),
    "unions of rows": lambda n: (
        f"SELECT COUNT(*) FROM ({listed(n, 'SELECT unit FROM t', ' UNION ALL ')}) AS u"
    ),
    "public joins": lambda n: f"SELECT COUNT(*) FROM t{listed(n, ' JOIN g AS g{0} ON t.k = g{0}.k', '')}",
    "columns above": lambda n: f"SELECT {listed(n, 'c + {0} AS c{0}')} FROM {COUNTED}",
    "keys": lambda n: f"SELECT COUNT(*) FROM t GROUP BY {listed(n, 'n + {}')}",
    "columns read": lambda n: (
        f"SELECT COUNT(*) FROM {columns(n, 'n + {0}')} WHERE {listed(n, 'a{} > 0', ' AND ')}"
    ),
    "replacements above": lambda n: (
        f"SELECT {'replace(' * n}c::VARCHAR{', 1::VARCHAR, 11::VARCHAR)' * n} AS a FROM {COUNTED}"
    ),
    # aggregates
    "counts": lambda n: f"SELECT {listed(n, 'COUNT(*) FILTER (n = {})')} FROM t",
    "the same count": lambda n: f"SELECT {listed(n, 'COUNT(*)')} FROM t",
    "sums": lambda n: f"SELECT {listed(n, 'SUM(n + {})')} FROM t",
    "sums of doubles": lambda n: f"SELECT {listed(n, 'SUM(x * {})')} FROM t",
    "sums in groups": lambda n: f"SELECT k, {listed(n, 'SUM(n + {})')} FROM t GROUP BY k",
    "sums of rows": lambda n: f"SELECT {listed(n, 'SUM(n + {})')} FROM r",
    "averages": lambda n: f"SELECT {listed(n, 'AVG(n + {})')} FROM t",
    "variances": lambda n: f"SELECT {listed(n, 'VAR_POP(n + {})')} FROM t",
    "correlations": lambda n: f"SELECT {listed(n, 'CORR(n, x + {})')} FROM t",
    "medians": lambda n: f"SELECT {listed(n, 'MEDIAN(n + {})')} FROM t",
    "quantiles": lambda n: f"SELECT {listed(n, 'QUANTILE_CONT(n, 0.{})')} FROM t",
    "quantiles in groups": lambda n: f"SELECT k, {listed(n, 'MEDIAN(n + {})')} FROM t GROUP BY k",
    "distinct counts": lambda n: f"SELECT {listed(n, 'COUNT(DISTINCT n + {})')} FROM t",
    "histograms": lambda n: f"SELECT {listed(n, 'HISTOGRAM(k) FILTER (n > {})')} FROM t",
    "automatic bounds": lambda n: (
        f"SELECT {listed(n, 'SUM(b + {}, contribution_bounds_per_row => AUTO)')} FROM t"
    ),
    "bounds": lambda n: f"SELECT {listed(n, 'SUM(b, contribution_bounds_per_row => (0, 1{}))')} FROM t",
    "sums of cases": lambda n: f"SELECT SUM(CASE {listed(n, 'WHEN n = {0} THEN {0}', ' ')} END) FROM t",
    "sums of one another": lambda n: f"SELECT {listed(n, 'SUM(n + {})', ' + ')} AS a FROM t",
    # groups
    "inner keys": lambda n: f"SELECT COUNT(*) FROM (SELECT unit FROM t GROUP BY unit, {listed(n, 'n + {}')})",
    "totals per unit": lambda n: (
        f"SELECT COUNT(*) FROM (SELECT unit, {listed(n, 'SUM(n + {0}) AS a{0}')} FROM t GROUP BY unit) "
        f"WHERE {listed(n, 'a{} > 0', ' AND ')}"
    ),
    "a cube": lambda n: f"SELECT COUNT(*) FROM {columns(n, 'n > {0}')} GROUP BY CUBE({listed(n, 'a{}')})",
    "a rollup": lambda n: f"SELECT COUNT(*) FROM {columns(n, 'n > {0}')} GROUP BY ROLLUP({listed(n, 'a{}')})",
    "grouping sets": lambda n: (
        f"SELECT COUNT(*) FROM {columns(n, 'n > {0}')} GROUP BY GROUPING SETS ({listed(n, '(a{})')})"
    ),
    "a cube of sums": lambda n: (
        f"SELECT {listed(n, 'SUM(n + {0})')} FROM (SELECT *, n > 1 AS e FROM t) AS s GROUP BY CUBE(k, f, e)"
    ),
    "joins, sums and cubes": lambda n: (
        f"SELECT {listed(n, 'SUM(n + {0})')} FROM t{listed(min(n, 60), ' JOIN g AS g{0} ON t.k = g{0}.k', '')} "
        f"GROUP BY CUBE(t.k, f)"
    ),
    "cubes": lambda n: listed(
        n, "SELECT {0} AS a, k, f, SUM(n + {0}) AS s FROM t GROUP BY CUBE(k, f)", " UNION ALL "
    ),
    # CTEs and subqueries
    "a chain": chain,
    "doublings": lambda n: chain(n, DOUBLED),
    "joined doublings": lambda n: chain(
        n, "SELECT a.unit, a.x, b.n FROM c{0} AS a JOIN c{0} AS b ON a.unit = b.unit"
    ),
    "CTEs in a row": lambda n: (
        f"WITH {listed(n, 'c{0} AS (SELECT unit FROM t WHERE n > {0})')} "
        f"SELECT COUNT(*) FROM ({listed(n, 'SELECT * FROM c{}', ' UNION ALL ')})"
    ),
    "CTEs released": lambda n: (
        f"WITH {listed(n, 'c{0} AS (SELECT COUNT(*) AS c FROM t WHERE n > {0})')} "
        f"SELECT {listed(n, 'c{0}.c AS d{0}')} FROM {listed(n, 'c{}')}"
    ),
    "scalars above": lambda n: f"SELECT {listed(n, '(SELECT COUNT(*) FROM t WHERE n > {0}) AS a{0}')}",
    "IN queries": lambda n: (
        f"SELECT COUNT(*) FROM t WHERE {listed(n, 'k IN (SELECT k FROM g WHERE label > {})', ' AND ')}"
    ),
    "EXISTS": lambda n: (
        f"SELECT COUNT(*) FROM t WHERE {listed(n, 'EXISTS (SELECT 1 FROM g WHERE g.k = t.k AND label > {})', ' AND ')}"
    ),
    "own queries": lambda n: (
        f"SELECT COUNT(*) FROM t WHERE {listed(n, 'n > (SELECT MAX(y) + {} FROM s WHERE s.unit = t.unit)', ' AND ')}"
    ),
    "own joins": lambda n: f"SELECT COUNT(*) FROM t{listed(n, ' JOIN s AS s{0} ON t.unit = s{0}.unit', '')}",
    "USING": lambda n: f"SELECT COUNT(*) FROM t{listed(n, ' JOIN g AS g{0} USING (k)', '')}",
    "outer joins": lambda n: f"SELECT COUNT(n) FROM t{listed(n, ' LEFT JOIN g AS g{0} ON t.k = g{0}.k', '')}",
    "joins in a chain": lambda n: chain(min(n, 2000), "SELECT c.* FROM c{0} AS c JOIN g ON g.label = c.n"),
    "lists beside": lambda n: f"SELECT COUNT(*) FROM t{listed(n, ', UNNEST([n, {0}]) AS u{0}(v{0})', '')}",
    "unions above": lambda n: (
        f"WITH a AS (SELECT COUNT(*) AS c FROM t) {listed(n, 'SELECT c + {} FROM a', ' UNION ALL ')}"
    ),
    "joins above": lambda n: (
        f"WITH a AS (SELECT COUNT(*) AS c FROM t) SELECT COUNT(*) AS d FROM a{listed(n, ' JOIN a AS a{0} ON a{0}.c = a.c', '')}"
    ),
    "doublings above": lambda n: f"{linked_above(n)} SELECT COUNT(*) AS d FROM c{n}",
    "shown doublings": lambda n: f"{linked_above(n)} SELECT * FROM c{n}",
    "joined doublings above": lambda n: (
        f"{linked_above(n, 'SELECT a.c + b.c AS c FROM c{0} AS a, c{0} AS b')} SELECT c FROM c{n}"
    ),
    # what stands in a row
    "aliases": lambda n: f"SELECT COUNT(*) FROM (SELECT unit, x AS a0{aliased(n)} FROM t) AS s",
    "aliases above": lambda n: f"SELECT COUNT(*) AS a0{aliased(n)} FROM t",
    "aliases far above": lambda n: f"SELECT c AS a0{aliased(n)} FROM {COUNTED}",
    "likes": lambda n: (
        f"SELECT COUNT(*) FROM t WHERE {listed(n, chr(39).join(('k LIKE ', '%{}%', '')), ' OR ')}"
    ),
    "a pattern": lambda n: f"SELECT COUNT(*) FROM t WHERE k LIKE '{'a_' * n}%'",
    "an expression": lambda n: f"SELECT COUNT(*) FROM t WHERE regexp_matches(k, '{'(a|b)*' * n}')",
    "a text": lambda n: f"SELECT COUNT(*) FROM t WHERE k >= '{'a' * n}'",
    "a name": lambda n: f"SELECT COUNT(*) AS {'a' * n} FROM t",
    "a number": lambda n: f"SELECT SUM(n + {'1' * n}) FROM t",
    "a list": lambda n: f"SELECT COUNT(*) FROM t WHERE list_contains([{listed(n, '{}')}], n)",
    "a comment": lambda n: f"SELECT COUNT(*) /* {'/* */' * n} */ FROM t",
    "greatest": lambda n: f"SELECT SUM(GREATEST({listed(n, 'n + {}')})) FROM t",
    "coalesce": lambda n: f"SELECT SUM(COALESCE({listed(n, 'n + {}')})) FROM t",
    "orders above": lambda n: f"SELECT * FROM {GROUPED} ORDER BY {listed(n, 'c + {}')}",
    "HAVING": lambda n: (
        f"SELECT k, COUNT(*) FROM t GROUP BY k HAVING {listed(n, 'COUNT(*) FILTER (n = {}) > 0', ' AND ')}"
    ),
    # windows, PIVOT
    "windows": lambda n: (
        f"SELECT COUNT(*) FROM {columns(n, 'row_number() OVER (PARTITION BY unit ORDER BY n + {0})')} "
        f"WHERE {listed(n, 'a{} <= 1', ' AND ')}"
    ),
    "windows above": lambda n: (
        f"SELECT {listed(n, 'SUM(c) OVER (ORDER BY k ROWS BETWEEN {0} PRECEDING AND CURRENT ROW) AS a{0}')} FROM {GROUPED}"
    ),
    "a PIVOT": lambda n: f"SELECT * FROM (PIVOT t ON n IN ({listed(n, '{}')}) USING COUNT(*) GROUP BY k)",
    "a PIVOT above": lambda n: (
        f"SELECT * FROM (SELECT n, COUNT(*) AS c FROM t GROUP BY n) PIVOT (SUM(c) FOR n IN ({listed(n, '{}')}))"
    ),
    "UNPIVOT": lambda n: (
        f"SELECT * FROM (SELECT {listed(n, 'COUNT(*) FILTER (n = {0}) AS a{0}')} FROM t) "
        f"UNPIVOT (v FOR w IN ({listed(n, 'a{}')}))"
    ),
    # parameters
    "parameters": lambda n: f"SELECT COUNT(*) FROM t WHERE n IN ({listed(n, '$p{}')})",
    "parameters in sums": lambda n: f"SELECT {listed(n, 'SUM(n + $p{})')} FROM t",
    # other modes
    "choices": lambda n: (
        "WITH c AS (SELECT range AS v FROM range(9)) "
        + listed(n, "SELECT EXPMECH(COUNT(*) FILTER (n > v + {})) OVER c FROM t", " UNION ALL ")
    ),
    "a utility": lambda n: (
        f"WITH c AS (SELECT range AS v FROM range(9)) "
        f"SELECT EXPMECH({listed(n, 'COUNT(*) FILTER (n > v + {})', ' + ')}) OVER c FROM t"
    ),
    "candidates": lambda n: (
        f"WITH c(v) AS (VALUES {listed(n, '({})')}) SELECT EXPMECH(COUNT(*) FILTER (n >= v)) OVER c FROM t"
    ),
    "candidate columns": lambda n: (
        f"WITH c AS (SELECT {listed(n, 'range + {0} AS v{0}')} FROM range(9)) "
        f"SELECT EXPMECH(COUNT(*) FILTER ({listed(n, 'n >= v{}', ' AND ')})) OVER c FROM t"
    ),
    "a threshold": lambda n: (
        f"WITH c AS (SELECT range AS v FROM range(9)) "
        f"SELECT ABOVE_THRESHOLD({listed(n, 'SUM(LEAST(n, v + {}))', ' + ')}, 1) OVER c FROM t"
    ),
    "questions": lambda n: (
        f"DECLARE a ABOVE_THRESHOLD 3; SELECT WITH a COUNT(*) FROM t WHERE {listed(n, 'n = {}', ' OR ')}; CLOSE a"
    ),
    "many questions": lambda n: (
        f"DECLARE a ABOVE_THRESHOLD 1000000; {listed(n, 'SELECT WITH a COUNT(*) FROM t WHERE n = {}', '; ')}; CLOSE a"
    ),
    "thresholds": lambda n: listed(n, "DECLARE a{0} ABOVE_THRESHOLD 3; CLOSE a{0}", "; "),
    "tests": lambda n: f"SELECT WITH PTR {listed(n, 'MEDIAN(n + {})')} FROM t",
    "tests of spread": lambda n: f"SELECT WITH PTR {listed(n, 'IQR(x + {})')} FROM t",
    "stable": lambda n: f"SELECT WITH STABLE {listed(n, 'MEDIAN(n + {})')} FROM t",
    "subsamples": lambda n: f"{WITHIN} {listed(n, 'AVG(n + {})')} FROM t",
    "a long subsample": lambda n: f"{WITHIN} {listed(n, 'AVG(n + {})', ' + ')} AS a FROM t",
    "subsamples in groups": lambda n: (
        f"{WITHIN} MAX(a) FROM (SELECT {listed(n, 'n + {}', ' + ')} AS a, COUNT(*) AS c FROM t GROUP BY ALL) AS s"
    ),
    "subsampled CTEs": lambda n: (
        f"WITH {listed(n, 'c{0} AS (SELECT n FROM t WHERE n > {0})')} "
        f"{WITHIN} AVG(n) FROM ({listed(n, 'SELECT * FROM c{}', ' UNION ALL ')}) AS s"
    ),
    # statements
    "statements": lambda n: listed(n, "SELECT COUNT(*) FROM t WHERE n = {}", "; "),
    "kept results": lambda n: listed(n, "o{0} << SELECT COUNT(*) AS c FROM t", "; "),
    "EXPLAIN": lambda n: f"EXPLAIN SELECT {listed(n, 'SUM(n + {})')} FROM t",
    "EXPLAIN of keys": lambda n: f"EXPLAIN SELECT COUNT(*) FROM t GROUP BY {listed(n, 'n + {}')}",
}


def grow_at_random(seed: int) -> str:
    """A SELECT of random parts, each of a random size; it may be nonsense, and it may be refused."""
    rng = random.Random(seed)

    def many(most: int) -> int:
        return int(most ** rng.random())

    aggregates = (
        "COUNT(*) FILTER (n = {})",
        "SUM(n + {})",
        "AVG(x + {})",
        "MEDIAN(n + {})",
        "SUM(n * n - {})",
    )
    joins = (
        "",
        " JOIN g AS g{0} ON t.k = g{0}.k",
        " LEFT JOIN g AS g{0} USING (k)",
        " JOIN s AS s{0} USING (unit)",
    )
    conditions = ("n > {}", "k IN (SELECT k FROM g WHERE label < {})", "n + {} NOT IN (1, 2)", "x * {} > n")
    keys = ("", " GROUP BY t.k", " GROUP BY CUBE(t.k, f)", " GROUP BY ROLLUP(t.k, f, n)", " GROUP BY n, f")
    source = f"t{listed(many(90), rng.choice(joins), '')}"
    if rng.random() < 0.3:
        source = f"(SELECT * FROM {source} WHERE {listed(many(300), rng.choice(conditions), ' AND ')}) AS t"
    select = listed(many(2500), rng.choice(aggregates))
    where = listed(many(300), rng.choice(conditions), " OR ")
    made = f"SELECT {select} FROM {source} WHERE {where}{rng.choice(keys)}"
    if rng.random() < 0.3:
        made = listed(many(40), made, " UNION ALL ")
    for _ in range(many(6) if rng.random() < 0.2 else 0):
        made = f"SELECT * FROM ({made})"
    return made[: MAX_TEXT + 1]


def longest(shape: Shape) -> int:
    """The size at which a form's text is the longest that is read at all."""
    few, many = 1, MAX_TEXT
    while few < many:
        middle = (few + many + 1) // 2
        few, many = (middle, many) if len(shape(middle)) <= MAX_TEXT else (few, middle - 1)
    return few
