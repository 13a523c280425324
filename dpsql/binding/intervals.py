"""Intervals of output columns, propagated through a statement.

They propagate from a private block through the CTEs, subqueries and joins above it that only pass a column on. An
interval's ends are additional columns of the release. The public SQL above a block doesn't mention them, so they are
added to each SELECT on the path, but only where that can't be observed: not below a star, DISTINCT, a set operation or
other uses of all columns.

Only :mod:`dpsql.binding.bind` uses it. It is apart because it rewrites trees of public SQL, whatever plan they become.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from sqlglot import exp

from dpsql.binding.interval_ends import (
    ColumnEnds,
    Known,
    Leaf,
    ShownEnds,
    as_double,
    find_ends,
    is_exact,
    is_moment_end,
)
from dpsql.binding.plan import IntervalColumns, PrivateBlock
from dpsql.binding.public_statement import KeptResult, NamedResult, public_columns, spell
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import column, fold
from dpsql.binding.traced_columns import Facts, PublicColumns, TracedColumn, WindowEnds, list_facts
from dpsql.catalogue.row_names import END_CALLS
from dpsql.language.dialect import bind_error, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import ErrorBasis
from dpsql.mechanisms.histograms import EACH_BIN
from dpsql.mechanisms.window_widths import WindowWidths

IntervalEnds = tuple[str, exp.Expr, exp.Expr]
"""An output column, and its interval's ends."""


@dataclass(frozen=True)
class OutputFacts:
    """The facts about the columns of a bound statement, whose intervals it writes into the tree.

    Args:
        tree: the statement, with relations in place of its private blocks.
        known: the facts about its columns before intervals were added.
        relations: those about the columns of releases and kept results.
    """

    tree: exp.Expr
    binder: Binder
    known: PublicColumns
    relations: Mapping[str, list[tuple[str, Facts]]]
    windows: WindowEnds
    kept: Mapping[str, ShownEnds]
    """The columns of kept results with intervals, by relation."""
    wholes: Mapping[str, Collection[str]]
    """The columns of each release with integer types."""
    level: float | None
    """The level of all intervals; None if they differ."""
    confidence: float
    """The level of the displayed intervals."""

    @classmethod
    def of(cls, tree: exp.Expr, binder: Binder, named: Iterable[NamedResult]) -> OutputFacts:
        """Return the facts about a statement with these kept results."""
        kept, blocks = [item.kept for item in named], binder.blocks
        relations = _list_relations(binder, kept)
        known = PublicColumns(tree, relations)
        windows = WindowEnds(tree, binder.ordered_releases, binder.noise_steps, binder.name, known)
        ends = {item.table: {name: (low, high) for name, low, high in item.ends} for item in kept}
        whole = ("BIGINT", "HUGEINT")
        wholes = {block.name: {name for name, kind in block.columns if kind in whole} for block in blocks}
        levels = [*(block.confidence for block in blocks), *(item.confidence for item in kept)]
        level = levels[0] if len(set(levels)) == 1 else None
        confidence = blocks[-1].confidence if blocks else next(iter(levels), 0.95)
        return cls(tree, binder, known, relations, windows, ends, wholes, level, confidence)

    def write_intervals(self) -> tuple[list[IntervalColumns], list[str]]:
        """Add the columns of the outputs' intervals, in place; return them, and why other noisy outputs have none."""
        tree, binder = self.tree, self.binder
        replace_interval_calls(self)
        intervals, missing = list[IntervalColumns](), list[str]()
        if isinstance(tree, exp.Select):
            _name_items(tree, binder)
            ends, missing = propagate_intervals(tree, self)
            for name, low, high in ends:
                keys = (binder.name("low"), binder.name("high"))
                for key, node in zip(keys, (low, high), strict=True):
                    tree.append("expressions", exp.alias_(node, key, quoted=True, copy=False))
                intervals.append(IntervalColumns(name, *keys))
        else:
            intervals += [IntervalColumns(*ends) for ends in propagate_union_intervals(self)]
        divide_exactly(self)
        return intervals, missing

    @property
    def widths(self) -> tuple[WindowWidths, ...]:
        """The relations of half widths that the statement reads."""
        return tuple(self.windows.widths.values())

    @property
    def window_errors(self) -> tuple[WindowWidths, ...]:
        """The windows that traced outputs have errors of."""
        return tuple(self.windows.named.values())

    def trace(self, columns: Sequence[str]) -> tuple[tuple[TracedColumn, ...], tuple[tuple[str, float], ...]]:
        """Return the traces of the finished statement's outputs, and the half widths of the histograms among ``columns``."""
        outputs = PublicColumns(self.tree, self.relations, self.windows.name_window)
        traced = outputs.trace_outputs()
        widths = [
            (name, facts[0].widths)
            for name in columns
            if columns.count(name) == 1 and (facts := outputs.find_columns(self.tree, name))
        ]
        return traced, tuple((name, width) for name, both in widths if len(both) == 1 for width in both)


