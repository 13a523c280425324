"""The normal form of exact queries: unique aliases and qualified columns, so resolving names needs no scoping rules.

Binders and operators write exact queries freely. Before a query is checked and run, it is rewritten:

* every FROM item gets an alias that no other item, column, field or table has;
* every column is ``alias.column``; ``*`` and output names used as values are expanded;
* the privacy unit's column gets an unpredictable name;
* unread columns of derived tables are removed.

Names are resolved by SQL's rules: first in the FROM around an expression, then in the enclosing query. A derived table sees
its siblings only if it is LATERAL. An unknown or ambiguous name is a bug of ours.

For readers, :func:`format_sql` lays a text out: indented, without needless quotes and parentheses; the meaning is unchanged. The
shape of a text is the text without its values, which don't affect names and counts of relations.
"""

from __future__ import annotations

import re
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple, TypeVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError

from dpsql.binding.public_statement import from_items, inner_queries
from dpsql.binding.relations.relation import UNIT, fold
from dpsql.errors import BindError
from dpsql.language.dialect import (
    copy_tree,
    find_nodes,
    join_word,
    list_children,
    list_nodes,
    parse_fragment,
    write_whole,
)
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Join, Query, QueryText, Source, Subquery, Union

_Made = TypeVar("_Made")


class UnresolvedName(Exception):
    """An exact query has an unknown or ambiguous name, which is a bug of ours."""


def normalise(
    sql: str, columns: Mapping[str, Sequence[str]] = {}, reserved: Collection[str] = (), unit: str = UNIT
) -> exp.Expr:
    """Return the tree of an exact query in normal form.

    Args:
        columns: the columns of passed relations, by relation.
        reserved: folded names that aliases must not have: tables, columns and struct fields.
        unit: the new name of the privacy unit's columns.

    Raises:
        UnresolvedName: the query is wrong, whatever the analyst wrote.

    >>> text = "SELECT n FROM (SELECT COUNT(*) AS n, u FROM (SELECT t.a AS u FROM m.s.t AS t) AS s GROUP BY u) AS g"
    >>> write_parameters(normalise(text))
    'SELECT r0.n AS n FROM (SELECT COUNT(*) AS n, r1.u AS u FROM (SELECT r2.a AS u FROM m.s.t AS r2) AS r1 GROUP BY r1.u) AS r0'
    """
    tree = TreeBuilder().build(sql) if isinstance(sql, QueryText) else parse_fragment(sql)
    writer = _Writer(columns, frozenset(reserved), unit)
    writer.query(tree, ChainMap(), {})
    _drop_unread(tree, None)
    return tree


def write_parameters(tree: exp.Expr) -> str:
    """Return the text of a tree; UnsupportedError if it would lack a parameter or another part of the tree."""
    text = write_whole(tree)
    if count_parameters(text) != Counter(n.name for n in list_nodes(tree) if isinstance(n, exp.Placeholder)):
        raise UnsupportedError("a value would be lost")
    return text


def write_by_shape(sql: str, write: Callable[[str], _Made]) -> tuple[_Made, tuple[str, ...]]:
    """Return ``write(shape)`` and the values of a text, or ``write(sql)`` and no values if a value is part of the syntax.

    Raises:
        BindError: DuckDB's generator can't write a part of the text.
    """
    shape, values = strip_values(sql)
    try:
        return write(QueryText.of(sql.query, shape) if isinstance(sql, QueryText) else shape), values
    except (SqlglotError, UnresolvedName):
        pass
    try:
        return write(str(sql)), ()
    except UnsupportedError:
        raise BindError("this can't be written in DuckDB's SQL without losing a part of it.") from None


# -- trees of queries ---------------------------------------------------------------------------------------------------


