"""The statement around private blocks: CTEs, inner queries, names, linear joins, kept results and installed releases.

Parenthesised joins are linearised: ``FROM (a JOIN b ON ...) JOIN c``, ``FROM a JOIN (b JOIN c ON ...) ON ...``. Joins
bind from left to right, one table at a time. Every rewriting is an identity of joins, whatever the data.

Kept results and releases are public relations of later statements, with their intervals. Without a WITH of that name, a
name means a kept result before a public table. A release is the kept result of a ledger, for all of its sessions; no
table or kept result has its name. Each kept result becomes a public CTE of the statement, with its columns and its
intervals' ends, which propagate like those of a private block's release. The ends are also columns, ``n__low`` and
``n__high``, for statements that name them.

The SQL above private blocks mixes generated and analyst's names. So each generated name is absent from the statement:
as an identifier, quoted or not; as a string, which PIVOT may turn into a column; and as a column of a kept result or a
table, which a star may include.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from dpsql.binding.plan import PrivateBlock, Renamed
from dpsql.binding.relations.relation import INTERNAL, Names, Relation, column, fold
from dpsql.binding.values.sql_types import Type
from dpsql.catalogue.aggregate_names import MECHANISMS, MODES
from dpsql.language.dialect import (
    bind_error,
    find_nodes,
    has_more_nodes,
    join_word,
    list_children,
    make_identifier,
    table_named,
    to_sql,
    write_column,
)
from dpsql.language.labels import is_label_type, name_label_type
from dpsql.language.options import Call, call_of, is_private_call, mode_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import Select, write_filter
from dpsql.mechanisms.window_widths import WindowWidths


@dataclass
class Cte:
    """A name defined by WITH: a private relation to inline, or a public query that is kept."""

    name: str
    private: Relation | None = None
    tree: exp.Expr | None = None


Env = dict[str, Cte]


def add_ctes(query: exp.Expr, env: Env) -> exp.Expr:
    """Return the query with the public CTEs it names, so that it is self-contained."""
    wanted: dict[str, Cte] = {}

    def visit(tree: exp.Expr) -> None:
        for table in tree.find_all(exp.Table):
            key = fold(table.name)
            cte = env.get(key)
            if cte is not None and cte.tree is not None and key not in wanted:
                wanted[key] = cte
                visit(cte.tree.this)

    visit(query)
    if not wanted:
        return query
    query = query.copy()
    ordered = [cte.tree.copy() for key, cte in env.items() if key in wanted and cte.tree is not None]
    own = query.args.get("with_")
    recursive = bool(own and own.args.get("recursive")) or any(_names_itself(cte) for cte in ordered)
    with_ = exp.With(expressions=[*ordered, *(own.expressions if own else [])], recursive=recursive or None)
    query.set("with_", with_)
    return query


def _names_itself(cte: exp.Expr) -> bool:
    return any(fold(table.name) == fold(cte.alias) for table in cte.this.find_all(exp.Table))


def from_items(select: exp.Expr) -> list[exp.Expr]:
    """Return the items of FROM and JOIN, in order."""
    first = select.args.get("from_")
    return [] if first is None else [first.this, *(join.this for join in select.args.get("joins") or [])]


def inner_queries(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the outermost queries in the expressions of a SELECT (not in FROM, JOIN or WITH)."""
    for key, value in select.args.items():
        if key in ("with_", "from_"):
            continue
        for item in value if isinstance(value, list) else [value]:
            part = item.args.get("on") if key == "joins" else item
            if isinstance(part, exp.Expr):
                yield from outer_queries(part)


