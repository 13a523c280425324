-- section: what an analyst writes

-- answered
SELECT COUNT(*) FROM visits

-- answered
SELECT count(*) AS n, sum(cost) AS total, avg(cost) AS mean FROM visits

-- answered
SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDER BY ward

-- answered
SELECT ward, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 2 DESC LIMIT 2

-- answered
SELECT ward AS w, COUNT(*) AS n FROM visits GROUP BY w ORDER BY n

-- answered
SELECT ward, COUNT(*) n FROM visits GROUP BY ALL ORDER BY ALL

-- answered
FROM visits SELECT ward, COUNT(*) GROUP BY ward

-- answered
FROM visits SELECT COUNT(*)

-- answered
FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) WHERE n > 3

-- answered
WITH v AS (FROM visits WHERE urgent) SELECT COUNT(*) FROM v

-- answered
SELECT COUNT() FROM visits

-- answered
SELECT COUNT(1) FROM visits

-- answered
SELECT COUNT_IF(urgent) FROM visits

-- answered, as: SELECT countif(urgent) FROM visits
SELECT countif(urgent) FROM visits

-- answered
SELECT SUM(cost) FILTER (WHERE urgent) FROM visits

-- answered
SELECT SUM(cost) FILTER (urgent) FROM visits

-- answered
SELECT COUNT(*) FILTER (WHERE ward = 'A') AS a, COUNT(*) FILTER (WHERE ward = 'B') AS b FROM visits

-- answered
SELECT ward, COUNT(*), FROM visits GROUP BY ward,

-- answered
SELECT DISTINCT ward FROM visits

-- answered
SELECT DISTINCT ward, urgent FROM visits ORDER BY ALL

-- refused: SEMI JOIN can't compare intervals like this.
-- hint: compare their lengths in seconds: write EPOCH(v.stay) < EPOCH(TO_DAYS(w.floor)) instead of v.stay < TO_DAYS(w.floor).
SELECT COUNT(*) FROM visits v SEMI JOIN wards w ON v.stay < to_days(w.floor)

-- refused: DISTINCT ON would choose private rows.
-- hint: aggregate in a subquery first, and choose from its answer.
SELECT DISTINCT ON (ward) ward, cost FROM visits ORDER BY cost DESC

-- answered
SELECT ward, COUNT(*) FROM visits GROUP BY ward LIMIT 2 OFFSET 1

-- refused: rows of visits can't be released.
-- hint: try SELECT COUNT(*) FROM visits.
SELECT * FROM visits

-- refused: rows of visits can't be released.
-- hint: try SELECT COUNT(*) FROM visits.
SELECT * FROM visits LIMIT 10

-- refused: rows of visits can't be released.
-- hint: try SELECT COUNT(*) FROM visits.
SELECT * EXCLUDE (cost) FROM visits

-- answered
SELECT COUNT(*) FROM (SELECT * EXCLUDE (cost) FROM visits)

-- answered
SELECT AVG(cost) FROM (SELECT * REPLACE (cost * 2 AS cost) FROM visits)

-- answered
SELECT AVG(price) FROM (SELECT * RENAME (cost AS price) FROM visits)

-- answered
SELECT COUNT(*) FROM (SELECT visits.* FROM visits)

-- refused: cost must be a group or be inside an aggregate.
-- hint: write AVG(cost), or group by it and count the rows.
SELECT COLUMNS('co.*') FROM visits

-- answered
SELECT COUNT(COLUMNS(['ward','urgent'])) FROM visits

-- refused: MIN(visit) needs bounds for visit; the policy declares none.
-- hint: write MIN(visit, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
SELECT MIN(COLUMNS(*)) FROM visits

-- refused: USING SAMPLE can't be used on private rows.
-- hint: aggregate all rows: no sample of them is drawn here.
SELECT COUNT(*) FROM visits USING SAMPLE 10%

-- refused: a sample can't be taken of private rows.
-- hint: aggregate all rows: no sample of them is drawn here.
SELECT COUNT(*) FROM visits TABLESAMPLE 10%

-- refused: USING SAMPLE can't be used on private rows.
-- hint: aggregate all rows: no sample of them is drawn here.
SELECT COUNT(*) FROM (SELECT * FROM visits USING SAMPLE 100 ROWS)

-- refused: PIVOT without GROUP BY has a row for each value of all other columns, and visit tells people apart.
-- hint: write (SELECT ward FROM visits) instead of visits, for one row.
PIVOT visits ON ward USING COUNT(*)

-- answered
SELECT * FROM (PIVOT visits ON ward USING COUNT(*) GROUP BY urgent)

-- refused: the policy declares no value '' for ward.
-- hint: for the rows outside of the declared values, write ward NOT IN ('A', 'B', 'C', 'D').
SELECT * FROM (PIVOT visits ON ward IN ('A', '') USING COUNT(*) GROUP BY urgent)

-- refused: the columns of a PIVOT must be listed.
-- hint: list the values of ward that become columns, in parentheses after it and the word in.
PIVOT (SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL) ON ward USING SUM(n)

-- answered
SELECT * FROM (SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL) PIVOT (SUM(n) FOR ward IN ('A','B'))

-- answered
FROM (SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL) PIVOT (SUM(n) FOR ward IN ('A','B'))

-- answered
SELECT * FROM (SELECT COUNT(*) AS a, SUM(cost) AS b FROM visits) UNPIVOT (v FOR k IN (a, b))

-- answered
UNPIVOT (SELECT COUNT(*) AS a, COUNT(cost) AS b FROM visits) ON a, b INTO NAME k VALUE v

-- refused: UNPIVOT puts these into one column, and they are DECIMAL(10,2) and DOUBLE.
-- hint: cast them to one type in a subquery, and unpivot that.
UNPIVOT visits ON cost, score INTO NAME k VALUE v

-- answered
SELECT COUNT(*) FROM visits ASOF JOIN months ON visits.day >= months.month

-- refused: POSITIONAL joins match rows by their neighbours, which belong to others.
-- hint: join on equal columns.
SELECT COUNT(*) FROM visits POSITIONAL JOIN wards

-- answered
SELECT COUNT(*) FROM visits WHERE code IS NOT DISTINCT FROM '2'

-- answered
SELECT COUNT(*) FROM visits WHERE code IS DISTINCT FROM NULL

-- answered
SELECT SUM(score::INT) FROM visits

-- answered
SELECT SUM(CAST(score AS INTEGER)) FROM visits

-- answered
SELECT SUM(TRY_CAST(code AS INTEGER), contribution_bounds_per_row => (0, 4)) FROM visits

-- answered
SELECT SUM(CAST(code AS INTEGER), contribution_bounds_per_row => (0, 4)) FROM visits

-- answered
SELECT date_part('month', day) AS m, COUNT(*) FROM visits GROUP BY m

-- answered
SELECT strftime(day, '%Y-%m') AS m, COUNT(*) FROM visits GROUP BY m

-- answered
SELECT strftime('%Y-%m', day) AS m, COUNT(*) FROM visits GROUP BY m

-- answered
SELECT date_trunc('month', day) AS m, COUNT(*) FROM visits GROUP BY m ORDER BY m

-- answered, as: SELECT DATE_TRUNC('MONTH', day) AS m, COUNT(*) FROM visits GROUP BY m
SELECT DATE_TRUNC(day, MONTH) AS m, COUNT(*) FROM visits GROUP BY m ORDER BY m

-- answered
SELECT year(day) y, month(day) m, COUNT(*) FROM visits GROUP BY ALL

-- answered
SELECT EXTRACT(DOW FROM day) AS d, COUNT(*) FROM visits GROUP BY d

-- answered
SELECT EXTRACT(DAYOFWEEK FROM day) AS d, COUNT(*) FROM visits GROUP BY d

-- refused: GROUP BY h means the column h, not the item of that name.
-- hint: write 1, its place in the list, or give it another name.
SELECT hour(seen) AS h, COUNT(*) FROM visits GROUP BY h ORDER BY h

-- answered
SELECT month, COUNT(visit) FROM visits RIGHT JOIN months ON date_trunc('month', day) = month GROUP BY month

-- answered
SELECT COUNT(*) FROM visits WHERE day BETWEEN '2024-02-01' AND '2024-03-01'

-- answered
SELECT COUNT(*) FROM visits WHERE day >= DATE '2024-02-01' AND day < DATE '2024-02-01' + INTERVAL 1 MONTH

-- answered
SELECT COUNT(*) FROM visits WHERE day > '2024-02-01'::DATE - INTERVAL '3 days'

-- answered
SELECT COUNT(*) FROM visits WHERE seen >= '2024-02-01' AND seen < '2024-02-02 12:00'

-- answered
SELECT COUNT(*) FROM visits WHERE regexp_matches(doctor, '^C')

-- answered
SELECT COUNT(*) FROM visits WHERE doctor LIKE '%ob%' OR doctor ILIKE 'cat%'

-- refused: ~ means the whole text in one version of DuckDB and a part of it in another.
-- hint: write regexp_full_match(doctor, 'b.*y'), or regexp_matches(doctor, 'b.*y').
SELECT COUNT(*) FROM visits WHERE doctor ~ 'b.*y'

-- answered
SELECT upper(trim(doctor)) AS d, COUNT(*) FROM visits GROUP BY d

-- answered
SELECT split_part(trim(doctor), ' ', 1) AS d, COUNT(*) FROM visits GROUP BY d

-- answered
SELECT COUNT(*) FROM visits WHERE tags[1] = 'x0'

-- answered
SELECT tags[1] AS t, COUNT(*) FROM visits GROUP BY t

-- answered
SELECT COUNT(*) FROM visits WHERE list_contains(tags, 'y')

-- answered
SELECT COUNT(*) FROM visits WHERE 'x1' IN tags

-- answered
SELECT COUNT(*) FROM visits WHERE 'x1' = ANY(tags)

-- answered
SELECT SUM(len(tags), contribution_bounds_per_row => (0, 5)) FROM visits

-- answered
SELECT address.city, COUNT(*) FROM visits GROUP BY address.city

-- answered
SELECT address['city'] AS c, COUNT(*) FROM visits GROUP BY c

-- answered
SELECT visits.address.zip AS z, COUNT(*) FROM visits GROUP BY 1

-- answered
SELECT unnest(tags) AS t, COUNT(*) FROM visits GROUP BY t

-- answered
SELECT t, COUNT(*) FROM (SELECT unnest(tags) AS t FROM visits) GROUP BY t

-- answered
SELECT t, COUNT(*) FROM visits, unnest(tags) AS u(t) GROUP BY t

-- answered
SELECT t, COUNT(*) FROM visits CROSS JOIN UNNEST(tags) AS u(t) GROUP BY t

-- answered
SELECT COUNT(*) FROM visits v, LATERAL (SELECT v.cost * 2 AS c2) l WHERE c2 > 100

-- answered
SELECT AVG(c2) FROM visits v, LATERAL (SELECT v.cost * 2 AS c2) AS l

-- answered
SELECT AVG(c2) FROM visits v, (SELECT v.cost * 2 AS c2) AS l

-- answered
SELECT AVG(c2) FROM visits v CROSS JOIN LATERAL (SELECT v.cost / 2 AS c2) AS l

-- answered
SELECT COUNT(*), AVG(f) FROM visits v, LATERAL (SELECT floor AS f FROM wards w WHERE w.ward = v.ward) l

-- refused: name the columns of a LATERAL.
-- hint: write the names of its columns instead of the star.
SELECT COUNT(*) FROM visits v JOIN LATERAL (SELECT * FROM wards w WHERE w.ward = v.ward) l ON TRUE

-- refused: LATERAL looks at public rows, without aggregates, here.
-- hint: join the table, or put the subquery into the list of columns.
SELECT COUNT(*) FROM visits v LEFT JOIN LATERAL (SELECT COUNT(*) AS k FROM tests t WHERE t.visit = v.visit) l ON TRUE WHERE k > 1

-- answered
SELECT COUNT(*) FROM (patients p JOIN visits v ON p.patient = v.patient) JOIN wards w ON v.ward = w.ward

-- answered
SELECT COUNT(*) FROM (visits v JOIN wards w USING (ward))

-- answered
SELECT COUNT(*) FROM patients p JOIN (visits v JOIN tests t USING (visit)) ON p.patient = v.patient

-- answered
SELECT wing, COUNT(*) FROM visits v LEFT JOIN (wards w JOIN months m ON m.month = DATE '2024-01-01') ON v.ward = w.ward GROUP BY wing

-- answered, as: SELECT ward, COUNT(*) FROM visits GROUP BY ward
SELECT `ward`, COUNT(*) FROM `visits` GROUP BY `ward`

-- answered, as: SELECT COUNT(DISTINCT patient) FROM visits
SELECT APPROX_COUNT_DISTINCT(patient) FROM visits

-- answered, as: SELECT COUNT(DISTINCT ward) FROM visits
SELECT approx_count_distinct(ward) FROM visits

-- answered, as: SELECT QUANTILE_DISC(cost, [0, 1/3, 2/3, 1]) FROM visits
SELECT APPROX_QUANTILES(cost, 3) FROM visits

-- answered
SELECT approx_quantile(cost, 0.5) FROM visits

-- answered
SELECT median(cost), quantile_cont(cost, 0.25), quantile_disc(cost, 0.9) FROM visits

-- answered
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY cost) FROM visits

