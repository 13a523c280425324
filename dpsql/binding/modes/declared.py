"""Binds DECLARE, which opens a stream of questions: to a noisy threshold, or to blocks that may agree on an exact answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.dp.budget_split import (
    divide_for_answers,
    find_declared_amount,
    require_declared_delta,
    require_rows,
)
from dpsql.binding.modes.scored_statistic import ScoredStatistic
from dpsql.binding.public_statement import Env, Released, install, make_unique
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.relation import From, column
from dpsql.catalogue.aggregate_names import MODES
from dpsql.errors import BindError, Error
from dpsql.language import options as opt
from dpsql.language.dialect import bind_error, privacy_error, table_named
from dpsql.language.statements import Statement
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.selection.above_threshold import (
    InteractiveThreshold,
    Probe,
    ThresholdNoise,
    charge_answers,
    share_epsilon,
)
from dpsql.mechanisms.subsample.stable_questions import (
    QUESTIONS,
    StabilityRule,
    StableStream,
    split_stable_epsilon,
)
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event

DECLARE_OPTIONS = opt.readers_of("DECLARE")
STABLE_OPTIONS = opt.readers_of("DECLARE STABLE")
PROBE_OPTIONS = opt.readers_of("PROBE")
QUESTION_OPTIONS = opt.readers_of("QUESTION")
_MOST_BLOCKS = 1_000_000


@dataclass
class Declaration(ABC):
    """A declared stream of questions: its definition and, once open, the way to ask it."""

    name: str
    ask: Callable[[int, int, int], int | None] | None = field(default=None, repr=False, kw_only=True)
    closed: bool = field(default=False, kw_only=True)

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event that DECLARE reserves."""

    @abstractmethod
    def open(self, entropy: Entropy) -> InteractiveThreshold:
        """Draw the secrets of the stream."""

    @abstractmethod
    def sentences(self, confidence: float = 0.95) -> tuple[str, ...]:
        """Return EXPLAIN's sentences before any question is known."""

    def describe_hits(self, hits: int) -> str:
        """Return the sentence on the number of paid questions so far."""
        return f"{hits} {'hit' if hits == 1 else 'hits'}"

    def put(self, value: int, threshold: int, sensitivity: int) -> int | None:
        """Return how far a statistic is above the noisy threshold; None if below; BindError if the threshold is not open."""
        if self.ask is None:
            raise BindError(f"the threshold {self.name} is closed.", hint="DECLARE it again.")
        return self.ask(value, threshold, sensitivity)

    def require_open(self, node: exp.Expr | None) -> None:
        """Raise BindError for a question to a closed stream."""
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
    delta: Fraction = Fraction(0)
    gap: bool = False
    answers: Fraction = Fraction(0)

    @property
    def noise(self) -> ThresholdNoise:
        """The noise for statistics of sensitivity 1."""
        shared = (1, self.epsilon1, self.epsilon2, self.max_hits, False, self.refresh)
        return ThresholdNoise(*shared).with_gaussian(self.delta)

    @property
    def event(self) -> Event:
        return charge_answers(self.noise.event(), self.answers)

    def open(self, entropy: Entropy) -> InteractiveThreshold:
        return InteractiveThreshold(
            self.epsilon1, self.epsilon2, self.max_hits, self.refresh, entropy, self.delta, self.answers
        )

    def sentences(self, confidence: float = 0.95) -> tuple[str, ...]:
        noise, whole = self.noise, float(self.epsilon1 + self.epsilon2 + self.answers)
        kind = "a fresh threshold for each round" if self.refresh else "one noisy threshold"
        kind += f" with Gaussian noise (σ={float(noise.sigma):.4g})" if noise.sigma is not None else ""
        fresh = f"Each hit has a fresh noisy answer; all answers share ε={float(self.answers):g}."
        return (
            f"Open the threshold {self.name}: successive statistics are compared with {float(self.threshold):g}, by {kind} "
            f"that is kept in memory (ε={whole:g}, at most {self.max_hits} hit{'s' if self.max_hits > 1 else ''}).",
            f"At {confidence:.0%}, a comparison is right if the statistic is farther from the threshold than "
            f"{noise.reach(confidence, 1):.4g} times the most that one privacy unit can move it.",
            "CLOSE, the last hit or the end of the session settles the charge: unused hits are refunded "
            + ("under any accountant." if self.refresh else "under basic composition."),
            *((fresh,) if self.answers else ()),
        )


@dataclass
class StableDeclaration(Declaration):
    """``DECLARE alarm STABLE``: questions are answered exactly if the blocks agree."""

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
        """Return the secret that divides the privacy units into blocks, one for all questions; BindError if not open."""
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
            f"Open the stable questions {self.name}: the privacy units are divided once into {self.blocks:,} blocks; each "
            f"question runs on every block, and the vote that wins by enough is its exact answer "
            f"(ε={float(rule.epsilon1 + rule.epsilon2):g}, δ={float(rule.delta):.3g}).",
            f"A question on which the blocks disagree is NULL, and is charged: {many} such question{'s' if many > 1 else ''} "
            f"close{'' if many > 1 else 's'} the stream. Answered questions are free.",
            f"Of {QUESTIONS:,} questions, {said} in {confidence:.0%} of sessions; δ is the chance of an answer that one "
            "privacy unit could change, in all questions together.",
            "CLOSE, the last unstable question or the end of the session settles the charge: unused ones are refunded "
            + ("under any accountant." if rule.refresh else "under basic composition."),
        )


Fold = Callable[[exp.Select, Catalog], None]
"""Replaces queries of released numbers in a SELECT by their values, in place."""


