"""TPC-H's queries, tables and policy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "peers" / "tpch"
TABLES = ("customer", "orders", "lineitem", "part", "supplier", "partsupp", "nation", "region")


@dataclass(frozen=True)
class Query:
    """One query of the benchmark: its own text, and what is asked instead where that is refused."""

    name: str
    title: str
    verdict: str
    reason: str
    written: str
    form: str
    private: str
    plain: str

    @property
    def answered(self) -> str:
        return self.private or self.written


def read() -> list[Query]:
    found = []
    for part in (HERE / "queries.sql").read_text().split("-- query: ")[1:]:
        name, title = part.split("\n", 1)[0].split(" ", 1)
        pieces = {key.strip(): (said.strip(), body.strip().rstrip(";")) for key, said, body in re.findall(
            r"^-- (as written|private form|plain):?(.*)\n((?:(?!^-- (?:private form|plain)).*\n?)*)", part, re.MULTILINE
        )}  # fmt: skip
        verdict, body = pieces["as written"]
        reason = re.match(r"-- reason: (.*)\n", body)
        form, private = pieces.get("private form", ("", ""))
        written = body[reason.end() :] if reason else body
        found.append(
            Query(name, title, verdict, reason[1] if reason else "", written, form, private, pieces.get("plain", ("", ""))[1])
        )  # fmt: skip
    return found


QUERIES = read()


def data(scale: str) -> Path:
    """The folder with the data, made once."""
    tool = shutil.which(
        "tpchgen-cli", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if tool is None:
        pytest.skip("tpchgen-cli is not installed: pip install dpsql[tpch]")
    folder = Path(tempfile.gettempdir()) / f"dpsql-tpch-{scale}"
    if not all((folder / f"{name}.parquet").exists() for name in TABLES):
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            subprocess.run(
                [tool, "parquet", "-s", scale, "-o", made, "--no-progress"], check=True, capture_output=True
            )
            folder.mkdir(exist_ok=True)
            for name in TABLES:
                os.replace(Path(made) / f"{name}.parquet", folder / f"{name}.parquet")
    return folder
