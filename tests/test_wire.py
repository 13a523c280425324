"""Messages round trip, and what is no message gives a WireError and nothing else."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql import errors
from dpsql.client import wire
from dpsql.client.wire import Message, WireError, decode, encode
from dpsql.language.parameters import make_literal
from dpsql.privacy.amounts import OwnRoom
from dpsql.privacy.codec import write_record
from dpsql.privacy.events import DiscreteLaplace, Event, PureDP, compose_events
from dpsql.privacy.pld import declare
from dpsql.privacy.records import BudgetState, Entry
from dpsql.session.explanation import Errors, Explanation
from dpsql.session.result import Result
from tests.support.own_process import run_python

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
heads = st.dictionaries(st.text(), plain, max_size=5)
fractions = st.fractions(min_value=0, max_value=10**30)


@given(heads, st.binary(max_size=200))
def test_messages_round_trip(head: dict[str, Any], payload: bytes) -> None:
    assert wire.decode(wire.encode(Message(head, payload))) == Message(head, payload)


def test_half_a_character_survives() -> None:
    """An analyst may type one: it is refused by the parser, not lost on the way."""
    assert wire.decode(wire.encode(Message({"text": "\ud800"}))).head == {"text": "\ud800"}


@given(st.binary(max_size=300))
@example(b"")
@example(struct.pack(">II", 2**32 - 1, 0) + b"{}")
@example(struct.pack(">II", 2, 2**32 - 1) + b"{}")
@example(struct.pack(">II", 2, 1) + b"{}xx")
@example(struct.pack(">II", 4, 0) + b"null")
@example(struct.pack(">II", 9, 0) + b'{"a":NaN}')
@example(struct.pack(">II", 100_000, 0) + b"[" * 100_000)
@example(struct.pack(">II", 20_005, 0) + b'{"a":' + b"[" * 20_000)
@example(struct.pack(">II", 6006, 0) + b'{"a":' + b"1" * 6000 + b"}")
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(data)


def test_messages_are_bounded() -> None:
    with pytest.raises(WireError):
        wire.encode(Message({"text": "a" * wire.MAX_HEAD}))
    with pytest.raises(WireError):
        wire.encode(Message({}, bytes(wire.MAX_PAYLOAD + 1)))
    with pytest.raises(WireError):
        wire.encode(Message({"value": float("nan")}))
    with pytest.raises(WireError):
        wire.encode(Message({"value": object()}))


READERS = {
    "error": lambda body: wire.read_error(Message(body)),
    "state": wire.read_state,
    "entry": wire.read_entry,
    "explanation": partial(wire.read_as, Explanation),
    "event": partial(wire.read_as, Event),
    "params": wire.read_params,
    "result": lambda body: wire.parse_result(Message({"kind": "result", **body}, b"x")),
}


@pytest.mark.parametrize("name", READERS)
@given(body=heads | plain)
@settings(max_examples=60)
def test_other_json_is_a_wire_error(name: str, body: Any) -> None:
    if name in ("error", "result") and not isinstance(body, dict):
        return
    try:
        READERS[name](body)
    except WireError:
        return
    assert name == "params"  # any object of texts and nulls is one
    assert body is None or isinstance(body, dict)


# -- errors


@given(
    st.sampled_from(sorted(wire._KNOWN)), st.text(), st.none() | st.tuples(st.integers(0, 99), st.integers(0, 99)),
    st.none() | st.text(), st.none() | st.text(),
)  # fmt: skip
def test_errors_round_trip(
    kind: str, message: str, span: tuple[int, int] | None, text: str | None, hint: str | None
) -> None:
    error = getattr(errors, kind)(message, span=span, text=text, hint=hint)
    read = wire.read_error(wire.decode(wire.encode(wire.write_error(error))))
    assert type(read) is type(error)
    assert read.lines() == error.lines()
    assert (read.span, read.text, read.hint) == (span, text, hint)


def test_every_error_of_ours_is_known() -> None:
    assert {name for name in dpsql.__all__ if isinstance(getattr(dpsql, name), type)} - {
        "Policy", "Result", "Session"
    } == set(wire._KNOWN)  # fmt: skip


def test_a_class_that_is_unknown_is_the_nearest_that_is() -> None:
    from dpsql.lock.tree import Unproved

    assert type(wire.read_error(wire.write_error(Unproved("no.")))) is dpsql.PrivacyError
    message = wire.write_error(dpsql.BindError("no."))
    assert type(wire.read_error(Message({**message.head, "class": "Later"}))) is dpsql.Error
    assert type(wire.read_error(Message({**message.head, "class": "Exception"}))) is dpsql.Error


def test_the_function_that_an_error_speaks_of_survives() -> None:
    error = dpsql.PostprocessingError("no.")
    error.name = "sqrt"
    read = wire.read_error(wire.write_error(error))
    assert isinstance(read, dpsql.PostprocessingError)
    assert read.name == "sqrt"


# -- records

events = st.builds(
    PureDP, st.fractions(min_value=Fraction(1, 100), max_value=3, max_denominator=100)
) | st.builds(DiscreteLaplace, st.just(Fraction(1, 3)), st.integers(1, 9), st.integers(1, 4))
composed = st.lists(events, min_size=1, max_size=3).map(compose_events)
rooms = st.builds(OwnRoom, st.just("μ"), fractions, fractions, fractions, st.none() | fractions)
states = st.builds(
    BudgetState, st.sampled_from(["basic", "zcdp", "gdp", "rdp"]), fractions, fractions, fractions, fractions, fractions,
    fractions, st.text(), st.none() | st.text(), st.none() | fractions, st.none() | st.integers(), st.none(), fractions,
    st.none() | fractions, st.none() | fractions, st.none() | rooms, st.booleans(), fractions,
)  # fmt: skip
entries = st.builds(
    Entry, st.integers(), st.just("2026-01-02T03:04:05+00:00"), st.text(), st.text(), st.just("released"),
    st.none() | composed, st.none() | composed, st.text(), st.text(), st.text(), st.text(), st.none() | composed,
    st.none() | st.text(), st.dictionaries(st.text(), st.text(), max_size=3),
)  # fmt: skip
numbers = st.floats(min_value=0)
tables = st.builds(
    Errors, st.lists(fractions, max_size=3).map(tuple),
    st.lists(st.tuples(st.text(), st.lists(numbers, max_size=2).map(tuple)), max_size=2).map(tuple), fractions, numbers,
    st.just("mu"),
)  # fmt: skip
texts = st.lists(st.text(), max_size=3).map(tuple)
explanations = st.builds(
    Explanation, texts, st.text(), texts, st.text(), st.booleans(), st.none() | tables, st.none() | composed
)


def through(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(states, st.none() | states)
@settings(max_examples=50)
def test_states_round_trip(state: BudgetState, whole: BudgetState | None) -> None:
    from dataclasses import replace

    state = replace(state, whole=whole)
    assert wire.read_state(through(write_record(state))) == state


@given(entries)
@settings(max_examples=50)
def test_entries_round_trip(entry: Entry) -> None:
    assert wire.read_entry(through(write_record(entry))) == entry


@given(explanations, explanations)
@settings(max_examples=50)
def test_explanations_round_trip(first: Explanation, second: Explanation) -> None:
    whole = Explanation(("all",), "ε=1", (), "", parts=(first, second))
    for one in (first, whole):
        assert wire.read_as(Explanation, through(write_record(one))) == one


@given(entries, st.data())
@settings(max_examples=80)
def test_a_record_with_one_wrong_field_is_refused_or_another(entry: Entry, data: st.DataObject) -> None:
    body = through(write_record(entry))
    name = data.draw(st.sampled_from(sorted(body)))
    body[name] = data.draw(plain)
    try:
        read = wire.read_entry(body)
    except WireError:
        return
    assert isinstance(read, Entry)


def test_what_a_later_version_adds_is_left_out_and_what_it_leaves_out_has_its_default() -> None:
    entry = Entry(1, "2026-01-02T03:04:05+00:00", "ann", "SELECT 1", "refused", None, None)
    body = write_record(entry)
    del body["reason"]
    assert wire.read_entry({**body, "colour": "red"}) == entry
    del body["text"]
    with pytest.raises(WireError):
        wire.read_entry(body)


def test_every_kind_of_event_is_known() -> None:
    """Also in a client that has made none of them."""
    code = "import dpsql.client.wire; from dpsql.privacy.events import KINDS, find_event_kind as f; f(''); print(*KINDS)"
    known = run_python("-c", code, check=True).stdout.split()
    assert {"declared_plan", "gaussian_by_mu", "noise_reduction", "stable_questions"} <= set(known)
    body = json.dumps(declare([PureDP(Fraction(1, 2))] * 2, Fraction(1, 10**6)).to_json())
    code = "import json, sys; from dpsql.client import wire; print(wire.read_as(wire.Event, json.loads(sys.argv[1])).kind)"
    assert run_python("-c", code, body, check=True).stdout.split() == ["declared_plan"]


def test_a_huge_number_is_no_fraction() -> None:
    state = write_record(
        BudgetState("zcdp", *[Fraction(1)] * 6, "", at_delta=Fraction(1, 10**6))  # type: ignore[arg-type]
    )
    for amount in ("1e999999999", "1" * 5000, "1/0", " 1", "nan", 1, None):
        with pytest.raises(WireError):
            wire.read_state({**state, "left_epsilon": amount})


# -- results


def same(one: Result, other: Result) -> bool:
    kept = ("loss", "event", "notes", "statement_id", "cost_line", "confidence", "whole", "columns", "shape")
    return (
        one.table.equals(other.table)
        and one.table.schema.equals(other.table.schema)
        and {
            k: tuple(e.equals(f) for e, f in zip(v, other.ends[k], strict=True)) for k, v in one.ends.items()
        }
        == dict.fromkeys(one.ends, (True, True))
        and list(one.ends) == list(other.ends)
        and all(getattr(one, name) == getattr(other, name) for name in kept)
    )


RESULTS = [
    Result(pa.table({})),
    Result(pa.table({"n": pa.array([], pa.int64())}), cost_line="no charge"),
    Result(pa.table({"plan": ["1. One.", "2. Two."]}), whole=True),
    Result(
        pa.table({"ward": ["A", None], "n": [1, 2]}),
        intervals={"n": [(0.5, 1.5), None]},
        loss="ε=0.1",
        event=PureDP(Fraction(1, 10)),
        notes=("one", "two"),
        statement_id=7,
        cost_line="cost ε=0.1",
        confidence=0.9,
        expected_error={"n": 2.5},
    ),
    Result(
        pa.table({"h": pa.array([[("A", 3)], None], pa.map_(pa.string(), pa.int64()))}),
        intervals={
            "h": tuple(
                pa.chunked_array([pa.array([[("A", end)], None], pa.map_(pa.string(), pa.float64()))])
                for end in (1.5, 4.5)
            )
        },
    ),
    Result(
        pa.table([pa.array([1]), pa.array([decimal.Decimal("1.50")])], names=["x", "x"])
    ),  # two columns of one name
    Result(
        pa.table({"t": pa.array([datetime.timedelta(1)], pa.duration("us")), "l": [[1, 2]], "s": [{"a": 1}]})
    ),
    Result(pa.table({"big": ["x" * 1000] * 5000}), statement_id="8"),
]


@pytest.mark.parametrize("result", RESULTS, ids=range(len(RESULTS)))
def test_results_round_trip(result: Result) -> None:
    read = wire.parse_result(decode(encode(wire.write_result(result, keep="out"))))
    assert same(read, result)
    assert read.expected_error == result.expected_error
    assert repr(read) == repr(result)


def test_messages_follow_one_another() -> None:
    messages = [wire.write_result(result) for result in RESULTS]
    data = b"".join(map(encode, messages))
    assert list(wire.decode_all(data)) == messages
    for wrong in (data[:-1], data[1:], data + b"x"):
        with pytest.raises(WireError):
            list(wire.decode_all(wrong))
    with pytest.raises(WireError, match="length"):
        decode(data)


@given(st.sampled_from(range(len(RESULTS) - 1)), st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=300)
def test_any_rows_with_a_wrong_byte(number: int, place: int, byte: int) -> None:
    """Nothing that is accepted points outside of itself: else this would crash."""
    message = wire.write_result(RESULTS[number])
    rows = bytearray(message.payload)
    rows[place % len(rows)] = byte
    with suppress(WireError):
        read = wire.parse_result(Message(message.head, bytes(rows)))
        with suppress(Exception):
            read.fetchall()


def test_heads_that_do_not_fit_the_rows() -> None:
    message = wire.write_result(RESULTS[3])
    for change in (
        {"rows": 3}, {"columns": ["ward"]}, {"columns": ["a", "b", "c", "d", "e"]}, {"intervals": []}, {"confidence": "1"},
        {"intervals": ["ward", "n"]}, {"intervals": ["other"]}, {"notes": [1]}, {"event": {"kind": "no"}},
    ):  # fmt: skip
        with pytest.raises(WireError):
            wire.parse_result(Message({**message.head, **change}, message.payload))


# -- parameters

PARIS = datetime.datetime(2024, 1, 2, 0, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
PARAMS = [
    None, True, False, 0, -5, 10**30, 1.5, -0.0, float("inf"), float("nan"), decimal.Decimal("-1.25"), "", "Delft's", "\ud800",
    datetime.date(2024, 2, 29), datetime.datetime(2024, 1, 2, 3, 4, 5, 678), datetime.time(1, 2), datetime.timedelta(1),
    datetime.timedelta(seconds=-5), datetime.timedelta(microseconds=1), datetime.time(1, tzinfo=datetime.UTC), uuid.UUID(int=5),
    datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), PARIS, pd.Timestamp(PARIS),
    [], [1, "a", None], (1, 2), [[1]], {"a": 1}, {1}, b"x", object(),
    np.int64(3), np.float32(0.1), np.bool_(True), np.array([1, 2]), np.array([[1]]), np.array(5), np.str_("x"),
    np.datetime64("2024-01-02"), pd.Timestamp("2024-01-02 03:04"), pd.NaT, pd.Series([1.5, 2.0]), Fraction(1, 3), range(3),
    list(range(10_001)), 1j, 10**5000,
]  # fmt: skip


def literal(value: Any) -> str:
    try:
        return make_literal(value, "x").sql("duckdb")
    except dpsql.Error as error:
        return f"refused: {error.message}"
    except ValueError:
        return "more digits than Python writes"


@pytest.mark.parametrize("value", PARAMS, ids=[f"{i}-{type(v).__name__}" for i, v in enumerate(PARAMS)])
def test_a_parameter_is_the_same_literal_on_the_other_side(value: Any) -> None:
    read = wire.read_params(through(wire.write_params({"x": value})))
    if isinstance(value, int) and value > 10**4000:  # an odd one there
        assert literal(read["x"]).startswith("refused")
    else:
        assert literal(read["x"]) == literal(value)
    assert wire.read_params(wire.write_params(None)) is None


def test_nothing_is_unpickled() -> None:
    from pathlib import Path

    source = Path(wire.__file__).read_text()
    for word in ("import pickle", "marshal", "eval(", "exec(", "shelve"):
        assert word not in source