def outer_queries(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost queries inside a node, or the node itself."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Query) and not isinstance(part, exp.Subquery | exp.Table):
            yield part
        elif not isinstance(part, exp.Column):
            waiting += reversed(list_children(part))


def label_of(call: Call) -> str:
    """Return an aggregate's label, ``count_star()``, ``sum(amount)``; for a mechanism its name alone."""
    if call.name in MECHANISMS:
        return call.name.lower()
    where = write_filter("" if call.where is None else spell(call.where))
    if call.name == "COUNT" and (not call.args or call.args[0].is_star) and not call.distinct:
        return f"count_star(){where}"
    function = call.node
    while isinstance(function, exp.Filter | exp.WithinGroup | exp.Window):
        function = function.this
    written = function.meta.get("called", call.name.lower())
    distinct = "DISTINCT " if call.distinct and not isinstance(function, exp.ApproxDistinct) else ""
    inside = ", ".join(spell(argument) for argument in call.args)
    return f"{written}({distinct}{inside}){where}"


_TYPES = {"INT": "INTEGER", "TEXT": "VARCHAR", "INT128": "HUGEINT"}


@lru_cache
def _write_simple_type(kind: exp.DType) -> str:
    return exp.DataType(this=kind).sql(dialect="duckdb")


def _write_type(kind: exp.DataType) -> str:
    simple = all(key == "this" or not value for key, value in kind.args.items())
    return _write_simple_type(kind.this) if simple else kind.sql(dialect="duckdb")


def _spell_type(kind: str) -> str:
    return "VARCHAR" if is_label_type(kind) else _TYPES.get(kind, kind)


def spell(node: exp.Expr) -> str:
    """Return an expression's text as in DuckDB's column names."""
    if isinstance(node, exp.Column) and (name := write_column(node)) is not None:
        return name
    text = node.sql(
        dialect="duckdb", comments=False, normalize_functions="lower", unsupported_level=ErrorLevel.IGNORE
    )
    text = re.sub(r"\bAS (INT|TEXT)\)", lambda found: f"AS {_TYPES[found[1]]})", text)
    text = _UNIT_LITERAL.sub(lambda found: found[1] + found[2].lower(), text)
    return text.replace("count(*)", "count_star()")


_UNIT_LITERAL = re.compile(r"\b(date_(?:diff|sub|trunc)\()('[A-Z]+')")


MAX_HINT = 200
"""The most characters of a whole statement in a hint."""


def write_over_rows(select: exp.Select, asked: Select) -> str | None:
    """Return a query without a source over a SELECT's rows, for a hint; None if it would be long or reads a CTE."""
    above: exp.Expr | None = select
    while above is not None:
        if above.args.get("with_"):
            return None
        above = above.parent
    rows = exp.Select(expressions=[exp.Literal.number(1)])
    for key in ("from_", "joins", "where"):
        part = select.args.get(key)
        rows.set(key, [one.copy() for one in part] if isinstance(part, list) else part and part.copy())
    for table in rows.find_all(exp.Table):
        parts = table.name.split(".")
        if len(parts) > 1:
            table.set("alias", None if table.alias == parts[-1] else table.args.get("alias"))
            for key, part in zip(("this", "db", "catalog"), reversed(parts), strict=False):
                table.set(key, make_identifier(part))
    text = replace(asked, source=to_sql(rows).removeprefix("SELECT 1 FROM ")).sql
    return None if len(text) > MAX_HINT or INTERNAL in text or select.args.get("from_") is None else text


def label_of_item(item: exp.Expr) -> str:
    """Return the name of a SELECT's item: its alias, its aggregate's label, or its column; '' if it has none."""
    if isinstance(item, exp.Alias):
        return item.alias
    call = call_of(item)
    return label_of(call) if call is not None else item.alias_or_name


def resolve_key(
    node: exp.Expr, select: exp.Select, is_column: Callable[[exp.Column], bool] = lambda _: True
) -> exp.Expr:
    """Return the expression of a GROUP BY key: an item of the SELECT, by position or alias, or the key itself.

    A column of the rows, by ``is_column``, precedes an alias. BindError if there is no item at that position.
    """
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.name) if node.name.isdigit() else 0
        if not 1 <= place <= len(select.expressions):
            raise bind_error(node, "GROUP BY counts the columns from 1.")
        chosen: exp.Expr = select.expressions[place - 1].unalias()
        return chosen
    if isinstance(node, exp.Column) and not node.table and not is_column(node):
        items = (item for item in select.expressions if isinstance(item, exp.Alias))
        return next((item.this for item in items if fold(item.alias) == fold(node.name)), node)
    return node


MAX_EXPRESSION_NODES = 10_000
"""The most nodes of an expression after alias substitution."""
NAME_PARTS = "name the parts in a subquery, and use their names."


