-- case: COUNT(*) FROM items
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(*) FROM items
----
answered
====
-- case: COUNT(order_id), SUM(price), AVG(price) FROM items
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(order_id), SUM(price), AVG(price) FROM items
----
answered
====
-- case: COUNT(id), SUM(price), AVG(price) FROM orders JOIN items ON id = order_id
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(id), SUM(price), AVG(price) FROM orders JOIN items ON id = order_id
----
answered
====
-- case: order_id, SUM(price) FROM items GROUP BY order_id
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- reason: unit
SELECT order_id, SUM(price) FROM items GROUP BY order_id
----
refused: PrivacyError: order_id leads to one privacy unit: each group would
====
-- case: SUM(price) FROM items GROUP BY order_id
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- reason: unit
SELECT SUM(price) FROM items GROUP BY order_id
----
refused: PrivacyError: order_id leads to one privacy unit: each group would
====
-- case: item, SUM(price) FROM items GROUP BY item
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT item, SUM(price) FROM items GROUP BY item
----
answered
====
-- case: city, SUM(age) FROM users GROUP BY city
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT city, SUM(age) FROM users GROUP BY city
----
answered
====
-- case: city, COUNT(*) FROM orders o JOIN users u ON (o.user_id = u.id) GROUP BY city ORDER
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT city, COUNT(*) FROM orders o JOIN users u ON (o.user_id = u.id) GROUP BY city ORDER BY city
----
answered
====
-- case: city, COUNT(*), SUM(price) FROM items i JOIN orders o ON i.order_id = o.id JOIN user
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT city, COUNT(*), SUM(price) FROM items i JOIN orders o ON i.order_id = o.id JOIN users u ON o.user_id = u.id GROUP BY city ORDER BY city
----
answered
====
-- case: id, COUNT(id) FROM users GROUP BY id ORDER BY id
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- reason: unit
SELECT id, COUNT(id) FROM users GROUP BY id ORDER BY id
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: id, age FROM users ORDER BY id
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- reason: unit
SELECT id, age FROM users ORDER BY id
----
refused: PrivacyError: id is the privacy unit: it is never released.
====
-- case: * FROM items LIMIT 10
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- reason: rows
SELECT * FROM items LIMIT 10
----
refused: PrivacyError: rows of items can't be released.
====
-- case: LOG(price) FROM items
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- reason: rows
SELECT LOG(price) FROM items
----
refused: PrivacyError: price must be a group or be inside an
====
-- case: SUM(total, contribution_bounds_per_row => (0, 1000)) FROM (order_id, SUM(price) AS t
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT SUM(total, contribution_bounds_per_row => (0, 1000)) FROM (SELECT order_id, SUM(price) AS total FROM items GROUP BY order_id) AS t
----
answered
====
-- case: SQRT(SUM(s, contribution_bounds_per_row => (0, 100000))) FROM (order_id, POWER(SUM(p
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT SQRT(SUM(s, contribution_bounds_per_row => (0, 100000))) FROM (SELECT order_id, POWER(SUM(price), 2) AS s FROM items GROUP BY order_id) AS t
----
answered
====
-- case: COUNT(*) FROM (order_id, COUNT(*) AS c FROM items GROUP BY order_id HAVING COUNT(*)
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(*) FROM (SELECT order_id, COUNT(*) AS c FROM items GROUP BY order_id HAVING COUNT(*) > 2)
----
answered
====
-- case: SUM(s) FROM (user_id, item, day, ABS(SUM(price)) AS s FROM items JOIN orders ON item
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT SUM(s) FROM (SELECT user_id, item, day, ABS(SUM(price)) AS s FROM items JOIN orders ON items.order_id = orders.id GROUP BY user_id, item, day) AS t
----
answered
====
-- case: WITH m AS (AVG(price) AS mean, STDDEV(price) AS sd FROM items WHERE price > 1.) AVG(
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- slack: 0.005
WITH m AS (SELECT AVG(price) AS mean, STDDEV(price) AS sd FROM items WHERE price > 1.) SELECT AVG((price - mean) / sd, contribution_bounds_per_row => (-10, 10)) FROM items CROSS JOIN m WHERE sd > 1.
----
answered
====
-- case: WITH m AS (MIN(price) AS low FROM items) AVG(price - low, contribution_bounds_per_ro
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- slack: 0.01
WITH m AS (SELECT MIN(price) AS low FROM items) SELECT AVG(price - low, contribution_bounds_per_row => (0, 100)) FROM items CROSS JOIN m
----
answered
====
-- case: AVG(price - 25) FROM (price - 25 AS std, * FROM items)
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT AVG(price - 25) FROM (SELECT price - 25 AS std, * FROM items)
----
answered
====
-- case: COUNT(DISTINCT item) FROM items
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(DISTINCT item) FROM items
----
answered
====
-- case: COUNT(*) FROM orders JOIN items ON id = order_id WHERE price > 10
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(*) FROM orders JOIN items ON id = order_id WHERE price > 10
----
answered
====
-- case: COUNT(*) FROM orders LEFT JOIN items ON id = order_id AND price > 10
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(*) FROM orders LEFT JOIN items ON id = order_id AND price > 10
----
answered
====
-- case: day, COUNT(*) FROM orders GROUP BY day ORDER BY day
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- seen: user_id
SELECT day, COUNT(*) FROM orders GROUP BY day ORDER BY day
----
answered
====
-- case: COUNT(DISTINCT user_id) FROM orders
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(DISTINCT user_id) FROM orders
----
answered
====
-- case: COUNT(DISTINCT order_id) FROM items
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
SELECT COUNT(DISTINCT order_id) FROM items
----
answered
====
-- case: item, COUNT(*), AVG(price) FROM items WHERE order_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9,
-- from: Qrlew, tests/integration.rs and src/rewriting (tables of users, orders and items)
-- plain: SELECT item, COUNT(*), AVG(price) FROM items JOIN orders o ON o.id = order_id WHERE order_id BETWEEN 1 AND 10 GROUP BY item HAVING COUNT(DISTINCT user_id) > 1
SELECT item, COUNT(*), AVG(price) FROM items WHERE order_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) GROUP BY item
----
answered
====
-- case: 1 + SUM(a), COUNT(b) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT 1 + SUM(a), COUNT(b) FROM measures
----
answered
====
-- case: 1 + SUM(a), COUNT(b) FROM measures WHERE a > 4
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT 1 + SUM(a), COUNT(b) FROM measures WHERE a > 4
----
answered
====
-- case: 1 + SUM(a), COUNT(b) FROM measures GROUP BY d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT 1 + SUM(a), COUNT(b) FROM measures GROUP BY d
----
answered
====
-- case: 1 + SUM(a), COUNT(b), d FROM measures GROUP BY d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT 1 + SUM(a), COUNT(b), d FROM measures GROUP BY d
----
answered
====
-- case: 1 + SUM(a), COUNT(b) FROM measures WHERE d > 3 GROUP BY d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT 1 + SUM(a), COUNT(b) FROM measures WHERE d > 3 GROUP BY d
----
answered
====
-- case: AVG(b) AS n, COUNT(b) AS d FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT AVG(b) AS n, COUNT(b) AS d FROM measures
----
answered
====
-- case: a, SUM(a) FROM measures GROUP BY a
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- plain: SELECT a, SUM(a) FROM measures GROUP BY a HAVING SUM(a) <> 0
-- seen: who
SELECT a, SUM(a) FROM measures GROUP BY a
----
answered
====
-- case: 3 * d, COUNT(*) AS c FROM measures GROUP BY 3 * d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT 3 * d, COUNT(*) AS c FROM measures GROUP BY 3 * d
----
answered
====
-- case: CEIL(d) AS k, COUNT(b) FROM measures GROUP BY k
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT CEIL(d) AS k, COUNT(b) FROM measures GROUP BY k
----
answered
====
-- case: a, COUNT(ABS(10 * a + b)) AS x FROM measures WHERE b > -0.1 AND a IN (1, 2, 3) GROUP
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT a, COUNT(ABS(10 * a + b)) AS x FROM measures WHERE b > -0.1 AND a IN (1, 2, 3) GROUP BY a
----
answered
====
-- case: COUNT(DISTINCT d) AS cd, SUM(DISTINCT d) AS sd FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT COUNT(DISTINCT d) AS cd, SUM(DISTINCT d) AS sd FROM measures
----
answered
====
-- case: c, COUNT(DISTINCT d) FROM measures GROUP BY c ORDER BY c
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT c, COUNT(DISTINCT d) FROM measures GROUP BY c ORDER BY c
----
answered
====
-- case: SUM(DISTINCT a), SUM(a) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(DISTINCT a), SUM(a) FROM measures
----
answered
====
-- case: CASE WHEN SUM(a) = 5 THEN 5 ELSE 4 * AVG(a) END FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT CASE WHEN SUM(a) = 5 THEN 5 ELSE 4 * AVG(a) END FROM measures
----
answered
====
-- case: SUM(b) AS s FROM measures GROUP BY a HAVING COUNT(b) > 4 AND a > 4 AND s > 6
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT SUM(b) AS s FROM measures GROUP BY a HAVING COUNT(b) > 4 AND a > 4 AND s > 6
----
answered
====
-- case: SUM(b) AS s FROM measures HAVING COUNT(b) > 4
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(b) AS s FROM measures HAVING COUNT(b) > 4
----
answered
====
-- case: SUM(b) AS s FROM measures GROUP BY a HAVING a > 40
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT SUM(b) AS s FROM measures GROUP BY a HAVING a > 40
----
answered
====
-- case: z AS k, SUM(b) AS s FROM measures WHERE z IS NOT NULL GROUP BY z
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT z AS k, SUM(b) AS s FROM measures WHERE z IS NOT NULL GROUP BY z
----
answered
====
-- case: z, CASE WHEN z IS NULL THEN 'Null' ELSE 'NotNull' END AS k, COUNT(*) AS c FROM measu
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT z, CASE WHEN z IS NULL THEN 'Null' ELSE 'NotNull' END AS k, COUNT(*) AS c FROM measures GROUP BY z
----
answered
====
-- case: z, CASE WHEN z IS NULL THEN 0 ELSE 1 END AS k, COUNT(*) FROM measures GROUP BY z
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT z, CASE WHEN z IS NULL THEN 0 ELSE 1 END AS k, COUNT(*) FROM measures GROUP BY z
----
answered
====
-- case: COUNT(*) AS c FROM measures WHERE z LIKE '%Ba%'
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT COUNT(*) AS c FROM measures WHERE z LIKE '%Ba%'
----
answered
====
-- case: COUNT(*) AS c FROM measures WHERE z ILIKE '%ab%'
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT COUNT(*) AS c FROM measures WHERE z ILIKE '%ab%'
----
answered
====
-- case: SUBSTRING(z, 1, 2) AS m, COUNT(*) FROM measures GROUP BY m
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT SUBSTRING(z, 1, 2) AS m, COUNT(*) FROM measures GROUP BY m
----
answered
====
-- case: UPPER(z) AS u, COUNT(*) FROM measures GROUP BY u
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT UPPER(z) AS u, COUNT(*) FROM measures GROUP BY u
----
answered
====
-- case: POSITION('o' IN z) AS p, COUNT(*) FROM measures GROUP BY p
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT POSITION('o' IN z) AS p, COUNT(*) FROM measures GROUP BY p
----
answered
====
-- case: LENGTH(z) AS l, COUNT(*) FROM measures GROUP BY l
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT LENGTH(z) AS l, COUNT(*) FROM measures GROUP BY l
----
answered
====
-- case: MD5(z) AS m, COUNT(*) FROM measures GROUP BY m
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT MD5(z) AS m, COUNT(*) FROM measures GROUP BY m
----
answered
====
-- case: EXTRACT(EPOCH FROM c) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- reason: rows
SELECT EXTRACT(EPOCH FROM c) FROM measures
----
refused: PrivacyError: c must be a group or be inside an
====
-- case: EXTRACT(YEAR FROM c) AS y, EXTRACT(WEEK FROM c) AS w, COUNT(*) FROM measures GROUP B
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- seen: who
SELECT EXTRACT(YEAR FROM c) AS y, EXTRACT(WEEK FROM c) AS w, COUNT(*) FROM measures GROUP BY y, w ORDER BY y, w
----
answered
====
-- case: EXTRACT(DOW FROM c) AS d, SUM(a) FROM measures GROUP BY d ORDER BY d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- reason: fault-duckdb
-- seen: who
SELECT EXTRACT(DOW FROM c) AS d, SUM(a) FROM measures GROUP BY d ORDER BY d
----
refused: PrivacyError: GROUP BY d means the column d, not the
====
-- case: AVG(CEIL(3 * b)), AVG(FLOOR(3 * b)), AVG(ROUND(3 * b)) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- slack: 0.01
SELECT AVG(CEIL(3 * b)), AVG(FLOOR(3 * b)), AVG(ROUND(3 * b)) FROM measures
----
answered
====
-- case: SUM(EXP(a / 10.0)) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(EXP(a / 10.0)) FROM measures
----
answered
====
-- case: SUM(LN(a + 1)) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(LN(a + 1)) FROM measures
----
answered
====
-- case: SUM(SQRT(a)) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(SQRT(a)) FROM measures
----
answered
====
-- case: SUM(a * b) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(a * b) FROM measures
----
answered
====
-- case: SUM(CAST(a AS DOUBLE) / 7) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(CAST(a AS DOUBLE) / 7) FROM measures
----
answered
====
-- case: COUNT(*) FROM measures WHERE NOT (a IS NULL) AND b IS NOT NULL
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT COUNT(*) FROM measures WHERE NOT (a IS NULL) AND b IS NOT NULL
----
answered
====
-- case: AVG(COALESCE(b, 0)) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT AVG(COALESCE(b, 0)) FROM measures
----
answered
====
-- case: AVG(CASE a WHEN 5 THEN 0 ELSE a END) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT AVG(CASE a WHEN 5 THEN 0 ELSE a END) FROM measures
----
answered
====
-- case: AVG(CASE WHEN a < 5 THEN 0 WHEN a < 3 THEN 3 ELSE a END) FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT AVG(CASE WHEN a < 5 THEN 0 WHEN a < 3 THEN 3 ELSE a END) FROM measures
----
answered
====
-- case: DISTINCT COUNT(*) FROM measures GROUP BY d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT DISTINCT COUNT(*) FROM measures GROUP BY d
----
answered
====
-- case: d, COUNT(*) AS c FROM measures GROUP BY d ORDER BY d DESC
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT d, COUNT(*) AS c FROM measures GROUP BY d ORDER BY d DESC
----
answered
====
-- case: d, COUNT(*) AS c FROM measures GROUP BY d ORDER BY c, d
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT d, COUNT(*) AS c FROM measures GROUP BY d ORDER BY c, d
----
answered
====
-- case: SUM(v) FROM (VALUES (1), (2), (3)) AS t(v)
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
SELECT SUM(v) FROM (VALUES (1), (2), (3)) AS t(v)
----
answered
====
-- case: SUM(a) FROM measures t1 JOIN households t2 ON t1.d = t2.household
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- reason: join
SELECT SUM(a) FROM measures t1 JOIN households t2 ON t1.d = t2.household
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: a + b FROM measures UNION a FROM measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- reason: rows
SELECT a + b FROM measures UNION SELECT a FROM measures
----
refused: PrivacyError: a must be a group or be inside an
====
-- case: WITH t1 AS (who, a, b FROM measures WHERE a > 5), t2 AS (who, d FROM measures WHERE
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
WITH t1 AS (SELECT who, a, b FROM measures WHERE a > 5), t2 AS (SELECT who, d FROM measures WHERE a < 7) SELECT COUNT(*) FROM t1 INNER JOIN t2 USING (who)
----
answered
====
-- case: WITH t1 AS (who, a FROM measures WHERE a > 5), t2 AS (who, d FROM measures WHERE a <
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
WITH t1 AS (SELECT who, a FROM measures WHERE a > 5), t2 AS (SELECT who, d FROM measures WHERE a < 7) SELECT COUNT(*), COUNT(a), COUNT(d) FROM t1 FULL JOIN t2 USING (who)
----
answered
====
-- case: WITH t1 AS (who, a FROM measures WHERE a > 5) COUNT(*) FROM t1 NATURAL JOIN measures
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
WITH t1 AS (SELECT who, a FROM measures WHERE a > 5) SELECT COUNT(*) FROM t1 NATURAL JOIN measures
----
answered
====
-- case: WITH t2 AS (who, a FROM measures WHERE a < 7 LIMIT 10) COUNT(*) FROM t2
-- from: Qrlew, tests/integration.rs (tables of measures and of text)
-- reason: cut
WITH t2 AS (SELECT who, a FROM measures WHERE a < 7 LIMIT 10) SELECT COUNT(*) FROM t2
----
refused: PrivacyError: LIMIT below the aggregation would choose rows by other
====
-- case: COUNT(DISTINCT household) AS u FROM purchases
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT COUNT(DISTINCT household) AS u FROM purchases
----
answered
====
-- case: COUNT(*) FROM purchases t INNER JOIN households h USING (household)
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT COUNT(*) FROM purchases t INNER JOIN households h USING (household)
----
answered
====
-- case: COUNT(*) FROM purchases t INNER JOIN products p ON t.product = p.product
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT COUNT(*) FROM purchases t INNER JOIN products p ON t.product = p.product
----
answered
====
-- case: department, AVG(amount) AS a FROM purchases INNER JOIN products ON purchases.product
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: household
SELECT department, AVG(amount) AS a FROM purchases INNER JOIN products ON purchases.product = products.product GROUP BY department
----
answered
====
-- case: p.product, p.brand, COUNT(*) FROM products p INNER JOIN purchases t ON p.product = t
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: household
SELECT p.product, p.brand, COUNT(*) FROM products p INNER JOIN purchases t ON p.product = t.product GROUP BY p.product, p.brand
----
answered
====
-- case: t.product, p.category, COUNT(*) AS c FROM purchases t INNER JOIN products p ON t.pro
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: household
SELECT t.product, p.category, COUNT(*) AS c FROM purchases t INNER JOIN products p ON t.product = p.product WHERE t.bought < CAST('2023-02-01' AS DATE) GROUP BY t.product, p.category
----
answered
====
-- case: t.product, COUNT(*) AS c FROM purchases t WHERE t.bought > '2023-01-10' AND t.bought
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: household
SELECT t.product, COUNT(*) AS c FROM purchases t WHERE t.bought > '2023-01-10' AND t.bought < '2023-02-01' GROUP BY t.product
----
answered
====
-- case: quantity, AVG(amount) FROM households h JOIN purchases t ON h.household = t.househol
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: t.household
SELECT quantity, AVG(amount) FROM households h JOIN purchases t ON h.household = t.household WHERE quantity > 0 AND amount > 0 AND amount < 100 GROUP BY quantity
----
answered
====
-- case: t.household, store, AVG(amount) FROM purchases t GROUP BY t.household, store
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- reason: unit
SELECT t.household, store, AVG(amount) FROM purchases t GROUP BY t.household, store
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: WITH s AS (store, SUM(amount) AS total, AVG(discount) FROM purchases WHERE amount >
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
WITH s AS (SELECT store, SUM(amount) AS total, AVG(discount) FROM purchases WHERE amount > 0 AND discount > 0 GROUP BY store) SELECT * FROM s WHERE total > 2400
----
answered
====
-- case: WITH ranked AS (product, COUNT(*) AS c FROM purchases GROUP BY product) product FROM
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
WITH ranked AS (SELECT product, COUNT(*) AS c FROM purchases GROUP BY product) SELECT product FROM ranked ORDER BY c, product
----
answered
====
-- case: DISTINCT age, income FROM households
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- plain: SELECT age, income FROM households GROUP BY ALL HAVING COUNT(*) > 1
SELECT DISTINCT age, income FROM households
----
answered
====
-- case: age, income FROM households GROUP BY age, income
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: household
SELECT age, income FROM households GROUP BY age, income
----
answered
====
-- case: h.household FROM households AS h JOIN purchases AS t ON h.household = t.household
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- reason: unit
SELECT h.household FROM households AS h JOIN purchases AS t ON h.household = t.household
----
refused: PrivacyError: household is the privacy unit: it is never released.
====
-- case: COUNT(*) FROM purchases a INNER JOIN purchases b ON a.product = b.product
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- reason: join
SELECT COUNT(*) FROM purchases a INNER JOIN purchases b ON a.product = b.product
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: SUM(CASE WHEN age > 70 THEN 1 ELSE 0 END) AS s FROM census WHERE age > 20 AND age <
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT SUM(CASE WHEN age > 70 THEN 1 ELSE 0 END) AS s FROM census WHERE age > 20 AND age < 90
----
answered
====
-- case: SUM(capital_loss) AS s FROM census WHERE capital_loss > 2231. AND capital_loss < 435
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT SUM(capital_loss) AS s FROM census WHERE capital_loss > 2231. AND capital_loss < 4356.
----
answered
====
-- case: SUM(capital_loss / 100) AS s FROM census WHERE capital_loss > 2231. AND capital_loss
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT SUM(capital_loss / 100) AS s FROM census WHERE capital_loss > 2231. AND capital_loss < 4356.
----
answered
====
-- case: SUM(CAST(capital_loss AS FLOAT) / 100000.) AS s FROM census WHERE capital_loss > 223
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT SUM(CAST(capital_loss AS FLOAT) / 100000.) AS s FROM census WHERE capital_loss > 2231. AND capital_loss < 4356.
----
answered
====
-- case: workclass, sex, AVG(hours) FROM census GROUP BY workclass, sex
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- seen: person
SELECT workclass, sex, AVG(hours) FROM census GROUP BY workclass, sex
----
answered
====
-- case: SUM(capital_loss) / 2 + COUNT(*) FROM census WHERE age > 30
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
SELECT SUM(capital_loss) / 2 + COUNT(*) FROM census WHERE age > 30
----
answered
====
-- case: AVG(age), STDDEV(hours), CORR(age, hours) FROM census
-- from: Qrlew, src/privacy_unit_tracking and src/differential_privacy (a retailer's tables, a census)
-- slack: 0.01
SELECT AVG(age), STDDEV(hours), CORR(age, hours) FROM census
----
answered
