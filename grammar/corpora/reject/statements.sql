-- case: COPY visits TO 'out.csv'
COPY visits TO 'out.csv'
----
ParseError: COPY is not a statement of dpsql.
  1 |   COPY visits TO 'out.csv'
        ^^^^
Hint: ask the query alone, and write the data frame of its answer to a file.
====
-- case: COPY (SELECT * FROM visits) TO 'out.csv'
COPY (SELECT * FROM visits) TO 'out.csv'
----
ParseError: COPY is not a statement of dpsql.
  1 |   COPY (SELECT * FROM visits) TO 'out.csv'
        ^^^^
Hint: ask the query alone, and write the data frame of its answer to a file.
====
-- case: ATTACH 'other.duckdb' AS other
ATTACH 'other.duckdb' AS other
----
ParseError: ATTACH is not a statement of dpsql.
  1 |   ATTACH 'other.duckdb' AS other
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: DETACH other
DETACH other
----
ParseError: DETACH is not a statement of dpsql.
  1 |   DETACH other
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: PRAGMA storage_info('visits')
PRAGMA storage_info('visits')
----
ParseError: PRAGMA is not a statement of dpsql.
  1 |   PRAGMA storage_info('visits')
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: SET threads = 1
SET threads = 1
----
ParseError: SET is not a statement of dpsql.
  1 |   SET threads = 1
        ^^^
Hint: the only setting is intervals, by which their ends are columns of the answers.
====
-- case: RESET threads
RESET threads
----
ParseError: RESET is not a statement of dpsql.
  1 |   RESET threads
        ^^^^^
Hint: the only setting is intervals, by which their ends are columns of the answers.
====
-- case: INSTALL httpfs
INSTALL httpfs
----
ParseError: INSTALL is not a statement of dpsql.
  1 |   INSTALL httpfs
        ^^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: LOAD httpfs
LOAD httpfs
----
ParseError: LOAD is not a statement of dpsql.
  1 |   LOAD httpfs
        ^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: CREATE TABLE x AS SHOW BUDGET
CREATE TABLE x AS SHOW BUDGET
----
ParseError: a table is created of a query's answer.
  1 |   CREATE TABLE x AS SHOW BUDGET
                          ^^^^
Hint: write CREATE TABLE counts AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward.
====
-- case: CREATE VIEW v AS SELECT * FROM visits
CREATE VIEW v AS SELECT * FROM visits
----
ParseError: CREATE VIEW is not a statement of dpsql.
  1 |   CREATE VIEW v AS SELECT * FROM visits
        ^^^^^^
Hint: write WITH v AS (SELECT * FROM visits) SELECT COUNT(*) FROM v.
====
-- case: DROP TABLE visits
DROP TABLE visits
----
ParseError: DROP is not a statement of dpsql.
  1 |   DROP TABLE visits
        ^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: INSERT INTO visits VALUES (1)
INSERT INTO visits VALUES (1)
----
ParseError: an answer is not written into a table.
  1 |   INSERT INTO visits VALUES (1)
               ^^^^
Hint: a name and << before a query keep its answer in the notebook.
====
-- case: UPDATE visits SET age = 1
UPDATE visits SET age = 1
----
ParseError: UPDATE is not a statement of dpsql.
  1 |   UPDATE visits SET age = 1
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: DELETE FROM visits
DELETE FROM visits
----
ParseError: DELETE is not a statement of dpsql.
  1 |   DELETE FROM visits
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: ALTER TABLE visits ADD COLUMN x INT
ALTER TABLE visits ADD COLUMN x INT
----
ParseError: ALTER is not a statement of dpsql.
  1 |   ALTER TABLE visits ADD COLUMN x INT
        ^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: TRUNCATE visits
TRUNCATE visits
----
ParseError: TRUNCATE is not a statement of dpsql.
  1 |   TRUNCATE visits
        ^^^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: VACUUM
VACUUM
----
ParseError: VACUUM is not a statement of dpsql.
  1 |   VACUUM
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: CHECKPOINT
CHECKPOINT
----
ParseError: CHECKPOINT is not a statement of dpsql.
  1 |   CHECKPOINT
        ^^^^^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: EXPORT DATABASE 'x'
EXPORT DATABASE 'x'
----
ParseError: EXPORT is not a statement of dpsql.
  1 |   EXPORT DATABASE 'x'
        ^^^^^^
