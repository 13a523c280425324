"""Public SQL that makes long texts runs in a process of its own, whose memory and time are bounded."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.catalogue.row_names import PUBLIC_FUNCTIONS
from dpsql.engine import public_sql
from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_sql import GROWING_FUNCTIONS, check_public
from dpsql.errors import BindError, PostprocessingError
from dpsql.policy.model import Budget, Policy, Table
from tests.support.small import open_small

ROWS = pa.table({"n": [3, 40], "k": ["a", "b'"]})
TYPES = [("n", "BIGINT"), ("k", "VARCHAR")]
_NOT_LONGER = (
    # a part of an argument, or it with other letters
    "any_value arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin "
    "constant_or_null decode encode fill first first_value from_base64 from_binary from_hex greatest if lag last "
    "last_value lcase lead least left left_grapheme lower ltrim max max_by median min min_by mode nfc_normalize nth_value "
    "nullif parse_dirname parse_dirpath parse_filename parse_path quantile quantile_cont quantile_disc regexp_extract "
    "regexp_extract_all regexp_split_to_array reverse right right_grapheme rtrim set_bit split split_part str_split "
    "str_split_regex string_split string_split_regex string_to_array strip_accents substr substring "
    "substring_grapheme switch trim ucase unbin unhex upper url_decode ->> & | ~ xor << >> bit_and bit_or bit_xor "
    "json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_type json_value "
    # short, whatever it is made of
    "chr dayname md5 md5_number_lower md5_number_upper monthname format_bytes formatreadabledecimalsize "
    "formatreadablesize pg_size_pretty pg_typeof sha1 sha256 typeof union_tag "
    # counted as they are nested
    "|| concat concat_ws strftime string_agg listagg group_concat"
)
NOT_LONGER = frozenset(_NOT_LONGER.split())
"""Functions that may give texts, read one by one: these alone make no long ones."""
LISTS = ("list", "array", "map", "struct", "union", "json_array_length", "json_exists")
LONG = [
    "len(repeat('x', n * 100000000))",
    "len(list_reduce(list_transform(range(40), lambda i: k || i), lambda x, y: x || x))",
]


class Source:
    def schema(self, table: Table) -> Mapping[str, str]:
        return {"k": "VARCHAR", "h": "HUGEINT"}

    def public(self, table: Table) -> pa.Table:
        return pa.table({"k": ["a"], "h": [7.0]})

    def orders(self, table: Table) -> Mapping[str, tuple[str, ...]]:
        return {}


@pytest.fixture
def finisher() -> Iterator[Finisher]:
    made = Finisher(Source(), Policy(Budget(Fraction(1)), {"wards": Table("wards", public=True)}))
    yield made
    made.close()


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def test_each_function_that_gives_texts_is_known_to_grow_or_not() -> None:
    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT lower(function_name), coalesce(return_type, 'ANY'), function_type FROM duckdb_functions()"
        ).fetchall()
    texts = {
        name for name, kind, _ in rows if kind in ("VARCHAR", "BLOB", "BIT", "JSON", "VARCHAR[]", "JSON[]")
    }
    texts &= PUBLIC_FUNCTIONS
    assert {"repeat", "lower", "strftime"} <= texts
    others = {name for name in texts if not name.startswith(LISTS)} - GROWING_FUNCTIONS - NOT_LONGER
    assert not others - {"bar"}, "say of each of them whether its texts may be long"
    assert not GROWING_FUNCTIONS & NOT_LONGER


@pytest.mark.parametrize(
    ("item", "grows"),
    [
        ("repeat('x', 3)", True), ("k || ': ' || n", False), ("concat_ws(', ', k, n, 'of', k)", False),
        (" || ".join(["k"] * 7), False), (" || ".join(["k"] * 8), True), (f"k || '{'x' * 40000}'", True),
        ("upper(k)", False), (f"k = '{'x' * 40000}'", False), ("list_transform([n], lambda i: k || i)", True),
        ("[[[[[[[k]::VARCHAR]::VARCHAR]::VARCHAR]::VARCHAR]::VARCHAR]::VARCHAR]::VARCHAR", True),
        ("string_agg(k || ', ', '')", False), ("string_agg(k, ',') || string_agg(k, ',')", True),
    ],
)  # fmt: skip
def test_what_may_grow(item: str, grows: bool) -> None:
    assert check_public(f"SELECT {item} AS a FROM b", ["b"], ["n", "k"]).grows is grows


def test_its_answers_are_those_of_the_session(finisher: Finisher, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT repeat('x', n) AS bar, replace(b.k, '''', '-') AS k, h FROM b LEFT JOIN wards USING (k) ORDER BY 1"
    assert finisher.describe(sql, {"b": TYPES}, ["wards"])[0] == ("bar", "VARCHAR")
    apart = finisher.finish(sql, {"b": ROWS}, ["wards"]), finisher.lend(sql, {"b": ROWS}, ["wards"])
    assert finisher._process._process is not None
    finisher.close()
    finisher._process = None
    here = finisher.finish(sql, {"b": ROWS}, ["wards"]), finisher.lend(sql, {"b": ROWS}, ["wards"])
    assert [t.to_pylist() for t in apart] == [t.to_pylist() for t in here]
    assert [t.schema for t in apart] == [t.schema for t in here]
    finisher.close()


@pytest.mark.parametrize("item", LONG)
def test_long_texts_end_with_an_error_and_little_memory(finisher: Finisher, item: str) -> None:
    before = memory()
    with pytest.raises(BindError, match=r"more memory than|takes longer than"):
        finisher.finish(f"SELECT {item} AS a FROM b", {"b": ROWS})
    assert memory() - before < 200
    assert finisher.finish("SELECT repeat(k, 2) AS a FROM b LIMIT 1", {"b": ROWS}).to_pylist() == [
        {"a": "aa"}
    ]


def test_a_step_that_does_not_end_is_ended(finisher: Finisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process such a constant takes half a minute, and nothing stops it."""
    finisher.describe("SELECT repeat(k, 2) AS a FROM b", {"b": TYPES})
    monkeypatch.setattr("dpsql.engine.postprocess.MAX_BINDING_SECONDS", 0.3)
    with pytest.raises(BindError, match=r"takes longer than 0\.3 seconds"):
        finisher.describe("SELECT len(lpad('x', 1000000000, 'y')) AS a FROM b", {"b": TYPES})


