"""The parts of a noisy aggregate: its call, its bounded argument, and its output before it has a share of the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from sqlglot import exp

from dpsql.binding.dp.budget_split import require_rows
from dpsql.binding.dp.private_block import AggregatingBlock, BlockOutput
from dpsql.binding.interval_ends import TIME_END, write_json_report
from dpsql.binding.relations.relation import column
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME, AGGREGATES, SqlName
from dpsql.exact.exact_query import Exact, Partial, Weighing
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.language.options import Call, arguments_of, moment_of, read_word, reads
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import moments
from dpsql.mechanisms.aggregation import Part
from dpsql.mechanisms.order_statistics import GradedGrid, WantedRank
from dpsql.mechanisms.queries import Select


class Formula(NamedTuple):
    """A function that makes an output of noisy partials, which get equal parts of the aggregate's share."""

    partials: Sequence[Partial]
    build: Callable[..., moments.Output]


@reads("report format")
def _read_report_format(node: exp.Expr, what: str) -> str:
    word = read_word(node, what).upper()
    if word != "JSON":
        raise bind_error(node, f"{what} can't be {word}.", "write 'JSON'.")
    return word


NAMED_ARGUMENTS = arguments_of("aggregates")


OnLine = Callable[[Typed, Fraction, Fraction], grids.Line]
"""Places a value and its bounds on a line of numbers."""


@dataclass(frozen=True)
class QuantileRequest:
    """Quantiles of one call: the grid integer of a row (and in fewer bits), its grid, and the requested ranks.

    If the grid is ``graded``, ``y`` and ``narrow`` are the number itself; ``narrow`` also if it is missing.
    """

    y: str
    narrow: str
    grid: grids.Grid
    ranks: tuple[WantedRank, ...]
    whole: bool
    graded: GradedGrid | None = None


@dataclass(frozen=True)
class Aggregate(BlockOutput):
    """A bound aggregate, released by one of ``formula``, ``quantile`` and ``part``."""

    said: str
    """EXPLAIN's sentence on its computation and sensitivity."""
    formula: Formula | None = None
    """Makes it of noisy partials of the block's exact query."""
    quantile: QuantileRequest | None = None
    """The request for a histogram, which quantiles of one column share."""
    part: Callable[[Fraction], Part] | None = None
    """Makes the mechanism of an aggregate with an exact query of its own."""
    report: str | None = None
    shown: grids.Back | None = None
    """Makes the finished statement's expression of the released column, if that is more than a cast to ``type``."""
    noise_step: Fraction | None = None
    """The step of the noise, in units, where the released number is an exact count or sum with noise, and no more."""
    rounded: bool = False
    """True for a sum of weighed rows, whose fraction is in the middle of its interval alone."""

    def express(self, confidence: float) -> exp.Expr:
        """Return a cast of the column, its expression by ``shown``, or GoogleSQL's report."""
        if self.report == "JSON":
            return write_json_report(self.name, confidence)
        if self.shown is not None:
            made = self.shown(column(self.name))
            made.meta[TIME_END] = not isinstance(made, exp.Exp)  # a geometric mean is a number
            return made
        return column(self.name) if self.type == "BIGINT" else super().express(confidence)


