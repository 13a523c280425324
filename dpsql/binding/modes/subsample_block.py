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

from dpsql.binding.dp.budget_split import BudgetShare, deal, price_of
from dpsql.binding.modes.block_sources import BlockedQuery, Blocks, IndependentRuns, SourceBinder
from dpsql.binding.modes.declared import StableDeclaration
from dpsql.binding.public_statement import Env, Released, install
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import Field
from dpsql.catalogue.option_names import NUMERIC_COMBINERS
from dpsql.errors import Error
from dpsql.language.dialect import bind_error, privacy_error, span_of, table_named, to_sql
from dpsql.language.options import Options, read_number, readers_of, reads
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.order_statistics import read_cells
from dpsql.mechanisms.queries import As, Select
from dpsql.mechanisms.subsample.blocks import (
    BlockOperator,
    BlockQueries,
    BlockSource,
    Combiner,
    FeatureVotes,
    NoisyMode,
    Participation,
    ReturnType,
    StableMode,
    compute_textbook_sampling,
)
from dpsql.mechanisms.subsample.stable_questions import StableQuestion
from dpsql.mechanisms.subsample.subsample import (
    BlockMean,
    BlockMedian,
    ConsensusMean,
    Coordinates,
    ResultRange,
    SubsampleAggregate,
    UnboundedRange,
    WinsorizedMean,
    split_by_rho,
)

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


@dataclass
class Subsample:
    """One block being bound: its options, and the combiners of its outputs."""

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
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self.registered = self._find_registered()
        if self.registered is not None:
            self.returns = self.binder.catalog.functions[self.registered[1].name.lower()].returns
        self.unbounded = options.get("bounds") == "AUTO"
        tested = self.unbounded and options.get("combine") != "median"
        blocks = int(options.get("blocks", AUTO_BLOCKS if tested else BLOCKS))
        if not 2 <= blocks <= 1_000_000:
            raise options.refuse("blocks", "blocks must be between 2 and 1,000,000.")
        stable = options.get("combine") == "stable_mode"
        self.sampling = str(options.get("sampling") or ("rounds" if stable else "partition"))
        if self.sampling != "partition" and not stable:
            what = f"{self.sampling} sampling is for the stable mode."
            raise options.refuse("sampling", what, "write combine = 'stable_mode'.")
        for option, (other, values) in _FOR.items():
            given = self.sampling if other == "sampling" else options.get(other)
            if options.get(option) is not None and given not in values:
                listed = " or ".join(f"'{value}'" for value in values)
                raise options.refuse(option, f"{option} goes with {other} = {listed}.")
        rounds = int(options.get("rounds", ROUNDS)) if self.sampling == "rounds" else 1
        self.blocks = Blocks(blocks, rounds) if self.sampling != "bernoulli" else self._draw_runs(blocks)

    def _draw_runs(self, blocks: int) -> IndependentRuns:
        """Return the textbook's independent runs, with its q and m."""
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
        q, runs = compute_textbook_sampling(epsilon, delta, int(units))
        return IndependentRuns(blocks, q=q, runs=runs, units=int(units))

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
        if kind == "stable_mode":
            slack = participation.failure if participation is not None else Fraction(0)
            if participation is not None and slack >= delta:
                what = f"with {participation.runs:,} runs, a unit may be in too many of them more often than delta allows."
                hint = "write a smaller epsilon (which makes more runs), or sampling = 'rounds'."
                raise self.options.refuse("sampling", what, hint)
            rounds = participation.cap if participation is not None else self.blocks.rounds
            test = "GAUSSIAN" if self.binder.catalog.has_rule else "PURE"
            return StableMode.calibrate(f.name, test, epsilon, delta, rounds, slack)
        if kind == "noisy_mode":
            candidates = self._candidates(f)
            exponential = self.binder.catalog.has_rule
            if candidates is not None:
                return NoisyMode(f.name, epsilon, candidates, exponential=exponential)
            return NoisyMode.unlisted(f.name, epsilon, delta, exponential)
        bounds = self.options.get("bounds")
        if self.unbounded and kind == "median":
            return BlockMedian(f.name, UnboundedRange(), epsilon)
        if self.unbounded:
            return ConsensusMean.calibrate(f.name, epsilon, delta, self._read_trim())
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
            return BlockMedian.with_interval(f.name, grid, epsilon, self.blocks.blocks, confidence)
        part = self._read_trim()
        if kind == "winsorized_mean":
            return WinsorizedMean(f.name, grid, epsilon, trim=part)
        trim = math.floor((part or Fraction(1, 10)) * self.blocks.blocks) if kind == "trimmed_mean" else 0
        return BlockMean.calibrate(f.name, grid, epsilon, trim)

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
        noise, share = (FeatureVotes.make_noise(epsilon, most), None) if top is None else (None, epsilon)
        return FeatureVotes(source, f.name, f.name, names, most, noise, top, share, self.options.confidence)

    def bind_source(self) -> BlockedQuery:
        """Bind the query on blocks; BindError if their work is too large for a statement."""
        source = SourceBinder(self.binder, self.select, self.env, self.options, self.blocks)
        found = source.bind(self.registered)
        if not isinstance(self.blocks, IndependentRuns):
            query = found.source.query if isinstance(found.source, BlockQueries) else None
            place = self.options.nodes.get("blocks") or self.options.mode_node
            self.binder.written.add_blocks(self.blocks.total, len(found.fields), query, span_of(place))
        return found


