"""The tables of a policy: their columns, the format of text sources, and the privacy units of their rows.

If there are several paths to the privacy unit, the first decides the unit of a row. The owner asserts the others, and
dependencies; they allow joins. The exact query of such a join still demands equal units, so data that contradict an
assertion change answers, but no guarantee.

An engine raises on an unknown name of a time zone as soon as there is a row, so only names of :data:`TIME_ZONES` reach it: those
of every supported DuckDB, whose ICU library has the rules of each. A list in the code gives one answer on every machine.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import re
from collections.abc import Mapping
from dataclasses import MISSING
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from dpsql.catalogue.date_units import DATE_UNITS
from dpsql.errors import PolicyError, find_nearest
from dpsql.late_dataclass import dataclass
from dpsql.policy import validate
from dpsql.policy.toml import Section, assign, declare_field
from dpsql.policy.validate import OTHER_SCRIPTS, DateBound, Value, fold, settle_text
from dpsql.privacy.periods import PAYING_PARTS, Days, unite

_PLACES = {
    "Africa": (
        "Abidjan Accra Addis_Ababa Algiers Asmara Asmera Bamako Bangui Banjul Bissau Blantyre Brazzaville Bujumbura Cairo "
        "Casablanca Ceuta Conakry Dakar Dar_es_Salaam Djibouti Douala El_Aaiun Freetown Gaborone Harare Johannesburg Juba "
        "Kampala Khartoum Kigali Kinshasa Lagos Libreville Lome Luanda Lubumbashi Lusaka Malabo Maputo Maseru Mbabane "
        "Mogadishu Monrovia Nairobi Ndjamena Niamey Nouakchott Ouagadougou Porto-Novo Sao_Tome Timbuktu Tripoli Tunis "
        "Windhoek"
    ),
    "America": (
        "Adak Anchorage Anguilla Antigua Araguaina Argentina/Buenos_Aires Argentina/Catamarca Argentina/ComodRivadavia "
        "Argentina/Cordoba Argentina/Jujuy Argentina/La_Rioja Argentina/Mendoza Argentina/Rio_Gallegos Argentina/Salta "
        "Argentina/San_Juan Argentina/San_Luis Argentina/Tucuman Argentina/Ushuaia Aruba Asuncion Atikokan Atka Bahia "
        "Bahia_Banderas Barbados Belem Belize Blanc-Sablon Boa_Vista Bogota Boise Buenos_Aires Cambridge_Bay Campo_Grande "
        "Cancun Caracas Catamarca Cayenne Cayman Chicago Chihuahua Ciudad_Juarez Coral_Harbour Cordoba Costa_Rica "
        "Coyhaique Creston Cuiaba Curacao Danmarkshavn Dawson Dawson_Creek Denver Detroit Dominica Edmonton Eirunepe "
        "El_Salvador Ensenada Fort_Nelson Fort_Wayne Fortaleza Glace_Bay Godthab Goose_Bay Grand_Turk Grenada Guadeloupe "
        "Guatemala Guayaquil Guyana Halifax Havana Hermosillo Indiana/Indianapolis Indiana/Knox Indiana/Marengo "
        "Indiana/Petersburg Indiana/Tell_City Indiana/Vevay Indiana/Vincennes Indiana/Winamac Indianapolis Inuvik Iqaluit "
        "Jamaica Jujuy Juneau Kentucky/Louisville Kentucky/Monticello Knox_IN Kralendijk La_Paz Lima Los_Angeles "
        "Louisville Lower_Princes Maceio Managua Manaus Marigot Martinique Matamoros Mazatlan Mendoza Menominee Merida "
        "Metlakatla Mexico_City Miquelon Moncton Monterrey Montevideo Montreal Montserrat Nassau New_York Nipigon Nome "
        "Noronha North_Dakota/Beulah North_Dakota/Center North_Dakota/New_Salem Nuuk Ojinaga Panama Pangnirtung "
        "Paramaribo Phoenix Port-au-Prince Port_of_Spain Porto_Acre Porto_Velho Puerto_Rico Punta_Arenas Rainy_River "
        "Rankin_Inlet Recife Regina Resolute Rio_Branco Rosario Santa_Isabel Santarem Santiago Santo_Domingo Sao_Paulo "
        "Scoresbysund Shiprock Sitka St_Barthelemy St_Johns St_Kitts St_Lucia St_Thomas St_Vincent Swift_Current "
        "Tegucigalpa Thule Thunder_Bay Tijuana Toronto Tortola Vancouver Virgin Whitehorse Winnipeg Yakutat Yellowknife"
    ),
    "Antarctica": (
        "Casey Davis DumontDUrville Macquarie Mawson McMurdo Palmer Rothera South_Pole Syowa Troll Vostok"
    ),
    "Arctic": ("Longyearbyen"),
    "Asia": (
        "Aden Almaty Amman Anadyr Aqtau Aqtobe Ashgabat Ashkhabad Atyrau Baghdad Bahrain Baku Bangkok Barnaul Beirut "
        "Bishkek Brunei Calcutta Chita Choibalsan Chongqing Chungking Colombo Dacca Damascus Dhaka Dili Dubai Dushanbe "
        "Famagusta Gaza Harbin Hebron Ho_Chi_Minh Hong_Kong Hovd Irkutsk Istanbul Jakarta Jayapura Jerusalem Kabul "
        "Kamchatka Karachi Kashgar Kathmandu Katmandu Khandyga Kolkata Krasnoyarsk Kuala_Lumpur Kuching Kuwait Macao "
        "Macau Magadan Makassar Manila Muscat Nicosia Novokuznetsk Novosibirsk Omsk Oral Phnom_Penh Pontianak Pyongyang "
        "Qatar Qostanay Qyzylorda Rangoon Riyadh Saigon Sakhalin Samarkand Seoul Shanghai Singapore Srednekolymsk Taipei "
        "Tashkent Tbilisi Tehran Tel_Aviv Thimbu Thimphu Tokyo Tomsk Ujung_Pandang Ulaanbaatar Ulan_Bator Urumqi Ust-Nera "
        "Vientiane Vladivostok Yakutsk Yangon Yekaterinburg Yerevan"
    ),
    "Atlantic": (
        "Azores Bermuda Canary Cape_Verde Faeroe Faroe Jan_Mayen Madeira Reykjavik South_Georgia St_Helena Stanley"
    ),
    "Australia": (
        "ACT Adelaide Brisbane Broken_Hill Canberra Currie Darwin Eucla Hobart LHI Lindeman Lord_Howe Melbourne NSW North "
        "Perth Queensland South Sydney Tasmania Victoria West Yancowinna"
    ),
    "Brazil": ("Acre DeNoronha East West"),
    "Canada": ("Atlantic Central Eastern Mountain Newfoundland Pacific Saskatchewan Yukon"),
    "Chile": ("Continental EasterIsland"),
    "Etc": (
        "GMT GMT+0 GMT+1 GMT+10 GMT+11 GMT+12 GMT+2 GMT+3 GMT+4 GMT+5 GMT+6 GMT+7 GMT+8 GMT+9 GMT-0 GMT-1 GMT-10 GMT-11 "
        "GMT-12 GMT-13 GMT-14 GMT-2 GMT-3 GMT-4 GMT-5 GMT-6 GMT-7 GMT-8 GMT-9 GMT0 Greenwich UCT UTC Universal Zulu"
    ),
    "Europe": (
        "Amsterdam Andorra Astrakhan Athens Belfast Belgrade Berlin Bratislava Brussels Bucharest Budapest Busingen "
        "Chisinau Copenhagen Dublin Gibraltar Guernsey Helsinki Isle_of_Man Istanbul Jersey Kaliningrad Kiev Kirov Kyiv "
        "Lisbon Ljubljana London Luxembourg Madrid Malta Mariehamn Minsk Monaco Moscow Nicosia Oslo Paris Podgorica "
        "Prague Riga Rome Samara San_Marino Sarajevo Saratov Simferopol Skopje Sofia Stockholm Tallinn Tirane Tiraspol "
        "Ulyanovsk Uzhgorod Vaduz Vatican Vienna Vilnius Volgograd Warsaw Zagreb Zaporozhye Zurich"
    ),
    "Indian": (
        "Antananarivo Chagos Christmas Cocos Comoro Kerguelen Mahe Maldives Mauritius Mayotte Reunion"
    ),
    "Mexico": ("BajaNorte BajaSur General"),
    "Pacific": (
        "Apia Auckland Bougainville Chatham Chuuk Easter Efate Enderbury Fakaofo Fiji Funafuti Galapagos Gambier "
        "Guadalcanal Guam Honolulu Johnston Kanton Kiritimati Kosrae Kwajalein Majuro Marquesas Midway Nauru Niue Norfolk "
        "Noumea Pago_Pago Palau Pitcairn Pohnpei Ponape Port_Moresby Rarotonga Saipan Samoa Tahiti Tarawa Tongatapu Truk "
        "Wake Wallis Yap"
    ),
    "US": (
        "Alaska Aleutian Arizona Central East-Indiana Eastern Hawaii Indiana-Starke Michigan Mountain Pacific Samoa"
    ),
}
TIME_ZONES: dict[str, str] = {
    name.lower(): name
    for name in (
        "UTC",
        "GMT",
        *(f"{region}/{place}" for region, places in _PLACES.items() for place in places.split()),
    )
}
"""The names, by their lower case."""


def find_time_zone(name: str) -> str | None:
    """Return the spelling of a time zone's name, given in any case; None if there is no such zone.

    >>> find_time_zone("europe/berlin"), find_time_zone("CEST")
    ('Europe/Berlin', None)
    """
    return TIME_ZONES.get(name.lower())


def suggest_time_zone(name: str) -> str:
    """Return a hint for an unknown name of a time zone."""
    near = find_nearest(name, list(TIME_ZONES.values()))
    return f"did you mean '{near}'?" if near else "write a name such as 'Europe/Berlin', or 'UTC'."


def settle_zone(key: str, value: object) -> str:
    """Read the time zone in which a column's moments are local times."""
    found = find_time_zone(value) if isinstance(value, str) else None
    if found is None:
        near = find_nearest(str(value), list(TIME_ZONES.values()))
        raise PolicyError(f"there is no time zone {value}.", hint=f'{key} = "{near or "Europe/Berlin"}"')
    return found


