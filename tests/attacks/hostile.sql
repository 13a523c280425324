-- Hostile statements, each run on two databases that differ in one privacy unit with the worst values (tests/neighbours.py).
-- Both must give the same: the same refusal, word for word, or an answer of the same shape at the same price.
-- The verdict stands above each statement; the headings name what is attacked.

-- class: division

-- verdict: answered
SELECT COUNT(*) FROM people WHERE 100 // age > 2

-- verdict: answered
SELECT COUNT(*) FROM people WHERE 100 % age = 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE mod(100, age) = 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age / 0 > 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE big // -1 > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE big % -1 = 0

-- verdict: answered
SELECT SUM(100 // age, contribution_bounds_per_row => (0, 100)) FROM people

-- verdict: answered
SELECT AVG(salary / age, contribution_bounds_per_row => (0, 1000)) FROM people

-- verdict: answered
SELECT COUNT(*) FROM people WHERE price % age > 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE wide // tiny > 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE divide(100, age) > 2

-- verdict: refused
SELECT COUNT(*) FROM people WHERE gap / age > INTERVAL 1 DAY

-- verdict: answered
SELECT city, SUM(1 // age, contribution_bounds_per_row => (0, 1)) FROM people GROUP BY city

-- verdict: answered
SELECT COUNT(*) FILTER (WHERE 1 // age = 1) FROM people

-- class: overflow

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age + 2147483647 > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE big + 1 > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE (big + 1) % 2 = 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE big * big > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE huge * huge > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE huge + 1 > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE -big > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE -huge > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE abs(big) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE @huge > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE tiny * tiny > 100

-- verdict: answered
SELECT COUNT(*) FROM people WHERE -tiny > 100

-- verdict: answered
SELECT COUNT(*) FROM people WHERE wide * wide > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE wide + wide > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE price * 1000000000000 > 0

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age << 40 > 0

-- verdict: refused
SELECT COUNT(*) FROM people WHERE factorial(age) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE lcm(big, age) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE round(big, -5) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE round(price, -3) > 0

-- verdict: answered
SELECT SUM(big * big, contribution_bounds_per_row => (0, 100)) FROM people

-- verdict: answered
SELECT SUM(huge, contribution_bounds_per_row => (0, 100)) FROM people

-- verdict: answered
SELECT AVG(wide, contribution_bounds_per_row => (0, 100)) FROM people

-- verdict: refused
SELECT MAX(big + 1) FROM people

-- verdict: refused
SELECT pow(SUM(salary), 1000) FROM people

-- verdict: answered
SELECT COUNT(*) FROM people WHERE exp(salary) > 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE gamma(age) > 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE sqrt(age - 1000) > 1 OR ln(age) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE acos(salary) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE salary * 1e308 > 1

-- class: casts

-- verdict: answered
SELECT COUNT(*) FROM people WHERE name::INTEGER > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE CAST(code AS INTEGER) > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE TRY_CAST(code AS INTEGER) > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE CAST(salary AS INTEGER) > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE big::INTEGER > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE big::TINYINT > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE salary::DECIMAL(10, 2) > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE salary::FLOAT > 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE code::DATE > '2020-01-01'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE code::UUID = uid

-- verdict: answered
SELECT COUNT(*) FROM people WHERE code::BOOLEAN

-- verdict: answered
SELECT COUNT(*) FROM people WHERE code::TIMESTAMP > '2020-01-01'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE code::JSON IS NOT NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE code::BLOB IS NOT NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE code::INTEGER[] IS NOT NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE code::ENUM('a', 'b') = 'a'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE TRY_CAST(99999999999999999999999999999999999999999999 AS BIGINT) = age

-- verdict: answered
SELECT COUNT(*) FROM people WHERE CASE WHEN person_id = 666 THEN 99999999999999999999999999999999999999999999 ELSE 1 END = 1

-- verdict: answered
SELECT SUM(name::DOUBLE, contribution_bounds_per_row => (0, 1)) FROM people

-- verdict: answered
SELECT COUNT(*) FROM people WHERE seen::DATE = born

-- verdict: answered
SELECT COUNT(*) FROM people WHERE born::TIMESTAMP = seen

-- verdict: answered
SELECT COUNT(*) FROM people WHERE seen::VARCHAR LIKE '2%'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE gap::VARCHAR = '1 day'

-- class: implicit casts

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name = 5

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name IN (5, 6)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name + 1 > 5

-- verdict: refused
SELECT COUNT(*) FROM people WHERE COALESCE(name, 5) = '5'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE CASE WHEN active THEN name ELSE 5 END = '5'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE NULLIF(name, 5) = '5'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE GREATEST(name, 5) = '5'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age = '5'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name BETWEEN 1 AND 5

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age || name = '5x'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE active = 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name

-- verdict: refused
SELECT COUNT(*) FROM people WHERE NOT age

-- verdict: refused
SELECT COUNT(*) FROM people WHERE uid = 'x'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE born = name

-- verdict: refused
SELECT COUNT(*) FROM people WHERE born = 'yesterday'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE born > 5

-- verdict: refused
SELECT COUNT(*) FROM people p JOIN visits v ON p.name = v.person_id

-- class: constants that fail

-- verdict: refused
SELECT COUNT(*) FROM people WHERE CASE WHEN salary > 900000 THEN 'x'::INTEGER ELSE 1 END = 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age > 118 AND 1 // 0 = 1

-- verdict: answered
SELECT SUM(age) FILTER (WHERE salary > 5 AND 1 // 0 = 1) FROM people

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > 118 AND CAST('abc' AS DOUBLE) > 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > 118 AND DATE '2020-02-30' > born

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age > 118 AND 9223372036854775807 + 1 > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age > 118 AND 9223372036854775808 > 0

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > 118 AND 1e400 > 0

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > 118 AND INTERVAL '9999999999 days' > gap

-- class: volatile and raising functions

-- verdict: refused
SELECT COUNT(*) FROM people WHERE error('x') IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE CASE WHEN person_id = 666 THEN error(name) ELSE TRUE END

-- verdict: refused
SELECT COUNT(*) FROM people WHERE assert_true(age > 0)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE random() < 0.5

-- verdict: refused
SELECT COUNT(*) FROM people WHERE setseed(0.5) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE sleep_ms(age) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE pg_sleep(1) IS NULL

-- verdict: answered
SELECT COUNT(*) FROM people WHERE now() > seen

-- verdict: refused
SELECT COUNT(*) FROM people WHERE nextval('s') > 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE uuid() = uid

-- class: subqueries

-- verdict: answered
SELECT COUNT(*) FROM people WHERE age > (SELECT AVG(age) FROM people)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age = (SELECT age FROM people)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM people p WHERE p.person_id = 666)

-- verdict: answered
SELECT COUNT(*) FROM people WHERE person_id IN (SELECT person_id FROM visits)

-- verdict: answered
SELECT COUNT(*) FROM people WHERE person_id NOT IN (SELECT person_id FROM visits GROUP BY person_id HAVING COUNT(*) > 1)

-- verdict: answered
SELECT COUNT(*) FROM people p WHERE NOT EXISTS (SELECT * FROM visits v WHERE v.person_id = p.person_id AND v.amount > p.age)

-- verdict: answered
SELECT SUM(age) FROM people p WHERE salary > (SELECT SUM(amount) FROM visits v WHERE v.person_id = p.person_id)

-- verdict: answered
SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 FROM wards w WHERE w.ward = v.ward AND w.beds > v.amount)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age IN (SELECT person_id FROM visits)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE person_id IN (SELECT 666 FROM visits)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE person_id IN (SELECT person_id + 0 FROM visits)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.person_id = p.age)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.person_id = p.person_id OR v.amount > 9)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE NOT v.person_id = p.person_id)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.person_id = v.person_id)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE p.person_id = p.person_id)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.person_id - p.person_id = 0)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE salary > (SELECT amount FROM visits v WHERE v.person_id = p.person_id)

