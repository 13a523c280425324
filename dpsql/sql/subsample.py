"""SELECT WITH SUBSAMPLE: any single-row query on blocks of privacy units, the results combined privately."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms.additive import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.blocks import LiftedBlocks, PythonBlocks, Source, block_number
from dpsql.mechanisms.ptr import OptimalTest, stability_test
from dpsql.mechanisms.subsample import (
    BlockMean,
    BlockMedian,
    Combiner,
    Range,
    SubsampleAggregate,
    WinsorizedMean,
)
from dpsql.mechanisms.votes import NoisyMode, Participation, StableMode, textbook_sampling
from dpsql.sql import safe
from dpsql.sql.deal import deal
from dpsql.sql.dialect import span_of, to_sql
from dpsql.sql.intervals import interval_of
from dpsql.sql.lift import Lifted, Lifter
from dpsql.sql.options import COMMON, Options, Readers, number, one_of, pair, positive, whole
from dpsql.sql.relation import Field, Relation, column
from dpsql.sql.types import DOUBLE, TEXT, Typed

if TYPE_CHECKING:
    from dpsql.sql.bind import Binder, Env

COMBINERS = ("mean", "median", "trimmed_mean", "winsorized_mean", "noisy_mode", "stable_mode")


def _values(node: exp.Expr, what: str) -> tuple[Any, ...]:
    """A tuple of literals: the results that may win a vote."""
    items = node.expressions if isinstance(node, exp.Tuple | exp.Array) else [node]
    if not all(isinstance(item, exp.Literal) for item in items):
        raise BindError(f"{what} must be literals.", span=span_of(node), hint=f"write {what} = ('a', 'b').")
    return tuple(item.name if item.is_string else _plain(number(item, what)) for item in items)


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


OPTIONS: Readers = {
    **{name: COMMON[name] for name in ("epsilon", "delta", "privacy_unit_column", "confidence")},
    "blocks": whole,
    "combine": one_of(*COMBINERS, upper=False),
    "bounds": pair,
    "trim": positive,
    "sampling": one_of("partition", "rounds", "bernoulli", upper=False),
    "rounds": whole,
    "candidates": _values,
    "units": whole,
}
BLOCKS = 128
"""Subsample blocks where the analyst does not say: public, and a power of two, which groups fastest."""
ROUNDS = 4
_POINTS = 1 << 16


@dataclass
class Subsample:
    """One block being bound."""

    binder: Binder
    select: exp.Select
    options: Options
    env: Env

    @property
    def blocks(self) -> int:
        count = int(self.options.get("blocks", BLOCKS))
        if not 2 <= count <= 1_000_000:
            raise self.options.refuse("blocks", "blocks must lie between 2 and 1,000,000.")
        return count

    @property
    def sampling(self) -> str:
        wanted = self.options.get("sampling")
        stable = self.options.get("combine") == "stable_mode"
        if wanted in ("rounds", "bernoulli") and not stable:
            raise self.options.refuse(
                "sampling", f"{wanted} sampling is for the stable mode.", "write combine = 'stable_mode'."
            )
        return str(wanted or ("rounds" if stable else "partition"))

    @property
    def rounds(self) -> int:
        return int(self.options.get("rounds", ROUNDS)) if self.sampling == "rounds" else 1

    def unit(self, relation: Relation, unit: exp.Expr | None) -> str:
        """What decides a row's block: its privacy unit, or for rows that are units, all that the row says."""
        if unit is not None:
            return to_sql(unit)
        return f"hash({', '.join(to_sql(f.typed.node) for f in relation.fields)})"

    @property
    def turns(self) -> str:
        """Every row takes part in each round: rows are repeated with the rounds' numbers."""
        return f" CROSS JOIN range({self.rounds}) AS turns(turn)" if self.rounds > 1 else ""

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        key = self.unit(relation, unit)
        if self.rounds > 1:
            return f"turns.turn * {self.blocks} + {block_number(key, self.blocks, 'turns.turn')}"
        return block_number(key, self.blocks)


