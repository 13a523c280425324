-- case: a misspelled table
SELECT COUNT(*) FROM vists
----
BindError: there is no table vists.
  1 |   SELECT COUNT(*) FROM vists
                             ^^^^^
Hint: did you mean visits?
====
-- case: a table that the policy does not name
SELECT answer FROM hidden
----
BindError: there is no table hidden.
  1 |   SELECT answer FROM hidden
                           ^^^^^^
Hint: there is visits, patients, bids, orders, lines, payments, shipments, shifts and 2 more.
====
-- case: a table of the catalog
SELECT * FROM information_schema.tables
----
BindError: there is no table information_schema.tables.
  1 |   SELECT * FROM information_schema.tables
                      ^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: write SHOW TABLES for the tables, and DESCRIBE with a table's name for its columns.
====
-- case: a system table
SELECT * FROM duckdb_settings()
----
BindError: duckdb_settings can't be read here: tables come from the policy.
  1 |   SELECT * FROM duckdb_settings()
                      ^^^^^^^^^^^^^^^^^
Hint: ask the data owner to name the data in the policy.
====
-- case: a table of a schema that is not there
SELECT COUNT(*) FROM clinic.visits
----
BindError: there is no table clinic.visits.
  1 |   SELECT COUNT(*) FROM clinic.visits
                             ^^^^^^^^^^^^^
Hint: did you mean visits?
====
-- case: a misspelled column
SELECT SUM(amont) FROM visits
----
BindError: there is no column amont here.
  1 |   SELECT SUM(amont) FROM visits
                   ^^^^^
Hint: did you mean amount?
====
-- case: a misspelled function
SELECT COUNTT(*) FROM visits
----
PrivacyError: COUNTT is not an aggregate.
  1 |   SELECT COUNTT(*) FROM visits
               ^^^^^^^^^
Hint: did you mean COUNT?
====
-- case: a column of the other table
SELECT COUNT(*) FROM visits JOIN patients USING (patient_id) WHERE patients.city = 'x'
----
BindError: there is no column city here.
  1 |   SELECT COUNT(*) FROM visits JOIN patients USING (patient_id) WHERE patients.city = 'x'
                                                                           ^^^^^^^^^^^^^
Hint: there is patient_id, income.
====
-- case: a file
SELECT COUNT(*) FROM 'visits.parquet'
----
BindError: there is no table visits.parquet.
  1 |   SELECT COUNT(*) FROM 'visits.parquet'
                             ^^^^^^^^^^^^^^^^
Hint: did you mean visits?
====
-- case: read_csv
SELECT * FROM read_csv('/etc/passwd')
----
BindError: /etc/passwd can't be read here: tables come from the policy.
  1 |   SELECT * FROM read_csv('/etc/passwd')
                      ^^^^^^^^^^^^^^^^^^^^^^^
Hint: ask the data owner to name the data in the policy.
====
-- case: read_parquet
SELECT COUNT(*) FROM read_parquet('visits.parquet')
----
BindError: read_parquet can't be read here: tables come from the policy.
  1 |   SELECT COUNT(*) FROM read_parquet('visits.parquet')
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: ask the data owner to name the data in the policy.
====
-- case: glob
SELECT * FROM glob('*')
----
BindError: glob can't be read here: tables come from the policy.
  1 |   SELECT * FROM glob('*')
                      ^^^^^^^^^
Hint: ask the data owner to name the data in the policy.
====
-- case: query
SELECT * FROM query('SELECT * FROM visits')
----
BindError: query can't be read here: tables come from the policy.
  1 |   SELECT * FROM query('SELECT * FROM visits')
                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Hint: ask the data owner to name the data in the policy.
====
-- case: a name beyond ASCII
SELECT COUNT(*) FROM visits WHERE émile = 1
----
BindError: there is no column émile here.
  1 |   SELECT COUNT(*) FROM visits WHERE émile = 1
                                          ^^^^^
Hint: there is patient_id, ward, city, disease, age, amount, weight, week and 3 more.
====
-- case: rowid
SELECT MAX(rowid) FROM visits
----
BindError: there is no column rowid here.
  1 |   SELECT MAX(rowid) FROM visits
                   ^^^^^
Hint: there is patient_id, ward, city, disease, age, amount, weight, week and 3 more.
