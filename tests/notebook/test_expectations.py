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


TO_42: dict[int, tuple[str, ...]] = {
    1: ("a first result within a minute", "benchmarks/test_first_minute_speed.py::test_the_first_minute_is_as_quick_as_it_was"),
    2: ("one line to connect, and what is there", f"{SESSIONS}::test_loading_gives_both_magics_and_advertises_nobody"),
    3: ("SQL colours in the Lab", "notebook/test_jupyterlab.py::test_the_colours_are_there_and_only_in_our_cells"),
    4: ("colours in VS Code and a terminal",
        "decided: VS Code colours a cell by its language, a setting in how_do_i.md; IPython's prompt takes no lexers for magics",
        "notebook/test_prompt.py::test_a_terminal"),
    5: ("Tab: tables, columns, aliases, quoted names", f"{COMPLETE}::test_what_is_offered_by_context"),
    6: ("Tab: values inside quotes, options", f"{COMPLETE}::test_options_come_with_their_help"),
    7: ("Shift-Tab on words", "notebook/test_inspection.py::test_each_word_of_the_language_has_help"),
    8: ("errors without tracebacks", f"{MAGIC}::test_rows_are_refused_in_three_lines",
        "test_session.py::test_a_marimo_notebook_prints_no_traceback_through_our_files"),
    9: ("errors in the editor, while one writes and after",
        "notebook/test_jupyterlab_help.py::test_the_words_that_would_be_refused_are_underlined_while_one_writes",
        "notebook/test_panel.py::test_the_words_of_a_refusal_are_marked_while_one_writes",
        "notebook/test_jupyterlab_help.py::test_the_line_of_an_error_is_marked_until_the_text_changes"),
    10: ("hints can be pasted", "binding/test_hints.py::test_hints_lead_to_statements_that_are_bound"),
    11: ("parameters", f"{MAGIC}::test_parameters_are_bound_from_the_notebook"),
    12: ("a result into a variable", f"{MAGIC}::test_keeping_a_result_shows_nothing_or_its_cost"),
    13: ("pandas, polars, Arrow with intervals", f"{RESULT}::test_intervals_go_along_into_frames"),
    14: ("ask a frame, whose ledger knows it again", f"{SESSIONS}::test_connecting_takes_variables",
         "test_replay.py::test_a_frame_is_known_again_by_its_rows"),
    15: ("earlier results in later cells", f"{MAGIC}::test_kept_results_are_relations_of_later_cells"),
    16: ("many statements", f"{MAGIC}::test_several_statements_are_all_shown"),
    17: ("aligned tables, head and tail", f"{RENDER}::test_long_results_show_head_and_tail"),
    18: ("wide tables scroll", f"{RENDER}::test_wide_tables_scroll_and_their_footers_wrap_at_the_width_of_the_cell"),
    19: ("sort, filter, all rows", f"{BROWSER}::test_a_heading_sorts_and_a_word_filters",
         f"{RENDER}::test_long_results_unfold_to_all_rows"),
    20: ("charts", "notebook/test_plots.py::test_days_and_numbers_are_drawn_as_a_line_in_a_band",
         "notebook/test_plots.py::test_groups_of_two_keys_have_both_in_their_labels"),
    21: ("charts in both themes", "notebook/test_plots.py::test_pictures_can_be_read_on_light_and_on_dark_pages"),
    22: ("dark theme", f"{BROWSER}::test_everything_can_be_read"),
    23: ("progress, its share and the time taken", "notebook/test_progress.py::test_slow_work_shows_a_line_and_wipes_it",
         "notebook/test_progress.py::test_the_share_is_shown_where_it_is_known",
         "notebook/test_progress.py::test_the_time_of_a_slow_answer_stays"),
    24: ("interrupt, with its cost", f"{SESSIONS}::test_an_interrupted_cell"),
    25: ("the price while typing", "notebook/test_panel.py::test_the_price_of_a_cell_is_told_and_nothing_is_spent_or_logged"),
    26: ("the cost of each answer", f"{MAGIC}::test_an_answer_is_a_table_with_an_interval_and_one_line_of_cost"),
    27: ("history with links", "notebook/test_panel.py::test_the_budget_follows_each_cell_and_links_to_it"),
    28: ("schema browser", "notebook/test_schema_tree.py::test_it_has_what_the_policy_says_and_spends_nothing",
         "binding/test_habits.py::test_a_table_is_described_by_public_facts"),
    29: ("EXPLAIN as a list", f"{RENDER}::test_explain_is_a_list_whose_sql_is_folded"),
    30: ("stored answers say so", f"{MAGIC}::test_the_same_cell_again_is_free_and_equal"),
    31: ("nbclient, nbconvert, CI", "test_notebooks.py::test_a_notebook_runs"),
    32: ("marimo", "test_dbapi.py::test_intervals_are_columns_on_request", f"{RENDER}::test_a_bundle_is_of_plain_texts"),
    33: ("intervals in every client", "test_sqlalchemy_dialect.py::test_intervals_are_columns_on_request",
         "server/postgres/test_clients.py::test_intervals_are_columns_on_request"),
    34: ("CSV with warts", "engine/test_csv_warts.py::test_a_first_policy_of_a_file_with_warts_is_answered"),
    35: ("mistakes cost nothing", "binding/test_free_refusals.py::test_a_text_that_no_declared_value_is_like_is_refused",
         "binding/test_free_refusals.py::test_a_condition_that_nothing_within_the_bounds_meets_is_noted"),
    36: ("a useless answer is named", f"{RENDER}::test_numbers_that_drown_in_noise_are_named",
         f"{RENDER}::test_what_an_answer_lacks_comes_before_how_it_was_made",
         "decided: before payment EXPLAIN and the panel show the error; whether it is too much depends on the answer"),
    37: ("roles, shares, tokens", "server/test_rights.py::test_every_operation_of_every_protocol_asks_the_right"),
    38: ("audit, backup, restore", "ledger/test_upkeep.py::test_a_restored_ledger_goes_on_and_the_replaced_one_does_not"),
    39: ("admin page", "server/test_console.py::test_what_is_left_and_who_may_ask"),
    40: ("a formatter", "language/test_formatter.py::test_only_white_space_changes", f"{SESSIONS}::test_sql_is_formatted",
         "notebook/test_jupyterlab_help.py::test_a_key_lays_out_the_cell_and_undo_takes_it_back"),
    41: ("docs that are run", "test_documentation.py::test_the_examples_of_a_page_run"),
    42: ("frequent questions", "test_documentation.py::test_every_page_is_in_the_navigation"),
}  # fmt: skip
"""The expectations of a first day and a hundredth, compared with DuckDB's, OpenDP's, Tumult's and marimo's documentation."""


@cache
def _tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "row", [*ROWS.values(), *TO_42.values(), *FRONT_ENDS.values()], ids=lambda row: row[0]
)
def test_every_expectation_has_its_test(row: tuple[str, ...]) -> None:
    what, *tests = row
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
    assert list(TO_42) == list(range(1, 43))
    assert sum(how.startswith("decided: ") for _, *tests in ROWS.values() for how in tests) == 2
