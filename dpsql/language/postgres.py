"""The parts of a PostgreSQL client's text: dpsql statements, COPY and cursors of one, session commands, catalogue queries.

Nothing is answered here. Parts keep their positions in the text, so an error's caret points into the client's text.

Queries of PostgreSQL's catalogue as DuckDB SQL over relations of these names.

A query is parsed as by PostgreSQL. Its relations must be the catalogue's, its parameters become literals, and functions
about the session and the catalogue become constants and look-ups. The result is ordinary public SQL, under the same
list of functions.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.option_names import SHOW_WORDS
from dpsql.errors import BindError, Error, ParseError
from dpsql.language.parameters import make_literal
from dpsql.language.tokens import split_arguments, tokenize
from dpsql.late_dataclass import dataclass

INFORMATION = "information_schema"
_HINT = "SHOW TABLES and SHOW POLICY say what there is."
_NO_TEXT = (
    "pg_get_expr pg_get_viewdef pg_get_indexdef pg_get_constraintdef pg_get_triggerdef pg_get_ruledef pg_get_functiondef "
    "pg_get_function_result pg_get_function_arguments pg_get_function_identity_arguments pg_get_partkeydef "
    "pg_get_partition_constraintdef pg_get_statisticsobjdef_columns pg_get_serial_sequence pg_tablespace_location "
    "shobj_description inet_server_addr inet_client_addr pg_size_pretty pg_get_statisticsobjdef "
    "pg_relation_filepath pg_describe_object"
)
_NO_NUMBER = (
    "pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size "
    "pg_stat_get_numscans inet_server_port inet_client_port age pg_sequence_last_value pg_partition_root"
)
_TRUE = (
    "pg_table_is_visible pg_type_is_visible pg_function_is_visible pg_has_role pg_collation_is_visible "
    "pg_opclass_is_visible pg_operator_is_visible pg_statistics_obj_is_visible"
)
_FALSE = (
    "pg_is_other_temp_schema pg_is_in_recovery pg_relation_is_publishable row_security_active pg_relation_is_updatable "
    "pg_column_is_updatable"
)
_OWNER = "'owner'"
_TEMPLATES = {
    **dict.fromkeys(_NO_TEXT.split(), "CAST(NULL AS VARCHAR)"),
    **dict.fromkeys(_NO_NUMBER.split(), "CAST(NULL AS BIGINT)"),
    **dict.fromkeys(_TRUE.split(), "TRUE"),
    **dict.fromkeys(_FALSE.split(), "FALSE"),
    "pg_get_userbyid": _OWNER,
    "pg_encoding_to_char": "'UTF8'",
    "pg_char_to_encoding": "6",
    "pg_backend_pid": "0",
    "pg_my_temp_schema": "0",
    "txid_current": "1",
    "pg_postmaster_start_time": "CAST(NULL AS TIMESTAMP)",
    "pg_options_to_table": "NULL",
    "quote_ident": "_1",
    **dict.fromkeys(
        ("quote_literal", "quote_nullable"), "chr(39) || replace(_1, chr(39), chr(39) || chr(39)) || chr(39)"
    ),
    "pg_advisory_unlock_all": "''",
    "format_type": (
        "CASE WHEN _1 = 1700 AND _2 >= 4 THEN 'numeric(' || ((_2 - 4) // 65536) || ',' || ((_2 - 4) % 65536) || ')' "
        # One map for all rows, since a join would reorder them, which psql's \gdesc shows.
        "ELSE (SELECT map_from_entries(list((dpsql_f.oid, dpsql_f.dpsql_spoken))) FROM pg_type AS dpsql_f)[_1] END"
    ),
    "obj_description": (
        "(SELECT max(dpsql_d.description) FROM pg_description AS dpsql_d WHERE dpsql_d.objoid = _1 AND dpsql_d.objsubid = 0)"
    ),
    "col_description": (
        "(SELECT max(dpsql_d.description) FROM pg_description AS dpsql_d WHERE dpsql_d.objoid = _1 AND dpsql_d.objsubid = _2)"
    ),
    "to_regclass": "(SELECT max(dpsql_c.oid) FROM pg_class AS dpsql_c WHERE dpsql_c.relname = _1)",
    "to_regtype": (
        "(SELECT max(dpsql_t.oid) FROM pg_type AS dpsql_t WHERE dpsql_t.typname = lower(_1) OR dpsql_t.dpsql_spoken = lower(_1))"
    ),
    "to_regproc": "(SELECT max(dpsql_p.oid) FROM pg_proc AS dpsql_p WHERE dpsql_p.proname = _1)",
    "to_regnamespace": "(SELECT max(dpsql_n.oid) FROM pg_namespace AS dpsql_n WHERE dpsql_n.nspname = _1)",
    "json_build_object": "json_object()",
    "jsonb_build_object": "json_object()",
    "json_agg": "json_group_array(_1)",
    "jsonb_agg": "json_group_array(_1)",
    "array_upper": "array_length(_1)",
    "array_lower": "1",
    "generate_subscripts": "unnest(range(1, array_length(_1) + 1))",
    "regexp_split_to_table": "unnest(regexp_split_to_array(_1, _2))",
    "_pg_expandarray": "CAST(NULL AS STRUCT(x BIGINT, n BIGINT))",
}
_SCHEMA = r"^.*[.]"
_VERBS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
"""Words that PostgreSQL takes for names after AS and a dot."""
_ALL_ARGUMENTS = frozenset({"json_build_object", "jsonb_build_object"})
_NAMES_OF = {
    "REGCLASS": "(SELECT max(dpsql_c.relname) FROM pg_class AS dpsql_c WHERE dpsql_c.oid = _1)",
    "REGTYPE": "(SELECT max(dpsql_t.dpsql_spoken) FROM pg_type AS dpsql_t WHERE dpsql_t.oid = _1)",
    "REGNAMESPACE": "(SELECT max(dpsql_n.nspname) FROM pg_namespace AS dpsql_n WHERE dpsql_n.oid = _1)",
    "REGROLE": _OWNER,
    "REGPROC": "'-'",
    "REGPROCEDURE": "'-'",
}
_NUMBERS_OF = {"REGCLASS": "to_regclass", "REGTYPE": "to_regtype", "REGNAMESPACE": "to_regnamespace"}
_TEXTS = (
    "NAME CHAR TEXT XID CSTRING ACLITEM SQL_IDENTIFIER CHARACTER_DATA YES_OR_NO PG_NODE_TREE REGCONFIG PG_LSN"
)
_TYPES = dict.fromkeys((*_TEXTS.split(), "INFORMATION_SCHEMA.SQL_IDENTIFIER"), "VARCHAR")
_TYPES |= {"OID": "BIGINT", "INT2VECTOR": "BIGINT[]", "OIDVECTOR": "BIGINT[]", "CARDINAL_NUMBER": "INTEGER"}
_PRIVILEGES = ("SELECT", "USAGE", "CONNECT")
_OPERATORS: dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]] = {
    "~": lambda a, b: exp.Anonymous(this="regexp_matches", expressions=[a, b]),
    "~*": lambda a, b: exp.Anonymous(this="regexp_matches", expressions=[a, b, exp.Literal.string("i")]),
    "!~": lambda a, b: exp.Not(this=exp.Anonymous(this="regexp_matches", expressions=[a, b])),
    "!~*": lambda a, b: exp.Not(
        this=exp.Anonymous(this="regexp_matches", expressions=[a, b, exp.Literal.string("i")])
    ),
    "=": lambda a, b: exp.EQ(this=a, expression=b),
    "<>": lambda a, b: exp.NEQ(this=a, expression=b),
    "~~": lambda a, b: exp.Like(this=a, expression=b),
    "!~~": lambda a, b: exp.Not(this=exp.Like(this=a, expression=b)),
    "||": lambda a, b: exp.DPipe(this=a, expression=b),
}


@dataclass(frozen=True)
class SessionFacts:
    """The public facts about a session: the analyst, the database, the version, and its settings."""

    analyst: str
    database: str
    version: str
    setting: Callable[[str], str | None]
    change: Callable[[str, str], None]

    def find(self, name: str) -> exp.Expr | None:
        """Return the value of a function without relevant arguments; None for any other."""
        known = {"version": self.version, "current_schema": "public"}
        known |= dict.fromkeys(("current_database", "current_catalog"), self.database)
        known |= dict.fromkeys(("current_user", "session_user", "user", "current_role"), self.analyst)
        if name == "current_schemas":
            return exp.array(exp.Literal.string("pg_catalog"), exp.Literal.string("public"))
        return exp.Literal.string(known[name]) if name in known else None


@dataclass(frozen=True)
class CatalogQuery:
    """A catalogue query as DuckDB SQL, and its relations."""

    sql: str
    relations: tuple[str, ...]


def _list_parameters(tree: exp.Expr) -> list[exp.Expr]:
    return [node for node in tree.find_all(exp.Parameter) if node.name.isdigit()]


def write_catalog_query(
    text: str, values: Sequence[object], relations: Mapping[str, Collection[str]], facts: SessionFacts
) -> CatalogQuery:
    """Translate a catalogue query to DuckDB SQL.

    ``relations``: the catalogue's column names by relation; the information schema's relations have its name as a prefix.

    Raises:
        ParseError, BindError: it can't be answered.
    """
    tree = _parse(text)
    for node in _list_parameters(tree):
        number = int(node.name)
        if not 1 <= number <= len(values):
            raise BindError(f"the parameter ${number} has no value.")
        node.replace(_make_value(values[number - 1], number))
    _name_outputs(tree)
    tree = exp.Paren(this=tree)  # so that each node can be replaced
    read = _name_relations(tree, relations)
    _drop_collations(tree)
    _number_groups(tree)
    _write_operators(tree)
    _write_calls(tree, facts)
    _write_casts(tree)
    _write_lists(tree)
    read |= {name for table in tree.find_all(exp.Table) if (name := table.name) in relations}
    sql = tree.this.sql("duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE)
    return CatalogQuery(sql, tuple(sorted(read)))


def _parse(text: str) -> exp.Expr:
    """Parse one query as PostgreSQL does, and drop ``pg_catalog.`` qualifiers."""
    signs = list(text)
    tokens = tokenize(text)
    for schema, dot in itertools.pairwise(tokens):
        if schema.text.lower() == "pg_catalog" and dot.text == ".":
            signs[schema.start : dot.end + 1] = " " * (dot.end + 1 - schema.start)
        if schema.text.upper() in ("AS", ".") and text[dot.start : dot.end + 1].upper() in _VERBS:  # a name
            signs[dot.start], signs[dot.end] = f'"{signs[dot.start]}', f'{signs[dot.end]}"'
    for word, opening, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opening.text + closing.text == "[]" and word.text.lower().startswith(("reg", "oid", "name")):
            plain = "int" if word.text.lower() == "oid" else "text"
            signs[word.start : word.end + 1] = plain.ljust(word.end + 1 - word.start)
        if word.text.lower() == "pg_get_keywords" and opening.text + closing.text == "()":
            signs[opening.start : closing.end + 1] = " " * (closing.end + 1 - opening.start)
    try:
        found = sqlglot.parse("".join(signs), read="postgres")
    except (SqlglotError, RecursionError):
        raise ParseError("this question to PostgreSQL's catalogue is not understood.", hint=_HINT) from None
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise ParseError("only queries are answered here.", hint=_HINT)
    return found[0]


def _make_value(value: object, number: int) -> exp.Expr:
    if isinstance(value, list):
        return exp.array(*(make_literal(item, str(number)) for item in value))
    return make_literal(value, str(number))


def _name_relations(tree: exp.Expr, relations: Mapping[str, Collection[str]]) -> set[str]:
    """Replace tables' names by the catalogue's, and return these; BindError for an unknown relation."""
    known = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    read = set()
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            continue
        schema, name = table.db.lower(), table.name.lower()
        if not schema and name in known:
            continue
        whole = f"{INFORMATION}_{name}" if schema == INFORMATION else name
        if schema not in ("", INFORMATION) or whole not in relations:
            what = f"{schema}.{name}" if schema else name
            raise BindError(f"the catalogue that is shown here has no {what[:80]}.", hint=_HINT)
        read.add(whole)
        alias = table.args.get("alias")
        columns = alias.args.get("columns") if alias is not None else None
        named = exp.TableAlias(this=exp.to_identifier(table.alias or name), columns=columns)
        made = exp.Table(this=exp.to_identifier(whole), alias=named)
        for key in ("joins", "laterals", "pivots"):
            if table.args.get(key):
                made.set(key, table.args[key])
        table.replace(made)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    return read


def _name_outputs(tree: exp.Expr) -> None:
    """Name the answer's columns as PostgreSQL does: by column, function or type."""
    for select in [tree, *tree.find_all(exp.Subquery, exp.CTE)]:
        first = select if isinstance(select, exp.Select) else select.this
        for item in list(first.expressions) if isinstance(first, exp.Select) else ():
            if not isinstance(item, exp.Alias | exp.Column | exp.Star | exp.Subquery):
                item.replace(exp.alias_(item.copy(), _name_output(item), quoted=True))