def _list_relations(binder: Binder, kept: Iterable[KeptResult]) -> dict[str, list[tuple[str, Facts]]]:
    """Return the facts about the columns of releases and kept results; kept results have no traces."""
    bins = _list_bins(binder.blocks)
    found = {}
    for block in binder.blocks:
        names, steps = [name for name, _ in block.columns], binder.noise_steps.get(block.name, {})
        shown = binder.intervals.get(block.name, ())
        found[block.name] = list_facts(block.name, names, steps, bins[block.name], shown)
    for item in kept:
        listed = list_facts(item.table, item.columns, {}, dict(item.bins), {name for name, *_ in item.ends})
        found[item.table] = [(name, replace(facts, sums=(), released=None)) for name, facts in listed]
    return found


def _name_items(tree: exp.Select, binder: Binder) -> None:
    """Give items without an alias, in place, the engine's names, by which intervals find their columns."""
    items = tree.expressions
    kinds = (exp.Alias, exp.Column)
    named = [isinstance(i, kinds) or (isinstance(i, exp.Subquery) and bool(i.alias)) for i in items]
    stars = [at for at, item in enumerate(items) if item.is_star]
    if len(stars) > 1 or all(named) or any(item.find(exp.Columns, exp.Unnest) for item in items):
        return  # an item of many columns hides the others' positions
    shown = public_columns(binder.finish, to_sql(tree), binder.blocks, binder.public)
    spread = len(shown) - len(items)
    for at, item in enumerate(items):
        if not named[at] and not item.is_star:
            name, _ = shown[at + spread if stars and at > stars[0] else at]
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            item.replace(alias)
            alias.set("this", item)


def _list_bins(blocks: Sequence[PrivateBlock]) -> dict[str, dict[str, float]]:
    """Return the half widths of histograms' counts, by the relation of a block and its column."""
    bases = {block.name: ErrorBasis(confidence=block.confidence) for block in blocks}
    return {
        b.name: {e.name: e.error for e in b.operator.errors(bases[b.name]) if e.condition == EACH_BIN}
        for b in blocks
    }


def propagate_intervals(tree: exp.Select, facts: OutputFacts) -> tuple[list[IntervalEnds], list[str]]:
    """Return the intervals of a statement's columns, and why others have none; add the needed columns to SELECTs below.

    If levels differ, SELECTs below have none, since the display has one level.
    """
    carrier = _Carrier(facts)
    own = carrier.read(tree)
    below = own is None and facts.level is not None and not tree.find(exp.Pivot)
    if below and any(carrier.read(select) is not None for select in tree.find_all(exp.Select)):
        carrier.spell_stars()
        own = carrier.of(tree)
    names = Counter(fold(item.alias_or_name) for item in tree.expressions)
    found = [ends for ends in own or [] if names[fold(ends[0])] <= 1]  # a name may be a star's column
    return found, carrier.explain_missing(tree, {fold(name) for name, *_ in own or []})


def propagate_union_intervals(facts: OutputFacts) -> list[tuple[str, str, str]]:
    """Return the columns of a UNION ALL with intervals, and their ends' columns in its sides; none if levels differ."""
    tree = facts.tree
    sides = _list_sides(tree) if isinstance(tree, exp.Union) and not tree.find(exp.Pivot) else []
    if not isinstance(tree, exp.Union) or facts.level is None or not sides:
        return []
    carrier = _Carrier(facts)
    carrier.spell_stars()
    names = [item.alias_or_name for item in sides[0].expressions if not item.is_star]
    counts = Counter(map(fold, names))
    once = [name for name in names if name and counts[fold(name)] == 1]
    return [ends for name in once if (ends := carrier._exposed(tree, name)) is not None]


