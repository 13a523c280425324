-- A census of 400 people in 160 households, with the holes that a census has; and machines that report.
CREATE TABLE census AS SELECT
    i AS person,
    i // 3 AS home,
    CASE WHEN i % 41 = 7 THEN NULL ELSE 18 + (i * 37) % 70 END AS age,
    (i * 7) % 2 = 0 AS sex,
    1 + (i * 11) % 8 AS school,
    (i * 13) % 5 < 3 AS wedded,
    CASE WHEN i % 29 = 3 THEN NULL ELSE ((i * 7919) % 90000)::DOUBLE END AS earned,
    ((i * 31) % 4) = 1 AS latino,
    DATE '2020-01-01' + ((i * 17) % 5)::INTEGER AS moved
FROM range(400) AS r(i);
-- Several rows of one machine, and one that never reports.
CREATE TABLE crashes AS SELECT
    i % 60 AS machine, (i * 5) % 7 AS crashes, 15 + ((i * 3) % 23)::DOUBLE / 2 AS heat, i % 2 = 0 AS mended,
    ['north', 'south', 'east'][1 + i % 3] AS building
FROM range(300) AS r(i);
CREATE TABLE machines AS SELECT i AS machine, ['acme', 'best', 'core'][1 + i % 3] AS maker FROM range(61) AS r(i);