def _name_output(node: exp.Expr) -> str:
    if isinstance(node, exp.GenerateSeries | exp.ExplodingGenerateSeries):
        return "generate_series"
    while isinstance(node, exp.Cast | exp.Paren | exp.Collate):
        if isinstance(node.this, exp.Literal | exp.Query):
            break
        node = node.this
    if isinstance(node, exp.Dot):
        node = node.expression
    if isinstance(node, exp.Window):
        node = node.this
    if isinstance(node, exp.Explode):
        return "unnest"
    if isinstance(node, exp.Cast):
        return _name_type(node.args["to"]).lower()
    if isinstance(node, exp.Column | exp.Identifier):
        return node.name
    if isinstance(node, exp.Case):
        return "case"
    if isinstance(node, exp.Anonymous) or type(node) in _KEYWORDS:
        return _name_call(node)
    return node.sql_name().lower() if isinstance(node, exp.Func) else "?column?"


def _drop_collations(tree: exp.Expr) -> None:
    for node in list(tree.find_all(exp.Collate)):
        node.replace(node.this)
    for string in list(tree.find_all(exp.ByteString)):
        string.replace(exp.Literal.string(string.name))
    for select in tree.find_all(exp.Select):
        select.set("locks", None)


def _number_groups(tree: exp.Expr) -> None:
    """Group by the position of an output whose name is a relation's, too: DuckDB would group by the relation's rows."""
    for select in tree.find_all(exp.Select):
        group, outputs = select.args.get("group"), [item.alias for item in select.expressions]
        sources = [select.args.get("from_"), *select.args.get("joins", ())]
        relations = {source.this.alias_or_name for source in sources if source is not None}
        for item in list(group.expressions) if group is not None else ():
            if isinstance(item, exp.Column) and not item.table and item.name in relations & {*outputs}:
                item.replace(exp.Literal.number(outputs.index(item.name) + 1))


