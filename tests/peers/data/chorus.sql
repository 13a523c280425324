-- A shop: customers with private addresses, their orders; products are public; recommendations are private too.
CREATE TABLE customers AS SELECT i AS customer, 'name ' || i AS name, ['VT', 'NY', 'CA'][1 + i % 3] AS state, (i % 7) * 10 AS points FROM range(60) AS r(i);
CREATE TABLE orders AS SELECT i AS order_id, i % 60 AS customer, i % 12 AS product, DATE '2016-01-01' + (i % 30)::INTEGER AS day, 1 + i % 4 AS quantity FROM range(420) AS r(i);
CREATE TABLE recommendations AS SELECT (i * 7) % 60 AS customer, i % 12 AS product FROM range(150) AS r(i);
CREATE TABLE products AS SELECT i AS product, 'product ' || i AS name, (i + 1) * 2.5 AS price, ['tool', 'toy'][1 + i % 2] AS kind FROM range(14) AS r(i);
