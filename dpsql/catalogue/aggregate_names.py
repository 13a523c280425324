"""The catalogue of aggregates, mechanisms and modes.

To add an aggregate, add a row here, and the code that binds it in the module of its mode: a test compares the two.
"""

from __future__ import annotations

import difflib
from fractions import Fraction
from typing import Literal

from dpsql.late_dataclass import dataclass

_Mode = Literal["DP", "CHOICE", "PTR", "STABLE", "SUBSAMPLE"]
"""The uses of a name: a noisy aggregate, a choice among candidates, or the modes of that name."""


@dataclass(frozen=True)
class SqlName:
    """An aggregate or a mechanism of the language.

    Args:
        name: the binder's name.
        modes: the modes that allow it.
        arguments: the least and the greatest number of values.
        classes: its sqlglot classes; other names are parsed into calls by name.
        old: GoogleSQL's spelling under WITH ANONYMIZATION, which is accepted but not offered.
        clamped: the target of CLAMPED BETWEEN, a row's value or a privacy unit's own aggregate in a group.
        form: the form that its binder shares with others.
        exact: DuckDB's precise name, if it is another.
        formula: the exact value over a count ``n``, means ``y`` and ``x``, and sums of products about the means.
        spark: Spark's expression of one pass ``s`` over the values in their order: number, sum, means, squares about them.
        within: whether its value is within the bounds of its column.
        chosen: whether its value is a row's own.
        ties: whether DuckDB chooses the first of several equal rows.
        unordered: whether its result is independent of the order of rows.
        rank: its place among the values, from 0 to 1.
        moving: whether a window may compute it over its frame.
        auto: whether it can find its bounds privately.
    """

    name: str
    modes: tuple[_Mode, ...]
    arguments: tuple[int, int] = (1, 1)
    classes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    clamped: Literal["row", "group"] = "row"
    help: str = ""
    example: str = ""
    form: str = ""
    exact: str = ""
    formula: str = ""
    spark: str = ""
    within: bool = False
    chosen: bool = False
    ties: bool = False
    unordered: bool = False
    rank: Fraction | None = None
    moving: bool = False
    auto: bool = False

    @property
    def spelled(self) -> tuple[str, ...]:
        """Return its names, the old ones included."""
        return (self.name, *self.aliases, *self.old)

    @property
    def kind(self) -> str:
        """Return DuckDB's precise name, in small letters."""
        return (self.exact or self.name).lower()


MODES: dict[str, str] = {
    "DP": "DP",
    "DIFFERENTIAL_PRIVACY": "DP",
    "PTR": "PTR",
    "STABLE": "STABLE",
    "SUBSAMPLE": "SUBSAMPLE",
    "ANONYMIZATION": "DP",
}
"""The modes of SELECT WITH by each spelling, besides the names of declared thresholds."""
OWN_MODES = tuple(dict.fromkeys(MODES.values()))
"""The modes by their short names."""
OFFERED_MODES = tuple(name for name in MODES if name != "ANONYMIZATION")
"""The modes named in hints: all but GoogleSQL's old name for DP."""

