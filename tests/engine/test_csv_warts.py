"""CSV files with warts: the proposed policy counts as many values as DuckDB's reader, which is given every option by hand."""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engine.proposals import propose_format
from dpsql.engine.text_sources import copy_text
from dpsql.owner.policy_check import check_policy, write_proposals
from dpsql.owner.policy_init import init_policy
from dpsql.policy.model import Format, Table

N = range(40)
D = [(i % 28 + 1, i % 12 + 1, 2000 + i) for i in N]
"""Days, months and years."""


def lines(head: str, row: str, end: str = "\n", **values: list[object]) -> str:
    """Return a heading and rows; a row may use i, d, m, y, and named values in turn."""
    rows = [
        row.format(i=i, d=d, m=m, y=y, **{name: given[i % len(given)] for name, given in values.items()})
        for i, (d, m, y) in zip(N, D, strict=True)
    ]
    return end.join([*([head] if head else []), *rows, ""])


def plain(row: str, **values: list[object]) -> str:
    return lines("id,x", "{i}," + row, "\n", **values)


MISSING: list[object] = ["1", "2", "3", "4", "5"]
SEMI, DAYS = "delim = ';'", "dateformat = '%d.%m.%Y'"
WARTS: dict[str, tuple[str | bytes, str]] = {
    "none": (plain("{i}"), ""),
    "semicolons": (lines("id;x", "{i};{i}"), SEMI),
    "tabs in csv": (lines("id\tx", "{i}\t{i}"), "delim = '\t'"),
    "pipes": (lines("id|x", "{i}|a b"), "delim = '|'"),
    "semicolons with commas within": (lines("id;x", "{i};a, b"), SEMI),
    "commas with semicolons within": (plain("{t}", t=["a;b", "c", "d"]), "delim = ','"),
    "decimal comma": (lines("id;x", "{i};{i},5"), f"{SEMI}, decimal_separator = ','"),
    "decimal comma, tabs": (lines("id\tx", "{i}\t-{i},25"), "delim = '\t', decimal_separator = ','"),
    "newlines in quotes": (lines("id,x,note", '{i},{i}.5,"a\n, ""b"" {i}"'), ""),
    "decimal comma in quotes": (plain('"{i},5"'), "decimal_separator = ','"),
    "thousands": (plain('"{t}"', t=["1,234", "12", "1,234,567"]), "thousands = ','"),
    "thousands and decimals": (plain('"{t}"', t=["1,234.50", "12.25"]), "thousands = ','"),
    "european thousands": (
        lines("id;x", "{i};{t}", t=["1.234,50", "12,5", "1.000.000,00"]), f"{SEMI}, decimal_separator = ',', thousands = '.'",
    ),
    "blanks as thousands": (
        lines("id;x", "{i};{t}", t=["1 234,5", "12,5"]), f"{SEMI}, types = {{'x': 'VARCHAR'}}",
    ),
    "narrow blanks as thousands": (
        lines("id;x", "{i};{t}", t=["1\u202f234,5", "12,5"]), f"{SEMI}, types = {{'x': 'VARCHAR'}}",
    ),
    "apostrophes as thousands": (
        lines("id;x", "{i};{t}", t=["1'234.5", "12.5"]), f"{SEMI}, types = {{'x': 'VARCHAR'}}",
    ),
    "NA": (plain("{t}", t=[*MISSING, "NA"]), "nullstr = 'NA'"),
    "NA in quotes": (plain('"{t}"', t=[*MISSING, "NA"]), "nullstr = 'NA'"),
    "NA among texts": (plain("{t}", t=["NL", "NA", "DE"]), "nullstr = ''"),
    "N/A": (plain("{t}", t=["1.5", "N/A"]), "nullstr = 'N/A'"),
    "NULL": (plain("{t}", t=["2024-01-01", "NULL"]), "nullstr = 'NULL'"),
    "backslash N": (plain("{t}", t=["1", "\\N"]), "nullstr = '\\N'"),
    "a dot": (plain("{t}", t=["1", "."]), "nullstr = '.'"),
    "a dash": (plain("{t}", t=["true", "-"]), "nullstr = '-'"),
    "two words": (plain("{t}", t=["1", "NA", "-", ""]), "nullstr = ['NA', '-', '']"),
    "None of Python": (plain("{t}", t=["1", "None"]), "nullstr = 'None'"),
    "blanks alone": (plain("{t}", t=["1", " "]), "nullstr = ' '"),
    "empty in quotes": (plain('"{t}"', t=["1", ""]), "nullstr = ''"),
    "all empty": (plain(""), ""),
    "German days": (lines("id;x", "{i};{d:02d}.{m:02d}.{y}"), f"{SEMI}, {DAYS}"),
    "short German days": (lines("id;x", "{i};{d}.{m}.{y}"), f"{SEMI}, {DAYS}"),
    "British days": (plain("{d:02d}/{m:02d}/{y}"), "dateformat = '%d/%m/%Y'"),
    "American days": (plain("{m:02d}/{d:02d}/{y}"), "dateformat = '%m/%d/%Y'"),
    "two-digit years": (lines("id;x", "{i};{d:02d}.{m:02d}.{t}", t=["23", "24"]), f"{SEMI}, dateformat = '%d.%m.%y'"),
    "days with names": (plain("{d:02d}-{t}-{y}", t=["Jan", "Feb", "Mar"]), "dateformat = '%d-%b-%Y'"),
    "slashes, year first": (plain("{y}/{m:02d}/{d:02d}"), ""),
    "ISO days": (plain("{y}-{m:02d}-{d:02d}"), ""),
    "days without marks": (plain("{y}{m:02d}{d:02d}"), ""),
    "ISO times": (plain("{y}-{m:02d}-{d:02d}T10:00:00"), ""),
    "times with fractions": (plain("{y}-{m:02d}-{d:02d} 10:00:00.123456"), ""),
    "times in Z": (plain("{y}-{m:02d}-{d:02d}T10:00:00Z"), ""),
    "German times": (
        lines("id;x", "{i};{d:02d}.{m:02d}.{y} 10:{d:02d}"), f"{SEMI}, timestampformat = '%d.%m.%Y %H:%M'",
    ),
    "American times": (plain("{m}/{d}/{y} 1:05:00 PM"), "timestampformat = '%m/%d/%Y %I:%M:%S %p'"),
    "clocks": (plain("10:{d:02d}"), ""),
    "truths": (plain("{t}", t=["true", "false", "True"]), ""),
    "yes and no": (plain("{t}", t=["yes", "no"]), "types = {'x': 'VARCHAR'}"),
    "leading zeros": (plain("{t}", t=["01234", "99999"]), ""),
    "twenty digits": (plain("1234567890123456789{d:02d}"), ""),
    "signs and exponents": (plain("{t}", t=["+1", "-2.5", "1e3"]), ""),
    "per cent": (plain("{d}%"), ""),
    "blanks around numbers": (plain(" {i} "), ""),
    "comments before": ("# made by\n# a tool\n" + plain("{i}"), "comment = '#'"),
    "comments within": (plain("{i}").replace("7,7\n", "7,7\n# half\n"), "comment = '#'"),
    "a title": ("Visits of 2024\n\n" + plain("{i}"), "skip = 2"),
    "a title with a comma": ("Visits, all,\nof 2024\n" + plain("{i}"), "skip = 2"),
    "sep of Excel": ("sep=;\n" + lines("id;x", "{i};{i},5"), f"{SEMI}, skip = 1, decimal_separator = ','"),
    "no heading": (lines("", "{i},{d}"), "header = false, names = ['column1', 'column2']"),
    "years as names": (lines("land,2019,2020", "NL,{i},{d}"), "header = true"),
    "returns": (lines("id,x", "{i},{i}", end="\r"), "new_line = '\\r'"),
    "returns and newlines": (lines("id,x", "{i},{i}", end="\r\n"), ""),
    "a byte order mark": ("\ufeff" + plain("{i}"), ""),
    "UTF-16": (plain("é").encode("utf-16"), "encoding = 'utf-16'"),
    "UTF-16, big end first": (b"\xfe\xff" + plain("é").encode("utf-16-be"), "utf-16-be"),
    "latin-1": (plain("\u00e9").encode("latin-1"), "encoding = 'latin-1'"),
    "blank lines": (plain("{i}").replace("\n", "\n\n"), ""),
    "names in quotes": (lines('"id","x"', '"{i}","{i}"'), ""),
    "single quotes": (plain("'a,{i}'"), "quote = ''''"),
    "quotes doubled": (plain('"say ""{i}"""'), ""),
    "backslashes before quotes": (plain('"say \\"{i}\\""'), "escape = '\\'"),
    "a comma at the end": (lines("id,x,", "{i},{i},"), "names = ['id', 'x', 'rest'], header = false, skip = 1"),
    "some fields in quotes": (plain("{t}", t=['"1"', "2", '"3"', "4.5"]), ""),
    "quoted texts with newlines and delimiters": (lines("id,x", '{i},"{i}, a\nb\n\nc"'), ""),
    "carriage returns within quotes": (lines("id,x", '{i},"a\r\nb"', end="\r\n"), ""),
    "a delimiter at the end of each row": (lines("id,x", "{i},{i},"), "header = false, skip = 1, names = ['id', 'x', 'rest']"),
    "names that occur twice": (lines("id,x,x", "{i},{i},{d}"), "header = false, skip = 1, names = ['id', 'x', 'rest']"),
    "names with blanks, and a byte order mark": (
        "\ufeff" + lines("id, my x ,y z", "{i},{i}.5,{d}"), "header = false, skip = 1, names = ['id', 'my x', 'y z']",
    ),
    "a minus behind numbers": (plain("{t}", t=["1-", "2", "3.5-"]), "types = {'x': 'VARCHAR'}"),
    "parentheses for minus": (plain("{t}", t=["(1)", "2"]), "types = {'x': 'VARCHAR'}"),
    "fractions of a per cent": (plain("{i}.5 %"), ""),
    "currency before": (plain("${i}.50"), ""),
    "currency behind": (lines("id;x", "{i};{i},50 €"), SEMI),
    "currency with thousands": (plain('"{t}"', t=["$1,234.50", "$12.25"]), ""),
    "two-digit years before and after the pivot": (
        plain("{m:02d}/{d:02d}/{t}", t=["68", "69", "99", "00"]), "dateformat = '%m/%d/%y'",
    ),
    "24:00:00": (plain("{t}", t=["24:00:00", "10:00:00"]), "types = {'x': 'VARCHAR'}"),
    "times that end at midnight": (plain("2024-01-{d:02d} {t}", t=["24:00:00", "10:00:00"]), "types = {'x': 'VARCHAR'}"),
    "tabs in quotes": (lines("id\tx", '{i}\t"a\t{i}"'), "delim = '\t'"),
    "a very long line": (plain("{t}", t=["a", "b" * 100_000]), "max_line_size = 10000000"),
    "an empty last column": (lines("id,x,y", "{i},{i},"), ""),
    "an empty first column": (lines("y,id,x", ",{i},{i}"), ""),
    "a row of totals": (lines("id,x", "{i},{i}") + "Total,780\n", ""),
    "blank rows of delimiters": (lines("id,x", "{i},{i}") + ",\n,\n", ""),
    "hexadecimal": (plain("0x{i:02x}"), ""),
    "underscores in numbers": (plain("1_{i:03d}"), ""),
    "infinity": (plain("{t}", t=["1.5", "inf", "-Infinity"]), ""),
    "dates without leading zeros": (plain("{y}-{m}-{d}"), ""),
    "moments with an offset": (plain("{y}-{m:02d}-{d:02d} 10:00:00+02:00"), ""),
    "month names in full": (plain('"{t} {d}, {y}"', t=["March", "May"]), "dateformat = '%B %d, %Y'"),
    "unix seconds": (plain("17000000{d:02d}"), ""),
    "NUL": (plain("a\0b").encode(), "types = {'x': 'VARCHAR'}"),
    "non-breaking blanks around numbers": (plain("\u00a0{i}"), ""),
    "quotes within unquoted text": (plain("5\" pipe {i}"), "quote = ''"),
    "semicolon at the end of each row and name": (
        lines("id;x;", "{i};{i};"), f"{SEMI}, header = false, skip = 1, names = ['id', 'x', 'rest']",
    ),
    "a comment at the end": (plain("{i}") + "# end\n", "comment = '#'"),
    "leading plus in phone numbers": (plain("+31{i:08d}"), ""),
    "scientific with comma": (lines("id;x", "{i};1,5E+0{t}", t=[1, 2]), f"{SEMI}, decimal_separator = ','"),
    "a sep line with a tab": ("sep=\t\n" + lines("id\tx", "{i}\t{i}"), "delim = '\t', skip = 1"),
    "fields longer than the heading": (lines("id,x", "{t}", t=["1,2", "1,2", "1,2,3"]), "ignore_errors = true"),
}  # fmt: skip
assert len(WARTS) >= 100