@dataclass
class TreeBuilder:
    """Builds the tree of a query from its parts: the one that a parser makes of its text without values.

    Only expressions are parsed, each form once: those that differ in values and in numbered names share a tree.
    """

    values: int = 0
    """The values of the fragments so far, in the order of the text."""

    def build(self, shape: QueryText) -> exp.Expr:
        """Return the tree of a query whose text without values is ``shape``."""
        tree = self.query(shape.query)
        return tree if self.values == shape.count("$value") else parse_fragment(shape)

    def query(self, query: Query | str) -> exp.Expr:
        """Return the tree of a query."""
        if isinstance(query, QueryText):
            return self.query(query.query)
        if isinstance(query, str):
            (tree,) = self.fragment("", query)
            return tree
        if isinstance(query, Union):
            whole, *others = map(self.query, query.parts)
            for other in others:
                whole = exp.Union(this=whole, expression=other, distinct=query.distinct)
            return whole
        named = [
            exp.CTE(this=self.query(inner), alias=exp.TableAlias(this=exp.to_identifier(name)))
            for name, inner in query.with_.items()
        ]
        columns = query.columns if isinstance(query.columns, tuple) else (query.columns,)
        made = exp.Select(
            with_=exp.With(expressions=named) if named else None,
            distinct=exp.Distinct() if query.distinct else None,
            expressions=[item for column in columns for item in self.item(column)],
        )
        if query.source != "":
            first, joins = self.source(query.source)
            made.set("from_", exp.From(this=first))
            made.set("joins", joins)
        for word, text in query.clauses:
            (clause,) = self.fragment(word, text)
            made.set(clause.key, clause)
        return made

    def item(self, item: str | As) -> list[exp.Expr]:
        """Return the trees of an item of a SELECT, which may be a list of columns."""
        if isinstance(item, str) or not _PLAIN.fullmatch(item.name):
            return self.fragment("SELECT", str(item))
        (value,) = self.fragment("SELECT", item.sql)
        return [exp.Alias(this=value, alias=exp.to_identifier(item.name))]

    def source(self, source: Source) -> tuple[exp.Expr, list[exp.Expr]]:
        """Return the first relation of a FROM, and its joins."""
        if isinstance(source, Subquery) and _PLAIN.fullmatch(source.name):
            alias = exp.TableAlias(this=exp.to_identifier(source.name))
            return exp.Subquery(this=self.query(source.query), alias=alias), []
        if not isinstance(source, Join) or (source.on and _MAY_JOIN.search(str(source.right))):
            first, *joins = self.fragment("FROM", str(source))
            return first, joins
        first, joins = self.source(source.left)
        other, more = self.source(source.right)
        method, _, side = source.side.rpartition(" ")  # ASOF LEFT
        kind = None if source.on else "CROSS"
        join = exp.Join(this=other, method=method or None, side=side or None, kind=kind)
        if source.on:
            (condition,) = self.fragment("SELECT", source.on)
            join.set("on", condition)
        return first, [*joins, join, *more]

    def fragment(self, word: str, text: str) -> list[exp.Expr]:
        """Return the trees of the parts of a clause."""
        form, names, values = _find_form(word, text)
        trees = [copy_tree(tree) for tree in form]
        if values:
            names = {**names, **{f"value{i}": f"value{self.values + i}" for i in range(values)}}
            self.values += values
        for tree in trees if names else ():
            for node in list_nodes(tree):
                if isinstance(node, exp.Identifier | exp.Placeholder):
                    node.args["this"] = names.get(node.args["this"], node.args["this"])
        return trees


_NUMBERED = re.compile(
    r"""(?x) '(?:[^']|'')*' | "(?P<quoted>[A-Za-z_]+\d[A-Za-z0-9_]*)" | "(?:[^"]|"")*"
      | (?<![\w$])(?P<bare>[a-z_]+\d[a-z0-9_]*+)(?![\w(])"""
)
"""Numbered names; other text is skipped."""
_MAY_JOIN = re.compile(r"\A(?!\().* JOIN ", re.DOTALL)
"""A relation without parentheses that may contain joins."""
MAX_FRAGMENTS = 2000
"""Cached trees of the forms of expressions."""