-- verdict: refused
SELECT COUNT(*) FROM people p WHERE salary > (SELECT MAX(amount) FROM visits v WHERE v.ward = p.name)

-- verdict: refused
SELECT COUNT(*) FROM visits v WHERE v.amount > (SELECT beds FROM wards w WHERE w.ward = v.ward)

-- verdict: refused
SELECT COUNT(*) FROM people p JOIN people q ON p.age = q.age AND EXISTS (SELECT 1 FROM visits v WHERE v.person_id = q.person_id)

-- verdict: refused
SELECT beds FROM wards w WHERE EXISTS (SELECT 1 FROM people p WHERE p.person_id = w.beds)

-- verdict: refused
SELECT (SELECT age FROM people LIMIT 1)

-- verdict: refused
SELECT (SELECT COUNT(*) FROM hidden)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > ALL (SELECT age FROM people)

-- verdict: refused
SELECT beds FROM wards WHERE beds > (SELECT salary FROM people WHERE person_id = 666)

-- class: text, patterns, formats

-- verdict: refused
SELECT COUNT(*) FROM people WHERE regexp_matches(name, code)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE regexp_matches(name, '(')

-- verdict: answered
SELECT COUNT(*) FROM people WHERE regexp_matches(name, '(a*)*b')

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name ~ code

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name SIMILAR TO code

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name LIKE code

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name LIKE '%a' ESCAPE code

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name LIKE 'a$' ESCAPE '$'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE name NOT LIKE '%CANARY%'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE strptime(code, '%Y-%m-%d') > seen

-- verdict: refused
SELECT COUNT(*) FROM people WHERE strftime(born, code) = '2020'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE strftime(born, '%Y') = '2020'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE chr(age) = 'A'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE lpad(name, age, '') = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE printf(code, age) = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE format(code, age) = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE from_base64(code) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE unhex(code) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE url_decode(code) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE hamming(name, code) > 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE jaccard(name, code) > 0.5

-- verdict: refused
SELECT COUNT(*) FROM people WHERE substr(name, 9223372036854775807) = ''

-- verdict: refused
SELECT COUNT(*) FROM people WHERE substr(name, big) = ''

-- verdict: refused
SELECT COUNT(*) FROM people WHERE repeat(name, age) = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE left(name, big) = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE to_base(age, age) = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE split_part(name, '', age) = 'a'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE levenshtein(name, code) > 3

-- verdict: answered
SELECT COUNT(*) FROM people WHERE upper(reverse(name)) = 'YRANAC'

-- class: dates

