"""SELECT WITH PTR: answers that are released exactly, or nearly, where the data are far from another answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms.additive import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr import ptr_statistics
from dpsql.mechanisms.ptr.stability_test import Item, Stable, Test, stability_test
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.sql.dp.block import Block
from dpsql.sql.dp.build_operator import deal
from dpsql.sql.dp.public_groups import public_domain
from dpsql.sql.dp.refusals import refuse_nobody
from dpsql.sql.dp.registry import TABLE
from dpsql.sql.exact.exact_query import write_bounded_rows
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import label_of, make_unique
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import (
    COMMON_OPTIONS,
    Call,
    Options,
    Readers,
    call_of,
    read_epsilon,
    read_number,
    read_positive,
    refuse_equals,
)
from dpsql.sql.relations.privacy_unit import check_unit, describe_protection
from dpsql.sql.relations.relation import column

if TYPE_CHECKING:
    from dpsql.sql.normalize import Env
    from dpsql.sql.relations.context import Binder
    from dpsql.sql.relations.relation import From

OPTIONS: Readers = {
    name: COMMON_OPTIONS[name]
    for name in (
        "epsilon", "delta", "privacy_unit_column", "max_groups_contributed", "max_rows_contributed", "confidence",
    )
}  # fmt: skip
ARGUMENTS: Readers = {"epsilon": read_epsilon, "local_sensitivity": read_positive}
KNOWN = ("IQR", "MEDIAN", "QUANTILE_DISC", "MODE", "ARG_MAX")


@dataclass(frozen=True)
class Asked:
    """One output of the block: the call, what it needs of the rows, and how its item is made of a share."""

    name: str
    call: Call
    share: Fraction | None
    values: dict[str, str]
    type: str
    make: Callable[[str, Fraction, Fraction], Item]
    intervals: bool

    @property
    def shown(self) -> exp.Expr:
        """The released column; a struct as it is, for its type has no short name."""
        value = column(self.name)
        return value if "STRUCT" in self.type else exp.cast(value, self.type, dialect="duckdb")


@dataclass
class StableBlock:
    """Collects the items of one block."""

    block: Block
    rows: int
    groups: int
    accountant: str

    def test(self, epsilon: Fraction, delta: Fraction) -> Test:
        return stability_test(self.accountant, epsilon, delta, self.groups)

    def ask(self, call: Call, name: str) -> Asked:
        refuse_equals(call, ARGUMENTS)
        options = call.read(ARGUMENTS)
        if call.distinct or (call.name != "MEDIAN" and "local_sensitivity" in options):
            raise BindError(f"{call.name} does not take this here.", span=span_of(call.node))
        need = 2 if call.name in ("QUANTILE_DISC", "ARG_MAX") else 1
        if len(call.args) != need:
            raise BindError(
                f"{call.name} takes {need} argument{'s' if need > 1 else ''}.", span=span_of(call.node)
            )
        if any(self.block.is_unit(node) for node in call.args[0].find_all(exp.Column)):
            raise PrivacyError(
                "the privacy unit is never released.",
                span=span_of(call.args[0]),
                hint="COUNT(DISTINCT ...) counts the units.",
            )
        typed = self.block.expression(call.args[0])
        if call.name in ("MODE", "ARG_MAX") and typed.type.two_faced and typed.type.kind != "DOUBLE":
            raise PrivacyError(
                f"equal values of {typed.type.sql} may look different, and one would be shown exactly.",
                span=span_of(call.args[0]),
                hint="take a number made of it, such as FLOOR(EPOCH(x))::BIGINT of an interval.",
            )
        if call.name == "ARG_MAX":
            return self._argmax(call, name, options, typed)
        floating = typed.type.kind == "DOUBLE"
        if call.name != "MODE" and not (typed.type.numeric or typed.type.kind in ("DATE", "TIMESTAMP")):
            raise BindError(
                f"{call.name} needs values with an order that numbers have, and this is {typed.type.sql}.",
                span=span_of(call.args[0]),
                hint="MODE(x) takes any type.",
            )
        values = {"v": self._filtered(call, to_sql(typed.node))}
        common = (name, call, options.get("epsilon"))
        rows = self.rows
        if call.name == "IQR":
            if not typed.type.numeric:
                raise BindError("IQR needs a number.", span=span_of(call.args[0]))
            values = {"v": f"CAST({values['v']} AS DOUBLE)"}
            ends = typed.bounds
            widest = None
            if ends is not None and ends.low is not None and ends.high is not None:
                widest = min(ends.high - ends.low, Fraction(2) ** 1023)

            def iqr(query: str, epsilon: Fraction, delta: Fraction) -> Item:
                noise = self._noise(epsilon / 2, delta / 2, ptr_statistics.iqr_sensitivity())
                return ptr_statistics.Iqr(
                    name, query, self.test(epsilon / 2, self._test_delta(delta)), noise, rows, widest
                )

            return Asked(*common, values, "DOUBLE", iqr, True)
        if call.name == "MEDIAN" and "local_sensitivity" in options:
            if not typed.type.numeric:
                raise BindError("MEDIAN with a local sensitivity needs a number.", span=span_of(call.args[0]))
            values = {"v": f"CAST({values['v']} AS DOUBLE)"}
            proposed = options["local_sensitivity"]

            def median(query: str, epsilon: Fraction, delta: Fraction) -> Item:
                step, bound = ptr_statistics.median_grid(proposed, epsilon / 2)
                noise = self._noise(epsilon / 2, delta / 2, bound)
                test = self.test(epsilon / 2, self._test_delta(delta))
                return ptr_statistics.ProposedMedian(name, query, step, bound, test, noise, rows)

            return Asked(*common, values, "DOUBLE", median, True)
        if call.name == "MODE":
            return Asked(
                *common, values, typed.type.sql,
                lambda query, epsilon, delta: ptr_statistics.Mode(name, query, self.test(epsilon, delta), rows, floating), False,
            )  # fmt: skip
        probability = Fraction(1, 2)
        if call.name == "QUANTILE_DISC":
            probability = read_number(call.args[1], "the quantile")
            if not 0 <= probability <= 1:
                raise BindError("a quantile lies between 0 and 1.", span=span_of(call.args[1]))
        return Asked(
            *common, values, typed.type.sql,
            lambda query, epsilon, delta: ptr_statistics.Quantile(
                name, query, probability, self.test(epsilon, delta), rows, floating
            ), False,
        )  # fmt: skip

    def _argmax(self, call: Call, name: str, options: dict[str, Any], group: Typed) -> Asked:
        """``ARG_MAX(k, SUM(x))``: the k whose rows add up to most."""
        inner = call_of(call.args[1])
        if inner is None or inner.name not in ("SUM", "COUNT"):
            raise BindError(
                "ARG_MAX takes a group and a sum or count over it.",
                span=span_of(call.args[1]),
                hint="write ARG_MAX(ward, COUNT(*)) or ARG_MAX(ward, SUM(amount)).",
            )
        if inner.distinct or inner.named or len(inner.args) > 1:
            raise BindError(
                f"inside ARG_MAX, {inner.name} takes one value, of every row, and no options.",
                span=span_of(inner.node),
                hint="write epsilon => ... after it, inside ARG_MAX." if inner.named else None,
            )
        amount, bound = "1", 1
        if inner.name == "COUNT" and inner.args and not inner.args[0].is_star:
            amount = f"CASE WHEN {to_sql(self.block.expression(inner.args[0]).node)} IS NOT NULL THEN 1 END"
        if inner.name == "SUM":
            from dpsql.sql.expressions import fixed_point as grids

            typed = self.block.expression(inner.args[0])
            if (
                not typed.type.numeric
                or typed.bounds is None
                or typed.bounds.low is None
                or typed.bounds.high is None
            ):
                raise PrivacyError(
                    f"{to_sql(inner.node)} needs bounds.",
                    span=span_of(inner.node),
                    hint="ask the owner for bounds.",
                )
            grid = grids.choose_grid(typed.type, typed.bounds.low, typed.bounds.high)
            amount = grids.write_clamped(to_sql(grids.write_steps(typed, grid)), grid)
            bound = max(1, abs(grid.low), abs(grid.high))
        v = to_sql(group.node)
        if group.type.kind == "DOUBLE":  # -0.0 is the same group, and is shown as the same
            v = f"({v}) + 0.0"
        values = {"v": v, "amount": self._filtered(call, self._filtered(inner, amount))}
        return Asked(
            name, call, options.get("epsilon"), values, group.type.sql,
            lambda query, epsilon, delta: ptr_statistics.ArgMax(name, query, bound, self.test(epsilon, delta), self.rows), False,
        )  # fmt: skip

    def _filtered(self, call: Call, sql: str) -> str:
        if call.where is None:
            return sql
        return f"CASE WHEN {to_sql(self.block.condition(call.where).node)} THEN {sql} END"

    def _noise(self, epsilon: Fraction, delta: Fraction, sensitivity: int) -> LaplaceNoise | GaussianNoise:
        if ACCOUNTANTS[self.accountant].favours_gaussian:
            return GaussianNoise.calibrate(epsilon, delta, sensitivity, self.groups)
        return LaplaceNoise(epsilon, sensitivity, self.groups)

    def _test_delta(self, delta: Fraction) -> Fraction:
        return delta / 2 if ACCOUNTANTS[self.accountant].favours_gaussian else delta


@dataclass
class PtrBlock(Block):
    """A block whose answers are put to the test. What stands above them is computed from what is released."""

    asked: dict[str, Asked] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """Names that the analyst gave to calls that are outputs as they stand: the notes speak of them."""
    condition_sql: str | None = None

    def bind(self) -> None:
        self.condition_sql = self.where()
        distinct = self.select.args.get("distinct")
        if distinct is not None:
            raise BindError(
                "DISTINCT is not known with PTR.",
                span=span_of(distinct) or span_of(self.select),
                hint="one row comes out, or one for each public group.",
            )
        check_unit(self.options, self.names, self.bound.subject)
        keys, typed = self._keys(self._group_expressions())
        self.domain = public_domain(self, typed) if keys else None
        if keys and self.domain is None:
            raise PrivacyError(
                "PTR needs public groups.",
                span=span_of(self.select.args.get("group")) or span_of(self.select),
                hint="ask the owner to declare the column's values, or join a public table with RIGHT JOIN.",
            )
        size = self.domain.size if self.domain is not None else None
        rows, groups = _bounding(self, self.bound, self.options, bool(keys), size)
        self.stable = StableBlock(self, rows, groups, self.binder.catalog.accountant)
        for item in self.select.expressions:
            if isinstance(item, exp.Alias) and (call := self._call(item.this)) is not None:
                self.aliases.setdefault(self._spelling_of_call(call), item.alias)
        self._clauses()

    def _call(self, node: exp.Expr) -> Call | None:
        call = None if isinstance(node, exp.Window) else call_of(node)
        return call if call is not None and call.name in KNOWN else None

    def _has_aggregate(self, node: exp.Expr) -> bool:
        return any(self._call(n) is not None for n in node.walk())

    def _label(self, node: exp.Expr) -> str:
        call = self._call(node)
        return label_of(call) if call is not None else super()._label(node)

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        call = self._call(node)
        if call is not None:
            return self._aggregate(call)
        if not isinstance(node, exp.Window) and (name := _exact(node)):
            raise PrivacyError(
                f"{name} has no stability test.",
                span=span_of(node),
                hint="SELECT WITH SUBSAMPLE takes any query; PTR knows " + ", ".join(KNOWN) + ".",
            )
        return super().above(node, aliases)

    def _aggregate(self, call: Call) -> exp.Expr:
        text = self._spelling_of_call(call)
        if text not in self.asked:
            refuse_nobody(self, call)
            taken = [*(key.name for key in self.keys.values()), *(a.name for a in self.asked.values())]
            name = make_unique([*taken, self.aliases.get(text, label_of(call))])[-1]
            self.asked[text] = self.stable.ask(call, name)
        return self.asked[text].shown

    @property
    def with_intervals(self) -> dict[str, Any]:
        return {item.name: item for item in self.asked.values() if item.intervals}

    def release(self) -> None:
        """Deals out the budget, makes the operator, and gives the block to the plan."""
        asked, binder = list(self.asked.values()), self.binder
        if not asked:
            raise PrivacyError(
                "there is nothing to test here.",
                span=span_of(self.select),
                hint=f"PTR knows {', '.join(KNOWN)}.",
            )
        share = deal(binder, self.options, self.select, [(a.share, a.call.node) for a in asked], len(asked))
        keys, domain = tuple(self.keys.values()), self.domain.sql if self.domain else None
        rows, groups = self.stable.rows, self.stable.groups if keys else None
        made = []
        for part, found in zip(share.parts, asked, strict=True):
            query = write_bounded_rows(
                self.bound, self.condition_sql, keys, found.values, rows, groups, domain,
                self.domain is not None and self.domain.nullable,
            )  # fmt: skip
            made.append(found.make(query, part, share.delta / len(asked)))
        operator = Stable(tuple(made), tuple(key.name for key in keys), domain, self.confidence)
        columns = [(key.name, key.type) for key in keys]
        for item in asked:
            columns.append((item.name, item.type))
            if item.intervals:
                columns += [(f"{item.name}__low", "DOUBLE"), (f"{item.name}__high", "DOUBLE")]
        inputs = tuple(dict.fromkeys((*self.bound.inputs, *binder.lent_inputs)))
        sentences = describe_protection(self.bound, rows if not self.bound.row_level else 1)
        binder.blocks.append(
            plan.Block(self.name, operator, tuple(columns), inputs, sentences, self.confidence)
        )


def _exact(node: exp.Expr) -> str:
    """The name of an aggregate; of another node ''."""
    call = call_of(node)
    if call is not None and call.name in TABLE:
        return call.name
    ours = isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window)
    return node.sql_name() if ours and isinstance(node, exp.AggFunc) else ""


def ptr_block(binder: Binder, select: exp.Select, bound: From, options: Options, env: Env) -> None:
    """Binds SELECT WITH PTR in place.

    Raises:
        PrivacyError: a function that has no stability test, private groups, no delta.
    """
    PtrBlock(binder, select, bound, options, env, binder.name("block")).bind()


def _bounding(
    block: Block, bound: From, options: Options, grouped: bool, size: int | None
) -> tuple[int, int]:
    """Rows of one unit in a group, and groups of one unit."""
    if bound.row_level:
        return 1, 1
    rows = options.get("max_rows_contributed", bound.max_rows)
    if rows is None:
        raise PrivacyError(
            f"nothing bounds how many rows of {bound.subject} one privacy unit has.",
            span=span_of(options.mode_node),
            hint="write OPTIONS (max_rows_contributed = 1): one of a unit's rows is chosen at random.",
        )
    if not grouped:
        return rows, 1
    groups = options.get("max_groups_contributed", bound.max_groups)
    if groups is None:
        raise PrivacyError(
            "nothing says how many groups one privacy unit may be in.",
            span=span_of(options.mode_node),
            hint="write OPTIONS (max_groups_contributed = 3), or ask the owner for max_groups.",
        )
    return rows, min(groups, size) if size is not None else groups
