"""A policy and ledgers to try things on, and their fixtures. The user's register is kept away from the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy

POLICY = """
[budget]
epsilon = {epsilon}
delta = {delta}
accountant = "{accountant}"
default_epsilon = 0.1
[tables.visits]
privacy_unit = "patient_id"
max_rows = 20
[tables.visits.columns]
amount = {{ bounds = [0, 500] }}
ward = {{ values = ["A", "B"] }}
{more}
"""


def policy_of(epsilon: str = "1", delta: str = "1e-6", accountant: str = "basic", more: str = "") -> Policy:
    return Policy.loads(POLICY.format(epsilon=epsilon, delta=delta, accountant=accountant, more=more))


@pytest.fixture(autouse=True)
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep this test's register of ledgers in a folder of its own."""
    home = tmp_path / "state"
    monkeypatch.setenv("DPSQL_STATE", str(home))
    return home


@pytest.fixture
def policy() -> Policy:
    return policy_of()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.ledger"


@pytest.fixture
def ledger(path: Path, policy: Policy) -> Ledger:
    return Ledger.open(path, policy, "visits.duckdb")


@pytest.fixture
def reopen(path: Path, policy: Policy) -> Callable[..., Ledger]:
    """Opens the same ledger again, as a restarted kernel would."""

    def again(
        other: Policy | None = None, dataset: str = "visits.duckdb", analyst: str | None = None
    ) -> Ledger:
        return Ledger.open(path, other or policy, dataset, analyst)

    return again
