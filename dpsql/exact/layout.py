"""Exact texts laid out for readers: indented, without needless quotes and parentheses; the meaning is unchanged."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError

MAX_LINE_WIDTH = 100
"""Characters of a line."""

_DUCKDB = DuckDB()
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS_AND_FUNCTIONS = """
    between bigint bit boolean char character coalesce dec decimal exists extract float grouping grouping_id inout int
    integer interval national nchar none nullif numeric out overlay position precision real row setof smallint substring
    time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse
    xmlpi xmlroot xmlserialize xmltable"""
_RESERVED = DuckDB.Generator.RESERVED_KEYWORDS | set(_KINDS_AND_FUNCTIONS.split())
_ATOMS = (exp.Column, exp.Literal, exp.Func, exp.Paren, exp.Boolean, exp.Null)
_LOOSE = (exp.Alias, exp.Where, exp.Paren, exp.Having, exp.Qualify, exp.Tuple, exp.Func)


def format_sql(sql: str) -> str:
    """Return a query laid out on lines.

    >>> print(format_sql('SELECT ("u"."x") AS x FROM (SELECT "b".x FROM "t" AS "b") AS "u"'))
    SELECT u.x AS x
    FROM (SELECT b.x FROM t AS b) AS u
    """
    try:
        trees = _DUCKDB.parse(sql)
    except SqlglotError:  # syntax that only the engine knows
        return sql
    if len(trees) != 1 or trees[0] is None:
        return sql
    tree = trees[0]
    for paren in list(tree.find_all(exp.Paren)):
        if _stands_alone(paren.this) or (isinstance(paren.parent, _LOOSE) and _holds_apart(paren.parent)):
            paren.replace(paren.this)
    for name in tree.find_all(exp.Identifier):
        if name.args.get("quoted") and _PLAIN.fullmatch(name.name) and name.name.lower() not in _RESERVED:
            name.set("quoted", False)
    try:
        laid = tree.sql(
            "duckdb", pretty=True, comments=False, normalize_functions=False, max_text_width=MAX_LINE_WIDTH,
            unsupported_level=ErrorLevel.IMMEDIATE,
        )  # fmt: skip
    except UnsupportedError:
        return sql
    if any("\n" in text.name for text in tree.find_all(exp.Literal)):
        return laid  # a line may be inside a string
    return "\n".join(_folded(laid.split("\n")))


def _stands_alone(node: exp.Expr) -> bool:
    return isinstance(node, _ATOMS) and _holds_apart(node)


def _holds_apart(node: exp.Expr) -> bool:
    """Return whether a node is no operator; sqlglot counts AND and OR among functions."""
    return not isinstance(node, exp.Binary | exp.Unary) or isinstance(node, exp.Paren)


def _folded(lines: list[str]) -> list[str]:
    """Join lines that fit on one: a clause with its items, parentheses with their content."""
    out: list[str] = []
    lines = list(lines)
    while lines:
        head = lines.pop(0)
        inside: list[str] = []
        while lines and _depth(lines[0]) > _depth(head):
            inside.append(lines.pop(0))
        inside = _folded(inside)
        opens = head.endswith("(")
        closes = opens and bool(lines) and lines[0].lstrip().startswith(")")
        joined = head + ("" if opens else " ") + " ".join(line.strip() for line in inside)
        joined += lines[0].lstrip() if closes else ""
        fits = len(joined) <= MAX_LINE_WIDTH and not any(line.endswith("(") for line in inside)
        if not inside or opens != closes or not fits:
            out += [head, *inside]
        elif closes:
            lines[0] = joined  # it may open another parenthesis
        else:
            out.append(joined)
    return out


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
