-- section: dashboards

-- answered
SELECT COUNT(*) AS trips, COUNT(DISTINCT rider) AS riders, SUM(km) AS km, AVG(minutes) AS mean_minutes FROM trips

-- answered
SELECT bike, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct FROM trips GROUP BY bike ORDER BY n DESC

-- answered
SELECT DATE_TRUNC('month', started) AS month, COUNT(*) AS trips FROM trips GROUP BY month ORDER BY month

-- answered
SELECT STRFTIME(started, '%Y-%m') AS month, COUNT(*) FROM trips GROUP BY 1 ORDER BY 1

-- answered
SELECT month, trips, trips - LAG(trips) OVER (ORDER BY month) AS change, ROUND(100.0 * (trips - LAG(trips) OVER (ORDER BY month)) / LAG(trips) OVER (ORDER BY month), 1) AS pct FROM (SELECT DATE_TRUNC('month', started) AS month, COUNT(*) AS trips FROM trips GROUP BY 1) ORDER BY month

-- answered
WITH monthly AS (SELECT DATE_TRUNC('month', started) AS month, COUNT(*) AS trips FROM trips GROUP BY 1) SELECT month, trips, SUM(trips) OVER (ORDER BY month ROWS UNBOUNDED PRECEDING) AS so_far FROM monthly ORDER BY month

