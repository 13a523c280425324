"""PostgreSQL's catalogue and information schema, filled only from the policy and from names and types of columns.

Schema ``public`` has the policy's tables and the session's kept results. Relations without a counterpart in the policy (indexes,
keys, triggers, functions) are empty. No row of data is read, and no number of rows is shown.

In the tables of columns below, a line with its indented continuation is a relation: its name, and its columns with the letters of
their types. ``i`` is an integer, ``b`` a boolean, ``d`` a double, ``I`` and ``T`` are lists of integers and of texts; the default
is a text.

This module stands apart from :mod:`dpsql.server.postgres.answers`, since few sessions ask for the catalogue.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_sql import Copies
from dpsql.errors import BindError
from dpsql.language.postgres import (
    INFORMATION,
    PUBLIC,
    SessionFacts,
    TextPart,
    count_numbered_parameters,
    write_catalog_query,
)
from dpsql.policy.model import Budget, Policy
from dpsql.server.postgres import types
from dpsql.server.postgres.commands import SERVER_VERSION, ClientSettings
from dpsql.session.session import Session

_CATALOG = """
pg_namespace oid:i nspname nspowner:i nspacl:T
pg_class oid:i relname relnamespace:i reltype:i reloftype:i relowner:i relam:i relfilenode:i reltablespace:i relpages:i
    reltuples:d relallvisible:i reltoastrelid:i relhasindex:b relisshared:b relpersistence relkind relnatts:i
    relchecks:i relhasrules:b relhastriggers:b relhassubclass:b relhasoids:b relrowsecurity:b relforcerowsecurity:b
    relispopulated:b relreplident relispartition:b relrewrite:i relacl:T reloptions:T relpartbound
pg_attribute attrelid:i attname atttypid:i attstattarget:i attlen:i attnum:i attndims:i atttypmod:i attbyval:b attalign
    attstorage attcompression attnotnull:b atthasdef:b atthasmissing:b attidentity attgenerated attisdropped:b
    attislocal:b attinhcount:i attcollation:i attacl:T attoptions:T attfdwoptions:T
pg_type oid:i typname typnamespace:i typowner:i typlen:i typbyval:b typtype typcategory typispreferred:b typisdefined:b
    typdelim typrelid:i typsubscript typelem:i typarray:i typinput typoutput typreceive typsend typnotnull:b
    typbasetype:i typtypmod:i typndims:i typcollation:i typdefault typacl:T dpsql_spoken
pg_database oid:i datname datdba:i encoding:i datlocprovider datistemplate:b datallowconn:b datconnlimit:i
    dattablespace:i datcollate datctype daticulocale datcollversion datacl:T
pg_roles oid:i rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b
    rolconnlimit:i rolpassword rolvaliduntil rolbypassrls:b rolconfig:T
pg_authid oid:i rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b
    rolconnlimit:i rolpassword rolvaliduntil rolbypassrls:b
pg_user usename usesysid:i usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd valuntil useconfig:T
pg_group groname grosysid:i grolist:I
pg_auth_members roleid:i member:i grantor:i admin_option:b
pg_settings name setting unit category short_desc extra_desc context vartype source min_val max_val enumvals:T boot_val
    reset_val sourcefile sourceline:i pending_restart:b
pg_description objoid:i classoid:i objsubid:i description
pg_shdescription objoid:i classoid:i description
pg_am oid:i amname amhandler amtype
pg_tablespace oid:i spcname spcowner:i spcacl:T spcoptions:T
pg_tables schemaname tablename tableowner tablespace hasindexes:b hasrules:b hastriggers:b rowsecurity:b
pg_views schemaname viewname viewowner definition
pg_matviews schemaname matviewname matviewowner tablespace hasindexes:b ispopulated:b definition
pg_indexes schemaname tablename indexname tablespace indexdef
pg_index indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indnullsnotdistinct:b indisprimary:b
    indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b
    indisreplident:b indkey:I indcollation:I indclass:I indoption:I indexprs indpred
pg_constraint oid:i conname connamespace:i contype condeferrable:b condeferred:b convalidated:b conrelid:i contypid:i
    conindid:i conparentid:i confrelid:i confupdtype confdeltype confmatchtype conislocal:b coninhcount:i connoinherit:b
    conkey:I confkey:I conpfeqop:I conbin consrc
