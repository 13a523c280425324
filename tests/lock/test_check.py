"""The second lock: wrong queries made by hand, each refused for its own reason, and a right twin that is accepted."""

# ruff: noqa: E501 - a text stands on one line

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dpsql.mechanisms.base import BlocksClaim, Claim, PublicClaim, RowsClaim, SensitivityClaim, SumsClaim
from tests.support.lock_texts import SALTED, labs, named, order, visits, why

COUNTS = SumsClaim((), (("p0", SensitivityClaim(3)),))
U = '"unit7f3a"'


def counted(source: str, unit: str = f'"r1".{U}', where: str = "", rows: int = 3) -> str:
    """The noisy count's text: rows of each unit counted, held to three, and added."""
    return (
        f'SELECT COALESCE(SUM(LEAST("r90"."p0", {rows})), 0) AS "p0", COUNT(*) AS "units" FROM (SELECT "r91"."u" AS "u", '
        f'COUNT(*) AS "p0" FROM (SELECT {unit} AS "u" FROM {source}{where}) AS "r91" GROUP BY "r91"."u") AS "r90"'
    )


@dataclass(frozen=True)
class Case:
    """``wrong`` is refused, saying ``why``; ``right`` differs from it in one thing and is accepted."""

    name: str
    right: str
    wrong: str
    why: str
    claim: Claim = COUNTS


EQUAL = f'"r1".{U} = "r2".{U}'
TWO = f"{visits(1)} JOIN {visits(2)} ON {{}}"
NOT_LINKED = "private rows meet without an equality of their units"
IN_JOIN = "private rows meet without an equality of their units in the join itself"
OTHERS = "a subquery looks at other units' rows"
BY_OTHER = "nothing bounds what one unit moves a sum by"


def linked(on: str, where: str = "") -> str:
    return counted(TWO.format(on), where=where, rows=3)


def exists(inner: str, outer: str = visits(1)) -> str:
    return counted(outer, where=f" WHERE EXISTS (SELECT 1 AS one FROM {inner})")


def simple(text: str, source: str = visits(1)) -> str:
    """One that reads a table, with columns of our own choice."""
    return f"SELECT {text} FROM {source}"


def over(inner: str, unit: str = f'"r1".{U}') -> str:
    return counted(f'({inner}) AS "r1"', unit)


UNIT_LOST = [
    Case(
        "the unit forged by an alias: SELECT visit_id AS unit",
        over(simple(f'"r2".{U} AS {U}', visits(2))), over(simple(f'"r2"."c1" AS {U}', visits(2))), BY_OTHER,
    ),
    Case(
        "the unit forged by a public column beside it",
        over(f'SELECT "r2".{U} AS {U}, "r3"."i" AS "c9" FROM {visits(2)}, range(10000) AS "r3"("i")'),
        over(f'SELECT "r3"."i" AS {U}, "r2".{U} AS "c9" FROM {visits(2)}, range(10000) AS "r3"("i")'), BY_OTHER,
    ),
    Case(
        "the unit forged in a CTE",
        f'WITH "r5" AS ({simple(f"{chr(34)}r2{chr(34)}.{U} AS {U}", visits(2))}) ' + counted('"r5" AS "r1"'),
        f'WITH "r5" AS ({simple(f"{chr(34)}r2{chr(34)}.{chr(34)}c1{chr(34)} AS {U}", visits(2))}) ' + counted('"r5" AS "r1"'),
        BY_OTHER,
    ),
    Case(
        "the unit forged by an aggregate under GROUP BY unit",
        over(f'SELECT "r2".{U} AS {U}, MAX("r2"."c1") AS "c9" FROM {visits(2)} GROUP BY "r2".{U}'),
        over(f'SELECT "r2".{U} AS "c9", MAX("r2"."c1") AS {U} FROM {visits(2)} GROUP BY "r2".{U}'), BY_OTHER,
    ),
    Case(
        "the unit forged by a window",
        over(f'SELECT "r2".{U} AS {U}, row_number() OVER (PARTITION BY "r2".{U} ORDER BY "r2"."c1") AS "c9" FROM {visits(2)}'),
        over(f'SELECT "r2".{U} AS "c9", row_number() OVER (PARTITION BY "r2".{U} ORDER BY "r2"."c1") AS {U} FROM {visits(2)}'),
        BY_OTHER,
    ),
    Case(
        "the unit forged by UNION ALL: other columns in its place",
        over(f'{simple(f"{chr(34)}r2{chr(34)}.{U} AS {U}", visits(2))} UNION ALL SELECT "r3".{U} AS {U} FROM {visits(3)}'),
        over(f'{simple(f"{chr(34)}r2{chr(34)}.{U} AS {U}", visits(2))} UNION ALL SELECT "r3"."c1" AS {U} FROM {visits(3)}'),
        "a set operation without the unit in the same place",
    ),
    Case(
        "the columns of a union in another order",
        over(f'SELECT "r2".{U} AS {U}, "r2"."c1" AS "c1" FROM {visits(2)} UNION ALL SELECT "r3".{U} AS {U}, "r3"."c1" AS "c1" FROM {visits(3)}'),
        over(f'SELECT "r2".{U} AS {U}, "r2"."c1" AS "c1" FROM {visits(2)} UNION ALL SELECT "r3"."c1" AS "c1", "r3".{U} AS {U} FROM {visits(3)}'),
        "a set operation without the unit in the same place",
    ),
    Case(
        "a union of units of two types",
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} UNION ALL SELECT "r3".{U} AS {U} FROM {visits(3)}'),
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} UNION ALL SELECT "r3".{U} AS {U} FROM {named(3)}'),
        "a set operation without the unit in the same place",
    ),
    Case(
        "a union with public rows, which belong to nobody",
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} UNION ALL SELECT "r3".{U} AS {U} FROM {visits(3)}'),
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} UNION ALL SELECT "r3"."c0" AS {U} FROM "lent1" AS "r3"'),
        "a set operation of private rows and others",
    ),
    Case(
        "EXCEPT without the unit",
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} EXCEPT SELECT "r3".{U} AS {U} FROM {labs(3)}')
        .replace('"main"."labs"', '"main"."visits"').replace('"r3b"."test"', '"r3b"."note"')
        .replace('"r3b"."value"', '"r3b"."amount"'),
        over(f'SELECT "r2"."c2" AS {U} FROM {visits(2)} EXCEPT SELECT "r3"."c2" AS {U} FROM {visits(3)}'),
        "a set operation without the unit in the same place",
    ),
    Case(
        "INTERSECT without the unit",
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} INTERSECT SELECT "r3".{U} AS {U} FROM {visits(3)}'),
        over(f'SELECT "r2"."c2" AS {U} FROM {visits(2)} INTERSECT SELECT "r3"."c2" AS {U} FROM {visits(3)}'),
        "a set operation without the unit in the same place",
    ),
    Case(
        "DISTINCT without the unit",
        over(f'SELECT DISTINCT "r2".{U} AS {U}, "r2"."c4" AS "c4" FROM {visits(2)}'),
        over(f'SELECT DISTINCT "r2"."c4" AS {U} FROM {visits(2)}'), BY_OTHER,
    ),
    Case(
        "a group without the unit, joined back to private rows",
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} JOIN (SELECT "r3".{U} AS {U}, COUNT(*) AS "n" FROM {visits(3)} GROUP BY '
             f'"r3".{U}) AS "r4" ON "r2".{U} = "r4".{U}'),
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} JOIN (SELECT "r3"."c2" AS "k", COUNT(*) AS "n" FROM {visits(3)} GROUP BY '
             '"r3"."c2") AS "r4" ON "r2"."c2" = "r4"."k"'),
        "sums of several sources",
    ),
    Case("a cast of the unit", counted(visits(1)), counted(visits(1), f'CAST("r1".{U} AS DOUBLE)'), BY_OTHER),
    Case(
        "a function of the unit", counted(visits(1)), counted(visits(1), f'"r1".{U} % 10'), BY_OTHER,
    ),
    Case(
        "the unit may be missing: rows of nobody",
        counted(visits(1)),
        counted(visits(1).replace(' WHERE "r1b"."patient_id" IS NOT NULL', "")), "rows without a unit are added up",
    ),
    Case(
        "not null of another column",
        counted(visits(1)),
        counted(visits(1).replace('WHERE "r1b"."patient_id" IS NOT NULL', 'WHERE "r1b"."ward" IS NOT NULL')),
        "rows without a unit are added up",
    ),
    Case(
        "not null under OR",
        counted(visits(1)),
        counted(visits(1).replace('"r1b"."patient_id" IS NOT NULL', '("r1b"."patient_id" IS NOT NULL OR "r1b"."ward" = 1)')),
        "rows without a unit are added up",
    ),
    Case(
        "a struct's field that is named like the unit",
        counted(visits(1)),
        counted(visits(1), "struct_extract(\"r1\".\"c6\", 'patient_id')"), BY_OTHER,
    ),
    Case(
        "unnest: the elements instead of the unit",
        over(f'SELECT "r2".{U} AS {U}, "r3"."e" AS "c9" FROM {visits(2)}, UNNEST("r2"."c5") AS "r3"("e")'),
        over(f'SELECT "r3"."e" AS {U} FROM {visits(2)}, UNNEST("r2"."c5") AS "r3"("e")'), BY_OTHER,
    ),
    Case(
        "a window over another partition",
        over(f'SELECT "r2".{U} AS {U}, COUNT(*) OVER (PARTITION BY "r2".{U}, "r2"."c2") AS "n" FROM {visits(2)}'),
        over(f'SELECT "r2".{U} AS {U}, COUNT(*) OVER (PARTITION BY "r2"."c2") AS "n" FROM {visits(2)}'), BY_OTHER,
    ),
    Case(
        "a window over everybody",
        over(f'SELECT "r2".{U} AS {U}, lag("r2"."c3") OVER (PARTITION BY "r2".{U} ORDER BY "r2"."c1") AS "n" FROM {visits(2)}'),
        over(f'SELECT "r2".{U} AS {U}, lag("r2"."c3") OVER (ORDER BY "r2".{U}, "r2"."c1") AS "n" FROM {visits(2)}'), BY_OTHER,
    ),
    Case(
        "LIMIT over private rows",
        over(f'SELECT "r2".{U} AS {U} FROM {visits(2)}'), over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} LIMIT 5'), BY_OTHER,
    ),
]  # fmt: skip

