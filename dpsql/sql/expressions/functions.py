"""Calls, and the allow-list of row functions by class, each class with the reason why it is total.

A function is listed when it gives a value whatever its arguments hold, or can be made to (TRY turns what would raise
into NULL). What is not listed is refused: volatile functions and whatever reads files, settings or metadata (their
answers are not about the rows); functions whose time or memory grows with a number; JSON, bit strings and unions (errors
that TRY does not catch); functions that raise on purpose.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.expressions import coercion, lists, operators, temporal, types
from dpsql.sql.expressions.lengths import DEFAULT_MAX_LENGTH, count_written, hold, length_of, limit_steps
from dpsql.sql.expressions.temporal import DATE_PART_RANGES
from dpsql.sql.parse.dialect import NAMED, bind_error, name_called, privacy_error, restore_logarithm, to_sql
from dpsql.sql.parse.functions import NAME_OF_CLASS, ROW_ALIASES

NUM: tuple[types.TypeKind, ...] = ("INTEGER", "DECIMAL", "DOUBLE")
STR: tuple[types.TypeKind, ...] = ("TEXT",)
INT: tuple[types.TypeKind, ...] = ("INTEGER",)
LIST: tuple[types.TypeKind, ...] = ("LIST",)

BoundsOf = Callable[[Sequence[types.Typed]], types.Bounds | None]
CountOf = Callable[[Sequence[types.Typed]], int]
CutOf = Callable[[Sequence[types.Typed]], int | None]


@dataclass(frozen=True)
class RowFunction:
    """A listed function. ``literal`` are the places of arguments that must be constants."""

    arguments: tuple[tuple[types.TypeKind, ...], ...]
    result: types.Type
    optional: int = 0
    literal: tuple[int, ...] = ()
    double: bool = False
    """Numbers are cast to DOUBLE, for which no argument raises (a domain error is NaN or infinite)."""
    trying: bool = False
    """The call stands in TRY."""
    bounds: BoundsOf | None = None
    reach: types.Bounds | None = None
    """Integers that the result can't leave."""
    widens: bool = False
    """The result is HUGEINT where an argument may not fit BIGINT."""
    length: CountOf | None = None
    """The longest text that comes of arguments within their bounds; without it, the first argument's."""
    cut: CutOf | None = None
    """The longest text that comes of any arguments, however long; None where there is no such bound."""
    weight: int = 1
    """Characters that the call keeps in memory for each that it gives."""
    steps: CountOf | None = None
    """Steps for one row, where they are more than a few for a character."""


@dataclass(frozen=True)
class FunctionClass:
    """Functions that are total for one reason."""

    why: str
    functions: dict[str, RowFunction]


def _fixed(low: int, high: int | None) -> BoundsOf:
    return lambda given: types.Bounds(Fraction(low), None if high is None else Fraction(high))


def _real(result: BoundsOf | None = None, count: int = 1) -> RowFunction:
    return RowFunction((NUM,) * count, types.DOUBLE, double=True, trying=True, bounds=result)


def _times(weight: int, share: int = 1) -> CountOf:
    """Return a count of steps that grows with the product of two texts' lengths."""
    return lambda given: weight * length_of(given[0]) * length_of(given[1]) // share


def _whole(typed: types.Typed) -> int | None:
    """Return a literal whole number."""
    point = typed.bounds
    return None if point is None or point.low is None or point.low != point.high else int(point.low)


def _first(given: Sequence[types.Typed]) -> int | None:
    """Return what left and right keep; where the number is negative, all but so many."""
    kept = _whole(given[1])
    return kept if kept is not None and kept >= 0 else None


def _middle(given: Sequence[types.Typed]) -> int | None:
    kept = _whole(given[2]) if len(given) > 2 else None
    return None if kept is None else abs(kept)


def _replaced(given: Sequence[types.Typed]) -> int:
    """Return the longest text that REPLACE makes; an empty text occurs nowhere."""
    text, sought, by = (length_of(item) for item in given)
    return text if sought == 0 else text + text // sought * max(0, by - sought)


