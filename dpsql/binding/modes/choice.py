"""Binds ABOVE_THRESHOLD and EXPMECH, which choose among public candidates by one statistic each.

A sweep computes equal scores outside SQL, from histograms of the private rows and the candidates. It is used only for
types that numpy compares as the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.dp.block_strategies import refuse_unfit
from dpsql.binding.dp.budget_split import deal, require_rows
from dpsql.binding.mode_table import calls_mechanism
from dpsql.binding.modes.utility import (
    RowNames,
    bind_statistic,
    bounded,
    divide_for_answers,
    level_of,
    rows_of_statistic,
)
from dpsql.binding.plan import Input
from dpsql.binding.public_statement import Env, Released, install, kept_cte_name, make_unique, spell
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.fan_out import max_fan_out, refuse_fan_out
from dpsql.binding.relations.relation import Field, From, Relation, column, fold
from dpsql.binding.relations.unit_rows import check_unit, describe_protection
from dpsql.binding.values import total_expressions
from dpsql.binding.values.fixed_point import clamp_to_38_digits
from dpsql.binding.values.sql_types import Type
from dpsql.catalogue.aggregate_names import MECHANISMS
from dpsql.catalogue.option_names import ARGUMENT_NAMES
from dpsql.errors import BindError, PrivacyError, Span
from dpsql.exact.candidate_statistics import (
    BATCH,
    CANDIDATE,
    ROWS,
    CandidateStatistic,
    Range,
    Term,
    Weight,
    count_candidates,
    extend_candidates,
    limit_candidates,
    nested_sql,
    number_candidates,
    statistic_sql,
    write_candidates,
    write_compared_column,
    write_threshold_bins,
)
from dpsql.exact.row_caps import RowCaps
from dpsql.language import options as opt
from dpsql.language.dialect import bind_error, privacy_error, span_of, table_named, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_BASE,
    CANDIDATE_SENSITIVITY,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
)
from dpsql.mechanisms.fast.column_counts import DECIMAL_DIGITS
from dpsql.mechanisms.fast.thresholds import DOUBLE_DIGITS, HistogramQuery
from dpsql.mechanisms.queries import CANDIDATE_PLACE
from dpsql.mechanisms.selection.above_threshold import AboveThreshold, ThresholdNoise, share_epsilon
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.privacy.filters import ACCOUNTANTS

SELECTION_ARGUMENTS = {name: opt.readers_of(name, ARGUMENT_NAMES) for name in sorted(MECHANISMS)}
MAX_PASSES = 100
"""The most times that candidates may be asked."""
MAX_CANDIDATES = 10_000_000
"""The most candidates of one choice."""
_USAGE = {
    "ABOVE_THRESHOLD": (2, "give the statistic, and the threshold after it."),
    "EXPMECH": (1, "give it the utility alone; the name of the candidates follows the word over."),
}
PLACE = "they are a public table, or a list of values with a name before the query; the name follows the word over."
"""The hint that says where candidates stand."""


@dataclass
class Selection:
    """One block being bound."""

    binder: Binder
    select: exp.Select
    bound: From
    options: opt.Options
    env: Env
    call: opt.Call
    notes: list[str] = field(default_factory=list)
    """Further sentences of EXPLAIN."""

    def bind(self) -> None:
        """Bind the candidates, the statistic and the mechanism, and replace the SELECT by the release.

        Raises:
            PrivacyError: the sensitivity can't be derived, or the candidates are not public.
        """
        call = self.call
        opt.refuse_equals(call, SELECTION_ARGUMENTS[call.name])
        self.given = call.read(SELECTION_ARGUMENTS[call.name])
        call.require(*_USAGE[call.name])
        if call.where is not None or call.distinct:
            hint = "filter inside the statistic."
            raise bind_error(call.node, f"{call.name} takes no FILTER of its own.", hint)
        for key in ("group", "having", "qualify"):
            if self.select.args.get(key):
                what = f"{call.name} does not go with {key.upper()}."
                hint = "the candidates are the groups; filter the answer in a query above."
                raise privacy_error(self.select.args[key], what, hint)
        check_unit(self.options, self.bound.names, self.bound.subject)
        gaussian = self.options.get("noise") == "GAUSSIAN"
        if gaussian and call.name != "ABOVE_THRESHOLD":
            hint = "leave noise out: its answers have Laplace noise."
            raise self.options.refuse("noise", f"{call.name} has noise of its own.", hint)
        if self.options.get("report_cut"):
            what = f"{call.name} chooses: it shows no statistic that a cap may have cut."
            raise self.options.refuse("report_cut", what, "leave report_cut out.")
        refuse_unfit(self.options)
        if "error" in self.options.values:
            what = f"{call.name} chooses: it has no interval to narrow."
            raise self.options.refuse("error", what, "leave error out.")
        candidate = self._candidates()
        self.names = RowNames((*self.bound.relations, candidate), dict(self.bound.merged), {}, candidate)
        self.statistic = bind_statistic(call.args[0], self.names, self.binder.catalog.engine.dialect)
        self.rows_per_unit = rows = require_rows(self.bound, self.options, call.node)
        self.rows = rows_of_statistic(self.binder, self.select, self.bound, self.env, self.names, rows)
        asked = [(self.given.get("epsilon"), call.node)]
        share = deal(self.binder, self.options, self.select, asked, int(gaussian))
        self.delta = share.delta if gaussian else Fraction(0)
        wanted = self._wanted(candidate)
        # The candidate's columns to return, as named in the release.
        self.columns = tuple(_exact(f) for f in wanted)
        self.asked = share.whole
        split, (_, place) = self.given.get("budget_split"), call.named.get("budget_split") or (None, None)
        make = self._above if call.name == "ABOVE_THRESHOLD" else self._best
        named = make_unique([*self.columns, "answer"])[-1] if self.given.get("answer") else None

        def build(epsilon: Fraction) -> tuple[Operator, list[Released]]:
            own, answers = divide_for_answers(place, epsilon, self.given.get("answer"), split)
            return make(own, (named, answers) if named is not None and answers else None)

        operator, made = build(share.amounts[0].find_epsilon(lambda epsilon: build(epsilon)[0].event))
        if named is not None:
            made.insert(0, Released(named, "BIGINT" if self.statistic.steps == 1 else "DOUBLE", True))
        self._release(candidate, wanted, operator, made)

    # -- candidates ---------------------------------------------------------------------------------------------

    def _candidates(self) -> Relation:
        name, span = self.call.over, span_of(self.call.node)
        if name is None:
            if self.call.name == "EXPMECH":
                raise BindError("EXPMECH chooses among candidates.", span=span, hint=PLACE)
            query: exp.Select = exp.select(exp.alias_(exp.Literal.number(1), "dpsql_one"))
        else:
            cte = self.env.get(fold(name)) or self.env.get(kept_cte_name(name, self.binder.own_names.taken))
            try:
                listed = self.binder.catalog.find(name, span) if cte is None else None
            except BindError as error:
                near = (error.hint or "").startswith("did you mean")
                error.message = error.message if near else f"there are no candidates {name}."
                error.hint = error.hint if near else PLACE
                raise
            if not (listed.public if listed is not None else cte is not None and cte.private is None):
                hint = (
                    "candidates are public: a list of values, a public table, or an answer that was released."
                )
                raise PrivacyError(f"the candidates {name} depend on private rows.", span=span, hint=hint)
            if listed is not None:
                self.binder.public[listed.name] = None
            table = exp.to_identifier(name if cte is None else cte.name, quoted=True)
            query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Table(this=table)))
        relation = self.binder.public_relation(query, self.env, CANDIDATE)
        given = relation.inputs[0]
        distinct = self._refuse_many(given, relation.fields, span)
        once = self.call.name == "EXPMECH" and not distinct
        self.found = Input(given.name, number_candidates(given.sql, once))
        values = self.binder.known(self.found)
        if values is not None and values.num_rows == 0:
            raise PrivacyError(f"there are no candidates in {name}.", span=span)
        self.count = None if values is None else values.num_rows  # otherwise not known yet
        fields = tuple(bounded(f, values) for f in relation.fields)
        return replace(relation, alias=name or CANDIDATE, fields=fields, inputs=(self.found,))

    def _refuse_many(self, given: Input, fields: Sequence[Field], span: Span | None) -> bool:
        """Refuse candidates by their number before they are computed and compared with each other.

        Return whether they ascend, so that each is listed once.
        """
        counted = count_candidates(given.sql, _exact(fields[0]), MAX_CANDIDATES + 1)
        found = self.binder.known(Input(given.name, counted))
        count, ascents = (0, 0) if found is None else (column[0].as_py() for column in found.columns)
        if count > MAX_CANDIDATES:
            hint = "choose a range among few candidates first, and then within it."
            raise BindError(f"these are more than {MAX_CANDIDATES:,} candidates.", span=span, hint=hint)
        terms = max(1, sum(1 for _ in self.call.args[0].find_all(exp.AggFunc)))
        self.binder.written.add_candidates(count, len(fields), terms, span)
        return bool(ascents == count - 1)

    def _wanted(self, candidate: Relation) -> tuple[Field, ...]:
        """Return the candidate's columns to release: those in the SELECT, otherwise all."""
        if self.call.over is None:
            return ()
        items = [*self.select.expressions, self.select.args.get("order")]
        nodes = [node for item in items if item is not None for node in item.walk(prune=calls_mechanism)]
        outside = [node for node in nodes if isinstance(node, exp.Column)]
        named = [f for f in candidate.fields if any(self._names(c, f) for c in outside)]
        return tuple(named or candidate.fields)

    def _names(self, node: exp.Column, f: Field) -> bool:
        return fold(node.name) == fold(f.name) and fold(node.table) in ("", fold(self.call.over or ""))

    # -- mechanisms ---------------------------------------------------------------------------------------------

    def _sweep(self, extra: dict[str, str], varying: bool) -> CandidateScores | None:
        assert self.names.candidate is not None
        types = {(ROWS, name): kind for name, kind in self.names.types.items()}
        types |= {(CANDIDATE, _exact(f)): f.typed.type for f in self.names.candidate.fields}
        source, per_unit = self.found.name, self.rows_per_unit
        return sweep_of(self.rows, source, self.columns, self.statistic, types, per_unit, extra, varying)

    def _batches(self, extra: dict[str, str]) -> tuple[str, ...]:
        """Return the queries of the statistic for all candidates, with further columns."""
        source, statistic = extend_candidates(self.found.name, extra), self.statistic
        columns = (*self.columns, *extra)
        looped, several = statistic.shape == "nested loop", "several ranges" in statistic.shape
        tables = [t for r in self.bound.relations for t in r.tables]
        if looped and self.count is None:
            what = "this shape is computed candidate by candidate, and their number is not known yet."
            hint = "compare with =, <, <=, >, >= or BETWEEN, or list the candidates."
            raise privacy_error(self.call.node, what, hint)
        if looped or several:
            refuse_fan_out((self.count or 1) * self.bound.fan_out, tables, self.call.node)
        if looped and self.count is not None:
            firsts = range(0, max(self.count, 1), BATCH)
            given = self.rows, source, columns, statistic
            return tuple(nested_sql(*given, first) for first in firsts)
        if several and self.count is None:
            most = max_fan_out(tables) // self.bound.fan_out
            self.found = Input(self.found.name, limit_candidates(self.found.sql, most))
            self.notes.append(f"At most the first {most:,} candidates are considered (max_fan_out).")
        return (statistic_sql(self.rows, source, columns, statistic),)

    def _above(
        self, epsilon: Fraction, answer: tuple[str, Fraction] | None
    ) -> tuple[Operator, list[Released]]:
        threshold = total_expressions.make_total(self.call.args[1], self.names)
        columns = threshold.node.find_all(exp.Column)
        if not threshold.type.numeric or any(c.table != CANDIDATE for c in columns):
            what = "the threshold must be public: a number, or an expression over the candidate's columns."
            hint = "release a noisy threshold first, in a block of its own."
            raise privacy_error(self.call.args[1], what, hint)
        statistic, given = self.statistic, self.given
        level, extra = level_of(threshold, statistic.steps)
        hits, refresh, gap = given.get("max_hits", 1), bool(given.get("refresh")), None
        e1, e2 = share_epsilon(epsilon, hits, statistic.monotone, refresh, given.get("budget_split"))
        sensitivity, passes = statistic.sensitivity * self.rows_per_unit, given.get("passes", 1)
        if passes > MAX_PASSES:
            span = span_of(self.call.named["passes"][1])
            raise BindError(f"at most {MAX_PASSES} passes are made.", span=span)
        shared = (sensitivity, e1, e2, hits, statistic.monotone, refresh)
        noise = ThresholdNoise(*shared, asked_again=passes - 1).with_gaussian(self.delta)
        flag = "above_threshold" if self.call.over is None else None
        if flag is not None and (answer is not None or given.get("gap") or hits != 1):
            hint = "name the table of the candidates after it and the word over."
            span = span_of(self.call.node)
            raise BindError("without candidates the answer is TRUE or FALSE.", span=span, hint=hint)
        if given.get("gap"):
            gap = make_unique([*self.columns, "gap"])[-1]
        operator = AboveThreshold(
            self._batches(extra),
            self.columns,
            level,
            noise,
            statistic.steps,
            answer,
            gap,
            flag,
            self.options.confidence,
            self.count,
            self._sweep(extra, False),
            statistic.form_of(self.rows_per_unit),
            self.rows_per_unit,
        )
        made = [Released(flag, "BOOLEAN")] if flag else []
        return operator, made + ([Released(gap, "DOUBLE")] if gap else [])

    def _best(
        self, epsilon: Fraction, answer: tuple[str, Fraction] | None
    ) -> tuple[Operator, list[Released]]:
        sharper = ACCOUNTANTS[self.binder.catalog.accountant].has_rule
        method = self.given.get("method") or ("exponential" if sharper else "permute_and_flip")
        top = self.given.get("top", 1)
        if self.count is not None and top > self.count:
            span = span_of(self.call.named["top"][1])
            raise BindError(f"there are only {self.count} candidates.", span=span)
        statistic, rows, varying = self.statistic, self.rows_per_unit, self.statistic.varying
        extra = {CANDIDATE_SENSITIVITY: f"CAST({varying} * {rows} AS HUGEINT)"} if varying else {}
        operator = ExponentialChoice(
            self._batches(extra),
            self.columns,
            statistic.sensitivity * rows,
            epsilon,
            statistic.monotone,
            method,
            top,
            bool(varying),
            statistic.steps,
            answer,
            self.count,
            self.options.confidence,
            self._sweep({}, bool(varying)),
            statistic.form_of(rows),
            rows,
        )
        return operator, []

    # -- above the block ---------------------------------------------------------------------------------------

    def _release(
        self, candidate: Relation, wanted: tuple[Field, ...], operator: Operator, made: list[Released]
    ) -> None:
        """Add the block to the plan, and make the SELECT read its release."""
        statistic, name = self.statistic, self.binder.name("block")
        kinds = {_exact(f): f.typed.type for f in candidate.fields}
        types = {c: "INTEGER" if kind.kind == "NULL" else kind.sql for c, kind in kinds.items()}
        moved = Fraction(statistic.sensitivity * self.rows_per_unit) / statistic.steps
        said = (
            f"The statistic of each candidate is exact, in {'a nested loop' if statistic.shape == 'nested loop' else 'one pass'} "
            f"({statistic.shape}); one privacy unit moves it by at most {float(moved):g}"
            + (", always the same way." if statistic.monotone else ".")
        )
        self.binder.add_block(
            name,
            operator,
            [*(Released(c, types[c]) for c in self.columns), *made],
            (*self.bound.inputs, *self.binder.lent_inputs, self.found),
            (*describe_protection(self.bound, RowCaps(self.rows_per_unit), grouped=False), said, *self.notes),
            self.options.confidence,
            self.asked,
        )
        shown: list[tuple[str, exp.Expr]] = []
        visible = [item.name for item in made]
        if all(calls_mechanism(item.unalias()) for item in self.select.expressions):
            shown += [(f.name, column(_exact(f))) for f in wanted]
        for item in self.select.expressions:
            alias = item.alias if isinstance(item, exp.Alias) else ""
            if calls_mechanism(item.unalias()):
                shown += [(alias if alias and n == visible[0] else n, column(n)) for n in visible]
                continue
            bare = item.name if isinstance(item, exp.Column) else spell(item)
            label = alias or (self.call.name.lower() if _holds_mechanism(item) else bare)
            shown.append((label, self._above_block(item.unalias().copy(), wanted, visible)))
        labels = make_unique(label for label, _ in shown)
        order = self.select.args.get("order")
        for node in order.expressions if order is not None else ():
            if not _one_of(node.this, labels):  # the SELECT's aliases come first, as in SQL
                node.set("this", self._above_block(node.this, wanted, visible))
        outputs = [(label, node) for label, (_, node) in zip(labels, shown, strict=True)]
        install(self.select, table_named(name), outputs)

    def _above_block(self, node: exp.Expr, wanted: tuple[Field, ...], visible: list[str]) -> exp.Expr:
        """Return an analyst's expression over the columns of the release."""
        if calls_mechanism(node.unalias()):
            if not visible:
                what = f"{self.call.name} returns rows here, not a value."
                raise bind_error(node, what, "add answer => TRUE.")
            return column(visible[0])
        if isinstance(node, exp.Query):
            self.binder.public_query(node, self.env)
            return node
        if node.is_star:
            hint = "name columns of the candidates; if none is named, all of them are shown."
            raise privacy_error(node, f"* is not supported in a query with {self.call.name}.", hint)
        if isinstance(node, exp.Column):
            found = next((f for f in wanted if self._names(node, f)), None)
            if found is not None:
                return column(_exact(found))
            if _one_of(node, visible):
                return node
            known = ", ".join(f.name for f in wanted) or "TRUE or FALSE"
            what = f"{node.name} is not a column of the candidates."
            raise privacy_error(node, what, f"only what is chosen is released: {known}.")
        for child in list(node.iter_expressions()):
            new = self._above_block(child, wanted, visible)
            if new is not child:
                child.replace(new)
        return node


