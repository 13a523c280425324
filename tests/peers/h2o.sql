-- case: q1 sum by one text
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
SELECT id1, SUM(v1) AS v1 FROM x GROUP BY id1
----
answered
====
-- case: q2 sum by two texts
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id1, id2, SUM(v1) AS v1 FROM x GROUP BY id1, id2
----
answered
====
-- case: q3 sum and mean by a text of many values
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id3, SUM(v1) AS v1, AVG(v3) AS v3 FROM x GROUP BY id3
----
answered
====
-- case: q4 three means by a number
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id4, AVG(v1) AS v1, AVG(v2) AS v2, AVG(v3) AS v3 FROM x GROUP BY id4
----
answered
====
-- case: q5 three sums by a number of many values
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id6, SUM(v1) AS v1, SUM(v2) AS v2, SUM(v3) AS v3 FROM x GROUP BY id6
----
answered
====
-- case: q6 median and deviation by two numbers
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id4, id5, QUANTILE_CONT(v3, 0.5) > 0 AS m, STDDEV(v3) AS s FROM x GROUP BY id4, id5
----
answered
====
-- case: q7 range of two values by a text
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- slack: 0.03
-- seen: who
SELECT id3, MAX(v1) - MIN(v2) AS r FROM x GROUP BY id3
----
answered
====
-- case: q8 the two largest of each group
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- reason: window
SELECT id6, v3 FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS o FROM x WHERE v3 IS NOT NULL) WHERE o <= 2
----
refused: PrivacyError: a window function below the aggregation mixes the rows
====
-- case: q9 a squared correlation by two keys
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id2, id4, POW(CORR(v1, v2), 2) AS r2 FROM x GROUP BY id2, id4
----
answered
====
-- case: q9 a correlation of all
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
SELECT CORR(v1, v2), COVAR_POP(v1, v2), REGR_SLOPE(v1, v2) FROM x
----
answered
====
-- case: q10 sum and count by all six
-- from: H2O.ai db-benchmark, group-by questions 1 to 10 (duckdb/groupby-duckdb.R)
-- seen: who
SELECT id1, id2, id3, id4, id5, id6, SUM(v3) AS v3, COUNT(*) AS c FROM x GROUP BY id1, id2, id3, id4, id5, id6
----
answered
====
-- case: j1 small inner by a number
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*), SUM(x.v3), SUM(small.v) FROM x JOIN small USING (id4)
----
answered
====
-- case: j2 medium inner by a number
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*), SUM(x.v3), SUM(medium.v) FROM x JOIN medium USING (id6)
----
answered
====
-- case: j3 medium outer by a number
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*), SUM(x.v3), SUM(medium.v) FROM x LEFT JOIN medium USING (id6)
----
answered
====
-- case: j4 medium inner by a text
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*), SUM(x.v3), SUM(medium.v) FROM x JOIN medium USING (id3)
----
answered
====
-- case: j5 own table by the unit
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*), SUM(x.v3), SUM(own.w) FROM x JOIN own USING (who)
----
answered
====
-- case: the rows of a join
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
-- reason: rows
SELECT x.*, small.v FROM x JOIN small USING (id4)
----
refused: PrivacyError: rows of x can't be released.
====
-- case: outer by a number, missing counted
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*) FILTER (WHERE medium.v IS NULL) FROM x LEFT JOIN medium USING (id6)
----
answered
====
-- case: first letters
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
-- seen: who
SELECT LEFT(id3, 3) AS p, COUNT(*), AVG(v2) FROM x GROUP BY p
----
answered
====
-- case: counts of all and of what is there
-- from: H2O.ai db-benchmark, join questions 1 to 5 (duckdb/join-duckdb.R)
SELECT COUNT(*), COUNT(v1), COUNT(v3), COUNT(DISTINCT id3) FROM x
----
answered
