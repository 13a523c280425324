"""Thirty statements over the clinic of :mod:`tests.support.served`, that every client asks: each gives the same table everywhere.

None is stored before the first client asks; whoever comes after is shown the stored answers, for free, so tables can be compared.
"""

from __future__ import annotations

import decimal
import math
from typing import Any

from tests.support.case_files import read_part

THIRTY: tuple[str, ...] = tuple(read_part(__file__, "THIRTY"))


def same(mine: Any, theirs: Any) -> bool:
    """Tell whether two values are one, whatever class a number has."""
    if isinstance(mine, bool) or isinstance(theirs, bool) or mine is None or theirs is None:
        return bool(mine == theirs)
    numbers = (int, float, decimal.Decimal)
    if isinstance(mine, numbers) and isinstance(theirs, numbers):
        return math.isclose(mine, theirs, rel_tol=1e-6)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(same(a, b) for a, b in zip(mine, theirs, strict=True))
    return bool(mine == theirs)
