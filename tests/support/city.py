"""A city: bicycle trips, marks at school, hits of a web site, a survey, payments; stations, categories, holidays are public."""

from __future__ import annotations

import duckdb

import dpsql
from tests.support.clinic import BUDGET

POLICY = (
    BUDGET
    + """
[tables]
trips = { privacy_unit = "rider", max_rows = 30, max_groups = 12, columns = { \
    started = { bounds = [2024-01-01, 2024-06-30] }, minutes = { bounds = [0, 120] }, km = { bounds = [0, 60] }, \
    bike = { values = ["cargo", "city", "ebike"] } } }
marks = { privacy_unit = "pupil", max_rows = 30, max_groups = 12, columns = { \
    form = { values = ["5a", "5b", "6a", "6b"] }, subject = { values = ["art", "english", "maths", "music"] }, \
    points = { bounds = [0, 100] }, exam = { bounds = [2024-01-01, 2024-06-30] } } }
hits = { privacy_unit = "visitor", max_rows = 30, max_groups = 12, columns = { \
    seen = { bounds = [2024-03-01, 2024-03-31] }, status = { values = [200, 301, 404, 500] }, \
    ms = { bounds = [0, 5000] }, bytes = { bounds = [0, 100000] } } }
survey = { privacy_unit = "respondent", max_rows = 1, columns = { age = { bounds = [16, 99] }, \
    region = { values = ["east", "north", "south", "west"] }, q1 = { bounds = [1, 5] }, q2 = { bounds = [1, 5] }, \
    q3 = { bounds = [1, 5] }, income = { bounds = [0, 10000] }, submitted = { bounds = [2024-02-01, 2024-03-31] } } }
payments = { privacy_unit = "account", max_rows = 30, max_groups = 12, columns = { \
    booked = { bounds = [2024-01-01, 2024-06-30] }, amount = { bounds = [-500, 500] }, \
    category = { values = ["food", "fun", "rent", "salary"] } } }
stations = { public = true }
categories = { public = true }
holidays = { public = true }
"""
)
TABLES = """
CREATE TABLE stations AS FROM (VALUES ('Dock', 'harbour', 20), ('Gate', 'centre', 12), ('Hill', 'north', 8),
    ('Park', 'centre', 30), ('Quay', 'harbour', 15)) AS t(station, district, places);
CREATE TABLE categories AS FROM (VALUES ('food', TRUE), ('fun', FALSE), ('rent', TRUE), ('salary', NULL)) AS t(category, needed);
CREATE TABLE holidays AS FROM (VALUES (DATE '2024-01-01', 'new year'), (DATE '2024-04-01', 'easter'),
    (DATE '2024-05-01', 'may day')) AS t(day, name);
CREATE TABLE trips AS SELECT (h % 300)::INTEGER AS rider, i::INTEGER AS trip,
    TIMESTAMP '2024-01-01' + INTERVAL ((h // 7 % 262080)) MINUTE AS started, (h // 11 % 480) / 4 AS minutes,
    ((h // 13 % 2400) / 100)::DECIMAL(6, 2) AS km, ['Dock', 'Gate', 'Hill', 'Park', 'Quay'][1 + h // 17 % 5] AS origin,
    ['Dock', 'Gate', 'Hill', 'Park', 'Quay'][1 + h // 19 % 5] AS target,
    ['city', 'city', 'ebike', 'cargo'][1 + h // 23 % 4] AS bike, h % 3 = 0 AS member
    FROM (SELECT i, (hash(i) % 1000000007)::BIGINT AS h FROM range(900) AS r(i));
CREATE TABLE marks AS SELECT p::INTEGER AS pupil, ['5a', '5b', '6a', '6b'][1 + p % 4] AS form,
    ['art', 'english', 'maths', 'music'][1 + k % 4] AS subject, (hash(p, k) % 101)::INTEGER AS points,
    DATE '2024-01-08' + (hash(k, p) % 170)::INTEGER AS exam,
    CASE hash(p, k, 1) % 4 WHEN 0 THEN NULL WHEN 1 THEN ' Well done ' WHEN 2 THEN 'see me' ELSE 'OK' END AS note
    FROM range(120) AS r(p), range(8) AS s(k) WHERE hash(p, k, 2) % 5 > 0;
CREATE TABLE hits AS SELECT 'v' || (h % 250) AS visitor, TIMESTAMP '2024-03-01' + INTERVAL (h // 7 % 2592000) SECOND AS seen,
    ['/', '/shop', '/shop/cart', '/pay', '/help'][1 + least(h // 11 % 5, h // 29 % 5)] AS page,
    [NULL, 'https://news.example/a?utm=1', 'https://search.example/', 'https://news.example/b'][1 + h // 13 % 4] AS referrer,
    [200, 200, 200, 301, 404, 500][1 + h // 17 % 6]::INTEGER AS status, (h // 19 % 3000)::INTEGER AS ms,
    h // 23 % 90000 AS bytes, ['Firefox/124', 'Chrome/122 Mobile', 'Safari/17'][1 + h // 31 % 3] AS agent
    FROM (SELECT i, (hash(i, 5) % 1000000007)::BIGINT AS h FROM range(800) AS r(i));
CREATE TABLE survey AS SELECT i::INTEGER AS respondent, DATE '2024-02-01' + (h // 7 % 60)::INTEGER AS submitted,
    (16 + h // 11 % 70)::INTEGER AS age, ['east', 'north', 'south', 'west'][1 + h // 13 % 4] AS region,
    nullif(h // 17 % 6, 0)::INTEGER AS q1, nullif(h // 19 % 6, 0)::INTEGER AS q2, (1 + h // 23 % 5)::INTEGER AS q3,
    CASE WHEN h // 29 % 7 > 0 THEN (h // 31 % 9000)::DECIMAL(8, 2) END AS income,
    ['yes', 'Yes ', 'no', 'NO', 'n/a'][1 + h // 37 % 5] AS answer
    FROM (SELECT i, (hash(i, 9) % 1000000007)::BIGINT AS h FROM range(500) AS r(i));
CREATE TABLE payments AS SELECT (h % 200)::INTEGER AS account, DATE '2024-01-01' + (h // 7 % 180)::INTEGER AS booked,
    ((h // 11 % 100000) / 100 - 500)::DECIMAL(8, 2) AS amount,
    ['food', 'food', 'fun', 'rent', 'salary'][1 + h // 13 % 5] AS category,
    ['Aldi', 'Bistro', 'Cinema', 'Landlord'][1 + h // 17 % 4] AS merchant
    FROM (SELECT i, (hash(i, 3) % 1000000007)::BIGINT AS h FROM range(700) AS r(i));
"""


def open_city() -> tuple[duckdb.DuckDBPyConnection, dpsql.Session]:
    con = duckdb.connect()
    con.execute(TABLES)
    return con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))
