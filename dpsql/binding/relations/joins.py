"""FROM, joins and UNION ALL: which rows a private unit owns after them, and which joins let one unit move another's rows.

* Private with public: every row of the result belongs to the unit of its private row. Whatever the number of matching
  public rows, the unit's rows are bounded after the join (user level), or must match at most one (row level).
* Private with private: only rows of equal units may be joined. ON, USING or WHERE must equate the units themselves, or
  a key on the declared path to them. A declared path is not trusted: the equality of units is added to the join, which
  changes nothing unless one key leads to several units.
* Rows that are their own unit, with public: each must match at most one public row, as looked up in the public table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.public_statement import Env
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.fan_out import (
    MetRelation,
    count_rows_per_key,
    find_equal_columns,
    find_lost_columns,
    find_unmatched,
    limit_public,
    number_rows,
    split_conjuncts,
)
from dpsql.binding.relations.plan_size import refuse_joined
from dpsql.binding.relations.relation import (
    CLAIMED,
    DETERMINES,
    INTERNAL,
    Field,
    From,
    Names,
    Relation,
    explain_other_unit,
    fold,
    meets_exactly,
)
from dpsql.binding.relations.subqueries import bind_lateral, may_read_earlier
from dpsql.binding.relations.unit_rows import advise_one_unit, limit_own, meeting_of
from dpsql.binding.values.coercion import find_common_order, take_value, unify
from dpsql.binding.values.sql_types import Typed
from dpsql.language.advice import LATERAL_HINT
from dpsql.language.dialect import (
    bind_error,
    join_word,
    privacy_error,
    quote_where_needed,
    to_sql,
)
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import Select, write_filter

_OUTER = ("LEFT", "RIGHT", "FULL")
_INEQUALITIES = (exp.GT, exp.GTE, exp.LT, exp.LTE)
_EQUALITIES = (exp.EQ, exp.NullSafeEQ)
_COMPARISONS = (*_INEQUALITIES, *_EQUALITIES, exp.NEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_PERIOD_HINT = "query the tables one at a time, or ask the owner for the same period of one type in both."
_ASOF_HINT = "write ASOF JOIN t ON a.day >= t.day, and equalities after AND."


def bind_from(
    binder: Binder,
    select: exp.Select,
    relations: Mapping[int, Relation | None],
    env: Env,
    outer: Names | None,
) -> From:
    """Bind the FROM of a SELECT that reads private data.

    ``relations``: the private relations of its items, by the items' ids; None for public items.

    Raises:
        BindError: names or join conditions that don't fit.
        PrivacyError: one unit's rows would depend on another's, or one row joins too many.
    """

    def resolve(node: exp.Expr) -> Relation:
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            _refuse_columns(node)
        return relations[id(node)] or binder.lend(node, env)

    if views := select.args.get("laterals"):
        raise privacy_error(views[0], "LATERAL VIEW is not supported here.", LATERAL_HINT)
    from_ = select.args["from_"]
    first = resolve(from_.this)
    bound = From([first], first.source, unit=first.unit, row_level=first.row_level, unmatched=first.unmatched)
    where = split_conjuncts(select.args["where"].this) if select.args.get("where") else []
    joins = list(select.args.get("joins") or [])
    refuse_joined(1 + len(joins), select)
    bound.sides = (first,) if first.private else ()
    public = [] if first.private else [MetRelation(first)]
    for join in joins:
        if may_read_earlier(join.this):
            lateral = bind_lateral(binder, join.this, bound, env)
            _add_lateral(binder, bound, join, lateral, env)
            bound.fan_out *= lateral.fan_out
            continue
        right = resolve(join.this)
        step = _Step(binder, env, bound, join, right, where)
        if bound.row_level or right.row_level:
            step.hold_public(join.this if not right.private else from_.this)
        ties = step.ties()
        if not right.private and step.method != "ASOF":  # which finds one row
            public.append(MetRelation(step.right, join, ties))
        elif right.private:
            back = [(name, fold(right.alias), owner) for name, owner in ties]
            public = [
                replace(m, ties=(*m.ties, *((n, r) for n, r, o in back if o == fold(m.relation.alias))))
                for m in public
            ]
        step.add()
        bound.sides += (right,) if right.private else ()
    limit_public(binder, bound, public, joins, where, from_.this, outer)
    binder.notes += limit_own(bound, meeting_of(select, outer, env, binder.catalog, binder.held))
    binder.limits += bound.notes
    return bound


def _refuse_columns(call: exp.Table) -> None:
    """Raise PrivacyError for a function in FROM that reads columns of earlier items."""
    for node in call.this.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(node, exp.Column):
            what = f"{call.this.name or 'a function'} in FROM takes constants beside private rows."
            hint = "join constants and compare: JOIN range(0, 100) AS r(i) ON r.i < n."
            raise privacy_error(node, what, hint)


def _add_lateral(binder: Binder, bound: From, join: exp.Join, right: Relation, env: Env) -> None:
    side, kind = (join_word(join, key) for key in ("side", "kind"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("using"):
        what = "an item that reads an earlier one is joined by CROSS JOIN or LEFT JOIN ... ON TRUE."
        raise bind_error(join, what)
    if not bound.private:
        what = "LATERAL and UNNEST follow the private table here."
        raise privacy_error(join, what, "put the private table first.")
    _one_alias(bound, right, join)
    names = Names((*bound.relations, right), dict(bound.merged))
    on = [binder.expression(part, names, env).node for part in split_conjuncts(join.args.get("on"))]
    if side == "LEFT" and not on:
        on = [exp.true()]
    bound.joins.append(_join(right.source, side, "", on))
    bound.relations.append(right)


def _one_alias(bound: From, right: Relation, join: exp.Join) -> None:
    if any(fold(r.alias) == fold(right.alias) for r in bound.relations):
        raise bind_error(join, f"two tables are called {right.alias}.", "give one of them another alias.")


@dataclass
class _Step:
    """One join, and the rows bound so far that it adds to."""

    binder: Binder
    env: Env
    bound: From
    join: exp.Join
    right: Relation
    where: list[exp.Expr]
    """The conditions of the SELECT."""

    def __post_init__(self) -> None:
        self.side, self.kind, self.method = (join_word(self.join, key) for key in ("side", "kind", "method"))
        self.parts = split_conjuncts(self.join.args.get("on"))
        self.place = self.join.args.get("on") or self.join
        self.names = Names((*self.bound.relations, self.right), dict(self.bound.merged))
        self.using = [(name, *self._ends(name)) for name in self._using()]

    def _using(self) -> list[str]:
        given = self.join.args.get("using") or []
        here = {fold(f.name) for r in self.bound.relations for f in r.fields}
        there = [fold(f.name) for f in self.right.fields]
        for item in given:
            if fold(item.name) not in there or fold(item.name) not in here:
                raise bind_error(item, f"USING needs a column {fold(item.name)} on both sides.")
        if self.method != "NATURAL":
            return [fold(item.name) for item in given]
        shared = [name for name in there if name in here]
        if not shared:
            raise bind_error(self.join, "the tables of this NATURAL join share no column.")
        return shared

    def _ends(self, name: str) -> tuple[Field, Field]:
        """Return the columns of a name on both sides."""
        here = self.bound.names.find(exp.column(exp.to_identifier(name)))
        return here, next(f for f in self.right.fields if fold(f.name) == name)

    def _equal(self, parts: list[exp.Expr]) -> list[tuple[Field, Field]]:
        """Return the columns that conditions equate, the left side's and the right's."""
        names, theirs = self.names, self.right.fields
        return find_equal_columns(parts, names, lambda node: any(names.find(node) is f for f in theirs))

    def ties(self) -> tuple[tuple[str, str], ...]:
        """Return the columns of USING whose values are equal exactly, each with its relation on the left."""
        ties = []
        for name, here, there in self.using:
            owners = [fold(r.alias) for r in self.bound.relations for f in r.fields if f is here]
            if len(owners) == 1 and meets_exactly(here.typed.type, there.typed.type):
                ties.append((name, owners[0]))
        return tuple(ties)

    def hold_public(self, item: exp.Expr) -> None:
        """Cut the public side of a join with rows that are units to one row per join key, so that none counts twice."""
        bound, right = self.bound, self.right
        if (bound.private and right.private) or (not right.private and self.kind in ("SEMI", "ANTI")):
            return  # refused elsewhere, or it adds no rows
        if self.method == "ASOF":
            return  # it finds at most one row
        if right.private and len(bound.relations) > 1:
            what = "with rows as the privacy unit, a join starts from them."
            raise privacy_error(self.join, what, f"put {right.alias} first, and join the others to it.")
        public = bound.relations[0] if right.private else right
        pairs = self._equal([*self.parts, *([] if self.side in _OUTER else self.where)])
        pairs += [(here, there) for _, here, there in self.using]
        keys = [
            here if right.private else there
            for here, there in pairs
            if meets_exactly(here.typed.type, there.typed.type)
        ]
        if not keys or count_rows_per_key(self.binder, item, public, keys) not in (0, 1):
            what = f"with rows as the privacy unit, each may meet one row of {public.alias}, and here it may meet several."
            raise privacy_error(self.place, what, self._advise_ranges(item, public))
        columns = list(dict.fromkeys(key.typed.node for key in keys))
        held = _first_of_each(public, columns, columns)
        if right.private:
            bound.relations, bound.source = [held], held.source
        else:
            self.right = held

    def _advise_ranges(self, item: exp.Expr, public: Relation) -> str:
        """Return a hint for rows that may join several public rows: ranges have their own forms."""
        on = self.join.args.get("on")
        if on is None or not any(isinstance(node, (*_INEQUALITIES, exp.Between)) for node in on.walk()):
            return "join on columns that are unique there, or ask the owner for a privacy unit column."
        hint = "count each range in a column of its own, with a filter, or group by bins."
        select = self.join.find_ancestor(exp.Select)
        alone = select is not None and len(select.args["joins"]) == 1 and select.args.get("where") is None
        if (
            select is not None
            and alone
            and isinstance(item, exp.Table)
            and fold(item.name) == fold(public.alias)
        ):
            columns = (quote_where_needed(field.name) for field in public.fields)
            fullest = f"EXPMECH(COUNT(*){write_filter(to_sql(on))}, answer => TRUE) OVER {to_sql(item.this)}"
            rows = to_sql(self.join.this if self.right.private else select.args["from_"].this)
            hint = f"write {Select((*columns, fullest), rows)}: it chooses the fullest; or {hint}"
        return hint

    def add(self) -> None:
        bound, right, side, kind = self.bound, self.right, self.side, self.kind
        if self.method == "ASOF":
            self._check_nearest()
        elif self.method == "POSITIONAL" or kind == "STRAIGHT":
            what = f"{self.method or kind} joins match rows by their neighbours, which belong to others."
            raise privacy_error(self.join, what, "join on equal columns.")
        _one_alias(bound, right, self.join)
        left_private, matched = bound.private, set(bound.matched)
        equal_units = self._same_unit() if left_private and right.private else None
        if kind in ("SEMI", "ANTI") and not left_private and right.private:
            what = f"a {kind} join would let private rows decide which public rows stay."
            raise privacy_error(self.join, what, "start from the private table, and group by the public key.")
        on = [self.binder.expression(part, self.names, self.env).node for part in self.parts]
        if kind in ("SEMI", "ANTI"):
            self._refuse_intervals()
        for name, here, there in self.using:
            # Types must match by our rules: DuckDB would parse text as numbers, row by row, and fail on some.
            sides = [replace(take_value(f.typed, f.typed.node), place=f.typed.node) for f in (here, there)]
            nodes, common = unify(sides, f"USING ({name})")
            either = _either(*nodes)
            if here.is_unit and there.is_unit and meets_exactly(here.typed.type, there.typed.type):
                nodes = [here.typed.node.copy(), there.typed.node.copy()]  # widened by DuckDB, as in ON
            on.append(exp.EQ(this=nodes[0], expression=nodes[1]))
            chosen = there if side == "RIGHT" else here
            if side == "FULL":
                same = here.typed.type == there.typed.type == common
                typed = replace(here.typed, node=either, days=None) if same else Typed(either, common)
                typed = replace(typed, order=find_common_order([here.typed, there.typed]))
                chosen = replace(here, typed=typed, anchors=here.anchors & there.anchors)
            bound.merged[name] = chosen
        if equal_units is not None:
            on.append(equal_units)
        if self.method == "ASOF":
            right = self._without_ties(on)
        bound.joins.append(_join(right.source, self._kept_side(), kind, on, self.method == "ASOF"))
        lost = find_lost_columns(self.names.relations)
        before = bound.unmatched or right.unmatched
        bound.unmatched = find_unmatched(before, self.join, on, (left_private, right.private), lost)
        if side in ("LEFT", "FULL"):
            right = _optional(right)
        if side in ("RIGHT", "FULL"):
            bound.relations = [_optional(r) for r in bound.relations]
        # The preserved side of an outer join with private rows: its columns can be the public groups.
        if side == "RIGHT" and left_private and not right.private:
            right = replace(right, public_preserved=True)
        if side == "LEFT" and right.private and not left_private:
            bound.relations = [replace(r, public_preserved=True) for r in bound.relations]
        if kind in ("SEMI", "ANTI"):
            # The right side's rows are hidden, and add none; those of the left side stay as they are.
            bound.relations.append(replace(right, fields=()))
            bound.matched = {*matched, fold(right.alias)}
        else:
            bound.relations.append(right)
            bound.unit = _unit(bound.unit, right.unit, side)
        bound.row_level = bound.row_level or right.row_level

    def _refuse_intervals(self) -> None:
        """Refuse a condition that compares two INTERVALs otherwise than by their equality.

        DuckDB's SEMI and ANTI joins by such a condition fail if there is any row, and so would tell whether there is one.
        """
        for part in self.parts:
            whole = part.unnest()
            for node in whole.walk(prune=lambda n: isinstance(n, exp.Query)):
                if not isinstance(node, _COMPARISONS) or (node is whole and isinstance(node, _EQUALITIES)):
                    continue
                sides = (side for side in (node.this, node.args.get("expression")) if side is not None)
                plain = (side for side in sides if side.find(exp.Query) is None)
                if any(
                    self.binder.expression(s, self.names, self.env).type.kind == "INTERVAL" for s in plain
                ):
                    lengths = node.copy()
                    for side in list(lengths.iter_expressions()):
                        side.replace(exp.Anonymous(this="EPOCH", expressions=[side.copy()]))
                    what = f"{self.kind} JOIN can't compare intervals like this."
                    hint = f"compare their lengths in seconds: write {to_sql(lengths)} instead of {to_sql(node)}."
                    raise bind_error(node, what, hint)

    def _check_nearest(self) -> None:
        """Check an ASOF join: each private row finds its nearest public row, independently of other units."""
        if not self.bound.private or self.right.private:
            raise privacy_error(
                self.join,
                "an ASOF join here goes from private rows to the nearest public ones.",
                "put the public table last. For the nearest of a unit's own rows, join on the unit, and keep the "
                "first row of each by a window over the unit's rows.",
            )
        apart = [part for part in self.parts if isinstance(part, _INEQUALITIES)]
        if len(apart) != 1 or self.join.args.get("using") or self.side not in ("", "LEFT"):
            what = "ASOF joins are [LEFT] ASOF JOIN ... ON, with one inequality, here."
            raise bind_error(self.place, what, _ASOF_HINT)

    def _without_ties(self, on: list[exp.Expr]) -> Relation:
        """Return the public side of an ASOF join, cut to one row per value that its rows are found by.

        DuckDB's choice among several depends on its join algorithm, which changes at 64 private rows. One more unit
        would move every unit's rows to another one.

        Raises:
            BindError: a condition that does not compare a value of the public table with one of the preceding rows.
        """
        public, found = self.right, []
        for part in on:
            sides = [part.this, part.expression] if isinstance(part, (exp.EQ, *_INEQUALITIES)) else []
            read = [{c.table for c in side.find_all(exp.Column)} for side in sides]
            theirs = [side for side, tables in zip(sides, read, strict=True) if tables == {public.name}]
            if len(theirs) != 1 or any(public.name in tables and len(tables) > 1 for tables in read):
                what = f"ASOF joins compare columns of {public.alias} with those of the rows before it."
                raise bind_error(self.place, what, _ASOF_HINT)
            found.append(theirs[0])
        return _first_of_each(public, found, [*found, *(f.typed.node for f in public.fields)])

    def _kept_side(self) -> str:
        """Return the side of the exact join: if rows are units, unmatched public rows have no unit."""
        if not (self.bound.row_level or self.right.row_level):
            return self.side
        public, private = ("LEFT", "RIGHT") if self.right.private else ("RIGHT", "LEFT")
        return {public: "", "FULL": private}.get(self.side, self.side)

    def _same_unit(self) -> exp.Expr | None:
        """Ensure that only rows of equal units are joined. Returns the condition to add if a key represents the unit."""
        bound, right = self.bound, self.right
        if bound.unit is None or right.unit is None:
            what = "rows that are their own privacy unit can't be joined with other private rows."
            hint = "ask the owner for a privacy unit column, or query the tables one at a time."
            raise privacy_error(self.join, what, hint)
        outer = self.side in _OUTER
        pairs = [*self._equal(self.parts), *((here, there) for _, here, there in self.using)]
        later = [] if outer else self._equal(self.where)
        linked = [pair for pair in (*pairs, *later) if pair[0].fixes_unit(pair[1])]
        exact = [pair for pair in linked if pair[0].is_unit and pair[1].is_unit]
        told = [(a, b) for a, b in exact if meets_exactly(a.typed.type, b.typed.type)]
        if any(pair in pairs for pair in told):
            return None
        if exact and not told:
            names = " and ".join(f.name for f in exact[0])
            what = f"{names} are of different types, so different units may look equal."
            raise privacy_error(self.place, what, advise_one_unit(bound.relations, [right]))
        other = explain_other_unit(bound.relations, [right])
        if other is not None and (linked or "period" in other):
            hint = _PERIOD_HINT if "period" in other else "ask the owner to give the privacy units one type."
            raise privacy_error(self.place, other, hint)
        if linked:
            self._note_units(linked)
            if any(there.key for _, there in linked):
                bound.matched.add(fold(right.alias))
                bound.keys[right.name] = [there for _, there in linked if there.key][:1]
            else:
                keys = [here for here, _ in linked if here.key]
                held = [(r, k) for k in keys for r in bound.relations for f in r.fields if f is k]
                bound.keys |= {r.name: [k] for r, k in held}
                bound.matched |= {fold(r.alias) for r, _ in held}
            return exp.EQ(this=bound.unit.copy(), expression=right.unit.copy())
        link, mine, theirs = _link(bound.relations, right), bound.unit_type, right.unit_type
        hint = advise_one_unit(bound.relations, [right])
        alike = mine is not None and theirs is not None and meets_exactly(mine, theirs)
        if link and alike:
            written = self.join.args.get("on") or self.using or outer
            clause = "ON" if written else "WHERE"
            hint = f"no policy lets different people's rows meet; for each person's own rows, add {link} to {clause}."
        elif alike:
            hint = "keep the privacy unit's own column on both sides, unchanged, and join on it."
        what = "private tables are joined on something other than their privacy unit."
        raise privacy_error(self.place, what, hint)

    def _note_units(self, linked: list[tuple[Field, Field]]) -> None:
        """Note which rows join by the owner's declaration alone."""
        period = self.bound.period
        claimed = {CLAIMED, DETERMINES}
        if period is not None or any(claimed & (a.anchors | b.anchors) for a, b in linked):
            unit = self.right.tables[0].unit_path[-1].column
            of = f"one {unit} {period.words}" if period is not None else f"one {unit}"
            self.bound.notes.append(f"Private rows meet only if both are of {of}.")


