"""Write the map of the folders into CONTRIBUTING.md, from the first line of each folder's docstring.

python notebooks/make_map.py
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- map: python notebooks/make_map.py -->\n", "<!-- end of the map -->\n"
FOLDERS = ("dpsql", "dpsql/binding")
"""Folders whose folders the map lists."""


def write_map() -> str:
    """Return the table of folders, one row each."""
    rows = ["| folder | what it is for |", "|---|---|"]
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).glob("*/__init__.py")):
            name = file.parent.relative_to(ROOT / "dpsql").as_posix()
            rows.append(f"| `{name}/` | {_read_purpose(file)} |")
    return "\n".join(rows) + "\n"


def update_page(page: str) -> str:
    """Return the page with a new map."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + write_map() + END + rest.split(END)[1]


def _read_purpose(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("``", "`").rstrip(".")


if __name__ == "__main__":
    page = ROOT / "CONTRIBUTING.md"
    page.write_text(update_page(page.read_text(encoding="utf-8")), encoding="utf-8")
