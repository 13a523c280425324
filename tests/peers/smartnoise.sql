-- case: a sum alone
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT SUM(age) FROM census
----
answered
====
-- case: count and variance
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT COUNT(*), VARIANCE(age) AS var_age FROM census
----
answered
====
-- case: variance by its short name
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
-- reason: fault-duckdb
-- plain: SELECT COUNT(*), VARIANCE(age) FROM census
SELECT COUNT(*), VAR(age) AS var_age FROM census
----
refused: BindError: VAR is not a function here.
====
-- case: a mean by three keys, one of them a measure
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
-- seen: person
SELECT wedded, school, earned, AVG(age) FROM census GROUP BY wedded, school, earned
----
answered
====
-- case: a mean by an alias of the table
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT c.wedded, AVG(age) AS aa FROM census AS c GROUP BY wedded
----
answered
====
-- case: the first five by TOP
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
-- reason: fault-duckdb
SELECT TOP 5 school, AVG(earned) FROM census GROUP BY school
----
refused: ParseError: TOP is not supported here.
====
-- case: the first five by LIMIT
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT school, AVG(earned) FROM census GROUP BY school ORDER BY school LIMIT 5
----
answered
====
-- case: count of a boolean, and a mean
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT COUNT(wedded), AVG(age) FROM census
----
answered
====
-- case: a constant beside two keys
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT 3 AS three, c.wedded, school, AVG(earned) FROM census AS c GROUP BY school, wedded
----
answered
====
-- case: keys alone
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT school FROM census GROUP BY school
----
answered
====
-- case: a sum named as its column
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT SUM(age) AS age FROM census
----
answered
====
-- case: a sum in brackets
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT (SUM(age)) AS age FROM census
----
answered
====
-- case: a sum times one
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT SUM(age) * 1 AS age FROM census
----
answered
====
-- case: sum and count
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT SUM(age), COUNT(*) FROM census
----
answered
====
-- case: power of a mean
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT PI(), POWER(AVG(age), 2) FROM census
----
answered
====
-- case: a random number beside a mean
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
SELECT PI(), RANDOM() < 1, POWER(AVG(age), 2) FROM census
----
answered
====
-- case: a key that is a case
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums.sql
-- extra: 2
SELECT SUM(age) FROM census GROUP BY wedded, CASE WHEN age > 90 THEN 1 ELSE 0 END
----
answered
====
-- case: a sum of two columns
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
SELECT SUM(age + earned) FROM census WHERE age IS NOT NULL
----
answered
====
-- case: a sum of a sum
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
-- reason: fault-duckdb
SELECT SUM(SUM(age)) FROM census
----
refused: PrivacyError: SUM is inside another aggregate.
====
-- case: first of each measure
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
-- seen: person
SELECT earned, AVG(earned) FROM census WHERE school = 8 GROUP BY earned ORDER BY earned DESC LIMIT 5
----
answered
====
-- case: a count of a subquery
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
SELECT COUNT(*) FROM (SELECT * FROM census)
----
answered
====
-- case: rows of a join
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
-- reason: unit
SELECT a.person, b.earned FROM census AS a JOIN census AS b ON b.person = a.person
----
refused: PrivacyError: person is the privacy unit: it is never released.
====
-- case: columns that are no keys
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
-- reason: rows
SELECT wedded, school, earned, AVG(age) FROM census
----
refused: PrivacyError: wedded must be a group or be inside an
====
-- case: a key that is not grouped
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
-- reason: rows
SELECT 3 AS three, c.wedded, school, AVG(earned) FROM census AS c GROUP BY school
----
refused: PrivacyError: wedded must be a group or be inside an
====
-- case: a case of each row
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
-- reason: rows
SELECT CASE WHEN age > 90 THEN 1 ELSE 0 END AS age FROM census
----
refused: PrivacyError: age must be a group or be inside an
====
-- case: a sum of a case
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
SELECT SUM(CASE WHEN age > 80 THEN 1 ELSE 0 END) AS age FROM census
----
answered
====
-- case: a sum of a shifted column
-- from: SmartNoise SDK, sql/tests/query/queries/validate_pums/validate_pums_fail.sql
SELECT SUM(age + 1) * 1 AS age FROM census
----
answered
====
-- case: count all
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS count_all FROM census
----
answered
====
-- case: count and sums and spreads together
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS n, SUM(earned) AS s, AVG(earned) AS a, VARIANCE(earned) AS v, STDDEV(earned) AS d FROM census
----
answered
====
-- case: count of people
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT (*) AS foo, COUNT(DISTINCT person) AS bar FROM census
----
answered
====
-- case: people by a boolean
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(DISTINCT person) AS n FROM census GROUP BY wedded
----
answered
====
-- case: people by school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(DISTINCT person) FROM census GROUP BY school
----
answered
====
-- case: distinct ages by school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(DISTINCT age) FROM census GROUP BY school
----
answered
====
-- case: ages by school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(age) FROM census GROUP BY school
----
answered
====
-- case: ages by sex
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(age) FROM census GROUP BY sex
----
answered
====
-- case: two spreads by sex
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT VARIANCE(age), VARIANCE(earned) FROM census GROUP BY sex
----
answered
====
-- case: spread by sex by its short name
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- reason: fault-duckdb
-- plain: SELECT STDDEV(age) FROM census GROUP BY sex
SELECT STD(age) FROM census GROUP BY sex
----
refused: BindError: STD is not a function here.
====
-- case: sum, count and mean by school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT SUM(age), COUNT(age), AVG(age) FROM census GROUP BY school
----
answered
====
-- case: count above an age by school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS c FROM census WHERE age > 70 GROUP BY school
----
answered
====
-- case: count above a great age by school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS c FROM census WHERE age > 80 GROUP BY school
----
answered
====
-- case: count above an age below a school
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS c FROM census WHERE age > 70 AND school < 2
----
answered
====
-- case: a school compared with a text
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS c FROM census WHERE age > 80 AND school = '8'
----
answered
====
-- case: count of nobody
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS c FROM census WHERE age > 100
----
answered
====
-- case: sum of nobody
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- plain: SELECT 0
SELECT SUM(age) AS c FROM census WHERE age > 100
----
answered
====
-- case: age of each above an age
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- reason: rows
SELECT age AS a FROM census WHERE age > 80
----
refused: PrivacyError: age must be a group or be inside an
====
-- case: sum of earnings of one sex
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT SUM(earned) AS earned FROM census WHERE sex = TRUE
----
answered
====
-- case: arithmetic over aggregates
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT AVG(age) + 3, STDDEV(age), VARIANCE(age), SUM(age) / 10, COUNT(age) + 2 FROM census
----
answered
====
-- case: counts of three things
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(*) AS c, COUNT(sex) AS s, COUNT(age) AS a FROM census
----
answered
====
-- case: the same counts in another order
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT COUNT(sex) AS s, COUNT(age) AS a, COUNT(*) AS c FROM census
----
answered
====
-- case: count and sum by a measure
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- seen: person
SELECT COUNT(*) AS n, SUM(age) AS age FROM census GROUP BY earned
----
answered
====
-- case: people by age and earnings
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- seen: person
SELECT COUNT(DISTINCT person) AS n, age, earned FROM census WHERE age > 55 GROUP BY age, earned
----
answered
====
-- case: means of those who are wedded
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT school, SUM(earned) AS t, AVG(earned) AS a, AVG(age) FROM census WHERE wedded = TRUE GROUP BY school
----
answered
====
-- case: sums of two schools, in order
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT school, SUM(earned) AS earned FROM census WHERE school IN (2, 3) GROUP BY school ORDER BY school DESC
----
answered
====
-- case: a square of a sum
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT POWER(SUM(age), 2) AS age_total FROM census
----
answered
====
-- case: three brackets
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT ((SUM(age))) AS age_total FROM census
----
answered
====
-- case: a bracketed spread by a boolean
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT (VARIANCE(age)) AS my_var, wedded FROM census GROUP BY wedded
----
answered
====
-- case: sum by age
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- plain: SELECT SUM(age) FROM census WHERE age IS NOT NULL GROUP BY age
SELECT SUM(age) AS my_sum FROM census GROUP BY age
----
answered
====
-- case: mean by age
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- plain: SELECT AVG(age) FROM census WHERE age IS NOT NULL GROUP BY age HAVING COUNT(*) > 1
SELECT AVG(age) AS my_sum FROM census WHERE age IS NOT NULL GROUP BY age
----
answered
====
-- case: keys of a measure
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- seen: person
SELECT earned FROM census GROUP BY earned
----
answered
====
-- case: a measure and its sum
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- seen: person
SELECT earned, SUM(earned) FROM census WHERE earned IS NOT NULL GROUP BY earned
----
answered
====
-- case: a table that is not there
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- reason: fault-duckdb
SELECT COUNT(*) FROM census_null
----
refused: BindError: there is no table census_null.
====
-- case: a table in a schema that is not there
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- reason: fault-duckdb
SELECT COUNT(*) FROM other.census
----
refused: BindError: there is no table other.census.
====
-- case: mean of two columns
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT AVG(age), AVG(earned) FROM census
----
answered
====
-- case: by sex in order
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT sex, COUNT(*) AS n, AVG(age) AS age FROM census GROUP BY sex ORDER BY sex
----
answered
====
-- case: the same count twice
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT sex, COUNT(*) AS n, COUNT(*) AS foo FROM census GROUP BY sex ORDER BY sex
----
answered
====
-- case: all keys of a synopsis
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- seen: person
SELECT sex, age, school, wedded, latino, COUNT(*) AS n, AVG(earned) AS earned FROM census WHERE earned IS NOT NULL GROUP BY sex, age, school, wedded, latino
----
answered
====
-- case: distinct rows
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- plain: SELECT sex, age, school FROM census GROUP BY ALL HAVING COUNT(*) > 1
SELECT DISTINCT sex, age, school FROM census
----
answered
====
-- case: moved by day
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
SELECT moved, SUM(earned) FROM census GROUP BY moved ORDER BY moved DESC
----
answered
====
-- case: version of the database
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- reason: function
SELECT version()
----
refused: BindError: version is not a function that may be called
====
-- case: name of the database
-- from: SmartNoise SDK, sql/tests/query/test_query.py and sql/tests/engines/test_db_count.py
-- reason: function
SELECT current_database()
----
refused: BindError: current_database is not a function that may be called
====
-- case: having a boolean key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT wedded, SUM(earned) AS s, SUM(age) AS a FROM census GROUP BY wedded HAVING wedded
----
answered
====
-- case: having over two keys, not wedded
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- plain: SELECT age, wedded, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE NOT earned IS NULL AND NOT age IS NULL GROUP BY age, wedded HAVING NOT wedded
-- seen: person
SELECT age, wedded, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE earned IS NOT NULL GROUP BY age, wedded HAVING NOT wedded
----
answered
====
-- case: having a boolean compared with a number
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- plain: SELECT age, wedded, COUNT(*) AS n FROM census WHERE NOT age IS NULL GROUP BY age, wedded HAVING wedded = 1
-- seen: person
SELECT age, wedded, COUNT(*) AS n FROM census GROUP BY age, wedded HAVING wedded = 1
----
answered
====
-- case: having a count or a key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- plain: SELECT age, wedded, COUNT(*) AS n FROM census WHERE NOT age IS NULL GROUP BY age, wedded HAVING n > 4 OR wedded
-- seen: person
SELECT age, wedded, COUNT(*) AS n FROM census GROUP BY age, wedded HAVING n > 4 OR wedded
----
answered
====
-- case: having a count or not a key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- plain: SELECT age, wedded, COUNT(*) AS n FROM census WHERE NOT age IS NULL GROUP BY age, wedded HAVING n > 4 OR NOT wedded
-- seen: person
SELECT age, wedded, COUNT(*) AS n FROM census GROUP BY age, wedded HAVING n > 4 OR NOT wedded
----
answered
====
-- case: having a sum
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- plain: SELECT age, sex, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE NOT age IS NULL GROUP BY age, sex HAVING e > 200000
-- seen: person
SELECT age, sex, COUNT(*) AS n, SUM(earned) AS e FROM census GROUP BY age, sex HAVING e > 200000
----
answered
====
-- case: having a sum or a key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- plain: SELECT age, sex, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE NOT earned IS NULL AND NOT age IS NULL GROUP BY age, sex HAVING e > 200000 OR sex = TRUE
-- seen: person
SELECT age, sex, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE earned IS NOT NULL GROUP BY age, sex HAVING e > 200000 OR sex = TRUE
----
answered
====
-- case: having ranges of a key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- seen: person
SELECT age, COUNT(*) FROM census GROUP BY age HAVING age < 30 OR age > 60
----
answered
====
-- case: having ranges of a key times a number
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- seen: person
SELECT age * 1000 AS age, COUNT(*) FROM census GROUP BY age HAVING age < 30000 OR age > 60000
----
answered
====
-- case: having arithmetic of a key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- seen: person
SELECT age AS age, COUNT(*) FROM census GROUP BY age HAVING age * 1000 < 30000 OR age * 2 > 120
----
answered
====
-- case: having a multiple of a count
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- seen: person
SELECT age, COUNT(*) * 1000 AS n FROM census GROUP BY age HAVING (age < 30 OR age > 60) AND n > 5000
----
answered
====
-- case: having arithmetic of a count
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- seen: person
SELECT age, COUNT(*) AS n FROM census GROUP BY age HAVING (age < 30 OR age > 60) AND n * 100 / 2 > 275
----
answered
====
-- case: having a count and not
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- seen: person
SELECT age, SUM(earned) AS s FROM census WHERE earned IS NOT NULL GROUP BY age HAVING age > 5 AND COUNT(*) > 5 OR NOT (age < 80)
----
answered
====
-- case: having a count by school
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT school, COUNT(*) FROM census GROUP BY school HAVING COUNT(*) > 50
----
answered
====
-- case: people having a count
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT school, COUNT(DISTINCT person) AS n FROM census GROUP BY school HAVING COUNT(*) > 49
----
answered
====
-- case: people having people
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT school, COUNT(DISTINCT person) AS n FROM census GROUP BY school HAVING n > 49
----
answered
====
-- case: having a share of a key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT school, COUNT(*) FROM census GROUP BY school HAVING (COUNT(*) / CAST(school AS INTEGER)) > 10
----
answered
====
-- case: having swapped names
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- extra: 6
SELECT school AS sex, sex AS school, COUNT(*) AS n FROM census GROUP BY census.sex, census.school HAVING census.school > 2
----
answered
====
-- case: a having clause that names no key
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT COUNT(*) FROM census GROUP BY wedded HAVING SUM(age) > 1000
----
answered
====
-- case: a having clause over no groups
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
SELECT COUNT(*) AS n FROM census HAVING COUNT(*) > 3
----
answered
====
-- case: a having clause with a raw column
-- from: SmartNoise SDK, sql/tests/query/test_having.py and test_having_expressions.py
-- reason: rows
SELECT school * 2 AS s, SUM(age) AS g FROM census GROUP BY school HAVING (5 + (earned * 0.01)) > g
----
refused: PrivacyError: earned must be a group or be inside an
====
-- case: in order of a count, falling
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT COUNT(*) AS c, wedded AS m FROM census GROUP BY wedded ORDER BY c DESC
----
answered
====
-- case: in order of a count
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT COUNT(*) AS c, wedded AS m FROM census GROUP BY wedded ORDER BY c
----
answered
====
-- case: in order of a multiple
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT COUNT(*) * 5 AS c, wedded AS m FROM census GROUP BY wedded ORDER BY c DESC
----
answered
====
-- case: the ten first by key and sum
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT age, sex, SUM(earned) AS s FROM census WHERE earned IS NOT NULL AND age IS NOT NULL GROUP BY age, sex ORDER BY age, s, sex DESC LIMIT 10
----
answered
====
-- case: the ten first having a key
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
-- plain: SELECT age, sex, SUM(earned) AS s, SUM(age) AS a FROM census WHERE earned IS NOT NULL AND age IS NOT NULL GROUP BY age, sex HAVING NOT sex AND s > 1000 ORDER BY s, sex DESC LIMIT 10
SELECT age, sex, SUM(earned) AS s, SUM(age) AS a FROM census WHERE earned IS NOT NULL GROUP BY age, sex HAVING NOT (sex = TRUE) AND s > 1000 ORDER BY s, sex DESC LIMIT 10
----
answered
====
-- case: keys in order of a cast
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT school FROM census GROUP BY school ORDER BY CAST(school AS VARCHAR) DESC
----
answered
====
-- case: keys in order of what is no key
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
-- reason: rows
SELECT school FROM census GROUP BY school ORDER BY sex DESC
----
refused: PrivacyError: sex must be a group or be inside an
====
-- case: order by an expression of an alias
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
-- plain: SELECT gender, school FROM (SELECT DISTINCT sex AS gender FROM census), (SELECT DISTINCT school FROM census) ORDER BY gender, school
SELECT sex AS gender, school FROM census GROUP BY sex, school ORDER BY (CAST(gender AS INTEGER) * -1) DESC, school
----
answered
====
-- case: order by a key under another name
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
-- plain: SELECT gender, school FROM (SELECT DISTINCT sex AS gender FROM census), (SELECT DISTINCT school FROM census) ORDER BY gender DESC, school
SELECT sex AS gender, school FROM census GROUP BY sex, school ORDER BY sex DESC, school
----
answered
====
-- case: order by a count of a column
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
-- ties: yes
SELECT school, COUNT(DISTINCT person) AS n FROM census GROUP BY school ORDER BY COUNT(person) DESC
----
answered
====
-- case: the twenty first by keys
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT age, wedded, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE age IS NOT NULL AND earned IS NOT NULL GROUP BY age, wedded ORDER BY wedded, age DESC LIMIT 20
----
answered
====
-- case: the two first means
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT school, AVG(age) AS age FROM census GROUP BY school ORDER BY age DESC LIMIT 2
----
answered
====
-- case: four of the groups
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
SELECT school, COUNT(*) AS n FROM census GROUP BY school ORDER BY 1 LIMIT 4
----
answered
====
-- case: most earned first
-- from: SmartNoise SDK, sql/tests/query/test_order_by.py, test_order_by_expressions.py and test_top.py
-- plain: SELECT age, wedded, COUNT(*) AS n, SUM(earned) AS e FROM census WHERE NOT age IS NULL GROUP BY age, wedded ORDER BY e DESC LIMIT 10
-- seen: person
SELECT age, wedded, COUNT(*) AS n, SUM(earned) AS e FROM census GROUP BY age, wedded ORDER BY e DESC NULLS LAST LIMIT 10
----
answered
====
-- case: keys of two kinds and a distinct sum
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT building, mended, SUM(DISTINCT crashes), AVG(heat), COUNT(ALL machine) FROM crashes GROUP BY building, mended
----
answered
====
-- case: sums where mended
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT building, SUM(crashes) AS t, AVG(crashes) AS a, AVG(heat) FROM crashes WHERE mended = TRUE GROUP BY building
----
answered
====
-- case: arithmetic about a mean
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT 1 + AVG(heat), 7 * SUM(crashes) * 101.11 FROM crashes
----
answered
====
-- case: logarithm of a count
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT LN(COUNT(*)) FROM crashes
----
answered
====
-- case: functions of a count
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT CEIL(COUNT(*)), LOG2(COUNT(*)), SQRT(COUNT(*)) FROM crashes
----
answered
====
-- case: a function of a count that has no value
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
-- plain: SELECT TRUE
SELECT ISNAN(ATANH(COUNT(*))) FROM crashes
----
answered
====
-- case: degrees
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT DEGREES(AVG(heat)) FROM crashes
----
answered
====
-- case: a case over a sum
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT CASE WHEN SUM(crashes) > 1 THEN 'many' ELSE 'few' END AS c FROM crashes
----
answered
====
-- case: buckets by a case
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT CASE WHEN heat < 18 THEN 1 WHEN heat >= 18 AND heat < 22 THEN 2 WHEN heat >= 22 AND heat < 24 THEN 3 ELSE 4 END AS bucket, COUNT(*) FROM crashes GROUP BY bucket
----
answered
====
-- case: if instead of case
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT IF(heat > 20, 'Big', 'Small') AS size, COUNT(*) FROM crashes GROUP BY size
----
answered
====
-- case: rounded keys
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT ROUND(heat, 0) AS h, COUNT(*) FROM crashes GROUP BY h
----
answered
====
-- case: rows of one building
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
-- reason: unit
SELECT machine FROM crashes WHERE building LIKE 'n%'
----
refused: PrivacyError: machine is the privacy unit: it is never released.
====
-- case: a machine alone
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
-- reason: unit
SELECT machine, COUNT(machine) AS n FROM crashes GROUP BY machine
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: counts by machine without its name
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
-- reason: unit
SELECT COUNT(machine) AS n FROM crashes GROUP BY machine
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: nested subqueries of a join
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT AVG(heat) FROM (SELECT * FROM (SELECT * FROM (SELECT machine, heat, crashes FROM machines JOIN crashes USING (machine))))
----
answered
====
-- case: nested subqueries without the unit
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT 3 * COUNT(heat) FROM (SELECT * FROM (SELECT heat, crashes FROM machines JOIN crashes USING (machine)))
----
answered
====
-- case: makers of a join
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT maker, COUNT(*), SUM(crashes) FROM machines m JOIN crashes c ON m.machine = c.machine GROUP BY maker
----
answered
====
-- case: a sum of means of each building
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT SUM(avg_heat) FROM (SELECT AVG(heat) AS avg_heat FROM crashes GROUP BY building) AS s
----
answered
====
-- case: a sum of means, grouped again
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT mended, SUM(avg_heat) FROM (SELECT building, mended, AVG(heat) AS avg_heat FROM crashes GROUP BY building, mended) AS s GROUP BY mended
----
answered
====
-- case: a count of the alias of a table
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT COUNT(t.machine), COUNT(*) FROM crashes AS t
----
answered
====
-- case: quoted names
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT "crashes"."building", COUNT(*) FROM "crashes" GROUP BY "crashes"."building"
----
answered
====
-- case: condition on sums of columns
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT COUNT(*) FROM crashes WHERE (5 + (heat * 0.01)) > crashes
----
answered
====
-- case: conditions joined by or and and
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT COUNT(*) FROM crashes WHERE heat < 20 AND crashes > 2 OR crashes >= 5 AND building != 'north'
----
answered
====
-- case: not equal and not in
-- from: SmartNoise SDK, sql/tests/query/queries/parse/*.sql and sql/tests/query/test_types.py
SELECT COUNT(*) FROM crashes WHERE NOT crashes = 3 AND building NOT IN ('east')
----
answered