Hint: ask the query alone, and write the data frame of its answer to a file.
====
-- case: IMPORT DATABASE 'x'
IMPORT DATABASE 'x'
----
ParseError: IMPORT is not a statement of dpsql.
  1 |   IMPORT DATABASE 'x'
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: PREPARE q AS SELECT 1
PREPARE q AS SELECT 1
----
ParseError: PREPARE is not a statement of dpsql.
  1 |   PREPARE q AS SELECT 1
        ^^^^^^^
Hint: write the query with parameters, and give their values with it.
====
-- case: EXECUTE q
EXECUTE q
----
ParseError: EXECUTE is not a statement of dpsql.
  1 |   EXECUTE q
        ^^^^^^^
Hint: write the query with parameters, and give their values with it.
====
-- case: CALL pragma_version()
CALL pragma_version()
----
ParseError: CALL is not a statement of dpsql.
  1 |   CALL pragma_version()
        ^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: USE main
USE main
----
ParseError: USE is not a statement of dpsql.
  1 |   USE main
        ^^^
Hint: dpsql only answers questions: write a query.
====
-- case: BEGIN
BEGIN
----
ParseError: BEGIN is not a statement of dpsql.
  1 |   BEGIN
        ^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: COMMIT
COMMIT
----
ParseError: COMMIT is not a statement of dpsql.
  1 |   COMMIT
        ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: MERGE INTO visits USING wards ON TRUE WHEN MATCHED THEN DELETE
MERGE INTO visits USING wards ON TRUE WHEN MATCHED THEN DELETE
----
ParseError: an answer is not written into a table.
  1 |   MERGE INTO visits USING wards ON TRUE WHEN MATCHED THEN DELETE
              ^^^^
Hint: a name and << before a query keep its answer in the notebook.
====
-- case: DESCRIBE SELECT
DESCRIBE SELECT COUNT(*) FROM visits
----
ParseError: DESCRIBE takes a table's name.
  1 |   DESCRIBE SELECT COUNT(*) FROM visits
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write EXPLAIN instead of DESCRIBE.
====
-- case: SUMMARIZE SELECT
SUMMARIZE SELECT COUNT(*) FROM visits
----
ParseError: SUMMARIZE takes a table's name.
  1 |   SUMMARIZE SELECT COUNT(*) FROM visits
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write EXPLAIN instead of SUMMARIZE.
====
-- case: PIVOT visits ON ward USING COUNT(*)
PIVOT visits ON ward USING COUNT(*)
----
PrivacyError: PIVOT without GROUP BY has a row for each value of all other columns, and patient_id tells people apart.
  1 |   PIVOT visits ON ward USING COUNT(*)
                        ^^^^^^^^^^^^^^^^^^^
Hint: write (SELECT ward FROM visits) instead of visits, for one row.
====
-- case: visits
visits
----
ParseError: visits is not a statement of dpsql.
  1 |   visits
        ^^^^^^
Hint: there is SELECT, WITH, FROM, VALUES, PIVOT, UNPIVOT, EXPLAIN, SHOW and 2 more.
====
-- case: GRANT ALL ON visits TO x
GRANT ALL ON visits TO x
----
ParseError: GRANT is not a statement of dpsql.
  1 |   GRANT ALL ON visits TO x
        ^^^^^
Hint: there is SELECT, WITH, FROM, VALUES, PIVOT, UNPIVOT, EXPLAIN, SHOW and 2 more.
====
-- case: a misspelled verb
SELCT COUNT(*) FROM visits
----
ParseError: SELCT is not a statement of dpsql.
  1 |   SELCT COUNT(*) FROM visits
        ^^^^^
