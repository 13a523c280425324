"""Windows over the rows of one unit, below the aggregation: OVER (PARTITION BY the unit ORDER BY ...).

Such a window's value is a function of its unit's rows alone, so the rows still belong to their units. The unit's hidden
column is always part of the partition, whatever key represents it. All columns break ties: otherwise the order of two
rows would depend on their places in the table, which others' rows shift. Clauses that would choose private rows by
other units' rows are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.public_statement import Env
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import From, Names, asked_column, column, write_period
from dpsql.binding.values.coercion import COMPARED_KINDS, find_common_order, meet, refuse_order, require_kind
from dpsql.binding.values.fixed_point import (
    bound_any_sum,
    choose_fine_steps,
    is_added_exactly,
    make_canonical,
    snap_to_decimal,
)
from dpsql.binding.values.sql_types import (
    BIGINT,
    DOUBLE,
    HUGEINT,
    SMALL_INTEGERS,
    TEXT,
    TIMESTAMP,
    Bounds,
    Typed,
    decimal,
    make_cast,
    unite_bounds,
)
from dpsql.binding.values.temporal import bind_interval
from dpsql.binding.values.total_expressions import make_total
from dpsql.catalogue.date_units import UNIT_MONTHS
from dpsql.catalogue.row_names import SAMPLE_HINT
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import (
    MOVING_CLASSES,
    bind_error,
    name_called,
    privacy_error,
    stand_in,
    to_sql,
)
from dpsql.late_dataclass import dataclass

PIVOT_HINT = "aggregate in a subquery first, and pivot its answer."


def refuse_samples(node: exp.Expr) -> None:
    """Refuse samples, PIVOT and similar clauses of a private FROM item."""
    for key in ("sample", "pivots", "laterals", "joins"):
        if node.args.get(key):
            what = {"sample": "a sample can't", "pivots": "PIVOT and UNPIVOT can't"}.get(key, "this can't")
            hint = SAMPLE_HINT if key != "pivots" else PIVOT_HINT
            raise privacy_error(node, f"{what} be taken of private rows.", hint)


def refuse_cuts(query: exp.Expr) -> None:
    """Refuse LIMIT and OFFSET after private rows in parentheses."""
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


_CHOICES = {
    "sample": ("USING SAMPLE", SAMPLE_HINT),
    "cluster": ("CLUSTER BY", None),
    "windows": ("WINDOW", "write the window after OVER."),
    "locks": ("FOR", None),
}


def refuse_row_choice(select: exp.Select) -> None:
    """Refuse clauses below the aggregation that choose rows by other rows."""
    for key, (clause, hint) in _CHOICES.items():
        if found := select.args.get(key):
            place = found[0] if isinstance(found, list) else found
            what = f"{clause} can't be used on private rows."
            raise privacy_error(
                place,
                what,
                hint,
                around=select.expressions[0] if select.expressions else select.args["from_"],
            )


_SEEN = "dpsql_seen"
_PLACES = (exp.RowNumber, exp.Rank, exp.DenseRank)
_SHARES = (exp.PercentRank, exp.CumeDist)
_NEIGHBOURS = (exp.Lag, exp.Lead)
_TAKEN = (*_NEIGHBOURS, exp.FirstValue, exp.LastValue, exp.NthValue)
_BY_PLACE = (exp.RowNumber, exp.Ntile, *_TAKEN)
"""Functions whose answer depends on the order of tied rows."""
_KNOWN: tuple[type[exp.Func], ...] = (*_PLACES, exp.Ntile, *_SHARES, *_TAKEN, *MOVING_CLASSES)
WINDOW_FUNCTIONS = ", ".join(kind.sql_name().lower() for kind in _KNOWN)
_MOST_PLACES = 1_000_000
"""The farthest neighbour, and the most parts of NTILE."""


@dataclass
class Windows:
    """The windows of one SELECT, computed in a query below it: some functions must be in TRY, which allows no window."""

    binder: Binder
    bound: From
    env: Env
    made: dict[str, exp.Expr] = field(default_factory=dict)
    steps: float | None = None
    """The steps per unit of the grid on which the last window adds doubles; None if it doesn't."""

    def read(self, node: exp.Expr) -> tuple[exp.Expr, Names]:
        """Return the expression with names in place of its windows, and the scope of these names.

        Raises:
            PrivacyError: a window over rows of several units, or of an unknown kind.
            BindError: names or types don't fit.
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
            typed = self._own(window)
            self.made[key] = typed.node
            seen = column(key, _SEEN)
            extra[key] = replace(
                typed, node=seen if self.steps is None else self._on_grid(window, key, typed)
            )
            window.replace(stand_in(key, window))
        inner: exp.Expr = holder.this
        return inner, replace(names, extra=extra)

    def below(self, query: exp.Select, where: exp.Expr | None) -> exp.Select:
        """Return the query over a subquery with its windows and needed columns; ``where`` applies after the windows."""
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
            inner.append("expressions", exp.alias_(column(name, table), shown, quoted=True))
        for key, made in self.made.items():
            inner.append("expressions", exp.alias_(made, key, quoted=True))
        for key in ("from_", "joins", "where"):
            inner.set(key, query.args.get(key))
        return outer.from_(inner.subquery(exp.to_identifier(_SEEN, quoted=True), copy=False), copy=False)

    def _value(self, node: exp.Expr, *kinds: str, why: str = "") -> Typed:
        """Return a value of a row over fresh nodes, of one of these kinds if any are given."""
        typed = self.binder.expression(node, self.bound.names, self.env)
        if kinds:
            require_kind(typed, kinds, why)
        return replace(typed, node=typed.node.copy())

    def _own(self, window: exp.Window) -> Typed:
        if not is_partitioned_by_unit(window, self.bound):
            unit = _list_unit_columns(self.bound) if self.bound.unit is not None else []
            what = "a window function below the aggregation mixes the rows of several units."
            hint = "aggregate first; windows may follow."
            if unit:
                apart = window.copy()
                apart.set("partition_by", [*unit, *(apart.args.get("partition_by") or [])])
                hint = f"write {to_sql(apart)}, or {hint}"
                ordered = window.args.get("order")
                if (
                    isinstance(window.this, exp.Ntile | exp.PercentRank | exp.CumeDist)
                    and ordered is not None
                ):
                    by = to_sql(ordered.expressions[0].this)
                    hint = (
                        f"release the ends first, as in SELECT QUANTILE_CONT({by}, 0.5), and group by CASE WHEN {by} < "
                        f"end THEN 1 ELSE 2 END; for each person's own rows, write {to_sql(apart)}."
                    )
            raise privacy_error(window, what, hint)
        function, where = window.this, None
        if isinstance(function, exp.Filter):
            where, function = function.expression.this, function.this
        skips = isinstance(function, exp.IgnoreNulls) and isinstance(function.this, _TAKEN)
        if skips or isinstance(function, exp.RespectNulls):
            function = function.this
        self.steps = None
        if type(function) not in (_KNOWN if where is None else MOVING_CLASSES):
            what = name_called(function) if isinstance(function, exp.Func) else "this window function"
            what = f"{what} is not supported over private rows."
            raise privacy_error(window, what, f"those of one unit take {WINDOW_FUNCTIONS}.")
        typed = self._call(function, function.sql_name().lower())
        node: exp.Expr = exp.IgnoreNulls(this=typed.node) if skips else typed.node
        if where is not None:
            condition = self._value(where, "BOOLEAN", why="a condition is needed").node
            node = exp.Filter(this=node, expression=exp.Where(this=condition))
        node = self._over(window, node, isinstance(function, _BY_PLACE))
        as_double = isinstance(function, exp.Sum) and typed.type == DOUBLE and self.steps is None
        return replace(typed, node=exp.cast(node, "DOUBLE") if as_double else node)

    def _call(self, function: exp.Expr, name: str) -> Typed:
        """Return the function over a value that can't fail."""
        rows = self.bound.most_rows
        most = None if rows is None else Fraction(rows)
        made, argument = function.copy(), function.this
        if isinstance(function, _PLACES):
            return Typed(type(function)(), BIGINT, Bounds(Fraction(1), most), nullable=False)
        if isinstance(function, _SHARES):
            return Typed(type(function)(), DOUBLE, Bounds(Fraction(0), Fraction(1)), nullable=False)
        if isinstance(function, exp.Ntile):
            parts = _read_places(argument, "the number of parts", function)
            return Typed(made, BIGINT, Bounds(Fraction(1), Fraction(parts)), nullable=False)
        counted = Typed(made, BIGINT, Bounds(Fraction(0), most), nullable=False)
        if isinstance(function, exp.Count) and (argument is None or argument.is_star):
            return replace(counted, node=exp.Count(this=exp.Star()))
        if not isinstance(argument, exp.Expr) or isinstance(argument, exp.Distinct) or function.expressions:
            raise privacy_error(function, f"{name} takes one value here.")
        inner = self._value(argument)
        made.set("this", inner.node)
        if isinstance(function, exp.Count):
            return counted
        require_kind(inner, COMPARED_KINDS, f"{name} takes a value with an order")
        if isinstance(function, _NEIGHBOURS):
            return self._neighbour(function, made, inner, name)
        if isinstance(function, exp.NthValue):
            _read_places(function.args.get("offset"), "the place", function)
        elif isinstance(function, exp.Min | exp.Max):
            refuse_order([inner], argument)
            made.set("this", make_canonical(inner, argument))
        elif not isinstance(function, _TAKEN):
            self.steps = choose_fine_steps(inner.bounds) if inner.type.kind == "DOUBLE" else None
            bounds = _bounds_of_total(function, name, inner, most, self.steps is not None)
            if self.steps is not None:  # exact integers: a sum of floats would depend on their order
                step = exp.Literal.number(repr(self.steps))
                scaled = exp.Mul(this=exp.cast(inner.node, "DOUBLE"), expression=step)
                made = exp.Sum(this=make_cast(scaled, BIGINT, trying=True))
                return Typed(made, DOUBLE, bounds, nullable=True)
            if isinstance(function, exp.Sum) and inner.type.kind == "INTEGER":
                return Typed(made, HUGEINT, bounds, reach=bound_any_sum(inner), nullable=True)
            if isinstance(function, exp.Sum) and is_added_exactly(inner.type):
                return Typed(made, decimal(38, inner.type.digits[1]), bounds, nullable=True)
            return Typed(made, DOUBLE, bounds, nullable=True)
        return Typed(made, inner.type, inner.bounds, nullable=True, order=inner.order)

    def _neighbour(self, function: exp.Expr, made: exp.Expr, inner: Typed, name: str) -> Typed:
        """Return LAG or LEAD, with its default, if any, in a common type."""
        offset, default = function.args.get("offset"), function.args.get("default")
        if offset is not None:
            _read_places(offset, "the distance", function, least=0)
        if default is None:
            return Typed(made, inner.type, inner.bounds, nullable=True, order=inner.order)
        other = self._value(default)
        met = meet((inner, other), name)
        made.set("this", met.nodes[0])
        made.set("default", met.nodes[1])
        bounds = unite_bounds((inner.bounds, other.bounds))
        return Typed(made, met.type, bounds, nullable=True, order=find_common_order((inner, other)))

    def _on_grid(self, window: exp.Window, key: str, typed: Typed) -> exp.Expr:
        """Return a sum or a mean of doubles from the sum of their places on a grid, a short decimal if one is near."""
        function = window.this.this if isinstance(window.this, exp.Filter) else window.this
        inner = self._value(function.this)
        total = _divide(make_cast(column(key, _SEEN), DOUBLE), exp.Literal.number(repr(self.steps)))
        if isinstance(function, exp.Avg):
            counted = self.binder.name("window")
            known = self.made[key].copy()
            summed = next(known.find_all(exp.Sum))
            summed.replace(exp.Count(this=summed.this.copy()))
            self.made[counted] = known
            total = _divide(total, column(counted, _SEEN))
        return snap_to_decimal(total, inner.bounds)

    def _over(self, window: exp.Window, function: exp.Expr, by_place: bool) -> exp.Window:
        """Return a function over the unit's rows, in an order without ties if these would matter."""
        assert self.bound.unit is not None
        by = [self._value(node).node for node in window.args.get("partition_by") or []]
        order: list[exp.Expr] = []
        for item in window.args["order"].expressions if window.args.get("order") is not None else ():
            typed = self._value(item.this, *COMPARED_KINDS, why="rows are ordered by values with an order")
            refuse_order([typed], item.this)
            ends = {key: bool(item.args.get(key)) for key in ("desc", "nulls_first")}
            order.append(exp.Ordered(this=typed.node, **ends))
        frame = _frame(window, by_place)
        if frame is not None and frame.args["kind"] != "ROWS":
            if _is_timed(frame):
                order = [_clip_moment(order, window)]
        elif by_place or frame is not None:
            order += [exp.Ordered(this=node, nulls_first=False) for node in _ties(self.bound)]
        ordered = exp.Order(expressions=order) if order else None
        return exp.Window(
            this=function, partition_by=[self.bound.unit.copy(), *by], order=ordered, spec=frame
        )


