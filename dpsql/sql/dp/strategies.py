"""OPTIONS (strategy = ...): which strategy a statement names, and the refusal of one that does not fit it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dpsql.mechanisms.strategies import EVEN, MARGINALS, SQUARE_ROOT, TREE, StrategyChoice
from dpsql.sql.parse.options import AUTO, Options
from dpsql.sql.relations.catalog import Binder

_FITS = {
    MARGINALS: "several grouping sets of the same rows, with public groups and with counts or sums that add up",
    TREE: "running totals of counts or sums over one ordered public key, and for several quantiles of one column",
    SQUARE_ROOT: "running totals of counts or sums over one ordered public key",
}
"""The questions that a strategy other than EVEN is for."""


def find_forced(options: Options) -> str | None:
    """Return the strategy that the statement names; None where it leaves the choice open."""
    word = options.get("strategy", AUTO)
    return None if word == AUTO else str(word)


def refuse_unfit(options: Options, fits: Collection[str] = (), why: str = "") -> None:
    """Refuse a strategy that is named where it does not fit.

    Args:
        options: of the block.
        fits: the strategies that fit besides EVEN.
        why: the reason why the one that is named does not, where it is a particular one; a clause without a full stop.

    Raises:
        BindError: the strategy that is named answers other questions.
    """
    word = find_forced(options)
    if word is None or word == EVEN or word in fits:
        return
    what = f"{word} is for {_FITS[word]}{f', and {why}' if why else ''}."
    raise options.refuse("strategy", what, "leave strategy out: AUTO takes the best that fits.")


def note_strategy(binder: Binder, name: str, choice: StrategyChoice) -> None:
    """Let a block that was given to the plan say how its numbers, and those chosen with it, are measured.

    Args:
        binder: of the statement.
        name: of the block.
        choice: what was chosen, and among what.
    """
    place = next(place for place, block in enumerate(binder.blocks) if block.name == name)
    binder.blocks[place] = replace(binder.blocks[place], strategy=choice)
