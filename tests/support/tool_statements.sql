== Tableau
SET DateStyle TO ISO
BEGIN READ ONLY
CREATE TEMPORARY TABLE "#Tableau_1_Connect" ("COL" INTEGER) ON COMMIT PRESERVE ROWS
SELECT * FROM (SELECT * FROM "public"."visits") "T" LIMIT 0
SELECT "visits"."ward" AS "ward" FROM "public"."visits" "visits" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST
SELECT "visits"."ward" AS "ward", SUM(1) AS "sum:Number of Records:ok" FROM "public"."visits" "visits" GROUP
    BY 1
SELECT "visits"."ward" AS "ward", SUM("visits"."cost") AS "sum:cost:ok" FROM "public"."visits" "visits" GROUP
    BY 1
SELECT COUNT(1) AS "cnt" FROM "public"."visits" "visits" HAVING (COUNT(1) > 0)
SELECT MIN("visits"."seen") AS "low", MAX("visits"."seen") AS "high" FROM "public"."visits" "visits" HAVING
    (COUNT(1) > 0)
SELECT DATE_TRUNC('MONTH', CAST("visits"."seen" AS TIMESTAMP)) AS "tmn:seen:ok", COUNT(1) AS "n" FROM
    "public"."visits" "visits" GROUP BY 1
SELECT CAST(TRUNC(EXTRACT(YEAR FROM "visits"."seen")) AS INTEGER) AS "yr:seen:ok", SUM("visits"."cost") AS "s"
    FROM "public"."visits" "visits" GROUP BY 1
SELECT SUM("visits"."cost") AS "s" FROM "public"."visits" "visits" WHERE (("visits"."seen" >= (TIMESTAMP
    '2024-01-01 00:00:00.000')) AND ("visits"."seen" < (TIMESTAMP '2024-02-01 00:00:00.000')))
SELECT COUNT(1) AS "n" FROM "public"."visits" "visits" WHERE ("visits"."seen" >= DATE_TRUNC('YEAR',
    CAST(CURRENT_TIMESTAMP AS TIMESTAMP)))
SELECT "t0"."name" AS "name", COUNT(1) AS "n" FROM "public"."visits" "visits" INNER JOIN "public"."wards" "t0"
    ON ("visits"."ward" = "t0"."ward") GROUP BY 1
SELECT "COL" FROM (SELECT 1 AS "COL") AS "SUBQUERY"
SELECT 1 AS "COL" FROM (SELECT 1) x LIMIT 1
select ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname from pg_catalog.pg_attribute ta, pg_catalog.pg_attribute ia,
    pg_catalog.pg_class tc, pg_catalog.pg_index i, pg_catalog.pg_namespace n, pg_catalog.pg_class ic where tc.relname = 'visits' AND n.nspname =
    'public' AND tc.oid = i.indrelid AND n.oid = tc.relnamespace AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid =
    i.indrelid AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped) AND ic.oid = i.indexrelid order by
    ia.attnum
select 'clinic'::name as "PKTABLE_CAT", n2.nspname as "PKTABLE_SCHEM", c2.relname as "PKTABLE_NAME", a2.attname as "PKCOLUMN_NAME",
    ref.confupdtype, ref.confdeltype from ((((((( (select cn.oid, conrelid, conkey, confrelid, confkey, generate_series(array_lower(conkey, 1),
    array_upper(conkey, 1)) as i, confupdtype, confdeltype, conname, condeferrable, condeferred from pg_catalog.pg_constraint cn,
    pg_catalog.pg_class c, pg_catalog.pg_namespace n where contype = 'f' and conrelid = c.oid and relname = 'visits' and n.oid = c.relnamespace
    and n.nspname = 'public') ref inner join pg_catalog.pg_class c1 on c1.oid = ref.conrelid) inner join pg_catalog.pg_namespace n1 on n1.oid =
    c1.relnamespace) inner join pg_catalog.pg_attribute a1 on a1.attrelid = c1.oid and a1.attnum = conkey[i]) inner join pg_catalog.pg_class c2
    on c2.oid = ref.confrelid) inner join pg_catalog.pg_namespace n2 on n2.oid = c2.relnamespace) inner join pg_catalog.pg_attribute a2 on
    a2.attrelid = c2.oid and a2.attnum = confkey[i])) order by ref.oid, ref.i
SELECT SUM("visits"."cost") AS "s" FROM "public"."visits" "visits" HAVING (COUNT(1) > 0)
SELECT "visits"."ward" AS "ward", SUM("visits"."cost") AS "s" FROM "public"."visits" "visits" INNER JOIN (SELECT "visits"."ward" AS "ward",
    SUM("visits"."cost") AS "$__alias__0" FROM "public"."visits" "visits" GROUP BY 1 ORDER BY 2 DESC LIMIT 3) "t0" ON ("visits"."ward" IS NOT
    DISTINCT FROM "t0"."ward") GROUP BY 1
SELECT CAST(DATE_TRUNC('DAY', "visits"."seen") AS DATE) AS "d", COUNT(1) FROM "public"."visits" "visits" WHERE (CAST("visits"."seen" AS
    DATE) IN (DATE '2024-01-01', DATE '2024-01-02')) GROUP BY 1
SELECT DATE_TRUNC('QUARTER', CAST("visits"."seen" AS TIMESTAMP)) AS "q", MEDIAN("visits"."cost") FROM "public"."visits" "visits" GROUP BY 1
BEGIN;declare "SQL_CUR0x1" cursor with hold for SELECT "visits"."ward", COUNT(1) FROM "public"."visits" "visits" GROUP BY 1;fetch 10000 in
    "SQL_CUR0x1"
fetch 100 in "SQL_CUR0x1"
close "SQL_CUR0x1"
SELECT "visits"."ward" AS "ward", (CASE WHEN ("visits"."cost" > 100) THEN 'high' ELSE 'low' END) AS "calc", COUNT(1) FROM "public"."visits"
    "visits" GROUP BY 1, 2
select a.attname, a.atttypid, a.attnotnull, a.attnum, a.atttypmod, s.n_distinct, CASE WHEN a.attcollation <> t.typcollation THEN
    c.collname ELSE NULL END AS attcollation, d.description FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class cl ON a.attrelid
    = cl.oid LEFT JOIN pg_catalog.pg_description d ON cl.oid = d.objoid AND a.attnum = d.objsubid LEFT JOIN pg_catalog.pg_collation
    c ON c.oid = a.attcollation LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid LEFT JOIN pg_catalog.pg_stats s ON s.attname =
    a.attname AND s.tablename = 'visits' AND s.schemaname = 'public' WHERE a.attnum > 0 AND NOT a.attisdropped AND cl.relname =
    'visits' AND cl.relnamespace = 2200

== Power Bi
SELECT version()
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
SELECT typ.oid, att.attname, att.atttypid FROM pg_type AS typ
    JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace) JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
    JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid)
    WHERE (typ.typtype = 'c' AND cls.relkind='c') AND attnum > 0 AND NOT attisdropped ORDER BY typ.oid, att.attnum
SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid=enumtypid ORDER BY oid, enumsortorder
select character_set_name from INFORMATION_SCHEMA.character_sets
select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables
    where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME
select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, case when (data_type like '%unsigned%') then DATA_TYPE || ' unsigned'
    else DATA_TYPE end as DATA_TYPE
    from INFORMATION_SCHEMA.columns where TABLE_SCHEMA = 'public' and TABLE_NAME = 'visits' order by ORDINAL_POSITION
