-- case: ranges that one row may meet several of
WITH c(lo, hi) AS (VALUES (0, 3), (2, 5)) SELECT c.lo, COUNT(*) FROM bids JOIN c ON bids.bid BETWEEN c.lo AND c.hi GROUP BY c.lo
----
PrivacyError: with rows as the privacy unit, each may meet one row of c, and here it may meet several.
  1 |   LECT c.lo, COUNT(*) FROM bids JOIN c ON bids.bid BETWEEN c.lo AND c.hi GROUP BY c.lo
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write SELECT lo, hi, EXPMECH(COUNT(*) FILTER (WHERE bids.bid BETWEEN c.lo AND c.hi), answer => TRUE) OVER c FROM bids: it chooses the fullest; or count each range in a column of its own, with a filter, or group by bins.
====
-- case: all columns
SELECT * FROM visits
----
PrivacyError: rows of visits can't be released.
  1 |   SELECT * FROM visits
               ^
Hint: try SELECT COUNT(*) FROM visits.
====
-- case: a column
SELECT age FROM visits
----
PrivacyError: age must be a group or be inside an aggregate.
  1 |   SELECT age FROM visits
               ^^^
Hint: write AVG(age), or group by it and count the rows.
====
-- case: a column beside a count
SELECT age, COUNT(*) FROM visits
----
PrivacyError: age must be a group or be inside an aggregate.
  1 |   SELECT age, COUNT(*) FROM visits
               ^^^
Hint: write AVG(age), or add it to the groups: GROUP BY age.
====
-- case: the privacy unit
SELECT patient_id FROM visits
----
PrivacyError: patient_id is the privacy unit: it is never released.
  1 |   SELECT patient_id FROM visits
               ^^^^^^^^^^
Hint: write COUNT(DISTINCT patient_id): it counts the units.
====
-- case: the privacy unit as a key
SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id
----
PrivacyError: the privacy unit can't be a group: each group would be one unit.
  1 |   SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id
                                                         ^^^^^^^^^^
Hint: write COUNT(DISTINCT patient_id) instead of the group: it counts the units; totals per patient_id may be in a subquery.
====
-- case: a key made from the privacy unit
SELECT patient_id % 10 AS k, COUNT(*) FROM visits GROUP BY k
----
PrivacyError: groups can't be made of the privacy unit.
  1 |   SELECT patient_id % 10 AS k, COUNT(*) FROM visits GROUP BY k
               ^^^^^^^^^^^^^^^
Hint: write COUNT(DISTINCT patient_id) instead of the group: it counts the units; totals per patient_id may be in a subquery.
====
-- case: a sum of the privacy unit
SELECT SUM(patient_id) FROM visits
----
PrivacyError: SUM(patient_id) needs bounds for patient_id; the policy declares none.
  1 |   SELECT SUM(patient_id) FROM visits
               ^^^^^^^^^^^^^^^
Hint: write SUM(patient_id, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: DISTINCT ON
SELECT DISTINCT ON (city) city, age FROM visits
----
PrivacyError: DISTINCT ON would choose private rows.
  1 |   SELECT DISTINCT ON (city) city, age FROM visits
                            ^^^^
Hint: aggregate in a subquery first, and choose from its answer.
====
-- case: LIMIT below the aggregation
SELECT COUNT(*) FROM (SELECT * FROM visits LIMIT 10) v
----
PrivacyError: LIMIT below the aggregation would choose rows by other people's rows.
  1 |   SELECT COUNT(*) FROM (SELECT * FROM visits LIMIT 10) v
                                                         ^^
Hint: aggregate first; the answer may be ordered and cut freely.
====
-- case: ORDER BY and LIMIT below the aggregation
SELECT AVG(age) FROM (SELECT age FROM visits ORDER BY age DESC LIMIT 1) v
----
PrivacyError: LIMIT below the aggregation would choose rows by other people's rows.
  1 |   SELECT AVG(age) FROM (SELECT age FROM visits ORDER BY age DESC LIMIT 1) v
                                                                             ^
Hint: aggregate first; the answer may be ordered and cut freely.
====
-- case: a sample
SELECT COUNT(*) FROM visits TABLESAMPLE 10%
----
PrivacyError: a sample can't be taken of private rows.
  1 |   SELECT COUNT(*) FROM visits TABLESAMPLE 10%
                             ^^^^^^^^^^^^^^^^^^^^^
Hint: aggregate all rows: no sample of them is drawn here.
====
-- case: a sample of the statement
SELECT COUNT(*) FROM visits USING SAMPLE 10
----
PrivacyError: USING SAMPLE can't be used on private rows.
  1 |   SELECT COUNT(*) FROM visits USING SAMPLE 10
                                                 ^^
Hint: aggregate all rows: no sample of them is drawn here.
====
-- case: a window function below the aggregation
SELECT SUM(r) FROM (SELECT row_number() OVER (ORDER BY age) AS r FROM visits) v
----
PrivacyError: a window function below the aggregation mixes the rows of several units.
  1 |   SELECT SUM(r) FROM (SELECT row_number() OVER (ORDER BY age) AS r FROM visits) v
                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY age), or aggregate first; windows may follow.
====
-- case: a window function in the block
SELECT rank() OVER (ORDER BY age) FROM visits
----
PrivacyError: age must be a group or be inside an aggregate.
  1 |   SELECT rank() OVER (ORDER BY age) FROM visits
                                     ^^^
Hint: write AVG(age), or group by it and count the rows.
====
-- case: QUALIFY
SELECT age FROM visits QUALIFY row_number() OVER (ORDER BY age) = 1
----
PrivacyError: age must be a group or be inside an aggregate.
  1 |   SELECT age FROM visits QUALIFY row_number() OVER (ORDER BY age) = 1
               ^^^