def replace_interval_calls(facts: OutputFacts) -> None:
    """Replace ``INTERVAL_LOW(n)`` and ``INTERVAL_HIGH(n)`` by interval ends or NULL; BindError unless n is one column."""
    calls = [node for node in facts.tree.find_all(exp.Anonymous) if node.name.upper() in END_CALLS]
    carrier = _Carrier(facts)
    if calls:
        carrier.spell_stars(alone=False)
    for call in calls:
        argument = call.expressions[0] if len(call.expressions) == 1 else None
        columns = [] if argument is None else list(argument.find_all(exp.Column))
        select = call.find_ancestor(exp.Select)
        if argument is None or len(columns) != 1 or select is None:
            name = call.name.upper()
            hint = "name one column of a released answer."
            raise bind_error(call, f"{name} takes one released column.", hint)
        _keep_name(call, select)
        ends = find_ends(argument, carrier._knows(select), facts.level or 0)
        call.replace(_no_number(argument) if ends is None else ends[END_CALLS[call.name.upper()]])


def _keep_name(node: exp.Expr, select: exp.Select) -> None:
    """Give the SELECT item that contains a node its present name as an alias."""
    item = node
    while item.parent is not None and item.parent is not select:
        item = item.parent
    if item.arg_key == "expressions" and not isinstance(item, exp.Alias):
        alias = exp.Alias(alias=exp.to_identifier(spell(item), quoted=True))
        item.replace(alias)
        alias.set("this", item)


def divide_exactly(facts: OutputFacts) -> None:
    """Divide exact values in place of rounded ones: a sum of weighed rows over their count is their mean.

    The exact value is the middle of the interval, whose ends are carried to the quotient. If they can't be, the rounded
    numbers are divided. A count that is rounded to 0 stays 0, so that its quotient is that of DuckDB.
    """
    quotients = list(facts.tree.find_all(exp.Div)) if any(facts.binder.rounded.values()) else []
    carrier = _Carrier(facts)
    if quotients:
        carrier.spell_stars(alone=False)
    for quotient in quotients:
        select = quotient.find_ancestor(exp.Select)
        sides = (quotient.this, quotient.expression)
        if select is None or select.args.get("group"):
            continue
        if not all(facts.known.is_noisy(select, side) for side in sides):
            continue
        for part in map(_find_number, sides):
            columns = list(part.find_all(exp.Column))
            if len(columns) != 1 or not _is_rounded(facts, select, part, columns[0]):
                continue
            ends = find_ends(columns[0], carrier._knows(select), facts.level or 0)
            if ends is not None:
                _keep_name(quotient, select)
                whole = exp.paren(exp.Add(this=ends[0], expression=ends[1]))
                middle = exp.Div(this=whole, expression=exp.Literal.number(2))
                zero = exp.EQ(this=exp.paren(part.copy()), expression=exp.Literal.number(0))
                bounded = exp.Case(ifs=[exp.If(this=zero, true=part.copy())], default=middle)
                divides = quotient.expression.find(exp.Column) in columns
                part.replace(exp.paren(bounded if divides else middle))


def _find_number(node: exp.Expr) -> exp.Expr:
    """Return the number that is multiplied by constants, or NULL if it is 0."""
    while isinstance(node, exp.Mul | exp.Paren | exp.Nullif):
        sides = [side for side in node.iter_expressions() if side.find(exp.Column)]
        if len(sides) != 1:
            return node
        node = sides[0]
    return node


def _is_rounded(outputs: OutputFacts, select: exp.Select, total: exp.Expr, named: exp.Column) -> bool:
    """Return whether an expression is a released number that is rounded, whatever exact types it is cast to."""
    facts = outputs.known.find(select, named)
    released, step = facts.released, facts.step
    if released is None or step is None:
        return False
    return released.name in outputs.binder.rounded.get(released.relation, ()) and is_exact(total, step)


def _no_number(argument: exp.Expr) -> exp.Expr:
    """Return NULL, as an expression that fails if the argument would."""
    never = exp.If(this=exp.false(), true=as_double(argument.copy()))
    return exp.Case(ifs=[never])


