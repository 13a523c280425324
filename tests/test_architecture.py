"""The house's rules, read from its imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "dpsql"

# From the ground up. A room imports from its own floor and from those below it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "interrupts", "late_dataclass"),
    ("numerics", "catalogue"),
    ("policy", "noise", "privacy"),
    ("mechanisms", "ledger", "report"),
    ("language", "lock", "exact", "binding", "engine", "spark"),
    ("session", "client"),
    ("owner", "notebook", "cli", "dbapi", "demo", "server"),
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}

# Who may import what comes from outside. A name that is not here may be imported anywhere, if it is a dependency.
HOMES = {
    "sqlglot": (
        "dpsql.language",
        "dpsql.binding",
        "dpsql.exact",
        "dpsql.spark",
        "dpsql.lock.lock",
        "dpsql.lock.spark_reader",
        "dpsql.server.postgres.pg_catalog",
    ),
    "duckdb": ("dpsql.engine",),
    "pyspark": ("dpsql.spark.spark_engine",),
    "IPython": ("dpsql.notebook",),
    "shtab": ("dpsql.cli",),
    "traitlets": ("dpsql.notebook",),
    "prompt_toolkit": ("dpsql.notebook",),
    "matplotlib": ("dpsql.notebook",),
    "sqlite3": ("dpsql.ledger",),
    "sqlalchemy": ("dpsql.dbapi.sqlalchemy_dialect",),
    "fastexcel": ("dpsql.engine.text_sources",),
    "cryptography": ("dpsql.server.connections",),
    "prometheus_client": ("dpsql.server.console.process",),
    "mbi": ("dpsql.mechanisms.synthetic.models",),
    "jax": ("dpsql.mechanisms.synthetic.models",),
}
EVERYWHERE = {"numpy", "pyarrow", "mpmath"}
# Extras: only inside the function that wants them, so that nobody else needs or waits for them.
LAZY = {"pandas", "polars", "fastexcel", "matplotlib", "scipy", "sklearn", "dp_accounting", "pyspark"}
LAZY |= {"shtab", "pygments", "duckdb_engine", "google", "yaml", "starlette", "uvicorn", "jwt"}
# secrets may name things (a ledger, a statement); noise is noise/entropy.py's
RANDOM = {"random", "numpy.random"}

LONGEST = 900
"""Lines of a module: it is one subject, however many lines that takes below this."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("dpsql", *path.relative_to(PACKAGE).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


@cache
def read_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[tuple[str, bool, bool, int], ...]:
    """Imported name, whether at import time, whether for type checkers only, line."""
    return tuple(_walk(read_tree(path), True, False))


