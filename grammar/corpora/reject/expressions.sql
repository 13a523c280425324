-- case: a column without bounds
SELECT SUM(weight) FROM visits
----
PrivacyError: SUM(weight) needs bounds for weight; the policy declares none.
  1 |   SELECT SUM(weight) FROM visits
               ^^^^^^^^^^^
Hint: write SUM(weight, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: an average without bounds
SELECT AVG(weight) FROM visits
----
PrivacyError: AVG(weight) needs bounds for weight; the policy declares none.
  1 |   SELECT AVG(weight) FROM visits
               ^^^^^^^^^^^
Hint: write AVG(weight, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: text can't be summed
SELECT SUM(city) FROM visits
----
BindError: SUM needs a number, and city is VARCHAR.
  1 |   SELECT SUM(city) FROM visits
                   ^^^^
Hint: write TRY_CAST(city AS DOUBLE) for numbers kept as text, or SELECT city, COUNT(*) FROM visits GROUP BY city: it counts its values.
====
-- case: a spread without bounds
SELECT VARIANCE(weight) FROM visits
----
PrivacyError: VARIANCE(weight) needs bounds for weight; the policy declares none.
  1 |   SELECT VARIANCE(weight) FROM visits
               ^^^^^^^^^^^^^^^^
Hint: write VARIANCE(weight, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: a cast that may fail
SELECT SUM(CAST(note AS INTEGER)) FROM visits
----
PrivacyError: SUM(CAST(note AS INT)) needs bounds for CAST(note AS INT); the policy declares none.
  1 |   SELECT SUM(CAST(note AS INTEGER)) FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write SUM(CAST(note AS INT), contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: a comparison of text with a number
SELECT COUNT(*) FROM visits WHERE note = 5
----
BindError: the comparison combines VARCHAR with INTEGER.
  1 |   SELECT COUNT(*) FROM visits WHERE note = 5
                                          ^^^^^^^^
Hint: text and numbers are not compared: write note = '5', or TRY_CAST(note AS DOUBLE) = 5.
====
-- case: a number in a list of texts
SELECT COUNT(*) FROM visits WHERE note IN (5, 6)
----
BindError: IN combines VARCHAR with INTEGER.
  1 |   SELECT COUNT(*) FROM visits WHERE note IN (5, 6)
                                          ^^^^^^^^^^^^^
Hint: text and numbers are not compared: write note IN ('5', '6'), or TRY_CAST(note AS DOUBLE) IN (5, 6).
====
-- case: an error on purpose
SELECT COUNT(*) FROM visits WHERE CASE WHEN age > 100 THEN error('x') ELSE TRUE END
----
PrivacyError: error can't be used on private rows: an error would be an answer without noise.
  1 |   SELECT COUNT(*) FROM visits WHERE CASE WHEN age > 100 THEN error('x') ELSE TRUE END
                                                                   ^^^^^^^^^^
====
-- case: sleep
SELECT COUNT(*) FROM visits WHERE CASE WHEN age > 100 THEN sleep_ms(1000) IS NULL ELSE TRUE END
----
PrivacyError: sleep_ms can't be used on private rows: time would be an answer without noise.
  1 |   SELECT COUNT(*) FROM visits WHERE CASE WHEN age > 100 THEN sleep_ms(1000) IS NULL ELSE TRUE END
                                                                   ^^^^^^^^^^^^^^
====
-- case: random
SELECT COUNT(*) FROM visits WHERE random() < 0.5
----
PrivacyError: random can't be used on private rows: its answer is not about the rows.
  1 |   SELECT COUNT(*) FROM visits WHERE random() < 0.5
                                          ^^^^^^^^
Hint: aggregate all rows: no sample of them is drawn here.
====
-- case: setseed
SELECT COUNT(*) FROM visits WHERE setseed(0.5) IS NULL
----
PrivacyError: setseed can't be used on private rows: its answer is not about the rows.
  1 |   SELECT COUNT(*) FROM visits WHERE setseed(0.5) IS NULL
                                          ^^^^^^^^^^^^
====
-- case: a regular expression from the data
SELECT COUNT(*) FROM visits WHERE regexp_matches(city, note)
----
PrivacyError: a pattern must be a literal: one from the data could fail on some rows.
  1 |   SELECT COUNT(*) FROM visits WHERE regexp_matches(city, note)
                                                               ^^^^
Hint: write the pattern in quotes, or compare texts with starts_with or contains.
====
-- case: repeat
SELECT COUNT(*) FROM visits WHERE length(repeat(city, 1000000)) > 5
----
PrivacyError: repeat can't be used on private rows: its cost depends on the values.
  1 |   SELECT COUNT(*) FROM visits WHERE length(repeat(city, 1000000)) > 5
                                                 ^^^^^^^^^^^^^^^^^^^^^
Hint: join texts by ||.
====
-- case: stats
SELECT stats(age) FROM visits
----
PrivacyError: STATS is not a function here.
  1 |   SELECT stats(age) FROM visits
               ^^^^^^^^^^
Hint: write AVG(age).
====
-- case: a literal beyond all floats
SELECT COUNT(*) FROM visits WHERE age < 1e999
----
BindError: this number is too large.
  1 |   SELECT COUNT(*) FROM visits WHERE age < 1e999
                                                ^^^^^
====
-- case: getenv
SELECT getenv('HOME')
----
BindError: getenv is not a function that may be called above the private part.
  1 |   SELECT getenv('HOME')
               ^^^^^^
Hint: only functions that compute from their arguments may.
====
-- case: nested aggregates
SELECT SUM(COUNT(*)) FROM visits
----
PrivacyError: COUNT is inside another aggregate.
  1 |   SELECT SUM(COUNT(*)) FROM visits
                   ^^^^^^^^
Hint: write SELECT SUM(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) AS t: a subquery aggregates first.
====
-- case: an aggregate in WHERE
SELECT COUNT(*) FROM visits WHERE COUNT(*) > 3
----
PrivacyError: COUNT is not supported in WHERE.
  1 |   SELECT COUNT(*) FROM visits WHERE COUNT(*) > 3
                                          ^^^^^^^^
Hint: write HAVING COUNT(*) > 3 instead of WHERE COUNT(*) > 3: it reads the noisy value.
====
-- case: an aggregate that is not offered
SELECT string_agg(city, ',') FROM visits
----
PrivacyError: STRING_AGG has no noisy form.
  1 |   SELECT string_agg(city, ',') FROM visits
               ^^^^^^^^^^^^^^^^^^^^^
Hint: write SELECT city, COUNT(*) FROM visits GROUP BY city: it counts how often each value occurs.
====
-- case: a list of rows
SELECT list(age) FROM visits
----
PrivacyError: LIST has no noisy form.
  1 |   SELECT list(age) FROM visits
               ^^^^^^^^^
Hint: write SELECT age, COUNT(*) FROM visits GROUP BY age: it counts how often each value occurs.
====
-- case: any value
SELECT any_value(age) FROM visits
----
PrivacyError: ANY_VALUE has no noisy form.
  1 |   SELECT any_value(age) FROM visits
               ^^^^^^^^^^^^^^
Hint: write SELECT age, COUNT(*) FROM visits GROUP BY age: it counts how often each value occurs.
====
-- case: a post-processing type error, before anything is paid
-- caret: none
SELECT n + ward FROM (SELECT WITH DP ward, COUNT(*) AS n FROM visits GROUP BY ward) s
----
BindError: above the private part: no function matches the given name and argument types '+(BIGINT, VARCHAR)'. You might need to add explicit type casts.
====
-- case: a cast that would fail is refused, whatever the data
SELECT COUNT(*) FROM visits WHERE CASE WHEN age > 100 THEN CAST('x' AS INTEGER) ELSE 1 END = 1
----
BindError: 'x' is not a valid INTEGER.
  1 |   SELECT COUNT(*) FROM visits WHERE CASE WHEN age > 100 THEN CAST('x' AS INTEGER) ELSE 1 END = 1
                                                                        ^^^
====
-- case: the end of an interval of nothing
SELECT INTERVAL_LOW(1) FROM (SELECT COUNT(*) AS n FROM visits) AS r
----
BindError: INTERVAL_LOW takes one released column.
  1 |   SELECT INTERVAL_LOW(1) FROM (SELECT COUNT(*) AS n FROM visits) AS r
               ^^^^^^^^^^^^^^^
Hint: name one column of a released answer.
====
-- case: a histogram of text without values
SELECT HISTOGRAM(city) FROM visits
----
PrivacyError: HISTOGRAM(city) needs public values of city; the policy declares none.
  1 |   SELECT HISTOGRAM(city) FROM visits
               ^^^^^^^^^^^^^^^
Hint: write the bins, HISTOGRAM_EXACT(city, ['a', 'b']), or ask the data owner for values.
====
-- case: a histogram of dates without values
SELECT HISTOGRAM(day) FROM visits
----
PrivacyError: HISTOGRAM(day) needs public values of day; the policy declares none.
  1 |   SELECT HISTOGRAM(day) FROM visits
               ^^^^^^^^^^^^^^
Hint: write the bins, HISTOGRAM(day, [DATE '2024-06-30', DATE '2024-12-31']), or ask the data owner for values.
====
-- case: a misspelt aggregate inside SUBSAMPLE
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (0, 120)) MEDIANN(age) FROM visits
----
PrivacyError: mediann can't be used inside SUBSAMPLE.
  1 |   SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (0, 120)) MEDIANN(age) FROM visits
                                                                       ^^^^^^^^^^^^
Hint: did you mean MEDIAN?
