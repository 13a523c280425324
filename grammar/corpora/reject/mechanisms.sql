-- case: candidates from private data
WITH c AS (SELECT disease AS name FROM visits) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100) OVER c FROM visits
----
PrivacyError: the candidates c depend on private rows.
  1 |   ECT disease AS name FROM visits) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100)
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: candidates are public: a list of values, a public table, or an answer that was released.
====
-- case: candidates that do not exist
SELECT ABOVE_THRESHOLD(COUNT(*), 100) OVER nothing FROM visits
----
BindError: there are no candidates nothing.
  1 |   SELECT ABOVE_THRESHOLD(COUNT(*), 100) OVER nothing FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: they are a public table, or a list of values with a name before the query; the name follows the word over.
====
-- case: no threshold
SELECT ABOVE_THRESHOLD(COUNT(*)) FROM visits
----
BindError: ABOVE_THRESHOLD takes 2 arguments.
  1 |   SELECT ABOVE_THRESHOLD(COUNT(*)) FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: give the statistic, and the threshold after it.
====
-- case: a utility of unknown sensitivity
SELECT EXPMECH(COUNT(*) / SUM(age)) OVER diseases FROM visits
----
PrivacyError: the sensitivity of a quotient of private numbers can't be derived: one row may move it by any amount.
  1 |   SELECT EXPMECH(COUNT(*) / SUM(age)) OVER diseases FROM visits
                       ^^^^^^^^^^^^^^^^^^^
Hint: compare it with a public number instead: the distance of one from that many times the other.
====
-- case: a utility that is a product
SELECT EXPMECH(ABS(COUNT(*) * COUNT(*) FILTER (WHERE disease = name))) OVER diseases FROM visits
----
PrivacyError: the sensitivity of a product of private numbers can't be derived: one row may move it by any amount.
  1 |   SELECT EXPMECH(ABS(COUNT(*) * COUNT(*) FILTER (WHERE disease = name))) OVER diseases FROM visits
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: take the lesser of the two, their sum or their distance, times a public number.
====
-- case: a utility of another function
SELECT EXPMECH(SQRT(COUNT(*) FILTER (WHERE disease = name))) OVER diseases FROM visits
----
PrivacyError: the sensitivity of this statistic can't be derived.
  1 |   SELECT EXPMECH(SQRT(COUNT(*) FILTER (WHERE disease = name))) OVER diseases FROM visits
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write counts and bounded sums: added, times a candidate's column, in ABS, GREATEST or LEAST.
====
-- case: a method that does not exist
SELECT EXPMECH(COUNT(*) FILTER (WHERE disease = name), method => 'exponent') OVER diseases FROM visits
----
BindError: method can't be exponent.
  1 |   ILTER (WHERE disease = name), method => 'exponent') OVER diseases FROM visits
                                                ^^^^^^^^^^
Hint: did you mean exponential?
====
-- case: no winners
SELECT EXPMECH(COUNT(*) FILTER (WHERE disease = name), top => 0) OVER diseases FROM visits
----
BindError: top must be a whole number of at least 1.
  1 |   SELECT EXPMECH(COUNT(*) FILTER (WHERE disease = name), top => 0) OVER diseases FROM visits
                                                                      ^
====
-- case: two mechanisms in one block
SELECT EXPMECH(COUNT(*)) OVER diseases, ABOVE_THRESHOLD(COUNT(*), 1) OVER diseases FROM visits
----
PrivacyError: a query with EXPMECH releases nothing else.
  1 |   SELECT EXPMECH(COUNT(*)) OVER diseases, ABOVE_THRESHOLD(COUNT(*), 1) OVER diseases FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: put it into a query of its own, and join the answers.
====
-- case: PTR of another function
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) CORR(age, amount) FROM visits
----
PrivacyError: CORR has no stability test.
  1 |   SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) CORR(age, amount) FROM visits
                                                            ^^^^^^^^^^^^^^^^^
Hint: write SELECT WITH SUBSAMPLE, which takes any query; PTR knows AVG, STDDEV, STDDEV_SAMP, STDDEV_POP, VARIANCE, VAR_POP, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, IQR, MODE, ARG_MAX.
====
-- case: a mean with STABLE
SELECT WITH STABLE OPTIONS (epsilon = 1) AVG(age) FROM visits
----
PrivacyError: AVG is not known with STABLE.
  1 |   SELECT WITH STABLE OPTIONS (epsilon = 1) AVG(age) FROM visits
                                                 ^^^^^^^^
