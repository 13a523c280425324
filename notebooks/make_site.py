"""Assemble the documentation out of the repository and build it into build/site/html, without a network.

pip install '.[docs]'
python notebooks/make_site.py           # runs the examples of all pages: about a minute
python notebooks/make_site.py --static  # without their outputs
python notebooks/make_shots.py          # run first, for screenshots: needs JupyterLab, playwright and a Chromium

The site has the pages of notebooks/docs, the notebooks as stories, the language reference, and the changelog. Links are
written for the repository; this script rewrites them for the site.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "site"
PAGES = "notebooks/docs"
MOVED = {
    "grammar/REFERENCE.md": "reference/language.md",
    "grammar/dpsql.ebnf": "reference/dpsql.ebnf",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files outside of notebooks/docs that are pages of the site, with their paths in the site."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")


def find_page(path: str) -> str | None:
    """Return the site path of a file of the repository; None if the file is not part of the site."""
    if path in MOVED:
        return MOVED[path]
    folder, name = posixpath.split(path)
    if folder == "notebooks" and name.endswith(".ipynb"):
        return f"stories/{name}"
    if path.startswith(f"{PAGES}/") and (ROOT / path).is_file():
        return path.removeprefix(f"{PAGES}/")
    return None


def move_links(text: str, path: str) -> str:
    """Rewrite the links of a file of the repository; a link out of the site becomes plain text."""
    page = find_page(path)
    assert page is not None, path

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
        there = find_page(target)
        if there is None:
            if not (ROOT / target).exists():
                raise SystemExit(f"{path} links to {found[2]}, which does not exist")
            return found[1]
        return f"[{found[1]}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{found[3] or ''})"

    return _LINK.sub(moved, text)


def list_sources() -> list[str]:
    """Return the files of the site, as paths in the repository."""
    pages = [
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / PAGES).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    ]
    stories = [p.relative_to(ROOT).as_posix() for p in (ROOT / "notebooks").glob("*.ipynb")]
    return sorted([*pages, *stories, *MOVED])


def assemble(source: Path, shots: Path | None = None) -> None:
    """Write the sources of the site into an empty folder."""
    for path in list_sources():
        target = source / (find_page(path) or "")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            target.write_text(move_links((ROOT / path).read_text(encoding="utf-8"), path), encoding="utf-8")
        elif path.endswith(".ipynb"):
            notebook = json.loads((ROOT / path).read_text(encoding="utf-8"))
            for cell in notebook["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = move_links("".join(cell["source"]), path)
            target.write_text(json.dumps(notebook), encoding="utf-8")
        else:
            shutil.copy(ROOT / path, target)
    if shots is not None and shots.is_dir():
        shutil.copytree(shots, source / "shots")


def build(place: Path, static: bool = False) -> Path:
    """Assemble and build the site; every warning is an error. Returns the folder of its pages."""
    source, html = place / "source", place / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    assemble(source, ROOT / "build" / "shots")
    inherited = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), inherited])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "DPSQL_SITE_EXECUTION": "off" if static else "force",
        "DPSQL_STATE": str(place / "state"),  # the register of ledgers stays out of the home folder
    }
    flags = ["-q", "-W", "--keep-going", "-d", str(place / "doctrees")]
    subprocess.run(
        [sys.executable, "-m", "sphinx", *flags, str(source), str(html)], env=environment, check=True
    )
    return html


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--static", action="store_true", help="don't run the examples")
    parser.add_argument("--output", type=Path, default=BUILD, help="the folder to build in")
    given = parser.parse_args(arguments)
    print(build(given.output.resolve(), given.static) / "index.html")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
