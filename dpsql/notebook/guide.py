"""The texts of ``%dpsql``, ``%dpsql mechanisms`` and ``%dpsql?``."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.notebook.arguments import CONNECT_FLAGS, RUN_FLAGS, Flag
from dpsql.notebook.render import Lines, Sheet, of_rows
from dpsql.sql.parse.functions import AGGREGATES, SqlName

COMMANDS = {
    "connect": "open a session: %dpsql connect data.duckdb --policy policy.toml",
    "demo": "open a session on the demo's health records",
    "budget": "how much is left, and what each cell cost",
    "ledger": "every charge: when, who, cell, loss, outcome (also: %dpsql log)",
    "log": "the same as ledger",
    "tables": "the tables that the policy names, and kept results",
    "keep": "the last result, or a variable's, as a relation of later cells: %dpsql keep out",
    "columns": "the columns of a table: %dpsql columns visits",
    "policy": "what the data owner declared",
    "mechanisms": "every way to get an answer, with an example",
    "sessions": "the open sessions; %dpsql sessions name makes one current",
    "session": "the open session as a Python object: session = %dpsql session",
    "report": "the owner's report: %dpsql report [file.html]",
    "close": "close the session: %dpsql close [name]",
    "help": "this",
}


MODES = (
    ("WITH PTR", "a precise value, when the data are stable", "SELECT WITH PTR IQR(age) FROM t"),
    ("WITH SUBSAMPLE", "any query, run on blocks and combined", "SELECT WITH SUBSAMPLE CORR(a, b) FROM t"),
)

OPTIONS = {
    "epsilon": "the block's whole epsilon",
    "delta": "the block's whole delta",
    "privacy_unit_column": "restates the policy's privacy unit",
    "max_groups_contributed": "groups that one privacy unit may touch",
    "max_rows_contributed": "rows that one privacy unit may contribute over all groups",
    "group_selection_strategy": "LAPLACE_THRESHOLD, OPTIMAL or PUBLIC_GROUPS",
    "min_privacy_units_per_group": "a threshold before groups are selected",
    "noise": "LAPLACE or GAUSSIAN",
    "confidence": "level of the intervals",
    "consistent": "TRUE: cells of GROUPING SETS are made to add up",
}
"""Options of the DP mode; other modes have some of them, and their own."""

MORE_OPTIONS = {
    "blocks": "how many blocks people are put into",
    "combine": "how the blocks' results become one: mean, median, winsorized_mean, votes",
    "bounds": "(low, high): the range of a block's result",
    "trim": "the share of results cut off at each end",
    "sampling": "partition, rounds or bernoulli: how blocks are drawn",
    "rounds": "how many partitions rounds makes",
    "candidates": "the results that may be voted for",
    "units": "how many privacy units there are, where that is public",
    "most": "how many items one block may vote for",
    "top": "how many items win",
    "max_hits": "DECLARE: stop after this many",
    "refresh": "DECLARE: TRUE for a fresh threshold after each hit",
}
"""Options of the other modes and of DECLARE."""

ARGUMENTS = {
    "contribution_bounds_per_row": "(low, high) that each row is held to, or AUTO",
    "contribution_bounds_per_group": "(low, high) that a unit's own aggregate is held to",
    "epsilon": "this aggregate's share",
    "report_format": "'JSON'",
    "max_hits": "ABOVE_THRESHOLD: stop after this many",
    "answer": "TRUE: also a fresh noisy value of each choice",
    "gap": "TRUE: also the noisy gap above the threshold",
    "refresh": "TRUE: a fresh threshold for each round",
    "method": "EXPMECH: 'exponential', 'permute_and_flip', 'noisy_max'",
    "top": "EXPMECH: this many distinct winners",
    "local_sensitivity": "PTR's MEDIAN: how far one unit may move it; tested",
}
"""Named arguments of aggregates and mechanisms, written ``name => value``."""

NO_SESSION = "%dpsql connect data.duckdb --policy policy.toml   (or %dpsql demo, to look around)"


def mechanisms() -> Sheet:
    """List every way to get an answer: names that give the same share a line."""
    same: dict[str, list[SqlName]] = {}
    for row in AGGREGATES:
        if row.help:
            same.setdefault(row.help, []).append(row)
    lines = [(", ".join(row.name for row in rows), gives, rows[0].example) for gives, rows in same.items()]
    return of_rows(("mechanism", "what it gives", "for example"), [*lines, *MODES])


def help_lines(table: str | None, epsilon: str | None) -> Lines:
    """Short help, with one example that runs as it stands (on ``table``, when a session is open)."""
    lines = [
        "Ask questions in SQL; every answer is differentially private, and shows its error and its cost.",
        "",
    ]
    if table is None:
        lines += [f"  {NO_SESSION}"]
    else:
        options = "" if epsilon else " WITH DP OPTIONS (epsilon = 0.1)"
        lines += ["  %%dpsql", f"  SELECT{options} COUNT(*) AS n FROM {table}"]
    lines += ["", *_described(f"%dpsql {name}" for name in COMMANDS if name not in ("log", "help"))]
    lines += ["", "%%dpsql --explain shows the price first. %dpsql? lists every flag."]
    return Lines(tuple(lines))


def _described(commands: Iterable[str]) -> list[str]:
    return [f"  {command:<18} {COMMANDS[command.split()[1]]}" for command in commands]


def _flags(flags: tuple[Flag, ...]) -> str:
    return "\n".join(f"  {f.name + (' ' + f.value if f.value else ''):<18} {f.help}" for f in flags)


USAGE = f"""Differentially private answers to SQL.

    %%dpsql [name] [flags]        SQL below; %%dpsql must be the first line of its cell
    out << SELECT ...             as first words of the SQL: keep the result, show nothing; SELECT ... FROM out reads it
    %dpsql [flags] SELECT ...     one line;  x = %dpsql SELECT ...  keeps the result
    %dpsql <command>              {", ".join(name for name in COMMANDS)}

Flags:
{_flags(RUN_FLAGS)}

%dpsql connect [database] takes
{_flags(CONNECT_FLAGS)}

Values from Python: write $city in the SQL and it is bound to the variable city, as a value, never as text.

Running a cell again shows the stored answer at no cost. Fresh answers to average the noise away are paid each
time: the mean of twenty costs twenty times as much, and one answer with twenty times the epsilon is better.

Settings: %config DpsqlMagic, or [tool.dpsql] in pyproject.toml.  %alias_magic sql dpsql makes %%sql cells
ours, which editors colour as SQL.
"""