def _join(source: exp.Expr, side: str, kind: str, on: list[exp.Expr], nearest: bool = False) -> exp.Join:
    condition = exp.and_(*on, copy=False) if on else None
    if condition is None:
        return exp.Join(this=source, kind="CROSS")
    kind = "" if kind == "CROSS" else kind  # joined in WHERE
    method = "ASOF" if nearest else None
    return exp.Join(this=source, method=method, side=side or None, kind=kind or None, on=condition)


def _either(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.func("COALESCE", left.copy(), right.copy(), dialect="duckdb")


def _unit(left: exp.Expr | None, right: exp.Expr | None, side: str) -> exp.Expr | None:
    if left is None or right is None:
        return left if left is not None else right
    return right if side == "RIGHT" else _either(left, right) if side == "FULL" else left


def _link(left: list[Relation], right: Relation) -> str | None:
    """Return the equality that would join them: of keys on the path to the unit, or of the units."""
    pairs = [(r, f, g) for r in left if r.private for f in r.fields for g in right.fields if f.suggests(g)]
    units = [(r, f, g) for r, f, g in pairs if f.is_unit and g.is_unit and fold(f.name) == fold(g.name)]
    by_path = [(r, f, g) for r, f, g in pairs if not (f.is_unit and g.is_unit)]
    for relation, here, there in [*units, *by_path, *pairs]:
        sides = ((relation.alias, here), (right.alias, there))
        shown = [
            quote_where_needed(f.name)
            if alias.startswith(INTERNAL)
            else f"{quote_where_needed(alias)}.{quote_where_needed(f.name)}"
            for alias, f in sides
        ]
        return " = ".join(shown)
    return None


def _optional(relation: Relation) -> Relation:
    """Return a relation whose rows may be missing: so may each value."""
    missing = (replace(f.typed, nullable=True, unmatched=f.typed.days is None) for f in relation.fields)
    fields = (
        replace(f, optional=f.is_unit, typed=typed) for f, typed in zip(relation.fields, missing, strict=True)
    )
    return replace(relation, fields=tuple(fields))


def _first_of_each(public: Relation, by: list[exp.Expr], order: list[exp.Expr]) -> Relation:
    first = exp.EQ(this=number_rows(by, order), expression=exp.Literal.number(1))
    query = exp.Select(expressions=[exp.Star()]).from_(public.source.copy())
    query.set("qualify", exp.Qualify(this=first))
    return replace(public, source=query.subquery(exp.to_identifier(public.name), copy=False))
