-- A retailer: 80 buyers, 400 tickets, 900 lines of them, a third returned; what is sold, where and when is public.
CREATE TABLE days AS SELECT i AS day_id, DATE '1999-01-01' + i::INTEGER AS day, year(DATE '1999-01-01' + i::INTEGER) AS year,
    month(DATE '1999-01-01' + i::INTEGER) AS month, quarter(DATE '1999-01-01' + i::INTEGER) AS quarter,
    dayname(DATE '1999-01-01' + i::INTEGER) AS weekday, week(DATE '1999-01-01' + i::INTEGER) AS week FROM range(730) AS r(i);
CREATE TABLE goods AS SELECT i AS good_id, ['Books', 'Music', 'Sports', 'Home'][1 + i % 4] AS category, 'brand ' || (i % 6) AS brand,
    i % 6 AS brand_id, ['small', 'large', 'N/A'][1 + i % 3] AS size, (5 + i % 40)::DECIMAL(7, 2) AS list_price, 1 + i % 12 AS manager
    FROM range(40) AS r(i);
CREATE TABLE shops AS SELECT i AS shop_id, 'shop ' || i AS name, ['TN', 'SD', 'CA'][1 + i % 3] AS state, 'County ' || (i % 2) AS county FROM range(6) AS r(i);
CREATE TABLE promos AS SELECT i AS promo_id, ['Y', 'N'][1 + i % 2] AS by_mail, ['N', 'Y'][1 + i % 3 % 2] AS by_event FROM range(5) AS r(i);
CREATE TABLE buyers AS SELECT i AS buyer, ['M', 'F'][1 + i % 2] AS gender, ['S', 'M', 'D'][1 + i % 3] AS marital,
    ['College', 'Primary', 'Unknown'][1 + i % 3] AS education, 1930 + i % 60 AS born, ['TN', 'CA', 'GA'][1 + i // 2 % 3] AS state,
    i % 10 AS children, CASE WHEN i % 13 = 5 THEN NULL ELSE 'N' || i % 4 END AS country FROM range(80) AS r(i);
CREATE TABLE tickets AS SELECT i AS ticket, i % 80 AS buyer, (i * 37) % 730 AS day_id, i % 6 AS shop_id FROM range(400) AS r(i);
CREATE TABLE sales AS SELECT i % 400 AS ticket, i % 400 % 80 AS buyer, (i * 7) % 40 AS good_id, (i % 400 * 37) % 730 AS day_id, i % 400 % 6 AS shop_id,
    i % 5 AS promo_id, 1 + (i * 3) % 20 AS quantity, ((5 + (i * 7) % 40) * 1.25)::DECIMAL(7, 2) AS price, (i % 11)::DECIMAL(7, 2) AS coupon,
    CASE WHEN i % 23 = 0 THEN NULL ELSE ((i * 13) % 300 - 80)::DECIMAL(7, 2) END AS profit FROM range(900) AS r(i);
CREATE TABLE returns AS SELECT ticket, good_id, buyer, day_id, shop_id, 1 + quantity // 2 AS quantity, price * (1 + quantity // 2) AS amount FROM sales WHERE (ticket * 3 + good_id * 5) % 3 = 1;
