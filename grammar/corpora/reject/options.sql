-- case: an error of inverse sensitivity
SELECT WITH STABLE OPTIONS (error = 1, epsilon = 1) IQR(age) FROM visits
----
BindError: OPTIONS has no error.
  1 |   SELECT WITH STABLE OPTIONS (error = 1, epsilon = 1) IQR(age) FROM visits
                                    ^^^^^^^^^
Hint: write SELECT WITH DP OPTIONS (error = 5, epsilon = 1): counts, sums and what is made of them take it.
====
-- case: epsilon of zero
SELECT WITH DP OPTIONS (epsilon = 0) COUNT(*) FROM visits
----
BindError: epsilon must be above 0.
  1 |   SELECT WITH DP OPTIONS (epsilon = 0) COUNT(*) FROM visits
                                          ^
Hint: write epsilon as a number such as 0.1.
====
-- case: a negative epsilon
SELECT WITH DP OPTIONS (epsilon = -1) COUNT(*) FROM visits
----
BindError: epsilon must be above 0.
  1 |   SELECT WITH DP OPTIONS (epsilon = -1) COUNT(*) FROM visits
                                           ^
Hint: write epsilon as a number such as 0.1.
====
-- case: epsilon is no number
SELECT WITH DP OPTIONS (epsilon = 'NaN') COUNT(*) FROM visits
----
BindError: epsilon must be a number.
  1 |   SELECT WITH DP OPTIONS (epsilon = 'NaN') COUNT(*) FROM visits
                                          ^^^^^
Hint: write epsilon as a literal, such as 0.1.
====
-- case: epsilon is a name
SELECT WITH DP OPTIONS (epsilon = nan) COUNT(*) FROM visits
----
BindError: epsilon must be a number.
  1 |   SELECT WITH DP OPTIONS (epsilon = nan) COUNT(*) FROM visits
                                          ^^^
Hint: write epsilon as a literal, such as 0.1.
====
-- case: an epsilon too small to mean anything
SELECT WITH DP OPTIONS (epsilon = 1e-400) COUNT(*) FROM visits
----
BindError: epsilon is too small to be useful.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1e-400) COUNT(*) FROM visits
                                          ^^^^^^
Hint: write at least 1e-15.
====
-- case: an epsilon beyond all numbers
SELECT WITH DP OPTIONS (epsilon = 1e400) COUNT(*) FROM visits
----
BudgetExceeded: this query asks for an ε above all numbers; the policy allows ε=5 per query.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1e400) COUNT(*) FROM visits
                                ^^^^^^^^^^^^^^^
Hint: write epsilon = 5.
====
-- case: an epsilon with underscores
SELECT WITH DP OPTIONS (epsilon = 1_0) COUNT(*) FROM visits
----
BudgetExceeded: this query asks for ε=10; the policy allows ε=5 per query.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1_0) COUNT(*) FROM visits
                                ^^^^^^^^^^^^^
Hint: write epsilon = 5.
====
-- case: epsilon is computed
SELECT WITH DP OPTIONS (epsilon = 1 + 1) COUNT(*) FROM visits
----
BindError: epsilon must be a number.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1 + 1) COUNT(*) FROM visits
                                          ^^^^^
Hint: write epsilon as a literal, such as 0.1.
====
-- case: more than a query may ask
SELECT WITH DP OPTIONS (epsilon = 6) COUNT(*) FROM visits
----
BudgetExceeded: this query asks for ε=6; the policy allows ε=5 per query.
  1 |   SELECT WITH DP OPTIONS (epsilon = 6) COUNT(*) FROM visits
                                ^^^^^^^^^^^
Hint: write epsilon = 5.
====
-- case: delta of one
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1) city, COUNT(*) FROM visits GROUP BY city
----
BindError: delta must be at least 0 and below 1.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, delta = 1) city, COUNT(*) FROM visits GROUP BY city
                                                     ^
Hint: write delta = 1e-6.
====
-- case: a negative delta
SELECT WITH DP OPTIONS (epsilon = 1, delta = -1e-6) city, COUNT(*) FROM visits GROUP BY city
----
BindError: delta must be at least 0 and below 1.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, delta = -1e-6) city, COUNT(*) FROM visits GROUP BY city
                                                      ^^^^
Hint: write delta = 1e-6.
====
-- case: an unknown option
SELECT WITH DP OPTIONS (epsilom = 1) COUNT(*) FROM visits
----
BindError: OPTIONS has no epsilom.
  1 |   SELECT WITH DP OPTIONS (epsilom = 1) COUNT(*) FROM visits
                                ^^^^^^^^^^^