def _exact(candidate: Field) -> str:
    """Return the name of a candidates' column in exact queries and in the release."""
    return candidate.typed.node.name


def _holds_mechanism(node: exp.Expr) -> bool:
    return any(calls_mechanism(n) for n in node.walk(prune=lambda n: isinstance(n, exp.Query)))


def _one_of(node: exp.Expr, labels: list[str]) -> bool:
    return isinstance(node, exp.Column) and not node.table and fold(node.name) in map(fold, labels)


# -- the sweep over candidates ------------------------------------------------------------------------------------------

Types = Mapping[tuple[str, str], Type]
"""Types of columns, by relation and name."""
_INTEGERS = {"INTEGER", "NULL"}
_NUMBERS = {"INTEGER", "DECIMAL", "DOUBLE", "NULL"}
_UNLIKE = ("FLOAT", "UBIGINT", "HUGEINT", "UHUGEINT")
"""Types without a 64-bit integer or double in Arrow."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
_NARROW_DIGITS = 9


class _Shown(dict[str, str]):
    """The candidates' columns that a sweep reads, SQL by name: each expression once."""

    def own(self, name: str) -> str:
        self.setdefault(name, to_sql(exp.column(name, table=CANDIDATE, quoted=True)))
        return name

    def column(self, node: exp.Expr | str) -> str:
        """Return the name of an expression's column."""
        bare = None if isinstance(node, str) else _bare(node)
        if bare is not None and bare.table == CANDIDATE:
            return self.own(bare.name)
        sql = node if isinstance(node, str) else to_sql(node)
        found = next((name for name, text in self.items() if text == sql), f"dpsql_{len(self)}")
        self[found] = sql
        return found


