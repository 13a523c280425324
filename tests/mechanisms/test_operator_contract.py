"""The contract of operators finds what breaks it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

from dpsql.errors import PrivacyError
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import ClaimedText, Operator, Read, Release, RowsClaim
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event, PureDP
from tests.support.operator_contract import OperatorContract

NOISE = LaplaceNoise(Fraction(1, 10), 1)


@dataclass(frozen=True)
class NoisyNumber(Operator):
    """One number with noise, as the shortest operator has it."""

    query: str
    noise: LaplaceNoise = NOISE

    @property
    def event(self) -> Event:
        return self.noise.event

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def claims(self) -> Iterator[ClaimedText]:
        yield ClaimedText(self.query, RowsClaim(self.noise.sensitivity))

    def release(self, read: Read, entropy: Entropy) -> Release:
        found = sum(read(self.query).column("n").to_pylist())
        return Release(pa.table({"n": self.noise.add([found], entropy)}), self.event)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (self.noise.sentence(confidence),)


class Silent(NoisyNumber):
    def claims(self) -> Iterator[ClaimedText]:
        return iter(Operator.claims(self))


class Curious(NoisyNumber):
    def release(self, read: Read, entropy: Entropy) -> Release:
        read("SELECT secret")
        return super().release(read, entropy)


class Dear(NoisyNumber):
    def release(self, read: Read, entropy: Entropy) -> Release:
        return replace(super().release(read, entropy), event=PureDP(Fraction(10)))


class Dicing(NoisyNumber):
    def release(self, read: Read, entropy: Entropy) -> Release:
        noisy = pa.table({"n": [random.randrange(10**9)]})
        return replace(super().release(read, entropy), table=noisy)


class Telling(NoisyNumber):
    def release(self, read: Read, entropy: Entropy) -> Release:
        found = super().release(read, entropy)
        rows = read(self.query).num_rows
        return found if rows else replace(found, table=found.table.append_column("empty", pa.array([True])))


class TestNoisyNumber(OperatorContract):
    operator = NoisyNumber("SELECT n")

    def exact(self, text: str) -> pa.Table:
        return pa.table({"n": pa.array([3, 4], pa.int64())})


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Silent, "test_every_text_is_claimed"),
        (Curious, "test_it_reads_what_it_claims"),
        (Dear, "test_it_uses_what_was_reserved"),
        (Dicing, "test_nothing_is_random_but_its_entropy"),
        (Telling, "test_columns_do_not_depend_on_the_data"),
    ],
)
def test_a_broken_operator_is_found(kind: type[NoisyNumber], test: str) -> None:
    contract = TestNoisyNumber()
    contract.operator = kind("SELECT n")  # type: ignore[misc]
    with pytest.raises((AssertionError, PrivacyError)):
        getattr(contract, test)()
