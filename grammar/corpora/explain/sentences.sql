-- case: a count
SELECT COUNT(*) AS n FROM visits
----
Would cost ε=0.1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. n: count the rows; one patient_id moves this by at most 10 in all; rows of one patient_id above 10 are left out. The count has discrete Laplace noise of scale 100 (ε=0.1); within ±300 with 0.95 probability.
3. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
4. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
5. Small keys are summed in memory: same result, faster.

Error that 0.95 of all answers stay within, at other epsilons:
      ε=0.01   ε=0.02   ε=0.05   [ε=0.1]   ε=0.2   ε=0.5   ε=1
  n   ±2 996   ±1 498     ±599      ±300    ±150     ±60   ±30
====
-- case: an average by public keys
SELECT WITH DP OPTIONS (epsilon = 1) ward, AVG(amount) AS mean FROM visits GROUP BY ward
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. Groups are public (declared by the policy): all of them appear; one patient_id counts in at most 3 of them.
3. mean: average amount, clamped to [0, 500] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together. A total of differences from 250 with discrete Laplace noise of scale 5000 (ε=0.5); within ±18444.4 with 0.975 probability. Divided by a count with discrete Laplace noise of scale 20 (ε=0.5); within ±73.7776 with 0.975 probability.
4. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
5. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
6. Small keys are summed in memory: same result, faster.

Error that 0.95 of all answers stay within, at other epsilons:
                           ε=0.1    ε=0.2     ε=0.5     [ε=1]       ε=2        ε=5
  mean, of 1,000 rows       ±500   ±292.3    ±86.55    ±39.83    ±19.15     ±7.488
  mean, of 10,000 rows    ±39.83   ±19.15    ±7.488    ±3.716    ±1.851    ±0.7389
  mean, of 100,000 rows   ±3.716   ±1.851   ±0.7389   ±0.3692   ±0.1845   ±0.07379
====
-- case: private keys
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) city, COUNT(*) AS n FROM visits GROUP BY city
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. Groups are private: each is shown by the number of its privacy units; one patient_id counts in at most 3 of them.
3. n: count the rows; one patient_id moves this by at most 10 in one group; rows of one patient_id above 10 are left out. The count has discrete Laplace noise of scale 20 (ε=0.5); within ±60 with 0.95 probability.
4. Caps: max_rows = 10, max_groups = 3. The noise is that of 10 rows of one patient_id, the least that they allow (10 in all).
5. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
6. Noise: AUTO takes Laplace noise: its expected error is 0.3 times that of Gaussian noise of ε=0.5, δ=5e-07.
7. groups are selected by their number of units (optimal at Rényi order 41.6 for 3 groups of a unit together, ε=0.5, δ=1e-06): a group appears with probability 1.7e-07 from 1 unit, above one half from 61, above 0.999 from 99; smaller groups are left out

Error that 0.95 of all answers stay within, at other epsilons:
      ε=0.1   ε=0.2   ε=0.5   [ε=1]   ε=2   ε=5
  n    ±599    ±300    ±120     ±60   ±30   ±12
====
-- case: rows
SELECT WITH DP OPTIONS (epsilon = 1) SUM(bid) AS total FROM bids
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each row of bids is protected.
2. total: add bid, clamped to [0, 10] (from the policy); one row moves this by at most 10 in all. The sum has discrete Laplace noise of scale 10 (ε=1); within ±29.96 with 0.95 probability.

Error that 0.95 of all answers stay within, at other epsilons:
           ε=0.1    ε=0.2    ε=0.5    [ε=1]      ε=2     ε=5
  total   ±299.6   ±149.8   ±59.91   ±29.96   ±14.98   ±5.99
====
-- case: Gaussian noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = 'GAUSSIAN') COUNT(*) AS n, SUM(amount) AS total FROM visits
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. n: count the rows; one patient_id moves this by at most 10 in all; rows of one patient_id above 10 are left out. The count has rounded Gaussian noise of deviation 59.746 (jointly ε=1, δ=1e-06); within ±117 with 0.95 probability.
3. total: add amount, clamped to [0, 500] (from the policy); one patient_id moves this by at most 5000 in all; the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together. The sum has rounded Gaussian noise of deviation 29873 (jointly ε=1, δ=1e-06); within ±58550 with 0.95 probability.
4. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
5. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
6. Gaussian noise is calibrated once for all of its numbers together (ε=1, δ=1e-06, by the analytic formula): each has noise for its own sensitivity to one patient_id.
7. Small keys are summed in memory: same result, faster.

Error that 0.95 of all answers stay within, at other epsilons:
             ε=0.1      ε=0.2      ε=0.5     [ε=1]       ε=2       ε=5
  n         ±1 006       ±526       ±223      ±117       ±62       ±27
  total   ±503 100   ±263 200   ±111 700   ±58 550   ±30 910   ±13 580
