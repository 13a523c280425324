"""Spreadsheets (.xlsx) as sources: each cell becomes a text, which is read as the policy's type."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import duckdb
import pytest

import dpsql
from dpsql.engine import text_sources
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.owner.policy_check import check_policy
from dpsql.owner.policy_init import init_policy

pytest.importorskip("fastexcel")

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
DATE = "date"
"""The marker of a number that is shown as a date: ``(DATE, 45292)`` is 2024-01-01."""


def _write_cell(place: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f'<c r="{place}" s="1"><v>{value[1]}</v></c>'
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str) and value.startswith("#"):
        return f'<c r="{place}" t="e"><v>{value}</v></c>'
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    return f'<c r="{place}"><v>{value}</v></c>'


def write_book(path: Path, **sheets: Sequence[Sequence[Any]]) -> None:
    """Write a workbook of sheets of rows."""
    listed = list(sheets)
    names = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="r{i}"/>' for i, n in enumerate(listed, start=1))
    kind = f"{_OFFICE}/worksheet"
    links = "".join(
        f'<Relationship Id="r{i}" Type="{kind}" Target="worksheets/s{i}.xml"/>'
        for i in range(1, len(listed) + 1)
    )
    links += f'<Relationship Id="st" Type="{_OFFICE}/styles" Target="styles.xml"/>'
    first = f'<Relationship Id="r" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    formats = '<xf numFmtId="0"/><xf numFmtId="14"/>'
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}">{first}</Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}">{links}</Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><cellXfs count="2">{formats}</cellXfs></styleSheet>',
    }
    for number, rows in enumerate(sheets.values(), start=1):
        written = ""
        for at, row in enumerate(rows, start=1):
            cells = "".join(_write_cell(f"{chr(65 + place)}{at}", value) for place, value in enumerate(row))
            written += f'<row r="{at}">{cells}</row>'
        sheet = f'<worksheet xmlns="{_MAIN}"><sheetData>{written}</sheetData></worksheet>'
        parts[f"xl/worksheets/s{number}.xml"] = sheet
    with zipfile.ZipFile(path, "w") as book:
        for name, text in parts.items():
            book.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')


HEAD = ["unit", " amount ", "day", "word", "ok", "whole"]
ROWS: list[list[Any]] = [
    [i, i + 0.5, (DATE, 45292 + i), None if i % 4 == 0 else f"w{i % 3}\nx", i % 2 == 0, i] for i in range(40)
]
TYPES = {
    "unit": "BIGINT", "amount": "DOUBLE", "day": "DATE", "word": "VARCHAR", "ok": "BOOLEAN", "whole": "BIGINT",
}  # fmt: skip


def make_policy(source: str, more: str = "", types: dict[str, str] = TYPES) -> str:
    typed = "".join(f"columns.{name}.type = '{kind}'\n" for name, kind in types.items())
    return (
        "[budget]\nepsilon = 1e9\naccountant = 'basic'\ndefault_epsilon = 1e6\n[tables.t]\n"
        f"source = '{source}'\nprivacy_unit = 'unit'\nmax_rows = 3\n{typed}columns.amount.bounds = [0, 40]\n{more}"
    )


@pytest.mark.parametrize("more", ["", "format = { sheet = 'Visits', skip = 2 }\n"])
def test_cells_have_the_types_of_the_policy(tmp_path: Path, more: str) -> None:
    rows = [HEAD, *ROWS[:20], [], [None] * 6, *ROWS[20:]]
    if more:
        write_book(tmp_path / "b.xlsx", Other=[["x"]], Visits=[["Visits of 2024"], [], *rows])
    else:
        write_book(tmp_path / "b.xlsx", Visits=rows, Other=[["x"]])
    (tmp_path / "policy.toml").write_text(make_policy("b.xlsx", more))
    with dpsql.connect(policy=tmp_path / "policy.toml") as session:
        counts = "SELECT COUNT(*), COUNT(amount), COUNT(word), COUNT_IF(ok), COUNT(whole) FROM t"
        assert session.sql(counts).fetchone() == (40, 40, 30, 20, 40)
        assert round(session.sql("SELECT SUM(amount) FROM t").fetchall()[0][0]) == 800
        days = (
            "SELECT COUNT(*) FROM t WHERE day BETWEEN '2024-01-02' AND '2024-01-11' AND ends_with(word, 'x')"
        )
        assert session.sql(days).fetchone() == (8,)


EXTREMES: list[Any] = [
    1e300, -1e300, "1e400", (DATE, 1e10), (DATE, -1e10), (DATE, 1e308), (DATE, 0.5), (DATE, 2958466), "#N/A", "#DIV/0!",
    "x" * 32_767, "=cmd()", "\u2028", True, "2024-01-01 00:00:00", (DATE, "nan"),
]  # fmt: skip


@pytest.mark.parametrize("place", range(6))
def test_no_cell_decides_about_another_row(tmp_path: Path, place: int) -> None:
    """One person's row has an extreme, in each column and right of the last one."""
    policy = dpsql.Policy.loads(make_policy("b.xlsx"))
    seen = []
    for extreme in ([], *([value] for value in EXTREMES)):
        row: list[Any] = [999, 1, (DATE, 45292), "w", True, 1, None, None]
        row[place + 2 if place else 0 if not extreme else 7] = extreme[0] if extreme else None
        write_book(tmp_path / "b.xlsx", Sheet1=[HEAD, *ROWS[:20], row, *ROWS[20:]])
        engine = DuckDBEngine(":memory:", policy, tmp_path)
        relation = engine.relation(policy.tables["t"])
        found = engine.execute(f"SELECT * FROM {relation} WHERE unit BETWEEN 0 AND 39 ORDER BY unit")
        seen.append((dict(engine.schema(policy.tables["t"])), found.to_pylist()[2:]))
        engine.close()
    assert len(seen[0][1]) == 38
    assert all(one == seen[0] for one in seen)


