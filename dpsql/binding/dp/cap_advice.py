"""The caps that a statement uses, their price in noise, and the one change of them that would help most.

All of it is computed from the caps, which are public: nothing here looks at data. So a change is named with the units that it
would cost rows, and how many such units there are is left to the analyst and the owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsql.binding.relations.unit_rows import name_unit
from dpsql.exact.exact_query import Exact
from dpsql.late_dataclass import dataclass

COSTLY = 2
"""The factor of noise from which on the footer names the change, too."""


@dataclass(frozen=True)
class CapChange:
    """A change of one cap.

    Args:
        option: as it can be pasted, such as ``max_rows_contributed = 8``.
        factor: how many times less noise there is with it.
        loses: which rows or groups are left out, as a clause.
        free: whether it loses nothing of a unit that fills one group, or is once in each.
    """

    option: str
    factor: float
    loses: str
    free: bool


def find_cap_change(exact: Exact, groups: int) -> CapChange | None:
    """Return the change of a cap that would help most; None where each unit is one row, or caps are found privately.

    Caps on groups and on the rows in each multiply. So where no cap on all rows holds, one of as many rows as the larger of the
    two helps most: it loses nothing of a unit that fills one group, or has a row in each. Else half of the cap is proposed.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        groups: the groups that one unit counts in.
    """
    if exact.bound.row_level or exact.ceiling is not None or exact.bound.unit is None:
        return None
    unit, caps = name_unit(exact.bound), exact.caps
    if not exact.counts_rows:
        if groups < 2 or not exact.keys:
            return None
        half = groups // 2
        return CapChange(
            f"max_groups_contributed = {half}",
            groups / half,
            f"one {unit} counts in {half} of its groups",
            False,
        )
    total, each = caps.total, caps.each
    if total is None or each is None or total < 2:
        return None
    most = max(each, total // each)
    free = (
        most < total and caps.in_all is None
    )  # an owner who gives a cap on all rows knows that units have so many
    rows = most if free else total // 2
    loses = f"rows of one {unit} above {rows:,} in all are left out"
    return CapChange(f"max_rows_contributed = {rows}", total / rows, loses, free)


def describe_caps(exact: Exact, groups: int) -> Iterator[str]:
    """Yield for EXPLAIN which caps are used, and how many rows the noise is for because of each.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        groups: the groups that one unit counts in.
    """
    if exact.bound.row_level or exact.ceiling is not None or exact.bound.unit is None:
        return
    caps, names = exact.caps, _name_caps(exact)
    if exact.counts_rows and caps.total is not None and names:
        many = f"{caps.total:,} row{'s' * (caps.total > 1)}"
        why = "" if len(names) == 1 else f", the least that they allow ({_say_product(exact)})"
        yield f"Caps: {', '.join(names)}. The noise is that of {many} of one privacy unit{why}.{_say_parts(exact)}"
    elif names and exact.keys and groups > 1:
        yield f"Caps: {', '.join(names)}. The noise is that of {groups:,} groups of one privacy unit."
    change = find_cap_change(exact, groups)
    if change is not None:
        yield (
            f"The cap that would help most: try {change.option}, which has {1 / change.factor:.2g} times the noise; "
            f"{change.loses}. OPTIONS (report_cut = TRUE) tells about how many rows the caps leave out."
        )


def note_costly_caps(exact: Exact, groups: int) -> Iterator[str]:
    """Yield the note of a footer where caps cost more than half of the noise, and a change loses little."""
    change = find_cap_change(exact, groups)
    if change is not None and change.free and change.factor > COSTLY:
        yield (
            f"caps make the noise {change.factor:.3g} times that of {change.option.rpartition(' ')[2]} rows: "
            f"try {change.option} ({change.loses})"
        )


def _name_caps(exact: Exact) -> list[str]:
    caps = (
        ("max_rows", exact.row_budget),
        ("max_rows_per_group", exact.per_group),
        ("max_groups", exact.groups if exact.keys else None),
    )
    return [f"{name} = {cap:,}" for name, cap in caps if cap is not None]


def _say_product(exact: Exact) -> str:
    caps = exact.caps
    parts = [] if caps.in_all is None else [f"{caps.in_all:,} in all"]
    if caps.per_group is not None and caps.groups is not None:
        many = f" in each of {caps.groups:,} groups" if caps.groups > 1 else " in one group"
        parts.append(f"{caps.per_group:,}{many}")
    return ", ".join(parts)


def _say_parts(exact: Exact) -> str:
    """Return how many rows the noise would be for without each of several caps; empty where one cap alone is in force."""
    own = exact.caps
    found = []
    for name, cap in (("in_all", "max_rows"), ("per_group", "max_rows_per_group"), ("groups", "max_groups")):
        if getattr(own, name) is None or (name == "groups" and exact.groups is None):
            continue
        total = replace(own, **{name: None}).total
        if total == own.total:
            found.append(f"{cap} changes nothing")
        elif total is not None:
            found.append(f"without {cap} it would be that of {total:,}")
    if len(found) > 1 and all(part.endswith("changes nothing") for part in found):
        return " Each of these caps could be left out without a change."
    return f" Of these caps, {'; '.join(found)}." if len(found) > 1 else ""
