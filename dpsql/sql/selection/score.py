"""The statistic of a selection mechanism: linear in exact aggregates, with public factors per candidate.

From its expression and the candidates' public values follow how far one privacy unit moves it, and whether it always
moves the same way. What is not of this form is refused: nobody could say its sensitivity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.sql.expressions import fixed_point as grids
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.bounds import Bounds
from dpsql.sql.expressions.types import BIGINT, Type, Typed
from dpsql.sql.parse.dialect import bind_error, expression_of, privacy_error, span_of, to_sql
from dpsql.sql.parse.options import Call, call_of, read_pair
from dpsql.sql.relations.relation import Names, Relation, column
from dpsql.sql.selection.candidate_factors import Factor, constant_of, factor_of
from dpsql.sql.selection.candidates import CANDIDATE, ROWS, Bare, Statistic, names_candidate, shape_of

_MOST = 1 << 80
"""Steps that one row may move a statistic by: sums over any table then fit 38 digits."""


@dataclass
class RowNames(Names):
    """Columns as a statistic sees them: private ones become columns of the bounded rows, as they are needed."""

    candidate: Relation | None = None
    values: dict[str, str] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    def column(self, node: exp.Column) -> Typed:
        found = self.find(node)
        if self.candidate is not None and any(found is f for f in self.candidate.fields):
            return found.typed
        sql = to_sql(found.typed.node)
        name = next((n for n, text in self.values.items() if text == sql), None)
        if name is None:
            name = f"x{len(self.values)}"
            self.values[name] = sql
            self.types[name] = found.typed.type
        return replace(found.typed, node=column(name, ROWS))


@dataclass(frozen=True)
class Limit:
    """A clip as ``base + offset``: of two with one base the distance is known, whatever the candidate."""

    base: str
    offset: Fraction
    whole: bool


@dataclass(frozen=True)
class Part:
    """One linear part: a public factor, an aggregate's term, and what a row moves the aggregate by (in its steps)."""

    factor: Typed
    sign: int
    amount: exp.Expr | None
    clip: exp.Expr | None
    condition: exp.Expr | None
    steps: Fraction
    low: int
    high: int
    bare: Bare | None = None
    limit: Limit | None = None


def bind_statistic(node: exp.Expr, names: RowNames) -> Statistic:
    """Binds the first argument of a mechanism.

    Raises:
        PrivacyError: its sensitivity can't be derived; BindError: names or types.
    """
    parts: list[Part] = []
    constants: list[tuple[int, Factor]] = []
    _collect(node, names, 1, None, parts, constants)
    if not parts:
        raise privacy_error(
            node,
            "the statistic does not look at private rows.",
            "write an aggregate, such as COUNT(*) FILTER (WHERE disease = name).",
        )
    factors = [factor_of(part.factor, span_of(node)) for part in parts]
    steps = [part.steps * f.scale for part, f in zip(parts, factors, strict=True)] + [
        f.scale for _, f in constants
    ]
    common = Fraction(math.lcm(*(s.numerator for s in steps)))
    terms, most, varying, weights, directions = [], 0, [], [], set()
    steady = _differences(parts)
    for i, (part, public) in enumerate(zip(parts, factors, strict=True)):
        extra = int(common / (part.steps * public.scale)) * part.sign
        factor = public.sql(extra)
        low, high = steady.get(i, (part.low, part.high))
        row = max(abs(low), abs(high))
        most += public.top * abs(extra) * row
        varying.append(f"ABS({factor}) * {row}")
        weights.append(public.weight(extra, row))
        directions |= _directions(public, part.sign, low, high)
        term = shape_of(factor, part.amount, part.clip, part.condition)
        if term.ranges and _lengths(part.condition, names):
            term = replace(term, equal=None, ranges=(), shape="nested loop")
        terms.append(term)
    texts = [constant.sql(int(common / constant.scale) * sign) for sign, constant in constants]
    if most > _MOST or (constants and common > _MOST):
        raise privacy_error(
            node,
            "the steps of this statistic are too many for exact integers.",
            "round its factors, or write it in larger units.",
        )
    differs = any(names_candidate(part.factor.node) for part in parts)
    shapes = {term.shape for term in terms}
    shape = "nested loop" if "nested loop" in shapes else ", ".join(sorted(shapes))
    return Statistic(
        tuple(terms), " + ".join(texts) or "0", common, max(1, most),
        f"CAST(GREATEST({' + '.join(varying)}, 1) AS HUGEINT)" if differs else None, len(directions) <= 1, shape,
        tuple(part.bare for part in parts), tuple(weights),
    )  # fmt: skip