@lru_cache(maxsize=MAX_FRAGMENTS)
def _find_form(word: str, text: str) -> tuple[list[exp.Expr], dict[str, str], int]:
    """Return the trees of a clause's parts with general names, the names that they replace, and the number of values."""
    shape, values = strip_values.__wrapped__(text)
    known: dict[str, str] = {}

    def generalise(found: re.Match[str]) -> str:
        name = found["quoted"] or found["bare"]
        if name is None:
            return found[0]
        general = known.setdefault(name, f"n{len(known)}")
        return f'"{general}"' if found["quoted"] else general

    trees = _parse_parts(word, _NUMBERED.sub(generalise, shape))
    return trees, {general: name for name, general in known.items()}, len(values)


@lru_cache(maxsize=MAX_FRAGMENTS)
def _parse_parts(word: str, text: str) -> list[exp.Expr]:
    """Return the parts of a clause in a tree of their own, which the caller copies."""
    if not word:
        return [parse_fragment(text)]
    if word == "SELECT":
        found: list[exp.Expr] = parse_fragment(f"SELECT {text}").expressions
        return found
    tree = parse_fragment(f"SELECT 1 {word} {text}")
    if word == "FROM":
        return [tree.args["from_"].this, *(tree.args.get("joins") or [])]
    return [part for part in list_children(tree) if not isinstance(part, exp.Literal)]


class _Source(NamedTuple):
    """A FROM item: its new alias, and its columns' names in the text by folded name (None: unknown)."""

    alias: str
    columns: dict[str, str] | None

    def may_have(self, name: str) -> bool:
        return self.columns is None or name in self.columns


_Scope = ChainMap[str, _Source]
"""Sources by folded alias: those of one SELECT, then those of the SELECTs around it."""
_Ctes = Mapping[str, tuple[str, "dict[str, str] | None"]]
"""CTEs by folded name: the new name, and the columns."""


