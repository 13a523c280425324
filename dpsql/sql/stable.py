"""SELECT WITH PTR: answers that are released exactly, or nearly, where the data are far from another answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms import proposals
from dpsql.mechanisms.additive import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr import Item, Stable, Test, stability_test
from dpsql.sql.block import Block, protected
from dpsql.sql.deal import deal
from dpsql.sql.dialect import span_of, to_sql
from dpsql.sql.domain import public_domain
from dpsql.sql.intervals import interval_of
from dpsql.sql.naming import fresh_names, label_of
from dpsql.sql.options import (
    COMMON,
    Call,
    Options,
    Readers,
    call_of,
    epsilon_value,
    number,
    positive,
    refuse_equals,
)
from dpsql.sql.relation import column
from dpsql.sql.rewrite import Key, bounded_rows
from dpsql.sql.types import Typed

if TYPE_CHECKING:
    from dpsql.sql.bind import Binder, Env
    from dpsql.sql.joins import From

OPTIONS: Readers = {
    name: COMMON[name]
    for name in (
        "epsilon", "delta", "privacy_unit_column", "max_groups_contributed", "max_rows_contributed", "confidence",
    )
}  # fmt: skip
ARGUMENTS: Readers = {"epsilon": epsilon_value, "local_sensitivity": positive}
KNOWN = ("IQR", "MEDIAN", "QUANTILE_DISC", "MODE", "ARG_MAX")


@dataclass(frozen=True)
class Asked:
    """One output of the block: the call, what it needs of the rows, and how its item is made of a share."""

    name: str
    call: Call
    label: str
    share: Fraction | None
    values: dict[str, str]
    type: str
    make: Callable[[str, Fraction, Fraction], Item]
    interval: bool


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
        common = (name, call, label_of(call), options.get("epsilon"))
        rows = self.rows
        if call.name == "IQR":
            if not typed.type.numeric:
                raise BindError("IQR needs a number.", span=span_of(call.args[0]))
            values = {"v": f"CAST({values['v']} AS DOUBLE)"}

            def iqr(query: str, epsilon: Fraction, delta: Fraction) -> Item:
                noise = self._noise(epsilon / 2, delta / 2, proposals.iqr_sensitivity())
                return proposals.Iqr(
                    name, query, self.test(epsilon / 2, self._test_delta(delta)), noise, rows
                )

            return Asked(*common, values, "DOUBLE", iqr, True)
        if call.name == "MEDIAN" and "local_sensitivity" in options:
            if not typed.type.numeric:
                raise BindError("MEDIAN with a local sensitivity needs a number.", span=span_of(call.args[0]))
            values = {"v": f"CAST({values['v']} AS DOUBLE)"}
            proposed = options["local_sensitivity"]

            def median(query: str, epsilon: Fraction, delta: Fraction) -> Item:
                step, bound = proposals.median_grid(proposed, epsilon / 2)
                noise = self._noise(epsilon / 2, delta / 2, bound)
                test = self.test(epsilon / 2, self._test_delta(delta))
                return proposals.ProposedMedian(name, query, step, bound, test, noise, rows)

            return Asked(*common, values, "DOUBLE", median, True)
        if call.name == "MODE":
            return Asked(
                *common, values, typed.type.sql,
                lambda query, epsilon, delta: proposals.Mode(name, query, self.test(epsilon, delta), rows, floating), False,
            )  # fmt: skip
        probability = Fraction(1, 2)
        if call.name == "QUANTILE_DISC":
            probability = number(call.args[1], "the quantile")
            if not 0 <= probability <= 1:
                raise BindError("a quantile lies between 0 and 1.", span=span_of(call.args[1]))
        return Asked(
            *common, values, typed.type.sql,
            lambda query, epsilon, delta: proposals.Quantile(
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
        amount, bound = "1", 1
        if inner.name == "SUM":
            from dpsql.sql import grid as grids

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
            grid = grids.choose(typed.type, typed.bounds.low, typed.bounds.high)
            amount = grids.clamped(to_sql(grids.value(typed, grid)), grid)
            bound = max(1, abs(grid.low), abs(grid.high))
        v = to_sql(group.node)
        if group.type.kind == "DOUBLE":  # -0.0 is the same group, and is shown as the same
            v = f"({v}) + 0.0"
        values = {"v": v, "amount": self._filtered(inner, amount)}
        return Asked(
            name, call, label_of(call), options.get("epsilon"), values, group.type.sql,
            lambda query, epsilon, delta: proposals.ArgMax(name, query, bound, self.test(epsilon, delta), self.rows), False,
        )  # fmt: skip

    def _filtered(self, call: Call, sql: str) -> str:
        if call.where is None:
            return sql
        return f"CASE WHEN {to_sql(self.block.condition(call.where).node)} THEN {sql} END"

    def _noise(self, epsilon: Fraction, delta: Fraction, sensitivity: int) -> LaplaceNoise | GaussianNoise:
        if self.accountant == "gdp":
            return GaussianNoise.calibrate(epsilon, delta, sensitivity, self.groups)
        return LaplaceNoise(epsilon, sensitivity, self.groups)

    def _test_delta(self, delta: Fraction) -> Fraction:
        return delta / 2 if self.accountant == "gdp" else delta


def ptr_block(binder: Binder, select: exp.Select, bound: From, options: Options, env: Env) -> None:
    """Binds SELECT WITH PTR in place.

    Raises:
        PrivacyError: a function that has no stability test, private groups, no delta.
    """
    block = Block(binder, select, bound, options, env, binder.name("block"))
    where = select.args.get("where")
    condition = to_sql(block.condition(where.this).node) if where else None
    block._check_unit_option()
    keys, typed = block._keys(block._group_expressions())
    domain = public_domain(block, typed) if keys else None
    if keys and domain is None:
        raise PrivacyError(
            "PTR needs public groups.",
            span=span_of(select.args.get("group")) or span_of(select),
            hint="ask the owner to declare the column's values, or join a public table with RIGHT JOIN.",
        )
    rows, groups = _bounding(block, bound, options, bool(keys), domain.size if domain is not None else None)
    stable = StableBlock(block, rows, groups, binder.catalog.accountant)
    asked: list[Asked] = []
    shown: list[exp.Expr] = []
    labels: list[str] = []
    for item in select.expressions:
        inner = item.unalias()
        call = call_of(inner)
        if call is not None and call.name in KNOWN:
            taken = [*(key.name for key in keys), *(a.name for a in asked)]
            found = stable.ask(call, fresh_names([*taken, label_of(call)])[-1])
            asked.append(found)
            value: exp.Expr = column(found.name)  # a struct is released as it is: its type has no short name
            value = value if "STRUCT" in found.type else exp.cast(value, found.type, dialect="duckdb")
            labels.append(item.alias if isinstance(item, exp.Alias) else found.label)
        else:
            value = _above(block, inner)
            labels.append(item.alias_or_name or to_sql(inner))
        shown.append(value)
    if not asked:
        raise PrivacyError(
            "there is nothing to test here.", span=span_of(select), hint=f"PTR knows {', '.join(KNOWN)}."
        )
    share = deal(binder, options, select, [(a.share, a.call.node) for a in asked], len(asked))
    made = []
    for part, found in zip(share.parts, asked, strict=True):
        query = bounded_rows(
            bound,
            condition,
            keys,
            found.values,
            rows,
            groups if keys else None,
            domain.sql if domain else None,
        )
        made.append(found.make(query, part, share.delta / len(asked)))
    operator = Stable(
        tuple(made), tuple(k.name for k in keys), domain.sql if domain else None, block.confidence
    )
    _install(block, select, bound, operator, keys, asked, shown, labels)


def _install(
    block: Block, select: exp.Select, bound: From, operator: Stable, keys: tuple[Key, ...], asked: list[Asked],
    shown: list[exp.Expr], labels: list[str],
) -> None:  # fmt: skip
    columns = [(key.name, key.type) for key in keys]
    for item in asked:
        columns.append((item.name, item.type))
        if item.interval:
            columns += [(f"{item.name}__low", "DOUBLE"), (f"{item.name}__high", "DOUBLE")]
    inputs = tuple(dict.fromkeys((*bound.inputs, *block.binder.lent_inputs)))
    sentences = protected(bound, operator.items[0].rows if not bound.row_level else 1)  # type: ignore[attr-defined]
    block.binder.blocks.append(
        plan.Block(block.name, operator, tuple(columns), inputs, sentences, block.confidence)
    )
    order = select.args.get("order")
    if order is not None:
        names = {label.lower() for label in labels}
        for node in order.expressions:
            if not (isinstance(node.this, exp.Column) and node.this.name.lower() in names):
                node.set("this", _above(block, node.this))
    for key in ("joins", "where", "group", "having"):
        if key == "having" and select.args.get(key):
            raise BindError(
                "HAVING is not known with PTR.", span=span_of(select.args[key]), hint="filter the answer."
            )
        select.set(key, None)
    select.set("from_", exp.From(this=exp.to_table(block.name)))
    names_ = fresh_names(labels)
    select.set("expressions", [exp.alias_(e, n, quoted=True) for e, n in zip(shown, names_, strict=True)])
    with_intervals: Any = {item.name: item for item in asked if item.interval}
    select.meta["dpsql_intervals"] = [
        (n, *ends)
        for n, e in zip(names_, shown, strict=True)
        if (ends := interval_of(e, with_intervals)) is not None
    ]


def _above(block: Block, node: exp.Expr) -> exp.Expr:
    key = block._key(node)
    if key is not None:
        return key
    name = call.name if (call := call_of(node)) is not None else to_sql(node)
    raise PrivacyError(
        f"{name} has no stability test.",
        span=span_of(node),
        hint="SELECT WITH SUBSAMPLE takes any query; PTR knows " + ", ".join(KNOWN) + ".",
    )


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
