"""For every test: a throwaway register of ledgers, also in the processes it starts; one thread for DuckDB; 110 columns.

Which tests run: the default selection leaves out the tests that ``tests/long.txt`` names; ``-m long`` runs these, and with
``DPSQL_LONG_PART=0/3`` each third of them from the first on. ``-m guarantee`` runs the tests that the auditors' page names.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import settings

import dpsql
from dpsql.engine import base as engine_base
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.engine.postprocess import _open_public
from dpsql.engine.sandbox import join_instance
from tests.support.shop import Shop, open_shop

# The default run is the same everywhere, also on a busy machine; HYPOTHESIS_PROFILE=random looks further.
settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("random", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

APART = ("stochastic", "benchmark", "spark")
"""Marks of tests that neither the default selection nor the long one has."""
LONG = Path(__file__).with_name("long.txt")
AUDITORS = Path(__file__).resolve().parents[1] / "notebooks" / "docs" / "auditors.md"


def read_long_tests(text: str) -> dict[str, int]:
    """Return the long tests by their names: 0 if all cases are long, n if one case in n is in the default selection.

    >>> read_long_tests("# seconds, cases, test\\n12.5  1/8  tests/test_a.py::test_b\\n60  none  tests/test_c.py")
    {'tests/test_a.py::test_b': 8, 'tests/test_c.py': 0}
    """
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: 0 if cases == "none" else int(cases.removeprefix("1/")) for _, cases, name in rows}


def find_long(names: Iterable[str], long: Mapping[str, int]) -> list[bool]:
    """Return for each test, in the order of collection, whether it is long.

    >>> find_long(["a.py::f[1]", "a.py::f[2]", "a.py::f[3]", "a.py::g", "b.py::h"], {"a.py::f": 2, "b.py": 0})
    [False, True, False, False, True]
    """
    found, seen = [], Counter[str]()
    for name in names:
        test = name.partition("[")[0]
        key = test if test in long else test.partition("::")[0]
        found.append(key in long and (long[key] == 0 or seen[key] % long[key] > 0))
        seen[key] += 1
    return found


def read_guarantees(text: str) -> list[str]:
    """Return the folders and files of tests that the auditors' page names in its table.

    >>> read_guarantees("`tests/x`\\n| 1. Noise | `dpsql/noise` | `tests/noise`, `tests/test_a.py` |")
    ['tests/noise', 'tests/test_a.py']
    """
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`(tests/[\w/.]+)`", row)]


def _names_a_file(config: pytest.Config) -> bool:
    return any(".py" in argument for argument in config.args)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests and those of promises. A file or a test that the command line names runs whole."""
    promised = tuple(read_guarantees(AUDITORS.read_text(encoding="utf-8")))
    for item in items:
        if item.nodeid.startswith(promised) and not any(map(item.get_closest_marker, APART)):
            item.add_marker("guarantee")
    if _names_a_file(config) and config.option.markexpr == config.getini("addopts")[-1]:
        return
    known = [item for item in items if not any(map(item.get_closest_marker, APART))]
    long = read_long_tests(LONG.read_text(encoding="utf-8"))
    found = find_long((item.nodeid for item in known), long)
    first, step = map(int, os.environ.get("DPSQL_LONG_PART", "0/1").split("/"))
    for item in [item for item, is_long in zip(known, found, strict=True) if is_long][first::step]:
        item.add_marker("long")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use two processes more than cores for more than one file: half of the time of tests is waiting for others.

    A process that is done takes tests from another.

    ``-n``, ``-s`` and ``--pdb`` say otherwise, and so does a run that measures time.
    """
    alone = _names_a_file(config) or config.option.capture == "no" or config.option.usepdb
    timed = re.search(r"(?<!not )\bbenchmark\b", config.option.markexpr)
    controller = getattr(config.option, "numprocesses", 0) is None and not hasattr(config, "workerinput")
    if controller and not alone and not timed:
        config.option.numprocesses, config.option.dist = (os.cpu_count() or 1) + 2, "worksteal"


@pytest.fixture(autouse=True, scope="session")
def state_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("DPSQL_STATE", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(autouse=True, scope="session")
def interrupts_are_heard() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C; tests send it to themselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def width_of_no_terminal() -> None:
    """Captions are folded to the terminal's width: that of whoever runs the tests must not decide."""
    pytest.MonkeyPatch().setenv("COLUMNS", "110")


_connect = duckdb.connect


def _with_one_thread(*given: Any, **named: Any) -> duckdb.DuckDBPyConnection:
    con = _connect(*given, **named)
    if "threads" not in (named.get("config") or {}):
        con.execute("SET threads = 1")
    return con


# A table of fewer than 122,880 rows is read by one thread anyway: others cost a fifth of the time, and more where the cores
# are busy. These tests have larger tables, or are about threads, memory and the order in which rows come.
SEVERAL_THREADS = {
    "test_bounding", "test_dealing", "test_duckdb", "test_little_memory", "test_order_independent", "test_packed_route",
    "test_per_block_query", "test_sources", "test_tpch", "test_whose_block",
}  # fmt: skip
# Small tables are read by their plan's own query. Most tables of tests are small, and would try no quicker route.
PLAIN_QUERIES = {
    "test_heavy_unit", "test_little_tables", "test_nothing_exact_stays", "test_one_row", "test_one_unit", "test_tpch",
}  # fmt: skip
# Each session over an open connection lists its macros, which takes DuckDB 14 ms of processor time. These tests make some.
WITH_MACROS = {"test_coded_units", "test_duckdb", "test_hostile_blocks"}
USUAL = (
    (duckdb, "connect", _with_one_thread, SEVERAL_THREADS),
    (engine_base, "LITTLE_ROWS", -1, PLAIN_QUERIES),
    (engine_base, "LITTLE_BYTES", -1, PLAIN_QUERIES),
    (DuckDBEngine, "macros", frozenset[str](), WITH_MACROS),
)
"""What is another way in tests than in use, for their speed or reach: but for the modules of the last column."""


@pytest.fixture(autouse=True, scope="module")
def usual_sessions(request: pytest.FixtureRequest) -> Iterator[None]:
    module = request.module.__name__.split(".")[-1]
    with pytest.MonkeyPatch.context() as patch:
        for where, name, value, apart in USUAL:
            if module not in apart and "benchmarks" not in str(request.path):
                patch.setattr(where, name, value)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_binder() -> Iterator[None]:
    """Keep the database without rows open in which the SQL above private blocks is bound; the last session would close it."""
    instance = join_instance("binding", lambda: ([_open_public("")], lambda: None))
    yield
    instance.leave()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """The shop: a session on it, and plain DuckDB beside."""
    con, session, plain = open_shop()
    with con, session, plain:
        yield session, plain


@pytest.fixture
def session(con: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest) -> Iterator[dpsql.Session]:
    """A session of its own for each test, over its file's ``con`` and under its file's ``POLICY``."""
    with dpsql.connect(con, policy=dpsql.Policy.loads(request.module.POLICY)) as session:
        yield session
