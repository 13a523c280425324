"""The catalogue of options and named arguments: the statements that take each, the reader of its value, and its help.

To add an option, add a row here, and the code that obeys it; its reader is in :mod:`dpsql.language.options`, or beside
that code.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.late_dataclass import dataclass

_TRUTH = ("TRUE", "FALSE")
INTERVALS = ("columns", "off")
"""The values of the setting ``intervals``: whether the ends of intervals are columns of an answer."""
_SHOW_WORDS = "BUDGET LEDGER POLICY TABLES VALUES TRADEOFF GROUPS ACCOUNTANTS RELEASES"
SHOW_WORDS = tuple(_SHOW_WORDS.split())
"""The relations that SHOW displays."""


@dataclass(frozen=True)
class OptionName:
    """An option, written ``OPTIONS (name = value)``, or a named argument, written ``name => value`` in a call.

    Args:
        takers: the modes and statements, or the calls, that take it.
        reads: the name of the reader of its value.
        help: one line; empty in further rows of a name, for takers that read it otherwise.
        values: the words that it takes, as completion shows them: in quotes if they are written in small letters.
        null: whether GoogleSQL allows NULL, which means unset.
    """

    name: str
    takers: tuple[str, ...]
    reads: str
    help: str = ""
    values: tuple[str, ...] = ()
    null: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that it takes, without quotes."""
        return tuple(value.strip("'") for value in self.values)


COMBINERS = ("mean", "median", "trimmed_mean", "winsorized_mean", "noisy_mode", "stable_mode", "noisy_votes")
"""The ways to combine the results of blocks."""
NUMERIC_COMBINERS = COMBINERS[:4]
"""Combiners of numbers."""

_DP, _STABLE, _BLOCKS, _TABLE = ("DP",), ("STABLE",), ("SUBSAMPLE",), ("CREATE SYNTHETIC TABLE",)
_DECLARE, _STREAM, _PROBE, _QUESTION = ("DECLARE",), ("DECLARE STABLE",), ("PROBE",), ("QUESTION",)
_TESTED = ("PTR", "STABLE")
_CAPPED = (*_DP, *_TESTED)
_PRICED = ("DP", "PTR", "SUBSAMPLE", "CREATE SYNTHETIC TABLE", "DECLARE", "DECLARE STABLE")

OPTION_NAMES: tuple[OptionName, ...] = (
    OptionName("epsilon", (*_PRICED, *_STABLE), "epsilon", "the block's whole epsilon"),
    OptionName("mu", (*_PRICED, *_STABLE), "mu",
               "the block's whole mu instead of epsilon: Gaussian noise of exactly this mu (gdp, zcdp, rdp)"),
    OptionName("rho", (*_PRICED, *_STABLE), "rho",
               "the block's whole rho instead of epsilon: Gaussian noise of exactly this rho (gdp, zcdp, rdp)"),
    OptionName("delta", _PRICED, "delta", "the block's whole delta"),
    OptionName("privacy_unit_column", (*_CAPPED, *_BLOCKS, *_TABLE, *_QUESTION), "word", "restates the policy's privacy unit"),
    OptionName("max_groups_contributed", _CAPPED, "cap", "the most groups of one privacy unit, or AUTO to find a cap privately",
               ("AUTO",), null=True),
    OptionName("max_rows_contributed", _CAPPED, "cap",
               "the most rows of one privacy unit in all, or AUTO to find a cap privately", ("AUTO",), null=True),
    OptionName("max_rows_per_group", _CAPPED, "cap",
               "the most rows of one privacy unit in one group, or AUTO to find a cap privately", ("AUTO",), null=True),
    OptionName("max_groups_contributed", _TABLE, "whole"),
    OptionName("max_rows_contributed", (*_TABLE, *_PROBE), "whole"),
    OptionName("max_rows_per_group", _TABLE, "whole"),
    OptionName("group_selection_strategy", _DP, "one of", "LAPLACE_THRESHOLD, OPTIMAL or PUBLIC_GROUPS",
               ("OPTIMAL", "LAPLACE_THRESHOLD", "PUBLIC_GROUPS")),
    OptionName("min_privacy_units_per_group", _DP, "whole", "a threshold before groups are selected", null=True),
    OptionName("group_selection_epsilon", _DP, "epsilon", "the share of epsilon for choosing private groups"),
    OptionName("noise", (*_DP, *_TABLE), "one of",
               "LAPLACE, GAUSSIAN (one calibration for all numbers) or AUTO, which has the smaller error at equal charge",
               ("LAPLACE", "GAUSSIAN", "AUTO")),
    OptionName("noise", _DECLARE, "one of", values=("LAPLACE", "GAUSSIAN")),
    OptionName("confidence", (*_CAPPED, *_BLOCKS), "number", "level of the intervals"),
    OptionName("error", _DP, "positive", "counts, sums and means with intervals this narrow, charged for the epsilon used"),
    OptionName("report_cut", _DP, "truth", "TRUE: notes report the effect of caps and bounds, for a tenth of the budget", _TRUTH),
    OptionName("consistent", _DP, "consistent", "TRUE: cells of GROUPING SETS are made to add up", (*_TRUTH, "NONNEGATIVE")),
    OptionName("strategy", _DP, "one of",
               "the way to measure numbers of one statement: AUTO, EVEN, MARGINALS, TREE or SQUARE_ROOT",
               ("AUTO", "EVEN", "MARGINALS", "TREE", "SQUARE_ROOT")),
    OptionName("blocks", (*_BLOCKS, *_STREAM), "whole", "the number of blocks of people"),
    OptionName("combine", _BLOCKS, "one of", "the way to combine the blocks' results: mean, median, winsorized_mean, votes",
               tuple(f"'{word}'" for word in COMBINERS)),
    OptionName("bounds", _BLOCKS, "bounds", "(low, high): the range of a block's result"),
    OptionName("trim", _BLOCKS, "positive", "the share of results cut off at each end"),
    OptionName("sampling", _BLOCKS, "one of", "the way to draw blocks: partition, rounds or bernoulli",
               ("'partition'", "'rounds'", "'bernoulli'")),
    OptionName("rounds", _BLOCKS, "whole", "the number of partitions of rounds"),
    OptionName("candidates", _BLOCKS, "results", "the results that blocks may vote for"),
    OptionName("units", _BLOCKS, "whole", "the number of privacy units, if it is public"),
    OptionName("most", _BLOCKS, "whole", "the most items that one block may vote for"),
    OptionName("top", _BLOCKS, "whole", "the number of items that win"),
    OptionName("max_hits", _DECLARE, "whole", "DECLARE: the number of hits after which it closes"),
    OptionName("answer", _DECLARE, "truth", "DECLARE: TRUE for a fresh noisy value of each hit, from a share of its own", _TRUTH),
    OptionName("gap", _DECLARE, "truth",
               "DECLARE: TRUE for the noisy gap of each hit above the threshold, which is free", _TRUTH),
    OptionName("budget_split", (*_DECLARE, *_STREAM), "shares",
               "DECLARE: (0.3, 0.7), the shares of threshold and questions; a third one for answers"),
    OptionName("threshold", _PROBE, "number", "a question to a declared threshold: its own, instead of the declared one"),
    OptionName("max_unstable", _STREAM, "whole",
               "DECLARE ... STABLE: the number of unstable questions after which it closes"),
    OptionName("refresh", (*_DECLARE, *_STREAM), "truth", "DECLARE: TRUE for a fresh threshold after each hit", _TRUTH),
    OptionName("rows", _TABLE, "whole"),
    OptionName("periods", ("DP", "PTR", "SUBSAMPLE", "STABLE", "CREATE SYNTHETIC TABLE", *_PROBE, *_QUESTION), "periods",
               "the periods that are read and pay, with a budget per period: ('2025-03', '2025-05 to 2025-08')"),
)  # fmt: skip
"""The options of modes and statements."""

