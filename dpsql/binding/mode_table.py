"""The module that binds each mode of SELECT WITH, and the options that it takes.

A session imports the module of a mode with its first statement in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.catalogue.aggregate_names import MECHANISMS, MODES
from dpsql.language.dialect import privacy_error
from dpsql.language.options import Call, Options, Readers, call_of, readers_of
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


def mechanism_of(select: exp.Select) -> Call | None:
    """Return the selection mechanism that a SELECT calls, if any; PrivacyError for a second mechanism, or an aggregate."""
    found: list[Call] = []
    others: list[exp.Expr] = []
    for item in select.expressions:
        for node in item.walk(prune=lambda n: isinstance(n, exp.Query) or calls_mechanism(n)):
            call = call_of(node)
            if call is not None and call.name in MECHANISMS:
                found.append(call)
            elif isinstance(node, exp.AggFunc):
                others.append(node)
    if found and (found[1:] or others):
        what = f"a query with {found[0].name} releases nothing else."
        hint = "put it into a query of its own, and join the answers."
        raise privacy_error(found[1].node if found[1:] else others[0], what, hint)
    return found[0] if found else None


def calls_mechanism(node: exp.Expr) -> bool:
    """Return whether an expression is a call of a selection mechanism."""
    call = call_of(node)
    return call is not None and call.name in MECHANISMS


def bind_subsample(
    binder: Binder, select: exp.Select, options: Options, env: Env, declared: StableDeclaration | None = None
) -> None:
    """Bind SELECT WITH SUBSAMPLE in place, or a question of ``declared`` stable ones."""
    from dpsql.binding.modes.subsample_block import question_block, subsample_block

    if declared is None:
        subsample_block(binder, select, options, env)
    else:
        question_block(binder, select, options, env, declared)
