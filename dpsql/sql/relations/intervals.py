"""Intervals of output columns, carried up through a statement, and kept results, which carry theirs to later statements.

Intervals go up from a private block through CTEs, subqueries and joins above it, where a column only goes on.

The ends of an interval stand in columns beside the released number. What is above a block is public SQL that knows nothing
of them, so they are added to each SELECT on the way. That is done only where nobody can see it: not below a star, DISTINCT,
a set operation or whatever else takes all columns that there are.

A name that no WITH gives means a kept result before it means a public table. Each kept result becomes a public CTE in front of
the statement, which shows its columns and knows the ends of their intervals: from there on both go their way as those of a
private block's release do. The ends are columns too, ``n__low`` and ``n__high``, for statements that name them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.sql.parse.dialect import bind_error, table_named
from dpsql.sql.relations.relation import column, fold

_DOUBLE = exp.DataType.build("DOUBLE", dialect="duckdb")


def ends_of(node: exp.Expr, low: exp.Expr, high: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the expression over each end of its one column's interval; None where it may turn them round."""
    if not _monotone(node):
        return None
    ends = []
    for end in (low, high):
        ends.append(exp.Cast(this=node.copy(), to=_DOUBLE.copy()))
        next(ends[-1].find_all(exp.Column)).replace(end)
    return ends[0], ends[1]


def _monotone(node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Paren | exp.Cast | exp.Round | exp.Exp):
        return _monotone(node.this)
    if isinstance(node, (exp.Add, exp.Greatest | exp.Least)):
        rest = [c for c in node.iter_expressions() if not isinstance(c, exp.Literal)]
        return len(rest) == 1 and _monotone(rest[0])
    if isinstance(node, exp.Sub | exp.Div):
        return isinstance(node.expression, exp.Literal) and _monotone(node.this)
    return False


def write_json_report(name: str, confidence: float) -> exp.Expr:
    """Write GoogleSQL's JSON report of a value and its interval."""
    value, low, high = (column(f"{name}{end}") for end in ("", "__low", "__high"))
    level = exp.Literal.number(confidence)
    interval = _struct(lower_bound=low, upper_bound=high, confidence_level=level)
    result = _struct(value=value, noise_confidence_interval=interval)
    return exp.Anonymous(this="to_json", expressions=[_struct(result=result)])


def _struct(**fields: exp.Expr) -> exp.Expr:
    pairs = (exp.PropertyEQ(this=exp.to_identifier(key), expression=value) for key, value in fields.items())
    return exp.Struct(expressions=list(pairs))


IntervalEnds = tuple[str, exp.Expr, exp.Expr]
"""An output column, and the ends of its interval."""

ShownEnds = Mapping[str, tuple[str, str]]
"""Columns of a relation that have intervals, each with the columns in which the lower and the upper ends stand."""


def propagate_intervals(
    tree: exp.Select, releases: Mapping[str, ShownEnds], kept: Mapping[str, ShownEnds], below: bool = True
) -> list[IntervalEnds]:
    """Return the intervals of a statement's columns; the SELECTs below are made to show what is needed for that.

    Args:
        tree: the statement.
        releases: the relations that its blocks release.
        kept: the relations of the kept results that it names.
        below: whether SELECTs below count; not where levels of confidence differ, for the display knows one.
    """
    carrier = _Carrier(tree, releases, kept)
    own = carrier.read(tree)
    if not (own or not below or tree.find(exp.Pivot)):
        selects = list(tree.find_all(exp.Select))
        if any(carrier.read(select) is not None for select in selects):
            for select in reversed(selects):  # the innermost first
                carrier.spell_star(select)
            return carrier.of(tree)
    return own or []


_ENDS = {"INTERVAL_LOW": 0, "INTERVAL_HIGH": 1}
"""The calls that mean an end of an interval."""


