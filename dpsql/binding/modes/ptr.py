"""SELECT WITH PTR: answers released exactly, or nearly, if the data are far from another answer."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

from sqlglot import exp

from dpsql.binding.dp.budget_split import deal, find_groups, price_of, require_rows
from dpsql.binding.dp.private_block import AggregatingBlock, BlockOutput
from dpsql.binding.dp.public_groups import find_public_groups
from dpsql.binding.public_statement import label_of
from dpsql.binding.relations.relation import column
from dpsql.binding.relations.unit_rows import RowCaps, describe_protection
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.sql_types import Bounds, Type, Typed
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME, AGGREGATES, names_of
from dpsql.errors import BindError, PrivacyError
from dpsql.exact.exact_query import write_bounded_rows
from dpsql.language import options as opt
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.ptr import ptr_statistics, trimmed
from dpsql.mechanisms.ptr.stability_test import (
    STABILITY_TESTS,
    StabilityTest,
    Stable,
    StableItem,
    make_stability_test,
    make_test_and_noise,
)


@opt.reads("base")
def read_base(node: exp.Expr, what: str) -> Fraction:
    """Read the base of IQR's logarithm."""
    value, (least, most) = opt.read_number(node, what), ptr_statistics.BASES
    if not least <= value <= most:
        raise bind_error(node, f"{what} must be between {float(least):.6f} and {float(most):g}.", _BASE_HINT)
    return value


@opt.reads("trim")
def read_trim(node: exp.Expr, what: str) -> Fraction:
    """Read the fraction of the values left out at either end."""
    value = opt.read_number(node, what)
    if not 0 < value < Fraction(1, 2) or value.denominator > 10**6:
        raise bind_error(node, f"{what} must be between 0 and 0.5.", f"write {what} => 0.05.")
    return value


_BASE_HINT = "write 1.02: a smaller base means less noise, and needs more rows."
opt.reads("test")(opt.read_one_of(*STABILITY_TESTS))
PTR_OPTIONS = opt.readers_of("PTR")
PTR_ARGUMENTS = opt.arguments_of("PTR")
PTR_FUNCTIONS = tuple(row.name for row in AGGREGATES if "PTR" in row.modes)
_PROPOSING = tuple(name for name in PTR_FUNCTIONS if name != "ARG_MAX")
"""The functions whose answers a unit may move by a distance."""
_ARGUMENTS_OF_SOME = {"local_sensitivity": _PROPOSING, "base": ("IQR",), "trim": tuple(trimmed.FORMS)}
"""Arguments that only some functions take."""


class Make(Protocol):
    """Makes an item from the query of its rows and its shares of epsilon and delta."""

    def __call__(self, query: str, epsilon: Fraction, delta: Fraction) -> StableItem: ...


@dataclass(frozen=True)
class TestedOutput(BlockOutput):
    """An output that is tested before release: its required rows, and its item's constructor."""

    values: dict[str, str]
    make: Make
    left_as: str | None = None
    """The SQL type in which its value leaves the engine, if different."""

    @property
    def left(self) -> str:
        return self.left_as if self.left_as is not None else self.type

    def express(self, confidence: float) -> exp.Expr:
        """Return a cast of the column; a struct unchanged, for its type has no short name."""
        if self.left_as is not None:
            return grids.come_back(column(self.name), Type.parse(self.type), self.left_as)
        return column(self.name) if "STRUCT" in self.type else super().express(confidence)