@dataclass
class _Carrier:
    """The columns of ends added to the SELECTs of one statement, in ``shown``."""

    facts: OutputFacts
    shown: dict[tuple[int, str], tuple[str, str, str]] = field(default_factory=dict)
    ends: dict[int, list[IntervalEnds]] = field(default_factory=dict)
    """The ends of the columns of a SELECT below; columns added later have none."""

    def read(self, select: exp.Select) -> list[IntervalEnds] | None:
        """Return the ends that a SELECT reads from a release or a kept result; None if it reads no such relation."""
        name = _read_relation(select)
        if select.args.get("distinct"):
            return []
        if name in self.facts.kept:
            kept = self.facts.kept[name].items()
            return [(shown, column(low), column(high)) for shown, (low, high) in kept]
        return self._list(select) if name in self.facts.binder.intervals else None

    def _list(self, select: exp.Select) -> list[IntervalEnds]:
        """Return the ends of a SELECT's items, as far as its columns' are known."""
        find = self._knows(select)
        found: list[IntervalEnds] = []
        for item in select.expressions:
            ends = find_ends(item.unalias(), find, self.facts.level or 0)
            if ends is not None:
                name = item.alias_or_name
                if isinstance(item, exp.Column):
                    name = self._real_name(select, item) or name
                found.append((name, *ends))
        return found

    def _knows(self, select: exp.Select) -> Known:
        """Return the function that finds the ends of a SELECT's columns, from a release or from a SELECT below."""
        name = _read_relation(select)
        direct = self.facts.binder.intervals.get(name) or self.facts.kept.get(name) or {}
        known = name in self.facts.binder.intervals or name in self.facts.kept
        below = not known and select.args.get("from_") is not None
        sources, merged = (self._sources(select), _list_merged(select)) if below else ({}, set[str]())

        def find(node: Leaf) -> ColumnEnds | None:
            if not (known or below):
                return None
            if isinstance(node, exp.Window):
                return self.facts.windows.find(select, node)
            if isinstance(node, exp.Bracket):
                return self.facts.known.find_bin(select, node)
            if known:
                steps, wholes = self.facts.binder.noise_steps.get(name, {}), self.facts.wholes.get(name, ())
                if (pair := direct.get(node.name)) is None:
                    return None
                low, high = map(column, pair)
                return ColumnEnds(low, high, steps.get(node.name), node.name in wholes)
            alias = self._alias(node, sources, merged)
            exposed = self._exposed(sources[alias], node.name) if alias is not None else None
            if exposed is None or alias is None:
                return None
            low, high = (column(end, alias or None) for end in exposed[1:])
            facts = self.facts.known.find_columns(sources[alias], node.name)
            return ColumnEnds(low, high, facts[0].step if facts else None)

        return find

    def _real_name(self, select: exp.Select, node: exp.Column) -> str | None:
        """Return a column's name at its origin, which may differ in case."""
        if _read_relation(select) in self.facts.binder.intervals or select.args.get("from_") is None:
            return None
        sources = self._sources(select)
        alias = self._alias(node, sources, _list_merged(select))
        exposed = self._exposed(sources[alias], node.name) if alias is not None else None
        return None if exposed is None else exposed[0]

    def of(self, select: exp.Select) -> list[IntervalEnds]:
        """Return the ends of a SELECT's own columns, in terms of its FROM."""
        if (own := self.read(select)) is not None:
            return own
        if select.args.get("group") or select.args.get("from_") is None or select.args.get("laterals"):
            return []
        plain = [item for item in select.expressions if item.find(exp.Query) is None]
        kept = select.expressions
        select.set("expressions", plain)
        found = self._list(select)
        select.set("expressions", kept)
        return found

    def _known_of(self, select: exp.Select) -> list[IntervalEnds]:
        """Return :meth:`of` for a SELECT below, cached for its columns."""
        if id(select) not in self.ends:
            self.ends[id(select)] = [ends for ends in self.of(select) if not is_moment_end(ends[1])]
        return self.ends[id(select)]

    def explain_missing(self, tree: exp.Select, found: Collection[str]) -> list[str]:
        """Return, for each output of numbers with intervals that has none, the reason."""
        said = []
        for item in tree.expressions:
            node, name = item.unalias(), item.alias_or_name
            if fold(name) in found or not name or item.is_star or isinstance(node, exp.Predicate):
                continue
            if any(facts.widths for facts in self.facts.known.find_columns(tree, name)):
                continue  # each bin has one
            if self.facts.known.is_noisy(tree, node):
                why = _find_reason(tree, node, self.facts.level)
                if why is not None:
                    said.append(f"no interval for {name}: {why}")
        return said

    def _sources(self, select: exp.Select) -> dict[str, exp.Query]:
        """Return the queries in FROM and JOIN that may get further columns, by alias."""
        found: dict[str, exp.Query] = {}
        for place in [select.args["from_"], *(select.args.get("joins") or [])]:
            node = place.this
            body = self._body(node)
            if body is not None and _is_taken_by_name(node, select):
                found[node.alias_or_name] = body
        return found

    def _body(self, node: exp.Expr) -> exp.Query | None:
        """Return a source's SELECT or UNION ALL, if it may get further columns."""
        body, cte = self._read_source(node)
        if not isinstance(body, exp.Query) or not _list_sides(body):
            return None
        if cte is None:
            return body
        recursive = cte.parent is not None and cte.parent.args.get("recursive")
        users = [t for t in self.facts.tree.find_all(exp.Table) if fold(t.name) == fold(node.name)]
        known = all(_is_taken_by_name(user, user.find_ancestor(exp.Select)) for user in users)
        return body if known and not recursive else None

    def _read_source(self, node: exp.Expr) -> tuple[exp.Expr | None, exp.CTE | None]:
        """Return the query that a source reads, and its CTE, whose columns keep their names."""
        if isinstance(node, exp.Subquery):
            return node.this, None
        cte = self.facts.known.find_cte(node) if isinstance(node, exp.Table) else None
        return (None, None) if cte is None or cte.alias_column_names else (cte.this, cte)

    def spell_stars(self, alone: bool = True) -> None:
        """Replace each ``SELECT * FROM one`` by its columns, if known; with ``alone``, only if the star is the only item."""
        for select in reversed(list(self.facts.tree.find_all(exp.Select))):  # innermost first
            self._spell_star(select, alone)

    def _spell_star(self, select: exp.Select, alone: bool) -> None:
        from_ = select.args.get("from_")
        stars = [item for item in select.expressions if item.is_star]
        star = stars[0] if len(stars) == 1 and not (alone and len(select.expressions) > 1) else None
        if not isinstance(star, exp.Star) or any(star.args.values()) or from_ is None:
            return
        if select.args.get("joins") or select.args.get("laterals"):
            return
        node = from_.this
        body, _ = self._read_source(node)
        sides = _list_sides(body) if isinstance(body, exp.Query) else []
        if not sides or node.alias_column_names:
            return
        named = (exp.Alias, exp.Column, exp.Subquery)  # DuckDB names other items itself
        names = [item.alias_or_name if isinstance(item, named) else "" for item in sides[0].expressions]
        plain = all(names) and not any(item.is_star for item in sides[0].expressions)
        if plain and len({fold(name) for name in names}) == len(names):
            spelled = [exp.alias_(column(n, node.alias_or_name or None), n, quoted=True) for n in names]
            at = select.expressions.index(star)
            select.set("expressions", [*select.expressions[:at], *spelled, *select.expressions[at + 1 :]])

    def _alias(self, node: exp.Expr, sources: Mapping[str, exp.Query], merged: Collection[str]) -> str | None:
        """Return the source of a column, if it is unambiguous."""
        assert isinstance(node, exp.Column)
        if node.table:
            return next((alias for alias in sources if fold(alias) == fold(node.table)), None)
        if fold(node.name) in merged:
            return None
        having = [alias for alias, body in sources.items() if _find_item(body, node.name) is not None]
        return having[0] if len(having) == 1 else None

    def _exposed(self, body: exp.Query, name: str) -> tuple[str, str, str] | None:
        """Return a column's shown name, and those of its ends in the query."""
        key = (id(body), fold(name))
        if key not in self.shown:
            sides = _list_sides(body)
            ends = self._find_sides(sides, name)
            if not any(end is not None for end in ends):
                return None
            item = _find_item(body, name)
            real = name if item is None else item.alias_or_name
            if len(sides) == 1 and ends[0] is not None:
                real = ends[0][0]
            pair = (self.facts.binder.name("low"), self.facts.binder.name("high"))
            for side, end in zip(sides, ends, strict=True):
                nodes = end[1:] if end is not None else (exp.Null(), exp.Null())
                for shown, node in zip(pair, nodes, strict=True):
                    side.append("expressions", exp.alias_(as_double(node.copy()), shown, quoted=True))
            self.shown[key] = (real, *pair)
        return self.shown[key]

    def _find_sides(self, sides: list[exp.Select], name: str) -> list[IntervalEnds | None]:
        """Return the ends of one output column in each side of a UNION ALL, which matches columns by position."""
        if len(sides) == 1:
            return [next((e for e in self._known_of(sides[0]) if fold(e[0]) == fold(name)), None)]
        place = [fold(item.alias_or_name) for item in sides[0].expressions].index(fold(name))
        found: list[IntervalEnds | None] = []
        for side in sides:
            item = side.expressions[place] if place < len(side.expressions) else None
            names = [fold(i.alias_or_name) for i in side.expressions]
            wanted = fold(item.alias_or_name) if item is not None else ""
            ends = self._known_of(side) if wanted and names.count(wanted) == 1 else []
            found.append(next((e for e in ends if fold(e[0]) == wanted), None))
        return found