def bind_declare(statement: Statement, catalog: Catalog, fold_scalars: Fold) -> Declaration:
    """Bind a DECLARE without reserving anything; BindError for options that don't fit."""
    select = statement.tree
    assert isinstance(select, exp.Select)
    select = select.copy()
    try:
        if statement.name.upper() in MODES:
            what = f"{statement.name} is the name of a mode."
            raise BindError(what, span=statement.span, hint="give the threshold another name.")
        fold_scalars(select, catalog)
        declare = _declare_stable if opt.mode_of(select) == "STABLE" else _declare_threshold
        return declare(statement, select, catalog)
    except Error as error:
        error.span = error.span or statement.span
        raise error.located(statement.text) from None


def _declare_threshold(statement: Statement, select: exp.Select, catalog: Catalog) -> ThresholdDeclaration:
    options = opt.take_mode(select, lambda mode: DECLARE_OPTIONS) or opt.Options("ABOVE_THRESHOLD", {}, {})
    if len(select.expressions) != 1:
        what = "DECLARE needs one threshold."
        raise BindError(what, span=statement.span, hint="write DECLARE alarm ABOVE_THRESHOLD 100.")
    threshold = opt.read_number(select.expressions[0], "the threshold")
    asked = find_declared_amount(
        options, catalog, statement.span, "write OPTIONS (epsilon = 1, max_hits = 3)."
    )
    hits, refresh = options.get("max_hits", 1), bool(options.get("refresh"))
    shares, delta = options.get("budget_split"), Fraction(0)
    if options.get("noise") == "GAUSSIAN":
        delta = require_declared_delta(options, catalog, statement.span, "Gaussian noise needs a delta.")

    place, answer, gap = options.nodes.get("budget_split"), options.get("answer"), bool(options.get("gap"))

    def declare(epsilon: Fraction) -> ThresholdDeclaration:
        own, answers = divide_for_answers(place, epsilon, answer, shares)
        first, second = share_epsilon(own, hits, False, refresh, shares)
        return ThresholdDeclaration(
            statement.name, threshold, first, second, hits, refresh, delta, gap, answers
        )

    return declare(asked.find_epsilon(lambda epsilon: declare(epsilon).event))


def _declare_stable(statement: Statement, select: exp.Select, catalog: Catalog) -> StableDeclaration:
    options = opt.take_mode(select, lambda mode: STABLE_OPTIONS) or opt.Options("STABLE", {}, {})
    asked = find_declared_amount(
        options, catalog, statement.span, "write OPTIONS (epsilon = 1, max_unstable = 5)."
    )
    delta = require_declared_delta(options, catalog, statement.span, "exact answers need a delta.")
    many, refresh = options.get("max_unstable", 1), bool(options.get("refresh"))
    shares = options.get("budget_split")

    def make_rule(epsilon: Fraction) -> StabilityRule:
        divide_for_answers(options.nodes.get("budget_split"), epsilon, False, shares)
        split = split_stable_epsilon(epsilon, delta, many, refresh)
        if shares is not None:
            split = share_epsilon(epsilon, many, False, refresh, shares)
        return StabilityRule(*split, many, delta, refresh)

    rule = make_rule(asked.find_epsilon(lambda epsilon: StableDeclaration("", make_rule(epsilon), 2).event))
    enough = 1 << (rule.lead() * 5 // 4).bit_length()
    blocks = int(options.get("blocks", min(enough, _MOST_BLOCKS)))
    if not 2 <= blocks <= _MOST_BLOCKS:
        raise options.refuse("blocks", "blocks must lie between 2 and 1,000,000.")
    return StableDeclaration(statement.name, rule, blocks)


def probe_block(binder: Binder, select: exp.Select, bound: From, options: opt.Options, env: Env) -> None:
    """Bind SELECT WITH a declared threshold in place: one statistic, answered TRUE or FALSE."""
    declared = binder.thresholds[options.mode.lower()]
    assert isinstance(declared, ThresholdDeclaration)
    declared.require_open(options.mode_node)
    for key in ("group", "having", "qualify", "distinct"):
        if select.args.get(key):
            hint = "ask about one group at a time: WHERE ward = 'A'." if key == "group" else None
            raise privacy_error(select.args[key], "a threshold is asked about one number.", hint)
    item = select.expressions[0]
    if len(select.expressions) != 1:
        raise bind_error(item, "a threshold is asked about one statistic.")
    hint = "give max_rows_contributed among the options of this question, or ask the owner for max_rows."
    scores = ScoredStatistic.bind(
        binder, select, bound, env, item.unalias(), require_rows(bound, options, item, hint)
    )
    statistic = scores.statistic
    name = binder.name("block")
    level = options.get("threshold", declared.threshold)
    threshold = math.ceil(level * statistic.steps)  # a count is above 2.5 from 3 on
    answer = declared.answers / declared.max_hits if declared.answers else None
    operator = Probe(
        (scores.write_one(),),
        threshold,
        scores.sensitivity,
        declared.name,
        declared.event,
        declared.put,
        statistic.steps,
        declared.gap,
        answer,
        options.confidence,
        statistic.form_of(scores.per_unit),
        scores.per_unit,
    )
    made = [Released("above", "BOOLEAN"), *([Released("gap", "DOUBLE")] if declared.gap else [])]
    if answer is not None:
        made.append(Released("answer", scores.answer_type, True))
    binder.add_block(name, operator, made, bound.inputs, scores.protection)
    label = item.alias if isinstance(item, exp.Alias) else declared.name
    labels = make_unique([label, *(released.name for released in made[1:])])
    outputs = [(output, column(released.name)) for output, released in zip(labels, made, strict=True)]
    install(select, table_named(name), outputs, also=("order", "limit"))
