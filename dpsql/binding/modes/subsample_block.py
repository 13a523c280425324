"""SELECT WITH SUBSAMPLE: any single-row query on blocks of privacy units, the results combined privately.

Combiners are chosen by the analyst, or by the type of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.binding.dp.budget_split import deal, price_of
from dpsql.binding.modes.block_queries import (
    BLOCK,
    Lifter,
    PerBlockQuery,
    conditions_of,
    refuse_many_rows,
    sql_type,
)
from dpsql.binding.modes.declared import StableDeclaration
from dpsql.binding.public_statement import Env, Released, install
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import Field, From, Names, Relation, column, column_name
from dpsql.binding.relations.unit_rows import check_unit, find_unit_holder, has_whole_unit
from dpsql.binding.values import total_expressions
from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.fixed_point import come_back, find_exit_type, hold_to_38_digits, leave, unify_zeros
from dpsql.binding.values.sql_types import DOUBLE, TEXT, Typed
from dpsql.catalogue.option_names import NUMERIC_COMBINERS
from dpsql.errors import BindError, Error, PrivacyError
from dpsql.language.dialect import bind_error, privacy_error, span_of, table_named, to_sql
from dpsql.language.options import Options, read_number, readers_of, reads
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SALT, Operator
from dpsql.mechanisms.order_statistics import GeometricGrid, read_cells
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest, make_stability_test
from dpsql.mechanisms.ptr.trimmed import SCALE_STEPS
from dpsql.mechanisms.queries import ROW_COUNT, As, Join, Select, Source, Subquery, Union
from dpsql.mechanisms.subsample.blocks import (
    RUNS_RELATION,
    BlockQueries,
    BlockSource,
    Combiner,
    FeatureVotes,
    LiftedBlocks,
    NoisyMode,
    Participation,
    PythonBlocks,
    ReturnType,
    StableMode,
    compute_textbook_sampling,
    fingerprint,
    write_block_number,
)
from dpsql.mechanisms.subsample.subsample import (
    BlockMean,
    BlockMedian,
    ConsensusMean,
    Coordinates,
    ResultRange,
    StableQuestion,
    SubsampleAggregate,
    UnboundedRange,
    WinsorizedMean,
    compare_combiners,
    split_by_rho,
)
from dpsql.privacy.amounts import Amount
from dpsql.privacy.filters import ACCOUNTANTS

# -- options


@reads("results")
def _read_results(node: exp.Expr, what: str) -> tuple[object, ...]:
    """Read a tuple of literals, the results that may win a vote, as in Python: 1 is an integer, 1.0 is not."""
    items = node.expressions if isinstance(node, exp.Tuple | exp.Array) else [node]
    found: list[str | int | float] = []
    for item in items:
        if not isinstance(item.this if isinstance(item, exp.Neg) else item, exp.Literal):
            raise bind_error(node, f"{what} must be literals.", f"write {what} = ('a', 'b').")
        number = 0 if item.is_string else read_number(item, what)
        whole = to_sql(item).lstrip("- ").isdigit()
        found.append(item.name if item.is_string else int(number) if whole else float(number))
    return tuple(found)


SUBSAMPLE_OPTIONS = readers_of("SUBSAMPLE")
_FOR: dict[str, tuple[str, tuple[str, ...]]] = {
    "trim": ("combine", ("trimmed_mean", "winsorized_mean")),
    "most": ("combine", ("noisy_votes",)),
    "top": ("combine", ("noisy_votes",)),
    "rounds": ("sampling", ("rounds",)),
    "units": ("sampling", ("bernoulli",)),
}
"""Options that require others: an option without effect is a mistake."""
BLOCKS = 128
"""The default number of blocks: public, and a power of two, which groups fastest."""
AUTO_BLOCKS = 512
"""The default number of blocks for bounds = AUTO: testing their consensus takes some hundreds at ε = 1."""
ROUNDS = 4
_POINTS = 1 << 16
_UNBOUNDED = GeometricGrid(-30, 64)
"""The grid of a median of block results without given bounds."""


@dataclass
class Subsample:
    """One block being bound: its options, its blocks of units, and the combiners of its outputs."""

    binder: Binder
    select: exp.Select
    options: Options
    env: Env
    registered: tuple[str, exp.Expr] | None = field(init=False)
    """The registered function that is called, with the name of its output."""
    returns: ReturnType | None = None
    """The declared type of its result."""
    unbounded: bool = field(init=False)
    """Whether numbers are combined without declared bounds."""
    total: int = field(init=False)
    """The number of runs."""
    together: int | None = field(default=None, init=False)
    """The number of runs processed together; None for all."""

    def __post_init__(self) -> None:
        options = self.options
        self.registered = self._find_registered()
        if self.registered is not None:
            self.returns = self.binder.catalog.functions[self.registered[1].name.lower()].returns
        self.unbounded = options.get("bounds") == "AUTO"
        tested = self.unbounded and options.get("combine") != "median"
        self.blocks = int(options.get("blocks", AUTO_BLOCKS if tested else BLOCKS))
        if not 2 <= self.blocks <= 1_000_000:
            raise options.refuse("blocks", "blocks must be between 2 and 1,000,000.")
        stable = options.get("combine") == "stable_mode"
        self.sampling = str(options.get("sampling") or ("rounds" if stable else "partition"))
        if self.sampling != "partition" and not stable:
            what = f"{self.sampling} sampling is for the stable mode."
            raise options.refuse("sampling", what, "write combine = 'stable_mode'.")
        self.rounds = int(options.get("rounds", ROUNDS)) if self.sampling == "rounds" else 1
        for option, (other, values) in _FOR.items():
            given = self.sampling if other == "sampling" else options.get(other)
            if options.get(option) is not None and given not in values:
                listed = " or ".join(f"'{value}'" for value in values)
                raise options.refuse(option, f"{option} goes with {other} = {listed}.")
        self.total = self.blocks * self.rounds

    def _find_registered(self) -> tuple[str, exp.Expr] | None:
        for item in self.select.expressions:
            inner = item.unalias()
            if isinstance(inner, exp.Anonymous) and inner.name.lower() in self.binder.catalog.functions:
                if len(self.select.expressions) != 1:
                    raise bind_error(inner, "a registered function must be the only output.")
                return item.alias or inner.name.lower(), inner
        return None

    def width(self, f: Field) -> int | None:
        """Return the number of coordinates of a result; None unless it is a vector of public length."""
        element = f.typed.type.element
        known = self.returns.length if self.returns is not None else None
        return known if element is not None and element.numeric else None

    def combiner_name(self, f: Field) -> str:
        """Return the name of the combiner of one output; BindError if the output's type doesn't fit it."""
        kind, wanted = f.typed.type, self.options.get("combine")
        number = kind.numeric or self.width(f) is not None
        if self.unbounded and wanted in (*NUMERIC_COMBINERS, None) and number:
            if wanted not in ("trimmed_mean", "median", None) or self.width(f) is not None:
                what = "bounds = AUTO is for the trimmed mean and the median of single numbers."
                hint = "write combine = 'trimmed_mean', or bounds = (-1, 1)."
                raise self.options.refuse("bounds", what, hint)
            return wanted or "trimmed_mean"
        if wanted is None:
            return "median" if number else "noisy_mode"
        why, hint = f"needs numbers, and {f.name} is {kind.sql}.", "use 'noisy_mode'."
        element = kind.element or kind
        if wanted in NUMERIC_COMBINERS and not number:
            if self.returns is not None and element.numeric:
                why = f"needs to know how long the lists of {f.name} are."
                hint = "register the function with length = ..., the same for every block."
            raise self.options.refuse("combine", f"{wanted} {why}", hint)
        if wanted == "noisy_votes" and element.kind != "TEXT":
            why = f"are for texts and lists of them, and {f.name} is {kind.sql}."
            raise self.options.refuse("combine", f"{wanted} {why}", hint)
        return str(wanted)

    def needs_delta(self, f: Field, kind: str) -> bool:
        """Return whether a combiner needs a share of delta."""
        if kind == "median" and not self.unbounded and "delta" in self.options.values:
            # for vectors, whose coordinates then get more than equal parts of epsilon
            return bool(self.options.get("delta")) and self.width(f) is not None
        unlisted = kind == "noisy_mode" and self._candidates(f) is None
        return kind == "stable_mode" or unlisted or (kind == "trimmed_mean" and self.unbounded)

    def _candidates(self, f: Field) -> tuple[object, ...] | None:
        """Return the public results that may win a vote; None if unknown."""
        given = self.options.get("candidates")
        if given is not None:
            known = self.registered is None or (self.returns is not None and not self.returns.many)
            return self._as_results(f, given) if known else tuple(given)
        if f.typed.values is not None:
            return tuple(f.typed.values)
        return (True, False) if f.typed.type.kind == "BOOLEAN" else None

    def _as_results(self, f: Field, given: Sequence[object]) -> tuple[object, ...]:
        """Return candidates with the blocks' types: a vote for 1.50 is one for a decimal, not for a double."""
        kind = f.typed.type
        parts = ", ".join(f"CAST({exp.Literal.string(str(v)).sql('duckdb')} AS {kind.sql})" for v in given)
        try:
            table = self.binder.finish.finish(Select(As(f"UNNEST([{parts}])", "v")).sql, {}, {})
            values = read_cells(table.column("v"))
            pairs = list(zip(values, given, strict=True)) if kind.kind in ("INTEGER", "DECIMAL") else []
            same = all(Fraction(v) == Fraction(str(w)) for v, w in pairs)
        except (Error, ValueError):
            same = False
        if not same:
            raise self.options.refuse("candidates", f"{f.name} is {kind.sql}, which not all candidates are.")
        return tuple(values)

    def combiner(
        self, f: Field, kind: str, epsilon: Fraction, delta: Fraction, participation: Participation | None
    ) -> Combiner:
        """Return the combiner of one output; PrivacyError if it needs a range that was not given."""
        accountant = self.binder.catalog.accountant
        if kind == "stable_mode":
            slack = participation.failure if participation is not None else Fraction(0)
            if participation is not None and slack >= delta:
                what = f"with {participation.runs:,} runs, a unit may be in too many of them more often than delta allows."
                hint = "write a smaller epsilon (which makes more runs), or sampling = 'rounds'."
                raise self.options.refuse("sampling", what, hint)
            rounds = participation.cap if participation is not None else self.rounds
            test = "GAUSSIAN" if ACCOUNTANTS[accountant].has_rule else "PURE"
            return StableMode(f.name, make_stability_test(test, epsilon, delta, slack=slack), rounds)
        if kind == "noisy_mode":
            candidates = self._candidates(f)
            exponential = ACCOUNTANTS[accountant].has_rule
            if candidates is not None:
                return NoisyMode(f.name, epsilon, candidates, exponential=exponential)
            return NoisyMode(f.name, epsilon / 2, None, OptimalTest(epsilon / 2, delta, 2), exponential)
        bounds = self.options.get("bounds")
        if self.unbounded and kind == "median":
            return BlockMedian(f.name, UnboundedRange(_UNBOUNDED), epsilon)
        if self.unbounded:
            return self._consensus(f, epsilon, delta)
        if bounds is None:
            hint = "write OPTIONS (bounds = (-1, 1)), or bounds = AUTO, which needs a delta."
            raise privacy_error(self.options.mode_node, f"{f.name} needs the range of its results.", hint)
        if bounds[0] == bounds[1]:
            raise self.options.refuse("bounds", "the bounds leave no room.")
        grid = ResultRange(bounds[0], bounds[1], _POINTS)
        if (many := self.width(f)) is not None:
            if delta and (share := split_by_rho(epsilon, delta, many)) > epsilon / many:
                medians = (BlockMedian(f.name, grid, share),) * many
                return Coordinates(f.name, medians, (epsilon, delta))
            parts = (self._numeric(f, kind, grid, epsilon / many),) * many
            return Coordinates(f.name, parts)
        return self._numeric(f, kind, grid, epsilon)

    def _consensus(self, f: Field, epsilon: Fraction, delta: Fraction) -> ConsensusMean:
        """Return the combiner of numbers without bounds: three eighths of epsilon for each test, a quarter for the noise."""
        test = make_stability_test("AUTO", 3 * epsilon / 8, delta / 2)
        trim = self._read_trim() or Fraction(1, 4)
        return ConsensusMean(f.name, test, LaplaceNoise(epsilon / 4, SCALE_STEPS), trim)

    def _read_trim(self) -> Fraction | None:
        part: Fraction | None = self.options.get("trim")
        if part is not None and part >= Fraction(1, 2):
            raise self.options.refuse("trim", "trim must be below 0.5.", "write trim = 0.1.")
        return part

    def _numeric(
        self, f: Field, kind: str, grid: ResultRange, epsilon: Fraction
    ) -> BlockMean | BlockMedian | WinsorizedMean:
        """Return the combiner of numbers, or of one coordinate of vectors."""
        if kind == "median":
            confidence = self.options.confidence
            return BlockMedian.with_interval(f.name, grid, epsilon, self.blocks, confidence)
        part = self._read_trim()
        if kind == "winsorized_mean":
            return WinsorizedMean(f.name, grid, epsilon, trim=part)
        trim = math.floor((part or Fraction(1, 10)) * self.blocks) if kind == "trimmed_mean" else 0
        return BlockMean(f.name, grid, LaplaceNoise(epsilon, _POINTS), trim)

    def comparison(self, f: Field, kind: str, epsilon: Fraction) -> tuple[str, ...]:
        """Return EXPLAIN's comparison of an output's combiners."""
        bounds = self.options.get("bounds")
        if kind not in NUMERIC_COMBINERS or bounds is None or self.unbounded:
            return ()
        grid, trim = ResultRange(bounds[0], bounds[1], _POINTS), self.options.get("trim")
        share = epsilon / (self.width(f) or 1)
        confidence = self.options.confidence
        return (compare_combiners(f.name, kind, grid, share, self.blocks, trim, confidence),)

    def feature_votes(self, source: BlockSource, f: Field, epsilon: Fraction) -> FeatureVotes:
        """Return the combiner of lists of names: noisy votes for each public name, or the names with most votes."""
        features = self.options.get("candidates")
        if features is None or not all(isinstance(name, str) for name in features):
            hint = "write OPTIONS (candidates = ('age', 'income'))."
            what = f"the names that {f.name} may contain must be public."
            raise privacy_error(self.options.mode_node, what, hint)
        names = tuple(dict.fromkeys(str(name) for name in features))
        most = min(int(self.options.get("most", len(names))), len(names))
        top = self.options.get("top")
        if top is not None and int(top) > len(names):
            raise self.options.refuse("top", f"there are {len(names)} candidates.")
        noise, share = (LaplaceNoise(epsilon, 1, 2 * most), None) if top is None else (None, epsilon)
        return FeatureVotes(source, f.name, f.name, names, most, noise, top, share, self.options.confidence)

    # -- blocks: rows are assigned to them by a secret hash of their unit, independent of other rows

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
        """Return the SQL that identifies the privacy units of a FROM, and the rows to read them from."""
        return self.hashed(find_unit_holder(bound), bound.unit), bound.sql

    def turns(self, source: Source, relation: Relation, unit: exp.Expr | None) -> Source:
        """Return the source with every row repeated, with the numbers of the rounds."""
        return Join(source, As(f"range({self.rounds})", "turns(turn)")) if self.rounds > 1 else source

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the SQL of a row's block."""
        key, blocks = self.unit(relation, unit), self.blocks
        whole, turn = unit is not None and has_whole_unit(relation), "turns.turn" if self.rounds > 1 else None
        block = write_block_number(key, blocks, turn, whole, unit is None)
        return f"turns.turn * {blocks} + {block}" if turn else block

    def participation(self, found: list[tuple[str, str]]) -> Participation | None:
        """Return the check that no unit of ``found`` (keys, with their sources) is in too many runs, if random."""
        return None

    @property
    def sentence(self) -> str:
        """EXPLAIN's sentence about the blocks."""
        rounds = f", in {self.rounds} rounds" if self.rounds > 1 else ""
        return f"The query runs on {self.blocks} blocks of privacy units{rounds}."