def replace_interval_calls(
    tree: exp.Expr,
    releases: Mapping[str, ShownEnds],
    kept: Mapping[str, ShownEnds],
    spell: Callable[[exp.Expr], str],
) -> None:
    """Put the ends of intervals where a statement says ``INTERVAL_LOW(n)`` or ``INTERVAL_HIGH(n)``; NULL where there is none.

    Args:
        tree: the statement, changed in place.
        releases: the relations that its blocks release.
        kept: the relations of the kept results that it names.
        spell: writes what a column without an alias is called.

    Raises:
        BindError: such a call has not one column in its argument.
    """
    calls = [node for node in tree.find_all(exp.Anonymous) if node.name.upper() in _ENDS]
    carrier = _Carrier(tree, releases, kept)
    if calls:
        for below in reversed(list(tree.find_all(exp.Select))):  # the innermost first
            carrier.spell_star(below, alone=False)
    for call in calls:
        argument = call.expressions[0] if len(call.expressions) == 1 else None
        columns = [] if argument is None else list(argument.find_all(exp.Column))
        select = call.find_ancestor(exp.Select)
        if argument is None or len(columns) != 1 or select is None:
            name = call.name.upper()
            hint = f"write SELECT n, {name}(n) FROM (SELECT COUNT(*) AS n FROM t) AS r."
            raise bind_error(call, f"{name} takes one released column.", hint)
        item: exp.Expr = call
        while item.parent is not None and item.parent is not select:
            item = item.parent
        if item.arg_key == "expressions" and not isinstance(item, exp.Alias):
            alias = exp.Alias(alias=exp.to_identifier(spell(item), quoted=True))
            item.replace(alias)
            alias.set("this", item)
        ends = carrier.ends_in(select, argument, columns[0])
        call.replace(_no_number(argument) if ends is None else ends[_ENDS[call.name.upper()]])


def _no_number(argument: exp.Expr) -> exp.Expr:
    """Return NULL, by an expression that fails where the argument would."""
    never = exp.If(this=exp.false(), true=exp.Cast(this=argument.copy(), to=_DOUBLE.copy()))
    return exp.Case(ifs=[never])


