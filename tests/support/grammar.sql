== _ROWS
SELECT unit AS u, k, x, n, f FROM t
SELECT unit AS u, k, x, n, f FROM t WHERE x < 30 OR x IS NULL
SELECT t.unit AS u, t.k, y::DOUBLE AS x, n, f FROM t JOIN s USING (unit)
SELECT unit AS u, k, y::DOUBLE AS x, n, f FROM t NATURAL LEFT JOIN s
SELECT t.unit AS u, k, x, y AS n, f FROM t, s WHERE t.unit = s.unit
SELECT unit AS u, k, 1.5::DOUBLE AS x, oid AS n, TRUE AS f FROM o
SELECT unit AS u, i.k, q AS x, o.oid AS n, q > 1 AS f FROM i JOIN o ON i.oid = o.oid
SELECT unit AS u, i.k, q AS x, o.oid AS n, q > 1 AS f FROM o LEFT JOIN i USING (oid)
SELECT unit AS u, i.k, q AS x, o.oid AS n, q > 1 AS f FROM o, i WHERE i.oid = o.oid AND q < 9
SELECT o.unit AS u, a.k, b.q AS x, a.oid AS n, a.q > b.q AS f FROM i a JOIN i b ON a.oid = b.oid JOIN o ON o.oid = b.oid
SELECT unit AS u, k, 2.5::DOUBLE AS x, oid AS n, FALSE AS f FROM o SEMI JOIN (SELECT oid FROM i WHERE q > 0) j USING (oid)
SELECT unit AS u, k, 2.5::DOUBLE AS x, oid AS n, FALSE AS f FROM o ANTI JOIN i USING (oid)
SELECT t.unit AS u, t.k, x, label AS n, f FROM t JOIN g ON t.k = g.k
SELECT t.unit AS u, g.k, x, n, f FROM t LEFT JOIN g ON t.k = g.k OR label = 2
SELECT t.unit AS u, g.k, x, label AS n, f FROM t, g WHERE n > label
SELECT unit AS u, MIN(k) AS k, SUM(x) AS x, COUNT(*)::INTEGER AS n, COUNT(*) > 1 AS f FROM t GROUP BY unit
SELECT unit AS u, k, MAX(x) AS x, COUNT(DISTINCT n)::INTEGER AS n, COUNT(*) > 1 AS f FROM t GROUP BY ALL HAVING COUNT(*) < 3
SELECT unit AS u, o.k, j.q AS x, j.c AS n, j.q > 2 AS f FROM (SELECT oid, SUM(q) AS q, COUNT(*)::INTEGER AS c FROM i GROUP BY oid) j JOIN o ON o.oid = j.oid
SELECT unit AS u, k, 0.5::DOUBLE AS x, oid AS n, EXISTS (SELECT 1 FROM i WHERE i.oid = o.oid AND i.k = o.k) AS f FROM o
SELECT unit AS u, k, 0.5::DOUBLE AS x, oid AS n, TRUE AS f FROM o WHERE oid NOT IN (SELECT oid FROM i GROUP BY oid HAVING SUM(q) > 3)
SELECT unit AS u, k, (SELECT SUM(q) FROM i WHERE i.oid = o.oid) AS x, oid AS n, TRUE AS f FROM o
SELECT unit AS u, k, x, n, f FROM t WHERE EXISTS (SELECT 1 FROM g WHERE g.k = t.k AND label < n)
SELECT unit AS u, k, x, (SELECT MAX(label) FROM g WHERE g.k = t.k) AS n, f FROM t
SELECT unit AS u, k, x, n, k IN (SELECT k FROM g) AS f FROM t
SELECT unit AS u, k, x, row_number() OVER (PARTITION BY unit ORDER BY n DESC, x, k, f)::INTEGER AS n, f FROM t
SELECT unit AS u, k, lag(x) OVER (PARTITION BY unit ORDER BY n, x, k, f) AS x, n, COUNT(*) OVER (PARTITION BY unit) > 1 AS f FROM t
SELECT o.unit AS u, i.k, q AS x, rank() OVER (PARTITION BY i.oid ORDER BY q)::INTEGER AS n, q > 1 AS f FROM i JOIN o USING (oid)
SELECT unit AS u, k, x, n, f FROM t QUALIFY row_number() OVER (PARTITION BY unit ORDER BY x, n, k, f) = 1
SELECT unit AS u, k, x, n, f FROM t QUALIFY SUM(n) OVER (PARTITION BY unit ORDER BY n, x, k, f ROWS 1 PRECEDING) > 2
SELECT DISTINCT ON (unit) unit AS u, k, x, n, f FROM t ORDER BY n, x, k, f
SELECT DISTINCT unit AS u, k, x, n, f FROM t
SELECT unit AS u, t.k, x, l.label AS n, f FROM t, LATERAL (SELECT label FROM g WHERE g.k = t.k OR t.n > label) l
SELECT unit AS u, k, l.half AS x, n, f FROM t, LATERAL (SELECT t.x / 2 AS half) l
SELECT unit AS u, t.k, y::DOUBLE AS x, n, f FROM g JOIN (t JOIN s USING (unit)) ON t.k = g.k
SELECT unit AS u, t.k, x, w.c AS n, f FROM t, UNNEST([1, 2]) AS w(c)
SELECT v.unit AS u, v.k, q AS x, w AS n, q > 1 AS f FROM v JOIN o ON v.oid = o.oid
SELECT o.unit AS u, v.k, q AS x, o.oid AS n, q > 1 AS f FROM o LEFT JOIN v USING (oid)
SELECT v.unit AS u, i.k, v.q AS x, w AS n, v.q > i.q AS f FROM v, i WHERE i.oid = v.oid
SELECT a.unit AS u, b.k, a.q AS x, b.oid AS n, a.q > b.q AS f FROM v a JOIN v b ON a.w = b.w
SELECT v.unit AS u, t.k, x, w AS n, f FROM t RIGHT JOIN v ON t.n = v.w
SELECT unit AS u, k, q AS x, w AS n, w IN (SELECT n FROM t) AS f FROM v WHERE EXISTS (SELECT 1 FROM o WHERE o.oid = v.oid)
SELECT unit AS u, k, q AS x, c AS n, TRUE AS f FROM v JOIN (SELECT w, COUNT(*)::INTEGER AS c FROM v GROUP BY w) j USING (w)
SELECT unit AS u, w.c AS k, x, n, f FROM t, UNNEST([k, 'a', NULL]) AS w(c)
SELECT unit AS u, k, w.c AS x, n, f FROM t LEFT JOIN UNNEST([x, n::DOUBLE][1:2]) AS w(c) ON TRUE
SELECT u, k, x, n, f FROM (SELECT unit AS u, UNNEST(string_split(k || ',b', ',')) AS k, x, n, f FROM t)
SELECT u, k, x, n, f FROM (SELECT unit AS u, f, x, n::VARCHAR AS m, k AS l FROM t) UNPIVOT (k FOR n1 IN (l, m)), (SELECT 2 AS n)
SELECT unit AS u, level AS k, epoch(moment) AS x, hour(zone)::INTEGER AS n, raw = '\xFF\x00'::BLOB AS f FROM w
SELECT unit AS u, level AS k, date_diff('day', zone, zone + INTERVAL 1 DAY)::DOUBLE AS x, month(zone)::INTEGER AS n, moment > '2020-03-29T01:00:00Z' AS f FROM w
SELECT unit AS u, dayname(zone) AS k, epoch(span) AS x, LEAST(whole, 9)::INTEGER AS n, span < INTERVAL 30 DAY AS f FROM w
SELECT unit AS u, level AS k, parts.a::DOUBLE AS x, len(parts.b)::INTEGER AS n, list_contains(parts.b, 'x') AS f FROM w
SELECT unit AS u, parts.b[1] AS k, whole::DOUBLE AS x, len(items)::INTEGER AS n, bits IS NULL AS f FROM w
SELECT unit AS u, level AS k, list_sum(items)::DOUBLE AS x, items[1]::INTEGER AS n, id = 'ffffffff-ffff-ffff-ffff-ffffffffffff' AS f FROM w
SELECT unit AS u, level AS k, c::DOUBLE AS x, c::INTEGER AS n, raw <> ''::BLOB AS f FROM w, UNNEST(items) AS l(c)
SELECT unit AS u, MAX(level::VARCHAR) AS k, COUNT(raw)::DOUBLE AS x, COUNT(DISTINCT span)::INTEGER AS n, MIN(moment) > '2020-03-29T01:00:00Z' AS f FROM w GROUP BY unit
SELECT w.unit AS u, t.k, epoch(span) AS x, n, raw IN (''::BLOB, 'a'::BLOB) AS f FROM t JOIN w USING (unit)
SELECT a.unit AS u, b.level AS k, whole::DOUBLE AS x, n, a.raw = 'a'::BLOB AS f FROM w a JOIN (SELECT unit, level, hour(zone)::INTEGER AS n FROM w) b ON a.unit = b.unit
SELECT unit AS u, level AS k, whole::DOUBLE AS x, row_number() OVER (PARTITION BY unit ORDER BY span, whole, id)::INTEGER AS n, clock IS NULL AS f FROM w
SELECT unit AS u, g.k, COUNT(span) OVER (PARTITION BY unit)::DOUBLE AS x, label AS n, pairs IS NULL AND bits IS NULL AS f FROM w JOIN g ON w.level = g.k
SELECT unit AS u, strftime(zone, '%m') AS k, epoch((moment AT TIME ZONE 'UTC') - INTERVAL 1 DAY) AS x, (epoch(span) / 86400)::INTEGER AS n, TRUE AS f FROM w
