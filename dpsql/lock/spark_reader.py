"""Reads Spark SQL into the second lock's tree.

It stands apart since only the Spark extra uses it. The text is parsed anew in Spark's dialect, and nothing comes from the code
that wrote it. Some patterns of the Spark writer are read as what they compute, if all of their parts match:

* a sum in three parts of 21 or 22 bits: the sum; any other multiple or mask is refused;
* a column of a subquery with a condition on it above: QUALIFY;
* ``xxhash64(xxhash64(values, which are NULL) ^ salt)``: the secret hash;
* halves and quotients: integer division.

Every other listed function is treated as a function of its arguments with no other known property. A node, clause or type
that is not listed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.helper import ensure_list

from dpsql.late_dataclass import dataclass
from dpsql.lock import tree
from dpsql.lock.tree import (
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Literal,
    Order,
    Ref,
    Select,
    Window,
    integer,
    refuse,
)

_PARTS = sqlglot.parse_one(
    "CAST(SUM(CAST(x AS BIGINT) >> 42) AS DECIMAL(20, 0)) * 4398046511104 "
    "+ CAST(SUM((CAST(x AS BIGINT) >> 21) & 2097151) AS DECIMAL(20, 0)) * 2097152 "
    "+ CAST(SUM(CAST(x AS BIGINT) & 2097151) AS DECIMAL(20, 0))",
    read="spark",
)
"""A sum in three parts of 21 or 22 bits, which fit BIGINT for 2^41 rows."""
_PART = exp.DataType.build("DECIMAL(20, 0)", dialect="spark")
_TYPES = {
    "BIGINT": "BIGINT",
    "SMALLINT": "SMALLINT",
    "TINYINT": "TINYINT",
    "DOUBLE": "DOUBLE",
    "FLOAT": "FLOAT",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "NULL": "NULL",
    "INT": "INTEGER",
    "TIMESTAMPNTZ": "TIMESTAMP",
    "TEXT": "VARCHAR",
    "VOID": "NULL",
    **dict.fromkeys(("TIMESTAMPLTZ", "TIMESTAMPTZ"), "TIMESTAMP WITH TIME ZONE"),
}

Shape = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A function's name, the node's parts that are its arguments, and the parts that don't affect its value."""


def _shapes(parts: str, unsaid: str, names: dict[type[exp.Expr], str]) -> dict[type[exp.Expr], Shape]:
    """Return the shapes of several functions with alike nodes."""
    return {kind: (name, tuple(parts.split()), tuple(unsaid.split())) for kind, name in names.items()}


_ATTEMPTS = (exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply)
_CALLS = {
    **_shapes("this expression", "safe typed", {
        exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.IntDiv: "//", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">",
        exp.LTE: "<=", exp.GTE: ">=", exp.NullSafeEQ: "is not distinct from", exp.SafeAdd: "+", exp.SafeSubtract: "-",
        exp.SafeMultiply: "*", exp.Mod: "%", exp.DPipe: "||", exp.Atan2: "atan2", exp.Div: "/", exp.SafeDivide: "/",
        exp.Pow: "power", exp.And: "and", exp.Or: "or",
    }),
    **_shapes("this", "", {exp.Abs: "abs", exp.Rint: "round_even", exp.Floor: "floor", exp.Ceil: "ceil", exp.Not: "not"}),
    **_shapes("this expressions", "ignore_nulls is_nvl is_null", {
        exp.Least: "least", exp.Greatest: "greatest", exp.Coalesce: "coalesce",
    }),
    **_shapes("this low high", "", {exp.Between: "between"}),
    **_shapes("expressions", "safe coalesce", {exp.Concat: "||", exp.Tuple: "row"}),
    **_shapes("this decimals", "", {exp.Round: "round"}),
}  # fmt: skip
_IGNORED = "nulls_excluded deterministic big_int"
_AGGREGATES = {
    **_shapes("this", "", {exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.ArrayUniqueAgg: "list"}),
    **_shapes("this", _IGNORED, {exp.ArrayAgg: "list", exp.Mode: "mode", exp.Count: "count"}),
    **_shapes("this quantile", "", {exp.Quantile: "quantile_cont"}),
    **_shapes("this expression", "", {exp.ArgMax: "arg_max", exp.ArgMin: "arg_min"}),
}
_RANKS = _shapes("", "", {exp.RowNumber: "row_number", exp.DenseRank: "dense_rank", exp.Rank: "rank"})
_LOOKS = {
    **_shapes("this offset", "", {exp.Lag: "lag", exp.Lead: "lead"}),
    **_shapes("this offset", "", {exp.FirstValue: "first_value", exp.LastValue: "last_value"}),
}
_QUANTILES = {exp.PercentileCont: "quantile_cont", exp.PercentileDisc: "quantile_disc"}

