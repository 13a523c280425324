"""No value makes a text fail: casts, arithmetic, aggregates, calls inside TRY, joins, and types of outputs.

Otherwise one person's row would decide how a statement ends. DuckDB's bound plan has every cast, also those that DuckDB adds,
and the type of every expression. From the types, literals and clamps in it this module derives the range of each expression.

* Sums, products and their like need a range that fits the type of their result, and so does a cast that isn't TRY_CAST. TRY
  may contain one such operation: DuckDB 1.5 computes an operation that occurs twice once, outside of TRY.
* No condition narrows a range: DuckDB may test conditions in any order, and compute other expressions before.
* Functions that are not listed as total need TRY. It does not catch every error. DuckDB ends a query for a part that a time
  or an interval has not, for a bucket whose width is not above zero, and for an escape of several characters, as soon as a
  row has a value there. Such calls are refused by the types of their arguments.
* DuckDB has no SEMI or ANTI join by an order of intervals, and says so only when there is a row to join.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from typing import Any

from dpsql.late_dataclass import dataclass
from dpsql.lock.expressions import MOST_ROWS, lower, upper
from dpsql.lock.facts import Number, add, least, times
from dpsql.lock.plan_types import (
    FLOATS,
    Node,
    check_call,
    check_join,
    digits_of,
    is_short,
    is_total,
    list_expressions,
    read_constant,
    read_count,
    read_name,
    read_operand,
)
from dpsql.lock.tree import RANGES, Unproved, refuse

Plan = Callable[[str], str]
"""DuckDB's bound plan of a text as JSON, without optimizations."""


def prove_total(text: str, plan: Plan, exact: bool = False) -> list[tuple[str, Node]]:
    """Prove that no value of a column makes a text fail, and return the names and types of its outputs.

    Args:
        exact: whether the proof is for these constants alone. Otherwise it is for all texts whose small integers have as many
            digits, see :meth:`ShapedText.list_ranges`.
    """
    try:
        (root,) = json.loads(plan(f"SELECT * FROM ({text}) AS outputs"))["plans"]
        outputs = [(str(item["alias"]), item["return_type"]) for item in root["expressions"]]
        _Plan(exact).relation(root)
    except (ValueError, LookupError, TypeError, AttributeError):
        refuse("no plan of the text, or one of another shape")
    return outputs


# -- ranges -------------------------------------------------------------------------------------------------------------

NARROW = (127, 128, 255, 32_767, 32_768, 65_535)
"""The largest integers of the 8-bit and 16-bit types, by absolute value."""
Ends = tuple[Number, Number]
Row = list["Range"] | None
"""An operator's columns; None if only their types are known."""


@dataclass(slots=True)
class Range:
    """The values of an expression, without NULL.

    Args:
        kind: its type in DuckDB's plan.
        low, high: whole bounds. NaN is above all numbers, as in DuckDB's order, so a float with an upper bound is never NaN.
        sure: whether it is never NULL.
        symbol: its identity: equal expressions of equal columns have one.
        only: a condition's symbol if it is NULL exactly where the condition is not true; -1 if more often than its symbol says.
        guarded: whether it might fail for rows that a filter below it removes.
        total: the most that the absolute values of all rows add up to, if it is known from those of the rows below.
        unique: whether no two rows have the same value.
    """

    kind: Node
    low: Number = None
    high: Number = None
    sure: bool = False
    symbol: int = 0
    only: int = 0
    guarded: bool = False
    total: Number = None
    unique: bool = False

    @property
    def most(self) -> Number:
        """Return the largest absolute value."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))

    @property
    def whole(self) -> Number:
        """Return the most that the absolute values of all rows add up to."""
        return least(self.total, times(self.most, MOST_ROWS))

    @property
    def is_float(self) -> bool:
        """Return whether it may be infinite or NaN, and is rounded."""
        return self.kind.get("id") in FLOATS

    @property
    def positive(self) -> bool:
        """Return whether it is never below zero."""
        return self.low is not None and self.low >= 0


def _ends(kind: Node) -> Ends:
    """Return the least and the greatest value of an integer type, or whole numbers around those of a decimal."""
    if kind.get("id") == "DECIMAL":
        most = 10 ** digits_of(kind)[0]
        return -most, most
    return RANGES.get(str(kind.get("id")), (None, None))


def _holds(kind: Node, low: Number, high: Number) -> bool:
    """Return whether a type has all numbers, or days since the year 0, between two ends."""
    name = kind.get("id")
    least, most = (-_FARTHEST, _FARTHEST) if name == "DATE" else _ends(kind)
    if least is None or most is None or low is None or high is None:
        return name in FLOATS
    if name in ("DECIMAL", "HUGEINT"):  # DuckDB 1.5 has no product that is the least HUGEINT
        return least < low and high < most
    return least <= low and high <= most


def _minus(a: Range, b: Range) -> Ends:
    return add(a.low, times(b.high, -1)), add(a.high, times(b.low, -1))


def _product(a: Range, b: Range) -> Ends:
    if a.positive and b.positive:
        return times(a.low, b.low), times(a.high, b.high)
    ends = [times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return lower(ends), upper(ends)


def _quotient(a: Range, b: Range) -> Ends:
    """Bound a quotient of integers, which is NULL for a divisor of zero, or of floats, which is infinite or NaN."""
    if a.is_float and (b.low is None or b.low <= 0):
        return (0 if a.positive and b.positive else None), None
    if not b.positive:
        return times(a.most, -1), a.most
    return _with_zero(*(None if end is None else end // (b.low or 1) for end in (a.low, a.high)))


def _with_zero(low: Number, high: Number) -> Ends:
    return lower((low, 0)), upper((high, 0))


def _remainder(a: Range, b: Range) -> Ends:
    if a.is_float and (a.most is None or b.low is None or b.low <= 0):  # perhaps NaN
        return None, None
    most = least(a.most, b.most) if b.positive else a.most  # DuckDB 1.5 fails for the least integer and -1
    return 0 if a.positive else times(most, -1), most


def _shifted(a: Range, b: Range) -> Ends:
    return (
        (0, None if a.high is None else a.high >> (b.low or 0)) if a.positive and b.positive else (None, None)
    )


def _part(ends: Ends, of: Range) -> Ends:
    """Bound a part of a time."""
    return (-(1 << 36), 1 << 36) if of.kind.get("id") == "INTERVAL" else ends


def _float_ends(kind: Node, low: Number, high: Number) -> Ends:
    """Widen ends by a float's errors of rounding."""
    bits = 50 if kind.get("id") == "DOUBLE" else 20
    low = None if low is None else low - (abs(low) >> bits) - (low != 0)
    return low, None if high is None else high + (abs(high) >> bits) + 1


