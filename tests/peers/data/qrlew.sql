-- Users, their orders, the items of these; a table of measures; a retailer's households; people of a census.
CREATE TABLE users AS SELECT i AS id, 'user ' || i AS name, 18 + (i * 7) % 60 AS age, ['Paris', 'New York', 'Rome'][1 + i % 3] AS city FROM range(50) AS r(i);
CREATE TABLE orders AS SELECT i AS id, i % 50 AS user_id, 'order ' || i AS description, DATE '2022-01-01' + (i % 90)::INTEGER AS day FROM range(150) AS r(i);
CREATE TABLE items AS SELECT i % 150 AS order_id, 'item ' || (i % 8) AS item, ((i * 37) % 5000)::DOUBLE / 100 AS price FROM range(400) AS r(i);
CREATE TABLE measures AS SELECT i % 60 AS who, (i * 3) % 10 AS a, CASE WHEN i % 13 = 0 THEN NULL ELSE ((i * 7) % 40)::DOUBLE / 4 - 3 END AS b, DATE '2023-01-01' + (i % 60)::INTEGER AS c,
    i % 6 AS d, CASE WHEN i % 5 = 0 THEN NULL ELSE ['ab', 'Bad', 'foo', 'zoo'][1 + i % 4] END AS z FROM range(240) AS r(i);
CREATE TABLE households AS SELECT i AS household, 20 + (i * 3) % 60 AS age, (i % 8) * 10000 AS income FROM range(70) AS r(i);
CREATE TABLE purchases AS SELECT i % 70 AS household, (i * 3) % 9 AS store, (i * 7) % 25 AS product, 1 + i % 4 AS quantity, ((i * 31) % 10000)::DOUBLE / 100 AS amount,
    TIMESTAMP '2023-01-01 08:00:00' + to_hours((i * 3)::INTEGER) AS bought, (i % 10)::DOUBLE AS discount FROM range(500) AS r(i);
CREATE TABLE products AS SELECT i AS product, ['GROCERY', 'DRUG', 'DELI'][1 + i % 3] AS department, ['bread', 'soap', 'cheese', 'milk'][1 + i % 4] AS category, 'brand ' || (i % 3) AS brand FROM range(25) AS r(i);
CREATE TABLE census AS SELECT i AS person, 17 + (i * 7) % 74 AS age, ['Private', 'State-gov', 'Self-emp', NULL][1 + i % 4] AS workclass, ['Male', 'Female'][1 + i % 2] AS sex,
    CASE WHEN i % 9 = 0 THEN 2000 + (i * 13) % 2500 ELSE 0 END AS capital_loss, 20 + (i * 3) % 50 AS hours FROM range(300) AS r(i);
