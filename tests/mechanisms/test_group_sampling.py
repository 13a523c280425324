"""The choice of a unit's groups: as likely all of them, however many other entries there are."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from dpsql.noise import samplers
from dpsql.noise.entropy import Entropy


class _Zeros:
    """Zeros once, for every ticket, then what the operating system gives."""

    def __init__(self) -> None:
        self.first = True

    def __call__(self, n: int) -> bytes:
        found, self.first = (bytes(n) if self.first else os.urandom(n)), False
        return found


def _kept(units: int, source: object, monkeypatch: pytest.MonkeyPatch | None = None) -> Counter[int]:
    """Count how often each of a unit's three groups was kept, when one may be."""
    owner = np.repeat(np.arange(units), 3)
    kept = samplers.choose_groups(owner, 1, Entropy(source))  # type: ignore[arg-type]
    assert kept.reshape(units, 3).sum(axis=1).tolist() == [1] * units
    return Counter(int(i) for i in np.flatnonzero(kept) % 3)


@pytest.mark.parametrize("bits", [63, 48, 30])  # whole tickets, short ones, and none
def test_equal_tickets_are_told_apart_by_chance(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    units = 6000  # 72 KB of tickets: the source is asked for these alone
    monkeypatch.setattr(samplers, "_TICKET_BITS", bits)
    found = _kept(units, _Zeros())
    assert all(abs(found[i] - units / 3) < 6 * (units * 2 / 9) ** 0.5 for i in range(3))


@pytest.mark.parametrize("bits", [63, 45, 30])
def test_each_group_is_as_likely(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "_TICKET_BITS", bits)
    found = _kept(6000, os.urandom)
    assert all(abs(found[i] - 2000) < 6 * (6000 * 2 / 9) ** 0.5 for i in range(3))


def test_a_unit_with_few_groups_keeps_them() -> None:
    owner = np.array([0, 0, 1, 2, 2, 2])
    kept = samplers.choose_groups(owner, 2, Entropy())
    assert kept[:3].all()
    assert int(kept[3:].sum()) == 2
    assert samplers.choose_groups(owner, 3, Entropy()) is None
