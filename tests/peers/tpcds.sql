-- case: 1 buyers who return more than others of their shop
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- reason: subquery
WITH r AS (SELECT buyer, shop_id, SUM(amount) AS total FROM returns GROUP BY buyer, shop_id) SELECT COUNT(*) FROM r r1 WHERE r1.total > (SELECT AVG(total) * 1.2 FROM r r2 WHERE r1.shop_id = r2.shop_id)
----
refused: PrivacyError: a subquery over private rows would let one unit
====
-- case: 1 in the open: returns of shops, from units' totals
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- slack: 0.01
-- seen: buyer
WITH r AS (SELECT buyer, shop_id, SUM(amount) AS total FROM returns GROUP BY buyer, shop_id) SELECT shop_id, COUNT(*), AVG(total, contribution_bounds_per_row => (0, 100000)) FROM r GROUP BY shop_id
----
answered
====
-- case: 3 brand's sales in November
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT d.year, g.brand_id, g.brand, SUM(s.price) AS total FROM days d, sales s, goods g WHERE d.day_id = s.day_id AND s.good_id = g.good_id AND d.month = 11 GROUP BY d.year, g.brand_id, g.brand ORDER BY d.year, total DESC, g.brand_id LIMIT 100
----
answered
====
-- case: 6 buyers' states of dear goods
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.state, COUNT(*) AS c FROM buyers b, sales s, goods g WHERE b.buyer = s.buyer AND s.good_id = g.good_id AND g.list_price > 1.2 * (SELECT AVG(j.list_price) FROM goods j WHERE j.category = g.category) GROUP BY b.state HAVING COUNT(*) >= 10 ORDER BY c, b.state LIMIT 100
----
answered
====
-- case: 7 means by good of one kind of buyer
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT g.good_id, AVG(s.quantity), AVG(s.price), AVG(s.coupon) FROM sales s, buyers b, goods g, promos p WHERE s.good_id = g.good_id AND s.buyer = b.buyer AND s.promo_id = p.promo_id AND b.gender = 'M' AND b.marital = 'S' AND (p.by_mail = 'N' OR p.by_event = 'N') GROUP BY g.good_id ORDER BY g.good_id LIMIT 100
----
answered
====
-- case: 9 cases over counts of buckets
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT CASE WHEN (SELECT COUNT(*) FROM sales WHERE quantity BETWEEN 1 AND 5) > 100 THEN (SELECT AVG(price) FROM sales WHERE quantity BETWEEN 1 AND 5) ELSE (SELECT AVG(profit) FROM sales WHERE quantity BETWEEN 1 AND 5) END AS bucket1, CASE WHEN (SELECT COUNT(*) FROM sales WHERE quantity BETWEEN 6 AND 10) > 1000 THEN (SELECT AVG(price) FROM sales WHERE quantity BETWEEN 6 AND 10) ELSE (SELECT AVG(coupon) FROM sales WHERE quantity BETWEEN 6 AND 10) END AS bucket2
----
answered
====
-- case: 10 kinds of buyers who bought
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.gender, b.marital, b.education, COUNT(*) AS c FROM buyers b WHERE EXISTS (SELECT * FROM sales s, days d WHERE b.buyer = s.buyer AND s.day_id = d.day_id AND d.year = 1999) GROUP BY b.gender, b.marital, b.education ORDER BY 1, 2, 3
----
answered
====
-- case: 11 buyers whose purchases grew
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH y AS (SELECT s.buyer, d.year, SUM(s.price) AS total FROM sales s JOIN days d ON s.day_id = d.day_id GROUP BY s.buyer, d.year) SELECT COUNT(*) FROM y a JOIN y b ON a.buyer = b.buyer WHERE a.year = 1999 AND b.year = 2000 AND b.total > a.total
----
answered
====
-- case: 13 means under conditions in or
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- plain: SELECT AVG(s.quantity), AVG(s.price), AVG(s.coupon), SUM(s.price) FROM sales s, shops t, buyers b WHERE s.shop_id = t.shop_id AND s.buyer = b.buyer AND ((b.marital = 'M' AND b.education = 'Primary' AND s.price BETWEEN 10 AND 50) OR (b.marital = 'S' AND b.education = 'College' AND s.price BETWEEN 5 AND 30))
SELECT AVG(s.quantity), AVG(s.price), AVG(s.coupon), SUM(s.price) FROM sales s, shops t, buyers b WHERE s.shop_id = t.shop_id AND s.buyer = b.buyer AND ((b.marital = 'M' AND b.education = 'Primary' AND s.price BETWEEN 10 AND 50) OR (b.marital = 'S' AND b.education = 'College' AND s.price BETWEEN 5 AND 30))
----
answered
====
-- case: 15 sales by state in a quarter
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.state, SUM(s.price) FROM sales s, buyers b, days d WHERE s.buyer = b.buyer AND (b.state IN ('CA', 'GA') OR s.price > 30) AND s.day_id = d.day_id AND d.quarter = 2 AND d.year = 2000 GROUP BY b.state ORDER BY b.state LIMIT 100
----
answered
====
-- case: 16 tickets without a return
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(DISTINCT ticket), SUM(price), SUM(profit) FROM sales s WHERE NOT EXISTS (SELECT * FROM returns r WHERE r.ticket = s.ticket AND r.buyer = s.buyer)
----
answered
====
-- case: 17 quantities sold and returned
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- slack: 0.01
-- seen: s.buyer
SELECT t.state, COUNT(s.quantity), AVG(s.quantity), STDDEV_SAMP(s.quantity), STDDEV_SAMP(s.quantity) / AVG(s.quantity) AS cov, COUNT(r.quantity), AVG(r.quantity) FROM sales s JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id JOIN shops t ON s.shop_id = t.shop_id GROUP BY t.state ORDER BY t.state
----
answered
====
-- case: 18 means by rollup of buyers' places
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.state, b.gender, AVG(s.quantity), AVG(s.price), AVG(b.born), AVG(b.children) FROM sales s JOIN buyers b ON s.buyer = b.buyer GROUP BY ROLLUP (b.state, b.gender) ORDER BY b.state, b.gender
----
answered
====
-- case: 19 brands of a manager
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.brand_id, g.brand, g.manager, SUM(s.price) AS p FROM days d, sales s, goods g WHERE d.day_id = s.day_id AND s.good_id = g.good_id AND g.manager = 8 GROUP BY g.brand, g.brand_id, g.manager ORDER BY p DESC
----
answered
====
-- case: 21 before and after a day
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, SUM(CASE WHEN d.day < DATE '2000-03-11' THEN s.quantity ELSE 0 END) AS before, SUM(CASE WHEN d.day >= DATE '2000-03-11' THEN s.quantity ELSE 0 END) AS after FROM sales s, shops t, days d WHERE s.shop_id = t.shop_id AND s.day_id = d.day_id GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 22 rollup of goods
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.category, g.brand, AVG(s.quantity) AS q FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand) ORDER BY q, g.category, g.brand LIMIT 100
----
answered
====
-- case: 25 profits of what was bought and brought back
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- slack: 0.01
-- seen: s.buyer
SELECT g.category, SUM(s.profit), SUM(r.amount) FROM sales s, returns r, goods g WHERE s.good_id = g.good_id AND s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id GROUP BY g.category ORDER BY g.category
----
answered
====
-- case: 27 grouping of a rollup
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT t.state, GROUPING(t.state) AS g, AVG(s.quantity), AVG(s.price) FROM sales s, buyers b, shops t WHERE s.shop_id = t.shop_id AND s.buyer = b.buyer AND b.education = 'College' GROUP BY ROLLUP (t.state) ORDER BY t.state
----
answered
====
-- case: 28 six buckets beside each other
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT * FROM (SELECT AVG(price) AS b1, COUNT(price) AS n1 FROM sales WHERE quantity BETWEEN 0 AND 5 AND (price BETWEEN 8 AND 18 OR coupon BETWEEN 4 AND 10)) x1, (SELECT AVG(price) AS b2, COUNT(price) AS n2 FROM sales WHERE quantity BETWEEN 6 AND 10) x2, (SELECT AVG(price) AS b3, COUNT(price) AS n3 FROM sales WHERE quantity BETWEEN 11 AND 15) x3
----
answered
====
-- case: 28 a count of distinct prices
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(DISTINCT price) FROM sales WHERE quantity BETWEEN 0 AND 5
----
answered
====
-- case: 29 sums of quantities by shop
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, SUM(s.quantity), SUM(r.quantity) FROM sales s JOIN returns r USING (buyer, ticket, good_id) JOIN shops t ON s.shop_id = t.shop_id GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 31 growth by county over quarters
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH q AS (SELECT t.county, d.quarter, SUM(s.price) AS total FROM sales s, days d, shops t WHERE s.day_id = d.day_id AND s.shop_id = t.shop_id AND d.year = 2000 GROUP BY t.county, d.quarter) SELECT a.county, b.total / a.total AS growth FROM q a, q b WHERE a.county = b.county AND a.quarter = 1 AND b.quarter = 2 ORDER BY a.county
----
answered
====
-- case: 32 discounts above 1.3 times the mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT SUM(s.coupon) FROM sales s, goods g WHERE s.good_id = g.good_id AND s.coupon > (SELECT 1.3 * AVG(coupon) FROM sales) - 0.01
----
answered
====
-- case: 33 sales of a category and a maker
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.brand_id, SUM(s.price) AS total FROM sales s, goods g WHERE g.good_id = s.good_id AND g.brand_id IN (SELECT brand_id FROM goods WHERE category = 'Books') GROUP BY g.brand_id ORDER BY total
----
answered
====
-- case: 34 buyers of many lines
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM (SELECT ticket, buyer, COUNT(*) AS c FROM sales GROUP BY ticket, buyer) AS t WHERE c BETWEEN 2 AND 3
----
answered
====
-- case: 34 as written: names of buyers
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- reason: unit
SELECT b.buyer, b.gender, c FROM (SELECT ticket, buyer, COUNT(*) AS c FROM sales GROUP BY ticket, buyer) AS t JOIN buyers b USING (buyer) WHERE c BETWEEN 2 AND 3
----
refused: PrivacyError: buyer is the privacy unit: it is never released.
====
-- case: 36 a ranked margin
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- plain: SELECT SUM(s.profit) / SUM(s.price) AS margin, g.category, rank() OVER (ORDER BY SUM(s.profit) / SUM(s.price)) AS r FROM sales s, goods g WHERE g.good_id = s.good_id GROUP BY g.category ORDER BY r
SELECT SUM(s.profit) / SUM(s.price) AS margin, g.category, rank() OVER (ORDER BY SUM(s.profit) / SUM(s.price)) AS r FROM sales s, goods g WHERE g.good_id = s.good_id GROUP BY g.category ORDER BY r
----
answered
====
-- case: 38 buyers in all of three
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM (SELECT DISTINCT buyer FROM sales INTERSECT SELECT DISTINCT buyer FROM returns INTERSECT SELECT DISTINCT buyer FROM tickets) AS hot
----
answered
====
-- case: 38 the same by joins
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM (SELECT DISTINCT buyer FROM sales) a JOIN (SELECT DISTINCT buyer FROM returns) b USING (buyer)
----
answered
====
-- case: 39 spread against mean by month
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, d.month, STDDEV_SAMP(s.quantity) AS sd, AVG(s.quantity) AS mean, CASE AVG(s.quantity) WHEN 0 THEN NULL ELSE STDDEV_SAMP(s.quantity) / AVG(s.quantity) END AS cov FROM sales s, shops t, days d WHERE s.shop_id = t.shop_id AND s.day_id = d.day_id GROUP BY t.name, d.month ORDER BY t.name, d.month
----
answered
====
-- case: 42 a category's sum in a month
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT d.year, g.category, SUM(s.price) FROM days d, sales s, goods g WHERE d.day_id = s.day_id AND s.good_id = g.good_id AND d.month = 11 AND d.year = 2000 GROUP BY d.year, g.category ORDER BY 3 DESC, 1, 2
----
answered
====
-- case: 43 sums by weekday beside each other
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, SUM(CASE WHEN d.weekday = 'Sunday' THEN s.price ELSE NULL END) AS sun, SUM(CASE WHEN d.weekday = 'Monday' THEN s.price ELSE NULL END) AS mon FROM days d, sales s, shops t WHERE d.day_id = s.day_id AND s.shop_id = t.shop_id GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 44 best and worst goods
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT good_id, m, rank() OVER (ORDER BY m DESC) AS r FROM (SELECT good_id, AVG(profit) AS m FROM sales GROUP BY good_id) WHERE m > 60 ORDER BY r, good_id
----
answered
====
-- case: 46 bought in another place than one lives in
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT t.state, COUNT(*) FROM sales s JOIN buyers b ON s.buyer = b.buyer JOIN shops t ON s.shop_id = t.shop_id WHERE b.state <> t.state GROUP BY t.state ORDER BY t.state
----
answered
====
-- case: 47 months against their mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH v AS (SELECT g.category, d.month, SUM(s.price) AS total FROM sales s JOIN days d ON s.day_id = d.day_id JOIN goods g ON s.good_id = g.good_id GROUP BY g.category, d.month) SELECT category, month, total, AVG(total) OVER (PARTITION BY category) AS mean, LAG(total) OVER (PARTITION BY category ORDER BY month) AS before FROM v ORDER BY category, month
----
answered
====
-- case: 48 a sum under conditions in or
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT SUM(s.quantity) FROM sales s, buyers b WHERE s.buyer = b.buyer AND ((b.marital = 'M' AND s.price BETWEEN 10 AND 20) OR (b.marital = 'D' AND s.price BETWEEN 20 AND 40))
----
answered
====
-- case: 50 days until a return
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, SUM(CASE WHEN r.day_id - s.day_id <= 30 THEN 1 ELSE 0 END) AS within, SUM(CASE WHEN r.day_id - s.day_id > 30 THEN 1 ELSE 0 END) AS later FROM sales s JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id JOIN shops t ON s.shop_id = t.shop_id GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 51 a running sum by day
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- ties: yes
SELECT month, SUM(total) OVER (ORDER BY month ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS so_far FROM (SELECT d.month, SUM(s.price) AS total FROM sales s JOIN days d ON s.day_id = d.day_id WHERE d.year = 1999 GROUP BY d.month) ORDER BY month
----
answered
====
-- case: 52 brands of a month
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT d.year, g.brand_id, g.brand, SUM(s.price) AS p FROM days d, sales s, goods g WHERE d.day_id = s.day_id AND s.good_id = g.good_id AND d.month = 12 AND d.year = 2000 GROUP BY d.year, g.brand, g.brand_id ORDER BY d.year, p DESC, g.brand_id LIMIT 100
----
answered
====
-- case: 53 quarters of a manager against their mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT manager, total, AVG(total) OVER (PARTITION BY manager) AS mean FROM (SELECT g.manager, d.quarter, SUM(s.price) AS total FROM goods g, sales s, days d WHERE s.good_id = g.good_id AND s.day_id = d.day_id GROUP BY g.manager, d.quarter) ORDER BY manager, total
----
answered
====
-- case: 55 brands of one manager
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.brand_id, g.brand, SUM(s.price) AS p FROM days d, sales s, goods g WHERE d.day_id = s.day_id AND s.good_id = g.good_id AND g.manager = 6 GROUP BY g.brand, g.brand_id ORDER BY p DESC, g.brand_id
----
answered
====
-- case: 59 weeks of a year beside those of the next
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH w AS (SELECT d.year, d.quarter, SUM(s.price) AS total FROM sales s, days d WHERE d.day_id = s.day_id GROUP BY d.year, d.quarter) SELECT a.quarter, b.total / a.total FROM w a JOIN w b ON a.quarter = b.quarter WHERE a.year = 1999 AND b.year = 2000 ORDER BY a.quarter
----
answered
====
-- case: 61 a share of promoted sales
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT p.total, a.total, p.total / a.total * 100 FROM (SELECT SUM(s.price) AS total FROM sales s JOIN promos p ON s.promo_id = p.promo_id WHERE p.by_mail = 'Y' OR p.by_event = 'Y') p, (SELECT SUM(price) AS total FROM sales) a
----
answered
====
-- case: 62 buckets of delays by name
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT SUBSTRING(t.name, 1, 6) AS n, COUNT(*) FILTER (WHERE s.quantity <= 5) AS few, COUNT(*) FILTER (WHERE s.quantity > 5) AS many FROM sales s, shops t WHERE s.shop_id = t.shop_id GROUP BY n ORDER BY n
----
answered
====
-- case: 65 goods below a tenth of a shop's mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH g AS (SELECT shop_id, good_id, SUM(price) AS revenue FROM sales GROUP BY shop_id, good_id), m AS (SELECT shop_id, AVG(revenue) AS mean FROM g GROUP BY shop_id) SELECT COUNT(*) FROM g JOIN m USING (shop_id) WHERE revenue <= 0.5 * mean
----
answered
====
-- case: 67 ranked within a rollup
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- plain: SELECT * FROM (SELECT category, brand, total, rank() OVER (PARTITION BY category ORDER BY total DESC) AS rk FROM (SELECT g.category, g.brand, SUM(s.price * s.quantity) AS total FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand))) WHERE rk <= 3 ORDER BY category, rk
SELECT * FROM (SELECT category, brand, total, rank() OVER (PARTITION BY category ORDER BY total DESC) AS rk FROM (SELECT g.category, g.brand, SUM(s.price * s.quantity) AS total FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand))) WHERE rk <= 3 ORDER BY category, rk
----
answered
====
-- case: 69 buyers who bought and never returned
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.gender, b.marital, COUNT(*) FROM buyers b WHERE EXISTS (SELECT 1 FROM sales s WHERE s.buyer = b.buyer) AND NOT EXISTS (SELECT 1 FROM returns r WHERE r.buyer = b.buyer) GROUP BY b.gender, b.marital
----
answered
====
-- case: 71 brands by hour
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.brand, d.week, SUM(s.price) AS p FROM goods g, sales s, days d WHERE s.good_id = g.good_id AND s.day_id = d.day_id AND g.manager = 1 GROUP BY g.brand, d.week ORDER BY p DESC, g.brand, d.week
----
answered
====
-- case: 73 tickets of few lines by county
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT county, COUNT(*) FROM (SELECT ticket, buyer, shop_id, COUNT(*) AS c FROM sales GROUP BY ticket, buyer, shop_id) x JOIN shops USING (shop_id) WHERE c BETWEEN 1 AND 5 GROUP BY county ORDER BY county
----
answered
====
-- case: 74 the year's total of buyers
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT year, COUNT(*), AVG(total, contribution_bounds_per_row => (0, 10000)) FROM (SELECT buyer, year, SUM(price) AS total FROM sales JOIN days USING (day_id) GROUP BY buyer, year) GROUP BY year ORDER BY year
----
answered
====
-- case: 76 missing values by channel
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT 'sales' AS channel, COUNT(*), SUM(price) FROM sales WHERE profit IS NULL UNION ALL SELECT 'returns', COUNT(*), SUM(amount) FROM returns WHERE quantity IS NULL
----
answered
====
-- case: 77 sales and returns by shop
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- ties: yes
WITH s AS (SELECT shop_id, SUM(price) AS sold FROM sales GROUP BY shop_id), r AS (SELECT shop_id, SUM(amount) AS back FROM returns GROUP BY shop_id) SELECT s.shop_id, sold, COALESCE(back, 0) FROM s LEFT JOIN r USING (shop_id) ORDER BY 1
----
answered
====
-- case: 79 profit of large shops
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.county, SUM(s.coupon), SUM(s.profit) FROM sales s JOIN shops t ON s.shop_id = t.shop_id WHERE s.quantity > 2 GROUP BY t.county ORDER BY 1
----
answered
====
-- case: 82 goods in a price range that were sold
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.good_id, g.list_price, COUNT(*) FROM goods g JOIN sales s ON g.good_id = s.good_id WHERE g.list_price BETWEEN 10 AND 20 GROUP BY g.good_id, g.list_price ORDER BY g.good_id
----
answered
====
-- case: 85 reasons of returns
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: r.buyer
SELECT SUBSTR(b.education, 1, 3) AS e, AVG(r.quantity), AVG(r.amount) FROM returns r, buyers b WHERE r.buyer = b.buyer GROUP BY e ORDER BY e
----
answered
====
-- case: 86 a rollup of net paid
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT SUM(s.price) AS total, g.category, g.brand, GROUPING(g.category) + GROUPING(g.brand) AS depth FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand) ORDER BY depth DESC, g.category, g.brand
----
answered
====
-- case: 87 buyers who are in one and not in the other
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM (SELECT DISTINCT buyer FROM sales EXCEPT SELECT DISTINCT buyer FROM returns) AS cool
----
answered
====
-- case: 88 counts of half hours beside each other
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT * FROM (SELECT COUNT(*) AS h1 FROM sales WHERE quantity = 8) s1, (SELECT COUNT(*) AS h2 FROM sales WHERE quantity = 9) s2, (SELECT COUNT(*) AS h3 FROM sales WHERE quantity = 10) s3
----
answered
====
-- case: 90 morning against evening
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT CAST(am AS DECIMAL(15, 4)) / CAST(pm AS DECIMAL(15, 4)) FROM (SELECT COUNT(*) AS am FROM sales WHERE quantity < 8) a, (SELECT COUNT(*) AS pm FROM sales WHERE quantity >= 8) p
----
answered
====
-- case: 91 losses by kind of buyer
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.marital, b.education, SUM(r.amount) FROM returns r JOIN buyers b ON b.buyer = r.buyer GROUP BY b.marital, b.education ORDER BY 3 DESC
----
answered
====
-- case: 93 what was kept by buyers
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT SUM(CASE WHEN r.quantity IS NOT NULL THEN (s.quantity - r.quantity) * s.price ELSE s.quantity * s.price END) FROM sales s LEFT JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id
----
answered
====
-- case: 96 a count under conditions
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM sales s, buyers b, shops t WHERE s.buyer = b.buyer AND s.shop_id = t.shop_id AND b.children = 7 AND t.name = 'shop 1'
----
answered
====
-- case: 97 in one, in the other, in both
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT SUM(CASE WHEN s.buyer IS NOT NULL AND r.buyer IS NULL THEN 1 ELSE 0 END) AS one, SUM(CASE WHEN s.buyer IS NOT NULL AND r.buyer IS NOT NULL THEN 1 ELSE 0 END) AS both FROM (SELECT buyer, good_id FROM sales GROUP BY buyer, good_id) s FULL OUTER JOIN (SELECT buyer, good_id FROM returns GROUP BY buyer, good_id) r ON s.buyer = r.buyer AND s.good_id = r.good_id
----
answered
====
-- case: 98 a share within a category
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- plain: SELECT g.category, g.brand, SUM(s.price) AS p, SUM(s.price) * 100 / SUM(SUM(s.price)) OVER (PARTITION BY g.category) AS share FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY g.category, g.brand ORDER BY 1, 2
SELECT g.category, g.brand, SUM(s.price) AS p, SUM(s.price) * 100 / SUM(SUM(s.price)) OVER (PARTITION BY g.category) AS share FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY g.category, g.brand ORDER BY 1, 2
----
answered
====
-- case: 99 delays by shop
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, SUM(CASE WHEN s.quantity <= 10 THEN 1 ELSE 0 END), SUM(CASE WHEN s.quantity > 10 AND s.quantity <= 15 THEN 1 ELSE 0 END) FROM sales s JOIN shops t USING (shop_id) GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 36 ranks among the groups of a rollup
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.category, g.brand, SUM(s.price) AS p, rank() OVER (PARTITION BY GROUPING(g.category) + GROUPING(g.brand), CASE WHEN GROUPING(g.brand) = 0 THEN g.category END ORDER BY SUM(s.price) DESC) AS r FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand) ORDER BY r, p
----
answered
====
-- case: 67 a rollup by what is not shown
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT category, COUNT(*) AS n FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand) ORDER BY g.category, g.brand
----
answered
====
-- case: 70 having by another name of a key
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT g.category, g.brand, COUNT(*) AS n FROM sales s, goods g WHERE s.good_id = g.good_id GROUP BY ROLLUP (g.category, g.brand) HAVING GROUPING(brand) = 1 ORDER BY g.category
----
answered
====
-- case: 93 sold and returned, by the ticket alone
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT SUM(CASE WHEN r.quantity IS NOT NULL THEN (s.quantity - r.quantity) * s.price ELSE s.quantity * s.price END) FROM sales s LEFT JOIN returns r ON s.ticket = r.ticket AND s.good_id = r.good_id
----
answered
====
-- case: 50 days to return, by the ticket alone
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT t.name, SUM(CASE WHEN r.day_id - s.day_id <= 30 THEN 1 ELSE 0 END) AS within FROM sales s, returns r, shops t WHERE s.ticket = r.ticket AND s.good_id = r.good_id AND s.shop_id = t.shop_id GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 16 tickets without a return, by the ticket alone
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(DISTINCT ticket), SUM(price), SUM(profit) FROM sales s WHERE NOT EXISTS (SELECT * FROM returns r WHERE r.ticket = s.ticket)
----
answered
====
-- case: 2 weekdays of a year beside those of the next
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH w AS (SELECT d.year, d.weekday, SUM(s.price) AS total FROM sales s JOIN days d USING (day_id) GROUP BY d.year, d.weekday) SELECT a.weekday, ROUND(b.total / a.total, 1) AS grown FROM w a JOIN w b ON a.weekday = b.weekday AND b.year = a.year + 1 WHERE a.year = 1999 ORDER BY a.weekday
----
answered
====
-- case: 4 buyers whose spending grew faster than their returns
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH s AS (SELECT buyer, SUM(price) AS paid FROM sales GROUP BY buyer), r AS (SELECT buyer, SUM(amount) AS back FROM returns GROUP BY buyer) SELECT COUNT(*) FROM s JOIN r ON s.buyer = r.buyer WHERE r.back > s.paid
----
answered
====
-- case: 5 sales and returns of shops under each other
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT name, SUM(sold) AS sold, SUM(back) AS back FROM (SELECT buyer, shop_id, price AS sold, 0 AS back FROM sales UNION ALL SELECT buyer, shop_id, 0 AS sold, amount AS back FROM returns) AS x JOIN shops USING (shop_id) GROUP BY name ORDER BY name
----
answered
====
-- case: 8 shops of counties with many buyers
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT t.name, SUM(s.profit) FROM sales s JOIN shops t USING (shop_id) WHERE t.county IN (SELECT county FROM shops GROUP BY county HAVING COUNT(*) >= 3) GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 12 a good's share of its category
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT g.brand, g.category, SUM(s.price) AS total, SUM(s.price) * 100 / SUM(SUM(s.price)) OVER (PARTITION BY g.category) AS share FROM sales s JOIN goods g USING (good_id) WHERE g.category IN ('Books', 'Music') GROUP BY g.brand, g.category ORDER BY g.category, g.brand
----
answered
====
-- case: 14 brands that sell above the mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
WITH m AS (SELECT AVG(quantity * price) AS mean FROM sales) SELECT g.brand_id, SUM(s.quantity * s.price) AS total FROM sales s JOIN goods g USING (good_id) GROUP BY g.brand_id HAVING SUM(s.quantity * s.price) > (SELECT mean FROM m) ORDER BY g.brand_id
----
answered
====
-- case: 20 revenue of a month by category, with its share
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT g.category, SUM(s.price) AS r, SUM(s.price) / SUM(SUM(s.price)) OVER () AS share FROM sales s JOIN goods g USING (good_id) JOIN days d USING (day_id) WHERE d.day BETWEEN DATE '1999-02-01' AND DATE '1999-12-31' GROUP BY g.category ORDER BY g.category
----
answered
====
-- case: 23 buyers above half of the largest total
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH t AS (SELECT buyer, SUM(quantity * price) AS spent FROM sales GROUP BY buyer), m AS (SELECT MAX(spent, contribution_bounds_per_row => (0, 60000)) AS top FROM t) SELECT COUNT(*) > 0 FROM t WHERE spent > 0.5 * (SELECT top FROM m)
----
answered
====
-- case: 24 totals of buyers by state and gender above a part of their mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
WITH p AS (SELECT b.buyer, b.state, b.gender, SUM(s.price) AS paid FROM sales s JOIN buyers b ON s.buyer = b.buyer GROUP BY b.buyer, b.state, b.gender) SELECT state, SUM(paid) FROM p GROUP BY state HAVING SUM(paid) > 10 ORDER BY state
----
answered
====
-- case: 26 means by good of buyers of one kind, promoted
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT g.good_id, AVG(s.quantity), AVG(s.price), AVG(s.coupon) FROM sales s JOIN buyers b ON s.buyer = b.buyer JOIN goods g ON g.good_id = s.good_id JOIN promos p ON p.promo_id = s.promo_id WHERE b.education = 'College' AND p.by_event = 'N' GROUP BY g.good_id ORDER BY 1
----
answered
====
-- case: 30 buyers who return more than a number
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
WITH r AS (SELECT buyer, SUM(amount) AS total FROM returns GROUP BY buyer) SELECT b.state, COUNT(*) FROM r JOIN buyers b ON r.buyer = b.buyer WHERE r.total > 500 GROUP BY b.state ORDER BY b.state
----
answered
====
-- case: 35 buyers in sales and in tickets or returns
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
-- slack: 0.5
SELECT b.gender, b.marital, COUNT(*), MIN(b.children), MAX(b.children), AVG(b.children) FROM buyers b WHERE EXISTS (SELECT 1 FROM sales s WHERE s.buyer = b.buyer) AND (EXISTS (SELECT 1 FROM tickets t WHERE t.buyer = b.buyer) OR EXISTS (SELECT 1 FROM returns r WHERE r.buyer = b.buyer)) GROUP BY b.gender, b.marital ORDER BY 1, 2
----
answered
====
-- case: 37 goods in a range of prices that sold
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT g.good_id, g.list_price FROM goods g JOIN (SELECT good_id, COUNT(*) AS n FROM sales GROUP BY good_id) AS s USING (good_id) WHERE g.list_price BETWEEN 20 AND 30 AND s.n > 5 ORDER BY g.good_id
----
answered
====
-- case: 40 sales before and after a day
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT t.state, SUM(CASE WHEN d.day < DATE '2000-01-01' THEN s.price ELSE 0 END) AS before, SUM(CASE WHEN d.day >= DATE '2000-01-01' THEN s.price ELSE 0 END) AS after FROM sales s JOIN shops t USING (shop_id) JOIN days d USING (day_id) GROUP BY t.state ORDER BY t.state
----
answered
====
-- case: 41 public goods alone
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT DISTINCT brand FROM goods g WHERE manager BETWEEN 2 AND 6 AND (SELECT COUNT(*) FROM goods h WHERE h.brand = g.brand AND (h.size = 'large' OR h.category = 'Home')) > 0 ORDER BY brand
----
answered
====
-- case: 45 sales by state and country of buyers in a list
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT b.state, b.country, SUM(s.price) FROM sales s JOIN buyers b ON s.buyer = b.buyer JOIN days d ON s.day_id = d.day_id WHERE (b.country IN ('N1', 'N2') OR s.good_id IN (SELECT good_id FROM goods WHERE good_id < 10)) AND d.quarter = 2 GROUP BY b.state, b.country ORDER BY 1, 2
----
answered
====
-- case: 49 the worst rates of return
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- ties: yes
SELECT good_id, rate, RANK() OVER (ORDER BY rate DESC) AS place FROM (SELECT s.good_id, r.n / s.n AS rate FROM (SELECT good_id, SUM(quantity) AS n FROM sales GROUP BY good_id) s JOIN (SELECT good_id, SUM(quantity) AS n FROM returns GROUP BY good_id) r USING (good_id)) WHERE rate > 0.2 ORDER BY place, good_id LIMIT 5
----
answered
====
-- case: 54 buyers by segments of fifty
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
WITH t AS (SELECT buyer, SUM(price) AS revenue FROM sales GROUP BY buyer) SELECT CAST(FLOOR(revenue / 50) AS INTEGER) AS segment, COUNT(*) AS n FROM t GROUP BY segment ORDER BY segment
----
answered
====
-- case: 56 goods of colours sold in a month, by union
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- ties: yes
SELECT good_id, SUM(total) AS total FROM (SELECT good_id, SUM(price) AS total FROM sales WHERE shop_id < 3 GROUP BY good_id UNION ALL SELECT good_id, SUM(price) AS total FROM sales WHERE shop_id >= 3 GROUP BY good_id) AS u GROUP BY good_id ORDER BY total, good_id LIMIT 10
----
answered
====
-- case: 57 months against their mean and neighbours
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH v AS (SELECT g.category, d.year, d.month, SUM(s.price) AS total, AVG(SUM(s.price)) OVER (PARTITION BY g.category, d.year) AS mean, RANK() OVER (PARTITION BY g.category ORDER BY d.year, d.month) AS rn FROM sales s JOIN goods g USING (good_id) JOIN days d USING (day_id) GROUP BY g.category, d.year, d.month) SELECT v.category, v.total, b.total AS before, a.total AS after FROM v JOIN v b ON v.category = b.category AND v.rn = b.rn + 1 JOIN v a ON v.category = a.category AND v.rn = a.rn - 1 WHERE v.mean > 0 AND ABS(v.total - v.mean) / v.mean > 0.1 ORDER BY v.category, v.rn LIMIT 20
----
answered
====
-- case: 58 goods that sell alike in two kinds of shops
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH a AS (SELECT good_id, SUM(price) AS r FROM sales WHERE shop_id < 3 GROUP BY good_id), b AS (SELECT good_id, SUM(price) AS r FROM sales WHERE shop_id >= 3 GROUP BY good_id) SELECT COUNT(*) FROM a JOIN b USING (good_id) WHERE a.r BETWEEN 0.5 * b.r AND 2 * b.r
----
answered
====
-- case: 60 sales of a category's goods in September
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT s.good_id, SUM(s.price) FROM sales s WHERE s.good_id IN (SELECT good_id FROM goods WHERE category = 'Music') AND s.day_id IN (SELECT day_id FROM days WHERE month = 9) GROUP BY s.good_id ORDER BY s.good_id
----
answered
====
-- case: 63 managers' months against the mean of their year
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT * FROM (SELECT g.manager, SUM(s.price) AS total, AVG(SUM(s.price)) OVER (PARTITION BY g.manager) AS mean FROM sales s JOIN goods g USING (good_id) JOIN days d USING (day_id) WHERE d.year = 1999 GROUP BY g.manager) AS x WHERE CASE WHEN mean > 0 THEN ABS(total - mean) / mean ELSE NULL END >= 0 ORDER BY manager
----
answered
====
-- case: 64 pairs of years of goods sold and returned
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- plain: WITH c AS (SELECT s.good_id, d.year, COUNT(*) AS n, SUM(s.price) AS paid FROM sales s JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id JOIN days d ON s.day_id = d.day_id GROUP BY s.good_id, d.year HAVING COUNT(DISTINCT s.buyer) > 1) SELECT COUNT(*) FROM c
WITH c AS (SELECT s.good_id, d.year, COUNT(*) AS n, SUM(s.price) AS paid FROM sales s JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id JOIN days d ON s.day_id = d.day_id GROUP BY s.good_id, d.year) SELECT COUNT(*) FROM c
----
answered
====
-- case: 66 a column for each month
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT t.name, SUM(CASE WHEN d.month = 1 THEN s.price * s.quantity ELSE 0 END) AS jan, SUM(CASE WHEN d.month = 2 THEN s.price * s.quantity ELSE 0 END) AS feb, SUM(CASE WHEN d.month = 3 THEN s.price * s.quantity ELSE 0 END) AS mar FROM sales s JOIN shops t USING (shop_id) JOIN days d USING (day_id) WHERE d.year = 1999 GROUP BY t.name ORDER BY t.name
----
answered
====
-- case: 68 tickets of buyers by size, and what they paid
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
-- slack: 0.01
SELECT n, COUNT(*), AVG(paid) FROM (SELECT buyer, ticket, COUNT(*) AS n, SUM(price) AS paid FROM sales GROUP BY buyer, ticket) AS t GROUP BY n ORDER BY n
----
answered
====
-- case: 72 promoted and not promoted
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT g.category, SUM(CASE WHEN p.promo_id IS NULL THEN 1 ELSE 0 END) AS without, SUM(CASE WHEN p.promo_id IS NOT NULL THEN 1 ELSE 0 END) AS promoted, COUNT(*) AS n FROM sales s JOIN goods g USING (good_id) LEFT JOIN (SELECT promo_id FROM promos WHERE by_mail = 'Y') AS p ON s.promo_id = p.promo_id GROUP BY g.category ORDER BY n DESC, g.category
----
answered
====
-- case: 75 sales less returns by year
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
WITH a AS (SELECT d.year, SUM(s.quantity) - SUM(COALESCE(r.quantity, 0)) AS kept FROM sales s LEFT JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id JOIN days d ON s.day_id = d.day_id GROUP BY d.year) SELECT b.year, b.kept, a.kept FROM a JOIN a b ON b.year = a.year + 1
----
answered
====
-- case: 78 sales that nobody brought back
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: s.buyer
SELECT d.year, COUNT(*), SUM(s.price) FROM sales s LEFT JOIN returns r ON s.buyer = r.buyer AND s.ticket = r.ticket AND s.good_id = r.good_id JOIN days d ON s.day_id = d.day_id WHERE r.ticket IS NULL GROUP BY d.year ORDER BY d.year
----
answered
====
-- case: 80 profit by shop and good, in a rollup
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT t.state, g.category, SUM(s.price) AS sold, SUM(s.profit) AS profit FROM sales s JOIN shops t USING (shop_id) JOIN goods g USING (good_id) WHERE g.list_price > 10 GROUP BY ROLLUP (t.state, g.category) ORDER BY 1 NULLS FIRST, 2 NULLS FIRST
----
answered
====
-- case: 81 buyers of a state who return more than a mean given as a number
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM (SELECT r.buyer, SUM(r.amount) AS total FROM returns r JOIN buyers b ON r.buyer = b.buyer WHERE b.state = 'GA' GROUP BY r.buyer) AS t WHERE total > 1.2 * 300
----
answered
====
-- case: 83 returns by good in weeks of days in a list
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: buyer
SELECT r.good_id, SUM(r.quantity) FROM returns r WHERE r.day_id IN (SELECT day_id FROM days WHERE week IN (SELECT week FROM days WHERE day IN (DATE '1999-06-30', DATE '1999-09-27', DATE '1999-11-17'))) GROUP BY r.good_id ORDER BY r.good_id
----
answered
====
-- case: 84 buyers of a state with children, as names
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
-- seen: b.buyer
SELECT COUNT(DISTINCT b.buyer), b.state FROM buyers b JOIN returns r ON r.buyer = b.buyer WHERE b.born BETWEEN 1940 AND 1970 GROUP BY b.state ORDER BY b.state
----
answered
====
-- case: 89 months that differ from their mean
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT category, month, total FROM (SELECT g.category, d.month, SUM(s.price) AS total, AVG(SUM(s.price)) OVER (PARTITION BY g.category) AS mean FROM sales s JOIN goods g USING (good_id) JOIN days d USING (day_id) WHERE d.year = 1999 AND g.category IN ('Books', 'Home') GROUP BY g.category, d.month) AS x WHERE total < mean ORDER BY category, month
----
answered
====
-- case: 92 coupons above a public mean price
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT SUM(s.coupon) FROM sales s JOIN goods g ON s.good_id = g.good_id WHERE s.price > 1.3 * (SELECT AVG(h.list_price) FROM goods h WHERE h.brand = g.brand)
----
answered
====
-- case: 94 tickets from one shop and none returned
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(DISTINCT ticket) FROM sales s WHERE s.shop_id = 2 AND NOT EXISTS (SELECT 1 FROM returns r WHERE r.buyer = s.buyer AND r.ticket = s.ticket)
----
answered
====
-- case: 95 tickets with two goods at once
-- from: TPC-DS, the shapes of its 99 queries (number in the title)
SELECT COUNT(*) FROM tickets t WHERE EXISTS (SELECT 1 FROM sales a JOIN sales b ON a.buyer = b.buyer AND a.ticket = b.ticket AND a.good_id <> b.good_id WHERE a.buyer = t.buyer AND a.ticket = t.ticket)
----
answered
