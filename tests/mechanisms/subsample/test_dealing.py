# ruff: noqa: E501
"""Dealing of units into blocks: evenly, anew under each salt and in each round, never into two blocks at once."""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pytest

from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.subsample.blocks import write_block_number
from tests.support.goodness import fixed

UNITS = 60_000
KINDS = {
    "numbers in a row": "i",
    "even numbers": "i * 1024",
    "far numbers": "i * 70368744177665 - 2000000000000000000",
}
TEXTS = {
    "texts": "'user-' || i",
    "dates": "DATE '1900-01-01' + i::INTEGER",
    "long texts": "repeat('x', 40) || i",
}
COUNTS = (8, 10, 100)


def dealt(expression: str, units: str, salts: tuple[int, int]) -> np.ndarray:
    """The blocks of every unit under two salts."""
    one, two = (expression.replace(SALT, str(salt)) for salt in salts)
    source = f"(SELECT {units} AS u FROM range({UNITS}) r(i)) AS t"
    found = duckdb.sql(f"SELECT {one} AS a, {two} AS b FROM {source}").fetchnumpy()
    return np.column_stack(list(found.values()))


def salts(label: str) -> tuple[int, int]:
    one, two = (int(word) >> 1 for word in fixed(label).words(2))
    return one, two


def surprise(seen: np.ndarray) -> float:
    """Chi-square against equal chances, in standard deviations above its mean."""
    expected, freedom = seen.sum() / seen.size, seen.size - 1
    return float((((seen - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def tables(blocks: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = blocks[:, 0].astype(np.int64), blocks[:, 1].astype(np.int64)
    return np.bincount(a, minlength=m), np.bincount(a * m + b, minlength=m * m)


@pytest.mark.parametrize("m", COUNTS)
@pytest.mark.parametrize("kind", [*KINDS, *TEXTS])
def test_two_salts_give_two_independent_partitions(kind: str, m: int) -> None:
    units, whole = (KINDS[kind], True) if kind in KINDS else (TEXTS[kind], False)
    expression = write_block_number("u", m, whole=whole)
    one, both = tables(dealt(expression, units, salts(f"{kind} {m}")), m)
    assert len(one) == m, "a block beyond the last"
    assert len(both) == m * m, "a block beyond the last"
    assert max(surprise(one), surprise(both)) < 7


@pytest.mark.parametrize(
    "careless", [f"hash(u, {SALT}) % 8", f"xor(u, {SALT}) % 8", f"xor(hash(u), {SALT}) % 8"]
)
def test_a_salt_that_is_not_mixed_in_shows(careless: str) -> None:
    """The control: under two salts the same partition, with other numbers."""
    _, both = tables(dealt(careless, "i", salts(careless)), 8)
    assert surprise(both) > 1000


@pytest.mark.parametrize("m", COUNTS)
@pytest.mark.parametrize("whole", [True, False])
def test_rounds_are_independent_partitions(m: int, whole: bool) -> None:
    salt = str(salts(f"rounds {m} {whole}")[0])
    first, second = (write_block_number("u", m, turn, whole).replace(SALT, salt) for turn in ("0", "1"))
    rows = duckdb.sql(
        f"SELECT {first} AS a, {second} AS b FROM (SELECT i AS u FROM range({UNITS}) r(i)) AS t"
    ).fetchnumpy()
    one, both = tables(np.column_stack(list(rows.values())), m)
    assert surprise(one) < 7
    assert surprise(both) < 7


@pytest.mark.parametrize("m", [2, 3, 8, 100, 255, 256, 257, 1000])
@pytest.mark.parametrize("whole", [True, False])
def test_every_block_is_used_and_no_other(m: int, whole: bool) -> None:
    found = duckdb.sql(
        f"SELECT MIN(b), MAX(b), COUNT(DISTINCT b), COUNT(*) FILTER (WHERE b IS NULL) FROM (SELECT {write_block_number('u', m, whole=whole)} AS b "
        f"FROM (SELECT i AS u FROM range(200000) r(i)) AS t)".replace(
            SALT, str(salts(f"used {m} {whole}")[0])
        )
    ).fetchall()
    assert found == [(0, m - 1, m, 0)]


def test_the_last_place_of_the_scale_is_below_the_number_of_blocks() -> None:
    """The largest of 2^53 places, for every number of blocks that is dealt by multiplying."""
    for m in range(2, 256):
        assert math.trunc((2**53 - 1) * (m / 2**53)) == m - 1


def test_one_unit_is_in_one_block_whatever_the_type_of_its_number() -> None:
    """A join meets units of several integer types: all are dealt as BIGINT."""
    for m in COUNTS:
        expression = write_block_number("u", m, whole=True).replace(SALT, str(salts(f"types {m}")[0]))
        kinds = ("TINYINT", "UTINYINT", "SMALLINT", "INTEGER", "UINTEGER", "BIGINT")
        found = [
            duckdb.sql(
                f"SELECT {expression} AS b FROM (SELECT CAST(i AS {kind}) AS u FROM range(120) r(i)) AS t ORDER BY u"
            ).fetchall()
            for kind in kinds
        ]
        assert all(blocks == found[0] for blocks in found)


def test_blocks_are_numbered_in_equal_parts() -> None:
    """The ends of 64 bits, and of each part."""
    con = duckdb.connect()
    for blocks in (*range(3, 256, 9), 100, 255):
        if blocks & (blocks - 1) == 0:
            continue
        expression = write_block_number("u", blocks).replace(f"hash(xor(hash(u), {SALT}))", "h")
        part = -(-(2**64) // blocks)
        ends = [0, *(i * part + d for i in range(1, blocks) for d in (-1, 0)), 2**64 - 1]
        query = f"SELECT {expression} FROM (SELECT UNNEST(?::UBIGINT[]) AS h)"
        wanted = [0, *(i + d for i in range(1, blocks) for d in (-1, 0)), blocks - 1]
        assert [row[0] for row in con.execute(query, [ends]).fetchall()] == wanted
        assert 0 <= part * blocks - 2**64 < blocks