pg_attrdef oid:i adrelid:i adnum:i adbin adsrc
pg_inherits inhrelid:i inhparent:i inhseqno:i inhdetachpending:b
pg_trigger oid:i tgrelid:i tgparentid:i tgname tgfoid:i tgtype:i tgenabled tgisinternal:b tgconstrrelid:i
    tgconstrindid:i tgconstraint:i tgdeferrable:b tginitdeferred:b tgnargs:i tgattr:I tgargs tgqual tgoldtable
    tgnewtable
pg_event_trigger oid:i evtname evtevent evtowner:i evtfoid:i evtenabled evttags:T
pg_rewrite oid:i rulename ev_class:i ev_type ev_enabled is_instead:b ev_qual ev_action
pg_rules schemaname tablename rulename definition
pg_proc oid:i proname pronamespace:i proowner:i prolang:i procost:d prorows:d provariadic:i prosupport:i prokind
    prosecdef:b proleakproof:b proisstrict:b proretset:b proisagg:b proiswindow:b provolatile proparallel pronargs:i
    pronargdefaults:i prorettype:i proargtypes:I proallargtypes:I proargmodes:T proargnames:T proargdefaults prosrc
    probin proacl:T
pg_aggregate aggfnoid:i aggkind aggnumdirectargs:i
pg_language oid:i lanname lanowner:i lanispl:b lanpltrusted:b
pg_policy oid:i polname polrelid:i polcmd polpermissive:b polroles:I polqual polwithcheck
pg_policies schemaname tablename policyname permissive roles:T cmd qual with_check
pg_publication oid:i pubname pubowner:i puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b
pg_publication_rel oid:i prpubid:i prrelid:i prqual prattrs:I
pg_publication_namespace oid:i pnpubid:i pnnspid:i
pg_publication_tables pubname schemaname tablename
pg_subscription oid:i subdbid:i subname subowner:i subenabled:b
pg_statistic_ext oid:i stxrelid:i stxname stxnamespace:i stxowner:i stxstattarget:i stxkeys:I stxkind:T stxexprs
pg_stats schemaname tablename attname
pg_collation oid:i collname collnamespace:i collowner:i collprovider collisdeterministic:b collencoding:i collcollate
    collctype colliculocale
pg_foreign_table ftrelid:i ftserver:i ftoptions:T
pg_foreign_server oid:i srvname srvowner:i srvfdw:i srvtype srvversion srvacl:T srvoptions:T
pg_foreign_data_wrapper oid:i fdwname fdwowner:i fdwhandler:i fdwvalidator:i fdwacl:T fdwoptions:T
pg_user_mapping oid:i umuser:i umserver:i umoptions:T
pg_enum oid:i enumtypid:i enumsortorder:d enumlabel
pg_range rngtypid:i rngsubtype:i rngmultitypid:i rngcollation:i rngsubopc:i
pg_sequence seqrelid:i seqtypid:i seqstart:i seqincrement:i seqmax:i seqmin:i seqcache:i seqcycle:b
pg_sequences schemaname sequencename sequenceowner data_type start_value:i min_value:i max_value:i increment_by:i
    cycle:b cache_size:i last_value:i
pg_extension oid:i extname extowner:i extnamespace:i extrelocatable:b extversion extconfig:I extcondition:T
pg_available_extensions name default_version installed_version comment
pg_depend classid:i objid:i objsubid:i refclassid:i refobjid:i refobjsubid:i deptype
pg_shdepend dbid:i classid:i objid:i objsubid:i refclassid:i refobjid:i deptype
pg_opclass oid:i opcmethod:i opcname opcnamespace:i opcowner:i opcfamily:i opcintype:i opcdefault:b opckeytype:i
pg_opfamily oid:i opfmethod:i opfname opfnamespace:i opfowner:i
pg_operator oid:i oprname oprnamespace:i oprowner:i oprkind oprleft:i oprright:i oprresult:i oprcode:i
pg_cast oid:i castsource:i casttarget:i castfunc:i castcontext castmethod
pg_conversion oid:i conname connamespace:i conowner:i
pg_partitioned_table partrelid:i partstrat partnatts:i partdefid:i partattrs:I
pg_stat_user_tables relid:i schemaname relname seq_scan:i n_live_tup:i n_dead_tup:i
pg_stat_all_tables relid:i schemaname relname seq_scan:i n_live_tup:i n_dead_tup:i
pg_statio_user_tables relid:i schemaname relname
pg_stat_activity datid:i datname pid:i usesysid:i usename application_name client_addr client_hostname client_port:i
    backend_start query_start state_change wait_event_type wait_event state query backend_type
