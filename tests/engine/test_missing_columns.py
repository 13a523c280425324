"""Text files that lack the policy's columns, and frames with columns that no engine reads: refused as a session opens."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.owner.policy_check import check_policy

POLICY = """
[budget]
epsilon = 1e9
default_epsilon = 1e6
[tables.t]
{source}
privacy_unit = "uid"
max_rows = 5
{more}
[tables.t.columns]
uid = {{ type = "INTEGER" }}
x = {{ type = "INTEGER" }}
"""
ROWS = "".join(f"{i},{i}\n" for i in range(50))


def opened(folder: Path, name: str, data: bytes, more: str = "") -> dpsql.Session:
    path = folder / name
    path.write_bytes(data)
    policy = POLICY.format(source=f'source = "{path}"', more=more)
    return dpsql.connect(policy=dpsql.Policy.loads(policy), ledger=folder / f"{name}.ledger")


@pytest.mark.parametrize(
    ("name", "data", "missing"),
    [
        ("semicolons.csv", "uid;x\n" + ROWS.replace(",", ";"), "uid"),
        ("comment.csv", "# a comment\nuid,x\n" + ROWS, "uid"),
        ("bare.csv", ROWS, "uid"),
        ("tabs.csv", "uid\tx\n" + ROWS.replace(",", "\t"), "uid"),
        ("other.csv", "uid,y\n" + ROWS, "x"),
    ],
)
def test_a_text_file_without_the_policys_columns_is_refused(
    tmp_path: Path, name: str, data: str, missing: str
) -> None:
    with pytest.raises(dpsql.PolicyError, match=rf"t\.{missing} is in the policy but not in {name}"):
        opened(tmp_path, name, data.encode())


SECRET = "5000,rare disease\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bare.csv", SECRET + ROWS),
        ("like.csv", "uidd,xx\n" + ROWS),
        ("semicolons.csv", SECRET.replace(",", ";")),
        ("tabs.tsv", SECRET.replace(",", "\t") + ROWS),
    ],
)
def test_a_session_repeats_nothing_of_a_first_line_that_may_be_a_row(
    tmp_path: Path, name: str, data: str
) -> None:
    with pytest.raises(dpsql.PolicyError) as caught:
        opened(tmp_path, name, data.encode())
    said = str(caught.value)
    assert not any(word in said for word in ("5000", "rare", "uidd", "xx"))
    assert "dpsql policy check" in said


def test_a_name_like_the_missing_one_is_repeated_beside_another_of_the_policys_columns(
    tmp_path: Path,
) -> None:
    with pytest.raises(dpsql.PolicyError, match=r"Did you mean uidd\?"):
        opened(tmp_path, "near.csv", ("uidd,x,secret\n" + ROWS).encode())


def test_the_owners_check_shows_what_the_file_has(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text(SECRET + ROWS)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(source='source = "bare.csv"', more=""))
    (missing,) = [line for line in check_policy(policy).missing if "uid" in line]
    assert "t.uid is in the policy but not in bare.csv" in missing
    assert (
        "bare.csv has 5000, rare disease where names of columns are expected." in check_policy(policy).missing
    )


def test_another_encoding_is_refused_and_carriage_returns_are_read(tmp_path: Path) -> None:
    data = ("uid,x\n" + ROWS).encode("utf-16")
    with pytest.raises(dpsql.PolicyError, match="is in the policy but not in"):
        opened(tmp_path, "wide.csv", data)
    for name, given, more in (
        ("declared.csv", data, 'format = { encoding = "utf-16" }'),
        ("returns.csv", ("uid,x\n" + ROWS).replace("\n", "\r").encode(), ""),
    ):
        with opened(tmp_path, name, given, more) as session:
            assert session.sql("SELECT COUNT(*), COUNT(x) FROM t").fetchone() == (50, 50)


@pytest.mark.parametrize(
    ("name", "data", "more"),
    [
        ("plain.csv", "uid,x\n" + ROWS, ""),
        ("case.csv", "X,UID\n" + ROWS, ""),
        ("mark.csv", "\ufeffuid,x\n" + ROWS, ""),
        ("semicolons.csv", "uid;x\n" + ROWS.replace(",", ";"), 'format = { delimiter = ";" }'),
        ("bare.csv", ROWS, "format = { header = false }"),
        ("tabs.tsv", "uid\tx\n" + ROWS.replace(",", "\t"), ""),
        ("some.jsonl", "".join(f'{{"uid": {i}, "x": {i}}}\n' for i in range(50)), ""),
    ],
)
def test_a_text_file_with_them_is_read(tmp_path: Path, name: str, data: str, more: str) -> None:
    with opened(tmp_path, name, data.encode(), more) as session:
        assert session.sql("SELECT COUNT(*), COUNT(x) FROM t").fetchone() == (50, 50)


def test_an_optional_key_of_json_and_a_source_without_rows_are_no_mistakes(tmp_path: Path) -> None:
    with opened(tmp_path, "short.jsonl", b'{"uid": 1}\n') as session:
        assert session.sql("SELECT COUNT(*), COUNT(x) FROM t").fetchone() == (1, 0)
    for name, data, more in (
        ("heading.csv", b"uid,x\n", ""),
        ("empty.csv", b"", "format = { header = false }"),
        ("empty.jsonl", b"", ""),
    ):
        with opened(tmp_path, name, data, more) as session:
            assert session.sql("SELECT COUNT(*) FROM t").fetchone() == (0,)


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_lacks_its_first_line(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(dpsql.PolicyError, match=r"empty.csv of t is empty: it has no first line"):
        opened(tmp_path, "empty.csv", data)


def test_one_file_of_several_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "part-0.csv").write_bytes(b"")
    with opened(tmp_path, "part-1.csv", ("uid,x\n" + ROWS).encode()):
        pass
    policy = POLICY.format(source=f'source = "{tmp_path}/part-*.csv"', more="")
    with dpsql.connect(policy=dpsql.Policy.loads(policy), ledger=tmp_path / "ledger") as session:
        assert session.sql("SELECT COUNT(*) FROM t").fetchone() == (50,)


WIDE = [
    (ROWS.replace("\n", ",,\n"), ""),
    (ROWS.replace("\n", ",,\n"), "format = { quoted_newlines = true }"),
    (ROWS.replace(",", ";"), ""),
    (ROWS.replace(",", ",7,") * 3, ""),
]


@pytest.mark.parametrize(("rows", "more"), WIDE)
def test_the_owners_check_lists_rows_that_all_have_another_width(
    tmp_path: Path, rows: str, more: str
) -> None:
    (tmp_path / "wide.csv").write_text("uid,x\n" + rows)
    (tmp_path / "policy.toml").write_text(POLICY.format(source='source = "wide.csv"', more=more))
    if ";" in rows:
        assert "t: its format, as the first lines" in str(check_policy(tmp_path / "policy.toml"))
        return
    words = "none of the first 100 rows of wide.csv has as many fields as its first line"
    assert [words in line for line in check_policy(tmp_path / "policy.toml").missing].count(True) == 1
    (tmp_path / "wide.csv").write_text("uid,x\n" + rows + "5000,1\n")
    said = [words in line for line in check_policy(tmp_path / "policy.toml").missing]
    assert said.count(True) == (rows.count("\n") >= 100)


@pytest.mark.parametrize("more", ["", "format = { quoted_newlines = true }"])
def test_one_delimiter_at_the_end_of_each_row_is_ignored(tmp_path: Path, more: str) -> None:
    (tmp_path / "wide.csv").write_text("uid, x\n" + ROWS.replace("\n", ",\n"))
    (tmp_path / "policy.toml").write_text(POLICY.format(source='source = "wide.csv"', more=more))
    assert not any("wide.csv" in line for line in check_policy(tmp_path / "policy.toml").missing)
    with dpsql.connect(policy=tmp_path / "policy.toml") as session:
        assert session.sql("SELECT COUNT(*), COUNT(x) FROM t").fetchone() == (50, 50)


@pytest.mark.parametrize("records", ['{"id": 1, "x": 2}\n' * 20, "uid,x\n" + ROWS, "\n\n\n"])
def test_the_owners_check_lists_json_without_the_units_column(tmp_path: Path, records: str) -> None:
    (tmp_path / "other.jsonl").write_text(records)
    (tmp_path / "policy.toml").write_text(POLICY.format(source='source = "other.jsonl"', more=""))
    assert any("of other.jsonl has uid" in line for line in check_policy(tmp_path / "policy.toml").missing)


OF_OTHERS = [
    *(("wide.csv", "uid,x\n" + rows, "5000,1\n", more) for rows, more in WIDE),
    ("other.jsonl", '{"id": 1, "x": 2}\n' * 20, '{"uid": 5000, "x": 1}\n', ""),
    ("csv.jsonl", "uid,x\n" + ROWS, '{"uid": 5000, "x": 1}\n', ""),
    ("blank.jsonl", "\n\n\n", '{"uid": 5000, "x": 1}\n', ""),
    ("empty.json", "[]", '[{"uid": 5000, "x": 1}]', 'format = { records = "array" }'),
    ("returns.csv", "uid,x\r", "5000,1\r", ""),
    ("heading.csv", "uid,x\n", "5000,1,2\n", ""),
    ("heading.csv", "uid,x\n", '5000,"1\n', ""),
    ("null.csv", "uid,x\n", "5000,\0\n", ""),
    ("long.csv", "uid,x\n", "5000," + "1" * (5 << 20) + "\n", ""),
]


@pytest.mark.parametrize(("name", "others", "person", "more"), OF_OTHERS)
def test_no_row_decides_how_a_session_over_a_bad_file_ends(
    tmp_path: Path, name: str, others: str, person: str, more: str
) -> None:
    """All other rows are unreadable, or there are none: with and without the person, first or last."""
    ends = set()
    first, newline, rest = others.partition("\n") if name.endswith("csv") else ("", "", others)
    for place, data in enumerate((others, others + person, first + newline + person + rest, person)):
        if (place == 3 and name.endswith("csv")) or (place in (1, 2) and name == "empty.json"):
            continue  # no file of that format
        (tmp_path / str(place)).mkdir()
        try:
            with opened(tmp_path / str(place), name, data.encode(), more) as session:
                result = session.sql("SELECT COUNT(*), COUNT(x) FROM t")
                ends.add((*result.columns, *result.notes, result.loss))
        except dpsql.PolicyError as error:
            ends.add((error.message, error.hint))
    assert len(ends) == 1


@pytest.mark.parametrize("rows", ["1,2,3\n" * 9, "1,2,3\n" * 50 + ROWS, '"a,b",2,3\n' * 50 + '"1",1\n'])
def test_rows_of_which_some_fit_are_read(tmp_path: Path, rows: str) -> None:
    fitting = rows.count("\n") - rows.count("2,3\n")
    with opened(tmp_path, "some.csv", ("uid,x\n" + rows).encode()) as session:
        assert session.sql("SELECT COUNT(*) FROM t").fetchone() == (fitting,)


BARE = "[budget]\nepsilon = 1e9\ndefault_epsilon = 1e6\n[tables.t]\nprivacy_unit = 'uid'\nmax_rows = 5\n"
KINDS = {
    "union": pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]),
    "halves in a list": pa.array([[np.float16(1)]] * 3, pa.list_(pa.float16())),
    "halves in a struct": pa.array([{"a": np.float16(1)}] * 3, pa.struct([("a", pa.float16())])),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_no_engine_reads_is_named(tmp_path: Path, kind: str) -> None:
    frame = pa.table({"uid": [1, 2, 3], "odd": KINDS[kind]})
    with pytest.raises(dpsql.PolicyError, match="column odd of t"):
        dpsql.connect({"t": frame}, policy=dpsql.Policy.loads(BARE), ledger=tmp_path / "ledger")


def test_half_floats_and_wide_decimals_are_read(tmp_path: Path) -> None:
    frame = pa.table(
        {
            "uid": [1, 2, 3],
            "half": pa.array(np.array([1, 2, 3], np.float16)),
            "wide": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2)], pa.decimal256(50, 2)),
        }
    )
    with dpsql.connect({"t": frame}, policy=dpsql.Policy.loads(BARE), ledger=tmp_path / "ledger") as session:
        assert session.sql("SELECT COUNT(*) FROM t WHERE half >= 2").fetchone() == (2,)
        assert session.sql("SELECT COUNT(wide), COUNT(*) FILTER (WHERE wide = 1.5) FROM t").fetchone() == (
            2,
            1,
        )


KEYS = pa.table(
    {
        "uid": range(40),
        "s": pa.array([{"a": None, "NULL": 1}] * 40),
        "l": pa.array([[None]] * 40),
        "e": pa.array([[]] * 40),
        "n": pa.array([{"a": {"b": [None]}}] * 40),
    }
)
ABOVE = (
    "SELECT {k} AS k, COUNT(*) AS c FROM t GROUP BY k HAVING COUNT(*) > 5",
    "SELECT {k} AS k, COUNT(*) AS c FROM t GROUP BY k ORDER BY k DESC NULLS FIRST",
    "SELECT k, c FROM (SELECT {k} AS k, COUNT(*) AS c FROM t GROUP BY k) WHERE c > 5 AND k IS NOT NULL",
)


@pytest.fixture(scope="module")
def of_nulls() -> Iterator[dpsql.Session]:
    policy = BARE.replace("[tables.t]", "delta = 0.1\ndefault_delta = 1e-6\n[tables.t]") + "max_groups = 1\n"
    with dpsql.connect({"t": KEYS}, policy=dpsql.Policy.loads(policy)) as session:
        yield session


@pytest.mark.parametrize("key", ["s", "l", "e", "n", "n.a"])
def test_a_key_whose_parts_are_all_null_is_used_above(of_nulls: dpsql.Session, key: str) -> None:
    (value,) = KEYS.column(key[0]).slice(0, 1).to_pylist()
    for text in ABOVE:
        found = of_nulls.sql(text.format(k=key)).fetchall()
        assert found == [(value["a"] if "." in key else value, 40)]
