"""Distances by searching every table over a small domain: slow, and independent of the formulas under test.

A table is a sorted tuple. Under "add_remove" an edit adds or removes one value of the domain, under
"substitute" it replaces one. Searching is a breadth-first walk from all tables that answer differently, so
one walk per answer gives the radius of every table at once. Tables grow up to ``size``; a radius is exact as
long as table and radius together fit in it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence

Table = tuple[float, ...]


def tables(domain: Sequence[float], size: int) -> list[Table]:
    """Every multiset of at most ``size`` values."""
    return [t for n in range(size + 1) for t in itertools.combinations_with_replacement(sorted(domain), n)]


def neighbours(table: Table, domain: Sequence[float], relation: str, size: int) -> Iterator[Table]:
    removed = [table[:i] + table[i + 1 :] for i in range(len(table)) if i == 0 or table[i] != table[i - 1]]
    if relation == "add_remove":
        yield from removed
        if len(table) < size:
            for value in domain:
                yield tuple(sorted((*table, value)))
    else:
        for rest in removed:
            for value in domain:
                changed = tuple(sorted((*rest, value)))
                if changed != table:
                    yield changed


def distances(bad: list[Table], domain: Sequence[float], relation: str, size: int) -> dict[Table, int]:
    """Edits from each reachable table to the nearest table in ``bad``."""
    found = dict.fromkeys(bad, 0)
    queue = deque(bad)
    while queue:
        table = queue.popleft()
        for other in neighbours(table, domain, relation, size):
            if other not in found:
                found[other] = found[table] + 1
                queue.append(other)
    return found


def edits_to_another_answer(
    g: Callable[[Table], Hashable], domain: Sequence[float], relation: str, size: int
) -> dict[Table, int]:
    """For each table the least number of edits after which ``g`` differs (tables that can't get there are
    left out).
    """
    answers: dict[Hashable, list[Table]] = {}
    for table in tables(domain, size):
        answers.setdefault(g(table), []).append(table)
    result: dict[Table, int] = {}
    for answer, same in answers.items():
        bad = [t for other, group in answers.items() if other != answer for t in group]
        found = distances(bad, domain, relation, size)
        result.update({t: found[t] for t in same if t in found})
    return result
