"""Dates, times and intervals. Parts of a date are total; other dates may be outside the calendar, and are in TRY."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.coercion import (
    SECONDS,
    Bind,
    cast_fitting,
    interval_seconds,
    meet,
    refuse_rest,
    require_kind,
)
from dpsql.binding.values.lengths import count_written
from dpsql.binding.values.sql_types import (
    BIGINT,
    DATE,
    DOUBLE,
    INTERVAL,
    NULL,
    TEXT,
    TIMESTAMP,
    Bounds,
    BoundsEnd,
    Type,
    Typed,
    make_call,
    make_cast,
    make_try,
)
from dpsql.errors import did_you_mean
from dpsql.language.dialect import bind_error, privacy_error, to_sql

_YEARS = (-6_000_000, 6_000_000)
CALENDAR_PARTS: dict[str, tuple[int, int]] = {
    "YEAR": _YEARS, "ISOYEAR": _YEARS, "YEARWEEK": (-600_000_099, 600_000_099), "DECADE": _YEARS, "CENTURY": _YEARS,
    "MILLENNIUM": _YEARS,
}  # fmt: skip
"""Parts as long as the calendar, with their ranges, which aren't bounds for noise."""
DATE_PART_RANGES: dict[str, tuple[int, int]] = {
    **CALENDAR_PARTS, "MONTH": (1, 12), "DAY": (1, 31), "QUARTER": (1, 4), "WEEK": (1, 53),
    "DOW": (0, 6), "DAYOFWEEK": (0, 6), "WEEKDAY": (0, 6), "ISODOW": (1, 7), "DOY": (1, 366), "DAYOFYEAR": (1, 366),
    "ERA": (0, 1), "HOUR": (0, 23), "MINUTE": (0, 59), "SECOND": (0, 59), "MILLISECOND": (0, 59_999),
    "MICROSECOND": (0, 59_999_999),
}  # fmt: skip
CLOCK_PARTS = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
DATE_UNITS = (
    "MILLENNIUM", "CENTURY", "DECADE", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND",
    "MILLISECOND", "MICROSECOND",
)  # fmt: skip
"""Units of truncated dates, of distances between dates, and of intervals."""
_SPELLINGS = {
    "WEEKS": "WEEK", "CENTURIES": "CENTURY", "MILLENNIA": "MILLENNIUM", "MSEC": "MILLISECOND", "USEC": "MICROSECOND",
    "DAYOFMONTH": "DAY", "DAY_OF_MONTH": "DAY", "WEEKOFYEAR": "WEEK", "WEEK_OF_YEAR": "WEEK",
    "DAY_OF_WEEK": "DAYOFWEEK", "DAY_OF_YEAR": "DAYOFYEAR", "DAYOFWEEKISO": "ISODOW", "DAYOFWEEK_ISO": "ISODOW",
}  # fmt: skip
_FORMATS = set("aAwdbBmyYHIpMSgfjUWcxXGVun%")
_WIDEST = 20
"""The most characters written for one of a format: %c writes a whole timestamp, with years of at most 6 digits."""


def _unit(place: exp.Expr | None, known: tuple[str, ...], node: exp.Expr) -> str:
    if not isinstance(place, exp.Var | exp.Literal):
        raise privacy_error(place, "the unit must be a literal.", "write 'month'.", around=node)
    name = str(place.name).upper()
    name = _SPELLINGS.get(name, name)
    for candidate in (name, name.removesuffix("S")):
        if candidate in known:
            return candidate
    written = place.name.lower()
    hint = did_you_mean(written, [unit.lower() for unit in known])
    raise privacy_error(place, f"{written} is not a unit here.", hint, around=node)


def bind_part(unit: str, place: exp.Expr, bind: Bind) -> Typed:
    """Bind ``year(d)``, ``date_part('year', d)`` and ``EXTRACT(year FROM d)``."""
    inner = _moment(place, bind, ("TIME",) if unit in CLOCK_PARTS else ())
    reach = Bounds(*(Fraction(end) for end in DATE_PART_RANGES[unit]))
    source = inner.node
    # Weeks at the calendar's ends are in years outside it. (For the inner TRY see bind_truncation.)
    weeks = unit in ("WEEK", "YEARWEEK", "ISOYEAR")
    made = make_call("date_part", exp.Literal.string(unit.lower()), make_try(source) if weeks else source)
    made = make_try(made) if weeks else made
    bounds = reach if unit not in CALENDAR_PARTS else _years(inner) if unit == "YEAR" else None
    return Typed(made, BIGINT, bounds, inner.constant, None, reach)


