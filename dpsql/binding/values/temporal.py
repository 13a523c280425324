"""Dates, times and intervals. Parts of a date are total; other dates may be outside the calendar, and are in TRY."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.binding.values.coercion import (
    NUMBER_KINDS,
    Bind,
    binds_calls_of,
    cast_fitting,
    cast_to_double,
    meet,
    read_in_utc,
    read_zoned_text,
    refuse_moment,
    refuse_rest,
    require_kind,
)
from dpsql.binding.values.declared_values import count_written
from dpsql.binding.values.operators import combine_moments
from dpsql.binding.values.sql_types import (
    BIGINT,
    DATE,
    DOUBLE,
    INTERVAL,
    MOMENT,
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
    parenthesise,
    write_local_time,
)
from dpsql.catalogue.date_units import (
    DATE_UNITS,
    UNIT_MONTHS,
    UNIT_OF_NAME,
    UNIT_SECONDS,
    UNIT_SPELLINGS,
    DateUnit,
)
from dpsql.errors import did_you_mean
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.language.options import interval_seconds
from dpsql.language.postgres_texts import write_interval
from dpsql.policy.tables import find_time_zone, suggest_time_zone

_PARTS = tuple(UNIT_OF_NAME)
_MEASURES = tuple(unit.name for unit in DATE_UNITS if unit.measures)
"""Units of truncated dates, of distances between dates, and of intervals."""
_FORMATS = set("aAwdbBmyYHIpMSgfjUWcxXGVun%")
_WIDEST = 20
"""The most characters written for one of a format: %c writes a whole timestamp, with years of at most 6 digits."""


def _unit(place: exp.Expr | None, known: tuple[str, ...], node: exp.Expr) -> str:
    if not isinstance(place, exp.Var | exp.Literal):
        raise privacy_error(place, "the unit must be a literal.", "write 'month'.", around=node)
    name = str(place.name).upper()
    name = UNIT_SPELLINGS.get(name, name)
    for candidate in (name, name.removesuffix("S")):
        if candidate in known:
            return candidate
    written = place.name.lower()
    hint = did_you_mean(written, [unit.lower() for unit in known])
    raise privacy_error(place, f"{written} is not a unit here.", hint, around=node)


def bind_part(unit: str, place: exp.Expr, bind: Bind) -> Typed:
    """Bind ``year(d)``, ``date_part('year', d)`` and ``EXTRACT(year FROM d)``."""
    known = UNIT_OF_NAME[unit]
    inner = _moment(place, bind, ("TIME",) if known.clock else ())
    reach = Bounds(Fraction(known.low), Fraction(known.high))
    source = inner.node
    # Weeks at the calendar's ends are in years outside it. (For the inner TRY see bind_truncation.)
    source = make_try(source) if known.of_weeks else source
    made = make_call("date_part", exp.Literal.string(unit.lower()), source)
    made = make_try(made) if known.of_weeks else made
    made = make_cast(exp.Null(), BIGINT) if isinstance(source.this, exp.Null) else made  # DuckDB: a DOUBLE
    bounds = reach if not known.calendar else _years(inner) if unit == "YEAR" else None
    return Typed(made, BIGINT, bounds, inner.constant, None, reach)


def _years(inner: Typed) -> Bounds | None:
    if inner.ends is None:
        return None
    years = ((_EPOCH + datetime.timedelta(days=end // 86_400)).year for end in inner.ends)
    return Bounds(*map(Fraction, years))


def _settled(typed: Typed) -> Typed:
    """Return an untyped NULL as a timestamp: the engine can't choose among its functions otherwise."""
    return Typed(make_cast(exp.Null(), TIMESTAMP), TIMESTAMP, None, True) if typed.type == NULL else typed


def bind_extract(node: exp.Expr, bind: Bind) -> Typed:
    """Bind EXTRACT(part FROM moment)."""
    return _bind_named_part(node.this, node.expression, node, bind)


def _bind_named_part(part: exp.Expr, moment: exp.Expr, node: exp.Expr, bind: Bind) -> Typed:
    if isinstance(part, exp.Var | exp.Literal) and part.name.upper() == "EPOCH":
        return bind_epoch(moment, bind)
    return bind_part(_unit(part, _PARTS, node), moment, bind)


def bind_epoch(place: exp.Expr, bind: Bind) -> Typed:
    """Bind the seconds of a moment."""
    inner = _take_moment(require_kind(bind(place), _TIMED, "a date, a time or an interval is needed"))
    return Typed(write_epoch(_settled(inner)), DOUBLE, inner.bounds, inner.constant)


def write_epoch(inner: Typed) -> exp.Expr:
    """Return the seconds since 1970, or of an interval; functions in nanoseconds fail while the engine plans."""
    return make_try(make_call("epoch", inner.node))