Frame = tuple[str, str, tuple[Expr | None, Expr | None]]
PLAIN_FRAME: Frame = ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE", (None, None))
"""The frame of a window without an explicit one."""
_NAMED = {"pmod": "%", "shiftrightunsigned": ">>", "try_divide": "/", "concat": "||"}
"""Functions unknown to sqlglot, with the lock's names for them."""
_SPARK_NAMES = """
get octet_length size cbrt sha2 bit_count replace translate bit_length startswith endswith contains instr
unix_seconds unix_micros nullif sign signum log2 log10 date_add datediff weekday dayofyear monthname dayname radians degrees
sinh cosh tanh array_contains
"""
_UNKNOWN = frozenset(_SPARK_NAMES.split())
_PURE_CLASSES = """
ArraySize ArrayContains Array Transform Reduce Interval Paren TimestampTrunc DateTrunc DateDiff
TsOrDsAdd DateAdd LastDay TimeToStr Year Month Day Hour Minute Second Quarter DayOfWeek DayOfWeekIso DayOfMonth DayOfYear
Week WeekOfYear Dayname Monthname UnixSeconds UnixMicros TimeToUnix Pad Upper Lower Length BitLength ByteLength Trim
Substring Left Right Replace Translate Ascii Unicode StrPosition StartsWith EndsWith Contains MD5 MD5Digest SHA SHA2 ConcatWs
Sqrt Cbrt Exp Ln Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Degrees Radians Sign Pi BitwiseAnd BitwiseOr BitwiseXor
BitwiseRightShift BitwiseCount Nullif Is
"""
_PURE = frozenset(_PURE_CLASSES.split())
"""Functions of their arguments with no other known property, by sqlglot class. They have a result for all arguments, as
``tests/engines/test_spark_endings.py`` tests over the extremes of every type: mathematics gives NaN or infinity; parts of
texts and lists, and dates of the years that the engine lets through, have a value or NULL."""


def _is_total(node: exp.Expr) -> bool:
    """Return whether a function that fails for some arguments has others here."""
    match node:
        case exp.Bracket(expressions=[exp.Literal() as place], this=exp.Transform(this=given)):
            while isinstance(given, exp.Transform):
                given = given.this
            return place.name == "1" and isinstance(given, exp.Array) and bool(given.expressions)
        case (
            exp.TsOrDsToDate() | exp.TimeStrToTime()
        ):  # sqlglot writes them around the arguments of YEAR, DATE_FORMAT and others
            return not node.args.get("format") and (
                isinstance(node.this, exp.Cast) or isinstance(node.parent, exp.DateDiff)
            )
        case exp.ArraySort():
            return node.args.get("expression") is None  # no comparison of its own
        case exp.SplitPart():
            return (_place(node.args["part_index"]) or 0) != 0
        case exp.ArraySlice():
            start, length = (_place(node.args[key]) for key in ("start", "end"))
            return start is not None and start > 0 and length is not None and length >= 0
        case exp.Like(expression=exp.Literal() as pattern) | exp.ILike(expression=exp.Literal() as pattern):
            return re.fullmatch(r"(?s:[^\\]|\\[\\%_])*", pattern.name) is not None
        case exp.Round(this=exp.Cast(to=exp.DataType(this=exp.DType.DECIMAL) as to)):
            return _digits(to)[0] - _digits(to)[1] < 38 or not isinstance(node.args.get("decimals"), exp.Neg)
        case exp.Round():
            return not isinstance(node.args.get("decimals"), exp.Neg)
    return False


