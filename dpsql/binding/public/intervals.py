"""Intervals of output columns, propagated through a statement.

They propagate from a private block through the CTEs, subqueries and joins above it that only pass a column on. An
interval's ends are additional columns of the release. The public SQL above a block doesn't mention them, so they are
added to each SELECT on the path, but only where that can't be observed: not below a star, DISTINCT, a set operation or
other uses of all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

from sqlglot import exp

from dpsql.binding.public.interval_ends import (
    BinWidths,
    ColumnEnds,
    EndPair,
    Known,
    Leaf,
    find_bin_ends,
    find_ends,
    find_map_width,
    is_exact,
    list_leaves,
)
from dpsql.binding.public.traced_columns import (
    find_item,
    is_taken_by_name,
    list_merged,
    list_sides,
    read_relation,
    read_source,
    spell_item,
)
from dpsql.binding.relations.own_names import MakeName
from dpsql.binding.relations.relation import column, fold
from dpsql.language.dialect import bind_error

_DOUBLE = exp.DataType.build("DOUBLE", dialect="duckdb")


def write_json_report(name: str, confidence: float) -> exp.Expr:
    """Return GoogleSQL's JSON report of a value and its interval."""
    value, low, high = (column(f"{name}{end}") for end in ("", "__low", "__high"))
    level = exp.Literal.number(confidence)
    interval = _struct(lower_bound=low, upper_bound=high, confidence_level=level)
    result = _struct(value=value, noise_confidence_interval=interval)
    return exp.Anonymous(this="to_json", expressions=[_struct(result=result)])


def _struct(**fields: exp.Expr) -> exp.Expr:
    pairs = (exp.PropertyEQ(this=exp.to_identifier(key), expression=value) for key, value in fields.items())
    return exp.Struct(expressions=list(pairs))


IntervalEnds = tuple[str, exp.Expr, exp.Expr]
"""An output column, and its interval's ends."""

ShownEnds = Mapping[str, tuple[str, str]]
"""Columns of a relation with intervals, each with the columns of its lower and upper ends."""


