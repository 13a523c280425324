"""The catalogue of time units: the parts of a date, the lengths of intervals, and PostgreSQL's formats of dates."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from dpsql.errors import BindError
from dpsql.late_dataclass import dataclass


@dataclass(frozen=True)
class DateUnit:
    """A unit of time.

    Args:
        name: DuckDB's name.
        low, high: the range of its number in a date.
        seconds: its length; a month has 30 days.
        months: its length in months, for units of the calendar.
        node: the sqlglot class of its function.
        called: whether a function has its name.
        spark: Spark's expression of its number in a timestamp.
        spelled: further spellings.
        google: whether GoogleSQL has it.
        of_weeks: whether it depends on whole weeks, which are in years outside the calendar at its ends.
        periods: the forms of a privacy unit's period that accept it, ``date_trunc`` and ``part``.
    """

    name: str
    low: int
    high: int
    seconds: Fraction | None = None
    months: int | None = None
    node: str = ""
    called: bool = True
    spark: str = ""
    spelled: tuple[str, ...] = ()
    google: bool = False
    of_weeks: bool = False
    periods: tuple[str, ...] = ()

    @property
    def clock(self) -> bool:
        """Whether it is a part of a time of day."""
        return self.seconds is not None and self.seconds < _DAY

    @property
    def calendar(self) -> bool:
        """Whether it counts through the whole calendar, as years do: its range is then too wide to bound noise."""
        return self.high >= _YEARS[1]

    @property
    def maker(self) -> str:
        """The function that makes an interval of a number of them; empty without one."""
        return f"to_{self.name.lower()}s" if self.measures and (self.months or 0) <= 120 else ""

    @property
    def measures(self) -> bool:
        """Whether it is a length of time, not only a part of a date."""
        return self.seconds is not None or self.months is not None


_DAY = Fraction(86_400)
_YEARS = (-6_000_000, 6_000_000)
_BOTH = ("date_trunc", "part")

DATE_UNITS: tuple[DateUnit, ...] = (
    DateUnit("YEAR", *_YEARS, months=12, node="Year", spark="year({0})", google=True, periods=_BOTH),
    DateUnit("ISOYEAR", *_YEARS, google=True, of_weeks=True),
    DateUnit("YEARWEEK", -600_000_099, 600_000_099, of_weeks=True),
    DateUnit("DECADE", *_YEARS, months=120),
    DateUnit("CENTURY", *_YEARS, months=1_200, spelled=("CENTURIES",)),
    DateUnit("MILLENNIUM", *_YEARS, months=12_000, spelled=("MILLENNIA",)),
    DateUnit("QUARTER", 1, 4, months=3, node="Quarter", spark="quarter({0})", google=True, periods=_BOTH),
    DateUnit("MONTH", 1, 12, _DAY * 30, 1, "Month", spark="month({0})", google=True, periods=_BOTH),
    DateUnit("WEEK", 1, 53, _DAY * 7, node="Week", spark="weekofyear({0})", spelled=("WEEKS", "WEEKOFYEAR", "WEEK_OF_YEAR"),
             google=True, of_weeks=True, periods=_BOTH),
    DateUnit("DOW", 0, 6, called=False, spark="dayofweek({0}) - 1"),
    DateUnit("DAYOFWEEK", 0, 6, node="DayOfWeek", spark="dayofweek({0}) - 1", spelled=("DAY_OF_WEEK",), periods=("part",)),
    DateUnit("WEEKDAY", 0, 6, spark="dayofweek({0}) - 1"),
    DateUnit("ISODOW", 1, 7, node="DayOfWeekIso", spark="weekday({0}) + 1", spelled=("DAYOFWEEKISO", "DAYOFWEEK_ISO")),
    DateUnit("DOY", 1, 366, called=False, spark="dayofyear({0})"),
    DateUnit("DAYOFYEAR", 1, 366, node="DayOfYear", spark="dayofyear({0})", spelled=("DAY_OF_YEAR",), periods=("part",)),
    DateUnit("DAY", 1, 31, _DAY, node="Day", spark="day({0})", spelled=("DAYOFMONTH", "DAY_OF_MONTH"), google=True,
             periods=_BOTH),
    DateUnit("ERA", 0, 1),
    DateUnit("HOUR", 0, 23, Fraction(3_600), node="Hour", spark="hour({0})", google=True, periods=_BOTH),
    DateUnit("MINUTE", 0, 59, Fraction(60), node="Minute", spark="minute({0})", google=True),
    DateUnit("SECOND", 0, 59, Fraction(1), node="Second", spark="second({0})", google=True),
    DateUnit("MILLISECOND", 0, 59_999, Fraction(1, 1_000), spelled=("MSEC",), google=True),
    DateUnit("MICROSECOND", 0, 59_999_999, Fraction(1, 10**6), spelled=("USEC",), google=True),
)  # fmt: skip
"""The units of time, the longest first."""
UNIT_OF_NAME: dict[str, DateUnit] = {unit.name: unit for unit in DATE_UNITS}
UNIT_SPELLINGS: dict[str, str] = {spelled: unit.name for unit in DATE_UNITS for spelled in unit.spelled}
UNIT_SECONDS: dict[str, Fraction] = {
    unit.name: unit.seconds for unit in DATE_UNITS if unit.seconds is not None
}
"""The seconds of each unit, with months of 30 days."""
UNIT_MONTHS: dict[str, int] = {unit.name: unit.months for unit in DATE_UNITS if unit.months is not None}


# -- PostgreSQL's formats -----------------------------------------------------------------------------------------------

_CODES = {
    "YYYY": "%Y",
    "YY": "%y",
    "IYYY": "%G",
    "IW": "%V",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "ID": "%u",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
}
_WORDS = {"MONTH": "%B", "MON": "%b", "DAY": "%A", "DY": "%a", "AM": "%p", "PM": "%p"}
_NUMBERS = {"Q": "quarter", "D": "dow"}
_PATTERN = re.compile(
    rf"(?is)(?P<fill>FM)?(?:(?P<code>{'|'.join(_CODES)})|(?P<word>{'|'.join(_WORDS)})|(?P<number>Q|D))(?!TH)"
    r'|"(?P<quoted>[^"]*)"|(?P<other>[^A-Za-z"0-9])'
)


@dataclass(frozen=True)
class DatePart:
    """A part of a format.

    Args:
        code: its code for STRFTIME.
        moving: whether it depends on the date.
        case: ``upper`` or ``lower`` for a word in such letters.
        padded: whether it is filled up with blanks to 9 characters.
        unit: the unit of a number that STRFTIME lacks.
    """

    code: str = ""
    moving: bool = False
    case: str = ""
    padded: bool = False
    unit: str = ""

    @property
    def plain(self) -> bool:
        """Whether it may be joined with its neighbours to one code."""
        return not (self.case or self.padded or self.unit)


def split_date_format(form: str, called: str) -> list[DatePart]:
    """Return the parts of PostgreSQL's format of a date or a time.

    Raises:
        BindError: a pattern isn't known, or there is none.

    >>> [part.code or part.unit for part in split_date_format("YYYY-MM-DD HH24:MI", "TO_CHAR")]
    ['%Y-%m-%d %H:%M']
    >>> [part.code or part.unit for part in split_date_format('YYYY-"Q"Q', "TO_CHAR")]
    ['%Y-Q', 'quarter']
    """
    parts: list[DatePart] = []
    at = 0
    while at < len(form):
        found = _PATTERN.match(form, at)
        if found is None:
            raise BindError(f"{called} does not know the format {form[at:][:20]!r} here.", hint=_FORMAT_HINT)
        part, at = _read_part(found), found.end()
        if parts and parts[-1].plain and part.plain:
            parts[-1] = DatePart(parts[-1].code + part.code, parts[-1].moving or part.moving)
        else:
            parts.append(part)
    if not any(part.moving for part in parts):
        hint = "a number is written CAST(x AS VARCHAR), a date TO_CHAR(d, 'YYYY-MM-DD')."
        raise BindError(f"{called} takes a format of dates and times.", hint=hint)
    return parts


_FORMAT_HINT = "YYYY YY MM Mon Month DD DDD Day Dy D Q IYYY IW ID HH24 HH12 MI SS MS US AM are known, and texts in double quotes."


def _read_part(found: re.Match[str]) -> DatePart:
    if found["code"]:
        code = _CODES[found["code"].upper()]
        return DatePart(code.replace("%", "%-") if found["fill"] and code[1] in "dmyHIMSj" else code, True)
    if found["number"]:
        return DatePart(moving=True, unit=_NUMBERS[found["number"].upper()])
    if found["word"]:
        word = found["word"]
        part = DatePart(_WORDS[word.upper()], True, padded=len(word) > 3 or word.upper() == "DAY")
        part = replace(part, padded=part.padded and not found["fill"])
        clock = word.upper() in ("AM", "PM")
        case = "lower" if word.islower() else "upper" if word.isupper() and not clock else ""
        return replace(part, case=case)
    return DatePart((found["quoted"] or found["other"] or "").replace("%", "%%"))