@dataclass
class _Writer:
    """Rewrites one text in place."""

    columns: Mapping[str, Sequence[str]]
    reserved: frozenset[str]
    unit: str
    count: int = 0

    def alias(self) -> str:
        while True:
            name = f"r{self.count}"
            self.count += 1
            if name not in self.reserved:
                return name

    def named(self, name: str) -> str:
        """Return the new name of a derived column."""
        return self.unit if fold(name) == UNIT else name

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, outer: _Scope, ctes: _Ctes) -> dict[str, str] | None:
        """Rewrite a query in place and return its output columns, in order."""
        with_ = tree.args.get("with_")
        if with_ is not None:
            if with_.args.get("recursive"):
                raise UnresolvedName("a recursive CTE")
            here = dict(ctes)
            for cte in with_.expressions:
                found = self.query(cte.this, ChainMap(), here)
                listed = [item.name for item in cte.args["alias"].args.get("columns") or []]
                if listed:
                    found = {fold(name): name for name in listed}
                name = self.alias()
                here[fold(cte.alias)] = (name, found)
                cte.set("alias", _alias_of(name, listed))
            ctes = here
        if isinstance(tree, exp.Subquery):
            if tree.args.get("joins"):
                raise UnresolvedName("joins in parentheses")
            return self.query(tree.this, outer, ctes)
        if isinstance(tree, exp.SetOperation):
            left = self.query(tree.left, outer, ctes)
            self.query(tree.right, outer, ctes)
            return left
        if isinstance(tree, exp.Values):
            for item in tree.expressions:
                self.expression(item, outer, ctes)
            return None
        if not isinstance(tree, exp.Select):
            raise UnresolvedName(f"a query of the kind {tree.key}")
        return self.select(tree, outer, ctes)

    def select(self, select: exp.Select, outer: _Scope, ctes: _Ctes) -> dict[str, str]:
        scope, joins = outer.new_child(), select.args.get("joins") or []
        if any(j.args.get("using") or join_word(j, "method") not in ("", "ASOF") for j in joins):
            raise UnresolvedName("a join by names or places")
        for source in from_items(select):
            self.source(source, scope, ctes)
        self.write_stars(select, scope)
        written = {fold(item.alias) for item in select.expressions if isinstance(item, exp.Alias)}
        for join in joins:
            if join.args.get("on") is not None:
                self.expression(join.args["on"], scope, ctes)
        for item in select.expressions:
            self.expression(item, scope, ctes)
        outputs: dict[str, str] = {}
        shown: list[exp.Expr] = []
        for place, item in enumerate(select.expressions):
            called = item.args.get("alias") or (item.this if isinstance(item, exp.Column) else None)
            made = f"o{place}" if called is None else self.named(called.name)
            while fold(made) in outputs:  # * expanded two columns of one name
                made = f"{made}_1"
            name = exp.to_identifier(made, quoted=bool(called and called.quoted))
            shown.append(exp.Alias(this=item.unalias(), alias=name))
            outputs[UNIT if made == self.unit else fold(made)] = made
        select.set("expressions", shown)
        for key in ("where", "group", "having", "qualify", "order", "distinct"):
            clause = select.args.get(key)
            if clause is not None:
                self.restore_outputs(clause, scope, written if key not in ("where", "distinct") else set())
                self.expression(clause, scope, ctes)
        return outputs

    def write_stars(self, select: exp.Select, scope: _Scope) -> None:
        """Expand every ``*``."""
        items: list[exp.Expr] = []
        for item in select.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if not isinstance(star, exp.Star):
                items.append(item)
                continue
            if any(star.args.values()):
                raise UnresolvedName("a * with changes")
            of = fold(item.table) if isinstance(item, exp.Column) else ""
            for name, source in scope.maps[0].items():
                if of and name != of:
                    continue
                if source.columns is None:
                    raise UnresolvedName("all columns of a table that is not known")
                table = exp.to_identifier(name, quoted=True)
                items += [exp.column(column, table=table) for column in source.columns]
        select.set("expressions", items)

    def restore_outputs(self, clause: exp.Expr, scope: _Scope, written: Set[str]) -> None:
        """Replace output names, in a clause after the SELECT list, by the outputs' expressions."""
        select = clause.parent
        assert isinstance(select, exp.Select)
        listed = isinstance(clause, exp.Group | exp.Order)
        nodes = [n.this if isinstance(n, exp.Ordered) else n for n in clause.expressions] if listed else []
        if any(isinstance(node, exp.Literal) for node in nodes):
            raise UnresolvedName("a place among the outputs")
        items: dict[str, exp.Expr] = {}
        for item in select.expressions if written else ():
            items.setdefault(fold(item.alias), item)
        for node in nodes if listed else list(_own_columns(clause)):
            if not isinstance(node, exp.Column) or node.table or fold(node.name) not in written:
                continue
            if self.resolve(node, scope) is None:
                value = items[fold(node.name)].unalias().copy()
                for column in value.find_all(exp.Column):
                    column.meta[_DONE] = True  # resolved in the SELECT list
                node.replace(value if listed else exp.paren(value, copy=False))

    # -- sources ----------------------------------------------------------------------------------------------------

    def source(self, node: exp.Expr, scope: _Scope, ctes: _Ctes) -> None:
        """Rename one FROM item and add it to the scope."""
        alias = self.alias()
        old = node.args.get("alias")
        listed = [item.name for item in old.args.get("columns") or []] if old is not None else []
        called = old.name if old is not None and old.args.get("this") is not None else ""
        columns: dict[str, str] | None
        if isinstance(node, exp.Table):
            called = called or node.name
            columns = self.table(node, scope, ctes)
        elif isinstance(node, exp.Subquery):
            columns = self.query(node.this, scope.parents, ctes)
        elif isinstance(node, exp.Lateral):
            columns = self.query(node.this, scope, ctes)
        elif isinstance(node, exp.Unnest):
            for item in node.expressions:
                self.expression(item, scope, ctes)
            columns = {"unnest": "unnest"}
        elif isinstance(node, exp.Values):
            for item in node.expressions:
                self.expression(item, ChainMap(), ctes)
            columns = None
        else:
            raise UnresolvedName(f"a source of the kind {node.key}")
        if listed:
            rest = list((columns or {}).values())[len(listed) :]
            columns = {fold(name): name for name in [*listed, *rest]}
        if fold(called) in scope.maps[0]:
            raise UnresolvedName("two sources of one name")
        scope[fold(called) or alias] = _Source(alias, columns)
        node.set("alias", _alias_of(alias, listed))

    def table(self, node: exp.Table, scope: _Scope, ctes: _Ctes) -> dict[str, str] | None:
        if not isinstance(node.this, exp.Identifier):  # range(...)
            self.expression(node.this, scope, ctes)
            return None
        if node.args.get("db") is None and fold(node.name) in ctes:
            name, columns = ctes[fold(node.name)]
            node.set("this", exp.to_identifier(name))
            return columns
        found = None if node.args.get("db") else self.columns.get(node.name)
        return None if found is None else {fold(name): name for name in found}

    # -- expressions ------------------------------------------------------------------------------------------------

    def resolve(self, node: exp.Column, scope: _Scope) -> tuple[str, str] | None:
        """Return the alias and column of a reference; None if the name is not in scope."""
        name, table = fold(node.name), fold(node.table)
        if node.args.get("db") is not None:
            raise UnresolvedName("a name of three parts")
        if table:
            found = [scope[table]] if table in scope and scope[table].may_have(name) else []
        else:
            found = []
            for sources in scope.maps:
                found = [s for s in sources.values() if s.columns is None or name in s.columns]
                if found:
                    break
        if len(found) > 1:
            raise UnresolvedName("a column that several sources have")
        if not found:
            return None
        (source,) = found
        return source.alias, node.name if source.columns is None else source.columns[name]

    def expression(self, node: exp.Expr, scope: _Scope, ctes: _Ctes) -> None:
        """Resolve every column of an expression in place, subqueries included."""
        stack = [node]
        while stack:
            part = stack.pop()
            if isinstance(part, exp.Query) and not isinstance(part, exp.Subquery | exp.Table):
                self.query(part, scope, ctes)
                continue
            if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                if part.meta.get(_DONE):
                    continue
                found = self.resolve(part, scope)
                if found is None:
                    raise UnresolvedName("a column that no source has")
                quoted = part.this.quoted or found[1] == self.unit
                part.set("table", exp.to_identifier(found[0]))
                part.set("this", exp.to_identifier(found[1], quoted=quoted))
                part.meta[_DONE] = True
                continue
            stack += list_children(part)


