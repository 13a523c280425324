"""Columns and price of a statement before it is paid: as the answer has them, for nothing."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import BindError, ParseError, PrivacyError
from dpsql.notebook.sessions import describe_column
from dpsql.server.postgres.pg_catalog import Catalogue
from dpsql.session.description import REMARKS
from tests.support.served import write_data, write_policy
from tests.support.thirty_statements import THIRTY


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.session.session.Session]:
    folder = tmp_path_factory.mktemp("clinic")
    write_data(folder)
    with dpsql.connect(policy=write_policy(folder, {})) as opened:
        yield opened


@pytest.mark.parametrize("text", THIRTY)
def test_the_types_are_those_of_the_answer(session: dpsql.session.session.Session, text: str) -> None:
    before = session.budget().sentence, len(session.ledger())
    described = session.describe(text)
    assert (session.budget().sentence, len(session.ledger())) == before
    result = session.sql(text)
    assert described.schema.equals(result.table.schema), (described.schema, result.table.schema)
    assert described.price == ("" if result.loss == "no charge" else result.loss)
    assert session.describe(text).price == "", "what is stored is free"


def test_descriptions_spend_nothing(session: dpsql.session.session.Session) -> None:
    before = session.budget().sentence, len(session.ledger())
    for number in range(100):
        assert session.describe(f"SELECT COUNT(*) AS n FROM visits WHERE day < {number % 5}").price == "ε=0.1"
    assert (session.budget().sentence, len(session.ledger())) == before


def test_cells_of_several_statements(session: dpsql.session.session.Session) -> None:
    described = session.describe(
        "x << SELECT COUNT(*) AS n FROM visits WHERE day = 4; SELECT n + 1 AS m FROM x"
    )
    assert described.price == "ε=0.1"
    assert described.schema == pa.schema([("m", pa.int64())])
    assert "x" not in session.relations
    declared = session.describe("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1)")
    assert (declared.price, declared.schema) == (
        "ε=1",
        pa.schema([("threshold", pa.string()), ("status", pa.string())]),
    )
    assert session.open_thresholds == []
    assert session.describe("EXPLAIN SELECT COUNT(*) AS n FROM visits WHERE day = 5").price == ""
    assert session.describe("").schema == pa.schema([])


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("SELECT COUNT(*) AS n FROM visits WHERE city = ? AND cost > ?", [pa.string(), pa.float64()]),
        ("SELECT COUNT(*) AS n FROM visits WHERE cost > $low AND city = $city AND cost < $low * 2", [pa.float64(), pa.string()]),
        ("SELECT WITH DP OPTIONS (epsilon = ?) COUNT(*) AS n FROM visits", [pa.float64()]),
        ("SELECT COUNT(*) AS n FROM visits WHERE DATE '2024-01-01' > ?", [pa.date32()]),
        ("SELECT COUNT(*) AS n FROM visits WHERE city = '?' AND ward = ? -- ?", [pa.string()]),
    ],
)  # fmt: skip
def test_parameters_without_values(
    session: dpsql.session.session.Session, text: str, kinds: list[pa.DataType]
) -> None:
    described = session.describe(text)
    assert described.parameters.types == kinds
    assert described.schema == pa.schema([("n", pa.int64())])


def test_parameters_that_no_guess_fits(session: dpsql.session.session.Session) -> None:
    described = session.describe("SELECT COUNT(*) AS n FROM visits WHERE no_such_column = ?")
    assert (described.schema, described.parameters) == (None, pa.schema([("1", pa.string())]))
    with pytest.raises(BindError, match="no_such_column"):
        session.describe("SELECT COUNT(*) AS n FROM visits WHERE no_such_column = ?", [1])


def test_refusals(session: dpsql.session.session.Session) -> None:
    with pytest.raises(ParseError):
        session.describe("SELEC")
    entries = len(session.ledger())
    with pytest.raises(PrivacyError):
        session.describe("SELECT city FROM visits")
    assert len(session.ledger()) == entries + 1, "the owner sees what was refused"


def test_tables(session: dpsql.session.session.Session) -> None:
    schemas = session.table_schemas()
    assert list(schemas) == ["visits", "wards"]
    assert schemas["visits"].types == [pa.int64(), pa.string(), pa.float64(), pa.int32(), pa.string()]
    assert schemas["visits"].field("cost").metadata == {b"ARROW:FLIGHT:SQL:TYPE_NAME": b"DOUBLE"}


def test_values_by_order_or_by_name() -> None:
    from dpsql.session.description import match_parameters

    day = datetime.date(2024, 1, 1)
    assert match_parameters("SELECT ?, ?", {"0": 1, "1": day}) == ("SELECT $1, $2", {"1": 1, "2": day})
    assert match_parameters("SELECT $b, $a", {"a": 1, "b": 2}) == ("SELECT $b, $a", {"a": 1, "b": 2})
    assert match_parameters("SELECT $b, $a", {"x": 1, "y": 2}) == ("SELECT $b, $a", {"b": 1, "a": 2})
    with pytest.raises(BindError, match="2 parameters, and 1 value"):
        match_parameters("SELECT ?, ?", {"0": 1})


@pytest.mark.parametrize("text", THIRTY)
def test_ends_of_intervals_are_columns_on_request(session: dpsql.session.session.Session, text: str) -> None:
    plain = session.sql(text)
    session.sql("SET intervals = 'columns'")
    try:
        described, wide = session.describe(text).schema, session.sql(text)
    finally:
        session.sql("RESET intervals")
    assert described.equals(wide.table.schema), (described, wide.table.schema)
    assert set(plain.columns) <= set(wide.columns)
    for name, pairs in plain.intervals.items():
        if isinstance(pairs[0], tuple) and isinstance(pairs[0][0], float):
            shown = zip(wide[f"{name}_low"], wide[f"{name}_high"], strict=True)
            for (low, high), pair in zip(shown, pairs, strict=True):
                assert pair is None or (low <= pair[0] and high >= pair[1]), "rounded outwards"
                assert pair is None or high - low <= 1.11 * (pair[1] - pair[0]) + 1e-9
    assert session.sql(text).columns == plain.columns


def test_kept_results_keep_their_intervals_apart(session: dpsql.session.session.Session) -> None:
    kept, read = session.run(
        "SET intervals = 'columns'; y << SELECT COUNT(*) AS n FROM visits WHERE day = 4; SELECT n FROM y; RESET intervals"
    )[1:3]
    assert kept.columns == read.columns == ["n", "n_low", "n_high"]
    assert kept.fetchall() == read.fetchall()
    assert session.sql("SELECT * FROM y").columns == ["n"]
    with pytest.raises(ParseError, match="intervals is"):
        session.sql("SET intervals = 'yes'")


def test_every_client_shows_the_descriptions_of_tables_and_columns(tmp_path: Path) -> None:
    write_data(tmp_path)
    policy = write_policy(tmp_path, {"ana": 1})
    text = policy.read_text().replace(
        'privacy_unit = "patient"', 'description = "one row a visit"\nprivacy_unit = "patient"'
    )
    policy.write_text(text.replace("bounds = [0, 500]", 'bounds = [0, 500], description = "in euros"'))
    with dpsql.connect(policy=policy, analyst="ana") as session:
        tables = {row["table"]: row["description"] for row in session.sql("SHOW TABLES").dicts()}
        assert tables == {"visits": "one row a visit", "wards": None}
        (extra,) = [r["extra"] for r in session.sql("DESCRIBE visits").dicts() if r["column_name"] == "cost"]
        assert extra == "in euros; bounds 0 to 500"
        rows = session.sql("SHOW POLICY").fetchall()
        assert ("visits", "description", "one row a visit") in rows
        assert ("visits", "cost", "in euros") in rows
        schema = session.table_schemas()["visits"]
        assert schema.metadata == {REMARKS.encode(): b"one row a visit"}
        assert schema.field("cost").metadata[REMARKS.encode()] == b"in euros"
        assert REMARKS.encode() not in schema.field("day").metadata
        comments = Catalogue(session, "ana", "clinic")._fill()["pg_description"].to_pylist()  # type: ignore[arg-type]
        told = {(row["objsubid"], row["description"]) for row in comments}
        assert (0, "one row a visit (private: aggregates alone; the privacy unit is patient)") in told
        place = list(session.columns("visits")).index("cost") + 1
        assert (place, "in euros") in told
        assert describe_column(session.policy.tables["visits"], "cost").help == "in euros (0 to 500)"


VALUES = [
    ("ward", [("visits", "ward", ward) for ward in "ABCD"] + [("wards", "ward", ward) for ward in "ABC"]),
    ("visits.WARD", [("visits", "ward", ward) for ward in "ABCD"]),
    ("wards.name", [("wards", "name", name) for name in ("Eyes", "Heart", "Skin")]),
]


@pytest.mark.parametrize(("path", "rows"), VALUES)
def test_values_of_a_column(
    session: dpsql.session.session.Session, path: str, rows: list[tuple[str, str, str]]
) -> None:
    result = session.sql(f"SHOW VALUES {path}")
    assert result.columns == ["table", "column", "value"]
    assert result.fetchall() == rows


@pytest.mark.parametrize(
    ("path", "said"),
    [("", "takes a column's name"), ("visits", "there is no column"), ("war", "did you mean ward"),
     ("cost", "declares no values"), ("a b", "takes")],
)  # fmt: skip
def test_columns_without_values(session: dpsql.session.session.Session, path: str, said: str) -> None:
    with pytest.raises(dpsql.Error, match=said):
        session.sql(f"SHOW VALUES {path}")