def subsample_block(binder: Binder, select: exp.Select, options: Options, env: Env) -> None:
    """Bind SELECT WITH SUBSAMPLE in place.

    Raises:
        PrivacyError: not one row per block, or an expression that can't run inside a block.
    """
    this = Subsample(binder, select, options, env)
    name, bound = binder.name("block"), this.bind_source()
    found = bound.leave([this.combiner_name(f) in NUMERIC_COMBINERS for f in bound.fields])
    operator, released, share = _combine(this, found)
    _install(this, name, bound, operator, released, share)


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
    name, bound = binder.name("block"), this.bind_source()
    if len(bound.fields) != 1:
        what = "a stable question has one output."
        raise bind_error(select.expressions[1], what, "ask for the others in questions of their own.")
    found = bound.leave([False])
    (output,) = found.fields
    stream = declared.name, declared.rule, declared.salt, declared.put
    operator = StableQuestion(found.source, output.name, *stream)
    _install(this, name, bound, operator, [Released(output.name, output.typed.type.sql)])


def _install(
    this: Subsample,
    name: str,
    bound: BlockedQuery,
    operator: BlockOperator,
    released: list[Released],
    share: BudgetShare | None = None,
) -> None:
    select, binder = this.select, this.binder
    binder.lent_inputs.update((item, None) for source in bound.bound for item in source.inputs)
    binder.add_block(
        name,
        operator,
        released,
        (),
        (this.blocks.sentence,),
        this.options.confidence,
        None if share is None else share.whole,
    )
    shown = [(r.name, bound.come_back(r)) for r in released]
    install(select, table_named(name), shown, also=("order", "limit", "with_", "qualify", "distinct"))


def _combine(this: Subsample, found: BlockedQuery) -> tuple[BlockOperator, list[Released], BudgetShare]:
    """Divide the budget; return the operator, its columns, and the loss."""
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
        return votes, [Released(fields[0].name, "VARCHAR"), *counted], share
    participation = this.blocks.participation(found.units)
    combiners, released = [], list[Released]()
    for (f, kind), amount in zip(outputs, share.amounts, strict=True):
        delta = share.delta_part if this.needs_delta(f, kind) else Fraction(0)
        build = partial(this.combiner, f, kind, delta=delta, participation=participation)
        epsilon = amount.find_epsilon(price_of(build))
        combiner = build(epsilon)
        combiners.append(combiner)
        number = kind in NUMERIC_COMBINERS and this.width(f) is None
        made = "DOUBLE" if number else f.typed.type.sql
        enough = not isinstance(combiner, BlockMedian) or combiner.reach is not None
        released.append(Released(f.name, made, number and enough))
    operator = SubsampleAggregate(found.source, tuple(combiners), options.confidence, participation)
    return operator, released, share