def sweep_of(
    rows: str,
    source: str,
    columns: Sequence[str],
    statistic: CandidateStatistic,
    types: Types,
    per_unit: int,
    extra: Mapping[str, str],
    varying: bool,
) -> CandidateScores | None:
    """Return the sweep of a statistic in a one-pass shape; None for values that are no numbers or dates."""
    histograms: dict[HistogramQuery, int] = {}
    shown = _Shown()
    for name in (*columns, CANDIDATE_PLACE):
        shown.own(name)
    swept = []
    for term in statistic.terms:
        counted = _counted(rows, term, types)
        if counted is None:
            return None
        place = histograms.setdefault(counted, len(histograms))
        publics = [_as_double(r.bound) if _meet_as_doubles(r, types) else r.bound for r in term.ranges]
        bounds = tuple((r.op, shown.column(node)) for r, node in zip(term.ranges, publics, strict=True))
        clip = shown.column(term.clip) if term.clip is not None else None
        swept.append(ScoreTerm(place, _public(term.weight, shown, types), bounds, clip, term.weight.row))
    more = dict(extra)
    if statistic.constant != "0":
        more[CANDIDATE_BASE] = f"CAST({statistic.constant} AS HUGEINT)"
    bases = tuple(f"{CANDIDATE_BASE}_{i}" for i in range(len(statistic.bases)))
    more |= {name: f"CAST({sql} AS HUGEINT)" for name, sql in zip(bases, statistic.bases, strict=True)}
    multiples = tuple(_public(weight, shown, types) for weight in statistic.multiples)
    base, form = CANDIDATE_BASE if CANDIDATE_BASE in more else None, statistic.form_of(per_unit)
    query, terms = write_candidates(source, shown | more), tuple(swept)
    return CandidateScores(query, tuple(histograms), terms, base, per_unit, varying, form, bases, multiples)