def _place(node: exp.Expr) -> int | None:
    """Return the value of an integer literal; None for other nodes."""
    negative = isinstance(node, exp.Neg)
    inner = node.this if negative else node
    value = integer(_constant(inner)) if isinstance(inner, exp.Literal) else None
    return -value if negative and value is not None else value


def _digits(kind: exp.Expr) -> tuple[int, ...]:
    """Return the digits of a decimal, and those after its point."""
    return tuple(int(digits.this.name) for digits in kind.expressions)


Paths = Mapping[str, tuple[str, ...]]
"""Full paths of the policy's tables, by the names of their views."""

CHOSEN = "dpsql_chosen"
_CLAUSES = (
    "with_",
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "distinct",
    "order",
    "limit",
)
_JOINS = {("", kind): "INNER" for kind in ("", "CROSS", "INNER")}
_JOINS |= {("LEFT", ""): "LEFT", ("RIGHT", ""): "RIGHT", ("FULL", ""): "OUTER"}
_JOINS |= {("LEFT", "SEMI"): "SEMI", ("LEFT", "ANTI"): "ANTI"}


def refuse_other_parts(node: exp.Expr, *known: str) -> None:
    """Refuse a node with other parts than these."""
    for key, value in node.args.items():
        if key not in known and value not in (None, False, []):
            refuse(f"{key} in {node.key}")


