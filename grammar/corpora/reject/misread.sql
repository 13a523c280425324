-- case: a short name of the variance
SELECT VAR(age) FROM visits
----
BindError: VAR is not a function here.
  1 |   SELECT VAR(age) FROM visits
               ^^^^^^^^
Hint: write VARIANCE(age), or VAR_POP(age).
====
-- case: a short name of the spread, with a share
SELECT STD(age, epsilon => 0.05) FROM visits
----
BindError: STD is not a function here.
  1 |   SELECT STD(age, epsilon => 0.05) FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write STDDEV(age), or STDDEV_POP(age).
====
-- case: another system's mean
SELECT AVERAGE(age) FROM visits
----
BindError: AVERAGE is not a function here.
  1 |   SELECT AVERAGE(age) FROM visits
               ^^^^^^^^^^^^
Hint: write AVG(age).
====
-- case: another system's quantile
SELECT PERCENTILE(age, 0.5) FROM visits
----
BindError: PERCENTILE is not a function here.
  1 |   SELECT PERCENTILE(age, 0.5) FROM visits
               ^^^^^^^^^^^^^^^^^^^^
Hint: write QUANTILE_CONT(age, 0.9).
====
-- case: another system's count of different values
SELECT COUNT_DISTINCT(city) FROM visits
----
BindError: COUNT_DISTINCT is not a function here.
  1 |   SELECT COUNT_DISTINCT(city) FROM visits
               ^^^^^^^^^^^^^^^^^^^^
Hint: write COUNT(DISTINCT city).
====
-- case: a misspelt aggregate
SELECT SUMM(amount) FROM visits
----
PrivacyError: SUMM is not an aggregate.
  1 |   SELECT SUMM(amount) FROM visits
               ^^^^^^^^^^^^
Hint: did you mean SUM?
====
-- case: another system's day
SELECT COUNT(*) FROM visits WHERE day < GETDATE()
----
BindError: GETDATE is not a function here.
  1 |   SELECT COUNT(*) FROM visits WHERE day < GETDATE()
                                                ^^^^^^^^^
Hint: write CURRENT_DATE, or now().
====
-- case: another system's addition of days
SELECT COUNT(*) FROM visits WHERE DATEADD(day, 1, day) > DATE '2024-01-01'
----
BindError: DATEADD is not a function here.
  1 |   SELECT COUNT(*) FROM visits WHERE DATEADD(day, 1, day) > DATE '2024-01-01'
                                          ^^^^^^^^^^^^^^^^^^^^
Hint: add an interval to the date by a plus sign.
====
-- case: another system's test for NULL
SELECT SUM(ISNULL(age, 0)) FROM visits
----
BindError: ISNULL is not a function here.
  1 |   SELECT SUM(ISNULL(age, 0)) FROM visits
                   ^^^^^^^^^^^^^^
Hint: write COALESCE(age, 0), or age IS NULL.
====
-- case: another system's choice
SELECT SUM(DECODE(ward, 'A', 1, 0)) FROM visits
----
ParseError: can't read this: a function has more values here than it takes.
  1 |   SELECT SUM(DECODE(ward, 'A', 1, 0)) FROM visits
                                         ^
Hint: compare with each value in turn, as the cases of one expression.
====
-- case: both conditions by &&
SELECT COUNT(*) FROM visits WHERE age = 3 && ward = 'A'
----
PrivacyError: && compares lists.
  1 |   SELECT COUNT(*) FROM visits WHERE age = 3 && ward = 'A'
                                                ^^^^^^^^^
Hint: write AND instead of &&.
====
-- case: a name in braces
SELECT COUNT(*) FROM visits WHERE city = {city}
----
ParseError: templates are not filled in: they would change the statement after it was priced.
  1 |   SELECT COUNT(*) FROM visits WHERE city = {city}
                                                 ^^^^^^
Hint: write $city and the notebook's variable city is bound as a value.
====
-- case: a name in braces behind a dollar
SELECT COUNT(*) FROM visits WHERE city = ${city}
----
ParseError: templates are not filled in: they would change the statement after it was priced.
  1 |   SELECT COUNT(*) FROM visits WHERE city = ${city}
                                                 ^^^^^^^
Hint: write $city and the notebook's variable city is bound as a value.
====
-- case: a table in braces
SELECT COUNT(*) FROM {table}
----
ParseError: templates are not filled in: they would change the statement after it was priced.
  1 |   SELECT COUNT(*) FROM {table}
                             ^^^^^^^