====
-- case: AUTO takes the noise with the smaller error
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) city, COUNT(*) AS n, SUM(amount) AS total, AVG(amount) AS mean, CORR(age, amount) AS r FROM visits GROUP BY city
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. Groups are private: each is shown by the number of its privacy units; one patient_id counts in at most 3 of them.
3. n: count the rows; one patient_id moves this by at most 10 in one group; rows of one patient_id above 10 are left out. The count has rounded Gaussian noise of deviation 107.514 (jointly ε=0.8, δ=5e-07); within ±211 with 0.95 probability.
4. total: add amount, clamped to [0, 500] (from the policy); one patient_id moves this by at most 5000 in one group; the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together. The sum has rounded Gaussian noise of deviation 53756.9 (jointly ε=0.8, δ=5e-07); within ±105362 with 0.95 probability.
5. mean: average amount, clamped to [0, 500] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together. A total of differences from 250 with rounded Gaussian noise of deviation 38011.9 (jointly ε=0.8, δ=5e-07); within ±85199.9 with 0.975 probability. Divided by a count with rounded Gaussian noise of deviation 152.047 (jointly ε=0.8, δ=5e-07); within ±340.8 with 0.975 probability.
6. r: CORR from 6 noisy moments, age clamped to [0, 120] (from the policy) and amount clamped to [0, 500] (from the policy); the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together.
7. Caps: max_rows = 10, max_groups = 3. The noise is that of 10 rows of one patient_id, the least that they allow (10 in all).
8. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
9. Noise: AUTO takes Gaussian noise of ε=0.8, δ=5e-07: its expected error is 0.935 times that of Laplace noise.
10. groups are selected by their number of units (optimal at Rényi order 107 for 3 groups of a unit together, ε=0.2, δ=5e-07): a group appears with probability 8.3e-08 from 1 unit, above one half from 149, above 0.999 from 241; smaller groups are left out
11. Gaussian noise is calibrated once for all of its numbers together (ε=0.8, δ=5e-07, by the analytic formula): each has noise for its own sensitivity to one patient_id.
12. r: a sum of products with rounded Gaussian noise of deviation 3.95031e+06 (jointly ε=0.8, δ=5e-07); within ±1.04219e+07 with 0.9917 probability.
13. r: a total of differences from 60 with rounded Gaussian noise of deviation 15801.2 (jointly ε=0.8, δ=5e-07); within ±41687.7 with 0.9917 probability.
14. r: a total of differences from 250 with rounded Gaussian noise of deviation 65838.5 (jointly ε=0.8, δ=5e-07); within ±173699 with 0.9917 probability.
15. r: a sum of squares with rounded Gaussian noise of deviation 948074 (jointly ε=0.8, δ=5e-07); within ±2.50126e+06 with 0.9917 probability.
16. r: a sum of squares with rounded Gaussian noise of deviation 1.64596e+07 (jointly ε=0.8, δ=5e-07); within ±4.34247e+07 with 0.9917 probability.
17. r: and a count with rounded Gaussian noise of deviation 263.354 (jointly ε=0.8, δ=5e-07); within ±694.795 with 0.9917 probability.
Mean absolute error (rows spread evenly between the bounds): r ±0.788 of 1,000 rows, ±0.0788 of 10,000, ±0.00788 of 100,000.

Error that 0.95 of all answers stay within, at other epsilons:
                             ε=0.1      ε=0.2      ε=0.5      [ε=1]       ε=2       ε=5
  n                         ±1 830       ±955       ±404       ±211      ±111       ±48
  total                   ±915 000   ±477 300   ±201 800   ±105 400   ±55 310   ±24 020
  mean, of 1,000 rows         ±500       ±500       ±500     ±258.5      ±109    ±42.13
  mean, of 10,000 rows      ±210.2     ±91.29     ±34.91     ±17.64    ±9.109    ±3.916
  mean, of 100,000 rows     ±15.25     ±7.841     ±3.284      ±1.71   ±0.8962   ±0.3888
====
-- case: AUTO never adds a delta
SELECT WITH DP OPTIONS (epsilon = 1, noise = AUTO) COUNT(*) AS n FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. n: count the rows; one patient_id moves this by at most 10 in all; rows of one patient_id above 10 are left out. The count has discrete Laplace noise of scale 10 (ε=1); within ±30 with 0.95 probability.
3. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
4. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
5. Noise: AUTO takes Laplace noise: only a delta in the statement's own OPTIONS allows Gaussian noise.
6. Small keys are summed in memory: same result, faster.

Error that 0.95 of all answers stay within, at other epsilons:
      ε=0.1   ε=0.2   ε=0.5   [ε=1]   ε=2   ε=5
  n    ±300    ±150     ±60     ±30   ±15    ±6
====
-- case: what caps and bounds cut
SELECT WITH DP OPTIONS (epsilon = 1, report_cut = TRUE) ward, COUNT(*) AS n, SUM(amount) AS total FROM visits GROUP BY ward
----
Would cost ε=1 (ε=0.1 of it pays for the report of cuts); ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. Groups are public (declared by the policy): all of them appear; one patient_id counts in at most 3 of them.
3. n: count the rows; one patient_id moves this by at most 10 in one group; rows of one patient_id above 10 are left out. The count has discrete Laplace noise of scale 22.2222 (ε=0.45); within ±67 with 0.95 probability.
4. total: add amount, clamped to [0, 500] (from the policy); one patient_id moves this by at most 5000 in one group; the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together. The sum has discrete Laplace noise of scale 11111.1 (ε=0.45); within ±33285.9 with 0.95 probability.
5. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
6. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
7. Notes report the rows that caps and bounds cut, for ε=0.1 of the whole: rows beyond 10 of one patient_id in all (±599); amount beyond [0, 500], added up (±300 000), with 0.95 probability. Rows, groups and values of one patient_id count up to the caps.

Error that 0.95 of all answers stay within, at other epsilons:
             ε=0.1      ε=0.2     ε=0.5     [ε=1]       ε=2      ε=5
  n           ±666       ±333      ±133       ±67       ±33      ±13
  total   ±332 900   ±166 400   ±66 570   ±33 290   ±16 640   ±6 657
