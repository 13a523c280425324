"""The module that binds each mode of SELECT WITH, and the options that it takes.

A session imports the module of a mode with its first statement in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.catalogue.aggregate_names import MODES
from dpsql.language.options import Options, Readers, readers_of
from dpsql.language.statements import SYNTHETIC

if TYPE_CHECKING:
    from dpsql.binding.dp.private_block import AggregatingBlock
    from dpsql.binding.modes.declared import StableDeclaration
    from dpsql.binding.public_statement import Env
    from dpsql.binding.relations.binder import Binder


def options_of_mode(mode: str) -> Readers | None:
    """Return the options of a mode of SELECT WITH; None if there is no such mode. ANONYMIZATION is GoogleSQL's old name for DP.

    Two modules of modes read options of their own; a session imports them with the first statement in such a mode.
    """
    if mode == "PTR":
        from dpsql.binding.modes.ptr import PTR_OPTIONS

        return PTR_OPTIONS
    if mode == "SUBSAMPLE":
        from dpsql.binding.modes.subsample_block import SUBSAMPLE_OPTIONS

        return SUBSAMPLE_OPTIONS
    taker = "CREATE SYNTHETIC TABLE" if mode == SYNTHETIC else MODES.get(mode)
    return None if taker is None else readers_of(taker)


def block_of_mode(mode: str) -> type[AggregatingBlock] | None:
    """Return the block of a mode that has a module of its own, made of a SELECT's rows; None for other modes."""
    if mode == "PTR":
        from dpsql.binding.modes.ptr import PtrBlock

        return PtrBlock
    if mode == "STABLE":
        from dpsql.binding.modes.stable import StableBlock

        return StableBlock
    if mode == SYNTHETIC:
        from dpsql.binding.modes.synthetic import SyntheticBlock

        return SyntheticBlock
    return None


def bind_subsample(
    binder: Binder, select: exp.Select, options: Options, env: Env, declared: StableDeclaration | None = None
) -> None:
    """Bind SELECT WITH SUBSAMPLE in place, or a question of ``declared`` stable ones."""
    from dpsql.binding.modes.subsample_block import question_block, subsample_block

    if declared is None:
        subsample_block(binder, select, options, env)
    else:
        question_block(binder, select, options, env, declared)