-- answered
SELECT quantile_cont(cost, [0.25, 0.5, 0.75]) FROM visits

-- answered
SELECT quantile(cost, 0.5) FROM visits

-- answered
SELECT mode(ward) FROM visits

-- refused: ANY_VALUE has no noisy form.
-- hint: write SELECT ward, COUNT(*) FROM visits GROUP BY ward: it counts how often each value occurs.
SELECT ANY_VALUE(ward) FROM visits

-- refused: FIRST has no noisy form.
-- hint: write SELECT ward, COUNT(*) FROM visits GROUP BY ward: it counts how often each value occurs.
SELECT first(ward) FROM visits

-- refused: ARG_MAX has no noisy form.
-- hint: write SELECT ward, AVG(cost) FROM visits GROUP BY ward ORDER BY 2 DESC LIMIT 1: the row of an extreme is one person's.
SELECT arg_max(ward, cost) FROM visits

-- refused: STRING_AGG has no noisy form.
-- hint: write SELECT ward, COUNT(*) FROM visits GROUP BY ward: it counts how often each value occurs.
SELECT string_agg(ward, ',') FROM visits

-- refused: LIST has no noisy form.
-- hint: write SELECT ward, COUNT(*) FROM visits GROUP BY ward: it counts how often each value occurs.
SELECT list(ward) FROM visits

-- refused: ARRAY_AGG has no noisy form.
-- hint: write SELECT ward, COUNT(*) FROM visits GROUP BY ward: it counts how often each value occurs.
SELECT array_agg(ward) FROM visits

-- refused: BOOL_AND has no noisy form.
-- hint: write COUNT_IF(NOT urgent) <= 0: the noisy count may be compared freely.
SELECT bool_and(urgent), bool_or(urgent) FROM visits

-- refused: PRODUCT has no noisy form.
-- hint: write SELECT WITH SUBSAMPLE instead of SELECT: it takes this aggregate, on blocks of privacy units.
SELECT product(cost) FROM visits

-- refused: MAD has no noisy form.
-- hint: write SELECT WITH SUBSAMPLE instead of SELECT: it takes this aggregate, on blocks of privacy units.
SELECT mad(cost) FROM visits

-- refused: a query inside SUBSAMPLE must return one row.
-- hint: aggregate to one row, or order the rows and keep the first.
SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10)) mad(cost) OVER () FROM visits

-- refused: aggregates inside SUBSAMPLE are exact: they take no named arguments.
-- hint: leave out the arguments with names.
SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10)) AVG(cost, epsilon => 1) FROM (SELECT cost FROM visits)

-- refused: SKEWNESS has no noisy form.
-- hint: write SELECT WITH SUBSAMPLE instead of SELECT WITH DP: it takes this aggregate, on blocks of privacy units.
SELECT WITH DP skewness(cost) FROM visits

-- refused: SKEWNESS is not known with STABLE.
-- hint: SELECT WITH SUBSAMPLE takes any query; STABLE knows IQR, TRIMMED_MEAN, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MODE.
SELECT WITH STABLE skewness(cost) FROM visits

-- answered
SELECT SUM(DISTINCT cost) FROM visits

-- refused: AVG(DISTINCT ...) has no bounded sensitivity here.
-- hint: write AVG(cost), or COUNT(DISTINCT cost).
SELECT AVG(DISTINCT cost) FROM visits

-- answered
SELECT COUNT(DISTINCT cost) FROM visits

-- answered
SELECT COUNT(DISTINCT ward), COUNT(DISTINCT patient) FROM visits

-- answered
SELECT COUNT(DISTINCT (ward, urgent)) FROM visits

-- answered
SELECT COUNT(DISTINCT ward || code) FROM visits

-- answered
SELECT var_pop(cost), var_samp(cost), variance(cost) FROM visits

-- answered
SELECT stddev(cost), stddev_pop(cost), stddev_samp(cost) FROM visits

-- answered
SELECT min(cost), max(cost) FROM visits

-- answered
SELECT min(day), max(day) FROM visits

-- answered
SELECT avg(day) FROM visits

-- answered
SELECT corr(cost, score), covar_pop(cost, score), covar_samp(cost, score) FROM visits

-- answered
SELECT regr_slope(cost, score) FROM visits

-- answered
SELECT sum(u8), sum(h), sum(small) FROM visits

-- answered
SELECT avg(u8), avg(h), avg(small) FROM visits

-- answered
SELECT sum(fl, contribution_bounds_per_row => (0, 7)), sum(s16, contribution_bounds_per_row => (0, 100)), sum(u64, contribution_bounds_per_row => (0, 1000)) FROM visits

-- answered
SELECT min(u8), max(h), min(small), max(cost) FROM visits

-- answered
SELECT sum(urgent) FROM visits

-- answered
SELECT avg(urgent::INT) FROM visits

-- answered
SELECT sum(CASE WHEN urgent THEN 1 ELSE 0 END) FROM visits

-- answered
SELECT sum(if(urgent, cost, 0)) FROM visits

-- answered
SELECT feeling, COUNT(*) FROM visits GROUP BY feeling

-- answered
SELECT COUNT(*) FROM visits WHERE feeling = 'sad'

-- answered
SELECT COUNT(*) FROM visits WHERE feeling > 'sad'

-- answered
SELECT COUNT(*) FROM visits WHERE uid = '00000000-0000-0000-0000-000000000000'

-- answered
SELECT COUNT(DISTINCT uid) FROM visits

-- answered
SELECT COUNT(uid) FROM visits

-- answered
SELECT small, COUNT(*) FROM visits GROUP BY small

-- answered
SELECT round(score) AS s, COUNT(*) FROM visits GROUP BY s

-- answered
SELECT floor(cost / 100) * 100 AS bucket, COUNT(*) FROM visits GROUP BY bucket HAVING COUNT(*) > 0

-- answered
SELECT (cost // 100)::INT AS bucket, COUNT(*) FROM visits GROUP BY bucket HAVING COUNT(*) > 0

-- answered
SELECT cost::INT // 100 AS bucket, COUNT(*) FROM visits GROUP BY bucket HAVING COUNT(*) > 0

-- refused: equal values of INTERVAL may look different, so they make no stable groups.
-- hint: group by a number made of it, such as the whole seconds of an interval.
SELECT stay, COUNT(*) FROM visits GROUP BY stay

-- answered
SELECT tags, COUNT(*) FROM visits GROUP BY tags

-- answered
SELECT address, COUNT(*) FROM visits GROUP BY address

-- section: more of it, statements that are none, slips

-- refused: PIVOT without GROUP BY has a row for each value of all other columns, and visit tells people apart.
-- hint: write (SELECT ward FROM visits) instead of visits, for one row.
SELECT * FROM visits PIVOT (COUNT(*) FOR ward IN ('A','B'))

-- answered
SELECT ward, COUNT(*), SUM(COUNT(*)) OVER () FROM visits GROUP BY ward

-- answered
SELECT ward, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS pct FROM visits GROUP BY ward

-- refused: QUALIFY needs a window function.
-- hint: write HAVING instead of QUALIFY.
SELECT ward, COUNT(*) n FROM visits GROUP BY ward QUALIFY n > 249

-- answered
SELECT ward, COUNT(*) n FROM visits GROUP BY ward HAVING n > 249

-- answered
SELECT ward, COUNT(*) n FROM visits GROUP BY ward HAVING AVG(cost) > 100 ORDER BY AVG(cost) DESC

-- answered
SELECT ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)

