== ANY_UNIT
SELECT COUNT(*) FROM visits
SELECT COUNT(*) AS n, SUM(doctor_visits) AS s, AVG(age) AS a FROM visits
SELECT count(education), count(*) FILTER (WHERE female) FROM visits
SELECT COUNT(general_health), AVG(general_health) FROM visits
SELECT COUNT(*) FROM visits WHERE age > 30 AND plan <> 'free' OR NOT child
SELECT SUM(medical_dollars) FILTER (WHERE age BETWEEN 18 AND 40 AND female) FROM visits
SELECT plan, COUNT(*), SUM(medical_dollars), AVG(medical_dollars) FROM visits GROUP BY plan
SELECT year, plan, COUNT(*) FROM visits GROUP BY ALL ORDER BY year, plan
SELECT female, AVG(doctor_visits) FROM visits GROUP BY female
SELECT child AND female AS girl, COUNT(*) FROM visits WHERE girl IS NOT NULL GROUP BY girl
SELECT age > 40, COUNT(*) FROM visits WHERE (age > 40) IS NOT NULL GROUP BY 1
SELECT plan = 'free' AS is_free, AVG(other_visits) FROM visits GROUP BY 1 ORDER BY 1
SELECT VAR_POP(age), STDDEV_POP(age), VARIANCE(doctor_visits), STDDEV(medical_dollars) FROM visits
SELECT site, STDDEV(age) FROM visits GROUP BY site
SELECT 1 + AVG(age) * 2, SUM(doctor_visits) / COUNT(*), ROUND(AVG(age), 1) FROM visits
SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan HAVING COUNT(*) > 3000 ORDER BY n DESC
SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan HAVING n > 3000 ORDER BY n DESC LIMIT 2
SELECT plan, COUNT(*) FROM visits GROUP BY plan ORDER BY COUNT(*) LIMIT 1 OFFSET 1
SELECT plan, rank() OVER (ORDER BY COUNT(*) DESC) FROM visits GROUP BY plan
WITH v AS (SELECT * FROM visits WHERE female), c AS (SELECT plan, COUNT(*) AS n FROM v GROUP BY plan) SELECT max(n), min(n), sum(n) FROM c
SELECT plan, n, n / sum(n) OVER () FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan) ORDER BY plan
SELECT a.n - b.n FROM (SELECT COUNT(*) AS n FROM visits WHERE female) a, (SELECT COUNT(*) AS n FROM visits WHERE NOT female) b
SELECT (SELECT COUNT(*) FROM visits WHERE child) AS children, 7 AS seven
SELECT plan, COUNT(*) FROM visits WHERE plan IN ('free', '25%') GROUP BY plan HAVING COUNT(*) > 0
SELECT COUNT(*) FROM visits WHERE plan IN (SELECT plan FROM plans WHERE coinsurance < 30)
SELECT SUM(CASE WHEN female THEN doctor_visits ELSE 0 END), SUM(LEAST(age, 40) + 1) FROM visits
SELECT AVG(age * 2 - 1), SUM(GREATEST(doctor_visits, 3)), SUM(ABS(doctor_visits - 5)) FROM visits
SELECT SUM(COALESCE(education, 0)), SUM((age > 50)::INTEGER), COUNT(NULLIF(doctor_visits, 0)) FROM visits
SELECT COUNT(*) FROM visits WHERE upper(plan) LIKE 'F%' AND length(health) > 4 AND health ILIKE '%OO%'
SELECT COUNT(*) FROM visits WHERE SQRT(age) < 5 AND doctor_visits % 2 = 1 AND doctor_visits // 2 > 1
SELECT plan, site, COUNT(*) FROM visits WHERE female GROUP BY plan, site HAVING COUNT(*) > 0
SELECT COUNT(*) FROM (SELECT age, plan FROM visits WHERE age > 20) t WHERE t.age < 30
SELECT COUNT(*) AS n FROM visits UNION ALL SELECT COUNT(*) FROM visits WHERE female
SELECT * FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan) JOIN plans USING (plan) ORDER BY plan
SELECT SUM(age, contribution_bounds_per_row => (0, 65)) FROM visits|SELECT SUM(age) FROM visits
SELECT WITH DP OPTIONS (epsilon = 100000) COUNT(*) FROM visits|SELECT COUNT(*) FROM visits
SELECT WITH DP OPTIONS (epsilon = 500000, noise = 'GAUSSIAN', delta = 1e-9) COUNT(*), SUM(admissions) FROM visits|SELECT COUNT(*), SUM(admissions) FROM visits
SELECT WITH DP OPTIONS (epsilon = 500000, noise = GAUSSIAN, delta = 1e-9) plan, COUNT(*) FROM visits GROUP BY plan|SELECT plan, COUNT(*) FROM visits GROUP BY plan

== PERSON_ONLY
SELECT COUNT(DISTINCT person_id) FROM visits
SELECT plan, COUNT(DISTINCT person_id) FROM visits GROUP BY plan
SELECT COUNT(DISTINCT person_id) FILTER (WHERE age > 50) FROM visits
SELECT WITH DP OPTIONS (max_rows_contributed = 5) plan, COUNT(*), SUM(age) FROM visits GROUP BY plan|SELECT plan, COUNT(*), SUM(age) FROM visits GROUP BY plan
SELECT WITH DP OPTIONS (max_groups_contributed = 5) year, COUNT(*) FROM visits GROUP BY year|SELECT year, COUNT(*) FROM visits GROUP BY year
SELECT plan_number, COUNT(*) FROM visits GROUP BY plan_number
SELECT family_size::INTEGER AS size, COUNT(*) FROM visits WHERE family_size < 9 GROUP BY size
SELECT SUM(doctor_visits, contribution_bounds_per_group => (0, 400)) FROM visits|SELECT SUM(doctor_visits) FROM visits
SELECT AVG(age, contribution_bounds_per_group => (0, 65)) FROM visits|SELECT AVG(a) FROM (SELECT AVG(age) AS a FROM visits GROUP BY person_id)
SELECT plans.description, COUNT(*), AVG(age) FROM visits JOIN plans ON visits.plan = plans.plan GROUP BY ALL
SELECT plan, COUNT(person_id) FROM visits RIGHT JOIN plans USING (plan) GROUP BY plan
SELECT p.plan, COUNT(person_id) FROM plans p LEFT JOIN visits v ON v.plan = p.plan GROUP BY p.plan
SELECT COUNT(*) FROM visits a JOIN visits b ON a.person_id = b.person_id AND a.year = 1 AND b.year = 2
SELECT COUNT(*) FROM visits LEFT JOIN plans USING (plan) WHERE plans.coinsurance > 20
SELECT COUNT(*) FROM visits a SEMI JOIN plans USING (plan)
