"""Completion, in our cells only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlglot
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from dpsql.binding.dp.aggregates import NAMED_ARGUMENTS
from dpsql.binding.mode_table import options_of_mode
from dpsql.binding.modes.choice import SELECTION_ARGUMENTS
from dpsql.binding.modes.declared import DECLARE_OPTIONS
from dpsql.binding.modes.ptr import PTR_ARGUMENTS
from dpsql.language.options import COMMON_OPTIONS
from dpsql.notebook import guide
from dpsql.notebook.completion import ColumnFacts, KnownNames, complete_sql
from dpsql.notebook.inspection import Matcher, list_parameters
from tests.support.own_process import run_python


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.run_cell("%load_ext dpsql")
    yield shell
    shell.run_cell("%unload_ext dpsql")


@pytest.fixture(autouse=True)
def schema(monkeypatch: pytest.MonkeyPatch, shell: InteractiveShell) -> None:
    tables = {
        "visits": {"plan": ColumnFacts(), "doctor_visits": ColumnFacts(), "year": ColumnFacts()},
        "wards": {"beds": ColumnFacts()},
    }
    monkeypatch.setattr(Matcher, "find_names", lambda self: KnownNames(tables, {"plan": "str"}))
    matcher = next(m for m in shell.Completer.custom_matchers if isinstance(m, Matcher))
    monkeypatch.setitem(matcher._sessions, "main", object())


def offered(shell: InteractiveShell, text: str) -> list[str]:
    with provisionalcompleter():
        return [c.text for c in shell.Completer.completions(text, len(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%dpsql\nSELECT do", ["doctor_visits"]),
        ("%%dpsql\nSELECT v.do", ["v.doctor_visits"]),
        ("%%dpsql\nSELECT be FROM visits WHERE bet", ["between"]),
        ("%%dpsql\nSELECT COUNT(*) FROM vi", ["visits"]),
        ("%%dpsql\nSELECT WITH DP OPTIONS (max_g", ["max_groups_contributed"]),
        ("%%dpsql\nSELECT ABOVE", ["ABOVE_THRESHOLD"]),
        ("%%dpsql\nsel", ["select"]),
        ("%%dpsql --expl", ["--explain"]),
        ("%dpsql bud", ["budget"]),
        ("x = %dpsql SELECT COUN", ["COUNT", "COUNT_IF"]),
    ],
)
def test_what_is_offered(shell: InteractiveShell, text: str, expected: list[str]) -> None:
    assert offered(shell, text) == expected


@pytest.mark.parametrize(
    "text", ["doctor_", "%%timeit\ndoctor_", "x = 1 # %dpsql\ndoctor_", "s = '%%dpsql'\ndoctor_"]
)
def test_nothing_in_other_cells(shell: InteractiveShell, text: str) -> None:
    assert not any("doctor_visits" in name for name in offered(shell, text))


def test_python_is_not_offered_in_ours(shell: InteractiveShell) -> None:
    names = offered(shell, "%%dpsql\nex")
    assert set(names) == {"expmech", "explain"}, "Python's exec, exit and except stay away"
    assert "exec" in offered(shell, "ex")


def test_an_alias_of_ours_is_ours(shell: InteractiveShell) -> None:
    assert "doctor_visits" not in offered(shell, "%%sql\nSELECT do")
    shell.run_cell("%alias_magic sql dpsql")
    assert offered(shell, "%%sql\nSELECT do") == ["doctor_visits"]


# -- by context

SEEN = {
    "visits": {
        "plan": ColumnFacts(("'free'", "'it''s'"), "free, it's"),
        "age": ColumnFacts(help="0 to 100"),
        "year": ColumnFacts(("1", "2"), "1, 2"),
        "Kunden Nr.": ColumnFacts(help="the privacy unit: can be counted, never shown"),
    },
    "wards": {"ward": ColumnFacts(), "beds": ColumnFacts()},
}
NAMES = KnownNames(SEEN, {"city": "str", "ages": "list"}, ("alarm",))


def at_cursor(text: str) -> list[str]:
    """Return what is offered at the ``|`` of a text."""
    at = text.index("|")
    start, offers = complete_sql(text.replace("|", ""), at, NAMES)
    assert 0 <= start <= at
    return [offer.text for offer in offers]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT v.| FROM visits AS v JOIN wards w ON true", ["plan", "age", "year", '"Kunden Nr."']),
        ("SELECT w.b| FROM visits v JOIN wards w ON true", ["beds"]),
        ("SELECT wards.| FROM visits, wards", ["ward", "beds"]),
        ("WITH c(p, q) AS (VALUES (1, 2)) SELECT c.| FROM c", ["p", "q"]),
        ("WITH c AS (SELECT WITH DP OPTIONS (epsilon = 1) ward AS w, COUNT(*) AS n FROM wards) SELECT x.| FROM c x", ["w", "n"]),
        ("SELECT s.| FROM (SELECT * FROM wards) AS s", ["ward", "beds"]),
        ("SELECT ag| FROM wards; SELECT bed| FROM wards".replace("ag|", "1"), ["beds"]),
        ("SELECT COUNT(*) FROM visits WHERE plan = '|", ["free'", "it''s'"]),
        ("SELECT COUNT(*) FROM visits WHERE plan = 'f|'", ["free"]),
        ("SELECT COUNT(*) FROM visits WHERE plan NOT IN ('free', 'i|", ["it''s'"]),
        ("SELECT CASE plan WHEN '|", ["free'", "it''s'"]),
        ("SELECT COUNT(*) FROM visits WHERE age = '|", []),
        ("SELECT 'plan = |", []),
        ("SELECT 1 -- pl|", []),
        ("SELECT /* pl|", []),
        ("SELECT $|", ["$city", "$ages"]),
        ("SELECT $c|", ["$city"]),
        ("SELECT WITH P| ", ["PTR"]),
        ("SELECT WITH al| ", ["alarm"]),
        ("CLOSE |", ["alarm"]),
        ("SHOW TR|", ["TRADEOFF", "TRADEOFF SPENT"]),
        ("SELECT WITH DP OPTIONS (epsilon = 1, noise = |", ["LAPLACE", "GAUSSIAN", "AUTO"]),
        ("SELECT WITH DP OPTIONS (epsilon = 1, eps|", []),
        ("SELECT WITH DP OPTIONS (bl|", []),
        ("SELECT WITH SUBSAMPLE OPTIONS (bl|", ["blocks"]),
        ("SELECT WITH SUBSAMPLE OPTIONS (combine = 'noisy|", ["noisy_mode'", "noisy_votes'"]),
        ("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (max_|", ["max_hits"]),
        ("DECLARE alarm STABLE OPTIONS (max_|", ["max_unstable"]),
        ("SELECT WITH DP OPTIONS (privacy_unit_column = |) COUNT(*) FROM visits", ['"Kunden Nr."']),
        ("SELECT EXPMECH(COUNT(*), met|", ["method => "]),
        ("SELECT EXPMECH(COUNT(*), method => '|", ["exponential'", "permute_and_flip'", "noisy_max'", "gumbel'"]),
        ("SELECT SUM(age, contribution_bounds_per_r|", ["contribution_bounds_per_row => "]),
        ("SELECT SUM(age, contribution_bounds_per_row => A|) FROM visits", ["AUTO", "age"]),
        ("SELECT WITH PTR IQR(age, ba|", ["base => "]),
        ('SELECT "K| FROM visits', ['Kunden Nr."']),
        ("WITH c AS (SELECT 1 AS a) SELECT EXPMECH(COUNT(*)) OVER c| FROM visits", ["c"]),
        ("SELECT COUNT(*) FROM visits, wa|", ["wards"]),
        ("SELECT 1.|", []),
        ("SELECT COUNT(*) AS n FROM visits GRO|", ["GROUP"]),
    ],
)  # fmt: skip
def test_what_is_offered_by_context(text: str, expected: list[str]) -> None:
    assert at_cursor(text) == expected


def test_tables_after_from_and_nothing_else() -> None:
    assert at_cursor("WITH c AS (SELECT 1 AS a) SELECT * FROM |") == ["c", "visits", "wards"]


def test_options_come_with_their_help() -> None:
    text = "SELECT WITH DP OPTIONS ("
    offers = complete_sql(text, len(text), NAMES)[1]
    assert {offer.text for offer in offers} == set(COMMON_OPTIONS)
    assert all(offer.help == guide.OPTIONS[offer.text] and offer.kind == "option" for offer in offers)


_FRESH = """
import sys
from dpsql.notebook.completion import list_arguments, list_options
print(*(len(list_options(mode)) for mode in ("DP", "PTR", "STABLE", "SUBSAMPLE", "DECLARE", "DECLARE STABLE", "mine")))
print(*list_arguments("IQR", "PTR"))
print([name for name in sys.modules if name.startswith("dpsql.binding")])
"""


def test_names_are_offered_before_the_binder_is_loaded() -> None:
    """A session on a server never loads it."""
    done = run_python("-c", _FRESH, timeout=60)
    counts, arguments, loaded = done.stdout.splitlines()
    assert "0" not in counts.split()
    assert {"base", "test", "local_sensitivity"} <= set(arguments.split())
    assert loaded == "[]"


def test_each_value_that_is_offered_is_taken() -> None:
    readers = {**(options_of_mode("SUBSAMPLE") or {}), **DECLARE_OPTIONS, **COMMON_OPTIONS}
    for name, values in guide.OPTION_VALUES.items():
        for value in values:
            readers[name](sqlglot.parse_one(value), name)
    arguments = {**PTR_ARGUMENTS, **NAMED_ARGUMENTS}
    for call in SELECTION_ARGUMENTS.values():
        arguments.update(call)
    for name, values in guide.ARGUMENT_VALUES.items():
        for value in values:
            arguments[name](sqlglot.parse_one(value), name)
    assert set(arguments) <= set(guide.ARGUMENTS)


@pytest.mark.parametrize(
    "text",
    ["(" * 50, "SELECT ((((", "'", '"', "$$", ")))", ";;;", ". . .", "SELECT x.y.z.", "WITH", "FROM FROM"],
)
def test_no_text_is_too_odd(text: str) -> None:
    for at in range(len(text) + 1):
        complete_sql(text, at, NAMES)


def test_the_magics_own_line(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub dir").mkdir()
    for name in ("policy.toml", "other.txt", "q.sql", "v.duckdb"):
        (tmp_path / name).write_text("")
    shell.user_ns.update(city="Delft", frames={"t": 1}, module=pytest, _hidden=1, ages=[1, 2], odd=object())
    assert offered(shell, "%dpsql connect --policy p") == ["policy.toml"]
    assert set(offered(shell, "%dpsql connect ")) == {"frames", "v.duckdb", "sub\\ dir/"}
    assert offered(shell, "%%dpsql --file q") == ["q.sql"]
    assert offered(shell, "%%dpsql --params $fr") == ["frames"], "what follows the sign is replaced"
    assert offered(shell, "%dpsql columns wa") == ["wards"]
    assert offered(shell, "%dpsql policy in") == ["init"]
    assert offered(shell, "%dpsql policy check po") == ["policy.toml"]
    assert offered(shell, "%dpsql policy init --un") == ["--unit"]
    assert offered(shell, "%dpsql connect --data") == ["--database"]
    assert offered(shell, "%dpsql help max_hi") == ["max_hits"]
    bound = list_parameters(shell.user_ns)
    assert {"city": "str", "ages": "list"}.items() <= bound.items()
    assert not {"module", "odd", "_hidden", "frames"} & set(bound)