_FUNCTION_COLUMNS = ("typinput", "typoutput", "typreceive", "typsend")


def _write_operators(tree: exp.Expr) -> None:
    # the relation has names of functions in place of numbers
    for compared in list(tree.find_all(exp.EQ, exp.NEQ)):
        for side, other in ((compared.this, compared.expression), (compared.expression, compared.this)):
            if side.name.lower() not in _FUNCTION_COLUMNS:
                continue
            if other.name == "0":
                other.replace(exp.Literal.string("-"))
            elif isinstance(other, exp.Column):
                side.replace(_fill_template(_TEMPLATES["to_regproc"], [side]))
    while (named := tree.find(exp.Operator)) is not None:
        made = _OPERATORS.get(str(named.args["operator"]).split(".")[-1].strip())
        if made is None:
            raise BindError("this operator is not known to the catalogue that is shown here.")
        named.replace(made(named.this, named.expression))
    kinds: tuple[tuple[type[exp.Expr], str], ...] = ((exp.RegexpLike, "~"), (exp.RegexpILike, "~*"))
    for kind, sign in kinds:
        for node in list(tree.find_all(kind)):
            node.replace(_OPERATORS[sign](node.this, node.expression))


_KEYWORDS: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentDatabase: "current_database",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentVersion: "version",
    exp.CurrentSchemas: "current_schemas",
}


