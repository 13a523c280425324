# ruff: noqa: E501 - statements are as the tools write them
"""Statements of BI tools and drivers, put down in short, that connect, browse, chart and fill filter boxes."""

from __future__ import annotations

TABLEAU = [
    "SET DateStyle TO ISO",
    "BEGIN READ ONLY",
    'CREATE TEMPORARY TABLE "#Tableau_1_Connect" ("COL" INTEGER) ON COMMIT PRESERVE ROWS',
    'SELECT * FROM (SELECT * FROM "public"."visits") "T" LIMIT 0',
    'SELECT "visits"."ward" AS "ward" FROM "public"."visits" "visits" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST',
    """
    SELECT "visits"."ward" AS "ward", SUM(1) AS "sum:Number of Records:ok" FROM "public"."visits" "visits" GROUP
    BY 1
    """,
    """
    SELECT "visits"."ward" AS "ward", SUM("visits"."cost") AS "sum:cost:ok" FROM "public"."visits" "visits" GROUP
    BY 1
    """,
    'SELECT COUNT(1) AS "cnt" FROM "public"."visits" "visits" HAVING (COUNT(1) > 0)',
    """
    SELECT MIN("visits"."seen") AS "low", MAX("visits"."seen") AS "high" FROM "public"."visits" "visits" HAVING
    (COUNT(1) > 0)
    """,
    """
    SELECT DATE_TRUNC('MONTH', CAST("visits"."seen" AS TIMESTAMP)) AS "tmn:seen:ok", COUNT(1) AS "n" FROM
    "public"."visits" "visits" GROUP BY 1
    """,
    """
    SELECT CAST(TRUNC(EXTRACT(YEAR FROM "visits"."seen")) AS INTEGER) AS "yr:seen:ok", SUM("visits"."cost") AS "s"
    FROM "public"."visits" "visits" GROUP BY 1
    """,
    """
    SELECT SUM("visits"."cost") AS "s" FROM "public"."visits" "visits" WHERE (("visits"."seen" >= (TIMESTAMP
    '2024-01-01 00:00:00.000')) AND ("visits"."seen" < (TIMESTAMP '2024-02-01 00:00:00.000')))
    """,
    """
    SELECT COUNT(1) AS "n" FROM "public"."visits" "visits" WHERE ("visits"."seen" >= DATE_TRUNC('YEAR',
    CAST(CURRENT_TIMESTAMP AS TIMESTAMP)))
    """,
    """
    SELECT "t0"."name" AS "name", COUNT(1) AS "n" FROM "public"."visits" "visits" INNER JOIN "public"."wards" "t0"
    ON ("visits"."ward" = "t0"."ward") GROUP BY 1
    """,
]
POWER_BI = [
    "SELECT version()",
    """
    SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid
    FROM (
    SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind,
    elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
    CASE WHEN elemproc.proname='array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype, typ.typcategory
    FROM (
    SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid, typcategory,
    CASE WHEN proc.proname='array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
    CASE WHEN proc.proname='array_recv' THEN typ.typelem WHEN typ.typtype='r' THEN rngsubtype
    WHEN typ.typtype='m' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid)
    WHEN typ.typtype='d' THEN typ.typbasetype END AS elemtypoid
    FROM pg_type AS typ
    LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
    LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive
    LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)
    ) AS typ
    LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid
    LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid)
    LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive
    ) AS t
    JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
    WHERE typtype IN ('b', 'r', 'm', 'e', 'd') OR (typtype = 'c' AND relkind='c')
    OR (typtype = 'p' AND typname IN ('record', 'void', 'unknown'))
    OR (typtype = 'a' AND (elemtyptype IN ('b', 'r', 'm', 'e', 'd') OR (elemtyptype = 'p' AND elemtypname IN ('record', 'void'))
    OR (elemtyptype = 'c' AND elemrelkind='c')))
    ORDER BY CASE WHEN typtype IN ('b', 'e', 'p') THEN 0 WHEN typtype = 'r' THEN 1 WHEN typtype = 'm' THEN 2
    WHEN typtype = 'c' THEN 3 WHEN typtype = 'd' AND elemtyptype <> 'a' THEN 4 WHEN typtype = 'a' THEN 5 ELSE 6 END
    """,
    """
    SELECT typ.oid, att.attname, att.atttypid FROM pg_type AS typ
    JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace) JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
    JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid)
    WHERE (typ.typtype = 'c' AND cls.relkind='c') AND attnum > 0 AND NOT attisdropped ORDER BY typ.oid, att.attnum
    """,
    "SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid=enumtypid ORDER BY oid, enumsortorder",
    "select character_set_name from INFORMATION_SCHEMA.character_sets",
    """
    select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables
    where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME
    """,
    """
    select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, case when (data_type like '%unsigned%') then DATA_TYPE || ' unsigned'
    else DATA_TYPE end as DATA_TYPE
    from INFORMATION_SCHEMA.columns where TABLE_SCHEMA = 'public' and TABLE_NAME = 'visits' order by ORDINAL_POSITION
    """,
    """
    select pkcol.COLUMN_NAME as PK_COLUMN_NAME, fkcol.TABLE_SCHEMA AS FK_TABLE_SCHEMA, fkcol.TABLE_NAME AS FK_TABLE_NAME,
    fkcol.COLUMN_NAME as FK_COLUMN_NAME, fkcol.ORDINAL_POSITION as ORDINAL, fkcon.CONSTRAINT_SCHEMA || '_visits_' || fkcon.CONSTRAINT_NAME as FK_NAME
    from (select distinct constraint_catalog, constraint_schema, unique_constraint_schema, constraint_name, unique_constraint_name
    from INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS) fkcon
    inner join INFORMATION_SCHEMA.KEY_COLUMN_USAGE fkcol on fkcon.CONSTRAINT_SCHEMA = fkcol.CONSTRAINT_SCHEMA and fkcon.CONSTRAINT_NAME = fkcol.CONSTRAINT_NAME
    inner join INFORMATION_SCHEMA.KEY_COLUMN_USAGE pkcol on fkcon.UNIQUE_CONSTRAINT_SCHEMA = pkcol.CONSTRAINT_SCHEMA and fkcon.UNIQUE_CONSTRAINT_NAME = pkcol.CONSTRAINT_NAME
    where pkcol.TABLE_SCHEMA = 'public' and pkcol.TABLE_NAME = 'visits' and pkcol.ORDINAL_POSITION = fkcol.ORDINAL_POSITION
    order by FK_NAME, fkcol.ORDINAL_POSITION
    """,
    """
    select i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME as INDEX_NAME, ii.COLUMN_NAME, ii.ORDINAL_POSITION,
    case when i.CONSTRAINT_TYPE = 'PRIMARY KEY' then 'Y' else 'N' end as PRIMARY_KEY
    from INFORMATION_SCHEMA.table_constraints i inner join INFORMATION_SCHEMA.key_column_usage ii
    on i.CONSTRAINT_SCHEMA = ii.CONSTRAINT_SCHEMA and i.CONSTRAINT_NAME = ii.CONSTRAINT_NAME
    where i.TABLE_SCHEMA = 'public' and i.TABLE_NAME = 'visits' and i.CONSTRAINT_TYPE in ('PRIMARY KEY', 'UNIQUE')
    order by i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME, ii.TABLE_SCHEMA, ii.TABLE_NAME, ii.ORDINAL_POSITION
    """,
    'select "_"."ward" as "ward", count(1) as "a0" from "public"."visits" "_" group by "_"."ward" limit 1000001',
    """
    select "rows"."ward" as "ward", sum("rows"."cost") as "a0" from (select "ward", "cost" from "public"."visits"
    "$Table") "rows" group by "ward" limit 1000001
    """,
    'select "$Table"."ward" as "ward" from "public"."visits" "$Table" limit 200',
    "DISCARD ALL",
]
LOOKER = [
    "SET TIME ZONE 'UTC'",
    """
    SELECT visits.ward AS "visits.ward" FROM public.visits AS visits GROUP BY 1 ORDER BY 1 FETCH NEXT 500 ROWS
    ONLY
    """,
    """
    SELECT (DATE(visits.seen )) AS "visits.seen_date", COUNT(*) AS "visits.count" FROM public.visits AS visits
    WHERE ((( visits.seen ) >= ((SELECT (DATE_TRUNC('day', CURRENT_TIMESTAMP) + (-29 || ' day')::INTERVAL))) AND (
    visits.seen ) < ((SELECT ((DATE_TRUNC('day', CURRENT_TIMESTAMP) + (-29 || ' day')::INTERVAL) + (30 || ' day')::INTERVAL))))) GROUP BY 1 ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY
    """,
    """
    SELECT (TO_CHAR(DATE_TRUNC('month', visits.seen ), 'YYYY-MM')) AS "visits.seen_month",
    COALESCE(SUM(visits.cost ), 0) AS "visits.total" FROM public.visits AS visits WHERE ((( visits.seen ) >=
    (TIMESTAMP '2024-01-01') AND ( visits.seen ) < (TIMESTAMP '2025-01-01'))) GROUP BY (DATE_TRUNC('month',
    visits.seen )) ORDER BY 1 DESC LIMIT 500
    """,
    """
    SELECT (EXTRACT(DOW FROM visits.seen )::integer) AS "dow", AVG(visits.cost ) AS "m" FROM public.visits AS
    visits GROUP BY 1 ORDER BY 1 LIMIT 500
    """,
    """
    SELECT COUNT(*) AS n FROM public.visits AS visits WHERE (visits.ward = 'A') AND (visits.cost > 10 AND
    visits.cost IS NOT NULL)
    """,
    "select pg_terminate_backend(4711)",
]
METABASE = [
    "SET SESSION TIMEZONE TO 'UTC'",
    """
    SELECT "public"."visits"."ward" AS "ward", COUNT(*) AS "count" FROM "public"."visits" GROUP BY
    "public"."visits"."ward" ORDER BY "public"."visits"."ward" ASC
    """,
    """
    SELECT "public"."visits"."ward" AS "ward" FROM "public"."visits" GROUP BY "public"."visits"."ward" ORDER BY
    "public"."visits"."ward" ASC LIMIT 1000
    """,
    """
    SELECT DATE_TRUNC('month', "public"."visits"."seen") AS "seen", COUNT(*) AS "count" FROM "public"."visits"
    WHERE ("public"."visits"."seen" >= DATE_TRUNC('month', (NOW() + INTERVAL '-12 month'))) AND
    ("public"."visits"."seen" < DATE_TRUNC('month', NOW())) GROUP BY DATE_TRUNC('month', "public"."visits"."seen")
    ORDER BY DATE_TRUNC('month', "public"."visits"."seen") ASC
    """,
    """
    SELECT COUNT(*) AS "count" FROM "public"."visits" WHERE ("public"."visits"."seen" >= timestamp with time zone
    '2024-01-01 00:00:00.000Z') AND ("public"."visits"."seen" < timestamp with time zone '2024-02-01 00:00:00.000Z')
    """,
    """
    SELECT CAST("public"."visits"."seen" AS date) AS "seen", AVG("public"."visits"."cost") AS "avg" FROM
    "public"."visits" WHERE "public"."visits"."seen" BETWEEN timestamp '2024-01-01 00:00:00.000' AND timestamp
    '2024-01-31 00:00:00.000' GROUP BY CAST("public"."visits"."seen" AS date) ORDER BY 1
    """,
    """
    SELECT CAST(extract(dow from "public"."visits"."seen") AS integer) + 1 AS "d", COUNT(*) AS "count" FROM
    "public"."visits" GROUP BY 1 ORDER BY 1
    """,
    """
    SELECT "source"."ward" AS "ward", SUM("source"."cost") AS "sum" FROM (SELECT "public"."visits"."ward" AS
    "ward", "public"."visits"."cost" AS "cost" FROM "public"."visits") AS "source" GROUP BY "source"."ward" ORDER
    BY "source"."ward" ASC LIMIT 10000
    """,
    """
    SELECT FLOOR(("public"."visits"."cost" / 50.0)) * 50.0 AS "cost", COUNT(*) AS "count" FROM "public"."visits"
    GROUP BY FLOOR(("public"."visits"."cost" / 50.0)) * 50.0 ORDER BY 1
    """,
    'SELECT TRUE AS "_" FROM "public"."visits" WHERE 1 <> 1 LIMIT 0',
    'SELECT SUBSTRING("public"."visits"."city", 1, 1234) AS "x" FROM "public"."visits" LIMIT 10000',
]
GRAFANA = [
    """
    SELECT DATE_TRUNC('day', "seen") AS "time", COUNT(*) AS n FROM visits WHERE "seen" BETWEEN
    '2024-01-01T00:00:00Z' AND '2024-02-01T00:00:00Z' GROUP BY 1 ORDER BY 1
    """,
    """
    SELECT to_timestamp(floor(extract(epoch from seen)/86400)*86400) AS "time", AVG(cost) AS value FROM visits
    WHERE extract(epoch from seen) >= 1704067200 AND extract(epoch from seen) <= 1706745600 GROUP BY 1 ORDER BY 1
    """,
    """
    SELECT floor(extract(epoch from seen)/86400)*86400 AS "time", ward AS metric, COUNT(*) AS value FROM visits
    WHERE seen > to_timestamp(1704067200) AND seen < to_timestamp(1706745600) GROUP BY 1, 2 ORDER BY 1, 2
    """,
    "SELECT DISTINCT ward FROM visits",
    "SELECT ward AS __text, ward AS __value FROM visits GROUP BY ward",
    "SELECT now() AS time, COUNT(*) AS value FROM visits WHERE ward IN ('A','B')",
    "SELECT COUNT(*) FROM visits WHERE seen > now() - interval '5 years'",
    "select c.relname from pg_class c where pg_table_is_visible(c.oid) and relkind in ('r', 'v') order by 1",
]
DBEAVER = [
    'SET search_path = public,public,"$user"',
    "select current_schema(), session_user",
    "SELECT * FROM pg_catalog.pg_settings where name='standard_conforming_strings'",
    "SELECT string_agg(word, ',') from pg_catalog.pg_get_keywords()",
    """
    SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname =
    'clinic' ORDER BY db.datname
    """,
    """
    SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON
    d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname
    """,
    """
    SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
    FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN
    pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE
    t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory
    <> 'C')
    """,
    """
    SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
    pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN
    pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE
    c.relnamespace=2200 AND c.relkind not in ('i','I','c')
    """,
    """
    SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid
    FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN
    pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN
    pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep
    on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid =
    dep.refclassid WHERE NOT a.attisdropped AND c.oid='public.visits'::regclass ORDER BY a.attnum
    """,
    "select count(*) from public.visits",
    "SELECT x.* FROM public.visits x",
    """
    SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as
    tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr FROM pg_catalog.pg_index
    i INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid INNER JOIN pg_catalog.pg_class tc ON
    tc.oid=i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid WHERE
    i.indrelid='public.visits'::regclass ORDER BY tabrelname, c.relname
    """,
]
SUPERSET = [
    "select pg_catalog.version()",
    "show standard_conforming_strings",
    "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%' ORDER BY nspname",
    """
    SELECT DATE_TRUNC('day', seen) AS __timestamp, COUNT(*) AS count FROM public.visits WHERE seen >=
    TO_TIMESTAMP('2024-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND seen < TO_TIMESTAMP('2024-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('day', seen) LIMIT 10000
    """,
    """
    SELECT ward AS ward, SUM(cost) AS "SUM(cost)" FROM public.visits WHERE day >= TO_DATE('2024-01-01',
    'YYYY-MM-DD') GROUP BY ward ORDER BY "SUM(cost)" DESC LIMIT 100
    """,
    "SELECT DISTINCT ward AS ward FROM public.visits LIMIT 1000",
    "SELECT ward AS ward FROM public.visits GROUP BY ward ORDER BY COUNT(*) DESC LIMIT 1000",
    "SELECT COUNT(*) AS count FROM public.visits WHERE ward IN ('A', 'B') AND (cost > 10)",
    "SELECT * FROM public.visits LIMIT 101",
    "SELECT MIN(seen), MAX(seen) FROM public.visits",
]
REDASH = [
    """
    SELECT s.nspname as table_schema, c.relname as table_name, a.attname as column_name, null as data_type FROM
    pg_class c JOIN pg_namespace s ON c.relnamespace = s.oid AND s.nspname NOT IN ('pg_catalog',
    'information_schema') JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE
    c.relkind = 'm'
    """,
    """
    SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns WHERE table_schema NOT
    IN ('pg_catalog', 'information_schema')
    """,
    "/* Username: ada, Query ID: adhoc, Queue: queries */ SELECT ward, COUNT(*) FROM visits GROUP BY ward",
]
DRIVERS = [
    "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;",
    """
    SELECT oid, typname, typreceive, typbasetype, typrelid, typarray FROM pg_catalog.pg_type WHERE (typreceive !=
    0 OR typsend != 0) AND typtype != 'r' AND typreceive::TEXT != 'array_recv'
    """,
    """
    SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype, t.typbasetype FROM
    pg_type as t LEFT JOIN pg_range as r ON oid = rngtypid WHERE t.typname IN ('int2', 'int4', 'int8', 'oid',
    'float4', 'float8', 'bool')
    """,
    """
    SELECT t.typname, t.oid, t.typarray, t.oid::regtype::text AS regtype, t.typdelim FROM pg_type t WHERE t.oid =
    to_regtype('int4') ORDER BY t.oid
    """,
    """
    select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull,
    c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype
    else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join
    pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname like 'visits' and n.nspname like 'public')
    inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner
    join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid =
    a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
    """,
    """
    select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n where relkind in ('r',
    'v', 'm', 'f', 'p') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') and n.oid
    = relnamespace order by nspname, relname
    """,
    "SELECT CURRENT_SCHEMA",
    'SELECT COUNT(*) FROM "clinic"."public"."visits"',
    "TABLE wards",
    "SAVEPOINT _EXEC_SVP_0x1; SELECT 1; RELEASE _EXEC_SVP_0x1",
    "PREPARE q AS SELECT COUNT(*) FROM visits WHERE ward = $1; EXECUTE q('A'); DEALLOCATE q",
    "SET statement_timeout = '5min'; SELECT 1; RESET statement_timeout",
    "INSERT INTO visits VALUES (1)",
    "UPDATE visits SET cost = 0",
    "VACUUM",
    "LOCK TABLE visits IN ACCESS SHARE MODE",
]
STATEMENTS = {
    "Tableau": TABLEAU,
    "Power Bi": POWER_BI,
    "Looker": LOOKER,
    "Metabase": METABASE,
    "Grafana": GRAFANA,
    "Dbeaver": DBEAVER,
    "Superset": SUPERSET,
    "Redash": REDASH,
    "Drivers": DRIVERS,
}
REFUSED = {
    "CREATE TEMP": "CREATE is not a statement",
    '"$Table" limit 200': "must be a group or stand inside an aggregate",
    "pg_terminate": "not a function that may be called",
    "SUBSTRING(": "must be a group or stand inside an aggregate",
    "to_timestamp(floor": "this needs a local time",
    "SELECT x.*": "rows of visits can't be released",
    "LIMIT 101": "rows of visits can't be released",
    "INSERT": "an answer is not written into a table",
    "UPDATE": "UPDATE is not a statement",
    "VACUUM": "VACUUM is not a statement",
    "LOCK TABLE": "LOCK is not a statement",
}
"""A part of each refused statement, and of its sentence."""
