"""Generated names of relations and columns that differ from any of the analyst's.

The SQL above private blocks mixes generated and analyst's names. So each generated name is absent from the statement:
as an identifier, quoted or not; as a string, which PIVOT may turn into a column; and as a column of a kept result or a
table, which a star may include.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.binding.public.kept_results import KeptResult
from dpsql.binding.relations.relation import fold

MakeName = Callable[[str], str]
"""Returns an unused name of a kind."""
_PREFIX = "dpsql_"


@dataclass
class OwnNames:
    """Generates names for one statement, except the folded names ``taken``, as from :func:`list_taken`."""

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
    """Return the folded names in a statement that resemble ours, and those of kept results' columns."""
    found = [node.name for node in tree.find_all(exp.Identifier, exp.Literal)]
    found += [name for item in kept for name in (*item.columns, *(end for ends in item.ends for end in ends))]
    return frozenset(name for name in map(fold, found) if name.startswith(_PREFIX))