LINK_LOST = [
    Case("a join on another column", linked(EQUAL), linked('"r1"."c2" = "r2"."c2"'), NOT_LINKED),
    Case("a cross join", linked(EQUAL), counted(f"{visits(1)} CROSS JOIN {visits(2)}"), NOT_LINKED),
    Case("a link under OR", linked(EQUAL), linked(f'{EQUAL} OR "r1"."c2" = 1'), NOT_LINKED),
    Case("a link under NOT", linked(EQUAL), linked(f"NOT ({EQUAL})"), NOT_LINKED),
    Case(
        "a link under CASE", linked(EQUAL), linked(f'CASE WHEN "r1"."c2" > 0 THEN {EQUAL} ELSE TRUE END'), NOT_LINKED,
    ),
    Case("a link under COALESCE", linked(EQUAL), linked(f"COALESCE({EQUAL}, TRUE)"), NOT_LINKED),
    Case("a link with a cast", linked(EQUAL), linked(f'CAST("r1".{U} AS DOUBLE) = CAST("r2".{U} AS DOUBLE)'), NOT_LINKED),
    Case("a link with one cast", linked(EQUAL), linked(f'CAST("r1".{U} AS SMALLINT) = "r2".{U}'), NOT_LINKED),
    Case(
        "a link of two types", counted(f'{visits(1)} JOIN {labs(2)} ON {EQUAL}'),
        counted(f'{visits(1)} JOIN {named(2)} ON {EQUAL}'), NOT_LINKED,
    ),
    Case("a link by <=", linked(EQUAL), linked(EQUAL.replace("=", "<=")), NOT_LINKED),
    Case("a link by IS NOT DISTINCT FROM", linked(EQUAL), linked(EQUAL.replace("=", "IS NOT DISTINCT FROM")), NOT_LINKED),
    Case(
        "a link of lists", linked(EQUAL), linked(f'("r1".{U}, "r1"."c2") = ("r2".{U}, "r2"."c2")'), NOT_LINKED,
    ),
    Case("a link of the first with itself", linked(EQUAL), linked(f'"r1".{U} = "r1".{U}'), NOT_LINKED),
    Case(
        "a link with a value of the other that only has the unit's name",
        linked(EQUAL), counted(f'{visits(1)} JOIN (SELECT "r3"."c1" AS {U}, "r3".{U} AS "c9" FROM {visits(3)}) AS "r2" ON {EQUAL}'),
        NOT_LINKED,
    ),
    Case(
        "three tables, the third without a link",
        counted(f'{visits(1)} JOIN {visits(2)} ON {EQUAL} JOIN {visits(3)} ON "r2".{U} = "r3".{U}'),
        counted(f'{visits(1)} JOIN {visits(2)} ON {EQUAL} JOIN {visits(3)} ON "r2"."c2" = "r3"."c2"'), NOT_LINKED,
    ),
    Case(
        "linked through a number that is not exact",
        counted(f'{visits(1)} JOIN {visits(2)} ON {EQUAL}, "lent2" AS "r3"', where=' WHERE "r2"."c3" = "r3"."c0"'),
        counted(f'{visits(1)} CROSS JOIN {visits(2)}, "lent2" AS "r3"', where=f' WHERE "r1".{U} = "r3"."c0" AND "r3"."c0" = "r2".{U}'),
        NOT_LINKED,
    ),
    Case(
        "a link in WHERE that an outer join comes before",
        counted(f'{visits(1)} LEFT JOIN {visits(2)} ON {EQUAL}'),
        counted(f'{visits(1)} LEFT JOIN {visits(2)} ON "r1"."c2" = "r2"."c2"', where=f" WHERE {EQUAL}"), IN_JOIN,
    ),
    Case(
        "the unit of the side that may be missing",
        counted(f'{visits(1)} LEFT JOIN {visits(2)} ON {EQUAL}', f'"r1".{U}'),
        counted(f'{visits(1)} LEFT JOIN {visits(2)} ON {EQUAL}', f'"r2".{U}'), BY_OTHER,
    ),
    Case(
        "public rows are kept where nobody meets them",
        counted(f'"memory"."main"."wards" AS "r3" LEFT JOIN {visits(1)} ON "r3"."ward" = "r1"."c2"', where=f' WHERE "r1".{U} IS NOT NULL'),
        counted(f'"memory"."main"."wards" AS "r3" LEFT JOIN {visits(1)} ON "r3"."ward" = "r1"."c2"'),
        "rows without a unit are added up",
    ),
    Case(
        "the unit's presence only in the condition of a join that keeps the other side",
        counted(f'"memory"."main"."wards" AS "r3" LEFT JOIN {visits(1)} ON "r3"."ward" = "r1"."c2"', where=f' WHERE "r1".{U} IS NOT NULL'),
        counted(f'"memory"."main"."wards" AS "r3" LEFT JOIN {visits(1)} ON "r3"."ward" = "r1"."c2" AND "r1".{U} IS NOT NULL'),
        "rows without a unit are added up",
    ),
    Case(
        "both sides are kept, and one unit is taken",
        counted(f'{visits(1)} FULL JOIN {visits(2)} ON {EQUAL}', f'COALESCE("r1".{U}, "r2".{U})'),
        counted(f'{visits(1)} FULL JOIN {visits(2)} ON {EQUAL}', f'"r1".{U}'), BY_OTHER,
    ),
    Case(
        "ASOF without the unit beside it",
        counted(f'{visits(1)} ASOF JOIN {visits(2)} ON {EQUAL} AND "r1"."c3" >= "r2"."c3"'),
        counted(f'{visits(1)} ASOF JOIN {visits(2)} ON "r1"."c2" = "r2"."c2" AND "r1"."c3" >= "r2"."c3"', where=f" WHERE {EQUAL}"),
        IN_JOIN,
    ),
    Case(
        "the nearest private row of a public one",
        counted(f'{visits(1)} ASOF JOIN "lent1" AS "r2" ON "r1"."c3" >= "r2"."c0"'),
        counted(f'"lent1" AS "r2" ASOF JOIN {visits(1)} ON "r2"."c0" >= "r1"."c3"'), "the nearest private row of a public one",
    ),
    Case(
        "EXISTS without a link",
        exists(f'{visits(2)} WHERE "r2".{U} = "r1".{U} AND "r2"."c3" > "r1"."c3"'), exists(f'{visits(2)} WHERE "r2"."c3" > "r1"."c3"'),
        OTHERS,
    ),
    Case(
        "the link captured: the inner alias instead of the outer",
        exists(f'{visits(2)} WHERE "r2".{U} = "r1".{U}'), exists(f'{visits(2)} WHERE "r2".{U} = "r2".{U}'), OTHERS,
    ),
    Case(
        "the link captured by a field: the outer alias is a public column with such a field",
        exists(f'{visits(2)} WHERE "r2".{U} = "r1".{U}'),
        exists(f'{visits(2)}, (SELECT struct_pack({U} := 4242) AS "r1") AS "r3" WHERE "r2".{U} = "r1".{U}'),
        "an alias that is a column",
    ),
    Case(
        "the link captured by a public relation of the inner FROM",
        exists(f'{visits(2)}, "lent1" AS "r3" WHERE "r2".{U} = "r1".{U}'),
        exists(f'{visits(2)}, "lent1" AS "r3" WHERE "r2".{U} = "r3"."c0"'), OTHERS,
    ),
    Case(
        "the link captured by an alias that occurs twice",
        exists(f'{visits(2)} WHERE "r2".{U} = "r1".{U}'), exists(f'{visits(2)}, "lent1" AS "r1" WHERE "r2".{U} = "r1".{U}'),
        "an alias that occurs twice",
    ),
    Case(
        "IN over private rows without a link",
        counted(visits(1), where=f' WHERE "r1"."c2" IN (SELECT "r2"."c2" AS "c2" FROM {visits(2)} WHERE "r2".{U} = "r1".{U})'),
        counted(visits(1), where=f' WHERE "r1"."c2" IN (SELECT "r2"."c2" AS "c2" FROM {visits(2)})'), OTHERS,
    ),
    Case(
        "a scalar subquery over everybody",
        counted(visits(1), where=f' WHERE "r1"."c3" > (SELECT MAX("r2"."c3") AS "m" FROM {visits(2)} WHERE "r2".{U} = "r1".{U})'),
        counted(visits(1), where=f' WHERE "r1"."c3" > (SELECT MAX("r2"."c3") AS "m" FROM {visits(2)})'), OTHERS,
    ),
    Case(
        "a link under OR inside a subquery",
        exists(f'{visits(2)} WHERE "r2".{U} = "r1".{U}'), exists(f'{visits(2)} WHERE "r2".{U} = "r1".{U} OR "r2"."c3" > 5'), OTHERS,
    ),
    Case(
        "a subquery linked in the second of two private relations only",
        exists(f'{visits(2)} JOIN {visits(3)} ON "r2".{U} = "r3".{U} WHERE "r3".{U} = "r1".{U}'),
        exists(f'{visits(2)} CROSS JOIN {visits(3)} WHERE "r3".{U} = "r1".{U}'), NOT_LINKED,
    ),
    Case(
        "public rows that look at private ones",
        counted(visits(1), where=' WHERE EXISTS (SELECT 1 AS one FROM "lent1" AS "r4" WHERE "r4"."c0" = "r1"."c2")'),
        'SELECT COUNT(*) AS "p0" FROM "lent1" AS "r4" WHERE EXISTS (SELECT 1 AS one FROM ' + visits(1) + ' WHERE "r4"."c0" = "r1"."c2")',
        OTHERS,
    ),
]  # fmt: skip