-- verdict: answered
SELECT COUNT(*) FROM people WHERE born + age > DATE '2020-01-01'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE seen + INTERVAL 1000 YEAR > TIMESTAMP '2020-01-01'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE make_date(age, age, age) > born

-- verdict: answered
SELECT COUNT(*) FROM people WHERE date_trunc('century', born) < born

-- verdict: answered
SELECT COUNT(*) FROM people WHERE last_day(born) > born

-- verdict: refused
SELECT COUNT(*) FROM people WHERE epoch_ns(seen) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE epoch(seen) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE date_diff('microsecond', seen, TIMESTAMP '2020-01-01') > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE seen - TIMESTAMP '2020-01-01' > INTERVAL 1 DAY

-- verdict: answered
SELECT COUNT(*) FROM people WHERE to_years(age) > gap

-- verdict: refused
SELECT COUNT(*) FROM people WHERE seen AT TIME ZONE name IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE timezone(name, seen) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE time_bucket(INTERVAL 0 DAY, seen) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE time_bucket(gap, seen) IS NULL

-- verdict: refused
SELECT COUNT(*) FROM people WHERE date_part(name, born) = 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE week(born) = 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age(seen) > gap

-- class: lists, structs, maps, JSON

-- verdict: answered
SELECT COUNT(*) FROM people WHERE tags[1000000] = 'x'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE tags[age] = 'x'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE tags[1:3:0] = ['x']

-- verdict: refused
SELECT COUNT(*) FROM people WHERE list_reduce(tags, lambda x, y: x || y) = 'x'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE list_resize(tags, big) IS NULL

-- verdict: answered
SELECT COUNT(*) FROM people WHERE js->'$.a' = '1'

-- verdict: refused
SELECT COUNT(*) FROM people WHERE json_extract(js, code) IS NULL

-- verdict: answered
SELECT COUNT(*) FROM people WHERE info.a > 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE info.nothing > 1

-- verdict: refused
SELECT COUNT(*) FROM people WHERE len(range(big)) > 1

-- verdict: answered
SELECT COUNT(*) FROM people, UNNEST(tags)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE MAP {'a': 1}[name] = 1

-- class: a.15 plans and aggregates

-- verdict: refused
SELECT SUMMARIZE people

-- verdict: refused
SELECT MEDIAN(big) FROM people

-- verdict: answered
SELECT QUANTILE_CONT(salary, 0.5, contribution_bounds_per_row => (0, 1000)) FROM people

-- verdict: refused
SELECT KURTOSIS(salary) FROM people

-- verdict: refused
SELECT SKEWNESS(salary) FROM people

-- verdict: refused
SELECT MAD(born) FROM people

-- verdict: refused
SELECT AVG(born) FROM people

-- verdict: refused
SELECT BITSTRING_AGG(age) FROM people

-- verdict: refused
SELECT MAX(age, -1) FROM people

-- verdict: refused
SELECT FIRST(name) FROM people

-- verdict: refused
SELECT ANY_VALUE(name) FROM people

-- verdict: refused
SELECT LIST(name) FROM people

-- verdict: refused
SELECT STRING_AGG(name, ',') FROM people

-- verdict: refused
SELECT ARG_MAX(name, salary) FROM people

-- verdict: refused
SELECT MODE(name) FROM people

-- verdict: refused
SELECT HISTOGRAM(name) FROM people

-- verdict: refused
SELECT ENTROPY(name) FROM people

-- verdict: answered
SELECT APPROX_COUNT_DISTINCT(name) FROM people

-- verdict: answered
SELECT SUM(DISTINCT age) FROM people

-- verdict: refused
SELECT sum_no_overflow(big) FROM people

-- verdict: refused
SELECT PRODUCT(age) FROM people

-- verdict: refused
SELECT BIT_XOR(person_id) FROM people

-- verdict: refused
SELECT COVAR_POP(age, salary) FROM people

-- class: files

-- verdict: refused
SELECT * FROM read_csv('/etc/passwd')

-- verdict: refused
SELECT COUNT(*) FROM read_parquet('people.parquet')

-- verdict: refused
SELECT * FROM '/etc/passwd'

-- verdict: refused
SELECT * FROM "/proc/self/environ"

-- verdict: refused
SELECT * FROM glob('*')

-- verdict: refused
SELECT * FROM sniff_csv('/etc/passwd')

-- verdict: refused
SELECT COUNT(*) FROM people WHERE read_text('/etc/passwd') IS NULL

-- verdict: refused
SELECT * FROM people.parquet

-- class: writing

-- verdict: refused
COPY people TO '/tmp/out.csv'

-- verdict: refused
COPY (SELECT * FROM people) TO '/tmp/out.csv'

-- verdict: refused
EXPORT DATABASE '/tmp/out'

-- verdict: refused
ATTACH ':memory:' AS m

-- verdict: refused
WITH x AS (COPY people TO '/tmp/out.csv') SELECT 1

-- verdict: refused
WITH x AS (INSERT INTO wards VALUES ('Z', 1) RETURNING *) SELECT * FROM x

-- verdict: refused
WITH x AS (DELETE FROM people RETURNING *) SELECT COUNT(*) FROM x

-- verdict: refused
INSERT INTO wards VALUES ('Z', 1)

-- verdict: refused
UPDATE people SET age = 1