@dataclass
class _Carrier:
    """The columns of ends that the SELECTs of one statement have been given, in ``shown``."""

    tree: exp.Expr
    releases: Mapping[str, ShownEnds]
    kept: Mapping[str, ShownEnds]
    shown: dict[tuple[int, str], tuple[str, str, str]] = field(default_factory=dict)

    def read(self, select: exp.Select) -> list[IntervalEnds] | None:
        """Return the ends that a SELECT reads from a release or a kept result; None where it reads no such relation."""
        from_ = select.args.get("from_")
        name = from_.this.name if from_ is not None and isinstance(from_.this, exp.Table) else ""
        if select.args.get("distinct"):
            return []
        if name in self.kept:
            return [(shown, column(low), column(high)) for shown, (low, high) in self.kept[name].items()]
        if name not in self.releases:
            return None
        found: list[IntervalEnds] = []
        for item in select.expressions:
            columns = list(item.find_all(exp.Column))
            pair = self.releases[name].get(columns[0].name) if len(columns) == 1 else None
            ends = ends_of(item.unalias(), column(pair[0]), column(pair[1])) if pair is not None else None
            if ends is not None:
                found.append((item.alias_or_name, *ends))
        return found

    def of(self, select: exp.Select) -> list[IntervalEnds]:
        """Return the ends of a SELECT's own columns, in terms of its FROM."""
        if (own := self.read(select)) is not None:
            return own
        if select.args.get("group") or select.args.get("from_") is None or select.args.get("laterals"):
            return []
        sources = self._sources(select)
        merged = {
            fold(name.name)
            for join in select.args.get("joins") or []
            for name in join.args.get("using") or []
        }
        found: list[IntervalEnds] = []
        for item in select.expressions:
            nodes = list(item.find_all(exp.Column))
            if len(nodes) != 1 or item.find(exp.Query) is not None:
                continue
            node = nodes[0]
            alias = self._alias(node, sources, merged)
            exposed = self._exposed(sources[alias], node.name) if alias is not None else None
            if exposed is None:
                continue
            real, *pair = exposed
            ends = ends_of(item.unalias(), *(column(name, alias or None) for name in pair))
            if ends is not None:
                found.append((real if item is node else item.alias_or_name, *ends))
        return found

    def ends_in(self, select: exp.Select, node: exp.Expr, of: exp.Column) -> tuple[exp.Expr, exp.Expr] | None:
        """Return the ends of an expression over one column, where it stands in a SELECT; None where it has no interval."""
        from_ = select.args.get("from_")
        if from_ is None:
            return None
        name = from_.this.name if isinstance(from_.this, exp.Table) else ""
        direct = self.releases.get(name) or self.kept.get(name)
        if direct is not None:
            pair = direct.get(of.name)
            return None if pair is None else ends_of(node, column(pair[0]), column(pair[1]))
        sources = self._sources(select)
        merged = {
            fold(n.name) for join in select.args.get("joins") or [] for n in join.args.get("using") or []
        }
        alias = self._alias(of, sources, merged)
        exposed = self._exposed(sources[alias], of.name) if alias is not None else None
        return None if exposed is None else ends_of(node, *(column(n, alias or None) for n in exposed[1:]))

    def _sources(self, select: exp.Select) -> dict[str, exp.Select]:
        """Return the SELECTs that stand in FROM and JOIN, by alias; only those that may be given columns."""
        found: dict[str, exp.Select] = {}
        for place in [select.args["from_"], *(select.args.get("joins") or [])]:
            node = place.this
            body = self._body(node)
            if body is not None and _by_name(node, select):
                found[node.alias_or_name] = body
        return found

    def _body(self, node: exp.Expr) -> exp.Select | None:
        """Return the SELECT that a source is, where it may be given columns."""
        body, cte = self._read(node)
        if not isinstance(body, exp.Select) or body.args.get("distinct"):
            return None
        if cte is None:
            return body
        recursive = cte.parent is not None and cte.parent.args.get("recursive")
        users = [t for t in self.tree.find_all(exp.Table) if fold(t.name) == fold(node.name)]
        known = all(_by_name(user, user.find_ancestor(exp.Select)) for user in users)
        return body if known and not recursive else None

    def _read(self, node: exp.Expr) -> tuple[exp.Expr | None, exp.CTE | None]:
        """Return the query that a source reads, and the CTE that holds it, whose columns keep their names."""
        if isinstance(node, exp.Subquery):
            return node.this, None
        if not isinstance(node, exp.Table) or node.args.get("db"):
            return None, None
        ctes = [cte for cte in self.tree.find_all(exp.CTE) if fold(cte.alias) == fold(node.name)]
        plain = len(ctes) == 1 and not ctes[0].args["alias"].args.get("columns")
        return (ctes[0].this, ctes[0]) if plain else (None, None)

    def spell_star(self, select: exp.Select, alone: bool = True) -> None:
        """Write ``SELECT * FROM one`` as its columns by name, where those are known; not beside more columns if ``alone``."""
        from_ = select.args.get("from_")
        stars = [item for item in select.expressions if item.is_star]
        star = stars[0] if len(stars) == 1 and not (alone and len(select.expressions) > 1) else None
        if not isinstance(star, exp.Star) or any(star.args.values()) or from_ is None:
            return
        if select.args.get("joins") or select.args.get("laterals"):
            return
        node = from_.this
        body, _ = self._read(node)
        if not isinstance(body, exp.Select) or not node.alias_or_name or node.alias_column_names:
            return
        names = [item.alias_or_name for item in body.expressions]
        plain = all(names) and not any(item.is_star for item in body.expressions)
        if plain and len({fold(name) for name in names}) == len(names):
            spelled = [exp.alias_(column(n, node.alias_or_name), n, quoted=True) for n in names]
            at = select.expressions.index(star)
            select.set("expressions", [*select.expressions[:at], *spelled, *select.expressions[at + 1 :]])

    def _alias(self, node: exp.Expr, sources: dict[str, exp.Select], merged: set[str]) -> str | None:
        """Return the source that a column comes from, where that is certain."""
        assert isinstance(node, exp.Column)
        if node.table:
            return next((alias for alias in sources if fold(alias) == fold(node.table)), None)
        if fold(node.name) in merged:
            return None
        having = [
            alias
            for alias, body in sources.items()
            if any(fold(item.alias_or_name) == fold(node.name) for item in body.expressions)
        ]
        return having[0] if len(having) == 1 else None

    def _exposed(self, body: exp.Select, name: str) -> tuple[str, str, str] | None:
        """Return a column's name as it is shown, and the names of those in which the SELECT shows its ends."""
        key = (id(body), fold(name))
        if key not in self.shown:
            ends = next((e for e in self.of(body) if fold(e[0]) == fold(name)), None)
            if ends is None:
                return None
            pair = (f"dpsql_low_of_{ends[0]}", f"dpsql_high_of_{ends[0]}")
            for shown, node in zip(pair, ends[1:], strict=True):
                body.select(exp.alias_(node.copy(), shown, quoted=True), copy=False)
            self.shown[key] = (ends[0], *pair)
        return self.shown[key]


