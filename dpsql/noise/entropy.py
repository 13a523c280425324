"""Uniform words, integers and reals from the operating system: everything random in a release.

There is no seed: an :class:`Entropy` reads ``os.urandom`` unless a test constructs one with another source.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers

BUFFER_BYTES = 1 << 16
"""The bytes requested from the source at once; larger requests are served directly."""

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # absent on Windows, which can't fork either
    os.register_at_fork(after_in_child=_forked)


class _Buffer(threading.local):
    """The words that a thread has read and not used yet, and the number of forks at that time."""

    block: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
    used = 0
    forks = -1


class Entropy:
    """Random words for samplers: one buffer per thread, discarded in a forked child.

    Each word is used once: threads share no buffer, a child process never sees its parent's words again, and words are removed
    from the buffer as they are taken. ``source`` returns that many random bytes; it must be cryptographically secure outside
    tests.
    """

    def __init__(self, source: Callable[[int], bytes] = os.urandom) -> None:
        self._source = source
        self._local = _Buffer()

    def __repr__(self) -> str:
        return "Entropy()" if self._source is os.urandom else "Entropy(source)"

    def words(self, n: int) -> NDArray[np.uint64]:
        """Draw ``n`` independent uniform 64-bit words, as an array that belongs to the caller."""
        if n * 8 >= BUFFER_BYTES:
            return self._read(n)
        local = self._local
        if local.forks != _forks:
            local.block, local.used, local.forks = self._read(0), 0, _forks
        start = local.used
        if start + n > len(local.block):
            local.block, start = self._read(BUFFER_BYTES // 8), 0
        local.used = start + n  # before the words leave: an interrupt loses words, it never repeats them
        taken = local.block[start : start + n].copy()
        local.block[start : start + n] = 0
        return taken

    def below(self, bound: int, n: int) -> Integers:
        """Draw ``n`` uniform integers in ``[0, bound)``, without modulo bias.

        Returns an int64 array if ``bound <= 2**63``, else an object array of Python ints.

        >>> Entropy().below(1, 3).tolist()
        [0, 0, 0]
        """
        if bound < 1:
            raise ValueError("bound must be positive")
        bits = (bound - 1).bit_length()
        out = self._bits(bits, n, narrow=bound <= 1 << 63)
        over = np.flatnonzero(out >= bound)
        while len(over):  # rejection: fewer than half of the draws are thrown away
            out[over] = self._bits(bits, len(over), narrow=bound <= 1 << 63)
            over = over[out[over] >= bound]
        return out

    def _bits(self, bits: int, n: int, narrow: bool) -> Integers:
        """Draw ``n`` integers of ``bits`` uniform bits: int64 if they are ``narrow``, else Python integers."""
        if narrow:
            return (self.words(n) & np.uint64((1 << bits) - 1)).astype(np.int64)
        width = -(-bits // 64)
        raw = self.words(n * width).tobytes()
        step, mask = width * 8, (1 << bits) - 1
        out = np.empty(n, dtype=object)
        for i in range(n):
            out[i] = int.from_bytes(raw[i * step : (i + 1) * step], "little") & mask
        return out

    def _read(self, n: int) -> NDArray[np.uint64]:
        raw = self._source(n * 8)
        if len(raw) != n * 8:
            raise OSError("the entropy source gave too few bytes")
        return np.frombuffer(bytearray(raw), dtype=np.uint64)


class Uniform:
    """A uniform real in [0, 1) with some known leading bits; further bits are drawn on demand."""

    def __init__(self, known: int, bits: int, entropy: Entropy) -> None:
        self.known = known
        self.bits = bits
        self._entropy = entropy

    def draw(self) -> None:
        self.known = self.known << 64 | int(self._entropy.words(1)[0])
        self.bits += 64

    def interval(self) -> ia.Interval:
        return ia.dyadic(self.known, -self.bits), ia.dyadic(self.known + 1, -self.bits)

    def is_below(self, enclose: Callable[[int], ia.Interval]) -> bool:
        """Return whether it is below a real, of which ``enclose`` returns an interval for a number of known bits."""
        while True:
            low, high = self.interval()
            found = enclose(self.bits)
            if ia.is_at_most(high, found[0]):
                return True
            if ia.is_at_most(found[1], low):
                return False
            self.draw()
