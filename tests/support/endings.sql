== _KEY_FORMS
SELECT {k} AS k, COUNT(*) AS c FROM t GROUP BY k
SELECT DISTINCT {k} AS k FROM t
SELECT {k} AS k, ward, COUNT(*) FROM t GROUP BY GROUPING SETS (({k}), (ward))
SELECT {k} AS k, ward, COUNT(*) FROM t GROUP BY CUBE ({k}, ward)
SELECT k, COUNT(*) FROM (SELECT uid, MAX({k}) AS k FROM t GROUP BY uid) GROUP BY k
SELECT k, COUNT(*) FROM (SELECT uid, MIN({k}) AS k FROM t GROUP BY uid) GROUP BY k
SELECT k, COUNT(*) FROM (SELECT uid, LIST({k}) AS k FROM t GROUP BY uid) GROUP BY k
SELECT k, SUM(num) FROM (SELECT uid, num, FIRST_VALUE({k}) OVER (PARTITION BY uid ORDER BY num) AS k FROM t) GROUP BY k
SELECT {k} AS k, ward, SUM(num), AVG(num) FROM t GROUP BY ALL
SELECT {k} AS k, MEDIAN(num) FROM t GROUP BY k
SELECT WITH DP OPTIONS (max_groups_contributed = AUTO) {k} AS k, COUNT(*) FROM t GROUP BY k
SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) {k} AS k, SUM(num) FROM t GROUP BY k
SELECT COUNT(DISTINCT {k}) FROM t
SELECT MODE({k}) FROM t
SELECT HISTOGRAM({k}) FROM t
SELECT SUM({k}, contribution_bounds_per_row => (0, 10)) FROM t
SELECT AVG({k}, contribution_bounds_per_row => (0, 10)) FROM t
SELECT SUM({k}, contribution_bounds_per_row => AUTO) FROM t
SELECT MEDIAN({k}, contribution_bounds_per_row => (0, 10)) FROM t
SELECT QUANTILE({k}, 0.9, contribution_bounds_per_row => AUTO) FROM t
SELECT MAX({k}, contribution_bounds_per_row => (0, 10)) FROM t
SELECT ward, VAR_POP({k}, contribution_bounds_per_row => (0, 10)) FROM t GROUP BY ward
SELECT HISTOGRAM({k}, [1, 2]) FROM t
SELECT HISTOGRAM_EXACT({k}, ['a']) FROM t
SELECT WITH PTR MODE({k}) FROM t
SELECT WITH PTR MEDIAN({k}), QUANTILE_DISC({k}, 0.3) FROM t
SELECT WITH PTR ward, MODE({k}) FROM t GROUP BY ward
SELECT WITH PTR ARG_MAX({k}, COUNT(*)) FROM t
SELECT WITH PTR IQR({k}) FROM t
SELECT WITH PTR MEDIAN({k}, local_sensitivity => 1) FROM t
SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10), blocks = 20) MAX({k}) FROM t
SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) MODE({k}) FROM t
SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) {k} AS x FROM t ORDER BY x LIMIT 1
SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) MIN(x) FROM (SELECT DISTINCT {k} AS x FROM t)
SELECT WITH SUBSAMPLE OPTIONS (bounds = AUTO, blocks = 20) SUM({k}) FROM t
SELECT EXPMECH(COUNT(*) FILTER (WHERE {k} = pub.h)) OVER pub FROM t
SELECT EXPMECH(COUNT(*) FILTER (WHERE {k} = pub.{c}), answer => TRUE) OVER pub FROM t
SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE {k} = pub.{c}), 5, epsilon => 2) OVER pub FROM t
SELECT EXPMECH(MAX({k})) FROM t
SELECT EXPMECH(MEDIAN({k})) FROM t
SELECT COUNT(*) FROM t WHERE {k} IS NOT NULL AND {k} = {k}
SELECT w2, COUNT(*) FROM (SELECT uid, CAST({k} AS VARCHAR) AS w2 FROM t) GROUP BY w2
SELECT y, COUNT(*) FROM t, UNNEST([{k}]) AS u(y) GROUP BY y
SELECT y, COUNT(*) FROM t, UNNEST({k}) AS u(y) GROUP BY y
SELECT PIVOTED.a FROM (SELECT {k} AS a, COUNT(*) FROM t GROUP BY 1) AS PIVOTED ORDER BY 1 LIMIT 3
SELECT k, COUNT(*) FROM (SELECT uid, {k} AS k FROM t UNION SELECT uid, {k} FROM other) GROUP BY k
SELECT k, COUNT(*) FROM (SELECT uid, {k} AS k FROM t INTERSECT SELECT uid, {k} FROM other) GROUP BY k

