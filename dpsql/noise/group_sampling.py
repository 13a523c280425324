"""The groups kept for each privacy unit: a random sample, vectorised.

A unit with too many groups keeps a uniform sample of them, chosen by random numbers of its own. So one unit more or less in
the data moves its own groups, and never the choice of another unit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy

IntegerArray = NDArray[np.int64]

_TICKET_BITS = 63
_FEW_GROUPS = 8
"""Greatest number of groups that are drawn one by one; for more, a unit's groups are shuffled."""
_WORD = 1 << 32
_RUN_BLOCK = 1 << 16


def find_runs(ordered: IntegerArray, shift: int = 0) -> IntegerArray:
    """Return the start of each run of integers that are equal except for their ``shift`` lowest bits."""
    if not len(ordered):
        return np.empty(0, dtype=np.int64)
    change = np.empty(len(ordered), dtype=bool)
    change[0] = True
    for start in range(
        0, len(ordered) - 1, _RUN_BLOCK
    ):  # blocks within a core's cache are shifted at no cost
        part = ordered[start : start + _RUN_BLOCK + 1]
        part = part >> shift if shift else part
        np.not_equal(part[1:], part[:-1], out=change[start + 1 : start + len(part)])
    return np.flatnonzero(change)


def choose_groups(units: IntegerArray, groups: int, entropy: Entropy) -> NDArray[np.bool_] | None:
    """Choose at most ``groups`` groups of each unit, uniformly and independently of other units; None keeps all.

    ``units`` is sorted: one entry per unit and group.
    """
    starts = find_runs(units)
    sizes = np.diff(starts, append=len(units))
    many = np.flatnonzero(sizes > groups)
    if not len(many):
        return None
    kept = np.repeat(sizes <= groups, sizes)
    first, counts = starts.take(many), sizes.take(many)
    if groups <= _FEW_GROUPS and int(counts.max()) < _WORD:
        for pick in _draw_sets(counts, groups, entropy):
            kept[first + pick] = True
        return kept
    places = np.flatnonzero(~kept)
    owner = np.repeat(np.arange(len(counts)), counts)
    order = places[_shuffle(owner, entropy)]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept[order[rank < groups]] = True
    return kept


def share_rows(units: IntegerArray, rows: IntegerArray, budget: int, entropy: Entropy) -> IntegerArray | None:
    """Return the number of rows of each unit and group that count, at most ``budget`` of a unit; None if all do.

    A unit's groups are filled one after another, in an order that is uniform and independent of other units. ``units`` is sorted,
    one entry per unit and group; ``rows`` and ``budget`` are at least 1.
    """
    starts = find_runs(units)
    sizes = np.diff(starts, append=len(units))
    many = np.add.reduceat(rows, starts) > budget if len(units) else np.zeros(0, dtype=bool)
    if not many.any():
        return None
    counted, counts = rows.copy(), sizes[many]
    places = np.flatnonzero(np.repeat(many, sizes))
    order = places[_shuffle(np.repeat(np.arange(len(counts)), counts), entropy)]
    held = rows[order]
    before = np.cumsum(held) - held
    before -= np.repeat(before[np.cumsum(counts) - counts], counts)
    counted[order] = np.clip(budget - before, 0, held)
    return counted


def _draw_sets(counts: IntegerArray, groups: int, entropy: Entropy) -> list[IntegerArray]:
    """Draw ``groups`` different numbers below each count, every set with equal probability (Floyd's algorithm).

    Each array has one number per count. The last of ``i + 1`` candidates replaces a number that is already taken.
    """
    picks: list[IntegerArray] = []
    for i in range(groups):
        last = counts - (groups - i)
        pick = draw_below_each(last + 1, entropy)
        taken = np.zeros(len(counts), dtype=bool)
        for earlier in picks:
            taken |= pick == earlier
        picks.append(np.where(taken, last, pick))
    return picks


def draw_below_each(bounds: IntegerArray, entropy: Entropy) -> IntegerArray:
    """Draw a uniform integer below each bound (1 to 2**32), without modulo bias.

    It is the high half of a 32-bit word times the bound; the few words whose low half would favour a number are redrawn.

    >>> draw_below_each(np.array([1, 1]), Entropy()).tolist()
    [0, 0]
    """
    out, low = _scaled(bounds, entropy)
    doubtful = np.flatnonzero(low < bounds.astype(np.uint64))
    while len(doubtful):
        few = bounds[doubtful]
        again = doubtful[low[doubtful] < (_WORD % few).astype(np.uint64)]
        out[again], low[again] = _scaled(bounds[again], entropy)
        doubtful = again
    return out


def _scaled(bounds: IntegerArray, entropy: Entropy) -> tuple[IntegerArray, NDArray[np.uint64]]:
    n = len(bounds)
    product = entropy.words((n + 1) // 2).view(np.uint32)[:n] * bounds.astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.int64), product & np.uint64(_WORD - 1)


def _shuffle(owner: IntegerArray, entropy: Entropy) -> IntegerArray:
    """Return positions in the order of their (ascending) owners, at random within each.

    The number of bits of a ticket depends on the number of entries, so equal tickets must be distinguished by further bits: if
    their places decided, one more unit could take a bit from every ticket, and so move the choice of others.
    """
    n = len(owner)
    place, who = (n - 1).bit_length(), int(owner[-1]).bit_length()
    chance = min(32, _TICKET_BITS - place - who)
    words = entropy.words((n + 1) // 2).view(np.uint32)[:n].astype(np.int64)
    if chance < 16:  # too many for one word each: slower, and the same
        return np.lexsort((entropy.words(n), words, owner)).astype(np.int64)
    tickets = (owner << (chance + place)) | ((words >> (32 - chance)) << place) | np.arange(n)
    tickets.sort()
    order = tickets & ((1 << place) - 1)
    tickets >>= place
    same = np.concatenate([[False], tickets[1:] == tickets[:-1], [False]])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        few = order[tied]
        order[tied] = few[np.lexsort((entropy.words(len(few)), words[few], tickets[tied]))]
    return order