def _years(inner: Typed) -> Bounds | None:
    """Return the years of the bounds of a date."""
    if inner.bounds is None or inner.bounds.low is None or inner.bounds.high is None:
        return None
    ends = (inner.bounds.low // 86_400, inner.bounds.high // 86_400)
    years = ((datetime.date(1970, 1, 1) + datetime.timedelta(days=end)).year for end in ends)
    return Bounds(*map(Fraction, years))


def _settled(typed: Typed) -> Typed:
    """Return an untyped NULL as a timestamp: the engine can't choose among its functions otherwise."""
    return Typed(make_cast(exp.Null(), TIMESTAMP), TIMESTAMP, None, True) if typed.type == NULL else typed


def bind_extract(node: exp.Expr, bind: Bind) -> Typed:
    """Bind EXTRACT(part FROM moment)."""
    if isinstance(node.this, exp.Var | exp.Literal) and node.this.name.upper() == "EPOCH":
        return bind_epoch(node.expression, bind)
    return bind_part(_unit(node.this, tuple(DATE_PART_RANGES), node), node.expression, bind)


def bind_epoch(place: exp.Expr, bind: Bind) -> Typed:
    """Bind the seconds of a moment."""
    kinds = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
    inner = require_kind(bind(place), kinds, "a date, a time or an interval is needed")
    return Typed(write_epoch(_settled(inner)), DOUBLE, inner.bounds, inner.constant)


def write_epoch(inner: Typed) -> exp.Expr:
    """Return the seconds since 1970, or of an interval; functions in nanoseconds fail while the engine plans."""
    return make_try(make_call("epoch", inner.node))


def _moment(place: exp.Expr, bind: Bind, more: tuple[str, ...] = ()) -> Typed:
    inner = bind(place)
    hint = f"write TRY_CAST({to_sql(place)} AS DATE)." if inner.type.kind == "TEXT" else None
    return _settled(require_kind(inner, ("DATE", "TIMESTAMP", *more), "a date is needed", hint))


def bind_truncation(node: exp.Expr, bind: Bind) -> Typed:
    """Bind date_trunc."""
    unit = _unit(node.args.get("unit"), DATE_UNITS, node)
    inner = _moment(node.this, bind)
    # Truncation may pass the calendar's start: even while the engine plans, if it knows the column's least value. The
    # inner TRY hides that value from it.
    made = make_try(make_call("date_trunc", exp.Literal.string(unit.lower()), make_try(inner.node)))
    return Typed(made, TIMESTAMP, None, inner.constant)


def make_calendar_binder(
    name: str, kind: Type, length: int | None = None
) -> Callable[[exp.Expr, Bind], Typed]:
    """Return the binder of a function of a date alone: dayname, monthname or last_day."""

    def handle(node: exp.Expr, bind: Bind) -> Typed:
        inner = _moment(node.this, bind)
        return Typed(make_try(make_call(name, inner.node)), kind, None, inner.constant, length=length)

    return handle


def bind_date_diff(node: exp.Expr, bind: Bind) -> Typed:
    """Bind date_diff(unit, start, end), which sqlglot reads with the end first."""
    unit = _unit(node.args.get("unit"), DATE_UNITS, node)
    return _dates_apart("date_diff", unit, node.expression, node.this, bind)


def _dates_apart(name: str, unit: str, start: exp.Expr, end: exp.Expr, bind: Bind) -> Typed:
    """Bind date_diff, which counts crossed borders, or date_sub, which counts whole units."""
    both = [bind(start), bind(end)]
    met = meet(both, name)
    if met.type.kind not in ("DATE", "TIMESTAMP", "NULL"):
        raise bind_error(start, f"{name} takes dates, and this is {met.type.sql}.")
    if met.type.kind == "NULL":
        return Typed(make_cast(exp.Null(), BIGINT), BIGINT)
    bounds = bound_dates_apart(unit, both[0].bounds, both[1].bounds, name == "date_sub")
    return Typed(make_try(make_call(name, exp.Literal.string(unit.lower()), *met.nodes)), BIGINT, bounds)


def bind_date_sub(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``date_sub('month', a, b)``."""
    if len(arguments) != 3:
        raise bind_error(node, "date_sub takes a unit and two dates.")
    unit, start, end = arguments
    return _dates_apart("date_sub", _unit(unit, DATE_UNITS, node), start, end, bind)


def bind_date_part(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind date_part('part', moment)."""
    if len(arguments) != 2:
        raise bind_error(node, "date_part takes a part and a date.")
    if isinstance(arguments[0], exp.Literal) and arguments[0].name.upper() == "EPOCH":
        return bind_epoch(arguments[1], bind)
    return bind_part(_unit(arguments[0], tuple(DATE_PART_RANGES), node), arguments[1], bind)


def bind_time_bucket(node: exp.Expr, bind: Bind) -> Typed:
    """Bind time_bucket; its width is a literal, since a width of zero raises in TRY, too."""
    width, inner = bind_interval(node.this, bind), _moment(node.expression, bind)
    if re.fullmatch(r"0+", node.this.this.name):
        raise bind_error(node.this, "a bucket has a width.")
    made = make_try(make_call("time_bucket", width.node, inner.node))
    return Typed(made, inner.type, None, inner.constant)


def bind_interval(node: exp.Expr, bind: Bind) -> Typed:
    """Bind an INTERVAL literal of whole units."""
    if not isinstance(node, exp.Interval):
        raise privacy_error(node, "an interval must be a literal.", "write INTERVAL 3 DAY.")
    refuse_rest(node, "this", "unit")
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal) or not re.fullmatch(r"-?[0-9]{1,7}", amount.name) or unit is None:
        raise bind_error(node, "an interval is a whole number and a unit.", "write INTERVAL 3 DAY.")
    name = _unit(unit, DATE_UNITS, node)
    made = exp.Interval(this=exp.Literal.string(amount.name), unit=exp.var(name))
    length = interval_seconds(made)
    bounds = None if length is None else Bounds.point(length)
    return Typed(made, INTERVAL, bounds, True, nullable=False)


def bind_date_add(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``date_add(d, INTERVAL 1 DAY)``."""
    inner, step = _moment(node.this, bind), bind(node.expression)
    require_kind(step, ("INTERVAL",), "an interval is needed", "write INTERVAL 3 DAY.")
    made = exp.Add(this=exp.Paren(this=inner.node), expression=exp.Paren(this=step.node))
    return Typed(make_try(made), TIMESTAMP)


def _format(place: exp.Expr | None, node: exp.Expr) -> exp.Expr:
    if not isinstance(place, exp.Literal) or not place.is_string:
        raise privacy_error(place, "a format must be a literal.", "write '%Y-%m-%d'.", around=node)
    if re.fullmatch(r"(?s)(?:[^%\x00]|%-?.)*", place.name) is None or len(place.name) > 200:
        raise bind_error(place, "this is not a format.", "write '%Y-%m-%d'.")
    for dash, letter in re.findall(r"%(-?)(.)", place.name):
        if letter not in _FORMATS or (dash and letter not in "dmyHIMSjUW"):
            raise bind_error(place, f"%{dash}{letter} is not known in a format.", "write '%Y-%m-%d'.")
    return place.copy()


def bind_strftime(node: exp.Expr, bind: Bind) -> Typed:
    """Bind strftime with a literal format."""
    places = (node.this, node.args.get("format"))
    if isinstance(places[0], exp.Literal) and not isinstance(places[1], exp.Literal):
        places = (places[1], places[0])  # DuckDB takes both orders
    assert places[0] is not None
    inner = _moment(places[0], bind)
    form = _format(places[1], node)
    length = count_written("strftime", _WIDEST * len(form.name), node)
    return Typed(make_try(make_call("strftime", inner.node, form)), TEXT, None, inner.constant, length=length)


def bind_strptime(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``try_strptime(text, format)``."""
    if len(arguments) != 2:
        raise bind_error(node, "try_strptime takes a text and a format.")
    inner = require_kind(bind(arguments[0]), ("TEXT",), "a text is needed")
    made = make_call("try_strptime", inner.node, _format(arguments[1], node))
    return Typed(make_try(made), TIMESTAMP, None, inner.constant)


def bind_make_date(node: exp.Expr, bind: Bind) -> Typed:
    """Bind make_date(year, month, day)."""
    made = []
    for key in ("year", "month", "day"):
        place = node.args.get(key)
        if place is None:
            raise bind_error(node, "make_date takes a year, a month and a day.")
        typed = require_kind(bind(place), ("INTEGER",), "a whole number is needed")
        made.append(cast_fitting(typed, BIGINT))
    return Typed(make_try(make_call("make_date", *made)), DATE)


# -- today ------------------------------------------------------------------------------------------------------------

_TODAY = ("current_date", "today")
_NOW = (
    "now", "current_timestamp", "get_current_timestamp", "transaction_timestamp", "localtimestamp",
    "current_localtimestamp",
)  # fmt: skip
_CLOCK_WORD = re.compile(rf"(?i)\b({'|'.join((*_TODAY, *_NOW))})\b")


def reads_clock(text: str) -> bool:
    """Return whether a statement may name the present day, so that its plan is good for that day alone."""
    return _CLOCK_WORD.search(text) is not None


def find_today() -> datetime.date:
    """Return the present day in UTC, whatever the machine's time zone."""
    return datetime.datetime.now(datetime.UTC).date()


def _clock(node: exp.Expr) -> str:
    """Return the name of a call that reads the clock, or an empty text."""
    node = node.unnest()
    if isinstance(node, exp.CurrentDate | exp.CurrentTimestamp | exp.Localtimestamp):
        name = node.sql_name().lower() if not any(node.args.values()) else ""
    else:
        name = node.name.lower() if isinstance(node, exp.Anonymous) and not node.expressions else ""
    return name if name in (*_TODAY, *_NOW) else ""


def name_today(node: exp.Expr) -> exp.Expr | None:
    """Return the literal of CURRENT_DATE, ``today()`` or ``now()::DATE``: the statement's own day; None for other nodes."""
    if isinstance(node, exp.Cast) and _clock(node.this) in _NOW and node.to.is_type("date"):
        node = exp.CurrentDate()
    if _clock(node) not in _TODAY or isinstance(node, exp.Paren):
        return None
    return exp.cast(exp.Literal.string(find_today().isoformat()), "DATE", dialect="duckdb")


# -- distances --------------------------------------------------------------------------------------------------------

_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1_200, "MILLENNIUM": 12_000}
_EPOCH = datetime.date(1970, 1, 1)


def _place(unit: str, seconds: Fraction) -> int | None:
    """Return the number of borders of a unit before a time; None outside Python's years."""
    days = math.floor(seconds / SECONDS["DAY"])
    if unit == "WEEK":
        return (days + 3) // 7  # weeks begin on Mondays, and 1970 on a Thursday
    if unit not in _MONTHS:
        return math.floor(seconds / SECONDS[unit])
    try:
        day = _EPOCH + datetime.timedelta(days=days)
    except OverflowError:
        return None
    return (day.year * 12 + day.month - 1) // _MONTHS[unit]


def bound_dates_apart(unit: str, start: Bounds | None, end: Bounds | None, elapsed: bool) -> Bounds | None:
    """Return the bounds of the number of a unit's borders between two times, or of the whole units ``elapsed``.

    At most one whole unit fewer elapses than borders are crossed.
    """
    if start is None or end is None:
        return None
    least, most = _apart(unit, start.high, end.low), _apart(unit, start.low, end.high)
    if unit == "WEEK":  # before 1970 DuckDB's count of weeks is one off at times
        least, most = None if least is None else least - 1, None if most is None else most + 1
    if elapsed:
        least = least - 1 if least is not None and least > 0 else least
        most = most + 1 if most is not None and most < 0 else most
    return Bounds(None if least is None else Fraction(least), None if most is None else Fraction(most))


def _apart(unit: str, start: BoundsEnd, end: BoundsEnd) -> int | None:
    places = [None if moment is None else _place(unit, moment) for moment in (start, end)]
    return None if places[0] is None or places[1] is None else places[1] - places[0]
