"""The displays: one sheet, two spellings."""

from __future__ import annotations

import html
import re
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

import dpsql
from dpsql.demo import POLICY
from dpsql.notebook import render
from dpsql.notebook.sessions import show_tables
from dpsql.privacy.events import PureDP
from dpsql.report.tables import measure_width
from dpsql.session.result import Result


def test_numbers_with_intervals_are_rounded_to_what_the_noise_allows() -> None:
    result = Result(
        pa.table({"city": ["Delft", "Leiden"], "visits": [1243, 878]}),
        intervals={"visits": [(1213.04, 1272.96), (848.04, 907.96)]},
        cost_line="cost ε=0.1 · ε=0.8 of ε=1 left",
    )
    assert repr(result).splitlines() == [
        " city     visits   95% interval",
        " Delft     1 240   ± 30",
        " Leiden      880   ± 30",
        " 2 rows · cost ε=0.1 · ε=0.8 of ε=1 left · intervals cover noise only",
    ]


@pytest.mark.parametrize(("columns", "lines"), [("110", 1), ("60", 2), ("20", 2)])
def test_the_caption_is_folded_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    parts = ["intervals cover noise only"]
    result = Result(pa.table({"n": [1]}), cost_line="cost ε=0.1 · ε=0.8 of ε=1 left", notes=parts)
    assert len(repr(result).splitlines()) == 2 + lines


def test_the_ledger_shows_beginnings_and_keeps_whole_texts(tmp_path: Path) -> None:
    text = f"SELECT COUNT(*) AS n\nFROM visits WHERE plan < '{'x' * 200}'"
    with dpsql.connect(policy=POLICY, ledger=tmp_path / "own.ledger") as session:
        session.sql(text)
        shown = session.sql("SHOW LEDGER")
    assert shown.df()["text"].tolist() == [text]
    assert max(map(len, repr(shown).splitlines())) < 200
    assert "SELECT COUNT(*) AS n FROM visits" in repr(shown)
    assert "xxx..." in repr(shown)
    assert "texts are shown up to 60 characters; .df() has them whole" in repr(shown)
    assert "x" * 100 not in shown._repr_mimebundle_()["text/html"]


def test_the_budget_fits_a_screen(tmp_path: Path) -> None:
    with dpsql.connect(policy=POLICY, ledger=tmp_path / "own.ledger") as session:
        shown = repr(session.sql("SHOW BUDGET")).splitlines()
    assert shown[0].split() == ["whose", "whole"]
    assert ["left_epsilon", "3"] in [line.split() for line in shown]
    assert max(map(len, shown)) < 80
    assert len(shown) < 24


def test_a_paid_null_has_no_empty_column_of_intervals() -> None:
    result = Result(
        pa.table({"s": pa.array([None], pa.float64())}), intervals={"s": [(0.0, 5.0)]}, cost_line="cost ε=0.1"
    )
    assert repr(result).splitlines()[0].split() == ["s"]


def test_a_comparison_has_no_interval_and_says_what_it_is() -> None:
    note = "a noisy comparison: near 100 it can be wrong either way"
    result = Result(pa.table({"busy": [True]}), cost_line="cost ε=0.1", notes=[note])
    assert repr(result).splitlines() == [" busy", " true", f" 1 row · cost ε=0.1 · {note}"]


@pytest.mark.parametrize("half", [0.011, 0.19, 0.2, 1.0, 2.31, 29.957, 123.4, 54321.0])
def test_the_shown_interval_is_never_too_narrow(half: float) -> None:
    shown, width = render.round_with_interval(1000.0, (1000.0 - half, 1000.0 + half))
    said = float(width.replace("± ", "").replace(" ", ""))
    assert half * 0.999999 <= said <= half * 1.11
    assert abs(float(shown.replace(" ", "")) - 1000.0) <= half / 2


def test_a_value_off_the_middle_shows_both_ends() -> None:
    assert render.round_with_interval(0, (0.0, 12.0)) == ("0", "0 to 12")


def test_long_results_show_head_and_tail() -> None:
    text = repr(Result(pa.table({"n": list(range(1000))})))
    rows = text.splitlines()
    assert rows[-1].strip() == "20 of 1 000 rows"
    assert [r.strip() for r in rows[1:13]] == [*map(str, range(10)), "…", "990"]
    assert rows[-2].strip() == "999"
    assert repr(Result(pa.table({"n": list(range(20))}))).splitlines()[-1].strip() == "20 rows"