select pkcol.COLUMN_NAME as PK_COLUMN_NAME, fkcol.TABLE_SCHEMA AS FK_TABLE_SCHEMA, fkcol.TABLE_NAME AS FK_TABLE_NAME,
    fkcol.COLUMN_NAME as FK_COLUMN_NAME, fkcol.ORDINAL_POSITION as ORDINAL, fkcon.CONSTRAINT_SCHEMA || '_visits_' || fkcon.CONSTRAINT_NAME as FK_NAME
    from (select distinct constraint_catalog, constraint_schema, unique_constraint_schema, constraint_name, unique_constraint_name
    from INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS) fkcon
    inner join INFORMATION_SCHEMA.KEY_COLUMN_USAGE fkcol on fkcon.CONSTRAINT_SCHEMA = fkcol.CONSTRAINT_SCHEMA and fkcon.CONSTRAINT_NAME = fkcol.CONSTRAINT_NAME
    inner join INFORMATION_SCHEMA.KEY_COLUMN_USAGE pkcol on fkcon.UNIQUE_CONSTRAINT_SCHEMA = pkcol.CONSTRAINT_SCHEMA and fkcon.UNIQUE_CONSTRAINT_NAME = pkcol.CONSTRAINT_NAME
    where pkcol.TABLE_SCHEMA = 'public' and pkcol.TABLE_NAME = 'visits' and pkcol.ORDINAL_POSITION = fkcol.ORDINAL_POSITION
    order by FK_NAME, fkcol.ORDINAL_POSITION
select i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME as INDEX_NAME, ii.COLUMN_NAME, ii.ORDINAL_POSITION,
    case when i.CONSTRAINT_TYPE = 'PRIMARY KEY' then 'Y' else 'N' end as PRIMARY_KEY
    from INFORMATION_SCHEMA.table_constraints i inner join INFORMATION_SCHEMA.key_column_usage ii
    on i.CONSTRAINT_SCHEMA = ii.CONSTRAINT_SCHEMA and i.CONSTRAINT_NAME = ii.CONSTRAINT_NAME
    where i.TABLE_SCHEMA = 'public' and i.TABLE_NAME = 'visits' and i.CONSTRAINT_TYPE in ('PRIMARY KEY', 'UNIQUE')
    order by i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME, ii.TABLE_SCHEMA, ii.TABLE_NAME, ii.ORDINAL_POSITION
select "_"."ward" as "ward", count(1) as "a0" from "public"."visits" "_" group by "_"."ward" limit 1000001
select "rows"."ward" as "ward", sum("rows"."cost") as "a0" from (select "ward", "cost" from "public"."visits"
    "$Table") "rows" group by "ward" limit 1000001
select "$Table"."ward" as "ward" from "public"."visits" "$Table" limit 200
DISCARD ALL
SELECT version();  SELECT ns.nspname, t.oid, t.typname FROM pg_type t JOIN pg_namespace AS ns ON (ns.oid = typnamespace) WHERE
    t.typname='int4';  SELECT 1
select * from (select "ward" as "ward", "cost" as "cost" from "public"."visits" "$Table") "_" where 1 = 0
select "_"."ward" as "ward", "_"."a0" as "a0" from ( select "_"."ward" as "ward", sum("_"."cost") as "a0" from "public"."visits" "_" group
    by "_"."ward" ) "_" where not "_"."a0" is null limit 1000001
select count(distinct("_"."ward")) + max(case when "_"."ward" is null then 1 else 0 end) as "a0" from "public"."visits" "_"
select sum("_"."cost") as "a0", count("_"."cost") as "a1" from "public"."visits" "_" where "_"."seen" >= timestamp '2024-01-01 00:00:00' and
    "_"."seen" < timestamp '2024-02-01 00:00:00'
select "_"."c1" as "c1", count(1) as a0 from (select date_part('year', "_"."seen") as "c1" from "public"."visits" as "_") as "_" group by
    "_"."c1" limit 1000001
select "basetable0"."ward" as "c1", sum(cast("basetable0"."cost" as decimal)) as a0 from "public"."visits" as "basetable0" group by
    "basetable0"."ward" order by "basetable0"."ward" limit 1001
SELECT pg_backend_pid()
SET client_encoding TO 'UTF8'
DISCARD TEMP
SELECT current_database() as table_catalog, n.nspname as table_schema, t.relname as table_name, i.relname as index_name from
    pg_catalog.pg_class i join pg_catalog.pg_index ix ON ix.indexrelid = i.oid join pg_catalog.pg_class t ON ix.indrelid = t.oid
    join pg_attribute a on t.oid = a.attrelid left join pg_catalog.pg_user u ON u.usesysid = i.relowner left join
    pg_catalog.pg_namespace n ON n.oid = i.relnamespace where i.relkind = 'i' and n.nspname not in ('pg_catalog', 'pg_toast') and
    pg_catalog.pg_table_is_visible(i.oid) and a.attnum = ANY(ix.indkey) and t.relkind = 'r'
SELECT d.datname AS database_name, u.usename AS owner, pg_catalog.pg_encoding_to_char(d.encoding) AS encoding FROM
    pg_catalog.pg_database d LEFT JOIN pg_catalog.pg_user u ON d.datdba = u.usesysid

== Looker
SET TIME ZONE 'UTC'
SELECT visits.ward AS "visits.ward" FROM public.visits AS visits GROUP BY 1 ORDER BY 1 FETCH NEXT 500 ROWS
    ONLY
SELECT (DATE(visits.seen )) AS "visits.seen_date", COUNT(*) AS "visits.count" FROM public.visits AS visits
    WHERE ((( visits.seen ) >= ((SELECT (DATE_TRUNC('day', CURRENT_TIMESTAMP) + (-29 || ' day')::INTERVAL))) AND (
    visits.seen ) < ((SELECT ((DATE_TRUNC('day', CURRENT_TIMESTAMP) + (-29 || ' day')::INTERVAL) + (30 || ' day')::INTERVAL))))) GROUP BY 1 ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY
SELECT (TO_CHAR(DATE_TRUNC('month', visits.seen ), 'YYYY-MM')) AS "visits.seen_month",
    COALESCE(SUM(visits.cost ), 0) AS "visits.total" FROM public.visits AS visits WHERE ((( visits.seen ) >=
    (TIMESTAMP '2024-01-01') AND ( visits.seen ) < (TIMESTAMP '2025-01-01'))) GROUP BY (DATE_TRUNC('month',
    visits.seen )) ORDER BY 1 DESC LIMIT 500
SELECT (EXTRACT(DOW FROM visits.seen )::integer) AS "dow", AVG(visits.cost ) AS "m" FROM public.visits AS
    visits GROUP BY 1 ORDER BY 1 LIMIT 500
SELECT COUNT(*) AS n FROM public.visits AS visits WHERE (visits.ward = 'A') AND (visits.cost > 10 AND
    visits.cost IS NOT NULL)
select pg_terminate_backend(4711)
SELECT 'looker'::varchar AS x, CURRENT_TIMESTAMP
SELECT EXISTS(SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'looker_scratch')
select has_schema_privilege('looker_scratch', 'CREATE')
SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'tmp'
SELECT pid, usename, query FROM pg_stat_activity WHERE state = 'active'
SELECT (DATE_TRUNC('week', visits.seen )) AS "w", COUNT(DISTINCT visits.patient ) AS "n" FROM public.visits AS visits GROUP BY 1 ORDER BY 1
    DESC FETCH NEXT 500 ROWS ONLY