_DONE = "dpsql_resolved"


def _alias_of(name: str, columns: Sequence[str]) -> exp.TableAlias:
    listed = [exp.to_identifier(column, quoted=True) for column in columns]
    return exp.TableAlias(this=exp.to_identifier(name), columns=listed or None)


def _own_columns(node: exp.Expr) -> Iterator[exp.Column]:
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            yield part


# -- unread columns --------------------------------------------------------------------------------------------------


def _drop_unread(tree: exp.Expr, read: set[str] | None) -> None:
    """Remove unread columns of derived tables. ``read``: this query's columns that are read; None: all."""
    if isinstance(tree, exp.Subquery):
        _drop_unread(tree.this, read)
        return
    if isinstance(tree, exp.SetOperation):
        _drop_unread(tree.left, None)
        _drop_unread(tree.right, None)
        return
    if not isinstance(tree, exp.Select):
        return
    if read is not None and _is_plain(tree):
        kept = [item for item in tree.expressions if item.alias in read]
        tree.set("expressions", kept or tree.expressions[-1:])
    nodes = _list_own_nodes(tree)
    inside: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, exp.Column):
            inside.setdefault(node.table, set()).add(node.name)
    with_ = tree.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        _drop_unread(cte.this, None)
    for query in inner_queries(tree) if any(isinstance(node, exp.Query) for node in nodes[1:]) else ():
        _drop_unread(query, None)
    for item in from_items(tree):
        if isinstance(item, exp.Subquery | exp.Lateral):
            alias = item.args["alias"]
            _drop_unread(item.this, None if alias.args.get("columns") else inside.get(alias.name, set()))


