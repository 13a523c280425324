-- case: a mode with options
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) COUNT(*) FROM visits
----
query SELECT COUNT(*) FROM visits
  with DP (epsilon = 1, delta = 1e-6)
====
-- case: the mode's long name
select with differential_privacy options(epsilon=0.10) count( * ) from visits;
----
query SELECT COUNT(*) FROM visits
  with differential_privacy (epsilon = 0.10)
====
-- case: a mode without options
SELECT WITH DP COUNT(*) FROM visits
----
query SELECT COUNT(*) FROM visits
  with DP ()
====
-- case: no mode
SELECT COUNT(*) FROM visits
----
query SELECT COUNT(*) FROM visits
====
-- case: WITH without a mode is a CTE
WITH dp AS (SELECT 1 AS a) SELECT a FROM dp
----
query WITH dp AS (SELECT 1 AS a) SELECT a FROM dp
====
-- case: two modes, at two depths
WITH s AS (SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT s.n, (SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) FROM visits) AS total FROM s
----
query WITH s AS (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT s.n, (SELECT COUNT(*) FROM visits) AS total FROM s
  with DP (epsilon = 0.5)
  with DP (epsilon = 1)
====
-- case: named arguments
SELECT AVG(amount, contribution_bounds_per_row => (0, 100), epsilon => 0.5) FROM visits
----
query SELECT dpsql__avg(amount, contribution_bounds_per_row => (0, 100), epsilon => 0.5) FROM visits
====
-- case: automatic bounds
SELECT SUM(weight, contribution_bounds_per_row => AUTO) FROM visits
----
query SELECT dpsql__sum(weight, contribution_bounds_per_row => AUTO) FROM visits
====
-- case: DISTINCT and FILTER keep their places
SELECT COUNT(DISTINCT patient_id, epsilon => 1) FILTER (WHERE age > 60) FROM visits
----
query SELECT dpsql__count(DISTINCT patient_id, epsilon => 1) FILTER(WHERE age > 60) FROM visits
====
-- case: a selection over candidates
SELECT name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, epsilon => 1) OVER diseases AS hit FROM visits
----
query SELECT name, dpsql__above_threshold(COUNT(*) FILTER(WHERE disease = name), 100, epsilon => 1) OVER diseases AS hit FROM visits
====
-- case: a choice among values
WITH prices(p) AS (VALUES (1.00), (3.00), (3.01)) SELECT EXPMECH(p * COUNT(*) FILTER (WHERE bid >= p), epsilon => 1) OVER prices FROM bids
----
query WITH prices(p) AS (SELECT * FROM (VALUES (1.00), (3.00), (3.01)) AS _values) SELECT dpsql__expmech(p * COUNT(*) FILTER(WHERE bid >= p), epsilon => 1) OVER prices FROM bids
====
-- case: propose, test, release
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) AS spread FROM visits
----
query SELECT IQR(age) AS spread FROM visits
  with PTR (epsilon = 1, delta = 1e-6)
====
-- case: a stable answer
SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(age) AS spread, TRIMMED_MEAN(age, 0.1) FROM visits
----
query SELECT IQR(age) AS spread, TRIMMED_MEAN(age, 0.1) FROM visits
  with STABLE (epsilon = 1)
====
-- case: subsample and aggregate
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 100, combine = 'winsorized_mean', bounds = (-1, 1)) CORR(age, amount) AS r FROM visits
----
query SELECT CORR(age, amount) AS r FROM visits
  with SUBSAMPLE (epsilon = 1, blocks = 100, combine = 'winsorized_mean', bounds = (-1, 1))
====
-- case: declare, probe, close
DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 3);
SELECT WITH alarm COUNT(*) FROM visits WHERE week = 12;
CLOSE alarm;
----
declare alarm SELECT 100
  with ABOVE_THRESHOLD (epsilon = 1, max_hits = 3)
query SELECT COUNT(*) FROM visits WHERE week = 12
  with alarm ()
close alarm
====
-- case: declare stable questions
DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6, max_unstable = 5);
SELECT WITH alarm MODE(ward) FROM visits
----
declare alarm SELECT 0
  with STABLE (epsilon = 1, delta = 1e-6, max_unstable = 5)
query SELECT MODE(ward) FROM visits
  with alarm ()