====
-- case: public data
SELECT beds FROM wards
----
It reads nothing private and costs nothing.
1. This statement reads public data only.
====
-- case: bounds from interval arithmetic
SELECT WITH DP OPTIONS (epsilon = 1) SUM(LEAST(amount, 100) - 10) AS total FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. total: add LEAST(amount, 100) - 10, clamped to [-10, 90] (from the policy); one patient_id moves this by at most 900 in all; the excess of one patient_id's sum is left out. The sum has discrete Laplace noise of scale 900 (ε=1); within ±2696.16 with 0.95 probability.
3. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
4. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
5. Small keys are summed in memory: same result, faster.

Error that 0.95 of all answers stay within, at other epsilons:
            ε=0.1     ε=0.2    ε=0.5    [ε=1]      ε=2      ε=5
  total   ±26 960   ±13 480   ±5 392   ±2 696   ±1 348   ±539.2
====
-- case: a histogram and a covariance
EXPLAIN SELECT WITH DP OPTIONS (epsilon = 1) HISTOGRAM(ward) AS h, COVAR_POP(age, amount) AS c FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. h: count the rows with ward in 3 bins (declared by the policy); all of them are shown. The count of each of 3 bins with discrete Laplace noise of scale 20 (ε=0.5); within ±60 with 0.95 probability.
3. c: COVAR_POP from 4 noisy moments, age clamped to [0, 120] (from the policy) and amount clamped to [0, 500] (from the policy); the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together.
4. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
5. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
6. c: a sum of products with discrete Laplace noise of scale 1.2e+06 (ε=0.125); within ±5.25843e+06 with 0.9875 probability.
7. c: a total of differences from 60 with discrete Laplace noise of scale 4800 (ε=0.125); within ±21033.7 with 0.9875 probability.
8. c: a total of differences from 250 with discrete Laplace noise of scale 20000 (ε=0.125); within ±87640.5 with 0.9875 probability.
9. c: and a count with discrete Laplace noise of scale 80 (ε=0.125); within ±350.562 with 0.9875 probability.
Mean absolute error (rows spread evenly between the bounds): h ±19.99; c ±1 500 of 1,000 rows, ±150 of 10,000, ±15 of 100,000.

Error that 0.95 of all answers stay within, at other epsilons:
                ε=0.1   ε=0.2   ε=0.5   [ε=1]   ε=2   ε=5
  h, each bin    ±599    ±300    ±120     ±60   ±30   ±12
====
-- case: stable questions
DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6, max_unstable = 5, blocks = 512)
----
Would reserve ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Open the stable questions alarm: the privacy units are divided once into 512 blocks; each question runs on every block, and the vote that wins by enough is its exact answer (ε=1, δ=1e-06).
2. A question on which the blocks disagree is NULL, and is charged: 5 such questions close the stream. Answered questions are free.
3. Of 1,000 questions, a lead of 376 of 512 votes is answered in 95% of sessions; δ is the chance of an answer that one privacy unit could change, in all questions together.
4. CLOSE, the last unstable question or the end of the session settles the charge: unused ones are refunded under basic composition.
====
-- case: proposed sensitivities
EXPLAIN SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) QUANTILE_DISC(age, 0.9, local_sensitivity => 2) AS old, IQR(amount, local_sensitivity => 5) AS spread, MODE(age, local_sensitivity => 3) AS often FROM visits
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 1 row in all; rows whose patient_id is NULL count nowhere.
2. old: the proposal is that one unit moves the 0.9 quantile by at most 2; the test passes from 75 units (50% of runs), 88 units (95% of runs), 98 units (99% of runs) away from data where one unit can move it further (with certainty from 150), and with probability at most 3.33e-07 where one unit can. Then the 0.9 quantile is released with noise, within ±35.95 at 95%.
3. spread: the proposal is that one unit moves the interquartile range by at most 5; the test passes from 75 units (50% of runs), 88 units (95% of runs), 98 units (99% of runs) away from data where one unit can move it further (with certainty from 150), and with probability at most 3.33e-07 where one unit can. Then the interquartile range is released with noise, within ±89.87 at 95%.
4. often: the proposal is that one unit moves the most frequent value by at most 3; the test passes from 75 units (50% of runs), 88 units (95% of runs), 98 units (99% of runs) away from data where one unit can move it further (with certainty from 150), and with probability at most 3.33e-07 where one unit can. Then the most frequent value is released with noise, within ±53.92 at 95%.
5. A test that fails gives NULL, and is charged like one that passes.
====
-- case: a mean as accurate as asked
SELECT WITH DP OPTIONS (error = 100, epsilon = 1) COUNT(*) AS n, AVG(amount) AS mean FROM visits
----
Would cost at most ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. n: count the rows; one patient_id moves this by at most 10 in all; rows of one patient_id above 10 are left out. ±100 at 0.95 confidence takes ε=0.29809. The count has discrete Laplace noise of scale 33.5469 (ε=0.29809); within ±100 with 0.95 probability.
3. mean: average amount, clamped to [0, 500] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than 10 rows in all weigh less, and count as 10 together. Noise is reduced step by step until every interval ends within 100 of its value, at 0.95 confidence, or ε=0.70191 is used up. Accountants that sum ε charge what was used; others charge the stages that were begun.
4. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
5. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
Mean absolute error: mean ±33.38.

