"""The catalogue is the only list of names: no other module lists functions, aggregates, modes or options."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dpsql.catalogue.aggregate_names import AGGREGATES, MODES
from dpsql.catalogue.option_names import ARGUMENT_NAMES, OPTION_NAMES
from dpsql.catalogue.row_names import ROW_WORDS

PACKAGE = Path(__file__).resolve().parents[2] / "dpsql"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "catalogue")
MOST = 2
"""Names of the catalogue that one collection may have."""
MANY = 12
"""Names of the catalogue that a text may have among other words."""

_AGGREGATES = {name.lower() for row in AGGREGATES for name in (row.name, *row.aliases, *row.old)}
_LOWER = {*ROW_WORDS, *_AGGREGATES, *(mode.lower() for mode in MODES)}
_OPTIONS = {row.name for row in (*OPTION_NAMES, *ARGUMENT_NAMES) if "_" in row.name}
"""Options of one plain word are words of other things, too."""
NAMES = frozenset({*_OPTIONS, *_LOWER, *(name.upper() for name in _LOWER)})

LOCK = "the lock has rules of its own by name, which must not follow the binder's"
KEYS = "keys of a sqlglot node"
EXEMPT: dict[str, str] = {
    "binding/values/temporal.py:bind_make_date": KEYS,
    "binding/values/temporal.py:bind_make_timestamp": KEYS,
    "binding/values/temporal.py:name": "the calls that sqlglot reads as one class, by their scale",
    "binding/values/total_expressions.py:_TABLE": KEYS,
    "lock/plan_types.py:_OF_CLOCKS": LOCK,
    "lock/plan_types.py:_PARTS_OF_DATES": LOCK,
    "lock/totality.py:_CODES": LOCK,
    "lock/totality.py:_LENGTH_WORDS": LOCK,
    "lock/totality.py:_MOMENT_WORDS": LOCK,
    "lock/totality.py:_PARTS": LOCK,
    "lock/totality.py:_ROUNDINGS": LOCK,
    "lock/totality.py:_RULES": LOCK,
    "lock/totality.py:_SMALL_WORDS": LOCK,
    "lock/totality.py:_TOTAL_WORDS": LOCK,
    "lock/totality.py:_aggregate": LOCK,
    "lock/duckdb_reader.py:_OPERATORS": LOCK,
    "lock/duckdb_reader.py:sides": LOCK,
    "lock/expressions.py:_AMONG": LOCK,
    "lock/expressions.py:_JSON": LOCK,
    "lock/expressions.py:_RULES": LOCK,
    "lock/from_clause.py:length": LOCK,
    "lock/spark_reader.py:_AGGREGATES": LOCK,
    "lock/spark_reader.py:_CALLS": LOCK,
    "lock/spark_reader.py:_SPARK_NAMES": LOCK,
}


def _texts(node: ast.AST) -> list[str]:
    """Return the strings that a collection lists, or the words of a text made of names."""
    if isinstance(node, ast.Dict):
        items = [*node.keys, *node.values]
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = list(node.elts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.replace(",", " ").split()
        count = sum(word in NAMES for word in words)
        return words if count > MANY or 2 * count > len(words) else []
    else:
        return []
    return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def find_lists(path: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Yield each list of names: the module with the assigned name or function around it, the line, and the names."""
    place = str(path.relative_to(PACKAGE))
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text(encoding="utf-8")), "")]
    while waiting:
        node, where = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            where = target.id if isinstance(target, ast.Name) else where
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        found = sorted({text for text in _texts(node) if text in NAMES})
        if len(found) > MOST:
            yield f"{place}:{where}", getattr(node, "lineno", 0), found
        waiting.extend((child, where) for child in ast.iter_child_nodes(node))


@cache
def list_all() -> list[tuple[str, int, list[str]]]:
    return [found for path in MODULES for found in find_lists(path)]


def test_no_module_lists_names() -> None:
    others = [
        f"{where} (line {line}): {', '.join(names)}"
        for where, line, names in list_all()
        if where not in EXEMPT
    ]
    assert not others, "\n".join(others)


def test_each_exemption_is_used() -> None:
    assert {where for where, _, _ in list_all()} >= EXEMPT.keys()


@pytest.mark.parametrize(
    "text",
    [
        "X = ('SUM', 'AVG', 'MEDIAN')",
        "X = {'sqrt': 1, 'ln': 2, 'exp': 3}",
        "def f():\n    return {'year', 'month', 'day'}",
        "X = 'sum avg median geomean'.split()",
        "X = frozenset(['lower', 'upper', 'trim', 'x'])",
    ],
)
def test_a_list_is_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "module.py").write_text(text)
    assert len(list(find_lists(tmp_path / "module.py"))) == 1


if __name__ == "__main__":
    for where, line, names in list_all():
        print(f"{where} (line {line}): {', '.join(names)}")