_LENGTHS = re.compile(r"\b(INTERVAL|AGE|TO_[A-Z]+|MAKE_INTERVAL)\b", re.IGNORECASE)
_MOMENTS = ("DATE", "TIME", "TIMESTAMP")


def _lengths(condition: exp.Expr | None, names: RowNames) -> bool:
    """Whether intervals may be compared in a condition. DuckDB fails to find the bin of one, once there is a row to find
    it for: whoever asks would learn that there is.
    """
    if condition is None:
        return False
    kinds = {(ROWS, name): kind for name, kind in names.types.items()}
    if names.candidate is not None:
        kinds |= {(CANDIDATE, f.typed.node.name): f.typed.type for f in names.candidate.fields}

    def has(node: exp.Expr, *wanted: str) -> bool:
        found = (kinds.get((c.table, c.name)) for c in node.find_all(exp.Column))
        return any(kind is None or kind.kind in wanted for kind in found)

    differences = any(has(node, *_MOMENTS) for node in condition.find_all(exp.Sub))
    return differences or has(condition, "INTERVAL") or _LENGTHS.search(to_sql(condition)) is not None


def _differences(parts: list[Part]) -> dict[int, tuple[int, int]]:
    """What one row adds to ``SUM(LEAST(x, b)) - SUM(LEAST(x, b + w))``: between -w and 0, however large x and b are.

    The first of the two parts is given this range, the second nothing.
    """
    found: dict[int, tuple[int, int]] = {}
    for i, one in enumerate(parts):
        for j, other in enumerate(parts[:i]):
            if (
                one.limit is None
                or other.limit is None
                or one.limit.base != other.limit.base
                or {i, j} & set(found)
            ):
                continue
            same = (one.bare, one.condition, one.steps) == (other.bare, other.condition, other.steps)
            if same and one.sign == -other.sign and one.factor.node == other.factor.node:
                apart = (other.limit.offset - one.limit.offset) * one.steps
                # Rounding keeps the distance of two whole numbers of steps, and else may add a step: -1/2 and 1/2 become
                # -1 and 1.
                exact = one.limit.whole and all(
                    number.denominator == 1 for number in (one.limit.offset, other.limit.offset, one.steps)
                )
                width = math.ceil(abs(apart)) + (0 if exact else 1)
                found[j] = (-width if apart <= 0 else 0, width if apart >= 0 else 0)
                found[i] = (0, 0)
    return found


def _limit(node: exp.Expr, typed: Typed, steps: Fraction) -> Limit | None:
    """Splits numbers off a clip: ``b + 1`` is b, and 1 more. None where doubles might not hold it in grid steps."""
    bounds = typed.bounds
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    if max(abs(bounds.low), abs(bounds.high)) * steps >= 2**50:
        return None
    offset = Fraction(0)
    while isinstance(node, exp.Paren | exp.Add | exp.Sub):
        if not isinstance(node, exp.Paren):
            by = node.expression
            if not isinstance(by, exp.Literal) or by.is_string:
                break
            offset += Fraction(by.name) * (1 if isinstance(node, exp.Add) else -1)
        node = node.this
    return Limit(to_sql(node), offset, typed.type.kind == "INTEGER")


def _directions(factor: Factor, sign: int, low: int, high: int) -> set[int]:
    """Which ways one more row may move the term."""
    ends = {f * v * sign for f in (factor.low, factor.high) for v in (low, high)}
    return {1 if e > 0 else -1 for e in ends if e != 0}