def _public(weight: Weight, shown: _Shown, types: Types) -> CandidateFactor:
    if weight.sql is None:
        return CandidateFactor(weight.times)
    kind = _type_of(weight.raw, types)
    plain = kind is not None and kind.kind == "INTEGER" and kind.sql not in _UNLIKE
    name = shown.column(weight.raw if plain else weight.sql)
    return CandidateFactor(weight.times, name, weight.low, weight.high)


def _counted(rows: str, term: Term, types: Types) -> HistogramQuery | None:
    """Return the histogram of a term; None if it is not compared here."""
    if term.shape in ("several ranges", "nested loop"):
        return None
    if term.shape == "constant":
        return HistogramQuery(write_threshold_bins(rows, term))
    if (bare := term.bare) is not None:
        # DuckDB knows a tighter range for it than for the amount, which may be NULL
        value = to_sql(bare.value)
        query = write_threshold_bins(rows, term, f"GREATEST({value}, {bare.least})", value, summed=False)
        narrow, places = (_narrow(bare.value, types), None) if bare.decimal is None else bare.decimal
        return HistogramQuery(
            query, write_compared_column(rows, term, to_sql(narrow)), least=bare.least, places=places
        )
    compared = _compared(term.ranges[0].x, [r.bound for r in term.ranges], types)
    if compared is None:
        return None
    query = write_threshold_bins(rows, term, compared.whole, term.ranges[0].value)
    found = HistogramQuery(query, digits=compared.digits, as_doubles=compared.as_doubles)
    if term.amount != "1" or not compared.kind:
        return found
    column = write_compared_column(rows, term, compared.column or compared.whole)
    places = compared.digits if compared.column is not None else None
    return replace(found, column=column, doubles=compared.kind == "doubles", places=places)


