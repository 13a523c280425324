SELECT COUNT(*) AS n FROM visits
SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan
SELECT plan, health, COUNT(*) AS n, SUM(medical_dollars) AS dollars FROM visits GROUP BY plan, health
SELECT year, AVG(doctor_visits) AS m, STDDEV(doctor_visits) AS s FROM visits GROUP BY year
SELECT AVG(age) AS a, VAR_POP(age) AS v, SUM(admissions) AS s FROM visits
SELECT CORR(age, doctor_visits) AS c, COVAR_POP(age, doctor_visits) AS v FROM visits
SELECT REGR_SLOPE(doctor_visits, age) AS slope, REGR_INTERCEPT(doctor_visits, age) AS at FROM visits
SELECT COUNT(DISTINCT site) AS sites, COUNT(DISTINCT person_id) AS people FROM visits
SELECT plan, COUNT(DISTINCT person_id) AS people FROM visits GROUP BY plan
SELECT MEDIAN(age) AS m, QUANTILE_CONT(medical_dollars, 0.9) AS q FROM visits
SELECT plan, MIN(age) AS least, MAX(age) AS most FROM visits GROUP BY plan
SELECT HISTOGRAM(health) AS h FROM visits
SELECT HISTOGRAM(age, [10, 20, 30, 40, 50]) AS h FROM visits
SELECT health, year, COUNT(*) AS n FROM visits GROUP BY ROLLUP (health, year)
SELECT health, plan, COUNT(*) AS n FROM visits GROUP BY CUBE (health, plan)
SELECT SUM(medical_dollars, contribution_bounds_per_row => AUTO) AS s FROM visits
SELECT AVG(family_income, contribution_bounds_per_row => AUTO) AS m FROM visits
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) CAST(age AS INTEGER) AS years, COUNT(*) AS n FROM visits GROUP BY 1
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) family_size, SUM(doctor_visits) AS s FROM visits GROUP BY family_size HAVING COUNT(*) > 100 ORDER BY s DESC
SELECT WITH DP OPTIONS (epsilon = 0.5, noise = 'gaussian', delta = 1e-7) plan, SUM(doctor_visits) AS s FROM visits GROUP BY plan
SELECT COUNT(*) AS n FROM visits JOIN plans USING (plan) WHERE age > 30
SELECT COUNT(*) AS n FROM (SELECT person_id, SUM(doctor_visits) AS s FROM visits GROUP BY person_id) AS p WHERE s > 10
SELECT COUNT(*) AS n FROM visits AS v WHERE EXISTS (SELECT 1 FROM visits AS w WHERE w.person_id = v.person_id AND w.year > v.year)
SELECT AVG(d) AS m FROM (SELECT doctor_visits - LAG(doctor_visits) OVER (PARTITION BY person_id ORDER BY year) AS d FROM visits) AS x
SELECT SUM(doctor_visits) FILTER (WHERE health = 'poor') / COUNT(*) AS share FROM visits
WITH c(d) AS (SELECT range FROM range(5, 60, 5)) SELECT d, EXPMECH(COUNT(*) FILTER (WHERE age >= c.d)) OVER c FROM visits
WITH c(d) AS (SELECT range FROM range(0, 20000)) SELECT d, EXPMECH((c.d - 9000) * COUNT(*) FILTER (WHERE family_income < c.d)) OVER c FROM visits
WITH c(k) AS (VALUES ('free'), ('25%'), ('95%')) SELECT k, EXPMECH(SUM(doctor_visits) FILTER (WHERE plan = c.k)) OVER c FROM visits
WITH c(d) AS (SELECT range FROM range(0, 60, 5)) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE age <= c.d), 5000) OVER c FROM visits
WITH c(d) AS (SELECT range FROM range(0, 60, 5)) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE age <= c.d), 5000, max_hits => 2) OVER c FROM visits
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(health) AS m FROM visits
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MEDIAN(age) AS m FROM visits
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) AS m FROM visits
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) QUANTILE_DISC(family_size, 0.5) AS m FROM visits
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 40, bounds = (0, 65)) AVG(age) AS m FROM visits
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 40, bounds = (-1, 1)) CORR(age, doctor_visits) AS c FROM visits
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 40, combine = 'median', bounds = (0, 30)) MEDIAN(doctor_visits) AS m FROM visits
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 40, combine = 'noisy_mode') MODE(plan) AS p FROM visits
SELECT plan, COUNT(*) AS n FROM visits WHERE plan IN ('free', '95%') GROUP BY plan
SELECT site, APPROX_COUNT_DISTINCT(person_id) AS n FROM visits GROUP BY site