_LENGTH_WORDS = """
length char_length character_length strlen bit_length strpos instr position levenshtein editdist3 len array_length
list_unique cardinality
"""
_LENGTHS = frozenset(_LENGTH_WORDS.split())
_PARTS: Mapping[str, Ends] = {
    "era": (0, 1), "quarter": (1, 4), "month": (1, 12), "week": (1, 53), "weekofyear": (1, 53), "day": (1, 31),
    "dayofmonth": (1, 31), "dayofweek": (0, 6), "weekday": (0, 6), "dow": (0, 6), "isodow": (1, 7), "dayofyear": (1, 366),
    "doy": (1, 366), "hour": (0, 24), "minute": (0, 59), "second": (0, 59), "millisecond": (0, 59_999),
    "microsecond": (0, 59_999_999), "yearweek": (-600_000_000, 600_000_000),
    **dict.fromkeys(("year", "isoyear", "decade", "century", "millennium"), (-6_000_000, 6_000_000)),
}  # fmt: skip
"""The ends of the parts of dates, timestamps and clock times; those of intervals may be larger, and negative."""
_CODES = frozenset(("ascii", "unicode", "ord"))
_SMALL_WORDS = "bit_count list_position list_count timezone timezone_hour timezone_minute"
_SMALL = frozenset((*_LENGTHS, *_PARTS, *_CODES, *_SMALL_WORDS.split()))
"""Functions that count, or that take a part of a time: their results have at most 36 bits, and are NULL for some values."""
_TOTAL_WORDS = """
hash xor & | ~ epoch row struct_pack struct_extract isnan isinf isfinite signbit normalized_interval
cbrt exp atan atan2 sinh cosh tanh asinh degrees radians pi even
~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape regexp_matches regexp_full_match regexp_extract
regexp_replace lower lcase upper ucase reverse strip_accents nfc_normalize trim ltrim rtrim substring substr left right
replace translate split_part string_split str_split starts_with ^@ prefix ends_with suffix contains jaro_similarity
jaro_winkler_similarity md5 sha1 sha256 || concat concat_ws list_value list_extract array_extract list_slice array_slice
list_distinct list_sort list_reverse_sort list_reverse array_contains
list_contains list_has_all list_has_any list_filter list_transform map_keys map_values map_extract map_extract_value
map_contains
"""
_TOTAL = frozenset(_TOTAL_WORDS.split())
"""Functions that have a result for all arguments."""
_ROUNDINGS = "round round_even ceil floor trunc"
_RULES: Mapping[str, Callable[..., Ends]] = {
    "+": lambda a, b: (add(a.low, b.low), add(a.high, b.high)),
    "-": lambda *args: _minus(*args if len(args) == 2 else (Range({}, 0, 0), args[0])),
    "*": _product,
    "//": _quotient,
    "/": _quotient,
    "%": _remainder,
    ">>": _shifted,
    "abs": lambda a: (0, a.most),
    "sqrt": lambda a: (0, a.high if a.positive else None),
    "log2": lambda a: (None, 1100 if a.positive and a.high is not None else None),
    "power": lambda a, b: (0 if a.positive else None, None),
    "sign": lambda a: (-1, 1),
    **dict.fromkeys(_SMALL, lambda *args: (-(1 << 36), 1 << 36)),
    **dict.fromkeys(_LENGTHS, lambda *args: (0, 1 << 36)),
    **dict.fromkeys(_CODES, lambda text: (-1, 0x10FFFF)),
    **{name: partial(_part, ends) for name, ends in _PARTS.items()},
    **dict.fromkeys(_ROUNDINGS.split(), lambda a, *digits: (None, None) if digits else (a.low, a.high)),
}
"""Functions of numbers, whose results may have no place in their type."""
_LEAST = {"sqrt": 0, "log2": 1}
"""Numbers from which on functions have a result in DuckDB 1.5, which has an error instead of NaN."""
_ONE_OF = "min max first last any_value mode arg_min arg_max quantile_disc lag lead first_value last_value nth_value"
_AMONG = frozenset(_ONE_OF.split())
"""Aggregates and windows whose value is one of their first argument's."""
_COUNT_WORDS = "count count_star count_if approx_count_distinct row_number rank dense_rank rank_dense ntile"
_COUNTS = frozenset(_COUNT_WORDS.split())
_AGGREGATE_WORDS = """
approx_quantile arbitrary arg_max_null arg_min_null argmax argmin array_agg bit_and bit_or bit_xor bool_and bool_or countif
cume_dist entropy favg fsum group_concat histogram kahan_sum list listagg max_by min_by percent_rank product quantile regr_count
string_agg sumkahan
"""
_TOTAL_AGGREGATES = _AMONG | frozenset(_AGGREGATE_WORDS.split())
"""Aggregates and windows that have a result for all arguments."""
_MOMENT_WORDS = """
corr covar_pop covar_samp regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
sem stddev stddev_pop stddev_samp var_pop var_samp variance
"""
_MOMENTS = frozenset(_MOMENT_WORDS.split())
"""Aggregates of squares, which fail in DuckDB 1.5 if their sums are not finite."""
_SQUARED = 10**75
"""Numbers whose products with such numbers, over all rows, have a finite sum."""
_INTERPOLATED = ("median", "quantile_cont", "mad")
"""Aggregates that have a result for all numbers. Between dates or intervals they compute in microseconds, which may overflow."""
_MISSING = -1
"""The symbol of NULL."""