SELECT COUNT(*) AS "n" FROM public.visits AS visits WHERE ((( visits.seen ) >= ((DATE_TRUNC('month', DATE_TRUNC('day', CURRENT_TIMESTAMP AT
    TIME ZONE 'UTC')))))) AND (visits.ward ) IN ('A', 'B')
SELECT CASE WHEN visits.cost < 100 THEN '0' WHEN visits.cost >= 100 AND visits.cost < 200 THEN '1' ELSE '3' END AS "t__sort_", COUNT(*) FROM
    public.visits AS visits GROUP BY 1 ORDER BY 1

== Metabase
SET SESSION TIMEZONE TO 'UTC'
SELECT "public"."visits"."ward" AS "ward", COUNT(*) AS "count" FROM "public"."visits" GROUP BY
    "public"."visits"."ward" ORDER BY "public"."visits"."ward" ASC
SELECT "public"."visits"."ward" AS "ward" FROM "public"."visits" GROUP BY "public"."visits"."ward" ORDER BY
    "public"."visits"."ward" ASC LIMIT 1000
SELECT DATE_TRUNC('month', "public"."visits"."seen") AS "seen", COUNT(*) AS "count" FROM "public"."visits"
    WHERE ("public"."visits"."seen" >= DATE_TRUNC('month', (NOW() + INTERVAL '-12 month'))) AND
    ("public"."visits"."seen" < DATE_TRUNC('month', NOW())) GROUP BY DATE_TRUNC('month', "public"."visits"."seen")
    ORDER BY DATE_TRUNC('month', "public"."visits"."seen") ASC
SELECT COUNT(*) AS "count" FROM "public"."visits" WHERE ("public"."visits"."seen" >= timestamp with time zone
    '2024-01-01 00:00:00.000Z') AND ("public"."visits"."seen" < timestamp with time zone '2024-02-01 00:00:00.000Z')
SELECT CAST("public"."visits"."seen" AS date) AS "seen", AVG("public"."visits"."cost") AS "avg" FROM
    "public"."visits" WHERE "public"."visits"."seen" BETWEEN timestamp '2024-01-01 00:00:00.000' AND timestamp
    '2024-01-31 00:00:00.000' GROUP BY CAST("public"."visits"."seen" AS date) ORDER BY 1
SELECT CAST(extract(dow from "public"."visits"."seen") AS integer) + 1 AS "d", COUNT(*) AS "count" FROM
    "public"."visits" GROUP BY 1 ORDER BY 1
SELECT "source"."ward" AS "ward", SUM("source"."cost") AS "sum" FROM (SELECT "public"."visits"."ward" AS
    "ward", "public"."visits"."cost" AS "cost" FROM "public"."visits") AS "source" GROUP BY "source"."ward" ORDER
    BY "source"."ward" ASC LIMIT 10000
SELECT FLOOR(("public"."visits"."cost" / 50.0)) * 50.0 AS "cost", COUNT(*) AS "count" FROM "public"."visits"
    GROUP BY FLOOR(("public"."visits"."cost" / 50.0)) * 50.0 ORDER BY 1
SELECT TRUE AS "_" FROM "public"."visits" WHERE 1 <> 1 LIMIT 0
SELECT SUBSTRING("public"."visits"."city", 1, 1234) AS "x" FROM "public"."visits" LIMIT 10000
SELECT current_setting('server_version')
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ UNCOMMITTED
SELECT set_config('search_path', 'public', false)
SELECT "c"."column_name" AS "name", "c"."udt_name" AS "database-type", "c"."ordinal_position" - 1 AS "database-position", "c"."table_schema"
    AS "table-schema", "c"."table_name" AS "table-name", "pk"."column_name" IS NOT NULL AS "pk?", col_description(CAST(CAST(format('%I.%I',
    CAST("c"."table_schema" AS text), CAST("c"."table_name" AS text)) AS regclass) AS oid), "c"."ordinal_position") AS "field-comment",
    (("column_default" IS NULL) OR (LOWER("column_default") = 'null')) AND ("is_nullable" = 'NO') AND NOT ((("column_default" IS NOT NULL) AND
    ("column_default" LIKE '%nextval(%')) OR ("is_identity" <> 'NO')) AS "database-required", (("column_default" IS NOT NULL) AND
    ("column_default" LIKE '%nextval(%')) OR ("is_identity" <> 'NO') AS "database-is-auto-increment" FROM "information_schema"."columns" AS "c"
    LEFT JOIN (SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name" FROM "information_schema"."table_constraints" AS "tc" INNER
    JOIN "information_schema"."key_column_usage" AS "kc" ON ("tc"."constraint_name" = "kc"."constraint_name") AND ("tc"."table_schema" =
    "kc"."table_schema") AND ("tc"."table_name" = "kc"."table_name") WHERE "tc"."constraint_type" = 'PRIMARY KEY') AS "pk" ON
    ("c"."table_schema" = "pk"."table_schema") AND ("c"."table_name" = "pk"."table_name") AND ("c"."column_name" = "pk"."column_name") WHERE
    c.table_schema !~ '^information_schema|catalog_history|pg_' AND ("c"."table_schema" IN ('public')) ORDER BY "table-schema" ASC, "table-name"
    ASC, "database-position" ASC
SELECT "fk_ns"."nspname" AS "fk-table-schema", "fk_table"."relname" AS "fk-table-name", "fk_column"."attname" AS "fk-column-name",
    "pk_ns"."nspname" AS "pk-table-schema", "pk_table"."relname" AS "pk-table-name", "pk_column"."attname" AS "pk-column-name" FROM
    "pg_constraint" AS "c" INNER JOIN "pg_class" AS "fk_table" ON "c"."conrelid" = "fk_table"."oid" INNER JOIN "pg_namespace" AS "fk_ns" ON
    "c"."connamespace" = "fk_ns"."oid" INNER JOIN "pg_attribute" AS "fk_column" ON "c"."conrelid" = "fk_column"."attrelid" INNER JOIN "pg_class"
    AS "pk_table" ON "c"."confrelid" = "pk_table"."oid" INNER JOIN "pg_namespace" AS "pk_ns" ON "pk_table"."relnamespace" = "pk_ns"."oid" INNER
    JOIN "pg_attribute" AS "pk_column" ON "c"."confrelid" = "pk_column"."attrelid" WHERE fk_ns.nspname !~
    '^information_schema|catalog_history|pg_' AND ("c"."contype" = 'f'::char) AND ("fk_column"."attnum" = ANY("c"."conkey")) AND
    ("pk_column"."attnum" = ANY("c"."confkey")) ORDER BY "fk-table-schema", "fk-table-name"
with table_privileges as (select NULL as role, t.schemaname as schema, t.objectname as table, pg_catalog.has_table_privilege(current_user,
    concat('"', t.schemaname, '"', '.', '"', t.objectname, '"'), 'UPDATE') as update, pg_catalog.has_table_privilege(current_user, concat('"',
    t.schemaname, '"', '.', '"', t.objectname, '"'), 'SELECT') as select from (select schemaname, tablename as objectname from
    pg_catalog.pg_tables union select schemaname, viewname as objectname from pg_catalog.pg_views union select schemaname, matviewname as
    objectname from pg_catalog.pg_matviews) t where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema' and
    pg_catalog.has_schema_privilege(current_user, t.schemaname, 'USAGE')) select t.* from table_privileges t where t.select