def _is_plain(select: exp.Select) -> bool:
    """Return whether removing a column leaves the other columns as they are."""
    if any(select.args.get(key) for key in ("group", "distinct", "having", "order", "limit")):
        return False
    return not any(find_nodes(item, exp.AggFunc) for item in select.expressions)


def _list_own_nodes(select: exp.Select) -> list[exp.Expr]:
    """Return the nodes of a SELECT's clauses, their subqueries, and LATERAL items."""
    apart = [select.args.get("with_"), select.args.get("from_")]
    apart += [join.this for join in select.args.get("joins") or [] if isinstance(join.this, exp.Subquery)]
    return list_nodes(select, {id(part) for part in apart})


_SEEN = 64
"""The most cached texts: one statement looks up each of its own several times."""

_QUOTED = r"'(?:[^']|'')*'|" + r'"(?:[^"]|"")*"'
_VALUES = re.compile(
    r"""(?ix)
    (?: \b(?:date|time|timestamp|timestamptz|interval)\s+'(?:[^']|'')*'
      | \b(?:decimal|numeric|varchar)\s*\([^)]*\)
      | \b\d+\s+(?:preceding|following)\b
      | "(?:[^"]|"")*"
      | \$?[a-z_][a-z0-9_]*
      | [\s(),=<>*+/|:%!\[\]-]+ | \.(?!\d)
    )++
    | (?P<value>'(?:[^']|'')*' | \d+(?:\.\d*)?(?:e[+-]?\d+)? | \.\d+(?:e[+-]?\d+)?)
    """
)
"""Runs of other text, and values."""
_PARAMETERS = re.compile(rf"{_QUOTED}|\$value(\d+)\b")
_NAMED = re.compile(rf"{_QUOTED}|\$([A-Za-z0-9_]+)")