def path(on: str, unit: str = '"r2"."user_id"') -> str:
    return counted(
        f'(SELECT "r3"."price" AS "c0", {unit} AS {U} FROM "memory"."main"."items" AS "r3" JOIN "memory"."main"."orders" AS "r2" '
        f'ON {on} WHERE {unit} IS NOT NULL) AS "r1"'
    )


PATHS = [
    Case(
        "a path to the unit that goes another way",
        path('"r3"."order_id" = "r2"."id"'), path('"r3"."price" = "r2"."id"'), NOT_LINKED,
    ),
    Case(
        "a path whose end is another column",
        path('"r3"."order_id" = "r2"."id"'), path('"r3"."order_id" = "r2"."id"', '"r2"."id"'), "rows without a unit are added up",
    ),
    Case(
        "a path that is not followed",
        path('"r3"."order_id" = "r2"."id"'),
        counted(f'(SELECT "r3"."order_id" AS {U} FROM "memory"."main"."items" AS "r3" WHERE "r3"."order_id" IS NOT NULL) AS "r1"'),
        "rows without a unit are added up",
    ),
    Case(
        "rows that are units meet private rows",
        'SELECT COUNT(*) AS "p0" FROM "memory"."main"."lines" AS "r1"',
        counted(f'"memory"."main"."lines" AS "r2" JOIN {visits(1)} ON "r1"."c2" = "r2"."kind"'), NOT_LINKED,
    ),
    Case(
        "rows that are units, multiplied by public ones",
        'SELECT COUNT(*) AS "p0" FROM "memory"."main"."lines" AS "r1" WHERE "r1"."kind" IN (SELECT "r2"."c0" AS "c0" FROM "lent2" AS "r2")',
        'SELECT COUNT(*) AS "p0" FROM "memory"."main"."lines" AS "r1" JOIN "lent2" AS "r2" ON "r1"."kind" = "r2"."c0"', BY_OTHER,
    ),
]  # fmt: skip