SELECT "tc"."table_schema", "kc"."column_name" FROM "information_schema"."table_constraints" AS "tc" INNER JOIN
    "information_schema"."key_column_usage" AS "kc" ON "tc"."constraint_name" = "kc"."constraint_name" WHERE "tc"."constraint_type" = 'PRIMARY
    KEY'
SELECT tmp.schemaname, tmp.tablename FROM pg_indexes tmp WHERE tmp.schemaname = 'public'
SELECT "public"."visits"."ward" AS "ward", DATE_TRUNC('week', ("public"."visits"."seen" + INTERVAL '1 day')) - INTERVAL '1 day' AS "w",
    COUNT(*) AS "count" FROM "public"."visits" GROUP BY 1, 2 ORDER BY 1, 2
SELECT CAST(DATE_TRUNC('year', "public"."visits"."seen") AS date) AS "y", COUNT(DISTINCT "public"."visits"."patient") AS "n" FROM
    "public"."visits" GROUP BY 1 ORDER BY 1
SELECT "source"."ward" AS "ward", "source"."count" AS "count" FROM (SELECT "public"."visits"."ward" AS "ward", COUNT(*) AS "count" FROM
    "public"."visits" GROUP BY "public"."visits"."ward") AS "source" WHERE "source"."count" > 10 LIMIT 1048575
SELECT COUNT(*) AS "count", SUM(CASE WHEN "public"."visits"."ward" = 'A' THEN 1 ELSE 0.0 END) / COUNT(*) AS "share" FROM "public"."visits"
SELECT PERCENTILE_CONT(0.5) within group (order by "public"."visits"."cost") AS "median" FROM "public"."visits"
SELECT COUNT(*) AS "count" FROM "public"."visits" WHERE (LOWER("public"."visits"."ward") LIKE '%a%')
SELECT COUNT(*) FROM "public"."visits" WHERE "public"."visits"."seen" >= CAST((CAST(NOW() AS timestamp) + (INTERVAL '-30 day')) AS date)
SELECT EXTRACT(hour from "public"."visits"."seen")::integer AS h, COUNT(*) FROM "public"."visits" GROUP BY 1 ORDER BY 1
SELECT n.nspname AS schema, c.relname AS name, CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN
    'VIEW' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END AS type, d.description AS description,
    stat.n_live_tup AS estimated_row_count FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace =
    n.oid LEFT JOIN pg_catalog.pg_description AS d ON (c.oid = d.objoid) AND (d.objsubid = 0) AND (d.classoid =
    'pg_class'::regclass) LEFT JOIN pg_stat_user_tables AS stat ON (n.nspname = stat.schemaname) AND (c.relname = stat.relname)
    WHERE (c.relnamespace = n.oid) AND (n.nspname !~ '^pg_') AND (n.nspname <> 'information_schema') AND c.relkind in ('r', 'p',
    'v', 'f', 'm') AND (n.nspname IN ('public')) ORDER BY type ASC, schema ASC, name ASC
SELECT "fk_ns"."nspname" AS "fk-table-schema", "fk_table"."relname" AS "fk-table-name", "fk_column"."attname" AS "fk-column-name"
    FROM "pg_constraint" AS "c" INNER JOIN "pg_class" AS "fk_table" ON "c"."conrelid" = "fk_table"."oid" INNER JOIN "pg_namespace"
    AS "fk_ns" ON "c"."connamespace" = "fk_ns"."oid" INNER JOIN "pg_attribute" AS "fk_column" ON "c"."conrelid" =
    "fk_column"."attrelid" WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND ("c"."contype" = 'f'::char) AND
    ("fk_column"."attnum" = ANY(c.conkey)) AND ("fk_ns"."nspname" IN ('public')) ORDER BY "fk-table-schema" ASC
with table_privileges as ( select NULL as role, t.schemaname as schema, t.objectname as table,
    pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' ||
    replace(t.objectname, '"', '""') || '"', 'update') as update, pg_catalog.has_any_column_privilege(current_user, '"' ||
    replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"', 'select') as select,
    pg_catalog.has_table_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' ||
    replace(t.objectname, '"', '""') || '"', 'delete') as delete from ( select schemaname, tablename as objectname from
    pg_catalog.pg_tables union select schemaname, viewname as objectname from pg_catalog.pg_views union select schemaname,
    matviewname as objectname from pg_catalog.pg_matviews ) t where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
    and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage') ) select t.* from table_privileges t
SELECT (CAST(DATE_TRUNC('week', ("public"."visits"."seen" + INTERVAL '1 day')) AS timestamp) + INTERVAL '-1 day') AS "seen",
    COUNT(*) AS "count" FROM "public"."visits" GROUP BY (CAST(DATE_TRUNC('week', ("public"."visits"."seen" + INTERVAL '1 day')) AS
    timestamp) + INTERVAL '-1 day') ORDER BY 1 ASC
SELECT CAST(DATE_TRUNC('month', "public"."visits"."day") AS date) AS "day", PERCENTILE_CONT(0.5) within group (order by
    "public"."visits"."cost") AS "median" FROM "public"."visits" GROUP BY 1 ORDER BY 1 ASC
SELECT ((FLOOR(((("public"."visits"."cost" - 0.0) / 62.5)) * 62.5)) + 0.0) AS "cost", COUNT(*) AS "count" FROM "public"."visits"
    GROUP BY 1 ORDER BY 1 ASC
SELECT COUNT(*) AS "count" FROM "public"."visits" WHERE ("public"."visits"."seen" >= CAST(CAST((NOW() + INTERVAL '-30 day') AS date)
    AS timestamptz)) AND ("public"."visits"."seen" < CAST(CAST(NOW() AS date) AS timestamptz))
SELECT CAST(SUM(CASE WHEN "public"."visits"."ward" = 'A' THEN 1 ELSE 0.0 END) AS DOUBLE PRECISION) / NULLIF(CAST(COUNT(*) AS DOUBLE
    PRECISION), 0.0) AS "share" FROM "public"."visits"
SELECT CAST(EXTRACT(year FROM AGE(DATE_TRUNC('day', NOW()), DATE_TRUNC('day', "seen"))) AS integer) AS y, COUNT(*) FROM visits GROUP
    BY 1

== Grafana
SELECT DATE_TRUNC('day', "seen") AS "time", COUNT(*) AS n FROM visits WHERE "seen" BETWEEN
    '2024-01-01T00:00:00Z' AND '2024-02-01T00:00:00Z' GROUP BY 1 ORDER BY 1
SELECT to_timestamp(floor(extract(epoch from seen)/86400)*86400) AS "time", AVG(cost) AS value FROM visits
    WHERE extract(epoch from seen) >= 1704067200 AND extract(epoch from seen) <= 1706745600 GROUP BY 1 ORDER BY 1
SELECT floor(extract(epoch from seen)/86400)*86400 AS "time", ward AS metric, COUNT(*) AS value FROM visits
    WHERE seen > to_timestamp(1704067200) AND seen < to_timestamp(1706745600) GROUP BY 1, 2 ORDER BY 1, 2
SELECT DISTINCT ward FROM visits
SELECT ward AS __text, ward AS __value FROM visits GROUP BY ward
SELECT now() AS time, COUNT(*) AS value FROM visits WHERE ward IN ('A','B')
SELECT COUNT(*) FROM visits WHERE seen > now() - interval '5 years'
select c.relname from pg_class c where pg_table_is_visible(c.oid) and relkind in ('r', 'v') order by 1
SELECT (extract(epoch from seen)/86400)::bigint*86400 AS "time", COUNT(*) FROM visits GROUP BY 1 ORDER BY 1
SELECT floor(extract(epoch from "seen")/3600)*3600 AS "time", avg(cost) AS c FROM visits WHERE "seen" BETWEEN '2024-01-01T00:00:00Z' AND
    '2024-03-01T00:00:00Z' GROUP BY time ORDER BY time