-- answered
WITH weekly AS (SELECT DATE_TRUNC('week', started) AS week, COUNT(*) AS trips FROM trips GROUP BY 1) SELECT week, AVG(trips) OVER (ORDER BY week ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS rolling FROM weekly ORDER BY week

-- answered
SELECT DAYNAME(started) AS weekday, COUNT(*) AS n FROM trips GROUP BY weekday ORDER BY n DESC

-- answered
SELECT ISODOW(started) AS dow, HOUR(started) // 6 AS quarter, COUNT(*) AS n FROM trips GROUP BY ALL ORDER BY ALL

-- answered
SELECT EXTRACT(hour FROM started) AS h, COUNT(*) AS n FROM trips GROUP BY h ORDER BY n DESC, h LIMIT 5

-- answered
SELECT origin, COUNT(*) AS departures FROM trips GROUP BY origin ORDER BY departures DESC LIMIT 3

-- answered
SELECT origin, target, COUNT(*) AS n FROM trips GROUP BY origin, target HAVING COUNT(*) > 30 ORDER BY n DESC

-- answered
SELECT s.district, COUNT(*) AS departures FROM trips t JOIN stations s ON s.station = t.origin GROUP BY s.district ORDER BY 2 DESC

-- answered
SELECT s.station, COUNT(t.trip) AS departures, COUNT(t.trip) / s.places AS per_place FROM stations s LEFT JOIN trips t ON t.origin = s.station GROUP BY s.station, s.places ORDER BY s.station

-- answered
SELECT o.district AS f, d.district AS t, COUNT(*) AS n FROM trips JOIN stations o ON origin = o.station JOIN stations d ON target = d.station GROUP BY ALL ORDER BY ALL

-- answered
SELECT COUNT(*) FILTER (WHERE member) AS members, COUNT(*) FILTER (WHERE NOT member) AS casual FROM trips

-- answered
SELECT SUM(CASE WHEN member THEN km ELSE 0 END) / SUM(km) AS member_share FROM trips

-- answered
SELECT CASE WHEN minutes < 15 THEN 'short' WHEN minutes < 45 THEN 'middle' ELSE 'long' END AS length, COUNT(*) AS n, AVG(km) AS km FROM trips GROUP BY length ORDER BY n

-- answered
SELECT FLOOR(minutes / 10) * 10 AS bin, COUNT(*) AS n FROM trips GROUP BY bin ORDER BY bin

-- answered
SELECT TIME_BUCKET(INTERVAL 14 DAYS, started) AS fortnight, COUNT(*) AS n FROM trips GROUP BY fortnight ORDER BY fortnight

-- answered
SELECT COUNT(*) FROM trips WHERE started BETWEEN '2024-02-01' AND '2024-02-29 23:59:59'

-- answered
SELECT COUNT(*) FROM trips WHERE started >= DATE '2024-03-01' AND started < DATE '2024-03-01' + INTERVAL 1 MONTH

-- answered
SELECT bike, MEDIAN(minutes) AS med, QUANTILE_CONT(minutes, 0.9) AS p90 FROM trips GROUP BY bike ORDER BY bike

-- answered
SELECT bike, MIN(minutes), MAX(minutes) FROM trips GROUP BY bike ORDER BY bike

-- answered
SELECT bike, STDDEV(minutes) AS sd, VARIANCE(minutes) AS v FROM trips GROUP BY bike ORDER BY bike

-- answered
SELECT CORR(minutes, km) FROM trips

-- answered
SELECT REGR_SLOPE(km, minutes), REGR_INTERCEPT(km, minutes) FROM trips

-- answered
SELECT SUM(km) / SUM(minutes) * 60 AS kmh FROM trips WHERE minutes > 0

-- answered
SELECT bike, SUM(km) / NULLIF(SUM(minutes), 0) * 60 AS kmh FROM trips GROUP BY bike ORDER BY kmh DESC

-- answered
SELECT AVG(km / NULLIF(minutes, 0), contribution_bounds_per_row => (0, 100)) FROM trips WHERE minutes >= 5

-- section: people and what they do

-- answered
SELECT COUNT(*) FROM (SELECT rider FROM trips GROUP BY rider HAVING COUNT(*) >= 5)

-- answered
SELECT LEAST(n, 8) AS n, COUNT(*) AS riders FROM (SELECT rider, COUNT(*) AS n FROM trips GROUP BY rider) GROUP BY 1 ORDER BY 1

-- answered
SELECT AVG(n) AS trips_each FROM (SELECT rider, COUNT(*) AS n FROM trips GROUP BY rider)

-- answered
SELECT COUNT(*) / COUNT(DISTINCT rider) AS trips_each FROM trips

-- answered
WITH firsts AS (SELECT rider, MIN(started) AS first FROM trips GROUP BY rider) SELECT DATE_TRUNC('month', first) AS cohort, COUNT(*) AS riders FROM firsts GROUP BY cohort ORDER BY cohort

-- answered
WITH firsts AS (SELECT rider, DATE_TRUNC('month', MIN(started)) AS cohort FROM trips GROUP BY rider) SELECT f.cohort, DATE_DIFF('month', f.cohort, t.started) AS later, COUNT(DISTINCT t.rider) AS riders FROM trips t JOIN firsts f USING (rider) GROUP BY ALL ORDER BY ALL

-- answered
SELECT COUNT(DISTINCT rider) FROM trips WHERE rider IN (SELECT rider FROM trips WHERE bike = 'cargo') AND bike = 'ebike'

-- answered
SELECT COUNT(*) FROM trips t WHERE EXISTS (SELECT 1 FROM trips e WHERE e.rider = t.rider AND e.started < t.started AND e.bike = 'cargo')

-- answered
SELECT COUNT(DISTINCT rider) FROM trips t WHERE NOT EXISTS (SELECT 1 FROM trips e WHERE e.rider = t.rider AND e.member)

-- answered
SELECT bike, COUNT(*) FROM (SELECT rider, bike, ROW_NUMBER() OVER (PARTITION BY rider ORDER BY started) AS r FROM trips) WHERE r = 1 GROUP BY bike ORDER BY bike

-- answered
SELECT bike, COUNT(*) FROM (FROM trips QUALIFY ROW_NUMBER() OVER (PARTITION BY rider ORDER BY started DESC) = 1) GROUP BY bike ORDER BY bike

-- answered
SELECT AVG(gap, contribution_bounds_per_row => (0, 180)) FROM (SELECT rider, DATE_DIFF('day', LAG(started) OVER (PARTITION BY rider ORDER BY started), started) AS gap FROM trips)

-- answered
SELECT CASE WHEN gap IS NULL THEN 'first' WHEN gap <= 7 THEN 'week' WHEN gap <= 30 THEN 'month' ELSE 'later' END AS g, COUNT(*) FROM (SELECT rider, DATE_DIFF('day', LAG(started) OVER (PARTITION BY rider ORDER BY started), started) AS gap FROM trips) GROUP BY g ORDER BY g

-- answered
WITH marked AS (SELECT rider, started, CASE WHEN started - LAG(started) OVER (PARTITION BY rider ORDER BY started) <= INTERVAL 30 DAY THEN 0 ELSE 1 END AS fresh FROM trips), numbered AS (SELECT rider, SUM(fresh) OVER (PARTITION BY rider ORDER BY started) AS island FROM marked) SELECT COUNT(*) FROM (SELECT rider, island, COUNT(*) AS n FROM numbered GROUP BY rider, island) WHERE n >= 2

-- answered
SELECT COUNT(*) FROM (SELECT rider, SUM(km) AS total FROM trips GROUP BY rider) WHERE total > 50

-- answered
SELECT CASE WHEN total < 20 THEN 'low' WHEN total < 60 THEN 'mid' ELSE 'high' END AS band, COUNT(*) AS riders, AVG(n) AS trips FROM (SELECT rider, SUM(km) AS total, COUNT(*) AS n FROM trips GROUP BY rider) GROUP BY band ORDER BY band

-- answered
SELECT COUNT(*) FROM (SELECT rider, MAX(km) AS best FROM trips GROUP BY rider) b JOIN trips t ON t.rider = b.rider AND t.km = b.best WHERE t.bike = 'city'

-- answered
SELECT bike, COUNT(*) FROM (SELECT DISTINCT ON (rider) rider, bike FROM trips ORDER BY rider, km DESC) GROUP BY bike ORDER BY bike

-- answered
SELECT fav, COUNT(*) FROM (SELECT rider, MODE(origin) AS fav FROM (SELECT * FROM trips) GROUP BY rider HAVING COUNT(*) = 1) GROUP BY fav ORDER BY fav

-- answered
SELECT first_bike, last_bike, COUNT(*) FROM (SELECT rider, ARG_MIN(bike, started) AS first_bike, ARG_MAX(bike, started) AS last_bike FROM trips GROUP BY rider) GROUP BY ALL ORDER BY ALL

-- answered
SELECT kinds, COUNT(*) FROM (SELECT rider, COUNT(DISTINCT bike) AS kinds FROM trips GROUP BY rider) GROUP BY kinds ORDER BY kinds

-- answered
SELECT COUNT(*) FROM (SELECT rider FROM trips WHERE bike = 'city' INTERSECT SELECT rider FROM trips WHERE bike = 'ebike')

-- answered
SELECT COUNT(*) FROM (SELECT rider FROM trips WHERE bike = 'city' EXCEPT SELECT rider FROM trips WHERE bike = 'ebike')

-- answered
SELECT COUNT(*) FROM (SELECT rider FROM trips WHERE member UNION SELECT rider FROM trips WHERE km > 20)

-- answered
SELECT what, COUNT(*) FROM (SELECT rider, 'from' AS what, origin AS station FROM trips UNION ALL SELECT rider, 'to', target FROM trips) WHERE station = 'Dock' GROUP BY what ORDER BY what

-- answered
SELECT station, SUM(d) AS net FROM (SELECT rider, origin AS station, -1 AS d FROM trips UNION ALL SELECT rider, target, 1 FROM trips) GROUP BY station ORDER BY station

-- answered
SELECT COUNT(*) FROM trips a JOIN trips b ON a.rider = b.rider AND a.trip < b.trip AND a.target = b.origin

-- answered
SELECT COUNT(*) FROM trips a JOIN trips b USING (rider) WHERE b.started > a.started AND b.started < a.started + INTERVAL 1 DAY

-- answered
SELECT t.bike, COUNT(*) FROM trips t SEMI JOIN (SELECT rider FROM trips WHERE km > 20) far USING (rider) GROUP BY t.bike ORDER BY t.bike

-- answered
SELECT COUNT(*) FROM trips t ANTI JOIN (SELECT rider FROM trips WHERE km > 20) far USING (rider)

-- answered
SELECT COUNT(*) FROM trips WHERE km > (SELECT AVG(km) FROM trips)

-- answered
SELECT bike, COUNT(*) FROM trips t JOIN (SELECT bike AS b, AVG(km) AS m FROM trips GROUP BY bike) a ON a.b = t.bike WHERE t.km > a.m + 1 GROUP BY bike ORDER BY bike

-- answered
SELECT COUNT(*) FROM (SELECT rider, km, AVG(km) OVER (PARTITION BY rider) AS own FROM trips) WHERE km > 2 * own

-- answered
SELECT COUNT(*) FROM (SELECT rider, km, SUM(km) OVER (PARTITION BY rider ORDER BY started ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS three FROM trips) WHERE three > 40

-- answered
SELECT r, COUNT(*) FROM (SELECT rider, RANK() OVER (PARTITION BY rider ORDER BY km DESC) AS r FROM trips) WHERE r <= 3 GROUP BY r ORDER BY r

-- answered
SELECT q, COUNT(*) FROM (SELECT rider, NTILE(2) OVER (PARTITION BY rider ORDER BY started) AS q FROM trips) GROUP BY q ORDER BY q

-- answered
SELECT AVG(share) FROM (SELECT rider, COUNT(*) FILTER (WHERE member) / COUNT(*) AS share FROM trips GROUP BY rider)

-- answered
SELECT COUNT(*) FROM (SELECT rider, DATE_TRUNC('month', started) AS m, COUNT(*) AS n FROM trips GROUP BY ALL) WHERE n >= 3

-- answered
SELECT m, AVG(n) FROM (SELECT rider, MONTH(started) AS m, COUNT(*) AS n FROM trips GROUP BY rider, m) GROUP BY m ORDER BY m

-- answered
SELECT active, COUNT(*) FROM (SELECT rider, COUNT(DISTINCT DATE_TRUNC('month', started)) AS active FROM trips GROUP BY rider) GROUP BY active ORDER BY active

-- answered
SELECT COUNT(*) FROM (SELECT rider, MIN(started) AS a, MAX(started) AS b FROM trips GROUP BY rider) WHERE b - a > INTERVAL 60 DAYS

-- answered
SELECT COUNT(*) FROM trips WHERE CAST(started AS DATE) IN (SELECT day FROM holidays)

-- answered
SELECT h.name, COUNT(t.trip) FROM holidays h LEFT JOIN trips t ON CAST(t.started AS DATE) = h.day GROUP BY h.name ORDER BY h.name

-- answered
SELECT COUNT(*) FROM trips t JOIN stations s ON s.station = t.origin OR s.station = t.target

-- answered
SELECT s.district, COUNT(*) FROM trips t JOIN stations s ON s.station IN (t.origin, t.target) GROUP BY s.district ORDER BY s.district

-- answered
SELECT COUNT(*) FROM (SELECT rider, COUNT(*) AS n FROM trips GROUP BY rider) u JOIN stations s ON u.n >= s.places - 10

-- answered
SELECT v.label, COUNT(*) FROM trips JOIN (VALUES (0, 10, 'a'), (10, 30, 'b'), (30, 200, 'c')) AS v(lo, hi, label) ON minutes >= v.lo AND minutes < v.hi GROUP BY v.label ORDER BY v.label

-- section: school

-- answered
SELECT form, subject, AVG(points) AS mean FROM marks GROUP BY form, subject ORDER BY form, subject

-- answered
PIVOT marks ON subject IN ('art', 'english', 'maths', 'music') USING COUNT(*) GROUP BY form ORDER BY form

-- answered
SELECT form, AVG(points) FILTER (WHERE subject = 'maths') AS maths, AVG(points) FILTER (WHERE subject = 'art') AS art FROM marks GROUP BY form ORDER BY form

-- answered
SELECT form, SUM(CASE WHEN points >= 50 THEN 1 ELSE 0 END) * 100.0 / COUNT(*) AS passed FROM marks GROUP BY form ORDER BY passed DESC

-- answered
SELECT form, AVG((points >= 50)::INT) AS passed FROM marks GROUP BY form ORDER BY form

-- answered
SELECT COALESCE(form, 'all') AS form, COALESCE(subject, 'all') AS subject, COUNT(*) FROM marks GROUP BY ROLLUP (form, subject) ORDER BY ALL

-- answered
SELECT form, subject, COUNT(*) FROM marks GROUP BY GROUPING SETS ((form), (subject), ()) ORDER BY ALL

-- answered
SELECT form, subject, GROUPING(form) AS gf, COUNT(*) FROM marks GROUP BY CUBE (form, subject) ORDER BY ALL

-- answered
SELECT points // 10 AS decile, COUNT(*) FROM marks GROUP BY decile ORDER BY decile

-- answered
SELECT LEAST(points // 25, 3) AS quarter, COUNT(*) FROM marks GROUP BY 1 ORDER BY 1

-- possible: HISTOGRAM(points // 20) needs public values of points // 20; the policy declares none.
SELECT HISTOGRAM(points // 20) FROM marks

-- answered
SELECT form, best, COUNT(*) FROM (SELECT pupil, form, ARG_MAX(subject, points + LENGTH(subject) / 10 + ASCII(SUBSTRING(subject, 2)) / 1000) AS best FROM marks GROUP BY pupil, form) GROUP BY form, best ORDER BY form, best

-- answered
SELECT COUNT(*) FROM (SELECT pupil, AVG(points) AS m FROM marks GROUP BY pupil) WHERE m >= 60

-- answered
SELECT form, COUNT(*) FROM (SELECT pupil, ANY_VALUE(form) AS form, AVG(points) AS m FROM marks GROUP BY pupil) WHERE m >= 60 GROUP BY form ORDER BY form

-- answered
SELECT COUNT(*) FROM (SELECT pupil, SUM(points) AS total FROM marks GROUP BY pupil HAVING MIN(points) >= 20 AND COUNT(DISTINCT subject) >= 3)

-- answered
SELECT AVG(last - first) FROM (SELECT pupil, ARG_MIN(points, EPOCH(exam) * 100 + points) AS first, ARG_MAX(points, EPOCH(exam) * 100 + points) AS last FROM marks GROUP BY pupil)

-- answered
SELECT SIGN(points - before) AS trend, COUNT(*) FROM (SELECT pupil, subject, points, LAG(points) OVER (PARTITION BY pupil ORDER BY exam, subject, points) AS before FROM marks) WHERE before IS NOT NULL GROUP BY trend ORDER BY trend

-- answered
SELECT COUNT(*) FROM (SELECT pupil, points, FIRST_VALUE(points) OVER (PARTITION BY pupil ORDER BY exam, subject, points) AS first FROM marks) WHERE points > first

-- answered
SELECT COUNT(*) FROM marks m JOIN marks a ON m.pupil = a.pupil AND m.subject = 'maths' AND a.subject = 'art' WHERE m.points > a.points

-- answered
SELECT subject, COUNT(*) FROM marks WHERE note ILIKE '%done%' GROUP BY subject ORDER BY subject

-- answered
SELECT LOWER(TRIM(note)) AS n, COUNT(*) FROM marks WHERE note IS NOT NULL GROUP BY n ORDER BY n

-- answered
SELECT COUNT(note) AS noted, COUNT(*) - COUNT(note) AS silent, COUNT(note) / COUNT(*) AS share FROM marks

-- answered
SELECT COALESCE(TRIM(note), '(none)') AS n, COUNT(*) FROM marks GROUP BY n ORDER BY n

-- answered
SELECT LEFT(form, 1) AS year, COUNT(*) FROM marks GROUP BY year ORDER BY year

-- answered
SELECT SUBSTRING(form, 2, 1) AS stream, AVG(points) FROM marks GROUP BY stream ORDER BY stream

-- answered
SELECT RIGHT(form, 1) || '-' || subject AS label, COUNT(*) FROM marks GROUP BY label ORDER BY label

-- answered
SELECT subject, RANK() OVER (ORDER BY AVG(points) DESC) AS place FROM marks GROUP BY subject ORDER BY place

-- answered
SELECT form, subject, mean FROM (SELECT form, subject, AVG(points) AS mean, ROW_NUMBER() OVER (PARTITION BY form ORDER BY AVG(points) DESC) AS r FROM marks GROUP BY form, subject) WHERE r = 1 ORDER BY form

-- answered
SELECT form, subject, AVG(points) AS mean FROM marks GROUP BY form, subject QUALIFY ROW_NUMBER() OVER (PARTITION BY form ORDER BY mean DESC) <= 2 ORDER BY form, mean DESC

-- answered
WITH m AS (SELECT form, AVG(points) AS mean FROM marks GROUP BY form) SELECT form, mean - (SELECT AVG(mean) FROM m) AS off FROM m ORDER BY form

-- answered
WITH f AS (SELECT form, COUNT(*) AS n FROM marks GROUP BY form), s AS (SELECT form, COUNT(*) AS n FROM marks WHERE points >= 50 GROUP BY form) SELECT f.form, s.n / f.n AS share FROM f JOIN s USING (form) ORDER BY form

-- answered
SELECT QUARTER(exam) AS q, subject, COUNT(*) FROM marks GROUP BY q, subject ORDER BY q, subject

-- answered
SELECT DATE_TRUNC('month', exam)::DATE AS m, AVG(points) FROM marks GROUP BY m ORDER BY m

-- answered
SELECT exam - INTERVAL 7 DAY > DATE '2024-03-01' AS late, COUNT(*) FROM marks GROUP BY late ORDER BY late

-- answered
SELECT LAST_DAY(exam) AS m, COUNT(*) FROM marks GROUP BY m ORDER BY m

-- answered
SELECT YEAR(exam) * 100 + MONTH(exam) AS ym, COUNT(*) FROM marks GROUP BY ym ORDER BY ym

-- answered
SELECT COUNT(*) FROM marks WHERE exam IN (DATE '2024-02-01', DATE '2024-02-02', DATE '2024-02-05')

-- answered
SELECT COUNT(*) FROM marks WHERE (form, subject) IN (('5a', 'art'), ('6b', 'music'))

-- answered
SELECT COUNT(*) FROM marks WHERE form LIKE '5%' AND subject <> 'music' AND points NOT BETWEEN 40 AND 60

-- answered
SELECT subject, MAX(points) - MIN(points) AS range FROM marks GROUP BY subject ORDER BY subject

-- answered, as: SELECT COUNT(DISTINCT pupil) FROM marks
SELECT APPROX_COUNT_DISTINCT(pupil) FROM marks

-- answered
SELECT COUNT(DISTINCT subject) FROM marks

-- answered
SELECT subject, COUNT(DISTINCT pupil) FROM marks GROUP BY subject ORDER BY subject

-- section: web logs

-- answered
SELECT page, COUNT(*) AS views, COUNT(DISTINCT visitor) AS visitors FROM hits GROUP BY page ORDER BY views DESC

-- answered
SELECT status // 100 AS class, COUNT(*) FROM hits GROUP BY class ORDER BY class

-- answered
SELECT status, COUNT(*) AS n, AVG(ms) AS ms FROM hits GROUP BY status HAVING COUNT(*) > 10 ORDER BY status

-- answered
SELECT seen::DATE AS day, COUNT(*) FILTER (WHERE status >= 500) / COUNT(*) AS errors FROM hits GROUP BY day ORDER BY day

-- answered
SELECT COUNT(DISTINCT visitor) FILTER (WHERE page = '/shop') AS looked, COUNT(DISTINCT visitor) FILTER (WHERE page = '/shop/cart') AS carted, COUNT(DISTINCT visitor) FILTER (WHERE page = '/pay') AS paid FROM hits

-- answered
SELECT SUM(shopped) AS shopped, SUM(carted) AS carted, SUM(paid) AS paid FROM (SELECT visitor, MAX((page = '/shop')::INT) AS shopped, MAX((page = '/shop/cart')::INT) AS carted, MAX((page = '/pay')::INT) AS paid FROM hits GROUP BY visitor)

-- answered
SELECT COUNT(*) FROM (SELECT visitor, MIN(seen) FILTER (WHERE page = '/shop') AS shop, MIN(seen) FILTER (WHERE page = '/pay') AS pay FROM hits GROUP BY visitor) WHERE pay > shop

-- answered
SELECT AVG(DATE_DIFF('hour', shop, pay), contribution_bounds_per_row => (0, 744)) FROM (SELECT visitor, MIN(seen) FILTER (WHERE page = '/') AS shop, MIN(seen) FILTER (WHERE page = '/shop') AS pay FROM hits GROUP BY visitor) WHERE pay > shop

-- answered
SELECT COUNT(*) FROM (SELECT visitor, page, LEAD(page) OVER (PARTITION BY visitor ORDER BY seen) AS next FROM hits) WHERE page = '/' AND next = '/shop'

-- answered
SELECT page, next, COUNT(*) AS n FROM (SELECT visitor, page, LEAD(page) OVER (PARTITION BY visitor ORDER BY seen) AS next FROM hits) WHERE next IS NOT NULL GROUP BY page, next HAVING COUNT(*) >= 20 ORDER BY n DESC

-- answered
SELECT REGEXP_EXTRACT(referrer, 'https://([^/]+)', 1) AS host, COUNT(*) FROM hits WHERE referrer IS NOT NULL GROUP BY host ORDER BY host

-- answered
SELECT SPLIT_PART(SPLIT_PART(referrer, '//', 2), '/', 1) AS host, COUNT(*) FROM hits WHERE referrer <> '' GROUP BY host ORDER BY host

-- answered
SELECT COALESCE(REGEXP_REPLACE(referrer, '\?.*$', ''), 'direct') AS source, COUNT(*) FROM hits GROUP BY source ORDER BY source

-- answered
SELECT SPLIT_PART(agent, '/', 1) AS browser, CONTAINS(agent, 'Mobile') AS mobile, COUNT(*) FROM hits GROUP BY ALL ORDER BY ALL

-- answered
SELECT CAST(SPLIT_PART(SPLIT_PART(agent, '/', 2), ' ', 1) AS INTEGER) AS version, COUNT(*) FROM hits GROUP BY version ORDER BY version

-- answered
SELECT QUANTILE_DISC(ms, [0.5, 0.9]) FROM hits

-- answered
SELECT PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY ms) FROM hits

-- answered
SELECT CASE WHEN ms < 100 THEN '<100' WHEN ms < 1000 THEN '<1000' ELSE 'slow' END AS b, COUNT(*), SUM(bytes) / 1e6 AS mb FROM hits GROUP BY b ORDER BY b

-- answered
SELECT POW(2, FLOOR(LOG2(bytes + 1)))::BIGINT AS size, COUNT(*) FROM hits WHERE bytes >= 1023 GROUP BY size ORDER BY size

-- answered
WITH gaps AS (SELECT visitor, seen, seen - LAG(seen) OVER w > INTERVAL 1 DAY OR LAG(seen) OVER w IS NULL AS fresh FROM hits WINDOW w AS (PARTITION BY visitor ORDER BY seen)) SELECT COUNT(*) FROM gaps WHERE fresh

-- answered
WITH gaps AS (SELECT visitor, seen, COALESCE(seen - LAG(seen) OVER (PARTITION BY visitor ORDER BY seen) > INTERVAL 1 DAY, TRUE)::INT AS fresh FROM hits), s AS (SELECT visitor, seen, SUM(fresh) OVER (PARTITION BY visitor ORDER BY seen) AS session FROM gaps) SELECT n, COUNT(*) FROM (SELECT visitor, session, COUNT(*) AS n FROM s GROUP BY visitor, session) GROUP BY n ORDER BY n

-- answered
SELECT COUNT(*) FROM (SELECT visitor, COUNT(*) AS n FROM hits GROUP BY visitor HAVING COUNT(*) = 1)

-- answered
SELECT WEEK(seen) AS w, COUNT(DISTINCT visitor) AS wau FROM hits GROUP BY w ORDER BY w

-- answered
WITH d AS (SELECT seen::DATE AS day, COUNT(DISTINCT visitor) AS dau FROM hits GROUP BY 1) SELECT AVG(dau), MAX(dau), MIN(dau) FROM d

-- answered
SELECT later, COUNT(*) FROM (SELECT a.visitor, LEAST(DATE_DIFF('week', a.first, h.seen), 4) AS later FROM (SELECT visitor, MIN(seen) AS first FROM hits GROUP BY visitor) a JOIN hits h USING (visitor)) GROUP BY later ORDER BY later

-- answered
SELECT c.d, COUNT(h.visitor) FROM (SELECT UNNEST(GENERATE_SERIES(DATE '2024-03-01', DATE '2024-03-07', INTERVAL 1 DAY))::DATE AS d) c LEFT JOIN hits h ON h.seen::DATE = c.d GROUP BY c.d ORDER BY c.d

-- answered
SELECT g.h, COUNT(*) FROM GENERATE_SERIES(0, 23) AS g(h) JOIN hits ON HOUR(seen) = g.h GROUP BY g.h ORDER BY g.h

-- answered
SELECT COUNT(*) FROM hits WHERE page IN ('/shop', '/pay') AND referrer LIKE 'https://news%'

-- answered
SELECT COUNT(*) FROM hits WHERE STARTS_WITH(page, '/shop') AND NOT (agent SIMILAR TO '.*Mobile.*')

-- answered
SELECT LENGTH(page) - LENGTH(REPLACE(page, '/', '')) AS depth, COUNT(*) FROM hits GROUP BY depth ORDER BY depth

-- answered
SELECT UPPER(SUBSTR(page, 2, 1)) AS letter, COUNT(*) FROM hits GROUP BY letter ORDER BY letter

-- answered
SELECT part, COUNT(*) FROM (SELECT visitor, UNNEST(STRING_SPLIT(page, '/')) AS part FROM hits) WHERE part <> '' GROUP BY part ORDER BY part

-- section: surveys

-- answered
SELECT q1, COUNT(*) FROM survey WHERE q1 BETWEEN 1 AND 5 GROUP BY q1 ORDER BY q1 DESC

-- answered
SELECT q1, COUNT(*) AS n, ROUND(COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (), 1) AS pct FROM survey WHERE q1 IS NOT NULL GROUP BY q1 ORDER BY q1

-- answered
SELECT region, AVG(q1) AS a, AVG(q2) AS b, AVG(q3) AS c FROM survey GROUP BY region ORDER BY region

-- answered
SELECT region, AVG((q1 + q2 + q3) / 3.0) AS score FROM survey GROUP BY region ORDER BY region

-- answered
SELECT (COUNT(*) FILTER (WHERE q3 >= 4) - COUNT(*) FILTER (WHERE q3 <= 2)) / COUNT(*) AS nps FROM survey

-- answered
SELECT CASE WHEN age < 30 THEN '16-29' WHEN age < 50 THEN '30-49' WHEN age < 65 THEN '50-64' ELSE '65+' END AS band, COUNT(*), AVG(q3) FROM survey GROUP BY band ORDER BY band

-- answered
SELECT age // 10 * 10 AS decade, region, COUNT(*) FROM survey GROUP BY decade, region ORDER BY decade, region

-- answered
SELECT question, AVG(value) FROM (SELECT respondent, 'q1' AS question, q1 AS value FROM survey UNION ALL SELECT respondent, 'q2', q2 FROM survey UNION ALL SELECT respondent, 'q3', q3 FROM survey) GROUP BY question ORDER BY question

-- answered
SELECT question, COUNT(*) FROM survey UNPIVOT (value FOR question IN (q1, q2, q3)) GROUP BY question ORDER BY question

-- answered
UNPIVOT (SELECT AVG(q1) AS a, AVG(q2) AS b, AVG(q3) AS c FROM survey) ON a, b, c INTO NAME q VALUE v ORDER BY q

-- answered
SELECT LOWER(TRIM(answer)) AS a, COUNT(*) FROM survey GROUP BY a ORDER BY a

-- answered
SELECT CASE LOWER(TRIM(answer)) WHEN 'yes' THEN TRUE WHEN 'no' THEN FALSE END AS a, COUNT(*) FROM survey GROUP BY a ORDER BY a NULLS LAST

-- answered
SELECT COUNT(*) FILTER (WHERE q1 IS NULL) AS m1, COUNT(*) FILTER (WHERE q2 IS NULL) AS m2, COUNT(*) FILTER (WHERE income IS NULL) AS mi FROM survey

-- answered
SELECT AVG(COALESCE(q1, 3)) FROM survey

-- answered
SELECT AVG(income), MEDIAN(income), STDDEV(income) FROM survey WHERE income > 0

-- answered
SELECT region, SUM(income) / COUNT(income) AS mean, COUNT(income) AS n FROM survey GROUP BY region ORDER BY region

-- answered
SELECT MIN(age), MAX(age), AVG(age), MEDIAN(age) FROM survey

-- answered
SELECT q1, q3, COUNT(*) FROM survey WHERE q1 IS NOT NULL GROUP BY q1, q3 ORDER BY q1, q3

-- answered
SELECT CORR(q1, q3), COVAR_POP(age, income) FROM survey

-- answered
SELECT EXP(AVG(LN(income + 1))) FROM survey

-- answered
SELECT SUM(q3 * age) / SUM(age) AS weighted FROM survey

-- answered
SELECT AVG(ABS(q1 - q3)), AVG(GREATEST(q1, q2)), AVG(SQRT(age)) FROM survey

-- answered
SELECT IF(age >= 18, 'adult', 'minor') AS k, COUNT(*) FROM survey GROUP BY k ORDER BY k

-- answered
SELECT IFNULL(q2, 0) AS q, COUNT(*) FROM survey GROUP BY q ORDER BY q

-- answered
SELECT submitted, COUNT(*) AS n FROM survey WHERE submitted < '2024-02-15' GROUP BY submitted ORDER BY submitted

-- answered
SELECT submitted::VARCHAR AS d, COUNT(*) FROM survey GROUP BY d ORDER BY d LIMIT 5

-- answered
SELECT DATE_PART('week', submitted) AS w, COUNT(*) FROM survey GROUP BY w ORDER BY w

-- answered
SELECT region, answer, COUNT(*) FROM survey GROUP BY region, answer HAVING COUNT(*) >= 20 ORDER BY region, answer

-- answered
SELECT region FROM survey GROUP BY region HAVING AVG(q3) > 2 ORDER BY region

-- answered
SELECT MODE(region) FROM survey

-- answered
SELECT COUNT(*) FROM survey WHERE age > 40 AND (q1 >= 4 OR q2 >= 4) AND region IN ('north', 'south')

-- answered
SELECT COUNT(*) FROM survey WHERE q1 = q2 OR (q1 IS NULL AND q2 IS NULL)

-- answered
SELECT COUNT(*) FROM survey WHERE q1 IS DISTINCT FROM q2

-- answered
SELECT COUNT(*) FROM survey WHERE TRY_CAST(answer AS INTEGER) IS NULL

-- answered
SELECT b.label, COUNT(s.respondent) FROM (VALUES ('young', 16, 35), ('middle', 36, 60), ('old', 61, 99)) b(label, lo, hi) LEFT JOIN survey s ON s.age BETWEEN b.lo AND b.hi GROUP BY b.label ORDER BY b.label

-- answered
SELECT * FROM (SELECT region, q3, COUNT(*) AS n FROM survey GROUP BY region, q3) PIVOT (SUM(n) FOR q3 IN (1, 2, 3, 4, 5)) ORDER BY region

-- answered
SELECT n, COUNT(*) FROM (SELECT region, COUNT(*) // 1000 AS n FROM survey GROUP BY region) GROUP BY n

-- answered
SELECT * FROM (SELECT big, COUNT(*) FROM (SELECT region, COUNT(*) > 100 AS big FROM survey GROUP BY region) GROUP BY big) ORDER BY 1

-- answered
SELECT region, COUNT(*) AS n FROM survey GROUP BY region UNION ALL SELECT 'total', COUNT(*) FROM survey ORDER BY n

-- answered
SELECT region, n, n / SUM(n) OVER () AS share, SUM(n) OVER (ORDER BY region) AS cumulative FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) ORDER BY region

-- answered
SELECT LIST(n ORDER BY region) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region)

-- answered
SELECT STRING_AGG(region, ', ' ORDER BY n DESC) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region)

-- section: finance

-- answered
SELECT account_month, COUNT(*) FROM (SELECT account, STRFTIME(booked, '%Y-%m') AS account_month, SUM(amount) AS balance FROM payments GROUP BY ALL) WHERE balance < 0 GROUP BY account_month ORDER BY account_month

-- answered
SELECT category, SUM(amount) FILTER (WHERE amount > 0) AS income, SUM(-amount) FILTER (WHERE amount < 0) AS spent FROM payments GROUP BY category ORDER BY category

-- answered
SELECT SUM(GREATEST(amount, 0)) AS earned, SUM(LEAST(amount, 0)) AS spent, SUM(ABS(amount)) AS turnover FROM payments

-- answered
SELECT c.needed, COUNT(*), SUM(p.amount) FROM payments p JOIN categories c USING (category) WHERE c.needed IS NOT NULL GROUP BY c.needed ORDER BY c.needed

-- answered
SELECT c.category, COUNT(p.account) AS n FROM categories c LEFT JOIN payments p ON p.category = c.category GROUP BY c.category ORDER BY n DESC, c.category

-- answered
SELECT COUNT(*) FROM payments WHERE category IN (SELECT category FROM categories WHERE needed)

-- answered
SELECT COUNT(*) FROM payments p WHERE EXISTS (SELECT 1 FROM categories c WHERE c.category = p.category AND NOT c.needed)

-- answered
SELECT merchant, SUM(amount) AS total FROM payments GROUP BY merchant ORDER BY total LIMIT 2

-- answered
SELECT merchant, category, COUNT(*) AS n FROM payments GROUP BY merchant, category QUALIFY RANK() OVER (PARTITION BY merchant ORDER BY n DESC) = 1 ORDER BY merchant

-- answered
SELECT AVG(days, contribution_bounds_per_row => (0, 180)) FROM (SELECT account, MAX(booked) - MIN(booked) AS days FROM payments GROUP BY account HAVING COUNT(*) > 1)

-- answered
SELECT COUNT(*) FROM (SELECT account, booked, SUM(amount) OVER (PARTITION BY account ORDER BY booked, merchant, amount) AS balance FROM payments) WHERE balance < -500

-- answered
SELECT COUNT(DISTINCT account) FROM (SELECT account, SUM(amount) OVER (PARTITION BY account ORDER BY booked, merchant, amount) AS balance FROM payments) WHERE balance < -500

-- answered
SELECT MONTH(booked) AS m, SUM(amount) AS s, SUM(SUM(amount)) OVER (ORDER BY MONTH(booked)) AS total FROM payments GROUP BY m ORDER BY m

-- answered
WITH m AS (SELECT DATE_TRUNC('month', booked) AS month, category, SUM(ABS(amount)) AS s FROM payments GROUP BY ALL) SELECT month, category, s / SUM(s) OVER (PARTITION BY month) AS share FROM m ORDER BY month, category

-- answered
WITH m AS (SELECT MONTH(booked) AS m, COUNT(*) AS n FROM payments GROUP BY 1) SELECT a.m, a.n, b.n AS before, a.n - b.n AS change FROM m a JOIN m b ON b.m = a.m - 1 ORDER BY a.m

-- answered
SELECT 'Q' || QUARTER(booked) AS q, COUNT(*), AVG(amount) FROM payments GROUP BY q ORDER BY q

-- answered
SELECT ROUND(amount, -2) AS r, COUNT(*) FROM payments GROUP BY r ORDER BY r

-- answered
SELECT amount::INTEGER // 100 AS b, COUNT(*) FROM payments GROUP BY b ORDER BY b

-- answered
SELECT COUNT(*) FROM payments a JOIN payments b ON a.account = b.account AND a.merchant = b.merchant AND b.booked BETWEEN a.booked + 1 AND a.booked + 30

-- answered
SELECT COUNT(*) FROM (SELECT account, MODE(category) AS top FROM payments GROUP BY account HAVING COUNT(*) = 1) WHERE top = 'food'

-- answered
SELECT COUNT(*) FROM (SELECT account, COUNT(*) AS n FROM payments WHERE category = 'rent' GROUP BY account) r JOIN (SELECT account, SUM(amount) AS s FROM payments WHERE category = 'salary' GROUP BY account) s USING (account) WHERE s.s > 0

-- answered
SELECT COUNT(*) FROM (SELECT account FROM payments WHERE category = 'rent' GROUP BY account) r LEFT JOIN (SELECT account, SUM(amount) AS s FROM payments WHERE category = 'salary' GROUP BY account) s USING (account) WHERE s.s IS NULL

-- answered
SELECT k, COUNT(*) FROM (SELECT account, LIST(DISTINCT category ORDER BY category) AS k FROM payments GROUP BY account) GROUP BY k ORDER BY k

-- answered
SELECT k, COUNT(*) FROM (SELECT account, STRING_AGG(DISTINCT category, '+' ORDER BY category) AS k FROM payments GROUP BY account) GROUP BY k HAVING COUNT(*) > 5 ORDER BY k

-- answered
SELECT COUNT(*) FROM (SELECT account, BOOL_OR(category = 'rent') AS rents, BOOL_AND(amount > -400) AS careful FROM payments GROUP BY account) WHERE rents AND careful

-- answered
SELECT AVG(x) FROM (SELECT account, AVG(amount) AS x FROM payments GROUP BY account)

-- answered
SELECT MEDIAN(n) FROM (SELECT account, COUNT(*) AS n FROM payments GROUP BY account)

-- answered
SELECT COUNT(*), l.band FROM payments, LATERAL (SELECT CASE WHEN amount < 0 THEN 'out' ELSE 'in' END AS band) l GROUP BY l.band ORDER BY l.band

-- answered
FROM payments SELECT category, n: COUNT(*), total: SUM(amount) GROUP BY category ORDER BY category

-- answered
SELECT category, COUNT(*) FROM payments WHERE booked > '2024-01-01'::DATE + INTERVAL '3 months' GROUP BY category ORDER BY category

-- answered
SELECT DATE_DIFF('month', DATE '2024-01-01', booked) AS age, COUNT(*) FROM payments GROUP BY age ORDER BY age

-- answered
SELECT booked = LAST_DAY(booked) AS month_end, COUNT(*) FROM payments GROUP BY month_end ORDER BY month_end

-- refused: a sample can't be taken of private rows.
-- hint: aggregate all rows: no sample of them is drawn here.
SELECT COUNT(*) FROM payments TABLESAMPLE 100 PERCENT

-- refused: amount must be a group or be inside an aggregate.
-- hint: write SELECT category, SUM(amount) FROM payments GROUP BY category: groups in place of windows.
SELECT SUM(amount) OVER (PARTITION BY category) FROM payments

-- refused: the privacy unit can't be a group: each group would be one unit.
-- hint: write COUNT(DISTINCT account) instead of the group: it counts the units; totals per account may be in a subquery.
SELECT account, SUM(amount) FROM payments GROUP BY account ORDER BY 2 DESC LIMIT 10

-- refused: rows of payments can't be released.
-- hint: try SELECT COUNT(*) FROM payments.
SELECT * FROM payments LIMIT 5

-- answered
SELECT DISTINCT merchant FROM payments

-- answered
SELECT COUNT(*) FROM trips t JOIN payments p ON t.rider = p.account

-- refused: LIMIT below the aggregation would choose rows by other people's rows.
-- hint: aggregate first; the answer may be ordered and cut freely.
SELECT COUNT(*) FROM (SELECT * FROM trips ORDER BY km DESC LIMIT 100)

-- refused: private tables are joined on something other than their privacy unit.
-- hint: no policy lets different people's rows meet; for each person's own rows, add a.rider = b.rider to ON.
SELECT COUNT(*) FROM trips a JOIN trips b ON a.origin = b.target

-- refused: points must be a group or be inside an aggregate.
-- hint: write AVG(points), or group by it and count the rows.
SELECT PERCENT_RANK() OVER (ORDER BY points) FROM marks

-- refused: LISTAGG has no noisy form.
-- hint: write SELECT origin, COUNT(*) FROM trips GROUP BY origin: it counts how often each value occurs.
SELECT bike, LISTAGG(origin, ',') FROM trips GROUP BY bike

-- section: sequences, subqueries, dates and texts

-- answered
WITH RECURSIVE months(m) AS (SELECT DATE '2024-01-01' UNION ALL SELECT (m + INTERVAL 1 MONTH)::DATE FROM months WHERE m < DATE '2024-06-01') SELECT m, COUNT(t.trip) FROM months LEFT JOIN trips t ON DATE_TRUNC('month', t.started) = m GROUP BY m ORDER BY m

-- answered
SELECT m::DATE AS m, COUNT(t.trip) AS n FROM GENERATE_SERIES(TIMESTAMP '2024-01-01', TIMESTAMP '2024-06-01', INTERVAL 1 MONTH) AS g(m) LEFT JOIN trips t ON DATE_TRUNC('month', t.started) = g.m GROUP BY 1 ORDER BY 1

-- answered
WITH a AS (SELECT rider, DATE_TRUNC('month', started) AS m FROM trips GROUP BY ALL), b AS (SELECT rider, m, LEAD(m) OVER (PARTITION BY rider ORDER BY m) AS next FROM a) SELECT m, COUNT(*) AS active, COUNT(*) FILTER (WHERE next = m + INTERVAL 1 MONTH) AS kept FROM b GROUP BY m ORDER BY m

-- refused: m must be a group or be inside an aggregate.
-- hint: write AVG(m), or group by it and count the rows.
WITH a AS (SELECT DISTINCT rider, MONTH(started) AS m FROM trips) SELECT m, m - ROW_NUMBER() OVER (PARTITION BY rider ORDER BY m) AS island FROM a

-- answered
WITH a AS (SELECT DISTINCT rider, MONTH(started) AS m FROM trips), b AS (SELECT rider, m - ROW_NUMBER() OVER (PARTITION BY rider ORDER BY m) AS island FROM a), c AS (SELECT rider, island, COUNT(*) AS streak FROM b GROUP BY ALL) SELECT best, COUNT(*) FROM (SELECT rider, MAX(streak) AS best FROM c GROUP BY rider) WHERE best <= 4 GROUP BY best ORDER BY best

-- answered
SELECT COUNT(*) FROM (SELECT rider, COUNT(DISTINCT started::DATE) AS days, MIN(started)::DATE AS first FROM trips GROUP BY rider) WHERE days > 1 AND first < '2024-02-01'

-- answered
SELECT rank, AVG(km) FROM (SELECT rider, km, DENSE_RANK() OVER (PARTITION BY rider ORDER BY km DESC) AS rank FROM trips QUALIFY rank <= 3) GROUP BY rank ORDER BY rank

-- answered
SELECT AVG(km - prev, contribution_bounds_per_row => (-60, 60)) FROM (SELECT rider, km, LAG(km, 1, 0) OVER (PARTITION BY rider ORDER BY started) AS prev FROM trips)

-- answered
SELECT COUNT(*) FROM (SELECT rider, km, MAX(km) OVER (PARTITION BY rider ORDER BY started ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS record FROM trips) WHERE km > record

-- answered
SELECT COUNT(*) FROM (SELECT rider, COUNT(*) OVER (PARTITION BY rider ORDER BY started RANGE BETWEEN INTERVAL 7 DAYS PRECEDING AND CURRENT ROW) AS week FROM trips) WHERE week >= 2

-- answered
SELECT COUNT(*) FROM trips t WHERE km = (SELECT MAX(km) FROM trips x WHERE x.rider = t.rider)

-- answered
SELECT COUNT(*) FROM trips t WHERE (SELECT COUNT(*) FROM trips x WHERE x.rider = t.rider AND x.started < t.started) = 0

-- answered
SELECT SUM(n) FROM (SELECT t.rider, (SELECT COUNT(*) FROM trips x WHERE x.rider = t.rider AND x.bike = 'cargo') AS n FROM trips t)

-- answered
SELECT COUNT(*) FROM trips WHERE origin = ANY (SELECT station FROM stations WHERE places > 12)

-- answered
SELECT COUNT(*) FROM trips WHERE origin NOT IN (SELECT station FROM stations WHERE district = 'centre')

-- answered
SELECT COUNT(*) FROM trips WHERE (origin, target) IN (SELECT a.station, b.station FROM stations a JOIN stations b ON a.district = b.district)

-- possible: ALL and ANY compare only by = ANY and <> ALL over private rows.
SELECT COUNT(*) FROM trips WHERE km > ALL (SELECT places FROM stations WHERE places < 15)

-- answered
SELECT a.district, b.n FROM (SELECT DISTINCT district FROM stations) a LEFT JOIN (SELECT district, COUNT(*) AS n FROM trips JOIN stations ON origin = station GROUP BY district) b USING (district) ORDER BY 1

-- answered
SELECT district, COUNT(*) FROM trips JOIN stations ON origin = station WHERE places BETWEEN 10 AND 20 GROUP BY district ORDER BY district

-- answered
SELECT s.station, n FROM stations s CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM trips t WHERE t.origin = s.station) ORDER BY s.station

-- answered
SELECT s.station, (SELECT COUNT(*) FROM trips t WHERE t.origin = s.station) AS n FROM stations s ORDER BY n DESC

-- answered
SELECT t.bike, h.name, COUNT(*) FROM trips t ASOF JOIN holidays h ON t.started >= h.day GROUP BY ALL ORDER BY ALL

-- answered
SELECT d, SUM(n) FROM (SELECT origin AS st, COUNT(*) AS n FROM trips GROUP BY 1 UNION ALL SELECT target, COUNT(*) FROM trips GROUP BY 1) x JOIN (SELECT station, district AS d FROM stations) s ON s.station = x.st GROUP BY d ORDER BY d

-- answered
SELECT COUNT(*) FROM trips WHERE started::TIME BETWEEN TIME '07:00' AND TIME '09:00' AND ISODOW(started) < 6

-- answered
SELECT CASE WHEN ISODOW(started) IN (6, 7) THEN 'weekend' ELSE 'weekday' END AS part, AVG(km), COUNT(*) FROM trips GROUP BY part ORDER BY part

-- answered
SELECT STRFTIME(started, '%a') AS d, COUNT(*) FROM trips GROUP BY d ORDER BY d

-- answered
SELECT MONTHNAME(started) || ' ' || YEAR(started) AS m, COUNT(*) FROM trips GROUP BY m ORDER BY m

-- possible: format can't be used on private rows: its cost depends on the values.
SELECT FORMAT('{:04d}-{:02d}', YEAR(started), MONTH(started)) AS m, COUNT(*) FROM trips GROUP BY m ORDER BY m

-- possible: printf can't be used on private rows: its cost depends on the values.
SELECT PRINTF('%s>%s', origin, target) AS route, COUNT(*) AS n FROM trips GROUP BY route ORDER BY n DESC, route LIMIT 4

-- answered
SELECT LEAST(origin, target) AS a, GREATEST(origin, target) AS b, COUNT(*) FROM trips WHERE origin <> target GROUP BY a, b ORDER BY a, b

-- answered
SELECT CONCAT_WS('/', bike, IF(member, 'm', 'c')) AS k, COUNT(*) FROM trips GROUP BY k ORDER BY k

-- answered
SELECT bike, member, COUNT(*), AVG(km) FROM trips GROUP BY bike, member ORDER BY bike, member

-- answered
SELECT * EXCLUDE (x) FROM (SELECT bike, COUNT(*) AS n, 1 AS x FROM trips GROUP BY bike) ORDER BY bike

-- answered
SELECT * REPLACE (n * 2 AS n) FROM (SELECT bike, COUNT(*) AS n FROM trips GROUP BY bike) ORDER BY bike

-- answered
PIVOT (SELECT bike, member, rider FROM trips) ON bike USING COUNT(*) GROUP BY member ORDER BY member

-- answered
SELECT AVG(COLUMNS(['km', 'minutes'])) FROM trips

-- answered
SELECT bike, ANY_VALUE(n) FROM (SELECT bike, COUNT(*) OVER () AS n FROM (SELECT bike, COUNT(*) AS c FROM trips GROUP BY bike)) GROUP BY bike ORDER BY bike

-- answered
SELECT COUNT(*) FROM (SELECT rider, LIST(bike ORDER BY started) AS seq FROM trips GROUP BY rider) WHERE seq[1] = 'city' AND seq[2] = 'ebike'

-- possible: the function list_sort is not on the list of those that can't fail or leak.
SELECT COUNT(*) FROM (SELECT rider, LIST_SORT(LIST(DISTINCT bike)) AS kinds FROM trips GROUP BY rider) WHERE kinds = ['city', 'ebike']

-- answered
SELECT COUNT(*) FROM (SELECT rider, ARRAY_AGG(bike ORDER BY started) AS seq FROM trips GROUP BY rider) WHERE LIST_CONTAINS(seq, 'cargo')

-- answered
SELECT path, COUNT(*) AS n FROM (SELECT rider, STRING_AGG(bike, '>' ORDER BY started) AS path FROM trips GROUP BY rider) GROUP BY path HAVING COUNT(*) >= 5 ORDER BY n DESC

-- answered
SELECT COUNT(*) FROM (SELECT rider, STRING_AGG(bike, '' ORDER BY started) AS path FROM trips GROUP BY rider) WHERE path LIKE '%cargocity%'

-- answered
SELECT u.station, COUNT(*) FROM trips, UNNEST([origin, target]) AS u(station) GROUP BY u.station ORDER BY u.station

-- answered
SELECT COUNT(*) FROM (SELECT rider, x FROM trips, GENERATE_SERIES(1, 3) AS g(x)) WHERE x = 2

-- answered
SELECT b.x * 10 AS lo, COUNT(t.trip) FROM RANGE(0, 12) AS b(x) LEFT JOIN trips t ON t.minutes >= b.x * 10 AND t.minutes < b.x * 10 + 10 GROUP BY b.x ORDER BY b.x

-- answered
SELECT MAX(n), ARG_MAX(origin, n) FROM (SELECT origin, COUNT(*) AS n FROM trips GROUP BY origin)

-- answered
SELECT origin FROM trips GROUP BY origin ORDER BY COUNT(*) DESC LIMIT 1

-- answered
SELECT SUM(n) FILTER (WHERE r <= 2) / SUM(n) AS top FROM (SELECT origin, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) AS r FROM trips GROUP BY origin)

-- answered
SELECT m, n, FIRST_VALUE(n) OVER (ORDER BY m) AS base, n * 100 / FIRST_VALUE(n) OVER (ORDER BY m) AS idx FROM (SELECT MONTH(started) AS m, COUNT(*) AS n FROM trips GROUP BY m) ORDER BY m

-- answered
SELECT m, n FROM (SELECT MONTH(started) AS m, COUNT(*) AS n FROM trips GROUP BY m) WHERE n > (SELECT AVG(k) FROM (SELECT MONTH(started) AS j, COUNT(*) AS k FROM trips GROUP BY j)) ORDER BY m

-- answered
WITH n AS (SELECT MONTH(started) AS m, COUNT(*) AS n FROM trips GROUP BY m) SELECT m FROM n WHERE n = (SELECT MAX(n) FROM n)

-- answered
WITH x AS MATERIALIZED (SELECT rider, km FROM trips WHERE member) SELECT COUNT(*), SUM(km) FROM x

-- answered
SELECT (SELECT COUNT(*) FROM trips) AS trips, (SELECT COUNT(*) FROM marks) AS marks, (SELECT AVG(age) FROM survey) AS age

-- answered
SELECT 'trips' AS t, COUNT(*) FROM trips UNION ALL SELECT 'marks', COUNT(*) FROM marks UNION ALL SELECT 'hits', COUNT(*) FROM hits

-- answered
SELECT MAX(started)::DATE, MIN(started)::DATE FROM trips

-- answered
SELECT COUNT(*) FROM trips WHERE EPOCH(started) % 2 = 0

-- possible: the function age is not on the list of those that can't fail or leak.
SELECT AGE(TIMESTAMP '2024-07-01', started) > INTERVAL 2 MONTHS AS old, COUNT(*) FROM trips GROUP BY old ORDER BY old

-- answered
SELECT DATE_DIFF('day', started::DATE, DATE '2024-07-01') // 30 AS age, COUNT(*) FROM trips GROUP BY age ORDER BY age

-- answered
SELECT ROUND(km) AS r, COUNT(*) FROM trips WHERE km < 5 GROUP BY r ORDER BY r

-- answered
SELECT ROUND(AVG(km), 2)::DECIMAL(10, 2), CEIL(SUM(minutes)), COUNT(*)::DOUBLE FROM trips

-- answered
SELECT SUM(km * 1.609), SUM(km) * 1.609, AVG(km + minutes / 60) FROM trips

-- answered
SELECT CASE bike WHEN 'cargo' THEN 3 WHEN 'ebike' THEN 2 ELSE 1 END AS w, SUM(km) FROM trips GROUP BY w ORDER BY w

-- answered
SELECT SUM(CASE bike WHEN 'cargo' THEN 3.5 WHEN 'ebike' THEN 2 ELSE 1 END) AS fee FROM trips

-- answered
SELECT SUM(LEAST(minutes, 30) * 0.1 + GREATEST(minutes - 30, 0) * 0.2) AS revenue FROM trips

-- refused: KURTOSIS has no noisy form.
-- hint: write SELECT WITH SUBSAMPLE instead of SELECT: it takes this aggregate, on blocks of privacy units.
SELECT KURTOSIS(minutes), SKEWNESS(minutes) FROM trips

-- possible: MAD has no noisy form.
SELECT MAD(minutes) FROM trips

-- answered
SELECT bike, COUNT(*) FILTER (km > 10) AS far, COUNT_IF(km <= 10) AS near FROM trips GROUP BY bike ORDER BY bike

-- answered
SELECT bike, COUNT(*) n FROM trips GROUP BY bike ORDER BY n DESC FETCH FIRST 1 ROW ONLY

-- answered
SELECT COUNT(*) FROM trips WHERE bike NOT LIKE 'c%' ESCAPE '\'

-- answered
SELECT COUNT(*) FROM trips WHERE origin GLOB 'D*' OR REGEXP_MATCHES(target, '^[GH]')

-- answered
SELECT "bike", Count(*) As "Number of trips" FROM "trips" GROUP BY "bike" ORDER BY "Number of trips"

-- answered
SELECT t.bike, COUNT(t.*) FROM trips AS t GROUP BY t.bike ORDER BY t.bike

-- answered
SELECT DISTINCT bike, COUNT(*) OVER (PARTITION BY bike) AS n FROM (SELECT bike, origin, COUNT(*) AS c FROM trips GROUP BY ALL) ORDER BY bike

-- answered
SELECT COUNT(*) FROM (SELECT rider FROM trips GROUP BY rider HAVING SUM(km) > 40 AND BOOL_OR(member) AND COUNT(DISTINCT origin) > 1)

-- answered
SELECT COUNT(*) FROM (SELECT rider, SUM(km) AS s FROM trips GROUP BY rider) WHERE s > (SELECT AVG(s) FROM (SELECT rider, SUM(km) AS s FROM trips GROUP BY rider))

-- answered
SELECT NTILE(4) OVER (ORDER BY n) AS q, origin FROM (SELECT origin, COUNT(*) AS n FROM trips GROUP BY origin) ORDER BY q, origin

-- answered
SELECT form, COUNT(DISTINCT pupil) AS pupils, COUNT(*) / COUNT(DISTINCT pupil) AS each FROM marks GROUP BY form ORDER BY form

-- answered
SELECT CASE WHEN m >= 60 THEN 'good' WHEN m >= 45 THEN 'fair' ELSE 'poor' END AS g, form, COUNT(*) FROM (SELECT pupil, form, AVG(points) AS m FROM marks GROUP BY ALL) GROUP BY ALL ORDER BY ALL

-- answered
SELECT form, q FROM (SELECT form, QUANTILE_DISC(points, [0.25, 0.5, 0.75]) AS q FROM marks GROUP BY form) ORDER BY form

-- answered
SELECT COUNT(*) FROM marks WHERE NOT (note = 'OK') OR note IS NULL

-- answered
SELECT COUNT(*) FROM marks WHERE LENGTH(TRIM(COALESCE(note, ''))) > 3

-- answered
SELECT NULLIF(TRIM(note), 'OK') AS n, COUNT(*) FROM marks WHERE note <> 'OK' GROUP BY n ORDER BY n

-- answered
SELECT TRANSLATE(UPPER(form), 'AB', 'XY') AS f, COUNT(*) FROM marks GROUP BY f ORDER BY f

-- answered
SELECT SUM(w * points) / SUM(w) FROM (SELECT pupil, points, CASE subject WHEN 'maths' THEN 2 ELSE 1 END AS w FROM marks)

-- answered
SELECT pupils, COUNT(*) FROM (SELECT form, subject, COUNT(DISTINCT pupil) AS pupils FROM marks GROUP BY ALL) GROUP BY pupils ORDER BY pupils

-- answered
SELECT a.form, a.n - b.n AS d FROM (SELECT form, COUNT(*) AS n FROM marks WHERE exam < '2024-04-01' GROUP BY form) a JOIN (SELECT form, COUNT(*) AS n FROM marks WHERE exam >= '2024-04-01' GROUP BY form) b ON a.form = b.form ORDER BY a.form

-- answered
SELECT COUNT(*) FILTER (WHERE r = 1 AND subject = 'maths') FROM (SELECT pupil, subject, ROW_NUMBER() OVER (PARTITION BY pupil ORDER BY points DESC, subject) AS r FROM marks)

-- answered
SELECT subject, CUME FROM (SELECT subject, CUME_DIST() OVER (ORDER BY COUNT(*)) AS CUME FROM marks GROUP BY subject) ORDER BY subject

-- answered
SELECT CORR(m, a) FROM (SELECT pupil, MAX(points) FILTER (WHERE subject = 'maths') AS m, MAX(points) FILTER (WHERE subject = 'art') AS a FROM marks GROUP BY pupil)

-- answered
SELECT COUNT(*) FROM (PIVOT marks ON subject IN ('art', 'maths') USING MAX(points) GROUP BY pupil) WHERE maths > art

-- answered
SELECT g, COUNT(*) FROM (SELECT pupil, CASE WHEN points > 80 THEN ['top', 'any'] ELSE ['any'] END AS gs FROM marks), UNNEST(gs) AS u(g) GROUP BY g ORDER BY g

-- answered
SELECT region, AVG(age) AS a FROM survey WHERE region <> 'west' GROUP BY region ORDER BY a DESC LIMIT 1

-- answered
SELECT region, SUM(income) FILTER (WHERE age < 40) / SUM(income) AS young FROM survey GROUP BY region ORDER BY region

-- answered
SELECT AVG(CASE WHEN region = 'north' THEN q3 END) - AVG(CASE WHEN region = 'south' THEN q3 END) AS gap FROM survey

-- answered
SELECT SQRT(AVG(q3 * q3) - AVG(q3) * AVG(q3)) FROM survey

-- answered
SELECT AVG(q3) - 1.96 * STDDEV(q3) / SQRT(COUNT(*)) AS low, AVG(q3) + 1.96 * STDDEV(q3) / SQRT(COUNT(*)) AS high FROM survey

-- answered
SELECT (q1 IS NULL)::INT + (q2 IS NULL)::INT AS missing, COUNT(*) FROM survey GROUP BY missing ORDER BY missing

-- answered
SELECT LIST_SUM([q1, q2, q3]) AS s, COUNT(*) FROM survey GROUP BY s ORDER BY s

-- possible: AVG(LIST_AVG([q1, q2, q3])) needs bounds for LIST_AVG([q1, q2, q3]); the policy declares none.
SELECT AVG(LIST_AVG([q1, q2, q3])) FROM survey

-- answered
SELECT COUNT(*) FROM survey WHERE 5 IN (q1, q2, q3)

-- answered
SELECT COUNT(*) FROM survey WHERE LIST_CONTAINS(['yes', 'no'], LOWER(TRIM(answer)))

-- answered
SELECT ASCII(region) AS a, COUNT(*) FROM survey GROUP BY a ORDER BY a

-- answered
SELECT MD5(region) AS h, COUNT(*) FROM survey GROUP BY h ORDER BY h

-- answered
SELECT DATE_TRUNC('week', submitted) AS w, COUNT(*) AS n, AVG(COUNT(*)) OVER (ORDER BY DATE_TRUNC('week', submitted) ROWS 2 PRECEDING) AS smooth FROM survey GROUP BY w ORDER BY w

-- answered
SELECT BAR(COUNT(*), 0, 500, 10), region FROM survey GROUP BY region ORDER BY region

-- answered
SELECT {'region': region, 'n': COUNT(*)} AS s FROM survey GROUP BY region ORDER BY region

-- answered
SELECT MAP(LIST(region ORDER BY region), LIST(n ORDER BY region)) FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region)

