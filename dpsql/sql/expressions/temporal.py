"""Dates, times and intervals. Parts of a date are total; whatever computes another date may leave the calendar: TRY."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError, did_you_mean
from dpsql.sql.expressions.bounds import Interval
from dpsql.sql.expressions.coercion import Bind, attempt, call, cast, fits, meet, need, refuse_rest
from dpsql.sql.expressions.lengths import write
from dpsql.sql.expressions.types import BIGINT, DATE, DOUBLE, INTERVAL, TEXT, TIMESTAMP, Typed  # fmt: skip
from dpsql.sql.parse.dialect import span_of

_YEARS = (-6_000_000, 6_000_000)
CALENDAR: dict[str, tuple[int, int]] = {
    "YEAR": _YEARS, "ISOYEAR": _YEARS, "YEARWEEK": (-600_000_099, 600_000_099), "DECADE": _YEARS, "CENTURY": _YEARS,
    "MILLENNIUM": _YEARS,
}  # fmt: skip
"""Parts as long as the calendar, with what they can't leave. (These are no bounds to add noise by.)"""
PARTS: dict[str, tuple[int, int]] = {
    **CALENDAR, "MONTH": (1, 12), "DAY": (1, 31), "QUARTER": (1, 4), "WEEK": (1, 53),
    "DOW": (0, 6), "DAYOFWEEK": (0, 6), "WEEKDAY": (0, 6), "ISODOW": (1, 7), "DOY": (1, 366), "DAYOFYEAR": (1, 366),
    "ERA": (0, 1), "HOUR": (0, 23), "MINUTE": (0, 59), "SECOND": (0, 59), "MILLISECOND": (0, 59_999),
    "MICROSECOND": (0, 59_999_999),
}  # fmt: skip
CLOCK = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
UNITS = (
    "MILLENNIUM", "CENTURY", "DECADE", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND",
    "MILLISECOND", "MICROSECOND",
)  # fmt: skip
"""Units that dates are truncated to and counted in, and that intervals are made of."""
_SPELLINGS = {
    "WEEKS": "WEEK", "CENTURIES": "CENTURY", "MILLENNIA": "MILLENNIUM", "MSEC": "MILLISECOND", "USEC": "MICROSECOND",
    "DAYOFMONTH": "DAY", "DAY_OF_MONTH": "DAY", "WEEKOFYEAR": "WEEK", "WEEK_OF_YEAR": "WEEK",
    "DAY_OF_WEEK": "DAYOFWEEK", "DAY_OF_YEAR": "DAYOFYEAR", "DAYOFWEEKISO": "ISODOW", "DAYOFWEEK_ISO": "ISODOW",
}  # fmt: skip
_FORMATS = set("aAwdbBmyYHIpMSgfjUWcxXGVun%")
_WIDEST = 20
"""Characters that one character of a format can stand for: %c writes a whole timestamp, of 6-digit years at most."""


def _unit(place: exp.Expr | None, known: tuple[str, ...], node: exp.Expr) -> str:
    if not isinstance(place, exp.Var | exp.Literal):
        raise PrivacyError(
            "the unit must be a literal.", span=span_of(place) or span_of(node), hint="write 'month'."
        )
    name = str(place.name).upper()
    name = _SPELLINGS.get(name, name)
    for candidate in (name, name.removesuffix("S")):
        if candidate in known:
            return candidate
    raise PrivacyError(
        f"{place.name.lower()} is not a unit here.",
        span=span_of(place) or span_of(node),
        hint=did_you_mean(place.name.lower(), [u.lower() for u in known]),
    )


def part(node: exp.Expr, unit: str, place: exp.Expr, bind: Bind) -> Typed:
    """year(d), date_part('year', d), EXTRACT(year FROM d)."""
    inner = bind(place)
    kinds = ("DATE", "TIMESTAMP", "TIME") if unit in CLOCK else ("DATE", "TIMESTAMP")
    need(
        inner,
        place,
        kinds,
        "a date is needed",
        "write TRY_CAST(... AS DATE)." if inner.type.kind == "TEXT" else None,
    )
    reach = Interval(*(Fraction(end) for end in PARTS[unit]))
    source = _settled(inner).node
    # Weeks of the far ends of the calendar are in years that it does not have. (For the inner TRY see truncate.)
    weeks = unit in ("WEEK", "YEARWEEK", "ISOYEAR")
    made = call("date_part", exp.Literal.string(unit.lower()), attempt(source) if weeks else source)
    made = attempt(made) if weeks else made
    bounds = reach if unit not in CALENDAR else _years(inner) if unit == "YEAR" else None
    return Typed(made, BIGINT, bounds, inner.constant, None, reach)


