"""The cases of grammar/corpora and the policies that they are read under."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import dpsql
from tests.support.case_files import Case, read_cases

CORPORA = Path(__file__).resolve().parents[2] / "grammar" / "corpora"
WRITE = os.environ.get("DPSQL_CORPORA") == "write"
KEYS = {"case", "params", "policy", "caret"}
POLICY = dpsql.Policy.load(CORPORA / "policy.toml")
POLICIES = {
    "usual": POLICY,
    "strict": dataclasses.replace(
        POLICY, budget=dataclasses.replace(POLICY.budget, default_epsilon=None, default_delta=None)
    ),
    "mu": dataclasses.replace(
        POLICY,
        budget=dpsql.policy.model.Budget(
            mu=1,
            delta=POLICY.budget.delta,
            max_epsilon_per_query=3,
            default_delta=POLICY.budget.default_delta,
        ),
    ),
    "no_caps": dataclasses.replace(
        POLICY,
        tables={
            name: dataclasses.replace(table, max_rows=None, max_groups=None)
            if not table.row_level and not table.public
            else table
            for name, table in POLICY.tables.items()
        },
    ),
    "spent": dataclasses.replace(
        POLICY,
        budget=dataclasses.replace(POLICY.budget, epsilon=Fraction(1, 5), default_epsilon=Fraction(1, 10)),
    ),
}


def read(path: Path) -> Iterator[Case]:
    for case in read_cases(path, KEYS):
        assert "case" in case.keys, f"{path}: case {case.index + 1} has no title"
        assert case.ruled or WRITE, f"{path}: {case.keys['case']} expects nothing"
        yield case


def cases(folder: str) -> list[Case]:
    found = [case for path in sorted((CORPORA / folder).glob("*.sql")) for case in read(path)]
    assert found, f"{folder} is empty"
    assert len({str(case) for case in found}) == len(found), f"two cases of {folder} have one title"
    return found


def queries() -> list[Case]:
    """Return the cases that have a plan under the usual accountant, without EXPLAIN.

    A DECLARE reads no rows, so no engine writes it; budgets in mu are read in tests/corpora. No unit is cut to one row: each
    engine would keep another one.
    """
    found = [
        dataclasses.replace(
            case, text=case.text.removeprefix("EXPLAIN ").replace(", max_rows_contributed = 1", "")
        )
        for case in [*cases("plan"), *cases("explain")]
        if case.keys.get("policy") != "mu"
    ]
    return [case for case in found if not case.text.startswith("DECLARE ")]