-- answered
SELECT TO_JSON({'n': COUNT(*)}) FROM survey

-- refused: the privacy unit can't be a group: each group would be one unit.
-- hint: write COUNT(DISTINCT account) instead of the group: it counts the units; totals per account may be in a subquery.
SELECT account FROM payments GROUP BY account HAVING SUM(amount) < 0

-- refused: the privacy unit can't be a group: each group would be one unit.
-- hint: write COUNT(DISTINCT account) instead of the group: it counts the units; totals per account may be in a subquery.
SELECT COUNT(*) FROM (SELECT account, category, SUM(amount) AS s FROM payments GROUP BY GROUPING SETS ((account, category), (account)))

-- answered
SELECT AVG(m2 - m1, contribution_bounds_per_row => (-2000, 2000)) FROM (SELECT account, SUM(amount) FILTER (WHERE MONTH(booked) = 1) AS m1, SUM(amount) FILTER (WHERE MONTH(booked) = 2) AS m2 FROM payments GROUP BY account)

-- answered
SELECT COUNT(*) FROM (SELECT account, MIN(booked) AS first FROM payments GROUP BY account) f JOIN payments p ON p.account = f.account AND p.booked <= f.first + INTERVAL 30 DAY

-- answered
SELECT COUNT(*) FROM (SELECT p.account, SUM(amount) AS s FROM payments p JOIN categories c ON p.category = c.category WHERE c.needed GROUP BY p.account) WHERE s < -100