_NAN = "CAST('NaN' AS DOUBLE)"
_SAMPLE = "CASE WHEN {{n}} > 1 THEN {0} / ({{n}} - 1) END"
# Sums of squares are never below zero; the lock knows it of ABS.
_SIZE = "SQRT(ABS({xx})) * SQRT(ABS({yy}))"
_CORR = (
    f"CASE WHEN {{xx}} = 0 OR {{yy}} = 0 THEN {_NAN} WHEN ABS({{xy}}) > {_SIZE} THEN CAST(SIGN({{xy}}) AS DOUBLE) "
    f"ELSE {{xy}} / ({_SIZE}) END"
)
_R2 = "CASE WHEN {xx} = 0 THEN NULL WHEN {yy} = 0 THEN 1.0 ELSE {xy} / {xx} * ({xy} / {yy}) END"
# In Spark's pass, x is the first argument. Without spread: 0 / 0, or no line, as in DuckDB.
_SPARK_CORR = (
    "CASE WHEN sqrt(s.xx) * sqrt(s.yy) = 0D THEN double('NaN') ELSE s.xy / (sqrt(s.xx) * sqrt(s.yy)) END"
)
_SPARK_R2 = (
    "CASE WHEN s.yy = 0D THEN NULL ELSE CASE WHEN s.xx = 0D THEN 1D ELSE s.xy * s.xy / (s.xx * s.yy) END END"
)
_SPARK_SLOPE = "CASE WHEN s.yy = 0D THEN double('NaN') ELSE s.xy / s.yy END"
_SPARK_INTERCEPT = "CASE WHEN s.yy = 0D THEN NULL ELSE s.mx - s.xy / s.yy * s.my END"
MODE_HELP = {
    "DP": "noisy aggregates, and choices among public candidates; the default mode",
    "DIFFERENTIAL_PRIVACY": "the long spelling of DP",
    "PTR": "propose, test, release: a precise value if the data are stable, else NULL",
    "STABLE": "values as near as the data allow, without delta and without NULL",
    "SUBSAMPLE": "any query, run on blocks of people, whose answers are combined privately",
}
"""The answers of each mode of SELECT WITH, in one line."""

_BOTH: tuple[_Mode, ...] = ("DP", "SUBSAMPLE")
_TESTED: tuple[_Mode, ...] = ("DP", "PTR", "SUBSAMPLE")
_BLOCK: tuple[_Mode, ...] = ("SUBSAMPLE",)
_ORDERED: tuple[_Mode, ...] = ("DP", "PTR", "STABLE", "SUBSAMPLE")
_SPREAD = "a noisy spread"
_NEAR = "a value near the quantile"
_EXTREME = "a value near the end of the range"
_PAIRS = "a noisy measure of how two columns move together"
_BINS = "noisy counts of values or bins, in one map"
_STABLE = "a precise value, when the data are stable"