def _years(inner: Typed) -> Interval | None:
    """The years of bounds that are dates."""
    if inner.bounds is None or inner.bounds.low is None or inner.bounds.high is None:
        return None
    ends = (inner.bounds.low // 86_400, inner.bounds.high // 86_400)
    years = ((datetime.date(1970, 1, 1) + datetime.timedelta(days=end)).year for end in ends)
    return Interval(*map(Fraction, years))


def _settled(typed: Typed) -> Typed:
    """NULL as a timestamp: the engine can't choose among its functions for a bare one."""
    return Typed(cast(exp.Null(), TIMESTAMP), TIMESTAMP, None, True) if typed.type.kind == "NULL" else typed


def extract(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this", "expression")
    if isinstance(node.this, exp.Var | exp.Literal) and node.this.name.upper() == "EPOCH":
        return _epoch(node.expression, bind)
    return part(node, _unit(node.this, tuple(PARTS), node), node.expression, bind)


def epoch(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this")
    return _epoch(node.this, bind)


def _epoch(place: exp.Expr, bind: Bind) -> Typed:
    inner = bind(place)
    need(inner, place, ("DATE", "TIMESTAMP", "TIME", "INTERVAL"), "a date, a time or an interval is needed")
    return Typed(seconds(_settled(inner)), DOUBLE, inner.bounds, inner.constant)


def seconds(inner: Typed) -> exp.Expr:
    """Seconds since 1970, or of an interval. (The variants in nanoseconds fail while the engine still plans.)"""
    return attempt(call("epoch", inner.node))


def _moment(place: exp.Expr, bind: Bind) -> Typed:
    inner = bind(place)
    need(
        inner, place, ("DATE", "TIMESTAMP"), "a date is needed",
        "write TRY_CAST(... AS DATE)." if inner.type.kind == "TEXT" else None,
    )  # fmt: skip
    return _settled(inner)


def truncate(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this", "unit", "input_type_preserved")
    unit = _unit(node.args.get("unit"), UNITS, node)
    inner = _moment(node.this, bind)
    # Truncating may step over the early end of the calendar: even while the engine plans, where it knows the column's
    # least value. The inner TRY hides that from it.
    made = attempt(call("date_trunc", exp.Literal.string(unit.lower()), attempt(inner.node)))
    return Typed(made, TIMESTAMP, None, inner.constant)


def named(name: str) -> Callable[[exp.Expr, Bind], Typed]:
    """dayname and monthname."""

    def handle(node: exp.Expr, bind: Bind) -> Typed:
        refuse_rest(node, "this", "abbreviated")
        inner = _moment(node.this, bind)
        return Typed(attempt(call(name, inner.node)), TEXT, None, inner.constant, length=9)

    return handle


def last_day(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this")
    inner = _moment(node.this, bind)
    return Typed(attempt(call("last_day", inner.node)), DATE, None, inner.constant)


def difference(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this", "expression", "unit", "date_part_boundary")
    # sqlglot reads date_diff(unit, start, end) with the end first.
    return between_dates(
        "date_diff", _unit(node.args.get("unit"), UNITS, node), node.expression, node.this, bind
    )


def between_dates(name: str, unit: str, start: exp.Expr, end: exp.Expr, bind: Bind) -> Typed:
    """date_diff counts the borders crossed, date_sub the whole units elapsed."""
    values = [bind(start), bind(end)]
    met = meet([(values[0], start), (values[1], end)], name)
    if met.type.kind not in ("DATE", "TIMESTAMP", "NULL"):
        raise BindError(f"{name} takes dates, and this is {met.type.sql}.", span=span_of(start))
    if met.type.kind == "NULL":
        return Typed(cast(exp.Null(), BIGINT), BIGINT)
    return Typed(attempt(call(name, exp.Literal.string(unit.lower()), *met.nodes)), BIGINT)


def subtract(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """date_sub('month', a, b), which sqlglot leaves as it is."""
    if len(arguments) != 3:
        raise BindError("date_sub takes a unit and two dates.", span=span_of(node))
    return between_dates("date_sub", _unit(arguments[0], UNITS, node), arguments[1], arguments[2], bind)


def date_part(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    if len(arguments) != 2:
        raise BindError("date_part takes a part and a date.", span=span_of(node))
    if isinstance(arguments[0], exp.Literal) and arguments[0].name.upper() == "EPOCH":
        return _epoch(arguments[1], bind)
    return part(node, _unit(arguments[0], tuple(PARTS), node), arguments[1], bind)


def bucket(node: exp.Expr, bind: Bind) -> Typed:
    """time_bucket: a width of zero raises inside TRY too, so the width is a literal."""
    refuse_rest(node, "this", "expression")
    width, inner = interval(node.this, bind), _moment(node.expression, bind)
    if re.fullmatch(r"0+", node.this.this.name):
        raise BindError("a bucket has a width.", span=span_of(node.this))
    made = attempt(call("time_bucket", width.node, inner.node))
    return Typed(made, inner.type, None, inner.constant)


_SECONDS = {
    "MICROSECOND": Fraction(1, 10**6), "MILLISECOND": Fraction(1, 1000), "SECOND": Fraction(1), "MINUTE": Fraction(60),
    "HOUR": Fraction(3600), "DAY": Fraction(86_400), "WEEK": Fraction(7 * 86_400), "MONTH": Fraction(30 * 86_400),
}  # fmt: skip


def length_of(node: exp.Interval) -> Fraction | None:
    """The seconds of an INTERVAL literal, with months of 30 days; None where its unit has no one length."""
    unit = node.args.get("unit")
    name = str(unit.name).upper() if unit is not None else ""
    per = _SECONDS.get(name) or _SECONDS.get(name.removesuffix("S"))
    amount = node.this.name if isinstance(node.this, exp.Literal) else ""
    whole = amount.removeprefix("-")
    return int(amount) * per if per is not None and whole.isdigit() and len(whole) <= 7 else None


def interval(node: exp.Expr, bind: Bind) -> Typed:
    if not isinstance(node, exp.Interval):
        raise PrivacyError("an interval must be a literal.", span=span_of(node), hint="write INTERVAL 3 DAY.")
    refuse_rest(node, "this", "unit")
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal) or not re.fullmatch(r"-?[0-9]{1,7}", amount.name) or unit is None:
        raise BindError(
            "an interval is a whole number and a unit.", span=span_of(node), hint="write INTERVAL 3 DAY."
        )
    name = _unit(unit, UNITS, node)
    made = exp.Interval(this=exp.Literal.string(amount.name), unit=exp.var(name))
    length = length_of(made)
    bounds = None if length is None else Interval.point(length)
    return Typed(made, INTERVAL, bounds, True, nullable=False)


def add(node: exp.Expr, bind: Bind) -> Typed:
    """date_add(d, INTERVAL 1 DAY)."""
    refuse_rest(node, "this", "expression")
    inner, step = _moment(node.this, bind), bind(node.expression)
    need(step, node.expression, ("INTERVAL",), "an interval is needed", "write INTERVAL 3 DAY.")
    return Typed(
        attempt(exp.Add(this=exp.Paren(this=inner.node), expression=exp.Paren(this=step.node))), TIMESTAMP
    )


def _format(place: exp.Expr | None, node: exp.Expr) -> exp.Expr:
    if not isinstance(place, exp.Literal) or not place.is_string:
        raise PrivacyError(
            "a format must be a literal.", span=span_of(place) or span_of(node), hint="write '%Y-%m-%d'."
        )
    if re.fullmatch(r"(?s)(?:[^%\x00]|%-?.)*", place.name) is None or len(place.name) > 200:
        raise BindError("this is not a format.", span=span_of(place), hint="write '%Y-%m-%d'.")
    for dash, letter in re.findall(r"%(-?)(.)", place.name):
        if letter not in _FORMATS or (dash and letter not in "dmyHIMSjUW"):
            raise BindError(
                f"%{dash}{letter} is not known in a format.", span=span_of(place), hint="write '%Y-%m-%d'."
            )
    return place.copy()


def to_text(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this", "format")
    places = (node.this, node.args.get("format"))
    if isinstance(places[0], exp.Literal) and not isinstance(places[1], exp.Literal):
        places = (places[1], places[0])  # DuckDB takes both orders
    assert places[0] is not None
    inner = _moment(places[0], bind)
    form = _format(places[1], node)
    length = write("strftime", _WIDEST * len(form.name), node)
    return Typed(attempt(call("strftime", inner.node, form)), TEXT, None, inner.constant, length=length)


def from_text(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """try_strptime(text, format)."""
    if len(arguments) != 2:
        raise BindError("try_strptime takes a text and a format.", span=span_of(node))
    inner = bind(arguments[0])
    need(inner, arguments[0], ("TEXT",), "a text is needed")
    return Typed(
        attempt(call("try_strptime", inner.node, _format(arguments[1], node))),
        TIMESTAMP,
        None,
        inner.constant,
    )


def from_parts(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "year", "month", "day")
    made = []
    for key in ("year", "month", "day"):
        place = node.args.get(key)
        if place is None:
            raise BindError("make_date takes a year, a month and a day.", span=span_of(node))
        typed = bind(place)
        need(typed, place, ("INTEGER",), "a whole number is needed")
        made.append(cast(typed.node, BIGINT, not fits(typed, BIGINT) if typed.type.kind != "NULL" else False))
    return Typed(attempt(call("make_date", *made)), DATE)