def _name_call(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return _KEYWORDS.get(type(node), "")


def _write_calls(tree: exp.Expr, facts: SessionFacts) -> None:
    """Replace functions about the session and the catalogue by constants and look-ups, innermost first."""
    for called in list(tree.find_all(exp.Format)):
        called.replace(_write_format(called))
    calls = list(tree.find_all(exp.Anonymous, *_KEYWORDS))
    for node in reversed(calls):
        name = _name_call(node)
        made = facts.find(name) or _write_call(name, list(node.expressions), facts)
        if made is None:
            continue
        place = node.parent if isinstance(node.parent, exp.Dot) else node
        source = place.parent
        if isinstance(source, exp.Table) and source.this is place:  # a function in FROM
            _put_row(source, made, name)
            continue
        (place if isinstance(place, exp.Dot) and place.expression is node else node).replace(made)
    for column in [c for c in tree.find_all(exp.Column) if not c.table and not c.this.args.get("quoted")]:
        if column.name.lower() in ("user", "session_user", "current_role"):
            column.replace(exp.Literal.string(facts.analyst))
    for table in [t for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Func)]:
        name = _name_output(table.this)
        if name in ("generate_series", "unnest"):
            if table.alias and not table.alias_column_names:  # its one column has this name, too
                table.args["alias"].set("columns", [exp.to_identifier(table.alias)])
        else:
            _put_row(table, table.this, name)
    for dot in list(tree.find_all(exp.Dot)):
        if isinstance(dot.this, exp.Identifier) and isinstance(dot.expression, exp.Func):
            dot.replace(dot.expression)


def _write_format(node: exp.Expr) -> exp.Expr:
    """Translate ``format('%I.%s', a, b)``; names need no quotes here."""
    given = list(node.expressions)
    parts = re.split(r"%([sIL%])", node.name)
    signs = parts[1::2]
    if not (isinstance(node.this, exp.Literal) and len([s for s in signs if s != "%"]) == len(given)):
        raise BindError("format takes a literal, and a value for each of its signs.")
    made: list[exp.Expr] = [exp.Literal.string(parts[0])]
    for sign, rest in zip(signs, parts[2::2], strict=True):
        value = exp.Literal.string("%") if sign == "%" else exp.cast(given.pop(0).copy(), "text")
        made += [_fill_template(_TEMPLATES["quote_literal"], [value]) if sign == "L" else value]
        made += [exp.Literal.string(rest)] if rest else []
    return exp.Paren(this=functools.reduce(lambda a, b: exp.DPipe(this=a, expression=b), made))