Hint: did you mean SELECT?
====
-- case: an unfinished statement
SELECT COUNT(* FROM visits
----
ParseError: can't read this: a ) is missing before FROM.
  1 |   SELECT COUNT(* FROM visits
                       ^^^^
====
-- case: an unfinished string
SELECT COUNT(*) FROM visits WHERE city = 'Delft
----
ParseError: a quote or a comment does not end.
  1 |   SELECT COUNT(*) FROM visits WHERE city = 'Delft
                                                 ^
Hint: end it with a quote; within it, write two for one.
====
-- case: nothing selected
SELECT FROM visits
----
PrivacyError: there is nothing noisy to release here.
  1 |   SELECT FROM visits
                    ^^^^^^
Hint: add COUNT(*) to SELECT, or another aggregate: rows themselves are not shown.
====
-- case: a template
SELECT COUNT(*) FROM visits WHERE city = '{{city}}'
----
ParseError: templates are not filled in: they would change the statement after it was priced.
  1 |   SELECT COUNT(*) FROM visits WHERE city = '{{city}}'
                                                 ^^^^^^^^^^
Hint: write $city and the notebook's variable city is bound as a value.
====
-- case: a template without quotes
SELECT COUNT(*) FROM visits WHERE city = {{city}}
----
ParseError: templates are not filled in: they would change the statement after it was priced.
  1 |   SELECT COUNT(*) FROM visits WHERE city = {{city}}
                                                 ^^^^^^^^
Hint: write $city and the notebook's variable city is bound as a value.
====
-- case: a parameter with a colon
SELECT COUNT(*) FROM visits WHERE city = :city
----
ParseError: :city is not a parameter here.
  1 |   SELECT COUNT(*) FROM visits WHERE city = :city
                                                 ^^^^^
Hint: write $city.
====
-- case: a parameter with a question mark
SELECT COUNT(*) FROM visits WHERE city = ?
----
ParseError: a ? mark has no value.
  1 |   SELECT COUNT(*) FROM visits WHERE city = ?
                                                 ^
Hint: give a list of values, or write $name.
====
-- case: a parameter without a value
-- params: {"town": "Delft"}
SELECT COUNT(*) FROM visits WHERE city = $city
----
BindError: the parameter $city has no value.
  1 |   SELECT COUNT(*) FROM visits WHERE city = $city
                                                 ^^^^^
Hint: there is town.
====
-- case: a parameter that is a list
-- params: {"city": ["Delft"]}
SELECT COUNT(*) FROM visits WHERE city = $city
----
BindError: the comparison combines VARCHAR with VARCHAR[].
  1 |   SELECT COUNT(*) FROM visits WHERE city = $city
                                          ^^^^^^^^^^^^
Hint: write list_contains(['Delft'], city).
====
-- case: an insert within a CTE
WITH x AS (INSERT INTO wards VALUES ('Z', 1) RETURNING ward) SELECT * FROM x
----
ParseError: INSERT is not a statement of dpsql.
  1 |   WITH x AS (INSERT INTO wards VALUES ('Z', 1) RETURNING ward) SELECT * FROM x
                   ^^^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: a copy within a CTE
WITH x AS (COPY wards TO 'out.csv') SELECT 1
----
ParseError: COPY is not a statement of dpsql.
  1 |   WITH x AS (COPY wards TO 'out.csv') SELECT 1
                   ^^^^
Hint: dpsql only answers questions: write a query.
====
-- case: SELECT INTO
SELECT COUNT(*) INTO x FROM visits
----
ParseError: an answer is not written into a table.
  1 |   SELECT COUNT(*) INTO x FROM visits
                        ^^^^
Hint: a name and << before a query keep its answer in the notebook.
====
-- case: a lock
SELECT beds FROM wards FOR UPDATE
----
ParseError: FOR UPDATE locks rows, and nothing is written here.
  1 |   SELECT beds FROM wards FOR UPDATE
                               ^^^^^^^^^^
Hint: leave it out.
====
-- case: EXPLAIN ANALYZE
EXPLAIN ANALYZE SELECT COUNT(*) FROM visits
----
ParseError: EXPLAIN ANALYZE would run the statement.
  1 |   EXPLAIN ANALYZE SELECT COUNT(*) FROM visits
                ^^^^^^^
Hint: leave it out: EXPLAIN tells the cost before.
====
-- case: EXPLAIN of nothing
EXPLAIN
----
ParseError: EXPLAIN needs a statement.
  1 |   EXPLAIN
        ^^^^^^^
====
-- case: EXPLAIN in an unknown format
EXPLAIN (FORMAT XML) SELECT COUNT(*) FROM visits
----
ParseError: EXPLAIN has no format XML.
  1 |   EXPLAIN (FORMAT XML) SELECT COUNT(*) FROM visits
                        ^^^
Hint: write TEXT, or JSON.
====
-- case: SHOW of something else
SHOW BUDGETS
----
ParseError: there is no SHOW BUDGETS.
  1 |   SHOW BUDGETS
             ^^^^^^^
Hint: did you mean BUDGET?
====
-- case: SHOW LEDGER LIMIT without a number
SHOW LEDGER LIMIT few
----
ParseError: LIMIT takes a whole number.
  1 |   SHOW LEDGER LIMIT few
                          ^^^
Hint: write SHOW LEDGER LIMIT 20.
====
-- case: the second statement is wrong, so the first is not paid
SELECT COUNT(*) FROM visits; SELECT COUNT(*) FROM vists
----
BindError: there is no table vists.
  1 |   SELECT COUNT(*) FROM visits; SELECT COUNT(*) FROM vists
                                                          ^^^^^
Hint: did you mean visits?
====
-- case: too deep
SELECT ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))
----
ParseError: the statement is nested too deeply.
  1 |   ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))
                                                ^