AGGREGATES: tuple[SqlName, ...] = (
    SqlName("COUNT", _BOTH, (0, 1), ("Count", "ApproxDistinct"), ("APPROX_COUNT_DISTINCT",), old=("ANON_COUNT",),
            clamped="group", help="a noisy number of rows or of people", example="COUNT(*), COUNT(DISTINCT person_id)",
            form="count", moving=True),
    SqlName("COUNT_IF", _BOTH, classes=("CountIf",), help="a noisy number of rows that meet a condition",
            example="COUNT_IF(age > 65)", form="condition"),
    SqlName("SUM", _BOTH, classes=("Sum",), old=("ANON_SUM",), clamped="group", help="a noisy sum, each value clamped to bounds",
            example="SUM(x, contribution_bounds_per_row => (0, 10))", form="sum", spark="s.sum", moving=True, auto=True),
    SqlName("AVG", _TESTED, classes=("Avg",), aliases=("MEAN",), old=("ANON_AVG",), clamped="group", help="a noisy mean",
            example="AVG(x, epsilon => 0.1)", form="mean", spark="s.sum / s.n", within=True, moving=True, auto=True),
    SqlName("GEOMEAN", ("DP",), aliases=("GEOMETRIC_MEAN",), help="a noisy geometric mean of values above 0",
            example="GEOMEAN(x, contribution_bounds_per_row => (1, 100))", form="geometric mean"),
    SqlName("STDDEV", _TESTED, classes=("Stddev",), help=_SPREAD, example="STDDEV(x)", form="spread", exact="STDDEV_SAMP",
            formula=f"SQRT(ABS({_SAMPLE.format('{yy}')}))", spark="sqrt(s.xx / (s.n - 1D))", auto=True),
    SqlName("STDDEV_SAMP", _TESTED, classes=("StddevSamp",), help=_SPREAD, form="spread",
            formula=f"SQRT(ABS({_SAMPLE.format('{yy}')}))", spark="sqrt(s.xx / (s.n - 1D))", auto=True),
    SqlName("STDDEV_POP", _TESTED, classes=("StddevPop",), old=("ANON_STDDEV_POP",), help=_SPREAD, form="spread",
            formula="SQRT(ABS({yy} / {n}))", spark="sqrt(s.xx / s.n)", auto=True),
    SqlName("VARIANCE", _TESTED, classes=("Variance",), aliases=("VAR_SAMP",), help=_SPREAD, form="spread", exact="VAR_SAMP",
            formula=_SAMPLE.format("{yy}"), spark="s.xx / (s.n - 1D)", auto=True),
    SqlName("VAR_POP", _TESTED, classes=("VariancePop",), old=("ANON_VAR_POP",), help=_SPREAD, form="spread",
            formula="{yy} / {n}", spark="s.xx / s.n", auto=True),
    SqlName("MEDIAN", _ORDERED, classes=("Median",), help=_NEAR, example="QUANTILE_CONT(x, 0.9)", form="quantile",
            within=True, unordered=True, rank=Fraction(1, 2), auto=True),
    SqlName("QUANTILE_CONT", _ORDERED, (2, 2), ("PercentileCont", "ApproxQuantile"), ("PERCENTILE_CONT", "APPROX_QUANTILE"),
            old=("ANON_PERCENTILE_CONT",), help=_NEAR, form="quantile", within=True, unordered=True, auto=True),
    SqlName("QUANTILE_DISC", _ORDERED, (2, 2), ("PercentileDisc", "Quantile"), ("PERCENTILE_DISC", "QUANTILE"), help=_NEAR,
            form="quantile", within=True, unordered=True, auto=True),
    SqlName("APPROX_QUANTILES", ("DP",), (2, 2), ("ApproxQuantiles",), old=("ANON_QUANTILES",),
            help="values near the quantiles that cut the rows into equal parts, in one list",
            example="APPROX_QUANTILES(x, 4)", form="quantile", auto=True),
    SqlName("MIN", _BOTH, classes=("Min",), help=_EXTREME, example="MIN(x)", form="quantile", within=True, chosen=True,
            unordered=True, rank=Fraction(0), moving=True, auto=True),
    SqlName("MAX", _BOTH, classes=("Max",), help=_EXTREME, form="quantile", within=True, chosen=True, unordered=True,
            rank=Fraction(1), moving=True, auto=True),
    SqlName("HISTOGRAM", ("DP",), (1, 2), help=_BINS, example="HISTOGRAM(city)", form="histogram"),
    SqlName("HISTOGRAM_EXACT", ("DP",), (1, 2), help=_BINS, form="histogram"),
    SqlName("CORR", _BOTH, (2, 2), ("Corr",), help=_PAIRS, example="CORR(y, x)", form="pair", formula=_CORR,
            spark=_SPARK_CORR),
    SqlName("COVAR_POP", _BOTH, (2, 2), ("CovarPop",), help=_PAIRS, form="pair", formula="{xy} / {n}", spark="s.xy / s.n"),
    SqlName("COVAR_SAMP", _BOTH, (2, 2), ("CovarSamp",), help=_PAIRS, form="pair", formula=_SAMPLE.format("{xy}"),
            spark="s.xy / (s.n - 1D)"),
    SqlName("REGR_SLOPE", _BOTH, (2, 2), ("RegrSlope",), help=_PAIRS, form="pair",
            formula=f"CASE WHEN {{xx}} = 0 THEN {_NAN} ELSE {{xy}} / {{xx}} END", spark=_SPARK_SLOPE),
    SqlName("REGR_INTERCEPT", _BOTH, (2, 2), ("RegrIntercept",), help=_PAIRS, form="pair",
            formula="CASE WHEN {xx} <> 0 THEN {y} - {xy} / {xx} * {x} END", spark=_SPARK_INTERCEPT),
    SqlName("REGR_R2", _BOTH, (2, 2), ("RegrR2",), help=_PAIRS, form="pair", formula=_R2, spark=_SPARK_R2),
    SqlName("REGR_COUNT", _BLOCK, (2, 2), ("RegrCount",), unordered=True),
    SqlName("REGR_AVGX", _BLOCK, (2, 2), ("RegrAvgx",), formula="{x}", spark="s.other / s.n"),
    SqlName("REGR_AVGY", _BLOCK, (2, 2), ("RegrAvgy",), formula="{y}", spark="s.sum / s.n"),
    SqlName("ABOVE_THRESHOLD", ("CHOICE",), (2, 2), aliases=("ABOVETHRESHOLD",),
            help="the first candidates above a threshold; without OVER: true or false",
            example="ABOVE_THRESHOLD(COUNT(*), 100, epsilon => 0.1)"),
    SqlName("EXPMECH", ("CHOICE",), help="the candidate with (nearly) the best utility",
            example="EXPMECH(COUNT(*), epsilon => 1) OVER c"),
    SqlName("IQR", ("PTR", "STABLE"), help=_STABLE, example="SELECT WITH PTR IQR(age) FROM t", form="quantile"),
    SqlName("TRIMMED_MEAN", ("STABLE",), (2, 2), help="the mean without a part p of the rows at each end, or one close to it",
            example="SELECT WITH STABLE TRIMMED_MEAN(x, 0.1) FROM t"),
    SqlName("MODE", _ORDERED, classes=("Mode",), help="one of the most frequent values", example="MODE(ward)", form="mode",
            within=True, chosen=True, ties=True),
    SqlName("ARG_MAX", ("PTR", "SUBSAMPLE"), (2, 2), ("ArgMax",), help=_STABLE, within=True, chosen=True, ties=True),
    SqlName("ARG_MIN", _BLOCK, (2, 2), ("ArgMin",), within=True, chosen=True, ties=True),
)  # fmt: skip
"""Aggregates and mechanisms."""