@dataclass(slots=True)
class _Plan:
    """Derives the ranges of one plan's expressions, and refuses those that may fail.

    Some ranges follow from what expressions are of each other: ``a - (a // b) * b`` is smaller than b, a sum over n rows divided
    by n is no larger than a row's number, a count is a share of the count of all rows.
    """

    exact: bool
    queries: dict[int, Row] = field(default_factory=dict)
    """The columns of queries in WITH."""
    symbols: dict[Hashable, int] = field(default_factory=dict)
    quotients: dict[int, tuple[Range, Range]] = field(default_factory=dict)
    """For ``a // b``: a, and b."""
    floors: dict[int, tuple[int, Range]] = field(default_factory=dict)
    """For ``(a // b) * b``: a, and b."""
    shares: dict[int, tuple[int, Number]] = field(default_factory=dict)
    """For a number from 0 to a multiple of another: the other, and the multiple."""
    above: dict[int, frozenset[int]] = field(default_factory=dict)
    """For GREATEST: numbers that it is not below."""
    counts: dict[int, Hashable] = field(default_factory=dict)
    """For a count: the set of rows that it is the size of."""
    sums: dict[int, tuple[frozenset[Hashable], Ends]] = field(default_factory=dict)
    """For a sum: sets of rows that have all of its terms, and the ends of a term."""
    apart: dict[int, tuple[int, Range]] = field(default_factory=dict)
    distances: dict[int, tuple[int, Range]] = field(default_factory=dict)
    """For ``x - a``, and for ``abs(x - a)`` or ``abs(x)``: x, and a or 0."""
    guarded: bool = False
    """Whether an expression was read that is guarded."""

    def symbol(self, *key: Hashable) -> int:
        """Return the symbol of an expression; without a key, a new one."""
        return self.symbols.setdefault(key or len(self.symbols), len(self.symbols) + 1)

    # -- relations -------------------------------------------------------------------------------------------------------

    def relation(self, node: Node) -> Row:
        """Return an operator's columns."""
        name = node["type"]
        below: list[Row] = []
        for child in node.get("children") or ():
            below.append(self.relation(child))
            if name == "LOGICAL_MATERIALIZED_CTE" and len(below) == 1:
                self.queries[node["table_index"]] = below[0]
        self.guarded = False
        if name.endswith("_JOIN") or name == "LOGICAL_CROSS_PRODUCT":
            return self._join(node, *below)
        row = below[0] if len(below) == 1 else None
        match name:
            case "LOGICAL_PROJECTION":
                return [self._projected(part, row, node) for part in node["expressions"]]
            case "LOGICAL_AGGREGATE_AND_GROUP_BY":
                return self._groups(node, row)
            case "LOGICAL_GET":
                return self._scanned(node)
            case "LOGICAL_CTE_REF":
                return self._copied(self.queries.get(node["cte_index"]))
            case "LOGICAL_MATERIALIZED_CTE":
                return below[-1]
        listed = [
            self.value(part, row) for key in node if key != "children" for part in list_expressions(node[key])
        ]
        match name:
            case "LOGICAL_WINDOW":
                return None if row is None else row + listed
            case "LOGICAL_DISTINCT" if row is not None and len(row) == 1:
                return [replace(row[0], unique=True)]
            case "LOGICAL_ORDER_BY" | "LOGICAL_LIMIT" | "LOGICAL_DISTINCT":
                return row
            case "LOGICAL_EXPRESSION_GET":
                width = len(node["expr_types"])
                return [self._one_of(listed[place::width]) for place in range(width)]
            case "LOGICAL_UNION" | "LOGICAL_EXCEPT" | "LOGICAL_INTERSECT" if None not in below:
                return [self._one_of(column) for column in zip(*below, strict=True)]
        self._refuse_guarded(below if name != "LOGICAL_FILTER" else ())
        return row if name == "LOGICAL_FILTER" else None

    def _refuse_guarded(self, unknown: Iterable[Row] = ()) -> None:
        """Refuse conditions on guarded values: DuckDB may test them before the condition of the filter below."""
        if self.guarded or any(column.guarded for row in unknown for column in row or ()):
            refuse("a condition on a value that may fail for rows that another condition removes")

    def _copied(self, row: Row) -> Row:
        """Return the columns of one of several readings of a query, which reads other rows than the others."""
        return row and [replace(column, symbol=self.symbol(), only=0) for column in row]

    def _scanned(self, node: Node) -> Row:
        kinds = node.get("returned_types") or []
        places = [one.get("index", 0) for one in node.get("column_indexes") or ()]
        if node.get("projection_ids") or any(place >= len(kinds) for place in places):
            return None
        columns = [self._typed(kinds[place]) for place in places]
        given = [
            _read_ends(one.get("value"), one.get("type") or {}, self.exact)
            for one in node.get("parameters") or ()
        ]
        if read_name(node) in ("range", "generate_series") and len(given) == 2:
            return [replace(column, low=given[0][0], high=given[1][1]) for column in columns]
        return columns

    def _narrow(self, node: Node, row: Row) -> Row:
        """Return an operator's rows as a filter right below narrows them; None if there is none."""
        (child,) = node["children"]
        if row is None or child["type"] != "LOGICAL_FILTER":
            return None
        held = self._conditions(child["expressions"], row)
        return [_narrowed(column, held) for column in row]

    def _projected(self, part: Node, row: Row, node: Node) -> Range:
        """Return a column of a projection. If it might fail otherwise, a filter right below narrows its operands."""
        self.guarded = False
        try:
            found = self.value(part, row)
        except Unproved:
            narrow = self._narrow(node, row)
            if narrow is None:
                raise
            return replace(self.value(part, narrow), guarded=True)
        return replace(found, guarded=True) if self.guarded else found

    def _groups(self, node: Node, row: Row) -> Row:
        """Return the columns of an aggregation. A filter right below narrows its arguments, but not what is grouped."""
        listed = [self.value(part, row) for part in list_expressions(node.get("groups"))]
        if len(listed) == 1:
            listed = [replace(listed[0], unique=True)]
        row, rows, most = self._narrow(node, row) or row, self.symbol(), _count_rows(node["children"][0])
        return listed + [
            self._aggregate(part, row, rows, most) for part in list_expressions(node.get("expressions"))
        ]

    def _join(self, node: Node, left: Row, right: Row) -> Row:
        check_join(node)
        row = None if left is None or right is None else left + right
        once = [False, node["type"] == "LOGICAL_ASOF_JOIN"]  # whether a row meets one at most, on either side
        for one in node.get("conditions") or ():
            if not one.get("left") or not one.get("right"):  # a condition that compares no two sides
                for part in list_expressions(one):
                    self.value(part, None)
                continue
            sides = self.value(one["left"], left), self.value(one["right"], right)
            if one.get("comparison") == "COMPARE_EQUAL":
                once = [before or side.unique for before, side in zip(once, sides, strict=True)]
        for key, part in node.items():
            for other in list_expressions(part) if key not in ("children", "conditions") else ():
                self.value(other, row)
        self._refuse_guarded()
        kind = node.get("join_type")
        if kind in ("SEMI", "ANTI", "MARK"):
            return left if kind != "MARK" or left is None else [*left, self._typed({"id": "BOOLEAN"})]
        sure = kind == "INNER" or node["type"] == "LOGICAL_CROSS_PRODUCT"
        return row and [
            replace(column, sure=column.sure and sure, total=column.total if kept else None, unique=False)
            for part, kept in ((left, once[1]), (right, once[0]))
            for column in part or ()
        ]

    # -- expressions -----------------------------------------------------------------------------------------------------

    def value(self, node: Node, row: Row, attempt: bool = False) -> Range:
        """Return an expression's range, or refuse it if it may fail; ``attempt``: whether TRY catches its own failure."""
        kind = (
            node.get("return_type") or (node.get("value") or {}).get("type") or {"id": "BOOLEAN"}
        )  # in DuckDB 1.5
        match node["type"]:
            case "BOUND_REF":
                found = row[node["index"]] if row is not None and node["index"] < len(row) else None
                if found is None or found.kind != kind:
                    return self._typed(kind)
                self.guarded = self.guarded or found.guarded
                return found
            case "VALUE_CONSTANT":
                constant = node["value"]
                if constant.get("is_null"):
                    return Range(kind, 0, 0, symbol=_MISSING)
                low, high = _read_ends(constant.get("value"), kind, self.exact)
                return Range(kind, low, high, True, self.symbol(repr(constant.get("value")), kind.get("id")))
            case "OPERATOR_TRY":
                return replace(self.value(node["children"][0], row, True), sure=False)
            case "CASE_EXPR" if self._is_impossible(node["case_checks"][0]["when_expr"], row):
                return self.value(node["else_expr"], row)
        if node["expression_class"] in ("BOUND_AGGREGATE", "BOUND_WINDOW"):
            return self._aggregate(node, row, self.symbol())
        args = self._operands(node, row)
        match node["type"]:
            case "OPERATOR_CAST":
                return self._cast(node, args[0], kind, attempt)
            case "CASE_EXPR":
                return self._case(node, args, row)
            case "OPERATOR_COALESCE":
                return replace(self._one_of(args, "coalesce"), sure=any(arg.sure for arg in args))
        if node["expression_class"] == "BOUND_FUNCTION" and not node["type"].startswith("COMPARE"):
            return self._call(read_name(node), node, args, kind, attempt)
        return replace(self._typed(kind), symbol=self.symbol(node["type"], *(arg.symbol for arg in args)))

    def _operands(self, node: Node, row: Row) -> list[Range]:
        """Return the ranges of an expression's operands; a lambda reads other columns than its row."""
        return [
            self.value(part, row if key != "function_data" else None)
            for key in node
            if key != "return_type"
            for part in list_expressions(node[key])
        ]

    def _typed(self, kind: Node) -> Range:
        return Range(kind, *_ends(kind), symbol=self.symbol())

    def _one_of(self, args: Sequence[Range], *name: Hashable) -> Range:
        """Return a value that is one of these; ``name``: the function of their values that it is, if any."""
        known = [arg for arg in args if arg.symbol != _MISSING] or args
        sure = all(arg.sure for arg in args)
        if len({arg.symbol for arg in known}) == 1:
            return replace(known[0], sure=sure, only=0 if len(known) == len(args) else _MISSING)
        low, high = lower(arg.low for arg in known), upper(arg.high for arg in known)
        wholes = [arg.whole for arg in known]
        total = sum(whole for whole in wholes if whole is not None) if None not in wholes else None
        symbol = self.symbol(*name, *(arg.symbol for arg in args)) if name else self.symbol()
        return Range(args[0].kind, low, high, sure, symbol, total=total)

    def _case(self, node: Node, args: list[Range], row: Row) -> Range:
        """Return the range of CASE; in ``CASE WHEN x BETWEEN a AND b THEN x END``, that of x between a and b."""
        if len(args) != 3 or args[2].symbol != _MISSING:
            return self._one_of([*args[1::2], args[-1]], "case", *(arg.symbol for arg in args))
        made = _narrowed(args[1], self._conditions([node["case_checks"][0]["when_expr"]], row))
        symbol, only = self.symbol("case", args[0].symbol, made.symbol), args[0].symbol if made.sure else 0
        return replace(made, sure=False, symbol=symbol, only=only)

    def _is_impossible(self, node: Node, row: Row) -> bool:
        """Return whether a condition is never true: DuckDB's ``count(*) > 1``, an error, of a subquery of one row at most."""
        if node["type"] != "COMPARE_GREATERTHAN":
            return False
        count, one = self._operands(node, row)
        return count.high is not None and one.low is not None and count.high <= one.low

    def _conditions(self, parts: Sequence[Node], row: Row) -> dict[int, tuple[Number, Number, bool]]:
        """Return the ends that conditions give expressions, by symbol, and whether these are not NULL."""
        held: dict[int, tuple[Number, Number, bool]] = {}
        waiting = [*parts]
        while waiting:
            node = waiting.pop()
            name = node["type"]
            operands = [*list_expressions([node[key] for key in node if key != "return_type"])]
            if name == "CONJUNCTION_AND":
                waiting += operands
                continue
            if name == "CONJUNCTION_OR":  # x IS NULL OR x BETWEEN ...
                others = self._conditions([one for one in operands if one["type"] != "OPERATOR_IS_NULL"], row)
                missing = [
                    self._operands(one, row)[0].symbol
                    for one in operands
                    if one["type"] == "OPERATOR_IS_NULL"
                ]
                if len(operands) == 2 and len(missing) == 1 and missing[0] in others:
                    held.setdefault(missing[0], (*others[missing[0]][:2], False))
                continue
            args = self._operands(node, row)
            if name == "OPERATOR_NOT" and operands[0]["type"] == "OPERATOR_IS_NULL":
                args = self._operands(operands[0], row)
            elif name == "OPERATOR_IS_NOT_NULL":
                args = args[:1]
            elif name == "COMPARE_BETWEEN":
                args = [replace(args[0], low=args[1].low, high=args[2].high)]
            elif name in ("COMPARE_GREATERTHANOREQUALTO", "COMPARE_GREATERTHAN"):
                args = [replace(args[0], low=args[1].low, high=None)]
            elif name in ("COMPARE_LESSTHANOREQUALTO", "COMPARE_LESSTHAN"):
                args = [replace(args[0], low=None, high=args[1].high)]
            else:
                continue
            (asked,) = args
            low, high, _ = held.get(asked.symbol, (None, None, True))
            held[asked.symbol] = asked.low if low is None else low, least(asked.high, high), True
            if asked.symbol in self.distances and asked.high is not None:
                other, apart = self.distances[asked.symbol]
                if (apart.low, apart.high) == (0, 0):  # abs(x) < 3
                    held.setdefault(other, (-asked.high, asked.high, True))
        return held

    def _cast(self, node: Node, child: Range, kind: Node, attempt: bool) -> Range:
        """Return the range of a cast; refuse one that may fail."""
        details = node.get("function_data") or node  # DuckDB 1.5: in the node itself
        attempt = attempt or details.get("try_cast", False)
        name, number = kind.get("id"), _read_number(read_operand(node), kind)
        low, high = (child.low, child.high) if number is None else (math.floor(number), math.ceil(number))
        if child.kind.get("id") == "BOOLEAN":
            number, low, high = 0, 0, 1
        if name in FLOATS:
            low, high = _float_ends(kind, low, high)
        elif name not in _NUMBERS or (child.kind.get("id") not in _NUMBERS and number is None):
            low, high = _time_ends(node, child, kind)
        fits = (
            is_total(child.kind, kind)
            or (name != "FLOAT" and _holds(kind, low, high))
            or _is_timely(child, kind)
        )
        if not attempt and not fits and not _fits_constant(read_operand(node), kind):
            refuse(f"a cast of {child.kind.get('id')} to {name} that may fail")
        same = (fits and {child.kind.get("id"), name} <= RANGES.keys()) or child.symbol == _MISSING
        symbol = child.symbol if same else self.symbol("cast", attempt, repr(kind), child.symbol)
        made = _clipped(kind, low, high, child.sure and (fits or not attempt))
        only, total = child.only if fits or not attempt else 0, child.total if same else None
        return replace(made, symbol=symbol, only=only, total=total)

    def _call(self, name: str, node: Node, args: list[Range], kind: Node, attempt: bool) -> Range:
        """Return the range of a function's result; refuse one that may fail."""
        check_call(name, node.get("children") or [])
        symbol = self.symbol(name, repr(kind), *(arg.symbol for arg in args))
        if name in ("date_part", "datepart") and str(read_constant(node["children"][0])) in _PARTS:
            name, args = str(read_constant(node["children"][0])), args[1:]  # year(x) in DuckDB 1.5
        if name in ("least", "greatest"):
            return self._extreme(name, args, symbol)
        if name.startswith("to_") and kind.get("id") == "INTERVAL":  # DuckDB 1.5's literals
            attempt = attempt or _holds({"id": "SMALLINT"}, args[0].low, args[0].high)
        if name in ("+", "-") and kind.get("id") in _TIMESTAMPS and is_short(node["children"][-1]):
            attempt = attempt or _holds({"id": "DATE"}, args[0].low, args[0].high)
        if name in ("list_aggr", "list_aggregate"):
            aggregate = read_constant(node["children"][1])
            attempt = attempt or aggregate in (*_AMONG, *_COUNTS, "string_agg")
            name = "list_count" if aggregate == "count" else name
        if name == "make_timestamp" and len(args) == 1:  # microseconds of a public calendar
            attempt = attempt or _holds({"id": "BIGINT"}, *_product(args[0], Range({}, 2, 2)))
        rule = _RULES.get(name)
        if rule is None or kind.get("id") not in _NUMBERS:
            if not attempt and name not in _TOTAL:
                refuse(f"{name}, which may fail, outside of TRY")
            return replace(self._typed(kind), symbol=symbol)
        low, high = self._related(name, args, symbol) or rule(*args)
        if kind.get("id") in FLOATS:
            low, high = _float_ends(kind, low, high)
            if any(arg.is_float and arg.high is None for arg in args):  # perhaps NaN
                high = None
        fails = name in _LEAST and (args[0].low is None or args[0].low < _LEAST[name])
        if not attempt and name not in _SMALL and (fails or not _holds(kind, low, high)):
            refuse(f"{name}, whose result may have no place in {kind.get('id')}")
        missing = attempt or name in ("//", "%") or name in _SMALL  # an infinite date has no month
        sure = not missing and all(arg.sure for arg in args)
        total = add(args[0].total, args[1].total) if name == "+" else None
        return replace(_clipped(kind, low, high, sure), symbol=symbol, total=total)

    def _related(self, name: str, args: list[Range], symbol: int) -> Ends | None:
        """Return the ends that follow from what the operands are of each other; None if nothing does."""
        if name == "abs":
            self.distances[symbol] = self.apart.get(args[0].symbol, (args[0].symbol, Range({}, 0, 0)))
        if len(args) != 2 or any(arg.is_float for arg in args):  # infinities have no difference
            return None
        a, b = args
        match name:
            case "//":
                self.quotients[symbol] = a, b
                rows, term = self.sums.get(a.symbol, (frozenset(), (None, None)))
                if self.counts.get(b.symbol) in rows:
                    return _with_zero(*term)
                other, most = self.shares.get(a.symbol, (0, None))
                if other == b.symbol or other in self.above.get(b.symbol, ()):
                    return 0, most
            case "*":
                for one, by in (args, args[::-1]):
                    if one.symbol in self.shares and by.positive:
                        other, most = self.shares[one.symbol]
                        self.shares[symbol] = other, times(most, by.high)
                    divided, over = self.quotients.get(one.symbol, (one, Range({})))
                    if over.symbol == by.symbol:
                        self.floors[symbol] = divided.symbol, by
                        return _with_zero(divided.low, divided.high)
            case "-":
                floor, over = self.floors.get(b.symbol, (0, b))
                if floor == a.symbol:
                    return _remainder(a, over)
                self.apart[symbol] = a.symbol, b
                (x, here), (y, there) = (self.distances.get(one.symbol, (one.symbol, one)) for one in args)
                if x == y and x not in (a.symbol, b.symbol):  # abs(x - here) - abs(x - there)
                    low, high = _minus(here, there)
                    most = upper((times(low, -1), high))
                    return times(most, -1), most
        return None

    def _extreme(self, name: str, args: list[Range], symbol: int) -> Range:
        """Return LEAST or GREATEST, which ignore NULLs: an argument that is never NULL bounds it."""
        made = replace(self._one_of(args), symbol=symbol, sure=any(arg.sure for arg in args))
        for arg in args:
            if arg.sure and name == "least":
                made.high = least(made.high, arg.high)
            elif arg.sure:
                made.low = times(least(times(made.low, -1), times(arg.low, -1)), -1)
        if name == "greatest":
            self.above[symbol] = frozenset(arg.symbol for arg in args)
        return made

    def _aggregate(self, node: Node, row: Row, rows: int, most_rows: int = MOST_ROWS) -> Range:
        """Return the range of an aggregate or a window over ``rows``; refuse a total that may overflow."""
        name, kind, args = read_name(node), node["return_type"], self._operands(node, row)
        first = args[0] if node.get("children") else Range({}, sure=True)
        plain = not (node.get("filter") or node.get("distinct") or node.get("aggregate_type") == "DISTINCT")
        symbol = rows if name.startswith("count") and plain and first.sure else self.symbol()
        if name in _COUNTS:
            self.shares[symbol] = rows, 1
            if plain and first.only != _MISSING:
                self.counts[symbol] = rows, 0 if first.sure else first.only or (first.symbol,)
            return Range(kind, 0, most_rows, True, symbol, total=MOST_ROWS)
        listed = args[1 if name in ("min", "max") else 2 : len(node.get("children") or ())]
        if name not in ("lag", "lead") and any(
            (n.low or 0) < 1 or (n.high or MOST_ROWS) >= 1_000_000 for n in listed
        ):
            refuse(f"{name} of several rows, whose number is not a constant from 1 to 999,999")
        if name in _AMONG and first.kind == kind:
            return replace(first, sure=False, symbol=symbol, only=0)
        if name in ("sum", "avg", "mean"):
            most = first.whole
            low = 0 if first.positive else times(most, -1)
            added = first.kind if first.kind.get("id") not in RANGES else {"id": "HUGEINT"}
            if added.get("id") == "DECIMAL":  # added up with 38 digits
                added = {"id": "DECIMAL", "type_info": {"width": 38, "scale": digits_of(added)[1]}}
            if not _holds(kind if name == "sum" else added, low, most):
                refuse(f"{name}, whose total may have no place in {kind.get('id')}")
            self.sums[symbol] = (
                frozenset((rows, name) for name in (0, first.only, (first.symbol,))),
                (first.low, first.high),
            )
            made = _clipped(kind, low, most) if name == "sum" else self._typed(kind)
            return replace(made, symbol=symbol, total=most if name == "sum" else None)
        numeric = first.kind.get("id") in (*RANGES, *FLOATS, "DECIMAL")
        small = all(arg.most is not None and arg.most <= _SQUARED for arg in args)
        total = (name in _INTERPOLATED and numeric) or (name in _MOMENTS and small)
        if name not in _TOTAL_AGGREGATES and not total:
            refuse(f"the aggregate {name} of {first.kind.get('id')}, which may fail")
        return self._typed(kind)


