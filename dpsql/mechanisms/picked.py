"""Which of a unit's own groups count, where it has more than it may: each choice as likely, and nobody else's business.

A choice is made by random numbers that belong to the unit alone, so no other unit takes part in it: one more or one
less in the data moves its own groups, and never what somebody else chose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy

Integers = NDArray[np.int64]

_BITS = 63
_FEW = 8
"""Up to so many groups are drawn one by one; beyond, a unit's groups are shuffled."""
_WORD = 1 << 32
_BLOCK = 1 << 16


def runs(ordered: Integers, shift: int = 0) -> Integers:
    """Where each run of integers begins that are equal but for their ``shift`` lowest bits."""
    if not len(ordered):
        return np.empty(0, dtype=np.int64)
    change = np.empty(len(ordered), dtype=bool)
    change[0] = True
    for start in range(0, len(ordered) - 1, _BLOCK):  # what fits the processor's cache is shifted at no cost
        part = ordered[start : start + _BLOCK + 1]
        part = part >> shift if shift else part
        np.not_equal(part[1:], part[:-1], out=change[start + 1 : start + len(part)])
    return np.flatnonzero(change)


def choose(units: Integers, groups: int, entropy: Entropy) -> NDArray[np.bool_] | None:
    """Which of each unit's groups are kept: at most ``groups`` of them, each choice as likely. None keeps all.

    ``units`` is sorted: one entry per unit and group.
    """
    starts = runs(units)
    sizes = np.diff(starts, append=len(units))
    many = sizes > groups
    if not many.any():
        return None
    kept = np.repeat(~many, sizes)
    first, counts = starts[many], sizes[many]
    if groups <= _FEW and int(counts.max()) < _WORD:
        for pick in _drawn(counts, groups, entropy):
            kept[first + pick] = True
        return kept
    places = np.flatnonzero(~kept)
    owner = np.repeat(np.arange(len(counts)), counts)
    order = places[_shuffled(owner, entropy)]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept[order[rank < groups]] = True
    return kept


def _drawn(counts: Integers, groups: int, entropy: Entropy) -> list[Integers]:
    """``groups`` different numbers below each count, every set as likely: one of them per array (Floyd's way).

    The last of ``i + 1`` candidates stands in for a number that is taken already.
    """
    picks: list[Integers] = []
    for i in range(groups):
        last = counts - (groups - i)
        pick = below_each(last + 1, entropy)
        taken = np.zeros(len(counts), dtype=bool)
        for earlier in picks:
            taken |= pick == earlier
        picks.append(np.where(taken, last, pick))
    return picks


def below_each(bounds: Integers, entropy: Entropy) -> Integers:
    """A uniform integer below each bound (1 to 2**32), without modulo bias.

    The high half of a 32-bit word times the bound; the few words whose low half would favour a number are drawn again.

    >>> below_each(np.array([1, 1]), Entropy()).tolist()
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


def _scaled(bounds: Integers, entropy: Entropy) -> tuple[Integers, NDArray[np.uint64]]:
    n = len(bounds)
    product = entropy.words((n + 1) // 2).view(np.uint32)[:n] * bounds.astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.int64), product & np.uint64(_WORD - 1)


def _shuffled(owner: Integers, entropy: Entropy) -> Integers:
    """Positions in the order of their (ascending) owners, at random within each.

    How many bits a ticket has depends on how many entries there are, so two that are equal must be told apart by further
    bits: were it by their places, one unit more could take a bit from everybody, and with it move what others choose.
    """
    n = len(owner)
    place, who = (n - 1).bit_length(), int(owner[-1]).bit_length()
    chance = min(32, _BITS - place - who)
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