Hint: did you mean epsilon?
====
-- case: a seed
SELECT WITH DP OPTIONS (epsilon = 1, seed = 42) COUNT(*) FROM visits
----
BindError: OPTIONS has no seed.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, seed = 42) COUNT(*) FROM visits
                                             ^^^^^^^^^
Hint: there is epsilon, mu, rho, delta, privacy_unit_column, max_groups_contributed, max_rows_contributed, max_rows_per_group and 10 more.
====
-- case: an option twice
SELECT WITH DP OPTIONS (epsilon = 1, epsilon = 2) COUNT(*) FROM visits
----
BindError: epsilon is given twice.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, epsilon = 2) COUNT(*) FROM visits
                                             ^^^^^^^^^^^
Hint: leave epsilon out.
====
-- case: an option without a value
SELECT WITH DP OPTIONS (epsilon) COUNT(*) FROM visits
----
BindError: options are name = value.
  1 |   SELECT WITH DP OPTIONS (epsilon) COUNT(*) FROM visits
                                ^^^^^^^
Hint: write epsilon = 0.1, or another option in this form.
====
-- case: a threshold for groups that are public
SELECT WITH DP OPTIONS (epsilon = 1, min_privacy_units_per_group = 10) ward, COUNT(*) FROM visits GROUP BY ward
----
BindError: these groups are public: all of them appear, with any number of units.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, min_privacy_units_per_group = 10) ward, COUNT(*) FROM visits GR
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave it out, or keep groups by a noisy count of their units.
====
-- case: an option of another mode
SELECT WITH DP OPTIONS (epsilon = 1, blocks = 10) COUNT(*) FROM visits
----
BindError: OPTIONS has no blocks.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, blocks = 10) COUNT(*) FROM visits
                                             ^^^^^^^^^^^
Hint: there is epsilon, mu, rho, delta, privacy_unit_column, max_groups_contributed, max_rows_contributed, max_rows_per_group and 10 more.
====
-- case: a delta too small for Gaussian noise
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-60, noise = GAUSSIAN) COUNT(*) FROM visits
----
PrivacyError: this delta is too small for Gaussian noise.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-60, noise = GAUSSIAN) COUNT(*) FROM visits
                                             ^^^^^^^^^^^^^
Hint: leave noise out, or write delta = 1e-6.
====
-- case: a report of what is cut where nothing is
SELECT WITH DP OPTIONS (epsilon = 1, report_cut = TRUE) COUNT(*) FROM bids
----
BindError: nothing is cut here: no cap and no bound applies.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, report_cut = TRUE) COUNT(*) FROM bids
                                             ^^^^^^^^^^
Hint: leave report_cut out.
====
-- case: a report of what is cut beside an error
SELECT WITH DP OPTIONS (epsilon = 1, error = 10, report_cut = TRUE) COUNT(*) FROM visits
----
BindError: error takes the least epsilon, and report_cut a share of the whole.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, error = 10, report_cut = TRUE) COUNT(*) FROM visits
                                                         ^^^^^^^^^^
Hint: ask for one of the two.
====
-- case: an unknown noise
SELECT WITH DP OPTIONS (epsilon = 1, noise = 'UNIFORM') COUNT(*) FROM visits
----
BindError: noise can't be UNIFORM.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, noise = 'UNIFORM') COUNT(*) FROM visits
                                                     ^^^^^^^^^
Hint: there is LAPLACE, GAUSSIAN, AUTO.
====
-- case: a confidence beyond certainty
SELECT WITH DP OPTIONS (epsilon = 1, confidence = 1.5) COUNT(*) FROM visits
----
BindError: confidence must lie between 0 and 1.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, confidence = 1.5) COUNT(*) FROM visits
                                             ^^^^^^^^^^^^^^^^
Hint: write confidence = 0.95.
====
-- case: another privacy unit
SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = ward) COUNT(*) FROM visits
----
PrivacyError: ward is not the privacy unit of visits.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = ward) COUNT(*) FROM visits
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave it out: the policy alone names the unit, and it declares patient_id.
====
-- case: no groups at all
SELECT WITH DP OPTIONS (epsilon = 1, max_groups_contributed = 0) ward, COUNT(*) FROM visits GROUP BY ward
----
BindError: max_groups_contributed must be a whole number of at least 1.
  1 |    (epsilon = 1, max_groups_contributed = 0) ward, COUNT(*) FROM visits GROUP BY ward
                                                ^