Hint: write AVG(age), or group by it and count the rows.
====
-- case: a private table in IN
SELECT ward FROM wards WHERE ward IN (SELECT ward FROM visits)
----
PrivacyError: ward must be a group or be inside an aggregate.
  1 |   SELECT ward FROM wards WHERE ward IN (SELECT ward FROM visits)
                                                     ^^^^
Hint: write (SELECT ward FROM visits GROUP BY ward HAVING COUNT(*) > 0): the list is released.
====
-- case: a private table in EXISTS
SELECT ward FROM wards WHERE EXISTS (SELECT 1 FROM visits WHERE visits.ward = wards.ward)
----
PrivacyError: EXISTS over private rows would show exactly whether there are any.
  1 |   SELECT ward FROM wards WHERE EXISTS (SELECT 1 FROM visits WHERE visits.ward = wards.ward)
                                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: release the keys of the private rows first, with a noisy count of each, and join that answer.
====
-- case: a private scalar subquery
SELECT COUNT(*) FROM visits WHERE age > (SELECT age FROM visits)
----
PrivacyError: a subquery over private rows would let one unit decide about the rows of others.
  1 |   SELECT COUNT(*) FROM visits WHERE age > (SELECT age FROM visits)
                                                        ^^^^^^^^^^^^^^^
Hint: look at rows of the same unit: call it visits2 and add visits2.patient_id = visits.patient_id to its WHERE.
====
-- case: a private table in a block's IN
SELECT COUNT(*) FROM visits WHERE age IN (SELECT income FROM patients)
----
PrivacyError: a subquery over private rows would let one unit decide about the rows of others.
  1 |   SELECT COUNT(*) FROM visits WHERE age IN (SELECT income FROM patients)
                                                         ^^^^^^^^^^^^^^^^^^^^
Hint: look at rows of the same unit: add patients.patient_id = visits.patient_id to its WHERE.
====
-- case: a union of rows
SELECT age FROM visits UNION ALL SELECT income FROM patients
----
PrivacyError: age must be a group or be inside an aggregate.
  1 |   SELECT age FROM visits UNION ALL SELECT income FROM patients
               ^^^
Hint: write AVG(age), or group by it and count the rows.
====
-- case: a cross join of private tables
SELECT COUNT(*) FROM visits, patients
----
PrivacyError: private tables are joined on something other than their privacy unit.
  1 |   SELECT COUNT(*) FROM visits, patients
                                     ^^^^^^^^
Hint: no policy lets different people's rows meet; for each person's own rows, add visits.patient_id = patients.patient_id to WHERE.
====
-- case: a join beside the unit
SELECT COUNT(*) FROM visits JOIN patients ON visits.age = patients.income
----
PrivacyError: private tables are joined on something other than their privacy unit.
  1 |   SELECT COUNT(*) FROM visits JOIN patients ON visits.age = patients.income
                                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: no policy lets different people's rows meet; for each person's own rows, add visits.patient_id = patients.patient_id to ON.
====
-- case: a self join beside the unit
SELECT COUNT(*) FROM visits a JOIN visits b ON a.city = b.city
----
PrivacyError: private tables are joined on something other than their privacy unit.
  1 |   SELECT COUNT(*) FROM visits a JOIN visits b ON a.city = b.city
                                                       ^^^^^^^^^^^^^^^
Hint: no policy lets different people's rows meet; for each person's own rows, add a.patient_id = b.patient_id to ON.
====
-- case: PIVOT
SELECT * FROM (PIVOT visits ON ward USING COUNT(*))
----
PrivacyError: PIVOT without GROUP BY has a row for each value of all other columns, and patient_id tells people apart.
  1 |   SELECT * FROM (PIVOT visits ON ward USING COUNT(*))
                                       ^^^^^^^^^^^^^^^^^^^
Hint: write (SELECT ward FROM visits) instead of visits, for one row.
====
-- case: COLUMNS
SELECT COLUMNS('a.*') FROM visits
----
PrivacyError: patient_id is the privacy unit: it is never released.
  1 |   SELECT COLUMNS('a.*') FROM visits
               ^^^^^^^^^^^^^^
Hint: write COUNT(DISTINCT patient_id): it counts the units.
====
-- case: UNNEST
SELECT COUNT(*) FROM (SELECT unnest([1, 2, 3]) + 1 FROM visits) v
----
PrivacyError: unnest can't be used on private rows: it makes rows of a row; in FROM it may stand, behind the table and a comma.
  1 |   SELECT COUNT(*) FROM (SELECT unnest([1, 2, 3]) + 1 FROM visits) v
                                     ^^^^^^^^^^^^^^^^^
====
-- case: a recursive CTE
WITH RECURSIVE r AS (SELECT age FROM visits UNION ALL SELECT age + 1 FROM r) SELECT COUNT(*) FROM r
----
PrivacyError: a set operation can't combine private rows with public ones.
  1 |   WITH RECURSIVE r AS (SELECT age FROM visits UNION ALL SELECT age + 1 FROM r) SELECT COUNT(*) FROM r
                                    ^^^^^^^^^^^^^^^
Hint: aggregate each side first, then combine the answers.
====
-- case: a private table above a private block
SELECT n, age FROM (SELECT WITH DP COUNT(*) AS n FROM visits) s, visits
----
PrivacyError: n must be a group or be inside an aggregate.
  1 |   SELECT n, age FROM (SELECT WITH DP COUNT(*) AS n FROM visits) s, visits
               ^
Hint: write AVG(n), or group by it and count the rows.