def test_the_first_policy_proposes_types_and_the_check_counts(tmp_path: Path) -> None:
    write_book(tmp_path / "b.xlsx", Sheet1=[HEAD, *ROWS])
    text = init_policy(str(tmp_path / "b.xlsx")).text
    for name, kind in (("amount", "DOUBLE"), ("day", "DATE"), ("ok", "BOOLEAN"), ("whole", "BIGINT")):
        assert any(line.startswith(name) and f'"{kind}"' in line for line in text.splitlines()), text
    (tmp_path / "p.toml").write_text(make_policy("b.xlsx", types={**TYPES, "word": "BIGINT"}))
    assert "t.word: at least a quarter of its values" in str(check_policy(tmp_path / "p.toml", rows=True))
    (tmp_path / "p.toml").write_text(make_policy("b.xlsx"))
    assert "as far as all rows of b.xlsx show" in str(check_policy(tmp_path / "p.toml", rows=True))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("format = { sheet = 'None' }", "can't be read"),
        ("format = { delimiter = ';' }", "XLSX has no delimiter"),
        ("format = { records = 'array' }", "XLSX has no records"),
        ("columns.other.type = 'BIGINT'", "t.other is in the policy but not in b.xlsx"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_session_opens(tmp_path: Path, more: str, said: str) -> None:
    write_book(tmp_path / "b.xlsx", Sheet1=[HEAD, *ROWS])
    with pytest.raises(dpsql.PolicyError, match=said):
        dpsql.connect(policy=dpsql.Policy.loads(make_policy(f"{tmp_path}/b.xlsx", more)))


def test_files_that_are_no_spreadsheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.xlsx"
    for content in (b"", b"unit,amount\n1,2\n", b"PK\x03\x04 and no more"):
        path.write_bytes(content)
        with pytest.raises(dpsql.PolicyError):
            dpsql.connect(policy=dpsql.Policy.loads(make_policy(str(path))))
        with pytest.raises(dpsql.PolicyError, match="can't be read as XLSX"):
            init_policy(str(path))
    with pytest.raises(dpsql.PolicyError, match="CSV has no sheet"):
        dpsql.Policy.loads(make_policy("b.csv", "format = { sheet = 'a' }"))
    monkeypatch.setattr(text_sources.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(dpsql.PolicyError, match="needs the library fastexcel") as caught:
        dpsql.connect(policy=dpsql.Policy.loads(make_policy(str(path))))
    assert caught.value.hint == "pip install 'dpsql[excel]'"


def test_several_books_are_one_table_that_grows(tmp_path: Path) -> None:
    write_book(tmp_path / "a.xlsx", Sheet1=[HEAD, *ROWS[:10]])
    (tmp_path / "policy.toml").write_text(make_policy("*.xlsx"))
    with duckdb.connect(), dpsql.connect(policy=tmp_path / "policy.toml") as session:
        assert session.sql("SELECT COUNT(*) FROM t").fetchone() == (10,)
        write_book(tmp_path / "b.xlsx", Sheet1=[list(reversed(HEAD)), *(row[::-1] for row in ROWS[10:])])
        assert session.sql("SELECT COUNT(*) FROM t").fetchone() == (40,)
        assert session.sql(
            "SELECT COUNT(*) FROM t WHERE whole = unit AND amount = unit + 0.5"
        ).fetchone() == (40,)