-- answered
SELECT ward, urgent, COUNT(*) FROM visits GROUP BY CUBE (ward, urgent)

-- answered
SELECT ward, urgent, COUNT(*) FROM visits GROUP BY GROUPING SETS ((ward), (urgent), ())

-- answered
SELECT WITH DP OPTIONS (consistent = TRUE) ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)

-- answered
SELECT COALESCE(ward, 'all') w, COUNT(*) FROM visits GROUP BY ROLLUP (ward)

-- answered, as: SELECT ward, COUNT(*) FROM visits GROUP BY ward
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e6, delta=1e-9, max_groups_contributed=4, privacy_unit_column=patient) ward, COUNT(*) FROM visits GROUP BY ward

-- answered, as: SELECT ward, COUNT(*) FROM visits GROUP BY ward
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e6, delta=1e-9, max_groups_contributed=NULL, privacy_unit_column=patient) ward, COUNT(*) FROM visits GROUP BY ward

-- answered, as: SELECT ward, COUNT(*) FROM visits GROUP BY ward
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1e6, delta=1e-9, kappa=4) ward, ANON_COUNT(*) FROM visits GROUP BY ward

-- answered, as: SELECT w.ward, COUNT(v.visit) FROM visits v RIGHT OUTER JOIN (VALUES ('A'),('B'),('E')) AS w(ward) ON v.ward = w.ward GROUP BY w.ward
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e6, delta=1e-9, max_groups_contributed=4, group_selection_strategy=PUBLIC_GROUPS) w.ward, COUNT(v.visit) FROM visits v RIGHT OUTER JOIN UNNEST(['A','B','E']) AS w(ward) ON v.ward = w.ward GROUP BY w.ward

-- answered, as: SELECT TRY_CAST(code AS INT) c, COUNT(*) FROM visits GROUP BY c
SELECT SAFE_CAST(code AS INT64) c, COUNT(*) FROM visits GROUP BY c

-- answered, as: SELECT SUM(cost/2) FROM visits
SELECT SUM(SAFE_DIVIDE(cost, 2), contribution_bounds_per_row => (0, 300)) FROM visits

-- answered, as: SELECT COUNT_IF(cost > 100) FROM visits
SELECT COUNTIF(cost > 100) FROM visits

-- answered
SELECT IFNULL(code, 'none') c, COUNT(*) FROM visits GROUP BY c

-- answered, as: SELECT strftime(day, '%Y-%m') m, COUNT(*) FROM visits GROUP BY m
SELECT FORMAT_DATE('%Y-%m', day) m, COUNT(*) FROM visits GROUP BY m

-- answered, as: SELECT COUNT(*) FROM visits WHERE day >= DATE '2024-06-01' - INTERVAL 30 DAY
SELECT COUNT(*) FROM visits WHERE day >= DATE_SUB(DATE '2024-06-01', INTERVAL 30 DAY)

-- answered, as: SELECT COUNT(*) FROM visits WHERE DATE_DIFF('day', day, DATE '2024-06-01') > 30
SELECT COUNT(*) FROM visits WHERE DATE_DIFF(DATE '2024-06-01', day, DAY) > 30

-- answered, as: SELECT SUM(cost)/COUNT(*) FROM visits
SELECT SAFE_DIVIDE(SUM(cost), COUNT(*)) FROM visits

-- answered, as: SELECT cost > 100 AS big, COUNT(*) FROM visits GROUP BY big UNION ALL SELECT NULL, 0
SELECT CAST(cost AS FLOAT64) > 100 AS big, COUNT(*) FROM visits GROUP BY big

-- answered, as: SELECT CAST(urgent AS VARCHAR) u, COUNT(*) FROM visits GROUP BY u
SELECT CAST(urgent AS STRING) u, COUNT(*) FROM visits GROUP BY u

-- refused: LOGICAL_OR has no noisy form.
-- hint: write COUNT_IF(urgent) > 0: the noisy count may be compared freely.
SELECT LOGICAL_OR(urgent) FROM visits

-- answered
SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward UNION ALL SELECT 'all', COUNT(*) FROM visits

-- answered
SELECT SUM(x) AS s, COUNT(y) AS n, SUM(y * 1000) AS big FROM (SELECT patient, cost AS x, 0 AS y FROM visits UNION ALL SELECT patient, 0, CASE WHEN urgent THEN 1 END FROM visits)

-- answered, as: SELECT COUNT(*) AS n FROM visits UNION ALL SELECT COUNT(*) FROM patients
SELECT WITH DP OPTIONS (epsilon = 1e5) COUNT(*) AS n FROM visits UNION ALL SELECT WITH DP OPTIONS (epsilon = 1e5) COUNT(*) FROM patients

-- answered
SELECT COUNT(*) FROM visits UNION SELECT COUNT(*) FROM patients

-- refused: ward must be a group or be inside an aggregate.
-- hint: write COUNT(DISTINCT ward), or group by it and count the rows.
SELECT ward FROM visits EXCEPT SELECT ward FROM wards

-- refused: ward must be a group or be inside an aggregate.
-- hint: write COUNT(DISTINCT ward), or group by it and count the rows.
SELECT ward FROM visits INTERSECT SELECT ward FROM wards

-- refused: ward must be a group or be inside an aggregate.
-- hint: write COUNT(DISTINCT ward), or group by it and count the rows.
SELECT ward FROM visits UNION ALL SELECT ward FROM wards

-- refused: an answer is not written into a table.
-- hint: a name and << before a query keep its answer in the notebook.
INSERT INTO t SELECT WITH DP OPTIONS (epsilon=1) COUNT(*) FROM visits

-- refused: CREATE VIEW is not a statement of dpsql.
-- hint: write WITH v AS (SELECT ward FROM visits) SELECT COUNT(*) FROM v.
CREATE VIEW v AS SELECT ward FROM visits

-- refused: ward must be a group or be inside an aggregate.
-- hint: write COUNT(DISTINCT ward), or group by it and count the rows.
CREATE TEMP TABLE v AS SELECT ward FROM visits

-- refused: CREATE is not a statement of dpsql.
-- hint: a name and << before a query keep its answer; within a statement, a query may have a name too. A synthetic table is created of rows that look like private ones.
CREATE MACRO f(x) AS x + 1

-- refused: COPY is not a statement of dpsql.
-- hint: ask the query alone, and write the data frame of its answer to a file.
COPY (SELECT COUNT(*) FROM visits) TO 'out.csv'

-- refused: DESCRIBE takes a table's name.
-- hint: write EXPLAIN instead of DESCRIBE.
DESCRIBE SELECT COUNT(*) FROM visits

-- refused: there is no SHOW ALL.
-- hint: write SHOW TABLES.
SHOW ALL TABLES

-- refused: there is no SHOW visits.
-- hint: write DESCRIBE visits, or SHOW BUDGET, SHOW LEDGER, SHOW POLICY, SHOW TABLES, SHOW TRADEOFF, SHOW GROUPS, SHOW ACCOUNTANTS, SHOW RELEASES.
SHOW visits

-- refused: SUMMARIZE takes a table's name.
-- hint: write EXPLAIN instead of SUMMARIZE.
SUMMARIZE SELECT COUNT(*) FROM visits

-- refused: PRAGMA is not a statement of dpsql.
-- hint: dpsql only answers questions: write a query.
PRAGMA table_info('visits')

-- refused: SET is not a statement of dpsql.
-- hint: the only setting is intervals, by which their ends are columns of the answers.
SET threads = 4

-- refused: USE is not a statement of dpsql.
-- hint: dpsql only answers questions: write a query.
USE main

-- refused: CALL is not a statement of dpsql.
-- hint: dpsql only answers questions: write a query.
CALL pragma_version()

-- refused: BEGIN is not a statement of dpsql.
-- hint: dpsql only answers questions: write a query.
BEGIN

-- refused: PREPARE is not a statement of dpsql.
-- hint: write the query with parameters, and give their values with it.
PREPARE q AS SELECT COUNT(*) FROM visits

-- refused: rows of visits can't be released.
-- hint: try SELECT COUNT(*) FROM visits.
TABLE visits

-- answered
VALUES (1), (2)

-- answered
SELECT 1

-- answered
SELECT 1 + 1 AS x, 'a' || 'b' AS y

-- answered
SELECT * FROM wards

-- answered
SELECT * EXCLUDE (wing) FROM wards

-- answered
FROM wards

-- answered
SELECT wing, COUNT(*) FROM wards GROUP BY wing

-- answered
SELECT * FROM wards JOIN months ON floor = month(month)

-- answered
SELECT * FROM range(3)

-- answered
SELECT * FROM generate_series(1, 3)

-- refused: x.csv can't be read here: tables come from the policy.
-- hint: ask the data owner to name the data in the policy.
SELECT * FROM read_csv('x.csv')

-- refused: there is no table x.parquet.
-- hint: there is patients, visits, tests, people, wards, months.
SELECT * FROM 'x.parquet'

-- refused: there is no table information_schema.tables.
-- hint: write SHOW TABLES for the tables, and DESCRIBE with a table's name for its columns.
SELECT * FROM information_schema.tables

-- refused: duckdb_tables can't be read here: tables come from the policy.
-- hint: ask the data owner to name the data in the policy.
SELECT * FROM duckdb_tables()

-- refused: there is no table sqlite_master.
-- hint: there is patients, visits, tests, people, wards, months.
SELECT * FROM sqlite_master

-- answered
SELECT COUNT(*) FROM main.visits WHERE main.visits.cost > 9