COUNTED = counted(visits(1))
LAMBDA = counted(visits(1), where=' WHERE list_max(list_transform("r1"."c5", lambda x: lower(x))) = \'a\'')
PART = counted(visits(1), where=" WHERE (TRY_CAST(CAST(\"r1\".\"c4\" AS VARCHAR) AS JSON) ->> '$.a') = 'a'")
ZONE = counted(visits(1), where=" WHERE timezone({}) = '2024-01-01'")
FORM = [
    Case("a time zone that is no constant", ZONE.format("'UTC', \"r1\".\"c3\""), ZONE.format('"r1"."c3", "r1"."c3"'), "a time zone that is no constant"),
    Case("the zone of the session", ZONE.format("'UTC', \"r1\".\"c3\""), ZONE.format('"r1"."c3"'), "a time zone that is no constant"),
    Case("a column without its relation", COUNTED, COUNTED.replace('LEAST("r90"."p0"', 'LEAST("p0"'), "a column that is not written with its relation"),
    Case("a field read with a point", COUNTED, COUNTED.replace('"r91"."u" AS', '"r91"."u"."f" AS'), "a column that is not written with its relation"),
    Case("*", COUNTED, f'SELECT * FROM ({COUNTED}) AS "r95"', "an output column without a name"),
    Case("COLUMNS", COUNTED, f"SELECT COLUMNS('p.') AS \"p0\" FROM ({COUNTED}) AS \"r95\"", "an expression STAR"),
    Case("USING", linked(EQUAL), counted(f"{visits(1)} JOIN {visits(2)} USING ({U})"), "JOIN with using_columns"),
    Case("NATURAL", linked(EQUAL), counted(f"{visits(1)} NATURAL JOIN {visits(2)}"), "a join INNER NATURAL"),
    Case("POSITIONAL", linked(EQUAL), counted(f"{visits(1)} POSITIONAL JOIN {visits(2)}"), "a join INNER POSITIONAL"),
    Case("a semi-join without a link", counted(f"{visits(1)} SEMI JOIN {visits(2)} ON {EQUAL}"),
         counted(f'{visits(1)} SEMI JOIN {visits(2)} ON "r1"."c2" = "r2"."c2"'), IN_JOIN),
    Case("an anti-join without a link", counted(f"{visits(1)} ANTI JOIN {visits(2)} ON {EQUAL}"),
         counted(f'{visits(1)} ANTI JOIN {visits(2)} ON "r1"."c2" = "r2"."c2"'), IN_JOIN),
    Case("SAMPLE of a table", COUNTED, COUNTED.replace('AS "r1b"', 'AS "r1b" TABLESAMPLE 10%'), "BASE_TABLE with sample"),
    Case("SAMPLE of a query", COUNTED, COUNTED + " USING SAMPLE 10", "SELECT_NODE with sample"),
    Case("PIVOT", COUNTED, f"PIVOT ({COUNTED}) ON p0 USING SUM(units)", "not one SELECT"),
    Case("two statements", COUNTED, COUNTED + "; SELECT 1 AS c", "not one SELECT"),
    Case("no SELECT", COUNTED, "DROP TABLE visits", "not one SELECT"),
    Case("a recursive CTE", f'WITH "r7" AS (SELECT 1 AS "c") {COUNTED}',
         f'WITH RECURSIVE "r7" AS (SELECT 1 AS "c" UNION ALL SELECT "r7"."c" AS "c" FROM "r7") {COUNTED}',
         "a query of kind RECURSIVE_CTE_NODE"),
    Case("a CTE with columns", f'WITH "r7" AS (SELECT 1 AS "c") {COUNTED}', f'WITH "r7"("d") AS (SELECT 1 AS "c") {COUNTED}', "None with aliases"),
    Case("a CTE that shadows a lent relation", 'WITH "r7" AS (SELECT 1 AS "c0") SELECT "r8"."c0" AS "p0" FROM "r7" AS "r8"',
         f'WITH "lent1" AS (SELECT 1 AS "c0") {COUNTED}', "an alias that occurs twice"),
    Case("an alias that occurs twice", COUNTED, COUNTED.replace('"r90"', '"r91"'), "an alias that occurs twice"),
    Case("an alias in other letters", COUNTED, COUNTED.replace('"r90"', '"R91"'), "an alias that occurs twice"),
    Case("an alias that is a column", COUNTED, COUNTED.replace('"r90"', '"ward"'), "an alias that is a column"),
    Case("an output alias that is used again", COUNTED,
         'SELECT "r90"."p0" AS "q", "q" + 1 AS "p0" FROM (' + COUNTED + ') AS "r90"', "a column that is not written with its relation"),
    Case("two outputs of one name", COUNTED, COUNTED.replace('AS "units"', 'AS "P0"'), "two output columns of one name"),
    Case("an output without a name", COUNTED, COUNTED.replace(' AS "units"', ""), "an output column without a name"),
    Case("GROUP BY a place", COUNTED, COUNTED.replace('GROUP BY "r91"."u"', "GROUP BY 1"), "a group by its place"),
    Case("ORDER BY a place", COUNTED, COUNTED + " ORDER BY 1", "ORDER BY a place"),
    Case("GROUP BY ALL", COUNTED, COUNTED.replace('GROUP BY "r91"."u"', "GROUP BY ALL"), "GROUP BY ALL"),
    Case("grouping sets", COUNTED, COUNTED.replace('GROUP BY "r91"."u"', 'GROUP BY GROUPING SETS (("r91"."u"), ())'), "grouping sets"),
    Case("DISTINCT ON", over(f'SELECT DISTINCT "r2".{U} AS {U} FROM {visits(2)}'),
         over(f'SELECT DISTINCT ON ("r2".{U}) "r2".{U} AS {U} FROM {visits(2)}'), "DISTINCT_MODIFIER with distinct_on_targets"),
    Case("a lateral subquery over everybody", over(f'SELECT "r2".{U} AS {U} FROM {visits(2)}, (SELECT "r2"."c3" * 2 AS "x") AS "r3"'),
         over(f'SELECT "r2".{U} AS {U} FROM {visits(2)}, (SELECT MAX("r4"."c3") AS "x" FROM {visits(4)} WHERE "r4"."c2" = "r2"."c2") AS "r3"'),
         OTHERS),
    Case("a lateral column in place of the unit", over(f'SELECT "r2".{U} AS {U} FROM {visits(2)}, (SELECT "r2"."c3" * 2 AS "x") AS "r3"'),
         over(f'SELECT "r3"."x" AS {U} FROM {visits(2)}, (SELECT "r2"."c3" * 2 AS "x") AS "r3"'), BY_OTHER),
    Case("a table that the policy does not name", COUNTED, COUNTED.replace('"memory"."main"."visits"', '"visits"'), "an unknown relation"),
    Case("a table with half its path", COUNTED, COUNTED.replace('"memory"."main"."visits"', '"main"."visits"'), "a table that the policy does not name"),
    Case("a view, or any table that the policy does not name", COUNTED,
         COUNTED.replace('"memory"."main"."visits"', '"memory"."main"."all_visits"'), "a table that the policy does not name"),
    Case("a file", COUNTED, COUNTED.replace('"memory"."main"."visits"', "'visits.parquet'"), "an unknown relation"),
    Case("a table function that reads", COUNTED,
         counted("(SELECT \"r2\".\"x\" AS \"unit7f3a\" FROM read_csv('x.csv') AS \"r2\"(\"x\")) AS \"r1\""), "a table function"),
    Case("columns renamed by an alias", COUNTED, COUNTED.replace('AS "r1b"', 'AS "r1b"("patient_id")'), "BASE_TABLE with column_name_alias"),
    Case("a macro", counted(visits(1), where=" WHERE lower(\"r1\".\"c4\") = 'a'"), counted(visits(1), where=" WHERE upper(\"r1\".\"c4\") = 'a'"), "the function upper"),
    Case("a macro in place of a table function",
         over(f'SELECT "r2".{U} AS {U}, "r3"."i" AS "c9" FROM {visits(2)}, range(10000) AS "r3"("i")'),
         over(f'SELECT "r2".{U} AS {U}, "r3"."i" AS "c9" FROM {visits(2)}, generate_series(10000) AS "r3"("i")'), "a table function"),
    Case("an unknown function", counted(visits(1), where=" WHERE length(\"r1\".\"c4\") > 1"), counted(visits(1), where=" WHERE leak(\"r1\".\"c4\") > 1"), "the function leak"),
    Case("random", counted(visits(1), where=' WHERE "r1"."c3" > 0.5'), counted(visits(1), where=" WHERE random() > 0.5"), "the function random"),
    Case("a function of a schema", counted(visits(1), where=' WHERE abs("r1"."c3") > 1'), counted(visits(1), where=' WHERE main.abs("r1"."c3") > 1'), "a function of a schema"),
    Case("a collation", counted(visits(1), where=" WHERE \"r1\".\"c4\" = 'a'"), counted(visits(1), where=" WHERE \"r1\".\"c4\" COLLATE nocase = 'a'"), "an expression COLLATE"),
    Case("a collation in the link", counted(f"{named(1)} JOIN {named(2)} ON {EQUAL}"), counted(f'{named(1)} JOIN {named(2)} ON "r1".{U} COLLATE nocase = "r2".{U}'), "an expression COLLATE"),
    Case("a type of somebody's own", counted(visits(1), where=" WHERE CAST(\"r1\".\"c4\" AS VARCHAR) = 'a'"), counted(visits(1), where=" WHERE CAST(\"r1\".\"c4\" AS mood) = 'a'"), "a type that is not DuckDB's own"),
    Case("a lambda within a lambda", LAMBDA, counted(visits(1), where=' WHERE list_max(list_transform("r1"."c5", lambda x: list_max(list_transform("r1"."c5", lambda y: x)))) = \'a\''), "a lambda within a lambda"),
    Case("a lambda of another function", LAMBDA, counted(visits(1), where=' WHERE list_reduce("r1"."c5", lambda x, y: x || y) = \'a\''), "the function list_reduce"),
    Case("an unknown function in a lambda", LAMBDA, counted(visits(1), where=' WHERE list_max(list_transform("r1"."c5", lambda x: leak(x))) = \'a\''), "the function leak"),
    Case("a lambda that looks at other rows", LAMBDA, counted(visits(1), where=' WHERE list_max(list_transform("r1"."c5", lambda x: (SELECT MAX("r4"."c0") AS "o0" FROM "lent1" AS "r4"))) = \'a\''), "looks at other rows"),
    Case("a part of a text that may be no JSON", PART, counted(visits(1), where=' WHERE ("r1"."c4" ->> \'$.a\') = \'a\''), "no JSON"),
    Case("a part by name of a text that may be no JSON", PART, counted(visits(1), where=' WHERE json_extract_string(CAST("r1"."c4" AS VARCHAR), \'$.a\') = \'a\''), "no JSON"),
    Case("a path of the data", PART, counted(visits(1), where=' WHERE (TRY_CAST(CAST("r1"."c4" AS VARCHAR) AS JSON) ->> "r1"."c4") = \'a\''), "no JSON"),
    Case("a path with an error", PART, counted(visits(1), where=' WHERE (TRY_CAST(CAST("r1"."c4" AS VARCHAR) AS JSON) ->> \'$.a[\') = \'a\''), "no JSON"),
    Case("ALL", counted(visits(1), where=' WHERE "r1"."c2" IN (SELECT "r4"."c0" AS "c0" FROM "lent1" AS "r4")'),
         counted(visits(1), where=' WHERE "r1"."c2" > ALL (SELECT "r4"."c0" AS "c0" FROM "lent1" AS "r4")'), ""),
    Case("a limit in percent", over(f'SELECT "r2".{U} AS {U} FROM {visits(2)}'), over(f'SELECT "r2".{U} AS {U} FROM {visits(2)} LIMIT 10%'), "a"),
    Case("a relation that is not lent", simple('"r4"."c0" AS "p0"', '"lent1" AS "r4"'), simple('"r4"."c0" AS "p0"', '"lent9" AS "r4"'), "an unknown relation"),
    Case("a column that is not there", simple('"r4"."c0" AS "p0"', '"lent1" AS "r4"'), simple('"r4"."c7" AS "p0"', '"lent1" AS "r4"'), "a column that is not there"),
]  # fmt: skip


