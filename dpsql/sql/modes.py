"""The modes of SELECT WITH: which options each knows, and what binds its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpsql.sql.dp.block import dp_block
from dpsql.sql.parse.options import COMMON_OPTIONS, Readers
from dpsql.sql.ptr import block as ptr
from dpsql.sql.selection.thresholds import PROBE_OPTIONS, probe_block
from dpsql.sql.subsample import block as subsample


def readers_of(mode: str, thresholds: Mapping[str, Any]) -> Readers | None:
    """The options of a mode; None when there is no such mode."""
    known = {
        "DP": COMMON_OPTIONS,
        "DIFFERENTIAL_PRIVACY": COMMON_OPTIONS,
        "PTR": ptr.OPTIONS,
        "SUBSAMPLE": subsample.OPTIONS,
    }
    if mode.lower() in thresholds:
        return PROBE_OPTIONS
    return known.get(mode.upper())


BLOCKS: dict[str, Callable[..., object]] = {
    "DP": dp_block,
    "DIFFERENTIAL_PRIVACY": dp_block,
    "PTR": ptr.ptr_block,
    "PROBE": probe_block,
}