def _put_row(table: exp.Expr, value: exp.Expr, name: str) -> None:
    alias = table.alias or name
    row = exp.Select(expressions=[exp.alias_(value, alias)])
    table.replace(exp.Subquery(this=row, alias=exp.TableAlias(this=exp.to_identifier(alias))))


def _write_call(name: str, given: list[exp.Expr], facts: SessionFacts) -> exp.Expr | None:
    if name.startswith("has_") and name.endswith("_privilege"):
        wanted = given[-1].name.upper() if given else ""
        return exp.Boolean(this=all(word.strip() in _PRIVILEGES for word in wanted.split(",")))
    if name in ("current_setting", "set_config"):
        return _write_setting(name, given, facts)
    template = _TEMPLATES.get(name)
    if template is None:
        return None
    if name in _ALL_ARGUMENTS:
        return exp.Anonymous(this="json_object", expressions=given)
    return _fill_template(template, given)


def _fill_template(template: str, given: Sequence[exp.Expr]) -> exp.Expr:
    made = exp.Paren(this=sqlglot.parse_one(template, read="duckdb"))
    for column in list(made.find_all(exp.Column)):
        if column.name in ("_1", "_2") and not column.table:
            place = int(column.name[1]) - 1
            column.replace(given[place].copy() if place < len(given) else exp.Null())
    return made


def _write_setting(name: str, given: Sequence[exp.Expr], facts: SessionFacts) -> exp.Expr:
    given = [item.this if isinstance(item, exp.Cast) else item for item in given]
    if not given or not all(isinstance(item, exp.Literal | exp.Boolean | exp.Null) for item in given[:2]):
        raise BindError(f"{name} takes literals here.")
    setting = given[0].name
    if name == "set_config" and len(given) > 1:
        facts.change(setting, given[1].name)
    found = facts.setting(setting)
    if found is None and len(given) < 2:
        raise BindError(f"there is no setting {setting[:60]}.", hint="SHOW ALL lists the settings.")
    return exp.Null() if found is None else exp.Literal.string(found)


def _write_casts(tree: exp.Expr) -> None:
    """Translate casts to PostgreSQL's own types: ``regclass`` and similar to numbers or names, others to ours."""
    for node in reversed(list(tree.find_all(exp.Cast))):
        kind = _name_type(node.args["to"])
        if kind in _NAMES_OF:
            node.replace(_write_registered(node, kind))
        elif kind.removesuffix("[]") in _TYPES:
            ours = _TYPES[kind.removesuffix("[]")] + ("[]" if kind.endswith("[]") else "")
            inside = node.this
            node.set("to", exp.DataType.build(ours, dialect="duckdb"))
            node.set("this", inside)


def _name_type(kind: exp.Expr) -> str:
    written = kind.sql("postgres").upper().replace('"', "").removeprefix("PG_CATALOG.")
    return written.split("(")[0]


def _write_registered(node: exp.Cast, kind: str) -> exp.Expr:
    """Translate ``x::regclass``: a name to its number; a number to the name if it is shown, to itself if compared."""
    inside = node.this.this if isinstance(node.this, exp.Paren) else node.this
    text = isinstance(inside, exp.Literal) and inside.is_string
    if text and not inside.name.isdigit() and kind in _NUMBERS_OF:
        name = inside.name.rpartition(".")[2].strip('"')
        if isinstance(node.parent, exp.Alias):  # shown, by its name
            return exp.Literal.string(name)
        return _fill_template(_TEMPLATES[_NUMBERS_OF[kind]], [exp.Literal.string(name)])
    if text and kind in ("REGPROC", "REGPROCEDURE"):
        return exp.Literal.string(inside.name.removeprefix("pg_catalog."))
    if text:
        inside = exp.cast(inside.copy(), "BIGINT", dialect="duckdb")
    elif kind in _NUMBERS_OF and isinstance(inside, exp.DPipe | exp.Concat):  # a name that is put together
        last = exp.Anonymous(
            this="regexp_replace", expressions=[inside.copy(), *map(exp.Literal.string, (_SCHEMA, ""))]
        )
        inside = _fill_template(_TEMPLATES[_NUMBERS_OF[kind]], [last])
    parent = node.parent
    joined = isinstance(parent, exp.DPipe | exp.Dot)
    compared = isinstance(parent, exp.Binary | exp.In | exp.Paren | exp.Any) and not joined
    to_number = isinstance(parent, exp.Cast) and _name_type(parent.args["to"]) in ("OID", "BIGINT", "INT")
    if compared or to_number:
        return exp.cast(inside.copy(), "BIGINT", dialect="duckdb")
    return _fill_template(_NAMES_OF[kind], [inside])


