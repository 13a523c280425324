"""What a policy's parts must be: names, numbers, bounds, values, and the path to a privacy unit.

Each check gives the settled value or raises PolicyError with the key it speaks of and something to write instead.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from dpsql.errors import PolicyError
from dpsql.policy.toml import decimal, exact

Value = str | int | bool | Decimal | datetime.date | datetime.datetime
V = TypeVar("V")

_UPPER = {upper: upper + 32 for upper in range(65, 91)}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = r'(?:"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_$]*))'
_HOP = re.compile(rf"\s*{_NAME}\s*\.\s*{_NAME}\s*,\s*{_NAME}\s*")
_START = re.compile(rf"\s*{_NAME}\s*")


def fold(name: str) -> str:
    """DuckDB's equality of names: case does not matter, for ASCII letters only.

    >>> fold("Visits") == fold("VISITS"), fold("\\u212a") == fold("k")
    (True, False)
    """
    return name.translate(_UPPER)


class Names(Mapping[str, V]):
    """A read-only mapping whose keys are found whatever their case (ASCII), in the order they were given."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = {fold(name): (name, value) for name, value in items.items()}

    def __getitem__(self, name: str) -> V:
        return self._items[fold(name)][1]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and fold(name) in self._items

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.values()))

    def __repr__(self) -> str:
        return repr(dict(self._items.values()))


@dataclass(frozen=True)
class Hop:
    """One step of the path to the privacy unit: in ``table``, found where ``key`` matches, read ``column``.

    The first hop starts in the table itself; its key is empty.
    """

    table: str
    key: str
    column: str


def settle(target: object, key: str, value: object) -> None:
    object.__setattr__(target, key, value)  # frozen values settle their own fields, once


