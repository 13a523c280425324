"""SELECT WITH SUBSAMPLE: any single-row query on blocks of privacy units, the results combined privately."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms.base import SALT, Operator
from dpsql.mechanisms.fast.block_means import NearBlocks
from dpsql.mechanisms.subsample.blocks import (
    RUNS,
    BlockQueries,
    LiftedBlocks,
    PythonBlocks,
    Returns,
    Source,
    block_number,
    version_of,
)
from dpsql.mechanisms.subsample.subsample import (
    BlockMean,
    BlockMedian,
    Combiner,
    SubsampleAggregate,
    WinsorizedMean,
)
from dpsql.mechanisms.subsample.votes import Participation, textbook_sampling
from dpsql.sql.dp.build_operator import deal
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.fixed_point import unify_zeros
from dpsql.sql.expressions.types import BIGINT, DOUBLE, TEXT, Typed
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import (
    COMMON_OPTIONS,
    Options,
    Readers,
    read_number,
    read_one_of,
    read_pair,
    read_positive,
    read_whole,
)
from dpsql.sql.relations.intervals import interval_of
from dpsql.sql.relations.privacy_unit import check_unit, find_unit_holder, has_whole_unit
from dpsql.sql.relations.relation import Field, From, Names, Relation, column
from dpsql.sql.subsample.block_means import near
from dpsql.sql.subsample.combiners import (
    COMBINERS,
    combiner,
    combiner_name,
    feature_votes,
    needs_delta,
    sql_type,
    width,
)
from dpsql.sql.subsample.per_block_query import Each
from dpsql.sql.subsample.vectorised_blocks import Lifter

if TYPE_CHECKING:
    from dpsql.sql.normalize import Env
    from dpsql.sql.relations.context import Binder


def _values(node: exp.Expr, what: str) -> tuple[Any, ...]:
    """A tuple of literals: the results that may win a vote."""
    items = node.expressions if isinstance(node, exp.Tuple | exp.Array) else [node]
    if not all(isinstance(item.this if isinstance(item, exp.Neg) else item, exp.Literal) for item in items):
        raise BindError(f"{what} must be literals.", span=span_of(node), hint=f"write {what} = ('a', 'b').")
    return tuple(
        item.name if item.is_string else _plain(read_number(item, what), to_sql(item)) for item in items
    )


def _plain(value: Fraction, text: str) -> int | float:
    """As Python would read it: 1 is whole, 1.0 is not."""
    return int(value) if text.lstrip("- ").isdigit() else float(value)


OPTIONS: Readers = {
    **{name: COMMON_OPTIONS[name] for name in ("epsilon", "delta", "privacy_unit_column", "confidence")},
    "blocks": read_whole,
    "combine": read_one_of(*COMBINERS, upper=False),
    "bounds": read_pair,
    "trim": read_positive,
    "sampling": read_one_of("partition", "rounds", "bernoulli", upper=False),
    "rounds": read_whole,
    "candidates": _values,
    "units": read_whole,
    "most": read_whole,
    "top": read_whole,
}
_FOR: dict[str, tuple[str, tuple[str, ...]]] = {
    "trim": ("combine", ("trimmed_mean", "winsorized_mean")),
    "most": ("combine", ("noisy_votes",)),
    "top": ("combine", ("noisy_votes",)),
    "rounds": ("sampling", ("rounds",)),
    "units": ("sampling", ("bernoulli",)),
}
"""Options that mean something with others only: an option that nobody reads is not what was meant."""
BLOCKS = 128
"""Subsample blocks where the analyst does not say: public, and a power of two, which groups fastest."""
ROUNDS = 4


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

    @property
    def by_function(self) -> bool:
        """Whether results are Python's, of types that nobody knows beforehand."""
        return _registered(self) is not None

    @property
    def returns(self) -> Returns | None:
        """What a registered function is declared to return."""
        found = _registered(self)
        return self.binder.catalog.functions[found[1].name.lower()].returns if found is not None else None

    def unit(self, relation: Relation, unit: exp.Expr | None) -> str:
        """What decides a row's block: its privacy unit, or for rows that are units, all that the row says."""
        if unit is not None:
            return to_sql(unit)
        return f"hash({', '.join(to_sql(f.typed.node) for f in relation.fields)})"

    def hashed(self, relation: Relation, unit: exp.Expr | None) -> str:
        """The same where it is hashed as it is: DuckDB's hashes of -5 in 32 and in 64 bits differ, and the unit is one."""
        made = self.unit(relation, unit)
        return f"CAST({made} AS BIGINT)" if unit is not None and has_whole_unit(relation) else made


