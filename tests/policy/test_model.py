"""The owner's policy: what it reads, what it refuses, and that it reads back what it writes."""

from __future__ import annotations

import copy
import datetime
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.demo import POLICY
from dpsql.errors import PolicyError
from dpsql.policy.model import Analyst, Budget, Column, Format, Hop, Policy, Table
from dpsql.privacy.periods import say_periods

BUDGET = "[budget]\nepsilon = 3\n"
VISITS = BUDGET + '[tables.visits]\nprivacy_unit = "patient_id"\n'
TEXT = VISITS + 'source = "visits.csv"\n'

FULL = """
[budget]
epsilon = 3
delta = 1e-6
accountant = "gdp"
max_epsilon_per_query = 1
default_epsilon = 0.1

[tables.visits]
source = "visits.parquet"
privacy_unit = "patient_id"
max_rows_per_group = 20
max_groups = 3
[tables.visits.columns]
amount = { bounds = [0, 500.25] }
ward = { values = ["A", "B", "C \\" \\n"] }
day = { values = [2024-01-01, 2024-01-02] }
score = { values = [0.5, 1, 1.5], bounds = [-1, 1e3] }
age = { type = "int", bounds = [0, 120] }
note = { type = "text", max_length = 200 }
"odd name" = { values = [true, false] }

[tables.lines]
privacy_unit = "order_id -> orders.id, user_id"
[tables.orders]
privacy_unit = "user_id"
[tables.wards]
public = true
[tables.returns]
privacy_unit = ["user_id", "order_id -> orders.id, user_id", "account"]
determines = ["invoice -> user_id"]
[tables.clicks]
privacy_unit = "user_id"
privacy_period = 'YEAR( "odd day" )'

[tables.notes]
source = "notes.csv"
privacy_unit = "patient_id"
version = "2024-05"
max_fan_out = 50
max_unit_rows = 1000
format = { delimiter = ";", null = "NA", date_format = "%d.%m.%Y" }
[tables.notes.columns]
patient_id = { type = "BIGINT" }
tags = { type = "varchar [ ]" }
place = { type = 'STRUCT(x DOUBLE, "odd, y" decimal(8,2))' }

[analysts.ann]
epsilon = 0.5
[analysts."bob b"]
epsilon = 1
delta = 1e-7
"""


def refused(text: str) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        Policy.loads(text, name="policy.toml")
    assert caught.value.message.startswith("policy.toml: ")
    assert caught.value.__cause__ is None
    return caught.value


def test_a_policy_says_what_it_says() -> None:
    policy = Policy.loads(FULL)
    assert policy.budget == Budget(3, 1e-6, "gdp", 1, Fraction(1, 10))
    assert policy.budget.delta == Fraction(1, 10**6)
    visits = policy.table("VISITS")
    assert (visits.max_rows, visits.max_rows_per_group, visits.max_groups) == (None, 20, 3)
    assert visits.source == "visits.parquet"
    assert visits.columns["Amount"].bounds == (Fraction(0), Fraction(2001, 4))
    assert visits.columns["day"].values == (datetime.date(2024, 1, 1), datetime.date(2024, 1, 2))
    assert visits.columns["score"].values == (Decimal("0.5"), 1, Decimal("1.5"))
    assert visits.columns["odd name"].values == (True, False)
    assert policy.tables["lines"].unit_path == (Hop("lines", "", "order_id"), Hop("orders", "id", "user_id"))
    assert policy.tables["lines"].unit_domain == policy.tables["orders"].unit_domain != visits.unit_domain
    assert policy.tables["wards"].public
    assert (visits.columns["age"].type, visits.columns["age"].max_length) == ("INTEGER", None)
    assert (visits.columns["note"].type, visits.columns["note"].max_length) == ("VARCHAR", 200)
    assert (visits.max_fan_out, visits.max_unit_rows, visits.version) == (None, None, None)
    notes = policy.tables["notes"]
    assert (notes.max_fan_out, notes.max_unit_rows, notes.version) == (50, 1000, "2024-05")
    assert notes.format == Format(delimiter=";", null="NA", date_format="%d.%m.%Y")
    assert [column.type for column in notes.columns.values()] == [
        "BIGINT", "VARCHAR[]", 'STRUCT("x" DOUBLE, "odd, y" DECIMAL(8,2))',
    ]  # fmt: skip
    assert policy.analysts["bob b"] == Analyst(1, Fraction(1, 10**7))
    assert policy.table("nothing") is None