Error that 0.95 of all answers stay within, at other epsilons:
       ε=0.1   ε=0.2   ε=0.5   [ε=1]   ε=2   ε=5
  n   ±1 005    ±502    ±201    ±100   ±50   ±20
====
-- case: block results without bounds
EXPLAIN SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, delta = 1e-6, bounds = AUTO, blocks = 600) AVG(age) AS a FROM visits
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. The query runs on 600 blocks of privacy units.
2. the query runs exactly on each of 600 blocks of privacy units, in one pass.
3. a: no bounds are declared: the mean of 600 block results without the 150 smallest and largest, with noise for the order of magnitude of their spread. Two tests, with bins half a bin apart, check whether that is stable; if neither passes, it is NULL; the test passes from 34 units (50% of runs), 40 units (95% of runs), 45 units (99% of runs) away from another answer (with certainty from 69), and with probability at most 5e-07 where the answer is not stable. Normally distributed results pass from about 360 blocks. The noise is within ±0.0401 to ±0.16 of the distance between the results left out, at 95%.
====
-- case: STABLE: a spread, a trimmed mean, a median and a mode
SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(age) AS spread, TRIMMED_MEAN(age, 0.1) AS middle, MEDIAN(age), MODE(ward) FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. spread: the upper quartile less the lower one, of age clamped to [0, 120] (from the policy). k is at most 623.3, with 0.95 probability; no delta is needed, and it is never NULL.
3. middle: the mean without the lowest and the highest 0.1 of the rows, of age clamped to [0, 120] (from the policy). k is at most 1122, with 0.95 probability; no delta is needed, and it is never NULL.
4. median(age): among 121 grid points, bounds from the policy. The value that 0.5 of the rows lie below, within 415.5 rows, with 0.95 probability. From 2723 rows on, it falls outside the data with a chance of at most 1e-09; with fewer it may fall anywhere between the bounds.
5. mode(ward): choose among the 3 public values of ward by how many rows have each. At most 163.8 rows behind the most frequent value, with 0.95 probability.
6. Choose median(age) among 121 grid points by the exponential mechanism (ε=0.25).
7. Each interval of median(age) is a choice of its own, which takes ε=0.0625 of this in each group.
8. Choose iqr(age) (the upper quartile less the lower one) among 121 public answers by inverse sensitivity (ε=0.25): each weighs exp(-0.0125 k), where k is the number of rows to add or remove until the exact answer reaches it.
9. Choose trimmed_mean(age, 0.1) (the mean without the lowest and the highest 0.1 of the rows) among 61441 public answers by inverse sensitivity (ε=0.25): each weighs exp(-0.0125 k), where k is the number of rows to add or remove until the exact answer reaches it.
10. Choose mode(ward) among 3 public values by the exponential mechanism (ε=0.25).
Mean absolute error (rows spread evenly between the bounds): spread ±4.8 of 1,000 rows, ±0.48 of 10,000, ±0.048 of 100,000; middle ±4.8 of 1,000 rows, ±0.48 of 10,000, ±0.048 of 100,000; median(age) ±6.4 of 1,000 rows, ±0.64 of 10,000, ±0.064 of 100,000.

Error that 0.95 of all answers stay within, at other epsilons:
                           ε=0.1    ε=0.2    ε=0.5    [ε=1]      ε=2      ε=5
  median(age), in rows    ±4 155   ±2 078   ±831.1   ±415.5   ±207.8   ±83.11
  spread, in rows         ±6 233   ±3 117   ±1 247   ±623.3   ±311.7   ±124.7
  middle, in rows        ±11 220   ±5 609   ±2 243   ±1 122   ±560.9   ±224.3
  mode(ward), in rows     ±1 638   ±818.9   ±327.5   ±163.8   ±81.89   ±32.75
====
-- case: STABLE in mu
-- policy: mu
SELECT WITH STABLE OPTIONS (mu = 0.5) IQR(age) AS spread FROM visits
----
Would cost μ=0.5; μ=1 of μ=1 left. It uses 25% of the gdp rule. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. spread: the upper quartile less the lower one, of age clamped to [0, 120] (from the policy). k is at most 194.8, with 0.95 probability; no delta is needed, and it is never NULL.
3. Choose iqr(age) (the upper quartile less the lower one) among 121 public answers by inverse sensitivity (ε=0.800155): each weighs exp(-0.04001 k), where k is the number of rows to add or remove until the exact answer reaches it.
Mean absolute error (rows spread evenly between the bounds): spread ±1.5 of 1,000 rows, ±0.15 of 10,000, ±0.015 of 100,000.

Error that 0.95 of all answers stay within, at other mu:
                    μ=0.05    μ=0.1   μ=0.25   [μ=0.5]
  spread, in rows   ±1 948   ±973.8   ±389.5    ±194.8
