"""Rows that come as one integer each: the operator reads the unit, the groups and the values out of its bits.

What is not SQL is checked here: that the topmost bits are the unit's, whole and of no other row's making; that each value
is held to what its bits can hold; and that an operator clamps what it adds up to no more than is charged.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.mechanisms.base import PackingClaim
from dpsql.sql.lock.facts import Number, Relation, Value
from dpsql.sql.lock.tree import Call, Cast, Expr, Literal, Parameter, Ref, Select, refuse

Evaluate = Callable[[Expr], Value]
_SHAPE = "packed rows of another shape"


def prove_packing(tree: Select, value: Evaluate, relation: Relation, claim: PackingClaim) -> None:
    """Compares.

    Raises:
        Unproved: the bits are not what the operator takes them for, or it is held to more than is charged.
    """
    if not relation.private or relation.orphans or not relation.owner:
        refuse("packed rows of nobody")
    terms = [_term(term) for term in _added(tree.items[0][1])]
    units = [t for t in terms if _unit(t[0], value, relation)]
    if len(units) != 1:
        refuse("packed rows without one unit")
    codes = [t for t in terms if t not in units and _is_code(t[0])]
    values = [t for t in terms if t not in units and t not in codes]
    if len(codes) != claim.keys:
        refuse("packed groups of another number")
    if len(values) not in (0, len(claim.values)):
        refuse("packed values of another number")
    for (node, _), most in zip(values, claim.values, strict=False):
        held = value(node)
        if held.low is None or held.low < 0 or held.high is None or held.high > most or held.nullable:
            refuse("a packed value beyond its bits")
    _apart(terms, units[0], codes, values, claim, value)
    if not claim.keys:
        tallies = dict(claim.tallies)
        for name, charged in claim.charged:
            if name not in tallies or tallies[name] > charged.steps:
                refuse("one unit moves a sum by more than is charged")


def _added(node: Expr) -> list[Expr]:
    if isinstance(node, Call) and node.name == "+" and len(node.args) == 2:
        left, right = node.args
        if not _is_product(node):
            return [*_added(left), *_added(right)]
    return [node]


def _is_product(node: Expr) -> bool:
    return isinstance(node, Call) and node.name == "*"


def _term(node: Expr) -> tuple[Expr, Number]:
    """A value and what it is multiplied by; None where that is filled in at release."""
    if not (isinstance(node, Call) and node.name == "*" and len(node.args) == 2):
        refuse(_SHAPE)
    inner, times = node.args
    if isinstance(times, Cast):
        times = times.child
    if isinstance(times, Parameter):
        return inner, None
    if (
        not isinstance(times, Literal)
        or isinstance(times.value, bool)
        or not isinstance(times.value, int)
        or times.value < 1
    ):
        refuse(_SHAPE)
    return inner, times.value


def _unit(node: Expr, value: Evaluate, relation: Relation) -> bool:
    """``CAST(unit AS BIGINT) - least``."""
    if not (isinstance(node, Call) and node.name == "-" and len(node.args) == 2 and _fixed(node.args[1])):
        return False
    inner = node.args[0]
    if isinstance(inner, Cast) and inner.type == "BIGINT":
        inner = inner.child
    if not isinstance(inner, Ref):
        return False
    found = value(inner)
    return found.symbol in relation.facts.units and found.whole


def _fixed(node: Expr) -> bool:
    if isinstance(node, Cast):
        node = node.child
    return isinstance(node, Parameter) or (isinstance(node, Literal) and isinstance(node.value, int))


def _is_code(node: Expr) -> bool:
    """``COALESCE(CAST(key AS BIGINT) - least + 1, 0)``: 0 stands for NULL."""
    if not (isinstance(node, Call) and node.name == "coalesce" and len(node.args) == 2):
        return False
    inner, zero = node.args
    if not (isinstance(zero, Literal) and zero.value == 0 and isinstance(inner, Call) and inner.name == "+"):
        return False
    left, one = inner.args
    below = (
        isinstance(left, Call)
        and left.name == "-"
        and _fixed(left.args[1])
        and isinstance(left.args[0], Cast | Ref)
    )
    return below and isinstance(one, Literal) and one.value == 1


def _apart(
    terms: list[tuple[Expr, Number]], unit: tuple[Expr, Number], codes: list[tuple[Expr, Number]],
    values: list[tuple[Expr, Number]], claim: PackingClaim, value: Evaluate,
) -> None:  # fmt: skip
    """Whether each part has bits of its own, where the text itself says which."""
    if any(times is None for _, times in terms):
        return
    at = 1
    for (_, times), most in zip(values, claim.values, strict=False):
        if times != at:
            refuse("packed values that share bits")
        at <<= most.bit_length()
    for _, times in codes:
        if times is None or times < at or times & (times - 1):
            refuse("packed groups that share bits with values")
    top = unit[1]
    assert top is not None
    if top < max([at, *(t for _, t in codes if t is not None)]) or top & (top - 1):
        refuse("the unit shares bits with what is packed beside it")