# -- caps, clamps, L0 and the grid -------------------------------------------------------------------------------------

GRID = 'CAST(TRY_CAST(CAST("r1"."c3" AS DOUBLE) * CAST(8192 AS DOUBLE) AS INTEGER) AS BIGINT)'
GROUPED = SumsClaim(
    ("k0",),
    (
        ("p0", SensitivityClaim(10, 3)),
        ("p1", SensitivityClaim(8_192_000, 3)),
        ("units", SensitivityClaim(1, 3)),
    ),
    True,
)


def outer(on: str, join: str = "LEFT JOIN", most: int = 1) -> str:
    """A noisy count by groups of a joined table, of which a unit keeps ``most``."""
    chosen = (
        f'SELECT "r2".{U} AS "u", "r2"."c2" AS "k0", "r2"."c1" AS "v" FROM {visits(2)} QUALIFY dense_rank() OVER (PARTITION BY '
        f'"r2".{U} ORDER BY {order("r2", "c2")}) <= {most}'
    )
    return (
        f'SELECT "r8"."k0" AS "k0", COALESCE(SUM(LEAST("r8"."p0", 10)), 0) AS "p0" FROM (SELECT "r7"."u" AS "u", "r7"."k0" AS "k0", '
        f'COUNT(*) AS "p0" FROM (SELECT "r1".{U} AS "u", "r6"."k0" AS "k0" FROM {visits(1)} {join} ({chosen}) AS "r6" ON '
        f'"r1".{U} = "r6"."u"{on}) AS "r7" GROUP BY "r7"."u", "r7"."k0") AS "r8" GROUP BY "r8"."k0"'
    )


OUTER = SumsClaim(("k0",), (("p0", SensitivityClaim(10, 2)),), True)


def groups(most: str = "10", low: str = "0", high: str = "16384000", lag: str = "3", by: str = '"r93"."k0"', halved: str = " // 2",
           salt: str = SALTED, first: str = '"r93"."u"', inner: str = "ABS(\"r92\".\"y0\" - 0) - ABS(\"r92\".\"y0\" - 819200)",
           clamp: str = 'LEAST(GREATEST("r94"."p1", {low}), {high})', key: str = '"r94"."k0"', hashed: str = '"r93"."u", "r93"."k0"') -> str:  # fmt: skip
    """A noisy count and a noisy sum by private groups, of which a unit keeps three."""
    held = clamp.format(low=low, high=high)
    return (
        f'SELECT {key} AS "k0", COALESCE(SUM(LEAST("r94"."p0", {most})), 0) AS "p0", COALESCE(SUM({held}), 0){halved} AS "p1", '
        f'COUNT(*) AS "units" FROM (SELECT "r93"."u" AS "u", {by} AS "k0", "r93"."p0" AS "p0", "r93"."p1" AS "p1" FROM ('
        f'SELECT "r92"."u" AS "u", "r92"."k0" AS "k0", COUNT(*) AS "p0", CAST(COALESCE(SUM({inner}), 0) AS HUGEINT) + '
        f'COUNT("r92"."y0") * CAST(819200 AS HUGEINT) AS "p1" FROM (SELECT "r1".{U} AS "u", "r1"."c4" AS "k0", {GRID} AS "y0" '
        f'FROM {visits(1)}) AS "r92" GROUP BY "r92"."u", "r92"."k0") AS "r93" QUALIFY lag({first}, {lag}) OVER (ORDER BY '
        f'{first}, hash(xor(hash({hashed}), {salt}))) IS DISTINCT FROM {first}) AS "r94" GROUP BY {key}'
    )