select table_name from information_schema.tables where table_schema = 'public' order by table_name
SELECT ward, COUNT(*) FROM visits WHERE ward IN ('A') AND extract(epoch from seen) BETWEEN 1704067200 AND 1706745600 GROUP BY ward
SELECT pg_catalog.current_database()
SELECT pg_is_in_recovery()
SELECT CASE WHEN quote_ident(table_schema) IN ( SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM
    generate_series( array_lower(string_to_array(current_setting('search_path'),','),1),
    array_upper(string_to_array(current_setting('search_path'),','),1) ) as i, string_to_array(current_setting('search_path'),',') s
    ) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM
    information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema','pg_catalog') ORDER BY CASE WHEN
    quote_ident(table_schema) IN ( SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(
    array_lower(string_to_array(current_setting('search_path'),','),1),
    array_upper(string_to_array(current_setting('search_path'),','),1) ) as i, string_to_array(current_setting('search_path'),',') s
    ) THEN 0 ELSE 1 END, 1
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE WHEN
    array_length(parse_ident('visits'),1) = 2 THEN quote_ident(table_schema) = (parse_ident('visits'))[1] AND
    quote_ident(table_name) = (parse_ident('visits'))[2] ELSE quote_ident(table_name) = 'visits' AND quote_ident(table_schema) IN (
    SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(
    array_lower(string_to_array(current_setting('search_path'),','),1),
    array_upper(string_to_array(current_setting('search_path'),','),1) ) as i, string_to_array(current_setting('search_path'),',') s
    ) END
SELECT time_bucket('300.000s',seen) AS "time", AVG(cost) FROM visits WHERE seen BETWEEN '2024-01-01T00:00:00Z' AND
    '2024-02-01T00:00:00Z' GROUP BY 1 ORDER BY 1
SELECT floor((extract(epoch from seen))/86400)*86400 AS "time", AVG(cost) FROM visits WHERE extract(epoch from seen) >= 1704067200
    AND extract(epoch from seen) <= 1706745600 GROUP BY 1

== Dbeaver
SET search_path = public,public,"$user"
select current_schema(), session_user
SELECT * FROM pg_catalog.pg_settings where name='standard_conforming_strings'
SELECT string_agg(word, ',') from pg_catalog.pg_get_keywords()
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname =
    'clinic' ORDER BY db.datname
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON
    d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
    FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN
    pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE
    t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory
    <> 'C')
SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
    pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN
    pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE
    c.relnamespace=2200 AND c.relkind not in ('i','I','c')
SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid
    FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN
    pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN
    pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep
    on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid =
    dep.refclassid WHERE NOT a.attisdropped AND c.oid='public.visits'::regclass ORDER BY a.attnum
select count(*) from public.visits
SELECT x.* FROM public.visits x
SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as
    tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr FROM pg_catalog.pg_index
    i INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid INNER JOIN pg_catalog.pg_class tc ON
    tc.oid=i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid WHERE
    i.indrelid='public.visits'::regclass ORDER BY tabrelname, c.relname
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0
    AND d.classoid='pg_namespace'::regclass WHERE nspname='public' ORDER BY nspname
select * from pg_catalog.pg_enum
SELECT a.oid,a.* FROM pg_catalog.pg_roles a ORDER BY a.rolname
SHOW search_path
select * from pg_catalog.pg_tablespace
SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case c.contype when 'c' then
    "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON
    t.oid=c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid
    AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass WHERE c.conrelid='public.visits'::regclass ORDER BY c.oid
SELECT DISTINCT dep.deptype, dep.classid, dep.objid, cl.relkind, attr.attname FROM pg_depend dep LEFT JOIN pg_class cl ON dep.objid=cl.oid
    LEFT JOIN pg_attribute attr ON attr.attrelid=dep.objid AND attr.attnum=dep.objsubid WHERE dep.refobjid='public.visits'::regclass
SELECT i.*,c.relnamespace FROM pg_catalog.pg_inherits i,pg_catalog.pg_class c WHERE i.inhrelid=c.oid AND c.relnamespace=2200
select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,pg_catalog.pg_relation_size(c.oid) as rel_size FROM pg_class c WHERE
    c.relnamespace=2200
SELECT p.oid as poid,p.*,pg_catalog.pg_get_expr(p.proargdefaults, 0) as arg_defaults,d.description FROM pg_catalog.pg_proc p LEFT OUTER JOIN
    pg_catalog.pg_description d ON d.objoid=p.oid WHERE p.pronamespace=2200 ORDER BY p.proname
SELECT x.oid,x.* FROM pg_catalog.pg_trigger x WHERE x.tgrelid='public.visits'::regclass
EXPLAIN SELECT COUNT(*) FROM visits
SELECT e.oid,cfg.tbls,n.nspname as schema_name,e.* FROM pg_catalog.pg_extension e JOIN pg_namespace n on n.oid =e.extnamespace left join
    (select ARRAY_AGG(ns.nspname || '.' || cls.relname) tbls, oid_ext from ( select unnest(e1.extconfig) oid , e1.oid oid_ext from
    pg_catalog.pg_extension e1 ) c join pg_class cls on cls.oid = c.oid join pg_namespace ns on ns.oid = cls.relnamespace group by oid_ext ) cfg
    on cfg.oid_ext = e.oid ORDER BY e.oid
SELECT * FROM pg_catalog.pg_foreign_server
SELECT * FROM pg_catalog.pg_event_trigger
SELECT * FROM pg_stat_activity
select * from pg_timezone_names

== Superset
select pg_catalog.version()
show standard_conforming_strings
SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%' ORDER BY nspname
SELECT DATE_TRUNC('day', seen) AS __timestamp, COUNT(*) AS count FROM public.visits WHERE seen >=
    TO_TIMESTAMP('2024-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND seen < TO_TIMESTAMP('2024-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('day', seen) LIMIT 10000
SELECT ward AS ward, SUM(cost) AS "SUM(cost)" FROM public.visits WHERE day >= TO_DATE('2024-01-01',
    'YYYY-MM-DD') GROUP BY ward ORDER BY "SUM(cost)" DESC LIMIT 100
SELECT DISTINCT ward AS ward FROM public.visits LIMIT 1000
SELECT ward AS ward FROM public.visits GROUP BY ward ORDER BY COUNT(*) DESC LIMIT 1000
SELECT COUNT(*) AS count FROM public.visits WHERE ward IN ('A', 'B') AND (cost > 10)
SELECT * FROM public.visits LIMIT 101
SELECT MIN(seen), MAX(seen) FROM public.visits
SHOW search_path
show transaction isolation level
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind in ('r', 'p')
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind IN ('v', 'm')
SELECT c.oid FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE (n.nspname = 'public') AND
    c.relname = 'visits' AND c.relkind in ('r', 'v', 'm', 'f', 'p')
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM
    pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef) AS DEFAULT, a.attnotnull, a.attrelid as
    table_oid, pgd.description as comment, a.attgenerated as generated, (SELECT json_build_object( 'always', a.attidentity = 'a', 'start',
    s.seqstart, 'increment', s.seqincrement, 'minvalue', s.seqmin, 'maxvalue', s.seqmax, 'cache', s.seqcache, 'cycle', s.seqcycle) FROM
    pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c on s.seqrelid = c."oid" WHERE c.relkind = 'S' AND a.attidentity != '' AND s.seqrelid =
    pg_catalog.pg_get_serial_sequence( a.attrelid::regclass::text, a.attname )::regclass::oid ) as identity_options FROM pg_catalog.pg_attribute
    a LEFT JOIN pg_catalog.pg_description pgd ON ( pgd.objoid = a.attrelid AND pgd.objsubid = a.attnum) WHERE a.attrelid =
    'public.visits'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
