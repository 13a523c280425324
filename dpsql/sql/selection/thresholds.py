"""DECLARE alarm ABOVE_THRESHOLD ...; SELECT WITH alarm ...; CLOSE alarm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import BindError, Error, PrivacyError
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE
from dpsql.mechanisms.selection.above_threshold import Probe, ThresholdNoise, split_epsilon
from dpsql.privacy.events import SparseVector
from dpsql.sql.dp.budget_split import require_rows, within_limit
from dpsql.sql.normalize import Env, Released, install
from dpsql.sql.parse import options as opt
from dpsql.sql.parse.dialect import bind_error, privacy_error, table_named
from dpsql.sql.parse.statements import Statement
from dpsql.sql.relations.catalog import Binder, Catalog
from dpsql.sql.relations.relation import From, column
from dpsql.sql.relations.unit_rows import describe_protection
from dpsql.sql.selection.block import rows_of_statistic
from dpsql.sql.selection.candidates import statistic_sql
from dpsql.sql.selection.score import RowNames, bind_statistic

DECLARE_OPTIONS: opt.Readers = {
    "epsilon": opt.read_epsilon,
    "max_hits": opt.read_whole,
    "refresh": opt.read_truth,
}
PROBE_OPTIONS: opt.Readers = {"max_rows_contributed": opt.read_whole}


@dataclass
class Declaration:
    """A declared threshold: what it is, and once it is open, how to put a question to it."""

    name: str
    threshold: Fraction
    epsilon1: Fraction
    epsilon2: Fraction
    max_hits: int
    refresh: bool
    ask: Callable[[int, int, int], bool] | None = field(default=None, repr=False)
    closed: bool = False

    @property
    def event(self) -> SparseVector:
        """What DECLARE reserves."""
        return SparseVector(self.epsilon1, self.epsilon2, self.max_hits, None, self.refresh)

    def sentences(self, confidence: float = 0.95) -> tuple[str, ...]:
        """Return what EXPLAIN says before any question is known, in units of what one unit may move a statistic by."""
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

    def put(self, value: int, threshold: int, sensitivity: int) -> bool:
        """Ask whether a statistic is above the threshold.

        Raises:
            BindError: the threshold is not open.
        """
        if self.ask is None:
            raise BindError(f"the threshold {self.name} is closed.", hint="DECLARE it again.")
        return self.ask(value, threshold, sensitivity)


def bind_declare(statement: Statement, catalog: Catalog) -> Declaration:
    """Bind a DECLARE; nothing is reserved yet.

    Raises:
        BindError: options that don't fit.
    """
    select = statement.tree
    assert isinstance(select, exp.Select)
    try:
        return _declaration(statement, select.copy(), catalog)
    except Error as error:
        error.span = error.span or statement.span
        raise error.located(statement.text) from None


def _declaration(statement: Statement, select: exp.Select, catalog: Catalog) -> Declaration:
    options = opt.take_mode(select, lambda mode: DECLARE_OPTIONS) or opt.Options("ABOVE_THRESHOLD", {}, {})
    if len(select.expressions) != 1:
        what = "DECLARE needs one threshold."
        raise BindError(what, span=statement.span, hint="write DECLARE alarm ABOVE_THRESHOLD 100.")
    threshold = opt.read_number(select.expressions[0], "the threshold")
    budget = catalog.policy.budget
    epsilon = options.get("epsilon", catalog.default_epsilon)
    if epsilon is None:
        what = "this needs an epsilon."
        raise PrivacyError(what, span=statement.span, hint="write OPTIONS (epsilon = 1, max_hits = 3).")
    within_limit(budget, epsilon, options.nodes.get("epsilon"))
    if statement.name.upper() in ("DP", "DIFFERENTIAL_PRIVACY", "PTR", "SUBSAMPLE"):
        what = f"{statement.name} is a mode of its own."
        raise BindError(what, span=statement.span, hint="give the threshold another name.")
    hits = options.get("max_hits", 1)
    first, second = split_epsilon(epsilon, 1 if options.get("refresh") else hits, monotone=False)
    return Declaration(statement.name, threshold, first, second, hits, bool(options.get("refresh")))


def probe_block(binder: Binder, select: exp.Select, bound: From, options: opt.Options, env: Env) -> None:
    """Bind SELECT WITH <a declared threshold> in place: one statistic, answered TRUE or FALSE."""
    declared: Declaration = binder.thresholds[options.mode.lower()]
    if declared.closed:
        closed = f"the threshold {declared.name} is closed."
        raise bind_error(options.mode_node, closed, "DECLARE it again.")
    for key in ("group", "having", "qualify", "distinct"):
        if select.args.get(key):
            raise privacy_error(select.args[key], "a threshold is asked about one number.")
    item = select.expressions[0]
    if len(select.expressions) != 1:
        raise bind_error(item, "a threshold is asked about one statistic.")
    names = RowNames(tuple(bound.relations), dict(bound.merged))
    statistic = bind_statistic(item.unalias(), names)
    hint = f"write SELECT WITH {declared.name} OPTIONS (max_rows_contributed = 10) ..."
    rows = require_rows(bound, options, item, hint)
    text = rows_of_statistic(binder, select, bound, env, names, rows)
    query = statistic_sql(text, f"(SELECT 0 AS {CANDIDATE_PLACE}) AS one", (), statistic)
    name = binder.name("block")
    threshold = math.ceil(declared.threshold * statistic.steps)  # a count is above 2.5 from 3 on
    operator = Probe(
        query, threshold, statistic.sensitivity * rows, declared.name, declared.event, declared.put
    )
    above = Released("above", "BOOLEAN")
    binder.add_block(name, operator, [above], bound.inputs, describe_protection(bound, rows))
    label = item.alias if isinstance(item, exp.Alias) else declared.name
    install(select, table_named(name), [(label, column(above.name))], also=("order", "limit"))
