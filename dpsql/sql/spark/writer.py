"""The exact queries of a plan, in Spark's SQL.

Plans are written once, in DuckDB's SQL, by this package; nobody else's text comes here. So the translation is a walk
over the few shapes that plans have, with a type for every expression, and closed by default: a node without a rewrite
is refused by its name, before anything is paid. The rewrites, each with its reason, are in the tables of
:mod:`dpsql.sql.spark.values` (operators and casts) and :mod:`dpsql.sql.spark.calls` (functions and aggregates); here
are the clauses.

What is written supposes Spark's ANSI mode, in which nothing wraps around: what may not fit is a ``try_`` function,
which gives NULL like DuckDB's TRY.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.expressions.types import Type
from dpsql.sql.normalize import resolve_key
from dpsql.sql.parse.dialect import parse_fragment
from dpsql.sql.relations.relation import fold
from dpsql.sql.spark.aggregates import write_direction
from dpsql.sql.spark.expressions import ExpressionWalk, write_comparison
from dpsql.sql.spark.values import (
    LONG,
    SparkValue,
    find_common_type,
    number_within_units,
    quote_identifier,
    refusal,
    rewrite_quantile,
    write_cast,
)

ColumnTypes = Sequence[tuple[str, str]]
"""Names of columns, and their types as DuckDB spells them."""

MAX_QUERY_LENGTH = 1 << 20
"""Characters of a translated query: a value that is needed several times is written several times."""


def spark_sql(text: str, relations: Mapping[str, ColumnTypes]) -> str:
    """Return an exact query of a plan for Spark.

    Args:
        text: DuckDB SQL as plans have it, salts filled in.
        relations: every table and lent relation that it may name, by the last part of the name.

    Raises:
        BindError: Spark has nothing that gives the same rows; the message names what.

    >>> spark_sql("SELECT COUNT(*) AS n FROM t WHERE x // 2 > 1", {"t": [("x", "INTEGER")]})
    'SELECT count(1) AS `n` FROM `t` AS `t` WHERE ((CAST(`t`.`x` AS BIGINT) div 2L) > 1L)'
    """
    known = {
        fold(name): SparkQuery(quote_identifier(name), tuple((n, Type.parse(t)) for n, t in columns))
        for name, columns in relations.items()
    }
    made = _Writer(known).query(parse_fragment(text))
    if len(made.sql) > MAX_QUERY_LENGTH:
        raise refusal("a query of this length", "compute it in steps.")
    return made.sql


@dataclass(frozen=True)
class SparkQuery:
    """Spark SQL, and the columns that it gives."""

    sql: str
    columns: tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class SparkSource:
    """A relation in FROM: its alias and columns."""

    alias: str
    columns: tuple[tuple[str, Type], ...]


@dataclass
class SparkScope:
    """The meaning of names in one SELECT; ``outputs`` are its own columns, where they may be named, ``outer`` what a
    correlated subquery stands in.
    """

    sources: list[SparkSource]
    outputs: dict[str, exp.Expr] = field(default_factory=dict)
    outer: SparkScope | None = None

    def column(self, node: exp.Column) -> SparkValue:
        """Return what a column means, here or in the scope around."""
        name, table = fold(node.name), fold(node.table)
        for source in self.sources:
            if table in ("", fold(source.alias)):
                for column, kind in source.columns:
                    if fold(column) == name:
                        return SparkValue(
                            f"{quote_identifier(source.alias)}.{quote_identifier(column)}", kind
                        )
        if self.outer is not None:
            return self.outer.column(node)
        raise BindError(f"there is no column {node.name} for Spark.")


_AS_OF: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="), exp.GTE: (">=", "<="), exp.GT: (">", "<"), exp.LTE: ("<=", ">="), exp.LT: ("<", ">"),
}  # fmt: skip
"""Comparisons of an ASOF JOIN, and what they are with their sides exchanged."""
_RELATION_PARTS = ("this", "alias", "db", "catalog", "joins")
_SELECT_PARTS = (
    "with_", "kind", "expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit",
    "distinct", "operation_modifiers",
)  # fmt: skip


def _only(node: exp.Expr, what: str, *known: str) -> None:
    """Return a part of a clause that is not looked at must not be there."""
    for key, value in node.args.items():
        if key not in known and value not in (None, False, []):
            raise refusal(f"{key.rstrip('_').upper()} in {what}")


class _Writer:
    """Writes queries; ``known`` are the relations that FROM may name, ``outer`` is where a subquery stands."""

    def __init__(
        self,
        known: Mapping[str, SparkQuery],
        outer: SparkScope | None = None,
        own: Iterator[int] | None = None,
    ) -> None:
        self._known = dict(known)
        self._outer = outer
        self._own = count() if own is None else own

    def _inside(self, outer: SparkScope | None) -> _Writer:
        """A writer of what stands inside, which gives other aliases."""
        return _Writer(self._known, outer, self._own)

    def _alias(self) -> str:
        """A name for a relation that the text has beside those of the plan: nothing else is called so."""
        return f"dpsql_own_{next(self._own)}"

    # -- relations ----------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr) -> SparkQuery:
        if isinstance(node, exp.Subquery):
            _only(node, "a subquery", "this", "alias")
            return self.query(node.this)
        if isinstance(node, exp.Union) and type(node) is exp.Union:
            return self._union(node)
        if not isinstance(node, exp.Select):
            raise refusal(node.key.upper())
        return self._select(node)

    def _union(self, node: exp.Union) -> SparkQuery:
        _only(node, "UNION", "this", "expression", "distinct")
        left, right = self.query(node.this), self.query(node.expression)
        if len(left.columns) != len(right.columns):
            raise refusal("a UNION of unlike queries")
        columns, sides = [], ([], [])  # type: tuple[list[tuple[str, Type]], tuple[list[str], list[str]]]
        aliases = [quote_identifier(self._alias()) for _ in sides]
        for (name, mine), (other, theirs) in zip(left.columns, right.columns, strict=True):
            kind = find_common_type((mine, theirs))
            columns.append((name, kind))
            for side, alias, (old, had) in zip(sides, aliases, ((name, mine), (other, theirs)), strict=True):
                value = SparkValue(f"{alias}.{quote_identifier(old)}", had)
                side.append(f"{write_cast(value, kind)} AS {quote_identifier(name)}")
        word = "UNION" if node.args.get("distinct") else "UNION ALL"
        one, two = (
            f"SELECT {', '.join(side)} FROM ({made.sql}) AS {alias}"
            for side, made, alias in zip(sides, (left, right), aliases, strict=True)
        )
        return SparkQuery(f"{one} {word} {two}", tuple(columns))

    def _with(self, node: exp.Select) -> tuple[str, _Writer]:
        """Return the CTEs as text, and a writer that knows them."""
        with_ = node.args.get("with_")
        if with_ is None:
            return "", self
        _only(with_, "WITH", "expressions")
        inner, parts = self._inside(self._outer), []
        for cte in with_.expressions:
            _only(cte, "a CTE", "this", "alias")
            made = inner.query(cte.this)
            given = cte.args["alias"].args.get("columns") or []
            columns = _renamed(made.columns, [c.name for c in given])
            shown = f" ({', '.join(quote_identifier(name) for name, _ in columns)})" if given else ""
            parts.append(f"{quote_identifier(cte.alias)}{shown} AS ({made.sql})")
            inner._known[fold(cte.alias)] = SparkQuery(quote_identifier(cte.alias), columns)
        return f"WITH {', '.join(parts)} ", inner

    def _relation(self, node: exp.Expr, called: str | None = None) -> tuple[str, SparkSource]:
        """A part of FROM; ``called``: under another alias than its own."""
        alias = node.args.get("alias")
        renamed = [c.name for c in alias.args.get("columns") or []] if alias is not None else []
        name = called or node.alias_or_name
        if isinstance(node, exp.Subquery):
            _only(node, "a subquery", "this", "alias")
            if isinstance(node.this, exp.Values):
                made = self._values(node.this)
            else:
                made = self.query(node.this)
            made = SparkQuery(f"({made.sql})", made.columns)
        elif isinstance(node, exp.Values):
            made = self._values(node)
            made = SparkQuery(f"({made.sql})", made.columns)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Func):
            made = self._numbers(node.this)
        elif isinstance(node, exp.Table):
            _only(node, "FROM", *_RELATION_PARTS)
            found = self._known.get(fold(node.name))
            if found is None:
                raise BindError(f"there is no relation {node.name} for Spark.")
            made = found
        else:
            raise refusal(f"{node.key.upper()} in FROM")
        columns = _renamed(made.columns, renamed)
        shown = f"{quote_identifier(name)}"
        if renamed:
            shown += f"({', '.join(quote_identifier(c) for c, _ in columns)})"
        return f"{made.sql} AS {shown}", SparkSource(name, columns)

    def _values(self, node: exp.Values) -> SparkQuery:
        _only(node, "VALUES", "expressions", "alias")
        writer = self._expressions(SparkScope([]))
        rows = [[writer.of(item) for item in row.expressions] for row in node.expressions]
        kinds = [find_common_type([row[i].type for row in rows]) for i in range(len(rows[0]))]
        listed = ", ".join(
            f"({', '.join(write_cast(v, k) for v, k in zip(row, kinds, strict=True))})" for row in rows
        )
        names = [f"col{i + 1}" for i in range(len(kinds))]
        return SparkQuery(f"SELECT * FROM VALUES {listed}", tuple(zip(names, kinds, strict=True)))

    def _numbers(self, node: exp.Expr) -> SparkQuery:
        """range(n), range(m, n): the whole numbers below n, from m on."""
        if isinstance(node, exp.GenerateSeries) and node.args.get("is_end_exclusive"):
            ends = [node.args[key] for key in ("start", "end") if node.args.get(key) is not None]
            if all(isinstance(end, exp.Literal) for end in ends) and not node.args.get("step"):
                return SparkQuery(
                    f"range({', '.join(str(int(end.name)) for end in ends)})", (("range", LONG),)
                )
        raise refusal(f"{node.sql_name()} in FROM" if isinstance(node, exp.Func) else node.key)

    # -- SELECT -------------------------------------------------------------------------------------------------

    def _expressions(self, scope: SparkScope) -> ExpressionWalk:
        def nested(node: exp.Expr) -> tuple[str, tuple[tuple[str, Type], ...]]:
            made = self._inside(scope).query(node)
            return made.sql, made.columns

        return ExpressionWalk(scope.column, nested)

    def _select(self, node: exp.Select) -> SparkQuery:
        _only(node, "SELECT", *_SELECT_PARTS)
        head, writer = self._with(node)
        return writer._body(rewrite_quantile(node), head)

    def _body(self, node: exp.Select, head: str) -> SparkQuery:
        scope = SparkScope([], outer=self._outer)
        text = self._from(node, scope)
        values = self._expressions(scope)
        where = node.args.get("where")
        if where is not None:
            text += f" WHERE {values.of(where.this).sql}"
        items = self._items(node, scope, values)
        for item in node.expressions:
            if isinstance(item, exp.Alias):
                scope.outputs.setdefault(fold(item.alias), item.this)
        text += self._group(node, scope, values)
        having = node.args.get("having")
        if having is not None:
            text += f" HAVING {values.of(having.this).sql}"
        columns = tuple((name, value.type) for name, value in items)
        shown = [f"{value.sql} AS {quote_identifier(name)}" for name, value in items]
        word = "SELECT DISTINCT" if node.args.get("distinct") else "SELECT"
        if node.args.get("distinct") and node.args["distinct"].args.get("on") is not None:
            raise refusal("DISTINCT ON")
        qualify = node.args.get("qualify")
        if qualify is not None:
            # Spark learns QUALIFY only late: the choice becomes a column, and a condition above it.
            chosen = values.of(number_within_units(qualify.this)).sql
            names = ", ".join(quote_identifier(name) for name, _ in columns)
            inner = f"{word} {', '.join([*shown, f'{chosen} AS `dpsql_chosen`'])}{text}"
            text = f"SELECT {names} FROM ({inner}) AS `q` WHERE `dpsql_chosen`"
        else:
            text = f"{word} {', '.join(shown)}{text}"
        text += self._order(node, scope, columns, values, qualify is not None)
        limit = node.args.get("limit")
        if limit is not None:
            if not isinstance(limit.expression, exp.Literal):
                raise refusal("a LIMIT that is no literal")
            text += f" LIMIT {int(limit.expression.name)}"
        return SparkQuery(head + text, columns)

    def _items(
        self, node: exp.Select, scope: SparkScope, values: ExpressionWalk
    ) -> list[tuple[str, SparkValue]]:
        items: list[tuple[str, SparkValue]] = []
        for item in node.expressions:
            star = item if isinstance(item, exp.Star) else getattr(item, "this", None)
            if isinstance(star, exp.Star) and isinstance(item, exp.Star | exp.Column):
                _only(star, "*")
                wanted = fold(item.table) if isinstance(item, exp.Column) else ""
                for source in scope.sources:
                    if wanted in ("", fold(source.alias)):
                        items += [
                            (
                                name,
                                SparkValue(
                                    f"{quote_identifier(source.alias)}.{quote_identifier(name)}", kind
                                ),
                            )
                            for name, kind in source.columns
                        ]
                continue
            items.append((item.alias_or_name or f"dpsql_{len(items)}", values.of(item.unalias())))
        return items

    def _from(self, node: exp.Select, scope: SparkScope) -> str:
        from_ = node.args.get("from_")
        if from_ is None:
            return ""
        text, source = self._relation(from_.this)
        scope.sources.append(source)
        text = f" FROM {text}"
        for join in node.args.get("joins") or []:
            text += self._join(join, scope)
        return text

    def _join(self, join: exp.Join, scope: SparkScope) -> str:
        _only(join, "JOIN", "this", "on", "kind", "side", "method")
        side, method = join.side.upper(), (join.method or "").upper()
        beside = isinstance(join.this, exp.Lateral | exp.Unnest)
        on = join.args.get("on")
        if method == "ASOF" and on is not None and side in ("", "LEFT") and not beside:
            return self._as_of(on, side, join.this, scope)
        text, source = self._beside(join.this, scope) if beside else self._relation(join.this)
        if join.kind.upper() in ("SEMI", "ANTI") and on is not None and not (side or method or beside):
            within = SparkScope(
                [*scope.sources, source], scope.outputs, scope.outer
            )  # its columns are seen here alone
            return f" LEFT {join.kind.upper()} JOIN {text} ON {self._expressions(within).of(on).sql}"
        if (
            method
            or side not in ("", "LEFT", *(() if beside else ("RIGHT", "FULL")))
            or join.kind.upper() not in ("", "INNER", "OUTER", "CROSS")
        ):
            raise refusal(" ".join(filter(None, (method, side, join.kind.upper(), "JOIN"))))
        scope.sources.append(source)
        if on is None:
            if side:
                raise refusal(f"{side} JOIN without ON")
            return f" CROSS JOIN {text}"
        return f" {side + ' ' if side else ''}JOIN {text} ON {self._expressions(scope).of(on).sql}"

    def _beside(self, node: exp.Expr, scope: SparkScope) -> tuple[str, SparkSource]:
        """UNNEST of a list and LATERAL, which look at the row beside them."""
        alias = node.args["alias"]
        name, renamed = alias.name, [column.name for column in alias.args.get("columns") or []]
        if isinstance(node, exp.Unnest):
            _only(node, "UNNEST", "expressions", "alias")
            (argument,) = (self._expressions(scope).of(item) for item in node.expressions)
            if argument.type.element is None:
                raise refusal(f"UNNEST of {argument.type.sql}")
            column = renamed[0] if renamed else "unnest"
            text = f"LATERAL explode({argument.sql}) AS {quote_identifier(name)}({quote_identifier(column)})"
            return text, SparkSource(name, ((column, argument.type.element),))
        _only(node, "LATERAL", "this", "alias")
        made = self._inside(scope).query(node.this)
        return f"LATERAL ({made.sql}) AS {quote_identifier(name)}", SparkSource(
            name, _renamed(made.columns, renamed)
        )

    def _as_of(self, on: exp.Expr, side: str, node: exp.Expr, scope: SparkScope) -> str:
        """``x ASOF JOIN t ON x.k = t.k AND x.x >= t.t``: Spark has none. Each row of t is given its neighbour among those
        with its k; a row of x then lies between the two. Rows of t are public, and no two have equal k and t.
        """
        text, under = self._relation(node, self._alias())
        source = SparkSource(node.alias_or_name, under.columns)
        equal: list[tuple[exp.Expr, exp.Expr]] = []
        nearest: list[tuple[exp.Expr, exp.Expr, str]] = []
        for part in on.flatten() if isinstance(on, exp.And) else [on]:
            while isinstance(part, exp.Paren):
                part = part.this
            word, turned = _AS_OF.get(type(part), ("", ""))
            theirs = [
                {fold(c.table) for c in s.find_all(exp.Column)} == {fold(source.alias)}
                for s in (part.this, part.args.get("expression"))
                if word and isinstance(s, exp.Expr)
            ]
            if theirs.count(True) != 1:
                raise refusal("an ASOF JOIN of this form")
            own, at = (part.this, part.expression) if theirs[1] else (part.expression, part.this)
            if word == "=":
                equal.append((own, at))
            else:
                nearest.append((own, at, word if theirs[1] else turned))
        if len(nearest) != 1:
            raise refusal("an ASOF JOIN of this form")
        own, at, word = nearest[0]
        inside, outside = self._expressions(SparkScope([source])), self._expressions(scope)
        below = self._expressions(SparkScope([under]))
        there, here = inside.of(at), outside.of(own)
        kind = find_common_type((here.type, there.type))
        name, look = quote_identifier(source.alias), "lead" if word[0] == ">" else "lag"
        sought = write_cast(below.of(_exchange_alias(at, under)), kind)
        over, tests = f"ORDER BY {sought} ASC NULLS FIRST", []
        if equal:  # as they are compared: so that one row at most of each is the nearest
            sides = [
                (outside.of(own), inside.of(at), below.of(_exchange_alias(at, under))) for own, at in equal
            ]
            parts = [
                write_cast(within, find_common_type((mine.type, within.type))) for mine, _, within in sides
            ]
            over = f"PARTITION BY {', '.join(parts)} {over}"
            tests = [write_comparison(mine, "=", theirs) for mine, theirs, _ in sides]
        columns = [quote_identifier(column) for column, _ in under.columns]
        listed = [f"{quote_identifier(under.alias)}.{column} AS {column}" for column in columns]
        listed.append(f"{look}({sought}) OVER ({over}) AS `dpsql_next`")
        inner = f"(SELECT {', '.join(listed)} FROM {text}) AS {name}"
        scope.sources.append(source)
        following = SparkValue(f"{name}.`dpsql_next`", kind)
        tests.append(write_comparison(here, word, there))
        beyond = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[word]
        tests.append(f"({following.sql} IS NULL OR {write_comparison(here, beyond, following)})")
        return f" {side + ' ' if side else ''}JOIN {inner} ON {' AND '.join(tests)}"

    def _group(self, node: exp.Select, scope: SparkScope, values: ExpressionWalk) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        _only(group, "GROUP BY", "expressions")
        return f" GROUP BY {', '.join(values.of(self._named(g, node, scope)).sql for g in group.expressions)}"

    def _named(self, place: exp.Expr, node: exp.Select, scope: SparkScope) -> exp.Expr:
        """Return what an ordinal or the name of an output column stands for."""

        def is_column(name: exp.Column) -> bool:
            try:
                scope.column(name)
            except BindError:
                return False
            return True

        return resolve_key(place, node, is_column)

    def _order(
        self,
        node: exp.Select,
        scope: SparkScope,
        columns: tuple[tuple[str, Type], ...],
        values: ExpressionWalk,
        wrapped: bool,
    ) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        names = [fold(name) for name, _ in columns]
        parts = []
        for item in order.expressions:
            place, word = item.this, write_direction(item)
            if isinstance(place, exp.Literal) and not place.is_string:
                parts.append(f"{int(place.name)}{word}")
            elif isinstance(place, exp.Column) and fold(place.name) in names:
                parts.append(f"{names.index(fold(place.name)) + 1}{word}")
            elif wrapped:
                raise refusal("ORDER BY something else than an output beside QUALIFY")
            else:
                parts.append(f"{values.of(place).sql}{word}")
        return f" ORDER BY {', '.join(parts)}"


def _exchange_alias(node: exp.Expr, now: SparkSource) -> exp.Expr:
    """Return an expression over one relation, with another alias for it."""

    def rename(part: exp.Expr) -> exp.Expr:
        return exp.column(part.name, now.alias, quoted=True) if isinstance(part, exp.Column) else part

    return node.copy().transform(rename)


def _renamed(columns: Iterable[tuple[str, Type]], names: Sequence[str]) -> tuple[tuple[str, Type], ...]:
    listed = list(columns)
    return tuple((names[i] if i < len(names) else name, kind) for i, (name, kind) in enumerate(listed))
