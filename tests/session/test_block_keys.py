"""Digests of public relations: made once for a large one, as long as it exists."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dpsql.session import block_keys
from dpsql.session.block_keys import digest_content, digest_lent


def test_a_digest_is_kept_as_long_as_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[pa.Table] = []

    def watched(table: pa.Table) -> str:
        made.append(table.slice(0))
        return digest_content(table)

    monkeypatch.setattr(block_keys, "digest_content", watched)
    monkeypatch.setattr(block_keys, "_MOST_SORTED", 2)
    monkeypatch.setattr(block_keys, "_digests", {})
    small, large = pa.table({"a": [1, 2]}), pa.table({"a": [1, 2, 3]})
    assert digest_lent(large) == digest_lent(large) == digest_content(large)
    assert len(made) == 1
    same = pa.table({"a": [1, 2, 3]})  # equal rows, but perhaps not for ever
    assert digest_lent(same) == digest_lent(large)
    assert len(made) == 2
    digest_lent(small)
    digest_lent(small)
    assert len(made) == 4
    del large, same
    assert block_keys._digests == {}