Hint: write the table's name: a parameter, $table, is a value and never a name.
====
-- case: a parameter of printf
SELECT COUNT(*) FROM visits WHERE city = %s
----
ParseError: %s is not a parameter here.
  1 |   SELECT COUNT(*) FROM visits WHERE city = %s
                                                 ^^
Hint: write $name.
====
-- case: a named parameter of printf
SELECT COUNT(*) FROM visits WHERE city = %(city)s AND age > 3
----
ParseError: %(city)s is not a parameter here.
  1 |   SELECT COUNT(*) FROM visits WHERE city = %(city)s AND age > 3
                                                 ^^^^^^^^
Hint: write $city.
====
-- case: a question mark
SELECT COUNT(*) FROM visits WHERE city = ?
----
ParseError: a ? mark has no value.
  1 |   SELECT COUNT(*) FROM visits WHERE city = ?
                                                 ^
Hint: give a list of values, or write $name.
====
-- case: a colon
SELECT COUNT(*) FROM visits WHERE city = :city
----
ParseError: :city is not a parameter here.
  1 |   SELECT COUNT(*) FROM visits WHERE city = :city
                                                 ^^^^^
Hint: write $city.
====
-- case: an at sign
SELECT COUNT(*) FROM visits WHERE city = @name
----
BindError: there is no column name here.
  1 |   SELECT COUNT(*) FROM visits WHERE city = @name
                                                  ^^^^
Hint: write $name instead of @name, which is an absolute value.
====
-- case: TOP
SELECT TOP 10 ward, COUNT(*) FROM visits GROUP BY ward
----
ParseError: TOP is not supported here.
  1 |   SELECT TOP 10 ward, COUNT(*) FROM visits GROUP BY ward
               ^^^^^^
Hint: write it at the end: ORDER BY 2 DESC LIMIT 10, after the aggregation.
====
-- case: TOP in parentheses
SELECT TOP (3) ward, COUNT(*) FROM visits GROUP BY ward
----
ParseError: TOP is not supported here.
  1 |   SELECT TOP (3) ward, COUNT(*) FROM visits GROUP BY ward
               ^^^^^^
Hint: write it at the end: ORDER BY 2 DESC LIMIT 3, after the aggregation.
====
-- case: FORM
SELECT COUNT(*) FORM visits
----
ParseError: FORM is not a word of SQL.
  1 |   SELECT COUNT(*) FORM visits
                        ^^^^
Hint: did you mean FROM?
====
-- case: SELCT
SELCT COUNT(*) FROM visits
----
ParseError: SELCT is not a statement of dpsql.
  1 |   SELCT COUNT(*) FROM visits
        ^^^^^
Hint: did you mean SELECT?
====
-- case: WHRE
SELECT COUNT(*) FROM visits WHRE age > 3
----
ParseError: WHRE is not a word of SQL.
  1 |   SELECT COUNT(*) FROM visits WHRE age > 3
                                    ^^^^
Hint: did you mean WHERE?
====
-- case: GROUPBY
SELECT ward, COUNT(*) FROM visits GROUPBY ward
----
ParseError: GROUPBY is not a word of SQL.
  1 |   SELECT ward, COUNT(*) FROM visits GROUPBY ward
                                          ^^^^^^^
Hint: did you mean GROUP BY?
====
-- case: GROUP without BY
SELECT ward, COUNT(*) FROM visits GROUP ward
----
ParseError: GROUP lacks its BY.
  1 |   SELECT ward, COUNT(*) FROM visits GROUP ward
                                          ^^^^^
Hint: write GROUP BY.
====
-- case: ORDERBY
SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDERBY ward
----
ParseError: ORDERBY is not a word of SQL.
  1 |   SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDERBY ward
                                                        ^^^^^^^
Hint: did you mean ORDER BY?
====
-- case: HAVNG
SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVNG COUNT(*) > 3
----
ParseError: HAVNG is not a word of SQL.
  1 |   SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVNG COUNT(*) > 3
                                                        ^^^^^
Hint: did you mean HAVING?
====
-- case: a comma that is missing
SELECT ward COUNT(*) FROM visits GROUP BY ward
----
ParseError: can't read this: ( is not expected here.
  1 |   SELECT ward COUNT(*) FROM visits GROUP BY ward
                         ^
Hint: is a comma missing before COUNT?
====
-- case: an arrow for a comparison
SELECT COUNT(*) FROM visits WHERE age => 3
----
ParseError: can't read this: => is not expected here.
  1 |   SELECT COUNT(*) FROM visits WHERE age => 3
                                              ^^
