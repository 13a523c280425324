== THIRTY
SELECT COUNT(*) AS n FROM visits
SELECT COUNT(DISTINCT patient) AS patients FROM visits
SELECT SUM(cost) AS total, AVG(cost) AS mean FROM visits
SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY ward
SELECT ward, AVG(cost) AS mean FROM visits WHERE city = 'Delft' GROUP BY ward ORDER BY mean DESC LIMIT 2
SELECT WITH DP OPTIONS (epsilon = 0.5) MEDIAN(cost) AS middle FROM visits
SELECT STDDEV(cost) AS spread, VAR_POP(day) AS wide FROM visits
WITH counts AS (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT ward, n, rank() OVER (ORDER BY n DESC) AS place FROM counts ORDER BY place, ward
SELECT w.name, COUNT(*) AS n FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY w.name ORDER BY w.name
SELECT SUM(n) AS total, COUNT(*) AS wards FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)
SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 100000
SELECT CASE WHEN cost > 250 THEN 'dear' ELSE 'cheap' END AS kind, COUNT(*) AS n FROM visits GROUP BY kind ORDER BY kind
SELECT HISTOGRAM(ward) AS wards FROM visits
SELECT ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward) ORDER BY ward NULLS LAST
SELECT MIN(day) AS first, MAX(day) AS last FROM visits
SELECT QUANTILE_CONT(cost, 0.9) AS high FROM visits
SELECT COUNT(*) * 1.5 AS half_more, round(COUNT(*) / 7) AS weeks FROM visits
SELECT CORR(cost, day) AS together FROM visits
SELECT COUNT(*) AS n FROM visits WHERE day BETWEEN 100 AND 200 UNION ALL SELECT 7
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-7, max_groups_contributed = 2) ward, SUM(cost) AS total FROM visits GROUP BY ward ORDER BY ward
SELECT * FROM wards ORDER BY ward
SELECT name, length(name) AS letters FROM wards WHERE name LIKE 'S%'
SELECT 1 AS whole, 1.5 AS part, 'text' AS word, TRUE AS yes, NULL AS nothing
SELECT DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:30:00.5' AS moment, TIME '12:30:00' AS hour
SELECT CAST(12345678901234567890 AS DECIMAL(38, 2)) AS large, CAST(0.1 AS FLOAT) AS small
SELECT [1, 2, 3] AS items, {'a': 1, 'b': 'x'} AS record
SELECT ward, COUNT(*) AS "number of visits", COUNT(*) AS n FROM visits GROUP BY ward ORDER BY ward
SELECT unnest([1, 2, 3]) AS i, repeat('ab', 3) AS word
VALUES (1, 'a'), (2, NULL)
SHOW TABLES
