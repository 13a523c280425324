"""Windows over the rows of one unit; refusals of what would choose private rows by other units' rows.

Window functions below the aggregation, over the rows of one privacy unit: OVER (PARTITION BY the unit ORDER BY ...).

What such a window gives a row is a function of its unit's rows alone, so the rows still belong to their units. The unit's
hidden column is always part of the partition, whatever key stood for it. Ties are broken by all columns: which of two rows
comes first would else be up to their places in the table, which the rows of others shift.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.expressions.coercion import ORDERED_KINDS, require_kind
from dpsql.sql.expressions.fixed_point import write_canonical
from dpsql.sql.expressions.types import BIGINT, DOUBLE, TEXT, Bounds, Typed
from dpsql.sql.normalize import Env
from dpsql.sql.parse.dialect import bind_error, expression_of, privacy_error, span_of, to_sql
from dpsql.sql.parse.statements import PIVOT_HINT
from dpsql.sql.relations.catalog import Binder
from dpsql.sql.relations.relation import From, Names, column


def refuse_samples(node: exp.Expr) -> None:
    """Refuse samples, PIVOT and the like of a FROM item that is private."""
    for key in ("sample", "pivots", "laterals", "joins"):
        if node.args.get(key):
            what = {"sample": "a sample can't", "pivots": "PIVOT and UNPIVOT can't"}.get(key, "this can't")
            hint = "aggregate all of them." if key != "pivots" else PIVOT_HINT
            raise privacy_error(node, f"{what} be taken of private rows.", hint)


def refuse_cuts(query: exp.Expr) -> None:
    """Refuse LIMIT and OFFSET behind private rows in parentheses."""
    cut = query.args.get("limit") or query.args.get("offset")
    if cut is not None:
        hint = "aggregate first; the answer may be ordered and cut freely."
        raise privacy_error(cut, "private rows have no order to cut by.", hint, around=query)


def refuse_clauses(select: exp.Select, *clauses: str) -> None:
    """Refuse clauses that would choose among rows of several units."""
    for clause in clauses:
        if found := select.args.get(clause.lower()):
            what = f"{clause} below the aggregation would choose rows by other people's rows."
            hint = "aggregate first; the answer may be ordered and cut freely."
            raise privacy_error(found, what, hint, around=select)


def refuse_row_choice(select: exp.Select) -> None:
    """Refuse what chooses rows by other rows, below the aggregation."""
    for key, what in (
        ("sample", "USING SAMPLE"),
        ("cluster", "CLUSTER BY"),
        ("windows", "WINDOW"),
        ("locks", "FOR"),
    ):
        if select.args.get(key):
            hint = {"sample": "aggregate all of them.", "windows": "write the window after OVER."}.get(key)
            found = select.args[key]
            place = span_of(found[0] if isinstance(found, list) else found)
            what = f"{what} can't be used on private rows."
            raise PrivacyError(what, span=place or span_of(select.expressions[0]), hint=hint)


_SEEN = "dpsql_seen"
_PLACES: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
_TAKEN: dict[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead", exp.FirstValue: "first_value"}
_ADDED: dict[type[exp.Expr], str] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max",
}  # fmt: skip
_BY_PLACE: tuple[type[exp.Expr], ...] = (exp.RowNumber, *_TAKEN)
"""Functions whose answer depends on which of two rows that tie comes first."""
WINDOW_FUNCTIONS = ", ".join([*_PLACES.values(), *_TAKEN.values(), *_ADDED.values()])


@dataclass
class Windows:
    """The windows of one SELECT. They are read in a query below it: some functions must stand in TRY, and no window may."""

    binder: Binder
    bound: From
    env: Env
    made: dict[str, exp.Expr] = field(default_factory=dict)

    def read(self, node: exp.Expr) -> tuple[exp.Expr, Names]:
        """Return the expression with names in place of its windows, and the scope that knows these.

        Raises:
            PrivacyError: a window over rows of several units, or of a kind that is not known. BindError: names or types.
        """
        names = self.bound.names
        if node.find(exp.Window) is None:
            return node, names
        holder = exp.Paren(this=node.copy())
        extra = dict(names.extra)
        for window in list(holder.find_all(exp.Window)):
            if window.find_ancestor(exp.Window, exp.Query) is not None:
                continue
            key = self.binder.name("window")
            typed = _own(self.binder, window, self.bound, self.env)
            self.made[key] = typed.node
            extra[key] = replace(typed, node=column(key, _SEEN))
            stand_in = exp.column(key)
            span = span_of(window)
            if span:
                stand_in.this.meta.update(start=span[0], end=span[1] - 1)
            window.replace(stand_in)
        inner: exp.Expr = holder.this
        return inner, replace(names, extra=extra)

    def below(self, query: exp.Select, where: exp.Expr | None) -> exp.Select:
        """Return the query over one that reads the windows, and the columns that it needs itself.

        ``where`` is the condition that rows meet after their windows are known.
        """
        if not self.made:
            return query if where is None else query.where(where, copy=False)
        aliases = {relation.name for relation in self.bound.relations}
        inner, outer = exp.Select(), exp.Select(expressions=query.expressions)
        if where is not None:
            outer.where(where, copy=False)
        carried: dict[tuple[str, str], str] = {}
        for node in list(outer.find_all(exp.Column)):
            if node.table not in aliases:
                continue
            name = carried.setdefault((node.table, node.name), f"b{len(carried)}")
            node.replace(column(name, _SEEN))
        for (table, name), shown in carried.items():
            inner.select(exp.alias_(column(name, table), shown, quoted=True), copy=False)
        for key, made in self.made.items():
            inner.select(exp.alias_(made, key, quoted=True), copy=False)
        for key in ("from_", "joins", "where"):
            inner.set(key, query.args.get(key))
        return outer.from_(inner.subquery(exp.to_identifier(_SEEN, quoted=True), copy=False), copy=False)


def is_partitioned_by_unit(window: exp.Expr, bound: From) -> bool:
    """Return whether all rows of a partition belong to one unit, by what the policy declares."""
    found = [bound.names.known(node) for node in window.args.get("partition_by") or []]
    return bound.unit is not None and any(f is not None and (f.is_unit or f.anchors) for f in found)


def keeps_first_of_each_unit(qualify: exp.Expr, bound: From) -> bool:
    """``row_number() OVER (PARTITION BY unit ...) = 1``: one row of each unit."""
    if not isinstance(qualify, exp.EQ) or not isinstance(qualify.this, exp.Window):
        return False
    window, one = qualify.this, qualify.expression
    if not isinstance(window.this, exp.RowNumber) or not isinstance(one, exp.Literal) or one.name != "1":
        return False
    found = [bound.names.known(node) for node in window.args.get("partition_by") or []]
    return bool(found) and all(f is not None and f.is_unit and not f.optional for f in found)


def find_unit_column(bound: From) -> str | None:
    """Return the unit's column as the analyst may write it."""
    known = sorted(
        (f for _, f in bound.names.fields() if f.is_unit or f.anchors), key=lambda f: not f.is_unit
    )
    return known[0].name if known else None