Hint: write >= instead of =>.
====
-- case: the smaller sign behind
SELECT COUNT(*) FROM visits WHERE age =< 3
----
ParseError: can't read this: something is missing near 3.
  1 |   SELECT COUNT(*) FROM visits WHERE age =< 3
                                                 ^
Hint: write <= instead of =<.
====
-- case: too many values
SELECT AVG(age, 3) FROM visits
----
ParseError: can't read this: a function has more values here than it takes.
  1 |   SELECT AVG(age, 3) FROM visits
                         ^
Hint: leave the last argument out; others have a name, and an arrow after it.
====
-- case: a hint for another planner
SELECT @{hint=1} WITH DP COUNT(*) FROM visits
----
ParseError: hints are not supported here.
  1 |   SELECT @{hint=1} WITH DP COUNT(*) FROM visits
               ^^
Hint: leave it out.
====
-- case: an aggregate for a mode
SELECT WITH SUM(age) FROM visits
----
ParseError: WITH takes a mode, and SUM is an aggregate.
  1 |   SELECT WITH SUM(age) FROM visits
                    ^^^
Hint: leave WITH out.
====
-- case: a sum of a star
SELECT SUM(*) FROM visits
----
PrivacyError: * can't be used on private rows.
  1 |   SELECT SUM(*) FROM visits
                   ^
Hint: name a column: only a count takes all of them.
====
-- case: a sum of a sum
SELECT SUM(SUM(age)) FROM visits
----
PrivacyError: SUM is inside another aggregate.
  1 |   SELECT SUM(SUM(age)) FROM visits
                   ^^^^^^^^
Hint: write SELECT SUM(n) FROM (SELECT patient_id, SUM(age) AS n FROM visits GROUP BY patient_id) AS t: a subquery aggregates first.
====
-- case: different pairs
SELECT COUNT(DISTINCT age, ward) FROM visits
----
BindError: COUNT takes 1 argument.
  1 |   SELECT COUNT(DISTINCT age, ward) FROM visits
               ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write COUNT(DISTINCT concat_ws('|', age, ward)).
====
-- case: a quantile without its place
SELECT QUANTILE_CONT(age) FROM visits
----
BindError: QUANTILE_CONT takes 2 arguments.
  1 |   SELECT QUANTILE_CONT(age) FROM visits
               ^^^^^^^^^^^^^^^^^^
Hint: write QUANTILE_CONT(age, 0.5).
====
-- case: the first of texts
SELECT MIN(city) FROM visits
----
BindError: MIN needs a number, and city is VARCHAR.
  1 |   SELECT MIN(city) FROM visits
                   ^^^^
Hint: write SELECT city FROM visits GROUP BY city ORDER BY city LIMIT 1: the groups are noisy.
====
-- case: the first of dates
SELECT MIN(day) FROM visits
----
PrivacyError: MIN(day) needs bounds for day; the policy declares none.
  1 |   SELECT MIN(day) FROM visits
               ^^^^^^^^
Hint: give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: AUTO bounds of dates
SELECT AVG(day, contribution_bounds_per_row => AUTO) FROM visits
----
BindError: AUTO finds bounds of numbers, and day is DATE.
  1 |   SELECT AVG(day, contribution_bounds_per_row => AUTO) FROM visits
                   ^^^
Hint: give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
====
-- case: a key without its grouping
SELECT ward, COUNT(*) FROM visits
----
PrivacyError: ward must be a group or be inside an aggregate.
  1 |   SELECT ward, COUNT(*) FROM visits
               ^^^^
Hint: write COUNT(DISTINCT ward), or add it to the groups: GROUP BY ward.
====
-- case: a key left out of the grouping
SELECT ward, age, COUNT(*) FROM visits GROUP BY ward
----
PrivacyError: age must be a group or be inside an aggregate.
  1 |   SELECT ward, age, COUNT(*) FROM visits GROUP BY ward
                     ^^^
Hint: write AVG(age), or add it to the groups: GROUP BY ward, age.
====
-- case: a table's name for a subquery without one
SELECT SUM(t.age) FROM (SELECT age FROM visits)
----
BindError: there is no table t in this FROM.
  1 |   SELECT SUM(t.age) FROM (SELECT age FROM visits)
                   ^^^^^
Hint: write AS t behind the subquery.
====
-- case: subqueries without names joined on another column
SELECT COUNT(*) FROM (SELECT patient_id, age FROM visits) JOIN (SELECT patient_id AS p, income FROM patients) ON age = income
----
PrivacyError: private tables are joined on something other than their privacy unit.
  1 |   tient_id AS p, income FROM patients) ON age = income
                                                ^^^^^^^^^^^^
