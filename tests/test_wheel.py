"""The wheel: its members, and one digest for the same sources. ``.ci/run wheel`` installs it and runs tests against it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import dpsql

ROOT = Path(__file__).resolve().parents[1]
EPOCH = 1_700_000_000
EXTENSION = r"dpsql-[^/]+\.data/data/share/jupyter/labextensions/dpsql-labextension/(static/)?[^/]+\.js(on)?"
ALLOWED = re.compile(
    rf"dpsql/([a-z_0-9]+/)*[a-z_0-9]+\.py|dpsql/py\.typed|dpsql/demo/[a-z]+\.(parquet|toml)|dpsql/demo/PROVENANCE\.md"
    rf"|dpsql/report/templates/\w+\.(html|css|js|svg)|dpsql/server/postgres/pg_catalog\.txt|{EXTENSION}"
    rf"|dpsql-[^/]+\.dist-info/(licenses/LICENSE|METADATA|WHEEL|RECORD|entry_points\.txt|top_level\.txt)"
)


def build_wheel(folder: Path, *, changed_at: int, **environment: str) -> Path:
    """Build the wheel from a copy of the sources whose files have this time of change."""
    source = folder / "source"
    shutil.copytree(ROOT / "dpsql", source / "dpsql", ignore=shutil.ignore_patterns("__pycache__"))
    built = "notebooks/labextension/built"
    shutil.copytree(ROOT / built, source / built)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source / name)
    for path in source.rglob("*"):
        os.utime(path, (changed_at, changed_at))
    subprocess.run(
        [sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"],
        cwd=source,
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **environment},
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two with one epoch, and one without: from sources of three ages."""
    if int(metadata.version("setuptools").split(".")[0]) < 77 or not (ROOT / "dpsql").is_dir():
        pytest.skip("needs setuptools 77 and a checkout")
    folders = [tmp_path_factory.mktemp("wheel") for _ in range(3)]
    fixed = {"SOURCE_DATE_EPOCH": str(EPOCH)}
    return [
        build_wheel(folder, changed_at=EPOCH + 86_400 * age, **({} if age == 2 else fixed))
        for age, folder in enumerate(folders)
    ]


def test_two_builds_have_one_digest(wheels: list[Path]) -> None:
    first, second, otherwise = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    assert first == second
    assert otherwise != first, "the ages of the sources would have been seen"


def test_the_package_and_nothing_else(wheels: list[Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = wheel.namelist()
        entry_points = wheel.read(f"dpsql-{dpsql.__version__}.dist-info/entry_points.txt").decode()
    assert not [name for name in names if not ALLOWED.fullmatch(name)]
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dpsql").rglob("*.py")}
    assert sources <= set(names)
    for word in (
        "demo/visits.parquet",
        "templates/page.html",
        "static/style.js",
        "postgres/pg_catalog.txt",
        "py.typed",
    ):
        assert any(name.endswith(word) for name in names), word
    for word in ("dpsql = dpsql.cli:main", "DpsqlLexer", "DpsqlDialect", "DpsqlServerDialect"):
        assert word in entry_points
    assert wheels[0].stat().st_size < 2_500_000
