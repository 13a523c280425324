"""The language reference is what the grammar, the binder's tables and the docstrings say now."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

GRAMMAR = Path(__file__).resolve().parents[2] / "grammar"


def made() -> dict[str, Any]:
    return runpy.run_path(str(GRAMMAR / "make_reference.py"))


def test_the_reference_does_not_drift() -> None:
    stored = (GRAMMAR / "REFERENCE.md").read_text(encoding="utf-8")
    assert stored == made()["reference"](), "run python grammar/make_reference.py, and read the difference"


def test_every_rule_of_the_grammar_is_there_with_its_example() -> None:
    text = (GRAMMAR / "dpsql.ebnf").read_text(encoding="utf-8")
    rules = re.findall(r"^(\w+)\s+= ", text, re.M)
    stored = (GRAMMAR / "REFERENCE.md").read_text(encoding="utf-8")
    told = re.findall(r"^\*\*(\w+)\*\*", stored, re.M)
    assert len(rules) > 25 and told == rules
    examples = re.findall(r"^for example `(.*)`$", stored, re.M)
    assert len(examples) == len(rules)
    assert all(e.count("(") == e.count(")") for e in examples), "none is cut"


def test_what_is_documented_is_what_is_completed() -> None:
    """Every option and argument that the binder reads is offered, and nothing else."""
    from dpsql.notebook import guide
    from dpsql.notebook.complete import FUNCTIONS
    from dpsql.sql.dp import aggregates, registry
    from dpsql.sql.parse.options import COMMON_OPTIONS
    from dpsql.sql.ptr import block as ptr
    from dpsql.sql.selection import block as selection
    from dpsql.sql.selection import thresholds
    from dpsql.sql.subsample import block as subsample

    readers = (COMMON_OPTIONS, ptr.OPTIONS, subsample.OPTIONS, thresholds.OPTIONS)
    assert {name for r in readers for name in r} == {*guide.OPTIONS, *guide.MORE_OPTIONS}
    calls = (aggregates.ARGUMENTS, ptr.ARGUMENTS, *selection.ARGUMENTS.values())
    assert {name for r in calls for name in r} == set(guide.ARGUMENTS)
    known = {*registry.TABLE, *selection.MECHANISMS, *ptr.KNOWN}
    assert known <= {*FUNCTIONS, "COUNT_IF", "MEAN"}, known - set(FUNCTIONS)