def count_by_hand(path: Path, options: str) -> dict[str, int]:
    if options == "utf-16-be":  # which DuckDB does not read
        path = path.with_name("again.csv")
        path.write_text(path.with_name("t.csv").read_text("utf-16"), "utf-8")
        options = ""
    given = "" if "header" in options else ", header = true"
    with duckdb.connect() as con:
        scan = f"read_csv('{path}', sample_size = -1{f', {options}' if options else ''}{given})"
        names = [row[0] for row in con.execute(f"DESCRIBE FROM {scan}").fetchall()]
        counts = ", ".join(f'COUNT("{name}")' for name in names)
        return dict(zip(names, con.execute(f"SELECT {counts} FROM {scan}").fetchone() or (), strict=True))


def count_as_proposed(path: Path) -> dict[str, int]:
    found = propose_format(Table("t", public=True, source=str(path)), [str(path)])
    table = Table("t", public=True, source=str(path), format=None if found.form == Format() else found.form)
    with duckdb.connect() as con:
        copy_text(con, "t", table, found.types, [str(path)])
        counts = ", ".join(f'COUNT("{name}")' for name in found.types)
        return dict(zip(found.types, con.execute(f"SELECT {counts} FROM t").fetchone() or (), strict=True))


@pytest.mark.parametrize("wart", WARTS)
def test_as_many_values_as_duckdb(tmp_path: Path, wart: str) -> None:
    data, options = WARTS[wart]
    path = tmp_path / "t.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    expected = {name: count for name, count in count_by_hand(path, options).items() if name != "rest"}
    assert count_as_proposed(path) == expected


