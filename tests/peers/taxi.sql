-- case: 1 rides by cab
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT cab, COUNT(*) FROM rides GROUP BY cab
----
answered
====
-- case: 2 mean fare by passengers
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT passengers, AVG(fare) FROM rides GROUP BY passengers
----
answered
====
-- case: 3 rides by passengers and year
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT passengers, year(picked_up) AS y, COUNT(*) FROM rides GROUP BY passengers, y
----
answered
====
-- case: 4 rides by passengers, year and miles
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT passengers, EXTRACT(year FROM picked_up) AS y, ROUND(miles)::INTEGER AS d, COUNT(*) AS n FROM rides GROUP BY passengers, y, d ORDER BY y, n DESC, d, passengers
----
answered
====
-- case: fares by payment
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT payment, COUNT(*), SUM(fare), AVG(tip) FROM rides GROUP BY payment ORDER BY payment
----
answered
====
-- case: cards only
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT payment, SUM(tip) FROM rides WHERE payment = 'card' GROUP BY payment
----
answered
====
-- case: share of tips
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT SUM(tip) / SUM(fare) FROM rides WHERE payment = 'card'
----
answered
====
-- case: share of tips of each ride
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT AVG(tip / fare, contribution_bounds_per_row => (0, 1)) FROM rides WHERE fare > 10
----
answered
====
-- case: boroughs of departure
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT borough, COUNT(*), AVG(miles) FROM rides JOIN zones ON from_zone = zone GROUP BY borough ORDER BY borough
----
answered
====
-- case: from borough to borough
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT a.borough, b.borough, COUNT(*) FROM rides JOIN zones a ON from_zone = a.zone JOIN zones b ON to_zone = b.zone GROUP BY a.borough, b.borough
----
answered
====
-- case: zones without a ride too
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT z.zone, COUNT(r.driver) FROM zones z LEFT JOIN rides r ON r.from_zone = z.zone GROUP BY z.zone ORDER BY z.zone
----
answered
====
-- case: the busiest zones
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT name, COUNT(*) AS n FROM rides JOIN zones ON to_zone = zone GROUP BY name ORDER BY n DESC, name LIMIT 5
----
answered
====
-- case: rides by hour
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT EXTRACT(HOUR FROM picked_up) AS h, COUNT(*) FROM rides GROUP BY h ORDER BY h
----
answered
====
-- case: rides by weekday
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT dayname(day) AS d, COUNT(*), SUM(fare) FROM rides GROUP BY d
----
answered
====
-- case: rides by year
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT year(day) AS y, COUNT(*), SUM(fare) FROM rides GROUP BY y ORDER BY y
----
answered
====
-- case: rides by year and month
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT year(day) AS y, month(day) AS m, COUNT(*) FROM rides GROUP BY y, m ORDER BY y, m
----
answered
====
-- case: rides by date_trunc of a month
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT date_trunc('month', day) AS m, COUNT(*) FROM rides GROUP BY m ORDER BY m
----
answered
====
-- case: fares by quarter
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT quarter(day) AS q, AVG(fare) FROM rides GROUP BY q ORDER BY q
----
answered
====
-- case: minutes of a ride
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT AVG(date_diff('minute', picked_up, dropped), contribution_bounds_per_row => (-10, 200)) FROM rides
----
answered
====
-- case: speed
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT AVG(miles / (date_diff('minute', picked_up, dropped) / 60.0), contribution_bounds_per_row => (0, 10000)) FROM rides WHERE dropped > picked_up
----
answered
====
-- case: rides that end before they begin
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT COUNT(*) FROM rides WHERE dropped < picked_up
----
answered
====
-- case: rides without distance
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT COUNT(*) FILTER (WHERE miles IS NULL), COUNT(*) - COUNT(miles) FROM rides
----
answered
====
-- case: long rides
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT COUNT(*), SUM(fare) FROM rides WHERE miles > 10 AND fare BETWEEN 5 AND 50
----
answered
====
-- case: buckets of miles
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT CASE WHEN miles < 1 THEN '0-1' WHEN miles < 5 THEN '1-5' ELSE 'more' END AS b, COUNT(*), AVG(fare) FROM rides GROUP BY b ORDER BY b
----
answered
====
-- case: buckets by floor
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
SELECT FLOOR(fare / 10)::INTEGER * 10 AS b, COUNT(*) FROM rides GROUP BY b ORDER BY b
----
answered
====
-- case: median fare
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT MEDIAN(fare) BETWEEN 29 AND 31 FROM rides
----
answered
====
-- case: quartiles of miles
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT QUANTILE_CONT(miles, 0.25) BETWEEN 5.5 AND 6.5, QUANTILE_CONT(miles, 0.75) BETWEEN 17.5 AND 18.5 FROM rides
----
answered
====
-- case: extremes of miles
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- slack: 0.02
SELECT MIN(miles), MAX(miles) FROM rides
----
answered
====
-- case: drivers with many rides
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT COUNT(*) FROM (SELECT driver, COUNT(*) AS n FROM rides GROUP BY driver) WHERE n > 17
----
answered
====
-- case: mean of drivers' sums
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT AVG(s, contribution_bounds_per_row => (0, 2000)) FROM (SELECT driver, SUM(fare) AS s FROM rides GROUP BY driver)
----
answered
====
-- case: a driver's own rides
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- reason: unit
SELECT driver, COUNT(*) FROM rides GROUP BY driver
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: last ride of each driver
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- reason: unit
SELECT driver, MAX(picked_up) FROM rides GROUP BY driver
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: correlation of miles and fare
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- slack: 0.01
SELECT CORR(miles, fare), REGR_SLOPE(fare, miles), REGR_INTERCEPT(fare, miles) FROM rides
----
answered
====
-- case: a running sum of months
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT m, SUM(n) OVER (ORDER BY m) FROM (SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM rides GROUP BY m) ORDER BY m
----
answered
====
-- case: days in a year, pivoted
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT COUNT(*) FILTER (WHERE year(day) = 2015) AS a, COUNT(*) FILTER (WHERE year(day) = 2016) AS b FROM rides
----
answered
====
-- case: rides since a day
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT payment, COUNT(*) FROM rides WHERE day >= DATE '2018-01-01' AND day < DATE '2018-01-01' + INTERVAL 1 YEAR GROUP BY payment ORDER BY payment
----
answered
====
-- case: weekend nights
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
SELECT COUNT(*) FROM rides WHERE dayofweek(day) IN (0, 6) AND hour(picked_up) NOT BETWEEN 6 AND 20
----
answered
====
-- case: cube of payments and cabs
-- from: New York taxi rides: the 1.1 billion rides benchmark (four queries), Tumult's and SmartNoise's taxi notebooks, toddwschneider/nyc-taxi-data
-- seen: driver
-- slack: 0.01
SELECT payment, cab, COUNT(*), SUM(tip) FROM rides GROUP BY CUBE (payment, cab)
----
answered
