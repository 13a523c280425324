-- case: 1.1 revenue by discount
-- from: Star Schema Benchmark, queries 1.1 to 4.3
SELECT SUM(lo_price * lo_discount) AS revenue FROM lineorder, dates WHERE lo_date = d_id AND d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25
----
answered
====
-- case: 1.2 revenue by discount
-- from: Star Schema Benchmark, queries 1.1 to 4.3
SELECT SUM(lo_price * lo_discount) AS revenue FROM lineorder, dates WHERE lo_date = d_id AND d_yearmonthnum = 199403 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35
----
answered
====
-- case: 1.3 revenue by discount
-- from: Star Schema Benchmark, queries 1.1 to 4.3
SELECT SUM(lo_price * lo_discount) AS revenue FROM lineorder, dates WHERE lo_date = d_id AND d_week = 6 AND d_year = 1997 AND lo_discount BETWEEN 5 AND 7
----
answered
====
-- case: 2.1 revenue by year and brand
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: lo_customer
SELECT SUM(lo_revenue), d_year, p_brand FROM lineorder, dates, part, supplier WHERE lo_date = d_id AND lo_part = p_id AND lo_supplier = s_id AND p_category = 'MFGR#12' AND s_region = 'AMERICA' GROUP BY d_year, p_brand ORDER BY d_year, p_brand
----
answered
====
-- case: 2.2 revenue by year and brand
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: lo_customer
SELECT SUM(lo_revenue), d_year, p_brand FROM lineorder, dates, part, supplier WHERE lo_date = d_id AND lo_part = p_id AND lo_supplier = s_id AND p_brand BETWEEN 'MFGR#2221' AND 'MFGR#2228' AND s_region = 'ASIA' GROUP BY d_year, p_brand ORDER BY d_year, p_brand
----
answered
====
-- case: 2.3 revenue by year and brand
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: lo_customer
SELECT SUM(lo_revenue), d_year, p_brand FROM lineorder, dates, part, supplier WHERE lo_date = d_id AND lo_part = p_id AND lo_supplier = s_id AND p_brand = 'MFGR#2222' AND s_region = 'EUROPE' GROUP BY d_year, p_brand ORDER BY d_year, p_brand
----
answered
====
-- case: 3.1 revenue by places and year
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
-- ties: yes
SELECT c_nation, s_nation, d_year, SUM(lo_revenue) AS revenue FROM customer, lineorder, supplier, dates WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_date = d_id AND c_region = 'ASIA' AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year ORDER BY d_year ASC, revenue DESC
----
answered
====
-- case: 3.2 revenue by places and year
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
-- ties: yes
SELECT c_city, s_city, d_year, SUM(lo_revenue) AS revenue FROM customer, lineorder, supplier, dates WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_date = d_id AND c_nation = 'UNITED STATES' AND s_nation = 'UNITED STATES' AND d_year BETWEEN 1992 AND 1997 GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC
----
answered
====
-- case: 3.3 revenue by places and year
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
-- ties: yes
SELECT c_city, s_city, d_year, SUM(lo_revenue) AS revenue FROM customer, lineorder, supplier, dates WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_date = d_id AND (c_city = 'CITY 1' OR c_city = 'CITY 5') AND (s_city = 'CITY 1' OR s_city = 'CITY 5') GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC
----
answered
====
-- case: 3.4 revenue by places and year
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
-- ties: yes
SELECT c_city, s_city, d_year, SUM(lo_revenue) AS revenue FROM customer, lineorder, supplier, dates WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_date = d_id AND c_city IN ('CITY 1', 'CITY 5') AND d_yearmonth = 'Dec1997' GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC
----
answered
====
-- case: 4.1 profit
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
SELECT d_year, c_nation, SUM(lo_revenue - lo_cost) AS profit FROM dates, customer, supplier, part, lineorder WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_part = p_id AND lo_date = d_id AND c_region = 'AMERICA' AND s_region = 'AMERICA' AND (p_mfgr = 'MFGR#1' OR p_mfgr = 'MFGR#2') GROUP BY d_year, c_nation ORDER BY d_year, c_nation
----
answered
====
-- case: 4.2 profit
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
SELECT d_year, s_nation, p_category, SUM(lo_revenue - lo_cost) AS profit FROM dates, customer, supplier, part, lineorder WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_part = p_id AND lo_date = d_id AND c_region = 'AMERICA' AND s_region = 'AMERICA' AND (d_year = 1997 OR d_year = 1998) GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category
----
answered
====
-- case: 4.3 profit
-- from: Star Schema Benchmark, queries 1.1 to 4.3
-- seen: c_id
SELECT d_year, s_city, p_brand, SUM(lo_revenue - lo_cost) AS profit FROM dates, customer, supplier, part, lineorder WHERE lo_customer = c_id AND lo_supplier = s_id AND lo_part = p_id AND lo_date = d_id AND s_nation = 'UNITED STATES' AND p_category = 'MFGR#13' GROUP BY d_year, s_city, p_brand ORDER BY d_year, s_city, p_brand
----
answered
====
-- case: 1 pricing summary
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT lo_mode, COUNT(*), SUM(lo_quantity), SUM(lo_price), SUM(lo_price * (1 - lo_discount / 100)), AVG(lo_quantity), AVG(lo_price), AVG(lo_discount) FROM lineorder WHERE lo_quantity <= 48 GROUP BY lo_mode ORDER BY lo_mode
----
answered
====
-- case: 3 shipping priority, as written
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: c_id
SELECT lo_order, SUM(lo_price) AS revenue FROM customer, lineorder WHERE c_segment = 'BUILDING' AND c_id = lo_customer GROUP BY lo_order ORDER BY revenue DESC LIMIT 10
----
answered
====
-- case: 4 orders with a late line
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: c_id
SELECT c_segment, COUNT(*) FROM customer WHERE EXISTS (SELECT * FROM lineorder WHERE lo_customer = c_id AND lo_price < lo_revenue + 50) GROUP BY c_segment ORDER BY c_segment
----
answered
====
-- case: 5 local suppliers
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: c_id
SELECT s_nation, SUM(lo_price * (1 - lo_discount / 100)) AS revenue FROM customer, lineorder, supplier WHERE c_id = lo_customer AND lo_supplier = s_id AND c_nation = s_nation GROUP BY s_nation ORDER BY revenue DESC
----
answered
====
-- case: 6 a forecast
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT SUM(lo_price * lo_discount) FROM lineorder WHERE lo_discount BETWEEN 5 AND 7 AND lo_quantity < 24
----
answered
====
-- case: 7 volume between two nations
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- plain: SELECT s_nation, c_nation, d_year, SUM(lo_price * (1 - lo_discount / 100)) FROM supplier, lineorder, customer, dates WHERE s_id = lo_supplier AND c_id = lo_customer AND lo_date = d_id AND ((s_nation = 'FRANCE' AND c_nation = 'CHINA') OR (s_nation = 'CHINA' AND c_nation = 'FRANCE')) GROUP BY ALL HAVING COUNT(DISTINCT c_id) > 1 ORDER BY 1, 2, 3
SELECT a, b, y, SUM(v) FROM (SELECT s_nation AS a, c_nation AS b, d_year AS y, lo_price * (1 - lo_discount / 100) AS v FROM supplier, lineorder, customer, dates WHERE s_id = lo_supplier AND c_id = lo_customer AND lo_date = d_id AND ((s_nation = 'FRANCE' AND c_nation = 'CHINA') OR (s_nation = 'CHINA' AND c_nation = 'FRANCE'))) AS shipping GROUP BY a, b, y ORDER BY a, b, y
----
answered
====
-- case: 8 a share of a market
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: lo_customer
SELECT d_year, SUM(CASE WHEN s_nation = 'FRANCE' THEN lo_price ELSE 0 END) / SUM(lo_price) AS share FROM lineorder, supplier, dates WHERE lo_supplier = s_id AND lo_date = d_id GROUP BY d_year ORDER BY d_year
----
answered
====
-- case: 9 profit by nation and year
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: lo_customer
SELECT s_nation, d_year, SUM(lo_price * (1 - lo_discount / 100) - lo_cost) AS profit FROM lineorder, supplier, part, dates WHERE lo_supplier = s_id AND lo_part = p_id AND lo_date = d_id AND p_brand LIKE '%2' GROUP BY s_nation, d_year ORDER BY s_nation, d_year DESC
----
answered
====
-- case: 10 returned, as written
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- reason: unit
SELECT c_id, c_city, SUM(lo_price) AS revenue FROM customer, lineorder WHERE c_id = lo_customer GROUP BY c_id, c_city ORDER BY revenue DESC LIMIT 20
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: 12 modes with cases
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT lo_mode, SUM(CASE WHEN lo_discount = 1 OR lo_discount = 2 THEN 1 ELSE 0 END) AS high, SUM(CASE WHEN lo_discount <> 1 AND lo_discount <> 2 THEN 1 ELSE 0 END) AS low FROM lineorder GROUP BY lo_mode ORDER BY lo_mode
----
answered
====
-- case: 12 two modes only
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT lo_mode, COUNT(*) FROM lineorder WHERE lo_mode IN ('AIR', 'SHIP') GROUP BY lo_mode ORDER BY lo_mode
----
answered
====
-- case: 13 how many have how many
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- plain: SELECT c_count, COUNT(*) AS n FROM (SELECT c_id, COUNT(lo_order) AS c_count FROM customer LEFT OUTER JOIN lineorder ON c_id = lo_customer AND lo_mode <> 'RAIL' GROUP BY c_id) AS t GROUP BY c_count HAVING COUNT(*) > 1 ORDER BY n DESC, c_count DESC
SELECT c_count, COUNT(*) AS n FROM (SELECT c_id, COUNT(lo_order) AS c_count FROM customer LEFT OUTER JOIN lineorder ON c_id = lo_customer AND lo_mode <> 'RAIL' GROUP BY c_id) AS t GROUP BY c_count ORDER BY n DESC, c_count DESC
----
answered
====
-- case: 14 a promotion's effect
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT 100.00 * SUM(CASE WHEN p_brand LIKE 'MFGR#2223%' THEN lo_price * (1 - lo_discount / 100) ELSE 0 END) / SUM(lo_price * (1 - lo_discount / 100)) FROM lineorder, part WHERE lo_part = p_id
----
answered
====
-- case: 15 the best supplier
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
WITH r AS (SELECT lo_supplier, SUM(lo_price) AS total FROM lineorder GROUP BY lo_supplier) SELECT s_id, s_city, total FROM supplier JOIN r ON s_id = lo_supplier WHERE total = (SELECT MAX(total) FROM r)
----
answered
====
-- case: 16 suppliers by brand
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: lo_customer
SELECT p_brand, p_category, COUNT(DISTINCT lo_supplier) FROM lineorder, part WHERE lo_part = p_id AND p_brand <> 'MFGR#2221' AND lo_supplier NOT IN (SELECT s_id FROM supplier WHERE s_city LIKE '%3') GROUP BY p_brand, p_category ORDER BY 3 DESC, 1, 2
----
answered
====
-- case: 17 small quantities
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT SUM(lo_price) / 7.0 FROM lineorder l, part WHERE p_id = lo_part AND p_brand = 'MFGR#2221' AND lo_quantity < (SELECT 0.9 * AVG(lo_quantity) FROM lineorder)
----
answered
====
-- case: 17 as written, for each part
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- reason: subquery
SELECT SUM(lo_price) / 7.0 FROM lineorder l WHERE lo_quantity < (SELECT 0.9 * AVG(lo_quantity) FROM lineorder m WHERE m.lo_part = l.lo_part)
----
refused: PrivacyError: a subquery over private rows would let one unit
====
-- case: 18 large orders
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT COUNT(*), AVG(q, contribution_bounds_per_row => (0, 200)) FROM (SELECT lo_customer, lo_order, SUM(lo_quantity) AS q FROM lineorder GROUP BY lo_customer, lo_order HAVING SUM(lo_quantity) > 60) AS big
----
answered
====
-- case: 19 discounted revenue
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT SUM(lo_price * (1 - lo_discount / 100)) FROM lineorder, part WHERE (p_id = lo_part AND p_brand = 'MFGR#2221' AND lo_quantity BETWEEN 1 AND 11 AND lo_mode IN ('AIR', 'RAIL')) OR (p_id = lo_part AND p_brand = 'MFGR#2223' AND lo_quantity BETWEEN 10 AND 20)
----
answered
====
-- case: 20 suppliers who sold a part
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- reason: rows
SELECT s_nation, COUNT(*) FROM supplier WHERE s_id IN (SELECT lo_supplier FROM lineorder WHERE lo_part = 3) GROUP BY s_nation
----
refused: PrivacyError: lo_supplier must be a group or be inside an
====
-- case: 21 customers who waited
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: c_id
SELECT c_segment, COUNT(DISTINCT c_id) FROM customer, lineorder l1 WHERE c_id = l1.lo_customer AND EXISTS (SELECT * FROM lineorder l2 WHERE l2.lo_customer = l1.lo_customer AND l2.lo_supplier <> l1.lo_supplier) GROUP BY c_segment
----
answered
====
-- case: 22 customers without orders
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: c_id
SELECT SUBSTRING(c_city FROM 6 FOR 1) AS code, COUNT(*) FROM customer WHERE NOT EXISTS (SELECT * FROM lineorder WHERE lo_customer = c_id AND lo_quantity > 45) GROUP BY code ORDER BY code
----
answered
====
-- case: 2 the cheapest of each part
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
SELECT p_id, MIN(lo_cost) FROM part JOIN lineorder ON p_id = lo_part GROUP BY p_id HAVING COUNT(*) > 1000
----
answered
====
-- case: 11 important parts
-- from: TPC-H, the shapes of its queries (number in the title); tests/tpch has them on the benchmark's own data
-- seen: lo_customer
-- ties: yes
SELECT lo_part, SUM(lo_cost) AS v FROM lineorder GROUP BY lo_part HAVING SUM(lo_cost) > (SELECT SUM(lo_cost) * 0.03 FROM lineorder) ORDER BY v DESC
----
answered