@pytest.mark.parametrize("text", [FULL, BUDGET, VISITS, POLICY.read_text()])
def test_what_is_written_reads_back(text: str, tmp_path: Path) -> None:
    policy = Policy.loads(text)
    assert Policy.loads(policy.dumps()) == policy
    assert Policy.loads(policy.dumps()).fingerprint == policy.fingerprint
    policy.dump(tmp_path / "p.toml")
    loaded = Policy.load(tmp_path / "p.toml")
    assert loaded == policy
    assert loaded.base == tmp_path
    assert pickle.loads(pickle.dumps(policy)) == policy == copy.deepcopy(policy)
    assert hash(policy) == hash(loaded)


def test_layout_changes_no_fingerprint_and_meaning_does() -> None:
    policy = Policy.loads(VISITS)
    assert Policy.loads("# a note\n" + VISITS.replace("3", "3.00")).fingerprint == policy.fingerprint
    assert Policy.loads(VISITS.replace("3", "3.01")).fingerprint != policy.fingerprint


def test_descriptions_are_written_and_change_no_fingerprint() -> None:
    plain = Policy.loads(VISITS + "columns.age = { bounds = [0, 9] }\n")
    told = Policy.loads(
        VISITS
        + 'description = "one row a visit"\ncolumns.age = { bounds = [0, 9], description = "in years" }\n'
        'columns.note = { description = "free text" }\n'
    )
    assert told.fingerprint == plain.fingerprint
    assert Policy.loads(told.dumps()) == told
    assert told.for_analyst(None).tables["visits"].description == "one row a visit"
    assert (
        Policy.loads(VISITS).fingerprint
        == Policy.loads(VISITS + 'columns.note = { description = "x" }').fingerprint
    )
    assert Policy.loads(VISITS).fingerprint != Policy.loads(VISITS + "columns.note = {}").fingerprint


@pytest.mark.parametrize("text", ['"a\\nb"', '""', "3", f'"{"x" * 1001}"'])
def test_descriptions_are_one_line(text: str) -> None:
    with pytest.raises(PolicyError, match="description"):
        Policy.loads(f"{VISITS}description = {text}\n")


def test_row_level() -> None:
    table = Table("visits", privacy_unit="ROW")
    assert table.row_level
    assert table.max_rows == 1
    assert table.unit_path == ()


