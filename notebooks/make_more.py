"""Turn the stories in sources/*.md into notebooks, run them, and store their outputs.

python notebooks/make_more.py [04 05 ...]

A source is Markdown; each fenced block is a cell of code. A fence with the word `raises` is a cell that must fail.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "sources"
_FENCE = re.compile(r"^```(python|sql)( raises)?\n(.*?)\n```$", re.MULTILINE | re.DOTALL)

_SOCKET = re.compile(r"/tmp/\w+(?=/dpsql\.sock)")
"""Socket of the story's server: a short path, different in each run."""


def notebook(source: Path) -> nbformat.NotebookNode:
    """Return the notebook of a source, without outputs."""
    text, cells, at = source.read_text(encoding="utf-8"), [], 0
    for found in _FENCE.finditer(text):
        prose = text[at : found.start()].strip()
        if prose:
            cells.append(new_markdown_cell(prose))
        tags = {"tags": ["raises-exception"]} if found[2] else {}
        cells.append(new_code_cell(found[3], metadata=tags))
        at = found.end()
    if text[at:].strip():
        cells.append(new_markdown_cell(text[at:].strip()))
    for i, node in enumerate(cells):
        node["id"] = f"cell-{i:02}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def drop_erased(cell: nbformat.NotebookNode) -> None:
    """Remove the outputs of a cell that have an empty text: lines of progress that were erased."""
    if "outputs" in cell:
        cell.outputs = [o for o in cell.outputs if o.get("data", {}).get("text/plain", "...") != ""]


def run_notebook(made: nbformat.NotebookNode) -> None:
    """Run a notebook in an empty folder, and remove this machine's paths from its outputs."""
    from nbclient import NotebookClient

    with TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "DPSQL_STATE": folder}
        resources = {"metadata": {"path": folder}}
        NotebookClient(made, timeout=300, resources=resources).execute(env=environment)
        places = (folder, str(HERE.parent))
        for cell in made.cells:
            cell.metadata.pop("execution", None)
            drop_erased(cell)
            for output in cell.get("outputs", []):
                said = {**output.get("data", {}), "text": output.get("text"), "evalue": output.get("evalue")}
                for kind, text in said.items():
                    if not isinstance(text, str) or kind == "image/png":
                        continue
                    for place in places:
                        text = text.replace(place, ".")
                    text = _SOCKET.sub("/run", text)
                    holder = output if kind in ("text", "evalue") else output["data"]
                    holder[kind] = text


def main(wanted: list[str]) -> None:
    for source in sorted(SOURCES.glob("*.md")):
        if wanted and not source.name.startswith(tuple(wanted)):
            continue
        made = notebook(source)
        run_notebook(made)
        nbformat.write(made, HERE / f"{source.stem}.ipynb")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