====
-- case: a threshold with answers
DECLARE alarm ABOVE_THRESHOLD 2 * (SELECT 50) OPTIONS (epsilon = 1, max_hits = 3, answer = TRUE, gap = TRUE, budget_split = (0.2, 0.3, 0.5))
----
Would reserve ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Open the threshold alarm: successive statistics are compared with 100, by one noisy threshold that is kept in memory (ε=1, at most 3 hits).
2. At 95%, a comparison is right if the statistic is farther from the threshold than 92.22 times the most that one privacy unit can move it.
3. CLOSE, the last hit or the end of the session settles the charge: unused hits are refunded under basic composition.
4. Each hit has a fresh noisy answer; all answers share ε=0.5.
====
-- case: a variance without bounds
SELECT WITH DP OPTIONS (epsilon = 1) VAR_POP(weight, contribution_bounds_per_row => AUTO) AS spread FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. spread: VAR_POP of weight, clamped to bounds found privately.
3. spread: find clipping bounds among 0 and the powers of two from 2^-30 to 2^64, for each sign, from noisy numbers of one row of each privacy unit between them (ε=0.15).
4. spread: AUTO needs about 211 privacy units between one power of two and the next, with 95% probability: if neither sign has that many, the answer is NULL. Fewer rows that are far larger than all others may all be clipped.
5. spread: a bound more than 8 times the largest value that occurs has a chance of at most 1.3e-10.
6. spread: the spread (a sum about the middle of the bounds, one of squares about it, and a count) of the clipped values with discrete Laplace noise of scale 35.2941 times half the distance of the bounds, of the squares times half the distance squared, of the count times 1 (ε=0.85).
====
-- case: a quantile without bounds
SELECT WITH DP OPTIONS (epsilon = 1) QUANTILE_CONT(weight, 0.9, contribution_bounds_per_row => AUTO) AS q FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. q: weight among the 192513 points of a geometric grid. The value that 0.9 of the rows lie below, within 363.9 rows, with 0.95 probability. From 7894 rows on, it falls outside the data with a chance of at most 1e-09; with fewer it may fall anywhere between the bounds.
3. Choose quantile_cont(weight, 0.9) among 192513 grid points by the exponential mechanism (ε=1).
4. Each interval of quantile_cont(weight, 0.9) is a choice of its own, which takes ε=0.25 of this in each group.
5. The points are 2^-10 of their size apart, up to 2^64 of either sign: no bounds are needed.

Error that 0.95 of all answers stay within, at other epsilons:
                ε=0.1    ε=0.2    ε=0.5    [ε=1]    ε=2      ε=5
  q, in rows   ±3 639   ±1 820   ±727.9   ±363.9   ±182   ±72.79
====
-- case: the mean of the values in the middle
EXPLAIN SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) AVG(amount) AS a, STDDEV(age, trim => 0.01) AS s, AVG(age, local_sensitivity => 0.5) AS p FROM visits
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 1 row in all; rows whose patient_id is NULL count nowhere.
2. a: the mean of the middle 90% of the values. Two tests, with bins half a bin apart, check whether the order of magnitude of one unit's effect on it is stable; if neither passes, it is NULL; the test passes from 103 units (50% of runs), 121 units (95% of runs), 134 units (99% of runs) away from another answer (with certainty from 206), and with probability at most 1.67e-07 where the answer is not stable. That takes about 2,680 rows or more. Then it is released with noise, within ±35.9 to ±144 times the most that one unit can move it, at 95%. Values are clamped to 0 to 500.
3. s: the variance of the middle 98% of the values. Two tests, with bins half a bin apart, check whether the order of magnitude of one unit's effect on it is stable; if neither passes, it is NULL; the test passes from 103 units (50% of runs), 121 units (95% of runs), 134 units (99% of runs) away from another answer (with certainty from 206), and with probability at most 1.67e-07 where the answer is not stable. That takes about 13,400 rows or more. Then it is released with noise, within ±35.9 to ±144 times the most that one unit can move it, at 95%, and its square root shown. Values are clamped to 0 to 120.
4. p: the proposal is that one unit moves the mean of the middle 90% of the values by at most 0.5; the test passes from 75 units (50% of runs), 88 units (95% of runs), 98 units (99% of runs) away from data where one unit can move it further (with certainty from 150), and with probability at most 3.33e-07 where one unit can. Then it is released with noise, within ±8.987 at 95%. Values are clamped to 0 to 120.
5. A test that fails gives NULL, and is charged like one that passes.
====
-- case: the median of blocks and its interval
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (-1, 1)) CORR(age, amount) AS r FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. The query runs on 128 blocks of privacy units.
2. the query runs exactly on each of 128 blocks of privacy units, in one pass.
3. r: the median of 128 block results clamped to [-1, 1], by the exponential mechanism; off by at most 37.6 ranks of 128 at 95%. The interval ends where about 11 of 128 results are outside, chosen with ε=0.25; it contains their median at the stated confidence.
4. CORR: numbers farther than 4,096 from 250 count as missing.
====
-- case: too few blocks for an interval
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 60, bounds = (-3, 3)) CORR(age, amount) AS r FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. The query runs on 60 blocks of privacy units.
2. the query runs exactly on each of 60 blocks of privacy units, in one pass.
3. r: the median of 60 block results clamped to [-3, 3], by the exponential mechanism; off by at most 28.2 ranks of 60 at 95%. 60 blocks are too few for an interval at this epsilon.
4. CORR: numbers farther than 4,096 from 250 count as missing.
====
-- case: a utility that is no sum
WITH ages(a) AS (VALUES (20), (40)) SELECT a, EXPMECH(-ABS(COUNT(*) FILTER (WHERE age < a) - COUNT(*) FILTER (WHERE age >= a)), epsilon => 1) OVER ages FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. The statistic of each candidate is exact, in one pass (one-sided); one patient_id moves it by at most 10.
3. Choose the best of 2 candidates by permute and flip (ε=1).
4. With probability at least 0.95 the winner is within 73.78 of the best.