-- answered
SELECT COUNT(*) FROM memory.main.visits WHERE visits.cost > 9 AND memory.main.visits.ward = 'A'

-- answered
SELECT main.wards.ward, COUNT(*) FROM main.visits JOIN main.wards ON main.visits.ward = main.wards.ward GROUP BY main.wards.ward

-- answered
WITH visits AS (SELECT * FROM main.visits WHERE cost > 9) SELECT COUNT(*) FROM visits

-- refused: visits is also the name of a relation of this statement.
-- hint: give the named query or the kept result another name than visits.
WITH visits AS (SELECT 1 AS x) SELECT COUNT(*) FROM main.visits

-- refused: there is no table main.visits.
-- hint: did you mean visits?
SELECT COUNT(*) FROM "main.visits"

-- refused: there is no table memory.main.visits.
-- hint: did you mean visits?
SELECT COUNT(*) FROM memory."main.visits"

-- refused: there is no table other.visits.
-- hint: did you mean visits?
SELECT COUNT(*) FROM other.visits

-- answered
SELECT COUNT(*) FROM Visits

-- answered
SELECT COUNT(*) FROM "VISITS" WHERE "Ward" = 'A'

-- refused: there is no table visit.
-- hint: did you mean visits?
SELECT COUNT(*) FROM visit

-- refused: there is no column wrd here.
-- hint: did you mean ward?
SELECT COUNT(*) FROM visits WHERE wrd = 'A'

-- refused: there is no column A here.
-- hint: text needs single quotes: write 'A'.
SELECT COUNT(*) FROM visits WHERE ward = A

-- refused: there is no column A here.
-- hint: text needs single quotes: write 'A'.
SELECT COUNT(*) FROM visits WHERE ward = "A"

-- refused: the comparison combines DECIMAL(10,2) with VARCHAR.
-- hint: text and numbers are not compared: write the number without quotes.
SELECT COUNT(*) FROM visits WHERE cost = 'abc'

-- refused: the comparison combines VARCHAR with INTEGER.
-- hint: text and numbers are not compared: write code = '2', or TRY_CAST(code AS DOUBLE) = 2.
SELECT COUNT(*) FROM visits WHERE code = 2

-- answered
SELECT COUNT(*) FROM visits WHERE code = '2'

-- refused: the comparison combines BOOLEAN with INTEGER.
-- hint: write CAST(urgent AS INT) instead of urgent, or compare with true or false.
SELECT COUNT(*) FROM visits WHERE urgent = 1

-- answered
SELECT COUNT(*) FROM visits WHERE urgent = TRUE

-- answered
SELECT COUNT(*) FROM visits WHERE urgent = 't' OR urgent IN ('no') OR (cost > 3) <> 'false'

-- refused: the comparison combines BOOLEAN with VARCHAR.
-- hint: write CAST(urgent AS INT) instead of urgent, or compare with true or false.
SELECT COUNT(*) FROM visits WHERE urgent = 'maybe'

-- answered
SELECT COUNT(*) FROM visits WHERE NOT urgent AND cost IS NOT NULL

-- answered
SELECT COUNT(*) FROM visits WHERE cost BETWEEN 10 AND 20

-- answered
SELECT COUNT(*) FROM visits WHERE ward IN ('A', 'B') AND cost NOT IN (1, 2)

-- answered
SELECT COUNT(*) FROM visits WHERE patient = 7

-- answered
SELECT COUNT(*) FROM visits WHERE patient % 2 = 0

-- refused: hash can't be used on private rows: it differs between versions; md5 of a text doesn't.
SELECT COUNT(*) FROM visits WHERE hash(patient) % 2 = 0

-- refused: the privacy unit can't be a group: each group would be one unit.
-- hint: write COUNT(DISTINCT patient) instead of the group: it counts the units; totals per patient may be in a subquery.
SELECT patient, COUNT(*) FROM visits GROUP BY patient

-- refused: the privacy unit can't be a group: each group would be one unit.
-- hint: write COUNT(DISTINCT patient) instead of the group: it counts the units; totals per patient may be in a subquery.
SELECT COUNT(*), patient FROM visits GROUP BY 2

-- refused: the privacy unit can't be a group: each group would be one unit.
-- hint: write COUNT(DISTINCT "patient") instead of the group: it counts the units; totals per "patient" may be in a subquery.
SELECT "patient", COUNT(*) FROM visits GROUP BY 1

-- refused: patient is the privacy unit: it is never released.
-- hint: write COUNT(DISTINCT patient): it counts the units.
SELECT patient FROM visits

-- refused: MIN(patient) needs bounds for patient; the policy declares none.
-- hint: write MIN(patient, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
SELECT MIN(patient), MAX(patient) FROM visits

-- refused: AVG(patient) needs bounds for patient; the policy declares none.
-- hint: write AVG(patient, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
SELECT AVG(patient) FROM visits

-- refused: groups can't be made of the privacy unit.
-- hint: write COUNT(DISTINCT patient) instead of the group: it counts the units; totals per patient may be in a subquery.
SELECT patient % 10 AS p, COUNT(*) FROM visits GROUP BY p

-- refused: ward must be a group or be inside an aggregate.
-- hint: write COUNT(DISTINCT ward), or group by it and count the rows.
SELECT ward, cost FROM visits

-- refused: cost must be a group or be inside an aggregate.
-- hint: write AVG(cost), or add it to the groups: GROUP BY ward, cost.
SELECT ward, cost, COUNT(*) FROM visits GROUP BY ward

-- answered
SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient)

-- answered
SELECT n, COUNT(*) FROM (SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient) GROUP BY n ORDER BY n

-- answered
SELECT MEDIAN(total) FROM (SELECT patient, SUM(cost) AS total FROM visits GROUP BY patient)

-- answered
SELECT AVG(total) FROM (SELECT patient, SUM(cost) AS total FROM visits GROUP BY patient HAVING COUNT(*) > 2) t

-- answered
WITH per AS (SELECT patient, ward, MAX(cost) AS m FROM visits GROUP BY patient, ward) SELECT ward, AVG(m) FROM per GROUP BY ward

-- answered
WITH firsts AS (SELECT patient, MIN(day) AS d FROM visits GROUP BY patient) SELECT date_trunc('month', d) AS m, COUNT(*) FROM firsts GROUP BY m HAVING COUNT(*) > 2

-- answered
SELECT COUNT(*) FROM (SELECT DISTINCT patient FROM visits)

-- answered
SELECT COUNT(*) FROM (SELECT DISTINCT patient, ward FROM visits)

-- answered
SELECT ward, COUNT(DISTINCT patient) FROM visits GROUP BY ward

-- answered
SELECT COUNT(*) FROM (SELECT patient, cost, row_number() OVER (PARTITION BY patient ORDER BY day) AS rn FROM visits) WHERE rn = 1

-- answered
SELECT AVG(cost) FROM (SELECT cost, row_number() OVER (PARTITION BY patient ORDER BY day) AS rn FROM visits) WHERE rn = 1

-- answered
SELECT AVG(gap, contribution_bounds_per_row => (0, 400)) FROM (SELECT day - lag(day) OVER (PARTITION BY patient ORDER BY day) AS gap FROM visits)

-- refused: patient is the privacy unit: it is never released.
-- hint: write COUNT(DISTINCT patient): it counts the units.
SELECT COUNT(*) FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY day) = 1

-- answered
SELECT COUNT(*) FROM (FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY day) = 1)

-- refused: DISTINCT ON would choose private rows.
-- hint: aggregate in a subquery first, and choose from its answer.
SELECT DISTINCT ON (patient) patient, cost FROM visits ORDER BY patient, day

-- answered
SELECT AVG(cost) FROM (SELECT DISTINCT ON (patient) patient, cost FROM visits ORDER BY patient, day)

-- answered
SELECT p.sex, COUNT(*), AVG(cost) FROM visits v JOIN patients p ON v.patient = p.patient GROUP BY p.sex

-- answered
SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient) GROUP BY sex

-- answered
SELECT sex, COUNT(*) FROM visits NATURAL JOIN patients GROUP BY sex

-- answered
SELECT sex, COUNT(visit) FROM patients LEFT JOIN visits USING (patient) GROUP BY sex

-- answered
SELECT COUNT(*) FROM patients p WHERE NOT EXISTS (FROM visits v WHERE v.patient = p.patient AND v.urgent)

-- answered
SELECT COUNT(*) FROM patients WHERE patient IN (SELECT patient FROM visits WHERE urgent)

-- answered
SELECT COUNT(*) FROM patients p, visits v WHERE p.patient = v.patient AND p.age > 50

-- answered
SELECT kind, AVG(result) FROM tests GROUP BY kind

-- answered
SELECT ward, AVG(result) FROM tests t JOIN visits v ON t.visit = v.visit GROUP BY ward

-- answered
SELECT ward, AVG(result) FROM tests JOIN visits USING (visit) GROUP BY ward

-- answered
SELECT sex, kind, COUNT(*) FROM tests JOIN visits USING (visit) JOIN patients USING (patient) GROUP BY ALL

-- answered
SELECT COUNT(*) FROM visits a, visits b WHERE a.patient = b.patient AND a.visit < b.visit

-- refused: private tables are joined on something other than their privacy unit.
-- hint: no policy lets different people's rows meet; for each person's own rows, add a.patient = b.patient to WHERE.
SELECT COUNT(*) FROM visits a CROSS JOIN visits b

-- refused: private tables are joined on something other than their privacy unit.
-- hint: no policy lets different people's rows meet; for each person's own rows, add a.patient = b.patient to ON.
SELECT COUNT(*) FROM visits a JOIN visits b ON a.ward = b.ward

-- refused: private tables are joined on something other than their privacy unit.
-- hint: no policy lets different people's rows meet; for each person's own rows, add a.patient = b.patient to ON.
SELECT COUNT(*) FROM visits a JOIN visits b ON a.patient = b.patient OR a.ward = b.ward

-- refused: rows that are their own privacy unit can't be joined with other private rows.
-- hint: ask the owner for a privacy unit column, or query the tables one at a time.
SELECT COUNT(*) FROM visits v JOIN people p ON v.address.city = p.city