@lru_cache(maxsize=_SEEN)
def strip_values(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a text with parameters in place of its values, and the values, which don't affect names.

    Values in the syntax are kept: of a typed literal, in a type, at the ends of a frame.

    >>> strip_values("SELECT a + 1.5 AS b1 FROM t WHERE c = 'x' AND d > DATE '2020-01-01'")
    ("SELECT a + $value0 AS b1 FROM t WHERE c = $value1 AND d > DATE '2020-01-01'", ('1.5', "'x'"))
    """
    values: list[str] = []

    def parameter(found: re.Match[str]) -> str:
        if found["value"] is None:
            return found[0]
        values.append(found["value"])
        return f"$value{len(values) - 1}"

    return _VALUES.sub(parameter, sql), tuple(values)


def count_parameters(sql: str) -> Counter[str]:
    """Return the number of occurrences of each parameter in a text.

    >>> count_parameters("SELECT $a + $a, '$a'")
    Counter({'a': 2})
    """
    return Counter(filter(None, _NAMED.findall(sql)))


@lru_cache(maxsize=_SEEN)
def restore_values(sql: str, values: tuple[str, ...]) -> str:
    """Return a text with its values restored."""
    return _PARAMETERS.sub(lambda found: values[int(found[1])] if found[1] else found[0], sql)


@lru_cache(maxsize=_SEEN)
def number_parameters(sql: str) -> tuple[str, tuple[int, ...]]:
    """Return a text with its parameters renumbered in order, and their former numbers.

    A normal form drops unused columns, and their values.

    >>> number_parameters("SELECT $value2 + $value0 + $value2")
    ('SELECT $value0 + $value1 + $value0', (2, 0))
    """
    used: dict[int, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"$value{used.setdefault(int(found[1]), len(used))}" if found[1] else found[0]

    return _PARAMETERS.sub(number, sql), tuple(used)


MAX_LINE_WIDTH = 100

_DUCKDB = DuckDB()
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS_AND_FUNCTIONS = """
    between bigint bit boolean char character coalesce dec decimal exists extract float grouping grouping_id inout int
    integer interval national nchar none nullif numeric out overlay position precision real row setof smallint substring
    time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse
    xmlpi xmlroot xmlserialize xmltable"""
_RESERVED = DuckDB.Generator.RESERVED_KEYWORDS | set(_KINDS_AND_FUNCTIONS.split())
_ATOMS = (exp.Column, exp.Literal, exp.Func, exp.Paren, exp.Boolean, exp.Null)
_LOOSE = (exp.Alias, exp.Where, exp.Paren, exp.Having, exp.Qualify, exp.Tuple, exp.Func)


def format_sql(sql: str) -> str:
    """Return a query laid out on lines.

    >>> print(format_sql('SELECT ("u"."x") AS x FROM (SELECT "b".x FROM "t" AS "b") AS "u"'))
    SELECT u.x AS x
    FROM (SELECT b.x FROM t AS b) AS u
    """
    try:
        trees = _DUCKDB.parse(sql)
    except SqlglotError:  # syntax that only the engine knows
        return sql
    if len(trees) != 1 or trees[0] is None:
        return sql
    tree = trees[0]
    for paren in list(tree.find_all(exp.Paren)):
        alone = isinstance(paren.this, _ATOMS) and _holds_apart(paren.this)
        if alone or (isinstance(paren.parent, _LOOSE) and _holds_apart(paren.parent)):
            paren.replace(paren.this)
    for name in tree.find_all(exp.Identifier):
        if name.args.get("quoted") and _PLAIN.fullmatch(name.name) and name.name.lower() not in _RESERVED:
            name.set("quoted", False)
    try:
        laid = tree.sql(
            "duckdb",
            pretty=True,
            comments=False,
            normalize_functions=False,
            max_text_width=MAX_LINE_WIDTH,
            unsupported_level=ErrorLevel.IMMEDIATE,
        )
    except UnsupportedError:
        return sql
    if any("\n" in text.name for text in tree.find_all(exp.Literal)):
        return laid  # a line may be inside a string
    return "\n".join(_folded(laid.split("\n")))


def _holds_apart(node: exp.Expr) -> bool:
    """Return whether a node is no operator; sqlglot counts AND and OR among functions."""
    return not isinstance(node, exp.Binary | exp.Unary) or isinstance(node, exp.Paren)


def _folded(lines: list[str]) -> list[str]:
    """Join lines that fit on one: a clause with its items, parentheses with their content."""
    out: list[str] = []
    lines = list(lines)
    while lines:
        head = lines.pop(0)
        inside: list[str] = []
        while lines and _depth(lines[0]) > _depth(head):
            inside.append(lines.pop(0))
        inside = _folded(inside)
        opens = head.endswith("(")
        closes = opens and bool(lines) and lines[0].lstrip().startswith(")")
        joined = head + ("" if opens else " ") + " ".join(line.strip() for line in inside)
        joined += lines[0].lstrip() if closes else ""
        fits = len(joined) <= MAX_LINE_WIDTH and not any(line.endswith("(") for line in inside)
        if not inside or opens != closes or not fits:
            out += [head, *inside]
        elif closes:
            lines[0] = joined  # it may open another parenthesis
        else:
            out.append(joined)
    return out


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