_SEARCH, _CHOICE, _ANY = ("ABOVE_THRESHOLD",), ("EXPMECH",), ("aggregates",)

ARGUMENT_NAMES: tuple[OptionName, ...] = (
    OptionName("contribution_bounds_per_row", _ANY, "bounds", "(low, high) to which each row is clamped, or AUTO", ("AUTO",)),
    OptionName("contribution_bounds_per_group", _ANY, "pair", "(low, high) to which a unit's own aggregate is clamped"),
    OptionName("epsilon", (*_ANY, "PTR", *_SEARCH, *_CHOICE), "epsilon", "this aggregate's share"),
    OptionName("report_format", _ANY, "report format", "'JSON'", ("'JSON'",)),
    OptionName("max_hits", _SEARCH, "whole", "ABOVE_THRESHOLD: the number of hits after which it stops"),
    OptionName("answer", (*_SEARCH, *_CHOICE), "truth", "TRUE: also a fresh noisy value of each choice", _TRUTH),
    OptionName("gap", _SEARCH, "truth", "TRUE: also the noisy gap above the threshold", _TRUTH),
    OptionName("refresh", _SEARCH, "truth", "TRUE: a fresh threshold for each round", _TRUTH),
    OptionName("passes", _SEARCH, "whole",
               "ABOVE_THRESHOLD: the rounds over candidates that were missed, while hits are left; free"),
    OptionName("budget_split", _SEARCH, "shares",
               "ABOVE_THRESHOLD: (0.3, 0.7), the shares of threshold and questions; a third one for answers"),
    OptionName("method", _CHOICE, "one of", "EXPMECH: the method of choice",
               ("'exponential'", "'permute_and_flip'", "'noisy_max'", "'gumbel'")),
    OptionName("top", _CHOICE, "whole", "EXPMECH: this many distinct winners"),
    OptionName("base", ("PTR",), "base",
               "PTR's IQR: the factor that one unit may change it by; tested (chosen by a noisy count if not given)"),
    OptionName("test", ("PTR",), "test",
               "PTR: 'pure', 'gaussian' (cheaper by rho, and needs twice the lead), or AUTO, which passes sooner",
               ("'pure'", "'gaussian'", "AUTO")),
    OptionName("local_sensitivity", ("PTR",), "positive",
               "PTR: the most that one unit may change the answer; it is tested, and sets the noise"),
    OptionName("trim", ("PTR",), "trim",
               "PTR's AVG, VARIANCE and STDDEV: the part of the values left out at each end"),
)  # fmt: skip
"""The named arguments of aggregates and mechanisms."""


def help_of(rows: Iterable[OptionName]) -> dict[str, str]:
    """Return the help of each name."""
    return {row.name: row.help for row in rows if row.help}


def taken_by(taker: str, rows: Iterable[OptionName]) -> tuple[str, ...]:
    """Return the names of the options, or of the named arguments, that a mode, a statement or a call takes."""
    return tuple(dict.fromkeys(row.name for row in rows if taker in row.takers))


def values_of(rows: Iterable[OptionName]) -> dict[str, tuple[str, ...]]:
    """Return the words that each name takes, if they are listed."""
    return {row.name: row.values for row in rows if row.help and row.values}


CAP_OPTIONS: tuple[str, ...] = tuple(row.name for row in OPTION_NAMES if row.reads == "cap")
"""The options that cap a unit's contribution."""
NULL_OPTIONS: tuple[str, ...] = tuple(row.name for row in OPTION_NAMES if row.null)
"""Options that GoogleSQL allows to be NULL, meaning unset."""