def _walk(node: ast.AST, at_import: bool, typing_only: bool) -> Iterator[tuple[str, bool, bool, int]]:
    for child in ast.iter_child_nodes(node):
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.Import):
            for item in child.names:
                yield item.name, at_import, typing_only, child.lineno
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports say the whole name"
            assert child.module is not None
            for item in child.names:
                whole = f"{child.module}.{item.name}"
                name = whole if whole in MODULES or child.module == "numpy" else child.module
                yield name, at_import, typing_only, child.lineno
        elif (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            for part in child.body:
                yield from _walk(ast.Module([part], []), at_import, True)
            for part in child.orelse:
                yield from _walk(ast.Module([part], []), at_import, typing_only)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _walk(child, at_import and not inside, typing_only)


def room(module: str) -> str | None:
    """Return the folder of a module, or the name of a loose one."""
    parts = module.split(".")[1:]
    return parts[0] if parts else None


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    here = room(module)
    if here is None:  # the package itself: public names, imported when they are used
        return
    assert here in FLOOR, f"{module} stands on no floor: give its room one here, and in the page of the house"
    for name, _, _, line in imports(MODULES[module]):
        if name.startswith("dpsql."):
            there = room(name)
            assert there in FLOOR, f"{module}:{line} imports {name}, which stands on no floor"
            assert FLOOR[there] <= FLOOR[here], f"{module}:{line} imports {name} from a floor above"


def test_the_language_knows_no_binding() -> None:
    for module, path in MODULES.items():
        if room(module) == "language":
            others = [
                name
                for name, _, _, _ in imports(path)
                if room(name) in ("binding", "exact", "engine", "spark")
            ]
            assert not others, f"{module} imports {others}"


@pytest.mark.parametrize("module", MODULES)
def test_what_comes_from_outside_stays_in_its_room(module: str) -> None:
    for name, at_import, typing_only, line in imports(MODULES[module]):
        top = name.split(".")[0]
        if top == "dpsql" or typing_only:
            continue
        where = f"{module}:{line} imports {name}"
        if top in HOMES:
            assert any(module == home or module.startswith(home + ".") for home in HOMES[top]), where
        elif top not in EVERYWHERE | LAZY:
            assert top in sys.stdlib_module_names, f"{where}, which is no dependency"
        if top in LAZY and module != "dpsql.notebook.lexer":
            assert not at_import, f"{where} at import time"
        assert name != "pyarrow.parquet" or not at_import, f"{where} at import time"


@pytest.mark.parametrize("module", MODULES)
def test_only_noise_is_random(module: str) -> None:
    for name, _, _, line in imports(MODULES[module]):
        assert name not in RANDOM, f"{module}:{line} imports {name}"
    if not module.startswith("dpsql.noise"):
        source = MODULES[module].read_text()
        for word in ("os.urandom", "np.random", "default_rng", "numpy.random"):
            assert word not in source, f"{module} mentions {word}"


def list_own_imports(path: Path, own: Iterable[str]) -> set[str]:
    return {name for name, _, _, _ in imports(path) if name in own}


def test_no_file_imports_itself_by_a_circle() -> None:
    """Late imports and those for type checkers count, too: the error names the circle."""
    graph = {module: list_own_imports(path, MODULES) - {module} for module, path in MODULES.items()}
    TopologicalSorter(graph).prepare()


def test_a_circle_is_found(tmp_path: Path) -> None:
    texts = {"a": "import b", "b": "def f():\n    import c", "c": "import a"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CycleError):
        TopologicalSorter({name: list_own_imports(tmp_path / name, texts) for name in texts}).prepare()


def public_names() -> dict[str, set[str]]:
    """Return the public top-level names of the package, each with the modules that define it."""
    found: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        for node in read_tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                continue
            for name in names:
                if not name.startswith("_"):
                    found.setdefault(name, set()).add(module)
    return found


def test_one_public_name_is_one_thing() -> None:
    """The second lock has a vocabulary of its own: it shares nothing with the binder."""
    shared = {
        name
        for name, modules in public_names().items()
        if len({m for m in modules if not m.startswith("dpsql.lock.")}) > 1
    }
    assert shared == set()


TESTS = PACKAGE.parent / "tests"
TEST_FILES = sorted(TESTS.rglob("*.py"))


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda p: str(p.relative_to(TESTS)))
def test_no_test_imports_another(path: Path) -> None:
    """Helpers come from ``support``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tests":
            for item in node.names:
                whole = f"{node.module}.{item.name}"
                assert ".test_" not in whole, whole


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_short_and_say_what_they_are(module: str) -> None:
    path = MODULES[module]
    source = path.read_text()
    assert source.count("\n") <= LONGEST, f"{module} is longer than {LONGEST} lines"
    assert path.stem not in ("utils", "util", "helpers", "misc", "common")
    assert ast.get_docstring(read_tree(path)) or not source.strip(), f"{module} has no docstring"


def test_the_rules_can_fail(tmp_path: Path) -> None:
    """The reader of imports sees each kind of import."""
    path = tmp_path / "module.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "import duckdb\n"
        "if TYPE_CHECKING:\n    import sqlglot\n"
        "def f():\n    from dpsql.language import statements\n    import pandas as pd\n"
    )
    assert list(imports(path)) == [
        ("typing", True, False, 1),
        ("duckdb", True, False, 2),
        ("sqlglot", True, True, 4),
        ("dpsql.language.statements", False, False, 6),
        ("pandas", False, False, 7),
    ]