pg_stat_database datid:i datname numbackends:i
pg_locks locktype database:i relation:i pid:i mode granted:b
pg_prepared_statements name statement
pg_cursors name statement
pg_timezone_names name abbrev utc_offset is_dst:b
pg_get_keywords word catcode catdesc
"""
_INFORMATION = """
tables table_catalog table_schema table_name table_type self_referencing_column_name reference_generation
    user_defined_type_catalog user_defined_type_schema user_defined_type_name is_insertable_into is_typed commit_action
columns table_catalog table_schema table_name column_name ordinal_position:i column_default is_nullable data_type
    character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i
    datetime_precision:i interval_type interval_precision:i character_set_catalog character_set_schema
    character_set_name collation_catalog collation_schema collation_name domain_catalog domain_schema domain_name
    udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name maximum_cardinality:i dtd_identifier
    is_self_referencing is_identity identity_generation identity_start identity_increment identity_maximum
    identity_minimum identity_cycle is_generated generation_expression is_updatable
schemata catalog_name schema_name schema_owner default_character_set_catalog default_character_set_schema
    default_character_set_name sql_path
views table_catalog table_schema table_name view_definition check_option is_updatable is_insertable_into
    is_trigger_updatable is_trigger_deletable is_trigger_insertable_into
table_constraints constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name
    constraint_type is_deferrable initially_deferred enforced
key_column_usage constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name column_name
    ordinal_position:i position_in_unique_constraint:i
referential_constraints constraint_catalog constraint_schema constraint_name unique_constraint_catalog
    unique_constraint_schema unique_constraint_name match_option update_rule delete_rule
constraint_column_usage table_catalog table_schema table_name column_name constraint_catalog constraint_schema
    constraint_name
check_constraints constraint_catalog constraint_schema constraint_name check_clause
routines specific_catalog specific_schema specific_name routine_catalog routine_schema routine_name routine_type
    data_type routine_definition external_language
parameters specific_catalog specific_schema specific_name ordinal_position:i parameter_mode parameter_name data_type
table_privileges grantor grantee table_catalog table_schema table_name privilege_type is_grantable with_hierarchy
role_table_grants grantor grantee table_catalog table_schema table_name privilege_type is_grantable with_hierarchy
column_privileges grantor grantee table_catalog table_schema table_name column_name privilege_type is_grantable
triggers trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog event_object_schema
    event_object_table action_statement action_timing
sequences sequence_catalog sequence_schema sequence_name data_type start_value minimum_value maximum_value increment
    cycle_option
domains domain_catalog domain_schema domain_name data_type
enabled_roles role_name
applicable_roles grantee role_name is_grantable
character_sets character_set_catalog character_set_schema character_set_name default_collate_catalog
information_schema_catalog_name catalog_name
"""
CATALOGS = {
    "pg_type": 1247, "pg_attribute": 1249, "pg_proc": 1255, "pg_class": 1259, "pg_database": 1262, "pg_tablespace": 1213,
    "pg_authid": 1260, "pg_attrdef": 2604, "pg_constraint": 2606, "pg_description": 2609, "pg_index": 2610, "pg_inherits": 2611,
    "pg_language": 2612, "pg_namespace": 2615, "pg_rewrite": 2618, "pg_trigger": 2620, "pg_am": 2601, "pg_extension": 3079,
    "pg_foreign_table": 3118, "pg_policy": 3256, "pg_enum": 3501, "pg_collation": 3456, "pg_sequence": 2224, "pg_range": 3541,
    "pg_statistic_ext": 3381, "pg_publication": 6104, "pg_event_trigger": 3466, "pg_foreign_server": 1417,
    "pg_foreign_data_wrapper": 2328, "pg_opclass": 2616, "pg_operator": 2617, "pg_cast": 2605, "pg_conversion": 2607,
}  # fmt: skip
"""The numbers of PostgreSQL's own relations, which tools have written down."""