def _advise_on_difference(node: exp.Expr, level: float | None) -> str:
    """Return a hint for the ends of a difference of two columns: both hold if each fails half as often."""
    inner = node.unnest()
    sides = (inner.this.unnest(), inner.expression.unnest()) if isinstance(inner, exp.Sub) else ()
    if level is None or not sides or not all(isinstance(side, exp.Column) for side in sides):
        return ""
    a, b = (side.sql(dialect="duckdb", comments=False) for side in sides)
    return (
        f"; release them with confidence = {1 - (1 - level) / 2:.6g} (free, where only that is changed), and write "
        f"INTERVAL_LOW({a}) - INTERVAL_HIGH({b}) and INTERVAL_HIGH({a}) - INTERVAL_LOW({b}): these hold at {level:.6g}"
    )


_NUMBERS_MAKE = (exp.Binary, exp.Func, exp.Window, exp.Neg, exp.Paren, exp.Cast, exp.Column)


def _find_reason(tree: exp.Select, node: exp.Expr, level: float | None) -> str | None:
    """Return why an expression over numbers with intervals has none; None if it is no number."""
    if isinstance(node, exp.Case | exp.If | exp.Literal | exp.Boolean | exp.Struct | exp.Map | exp.Array):
        return None
    window = node.find(exp.Window)
    if window is not None:  # a rank is a position, not a noisy number
        joins = window.this.find(exp.Column) is not None
        return "it joins the noise of several rows" if joins else None
    if tree.args.get("group") is not None or node.find(exp.AggFunc) is not None:
        return "it is made of several rows, each with noise"
    if tree.args.get("distinct") is not None:
        return "equal rows were dropped"
    if len({(c.table, c.name) for c in node.find_all(exp.Column)}) > 1:
        several = "it is made of several numbers, and not of noisy counts and sums alone"
        return several + _advise_on_difference(node, level)
    return "intervals are not carried through this expression" if isinstance(node, _NUMBERS_MAKE) else None