@dataclass(frozen=True)
class _Compared:
    """A compared private side: ``whole`` is its SQL as an integer or a double, after scaling by ``digits`` places."""

    whole: str
    digits: int
    kind: str
    """Its certain column type: ``whole`` numbers or ``doubles``, otherwise empty."""
    column: str | None = None
    """A decimal column with equal integers, without multiplication."""
    as_doubles: bool = False
    """Whether these integers are compared with doubles."""


def _compared(side: exp.Expr, publics: Sequence[exp.Expr], types: Types) -> _Compared | None:
    """Return how a private side is compared; None unless it and the public sides are all numbers, or all dates."""
    kinds = {kind for public in publics for kind in _kinds(public, types)}
    x, mine, own = to_sql(side), _kinds(side, types), _type_of(side, types)
    if mine == {"DATE"}:
        return _Compared(x, 0, "whole" if own is not None else "") if kinds <= {"DATE"} else None
    if not kinds <= _NUMBERS:
        return None
    if mine <= {"INTEGER", "DOUBLE", "NULL"}:
        exact = mine <= _INTEGERS
        kind = "" if own is None else "whole" if exact else "doubles"
        x = to_sql(clamp_to_38_digits(side.copy())) if exact and own is None and _is_wide(side) else x
        return _Compared(x, 0, kind) if exact or own is not None or "DECIMAL" not in kinds else None
    if own is None or own.kind != "DECIMAL":
        return None
    if "DOUBLE" in kinds:  # of several, all must be doubles: decimals are compared unchanged
        doubles = all(_is_double(public, types) for public in publics)
        if not doubles or sum(own.digits) > DOUBLE_DIGITS:
            return _Compared(to_sql(_as_double(side)), 0, "doubles") if doubles else None
    if sum(own.digits) > DECIMAL_DIGITS:
        return None
    narrow = "INTEGER" if sum(own.digits) <= _NARROW_DIGITS else "BIGINT"
    places = own.digits[1]
    column = f"CAST({x} AS DECIMAL({sum(own.digits)}, {places}))"  # its own type: no conversion
    scaled = f"CAST({x} * {10**places} AS {narrow})"
    return _Compared(scaled, places, "whole", column, "DOUBLE" in kinds)


