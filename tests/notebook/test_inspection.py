"""Help on a word of ours: at Shift-Tab in a kernel, by ``%dpsql help``."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dpsql.catalogue.aggregate_names import AGGREGATES
from dpsql.notebook import guide, inspection
from dpsql.notebook.completion import ColumnFacts, KnownNames
from dpsql.notebook.inspection import Matcher

NAMES = KnownNames(
    {
        "visits": {
            "plan": ColumnFacts(help="free, full"),
            "id": ColumnFacts(help="the privacy unit: can be counted, never shown"),
        },
        "plans": {"plan": ColumnFacts(help="public"), "price": ColumnFacts(help="public")},
    },
    {"city": "str"},
)  # fmt: skip


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.kernel = SimpleNamespace(do_inspect=lambda *given, **more: {"found": False})
    shell.run_cell("%load_ext dpsql")
    yield shell
    shell.run_cell("%unload_ext dpsql")


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matcher, "find_names", lambda self: NAMES)


def hover(shell: Any, text: str) -> str:
    """Return what Shift-Tab shows at the ``|`` of a cell; empty where the kernel's own answer is asked for."""
    reply = shell.kernel.do_inspect(text.replace("|", ""), text.index("|"), detail_level=0)
    return str(reply["data"]["text/plain"]) if reply["found"] else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%dpsql\nSELECT WITH DP OPTIONS (eps|ilon = 1) COUNT(*) FROM visits", guide.OPTIONS["epsilon"]),
        (
            "%%dpsql\nSELECT WITH DP OPTIONS (noise| = AUTO) COUNT(*) FROM visits",
            "one of LAPLACE, GAUSSIAN, AUTO",
        ),
        ("%%dpsql\nSELECT CO|UNT(*) FROM visits", "COUNT: a noisy number of rows or of people"),
        ("%%dpsql\nSELECT ABOVE_THRESHOLD|(COUNT(*), 5)", "max_hits => ...: "),
        ("%%dpsql\nSELECT WITH PTR| IQR(age) FROM visits", "propose, test, release"),
        (
            "%%dpsql\nSELECT COUNT(*) FROM vis|its",
            "visits: a table\n  plan  free, full\n  id    the privacy unit",
        ),
        ("%%dpsql\nSELECT plan| FROM visits", "plan: free, full\n  a column of visits"),
        ("%%dpsql\nSELECT p.plan| FROM visits v, plans p", "plan: public\n  a column of plans"),
        ("%%dpsql\nSELECT $ci|ty", "bound to the variable city, a str"),
        ("%%dpsql\nSELECT $tow|n", "no variable that could be bound"),
        ("%%dpsql --pa|rams $values\nSELECT 1", "--params dict: "),
        ("%dpsql bud|get", guide.COMMANDS["budget"]),
        ("x = %dpsql SELECT SU|M(age) FROM visits", "a noisy sum"),
    ],
)
def test_what_a_word_is(shell: InteractiveShell, text: str, expected: str) -> None:
    assert expected in hover(shell, text)


def test_the_alias_decides_whose_column_it_is(shell: InteractiveShell) -> None:
    assert "visits" not in hover(shell, "%%dpsql\nSELECT p.plan| FROM visits v, plans p")


@pytest.mark.parametrize(
    "text",
    ["print|(1)", "%%timeit\nCOUNT|", "%%dpsql\nSELECT 'COU|NT'", "%%dpsql\nSELECT nothing|", "%%dpsql\n-- COU|NT", "COUNT|"],
)  # fmt: skip
def test_everything_else_is_the_kernels_own(shell: InteractiveShell, text: str) -> None:
    assert hover(shell, text) == ""


def test_a_server_that_is_gone_is_no_error(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Matcher) -> KnownNames:
        raise RuntimeError("gone")

    monkeypatch.setattr(Matcher, "find_names", fail)
    assert hover(shell, "%%dpsql\nSELECT COU|NT(*)") == ""


def test_each_word_of_the_language_has_help() -> None:
    for word in inspection.list_helped_words():
        assert inspection.describe_word(word, KnownNames()), word
    for row in AGGREGATES:
        if row.help:
            assert row.help in inspection.describe_word(row.name.lower(), KnownNames())


def test_help_on_a_word_in_print(shell: InteractiveShell) -> None:
    shell.run_cell("told = %dpsql help max_hits")
    assert "the number of hits after which it stops" in shell.user_ns["told"].text()
    error = shell.run_cell("%dpsql help max_hit").error_in_exec
    assert str(error) == "there is no help on max_hit.\nHint: did you mean max_hits?"


def test_unloading_gives_the_kernel_its_own_answer_back() -> None:
    class Kernel:
        def do_inspect(self, *given: Any) -> str:
            return "own"

    kernel = Kernel()
    inspection.hook_kernel(kernel, lambda text, at: "ours")
    inspection.hook_kernel(kernel, lambda text, at: "")  # loaded again: no hook upon a hook
    assert kernel.do_inspect("x", 0) == "own"
    inspection.unhook_kernel(kernel)
    assert "do_inspect" not in vars(kernel)
