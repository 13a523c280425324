== EVERY_KIND
SELECT WITH DP OPTIONS (mu = 0.1) COUNT(*), SUM(age), AVG(age), VAR_SAMP(age) FROM visits
SELECT WITH DP OPTIONS (mu = 0.1) MEDIAN(age), QUANTILE_CONT(age, 0.2), APPROX_QUANTILES(age, 4), COUNT(*) FROM visits
SELECT WITH DP OPTIONS (mu = 0.1, noise = LAPLACE) COUNT(*), AVG(age) FROM visits
SELECT WITH DP OPTIONS (mu = 0.1) COUNT(DISTINCT plan), HISTOGRAM(age, [20, 40]) FROM visits
SELECT WITH DP OPTIONS (mu = 0.1) SUM(age, contribution_bounds_per_row => AUTO) FROM visits
SELECT WITH DP OPTIONS (mu = 0.1, delta = 1e-7) plan, COUNT(*) FROM visits GROUP BY plan
SELECT WITH DP OPTIONS (mu = 0.1) age > 30 AS older, COUNT(*) FROM visits GROUP BY ROLLUP (1)
WITH c(v) AS (VALUES (1), (20)) SELECT WITH DP OPTIONS (mu = 0.1) v, EXPMECH(COUNT(*) FILTER (WHERE age > v), answer => TRUE) OVER c FROM visits
WITH c(v) AS (VALUES (1), (20)) SELECT WITH DP OPTIONS (mu = 0.1) v, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE age > v), 5, max_hits => 2) OVER c FROM visits
SELECT WITH PTR OPTIONS (mu = 0.1, delta = 1e-7) MEDIAN(age), IQR(age) FROM visits
SELECT WITH DP OPTIONS (mu = 0.1) STDDEV(age, contribution_bounds_per_row => AUTO), COUNT(*) FROM visits
SELECT WITH STABLE OPTIONS (mu = 0.1) IQR(age), TRIMMED_MEAN(age, 0.1), MEDIAN(age), QUANTILE_DISC(age, 0.9) FROM visits
SELECT WITH STABLE OPTIONS (mu = 0.1) age > 30 AS older, MEDIAN(age), IQR(age) FROM visits GROUP BY older
SELECT WITH SUBSAMPLE OPTIONS (mu = 0.1, bounds = (0, 65)) AVG(age), MAX(age) FROM visits
DECLARE a ABOVE_THRESHOLD 10 OPTIONS (mu = 0.1, max_hits = 2)