-- verdict: refused
DELETE FROM people

-- verdict: refused
CREATE TABLE copy AS SELECT * FROM people

-- verdict: refused
CREATE TEMP TABLE people AS SELECT 1 AS person_id

-- verdict: refused
CREATE VIEW v AS SELECT * FROM people

-- verdict: refused
DROP TABLE people

-- verdict: refused
TRUNCATE people

-- class: settings and other statements

-- verdict: refused
SET threads = 1

-- verdict: refused
RESET threads

-- verdict: refused
SET VARIABLE x = 1

-- verdict: refused
PRAGMA database_list

-- verdict: refused
PRAGMA storage_info('people')

-- verdict: refused
CALL duckdb_tables()

-- verdict: refused
LOAD httpfs

-- verdict: refused
INSTALL httpfs

-- verdict: refused
USE memory

-- verdict: refused
CHECKPOINT

-- verdict: refused
PREPARE p AS SELECT * FROM people

-- verdict: refused
EXECUTE p

-- verdict: refused
CREATE SECRET s (TYPE s3)

-- verdict: refused
EXPLAIN ANALYZE SELECT COUNT(*) FROM people

-- verdict: answered
DESCRIBE people

-- verdict: refused
SHOW ALL TABLES

-- verdict: answered
SUMMARIZE people

-- verdict: refused
VACUUM

-- verdict: refused
BEGIN

-- class: b.5 names

-- verdict: refused
SELECT COUNT(*) FROM hidden

-- verdict: refused
SELECT * FROM hidden

-- verdict: answered
SELECT COUNT(*) FROM memory.main.people

-- verdict: refused
SELECT COUNT(*) FROM main.hidden

-- verdict: refused
SELECT COUNT(*) FROM information_schema.tables

-- verdict: refused
SELECT * FROM sqlite_master

-- verdict: refused
SELECT * FROM duckdb_secrets()

-- verdict: refused
SELECT * FROM some_dataframe

-- verdict: refused
SELECT * FROM con

-- verdict: answered
WITH people AS (SELECT 1 AS person_id, 2 AS age) SELECT COUNT(*) FROM people

-- verdict: refused
WITH wards AS (SELECT * FROM people) SELECT * FROM wards

-- verdict: refused
SELECT rowid FROM people

-- verdict: refused
SELECT MAX(rowid) FROM people

-- class: dynamic SQL

-- verdict: refused
SELECT * FROM query('SELECT * FROM people')

-- verdict: refused
SELECT * FROM query_table('people')

-- verdict: refused
SELECT * FROM json_execute_serialized_sql('{}')

-- verdict: refused
SELECT COUNT(*) FROM people WHERE getvariable('x') IS NULL

-- verdict: refused
SELECT getenv('HOME')

-- class: metadata

-- verdict: refused
SELECT * FROM duckdb_tables()

-- verdict: refused
SELECT estimated_size FROM duckdb_tables()

-- verdict: refused
SELECT * FROM pg_class

-- verdict: refused
SELECT stats(age) FROM people

-- verdict: refused
SELECT typeof(name) FROM people

-- verdict: refused
SELECT enum_range(name) FROM people

-- class: more than one statement, tricks of text

-- verdict: refused
SELECT 1; DROP TABLE people

-- verdict: refused
SELECT COUNT(*) FROM people; SELECT * FROM people

-- verdict: answered
SELECT COUNT(*) /* FROM wards */ FROM people -- ; SELECT * FROM people

-- verdict: refused
SELECT * /* COUNT(*) */ FROM people

-- verdict: refused
SELECT COUNT(*) FROM {{table}}

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > ?

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > $missing

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > :x

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name = 'a

-- verdict: refused
SELECT COUNT(*) FROM people WHERE ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((age > 1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))

-- verdict: refused
SELECT 0x1F FROM people

-- class: poisoning

-- verdict: answered
SELECT SUM(salary, contribution_bounds_per_row => (0, 1000)) FROM people

-- verdict: answered
SELECT AVG(salary, contribution_bounds_per_row => (0, 1000)) FROM people

-- verdict: answered
SELECT STDDEV(salary, contribution_bounds_per_row => (0, 1000)) FROM people

-- verdict: refused
SELECT SUM(salary) FROM people

-- verdict: refused
SELECT SUM(salary, contribution_bounds_per_row => (1000, 0)) FROM people

-- verdict: refused
SELECT SUM(salary, contribution_bounds_per_row => (0, 1e400)) FROM people

-- verdict: refused
SELECT SUM(salary, contribution_bounds_per_row => (0, MAX(salary))) FROM people

-- verdict: refused
SELECT SUM(salary, contribution_bounds_per_row => ('nan', 1)) FROM people

-- verdict: refused
SELECT SUM(age, contribution_bounds_per_row => (0, 99999999999999999999999999999999999999)) FROM people

-- verdict: answered
SELECT salary, COUNT(*) FROM people GROUP BY salary

-- verdict: refused
SELECT COUNT(*) FROM people WHERE salary = 'NaN'::DOUBLE

-- verdict: answered
SELECT SUM(CASE WHEN person_id = 666 THEN 1e9 ELSE 0 END) FROM people

-- class: relational leaks

-- verdict: refused
SELECT * FROM people

-- verdict: refused
SELECT name FROM people