@dataclass
class PtrBlock(AggregatingBlock):
    """A block whose answers are tested. Clauses above use only the release."""

    aliases: dict[str, str] = field(default_factory=dict)
    """The analyst's names for calls that are outputs themselves, for notes."""
    condition_sql: str | None = None

    def bind(self) -> None:
        """Bind the groups, which must be public, then every clause above them.

        Raises:
            PrivacyError: a function without a stability test, private groups, no delta.
        """
        self.condition_sql = self.where()
        distinct = self.select.args.get("distinct")
        if distinct is not None:
            hint = "leave it out: the answer has one row, or one for each public group."
            raise bind_error(distinct, "DISTINCT is not known with PTR.", hint, around=self.select)
        self.names.check_unit(self.options, self.bound.subject)
        keys, typed = self.bind_keys(self.group_expressions())
        self.domain = find_public_groups(self, typed) if keys else None
        if keys and self.domain is None:
            what = "PTR needs public groups."
            hint = "ask the owner to declare the column's values, or join a public table and keep all of its rows."
            raise privacy_error(self.select.args.get("group"), what, hint, around=self.select)
        place, size = self.options.mode_node, self.domain.size if self.domain is not None else None
        hint = "write OPTIONS (max_rows_contributed = 1): one of a unit's rows is chosen at random."
        self.rows = require_rows(self.bound, self.options, place, hint)
        # Each group has its own test, for all of a unit's rows that may be in it: groups share no cap on all rows.
        groups = find_groups(self.bound, self.options, place) if keys else 1
        rows = self.bound.row_caps(self.options)[0]
        self.groups = min(n for n in (groups, rows, size) if n is not None)
        for item in self.select.expressions:
            if isinstance(item, exp.Alias) and (call := self.call_of(item.this)) is not None:
                self.aliases.setdefault(to_sql(call.node), item.alias)
        self.bind_clauses()

    def call_of(self, node: exp.Expr) -> opt.Call | None:
        call = None if isinstance(node, exp.Window) else opt.call_of(node)
        return call if call is not None and call.name in PTR_FUNCTIONS else None

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        call = self.call_of(node)
        if call is not None:
            return self.aggregate(call)
        if not isinstance(node, exp.Window) and (name := _name_other(node)):
            hint = (
                f"write SELECT WITH SUBSAMPLE, which takes any query; PTR knows {', '.join(PTR_FUNCTIONS)}."
            )
            raise privacy_error(node, f"{name} has no stability test.", hint)
        return super().above(node, aliases)

    def name_of(self, call: opt.Call, text: str) -> str:
        return self.aliases.get(text, label_of(call))

    def build_operator(self) -> None:
        asked = [item for item in self.asked.values() if isinstance(item, TestedOutput)]
        if not asked:
            hint = f"PTR knows {', '.join(PTR_FUNCTIONS)}."
            raise privacy_error(self.select, "this SELECT has no statistic to test.", hint)
        shares = [(item.share, item.call.node) for item in asked]
        share = deal(self.binder, self.options, self.select, shares, len(asked))
        bound, keys, domain = self.bound, tuple(self.keys.values()), self.domain
        groups = self.groups if keys else None
        made = []
        for amount, item in zip(share.amounts, asked, strict=True):
            where = self.condition_sql
            query = write_bounded_rows(bound, where, keys, item.values, self.rows, groups, domain).sql
            build = partial(item.make, query, delta=share.delta_part)
            made.append(build(amount.find_epsilon(price_of(build))))
        names = tuple(key.name for key in keys)
        operator = Stable(tuple(made), names, domain.sql if domain else None, self.confidence)
        said = describe_protection(bound, RowCaps(None, self.rows, self.groups), grouped=bool(keys))
        self.binder.add_block(
            self.name, operator, self.released, bound.inputs, said, self.confidence, share.whole
        )

    # -- items that are tested ----------------------------------------------------------------------------------

    def bind_call(self, call: opt.Call, name: str) -> BlockOutput:
        opt.refuse_equals(call, PTR_ARGUMENTS)
        options = call.read(PTR_ARGUMENTS)
        strange = [a for a, owners in _ARGUMENTS_OF_SOME.items() if a in options and call.name not in owners]
        if call.distinct or strange:
            owners = ", ".join(_ARGUMENTS_OF_SOME[strange[0]]) if strange else ""
            hint = f"leave {strange[0]} out: it belongs to {owners}." if strange else None
            raise bind_error(call.node, f"{call.name} does not take this here.", hint)
        if "base" in options and "local_sensitivity" in options:
            hint = "leave base out for noise that fits the proposal, or local_sensitivity for a factor."
            raise bind_error(call.node, f"{call.name} takes one proposal.", hint)
        row = AGGREGATE_OF_NAME[call.name]
        call.require(row.arguments[1])
        span = span_of(call.args[0])
        if any(self.is_unit(node) for node in call.args[0].find_all(exp.Column)):
            hint = "count the units with SELECT WITH DP."
            raise PrivacyError("the privacy unit is never released.", span=span, hint=hint)
        typed = self.expression(call.args[0])
        kind = typed.type
        if call.name in ("MODE", "ARG_MAX") and kind.two_faced and kind.kind != "DOUBLE":
            what = f"equal values of {kind.sql} may look different, and one would be shown exactly."
            hint = "take a number made of it, such as the whole seconds of an interval."
            raise PrivacyError(what, span=span, hint=hint)
        ordered = kind.numeric or kind.kind in ("DATE", "TIMESTAMP")
        if row.form == "quantile" and not ordered:
            what = f"{call.name} needs values that are ordered as numbers are, and this is {kind.sql}."
            raise BindError(what, span=span, hint=f"write MODE({to_sql(call.args[0])}): it takes any type.")
        proposed = options.get("local_sensitivity")
        if call.name == "QUANTILE_CONT" and proposed is None:
            shown = to_sql(call.args[0])
            hint = f"write QUANTILE_DISC({shown}, {to_sql(call.args[1])}), or local_sensitivity => b, with noise for b."
            raise bind_error(call.node, "a value between two others is not released exactly.", hint)
        noisy = call.name == "IQR" or call.name in trimmed.FORMS or proposed is not None
        if noisy and not kind.numeric:
            exact = "leave local_sensitivity out: the mode is then exact, of any type."
            hint = exact if call.name == "MODE" else None
            raise BindError(f"{call.name} needs a number here, and this is {kind.sql}.", span=span, hint=hint)
        chosen = call.name in ("MODE", "ARG_MAX") and not noisy
        out = grids.leave(typed) if chosen else grids.hold_to_38_digits(typed)
        value = self.filtered(call, to_sql(out.node))
        values = {"v": f"CAST({value} AS DOUBLE)" if noisy else value}
        test = options.get("test", "AUTO")
        if call.name == "ARG_MAX":
            values, make = self._arg_max(call, name, out, test)
        elif call.name in trimmed.FORMS:
            values, make = self._trimmed(call, name, typed, options)
        elif proposed is not None:
            make = self._proposed(call, name, proposed, test)
        elif call.name == "IQR":
            make = self._iqr(name, typed, options.get("base"), test)
        else:
            make = self._order(call, name, kind.kind == "DOUBLE", test)
        shown, left = "DOUBLE" if noisy else kind.sql, None if noisy or out.type == kind else out.type.sql
        return TestedOutput(name, call, options.get("epsilon"), shown, noisy, values, make, left)

    def _order(self, call: opt.Call, name: str, floating: bool, test: str) -> Make:
        """Return the constructor of a mode's item, or of the value at a rank."""
        if call.name == "MODE":
            return lambda query, epsilon, delta: ptr_statistics.Mode(
                name, query, self._test(test, epsilon, delta), self.rows, floating
            )
        probability = call.read_probability() if call.name == "QUANTILE_DISC" else Fraction(1, 2)
        return lambda query, epsilon, delta: ptr_statistics.Quantile(
            name, query, probability, self._test(test, epsilon, delta), self.rows, floating
        )

    def _iqr(self, name: str, typed: Typed, base: Fraction | None, kind: str) -> Make:
        ends, most = typed.ends, Fraction(2) ** 1022
        if ends is not None:
            ends = max(ends[0], -most), min(ends[1], most)

        def make(query: str, epsilon: Fraction, delta: Fraction) -> StableItem:
            count = None
            if base is None:
                count = ptr_statistics.make_row_count(epsilon, self.rows, self.groups)
                epsilon -= count.epsilon
            sensitivity = ptr_statistics.iqr_sensitivity()
            test, noise = make_test_and_noise(kind, epsilon, delta, self.groups, sensitivity)
            return ptr_statistics.Iqr(name, query, test, noise, self.rows, ends, base, count)

        return make

    def _proposed(self, call: opt.Call, name: str, proposed: Fraction, kind: str) -> Make:
        probability = call.read_probability() if AGGREGATE_OF_NAME[call.name].arguments[1] == 2 else None

        def make(query: str, epsilon: Fraction, delta: Fraction) -> StableItem:
            step, bound = ptr_statistics.choose_proposal_grid(proposed, epsilon / 2)
            test, noise = make_test_and_noise(kind, epsilon, delta, self.groups, bound)
            shared = (name, query, step, bound, test, noise, self.rows)
            if probability is not None:
                return ptr_statistics.ProposedQuantile(*shared, probability)
            kinds = {"IQR": ptr_statistics.ProposedIqr, "MODE": ptr_statistics.ProposedMode}
            return kinds.get(call.name, ptr_statistics.ProposedMedian)(*shared)

        return make

    def _trimmed(
        self, call: opt.Call, name: str, typed: Typed, options: dict[str, Any]
    ) -> tuple[dict[str, str], Make]:
        """Return the constructor of a trimmed mean's or variance's item."""
        form, proposed = trimmed.FORMS[call.name], options.get("local_sensitivity")
        if form.get("root") and proposed is not None:
            hint = "propose that of the variance, and take the square root of its answer."
            raise bind_error(call.node, f"{call.name} has no local sensitivity that could be tested.", hint)
        bounds, power = typed.bounds or Bounds(), form["power"]
        grid = grids.choose_trimmed_grid(typed.type, bounds.low, bounds.high, power)
        steps = grids.write_clamped(to_sql(grids.write_steps(typed, grid)), grid)
        steps_proposed = proposed * grid.steps**power if proposed is not None else None

        def make(query: str, epsilon: Fraction, delta: Fraction) -> StableItem:
            kind, tests = options.get("test", "AUTO"), 2 if proposed is None else 1
            test, noise = make_test_and_noise(kind, epsilon, delta, self.groups, trimmed.SCALE_STEPS, tests)
            return trimmed.Trimmed(
                name,
                query,
                grid.steps,
                trim=options.get("trim", trimmed.TRIM),
                test=test,
                noise=noise,
                rows=self.rows,
                proposed=steps_proposed,
                ends=(grid.low, grid.high),
                **form,
            )

        return {"v": self.filtered(call, steps)}, make

    def _arg_max(self, call: opt.Call, name: str, group: Typed, test: str) -> tuple[dict[str, str], Make]:
        """Return the constructor of ``ARG_MAX(k, SUM(x))``: the k with the largest sum."""
        inner = opt.call_of(call.args[1])
        if inner is None or inner.name not in ("SUM", "COUNT"):
            hint = "write ARG_MAX(ward, COUNT(*)) or ARG_MAX(ward, SUM(amount))."
            raise bind_error(call.args[1], "ARG_MAX takes a group and a sum or count over it.", hint)
        if inner.distinct or inner.named or len(inner.args) > 1:
            what = f"inside ARG_MAX, {inner.name} takes one value, of every row, and no options."
            inside = "leave epsilon out, or give it to the outer call." if inner.named else None
            raise bind_error(inner.node, what, inside)
        amount, bound = "1", 1
        if inner.name == "SUM":
            typed = self.expression(inner.args[0])
            if not typed.type.numeric or (ends := typed.ends) is None:
                what = f"{to_sql(inner.node)} needs bounds."
                raise privacy_error(inner.node, what, "ask the owner for bounds.")
            grid = grids.choose_grid(typed.type, *ends)
            amount = grids.write_clamped(to_sql(grids.write_steps(typed, grid)), grid)
            bound = max(1, abs(grid.low), abs(grid.high))
        elif inner.args and not inner.args[0].is_star:
            amount = f"CASE WHEN {to_sql(self.expression(inner.args[0]).node)} IS NOT NULL THEN 1 END"
        values = {"v": to_sql(group.node), "amount": self.filtered(call, self.filtered(inner, amount))}
        return values, lambda query, epsilon, delta: ptr_statistics.ArgMax(
            name, query, bound, self._test(test, epsilon, delta), self.rows
        )

    def _test(self, kind: str, epsilon: Fraction, delta: Fraction) -> StabilityTest:
        return make_stability_test(kind, epsilon, delta, self.groups)


def _name_other(node: exp.Expr) -> str:
    call = opt.call_of(node)
    if call is not None and call.name in names_of("DP"):
        return call.name
    windowed = isinstance(node.parent, exp.Window)
    return node.sql_name() if isinstance(node, exp.AggFunc) and not windowed else ""
