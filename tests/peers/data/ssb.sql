-- A star: 60 customers, 700 lines of their orders; dates, parts and suppliers are public.
CREATE TABLE customer AS SELECT i AS c_id, ['ASIA', 'EUROPE', 'AMERICA'][1 + i % 3] AS c_region, ['CHINA', 'FRANCE', 'UNITED STATES'][1 + i % 3] AS c_nation,
    'CITY ' || (i % 6) AS c_city, ['MACHINERY', 'BUILDING'][1 + i % 2] AS c_segment FROM range(60) AS r(i);
CREATE TABLE lineorder AS SELECT i // 2 AS lo_order, (i // 2) % 60 AS lo_customer, (i * 7) % 30 AS lo_part, (i * 3) % 12 AS lo_supplier, (i // 2 * 11) % 60 AS lo_date,
    1 + (i * 13) % 50 AS lo_quantity, (900 + (i * 37) % 4000)::INTEGER AS lo_price, i % 11 AS lo_discount, ((900 + (i * 37) % 4000) * (100 - i % 11)) / 100 AS lo_revenue,
    (500 + (i * 37) % 2000)::INTEGER AS lo_cost, ['AIR', 'SHIP', 'RAIL'][1 + i % 3] AS lo_mode FROM range(700) AS r(i);
CREATE TABLE dates AS SELECT i AS d_id, 1992 + i % 7 AS d_year, (1992 + i % 7) * 100 + 1 + i % 12 AS d_yearmonthnum, ['Jan', 'Feb', 'Dec'][1 + i % 3] || (1992 + i % 7) AS d_yearmonth,
    1 + i % 53 AS d_week FROM range(60) AS r(i);
CREATE TABLE part AS SELECT i AS p_id, 'MFGR#' || (1 + i % 2) AS p_mfgr, 'MFGR#1' || (1 + i % 3) AS p_category, 'MFGR#222' || (i % 5) AS p_brand FROM range(30) AS r(i);
CREATE TABLE supplier AS SELECT i AS s_id, ['ASIA', 'EUROPE', 'AMERICA'][1 + i % 3] AS s_region, ['CHINA', 'FRANCE', 'UNITED STATES'][1 + i % 3] AS s_nation, 'CITY ' || (i % 6) AS s_city FROM range(12) AS r(i);
