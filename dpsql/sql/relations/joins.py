"""FROM and its joins: which rows a private unit owns after them, and which joins would let one unit move another's rows.

* Private with public: every row of the result belongs to the unit of its private row. However many public rows
  match, the unit's rows are bounded after the join (user level), or must match at most one (row level).
* Private with private: only rows of equal units may meet. Their equality is demanded in ON, USING or WHERE: of the units
  themselves, or of a key on the declared path to them. What a path says of a key is not taken on trust: the units' own
  equality is added to the join, where it changes nothing unless one key leads to several units.
* Rows that are their own unit, with public: each must match at most one public row, which is looked up in the public table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.expressions.coercion import unify
from dpsql.sql.parse.dialect import bind_error, join_word, parse_select, privacy_error, to_sql
from dpsql.sql.relations.fan_out import CountPerKey, MetRelation, limit_public, split_conjuncts
from dpsql.sql.relations.relation import (
    Field,
    From,
    Names,
    Relation,
    find_lost_columns,
    find_unmatched,
    fold,
    meets_exactly,
)
from dpsql.sql.relations.unit_rows import UnitMeeting, limit_own

Resolve = Callable[[exp.Expr], Relation]
Safe = Callable[[exp.Expr, Names], exp.Expr]
Unique = Callable[[exp.Expr, Relation, list[Field]], bool]
"""Says whether a public FROM item has at most one row for each value of these columns."""
Beside = Callable[[exp.Expr, "From"], Relation | None]
"""A FROM item that looks at the row beside it (UNNEST, LATERAL); None for all others."""


def _pair(part: exp.Expr) -> tuple[exp.Column, exp.Column] | None:
    sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
    return sides if all(isinstance(side, exp.Column) for side in sides) and sides else None


def bind_from(
    select: exp.Select, resolve: Resolve, safe: Safe, unique: Unique, most: CountPerKey, beside: Beside | None = None,
    outer: Names | None = None, meeting: UnitMeeting | None = None,
) -> From:  # fmt: skip
    """Bind the FROM of a SELECT that reads private data.

    Args:
        outer: the scope of the row that this SELECT stands beside, where it stands beside one.
        meeting: what it does with rows of one unit that meet.

    Raises:
        BindError: names or join conditions that don't fit.
        PrivacyError: a join that would let one unit's rows depend on another's, or in which one row meets too many.
    """
    from_ = select.args["from_"]
    first = resolve(from_.this)
    bound = From([first], first.source, unit=first.unit, row_level=first.row_level, unmatched=first.unmatched)
    where = split_conjuncts(select.args["where"].this) if select.args.get("where") else []
    joins = list(select.args.get("joins") or [])
    bound.sides = (first,) if first.private else ()
    public = [] if first.private else [MetRelation(first)]
    for join in joins:
        lateral = beside(join.this, bound) if beside is not None else None
        if lateral is not None:
            _add_beside(bound, join, lateral, safe)
            bound.fan_out *= lateral.fan_out
            continue
        right = resolve(join.this)
        if bound.row_level or right.row_level:
            item = join.this if not right.private else from_.this
            right = _at_most_one(bound, right, item, where, join, unique)
        method = join_word(join, "method")
        ties = _tied(bound, right, _using(join, method, list(bound.relations), right))
        if not right.private and method != "ASOF":  # which finds one row
            public.append(MetRelation(right, join, ties))
        elif right.private:
            back = [(name, fold(right.alias), owner) for name, owner in ties]
            public = [
                replace(m, ties=(*m.ties, *((n, r) for n, r, o in back if o == fold(m.relation.alias))))
                for m in public
            ]
        _add(bound, join, right, where, safe)
        bound.sides += (right,) if right.private else ()
    limit_public(bound, public, joins, where, most, from_.this, outer)
    limit_own(bound, meeting or UnitMeeting())
    return bound


def _tied(bound: From, right: Relation, using: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the columns of USING whose values meet exactly, each with the relation on the left that has it."""
    ties = []
    for name in using:
        here, there = _of(bound, name), next(f for f in right.fields if fold(f.name) == name)
        owners = [fold(r.alias) for r in bound.relations for f in r.fields if f is here]
        if len(owners) == 1 and meets_exactly(here.typed.type, there.typed.type):
            ties.append((name, owners[0]))
    return tuple(ties)