Error that 0.95 of all answers stay within, at other epsilons:
                       ε=0.1    ε=0.2    ε=0.5    [ε=1]      ε=2      ε=5
  short of the best   ±737.8   ±368.9   ±147.6   ±73.78   ±36.89   ±14.76
====
-- case: several ranges
WITH r(lo, hi) AS (VALUES (20, 40), (40, 60)) SELECT lo, EXPMECH(COUNT(*) FILTER (WHERE age >= lo AND age < hi AND week > lo), epsilon => 1) OVER r FROM visits
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. The statistic of each candidate is exact, in one pass (several ranges); one patient_id moves it by at most 10, always the same way.
3. Choose the best of 2 candidates by permute and flip (ε=1).
4. With probability at least 0.95 the winner is within 36.89 of the best.
5. Adding a unit moves all utilities in one direction, so half the noise is enough.

Error that 0.95 of all answers stay within, at other epsilons:
                       ε=0.1    ε=0.2    ε=0.5    [ε=1]      ε=2      ε=5
  short of the best   ±368.9   ±184.4   ±73.78   ±36.89   ±18.44   ±7.378
====
-- case: a mu
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*) AS n FROM visits
----
Would cost μ=0.5; μ=1 of μ=1 left. It uses 25% of the gdp rule. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 10 rows in all; rows whose patient_id is NULL count nowhere.
2. n: count the rows; one patient_id moves this by at most 10 in all; rows of one patient_id above 10 are left out. The count has rounded Gaussian noise of deviation 20 (μ=0.5); within ±39 with 0.95 probability.
3. Caps: max_rows = 10. The noise is that of 10 rows of one patient_id.
4. The cap that would help most: try max_rows_contributed = 5, which has 0.5 times the noise; rows of one patient_id above 5 in all are left out. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out.
5. Small keys are summed in memory: same result, faster.

Error that 0.95 of all answers stay within, at other mu:
      μ=0.05   μ=0.1   μ=0.25   [μ=0.5]
  n     ±392    ±196      ±78       ±39
====
-- case: caps that are found
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) ward, COUNT(*) AS n, AVG(amount) AS mean FROM visits GROUP BY ward
----
Would cost ε=1; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected; rows whose patient_id is NULL count nowhere.
2. Groups are public (declared by the policy): all of them appear.
3. n: count the rows; one patient_id moves this by at most 1 in one group, times the cap on its rows.
4. mean: average amount, clamped to [0, 500] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
5. max_rows_contributed is found privately among 1, 2, 4, 8, ..., 1048576, by ABOVE_THRESHOLD (ε=0.25): the cap is raised as long as more than about 8 units have rows above the cap.
6. With max_rows_contributed = 1: count_star(): the count has discrete Laplace noise of scale 2.66667 (ε=0.375); within ±8 with 0.95 probability.
7. With max_rows_contributed = 1: avg(amount): a total of differences from 250 with discrete Laplace noise of scale 1333.33 (ε=0.1875); within ±4918.51 with 0.975 probability.
8. With max_rows_contributed = 1: avg(amount): divided by a count with discrete Laplace noise of scale 5.33333 (ε=0.1875); within ±19.674 with 0.975 probability.
9. With max_rows_contributed = 1: Small keys are summed in memory: same result, faster.
10. Noise grows with max_rows_contributed.
Mean absolute error, with caps of 1 (noise grows in proportion to those that are found): n ±2.605.

Error that 0.95 of all answers stay within, at other epsilons:
                                                           ε=0.1     ε=0.2     ε=0.5      [ε=1]        ε=2        ε=5
  n, with max_rows_contributed = 1                           ±80       ±40       ±16         ±8         ±4         ±1
  mean, of 1,000 rows, with max_rows_contributed = 1      ±122.5    ±54.55    ±20.48     ±10.03     ±4.967     ±1.975
  mean, of 10,000 rows, with max_rows_contributed = 1     ±10.03    ±4.967    ±1.975    ±0.9856    ±0.4923    ±0.1968
  mean, of 100,000 rows, with max_rows_contributed = 1   ±0.9856   ±0.4923   ±0.1968   ±0.09839   ±0.04919   ±0.01967
====
-- case: caps that are found, and private groups
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = AUTO) city, COUNT(*) AS n, COUNT(DISTINCT patient_id) AS people FROM visits GROUP BY city
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected; rows whose patient_id is NULL count nowhere.
2. Groups are private: each is shown by the number of its privacy units.
3. max_groups_contributed is found privately among 1, 2, 4, 8, ..., 1024, by ABOVE_THRESHOLD (ε=0.0833333): the cap is raised as long as more than half of the units have groups above the cap.
4. With max_groups_contributed = 1: groups are selected by their number of units (optimal, ε=0.25, δ=5e-07): a group appears with probability 5e-07 from 1 unit, above one half from 51, above 0.999 from 76; smaller groups are left out
5. Noise grows with max_groups_contributed.
6. n: count the rows; one patient_id moves this by at most 1 in one group, times the cap on its rows.
7. people: count the privacy units; one patient_id moves this by at most 1 in one group.
8. Noise: AUTO takes Gaussian noise of ε=0.5, δ=5e-07: its expected error is 0.99 times that of Laplace noise.
9. max_groups_contributed is found privately among 1, 2, 4, 8, ..., 1024, by ABOVE_THRESHOLD (ε=0.0833333): the cap is raised as long as more than about 4 units for each group have groups above the cap.
10. max_rows_contributed is found privately among 1, 2, 4, 8, ..., 1048576, by ABOVE_THRESHOLD (ε=0.0833333): the cap is raised as long as more than about 4 units for each group have rows above the cap.
11. With max_rows_contributed = 1: Gaussian noise is calibrated once for all of its numbers together (ε=0.5, δ=5e-07, by the analytic formula): each has noise for its own sensitivity to one patient_id.
12. With max_rows_contributed = 1: count_star(): the count has rounded Gaussian noise of deviation 11.8063 (jointly ε=0.5, δ=5e-07); within ±23 with 0.95 probability.
13. With max_rows_contributed = 1: count(DISTINCT patient_id): the count has rounded Gaussian noise of deviation 11.8063 (jointly ε=0.5, δ=5e-07); within ±23 with 0.95 probability.
14. With max_rows_contributed = 1: Small keys are summed in memory: same result, faster.
15. Noise grows with max_rows_contributed.
Mean absolute error, with caps of 1 (noise grows in proportion to those that are found): n ±9.417, people ±9.417.

