"""The modes of SELECT WITH: which options each knows, and what binds its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from dpsql.sql.dp.block import dp_block
from dpsql.sql.dp.registry import TABLE
from dpsql.sql.parse.options import COMMON_OPTIONS, Readers, call_of
from dpsql.sql.ptr import block as ptr
from dpsql.sql.selection.thresholds import PROBE_OPTIONS, probe_block
from dpsql.sql.subsample import block as subsample

MECHANISMS = ("ABOVE_THRESHOLD", "EXPMECH", "IQR")


def is_private_call(node: exp.Expr) -> bool:
    """Whether a node is an aggregate or a mechanism of ours (and not a window function)."""
    if isinstance(node, exp.Window) and not node.args.get("alias"):
        return False
    around = node.parent
    while isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls) and around.this is not None:
        around = around.parent
    if isinstance(around, exp.Window) and not around.args.get("alias"):
        return False
    call = call_of(node)
    return call is not None and (
        call.name in TABLE or call.name in MECHANISMS or isinstance(node, exp.AggFunc)
    )


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