def subsample_block(binder: Binder, select: exp.Select, options: Options, env: Env) -> None:
    """Binds SELECT WITH SUBSAMPLE in place.

    Raises:
        PrivacyError: not one row per block, or something that can't run inside a block.
    """
    this = Subsample(binder, select, options, env)
    name = binder.name("block")
    source, fields, participation, subject = _source(this)
    if select.args.get("order") and select.args.get("limit") is None:
        select.set("order", None)
    kinds = [_combiner_name(options, f) for f in fields]
    stable = [k for k in kinds if k in ("stable_mode", "noisy_mode")]
    share = deal(
        binder,
        options,
        select,
        [(None, None)] * len(fields),
        len(stable) if _needs_delta(this, fields, kinds) else 0,
    )
    combiners = tuple(
        _combiner(this, f, kind, part, share.delta / max(1, share.delta_parts), participation)
        for f, kind, part in zip(fields, kinds, share.parts, strict=True)
    )
    confidence = float(options.get("confidence", Fraction(95, 100)))
    operator = SubsampleAggregate(source, combiners, confidence, participation)
    columns: list[tuple[str, str]] = []
    shown: dict[str, Any] = {}
    for f, kind in zip(fields, kinds, strict=True):
        numeric = kind in ("mean", "trimmed_mean", "winsorized_mean")
        columns.append((f.name, "DOUBLE" if numeric or kind == "median" else f.typed.type.sql))
        if numeric:
            columns += [(f"{f.name}__low", "DOUBLE"), (f"{f.name}__high", "DOUBLE")]
            shown[f.name] = True
    binder.blocks.append(
        plan.Block(name, operator, tuple(columns), tuple(binder.lent_inputs), subject, confidence)
    )
    outputs = [column(f.name) for f in fields]
    for key in ("joins", "where", "group", "having", "order", "limit", "with_"):
        select.set(key, None)
    select.set("from_", exp.From(this=exp.to_table(name)))
    select.set(
        "expressions", [exp.alias_(e, f.name, quoted=True) for e, f in zip(outputs, fields, strict=True)]
    )
    select.meta["dpsql_intervals"] = [
        (f.name, *ends)
        for f, e in zip(fields, outputs, strict=True)
        if (ends := interval_of(e, shown)) is not None
    ]


def _source(this: Subsample) -> tuple[Source, tuple[Field, ...], Participation | None, tuple[str, ...]]:
    function = _registered(this)
    if this.sampling == "bernoulli":
        return _bernoulli(this)
    total = this.blocks * this.rounds
    if function is not None:
        return (*_python(this, function, total), None, _said(this))
    lifted = Lifter(this.binder, this.number, lambda relation, unit: this.turns).query(
        this.select.copy(), this.env
    )
    _single(this, lifted)
    names = tuple(f.name for f in lifted.fields)
    return LiftedBlocks(lifted.sql, names, total), lifted.fields, None, _said(this)


def _single(this: Subsample, lifted: Lifted) -> None:
    if not lifted.single:
        raise PrivacyError(
            "a query inside SUBSAMPLE must give one row.",
            span=span_of(this.select.args.get("group")) or span_of(this.select.expressions[0]),
            hint="aggregate to one row, or end with ORDER BY ... LIMIT 1.",
        )


def _said(this: Subsample) -> tuple[str, ...]:
    if this.sampling == "bernoulli":
        return (
            "The query runs on independent random subsamples of the privacy units, as the textbook has it.",
        )
    rounds = f", in {this.rounds} rounds" if this.rounds > 1 else ""
    return (f"The query runs on {this.blocks} blocks of privacy units{rounds}.",)


def _registered(this: Subsample) -> tuple[str, exp.Expr] | None:
    items = this.select.expressions
    for item in items:
        inner = item.unalias()
        if isinstance(inner, exp.Anonymous) and inner.name.lower() in this.binder.catalog.functions:
            if len(items) != 1:
                raise BindError("a registered function must be the only output.", span=span_of(inner))
            return item.alias or inner.name.lower(), inner
    return None


def _python(this: Subsample, found: tuple[str, exp.Expr], total: int) -> tuple[Source, tuple[Field, ...]]:
    """A registered Python function over the rows of each block."""
    name, call = found
    bound = this.binder.private_from(this.select, this.env)
    names = bound.names
    private = next(r for r in bound.relations if r.private)
    items = [f"{this.number(private, bound.unit)} AS block"]
    arguments = []
    for i, place in enumerate(call.expressions):
        typed = safe.total(place, names)
        arguments.append(f"x{i}")
        items.append(f"{to_sql(typed.node)} AS x{i}")
    where = this.select.args.get("where")
    text = f"SELECT {', '.join(items)} FROM {to_sql(bound.source)}" + "".join(
        " " + to_sql(j) for j in bound.joins
    )
    text += this.turns
    conditions = [f"{to_sql(bound.unit)} IS NOT NULL"] if bound.unit is not None else []
    conditions += [f"({to_sql(safe.condition(where.this, names).node)})"] if where is not None else []
    text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    function = this.binder.catalog.functions[call.name.lower()]
    source = PythonBlocks(text, tuple(arguments), total, call.name.lower(), name, function)
    bounds = this.options.get("bounds")
    return source, (Field(name, Typed(column(name), DOUBLE if bounds is not None else TEXT)),)