def _collect(
    node: exp.Expr, names: RowNames, sign: int, factor: exp.Expr | None, parts: list[Part],
    constants: list[tuple[int, Factor]],
) -> None:  # fmt: skip
    if isinstance(node, exp.Paren):
        return _collect(node.this, names, sign, factor, parts, constants)
    if isinstance(node, exp.Neg):
        return _collect(node.this, names, -sign, factor, parts, constants)
    call = call_of(node)
    if call is not None and call.name in _AGGREGATES:
        one = Typed(exp.Literal.number(1), BIGINT, Bounds.point(1), True, None, Bounds.point(1))
        parts.append(
            _AGGREGATES[call.name](call, names, sign, one if factor is None else _public(factor, names))
        )
        return None
    if not _private(node):
        whole = node if factor is None else exp.Mul(this=factor.copy(), expression=exp.paren(node.copy()))
        added = _public(whole, names)
        if not added.type.numeric:
            raise bind_error(node, f"this adds {added.type.sql}, not a number.")
        constants.append((sign, constant_of(added)))
        return None
    if isinstance(node, exp.Add | exp.Sub):
        _collect(node.this, names, sign, factor, parts, constants)
        return _collect(
            node.expression, names, -sign if isinstance(node, exp.Sub) else sign, factor, parts, constants
        )
    if isinstance(node, exp.Mul | exp.Div):
        left, right = node.this, node.expression
        if isinstance(node, exp.Mul) and _private(right) and not _private(left):
            left, right = right, left
        if _private(left) and not _private(right):
            one_over = exp.Div(this=exp.Literal.number(1), expression=exp.paren(right.copy()))
            new: exp.Expr = right.copy() if isinstance(node, exp.Mul) else one_over
            if factor is not None:
                new = exp.Mul(this=exp.paren(factor.copy()), expression=exp.paren(new))
            return _collect(left, names, sign, new, parts, constants)
    raise privacy_error(
        node,
        "the sensitivity of this statistic can't be derived.",
        "write counts and bounded sums, added or times a candidate's column.",
    )


def _private(node: exp.Expr) -> bool:
    return any((call := call_of(n)) is not None and call.name in _AGGREGATES for n in node.walk())


def _public(node: exp.Expr, names: RowNames) -> Typed:
    """A number that no private row has a part in.

    Raises:
        PrivacyError: a column of the private rows stands outside of an aggregate.
    """
    typed = total_expressions.make_total(node, names)
    if any(found.table == ROWS for found in typed.node.find_all(exp.Column)):
        raise privacy_error(
            node,
            "a column of the private rows can't stand outside of an aggregate.",
            "write SUM(x) or COUNT(*) FILTER (WHERE ...), times a number or a candidate's column.",
        )
    return typed


def _filtered(call: Call, names: RowNames, extra: exp.Expr | None = None) -> exp.Expr | None:
    made = [] if call.where is None else [total_expressions.make_condition(call.where, names).node]
    made += [extra] if extra is not None else []
    return None if not made else exp.and_(*made, copy=False)


def _count(call: Call, names: RowNames, sign: int, factor: Typed) -> Part:
    call.read({})
    if len(call.args) > 1:
        raise bind_error(call.node, "COUNT takes one argument.")
    if call.distinct:
        raise privacy_error(
            call.node,
            "COUNT(DISTINCT ...) is not known per candidate.",
            "write COUNT(*): a unit's rows are bounded.",
        )
    extra = None
    if call.args and not call.args[0].is_star and not isinstance(call.args[0], exp.Literal):
        typed = total_expressions.make_total(call.args[0], names)
        extra = exp.Not(this=exp.paren(exp.Is(this=typed.node, expression=exp.Null())))
    return Part(factor, sign, None, None, _filtered(call, names, extra), Fraction(1), 0, 1)


def _count_if(call: Call, names: RowNames, sign: int, factor: Typed) -> Part:
    call.read({})
    if len(call.args) != 1:
        raise bind_error(call.node, "COUNT_IF takes one condition.")
    extra = total_expressions.make_condition(call.args[0], names).node
    return Part(factor, sign, None, None, _filtered(call, names, extra), Fraction(1), 0, 1)


