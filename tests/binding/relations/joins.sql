== ANSWERED
-- paths: derived without the analyst's joins; rows that lead to no unit are dropped
SELECT COUNT(*), COUNT(DISTINCT customer), SUM(amount) FROM orders
SELECT COUNT(*), SUM(quantity), AVG(quantity) FROM items
SELECT kind, COUNT(*), SUM(amount) FROM orders GROUP BY kind
-- private with public
SELECT name, COUNT(*), SUM(quantity) FROM items JOIN products USING (product) GROUP BY name
SELECT name, COUNT(*) FROM items, products WHERE items.product = products.product GROUP BY name
SELECT p.name, COUNT(order_id) FROM products p LEFT JOIN items i ON i.product = p.product GROUP BY p.name
SELECT name, COUNT(order_id) FROM items RIGHT JOIN products USING (product) GROUP BY name
SELECT COUNT(*), COUNT(name) FROM items LEFT JOIN products USING (product)
SELECT COUNT(*) FROM items SEMI JOIN products USING (product)
SELECT COUNT(*) FROM items ANTI JOIN products USING (product)
SELECT COUNT(*) FROM items NATURAL JOIN products
-- Delft is there twice: both count
SELECT COUNT(*) FROM customers JOIN cities ON customers.city = cities.city
SELECT COUNT(*) FROM customers JOIN cities ON customers.age > 40 AND cities.region = 'south'
SELECT SUM(price * quantity, contribution_bounds_per_row => (0, 50)) FROM items JOIN products USING (product)
SELECT COUNT(*) FROM items FULL JOIN products USING (product) WHERE order_id IS NOT NULL
-- private with private, on the unit
SELECT COUNT(*) FROM customers c JOIN orders o ON c.id = o.customer
SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer = c.id AND c.age > 30
SELECT COUNT(*) FROM customers c, orders o WHERE c.id = o.customer AND o.amount > 0
SELECT COUNT(*), COUNT(order_id) FROM customers c LEFT JOIN orders o ON c.id = o.customer
SELECT COUNT(*), COUNT(order_id) FROM orders o RIGHT JOIN customers c ON c.id = o.customer
SELECT COUNT(*) FROM customers c FULL JOIN calls k ON c.id = k.caller
SELECT COUNT(*), COUNT(DISTINCT c.id), COUNT(DISTINCT k.caller) FROM customers c FULL JOIN calls k ON c.id = k.caller AND minutes > 9
SELECT COUNT(DISTINCT who) FROM (SELECT k.caller AS who FROM customers c LEFT JOIN calls k ON c.id = k.caller AND minutes > 40)
SELECT COUNT(*) FROM customers c SEMI JOIN orders o ON c.id = o.customer AND o.amount > 20
SELECT COUNT(*) FROM customers c ANTI JOIN orders o ON c.id = o.customer
SELECT COUNT(*) FROM customers AS a JOIN customers AS b USING (id)
SELECT COUNT(*) FROM orders a JOIN orders b ON a.customer = b.customer AND a.day < b.day
SELECT COUNT(*) FROM customers c JOIN orders o ON c.id = o.customer JOIN calls k ON k.caller = o.customer
-- private with private, along a path
SELECT kind, SUM(quantity) FROM items i JOIN orders o ON i.order_id = o.order_id GROUP BY kind
SELECT kind, SUM(quantity) FROM orders o JOIN items i USING (order_id) GROUP BY kind
SELECT COUNT(*) FROM items i NATURAL JOIN orders o
SELECT COUNT(*), COUNT(product) FROM orders o LEFT JOIN items i ON i.order_id = o.order_id
SELECT COUNT(*) FROM items a JOIN items b ON a.order_id = b.order_id AND a.product < b.product
SELECT COUNT(*) FROM orders o SEMI JOIN items i ON i.order_id = o.order_id AND quantity > 5
SELECT COUNT(*) FROM orders o ANTI JOIN items i ON i.order_id = o.order_id
SELECT city, SUM(quantity) FROM customers c, orders o, items i WHERE c.id = o.customer AND i.order_id = o.order_id AND city IS NOT NULL GROUP BY city
SELECT region, SUM(quantity) FROM items i JOIN orders o USING (order_id) JOIN customers c ON c.id = o.customer JOIN cities USING (city) JOIN products p ON p.product = i.product WHERE p.price < 4 GROUP BY region
-- subqueries and CTEs that keep the unit
SELECT COUNT(*) FROM (SELECT order_id, quantity + 1 AS q FROM items WHERE product < 4) i JOIN orders USING (order_id)
WITH big AS (SELECT * FROM orders WHERE amount > 10), lines AS (SELECT order_id, quantity FROM items) SELECT COUNT(*), SUM(quantity) FROM big JOIN lines USING (order_id)
SELECT COUNT(*) FROM (SELECT id AS who FROM customers) c JOIN (SELECT customer AS who FROM orders) o USING (who)
SELECT COUNT(*), SUM(amount) FROM (SELECT customer, amount FROM orders UNION ALL SELECT customer, -amount FROM orders)
SELECT COUNT(*) FROM (SELECT customer, day FROM orders WHERE kind = 'web' UNION ALL SELECT customer, day FROM orders) o JOIN customers c ON c.id = o.customer
SELECT AVG(n) FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer)
SELECT AVG(n) FROM (SELECT customer, COUNT(*) FROM orders GROUP BY customer) AS v(who, n)
WITH v(who, n) AS (SELECT customer, COUNT(*) FROM orders GROUP BY 1) SELECT AVG(n) FROM v JOIN customers c ON c.id = v.who
SELECT n, COUNT(*) FROM (SELECT c.id, COUNT(order_id) AS n FROM customers c LEFT JOIN orders o ON c.id = o.customer GROUP BY c.id) GROUP BY n HAVING n BETWEEN 1 AND 4
SELECT COUNT(*), AVG(q) FROM (SELECT order_id, SUM(quantity) AS q FROM items GROUP BY order_id HAVING COUNT(*) > 1)
SELECT kind, AVG(q) FROM (SELECT order_id, SUM(quantity) AS q FROM items GROUP BY order_id) i JOIN orders o ON o.order_id = i.order_id GROUP BY kind
SELECT kind, AVG(n) FROM (SELECT customer, kind, COUNT(*) AS n FROM orders GROUP BY ALL) GROUP BY kind
SELECT AVG(m) FROM (SELECT customer, MAX(n) AS m FROM (SELECT customer, kind, COUNT(*) AS n FROM orders GROUP BY customer, kind) GROUP BY customer)
-- EXISTS, IN and scalar subqueries over rows of the same unit
SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.amount > c.age / 2)
SELECT COUNT(*) FROM customers WHERE NOT EXISTS (SELECT * FROM orders WHERE customer = id)
SELECT kind, COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM items WHERE order_id = o.order_id AND quantity > 6) GROUP BY 1
SELECT COUNT(*) FROM orders WHERE order_id IN (SELECT order_id FROM items GROUP BY order_id HAVING SUM(quantity) > 9)
SELECT COUNT(*) FROM orders WHERE order_id NOT IN (SELECT order_id FROM items)
SELECT COUNT(*) FROM customers WHERE id IN (SELECT customer FROM orders WHERE kind = 'web' UNION ALL SELECT customer FROM orders)
SELECT COUNT(*) FROM customers c WHERE city IN (SELECT city FROM customers d WHERE d.id = c.id AND d.age > 30)
SELECT COUNT(*) FROM orders o WHERE amount > (SELECT AVG(amount) FROM orders p WHERE p.customer = o.customer)
SELECT SUM(CASE WHEN EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id) THEN age ELSE 0 END) FROM customers c
SELECT COUNT(*) FILTER (WHERE id IN (SELECT caller FROM calls)) FROM customers
SELECT COUNT(*) FROM customers c WHERE (SELECT COUNT(*) FROM calls k WHERE k.caller = c.id AND minutes > 10) >= 2
SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.order_id AND i.quantity > 6))
SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o JOIN items i USING (order_id) WHERE o.customer = c.id AND quantity = 7)
SELECT COUNT(*) FROM orders WHERE (customer, kind) IN (SELECT customer, 'web' FROM orders WHERE amount > 20)
SELECT COUNT(*) FROM orders WHERE (customer, kind) NOT IN (SELECT customer, kind FROM orders GROUP BY ALL HAVING COUNT(*) > 1)
-- over public rows, whatever they ask
SELECT COUNT(*) FROM items WHERE (product, quantity) IN (SELECT product, price FROM products)
SELECT COUNT(*) FROM items WHERE product IN (SELECT product FROM products WHERE price > 2)
SELECT COUNT(*) FROM items WHERE product NOT IN (SELECT product FROM products)
SELECT COUNT(*) FROM items i WHERE EXISTS (SELECT 1 FROM products p WHERE p.product = i.product AND p.price > i.quantity)
SELECT COUNT(*) FROM items WHERE EXISTS (SELECT 1 FROM products WHERE price > 4)
SELECT COUNT(*) FROM items WHERE NOT EXISTS (SELECT 1 FROM products WHERE price > 40)
SELECT COUNT(*) FROM items i WHERE quantity < (SELECT MAX(price) FROM products p WHERE p.product = i.product)
SELECT COUNT(*) FROM items WHERE quantity < (SELECT AVG(price) FROM products)
SELECT COUNT(*) FROM badges b WHERE EXISTS (SELECT 1 FROM cities c WHERE c.city = b.city)
-- private blocks inside others
SELECT COUNT(*) FROM customers WHERE age > (SELECT AVG(age) FROM customers)
SELECT COUNT(*) FROM orders WHERE kind IN (SELECT kind FROM orders GROUP BY kind HAVING COUNT(*) > 30)
SELECT kind, COUNT(*) FROM orders RIGHT JOIN (SELECT kind FROM orders GROUP BY kind HAVING COUNT(*) > 30) USING (kind) GROUP BY kind
SELECT a.n - b.n AS d FROM (SELECT COUNT(*) AS n FROM orders) a CROSS JOIN (SELECT COUNT(*) AS n FROM calls) b
SELECT kind, n, n - LAG(n) OVER (ORDER BY kind) FROM (SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind) ORDER BY kind
SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind QUALIFY row_number() OVER (ORDER BY COUNT(*) DESC, kind) = 1
-- rows that are units, with public rows that are unique where they are joined
SELECT COUNT(*), SUM(points) FROM badges JOIN products USING (product)
SELECT name, COUNT(points) FROM badges b RIGHT JOIN products p ON b.product = p.product GROUP BY name
SELECT name, COUNT(points) FROM products p LEFT JOIN badges b ON b.product = p.product GROUP BY name
SELECT COUNT(*), COUNT(name) FROM badges LEFT JOIN products USING (product)
SELECT COUNT(*) FROM badges b, products p WHERE b.product = p.product AND p.price < b.points
SELECT COUNT(*) FROM badges JOIN (SELECT DISTINCT city FROM cities) USING (city)
SELECT COUNT(*) FROM badges JOIN cities ON badges.city = cities.city AND cities.region = 'south' AND badges.product = cities.id
SELECT COUNT(*) FROM badges SEMI JOIN cities USING (city)
