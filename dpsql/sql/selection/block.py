"""ABOVE_THRESHOLD and EXPMECH: a block that chooses among public candidates by one statistic each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms.fast.candidate_scores import MOVES, ORD, Sweep
from dpsql.mechanisms.selection.above_threshold import AboveThreshold, Noise, split
from dpsql.mechanisms.selection.exponential import ExponentialChoice, Method
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.sql.dp.build_operator import deal
from dpsql.sql.exact.exact_query import write_bounded_rows
from dpsql.sql.expressions import total_expressions
from dpsql.sql.normalize import make_unique, spell
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.functions import MECHANISMS
from dpsql.sql.parse.options import (
    Call,
    Options,
    Readers,
    call_of,
    read_epsilon,
    read_one_of,
    read_truth,
    read_whole,
    refuse_equals,
)
from dpsql.sql.relations.intervals import interval_of, kept_cte_name
from dpsql.sql.relations.limits import refuse_fan_out
from dpsql.sql.relations.privacy_unit import check_unit, describe_protection
from dpsql.sql.relations.relation import Field, From, Relation, column, fold
from dpsql.sql.selection.candidate_factors import bounded, level_of
from dpsql.sql.selection.candidate_scores_sql import sweep_of
from dpsql.sql.selection.candidates import BATCH, nested_sql, statistic_sql
from dpsql.sql.selection.score import CANDIDATE, ROWS, RowNames, Statistic, bind_statistic

if TYPE_CHECKING:
    from dpsql.sql.normalize import Env
    from dpsql.sql.relations.context import Binder

ARGUMENTS: dict[str, Readers] = {
    "ABOVE_THRESHOLD": {
        "epsilon": read_epsilon, "max_hits": read_whole, "answer": read_truth, "gap": read_truth, "refresh": read_truth,
    },
    "EXPMECH": {
        "epsilon": read_epsilon, "method": read_one_of("exponential", "permute_and_flip", "noisy_max", upper=False),
        "top": read_whole, "answer": read_truth,
    },
}  # fmt: skip
_ONE = "dpsql_one"


def mechanism_of(select: exp.Select) -> Call | None:
    """The selection mechanism that a SELECT calls, if any.

    Raises:
        PrivacyError: it calls two, or an aggregate besides; a block makes one choice.
    """
    found: list[Call] = []
    beside: list[exp.Expr] = []
    for item in select.expressions:
        for node in item.walk(prune=lambda n: isinstance(n, exp.Query) or _calls_mechanism(n)):
            call = call_of(node)
            if call is not None and call.name in MECHANISMS:
                found.append(call)
            elif isinstance(node, exp.AggFunc):
                beside.append(node)
    if found and (found[1:] or beside):
        other = found[1].node if found[1:] else beside[0]
        raise PrivacyError(
            f"nothing else is released beside {found[0].name}.",
            span=span_of(other),
            hint="put it into a SELECT of its own, and join the answers.",
        )
    return found[0] if found else None


@dataclass
class Selection:
    """One block being bound."""

    binder: Binder
    select: exp.Select
    bound: From
    options: Options
    env: Env
    call: Call

    def bind(self) -> None:
        """Raises PrivacyError where the sensitivity can't be derived, or the candidates are not public."""
        call = self.call
        refuse_equals(call, ARGUMENTS[call.name])
        given = call.read(ARGUMENTS[call.name])
        need = 2 if call.name == "ABOVE_THRESHOLD" else 1
        if len(call.args) != need:
            usage = "ABOVE_THRESHOLD(statistic, threshold)" if need == 2 else "EXPMECH(utility)"
            raise BindError(
                f"{call.name} takes {need} argument{'s' if need > 1 else ''}.",
                span=span_of(call.node),
                hint=f"write {usage}.",
            )
        if call.where is not None or call.distinct:
            raise BindError(
                f"{call.name} takes no FILTER of its own.",
                span=span_of(call.node),
                hint="filter inside the statistic.",
            )
        for key in ("group", "having", "qualify"):
            if self.select.args.get(key):
                raise PrivacyError(
                    f"{key.upper()} can't stand beside {call.name}.",
                    span=span_of(self.select.args[key]),
                    hint="the candidates are the groups; filter the answer in a query above.",
                )
        check_unit(self.options, self.bound.names, self.bound.subject)
        if self.options.get("noise") == "GAUSSIAN":
            raise self.options.refuse(
                "noise",
                f"{call.name} has noise of its own.",
                "leave noise out: its answers have Laplace noise.",
            )
        candidate, found, count = self._candidates()
        names = RowNames((*self.bound.relations, candidate), dict(self.bound.merged), {}, candidate)
        statistic = bind_statistic(call.args[0], names)
        rows = self._rows(names)
        share = deal(self.binder, self.options, self.select, [(given.get("epsilon"), call.node)], 0)
        epsilon = share.parts[0]
        build = self._above if call.name == "ABOVE_THRESHOLD" else self._best
        self._install(candidate, found, *build(given, names, statistic, rows, found, count, epsilon))

    # -- candidates and rows ------------------------------------------------------------------------------------

    def _candidates(self) -> tuple[Relation, plan.Input, int | None]:
        """The public candidates in their order, with the bounds that their values have."""
        name = self.call.over
        steady = True
        if name is None:
            if self.call.name == "EXPMECH":
                raise BindError(
                    "EXPMECH chooses among candidates.",
                    span=span_of(self.call.node),
                    hint="write EXPMECH(...) OVER candidates.",
                )
            query: exp.Select = exp.select(exp.alias_(exp.Literal.number(1), _ONE))
        else:
            table = exp.Table(this=exp.to_identifier(name, quoted=True))
            span = span_of(self.call.node)
            cte = self.env.get(fold(name)) or self.env.get(kept_cte_name(name))
            steady = cte is None
            if cte is not None:
                table = exp.Table(this=exp.to_identifier(cte.name, quoted=True))
            if (cte is not None and cte.private is not None) or (
                cte is None and not self.binder.catalog.find(name, span).public
            ):
                raise PrivacyError(
                    f"the candidates {name} depend on private rows.",
                    span=span,
                    hint="candidates are public: a VALUES list, a public table, or what a private block released.",
                )
            if cte is None:
                self.binder.public[self.binder.catalog.find(name, span).name] = None
            query = exp.select("*").from_(table)
        relation = self.binder.public_relation(query, self.env, CANDIDATE)
        given = relation.inputs[0]
        found = plan.Input(
            given.name, f"SELECT *, row_number() OVER () - 1 AS {ORD} FROM ({given.sql}) AS given"
        )
        values = self.binder.known(found, steady)
        if values is not None and values.num_rows == 0:
            raise PrivacyError(f"there are no candidates in {name}.", span=span_of(self.call.node))
        fields = tuple(bounded(f, values) for f in relation.fields)
        return (
            replace(relation, alias=name or CANDIDATE, fields=fields, inputs=(found,)),
            found,
            None if values is None else values.num_rows,
        )

    def _rows(self, names: RowNames) -> str:
        """The private rows that the statistic looks at, at most so many of one unit."""
        where = self.select.args.get("where")
        condition = None
        if where is not None:
            condition = to_sql(self.binder.expression(where.this, self.bound.names, self.env)[0].node)
        values = dict(names.values) or {"one": "1"}
        return write_bounded_rows(self.bound, condition, (), values, self._per_unit(), None)

    def _per_unit(self) -> int:
        if self.bound.row_level:
            return 1
        rows = self.options.get("max_rows_contributed", self.bound.max_rows)
        if rows is None:
            raise PrivacyError(
                f"nothing bounds how many rows of {self.bound.subject} one privacy unit has.",
                span=span_of(self.call.node),
                hint="ask the owner for max_rows, or write OPTIONS (max_rows_contributed = 10).",
            )
        return int(rows)

    # -- mechanisms ---------------------------------------------------------------------------------------------

    def _sweep(
        self, statistic: Statistic, names: RowNames, rows: str, found: plan.Input, columns: tuple[str, ...],
        extra: dict[str, str],
    ) -> Sweep | None:  # fmt: skip
        assert names.candidate is not None
        types = {(ROWS, name): kind for name, kind in names.types.items()}
        types |= {(CANDIDATE, _exact(f)): f.typed.type for f in names.candidate.fields}
        return sweep_of(rows, found.name, columns, CANDIDATE, statistic, types, self._per_unit(), extra)

    def _batches(
        self, statistic: Statistic, rows: str, found: plan.Input, columns: tuple[str, ...], extra: dict[str, str],
        count: int | None,
    ) -> tuple[str, ...]:  # fmt: skip
        source = _source(found, extra)
        terms = list(statistic.terms)
        if statistic.shape != "nested loop":
            return (statistic_sql(rows, source, (*columns, *extra), CANDIDATE, terms, statistic.constant),)
        if count is None:
            raise PrivacyError(
                "this shape is computed candidate by candidate, and how many there are is not known yet.",
                span=span_of(self.call.node),
                hint="compare with =, >= or BETWEEN, or list the candidates.",
            )
        refuse_fan_out(
            count * self.bound.fan_out,
            (table for r in self.bound.relations for table in r.tables),
            self.call.node,
        )
        return tuple(
            nested_sql(rows, source, (*columns, *extra), CANDIDATE, terms, statistic.constant, first)
            for first in range(0, max(count, 1), BATCH)
        )

    def _above(
        self, given: dict[str, Any], names: RowNames, statistic: Statistic, rows: str, found: plan.Input,
        count: int | None, epsilon: Fraction,
    ) -> tuple[Any, list[tuple[str, str]], tuple[str, ...], str]:  # fmt: skip
        threshold = total_expressions.make_total(self.call.args[1], names)
        if not threshold.type.numeric or any(
            c.table != CANDIDATE for c in threshold.node.find_all(exp.Column)
        ):
            raise PrivacyError(
                "the threshold must be public: a number, or an expression over the candidate's columns.",
                span=span_of(self.call.args[1]),
                hint="release a noisy threshold first, in a block of its own.",
            )
        level, extra = level_of(threshold, statistic.steps)
        hits = given.get("max_hits", 1)
        answers = bool(given.get("answer"))
        own = epsilon / 2 if answers else epsilon
        rows_per = self._per_unit()
        e1, e2 = split(own, 1 if given.get("refresh") else hits, statistic.monotone)
        noise = Noise(
            statistic.sensitivity * rows_per, e1, e2, hits, statistic.monotone, bool(given.get("refresh"))
        )
        columns = tuple(_exact(f) for f in self._wanted(names.candidate))
        flag = "above_threshold" if self.call.over is None else None
        if flag is not None and (answers or given.get("gap") or hits != 1):
            raise BindError(
                "without candidates the answer is TRUE or FALSE.",
                span=span_of(self.call.node),
                hint="write ... OVER candidates.",
            )
        answer = (make_unique([*columns, "answer"])[-1], epsilon - own) if answers else None
        gap = make_unique([*columns, "gap"])[-1] if given.get("gap") else None
        batches = self._batches(statistic, rows, found, columns, extra, count)
        operator = AboveThreshold(
            batches, columns, level, noise, statistic.steps, answer, gap, flag, self.options.confidence, count,
            self._sweep(statistic, names, rows, found, columns, extra),
        )  # fmt: skip
        made = [(flag, "BOOLEAN")] if flag else []
        if answer is not None:
            made += _answer_columns(answer[0], statistic.steps)
        if gap is not None:
            made.append((gap, "DOUBLE"))
        return operator, made, columns, self._said(statistic, rows_per)

    def _best(
        self, given: dict[str, Any], names: RowNames, statistic: Statistic, rows: str, found: plan.Input,
        count: int | None, epsilon: Fraction,
    ) -> tuple[Any, list[tuple[str, str]], tuple[str, ...], str]:  # fmt: skip
        sharper = ACCOUNTANTS[self.binder.catalog.accountant].has_rule
        method: Method = given.get("method") or ("exponential" if sharper else "permute_and_flip")
        top = given.get("top", 1)
        if count is not None and top > count:
            raise BindError(f"there are only {count} candidates.", span=span_of(self.call.named["top"][1]))
        own = epsilon / 2 if given.get("answer") else epsilon
        columns = tuple(_exact(f) for f in self._wanted(names.candidate))
        answer = (make_unique([*columns, "answer"])[-1], epsilon - own) if given.get("answer") else None
        rows_per = self._per_unit()
        varying = statistic.varying
        extra = {MOVES: f"CAST({varying} * {rows_per} AS HUGEINT)"} if varying else {}
        batches = self._batches(statistic, rows, found, columns, extra, count)
        operator = ExponentialChoice(
            batches, columns, statistic.sensitivity * rows_per, own, statistic.monotone, method, top, bool(varying),
            statistic.steps, answer, count, self.options.confidence,
            self._sweep(statistic, names, rows, found, columns, {}),
        )  # fmt: skip
        made = _answer_columns(answer[0], statistic.steps) if answer is not None else []
        return operator, made, columns, self._said(statistic, rows_per)

    def _said(self, statistic: Statistic, rows: int) -> str:
        moved = Fraction(statistic.sensitivity * rows) / statistic.steps
        return (
            f"The statistic of each candidate is exact, in {'a nested loop' if statistic.shape == 'nested loop' else 'one pass'} "
            f"({statistic.shape}); one privacy unit moves it by at most {float(moved):g}"
            + (", always the same way." if statistic.monotone else ".")
        )

    # -- what stands above --------------------------------------------------------------------------------------

    def _wanted(self, candidate: Relation | None) -> tuple[Field, ...]:
        """The candidate's columns to return: those that the SELECT names, else all."""
        assert candidate is not None
        if self.call.over is None:
            return ()
        others = [c for item in self._others() for c in item.find_all(exp.Column)]
        named = [f for f in candidate.fields if any(self._names(c, f) for c in others)]
        return tuple(named or candidate.fields)

    def _others(self) -> list[exp.Expr]:
        """Everything above the mechanism that may name a candidate's column."""
        out = []
        for item in self.select.expressions:
            copy = item.copy()
            for node in list(copy.walk()):
                call = call_of(node)
                if call is not None and call.name in MECHANISMS and node is not copy:
                    node.replace(exp.Null())
                elif call is not None and call.name in MECHANISMS:
                    copy = exp.Null()
            out.append(copy)
        return out + [n for key in ("order",) if (n := self.select.args.get(key)) is not None]

    def _names(self, node: exp.Column, f: Field) -> bool:
        return fold(node.name) == fold(f.name) and fold(node.table) in ("", fold(self.call.over or ""))

    def _install(
        self, candidate: Relation, found: plan.Input, operator: Any, made: list[tuple[str, str]], columns: tuple[str, ...],
        said: str,
    ) -> None:  # fmt: skip
        name = self.binder.name("block")
        wanted = self._wanted(candidate)
        kinds = {_exact(f): f.typed.type for f in candidate.fields}
        types = {name: "INTEGER" if kind.kind == "NULL" else kind.sql for name, kind in kinds.items()}
        schema = [(c, types[c]) for c in columns] + made
        inputs = tuple(dict.fromkeys((*self.bound.inputs, *self.binder.lent_inputs, found)))
        sentences = (*describe_protection(self.bound, self._per_unit()), said)
        self.binder.blocks.append(
            plan.Block(name, operator, tuple(schema), inputs, sentences, self.options.confidence)
        )
        shown: list[tuple[exp.Expr, str]] = []
        visible = [n for n, _ in made if not n.endswith(("__low", "__high"))]
        named = any(not _is_mechanism(item) for item in self.select.expressions)
        if not named:
            shown += [(column(_exact(f)), f.name) for f in wanted]
        for item in self.select.expressions:
            alias = item.alias if isinstance(item, exp.Alias) else ""
            if _is_mechanism(item):
                first = alias or None
                for n in visible:
                    shown.append((column(n), first or n))
                    first = None
                continue
            above = self._above_block(item.unalias().copy(), wanted, visible)
            bare = item.name if isinstance(item, exp.Column) else spell(item)
            shown.append((above, alias or (self.call.name.lower() if _holds_mechanism(item) else bare)))
        order = self.select.args.get("order")
        labels = make_unique(label for _, label in shown)
        for node in order.expressions if order is not None else ():
            if not _one_of(node.this, labels):  # what the SELECT calls so comes first, as in SQL
                node.set("this", self._above_block(node.this, wanted, visible))
        for key in ("joins", "where"):
            self.select.set(key, None)
        self.select.set("from_", exp.From(this=exp.to_table(name)))
        self.select.set(
            "expressions", [exp.alias_(e, n, quoted=True) for (e, _), n in zip(shown, labels, strict=True)]
        )
        known: Any = {n: True for n in visible if (f"{n}__low", "DOUBLE") in made}
        self.select.meta["dpsql_intervals"] = [
            (n, *ends)
            for (e, _), n in zip(shown, labels, strict=True)
            if (ends := interval_of(e, known)) is not None
        ]

    def _above_block(self, node: exp.Expr, wanted: tuple[Field, ...], visible: list[str]) -> exp.Expr:
        if _is_mechanism(node):
            if not visible:
                raise BindError(
                    f"{self.call.name} gives rows here, no value.",
                    span=span_of(node),
                    hint="add answer => TRUE.",
                )
            return column(visible[0])
        if isinstance(node, exp.Query):
            if self.binder.query(node, self.env, inner=False) is not None:
                raise PrivacyError("private rows can't stand here.", span=span_of(node))
            return node
        if node.is_star:
            raise PrivacyError(
                f"* is no column beside {self.call.name}.",
                span=span_of(node),
                hint="name columns of the candidates; all of them are shown where none is named.",
            )
        if isinstance(node, exp.Column):
            for f in wanted:
                if self._names(node, f):
                    return column(_exact(f))
            if fold(node.name) in [fold(v) for v in visible] and not node.table:
                return node
            raise PrivacyError(
                f"{node.name} is not a column of the candidates.",
                span=span_of(node),
                hint="only what is chosen is released: "
                + (", ".join(f.name for f in wanted) or "TRUE or FALSE")
                + ".",
            )
        for child in list(node.iter_expressions()):
            new = self._above_block(child, wanted, visible)
            if new is not child:
                child.replace(new)
        return node


