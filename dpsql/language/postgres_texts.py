"""Values in texts as PostgreSQL writes them: intervals, ``'3 days 02:00:00'``, and arrays, ``'{a,NULL,"b c"}'``.

Both are read here for statements (:func:`write_values`) and for parameters (:mod:`dpsql.server.postgres.types`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.date_units import DATE_UNITS, UNIT_MONTHS, UNIT_SECONDS
from dpsql.language.tokens import replace_token, token_error

MAX_ITEMS = 10_000
"""Most items of one array."""
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"\s*|([^"\s,{}][^,{}]*))(,|\Z)', re.DOTALL)
_SECOND = 10**6
_UNITS = [
    (int(UNIT_SECONDS[unit.name] * _SECOND), unit.name)
    for unit in DATE_UNITS
    if unit.clock or unit.name == "DAY"
]
"""Days and the units of a clock with their microseconds, the longest first."""
_MICROS = {
    "us": 1,
    "ms": 1000,
    "s": _SECOND,
    "sec": _SECOND,
    "m": 60 * _SECOND,
    "min": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_MICROS |= {"d": 86_400 * _SECOND, "w": 7 * 86_400 * _SECOND}
_MICROS |= {name.lower(): int(UNIT_SECONDS[name] * _SECOND) for name in UNIT_SECONDS.keys() - UNIT_MONTHS}
_MONTHS = {"mon": 1, "y": 12, **{name.lower(): count for name, count in UNIT_MONTHS.items()}}
_PART = re.compile(r"([+-]?[0-9]{1,18})(?:\.([0-9]{1,6}))? ?([a-z]+)(?: |\Z)")
_CLOCK = re.compile(r"([+-]?)([0-9]{1,9}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?")
_PARTS = re.compile(r" *(?:[+-]?[0-9.]+ *[a-zA-Z]+ *)+")
_LONGEST = 9_999_999
"""The greatest number of units that an interval of a statement may have."""


def read_interval(text: str) -> tuple[int, int]:
    """Return the months and the microseconds of an interval; ValueError if it is none.

    >>> read_interval("1 year 2 mons"), read_interval("-1 day 23:00:00"), read_interval("300s")
    ((14, 0), (0, -3600000000), (0, 300000000))
    """
    months = micros = at = 0
    rest = text.strip().lower()
    while at < len(rest):
        if (clock := _CLOCK.fullmatch(rest, at)) is not None:
            sign, hours, minutes, seconds, fraction = clock.groups()
            span = (int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)) * _SECOND + _scale(fraction)
            return months, micros + (-span if sign == "-" else span)
        found = _PART.match(rest, at)
        if found is None:
            raise ValueError(text)
        whole, fraction, word = found.groups()
        name = word if word in _MICROS or word in _MONTHS else word.removesuffix("s")
        if name in _MONTHS and not int(fraction or 0):
            months += int(whole) * _MONTHS[name]
        elif name in _MICROS:
            part = _scale(fraction) * _MICROS[name] // _SECOND
            micros += int(whole) * _MICROS[name] + (-part if whole[0] == "-" else part)
        else:
            raise ValueError(text)
        at = found.end()
    if not rest:
        raise ValueError(text)
    return months, micros


def _scale(fraction: str | None) -> int:
    """Return the millionths of a decimal fraction's digits."""
    return int((fraction or "0").ljust(6, "0"))


def split_array(text: str) -> list[str | None]:
    """Return the items of an array of one dimension, None for NULL; ValueError if it is none.

    Items with special characters are quoted, and blanks around an item mean nothing.

    >>> split_array('{1,NULL,"a b"}')
    ['1', None, 'a b']
    """
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(text)
    found: list[str | None] = []
    body, at, sign = text[1:-1], 0, ","
    while sign and (found or body.strip()):
        item = _ITEM.match(body, at)
        if item is None or len(found) == MAX_ITEMS:
            raise ValueError(text)
        quoted, bare, sign = item.groups()
        value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if bare is None else bare.rstrip()
        found.append(None if bare is not None and value.upper() == "NULL" else value)
        at = item.end()
    return found


