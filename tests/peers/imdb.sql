-- case: 1a notes of companies
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*), AVG(f.year) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id WHERE fc.note NOT LIKE '%(presents)%' OR fc.note IS NULL
----
answered
====
-- case: 1b a note and a year
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*), SUM(v.rating) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id WHERE fc.note LIKE '%(co-production)%' AND f.year BETWEEN 1985 AND 2010
----
answered
====
-- case: 2a a keyword and a country
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id WHERE c.country = '[de]' AND k.word = 'murder'
----
answered
====
-- case: 3a words of a list
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT AVG(v.rating) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id WHERE k.word LIKE '%sequel%' AND f.year > 1990 AND f.genre IN ('drama', 'horror', 'crime')
----
answered
====
-- case: 4a ratings above a number
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(v.rating), AVG(v.rating) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id WHERE v.rating > 5 AND k.word LIKE '%hero%' AND f.year > 1990
----
answered
====
-- case: 6a one word, one name
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(DISTINCT v.person_id) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id, person p WHERE p.person_id = v.person_id AND k.word = 'hero' AND p.name LIKE '%Tim%'
----
answered
====
-- case: 7a born between
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*), AVG(p.born) FROM vote v, person p, film f WHERE v.person_id = p.person_id AND v.film_id = f.film_id AND p.born BETWEEN 1960 AND 1985 AND p.gender = 'm' AND f.year BETWEEN 1980 AND 1995
----
answered
====
-- case: 8a comments with a note
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM comment x JOIN person p ON x.person_id = p.person_id JOIN film f ON x.film_id = f.film_id WHERE x.note LIKE '%(voice)%' AND p.name LIKE '%An%' AND p.name NOT LIKE '%Tim%'
----
answered
====
-- case: 9a notes in a list
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(DISTINCT x.person_id) FROM comment x, person p, film f WHERE x.person_id = p.person_id AND x.film_id = f.film_id AND x.note IN ('(voice) fine', 'great (uncredited)') AND p.gender = 'f'
----
answered
====
-- case: 10a uncredited
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM comment x JOIN film_company fc ON x.film_id = fc.film_id JOIN company c ON c.company_id = fc.company_id WHERE x.note LIKE '%(uncredited)%' AND c.country = '[us]'
----
answered
====
-- case: 11a a link of films
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote v JOIN film a ON v.film_id = a.film_id JOIN film b ON a.year = b.year AND a.film_id < b.film_id WHERE a.genre = 'drama'
----
answered
====
-- case: 12a drama and horror of a country
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- seen: v.person_id
SELECT c.country, AVG(v.rating), COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id WHERE f.genre IN ('drama', 'horror') GROUP BY c.country
----
answered
====
-- case: 13a ratings of a country's films
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- seen: v.person_id
SELECT f.kind, COUNT(v.rating), SUM(v.rating) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id WHERE c.country = '[de]' GROUP BY f.kind
----
answered
====
-- case: 14a dark words
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- ties: yes
-- seen: v.person_id
SELECT f.title, AVG(v.rating) AS r FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id WHERE k.word IN ('murder', 'love') AND v.rating < 8.5 GROUP BY f.title HAVING COUNT(*) > 5 ORDER BY r, f.title
----
answered
====
-- case: 16a episodes by words
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- seen: v.person_id
SELECT k.word, COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id GROUP BY k.word ORDER BY 2 DESC, 1
----
answered
====
-- case: 17a names that begin with a letter
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id, person p WHERE p.person_id = v.person_id AND p.name LIKE 'B%' AND k.word = 'sequel'
----
answered
====
-- case: 18a writers and votes
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- seen: person_id
SELECT p.gender, COUNT(*), AVG(v.rating) FROM vote v JOIN person p USING (person_id) WHERE p.gender IS NOT NULL GROUP BY p.gender
----
answered
====
-- case: 20a heroes by name
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- seen: person_id
SELECT p.name, COUNT(*) FROM comment x JOIN person p USING (person_id) JOIN film_keyword fk USING (film_id) JOIN keyword k USING (keyword_id) WHERE k.word IN ('hero', 'sequel') GROUP BY p.name
----
answered
====
-- case: 22a countries that are not
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- seen: v.person_id
SELECT c.country, COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id WHERE c.country <> '[us]' AND v.rating < 7 GROUP BY c.country
----
answered
====
-- case: 25a words and voters
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(DISTINCT v.person_id), COUNT(DISTINCT f.film_id) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_keyword fk ON f.film_id = fk.film_id JOIN keyword k ON fk.keyword_id = k.keyword_id WHERE k.word IN ('murder', 'love')
----
answered
====
-- case: 28a a film that is complete
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id JOIN film_company fc ON f.film_id = fc.film_id JOIN company c ON fc.company_id = c.company_id WHERE EXISTS (SELECT 1 FROM film_keyword fk WHERE fk.film_id = f.film_id)
----
answered
====
-- case: 29a voters who commented
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote v WHERE EXISTS (SELECT 1 FROM comment x WHERE x.person_id = v.person_id AND x.film_id = v.film_id)
----
answered
====
-- case: 31a votes and comments of one film
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote v JOIN comment x ON v.person_id = x.person_id AND v.film_id = x.film_id
----
answered
====
-- case: 33a two votes of one person
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT COUNT(*) FROM vote a JOIN vote b ON a.person_id = b.person_id WHERE a.rating > b.rating
----
answered
====
-- case: 33a two votes for one film
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- reason: join
SELECT COUNT(*) FROM vote a JOIN vote b ON a.film_id = b.film_id WHERE a.rating > b.rating
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: the smallest title, as written
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
SELECT MIN(f.title), MIN(v.rating) FROM vote v JOIN film f ON v.film_id = f.film_id
----
refused: BindError: MIN needs a number, and f.title is VARCHAR.
====
-- case: extremes of years
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- slack: 0.001
SELECT MIN(f.year), MAX(f.year) FROM vote v JOIN film f ON v.film_id = f.film_id
----
answered
====
-- case: films nobody voted for
-- from: Join Order Benchmark (IMDB), shapes of 1a to 33c; the smallest name of each is asked as a count, a mean or an extreme
-- reason: subquery
SELECT COUNT(*) FROM film f WHERE NOT EXISTS (SELECT 1 FROM vote v WHERE v.film_id = f.film_id)
----
refused: PrivacyError: EXISTS over private rows would show exactly whether there
====
-- case: views and ratings by film
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
-- seen: person_id
SELECT film_id, COUNT(*), SUM(rating), COUNT(DISTINCT person_id) FROM vote GROUP BY film_id
----
answered
====
-- case: mean by film with public films
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
SELECT f.film_id, COUNT(v.person_id), AVG(v.rating) FROM film f LEFT JOIN vote v ON f.film_id = v.film_id GROUP BY f.film_id
----
answered
====
-- case: variance by film
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
-- seen: person_id
SELECT film_id, VAR_POP(rating) FROM vote GROUP BY film_id
----
answered
====
-- case: votes by month
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
-- seen: person_id
SELECT date_trunc('month', day) AS m, COUNT(*) FROM vote GROUP BY m ORDER BY m
----
answered
====
-- case: votes by year and month
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
-- seen: person_id
SELECT year(day), month(day), COUNT(*) FROM vote GROUP BY 1, 2
----
answered
====
-- case: percentiles of ratings
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
SELECT QUANTILE_DISC(rating, 0.1), QUANTILE_DISC(rating, 0.5), QUANTILE_DISC(rating, 0.9) FROM vote
----
answered
====
-- case: films rated by many
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
SELECT COUNT(*) FROM (SELECT film_id, COUNT(*) AS c FROM vote GROUP BY film_id) WHERE c > 9
----
answered
====
-- case: votes of each person
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
SELECT AVG(c, contribution_bounds_per_row => (0, 20)) FROM (SELECT person_id, COUNT(*) AS c FROM vote GROUP BY person_id)
----
answered
====
-- case: a histogram of ratings
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
-- plain: SELECT rating, COUNT(*) FROM vote WHERE NOT rating IS NULL GROUP BY rating ORDER BY rating
-- seen: person_id
SELECT rating, COUNT(*) FROM vote GROUP BY rating ORDER BY rating
----
answered
====
-- case: a histogram by function
-- from: Netflix and MovieLens ratings, as in PipelineDP's examples/movie_view_ratings and Google's beam codelabs
SELECT HISTOGRAM(rating) FROM vote
----
refused: PrivacyError: HISTOGRAM(rating) needs public values of rating; the policy declares
====
-- case: votes by decade and by kind, crossed
-- from: Join Order Benchmark and ratings of films
-- seen: v.person_id
SELECT f.year // 10 * 10 AS decade, f.kind, COUNT(*) FROM vote v JOIN film f ON v.film_id = f.film_id GROUP BY CUBE (decade, f.kind) ORDER BY 1 NULLS FIRST, 2 NULLS FIRST
----
answered
====
-- case: people who comment on what they voted for
-- from: Join Order Benchmark and ratings of films
SELECT COUNT(DISTINCT v.person_id) FROM vote v JOIN comment c ON v.person_id = c.person_id AND v.film_id = c.film_id WHERE c.note LIKE '%great%'
----
answered
====
-- case: mean rating with a prior
-- from: Join Order Benchmark and ratings of films
-- seen: v.person_id
SELECT f.genre, (SUM(v.rating) + 5 * 10) / (COUNT(v.rating) + 10.0) AS score FROM vote v JOIN film f USING (film_id) GROUP BY f.genre ORDER BY score DESC, f.genre
----
answered
====
-- case: first vote of each person by year
-- from: Join Order Benchmark and ratings of films
-- seen: person_id
SELECT year(first) AS y, COUNT(*) FROM (SELECT person_id, MIN(day) AS first FROM vote GROUP BY person_id) AS t GROUP BY y ORDER BY y
----
answered
====
-- case: share of high ratings by genre
-- from: Join Order Benchmark and ratings of films
-- seen: v.person_id
SELECT f.genre, COUNT_IF(v.rating >= 8) / COUNT(*) AS share FROM vote v JOIN film f USING (film_id) GROUP BY f.genre ORDER BY f.genre
----
answered
