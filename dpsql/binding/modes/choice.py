"""Binds ABOVE_THRESHOLD and EXPMECH, which choose among public candidates by one statistic each."""

from __future__ import annotations

from dataclasses import field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.dp.block_strategies import refuse_unfit
from dpsql.binding.dp.budget_split import deal, divide_for_answers, require_rows
from dpsql.binding.modes.scored_statistic import ScoredStatistic, find_range
from dpsql.binding.public_statement import Env, Released, install, kept_cte_name, make_unique, spell
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.fan_out import max_fan_out, refuse_fan_out
from dpsql.binding.relations.relation import Field, From, Relation, column, fold
from dpsql.catalogue.aggregate_names import MECHANISMS
from dpsql.errors import BindError, PrivacyError, Span
from dpsql.exact.candidate_statistics import (
    CANDIDATE,
    count_candidates,
    limit_candidates,
    number_candidates,
)
from dpsql.language import options as opt
from dpsql.language.dialect import bind_error, privacy_error, span_of, table_named
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.selection.above_threshold import AboveThreshold, ThresholdNoise, share_epsilon
from dpsql.mechanisms.selection.exponential import ExponentialChoice

SELECTION_ARGUMENTS = {name: opt.arguments_of(name) for name in sorted(MECHANISMS)}
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
        self.bound.names.check_unit(self.options, self.bound.subject)
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
        rows = require_rows(self.bound, self.options, call.node)
        given = self.binder, self.select, self.bound, self.env, call.args[0], rows, candidate
        self.scores = ScoredStatistic.bind(*given)
        self._limit_pairs()
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

        def build(epsilon: Fraction) -> tuple[AboveThreshold | ExponentialChoice, list[Released]]:
            own, answers = divide_for_answers(place, epsilon, self.given.get("answer"), split)
            return make(own, (named, answers) if named is not None and answers else None)

        operator, made = build(share.amounts[0].find_epsilon(lambda epsilon: build(epsilon)[0].event))
        if named is not None:
            made.insert(0, Released(named, self.scores.answer_type, True))
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
        distinct = self._refuse_many(relation, span)
        once = self.call.name == "EXPMECH" and not distinct
        self.found = replace(given, sql=number_candidates(given.sql, once).sql)
        values = self.binder.known(self.found)
        if values is not None and values.num_rows == 0:
            raise PrivacyError(f"there are no candidates in {name}.", span=span)
        self.count = None if values is None else values.num_rows  # otherwise not known yet
        fields = tuple(find_range(f, values) for f in relation.fields)
        return replace(relation, alias=name or CANDIDATE, fields=fields, inputs=(self.found,))

    def _refuse_many(self, listed: Relation, span: Span | None) -> bool:
        """Refuse too many candidates before they are computed; return whether they ascend, so that each is listed once."""
        (given,) = listed.inputs
        counted = count_candidates(given.sql, _exact(listed.fields[0]), MAX_CANDIDATES + 1)
        found = self.binder.known(replace(given, sql=counted.sql))
        count, ascents = (0, 0) if found is None else (column[0].as_py() for column in found.columns)
        if count > MAX_CANDIDATES:
            hint = "choose a range among few candidates first, and then within it."
            raise BindError(f"these are more than {MAX_CANDIDATES:,} candidates.", span=span, hint=hint)
        terms = max(1, sum(1 for _ in self.call.args[0].find_all(exp.AggFunc)))
        self.binder.written.add_candidates(count, len(listed.fields), terms, span)
        return bool(ascents == count - 1)

    def _wanted(self, candidate: Relation) -> tuple[Field, ...]:
        """Return the candidate's columns to release: those in the SELECT, otherwise all."""
        if self.call.over is None:
            return ()
        items = [*self.select.expressions, self.select.args.get("order")]
        nodes = [node for item in items if item is not None for node in item.walk(prune=opt.calls_mechanism)]
        outside = [node for node in nodes if isinstance(node, exp.Column)]
        named = [f for f in candidate.fields if any(self._names(c, f) for c in outside)]
        return tuple(named or candidate.fields)

    def _names(self, node: exp.Column, f: Field) -> bool:
        return fold(node.name) == fold(f.name) and fold(node.table) in ("", fold(self.call.over or ""))

    def _limit_pairs(self) -> None:
        """Limit the candidates that a private row meets, if rows and candidates are joined."""
        if not self.scores.meets_candidates:
            return
        tables = [t for r in self.bound.relations for t in r.tables]
        refuse_fan_out((self.count or 1) * self.bound.fan_out, tables, self.call.node)
        if self.count is None and self.scores.is_looped:
            what = "this shape is computed candidate by candidate, and their number is not known yet."
            hint = "compare with =, <, <=, >, >= or BETWEEN, or list the candidates."
            raise privacy_error(self.call.node, what, hint)
        if self.count is None:
            most = max_fan_out(tables) // self.bound.fan_out
            self.found = replace(self.found, sql=limit_candidates(self.found.sql, most).sql)
            self.notes.append(f"At most the first {most:,} candidates are considered (max_fan_out).")

    # -- mechanisms ---------------------------------------------------------------------------------------------

    def _above(
        self, epsilon: Fraction, answer: tuple[str, Fraction] | None
    ) -> tuple[AboveThreshold | ExponentialChoice, list[Released]]:
        scores, given = self.scores, self.given
        statistic = scores.statistic
        level, extra = scores.find_level(self.call.args[1])
        hits, refresh, gap = given.get("max_hits", 1), bool(given.get("refresh")), None
        e1, e2 = share_epsilon(epsilon, hits, statistic.monotone, refresh, given.get("budget_split"))
        passes = given.get("passes", 1)
        if passes > MAX_PASSES:
            span = span_of(self.call.named["passes"][1])
            raise BindError(f"at most {MAX_PASSES} passes are made.", span=span)
        shared = (scores.sensitivity, e1, e2, hits, statistic.monotone, refresh)
        noise = ThresholdNoise(*shared, asked_again=passes - 1).with_gaussian(self.delta)
        flag = "above_threshold" if self.call.over is None else None
        if flag is not None and (answer is not None or given.get("gap") or hits != 1):
            hint = "name the table of the candidates after it and the word over."
            span = span_of(self.call.node)
            raise BindError("without candidates the answer is TRUE or FALSE.", span=span, hint=hint)
        if given.get("gap"):
            gap = make_unique([*self.columns, "gap"])[-1]
        operator = AboveThreshold(
            scores.write_all(self.found.name, self.columns, extra, self.count),
            self.columns,
            level,
            noise,
            statistic.steps,
            answer,
            gap,
            flag,
            self.options.confidence,
            self.count,
            scores.write_sweep(self.found.name, self.columns, extra),
            statistic.form_of(scores.per_unit),
            scores.per_unit,
        )
        made = [Released(flag, "BOOLEAN")] if flag else []
        return operator, made + ([Released(gap, "DOUBLE")] if gap else [])

    def _best(
        self, epsilon: Fraction, answer: tuple[str, Fraction] | None
    ) -> tuple[AboveThreshold | ExponentialChoice, list[Released]]:
        sharper = self.binder.catalog.has_rule
        method = self.given.get("method") or ("exponential" if sharper else "permute_and_flip")
        top = self.given.get("top", 1)
        if self.count is not None and top > self.count:
            span = span_of(self.call.named["top"][1])
            raise BindError(f"there are only {self.count} candidates.", span=span)
        scores, statistic = self.scores, self.scores.statistic
        own, source = scores.own_sensitivities, self.found.name
        operator = ExponentialChoice(
            scores.write_all(source, self.columns, own, self.count),
            self.columns,
            scores.sensitivity,
            epsilon,
            statistic.monotone,
            method,
            top,
            bool(own),
            statistic.steps,
            answer,
            self.count,
            self.options.confidence,
            scores.write_sweep(source, self.columns, {}, bool(own)),
            statistic.form_of(scores.per_unit),
            scores.per_unit,
        )
        return operator, []

    # -- above the block ---------------------------------------------------------------------------------------

    def _release(
        self,
        candidate: Relation,
        wanted: tuple[Field, ...],
        operator: AboveThreshold | ExponentialChoice,
        made: list[Released],
    ) -> None:
        scores, name = self.scores, self.binder.name("block")
        statistic = scores.statistic
        kinds = {_exact(f): f.typed.type for f in candidate.fields}
        types = {c: "INTEGER" if kind.kind == "NULL" else kind.sql for c, kind in kinds.items()}
        moved = Fraction(scores.sensitivity) / statistic.steps
        said = (
            f"The statistic of each candidate is exact, in {'a nested loop' if scores.is_looped else 'one pass'} "
            f"({statistic.shape}); one privacy unit moves it by at most {float(moved):g}"
            + (", always the same way." if statistic.monotone else ".")
        )
        self.binder.add_block(
            name,
            operator,
            [*(Released(c, types[c]) for c in self.columns), *made],
            (*self.bound.inputs, *self.binder.lent_inputs, self.found),
            (*scores.protection, said, *self.notes),
            self.options.confidence,
            self.asked,
        )
        shown: list[tuple[str, exp.Expr]] = []
        visible = [item.name for item in made]
        if all(opt.calls_mechanism(item.unalias()) for item in self.select.expressions):
            shown += [(f.name, column(_exact(f))) for f in wanted]
        for item in self.select.expressions:
            alias = item.alias if isinstance(item, exp.Alias) else ""
            if opt.calls_mechanism(item.unalias()):
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
        if opt.calls_mechanism(node.unalias()):
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
    return any(opt.calls_mechanism(n) for n in node.walk(prune=lambda n: isinstance(n, exp.Query)))


def _one_of(node: exp.Expr, labels: list[str]) -> bool:
    return isinstance(node, exp.Column) and not node.table and fold(node.name) in map(fold, labels)