def write_values(nodes: Iterable[exp.Expr]) -> None:
    """Replace intervals and arrays in texts by expressions of theirs, in place; others stay for the binder to refuse.

    ``'7 days'::INTERVAL``, ``time_bucket('300s', t)``, ``'{1,2}'::INTEGER[]``, ``= ANY('{a,b}')``; in ``[1, 2]::BIGINT[]``, each
    value is cast.
    """
    for node in nodes:
        held = node.this.unnest() if isinstance(node, exp.Any) else node.this
        if type(node) is exp.Cast and isinstance(held, exp.Array) and held.expressions:
            if node.to.this == exp.DType.ARRAY and all(
                isinstance(item, _CONSTANTS) for item in held.expressions
            ):
                node.replace(exp.Array(expressions=[_cast_item(item, node.to) for item in held.expressions]))
            continue
        if not (isinstance(held, exp.Literal) and held.is_string):
            continue
        made: exp.Expr | None = None
        try:
            if isinstance(node, exp.Any):
                made = exp.Any(this=exp.Paren(this=_write_array(held, None)))
            elif isinstance(node, exp.DateBin):
                node.set("this", write_interval(held) or held)
            elif node.args["to"].this == exp.DType.INTERVAL:
                made = write_interval(held)
            elif node.args["to"].this == exp.DType.ARRAY and len(node.args["to"].expressions) == 1:
                made = _write_array(held, node.args["to"].expressions[0])
        except ValueError:
            continue
        if made is not None:
            made.meta.update(held.meta)
            node.replace(made)


_CONSTANTS = (exp.Literal, exp.Boolean, exp.Neg, exp.Cast, exp.Null)
_TEXTS = (exp.DType.TEXT, exp.DType.VARCHAR)


def _cast_item(item: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """Return an item of a list that is cast to a type; NULL and texts that stay texts need no cast."""
    to = kind.expressions[0]
    if isinstance(item, exp.Null) or (item.is_string and isinstance(to, exp.DataType) and to.this in _TEXTS):
        return item
    return exp.Cast(this=item, to=to.copy())


def write_interval(held: exp.Expr) -> exp.Expr | None:
    """Return a text as an interval of one unit; None if it needs several. ValueError if it is none."""
    found = find_unit(held.name)
    if found is None:
        return None
    made = exp.Interval(this=exp.Literal.string(str(found[0])), unit=exp.Var(this=found[1]))
    made.this.meta.update(held.meta)
    return made


def find_unit(text: str) -> tuple[int, str] | None:
    """Return an interval as a count of one unit, the largest; None if it needs several. ValueError if it is none.

    >>> find_unit("1 year 2 mons"), find_unit("1 day 02:00"), find_unit("1 month 2 days")
    ((14, 'MONTH'), (26, 'HOUR'), None)
    """
    months, micros = read_interval(text)
    found = [(months, "MONTH")] if months and not micros else []
    if not months:
        found = [(micros // size, unit) for size, unit in _UNITS if micros % size == 0]
    return found[0] if found and abs(found[0][0]) <= _LONGEST else None


def _write_array(held: exp.Expr, kind: exp.Expr | None) -> exp.Expr:
    """Return a list of texts, or of these cast to a type."""
    made: list[exp.Expr] = []
    for item in split_array(held.name):
        value: exp.Expr = exp.Null() if item is None else exp.Literal.string(item)
        value.meta.update(held.meta)
        made.append(value if kind is None or item is None else exp.Cast(this=value, to=kind.copy()))
    return exp.Array(expressions=made)


def spell_clocks(tokens: Sequence[Token]) -> list[Token]:
    """Write the time in ``INTERVAL '3 days 02:00:00'`` as microseconds; ParseError if sqlglot would drop another part."""
    out = list(tokens)
    for place, (word, held) in enumerate(itertools.pairwise(tokens), 1):
        if word.token_type != TokenType.INTERVAL or held.token_type != TokenType.STRING:
            continue
        parts = _PARTS.match(held.text)
        rest = held.text[parts.end() :] if parts is not None else ""
        if parts is None or not rest:
            continue
        if _CLOCK.fullmatch(rest.strip()) is None:
            hint = "write INTERVAL '3 days 02:00:00', or INTERVAL 3 DAY."
            raise token_error(held, "this interval can't be read.", hint)
        micros = read_interval(rest)[1]
        out[place] = replace_token(held, TokenType.STRING, f"{parts[0]}{micros} microseconds")
    return out