def _is_wide(node: exp.Expr) -> bool:
    """Return whether an expression is computed in signed integers of 128 bits: the engine returns at most 38 digits."""
    casts = [cast.to for cast in node.find_all(exp.Cast)]
    wide = any(kind.is_type("int128") for kind in casts)
    others = any(kind.is_type("double", "float", "decimal", "uint128") for kind in casts)
    return wide and not others and node.find(exp.Div) is None


def _meet_as_doubles(found: Range, types: Types) -> bool:
    """Return whether the engine casts decimals to doubles to compare the two sides."""
    own = _type_of(found.x, types)
    return own is not None and (
        (own.kind == "DOUBLE" and "DECIMAL" in _kinds(found.bound, types))
        or (own.kind == "DECIMAL" and _is_double(found.bound, types))
    )


def _is_double(node: exp.Expr, types: Types) -> bool:
    """Return whether a numeric expression is certainly a double: a column, or computed from one."""
    inner = node.unnest()
    if isinstance(inner, exp.Column):
        kind = _type_of(inner, types)
        return kind is not None and kind.kind == "DOUBLE" and kind.sql not in _UNLIKE
    if isinstance(inner, exp.Neg):
        return _is_double(inner.this, types)
    if isinstance(inner, exp.Add | exp.Sub | exp.Mul):
        return _is_double(inner.this, types) or _is_double(inner.expression, types)
    return False