def _exact(candidate: Field) -> str:
    """What a column of the candidates is called in exact queries and in the release."""
    return candidate.typed.node.name


def _source(found: plan.Input, extra: dict[str, str]) -> str:
    """The candidates, with further columns."""
    if not extra:
        return found.name
    more = ", ".join(f"{sql} AS {name}" for name, sql in extra.items())
    return f"(SELECT *, {more} FROM {found.name} AS {CANDIDATE})"


def _is_mechanism(node: exp.Expr) -> bool:
    return _calls_mechanism(node.unalias())


def _calls_mechanism(node: exp.Expr) -> bool:
    call = call_of(node)
    return call is not None and call.name in MECHANISMS


def _holds_mechanism(node: exp.Expr) -> bool:
    return any(_calls_mechanism(n) for n in node.walk(prune=lambda n: isinstance(n, exp.Query)))


def _one_of(node: exp.Expr, labels: list[str]) -> bool:
    return isinstance(node, exp.Column) and not node.table and fold(node.name) in map(fold, labels)


def _answer_columns(name: str, steps: Fraction) -> list[tuple[str, str]]:
    return [
        (name, "BIGINT" if steps == 1 else "DOUBLE"),
        (f"{name}__low", "DOUBLE"),
        (f"{name}__high", "DOUBLE"),
    ]


def selection_block(
    binder: Binder, select: exp.Select, bound: From, options: Options, env: Env, call: Call
) -> None:
    """Binds a block with a selection mechanism in place."""
    Selection(binder, select, bound, options, env, call).bind()