Hint: SELECT WITH DP answers it; STABLE knows IQR, TRIMMED_MEAN, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MODE.
====
-- case: a delta with STABLE
SELECT WITH STABLE OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) FROM visits
----
BindError: OPTIONS has no delta.
  1 |   SELECT WITH STABLE OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) FROM visits
                                                 ^^^^^^^^^^^^
Hint: leave it out: nothing here takes one.
====
-- case: STABLE without bounds
SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(weight) FROM visits
----
PrivacyError: IQR(weight) needs bounds for weight; the policy declares none.
  1 |   SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(weight) FROM visits
                                                 ^^^^^^^^^^^
Hint: give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: STABLE with private groups
SELECT WITH STABLE OPTIONS (epsilon = 1) city, IQR(age) FROM visits GROUP BY city
----
PrivacyError: STABLE needs public groups: private ones would need a delta.
  1 |   SELECT WITH STABLE OPTIONS (epsilon = 1) city, IQR(age) FROM visits GROUP BY city
                                                                                     ^^^^
Hint: ask the owner to declare the column's values, or join a public table and keep all of its rows.
====
-- case: STABLE by grouping sets
SELECT WITH STABLE OPTIONS (epsilon = 1) ward, IQR(age) FROM visits GROUP BY ROLLUP (ward)
----
PrivacyError: STABLE has no grouping sets.
  1 |   SELECT WITH STABLE OPTIONS (epsilon = 1) ward, IQR(age) FROM visits GROUP BY ROLLUP (ward)
                                                                                             ^^^^
Hint: write one SELECT for each grouping set, or SELECT WITH DP.
====
-- case: half of the rows cut off at each end
SELECT WITH STABLE OPTIONS (epsilon = 1) TRIMMED_MEAN(age, 0.5) FROM visits
----
BindError: the trimmed part must be at least 0 and below 0.5.
  1 |   SELECT WITH STABLE OPTIONS (epsilon = 1) TRIMMED_MEAN(age, 0.5) FROM visits
                                                                   ^^^
Hint: write TRIMMED_MEAN(age, 0.1): a tenth is cut off at each end.
====
-- case: a trimmed mean with DP
SELECT TRIMMED_MEAN(age, 0.1) FROM visits
----
PrivacyError: TRIMMED_MEAN has no noisy form.
  1 |   SELECT TRIMMED_MEAN(age, 0.1) FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^
Hint: write SELECT WITH STABLE TRIMMED_MEAN(age, 0.1).
====
-- case: a base that is none
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age, base => 1) FROM visits
----
BindError: base must be between 1.000015 and 2.
  1 |   SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age, base => 1) FROM visits
                                                                             ^
Hint: write 1.02: a smaller base means less noise, and needs more rows.
====
-- case: a base of something else
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MEDIAN(age, base => 1.02) FROM visits
----
BindError: MEDIAN does not take this here.
  1 |   SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MEDIAN(age, base => 1.02) FROM visits
                                                            ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave base out: it belongs to IQR.
====
-- case: a test that is unknown
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(ward, test => 'laplace') FROM visits
----
BindError: test can't be LAPLACE.
  1 |   SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(ward, test => 'laplace') FROM visits
                                                                               ^^^^^^^^^
Hint: there is PURE, GAUSSIAN, AUTO.
====
-- case: PTR with private groups
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) city, MEDIAN(age) FROM visits GROUP BY city
----
PrivacyError: PTR needs public groups.
  1 |   SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) city, MEDIAN(age) FROM visits GROUP BY city
                                                                                                   ^^^^
Hint: ask the owner to declare the column's values, or join a public table and keep all of its rows.
====
-- case: PTR without delta
-- policy: strict
SELECT WITH PTR OPTIONS (epsilon = 1) MEDIAN(age) FROM visits
----
PrivacyError: this needs a delta: an answer that is tested first can't be released without one.
  1 |   SELECT WITH PTR OPTIONS (epsilon = 1) MEDIAN(age) FROM visits
                    ^^^
Hint: add delta = 2e-07 to OPTIONS.
====
-- case: SUBSAMPLE without bounds
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 10, combine = 'mean') CORR(age, amount) FROM visits
----
PrivacyError: corr(age, amount) needs the range of its results.
  1 |   SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 10, combine = 'mean') CORR(age, amount) FROM vi
                    ^^^^^^^^^
Hint: write OPTIONS (bounds = (-1, 1)), or bounds = AUTO, which needs a delta.
====
-- case: an unknown combiner
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, combine = 'average') CORR(age, amount) FROM visits
----
BindError: combine can't be average.
  1 |   SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, combine = 'average') CORR(age, amount) FROM visits
                                                              ^^^^^^^^^