-- verdict: refused
SELECT person_id, COUNT(*) FROM people GROUP BY person_id

-- verdict: answered
SELECT DISTINCT city FROM people

-- verdict: answered
SELECT name, COUNT(*) FROM people GROUP BY name

-- verdict: answered
SELECT city, COUNT(*) FROM people GROUP BY ALL

-- verdict: refused
SELECT COUNT(*) FROM (SELECT * FROM people LIMIT 1)

-- verdict: refused
SELECT COUNT(*) FROM (SELECT * FROM people ORDER BY salary LIMIT 1)

-- verdict: refused
SELECT COUNT(*) FROM people USING SAMPLE 10 ROWS

-- verdict: refused
SELECT COUNT(*) FROM people TABLESAMPLE 10 PERCENT

-- verdict: refused
SELECT COUNT(*) FROM people LIMIT (SELECT age FROM people WHERE person_id = 666)

-- verdict: refused
SELECT COUNT(*) FROM people HAVING MAX(salary) > 1

-- verdict: answered
SELECT COUNT(*) FROM people QUALIFY row_number() OVER () = 1

-- verdict: refused
SELECT name, row_number() OVER (ORDER BY salary) FROM people

-- verdict: refused
SELECT SUM(age) OVER (ORDER BY salary) FROM people

-- verdict: refused
SELECT DISTINCT ON (city) city, name FROM people

-- verdict: refused
PIVOT people ON name USING COUNT(*)

-- verdict: refused
UNPIVOT people ON age INTO NAME k VALUE v

-- verdict: refused
SELECT COLUMNS('.*') FROM people

-- verdict: answered
SELECT COUNT(COLUMNS(*)) FROM people

-- verdict: answered
SELECT COUNT(*) FROM (SELECT 1 AS person_id, age FROM people)

-- verdict: answered
SELECT COUNT(*) FROM (SELECT age AS person_id, person_id AS age FROM people)

-- verdict: answered
SELECT COUNT(DISTINCT person_id) FROM (SELECT person_id % 2 AS person_id FROM people)

-- verdict: refused
SELECT COUNT(*) FROM people AS t(a, b, c)

-- verdict: refused
SELECT COUNT(*) FROM people a, people b

-- verdict: refused
SELECT COUNT(*) FROM people a JOIN people b ON a.city = b.city

-- verdict: refused
SELECT COUNT(*) FROM people a JOIN visits b ON a.person_id = b.person_id OR TRUE

-- verdict: refused
SELECT COUNT(*) FROM people a JOIN visits b ON a.person_id > b.person_id

-- verdict: refused
SELECT COUNT(*) FROM people a JOIN visits b ON a.person_id = a.person_id

-- verdict: answered
SELECT COUNT(*) FROM people NATURAL JOIN visits

-- verdict: refused
SELECT COUNT(*) FROM people POSITIONAL JOIN visits

-- verdict: refused
SELECT COUNT(*) FROM people ASOF JOIN visits USING (person_id, born)

-- verdict: refused
SELECT COUNT(*) FROM wards WHERE ward NOT IN (SELECT city FROM people)

-- verdict: refused
SELECT ward FROM wards EXCEPT SELECT city FROM people

-- verdict: refused
SELECT ward FROM wards UNION SELECT name FROM people

-- verdict: answered
SELECT COUNT(*) FROM (SELECT person_id FROM people EXCEPT SELECT person_id FROM visits)

-- verdict: refused
SELECT COUNT(*) FROM people, LATERAL (SELECT COUNT(*) FROM people) x

-- verdict: answered
SELECT COUNT(*) FROM people, generate_series(1, 10000)

-- verdict: answered
SELECT COUNT(*) FROM people CROSS JOIN wards

-- verdict: refused
SELECT COUNT(*) FROM people WHERE name COLLATE NOCASE = 'canary'

-- verdict: refused
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, people) SELECT COUNT(*) FROM r

-- verdict: refused
SELECT age + 1 FROM people

-- verdict: refused
SELECT person_id FROM people WHERE person_id = 666

-- verdict: refused
SELECT COUNT(*), name FROM people

-- verdict: answered
SELECT COUNT(*) FROM people WHERE person_id = 666

-- verdict: refused
SELECT person_id = 666 AS it, COUNT(*) FROM people GROUP BY ALL

-- verdict: refused
SELECT EXISTS (SELECT 1 FROM people WHERE person_id = 666)

-- class: budget

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 0) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = -1) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1e-400) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 'nan') COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1e9) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1, epsilon = 2) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = age) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (delta = 1) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (seed = 1) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (privacy_unit_column = city) COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (noise = 'NONE') COUNT(*) FROM people

-- verdict: refused
SELECT WITH DP OPTIONS (max_rows_contributed = 0) COUNT(*) FROM people

-- verdict: refused
SELECT COUNT(*, epsilon => 0) FROM people

-- verdict: refused
SELECT WITH NODP COUNT(*) FROM people

-- verdict: refused
SELECT dpsql__mode('DP') FROM people

-- class: mechanisms

-- verdict: answered
SELECT EXPMECH(COUNT(*) FILTER (WHERE city = ward), epsilon => 1) OVER wards FROM people

-- verdict: refused
SELECT EXPMECH(SUM(salary), epsilon => 1) OVER wards FROM people

