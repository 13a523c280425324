-- case: a bare count has the default epsilon
SELECT COUNT(*) FROM visits
----
columns: count_star()
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: count of rows, row level
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM bids
----
columns: n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 1}
====
-- case: count of people
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(DISTINCT patient_id) AS people FROM visits
----
columns: people
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 1}
====
-- case: epsilon is split over aggregates
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n, SUM(amount) AS total FROM visits
----
columns: n, total
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10737418240000}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500]
====
-- case: a share of its own
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*, epsilon => 0.25) AS n, SUM(amount) AS total FROM visits
----
columns: n, total
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 1, "epsilon": "3/4", "kind": "discrete_laplace", "sensitivity": 10737418240000}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500]
====
-- case: an average
SELECT WITH DP OPTIONS (epsilon = 1) AVG(amount) AS mean FROM visits
----
columns: mean
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 5368709120000}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: amount to [0, 500]
====
-- case: a spread
SELECT WITH DP OPTIONS (epsilon = 1) STDDEV(age) AS spread FROM visits
----
columns: spread
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/3", "kind": "discrete_laplace", "sensitivity": 37748736000}, {"count": 1, "epsilon": "1/3", "kind": "discrete_laplace", "sensitivity": 629145600}, {"count": 1, "epsilon": "1/3", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: age to [0, 120]
====
-- case: a sum over a count of the same rows is their mean
SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount) FILTER (WHERE age > 18) / COUNT(amount) FILTER (WHERE age > 18) AS mean FROM visits
----
columns: mean
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 5368709120000}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: amount to [0, 500]
====
-- case: Gaussian noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = 'GAUSSIAN') COUNT(*) AS n FROM visits
----
columns: n
cost: ε=1, δ=1e-06
block: Aggregation {"declared_delta": "1/1000000", "declared_epsilon": "1", "kind": "rounded_gaussian", "sensitivity_squared": 100, "sigma": "11340536045/268435456"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: Gaussian noise is calibrated once for all moments
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = 'GAUSSIAN') ward, COUNT(*) AS n, AVG(amount) AS mean FROM visits GROUP BY ward
----
columns: ward, n, mean
cost: ε=1, δ=1e-06
block: Aggregation {"declared_delta": "1/1000000", "declared_epsilon": "1", "kind": "joint_gaussian", "sigmas": ["1026428152283/17179869184", "45362144180032", "11340536045/128"], "squares": [100, 28823037615171174400000000, 109951162777600]}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500]
====
-- case: AUTO takes Laplace noise for a few numbers, which need no delta
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 1) ward, COUNT(*) AS n, SUM(amount) AS total FROM visits GROUP BY ward
----
columns: ward, n, total
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10737418240000}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows and 1 group per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500]
====
-- case: AUTO takes Gaussian noise for many
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) ward, COUNT(*) AS n, SUM(amount) AS total, AVG(amount) AS mean, CORR(age, amount) AS r FROM visits GROUP BY ward
----
columns: ward, n, total, mean, r
cost: ε=1, δ=1e-06
block: Aggregation {"declared_delta": "1/1000000", "declared_epsilon": "1", "kind": "joint_gaussian", "sigmas": ["11340536045/134217728", "90724288360064", "64151759517696", "1026428152283/8192", "888912855037/4096", "833355801597/64", "111114106879616", "6666846412775424", "781271063997", "56890422722358673408"], "squares": [100, 115292150460684697600000000, 28823037615171174400000000, 109951162777600, 109951162777600, 395824185999360000, 28823037615171174400000000, 103762935414616227840000000000, 1424967069597696000000, 7555786372591432341913600000000000000]}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500], age to [0, 120]
====
-- case: grouping sets have one calibration
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = GAUSSIAN) ward, urgent, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward, urgent)
----
columns: ward, urgent, n
cost: ε=1, δ=1e-06
block: Marginals {"declared_delta": "1/1000000", "declared_epsilon": "1", "kind": "joint_gaussian", "sigmas": ["704458316453/8589934592", "710904792525/2147483648", "67003910461/268435456", "355452395133/536870912"], "squares": [100, 600, 1200, 7200]}
note: rows whose urgent is NULL are in no group
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a tenth of epsilon tells what is cut
SELECT WITH DP OPTIONS (epsilon = 1, report_cut = TRUE) AVG(amount) AS mean FROM visits
----
columns: mean
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "9/20", "kind": "discrete_laplace", "sensitivity": 5368709120000}, {"count": 1, "epsilon": "9/20", "kind": "discrete_laplace", "sensitivity": 10485760}, {"count": 1, "epsilon": "1/20", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 1, "epsilon": "1/20", "kind": "discrete_laplace", "sensitivity": 10240000}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: amount to [0, 500]
====
-- case: public keys
SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward
----
columns: ward, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: public keys of a boolean
SELECT WITH DP OPTIONS (epsilon = 1) urgent, COUNT(*) AS n FROM visits GROUP BY urgent
----
columns: urgent, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: rows whose urgent is NULL are in no group
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: private keys cost delta
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) city, COUNT(*) AS n FROM visits GROUP BY city
----
columns: city, n
cost: ε=1, δ=1e-06
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}, {"aside": "1/2000000", "delta": "1/1000000", "divergence": "258801138313/1000000000000", "epsilon": "1/2", "groups": 3, "held": false, "kind": "renyi_selection", "order": "208/5", "orders": []}], "kind": "composed"}
note: only 10 rows and 3 groups per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: fewer groups, less noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 1) city, COUNT(*) AS n FROM visits GROUP BY city
----
columns: city, n
cost: ε=1, δ=1e-06
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}, {"delta": "1/1000000", "epsilon": "1/2", "groups": 1, "kind": "group_selection"}], "kind": "composed"}
note: only 10 rows and 1 group per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: rows over all groups
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 5) ward, COUNT(*) AS n FROM visits GROUP BY ward
----
columns: ward, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 5}
note: only 5 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: bounds of an expression
SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount * 2 + 1) AS total FROM visits
----
columns: total
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10250240}
note: one patient_id adds at most as much to a sum as 10 rows at the bounds
note: values are clamped: amount * 2 + 1 to [1, 1001]
====
-- case: bounds by name
SELECT WITH DP OPTIONS (epsilon = 1) SUM(weight, contribution_bounds_per_row => (0, 150)) AS total FROM visits
----
columns: total
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 6144000}
note: one patient_id adds at most as much to a sum as 10 rows at the bounds
note: values are clamped: weight to [0, 150] (missing beyond ±524288)
====
-- case: bounds of a unit in a group
SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount, contribution_bounds_per_group => (0, 1000)) AS total FROM visits
----
columns: total
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 1024000}
====
-- case: arithmetic over aggregates is free
SELECT WITH DP OPTIONS (epsilon = 1) 1 + SUM(amount) / COUNT(*) AS ratio FROM visits
----
columns: ratio
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10737418240000}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500]
====
-- case: a filter
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FILTER (WHERE age > 60) AS old FROM visits WHERE urgent
----
columns: old
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: an unknown unit is reached over a path
SELECT WITH DP OPTIONS (epsilon = 1) SUM(price) AS total FROM lines
----
columns: total
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 2000}
note: one privacy unit adds at most as much to a sum as 20 rows at the bounds
note: values are clamped: price to [0, 100]
====
-- case: public data cost nothing
SELECT ward, beds FROM wards ORDER BY beds DESC LIMIT 3
----
columns: ward, beds
cost: nothing
====
-- case: two blocks are one event
SELECT a.n, b.n AS m FROM (SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM visits) a, (SELECT WITH DP OPTIONS (epsilon = 2) COUNT(*) AS n FROM bids) b
----
columns: n, m
cost: ε=3
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
block: Aggregation {"count": 1, "epsilon": "2", "kind": "discrete_laplace", "sensitivity": 1}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: SQL above the block
WITH s AS (SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT ward, n, rank() OVER (ORDER BY n DESC) AS place FROM s JOIN wards USING (ward) WHERE n > 10 ORDER BY place LIMIT 2
----
columns: ward, n, place
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: the unit restated
SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = patient_id) COUNT(*) AS n FROM visits
----
columns: n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: HAVING and ORDER BY use what was released
SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 5 ORDER BY n DESC LIMIT 1
----
columns: ward, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: DISTINCT selects private groups
SELECT DISTINCT city FROM visits
----
columns: city
cost: ε=0.1, δ=1e-07
block: Aggregation {"aside": "1/20000000", "delta": "1/10000000", "divergence": "559594356623/10000000000000", "epsilon": "1/10", "groups": 3, "held": false, "kind": "renyi_selection", "order": "236", "orders": []}
note: only 3 groups per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: a share beside DISTINCT
SELECT COUNT(DISTINCT patient_id, epsilon => 1) FILTER (WHERE age > 60) AS people FROM visits
----
columns: people
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 1}
====
-- case: a constant that divides by zero is NULL, whatever the data
SELECT COUNT(*) FROM visits WHERE age > 100 AND 1 // 0 = 1
----
columns: count_star()
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: distinct values of a column
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) COUNT(DISTINCT city) AS cities FROM visits
----
columns: cities
cost: ε=1
block: Together {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: groups from a public table
SELECT wards.ward, COUNT(*) AS n FROM visits RIGHT JOIN wards USING (ward) GROUP BY wards.ward
----
columns: ward, n
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: two private tables of the same units
SELECT COUNT(*) AS n FROM visits JOIN patients USING (patient_id) WHERE income > 10
----
columns: n
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: a private block inside a private block's filter
WITH m AS (SELECT WITH DP OPTIONS (epsilon = 1) AVG(age) AS a FROM visits) SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS older FROM visits, m WHERE age > a
----
columns: older
cost: ε=2
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 629145600}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: age to [0, 120]
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a table may be read in several CTEs
WITH a AS (SELECT * FROM visits WHERE urgent), b AS (SELECT patient_id, amount FROM a WHERE age > 18) SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount) AS total FROM b
----
columns: total
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10240000}
note: one patient_id adds at most as much to a sum as 10 rows at the bounds
note: values are clamped: amount to [0, 500]
====
-- case: a correlation
SELECT WITH DP OPTIONS (epsilon = 1) CORR(age, amount) AS r FROM visits
----
columns: r
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 10485760}, {"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 629145600}, {"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 5368709120000}, {"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 322122547200000}, {"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 37748736000}, {"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 2748779069440000000}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: age to [0, 120], amount to [0, 500]
====
-- case: a regression by public keys
SELECT WITH DP OPTIONS (epsilon = 1) ward, REGR_SLOPE(amount, age) AS slope FROM visits GROUP BY ward
----
columns: ward, slope
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/5", "kind": "discrete_laplace", "sensitivity": 10485760}, {"count": 1, "epsilon": "1/5", "kind": "discrete_laplace", "sensitivity": 5368709120000}, {"count": 1, "epsilon": "1/5", "kind": "discrete_laplace", "sensitivity": 629145600}, {"count": 1, "epsilon": "1/5", "kind": "discrete_laplace", "sensitivity": 322122547200000}, {"count": 1, "epsilon": "1/5", "kind": "discrete_laplace", "sensitivity": 37748736000}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: values are clamped: amount to [0, 500], age to [0, 120]
====
-- case: a histogram of declared values
SELECT WITH DP OPTIONS (epsilon = 1) HISTOGRAM(ward) AS h FROM visits
----
columns: h
cost: ε=1
block: Together {"epsilon": "1", "kind": "pure"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a histogram of given bins
SELECT WITH DP OPTIONS (epsilon = 1) HISTOGRAM(age, [18, 40, 65]) AS h FROM visits
----
columns: h
cost: ε=1
block: Together {"epsilon": "1", "kind": "pure"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: an average date
SELECT WITH DP OPTIONS (epsilon = 1) AVG(day, contribution_bounds_per_row => (DATE '2024-01-01', DATE '2024-12-31')) AS d FROM visits
----
columns: d
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 1918894080}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
====
-- case: cells that add up
SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward)
----
columns: ward, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}
block: Aggregation {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: the cells of COUNT and SUM were made to add up; totals also count rows in no group of ward, if these exceed the noise
====
-- case: a geometric mean is two statistics, its sum in logarithms
SELECT WITH DP OPTIONS (epsilon = 1) GEOMEAN(amount, contribution_bounds_per_row => (1, 100)) AS m FROM visits
----
columns: m
cost: ε=1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 3164654796800}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
====
-- case: the former spelling of GoogleSQL, with its clauses
SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1, delta = 1e-6, kappa = 2) city, ANON_SUM(amount CLAMPED BETWEEN 0 AND 100) AS total, ANON_COUNT(* CLAMPED BETWEEN 0 AND 5) AS n FROM visits GROUP BY city
----
columns: city, total, n
cost: ε=1, δ=1e-06
block: Aggregation {"events": [{"count": 2, "epsilon": "1/3", "kind": "discrete_laplace", "sensitivity": 819200}, {"count": 2, "epsilon": "1/3", "kind": "discrete_laplace", "sensitivity": 5}, {"delta": "1/1000000", "epsilon": "1/3", "groups": 2, "kind": "group_selection"}], "kind": "composed"}
note: only 2 groups per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a share for choosing groups
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, group_selection_epsilon = 0.25, max_groups_contributed = 1) city, COUNT(*) AS n FROM visits GROUP BY city
----
columns: city, n
cost: ε=1, δ=1e-06
block: Aggregation {"events": [{"count": 1, "epsilon": "3/4", "kind": "discrete_laplace", "sensitivity": 10}, {"delta": "1/1000000", "epsilon": "1/4", "groups": 1, "kind": "group_selection"}], "kind": "composed"}
note: only 10 rows and 1 group per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: values that cut the rows into equal parts
SELECT WITH DP OPTIONS (epsilon = 1) APPROX_QUANTILES(age, 4) AS q, COUNT(*) AS n FROM visits
----
columns: q, n
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 5, "epsilon": "1/2", "kind": "bounded_range"}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: the different values added up, and the most frequent
SELECT WITH DP OPTIONS (epsilon = 1) SUM(DISTINCT age) AS total, MODE(urgent) AS m FROM visits
----
columns: total, m
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 1155}, {"count": 1, "epsilon": "1/2", "kind": "bounded_range"}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a pivot over declared values
PIVOT visits ON ward USING COUNT(*) GROUP BY urgent
----
columns: urgent, A, B, C
cost: ε=0.1
block: Aggregation {"events": [{"count": 1, "epsilon": "1/30", "kind": "discrete_laplace", "sensitivity": 10485760}, {"count": 1, "epsilon": "1/30", "kind": "discrete_laplace", "sensitivity": 10485760}, {"count": 1, "epsilon": "1/30", "kind": "discrete_laplace", "sensitivity": 10485760}], "kind": "composed"}
note: rows whose urgent is NULL are in no group
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: ε=0.1 is the policy's default
====
-- case: a pivot of written values, and what stands above it
SELECT city, A + B AS both FROM visits PIVOT (SUM(age) FOR ward IN ('A', 'B') GROUP BY city) ORDER BY city
----
columns: city, both
cost: ε=0.1, δ=1e-07
block: Aggregation {"events": [{"count": 1, "epsilon": "1/30", "kind": "discrete_laplace", "sensitivity": 1258291200}, {"count": 1, "epsilon": "1/30", "kind": "discrete_laplace", "sensitivity": 1258291200}, {"aside": "1/20000000", "delta": "1/10000000", "divergence": "101150238459/5000000000000", "epsilon": "1/30", "groups": 3, "held": false, "kind": "renyi_selection", "order": "707", "orders": []}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 3 groups per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: age to [0, 120]
note: ε=0.1 is the policy's default
====
-- case: groups of a list's elements
SELECT UNNEST([ward, city]) AS n, COUNT(*) FROM visits GROUP BY n
----
columns: n, count_star()
cost: ε=0.1, δ=1e-07
block: Aggregation {"events": [{"count": 1, "epsilon": "1/20", "kind": "discrete_laplace", "sensitivity": 10}, {"aside": "1/20000000", "delta": "1/10000000", "divergence": "73750934889/2500000000000", "epsilon": "1/20", "groups": 3, "held": false, "kind": "renyi_selection", "order": "472", "orders": []}], "kind": "composed"}
note: only 10 rows and 3 groups per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: people in one table and not in another
SELECT COUNT(*) FROM (SELECT patient_id FROM patients EXCEPT SELECT patient_id FROM visits WHERE urgent)
----
columns: count_star()
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 1}
note: ε=0.1 is the policy's default
====
-- case: a list as a parameter
-- params: {"wards": ["A", "C"]}
SELECT ward, COUNT(*) FROM visits WHERE ward IN $wards GROUP BY ward
----
columns: ward, count_star()
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: a count for each public row
SELECT w.ward, (SELECT COUNT(*) FROM visits v WHERE v.ward = w.ward) FROM wards w
----
columns: ward, SELECT COUNT(*) FROM visits AS v WHERE v.ward = w.ward
cost: ε=0.1
block: Aggregation {"count": 1, "epsilon": "1/10", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: ε=0.1 is the policy's default
====
-- case: the ends of an interval are columns above the block
SELECT n, INTERVAL_LOW(n) AS low, INTERVAL_HIGH(n) AS high FROM (SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM visits) AS r
----
columns: n, low, high
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a join by the second of several paths to the unit
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM payments JOIN orders ON payments.order_id = orders.id
----
columns: n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 4}
note: only 4 rows per user_id are used (report_cut = TRUE estimates the rest)
====
-- case: a join by a key that determines the unit
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM shipments a JOIN shipments b ON a.parcel = b.parcel
----
columns: n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 9}
note: only 9 rows per user_id are used (report_cut = TRUE estimates the rest)
====
-- case: a total of each person and month, where these are the unit
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n
FROM (SELECT nurse_id, SUM(hours) AS hours FROM shifts GROUP BY nurse_id, date_trunc('month', day)) WHERE hours > 160
----
columns: n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 1}
====
-- case: a count as accurate as asked
SELECT WITH DP OPTIONS (error = 100, epsilon = 1) COUNT(*) AS n FROM visits
----
columns: n
cost: ε=0.29809
block: Aggregation {"count": 1, "epsilon": "29809/100000", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used
====
-- case: a mean as accurate as asked
SELECT WITH DP OPTIONS (error = 100, epsilon = 1) COUNT(*) AS n, AVG(amount) AS mean FROM visits
----
columns: n, mean
cost: ε=1
block: NoiseReducedAggregation {"events": [{"count": 1, "epsilon": "29809/100000", "kind": "discrete_laplace", "sensitivity": 10}, {"epsilon": "70191/100000", "kind": "noise_reduction", "most": "70191/100000"}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used
note: values are clamped: amount to [0, 500]
====
-- case: a median without bounds
SELECT WITH DP OPTIONS (epsilon = 1) MEDIAN(weight, contribution_bounds_per_row => AUTO) AS m FROM visits
----
columns: m
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "3/4", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/4", "kind": "bounded_range"}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a mu, in equal parts of its square
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*) AS n, SUM(amount) AS total FROM visits
----
columns: n, total
cost: ε=3.522, δ=1e-07
block: Aggregation {"events": [{"declared_delta": "1/20000000", "declared_epsilon": "1760695435262809941875938868351/1000000000000000000000000000000", "kind": "gaussian_by_mu", "sensitivity_squared": 100, "sigma": "971840159993/34359738368"}, {"declared_delta": "1/20000000", "declared_epsilon": "7042781741052544827730308441/4000000000000000000000000000", "kind": "gaussian_by_mu", "sensitivity_squared": 115292150460684697600000000, "sigma": "30370004999776"}], "kind": "composed"}
note: one patient_id counts as at most 10 rows in all; if there are more, each weighs less
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
note: values are clamped: amount to [0, 500]
====
-- case: a rho with Laplace noise and a quantile
-- policy: mu
SELECT WITH DP OPTIONS (rho = 0.01, noise = LAPLACE) COUNT(*) AS n, MEDIAN(age) AS middle FROM visits
----
columns: n, middle
cost: ε=0.354717424
block: Together {"events": [{"count": 1, "epsilon": "25419397/250000000", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 1, "epsilon": "189779877/1000000000", "kind": "bounded_range"}, {"count": 1, "epsilon": "63259959/1000000000", "kind": "bounded_range"}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a cap on rows that is found
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) COUNT(*) AS n FROM visits
----
columns: n
cost: ε=1
block: CapSearch {"events": [{"epsilon1": "1/8", "epsilon2": "1/8", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"count": 1, "epsilon": "3/4", "kind": "discrete_laplace", "sensitivity": 1}], "kind": "composed"}
====
-- case: both caps are found over public groups: rows in all are enough
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) ward, COUNT(*) AS n FROM visits GROUP BY ward
----
columns: ward, n
cost: ε=1
block: CapSearch {"events": [{"epsilon1": "1/8", "epsilon2": "1/8", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"count": 1, "epsilon": "3/4", "kind": "discrete_laplace", "sensitivity": 1}], "kind": "composed"}
====
-- case: units are counted: groups are needed too
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) ward, COUNT(*) AS n, COUNT(DISTINCT patient_id) AS people FROM visits GROUP BY ward
----
columns: ward, n, people
cost: ε=1
block: CapSearch {"events": [{"epsilon1": "1/16", "epsilon2": "1/16", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"epsilon1": "1/16", "epsilon2": "1/16", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"count": 1, "epsilon": "3/8", "kind": "discrete_laplace", "sensitivity": 1}, {"count": 1, "epsilon": "3/8", "kind": "discrete_laplace", "sensitivity": 1}], "kind": "composed"}
====
-- case: private groups are chosen first
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = AUTO) city, COUNT(*) AS n FROM visits GROUP BY city
----
columns: city, n
cost: ε=1, δ=1e-06
block: CapSearch {"events": [{"epsilon1": "1/16", "epsilon2": "1/16", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"delta": "1/1000000", "epsilon": "3/8", "groups": 1, "kind": "group_selection"}], "kind": "composed"}
block: CapSearch {"events": [{"epsilon1": "1/16", "epsilon2": "1/16", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"count": 1, "epsilon": "3/8", "kind": "discrete_laplace", "sensitivity": 1}], "kind": "composed"}
====
-- case: the policy's caps are ceilings
SELECT WITH DP OPTIONS (epsilon = 1, max_groups_contributed = AUTO) week, COUNT(*) AS n FROM visits GROUP BY week
----
columns: week, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: rows whose week is NULL are in no group
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a cap in mu
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0.5, max_rows_contributed = AUTO) COUNT(*) AS n FROM visits
----
columns: n
cost: ε=2.331, δ=1e-07
block: CapSearch {"events": [{"epsilon1": "199613073/2000000000", "epsilon2": "199613073/2000000000", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"declared_delta": "1/10000000", "declared_epsilon": "2130939142242007514407853285831/1000000000000000000000000000000", "kind": "gaussian_by_mu", "sensitivity_squared": 100, "sigma": "396752083921/17179869184"}], "kind": "composed"}
====
-- case: caps of rows that are units are 1
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) bid, COUNT(*) AS n FROM bids GROUP BY bid
----
columns: bid, n
cost: ε=1, δ=1e-07
block: Aggregation {"events": [{"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 1}, {"delta": "1/10000000", "epsilon": "1/2", "groups": 1, "kind": "group_selection"}], "kind": "composed"}
====
-- case: quantiles and bounds that are found under a cap that is found
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) ward, MEDIAN(age) AS m, SUM(amount, contribution_bounds_per_row => AUTO) AS s FROM visits GROUP BY ward
----
columns: ward, m, s
cost: ε=1
block: CapSearch {"events": [{"epsilon1": "1/8", "epsilon2": "1/8", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}, {"count": 1, "epsilon": "9/32", "kind": "bounded_range"}, {"count": 1, "epsilon": "3/32", "kind": "bounded_range"}, {"count": 1, "epsilon": "9/160", "kind": "discrete_laplace", "sensitivity": 1}, {"count": 1, "epsilon": "51/160", "kind": "discrete_laplace", "sensitivity": 1073741824}], "kind": "composed"}
