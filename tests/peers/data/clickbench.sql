-- 600 clicks of 75 visitors, eight each; empty texts and missing codes as in a log.
CREATE TABLE clicks AS SELECT
    i AS click, i % 75 AS visitor,
    TIMESTAMP '2013-07-01 00:00:00' + to_minutes(((i * 97) % 43000)::INTEGER) AS moment,
    (TIMESTAMP '2013-07-01 00:00:00' + to_minutes(((i * 97) % 43000)::INTEGER))::DATE AS day,
    ['http://news.example/a', 'https://shop.example/cart', 'http://video.example/film', '', 'https://www.search.example/q?x'][1 + (i * 7) % 5] AS url,
    ['News of today', 'Shop', 'Video games', '', 'Google search'][1 + (i * 11) % 5] AS title,
    CASE WHEN i % 3 = 0 THEN ['tea', 'red shoes', 'weather 12', 'hotel'][1 + i % 4] ELSE '' END AS phrase,
    CASE WHEN i % 4 = 0 THEN 'http://www.google.example/find' WHEN i % 4 = 1 THEN 'http://blog.example/post' ELSE '' END AS referrer,
    (i * 3) % 6 AS region, CASE WHEN i % 5 = 0 THEN i % 3 + 1 ELSE 0 END AS engine, i % 7 % 3 AS advert,
    i % 9 % 4 AS source, i % 2 AS mobile, (i % 10 = 0)::INTEGER AS refresh, (i % 8 = 0)::INTEGER AS link,
    [1024, 1280, 1366, 1920][1 + i % 4] AS width, [768, 800, 900][1 + i % 3] AS height,
    ['nl', 'de', 'fr', ''][1 + (i * 5) % 4] AS country, ['en', 'de', 'fr'][1 + i % 3] AS lang,
    CASE WHEN i % 6 = 0 THEN ['one', 'two'][1 + i % 2] ELSE '' END AS model, i % 4 AS phone,
    167772160 + (i * 31) % 4 AS ip, (i % 12) * 10 AS send_ms, (i % 7) * 5 AS dns_ms, (i % 9) * 8.5 AS reply_ms,
    18 + (i % 75) % 50 AS age, i % 75 % 2 AS sex, CASE WHEN i % 10 = 0 THEN NULL ELSE (i % 100)::DECIMAL(8, 2) END AS price
FROM range(600) AS r(i);