-- verdict: refused
SELECT name, EXPMECH(COUNT(*), epsilon => 1) OVER people FROM people

-- verdict: refused
SELECT ABOVE_THRESHOLD(COUNT(*), 1, max_hits => 1000000000000, epsilon => 1) FROM people

-- verdict: answered
SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE 1 // age = beds), 1, epsilon => 1) OVER wards FROM people

-- verdict: answered
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MEDIAN(salary) AS m FROM people

-- verdict: refused
SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MEDIAN(name) AS m FROM people

-- verdict: answered
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 10, bounds = (0, 100)) AVG(100 // age) AS a FROM people

-- verdict: refused
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 10, bounds = (0, 100)) error('x') AS a FROM people

-- verdict: answered
SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 10, bounds = (0, 100)) MAX(name) AS a FROM people

-- class: h. time and size

-- verdict: refused
SELECT COUNT(*) FROM people WHERE CASE WHEN person_id = 666 THEN length(repeat('x', 1000000)) ELSE 1 END > 0

-- verdict: refused
SELECT COUNT(*) FROM people WHERE list_sum(range(1000000)) > 0

-- verdict: answered
SELECT COUNT(*) FROM range(100000000)

-- verdict: answered
SELECT SUM(range) FROM range(10)

-- class: more of all

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM people WHERE CASE WHEN person_id = 666 THEN TRY_CAST(name AS INTEGER) ELSE 1 END = 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE name = e'a'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE name = $$CANARY$$

-- verdict: refused
SELECT COUNT(*) FROM people WHERE nothing = 1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE huge + (huge + (huge + price)) > 0 OR huge - price > 0

-- verdict: answered
SELECT SUM(huge - price, contribution_bounds_per_row => (0, 9)), SUM(huge + price, contribution_bounds_per_row => (0, 9)) FROM people

-- verdict: answered
SELECT AVG(big * 1.5, contribution_bounds_per_row => (0, 9)), AVG(big * 2.5, contribution_bounds_per_row => (0, 9)) FROM people WHERE big * 1.5 > 0

-- verdict: answered
SELECT active, COUNT(*) FROM people GROUP BY active

-- verdict: answered
SELECT active, SUM(age) FROM people GROUP BY active HAVING COUNT(*) > -1000000

-- verdict: answered
SELECT ward, SUM(amount) FROM visits GROUP BY ward

-- verdict: answered
SELECT date_trunc('month', born) AS m, COUNT(*) FROM people GROUP BY m

-- verdict: refused
SELECT gap, COUNT(*) FROM people WHERE gap > 5 GROUP BY gap

-- verdict: answered
SELECT COUNT(*) FROM people WHERE clock::VARCHAR = '10:00:00'

-- verdict: answered
SELECT COUNT(*) FROM people WHERE hour(clock) = 24

-- verdict: answered
SELECT COUNT(*) FROM people WHERE GREATEST(salary, 0) < LEAST(big, 5)

-- verdict: refused
SELECT COUNT(*) FROM people WHERE year(name) = 2020

-- class: public functions, names, shapes of FROM, subqueries in public places

-- verdict: refused
SELECT current_setting('threads')

-- verdict: refused
SELECT getvariable('x')

-- verdict: refused
SELECT current_query()

-- verdict: refused
SELECT version()

-- verdict: refused
SELECT current_database()

-- verdict: refused
SELECT pg_get_viewdef(1)

-- verdict: refused
SELECT getenv('HOME') AS h

-- verdict: refused
SELECT read_text('/etc/passwd') AS t

-- verdict: refused
SELECT * FROM duckdb_settings()

-- verdict: refused
SELECT * FROM pragma_storage_info('people')

-- verdict: refused
SELECT * FROM pragma_table_info('people')

-- verdict: refused
SELECT * FROM duckdb_columns()

-- verdict: refused
SELECT * FROM information_schema.columns

-- verdict: refused
SELECT * FROM people_df

-- verdict: refused
SELECT * FROM policy

-- verdict: refused
WITH People AS (SELECT * FROM people) SELECT * FROM People

-- verdict: refused
WITH a AS (SELECT * FROM people), b AS (SELECT * FROM a) SELECT * FROM b

-- verdict: answered
WITH w AS (SELECT name FROM people) SELECT COUNT(*) FROM wards, w

-- verdict: refused
WITH "WARDS" AS (SELECT * FROM people) SELECT * FROM wards

-- verdict: refused
SELECT * FROM "PEOPLE"

-- verdict: refused
SELECT "NAME" FROM people

-- verdict: refused
FROM people

-- verdict: refused
FROM people SELECT name

-- verdict: refused
FROM (FROM people)

-- verdict: answered
SELECT COUNT(*) FROM (FROM people)

-- verdict: refused
SELECT * EXCLUDE (person_id) FROM people

-- verdict: refused
SELECT * REPLACE (1 AS person_id) FROM people

-- verdict: answered
SELECT COUNT(*) FROM (SELECT * REPLACE (1 AS person_id) FROM people)

-- verdict: answered
SELECT COUNT(*) FROM (SELECT * EXCLUDE (person_id) FROM people)

-- verdict: answered
SELECT COUNT(*) FROM (SELECT * RENAME (age AS person_id) FROM people)

