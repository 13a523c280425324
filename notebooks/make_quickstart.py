"""Write 01_quickstart.ipynb from the demo's cells and run it, so that it is shown with its outputs.

python notebooks/make_quickstart.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from dpsql.demo.demo import CELLS

HERE = Path(__file__).resolve().parent
NAME = "01_quickstart.ipynb"

INTRODUCTION = """\
# Quick start

Private answers about real health records: 20,190 person-years of 5,912 people from the RAND Health Insurance
Experiment (1974 to 1982, public domain). Nothing in them needs hiding any more; here they stand in for a
table that does.

`%%dpsql` must be the first line of its cell. What you can do to the data in this process you still can: dpsql
protects what is *released*, and helps honest people keep count. It is not a sandbox."""

ENDING = """\
`_` and `out << SELECT ...` keep a result; `.df()`, `.pl()` and `.arrow()` convert it; `.plot()` draws bars
with whiskers. `%dpsql?` lists every flag, `%dpsql mechanisms` every way to get an answer."""


def notebook() -> nbformat.NotebookNode:
    """Return the notebook, without outputs."""
    cells = [new_markdown_cell(INTRODUCTION), new_code_cell("%load_ext dpsql"), new_code_cell("%dpsql demo")]
    for cell in CELLS:
        cells.append(new_markdown_cell(cell.about))
        tags = {"tags": ["raises-exception"]} if cell.refused else {}
        cells.append(new_code_cell(cell.text, metadata=tags))
    cells.append(new_markdown_cell(ENDING))
    for i, node in enumerate(cells):
        node["id"] = f"cell-{i:02}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main() -> None:
    from make_more import run_notebook

    made = notebook()
    run_notebook(made)
    nbformat.write(made, HERE / NAME)


if __name__ == "__main__":
    sys.exit(main())
