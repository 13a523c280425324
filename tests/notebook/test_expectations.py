"""Expectations of people who write SQL in notebooks, row by row: what is checked, and by which test.

The numbers are those of the list that this project began with. A row without a test says why it is decided
otherwise. The test below checks that every test named here exists.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAGIC = "notebook/test_magic.py"
ARGUMENTS = "notebook/test_arguments.py"
RENDER = "notebook/test_render.py"
COMPLETE = "notebook/test_completion.py"
RESULT = "test_result.py"
CLI = "test_cli.py"
SESSIONS = "notebook/test_sessions.py"
EXPECTED = "mechanisms/test_expected_error.py"
BROWSER = "notebook/test_browser.py"
HOUR = "notebook/test_newcomers_hour.py"
LAB = "notebook/test_labextension.py"

ROWS: dict[int, tuple[str, ...]] = {
    # loading and sessions
    1: (
        "loading gives the line and the cell magic",
        f"{SESSIONS}::test_loading_gives_both_magics_and_advertises_nobody",
        f"{MAGIC}::test_loading_says_one_line_and_how_to_begin",
    ),
    2: ("loading twice does no harm", f"{SESSIONS}::test_loading_twice_does_no_harm"),
    3: (
        "reloading keeps the session and its budget",
        f"{SESSIONS}::test_reloading_keeps_what_was_spent",
        f"{MAGIC}::test_reloading_keeps_the_session_and_unloading_takes_the_magic",
    ),
    4: ("unloading takes everything away", f"{SESSIONS}::test_unloading_takes_everything_away"),
    5: ("nothing unused is imported", f"{SESSIONS}::test_nothing_is_imported_for_a_count"),
    6: (
        "no telemetry, nobody advertised",
        f"{SESSIONS}::test_loading_opens_no_connection",
        f"{SESSIONS}::test_loading_gives_both_magics_and_advertises_nobody",
    ),
    7: ("an open DuckDB connection is used", f"{SESSIONS}::test_an_open_connection_is_used"),
    8: ("data frames are not found by name", f"{SESSIONS}::test_frames_are_not_found_by_name"),
    9: ("several sessions, one current", f"{SESSIONS}::test_several_sessions"),
    10: ("%config lists the settings", f"{SESSIONS}::test_config_lists_the_settings"),
    11: (
        "settings of the project; where there are none, nothing is read or said",
        f"{MAGIC}::test_settings_from_pyproject",
        f"{MAGIC}::test_wrong_settings",
        f"{MAGIC}::test_other_peoples_projects_say_nothing",
    ),
    12: (
        "plain Python does the same",
        f"{SESSIONS}::test_it_works_on_the_demo_without_a_magic",
        f"{MAGIC}::test_a_restart_keeps_the_budget_and_the_answers",
    ),
    # writing the cell
    13: ("the line is for flags, the body is SQL", f"{ARGUMENTS}::test_wrong_lines_say_what_to_write"),
    14: ("one line, also assigned", f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost"),
    15: (
        "several statements, bound before any is paid",
        f"{MAGIC}::test_a_cell_is_bound_before_any_of_it_is_paid",
    ),
    16: (
        "comments anywhere; alone they do nothing",
        f"{SESSIONS}::test_comments_anywhere_and_a_last_semicolon_change_nothing",
        f"{MAGIC}::test_comments_do_nothing_and_cost_nothing",
    ),
    17: (
        "a last semicolon is fine",
        f"{SESSIONS}::test_comments_anywhere_and_a_last_semicolon_change_nothing",
        f"{MAGIC}::test_several_statements_are_all_shown",
    ),
    18: (
        "a semicolon does not silence",
        "decided: it ends SQL statements; -o is there to be quiet",
        f"{SESSIONS}::test_comments_anywhere_and_a_last_semicolon_change_nothing",
    ),
    19: ("braces and dollars arrive untouched", f"{SESSIONS}::test_braces_and_dollars_arrive"),
    20: ("$name is bound from the notebook", f"{MAGIC}::test_parameters_are_bound_from_the_notebook"),
    21: (":name is explained", f"{SESSIONS}::test_other_placeholders_are_explained"),
    22: ("templates are refused", f"{MAGIC}::test_parameters_are_bound_from_the_notebook"),
    23: (
        "--params with JSON or a variable",
        f"{MAGIC}::test_parameters_are_bound_from_the_notebook",
        f"{SESSIONS}::test_parameters_from_a_dict",
    ),
    24: ("options by name with =>", f"{SESSIONS}::test_options_by_name"),
    25: ("= inside a call is refused", f"{SESSIONS}::test_an_equals_sign_for_an_arrow"),
    26: ("letter case does not matter", f"{SESSIONS}::test_letter_case_does_not_matter"),
    27: ("SQL from a file", f"{MAGIC}::test_a_file"),
    28: (
        "highlighting: Pygments, and JupyterLab by a prebuilt extension",
        "notebook/test_lexer.py::test_a_cell",
        f"{LAB}::test_what_is_what",
        f"{LAB}::test_no_other_cell_is_touched",
        f"{LAB}::test_what_is_shipped_was_built_from_them",
    ),
    29: (
        "completion, in our cells only, of all that the binder reads",
        f"{COMPLETE}::test_nothing_in_other_cells",
        "corpora/test_reference.py::test_what_is_documented_is_what_is_completed",
    ),
    30: (
        "saved snippets",
        "decided: nothing is taken from names behind the analyst's back; a CTE is visible",
    ),
    # the result
    31: ("_ holds the result", f"{MAGIC}::test_conversion_of_the_last_result"),
    32: ("out << SELECT", f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost"),
    33: ("-o out, and %%dpsql out", f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost"),
    34: ("assigning does not display", f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost"),
    35: ("assigning and displaying", f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost"),
    36: (
        "nothing says that something was assigned",
        f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost",
    ),
    37: ("text and HTML from one source", f"{RENDER}::test_html_has_the_same_rows_and_escapes_them"),
    38: (
        "text is a good table",
        f"{RENDER}::test_numbers_with_intervals_are_rounded_to_what_the_noise_allows",
    ),
    39: (
        "one plain HTML table, escaped, readable in light and dark",
        f"{RENDER}::test_html_has_the_same_rows_and_escapes_them",
        f"{BROWSER}::test_everything_can_be_read",
    ),
    40: ("long results: head and tail", f"{RENDER}::test_long_results_show_head_and_tail"),
    41: (
        "DuckDB's conversion names",
        f"{RESULT}::test_fetchall_gives_what_duckdb_gives",
        f"{RESULT}::test_frames_have_duckdbs_types",
        f"{RESULT}::test_polars_and_the_arrow_stream",
        f"{RESULT}::test_fetchnumpy_masks_nulls",
        f"{SESSIONS}::test_the_type_of_results_can_be_set",
    ),
    42: (
        "a missing library and its install line",
        f"{RESULT}::test_a_missing_library_is_named_with_its_install_line",
    ),
    43: (
        "the default type can be set",
        f"{SESSIONS}::test_the_type_of_results_can_be_set",
        f"{MAGIC}::test_settings_from_pyproject",
    ),
    44: ("readable column names", f"{SESSIONS}::test_columns_have_readable_names"),
    45: ("a result is cheap to build", "benchmarks/test_loading.py::test_a_result_is_cheap"),
    46: (
        "plain data, picklable, no cursor",
        f"{RESULT}::test_a_result_comes_back_whole_from_pickle",
        f"{RESULT}::test_a_result_does_not_change",
    ),
    # errors
    47: (
        "type, message, caret, hint: in every case of the corpora",
        f"{MAGIC}::test_rows_are_refused_in_three_lines",
        "corpora/test_corpora.py::test_reject",
    ),
    48: ("errors can be caught", f"{MAGIC}::test_errors_can_be_caught"),
    49: (
        "Run All stops",
        f"{MAGIC}::test_a_failing_cell_stops_run_all",
        f"{HOUR}::test_run_all_stops_at_the_first_mistake",
    ),
    50: ("the nearest name", f"{SESSIONS}::test_the_nearest_name"),
    51: (
        "a refusal says what is allowed",
        f"{MAGIC}::test_rows_are_refused_in_three_lines",
        "corpora/test_corpora.py::test_reject",
    ),
    52: ("no data in errors", f"{SESSIONS}::test_no_value_of_the_data_in_an_error"),
    53: ("over budget: asked, left, what would fit", f"{MAGIC}::test_over_budget_says_what_would_fit"),
    54: (
        "an interrupted cell says what was charged",
        f"{SESSIONS}::test_an_interrupted_cell",
        f"{HOUR}::test_two_sessions_share_one_budget_until_it_is_out",
    ),
    # progress
    55: ("nothing under a second", "notebook/test_progress.py::test_quick_work_shows_nothing"),
    56: (
        "no widgets: progress is a line of text",
        f"{SESSIONS}::test_nothing_is_imported_for_a_count",
        "notebook/test_progress.py::test_slow_work_shows_a_line_and_wipes_it",
    ),
    57: (
        "the stop button stops the engine",
        "test_interruption.py::test_a_stop_ends_a_query_that_would_never_end",
        f"{HOUR}::test_two_sessions_share_one_budget_until_it_is_out",
    ),
    # price and privacy
    58: (
        "--explain and --dry-run spend nothing",
        f"{ARGUMENTS}::test_every_documented_flag_is_parsed",
        f"{MAGIC}::test_explaining_spends_nothing",
    ),
    59: (
        "the plan in numbered sentences",
        f"{MAGIC}::test_explaining_spends_nothing",
        "corpora/test_corpora.py::test_explain",
    ),
    60: (
        "the exact SQL, to be read: what is shown is what is run",
        "exact/test_layout.py::test_what_is_shown_is_what_is_run",
        f"{EXPECTED}::test_explain_is_never_cut",
    ),
    61: (
        "expected error before, on a grid of epsilons; error bar after",
        f"{EXPECTED}::test_another_epsilon_is_told_as_that_statement_itself_tells_it",
        f"{EXPECTED}::test_an_error_is_what_the_sentence_says",
        "binding/relations/test_intervals.py::test_a_column_that_goes_on_keeps_its_interval",
    ),
    62: ("the level is stated and can be set", f"{SESSIONS}::test_the_level_of_the_interval"),
    63: (
        "the owner's default epsilon, told where it is used",
        f"{MAGIC}::test_the_default_epsilon_is_never_exact",
        f"{SESSIONS}::test_a_default_epsilon_is_told_where_it_is_the_owners",
    ),
    64: ("what is left as a number of queries", f"{SESSIONS}::test_what_is_left_as_queries"),
    65: (
        "a log of every charge: when, who, what, cost, outcome",
        f"{SESSIONS}::test_the_log_says_when_who_what_and_at_what_cost",
    ),
    66: (
        "negative counts stay negative, and are explained once",
        f"{SESSIONS}::test_negative_counts_stay_negative",
        f"{RENDER}::test_a_count_below_zero_is_explained_once",
    ),
}


FRONT_ENDS: dict[str, tuple[str, ...]] = {
    "JupyterLab": (
        "in headless Chromium, light and dark",
        f"{HOUR}::test_the_short_form",
        f"{HOUR}::test_the_whole_hour",
    ),
    "terminal": ("IPython's shell", f"{HOUR}::test_every_cell_of_the_hour"),
    "marimo": ("its serialiser takes plain text", f"{RENDER}::test_a_bundle_is_of_plain_texts"),
    "Quarto": (
        "not rendered here",
        "decided: its package downloads the binary from elsewhere when it is built, and there is no other; it runs "
        "a document in a Jupyter kernel and takes its HTML",
    ),
    "VS Code": (
        "colours by a setting of the cell",
        "decided: an editor's own colouring of a cell's language is not ours to test; the setting is in how_do_i.md",
    ),
}
"""The front ends where cells are shown, in the same form as the rows."""


@cache
def _tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", [*range(1, 67), *FRONT_ENDS])
def test_every_expectation_has_its_test(row: int | str) -> None:
    what, *tests = ROWS[row] if isinstance(row, int) else FRONT_ENDS[row]
    assert what
    assert tests
    for how in tests:
        if how.startswith("decided: "):
            assert len(how) > 30, "a decision needs its reason"
            continue
        file, _, name = how.partition("::")
        assert name in _tests(file), how
        assert name.startswith("test_"), how


def test_the_table_is_whole() -> None:
    assert list(ROWS) == list(range(1, 67))
    assert sum(how.startswith("decided: ") for _, *tests in ROWS.values() for how in tests) == 2