Hint: no policy lets different people's rows meet; for each person's own rows, add patient_id = p to ON.
====
-- case: a column that was not released
SELECT nope FROM (SELECT COUNT(*) AS n FROM visits)
----
BindError: there is no column nope above the private part.
  1 |   SELECT nope FROM (SELECT COUNT(*) AS n FROM visits)
               ^^^^
====
-- case: a table that is not above
SELECT a.n FROM (SELECT COUNT(*) AS n FROM visits) b
----
BindError: there is no table a above the private part.
  1 |   SELECT a.n FROM (SELECT COUNT(*) AS n FROM visits) b
               ^
====
-- case: an order by a place beyond the last
SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDER BY 7
----
BindError: ORDER BY counts the columns from 1, and it has 2 columns.
  1 |   SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDER BY 7
                                                                 ^
Hint: write a number from 1 to 2.
====
-- case: a named argument of a function
SELECT foo(1, epsilon => 1) FROM wards
----
BindError: foo takes no named arguments above the private part.
  1 |   SELECT foo(1, epsilon => 1) FROM wards
               ^^^
Hint: leave them out.
====
-- case: a named argument over public rows
SELECT SUM(beds, epsilon => 1) FROM wards
----
PrivacyError: SUM needs private rows, and this FROM has none.
  1 |   SELECT SUM(beds, epsilon => 1) FROM wards
               ^^^^^^^^^^^^^^^^^^^^^^^
Hint: public tables can be read exactly, with plain SQL.
====
-- case: a unit that the policy does not declare, of a path
SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = order_id) COUNT(*) FROM lines
----
PrivacyError: order_id is not the privacy unit of lines.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = order_id) COUNT(*) FROM lines
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave it out: the policy alone names the unit, and it declares user_id.
====
-- case: a unit where rows are units
SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = patient_id) COUNT(*) FROM bids
----
PrivacyError: patient_id is not the privacy unit of bids.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, privacy_unit_column = patient_id) COUNT(*) FROM bids
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: leave it out: the policy alone names the unit, and each row is a unit of its own.
====
-- case: units of two names
SELECT COUNT(*) FROM (SELECT patient_id AS p, age AS a FROM visits UNION ALL SELECT user_id, total FROM orders)
----
PrivacyError: the two sides have different privacy units.
  1 |   SELECT COUNT(*) FROM (SELECT patient_id AS p, age AS a FROM visits UNION ALL SELECT user_id, total F
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: visits has patient_id and orders has user_id: ask the owner to give the privacy units one name and one type, or to lead one to the other, privacy_unit = "user_id -> visits.patient_id, patient_id" in orders.
====
-- case: rows above their part's mean
SELECT COUNT(*) FROM visits v WHERE amount > (SELECT AVG(amount) FROM visits w WHERE w.ward = v.ward)
----
PrivacyError: a subquery over private rows would let one unit decide about the rows of others.
  1 |   *) FROM visits v WHERE amount > (SELECT AVG(amount) FROM visits w WHERE w.ward = v.ward)
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: look at rows of the same unit: add w.patient_id = v.patient_id to its WHERE, or release it first for each ward, and join that answer.
====
-- case: public rows that private ones name
SELECT COUNT(*) FROM wards w WHERE w.ward IN (SELECT ward FROM visits)
----
PrivacyError: ward must be a group or be inside an aggregate.
  1 |   SELECT COUNT(*) FROM wards w WHERE w.ward IN (SELECT ward FROM visits)
                                                             ^^^^
Hint: write (SELECT ward FROM visits GROUP BY ward HAVING COUNT(*) > 0): the list is released.
====
-- case: keys of the private side of a RIGHT JOIN
SELECT v.disease, COUNT(*) FROM visits v RIGHT JOIN diseases d ON v.disease = d.name GROUP BY v.disease
----
PrivacyError: public rows without a matching private row would count here, and private rows decide which these are.
  1 |   SELECT v.disease, COUNT(*) FROM visits v RIGHT JOIN diseases d ON v.disease = d.name GROUP BY v.dise
                          ^^^^^^^^