def test_html_has_the_same_rows_and_escapes_them() -> None:
    names = ["<script>alert(1)</script>", 'a"b', "&amp;", "x\ny"]
    result = Result(pa.table({"<b>": names, "n": [1, 2, 3, 4]}), notes=["<i>note</i>"])
    page = result._repr_mimebundle_()["text/html"]
    assert "<script" not in page
    assert "<i>" not in page
    assert "<b>" not in page
    cells = [html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", page)]
    expected = [[c.heading, *c.cells] for c in render.make_result_sheet(result).columns]
    assert cells == [cell for row in zip(*expected, strict=True) for cell in row]
    assert page.count("<table") == 1
    assert page.count("<caption") == 1
    assert 'scope="col"' in page
    assert not re.search(r"color|<script|javascript", page, re.I)
    small = Result(pa.table({"n": list(range(5))}))._repr_mimebundle_()["text/html"]
    assert "onclick" not in small, "it is read at a glance"
    assert "onclick" in Result(pa.table({"n": list(range(6))}))._repr_mimebundle_()["text/html"]


def test_explain_is_a_list_whose_sql_is_folded(tmp_path: Path) -> None:
    with dpsql.connect(policy=POLICY, ledger=tmp_path / "own.ledger") as session:
        shown = session.sql("EXPLAIN SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan")
    page = shown._repr_mimebundle_()["text/html"]
    steps = re.findall(r"^\d+\. (.*)$", repr(shown), re.M)
    assert len(steps) > 3
    assert [html.unescape(item) for item in re.findall(r"<li>(.*?)</li>", page)] == steps
    assert '<ol start="1"' in page
    assert re.search(r"<details><summary>Exact SQL \(\d+ lines\)", page)


def test_long_results_unfold_to_all_rows() -> None:
    page = Result(pa.table({"n": list(range(300))}))._repr_mimebundle_()["text/html"]
    short, _, whole = page.partition("<details")
    assert (short.count("<td"), whole.count("<td")) == (21, 300)
    assert "all 300 rows" in whole
    assert 'type="search"' in whole
    assert "onclick" not in short, "a table without its middle is not sorted"
    many = Result(pa.table({"n": list(range(render.MAX_UNFOLDED + 1))}))
    assert "<details" not in many._repr_mimebundle_()["text/html"]


def test_wide_tables_scroll_and_their_footers_wrap_at_the_width_of_the_cell() -> None:
    long = "a text of more than forty letters, which may be broken between its words"
    page = Result(pa.table({"n": [1234567], "word": ["short"], "text": [long]}))._repr_mimebundle_()[
        "text/html"
    ]
    assert page.startswith(
        '<div class="mathjax_ignore" style="overflow-x: auto; container-type: inline-size"><table'
    )
    assert "width: 100cqw; white-space: normal" in page.partition("<caption")[2].partition("</caption>")[0]
    unbroken = [("nowrap" in style) for style in re.findall(r"<td style=\"([^\"]*)\"", page)]
    assert unbroken == [True, True, False]


def test_midnight_is_left_out_if_all_times_are_midnights() -> None:
    days = [datetime(2025, 1, 1), None, datetime(2025, 2, 1)]
    shown = repr(Result(pa.table({"day": days}))).splitlines()
    assert [line.strip() for line in shown[1:4]] == ["2025-01-01", "NULL", "2025-02-01"]
    shown = repr(Result(pa.table({"time": [*days, datetime(2025, 2, 1, 5)]}))).splitlines()
    assert [line.strip() for line in shown[1:3]] == ["2025-01-01 00:00:00", "NULL"]


def test_a_bundle_is_of_plain_texts() -> None:
    """A front end's serialiser may know ``str`` and nothing derived from it: marimo then shows nothing at all."""
    with dpsql.connect(policy=POLICY) as session:
        statement = "SELECT COUNT(*) AS n FROM visits"
        shown = [session.sql("SELECT 1 AS a"), session.explain(statement), session.budget_panel()]
        shown += [render.Panel("text"), render.make_sheet(("a",), [(1,)])]
        for item in shown:
            bundle = item._repr_mimebundle_(include=None, exclude=None)
            assert [type(text) for text in bundle.values()] == [str, str]
            assert re.match(r'<pre |<\w+ class="[\w -]*mathjax_ignore"', bundle["text/html"]), (
                "$a and $b are no formula"
            )


def test_no_value_can_forge_a_row_or_move_the_cursor() -> None:
    text = repr(Result(pa.table({"s": ["a\n fake 1", "\x1b[2J", "\u202eabc", "tab\there"]})))
    assert len(text.splitlines()) == 6
    assert all(line.isprintable() for line in text.splitlines())


def test_wide_characters_line_up() -> None:
    rows = repr(Result(pa.table({"city": ["東京", "Ulm"], "n": [1, 2]}))).splitlines()
    assert len({measure_width(row) for row in rows[:3]}) == 1


def test_special_numbers() -> None:
    shown = [render.format_cell(v) for v in (None, True, 0.1, 1e300, float("nan"), -0.0, 2**70)]
    assert shown == ["NULL", "true", "0.1", "1e+300", "nan", "-0", str(2**70)]
    assert render.round_with_interval(5.0, (float("-inf"), float("inf"))) == ("5", "")


def test_decimal_points_stand_under_each_other() -> None:
    values = {"a": [3.4812, 2.7, 2.4049]}
    intervals = {"a": [(3.33, 3.63), (2.45, 2.95), (2.2, 2.6)]}
    shown = render.make_result_sheet(Result(pa.table(values), intervals=intervals)).columns[0].cells
    assert shown == ("3.48", "2.70", "2.40")
    wide = {"a": [(3.33, 3.63), (-40.0, 45.4), (2.2, 2.6)]}
    shown = render.make_result_sheet(Result(pa.table(values), intervals=wide)).columns[0].cells
    assert shown[1] == "0", "far apart, each row keeps to its own noise"


def test_a_number_without_an_interval_says_why() -> None:
    from dpsql.privacy.events import PureDP

    event = PureDP(Fraction(1, 10))
    computed = Result(pa.table({"ratio": [0.25]}), event=event)
    assert render.write_caption(computed)[-1] == render.NO_INTERVAL
    chosen = Result(pa.table({"price": ["3.00"]}), event=event)
    public = Result(pa.table({"ratio": [0.25]}))
    assert render.NO_INTERVAL not in (*render.write_caption(chosen), *render.write_caption(public))


def test_numbers_that_drown_in_noise_are_named() -> None:
    ends = {"n": [(-60.0, 80.0), (-90.0, 50.0), (930.0, 1070.0)]}
    result = Result(pa.table({"n": [10, -20, 1000]}), intervals=ends, event=PureDP(Fraction(1)))
    assert "n is mostly noise: EXPLAIN names the change that helps most" in render.write_caption(result)
    both = Result(
        pa.table({"n": [10], "m": [5.0]}),
        intervals={"n": [(-60.0, 80.0)], "m": [(-6.0, 16.0)]},
        event=PureDP(Fraction(1)),
    )
    assert "n and m are mostly noise: EXPLAIN names the change that helps most" in render.write_caption(both)
    clear = Result(pa.table({"n": [10, 2000, 1000]}), intervals=ends, event=PureDP(Fraction(1)))
    assert not any("noise:" in part for part in render.write_caption(clear))
    for kind in (pa.float64(), pa.decimal128(21, 1)):
        mean = Result(
            pa.table({"n": pa.array([40, -9], pa.int64()).cast(kind)}),
            intervals={"n": [(-60.0, 140.0), (-100.0, 82.0)]},
            event=PureDP(Fraction(1)),
        )
        assert "n is mostly noise: EXPLAIN names the change that helps most" in render.write_caption(mean)


def test_what_an_answer_lacks_comes_before_how_it_was_made() -> None:
    notes = [
        "only 5 rows per id are used",
        "no group was kept: groups below about 70 privacy units are left out",
    ]
    empty = Result(pa.table({"n": pa.array([], pa.int64())}), notes=notes, cost_line="cost ε=0.1")
    assert render.write_caption(empty) == ("0 rows", "cost ε=0.1", notes[1], notes[0])
    drowned = Result(
        pa.table({"n": [10]}), intervals={"n": [(-60.0, 80.0)]}, event=PureDP(Fraction(1)), notes=notes[:1]
    )
    assert [part.split()[0] for part in render.write_caption(drowned)] == ["1", "n", "only", "intervals"]


def test_a_count_below_zero_is_explained_once() -> None:
    def said(values: list[int], half: float) -> list[str]:
        pairs = [(v - half, v + half) for v in values]
        result = Result(pa.table({"n": values}), intervals={"n": pairs})
        return [line for line in render.write_caption(result) if "below 0" in line]

    assert said([-3, -4, 100], 10.0) == [
        "n below 0 may be noise: its interval reaches above 0; GREATEST(..., 0) is free"
    ]
    assert not said([3, 100], 10.0), "a sum that is below 0 is not noise"
    assert not said([-500], 10.0), "a sum that is below 0 is not noise"


def test_the_schema_tree_has_what_the_policy_says_and_spends_nothing(tmp_path: Path) -> None:
    with dpsql.connect(policy=POLICY, ledger=tmp_path / "x.ledger") as session:
        session.sql("kept << SELECT plan FROM plans")
        before = session.budget().spent
        tree = show_tables(session)
        assert session.budget().spent == before
    lines = tree.text().splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "visits · private: protects all rows of any one person_id, max_rows = 5, max_groups = 1 · 27 columns",
        "plans · public · 3 columns",
        "kept · a kept result · 1 column",
    ]
    assert "  age                  DOUBLE     0 to 65" in lines
    assert "  person_id            INTEGER    the privacy unit: can be counted, never shown" in lines
    assert tree.html().count("<details open") == 3
    assert "<code>age</code> DOUBLE · 0 to 65" in tree.html()


def test_a_tree_of_many_columns_is_folded() -> None:
    columns = tuple((f"c{i}", "INTEGER", "") for i in range(render.MAX_LINES + 1))
    tree = render.SchemaTree((render.TreeTable("wide", "public", columns),))
    assert (
        tree.text()
        == f"wide · public · {render.MAX_LINES + 1} columns\nDESCRIBE and a table's name list its columns"
    )
    assert "<details>" in tree.html()
    assert "c80" in tree.html()


def test_names_of_the_tree_are_never_markup() -> None:
    tree = render.SchemaTree((render.TreeTable("<b>x", "a kept result", (("<script>", "VARCHAR", "<i>"),)),))
    assert "<script>" not in tree.html()
    assert "<i>" not in tree.html()
    assert render.SchemaTree(()).html().endswith("the policy names no tables</div>")