-- answered
SELECT wing, COUNT(*) FROM visits JOIN wards USING (ward) GROUP BY wing

-- answered
SELECT w.wing, COUNT(v.visit) FROM wards w LEFT JOIN visits v ON v.ward = w.ward GROUP BY w.wing

-- answered
SELECT city, COUNT(*), AVG(income) FROM people GROUP BY city

-- refused: rows that are their own privacy unit can't be joined with other private rows.
-- hint: ask the owner for a privacy unit column, or query the tables one at a time.
SELECT city, COUNT(*) FROM people JOIN visits ON TRUE GROUP BY city

-- answered
SELECT AVG(cost) / COUNT(*), 1 + AVG(cost), ROUND(AVG(cost), 1) FROM visits

-- answered
SELECT ROUND(AVG(cost), 1), CAST(SUM(cost) AS INTEGER), SUM(cost)::BIGINT FROM visits

-- answered
SELECT CASE WHEN COUNT(*) > 10 THEN 'many' ELSE 'few' END AS size FROM visits

-- answered
SELECT GREATEST(COUNT(*), 0) FROM visits

-- answered
SELECT 'total' AS label, COUNT(*) FROM visits

-- answered
SELECT ward, 'x' AS c, COUNT(*) FROM visits GROUP BY ward, c

-- answered
SELECT ward || '!' AS w, COUNT(*) FROM visits GROUP BY ward

-- answered
SELECT lower(ward), COUNT(*) FROM visits GROUP BY ward

-- answered
SELECT COUNT(*) + 1 AS n FROM visits ORDER BY n

-- answered
SELECT (SELECT COUNT(*) FROM visits) AS a, (SELECT COUNT(*) FROM patients) AS b

-- answered
SELECT a.n / b.n FROM (SELECT COUNT(*) n FROM visits) a, (SELECT COUNT(*) n FROM patients) b

-- answered
SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)

-- answered
SELECT COUNT(*) FROM visits WHERE ward IN (SELECT ward FROM wards WHERE wing = 'north')

-- answered
SELECT COUNT(*) FROM visits WHERE ward = ANY (SELECT ward FROM wards WHERE wing = 'north')

-- answered
SELECT COUNT(*) FROM visits WHERE ward = (SELECT MAX(ward) FROM wards)

-- refused: a subquery over private rows would let one unit decide about the rows of others.
-- hint: look at rows of the same unit: add w.visit = v.visit to its WHERE, or release it first for each ward, and join that answer.
SELECT COUNT(*) FROM visits v WHERE cost > (SELECT AVG(cost) FROM visits w WHERE w.ward = v.ward)

-- answered
SELECT COUNT(*) FROM visits v WHERE cost > (SELECT AVG(cost) FROM visits w WHERE w.patient = v.patient)

-- answered
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n, (SELECT COUNT(*) FROM visits) AS c FROM r

-- answered
WITH b AS MATERIALIZED (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) SELECT MAX(n) FROM b

-- answered
SELECT n FROM (SELECT COUNT(*) FROM visits) AS t(n)

-- refused: an alias can't rename the columns of a private table.
-- hint: write visits AS v; rename columns in a subquery.
SELECT COUNT(*) FROM visits AS v(a, b, c)

-- answered
SELECT COUNT(*) AS "number of rows" FROM visits

-- answered
SELECT COUNT(*) AS count, SUM(cost) AS sum FROM visits

-- answered
SELECT COUNT(*) FILTER (WHERE urgent) / COUNT(*) AS share FROM visits

-- answered
SELECT AVG(cost) FILTER (WHERE ward = 'A') - AVG(cost) FILTER (WHERE ward = 'B') AS d FROM visits

-- answered
SELECT SUM(cost * 2 + 1), SUM(LEAST(cost, 100)), SUM(ABS(score)) FROM visits

-- answered
SELECT SUM(POWER(score, 2)) FROM visits

-- answered
SELECT SUM(score * score) FROM visits

-- answered
SELECT SUM(cost / 2) FROM visits

-- refused: SUM(cost / u8) needs bounds for cost / u8; the policy declares none.
-- hint: write SUM(cost / u8, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
SELECT SUM(cost / u8) FROM visits

-- answered
SELECT AVG(EXTRACT(EPOCH FROM seen), contribution_bounds_per_row => (1.7e9, 1.8e9)) FROM visits

-- answered
SELECT AVG(day - DATE '2024-01-01', contribution_bounds_per_row => (0, 400)) FROM visits

-- answered
SELECT AVG(day - DATE '2024-01-01') FROM visits

-- answered
SELECT AVG(date_diff('day', DATE '2024-01-01', day)) FROM visits

-- refused: SUM(visit) needs bounds for visit; the policy declares none.
-- hint: write SUM(visit, contribution_bounds_per_row => AUTO) to find them privately, or give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data owner for them.
SELECT SUM(visit) FROM visits

-- answered
SELECT ward, SUM(cost, contribution_bounds_per_row => (0, 500), epsilon => 1000000) FROM visits GROUP BY ward

-- refused: epsilon = ... inside a call is a comparison.
-- hint: write epsilon => 1.
SELECT SUM(cost, epsilon = 1) FROM visits

-- refused: OPTIONS has no eps.
-- hint: did you mean epsilon?
SELECT WITH DP OPTIONS (eps = 1) COUNT(*) FROM visits

-- refused: the options stand after the word OPTIONS.
-- hint: write DP OPTIONS instead of DP.
SELECT WITH DP (epsilon = 1) COUNT(*) FROM visits

-- refused: options are written name = value.
-- hint: write = instead of =>.
SELECT WITH DP OPTIONS (epsilon => 1) COUNT(*) FROM visits

-- refused: options are written name = value.
-- hint: write = instead of :.
SELECT WITH DP OPTIONS (epsilon: 1) COUNT(*) FROM visits

-- refused: can't read this: a ) is missing before =.
-- hint: put the options behind the mode, which stands after the first word of the query.
SELECT COUNT(*) FROM visits OPTIONS (epsilon = 1)

-- refused: can't read this: ( is not expected here.
-- hint: write SELECT WITH DIFFERENTIAL_PRIVACY instead of SELECT DIFFERENTIAL_PRIVACY.
SELECT DIFFERENTIAL_PRIVACY COUNT(*) FROM visits

-- answered
SELECT * FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) ORDER BY n DESC LIMIT 3

-- answered
SELECT ward, n FROM (SELECT ward, COUNT(*) AS n, row_number() OVER (ORDER BY COUNT(*) DESC) AS r FROM visits GROUP BY ward) WHERE r <= 2

-- answered
SELECT max_by(ward, n) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)

-- answered
SELECT list(ward ORDER BY ward), SUM(n) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)

-- answered
SELECT ward, bar(n, 0, 300, 10) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)

-- refused: the parameter $w has no value.
-- hint: assign w first, or pass params.
SELECT ward, COUNT(*) FROM visits WHERE ward = $w GROUP BY ward

-- refused: a ? mark has no value.
-- hint: give a list of values, or write $name.
SELECT COUNT(*) FROM visits WHERE ward = ?

-- refused: :w is not a parameter here.
-- hint: write $w.
SELECT COUNT(*) FROM visits WHERE ward = :w

-- refused: there is no column w here.
-- hint: write $w instead of @w, which is an absolute value.
SELECT COUNT(*) FROM visits WHERE ward = @w

-- refused: templates are not filled in: they would change the statement after it was priced.
-- hint: write $w and the notebook's variable w is bound as a value.
SELECT COUNT(*) FROM visits WHERE ward = '{{w}}'

-- refused: the parameter $1 has no value.
-- hint: give a list of values, or write $name.
SELECT COUNT(*) FROM visits WHERE ward = $1

-- refused: FORM is not a word of SQL.
-- hint: did you mean FROM?
SELECT COUNT(*) FORM visits

-- refused: can't read this: a ) is missing before FROM.
SELECT COUNT(* FROM visits

-- refused: SELEC is not a statement of dpsql.
-- hint: did you mean SELECT?
SELEC COUNT(*) FROM visits

-- refused: nothing follows WHERE.
-- hint: finish it, or leave it out.
SELECT COUNT(*) FROM visits WHERE

-- refused: can't read this: ( is not expected here.
-- hint: is a comma missing before COUNT?
SELECT ward COUNT(*) FROM visits GROUP BY ward

-- refused: nothing follows GROUP BY.
-- hint: finish it, or leave it out.
SELECT COUNT(*) FROM visits GROUP BY

-- answered
SELECT COUNT(*) FROM visits, WHERE urgent

-- refused: there is no table visits in this FROM.
-- hint: there is v.
SELECT COUNT(*) FROM visits v WHERE visits.urgent

-- refused: there is no table x in this FROM.
-- hint: there is visits.
SELECT x.a FROM visits

-- refused: COUNT is not supported in WHERE.
-- hint: write HAVING COUNT(*) > 3 instead of WHERE COUNT(*) > 3: it reads the noisy value.
SELECT COUNT(*) FROM visits WHERE COUNT(*) > 3

-- refused: SUM is inside another aggregate.
-- hint: write SELECT SUM(n) FROM (SELECT patient, SUM(cost) AS n FROM visits GROUP BY patient) AS t: a subquery aggregates first.
SELECT SUM(SUM(cost)) FROM visits

-- refused: there is no column wing here.
-- hint: there is visit, patient, ward, day, seen, cost, score, u8 and 13 more.
SELECT ward, COUNT(*) FROM visits GROUP BY wing

-- refused: GROUP BY counts the columns from 1, and it has 2 columns.
-- hint: write a number from 1 to 2.
SELECT ward, COUNT(*) FROM visits GROUP BY ward, 7

-- refused: COUNT can't be a group.
-- hint: group by columns; the noisy value may be a group in an outer query.
SELECT ward, COUNT(*) FROM visits GROUP BY COUNT(*)

-- answered
SELECT COUNT(*) FROM visits HAVING COUNT(*) > 100000

-- refused: cost must be a group or be inside an aggregate.
-- hint: write AVG(cost), or add it to the groups: GROUP BY cost.
SELECT cost, COUNT(*) FROM visits HAVING cost > 3

-- section: within a unit, below the aggregation

-- answered
SELECT COUNT(*), AVG(score) FROM (SELECT * EXCLUDE (cost) FROM visits)

-- answered
SELECT AVG(price) FROM (SELECT v.* RENAME (cost AS price) FROM visits v)

-- refused: there is no column nosuch among these.
-- hint: there is visit, patient, ward, day, seen, cost, score, u8 and 13 more.
SELECT AVG(cost) FROM (SELECT * EXCLUDE (nosuch) FROM visits)

-- refused: there is no table w in this FROM.
-- hint: there is visits.
SELECT COUNT(*) FROM (SELECT w.* FROM visits)

-- answered
SELECT ward, COUNT(*) FROM (SELECT DISTINCT patient, ward FROM visits) GROUP BY ward

-- answered
SELECT COUNT(*) FROM (SELECT DISTINCT * FROM patients)

-- answered
SELECT * FROM (SELECT DISTINCT ward FROM visits) AS subquery ORDER BY ward

-- answered
SELECT * FROM (WITH wards AS (SELECT DISTINCT ward FROM visits) SELECT ward FROM wards) AS outermost ORDER BY ward

-- answered
WITH wards AS (SELECT DISTINCT ward FROM visits) SELECT upper(ward) AS w FROM wards WHERE ward IS NOT NULL ORDER BY w

-- refused: DISTINCT below the aggregation would make one row of several people's.
-- hint: write DISTINCT patient, instead of DISTINCT: each unit's rows stay apart.
SELECT COUNT(*) FROM (SELECT DISTINCT ward FROM visits)

-- answered
SELECT COUNT(*), AVG(cost) FROM (FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY day) = 1)

