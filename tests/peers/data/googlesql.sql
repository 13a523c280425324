-- Ten rows of ten units, ten rows of three, seven rows without values, and four shelves; then a table with every type.
CREATE TABLE one_each AS SELECT * FROM (VALUES
    (1, NULL, NULL), (2, 2, 1.5), (3, 1, 1.5), (4, NULL, 2.5), (5, 1, 3.5),
    (6, 2, NULL), (7, 1, -0.5), (8, 4, -1.5), (9, 2, 1.5), (10, 3, 2.5)
) AS t(uid, n, x);
CREATE TABLE three_units AS SELECT * FROM (VALUES
    (1, 1, NULL, NULL), (2, 2, 2, 1.5), (3, 3, 1, 1.5), (4, 1, NULL, 2.5), (5, 2, 1, 3.5),
    (6, 2, 2, NULL), (7, 1, 1, -0.5), (8, 2, 4, -1.5), (9, 3, 2, 1.5), (10, 2, 3, 2.5)
) AS t(id, uid, n, x);
CREATE TABLE no_values AS SELECT id, uid, NULL::INTEGER AS n, NULL::DECIMAL(3, 1) AS x
    FROM (VALUES (1, 1), (2, 2), (3, 1), (4, 1), (5, 1), (6, 2), (7, 1)) AS t(id, uid);
CREATE TABLE teachers AS SELECT * FROM (VALUES
    (101, 'pencil', 24), (123, 'pen', 16), (123, 'pencil', 10), (123, 'pencil', 38), (101, 'pen', 19), (101, 'pen', 23),
    (130, 'scissors', 8), (150, 'pencil', 72)
) AS t(id, item, quantity);
CREATE TABLE pupils AS SELECT * FROM (VALUES (1, 'pencil', 5), (1, 'pen', 2), (2, 'pen', 1), (3, 'pen', 4)) AS t(id, item, quantity);
CREATE TABLE typed AS SELECT
    i % 40 AS uid, i % 5 AS i32, (i * 7) % 11 AS i64, ['ash', 'elm', 'oak'][1 + i % 3] AS tree, i % 2 = 0 AS flag,
    CASE WHEN i % 17 = 0 THEN NULL ELSE ((i * 13) % 50)::DOUBLE / 4 END AS f64, ((i * 3) % 80)::DECIMAL(10, 2) / 8 AS num,
    DATE '2022-11-01' + (i % 20)::INTEGER AS day
FROM range(200) AS r(i);
CREATE TABLE items AS SELECT * FROM (VALUES ('pen'), ('pencil'), ('book')) AS t(item);
CREATE TABLE trees AS SELECT * FROM (VALUES ('ash', 1), ('elm', 2), ('oak', 2), ('yew', 3)) AS t(tree, height);
