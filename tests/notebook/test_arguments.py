"""The magic's own line."""

from __future__ import annotations

import pytest

from dpsql.errors import Error, ParseError
from dpsql.notebook import guide
from dpsql.notebook.guide import (
    CONNECT_FLAGS,
    RUN_FLAGS,
    parse_cell_line,
    parse_flags,
    parse_statement_line,
    split_name,
)


def test_a_name_and_flags_in_any_order() -> None:
    for line in ("out --fresh", "--fresh out", " --fresh  -o out "):
        options = parse_cell_line(line)
        assert (options.name, options.fresh, options.silent) == ("out", True, False)
    assert parse_cell_line("").name is None


@pytest.mark.parametrize("line", ["out <<", "out<<", "--fresh out <<"])
def test_arrows_make_it_silent(line: str) -> None:
    assert (parse_cell_line(line).name, parse_cell_line(line).silent) == ("out", True)


def test_values_keep_their_quotes_and_blanks() -> None:
    assert parse_cell_line("""--params '{"city": "The Hague"}' out""").params == '{"city": "The Hague"}'
    assert parse_cell_line("--file 'my query.sql'").file == "my query.sql"
    assert parse_cell_line("--session=other").session == "other"


@pytest.mark.parametrize("flag", RUN_FLAGS, ids=lambda f: f.name)
def test_every_documented_flag_is_parsed(flag: guide.Flag) -> None:
    options = parse_cell_line(f"{flag.name} x" if flag.value else flag.name)
    assert options != parse_cell_line(""), "it must have an effect"
    assert flag.name in guide.USAGE


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--explian", "did you mean --explain?"),
        ("--params", "needs a value"),
        ("SELECT 1", "put the SQL on the next line"),
        ("<<", "<< needs a name"),
        ("'open", "quote"),
        ("a b", "not 'a b'"),
    ],
)
def test_wrong_lines_say_what_to_write(line: str, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_cell_line(line)
    assert says in str(caught.value)


def test_one_line_of_sql_is_left_as_it_is() -> None:
    sql = "SELECT '--fresh', $x -- a comment --fresh"
    assert parse_statement_line(f"--fresh --session other {sql}")[1] == sql
    options, rest = parse_statement_line("--explain SELECT 1")
    assert options.explain
    assert rest == "SELECT 1"
    assert parse_statement_line("-- just a comment")[1] == "-- just a comment"


def test_taking_a_name_off_keeps_every_position() -> None:
    text = "-- a comment\nout  << SELECT *\nFROM visits"
    name, rest = split_name(text)
    assert name == "out"
    assert len(rest) == len(text)
    assert rest.index("SELECT") == text.index("SELECT")
    assert rest.startswith("-- a comment\n")
    for untouched in ("SELECT 1 << 2", "", "-- out << x", "SELECT 'a << b'", "x <<< y"):
        assert split_name(untouched) == (None, untouched)


def test_connect_has_its_own_flags() -> None:
    options = parse_flags("data.duckdb --policy p.toml --session other", CONNECT_FLAGS)
    assert (options.rest, options.policy, options.session) == (("data.duckdb",), "p.toml", "other")
    with pytest.raises(Error, match="no flag --fresh"):
        parse_flags("--fresh", CONNECT_FLAGS)
