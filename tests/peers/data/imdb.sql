-- Films are public; who voted for them is not. 90 people, 500 votes, 260 comments.
CREATE TABLE film AS SELECT i AS film_id, 'Film ' || i AS title, 1980 + i % 40 AS year, ['drama', 'comedy', 'crime', 'horror'][1 + i % 4] AS genre, ['movie', 'tv series'][1 + i % 2] AS kind FROM range(50) AS r(i);
CREATE TABLE company AS SELECT i AS company_id, 'Company ' || i AS name, ['[us]', '[de]', '[se]'][1 + i % 3] AS country FROM range(9) AS r(i);
CREATE TABLE film_company AS SELECT i AS film_id, i % 9 AS company_id, ['(co-production)', '(presents)', NULL][1 + i % 3] AS note FROM range(50) AS r(i);
CREATE TABLE keyword AS SELECT i AS keyword_id, ['sequel', 'murder', 'hero', 'love'][1 + i] AS word FROM range(4) AS r(i);
CREATE TABLE film_keyword AS SELECT i % 50 AS film_id, i % 4 AS keyword_id FROM range(70) AS r(i) GROUP BY ALL;
CREATE TABLE person AS SELECT i AS person_id, ['m', 'f', NULL][1 + i % 3] AS gender, 1950 + i % 50 AS born, ['Anna', 'Bert', 'Tim'][1 + i % 3] AS name FROM range(90) AS r(i);
CREATE TABLE vote AS SELECT i % 90 AS person_id, (i * 7) % 50 AS film_id, CASE WHEN i % 31 = 0 THEN NULL ELSE 1 + (i * 3) % 10 END AS rating, DATE '2005-01-01' + ((i * 5) % 900)::INTEGER AS day FROM range(500) AS r(i);
CREATE TABLE comment AS SELECT (i * 11) % 90 AS person_id, (i * 3) % 50 AS film_id, ['(voice) fine', 'dull', NULL, 'great (uncredited)'][1 + i % 4] AS note FROM range(260) AS r(i);