def _own(binder: Binder, window: exp.Window, bound: From, env: Env) -> Typed:
    if not is_partitioned_by_unit(window, bound):
        unit = find_unit_column(bound) if bound.unit is not None else None
        raise privacy_error(
            window,
            "a window function below the aggregation mixes the rows of several units.",
            f"write OVER (PARTITION BY {unit} ...), or aggregate first; windows may follow."
            if unit is not None
            else "aggregate first; windows may follow.",
        )
    function, where = window.this, None
    if isinstance(function, exp.Filter):
        where, function = function.expression.this, function.this
    name = {**_PLACES, **_TAKEN, **_ADDED}.get(type(function))
    if name is None or (where is not None and type(function) not in _ADDED):
        what = function.sql_name().lower() if isinstance(function, exp.Func) else "this window function"
        what = f"{what} is not known over private rows."
        raise privacy_error(window, what, f"those of one unit take {WINDOW_FUNCTIONS}.")
    text, typed = _call(binder, function, name, bound, env)
    if where is not None:
        condition = binder.expression(where, bound.names, env)
        require_kind(condition, ("BOOLEAN",), "a condition is needed")
        text += f" FILTER (WHERE {to_sql(condition.node)})"
    text += f" OVER ({_over(binder, window, function, bound, env)})"
    return replace(typed, node=expression_of(f"CAST({text} AS DOUBLE)" if name == "sum" else text))


def _call(binder: Binder, function: exp.Expr, name: str, bound: From, env: Env) -> tuple[str, Typed]:
    """Return the call in SQL, and what it gives."""
    most = None if bound.max_rows is None else Fraction(bound.max_rows)
    stand_in = exp.Null()
    if type(function) in _PLACES:
        return f"{name}()", Typed(stand_in, BIGINT, Bounds(Fraction(1), most), nullable=False)
    counted = Typed(stand_in, BIGINT, Bounds(Fraction(0), most), nullable=False)
    argument = function.this
    if name == "count" and (argument is None or argument.is_star):
        return "count(*)", counted
    if not isinstance(argument, exp.Expr) or isinstance(argument, exp.Distinct) or function.expressions:
        raise privacy_error(function, f"{name} takes one value here.")
    inner = binder.expression(argument, bound.names, env)
    own = to_sql(inner.node)
    if name == "count":
        return f"count({own})", counted
    require_kind(inner, ORDERED_KINDS, f"{name} takes a value with an order")
    if type(function) in _TAKEN:
        return _neighbour(function, name, own, inner)
    if name in ("min", "max"):
        own = write_canonical(inner, argument)
        return f"{name}({own})", Typed(stand_in, inner.type, inner.bounds, nullable=True)
    return _total(function, name, own, inner, most)