def types_of(tmp_path: Path, data: str) -> tuple[dict[str, object], dict[str, str], dict[str, str]]:
    path = tmp_path / "t.csv"
    path.write_text(data)
    found = propose_format(Table("t", public=True, source=str(path)), [str(path)])
    return dict(found.settings), dict(found.types), dict(found.notes)


def test_types_and_formats(tmp_path: Path) -> None:
    row = "{i};{i},5;{d:02d}.{m:02d}.{y};{t}"
    settings, types, notes = types_of(tmp_path, lines("id;cost;day;name", row, t=["a", "b"]))
    assert settings == {"delimiter": ";", "decimal": ",", "date_format": "%d.%m.%Y"}
    assert types == {"id": "BIGINT", "cost": "DOUBLE", "day": "DATE", "name": "VARCHAR"}
    assert notes == {}


def test_doubts_are_said(tmp_path: Path) -> None:
    _, types, notes = types_of(tmp_path, plain("01/02/2024"))
    assert types["x"] == "DATE"
    assert notes == {"x": "each value also fits %m/%d/%Y"}
    _, types, notes = types_of(tmp_path, lines("id,x,y", "{i},{d:02d}.{m:02d}.{y},{y}-{m:02d}-{d:02d}"))
    assert (types["x"], types["y"]) == ("VARCHAR", "DATE")
    assert "a file has one date_format" in notes["x"]


