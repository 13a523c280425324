"""The module that binds each mode of SELECT WITH, and the options that it takes.

A session imports the module of a mode with its first statement in it.

Only :mod:`dpsql.binding.statement_binder` uses it. It is apart because a new mode changes this module, and no binder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.catalogue.aggregate_names import MECHANISMS, MODES
from dpsql.language.dialect import privacy_error
from dpsql.language.options import (
    COMMON_OPTIONS,
    Call,
    Options,
    Readers,
    call_of,
    calls_mechanism,
    readers_of,
)
from dpsql.language.statements import SYNTHETIC

if TYPE_CHECKING:
    from dpsql.binding.modes.declared import Declaration, StableDeclaration
    from dpsql.binding.public_statement import Env
    from dpsql.binding.relations.binder import Binder
    from dpsql.binding.relations.relation import From


def options_of_mode(mode: str, declared: Declaration | None = None) -> Readers | None:
    """Return the options of a mode or a declared threshold; None if unknown. ANONYMIZATION is GoogleSQL's old name for DP."""
    if declared is not None:
        from dpsql.binding.modes.declared import PROBE_OPTIONS, QUESTION_OPTIONS, StableDeclaration

        return QUESTION_OPTIONS if isinstance(declared, StableDeclaration) else PROBE_OPTIONS
    if mode == "PTR":
        from dpsql.binding.modes.ptr import PTR_OPTIONS

        return PTR_OPTIONS
    if mode == "SUBSAMPLE":
        from dpsql.binding.modes.subsample_block import SUBSAMPLE_OPTIONS

        return SUBSAMPLE_OPTIONS
    taker = "CREATE SYNTHETIC TABLE" if mode == SYNTHETIC else MODES.get(mode)
    return None if taker is None else readers_of(taker)


def refuse_public_rows(options: Options | None) -> None:
    """Raise BindError for options that need private rows, in a SELECT of public ones."""
    if options is not None and options.mode == SYNTHETIC and "rows" in options.values:
        what = "public rows are copied as they are: no synthetic rows are made."
        raise options.refuse("rows", what, "leave ROWS out, or write LIMIT.")


def bind_rows(binder: Binder, select: exp.Select, bound: From, options: Options, env: Env) -> None:
    """Replace a SELECT over private rows, in place, by the release of its mode's block."""
    mode = options.mode.upper()
    if mode == "PTR":
        from dpsql.binding.modes.ptr import PtrBlock

        PtrBlock(binder, select, bound, options, env).bind()
    elif mode == "STABLE":
        from dpsql.binding.modes.stable import StableBlock

        StableBlock(binder, select, bound, options, env).bind()
    elif mode == SYNTHETIC:
        from dpsql.binding.modes.synthetic import SyntheticBlock

        SyntheticBlock(binder, select, bound, options, env).bind()
    elif options_of_mode(mode) is not COMMON_OPTIONS:
        from dpsql.binding.modes.declared import probe_block

        probe_block(binder, select, bound, options, env)
    else:
        _bind_noisy(binder, select, bound, options, env)


def _bind_noisy(binder: Binder, select: exp.Select, bound: From, options: Options, env: Env) -> None:
    from dpsql.binding.dp.grouping_sets import bind_sets, has_sets

    if has_sets(select):
        bind_sets(binder, select, options, env, bound.names)
    elif (call := _find_mechanism(select)) is not None:
        from dpsql.binding.modes.choice import Selection

        Selection(binder, select, bound, options, env, call).bind()
    else:
        from dpsql.binding.dp.noisy_block import NoisyBlock

        NoisyBlock(binder, select, bound, options, env).bind()


def _find_mechanism(select: exp.Select) -> Call | None:
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


def find_stable(declared: Declaration | None) -> StableDeclaration | None:
    """Return what DECLARE declared, if it is stable questions."""
    if declared is None:
        return None
    from dpsql.binding.modes.declared import StableDeclaration

    return declared if isinstance(declared, StableDeclaration) else None


def bind_on_blocks(
    binder: Binder, select: exp.Select, options: Options, env: Env, declared: StableDeclaration | None
) -> None:
    """Bind SELECT WITH SUBSAMPLE in place, or a question of ``declared`` stable ones."""
    from dpsql.binding.modes.subsample_block import question_block, subsample_block

    if declared is None:
        subsample_block(binder, select, options, env)
    else:
        question_block(binder, select, options, env, declared)