def substitute_aliases(node: exp.Expr, aliases: Mapping[str, exp.Expr], names: Names) -> exp.Expr:
    """Substitute the SELECT list's aliases in an expression, as DuckDB does; BindError if it becomes too large."""
    if not aliases:
        return node
    holder = exp.Paren(this=node.copy())
    for found in list(holder.find_all(exp.Column)):
        if isinstance(found.this, exp.Star) or found.table or found.find_ancestor(exp.Query) is not None:
            continue
        meant = aliases.get(fold(found.name))
        if meant is not None and names.known(found) is None:
            found.replace(exp.Paren(this=meant.copy()))
    inner: exp.Expr = holder.this
    if has_more_nodes(inner, MAX_EXPRESSION_NODES):
        what = (
            f"this expression has more than {MAX_EXPRESSION_NODES:,} parts, once its names are written out."
        )
        raise bind_error(node, what, NAME_PARTS)
    return inner


def make_unique(names: Iterable[str]) -> list[str]:
    """Return the names, each made unique by a numeric suffix.

    >>> make_unique(["n", "n", "N"])
    ['n', 'n_1', 'N_2']
    """
    unique = UniqueNames()
    return [unique.add(name) for name in names]


class UniqueNames:
    """Makes names unique one by one, in order of arrival."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        """The last suffix of each folded name."""

    def add(self, name: str) -> str:
        """Return the name, made unique by a numeric suffix."""
        folded, fresh = fold(name), name
        if folded in self._counts:
            count = self._counts[folded]
            while fold(fresh := f"{name}_{(count := count + 1)}") in self._counts:
                pass
            self._counts[folded] = count
        self._counts[fold(fresh)] = 0
        return fresh


_MIRROR = {"": "", "LEFT": "RIGHT", "RIGHT": "LEFT", "FULL": "FULL"}
_HINT = "write the join in parentheses as a named query before the statement, and join that."


def flatten_joins(select: exp.Select) -> None:
    """Linearise the FROM of a SELECT in place; BindError for parentheses that can't be removed without changing the join."""
    from_ = select.args.get("from_")
    if from_ is None:
        return
    while (opened := _opened(from_.this)) is not None:
        item, inner = opened
        from_.set("this", item)
        select.set("joins", [*inner, *(select.args.get("joins") or [])])
    joins: list[exp.Join] = list(select.args.get("joins") or [])
    place = 0
    while place < len(joins):
        opened = _opened(joins[place].this)
        if opened is None:
            place += 1
            continue
        item, inner = opened
        if not inner:
            joins[place].set("this", item)
        elif place == 0 and _mirrored(select, joins[0]):
            join = joins[0]
            join.set("this", from_.this)
            join.set("side", _MIRROR[join_word(join, "side")] or None)
            from_.set("this", item)
            select.set("joins", [*inner, *joins])
            flatten_joins(select)
            return
        else:
            joins[place : place + 1] = _spread(select, joins, place, item, inner)
        select.set("joins", joins)


def _opened(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]] | None:
    """Return a parenthesised join's first item and joins; None for other nodes. One with an alias becomes a SELECT."""
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Table | exp.Subquery):
        return None
    inner = node.this
    joins = list(inner.args.get("joins") or [])
    if node.alias or any(node.args.get(key) for key in ("pivots", "sample")):
        inner.set("joins", None)
        made = exp.Select(expressions=[exp.Star()]).from_(inner, copy=False)
        made.set("joins", joins or None)
        node.set("this", made)
        return None
    bare = isinstance(inner, exp.Subquery) and not joins and not inner.alias
    if bare and isinstance(inner.this, exp.Select):
        return None  # ((SELECT ...))
    inner.set("joins", None)
    return inner, [*joins, *(node.args.get("joins") or [])]


def _mirrored(select: exp.Select, join: exp.Join) -> bool:
    """Return whether the two sides of a join may be swapped, which only changes the order of columns in ``*``."""
    starred = any(item.is_star and not isinstance(item, exp.Column) for item in select.expressions)
    known = join_word(join, "kind") in ("", "INNER", "CROSS", "OUTER")
    return known and not starred and not join_word(join, "method")


def _spread(
    select: exp.Select, joins: list[exp.Join], place: int, item: exp.Expr, inner: list[exp.Join]
) -> list[exp.Join]:
    """Return inner joins one by one, as they are associative; move the condition of the whole to WHERE."""
    join = joins[place]
    outer = any(join_word(j, "side") in ("RIGHT", "FULL") for j in joins[place + 1 :])
    simple = all(
        join_word(j, "kind") in ("", "INNER", "CROSS")
        and not (join_word(j, "side") or j.args.get("using") or join_word(j, "method"))
        for j in (join, *inner)
    )
    if outer or not simple:
        raise bind_error(join.this, "this join can't be taken out of its parentheses.", _HINT)
    on = join.args.get("on")
    if on is not None:
        select.where(on, copy=False)
    return [exp.Join(this=item), *inner]