Hint: there is mean, median, trimmed_mean, winsorized_mean, noisy_mode, stable_mode, noisy_votes.
====
-- case: a probe of nothing declared
SELECT WITH alarm COUNT(*) FROM visits
----
BindError: there is no mode alarm.
  1 |   SELECT WITH alarm COUNT(*) FROM visits
                    ^^^^^
Hint: there is DP, DIFFERENTIAL_PRIVACY, PTR, STABLE, SUBSAMPLE.
====
-- case: a closed threshold that was never open
CLOSE alarm
----
BindError: no threshold alarm is open.
  1 |   CLOSE alarm
        ^^^^^^^^^^^
====
-- case: DECLARE without options
-- policy: strict
DECLARE alarm ABOVE_THRESHOLD 100
----
PrivacyError: this needs an epsilon.
  1 |   DECLARE alarm ABOVE_THRESHOLD 100
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1, max_hits = 3).
====
-- case: stable questions with a threshold
DECLARE alarm STABLE 100 OPTIONS (epsilon = 1)
----
ParseError: only OPTIONS follow STABLE.
  1 |   DECLARE alarm STABLE 100 OPTIONS (epsilon = 1)
                             ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6, max_unstable = 5).
====
-- case: stable questions without a delta
-- policy: strict
DECLARE alarm STABLE OPTIONS (epsilon = 1, max_unstable = 5)
----
PrivacyError: exact answers need a delta.
  1 |   DECLARE alarm STABLE OPTIONS (epsilon = 1, max_unstable = 5)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (delta = 2e-07).
====
-- case: stable questions with an option of thresholds
DECLARE alarm STABLE OPTIONS (epsilon = 1, max_hits = 5)
----
BindError: OPTIONS has no max_hits.
  1 |   DECLARE alarm STABLE OPTIONS (epsilon = 1, max_hits = 5)
                                                   ^^^^^^^^^^^^
Hint: there is epsilon, mu, rho, delta, blocks, budget_split, max_unstable, refresh.
====
-- case: DECLARE of another mechanism
DECLARE alarm EXPMECH 100 OPTIONS (epsilon = 1)
----
ParseError: only ABOVE_THRESHOLD and STABLE can be declared.
  1 |   DECLARE alarm EXPMECH 100 OPTIONS (epsilon = 1)
                      ^^^^^^^
Hint: write DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 3).
====
-- case: candidates without a row
WITH c AS (SELECT name FROM diseases WHERE FALSE) SELECT EXPMECH(COUNT(*) FILTER (WHERE disease = name)) OVER c FROM visits
----
PrivacyError: there are no candidates in c.
  1 |    name FROM diseases WHERE FALSE) SELECT EXPMECH(COUNT(*) FILTER (WHERE disease = name)) OVER c FROM
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
====
-- case: an aggregate beside a choice
SELECT COUNT(*), EXPMECH(COUNT(*) FILTER (WHERE disease = name)) OVER diseases FROM visits
----
PrivacyError: a query with EXPMECH releases nothing else.
  1 |   SELECT COUNT(*), EXPMECH(COUNT(*) FILTER (WHERE disease = name)) OVER diseases FROM visits
               ^^^^^^^^
Hint: put it into a query of its own, and join the answers.
====
-- case: the most frequent of values that nobody declared
SELECT MODE(note) FROM visits
----
PrivacyError: MODE(note) needs public values of note; the policy declares none.
  1 |   SELECT MODE(note) FROM visits
               ^^^^^^^^^^
Hint: write SELECT WITH PTR MODE(note), or SELECT note, COUNT(*) AS n FROM visits GROUP BY note ORDER BY n DESC LIMIT 1.
====
-- case: clamped by one bound
SELECT ANON_SUM(amount CLAMPED BETWEEN 100) FROM visits
----
ParseError: CLAMPED BETWEEN needs two bounds.
  1 |   SELECT ANON_SUM(amount CLAMPED BETWEEN 100) FROM visits
                               ^^^^^^^^^^^^^^^^^^^
Hint: write CLAMPED BETWEEN 0 AND 100.
====
-- case: a report in another format
SELECT ANON_SUM(amount WITH REPORT (FORMAT = PROTO)) FROM visits
----
BindError: report_format can't be PROTO.
  1 |   SELECT ANON_SUM(amount WITH REPORT (FORMAT = PROTO)) FROM visits
                                                     ^^^^^