def _neighbour(function: exp.Expr, name: str, own: str, inner: Typed) -> tuple[str, Typed]:
    offset, default = function.args.get("offset"), function.args.get("default")
    if default is not None:
        what = f"{name} takes no default here."
        raise bind_error(default, what, f"write COALESCE({name}(...) OVER (...), ...).")
    place = ""
    if offset is not None:
        if not isinstance(offset, exp.Literal) or not offset.name.isdigit() or int(offset.name) > 1_000_000:
            raise bind_error(offset, "the distance must be a literal whole number.")
        place = f", {int(offset.name)}"
    return f"{name}({own}{place})", Typed(exp.Null(), inner.type, inner.bounds, nullable=True)


def _total(function: exp.Expr, name: str, own: str, inner: Typed, most: Fraction | None) -> tuple[str, Typed]:
    """Return a sum or a mean, of numbers that add up to the same in any order."""
    small = inner.type.kind == "INTEGER" and inner.type.sql not in ("HUGEINT", "UHUGEINT", "UBIGINT")
    decimal = inner.type.kind == "DECIMAL" and sum(inner.type.digits) <= 18
    if not (small or decimal):
        raise privacy_error(
            function,
            f"{name} over a window takes whole numbers or DECIMAL(18,...) here: sums of floats depend on their order.",
            "cast the value, as in x::DECIMAL(18,4), or use GROUP BY.",
        )
    bounds = inner.bounds
    if name == "sum":
        known = bounds is not None and bounds.bounded and most is not None
        bounds = bounds * Bounds(Fraction(0), most) if known and bounds is not None else None
    return f"{name}({own})", Typed(exp.Null(), DOUBLE, bounds, nullable=True)


def _over(binder: Binder, window: exp.Window, function: exp.Expr, bound: From, env: Env) -> str:
    assert bound.unit is not None
    by = [to_sql(bound.unit)]
    by += [
        to_sql(binder.expression(node, bound.names, env).node)
        for node in window.args.get("partition_by") or []
    ]
    order = []
    for item in window.args["order"].expressions if window.args.get("order") is not None else ():
        typed = binder.expression(item.this, bound.names, env)
        require_kind(typed, ORDERED_KINDS, "rows are ordered by values with an order")
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        order.append(f"{to_sql(typed.node)} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}")
    frame = _frame(window)
    if isinstance(function, _BY_PLACE) or frame:
        order += _ties(bound)
    text = f"PARTITION BY {', '.join(by)}"
    return text + (f" ORDER BY {', '.join(order)}" if order else "") + frame


def _frame(window: exp.Window) -> str:
    spec = window.args.get("spec")
    if spec is None:
        return ""
    ends = []
    for key in ("start", "end"):
        end, side = spec.args.get(key), spec.args.get(f"{key}_side")
        text = end if isinstance(end, str) else end.name if isinstance(end, exp.Literal) else None
        ends.append(None if text is None else f"{text.upper()} {side.upper() if side else ''}".strip())
    known = all(
        end is None or end.split()[0] in ("UNBOUNDED", "CURRENT") or end.split()[0].isdigit() for end in ends
    )
    if (
        str(spec.args.get("kind") or "").upper() != "ROWS"
        or not known
        or spec.args.get("exclude")
        or ends[0] is None
    ):
        hint = "write ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW, or whole numbers of rows."
        raise privacy_error(window, "such a frame is not known over private rows.", hint)
    return f" ROWS BETWEEN {ends[0]} AND {ends[1] or 'CURRENT ROW'}"


def _ties(bound: From) -> list[str]:
    """Return all columns, so that rows that still tie are the same; where equal values may look different, as text, and of a
    float, whose two zeros and NaNs have signs, by its sign besides.
    """
    out = []
    for _, f in bound.names.fields():
        kind = f.typed.type
        if kind.kind == "OTHER":
            continue
        text = to_sql(f.typed.node)
        if kind.kind == "DOUBLE":
            out += [text, f"signbit({text})"]
        else:
            out.append(f"CAST({text} AS {TEXT.sql})" if kind.two_faced else text)
    return out
