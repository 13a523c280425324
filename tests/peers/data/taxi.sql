-- Five years of rides of 40 drivers, from zones to zones, with what such files contain: no distance, no passengers, a ride that ends before it begins.
CREATE TABLE rides AS SELECT i % 40 AS driver, TIMESTAMP '2015-01-01 00:10:00' + to_hours(((i * 61) % 43800)::INTEGER) AS picked_up,
    TIMESTAMP '2015-01-01 00:10:00' + to_hours(((i * 61) % 43800)::INTEGER) + to_minutes(((i * 13) % 90 - 2)::INTEGER) AS dropped,
    (TIMESTAMP '2015-01-01 00:10:00' + to_hours(((i * 61) % 43800)::INTEGER))::DATE AS day,
    i % 5 AS passengers, CASE WHEN i % 37 = 0 THEN NULL ELSE ((i * 17) % 240)::DOUBLE / 10 END AS miles, ((i * 7) % 12) AS from_zone, ((i * 5) % 12) AS to_zone,
    ['card', 'cash', 'none'][1 + i % 3] AS payment, ((i * 29) % 6000)::DECIMAL(8, 2) / 100 AS fare, CASE WHEN i % 3 = 0 THEN ((i * 3) % 900)::DECIMAL(8, 2) / 100 ELSE 0 END AS tip,
    ['yellow', 'green'][1 + i % 2] AS cab
FROM range(720) AS r(i);
CREATE TABLE zones AS SELECT i AS zone, ['Queens', 'Bronx', 'Manhattan', 'EWR'][1 + i % 4] AS borough, 'zone ' || i AS name FROM range(14) AS r(i);
