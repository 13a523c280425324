"""The messages to the panel beside the notebook: the budget after each cell, and the price of a cell before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dpsql.notebook.panel import MAX_CELLS, TARGET, CellTexts
from dpsql.report.tables import BudgetPanel, Charge

COUNT = "SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) AS n FROM visits"


class Kernel:
    """A kernel, as far as the panel and the help on words need one."""

    def __init__(self) -> None:
        self.comm_manager = Manager()

    def do_inspect(self, *given: Any, **more: Any) -> dict[str, Any]:
        return {"found": False}


class Manager:
    """A kernel's comm manager, as far as the panel needs one."""

    def __init__(self) -> None:
        self.targets: dict[str, Any] = {}

    def register_target(self, name: str, function: Any) -> None:
        self.targets[name] = function


class Comm:
    """A front end's end of a comm."""

    comm_id = "one"

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.closed = False

    def on_msg(self, function: Any) -> None:
        self.receive = function

    def on_close(self, function: Any) -> None:
        self.left = function

    def send(self, data: dict[str, Any]) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def price(self, text: str) -> dict[str, Any]:
        self.receive({"content": {"data": {"want": "price", "text": text, "number": 7}}})
        assert self.sent[-1]["kind"] == "price"
        assert self.sent[-1]["number"] == 7
        return self.sent[-1]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    shell.kernel = Kernel()
    shell.run_cell("%load_ext dpsql\n%alias_magic sql dpsql")
    yield shell
    shell.run_cell("%dpsql close\n%unload_ext dpsql")


@pytest.fixture
def comm(shell: InteractiveShell) -> Comm:
    shell.run_cell("%dpsql demo")
    comm = Comm()
    shell.kernel.comm_manager.targets[TARGET](comm, {})
    return comm


def entries(shell: InteractiveShell) -> int:
    return len(shell.magics_manager.registry["DpsqlMagic"].sessions["main"].ledger())


def test_the_budget_follows_each_cell_and_links_to_it(shell: InteractiveShell, comm: Comm) -> None:
    assert "ε=3 left" in comm.sent[-1]["html"]
    shell.run_cell(f"%%dpsql\n{COUNT}", cell_id="first")
    shell.run_cell("%%dpsql\nSELECT * FROM visits", cell_id="second")
    html = comm.sent[-1]["html"]
    assert comm.sent[-1]["open"]
    assert "ε=2.5 of ε=3 left" in html
    assert f'<a href="#cell-id=first">{COUNT}</a>' in html
    assert '<a href="#cell-id=second">SELECT * FROM visits</a>' in html
    assert 'aria-label="17% spent"' in html
    said = shell.run_cell("%dpsql budget").result
    budget, tables = html.split("<h2>Tables</h2>")
    assert said.html() == budget, "the same renderer elsewhere"
    assert "<details><summary><b>visits</b>" in tables
    assert "<table" not in tables, "its rows are the charges"
    assert "cell-id" not in said.text()


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (f"%%dpsql\n{COUNT}", "Would cost ε=0.5"),
        ("%%dpsql --epsilon 0.7\nSELECT COUNT(*) FROM visits", "Would cost ε=0.7"),
        ("%%dpsql -o out\nSELECT COUNT(*) FROM visits", "within ±150"),
        (f"%%sql\n{COUNT}", "Would cost ε=0.5"),
        (f"%%dpsql\nout << {COUNT}", "Would cost ε=0.5"),
        (f"x = %dpsql {COUNT}", "Would cost ε=0.5"),
        ("age = 3\n%dpsql budget", ""),
        ("%%dpsql\nSELECT COUNT(*) FROM visits WHERE age < $age", "Would cost ε=0.1"),
        (f"%%dpsql\n{COUNT}; {COUNT} WHERE age < 30", "Together they would cost ε=1"),
        ("%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 5) COUNT(*) FROM visits", "BudgetExceeded: "),
        ("%%dpsql\nSELECT COUNT(* FROM visits", "ParseError: "),
        ("%%dpsql\nSELECT '<b>' FROM visits", "PrivacyError: "),
        ("%%dpsql\nSHOW BUDGET", ""),
        ("%%dpsql\n-- nothing yet", ""),
        ("%dpsql budget", ""),
        ("%%timeit\nSELECT COUNT(*) FROM visits", ""),
        ("print(1)", ""),
    ],
)  # fmt: skip
def test_the_price_of_a_cell_is_told_and_nothing_is_spent_or_logged(
    shell: InteractiveShell, comm: Comm, cell: str, said: str
) -> None:
    shell.user_ns["age"] = 30
    found = comm.price(cell)
    assert said in found["html"]
    assert bool(found["html"]) == bool(said)
    assert "<b>" not in found["html"]
    assert entries(shell) == 0