====
-- case: shares that add up to too much
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*, epsilon => 0.7), SUM(amount, epsilon => 0.7) FROM visits
----
BindError: Epsilon overconsumption: the shares add up to 1.4 of ε=1.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*, epsilon => 0.7), SUM(amount, epsilon => 0.7) FROM visi
                                             ^^^^^^^^^^^^^^^^^^^^^^^^
Hint: lower the shares, or raise the epsilon of the block.
====
-- case: an equals sign in a call
SELECT SUM(amount, epsilon = 1) FROM visits
----
BindError: epsilon = ... inside a call is a comparison.
  1 |   SELECT SUM(amount, epsilon = 1) FROM visits
                           ^^^^^^^^^^^
Hint: write epsilon => 1.
====
-- case: an unknown argument
SELECT SUM(amount, epsilom => 1) FROM visits
----
BindError: SUM has no epsilom.
  1 |   SELECT SUM(amount, epsilom => 1) FROM visits
                           ^^^^^^^^^^^^
Hint: did you mean epsilon?
====
-- case: reversed bounds
SELECT SUM(amount, contribution_bounds_per_row => (5, 1)) FROM visits
----
BindError: contribution_bounds_per_row are the wrong way round.
  1 |   SELECT SUM(amount, contribution_bounds_per_row => (5, 1)) FROM visits
                                                           ^^^^
Hint: the lower bound comes first.
====
-- case: bounds whose sums would not be exact
-- caret: none
SELECT SUM(amount, contribution_bounds_per_row => (0, 1e300)) FROM visits
----
BindError: these bounds are too far apart for exact sums.
Hint: declare narrower bounds.
====
-- case: one bound
SELECT SUM(amount, contribution_bounds_per_row => 5) FROM visits
----
BindError: contribution_bounds_per_row must be a pair.
  1 |   SELECT SUM(amount, contribution_bounds_per_row => 5) FROM visits
                                                          ^
Hint: write AUTO, without quotes, to find them privately, or a pair of numbers in parentheses, the lowest first.
====
-- case: bounds from the data
SELECT SUM(amount, contribution_bounds_per_row => (0, max(amount))) FROM visits
----
BindError: contribution_bounds_per_row must be a number.
  1 |   SELECT SUM(amount, contribution_bounds_per_row => (0, max(amount))) FROM visits
                                                              ^^^^^^^^^^^
Hint: write contribution_bounds_per_row as a literal, such as 0.1.
====
-- case: no epsilon and no default
-- policy: strict
SELECT COUNT(*) FROM visits
----
PrivacyError: this needs an epsilon: the policy sets no default.
  1 |   SELECT COUNT(*) FROM visits
               ^^^^^^^^
Hint: write SELECT WITH DP OPTIONS (epsilon = 0.1) instead of SELECT.
====
-- case: no delta and no default
-- policy: strict
SELECT WITH DP OPTIONS (epsilon = 1) city, COUNT(*) FROM visits GROUP BY city
----
PrivacyError: this needs a delta: private groups can't be released without one.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1) city, COUNT(*) FROM visits GROUP BY city
                    ^^
Hint: add delta = 2e-07 to OPTIONS, or declare the groups' values in the policy.
====
-- case: Gaussian noise without delta
-- policy: strict
SELECT WITH DP OPTIONS (epsilon = 1, noise = 'GAUSSIAN') COUNT(*) FROM visits
----
PrivacyError: this needs a delta: Gaussian noise can't be released without one.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, noise = 'GAUSSIAN') COUNT(*) FROM visits
                    ^^
Hint: add delta = 2e-07 to OPTIONS.
====
-- case: more than is left
-- policy: spent
-- caret: none
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM visits
----
BudgetExceeded: This query costs ε=1; ε=0.2 of ε=0.2 is left.
Hint: OPTIONS (epsilon = 0.2) would fit.  SHOW LEDGER shows where it went.
====
-- case: no epsilon and no default, in another mode
-- policy: strict
SELECT MEDIAN(age) FROM visits WITH SUBSAMPLE
----
PrivacyError: this needs an epsilon: the policy sets no default.
  1 |   SELECT MEDIAN(age) FROM visits WITH SUBSAMPLE
                                            ^^^^^^^^^