def _read_relations(text: str, prefix: str = "") -> dict[str, dict[str, str]]:
    found = {}
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, *columns = line.split()
        pairs = [column.partition(":") for column in columns]
        found[prefix + name] = {column: kind or "t" for column, _, kind in pairs}
        if not prefix:
            found[name] |= {"tableoid": "i", "xmin": "i"}
    return found


RELATIONS: dict[str, dict[str, str]] = _read_relations(_CATALOG) | _read_relations(
    _INFORMATION, f"{INFORMATION}_"
)
"""The columns of each relation, with the signs of their types."""


_PG_CATALOG_OID, _PUBLIC_OID, _INFORMATION_OID, _OWNER_OID, _DATABASE_OID, _ANALYST_OID = (
    11,
    2200,
    13000,
    10,
    16000,
    16001,
)
_FIRST_OID = 1 << 24
_ARROW = {
    "i": pa.int64(), "t": pa.string(), "b": pa.bool_(), "d": pa.float64(), "I": pa.list_(pa.int64()), "T": pa.list_(pa.string()),
}  # fmt: skip
_ABOVE = "above the private part"


@functools.cache
def _open_finisher() -> Finisher:
    """Return an empty database for queries over the relations."""
    return Finisher(Copies({}), Policy(Budget(Fraction(1))))


def make_oid(name: str) -> int:
    """Return the number of a relation, which is the same whatever else there is."""
    return _FIRST_OID + zlib.crc32(name.encode()) % (1 << 30)


