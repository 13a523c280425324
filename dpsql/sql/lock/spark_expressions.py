"""Expressions of Spark's text, as the second lock's tree has them; see :mod:`dpsql.sql.lock.spark_reader`.

What bounds a value is read as what it is: sums in parts, halves, quotients, hashes. Every other function that Spark's writer
may write is taken for a function of its arguments alone, of which nothing else is known; the list is closed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.sql.lock.spark_aggregates import RANKS, SparkAggregates, refuse_other_parts
from dpsql.sql.lock.tree import OPAQUE, Call, Cast, Expr, Literal, Parameter, Query, Ref, Subquery, refuse

BITS = 21
"""Bits of each part of a sum."""
_TYPES = {
    "BIGINT": "BIGINT", "INT": "INTEGER", "SMALLINT": "SMALLINT", "TINYINT": "TINYINT", "DOUBLE": "DOUBLE",
    "FLOAT": "FLOAT", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIMESTAMPNTZ": "TIMESTAMP", "TEXT": "VARCHAR",
    "TIMESTAMPLTZ": "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE", "VOID": "NULL", "NULL": "NULL",
}  # fmt: skip
_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.IntDiv: "//", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">",
    exp.LTE: "<=", exp.GTE: ">=", exp.NullSafeEQ: "is not distinct from", exp.SafeAdd: "+", exp.SafeSubtract: "-",
    exp.SafeMultiply: "*", exp.Mod: "%", exp.DPipe: "||", exp.Atan2: "atan2", exp.Div: "/", exp.SafeDivide: "/",
    exp.Pow: "power", exp.And: "and", exp.Or: "or",
}  # fmt: skip
_UNARY: dict[type[exp.Expr], str] = {
    exp.Abs: "abs", exp.Rint: "round_even", exp.Floor: "floor", exp.Ceil: "ceil",
}  # fmt: skip
_LISTS: dict[type[exp.Expr], str] = {
    exp.Least: "least",
    exp.Greatest: "greatest",
    exp.Coalesce: "coalesce",
}
_ATTEMPTS = (exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply)
_NAMED = {"pmod": "%", "shiftrightunsigned": ">>", "try_divide": "/", "concat": "||"}
"""Functions that sqlglot does not know, of which the lock knows no more than that."""
_UNKNOWN = frozenset({
    "get", "octet_length", "size", "cbrt", "sha2", "bit_count", "replace", "translate", "bit_length", "startswith", "endswith",
    "contains", "instr", "unix_seconds", "unix_micros", "trunc", "nullif", "collate", "sign", "signum", "log2", "log10",
    "try_multiply", "try_add", "try_subtract", "date_add", "datediff", "weekday", "dayofyear", "monthname", "dayname", "radians",
    "degrees", "sinh", "cosh", "tanh", "element_at", "array_contains",
})  # fmt: skip
_PURE = frozenset({
    "ArraySize", "ArrayContains", "Array", "Transform", "Bracket", "ArraySort", "SortArray", "Reduce", "Interval", "Paren",
    "TimestampTrunc", "DateTrunc", "DateDiff", "TsOrDsToDate", "TsOrDsAdd", "DateAdd", "DateSub", "LastDay", "TimeToStr",
    "TimeStrToTime", "Year", "Month", "Day", "Hour", "Minute", "Second", "Quarter", "DayOfWeek", "DayOfWeekIso", "DayOfMonth",
    "DayOfYear", "Week", "WeekOfYear", "Dayname", "Monthname", "UnixSeconds", "UnixMicros", "TimeToUnix", "UnixToTime", "Pad",
    "Like", "ILike", "Escape", "Upper", "Lower", "Length", "BitLength", "ByteLength", "Trim", "Substring", "Left", "Right",
    "SplitPart", "Replace", "Translate", "Ascii", "Unicode", "StrPosition", "StartsWith", "EndsWith", "Contains", "MD5",
    "MD5Digest", "SHA", "SHA2", "ConcatWs", "Sqrt", "Cbrt", "Exp", "Ln", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
    "Sinh", "Cosh", "Tanh", "Degrees", "Radians", "Sign", "Pi", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot",
    "BitwiseLeftShift", "BitwiseRightShift", "BitwiseCount", "Trunc", "Nullif", "IsNan", "Collate", "Is", "AtTimeZone",
})  # fmt: skip
"""Functions of their arguments alone, by their classes: nothing more is known of what they give."""


def read_integer(node: Expr) -> int | None:
    """Return the integer that a literal is."""
    found = isinstance(node, Literal) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return node.value if found else None  # type: ignore[union-attr,return-value]


@dataclass
class SparkExpressions(SparkAggregates):
    """Reads expressions. ``salt``: the secret number that stands in the text."""

    salt: int | None

    @abstractmethod
    def query(self, node: exp.Expr) -> Query:
        """A query inside an expression."""

    def of(self, node: exp.Expr) -> Expr:
        """One expression.

        Raises:
            Unproved: something in it has no place in the tree.
        """
        if isinstance(node, exp.Paren):
            return self.of(node.this)
        if isinstance(node, exp.Column):
            refuse_other_parts(node, "this", "table")
            if not node.table or isinstance(node.this, exp.Star):
                refuse("a column that is not written with its relation")
            return Ref(node.table, node.name)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
            return self._constant(node)
        if isinstance(node, exp.Neg):
            return self._negated(node)
        if isinstance(node, exp.TryCast | exp.Cast):
            return self.cast(node)
        if isinstance(node, exp.Not):
            inner = self.of(node.this)
            if isinstance(inner, Call) and inner.name == "is not distinct from":
                return Call("is distinct from", inner.args)
            return Call("not", (inner,))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Call("is null", (self.of(node.this),))
        if isinstance(node, exp.Tuple):
            refuse_other_parts(node, "expressions")
            return Call("row", tuple(map(self.of, node.expressions)))
        return self._operator(node)

    def _operator(self, node: exp.Expr) -> Expr:
        kind = type(node)
        if kind in _BINARY:
            refuse_other_parts(node, "this", "expression", "safe", "typed")
            made = Call(_BINARY[kind], (self.of(node.this), self.of(node.expression)))
            return Call("try", (made,)) if isinstance(node, _ATTEMPTS) else made
        if kind in _UNARY:
            refuse_other_parts(node, "this")
            return Call(_UNARY[kind], (self.of(node.this),))
        if kind in _LISTS:
            refuse_other_parts(node, "this", "expressions", "ignore_nulls", "is_nvl", "is_null")
            return Call(_LISTS[kind], tuple(map(self.of, (node.this, *node.expressions))))
        if isinstance(node, exp.Case):
            return self._case(node)
        if isinstance(node, exp.Between):
            refuse_other_parts(node, "this", "low", "high")
            return Call("between", tuple(self.of(node.args[key]) for key in ("this", "low", "high")))
        if type(node) is exp.Concat:
            refuse_other_parts(node, "expressions", "safe", "coalesce")
            return Call("||", tuple(map(self.of, node.expressions)))
        if isinstance(node, exp.Round):
            refuse_other_parts(node, "this", "decimals")
            places = node.args.get("decimals")
            return Call("round", (self.of(node.this), *(() if places is None else (self.of(places),))))
        if isinstance(node, exp.In):
            return self._among(node)
        if isinstance(node, exp.Exists):
            return Subquery("EXISTS", self.query(node.this), None, "")
        if isinstance(node, exp.Subquery):
            refuse_other_parts(node, "this")
            return Subquery("SCALAR", self.query(node.this), None, "")
        if isinstance(node, exp.Window):
            return self.window(node)
        if isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup):
            return self.aggregate(node)
        return self._function(node)

    def _case(self, node: exp.Case) -> Expr:
        refuse_other_parts(node, "ifs", "default")
        parts = [self.of(part) for one in node.args["ifs"] for part in (one.this, one.args["true"])]
        default = node.args.get("default")
        args = (*parts, Literal(None) if default is None else self.of(default))
        return _quotient(args) or Call("case", args)

    # -- functions --------------------------------------------------------------------------------------------------

    def _function(self, node: exp.Expr) -> Expr:
        """A function of its arguments: by what Spark calls it, and with everything that it was written with."""
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
            refuse_other_parts(node, "this", "expressions")
            if name == "xxhash64":
                return self._hash(node)
            if name in _NAMED:
                return Call(_NAMED[name], tuple(map(self.of, node.expressions)))
            if name not in _UNKNOWN:
                refuse(f"an expression {name}")
            return Call(OPAQUE, tuple(map(self.of, node.expressions)), names=(name,))
        if isinstance(node, exp.Struct):
            return self._struct(node)
        if type(node).__name__ not in _PURE:
            refuse(f"an expression {node.key}")
        args: list[Expr] = []
        said = [node.key]
        for key, value in sorted(node.args.items()):
            for part in value if isinstance(value, list) else [value]:
                said.append(key)
                if isinstance(part, exp.Lambda):
                    said.append(_lambda(part))
                elif isinstance(part, exp.Var | exp.Identifier):
                    said.append(part.name)
                elif isinstance(part, exp.Expr):
                    args.append(self.of(part))
                elif part is not None:
                    said.append(repr(part))
        return Call(OPAQUE, tuple(args), names=tuple(said))

    def _struct(self, node: exp.Struct) -> Expr:
        refuse_other_parts(node, "expressions")
        names, args = [], []
        for part in node.expressions:
            if not isinstance(part, exp.PropertyEQ) or not isinstance(part.this, exp.Identifier):
                refuse("a struct without names")
            names.append(part.this.name)
            args.append(self.of(part.expression))
        return Call("struct_pack", tuple(args), names=tuple(names))

    def _negated(self, node: exp.Neg) -> Expr:
        inner = self.of(node.this)
        if isinstance(inner, Cast) and inner.type == "DOUBLE" and isinstance(inner.child, Literal):
            inner = inner.child
        if isinstance(inner, Literal) and not isinstance(inner.value, str | bool | None):
            return Literal(-inner.value)
        return Call("-", (inner,))

    def _constant(self, node: exp.Expr) -> Literal:
        if isinstance(node, exp.Null):
            return Literal(None)
        if isinstance(node, exp.Boolean):
            return Literal(bool(node.this))
        if node.args.get("is_string"):
            return Literal(node.name)
        text = node.name
        return Literal(
            int(text) if text.isdigit() else float(text) if "e" in text.lower() else Fraction(text)
        )

    def _among(self, node: exp.In) -> Expr:
        refuse_other_parts(node, "this", "query", "expressions")
        child, query = self.of(node.this), node.args.get("query")
        if query is None:
            return Call("in", (child, *map(self.of, node.expressions)))
        return Subquery("ANY", self.query(query.this), child, "COMPARE_EQUAL")

    def _hash(self, node: exp.Anonymous) -> Expr:
        """Of values; or, with the salt, of a hash of them."""
        given = node.expressions
        inner = given[0].unnest()
        if len(given) == 1 and isinstance(inner, exp.BitwiseXor):
            salt = self.of(inner.expression)
            if self.salt is not None and salt == Literal(self.salt):
                salt = Parameter("salt")
            return Call("hash", (Call("xor", (self.of(inner.this), salt)),))
        return Call("hash", tuple(map(self.of, given)))

    # -- casts ------------------------------------------------------------------------------------------------------

    def cast(self, node: exp.Expr) -> Expr:
        """A cast, or a number whose type is written so."""
        to, inner, attempt = node.args["to"], node.this, bool(node.args.get("safe"))
        refuse_other_parts(node, "this", "to", "safe")
        kind = to.this.name if isinstance(to.this, exp.DType) else ""
        if kind == "DECIMAL":
            return self._decimal(to, inner, attempt)
        if kind == "ARRAY":
            return Cast(self.of(inner), "LIST", attempt, to.sql())
        if kind not in _TYPES or to.expressions or to.args.get("nested"):
            refuse("a type that is not known")
        if isinstance(inner, exp.Literal) and not inner.is_string and not attempt:  # 2L, 2D
            value = self._constant(inner)
            return value if kind == "BIGINT" else Cast(value, _TYPES[kind], False)
        if isinstance(inner, exp.Rint) and attempt:  # DuckDB's cast of a double rounds so by itself
            inner = inner.this
        if isinstance(inner, exp.Window) and type(inner.this) in RANKS and kind == "BIGINT" and not attempt:
            return self.window(inner)
        return Cast(self.of(inner), _TYPES[kind], attempt)

    def _decimal(self, to: exp.Expr, inner: exp.Expr, attempt: bool) -> Expr:
        digits = tuple(int(p.this.name) for p in to.expressions)
        if isinstance(inner, exp.Literal) and inner.is_string and not attempt:  # 2BD
            exact = Fraction(inner.name)
            return Literal(exact.numerator if exact.denominator == 1 else exact)
        if digits != (38, 0):
            return Cast(self.of(inner), "DECIMAL", attempt, str(digits))
        found = None if attempt else self._total(inner)
        if found is not None:
            return found
        made = self.of(inner)
        return made if read_integer(made) is not None else Cast(made, "HUGEINT", attempt)

    def _total(self, node: exp.Expr) -> Expr | None:
        """A sum in three parts, or half of a number: what stands in a cast to 38 digits."""
        if isinstance(node, exp.Sum | exp.Filter):
            return self.of(node)
        parts = _flat(node)
        if len(parts) == 3 and all(map(_is_part, parts)):
            (high, times), (middle, fewer), (low, once) = map(self._sum_of, parts)
            mask = (1 << BITS) - 1
            x = _low_bits(low.args[0], mask)
            same = high.where == middle.where == low.where
            shifted = Call(">>", (x, Literal(BITS)))
            right = (
                (times, fewer, once) == (1 << 2 * BITS, 1 << BITS, 1) and same
                and high.args[0] == Call(">>", (x, Literal(2 * BITS))) and middle.args[0] == Call("&", (shifted, Literal(mask)))
            )  # fmt: skip
            return Call("sum", (x,), False, low.where) if right else refuse("a sum of other parts")
        taken = node.this.this if isinstance(node, exp.Mul) and isinstance(node.this, exp.Paren) else None
        if isinstance(taken, exp.Sub) and isinstance(taken.expression.unnest(), exp.Mod):
            rest = taken.expression.unnest()
            x = self.of(taken.this)
            half = self.of(node.expression) == Literal(Fraction(1, 2)) and self.of(
                rest.expression
            ) == Literal(2)
            if not half or self.of(rest.this) != x:
                refuse("a part of a number")
            return Call("//", (x, Literal(2)))
        return None

    def _sum_of(self, node: exp.Expr) -> tuple[Call, int]:
        times = 1
        if isinstance(node, exp.Mul):
            factor = self.of(node.expression)
            times, node = read_integer(factor) or 0, node.this
        inner, where = node.this, None
        if isinstance(inner, exp.Filter):
            where, inner = self.of(inner.expression.this), inner.this
        if not isinstance(inner, exp.Sum):
            refuse("a sum of other parts")
        refuse_other_parts(inner, "this")
        return Call("sum", (self._bits(inner.this),), False, where), times

    def _bits(self, node: exp.Expr) -> Expr:
        """Shifts and masks, which stand nowhere but in the parts of a sum."""
        if isinstance(node, exp.BitwiseAnd):
            return Call("&", (self._bits(node.this), self.of(node.expression)))
        if isinstance(node, exp.BitwiseRightShift):
            refuse_other_parts(node, "this", "expression")
            return Call(">>", (self.of(node.this), self.of(node.expression)))
        return self.of(node)


def _is_part(node: exp.Expr) -> bool:
    """Whether something may be a part of a sum: ``CAST(sum(...) AS DECIMAL(20,0))``, and a multiple."""
    inner = node.this if isinstance(node, exp.Mul) else node
    if not isinstance(inner, exp.TryCast | exp.Cast) or inner.args.get("safe"):
        return False
    return [p.this.name for p in inner.args["to"].expressions] == ["20", "0"]


def _flat(node: exp.Expr) -> list[exp.Expr]:
    return [*_flat(node.this), node.expression] if isinstance(node, exp.Add) else [node]


def _low_bits(node: Expr, mask: int) -> Expr:
    if not (isinstance(node, Call) and node.name == "&" and node.args[1] == Literal(mask)):
        refuse("a sum of other parts")
    return node.args[0]


def _lambda(node: exp.Lambda) -> str:
    """The text of a function of its own arguments; it looks at nothing else.

    Raises:
        Unproved: it names a column, or holds a query or a function that is not known.
    """
    for part in node.walk():
        if isinstance(part, exp.Column | exp.Query | exp.Anonymous | exp.AggFunc | exp.Star | exp.Parameter):
            refuse("a function that looks at more than its arguments")
    return node.sql("spark")


_ZERO, _BELOW = Cast(Literal(0), "DOUBLE", False), Cast(Literal(-1), "DOUBLE", False)


def _quotient(args: tuple[Expr, ...]) -> Expr | None:
    """Division, where Spark raises an error or wraps around: the least number over -1, and anything over zero."""
    if len(args) != 3 or not isinstance(args[0], Call) or args[0].name != "=":
        return None
    (b, by), there, otherwise = args[0].args, args[1], args[2]
    if not isinstance(otherwise, Call) or len(otherwise.args) != 2 or otherwise.args[1] != b:
        return None
    a = otherwise.args[0]
    if otherwise.name == "//" and by == Literal(-1):
        return otherwise if there == Call("try", (Call("-", (Literal(0), a)),)) else None
    if otherwise.name == "/" and by == _ZERO:
        return otherwise if there in tuple(_over_zero(a, b)) else None
    return None


def _over_zero(a: Expr, b: Expr) -> Iterator[Expr]:
    """What IEEE has for a number over zero, however the sign of -1 is read."""
    words = [Cast(Literal(text), "DOUBLE", False) for text in ("NaN", "-Infinity", "Infinity")]
    for below in (_BELOW, Literal(-1)):
        sign = Call("<", (Call("atan2", (b, below)), _ZERO))
        infinite = Call("*", (a, Call("case", (sign, words[1], words[2]))))
        yield Call("case", (Call("=", (a, _ZERO)), words[0], infinite))
