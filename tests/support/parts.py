"""The parts of units and of values that an exact text reads, by the text itself."""

from __future__ import annotations

import re

from dpsql.mechanisms.unit_parts import PARTS


def count_parts(sql: str) -> int:
    """Return how many parts a text reads: all, where it names none."""
    found = re.search(r">> 58 AS UTINYINT\) BETWEEN (\d+) AND (\d+)", sql)
    return int(found[2]) - int(found[1]) + 1 if found else PARTS