== _MEETINGS
{a} = {b}
{a} <> {b}
{a} < {b}
{a} IS DISTINCT FROM {b}
{a} IN ({b}, {a})
{a} NOT IN ({b})
{a} BETWEEN {b} AND {a}
{b} BETWEEN {a} AND {b}
{a} IN (SELECT {p})
{a} NOT IN (SELECT {p})
{a} IN (SELECT x FROM (VALUES ({p})) y(x))
{a} IN (WITH y AS (SELECT {p} AS x) SELECT x FROM y)
{a} IN (SELECT UNNEST([{p}]))
{a} IN (SELECT {q} FROM pub)
({a}, 1) IN (SELECT {p}, 1)
(uid, {a}) IN (SELECT uid, {q} FROM other)
{a} IN (SELECT {q} FROM other WHERE other.uid = t.uid)
{a} = (SELECT {p})
{a} = (SELECT MAX({q}) FROM pub)
{a} < (SELECT {p})
[{a}] = [{b}]
[{a}] = (SELECT [{p}])
[{a}, {b}] = [{a}, {b}]
[{a}] IN ((SELECT [{p}]), [{b}])
[{a}] IN (SELECT [{p}])
{a} IN (SELECT [{p}])
{a} = (SELECT CAST([1] AS INTEGER[1]))
list_contains([{a}], {b})
list_contains({a}, {b})
{b} = ANY([{a}])
CASE WHEN {r} THEN {a} ELSE {b} END = {b}
CASE {a} WHEN {b} THEN true END
COALESCE({a}, {b}) = {b}
GREATEST({a}, {b}) = {a}
LEAST({a}, {b}) < {b}
NULLIF({a}, {b}) IS NULL
IF({r}, {a}, {b}) = {b}
IFNULL({a}, {b}) IS NULL
{a} + {b} > {b}
{a} * {b} = {a}
{a} / {b} > {b}
{a} // {b} = {a}
{a} % {b} = {a}
{a} || {b} = 'a'
concat({a}, {b}) = 'a'
({a}, {b}) = ({b}, {a})
EXISTS (SELECT 1 FROM pub WHERE pub.{c} = {a})
EXISTS (SELECT 1 FROM other WHERE other.uid = t.uid AND other.{c} = {a})
(SELECT COUNT(*) FROM pub WHERE pub.{c} <= {a}) > 0
{{'a': {a}}} = {{'a': {b}}}
date_diff('day', {a}, {b}) > 1
round({a}, 2) = {b}
CAST({a} AS {kind}) = {b}
TRY_CAST({a} AS {kind}) IN (SELECT {p})

== _MEETING_FORMS
SELECT k, COUNT(*) FROM (SELECT uid, {a} AS k FROM t UNION ALL SELECT uid, {q} FROM other) GROUP BY k
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t UNION SELECT uid, {q} FROM other)
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t INTERSECT SELECT uid, {q} FROM other)
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t EXCEPT SELECT uid, {q} FROM other)
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t) JOIN (SELECT {p} AS k) AS z USING (k)
SELECT k, COUNT(*) FROM (SELECT uid, {a} AS k FROM t) LEFT JOIN (SELECT {p} AS k) AS z USING (k) GROUP BY k
SELECT k, COUNT(*) FROM (SELECT uid, {a} AS k FROM t) FULL JOIN (SELECT uid, {q} AS k FROM other) AS z USING (uid, k) GROUP BY k
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t) AS y JOIN (SELECT {q} AS k FROM pub) AS z ON y.k = z.k
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t) AS y ASOF JOIN (SELECT {q} AS k FROM pub) AS z ON y.k >= z.k
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t) AS y JOIN (SELECT uid, {q} AS k FROM other) AS z ON y.uid = z.uid AND y.k = z.k
SELECT COUNT(*) FROM (SELECT uid, {a} AS k FROM t) AS y SEMI JOIN pub ON y.k = pub.{c}
SELECT COUNT(*) FROM t, UNNEST([{a}, {b}]) AS u(y) WHERE y = {b}
SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10), blocks = 20) COUNT(*) FROM t WHERE {a} IN (SELECT {p})
SELECT WITH PTR MODE(CASE WHEN {a} = {b} THEN 1 ELSE 0 END) FROM t

== _STRANGE
{c} - tz
tz - {c}
zz - {c}
tz - TIMESTAMPTZ '2020-01-01 00:00:00+00'
tz + INTERVAL 1 DAY
zz - INTERVAL 200000 YEAR
{c} + iv
iv + {c}
date_diff('hour', tz, {c})
date_sub('microsecond', {c}, tz)
epoch({c} - zz)
(tz + INTERVAL 1 MONTH) AT TIME ZONE 'Asia/Kathmandu'
date_trunc('week', tz - INTERVAL 1 HOUR, 'Pacific/Apia')
jt ->> 'a'
(jt ->> 'a')::INT
jt -> '$.a.b[0]'
json_extract_string(jt, '$.a') || jt
len(string_split(jt, '['))
regexp_matches(left(jt, 10), '^(a|b)*$')
try_strptime(jt, '%Y-%m-%d')
jt LIKE '%a%'
upper(left(jt, 100))
substr(jt, 1, 1)
strlen(jt)
md5(jt)
jt::DOUBLE
jt IN (VALUES ('a'), (E'b\t'))
struct_extract({{'a': jt}}, 'a')

== _STRANGE_FORMS
SELECT {k} AS k, COUNT(*) FROM t GROUP BY k
SELECT COUNT({k}), COUNT(DISTINCT {k}) FROM t
SELECT k, COUNT(*) FROM (SELECT uid, ARG_MAX({k}, num) AS k FROM t GROUP BY uid) GROUP BY k
SELECT k, COUNT(*) FROM (SELECT uid, MAX({k}) OVER (PARTITION BY uid ORDER BY num) AS k FROM t) GROUP BY k
SELECT WITH PTR MODE({k}) FROM t
SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) STRING_AGG({k}::VARCHAR, ',') FROM t
SELECT SUM(num ORDER BY {k}) FROM t
