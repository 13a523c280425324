"""The binder of a statement: resolves names, finds private blocks, and keeps the rest as public SQL.

A SELECT over private rows in FROM or a CTE, without aggregates, keeps its rows and their privacy unit, and stays
private. Any other is a private block: it is replaced by its mechanisms' release, and the SQL above it is ordinary.

Only :mod:`dpsql.binding.bind` uses it, to make a plan. It is a separate module because it resolves names in trees, and makes
no plan.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.binding.mode_table import (
    bind_on_blocks,
    bind_rows,
    find_stable,
    options_of_mode,
    refuse_public_rows,
)
from dpsql.binding.public_statement import (
    Cte,
    Env,
    flatten_joins,
    from_items,
    inner_queries,
    name_kept_results,
    outer_queries,
)
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.joins import bind_from
from dpsql.binding.relations.plan_size import count_joined, refuse_joined, refuse_rows, share
from dpsql.binding.relations.projections import (
    aggregate_per_unit,
    combine,
    group_by_row_around,
    group_distinct,
    groups_by_unit,
    keep_rows,
    open_lateral,
    open_pivots,
    rename_columns,
    spread_columns,
    wrap_distinct,
)
from dpsql.binding.relations.relation import From, Names, Relation, fold
from dpsql.binding.relations.subqueries import bind_expression, move_unnest
from dpsql.binding.relations.unit_rows import aggregates, is_shown_alone
from dpsql.binding.relations.windows import PIVOT_HINT, refuse_cuts, refuse_row_choice, refuse_samples
from dpsql.binding.values.sql_types import Typed
from dpsql.errors import BindError
from dpsql.language.dialect import NAMED, ModeClause, bind_error, privacy_error, remove_modes, span_of, to_sql
from dpsql.language.options import (
    Options,
    Readers,
    call_of,
    is_private_call,
    mode_of,
    take_mode,
)
from dpsql.language.parameters import make_literal
from dpsql.late_dataclass import dataclass

_BOUND = "dpsql_source"
_PUBLIC_FUNCTIONS = ("range", "generate_series", "unnest")


@dataclass
class StatementBinder(Binder):
    """Binds one statement: its queries, their FROM items, and the private blocks among them."""

    # -- queries ------------------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, env: Env, inner: bool) -> Relation | None:
        env = dict(env)
        if isinstance(tree, exp.Select) and (mode := mode_of(tree)) is not None:
            stable = None if mode == "SUBSAMPLE" else find_stable(self.thresholds.get(mode.lower()))
            if mode == "SUBSAMPLE" or stable is not None:
                if stable is None:
                    self.fold_scalars(tree, env)
                options = take_mode(tree, self._readers_of)
                assert options is not None
                bind_on_blocks(self, tree, options, env, stable)
                return None
        with_ = tree.args.get("with_")
        if with_ is not None:
            self._ctes(with_, env)
            if not with_.expressions:
                tree.set("with_", None)
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, env, inner)
        if isinstance(tree, exp.Subquery):
            if tree.args.get("alias") and not isinstance(tree.parent, exp.From | exp.Join):
                tree.set("alias", None)
            relation = self.query(tree.this, env, inner)
            if relation is not None:
                refuse_cuts(tree)
            return relation
        if isinstance(tree, exp.Values):
            self._inside(tree, env)
            return None
        if isinstance(tree, exp.Pivot):
            what = "PIVOT and UNPIVOT stand after a relation, with their columns named."
            raise bind_error(tree, what, PIVOT_HINT)
        if not isinstance(tree, exp.Select):
            raise bind_error(tree, "this must be a SELECT.", "dpsql only answers questions: write a query.")
        return self._select(tree, env, inner)

    def _ctes(self, with_: exp.Expr, env: Env) -> None:
        for cte in list(with_.expressions):
            body, alias = cte.this, cte.alias
            if not isinstance(body, exp.Query):
                raise bind_error(cte, "a CTE must be a SELECT.", "dpsql only answers questions.")
            if with_.args.get("recursive"):
                env[fold(alias)] = Cte(alias, tree=cte)
            relation = self.query(body, env, inner=True)
            names = cte.alias_column_names
            if relation is None:
                env[fold(alias)] = Cte(alias, tree=cte)
                continue
            if with_.args.get("recursive"):
                raise privacy_error(cte.args["alias"], "a recursive CTE can't read private rows.")
            if names:
                relation = rename_columns(relation, names, cte)
            env[fold(alias)] = Cte(alias, private=self.share(relation, cte.args["alias"]))
            with_.expressions.remove(cte)
            with_.set("expressions", with_.expressions)

    def _set_operation(self, tree: exp.SetOperation, env: Env, inner: bool) -> Relation | None:
        sides = [self.query(side, env, inner) for side in (tree.left, tree.right)]
        if all(side is None for side in sides):
            return None
        left, right = sides
        if left is None or right is None:
            what = "a set operation can't combine private rows with public ones."
            raise privacy_error(tree.left, what, "aggregate each side first, then combine the answers.")
        return self.share(combine(self, left, right, tree, env), tree)

    def _select(self, select: exp.Select, env: Env, inner: bool) -> Relation | None:
        open_pivots(self, select, env)
        self.fold_scalars(select, env)
        options = take_mode(select, self._readers_of)
        flatten_joins(select)
        if all(self.source(node, env) is None for node in from_items(select)):
            refuse_public_rows(options)
            self._public_select(select, env)
            return None
        if aggregates(select) or (inner and options is None):
            move_unnest(select, self.name("unnest"))
        relations = {id(node): self.source(node, env) for node in from_items(select)}
        bound = self.from_of(select, relations, env)
        refuse_row_choice(select)
        spread_columns(select, bound)
        if options is None and inner:
            if not aggregates(select) and (outer := wrap_distinct(select)) is not None:
                return self._select(outer, env, inner)
            if not aggregates(select):
                group_distinct(select, bound)
            if not aggregates(select) and not is_shown_alone(select):
                return keep_rows(self, select, bound, env)
            if aggregates(select) and groups_by_unit(select, bound):
                return aggregate_per_unit(self, select, bound, env)
        bind_rows(self, select, bound, options or Options("DP", {}, {}), env)
        return None

    def _readers_of(self, mode: str) -> Readers | None:
        return options_of_mode(mode.upper(), self.thresholds.get(mode.lower()))

    def _public_select(self, select: exp.Select, env: Env) -> None:
        """Bind a SELECT without private relations in FROM: plain SQL, with any private blocks in its subqueries."""
        for place, join in enumerate(select.args.get("joins") or []):
            open_lateral(self, select, place, env)
            if isinstance(join.this, exp.Lateral) and self.query(join.this.this, env, inner=True) is not None:
                what = "LATERAL can't join private rows to public ones."
                hint = "aggregate by the public key in a subquery, and join that."
                raise privacy_error(join.this, what, hint)
        for item in select.expressions:
            if isinstance(item, exp.Subquery) and not item.alias:
                item.replace(exp.alias_(item.copy(), to_sql(remove_modes(item))[1:-1], quoted=True))
        unnamed = [item for item in select.expressions if not item.alias and item.find(exp.Query)]
        written = [to_sql(remove_modes(item.copy())) for item in unnamed]
        for query in list(inner_queries(select)):
            group_by_row_around(self, query, select, env)
        for query in inner_queries(select):
            if isinstance(query.parent, exp.Exists) and isinstance(query, exp.Select):
                self._refuse_existence(query, env)
            self.public_query(query, env)
        for item, name in zip(unnamed, written, strict=True):
            if to_sql(item) != name:  # it contains a block now, under a generated name
                item.replace(exp.alias_(item.copy(), name, quoted=True))
        for node in select.find_all(exp.Anonymous):
            if is_private_call(node) and node.find_ancestor(exp.Select) is select:
                what = f"{node.name.upper().removeprefix(NAMED.upper())} needs private rows, and this FROM has none."
                raise privacy_error(node, what, "public tables can be read exactly, with plain SQL.")

    def _refuse_existence(self, query: exp.Select, env: Env) -> None:
        """Refuse EXISTS over private rows, correlated with public rows only."""
        if query.args.get("with_") or aggregates(query):
            return
        if any(self.source(item, env) is not None for item in from_items(query)):
            what = "EXISTS over private rows would show exactly whether there are any."
            hint = "release the keys of the private rows first, with a noisy count of each, and join that answer."
            raise privacy_error(query, what, hint)

    # -- released numbers in place of literals -----------------------------------------------------------------------

    def fold_scalars(self, select: exp.Select, env: Env) -> None:
        """Replace public queries of one number by their values, in place, in options, arguments and thresholds.

        Raises:
            BindError: not one row and one column, or NULL.
            PrivacyError: it reads private or unreleased rows.
        """
        clause: ModeClause | None = select.args.get("mode")
        if clause is not None and any(option.find(exp.Query) for option in clause.options):
            own = ModeClause(clause.mode, [option.copy() for option in clause.options])
            select.set("mode", own)  # copies of a SELECT share a clause
            for option in own.options:
                if isinstance(option, exp.EQ):
                    self._fold(option.expression, env)
        for item in select.expressions:
            for node in list(item.walk(prune=lambda n: isinstance(n, exp.Query | exp.Kwarg))):
                if isinstance(node, exp.Kwarg):
                    self._fold(node.expression, env)
                elif (call := call_of(node)) is not None and call.name == "ABOVE_THRESHOLD" and call.args[1:]:
                    self._fold(call.args[1], env)

    def fold_threshold(self, select: exp.Select) -> None:
        """Replace such queries in the number and the options of a DECLARE."""
        self.fold_scalars(select, {})
        for item in list(select.expressions):
            self._fold(item, {})

    def _fold(self, node: exp.Expr, env: Env) -> None:
        if isinstance(node, exp.Tuple):
            for item in list(node.expressions):
                self._fold(item, env)
            return
        nodes = list(node.walk(prune=lambda n: isinstance(n, exp.Query)))
        queries = [n for n in nodes if isinstance(n, exp.Subquery)]
        with_columns = any(isinstance(n, exp.Column) for n in nodes)
        for place in queries if with_columns or not queries else [node]:
            place.replace(self._scalar(place, env))

    def _scalar(self, node: exp.Expr, env: Env) -> exp.Expr:
        """Return the value of a public expression as a literal."""
        inner = node.this if isinstance(node, exp.Subquery) else None
        if isinstance(inner, exp.Select) and len(inner.expressions) != 1:
            what = f"this query has {len(inner.expressions)} columns, and a number needs one."
            hint = "select one column; two numbers are a pair of such queries in parentheses."
            raise bind_error(node, what, hint)
        query = exp.select(exp.alias_(node.copy(), "value", quoted=True))
        visible = {name: kept for name, kept in self.catalog.kept.items() if name not in env}
        kept = name_kept_results(query, visible, self.own_names.taken)
        self.public.update((item.kept.table, None) for item in kept)
        env = {**env, **{fold(item.cte.alias): Cte(item.cte.alias, tree=item.cte) for item in kept}}
        self.public_query(query, env)
        found = self.public_relation(query, env, self.name("scalar")).inputs[0]
        try:
            values = self.known(found)
        except BindError:
            hint = "make it one row, such as its largest value."
            raise bind_error(node, "this query returns more than one row.", hint) from None
        if values is None:
            hint = "release it in a statement of its own, keep that answer under a name, and read it here."
            raise privacy_error(node, "this number is not released yet.", hint)
        value = values.column(0)[0].as_py()
        if value is None:
            raise bind_error(node, "this number is NULL.")
        span = span_of(node)
        literal = make_literal(value, "the query", span)
        if span is not None:
            literal.meta.update(start=span[0], end=span[1] - 1)
        return literal

    def share(self, relation: Relation, place: exp.Expr) -> Relation:
        """Return a relation that may be read several times, by name if it is large; BindError if the plan is too large."""
        relation, query = share(relation, self.catalog.shared, place)
        if query is not None:
            self.shared[query] = None
        return relation

    # -- sources ------------------------------------------------------------------------------------------------

    def source(self, node: exp.Expr, env: Env) -> Relation | None:
        if _BOUND not in node.meta:
            found = self._new_source(node, env)
            node.meta[_BOUND] = len(self.sources)
            self.sources.append(found)
        return self.sources[int(node.meta[_BOUND])]

    def _new_source(self, node: exp.Expr, env: Env) -> Relation | None:
        if isinstance(node, exp.Table):
            return self._table(node, env)
        if isinstance(node, exp.Subquery):
            relation = self.query(node.this, env, inner=True)
            if relation is None:
                return None
            alias = node.alias or self.name("derived")
            refuse_samples(node)
            refuse_cuts(node)
            if node.alias and node.alias_column_names:
                relation = rename_columns(relation, node.alias_column_names, node)
            return relation.renamed(alias, self.name("derived"))
        if isinstance(node, exp.Values | exp.Unnest):
            self._inside(node, env)
            return None
        if isinstance(node, exp.Lateral):
            return None  # bound with the rows before it
        what = "FROM takes table names and subqueries, not this expression."
        raise bind_error(node, what, "name a table or write a subquery.")

    def _inside(self, node: exp.Expr, env: Env) -> None:
        """Bind the queries in the arguments of a FROM item."""
        for query in list(outer_queries(node)):
            self.public_query(query, env)

    def _table(self, node: exp.Table, env: Env) -> Relation | None:
        if not isinstance(node.this, exp.Identifier):
            function = node.this
            name = function.name or function.sql_name() if isinstance(function, exp.Func) else str(function)
            if isinstance(function, exp.GenerateSeries) or name.lower() in _PUBLIC_FUNCTIONS:
                self._inside(function, env)
                return None
            what = f"{name.lower()} can't be read here: tables come from the policy."
            raise bind_error(node, what, "ask the data owner to name the data in the policy.")
        cte = env.get(fold(node.name))
        if cte is not None:
            if cte.private is None:
                return None
            refuse_samples(node)
            return cte.private.renamed(node.alias_or_name, self.name("cte"))
        table = self.catalog.find(node.name, span_of(node))
        if table.public:
            self.public[table.name] = None
            return None
        refuse_samples(node)
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            hint = f"write {node.name} AS {alias.name}; rename columns in a subquery."
            raise privacy_error(node, "an alias can't rename the columns of a private table.", hint)
        return self.scan(node, table, node.alias_or_name, self.name("table"))

    def from_of(
        self, select: exp.Select, relations: dict[int, Relation | None], env: Env, outer: Names | None = None
    ) -> From:
        bound = bind_from(self, select, relations, env, outer)
        refuse_rows(bound, select)
        sources = (bound.source, *(join.this for join in bound.joins))
        refuse_joined(sum(count_joined(source, self.catalog.shared) for source in sources), select)
        return bound

    def expression(self, node: exp.Expr, names: Names, env: Env) -> Typed:
        return bind_expression(self, node, names, env)
