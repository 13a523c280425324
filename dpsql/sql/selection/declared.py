"""DECLARE opens a stream of questions: to a noisy threshold, or to blocks that may agree on an exact answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import BindError, Error, PrivacyError
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE
from dpsql.mechanisms.selection.above_threshold import (
    InteractiveThreshold,
    Probe,
    ThresholdNoise,
    split_epsilon,
)
from dpsql.mechanisms.subsample.stable_questions import (
    QUESTIONS,
    StabilityRule,
    StableStream,
    split_stable_epsilon,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import write_number
from dpsql.privacy.accountants import suggest_delta
from dpsql.privacy.events import Event, SparseVector
from dpsql.sql.dp.budget_split import require_rows, within_limit
from dpsql.sql.normalize import Env, Released, install
from dpsql.sql.parse import options as opt
from dpsql.sql.parse.dialect import bind_error, privacy_error, span_of, table_named
from dpsql.sql.parse.modes import MODES
from dpsql.sql.parse.statements import Statement
from dpsql.sql.relations.catalog import Binder, Catalog
from dpsql.sql.relations.relation import From, column
from dpsql.sql.relations.unit_rows import describe_protection
from dpsql.sql.selection import candidates
from dpsql.sql.selection.block import rows_of_statistic
from dpsql.sql.selection.score import RowNames
from dpsql.sql.selection.utility import bind_statistic

DECLARE_OPTIONS: opt.Readers = {
    "epsilon": opt.read_epsilon,
    "max_hits": opt.read_whole,
    "refresh": opt.read_truth,
}
STABLE_OPTIONS: opt.Readers = {
    "epsilon": opt.read_epsilon,
    "delta": opt.read_delta,
    "max_unstable": opt.read_whole,
    "blocks": opt.read_whole,
    "refresh": opt.read_truth,
}
PROBE_OPTIONS: opt.Readers = {"max_rows_contributed": opt.read_whole}
QUESTION_OPTIONS: opt.Readers = {"privacy_unit_column": opt.read_word}
_MOST_BLOCKS = 1_000_000


@dataclass
class Declaration(ABC):
    """A declared stream of questions: what it is, and once it is open, how to put a question to it."""

    name: str
    ask: Callable[[int, int, int], bool] | None = field(default=None, repr=False, kw_only=True)
    closed: bool = field(default=False, kw_only=True)

    @property
    @abstractmethod
    def event(self) -> Event:
        """The charge that DECLARE reserves."""

    @abstractmethod
    def open(self, entropy: Entropy) -> InteractiveThreshold:
        """Draw the secrets of the stream."""

    @abstractmethod
    def sentences(self, confidence: float = 0.95) -> tuple[str, ...]:
        """Return what EXPLAIN says before any question is known."""

    def describe_hits(self, hits: int) -> str:
        """Say how many of the questions that are paid were found."""
        return f"{hits} {'hit' if hits == 1 else 'hits'}"

    def put(self, value: int, threshold: int, sensitivity: int) -> bool:
        """Ask whether a statistic is above the threshold.

        Raises:
            BindError: the threshold is not open.
        """
        if self.ask is None:
            raise BindError(f"the threshold {self.name} is closed.", hint="DECLARE it again.")
        return self.ask(value, threshold, sensitivity)

    def require_open(self, node: exp.Expr | None) -> None:
        """Refuse a question to a stream that was closed.

        Raises:
            BindError: it was.
        """
        if self.closed:
            raise bind_error(node, f"the threshold {self.name} is closed.", "DECLARE it again.")


@dataclass
class ThresholdDeclaration(Declaration):
    """``DECLARE alarm ABOVE_THRESHOLD 100``: statistics are compared with one number."""

    threshold: Fraction
    epsilon1: Fraction
    epsilon2: Fraction
    max_hits: int
    refresh: bool

    @property
    def event(self) -> SparseVector:
        return SparseVector(self.epsilon1, self.epsilon2, self.max_hits, None, self.refresh)

    def open(self, entropy: Entropy) -> InteractiveThreshold:
        return InteractiveThreshold(self.epsilon1, self.epsilon2, self.max_hits, self.refresh, entropy)

    def sentences(self, confidence: float = 0.95) -> tuple[str, ...]:
        noise = ThresholdNoise(
            1, self.epsilon1, self.epsilon2, self.max_hits, monotone=False, refresh=self.refresh
        )
        kind = "a fresh threshold for each round" if self.refresh else "one noisy threshold"
        return (
            f"Open the threshold {self.name}: statistics that are asked for one after another are compared with "
            f"{float(self.threshold):g}, by {kind} that stays in memory (ε={float(self.epsilon1 + self.epsilon2):g}, "
            f"at most {self.max_hits} hit{'s' if self.max_hits > 1 else ''}).",
            f"A comparison is right beyond {noise.reach(confidence, 1):.4g} times what one privacy unit may move its "
            f"statistic by, at {confidence:.0%}.",
            "CLOSE, the last hit or the end of the session settles it: hits that were not found are not paid for "
            + ("under any accountant." if self.refresh else "under basic composition."),
        )


@dataclass
class StableDeclaration(Declaration):
    """``DECLARE alarm STABLE``: questions are answered exactly where the blocks agree."""

    rule: StabilityRule
    blocks: int
    _stream: StableStream | None = field(default=None, repr=False)

    @property
    def event(self) -> Event:
        return self.rule.event()

    def open(self, entropy: Entropy) -> StableStream:
        self._stream = StableStream(self.rule, entropy)
        return self._stream

    def salt(self) -> int:
        """Return the secret that cuts the privacy units into blocks, the same for every question.

        Raises:
            BindError: the stream is not open.
        """
        if self._stream is None or self.closed:
            raise BindError(f"the threshold {self.name} is closed.", hint="DECLARE it again.")
        return self._stream.salt

    def describe_hits(self, hits: int) -> str:
        return f"{hits} unstable {'question' if hits == 1 else 'questions'}"

    def sentences(self, confidence: float = 0.95) -> tuple[str, ...]:
        rule = self.rule
        many, lead = rule.max_unstable, rule.lead(QUESTIONS, confidence)
        said = f"a lead of {lead:,} of {self.blocks:,} votes is answered"
        if lead > self.blocks:
            said = f"even unanimous votes may be NULL: a lead of {lead:,} would be needed, there are {self.blocks:,},"
        return (
            f"Open the stable questions {self.name}: the privacy units are cut once into {self.blocks:,} blocks; each question "
            f"runs on every block, and the vote that wins by enough is its exact answer "
            f"(ε={float(rule.epsilon1 + rule.epsilon2):g}, δ={float(rule.delta):.3g}).",
            f"A question on which the blocks disagree is NULL, and is paid: {many} such question{'s' if many > 1 else ''} "
            f"close{'' if many > 1 else 's'} it. Those that are answered cost nothing, however many they are.",
            f"Of {QUESTIONS:,} questions, {said} in {confidence:.0%} of sessions; δ is the chance that an answer comes out "
            "that one privacy unit could change, in all questions together.",
            "CLOSE, the last unstable question or the end of the session settles it: unstable questions that did not come "
            "are not paid for " + ("under any accountant." if rule.refresh else "under basic composition."),
        )


def bind_declare(statement: Statement, catalog: Catalog) -> Declaration:
    """Bind a DECLARE; nothing is reserved yet.

    Raises:
        BindError: options that don't fit.
    """
    select = statement.tree
    assert isinstance(select, exp.Select)
    select = select.copy()
    try:
        if statement.name.upper() in MODES:
            what = f"{statement.name} is a mode of its own."
            raise BindError(what, span=statement.span, hint="give the threshold another name.")
        if opt.mode_of(select) == "STABLE":
            return _declare_stable(statement, select, catalog)
        return _declare_threshold(statement, select, catalog)
    except Error as error:
        error.span = error.span or statement.span
        raise error.located(statement.text) from None


def _declare_threshold(statement: Statement, select: exp.Select, catalog: Catalog) -> ThresholdDeclaration:
    options = opt.take_mode(select, lambda mode: DECLARE_OPTIONS) or opt.Options("ABOVE_THRESHOLD", {}, {})
    if len(select.expressions) != 1:
        what = "DECLARE needs one threshold."
        raise BindError(what, span=statement.span, hint="write DECLARE alarm ABOVE_THRESHOLD 100.")
    threshold = opt.read_number(select.expressions[0], "the threshold")
    epsilon = _epsilon(statement, options, catalog, "write OPTIONS (epsilon = 1, max_hits = 3).")
    hits = options.get("max_hits", 1)
    first, second = split_epsilon(epsilon, 1 if options.get("refresh") else hits, monotone=False)
    return ThresholdDeclaration(statement.name, threshold, first, second, hits, bool(options.get("refresh")))


def _declare_stable(statement: Statement, select: exp.Select, catalog: Catalog) -> StableDeclaration:
    options = opt.take_mode(select, lambda mode: STABLE_OPTIONS) or opt.Options("STABLE", {}, {})
    epsilon = _epsilon(statement, options, catalog, "write OPTIONS (epsilon = 1, max_unstable = 5).")
    delta = options.get("delta", catalog.policy.budget.default_delta)
    if not delta:
        left = catalog.delta_left() if catalog.delta_left else catalog.policy.budget.mechanism_delta
        suggested = suggest_delta(left)
        hint = (
            f"write OPTIONS (delta = {write_number(suggested)})." if suggested else "no delta is left for it."
        )
        span = span_of(options.nodes.get("delta")) or statement.span
        raise PrivacyError("exact answers need a delta.", span=span, hint=hint)
    many, refresh = options.get("max_unstable", 1), bool(options.get("refresh"))
    rule = StabilityRule(*split_stable_epsilon(epsilon, delta, many, refresh), many, delta, refresh)
    enough = (
        1 << (rule.lead() * 5 // 4).bit_length()
    )  # votes that need not be quite unanimous; a power of two is fastest
    blocks = int(options.get("blocks", min(enough, _MOST_BLOCKS)))
    if not 2 <= blocks <= _MOST_BLOCKS:
        raise options.refuse("blocks", "blocks must lie between 2 and 1,000,000.")
    return StableDeclaration(statement.name, rule, blocks)


def _epsilon(statement: Statement, options: opt.Options, catalog: Catalog, hint: str) -> Fraction:
    """Return the epsilon of a DECLARE, within the owner's limit."""
    epsilon: Fraction | None = options.get("epsilon", catalog.default_epsilon)
    if epsilon is None:
        raise PrivacyError("this needs an epsilon.", span=statement.span, hint=hint)
    within_limit(catalog.policy.budget, epsilon, options.nodes.get("epsilon"))
    return epsilon