-- answered
SELECT AVG(cost) FROM (SELECT cost FROM visits QUALIFY rank() OVER (PARTITION BY patient ORDER BY cost DESC) <= 2)

-- answered
SELECT AVG(r) FROM (SELECT cost - avg(cost) OVER (PARTITION BY patient) AS r, cost FROM visits) WHERE r > 0

-- refused: a window function below the aggregation mixes the rows of several units.
-- hint: write ROW_NUMBER() OVER (PARTITION BY patient ORDER BY day), or aggregate first; windows may follow.
SELECT COUNT(*) FROM (SELECT row_number() OVER (ORDER BY day) AS rn FROM visits) WHERE rn < 5

-- refused: a window function below the aggregation mixes the rows of several units.
-- hint: write ROW_NUMBER() OVER (PARTITION BY patient, ward ORDER BY day), or aggregate first; windows may follow.
SELECT COUNT(*) FROM (SELECT row_number() OVER (PARTITION BY ward ORDER BY day) AS rn FROM visits) WHERE rn < 5

-- answered
SELECT kind, COUNT(*) FROM (SELECT kind, row_number() OVER (PARTITION BY visit ORDER BY result) AS rn FROM tests) WHERE rn = 1 GROUP BY kind

-- answered
SELECT COUNT(*) FROM (SELECT cost * 2 AS c, c + 1 AS d FROM visits WHERE c > 100) WHERE d > 200

-- answered
SELECT COUNT(*) FROM (SELECT ntile(2) OVER (PARTITION BY patient ORDER BY day) AS h FROM visits) WHERE h = 1

-- answered
SELECT COUNT(*) FROM (SELECT patient, ward, lead(ward) OVER (PARTITION BY patient ORDER BY day, visit) AS nxt FROM visits) WHERE nxt <> ward

-- answered
SELECT AVG(x) FROM (SELECT SUM(score) OVER (PARTITION BY patient) AS x FROM visits)

-- answered
SELECT AVG(x) FROM (SELECT SUM(small) OVER (PARTITION BY patient) AS x FROM visits)

-- answered
SELECT COUNT(*) FROM (SELECT first_value(ward) OVER (PARTITION BY patient ORDER BY day) AS w, COUNT(*) FILTER (WHERE urgent) OVER (PARTITION BY patient) AS u FROM visits) WHERE w = 'A' AND u > 1

-- section: FROM

-- answered
SELECT month, COUNT(*) FROM visits ASOF JOIN months ON visits.day >= months.month GROUP BY month

-- answered
SELECT COUNT(*), COUNT(month) FROM visits ASOF LEFT JOIN months ON visits.day > months.month

-- refused: an ASOF join here goes from private rows to the nearest public ones.
-- hint: put the public table last. For the nearest of a unit's own rows, join on the unit, and keep the first row of each by a window over the unit's rows.
SELECT COUNT(*) FROM months ASOF JOIN visits ON visits.day >= months.month

-- answered
SELECT COUNT(*), AVG(floor) FROM people ASOF JOIN wards ON people.age >= wards.floor

-- answered
SELECT t, COUNT(*) FROM visits v, UNNEST(v.tags) AS u(t) WHERE t <> 'y' GROUP BY t

-- answered
SELECT u.unnest AS t, COUNT(*) FROM visits v, UNNEST(v.tags) AS u GROUP BY t

-- answered
SELECT COUNT(*) FROM visits v LEFT JOIN UNNEST(v.tags) AS u(t) ON TRUE

-- answered
SELECT AVG(l.z) FROM visits v CROSS JOIN LATERAL (SELECT v.cost / 2) AS l(z)

-- answered
SELECT COUNT(*), AVG(f, contribution_bounds_per_row => (0, 5)) FROM visits v, LATERAL (SELECT floor AS f FROM wards w WHERE w.ward = v.ward) l

-- answered
SELECT COUNT(*) FROM visits v JOIN LATERAL (SELECT w.wing FROM wards w WHERE w.ward = v.ward) l ON TRUE WHERE wing = 'north'

-- answered
SELECT COUNT(*), COUNT(wing) FROM visits v LEFT JOIN LATERAL (SELECT w.wing FROM wards w WHERE w.ward = v.ward) l ON TRUE

-- answered
SELECT COUNT(*) FROM (SELECT (SELECT COUNT(*) FROM tests t WHERE t.visit = v.visit) AS k FROM visits v) WHERE k > 1

-- answered
SELECT w.ward, l.n FROM wards w, LATERAL (SELECT COUNT(*) AS n FROM visits v WHERE v.ward = w.ward) l

-- answered
SELECT w.ward, l.n FROM wards w, LATERAL (SELECT w.floor + 1 AS n) l

-- answered
SELECT COUNT(*) FROM ((visits v JOIN wards w USING (ward)))

-- answered, as: SELECT COUNT(*) FROM visits
SELECT COUNT(*) FROM (visits)

-- answered
SELECT COUNT(*) FROM ((SELECT * FROM visits))

-- answered
SELECT wing, COUNT(*) FROM ((visits v JOIN wards w USING (ward)) JOIN patients p ON p.patient = v.patient) GROUP BY wing

-- answered
SELECT COUNT(*) FROM (visits v JOIN wards w USING (ward)) AS q

-- answered
SELECT COUNT(*) FROM patients p LEFT JOIN (visits v JOIN tests t ON v.visit = t.visit) ON p.patient = v.patient

-- answered
SELECT COUNT(*), COUNT(t.kind) FROM patients p LEFT JOIN (visits v JOIN tests t ON v.visit = t.visit) ON p.patient = v.patient

-- answered
SELECT COUNT(*) FROM patients p JOIN visits v ON p.patient = v.patient JOIN (tests t JOIN wards w ON t.kind <> w.ward) ON t.visit = v.visit AND w.ward = v.ward

-- refused: this join can't be taken out of its parentheses.
-- hint: write the join in parentheses as a named query before the statement, and join that.
SELECT COUNT(*) FROM patients p JOIN visits v ON p.patient = v.patient LEFT JOIN (wards w JOIN months m ON m.month = DATE '2024-01-01') ON w.ward = v.ward

-- refused: unnest can't be used on private rows: it makes rows of a row; in FROM it may stand, behind the table and a comma.
SELECT COUNT(*) FROM (SELECT unnest(tags) AS t, unnest(tags) AS q FROM visits)

-- refused: unnest can't be used on private rows: it makes rows of a row; in FROM it may stand, behind the table and a comma.
SELECT COUNT(*) FROM (SELECT upper(unnest(tags)) AS t FROM visits)

-- refused: with rows as the privacy unit, each may meet one row of u, and here it may meet several.
-- hint: join on columns that are unique there, or ask the owner for a privacy unit column.
SELECT city, COUNT(*) FROM people, UNNEST([1,2]) u(x) GROUP BY city

-- answered
SELECT COUNT(*) FROM (SELECT AVG(x) FROM (SELECT SUM(score::DECIMAL(18,4)) OVER (PARTITION BY patient) AS x FROM visits))

-- answered
SELECT AVG(x) FROM (SELECT SUM(score::DECIMAL(18,4)) OVER (PARTITION BY patient) AS x FROM visits)

-- section: GoogleSQL, options, refusals

-- refused: there is no table proj.ds.visits.
-- hint: did you mean visits?
SELECT COUNT(*) FROM `proj.ds.visits`

-- answered
SELECT COUNT(*) FROM visits WHERE doctor = 'a `tick`' OR ward = 'A' -- `x

-- refused: a quote or a comment does not end.
-- hint: end it with a backquote; within it, write two for one.
SELECT COUNT(*) FROM `visits

-- answered, as: SELECT COUNT(DISTINCT patient), COUNT(DISTINCT ward) FROM visits
SELECT APPROX_COUNT_DISTINCT(patient), approx_count_distinct(ward) FROM visits

-- answered, as: SELECT ward, COUNT(DISTINCT patient) FROM visits GROUP BY ward
SELECT ward, APPROX_COUNT_DISTINCT(patient) FROM visits GROUP BY ward

-- answered, as: SELECT COUNT(DISTINCT patient) FROM visits
SELECT APPROX_COUNT_DISTINCT(patient, epsilon => 1000000) FROM visits

-- answered, as: SELECT date_trunc('month', day) AS m, COUNT(*) FROM visits GROUP BY m
SELECT DATE_TRUNC(day, MONTH) AS m, COUNT(*) FROM visits GROUP BY m

