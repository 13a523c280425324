"""Other spellings of a statement that mean what it means: case, comments, parentheses, nesting, ordinals, qualification."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

_QUOTED = (TokenType.STRING, TokenType.BYTE_STRING, TokenType.IDENTIFIER, TokenType.NUMBER)


def _pieces(text: str) -> list[str]:
    """The texts of the tokens; of GROUP BY and its like both words."""
    if "`" in text:  # GoogleSQL's names
        return [text]
    tokens = DuckDB().tokenize(text)
    return [part for t in tokens for part in (
        [text[t.start : t.end + 1]] if t.token_type in _QUOTED else text[t.start : t.end + 1].split()
    )]  # fmt: skip


def _joined(text: str, between: str) -> str:
    return between.join(_pieces(text))


def _cased(text: str, change: Callable[[str], str]) -> str:
    out = list(text)
    tokens = DuckDB().tokenize(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        parameter = before is not None and before.token_type == TokenType.PARAMETER
        if token.token_type not in _QUOTED and not parameter:
            out[token.start : token.end + 1] = change(text[token.start : token.end + 1])
    return "".join(out)


def _on_tree(text: str, change: Callable[[exp.Expr], bool]) -> str | None:
    """The text after a change of its tree; None for one that sqlglot doesn't read as DuckDB's, or that is left as it was."""
    try:
        (tree,) = DuckDB().parse(text)
    except Exception:
        return None
    if tree is None or not change(tree):
        return None
    return str(tree.sql(dialect="duckdb", comments=False, normalize_functions=False))


def _ordinals(tree: exp.Expr) -> bool:
    select = tree if isinstance(tree, exp.Select) else None
    group = select.args.get("group") if select is not None else None
    if select is None or group is None or any(item.is_star for item in select.expressions):
        return False
    items = {item.unalias().sql().lower(): place for place, item in enumerate(select.expressions, 1)}
    items |= {item.alias.lower(): place for place, item in enumerate(select.expressions, 1) if item.alias}
    found = [items.get(key.sql().lower()) for key in group.expressions]
    if not found or None in found:
        return False
    group.set("expressions", [exp.Literal.number(place) for place in found])
    return True


def _qualified(tree: exp.Expr) -> bool:
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [
        t for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Identifier) and not t.args.get("db")
    ]
    tables = [table for table in tables if table.name.lower() not in ctes]
    for table in tables:
        table.set("db", exp.to_identifier("main"))
    return bool(tables)


def _in_parentheses(tree: exp.Expr) -> bool:
    clauses = [*tree.find_all(exp.Where, exp.Having)]
    for clause in clauses:
        clause.set("this", exp.Paren(this=exp.Paren(this=clause.this)))
    return bool(clauses)


def _with_aliases(tree: exp.Expr) -> bool:
    """Name each column of the only table by an alias of the table."""
    select = tree if isinstance(tree, exp.Select) else None
    from_ = select.args.get("from_") if select is not None else None
    if select is None or from_ is None or len([*tree.find_all(exp.Select)]) > 1 or select.args.get("joins"):
        return False
    table = from_.this
    plain = (
        isinstance(table, exp.Table)
        and isinstance(table.this, exp.Identifier)
        and not table.args.get("alias")
    )
    shown = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    columns = [c for c in tree.find_all(exp.Column) if not isinstance(c.this, exp.Star)]
    named = any(c.table or c.name.lower() in {*shown, "day"} for c in columns)  # DAY may be a unit
    if not plain or table.args.get("pivots") or named:
        return False
    table.set("alias", exp.TableAlias(this=exp.to_identifier("Rows_Of")))
    for column in columns:
        column.set("table", exp.to_identifier("ROWS_of"))
    return True


REWRITINGS: dict[str, Callable[[str], str | None]] = {
    "comments": lambda text: _joined(text, " /* a 'comment' */ "),
    "lines": lambda text: _joined(text, " -- it's one\n"),
    "tabs": lambda text: "\n\t" + _joined(text, "\n\t") + "\n;\n",
    "upper": lambda text: _cased(text, str.upper),
    "lower": lambda text: _cased(text, str.lower),
    "nested": lambda text: f"SELECT * FROM ({text}) AS outermost",
    "cte": lambda text: f"WITH outermost AS ({text}) SELECT * FROM outermost",
    "parentheses": lambda text: f"({text})",
    "ordinals": lambda text: _on_tree(text, _ordinals),
    "qualified": lambda text: _on_tree(text, _qualified),
    "conditions": lambda text: _on_tree(text, _in_parentheses),
    "aliases": lambda text: _on_tree(text, _with_aliases),
}