AGGREGATE_OF_NAME: dict[str, SqlName] = {row.name: row for row in AGGREGATES}
MECHANISMS: frozenset[str] = frozenset(row.name for row in AGGREGATES if "CHOICE" in row.modes)
"""Mechanisms that choose among candidates."""
PRIVATE_CALLS: frozenset[str] = frozenset(
    row.name for row in AGGREGATES if "DP" in row.modes or not row.classes
)
"""Names that make a call private whatever its sqlglot class."""
WORDS: tuple[str, ...] = tuple(
    name for row in AGGREGATES if row.help for name in (row.name, *(row.aliases if "DP" in row.modes else ()))
)
"""Names that editors offer and highlight."""
ALIASES: dict[str, str] = {alias: row.name for row in AGGREGATES for alias in (*row.aliases, *row.old)}
CLAMPED_PER_GROUP: frozenset[str] = frozenset(
    name for row in AGGREGATES if row.clamped == "group" for name in row.spelled
)
"""Names whose CLAMPED BETWEEN clamps a privacy unit's own aggregate in a group."""
ONE_ARGUMENT: frozenset[str] = frozenset(
    name for row in AGGREGATES if "DP" in row.modes and row.arguments[1] == 1 for name in row.spelled
)
"""Noisy aggregates of one value: anything after a comma must be a named argument."""


def names_of(mode: _Mode) -> frozenset[str]:
    """Return the aggregates of a mode."""
    return frozenset(row.name for row in AGGREGATES if mode in row.modes)


def kinds_of_form(form: str) -> tuple[str, ...]:
    """Return DuckDB's precise names of a form, in small letters."""
    return tuple(dict.fromkeys(row.kind for row in AGGREGATES if row.form == form))


def mode_of_aggregate(name: str) -> str:
    """Return an aggregate's main mode, for hints."""
    row = AGGREGATE_OF_NAME.get(ALIASES.get(name.upper(), name.upper()))
    return next((mode for mode in (row.modes if row is not None else ()) if mode in MODES), "DP")