Hint: write 'JSON'.
====
-- case: the threshold that GoogleSQL had before delta
SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1, k_threshold = 5) ANON_COUNT(*) FROM visits
----
BindError: OPTIONS has no k_threshold.
  1 |   SELECT WITH ANONYMIZATION OPTIONS (epsilon = 1, k_threshold = 5) ANON_COUNT(*) FROM visits
                                                        ^^^^^^^^^^^^^^^
Hint: write delta = 1e-6, from which the threshold of private groups follows.
====
-- case: a share for choosing groups where there are none
SELECT WITH DP OPTIONS (epsilon = 1, group_selection_epsilon = 0.5) COUNT(*) FROM visits
----
BindError: there are no groups to choose.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, group_selection_epsilon = 0.5) COUNT(*) FROM visits
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave it out.
====
-- case: more parts than there may be
SELECT APPROX_QUANTILES(age, 5000) FROM visits
----
BindError: APPROX_QUANTILES divides rows into at most 1000 parts.
  1 |   SELECT APPROX_QUANTILES(age, 5000) FROM visits
                                     ^^^^
Hint: each of its values gets an equal part of epsilon: ask for fewer.
====
-- case: a proposed sensitivity of texts
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) MODE(ward, local_sensitivity => 1) FROM visits
----
BindError: MODE needs a number here, and this is VARCHAR.
  1 |    = 1e-6, max_rows_contributed = 1) MODE(ward, local_sensitivity => 1) FROM visits
                                                ^^^^
Hint: leave local_sensitivity out: the mode is then exact, of any type.
====
-- case: an interpolated quantile, exactly
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) QUANTILE_CONT(age, 0.9) FROM visits
----
BindError: a value between two others is not released exactly.
  1 |   delta = 1e-6, max_rows_contributed = 1) QUANTILE_CONT(age, 0.9) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^
Hint: write QUANTILE_DISC(age, 0.9), or local_sensitivity => b, with noise for b.
====
-- case: two proposals
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) IQR(amount, base => 1.1, local_sensitivity => 2) FROM visits
----
BindError: IQR takes one proposal.
  1 |   delta = 1e-6, max_rows_contributed = 1) IQR(amount, base => 1.1, local_sensitivity => 2) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave base out for noise that fits the proposal, or local_sensitivity for a factor.
====
-- case: a proposed sensitivity of a group
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) ARG_MAX(ward, COUNT(*), local_sensitivity => 2) FROM visits
----
BindError: ARG_MAX does not take this here.
  1 |   delta = 1e-6, max_rows_contributed = 1) ARG_MAX(ward, COUNT(*), local_sensitivity => 2) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave local_sensitivity out: it belongs to AVG, STDDEV, STDDEV_SAMP, STDDEV_POP, VARIANCE, VAR_POP, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, IQR, MODE.
====
-- case: another combiner without bounds
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, delta = 1e-6, bounds = AUTO, combine = 'winsorized_mean') AVG(age) FROM visits
----
BindError: bounds = AUTO is for the trimmed mean and the median of single numbers.
  1 |   PLE OPTIONS (epsilon = 1, delta = 1e-6, bounds = AUTO, combine = 'winsorized_mean') AVG(age) FROM vi
                                                ^^^^^^^^^^^^^
Hint: write combine = 'trimmed_mean', or bounds = (-1, 1).
====
-- case: numbers of blocks without bounds or delta
-- policy: strict
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = AUTO) AVG(age) FROM visits
----
PrivacyError: this needs a delta: an answer that is tested first can't be released without one.
  1 |   SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = AUTO) AVG(age) FROM visits
                    ^^^^^^^^^
Hint: add delta = 2e-07 to OPTIONS.
====
-- case: shares that do not add up
DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, budget_split = (0.3, 0.6))
----
BindError: the shares of budget_split add up to 0.9, instead of 1.
  1 |   DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, budget_split = (0.3, 0.6))
                                                                                ^^^^^^^^
Hint: write (0.3, 0.7).
====
-- case: two shares for three stages
SELECT name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, answer => TRUE, budget_split => (0.5, 0.5)) OVER diseases FROM visits
----
BindError: budget_split has a share for each of the threshold, the questions and the answers.
  1 |   E disease = name), 100, answer => TRUE, budget_split => (0.5, 0.5)) OVER diseases FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write (0.2, 0.3, 0.5) with answer, (0.3, 0.7) without.
