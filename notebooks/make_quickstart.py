"""Write 01_quickstart.ipynb from the demo's cells, run it, and store its outputs.

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
Experiment (1974 to 1982, public domain). These records need no protection any more; the notebook treats them as
a private table.

`%%dpsql` must be the first line of its cell. dpsql protects *released* answers and keeps account of the budget.
It is not a sandbox: in this process you can still read the data."""

ENDING = """\
`_` and `out << SELECT ...` keep a result; `.df()`, `.pl()` and `.arrow()` convert it; `.plot()` draws bars
with whiskers. `%dpsql?` lists all flags, `%dpsql mechanisms` all mechanisms."""


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