def test_without_a_session_the_panel_says_so(shell: InteractiveShell) -> None:
    comm = Comm()
    shell.kernel.comm_manager.targets[TARGET](comm, {})
    assert comm.sent == [{"kind": "budget", "open": False, "html": ""}]
    assert "no session is open" in comm.price(f"%%dpsql\n{COUNT}")["html"]


def test_a_panel_never_disturbs_the_notebook(
    shell: InteractiveShell, comm: Comm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comm, "send", fail)
    assert shell.run_cell("%dpsql SELECT 1").success
    comm.receive({"content": {"data": "what?"}})
    comm.receive({})


def test_reloading_leaves_one_panel_and_unloading_none(shell: InteractiveShell, comm: Comm) -> None:
    shell.run_cell("%reload_ext dpsql")
    assert comm.closed
    again = Comm()
    shell.kernel.comm_manager.targets[TARGET](again, {})
    shell.run_cell("1")
    assert len(again.sent) == 2
    again.left({})
    shell.run_cell("1")
    assert len(again.sent) == 2, "a closed panel is told nothing"
    shell.run_cell("%unload_ext dpsql")
    assert TARGET not in shell.kernel.comm_manager.targets


def test_a_statement_is_found_in_the_cell_that_ran_it_last() -> None:
    cells = CellTexts()
    cells.note("a", "%%dpsql\nSELECT COUNT(*)\n  FROM visits")
    cells.note("b", "%%dpsql\nSELECT AVG(age) FROM visits; SELECT COUNT(*) FROM visits")
    assert cells.find("SELECT COUNT(*) FROM visits") == "b"
    cells.note("a", "%%dpsql\nSELECT COUNT(*)\n  FROM visits")
    assert cells.find("SELECT COUNT(*) FROM visits") == "a"
    assert cells.find("SELECT AVG(age) FROM vis...") == "b", "a server sends long texts clipped"
    assert cells.find("SELECT 1") == ""
    assert cells.find("") == ""
    assert cells.find("...") == ""
    for i in range(MAX_CELLS):
        cells.note(str(i), "x")
    assert cells.find("SELECT COUNT(*) FROM visits") == ""


def test_a_link_is_escaped() -> None:
    charge = Charge("2026-01-01T00:00:00+00:00", "0", "refused", "<i>", '"><script>')
    from dpsql import Policy
    from dpsql.ledger.ledger import Ledger

    policy = Policy.loads('[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = "p"\nmax_rows = 1')
    ledger = Ledger.open(None, policy, "data")
    html = BudgetPanel(ledger.state(), (charge,), 1).html()
    assert "<script>" not in html
    assert "<i>" not in html


@pytest.mark.parametrize(
    "head", ["%%dpsql --fresh\n", "%%dpsql\nout << ", "%%sql\n-- 🦩\n", "%dpsql ", "x = %dpsql "]
)
def test_the_words_of_a_refusal_are_marked_while_one_writes(comm: Comm, head: str) -> None:
    cell = f"{head}SELECT COUNT(*) AS n FROM vists WHERE age < 30"
    problem = comm.price(cell)["problem"]
    written = cell.encode("utf-16-le")  # as a front end counts
    assert written[2 * problem["from"] : 2 * problem["to"]].decode("utf-16-le") == "vists"
    assert "vists" in problem["message"]
    assert "did you mean visits" in problem["message"]
    assert comm.price(cell.replace("vists", "visits"))["problem"] is None
    assert comm.sent[-1]["of"] == cell.replace("vists", "visits")


def test_a_cell_is_laid_out_for_the_editor(shell: InteractiveShell, comm: Comm) -> None:
    def lay(text: str) -> dict[str, Any]:
        comm.receive({"content": {"data": {"want": "layout", "text": text}}})
        assert comm.sent[-1]["kind"] == "layout"
        assert comm.sent[-1]["of"] == text
        return comm.sent[-1]

    long = "%%dpsql --fresh\nout << SELECT COUNT(*) AS n FROM visits WHERE age < 30"
    made = lay(long)["text"]
    assert made == "%%dpsql --fresh\nout << SELECT COUNT(*) AS n\nFROM visits\nWHERE age < 30"
    assert lay(made)["text"] == made
    assert lay("x = 'select  1'")["text"] == "x = 'select  1'"
    assert lay("%%timeit\nselect  1")["text"] == "%%timeit\nselect  1"
    assert "refused" in lay("%%dpsql\nSELECT 'open")
    assert entries(shell) == 0
