-- case: the first above a threshold
SELECT name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, epsilon => 1) OVER diseases FROM visits
----
columns: name
cost: ε=1
block: AboveThreshold {"epsilon1": "1/2", "epsilon2": "1/2", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}
====
-- case: several hits, and their values
SELECT name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, epsilon => 1, max_hits => 3, answer => TRUE) OVER diseases FROM visits
----
columns: name, answer
cost: ε=1
block: AboveThreshold {"events": [{"epsilon1": "25/154", "epsilon2": "26/77", "hits": null, "kind": "sparse_vector", "max_hits": 3, "refresh": false}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 10}], "kind": "composed"}
====
-- case: a stream of one query
SELECT ABOVE_THRESHOLD(COUNT(*), 100, epsilon => 1) AS busy FROM visits
----
columns: busy
cost: ε=1
block: AboveThreshold {"epsilon1": "1/2", "epsilon2": "1/2", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}
====
-- case: the price with the best revenue
WITH prices(p) AS (VALUES (1.00), (3.00), (3.01)) SELECT p, EXPMECH(p * COUNT(*) FILTER (WHERE bid >= p), epsilon => 1) OVER prices FROM bids
----
columns: p
cost: ε=1
block: ExponentialChoice {"epsilon": "1", "kind": "pure"}
====
-- case: a split that balances two groups
WITH ages(a) AS (VALUES (20), (40), (60)) SELECT a, EXPMECH(-ABS(COUNT(*) FILTER (WHERE age < a) - COUNT(*) FILTER (WHERE age >= a)), epsilon => 1) OVER ages FROM visits
----
columns: a
cost: ε=1
block: ExponentialChoice {"epsilon": "1", "kind": "pure"}
====
-- case: the lesser of two counts above a threshold
SELECT name, ABOVE_THRESHOLD(LEAST(COUNT(*) FILTER (WHERE disease = name), 2 * COUNT(*) FILTER (WHERE disease = name AND age > 50)), 10, epsilon => 1) OVER diseases FROM visits
----
columns: name
cost: ε=1
block: AboveThreshold {"epsilon1": "1/2", "epsilon2": "1/2", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}
====
-- case: three winners by the exponential mechanism
SELECT name, EXPMECH(COUNT(*) FILTER (WHERE disease = name), epsilon => 1, top => 2, method => 'exponential') OVER diseases FROM visits
----
columns: name
cost: ε=1
block: ExponentialChoice {"count": 2, "epsilon": "1", "kind": "bounded_range"}
====
-- case: two winners by Gumbel noise that is drawn once
SELECT name, EXPMECH(COUNT(*) FILTER (WHERE disease = name), epsilon => 1, top => 2, method => 'gumbel') OVER diseases FROM visits
----
columns: name
cost: ε=1
block: ExponentialChoice {"count": 2, "epsilon": "1", "kind": "bounded_range"}
====
-- case: a stable spread
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) AS spread FROM visits
----
columns: spread
cost: ε=1, δ=1e-06
block: Stable {"events": [{"count": 1, "epsilon": "1/20", "kind": "discrete_laplace", "sensitivity": 10}, {"delta": "1/1000000", "epsilon": "19/40", "kind": "stable_test"}, {"count": 1, "epsilon": "19/40", "kind": "discrete_laplace", "sensitivity": 1025}], "kind": "composed"}
====
-- case: a stable spread with a base of one's own
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age, base => 1.02) AS spread FROM visits
----
columns: spread
cost: ε=1, δ=1e-06
block: Stable {"events": [{"delta": "1/1000000", "epsilon": "1/2", "kind": "stable_test"}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 1025}], "kind": "composed"}
====
-- case: a stable spread by a Gaussian test
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age, base => 1.02, test => 'gaussian') AS spread, MODE(ward, test => AUTO) FROM visits
----
columns: spread, mode(ward)
cost: ε=1, δ=1e-06
block: Stable {"events": [{"declared_epsilon": "1/4", "delta": "1/4000000", "kind": "gaussian_test", "sigma": "1113600975/67108864"}, {"declared_delta": "1/4000000", "declared_epsilon": "1/4", "kind": "rounded_gaussian", "sensitivity_squared": 1050625, "sigma": "71340062461/4194304"}, {"delta": "1/2000000", "epsilon": "1/2", "kind": "stable_test"}], "kind": "composed"}
====
-- case: a stable mode by public groups
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) ward, MODE(disease) AS usual FROM visits GROUP BY ward
----
columns: ward, usual
cost: ε=1, δ=1e-06
block: Stable {"events": [{"delta": "1/3000000", "epsilon": "1/3", "kind": "stable_test"}, {"delta": "1/3000000", "epsilon": "1/3", "kind": "stable_test"}, {"delta": "1/3000000", "epsilon": "1/3", "kind": "stable_test"}], "kind": "composed"}
====
-- case: a spread by inverse sensitivity
SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(age) AS spread FROM visits
----
columns: spread
cost: ε=1
block: Together {"count": 1, "epsilon": "1", "kind": "bounded_range"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: every statistic that STABLE knows
SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(age), TRIMMED_MEAN(amount, 0.1) AS t, MEDIAN(age), QUANTILE(age, 0.9), MODE(ward), QUANTILE_CONT(age, [0.5]) FROM visits
----
columns: iqr(age), t, median(age), quantile(age, 0.9), mode(ward), quantile_cont(age, [0.5])
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "1/8", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/6", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/24", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/8", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/24", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/6", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/6", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/6", "kind": "bounded_range"}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: stable answers by public groups
SELECT WITH STABLE OPTIONS (epsilon = 1) ward, IQR(age CLAMPED BETWEEN 20 AND 80) AS spread FROM visits GROUP BY ward HAVING spread > 3
----
columns: ward, spread
cost: ε=1
block: Together {"count": 1, "epsilon": "1", "kind": "bounded_range"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a correlation from blocks
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 100, combine = 'winsorized_mean', bounds = (-1, 1)) CORR(age, amount) AS r FROM visits
----
columns: r
cost: ε=1
block: SubsampleAggregate {"events": [{"count": 1, "epsilon": "1/4", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/4", "kind": "bounded_range"}, {"epsilon": "1/2", "kind": "pure"}], "kind": "composed"}
====
-- case: a vote of blocks
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 20) MODE(disease) AS usual FROM visits
----
columns: usual
cost: ε=1, δ=1e-07
block: SubsampleAggregate {"events": [{"epsilon": "1/2", "kind": "pure"}, {"delta": "1/20000000", "epsilon": "1/4", "kind": "stable_test"}, {"delta": "1/20000000", "epsilon": "1/4", "kind": "stable_test"}], "kind": "composed"}
====
-- case: a private median
SELECT WITH DP OPTIONS (epsilon = 1) MEDIAN(age) AS middle FROM visits
----
columns: middle
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "3/4", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/4", "kind": "bounded_range"}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: bounds found privately
SELECT WITH DP OPTIONS (epsilon = 1) SUM(weight, contribution_bounds_per_row => AUTO) AS total FROM visits
----
columns: total
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "3/20", "kind": "discrete_laplace", "sensitivity": 1}, {"count": 1, "epsilon": "17/20", "kind": "discrete_laplace", "sensitivity": 10737418240}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: a spread within bounds found privately
SELECT WITH DP OPTIONS (epsilon = 1) STDDEV(weight, contribution_bounds_per_row => AUTO) AS spread FROM visits
----
columns: spread
cost: ε=1
block: Together {"events": [{"count": 1, "epsilon": "3/20", "kind": "discrete_laplace", "sensitivity": 1}, {"count": 1, "epsilon": "17/60", "kind": "discrete_laplace", "sensitivity": 10737418240}, {"count": 1, "epsilon": "17/60", "kind": "discrete_laplace", "sensitivity": 10}, {"count": 1, "epsilon": "17/60", "kind": "discrete_laplace", "sensitivity": 10737418240}], "kind": "composed"}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
====
-- case: the mode of a card
SELECT IQR(age) AS spread FROM visits WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1)
----
columns: spread
cost: ε=1, δ=1e-06
block: Stable {"events": [{"count": 1, "epsilon": "1/20", "kind": "discrete_laplace", "sensitivity": 1}, {"delta": "1/1000000", "epsilon": "19/40", "kind": "stable_test"}, {"count": 1, "epsilon": "19/40", "kind": "discrete_laplace", "sensitivity": 1025}], "kind": "composed"}
====
-- case: a proposed sensitivity of a quantile
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) QUANTILE_DISC(age, 0.9, local_sensitivity => 2) AS old, QUANTILE_CONT(age, 0.1, local_sensitivity => 2) AS young FROM visits
----
columns: old, young
cost: ε=1, δ=1e-06
block: Stable {"events": [{"delta": "1/2000000", "epsilon": "1/4", "kind": "stable_test"}, {"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 1024}, {"delta": "1/2000000", "epsilon": "1/4", "kind": "stable_test"}, {"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 1024}], "kind": "composed"}
====
-- case: a proposed sensitivity of a spread and of a mode
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) IQR(amount, local_sensitivity => 5) AS spread, MODE(age, local_sensitivity => 3) AS often FROM visits
----
columns: spread, often
cost: ε=1, δ=1e-06
block: Stable {"events": [{"delta": "1/2000000", "epsilon": "1/4", "kind": "stable_test"}, {"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 1280}, {"delta": "1/2000000", "epsilon": "1/4", "kind": "stable_test"}, {"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 1536}], "kind": "composed"}
====
-- case: block results without bounds
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, delta = 1e-6, bounds = AUTO) CORR(age, amount) AS r FROM visits
----
columns: r
cost: ε=1, δ=1e-06
block: SubsampleAggregate {"events": [{"delta": "1/2000000", "epsilon": "3/8", "kind": "stable_test"}, {"delta": "1/2000000", "epsilon": "3/8", "kind": "stable_test"}, {"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 1024}], "kind": "composed"}
====
-- case: a Gaussian threshold, asked again
SELECT WITH DP OPTIONS (delta = 1e-6, noise = GAUSSIAN) name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, epsilon => 1, passes => 3, budget_split => (0.3, 0.7)) OVER diseases FROM visits
----
columns: name
cost: ε=1, δ=1e-06
block: AboveThreshold {"declared_delta": "1/1000000", "declared_epsilon": "3/10", "epsilon2": "7/10", "hits": null, "kind": "gaussian_sparse_vector", "max_hits": 1, "refresh": false, "sigma": "12992382894843080364649438423871/1000000000000000000000000000000"}
====
-- case: a threshold that was released
WITH best AS (SELECT 40 AS t) SELECT name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 2 * (SELECT t FROM best), epsilon => 1) OVER diseases FROM visits
----
columns: name
cost: ε=1
block: AboveThreshold {"epsilon1": "1/2", "epsilon2": "1/2", "hits": null, "kind": "sparse_vector", "max_hits": 1, "refresh": false}
====
-- case: the mean and the spread of the values in the middle
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) AVG(amount) AS a, STDDEV(age, trim => 0.01) AS s, VAR_POP(age, local_sensitivity => 0.5) AS v FROM visits
----
columns: a, s, v
cost: ε=1, δ=1e-06
block: Stable {"events": [{"delta": "1/6000000", "epsilon": "1/8", "kind": "stable_test"}, {"delta": "1/6000000", "epsilon": "1/8", "kind": "stable_test"}, {"count": 1, "epsilon": "1/12", "kind": "discrete_laplace", "sensitivity": 1024}, {"delta": "1/6000000", "epsilon": "1/8", "kind": "stable_test"}, {"delta": "1/6000000", "epsilon": "1/8", "kind": "stable_test"}, {"count": 1, "epsilon": "1/12", "kind": "discrete_laplace", "sensitivity": 1024}, {"delta": "1/3000000", "epsilon": "1/6", "kind": "stable_test"}, {"count": 1, "epsilon": "1/6", "kind": "discrete_laplace", "sensitivity": 1024}], "kind": "composed"}
====
-- case: a median of blocks without bounds
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, combine = 'median', bounds = AUTO) CORR(age, amount) AS r FROM visits
----
columns: r
cost: ε=1
block: SubsampleAggregate {"count": 1, "epsilon": "1", "kind": "bounded_range"}
====
-- case: the median of blocks has an interval
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (-1, 1)) CORR(age, amount) AS r FROM visits
----
columns: r
cost: ε=1
block: SubsampleAggregate {"events": [{"count": 1, "epsilon": "3/4", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/4", "kind": "bounded_range"}], "kind": "composed"}
====
-- case: a synthetic table of two columns: both marginals and the one of both are measured
CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 2) ward, urgent FROM visits
----
columns: ward, urgent
cost: ε=1
block: SyntheticRows {"events": [{"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 2}, {"count": 1, "epsilon": "1/4", "kind": "discrete_laplace", "sensitivity": 2}, {"count": 1, "epsilon": "1/2", "kind": "discrete_laplace", "sensitivity": 2}], "kind": "composed"}
note: only 2 rows per patient_id are used
====
-- case: a synthetic table of four columns, whose marginals are chosen
CREATE SYNTHETIC TABLE s ROWS 100 AS SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) ward, urgent, week, FLOOR(age / 10)::INTEGER AS decade FROM visits
----
columns: ward, urgent, week, decade
cost: ε=1, δ=1e-06
block: SyntheticRows {"events": [{"declared_delta": "1/1000000", "declared_epsilon": "9/10", "kind": "joint_gaussian", "sigmas": ["715884971847/34359738368", "715884971847/34359738368", "715884971847/34359738368", "715884971847/34359738368", "506207118143/34359738368", "506207118143/34359738368", "506207118143/34359738368", "506207118143/34359738368", "506207118143/34359738368", "506207118143/34359738368", "506207118143/34359738368", "506207118143/34359738368"], "squares": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}, {"count": 1, "epsilon": "1/80", "kind": "bounded_range"}], "kind": "composed"}
note: only 1 row per patient_id is used
====
-- case: a release costs what its query costs
CREATE RELEASE daily AS SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward
----
columns: ward, n
cost: ε=1
block: Aggregation {"count": 1, "epsilon": "1", "kind": "discrete_laplace", "sensitivity": 10}
note: only 10 rows per patient_id are used (report_cut = TRUE estimates the rest)
