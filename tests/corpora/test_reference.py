"""The language reference is what the grammar, the binder's tables and the docstrings say now."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import duckdb

from dpsql.catalogue.aggregate_names import AGGREGATES, WORDS, names_of
from dpsql.catalogue.row_names import ROW_NAMES

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
    assert len(rules) > 25
    assert told == rules
    examples = re.findall(r"^for example `(.*)`$", stored, re.M)
    assert len(examples) == len(rules)
    assert all(e.count("(") == e.count(")") for e in examples), "none is cut"


def test_what_is_documented_is_what_is_completed() -> None:
    """Every option and argument that the binder reads is offered, and nothing else."""
    from dpsql.binding.dp import aggregates, noisy_aggregates
    from dpsql.binding.mode_table import options_of_mode
    from dpsql.binding.modes import choice as selection
    from dpsql.binding.modes import declared
    from dpsql.binding.modes import ptr as ptr
    from dpsql.binding.modes.stable import STABLE_AGGREGATES
    from dpsql.notebook import guide

    readers = (
        *(options_of_mode(mode) or {} for mode in ("DP", "PTR", "STABLE", "SUBSAMPLE")),
        declared.DECLARE_OPTIONS,
        declared.STABLE_OPTIONS,
        declared.PROBE_OPTIONS,
    )
    assert {name for r in readers for name in r} == set(guide.OPTIONS)
    calls = (aggregates.NAMED_ARGUMENTS, ptr.PTR_ARGUMENTS, *selection.SELECTION_ARGUMENTS.values())
    assert {name for r in calls for name in r} == set(guide.ARGUMENTS)
    assert {
        *noisy_aggregates.NOISY_AGGREGATES,
        *selection.MECHANISMS,
        *ptr.PTR_FUNCTIONS,
        *STABLE_AGGREGATES,
    } <= set(WORDS)


def test_the_catalogue_names_what_the_rooms_bind() -> None:
    """A name has a row of the catalogue for each mode that binds it, and no row is without code."""
    from dpsql.binding.dp.noisy_aggregates import NOISY_AGGREGATES
    from dpsql.binding.modes import ptr as ptr
    from dpsql.binding.modes.stable import STABLE_AGGREGATES

    assert names_of("DP") == set(NOISY_AGGREGATES)
    assert names_of("PTR") == set(ptr.PTR_FUNCTIONS)
    assert names_of("STABLE") == set(STABLE_AGGREGATES)
    known = duckdb.sql(
        "SELECT upper(function_name) FROM duckdb_functions() WHERE function_type = 'aggregate'"
    ).fetchall()
    assert names_of("SUBSAMPLE") <= {name for (name,) in known}
    spelled = [name for row in AGGREGATES for name in (row.name, *row.aliases)]
    spelled += [name for row in ROW_NAMES for name in (row.name, *row.aliases)]
    assert len(spelled) == len(set(spelled))