@dataclass
class _Reader:
    """Reads one text; arguments as in :func:`read_spark`."""

    salt: int | None
    paths: Paths

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr) -> tree.Query:
        if type(node) is exp.Union:
            refuse_other_parts(node, "this", "expression", "distinct")
            return tree.Union("UNION", (self.query(node.this), self.query(node.expression)))
        if not isinstance(node, exp.Select):
            refuse(f"a query of kind {node.key}")
        refuse_other_parts(node, *_CLAUSES)
        ctes = self.ctes(node)
        found = self.chosen(node)
        if found is not None:
            return found
        where, group, having, distinct, order, limit = map(node.args.get, _CLAUSES[4:])
        for clause, *said in ((distinct,), (group, "expressions"), (limit, "expression")):
            if clause is not None:
                refuse_other_parts(clause, *said)
        most = None if limit is None else integer(self.of(limit.expression))
        if limit is not None and most is None:
            refuse("a limit that is no number")
        items = tuple(map(self.item, node.expressions))
        if not items:
            refuse("a query without columns")
        source, kept = self.from_(node), self.maybe(where)
        groups, among = tuple(map(self.of, group.expressions if group else ())), self.maybe(having)
        ordered = tuple(_placed(one, items) for one in self.orders(order))
        return Select(items, source, ctes, kept, groups, among, None, distinct is not None, ordered, most)

    def ctes(self, node: exp.Select) -> tuple[tuple[str, tree.Query], ...]:
        with_ = node.args.get("with_")
        if with_ is None:
            return ()
        refuse_other_parts(with_, "expressions")
        found = []
        for cte in with_.expressions:
            refuse_other_parts(cte, "this", "alias")
            if cte.args["alias"].args.get("columns"):
                refuse("a CTE with a list of columns")
            if cte.alias.lower() in self.paths:
                refuse("a CTE that is called like a table")
            found.append((cte.alias, self.query(cte.this)))
        return tuple(found)

    def item(self, node: exp.Expr) -> tuple[str, Expr]:
        if not isinstance(node, exp.Alias):
            refuse("an output column without a name")
        return node.alias, self.of(node.this)

    def maybe(self, clause: exp.Expr | None) -> Expr | None:
        return None if clause is None else self.of(clause.this)

    def chosen(self, node: exp.Select) -> Select | None:
        """Read ``SELECT names FROM (SELECT ..., choice AS dpsql_chosen FROM ...) AS q WHERE dpsql_chosen``."""
        where = node.args.get("where")
        if where is None or not isinstance(where.this, exp.Column) or where.this.table:
            return None
        from_ = node.args.get("from_")
        refuse_other_parts(node, "expressions", "from_", "where")
        inner = from_.this if from_ is not None else None
        if where.this.name != CHOSEN or not isinstance(inner, exp.Subquery) or inner.alias != "q":
            refuse("a column that is not written with its relation")
        refuse_other_parts(inner, "this", "alias")
        match self.query(inner.this):
            case Select(
                (*items, (last, choice)),
                groups=(),
                having=None,
                qualify=None,
                distinct=False,
                order=(),
                limit=None,
            ) as below:
                names = [
                    c.name if isinstance(c, exp.Column) and not c.table else "" for c in node.expressions
                ]
                if last == CHOSEN and names == [name for name, _ in items]:
                    return replace(below, items=tuple(items), qualify=choice)
        refuse("a choice of another kind")

    # -- FROM -------------------------------------------------------------------------------------------------------

    def from_(self, node: exp.Select) -> tree.Source | None:
        from_ = node.args.get("from_")
        if from_ is None:
            return None
        refuse_other_parts(from_, "this")
        found = self.source(from_.this)
        for join in node.args.get("joins") or ():
            refuse_other_parts(join, "this", "on", "kind", "side")
            side, kind, on = join.side.upper(), join.kind.upper(), join.args.get("on")
            shape = _JOINS.get((side, kind))
            if shape is None or (on is None) != (kind == "CROSS"):
                refuse(f"a join {side} {kind}")
            condition = None if on is None else self.of(on)
            made = Join(found, self.source(join.this), shape, condition, False)
            found = nearest_of(made) or made
        return found

    def source(self, node: exp.Expr) -> tree.Source:
        given = node.args.get("alias")
        if given is None or not given.name:
            refuse("a relation without an alias")
        alias, columns = given.name, tuple(c.name for c in given.args.get("columns") or ())
        refuse_other_parts(node, "this", "alias")
        match node:
            case exp.Table(this=exp.Identifier()):
                if columns:
                    refuse("a table with a list of columns")
                return tree.Table(self.paths.get(node.name.lower(), (node.name,)), alias)
            case exp.Table(this=exp.Anonymous() as made):
                if str(made.this).lower() != "range" or len(columns) != 1:
                    refuse("a table function")
                return tree.Made("range", tuple(map(self.of, made.expressions)), alias, columns)
            case exp.Lateral(this=exp.Explode() as made) if type(made) is exp.Explode and len(columns) == 1:
                refuse_other_parts(made, "this")
                return tree.Made("unnest", (self.of(made.this),), alias, columns)
            case exp.Lateral(this=exp.Subquery() as looking) if not columns:
                refuse_other_parts(looking, "this")
                return Derived(self.query(looking.this), alias)
            case exp.Subquery():
                rows = self.rows(node.this)
                if rows is not None:
                    return tree.Values(rows, alias, columns)
                if columns:
                    refuse("a subquery with a list of columns")
                return Derived(self.query(node.this), alias)
        refuse(f"a relation of kind {node.key}")

    def rows(self, node: exp.Expr) -> tuple[tuple[Expr, ...], ...] | None:
        from_ = node.args.get("from_")
        if from_ is None or not isinstance(from_.this, exp.Values):
            return None
        refuse_other_parts(node, "expressions", "from_")
        refuse_other_parts(from_.this, "expressions")
        if len(node.expressions) != 1 or not isinstance(node.expressions[0], exp.Star):
            refuse("some columns of VALUES")
        refuse_other_parts(node.expressions[0])
        return tuple(tuple(map(self.of, row.expressions)) for row in from_.this.expressions)

    # -- expressions ------------------------------------------------------------------------------------------------

    def of(self, node: exp.Expr) -> Expr:
        """Read one expression, or refuse it if a part of it is unknown."""
        match node:
            case exp.Paren():
                return self.of(node.this)
            case exp.Column():
                refuse_other_parts(node, "this", "table")
                if not node.table or isinstance(node.this, exp.Star):
                    refuse("a column that is not written with its relation")
                return tree.Ref(node.table, node.name)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return _constant(node)
            case exp.Neg():
                return self._negated(node)
            case exp.Cast():
                return self.cast(node)
            case exp.Is(expression=exp.Null()):
                return Call("is null", (self.of(node.this),))
            case exp.Case():
                return self._case(node)
            case exp.In():
                refuse_other_parts(node, "this", "query", "expressions")
                child, query = self.of(node.this), node.args.get("query")
                if query is None:
                    return Call("in", (child, *map(self.of, node.expressions)))
                return tree.Subquery("ANY", self.query(query.this), child)
            case exp.Exists() | exp.Subquery():
                refuse_other_parts(node, "this")
                return tree.Subquery(
                    "EXISTS" if isinstance(node, exp.Exists) else "SCALAR", self.query(node.this)
                )
            case exp.Window():
                return self.window(node)
            case exp.AggFunc() | exp.Filter() | exp.WithinGroup():
                return self.aggregate(node)
        if type(node) not in _CALLS:
            return self._function(node)
        if isinstance(node, exp.Round) and not _is_total(node):
            refuse("a number that is rounded to tens, which may have no place in its type")
        made = self._called(node, _CALLS[type(node)])
        match made:
            case Call("not", (Call("is not distinct from", args),)):
                return Call("is distinct from", args)
            case Call("greatest", (x, Call("-", (Literal(integer=0), other)))) if x == other:
                return Call("abs", (x,))  # of a decimal
        return Call("try", (made,)) if isinstance(node, _ATTEMPTS) else made

    def _called(self, node: exp.Expr, shape: Shape) -> Call:
        name, parts, unsaid = shape
        refuse_other_parts(node, *parts, *unsaid)
        distinct = len(parts) == 1 and isinstance(node.this, exp.Distinct)
        if distinct:
            refuse_other_parts(node.this, "expressions")
            given = node.this.expressions
        else:
            given = [one for part in parts for one in ensure_list(node.args.get(part))]
        return Call(name, tuple(map(self.of, given)), distinct)

    def _case(self, node: exp.Case) -> Expr:
        refuse_other_parts(node, "ifs", "default")
        parts = [self.of(part) for one in node.args["ifs"] for part in (one.this, one.args["true"])]
        default = node.args.get("default")
        args = (*parts, Literal(None) if default is None else self.of(default))
        return _quotient(args) or Call("case", args)

    # -- aggregates and windows -------------------------------------------------------------------------------------

    def aggregate(self, node: exp.Expr) -> Call:
        """Read an aggregate of a group or of a window."""
        if isinstance(node, exp.Filter):
            refuse_other_parts(node, "this", "expression")
            return replace(self.aggregate(node.this), where=self.of(node.expression.this))
        if isinstance(node, exp.WithinGroup):
            refuse_other_parts(node, "this", "expression")
            (order,) = node.expression.expressions
            if type(node.this) not in _QUANTILES:
                refuse("WITHIN GROUP of something else")
            return Call(_QUANTILES[type(node.this)], (self.of(order.this), self.of(node.this.this)))
        if type(node) not in _AGGREGATES:
            refuse(f"the aggregate {node.key}")
        made = self._called(node, _AGGREGATES[type(node)])
        if made.distinct and len(made.args) != 1:
            refuse("an aggregate of several")
        if made.name == "sum":
            return self._sum(node, made)
        if made == Call("count", (Literal(1),)):
            return Call("count_star", ())
        return replace(made, distinct=True) if isinstance(node, exp.ArrayUniqueAgg) else made

    def _sum(self, node: exp.Expr, made: Call) -> Call:
        """Read a sum: of 38 digits, or of 64 bits, which must be proved to be enough."""
        (term,) = node.this.expressions if made.distinct else (node.this,)
        if isinstance(term, exp.Cast) and term.to.this == exp.DType.DECIMAL:
            digits = _digits(term.to)
            if digits[0] == 38:
                return replace(made, args=(self.of(term.this),)) if digits == (38, 0) else made
        return replace(made, most=(1 << 63) - 1)

    def orders(self, order: exp.Expr | None) -> tuple[tree.Order, ...]:
        """Read the parts of an ORDER BY."""
        if order is None:
            return ()
        refuse_other_parts(order, "expressions")
        found = []
        for item in order.expressions:
            refuse_other_parts(item, "this", "desc", "nulls_first")
            word = "DESCENDING" if item.args.get("desc") else "ASCENDING"
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            found.append(tree.Order(self.of(item.this), f"{word} NULLS_{nulls}"))
        return tuple(found)

    def window(self, node: exp.Window) -> Expr:
        """Read a window function and its frame."""
        refuse_other_parts(node, "this", "partition_by", "order", "over", "spec")
        inner, spec = node.this, node.args.get("spec")
        by = tuple(map(self.of, node.args.get("partition_by") or ()))
        if type(inner) in _RANKS and spec is not None:
            refuse("a frame of numbers")
        shape = {**_RANKS, **_LOOKS}.get(type(inner))
        if shape is None and not isinstance(inner, exp.AggFunc):
            refuse("a window function")
        made = self.aggregate(inner) if shape is None else self._called(inner, shape)
        if made.most is not None:
            refuse("a sum of 64 bits in a window")
        frame = PLAIN_FRAME if spec is None else self._frame(spec)
        order = self.orders(node.args.get("order"))
        return tree.Window(made.name, made.args, by, order, *frame, plain=not made.distinct)

    def _frame(self, spec: exp.Expr) -> Frame:
        refuse_other_parts(spec, "kind", "start", "start_side", "end", "end_side")
        unit = str(spec.args["kind"]).upper()
        words: list[str] = []
        ends: list[Expr | None] = []
        for key in ("start", "end"):
            given, side = spec.args[key], str(spec.args.get(f"{key}_side") or "").upper()
            if isinstance(given, exp.Expr):
                word = f"EXPR_{side}_{unit}"
            else:
                word = f"CURRENT_ROW_{unit}" if given == "CURRENT ROW" else f"{given}_{side}".upper()
            words.append(word)
            ends.append(self.of(given) if isinstance(given, exp.Expr) else None)
        return words[0], words[1], (ends[0], ends[1])

    # -- functions --------------------------------------------------------------------------------------------------

    def _function(self, node: exp.Expr) -> Expr:
        """Read a function without rules of its own; its identity includes all literal parts of the node."""
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
            refuse_other_parts(node, "this", "expressions")
            if name == "xxhash64":
                return self._hash(node)
            if name in _NAMED:
                return Call(_NAMED[name], tuple(map(self.of, node.expressions)))
            if name not in _UNKNOWN:
                refuse(f"an expression {name}")
            return Call(tree.OPAQUE, tuple(map(self.of, node.expressions)), names=(name,))
        if isinstance(node, exp.Struct):
            return self._struct(node)
        if type(node).__name__ not in _PURE and not _is_total(node):
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
        return Call(tree.OPAQUE, tuple(args), names=tuple(said))

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

    def _hash(self, node: exp.Anonymous) -> Expr:
        """Read a hash of values, or of their hash and the salt."""
        given = node.expressions
        inner = given[0].unnest()
        if len(given) == 1 and isinstance(inner, exp.BitwiseXor):
            salt = self.of(inner.expression)
            if self.salt is not None and salt == Literal(self.salt):
                salt = tree.Parameter("salt")
            return Call("hash", (Call("xor", (self.of(inner.this), salt)),))
        return Call("hash", tuple(map(self.of, given)))

    # -- casts ------------------------------------------------------------------------------------------------------

    def cast(self, node: exp.Expr) -> Expr:
        """Read a cast, or a typed number."""
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
            value = _constant(inner)
            return value if kind == "BIGINT" else Cast(value, _TYPES[kind], False)
        if isinstance(inner, exp.Rint) and attempt:  # DuckDB's cast of a double rounds this way
            inner = inner.this
        if isinstance(inner, exp.Window) and type(inner.this) in _RANKS and kind == "BIGINT" and not attempt:
            return self.window(inner)
        return Cast(self.of(inner), _TYPES[kind], attempt)

    def _decimal(self, to: exp.Expr, inner: exp.Expr, attempt: bool) -> Expr:
        digits = _digits(to)
        if isinstance(inner, exp.Literal) and inner.is_string and not attempt:  # 2BD
            exact = Fraction(inner.name)
            return Literal(exact.numerator if exact.denominator == 1 else exact)
        if digits != (38, 0):
            return Cast(self.of(inner), "DECIMAL", attempt, str(digits))
        found = None if attempt else self._total(inner)
        if found is not None:
            return found
        made = self.of(inner)
        return made if integer(made) is not None else Cast(made, "HUGEINT", attempt)

    def _total(self, node: exp.Expr) -> Expr | None:
        """Read a sum in three parts, or half of a number, inside a cast to 38 digits."""
        if isinstance(node, exp.Sum | exp.Filter):
            return self.of(node)
        last = node.expression if isinstance(node, exp.Add) else None
        if isinstance(last, exp.Cast) and last.to == _PART:
            low = last.this
            where = low.expression if isinstance(low, exp.Filter) else None
            x = (low.this if where is not None else low).this.unnest().this.this
            parts = _PARTS.transform(lambda part: x.copy() if isinstance(part, exp.Column) else part)
            for added in list(parts.find_all(exp.Sum)):
                added.replace(_filtered(added.copy(), where))
            if self.of(node) != self.of(parts):
                refuse("a sum of other parts")
            return replace(self.aggregate(_filtered(exp.Sum(this=x.copy()), where)), most=None)
        taken = node.this.unnest() if isinstance(node, exp.Mul) else None
        if isinstance(taken, exp.Sub) and isinstance(taken.expression.unnest(), exp.Mod):
            number, two = self.of(taken.this), Literal(2)
            even = Call("-", (number, Call("%", (number, two))))
            if self.of(node) != Call("*", (even, Literal(Fraction(1, 2)))):
                refuse("a part of a number")
            return Call("//", (number, two))
        return None


