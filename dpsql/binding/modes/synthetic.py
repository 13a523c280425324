"""``CREATE SYNTHETIC TABLE``: a SELECT of columns with public values, and rows of a model of its marginals.

Columns are keys, as in GROUP BY, each with its public values: declared ones, booleans, integers and days between
declared bounds, and expressions of these. The exact query counts the combinations that occur, with the caps on a unit's
rows, after dropping rows with other values.

Above the block is plain SQL. A release has each combination with its number of model rows, and the statement asks for n
rows of these: the k-th part of all, by running totals, rounded down. So each combination has its share to within one
row, any n is free once the block is paid, and for the model's own number the rows are the model's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from sqlglot import exp

from dpsql.binding.dp.budget_split import deal
from dpsql.binding.dp.noise_choice import Dealt, DealtMoment, NoiseChoice, NoiseMaker
from dpsql.binding.dp.noisy_block import NoisyBlock
from dpsql.binding.dp.public_groups import find_public_groups
from dpsql.binding.dp.unit_caps import list_cuts
from dpsql.binding.public_statement import Released
from dpsql.binding.values.sql_types import Typed
from dpsql.exact.exact_query import Exact, GroupKey, Partial, PublicGroups
from dpsql.language.dialect import bind_error, parse_select, privacy_error, to_sql
from dpsql.language.options import call_of
from dpsql.language.statements import MAX_SYNTHETIC_ROWS, SYNTHETIC_USAGE
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Select, Subquery
from dpsql.mechanisms.synthetic.rounds import TOTAL, WEIGHT, SyntheticRows, divide_budget
from dpsql.privacy.amounts import Amount

MAX_COLUMN_VALUES = 10_000
"""The most public values of one column."""
MAX_COLUMNS = 64
"""The most columns of a synthetic table."""


@dataclass(frozen=True)
class _MeasurementMaker(NoiseMaker):
    """Makes the noise of measurements, each with sensitivity ``reach``."""

    names: tuple[str, ...]
    amounts: tuple[Amount, ...]
    reach: int

    def list_moments(self, dealt: Dealt, gaussian: bool) -> Iterator[DealtMoment]:
        for name, amount in zip(self.names, self.amounts, strict=True):
            yield DealtMoment(name, name, amount, 1, self.reach, 1)


@dataclass
class SyntheticBlock(NoisyBlock):
    """A block of synthetic rows."""

    domains: tuple[PublicGroups, ...] = ()
    """The public values of each column."""
    partial: Partial | None = None
    """The count of a combination."""

    def bind(self) -> None:
        """Bind the columns and their public values, then write the statement above."""
        self.options = replace(self.options, mode="DP")
        self._refuse_clauses()
        condition = self.where()
        self.names.check_unit(self.options, self.bound.subject)
        keys, typed = self.bind_keys([item.unalias() for item in self.select.expressions])
        self.domains = tuple(self._find_values(pair) for pair in typed)
        pairs = zip(keys, self.domains, strict=True)
        listed = [domain.holds([f"({key.sql})"], [key], f"values_{key.name}") for key, domain in pairs]
        where = " AND ".join(f"({text})" for text in [condition, *listed] if text)
        self._require_caps()
        rows, each = self.bound.row_caps(self.options)
        self.exact = Exact(self.bound, where, keys, each, self._groups(), rows)
        self.per_unit_groups = 1
        self.partial = self.exact.add(Partial("COUNT(*)", 0, 1))
        self.bind_clauses()
        self._make_rows()

    def _refuse_clauses(self) -> None:
        """Refuse clauses that choose or combine rows: a synthetic table consists of rows' columns."""
        hint = "query the synthetic table for it: the table is public once it exists."
        names = {"group": "GROUP BY", "order": "ORDER BY", "windows": "WINDOW"}
        names |= {key: key.upper() for key in ("having", "qualify", "limit", "offset", "distinct")}
        for key, name in names.items():
            clause = self.select.args.get(key)
            if clause:
                place = clause if isinstance(clause, exp.Expr) else None
                raise bind_error(place or self.select, f"a synthetic table has no {name}.", hint)
        unnamed = "a synthetic table names its columns."
        if not self.select.expressions:
            raise privacy_error(self.options.mode_node, unnamed, SYNTHETIC_USAGE)
        for item in self.select.expressions:
            if item.is_star:
                example = "name the columns: CREATE SYNTHETIC TABLE s AS SELECT ward, urgent FROM visits."
                raise privacy_error(item, unnamed, example)
            for node in item.walk():
                if (call_of(node) is not None and self._has_aggregate(node)) or isinstance(node, exp.Window):
                    raise bind_error(node, "a synthetic table consists of rows, and this counts them.", hint)
            if item.find(exp.Column) is None:
                what = "a column of a synthetic table is computed from the rows' columns."
                raise bind_error(item, what, "leave it out.")
        if len(self.select.expressions) > MAX_COLUMNS:
            many = f"a synthetic table has {MAX_COLUMNS} columns at most."
            raise bind_error(self.select.expressions[MAX_COLUMNS], many, "name fewer columns.")

    def _find_values(self, pair: tuple[GroupKey, Typed]) -> PublicGroups:
        key, typed = pair
        place = self.key_sources[key.name]
        found = find_public_groups(self, [pair], MAX_COLUMN_VALUES)
        if found is None or found.size is None or found.size > MAX_COLUMN_VALUES:
            what = f"the values of {to_sql(place)} are not public, and synthetic rows would show them."
            if found is not None and found.size is not None:
                what = f"{to_sql(place)} has {found.size:,} public values; the limit here is {MAX_COLUMN_VALUES:,}."
            raise privacy_error(place, what, _advise_on_values(to_sql(place), typed))
        return found

    def _require_caps(self) -> None:
        rows, each = self.bound.row_caps(self.options)
        if self.bound.row_level or rows is not None:
            return
        groups = self.options.get("max_groups_contributed", self.bound.max_groups)
        if each is None or groups is None:
            what = f"{self.bound.subject} needs a limit on the rows of one privacy unit."
            hint = "write OPTIONS (max_rows_contributed = 1), or ask the owner for max_rows."
            raise privacy_error(self.options.mode_node, what, hint, around=self.select.expressions[0])

    # -- the loss ---------------------------------------------------------------------------------------------------

    @property
    def released(self) -> list[Released]:
        return [*super().released, Released(WEIGHT, "BIGINT"), Released(TOTAL, "BIGINT")]

    def build_operator(self) -> None:
        """Divide the budget among choices and measurements, and add the block to the plan."""
        assert self.partial is not None
        sizes = tuple(domain.size or 1 for domain in self.domains)
        # All rows of a unit may be in one cell of a marginal.
        steps = self.exact.caps.total or 1
        maker = _MeasurementMaker(self.exact, self.per_unit_groups, (), (), steps)
        choice = NoiseChoice(maker, self.options, self.binder.catalog, False, True)
        share = deal(self.binder, self.options, self.select, [(None, None)], choice.delta_parts)
        budget = divide_budget(sizes, share.amounts[0])
        names = tuple(f"m{i}" for i in range(len(budget.measured)))
        maker = replace(maker, names=names, amounts=budget.measured)
        choice = replace(choice, maker=maker)
        noise = choice.choose(cast(Dealt, [(None, budget.measurements)]), share, len(names))
        found = [noise.statistics[name, name].noise for name in names]
        operator = SyntheticRows(
            self.exact.sql(),
            self.exact.names,
            self.partial.name,
            tuple(d.sql for d in self.domains),
            sizes,
            steps,
            self.per_unit_groups,
            found[0],
            found[-1] if budget.rounds else None,
            budget.rounds,
            budget.choice,
        )
        self.binder.notes += list_cuts(self.exact, False)
        origins = dict.fromkeys(domain.origin for domain in self.domains)
        reach = operator.reach
        sentences = (
            *self.exact.describe_unit(),
            f"Columns have public values ({', '.join(origins)}); rows with other values are left out.",
            f"One privacy unit has {reach:,} row{'s' if reach > 1 else ''} at most among all combinations of values, and all "
            "of them may be in one cell of a marginal.",
            *([noise.said] if noise.said else []),
        )
        self.binder.add_block(
            self.name, operator, self.released, self.bound.inputs, sentences, self.confidence, share.whole
        )

    # -- the statement above ------------------------------------------------------------------------------------------

    def _make_rows(self) -> None:
        """Replace combinations in the statement by rows: the requested or the estimated number."""
        names = tuple(key.name for key in self.keys.values())
        rows = self.options.get("rows")
        asked = str(rows) if rows is not None else f"LEAST({TOTAL}, {MAX_SYNTHETIC_ROWS})"
        before = f"ORDER BY {', '.join(names)} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        running, whole = (As(f"SUM({WEIGHT}) OVER ({w})", n) for w, n in ((before, "upto"), ("", "whole")))
        parts = Subquery(Select(("*", running, whole, As(asked, "asked")), self.name), "parts")
        times = f"(upto * asked) // whole - ((upto - {WEIGHT}) * asked) // whole"
        copies = Select((*names, As(f"UNNEST(RANGE(CAST({times} AS BIGINT)))", "copy")), parts)
        rows = exp.to_identifier(self.binder.name("rows"))
        self.select.set("from_", exp.From(this=parse_select(copies.sql).subquery(rows, copy=False)))


def _advise_on_values(name: str, typed: Typed) -> str:
    kind = typed.type.kind
    if kind in ("INTEGER", "DOUBLE", "DECIMAL"):
        return f"if it has declared bounds, use FLOOR({name} / 10)::INTEGER AS band; otherwise ask the owner for its values."
    if kind in ("TIMESTAMP", "DATE"):
        return f"write date_trunc('month', {name}), if the owner declares bounds."
    return "ask the owner to declare its values, or write an expression with only the values that you need."