@dataclass(frozen=True)
class Bounded:
    """A numeric argument on its grid: clamped to ``[low, high]`` steps, per row, or per unit and group."""

    typed: Typed
    y: str
    grid: grids.Grid
    per_group: bool
    origin: str
    line: grids.Line | None = None
    """The number line of a date, a time or an interval."""
    centred: bool = False
    """Whether ``y`` is clamped already, and relative to the centre."""

    @property
    def deviations(self) -> tuple[int, int]:
        """The bounds, relative to the centre."""
        return self.grid.low - self.grid.centre, self.grid.high - self.grid.centre

    @property
    def most(self) -> int:
        """The greatest distance of a value from the centre."""
        return max(map(abs, self.deviations))

    def units(self, steps: int) -> Fraction:
        """Return a number of grid steps in units of the argument."""
        return Fraction(steps) / Fraction(self.grid.steps)

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """The bounds, in units of the argument."""
        return self.units(self.grid.low), self.units(self.grid.high)

    @property
    def deviation(self) -> str:
        """SQL of the clamped value relative to the centre; products of two of them fit its type."""
        if self.centred:
            return f"CAST({self.y} AS BIGINT)"
        value = grids.write_clamped(self.y, self.grid)
        return f"({f'CAST({value} AS HUGEINT)' if self.grid.wide else value} - {self.grid.centre})"

    @property
    def said(self) -> str:
        """EXPLAIN's words on the bounds of the argument, and their origin."""
        low, high = (f"{float(end):g}" for end in self.ends)
        if self.line is not None and self.line.between is not None:
            low, high = self.line.shown
        lost = "" if self.farthest is None else f"; missing beyond ±{float(self.farthest):g}"
        return f"clamped to [{low}, {high}] ({self.origin}{lost})"

    @property
    def farthest(self) -> Fraction | None:
        """The absolute value above which values are missing: None if there are none, or the policy has the bounds."""
        far, span = self.grid.farthest, self.typed.span
        if self.centred:
            far = self.units(grids.CENTRED_FARTHEST)
        ends = None if span is None else span.ends
        within = ends is not None and max(-ends[0], ends[1]) <= far
        return None if within or not self.origin.startswith("given") else far

    @property
    def shown(self) -> grids.Back | None:
        """Makes a date, a time or an interval of a released number again."""
        return None if self.line is None else self.line.between


_LOOSE = 1000
"""The least absolute bound that is called loose."""
_GIVE_BOUNDS = (
    "give bounds that you know as contribution_bounds_per_row, the lowest and the highest in parentheses, or ask the data "
    "owner for them."
)