def _filtered(node: exp.Expr, where: exp.Expr | None) -> exp.Expr:
    return node if where is None else exp.Filter(this=node, expression=where.copy())


def _lambda(node: exp.Lambda) -> str:
    """Return the text of a lambda, or refuse one that reads more than its arguments or has an unknown function."""
    for part in node.walk():
        if isinstance(part, exp.Column | exp.Query | exp.Anonymous | exp.AggFunc | exp.Star | exp.Parameter):
            refuse("a function that looks at more than its arguments")
    return node.sql("spark")


def _constant(node: exp.Expr) -> Literal:
    if isinstance(node, exp.Null):
        return Literal(None)
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this))
    text = node.name
    if node.args.get("is_string"):
        return Literal(text)
    return Literal(int(text) if text.isdigit() else float(text) if "e" in text.lower() else Fraction(text))


_ZERO, _BELOW = Cast(Literal(0), "DOUBLE", False), Cast(Literal(-1), "DOUBLE", False)


def _quotient(args: tuple[Expr, ...]) -> Expr | None:
    """Read a division that the writer guards where Spark would fail: the least integer by -1, any number by zero."""
    match args:
        case (Call("=", (b, by)), there, Call("//" | "/" as name, (a, below)) as divided) if b == below:
            if name == "//" and by == Literal(-1) and there == Call("try", (Call("-", (Literal(0), a)),)):
                return divided
            if name == "/" and by == _ZERO and there in _over_zero(a, b):
                return divided
    return None