Hint: write WITH SUBSAMPLE OPTIONS (epsilon = 0.1) instead of WITH SUBSAMPLE.
====
-- case: an error that the epsilon can't give
SELECT WITH DP OPTIONS (error = 10, epsilon = 1) COUNT(*) FROM visits
----
PrivacyError: count_star() within ±10 takes ε=2.8436, and there is ε=1.
  1 |   SELECT WITH DP OPTIONS (error = 10, epsilon = 1) COUNT(*) FROM visits
                                ^^^^^^^^^^
Hint: write epsilon = 2.8445, or error = 30.
====
-- case: an error of what has no interval
SELECT WITH DP OPTIONS (error = 10, epsilon = 1) MEDIAN(amount) FROM visits
----
PrivacyError: error is for counts, sums and means, and median(amount) has noise of another kind.
  1 |   SELECT WITH DP OPTIONS (error = 10, epsilon = 1) MEDIAN(amount) FROM visits
                                                         ^^^^^^^^^^^^^^
Hint: leave error out, or ask for median(amount) alone.
====
-- case: an error and Gaussian noise of a mean
SELECT WITH DP OPTIONS (error = 10, epsilon = 1, delta = 1e-6, noise = GAUSSIAN) AVG(amount) FROM visits
----
PrivacyError: the noise of means is reduced step by step, which is proved for Laplace noise.
  1 |   (error = 10, epsilon = 1, delta = 1e-6, noise = GAUSSIAN) AVG(amount) FROM visits
                                                ^^^^^^^^^^^^^^^^
Hint: leave noise out.
====
-- case: an error beside shares
SELECT WITH DP OPTIONS (error = 10, epsilon = 1) AVG(amount, epsilon => 0.5) FROM visits
----
BindError: error decides the epsilon of avg(amount).
  1 |   SELECT WITH DP OPTIONS (error = 10, epsilon = 1) AVG(amount, epsilon => 0.5) FROM visits
                                                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave its own epsilon out.
====
-- case: an error of several grouping sets
SELECT WITH DP OPTIONS (error = 10, epsilon = 1) ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)
----
BindError: several grouping sets have several accuracies.
  1 |   SELECT WITH DP OPTIONS (error = 10, epsilon = 1) ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)
                                ^^^^^^^^^^
Hint: leave error out, or ask for one grouping at a time.
====
-- case: an error of a choice
WITH prices(p) AS (VALUES (1), (3)) SELECT WITH DP OPTIONS (error = 10, epsilon = 1) EXPMECH(COUNT(*) FILTER (WHERE bid >= p)) OVER prices FROM bids
----
BindError: EXPMECH chooses: it has no interval to narrow.
  1 |   ALUES (1), (3)) SELECT WITH DP OPTIONS (error = 10, epsilon = 1) EXPMECH(COUNT(*) FILTER (WHERE bid
                                                ^^^^^^^^^^
Hint: leave error out.
====
-- case: an accountant that does not count in mu
SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*) FROM visits
----
PrivacyError: the accountant basic does not count in mu.
  1 |   SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*) FROM visits
                                ^^^^^^^^
Hint: write epsilon = 2, delta = 2e-07, or ask the owner for accountant = "gdp".
====
-- case: an accountant that does not count in rho
SELECT WITH DP OPTIONS (rho = 0.05) COUNT(*) FROM visits
----
PrivacyError: the accountant basic does not count in rho.
  1 |   SELECT WITH DP OPTIONS (rho = 0.05) COUNT(*) FROM visits
                                ^^^^^^^^^^
Hint: write epsilon = 1.4, delta = 2e-07, or ask the owner for accountant = "zcdp" with a delta.
====
-- case: a mu and an epsilon
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0.5, epsilon = 1) COUNT(*) FROM visits
----
BindError: epsilon and mu are both given.
  1 |   SELECT WITH DP OPTIONS (mu = 0.5, epsilon = 1) COUNT(*) FROM visits
                                ^^^^^^^^
Hint: each of them says what the whole may lose: keep one.
====
-- case: a mu whose epsilon is above the limit
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0.9) COUNT(*) FROM visits
----
BudgetExceeded: μ=0.9 is ε=3.877 at δ=1e-05; the policy allows ε=3 per query.
  1 |   SELECT WITH DP OPTIONS (mu = 0.9) COUNT(*) FROM visits
                                ^^^^^^^^
Hint: write mu = 0.719.
====
-- case: a rho whose epsilon is above the limit
-- policy: mu
SELECT WITH DP OPTIONS (rho = 0.5) COUNT(*) FROM visits
----
BudgetExceeded: ρ=0.5 is ε=4.729 at δ=1e-05; the policy allows ε=3 per query.
  1 |   SELECT WITH DP OPTIONS (rho = 0.5) COUNT(*) FROM visits
                                ^^^^^^^^^
