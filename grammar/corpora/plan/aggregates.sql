-- case: a bare count has the default epsilon
SELECT COUNT(*) FROM visits
====
-- case: count of rows, row level
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM bids
====
-- case: count of people
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(DISTINCT patient_id) AS people FROM visits
====
-- case: epsilon is split over aggregates
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n, SUM(amount) AS total FROM visits
====
-- case: a share of its own
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*, epsilon => 0.25) AS n, SUM(amount) AS total FROM visits
====
-- case: an average
SELECT WITH DP OPTIONS (epsilon = 1) AVG(amount) AS mean FROM visits
====
-- case: a spread
SELECT WITH DP OPTIONS (epsilon = 1) STDDEV(age) AS spread FROM visits
====
-- case: Gaussian noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = 'GAUSSIAN') COUNT(*) AS n FROM visits
====
-- case: public keys
SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward
====
-- case: public keys of a boolean
SELECT WITH DP OPTIONS (epsilon = 1) urgent, COUNT(*) AS n FROM visits GROUP BY urgent
====
-- case: private keys cost delta
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) city, COUNT(*) AS n FROM visits GROUP BY city
====
-- case: fewer groups, less noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 1) city, COUNT(*) AS n FROM visits GROUP BY city
====
-- case: rows over all groups
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 5) ward, COUNT(*) AS n FROM visits GROUP BY ward
====
-- case: bounds of an expression
SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount * 2 + 1) AS total FROM visits
====
-- case: bounds by name
SELECT WITH DP OPTIONS (epsilon = 1) SUM(weight, contribution_bounds_per_row => (0, 150)) AS total FROM visits
====
-- case: bounds of a unit in a group
SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount, contribution_bounds_per_group => (0, 1000)) AS total FROM visits
====
-- case: arithmetic over aggregates is free
SELECT WITH DP OPTIONS (epsilon = 1) 1 + SUM(amount) / COUNT(*) AS ratio FROM visits
====
-- case: a filter
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FILTER (WHERE age > 60) AS old FROM visits WHERE urgent
====
-- case: an unknown unit is reached over a path
SELECT WITH DP OPTIONS (epsilon = 1) SUM(price) AS total FROM lines
====
-- case: public data cost nothing
SELECT ward, beds FROM wards ORDER BY beds DESC LIMIT 3
----
columns: ward, beds
cost: nothing
====
-- case: two blocks are one event
SELECT a.n, b.n AS m FROM (SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM visits) a, (SELECT WITH DP OPTIONS (epsilon = 2) COUNT(*) AS n FROM bids) b
====
-- case: SQL above the block
WITH s AS (SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT ward, n, rank() OVER (ORDER BY n DESC) AS place FROM s JOIN wards USING (ward) WHERE n > 10 ORDER BY place LIMIT 2
====
-- case: the unit restated
SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = patient_id) COUNT(*) AS n FROM visits
====
-- case: HAVING and ORDER BY use what was released
SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 5 ORDER BY n DESC LIMIT 1