====
-- case: a mode that does not exist
SELECT WITH DPP OPTIONS (epsilon = 1) COUNT(*) FROM visits
----
BindError: there is no mode DPP.
  1 |   SELECT WITH DPP OPTIONS (epsilon = 1) COUNT(*) FROM visits
                    ^^^
Hint: did you mean DP?
====
-- case: one mode behind two SELECTs
SELECT MODE(ward) FROM visits UNION ALL SELECT MODE(note) FROM visits WITH PTR
----
ParseError: UNION joins SELECTs, and each has a mode of its own.
  1 |   SELECT MODE(ward) FROM visits UNION ALL SELECT MODE(note) FROM visits WITH PTR
                                                                              ^^^^^^^^
Hint: put the mode behind the first word of each of them.
====
-- case: two modes
SELECT WITH DP MEDIAN(age) FROM visits WITH PTR
----
ParseError: this SELECT has two modes.
  1 |   SELECT WITH DP MEDIAN(age) FROM visits WITH PTR
                                               ^^^^^^^^
Hint: leave it out, or the other one.
====
-- case: a mode behind parentheses
(SELECT IQR(age) FROM visits) WITH PTR
----
ParseError: WITH PTR stands apart from its SELECT.
  1 |   (SELECT IQR(age) FROM visits) WITH PTR
                                      ^^^^^^^^
Hint: put the mode inside of the parentheses, or behind the first word of the query.
====
-- case: the options of a mode at the end
SELECT WITH PTR IQR(age) FROM visits OPTIONS (epsilon = 1)
----
ParseError: can't read this: a ) is missing before =.
  1 |   SELECT WITH PTR IQR(age) FROM visits OPTIONS (epsilon = 1)
                                                              ^
Hint: put the options behind the mode, which stands after the first word of the query.
====
-- case: a synthetic table of a column without public values
CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 1) ward, note FROM visits
----
PrivacyError: the values of note are not public, and synthetic rows would show them.
  1 |   on = 1, max_rows_contributed = 1) ward, note FROM visits
                                                ^^^^
Hint: ask the owner to declare its values, or write an expression with only the values that you need.
====
-- case: a synthetic table of groups
CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) FROM visits GROUP BY ward
----
BindError: a synthetic table has no GROUP BY.
  1 |    1) ward, COUNT(*) FROM visits GROUP BY ward
                                                ^^^^
Hint: query the synthetic table for it: the table is public once it exists.
====
-- case: a synthetic table without a name
CREATE SYNTHETIC TABLE AS SELECT ward FROM visits
----
ParseError: a synthetic table needs a name.
  1 |   CREATE SYNTHETIC TABLE AS SELECT ward FROM visits
                               ^^
Hint: write CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM visits.
====
-- case: a synthetic table of no rows
CREATE SYNTHETIC TABLE s ROWS 0 AS SELECT ward FROM visits
----
ParseError: the number of rows is a whole number from 1 to 10,000,000.
  1 |   CREATE SYNTHETIC TABLE s ROWS 0 AS SELECT ward FROM visits
                                      ^
Hint: write 10000, or leave the number of rows out.
====
-- case: a synthetic table by another mode
CREATE SYNTHETIC TABLE s AS SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) ward FROM visits
----
ParseError: synthetic rows are not made in mode PTR.
  1 |   CREATE SYNTHETIC TABLE s AS SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) ward FROM visits
                                                ^^^
Hint: write CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM visits.
====
-- case: a synthetic table with an option that it has not
CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) ward FROM visits
----
BindError: OPTIONS has no consistent.
  1 |   CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) ward FROM visits
                                                                         ^^^^^^^^^^