SELECT DATE_TRUNC('week', seen) AS __timestamp, SUM(cost) AS s FROM public.visits WHERE seen >= TO_TIMESTAMP('2024-01-01 00:00:00.000000',
    'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('week', seen) ORDER BY s DESC LIMIT 10000
SELECT DATE_TRUNC('quarter', seen) AS __timestamp, ward AS ward, SUM(cost) AS s FROM public.visits GROUP BY DATE_TRUNC('quarter', seen),
    ward LIMIT 10000
SELECT DATE_TRUNC('hour', seen) AS __timestamp, COUNT(*) AS count FROM public.visits GROUP BY DATE_TRUNC('hour', seen) LIMIT 10000
SELECT DATE_TRUNC('minute', seen) + INTERVAL '15 minutes' * FLOOR(EXTRACT(MINUTE FROM seen) / 15) AS t, COUNT(*) FROM public.visits GROUP BY
    1 LIMIT 10
SELECT DATE_TRUNC('month', seen) AS __timestamp, ward AS ward, COUNT(*) AS count FROM public.visits JOIN (SELECT ward AS ward__, COUNT(*) AS
    mme_inner__ FROM public.visits GROUP BY ward ORDER BY mme_inner__ DESC LIMIT 5) AS anon_1 ON ward = ward__ GROUP BY DATE_TRUNC('month',
    seen), ward LIMIT 1000
SELECT ward AS ward, COUNT(*) AS count FROM (SELECT ward, cost, seen FROM public.visits) AS virtual_table GROUP BY ward ORDER BY count DESC
    LIMIT 1000
SELECT COUNT(*) AS rowcount FROM (SELECT ward AS ward, COUNT(*) AS count FROM public.visits GROUP BY ward LIMIT 1000) AS rowcount_qry
SELECT ward AS ward, AVG(cost) AS "AVG(cost)" FROM public.visits WHERE seen >= TO_TIMESTAMP('2024-01-01 00:00:00.000000', 'YYYY-MM-DD
    HH24:MI:SS.US') AND seen < TO_TIMESTAMP('2024-12-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND ward IN ('A', 'B') GROUP BY ward
    HAVING COUNT(*) > 10 ORDER BY "AVG(cost)" DESC LIMIT 100
SELECT COUNT(DISTINCT patient) AS n FROM public.visits
SELECT min(cost) AS min, max(cost) AS max FROM public.visits
SELECT ward AS ward FROM public.visits GROUP BY ward ORDER BY ward ASC LIMIT 1000
SELECT DISTINCT ward FROM public.visits WHERE ward ILIKE '%a%' LIMIT 50

== Redash
SELECT s.nspname as table_schema, c.relname as table_name, a.attname as column_name, null as data_type FROM
    pg_class c JOIN pg_namespace s ON c.relnamespace = s.oid AND s.nspname NOT IN ('pg_catalog',
    'information_schema') JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE
    c.relkind = 'm'
SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns WHERE table_schema NOT
    IN ('pg_catalog', 'information_schema')
/* Username: ada, Query ID: adhoc, Queue: queries */ SELECT ward, COUNT(*) FROM visits GROUP BY ward

== Dbt
select distinct nspname from pg_namespace
select 'clinic' as database, tablename as name, schemaname as schema, 'table' as type from pg_tables where schemaname ilike 'public' union
    all select 'clinic' as database, viewname as name, schemaname as schema, 'view' as type from pg_views where schemaname ilike 'public' union
    all select 'clinic' as database, matviewname as name, schemaname as schema, 'materialized_view' as type from pg_matviews where schemaname
    ilike 'public'
select column_name, data_type, character_maximum_length, numeric_precision, numeric_scale from "clinic".INFORMATION_SCHEMA.columns where
    table_name = 'visits' and table_schema = 'public' order by ordinal_position
with relation as ( select pg_rewrite.ev_class as class , pg_rewrite.oid as id from pg_rewrite ), class as ( select oid as id , relname as
    name , relnamespace as schema , relkind as kind from pg_class ), dependency as ( select distinct pg_depend.objid as id , pg_depend.refobjid
    as ref from pg_depend ), schema as ( select pg_namespace.oid as id , pg_namespace.nspname as name from pg_namespace where nspname !=
    'information_schema' and nspname not like 'pg\_%' ), referenced as ( select relation.id AS id , referenced_class.name ,
    referenced_class.schema , referenced_class.kind from relation join class as referenced_class on relation.class=referenced_class.id where
    referenced_class.kind in ('r', 'v', 'm') ), relationships as ( select referenced.name as referenced_name , referenced.schema as
    referenced_schema_id , dependent_class.name as dependent_name , dependent_class.schema as dependent_schema_id , referenced.kind as kind from
    referenced join dependency on referenced.id=dependency.id join class as dependent_class on dependency.ref=dependent_class.id where
    (referenced.name != dependent_class.name or referenced.schema != dependent_class.schema) ) select referenced_schema.name as
    referenced_schema , relationships.referenced_name as referenced_name , dependent_schema.name as dependent_schema ,
    relationships.dependent_name as dependent_name from relationships join schema as dependent_schema on
    relationships.dependent_schema_id=dependent_schema.id join schema as referenced_schema on
    relationships.referenced_schema_id=referenced_schema.id group by referenced_schema, referenced_name, dependent_schema, dependent_name order
    by referenced_schema, referenced_name, dependent_schema, dependent_name
ROLLBACK
select datname from pg_database where datname = 'clinic'
select * from (select ward, count(*) as n from visits group by ward) as __dbt_sbq where false limit 0
/* {"app": "dbt", "dbt_version": "1.8.0"} */ select ward, count(*) as n from visits group by 1

== Drivers
SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;
SELECT oid, typname, typreceive, typbasetype, typrelid, typarray FROM pg_catalog.pg_type WHERE (typreceive !=
    0 OR typsend != 0) AND typtype != 'r' AND typreceive::TEXT != 'array_recv'
SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype, t.typbasetype FROM
    pg_type as t LEFT JOIN pg_range as r ON oid = rngtypid WHERE t.typname IN ('int2', 'int4', 'int8', 'oid',
    'float4', 'float8', 'bool')
SELECT t.typname, t.oid, t.typarray, t.oid::regtype::text AS regtype, t.typdelim FROM pg_type t WHERE t.oid =
    to_regtype('int4') ORDER BY t.oid
select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull,
    c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype
    else 0 end, t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join
    pg_catalog.pg_namespace n on n.oid = c.relnamespace and c.relname like 'visits' and n.nspname like 'public')
    inner join pg_catalog.pg_attribute a on (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner
    join pg_catalog.pg_type t on t.oid = a.atttypid) left outer join pg_attrdef d on a.atthasdef and d.adrelid =
    a.attrelid and d.adnum = a.attnum order by n.nspname, c.relname, attnum
select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n where relkind in ('r',
    'v', 'm', 'f', 'p') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') and n.oid
    = relnamespace order by nspname, relname
SELECT CURRENT_SCHEMA
SELECT COUNT(*) FROM "clinic"."public"."visits"
TABLE wards
SAVEPOINT _EXEC_SVP_0x1; SELECT 1; RELEASE _EXEC_SVP_0x1
PREPARE q AS SELECT COUNT(*) FROM visits WHERE ward = $1; EXECUTE q('A'); DEALLOCATE q
SET statement_timeout = '5min'; SELECT 1; RESET statement_timeout
INSERT INTO visits VALUES (1)
UPDATE visits SET cost = 0
VACUUM
LOCK TABLE visits IN ACCESS SHARE MODE
SET intervalstyle = iso_8601
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), a.attnotnull, a.atttypid, a.atttypmod,
    c.collname, col_description(a.attrelid, a.attnum) AS comment, attgenerated as attgenerated FROM pg_attribute a LEFT JOIN
    pg_attrdef d ON a.attrelid = d.adrelid AND a.attnum = d.adnum LEFT JOIN pg_type t ON a.atttypid = t.oid LEFT JOIN pg_collation c
    ON a.attcollation = c.oid AND a.attcollation <> t.typcollation WHERE a.attrelid = '"visits"'::regclass AND a.attnum > 0 AND NOT
    a.attisdropped ORDER BY a.attnum