def _divide(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    quotient = exp.Div(this=dividend, expression=divisor, typed=False, safe=False)
    return exp.paren(quotient, copy=False)


def is_partitioned_by_unit(window: exp.Expr, bound: From) -> bool:
    """Return whether all rows of a partition belong to one unit, by the policy's declarations."""
    by = list(window.args.get("partition_by") or [])
    return tells_unit(by, bound) and holds_period(by, bound)


def tells_unit(nodes: Iterable[exp.Expr], bound: From) -> bool:
    """Return whether one of some values belongs to one unit, or to one person of several periods."""
    found = [bound.names.known(node) for node in nodes]
    return bound.unit is not None and any(f is not None and f.tells_unit for f in found)


def holds_period(nodes: Iterable[exp.Expr], bound: From) -> bool:
    """Return whether the period of the units is among some values; True if they have none."""
    return bound.period is None or any(is_period(node, bound) for node in nodes)


def is_period(node: exp.Expr, bound: From) -> bool:
    """Return whether a value is the period of the units."""
    try:
        typed = make_total(node.copy(), bound.names)
    except (BindError, PrivacyError):
        return False
    return bound.holds_period(typed.node, bound.names.known(node))


def keeps_first_of_each_unit(qualify: exp.Expr, bound: From) -> bool:
    """Return whether a QUALIFY is ``row_number() OVER (PARTITION BY unit ...) = 1``: one row per unit."""
    if not isinstance(qualify, exp.EQ) or not isinstance(qualify.this, exp.Window):
        return False
    window, one = qualify.this, qualify.expression
    if not isinstance(window.this, exp.RowNumber) or not isinstance(one, exp.Literal) or one.name != "1":
        return False
    found = [bound.names.known(node) for node in window.args.get("partition_by") or []]
    return bool(found) and all(f is not None and f.is_unit and not f.optional for f in found)


def find_unit_column(bound: From) -> str | None:
    """Return the unit's columns as the analyst may write them."""
    return ", ".join(map(to_sql, _list_unit_columns(bound))) or None


def _list_unit_columns(bound: From) -> list[exp.Expr]:
    known = sorted((f for _, f in bound.names.fields() if f.tells_unit), key=lambda f: not f.is_unit)
    period = [write_period(bound.period)] if known and bound.period is not None else []
    return [*(asked_column(field.name) for field in known[:1]), *period]


def _read_places(node: exp.Expr | None, what: str, function: exp.Expr, least: int = 1) -> int:
    """Return a literal number of places; BindError for another node or number."""
    digits = node.name if isinstance(node, exp.Literal) and not node.is_string else ""
    if not digits.isdigit() or len(digits) > 7 or not least <= int(digits) <= _MOST_PLACES:
        raise bind_error(node, f"{what} must be a literal whole number.", around=function)
    return int(digits)


def _bounds_of_total(
    function: exp.Expr, name: str, inner: Typed, most: Fraction | None, on_grid: bool
) -> Bounds | None:
    """Return the bounds of a sum or a mean of numbers whose sum is independent of the order."""
    if inner.type.kind == "INTEGER" and inner.type.sql not in SMALL_INTEGERS:
        raise privacy_error(
            function,
            f"{name} over a window takes integers that fit BIGINT: a sum of wider ones may not fit 128 bits.",
            "cast its values to BIGINT by TRY_CAST, or aggregate by groups.",
        )
    if not (on_grid or inner.type.sql in SMALL_INTEGERS or is_added_exactly(inner.type)):
        raise privacy_error(
            function,
            f"{name} over a window needs bounds for floats, whose sum depends on their order.",
            "cast the value to a decimal number of 18 digits, or ask the data owner for bounds in the policy.",
        )
    if name != "sum":
        return inner.bounds
    known = inner.bounds is not None and inner.bounds.ends is not None and most is not None
    return inner.bounds * Bounds(Fraction(0), most) if known and inner.bounds is not None else None


_CUT = {"UNBOUNDED", "CURRENT ROW"}


def _frame(window: exp.Window, by_place: bool) -> exp.WindowSpec | None:
    """Return a window's frame; None for the default one.

    A frame of ROWS needs an order without ties. Frames of RANGE and GROUPS have all rows that are tied, or none: their
    aggregates depend on no order of these.
    """
    if window.args.get("spec") is None:
        return None
    spec: exp.WindowSpec = window.args["spec"].copy()
    if spec.args.get("end") is None:  # ROWS 1 PRECEDING
        spec.set("end", "CURRENT ROW")
    keys = ("kind", "start_side", "end_side")
    words = {key: str(spec.args[key]).upper() for key in keys if spec.args.get(key)}
    ends = [spec.args.get("start"), spec.args.get("end")]
    kind = words.get("kind")
    for key, word in words.items():
        spec.set(key, word)
    cut = all(isinstance(end, str) and end.upper() in _CUT for end in ends)
    if cut and kind in ("RANGE", "GROUPS"):
        start, end = (str(item).upper() for item in ends)
        if (start, end) == ("UNBOUNDED", "CURRENT ROW"):
            if kind == "RANGE" and not spec.args.get("exclude"):
                return None
        elif start == end == "UNBOUNDED":
            kind = "ROWS"
            spec.set("kind", kind)
    counted = all(isinstance(e, str) or (isinstance(e, exp.Literal) and e.name.isdigit()) for e in ends)
    timed = kind == "RANGE" and all(isinstance(e, str | exp.Interval) for e in ends)
    known = spec.args.get("start") is not None and not spec.args.get("exclude")
    fits = counted if kind == "ROWS" else not by_place and (timed or cut or (kind == "GROUPS" and counted))
    if not known or not fits:
        hint = "write ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW, or whole numbers of rows."
        raise privacy_error(window, "such a frame is not supported over private rows.", hint)
    for key in ("start", "end"):
        if isinstance(spec.args.get(key), exp.Interval):
            spec.set(key, _read_distance(spec.args[key]))
    return spec


def _read_distance(node: exp.Interval) -> exp.Expr:
    """Return a literal interval that leads from no moment of the calendar's middle out of the calendar."""
    made = bind_interval(node, _refuse_end).node
    unit = made.args["unit"].name if isinstance(made, exp.Interval) else "MILLENNIUM"
    if UNIT_MONTHS.get(unit, 0) > UNIT_MONTHS["YEAR"] or not made.name.isdigit() or len(made.name) > 5:
        raise bind_error(node, "this distance of a frame is too long.", "write INTERVAL 3 DAY.")
    return made


def _refuse_end(node: exp.Expr) -> Typed:
    raise bind_error(node, "the ends of a frame are literals.", "write INTERVAL 3 DAY.")


def _is_timed(frame: exp.WindowSpec) -> bool:
    return any(isinstance(frame.args.get(key), exp.Interval) for key in ("start", "end"))


def _clip_moment(order: Sequence[exp.Expr], window: exp.Window) -> exp.Expr:
    """Return the only key of a frame of time, NULL outside of the calendar's middle, from where an interval leads to a moment."""
    hint = "order by one date or timestamp."
    if len(order) != 1:
        raise bind_error(window, "a frame of time has one key to order by.", hint)
    item = order[0].copy()
    moment = make_cast(item.this, TIMESTAMP, trying=True)
    ends = [exp.cast(exp.Literal.string(f"{year}-01-01"), "TIMESTAMP") for year in _MIDDLE]
    within = exp.Between(this=moment.copy(), low=ends[0], high=ends[1])
    item.set("this", exp.Case(ifs=[exp.If(this=within, true=moment)]))
    return item


_MIDDLE = ("0001", "9999")


def _ties(bound: From) -> list[exp.Expr]:
    """Return all columns as tie-breakers, also as text or sign if equal values may differ in these."""
    out: list[exp.Expr] = []
    for _, f in bound.names.fields():
        kind, node = f.typed.type, f.typed.node.copy()
        if kind.kind == "DOUBLE":
            out += [node, exp.func("signbit", node.copy(), dialect="duckdb")]
        elif kind.zone and f.typed.moment is not None:
            out += [node, f.typed.moment.copy()]
        elif kind.kind != "OTHER":
            out.append(exp.cast(node, TEXT.sql, dialect="duckdb") if kind.two_faced else node)
    return out