def test_errors_are_those_of_the_session(finisher: Finisher) -> None:
    with pytest.raises(BindError, match="there is no column nope") as caught:
        finisher.describe("SELECT repeat(nope, 2) AS a FROM b", {"b": TYPES})
    assert caught.value.name == "nope"
    with pytest.raises(BindError, match="nope is not a function"):
        finisher.describe("SELECT repeat(nope(k), 2) AS a FROM b", {"b": TYPES})


def test_a_stop_ends_the_process(finisher: Finisher, monkeypatch: pytest.MonkeyPatch) -> None:
    finisher.finish("SELECT repeat(k, 2) AS a FROM b", {"b": ROWS})
    process = finisher._process._process
    monkeypatch.setattr(public_sql, "is_stop_requested", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        finisher.finish("SELECT len(lpad('x', 1000000000, 'y')) AS a FROM b", {"b": ROWS})
    assert process.poll() is not None


def test_closing_ends_the_process(finisher: Finisher) -> None:
    finisher.finish("SELECT repeat(k, 2) AS a FROM b", {"b": ROWS})
    process = finisher._process._process
    finisher.close()
    assert process.poll() is not None


def test_what_fails_after_the_payment_says_so_and_is_free_to_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.engine.postprocess.MAX_BINDING_SECONDS", 600)
    monkeypatch.setattr("dpsql.engine.postprocess.MAX_PUBLIC_SECONDS", 600)
    con, session = open_small()
    con.execute("INSERT INTO t SELECT i, 'a', i % 3, i % 5, i, i, i, true FROM range(6) AS r(i)")
    text = "SELECT len(repeat('x', {} + n % 7)) AS a FROM (SELECT COUNT(*) AS n FROM t) AS s"
    with con, session:
        with pytest.raises(PostprocessingError, match=r"more memory than .*ε=1 was paid") as caught:
            session.sql(text.format(3_000_000_000))
        assert "free" in str(caught.value.hint)
        assert session.sql(text.format(2)).loss == "no charge"
        assert isinstance(caught.value, dpsql.Error)