Hint: write rho = 0.224.
====
-- case: a share of epsilon in a block of mu
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*, epsilon => 0.1), SUM(amount) FROM visits
----
BindError: shares are parts of an epsilon, and this block has a mu.
  1 |   SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*, epsilon => 0.1), SUM(amount) FROM visits
                                          ^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave epsilon out: μ=0.5 is split evenly.
====
-- case: a mu beyond all use
-- policy: mu
SELECT WITH DP OPTIONS (mu = 5000) COUNT(*) FROM visits
----
BindError: nothing is hidden under such a mu.
  1 |   SELECT WITH DP OPTIONS (mu = 5000) COUNT(*) FROM visits
                                     ^^^^
Hint: mu = 1000 is the largest.
====
-- case: no mu at all
-- policy: mu
SELECT WITH DP OPTIONS (mu = 0) COUNT(*) FROM visits
----
BindError: mu must be above 0.
  1 |   SELECT WITH DP OPTIONS (mu = 0) COUNT(*) FROM visits
                                     ^
Hint: write mu as a number such as 0.1.
====
-- case: a cap that is found beside an error
-- policy: no_caps
SELECT WITH DP OPTIONS (error = 5, epsilon = 1, max_rows_contributed = AUTO) COUNT(*) FROM visits
----
BindError: error needs caps that are known before the answer.
  1 |   SELECT WITH DP OPTIONS (error = 5, epsilon = 1, max_rows_contributed = AUTO) COUNT(*) FROM visits
                                ^^^^^^^^^
Hint: leave error out, or write caps.
====
-- case: caps that are found beside consistent cells
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE, max_rows_contributed = AUTO) ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)
----
BindError: consistent needs caps that are known before the answer.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE, max_rows_contributed = AUTO) ward, urgent, C
                                             ^^^^^^^^^^
Hint: leave consistent out, or write caps.
====
-- case: a cap that is found with PTR
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = AUTO) IQR(age) FROM visits
----
PrivacyError: max_rows_contributed = AUTO is for counts, sums and formulas of them, in SELECT WITH DP.
  1 |   PTR OPTIONS (epsilon = 1, delta = 1e-6, max_rows_contributed = AUTO) IQR(age) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write a number instead of AUTO.
====
-- case: a cap that is found for a choice
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) name, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE disease = name), 100) OVER diseases FROM visits
----
PrivacyError: max_rows_contributed = AUTO is for counts, sums and formulas of them, in SELECT WITH DP.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) name, ABOVE_THRESHOLD(COUNT(*) FIL
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write a number instead of AUTO.
====
-- case: shares that leave the caps nothing
-- policy: no_caps
SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) COUNT(*, epsilon => 1) FROM visits
----
BindError: AUTO caps need an epsilon for the whole block.
  1 |   SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) COUNT(*, epsilon => 1) FROM visits
                                                             ^^^^^^^^^^^^^^^^^^^^^^
Hint: give the whole statement an epsilon: 1/4 of it finds the caps.
====
-- case: shares that leave the caps too little
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO) COUNT(*, epsilon => 0.9) FROM visits
----
BindError: Epsilon overconsumption: the shares add up to 0.9 of ε=0.75.
  1 |   silon = 1, max_rows_contributed = AUTO) COUNT(*, epsilon => 0.9) FROM visits
                                                ^^^^^^^^^^^^^^^^^^^^^^^^
Hint: lower the shares, or raise the epsilon of the block.
====
-- case: no cap on rows, in the policy or the statement
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM visits
----
PrivacyError: visits needs a limit on the rows of one privacy unit.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM visits
                                             ^^^^^^^^
Hint: write OPTIONS (max_rows_contributed = AUTO) to find it privately, or ask the owner for max_rows.
====
-- case: no cap on groups, in the policy or the statement
-- policy: no_caps
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) city, COUNT(DISTINCT patient_id) FROM visits GROUP BY city
----
PrivacyError: this needs a limit on the groups of one privacy unit.
  1 |   STINCT patient_id) FROM visits GROUP BY city
                                                ^^^^
Hint: write OPTIONS (max_groups_contributed = AUTO) to find it privately, or ask the owner for max_rows.
====
-- case: a cap that is a word
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = MANY) COUNT(*) FROM visits
----
BindError: max_rows_contributed must be a number.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = MANY) COUNT(*) FROM visits
                                                                    ^^^^