# -- releases -----------------------------------------------------------------------------------------------------------

Schema = Sequence[tuple[str, str]]


class Finish(Protocol):
    """The embedded DuckDB, without private data."""

    def describe(
        self, sql: str, relations: Mapping[str, Schema], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        """Return names and SQL types of a query's columns, bound against empty relations; BindError if it does not fit."""
        ...

    def finish(self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = ()) -> pa.Table:
        """Run a query over released relations and public tables."""
        ...

    def repeats(self, sql: str, public: Iterable[str] = ()) -> bool:
        """Return whether a query over public tables always returns the same rows."""
        ...

    def keep(self, sql: str, public: Iterable[str] = ()) -> pa.Table:
        """Run a query over public tables that always returns the same rows, and cache these."""
        ...


@dataclass(frozen=True)
class Released:
    """A column of a release, its SQL type, and whether its interval's ends are further columns.

    ``noise_step`` is the step of its noise, if it is an exact number with symmetric, log-concave noise and a symmetric
    interval. ``order`` has the labels of an ENUM, in the type's order. ``rounded``: the middle of its interval has digits
    that the number itself lacks.
    """

    name: str
    type: str
    interval: bool = False
    noise_step: Fraction | None = None
    order: tuple[str, ...] | None = None
    rounded: bool = False

    @property
    def low(self) -> str:
        """The column of the interval's lower ends."""
        return f"{self.name}__low"

    @property
    def high(self) -> str:
        """The column of the interval's upper ends."""
        return f"{self.name}__high"

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and SQL types of its columns in the release."""
        ends = ((self.low, "DOUBLE"), (self.high, "DOUBLE")) if self.interval else ()
        return ((self.name, self.type if self.order is None else name_label_type(self.order)), *ends)


PRIVATE_CLAUSES = ("joins", "where", "group", "having")


def install(
    select: exp.Select,
    source: exp.Expr,
    outputs: Sequence[tuple[str, exp.Expr]] | None = None,
    also: Iterable[str] = (),
) -> None:
    """Rewrite a private SELECT, in place, to read a release: ``outputs`` by name, or else all columns of the source.

    The SELECT keeps its public clauses, such as ORDER BY, LIMIT and QUALIFY, except those in ``also``.
    """
    for key in (*PRIVATE_CLAUSES, *also):
        select.set(key, None)
    select.set("from_", exp.From(this=source))
    items = None if outputs is None else [exp.alias_(node, name, quoted=True) for name, node in outputs]
    select.set("expressions", [exp.Star()] if items is None else items)


def schemas(blocks: Iterable[PrivateBlock | WindowWidths]) -> dict[str, Schema]:
    """Return the columns of each block's release, or relation of half widths, by name."""
    return {block.name: block.columns for block in blocks}


def public_columns(
    finish: Finish, sql: str, blocks: Iterable[PrivateBlock | WindowWidths], public: Iterable[str]
) -> list[tuple[str, Type]]:
    """Return names and types of a public query over the releases of these blocks and these public tables."""
    return [(name, Type.parse(kind)) for name, kind in finish.describe(sql, schemas(blocks), public)]


def renamed(tree: exp.Expr, blocks: Sequence[PrivateBlock]) -> tuple[Renamed, ...] | None:
    """Return the output columns, if a statement only renames one release's columns; None if it does more."""
    if not isinstance(tree, exp.Select) or len(blocks) != 1:
        return None
    source = tree.args.get("from_")
    clauses = [key for key, value in tree.args.items() if value and key not in ("expressions", "from_")]
    if clauses or source is None or source.this != table_named(blocks[0].name):
        return None
    types = dict(blocks[0].columns)
    found = []
    for item in tree.expressions:
        node, kinds = item.unalias(), list[str]()
        while isinstance(node, exp.Cast) and not node.args.get("safe"):
            kinds.insert(0, _spell_type(_write_type(node.to)))
            node = node.this
        if not isinstance(node, exp.Column) or node.name not in types or not item.alias_or_name:
            return None
        found.append(Renamed(item.alias_or_name, node.name, (_spell_type(types[node.name]), *kinds)))
    return tuple(found) if len({column.name.lower() for column in found}) == len(found) else None


_CTE = "dpsql_kept_as_"
FORETOLD = "dpsql_foretold_"
"""Prefix of relations whose rows are not known yet: those of an earlier statement in the cell."""


@dataclass(frozen=True)
class KeptResult:
    """A kept result.

    Args:
        table: the relation's name, a digest of its content.
        ends: for those with intervals, the columns of the ends.
        bins: for columns of histograms, the half width of each count.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    ends: tuple[tuple[str, str, str], ...] = ()
    confidence: float = 0.95
    bins: tuple[tuple[str, float], ...] = ()


def list_table_names(tree: exp.Expr) -> dict[str, exp.Expr]:
    """Return the folded names that a statement reads, of tables and of candidates, with the first node of each."""
    found: dict[str, exp.Expr] = {}
    for node in find_nodes(tree, exp.Table, exp.Window):
        alias = node.args.get("alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db"):
            found.setdefault(fold(node.name), node.this)
        elif isinstance(node, exp.Window) and isinstance(alias, exp.Identifier):
            found.setdefault(fold(alias.name), alias)
    return found


def kept_cte_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a kept result's CTE, not among the names ``taken`` by a statement."""
    made = f"{_CTE}{fold(name)}"
    while made in taken:
        made += "_"
    return made


@dataclass(frozen=True)
class NamedResult:
    """A kept result that a statement names, and its CTE."""

    kept: KeptResult
    cte: exp.CTE


def name_kept_results(
    tree: exp.Expr, kept: Mapping[str, KeptResult], taken: Collection[str]
) -> list[NamedResult]:
    """Return the kept results that a statement names, now by their CTEs' names; ``taken``: names in it that resemble ours."""
    found: dict[str, KeptResult] = {}
    names = {name: kept_cte_name(name, taken) for name in kept}
    if kept:
        _visit(tree, frozenset(), kept, found, names)
    written = {fold(node.name) for node in tree.find_all(exp.Identifier)} if found else set()
    return [NamedResult(item, _as_cte(item, written, names[fold(item.name)])) for item in found.values()]


def prepend_kept_results(tree: exp.Expr, named: list[NamedResult]) -> None:
    """Prepend the CTEs that a statement still names, in place."""
    tables = {node.name for node in tree.find_all(exp.Table)} if named else set()
    made = [item.cte for item in named if item.cte.alias in tables]
    own = tree.args.get("with_")
    if made:
        rest = own.expressions if own is not None else []
        recursive = own.args.get("recursive") if own is not None else None
        tree.set("with_", exp.With(expressions=[*made, *rest], recursive=recursive))


def _visit(
    node: exp.Expr,
    hidden: frozenset[str],
    kept: Mapping[str, KeptResult],
    found: dict[str, KeptResult],
    names: Mapping[str, str],
) -> None:
    """Find the names that mean kept results; ``hidden`` are those that WITH redefines."""
    with_ = node.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        after = hidden | {fold(cte.alias)}
        recursive = with_ is not None and with_.args.get("recursive")
        _visit(cte.this, after if recursive else hidden, kept, found, names)
        hidden = after
    for child in list(node.iter_expressions()):
        if child is not with_:
            _visit(child, hidden, kept, found, names)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db"):
        item = kept.get(fold(node.name)) if fold(node.name) not in hidden else None
        if item is not None:
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            written = node.this
            node.set("this", exp.to_identifier(names[fold(item.name)], quoted=True))
            node.this.meta.update(written.meta)
            found[item.name] = item
    if isinstance(node, exp.Window) and isinstance(node.args.get("alias"), exp.Identifier):
        name = fold(node.args["alias"].name)
        if name in kept and name not in hidden:  # the candidates of a mechanism
            found[kept[name].name] = kept[name]


def _as_cte(item: KeptResult, named: set[str], name: str) -> exp.CTE:
    ends = [name for _, *pair in item.ends for name in pair if fold(name) in named]
    select = exp.Select(
        expressions=[exp.alias_(column(name), name, quoted=True) for name in (*item.columns, *ends)]
    )
    select.set("from_", exp.From(this=table_named(item.table)))
    alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    return exp.CTE(this=select, alias=alias)


MakeName = Callable[[str], str]
"""Returns an unused name of a kind."""
_PREFIX = "dpsql_"


@dataclass
class OwnNames:
    """Generates names for one statement, except the folded names ``taken``, as from :func:`list_taken`."""

    taken: Collection[str] = field(default_factory=frozenset)
    _count: int = 0

    def make(self, kind: str, known: Collection[str]) -> str:
        """Return a name of a kind, ``dpsql_block_1``, that is neither taken nor a ``known`` name of the data."""
        while True:
            self._count += 1
            made = f"{_PREFIX}{kind}_{self._count}"
            if made not in self.taken and made not in known:
                return made


def list_taken(nodes: Iterable[exp.Expr], kept: Iterable[KeptResult]) -> frozenset[str]:
    """Return the folded names in a statement that resemble ours, and those of kept results' columns."""
    found = [node.name for node in nodes if isinstance(node, exp.Identifier | exp.Literal)]
    found += [name for item in kept for name in (*item.columns, *(end for ends in item.ends for end in ends))]
    return frozenset(name for name in map(fold, found) if name.startswith(_PREFIX))


def find_named(nodes: Sequence[exp.Expr]) -> frozenset[str] | None:
    """Return the folded names in a statement; None if it may read columns by place, pattern or as a whole.

    A column that a statement doesn't name decides nothing about its answer: ``*`` passes it on to queries that don't name
    it either, and rows that differ in no named column are interchangeable.
    """
    starred = any(isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count) for node in nodes)
    if any(_reads_by_place(node, starred) for node in nodes):
        return None
    return frozenset(fold(node.name) for node in nodes if isinstance(node, exp.Identifier))


