-- case: COUNT(*)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks
----
answered
====
-- case: COUNT(*) WHERE advert <> 0
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE advert <> 0
----
answered
====
-- case: SUM(advert), COUNT(*), AVG(width)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT SUM(advert), COUNT(*), AVG(width) FROM clicks
----
answered
====
-- case: AVG(width)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT AVG(width) FROM clicks
----
answered
====
-- case: COUNT(DISTINCT visitor)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT visitor) FROM clicks
----
answered
====
-- case: COUNT(DISTINCT phrase)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT phrase) FROM clicks
----
answered
====
-- case: COUNT(*) WHERE url LIKE '%news%'
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE url LIKE '%news%'
----
answered
====
-- case: COUNT(*) WHERE visitor = 37
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE visitor = 37
----
answered
====
-- case: COUNT(*), COUNT(DISTINCT visitor), COUNT(DISTINCT url) WHERE title LIKE '%News%' OR ti
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*), COUNT(DISTINCT visitor), COUNT(DISTINCT url) FROM clicks WHERE title LIKE '%News%' OR title LIKE '%Shop%'
----
answered
====
-- case: COUNT(*) WHERE url LIKE '%http%' AND title NOT LIKE '%Shop%'
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE url LIKE '%http%' AND title NOT LIKE '%Shop%'
----
answered
====
-- case: COUNT(DISTINCT visitor) WHERE mobile = 1
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT visitor) FROM clicks WHERE mobile = 1
----
answered
====
-- case: COUNT(DISTINCT url)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT url) FROM clicks
----
answered
====
-- case: COUNT(DISTINCT click) WHERE refresh = 0
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT click) FROM clicks WHERE refresh = 0
----
answered
====
-- case: COUNT(DISTINCT title) WHERE title <> ''
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT title) FROM clicks WHERE title <> ''
----
answered
====
-- case: COUNT(DISTINCT url), COUNT(DISTINCT title), COUNT(DISTINCT phrase)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(DISTINCT url), COUNT(DISTINCT title), COUNT(DISTINCT phrase) FROM clicks
----
answered
====
-- case: COUNT(*) WHERE LOWER(title) LIKE '%games%'
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE LOWER(title) LIKE '%games%'
----
answered
====
-- case: COUNT(*) WHERE referrer LIKE 'http://%' AND referrer NOT LIKE '%google%'
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE referrer LIKE 'http://%' AND referrer NOT LIKE '%google%'
----
answered
====
-- case: COUNT(*) WHERE url LIKE '%video%' OR url LIKE '%film%'
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE url LIKE '%video%' OR url LIKE '%film%'
----
answered
====
-- case: COUNT(*) WHERE url LIKE '%search%' AND phrase <> ''
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE url LIKE '%search%' AND phrase <> ''
----
answered
====
-- case: SUM(width), SUM(width + 1), SUM(width + 2), SUM(width + 3), SUM(width + 4), SUM(width
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT SUM(width), SUM(width + 1), SUM(width + 2), SUM(width + 3), SUM(width + 4), SUM(width + 5) FROM clicks
----
answered
====
-- case: SUM(LENGTH(title)), SUM(LENGTH(url))
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT SUM(LENGTH(title)), SUM(LENGTH(url)) FROM clicks
----
answered
====
-- case: AVG(LENGTH(url)) WHERE url <> ''
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT AVG(LENGTH(url)) FROM clicks WHERE url <> ''
----
answered
====
-- case: MIN(day), MAX(day)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT MIN(day), MAX(day) FROM clicks
----
refused: PrivacyError: MIN(day) needs bounds for day; the policy declares none.
====
-- case: MIN(width), MAX(width)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT MIN(width), MAX(width) FROM clicks
----
answered
====
-- case: * WHERE title LIKE '%Google%' ORDER BY moment LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: rows
SELECT * FROM clicks WHERE title LIKE '%Google%' ORDER BY moment LIMIT 10
----
refused: PrivacyError: rows of clicks can't be released.
====
-- case: url WHERE url LIKE '%news%' ORDER BY moment DESC LIMIT 25
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: rows
SELECT url FROM clicks WHERE url LIKE '%news%' ORDER BY moment DESC LIMIT 25
----
refused: PrivacyError: url must be a group or be inside an
====
-- case: url, moment WHERE url <> '' ORDER BY moment LIMIT 25 OFFSET 100
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: rows
SELECT url, moment FROM clicks WHERE url <> '' ORDER BY moment LIMIT 25 OFFSET 100
----
refused: PrivacyError: url must be a group or be inside an
====
-- case: visitor WHERE visitor = 435
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: unit
SELECT visitor FROM clicks WHERE visitor = 435
----
refused: PrivacyError: visitor is the privacy unit: it is never released.
====
-- case: phrase WHERE phrase <> '' ORDER BY moment LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: rows
SELECT phrase FROM clicks WHERE phrase <> '' ORDER BY moment LIMIT 10
----
refused: PrivacyError: phrase must be a group or be inside an
====
-- case: DISTINCT visitor
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: unit
SELECT DISTINCT visitor FROM clicks
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: visitor, COUNT(*) GROUP BY visitor ORDER BY COUNT(*) DESC LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: unit
SELECT visitor, COUNT(*) FROM clicks GROUP BY visitor ORDER BY COUNT(*) DESC LIMIT 10
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: visitor, phrase, COUNT(*) GROUP BY visitor, phrase ORDER BY COUNT(*) DESC LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- reason: unit
SELECT visitor, phrase, COUNT(*) FROM clicks GROUP BY visitor, phrase ORDER BY COUNT(*) DESC LIMIT 10
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: 'mobile' AS kind, COUNT(*) AS c, COUNT(DISTINCT visitor) AS u WHERE mobile = 1 UNION A
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT 'mobile' AS kind, COUNT(*) AS c, COUNT(DISTINCT visitor) AS u FROM clicks WHERE mobile = 1 UNION ALL SELECT 'desk', COUNT(*), COUNT(DISTINCT visitor) FROM clicks WHERE mobile = 0
----
answered
====
-- case: COUNT(*) WHERE visitor IN (visitor WHERE phrase <> '' GROUP BY visitor HAVING COUNT(*)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT COUNT(*) FROM clicks WHERE visitor IN (SELECT visitor FROM clicks WHERE phrase <> '' GROUP BY visitor HAVING COUNT(*) > 2)
----
answered
====
-- case: WITH heavy AS (visitor GROUP BY visitor HAVING COUNT(*) > 7) COUNT(*) FROM heavy
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
WITH heavy AS (SELECT visitor FROM clicks GROUP BY visitor HAVING COUNT(*) > 7) SELECT COUNT(*) FROM heavy
----
answered
====
-- case: AVG(mobile) * 100, SUM(refresh) / COUNT(*)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT AVG(mobile) * 100, SUM(refresh) / COUNT(*) FROM clicks
----
answered
====
-- case: SUM(CASE WHEN advert > 0 THEN 1 ELSE 0 END) * 1.0 / COUNT(*)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT SUM(CASE WHEN advert > 0 THEN 1 ELSE 0 END) * 1.0 / COUNT(*) FROM clicks
----
answered
====
-- case: click, ip, COUNT(*) AS c, SUM(refresh), AVG(width) GROUP BY click, ip ORDER BY c DESC
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT click, ip, COUNT(*) AS c, SUM(refresh), AVG(width) FROM clicks GROUP BY click, ip ORDER BY c DESC LIMIT 10
----
answered
====
-- case: advert, COUNT(*) WHERE advert <> 0 GROUP BY advert ORDER BY COUNT(*) DESC
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT advert, COUNT(*) FROM clicks WHERE advert <> 0 GROUP BY advert ORDER BY COUNT(*) DESC
----
answered
====
-- case: region, COUNT(DISTINCT visitor) AS u GROUP BY region ORDER BY u DESC LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY region ORDER BY u DESC LIMIT 10
----
answered
====
-- case: region, SUM(advert), COUNT(*) AS c, AVG(width), COUNT(DISTINCT visitor) GROUP BY regio
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, SUM(advert), COUNT(*) AS c, AVG(width), COUNT(DISTINCT visitor) FROM clicks GROUP BY region ORDER BY c DESC LIMIT 10
----
answered
====
-- case: model, COUNT(DISTINCT visitor) AS u WHERE model <> '' GROUP BY model ORDER BY u DESC L
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT model, COUNT(DISTINCT visitor) AS u FROM clicks WHERE model <> '' GROUP BY model ORDER BY u DESC LIMIT 10
----
answered
====
-- case: phone, model, COUNT(DISTINCT visitor) AS u WHERE model <> '' GROUP BY phone, model ORD
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT phone, model, COUNT(DISTINCT visitor) AS u FROM clicks WHERE model <> '' GROUP BY phone, model ORDER BY u DESC LIMIT 10
----
answered
====
-- case: phrase, COUNT(*) AS c WHERE phrase <> '' GROUP BY phrase ORDER BY c DESC LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT phrase, COUNT(*) AS c FROM clicks WHERE phrase <> '' GROUP BY phrase ORDER BY c DESC LIMIT 10
----
answered
====
-- case: phrase, COUNT(DISTINCT visitor) AS u WHERE phrase <> '' GROUP BY phrase ORDER BY u DES
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT phrase, COUNT(DISTINCT visitor) AS u FROM clicks WHERE phrase <> '' GROUP BY phrase ORDER BY u DESC LIMIT 10
----
answered
====
-- case: engine, phrase, COUNT(*) AS c WHERE phrase <> '' GROUP BY engine, phrase ORDER BY c DE
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT engine, phrase, COUNT(*) AS c FROM clicks WHERE phrase <> '' GROUP BY engine, phrase ORDER BY c DESC LIMIT 100
----
answered
====
-- case: phrase, MIN(url), COUNT(*) AS c WHERE url LIKE '%news%' AND phrase <> '' GROUP BY phra
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT phrase, MIN(url), COUNT(*) AS c FROM clicks WHERE url LIKE '%news%' AND phrase <> '' GROUP BY phrase ORDER BY c DESC LIMIT 10
----
refused: BindError: MIN needs a number, and url is VARCHAR.
====
-- case: region, AVG(LENGTH(url)) AS l, COUNT(*) AS c WHERE url <> '' GROUP BY region HAVING CO
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, AVG(LENGTH(url)) AS l, COUNT(*) AS c FROM clicks WHERE url <> '' GROUP BY region HAVING COUNT(*) > 10 ORDER BY l DESC LIMIT 25
----
answered
====
-- case: REGEXP_REPLACE(referrer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS k, AVG(LENGTH(ref
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT REGEXP_REPLACE(referrer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS k, AVG(LENGTH(referrer)) AS l, COUNT(*) AS c FROM clicks WHERE referrer <> '' GROUP BY k HAVING COUNT(*) > 10 ORDER BY l DESC LIMIT 25
----
answered
====
-- case: engine, ip, COUNT(*) AS c, SUM(refresh), AVG(width) WHERE phrase <> '' GROUP BY engine
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT engine, ip, COUNT(*) AS c, SUM(refresh), AVG(width) FROM clicks WHERE phrase <> '' GROUP BY engine, ip ORDER BY c DESC LIMIT 100
----
answered
====
-- case: url, COUNT(*) AS c GROUP BY url ORDER BY c DESC LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT url, COUNT(*) AS c FROM clicks GROUP BY url ORDER BY c DESC LIMIT 10
----
answered
====
-- case: 1, url, COUNT(*) AS c GROUP BY 1, url ORDER BY c DESC LIMIT 10
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT 1, url, COUNT(*) AS c FROM clicks GROUP BY 1, url ORDER BY c DESC LIMIT 10
----
answered
====
-- case: ip, ip - 1, ip - 2, ip - 3, COUNT(*) AS c GROUP BY ip, ip - 1, ip - 2, ip - 3 ORDER BY
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT ip, ip - 1, ip - 2, ip - 3, COUNT(*) AS c FROM clicks GROUP BY ip, ip - 1, ip - 2, ip - 3 ORDER BY c DESC LIMIT 10
----
answered
====
-- case: url, COUNT(*) AS views WHERE region = 2 AND day >= '2013-07-01' AND day <= '2013-07-31
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT url, COUNT(*) AS views FROM clicks WHERE region = 2 AND day >= '2013-07-01' AND day <= '2013-07-31' AND refresh = 0 AND url <> '' GROUP BY url ORDER BY views DESC LIMIT 10
----
answered
====
-- case: title, COUNT(*) AS views WHERE day BETWEEN '2013-07-01' AND '2013-07-20' AND refresh =
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT title, COUNT(*) AS views FROM clicks WHERE day BETWEEN '2013-07-01' AND '2013-07-20' AND refresh = 0 AND title <> '' GROUP BY title ORDER BY views DESC LIMIT 10
----
answered
====
-- case: url, COUNT(*) AS views WHERE refresh = 0 AND link <> 0 GROUP BY url ORDER BY views DES
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT url, COUNT(*) AS views FROM clicks WHERE refresh = 0 AND link <> 0 GROUP BY url ORDER BY views DESC, url LIMIT 10 OFFSET 1
----
answered
====
-- case: source, engine, advert, CASE WHEN (engine = 0 AND advert = 0) THEN referrer ELSE '' EN
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT source, engine, advert, CASE WHEN (engine = 0 AND advert = 0) THEN referrer ELSE '' END AS src, url AS dst, COUNT(*) AS views FROM clicks WHERE refresh = 0 GROUP BY source, engine, advert, src, dst ORDER BY views DESC LIMIT 10
----
answered
====
-- case: width, height, COUNT(*) AS views WHERE refresh = 0 GROUP BY width, height ORDER BY vie
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT width, height, COUNT(*) AS views FROM clicks WHERE refresh = 0 GROUP BY width, height ORDER BY views DESC, width, height LIMIT 10
----
answered
====
-- case: country, COUNT(*), COUNT(DISTINCT visitor) WHERE country <> '' GROUP BY country ORDER
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT country, COUNT(*), COUNT(DISTINCT visitor) FROM clicks WHERE country <> '' GROUP BY country ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: country, SUM(LENGTH(title)), SUM(LENGTH(url)), SUM(LENGTH(referrer)) WHERE country <>
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT country, SUM(LENGTH(title)), SUM(LENGTH(url)), SUM(LENGTH(referrer)) FROM clicks WHERE country <> '' GROUP BY country ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: country, AVG(LENGTH(url)), COUNT(DISTINCT url) WHERE url <> '' GROUP BY country ORDER
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT country, AVG(LENGTH(url)), COUNT(DISTINCT url) FROM clicks WHERE url <> '' GROUP BY country ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: lang, COUNT(*), COUNT(DISTINCT visitor) GROUP BY lang ORDER BY 2 DESC LIMIT 25
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT lang, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY lang ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: source, region, COUNT(*), COUNT(DISTINCT visitor) WHERE source <> 0 GROUP BY source, r
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT source, region, COUNT(*), COUNT(DISTINCT visitor) FROM clicks WHERE source <> 0 GROUP BY source, region ORDER BY 3 DESC
----
answered
====
-- case: age, sex, COUNT(*), COUNT(DISTINCT visitor), COUNT(DISTINCT url) WHERE age > 0 GROUP B
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT age, sex, COUNT(*), COUNT(DISTINCT visitor), COUNT(DISTINCT url) FROM clicks WHERE age > 0 GROUP BY age, sex ORDER BY 3 DESC
----
answered
====
-- case: day, COUNT(*), COUNT(DISTINCT visitor) GROUP BY day ORDER BY day
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT day, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY day ORDER BY day
----
answered
====
-- case: EXTRACT(HOUR FROM moment) AS h, COUNT(*), COUNT(DISTINCT visitor) GROUP BY h ORDER BY
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT EXTRACT(HOUR FROM moment) AS h, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY h ORDER BY h
----
answered
====
-- case: DATE_TRUNC('day', moment) AS h, COUNT(*), COUNT(DISTINCT visitor) GROUP BY h ORDER BY
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT DATE_TRUNC('day', moment) AS h, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY h ORDER BY h LIMIT 100
----
answered
====
-- case: DATE_TRUNC('minute', moment) AS m, COUNT(*) WHERE day BETWEEN '2013-07-14' AND '2013-0
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT DATE_TRUNC('minute', moment) AS m, COUNT(*) FROM clicks WHERE day BETWEEN '2013-07-14' AND '2013-07-15' GROUP BY m ORDER BY m LIMIT 10 OFFSET 10
----
answered
====
-- case: EXTRACT(DOW FROM moment) AS d, COUNT(*), COUNT(DISTINCT visitor), COUNT(DISTINCT url)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT EXTRACT(DOW FROM moment) AS d, COUNT(*), COUNT(DISTINCT visitor), COUNT(DISTINCT url) FROM clicks GROUP BY d ORDER BY d
----
answered
====
-- case: EXTRACT(MONTH FROM day) AS m, COUNT(*), COUNT(DISTINCT visitor) GROUP BY m ORDER BY m
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT EXTRACT(MONTH FROM day) AS m, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY m ORDER BY m
----
answered
====
-- case: DATE_TRUNC('week', day) AS week, COUNT(*), COUNT(DISTINCT visitor) GROUP BY week ORDER
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT DATE_TRUNC('week', day) AS week, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY week ORDER BY week
----
answered
====
-- case: day, SUM(mobile) AS m, SUM(1 - mobile) AS d, SUM(refresh) AS r, COUNT(DISTINCT visitor
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT day, SUM(mobile) AS m, SUM(1 - mobile) AS d, SUM(refresh) AS r, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY day ORDER BY day
----
answered
====
-- case: region, AVG(send_ms), AVG(dns_ms), AVG(reply_ms), COUNT(DISTINCT visitor) WHERE send_m
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, AVG(send_ms), AVG(dns_ms), AVG(reply_ms), COUNT(DISTINCT visitor) FROM clicks WHERE send_ms > 0 GROUP BY region ORDER BY region
----
answered
====
-- case: SUBSTRING(url, 1, 12) AS prefix, COUNT(*), COUNT(DISTINCT visitor) WHERE url <> '' GRO
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT SUBSTRING(url, 1, 12) AS prefix, COUNT(*), COUNT(DISTINCT visitor) FROM clicks WHERE url <> '' GROUP BY prefix ORDER BY 2 DESC, 1 LIMIT 25
----
answered
====
-- case: country, COUNT(*) WHERE title <> '' AND POSITION('News' IN title) > 0 GROUP BY country
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT country, COUNT(*) FROM clicks WHERE title <> '' AND POSITION('News' IN title) > 0 GROUP BY country ORDER BY 2 DESC, 1 LIMIT 25
----
answered
====
-- case: REGEXP_REPLACE(phrase, '[0-9]+', 'N') AS k, COUNT(*) WHERE phrase <> '' GROUP BY k ORD
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT REGEXP_REPLACE(phrase, '[0-9]+', 'N') AS k, COUNT(*) FROM clicks WHERE phrase <> '' GROUP BY k ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: LENGTH(url) AS l, COUNT(*), COUNT(DISTINCT visitor) WHERE url <> '' GROUP BY l HAVING
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT LENGTH(url) AS l, COUNT(*), COUNT(DISTINCT visitor) FROM clicks WHERE url <> '' GROUP BY l HAVING COUNT(*) > 100 ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: region, AVG(CASE WHEN advert > 0 THEN 1.0 ELSE 0.0 END) AS rate, COUNT(*) AS c, COUNT(
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, AVG(CASE WHEN advert > 0 THEN 1.0 ELSE 0.0 END) AS rate, COUNT(*) AS c, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY region HAVING COUNT(*) > 10 ORDER BY rate DESC LIMIT 25
----
answered
====
-- case: source, COUNT(*) FILTER (WHERE mobile = 1) AS m, COUNT(*) FILTER (WHERE mobile = 0) AS
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT source, COUNT(*) FILTER (WHERE mobile = 1) AS m, COUNT(*) FILTER (WHERE mobile = 0) AS d, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY source ORDER BY u DESC LIMIT 25
----
answered
====
-- case: region, COUNT(DISTINCT visitor) FILTER (WHERE mobile = 1) AS mu, COUNT(DISTINCT visito
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, COUNT(DISTINCT visitor) FILTER (WHERE mobile = 1) AS mu, COUNT(DISTINCT visitor) FILTER (WHERE mobile = 0) AS du FROM clicks GROUP BY region ORDER BY mu + du DESC LIMIT 25
----
answered
====
-- case: CASE WHEN advert = 0 AND engine = 0 THEN 'organic' WHEN advert > 0 THEN 'ad' ELSE 'sea
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT CASE WHEN advert = 0 AND engine = 0 THEN 'organic' WHEN advert > 0 THEN 'ad' ELSE 'search' END AS src, COUNT(*) AS c, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY src ORDER BY c DESC
----
answered
====
-- case: day, AVG(CASE WHEN refresh = 1 THEN 1.0 ELSE 0.0 END) AS rr, AVG(CASE WHEN link = 1 TH
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT day, AVG(CASE WHEN refresh = 1 THEN 1.0 ELSE 0.0 END) AS rr, AVG(CASE WHEN link = 1 THEN 1.0 ELSE 0.0 END) AS lr, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY day ORDER BY day
----
answered
====
-- case: url, AVG(LENGTH(title)) AS at, COUNT(*) AS c WHERE url <> '' AND title <> '' GROUP BY
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT url, AVG(LENGTH(title)) AS at, COUNT(*) AS c FROM clicks WHERE url <> '' AND title <> '' GROUP BY url HAVING COUNT(*) > 10 ORDER BY at DESC LIMIT 25
----
answered
====
-- case: country, COUNT(DISTINCT lang) AS langs, COUNT(*) AS c WHERE country <> '' GROUP BY cou
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT country, COUNT(DISTINCT lang) AS langs, COUNT(*) AS c FROM clicks WHERE country <> '' GROUP BY country ORDER BY langs DESC LIMIT 25
----
answered
====
-- case: click % 10 AS bucket, COUNT(*), COUNT(DISTINCT visitor) GROUP BY bucket ORDER BY bucke
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT click % 10 AS bucket, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY bucket ORDER BY bucket
----
answered
====
-- case: MOD(ip, 2) AS bucket, COUNT(DISTINCT visitor) GROUP BY bucket ORDER BY 2 DESC LIMIT 25
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT MOD(ip, 2) AS bucket, COUNT(DISTINCT visitor) FROM clicks GROUP BY bucket ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: FLOOR(ip / 16777216)::INTEGER AS class_a, COUNT(*), COUNT(DISTINCT visitor) GROUP BY c
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT FLOOR(ip / 16777216)::INTEGER AS class_a, COUNT(*), COUNT(DISTINCT visitor) FROM clicks GROUP BY class_a ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: FLOOR(LOG(GREATEST(width, 1)))::INTEGER AS lw, COUNT(*), COUNT(DISTINCT visitor), AVG(
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT FLOOR(LOG(GREATEST(width, 1)))::INTEGER AS lw, COUNT(*), COUNT(DISTINCT visitor), AVG(height) FROM clicks GROUP BY lw ORDER BY lw
----
answered
====
-- case: region, mobile, COUNT(*) AS c, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY regio
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, mobile, COUNT(*) AS c, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY region) AS pct FROM clicks GROUP BY region, mobile HAVING COUNT(*) > 10 ORDER BY region, c DESC
----
answered
====
-- case: EXTRACT(HOUR FROM moment) AS h, EXTRACT(MINUTE FROM moment) AS m, COUNT(*) GROUP BY h,
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT EXTRACT(HOUR FROM moment) AS h, EXTRACT(MINUTE FROM moment) AS m, COUNT(*) FROM clicks GROUP BY h, m ORDER BY 3 DESC LIMIT 25
----
answered
====
-- case: region, AVG(send_ms + dns_ms + reply_ms) AS total, COUNT(*) AS c WHERE send_ms > 0 GRO
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, AVG(send_ms + dns_ms + reply_ms) AS total, COUNT(*) AS c FROM clicks WHERE send_ms > 0 GROUP BY region HAVING COUNT(*) > 10 ORDER BY total DESC LIMIT 25
----
answered
====
-- case: day, COUNT(*) FILTER (WHERE title LIKE '%News%') AS news, COUNT(*) FILTER (WHERE title
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT day, COUNT(*) FILTER (WHERE title LIKE '%News%') AS news, COUNT(*) FILTER (WHERE title LIKE '%Shop%') AS shop FROM clicks GROUP BY day ORDER BY day
----
answered
====
-- case: engine, COUNT(*), COUNT(DISTINCT phrase), COUNT(DISTINCT visitor) WHERE engine > 0 GRO
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT engine, COUNT(*), COUNT(DISTINCT phrase), COUNT(DISTINCT visitor) FROM clicks WHERE engine > 0 GROUP BY engine ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: region, MIN(moment), MAX(moment), COUNT(*) GROUP BY region ORDER BY region
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT region, MIN(moment), MAX(moment), COUNT(*) FROM clicks GROUP BY region ORDER BY region
----
refused: PrivacyError: MIN(moment) needs bounds for moment; the policy declares none.
====
-- case: country, COUNT(*), AVG(price), COUNT(DISTINCT visitor) WHERE country <> '' GROUP BY co
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT country, COUNT(*), AVG(price), COUNT(DISTINCT visitor) FROM clicks WHERE country <> '' GROUP BY country ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: day, region, COUNT(*), AVG(width) WHERE day BETWEEN '2013-07-08' AND '2013-07-15' GROU
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT day, region, COUNT(*), AVG(width) FROM clicks WHERE day BETWEEN '2013-07-08' AND '2013-07-15' GROUP BY day, region HAVING COUNT(*) > 3 ORDER BY day, 4 DESC, region LIMIT 100
----
answered
====
-- case: mobile, lang, SUM(price), COUNT(price) GROUP BY ROLLUP (mobile, lang) ORDER BY mobile,
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT mobile, lang, SUM(price), COUNT(price) FROM clicks GROUP BY ROLLUP (mobile, lang) ORDER BY mobile, lang
----
answered
====
-- case: lang, mobile, COUNT(*) GROUP BY CUBE (lang, mobile)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
SELECT lang, mobile, COUNT(*) FROM clicks GROUP BY CUBE (lang, mobile)
----
answered
====
-- case: lang, QUANTILE_CONT(width, 0.5) BETWEEN 1279 AND 1367 GROUP BY lang ORDER BY lang
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
-- ties: yes
SELECT lang, QUANTILE_CONT(width, 0.5) BETWEEN 1279 AND 1367 FROM clicks GROUP BY lang ORDER BY lang
----
answered
====
-- case: day, u, AVG(u) OVER (ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS ma3 FRO
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- ties: yes
-- plain: SELECT day, u, AVG(u) OVER (ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS ma3 FROM (SELECT day, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY day HAVING COUNT(DISTINCT visitor) > 1) ORDER BY day
SELECT day, u, AVG(u) OVER (ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS ma3 FROM (SELECT day, COUNT(DISTINCT visitor) AS u FROM clicks GROUP BY day) ORDER BY day
----
answered
====
-- case: day, COUNT(DISTINCT visitor) AS u, AVG(COUNT(DISTINCT visitor)) OVER (ORDER BY day ROW
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
SELECT day, COUNT(DISTINCT visitor) AS u, AVG(COUNT(DISTINCT visitor)) OVER (ORDER BY day ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS ma3 FROM clicks GROUP BY day ORDER BY day
----
answered
====
-- case: day, region, COUNT(*) AS c, ROW_NUMBER() OVER (PARTITION BY day ORDER BY COUNT(*) DESC
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- seen: visitor
SELECT day, region, COUNT(*) AS c, ROW_NUMBER() OVER (PARTITION BY day ORDER BY COUNT(*) DESC, region) AS rn FROM clicks GROUP BY day, region QUALIFY rn <= 3 ORDER BY day, rn
----
answered
====
-- case: * FROM (url, COUNT(*) AS c, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, url) AS rn WHER
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT * FROM (SELECT url, COUNT(*) AS c, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, url) AS rn FROM clicks WHERE url <> '' GROUP BY url) t WHERE rn <= 3
----
answered
====
-- case: WITH cnt AS (url, COUNT(*) AS c WHERE url <> '' GROUP BY url) MIN(c), MAX(c), AVG(c),
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
WITH cnt AS (SELECT url, COUNT(*) AS c FROM clicks WHERE url <> '' GROUP BY url) SELECT MIN(c), MAX(c), AVG(c), COUNT(*) FROM cnt WHERE c > 100
----
answered
====
-- case: WITH t AS (lang, COUNT(DISTINCT visitor) AS c GROUP BY lang) lang, c, c - LAG(c) OVER
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
WITH t AS (SELECT lang, COUNT(DISTINCT visitor) AS c FROM clicks GROUP BY lang) SELECT lang, c, c - LAG(c) OVER (ORDER BY lang) AS diff FROM t ORDER BY lang
----
answered
====
-- case: url, COUNT(*) WHERE url IN (url WHERE title LIKE '%News%' GROUP BY url HAVING COUNT(*)
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
-- ties: yes
-- seen: visitor
SELECT url, COUNT(*) FROM clicks WHERE url IN (SELECT url FROM clicks WHERE title LIKE '%News%' GROUP BY url HAVING COUNT(*) > 10) GROUP BY url ORDER BY 2 DESC LIMIT 25
----
answered
====
-- case: a.region, a.mob, b.desk FROM (region, COUNT(*) AS mob WHERE mobile = 1 GROUP BY region
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT a.region, a.mob, b.desk FROM (SELECT region, COUNT(*) AS mob FROM clicks WHERE mobile = 1 GROUP BY region) a JOIN (SELECT region, COUNT(*) AS desk FROM clicks WHERE mobile = 0 GROUP BY region) b ON a.region = b.region ORDER BY a.region
----
answered
====
-- case: CASE WHEN width < 1280 THEN 'S' WHEN width BETWEEN 1280 AND 1600 THEN 'M' ELSE 'L' END
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT CASE WHEN width < 1280 THEN 'S' WHEN width BETWEEN 1280 AND 1600 THEN 'M' ELSE 'L' END AS size, COUNT(*) FROM clicks GROUP BY ALL ORDER BY ALL
----
answered
====
-- case: mobile, COUNT(*) WHERE mobile = 1 GROUP BY mobile
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT mobile, COUNT(*) FROM clicks WHERE mobile = 1 GROUP BY mobile
----
answered
====
-- case: lang, COUNT(*), AVG(width) WHERE lang <> 'en' GROUP BY lang ORDER BY lang
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT lang, COUNT(*), AVG(width) FROM clicks WHERE lang <> 'en' GROUP BY lang ORDER BY lang
----
answered
====
-- case: DISTINCT country, lang WHERE country <> '' ORDER BY country, lang LIMIT 100
-- from: ClickBench, duckdb/queries.sql and the 43 queries of the benchmark
SELECT DISTINCT country, lang FROM clicks WHERE country <> '' ORDER BY country, lang LIMIT 100
----
answered