@pytest.mark.parametrize(
    ("text", "sentence", "meant", "hint"),
    [
        ("", "there is no [budget]", None, "[budget]"),
        ("[budget]\n", "no epsilon", "budget", "epsilon = 1"),
        ("nonsense", "not TOML", None, "key = value"),
        ("[budget]\nepsilon = = 3", "not TOML", "=", "key = value"),
        (BUDGET + "epsilon = 3", "not TOML", None, None),
        ("[budget]\nepsilom = 3", "unknown key epsilom", "epsilom = 3", "did you mean epsilon?"),
        (BUDGET + "[table.x]", "unknown key table", "table.x", "did you mean tables?"),
        ("budget = 3", "not a section", "budget = 3", None),
        ('[budget]\nepsilon = "three"', 'not a number: "three"', 'epsilon = "three"', "without quotes"),
        ('[budget]\nepsilon = "3"', "not a number", 'epsilon = "3"', "write epsilon = 3, without quotes"),
        (BUDGET + 'delta = "1e-6"', "not a number", 'delta = "1e-6"', "write delta = 1e-6, without quotes"),
        (BUDGET + 'delta = "tiny"', "not a number", 'delta = "tiny"', "write delta = 1e-6, without quotes"),
        ("[budget]\nepsilon = true", "not a number", "epsilon = true", None),
        ("[budget]\nepsilon = nan", "not a number: nan", "epsilon = nan", "decimal digits"),
        ("[budget]\nepsilon = inf", "not a number: inf", "epsilon = inf", "decimal digits"),
        ("[budget]\nepsilon = 1e999999999", "not a number", "epsilon = 1e999999999", None),
        ("[budget]\nepsilon = 0", "more than 0", "epsilon = 0", "epsilon = 0.1"),
        ("[budget]\nepsilon = 1e400", "at most 1e+300", "epsilon = 1e400", "epsilon = 1"),
        ("[budget]\nepsilon = -1", "more than 0", "epsilon = -1", None),
        ("[budget]\nepsilon = ３", "not TOML", "３", None),
        (BUDGET + "delta = 1", "less than 1", "delta = 1", "1e-6"),
        (BUDGET + "delta = -1e-9", "at least 0", "delta = -1e-9", None),
        (BUDGET + 'accountant = "zcpd"', "no accountant zcpd", 'accountant = "zcpd"', "did you mean zcdp?"),
        (BUDGET + "default_epsilon = 4", "more than epsilon", "default_epsilon = 4", None),
        (BUDGET + "default_delta = 1e-9", "more than delta", "default_delta = 1e-9", None),
        (BUDGET + "[tables.visits]", "no privacy unit", "tables.visits", "privacy_unit ="),
        (BUDGET + "tables = 3", "unknown key tables", "tables = 3", None),
        (
            VISITS + "public = true",
            "is public, so it has no privacy_unit",
            'privacy_unit = "patient_id"',
            "remove",
        ),
        (VISITS + "public = 1", "true or false", "public = 1", None),
        (VISITS + "max_row = 3", "unknown key max_row", "max_row = 3", "did you mean max_rows?"),
        (VISITS + "max_rows_per_group = 0", "whole number", "max_rows_per_group = 0", None),
        (VISITS + 'max_rows = "20"', "whole number", 'max_rows = "20"', "max_rows = 20"),
        (VISITS + 'unit = "x"', "unknown key unit", 'unit = "x"', "did you mean privacy_unit?"),
        (
            VISITS + "max_rows_contributed = 2",
            "unknown key",
            "max_rows_contributed = 2",
            "did you mean max_rows?",
        ),
        (VISITS + "max_groups = 1.5", "whole number", "max_groups = 1.5", None),
        (VISITS + "source = 3", "text in quotes", "source = 3", 'source = "3"'),
        (VISITS + 'source = "s3://bucket/x.parquet"', "not a local file", None, "copy it"),
        (VISITS + "columns = 3", "not a section", "columns = 3", None),
        (VISITS + "columns.x = [0, 1]", "not a section", "columns.x = [0, 1]", "bounds = [0, 1]"),
        (VISITS + 'columns.x = ["a"]', "not a section", 'columns.x = ["a"]', 'x = { values = ["a"] }'),
        (VISITS + 'columns.x = { bounds = ["0", "9"] }', "without quotes", "bounds", "write bounds = [0, 9]"),
        (
            VISITS + 'columns.x = { bounds = ["2024-01-01", "2024-12-31"] }',
            "without quotes",
            "bounds",
            "write bounds = [2024-01-01, 2024-12-31]",
        ),
        (VISITS + 'columns.x = { bounds = ["08:00", "9"] }', "without quotes", "bounds", "[08:00:00, 9]"),
        (VISITS + 'columns.x = { bounds = ["a", "b"] }', "without quotes", "bounds", 'values = ["a", "b"]'),
        (VISITS + "columns.x = { bound = [0, 1] }", "unknown key bound", "bound", "did you mean bounds?"),
        (VISITS + "columns.x = { bounds = [5, 1] }", "reversed", "bounds", "swap"),
        (VISITS + "columns.x = { bounds = [5] }", "lowest and a highest", "bounds", "[0, 100]"),
        (VISITS + "columns.x = { bounds = [0, inf] }", "not a number", "bounds", None),
        (VISITS + "columns.x = { values = [] }", "at least one", "values", None),
        (VISITS + "columns.x = { values = [1, 1.0] }", "twice", "values", None),
        (
            VISITS + 'columns.x = { values = [1, "1"] }',
            "mixes numbers and text",
            "values",
            'values = ["1", "1"]',
        ),
        (VISITS + "columns.x = { values = [[1]] }", "not [1]", "values", 'values = ["A", "B"]'),
        (
            VISITS + "columns.x = { bounds = [0, 2024-01-01] }",
            "two numbers, two dates",
            "bounds",
            "bounds = [0, 100]",
        ),
        (VISITS + 'columns.x = { bounds = ["0", 1] }', "without quotes", "bounds", "bounds = [0, 1]"),
        (VISITS + "columns = { x = {}, X = {} }", "twice", None, "remove one of the two X"),
        (VISITS + 'columns.x = { type = "INTEGR" }', "not a column type", "type", "did you mean INTEGER?"),
        (VISITS + 'columns.x = { type = "ENUM(1)" }', "not a column type", "type", "BOOLEAN, TINYINT"),
        (VISITS + "columns.x = { type = 3 }", "not a column type", "type", None),
        (VISITS + "columns.x = { max_length = 0 }", "whole number", "max_length", None),
        (VISITS + 'columns.x = { type = "DATE", max_length = 9 }', "not for DATE", "max_length", None),
        (VISITS + "max_fan_out = 0", "whole number", "max_fan_out = 0", None),
        (VISITS + "max_unit_rows = 1.5", "whole number", "max_unit_rows = 1.5", None),
        (VISITS + "version = 3", "text in quotes", "version = 3", None),
        (VISITS + "format = 3", "not a section", "format = 3", None),
        (VISITS + "format = { }", "only text files", None, None),
        (VISITS + 'source = "a.parquet"\nformat = { quote = "" }', "no text file", None, "remove"),
        (
            TEXT + "format = { delimeter = ';' }",
            "unknown key delimeter",
            "delimeter",
            "did you mean delimiter?",
        ),
        (TEXT + "format = { delimiter = ';;' }", "one ASCII character", "delimiter", "';'"),
        (TEXT + "format = { quote = ',' }", "must differ", None, None),
        (TEXT + "format = { encoding = 'utf-7' }", "no encoding", "encoding", "latin-1"),
        (TEXT + "format = { date_format = '%Q' }", "unsupported", "date_format", "%Y"),
        (TEXT + "format = { date_format = 'ymd' }", "a pattern", "date_format", None),
        (TEXT + "format = { quoted_newlines = 1 }", "true or false", "quoted_newlines", None),
        (TEXT + "format = { records = 'array' }", "CSV has no records", None, "remove"),
        (TEXT.replace("csv", "jsonl") + "format = { header = false }", "JSON has no header", None, "remove"),
        (VISITS + "[tables.Visits]\npublic = true", "twice", "tables.Visits", None),
        (BUDGET + '[tables."a-b"]\npublic = true', "name of a table", 'tables."a-b"', None),
        (BUDGET + '[tables."a.b.c.d"]\npublic = true', "name of a table", 'tables."a.b.c.d"', None),
        (BUDGET + '[tables.v]\nprivacy_unit = "ROW"\nmax_rows = 2', "max_rows is 1", "max_rows = 2", None),
        (BUDGET + '[tables.v]\nprivacy_unit = "a -> b"', "not a column or a path", None, "orders.id"),
        (BUDGET + '[tables.v]\nprivacy_unit = "a -> b.c, d"', "goes through b", None, "[tables.b]"),
        (
            BUDGET + '[tables.v]\nprivacy_unit = "a -> b.c, d"\n[tables.b]\nprivacy_unit = "e"',
            "same privacy unit",
            'privacy_unit = "a -> b.c, d"',
            None,
        ),
        (VISITS.replace('"p', '["p').replace('d"', 'd", 3]'), "a list of texts", None, "subject_id"),
        (BUDGET + "[tables.v]\nprivacy_unit = []", "a list of texts", "privacy_unit = []", None),
        (BUDGET + '[tables.v]\nprivacy_unit = ["a", "a"]', "twice", 'privacy_unit = ["a", "a"]', None),
        (
            BUDGET + '[tables.v]\nprivacy_unit = ["a", "row"]',
            "is ROW",
            'privacy_unit = ["a", "row"]',
            "alone",
        ),
        (BUDGET + '[tables.v]\nprivacy_unit = ["a", "b -> c"]', "not a column or a path", None, "orders.id"),
        (
            VISITS + 'determines = ["a, b -> c"]',
            "not a dependency",
            'determines = ["a, b -> c"]',
            "one column",
        ),
        (VISITS + 'determines = ["a -> b"]', "its privacy unit is patient_id", None, '"a -> patient_id"'),
        (VISITS + "determines = 3", "list of texts", "determines = 3", "customer_id"),
        (VISITS + 'privacy_period = "random(day)"', "random can't make", None, "date_trunc('month', day)"),
        (VISITS + "privacy_period = \"date_trunc('minute', day)\"", "takes hour", None, None),
        (VISITS + 'privacy_period = "day + 1"', "no period", 'privacy_period = "day + 1"', "or a column"),
        (
            BUDGET + '[tables.v]\nprivacy_unit = "ROW"\nprivacy_period = "d"',
            "each row is a unit",
            'privacy_period = "d"',
            "remove",
        ),
        (
            VISITS + '[tables.v]\nprivacy_unit = "a -> visits.id, patient_id"\nprivacy_period = "d"',
            "its path leads to another",
            'privacy_period = "d"',
            "declare privacy_period in visits",
        ),
        (BUDGET + "[analysts.ann]\nepsilon = 4", "more than the whole", "epsilon = 4", "share"),
        (BUDGET + "[analysts.ann]\ndelta = 0", "no epsilon", "analysts.ann", None),
    ],
)
def test_what_is_wrong_is_shown(text: str, sentence: str, meant: str | None, hint: str | None) -> None:
    error = refused(text)
    assert sentence in error.message
    if meant is not None:
        assert error.span is not None
        assert error.text[slice(*error.span)] == meant
    if hint is not None:
        assert error.hint is not None
        assert hint in error.hint


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="can't be read"):
        Policy.load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match=r"bad\.toml: the file is not UTF-8"):
        Policy.load(tmp_path / "bad.toml")


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"\xef\xbb\xbf" + VISITS.replace("\n", "\r\n").encode())
    assert Policy.load(tmp_path / "p.toml") == Policy.loads(VISITS)