SELECT SUM("visits"."cost") AS sum_cost, "visits"."ward" AS visits_ward FROM "visits" WHERE "visits"."ward" NOT IN ('A', 'B') GROUP
    BY "visits"."ward" ORDER BY "visits"."ward" ASC
SELECT 1 AS one FROM "visits" LIMIT 1
SELECT ( NOW()+make_interval(days :=  1)) > NOW() AS t
SELECT CAST('\x01FF' AS bytea) AS b
SELECT COUNT(*) FROM visits WHERE ward <> ALL(ARRAY['A', 'B']) AND patient = ANY(ARRAY[1, 2]::bigint[])
SELECT COUNT(*) FROM visits WHERE ward <> ALL('{A,B}')

== Charts
SELECT to_char(date_trunc('quarter', seen), 'YYYY-"Q"Q') AS d, COUNT(*) FROM visits GROUP BY 1
SELECT COUNT(*) FROM visits WHERE seen >= TIMESTAMP '2024-06-01' - '3 days 0.000000 seconds'::interval
SELECT COUNT(*) FROM visits WHERE seen > now() - '3650 days'::interval
SELECT COUNT(*) FROM visits WHERE seen > TIMESTAMP '2024-03-01' - INTERVAL '1 day 02:00:00'
SELECT time_bucket('7 days', seen) AS b, COUNT(*) FROM visits GROUP BY 1 ORDER BY 1 LIMIT 3
SELECT time_bucket('86400.000s', "seen") AS "time", avg(cost) FROM visits GROUP BY 1 ORDER BY 1
SELECT COUNT(*) FROM visits WHERE ward = ANY('{A,B}')
SELECT COUNT(*) FROM visits WHERE ward = ANY('{A,B}'::text[])
SELECT COUNT(*) FROM visits WHERE NOT (ward = ANY(ARRAY['A'::text, 'B'::text]))
SELECT 1::int8 + 2::int2, 3.5::numeric(10,2), 'x'::varchar(10), '{1,2}'::int[], true::text
SELECT (CAST(date_trunc('week', CAST((CAST("public"."visits"."seen" AS timestamp) + (INTERVAL '1 day')) AS timestamp)) AS
    timestamp) + (INTERVAL '-1 day')) AS "seen", COUNT(*) AS "count" FROM "public"."visits" GROUP BY 1 ORDER BY 1 ASC LIMIT 4
SELECT COUNT(*) AS rowcount FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward LIMIT 100) AS rowcount_qry
SELECT ward, percentile_cont(0.95) WITHIN GROUP (ORDER BY cost) AS p95 FROM visits GROUP BY ward
SELECT ward, COUNT(*)::float / SUM(COUNT(*)) OVER () AS share FROM visits GROUP BY ward
SELECT ward, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM visits) AS pct FROM visits GROUP BY ward
SELECT width_bucket(cost, 0, 500, 10) AS b, count(*) FROM visits GROUP BY 1 ORDER BY 1
SELECT g.d, COALESCE(v.n, 0) FROM generate_series('2024-01-01'::date, '2024-01-05'::date, '1 day') AS g(d) LEFT JOIN (SELECT day,
    COUNT(*) AS n FROM visits WHERE day < '2024-01-06' GROUP BY day) v ON v.day = g.d ORDER BY 1
SELECT ward, lag(n) OVER (ORDER BY ward) FROM (SELECT ward, COUNT(*) n FROM visits GROUP BY ward) x
SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDER BY ward OFFSET 1 ROWS FETCH FIRST 2 ROWS ONLY
SELECT COUNT(*) FROM visits WHERE ward IN (SELECT ward FROM wards WHERE name LIKE 'H%')
SELECT COUNT(*) FROM visits WHERE extract(year from seen) = 2024 AND extract(month from seen) IN (1,2,3)
EXPLAIN (FORMAT JSON) SELECT COUNT(*) FROM visits
SELECT COUNT(*) FROM visits WHERE ward ~* 'a'
SELECT COUNT(*) FROM visits WHERE seen > now() - make_interval(days => 2000)
SELECT COALESCE(ROUND(SUM(cost)::numeric / NULLIF(COUNT(*), 0), 4), 0) AS m FROM visits
SELECT d::date, COALESCE(n, 0) FROM generate_series('2024-01-01'::date, '2024-01-05'::date, '1 day') AS d LEFT JOIN (SELECT day,
    COUNT(*) AS n FROM visits GROUP BY 1) v ON v.day = d::date ORDER BY 1
SELECT ward, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS pct FROM visits GROUP BY ward

== Pgadmin
SELECT roles.oid as id, roles.rolname as name, roles.rolsuper as is_superuser, CASE WHEN roles.rolsuper THEN true ELSE
    roles.rolcreaterole END as can_create_role, CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreatedb END as can_create_db,
    CASE WHEN 'pg_signal_backend'=ANY(ARRAY(WITH RECURSIVE cte AS (SELECT pg_roles.oid,pg_roles.rolname FROM pg_roles WHERE
    pg_roles.oid = roles.oid UNION ALL SELECT m.roleid, pgr.rolname FROM cte cte_1 JOIN pg_auth_members m ON m.member = cte_1.oid
    JOIN pg_roles pgr ON pgr.oid = m.roleid) SELECT rolname FROM cte)) THEN True ELSE False END as can_signal_backend FROM
    pg_catalog.pg_roles as roles WHERE rolname = current_user
SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings() WHERE
    name = 'bytea_output'; SET client_encoding='UTF8';
SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()
SELECT CASE WHEN usesuper THEN pg_is_in_recovery() ELSE FALSE END as inrecovery, CASE WHEN usesuper AND pg_is_in_recovery() THEN
    pg_is_wal_replay_paused() ELSE FALSE END as isreplaypaused FROM pg_catalog.pg_user WHERE usename=current_user