MORE = "one unit moves a sum by more than is charged"
CAPS = [
    Case("a count held to eleven, and charged for ten", groups(), groups(most="11"), MORE, GROUPED),
    Case("four groups, and charged for three", groups(), groups(lag="4"), MORE, GROUPED),
    Case("a sum one step above its bound", groups(), groups(high="16384002"), MORE, GROUPED),
    Case("a sum below its bound", groups(), groups(low="-16384002"), MORE, GROUPED),
    Case("a sum that is not halved", groups(), groups(halved=""), MORE, GROUPED),
    Case("no clamp at all", groups(), groups(clamp='"r94"."p1"'), BY_OTHER, GROUPED),
    Case("clamped above only", groups(), groups(clamp='LEAST("r94"."p1", {high})'), BY_OTHER, GROUPED),
    Case("clamped below only", groups(), groups(clamp='GREATEST("r94"."p1", {low})'), BY_OTHER, GROUPED),
    Case("clamped before it is doubled", groups(), groups(clamp='LEAST(GREATEST("r94"."p1", {low}), {high}) * 2'), MORE, GROUPED),
    Case("clamped by another column", groups(), groups(clamp='LEAST(GREATEST("r94"."p1", {low}), "r94"."p0")'), BY_OTHER, GROUPED),
    Case("the grid in doubles", groups(), groups(clamp='LEAST(GREATEST(CAST("r94"."p1" AS DOUBLE), {low}), {high})'), BY_OTHER, GROUPED),
    Case("a predictable order", groups(), groups(salt="CAST(7 AS UBIGINT)"), "a predictable order", GROUPED),
    Case("the cap of another column", groups(), groups(first='"r93"."k0"'), "a group may have several rows", SumsClaim(("k0",), (("p0", SensitivityClaim(10, 3)),), True)),
    Case("groups chosen by less than what they are", groups(), groups(hashed='"r93"."u"'), "a column that the secret order does not decide", GROUPED),
    Case("other groups than those that were chosen", groups(), groups(key='"r94"."p0"'), MORE, GROUPED),
    Case("rows without a match are one more group", outer("", most=2), outer(' AND "r1"."c1" = "r6"."v"', most=2), MORE, OUTER),
    Case("rows without a match under another condition", outer(' AND "r1"."c1" < "r6"."v"'), outer(' AND "r1"."c1" < "r6"."v"', most=2), MORE, OUTER),
    Case("an inner join has no such rows", outer(' AND "r1"."c1" = "r6"."v"', "JOIN", 2), outer(' AND "r1"."c1" = "r6"."v"', "JOIN", 3), MORE, OUTER),
    Case("the groups after the cap are more", groups(), groups(key='"r94"."p1"'), MORE, GROUPED),
    Case("an operator that asks for a column that is not there", groups(), groups().replace('AS "units"', 'AS "u2"'), "a column that the operator asks for is not there", GROUPED),
]  # fmt: skip


def held(groups: str = "3", rows: str = "10", by: str = '"r94"."u", "r94"."g", "r94"."k0"', other: str = '"r94"."k0"',
         last: str = ', "r94"."h"', hashed: str = '"r93"."u", "r93"."v"', first: str = '"r94"."u"', frame: str = "PRECEDING",
         join: str = "OR") -> str:  # fmt: skip
    """Rows as they are, ten of a unit in a group and three groups of it, counted by value."""
    return (
        f'SELECT "r95"."k0" AS "k0", "r95"."v" AS "value", COUNT(*) AS "count" FROM (SELECT "r94"."u" AS "u", "r94"."k0" AS "k0", '
        f'"r94"."v" AS "v" FROM (SELECT "r93"."u" AS "u", "r93"."k0" AS "k0", "r93"."v" AS "v", {order("r93", "u", "k0")} AS "g", '
        f'hash(xor(hash({hashed}), {SALTED})) AS "h" FROM (SELECT "r1".{U} AS "u", "r1"."c4" AS "k0", "r1"."c3" AS "v" FROM '
        f'{visits(1)}) AS "r93") AS "r94" QUALIFY first_value({first}) OVER (ORDER BY {by} GROUPS BETWEEN {groups} {frame} AND '
        f'{groups} {frame}) IS DISTINCT FROM {first} AND (lag("r94"."u", {rows}) OVER (ORDER BY {by}{last}) IS DISTINCT FROM '
        f'"r94"."u" {join} lag({other}, {rows}) OVER (ORDER BY {by}{last}) IS DISTINCT FROM {other})) AS "r95" GROUP BY "r95"."k0", '
        f'"r95"."v"'
    )


HELD = RowsClaim(10, 3, ("k0",), moves=(("count", 1),))
MANY = "more rows of one unit than are charged"
TEN_ROWS = f'SELECT "r1"."c3" AS "c3" FROM {visits(1)} QUALIFY row_number() OVER (PARTITION BY "r1".{U} ORDER BY "r1"."c3") <= 10'
ROWS = [
    Case("eleven rows, and charged for ten", held(), held(rows="11"), MANY, HELD),
    Case("four groups, and charged for three", held(), held(groups="4"), "one unit is in more groups than are charged", HELD),
    Case("the groups of another column", held(), held(other='"r94"."v"'), "a group that depends on others' rows", HELD),
    Case("rows that do not stand together", held(), held(by='"r94"."u", "r94"."g", "r94"."v", "r94"."k0"'), "a group that depends on others' rows", HELD),
    Case("rows chosen by less than what they are", held(), held(hashed='"r93"."u"'), "a column that the secret order does not decide", HELD),
    Case("a frame that looks ahead", held(), held(frame="FOLLOWING"), "a group that depends on others' rows", HELD),
    Case("groups by a column that is not the unit", held(), held(first='"r94"."k0"'), "", HELD),
    Case("rows that nothing bounds", held(), f'SELECT "r1"."c4" AS "k0", "r1"."c3" AS "v" FROM {visits(1)}', MANY, HELD),
    Case(
        "one unit's first rows", f'SELECT "r1"."c3" AS "v" FROM {visits(1)} QUALIFY row_number() OVER (PARTITION BY "r1".{U} ORDER BY "r1"."c3") <= 10',
        f'SELECT "r1"."c3" AS "v" FROM {visits(1)} QUALIFY row_number() OVER (PARTITION BY "r1"."c2" ORDER BY "r1"."c3") <= 10', MANY, RowsClaim(10),
    ),
    Case(
        "one unit's first rows, one too many", f'SELECT "r1"."c3" AS "v" FROM {visits(1)} QUALIFY row_number() OVER (PARTITION BY "r1".{U} ORDER BY "r1"."c3") <= 10',
        f'SELECT "r1"."c3" AS "v" FROM {visits(1)} QUALIFY row_number() OVER (PARTITION BY "r1".{U} ORDER BY "r1"."c3") <= 11', MANY, RowsClaim(10),
    ),
    *(
        Case(
            f"a column of decimals that streams: {kind}",
            f'SELECT {kind}("r1"."c3" AS DECIMAL(10, 2)) AS "x" FROM {visits(1)} QUALIFY row_number() OVER (PARTITION BY "r1".{U} ORDER BY "r1"."c3") <= 10',
            f'SELECT {kind}("r1"."c3" AS DECIMAL(10, 2)) AS "x" FROM {visits(1)}', MANY, RowsClaim(10),
        )
        for kind in ("CAST", "TRY_CAST")
    ),
    Case(
        "a column of decimals that streams, each row twice",
        f'WITH "r7" AS ({TEN_ROWS}) SELECT CAST("r8"."c3" AS DECIMAL(10, 2)) AS "x" FROM "r7" AS "r8" WHERE TRUE',
        f'WITH "r7" AS ({TEN_ROWS}) SELECT CAST("r8"."c3" AS DECIMAL(10, 2)) AS "x" FROM "r7" AS "r8" CROSS JOIN range(2) AS "r9"("i")',
        MANY, RowsClaim(10),
    ),
]  # fmt: skip