-- answered
SELECT c.category, SUM(p.amount) AS s FROM payments p RIGHT JOIN categories c ON p.category = c.category GROUP BY c.category ORDER BY c.category

-- answered
SELECT category, SUM(amount) AS s, SUM(amount) / (SELECT SUM(amount) FROM payments) AS share FROM payments GROUP BY category ORDER BY category

-- section: joins with public rows

-- answered
SELECT COUNT(*) FROM (SELECT rider, ANY_VALUE(bike) AS bike, COUNT(*) AS n FROM trips GROUP BY rider) u CROSS JOIN stations

-- answered
SELECT s.district, COUNT(*) FROM (SELECT rider, COUNT(*) AS n FROM trips GROUP BY rider) u JOIN stations s ON u.n * 10 >= s.places GROUP BY s.district ORDER BY s.district

-- answered
SELECT h.name, COUNT(*) FROM (SELECT rider, MIN(started) AS first FROM trips GROUP BY rider) f JOIN holidays h ON f.first < h.day GROUP BY ROLLUP (h.name) ORDER BY h.name

-- answered
SELECT m, COUNT(*) FROM (SELECT rider, MIN(started) AS a, MAX(started) AS b FROM trips GROUP BY rider) r JOIN GENERATE_SERIES(1, 6) AS g(m) ON m BETWEEN MONTH(r.a) AND MONTH(r.b) GROUP BY m ORDER BY m