TEXT_KINDS = {
    ending + packed: kind
    for ending, kind in {
        ".csv": "csv",
        ".tsv": "tsv",
        ".json": "json",
        ".jsonl": "json",
        ".ndjson": "json",
    }.items()
    for packed in ("", ".gz", ".zst")
} | {".xlsx": "xlsx"}
"""Endings of files without types of columns, and their kind. Each cell of a spreadsheet has a type of its own."""
ARROW_ENDINGS = (".arrow", ".feather")
FILE_ENDINGS = (".parquet", *ARROW_ENDINGS, *TEXT_KINDS)
ZONED = "TIMESTAMP WITH TIME ZONE"
"""The type of moments, which show a local time only in a named zone."""


@dataclass(frozen=True)
class Column(Section):
    """The owner's declaration of one column: its type, its range, the list of its public values.

    Args:
        type: DuckDB's type. A value that does not fit is NULL. Required for sources whose types would be inferred from
            rows (CSV, JSON, columns of Python objects, several Parquet files).
        bounds: the lowest and the highest value; values outside are clamped. Numbers (seconds for INTERVAL), or dates
            or times without a zone, which are kept as :class:`dpsql.policy.validate.DateBound`. Those of a column with
            ``time_zone`` are local times in it.
        values: all possible values, in the order of displayed groups. Keys over them cost no delta.
        max_length: the greatest length of a text or a list, 65,536 by default; a longer value is NULL in expressions
            that need a length.
        time_zone: for a TIMESTAMP WITH TIME ZONE: the zone in which statements read its moments as local times.
    """

    bounds: tuple[Fraction, Fraction] | None = declare_field(validate.settle_bounds, todo=True)
    values: tuple[Value, ...] | None = declare_field(validate.settle_values, todo=True)
    type: str | None = declare_field(validate.settle_type, todo=True)
    max_length: int | None = declare_field(validate.settle_whole)
    time_zone: str | None = declare_field(settle_zone)
    description: str | None = declare_field(validate.settle_description)

    def _check_together(self) -> None:
        if self.time_zone is not None and self.type not in (None, ZONED):
            raise PolicyError(
                f"time_zone is for TIMESTAMP WITH TIME ZONE, not for {self.type}.",
                keys=("time_zone",),
                hint=f'remove time_zone, or write type = "{ZONED}".',
            )
        if self.max_length is not None and self.type is not None and not validate.has_length(self.type):
            raise PolicyError(
                f"max_length is for texts and lists, not for {self.type}.",
                keys=("max_length",),
                hint="remove max_length.",
            )

    def suggest_type(self) -> str:
        """Return a type that fits the column's values or bounds."""
        if self.time_zone is not None:
            return ZONED
        ends: tuple[object, ...] = self.values or self.bounds or ("",)
        first = ends[0].written if isinstance(ends[0], DateBound) else ends[0]
        for kind, name in _TYPES_OF_VALUES.items():
            if isinstance(first, kind):
                return name
        return "BIGINT" if all(isinstance(end, int) for end in ends) else "DOUBLE"


