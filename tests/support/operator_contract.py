"""The contract of an operator: a test class that a newcomer subclasses.

    class TestMine(OperatorContract):
        operator = Mine("SELECT ...")

        def exact(self, text):
            return pa.table(...)  # what the exact query gives

What it reads must be claimed, what it charges must be reserved, and all that is random must come from its entropy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import pyarrow as pa
import pytest

from dpsql.mechanisms.base import ErrorBasis, Operator, Reader, Release, list_claims
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event
from tests.support.goodness import fixed


class OperatorContract:
    """The contract of an operator. Subclasses say which one, and what its exact queries give."""

    operator: ClassVar[Operator]

    def exact(self, text: str) -> pa.Table:
        """Return what the exact query of this text gives."""
        raise NotImplementedError

    def release(self, entropy: Entropy, empty: bool = False) -> tuple[Release, list[str]]:
        """Release over the exact relations, or over empty ones; return also the texts that were read."""
        read: list[str] = []

        def execute(text: str, lent: Mapping[str, pa.Table]) -> pa.Table:
            read.append(text)
            table = self.exact(text)
            return table.slice(0, 0) if empty else table

        return self.operator.release(Reader(execute), entropy), read

    def test_it_is_a_value(self) -> None:
        operator = self.operator
        assert dataclasses.is_dataclass(operator)
        assert dataclasses.replace(operator) == operator  # type: ignore[type-var]
        assert hash(dataclasses.replace(operator)) == hash(operator)  # type: ignore[type-var]
        with pytest.raises(dataclasses.FrozenInstanceError):
            operator.queries = ()  # type: ignore[misc]

    def test_every_text_is_claimed(self) -> None:
        operator = self.operator
        late = {claimed.text for claimed in list_claims(operator) if claimed.late}
        assert set(operator.queries) - late <= set(operator.checked)
        claimed = {claimed.text for claimed in list_claims(operator)}
        assert set(operator.checked) - set(operator.apart) <= claimed - late

    def test_it_reads_what_it_claims(self) -> None:
        claimed = {claimed.text for claimed in list_claims(self.operator)} | set(self.operator.apart)
        _, read = self.release(Entropy())
        assert read
        assert set(read) <= claimed

    def test_it_uses_what_was_reserved(self) -> None:
        event = self.operator.event
        assert Event.from_json(event.to_json()) == event
        for empty in (False, True):
            assert self.release(Entropy(), empty)[0].event.is_within(event)

    def test_nothing_is_random_but_its_entropy(self) -> None:
        first, again = (self.release(fixed("contract"))[0].table for _ in range(2))
        assert first.equals(again)
        others = (self.release(fixed(f"another {i}"))[0].table for i in range(20))
        assert any(not first.equals(other) for other in others)

    def test_columns_do_not_depend_on_the_data(self) -> None:
        full, empty = (self.release(Entropy(), empty)[0].table for empty in (False, True))
        assert full.column_names == empty.column_names
        assert full.schema.types == empty.schema.types

    def test_intervals_hold_the_value(self) -> None:
        table = self.release(Entropy())[0].table
        for name in (n for n in table.column_names if f"{n}__low" in table.column_names):
            for row in table.to_pylist():
                assert row[name] is None or row[f"{name}__low"] <= row[name] <= row[f"{name}__high"]

    def test_intervals_are_shown_again_or_refused(self) -> None:
        released = self.release(Entropy())[0]
        if self.operator.can_show_again:
            assert self.operator.show_again(released.table, released.noisy).equals(released.table)
        else:
            with pytest.raises(ValueError, match="can't be made again"):
                self.operator.show_again(released.table, released.noisy)

    def test_it_is_explained_without_data(self) -> None:
        said = self.operator.sentences(0.95)
        assert said
        assert all(text and text == text.strip() for text in said)
        widths = [
            {e.label: e.error for e in self.operator.errors(ErrorBasis((1000,), confidence=0.95, factor=f))}
            for f in (Fraction(1), Fraction(4))
        ]
        assert widths[0].keys() == widths[1].keys()
        assert all(0 <= widths[1][name] <= error for name, error in widths[0].items())

    def test_expected_errors_need_assumed_rows_or_none(self) -> None:
        """What is known without row counts is known, and equal, with assumed ones; more rows are no less exact."""
        known, few, many = (
            {e.name: e.error for e in self.operator.errors(ErrorBasis(rows))}
            for rows in ((), (100,), (10_000,))
        )
        assert known.items() <= few.items()
        assert few.keys() == many.keys()
        assert all(0 < many[name] <= error for name, error in few.items())