-- answered
SELECT COUNT(*), AVG(u.n) FROM (SELECT rider, COUNT(*) AS n FROM trips GROUP BY rider) u LEFT JOIN stations s ON s.places > u.n

-- answered
SELECT w, COUNT(*) FROM (SELECT rider FROM trips GROUP BY rider), UNNEST(['a', 'b']) AS t(w) GROUP BY w ORDER BY w

-- answered
SELECT COUNT(*) FROM (SELECT account, SUM(amount) AS s FROM payments GROUP BY account) p JOIN (VALUES (-100), (0), (100), (300)) AS v(level) ON p.s > v.level

-- answered
SELECT v.level, COUNT(p.account) FROM (VALUES (-100), (0), (100), (300)) AS v(level) LEFT JOIN (SELECT account, SUM(amount) AS s FROM payments GROUP BY account) p ON p.s > v.level GROUP BY v.level ORDER BY v.level

-- section: NULLs and names

-- answered
SELECT COUNT(*) FROM survey WHERE q1 NOT IN (SELECT NULLIF(places, 12) // 10 FROM stations)

-- answered
SELECT COUNT(*) FROM survey WHERE NOT (q1 > 3)

-- answered
SELECT SUM(q1), SUM(COALESCE(q1, 0)), AVG(q1), COUNT(q1), COUNT(DISTINCT q1) FROM survey

-- answered
SELECT SUM(q1 + q2), SUM(q1) + SUM(q2) FROM survey

-- answered
SELECT COUNT(*) FROM survey WHERE CASE WHEN q1 > 3 THEN q2 END = 1

-- answered
SELECT COUNT(*) FROM survey WHERE (q1 = q2) IS NOT TRUE

-- answered
SELECT age AS region, COUNT(*) FROM survey WHERE age < 20 GROUP BY survey.age ORDER BY region

-- answered
WITH trips AS (SELECT * FROM trips WHERE bike = 'cargo') SELECT COUNT(*) FROM trips

-- answered
WITH survey AS (SELECT respondent, q1 AS q2, q2 AS q1 FROM survey) SELECT SUM(q1), SUM(q2) FROM survey

-- answered
SELECT COUNT(*) FROM (SELECT rider, km AS minutes, minutes AS km FROM trips) WHERE minutes > 20

-- answered
SELECT "n" FROM (SELECT bike, COUNT(*) AS "N" FROM trips GROUP BY bike) ORDER BY N

-- answered
SELECT COUNT(*) FILTER (WHERE q1 > 3 AND region = 'north') / COUNT(*) FILTER (WHERE region = 'north') FROM survey

-- answered
SELECT region, COUNT(*) FROM survey GROUP BY region HAVING region IN ('north', 'east') ORDER BY region

-- answered
SELECT region, COUNT(*) AS age FROM survey GROUP BY region ORDER BY age

-- answered
SELECT -(-7) // 2, -7 // 2, -7 % 3, COUNT(*) FROM survey

-- answered
SELECT (age - 50) // 10 AS d, COUNT(*) FROM survey GROUP BY d ORDER BY d

-- answered
SELECT (age - 50) % 10 AS d, COUNT(*) FROM survey GROUP BY d ORDER BY d

-- answered
SELECT CAST((age - 50) / 10 AS INTEGER) AS d, COUNT(*) FROM survey GROUP BY d ORDER BY d

-- answered
SELECT SUM(age / 10), SUM(age // 10), SUM(ROUND(age / 10)) FROM survey

-- answered
SELECT ROUND(-2.5), ROUND(0.5), COUNT(*) FROM survey

-- answered
SELECT CAST(income AS INTEGER) % 10 AS d, COUNT(*) FROM survey WHERE income IS NOT NULL GROUP BY d ORDER BY d

-- answered
SELECT COUNT(*) FROM payments WHERE amount::INTEGER = ROUND(amount)

-- answered
SELECT COUNT(*) FROM trips WHERE started::DATE - DATE '2024-01-01' = 31

-- answered
SELECT COUNT(*) FROM trips WHERE DATE_TRUNC('day', started) = '2024-01-15'

-- answered
SELECT COUNT(*) FROM trips WHERE started > '2024-06-01 12:00' AND started <= TIMESTAMP '2024-06-02 12:00:00'

-- answered
SELECT COUNT(*) FROM trips WHERE EXTRACT(dow FROM started) = 0 AND EXTRACT(isodow FROM started) = 7

-- answered
SELECT COUNT(*) FROM trips WHERE DATE_DIFF('hour', TIMESTAMP '2024-01-01 00:59', started) = 5 OR DATE_SUB('hour', TIMESTAMP '2024-01-01 00:59', started) = 5

-- answered
SELECT DATE_ADD(DATE_TRUNC('month', started), INTERVAL 1 MONTH) AS next, COUNT(*) FROM trips GROUP BY next ORDER BY next

-- answered
SELECT t.bike, COUNT(*) FROM trips t LEFT JOIN (SELECT rider, MIN(trip) AS trip FROM trips GROUP BY rider) f ON f.rider = t.rider AND f.trip = t.trip WHERE f.rider IS NULL GROUP BY t.bike ORDER BY t.bike

-- answered
SELECT COUNT(*), COUNT(f.n) FROM trips t LEFT JOIN (SELECT rider, COUNT(*) AS n FROM trips WHERE bike = 'cargo' GROUP BY rider) f USING (rider)

-- answered
SELECT COUNT(*), COUNT(a.account), COUNT(b.account) FROM (SELECT account, COUNT(*) AS n FROM payments WHERE category = 'rent' GROUP BY account) a FULL JOIN (SELECT account, COUNT(*) AS n FROM payments WHERE category = 'fun' GROUP BY account) b ON a.account = b.account

-- answered
SELECT COALESCE(a.n, 0) + COALESCE(b.n, 0) AS k, COUNT(*) FROM (SELECT account, COUNT(*) AS n FROM payments WHERE category = 'rent' GROUP BY account) a FULL JOIN (SELECT account, COUNT(*) AS n FROM payments WHERE category = 'fun' GROUP BY account) b USING (account) GROUP BY k HAVING COUNT(*) > 3 ORDER BY k

-- refused: the policy declares no value 'CITY' for LOWER(bike).
-- hint: did you mean 'city'?
SELECT COUNT(*) FROM trips WHERE LOWER(bike) = 'CITY' OR bike = 'City'

-- answered
SELECT COUNT(*) FROM trips WHERE bike > 'city'

-- answered
SELECT COUNT(*) FROM hits WHERE page LIKE '/shop_cart' OR page LIKE '/\_' ESCAPE '\'

-- answered
SELECT COUNT(*) FROM hits WHERE referrer LIKE '%utm=%' IS NOT TRUE

-- answered
SELECT COUNT(*) FROM hits WHERE STRPOS(agent, 'Mobile') > 0 AND POSITION('/' IN agent) = 7

-- answered
SELECT REVERSE(SUBSTRING(page, -4)) AS r, COUNT(*) FROM hits GROUP BY r ORDER BY r

-- answered
SELECT LPAD(status::VARCHAR, 5, '0') AS s, COUNT(*) FROM hits GROUP BY s ORDER BY s

-- possible: EXCEPT ALL would compare how often rows occur.
SELECT COUNT(*) FROM (SELECT visitor, status FROM hits EXCEPT ALL SELECT visitor, status FROM hits WHERE status = 200)

-- answered
SELECT SUM(DISTINCT status) FROM hits

-- answered
SELECT COUNT(DISTINCT (page, status)) FROM hits

-- answered
SELECT COUNT(*) FROM (SELECT DISTINCT visitor, page FROM hits)

-- answered
SELECT n, COUNT(*) FROM (SELECT visitor, COUNT(DISTINCT page) FILTER (WHERE status = 200) AS n FROM hits GROUP BY visitor) GROUP BY n ORDER BY n

-- answered
SELECT AVG(x) FROM (SELECT visitor, MEDIAN(ms) AS x FROM hits GROUP BY visitor)

-- answered
SELECT COUNT(*) FROM (SELECT visitor, ms, PERCENT_RANK() OVER (PARTITION BY visitor ORDER BY ms) AS r FROM hits) WHERE r = 1

-- answered
SELECT COUNT(*) FROM (SELECT visitor, NTH_VALUE(page, 2) OVER (PARTITION BY visitor ORDER BY seen ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS second FROM hits) WHERE second = '/'

-- answered
SELECT COUNT(*) FROM (SELECT visitor, STDDEV(ms) AS d, COUNT(*) AS n FROM hits GROUP BY visitor) WHERE d > 800 AND n > 2

-- answered
SELECT page, AVG(ms) FILTER (WHERE status = 200) - AVG(ms) FILTER (WHERE status <> 200) AS slower FROM hits GROUP BY page ORDER BY page

-- answered
SELECT COUNT(*) FROM hits a JOIN hits b ON a.visitor = b.visitor AND b.seen > a.seen AND b.seen <= a.seen + INTERVAL 2 DAY AND a.page = '/' AND b.page = '/shop'

-- answered
SELECT SUM(bytes) > 1000000 AS many, COUNT(*) FROM hits

-- answered
SELECT MAX(n) - MIN(n) FROM (SELECT status, COUNT(*) AS n FROM hits GROUP BY status)

-- answered
SELECT VAR_POP(n) FROM (SELECT page, COUNT(*) AS n FROM hits GROUP BY page)

-- answered
SELECT page, n FROM (SELECT page, COUNT(*) AS n FROM hits GROUP BY page) WHERE n BETWEEN 20 AND 500 ORDER BY n DESC OFFSET 1

-- answered
(SELECT page, COUNT(*) AS n FROM hits GROUP BY page ORDER BY n DESC LIMIT 1) UNION ALL (SELECT page, COUNT(*) AS n FROM hits GROUP BY page ORDER BY n LIMIT 1)

-- answered
SELECT page FROM (SELECT page, COUNT(*) AS n FROM hits GROUP BY page) WHERE n > 100 INTERSECT SELECT page FROM (SELECT page, COUNT(*) AS n FROM hits WHERE status = 200 GROUP BY page) WHERE n > 50

-- section: lists, laterals

-- possible: LIST can't be used here.
SELECT x, COUNT(*) FROM (SELECT rider, UNNEST(LIST(DISTINCT origin)) AS x FROM trips GROUP BY rider) GROUP BY x ORDER BY x

-- possible: the texts of one privacy unit may be 65,536 characters long each, too many to join.
SELECT COUNT(*) FROM (SELECT rider, STRING_AGG(origin, '-' ORDER BY started) AS path FROM trips GROUP BY rider) WHERE path LIKE '%Dock-Park%'

-- answered
SELECT COUNT(*) FROM (SELECT rider, STRING_AGG(LEFT(origin, 10), '-' ORDER BY started) AS path FROM trips GROUP BY rider) WHERE path LIKE '%Dock-Park%'

-- possible: LATERAL over private rows takes one aggregate of each public row.
SELECT s.station, n, m FROM stations s, LATERAL (SELECT COUNT(*) AS n, AVG(km) AS m FROM trips t WHERE t.origin = s.station) ORDER BY s.station

-- possible: a function in FROM takes constants beside private rows.
SELECT COUNT(*) FROM (SELECT rider, COUNT(*) AS n FROM trips GROUP BY rider) u, RANGE(u.n) AS g(i)

-- answered
SELECT COUNT(*) FROM trips WHERE origin <> ALL (SELECT station FROM stations WHERE places > 12)

-- answered
SELECT x, COUNT(*) FROM (SELECT rider, LIST(DISTINCT origin) AS l FROM trips GROUP BY rider), UNNEST(l) AS u(x) GROUP BY x ORDER BY x

-- answered
SELECT AVG(LEN(l), contribution_bounds_per_row => (0, 20)) FROM (SELECT rider, LIST(km ORDER BY started) FILTER (WHERE member) AS l FROM trips GROUP BY rider)
