"""SELECT WITH SUBSAMPLE: any single-row query on blocks of privacy units, the results combined privately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.binding.dp.budget_split import deal, price_of
from dpsql.binding.public_statement import Env, Released, install
from dpsql.binding.relations.catalog import Binder
from dpsql.binding.relations.relation import Field, From, Names, Relation, column, column_name
from dpsql.binding.relations.unit_rows import check_unit, find_unit_holder, has_whole_unit
from dpsql.binding.selection.declared import StableDeclaration
from dpsql.binding.subsample.block_queries import BLOCK, Lifter, PerBlockQuery, refuse_many_rows, write_where
from dpsql.binding.subsample.combiners import Subsample, sql_type
from dpsql.binding.values import total_expressions
from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.exits import come_back, find_exit_type, hold_to_38_digits, leave
from dpsql.binding.values.fixed_point import unify_zeros
from dpsql.binding.values.sql_types import DOUBLE, TEXT, Typed
from dpsql.catalogue.option_names import NUMERIC_COMBINERS
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import bind_error, privacy_error, span_of, table_named, to_sql
from dpsql.language.options import Options
from dpsql.mechanisms.base import SALT, Operator
from dpsql.mechanisms.subsample import blocks as block_sources
from dpsql.mechanisms.subsample.subsample import BlockMedian, StableQuestion, SubsampleAggregate
from dpsql.mechanisms.subsample.votes import Participation, compute_textbook_sampling
from dpsql.privacy.amounts import Amount

_PAIRS_TOGETHER = 10_000_000
"""About the most pairs of a unit and a run processed at once."""


class Sampling(Subsample):
    """Assigns rows to blocks by a secret hash of their unit, independent of other rows."""

    total: int
    """The number of runs."""
    together: int | None = None
    """The number of runs processed together; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.total = self.blocks * self.rounds

    def unit(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the expression that determines a row's block: its privacy unit or, for rows that are units, all its columns."""
        if unit is not None:
            return to_sql(unit)
        return f"hash({', '.join(to_sql(f.typed.node) for f in relation.fields)})"

    def hashed(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return that expression in one type: DuckDB's hashes of -5 in 32 and in 64 bits differ, but the unit is one."""
        made = self.unit(relation, unit)
        return f"CAST({made} AS BIGINT)" if unit is not None and has_whole_unit(relation) else made

    def unit_of(self, bound: From) -> tuple[str, str]:
        """Return the key of the units of a FROM, and the source to read them from."""
        return self.hashed(find_unit_holder(bound), bound.unit), bound.sql

    def turns(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the join that repeats every row with the numbers of the rounds."""
        return f" CROSS JOIN range({self.rounds}) AS turns(turn)" if self.rounds > 1 else ""

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the SQL of a row's block."""
        key, blocks = self.unit(relation, unit), self.blocks
        whole, turn = unit is not None and has_whole_unit(relation), "turns.turn" if self.rounds > 1 else None
        block = block_sources.write_block_number(key, blocks, turn, whole, unit is None)
        return f"turns.turn * {blocks} + {block}" if turn else block

    def participation(self, found: list[tuple[str, str]]) -> Participation | None:
        """Return the check that no unit of ``found`` (keys, with their sources) is in too many runs, if random."""
        return None

    @property
    def sentence(self) -> str:
        """EXPLAIN's sentence about the blocks."""
        rounds = f", in {self.rounds} rounds" if self.rounds > 1 else ""
        return f"The query runs on {self.blocks} blocks of privacy units{rounds}."


class Textbook(Sampling):
    """Independent random subsamples, with the textbook's q and m; EXPLAIN estimates them before they run."""

    sentence = "The query runs on independent random subsamples of the privacy units, as in the textbook."

    def __post_init__(self) -> None:
        super().__post_init__()
        options, catalog = self.options, self.binder.catalog
        units = options.get("units")
        if units is None:
            what = "the textbook's sampling needs the public number of units."
            raise options.refuse("sampling", what, "write units = 10000, or sampling = 'rounds'.")
        asked = options.amount
        if asked is not None and asked.currency != "epsilon":
            what = f"the textbook's sampling is made for an epsilon, not for a {asked.currency}."
            raise options.refuse(asked.currency, what, "write epsilon = 1, or sampling = 'rounds'.")
        epsilon = options.get("epsilon", catalog.default_epsilon) or Fraction(1)
        delta = options.get("delta", catalog.policy.budget.default_delta) or Fraction(1, 10**6)
        self.q, self.total = compute_textbook_sampling(epsilon, delta, int(units))
        self.together = max(1, _PAIRS_TOGETHER // max(1, int(units)))

    def _drawn(self, key: str) -> str:
        """Return a join with the runs of a unit, by one hash per pair."""
        coin = f"hash(xor(hash(runs.turn), CAST({SALT} AS UBIGINT)))"
        runs = f"(SELECT runs.turn, {coin} AS coin FROM {block_sources.RUNS_RELATION}) AS turns"
        return f" JOIN {runs} ON (hash(xor(hash({key}), turns.coin)) >> 2) < {math.floor(self.q * 2**62)}"

    def turns(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the join with the runs of a row's unit."""
        return self._drawn(self.hashed(relation, unit))

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the SQL of the run that a row was repeated for."""
        return "turns.turn"

    def participation(self, found: list[tuple[str, str]]) -> Participation:
        ids = " UNION ".join(
            f"SELECT DISTINCT {key} AS k FROM {source} WHERE {key} IS NOT NULL" for key, source in found
        )
        counted = f"SELECT ids.k, COUNT(*) AS n FROM ({ids}) AS ids{self._drawn('ids.k')} GROUP BY ids.k"
        return Participation(f"SELECT MAX(n) AS most FROM ({counted}) AS c", self.q, self.total)


@dataclass(frozen=True)
class _Found:
    source: block_sources.BlockSource
    fields: tuple[Field, ...]
    units: list[tuple[str, str]]
    """Keys of privacy units, with the sources to read them from."""
    bound: tuple[From, ...] = ()
    """Every FROM over private rows, if the query was lifted."""


def subsample_block(binder: Binder, select: exp.Select, options: Options, env: Env) -> None:
    """Bind SELECT WITH SUBSAMPLE in place.

    Raises:
        PrivacyError: not one row per block, or an expression that can't run inside a block.
    """
    kind = Textbook if options.get("sampling") == "bernoulli" else Sampling
    this = kind(binder, select, options, env)
    name, bound = binder.name("block"), _exact(this)
    _add_work(this, bound)
    found = _leave(bound, [this.combiner_name(f) in NUMERIC_COMBINERS for f in bound.fields])
    operator, released, said, asked = _combine(this, found)
    _install(this, name, bound, operator, released, said, asked)


def question_block(
    binder: Binder, select: exp.Select, options: Options, env: Env, declared: StableDeclaration
) -> None:
    """Bind SELECT WITH <declared stable questions> in place: one output, for whose value the blocks vote.

    Raises:
        BindError: the stream was closed, or there are several outputs.
        PrivacyError: not one row per block, or an expression that can't run inside a block.
    """
    declared.require_open(options.mode_node)
    values = {**options.values, "blocks": declared.blocks}
    this = Sampling(binder, select, replace(options, values=values), env)
    name, bound = binder.name("block"), _exact(this)
    _add_work(this, bound)
    if len(bound.fields) != 1:
        what = "a stable question has one output."
        raise bind_error(select.expressions[1], what, "ask for the others in questions of their own.")
    found = _leave(bound, [False])
    (output,) = found.fields
    stream = declared.name, declared.rule, declared.salt, declared.put
    operator = StableQuestion(found.source, output.name, *stream)
    _install(this, name, bound, operator, [Released(output.name, output.typed.type.sql)])


def _install(
    this: Sampling, name: str, bound: _Found, operator: Operator, released: list[Released],
    said: tuple[str, ...] = (), asked: Amount | None = None,
) -> None:  # fmt: skip
    """Add the block to the plan, and replace its SELECT by the release."""
    select, binder = this.select, this.binder
    binder.lent_inputs.update((item, None) for source in bound.bound for item in source.inputs)
    binder.add_block(name, operator, released, (), (this.sentence, *said), this.options.confidence, asked)
    own = {f.name: f.typed.type for f in bound.fields}
    kinds = [DOUBLE if r.type == "DOUBLE" else own.get(r.name, TEXT) for r in released]
    shown = [
        (r.name, come_back(column(r.name), kind, r.type)) for r, kind in zip(released, kinds, strict=True)
    ]
    install(select, table_named(name), shown, also=("order", "limit", "with_", "qualify", "distinct"))


def _leave(found: _Found, numbers: Sequence[bool]) -> _Found:
    """Return a query whose outputs leave the engine in a supported form: as numbers, or as values that are compared."""
    alias, source = "leaving", found.source
    typed = [replace(f.typed, node=column(column_name(i), alias)) for i, f in enumerate(found.fields)]
    for item in typed:
        refuse_moment(replace(item, place=None))
    wide = [find_exit_type(t.type) != t.type for t in typed]
    if not any(wide) or not isinstance(source, block_sources.LiftedBlocks | block_sources.BlockQueries):
        return found
    outs = [
        t if not far else hold_to_38_digits(t) if number else leave(t)
        for t, number, far in zip(typed, numbers, wide, strict=True)
    ]
    items = ", ".join(f"{to_sql(out.node)} AS {column_name(i)}" for i, out in enumerate(outs))
    fields = tuple(Field(f.name, out) for f, out in zip(found.fields, outs, strict=True))
    block = f"{alias}.{BLOCK} AS {BLOCK}, " if isinstance(source, block_sources.LiftedBlocks) else ""
    query = f"SELECT {block}{items} FROM ({source.query}) AS {alias}"
    return replace(found, source=replace(source, query=query), fields=fields)


def _add_work(this: Sampling, found: _Found) -> None:
    """Add the blocks' work, except the textbook's runs, to the size of the statement; BindError if too large."""
    if isinstance(this, Textbook):
        return
    query = found.source.query if isinstance(found.source, block_sources.BlockQueries) else None
    place = this.options.nodes.get("blocks") or this.options.mode_node
    this.binder.written.add_blocks(this.total, len(found.fields), query, span_of(place))


def _combine(this: Sampling, found: _Found) -> tuple[Operator, list[Released], tuple[str, ...], Amount]:
    """Divide the budget; return the operator, its columns, EXPLAIN's additional sentences, and the loss."""
    options, fields = this.options, found.fields
    kinds = [this.combiner_name(f) for f in fields]
    outputs = list(zip(fields, kinds, strict=True))
    deltas = sum(this.needs_delta(f, kind) for f, kind in outputs)
    share = deal(this.binder, options, this.select, [(None, None)] * len(fields), deltas)
    if "noisy_votes" in kinds:
        if len(fields) > 1:
            raise options.refuse("combine", "noisy_votes must be of the only output.")
        vote = partial(this.feature_votes, found.source, fields[0])
        votes = vote(share.whole.find_epsilon(price_of(vote)))
        counted = [Released("votes", "BIGINT", True)] if votes.noise is not None else []
        return votes, [Released(fields[0].name, "VARCHAR"), *counted], (), share.whole
    participation = this.participation(found.units)
    combiners, released, said = [], list[Released](), tuple[str, ...]()
    for (f, kind), amount in zip(outputs, share.amounts, strict=True):
        delta = share.delta_part if this.needs_delta(f, kind) else Fraction(0)
        build = partial(this.combiner, f, kind, delta=delta, participation=participation)
        epsilon = amount.find_epsilon(price_of(build))
        combiner = build(epsilon)
        combiners.append(combiner)
        number = kind in NUMERIC_COMBINERS and this.width(f) is None
        said += this.comparison(f, kind, epsilon)
        made = "DOUBLE" if number else f.typed.type.sql
        enough = not isinstance(combiner, BlockMedian) or combiner.reach is not None
        released.append(Released(f.name, made, number and enough))
    operator = SubsampleAggregate(found.source, tuple(combiners), options.confidence, participation)
    return operator, released, said, share.whole


def _exact(this: Sampling) -> _Found:
    """Return a Python function, or the query: lifted if possible, else block by block."""
    if this.registered is not None:
        return _python(this, *this.registered)
    inputs, limits = dict(this.binder.lent_inputs), len(this.binder.limits)
    try:
        return _lifted(this)
    except (BindError, PrivacyError) as error:
        if isinstance(error, BindError) and error.decided:
            raise
        refused = error
    del this.binder.limits[limits:]
    this.binder.lent_inputs.clear()
    this.binder.lent_inputs.update(inputs)
    query = PerBlockQuery(this.binder, this.env, this.number, this.turns)
    try:
        sql, fields = query.rewrite(this.select)
    except (BindError, PrivacyError) as error:
        raise (refused if isinstance(refused, BindError) else error) from None
    for relation in query.private:
        check_unit(this.options, Names((relation,)), ", ".join(t.name for t in relation.tables))
    source = block_sources.BlockQueries(tuple(query.rows), sql, tuple(f.name for f in fields), this.total)
    return _Found(source, fields, [(this.hashed(r, r.unit), to_sql(r.source)) for r in query.private])


def _lifted(this: Sampling) -> _Found:
    lifter = Lifter(this.binder, this.number, this.turns, this.total)
    lifted = lifter.query(this.select.copy(), this.env, {})
    if not lifted.single:
        raise refuse_many_rows(this.select)
    for bound in lifter.bound:
        check_unit(this.options, bound.names, bound.subject)
    names = tuple(f.name for f in lifted.fields)
    source = block_sources.LiftedBlocks(lifted.sql, names, this.total, this.together)
    return _Found(source, lifted.fields, [this.unit_of(b) for b in lifter.bound], tuple(lifter.bound))


def _python(this: Sampling, name: str, call: exp.Expr) -> _Found:
    """Return a registered Python function over the rows of each block."""
    for key in ("group", "having", "qualify", "distinct", "limit", "windows", "sample"):
        if this.select.args.get(key):
            what = f"a Python function takes rows as they are, without {key.upper()}."
            raise privacy_error(call, what, "filter with WHERE, or do it in the function.")
    bound = this.binder.private_from(this.select, this.env)
    names, private = bound.names, find_unit_holder(bound)
    check_unit(this.options, names, bound.subject)
    typed = [total_expressions.make_total(place, names) for place in call.expressions]
    if not typed:
        hint = f"write {call.name}(age, income)."
        raise bind_error(call, f"{call.name} needs columns.", hint)
    items = [f"{this.number(private, bound.unit)} AS block"]
    items += [f"{_argument(t)} AS x{i}" for i, t in enumerate(typed)]
    as_text = (f"x{i}" for i, t in enumerate(typed) if t.type.two_faced and t.type.kind != "DOUBLE")
    key, source = this.unit_of(bound)
    where = write_where(bound.unit, this.select, names)
    text = f"SELECT {', '.join(items)} FROM {source}{this.turns(private, bound.unit)}{where}"
    own = call.name.lower()
    function = this.binder.catalog.functions[own]
    made = block_sources.PythonBlocks(
        text, tuple(f"x{i}" for i in range(len(typed))), this.total, own, name, function.function,
        block_sources.fingerprint(function.function), tuple(as_text), function.returns,
    )  # fmt: skip
    kind = DOUBLE if this.options.get("bounds") is not None else TEXT
    if function.returns is not None:
        kind = sql_type(function.returns)
    elif kind is DOUBLE:
        this.binder.notes.append(
            f"the type that {own} returns is not declared: a result that is not one number counts as the middle of the "
            "bounds; register the function with returns=... to have its results checked"
        )
    return _Found(made, (Field(name, Typed(column(name), kind)),), [(key, source)])


def _argument(typed: Typed) -> str:
    """Return an argument in numpy's types: numbers above 64 bits and exact decimals become doubles."""
    if typed.type.kind == "DOUBLE":  # one zero, one NaN: the rows of a block are sorted, and ties are not
        return to_sql(unify_zeros(typed).node)
    wide = typed.type.kind == "DECIMAL" or typed.type.sql in ("HUGEINT", "UHUGEINT")
    return f"CAST({to_sql(typed.node)} AS DOUBLE)" if wide else to_sql(typed.node)
