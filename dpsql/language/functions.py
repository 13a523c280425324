"""The catalogue of SQL names: the modes, and one row for every aggregate, mechanism and row function.

The parser reads the classes and aliases, the binder the modes and arguments; completion, the guide, the lexer,
JupyterLab's keywords and REFERENCE.md read the names, help and examples. To add a name, add a row here, and the code
that binds it in the module of its mode: a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from dpsql.catalogue.row_names import REFUSED_NODES, ROW_NAMES, RowName

_Mode = Literal["DP", "CHOICE", "PTR", "STABLE", "SUBSAMPLE"]
"""The uses of a name: a noisy aggregate, a choice among candidates, or the modes of that name."""


@dataclass(frozen=True)
class SqlName:
    """A function of the language.

    Args:
        name: the binder's name.
        modes: the modes that allow it.
        arguments: the least and the greatest number of values.
        classes: its sqlglot classes; other names are parsed into calls by name.
        old: GoogleSQL's spelling under WITH ANONYMIZATION, which is accepted but not offered.
        clamped: what CLAMPED BETWEEN clamps, a row's value or a privacy unit's own aggregate in a group.
    """

    name: str
    modes: tuple[_Mode, ...]
    arguments: tuple[int, int] = (1, 1)
    classes: tuple[type[exp.Expr], ...] = ()
    aliases: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    clamped: Literal["row", "group"] = "row"
    help: str = ""
    example: str = ""


MODES: dict[str, str] = {
    "DP": "DP", "DIFFERENTIAL_PRIVACY": "DP", "PTR": "PTR", "STABLE": "STABLE", "SUBSAMPLE": "SUBSAMPLE",
    "ANONYMIZATION": "DP",
}  # fmt: skip
"""The modes of SELECT WITH by each spelling, besides the names of declared thresholds."""
OFFERED_MODES = tuple(name for name in MODES if name != "ANONYMIZATION")
"""The modes named in hints: all but GoogleSQL's old name for DP."""

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
    SqlName("COUNT", _BOTH, (0, 1), (exp.Count, exp.ApproxDistinct), ("APPROX_COUNT_DISTINCT",), old=("ANON_COUNT",),
            clamped="group", help="a noisy number of rows or of people", example="COUNT(*), COUNT(DISTINCT person_id)"),
    SqlName("COUNT_IF", _BOTH, classes=(exp.CountIf,), help="a noisy number of rows that meet a condition",
            example="COUNT_IF(age > 65)"),
    SqlName("SUM", _BOTH, classes=(exp.Sum,), old=("ANON_SUM",), clamped="group",
            help="a noisy sum, each value held to bounds",
            example="SUM(x, contribution_bounds_per_row => (0, 10))"),
    SqlName("AVG", _TESTED, classes=(exp.Avg,), aliases=("MEAN",), old=("ANON_AVG",), clamped="group",
            help="a noisy mean", example="AVG(x, epsilon => 0.1)"),
    SqlName("GEOMEAN", ("DP",), aliases=("GEOMETRIC_MEAN",), help="a noisy geometric mean of values above 0",
            example="GEOMEAN(x, contribution_bounds_per_row => (1, 100))"),
    SqlName("STDDEV", _TESTED, classes=(exp.Stddev,), help=_SPREAD, example="STDDEV(x)"),
    SqlName("STDDEV_SAMP", _TESTED, classes=(exp.StddevSamp,), help=_SPREAD),
    SqlName("STDDEV_POP", _TESTED, classes=(exp.StddevPop,), old=("ANON_STDDEV_POP",), help=_SPREAD),
    SqlName("VARIANCE", _TESTED, classes=(exp.Variance,), aliases=("VAR_SAMP",), help=_SPREAD),
    SqlName("VAR_POP", _TESTED, classes=(exp.VariancePop,), old=("ANON_VAR_POP",), help=_SPREAD),
    SqlName("MEDIAN", _ORDERED, classes=(exp.Median,), help=_NEAR, example="QUANTILE_CONT(x, 0.9)"),
    SqlName("QUANTILE_CONT", _ORDERED, (2, 2), (exp.PercentileCont, exp.ApproxQuantile),
            ("PERCENTILE_CONT", "APPROX_QUANTILE"), old=("ANON_PERCENTILE_CONT",), help=_NEAR),
    SqlName("QUANTILE_DISC", _ORDERED, (2, 2), (exp.PercentileDisc, exp.Quantile),
            ("PERCENTILE_DISC", "QUANTILE"), help=_NEAR),
    SqlName("APPROX_QUANTILES", ("DP",), (2, 2), (exp.ApproxQuantiles,), old=("ANON_QUANTILES",),
            help="values near the quantiles that cut the rows into equal parts, in one list", example="APPROX_QUANTILES(x, 4)"),
    SqlName("MIN", _BOTH, classes=(exp.Min,), help=_EXTREME, example="MIN(x)"),
    SqlName("MAX", _BOTH, classes=(exp.Max,), help=_EXTREME),
    SqlName("HISTOGRAM", ("DP",), (1, 2), help=_BINS, example="HISTOGRAM(city)"),
    SqlName("HISTOGRAM_EXACT", ("DP",), (1, 2), help=_BINS),
    SqlName("CORR", _BOTH, (2, 2), (exp.Corr,), help=_PAIRS, example="CORR(y, x)"),
    SqlName("COVAR_POP", _BOTH, (2, 2), (exp.CovarPop,), help=_PAIRS),
    SqlName("COVAR_SAMP", _BOTH, (2, 2), (exp.CovarSamp,), help=_PAIRS),
    SqlName("REGR_SLOPE", _BOTH, (2, 2), (exp.RegrSlope,), help=_PAIRS),
    SqlName("REGR_INTERCEPT", _BOTH, (2, 2), (exp.RegrIntercept,), help=_PAIRS),
    SqlName("REGR_R2", _BOTH, (2, 2), (exp.RegrR2,), help=_PAIRS),
    SqlName("REGR_COUNT", _BLOCK, (2, 2), (exp.RegrCount,)),
    SqlName("REGR_AVGX", _BLOCK, (2, 2), (exp.RegrAvgx,)),
    SqlName("REGR_AVGY", _BLOCK, (2, 2), (exp.RegrAvgy,)),
    SqlName("ABOVE_THRESHOLD", ("CHOICE",), (2, 2), aliases=("ABOVETHRESHOLD",),
            help="the first candidates above a threshold; without OVER: true or false",
            example="ABOVE_THRESHOLD(COUNT(*), 100, epsilon => 0.1)"),
    SqlName("EXPMECH", ("CHOICE",), help="the candidate with (nearly) the best utility",
            example="EXPMECH(COUNT(*), epsilon => 1) OVER c"),
    SqlName("IQR", ("PTR", "STABLE"), help=_STABLE, example="SELECT WITH PTR IQR(age) FROM t"),
    SqlName("TRIMMED_MEAN", ("STABLE",), (2, 2), help="the mean without a part p of the rows at each end, or one close to it",
            example="SELECT WITH STABLE TRIMMED_MEAN(x, 0.1) FROM t"),
    SqlName("MODE", _ORDERED, classes=(exp.Mode,), help="one of the most frequent values",
            example="MODE(ward)"),
    SqlName("ARG_MAX", ("PTR", "SUBSAMPLE"), (2, 2), (exp.ArgMax,), help=_STABLE),
    SqlName("ARG_MIN", _BLOCK, (2, 2), (exp.ArgMin,)),
)  # fmt: skip
"""Aggregates and mechanisms."""


