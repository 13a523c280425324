"""Binds row functions by their signatures in the catalogue; calls, lists, and lambdas over lists.

Each list has a public bound on its length: from the items as written, the ends of a slice, a column's ``max_length``, or
the characters of a split text. The body of a lambda is a total expression over one element; a lambda within a lambda is
refused.

It stands apart from :mod:`dpsql.binding.values.total_expressions`, the table of all nodes, whose calls it binds: together they
would be longer than a module may be.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.binding.values import operators, temporal
from dpsql.binding.values.coercion import (
    CALLED,
    MAX_LITERAL_COUNT,
    NUMBER_KINDS,
    ORDERED_KINDS,
    Bind,
    binds_calls_of,
    cast_fitting,
    cast_to_double,
    convert,
    find_common_order,
    fits,
    make_boolean,
    meet,
    refuse_rest,
    require_kind,
    take_field,
    take_value,
)
from dpsql.binding.values.declared_values import (
    DEFAULT_MAX_LENGTH,
    count_kept,
    count_written,
    hold,
    length_of,
    limit_steps,
    repeated,
)
from dpsql.binding.values.sql_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    INTEGER,
    NULL,
    SMALL_INTEGERS,
    TEXT,
    TINYINT,
    UNKNOWN,
    Bounds,
    Type,
    Typed,
    TypeKind,
    decimal,
    list_of,
    make_call,
    make_cast,
    make_try,
    parenthesise,
)
from dpsql.catalogue.row_names import (
    CLOCK,
    FILLED,
    JSON,
    LIST_AGGREGATES,
    LIST_ENDS,
    NOT_LISTED,
    PUBLIC_FUNCTIONS,
    RANDOM_FUNCTIONS,
    ROW_ALIASES,
    ROW_NAMES,
    ROW_OF_NAME,
    ROW_WORDS,
    SAMPLE_HINT,
    RowName,
)
from dpsql.errors import PrivacyError
from dpsql.language.dialect import (
    NAMED,
    REFUSED_CLASSES,
    ROW_OF_CLASS,
    bind_error,
    name_called,
    privacy_error,
    restore_logarithm,
    to_sql,
)
from dpsql.late_dataclass import dataclass

_ITEMS = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIME", "TIMESTAMP", "UUID")
_OVERHEAD = 16
"""The engine's bytes for an element of a list, without its characters."""


def bind_element(node: exp.Bracket, bind: Bind) -> Typed:
    """Bind ``list[3]``, which is NULL without such an element, or ``struct['field']``."""
    inner, keys = bind(node.this), node.expressions
    key = keys[0] if len(keys) == 1 else None
    if isinstance(key, exp.Slice):
        refuse_rest(key, "this", "expression")
        return _cut(node, inner, key.args.get("this"), key.args.get("expression"))
    negative = isinstance(key, exp.Neg) and isinstance(key.this, exp.Literal)
    if inner.type.kind == "STRUCT" and isinstance(key, exp.Literal) and key.is_string:
        return take_field(inner, key.name, node)
    if inner.type.kind == "MAP" and key is not None:
        return operators.take_entry(node, inner, [_restore_key(key, node)], bind)
    if inner.type.kind == "TEXT" and isinstance(key, exp.Literal) and key.is_int:
        shown = to_sql(inner.place or inner.node)
        hint = f"write substr({shown}, {int(key.name) + 1}, 1) instead of {shown}[{int(key.name) + 1}]."
        raise bind_error(node, "only lists and structs have elements, and this is a text.", hint)
    require_kind(inner, ("LIST",), "only lists and structs have elements")
    if key is None or not (isinstance(key, exp.Literal) or negative) or inner.type.element is None:
        raise privacy_error(node, "an element's place must be a literal.", "write list[1].")
    digits = (key.this if negative else key).name
    if not digits.isdigit() or int(digits) > MAX_LITERAL_COUNT or (not negative and key.is_string):
        raise bind_error(node, "an element's place is a whole number.", "write list[1].")
    # sqlglot counts from zero, one less than DuckDB.
    place = (-int(digits) if negative else int(digits)) + 1
    made = make_call("list_extract", inner.node, exp.Literal.number(place))
    return take_value(Typed(made, inner.type.element, order=inner.order), node)


