"""Edits of a policy's text: values are set, all else stays, and a text that can't be edited safely is refused."""

from __future__ import annotations

from typing import Any

import pytest

import dpsql
from dpsql.policy.toml import parse_toml, set_values

TABLE = ("tables", "v")
CHANGES = {
    (*TABLE, "columns", "age", "type"): "BIGINT",
    (*TABLE, "columns", "day", "type"): "DATE",
    (*TABLE, "columns", "new one", "type"): "VARCHAR",
    (*TABLE, "format", "decimal"): ",",
    (*TABLE, "format", "null"): ["", "NA"],
}
SECTIONS = """[budget]
epsilon = 1  # all
[tables.v]
source = "v.csv"   # here
privacy_unit = "u"

[tables.v.columns]
age = { bounds = [0, 120] }   # "years" = {x}
day = { type = "TODO" }  # which?

# another
[tables.w]
public = true
"""
TEXTS = {
    "sections": SECTIONS,
    "no end of line": SECTIONS.rstrip(),
    "dotted": """[tables.v]
columns.age = { bounds = [0, 120] }
columns.day.bounds = [2020-01-01, 2021-01-01] # x
format.delimiter = ";"
""",
    "a section each": """[tables.v]
source = "v = {.csv"
[tables.v.format]
null = [ "a]", # one
  'b' ]
[tables.v.columns.age]
bounds = [0, 1]
""",
    "an empty format": '[tables.v]\nsource = "v.csv"\nformat = {}\n',
    "nothing": '[tables.v]\nsource = "v.csv"',
    "two tables": '[tables.v]\nsource = "v.csv"\n[tables.v2]\nsource = "v.csv"\n[tables.v2.columns]\nage = {}\n',
    "comments at the end": '[tables.v]\nsource = "v.csv"\n# the end\n\n',
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_values_are_set_and_lines_stay(kind: str, end: str, mark: str) -> None:
    text = mark + TEXTS[kind].replace("\n", end)
    made = set_values(text, "p", CHANGES, "GUESS")
    assert made.startswith("\ufeff") == bool(mark)
    assert made.count(end) == made.count("\n")
    data = parse_toml(made, "p").data
    for keys, value in CHANGES.items():
        found: Any = data
        for key in keys:
            found = found[key]
        assert found == value
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    kept = [comment for comment in comments if comment in made]
    assert comments == kept or kind == "a section each"  # one is within a value that is replaced
    assert set_values(made, "p", CHANGES, "GUESS") == made


@pytest.mark.parametrize("text", ['tables.v = { source = "v.csv" }\n', "[budget]\n", "tables = {}\n"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(dpsql.PolicyError, match="can't be edited safely"):
        set_values(text, "p", CHANGES, "GUESS")