class Catalogue:
    """PostgreSQL's catalogue as a session sees it.

    Args:
        session: the analyst's.
        analyst: the name.
        database: the name of the policy.
    """

    def __init__(self, session: Session, analyst: str, database: str) -> None:
        self._session, self._analyst, self._database = session, analyst, database
        self._key: tuple[Any, ...] = ()
        self._tables: dict[str, pa.Table] = {}

    def count_parameters(self, part: TextPart) -> int:
        """Return how many parameters a question has."""
        return count_numbered_parameters(part.own)

    def answer(self, part: TextPart, values: Sequence[Any], settings: ClientSettings) -> pa.Table:
        """Answer a question.

        Args:
            part: the question.
            values: of its parameters.
            settings: the session's; ``set_config`` changes them.

        Raises:
            ParseError, BindError: it is none that can be answered.
        """
        version = f"PostgreSQL {SERVER_VERSION} (dpsql)"
        facts = SessionFacts(self._analyst, self._database, version, settings.find, settings.change)
        names = {name: tuple(columns) for name, columns in RELATIONS.items()}
        query = write_catalog_query(part.own, values, names, facts)
        tables = self._fill()
        lent = {
            name: self._settings_table(settings) if name == "pg_settings" else tables[name]
            for name in query.relations
        }
        try:
            return _open_finisher().finish(query.sql, lent)
        except BindError as error:
            what = error.message.replace(f"{_ABOVE}: ", "").replace(_ABOVE, "over PostgreSQL's catalogue")
            raise BindError(
                f"this question to PostgreSQL's catalogue is not answered here: {what}",
                hint="SHOW TABLES and SHOW POLICY list the tables and the policy.",
            ) from None

    def _fill(self) -> dict[str, pa.Table]:
        """Return the relations, made again if the policy's tables or the kept results have changed."""
        session = self._session
        listed = [(name, "table") for name in session.policy.tables] + [
            (name, "kept") for name in session.kept
        ]
        described = [(name, kind, tuple(session.columns(name).items())) for name, kind in listed]
        key = tuple(described)
        if key != self._key:
            rows = self._list_rows(described)
            self._tables = {name: _make_table(name, rows.get(name, [])) for name in RELATIONS}
            self._key = key
        return self._tables

    def _list_rows(
        self, described: Sequence[tuple[str, str, tuple[tuple[str, str], ...]]]
    ) -> Mapping[str, list[dict[str, Any]]]:
        """Return the rows of the relations that have some, by their names."""
        rows: dict[str, list[dict[str, Any]]] = {
            "pg_namespace": [
                {"oid": oid, "nspname": name, "nspowner": _OWNER_OID}
                for oid, name in (
                    (_PG_CATALOG_OID, "pg_catalog"),
                    (_PUBLIC_OID, PUBLIC),
                    (_INFORMATION_OID, INFORMATION),
                )
            ],
            "pg_database": [self._describe_database()],
            "pg_roles": [_describe_role(_OWNER_OID, "owner"), _describe_role(_ANALYST_OID, self._analyst)],
            "pg_user": [
                {"usename": self._analyst, "usesysid": _ANALYST_OID, "usesuper": False, "usecreatedb": False}
            ],
            "pg_type": list(_list_types()),
            "pg_am": [{"oid": 2, "amname": "heap", "amtype": "t"}],
            "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER_OID}],
            f"{INFORMATION}_schemata": [
                {"catalog_name": self._database, "schema_name": name, "schema_owner": "owner"}
                for name in ("pg_catalog", PUBLIC, INFORMATION)
            ],
        }
        rows["pg_authid"] = rows["pg_roles"]
        for name, kind, columns in described:
            self._add_table(rows, name, kind, columns)
        for name, oid in CATALOGS.items():
            row = {
                "oid": oid,
                "relname": name,
                "relnamespace": _PG_CATALOG_OID,
                "relkind": "r",
                "relowner": _OWNER_OID,
            }
            rows["pg_class"].append({**row, "relnatts": len(RELATIONS[name])})
        return rows

    def _add_table(
        self, rows: dict[str, list[dict[str, Any]]], name: str, kind: str, columns: Sequence[tuple[str, str]]
    ) -> None:
        oid, where = (
            make_oid(name),
            {"table_catalog": self._database, "table_schema": PUBLIC, "table_name": name},
        )
        table = {
            "oid": oid,
            "relname": name,
            "relnamespace": _PUBLIC_OID,
            "relkind": "r",
            "relowner": _OWNER_OID,
            "relam": 2,
        }
        rows.setdefault("pg_class", []).append({**table, "relnatts": len(columns)})
        rows.setdefault("pg_tables", []).append(
            {"schemaname": PUBLIC, "tablename": name, "tableowner": "owner"}
        )
        rows.setdefault("pg_description", []).append(
            {
                "objoid": oid,
                "classoid": CATALOGS["pg_class"],
                "objsubid": 0,
                "description": self._describe(name, kind),
            }
        )
        tables = rows.setdefault(f"{INFORMATION}_tables", [])
        tables.append({**where, "table_type": "BASE TABLE", "is_insertable_into": "NO", "is_typed": "NO"})
        grant = {
            **where,
            "grantor": "owner",
            "grantee": self._analyst,
            "privilege_type": "SELECT",
            "is_grantable": "NO",
        }
        for view in ("table_privileges", "role_table_grants"):
            rows.setdefault(f"{INFORMATION}_{view}", []).append(grant)
        for place, (column, written) in enumerate(columns, 1):
            found = types.find_sql_type(written)
            rows.setdefault("pg_attribute", []).append(
                {
                    "attrelid": oid,
                    "attname": column,
                    "atttypid": found.kind,
                    "attnum": place,
                    "atttypmod": found.modifier,
                    "attlen": found.name_field(column).size,
                    "attidentity": "",
                    "attgenerated": "",
                    "attislocal": True,
                    "attstattarget": -1,
                    "attstorage": "x" if found.name_field(column).size < 0 else "p",
                }
            )
            rows.setdefault(f"{INFORMATION}_columns", []).append(
                {
                    **where,
                    "column_name": column,
                    "ordinal_position": place,
                    "is_nullable": "YES",
                    "is_updatable": "NO",
                    "data_type": "ARRAY" if found.spoken.endswith("[]") else found.spoken.partition("(")[0],
                    "udt_catalog": self._database,
                    "udt_schema": "pg_catalog",
                    "udt_name": _name_type(found.kind),
                    "is_identity": "NO",
                    "is_generated": "NEVER",
                    **_describe_digits(found),
                }
            )

    def _describe(self, name: str, kind: str) -> str:
        if kind == "kept":
            return "a kept result: public"
        table = self._session.policy.tables[name]
        return (
            "public" if table.public else f"private: aggregates alone; the privacy unit is {table.unit_text}"
        )

    def _describe_database(self) -> dict[str, Any]:
        named = {
            "oid": _DATABASE_OID,
            "datname": self._database,
            "datdba": _OWNER_OID,
            "datcollate": "C",
            "datctype": "C",
        }
        return {
            **named,
            "encoding": 6,
            "datallowconn": True,
            "datconnlimit": -1,
            "dattablespace": 1663,
            "datlocprovider": "c",
        }

    def _settings_table(self, settings: ClientSettings) -> pa.Table:
        rows = [
            {"name": name, "setting": value, "context": "user", "vartype": "string"}
            for name, value in settings.list()
        ]
        return _make_table("pg_settings", rows)


