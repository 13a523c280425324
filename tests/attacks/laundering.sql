== FORMS
-- another column, or none, in the unit's name
SELECT COUNT(*) FROM (SELECT 1 AS uid, x FROM t)
SELECT COUNT(DISTINCT uid) FROM (SELECT friend AS uid, x FROM t)
SELECT COUNT(*) FROM (SELECT friend AS uid FROM t) a JOIN s ON a.uid = s.uid
SELECT COUNT(*) FROM (SELECT x, friend AS uid FROM t) a JOIN s USING (uid)
SELECT COUNT(*) FROM (SELECT friend AS uid FROM t) NATURAL JOIN s
SELECT COUNT(*) FROM (SELECT * REPLACE (friend AS uid) FROM t) a JOIN s USING (uid)
SELECT COUNT(*) FROM (SELECT * EXCLUDE (uid) RENAME (friend AS uid) FROM t) a JOIN s USING (uid)
SELECT COUNT(*) FROM (SELECT * RENAME (friend AS uid, uid AS friend) FROM t) a JOIN s USING (uid)
SELECT COUNT(*) FROM (SELECT friend, uid FROM t) AS a(uid, friend) JOIN s ON a.uid = s.uid
WITH a(uid, z) AS (SELECT friend, uid FROM t) SELECT COUNT(*) FROM a JOIN s USING (uid)
SELECT COUNT(*) FROM t AS a(friend, uid) JOIN s ON a.uid = s.uid
WITH t AS (SELECT friend AS uid FROM t) SELECT COUNT(*) FROM t JOIN s USING (uid)
SELECT COUNT(*) FROM (SELECT friend AS "UID" FROM t) a JOIN s ON a.UID = s.Uid
-- recomputed
SELECT COUNT(*) FROM (SELECT uid + 0 AS uid FROM t) a JOIN s ON a.uid = s.uid
SELECT COUNT(*) FROM (SELECT uid::BIGINT AS uid FROM t) a JOIN s ON a.uid = s.uid
SELECT COUNT(*) FROM (SELECT uid % 10 AS uid FROM t) a JOIN s ON a.uid = s.uid
SELECT COUNT(*) FROM (SELECT COALESCE(NULL, friend, uid) AS uid FROM t) a JOIN s ON a.uid = s.uid
SELECT COUNT(*) FROM (SELECT CASE WHEN x = 1 THEN friend ELSE uid END AS uid FROM t) a JOIN s ON a.uid = s.uid
SELECT COUNT(*) FROM (SELECT md5(uid::VARCHAR) AS uid FROM t) a JOIN (SELECT md5(uid::VARCHAR) AS uid FROM s) b USING (uid)
SELECT COUNT(*) FROM t JOIN s ON t.uid + 0 = s.uid
SELECT COUNT(*) FROM t JOIN s ON t.uid::VARCHAR = s.uid::VARCHAR
SELECT COUNT(*) FROM t JOIN s ON abs(t.uid) = s.uid
SELECT COUNT(*) FROM t JOIN s ON t.uid IN (s.uid, s.uid + 1)
SELECT COUNT(*) FROM t JOIN s ON t.uid BETWEEN s.uid AND s.uid + 9
-- equal to itself, or to anything else as well
SELECT COUNT(*) FROM t a JOIN t b ON a.uid = a.uid
SELECT COUNT(*) FROM t a JOIN t b ON b.uid = b.uid
SELECT COUNT(*) FROM t a JOIN t b ON TRUE
SELECT COUNT(*) FROM t a, t b
SELECT COUNT(*) FROM t a CROSS JOIN s b
SELECT COUNT(*) FROM t a JOIN t b ON a.uid = b.uid OR TRUE
SELECT COUNT(*) FROM t a JOIN t b ON a.uid = b.uid OR a.k = b.k
SELECT COUNT(*) FROM t a JOIN t b ON NOT (a.uid = b.uid)
SELECT COUNT(*) FROM t a JOIN t b ON (a.uid = b.uid) IS NOT NULL
SELECT COUNT(*) FROM t a JOIN t b ON (a.uid = b.uid) = FALSE
SELECT COUNT(*) FROM t a JOIN t b ON CASE WHEN a.uid = b.uid THEN TRUE ELSE TRUE END
SELECT COUNT(*) FROM t a JOIN t b ON a.uid <> b.uid
SELECT COUNT(*) FROM t a JOIN t b ON a.uid >= b.uid
SELECT COUNT(*) FROM t a JOIN t b ON a.uid IS NOT DISTINCT FROM b.uid
SELECT COUNT(*) FROM t a JOIN t b ON a.uid = b.friend
SELECT COUNT(*) FROM t a JOIN t b ON a.friend = b.friend
SELECT COUNT(*) FROM t a LEFT JOIN t b ON a.k = b.k WHERE a.uid = b.uid
SELECT COUNT(*) FROM t a FULL JOIN s b ON a.uid = b.uid
SELECT COUNT(*) FROM t a, s b WHERE a.uid = b.uid OR b.y = 1
SELECT COUNT(*) FROM t a POSITIONAL JOIN s b
SELECT COUNT(*) FROM t a ASOF JOIN s b ON a.uid >= b.uid
-- through a public table with a column of the unit's name
SELECT COUNT(*) FROM t JOIN pub ON t.friend = pub.uid JOIN s ON pub.uid = s.uid
SELECT COUNT(*) FROM (SELECT pub.uid FROM t JOIN pub ON t.friend = pub.other) a JOIN s USING (uid)
SELECT COUNT(*) FROM pub JOIN t ON pub.k = t.k JOIN s ON pub.uid = s.uid
SELECT COUNT(*) FROM pub LEFT JOIN t USING (uid)
SELECT COUNT(DISTINCT pub.uid) FROM t JOIN pub USING (k)
SELECT COUNT(*) FROM t JOIN pub ON t.k = pub.k
SELECT COUNT(*) FROM t JOIN pub ON TRUE
SELECT COUNT(*) FROM t JOIN (SELECT uid FROM pub UNION ALL SELECT uid FROM pub) p ON TRUE
SELECT COUNT(*) FROM t FULL JOIN pub ON t.friend = pub.uid
SELECT pub.k, COUNT(t.x) FROM t RIGHT JOIN pub ON t.friend = pub.uid GROUP BY pub.k
-- put together
SELECT COUNT(*) FROM (SELECT uid, x FROM t UNION ALL SELECT friend, x FROM t)
SELECT COUNT(*) FROM (SELECT uid, friend FROM t UNION ALL SELECT friend, uid FROM t)
SELECT COUNT(*) FROM (SELECT x FROM t UNION ALL BY NAME SELECT y AS x FROM s)
SELECT COUNT(*) FROM (SELECT x FROM t UNION ALL SELECT y FROM s)
SELECT COUNT(*) FROM (SELECT uid FROM t UNION ALL SELECT uid FROM pub)
SELECT COUNT(*) FROM (SELECT uid FROM t UNION SELECT uid FROM s)
SELECT COUNT(*) FROM (SELECT uid FROM t EXCEPT SELECT uid FROM s)
SELECT COUNT(*) FROM (SELECT uid FROM s INTERSECT SELECT friend FROM t)
-- decided by others
SELECT COUNT(*) FROM s WHERE uid IN (SELECT friend FROM t)
SELECT COUNT(*) FROM s WHERE uid NOT IN (SELECT friend FROM t)
SELECT COUNT(*) FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.friend = s.uid)
SELECT COUNT(*) FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.uid = t.uid)
SELECT COUNT(*) FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.uid = s.uid OR t.friend = s.uid)
SELECT COUNT(*) FROM s WHERE EXISTS (SELECT 1 FROM t WHERE 666 = t.uid)
SELECT COUNT(*) FROM s WHERE y < (SELECT COUNT(*) FROM t WHERE t.friend = s.uid)
SELECT COUNT(*) FROM s SEMI JOIN t ON t.friend = s.uid
SELECT COUNT(*) FROM s ANTI JOIN t ON t.friend = s.uid
SELECT COUNT(*) FROM s ANTI JOIN t ON t.uid = s.uid AND t.x > 5
SELECT COUNT(*) FROM pub WHERE uid IN (SELECT uid FROM t)
SELECT COUNT(*) FROM pub SEMI JOIN t USING (uid)
-- own aggregates, own windows, own distinct rows
SELECT COUNT(*) FROM (SELECT friend, COUNT(*) AS n FROM t GROUP BY friend)
SELECT COUNT(*) FROM (SELECT uid, friend, COUNT(*) AS n FROM t GROUP BY uid, friend)
SELECT SUM(n, contribution_bounds_per_row => (0, 2)) FROM (SELECT uid, k, COUNT(*) AS n FROM t GROUP BY uid, k)
SELECT COUNT(*) FROM (SELECT friend AS uid, COUNT(*) AS n FROM t GROUP BY uid)
SELECT COUNT(*) FROM (SELECT uid + 0 AS uid, COUNT(*) AS n FROM t GROUP BY 1)
SELECT COUNT(*) FROM (SELECT uid, COUNT(*) AS n FROM t GROUP BY ROLLUP (uid))
SELECT COUNT(*) FROM (SELECT row_number() OVER (PARTITION BY friend ORDER BY day) AS r FROM t) WHERE r = 1
SELECT COUNT(*) FROM (SELECT row_number() OVER (ORDER BY day) AS r FROM t) WHERE r <= 100
SELECT COUNT(*) FROM (SELECT row_number() OVER (PARTITION BY uid + 0 ORDER BY day) AS r FROM t) WHERE r = 1
SELECT COUNT(*) FROM (SELECT rank() OVER (PARTITION BY uid ORDER BY (SELECT COUNT(*) FROM s)) AS r FROM t) WHERE r = 1
SELECT COUNT(*) FROM (SELECT row_number() OVER (PARTITION BY uid ORDER BY day) AS r FROM t) WHERE r <= 50
SELECT COUNT(*) FROM (SELECT COUNT(*) OVER (PARTITION BY uid) AS n, x FROM t) WHERE n > 1
SELECT COUNT(*) FROM (SELECT friend AS uid, row_number() OVER (PARTITION BY uid ORDER BY day) AS r FROM t) WHERE r = 1
SELECT COUNT(*) FROM (SELECT friend, lag(friend) OVER (PARTITION BY k ORDER BY day) AS before FROM t) WHERE friend > before
SELECT COUNT(*) FROM (SELECT x FROM t QUALIFY row_number() OVER (PARTITION BY friend ORDER BY day) = 1)
SELECT COUNT(*) FROM (SELECT x FROM t QUALIFY row_number() OVER (PARTITION BY uid, friend ORDER BY day) = 1)
SELECT COUNT(*) FROM (SELECT x FROM t QUALIFY row_number() OVER (PARTITION BY uid ORDER BY day) = 1)
SELECT COUNT(*) FROM (SELECT x FROM t QUALIFY row_number() OVER (PARTITION BY uid ORDER BY day) = 1 OR TRUE)
SELECT COUNT(*) FROM (SELECT DISTINCT ON (friend) friend, x FROM t)
SELECT COUNT(*) FROM (SELECT DISTINCT ON (uid, friend) friend, x FROM t)
SELECT COUNT(*) FROM (SELECT DISTINCT friend FROM t)
SELECT COUNT(*) FROM (SELECT DISTINCT uid, friend FROM t)
SELECT COUNT(*) FROM (SELECT DISTINCT uid + 0 AS uid, friend FROM t)
SELECT COUNT(*) FROM (SELECT * FROM t ORDER BY friend LIMIT 50)
-- unfolded
SELECT COUNT(*) FROM t, UNNEST(list) AS u(v)
SELECT COUNT(*) FROM t, UNNEST(list) AS u(uid) JOIN s ON u.uid = s.uid
SELECT v, COUNT(*) FROM t, UNNEST(list) AS u(v) GROUP BY v
SELECT COUNT(*) FROM (SELECT unnest(list) AS uid FROM t) a JOIN s USING (uid)
SELECT COUNT(*) FROM t, LATERAL (SELECT t.friend AS uid) l JOIN s ON l.uid = s.uid
SELECT COUNT(*) FROM t, LATERAL (SELECT p.uid FROM pub p WHERE p.k = t.k) l
SELECT COUNT(*) FROM t, LATERAL (SELECT p.uid FROM pub p WHERE p.k = t.k) l JOIN s ON l.uid = s.uid
SELECT COUNT(*) FROM t, LATERAL (SELECT s.y FROM s WHERE s.uid = t.friend) l
SELECT COUNT(*) FROM t, LATERAL (SELECT s.y FROM s WHERE s.uid = t.uid) l
-- parentheses
SELECT COUNT(*) FROM (t a JOIN pub p ON a.friend = p.uid) JOIN s ON p.uid = s.uid
SELECT COUNT(*) FROM s JOIN (t a JOIN pub p ON a.friend = p.uid) ON p.uid = s.uid
SELECT COUNT(*) FROM s LEFT JOIN (t a JOIN pub p ON a.friend = p.uid) ON a.uid = s.uid
SELECT COUNT(*) FROM pub p JOIN s ON p.uid = s.uid JOIN (t a JOIN pub q ON a.friend = q.uid) ON q.uid = s.uid
-- along a path
SELECT COUNT(*) FROM i
SELECT COUNT(*) FROM i a JOIN i b ON a.q = b.q
SELECT COUNT(*) FROM i JOIN t ON i.oid = t.uid
SELECT COUNT(*) FROM (SELECT q AS oid FROM i) a JOIN o USING (oid)
SELECT COUNT(*) FROM (SELECT oid + 0 AS oid FROM i) a JOIN o USING (oid)
SELECT COUNT(*) FROM (SELECT oid, COUNT(*) AS n FROM i GROUP BY oid)
SELECT COUNT(*) FROM (SELECT q, row_number() OVER (PARTITION BY oid ORDER BY q) AS r FROM i) WHERE r = 1
SELECT COUNT(*) FROM o WHERE oid IN (SELECT q FROM i)
