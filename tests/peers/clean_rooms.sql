-- case: users matched by mail or phone
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- seen: user_id
WITH matches AS (SELECT i.user_id, i.campaign, s.sale, s.price FROM impressions i JOIN accounts a ON a.user_id = i.user_id JOIN brand_sales s ON s.mail_hash = a.mail_hash WHERE s.sold_at > i.seen_at UNION ALL SELECT i.user_id, i.campaign, s.sale, s.price FROM impressions i JOIN accounts a ON a.user_id = i.user_id JOIN brand_sales s ON s.phone_hash = a.phone_hash WHERE s.sold_at > i.seen_at) SELECT campaign, COUNT(DISTINCT user_id) AS users FROM matches GROUP BY campaign ORDER BY users DESC, campaign LIMIT 5
----
answered
====
-- case: the first impression of each user
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
WITH first_seen AS (SELECT user_id, campaign FROM (SELECT user_id, campaign, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY seen_at, campaign) AS n FROM impressions) WHERE n = 1) SELECT campaign, COUNT(DISTINCT user_id) FROM first_seen GROUP BY campaign
----
answered
====
-- case: first impressions by a minimum
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
SELECT COUNT(*) FROM (SELECT user_id, MIN(seen_at) AS first_at FROM impressions GROUP BY user_id) WHERE first_at < TIMESTAMP '2023-05-05 00:00:00'
----
answered
====
-- case: a window over all users
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- reason: window
SELECT COUNT(*) FROM (SELECT user_id, ROW_NUMBER() OVER (ORDER BY seen_at) AS n FROM impressions) WHERE n <= 10
----
refused: PrivacyError: a window function below the aggregation mixes the rows
====
-- case: reach by channel
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- seen: user_id
SELECT channel, COUNT(DISTINCT user_id) AS reach, COUNT(*) AS shown, COUNT(*) * 1.0 / COUNT(DISTINCT user_id) AS often FROM impressions GROUP BY channel
----
answered
====
-- case: users who bought after they saw
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
SELECT COUNT(DISTINCT i.user_id) FROM impressions i JOIN accounts a ON i.user_id = a.user_id JOIN brand_sales s ON a.mail_hash = s.mail_hash WHERE s.sold_at BETWEEN i.seen_at AND i.seen_at + INTERVAL 7 DAY
----
answered
====
-- case: revenue by campaign
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- seen: i.user_id
SELECT campaign, SUM(price) FROM impressions i JOIN accounts a USING (user_id) JOIN brand_sales s USING (mail_hash) GROUP BY campaign ORDER BY campaign
----
answered
====
-- case: users by plan and campaign
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- seen: user_id
SELECT plan, campaign, COUNT(DISTINCT user_id) FROM impressions JOIN accounts USING (user_id) GROUP BY plan, campaign
----
answered
====
-- case: frequency of exposure
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- plain: SELECT n, COUNT(*) FROM (SELECT user_id, COUNT(*) AS n FROM impressions GROUP BY user_id) GROUP BY n HAVING COUNT(*) > 1
SELECT n, COUNT(*) FROM (SELECT user_id, COUNT(*) AS n FROM impressions GROUP BY user_id) GROUP BY n
----
answered
====
-- case: buckets of frequency
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- plain: SELECT b, COUNT(*) FROM (SELECT CASE WHEN COUNT(*) > 5 THEN 'often' ELSE 'seldom' END AS b FROM impressions GROUP BY user_id) GROUP BY b
-- extra: 1
SELECT CASE WHEN n > 5 THEN 'often' ELSE 'seldom' END AS b, COUNT(*) FROM (SELECT user_id, COUNT(*) AS n FROM impressions GROUP BY user_id) GROUP BY b
----
answered
====
-- case: sales that match nobody
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- reason: subquery
SELECT COUNT(*) FROM brand_sales s LEFT JOIN accounts a ON s.mail_hash = a.mail_hash WHERE a.user_id IS NULL
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: joined on a hash, both private
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- reason: join
SELECT COUNT(*) FROM accounts a JOIN accounts b ON a.mail_hash = b.mail_hash
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: joined on a hash that the unit determines
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
SELECT COUNT(DISTINCT a.user_id) FROM accounts a JOIN impressions i ON a.user_id = i.user_id AND i.channel = 'tv'
----
answered
====
-- case: hours of the day
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- seen: user_id
SELECT EXTRACT(HOUR FROM seen_at) AS h, COUNT(*) FROM impressions GROUP BY h ORDER BY h
----
answered
====
-- case: a list of users
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
-- reason: unit
SELECT user_id, campaign FROM impressions LIMIT 10
----
refused: PrivacyError: user_id is the privacy unit: it is never released.
====
-- case: an overlap of two campaigns
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
SELECT COUNT(*) FROM (SELECT DISTINCT user_id FROM impressions WHERE campaign = 1) a JOIN (SELECT DISTINCT user_id FROM impressions WHERE campaign = 2) b USING (user_id)
----
answered
====
-- case: an overlap by in
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
SELECT COUNT(DISTINCT user_id) FROM impressions WHERE campaign = 1 AND user_id IN (SELECT user_id FROM impressions WHERE campaign = 2)
----
answered
====
-- case: seen and not bought
-- from: AWS Clean Rooms, user guide: query tips and examples, SQL capabilities of Differential Privacy
SELECT COUNT(DISTINCT i.user_id) FROM impressions i JOIN accounts a USING (user_id) WHERE a.mail_hash NOT IN (SELECT mail_hash FROM brand_sales)
----
answered
====
-- case: a count
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT(*) FROM patients
----
answered
====
-- case: a mean by a domain
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT state, AVG(age) FROM patients GROUP BY state
----
answered
====
-- case: a count with its name and interval
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- plain: SELECT state, COUNT(*), TRUE FROM patients GROUP BY state
SELECT state, c, INTERVAL_LOW(c) <= c FROM (SELECT state, COUNT(*) AS c FROM patients GROUP BY state)
----
answered
====
-- case: arithmetic about a count
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT state, 1 + COUNT(*) AS c FROM patients GROUP BY state
----
answered
====
-- case: a mean of means
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT AVG(mean_age, contribution_bounds_per_row => (0, 30)) FROM (SELECT patient, AVG(days) AS mean_age FROM stays GROUP BY patient)
----
answered
====
-- case: a mean of grouped means
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT AVG(m) FROM (SELECT AVG(age) AS m FROM patients GROUP BY score % 5) WHERE m >= 20 AND m <= 80
----
answered
====
-- case: a domain made narrower by where
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT AVG(cost) FROM patients WHERE cost BETWEEN 100 AND 5000
----
answered
====
-- case: a domain made narrower by least and greatest
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT SUM(LEAST(GREATEST(cost, 100), 5000)) FROM patients
----
answered
====
-- case: a domain of a list
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT disease, COUNT(*) FROM patients WHERE disease IN ('flu', 'cold') GROUP BY disease
----
answered
====
-- case: a domain by a join with a table
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT s.name, COUNT(p.patient) FROM states s LEFT JOIN patients p ON p.state = s.state GROUP BY s.name ORDER BY s.name
----
answered
====
-- case: a domain by an inner join
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- seen: patient
SELECT s.name, COUNT(*) FROM patients p JOIN states s ON p.state = s.state GROUP BY s.name
----
answered
====
-- case: a domain by values
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT v.d, COUNT(p.patient) FROM (VALUES ('flu'), ('cold'), ('measles')) AS v(d) LEFT JOIN patients p ON p.disease = v.d GROUP BY v.d
----
answered
====
-- case: patients by bucket of age
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- seen: patient
SELECT width_bucket, COUNT(*) FROM (SELECT patient, age // 10 AS width_bucket FROM patients) GROUP BY width_bucket
----
answered
====
-- case: stays and patients
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT state, SUM(days), COUNT(DISTINCT p.patient) FROM patients p JOIN stays s ON p.patient = s.patient GROUP BY state
----
answered
====
-- case: patients with long stays
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT(DISTINCT patient) FROM stays WHERE days > 10
----
answered
====
-- case: sum of each patient's days
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT state, SUM(total, contribution_bounds_per_row => (0, 100)) FROM (SELECT patient, SUM(days) AS total FROM stays GROUP BY patient) t JOIN patients p USING (patient) GROUP BY state
----
answered
====
-- case: a having clause
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT disease, COUNT(*) AS n FROM patients GROUP BY disease HAVING n > 40
----
answered
====
-- case: a standard deviation
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT STDDEV(age), VARIANCE(score) FROM patients
----
answered
====
-- case: a median and a percentile
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT MEDIAN(score) BETWEEN 48 AND 51, PERCENTILE_CONT(score, 0.9) BETWEEN 88 AND 91 FROM patients
----
answered
====
-- case: a percentile within group
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- plain: SELECT TRUE
SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY score) BETWEEN 88 AND 91 FROM patients
----
answered
====
-- case: a count_if
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT_IF(age > 50) FROM patients
----
answered
====
-- case: a coalesce and a nullif
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT(NULLIF(score, 0)), SUM(COALESCE(cost, 0)) FROM patients
----
answered
====
-- case: iff and decode
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT SUM(IF(disease = 'flu', 1, 0)), SUM(CASE disease WHEN 'flu' THEN 2 WHEN 'cold' THEN 1 ELSE 0 END) FROM patients
----
answered
====
-- case: a union of two groups
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT 'young' AS g, COUNT(*) FROM patients WHERE age < 40 UNION ALL SELECT 'old', COUNT(*) FROM patients WHERE age >= 40
----
answered
====
-- case: a window over results
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT disease, n, RANK() OVER (ORDER BY n DESC, disease) FROM (SELECT disease, COUNT(*) AS n FROM patients GROUP BY disease)
----
answered
====
-- case: an outer full join
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT(*), COUNT(days) FROM patients p FULL OUTER JOIN stays s ON p.patient = s.patient
----
answered
====
-- case: a left join that doubles
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT(*) FROM patients p LEFT JOIN stays s ON p.patient = s.patient AND s.days > 9
----
answered
====
-- case: a cross join of a release
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- reason: rows
SELECT p.state, COUNT(*) * 1.0 / ANY_VALUE(t.n) FROM patients p CROSS JOIN (SELECT COUNT(*) AS n FROM patients) t GROUP BY p.state
----
refused: PrivacyError: ANY_VALUE has no noisy form.
====
-- case: a key outside its domain
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT state, COUNT(*) FROM patients WHERE state <> 'NY' GROUP BY state
----
answered
====
-- case: a prefix of a declared key
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT state, AVG(age) FROM patients WHERE state LIKE 'N%' GROUP BY state
----
answered
====
-- case: rows
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- reason: rows
SELECT * FROM patients WHERE age > 80
----
refused: PrivacyError: rows of patients can't be released.
====
-- case: the unit
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- reason: unit
SELECT patient FROM patients
----
refused: PrivacyError: patient is the privacy unit: it is never released.
====
-- case: a function without an end
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
-- reason: function
SELECT COUNT(*) FROM patients WHERE random() < 0.5
----
refused: PrivacyError: random can't be used on private rows: its answer
====
-- case: the time of now
-- from: Snowflake, user guide: differential privacy for analysts, privacy domains, SQL reference
SELECT COUNT(*) FROM stays WHERE since < current_date
----
answered
====
-- case: frequency of impressions
-- from: AWS Clean Rooms, differential privacy; Snowflake, privacy policies
-- seen: user_id
SELECT n, COUNT(*) AS users FROM (SELECT user_id, COUNT(*) AS n FROM impressions GROUP BY user_id) AS f GROUP BY n ORDER BY n
----
answered
====
-- case: users reached by two channels
-- from: AWS Clean Rooms, differential privacy; Snowflake, privacy policies
SELECT COUNT(*) FROM (SELECT user_id FROM impressions GROUP BY user_id HAVING COUNT(DISTINCT channel) >= 2) AS t
----
answered
====
-- case: users of one campaign and not of another
-- from: AWS Clean Rooms, differential privacy; Snowflake, privacy policies
SELECT COUNT(*) FROM (SELECT user_id FROM impressions WHERE campaign = 1 EXCEPT SELECT user_id FROM impressions WHERE campaign = 2) AS t
----
answered
====
-- case: attribution: days from impression to sale
-- from: AWS Clean Rooms, differential privacy; Snowflake, privacy policies
SELECT COUNT(*) FROM impressions i JOIN accounts a ON i.user_id = a.user_id JOIN brand_sales s ON a.mail_hash = s.mail_hash WHERE s.sold_at > i.seen_at AND date_diff('day', i.seen_at, s.sold_at) <= 14
----
answered
====
-- case: stays as a percentage of a total by state
-- from: AWS Clean Rooms, differential privacy; Snowflake, privacy policies
-- slack: 0.01
SELECT p.state, 100 * SUM(s.days) / (SELECT SUM(days) FROM stays) AS percent FROM patients p JOIN stays s ON p.patient = s.patient GROUP BY p.state ORDER BY p.state
----
answered