def budget(most: str = "20", times: str = "1", before: str = '"r93"."n"', frame: str = "1 PRECEDING", part: str = '"r93"."u"',
           positive: str = ' WHERE "r94"."counted" > 0') -> str:  # fmt: skip
    """A row budget over all groups: how many of a unit's rows may still count."""
    chosen = order("r93", "u", "k0")
    return (
        f'SELECT "r95"."k0" AS "k0", COALESCE(SUM(LEAST("r95"."p0", {times} * "r95"."counted")), 0) AS "p0", COUNT(*) AS "units" FROM ('
        f'SELECT "r94"."k0" AS "k0", "r94"."p0" AS "p0", "r94"."counted" AS "counted" FROM (SELECT "r93"."u" AS "u", "r93"."k0" AS "k0", '
        f'"r93"."p0" AS "p0", LEAST("r93"."n", GREATEST({most} - COALESCE(SUM({before}) OVER (PARTITION BY {part} ORDER BY {chosen} '
        f'ROWS BETWEEN UNBOUNDED PRECEDING AND {frame}), 0), 0)) AS "counted" FROM (SELECT "r1".{U} AS "u", "r1"."c4" AS "k0", COUNT(*) '
        f'AS "p0", COUNT(*) AS "n" FROM {visits(1)} GROUP BY "r1".{U}, "r1"."c4") AS "r93") AS "r94"{positive}) AS "r95" GROUP BY "r95"."k0"'
    )


BUDGETED = SumsClaim(("k0",), (("p0", SensitivityClaim(20)), ("units", SensitivityClaim(1, 20))), True)
BUDGETS = [
    Case("a budget of twenty-one rows", budget(), budget(most="21"), MORE, BUDGETED),
    Case("twice as much of each row", budget(), budget(times="2"), MORE, BUDGETED),
    Case("a budget spent on another count", budget(), budget(before='"r93"."p0" - 1'), BY_OTHER, BUDGETED),
    Case("a frame that leaves the row before out", budget(), budget(frame="2 PRECEDING"), BY_OTHER, BUDGETED),
    Case("a budget shared by everybody", budget(), budget(part='"r93"."k0"'), BY_OTHER, BUDGETED),
    Case("groups without a row of the budget", budget(), budget(positive=""), "nothing bounds the groups that one unit is in", BUDGETED),
]  # fmt: skip


def domain(values: str = "(1), (2), (3)", on: str = '"r97"."k0" = "r98"."k0"', distinct: str = "") -> str:
    """Public groups, with the totals of each."""
    totals = (
        f'SELECT "r94"."k0" AS "k0", COALESCE(SUM(LEAST("r94"."p0", 10)), 0) AS "p0" FROM (SELECT "r1".{U} AS "u", "r1"."c2" AS "k0", '
        f'COUNT(*) AS "p0" FROM {visits(1)} GROUP BY "r1".{U}, "r1"."c2") AS "r94" GROUP BY "r94"."k0"'
    )
    return (
        f'SELECT "r97"."k0" AS "k0", COALESCE("r98"."p0", 0) AS "p0" FROM (SELECT {distinct}"r96"."v" AS "k0" FROM (VALUES {values}) AS '
        f'"r96"("v")) AS "r97" LEFT JOIN ({totals}) AS "r98" ON {on}'
    )


PUBLIC_GROUPS = SumsClaim(("k0",), (("p0", SensitivityClaim(10, 3)),))
DOMAINS = [
    Case("four public groups, and charged for three", domain(), domain("(1), (2), (3), (4)"), MORE, PUBLIC_GROUPS),
    Case("a public group twice", domain(), domain("(1), (2), (2)"), "a group may have several rows", PUBLIC_GROUPS),
    Case("public groups that may be equal", domain("(1.5), (2.5)", distinct="DISTINCT "), domain("(1.5), (2.5)"), "a group may have several rows", PUBLIC_GROUPS),
    Case("a group that is looked up by less than its key", domain(), domain(on='"r97"."k0" <= "r98"."k0"'), "a group may have several rows", PUBLIC_GROUPS),
    Case("a group that is NULL, looked up as itself", domain(on='"r97"."k0" IS NOT DISTINCT FROM "r98"."k0"'), domain(on='"r97"."k0" IS DISTINCT FROM "r98"."k0"'), "a group may have several rows", PUBLIC_GROUPS),
    Case("more public groups than are taken", domain("(1), (2), (3), (4)").replace('("v")) AS "r97"', '("v") ORDER BY "r96"."v" LIMIT 3) AS "r97"'),
         domain("(1), (2), (3), (4)").replace('("v")) AS "r97"', '("v") ORDER BY "r96"."v" LIMIT 4) AS "r97"'), MORE, PUBLIC_GROUPS),
    Case("a total beside every group", domain(), domain(on='"r98"."p0" = "r97"."k0"'), "a group may have several rows", PUBLIC_GROUPS),
]  # fmt: skip


EXACT = [
    Case(
        "groups chosen by their exact number", 'SELECT "r80"."p0" AS "p0" FROM (' + COUNTED + ') AS "r80"',
        'SELECT "r80"."p0" AS "p0" FROM (' + COUNTED + ') AS "r80" WHERE "r80"."p0" > 100', BY_OTHER,
    ),
    Case("HAVING an exact number", COUNTED, COUNTED + " HAVING COUNT(*) > 100", BY_OTHER),
    Case(
        "a function of an exact number", 'SELECT "r80"."p0" AS "p0" FROM (' + COUNTED + ') AS "r80"',
        'SELECT "r80"."p0" * "r80"."p0" AS "p0" FROM (' + COUNTED + ') AS "r80"', BY_OTHER,
    ),
    Case(
        "an exact number in a CASE", 'SELECT "r80"."p0" AS "p0" FROM (' + COUNTED + ') AS "r80"',
        'SELECT CASE WHEN "r80"."units" > 5 THEN "r80"."p0" ELSE 0 END AS "p0" FROM (' + COUNTED + ') AS "r80"', BY_OTHER,
    ),
    Case("a maximum instead of a sum", COUNTED, COUNTED.replace("SUM(", "MAX("), BY_OTHER),
    Case("rows that are released as they are", COUNTED, f'SELECT "r1"."c2" AS "p0" FROM {visits(1)}', "a group may have several rows"),
    Case("private rows in what should be public", 'SELECT "r4"."c0" AS "c" FROM "lent1" AS "r4"', COUNTED, "a public text reads private rows", PublicClaim()),
]  # fmt: skip