def _bernoulli(this: Subsample) -> tuple[Source, tuple[Field, ...], Participation | None, tuple[str, ...]]:
    """The textbook's independent subsamples, with its q and m; EXPLAIN prices them before they run."""
    units = this.options.get("units")
    if units is None:
        raise this.options.refuse(
            "sampling",
            "the textbook's sampling needs the public number of units.",
            "write units = 10000, or sampling = 'rounds'.",
        )
    budget = this.binder.catalog.policy.budget
    epsilon = this.options.get("epsilon", budget.default_epsilon) or Fraction(1)
    delta = this.options.get("delta", budget.default_delta) or Fraction(1, 10**6)
    q, runs = textbook_sampling(epsilon, delta, int(units))
    threshold = math.floor(q * 2**62)
    per_turn = f"hash(xor(hash(turns.turn), CAST({SALT} AS UBIGINT)))"

    def turns(relation: Relation, unit: exp.Expr | None) -> str:
        drawn = f"(hash(xor(hash({this.unit(relation, unit)}), {per_turn})) >> 2) < {threshold}"
        return f" JOIN range({runs}) AS turns(turn) ON {drawn}"

    lifted = Lifter(this.binder, lambda relation, unit: "turns.turn", turns).query(
        this.select.copy(), this.env
    )
    _single(this, lifted)
    bound = this.binder.private_from(this.select, this.env)
    private = next(r for r in bound.relations if r.private)
    key = this.unit(private, bound.unit)
    ids = f"SELECT DISTINCT {key} AS k FROM {to_sql(bound.source)}" + "".join(
        " " + to_sql(j) for j in bound.joins
    )
    ids += f" WHERE {key} IS NOT NULL"
    drawn = f"(hash(xor(hash(ids.k), {per_turn})) >> 2) < {threshold}"
    counted = f"SELECT ids.k, COUNT(*) AS n FROM ({ids}) AS ids JOIN range({runs}) AS turns(turn) ON {drawn} GROUP BY 1"
    most = f"SELECT MAX(n) AS most FROM ({counted}) AS c"
    participation = Participation(most, q, runs)
    names = tuple(f.name for f in lifted.fields)
    return LiftedBlocks(lifted.sql, names, runs), lifted.fields, participation, _said(this)


# -- combining --------------------------------------------------------------------------------------------------


def _combiner_name(options: Options, f: Field) -> str:
    wanted = options.get("combine")
    if wanted is None:
        return "median" if f.typed.type.numeric else "noisy_mode"
    numeric = wanted in ("mean", "median", "trimmed_mean", "winsorized_mean")
    if numeric and not f.typed.type.numeric:
        raise options.refuse(
            "combine", f"{wanted} needs numbers, and {f.name} is {f.typed.type.sql}.", "use 'noisy_mode'."
        )
    return str(wanted)


def _needs_delta(this: Subsample, fields: tuple[Field, ...], kinds: list[str]) -> bool:
    return any(
        kind == "stable_mode" or (kind == "noisy_mode" and _candidates(this, f) is None)
        for f, kind in zip(fields, kinds, strict=True)
    )


def _candidates(this: Subsample, f: Field) -> tuple[Any, ...] | None:
    given = this.options.get("candidates")
    if given is not None:
        return tuple(given)
    if f.typed.values is not None:
        return tuple(f.typed.values)
    return (True, False) if f.typed.type.kind == "BOOLEAN" else None


def _combiner(
    this: Subsample,
    f: Field,
    kind: str,
    epsilon: Fraction,
    delta: Fraction,
    participation: Participation | None,
) -> Combiner:
    accountant = this.binder.catalog.accountant
    if kind == "stable_mode":
        slack = participation.failure if participation is not None else Fraction(0)
        rounds = participation.cap if participation is not None else this.rounds
        return StableMode(f.name, stability_test(accountant, epsilon, delta, slack=slack), rounds)
    if kind == "noisy_mode":
        candidates = _candidates(this, f)
        exponential = accountant != "basic"
        if candidates is not None:
            return NoisyMode(f.name, epsilon, candidates, exponential=exponential)
        return NoisyMode(f.name, epsilon / 2, None, OptimalTest(epsilon / 2, delta, 2), exponential)
    bounds = this.options.get("bounds")
    if bounds is None:
        raise PrivacyError(
            f"{f.name} needs the range of its results.",
            span=span_of(this.options.mode_node),
            hint="write OPTIONS (bounds = (-1, 1)).",
        )
    if bounds[0] == bounds[1]:
        raise this.options.refuse("bounds", "the bounds leave no room.")
    grid = Range(bounds[0], bounds[1], _POINTS)
    if kind == "median":
        return BlockMedian(f.name, grid, epsilon)
    if kind == "winsorized_mean":
        return WinsorizedMean(f.name, grid, epsilon)
    trim = 0
    if kind == "trimmed_mean":
        part = this.options.get("trim", Fraction(1, 10))
        if part >= Fraction(1, 2):
            raise this.options.refuse("trim", "trim must lie below 0.5.", "write trim = 0.1.")
        trim = math.floor(part * this.blocks)
    noise: LaplaceNoise | GaussianNoise = LaplaceNoise(epsilon, _POINTS)
    return BlockMean(f.name, grid, noise, trim)
