-- case: how many members
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(*) FROM members
----
answered
====
-- case: how many minors
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(*) FROM members WHERE age < 18
----
answered
====
-- case: books of minors
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT SUM(books) FROM members WHERE age < 18
----
answered
====
-- case: mean and deviation of books
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT AVG(books), STDDEV(books), VARIANCE(books) FROM members
----
answered
====
-- case: books, clamped
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- plain: SELECT SUM(LEAST(books, 20)) FROM members
SELECT SUM(books, contribution_bounds_per_row => (0, 20)) FROM members
----
answered
====
-- case: quantiles of ages
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT QUANTILE_CONT(age, 0.25) BETWEEN 23 AND 26, MEDIAN(age) BETWEEN 43 AND 46 FROM members
----
answered
====
-- case: extremes of books
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- slack: 0.02
SELECT MIN(books), MAX(books) FROM members
----
answered
====
-- case: by education
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT education, COUNT(*) FROM members GROUP BY education
----
answered
====
-- case: by education and gender
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT education, gender, COUNT(*) FROM members GROUP BY education, gender
----
answered
====
-- case: by gender that is declared
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT gender, AVG(age) FROM members GROUP BY gender ORDER BY gender
----
answered
====
-- case: by decade of age
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT age // 10 * 10 AS bin, COUNT(*), AVG(books) FROM members GROUP BY bin ORDER BY bin
----
answered
====
-- case: by bins of a case
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT CASE WHEN age < 18 THEN 'young' WHEN age < 65 THEN 'middle' ELSE 'old' END AS b, COUNT(*) FROM members GROUP BY b
----
answered
====
-- case: by bins with edges of a table
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT b.lo, COUNT(m.id) FROM (VALUES (0, 20), (20, 40), (40, 60), (60, 100)) AS b(lo, hi) LEFT JOIN members m ON m.age >= b.lo AND m.age < b.hi GROUP BY b.lo ORDER BY b.lo
----
answered
====
-- case: a filter and keys
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT education, COUNT(*) FROM members WHERE age > 17 AND education IN ('masters-degree', 'doctorate') GROUP BY education
----
answered
====
-- case: by zip and gender
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT zip, gender, SUM(income) FROM members WHERE income IS NOT NULL GROUP BY zip, gender
----
answered
====
-- case: missing incomes counted
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(*) - COUNT(income), AVG(COALESCE(income, 0)) FROM members
----
answered
====
-- case: incomes without the missing
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT AVG(income), COUNT(income) FROM members WHERE income IS NOT NULL
----
answered
====
-- case: genres lent
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT genre, COUNT(*) FROM loans JOIN books USING (book) GROUP BY genre
----
answered
====
-- case: pages lent by members' education
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: m.id
SELECT m.education, SUM(b.pages) FROM members m JOIN loans l ON m.id = l.id JOIN books b ON l.book = b.book GROUP BY m.education
----
answered
====
-- case: members in at most two books each
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- plain: SELECT 300::HUGEINT
SELECT SUM(c) FROM (SELECT WITH DP OPTIONS (max_groups_contributed = 2) book, COUNT(DISTINCT id) AS c FROM loans GROUP BY book)
----
answered
====
-- case: members who lent
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(DISTINCT id) FROM loans
----
answered
====
-- case: members who lent nothing
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(*) FROM members m WHERE NOT EXISTS (SELECT 1 FROM loans l WHERE l.id = m.id)
----
answered
====
-- case: members who lent nothing by anti join
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(*) FROM members ANTI JOIN loans USING (id)
----
answered
====
-- case: loans of each member
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT AVG(n, contribution_bounds_per_row => (0, 20)) FROM (SELECT id, COUNT(*) AS n FROM loans GROUP BY id)
----
answered
====
-- case: books nobody lent too
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT b.book, COUNT(l.id) FROM books b LEFT JOIN loans l ON b.book = l.book GROUP BY b.book
----
answered
====
-- case: a flat map of days
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- seen: id
SELECT month(day) AS m, COUNT(*), SUM(fine) FROM loans GROUP BY m
----
answered
====
-- case: names
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- reason: rows
SELECT name FROM members
----
refused: PrivacyError: name must be a group or be inside an
====
-- case: upper names
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT COUNT(*) FROM members WHERE upper(name) LIKE 'MEMBER 1%'
----
answered
====
-- case: a parameter
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
-- params: {"low": 30, "g": "male"}
SELECT COUNT(*) FROM members WHERE age >= $low AND gender = $g
----
answered
====
-- case: a share of all
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT gender, n / SUM(n) OVER () FROM (SELECT gender, COUNT(*) AS n FROM members GROUP BY gender) ORDER BY gender
----
answered
====
-- case: a suppressed table
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT education, gender, n FROM (SELECT education, gender, COUNT(*) AS n FROM members GROUP BY education, gender) WHERE n > 10
----
answered
====
-- case: keys joined back
-- from: Tumult Analytics, tutorials 1 to 6 (a library's members)
SELECT a.education, a.n, b.m FROM (SELECT education, COUNT(*) AS n FROM members GROUP BY education) a JOIN (SELECT education, AVG(age) AS m FROM members GROUP BY education) b ON a.education = b.education
----
answered
====
-- case: mean above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT AVG(x) FROM repeated
----
answered
====
-- case: mean of halves above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT AVG(y) FROM repeated
----
answered
====
-- case: deviation above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT STDDEV_POP(x) FROM repeated
----
answered
====
-- case: variance above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT VAR_POP(y) FROM repeated
----
answered
====
-- case: correlation above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
-- slack: 0.01
SELECT CORR(x, y) FROM repeated
----
answered
====
-- case: slope above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
-- slack: 0.01
SELECT REGR_SLOPE(y, x) FROM repeated
----
answered
====
-- case: covariance above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT COVAR_POP(x, y) FROM repeated
----
answered
====
-- case: mean by key above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT k, AVG(x) FROM repeated GROUP BY k ORDER BY k
----
answered
====
-- case: mean of what passes a filter above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT AVG(x) FILTER (WHERE k = 'p') FROM repeated
----
answered
====
-- case: sum over count above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT SUM(x) / COUNT(x) FROM repeated
----
answered
====
-- case: a mean below the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
SELECT AVG(x) FROM repeated WHERE x < 9 AND y < 9
----
answered
====
-- case: count above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
-- plain: SELECT 1000
SELECT COUNT(*) FROM repeated
----
answered
====
-- case: median above the cap
-- from: Tumult Analytics and OpenDP, truncation of rows of an identifier: units that have more rows than the cap, all with the same values
-- plain: SELECT TRUE
SELECT MEDIAN(x) BETWEEN 15 AND 24 FROM repeated
----
answered
====
-- case: visits by weekday
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, COUNT(*) FROM guests GROUP BY weekday ORDER BY weekday
----
answered
====
-- case: visits by hour
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- seen: guest
SELECT hour, COUNT(*) FROM guests GROUP BY hour ORDER BY hour
----
answered
====
-- case: money by weekday
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, SUM(euros) FROM guests GROUP BY weekday ORDER BY weekday
----
answered
====
-- case: mean minutes by weekday
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, AVG(minutes) FROM guests GROUP BY weekday ORDER BY weekday
----
answered
====
-- case: guests by weekday
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, COUNT(DISTINCT guest) FROM guests GROUP BY weekday
----
answered
====
-- case: many numbers by weekday
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- slack: 0.01
SELECT weekday, COUNT(*), SUM(euros), AVG(euros), VAR_POP(euros), COUNT(DISTINCT guest) FROM guests GROUP BY weekday
----
answered
====
-- case: money, clamped to a group
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- plain: SELECT weekday, SUM(LEAST(s, 30)) FROM (SELECT guest, weekday, SUM(euros) AS s FROM guests GROUP BY guest, weekday) GROUP BY weekday
SELECT weekday, SUM(euros, contribution_bounds_per_group => (0, 30)) FROM guests GROUP BY weekday
----
answered
====
-- case: Gaussian noise
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT WITH DP OPTIONS (epsilon = 1e8, delta = 1e-9, noise = GAUSSIAN) weekday, COUNT(*), AVG(minutes) FROM guests GROUP BY weekday
----
answered
====
-- case: the weekend
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT COUNT(*), SUM(euros) FROM guests WHERE weekday IN (6, 7)
----
answered
====
-- case: the weekend by day
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, COUNT(*) FROM guests WHERE weekday IN (6, 7) GROUP BY weekday
----
answered
====
-- case: weekdays above three
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, SUM(euros) FROM guests WHERE weekday > 3 AND weekday <= 6 GROUP BY weekday
----
answered
====
-- case: weekdays of long visits
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, COUNT(*) FROM guests WHERE weekday < 3 AND minutes > 30 GROUP BY weekday
----
answered
====
-- case: a condition on a key or a measure
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT weekday, COUNT(*) FROM guests WHERE weekday = 1 OR minutes > 30 GROUP BY weekday
----
answered
====
-- case: the busiest hours
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- seen: guest
SELECT hour, COUNT(*) AS n FROM guests GROUP BY hour ORDER BY n DESC, hour LIMIT 3
----
answered
====
-- case: a mean of ages
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT AVG(age) FROM members WHERE age BETWEEN 0 AND 100
----
answered
====
-- case: a histogram of ages
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- seen: id
SELECT age, COUNT(*) FROM members GROUP BY age ORDER BY age
----
answered
====
-- case: a histogram over declared values
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT HISTOGRAM(gender) FROM members
----
answered
====
-- case: a mode
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT MODE(education) IN ('none', 'high-school', 'masters-degree', 'doctorate') FROM members
----
refused: PrivacyError: MODE(education) needs public values of education; the policy declares
====
-- case: a covariance
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- slack: 0.02
SELECT COVAR_POP(age, books), COVAR_SAMP(age, books), CORR(age, books) FROM members
----
answered
====
-- case: a regression
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- slack: 0.02
SELECT REGR_SLOPE(books, age), REGR_INTERCEPT(books, age), REGR_R2(books, age) FROM members
----
answered
====
-- case: moments of income
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT SUM(income), AVG(income), VAR_SAMP(income), STDDEV_SAMP(income) FROM members
----
answered
====
-- case: an error bar
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- plain: SELECT 200, TRUE
SELECT n, INTERVAL_LOW(n) <= n AND n <= INTERVAL_HIGH(n) FROM (SELECT COUNT(*) AS n FROM members)
----
answered
====
-- case: a geometric mean, by logarithms
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- slack: 0.01
SELECT EXP(AVG(LN(GREATEST(age, 1)))) AS m FROM members
----
answered
====
-- case: any value
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- reason: rows
SELECT ANY_VALUE(age) FROM members
----
refused: PrivacyError: ANY_VALUE has no noisy form.
====
-- case: a list of all
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- reason: rows
SELECT LIST(age) FROM members
----
refused: PrivacyError: LIST has no noisy form.
====
-- case: text put together
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- reason: rows
SELECT STRING_AGG(name, ',') FROM members
----
refused: PrivacyError: STRING_AGG has no noisy form.
====
-- case: bit and boolean aggregates
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT BOOL_OR(age > 80), BOOL_AND(age > 3) FROM members
----
refused: PrivacyError: BOOL_OR has no noisy form.
====
-- case: arg_max
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- reason: rows
SELECT ARG_MAX(name, income) FROM members
----
refused: PrivacyError: ARG_MAX has no noisy form.
====
-- case: first and last
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- reason: rows
SELECT FIRST(age ORDER BY income) FROM members
----
refused: PrivacyError: FIRST has no noisy form.
====
-- case: approximate distinct
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT APPROX_COUNT_DISTINCT(zip) FROM members
----
answered
====
-- case: median by a wide range
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- plain: SELECT TRUE
SELECT MEDIAN(age, contribution_bounds_per_row => (0, 1000000)) BETWEEN 42 AND 47 FROM members
----
answered
====
-- case: a spread by propose, test, release
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- plain: SELECT TRUE
SELECT s BETWEEN 10 AND 80 OR s IS NULL FROM (SELECT WITH PTR OPTIONS (epsilon = 1000, delta = 1e-6) IQR(age) AS s FROM members)
----
answered
====
-- case: grouped after it is ordered
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
-- reason: fault-duckdb
SELECT education, COUNT(*) FROM members ORDER BY 1 GROUP BY education
----
refused: ParseError: GROUP BY can't stand after ORDER BY.
====
-- case: a release joined back by null keys
-- from: OpenDP and SmartNoise documentation (a census extract), Google's differential-privacy examples (a restaurant), PipelineDP (restaurant visits)
SELECT a.e, a.n, b.m FROM (SELECT NULLIF(education, 'none') AS e, COUNT(*) AS n FROM members GROUP BY e) a JOIN (SELECT NULLIF(education, 'none') AS e, AVG(books) AS m FROM members GROUP BY e) b ON a.e IS NOT DISTINCT FROM b.e
----
answered
====
-- case: a missing key made of declared values
-- from: Tumult Analytics, documentation of key sets and of missing values
-- plain: SELECT NULLIF(gender, 'male') AS g, COUNT(*) FROM members GROUP BY g
SELECT NULLIF(gender, 'male') AS g, COUNT(*) FROM members GROUP BY g
----
answered
====
-- case: a case without else over declared values
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT CASE gender WHEN 'male' THEN 'm' WHEN 'female' THEN 'f' END AS g, COUNT(*) FROM members GROUP BY g
----
answered
====
-- case: a case without else, means
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT CASE WHEN weekday > 5 THEN 'weekend' END AS w, AVG(minutes), SUM(euros) FROM guests GROUP BY w
----
answered
====
-- case: keys of a table with a missing one
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT v.b, COUNT(m.id) FROM (VALUES (1), (NULL)) AS v(b) LEFT JOIN members m ON (m.income IS NULL AND v.b IS NULL) OR m.age < v.b * 30 AND m.income IS NOT NULL GROUP BY v.b
----
answered
====
-- case: a missing key joined back
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT a.g, a.n, v.x FROM (SELECT NULLIF(gender, 'male') AS g, COUNT(*) AS n FROM members GROUP BY g) a JOIN (VALUES (NULL, 1), ('nonbinary', 2)) AS v(g, x) ON a.g IS NOT DISTINCT FROM v.g
----
answered
====
-- case: a missing key of a private column
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT NULLIF(education, 'none') AS e, COUNT(*) FROM members GROUP BY e
----
answered
====
-- case: a condition as a key with three values
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT income > 50000 AS rich, COUNT(*) FROM members GROUP BY rich
----
answered
====
-- case: rows of books that nobody lent
-- from: Tumult Analytics, documentation of key sets and of missing values
-- reason: subquery
SELECT COUNT(*) FROM books b LEFT JOIN loans l ON b.book = l.book WHERE l.book IS NULL
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: rows of books, lent or not
-- from: Tumult Analytics, documentation of key sets and of missing values
-- reason: subquery
SELECT COUNT(*) FROM books b LEFT JOIN loans l ON b.book = l.book
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: rows of books by genre, lent dearly or not
-- from: Tumult Analytics, documentation of key sets and of missing values
-- reason: subquery
SELECT b.genre, COUNT(*) FROM books b LEFT JOIN loans l ON b.book = l.book AND l.fine > 100 GROUP BY b.genre
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: pages of books, lent or not
-- from: Tumult Analytics, documentation of key sets and of missing values
-- reason: subquery
SELECT b.genre, SUM(b.pages) FROM books b LEFT JOIN loans l ON b.book = l.book GROUP BY b.genre
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: rows of books and loans, all of both
-- from: Tumult Analytics, documentation of key sets and of missing values
-- reason: subquery
SELECT COUNT(*) FROM books b FULL JOIN loans l ON b.book = l.book
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: loans of books by a right join
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT COUNT(l.id) FROM loans l RIGHT JOIN books b USING (book)
----
answered
====
-- case: a variance of one row
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT VAR_SAMP(age) FROM members WHERE id = 3
----
answered
====
-- case: the lowest and the highest quantile
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT weekday, QUANTILE_DISC(minutes, 0) >= 9 AND QUANTILE_DISC(minutes, 1) <= 100 FROM guests GROUP BY weekday
----
answered
====
-- case: a threshold of a count before it is shown
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT education, n FROM (SELECT education, COUNT(*) AS n FROM members GROUP BY education) WHERE n >= 50 ORDER BY education
----
answered
====
-- case: a share within a group of a release
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT weekday, COUNT(*) - LAG(COUNT(*), 1, 0) OVER (ORDER BY weekday) FROM guests GROUP BY weekday ORDER BY weekday
----
answered
====
-- case: guests above their weekday's mean
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT COUNT(*) FROM guests g JOIN (SELECT weekday, AVG(euros) AS m FROM guests GROUP BY weekday) a ON g.weekday = a.weekday WHERE g.euros > a.m + 0.01
----
answered
====
-- case: centred by the group's mean
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT AVG(g.euros - a.m, contribution_bounds_per_row => (-50, 50)) FROM guests g JOIN (SELECT weekday, AVG(euros) AS m FROM guests GROUP BY weekday) a ON g.weekday = a.weekday
----
answered
====
-- case: guests of the best weekday
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT COUNT(*) FROM guests WHERE weekday IN (SELECT weekday FROM (SELECT weekday, COUNT(*) AS n FROM guests GROUP BY weekday) WHERE n > 51)
----
answered
====
-- case: one row of each guest
-- from: Tumult Analytics, documentation of key sets and of missing values
-- plain: SELECT 120::HUGEINT
SELECT SUM(n) FROM (SELECT WITH DP OPTIONS (max_rows_contributed = 1) weekday, COUNT(*) AS n FROM guests GROUP BY weekday)
----
answered
====
-- case: one weekday of each guest
-- from: Tumult Analytics, documentation of key sets and of missing values
-- plain: SELECT 120::HUGEINT
SELECT SUM(n) FROM (SELECT WITH DP OPTIONS (max_groups_contributed = 1) weekday, COUNT(DISTINCT guest) AS n FROM guests GROUP BY weekday)
----
answered
====
-- case: joined with the weekdays that are wanted
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT g.weekday, COUNT(*) FROM guests g JOIN (VALUES (1), (2)) AS v(w) ON g.weekday = v.w GROUP BY g.weekday
----
answered
====
-- case: genres that are wanted of all books
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT b.genre, COUNT(l.id) FROM books b LEFT JOIN loans l USING (book) WHERE b.genre <> 'art' GROUP BY b.genre
----
answered
====
-- case: genres of books with a filter on loans
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT b.genre, COUNT(l.id) FROM books b LEFT JOIN loans l USING (book) WHERE l.fine > 0.5 GROUP BY b.genre
----
answered
====
-- case: genres of thick books
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT b.genre, COUNT(l.id) FROM books b LEFT JOIN loans l USING (book) WHERE b.pages > 300 GROUP BY b.genre
----
answered
====
-- case: a mean of a filter that nothing passes
-- from: Tumult Analytics, documentation of key sets and of missing values
SELECT weekday, AVG(minutes) FILTER (WHERE minutes < 0) FROM guests GROUP BY weekday
----
answered
====
-- case: a mean where nothing is left of some groups
-- from: Tumult Analytics, documentation of key sets and of missing values
-- plain: SELECT w, m FROM (VALUES (1, NULL), (2, NULL), (3, NULL), (4, 97.5), (5, 97.5), (6, 97.5), (7, 97.5)) AS t(w, m)
SELECT weekday, AVG(minutes) FROM guests WHERE minutes > 95 AND weekday > 0 GROUP BY weekday
----
answered
====
-- case: members by age group and education, the crossed keys kept
-- from: Tumult Analytics and PipelineDP, tutorials
SELECT k.gender, COUNT(m.id) FROM members m RIGHT JOIN (VALUES ('female'), ('male'), ('nonbinary'), ('unspecified')) AS k(gender) ON m.gender = k.gender GROUP BY k.gender ORDER BY k.gender
----
answered
====
-- case: loans per member in a histogram
-- from: Tumult Analytics and PipelineDP, tutorials
-- seen: id
SELECT n, COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM loans GROUP BY id) AS t GROUP BY n ORDER BY n
----
answered
====
-- case: spending on a day of the week as a share of the week
-- from: Tumult Analytics and PipelineDP, tutorials
-- slack: 0.01
SELECT weekday, SUM(euros) / SUM(SUM(euros)) OVER () AS share FROM guests GROUP BY weekday ORDER BY weekday
----
answered
====
-- case: income between quantiles
-- from: OpenDP, notebooks
SELECT QUANTILE_CONT(income, 0.75) - QUANTILE_CONT(income, 0.25) > 20000 FROM members
----
answered
====
-- case: sum of clamped values by an array of bounds
-- from: OpenDP, notebooks
SELECT SUM(LEAST(GREATEST(income, 1000), 50000)) FROM members WHERE education IN ('masters-degree', 'doctorate')
----
answered
====
-- case: a variance and a mean beside each other
-- from: OpenDP, notebooks
-- slack: 0.01
SELECT AVG(age), VAR_POP(age), STDDEV_SAMP(age) FROM members
----
answered
====
-- case: visits by hour bands of two hours
-- from: PipelineDP, restaurant examples
-- seen: guest
-- slack: 0.01
SELECT hour // 2 * 2 AS from_hour, COUNT(*), AVG(minutes) FROM guests GROUP BY from_hour ORDER BY from_hour
----
answered