def block(number: str = f"CAST(hash(xor(CAST(\"r1\".{U} AS BIGINT), $salt)) // 1844674407370955162 AS UTINYINT)", more: str = "",
          above: str = '"r5"."b" = "r4"."block"', shown: str = '"r5"."b"', by: str = "") -> str:  # fmt: skip
    """An average of each of ten subsample blocks."""
    return (
        f'SELECT {shown} AS "block", "r4"."a0" AS "a0" FROM range(10) AS "r5"("b") LEFT JOIN (SELECT {number} AS "block", AVG("r1"."c3") '
        f'AS "a0" FROM {visits(1)}{more} GROUP BY {by or number}) AS "r4" ON {above}'
    )


NUMBER = f'CAST(hash(xor(CAST("r1".{U} AS BIGINT), $salt)) // 1844674407370955162 AS UTINYINT)'
TURNED = (
    '"r6"."t" * 10 + CAST(hash(xor(CAST("r1".'
    + U
    + ' AS BIGINT), CAST(hash(xor(hash("r6"."t"), $salt)) >> 1 AS BIGINT))) // 1844674407370955162 AS UTINYINT)'
)
BLOCKS = [
    Case("blocks dealt by another column", block(), block(NUMBER.replace(f'"r1".{U}', '"r1"."c1"')), "one unit is in more blocks than are charged", BlocksClaim("block")),
    Case("blocks dealt by the unit and another column", block(), block(NUMBER.replace(f'CAST("r1".{U} AS BIGINT)', f'hash("r1".{U}, "r1"."c2")')), "one unit is in more blocks than are charged", BlocksClaim("block")),
    Case("blocks without a salt", block(), block(NUMBER.replace("$salt", "CAST(7 AS BIGINT)")), "predictable blocks", BlocksClaim("block")),
    Case("a block that is numbered by its average", block(), block(shown='"r4"."a0"'), "a group that depends on others' rows", BlocksClaim("block")),
    Case("every block with every average", block(), block(above='"r5"."b" <= "r4"."block"'), "a group that depends on others' rows", BlocksClaim("block")),
    Case(
        "a window over all blocks", f'SELECT "r1"."c3" AS "v", {NUMBER} AS "block", COUNT(*) OVER (PARTITION BY {NUMBER}) AS "n" FROM {visits(1)}',
        f'SELECT "r1"."c3" AS "v", {NUMBER} AS "block", COUNT(*) OVER (PARTITION BY "r1"."c2") AS "n" FROM {visits(1)}',
        "a group that depends on others' rows", BlocksClaim("block"),
    ),
    Case("the first row of all blocks", block(), block() + " LIMIT 1", "a group that depends on others' rows", BlocksClaim("block")),
    Case(
        "four turns, and charged for three", block(TURNED, ', range(3) AS "r6"("t")'), block(TURNED, ', range(4) AS "r6"("t")'),
        "one unit is in more blocks than are charged", BlocksClaim("block", 3),
    ),
    Case(
        "turns of a private number", block(TURNED, ', range(3) AS "r6"("t")'), block(TURNED.replace('"r6"."t"', '"r1"."c1"')),
        "one unit is in more blocks than are charged", BlocksClaim("block", 3),
    ),
]  # fmt: skip

VALUE = 'ABS("r1"."c2" - 0) - ABS("r1"."c2" - 50)'


def weighed(
    scale: str = "1000",
    of: str = 'COUNT("r1"."c2")',
    least: str = "3",
    over: str = "GREATEST({of}, {least})",
    value: str = VALUE,
) -> str:
    """A sum of which each of a unit's rows beyond the third weighs less, instead of being cut."""
    share = over.format(of=of, least=least)
    return (
        f'SELECT COALESCE(SUM("r90"."p0" * "r90"."w"), 0) AS "p0" FROM (SELECT "r1".{U} AS "u", COALESCE(SUM({value}), 0) AS "p0", '
        f'{scale} // {share} AS "w" FROM {visits(1)} GROUP BY "r1".{U}) AS "r90"'
    )


WEIGHED_BY = SumsClaim((), (("p0", SensitivityClaim(50_000)),))
WEIGHED = [
    Case("weights of a greater sum", weighed(), weighed(scale="1001"), MORE, WEIGHED_BY),
    Case("weights by another column's rows", weighed(), weighed(of='COUNT("r1"."c3")'), BY_OTHER, WEIGHED_BY),
    Case("weights by different values", weighed(), weighed(of='COUNT(DISTINCT "r1"."c2")'), BY_OTHER, WEIGHED_BY),
    Case("weights by less than the rows", weighed(), weighed(over="LEAST({of}, {least})"), BY_OTHER, WEIGHED_BY),
    Case("weights that may divide by nothing", weighed(), weighed(over="{of}"), BY_OTHER, WEIGHED_BY),
    Case("a value outside its bounds, weighed", weighed(), weighed(value=VALUE.replace("50", "51")), MORE, WEIGHED_BY),
    Case("a value without bounds, weighed", weighed(), weighed(value='"r1"."c2"'), BY_OTHER, WEIGHED_BY),
]  # fmt: skip


def digits(shown: str) -> str:
    """One row of a unit for each of its amounts, as they are to two places; then groups of what is shown of them."""
    amounts = f'(SELECT "r2".{U} AS {U}, CAST("r2"."c3" AS DECIMAL(8,2)) AS "a", CAST("r2"."c3" AS {shown}) AS "b" FROM {visits(2)})'
    source = (
        f'(SELECT "r3".{U} AS {U}, "r3"."b" AS "k0" FROM {amounts} AS "r3" QUALIFY row_number() OVER (PARTITION BY "r3".{U}, "r3"."a") '
        f'<= 1 AND row_number() OVER (PARTITION BY "r3".{U} ORDER BY "r3"."a") <= 10) AS "r1"'
    )
    return f'SELECT "r1"."k0" AS "k0", COUNT(*) AS "n" FROM {source} GROUP BY "r1"."k0"'


NOT_DECIDED = "a column that the secret order does not decide"
TYPES = [
    Case("rows by a number of other digits", digits("DECIMAL(8,2)"), digits("DECIMAL(8,0)"), NOT_DECIDED, RowsClaim(1, 10, ("k0",), moves=(("n", 1),))),
    Case("rows by a number of more digits", digits("DECIMAL(8,2)"), digits("DECIMAL(9,3)"), NOT_DECIDED, RowsClaim(1, 10, ("k0",), moves=(("n", 1),))),
]  # fmt: skip

CASES = [
    *UNIT_LOST,
    *LINK_LOST,
    *PATHS,
    *FORM,
    *CAPS,
    *ROWS,
    *BUDGETS,
    *DOMAINS,
    *EXACT,
    *BLOCKS,
    *WEIGHED,
    *TYPES,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_right_twin_is_accepted(case: Case) -> None:
    assert why(case.right, case.claim) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_wrong_query_is_refused_for_its_reason(case: Case) -> None:
    found = why(case.wrong, case.claim)
    assert found, "accepted"
    assert case.why in found


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES) - 1