def _write_lists(tree: exp.Expr) -> None:
    """Translate ``'{a,b}'`` to a list in ``ANY`` and in casts to lists."""
    for node in list(tree.find_all(exp.Any, exp.All, exp.Cast)):
        if isinstance(node, exp.Cast) and not node.args["to"].is_type("array"):
            continue
        inside = node.this.this if isinstance(node.this, exp.Paren) else node.this
        inside = inside.this if isinstance(inside, exp.Cast) else inside
        if isinstance(inside, exp.Literal) and inside.is_string and inside.name[:1] == "{":
            items = [item.strip().strip('"') for item in inside.name.strip("{}").split(",") if item.strip()]
            inside.replace(exp.array(*(exp.Literal.string(item) for item in items)))


PartKind = Literal["query", "command", "catalog", "copy", "declare", "fetch", "prepare", "execute"]
PUBLIC = "public"
"""The schema of all tables of a policy, as shown to PostgreSQL's clients."""
_CATALOGS = ("pg_catalog", "information_schema")
_SESSION = (
    "SET RESET BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE DISCARD DEALLOCATE LISTEN UNLISTEN"
)
_COMMANDS = frozenset(_SESSION.split())
_CALLED = """
version current_schema current_schemas current_database current_setting set_config to_regtype to_regclass format_type
obj_description col_description shobj_description has_table_privilege has_schema_privilege has_database_privilege
has_any_column_privilege has_column_privilege txid_current inet_server_addr inet_server_port quote_ident quote_literal
quote_nullable
"""
_CATALOG_CALLS = frozenset(_CALLED.split())
_CATALOG_WORDS = ("current_user", "session_user", "current_role", "current_catalog", "current_schema")


@dataclass(frozen=True)
class TextPart:
    """Part of a client's text: statements of dpsql, one command, one catalogue query, or a COPY or a cursor of one query.

    ``text`` is the whole text up to its end, with blanks before its start. ``words`` are those of a command, the options of a
    COPY, or the name of a cursor with the number of rows to fetch; quoted texts are without their quotes.
    """

    kind: PartKind
    text: str
    start: int
    end: int
    words: tuple[str, ...] = ()
    count: int = 1
    """The number of statements in it."""

    @property
    def own(self) -> str:
        """The part's own text."""
        return self.text[self.start : self.end]


def split_parts(text: str, tables: Collection[str], database: str = "") -> list[TextPart]:
    """Return the parts of a client's text, in order; adjacent dpsql statements are one part.

    ``tables`` are the lower-case names of the policy's tables and of kept results; ``database`` may precede their schema.

    >>> [(part.kind, part.own) for part in split_parts("SET a = 1; SELECT COUNT(*) FROM public.visits", {"visits"})]
    [('command', 'SET a = 1'), ('query', 'SELECT COUNT(*) FROM        visits')]
    """
    try:
        tokens = tokenize(text)
    except Error:
        return [TextPart("query", text, 0, len(text))] if text.strip() else []
    found: list[TextPart] = []
    shown = _hide_schema(text, tokens, tables, database)
    for ends, group in groupby(tokens, lambda token: token.token_type == TokenType.SEMICOLON):
        if ends:
            continue
        part = list(group)
        kind, start, end, count = _find_kind(part, tables), part[0].start, part[-1].end + 1, 1
        words = tuple(token.text for token in part)
        if kind == "fetch":  # the tokenizer has the rest as one text
            words = tuple(token.text for token in tokenize(" ".join(words[1:])))
        if kind in _SPLITTERS:
            part, words = _SPLITTERS[kind](part)
            start, end = part[0].start, part[-1].end + 1
            if part[0].token_type == TokenType.COPY:  # of a table, which is the query FROM table
                shown = f"{shown[:start]}FROM{shown[start + 4 :]}"
        if kind == "query" and found and found[-1].kind == "query":
            start, count = found[-1].start, found.pop().count + 1
        hidden = text if kind in ("command", "catalog", "prepare", "execute") else shown
        found.append(TextPart(kind, _blank(hidden, start, end), start, end, words, count))
    return found


_COMPARISONS = frozenset({"=", "<", ">", "<=", ">=", "<>", "!="})
_BEFORE_COLUMN = frozenset({"WHERE", "AND", "OR", "NOT", "(", "ON", "HAVING", "WHEN", ","})
_BEHIND_VALUE = frozenset(
    {")", "AND", "OR", "THEN", ";", ",", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "QUALIFY", ""}
)