Error that 0.95 of all answers stay within, at other epsilons:
                                                ε=0.1   ε=0.2   ε=0.5   [ε=1]   ε=2   ε=5
  n, with max_rows_contributed = 1, with         ±201    ±105     ±44     ±23   ±12    ±5
  max_groups_contributed = 1
  people, with max_rows_contributed = 1, with    ±201    ±105     ±44     ±23   ±12    ±5
  max_groups_contributed = 1
====
-- case: caps that are found, and the better noise
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = AUTO) ward, COUNT(*), SUM(amount), SUM(age), SUM(week), AVG(amount), AVG(age), AVG(week), VAR_POP(amount), VAR_POP(age) FROM visits GROUP BY ward
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected; rows whose patient_id is NULL count nowhere.
2. Groups are public (declared by the policy): all of them appear.
3. count_star(): count the rows; one patient_id moves this by at most 1 in one group, times the cap on its rows.
4. sum(amount): add amount, clamped to [0, 500] (from the policy); one patient_id moves this by at most 500 in one group, times the cap on its rows; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
5. sum(age): add age, clamped to [0, 120] (from the policy); one patient_id moves this by at most 120 in one group, times the cap on its rows; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
6. sum(week): add week, clamped to [1, 53] (from the policy); one patient_id moves this by at most 53 in one group, times the cap on its rows; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
7. avg(amount): average amount, clamped to [0, 500] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
8. avg(age): average age, clamped to [0, 120] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
9. avg(week): average week, clamped to [1, 53] (from the policy), as a noisy sum over a noisy count; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
10. var_pop(amount): VAR_POP of amount, clamped to [0, 500] (from the policy), from noisy moments; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
11. var_pop(age): VAR_POP of age, clamped to [0, 120] (from the policy), from noisy moments; the rows of a privacy unit with more than the cap weigh less, and count as the cap together.
12. Noise: AUTO takes Gaussian noise of ε=0.875, δ=1e-06: its expected error is 0.951 times that of Laplace noise.
13. max_rows_contributed is found privately among 1, 2, 4, 8, ..., 1048576, by ABOVE_THRESHOLD (ε=0.125): the cap is raised as long as more than about 31 units have rows above the cap.
14. With max_rows_contributed = 1: Gaussian noise is calibrated once for all of its numbers together (ε=0.875, δ=1e-06, by the analytic formula): each has noise for its own sensitivity to one patient_id.
15. With max_rows_contributed = 1: count_star(): the count has rounded Gaussian noise of deviation 14.3473 (jointly ε=0.875, δ=1e-06); within ±28 with 0.95 probability.
16. With max_rows_contributed = 1: sum(amount): the sum has rounded Gaussian noise of deviation 7173.64 (jointly ε=0.875, δ=1e-06); within ±14060.1 with 0.95 probability.
17. With max_rows_contributed = 1: sum(age): the sum has rounded Gaussian noise of deviation 1721.67 (jointly ε=0.875, δ=1e-06); within ±3374.42 with 0.95 probability.
18. With max_rows_contributed = 1: sum(week): the sum has rounded Gaussian noise of deviation 760.406 (jointly ε=0.875, δ=1e-06); within ±1490.37 with 0.95 probability.
19. With max_rows_contributed = 1: avg(amount): a total of differences from 250 with rounded Gaussian noise of deviation 3929.16 (jointly ε=0.875, δ=1e-06); within ±8806.84 with 0.975 probability.
20. With max_rows_contributed = 1: avg(amount): divided by a count with rounded Gaussian noise of deviation 15.7167 (jointly ε=0.875, δ=1e-06); within ±35.2274 with 0.975 probability.
21. With max_rows_contributed = 1: avg(age): a total of differences from 60 with rounded Gaussian noise of deviation 942.999 (jointly ε=0.875, δ=1e-06); within ±2113.64 with 0.975 probability.
22. With max_rows_contributed = 1: avg(age): divided by a count with rounded Gaussian noise of deviation 15.7167 (jointly ε=0.875, δ=1e-06); within ±35.2274 with 0.975 probability.
23. With max_rows_contributed = 1: avg(week): a total of differences from 27 with rounded Gaussian noise of deviation 527.543 (jointly ε=0.875, δ=1e-06); within ±1182.44 with 0.975 probability.
24. With max_rows_contributed = 1: avg(week): divided by a count with rounded Gaussian noise of deviation 20.2901 (jointly ε=0.875, δ=1e-06); within ±45.4783 with 0.975 probability.
25. With max_rows_contributed = 1: var_pop(amount): a sum of squares with rounded Gaussian noise of deviation 1.55314e+06 (jointly ε=0.875, δ=1e-06); within ±3.71818e+06 with 0.9833 probability.
26. With max_rows_contributed = 1: var_pop(amount): a total of differences from 250 with rounded Gaussian noise of deviation 3929.16 (jointly ε=0.875, δ=1e-06); within ±9406.34 with 0.9833 probability.
27. With max_rows_contributed = 1: var_pop(amount): and a count with rounded Gaussian noise of deviation 15.7167 (jointly ε=0.875, δ=1e-06); within ±37.6254 with 0.9833 probability.
28. With max_rows_contributed = 1: var_pop(age): a sum of squares with rounded Gaussian noise of deviation 89460.8 (jointly ε=0.875, δ=1e-06); within ±214167 with 0.9833 probability.
29. With max_rows_contributed = 1: var_pop(age): a total of differences from 60 with rounded Gaussian noise of deviation 942.999 (jointly ε=0.875, δ=1e-06); within ±2257.52 with 0.9833 probability.
30. With max_rows_contributed = 1: var_pop(age): and a count with rounded Gaussian noise of deviation 15.7167 (jointly ε=0.875, δ=1e-06); within ±37.6254 with 0.9833 probability.
31. Noise grows with max_rows_contributed.
Mean absolute error (rows spread evenly between the bounds), with caps of 1 (noise grows in proportion to those that are found): count_star() ±11.45; sum(amount) ±5 724; sum(age) ±1 374; sum(week) ±606.7; var_pop(amount) ±1 468 of 1,000 rows, ±146.8 of 10,000, ±14.68 of 100,000; var_pop(age) ±84.54 of 1,000 rows, ±8.454 of 10,000, ±0.8454 of 100,000.

