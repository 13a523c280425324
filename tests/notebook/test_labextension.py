"""The extension that colours %%dpsql cells in JupyterLab: built from these sources, and right about what is what."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import BindError

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "labextension"
NODE = shutil.which("node")


def test_its_words_are_the_languages() -> None:
    made: Any = runpy.run_path(str(FOLDER / "make_words.py"))
    source = (FOLDER / "src" / "tokens.js").read_text(encoding="utf-8")
    assert made["words"]() in source, "run python notebooks/labextension/make_words.py and build again"


def test_what_is_shipped_was_built_from_them() -> None:
    told = json.loads((FOLDER / "built" / "package.json").read_text(encoding="utf-8"))
    static = FOLDER / "built" / "static"
    assert (FOLDER / "built" / told["jupyterlab"]["_build"]["load"]).exists()
    code = "".join(path.read_text(encoding="utf-8") for path in static.glob("*.js"))
    source = (FOLDER / "src" / "tokens.js").read_text(encoding="utf-8")
    words = {word for found in re.findall(r"new Set\((\[.*\])\)", source) for word in json.loads(found)}
    assert len(words) > 100
    assert all(f'"{word}"' in code for word in words)
    assert len(code) < 30_000
    assert not re.search(r"https?://|fetch\(|XMLHttpRequest|eval\(|/tmp/|/home/", code)
    project = (FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert "share/jupyter/labextensions/dpsql-labextension/static" in project


def tokens(cell: str) -> list[tuple[str, str]]:
    assert NODE is not None
    script = "import {tokens} from './src/tokens.js'; console.log(JSON.stringify(tokens(process.argv[1])));"
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script, cell],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        check=True,
    )
    return [(cell[start:end], kind) for start, end, kind in json.loads(done.stdout)]


@pytest.mark.skipif(NODE is None, reason="no Node")
def test_what_is_what() -> None:
    cell = """%%dpsql --fresh out
-- FROM here 'not a string
SELECT WITH DP OPTIONS (epsilon = 0.5) "from", COUNT(*), avg(x, epsilon => .1) /* SELECT */
FROM visits WHERE city = $city AND note <> 'it''s FROM' AND count > 1e3"""
    found = tokens(cell)
    for token in [
        ("%%dpsql", "keyword"), (" --fresh out", "plain"), ("-- FROM here 'not a string", "comment"), ("SELECT", "keyword"),
        ("epsilon", "named"), ("0.5", "number"), ('"from"', "plain"), ("COUNT", "call"), ("avg", "call"), ("=>", "operator"),
        ("/* SELECT */", "comment"), ("visits", "plain"), ("$city", "variable"), ("'it''s FROM'", "string"),
        ("count", "plain"), ("1e3", "number"),
    ]:  # fmt: skip
        assert token in found, token
    ends = [(cell.index(text), kind) for text, kind in found[:3]]
    assert ends == sorted(ends), "in the order of the text"


@pytest.mark.skipif(NODE is None, reason="no Node")
@pytest.mark.parametrize(
    "cell", ["x = 'SELECT'", "%%sql\nSELECT 1", "# %%dpsql\n1", "%dpsql budget", "%%dpsqlx\n1"]
)
def test_no_other_cell_is_touched(cell: str) -> None:
    assert tokens(cell) == []


@pytest.mark.skipif(NODE is None, reason="no Node")
def test_text_that_does_not_end_is_coloured_all_the_same() -> None:
    assert tokens("%%dpsql\nSELECT 'open")[-1] == ("'open", "string")
    assert tokens("%%dpsql\nSELECT /* open")[-1] == ("/* open", "comment")
    assert tokens("%%dpsql") == [("%%dpsql", "keyword")]


def run_links(call: str) -> object:
    assert NODE is not None
    script = f"import * as links from './src/links.js'; console.log(JSON.stringify({call} ?? null));"
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script], capture_output=True, text=True, cwd=FOLDER, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="no Node")
def test_cells_are_found_by_their_text() -> None:
    cells = json.dumps(
        [{"id": "a", "text": "x = 1"}, {"id": "b", "text": "%%dpsql\nSELECT COUNT(*)\n FROM t"}]
    )
    assert run_links(f"links.findCell({cells}, 'SELECT COUNT(*) FROM t')") == "b"
    assert run_links(f"links.findCell({cells}, 'SELECT COUNT(*)...')") == "b"
    assert run_links(f"links.findCell({cells}, 'SELECT 2 FROM t')") is None
    assert run_links(f"links.findCell({cells}, '...')") is None
    assert run_links("links.cellOf('#cell-id=a%20b')") == "a b"
    assert run_links("links.cellOf('https://else.where')") is None


@pytest.mark.skipif(NODE is None, reason="no Node")
@pytest.mark.parametrize(
    ("cell", "asks"),
    [("%%dpsql\nSELECT 1", True), ("x = %dpsql SELECT 1", True), ("x = y % z", False), ("# %%dpsql", False)],
)
def test_only_cells_of_magics_are_sent_to_be_priced(cell: str, asks: bool) -> None:
    assert run_links(f"links.mayAsk({json.dumps(cell)})") is asks


@pytest.mark.skipif(NODE is None, reason="no Node")
def test_which_line_an_error_is_about() -> None:
    """The excerpt that the error itself shows, in the cell as it stands."""
    sql = "SELECT plan,\n  COUNT(*)\nFROM nowhere"
    error = BindError("no table.", span=(sql.index("nowhere"), len(sql)), text=sql)
    taken = BindError("no table.", span=(5, 10), text="out << SELECT")
    cases = [
        ("%%dpsql\n" + sql, error, 4),
        ("\n%%dpsql --fresh\n" + sql, error, 5),
        ("%%dpsql\n" + sql.replace("nowhere", "visits"), error, None),
        ("%%dpsql --file q.sql\n", error, None),
        ("x = 1\n" + sql, error, None),
        ("%dpsql out << SELECT", taken, 1),
        ("%%dpsql\n" + sql, BindError("no place."), None),
        ("print(1)", error, None),
    ]
    script = "import {errorLine} from './src/errors.js'; const cases = JSON.parse(process.argv[1]);"
    script += "console.log(JSON.stringify(cases.map(([text, lines]) => errorLine(text, lines) ?? null)));"
    given = json.dumps([(text, error.lines()) for text, error, _ in cases])
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", script, given], capture_output=True, text=True, cwd=FOLDER, check=True
    )  # fmt: skip
    assert json.loads(done.stdout) == [expected for *_, expected in cases]