def suggest_types(text: str, columns: Mapping[str, str]) -> dict[int, str]:
    """Return the types of the parameters ``$1`` ... that are cast, limit rows, or are compared with a column.

    Args:
        text: a client's text.
        columns: SQL types by folded names; an alias of the same name hides a column.

    Returns:
        Types as the text or the column has them. Parameters of other expressions are missing.

    >>> suggest_types("SELECT 1 WHERE t.a = ANY($2) AND d >= $1 AND d + 1 < $4 LIMIT $3", {"a": "VARCHAR", "d": "DATE"})
    {2: 'VARCHAR[]', 1: 'DATE', 3: 'BIGINT'}
    >>> suggest_types("SELECT a FROM t WHERE d < $1 GROUP BY a", {"d": "DATE"})
    {1: 'DATE'}
    """
    try:
        tokens = tokenize(text)
    except Error:
        return {}
    words = ["", "", "", "", *(token.text.upper() for token in tokens), "", "", ""]
    named = {name.lower() for word, name in itertools.pairwise(words) if word == "AS"}
    columns = {name: kind for name, kind in columns.items() if name not in named}
    found: dict[int, str] = {}
    for at, (sign, number) in enumerate(itertools.pairwise(words)):
        if sign == "$" and number.isdigit() and (kind := _suggest_type(words, at, columns)):
            found.setdefault(int(number), kind)
    return found


def _suggest_type(words: Sequence[str], at: int, columns: Mapping[str, str]) -> str:
    """Return the type of the parameter whose ``$`` is the word ``at``; empty if it can't be told."""
    if words[at + 2] == "::" or (words[at - 2] == "CAST" and words[at + 2] == "AS"):
        at += 2 * (words[at + 3 : at + 5] == ["PG_CATALOG", "."])
        if words[at + 3].startswith("_"):  # the array's own name
            return f"{words[at + 3][1:]}[]"
        return words[at + 3] + ("TZ" if words[at + 4] == "WITH" else "[]" if words[at + 4] == "[" else "")
    before, many = at - 1, ""
    if words[before] in ("LIMIT", "OFFSET"):
        return "BIGINT"
    while words[before] == "," and words[before - 2] == "$":  # in a list
        before -= 3
    if words[before] == "AND" and words[before - 2] == "$" and words[before - 3] == "BETWEEN":
        before -= 3
    if words[before] == "(" and words[before - 1] in ("ANY", "ALL", "IN"):
        before -= 1
        many = "" if words[before] == "IN" else "[]"
        before -= 1 if many else 0
    if words[before] not in _COMPARISONS | {"IN", "BETWEEN"}:
        return ""
    start = before - 2 if words[before - 1] == "NOT" else before - 1
    name = words[start].lower()
    while words[start - 1] == ".":
        start -= 2
    behind = words[at + 3] if many else words[at + 2]
    told = words[start - 1] in _BEFORE_COLUMN and behind in _BEHIND_VALUE
    kind = columns.get(name, "") if told else ""
    return f"{kind}{many}" if kind or not many else "VARCHAR[]"


def _blank(text: str, start: int, end: int) -> str:
    """Return a text up to ``end`` with blanks before ``start``; line breaks are kept."""
    return "".join(sign if sign == "\n" else " " for sign in text[:start]) + text[start:end]


def _hide_schema(text: str, tokens: Sequence[Token], tables: Collection[str], database: str) -> str:
    """Blank out ``public.`` and the database before a table's name: tables have no schema in dpsql."""
    signs = list(text)
    for place, (schema, dot, name) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if dot.token_type == TokenType.DOT and schema.text.lower() == PUBLIC and name.text.lower() in tables:
            first, before = schema.start, [token.text.lower() for token in tokens[max(0, place - 2) : place]]
            if before == [database.lower(), "."]:
                first = tokens[place - 2].start
            signs[first : dot.end + 1] = " " * (dot.end + 1 - first)
    return "".join(signs)


def _find_kind(tokens: Sequence[Token], tables: Collection[str]) -> PartKind:
    word = tokens[0].text.upper()
    if word in _COMMANDS or (word == "CLOSE" and len(tokens) == 2 and tokens[1].text.upper() == "ALL"):
        return "command"
    for kind, split in _SPLITTERS.items():
        if split(tokens)[0]:
            return kind
    if word in ("FETCH", "EXECUTE"):
        return "fetch" if word == "FETCH" else "execute"
    if word == "SHOW":
        return "query" if len(tokens) > 1 and tokens[1].text.upper() in SHOW_WORDS else "command"
    return "catalog" if _asks_catalog(tokens, tables) else "query"


