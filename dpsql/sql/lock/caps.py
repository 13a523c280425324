"""How exact queries bound what one unit adds: the few patterns that keep so many of its rows or groups, by a secret order.

Each looks back in one long order in which a unit's rows stand together, and asks only whether the row so far before is the
same unit's: no other unit's rows decide which are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsql.sql.lock.facts import Relation, Set, Symbol, Symbols, Value
from dpsql.sql.lock.tree import Call, Expr, Literal, Window, refuse

Evaluate = Callable[[Expr], Value]


@dataclass(slots=True)
class Cap:
    """At most ``most`` rows of a unit that agree in ``columns``, or (``groups``) so many of their values.

    ``decides`` are the columns that two rows must differ in for it to be known which is kept; None where all equals are.
    """

    columns: Set
    most: int
    groups: bool
    decides: Set | None


def cap_of(node: Expr, relation: Relation, symbols: Symbols, value: Evaluate) -> Cap | None:
    """The pattern that a condition of QUALIFY is, or None where it is none."""
    choices = node.args if isinstance(node, Call) and node.name == "or" else (node,)
    backs = [_looks_back(choice) for choice in choices]
    if any(back is None for back in backs):
        return _numbered(node, relation, symbols, value) if len(choices) == 1 else None
    found = [back for back in backs if back is not None]
    windows = [window for window, _ in found]
    if len({repr(w.order) for w in windows}) != 1 or any(w.name != windows[0].name for w in windows):
        return None
    order = [value(item.by).symbol for item in windows[0].order]
    columns = [value(same).symbol for _, same in found]
    if any(
        value(window.args[0]).symbol != column for (window, _), column in zip(found, columns, strict=True)
    ):
        return None
    units = relation.facts.units
    mine = [c for c in columns if c in units]
    if not mine or not order or order[0] not in units or relation.orphans:
        return None
    if symbols.secret.isdisjoint(order):
        refuse("an order that everybody can foresee")
    if windows[0].name == "first_value":
        if len(found) != 1:
            return None
        most = _ends(windows[0])
        told = frozenset().union(*(symbols.told(s) for s in order))
        return None if most is None else Cap(told - set(units), most, True, None)
    counts = {_number(w.args[1]) if len(w.args) == 2 else None for w in windows}
    if len(counts) != 1 or (most := counts.pop()) is None or most < 1:
        return None
    keys = frozenset(c for c in columns if c not in units)
    if not _together(order, keys, relation, symbols):
        return None
    return Cap(keys, most, False, _decides(order, relation, symbols))


def _looks_back(node: Expr) -> tuple[Window, Expr] | None:
    """``lag(c, n) OVER (ORDER BY ...) IS DISTINCT FROM c``, and the like with ``first_value``."""
    if not (isinstance(node, Call) and node.name == "is distinct from"):
        return None
    window, same = node.args
    if not isinstance(window, Window) or window.name not in ("lag", "first_value"):
        return None
    plain = window.plain and window.where is None and not window.partition and bool(window.args)
    return (window, same) if plain else None


def _number(node: Expr | None) -> int | None:
    found = isinstance(node, Literal) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return node.value if found else None  # type: ignore[union-attr,return-value]


def _ends(window: Window) -> int | None:
    """N of ``GROUPS BETWEEN n PRECEDING AND n PRECEDING``."""
    if (
        window.start != "EXPR_PRECEDING_GROUPS"
        or window.end != "EXPR_PRECEDING_GROUPS"
        or len(window.args) != 1
    ):
        return None
    first, last = map(_number, window.ends)
    return first if first == last and first is not None and first >= 1 else None


def _together(order: Sequence[Symbol], keys: Set, relation: Relation, symbols: Symbols) -> bool:
    """Whether the rows of a unit that agree in the keys stand side by side in an order."""
    units = frozenset(relation.facts.units)
    seen: set[Symbol] = set()
    for symbol in order:
        if keys <= seen:
            return True
        if not (symbols.decided(symbol, units | keys) or symbols.told(symbol) - {symbol} <= units | keys):
            return False
        if symbol not in units | keys and not symbols.covers.get(symbol):
            return False
        seen |= symbols.told(symbol) if symbol in keys else {symbol}
    return keys <= seen


def _decides(order: Sequence[Symbol], relation: Relation, symbols: Symbols) -> Set | None:
    told = frozenset(relation.facts.units).union(*(symbols.told(s) for s in order))
    constant = frozenset(
        s for unique in relation.unique for s in unique if symbols.made.get(s) == frozenset()
    )
    return None if any(unique <= told | constant for unique in relation.unique) else told


def _numbered(node: Expr, relation: Relation, symbols: Symbols, value: Evaluate) -> Cap | None:
    """``row_number() OVER (PARTITION BY unit, ... ORDER BY ...) <= n``; ``dense_rank()`` of groups that an order tells apart."""
    if not (isinstance(node, Call) and node.name in ("<=", "<", "=") and len(node.args) == 2):
        return None
    window, most = node.args[0], _number(node.args[1])
    named = isinstance(window, Window) and window.name in ("row_number", "dense_rank")
    if not isinstance(window, Window) or not named or window.where is not None or most is None:
        return None
    by = [value(part).symbol for part in window.partition]
    units = set(relation.facts.units)
    if not set(by) & units or relation.orphans:
        return None
    keys = frozenset(s for s in by if s not in units)
    places = max({"<=": most, "<": most - 1, "=": 1}[node.name], 0)
    order = [value(item.by).symbol for item in window.order]
    if window.name == "row_number":
        return Cap(keys, places, False, _decides([*by, *order], relation, symbols))
    if keys or node.name == "=" or not order:
        return None
    if symbols.secret.isdisjoint(order):
        refuse("an order that everybody can foresee")
    told = frozenset().union(*(symbols.told(s) for s in order))
    return Cap(told - units, places, True, None)


def budget_of(
    node: Call, args: Sequence[Value], relation: Relation, symbols: Symbols, value: Evaluate
) -> int | None:
    """``LEAST(n, GREATEST(b - COALESCE(SUM(n) OVER (those before), 0), 0))``: over a unit's rows it adds up to b at most."""
    rest = node.args[1] if len(node.args) == 2 else None
    if not (
        isinstance(rest, Call)
        and rest.name == "greatest"
        and len(rest.args) == 2
        and _number(rest.args[1]) == 0
    ):
        return None
    left = rest.args[0]
    if not (isinstance(left, Call) and left.name == "-" and len(left.args) == 2):
        return None
    budget, before = _number(left.args[0]), left.args[1]
    if not (isinstance(before, Call) and before.name == "coalesce" and _number(before.args[-1]) == 0):
        return None
    window = before.args[0]
    if budget is None or budget < 0 or len(before.args) != 2 or not isinstance(window, Window):
        return None
    counted = args[0]
    ok = (
        window.name == "sum" and window.plain and window.where is None and len(window.args) == 1
        and window.start == "UNBOUNDED_PRECEDING" and window.end == "EXPR_PRECEDING_ROWS" and _number(window.ends[1]) == 1
        and counted.whole and not counted.nullable and counted.low is not None and counted.low >= 0
        and relation.private and not relation.orphans
    )  # fmt: skip
    if not ok or value(window.args[0]).symbol != counted.symbol:
        return None
    by = {value(part).symbol for part in window.partition}
    order = [value(item.by).symbol for item in window.order]
    if not by or not by <= set(relation.facts.units) or symbols.secret.isdisjoint(order):
        return None
    return budget if _decides(order, relation, symbols) is None else None
