"""What a statement does with rows of one unit that meet: how many of them do, and whether they are sorted or held."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.normalize import Env, inner_queries
from dpsql.sql.parse.options import call_of, is_private_call, mode_of
from dpsql.sql.relations.catalog import Catalog
from dpsql.sql.relations.limits import UnitMeeting, frames_of, levels_of
from dpsql.sql.relations.relation import Names, fold

_COUNTS = ("COUNT", "COUNT_IF")


def find_held_columns(tree: exp.Expr) -> frozenset[str] | None:
    """Return the columns that a statement reads, folded, if it does more with rows that have met than count them.

    Counts of rows are added up as they come: None. Mechanisms that need rows, groups, windows, different values, and a cut
    of rows that have met before sort them or hold them: whatever is not known to count does. Any name in the statement may
    be a column's; ``*`` stands for all.
    """
    if not _sorts(tree):
        return None
    names = {fold(node.name) for node in tree.find_all(exp.Identifier)}
    stars = any(not isinstance(node.parent, exp.Count) for node in tree.find_all(exp.Star))
    natural = any(str(join.args.get("method") or "").upper() == "NATURAL" for join in tree.find_all(exp.Join))
    if (
        stars or natural or tree.find(exp.Window, exp.Columns) is not None
    ):  # rows that tie are told apart by all columns
        names.add("*")
    return frozenset(names)


def _sorts(tree: exp.Expr) -> bool:
    if tree.find(exp.Group, exp.Window, exp.Distinct, exp.Qualify) is not None:
        return True
    selects = list(tree.find_all(exp.Select))
    if any(mode_of(select) not in (None, "DP", "DIFFERENTIAL_PRIVACY") for select in selects):
        return True
    if sum(bool(select.args.get("joins")) or any(inner_queries(select)) for select in selects) > 1:
        return True
    calls = (call_of(node) for node in tree.walk() if is_private_call(node))
    return any(call is None or call.name not in _COUNTS or call.distinct for call in calls)


def meeting_of(
    select: exp.Select, outer: Names | None, env: Env, catalog: Catalog, held: frozenset[str] | None, aggregates: bool
) -> UnitMeeting:  # fmt: skip
    """Return what a SELECT does with rows that meet in it.

    Args:
        outer: the scope of the row that it stands beside, where it stands beside one.
        held: what :func:`held_columns` says of the statement.
        aggregates: whether it aggregates: its windows, if any, are then over what is released.
    """
    return UnitMeeting(levels_of(select, outer, env, catalog), () if aggregates else frames_of(select), held)