@dataclass(frozen=True)
class AggregateCall:
    """One call of a noisy aggregate, its named arguments, and its block."""

    block: AggregatingBlock
    call: Call
    name: str
    options: dict[str, Any]
    exact: Exact

    @property
    def row(self) -> SqlName:
        """The aggregate's row in the catalogue."""
        return AGGREGATE_OF_NAME[self.call.name]

    @property
    def groups(self) -> int:
        """The number of groups whose noise must cover all of a unit's rows (1 under a cap on all rows)."""
        return 1 if self.exact.budgeted else self.block.per_unit_groups

    def make(
        self,
        kind: str,
        said: str,
        formula: Formula | None = None,
        *,
        part: Callable[[Fraction], Part] | None = None,
        quantile: QuantileRequest | None = None,
        shown: grids.Back | None = None,
        intervals: bool | None = None,
        noise_step: Fraction | None = None,
        rounded: bool = False,
    ) -> Aggregate:
        """Return the aggregate: its SQL type, its sentence, how it is released, and the step of plainly added noise."""
        bars = (formula or part) is not None if intervals is None else intervals
        if self.options.get("report_format") and not bars:
            raise bind_error(
                self.call.node, f"{self.call.name} has no JSON report.", "leave report_format out."
            )
        return Aggregate(
            self.name, self.call, self.options.get("epsilon"), kind, bars, said, formula, quantile, part,
            self.options.get("report_format"), shown, None if shown is not None else noise_step,
            rounded and shown is None,
        )  # fmt: skip

    def propose_auto(self, item: Bounded) -> str:
        """Return EXPLAIN's proposal of AUTO for loose bounds, or nothing.

        AUTO takes a power of two for the bound, and 15 % of epsilon to find it. So it has less noise if values reach at most
        two fifths of the bounds.
        """
        reach = max(map(abs, item.ends))
        moment = item.line is not None and (item.line.between is not None or item.line.unit)
        if item.per_group or not item.typed.type.numeric or reach < _LOOSE or moment:
            return ""
        return (
            f"; if values rarely reach {float(reach * Fraction(2, 5)):.3g}, contribution_bounds_per_row => AUTO finds nearer "
            "bounds and has less noise"
        )

    def source(self, place: int = 0) -> str:
        """Return an argument as SQL."""
        return to_sql(self.call.args[place])

    @property
    def together(self) -> bool:
        """Whether the block has several numbers of rows, which must weigh the capped rows of a unit alike."""
        return self.block.weighs_rows and self.exact.cuts_rows

    def weigh(self, y: str, most: int) -> Weighing | None:
        """Return how a unit's rows weigh in moments of values of size ``most`` (None: each row is a unit): all alike."""
        return self.exact.weighing(y, most, self.together and self.block.weighs_all)

    def require_rows(self) -> int:
        """Return the number of one unit's rows that may count in a group; PrivacyError if it is unbounded."""
        require_rows(self.block.bound, self.block.options, self.call.node)
        return self.exact.rows_per_unit

    def refuse_options(self) -> None:
        """Raise BindError for named arguments other than epsilon."""
        if any(value is not None and name != "epsilon" for name, value in self.options.items()):
            name = "COUNT(DISTINCT ...)" if self.call.distinct else self.call.name
            raise bind_error(self.call.node, f"{name} takes epsilon only.")

    def refuse_group_bounds(self) -> None:
        """Raise BindError for bounds of a unit's own total."""
        if self.options.get("contribution_bounds_per_group") is not None:
            raise bind_error(self.call.node, f"{self.call.name} takes bounds per row only.")

    def refuse_bounds_twice(self) -> None:
        """Raise BindError for bounds both per row and per group."""
        kinds = ("contribution_bounds_per_row", "contribution_bounds_per_group")
        if all(self.options.get(kind) is not None for kind in kinds):
            what = "bounds are given per row and per group."
            raise bind_error(self.call.node, what, "give one of the two.")

    def refuse_distinct(self, instead: str = "") -> None:
        """Raise PrivacyError for DISTINCT: by it, one unit decides whether another's rows count."""
        if self.call.distinct:
            what = f"{self.call.name}(DISTINCT ...) has no bounded sensitivity here."
            shown = ", ".join(map(to_sql, self.call.args))
            raise privacy_error(self.call.node, what, f"write {self.call.name}({shown}){instead}.")

    def argument(self) -> Typed:
        """Return the only argument."""
        self.call.require(1)
        self.refuse_distinct(f", or COUNT(DISTINCT {to_sql(self.call.args[0])})")
        return self.block.expression(self.call.args[0])

    def value(self, sql: str) -> str:
        """Return the column of the exact rows with a value, NULL if the FILTER is not true."""
        return self.exact.value(self.block.filtered(self.call, sql))

    def refuse_moment(self, typed: Typed, place: exp.Expr | None = None) -> None:
        """Raise BindError for an argument, by default the first, that is a moment."""
        refuse_moment(replace(typed, place=self.call.args[0] if place is None else place))

    def require_number(self, typed: Typed, place: exp.Expr | None = None, kinds: Sequence[str] = ()) -> None:
        """Raise BindError for an argument that is no number, nor of one of these other kinds."""
        place, kind = self.call.args[0] if place is None else place, typed.type.kind
        if typed.type.numeric or kind in kinds:
            return
        self.refuse_moment(typed, place)
        shown, name = to_sql(place), self.call.name
        if kind in _BOUND_KINDS and self.options.get("contribution_bounds_per_row") == "AUTO":
            what = f"AUTO finds bounds of numbers, and {shown} is {typed.type.sql}."
            raise bind_error(place, what, advise_bounds(typed))
        hint = self.block.write_counts(shown)
        if self.block.is_unit(place):
            hint = f"write COUNT(DISTINCT {shown}) instead of {to_sql(self.call.node)}: no privacy unit is released."
        elif name in ("MIN", "MAX"):
            first = Select(shown, group=shown, order=f"{shown}{' DESC' if name == 'MAX' else ''}", limit=1)
            whole = self.block.write_select(first)
            hint = "group by it and take the first or the last of the groups: they are noisy."
            hint = hint if whole is None else f"write {whole}: the groups are noisy."
        elif kind == "BOOLEAN" and name == "AVG":
            hint = f"write AVG(({shown})::INT) for the share of true rows, or COUNT_IF({shown}) for their number."
        elif kind == "BOOLEAN":
            hint = f"write {name}(({shown})::INT), or COUNT_IF({shown})."
        elif kind == "TEXT":
            hint = f"write TRY_CAST({shown} AS DOUBLE) for numbers kept as text, or {hint.removeprefix('write ')}"
        raise bind_error(place, f"{name} needs a number, and {shown} is {typed.type.sql}.", hint)

    def bounds(
        self, typed: Typed, place: exp.Expr | None = None, kinds: Sequence[str] = ()
    ) -> tuple[Fraction, Fraction, str]:
        """Return the bounds of an argument and their origin: named first, then derived from the policy.

        Args:
            typed: the argument.
            place: its node; the first argument by default.
            kinds: the kinds other than numbers that it may be of.

        Raises:
            PrivacyError: there are none.
            BindError: not a number, bounds of both kinds, or bounds of another type.
        """
        call, place = self.call, self.call.args[0] if place is None else place
        per_group = self.options.get("contribution_bounds_per_group")
        per_row = self.options.get("contribution_bounds_per_row")
        self.refuse_bounds_twice()
        if per_group is not None and self.exact.bound.row_level:
            per_row, per_group = per_group, None  # a unit is one row here: its aggregate is its value
        self.require_number(typed, place, kinds)
        if per_row == "AUTO":
            what = f"AUTO bounds are for SUM, AVG, VARIANCE, STDDEV and quantiles, not for {call.name}."
            raise privacy_error(call.node, what, advise_bounds(typed))
        for key in ("contribution_bounds_per_row", "contribution_bounds_per_group"):
            if self.options.get(key) is not None:
                _require_kind(typed, call.named[key][0])
        for given, origin in ((per_group, "given per group"), (per_row, "given per row")):
            if given is not None:
                return *given, origin
        if typed.type.kind == "BOOLEAN":
            return Fraction(0), Fraction(1), "FALSE and TRUE"
        if (ends := typed.ends) is not None:
            return *ends, self._origin(typed)
        source, asked = to_sql(place), ", ".join(map(to_sql, call.args))
        hint = _GIVE_BOUNDS
        if self.row.auto and typed.type.numeric:
            found = f"{call.name}({asked}, contribution_bounds_per_row => AUTO)"
            hint = f"write {found} to find them privately, or {hint}"
        what = f"{call.name}({asked}) needs bounds for {source}; the policy declares none."
        raise privacy_error(call.node, what, hint)

    def _origin(self, typed: Typed) -> str:
        if is_surely_within(typed):
            return "from the expression itself"
        public = {r.source.alias_or_name for r in self.exact.bound.relations if not r.private}
        read = {node.table for node in typed.node.find_all(exp.Column)}
        if not read & public:
            return "from the policy"
        return "from the public table" + (" and the policy" if read - public else "")

    def bounded(
        self,
        typed: Typed,
        kinds: Sequence[str] = (),
        multiplied: bool = False,
        on: OnLine = grids.place_on_line,
    ) -> Bounded:
        """Return the argument on a grid chosen from its bounds.

        Args:
            typed: the argument.
            kinds: the kinds other than numbers that it may be of.
            multiplied: whether products of two such values are added, which need a coarser grid.
            on: places the argument and its bounds on a line of numbers.
        """
        low, high, origin = self.bounds(typed, kinds=kinds)
        place = on(typed, low, high)
        if place.between is not None and self.options.get("report_format"):
            what = self.call.name if typed.type.numeric else typed.type.sql
            raise bind_error(self.call.node, f"{what} has no JSON report.")
        grid = grids.choose_grid(place.typed.type, place.low, place.high)
        if multiplied:
            grid = grids.coarsen_for_products(grid, place.low, place.high)
        named = self.options.get("contribution_bounds_per_group") is not None
        y, centred = self.write_steps(place.typed, grid)
        per_group = named and not self.exact.bound.row_level
        number = not per_group and place.between is None and typed.type.numeric
        made = Bounded(place.typed, self.value(y), grid, per_group, origin, place, centred)
        if number and (origin.startswith("given") or not is_surely_within(typed)):
            self.note_clip(made, self.source())
        return made

    def write_steps(self, typed: Typed, grid: grids.Grid) -> tuple[str, bool]:
        """Return the SQL of a value on its grid, and whether it is centred: in DuckDB, if each row is a unit."""
        duckdb = self.block.binder.catalog.engine.lossless
        if duckdb and self.exact.bound.row_level and not self.block.options.get("report_cut"):
            centred = grids.write_centred(typed, grid)
            if centred is not None:
                return centred, True
        return to_sql(grids.write_steps(typed, grid)), False

    def note_clip(self, item: Bounded, source: str) -> None:
        """Record that a column of the rows is clamped to the ends of its grid."""
        grid = item.grid
        self.exact.clip(item.y, (grid.low, grid.high), Fraction(grid.steps), source, item.farthest)

    def say_sensitivity(self, partial: Partial, steps: Fraction | int = 1) -> str:
        """Return EXPLAIN's words on the sensitivity of a total to one unit."""
        shown = Fraction(self.exact.sensitivity(partial)) / Fraction(steps)
        where = "in one group" if self.block.keys else "in all"
        found = ", times the cap on its rows" if self.exact.ceiling is not None and not partial.fixed else ""
        return f"one privacy unit moves this by at most {float(shown):g} {where}{found}{self._say_missing(partial)}"

    def _say_missing(self, partial: Partial) -> str:
        """Return that the cap on a unit's rows may leave out a part of a count or a sum; whether it does is private."""
        if partial.fixed or not self.exact.cuts_rows or self.exact.ceiling is not None or partial.weighing:
            return ""
        if partial.adds is not None:
            return "; the excess of one privacy unit's sum is left out"
        return f"; rows of one privacy unit above {self.exact.rows_in_group:,} are left out"

    def say_weighing(self, weighing: Weighing | None) -> str:
        """Note and return that a cap may make a unit's rows weigh less; whether it does is private."""
        if weighing is None or not self.exact.cuts_rows:
            return ""
        if self.exact.ceiling is not None:
            return "; the rows of a privacy unit with more than the cap weigh less, and count as the cap together"
        rows = self.exact.rows_in_group
        where = "in all" if rows == self.exact.caps.total else "in one group"
        many = f"{rows} row{'s' if rows != 1 else ''} {where}"
        unit = self.exact.bound.unit_name
        note = f"one {unit} counts as at most {many}; if there are more, each weighs less"
        if note not in self.block.binder.notes:
            self.block.binder.notes.append(note)
        return f"; the rows of a privacy unit with more than {many} weigh less, and count as {rows} together"