Hint: write COUNT(v.patient_id), which counts the rows with a match, or GROUP BY d.name, the public side's key.
====
-- case: public groups by an inner join
SELECT WITH DP OPTIONS (epsilon = 1, group_selection_strategy = PUBLIC_GROUPS) d.name, COUNT(*) FROM visits v JOIN diseases d ON v.disease = d.name GROUP BY d.name
----
PrivacyError: these groups are not public.
  1 |   SELECT WITH DP OPTIONS (epsilon = 1, group_selection_strategy = PUBLIC_GROUPS) d.name, COUNT(*) FROM
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write RIGHT JOIN in place of JOIN, with keys from d, or ask the owner to declare the column's values.
====
-- case: a column of a public table, misspelt
SELECT ward, bedds FROM wards
----
BindError: there is no column bedds above the private part.
  1 |   SELECT ward, bedds FROM wards
                     ^^^^^
Hint: did you mean beds?
====
-- case: a shift of bits
SELECT COUNT(*) FROM visits WHERE age << 1 = 4
----
PrivacyError: << can't be used on private rows.
  1 |   SELECT COUNT(*) FROM visits WHERE age << 1 = 4
                                          ^^^^^^^^
Hint: write age * 2.
====
-- case: SELECT COUTN(*) FROM visits
SELECT COUTN(*) FROM visits
----
PrivacyError: COUTN is not an aggregate.
  1 |   SELECT COUTN(*) FROM visits
               ^^^^^^^^
Hint: did you mean COUNT?
====
-- case: SELECT COUNT(*) FROM visits WHERE city = Berlin
SELECT COUNT(*) FROM visits WHERE city = Berlin
----
BindError: there is no column Berlin here.
  1 |   SELECT COUNT(*) FROM visits WHERE city = Berlin
                                                 ^^^^^^
Hint: text needs single quotes: write 'Berlin'.
====
-- case: SELECT COUNT(*) FROM visits WHERE age(day) > 3
SELECT COUNT(*) FROM visits WHERE age(day) > 3
----
PrivacyError: the function age is not on the list of those that can't fail or leak.
  1 |   SELECT COUNT(*) FROM visits WHERE age(day) > 3
                                          ^^^^^^^^
Hint: for the years between two dates, write date_diff('year', day, DATE '2024-06-01').
====
-- case: SELECT APPROX_QUANTILES(age, 4)[OFFSET(2)] FROM visits
SELECT APPROX_QUANTILES(age, 4)[OFFSET(2)] FROM visits
----
ParseError: OFFSET is not supported here.
  1 |   SELECT APPROX_QUANTILES(age, 4)[OFFSET(2)] FROM visits
                                        ^^^^^^
Hint: write x[1] for the first element: places are counted from 1.
====
-- case: SELECT COUNT(*) FROM visits WHERE city IN 'Berlin'
SELECT COUNT(*) FROM visits WHERE city IN 'Berlin'
----
BindError: a list is needed, and this is a text.
  1 |   SELECT COUNT(*) FROM visits WHERE city IN 'Berlin'
                                                  ^^^^^^^^
Hint: write ('Berlin'), in parentheses.
====
-- case: SELECT CASE WHEN age > 3 THEN 'a' ELSE 1 END, COUNT(*) FROM visits GROUP BY 1
SELECT CASE WHEN age > 3 THEN 'a' ELSE 1 END, COUNT(*) FROM visits GROUP BY 1
----
BindError: CASE combines VARCHAR with INTEGER.
  1 |   SELECT CASE WHEN age > 3 THEN 'a' ELSE 1 END, COUNT(*) FROM visits GROUP BY 1
                         ^^^^^^^^^^^^^^^^^^^^^^^
Hint: write results of one type, such as '1' in quotes among texts.
====
-- case: SELECT ward, COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward GROUP BY ward
SELECT ward, COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward GROUP BY ward
----
BindError: ward is ambiguous.
  1 |   SELECT ward, COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward GROUP BY ward
                                                                                          ^^^^
Hint: write visits.ward or wards.ward.
====
-- case: SHOW COLUMNS FROM visits
SHOW COLUMNS FROM visits
----
ParseError: there is no SHOW COLUMNS.
  1 |   SHOW COLUMNS FROM visits
             ^^^^^^^
Hint: write DESCRIBE visits.
====
-- case: SELECT COUNT(*) FROM visits WHERE string_split(note, ' ') = 'x'
SELECT COUNT(*) FROM visits WHERE string_split(note, ' ') = 'x'
----
BindError: the comparison combines VARCHAR[] with VARCHAR.
  1 |   SELECT COUNT(*) FROM visits WHERE string_split(note, ' ') = 'x'
                                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write list_contains(STR_SPLIT(note, ' '), 'x').
