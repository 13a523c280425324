-- case: questions and answers by year
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: owner
SELECT year(created) AS y, COUNT(*) FILTER (WHERE kind = 1) AS q, COUNT(*) FILTER (WHERE kind = 2) AS a FROM posts GROUP BY y ORDER BY y
----
answered
====
-- case: share of questions that are answered
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT 100.0 * COUNT(*) FILTER (WHERE answers > 0) / COUNT(*) FROM posts WHERE kind = 1
----
answered
====
-- case: share by tag
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- plain: SELECT tag, 100 * SUM(IF(answers > 0, 1, 0)) / COUNT(*) AS p FROM posts WHERE kind = 1 GROUP BY tag ORDER BY p DESC, tag
SELECT tag, 100 * SUM(IF(answers > 0, 1, 0)) / COUNT(*) AS p FROM posts WHERE kind = 1 GROUP BY tag ORDER BY p DESC, tag
----
answered
====
-- case: one tag
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT tag, COUNT(*) FROM posts WHERE tag = 'sql' GROUP BY tag
----
answered
====
-- case: two tags by year
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: owner
SELECT year(created) AS y, tag, COUNT(*) FROM posts WHERE tag IN ('sql', 'rust') GROUP BY y, tag
----
answered
====
-- case: posts by kind's name
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT k.name, COUNT(p.owner) FROM kinds k LEFT JOIN posts p ON p.kind = k.kind GROUP BY k.name ORDER BY k.name
----
answered
====
-- case: mean score by tag
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT tag, AVG(score), MEDIAN(score) BETWEEN -3 AND 26 FROM posts GROUP BY tag ORDER BY tag
----
answered
====
-- case: views of questions
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT SUM(views), AVG(views), COUNT(views) FROM posts
----
answered
====
-- case: users who answer and ask
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT COUNT(*) FROM users u WHERE EXISTS (SELECT 1 FROM posts p WHERE p.owner = u.id AND p.kind = 1) AND EXISTS (SELECT 1 FROM posts p WHERE p.owner = u.id AND p.kind = 2)
----
answered
====
-- case: users by reputation
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT CASE WHEN reputation < 100 THEN 'new' WHEN reputation < 1000 THEN 'known' ELSE 'trusted' END AS level, COUNT(*) FROM users GROUP BY level
----
answered
====
-- case: places of users
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: id
SELECT place, COUNT(*), AVG(reputation) FROM users GROUP BY place
----
answered
====
-- case: places that are known
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: id
SELECT COALESCE(place, 'nowhere') AS p, COUNT(*) FROM users GROUP BY p ORDER BY p
----
answered
====
-- case: users by year they joined
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: id
SELECT year(joined) AS y, COUNT(*) FROM users GROUP BY y ORDER BY y
----
answered
====
-- case: badges by name
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: user_id
SELECT badge, COUNT(*), COUNT(DISTINCT user_id) FROM badges GROUP BY badge ORDER BY 2 DESC, 1
----
answered
====
-- case: badges by month
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: user_id
SELECT date_trunc('month', given) AS m, COUNT(*) FROM badges GROUP BY m ORDER BY m
----
answered
====
-- case: reputation of those with a badge
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: user_id
SELECT badge, AVG(reputation) FROM badges b JOIN users u ON b.user_id = u.id GROUP BY badge
----
answered
====
-- case: users with three badges
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT COUNT(*) FROM (SELECT user_id FROM badges GROUP BY user_id HAVING COUNT(DISTINCT badge) = 3)
----
answered
====
-- case: users with two badges or more
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT COUNT(*) FROM (SELECT user_id FROM badges GROUP BY user_id HAVING COUNT(*) >= 2)
----
answered
====
-- case: who answers most, as written
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- reason: unit
SELECT owner, COUNT(*) AS n FROM posts WHERE kind = 2 GROUP BY owner ORDER BY n DESC LIMIT 10
----
refused: PrivacyError: the privacy unit can't be a group: each group
====
-- case: the best post, as written
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- reason: rows
SELECT id, score FROM posts ORDER BY score DESC LIMIT 10
----
refused: PrivacyError: id must be a group or be inside an
====
-- case: posts by length
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: owner
SELECT LENGTH(body) // 10 AS l, COUNT(*) FROM posts GROUP BY l ORDER BY l
----
answered
====
-- case: days from question to answer
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- reason: join
SELECT AVG(a.created - q.created, contribution_bounds_per_row => (-700, 700)) FROM posts q JOIN posts a ON a.parent = q.id WHERE q.kind = 1
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: own answers
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT COUNT(*) FROM posts q JOIN posts a ON a.parent = q.id AND a.owner = q.owner
----
answered
====
-- case: comments by score
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: user_id
SELECT score, COUNT(*) FROM comments GROUP BY score ORDER BY score
----
answered
====
-- case: comments of users of a place
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: u.id
SELECT place, COUNT(*) FROM comments c JOIN users u ON c.user_id = u.id WHERE place IS NOT NULL GROUP BY place
----
answered
====
-- case: comments on posts of others
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- reason: join
SELECT COUNT(*) FROM comments c JOIN posts p ON c.post_id = p.id
----
refused: PrivacyError: private tables are joined on something other than their
====
-- case: upvotes against downvotes
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- slack: 0.02
-- plain: SELECT SUM(upvotes) / SUM(downvotes), CORR(upvotes, downvotes) FROM users
SELECT SUM(upvotes) / SUM(downvotes), CORR(upvotes, downvotes) FROM users
----
answered
====
-- case: weekend posts
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: owner
SELECT dayname(created) AS d, COUNT(*) FROM posts GROUP BY d ORDER BY d
----
answered
====
-- case: growth by year
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
WITH y AS (SELECT year(created) AS y, COUNT(*) AS n FROM posts GROUP BY 1) SELECT y, n, n - LAG(n) OVER (ORDER BY y) FROM y ORDER BY y
----
answered
====
-- case: a pivot of tags
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: owner
SELECT year(created) AS y, SUM(CASE WHEN tag = 'sql' THEN 1 ELSE 0 END) AS sql, SUM(CASE WHEN tag = 'rust' THEN 1 ELSE 0 END) AS rust FROM posts GROUP BY y ORDER BY y
----
answered
====
-- case: a pivot statement
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- reason: unit
PIVOT posts ON tag USING COUNT(*)
----
refused: PrivacyError: PIVOT without GROUP BY has a row for each
====
-- case: tags like a word
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT tag, COUNT(*) FROM posts WHERE body LIKE '%xxx%' GROUP BY tag ORDER BY tag
----
answered
====
-- case: search in text
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT COUNT(*) FROM comments WHERE regexp_matches(body, '1[0-9]$')
----
answered
====
-- case: top tags
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT tag, COUNT(*) AS n FROM posts GROUP BY tag ORDER BY n DESC, tag LIMIT 2
----
answered
====
-- case: questions without a view
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT COUNT(*) - COUNT(views), SUM(CASE WHEN views IS NULL THEN 1 END) FROM posts
----
answered
====
-- case: scores by tag and kind with totals
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
-- seen: owner
-- ties: yes
-- slack: 0.01
SELECT tag, kind, SUM(score) FROM posts GROUP BY ROLLUP (tag, kind) ORDER BY tag, kind
----
answered
====
-- case: distinct owners by tag
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT tag, COUNT(DISTINCT owner) FROM posts GROUP BY tag HAVING COUNT(DISTINCT owner) > 10 ORDER BY tag
----
answered
====
-- case: activity of users
-- from: Stack Overflow: Stack Exchange Data Explorer's popular queries and BigQuery's public data set of it
SELECT AVG(p, contribution_bounds_per_row => (0, 20)) FROM (SELECT u.id, COUNT(p.id) AS p FROM users u LEFT JOIN posts p ON p.owner = u.id GROUP BY u.id)
----
answered