def test_names_fold_ascii_letters_only() -> None:
    table = Table("t", public=True, columns={"É": Column(bounds=(0, 1)), "Kilo": Column(bounds=(0, 2))})
    assert "KILO" in table.columns
    assert "é" not in table.columns
    assert "\u212ailo" not in table.columns  # the Kelvin sign is not k


def test_values_are_frozen() -> None:
    policy = Policy.loads(FULL)
    with pytest.raises(AttributeError):
        policy.budget.epsilon = Fraction(9)  # type: ignore[misc]
    with pytest.raises(TypeError):
        policy.tables["visits"] = Table("visits", public=True)  # type: ignore[index]


numbers = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    epsilon=numbers,
    low=numbers,
    wide=numbers,
    column=text,
    values=st.one_of(
        st.lists(text, min_size=1, max_size=4, unique=True),
        st.lists(st.integers(-(10**20), 10**20), min_size=1, max_size=4, unique=True),
        st.lists(
            st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=1, max_size=4, unique=True
        ),
    ),
)
def test_any_policy_reads_back(
    epsilon: Fraction, low: Fraction, wide: Fraction, column: str, values: list[str]
) -> None:
    made = Column(bounds=(-low, wide), values=tuple(values))
    table = Table("visits", privacy_unit="person", columns={column: made})
    policy = Policy(Budget(epsilon), {"visits": table})
    assert Policy.loads(policy.dumps()) == policy


