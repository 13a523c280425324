"""The shape of an exact text: the text without its values, which don't affect names and counts of relations."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

_SEEN = 64
"""The most cached texts: one statement looks each of its own up several times."""

_QUOTED = r"'(?:[^']|'')*'|" + r'"(?:[^"]|"")*"'
_VALUES = re.compile(
    r"""(?ix)
    (?: \b(?:date|time|timestamp|timestamptz|interval)\s+'(?:[^']|'')*'
      | \b(?:decimal|numeric|varchar)\s*\([^)]*\)
      | \b\d+\s+(?:preceding|following)\b
      | "(?:[^"]|"")*"
      | \$?[a-z_][a-z0-9_]*
      | [\s(),=<>*+/|:%!\[\]-]+ | \.(?!\d)
    )++
    | (?P<value>'(?:[^']|'')*' | \d+(?:\.\d*)?(?:e[+-]?\d+)? | \.\d+(?:e[+-]?\d+)?)
    """
)
"""Runs of other text, and values."""
_PARAMETERS = re.compile(rf"{_QUOTED}|\$value(\d+)\b")
_NAMED = re.compile(rf"{_QUOTED}|\$([A-Za-z0-9_]+)")


@lru_cache(maxsize=_SEEN)
def strip_values(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a text with parameters in place of its values, and the values, which don't affect names.

    Values in the syntax are kept: of a typed literal, in a type, at the ends of a frame.

    >>> strip_values("SELECT a + 1.5 AS b1 FROM t WHERE c = 'x' AND d > DATE '2020-01-01'")
    ("SELECT a + $value0 AS b1 FROM t WHERE c = $value1 AND d > DATE '2020-01-01'", ('1.5', "'x'"))
    """
    values: list[str] = []

    def parameter(found: re.Match[str]) -> str:
        if found["value"] is None:
            return found[0]
        values.append(found["value"])
        return f"$value{len(values) - 1}"

    return _VALUES.sub(parameter, sql), tuple(values)


def count_parameters(sql: str) -> Counter[str]:
    """Return the number of occurrences of each parameter in a text.

    >>> count_parameters("SELECT $a + $a, '$a'")
    Counter({'a': 2})
    """
    return Counter(filter(None, _NAMED.findall(sql)))


@lru_cache(maxsize=_SEEN)
def restore_values(sql: str, values: tuple[str, ...]) -> str:
    """Return a text with its values restored."""
    return _PARAMETERS.sub(lambda found: values[int(found[1])] if found[1] else found[0], sql)


@lru_cache(maxsize=_SEEN)
def number_parameters(sql: str) -> tuple[str, tuple[int, ...]]:
    """Return a text with its parameters renumbered in order, and their former numbers.

    A normal form drops unused columns, and their values.

    >>> number_parameters("SELECT $value2 + $value0 + $value2")
    ('SELECT $value0 + $value1 + $value0', (2, 0))
    """
    used: dict[int, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"$value{used.setdefault(int(found[1]), len(used))}" if found[1] else found[0]

    return _PARAMETERS.sub(number, sql), tuple(used)