def distinct(names: Mapping[str, Any], where: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if fold(name) in seen:
            raise PolicyError(f"{where} has the {what} {name} twice (case does not matter).", keys=(name,))
        seen.add(fold(name))


def name_of(name: str) -> str:
    """Refuses a table's name that is not plain: letters, digits and _ of ASCII."""
    if _PLAIN.fullmatch(name) is None:
        raise PolicyError(f"{name!r} can't be the name of a table.", hint="use letters, digits and _.")
    return name


def fraction(key: str, value: object) -> Fraction:
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    with contextlib.suppress(ValueError):
        if isinstance(value, float):
            return exact(repr(value))
        if isinstance(value, str) and "/" in value:
            return exact(value)
    said = f'"{value}"' if isinstance(value, str) else repr(value)
    if not isinstance(value, str | float | bool) and len(said) > 20:
        said = "what is written"
    hint = (
        f"write {key} = 0.1, without quotes."
        if isinstance(value, str)
        else "write plain decimal digits, like 0.1 or 1e-6."
    )
    raise PolicyError(f"{key} is not a number: {said}.", keys=(key,), hint=hint)


def positive(key: str, value: object) -> Fraction:
    number = fraction(key, value)
    if number <= 0:
        raise PolicyError(f"{key} must be more than 0.", keys=(key,), hint=f"{key} = 0.1")
    return number


def probability(key: str, value: object) -> Fraction:
    number = fraction(key, value)
    if not 0 <= number < 1:
        raise PolicyError(
            f"{key} must be at least 0 and less than 1.",
            keys=(key,),
            hint="far less than one over the number of privacy units, like 1e-6.",
        )
    return number


def part(key: str, value: object) -> Fraction:
    """A part of a whole: at least 0, and less than 1."""
    number = fraction(key, value)
    if not 0 <= number < 1:
        raise PolicyError(f"{key} must be at least 0 and less than 1.", keys=(key,), hint=f"{key} = 0.5")
    return number


def whole(key: str, value: object) -> None:
    """Refuses what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise PolicyError(f"{key} is a whole number, at least 1.", keys=(key,), hint=f"{key} = 1")


class Moment(Fraction):
    """A bound that is written as a date or a time: as a number, seconds since 1970 (of a time, since midnight).

    >>> Moment(datetime.date(1970, 1, 2)) == 86400, str(Moment(datetime.date(1970, 1, 2)))
    (True, '1970-01-02')
    """

    __slots__ = ("written",)
    written: datetime.date | datetime.time

    def __new__(cls, written: datetime.date | datetime.time) -> Moment:
        if isinstance(written, datetime.time):
            since = datetime.timedelta(
                hours=written.hour, minutes=written.minute, seconds=written.second, microseconds=written.microsecond
            )  # fmt: skip
        elif isinstance(written, datetime.datetime):
            since = written - datetime.datetime(1970, 1, 1)
        else:
            since = written - datetime.date(1970, 1, 1)
        made = super().__new__(cls, since // datetime.timedelta(microseconds=1), 10**6)
        made.written = written
        return made

    @property
    def kind(self) -> str:
        return "time" if isinstance(self.written, datetime.time) else "date"

    def __str__(self) -> str:
        return self.written.isoformat(*([" "] if isinstance(self.written, datetime.datetime) else []))

    def __repr__(self) -> str:
        return f"Moment({self.written!r})"

    def __copy__(self) -> Moment:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Moment:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Moment, (self.written,)


def bound_text(end: Fraction) -> str:
    """A bound for the eye: as it was written where that is a date or a time."""
    return str(end) if isinstance(end, Moment) else f"{float(end):g}"


def _end(item: object) -> Fraction:
    if isinstance(item, Moment):
        return item
    if isinstance(item, datetime.date | datetime.time):
        if getattr(item, "tzinfo", None) is not None:
            raise PolicyError(
                "bounds have no time zone.", keys=("bounds",), hint="bounds = [2020-01-01, 2020-12-31]"
            )
        return Moment(item)
    return fraction("bounds", item)


def bounds_of(value: object) -> tuple[Fraction, Fraction]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise PolicyError(
            "bounds are a lowest and a highest number.", keys=("bounds",), hint="bounds = [0, 100]"
        )
    low, high = (_end(item) for item in value)
    if getattr(low, "kind", "number") != getattr(high, "kind", "number"):
        raise PolicyError("bounds are two numbers, two dates or two times.", keys=("bounds",))
    if low > high:
        raise PolicyError(
            "the bounds are reversed: the lowest comes first.",
            keys=("bounds",),
            hint="swap the two numbers of bounds.",
        )
    return low, high


def values_of(value: object) -> tuple[Value, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise PolicyError(
            "values are a list with at least one value.", keys=("values",), hint='values = ["A", "B"]'
        )
    settled: list[Value] = []
    kinds: set[str] = set()
    for item in value:
        kind, plain = _value(item)
        if plain in settled and kind in kinds:
            raise PolicyError(f"values lists {item} twice.", keys=("values",), hint="list each value once.")
        kinds.add(kind)
        settled.append(plain)
    if len(kinds) > 1:
        raise PolicyError(f"values mixes {' and '.join(sorted(kinds))}.", keys=("values",))
    return tuple(settled)


def _value(item: object) -> tuple[str, Value]:
    """What kind of value it is, and the value; a fraction becomes the decimal that was written."""
    if isinstance(item, bool):
        return "booleans", item
    if isinstance(item, int | Decimal):
        return "numbers", item
    if isinstance(item, Fraction | float):
        number = item if isinstance(item, Fraction) else fraction("values", item)
        return "numbers", Decimal(decimal(number) or "NaN")
    if isinstance(item, str):
        return "text", item
    if isinstance(item, datetime.date):
        return ("times" if isinstance(item, datetime.datetime) else "dates"), item
    raise PolicyError(
        f"values holds something that is not text, a number, a boolean or a date: {item!r}.", keys=("values",)
    )


def path_of(table: str, text: str) -> tuple[Hop, ...]:
    """``order_id -> orders.id, user_id`` as hops; a text without an arrow is one column's name."""
    if "->" not in text:
        found = _START.fullmatch(text)
        return (Hop(table, "", _unquoted(found[1], found[2]) if found else text),)
    first, *rest = text.split("->")
    start = _START.fullmatch(first)
    steps = [_HOP.fullmatch(step) for step in rest]
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