====
-- case: explain
EXPLAIN SELECT COUNT(*) FROM visits
----
explain SELECT COUNT(*) FROM visits
====
-- case: explain as JSON
EXPLAIN (FORMAT JSON) SELECT COUNT(*) FROM visits
----
explain json SELECT COUNT(*) FROM visits
====
-- case: show
SHOW BUDGET; show ledger; SHOW Tables; SHOW POLICY; SHOW TRADEOFF
----
show BUDGET
show LEDGER
show TABLES
show POLICY
show TRADEOFF
====
-- case: comments and semicolons
;; -- nothing here
/* nor /* nested */ here */ SELECT 1; ; -- the end
----
query SELECT 1
====
-- case: only comments
-- just thinking
----
(no statement)
====
-- case: a parameter is a value
-- params: {"city": "Delft'; DROP TABLE visits", "age": 30}
SELECT COUNT(*) FROM visits WHERE city = $city AND age > $age
----
query SELECT COUNT(*) FROM visits WHERE city = 'Delft''; DROP TABLE visits' AND age > 30
====
-- case: a parameter that is missing data
-- params: {"city": null}
SELECT COUNT(*) FROM visits WHERE city IS NOT DISTINCT FROM $city
----
query SELECT COUNT(*) FROM visits WHERE city IS NOT DISTINCT FROM NULL
====
-- case: parameters in a candidate list
-- params: {"low": -1.5, "high": 20}
WITH c(t) AS (VALUES ($low), ($high)) SELECT EXPMECH(COUNT(*) FILTER (WHERE amount > t)) OVER c FROM visits
----
query WITH c(t) AS (SELECT * FROM (VALUES (-1.5), (20)) AS _values) SELECT EXPMECH(COUNT(*) FILTER(WHERE amount > t)) OVER c FROM visits
====
-- case: FROM first
FROM wards SELECT ward
----
query SELECT ward FROM wards
====
-- case: numbers keep their digits
SELECT WITH DP OPTIONS (epsilon = 0.10000000000000000000001) COUNT(*) FROM visits
----
query SELECT COUNT(*) FROM visits
  with DP (epsilon = 0.10000000000000000000001)
====
-- case: a table named like a mode
SELECT dp.ward FROM wards AS dp
----
query SELECT dp.ward FROM wards AS dp
====
-- case: a mode before its SELECT
WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) SELECT IQR(age) FROM visits
----
query SELECT IQR(age) FROM visits
  with PTR (epsilon = 1, delta = 1e-6)
====
-- case: a mode behind its SELECT
SELECT IQR(age) FROM visits WITH PTR OPTIONS (epsilon = 1, delta = 1e-6)
----
query SELECT IQR(age) FROM visits
  with PTR (epsilon = 1, delta = 1e-6)
====
-- case: a mode within its own parentheses
WITH spread AS (WITH PTR SELECT IQR(age) AS q FROM visits) SELECT q, (SELECT COUNT(*) FROM visits WITH DP) AS n FROM spread
----
query WITH spread AS (SELECT IQR(age) AS q FROM visits) SELECT q, (SELECT COUNT(*) FROM visits) AS n FROM spread
  with DP ()
  with PTR ()
====
-- case: show what was spent, groups, accountants
SHOW TRADEOFF SPENT; show groups; SHOW Accountants
----
show TRADEOFF SPENT
show GROUPS
show ACCOUNTANTS
====
-- case: a synthetic table, with and without a number of rows
CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM visits; create or replace synthetic table t rows 50 as select ward from visits; EXPLAIN CREATE SYNTHETIC TABLE s AS SELECT ward FROM visits WITH DP
----
query SELECT ward, urgent FROM visits
  with SYNTHETIC TABLE (epsilon = 1)
query SELECT ward FROM visits
  with SYNTHETIC TABLE (rows = 50)
explain SELECT ward FROM visits
  with SYNTHETIC TABLE ()
====
-- case: releases
CREATE RELEASE daily AS SELECT WITH DP ward, COUNT(*) AS n FROM visits GROUP BY ward; create or replace release "Daily" as from visits select count(*); CREATE RELEASE IF NOT EXISTS x AS SELECT 1; REFRESH RELEASE daily; EXPLAIN (FORMAT JSON) REFRESH RELEASE daily; DROP RELEASE IF EXISTS daily; drop release x; SHOW releases
----
query SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward
  with DP ()
query SELECT COUNT(*) FROM visits
query SELECT 1
query
explain json
drop
drop
show RELEASES
