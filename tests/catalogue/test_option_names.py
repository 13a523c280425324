"""The catalogue's words are those that the mechanisms obey."""

from __future__ import annotations

import dpsql.binding.modes.subsample_block  # noqa: F401  (registers readers of its options)
from dpsql.catalogue.aggregate_names import AGGREGATES, MODE_HELP, MODES
from dpsql.catalogue.option_names import ARGUMENT_NAMES, COMBINERS, OPTION_NAMES
from dpsql.language.options import AUTO, readers_of
from dpsql.mechanisms.selection.exponential import CHOICE_METHODS
from dpsql.mechanisms.strategies import STRATEGY_NAMES


def test_listed_words_are_those_of_the_mechanisms() -> None:
    words = {row.name: row.words for row in (*OPTION_NAMES, *ARGUMENT_NAMES) if row.help}
    assert words["strategy"] == (AUTO, *STRATEGY_NAMES)
    assert words["method"] == tuple(CHOICE_METHODS)
    assert words["combine"] == COMBINERS


def test_a_taker_reads_a_name_in_one_way() -> None:
    for rows in (OPTION_NAMES, ARGUMENT_NAMES):
        taken = [(row.name, taker) for row in rows for taker in row.takers]
        assert len(taken) == len(set(taken))
        first = {row.name: row for row in reversed(rows)}
        assert all(row.help for row in first.values() if row.name != "rows")


def test_every_mode_has_options_and_help() -> None:
    assert MODE_HELP.keys() == MODES.keys() - {"ANONYMIZATION"}
    for mode in MODES.values():
        assert {"epsilon", "privacy_unit_column"} <= readers_of(mode).keys()
    assert {mode for row in AGGREGATES for mode in row.modes} == {*MODES.values(), "CHOICE"}