DATED = """
[budget]
epsilon = 1
per_period = true
[tables.visits]
privacy_unit = "pid"
privacy_period = "date_trunc('month', day)"
data_from = 2024-01-15
data_until = "yesterday"
max_rows = 3
"""


def test_a_budget_per_period_is_written_and_read_again() -> None:
    policy = Policy.loads(DATED)
    assert Policy.loads(policy.dumps()) == policy
    assert policy.for_analyst(None).budget.per_period
    today = datetime.date(2024, 3, 1)
    assert say_periods(policy.tables["visits"].find_days(today)) == "2024-01-15 to 2024-02-29"
    assert say_periods(policy.find_domain(today)) == "2024-01 to 2024-02"
    later = Policy.loads(DATED.replace('"yesterday"', "2024-03-31"))
    assert say_periods(later.find_domain(today)) == "2024-01 to 2024-03"
    assert abs((policy.today - datetime.datetime.now(datetime.UTC).date()).days) <= 1


def test_closed_days_end_the_data() -> None:
    today = datetime.date(2024, 3, 10)
    for text, last in (
        ('"TODAY -7 days"', "2024-03-02"),
        ('"today"', "2024-03-09"),
        ('"today - 1 day"', "2024-03-08"),
        ("2024-02-01", "2024-01-31"),
    ):
        policy = Policy.loads(DATED.replace('"yesterday"', f'"closed"\nclosed_before = {text}'))
        assert Policy.loads(policy.dumps()) == policy
        table = policy.tables["visits"]
        assert say_periods(table.find_days(today)) == f"2024-01-15 to {last}"
        assert datetime.date.fromordinal(table.find_closed(today) - 1).isoformat() == last
    assert Policy.loads(DATED).tables["visits"].find_closed(today) == 0


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("data_from = 2024-01-15\n", "", "visits has a budget per period, and no data_from"),
        ('data_until = "yesterday"\n', "", "visits has a budget per period, and no data_until"),
        ('"yesterday"', '"soon"', 'data_until must be a date, "today", "yesterday" or "closed"'),
        ('"yesterday"', '"closed"', 'data_until of visits is "closed", and there is no closed_before'),
        ('"yesterday"', '"today"\nclosed_before = "a week ago"', "closed_before must be a date"),
        ("per_period = true\n", "", "data_from of visits needs per_period = true"),
        ('"yesterday"', "2023-12-31", "data_until of visits is before data_from"),
        ("2024-01-15", "9999-01-01", "data_from must be a date"),
        ("2024-01-15", "2024-01-15T00:00:00", "data_from must be a date"),
        ("privacy_period = \"date_trunc('month', day)\"\n", "", "data_from of visits needs privacy_period"),
        ("date_trunc('month', day)", "month(day)", "periods of whole days, and visits has month"),
        ("date_trunc('month', day)", "date_trunc('hour', day)", "periods of whole days"),
        (DATED[DATED.index("privacy_period") :], "", "the budget is per period, and no table has a privacy_period"),
    ],
)  # fmt: skip
def test_a_budget_per_period_needs_public_ends(was: str, now: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Policy.loads(DATED.replace(was, now))
