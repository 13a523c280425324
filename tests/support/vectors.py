"""Numbers that were worked out independently of this code."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any


def vectors(name: str) -> Any:
    return json.loads(
        (Path(__file__).parents[1] / "published" / "vectors" / f"vectors_{name}.json").read_text()
    )


def exact(value: float | str) -> Fraction:
    """The decimal that was written, not the float nearest to it."""
    return Fraction(str(value))