====
-- case: Gaussian noise of a choice
SELECT WITH DP OPTIONS (noise = GAUSSIAN) EXPMECH(COUNT(*) FILTER (WHERE disease = name)) OVER diseases FROM visits
----
BindError: EXPMECH has noise of its own.
  1 |   SELECT WITH DP OPTIONS (noise = GAUSSIAN) EXPMECH(COUNT(*) FILTER (WHERE disease = name)) OVER disea
                                ^^^^^^^^^^^^^^^^
Hint: leave noise out: its answers have Laplace noise.
====
-- case: a bound that is not released yet
SELECT WITH DP OPTIONS (epsilon = 1) SUM(amount, contribution_bounds_per_row => (0, (SELECT COUNT(*) FROM visits))) FROM visits
----
PrivacyError: this number is not released yet.
  1 |   tribution_bounds_per_row => (0, (SELECT COUNT(*) FROM visits))) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^
Hint: release it in a statement of its own, keep that answer under a name, and read it here.
====
-- case: a bound of several rows
SELECT SUM(amount, contribution_bounds_per_row => (0, (SELECT * FROM (VALUES (1), (2))))) FROM visits
----
BindError: this query returns more than one row.
  1 |   tribution_bounds_per_row => (0, (SELECT * FROM (VALUES (1), (2))))) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^
Hint: make it one row, such as its largest value.
====
-- case: all values left out
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) AVG(amount, trim => 0.5) FROM visits
----
BindError: trim must be between 0 and 0.5.
  1 |   ws_contributed = 1) AVG(amount, trim => 0.5) FROM visits
                                                ^^^
Hint: write trim => 0.05.
====
-- case: a proposed sensitivity of a root
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) STDDEV(amount, local_sensitivity => 1) FROM visits
----
BindError: STDDEV has no local sensitivity that could be tested.
  1 |   delta = 1e-6, max_rows_contributed = 1) STDDEV(amount, local_sensitivity => 1) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: propose that of the variance, and take the square root of its answer.
====
-- case: a part left out of a median
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = 1) MEDIAN(amount, trim => 0.1) FROM visits
----
BindError: MEDIAN does not take this here.
  1 |   delta = 1e-6, max_rows_contributed = 1) MEDIAN(amount, trim => 0.1) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave trim out: it belongs to AVG, STDDEV, STDDEV_SAMP, STDDEV_POP, VARIANCE, VAR_POP.
====
-- case: a mechanism's name with a letter missing
SELECT name, ABOVE_TRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, epsilon => 1) OVER diseases FROM visits
----
BindError: ABOVE_TRESHOLD is not a function here.
  1 |   SELECT name, ABOVE_TRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100, epsilon => 1) OVER diseases
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: did you mean ABOVE_THRESHOLD?
====
-- case: another mechanism's name with a letter missing
SELECT EXPMEC(COUNT(*) FILTER (WHERE disease = name)) OVER diseases FROM visits
----
BindError: EXPMEC is not a function here.
  1 |   SELECT EXPMEC(COUNT(*) FILTER (WHERE disease = name)) OVER diseases FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: did you mean EXPMECH?
====
-- case: a mean per candidate
SELECT name, ABOVE_THRESHOLD(AVG(amount) FILTER (WHERE disease = name), 100) OVER diseases FROM visits
----
PrivacyError: how far one row moves AVG can't be derived.
  1 |   SELECT name, ABOVE_THRESHOLD(AVG(amount) FILTER (WHERE disease = name), 100) OVER diseases FROM visi
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: a mean is above a number if the sum minus that many times the count is above 0: ask about that.
====
-- case: candidates that are not there
SELECT EXPMECH(COUNT(*)) OVER nothing FROM visits
----
BindError: there are no candidates nothing.
  1 |   SELECT EXPMECH(COUNT(*)) OVER nothing FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: they are a public table, or a list of values with a name before the query; the name follows the word over.
====
-- case: candidates as an argument
SELECT EXPMECH(ward, COUNT(*)) FROM visits
----
BindError: EXPMECH takes 1 argument.
  1 |   SELECT EXPMECH(ward, COUNT(*)) FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^
Hint: give it the utility alone; the name of the candidates follows the word over.
====
-- case: candidates in place of their name
SELECT EXPMECH(COUNT(*)) OVER (VALUES ('A')) FROM visits
----
ParseError: can't read this: a ) is missing before VALUES.
  1 |   SELECT EXPMECH(COUNT(*)) OVER (VALUES ('A')) FROM visits
                                       ^^^^^^
Hint: give the list a name before the query; the name follows the word over.
