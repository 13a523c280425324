"""The ``[server]`` section, ``answers``, and the policy that one analyst may read."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import PolicyError
from dpsql.policy.model import Policy, ServerRules

BASE = """
[budget]
epsilon = 3
[tables.visits]
source = "/srv/hospital/visits.csv"
privacy_unit = "id"
columns.id = { type = "INTEGER" }
columns.age = { type = "INTEGER", bounds = [0, 120] }
format = { delimiter = ";" }
[tables.wards]
source = "/srv/hospital/wards.parquet"
public = true
[analysts.ada]
epsilon = 1
[analysts.bob]
epsilon = 2
"""
SERVER = """
[server]
answer_times = [0.1, 1, 2.5]
time_zone = "Europe/Amsterdam"
keep_text_days = 30
max_statement_bytes = 1000
max_parameter_bytes = 1000
max_result_bytes = 10000
max_requests_per_minute = 60
max_sessions = 2
max_idle_minutes = 5
max_memory_mb = 512
max_seconds = 60
"""


def test_defaults_and_what_is_said() -> None:
    assert Policy.loads(BASE).server == ServerRules()
    assert ServerRules().answer_times == tuple(map(Fraction, ("1/4", "1/2", "1", "2", "4")))
    said = Policy.loads(BASE + SERVER)
    assert said.server.answer_times == (Fraction(1, 10), 1, Fraction(5, 2))
    assert said.server.time_zone == "Europe/Amsterdam"
    assert (said.server.keep_text_days, said.server.max_seconds) == (30, 60)
    assert Policy.loads(said.dumps()) == said
    assert Policy.loads(BASE + "[server]\nanswer_times = []\n").server.answer_times == ()


def test_neither_the_server_nor_answers_are_part_of_the_fingerprint() -> None:
    plain = Policy.loads(BASE)
    own = BASE.replace("[budget]", '[budget]\nanswers = "own"')
    assert Policy.loads(BASE + SERVER).fingerprint == plain.fingerprint == Policy.loads(own).fingerprint
    assert Policy.loads(own).budget.answers == "own"
    assert 'answers = "own"' in Policy.loads(own).dumps()
    assert Policy.loads(BASE.replace("epsilon = 3", "epsilon = 4")).fingerprint != plain.fingerprint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("answer_times = 3", "is a list of up to"),
        ("answer_times = [1, 1]", "must be in ascending order"),
        ("answer_times = [2, 1]", "must be in ascending order"),
        ("answer_times = [0]", "more than 0"),
        ("answer_times = [nan]", "not a number"),
        ("answer_times = [1e-9]", "between a millisecond and a day"),
        ("answer_times = [1, 1e9]", "between a millisecond and a day"),
        ("answer_times = ['a']", "not a number"),
        ('time_zone = "Mars/Olympus"', "there is no time zone"),
        ('time_zone = "../../etc/passwd"', "there is no time zone"),
        ("time_zone = 3", "must be a text"),
        *((f"{name} = {wrong}", "whole number") for name in (
            "keep_text_days", "max_statement_bytes", "max_parameter_bytes", "max_result_bytes", "max_requests_per_minute",
            "max_sessions", "max_idle_minutes", "max_seconds") for wrong in (0, -1, 1.5, "true", '"a"', 2**31)),
        ("max_memory_mb = 10", "at least 256 MB"),
        ("max_memory_mb = 0", "whole number"),
        ("answer_tines = []", "unknown key answer_tines"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_a_caret(line: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        Policy.loads(f"{BASE}\n[server]\n{line}\n")
    key = line.partition(" ")[0]
    excerpt = caught.value.excerpt()
    assert key in excerpt[0]
    assert "^" in excerpt[1]


def test_answers_is_one_of_two_words() -> None:
    with pytest.raises(PolicyError, match="there is no answers mine"):
        Policy.loads(BASE.replace("[budget]", '[budget]\nanswers = "mine"'))


def test_an_analyst_reads_no_source_no_other_analyst_and_no_limit() -> None:
    policy = Policy.loads(BASE + SERVER, base="/srv/hospital")
    for name in ("ada", "ADA"):
        mine = policy.for_analyst(name)
        text = mine.dumps()
        for secret in ("/srv", "hospital", ".csv", "bob"):
            assert secret not in text
            assert secret not in repr(mine)
        assert "max_" not in text
        again = Policy.loads(text)
        assert list(again.analysts) == ["ada"]
        assert again.server.answer_times == policy.server.answer_times
        assert again.tables["visits"].columns["age"].bounds == (0, 120)
        assert again.tables["wards"].public
    assert list(policy.for_analyst(None).analysts) == []
    assert list(policy.for_analyst("nobody").analysts) == []


def test_show_policy_says_the_times(tmp_path: Path) -> None:
    text = """[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = "ROW"\n[server]\nanswer_times = [0.5, 1]\n"""
    with dpsql.connect({"t": pa.table({"a": [1]})}, policy=Policy.loads(text)) as session:
        rows = session.sql("SHOW POLICY").fetchall()
    assert ("server", "answer_times", "0.5, 1") in rows
    assert ("budget", "answers", "shared") in rows