# -- the block

_PAIRS_TOGETHER = 10_000_000
"""About the most pairs of a unit and a run processed at once."""


class Textbook(Subsample):
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

    def _drawn(self, source: Source, key: str) -> Join:
        """Return a join with the runs of a unit, by one hash per pair."""
        coin = As(f"hash(xor(hash(runs.turn), CAST({SALT} AS UBIGINT)))", "coin")
        runs = Subquery(Select(("runs.turn", coin), RUNS_RELATION), "turns")
        drawn = f"(hash(xor(hash({key}), turns.coin)) >> 2) < {math.floor(self.q * 2**62)}"
        return Join(source, runs, drawn)

    def turns(self, source: Source, relation: Relation, unit: exp.Expr | None) -> Source:
        """Return the join with the runs of a row's unit."""
        return self._drawn(source, self.hashed(relation, unit))

    def number(self, relation: Relation, unit: exp.Expr | None) -> str:
        """Return the SQL of the run that a row was repeated for."""
        return "turns.turn"

    def participation(self, found: list[tuple[str, str]]) -> Participation:
        units = (Select(As(key, "k"), source, f"{key} IS NOT NULL", distinct=True) for key, source in found)
        ids = Subquery(Union(tuple(units), distinct=True), "ids")
        counted = Select(("ids.k", ROW_COUNT), self._drawn(ids, "ids.k"), group="ids.k")
        return Participation(Select(As("MAX(n)", "most"), Subquery(counted, "c")).sql, self.q, self.total)