def _by_name(source: exp.Expr, select: exp.Select | None) -> bool:
    """Return whether a SELECT takes from what stands in its FROM only the columns that it names."""
    if select is None or any(source.args.get(key) for key in ("pivots", "sample")):
        return False
    if source.args.get("alias") and source.args["alias"].args.get("columns"):
        return False
    if any(join.args.get("method") for join in select.args.get("joins") or []):
        return False  # NATURAL, POSITIONAL: they look at all columns
    names = {fold(source.alias_or_name), fold(source.name)}
    for item in select.find_all(exp.Star, exp.Columns, exp.Column):
        if isinstance(item, exp.Column):
            if not item.table and fold(item.name) in names:
                return False  # a whole row as a value
            continue
        of = item.parent.table if isinstance(item.parent, exp.Column) else ""
        if isinstance(item.parent, exp.Count) or (of and fold(of) != fold(source.alias_or_name)):
            continue
        return False
    return True


_CTE = "dpsql_kept_as_"
FORETOLD = "dpsql_foretold_"
"""Begins the names of relations whose rows are not known yet: those of a statement before this one."""


@dataclass(frozen=True)
class KeptResult:
    """A kept result.

    Args:
        name: what the analyst calls it. table: the relation that holds it, which names its content.
        columns: its columns. ends: for those with intervals, the columns in which the ends stand.
        confidence: level of the intervals.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    ends: tuple[tuple[str, str, str], ...] = ()
    confidence: float = 0.95


def kept_cte_name(name: str) -> str:
    """Return the name of the CTE that stands for a kept result."""
    return f"{_CTE}{fold(name)}"


@dataclass(frozen=True)
class NamedResult:
    """A kept result that a statement names, and the CTE that stands for it."""

    kept: KeptResult
    cte: exp.CTE


def name_kept_results(tree: exp.Expr, kept: Mapping[str, KeptResult]) -> list[NamedResult]:
    """Return the kept results that a statement names; there, in place, it names their CTEs from now on."""
    found: dict[str, KeptResult] = {}
    if kept:
        _visit(tree, frozenset(), kept, found)
    written = {fold(node.name) for node in tree.find_all(exp.Identifier)} if found else set()
    return [NamedResult(item, _as_cte(item, written)) for item in found.values()]


def prepend_kept_results(tree: exp.Expr, named: list[NamedResult]) -> None:
    """Put the CTEs that a statement still names in front of it, in place."""
    tables = {node.name for node in tree.find_all(exp.Table)} if named else set()
    made = [item.cte for item in named if item.cte.alias in tables]
    own = tree.args.get("with_")
    if made:
        rest = own.expressions if own is not None else []
        recursive = own.args.get("recursive") if own is not None else None
        tree.set("with_", exp.With(expressions=[*made, *rest], recursive=recursive))


def _visit(
    node: exp.Expr, hidden: frozenset[str], kept: Mapping[str, KeptResult], found: dict[str, KeptResult]
) -> None:
    """Find the names that mean kept results; ``hidden`` are those that WITH gives another meaning."""
    with_ = node.args.get("with_")
    for cte in with_.expressions if with_ is not None else ():
        after = hidden | {fold(cte.alias)}
        recursive = with_ is not None and with_.args.get("recursive")
        _visit(cte.this, after if recursive else hidden, kept, found)
        hidden = after
    for child in list(node.iter_expressions()):
        if child is not with_:
            _visit(child, hidden, kept, found)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db"):
        item = kept.get(fold(node.name)) if fold(node.name) not in hidden else None
        if item is not None:
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            written = node.this
            node.set("this", exp.to_identifier(kept_cte_name(item.name), quoted=True))
            node.this.meta.update(written.meta)
            found[item.name] = item
    if isinstance(node, exp.Window) and isinstance(node.args.get("alias"), exp.Identifier):
        name = fold(node.args["alias"].name)
        if name in kept and name not in hidden:  # the candidates of a mechanism
            found[kept[name].name] = kept[name]


def _as_cte(item: KeptResult, named: set[str]) -> exp.CTE:
    ends = [name for _, *pair in item.ends for name in pair if fold(name) in named]
    select = exp.Select(
        expressions=[exp.alias_(column(name), name, quoted=True) for name in (*item.columns, *ends)]
    )
    select.set("from_", exp.From(this=table_named(item.table)))
    alias = exp.TableAlias(this=exp.to_identifier(kept_cte_name(item.name), quoted=True))
    return exp.CTE(this=select, alias=alias)
