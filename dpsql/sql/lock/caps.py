"""Caps on what one unit adds: the few patterns that keep so many of its rows or groups, by a secret order.

Each looks back in one long order in which a unit's rows stand together, and asks only whether the row so far before is the
same unit's: no other unit's rows decide which are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsql.sql.lock.facts import Relation, Set, Symbol, Symbols, Value
from dpsql.sql.lock.tree import Call, Expr, Literal, Window, integer, refuse

Evaluate = Callable[[Expr], Value]


@dataclass(slots=True)
class Cap:
    """A cap of ``most`` rows of a unit that agree in ``columns``, or (``groups``) so many of their values.

    ``decides`` are the columns that two rows must differ in for it to be known which is kept; None where all equals are.
    """

    columns: Set
    most: int
    groups: bool
    decides: Set | None


def cap_of(node: Expr, relation: Relation, symbols: Symbols, value: Evaluate) -> Cap | None:
    """Return the pattern that a condition of QUALIFY is, or None where it is none."""
    if relation.orphans:
        return None
    choices = node.args if isinstance(node, Call) and node.name == "or" else (node,)
    found = [back for choice in choices if (back := _looks_back(choice)) is not None]
    if len(found) < len(choices):
        return _numbered(node, relation, symbols, value)
    windows = [window for window, _ in found]
    if len({(window.name, repr(window.order)) for window in windows}) != 1:
        return None
    order = [value(item.by).symbol for item in windows[0].order]
    columns = [value(same).symbol for _, same in found]
    if [value(window.args[0]).symbol for window in windows] != columns:
        return None
    units = frozenset(relation.facts.units)
    if not order or order[0] not in units or units.isdisjoint(columns):
        return None
    if symbols.secret.isdisjoint(order):
        refuse("an order that everybody can foresee")
    match windows:
        case [
            Window("first_value", (_,), start="EXPR_PRECEDING_GROUPS", end="EXPR_PRECEDING_GROUPS",
                   ends=(Literal(integer=int(most)), Literal(integer=int(last))))
        ] if most == last >= 1:  # fmt: skip
            return Cap(_told(order, symbols) - units, most, True, None)
    counts = {_distance(window) for window in windows if window.name == "lag"}
    if len(counts) != 1 or any(window.name != "lag" for window in windows):
        return None
    rows = counts.pop()
    keys = frozenset(columns) - units
    if not _together(order, keys, units, symbols):
        return None
    return Cap(keys, rows, False, _decides(order, relation, symbols))


def _looks_back(node: Expr) -> tuple[Window, Expr] | None:
    """Read ``lag(c, n) OVER (ORDER BY ...) IS DISTINCT FROM c``, and the like with ``first_value``."""
    match node:
        case Call(
            "is distinct from",
            (Window("lag" | "first_value", (_, *_), (), where=None, plain=True) as window, same),
        ):
            return window, same
    return None


def _distance(window: Window) -> int:
    """Return how many rows a window looks back: a constant, since at 0 or below it would look at others' rows ahead.

    Raises:
        Unproved: nothing says how many.
    """
    rows = integer(window.args[1]) if len(window.args) == 2 else None
    if rows is None or rows < 1:
        refuse("a cap that looks back by no constant number of rows")
    return rows


def _told(order: Sequence[Symbol], symbols: Symbols) -> Set:
    """Return the columns that are known where the place in an order is."""
    return frozenset().union(*map(symbols.told, order))


def _together(order: Sequence[Symbol], keys: Set, units: Set, symbols: Symbols) -> bool:
    """Return whether the rows of a unit that agree in the keys stand side by side in an order."""
    known = units | keys
    seen: set[Symbol] = set()
    for symbol in order:
        if keys <= seen:
            return True
        if not (symbols.decided(symbol, known) or symbols.told(symbol) - {symbol} <= known):
            return False
        if symbol not in known and not symbols.covers.get(symbol):
            return False
        seen |= symbols.told(symbol) if symbol in keys else {symbol}
    return keys <= seen


def _decides(order: Sequence[Symbol], relation: Relation, symbols: Symbols) -> Set | None:
    told = _told(order, symbols) | relation.facts.units.keys()
    constant = {s for unique in relation.unique for s in unique if symbols.made.get(s) == frozenset()}
    return None if any(unique <= told | constant for unique in relation.unique) else told


def _numbered(node: Expr, relation: Relation, symbols: Symbols, value: Evaluate) -> Cap | None:
    """Read ``row_number() OVER (PARTITION BY unit, ... ORDER BY ...) <= n``, or ``dense_rank()`` of groups."""
    match node:
        case Call(
            "<=" | "<" | "=" as comparison,
            (Window("row_number" | "dense_rank", where=None) as window, Literal(integer=int(most))),
        ):
            places = max(most - 1 if comparison == "<" else 1 if comparison == "=" else most, 0)
        case _:
            return None
    by = [value(part).symbol for part in window.partition]
    order = [value(item.by).symbol for item in window.order]
    units = frozenset(relation.facts.units)
    keys = frozenset(by) - units
    if len(keys) == len(set(by)):
        return None
    if window.name == "row_number":
        return Cap(keys, places, False, _decides([*by, *order], relation, symbols))
    if keys or comparison == "=" or not order:
        return None
    if symbols.secret.isdisjoint(order):
        refuse("an order that everybody can foresee")
    return Cap(_told(order, symbols) - units, places, True, None)


def budget_of(
    node: Call, args: Sequence[Value], relation: Relation, symbols: Symbols, value: Evaluate
) -> int | None:
    """Read ``LEAST(n, GREATEST(b - COALESCE(SUM(n) OVER (those before), 0), 0))``, which adds up to b at most per unit."""
    match node.args:
        case (
            _,
            Call("greatest", (
                Call("-", (
                    Literal(integer=int(budget)),
                    Call("coalesce", (
                        Window("sum", (before,), partition, ordered, "UNBOUNDED_PRECEDING", "EXPR_PRECEDING_ROWS",
                               (_, Literal(integer=1)), None, True),
                        Literal(integer=0),
                    )),
                )),
                Literal(integer=0),
            )),
        ) if budget >= 0:  # fmt: skip
            pass
        case _:
            return None
    counted = args[0]
    if not (counted.whole and not counted.nullable and counted.low is not None and counted.low >= 0):
        return None
    if not relation.private or relation.orphans or value(before).symbol != counted.symbol:
        return None
    by = {value(part).symbol for part in partition}
    order = [value(item.by).symbol for item in ordered]
    if not by or not by <= relation.facts.units.keys() or symbols.secret.isdisjoint(order):
        return None
    return budget if _decides(order, relation, symbols) is None else None