ROW_OF_CLASS: dict[type[exp.Expr], RowName] = {getattr(exp, row.node): row for row in ROW_NAMES if row.node}
REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    getattr(exp, node): name for node, name in REFUSED_NODES.items()
}
"""DuckDB's names of some refused calls."""

NO_NOISY_FORM = ("PRODUCT", "ENTROPY", "MAD", "SUM_NO_OVERFLOW", "QUANTILE")
"""Further DuckDB aggregates, which only SUBSAMPLE accepts."""
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
    name for row in AGGREGATES if row.clamped == "group" for name in (row.name, *row.aliases, *row.old)
)
"""Names whose CLAMPED BETWEEN clamps a privacy unit's own aggregate in a group."""
NAME_OF_CLASS: dict[type[exp.Expr], SqlName] = {kind: row for row in AGGREGATES for kind in row.classes}
ONE_ARGUMENT: frozenset[str] = frozenset(
    name
    for row in AGGREGATES
    if "DP" in row.modes and row.arguments[1] == 1
    for name in (row.name, *row.aliases, *row.old)
)
"""Noisy aggregates of one value: anything after a comma must be a named argument."""


def names_of(mode: _Mode) -> frozenset[str]:
    """Return the aggregates of a mode."""
    return frozenset(row.name for row in AGGREGATES if mode in row.modes)


def mode_of_aggregate(name: str) -> str:
    """Return an aggregate's main mode, for hints."""
    row = AGGREGATE_OF_NAME.get(ALIASES.get(name.upper(), name.upper()))
    return next((mode for mode in (row.modes if row is not None else ()) if mode in MODES), "DP")