Hint: write max_rows_contributed as a literal, such as 3, or as AUTO, without quotes, to find it privately.
====
-- case: bounds of dates as text
SELECT MIN(day, contribution_bounds_per_row => ('2024-01-01', '2024-12-31')) FROM visits
----
BindError: contribution_bounds_per_row must be a number.
  1 |   SELECT MIN(day, contribution_bounds_per_row => ('2024-01-01', '2024-12-31')) FROM visits
                                                        ^^^^^^^^^^^^
Hint: write DATE '2024-01-01'.
====
-- case: options without parentheses
SELECT WITH DP OPTIONS epsilon = 1 COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP OPTIONS epsilon = 1 COUNT(*) FROM visits
                       ^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1).
====
-- case: options behind another word
SELECT WITH DP OPTION (epsilon = 1) COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP OPTION (epsilon = 1) COUNT(*) FROM visits
                       ^^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1).
====
-- case: options in braces
SELECT WITH DP OPTIONS {epsilon = 1} COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP OPTIONS {epsilon = 1} COUNT(*) FROM visits
                       ^^^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1).
====
-- case: options behind a sign
SELECT WITH DP OPTIONS = (epsilon = 1) COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP OPTIONS = (epsilon = 1) COUNT(*) FROM visits
                       ^^^^^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1).
====
-- case: an option without its sign
SELECT WITH DP OPTIONS (epsilon 1) COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP OPTIONS (epsilon 1) COUNT(*) FROM visits
                       ^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1).
====
-- case: options without a comma
SELECT WITH DP OPTIONS (epsilon = 1 delta = 1e-6) COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1 delta = 1e-6) COUNT(*) FROM visits
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1, delta = 1e-6).
====
-- case: options that are not closed
SELECT WITH DP OPTIONS (epsilon = 1 COUNT(*) FROM visits
----
ParseError: the options have no end.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1 COUNT(*) FROM visits
                                          ^
Hint: write 1) instead of 1.
====
-- case: options with a semicolon
SELECT WITH DP OPTIONS (epsilon = 1; delta = 1e-6) COUNT(*) FROM visits
----
ParseError: options are separated by commas.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1; delta = 1e-6) COUNT(*) FROM visits
                                           ^
Hint: write , instead of ;.
====
-- case: an option without the word
SELECT WITH DP epsilon = 1 COUNT(*) FROM visits
----
ParseError: options are written name = value, in parentheses.
  1 |   SELECT WITH DP epsilon = 1 COUNT(*) FROM visits
                       ^^^^^^^^^^^
Hint: write OPTIONS (epsilon = 1).
====
-- case: an option with an assignment
SELECT WITH DP OPTIONS (epsilon := 1) COUNT(*) FROM visits
----
BindError: options are name = value.
  1 |   SELECT WITH DP OPTIONS (epsilon := 1) COUNT(*) FROM visits
                                ^^^^^^^^^^^^
Hint: write epsilon = 1.
====
-- case: an option with a quoted name
SELECT WITH DP OPTIONS ('epsilon' = 1) COUNT(*) FROM visits
----
BindError: options are name = value.
  1 |   SELECT WITH DP OPTIONS ('epsilon' = 1) COUNT(*) FROM visits
                                ^^^^^^^^^^^^^
Hint: write epsilon = 1.
====
-- case: an option with a decimal comma
SELECT WITH DP OPTIONS (epsilon = 0,5) COUNT(*) FROM visits
----
BindError: options are name = value.
  1 |   SELECT WITH DP OPTIONS (epsilon = 0,5) COUNT(*) FROM visits
                                ^^^^^^^^^^^^^
Hint: write epsilon = 0.5, with a point.
====
-- case: an option with a Greek name
SELECT WITH DP OPTIONS (ε = 1) COUNT(*) FROM visits
----
BindError: OPTIONS has no ε.
  1 |   SELECT WITH DP OPTIONS (ε = 1) COUNT(*) FROM visits
                                ^^^^^
Hint: did you mean epsilon?
====
-- case: a mode in two words
SELECT WITH DIFFERENTIAL PRIVACY COUNT(*) FROM visits
----
ParseError: can't read this: ( is not expected here.
  1 |   SELECT WITH DIFFERENTIAL PRIVACY COUNT(*) FROM visits
                                              ^
Hint: write DIFFERENTIAL_PRIVACY instead of DIFFERENTIAL PRIVACY.
