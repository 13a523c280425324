-- case: no epsilon
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT COUNT(x) FROM three_units
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS() COUNT(x) FROM three_units
----
answered
====
-- case: delta above one
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1.01) SUM(x, contribution_bounds_per_group => (0, 10)) FROM one_each
----
refused: BindError: delta must be at least 0 and below 1.
====
-- case: sum of n of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT SUM(GREATEST(LEAST(a, 3), 2)) FROM (SELECT SUM(n) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (2, 3)) FROM one_each
----
answered
====
-- case: mean of n of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT AVG(GREATEST(LEAST(a, 3), 2)) FROM (SELECT AVG(n) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n, contribution_bounds_per_group => (2, 3)) FROM one_each
----
answered
====
-- case: sum of n of one_each, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n) FROM one_each
----
answered
====
-- case: mean of n of one_each, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n) FROM one_each
----
answered
====
-- case: variance of n of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(n) FROM one_each
----
answered
====
-- case: deviation of n of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(n) FROM one_each
----
answered
====
-- case: variance of n of one_each, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT VAR_POP(CASE WHEN n < 2 THEN 2 WHEN n > 3 THEN 3 ELSE n END) FROM one_each
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(n, contribution_bounds_per_row => (2.0, 3.0)) FROM one_each
----
answered
====
-- case: deviation of n of one_each, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT STDDEV_POP(CASE WHEN n < 2 THEN 2 WHEN n > 3 THEN 3 ELSE n END) FROM one_each
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(n, contribution_bounds_per_row => (2, 3)) FROM one_each
----
answered
====
-- case: count of n of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(n, contribution_bounds_per_group => (0, 10)) FROM one_each
----
answered
====
-- case: tenths of n of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT QUANTILE_DISC(n, [0, 0.2, 0.4, 0.6, 0.8, 1]) FROM one_each
-- slack: 0.01
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) APPROX_QUANTILES(n, 5, contribution_bounds_per_row => (-2, 10)) FROM one_each
----
answered
====
-- case: number of tenths of n of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 6
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) LEN(APPROX_QUANTILES(n, 5, contribution_bounds_per_row => (1, 3))) FROM one_each
----
answered
====
-- case: report of the sum of n of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT (SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(n) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL)::DOUBLE
SELECT json_extract(r, '$.result.value')::DOUBLE FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (0, 10), report_format => 'JSON') AS r FROM one_each)
----
answered
====
-- case: report of the count of n of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT COUNT(n) FROM one_each
SELECT json_extract(r, '$.result.value')::BIGINT FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(n, report_format => 'JSON') AS r FROM one_each)
----
answered
====
-- case: sum of x of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(x) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x, contribution_bounds_per_group => (0, 10)) FROM one_each
----
answered
====
-- case: mean of x of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT AVG(GREATEST(LEAST(a, 10), 0)) FROM (SELECT AVG(x) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(x, contribution_bounds_per_group => (0, 10)) FROM one_each
----
answered
====
-- case: sum of x of one_each, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x) FROM one_each
----
answered
====
-- case: mean of x of one_each, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(x) FROM one_each
----
answered
====
-- case: variance of x of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x) FROM one_each
----
answered
====
-- case: deviation of x of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(x) FROM one_each
----
answered
====
-- case: variance of x of one_each, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT VAR_POP(CASE WHEN x < 2 THEN 2 WHEN x > 3 THEN 3 ELSE x END) FROM one_each
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x, contribution_bounds_per_row => (2.0, 3.0)) FROM one_each
----
answered
====
-- case: deviation of x of one_each, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT STDDEV_POP(CASE WHEN x < 2 THEN 2 WHEN x > 3 THEN 3 ELSE x END) FROM one_each
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(x, contribution_bounds_per_row => (2, 3)) FROM one_each
----
answered
====
-- case: count of x of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(x, contribution_bounds_per_group => (0, 10)) FROM one_each
----
answered
====
-- case: tenths of x of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT QUANTILE_DISC(x, [0, 0.2, 0.4, 0.6, 0.8, 1]) FROM one_each
-- slack: 0.01
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) APPROX_QUANTILES(x, 5, contribution_bounds_per_row => (-2, 10)) FROM one_each
----
answered
====
-- case: number of tenths of x of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 6
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) LEN(APPROX_QUANTILES(x, 5, contribution_bounds_per_row => (1, 3))) FROM one_each
----
answered
====
-- case: report of the sum of x of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT (SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(x) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL)::DOUBLE
SELECT json_extract(r, '$.result.value')::DOUBLE FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x, contribution_bounds_per_group => (0, 10), report_format => 'JSON') AS r FROM one_each)
----
answered
====
-- case: report of the count of x of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT COUNT(x) FROM one_each
SELECT json_extract(r, '$.result.value')::BIGINT FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(x, report_format => 'JSON') AS r FROM one_each)
----
answered
====
-- case: percentile of one_each, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT TRUE, TRUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ABS(PERCENTILE_CONT(x, 0.4) - 1.5) < 0.01, ABS(PERCENTILE_CONT(n, 0.6) - 2) < 0.01 FROM one_each
----
answered
====
-- case: percentile of one_each, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT TRUE, TRUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ABS(PERCENTILE_CONT(x, 0.4, contribution_bounds_per_row => (1, 3)) - 1.5) < 0.01, ABS(PERCENTILE_CONT(n, 0.6, contribution_bounds_per_row => (1, 3)) - 2) < 0.01 FROM one_each
----
answered
====
-- case: high percentile of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT TRUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ABS(PERCENTILE_CONT(x, 0.7) - 2.5) < 0.01 FROM one_each
----
answered
====
-- case: sum and count of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (0, 30)), COUNT(x, contribution_bounds_per_group => (0, 10)) FROM one_each
----
answered
====
-- case: mean and count of one_each, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT (SELECT AVG(GREATEST(LEAST(a, 3), 2)) FROM (SELECT AVG(n) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL), (SELECT COUNT(x) FROM one_each)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n, contribution_bounds_per_group => (2, 3)), COUNT(x, contribution_bounds_per_group => (0, 10)) FROM one_each
----
answered
====
-- case: count of one_each times three
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 30
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM one_each CROSS JOIN UNNEST([1, 2, 3]) AS v(k)
----
answered
====
-- case: groups of one_each times three
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=3) k, COUNT(*) FROM one_each CROSS JOIN (VALUES (1), (2), (3)) AS v(k) GROUP BY k ORDER BY k
----
answered
====
-- case: proto reports of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x, report_format => 'PROTO') FROM one_each
----
refused: BindError: report_format can't be PROTO.
====
-- case: nothing left of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 0, 0
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*), SUM(n, contribution_bounds_per_group => (0, 10)) FROM one_each WHERE uid > 1000
----
answered
====
-- case: a mean of nothing of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n) FROM one_each WHERE uid > 1000
----
answered
====
-- case: sum of n of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT SUM(GREATEST(LEAST(a, 3), 2)) FROM (SELECT SUM(n) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (2, 3)) FROM three_units
----
answered
====
-- case: mean of n of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT AVG(GREATEST(LEAST(a, 3), 2)) FROM (SELECT AVG(n) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n, contribution_bounds_per_group => (2, 3)) FROM three_units
----
answered
====
-- case: sum of n of three_units, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n) FROM three_units
----
answered
====
-- case: mean of n of three_units, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n) FROM three_units
----
answered
====
-- case: variance of n of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(n) FROM three_units
----
answered
====
-- case: deviation of n of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(n) FROM three_units
----
answered
====
-- case: variance of n of three_units, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT VAR_POP(CASE WHEN n < 2 THEN 2 WHEN n > 3 THEN 3 ELSE n END) FROM three_units
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(n, contribution_bounds_per_row => (2.0, 3.0)) FROM three_units
----
answered
====
-- case: deviation of n of three_units, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT STDDEV_POP(CASE WHEN n < 2 THEN 2 WHEN n > 3 THEN 3 ELSE n END) FROM three_units
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(n, contribution_bounds_per_row => (2, 3)) FROM three_units
----
answered
====
-- case: count of n of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(n, contribution_bounds_per_group => (0, 10)) FROM three_units
----
answered
====
-- case: tenths of n of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT QUANTILE_DISC(n, [0, 0.2, 0.4, 0.6, 0.8, 1]) FROM three_units
-- slack: 0.01
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) APPROX_QUANTILES(n, 5, contribution_bounds_per_row => (-2, 10)) FROM three_units
----
answered
====
-- case: number of tenths of n of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 6
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) LEN(APPROX_QUANTILES(n, 5, contribution_bounds_per_row => (1, 3))) FROM three_units
----
answered
====
-- case: report of the sum of n of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT (SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(n) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL)::DOUBLE
SELECT json_extract(r, '$.result.value')::DOUBLE FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (0, 10), report_format => 'JSON') AS r FROM three_units)
----
answered
====
-- case: report of the count of n of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT COUNT(n) FROM three_units
SELECT json_extract(r, '$.result.value')::BIGINT FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(n, report_format => 'JSON') AS r FROM three_units)
----
answered
====
-- case: sum of x of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(x) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x, contribution_bounds_per_group => (0, 10)) FROM three_units
----
answered
====
-- case: mean of x of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT AVG(GREATEST(LEAST(a, 10), 0)) FROM (SELECT AVG(x) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(x, contribution_bounds_per_group => (0, 10)) FROM three_units
----
answered
====
-- case: sum of x of three_units, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x) FROM three_units
----
answered
====
-- case: mean of x of three_units, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(x) FROM three_units
----
answered
====
-- case: variance of x of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x) FROM three_units
----
answered
====
-- case: deviation of x of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(x) FROM three_units
----
answered
====
-- case: variance of x of three_units, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT VAR_POP(CASE WHEN x < 2 THEN 2 WHEN x > 3 THEN 3 ELSE x END) FROM three_units
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x, contribution_bounds_per_row => (2.0, 3.0)) FROM three_units
----
answered
====
-- case: deviation of x of three_units, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT STDDEV_POP(CASE WHEN x < 2 THEN 2 WHEN x > 3 THEN 3 ELSE x END) FROM three_units
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(x, contribution_bounds_per_row => (2, 3)) FROM three_units
----
answered
====
-- case: count of x of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(x, contribution_bounds_per_group => (0, 10)) FROM three_units
----
answered
====
-- case: tenths of x of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT QUANTILE_DISC(x, [0, 0.2, 0.4, 0.6, 0.8, 1]) FROM three_units
-- slack: 0.01
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) APPROX_QUANTILES(x, 5, contribution_bounds_per_row => (-2, 10)) FROM three_units
----
answered
====
-- case: number of tenths of x of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 6
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) LEN(APPROX_QUANTILES(x, 5, contribution_bounds_per_row => (1, 3))) FROM three_units
----
answered
====
-- case: report of the sum of x of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT (SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(x) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL)::DOUBLE
SELECT json_extract(r, '$.result.value')::DOUBLE FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x, contribution_bounds_per_group => (0, 10), report_format => 'JSON') AS r FROM three_units)
----
answered
====
-- case: report of the count of x of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT COUNT(x) FROM three_units
SELECT json_extract(r, '$.result.value')::BIGINT FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(x, report_format => 'JSON') AS r FROM three_units)
----
answered
====
-- case: percentile of three_units, bounds of the policy
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT TRUE, TRUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ABS(PERCENTILE_CONT(x, 0.4) - 1.5) < 0.01, ABS(PERCENTILE_CONT(n, 0.6) - 2) < 0.01 FROM three_units
----
answered
====
-- case: percentile of three_units, bounds of a row
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT TRUE, TRUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ABS(PERCENTILE_CONT(x, 0.4, contribution_bounds_per_row => (1, 3)) - 1.5) < 0.01, ABS(PERCENTILE_CONT(n, 0.6, contribution_bounds_per_row => (1, 3)) - 2) < 0.01 FROM three_units
----
answered
====
-- case: high percentile of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT TRUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ABS(PERCENTILE_CONT(x, 0.7) - 2.5) < 0.01 FROM three_units
----
answered
====
-- case: sum and count of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (0, 30)), COUNT(x, contribution_bounds_per_group => (0, 10)) FROM three_units
----
answered
====
-- case: mean and count of three_units, bounds of a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT (SELECT AVG(GREATEST(LEAST(a, 3), 2)) FROM (SELECT AVG(n) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL), (SELECT COUNT(x) FROM three_units)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n, contribution_bounds_per_group => (2, 3)), COUNT(x, contribution_bounds_per_group => (0, 10)) FROM three_units
----
answered
====
-- case: count of three_units times three
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 30
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM three_units CROSS JOIN UNNEST([1, 2, 3]) AS v(k)
----
answered
====
-- case: groups of three_units times three
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=3) k, COUNT(*) FROM three_units CROSS JOIN (VALUES (1), (2), (3)) AS v(k) GROUP BY k ORDER BY k
----
answered
====
-- case: proto reports of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(x, report_format => 'PROTO') FROM three_units
----
refused: BindError: report_format can't be PROTO.
====
-- case: nothing left of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 0, 0
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*), SUM(n, contribution_bounds_per_group => (0, 10)) FROM three_units WHERE uid > 1000
----
answered
====
-- case: a mean of nothing of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(n) FROM three_units WHERE uid > 1000
----
answered
====
-- case: each unit in 2 groups at most
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 400::HUGEINT
SELECT SUM(c) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=2) k, COUNT(*) AS c FROM typed CROSS JOIN (VALUES (1), (2), (3)) AS v(k) GROUP BY k)
----
answered
====
-- case: each unit in 1 groups at most
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 200::HUGEINT
SELECT SUM(c) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=1) k, COUNT(*) AS c FROM typed CROSS JOIN (VALUES (1), (2)) AS v(k) GROUP BY k)
----
answered
====
-- case: variance without values
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x, contribution_bounds_per_row => (10.0, 100.0)) FROM no_values
----
answered
====
-- case: deviation without values
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(n, contribution_bounds_per_row => (2, 3)) FROM no_values
----
answered
====
-- case: sum without values
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 0
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(n, contribution_bounds_per_group => (2, 3)) FROM no_values
----
answered
====
-- case: count without values
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(n), COUNT(*) FROM no_values
----
answered
====
-- case: variance beside an exact one
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT ABS((SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x) FROM three_units) - (SELECT VAR_POP(x) FROM three_units)) < 0.01
----
answered
====
-- case: two releases in a union
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(x), VAR_POP(n) FROM three_units UNION ALL SELECT VAR_POP(x), VAR_POP(n) FROM three_units
----
answered
====
-- case: at least 1 units in a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT n, COUNT(*) FROM one_each GROUP BY n HAVING COUNT(DISTINCT uid) >= 2 ORDER BY n
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, min_privacy_units_per_group=1) n, COUNT(*) AS c FROM one_each GROUP BY n ORDER BY n
----
answered
====
-- case: at least 2 units in a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT n, COUNT(*) FROM one_each GROUP BY n HAVING COUNT(DISTINCT uid) >= 3 ORDER BY n
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, min_privacy_units_per_group=2) n, COUNT(*) AS c FROM one_each GROUP BY n ORDER BY n
----
answered
====
-- case: at least 3 units in a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT n, COUNT(*) FROM one_each GROUP BY n HAVING COUNT(DISTINCT uid) >= 4 ORDER BY n
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, min_privacy_units_per_group=3) n, COUNT(*) AS c FROM one_each GROUP BY n ORDER BY n
----
answered
====
-- case: at least 4 units in a group
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT n, COUNT(*) FROM one_each GROUP BY n HAVING COUNT(DISTINCT uid) >= 5 ORDER BY n
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, min_privacy_units_per_group=4) n, COUNT(*) AS c FROM one_each GROUP BY n ORDER BY n
----
answered
====
-- case: at least so many units in public groups
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- reason: fault-option
-- plain: SELECT item, COUNT(*) FROM teachers GROUP BY item HAVING COUNT(DISTINCT id) >= 3
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, group_selection_strategy=PUBLIC_GROUPS, min_privacy_units_per_group=3) item, COUNT(id) FROM teachers RIGHT JOIN items USING (item) GROUP BY item
----
refused: BindError: these groups are public: all of them appear, with
====
-- case: a threshold by Laplace
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, group_selection_strategy=LAPLACE_THRESHOLD) n, COUNT(*) FROM one_each GROUP BY n
----
answered
====
-- case: an epsilon of its own for each number
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, epsilon => 1e8), SUM(n, epsilon => 2e8), AVG(x) FROM three_units
----
answered
====
-- case: more epsilon than there is
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1.1, delta=1e-9) COUNT(*, epsilon => 1.3) FROM three_units
----
refused: BindError: Epsilon overconsumption: the shares add up to 1.3 of
====
-- case: epsilon of group selection
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, group_selection_epsilon=1e8) n, COUNT(*) FROM one_each GROUP BY n
----
answered
====
-- case: public groups inside a subquery
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy.test (sums, means, counts)
-- plain: SELECT 7::HUGEINT
SELECT SUM(c) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, group_selection_strategy=PUBLIC_GROUPS) item, COUNT(id) AS c FROM teachers RIGHT JOIN items USING (item) GROUP BY item)
----
answered
====
-- case: epsilon is negative
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=-1, delta=1e-9) SUM(x) FROM one_each
----
refused: BindError: epsilon must be above 0.
====
-- case: epsilon is zero
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0, delta=1e-9) SUM(x) FROM one_each
----
refused: BindError: epsilon must be above 0.
====
-- case: epsilon is infinite
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=cast('+inf' AS DOUBLE), delta=1e-9) SUM(x) FROM one_each
----
refused: BindError: epsilon must be a number.
====
-- case: epsilon is not a number
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=cast('nan' AS DOUBLE), delta=1e-9) SUM(x) FROM one_each
----
refused: BindError: epsilon must be a number.
====
-- case: epsilon is NULL
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=NULL, delta=1e-9) SUM(x) FROM one_each
----
refused: BindError: epsilon must be a number.
====
-- case: epsilon is far too large
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e20, delta=1e-9) SUM(x) FROM one_each
----
refused: BudgetExceeded: this query asks for ε=1e+20; the policy allows ε=1000000000
====
-- case: epsilon is beyond doubles
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e309, delta=1e-9) SUM(x) FROM one_each
----
refused: BudgetExceeded: this query asks for an ε above all numbers;
====
-- case: bounds the wrong way round
-- from: GoogleSQL, zetasql/compliance/testdata/differential_privacy_errors.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (1, 0)) FROM one_each
----
refused: BindError: contribution_bounds_per_group are the wrong way round.
====
-- case: mean by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- plain: SELECT item, AVG(a) FROM (SELECT id, item, AVG(quantity) AS a FROM teachers GROUP BY id, item) AS u GROUP BY item HAVING COUNT(*) > 1
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, AVG(quantity, contribution_bounds_per_group => (0, 100)) AS q FROM teachers GROUP BY item
----
answered
====
-- case: mean by item, bounds of the policy
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, AVG(quantity) AS q FROM teachers GROUP BY item
----
answered
====
-- case: sum by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, SUM(quantity, contribution_bounds_per_group => (0, 100)) AS q FROM teachers GROUP BY item
----
answered
====
-- case: count by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, COUNT(*, contribution_bounds_per_group => (0, 100)) AS times FROM teachers GROUP BY item
----
answered
====
-- case: count of items by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, COUNT(item, contribution_bounds_per_group => (0, 100)) AS times FROM teachers GROUP BY item
----
answered
====
-- case: median by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- plain: SELECT item, TRUE FROM (VALUES ('pen'), ('pencil')) AS t(item)
SELECT item, p BETWEEN 18.9 AND 38.1 AS fits FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, PERCENTILE_CONT(quantity, 0.5, contribution_bounds_per_row => (0, 100)) AS p FROM teachers GROUP BY item)
----
answered
====
-- case: variance by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, VAR_POP(quantity, contribution_bounds_per_row => (0, 100)) FROM teachers GROUP BY item
----
answered
====
-- case: deviation by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, STDDEV_POP(quantity, contribution_bounds_per_row => (0, 100)) FROM teachers GROUP BY item
----
answered
====
-- case: quartiles by item
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- plain: SELECT item, 5 FROM (VALUES ('pen'), ('pencil')) AS t(item)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, privacy_unit_column=id) item, LEN(APPROX_QUANTILES(quantity, 4, contribution_bounds_per_row => (0, 100))) FROM teachers GROUP BY item
----
answered
====
-- case: groups named beforehand
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- plain: SELECT * FROM (VALUES ('pen', 3, 58), ('pencil', 4, 144), ('book', 0, 0)) AS t
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, group_selection_strategy=PUBLIC_GROUPS) item, COUNT(id) AS c, SUM(quantity) AS s FROM teachers RIGHT OUTER JOIN (SELECT DISTINCT item FROM UNNEST(['pen', 'pencil', 'book']) AS v(item)) USING (item) GROUP BY item
----
answered
====
-- case: groups of a public table
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=4, group_selection_strategy=PUBLIC_GROUPS) item, COUNT(id) AS c FROM teachers RIGHT OUTER JOIN items USING (item) GROUP BY item
----
answered
====
-- case: groups from the left
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, max_groups_contributed=4, group_selection_strategy=PUBLIC_GROUPS) items.item, COUNT(id) AS c FROM items LEFT JOIN teachers ON items.item = teachers.item GROUP BY items.item
----
answered
====
-- case: public groups of a private key
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, group_selection_strategy=PUBLIC_GROUPS) item, COUNT(*) FROM teachers GROUP BY item
----
refused: PrivacyError: these groups are not public.
====
-- case: public groups by a full join
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, group_selection_strategy=PUBLIC_GROUPS) item, COUNT(*) FROM teachers FULL OUTER JOIN items USING (item) GROUP BY item
----
refused: PrivacyError: these groups are not public.
====
-- case: keys without a grouping
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- reason: rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1.09, delta=1e-9, privacy_unit_column=id) item, COUNT(*) FROM teachers
----
refused: PrivacyError: item must be a group or be inside an
====
-- case: a unit of a subquery
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- seen: id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, privacy_unit_column=members.id) item, COUNT(*) FROM (SELECT * FROM teachers) AS members GROUP BY item
----
answered
====
-- case: two protected tables side by side
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- reason: join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=10, delta=1e-9) teachers.item, AVG(teachers.quantity) FROM teachers, pupils GROUP BY teachers.item
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: a mean of one group each
-- from: GoogleSQL, docs/aggregate-dp-functions.md and docs/query-syntax.md (professors and students)
-- plain: SELECT 1 WHERE FALSE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=10, delta=1e-9, max_groups_contributed=1) item, COUNT(*) FROM teachers WHERE FALSE GROUP BY item
----
answered
====
-- case: COUNT(*)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed
----
answered
====
-- case: COUNT(i64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(i64) FROM typed
----
answered
====
-- case: SUM(i64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(i64) FROM typed
----
answered
====
-- case: AVG(i64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(i64) FROM typed
----
answered
====
-- case: AVG(num)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(num) FROM typed
----
answered
====
-- case: SUM(num)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(num) FROM typed
----
answered
====
-- case: VAR_POP(i64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(i64) FROM typed
----
answered
====
-- case: VAR_POP(f64), SUM(f64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(f64), SUM(f64) FROM typed
----
answered
====
-- case: VAR_POP(i64), VAR_POP(f64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) VAR_POP(i64), VAR_POP(f64) FROM typed
----
answered
====
-- case: STDDEV_POP(i64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(i64) FROM typed
----
answered
====
-- case: STDDEV_POP(i64), STDDEV_POP(f64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(i64), STDDEV_POP(f64) FROM typed
----
answered
====
-- case: STDDEV_POP(f64), SUM(f64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(f64), SUM(f64) FROM typed
----
answered
====
-- case: STDDEV_POP(f64), VAR_POP(f64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) STDDEV_POP(f64), VAR_POP(f64) FROM typed
----
answered
====
-- case: 1 + COUNT(i64)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) 1 + COUNT(i64) FROM typed
----
answered
====
-- case: COUNT(i64 + i32)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(i64 + i32) FROM typed
----
answered
====
-- case: SUM(1)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(1) FROM typed
----
answered
====
-- case: COUNT(NULL)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(NULL) FROM typed
----
answered
====
-- case: COUNT(1 + 1)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(1 + 1) FROM typed
----
answered
====
-- case: COUNT(uid)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(uid) FROM typed
----
answered
====
-- case: COUNT(day), COUNT(flag), COUNT(tree)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(day), COUNT(flag), COUNT(tree) FROM typed
----
answered
====
-- case: COUNT(IF(TRUE, i64, NULL))
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(IF(TRUE, i64, NULL)) FROM typed
----
answered
====
-- case: SUM(IF(f64 IS NULL, 0, 1))
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(IF(f64 IS NULL, 0, 1)) FROM typed
----
answered
====
-- case: SUM(i64::DOUBLE)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(i64::DOUBLE) FROM typed
----
answered
====
-- case: COUNT(DISTINCT uid)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(DISTINCT uid) FROM typed
----
answered
====
-- case: SUM(i64) FILTER (WHERE flag)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(i64) FILTER (WHERE flag) FROM typed
----
answered
====
-- case: SUM(-i64), SUM(ABS(i64 - 5))
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(-i64), SUM(ABS(i64 - 5)) FROM typed
----
answered
====
-- case: three numbers by one key
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i32, COUNT(*, contribution_bounds_per_group => (0, 50)), COUNT(tree, contribution_bounds_per_group => (0, 50)), SUM(i64, contribution_bounds_per_group => (0, 500)) FROM typed GROUP BY i32
----
answered
====
-- case: a key alone
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) tree FROM typed GROUP BY tree
----
answered
====
-- case: two keys alone
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64, tree FROM typed GROUP BY i64, tree
----
answered
====
-- case: a number key alone
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64 FROM typed GROUP BY i64
----
answered
====
-- case: a count and its key
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(i64, contribution_bounds_per_group => (0, 50)), tree FROM typed GROUP BY tree
----
answered
====
-- case: a key plus a count
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i32 + COUNT(i64) FROM typed GROUP BY i32
----
answered
====
-- case: a count plus a key
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) + i64 FROM typed GROUP BY i64
----
answered
====
-- case: a sum of ones by a key
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64, COUNT(*), SUM(1, contribution_bounds_per_group => (0, 50)) FROM typed GROUP BY i64
----
answered
====
-- case: counts of what is there
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64, COUNT(IF(TRUE, i64, NULL)) AS c FROM typed GROUP BY 1
----
answered
====
-- case: a key that is text of a date
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) strftime(day, '%Y-%m-%d'), COUNT(*) FROM typed GROUP BY 1
----
answered
====
-- case: a key that is a date
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) day, COUNT(*), SUM(num) FROM typed GROUP BY day
----
answered
====
-- case: a boolean key and a text
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) flag, tree, AVG(f64) FROM typed GROUP BY flag, tree
----
answered
====
-- case: grouped by number of the column
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i32 % 2, tree, SUM(i64) FROM typed GROUP BY 1, 2
----
answered
====
-- case: group by all
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i32, tree, SUM(i64) FROM typed GROUP BY ALL
----
answered
====
-- case: an aggregate of keys in having
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64, COUNT(*) FROM typed GROUP BY i64 HAVING i64 > 3 AND COUNT(*) > 5
----
answered
====
-- case: a key that was left out
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(i64), tree, i64 FROM typed GROUP BY tree
----
refused: PrivacyError: i64 must be a group or be inside an
====
-- case: no aggregate
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64 FROM typed
----
refused: PrivacyError: i64 must be a group or be inside an
====
-- case: no table
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY SUM(1)
----
answered
====
-- case: maximum without bounds of its own
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- slack: 0.02
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(i64), MAX(i64) FROM typed
----
answered
====
-- case: a table that is public
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM trees
----
answered
====
-- case: distinct in front of the list
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) DISTINCT COUNT(i64) FROM typed
----
answered
====
-- case: a rank below
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: window
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT rank() OVER (ORDER BY i64) FROM typed)
----
refused: PrivacyError: a window function below the aggregation mixes the rows
====
-- case: a release inside an array
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT 200
SELECT * FROM UNNEST(ARRAY(SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed)) AS v(c)
----
answered
====
-- case: a release inside a range
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT 200
SELECT COUNT(*) FROM range((SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed)) AS r(i)
----
answered
====
-- case: a release inside exists
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT * FROM UNNEST([1]) AS v(u) WHERE EXISTS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed)
----
answered
====
-- case: a release inside in
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT * FROM UNNEST([1, 200]) AS v(u) WHERE u IN (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed)
----
answered
====
-- case: a subquery without the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(i64) FROM (SELECT i64 FROM typed)
----
answered
====
-- case: a subquery with the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(i64) FROM (SELECT i64, uid FROM typed)
----
answered
====
-- case: a subquery of a subquery
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(b) FROM (SELECT a AS b FROM (SELECT a FROM (SELECT uid AS a FROM typed)))
----
answered
====
-- case: one row of each unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT COUNT(*), uid FROM typed GROUP BY uid)
----
answered
====
-- case: one row of each unit under two names
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT COUNT(*), y FROM (SELECT x, y FROM (SELECT uid AS x, uid AS y FROM typed) GROUP BY x, y) GROUP BY y)
----
answered
====
-- case: one row of each unit plus ten
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT COUNT(*), 10 + uid AS x FROM typed GROUP BY x)
----
refused: PrivacyError: groups can't be made of the privacy unit.
====
-- case: a count of a count of all
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT COUNT(*) FROM typed)
----
answered
====
-- case: a mean of each unit's sums
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(s, contribution_bounds_per_row => (0, 100)) FROM (SELECT uid, SUM(i64) AS s FROM typed GROUP BY uid)
----
answered
====
-- case: aggregates of aggregates
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: fault-duckdb
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(COUNT(i64)) FROM typed
----
refused: PrivacyError: COUNT is inside another aggregate.
====
-- case: rollup
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i64, tree, SUM(i32) FROM typed GROUP BY ROLLUP(i64, tree)
----
answered
====
-- case: cube
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) flag, tree, SUM(i32) FROM typed GROUP BY CUBE(flag, tree)
----
answered
====
-- case: grouping sets
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) flag, tree, SUM(i32) FROM typed GROUP BY GROUPING SETS(flag, tree)
----
answered
====
-- case: grouping of a key
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) GROUPING(flag), flag, COUNT(*) FROM typed GROUP BY CUBE(flag)
----
answered
====
-- case: sum of a star
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: fault-duckdb
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(*) FROM typed
----
refused: PrivacyError: * can't be used on private rows.
====
-- case: a mode nobody knows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: fault-option
SELECT WITH custom_identifier COUNT(*) FROM typed
----
refused: BindError: there is no mode custom_identifier.
====
-- case: an aggregate for a mode
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: fault-duckdb
SELECT WITH SUM(i64) FROM typed
----
refused: ParseError: WITH takes a mode, and SUM is an aggregate.
====
-- case: the old names in the new clause
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) ANON_COUNT(*) FROM typed
----
answered
====
-- case: clamped in the new clause
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(* CLAMPED BETWEEN 0 AND 100) FROM typed
----
answered
====
-- case: bounds from a subquery
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: fault-option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) SUM(f64, contribution_bounds_per_group => (SELECT 0, 1)) FROM typed
----
refused: BindError: this query has 2 columns, and a number needs
====
-- case: bounds with fractions for a count
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT COUNT(DISTINCT uid) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0.0, 1.0)) FROM typed
----
answered
====
-- case: both clauses in a union
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed UNION ALL SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_COUNT(*) FROM typed
----
answered
====
-- case: a release times rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT 200
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed CROSS JOIN (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed)
----
answered
====
-- case: a union with the default
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed UNION ALL SELECT COUNT(*) FROM typed
----
answered
====
-- case: a constant subquery as a key
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i32, (SELECT 7) AS e, SUM(i64) FROM typed GROUP BY 1, 2
----
answered
====
-- case: private rows inside an expression
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: subquery
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) i32, COUNT(IF(EXISTS(SELECT 1 FROM typed), i32, NULL)) FROM typed GROUP BY i32
----
refused: PrivacyError: a subquery over private rows would let one unit
====
-- case: a division by zero of some rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) IF(COUNT(*) > 0, COUNT(*), COUNT(1 / (i64 - 1))) FROM typed
----
answered
====
-- case: a bound of one counts units
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT COUNT(DISTINCT uid) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1)) FROM typed
----
answered
====
-- case: a bound of two counts two rows a unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT SUM(LEAST(c, 2)) FROM (SELECT COUNT(*) AS c FROM typed GROUP BY uid)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(1, contribution_bounds_per_group => (0, 2)) FROM typed
----
answered
====
-- case: a negative bound
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- plain: SELECT -COUNT(DISTINCT uid) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (-2, -1)) FROM typed
----
answered
====
-- case: a hint before the clause
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy.test
-- reason: fault-duckdb
SELECT @{hint=1} WITH DIFFERENTIAL_PRIVACY COUNT(*) FROM typed
----
refused: ParseError: hints are not supported here.
====
-- case: joined on no condition
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a, typed b
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: joined on the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON a.uid = b.uid
----
answered
====
-- case: joined on the unit with itself
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON a.uid = a.uid
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: joined on the unit or a number
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON (a.uid = b.uid OR a.i64 = b.i64)
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: joined on the unit as text
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON CAST(a.uid AS VARCHAR) = CAST(b.uid AS VARCHAR)
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: joined on using the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b USING (uid)
----
answered
====
-- case: joined on the unit in where
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a, typed b WHERE a.uid = b.uid
----
answered
====
-- case: joined on a number
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON a.i64 = b.i64
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: joined on the unit among others
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON (a.i64 = b.i64 AND a.i32 = b.i32 AND (a.tree = b.tree AND a.uid = b.uid))
----
answered
====
-- case: joined on the unit twice
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a INNER JOIN typed b ON (a.uid = b.uid AND a.uid = b.uid)
----
answered
====
-- case: joined on two tables of trees, then the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM ((trees x CROSS JOIN trees y) CROSS JOIN typed c) INNER JOIN typed d ON c.uid = d.uid
----
answered
====
-- case: joined on a table of trees on the right
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a RIGHT JOIN trees b ON a.tree = b.tree
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: joined on a table of trees on the left
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
-- reason: subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM trees a LEFT JOIN typed b ON a.tree = b.tree
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: joined on a table of trees, rows kept
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a LEFT JOIN trees b ON a.tree = b.tree
----
answered
====
-- case: joined on a table of trees before, rows kept
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM trees a RIGHT JOIN typed b ON a.tree = b.tree
----
answered
====
-- case: joined on all rows of both
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a FULL JOIN typed b ON a.uid = b.uid
----
answered
====
-- case: joined on left by the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed a LEFT JOIN teachers b ON a.uid = b.id
----
answered
====
-- case: joined on inner by the unit of two tables
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM one_each a JOIN three_units b ON a.uid = b.uid
----
answered
====
-- case: joined on a natural join of trees
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed NATURAL JOIN trees
----
answered
====
-- case: joined on semi by the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM one_each SEMI JOIN three_units USING (uid)
----
answered
====
-- case: joined on anti by the unit
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM one_each ANTI JOIN three_units USING (uid)
----
answered
====
-- case: joined on a cross join of trees
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_join.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*, contribution_bounds_per_group => (0, 1000)) FROM typed CROSS JOIN trees
----
answered
====
-- case: options delta=0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(delta=0) COUNT(*) FROM typed
----
answered
====
-- case: options epsilon=1e9, max_groups_contributed=0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, max_groups_contributed=0) COUNT(*) FROM typed
----
refused: BindError: max_groups_contributed must be a whole number of at least
====
-- case: options foo=0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(foo=0) COUNT(*) FROM typed
----
refused: BindError: OPTIONS has no foo.
====
-- case: options f1.epsilon=0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(f1.epsilon=0) COUNT(*) FROM typed
----
refused: BindError: an option has a plain name.
====
-- case: options delta=1e-9, foo=0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(delta=1e-9, foo=0) COUNT(*) FROM typed
----
refused: BindError: OPTIONS has no foo.
====
-- case: options epsilon='0'
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon='0') COUNT(*) FROM typed
----
refused: BindError: epsilon must be a number.
====
-- case: options epsilon=1+2
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1+2) COUNT(*) FROM typed
----
refused: BindError: epsilon must be a number.
====
-- case: options epsilon=i64
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=i64) COUNT(*) FROM typed
----
refused: BindError: epsilon must be a number.
====
-- case: options max_rows_contributed=NULL
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=NULL) COUNT(*) FROM typed
----
answered
====
-- case: options max_rows_contributed=20, MAX_ROWS_CONTRIBUTED=20
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=20, MAX_ROWS_CONTRIBUTED=20) COUNT(*) FROM typed
----
refused: BindError: MAX_ROWS_CONTRIBUTED is given twice.
====
-- case: options max_rows_contributed=20, max_groups_contributed=3
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=20, max_groups_contributed=3) COUNT(*) FROM typed
----
answered
====
-- case: options max_rows_contributed=0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=0) COUNT(*) FROM typed
----
refused: BindError: max_rows_contributed must be a whole number of at least
====
-- case: options max_rows_contributed=2147483648
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=2147483648) COUNT(*) FROM typed
----
refused: BindError: max_rows_contributed must be a whole number of at least
====
-- case: options max_rows_contributed=2.0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT SUM(LEAST(c, 2)) FROM (SELECT COUNT(*) AS c FROM typed GROUP BY uid)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=2.0) COUNT(*) FROM typed
----
answered
====
-- case: options max_groups_contributed=1+2
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=1+2) COUNT(*) FROM typed
----
refused: BindError: max_groups_contributed must be a number.
====
-- case: options max_groups_contributed=2.0
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=2.0) COUNT(*) FROM typed
----
answered
====
-- case: options k_threshold=3
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(k_threshold=3) COUNT(*) FROM typed
----
refused: BindError: OPTIONS has no k_threshold.
====
-- case: options f1.epsilon=5
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(f1.epsilon=5) COUNT(*) FROM typed
----
refused: BindError: an option has a plain name.
====
-- case: options privacy_unit_column=i32
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=i32) COUNT(*) FROM typed
----
refused: PrivacyError: i32 is not the privacy unit of typed.
====
-- case: options privacy_unit_column=uid
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=uid) COUNT(*) FROM typed
----
answered
====
-- case: options privacy_unit_column=nowhere
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=nowhere) COUNT(*) FROM typed
----
refused: PrivacyError: nowhere is not the privacy unit of typed.
====
-- case: options privacy_unit_column=(SELECT 1)
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- reason: fault-option
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=(SELECT 1)) COUNT(*) FROM typed
----
refused: PrivacyError: 1 is not the privacy unit of typed.
====
-- case: options privacy_unit_column='uid'
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column='uid') COUNT(*) FROM typed
----
answered
====
-- case: options max_rows_contributed=20
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=20) COUNT(*) FROM typed
----
answered
====
-- case: options epsilon=1e9, delta=1e-9, max_groups_contributed=5, noise=LAPLACE
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9, max_groups_contributed=5, noise=LAPLACE) COUNT(*) FROM typed
----
answered
====
-- case: an option that is a parameter
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_options.test, _max_rows_contributed.test, _max_groups_contributed.test, _privacy_unit_column.test
-- plain: SELECT COUNT(*) FROM typed WHERE $e > 1
-- params: {"e": 1e9}
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=$e) COUNT(*) FROM typed
----
answered
====
-- case: UNION ALL of two releases
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) AS c FROM typed UNION ALL SELECT COUNT(*) AS c FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed UNION ALL SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed
----
answered
====
-- case: UNION ALL of rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) FROM (SELECT uid, i64 FROM typed UNION ALL SELECT uid, i64 FROM typed)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT uid, i64 FROM typed UNION ALL SELECT uid, i64 FROM typed)
----
answered
====
-- case: UNION of two releases
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) AS c FROM typed UNION SELECT COUNT(*) AS c FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed UNION SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed
----
answered
====
-- case: UNION of rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) FROM (SELECT uid, i64 FROM typed UNION SELECT uid, i64 FROM typed)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT uid, i64 FROM typed UNION SELECT uid, i64 FROM typed)
----
answered
====
-- case: INTERSECT of two releases
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) AS c FROM typed INTERSECT SELECT COUNT(*) AS c FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed INTERSECT SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed
----
answered
====
-- case: INTERSECT of rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) FROM (SELECT uid, i64 FROM typed INTERSECT SELECT uid, i64 FROM typed)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT uid, i64 FROM typed INTERSECT SELECT uid, i64 FROM typed)
----
answered
====
-- case: EXCEPT of two releases
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) AS c FROM typed EXCEPT SELECT COUNT(*) AS c FROM typed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed EXCEPT SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) AS c FROM typed
----
answered
====
-- case: EXCEPT of rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- plain: SELECT COUNT(*) FROM (SELECT uid, i64 FROM typed EXCEPT SELECT uid, i64 FROM typed)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT uid, i64 FROM typed EXCEPT SELECT uid, i64 FROM typed)
----
answered
====
-- case: rows of three unions
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM (SELECT * FROM one_each UNION ALL SELECT * FROM (SELECT * FROM one_each UNION ALL SELECT * FROM one_each))
----
answered
====
-- case: where in private rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- reason: subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed WHERE i64 IN (SELECT n FROM one_each)
----
refused: PrivacyError: a subquery over private rows would let one unit
====
-- case: where the unit is in private rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed WHERE uid IN (SELECT uid FROM one_each)
----
answered
====
-- case: where a linked row exists
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed WHERE EXISTS (SELECT 1 FROM one_each o WHERE o.uid = typed.uid AND o.x > 1)
----
answered
====
-- case: where above a release
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed WHERE i64 > (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) AVG(i64) FROM typed) + 0.01
----
answered
====
-- case: where in public rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed WHERE tree IN (SELECT tree FROM trees WHERE height > 1)
----
answered
====
-- case: a sample of rows
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- reason: cut
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed TABLESAMPLE reservoir (10 ROWS)
----
refused: PrivacyError: a sample can't be taken of private rows.
====
-- case: a sample of one percent
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- reason: cut
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) COUNT(*) FROM typed USING SAMPLE 1%
----
refused: PrivacyError: USING SAMPLE can't be used on private rows.
====
-- case: elements of an array
-- from: GoogleSQL, zetasql/analyzer/testdata/differential_privacy_set_operations_*.test, _subquery_in_where_clause.test, _tablesample.test, _array.test
-- seen: uid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e9, delta=1e-9) e, COUNT(*) FROM (SELECT uid, UNNEST([i32, i64]) AS e FROM typed) GROUP BY e
----
answered
====
-- case: ANON_SUM(x) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(x) FROM one_each
----
answered
====
-- case: ANON_AVG(x) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_AVG(x) FROM one_each
----
answered
====
-- case: ANON_SUM(n) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(n) FROM one_each
----
answered
====
-- case: ANON_AVG(n) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_AVG(n) FROM one_each
----
answered
====
-- case: ANON_COUNT(*) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_COUNT(*) FROM one_each
----
answered
====
-- case: ANON_COUNT(x CLAMPED BETWEEN 0 AND 10) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_COUNT(x CLAMPED BETWEEN 0 AND 10) FROM one_each
----
answered
====
-- case: ANON_VAR_POP(x), ANON_VAR_POP(n) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_VAR_POP(x), ANON_VAR_POP(n) FROM one_each
----
answered
====
-- case: ANON_STDDEV_POP(x) of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_STDDEV_POP(x) FROM one_each
----
answered
====
-- case: ANON_SUM of one_each, clamped
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(x) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(x CLAMPED BETWEEN 0 AND 10) FROM one_each
----
answered
====
-- case: ANON_AVG of one_each, clamped
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT AVG(GREATEST(LEAST(a, 3), 2)) FROM (SELECT AVG(n) AS a FROM one_each GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_AVG(n CLAMPED BETWEEN 2 AND 3) FROM one_each
----
answered
====
-- case: ANON_VAR_POP of one_each, clamped
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT VAR_POP(CASE WHEN x < 2 THEN 2 WHEN x > 3 THEN 3 ELSE x END) FROM one_each
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_VAR_POP(x CLAMPED BETWEEN 2 AND 3) FROM one_each
----
answered
====
-- case: ANON_PERCENTILE_CONT of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT TRUE
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ABS(ANON_PERCENTILE_CONT(x, 0.4 CLAMPED BETWEEN 1 AND 3) - 1.5) < 0.01 FROM one_each
----
answered
====
-- case: ANON_QUANTILES of one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT 6
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) LEN(ANON_QUANTILES(x, 5 CLAMPED BETWEEN 1 AND 3)) FROM one_each
----
answered
====
-- case: ANON_SUM(x) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(x) FROM three_units
----
answered
====
-- case: ANON_AVG(x) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_AVG(x) FROM three_units
----
answered
====
-- case: ANON_SUM(n) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(n) FROM three_units
----
answered
====
-- case: ANON_AVG(n) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_AVG(n) FROM three_units
----
answered
====
-- case: ANON_COUNT(*) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_COUNT(*) FROM three_units
----
answered
====
-- case: ANON_COUNT(x CLAMPED BETWEEN 0 AND 10) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_COUNT(x CLAMPED BETWEEN 0 AND 10) FROM three_units
----
answered
====
-- case: ANON_VAR_POP(x), ANON_VAR_POP(n) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_VAR_POP(x), ANON_VAR_POP(n) FROM three_units
----
answered
====
-- case: ANON_STDDEV_POP(x) of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_STDDEV_POP(x) FROM three_units
----
answered
====
-- case: ANON_SUM of three_units, clamped
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT SUM(GREATEST(LEAST(a, 10), 0)) FROM (SELECT SUM(x) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(x CLAMPED BETWEEN 0 AND 10) FROM three_units
----
answered
====
-- case: ANON_AVG of three_units, clamped
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT AVG(GREATEST(LEAST(a, 3), 2)) FROM (SELECT AVG(n) AS a FROM three_units GROUP BY uid) AS u WHERE a IS NOT NULL
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_AVG(n CLAMPED BETWEEN 2 AND 3) FROM three_units
----
answered
====
-- case: ANON_VAR_POP of three_units, clamped
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT VAR_POP(CASE WHEN x < 2 THEN 2 WHEN x > 3 THEN 3 ELSE x END) FROM three_units
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_VAR_POP(x CLAMPED BETWEEN 2 AND 3) FROM three_units
----
answered
====
-- case: ANON_PERCENTILE_CONT of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT TRUE
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ABS(ANON_PERCENTILE_CONT(x, 0.4 CLAMPED BETWEEN 1 AND 3) - 1.5) < 0.01 FROM three_units
----
answered
====
-- case: ANON_QUANTILES of three_units
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- plain: SELECT 6
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) LEN(ANON_QUANTILES(x, 5 CLAMPED BETWEEN 1 AND 3)) FROM three_units
----
answered
====
-- case: k_threshold
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
-- reason: fault-option
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, k_threshold=1) ANON_COUNT(*) FROM one_each
----
refused: BindError: OPTIONS has no k_threshold.
====
-- case: kappa
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9, kappa=3) k, ANON_COUNT(*) FROM one_each CROSS JOIN (VALUES (1), (2), (3)) AS v(k) GROUP BY k ORDER BY k
----
answered
====
-- case: a report in the old spelling
-- plain: SELECT to_json({'result': {'value': SUM(x)::DOUBLE, 'noise_confidence_interval': {'lower_bound': SUM(x)::DOUBLE, 'upper_bound': SUM(x)::DOUBLE, 'confidence_level': 0.95}}}) FROM one_each
-- from: GoogleSQL, zetasql/compliance/testdata/anonymization.test (the old spelling)
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e9, delta=1e-9) ANON_SUM(x WITH REPORT(FORMAT=JSON)) FROM one_each
----
answered