def _sum(call: Call, names: RowNames, sign: int, factor: Typed) -> Part:
    if len(call.args) != 1 or call.distinct:
        raise bind_error(call.node, "SUM takes one argument.")
    given = call.read({"contribution_bounds_per_row": read_pair}).get("contribution_bounds_per_row")
    inner, clip = _unclipped(call.args[0], names)
    typed = total_expressions.make_total(inner, names)
    bounds = (typed.bounds or Bounds()) if given is None else Bounds(*given)
    low, high = bounds.low, bounds.high
    limit: Typed | None = None
    if clip is not None:
        limit = total_expressions.make_total(clip, names)
        if not limit.type.numeric:
            raise bind_error(clip, f"LEAST meets {typed.type.sql} with {limit.type.sql}.")
        ends = limit.bounds or Bounds()
        low = low if low is None or ends.low is None else min(low, ends.low)
        high = ends.high if high is None else high if ends.high is None else min(high, ends.high)
    if not typed.type.numeric or bounds.low is None or low is None or high is None:
        raise privacy_error(
            call.node,
            f"{to_sql(call.node)} needs bounds.",
            "clip it with LEAST(GREATEST(x, 0), c.b), or ask the data owner for bounds.",
        )
    grid = grids.choose_grid(typed.type, low, max(high, low))
    y, least = to_sql(grids.write_steps(typed, grid)), math.floor(bounds.low * grid.steps)
    # What is clipped anyway needs no bound above: the clip is held to the bounds itself.
    clamped = f"GREATEST({y}, {least})"
    amount = expression_of(clamped if limit is not None else f"LEAST({clamped}, {grid.high})")
    held = expression_of(f"CASE WHEN ({y}) IS NOT NULL THEN {to_sql(amount)} END")
    step = None
    if limit is not None:
        # Held to the bounds before it is scaled: one far beyond them clips nothing, and neither does one that is missing.
        first, last = (repr(float(end / grid.steps)) for end in (grid.low, grid.high))
        near = f"LEAST(GREATEST(COALESCE(CAST({to_sql(limit.node)} AS DOUBLE), {last}), {first}), {last})"
        scaled = f"CAST(ROUND({near} * {float(grid.steps)!r}) AS BIGINT)"
        step = expression_of(f"LEAST(GREATEST({scaled}, {grid.low}), {grid.high})")
    return Part(
        factor,
        sign,
        held,
        step,
        _filtered(call, names),
        Fraction(grid.steps),
        min(0, grid.low),
        max(0, grid.high),
        None if limit is None else Bare(y, least),
        None if limit is None or clip is None else _limit(clip, limit, grid.steps),
    )


def _unclipped(node: exp.Expr, names: RowNames) -> tuple[exp.Expr, exp.Expr | None]:
    """``LEAST(x, c.b)`` as x and its clip."""
    if isinstance(node, exp.Least):
        items = [node.this, *node.expressions]
        if len(items) == 2:
            for mine, theirs in (items, items[::-1]):
                if (
                    not _reads(mine, names)
                    and _reads(theirs, names)
                    and only_candidate_columns(theirs, names)
                ):
                    return mine, theirs
    return node, None


def _reads(node: exp.Expr, names: RowNames) -> bool:
    """Whether an expression names a column of the candidate."""
    if names.candidate is None:
        return False
    return any(any(names.find(c) is f for f in names.candidate.fields) for c in node.find_all(exp.Column))


def only_candidate_columns(node: exp.Expr, names: RowNames) -> bool:
    assert names.candidate is not None
    return all(any(names.find(c) is f for f in names.candidate.fields) for c in node.find_all(exp.Column))


_AGGREGATES: dict[str, Callable[[Call, RowNames, int, Typed], Part]] = {
    "COUNT": _count,
    "SUM": _sum,
    "COUNT_IF": _count_if,
}
