"""The rows that a unit certainly has: one after GROUP BY unit, then as many as public rows and UNION ALL make of it."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.city import POLICY, TABLES
from tests.support.fixtures import both_fixture

City = tuple[duckdb.DuckDBPyConnection, dpsql.Session]
RIDERS = "(SELECT rider, COUNT(*) AS n, MIN(bike) AS bike FROM trips GROUP BY rider) u"
FIRST = "(FROM trips QUALIFY row_number() OVER (PARTITION BY rider ORDER BY started) = 1) u"


city = both_fixture(POLICY, TABLES)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT COUNT(*) FROM {RIDERS} JOIN stations s ON u.n * 2 = s.places OR s.district = 'centre'", 5),
        (f"SELECT COUNT(*) FROM {RIDERS} JOIN stations s ON u.n + 7 <= s.places", 5),
        (f"SELECT COUNT(*) FROM {RIDERS} CROSS JOIN stations", 5),
        (f"SELECT COUNT(*) FROM {RIDERS}, stations s, holidays h WHERE s.places > u.n", 15),
        (f"SELECT COUNT(*) FROM {RIDERS} LEFT JOIN stations s ON u.n + 7 <= s.places", 5),
        (f"SELECT COUNT(u.rider) FROM {RIDERS} FULL JOIN stations s ON u.n + 7 <= s.places", 5),
        (f"SELECT COUNT(u.rider) FROM stations s LEFT JOIN {RIDERS} ON u.n + 7 <= s.places", 5),
        (f"SELECT COUNT(u.rider) FROM stations s RIGHT JOIN {RIDERS} ON u.n + 7 <= s.places", 5),
        (f"SELECT COUNT(*) FROM {RIDERS} JOIN stations s ON IF(u.bike = 'city', 'centre', 'north') = s.district", 2),
        (f"SELECT COUNT(*) FROM {RIDERS}, UNNEST([1, 2, 3]) AS t(x)", 3),
        (f"SELECT COUNT(*) FROM {RIDERS}, GENERATE_SERIES(1, 4) AS t(x)", 4),
        (f"SELECT COUNT(*) FROM {RIDERS}, LATERAL (SELECT places FROM stations s WHERE s.places > u.n) l", 5),
        (f"SELECT COUNT(*) FROM (SELECT rider, UNNEST([1, 2, 3]) AS x FROM {RIDERS})", 3),
        (f"SELECT COUNT(*) FROM (SELECT rider, places FROM {RIDERS} CROSS JOIN stations) JOIN holidays ON TRUE", 15),
        (f"SELECT s.district, COUNT(*) FROM {RIDERS} CROSS JOIN stations s GROUP BY ROLLUP (s.district)", 5),
        (f"SELECT COUNT(*) FROM {FIRST} CROSS JOIN stations", 5),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT rider FROM trips) CROSS JOIN stations", 5),
        (f"SELECT COUNT(*) FROM (FROM {RIDERS} UNION ALL FROM {RIDERS}) CROSS JOIN stations", 10),
        (f"SELECT COUNT(*) FROM {RIDERS} JOIN {RIDERS.removesuffix('u')} w USING (rider) CROSS JOIN stations", 5),
        (f"SELECT COUNT(*) FROM {RIDERS} SEMI JOIN trips USING (rider)", 1),
        (f"SELECT COUNT(*) FROM {RIDERS} ASOF JOIN stations s ON u.n + 8 >= s.places", 1),
        (f"SELECT COUNT(*) FROM {RIDERS}, (SELECT AVG(km) AS m FROM trips) a WHERE u.n < a.m", 1),
        (f"SELECT COUNT(*) FROM {RIDERS} JOIN (SELECT bike, AVG(km) m FROM trips GROUP BY bike) USING (bike) WHERE n < m", 1),
    ],
)  # fmt: skip
def test_noise_is_for_what_one_row_meets_and_nothing_is_lost(city: City, query: str, rows: int) -> None:
    con, session = city
    result = session.sql(query)
    assert sorted(result.fetchall(), key=str) == sorted(con.execute(query).fetchall(), key=str)
    assert not [note for note in result.notes if note.startswith("only ")]
    assert f"one rider moves this by at most {rows} in" in str(session.explain(query)).replace(
        "all groups", "all"
    )


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT COUNT(*) FROM {RIDERS} CROSS JOIN stations a CROSS JOIN stations b CROSS JOIN holidays h",
        f"SELECT COUNT(*) FROM {RIDERS} JOIN (SELECT bike, COUNT(*) AS k FROM trips GROUP BY bike) a ON u.n < a.k",
        "SELECT COUNT(*) FROM trips CROSS JOIN stations",
    ],
)
def test_above_the_policys_cap_and_beside_unknown_rows_the_cap_holds_and_is_said(
    city: City, query: str
) -> None:
    notes = city[1].sql(query).notes
    assert [note for note in notes if note.startswith("only 30 rows per rider are used")]


def test_fewer_rows_may_be_asked_for(city: City) -> None:
    query = f"SELECT WITH DP OPTIONS (max_rows_contributed = 2) COUNT(*) FROM {RIDERS} CROSS JOIN stations"
    result = city[1].sql(query)
    riders = city[0].execute("SELECT COUNT(DISTINCT rider) FROM trips").fetchall()[0][0]
    assert result.fetchall() == [(2 * riders,)]
    assert result.notes[0].startswith("only 2 rows per rider are used")