FORMULAS: dict[str, str] = {row.exact or row.name: row.formula for row in AGGREGATES if row.formula}
"""The formulas of moments, by DuckDB's precise name; without a spread they give DuckDB's results."""
NO_NOISY_FORM = ("PRODUCT", "ENTROPY", "MAD", "SUM_NO_OVERFLOW", "QUANTILE")
"""Further DuckDB aggregates, which only SUBSAMPLE accepts."""
NO_NOISY_NODES: dict[str, str] = {
    "ArrayAgg": "LIST",
    "GroupConcat": "STRING_AGG",
    "LogicalOr": "BOOL_OR",
    "LogicalAnd": "BOOL_AND",
    "BitwiseAndAgg": "BIT_AND",
    "BitwiseOrAgg": "BIT_OR",
    "BitwiseXorAgg": "BIT_XOR",
    "ArgMax": "ARG_MAX",
    "ArgMin": "ARG_MIN",
}
"""Names of aggregates without a noisy form, by sqlglot's class."""
ELSEWHERE = "write an aggregate that has one, such as a sum, a mean or a quantile."
COUNTED = "group by its values, and count the rows of each."
CHOSEN = "group by its values too, and count the rows of each."
_EXTREME_ROW = "the row of an extreme is one person's: group by it, and order the groups by a mean."
INSTEAD_OF: dict[str, str] = {
    **dict.fromkeys(
        ("LIST", "STRING_AGG", "MAP_AGG", "JSON_GROUP_ARRAY", "BITSTRING_AGG", "APPROX_TOP_K"), COUNTED
    ),
    **dict.fromkeys(("FIRST", "LAST", "ANY_VALUE", "ARBITRARY"), CHOSEN),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _EXTREME_ROW),
    **dict.fromkeys(("FSUM", "KAHAN_SUM", "SUMKAHAN"), "write SUM({x}): it is exact before the noise."),
    **dict.fromkeys(("GROUPING", "GROUPING_ID"), "without ROLLUP, CUBE or GROUPING SETS it is 0 everywhere."),
    "BOOL_OR": "write COUNT_IF({x}) > 0: the noisy count may be compared freely.",
    "BOOL_AND": "write COUNT_IF(NOT {x}) <= 0: the noisy count may be compared freely.",
    "RESERVOIR_QUANTILE": "write QUANTILE_CONT({x}, 0.5).",
    "FAVG": "write AVG({x}).",
    "IQR": "write SELECT WITH STABLE IQR({x}), or QUANTILE_CONT({x}, 0.75) - QUANTILE_CONT({x}, 0.25).",
    "TRIMMED_MEAN": "write SELECT WITH STABLE TRIMMED_MEAN({x}, 0.1).",
}
"""Hints for aggregates without a noisy form, by name, with the argument as ``x``."""

_BLOCK_CALLS = """
histogram entropy mad product sem geomean fsum favg kahan_sum list_sort list_reverse_sort list_distinct list_unique
list_sum list_avg list_min list_max list_median list_mode kurtosis_pop regr_count regr_avgx regr_avgy any_value list max_by
min_by arg_max arg_min argmax argmin mean count_if percentile_cont percentile_disc quantile_cont quantile_disc
approx_quantile
"""
BLOCK_CALLS: frozenset[str] = frozenset(_BLOCK_CALLS.split())
"""Aggregates and functions of lists that a block's query may call by name."""
_EXACT = """
any_value arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin array_agg avg bit_and bit_or bit_xor
bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean
geometric_mean group_concat histogram kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median min
min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy sem skewness stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop
var_samp variance approx_count_distinct approx_quantile
"""
EXACT_AGGREGATES: frozenset[str] = frozenset(_EXACT.split())
"""Aggregates that depend on their rows alone, in small letters, for exact queries."""


def nearest_aggregate(name: str) -> str | None:
    """Return the aggregate probably meant by an unknown name; None if none is similar."""
    near = difflib.get_close_matches(name.upper(), [*WORDS, *ALIASES], n=1, cutoff=0.8)
    return near[0] if near else None
