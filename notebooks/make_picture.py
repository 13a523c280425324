"""Draw the README's picture: two cells of the quick start with their outputs, readable in light and dark.

python notebooks/make_picture.py

A test compares the file with this drawing, so that it matches the notebook.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import nbformat
from pygments.token import Token

from dpsql.notebook.lexer import DpsqlLexer

HERE = Path(__file__).resolve().parent
PICTURE = HERE / "docs" / "static" / "answer.svg"
SHOWN = ("AVG(doctor_visits)", "SELECT * FROM visits")
"""Text that identifies the cells; the first matching cell with an output is used."""

LINE, LETTER, EDGE = 20, 8.4, 16
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #24292f; white-space: pre; }
.paper { fill: #ffffff; stroke: #d0d7de; } .cell { fill: #f6f8fa; }
.k { fill: #0550ae; font-weight: bold; } .f { fill: #8250df; } .n { fill: #953800; } .s { fill: #0a3069; }
.quiet { fill: #57606a; } .bad { fill: #cf222e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .paper { fill: #0d1117; stroke: #30363d; } .cell { fill: #161b22; }
  .k { fill: #79c0ff; } .f { fill: #d2a8ff; } .n { fill: #ffa657; } .s { fill: #a5d6ff; }
  .quiet { fill: #9198a1; } .bad { fill: #ff7b72; }
}"""
_CLASSES = (
    (Token.Keyword, "k"),
    (Token.Name.Function, "f"),
    (Token.Literal.Number, "n"),
    (Token.Literal.String, "s"),
)


def find_cells() -> list[tuple[str, str]]:
    """Return each shown cell with its output: the table, or the error's lines."""
    cells = nbformat.read(HERE / "01_quickstart.ipynb", as_version=4).cells
    found = []
    for words in SHOWN:
        cell = next(c for c in cells if words in c.source and c.outputs and "--explain" not in c.source)
        output = cell.outputs[0]
        failed = output.output_type == "error"
        found.append(
            (cell.source, f"{output.ename}: {output.evalue}" if failed else output.data["text/plain"])
        )
    return found


def colour(source: str) -> list[str]:
    """Return a cell's lines as SVG, with highlighting."""
    lines = [""]
    for kind, text in DpsqlLexer().get_tokens(source.strip("\n")):
        name = next((name for token, name in _CLASSES if kind in token), "")
        for i, part in enumerate(text.split("\n")):
            if i:
                lines.append("")
            if part:
                lines[-1] += f'<tspan class="{name}">{escape(part)}</tspan>' if name else escape(part)
    return lines[:-1] if not lines[-1] else lines


def draw() -> str:
    """Return the picture."""
    cells = find_cells()
    width = max(len(line) for cell in cells for text in cell for line in text.split("\n")) * LETTER + 4 * EDGE
    parts, y = [], EDGE
    for source, printed in cells:
        code = colour(source)
        box = f'width="{width - 2 * EDGE:g}" height="{len(code) * LINE + 14}" rx="4"'
        parts.append(f'<rect class="cell" x="{EDGE}" y="{y}" {box}/>')
        y += 7
        for line in code:
            y += LINE
            parts.append(f'<text x="{2 * EDGE}" y="{y - 5}">{line}</text>')
        y += 13
        for line in printed.split("\n"):
            y += LINE
            name = "bad" if "Error:" in line else "quiet" if " · " in line or line.startswith("Hint") else ""
            said = f' class="{name}"' if name else ""
            parts.append(f'<text x="{2 * EDGE}" y="{y - 5}"{said}>{escape(line)}</text>')
        y += EDGE
    told = " ".join(" ".join(text.split()) for cell in cells for text in cell)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:g} {y}" width="{width:g}" height="{y}">',
        f"<title>{escape(told)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1:g}" height="{y - 1}" rx="6"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(PICTURE.write_text(draw(), encoding="utf-8") and None)