def _restore_key(key: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Return the key of a map as written; sqlglot counts a number from zero, one less than DuckDB."""
    digits = key.this if isinstance(key, exp.Neg) else key
    if isinstance(digits, exp.Literal) and not digits.is_string and digits.name.isdigit():
        return exp.Literal.number((-1 if digits is not key else 1) * int(digits.name) + 1)
    if isinstance(key, exp.Column) or (isinstance(key, exp.Literal) and key.is_string):
        return key
    raise privacy_error(key, "the key of a map is a literal or a column.", "write m['key'].", around=node)


def _bind_sought(place: exp.Expr, value: exp.Expr, bind: Bind) -> tuple[Typed, Typed]:
    """Return a list and a value that may be among its elements."""
    inner, sought = bind(place), bind(value)
    if isinstance(place, exp.Literal) and place.is_string:
        hint = f"write ('{place.name}'), in parentheses."
        raise bind_error(place, "a list is needed, and this is a text.", hint)
    element = require_kind(inner, ("LIST",), "a list is needed").type.element
    if element is None:
        return inner, sought
    held = take_value(Typed(exp.Null(), element), place)
    meet((replace(held, place=place), sought), "list_contains")
    if sought.type.numeric and (element.sql == "ENUM" or not fits(sought, element)):
        raise bind_error(value, "the list holds values of another type.")
    return inner, sought


def bind_contains(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``list_contains(list, literal)``."""
    both = inner, sought = _bind_sought(node.this, node.expression, bind)
    if inner.type.element is None:
        return Typed(make_cast(exp.Null(), BOOLEAN), BOOLEAN)
    return make_boolean(make_try(make_call("list_contains", inner.node, sought.node)), both, True)


@binds_calls_of("list_position", 2, "list_position takes a list and a value.")
def bind_position(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``list_position(list, literal)``, 0 or NULL without such an element, as in DuckDB's version."""
    call = exp.ArrayContains(this=arguments[0].copy(), expression=arguments[1].copy())
    both = inner, sought = _bind_sought(call.this, call.expression, bind)
    made = make_try(make_call("list_position", inner.node, sought.node))
    constant = inner.type.element is not None and all(typed.constant for typed in both)
    return Typed(make_cast(made, INTEGER, trying=True), INTEGER, _COUNTED, constant)


def bind_list_overlap(node: exp.Expr, bind: Bind) -> Typed:
    """Bind list_has_any and list_has_all of two lists of one type; a written one takes the other's type."""
    name = "list_has_all" if isinstance(node, exp.ArrayContainsAll) else "list_has_any"
    both = [bind(place) for place in (node.this, node.expression)]
    if "start" not in node.meta and name == "list_has_any" and all(t.type.kind != "LIST" for t in both):
        raise _unknown(node, "&&")  # other dialects' AND
    both = [require_kind(typed, ("LIST",), f"{name} compares lists") for typed in both]
    if both[0].type != both[1].type:
        others = zip(both, (node.expression, node.this), strict=True)
        kinds = [typed.type.element for typed, place in others if isinstance(place, exp.Array)]
        if not kinds or kinds[0] is None or kinds[0].sql == "ENUM":
            raise bind_error(node, f"{name} compares lists of one type.")
        for i, place in enumerate((node.this, node.expression)):
            if isinstance(place, exp.Array) and both[1 - i].type.element == kinds[0]:
                items = [bind(item) for item in place.expressions]
                meet((Typed(exp.Null(), kinds[0], place=place), *items), name)
                fitting = exp.Array(expressions=[cast_fitting(item, kinds[0]) for item in items])
                both[i] = replace(both[i], node=fitting, type=both[1 - i].type)
                break
    made = make_try(make_call(name, both[0].node, both[1].node))
    return make_boolean(made, both, True)


@binds_calls_of("list_has_all", 2, "list_has_all takes two lists.")
def bind_has_all(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind list_has_all called by name."""
    both = exp.ArrayContainsAll(this=arguments[0].copy(), expression=arguments[1].copy())
    return bind_list_overlap(both, bind)


def bind_list_aggregate(node: exp.Expr, arguments: list[exp.Expr], bind: Bind, name: str) -> Typed:
    """Bind the sum, the mean, an extreme, an end, or a number of values of a list."""
    inner = require_kind(bind(arguments[0]), ("LIST",), f"{name} needs a list here")
    element = inner.type.element
    if element is None:
        return Typed(make_cast(exp.Null(), DOUBLE), DOUBLE)
    made = make_try(make_call(name, inner.node))
    if name in ("list_unique", "list_count"):
        kind = BIGINT if name == "list_count" else Type.parse("UBIGINT")
        return Typed(made, kind, _measured(1)([inner]), reach=_COUNTED)
    kind = element
    if name == "list_sum":
        small = element.sql in (*SMALL_INTEGERS, "UBIGINT")
        kind = HUGEINT if small else decimal(38, element.digits[1]) if element.kind == "DECIMAL" else element
        if not (small or element.kind in ("DECIMAL", "DOUBLE")):
            raise privacy_error(node, "list_sum takes numbers that fit 64 bits.", "cast them to BIGINT[].")
        made = make_cast(made, kind, trying=True)
    elif name == "list_avg":
        if not element.numeric:
            raise bind_error(node, f"list_avg takes numbers, and these are {element.sql}.")
        kind = DOUBLE
    elif name in LIST_ENDS:
        return take_value(Typed(made, element, order=inner.order), node)
    elif element.kind not in ORDERED_KINDS or element.sql == "ENUM" or inner.order is not None:
        raise privacy_error(node, f"{name} takes a list of values with an order.", "write list_contains.")
    return take_value(Typed(made, kind), node)


for _name in LIST_AGGREGATES:
    binds_calls_of(_name, 1, f"{_name} takes one list.")(partial(bind_list_aggregate, name=_name))


def bind_membership(value: exp.Expr, held: exp.Expr, bind: Bind, missing: bool = False) -> Typed:
    """Bind a test for a value in a list; ``missing``: NULL if only a NULL may be equal, as in ``x = ANY(list)``."""
    if not isinstance(held, exp.Array):
        return bind_contains(exp.ArrayContains(this=held.copy(), expression=value.copy()), bind)
    written = exp.In(this=value.copy(), expressions=[item.copy() for item in held.expressions])
    found = operators.bind_in(written, bind)
    if missing:
        return found
    sought = bind(value)
    sure = make_call("coalesce", found.node, exp.false())
    known = exp.Not(this=exp.Is(this=parenthesise(sought.node), expression=exp.Null()))
    return make_boolean(exp.Case(ifs=[exp.If(this=known, true=sure)]), (found, sought), True)


def bind_list(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``[x, y]``, a list of values of one type."""
    if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Comprehension):
        return bind(node.expressions[0])
    if not node.expressions:
        around = node.parent
        other = around.this if isinstance(around, exp.EQ) and around.expression is node else None
        hint = "write its elements, as in [a, b]." if other is None else f"write len({to_sql(other)}) = 0."
        raise bind_error(node, "an empty list has no type here.", hint, around=around)
    typed = [hold(bind(item)) for item in node.expressions]
    met = meet(typed, "a list")
    if met.type.kind not in _ITEMS:
        raise bind_error(
            node, f"a list of {met.type.sql} can't be written here.", "write plain values: [a, b]."
        )
    count_kept("a list", sum(length_of(item) + _OVERHEAD for item in typed), node)
    made = exp.Array(expressions=list(met.nodes))
    kind = Type.parse(f"{met.type.sql}[]")
    # The cast gives the engine our type if all items are NULL or literal numbers.
    whole = Typed.made_of(make_cast(made, kind), kind, typed, nullable=False)
    return replace(whole, length=len(typed), order=find_common_order(typed))


@binds_calls_of("array_slice", 3, "array_slice takes 3 arguments.", "write x[1:5].")
@binds_calls_of("list_slice", 3, "array_slice takes 3 arguments.", "write x[1:5].")
def _slice_list(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``array_slice(list, first, last)``, a call of ``list[first:last]``."""
    whole, first, last = arguments
    return _cut(node, bind(whole), first, last)


def _cut(node: exp.Expr, inner: Typed, first: exp.Expr | None, last: exp.Expr | None) -> Typed:
    """Return ``list[first:last]``; its length has a further bound if both positions count from one end."""
    start, end = _read_place(first, 1, node), _read_place(last, -1, node)
    if inner.type.kind == "TEXT" and 0 < start <= end:
        hint = f"write substr({to_sql(inner.place or inner.node)}, {start}, {end - start + 1})."
        raise bind_error(node, "only a list is cut by [first:last], and this is a text.", hint)
    require_kind(inner, ("LIST",), "only a list is cut by [first:last]")
    most = length_of(inner)
    if end >= 0 and start >= 0:
        most = min(most, max(0, end - max(start, 1) + 1))
    elif end < 0 and start < 0:
        most = min(most, max(0, end - start + 1))
    made = make_call("array_slice", inner.node, exp.Literal.number(start), exp.Literal.number(end))
    return replace(inner, node=made, length=most, unchecked=False, plain=None, nullable=True)


def _read_place(place: exp.Expr | None, default: int, node: exp.Expr) -> int:
    if place is None:
        return default
    digits = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(digits, exp.Literal) or digits.is_string or not digits.name.isdigit():
        raise privacy_error(place, "the ends of a cut must be literal.", "write x[1:5].", around=node)
    if int(digits.name) > MAX_LITERAL_COUNT:
        raise bind_error(place, f"this is at most {MAX_LITERAL_COUNT}.", around=node)
    return -int(digits.name) if isinstance(place, exp.Neg) else int(digits.name)


def bind_split(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``string_split(text, mark)``, with at most one part more than the text has characters."""
    mark = node.args["expression"]
    if not isinstance(mark, exp.Literal) or not mark.is_string:
        hint = "write ',', or another text in quotes."
        raise privacy_error(mark, "string_split needs a literal here.", hint)
    text = require_kind(bind(node.this), ("TEXT",), "string_split needs a text here")
    if text.type.kind == "NULL":
        text = Typed(make_cast(text.node, TEXT), TEXT, length=0)
    text = hold(text)
    most = length_of(text) // max(1, len(mark.name)) + 1
    count_kept("string_split", length_of(text) + most * _OVERHEAD, node)
    kind = Type.parse("VARCHAR[]")
    made = make_call("string_split", text.node, mark.copy())
    return replace(Typed.made_of(made, kind, (text,), nullable=True), length=most)


# -- lambdas: work and texts of the body count once for each element that the list may have ----------------------

_ELEMENT, _PLACE = "item", "place"
"""The parameters' names in exact queries, in which all columns are qualified."""
PARAMETER = "dpsql_parameter"
"""The key in the ``meta`` of a name that stands for a lambda's parameter, with its value."""


def bind_lambda(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``list_filter(list, lambda x : condition)`` or ``list_transform(list, lambda x : value)``."""
    name = "list_filter" if isinstance(node, exp.ArrayFilter) else "list_transform"
    return _bind_over(node, [node.this, node.expression], bind, name)


def bind_comprehension(node: exp.Comprehension, bind: Bind) -> Typed:
    """Bind ``[value FOR x IN list IF condition]``."""
    parameter, made, condition = node.expression, node.args["iterator"].copy(), node.args.get("condition")
    if not isinstance(parameter, exp.Identifier):
        raise bind_error(node, "a list comprehension has one name.", "write [x + 1 FOR x IN list].")
    if condition is not None:
        made = exp.ArrayFilter(this=made, expression=_lambda(condition, parameter))
    if isinstance(node.this, exp.Column) and node.this.name.lower() == parameter.name.lower():
        return bind(made)
    return bind(exp.Transform(this=made, expression=_lambda(node.this, parameter)))


def _lambda(body: exp.Expr, parameter: exp.Identifier) -> exp.Lambda:
    return exp.Lambda(this=body.copy(), expressions=[parameter.copy()])


def _bind_over(node: exp.Expr, arguments: list[exp.Expr], bind: Bind, name: str) -> Typed:
    place, given = arguments
    inner = require_kind(bind(place), ("LIST",), f"{name} needs a list here")
    if not isinstance(given, exp.Lambda) or not 1 <= len(given.expressions) <= 2:
        raise bind_error(given, f"{name} takes a lambda.", f"write {name}(x, lambda y : y > 1).", around=node)
    element = inner.type.element
    if element is None:
        return inner
    inner = hold(inner)
    item = Typed(exp.to_identifier(_ELEMENT), element, order=inner.order)
    count = Bounds(Fraction(1), Fraction(2**40))
    values = [item, Typed(exp.to_identifier(_PLACE), BIGINT, count, reach=count, nullable=False)]
    body = _name_parameters(given, values)
    with repeated(length_of(inner)):
        typed = bind(body)
        if typed.plain is not None:
            typed = convert(typed, typed.plain)
        # parts of the element are in the row already
        parts = typed.unchecked and typed.node.find(exp.Column) is None
        typed = typed if parts else hold(typed)
        count_kept(name, _OVERHEAD + (0 if parts else length_of(typed)), node)
    if typed.node.find(exp.Query) is not None:
        what = "a value of a table within a lambda can't be used."
        raise privacy_error(given, what, "write the value into it, or join the table first.", around=node)
    used = [exp.to_identifier(value.node.name) for value, _ in zip(values, given.expressions, strict=False)]
    made = make_call(name, inner.node, exp.Lambda(this=typed.node, expressions=used))
    if name == "list_filter":
        if typed.type.kind not in ("BOOLEAN", "NULL"):
            raise bind_error(given, f"a condition is needed, and this is {typed.type.sql}.", around=node)
        return replace(inner, node=made, plain=None, nullable=True)
    if typed.type.kind not in _ITEMS:
        raise bind_error(given, f"a list of {typed.type.sql} can't be made here.", around=node)
    kind = list_of(typed.type)
    return replace(inner, node=make_cast(made, kind), type=kind, plain=None, nullable=True, order=typed.order)


for _name in ("list_filter", "list_transform"):
    binds_calls_of(_name, 2, f"{_name} takes a list and a lambda.")(partial(_bind_over, name=_name))


def _name_parameters(given: exp.Lambda, values: list[Typed]) -> exp.Expr:
    """Return a lambda's body in which each name of a parameter carries its value."""
    named = {place.name.lower(): value for place, value in zip(given.expressions, values, strict=False)}
    body: exp.Expr = exp.Paren(this=given.this.copy())
    for part in list(body.walk()):
        if isinstance(part, exp.Lambda | exp.Comprehension):
            raise privacy_error(
                given, "a lambda within a lambda can't be used.", "compute it in steps, in CTEs."
            )
        if isinstance(part, exp.Column) and not part.table:
            part = part.this
        holder = part.parent if isinstance(part.parent, exp.Column) and not part.parent.table else part
        inside = isinstance(holder.parent, exp.Column) or (
            isinstance(holder.parent, exp.Dot) and holder.arg_key == "expression"
        )
        if isinstance(part, exp.Identifier) and part.name.lower() in named and not inside:
            column = exp.Column(this=exp.to_identifier(part.name))
            column.meta.update(part.meta)
            column.meta[PARAMETER] = named[part.name.lower()]
            holder.replace(column)
    return body


def take_parameter(node: exp.Expr) -> Typed | None:
    """Return the value of a lambda's parameter; None for other names."""
    value = node.meta.get(PARAMETER)
    return None if value is None else take_value(value, node)


# -- signatures -------------------------------------------------------------------------------------------------

BoundsOf = Callable[[Sequence[Typed]], Bounds | None]
CutOf = Callable[[Sequence[Typed]], int | None]


def _whole(typed: Typed) -> int | None:
    number = (typed.bounds or UNKNOWN).only
    return None if number is None else int(number)


def _first(given: Sequence[Typed]) -> int | None:
    """Return the length of LEFT and RIGHT; None for negative numbers, which count from the other end."""
    kept = _whole(given[1])
    return kept if kept is not None and kept >= 0 else None


def _middle(given: Sequence[Typed]) -> int | None:
    kept = _whole(given[2]) if len(given) > 2 else None
    return None if kept is None else abs(kept)


def _replaced(given: Sequence[Typed]) -> int:
    """Return the longest text that REPLACE makes; an empty text occurs nowhere."""
    text, sought, by = (length_of(item) for item in given)
    return text if sought == 0 else text + text // sought * max(0, by - sought)


def _measured(width: int) -> BoundsOf:
    """Return the bounds of a length in units, ``width`` of which are a character, if the policy limits the length."""

    def handle(given: Sequence[Typed]) -> Bounds:
        texts = [v for v in given[0].values or () if isinstance(v, str)]
        most = max(map(len, texts)) if texts else length_of(given[0])
        known = most < DEFAULT_MAX_LENGTH  # the default limits work, and isn't declared
        return Bounds(Fraction(0), Fraction(width * most) if known else None)

    return handle


_BOUNDS: dict[str, BoundsOf] = {
    "logarithm": operators.bound_logarithm,
    "logarithm to base 2": partial(operators.bound_logarithm, base=Fraction(2)),
    "logarithm to base 10": partial(operators.bound_logarithm, base=Fraction(10)),
    "logarithm to any base": operators.bound_any_logarithm,
    "square root": partial(operators.bound_root, degree=2),
    "cube root": partial(operators.bound_root, degree=3),
    "exponential": operators.bound_exponential,
    "power": operators.bound_power,
    "characters": _measured(1),
    "bytes": _measured(4),
    "bits": _measured(32),
}
_CUTS: dict[str, CutOf] = {
    "second argument": _first,
    "third argument": _middle,
    "length": lambda given: max(0, _whole(given[1]) or 0),
}
_COUNTED = Bounds(Fraction(0), Fraction(2**40))
_KINDS: dict[str, tuple[TypeKind, ...]] = {
    "NUMBER": ("INTEGER", "DECIMAL", "DOUBLE"),
    **{kind: (kind,) for kind in ("TEXT", "INTEGER", "DOUBLE", "LIST")},
}
_RESULTS = {"TEXT": TEXT, "BOOLEAN": BOOLEAN}


@dataclass(frozen=True)
class RowFunction:
    """A function of the catalogue with its signature read; ``literal`` are the positions of constant arguments."""

    row: RowName
    arguments: tuple[tuple[TypeKind, ...], ...]
    result: Type
    optional: int
    literal: tuple[int, ...]

    @classmethod
    def of(cls, row: RowName) -> RowFunction:
        """Read the signature of a row."""
        given, _, result = row.signature.partition("-> ")
        words = given.strip().split(", ") if given else []
        return cls(
            row,
            tuple(_KINDS[word.strip("'?")] for word in words),
            _RESULTS.get(result) or Type.parse(result),
            sum(word.endswith("?") for word in words),
            tuple(place for place, word in enumerate(words) if word.startswith("'")),
        )

    @property
    def double(self) -> bool:
        """Whether numbers are cast to DOUBLE, for which no argument raises: a domain error is NaN or infinite."""
        return any(kinds == _KINDS["NUMBER"] for kinds in self.arguments)

    @property
    def widens(self) -> bool:
        """Whether the result is HUGEINT if an argument may not fit BIGINT."""
        return self.result == BIGINT and self.arguments[0] == _KINDS["INTEGER"]

    @property
    def trying(self) -> bool:
        """Whether the call is in TRY."""
        return self.double or self.row.total == FILLED or self.arguments[:1] == (_KINDS["INTEGER"],)

    @property
    def reach(self) -> Bounds | None:
        """The range of a count."""
        return _COUNTED if self.result == BIGINT and not self.widens else None

    def bounds(self, given: Sequence[Typed]) -> Bounds | None:
        """Return the range of the result."""
        found = self.row.bounds
        if found is None or isinstance(found, str):
            return None if found is None else _BOUNDS[found](given)
        return Bounds(*(None if end is None else Fraction(end) for end in found))

    def length(self, given: Sequence[Typed]) -> int:
        """Return the longest text from arguments within their lengths."""
        longest = self.row.longest  # a multiple of the first, or "replacements"
        return longest * length_of(given[0]) if isinstance(longest, int) else _replaced(given)

    def cut(self, given: Sequence[Typed]) -> int | None:
        """Return the longest text from arguments of any length; None without such a bound."""
        cut = self.row.cut
        return _CUTS[cut](given) if isinstance(cut, str) else cut

    def steps(self, given: Sequence[Typed]) -> int | None:
        """Return the steps for one row, if more than a few per character."""
        if self.row.steps is None:
            return None
        weight, share = self.row.steps
        return weight * length_of(given[0]) * length_of(given[:2][-1]) // share


ROW_FUNCTIONS: dict[str, RowFunction] = {row.name: RowFunction.of(row) for row in ROW_NAMES if row.signature}


# -- text -------------------------------------------------------------------------------------------------------


def bind_concat_operator(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``||``, which is NULL if one of its operands is."""
    typed = [_written(bind(place)) for place in (node.this, node.expression)]
    length = count_written("||", sum(map(length_of, typed)), node)
    made = exp.DPipe(this=parenthesise(typed[0].node), expression=parenthesise(typed[1].node))
    return replace(Typed.made_of(made, TEXT, typed), length=length)


def _written(typed: Typed) -> Typed:
    if typed.type == NULL:
        return Typed(make_cast(exp.Null(), TEXT), TEXT, length=0)
    return hold(convert(require_kind(typed, ORDERED_KINDS, "only plain values are joined as text"), TEXT))


def bind_concat(node: exp.Func, bind: Bind) -> Typed:
    """Bind CONCAT and CONCAT_WS."""
    name, typed = node.sql_name().lower(), [_written(bind(place)) for place in node.expressions]
    written = sum(map(length_of, typed))
    if name == "concat_ws" and typed:  # the first is the separator
        written += length_of(typed[0]) * max(0, len(typed) - 3)
    length = count_written(name, written, node)
    made = make_call(name, *(t.node for t in typed))
    return replace(Typed.made_of(made, TEXT, typed, nullable=True), length=length)


def bind_trim(node: exp.Expr, bind: Bind) -> Typed:
    """Bind TRIM, by its position as LTRIM or RTRIM."""
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
    arguments = [place for place in (node.this, node.args.get("expression")) if place is not None]
    return _listed(node, name, arguments, bind)


def bind_pad(node: exp.Expr, bind: Bind) -> Typed:
    """Bind LPAD and RPAD."""
    name = "lpad" if node.args.get("is_left") else "rpad"
    arguments = [node.this, node.expression, node.args.get("fill_pattern")]
    return _listed(node, name, [place for place in arguments if place is not None], bind)


# -- numbers ----------------------------------------------------------------------------------------------------


def bind_rounding(node: exp.Func, bind: Bind) -> Typed:
    """Bind FLOOR, CEIL, ROUND and TRUNC, with DuckDB's result types."""
    name, inner, digits = node.sql_name().lower(), bind(node.this), _digits(node)
    require_kind(inner, NUMBER_KINDS, "a number is needed")
    if inner.type == NULL:
        return Typed(make_cast(exp.Null(), DOUBLE), DOUBLE)
    if digits is not None and name in ("floor", "ceil"):
        raise bind_error(node, f"{name} takes one argument.")
    steps = Fraction(10) ** (digits or 0)
    bounds = inner.bounds
    if bounds is not None:
        bounds = (bounds * Bounds.point(steps)).rounded() * Bounds.point(1 / steps)
    kind, source = _rounded_type(name, inner, digits), inner.node
    if kind == DOUBLE or (inner.type.kind == "INTEGER" and kind != inner.type):
        source = cast_fitting(inner, kind)
    arguments = [source] if digits is None else [source, exp.Literal.number(digits)]
    return Typed(make_try(make_call(name, *arguments)), kind, bounds, inner.constant)


def _digits(node: exp.Expr) -> int | None:
    place = node.args.get("decimals")
    if place is None:
        return None
    inner = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit() or int(inner.name) > 38:
        raise privacy_error(
            place, "the number of digits must be a literal up to 38.", "write 2, or another number of digits."
        )
    return -int(inner.name) if isinstance(place, exp.Neg) else int(inner.name)


def _rounded_type(name: str, inner: Typed, digits: int | None) -> Type:
    kind = inner.type
    if kind.kind == "INTEGER":
        if name in ("floor", "ceil"):
            return DOUBLE
        if name == "trunc" or not kind.sql.startswith("U"):
            return kind
        # DuckDB rounds unsigned integers as signed ones of a wider type.
        return BIGINT if fits(inner, BIGINT) else HUGEINT
    if kind.kind == "DOUBLE":
        return kind
    before, after = kind.digits
    return decimal(before + after, max(0, min(after, digits or 0)))


def bind_sign(node: exp.Expr, bind: Bind) -> Typed:
    """Bind SIGN."""
    inner = require_kind(bind(node.this), NUMBER_KINDS, "a number is needed")
    made = make_try(make_call("sign", inner.node))
    return Typed(made, TINYINT, Bounds(Fraction(-1), Fraction(1)), inner.constant)


def bind_log(node: exp.Expr, bind: Bind) -> Typed:
    """Bind LOG, to base ten by default; sqlglot reads LOG2 and LOG10 as LOG with a base."""
    if node.args.get("expression") is None:
        return _listed(node, "log10", [node.this], bind)
    named = restore_logarithm(node.copy())
    if isinstance(named, exp.Anonymous):
        return _listed(node, named.name, [node.expression], bind)
    return _listed(node, "log", [node.this, node.expression], bind)


# -- functions by name ------------------------------------------------------------------------------------------


def bind_function(node: exp.Expr, bind: Bind) -> Typed:
    """Return a call of a function on the allow-list."""
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower().removeprefix(NAMED)
        arguments = list(node.expressions)
        kwarg = next((a for a in arguments if isinstance(a, exp.Kwarg | exp.PropertyEQ | exp.Alias)), None)
        if kwarg is not None:
            raise bind_error(kwarg, f"{name} takes no named arguments.", around=node)
    elif (row := ROW_OF_CLASS.get(type(node))) is not None:
        name, keys = row.name, row.parts
        refuse_rest(node, *keys)
        arguments = [node.args[key] for key in keys if node.args.get(key) is not None]
    else:
        raise _unknown(node, REFUSED_CLASSES.get(type(node), name_called(node)))
    name = ROW_ALIASES.get(name, name)
    if name in CALLED:
        return CALLED[name](node, arguments, bind)
    if (known := ROW_OF_NAME.get(name)) is not None and known.unit:
        if len(arguments) != 1:
            raise bind_error(node, f"{name} takes one argument.")
        return temporal.bind_part(known.unit, arguments[0], bind)
    return _listed(node, name, arguments, bind)


def _listed(node: exp.Expr, name: str, arguments: list[exp.Expr], bind: Bind) -> Typed:
    known = ROW_FUNCTIONS.get(name)
    if known is None:
        raise _unknown(node, name)
    most, least = len(known.arguments), len(known.arguments) - known.optional
    if not least <= len(arguments) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise bind_error(node, f"{name} takes {count} argument{'s' if count != '1' else ''}.")
    typed = [_argument(known, i, place, node, name, bind) for i, place in enumerate(arguments)]
    typed, length = _sized(name, known, typed, node)
    result = HUGEINT if known.widens and not all(fits(t, BIGINT) for t in typed) else known.result
    nodes = [cast_to_double(t) if known.double else t.node for t in typed]
    if known.widens:
        nodes = [cast_fitting(t, result) for t in typed]
    made = make_call(name, *nodes)
    bounds = known.bounds(typed)
    counted = result.kind == "INTEGER" and bounds is not None and bounds.ends is not None
    reach = known.reach or (bounds if counted else None)
    made, missing = (make_try(made), True) if known.trying else (made, None)
    whole = Typed.made_of(made, result, typed, bounds, nullable=missing, reach=reach)
    return replace(whole, length=length)


def _sized(
    name: str, known: RowFunction, typed: list[Typed], node: exp.Expr
) -> tuple[list[Typed], int | None]:
    """Return the arguments, limited to their public lengths if the call needs that, and the result's greatest length."""
    text = known.result == TEXT
    most = known.cut(typed)
    if (text and most is None) or known.row.steps is not None:
        typed = [hold(t) for t in typed]
    steps = known.steps(typed)
    if steps is not None:
        limit_steps(name, steps, node)
    if not text:
        return typed, None
    return typed, count_written(name, known.length(typed) if most is None else most, node, known.row.weight)


def _argument(known: RowFunction, i: int, place: exp.Expr, node: exp.Expr, name: str, bind: Bind) -> Typed:
    kinds = known.arguments[i]
    wanted = " or ".join(_KIND_WORDS[kind] for kind in kinds)
    typed = require_kind(bind(place), kinds, f"{name} needs {wanted} here")
    if typed.type.kind == "NULL":
        kind = {"TEXT": TEXT, "INTEGER": BIGINT, "LIST": NULL}.get(kinds[0], DOUBLE)
        return Typed(typed.node if kind == NULL else make_cast(typed.node, kind), kind, length=0)
    if i in known.literal:
        if not typed.constant or not isinstance(typed.node, exp.Literal | exp.Neg):
            raise privacy_error(place, f"{name} needs a literal here.", around=node)
        far = typed.bounds.absolute().high if typed.bounds is not None else None
        if far is not None and far > MAX_LITERAL_COUNT:
            raise bind_error(place, f"this is at most {MAX_LITERAL_COUNT}.")
    return typed


_KIND_WORDS = {"TEXT": "a text", "INTEGER": "a whole number", "DECIMAL": "a decimal", "DOUBLE": "a float"}
_KIND_WORDS |= {"LIST": "a list"}


def bind_length(node: exp.Expr, bind: Bind) -> Typed:
    """Bind the length of a text in characters, or of a list in elements."""
    if isinstance(node.this, exp.ArrayDistinct):
        return convert(bind_list_aggregate(node, [node.this.this], bind, "list_unique"), BIGINT)
    inner = bind(node.this)
    return _listed(node, "len" if inner.type.kind == "LIST" else "length", [node.this], bind)


def bind_sha(node: exp.Expr, bind: Bind) -> Typed:
    """Bind SHA2 with 256 bits; others are refused."""
    if node.args.get("length") is None or node.args["length"].name != "256":
        raise _unknown(node, "sha2")
    return _listed(node, "sha256", [node.this], bind)


def _unknown(node: exp.Expr, name: str) -> PrivacyError:
    if name in NOT_LISTED:
        why = NOT_LISTED[name]
        hint = SAMPLE_HINT if name in RANDOM_FUNCTIONS else _INSTEAD.get(why, _BY_NAME.get(name))
        parts = [to_sql(part) for part in node.iter_expressions()]
        if name == "json_exists" and len(parts) == 2:
            hint = f"write (json_extract({', '.join(parts)}) IS NOT NULL) instead of {to_sql(node)}."
        if name == "json_value" and len(parts) == 2:
            made = f"json_extract({', '.join(parts)})"
            hint = f"write CASE WHEN left({made}, 1) NOT IN ('{{', '[', 'n') THEN {made} END instead of {to_sql(node)}."
        if name == "getvariable" and node.args.get("expressions"):
            hint = f"write ${node.expressions[0].name} instead of {to_sql(node)}."
        return privacy_error(node, f"{name} can't be used on private rows: {why}.", hint)
    if name == "&&":
        return privacy_error(node, "&& compares lists.", "write AND instead of &&.")
    # A function that DuckDB has is not misspelt, and one with a similar name computes something else.
    known = not isinstance(node, exp.Anonymous) or name in PUBLIC_FUNCTIONS
    near = [] if known else difflib.get_close_matches(name, sorted(ROW_WORDS), n=1, cutoff=0.7)
    first, *others = [to_sql(part) for part in node.iter_expressions()] or ["day"]
    if name == "age" and others:
        first, others = others[0], [first]
    hint = f"did you mean {near[0]}?" if near else _BY_NAME.get(name, _OTHERWISE).replace("{}", first)
    hint = hint.replace("{until}", others[0] if others else "DATE '2024-06-01'")
    what = f"the function {name} is not on the list of those that can't fail or leak."
    return privacy_error(node, what, hint)


_INSTEAD = {
    CLOCK: "write it in a query, or a parameter, $now.",
    JSON: "take parts by json_extract_string and a path, such as '$.name'.",
}
_BY_NAME = {
    "age": "for the years between two dates, write date_diff('year', {}, {until}).",
    "collate": "write lower({}): it compares texts without regard to case.",
    "julian": "for the days between two dates, write date_diff('day', DATE '2000-01-01', {}).",
    **dict.fromkeys(("format", "printf", "repeat"), "join texts by ||."),
}
_OTHERWISE = "SELECT WITH SUBSAMPLE runs a registered Python function on blocks of rows; or compute it beforehand, in the data."
