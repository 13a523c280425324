"""Writes the words of the language into src/tokens.js, from the tables that completion and the lexer use.

python notebooks/labextension/make_words.py

A new word alone needs no new build: it is written into built/ too. What else changes in src/ does: build.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from dpsql.notebook.guide import ARGUMENTS, KEYWORDS, OPTIONS
from dpsql.notebook.lexer import MORE

SOURCE = Path(__file__).resolve().parent / "src" / "tokens.js"


def words() -> str:
    """The block between the two marks."""
    sets = {
        "KEYWORDS": sorted({*KEYWORDS, *MORE}),
        "NAMED": sorted({*OPTIONS, *ARGUMENTS}),
    }
    return "".join(f"const {name} = new Set({json.dumps(found)});\n" for name, found in sets.items())


def main() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    text = re.sub(r"(// @words[^\n]*\n).*?(// @end)", lambda m: m[1] + words() + m[2], text, flags=re.S)
    SOURCE.write_text(text, encoding="utf-8")
    write_built(text)


def write_built(source: str) -> None:
    """Replace the sets of words in what is shipped, so that a new word alone needs no new build."""
    sets = [json.loads(found) for found in re.findall(r"new Set\((\[.*\])\)", source)]
    for path in (SOURCE.parents[1] / "built" / "static").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        shipped = list(re.finditer(r"new Set\((\[[^\]]*\])\)", text))
        for found in reversed(shipped):
            old = set(json.loads(found[1]))
            new = max(sets, key=lambda words: len(old & set(words)))
            text = text[: found.start(1)] + json.dumps(new, separators=(",", ":")) + text[found.end(1) :]
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