_BY_NAME = frozenset(name for name, mode in MODES.items() if mode == MODES["DP"])
"""The modes that read columns by name."""


def _reads_by_place(node: exp.Expr, starred: bool) -> bool:
    """Return whether a part of a statement may read columns that it doesn't name; ``starred``: whether there is a ``*``."""
    args = node.args
    if isinstance(node, exp.Select):
        mode = args.get("mode")
        distinct = starred and args.get("distinct") is not None
        return distinct or (mode is not None and str(mode.name).upper() not in _BY_NAME)
    if isinstance(node, exp.TableAlias):
        return bool(args.get("columns")) and (starred or not isinstance(node.parent, exp.Subquery | exp.CTE))
    if isinstance(node, exp.Join):
        return bool(args.get("method"))
    if isinstance(node, exp.Group):
        return starred and bool(args.get("all"))
    return isinstance(node, exp.Columns | exp.Pivot) or (starred and isinstance(node, exp.SetOperation))


_COUNTS = ("COUNT", "COUNT_IF")


def find_held_columns(nodes: Sequence[exp.Expr]) -> frozenset[str] | None:
    """Return the folded columns that a statement reads, if it does more with joined rows than count them.

    Counts of rows are aggregated in a stream: None. Mechanisms that need rows, groups, windows, distinct values, and
    cuts of joined rows sort or store them; unknown uses are assumed to. Any name in the statement may be a column's;
    ``*`` means all.
    """
    if not _sorts(nodes):
        return None
    names = {fold(node.name) for node in nodes if isinstance(node, exp.Identifier)}
    if any(map(_reads_all, nodes)):
        names.add("*")
    return frozenset(names)


def _reads_all(node: exp.Expr) -> bool:
    """Return whether a part of a statement reads all columns; a window breaks ties by them."""
    if isinstance(node, exp.Join):
        return join_word(node, "method") == "NATURAL"
    starred = isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count)
    return starred or isinstance(node, exp.Window | exp.Columns)


def _sorts(nodes: Sequence[exp.Expr]) -> bool:
    calls = (call_of(node) for node in nodes if is_private_call(node))
    if any(call is None or call.name not in _COUNTS or call.distinct for call in calls):
        return True
    if any(isinstance(node, exp.Group | exp.Window | exp.Distinct | exp.Qualify) for node in nodes):
        return True
    if any(isinstance(node, exp.SetOperation) and node.args.get("distinct") for node in nodes):
        return True
    selects = [node for node in nodes if isinstance(node, exp.Select)]
    if any((mode := mode_of(select)) is not None and MODES.get(mode) != "DP" for select in selects):
        return True
    return sum(bool(select.args.get("joins")) or any(inner_queries(select)) for select in selects) > 1