_TYPES_OF_VALUES = {
    bool: "BOOLEAN",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    datetime.time: "TIME",
    str: "VARCHAR",
}


_LETTERS = ("delimiter", "quote", "escape", "comment", "encoding", "quoted_newlines")
"""Settings of files of characters."""


@dataclass(frozen=True)
class Format(Section):
    """The format of a text source. Each setting has a fixed default: nothing is guessed.

    Args:
        delimiter: the character between two fields; a comma, in TSV a tab.
        quote: the character around fields that contain the delimiter; ``""`` if there is none.
        escape: the character before a quote within quotes (the quote itself, or a backslash).
        header: whether the first line of each file names the columns. Otherwise they are in the policy's order.
        encoding: ``"utf-8"``, ``"latin-1"``, ``"windows-1252"`` or ``"utf-16"``.
        null: the text that means NULL, or a list of such texts. In a column of texts, a quoted one is itself.
        decimal, thousands: the characters in numbers before the fraction and between groups of digits. A number with another
            character is NULL.
        skip: the number of lines before the first that counts, which names the columns if there is a header.
        comment: the character that starts a line to be ignored.
        date_format, timestamp_format: patterns of strptime; by default ISO dates.
        quoted_newlines: whether quoted fields may contain newlines. One stray quote, and so one person's row, then
            changes the rows after it: the check of the policy warns.
        records: for JSON: ``"lines"`` (an object on each line), or ``"array"`` (one array of objects). One bad record
            ends an array: the check of the policy warns.
        sheet: for XLSX: the name of the sheet; the first by default.
    """

    delimiter: str | None = declare_field(validate.settle_letter, only="csv")
    quote: str = declare_field(validate.settle_letter, '"', only="csv")
    escape: str | None = declare_field(validate.settle_letter, only="csv")
    header: bool = declare_field(validate.settle_flag, True, only="csv")
    encoding: str = declare_field(
        validate.settle_choice("utf-8", "latin-1", "windows-1252", "utf-16"), "utf-8"
    )
    null: str | tuple[str, ...] = declare_field(validate.settle_null, "", only="csv")
    decimal: str = declare_field(validate.settle_mark, ".", only="csv")
    thousands: str | None = declare_field(validate.settle_mark, only="csv")
    skip: int = declare_field(validate.settle_count, 0, only="csv")
    comment: str | None = declare_field(validate.settle_comment, only="csv")
    date_format: str | None = declare_field(validate.settle_pattern)
    timestamp_format: str | None = declare_field(validate.settle_pattern)
    quoted_newlines: bool = declare_field(validate.settle_flag, False, only="csv")
    records: str = declare_field(validate.settle_choice("lines", "array"), "lines", only="json")
    sheet: str | None = declare_field(validate.settle_text, only="xlsx")

    def _check_together(self) -> None:
        if self.quote and self.quote == self.delimiter:
            raise PolicyError("delimiter and quote must differ.", keys=("quote",))
        if self.escape is not None and (not self.quote or self.escape == self.delimiter):
            raise PolicyError("escape needs a quote, and must differ from the delimiter.", keys=("escape",))
        if self.quoted_newlines and not self.quote:
            raise PolicyError("quoted_newlines needs a quote.", keys=("quoted_newlines",))
        if self.decimal == self.thousands:
            raise PolicyError("decimal and thousands must differ.", keys=("thousands",))
        if self.comment is not None and self.comment in (self.delimiter, self.quote):
            raise PolicyError("comment must differ from delimiter and quote.", keys=("comment",))
        if self.comment is not None and self.quoted_newlines:
            raise PolicyError(
                "comment can't be used with quoted_newlines, since a line within quotes may start like a comment.",
                keys=("comment",),
                hint="remove comment, and skip the lines before the data by skip = 1.",
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The texts that mean NULL."""
        return (self.null,) if isinstance(self.null, str) else self.null

    def fit(self, source: str | None, text: str | None) -> Format:
        """Return this format with the defaults of a kind of text: ``"csv"``, ``"tsv"``, ``"json"`` or ``"xlsx"``.

        Raises:
            PolicyError: the source is no text, or its kind does not have one of the settings.
        """
        if text is None:
            wrong = (
                f"the source {source} is no text file, so it has no format."
                if source
                else "only text files have a format."
            )
            raise PolicyError(wrong, keys=("format",), hint="remove format.")
        others = {"json": ("csv", "xlsx"), "xlsx": ("json",)}.get(text, ("json", "xlsx"))
        wrong_keys = [key for kind in others for key in self.find_given(kind)]
        wrong_keys += [key for key in self.collect() if text == "xlsx" and key in _LETTERS]
        for key in wrong_keys:
            raise PolicyError(f"{text.upper()} has no {key}.", keys=("format", key), hint=f"remove {key}.")
        comma = self.delimiter or ("\t" if text == "tsv" else ",")
        if comma == self.quote:
            raise PolicyError("delimiter and quote must differ.", keys=("format", "quote"))
        made = copy.copy(self)
        assign(made, "delimiter", comma)
        assign(made, "escape", self.escape or self.quote)
        if text == "json":  # no line names the columns
            assign(made, "header", False)
        if text == "xlsx":  # its rows come as fields
            assign(made, "quoted_newlines", True)
        return made


_HOP = r"\s*NAME\s*\.\s*NAME\s*,\s*NAME\s*"
_START = r"\s*NAME\s*"
_DEPENDENCY = r"\s*NAME\s*->\s*NAME\s*"
_TRUNCATED = r"(?i)\s*date_trunc\s*\(\s*'([a-z]+)'\s*,\s*NAME\s*\)\s*"
_PART = r"(?i)\s*([a-z]+)\s*\(\s*NAME\s*\)\s*"


def _match(shape: str, text: str) -> re.Match[str] | None:
    """Match a whole text with names. Other scripts' characters are slow to compile, so only a text with some needs them."""
    others = "" if text.isascii() else OTHER_SCRIPTS
    name = rf'(?:"((?:[^"]|"")+)"|([A-Za-z_{others}][A-Za-z0-9_${others}]*))'
    return re.fullmatch(shape.replace("NAME", name), text)


TRUNCATED_TO = tuple(unit.name.lower() for unit in reversed(DATE_UNITS) if "date_trunc" in unit.periods)
"""The parts that ``date_trunc`` of a period may take."""
PERIOD_PARTS = tuple(unit.name.lower() for unit in DATE_UNITS if "part" in unit.periods)
"""Functions of a date that may be a period."""


@dataclass(frozen=True)
class Hop:
    """A step of the path to the unit: read ``column`` of the row of ``table`` with this ``key``, which is empty in the first."""

    table: str
    key: str
    column: str


@dataclass(frozen=True)
class Period:
    """A function of a column that divides privacy units: ``date_trunc`` with a part, one of :data:`PERIOD_PARTS`, or none."""

    function: str
    part: str
    column: str

    @property
    def kind(self) -> tuple[str, str]:
        """The function without the column; tables with equal kinds have comparable units."""
        return self.function, self.part

    @property
    def words(self) -> str:
        """The words for one period, to follow "rows".

        >>> parse_period("date_trunc('month', day)").words, parse_period("year(day)").words
        ('within one month', 'with one value of year(day)')
        """
        return f"within one {self.part}" if self.part else f"with one value of {self}"

    def __str__(self) -> str:
        name = self.column if _match(_START, self.column) else '"{}"'.format(self.column.replace('"', '""'))
        if self.part:
            return f"date_trunc('{self.part}', {name})"
        return f"{self.function}({name})" if self.function else name


def settle_paths(key: str, value: object) -> str | tuple[str, ...]:
    """Read a column or a path to the privacy unit, or a list of them; a list of one is that one."""
    if not isinstance(value, list | tuple):
        return settle_text(key, value)
    if not value or not all(isinstance(item, str) and item.strip() for item in value):
        hint = f'{key} = ["subject_id", "hadm_id -> admissions.hadm_id, subject_id"]'
        raise PolicyError(f"{key} is a text, or a list of texts.", hint=hint)
    if len({" ".join(item.split()) for item in value}) < len(value):
        raise PolicyError(f"{key} lists one path twice.", hint="list each path once.")
    return value[0] if len(value) == 1 else tuple(value)


def settle_dependencies(key: str, value: object) -> tuple[str, ...]:
    """Read a list of dependencies ``"order_number -> customer_id"``."""
    if value == ():
        return ()
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given:
        raise PolicyError(f"{key} is a list of texts.", hint=f'{key} = ["order_number -> customer_id"]')
    for item in given:
        if not isinstance(item, str) or _match(_DEPENDENCY, item) is None:
            raise PolicyError(
                f'{item!r} is not a dependency of the form "key -> unit".',
                hint=f'{key} = ["order_number -> customer_id"], one column on each side.',
            )
    return tuple(given)


def parse_dependency(text: str) -> tuple[str, str]:
    """Parse ``order_number -> customer_id`` as the two columns.

    >>> parse_dependency("order_number -> customer_id")
    ('order_number', 'customer_id')
    """
    found = _match(_DEPENDENCY, text)
    assert found is not None
    return _unquoted(found[1], found[2]), _unquoted(found[3], found[4])


def parse_path(table: str, text: str) -> tuple[Hop, ...]:
    """Parse ``order_id -> orders.id, user_id`` as hops; a text without an arrow is one column's name."""
    if "->" not in text:
        found = _match(_START, text)
        return (Hop(table, "", _unquoted(found[1], found[2]) if found else text),)
    first, *rest = text.split("->")
    start = _match(_START, first)
    steps = [_match(_HOP, step) for step in rest]
    if start is None or None in steps:
        raise PolicyError(
            f"the privacy unit of {table} is not a column or a path.",
            keys=("privacy_unit",),
            hint='a path reads "order_id -> orders.id, user_id".',
        )
    hops = [Hop(table, "", _unquoted(start[1], start[2]))]
    for step in steps:
        assert step is not None
        hops.append(
            Hop(_unquoted(step[1], step[2]), _unquoted(step[3], step[4]), _unquoted(step[5], step[6]))
        )
    return tuple(hops)


def _unquoted(quoted: str | None, bare: str | None) -> str:
    return bare if quoted is None and bare is not None else (quoted or "").replace('""', '"')


def settle_period(key: str, value: object) -> str:
    """Read the expression of a period, and return its canonical spelling."""
    text = settle_text(key, value)
    try:
        return str(parse_period(text))
    except ValueError as error:
        raise PolicyError(
            f"{text!r} is no period{error}.",
            hint=f"""{key} = "date_trunc('month', day)", or {", ".join(PERIOD_PARTS)} of a column, or a column.""",
        ) from None


@lru_cache(1000)
def parse_period(text: str) -> Period:
    """Parse the expression of a period: a closed list of functions of one column.

    Raises:
        ValueError: it is not a period.

    >>> parse_period("DATE_TRUNC('Month', day)")
    Period(function='date_trunc', part='month', column='day')
    """
    if found := _match(_TRUNCATED, text):
        if fold(found[1]) not in TRUNCATED_TO:
            raise ValueError(f": date_trunc takes {', '.join(TRUNCATED_TO)}")
        return Period("date_trunc", fold(found[1]), _unquoted(found[2], found[3]))
    if found := _match(_PART, text):
        if fold(found[1]) not in PERIOD_PARTS:
            raise ValueError(f": {found[1]} can't make a period")
        return Period(fold(found[1]), "", _unquoted(found[2], found[3]))
    if found := _match(_START, text):
        return Period("", "", _unquoted(found[1], found[2]))
    raise ValueError("")


WORDS_FOR_DAYS = {"today": 0, "yesterday": -1}
"""The words that ``data_until`` takes instead of a date, as days from today."""
CLOSED = "closed"
"""The word for a ``data_until`` on the last day before ``closed_before``."""
_DAYS_AGO = re.compile(r"\s*today(?:\s*-\s*([0-9]{1,4})\s+days?)?\s*", re.IGNORECASE)


def settle_first_day(key: str, value: object) -> datetime.date:
    """Read a date."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.date.fromisoformat(value)
    if type(value) is not datetime.date or not 1000 <= value.year < 9000:
        raise PolicyError(f"{key} must be a date.", hint=f"{key} = 2024-01-01")
    return value


def settle_last_day(key: str, value: object) -> datetime.date | str:
    """Read a date, ``"today"``, ``"yesterday"`` or ``"closed"``."""
    if isinstance(value, str) and value in (*WORDS_FOR_DAYS, CLOSED):
        return value
    try:
        return settle_first_day(key, value)
    except PolicyError:
        hint = f'{key} = 2025-12-31, or {key} = "yesterday"'
        raise PolicyError(f'{key} must be a date, "today", "yesterday" or "closed".', hint=hint) from None


def settle_closing_day(key: str, value: object) -> datetime.date | str:
    """Read a date, ``"today"`` or ``"today - 7 days"``."""
    found = _DAYS_AGO.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        ago = int(found[1] or 0)
        return f"today - {ago} day{'s' if ago > 1 else ''}" if ago else "today"
    try:
        return settle_first_day(key, value)
    except PolicyError:
        hint = f'{key} = 2025-06-01, or {key} = "today - 7 days"'
        raise PolicyError(f'{key} must be a date, or "today - 7 days".', hint=hint) from None


@dataclass(frozen=True)
class Table(Section):
    """A table that analysts may name.

    Args:
        name: its name in SQL.
        public: it has no private data; it is joined, read and shown unchanged.
        source: a file, a glob, or a table of the database; by default the database's table of that name.
        privacy_unit: the unit whose presence is hidden: ``"ROW"``, a column, or a path
            ``"order_id -> orders.id, user_id"`` (follow order_id to the row of orders with that id; its user_id is the
            unit). The first path of a list decides the unit of a row. By the others the owner asserts that they lead to
            that unit, too, which allows joins by them; their exact queries still demand equal units.
        determines: columns each of whose values belongs to one unit, as ``["order_number -> customer_id"]``. This
            allows joins by them; their exact queries still demand equal units.
        privacy_period: a function of the row that divides units, as ``"date_trunc('month', day)"``: one person's rows
            within one month are then a unit. A table whose path leads here takes the period of the row that it finds.
        data_from, data_until: the first and the last day whose rows exist for statements, with ``per_period`` in the budget.
            Both are public. The last may be ``"today"`` or ``"yesterday"``, in the server's time zone, or ``"closed"``.
        closed_before: the owner's word that rows of earlier days no longer change, as a date or ``"today - 7 days"``: stored
            answers about them stay valid when the data change. Late rows are not in these.
        max_rows: the most rows of one unit that count in one statement (1 if the unit is ROW). It is a default: a query
            may name another cap. For a cap that is found privately (``max_rows_contributed = AUTO``) it is the ceiling.
        max_rows_per_group: the most rows of one unit that count in one group. Without groups, all rows are one group.
        max_groups: the most groups that one unit counts in.
        columns: types, bounds and public values, by column name.
        format: the format of a text source.
        version: the version of the data, such as a date. By default, the files' sizes and times before each statement; tables of
            an open DuckDB connection have the version of the time when the session opened.
        max_fan_out: the most public rows that one private row may join; 10,000 by default.
        max_unit_rows: the most rows that one unit may have after its rows are joined with each other; a million by default.
        description: one line that every client shows; it has no effect on answers and charges.
    """

    name: str = declare_field(validate.settle_name, MISSING)
    public: bool = declare_field(validate.settle_flag, False)
    source: str | None = declare_field(validate.settle_text)
    privacy_unit: str | tuple[str, ...] | None = declare_field(settle_paths, only="private", todo=True)
    determines: tuple[str, ...] = declare_field(settle_dependencies, (), only="private")
    privacy_period: str | None = declare_field(settle_period, only="private")
    data_from: datetime.date | None = declare_field(settle_first_day, only="private")
    data_until: datetime.date | str | None = declare_field(settle_last_day, only="private")
    closed_before: datetime.date | str | None = declare_field(settle_closing_day, only="private")
    max_rows: int | None = declare_field(validate.settle_whole, only="private", todo=True)
    max_rows_per_group: int | None = declare_field(validate.settle_whole, only="private", todo=True)
    max_groups: int | None = declare_field(validate.settle_whole, only="private", todo=True)
    columns: Mapping[str, Column] = declare_field(validate.settle_names, sections=Column)
    format: Format | None = declare_field(None, section=Format)
    version: str | None = declare_field(validate.settle_text)
    max_fan_out: int | None = declare_field(validate.settle_whole, only="private")
    max_unit_rows: int | None = declare_field(validate.settle_whole, only="private")
    description: str | None = declare_field(validate.settle_description)
    _parted: ClassVar[Period | None] = None

    def _check_together(self) -> None:
        if self.format is not None:
            self.format.fit(self.source, self.text)
            assign(self, "format", None if self.format == Format() else self.format)
        if self.source is not None and "://" in self.source:
            raise PolicyError(
                f"the source of {self.name} is not a local file or table.",
                keys=("source",),
                hint="copy it into the policy's folder, or into the database.",
            )
        if self.public:
            for key in self.find_given("private"):
                raise PolicyError(
                    f"the table {self.name} is public, so it has no {key}.",
                    keys=(key,),
                    hint=f"remove public = true, or remove {key}.",
                )
        elif self.privacy_unit is None:
            raise PolicyError(
                f"the table {self.name} has no privacy unit.",
                keys=("privacy_unit",),
                hint='add privacy_unit = "<the column that identifies the person>", or public = true.',
            )
        elif self.row_level:
            for key, cap in self.caps.items():
                if key != "max_groups" and cap not in (None, 1):
                    raise PolicyError(
                        f"the privacy unit of {self.name} is the row, so {key} is 1.",
                        keys=(key,),
                        hint=f"remove {key}, or name the column that identifies the person in privacy_unit.",
                    )
            assign(self, "max_rows", 1)
        self._check_claims()

    def _check_claims(self) -> None:
        """Check periods, dependencies, and paths to the unit after the first."""
        starts = [fold(path[0].column) for path in self.unit_paths]
        if "row" in starts:
            raise PolicyError(
                f"one path to the privacy unit of {self.name} is ROW, so there can be no other.",
                keys=("privacy_unit",),
                hint='privacy_unit = "ROW", alone.',
            )
        if len(set(starts)) < len(starts):
            raise PolicyError(
                f"two paths to the privacy unit of {self.name} start from one column.",
                keys=("privacy_unit",),
                hint="keep the one that decides the unit of a row.",
            )
        if self.privacy_period is not None and (self.row_level or len(self.unit_path) > 1):
            last = "each row is a unit" if self.row_level else "its path leads to another table's rows"
            raise PolicyError(
                f"{self.name} can't have a privacy period: {last}.",
                keys=("privacy_period",),
                hint="remove privacy_period."
                if self.row_level
                else f"declare privacy_period in {self.unit_path[-1].table}; {self.name} takes its periods.",
            )
        ends = [self.unit_path[at].column for at in (0, -1)] if self.unit_path else []
        for key, unit in map(parse_dependency, self.determines):
            if fold(unit) not in map(fold, ends) or fold(key) in map(fold, ends):
                said = f"its privacy unit is {ends[-1]}" if ends else "each of its rows is a unit"
                raise PolicyError(
                    f"{self.name} can't determine {unit} by {key}: {said}.",
                    keys=("determines",),
                    hint=f'determines = ["{key} -> {ends[-1]}"]'
                    if ends and fold(key) not in map(fold, ends)
                    else "remove determines.",
                )

    @property
    def caps(self) -> dict[str, int | None]:
        """The caps by name; None if not given."""
        return {
            "max_rows": self.max_rows,
            "max_rows_per_group": self.max_rows_per_group,
            "max_groups": self.max_groups,
        }

    @property
    def unit_text(self) -> str | None:
        """The column or path that decides the unit of a row: the only one, or the first of a list."""
        return self.privacy_unit[0] if isinstance(self.privacy_unit, tuple) else self.privacy_unit

    @property
    def row_level(self) -> bool:
        """Whether each row is its own privacy unit."""
        return isinstance(self.privacy_unit, str) and fold(self.privacy_unit.strip()) == "row"

    @property
    def unit_paths(self) -> tuple[tuple[Hop, ...], ...]:
        """The paths from a row to its privacy unit: the first decides, the owner asserts the others."""
        if self.privacy_unit is None or self.row_level:
            return ()
        given = (self.privacy_unit,) if isinstance(self.privacy_unit, str) else self.privacy_unit
        return tuple(parse_path(self.name, text) for text in given)

    @property
    def unit_path(self) -> tuple[Hop, ...]:
        """The path from a row to its privacy unit, one hop for a column; empty for public and row-level tables.

        >>> Table("items", privacy_unit="order_id -> orders.id, user_id").unit_path[1]
        Hop(table='orders', key='id', column='user_id')
        """
        return next(iter(self.unit_paths), ())

    @property
    def declared_period(self) -> Period | None:
        """The period that this table declares."""
        return None if self.privacy_period is None else parse_period(self.privacy_period)

    @property
    def period(self) -> Period | None:
        """The period that divides its units: its own or, within a policy, that of the table at the end of its path."""
        return self._parted or self.declared_period

    def find_days(self, today: datetime.date) -> Days:
        """Return the days whose rows exist for statements; none without ``data_from`` and ``data_until``."""
        if self.data_from is None or self.data_until is None:
            return ()
        last = self.data_until
        if not isinstance(last, str):
            end = last.toordinal() + 1
        else:
            end = self.find_closed(today) if last == CLOSED else today.toordinal() + WORDS_FOR_DAYS[last] + 1
        return unite([(self.data_from.toordinal(), end)])

    def find_closed(self, today: datetime.date) -> int:
        """Return the day, as an ordinal, before which rows no longer change; 0 without ``closed_before``."""
        before = self.closed_before
        found = _DAYS_AGO.fullmatch(before) if isinstance(before, str) else None
        if found is not None:
            return today.toordinal() - int(found[1] or 0)
        return before.toordinal() if isinstance(before, datetime.date) else 0

    def check_budget(self, per_period: bool) -> None:
        """Check that the table's period may have budgets of its own; PolicyError if not, with the table's key."""
        period = self.declared_period
        ends = {
            "data_from": self.data_from,
            "data_until": self.data_until,
            "closed_before": self.closed_before,
        }
        given = next((key for key, end in ends.items() if end is not None), None)
        if given is not None and (period is None or not per_period):
            needs = "privacy_period" if period is None else "per_period = true in [budget]"
            raise PolicyError(
                f"{given} of {self.name} needs {needs}.", keys=(given,), hint=f"add it, or remove {given}."
            )
        if period is None or not per_period:
            return
        if period.part not in PAYING_PARTS:
            raise PolicyError(
                f"a budget per period needs periods of whole days, and {self.name} has {period}.",
                keys=("privacy_period",),
                hint=f"privacy_period = \"date_trunc('month', {period.column})\", or {', '.join(PAYING_PARTS)}.",
            )
        for key, example in (("data_from", "2024-01-01"), ("data_until", '"yesterday"')):
            if ends[key] is None:
                raise PolicyError(
                    f"{self.name} has a budget per period, and no {key}.",
                    keys=("privacy_period",),
                    hint=f"add {key} = {example}: a public date, which is not read off the data.",
                )
        if isinstance(self.data_until, datetime.date) and not self.find_days(self.data_until):
            raise PolicyError(f"data_until of {self.name} is before data_from.", keys=("data_until",))
        if self.data_until == CLOSED and self.closed_before is None:
            raise PolicyError(
                f'data_until of {self.name} is "closed", and there is no closed_before.',
                keys=("data_until",),
                hint='add closed_before = "today - 7 days", or a date.',
            )

    def parted_by(self, period: Period | None) -> Table:
        """Return the table with the period of the table at the end of its path."""
        made = copy.copy(self)
        assign(made, "_parted", period)
        return made

    @property
    def unit_words(self) -> str:
        """The unit in words: ``"all rows of any one user_id within one month"``."""
        path = self.unit_path
        if not path:
            return "any one row"
        return f"all rows of any one {path[-1].column}{f' {self.period.words}' if self.period else ''}"

    @property
    def unit_label(self) -> str:
        """The column or path of the privacy unit, with its period; empty for public and row-level tables without one."""
        return f"{self.unit_text or ''}{f' {self.period.words}' if self.period else ''}"

    @property
    def determining(self) -> frozenset[str]:
        """The folded columns each of whose values belongs to one unit, as the owner asserts."""
        return frozenset(fold(parse_dependency(text)[0]) for text in self.determines)

    @property
    def unit_domain(self) -> str:
        """A name of the kind of unit, shared by tables whose units are the same people."""
        path = self.unit_path
        if not path:
            return f"row of {fold(self.name)}"
        part = "" if self.period is None else " by " + " ".join(filter(None, self.period.kind))
        return f"{fold(path[-1].column)}{part}"

    @property
    def file(self) -> bool:
        """Whether the source is a file or a glob rather than a table of the database."""
        source = "" if self.source is None else self.source.lower()
        return source.endswith(FILE_ENDINGS) or "/" in source or "*" in source

    @property
    def text(self) -> str | None:
        """The kind of text (``"csv"``, ``"tsv"``, ``"json"``, ``"xlsx"``); None for a source with types of its own."""
        source = "" if self.source is None else self.source.lower()
        return next((kind for ending, kind in TEXT_KINDS.items() if source.endswith(ending)), None)

    @property
    def several(self) -> bool:
        """Whether the source is a pattern, which may match several files."""
        return self.file and any(letter in (self.source or "") for letter in "*?[")

    def path(self, base: Path | None) -> Path:
        """Return the path of the source file, relative to the policy's folder."""
        return (base or Path()) / Path(self.source or "").expanduser()
