== STRANGE
SELECT COUNT(*) FROM flights WHERE origin = 'jfk'
SELECT COUNT(*) FROM flights WHERE 'jfk' = origin
SELECT COUNT(*) FROM flights WHERE origin <> 'jfk'
SELECT COUNT(*) FROM flights WHERE origin IN ('LGA', 'jfk')
SELECT COUNT(*) FROM flights WHERE origin NOT IN ('jfk')
SELECT COUNT(*) FROM flights WHERE 'jfk' IN (origin)
SELECT COUNT(*) FROM flights WHERE origin = ANY(['jfk'])
SELECT COUNT(*) FROM flights WHERE list_contains(['jfk'], origin)
SELECT COUNT(*) FROM flights WHERE origin IS DISTINCT FROM 'jfk'
SELECT COUNT(*) FROM flights WHERE origin IS NOT DISTINCT FROM 'jfk'
SELECT COUNT(*) FROM flights WHERE origin::VARCHAR = CAST('jfk' AS VARCHAR)
SELECT COUNT(*) FILTER (WHERE (origin) = ('jfk')) FROM flights
SELECT SUM(CASE origin WHEN 'jfk' THEN 1 ELSE 0 END, contribution_bounds_per_row => (0, 1)) FROM flights
SELECT COUNT(*) FROM (SELECT origin AS o FROM flights) WHERE o = 'jfk'
WITH a AS (SELECT uid, origin AS o FROM flights), b AS (SELECT o AS p FROM a) SELECT COUNT_IF(p = 'jfk') FROM b
SELECT COUNT(*) FROM flights a JOIN flights b ON a.uid = b.uid AND a.origin = 'jfk'
SELECT COUNT(*) FROM flights WHERE uid IN (SELECT uid FROM flights WHERE origin = 'jfk')
SELECT origin, COUNT(*) FROM flights GROUP BY origin HAVING origin = 'jfk'
SELECT n FROM (SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin) WHERE origin = 'jfk'
WITH r AS (SELECT origin AS o, COUNT(*) AS n FROM flights GROUP BY 1) SELECT SUM(n) FROM r WHERE o IN ('jfk')
SELECT SUM(n) FILTER (WHERE 'jfk' = o) FROM (SELECT origin AS o, COUNT(*) AS n FROM flights GROUP BY 1)
SELECT origin, gate, COUNT(*) FROM flights GROUP BY CUBE (origin, gate) HAVING origin = 'jfk'
SELECT WITH SUBSAMPLE OPTIONS (delta = 1e-6, blocks = 10, bounds = (0, 100), combine = 'mean') AVG(age) FROM flights WHERE origin = 'jfk'
SELECT WITH SUBSAMPLE OPTIONS (delta = 1e-6, blocks = 10, bounds = (0, 100), combine = 'mean') AVG(age) FROM (SELECT DISTINCT age, origin FROM flights) WHERE origin = 'jfk'
EXPLAIN SELECT COUNT(*) FROM flights WHERE origin = 'jfk'