def test_numbers_keep_their_value(tmp_path: Path) -> None:
    """A number in another format is NULL, and never another number."""
    path = tmp_path / "t.csv"
    path.write_text("x\n1.234,5\n1,5\n1.5\n12.34,5\n-1.000\n,5\n1e3\nx\n")
    form = Format(delimiter=";", decimal=",", thousands=".")
    with duckdb.connect() as con:
        copy_text(
            con, "t", Table("t", public=True, source=str(path), format=form), {"x": "DOUBLE"}, [str(path)]
        )
        found = [row[0] for row in con.execute("SELECT x FROM t").fetchall()]
    assert found == [1234.5, 1.5, None, None, -1000, 0.5, 1000, None]


POLICY = """# mine
[budget]
epsilon = 1e9  # all of it
default_epsilon = 1e6
max_epsilon_per_query = 1e7

[tables.t]
source = "t.csv"  # the file
privacy_unit = "id"
max_rows = 2

[tables.t.columns]
age = { bounds = [0, 150] }  # nobody is older
"""
DATA = "# by a tool\n" + lines(
    "id;age;cost;day", "{i};{d};{t};{d:02d}.{m:02d}.{y}", t=["1,5", "NA", "1.234,5"]
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_is_written_is_answered_and_the_rest_of_the_policy_stays(tmp_path: Path, end: str) -> None:
    (tmp_path / "t.csv").write_text(DATA)
    policy = tmp_path / "policy.toml"
    policy.write_bytes(POLICY.replace("\n", end).encode())
    findings = check_policy(policy)
    assert "Nothing is missing" not in str(findings)
    assert write_proposals(policy, findings) == 5
    text = policy.read_bytes().decode()
    assert text.count(end) == text.count("\n")
    assert [line for line in POLICY.splitlines() if line not in text.splitlines()] == [
        "age = { bounds = [0, 150] }  # nobody is older"
    ]
    assert 'age = { type = "BIGINT", bounds = [0, 150] }  # nobody is older' in text
    assert text.count("GUESS") == 4
    findings = check_policy(policy)
    assert findings.missing == []
    assert "as far as the first 10,000 rows of t.csv show" in str(findings)
    assert write_proposals(policy, findings) == 0
    with dpsql.connect(policy=policy) as session:
        query = "SELECT COUNT(*), COUNT(age), COUNT(cost), COUNT(day) FROM t"
        assert session.sql(query).fetchone() == (40, 40, 27, 40)
        assert session.sql("SELECT COUNT(*) FROM t WHERE cost > 1000").fetchone() == (13,)


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [
        ("DATE", ["31.12.2024"] * 40, "t: its format"),
        ("BIGINT", ["1"] * 29 + ["x"] * 11, "t.x: at least a quarter of its values"),
        ("BIGINT", ["1"] * 39 + ["x"], "t.x: some values"),
        ("BIGINT", ["1"] * 39 + ['"1'], "t: some of"),
    ],
)
def test_nothing_is_missing_is_not_said_where_values_are_lost(
    tmp_path: Path, kind: str, rows: list[str], said: str
) -> None:
    (tmp_path / "t.csv").write_text("id,x\n" + "".join(f"{i},{row}\n" for i, row in enumerate(rows)))
    typed = f'id = {{ type = "BIGINT" }}\nx = {{ type = "{kind}" }}\n'
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.partition("age")[0] + typed)
    for whole in (False, True):
        found = str(check_policy(policy, rows=whole))
        assert said in found
        assert "Nothing is missing" not in found


