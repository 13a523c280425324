-- An advertiser and a publisher: who saw what, who bought; a protected table of patients; a table of scores.
CREATE TABLE impressions AS SELECT i % 90 AS user_id, (i * 7) % 6 AS campaign, TIMESTAMP '2023-05-01 00:00:00' + to_hours((i * 5 % 700)::INTEGER) AS seen_at, ['tv', 'web', 'app'][1 + i % 3] AS channel FROM range(540) AS r(i);
CREATE TABLE accounts AS SELECT i AS user_id, 'mail' || i AS mail_hash, 'phone' || i AS phone_hash, ['A', 'B', 'C'][1 + i % 3] AS plan FROM range(90) AS r(i);
CREATE TABLE brand_sales AS SELECT i AS sale, 'mail' || (i * 3 % 120) AS mail_hash, 'phone' || (i * 7 % 120) AS phone_hash, TIMESTAMP '2023-05-10 00:00:00' + to_hours((i * 3)::INTEGER) AS sold_at, 10 + i % 50 AS price FROM range(80) AS r(i);
CREATE TABLE patients AS SELECT i AS patient, 20 + (i * 7) % 70 AS age, ['NJ', 'NY', 'CT'][1 + i % 3] AS state, ['flu', 'cold', 'none'][1 + (i // 3) % 3] AS disease, (i * 13) % 100 AS score, CASE WHEN i % 11 = 0 THEN NULL ELSE (i * 37) % 9000 END AS cost FROM range(150) AS r(i);
CREATE TABLE stays AS SELECT i % 150 AS patient, (i * 3) % 12 AS days, DATE '2024-01-01' + (i % 100)::INTEGER AS since FROM range(420) AS r(i);
CREATE TABLE states AS SELECT * FROM (VALUES ('NJ', 'New Jersey'), ('NY', 'New York'), ('CT', 'Connecticut'), ('VT', 'Vermont')) AS t(state, name);