@dataclass(frozen=True)
class Shapes:
    """The known facts about the noise of released columns, by release and column.

    Args:
        noise_steps: the noise steps of exact numbers with symmetric, log-concave noise.
        wholes: the columns of each release with integer types.
        bins: the half widths of histograms' counts, by relation and column.
    """

    noise_steps: Mapping[str, Mapping[str, Fraction]] = field(default_factory=dict)
    level: float | None = None
    wholes: Mapping[str, Collection[str]] = field(default_factory=dict)
    bins: BinWidths = field(default_factory=dict)
    find_window: Callable[[exp.Select, exp.Window], ColumnEnds | None] = lambda _, __: None
    """Finds the ends of a window sum over neighbouring groups in a SELECT."""
    rounded: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The released numbers that are rounded, where the middles of their intervals are not, by release."""


def propagate_intervals(
    tree: exp.Select,
    releases: Mapping[str, ShownEnds],
    kept: Mapping[str, ShownEnds],
    shapes: Shapes,
    make_name: MakeName,
) -> tuple[list[IntervalEnds], list[str]]:
    """Return the intervals of a statement's columns, and why others have none; add the needed columns to SELECTs below.

    ``shapes``: the facts about the noise. If levels differ, no SELECT below counts, for the display has one level.
    """
    carrier = _Carrier(tree, releases, kept, shapes, make_name)
    own = carrier.read(tree)
    if own is None and shapes.level is not None and not tree.find(exp.Pivot):
        selects = list(tree.find_all(exp.Select))
        if any(carrier.read(select) is not None for select in selects):
            for select in reversed(selects):  # innermost first
                carrier.spell_star(select)
            own = carrier.of(tree)
    names = [fold(item.alias_or_name) for item in tree.expressions]
    found = [ends for ends in own or [] if names.count(fold(ends[0])) <= 1]  # a name may be a star's column
    return found, carrier.explain_missing(tree, {fold(name) for name, *_ in own or []})


def propagate_union_intervals(
    tree: exp.Expr,
    releases: Mapping[str, ShownEnds],
    kept: Mapping[str, ShownEnds],
    shapes: Shapes,
    make_name: MakeName,
) -> list[tuple[str, str, str]]:
    """Return the columns of a UNION ALL with intervals, each with its ends' columns, which its sides now show.

    Takes the arguments of :func:`propagate_intervals`. If levels differ there are none.
    """
    sides = list_sides(tree) if isinstance(tree, exp.Union) and not tree.find(exp.Pivot) else []
    if not isinstance(tree, exp.Union) or shapes.level is None or not sides:
        return []
    carrier = _Carrier(tree, releases, kept, shapes, make_name)
    for select in reversed(list(tree.find_all(exp.Select))):  # innermost first
        carrier.spell_star(select)
    names = [item.alias_or_name for item in sides[0].expressions if not item.is_star]
    once = [name for name in names if name and [fold(other) for other in names].count(fold(name)) == 1]
    return [ends for name in once if (ends := carrier._exposed(tree, name)) is not None]


_ENDS = {"INTERVAL_LOW": 0, "INTERVAL_HIGH": 1}
"""The calls for an end of an interval."""


def replace_interval_calls(
    tree: exp.Expr,
    releases: Mapping[str, ShownEnds],
    kept: Mapping[str, ShownEnds],
    spell: Callable[[exp.Expr], str],
    shapes: Shapes,
    make_name: MakeName,
) -> None:
    """Replace ``INTERVAL_LOW(n)`` and ``INTERVAL_HIGH(n)`` by interval ends or NULL; BindError unless n is one column."""
    calls = [node for node in tree.find_all(exp.Anonymous) if node.name.upper() in _ENDS]
    carrier = _Carrier(tree, releases, kept, shapes, make_name)
    if calls:
        for below in reversed(list(tree.find_all(exp.Select))):  # innermost first
            carrier.spell_star(below, alone=False)
    for call in calls:
        argument = call.expressions[0] if len(call.expressions) == 1 else None
        columns = [] if argument is None else list(argument.find_all(exp.Column))
        select = call.find_ancestor(exp.Select)
        if argument is None or len(columns) != 1 or select is None:
            name = call.name.upper()
            hint = "name one column of a released answer."
            raise bind_error(call, f"{name} takes one released column.", hint)
        _keep_name(call, select, spell)
        ends = carrier.ends_in(select, argument, columns[0])
        call.replace(_no_number(argument) if ends is None else ends[_ENDS[call.name.upper()]])


def _keep_name(node: exp.Expr, select: exp.Select, spell: Callable[[exp.Expr], str]) -> None:
    """Give the item of a SELECT that a node stands in the name that it has now."""
    item = node
    while item.parent is not None and item.parent is not select:
        item = item.parent
    if item.arg_key == "expressions" and not isinstance(item, exp.Alias):
        alias = exp.Alias(alias=exp.to_identifier(spell(item), quoted=True))
        item.replace(alias)
        alias.set("this", item)


def divide_exactly(
    tree: exp.Expr,
    releases: Mapping[str, ShownEnds],
    kept: Mapping[str, ShownEnds],
    spell: Callable[[exp.Expr], str],
    shapes: Shapes,
    make_name: MakeName,
) -> None:
    """Divide exact values in place of rounded ones: a sum of weighed rows over their count is their mean.

    The exact value is the middle of the interval, whose ends are carried to the quotient. Where they can't be, the rounded
    numbers are divided. A count that is rounded to 0 stays 0, so that its quotient is that of DuckDB.
    """
    quotients = list(tree.find_all(exp.Div)) if any(shapes.rounded.values()) else []
    carrier = _Carrier(tree, releases, kept, shapes, make_name)
    if quotients:
        for below in reversed(list(tree.find_all(exp.Select))):  # innermost first
            carrier.spell_star(below, alone=False)
    for quotient in quotients:
        select = quotient.find_ancestor(exp.Select)
        sides = (quotient.this, quotient.expression)
        if select is None or select.args.get("group") or not all(carrier.is_noisy(select, s) for s in sides):
            continue
        for part in map(_find_number, sides):
            columns = list(part.find_all(exp.Column))
            if len(columns) != 1 or not carrier.is_rounded(select, part):
                continue
            ends = carrier.ends_in(select, columns[0], columns[0])
            if ends is not None:
                _keep_name(quotient, select, spell)
                middle = exp.Div(
                    this=exp.paren(exp.Add(this=ends[0], expression=ends[1])),
                    expression=exp.Literal.number(2),
                )
                zero = exp.EQ(this=exp.paren(part.copy()), expression=exp.Literal.number(0))
                held = exp.Case(ifs=[exp.If(this=zero, true=part.copy())], default=middle)
                part.replace(exp.paren(held if quotient.expression.find(exp.Column) in columns else middle))


def _find_number(node: exp.Expr) -> exp.Expr:
    """Return the number that is multiplied by constants, or NULL where it is 0."""
    while isinstance(node, exp.Mul | exp.Paren | exp.Nullif):
        sides = [side for side in node.iter_expressions() if side.find(exp.Column)]
        if len(sides) != 1:
            return node
        node = sides[0]
    return node


def _no_number(argument: exp.Expr) -> exp.Expr:
    """Return NULL, as an expression that fails if the argument would."""
    never = exp.If(this=exp.false(), true=exp.Cast(this=argument.copy(), to=_DOUBLE.copy()))
    return exp.Case(ifs=[never])


@dataclass
class _Carrier:
    """The columns of ends added to the SELECTs of one statement, in ``shown``."""

    tree: exp.Expr
    releases: Mapping[str, ShownEnds]
    kept: Mapping[str, ShownEnds]
    shapes: Shapes
    make_name: MakeName
    shown: dict[tuple[int, str], tuple[str, str, str]] = field(default_factory=dict)
    ends: dict[int, list[IntervalEnds]] = field(default_factory=dict)
    """The ends of the columns of a SELECT below; columns added later have none."""
    _below: dict[int, tuple[dict[str, exp.Query], Collection[str]]] = field(default_factory=dict)
    """The sources of a SELECT below and its merged columns, which added columns of ends don't change."""
    _read: dict[int, dict[str, exp.Expr] | None] = field(default_factory=dict)
    """The items of a source's SELECT, by name, valid while nothing changes; None for other sources."""

    def read(self, select: exp.Select) -> list[IntervalEnds] | None:
        """Return the ends that a SELECT reads from a release or a kept result; None if it reads no such relation."""
        name = read_relation(select)
        if select.args.get("distinct"):
            return []
        if name in self.kept:
            return [(shown, column(low), column(high)) for shown, (low, high) in self.kept[name].items()]
        return self._list(select) if name in self.releases else None

    def _list(self, select: exp.Select) -> list[IntervalEnds]:
        """Return the ends of a SELECT's items, as far as its columns' are known."""
        find = self._knows(select)
        found: list[IntervalEnds] = []
        for item in select.expressions:
            ends = find_ends(item.unalias(), find, self.shapes.level or 0)
            if ends is not None:
                name = item.alias_or_name
                if isinstance(item, exp.Column):
                    name = self._real_name(select, item) or name
                found.append((name, *ends))
        return found

    def _knows(self, select: exp.Select) -> Known:
        """Return the function that finds the ends of a SELECT's columns, from a release or from a SELECT below."""
        name = read_relation(select)
        direct = self.releases.get(name) or self.kept.get(name)
        if name in self.releases or name in self.kept:
            steps, wholes = self.shapes.noise_steps.get(name, {}), self.shapes.wholes.get(name, ())

            def read(node: Leaf) -> ColumnEnds | None:
                if isinstance(node, exp.Window):
                    return self.shapes.find_window(select, node)
                if isinstance(node, exp.Bracket):
                    return find_bin_ends(self.tree, select, node, self.shapes.bins)
                pair = (direct or {}).get(node.name)
                if pair is None:
                    return None
                whole = node.name in wholes
                return ColumnEnds(column(pair[0]), column(pair[1]), steps.get(node.name), whole)

            return read
        if select.args.get("from_") is None:
            return lambda _: None
        sources, merged = self._sources(select), list_merged(select)

        def look(node: Leaf) -> ColumnEnds | None:
            if isinstance(node, exp.Window):
                return self.shapes.find_window(select, node)
            if isinstance(node, exp.Bracket):
                return find_bin_ends(self.tree, select, node, self.shapes.bins)
            alias = self._alias(node, sources, merged)
            exposed = self._exposed(sources[alias], node.name) if alias is not None else None
            if exposed is None or alias is None:
                return None
            low, high = (column(end, alias or None) for end in exposed[1:])
            return ColumnEnds(low, high, self._find_step(sources[alias], node.name))

        return look

    def is_rounded(self, select: exp.Select, node: exp.Expr) -> bool:
        """Return whether an expression is a released number that is rounded, whatever exact types it is cast to."""
        column_ = node.find(exp.Column)
        relation = read_relation(select)
        if column_ is None:
            return False
        if relation in self.releases:
            step = self.shapes.noise_steps.get(relation, {}).get(column_.name)
            rounded = column_.name in self.shapes.rounded.get(relation, ())
            return rounded and step is not None and is_exact(node, step)
        if select.args.get("from_") is None or relation in self.kept:
            return False
        sources = self._sources(select)
        alias = self._alias(column_, sources, list_merged(select))
        body = None if alias is None else sources[alias]
        step = None if body is None else self._find_step(body, column_.name)
        if body is None or step is None or not is_exact(node, step) or not isinstance(body, exp.Select):
            return False
        item = find_item(body, column_.name)
        return item is not None and self.is_rounded(body, item.unalias())

    def is_noisy(self, select: exp.Select, node: exp.Expr) -> bool:
        """Return whether a number with an interval is in an expression."""
        return any(self._is_noisy(select, leaf) for leaf in list_leaves(node))

    def _find_step(self, body: exp.Query, name: str) -> Fraction | None:
        """Return the noise step of a SELECT's column; None unless it is a released number, unchanged."""
        item = find_item(body, name) if isinstance(body, exp.Select) else None
        node = item.find(exp.Column) if item is not None else None
        if item is None or node is None or not isinstance(body, exp.Select):
            return None
        relation = read_relation(body)
        if isinstance(bracket := item.unalias(), exp.Bracket):
            found = find_bin_ends(self.tree, body, bracket, self.shapes.bins)
            return None if found is None else found.step
        if relation in self.releases:
            step = self.shapes.noise_steps.get(relation, {}).get(node.name)
        else:
            if id(body) not in self._below:
                self._below[id(body)] = (self._sources(body), list_merged(body))
            sources, merged = self._below[id(body)]
            alias = self._alias(node, sources, merged)
            step = None if alias is None else self._find_step(sources[alias], node.name)
        return step if step is not None and is_exact(item.unalias(), step) else None

    def _real_name(self, select: exp.Select, node: exp.Column) -> str | None:
        """Return a column's name at its origin, which may differ in case."""
        if read_relation(select) in self.releases or select.args.get("from_") is None:
            return None
        sources = self._sources(select)
        alias = self._alias(node, sources, list_merged(select))
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
            self.ends[id(select)] = self.of(select)
        return self.ends[id(select)]

    def ends_in(self, select: exp.Select, node: exp.Expr, of: exp.Column) -> EndPair | None:
        """Return the ends of an expression over one column in a SELECT; None if it has no interval."""
        return find_ends(node, self._knows(select), self.shapes.level or 0)

    def explain_missing(self, tree: exp.Select, found: Collection[str]) -> list[str]:
        """Return, for each output of numbers with intervals that has none, the reason."""
        self._read.clear()
        said = []
        for item in tree.expressions:
            node, name = item.unalias(), item.alias_or_name
            if fold(name) in found or not name or item.is_star or isinstance(node, exp.Predicate):
                continue
            if find_map_width(self.tree, tree, name, self.shapes.bins) is not None:
                continue  # each bin has one
            if any(self._is_noisy(tree, leaf) for leaf in list_leaves(node)):
                why = _find_reason(tree, node, self.shapes.level)
                if why is not None:
                    said.append(f"no interval for {name}: {why}")
        return said

    def _is_noisy(self, select: exp.Select, node: Leaf) -> bool:
        """Return whether a column of a SELECT is a number with an interval, without changing SELECTs below."""
        if isinstance(node, exp.Window):
            return any(
                self._is_noisy(select, leaf) for part in node.iter_expressions() for leaf in list_leaves(part)
            )
        if isinstance(node, exp.Bracket):
            return find_bin_ends(self.tree, select, node, self.shapes.bins) is not None
        name = read_relation(select)
        direct = self.releases.get(name) or self.kept.get(name)
        if direct is not None:
            return node.name in direct
        if select.args.get("from_") is None:
            return False
        for place in [select.args["from_"], *(select.args.get("joins") or [])]:
            items = self._read_items(place.this)
            if items is None or (node.table and fold(node.table) != fold(place.this.alias_or_name)):
                continue
            item = items.get(fold(node.name))
            if item is not None:
                body = cast(exp.Select, item.parent)
                return any(self._is_noisy(body, leaf) for leaf in list_leaves(item))
        return False

    def _read_items(self, source: exp.Expr) -> dict[str, exp.Expr] | None:
        """Return the items of a source's SELECT, by folded name; None for other sources."""
        if id(source) not in self._read:
            body, _ = read_source(self.tree, source)
            body = body.find(exp.Select) if isinstance(body, exp.SetOperation) else body
            sides = list_sides(body) if isinstance(body, exp.Select) else None
            items = sides[0].expressions if sides else []
            named = {fold(item.alias_or_name): item for item in reversed(items)}
            self._read[id(source)] = None if sides is None else named
        return self._read[id(source)]

    def _sources(self, select: exp.Select) -> dict[str, exp.Query]:
        """Return the queries in FROM and JOIN that may get further columns, by alias."""
        found: dict[str, exp.Query] = {}
        for place in [select.args["from_"], *(select.args.get("joins") or [])]:
            node = place.this
            body = self._body(node)
            if body is not None and is_taken_by_name(node, select):
                found[node.alias_or_name] = body
        return found

    def _body(self, node: exp.Expr) -> exp.Query | None:
        """Return a source's SELECT or UNION ALL, if it may get further columns."""
        body, cte = read_source(self.tree, node)
        if not isinstance(body, exp.Query) or not list_sides(body):
            return None
        if cte is None:
            return body
        recursive = cte.parent is not None and cte.parent.args.get("recursive")
        users = [t for t in self.tree.find_all(exp.Table) if fold(t.name) == fold(node.name)]
        known = all(is_taken_by_name(user, user.find_ancestor(exp.Select)) for user in users)
        return body if known and not recursive else None

    def spell_star(self, select: exp.Select, alone: bool = True) -> None:
        """Replace ``SELECT * FROM one`` by its columns, if known; with ``alone``, only if the star is the only item."""
        from_ = select.args.get("from_")
        stars = [item for item in select.expressions if item.is_star]
        star = stars[0] if len(stars) == 1 and not (alone and len(select.expressions) > 1) else None
        if not isinstance(star, exp.Star) or any(star.args.values()) or from_ is None:
            return
        if select.args.get("joins") or select.args.get("laterals"):
            return
        node = from_.this
        body, _ = read_source(self.tree, node)
        sides = list_sides(body) if isinstance(body, exp.Query) else []
        if not sides or node.alias_column_names:
            return
        names = [item.alias_or_name for item in sides[0].expressions]
        plain = all(names) and not any(item.is_star for item in sides[0].expressions)
        if plain and len({fold(name) for name in names}) == len(names):
            spelled = [exp.alias_(column(n, node.alias_or_name or None), n, quoted=True) for n in names]
            at = select.expressions.index(star)
            select.set("expressions", [*select.expressions[:at], *spelled, *select.expressions[at + 1 :]])
            self._below.clear()

    def _alias(self, node: exp.Expr, sources: Mapping[str, exp.Query], merged: Collection[str]) -> str | None:
        """Return the source of a column, if it is unambiguous."""
        assert isinstance(node, exp.Column)
        if node.table:
            return next((alias for alias in sources if fold(alias) == fold(node.table)), None)
        if fold(node.name) in merged:
            return None
        having = [alias for alias, body in sources.items() if find_item(body, node.name) is not None]
        return having[0] if len(having) == 1 else None

    def _exposed(self, body: exp.Query, name: str) -> tuple[str, str, str] | None:
        """Return a column's shown name, and those of its ends in the query."""
        key = (id(body), fold(name))
        if key not in self.shown:
            sides = list_sides(body)
            ends = self._find_sides(sides, name)
            if not any(end is not None for end in ends):
                return None
            real = (
                next(end for end in ends if end is not None)[0]
                if len(sides) == 1
                else spell_item(sides[0], name)
            )
            pair = (self.make_name("low"), self.make_name("high"))
            for side, end in zip(sides, ends, strict=True):
                nodes = end[1:] if end is not None else (exp.Null(), exp.Null())
                for shown, node in zip(pair, nodes, strict=True):
                    as_double = exp.Cast(this=node.copy(), to=_DOUBLE.copy())
                    side.append("expressions", exp.alias_(as_double, shown, quoted=True))
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