def is_surely_within(typed: Typed) -> bool:
    """Return whether an expression is within its bounds for all values of columns, as ``CASE WHEN x > 60 THEN 1 ELSE 0 END``."""
    return typed.type.kind == "BOOLEAN" or not any(_find_values(typed.node))


def _find_values(node: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns whose own value an expression may have, or compute with."""
    if isinstance(node, exp.Column):
        yield node
    elif isinstance(node, exp.If | exp.Case):
        values = [node.args.get("true"), node.args.get("false"), node.args.get("default")]
        values += [branch.args.get("true") for branch in node.args.get("ifs") or []]
        for value in filter(None, values):
            yield from _find_values(value)
    elif not isinstance(node, exp.Predicate | exp.Connector | exp.Not):
        for child in node.iter_expressions():
            yield from _find_values(child)


def advise_bounds(typed: Typed) -> str:
    """Return the hint for AUTO bounds that can't be found."""
    if typed.ends is not None:
        return "leave it out: bounds are known."
    return _GIVE_BOUNDS


def choose_sum_type(placed: Type, own: Type, grid: grids.Grid) -> str:
    """Return the SQL type of a noisy sum: of numbers ``placed`` on a grid, whose column has its ``own`` type."""
    if placed.kind == "INTEGER" and grid.steps == 1 and own.sql != "UHUGEINT":
        return "HUGEINT"
    return own.find_sum_type(max(abs(grid.low), abs(grid.high)) / Fraction(grid.steps))


_BOUND_KINDS: dict[str, tuple[str, ...]] = {"TIME": ("TIME",), "INTERVAL": ("INTERVAL", "number")}
_BOUND_KINDS |= dict.fromkeys(("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP"))


def _require_kind(typed: Typed, node: exp.Expr) -> None:
    """Raise BindError for named bounds of a kind that can't be compared with the argument."""
    hint = "write bounds of its type: (DATE '2020-01-01', DATE '2020-12-31'), or (0, 100) for numbers."
    for item in node.expressions:
        moment = moment_of(item)
        kind = "number" if moment is None else moment[0]
        if kind not in _BOUND_KINDS.get(typed.type.kind, ("number",)):
            what = f"the bounds of a {typed.type.sql} can't be a {kind}."
            raise bind_error(item, what, hint, around=node)


Binding = Callable[[AggregateCall], Aggregate]


class BindingsByName(dict[str, Binding]):
    """The binders of noisy aggregates, by name."""

    def of_form(self, form: str) -> Callable[[Binding], Binding]:
        """Register the binder of a form of the catalogue."""

        def register(function: Binding) -> Binding:
            self.update((row.name, function) for row in AGGREGATES if row.form == form and "DP" in row.modes)
            return function

        return register