-- verdict: answered
SELECT COUNT(*) FROM (SELECT COLUMNS('a.*') FROM people)

-- verdict: refused
SELECT people FROM people

-- verdict: refused
SELECT COUNT(*) FROM people WHERE people IS NULL

-- verdict: refused
SELECT struct_pack(a := name) FROM people

-- verdict: refused
SELECT list_transform(tags, x -> x) FROM people

-- verdict: answered
SELECT COUNT(*) FROM people WHERE len(list_filter(tags, x -> x = name)) > 0

-- verdict: answered
SELECT COUNT(*) FROM people WHERE len([x FOR x IN tags]) > 1

-- verdict: refused
SELECT UNNEST(tags) FROM people

-- verdict: answered
SELECT COUNT(*) FROM (SELECT person_id, UNNEST(tags) AS t FROM people)

-- verdict: refused
SELECT COUNT(*) FROM wards, LATERAL (SELECT name FROM people WHERE ward = name) l

-- verdict: refused
SELECT (SELECT MAX(name) FROM people WHERE city = w.ward) FROM wards w

-- verdict: answered
SELECT w.ward, (SELECT COUNT(*) FROM people p WHERE p.city = w.ward) FROM wards w

-- verdict: refused
SELECT ARRAY(SELECT name FROM people)

-- verdict: refused
VALUES ((SELECT name FROM people LIMIT 1))

-- verdict: answered
SELECT * FROM (VALUES ((SELECT MAX(age) FROM people))) v(x)

-- verdict: refused
SELECT * FROM (PIVOT people ON city USING COUNT(*))

-- verdict: refused
SELECT * FROM people PIVOT (COUNT(*) FOR city IN ('Delft'))

-- verdict: refused
CREATE MACRO f() AS TABLE SELECT * FROM people

-- verdict: refused
SELECT COUNT(*) FROM people UNION ALL SELECT age FROM people

-- verdict: refused
SELECT age FROM people INTERSECT SELECT beds FROM wards

-- verdict: answered
SELECT COUNT(*) FROM (SELECT person_id, age FROM people UNION SELECT person_id, age FROM people)

-- verdict: answered
SELECT COUNT(*) FROM (SELECT person_id, age FROM people UNION ALL BY NAME SELECT age, person_id FROM people)

-- verdict: refused
SELECT COUNT(*) FROM (SELECT * FROM people USING SAMPLE 1)

-- verdict: refused
SELECT COUNT(*) FROM people TABLESAMPLE reservoir(10 ROWS) REPEATABLE (1)

-- verdict: refused
SELECT COUNT(*) FROM wards POSITIONAL JOIN people

-- verdict: refused
SELECT COUNT(*) FROM wards ASOF JOIN people ON wards.beds >= people.age

-- verdict: refused
SELECT COUNT(*) FROM wards ANTI JOIN people ON wards.ward = people.name

-- verdict: refused
SELECT COUNT(*) FROM wards SEMI JOIN people ON wards.ward = people.name

-- verdict: refused
SELECT name FROM people GROUP BY ALL ORDER BY MAX(salary)

-- verdict: refused
SELECT city FROM people GROUP BY city ORDER BY name

-- verdict: refused
SELECT city, COUNT(*) FROM people GROUP BY city ORDER BY ANY_VALUE(name)

-- verdict: refused
SELECT COUNT(*) FROM people ORDER BY salary

-- verdict: refused
SELECT COUNT(*) OVER () FROM people

-- verdict: refused
SELECT SUM(COUNT(*)) OVER (ORDER BY MAX(salary)) FROM people GROUP BY city

-- verdict: answered
SELECT COUNT(*) FROM people WINDOW w AS (ORDER BY salary)

-- verdict: refused
SELECT COUNT(*) FILTER (WHERE name = (SELECT MAX(name) FROM people)) FROM people

-- verdict: refused
SELECT DISTINCT ON (city) city, COUNT(*) FROM people GROUP BY city ORDER BY city, MAX(salary)

-- verdict: answered
SELECT COUNT(*) AS person_id, person_id AS c FROM people

-- verdict: refused
SELECT 1 AS age, age FROM people

-- verdict: refused
SELECT age AS x, x + COUNT(*) FROM people

-- verdict: refused
SELECT city AS name, COUNT(*) FROM people GROUP BY name

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age > $1

-- verdict: answered
SELECT COUNT(*) FROM people WHERE name = 'x';;

-- verdict: refused
SELECT COUNT(*) FROM people; COPY people TO 'x'

-- verdict: refused
SELECT COUNT(*) FROM рeople

-- verdict: refused
SELECT COUNT(*) FROM people WHERE nаme = 'x'

-- verdict: refused
SELECT COUNT(DISTINCT "dpsql_unit") FROM people

-- verdict: refused
SELECT dpsql_base.name FROM people

-- verdict: refused
SELECT __dpsql_salt__ FROM people

-- verdict: refused
SELECT COUNT(*) FROM people WHERE age = __dpsql_salt__

-- verdict: refused
SELECT * FROM dpsql_block_1

-- verdict: refused
SELECT * FROM dpsql_loading

-- verdict: refused
EXPLAIN (ANALYZE) SELECT COUNT(*) FROM people

-- verdict: answered
SELECT COUNT(*) FROM people LIMIT (SELECT ABS(COUNT(*)) + 1 FROM visits)

