-- case: a count
SELECT COUNT(*) AS n FROM visits
----
1. Each patient_id in visits is protected, with at most 10 rows in one group.
2. count_star(): count the rows; one privacy unit moves this by at most 10 in all.
3. count_star(): the count with discrete Laplace noise of scale 100 (ε=0.1); within ±300 with 0.95 probability.
Would cost ε=0.1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
====
-- case: an average by public keys
SELECT WITH DP OPTIONS (epsilon = 1) ward, AVG(amount) AS mean FROM visits GROUP BY ward
====
-- case: private keys
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) city, COUNT(*) AS n FROM visits GROUP BY city
----
1. Each patient_id in visits is protected, with at most 10 rows in one group.
2. Groups are private: each is shown by the number of its privacy units; one privacy unit counts in at most 3 of them.
3. count_star(): count the rows; one privacy unit moves this by at most 10 in one group.
4. groups are selected by their number of units (optimal, ε=0.5, δ=1e-06): a group appears with probability 3.3e-07 from 1 unit, above one half from 76, above 0.999 from 113; smaller groups are left out
5. count_star(): the count with discrete Laplace noise of scale 60 (ε=0.5, over 3 groups); within ±180 with 0.95 probability.
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
====
-- case: rows
SELECT WITH DP OPTIONS (epsilon = 1) SUM(bid) AS total FROM bids
====
-- case: Gaussian noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = 'GAUSSIAN') COUNT(*) AS n, SUM(amount) AS total FROM visits
====
-- case: public data
SELECT beds FROM wards
----
1. This statement reads public data only.
It reads nothing private and costs nothing.
====
-- case: bounds from interval arithmetic
SELECT WITH DP OPTIONS (epsilon = 1) SUM(LEAST(amount, 100) - 10) AS total FROM visits