def _digest(size: int) -> CutOf:
    return lambda given: size


_SAME = RowFunction((STR,), types.TEXT)
_COMPOSED = RowFunction((STR,), types.TEXT, length=lambda given: 3 * length_of(given[0]))
"""A composed text: at most three code points come of one."""
_ASK = RowFunction((STR, STR), types.BOOLEAN)
_COUNTED = types.Bounds(Fraction(0), Fraction(2**40))


def _measured(width: int) -> BoundsOf:
    """Return bounds of a length, in parts of which a character has so many, where the policy says how long a value is."""

    def handle(given: Sequence[types.Typed]) -> types.Bounds:
        texts = [v for v in given[0].values or () if isinstance(v, str)]
        most = max(map(len, texts)) if texts else length_of(given[0])
        known = most < DEFAULT_MAX_LENGTH  # the default is a limit on work that nobody declared
        return types.Bounds(Fraction(0), Fraction(width * most) if known else None)

    return handle


_LENGTH = RowFunction((STR,), types.BIGINT, bounds=_measured(1), reach=_COUNTED)
_NEAR = RowFunction((STR, STR), types.DOUBLE, literal=(1,), bounds=_fixed(0, 1), steps=_times(1, 16))
_STRIP = RowFunction((STR, STR), types.TEXT, optional=1, literal=(1,))
_CUT = RowFunction((STR, INT), types.TEXT, literal=(1,), cut=_first)
_FLOATS = RowFunction((("DOUBLE",),), types.BOOLEAN)

FUNCTION_CLASSES: tuple[FunctionClass, ...] = (
    FunctionClass(
        "Mathematics on DOUBLE: outside the domain the answer is NaN or infinite, which count as missing. TRY is for "
        "connections whose settings make that an error.",
        {
            **{name: _real() for name in (
                "tan", "asinh", "acosh", "atanh", "sinh", "degrees", "radians", "cot", "gamma", "lgamma",
            )},
            "ln": _real(lambda v: operators.bound_logarithm(v[0])), "cbrt": _real(lambda v: operators.bound_root(v[0], 3)),
            "log2": _real(lambda v: operators.bound_logarithm(v[0], Fraction(2))),
            "log10": _real(lambda v: operators.bound_logarithm(v[0], Fraction(10))),
            "log": _real(operators.bound_any_logarithm, 2), "pow": _real(operators.bound_power, 2),
            "exp": _real(lambda v: operators.bound_exponential(v[0])), "sqrt": _real(lambda v: operators.bound_root(v[0], 2)),
            **{name: _real(_fixed(-1, 1)) for name in ("sin", "cos", "tanh")},
            **{name: _real(_fixed(-2, 2)) for name in ("asin", "atan")},
            "acos": _real(_fixed(0, 4)), "cosh": _real(_fixed(1, None)), "even": _real(),
            "atan2": _real(_fixed(-4, 4), 2),
            "pi": RowFunction((), types.DOUBLE, bounds=_fixed(3, 4)),
        },
    ),
    FunctionClass(
        "Questions about floating-point values: a test of bits.",
        {"isnan": _FLOATS, "isinf": _FLOATS, "isfinite": _FLOATS, "signbit": _FLOATS},
    ),
    FunctionClass(
        "Whole numbers: TRY, for the answer may not fit.",
        {
            "gcd": RowFunction((INT, INT), types.BIGINT, trying=True, widens=True),
            "lcm": RowFunction((INT, INT), types.BIGINT, trying=True, widens=True),
            "bit_count": RowFunction((INT,), types.TINYINT, trying=True, bounds=_fixed(0, 128)),
        },
    ),
    FunctionClass(
        "Text: every text is valid UTF-8, and the answers have a public bound. Counts and places are literals of a "
        "modest size, for the engine raises on places beyond 32 bits.",
        {
            "lower": _SAME, "upper": _SAME, "reverse": _SAME, "strip_accents": _COMPOSED,
            # Marks are put in order one by one.
            "nfc_normalize": replace(_COMPOSED, steps=lambda given: 2 * length_of(given[0]) ** 2),
            "trim": _STRIP, "ltrim": _STRIP, "rtrim": _STRIP, "length": _LENGTH,
            "strlen": replace(_LENGTH, bounds=_measured(4)), "bit_length": replace(_LENGTH, bounds=_measured(32)),
            "substring": RowFunction((STR, INT, INT), types.TEXT, optional=1, literal=(1, 2), cut=_middle),
            "left": _CUT, "right": _CUT,
            "replace": RowFunction((STR, STR, STR), types.TEXT, literal=(1, 2), length=_replaced, steps=_times(1, 64)),
            "translate": RowFunction((STR, STR, STR), types.TEXT, literal=(1, 2)),
            "split_part": RowFunction((STR, STR, INT), types.TEXT, literal=(1, 2), weight=5),
            "strpos": RowFunction((STR, STR), types.BIGINT, bounds=_fixed(0, None), reach=_COUNTED, steps=_times(1, 64)),
            "ascii": RowFunction((STR,), types.INTEGER, bounds=_fixed(-1, 0x10FFFF)),
            "unicode": RowFunction((STR,), types.INTEGER, bounds=_fixed(-1, 0x10FFFF)),
            "ord": RowFunction((STR,), types.INTEGER, bounds=_fixed(-1, 0x10FFFF)),
        },
    ),
    FunctionClass(
        "Questions about two texts.",
        {
            **dict.fromkeys(("starts_with", "ends_with", "prefix", "suffix"), _ASK),
            "contains": replace(_ASK, steps=_times(1, 64)),
        },
    ),
    FunctionClass(
        "Likeness to a literal: the cost is bounded by the literal's length times the text's.",
        {
            "levenshtein": RowFunction(
                (STR, STR), types.BIGINT, literal=(1,), bounds=_fixed(0, None), reach=_COUNTED, steps=_times(2)
            ),
            "jaro_similarity": _NEAR, "jaro_winkler_similarity": _NEAR,
        },
    ),
    FunctionClass(
        "Digests of a text: of fixed size. (Never of the privacy unit, which is no value here.)",
        {name: replace(_SAME, cut=_digest(size)) for name, size in (("md5", 32), ("sha1", 40), ("sha256", 64))},
    ),
    FunctionClass("Lists: their length.", {"len": RowFunction((LIST,), types.BIGINT, bounds=_measured(1), reach=_COUNTED)}),
)  # fmt: skip

