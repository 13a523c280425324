"""Calls: text, rounding, and the functions of the allow-list by name."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import PrivacyError, did_you_mean
from dpsql.sql.expressions import casts, temporal
from dpsql.sql.expressions.casts import take_value
from dpsql.sql.expressions.coercion import (
    ORDERED_KINDS,
    Bind,
    cast_to_double,
    fits,
    make_boolean,
    make_call,
    make_cast,
    make_try,
    meet,
    parenthesise,
    refuse_rest,
    require_kind,
)
from dpsql.sql.expressions.functions import (
    DATE_PART_FUNCTIONS,
    MAX_LITERAL_COUNT,
    NOT_LISTED,
    REFUSED_CLASSES,
    ROW_FUNCTIONS,
    RowFunction,
)
from dpsql.sql.expressions.lengths import count_written, hold, length_of, limit_steps
from dpsql.sql.expressions.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    HUGEINT,
    NULL,
    TEXT,
    TINYINT,
    Bounds,
    Type,
    Typed,
    decimal,
)
from dpsql.sql.parse.dialect import NAMED, bind_error, privacy_error
from dpsql.sql.parse.functions import NAME_OF_CLASS, ROW_ALIASES

# -- text -------------------------------------------------------------------------------------------------------


def bind_concat_operator(node: exp.Expr, bind: Bind) -> Typed:
    """``||``, which is NULL where a part is."""
    typed = [_written(bind(place), place) for place in (node.this, node.expression)]
    length = count_written("||", sum(length_of(t) for t in typed), node)
    made = exp.DPipe(this=parenthesise(typed[0].node), expression=parenthesise(typed[1].node))
    missing = any(t.nullable for t in typed)
    return Typed(made, TEXT, None, all(t.constant for t in typed), nullable=missing, length=length)


def _written(typed: Typed, place: exp.Expr) -> Typed:
    if typed.type.kind == "NULL":
        return Typed(make_cast(exp.Null(), TEXT), TEXT, length=0)
    require_kind(typed, place, ORDERED_KINDS, "only plain values are joined as text")
    return hold(casts.convert(typed, TEXT))


def make_concat_binder(name: str) -> Callable[[exp.Expr, Bind], Typed]:
    """Return the binder of CONCAT or CONCAT_WS."""

    def handle(node: exp.Expr, bind: Bind) -> Typed:
        typed = [_written(bind(place), place) for place in node.expressions]
        written = sum(length_of(t) for t in typed)
        if name == "concat_ws" and typed:  # the first stands between all others
            written += length_of(typed[0]) * max(0, len(typed) - 3)
        length = count_written(name, written, node)
        made = make_call(name, *(t.node for t in typed))
        return Typed(made, TEXT, None, all(t.constant for t in typed), length=length)

    return handle


def bind_trim(node: exp.Expr, bind: Bind) -> Typed:
    """Bind TRIM, by its position as LTRIM or RTRIM."""
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
    arguments = [place for place in (node.this, node.args.get("expression")) if place is not None]
    return _listed(node, name, arguments, bind)


# -- numbers ----------------------------------------------------------------------------------------------------


def make_rounding_binder(name: str) -> Callable[[exp.Expr, Bind], Typed]:
    """floor, ceil, round and trunc keep decimals and floats, and leave integers as DuckDB does."""

    def handle(node: exp.Expr, bind: Bind) -> Typed:
        inner, digits = bind(node.this), _digits(node)
        require_kind(inner, node.this, ("INTEGER", "DECIMAL", "DOUBLE"), "a number is needed")
        if inner.type.kind == "NULL":
            return Typed(make_cast(exp.Null(), DOUBLE), DOUBLE)
        if digits is not None and name in ("floor", "ceil"):
            raise bind_error(node, f"{name} takes one argument.")
        steps = Fraction(10) ** (digits or 0)
        bounds = inner.bounds
        if bounds is not None:
            bounds = (bounds * Bounds.point(steps)).rounded() * Bounds.point(1 / steps)
        kind, source = _rounded_type(name, inner, digits), inner.node
        if kind == DOUBLE or (inner.type.kind == "INTEGER" and kind != inner.type):
            source = make_cast(source, kind, not fits(inner, kind))
        arguments = [source] if digits is None else [source, exp.Literal.number(digits)]
        return Typed(make_try(make_call(name, *arguments)), kind, bounds, inner.constant)

    return handle


def _digits(node: exp.Expr) -> int | None:
    place = node.args.get("decimals")
    if place is None:
        return None
    inner = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit() or int(inner.name) > 38:
        raise privacy_error(place, "the number of digits must be a literal up to 38.", "write ROUND(x, 2).")
    return -int(inner.name) if isinstance(place, exp.Neg) else int(inner.name)


def _rounded_type(name: str, inner: Typed, digits: int | None) -> Type:
    kind = inner.type
    if kind.kind == "INTEGER":
        if name in ("floor", "ceil"):
            return DOUBLE
        # To tens and hundreds, unsigned integers are rounded as the signed ones that hold them.
        return (
            (BIGINT if fits(inner, BIGINT) else HUGEINT)
            if digits is not None and kind.sql.startswith("U")
            else kind
        )
    if kind.kind == "DOUBLE":
        return FLOAT if kind == FLOAT else DOUBLE
    before, after = kind.digits
    return decimal(before + after, max(0, min(after, digits or 0)))


def bind_sign(node: exp.Expr, bind: Bind) -> Typed:
    """Bind SIGN."""
    inner = bind(node.this)
    require_kind(inner, node.this, ("INTEGER", "DECIMAL", "DOUBLE"), "a number is needed")
    return Typed(
        make_try(make_call("sign", inner.node)), TINYINT, Bounds(Fraction(-1), Fraction(1)), inner.constant
    )


def bind_log(node: exp.Expr, bind: Bind) -> Typed:
    """LOG(x) is to base ten; sqlglot reads LOG2 and LOG10 as LOG with a base."""
    if node.args.get("expression") is None:
        return _listed(node, "log10", [node.this], bind)
    if isinstance(node.this, exp.Literal) and node.this.name in ("2", "10") and not node.this.is_string:
        return _listed(node, f"log{node.this.name}", [node.expression], bind)
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
    elif (row := NAME_OF_CLASS.get(type(node))) is not None and "ROWS" in row.modes:
        name, keys = row.name, row.parts
        refuse_rest(node, *keys)
        arguments = [node.args[key] for key in keys if node.args.get(key) is not None]
    else:
        named = node.sql_name().lower() if isinstance(node, exp.Func) else node.key
        raise _unknown(node, REFUSED_CLASSES.get(type(node), named))
    name = ROW_ALIASES.get(name, name)
    if name in _SPECIAL:
        return _SPECIAL[name](node, arguments, bind)
    if name in DATE_PART_FUNCTIONS:
        if len(arguments) != 1:
            raise bind_error(node, f"{name} takes one argument.")
        return temporal.bind_part(node, DATE_PART_FUNCTIONS[name], arguments[0], bind)
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
        nodes = [make_cast(t.node, result, not fits(t, result)) for t in typed]
    made = make_call(name, *nodes)
    bounds = known.bounds(typed) if known.bounds is not None else None
    missing = known.trying or any(t.nullable for t in typed)
    constant = all(t.constant for t in typed)
    reach = (
        bounds
        if known.reach is None and bounds is not None and bounds.bounded and not known.widens
        else known.reach
    )
    return Typed(
        make_try(made) if known.trying else made,
        result,
        bounds,
        constant,
        None,
        reach,
        missing,
        length=length,
    )


def _sized(
    name: str, known: RowFunction, typed: list[Typed], node: exp.Expr
) -> tuple[list[Typed], int | None]:
    """Return the arguments, within their public lengths where the call needs that, and the length of its answer."""
    text = known.result == TEXT
    most = known.cut(typed) if known.cut is not None else None
    if (text and most is None) or known.steps is not None:
        typed = [hold(t) for t in typed]
    if known.steps is not None:
        limit_steps(name, known.steps(typed), node)
    if not text:
        return typed, None
    if most is None:
        most = length_of(typed[0]) if known.length is None else known.length(typed)
    return typed, count_written(name, most, node, known.weight)


def _argument(known: RowFunction, i: int, place: exp.Expr, node: exp.Expr, name: str, bind: Bind) -> Typed:
    typed = bind(place)
    kinds = known.arguments[i]
    require_kind(
        typed, place, kinds, f"{name} needs {' or '.join(_KIND_WORDS.get(k, k.lower()) for k in kinds)} here"
    )
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


_KIND_WORDS = {
    "TEXT": "a text", "INTEGER": "a whole number", "DECIMAL": "a decimal", "DOUBLE": "a float", "LIST": "a list",
}  # fmt: skip


def bind_length(node: exp.Expr, bind: Bind) -> Typed:
    """Bind the length of a text in characters, or of a list in elements."""
    inner = bind(node.this)
    return _listed(node, "len" if inner.type.kind == "LIST" else "length", [node.this], bind)


def bind_contains(node: exp.Expr, bind: Bind) -> Typed:
    """list_contains(list, literal)."""
    inner, sought = bind(node.this), bind(node.expression)
    require_kind(inner, node.this, ("LIST",), "a list is needed")
    if inner.type.element is None:
        return Typed(make_cast(exp.Null(), BOOLEAN), BOOLEAN)
    held = take_value(Typed(exp.Null(), inner.type.element), node.this)
    meet([(held, node.this), (sought, node.expression)], "list_contains")
    if (
        inner.type.element.sql == "ENUM" or not fits(sought, inner.type.element)
        if sought.type.numeric
        else False
    ):
        raise bind_error(node.expression, "the list holds values of another type.")
    return make_boolean(make_try(make_call("list_contains", inner.node, sought.node)), (inner, sought), True)


def bind_sha(node: exp.Expr, bind: Bind) -> Typed:
    """Bind SHA2 with 256 bits; others are refused."""
    if node.args.get("length") is None or node.args["length"].name != "256":
        raise _unknown(node, "sha2")
    return _listed(node, "sha256", [node.this], bind)


_Special = Callable[[exp.Expr, list[exp.Expr], Bind], Typed]
_SPECIAL: dict[str, _Special] = {
    "date_sub": temporal.bind_date_sub, "datesub": temporal.bind_date_sub, "date_part": temporal.bind_date_part,
    "datepart": temporal.bind_date_part, "try_strptime": temporal.bind_strptime,
}  # fmt: skip
_ALSO = (
    "abs", "ceil", "ceiling", "coalesce", "concat", "concat_ws", "date_diff", "date_trunc", "dayname", "epoch",
    "extract",
    "floor", "greatest", "if", "ifnull", "last_day", "least", "list_contains", "log", "make_date", "mod", "monthname",
    "nullif", "regexp_extract", "regexp_full_match", "regexp_matches", "regexp_replace", "round", "sign", "strftime",
    "time_bucket", "trunc", "xor",
)  # fmt: skip
"""Functions with a handler of their own."""


def _unknown(node: exp.Expr, name: str) -> PrivacyError:
    if name in NOT_LISTED:
        return privacy_error(node, f"{name} can't be used on private rows: {NOT_LISTED[name]}.")
    known = {*ROW_FUNCTIONS, *ROW_ALIASES, *DATE_PART_FUNCTIONS, *_SPECIAL, *_ALSO}
    return privacy_error(
        node,
        f"the function {name} is not on the list of those that can't fail or leak.",
        did_you_mean(name, sorted(known)),
    )