def _as_double(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DOUBLE", dialect="duckdb"))


def _type_of(node: exp.Expr, types: Types) -> Type | None:
    """Return the type of an expression that is only a column."""
    bare = _bare(node)
    return types.get((bare.table, bare.name)) if bare is not None else None


def _kinds(node: exp.Expr, types: Types) -> set[str]:
    """Return the numeric kinds in an expression; a literal with a point is a decimal."""
    known = [types.get((c.table, c.name)) for c in node.find_all(exp.Column)]
    kinds: set[str] = {"OTHER" if t is None or t.sql in _UNLIKE else t.kind for t in known}
    for literal in node.find_all(exp.Literal):
        if not literal.is_string and not literal.is_int:
            kinds.add("DOUBLE" if "e" in literal.name.lower() else "DECIMAL")
    return kinds


def _narrow(node: exp.Expr, types: Types) -> exp.Expr:
    """Return grid integers without a cast to more bits than they need."""
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and node.to.is_type("bigint"):
        inner: exp.Expr = node.this.unnest()
        kind, small = _type_of(inner, types), isinstance(inner, exp.TryCast) and inner.to.is_type("int")
        if small or (kind is not None and kind.sql in _SMALL):
            return inner
    return node


def _bare(node: exp.Expr) -> exp.Column | None:
    inner = node.unnest()
    return inner if isinstance(inner, exp.Column) else None