ROW_FUNCTIONS: dict[str, RowFunction] = {
    name: item for group in FUNCTION_CLASSES for name, item in group.functions.items()
}

DATE_PART_FUNCTIONS = {
    **{name.lower(): name for name in DATE_PART_RANGES if name not in ("DOW", "DOY")},
    "dayofmonth": "DAY", "weekofyear": "WEEK",
}  # fmt: skip
"""Functions that give a part of a date."""

REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    exp.Pad: "lpad", exp.StrToTime: "strptime", exp.Explode: "unnest", exp.Rand: "random", exp.GenerateSeries: "range",
    exp.CurrentDate: "current_date", exp.CurrentTimestamp: "current_timestamp", exp.CurrentTime: "current_time",
}  # fmt: skip
"""DuckDB's names of some calls that are refused."""

_TELLS = "its answer is not about the rows"
_COSTS = "its cost depends on the values"
_CLOCK = f"{_TELLS}; write a date"
NOT_LISTED: dict[str, str] = {name: why for why, names in (
    (_TELLS, ("random", "rand", "uuid", "gen_random_uuid", "nextval", "currval", "setseed", "rowid", "getenv",
              "current_setting", "getvariable", "version", "typeof", "stats", "alias", "current_user", "session_user",
              "current_catalog", "current_database", "current_schema")),
    (_CLOCK, (
        "now", "current_timestamp", "current_date", "current_time", "today", "get_current_time", "localtimestamp", "localtime",
        "current_localtime", "current_localtimestamp", "get_current_timestamp", "transaction_timestamp")),
    ("it reads files", ("read_text", "read_blob", "read_csv", "read_parquet", "glob", "query", "query_table")),
    (_COSTS, ("repeat", "lpad", "rpad", "range", "generate_series", "list_resize", "format", "printf")),
    ("an error would be an answer without noise", ("error", "assert_true")),
    ("time would be an answer without noise", ("sleep_ms", "pg_sleep")),
    ("it fails on far dates while the engine still plans; write epoch(x)", ("epoch_ns", "epoch_us")),
    ("it differs between versions; write md5(x::VARCHAR)", ("hash",)),
    ("it stands for several columns; name each", ("columns",)),
    ("it fails on text of another form", ("strptime",)),
    ("it makes rows of a row; write FROM t, UNNEST(x) AS u(y)", ("unnest",)),
) for name in names}  # fmt: skip
"""Why some names that come to mind are missing."""