-- answered, as: SELECT date_trunc('month', day) AS m, COUNT(*) FROM visits GROUP BY m
SELECT DATE_TRUNC(v.day, MONTH) AS m, COUNT(*) FROM visits v GROUP BY m

-- answered, as: SELECT SUM(cost/2) FROM visits
SELECT SUM(SAFE_DIVIDE(cost, 2)) FROM visits

-- answered, as: SELECT COUNT(*) FROM visits WHERE ward IN ('A', 'B')
SELECT COUNT(*) FROM visits WHERE ward IN UNNEST(['A', 'B'])

-- answered, as: SELECT COUNT(*) FROM visits WHERE 'x1' IN tags
SELECT COUNT(*) FROM visits WHERE 'x1' IN UNNEST(tags)

-- answered
SELECT COUNT(*) FROM visits WHERE 'x1' NOT IN tags

-- answered, as: SELECT COUNT(*) FROM visits
SELECT COUNT(*) FROM (SELECT * EXCEPT (cost) FROM visits)

-- answered
SELECT COUNT(*) FROM visits WHERE cost = '100' OR '200.5' <= cost OR cost IN ('30', ' 40 ') OR cost BETWEEN '5' AND '6'

-- answered
SELECT COUNT(DISTINCT concat_ws('|', ward, urgent)) FROM visits

-- refused: GROUP BY h means the column h, not the item of that name.
-- hint: write 1, its place in the list, or give it another name.
SELECT hour(seen) AS h, COUNT(*) FROM visits GROUP BY h

-- answered
SELECT hour(seen) AS h, COUNT(*) FROM visits GROUP BY 1

-- refused: ward must be a group or be inside an aggregate.
-- hint: write COUNT(DISTINCT ward), or group by it and count the rows.
SELECT ward FROM visits

-- answered
SELECT ward, COUNT(*) FROM visits GROUP BY ward

-- answered, as: SELECT cost > 100 AS big, COUNT(*) FILTER (WHERE cost > 100) AS n FROM visits WHERE cost IS NOT NULL GROUP BY big
SELECT cost > 100 AS big, COUNT(*) FILTER (WHERE big) AS n FROM visits WHERE big IS NOT NULL GROUP BY big

-- answered
SELECT ward, SUM(COUNT(*)) FILTER (WHERE ward <> 'A') OVER () AS s FROM visits GROUP BY ward

-- answered
SELECT * FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) PIVOT (SUM(n) FOR ward IN ('A', 'B'))

-- refused: private tables are joined on something other than their privacy unit.
-- hint: keep the privacy unit's own column on both sides, unchanged, and join on it.
SELECT COUNT(*) FROM (SELECT ward FROM visits) a JOIN visits b USING (ward)

-- answered
SELECT COUNT(*) FROM (SELECT patient FROM visits UNION ALL BY NAME SELECT patient FROM patients)

-- answered
SELECT COUNT(*) FROM visits WHERE ward = ANY (SELECT ward FROM wards)

-- section: lists

-- answered
SELECT COUNT(*) FROM visits WHERE ward = ANY(['A', 'B'])

-- answered
SELECT COUNT(*) FROM visits WHERE ward IN ['A', 'B']

-- answered
SELECT COUNT(*) FROM visits WHERE small IN [1, 2, NULL]

-- answered
SELECT COUNT(*) FROM visits WHERE ward NOT IN ['A', 'B']

-- section: what the hints say, and ordinary questions

-- answered
SELECT COUNT(*) FROM visits WHERE TRY_CAST(code AS INTEGER) = 2

-- answered
SELECT COUNT(*) FROM visits WHERE md5(patient::VARCHAR) < '8'

-- answered
SELECT COUNT_IF(NOT urgent) <= 0 AS every, COUNT_IF(urgent) > 0 AS some FROM visits

-- answered
SELECT QUANTILE_CONT(cost, 0.25), QUANTILE_CONT(cost, 0.5), QUANTILE_CONT(cost, 0.75) FROM visits

-- answered
SELECT FLOOR(score)::INTEGER AS s, COUNT(*) FROM visits GROUP BY s HAVING COUNT(*) > 0

-- answered
SELECT FLOOR(EPOCH(stay))::BIGINT AS s, COUNT(*) FROM visits GROUP BY s

-- answered
SELECT CASE WHEN score < 0 THEN 'low' ELSE 'high' END AS band, COUNT(*) FROM visits GROUP BY band

-- answered
SELECT v, COUNT(*) FROM (SELECT patient, ward || '!' AS v FROM visits) GROUP BY v

-- answered
SELECT COUNT(*) FROM visits WHERE ward IN (SELECT ward FROM wards)

-- answered
SELECT COUNT(*) FROM visits a JOIN visits b ON a.ward = b.ward AND a.patient = b.patient AND a.visit < b.visit

-- answered
SELECT COUNT(*) FROM visits a CROSS JOIN visits b WHERE a.patient = b.patient AND a.visit < b.visit

-- answered
SELECT COUNT(*) FROM visits v WHERE cost > (SELECT AVG(cost) FROM visits w WHERE w.ward = v.ward AND w.patient = v.patient)

-- answered, as: SELECT AVG(POWER(score, 2)) FROM visits
SELECT AVG(POWER(score, 2), contribution_bounds_per_row => (0, 25)) FROM visits

-- answered
SELECT COUNT(*) FROM (SELECT ward AS a, cost AS b FROM visits) AS v WHERE a = 'B' AND b > 10

-- answered
SELECT * FROM (SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL) PIVOT (SUM(n) FOR ward IN ('A', 'B'))

-- answered
SELECT COUNT(*) FROM (SELECT t.result, row_number() OVER (PARTITION BY v.patient ORDER BY v.day DESC) AS r FROM visits v JOIN tests t ON v.visit = t.visit) WHERE r = 1

-- answered
SELECT COUNT(*) FROM patients LEFT JOIN (SELECT patient, MAX(cost) AS top FROM visits GROUP BY patient) USING (patient) WHERE top > 200

-- answered
WITH pair AS (SELECT w.ward, w.wing FROM wards w JOIN months m ON m.month = DATE '2024-01-01') SELECT COUNT(*) FROM patients p JOIN visits v ON p.patient = v.patient LEFT JOIN pair ON pair.ward = v.ward

-- answered
SELECT n, COUNT(*) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) GROUP BY n

-- answered
SELECT COALESCE(lag(n) OVER (ORDER BY ward), 0) AS before FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)

-- answered, as: SELECT SUM(d) FROM (SELECT COALESCE(lag(cost) OVER (PARTITION BY patient ORDER BY day, visit), 0) AS d FROM visits)
SELECT SUM(d, contribution_bounds_per_row => (0, 500)) FROM (SELECT COALESCE(lag(cost) OVER (PARTITION BY patient ORDER BY day, visit), 0) AS d FROM visits)

-- answered
SELECT ward, COUNT(*) FROM visits WHERE day >= DATE '2024-03-01' GROUP BY ward HAVING COUNT(*) > 10 ORDER BY 2 DESC

-- answered
SELECT COUNT(*) FROM visits v JOIN patients p USING (patient) WHERE p.city = 'Delft' AND v.ward IN ('A', 'C')

-- answered
SELECT p.city, COUNT(*), COUNT(DISTINCT patient) FROM visits v JOIN patients p USING (patient) GROUP BY p.city

-- answered
SELECT COUNT(*) FILTER (WHERE score > 0), COUNT(*) FILTER (WHERE score <= 0) FROM visits

-- answered
SELECT AVG(age), STDDEV(age), MIN(age), MAX(age) FROM patients

-- answered
SELECT city, AVG(income), COUNT(*) FROM people WHERE age BETWEEN 20 AND 40 GROUP BY city

-- answered
SELECT COUNT(*) FROM people WHERE number NOT IN (1, 2, 3)

-- answered
SELECT age // 10 * 10 AS decade, COUNT(*) FROM patients GROUP BY decade HAVING COUNT(*) > 5 ORDER BY decade

-- answered
SELECT dayname(day) AS d, COUNT(*) FROM visits GROUP BY d

-- answered, as: SELECT AVG(DATE_DIFF('day', day, DATE '2024-12-31')) FROM visits
SELECT AVG(DATE_DIFF('day', day, DATE '2024-12-31'), contribution_bounds_per_row => (0, 400)) FROM visits

-- answered
SELECT COUNT(*) FROM (SELECT patient FROM visits UNION SELECT patient FROM patients)

-- answered
SELECT COUNT(*), SUM(cost) FROM (SELECT patient, ward, cost FROM visits INTERSECT SELECT patient, ward, cost FROM visits WHERE cost > 20)

-- answered
SELECT ward, COUNT(*) FROM (SELECT patient, ward FROM visits EXCEPT SELECT patient, ward FROM visits WHERE cost > 90) GROUP BY ward

-- answered
SELECT COUNT(*) FROM (SELECT patient FROM patients EXCEPT SELECT patient FROM visits WHERE cost > 400)

-- answered
SELECT t, COUNT(*) FROM visits, UNNEST([ward, 'none']) AS u(t) GROUP BY t

-- answered
SELECT COUNT(t), SUM(t) FROM visits, UNNEST([cost, score]) AS u(t)

-- answered
SELECT COUNT(*) FROM visits, UNNEST(tags[1:1]) AS u(t), UNNEST([1, small]) AS v(s)

-- answered
SELECT p, COUNT(*) FROM visits, UNNEST(string_split(ward || ',x', ',')) AS u(p) GROUP BY p

-- answered
SELECT COUNT(*) FROM visits WHERE ward NOT IN ['A', NULL] AND ward IN ['B', NULL, 'C']

-- answered
SELECT COUNT(*) FROM visits WHERE ward NOT IN [NULL, 'A'] AND NOT ward IN [NULL, NULL, 'C']

-- answered
PIVOT visits ON ward USING COUNT(*) GROUP BY urgent ORDER BY urgent