def _split_copy(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """Return the query and the options of ``COPY (query) TO STDOUT options``; for a table, ``COPY name`` in place of the query.

    There are no tokens if it is another statement.
    """
    words = [token.text.upper() for token in tokens]
    ends = [at for at, pair in enumerate(itertools.pairwise(words)) if pair == ("TO", "STDOUT")]
    if words[:1] == ["COPY"] and ends in ([2], [4], [6]) and {*words[2 : ends[0] : 2]} <= {"."}:
        return list(tokens[: ends[0]]), tuple(words[ends[0] + 2 :])
    if words[:2] != ["COPY", "("] or not ends or words[ends[-1] - 1] != ")" or ends[-1] < 4:
        return [], ()
    return list(tokens[2 : ends[-1] - 1]), tuple(words[ends[-1] + 2 :])


def _split_declare(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """Return the query and the name of ``DECLARE name CURSOR FOR query``; no tokens if it is another statement."""
    words = [token.text.upper() for token in tokens[:12]]
    if words[:1] != ["DECLARE"] or "CURSOR" not in words[2:] or "FOR" not in words or "SCROLL" in words[2:3]:
        return [], ()
    return list(tokens[words.index("FOR") + 1 :]), (tokens[1].text,)


def _split_prepare(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """Return the query of ``PREPARE name (types) AS query``, and its name and types; no tokens if it is another statement."""
    words = [token.text.upper() for token in tokens]
    at = words.index("AS") if "AS" in words[2:] else 0
    if words[:1] != ["PREPARE"] or at < 2 or at + 1 == len(tokens):
        return [], ()
    if at > 2 and (words[2], words[at - 1]) != ("(", ")"):
        return [], ()
    kinds = " ".join(token.text for token in tokens[3 : at - 1]).split(" , ") if at > 4 else []
    return list(tokens[at + 1 :]), (tokens[1].text, *kinds)


_SPLITTERS: dict[PartKind, Callable[[Sequence[Token]], tuple[list[Token], tuple[str, ...]]]] = {
    "copy": _split_copy,
    "declare": _split_declare,
    "prepare": _split_prepare,
}
"""The statements around a query, which is the part's own text."""


def split_execute(text: str) -> tuple[str, list[str]]:
    """Return the name and the arguments of an EXECUTE, as written.

    Raises:
        ParseError: it is none.

    >>> split_execute("EXECUTE counts(30, 'a, b', (1 + 2))")
    ('counts', ['30', "'a, b'", '(1 + 2)'])
    """
    rest = text.strip()[len("EXECUTE") :]
    tokens = tokenize(rest)
    words = [token.text for token in tokens]
    if not words or (len(words) > 1 and (words[1], words[-1]) != ("(", ")")):
        what = "EXECUTE takes the name of a prepared statement and its values."
        raise ParseError(what, hint="EXECUTE p(30)")
    given = split_arguments(tokens[2:-1]) if len(tokens) > 3 else []
    return words[0], [rest[part[0].start : part[-1].end + 1] if part else "" for part in given]


def fill_prepared(query: str, kinds: Sequence[str], given: Sequence[str]) -> str:
    """Return a prepared query with its arguments in place of ``$1``, ...; a quoted text has the type of its parameter.

    Raises:
        BindError: there are more or fewer arguments than parameters.

    >>> fill_prepared("SELECT $1 + $2, $3", ["int", "int", "date"], ["1", "2 * 3", "'2024-02-29'"])
    "SELECT 1 + (2 * 3), CAST('2024-02-29' AS date)"
    """
    pairs = itertools.pairwise(tokenize(query))
    marks = [(sign.start, number) for sign, number in pairs if sign.text == "$" and number.text.isdigit()]
    count = max([len(kinds), *(int(number.text) for _, number in marks)])
    if len(given) != count or any(number.text == "0" for _, number in marks):
        what = f"the prepared statement has {count} parameters, and {len(given)} values came."
        raise BindError(what, sqlstate="42601")
    for start, number in reversed(marks):
        value, kind = given[int(number.text) - 1], dict(enumerate(kinds, 1)).get(int(number.text), "")
        made = f"CAST({value} AS {kind})" if kind and value[:1] == "'" else value
        made = made if len(tokenize(value)) == 1 else f"({value})"
        query = f"{query[:start]}{made}{query[number.end + 1 :]}"
    return query


def _asks_catalog(tokens: Sequence[Token], tables: Collection[str]) -> bool:
    """Return whether a query uses PostgreSQL's catalogue: its schemas, its relations, or functions about the session."""
    calls = reads = False
    for place, token in enumerate(tokens):
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            continue
        name = token.text.lower()
        follows = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        before = tokens[place - 1].token_type if place else None
        if name in _CATALOGS and follows == TokenType.DOT:
            return True
        if name.startswith("pg_") and name not in tables and before != TokenType.ALIAS:
            return True
        if before == TokenType.DCOLON and name.startswith("reg"):
            return True
        reads = reads or (before in (TokenType.FROM, TokenType.JOIN) and name not in _CATALOG_CALLS)
        calls = calls or (name in _CATALOG_CALLS and follows == TokenType.L_PAREN) or name in _CATALOG_WORDS
    return calls and not reads
