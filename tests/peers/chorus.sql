-- case: a count without a join
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders
----
answered
====
-- case: a count of a join of private tables
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders JOIN recommendations ON orders.customer = recommendations.customer WHERE orders.product = 1
----
answered
====
-- case: a join on what is not the unit
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
-- reason: join
SELECT orders.product, COUNT(*) FROM orders JOIN recommendations ON orders.product = recommendations.product WHERE orders.product = 1 GROUP BY 1
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: a histogram of a join with public rows
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
-- seen: orders.customer
SELECT orders.product, COUNT(*) AS "mycount" FROM orders JOIN products ON orders.product = products.product GROUP BY 1
----
answered
====
-- case: a histogram with all bins
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT products.product, COUNT(orders.customer) FROM products LEFT JOIN orders ON orders.product = products.product GROUP BY products.product
----
answered
====
-- case: a self join
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders a JOIN orders b ON a.customer = b.customer AND a.order_id < b.order_id
----
answered
====
-- case: three tables
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer = c.customer JOIN recommendations r ON r.customer = c.customer
----
answered
====
-- case: a count of a subquery with a filter
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM (SELECT customer, product FROM orders WHERE quantity > 2) AS t WHERE t.product < 6
----
answered
====
-- case: a count of distinct buyers by product
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
-- seen: customer
SELECT product, COUNT(DISTINCT customer) FROM orders GROUP BY product
----
answered
====
-- case: a cross join of public rows
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders CROSS JOIN products
----
answered
====
-- case: a cross join of private rows
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
-- reason: join
SELECT COUNT(*) FROM orders CROSS JOIN customers
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: a union of private rows
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM (SELECT customer, product FROM orders UNION ALL SELECT customer, product FROM recommendations)
----
answered
====
-- case: an intersection of private rows
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM (SELECT customer FROM orders INTERSECT SELECT customer FROM recommendations)
----
answered
====
-- case: an order that is not there
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders WHERE order_id = -1
----
answered
====
-- case: a condition on a unit
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*) FROM orders WHERE customer = 1
----
answered
====
-- case: counts with and without a filter
-- from: Chorus (Uber and UVM), src/test/scala: ElasticSensitivityRewriterTest and RestrictedSensitivityAnalysisTest
SELECT COUNT(*), COUNT(*) FILTER (WHERE product < 6), COUNT(CASE WHEN quantity > 2 THEN 1 END) FROM orders
----
answered
====
-- case: a simple histogram
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- seen: customer
SELECT product, COUNT(*) FROM orders GROUP BY product
----
answered
====
-- case: a histogram by an alias
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- seen: customer
SELECT day AS bin, COUNT(*) FROM orders GROUP BY bin
----
answered
====
-- case: a histogram of shifted days
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- seen: customer
SELECT day + 1 AS bin, COUNT(*) FROM orders GROUP BY bin
----
answered
====
-- case: a rounded count
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- seen: customer
SELECT product, ROUND(COUNT(*), 0) FROM orders GROUP BY 1
----
answered
====
-- case: a column of a cte
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- reason: rows
WITH t1 AS (SELECT order_id AS a FROM orders) SELECT a FROM t1
----
refused: PrivacyError: a must be a group or be inside an
====
-- case: a mean over a count of public rows
-- from: Chorus, src/test/scala: HistogramAnalysisTest
SELECT AVG(price) / COUNT(*) AS "result" FROM products
----
answered
====
-- case: statistics of public rows
-- from: Chorus, src/test/scala: HistogramAnalysisTest
SELECT COUNT(*) AS n, SUM(price) AS s, AVG(price) AS a FROM products
----
answered
====
-- case: nested counts
-- from: Chorus, src/test/scala: HistogramAnalysisTest
SELECT MAX(c) FROM (SELECT product, COUNT(*) AS c FROM orders GROUP BY product) AS t
----
answered
====
-- case: histogram of counts of units
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- plain: SELECT c, COUNT(*) FROM (SELECT customer, COUNT(*) AS c FROM orders GROUP BY customer) AS t GROUP BY c
SELECT c, COUNT(*) FROM (SELECT customer, COUNT(*) AS c FROM orders GROUP BY customer) AS t GROUP BY c
----
answered
====
-- case: a star
-- from: Chorus, src/test/scala: HistogramAnalysisTest
-- reason: rows
SELECT * FROM orders
----
refused: PrivacyError: rows of orders can't be released.
====
-- case: no aggregate at all
-- from: Chorus, src/test/scala: HistogramAnalysisTest
SELECT product FROM orders GROUP BY product HAVING COUNT(*) > 30
----
answered
====
-- case: a mean of a private column
-- from: Chorus, src/test/scala: SampleAndAggregateRewriterTest, WPINQRewriterTest and CoverageRewriterTest
SELECT AVG(quantity) FROM orders
----
answered
====
-- case: a mean of a join with prices
-- from: Chorus, src/test/scala: SampleAndAggregateRewriterTest, WPINQRewriterTest and CoverageRewriterTest
SELECT AVG(p.price * o.quantity) FROM orders o JOIN products p ON o.product = p.product
----
answered
====
-- case: sums by kind
-- from: Chorus, src/test/scala: SampleAndAggregateRewriterTest, WPINQRewriterTest and CoverageRewriterTest
-- seen: o.customer
SELECT p.kind, SUM(p.price * o.quantity) FROM orders o JOIN products p ON o.product = p.product GROUP BY p.kind
----
answered
====
-- case: a weighted count by product's name
-- from: Chorus, src/test/scala: SampleAndAggregateRewriterTest, WPINQRewriterTest and CoverageRewriterTest
-- seen: customer
SELECT p.name, COUNT(*) FROM orders o JOIN products p ON o.product = p.product WHERE quantity > 1 GROUP BY p.name ORDER BY COUNT(*) DESC, p.name
----
answered
====
-- case: an enlarged sum
-- from: Chorus, src/test/scala: SampleAndAggregateRewriterTest, WPINQRewriterTest and CoverageRewriterTest
SELECT SUM(quantity) * 2 + 1 FROM orders
----
answered
====
-- case: sample and aggregate of a mean
-- from: Chorus, src/test/scala: SampleAndAggregateRewriterTest, WPINQRewriterTest and CoverageRewriterTest
-- plain: SELECT TRUE
SELECT m BETWEEN 2 AND 3 FROM (SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1000, blocks = 10, bounds = (0, 10)) AVG(quantity) AS m FROM orders)
----
answered
====
-- case: a clipped sum
-- from: Chorus, src/main/scala/examples (MechanismExamples, QueryRewritingExample)
-- plain: SELECT SUM(LEAST(quantity, 3)) FROM orders
SELECT SUM(quantity, contribution_bounds_per_row => (0, 3)) FROM orders
----
answered
====
-- case: a clipped mean
-- from: Chorus, src/main/scala/examples (MechanismExamples, QueryRewritingExample)
-- plain: SELECT AVG(LEAST(quantity, 3)) FROM orders
SELECT AVG(quantity, contribution_bounds_per_row => (0, 3)) FROM orders
----
answered
====
-- case: the threshold that is passed first
-- from: Chorus, src/main/scala/examples (MechanismExamples, QueryRewritingExample)
-- plain: SELECT 2
WITH t(q) AS (VALUES (1), (2), (3)) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE quantity <= q), 200, epsilon => 1000000) OVER t FROM orders
----
answered
====
-- case: the product that sells best
-- from: Chorus, src/main/scala/examples (MechanismExamples, QueryRewritingExample)
-- plain: SELECT 'c'
WITH t(name, lo, hi) AS (VALUES ('a', 0, 1), ('b', 2, 4), ('c', 5, 11)) SELECT name, EXPMECH(COUNT(*) FILTER (WHERE product BETWEEN lo AND hi), epsilon => 1000000) OVER t FROM orders
----
answered
====
-- case: the product that sells best by noisy maximum
-- from: Chorus, src/main/scala/examples (MechanismExamples, QueryRewritingExample)
-- plain: SELECT 'c'
WITH t(name, lo, hi) AS (VALUES ('a', 0, 1), ('b', 2, 4), ('c', 5, 11)) SELECT name, EXPMECH(COUNT(*) FILTER (WHERE product BETWEEN lo AND hi), epsilon => 1000000, method => 'noisy_max') OVER t FROM orders
----
answered