def probe_block(binder: Binder, select: exp.Select, bound: From, options: opt.Options, env: Env) -> None:
    """Bind SELECT WITH <a declared threshold> in place: one statistic, answered TRUE or FALSE."""
    declared = binder.thresholds[options.mode.lower()]
    assert isinstance(declared, ThresholdDeclaration)
    declared.require_open(options.mode_node)
    for key in ("group", "having", "qualify", "distinct"):
        if select.args.get(key):
            raise privacy_error(select.args[key], "a threshold is asked about one number.")
    item = select.expressions[0]
    if len(select.expressions) != 1:
        raise bind_error(item, "a threshold is asked about one statistic.")
    names = RowNames(tuple(bound.relations), dict(bound.merged))
    statistic = bind_statistic(item.unalias(), names, binder.catalog.engine.dialect)
    hint = f"write SELECT WITH {declared.name} OPTIONS (max_rows_contributed = 10) ..."
    rows = require_rows(bound, options, item, hint)
    text = rows_of_statistic(binder, select, bound, env, names, rows)
    query = candidates.statistic_sql(text, f"(SELECT 0 AS {CANDIDATE_PLACE}) AS one", (), statistic)
    name = binder.name("block")
    threshold = math.ceil(declared.threshold * statistic.steps)  # a count is above 2.5 from 3 on
    operator = Probe(
        query, threshold, statistic.sensitivity * rows, declared.name, declared.event, declared.put,
        statistic.form_of(rows),
    )  # fmt: skip
    above = Released("above", "BOOLEAN")
    binder.add_block(name, operator, [above], bound.inputs, describe_protection(bound, rows))
    label = item.alias if isinstance(item, exp.Alias) else declared.name
    install(select, table_named(name), [(label, column(above.name))], also=("order", "limit"))
