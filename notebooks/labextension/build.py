"""Build the JupyterLab extension into built/, which is what is shipped: users need neither Node nor a build.

pip install 'jupyterlab==4.3.*'
python notebooks/labextension/build.py

Needs Node and npm. Of npm's packages only the builder is installed, of the same minor version as JupyterLab.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent


def install(folder: Path) -> None:
    """Install the builder alone: what JupyterLab itself shares is neither bundled nor looked at."""
    path = folder / "package.json"
    package = json.loads(path.read_text(encoding="utf-8"))
    package["devDependencies"]["@jupyterlab/builder"] = ".".join([*version("jupyterlab").split(".")[:2], "x"])
    package["dependencies"] = {}
    path.write_text(json.dumps(package), encoding="utf-8")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, check=True)
    shutil.copy(HERE / "package.json", folder)


def main() -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copy(HERE / "package.json", folder)
        shutil.copytree(HERE / "src", folder / "src")
        install(folder)
        subprocess.run(
            [sys.executable, "-m", "jupyterlab.labextensions", "build", "."], cwd=folder, check=True
        )
        shutil.rmtree(HERE / "built", ignore_errors=True)
        shutil.copytree(folder / "built", HERE / "built")


if __name__ == "__main__":
    sys.exit(main())