SELECT rel.oid, rel.relname AS name, (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid=rel.oid AND tgisinternal = FALSE)
    AS triggercount, (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid=rel.oid AND tgisinternal = FALSE AND tgenabled =
    'O') AS has_enable_triggers, (CASE WHEN rel.relkind = 'p' THEN true ELSE false END) AS is_partitioned, (SELECT count(1) FROM
    pg_catalog.pg_inherits WHERE inhrelid=rel.oid LIMIT 1) as is_inherits, (SELECT count(1) FROM pg_catalog.pg_inherits WHERE
    inhparent=rel.oid LIMIT 1) as is_inherited, des.description FROM pg_catalog.pg_class rel LEFT OUTER JOIN
    pg_catalog.pg_description des ON (des.objoid=rel.oid AND des.objsubid=0 AND des.classoid='pg_class'::regclass) WHERE
    rel.relkind IN ('r','s','t','p') AND rel.relnamespace = 2200::oid AND NOT rel.relispartition ORDER BY rel.relname
SELECT count(*) FROM pg_catalog.pg_replication_slots
SELECT oid, pg_catalog.format_type(oid, NULL) AS typname FROM pg_catalog.pg_type WHERE oid = ANY('{25,20,1043}') ORDER BY oid
SELECT DISTINCT att.attname as name, att.attnum as OID, pg_catalog.format_type(ty.oid,NULL) AS datatype, att.attnotnull as
    not_null, CASE WHEN att.atthasdef OR att.attidentity != '' OR ty.typdefault IS NOT NULL THEN True ELSE False END as
    has_default_val, des.description, seq.seqtypid FROM pg_catalog.pg_attribute att JOIN pg_catalog.pg_type ty ON ty.oid=atttypid
    JOIN pg_catalog.pg_namespace tn ON tn.oid=ty.typnamespace JOIN pg_catalog.pg_class cl ON cl.oid=att.attrelid JOIN
    pg_catalog.pg_namespace na ON na.oid=cl.relnamespace LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=ty.typelem LEFT OUTER
    JOIN pg_catalog.pg_attrdef def ON adrelid=att.attrelid AND adnum=att.attnum LEFT OUTER JOIN (pg_catalog.pg_depend JOIN
    pg_catalog.pg_class cs ON classid='pg_class'::regclass AND objid=cs.oid AND cs.relkind='S') ON refobjid=att.attrelid AND
    refobjsubid=att.attnum LEFT OUTER JOIN pg_catalog.pg_namespace ns ON ns.oid=cs.relnamespace LEFT OUTER JOIN
    pg_catalog.pg_index pi ON pi.indrelid=att.attrelid AND indisprimary LEFT OUTER JOIN pg_catalog.pg_description des ON
    (des.objoid=att.attrelid AND des.objsubid=att.attnum AND des.classoid='pg_class'::regclass) LEFT OUTER JOIN
    pg_catalog.pg_sequence seq ON cs.oid=seq.seqrelid WHERE att.attrelid = 'visits'::regclass::oid AND att.attnum > 0 AND
    att.attisdropped IS FALSE ORDER BY att.attnum
EXPLAIN (FORMAT JSON, ANALYZE FALSE, VERBOSE FALSE, COSTS FALSE, BUFFERS FALSE) SELECT COUNT(*) FROM public.visits

== Datagrip
select current_database() as a, current_schemas(false) as b
select N.oid::bigint as id, N.xmin as state_number, nspname as name, D.description, pg_catalog.pg_get_userbyid(N.nspowner) as
    "owner" from pg_catalog.pg_namespace N left join pg_catalog.pg_description D on N.oid = D.objoid order by case when nspname =
    pg_catalog.current_schema() then -1::bigint else N.oid::bigint end
select T.relkind as table_kind, T.relname as table_name, T.oid as table_id, T.xmin as table_state_number, false /* T.relhasoids */
    as table_with_oids, T.reltablespace as tablespace_id, T.reloptions as options, T.relpersistence as persistence, (select
    pg_catalog.array_agg(inhparent::bigint order by inhseqno)::varchar from pg_catalog.pg_inherits where T.oid = inhrelid) as
    ancestors, (select pg_catalog.array_agg(inhrelid::bigint order by inhrelid)::varchar from pg_catalog.pg_inherits where T.oid =
    inhparent) as successors, T.relispartition as is_partition, pg_catalog.pg_get_partkeydef(T.oid) as partition_key,
    pg_catalog.pg_get_expr(T.relpartbound, T.oid) as partition_expression, T.relam am_id, pg_catalog.pg_get_userbyid(T.relowner)
    as "owner" from pg_catalog.pg_class T where relnamespace = 2200::oid and relkind in ('r', 'm', 'v', 'f', 'p') order by
    table_kind, table_id
with T as ( select distinct T.oid as table_id, T.relname as table_name from pg_catalog.pg_class T, pg_catalog.pg_attribute A where
    T.relnamespace = 2200::oid and T.relkind in ('r', 'm', 'v', 'f', 'p') and pg_catalog.age(A.xmin) <= 100 and A.attrelid = T.oid
    ) select T.table_id, C.attnum as column_position, C.attname as column_name, C.xmin as column_state_number, C.atttypmod as
    type_mod, C.attndims as dimensions_number, pg_catalog.format_type(C.atttypid, C.atttypmod) as type_spec, C.atttypid as
    type_id, C.attnotnull as mandatory, pg_catalog.pg_get_expr(D.adbin, T.table_id) as column_default_expression, not C.attislocal
    as column_is_inherited, C.attfdwoptions as options, C.attisdropped as column_is_dropped, C.attidentity as identity_kind,
    C.attgenerated as generated from T join pg_catalog.pg_attribute C on T.table_id = C.attrelid left join pg_catalog.pg_attrdef D
    on (C.attrelid, C.attnum) = (D.adrelid, D.adnum) where attnum > 0 order by table_id, attnum
select L.transactionid::varchar::bigint as transaction_id from pg_catalog.pg_locks L where L.transactionid is not null order by
    pg_catalog.age(L.transactionid) desc limit 1
set statement_timeout to 0; select round(extract(epoch from now()) * 1000)
select E.oid as id, E.xmin as state_number, extname as name, extversion as version, extnamespace as schema_id, nspname as
    schema_name, array(select unnest from unnest(available_versions) where unnest > extversion) as available_updates from
    pg_catalog.pg_extension E join pg_namespace N on E.extnamespace = N.oid left join (select name, array_agg(version) as
    available_versions from pg_available_extension_versions() group by name) V on E.extname = V.name

== Frames
SELECT oid.namespace, info.table_name, info.column_name, format_type(att.atttypid, att.atttypmod) as formatted_type FROM
    information_schema.columns info JOIN pg_attribute att ON att.attname = info.column_name JOIN ( SELECT pg_class.oid, relname,
    pg_namespace.nspname as namespace FROM pg_class JOIN pg_namespace on pg_namespace.oid = pg_class.relnamespace AND reltype > 0
    ) as oid on oid.oid = att.attrelid AND relname = info.table_name AND namespace = info.table_schema WHERE namespace = ANY (
    '{public}' ) AND table_name = ANY ( '{visits}' ) ORDER BY namespace, table_name, ordinal_position
SELECT c.conname, array( SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx) JOIN pg_attribute AS ca ON
    cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid ORDER BY cols.arridx ), c.contype FROM pg_constraint AS c JOIN pg_class
    AS cl ON c.conrelid = cl.oid WHERE cl.relname = 'visits' AND pg_catalog.pg_table_is_visible(cl.oid)
SELECT ssl, version, cipher FROM pg_stat_ssl
SET CONSTRAINTS ALL DEFERRED