def _over_zero(a: Expr, b: Expr) -> Iterator[Expr]:
    """Yield the IEEE results of a number divided by zero, for both spellings of -1."""
    words = [Cast(Literal(text), "DOUBLE", False) for text in ("NaN", "-Infinity", "Infinity")]
    for below in (_BELOW, Literal(-1)):
        sign = Call("<", (Call("atan2", (b, below)), _ZERO))
        infinite = Call("*", (a, Call("case", (sign, words[1], words[2]))))
        yield Call("case", (Call("=", (a, _ZERO)), words[0], infinite))


def read_spark(text: str, paths: Paths, salt: int | None = None) -> tree.Query:
    """Read a query in Spark SQL; ``paths``: of the tables, by their names in the text; ``salt``: its secret number."""
    try:
        parsed = sqlglot.parse_one(text, read="spark")
        return _Reader(salt, {name.lower(): path for name, path in paths.items()}).query(parsed)
    except (SqlglotError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        refuse("a text that can't be read")


def _placed(order: Order, items: Sequence[tuple[str, Expr]]) -> Order:
    place = integer(order.by)
    if place is None:
        return order
    if not 1 <= place <= len(items):
        refuse("a place that is not there")
    return Order(items[place - 1][1], order.how)


NEXT = "dpsql_next"
_RISING = "ASCENDING NULLS_FIRST"
_FOLLOWED = {"lead": {">=": "<", ">": "<="}, "lag": {"<=": ">", "<": ">="}}
"""For each window, the comparison with a row's own t, and the comparison with the next t that goes with it."""


def nearest_of(join: Join) -> Join | None:
    """Read an ASOF join, which Spark lacks: ``x >= t AND (next IS NULL OR x < next)``.

    ``next`` is the following t among the rows with equal other columns, so each row joins at most one.
    """
    match join.right:
        case Derived(Select((*items, (name, Window(args=(at,)) as window)), source) as below, alias) if (
            name == NEXT
            and join.kind in ("INNER", "LEFT")
            and source is not None
            and not isinstance(source, Join)
        ):
            pass
        case _:
            return None
    inside, words = source.alias, _FOLLOWED.get(window.name)
    if below != Select(below.items, source) or any(item != Ref(inside, name) for name, item in items):
        return None
    plain = Window(window.name, window.args, window.partition, (Order(at, _RISING),), *PLAIN_FRAME)
    if words is None or window != plain:
        return None
    keys = [_moved(part, inside, alias) for part in window.partition]
    following = Ref(alias, NEXT)
    match tree.conjuncts(join.on):
        case [*equal, Call(comparison, (own, other)) as closest, before] if comparison in words:
            pass
        case _:
            return None
    bounded = Call("or", (Call("is null", (following,)), Call(words[comparison], (own, following))))
    if other != _moved(at, inside, alias) or before != bounded:
        return None
    sides = [pair.args[0] for pair in equal if isinstance(pair, Call) and pair.name == "="]
    if len(keys) != len(equal) or equal != [Call("=", pair) for pair in zip(sides, keys, strict=False)]:
        return None
    if any(_names(side, alias) for side in (own, *sides)):
        return None
    rows = Derived(Select(tuple(items), source), alias)
    return Join(join.left, rows, join.kind, Call("and", (*equal, closest)), True)


def _names(node: Expr, alias: str) -> bool:
    """Return whether an expression reads a relation, or may read it in a subquery or window."""
    return tree.looks_beyond(node) or any(ref.table == alias for ref in tree.refs(node))


def _moved(node: Expr, old: str, new: str) -> Expr:

    def move(ref: Ref) -> Ref:
        return Ref(new, ref.name) if ref.table == old else refuse("a key of something else")

    return tree.replace_columns(node, move, "a key of another kind")