@dataclass(frozen=True)
class _Found:
    source: BlockSource
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
    kind = Textbook if options.get("sampling") == "bernoulli" else Subsample
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
    this = Subsample(binder, select, replace(options, values=values), env)
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
    this: Subsample,
    name: str,
    bound: _Found,
    operator: Operator,
    released: list[Released],
    said: tuple[str, ...] = (),
    asked: Amount | None = None,
) -> None:
    select, binder = this.select, this.binder
    binder.lent_inputs.update((item, None) for source in bound.bound for item in source.inputs)
    binder.add_block(name, operator, released, (), (this.sentence, *said), this.options.confidence, asked)
    own = {f.name: f.typed.type for f in bound.fields}
    kinds = [DOUBLE if r.type == "DOUBLE" else own.get(r.name, TEXT) for r in released]
    pairs = zip(released, kinds, strict=True)
    shown = [(r.name, come_back(column(r.name), kind, r.type)) for r, kind in pairs]
    install(select, table_named(name), shown, also=("order", "limit", "with_", "qualify", "distinct"))


def _leave(found: _Found, numbers: Sequence[bool]) -> _Found:
    """Return a query whose outputs leave the engine in a supported form: as numbers, or as values that are compared."""
    alias, source = "leaving", found.source
    typed = [replace(f.typed, node=column(column_name(i), alias)) for i, f in enumerate(found.fields)]
    for item in typed:
        refuse_moment(replace(item, place=None))
    wide = [find_exit_type(t.type) != t.type for t in typed]
    if not any(wide) or not isinstance(source, LiftedBlocks | BlockQueries):
        return found
    outs = [
        t if not far else hold_to_38_digits(t) if number else leave(t)
        for t, number, far in zip(typed, numbers, wide, strict=True)
    ]
    items = [As(to_sql(out.node), column_name(i)) for i, out in enumerate(outs)]
    fields = tuple(Field(f.name, out) for f, out in zip(found.fields, outs, strict=True))
    if isinstance(source, LiftedBlocks):
        items.insert(0, As(f"{alias}.{BLOCK}", BLOCK))
    query = Select(tuple(items), Subquery(source.query, alias)).sql
    return replace(found, source=replace(source, query=query), fields=fields)