-- verdict: refused
SELECT beds FROM wards LIMIT (SELECT age FROM people WHERE person_id = 666)

-- verdict: refused
SELECT beds FROM wards ORDER BY (SELECT MAX(name) FROM people)

-- verdict: refused
SELECT beds FROM wards QUALIFY beds > (SELECT age FROM people LIMIT 1)

-- verdict: refused
SELECT COUNT(*) FROM wards HAVING COUNT(*) > (SELECT age FROM people LIMIT 1)

-- verdict: refused
SELECT beds FROM wards GROUP BY (SELECT age FROM people LIMIT 1), beds

-- verdict: refused
SELECT COUNT(*) FROM wards JOIN wards w2 ON EXISTS (SELECT 1 FROM people)

-- verdict: refused
SELECT MAX(beds) FILTER (WHERE ward IN (SELECT name FROM people)) FROM wards

-- verdict: refused
SELECT CASE WHEN EXISTS (SELECT 1 FROM people WHERE age > 118) THEN 1 ELSE 1 // 0 END

-- verdict: refused
SELECT error((SELECT MAX(name) FROM people))

-- verdict: answered
SELECT COUNT(*) FROM range((SELECT MAX(age) FROM people))

-- verdict: refused
SELECT * FROM unnest((SELECT LIST(name) FROM people))

-- verdict: refused
SELECT * FROM generate_series(1, (SELECT age FROM people LIMIT 1))

-- verdict: refused
SELECT COUNT(*) FROM people GROUP BY CUBE (city, name) HAVING MAX(salary) > 1

-- verdict: refused
SELECT * FROM wards w, people p WHERE w.ward = p.city

-- verdict: refused
SELECT w.* FROM wards w JOIN people p ON w.ward = p.city

-- verdict: answered
SELECT w.beds, COUNT(*) FROM wards w, people p GROUP BY w.beds

-- class: caps, bounds and noise that are found

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) COUNT(*), SUM(amount, contribution_bounds_per_row => AUTO) FROM visits

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) ward, COUNT(*), AVG(amount, contribution_bounds_per_row => AUTO), COUNT(DISTINCT person_id) FROM visits GROUP BY ward

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = AUTO, max_rows_contributed = AUTO, max_groups_contributed = AUTO) day, COUNT(*) FROM visits GROUP BY day

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = AUTO, max_rows_contributed = AUTO, max_groups_contributed = AUTO) name, COUNT(*), COUNT(DISTINCT person_id) FROM people GROUP BY name

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = GAUSSIAN, max_rows_contributed = AUTO, max_groups_contributed = AUTO) active, SUM(salary, contribution_bounds_per_row => AUTO), STDDEV(price, contribution_bounds_per_row => AUTO) FROM people GROUP BY active

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) SUM(big, contribution_bounds_per_row => AUTO), SUM(tiny, contribution_bounds_per_row => AUTO), AVG(wide, contribution_bounds_per_row => AUTO) FROM people

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) MEDIAN(salary, contribution_bounds_per_row => (0, 1e9)), COUNT(DISTINCT age) FROM people

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO, report_cut = TRUE) COUNT(*), SUM(amount) FROM visits

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) COUNT(*) FROM people, UNNEST(tags) AS t(tag)

-- verdict: answered
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = AUTO, max_groups_contributed = AUTO) COUNT(*) FROM visits JOIN people USING (person_id) WHERE amount / age > 1

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1, error = 5, max_rows_contributed = AUTO, max_groups_contributed = AUTO) COUNT(*) FROM visits

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = visits.amount) COUNT(*) FROM visits

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = (SELECT MAX(amount) FROM visits)) COUNT(*) FROM visits

-- verdict: refused
SELECT WITH DP OPTIONS (epsilon = 1, noise = people.name) COUNT(*) FROM people

-- class: intervals in joins that DuckDB can't run (it fails if there is any row)

-- verdict: refused
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap < v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON NOT p.gap = v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap NOT IN (v.gap)

-- verdict: refused
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap IS DISTINCT FROM v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap BETWEEN v.gap AND v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap = v.gap OR p.age = 3

-- verdict: answered
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap = v.gap

-- verdict: answered
SELECT COUNT(*) FROM people p SEMI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON EPOCH(p.gap) < EPOCH(v.gap)

-- verdict: refused
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap < v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON NOT p.gap = v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap NOT IN (v.gap)

-- verdict: refused
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap IS DISTINCT FROM v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap BETWEEN v.gap AND v.gap

-- verdict: refused
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap = v.gap OR p.age = 3

-- verdict: answered
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON p.gap = v.gap

-- verdict: answered
SELECT COUNT(*) FROM people p ANTI JOIN (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) ON EPOCH(p.gap) < EPOCH(v.gap)

-- verdict: answered
SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) WHERE v.gap > p.gap)

-- verdict: answered
SELECT COUNT(*) FROM people p WHERE p.gap NOT IN (SELECT v.gap FROM (VALUES (INTERVAL 1 DAY), (INTERVAL 2 DAY)) AS v(gap) WHERE v.gap < p.gap)

-- verdict: answered
SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10), blocks = 20) COUNT(*) FROM people a ANTI JOIN people b ON a.gap < b.gap