def _describe_role(oid: int, name: str) -> dict[str, Any]:
    return {"oid": oid, "rolname": name, "rolcanlogin": True, "rolinherit": True, "rolconnlimit": -1}


def _describe_digits(found: types.PgType) -> dict[str, Any]:
    """Return what the information schema says of a numeric type."""
    if found.kind == types.NUMERIC and found.modifier >= 0:
        width, scale = divmod(found.modifier - 4, 1 << 16)
        return {"numeric_precision": width, "numeric_scale": scale, "numeric_precision_radix": 10}
    bits = {types.INT2: 16, types.INT4: 32, types.INT8: 64, types.FLOAT4: 24, types.FLOAT8: 53}.get(
        found.kind
    )
    return {} if bits is None else {"numeric_precision": bits, "numeric_precision_radix": 2}


def _name_type(kind: int) -> str:
    item = next((item for item, array in types.ARRAYS.items() if array == kind), None)
    return types.NAMES[kind] if item is None else f"_{types.NAMES[item]}"


def _list_types() -> Iterator[dict[str, Any]]:
    """Yield the rows of ``pg_type``: our types and their arrays."""
    numbers = {types.INT2, types.INT4, types.INT8, types.FLOAT4, types.FLOAT8, types.NUMERIC, types.OID}
    times = {types.DATE, types.TIME, types.TIMESTAMP, types.TIMESTAMPTZ}
    for kind, name in types.NAMES.items():
        category = "N" if kind in numbers else "D" if kind in times else "B" if kind == types.BOOL else "S"
        found = types.PgType(kind)
        common = {
            "typnamespace": _PG_CATALOG_OID,
            "typowner": _OWNER_OID,
            "typtype": "b",
            "typdelim": ",",
            "typisdefined": True,
        }
        array = types.ARRAYS.get(kind, 0)
        size = found.name_field("").size
        yield {
            **common,
            "oid": kind,
            "typname": name,
            "typlen": size,
            "typcategory": category,
            "typarray": array,
            "typelem": 0,
            "dpsql_spoken": found.spoken,
            "typinput": f"{name}in",
        }
        if array:
            yield {
                **common,
                "oid": array,
                "typname": f"_{name}",
                "typlen": -1,
                "typcategory": "A",
                "typarray": 0,
                "typelem": kind,
                "dpsql_spoken": f"{found.spoken}[]",
                "typinput": "array_in",
            }


_DEFAULTS: dict[str, Any] = {"i": 0, "b": False}


def _make_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return a relation; columns missing in ``rows`` are 0, false or NULL."""
    columns = RELATIONS[name]
    made = {}
    for column, kind in columns.items():
        values = [row.get(column, _default(name, column, kind)) for row in rows]
        made[column] = pa.array(values, _ARROW[kind])
    return pa.table(made)


def _default(relation: str, column: str, kind: str) -> Any:
    if column == "tableoid":
        return CATALOGS.get(relation, 0)
    if column == "relpersistence":
        return "p"
    if column == "relreplident":
        return "d"
    if relation.startswith(INFORMATION) or column in ("relpartbound", "rolvaliduntil"):
        return None
    return _DEFAULTS.get(kind)