def _add_work(this: Subsample, found: _Found) -> None:
    """Add the blocks' work, except the textbook's runs, to the size of the statement; BindError if too large."""
    if isinstance(this, Textbook):
        return
    query = found.source.query if isinstance(found.source, BlockQueries) else None
    place = this.options.nodes.get("blocks") or this.options.mode_node
    this.binder.written.add_blocks(this.total, len(found.fields), query, span_of(place))


def _combine(this: Subsample, found: _Found) -> tuple[Operator, list[Released], tuple[str, ...], Amount]:
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


def _exact(this: Subsample) -> _Found:
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
    source = BlockQueries(tuple(query.rows), sql, tuple(f.name for f in fields), this.total)
    return _Found(source, fields, [(this.hashed(r, r.unit), to_sql(r.source)) for r in query.private])


def _lifted(this: Subsample) -> _Found:
    lifter = Lifter(this.binder, this.number, this.turns, this.total)
    lifted = lifter.query(this.select.copy(), this.env, {})
    if not lifted.single:
        raise refuse_many_rows(this.select)
    for bound in lifter.bound:
        check_unit(this.options, bound.names, bound.subject)
    names = tuple(f.name for f in lifted.fields)
    source = LiftedBlocks(lifted.query.sql, names, this.total, this.together)
    return _Found(source, lifted.fields, [this.unit_of(b) for b in lifter.bound], tuple(lifter.bound))


def _python(this: Subsample, name: str, call: exp.Expr) -> _Found:
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
    block, values = this.number(private, bound.unit), (As(_argument(t), f"x{i}") for i, t in enumerate(typed))
    as_text = (f"x{i}" for i, t in enumerate(typed) if t.type.two_faced and t.type.kind != "DOUBLE")
    key, source = this.unit_of(bound)
    repeated, where = this.turns(source, private, bound.unit), conditions_of(bound.unit, this.select, names)
    text = Select((As(block, "block"), *values), repeated, where).sql
    own = call.name.lower()
    function = this.binder.catalog.functions[own]
    made = PythonBlocks(
        text,
        tuple(f"x{i}" for i in range(len(typed))),
        this.total,
        own,
        name,
        function.function,
        fingerprint(function.function),
        tuple(as_text),
        function.returns,
    )
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
