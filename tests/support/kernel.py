"""Runs cells in a real kernel, as Jupyter does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]


def run(cells: Sequence[str], folder: Path, allow_errors: bool = True) -> list[list[Any]]:
    """The outputs of each cell."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        allow_errors=allow_errors,
        resources={"metadata": {"path": str(folder)}},
    )
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    state = str(folder / ".state")  # keep the register of ledgers out of the home folder
    client.execute(env={**os.environ, "PYTHONPATH": path, "DPSQL_STATE": state})
    nbformat.validate(notebook)
    return [cell.outputs for cell in notebook.cells]


def text(outputs: Sequence[Any]) -> str:
    """Everything that a cell shows, as plain text; errors by name and sentence."""
    shown = []
    for output in outputs:
        if output.output_type == "stream":
            shown.append(output.text)
        elif output.output_type == "error":
            shown.append(f"{output.ename}: {output.evalue}")
        else:
            shown.append(output.data.get("text/plain", ""))
    return "\n".join(shown)


def kinds(outputs: Sequence[Any]) -> list[str]:
    return [output.output_type for output in outputs]