@dataclass
class Sampling:
    """In which blocks a row is: by a secret hash of its unit, whatever other rows there are."""

    this: Subsample
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = self.this.blocks * self.this.rounds

    def turns(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Every row takes part in each round: rows are repeated with the rounds' numbers."""
        rounds = self.this.rounds
        return f" CROSS JOIN range({rounds}) AS turns(turn)" if rounds > 1 else ""

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        key, blocks = self.this.unit(relation, unit), self.this.blocks
        whole = unit is not None and has_whole_unit(relation)
        if self.this.rounds > 1:
            return f"turns.turn * {blocks} + {block_number(key, blocks, 'turns.turn', whole, unit is None)}"
        return block_number(key, blocks, whole=whole, hashed=unit is None)


@dataclass
class Textbook(Sampling):
    """Independent random subsamples, with the textbook's q and m; EXPLAIN prices them before they run."""

    q: Fraction = field(init=False)

    def __post_init__(self) -> None:
        units = self.this.options.get("units")
        if units is None:
            raise self.this.options.refuse(
                "sampling",
                "the textbook's sampling needs the public number of units.",
                "write units = 10000, or sampling = 'rounds'.",
            )
        catalog = self.this.binder.catalog
        epsilon = self.this.options.get("epsilon", catalog.default_epsilon) or Fraction(1)
        delta = self.this.options.get("delta", catalog.policy.budget.default_delta) or Fraction(1, 10**6)
        self.q, self.total = textbook_sampling(epsilon, delta, int(units))

    def _drawn(self, key: str) -> str:
        """A join with the runs that a unit is in: one hash per pair, the coin of a run is made once."""
        coin = f"hash(xor(hash(runs.turn), CAST({SALT} AS UBIGINT)))"
        runs = f"(SELECT runs.turn, {coin} AS coin FROM {RUNS}) AS turns"
        return f" JOIN {runs} ON (hash(xor(hash({key}), turns.coin)) >> 2) < {math.floor(self.q * 2**62)}"

    def turns(self, relation: Relation, unit: exp.Expr | None) -> str:
        return self._drawn(self.this.hashed(relation, unit))

    @property
    def steps(self) -> int:
        """How many runs are made together: about ten million pairs of a unit and a run."""
        return max(1, 10_000_000 // max(1, int(self.this.options.get("units", 1))))

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        return "turns.turn"

    def participation(self, found: list[tuple[str, str]]) -> Participation:
        """The check that no unit is in too many; ``found``: keys of units, and where they are read."""
        ids = " UNION ".join(
            f"SELECT DISTINCT {key} AS k FROM {source} WHERE {key} IS NOT NULL" for key, source in found
        )
        counted = f"SELECT ids.k, COUNT(*) AS n FROM ({ids}) AS ids{self._drawn('ids.k')} GROUP BY ids.k"
        return Participation(f"SELECT MAX(n) AS most FROM ({counted}) AS c", self.q, self.total)


@dataclass(frozen=True)
class Found:
    """What runs on each block."""

    source: Source
    fields: tuple[Field, ...]
    units: list[tuple[str, str]]
    """Keys of privacy units, and where they are read."""
    bound: tuple[From, ...] = ()
    """Every FROM over private rows, where the query was lifted."""


def subsample_block(binder: Binder, select: exp.Select, options: Options, env: Env) -> None:
    """Binds SELECT WITH SUBSAMPLE in place.

    Raises:
        PrivacyError: not one row per block, or something that can't run inside a block.
    """
    this = Subsample(binder, select, options, env)
    for option, (other, values) in _FOR.items():
        given = this.sampling if other == "sampling" else options.get(other)
        if options.get(option) is not None and given not in values:
            listed = " or ".join(f"'{value}'" for value in values)
            raise options.refuse(option, f"{option} goes with {other} = {listed}.")
    name = binder.name("block")
    sampling = Textbook(this) if this.sampling == "bernoulli" else Sampling(this)
    found = _exact(this, sampling)
    participation = sampling.participation(found.units) if isinstance(sampling, Textbook) else None
    fields = found.fields
    if select.args.get("order") and select.args.get("limit") is None:
        select.set("order", None)
    kinds = [combiner_name(this, f) for f in fields]
    confidence = options.confidence
    deltas = sum(needs_delta(this, f, kind) for f, kind in zip(fields, kinds, strict=True))
    share = deal(binder, options, select, [(None, None)] * len(fields), deltas)
    if not deltas and share.delta:
        share = replace(share, delta=Fraction(0))
    operator: Operator
    columns: list[tuple[str, str]] = []
    shown: dict[str, Any] = {}
    if "noisy_votes" in kinds:
        if len(fields) > 1:
            raise options.refuse("combine", "noisy_votes must be of the only output.")
        operator = feature_votes(this, found.source, fields[0], share.epsilon, confidence)
        columns = [(fields[0].name, "VARCHAR")]
        if operator.noise is not None:
            fields = (*fields, Field("votes", Typed(column("votes"), BIGINT)))
            columns += [("votes", "BIGINT"), ("votes__low", "DOUBLE"), ("votes__high", "DOUBLE")]
            shown["votes"] = True
    else:
        combiners = tuple(
            combiner(this, f, kind, part, share.delta / max(1, deltas) if needs_delta(this, f, kind) else Fraction(0),
                     participation)
            for f, kind, part in zip(fields, kinds, share.parts, strict=True)
        )  # fmt: skip
        source = _nearer(this, found, sampling, combiners)
        operator = SubsampleAggregate(source, combiners, confidence, participation)
        for f, kind in zip(fields, kinds, strict=True):
            numeric = kind in ("mean", "trimmed_mean", "winsorized_mean") and width(this, f) is None
            columns.append(
                (
                    f.name,
                    "DOUBLE"
                    if numeric or (kind == "median" and width(this, f) is None)
                    else f.typed.type.sql,
                )
            )
            if numeric:
                columns += [(f"{f.name}__low", "DOUBLE"), (f"{f.name}__high", "DOUBLE")]
                shown[f.name] = True
    own = (item for bound in found.bound for item in bound.inputs)
    inputs = tuple(dict.fromkeys((*binder.lent_inputs, *own)))
    binder.blocks.append(plan.Block(name, operator, tuple(columns), inputs, (_said(this),), confidence))
    outputs = [column(f.name) for f in fields]
    for key in ("joins", "where", "group", "having", "order", "limit", "with_", "qualify", "distinct"):
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


def _exact(this: Subsample, sampling: Sampling) -> Found:
    """A Python function, or the query: lifted where that can be done, else block by block."""
    function = _registered(this)
    if function is not None:
        return _python(this, function, sampling)
    inputs, limits = dict(this.binder.lent_inputs), len(this.binder.limits)
    try:
        return _lifted(this, sampling)
    except (BindError, PrivacyError) as error:
        refused = error
    del this.binder.limits[limits:]
    this.binder.lent_inputs.clear()
    this.binder.lent_inputs.update(inputs)
    each = Each(this.binder, this.env, sampling.number, sampling.turns)
    try:
        sql, fields = each.query(this.select)
    except (BindError, PrivacyError) as error:
        raise (refused if isinstance(refused, BindError) else error) from None
    for relation in each.private:
        check_unit(this.options, Names((relation,)), ", ".join(t.name for t in relation.tables))
    source = BlockQueries(tuple(each.rows), sql, tuple(f.name for f in fields), sampling.total)
    return Found(source, fields, [(this.hashed(r, r.unit), to_sql(r.source)) for r in each.private])


def _lifted(this: Subsample, sampling: Sampling) -> Found:
    lifter = Lifter(this.binder, sampling.number, sampling.turns, sampling.total)
    lifted = lifter.query(this.select.copy(), this.env)
    if not lifted.single:
        raise PrivacyError(
            "a query inside SUBSAMPLE must give one row.",
            span=span_of(this.select.args.get("group")) or span_of(this.select.expressions[0]),
            hint="aggregate to one row, or end with ORDER BY ... LIMIT 1.",
        )
    for bound in lifter.bound:
        check_unit(this.options, bound.names, bound.subject)
    names = tuple(f.name for f in lifted.fields)
    together = sampling.steps if isinstance(sampling, Textbook) else None
    source = LiftedBlocks(lifted.sql, names, sampling.total, together)
    return Found(source, lifted.fields, [_unit_of(this, b) for b in lifter.bound], tuple(lifter.bound))


def _nearer(this: Subsample, found: Found, sampling: Sampling, combiners: tuple[Combiner, ...]) -> Source:
    """The source, by the shorter way where its one output has one and is looked at through a grid."""
    source = found.source
    if not isinstance(source, LiftedBlocks) or sampling.total != this.blocks or len(found.bound) != 1:
        return source
    if this.sampling != "partition" or len(combiners) != 1:
        return source
    combiner = combiners[0]
    if not isinstance(combiner, BlockMean | BlockMedian | WinsorizedMean):
        return source
    nearer = near(this.select, found.bound[0], sampling.number, combiner.bounds)
    return source if nearer is None else NearBlocks(source, nearer)


def _unit_of(this: Subsample, bound: From) -> tuple[str, str]:
    private = find_unit_holder(bound)
    joins = "".join(" " + to_sql(join) for join in bound.joins)
    return this.hashed(private, bound.unit), f"{to_sql(bound.source)}{joins}"


def _said(this: Subsample) -> str:
    if this.sampling == "bernoulli":
        return "The query runs on independent random subsamples of the privacy units, as the textbook has it."
    rounds = f", in {this.rounds} rounds" if this.rounds > 1 else ""
    return f"The query runs on {this.blocks} blocks of privacy units{rounds}."


def _registered(this: Subsample) -> tuple[str, exp.Expr] | None:
    items = this.select.expressions
    for item in items:
        inner = item.unalias()
        if isinstance(inner, exp.Anonymous) and inner.name.lower() in this.binder.catalog.functions:
            if len(items) != 1:
                raise BindError("a registered function must be the only output.", span=span_of(inner))
            return item.alias or inner.name.lower(), inner
    return None


def _python(this: Subsample, found: tuple[str, exp.Expr], sampling: Sampling) -> Found:
    """A registered Python function over the rows of each block."""
    name, call = found
    for key in ("group", "having", "qualify", "distinct", "limit", "windows", "sample"):
        if this.select.args.get(key):
            raise PrivacyError(
                f"{key.upper()} does not go with a Python function: it takes rows as they are.",
                span=span_of(call),
                hint="filter with WHERE, or do it in the function.",
            )
    bound = this.binder.private_from(this.select, this.env)
    names = bound.names
    private = find_unit_holder(bound)
    check_unit(this.options, names, bound.subject)
    items = [f"{sampling.number(private, bound.unit)} AS block"]
    arguments, as_text = [], []
    for i, place in enumerate(call.expressions):
        typed = total_expressions.make_total(place, names)
        arguments.append(f"x{i}")
        as_text += [f"x{i}"] if typed.type.two_faced and typed.type.kind != "DOUBLE" else []
        items.append(f"{_argument(typed)} AS x{i}")
    if not arguments:
        raise BindError(
            f"{call.name} needs columns.", span=span_of(call), hint=f"write {call.name}(age, income)."
        )
    where = this.select.args.get("where")
    key, source = _unit_of(this, bound)
    text = f"SELECT {', '.join(items)} FROM {source}{sampling.turns(private, bound.unit)}"
    conditions = [f"{to_sql(bound.unit)} IS NOT NULL"] if bound.unit is not None else []
    conditions += (
        [f"({to_sql(total_expressions.make_condition(where.this, names).node)})"] if where is not None else []
    )
    text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    function = this.binder.catalog.functions[call.name.lower()]
    made = PythonBlocks(
        text,
        tuple(arguments),
        sampling.total,
        call.name.lower(),
        name,
        function.function,
        version_of(function.function),
        tuple(as_text),
        function.returns,
    )
    if function.returns is not None:
        kind = sql_type(function.returns)
    else:
        kind = DOUBLE if this.options.get("bounds") is not None else TEXT
        if kind is DOUBLE:
            this.binder.notes.append(
                f"what {call.name.lower()} returns is not declared: a result that is not one number counts as the middle of "
                "the bounds; register it with returns=... to have that checked"
            )
    return Found(made, (Field(name, Typed(column(name), kind)),), [(key, source)])


def _argument(typed: Typed) -> str:
    """As numpy takes it: numbers beyond 64 bits and exact decimals become doubles."""
    wide = typed.type.kind == "DECIMAL" or typed.type.sql in ("HUGEINT", "UHUGEINT")
    sql = to_sql(typed.node)
    if typed.type.kind == "DOUBLE":  # one zero, one NaN: the rows of a block are sorted, and equals are not
        return to_sql(unify_zeros(typed).node)
    return f"CAST({sql} AS DOUBLE)" if wide else sql
