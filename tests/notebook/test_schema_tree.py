"""The tree of tables and columns."""

from __future__ import annotations

from pathlib import Path

import dpsql
from dpsql.demo import POLICY
from dpsql.notebook.schema_tree import MAX_LINES, SchemaTree, TreeTable
from dpsql.notebook.sessions import show_tables


def test_it_has_what_the_policy_says_and_spends_nothing(tmp_path: Path) -> None:
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


def test_many_columns_are_folded() -> None:
    columns = tuple((f"c{i}", "INTEGER", "") for i in range(MAX_LINES + 1))
    tree = SchemaTree((TreeTable("wide", "public", columns),))
    assert (
        tree.text()
        == f"wide · public · {MAX_LINES + 1} columns\nDESCRIBE and a table's name list its columns"
    )
    assert "<details>" in tree.html()
    assert "c80" in tree.html()


def test_names_are_never_markup() -> None:
    tree = SchemaTree((TreeTable("<b>x", "a kept result", (("<script>", "VARCHAR", "<i>"),)),))
    assert "<script>" not in tree.html()
    assert "<i>" not in tree.html()
    assert SchemaTree(()).html().endswith("the policy names no tables</div>")