def test_words_after_the_sample_are_found_with_data_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("engine.proposals", "owner.source_checks"):
        monkeypatch.setattr(f"dpsql.{module}.SAMPLE_ROWS", 20)
    (tmp_path / "t.csv").write_text(plain("{i}") + "41,x\n")
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.partition("age")[0] + 'id = { type = "BIGINT" }\nx = { type = "BIGINT" }\n')
    assert "Nothing is missing, as far as the first 20 rows of t.csv show." in str(check_policy(policy))
    assert "some values in all rows of t.csv" in str(check_policy(policy, rows=True))


def test_a_first_policy_of_a_file_with_warts_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, pack in (
        ("t.csv", bytes),
        ("u.csv.gz", gzip.compress),
        ("v.csv.zst", pa.Codec("zstd").compress),
    ):
        data = pack(DATA.encode("utf-16"))
        Path(name).write_bytes(data if isinstance(data, bytes) else data.to_pybytes())
        text = init_policy(name, unit="id").text.replace("epsilon = 1 ", "epsilon = 1e9")
        text = text.replace('= "TODO"', "= 2")
        text = text.replace("bounds = 2", "bounds = [0, 9999]").replace("max_epsilon_per_query = 0.5", "")
        table = name.partition(".")[0]
        with dpsql.connect(policy=dpsql.Policy.loads(text)) as session:
            query = f"SELECT WITH DP OPTIONS (epsilon = 1e6) COUNT(*), COUNT(cost), COUNT(day) FROM {table}"
            assert session.sql(query).fetchone() == (40, 27, 40)


@pytest.mark.parametrize(
    "wrong",
    ['null = []', 'null = [1]', 'null = ["a", "a"]', 'decimal = "5"', 'decimal = ",", thousands = ","', 'thousands = "ab"',
     'comment = "x"', 'comment = ","', 'comment = "#", quoted_newlines = true', 'skip = -1', 'encoding = "utf-7"'],
)  # fmt: skip
def test_formats_that_are_refused(wrong: str) -> None:
    text = POLICY.replace("privacy_unit", f"format = {{ delimiter = ',', {wrong} }}\nprivacy_unit")
    with pytest.raises(dpsql.PolicyError):
        dpsql.Policy.loads(text)


def test_a_first_row_decides_nothing_about_the_others(tmp_path: Path) -> None:
    """Without a heading, a carriage return in the first row ends no other line."""
    path = tmp_path / "t.csv"
    rows = {}
    for first in ("0,a", "0,a\rb"):
        path.write_bytes(f"{first}\n1,c\rd\n2,e\n".encode())
        with duckdb.connect() as con:
            table = Table("t", public=True, source=str(path), format=Format(header=False))
            copy_text(con, "t", table, {"id": "BIGINT", "x": "VARCHAR"}, [str(path)])
            rows[first] = con.execute("SELECT id, x FROM t WHERE id > 0").fetchall()
    assert rows["0,a"] == rows["0,a\rb"] == [(1, "c\rd"), (2, "e")]