# -- parts of plans -----------------------------------------------------------------------------------------------------

_NUMBERS = frozenset((*RANGES, *FLOATS, "DECIMAL", "DATE"))


def _count_rows(node: Node) -> int:
    """Return the most rows of a relation."""
    if node["type"] == "LOGICAL_LIMIT" and node["limit_val"].get("type") == "CONSTANT_VALUE":
        return int(node["limit_val"]["constant_integer"])
    if node["type"] in ("LOGICAL_PROJECTION", "LOGICAL_FILTER", "LOGICAL_ORDER_BY"):
        return _count_rows(node["children"][0])
    return 1 if node["type"] == "LOGICAL_AGGREGATE_AND_GROUP_BY" and not node.get("groups") else MOST_ROWS


def _read_number(node: Node, kind: Node) -> int | Fraction | None:
    """Return the number that a cast reads in a text; None for other operands."""
    text = read_constant(node)
    if (
        kind.get("id") == "DECIMAL"
        and isinstance(text, str)
        and re.fullmatch(r"-?[0-9]{1,38}([.][0-9]{1,38})?", text)
    ):
        return Fraction(text)
    return read_count(node)


def _read_ends(value: Any, kind: Node, exact: bool) -> Ends:
    """Return the ends of a constant."""
    if isinstance(value, dict) and "upper" in value:
        value = value["upper"] * 2**64 + value["lower"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None, None
    if kind.get("id") == "DECIMAL":
        value = Fraction(value) / 10 ** digits_of(kind)[1]
    elif not exact and kind.get("id") in RANGES and 0 < abs(value) < 10**9:
        digits = len(str(abs(value)))
        low = max([10 ** (digits - 1), *(most + 1 for most in NARROW if most < abs(value))])
        high = min([10**digits - 1, *(most for most in NARROW if most >= abs(value))])
        return (low, high) if value > 0 else (-high, -low)
    return math.floor(value), math.ceil(value)


def _narrowed(value: Range, held: Mapping[int, tuple[Number, Number, bool]]) -> Range:
    """Return a value within the ends that conditions give it."""
    low, high, sure = held.get(value.symbol, (None, None, False))
    made = replace(value, high=least(value.high, high), sure=value.sure or sure)
    return replace(made, low=low if value.low is None or (low is not None and low > value.low) else value.low)


def _clipped(kind: Node, low: Number, high: Number, sure: bool = False) -> Range:
    """Return a range with ends in its type."""
    smallest, largest = _ends(kind)
    if smallest is not None and largest is not None:
        low, high = smallest if low is None else max(low, smallest), least(high, largest)
    return Range(kind, low, high, sure)


_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_FARTHEST = 10**7
"""Days from the year 0 that dates and timestamps have."""
_TIME_ENDS = {"-infinity": -(1 << 31), "infinity": 1 << 31, "00:00:00": 0, "24:00:00": 1}
"""The ends between which each timestamp and clock time has a text."""
_HOURS = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_CLOCK = re.compile(f"{_HOURS}|24:00:00")
_MOMENT = re.compile(
    rf"(?P<year>[0-9]{{4}})-(?P<month>[0-9]{{1,2}})-(?P<day>[0-9]{{1,2}})([ T]{_HOURS}([+-](0[0-9]|1[0-4]))?)?"
)
_NUMBER = re.compile(r"-?[0-9]{1,300}([.][0-9]{0,300})?(e[+-]?[0-9]{1,2})?|-?infinity|nan", re.I)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_BYTES = re.compile(r"([ -\[\]-~]|\\x[0-9a-fA-F]{2})*")
_FORMS = {
    "TIME": _CLOCK,
    "UUID": _UUID,
    "BLOB": _BYTES,
    "BOOLEAN": re.compile("t|f"),
    **dict.fromkeys(FLOATS, _NUMBER),
}
"""Texts that have a cast to a type; DuckDB 1.5 reads TRUE and FALSE as casts of texts."""


def _is_timely(value: Range, kind: Node) -> bool:
    """Return whether a cast of a time can't fail since its range is known."""
    casts = value.kind.get("id"), kind.get("id")
    if casts == ("DATE", "TIMESTAMP"):
        return _holds({"id": "DATE"}, value.low, value.high)
    return casts[0] in ("TIME", *_TIMESTAMPS) and casts[1] == "VARCHAR" and value.most is not None


def _time_ends(node: Node, child: Range, kind: Node) -> Ends:
    """Return the ends of a date in days, and those of a time, in the order of times only."""
    if kind.get("id") not in ("TIME", "DATE", *_TIMESTAMPS):
        return None, None
    if child.kind.get("id") in ("DATE", "TIMESTAMP"):
        return child.low, child.high
    text = str(read_constant(read_operand(node)))
    day = _TIME_ENDS.get(text)
    if day is None and kind.get("id") == "TIME" and _CLOCK.fullmatch(text):
        return 0, 1
    return (_read_day(text),) * 2 if day is None else (day, day)


def _read_day(text: str) -> int | None:
    """Return the day of a date or a moment in a text, counted from the year 1; None if it is none."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    with contextlib.suppress(ValueError):
        return datetime.date(*map(int, found.group("year", "month", "day"))).toordinal()
    return None


def _fits_constant(node: Node, target: Node) -> bool:
    """Return whether a constant text has a cast to a type."""
    text, kind = read_constant(node), str(target.get("id"))
    if not isinstance(text, str):
        return False
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return text in _TIME_ENDS or _read_day(text) is not None
    return kind in _FORMS and _FORMS[kind].fullmatch(text) is not None