# -- text -------------------------------------------------------------------------------------------------------


def bind_concat_operator(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """``||``, which is NULL where a part is."""
    typed = [_written(bind(place)) for place in (node.this, node.expression)]
    length = count_written("||", sum(map(length_of, typed)), node)
    made = exp.DPipe(this=types.parenthesise(typed[0].node), expression=types.parenthesise(typed[1].node))
    return replace(types.Typed.made_of(made, types.TEXT, typed), length=length)


def _written(typed: types.Typed) -> types.Typed:
    if typed.type == types.NULL:
        return types.Typed(types.make_cast(exp.Null(), types.TEXT), types.TEXT, length=0)
    return hold(
        coercion.convert(
            coercion.require_kind(typed, coercion.ORDERED_KINDS, "only plain values are joined as text"),
            types.TEXT,
        )
    )


def make_concat_binder(name: str) -> Callable[[exp.Expr, coercion.Bind], types.Typed]:
    """Return the binder of CONCAT or CONCAT_WS."""

    def handle(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
        typed = [_written(bind(place)) for place in node.expressions]
        written = sum(map(length_of, typed))
        if name == "concat_ws" and typed:  # the first stands between all others
            written += length_of(typed[0]) * max(0, len(typed) - 3)
        length = count_written(name, written, node)
        made = types.make_call(name, *(t.node for t in typed))
        return replace(types.Typed.made_of(made, types.TEXT, typed, nullable=True), length=length)

    return handle


def bind_trim(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind TRIM, by its position as LTRIM or RTRIM."""
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
    arguments = [place for place in (node.this, node.args.get("expression")) if place is not None]
    return _listed(node, name, arguments, bind)


# -- numbers ----------------------------------------------------------------------------------------------------


def make_rounding_binder(name: str) -> Callable[[exp.Expr, coercion.Bind], types.Typed]:
    """floor, ceil, round and trunc keep decimals and floats, and leave integers as DuckDB does."""

    def handle(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
        inner, digits = bind(node.this), _digits(node)
        coercion.require_kind(inner, coercion.NUMBER_KINDS, "a number is needed")
        if inner.type == types.NULL:
            return types.Typed(types.make_cast(exp.Null(), types.DOUBLE), types.DOUBLE)
        if digits is not None and name in ("floor", "ceil"):
            raise bind_error(node, f"{name} takes one argument.")
        steps = Fraction(10) ** (digits or 0)
        bounds = inner.bounds
        if bounds is not None:
            bounds = (bounds * types.Bounds.point(steps)).rounded() * types.Bounds.point(1 / steps)
        kind, source = _rounded_type(name, inner, digits), inner.node
        if kind == types.DOUBLE or (inner.type.kind == "INTEGER" and kind != inner.type):
            source = coercion.cast_fitting(inner, kind)
        arguments = [source] if digits is None else [source, exp.Literal.number(digits)]
        return types.Typed(types.make_try(types.make_call(name, *arguments)), kind, bounds, inner.constant)

    return handle


def _digits(node: exp.Expr) -> int | None:
    place = node.args.get("decimals")
    if place is None:
        return None
    inner = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit() or int(inner.name) > 38:
        raise privacy_error(place, "the number of digits must be a literal up to 38.", "write ROUND(x, 2).")
    return -int(inner.name) if isinstance(place, exp.Neg) else int(inner.name)


def _rounded_type(name: str, inner: types.Typed, digits: int | None) -> types.Type:
    kind = inner.type
    if kind.kind == "INTEGER":
        if name in ("floor", "ceil"):
            return types.DOUBLE
        if digits is None or not kind.sql.startswith("U"):
            return kind
        # To tens and hundreds, unsigned integers are rounded as the signed ones that hold them.
        return types.BIGINT if coercion.fits(inner, types.BIGINT) else types.HUGEINT
    if kind.kind == "DOUBLE":
        return kind
    before, after = kind.digits
    return types.decimal(before + after, max(0, min(after, digits or 0)))


def bind_sign(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind SIGN."""
    inner = coercion.require_kind(bind(node.this), coercion.NUMBER_KINDS, "a number is needed")
    made = types.make_try(types.make_call("sign", inner.node))
    return types.Typed(made, types.TINYINT, types.Bounds(Fraction(-1), Fraction(1)), inner.constant)


def bind_log(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """LOG(x) is to base ten; sqlglot reads LOG2 and LOG10 as LOG with a base."""
    if node.args.get("expression") is None:
        return _listed(node, "log10", [node.this], bind)
    named = restore_logarithm(node.copy())
    if isinstance(named, exp.Anonymous):
        return _listed(node, named.name, [node.expression], bind)
    return _listed(node, "log", [node.this, node.expression], bind)


# -- functions by name ------------------------------------------------------------------------------------------


def bind_function(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Return a call of a function on the allow-list."""
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower().removeprefix(NAMED)
        arguments = list(node.expressions)
        kwarg = next((a for a in arguments if isinstance(a, exp.Kwarg | exp.PropertyEQ | exp.Alias)), None)
        if kwarg is not None:
            raise bind_error(kwarg, f"{name} takes no named arguments.", around=node)
    elif (row := NAME_OF_CLASS.get(type(node))) is not None and "ROWS" in row.modes:
        name, keys = row.name, row.parts
        coercion.refuse_rest(node, *keys)
        arguments = [node.args[key] for key in keys if node.args.get(key) is not None]
    else:
        raise _unknown(node, REFUSED_CLASSES.get(type(node), name_called(node)))
    name = ROW_ALIASES.get(name, name)
    if name in _SPECIAL:
        return _SPECIAL[name](node, arguments, bind)
    if name in DATE_PART_FUNCTIONS:
        if len(arguments) != 1:
            raise bind_error(node, f"{name} takes one argument.")
        return temporal.bind_part(node, DATE_PART_FUNCTIONS[name], arguments[0], bind)
    return _listed(node, name, arguments, bind)


def _listed(node: exp.Expr, name: str, arguments: list[exp.Expr], bind: coercion.Bind) -> types.Typed:
    known = ROW_FUNCTIONS.get(name)
    if known is None:
        raise _unknown(node, name)
    most, least = len(known.arguments), len(known.arguments) - known.optional
    if not least <= len(arguments) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise bind_error(node, f"{name} takes {count} argument{'s' if count != '1' else ''}.")
    typed = [_argument(known, i, place, node, name, bind) for i, place in enumerate(arguments)]
    typed, length = _sized(name, known, typed, node)
    result = (
        types.HUGEINT
        if known.widens and not all(coercion.fits(t, types.BIGINT) for t in typed)
        else known.result
    )
    nodes = [coercion.cast_to_double(t) if known.double else t.node for t in typed]
    if known.widens:
        nodes = [coercion.cast_fitting(t, result) for t in typed]
    made = types.make_call(name, *nodes)
    bounds = known.bounds(typed) if known.bounds is not None else None
    whole = result.kind == "INTEGER" and bounds is not None and bounds.bounded
    reach = known.reach or (bounds if whole else None)
    if not known.trying:
        return replace(types.Typed.made_of(made, result, typed, bounds, reach=reach), length=length)
    return replace(
        types.Typed.made_of(types.make_try(made), result, typed, bounds, nullable=True, reach=reach),
        length=length,
    )


def _sized(
    name: str, known: RowFunction, typed: list[types.Typed], node: exp.Expr
) -> tuple[list[types.Typed], int | None]:
    """Return the arguments, within their public lengths where the call needs that, and the length of its answer."""
    text = known.result == types.TEXT
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


def _argument(
    known: RowFunction, i: int, place: exp.Expr, node: exp.Expr, name: str, bind: coercion.Bind
) -> types.Typed:
    kinds = known.arguments[i]
    typed = coercion.require_kind(
        bind(place), kinds, f"{name} needs {' or '.join(_KIND_WORDS[kind] for kind in kinds)} here"
    )
    if typed.type.kind == "NULL":
        kind = {"TEXT": types.TEXT, "INTEGER": types.BIGINT, "LIST": types.NULL}.get(kinds[0], types.DOUBLE)
        return types.Typed(
            typed.node if kind == types.NULL else types.make_cast(typed.node, kind), kind, length=0
        )
    if i in known.literal:
        if not typed.constant or not isinstance(typed.node, exp.Literal | exp.Neg):
            raise privacy_error(place, f"{name} needs a literal here.", around=node)
        far = typed.bounds.absolute().high if typed.bounds is not None else None
        if far is not None and far > coercion.MAX_LITERAL_COUNT:
            raise bind_error(place, f"this is at most {coercion.MAX_LITERAL_COUNT}.")
    return typed


_KIND_WORDS = {
    "TEXT": "a text", "INTEGER": "a whole number", "DECIMAL": "a decimal", "DOUBLE": "a float", "LIST": "a list",
}  # fmt: skip


def bind_length(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind the length of a text in characters, or of a list in elements."""
    inner = bind(node.this)
    return _listed(node, "len" if inner.type.kind == "LIST" else "length", [node.this], bind)


def bind_sha(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind SHA2 with 256 bits; others are refused."""
    if node.args.get("length") is None or node.args["length"].name != "256":
        raise _unknown(node, "sha2")
    return _listed(node, "sha256", [node.this], bind)


_Special = Callable[[exp.Expr, list[exp.Expr], coercion.Bind], types.Typed]
_SPECIAL: dict[str, _Special] = {
    "date_sub": temporal.bind_date_sub, "datesub": temporal.bind_date_sub, "date_part": temporal.bind_date_part,
    "datepart": temporal.bind_date_part, "try_strptime": temporal.bind_strptime, "list_slice": lists.bind_slice_call,
    "width_bucket": operators.bind_width_bucket,
}  # fmt: skip
_ALSO = (
    "abs", "array_slice", "ceil", "ceiling", "coalesce", "concat", "concat_ws", "date_diff", "date_trunc", "dayname", "epoch",
    "extract", "floor", "greatest", "if", "ifnull", "last_day", "least", "list_contains",
    "list_value", "log", "make_date", "mod", "monthname",
    "nullif", "regexp_extract", "regexp_full_match", "regexp_matches", "regexp_replace", "round", "sign", "strftime",
    "string_split", "time_bucket", "trunc", "xor",
)  # fmt: skip
"""Functions with a handler of their own."""


def _unknown(node: exp.Expr, name: str) -> PrivacyError:
    if name in NOT_LISTED:
        hint = "write DATE '2024-12-31', or a parameter, $today." if NOT_LISTED[name] == _CLOCK else None
        if name == "strptime":
            hint = f"write TRY_{to_sql(node)}."
        return privacy_error(node, f"{name} can't be used on private rows: {NOT_LISTED[name]}.", hint)
    known = {*ROW_FUNCTIONS, *ROW_ALIASES, *DATE_PART_FUNCTIONS, *_SPECIAL, *_ALSO}
    if name == "&&":
        return privacy_error(node, "&& compares lists.", "write AND instead of &&.")
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else _OTHERWISE
    what = f"the function {name} is not on the list of those that can't fail or leak."
    return privacy_error(node, what, hint)


_OTHERWISE = "SELECT WITH SUBSAMPLE runs a registered Python function on blocks of rows; else compute it before, in the data."
