"""The columns that a query of finished SQL shows, and those that it takes from its FROM, by name."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.relations.relation import fold


def read_relation(select: exp.Select) -> str:
    """Return the name of the one table that a SELECT reads; an empty text where it reads a query."""
    from_ = select.args.get("from_")
    return str(from_.this.name) if from_ is not None and isinstance(from_.this, exp.Table) else ""


def list_merged(select: exp.Select) -> set[str]:
    """Return the columns that joins by USING merge."""
    joins = select.args.get("joins") or []
    return {fold(name.name) for join in joins for name in join.args.get("using") or []}


def list_sides(body: exp.Query) -> list[exp.Select]:
    """Return the SELECT that a query is, or those of a UNION ALL; none where it is neither, or drops equal rows."""
    if isinstance(body, exp.Select):
        return [] if body.args.get("distinct") else [body]
    if isinstance(body, exp.Subquery) and isinstance(body.this, exp.Query) and not body.args.get("alias"):
        return list_sides(body.this)
    if not isinstance(body, exp.Union) or body.args.get("distinct") or body.args.get("by_name"):
        return []
    sides = [list_sides(side) for side in (body.left, body.right)]
    alike = all(sides) and len({len(side.expressions) for group in sides for side in group}) == 1
    return [side for group in sides for side in group] if alike else []


def find_item(body: exp.Query, name: str) -> exp.Expr | None:
    """Return the item of a query that is called so, of a UNION ALL that of its first side."""
    sides = list_sides(body)
    items = sides[0].expressions if sides else []
    return next((item for item in items if fold(item.alias_or_name) == fold(name)), None)


def spell_item(select: exp.Select, name: str) -> str:
    """Return a column's name as the SELECT spells it."""
    item = find_item(select, name)
    return name if item is None else str(item.alias_or_name)


def is_taken_by_name(source: exp.Expr, select: exp.Select | None) -> bool:
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
