-- The group-by table: three texts, three numbers that are keys, three values, some of them missing; and what it is joined with.
CREATE TABLE x AS SELECT i % 100 AS who, 'id' || (i % 4) AS id1, 'id' || (i * 3 % 5) AS id2, 'id' || (i % 60) AS id3, i % 4 AS id4, (i * 3) % 5 AS id5, (i * 7) % 60 AS id6,
    CASE WHEN i % 19 = 0 THEN NULL ELSE 1 + (i // 3) % 5 END AS v1, 1 + (i * 7) % 15 AS v2, CASE WHEN i % 23 = 0 THEN NULL ELSE round(((i * 7919) % 100000) / 1000.0, 3) END AS v3
FROM range(800) AS r(i);
CREATE TABLE small AS SELECT i AS id4, 'id' || i AS id1, i * 1.5 AS v FROM range(3) AS r(i);
CREATE TABLE medium AS SELECT i AS id6, 'id' || i AS id3, i * 2.5 AS v FROM range(0, 60, 2) AS r(i);
CREATE TABLE own AS SELECT i AS who, i * 0.5 AS w FROM range(0, 100, 3) AS r(i);
