"""The choice of groups whose keys are private, as a block asks for it: the mechanism that keeps most of them.

With ``group_selection_strategy = OPTIMAL``, the default, that is the optimum for one decision where a unit is in one or two
groups, and where it may be in more a table that is accounted for all of them together, see
:mod:`dpsql.mechanisms.renyi_selection`. Where the session counts rho or mu, the table has no more of these than even shares
of epsilon would have: a statement is admitted wherever it was. Which one it is depends on the statement and on the
accountant, on no data and not on what was spent; EXPLAIN says it.
"""

from __future__ import annotations

from fractions import Fraction

from dpsql.mechanisms.per_group import GroupSelector
from dpsql.mechanisms.renyi_selection import make_group_selector
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import GroupSelection
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.sql.exact.exact_query import UNITS_COLUMN
from dpsql.sql.parse.options import Options


def choose_selector(
    options: Options, accountant: str, amount: Amount, delta: Fraction, groups: int
) -> GroupSelector:
    """Return the mechanism that chooses a block's groups.

    Args:
        options: of the block.
        accountant: the session's.
        amount: what the choice may lose.
        delta: its delta.
        groups: groups that one unit may be in.
    """
    epsilon = amount.find_epsilon(lambda e: GroupSelection(e, delta, groups))
    strategy = (options.get("group_selection_strategy") or "OPTIMAL").lower()
    minimum = options.get("min_privacy_units_per_group", 1)
    shared = GroupSelector(UNITS_COLUMN, epsilon, delta, groups, strategy, minimum)
    return make_group_selector(shared, held=ACCOUNTANTS[accountant].has_rule)