def _add_beside(bound: From, join: exp.Join, right: Relation, safe: Safe) -> None:
    side, kind = (join_word(join, key) for key in ("side", "kind"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("using"):
        what = "what looks at the row beside it is joined by CROSS JOIN or LEFT JOIN ... ON TRUE."
        raise bind_error(join, what)
    if not bound.private:
        what = "LATERAL and UNNEST follow the private table here."
        raise privacy_error(join, what, "put the private table first.")
    _one_alias(bound, right, join)
    names = Names((*bound.relations, right), dict(bound.merged))
    on = [safe(part, names) for part in split_conjuncts(join.args.get("on"))]
    if side == "LEFT" and not on:
        on = [exp.true()]
    bound.joins.append(_join(right.source, side, "", on))
    bound.relations.append(right)


def _one_alias(bound: From, right: Relation, join: exp.Join) -> None:
    if any(fold(r.alias) == fold(right.alias) for r in bound.relations):
        raise bind_error(join, f"two tables are called {right.alias}.", "give one of them another alias.")


def _nearest(bound: From, right: Relation, join: exp.Join, conditions: list[exp.Expr]) -> None:
    """ASOF: each private row finds the one public row that is nearest to it. Public rows are nobody's neighbours."""
    if not bound.private or right.private:
        raise privacy_error(
            join,
            "an ASOF join here goes from private rows to the nearest public ones.",
            "put the public table after ASOF JOIN; for the nearest of a unit's own rows, join on the unit and "
            "keep row_number() OVER (PARTITION BY ... ORDER BY ...) = 1.",
        )
    apart = [part for part in conditions if isinstance(part, exp.GT | exp.GTE | exp.LT | exp.LTE)]
    side = join_word(join, "side")
    if len(apart) != 1 or join.args.get("using") or side not in ("", "LEFT"):
        what = "ASOF joins are [LEFT] ASOF JOIN ... ON, with one inequality, here."
        hint = "write ASOF JOIN t ON a.day >= t.day, and equalities after AND."
        raise bind_error(join.args.get("on") or join, what, hint)


def _without_ties(public: Relation, on: list[exp.Expr], join: exp.Join) -> Relation:
    """Return the public side of an ASOF join, held to one row for each value that its rows are found by.

    Which of several DuckDB takes goes by how it joins, and that by how many private rows there are: below 64 otherwise
    than above. One unit more would move everybody's rows to another one.

    Raises:
        BindError: a condition that does not compare a value of the public table with one of the rows before it.
    """
    found = []
    for part in on:
        sides = (
            [part.this, part.expression]
            if isinstance(part, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE)
            else []
        )
        read = [{c.table for c in side.find_all(exp.Column)} for side in sides]
        theirs = [side for side, tables in zip(sides, read, strict=True) if tables == {public.name}]
        if len(theirs) != 1 or any(public.name in tables and len(tables) > 1 for tables in read):
            what = f"ASOF joins compare columns of {public.alias} with those of the rows before it."
            hint = "write ASOF JOIN t ON a.day >= t.day, and equalities after AND."
            raise bind_error(join.args.get("on") or join, what, hint)
        found.append(to_sql(theirs[0]))
    return _first_of_each(public, found, [*found, *(to_sql(f.typed.node) for f in public.fields)])


def _add(bound: From, join: exp.Join, right: Relation, where: list[exp.Expr], safe: Safe) -> None:
    method, side, kind = (join_word(join, key) for key in ("method", "side", "kind"))
    if method == "ASOF":
        _nearest(bound, right, join, split_conjuncts(join.args.get("on")))
    elif method == "POSITIONAL" or kind == "STRAIGHT":
        what = f"{method or kind} joins match rows by their neighbours, which belong to others."
        raise privacy_error(join, what, "join on equal columns.")
    _one_alias(bound, right, join)
    left_private = bound.private
    left_relations = list(bound.relations)
    conditions = split_conjuncts(join.args.get("on"))
    using = _using(join, method, left_relations, right)
    equal_units: exp.Expr | None = None
    if left_private and right.private:
        equal_units = _same_unit(bound, right, conditions, using, where, join)
    if kind in ("SEMI", "ANTI") and not left_private and right.private:
        what = f"a {kind} join would let private rows decide which public rows stay."
        raise privacy_error(join, what, "start from the private table, and group by the public key.")
    names = Names((*bound.relations, right), dict(bound.merged))
    on: list[exp.Expr] = [safe(part, names) for part in conditions]
    for name in using:
        here, there = _of(bound, name), next(f for f in right.fields if fold(f.name) == name)
        # The types must meet by our rules: DuckDB would read text as numbers, row by row, and raise on some.
        sides = [(replace(f.typed, node=f.typed.node.copy()), f.typed.node) for f in (here, there)]
        nodes, _ = unify(sides, f"USING ({name})")
        on.append(exp.EQ(this=nodes[0], expression=nodes[1]))
        keeps_right = side == "RIGHT"
        chosen = there if keeps_right else here
        if side == "FULL":
            both = exp.func("COALESCE", here.typed.node.copy(), there.typed.node.copy(), dialect="duckdb")
            chosen = replace(here, typed=replace(here.typed, node=both), anchors=here.anchors & there.anchors)
        bound.merged[name] = chosen
    if equal_units is not None:
        on.append(equal_units)
    if method == "ASOF":
        right = _without_ties(right, on, join)
    bound.joins.append(_join(right.source, _kept(side, bound, right), kind, on, method == "ASOF"))
    privacy = (left_private, right.private)
    bound.unmatched = find_unmatched(
        bound.unmatched or right.unmatched, join, on, privacy, find_lost_columns(names.relations)
    )
    if side in ("LEFT", "FULL"):
        right = _optional(right)
    if side in ("RIGHT", "FULL"):
        bound.relations = [_optional(r) for r in bound.relations]
    # The preserved side of an outer join against private rows: its columns can be the public groups.
    if side == "RIGHT" and left_private and not right.private:
        right = replace(right, public_preserved=True)
    if side == "LEFT" and right.private and not left_private:
        bound.relations = [replace(r, public_preserved=True) for r in bound.relations]
    if kind not in ("SEMI", "ANTI"):
        bound.relations.append(right)
    else:
        # Rows of the right side no longer show, but its table still takes part in the unit's rows, or is lent.
        bound.relations.append(replace(right, fields=()))
    bound.unit = _unit(bound.unit, right.unit if kind not in ("SEMI", "ANTI") else None, side)
    bound.row_level = bound.row_level or right.row_level


def _join(source: exp.Expr, side: str, kind: str, on: list[exp.Expr], nearest: bool = False) -> exp.Join:
    condition = exp.and_(*on, copy=False) if on else None
    if condition is None:
        return exp.Join(this=source, kind="CROSS")
    kind = "" if kind == "CROSS" else kind  # it was joined in WHERE
    method = "ASOF" if nearest else None
    return exp.Join(this=source, method=method, side=side or None, kind=kind or None, on=condition)


def _unit(left: exp.Expr | None, right: exp.Expr | None, side: str) -> exp.Expr | None:
    if left is None or right is None:
        return left if left is not None else right
    if side == "RIGHT":
        return right
    if side == "FULL":
        return exp.func("COALESCE", left.copy(), right.copy(), dialect="duckdb")
    return left


def _using(join: exp.Join, method: str, left: list[Relation], right: Relation) -> list[str]:
    using = [fold(item.name) for item in join.args.get("using") or []]
    if method == "NATURAL":
        here = {fold(f.name) for r in left for f in r.fields}
        using = [fold(f.name) for f in right.fields if fold(f.name) in here]
        if not using:
            raise bind_error(join, "the tables of this NATURAL join share no column.")
    there = {fold(f.name) for f in right.fields}
    for name, node in zip(using, join.args.get("using") or [None] * len(using), strict=False):
        if name not in there or not any(fold(f.name) == name for r in left for f in r.fields):
            raise bind_error(node or join, f"USING needs a column {name} on both sides.")
    return using


def _of(bound: From, name: str) -> Field:
    return bound.names.find(exp.column(exp.to_identifier(name)))


def _same_unit(
    bound: From, right: Relation, conditions: list[exp.Expr], using: list[str], where: list[exp.Expr],
    join: exp.Join,
) -> exp.Expr | None:  # fmt: skip
    """See to it that only rows of equal units meet. Gives the condition to add where a key stands for the unit."""
    if bound.unit is None or right.unit is None:
        what = "rows that are their own privacy unit can't be joined with other private rows."
        hint = "ask the owner for a privacy unit column, or query the tables one at a time."
        raise privacy_error(join, what, hint)
    names = Names((*bound.relations, right), dict(bound.merged))
    outer = join_word(join, "side") in ("LEFT", "RIGHT", "FULL")
    pairs = [_fields(names, right, part) for part in conditions]
    pairs += [(_of(bound, name), next(f for f in right.fields if fold(f.name) == name)) for name in using]
    later = [] if outer else [_fields(names, right, part) for part in where]
    linked = [pair for pair in (*pairs, *later) if pair is not None and pair[0].fixes_unit(pair[1])]
    exact = [pair for pair in linked if pair[0].is_unit and pair[1].is_unit]
    told = [(a, b) for a, b in exact if meets_exactly(a.typed.type, b.typed.type)]
    if any(pair in pairs for pair in told):
        return None
    if exact and not told:
        raise privacy_error(
            join.args.get("on") or join,
            f"{exact[0][0].name} and {exact[0][1].name} are of different types, so different units may look equal.",
            "ask the owner to give the privacy units one type.",
        )
    if linked:
        if any(there.key for _, there in linked):
            bound.matched.add(fold(right.alias))
            bound.keys[right.name] = [there for _, there in linked if there.key][:1]
        else:
            keys = [here for here, _ in linked if here.key]
            bound.keys |= {r.name: [k] for k in keys for r in bound.relations for f in r.fields if f is k}
            bound.matched |= {
                fold(r.alias) for r in bound.relations for f in r.fields if any(f is k for k in keys)
            }
        return exp.EQ(this=bound.unit.copy(), expression=right.unit.copy())
    link = _link(bound.relations, right)
    raise privacy_error(
        join.args.get("on") or join,
        "private tables are joined on something other than their privacy unit.",
        f"add {link} to {'ON' if join.args.get('on') or using or outer else 'WHERE'}."
        if link
        else "keep the privacy unit's own column on both sides, unchanged, and join on it."
        if bound.unit_type is not None
        and right.unit_type is not None
        and meets_exactly(bound.unit_type, right.unit_type)
        else "their privacy units are not the same kind of thing.",
    )


def _link(left: list[Relation], right: Relation) -> str | None:
    """Return the equality that would join them: of keys on the path to the unit, or of the units."""
    pairs = [(r, f, g) for r in left if r.private for f in r.fields for g in right.fields if f.fixes_unit(g)]
    units = [(r, f, g) for r, f, g in pairs if f.is_unit and g.is_unit and fold(f.name) == fold(g.name)]
    by_path = [(r, f, g) for r, f, g in pairs if not (f.is_unit and g.is_unit)]
    for relation, here, there in [*units, *by_path, *pairs]:
        return f"{relation.alias}.{here.name} = {right.alias}.{there.name}"
    return None


def _fields(names: Names, right: Relation, part: exp.Expr) -> tuple[Field, Field] | None:
    """Return the two columns that a condition makes equal, the left side's and the right's."""
    pair = _pair(part)
    if pair is None:
        return None
    try:
        first, second = (names.find(node) for node in pair)
    except BindError:
        return None
    theirs = [any(f is mine for mine in right.fields) for f in (first, second)]
    if theirs[0] == theirs[1]:
        return None
    return (second, first) if theirs[0] else (first, second)


def _optional(relation: Relation) -> Relation:
    return replace(relation, fields=tuple(replace(f, optional=f.is_unit) for f in relation.fields))


def _kept(side: str, bound: From, right: Relation) -> str:
    """Return the side of the exact join: where rows are units, public rows that no private row meets are nobody's."""
    if not (bound.row_level or right.row_level):
        return side
    public, private = ("LEFT", "RIGHT") if right.private else ("RIGHT", "LEFT")
    return {public: "", "FULL": private}.get(side, side)


def _at_most_one(
    bound: From, right: Relation, item: exp.Expr, where: list[exp.Expr], join: exp.Join, unique: Unique
) -> Relation:
    """Return a join of rows that are their own unit: each may meet at most one public row, or it would count several times.

    Gives the right side; the public side is held to one row for each value of the columns it is joined on.
    """
    side, kind, method = (join_word(join, key) for key in ("side", "kind", "method"))
    if (bound.private and right.private) or (not right.private and kind in ("SEMI", "ANTI")):
        return right  # refused elsewhere; or it adds no rows
    if method == "ASOF":
        return right  # it finds one row at most
    public = right if not right.private else bound.relations[0]
    if right.private and len(bound.relations) > 1:
        what = "with rows as the privacy unit, a join starts from them."
        raise privacy_error(join, what, f"write FROM {right.alias} JOIN ...")
    names = Names((*bound.relations, right), dict(bound.merged))
    using = _using(join, join_word(join, "method"), list(bound.relations), right)
    outer = side in ("LEFT", "RIGHT", "FULL")
    parts = [*split_conjuncts(join.args.get("on")), *([] if outer else where)]
    pairs = [pair for part in parts if (pair := _fields(names, right, part)) is not None]
    pairs += [(_of(bound, name), next(f for f in right.fields if fold(f.name) == name)) for name in using]
    keys = [
        there if public is right else here
        for here, there in pairs
        if meets_exactly(here.typed.type, there.typed.type)
    ]
    if not keys or not unique(item, public, keys):
        raise privacy_error(
            join.args.get("on") or join,
            f"with rows as the privacy unit, each may meet one row of {public.alias}, and here it may meet several.",
            "join on columns that are unique there, or ask the owner for a privacy unit column.",
        )
    held = _one_row_each(public, keys)
    if public is right:
        return held
    bound.relations, bound.source = [held], held.source
    return right


def _one_row_each(public: Relation, keys: list[Field]) -> Relation:
    """Return the public relation, held to one row for each value of its keys, whatever becomes of it in the meantime."""
    columns = list(dict.fromkeys(to_sql(key.typed.node) for key in keys))
    return _first_of_each(public, columns, columns)


def _first_of_each(public: Relation, by: list[str], order: list[str]) -> Relation:
    chosen = f"row_number() OVER (PARTITION BY {', '.join(by)} ORDER BY {', '.join(order)}) = 1"
    query = parse_select(f"SELECT * FROM {to_sql(public.source)} QUALIFY {chosen}")
    return replace(public, source=query.subquery(exp.to_identifier(public.name), copy=False))


def lend_relation(relation: Relation, alias: str) -> Relation:
    """Return a public relation as it stands in an exact query: read from the engine under a lent name."""
    fields = tuple(replace(f, public=True) for f in relation.fields)
    source = exp.alias_(exp.to_table(relation.inputs[0].name, dialect="duckdb"), relation.name, table=True)
    return replace(relation, alias=alias, fields=fields, source=source)