def _moment(place: exp.Expr, bind: Bind, more: tuple[str, ...] = ()) -> Typed:
    inner = bind(place)
    shown = to_sql(place)
    hint = f"write TRY_CAST({shown} AS DATE)." if inner.type.kind == "TEXT" else None
    if inner.type.kind == "INTERVAL" and place.parent is not None:
        hint = f"write epoch({shown}) instead of {to_sql(place.parent)}, for its seconds."
    return _settled(require_kind(inner, ("DATE", "TIMESTAMP", *more), "a date is needed", hint))


# -- time zones -------------------------------------------------------------------------------------------------------

_TIMED = ("DATE", "TIMESTAMP", "MOMENT", "TIME", "INTERVAL")
_FARTHEST = Fraction(16 * 3600)
"""More than the distance of any zone's clock from UTC, at any time."""


def bind_at_time_zone(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``ts AT TIME ZONE 'Europe/Berlin'``: a moment's local time, or the moment of a local time."""
    place = node.args.get("zone")
    if not isinstance(place, exp.Literal) or not place.is_string:
        raise privacy_error(
            place, "the time zone must be a literal.", "write 'Europe/Berlin', or 'UTC'.", around=node
        )
    zone = find_time_zone(place.name)
    if zone is None:
        raise bind_error(
            place, f"there is no time zone {place.name}.", suggest_time_zone(place.name), around=node
        )
    inner = bind(node.this)
    inner = read_zoned_text(inner) or inner
    if inner.type.zone == zone:
        return inner
    if inner.type.kind == "NULL":
        return _settled(inner)
    inner = _take_moment(inner)
    if inner.moment is not None:
        return Typed(write_local_time(inner.moment, zone), TIMESTAMP, None, inner.constant)
    require_kind(inner, ("DATE", "TIMESTAMP"), "AT TIME ZONE takes a date or a timestamp")
    made = inner.node if inner.type.kind == "TIMESTAMP" else make_cast(inner.node, TIMESTAMP, trying=True)
    return Typed(write_local_time(made, zone), MOMENT, None, inner.constant)


@binds_calls_of("timezone", 2, "timezone takes a zone and a timestamp.", "write timezone('UTC', ts).")
def bind_timezone(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``timezone('Europe/Berlin', ts)``."""
    return bind_at_time_zone(exp.AtTimeZone(this=arguments[1].copy(), zone=arguments[0].copy()), bind)


def _take_moment(typed: Typed) -> Typed:
    """Return a value with the moment in place of its local time in a zone that the policy names."""
    if not typed.type.zone:
        return typed
    if typed.moment is None:
        what = f"the moments of these local times of {typed.type.zone} are no longer known."
        hint = "compute it from the table's column, before other steps."
        raise bind_error(typed.place, what, hint)
    bounds = None if typed.bounds is None else typed.bounds + Bounds(-_FARTHEST, _FARTHEST)
    return Typed(typed.moment, MOMENT, bounds, place=typed.place)


# The first and the last number of microseconds of a timestamp: some versions of DuckDB make timestamps that they can't
# write from numbers outside.
_FIRST, _LAST = -9_223_372_022_400_000_000, 9_223_372_036_854_775_806


_MAX_SECONDS = 250_000_000_000
"""Seconds since 1970 within Python's years."""


def _within(node: exp.Expr, per_second: int, made: exp.Expr) -> exp.Expr:
    """Return a value made of a number of units since 1970; NULL outside the calendar."""
    low, high = (exp.Literal.number(abs(end) * per_second // 10**6) for end in (_FIRST, _LAST))
    inside = exp.Between(this=parenthesise(node.copy()), low=exp.Neg(this=low), high=high)
    return exp.Case(ifs=[exp.If(this=inside, true=make_try(made))])


def bind_unix_time(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``to_timestamp(seconds)``, ``epoch_ms(milliseconds)``, ``epoch_ms(ts)`` and ``make_timestamp(microseconds)``."""
    scale = node.args.get("scale")
    digits = "" if scale is None else scale.name
    name = {"": "to_timestamp", "3": "epoch_ms", "6": "make_timestamp"}.get(digits)
    if name is None:
        raise privacy_error(node, "this function is not supported here.", "write to_timestamp(seconds).")
    inner = bind(node.this)
    if name == "epoch_ms" and inner.type.kind in _TIMED:
        inner = _take_moment(inner)
        bounds = None if inner.bounds is None else (inner.bounds * Bounds.point(1000)).rounded()
        # The inner TRY hides the column's extremes from the planner, as in bind_truncation.
        return Typed(make_try(make_call(name, make_try(inner.node))), BIGINT, bounds, inner.constant)
    if name == "to_timestamp":
        inner = require_kind(inner, NUMBER_KINDS, "to_timestamp takes a number of seconds")
        if isinstance(node.this, exp.Literal) and float(node.this.name) <= _MAX_SECONDS:
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=float(node.this.name))
            constant = Typed(exp.Literal.string(f"{moment.isoformat(' ')}+00:00"), TEXT)
            return read_zoned_text(constant) or constant  # read as UTC where local times are
        seconds = make_cast(exp.Null(), DOUBLE) if inner.type == NULL else cast_to_double(inner)
        return Typed(_within(seconds, 1, make_call(name, seconds)), MOMENT, None, inner.constant)
    inner = require_kind(inner, ("INTEGER",), f"{name} takes a whole number")
    number, per_second = cast_fitting(inner, BIGINT), 1000 if name == "epoch_ms" else 10**6
    return Typed(_within(number, per_second, make_call(name, number)), TIMESTAMP, None, inner.constant)


def _join_parts(node: exp.Expr, keys: Sequence[str], takes: str, kind: Type, bind: Bind) -> Typed:
    """Bind a date or a timestamp made of parts: whole numbers, and seconds as a float."""
    needs = "a whole number is needed" if kind == DATE else "a number is needed"
    made = []
    for key in keys:
        place = node.args.get(key)
        if place is None:
            raise bind_error(node, takes)
        typed = require_kind(bind(place), NUMBER_KINDS if key == "sec" else ("INTEGER",), needs)
        made.append(cast_to_double(typed) if key == "sec" else cast_fitting(typed, BIGINT))
    return Typed(make_try(make_call("make_date" if kind == DATE else "make_timestamp", *made)), kind)


def bind_make_timestamp(node: exp.Expr, bind: Bind) -> Typed:
    """Bind make_timestamp(year, month, day, hour, minute, second)."""
    takes = "make_timestamp takes a year, a month, a day, an hour, a minute and a second."
    return _join_parts(node, ("year", "month", "day", "hour", "min", "sec"), takes, TIMESTAMP, bind)


def bind_make_date(node: exp.Expr, bind: Bind) -> Typed:
    """Bind make_date(year, month, day)."""
    return _join_parts(
        node, ("year", "month", "day"), "make_date takes a year, a month and a day.", DATE, bind
    )


def bind_truncation(node: exp.Expr, bind: Bind) -> Typed:
    """Bind date_trunc."""
    unit = _unit(node.args.get("unit"), _MEASURES, node)
    inner = _moment(node.this, bind)
    # Truncation may pass the calendar's start: even while the engine plans, if it knows the column's least value. The
    # inner TRY hides that value from it.
    made = make_try(make_call("date_trunc", exp.Literal.string(unit.lower()), make_try(inner.node)))
    return Typed(made, inner.type if inner.type.zone else TIMESTAMP, None, inner.constant)


def bind_of_day(node: exp.Func, bind: Bind) -> Typed:
    """Bind a function of a date alone: dayname, monthname or last_day."""
    inner, text = _moment(node.this, bind), not isinstance(node, exp.LastDay)
    made = make_try(make_call(node.sql_name().lower(), inner.node))
    return Typed(made, TEXT if text else DATE, None, inner.constant, length=9 if text else None)


def bind_date_diff(node: exp.Expr, bind: Bind) -> Typed:
    """Bind date_diff(unit, start, end), which sqlglot reads with the end first."""
    unit = _unit(node.args.get("unit"), _MEASURES, node)
    return _dates_apart("date_diff", unit, node.expression, node.this, bind)


def _dates_apart(name: str, unit: str, start: exp.Expr, end: exp.Expr, bind: Bind) -> Typed:
    """Bind date_diff, which counts crossed borders, or date_sub, which counts whole units."""
    both = [bind(start), bind(end)]
    if unit in UNIT_SECONDS and UNIT_SECONDS[unit] < UNIT_SECONDS["DAY"]:
        both = [*read_in_utc(*both)]
    for part, other in zip(both, reversed(both), strict=True):
        refuse_moment(part, other.type.zone)
    met = meet(both, name)
    if met.type.kind not in ("DATE", "TIMESTAMP", "NULL"):
        raise bind_error(start, f"{name} takes dates, and this is {met.type.sql}.")
    if met.type.kind == "NULL":
        return Typed(make_cast(exp.Null(), BIGINT), BIGINT)
    bounds = bound_dates_apart(unit, both[0].bounds, both[1].bounds, name == "date_sub")
    return Typed(make_try(make_call(name, exp.Literal.string(unit.lower()), *met.nodes)), BIGINT, bounds)


@binds_calls_of("date_sub", 3, "date_sub takes a unit and two dates.")
def bind_date_sub(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``date_sub('month', a, b)``."""
    unit, start, end = arguments
    return _dates_apart("date_sub", _unit(unit, _MEASURES, node), start, end, bind)


@binds_calls_of("date_part", 2, "date_part takes a part and a date.")
def bind_date_part(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind date_part('part', moment)."""
    part, moment = arguments
    return _bind_named_part(part, moment, node, bind)


def bind_time_bucket(node: exp.Expr, bind: Bind) -> Typed:
    """Bind time_bucket; its width is a literal above zero, since another one raises in TRY, too."""
    if node.args.get("unit") is not None:
        hint = f"write time_bucket({to_sql(node.this)}, {to_sql(node.expression)})."
        raise bind_error(node, "buckets have no origin of their own here.", hint)
    width, inner = bind_interval(node.this, None), _moment(node.expression, bind)
    if int(node.this.this.name) <= 0:
        raise bind_error(node.this, "a bucket has a width above zero.")
    made = make_try(make_call("time_bucket", width.node, inner.node))
    return Typed(made, inner.type, None, inner.constant)


def bind_interval(node: exp.Expr, bind: Bind | None) -> Typed:
    """Bind an INTERVAL of whole units, a literal unless there is ``bind``."""
    if not isinstance(node, exp.Interval):
        raise privacy_error(node, "an interval must be a literal.", "write INTERVAL 3 DAY.")
    refuse_rest(node, "this", "unit")
    amount, unit = node.this, node.args.get("unit")
    if bind is not None and unit is not None and not isinstance(amount.unnest(), exp.Literal | exp.Neg):
        one = exp.Interval(this=exp.Literal.string("1"), unit=unit.copy())
        return bind(exp.Mul(this=exp.paren(amount.copy()), expression=one))
    if unit is None and isinstance(amount, exp.Literal):
        with suppress(ValueError):
            if (one_unit := write_interval(amount)) is not None:
                return bind_interval(one_unit, bind)
    if not isinstance(amount, exp.Literal) or not re.fullmatch(r"-?[0-9]{1,7}", amount.name) or unit is None:
        raise bind_error(node, "an interval is a whole number and a unit.", "write INTERVAL 3 DAY.")
    name = _unit(unit, _MEASURES, node)
    made = exp.Interval(this=exp.Literal.string(amount.name), unit=exp.var(name))
    length = interval_seconds(made)
    bounds = None if length is None else Bounds.point(length)
    return Typed(made, INTERVAL, bounds, True, nullable=False)


def _make_interval(node: exp.Expr, arguments: list[exp.Expr], bind: Bind, unit: DateUnit) -> Typed:
    """Bind ``to_days(n)`` and its like, an interval of whole units."""
    number = require_kind(bind(arguments[0]), ("INTEGER",), f"{unit.maker} takes a whole number")
    one = exp.Interval(this=exp.Literal.string("1"), unit=exp.var(unit.name))
    product = exp.Mul(this=exp.paren(arguments[0].copy()), expression=one)
    return combine_moments(product, number, bind_interval(one, None))


for _made in DATE_UNITS:
    if _made.maker:
        binds_calls_of(_made.maker, 1, f"{_made.maker} takes a whole number.")(
            partial(_make_interval, unit=_made)
        )


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


@binds_calls_of("strptime", 2, "try_strptime takes a text and a format.")
@binds_calls_of("try_strptime", 2, "try_strptime takes a text and a format.")
def bind_strptime(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``try_strptime(text, format)``."""
    inner = require_kind(bind(arguments[0]), ("TEXT",), "a text is needed")
    made = make_call("try_strptime", inner.node, _format(arguments[1], node))
    return Typed(make_try(made), TIMESTAMP, None, inner.constant)


# -- distances --------------------------------------------------------------------------------------------------------

_EPOCH = datetime.date(1970, 1, 1)


def _place(unit: str, seconds: Fraction) -> int | None:
    """Return the number of borders of a unit before a time; None outside Python's years."""
    days = math.floor(seconds / UNIT_SECONDS["DAY"])
    if unit == "WEEK":
        return (days + 3) // 7  # weeks begin on Mondays, and 1970 on a Thursday
    if unit not in UNIT_MONTHS:
        return math.floor(seconds / UNIT_SECONDS[unit])
    try:
        day = _EPOCH + datetime.timedelta(days=days)
    except OverflowError:
        return None
    return (day.year * 12 + day.month - 1) // UNIT_MONTHS[unit]


def bound_dates_apart(unit: str, start: Bounds | None, end: Bounds | None, elapsed: bool) -> Bounds | None:
    """Return bounds of the number of a unit's borders between two times, or of whole units ``elapsed``, at most one fewer."""
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