# -- queries that may get further columns ---------------------------------------------------------------------------


def _read_relation(select: exp.Select) -> str:
    """Return the name of the one table that a SELECT reads; empty if it reads a query."""
    from_ = select.args.get("from_")
    return str(from_.this.name) if from_ is not None and isinstance(from_.this, exp.Table) else ""


def _list_merged(select: exp.Select) -> set[str]:
    joins = select.args.get("joins") or []
    return {fold(name.name) for join in joins for name in join.args.get("using") or []}


def _list_sides(body: exp.Query) -> list[exp.Select]:
    """Return a query's SELECT, or those of a UNION ALL; empty for other queries, and if it removes duplicates."""
    if isinstance(body, exp.Select):
        return [] if body.args.get("distinct") else [body]
    if isinstance(body, exp.Subquery) and isinstance(body.this, exp.Query) and not body.args.get("alias"):
        return _list_sides(body.this)
    if not isinstance(body, exp.Union) or body.args.get("distinct") or body.args.get("by_name"):
        return []
    sides = [_list_sides(side) for side in (body.left, body.right)]
    alike = all(sides) and len({len(side.expressions) for group in sides for side in group}) == 1
    return [side for group in sides for side in group] if alike else []


def _find_item(body: exp.Query, name: str) -> exp.Expr | None:
    """Return the item of that name in a query, or in the first side of a UNION ALL."""
    sides = _list_sides(body)
    items = sides[0].expressions if sides else []
    return next((item for item in items if fold(item.alias_or_name) == fold(name)), None)


def _is_taken_by_name(source: exp.Expr, select: exp.Select | None) -> bool:
    """Return whether a SELECT uses only named columns of an item in its FROM."""
    if select is None or any(source.args.get(key) for key in ("pivots", "sample")):
        return False
    if source.args.get("alias") and source.args["alias"].args.get("columns"):
        return False
    if any(join.args.get("method") for join in select.args.get("joins") or []):
        return False  # NATURAL, POSITIONAL: all columns matter
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