Error that 0.95 of all answers stay within, at other epsilons:
                                                                   ε=0.1     ε=0.2      ε=0.5      [ε=1]        ε=2         ε=5
  count_star(), with max_rows_contributed = 1                       ±242      ±127        ±54        ±28        ±15          ±6
  sum(amount), with max_rows_contributed = 1                    ±120 900   ±63 260    ±26 840    ±14 060     ±7 410      ±3 241
  sum(age), with max_rows_contributed = 1                        ±29 020   ±15 180     ±6 441     ±3 374     ±1 778      ±777.8
  sum(week), with max_rows_contributed = 1                       ±12 820    ±6 705     ±2 845     ±1 490     ±785.5      ±343.5
  avg(amount), of 1,000 rows, with max_rows_contributed = 1       ±217.3    ±94.17     ±36.04     ±18.26     ±9.459      ±4.093
  avg(amount), of 10,000 rows, with max_rows_contributed = 1      ±15.62    ±8.052     ±3.385     ±1.768      ±0.93     ±0.4063
  avg(amount), of 100,000 rows, with max_rows_contributed = 1     ±1.519   ±0.7937    ±0.3364    ±0.1762   ±0.09285     ±0.0406
  avg(age), of 1,000 rows, with max_rows_contributed = 1          ±52.15     ±22.6     ±8.651     ±4.382      ±2.27     ±0.9824
  avg(age), of 10,000 rows, with max_rows_contributed = 1         ±3.749    ±1.932    ±0.8124    ±0.4242    ±0.2232    ±0.09752
  avg(age), of 100,000 rows, with max_rows_contributed = 1       ±0.3646   ±0.1905   ±0.08074   ±0.04229   ±0.02228   ±0.009745
  avg(week), of 1,000 rows, with max_rows_contributed = 1          ±33.4    ±13.38     ±4.943     ±2.478     ±1.277     ±0.5509
  avg(week), of 10,000 rows, with max_rows_contributed = 1        ±2.116    ±1.086    ±0.4554    ±0.2376    ±0.1249    ±0.05457
  avg(week), of 100,000 rows, with max_rows_contributed = 1      ±0.2042   ±0.1066   ±0.04518   ±0.02366   ±0.01247   ±0.005452
====
-- case: a synthetic table
CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 2) ward, urgent, week, FLOOR(age / 10)::INTEGER AS decade FROM visits
----
Would cost ε=1, δ=1e-06; ε=10 of ε=10 left. Nothing has been spent and no private data were read.
1. Each patient_id in visits is protected, with at most 2 rows in all; rows whose patient_id is NULL count nowhere.
2. Columns have public values (declared by the policy, true and false, the range that the policy declares); rows with other values are left out.
3. One privacy unit has 2 rows at most among all combinations of values, and all of them may be in one cell of a marginal.
4. Noise: AUTO takes Gaussian noise of ε=0.9, δ=1e-06: its expected error is 0.943 times that of Laplace noise.
5. First the counts of each of 4 columns alone, with rounded Gaussian noise of deviation 41.67 (jointly ε=0.9, δ=1e-06); within ±82 with 0.95 probability.
6. Then 8 marginals of two or three columns, chosen among 10, one by one, each with rounded Gaussian noise of deviation 29.4651 (jointly ε=0.9, δ=1e-06); within ±58 with 0.95 probability.
7. Each choice is by the exponential mechanism (ε=0.0125): the marginal with the largest L1 distance from the model so far, which one patient_id moves by at most 2.
8. A model is fitted to these noisy counts alone, and the rows are drawn from it: post-processing. ROWS gives their number, else the noisy counts of single columns do.