Hint: there is epsilon, mu, rho, delta, privacy_unit_column, max_groups_contributed, max_rows_contributed, max_rows_per_group and 3 more.
====
-- case: a synthetic table that is called like a private one
CREATE SYNTHETIC TABLE visits AS SELECT WITH DP OPTIONS (epsilon = 1) ward FROM visits
----
BindError: visits is a private table, and no result takes its name.
  1 |   CREATE SYNTHETIC TABLE visits AS SELECT WITH DP OPTIONS (epsilon = 1) ward FROM visits
                               ^^^^^^
Hint: write visits_result, say.
====
-- case: a table that is not synthetic
CREATE TABLE s AS SELECT ward FROM visits
----
PrivacyError: ward must be a group or be inside an aggregate.
  1 |   CREATE TABLE s AS SELECT ward FROM visits
                                 ^^^^
Hint: write COUNT(DISTINCT ward), or group by it and count the rows.
====
-- case: CREATE RELEASE daily
CREATE RELEASE daily
----
ParseError: AS and a query follow a release's name.
  1 |   CREATE RELEASE daily
                       ^^^^^
Hint: write CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward.
====
-- case: CREATE RELEASE AS SELECT 1
CREATE RELEASE AS SELECT 1
----
ParseError: AS and a query follow a release's name.
  1 |   CREATE RELEASE AS SELECT 1
                          ^^^^^^
Hint: write CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward.
====
-- case: CREATE RELEASE visits AS SELECT COUNT(*) FROM visits
CREATE RELEASE visits AS SELECT COUNT(*) FROM visits
----
BindError: visits is a table, and no release takes its name.
  1 |   CREATE RELEASE visits AS SELECT COUNT(*) FROM visits
                       ^^^^^^
Hint: give the release another name, such as daily.
====
-- case: CREATE RELEASE r AS SELECT COUNT(*) FROM r
CREATE RELEASE r AS SELECT COUNT(*) FROM r
----
BindError: a release can't read itself.
  1 |   CREATE RELEASE r AS SELECT COUNT(*) FROM r
                                                 ^
Hint: name the table, or another release.
====
-- case: CREATE RELEASE r AS SHOW BUDGET
CREATE RELEASE r AS SHOW BUDGET
----
ParseError: a release is of a query's answer.
  1 |   CREATE RELEASE r AS SHOW BUDGET
                            ^^^^
Hint: write CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward.
====
-- case: REFRESH RELEASE daily
REFRESH RELEASE daily
----
BindError: there is no release daily.
  1 |   REFRESH RELEASE daily
                        ^^^^^
Hint: write SHOW RELEASES: it lists all.
====
-- case: DROP RELEASE daily
DROP RELEASE daily
----
BindError: there is no release daily.
  1 |   DROP RELEASE daily
                     ^^^^^
Hint: write SHOW RELEASES: it lists all.
====
-- case: REFRESH MATERIALIZED VIEW daily
REFRESH MATERIALIZED VIEW daily
----
ParseError: REFRESH VIEW is not a statement of dpsql.
  1 |   REFRESH MATERIALIZED VIEW daily
        ^^^^^^^
Hint: write REFRESH RELEASE daily.
====
-- case: DROP VIEW IF EXISTS v
DROP VIEW IF EXISTS v
----
ParseError: DROP VIEW is not a statement of dpsql.
  1 |   DROP VIEW IF EXISTS v
        ^^^^
Hint: write DROP RELEASE daily.
====
-- case: CREATE OR REPLACE RELEASE IF NOT EXISTS r AS SELECT 1 AS a
CREATE OR REPLACE RELEASE IF NOT EXISTS r AS SELECT 1 AS a
----
ParseError: OR REPLACE and IF NOT EXISTS exclude each other.
  1 |   CREATE OR REPLACE RELEASE IF NOT EXISTS r AS SELECT 1 AS a
                                  ^^
Hint: leave one out.
====
-- case: r << CREATE RELEASE q AS SELECT 1 AS a
r << CREATE RELEASE q AS SELECT 1 AS a
----
ParseError: a release has a name already.
  1 |   r << CREATE RELEASE q AS SELECT 1 AS a
             ^^^^^^
Hint: leave the name and << out.
====
-- case: EXPLAIN DROP RELEASE daily
EXPLAIN DROP RELEASE daily
----
ParseError: EXPLAIN is for queries.
  1 |   EXPLAIN DROP RELEASE daily
                ^^^^^^^^^^^^^^^^^^
