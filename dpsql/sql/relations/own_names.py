"""Names of ours that an analyst's can't be: for relations and columns that are made for a statement.

What is above the private blocks is public SQL in which an analyst's names stand beside ours. So each name of ours is one that
the statement does not hold: neither as an identifier, quoted or not, nor in quotes, where PIVOT makes columns of it, nor as a
column of a kept result or a table, which a star may stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.sql.relations.kept_results import KeptResult
from dpsql.sql.relations.relation import fold

MakeName = Callable[[str], str]
"""Gives a name of a kind that nothing in a statement has."""
_PREFIX = "dpsql_"


@dataclass
class OwnNames:
    """A maker of names for one statement.

    Args:
        taken: the folded names that are not to be made, as :func:`list_taken` gives them.
    """

    taken: Collection[str] = field(default_factory=frozenset)
    _count: int = 0

    def make(self, kind: str, known: Collection[str]) -> str:
        """Return a name of a kind, ``dpsql_block_1``, that is neither taken nor a ``known`` name of the data."""
        while True:
            self._count += 1
            made = f"{_PREFIX}{kind}_{self._count}"
            if made not in self.taken and made not in known:
                return made


def list_taken(tree: exp.Expr, kept: Iterable[KeptResult]) -> frozenset[str]:
    """Return the folded names like ours that a statement holds, and those of the columns of kept results."""
    found = [node.name for node in tree.find_all(exp.Identifier, exp.Literal)]
    found += [name for item in kept for name in (*item.columns, *(end for ends in item.ends for end in ends))]
    return frozenset(name for name in map(fold, found) if name.startswith(_PREFIX))