-- answered
SELECT urgent, A + B AS ab FROM visits PIVOT (COUNT(*) FOR ward IN ('A', 'B') GROUP BY urgent) WHERE urgent

-- answered
PIVOT (SELECT ward, cost > 50 AS dear FROM visits) ON dear, ward IN ('A', 'B') USING COUNT(*) AS n

-- answered
FROM (SELECT ward, cost, urgent FROM visits) PIVOT (COUNT(*), AVG(cost) FOR (ward, urgent) IN (('A', true), ('B', false)))

-- answered
SELECT k, COUNT(*) FROM visits UNPIVOT (v FOR k IN (small, s16)) GROUP BY k

-- answered
UNPIVOT (SELECT COUNT(*) AS n, COUNT(DISTINCT patient) AS s FROM visits) ON n, s INTO NAME k VALUE v

-- refused: the columns of this PIVOT would tell which values of doctor occur.
-- hint: write SELECT ward, doctor, COUNT(*) FROM visits GROUP BY ward, doctor: a row for each value; or list the values of doctor that become columns, in parentheses after it and the word in.
PIVOT visits ON doctor USING COUNT(*) GROUP BY ward

-- refused: the columns of a PIVOT must be listed.
-- hint: list the values of ward that become columns, in parentheses after it and the word in.
PIVOT (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) ON ward USING SUM(n)

-- refused: an aggregate of a PIVOT has no FILTER.
-- hint: filter the rows in a subquery, and pivot that.
PIVOT visits ON ward USING COUNT(*) FILTER (WHERE cost > 3) GROUP BY month

-- refused: EXCEPT here would compare rows of different people.
-- hint: keep the privacy unit among the columns of both sides, or aggregate each side first.
SELECT COUNT(*) FROM (SELECT ward FROM visits EXCEPT SELECT ward FROM visits WHERE cost > 90)

-- answered
SELECT w.wing, w.ward, (SELECT COUNT(*) FROM visits v WHERE v.ward = w.ward) AS n, (SELECT COUNT(DISTINCT patient) FROM visits v WHERE v.ward = w.ward AND cost > 90) AS p FROM wards w

-- answered
SELECT w.ward FROM wards w WHERE w.floor < 3 AND (SELECT COUNT(*) FROM visits v WHERE v.ward = w.ward AND urgent) > 10 ORDER BY w.ward

-- answered
SELECT *, (SELECT COUNT(*) FROM visits WHERE day < month) AS earlier FROM months

-- refused: a subquery of a public row reads one private relation.
-- hint: write the join as a named query of private rows before the statement.
SELECT w.ward, (SELECT COUNT(*) FROM visits v JOIN patients p ON p.patient = v.patient WHERE v.ward = w.ward) AS n FROM wards w

-- refused: a subquery of a public row compares one of its columns with that row.
-- hint: compare one of its columns with one of that row, as they are.
SELECT w.ward, (SELECT COUNT(*) FROM visits v WHERE v.ward || w.ward = 'AA') AS n FROM wards w

-- section: what strangers wrote: escapes, ORDER BY in a sum, NaN, windows over rows

-- answered
SELECT COUNT(*) FROM visits WHERE ward = E'A' OR doctor = E'bob ray ' OR doctor = e'O\'Brien\t\\'

-- answered
SELECT COUNT(*) FROM visits WHERE ward IN (VALUES ('A'), ('B'))

-- answered
SELECT COUNT(*) FROM visits WHERE (ward, code) IN (VALUES ('A', '1'), ('B', '2'))

-- answered
SELECT SUM(cost ORDER BY day), AVG(score ORDER BY seen DESC), COUNT(code ORDER BY day) FROM visits

-- answered
SELECT AVG(s) FROM (SELECT patient, SUM(cost ORDER BY day) AS s FROM visits GROUP BY patient)

-- answered
SELECT struct_extract(address, 'city') AS city, COUNT(*) FROM visits GROUP BY city

-- answered
SELECT COUNT(COLUMNS(* EXCLUDE (patient))) FROM (SELECT patient, cost, code FROM visits)

-- answered
SELECT date_trunc('month', day), COUNT(*) FROM visits GROUP BY ALL ORDER BY ALL LIMIT 3

-- refused: DuckDB's versions read \u00eb differently.
-- hint: write 'Zoë'.
SELECT COUNT(*) FROM visits WHERE doctor = E'Zo\u00eb'

-- refused: DuckDB's versions read \xc3 differently.
-- hint: put the character itself in its place.
SELECT COUNT(*) FROM visits WHERE doctor = E'Zo\xc3\xab'

-- refused: ALL and ANY compare only by = ANY and <> ALL over private rows.
-- hint: write cost > (SELECT max(floor) FROM wards).
SELECT COUNT(*) FROM visits WHERE cost > ALL (SELECT floor FROM wards)

-- refused: ALL and ANY compare only by = ANY and <> ALL over private rows.
-- hint: write cost <= (SELECT max(floor * 100) FROM wards WHERE wing = 'north').
SELECT COUNT(*) FROM visits WHERE cost <= ANY (SELECT floor * 100 FROM wards WHERE wing = 'north')

-- refused: 'NaN' is not a valid DOUBLE here.
-- hint: write isnan(score).
SELECT COUNT(*) FROM visits WHERE score = 'NaN'::DOUBLE

-- refused: the comparison combines DOUBLE with VARCHAR.
-- hint: write NOT (isinf(score) AND score < 0).
SELECT COUNT(*) FROM visits WHERE score <> '-inf'

-- refused: 'inf' is not a valid DOUBLE here.
-- hint: write CASE WHEN isfinite(score) THEN score END.
SELECT AVG(NULLIF(score, 'inf'::DOUBLE)) FROM visits

-- refused: the comparison combines INTERVAL with VARCHAR.
-- hint: write INTERVAL '3 days'.
SELECT COUNT(*) FROM visits WHERE stay > '3 days'

-- refused: >> can't be used on private rows.
-- hint: write ((visit - (visit & 3)) // 4) instead of visit >> 2.
SELECT COUNT(*) FROM visits WHERE visit >> 2 = 4

-- refused: ~ can't be used on private rows.
-- hint: write (-visit - 1) instead of ~visit.
SELECT COUNT(*) FROM visits WHERE ~visit = -4

-- refused: only lists and structs have elements, and this is a text.
-- hint: write substr(doctor, 1, 1) instead of doctor[1].
SELECT COUNT(*) FROM visits WHERE doctor[1] = 'b'

-- refused: a date is needed, and this is INTERVAL.
-- hint: write epoch(stay) instead of EXTRACT(HOUR FROM stay), for its seconds.
SELECT AVG(extract(hour FROM stay), contribution_bounds_per_row => (0, 9)) FROM visits

-- refused: getvariable can't be used on private rows: its answer is not about the rows.
-- hint: write $c instead of getvariable('c').
SELECT COUNT(*) FROM visits WHERE code = getvariable('c')

-- refused: buckets have no origin of their own here.
-- hint: write time_bucket(INTERVAL '1' DAY, seen).
SELECT COUNT(*) FROM visits WHERE time_bucket(INTERVAL 1 DAY, seen, TIMESTAMP '2024-01-01') = '2024-01-02'

-- refused: ward must be a group or be inside an aggregate.
-- hint: write SELECT ward, AVG(cost) FROM visits GROUP BY ward: groups in place of windows.
SELECT ward, AVG(cost) OVER (PARTITION BY ward) FROM visits

-- refused: COLUMNS takes names, a regular expression or * here.
-- hint: write COLUMNS(['ward', 'day']), with the names of the columns.
SELECT AVG(COLUMNS(lambda c: c = 'cost')) FROM visits

-- refused: json_exists can't be used on private rows: it fails on text that is no JSON.
-- hint: write (json_extract(doctor, '$.a') IS NOT NULL) instead of json_exists(doctor, '$.a').
SELECT COUNT(*) FROM visits WHERE json_exists(doctor, '$.a')

-- refused: json_value can't be used on private rows: it fails on text that is no JSON.
-- hint: write CASE WHEN left(json_extract(doctor, '$.a'), 1) NOT IN ('{', '[', 'n') THEN json_extract(doctor, '$.a') END instead of json_value(doctor, '$.a').
SELECT json_value(doctor, '$.a') AS k, COUNT(*) FROM visits GROUP BY k

-- refused: epsilon is given twice.
-- hint: leave epsilon out.
SELECT WITH DP OPTIONS (epsilon = 1, epsilon = 2) COUNT(*) FROM visits

-- answered
SELECT COUNT(*) FROM (SELECT patient, ward AS x FROM visits UNION ALL BY NAME SELECT ward AS x, patient FROM visits)

-- refused: UNION ALL BY NAME needs the same columns on both sides here.
-- hint: name the same columns on both sides.
SELECT COUNT(*) FROM (SELECT patient, ward FROM visits UNION ALL BY NAME SELECT patient FROM visits)

-- answered
SELECT COUNT(*) FROM visits WHERE (ward, cost) < ('B', 50)

-- answered
SELECT ward.lower() AS w, COUNT(*) FROM visits GROUP BY ward.lower()

-- answered
SELECT (SELECT MAX(floor) FROM wards w WHERE w.ward = v.ward) AS f, COUNT(*) FROM visits v GROUP BY f

-- refused: a column by its place in FROM can't be used on private rows.
-- hint: write the name of the column.
SELECT #1, COUNT(*) FROM visits GROUP BY ward

-- refused: MAX(v.patient) names no column of its own subquery, so it would aggregate the rows around it.
-- hint: name a column of the subquery's own tables in it.
SELECT COUNT(*) FROM visits v WHERE (SELECT MAX(v.patient) FROM wards w WHERE w.ward = v.ward) > 3

-- refused: there is no column wrad here.
-- hint: did you mean ward? Otherwise, text needs single quotes: write 'wrad'.
SELECT COUNT(DISTINCT "wrad") FROM visits

-- refused: the exact query would compute the subquery of this key twice for each row.
-- hint: name the key in a subquery, and group by that name.
SELECT (SELECT COUNT(*) FROM wards w WHERE w.ward = v.ward) + visit AS f, COUNT(*) FROM visits v GROUP BY f
