"""Notes under an answer on what caps and bounds leave out, which no interval tells: they are public, and say nothing of data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from dpsql.sql.exact.exact_query import Exact
from dpsql.sql.expressions.types import Typed
from dpsql.sql.relations.unit_rows import name_unit

_SHOWN_CLAMPS = 3
"""Clamped values that one note names."""


def list_cuts(exact: Exact, drops_rows: bool) -> Iterator[str]:
    """Yield what the caps on a unit and the bounds of values leave out of a block's numbers.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        drops_rows: whether an aggregate has a query of its own, which leaves rows out.
    """
    yield from _list_caps(exact, drops_rows)
    clamps = dict.fromkeys(
        f"{c.source} to [{float(c.low / c.steps):g}, {float(c.high / c.steps):g}]" for c in exact.clipped
    )
    if clamps:
        more = ", and others" if len(clamps) > _SHOWN_CLAMPS else ""
        yield f"values are clamped: {', '.join(list(clamps)[:_SHOWN_CLAMPS])}{more}"


def _list_caps(exact: Exact, drops_rows: bool) -> Iterator[str]:
    """Yield what caps leave out; those that are found privately are told with what was found."""
    if exact.bound.row_level or exact.ceiling is not None:
        return
    unit, capped = name_unit(exact.bound), []
    plain = [p for p in exact.partials if not p.fixed and p.weighing is None]
    rows = exact.row_budget if exact.row_budget is not None else exact.max_rows
    rows = rows if exact.cuts_rows else None
    where = " in one group" if exact.keys and exact.row_budget is None else ""
    if rows is not None and (drops_rows or any(p.adds is None for p in plain)):
        capped.append(f"{rows:,} row{'s' if rows > 1 else ''}{where}")
    if rows is not None and (shared := exact.shared_rows) is not None:
        capped.append(f"{shared:,} rows in all groups" if not capped else f"{shared:,} in all groups")
    elif exact.keys and exact.groups is not None:
        capped.append(f"{exact.groups:,} group{'s' if exact.groups > 1 else ''}")
    if capped:
        one = len(capped) == 1 and capped[0].startswith("1 ")
        yield f"at most {' and '.join(capped)} of one {unit} count{'s' if one else ''}: what is beyond is missing"
    if rows is not None and plain and all(p.adds is not None for p in plain):
        many = f"{rows:,} row{'s' if rows > 1 else ''}"
        yield f"a sum has of one {unit} at most what {many} at the bounds add{'s' if rows == 1 else ''}{where}"


def propose_more(exact: Exact, notes: Iterable[str]) -> Iterator[str]:
    """Yield what EXPLAIN proposes where caps leave something out.

    Args:
        exact: the block's exact query.
        notes: what :func:`list_cuts` tells of it.
    """
    if not any(note.startswith(("at most", "a sum")) for note in notes):
        return
    rows = exact.row_budget if exact.row_budget is not None else exact.max_rows
    higher = (
        f"max_rows_contributed = {2 * rows}"
        if rows is not None
        else f"max_groups_contributed = {2 * (exact.groups or 1)}"
    )
    yield (
        f"What is beyond a cap is left out: OPTIONS (report_cut = TRUE) tells about how much, for a part of the cost, and "
        f"{higher} lets more count, with more noise."
    )


def is_surely_within(typed: Typed) -> bool:
    """Tell whether the bounds of an expression hold for every row, whatever columns hold.

    That is so where columns are only compared: ``CASE WHEN x > 60 THEN 1 ELSE 0 END`` is 0 or 1.
    """
    return typed.type.kind == "BOOLEAN" or not any(_find_values(typed.node))


def _find_values(node: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns whose own value an expression may have, or compute with."""
    if isinstance(node, exp.Column):
        yield node
    elif isinstance(node, exp.If | exp.Case):
        branches = node.args.get("ifs") or []
        values = [node.args.get("true"), node.args.get("false"), node.args.get("default")]
        for value in [*values, *(branch.args.get("true") for branch in branches)]:
            if value is not None:
                yield from _find_values(value)
    elif not isinstance(node, exp.Predicate | exp.Connector | exp.Not):
        for child in node.iter_expressions():
            yield from _find_values(child)
