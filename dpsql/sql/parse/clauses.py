"""The clauses of a SELECT and their order, as DuckDB has them.

The parser behind takes clauses in any order, and clauses of other dialects; it would answer, and charge for, what DuckDB
refuses to read. What is looked at are the words of a query, level by level of its parentheses.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.errors import ParseError, Span
from dpsql.sql.parse.dialect import span_of

_ORDER = (
    "SELECT", "FROM", "JOIN", "WHERE", "GROUP BY", "HAVING", "WINDOW", "QUALIFY", "USING SAMPLE", "ORDER BY", "LIMIT",
)  # fmt: skip
_RANKS = {word: place for place, word in enumerate(_ORDER)}
_RANKS |= {"TABLESAMPLE": _RANKS["JOIN"], "OFFSET": _RANKS["LIMIT"], "FETCH": _RANKS["LIMIT"]}
_REPEATED = ("JOIN", "TABLESAMPLE")
_SETS = ("UNION", "INTERSECT", "EXCEPT")
_WORDS = {
    TokenType.SELECT: "SELECT", TokenType.FROM: "FROM", TokenType.WHERE: "WHERE", TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING", TokenType.WINDOW: "WINDOW", TokenType.QUALIFY: "QUALIFY", TokenType.ORDER_BY: "ORDER BY",
    TokenType.LIMIT: "LIMIT", TokenType.OFFSET: "OFFSET", TokenType.FETCH: "FETCH", TokenType.JOIN: "JOIN",
    TokenType.TABLE_SAMPLE: "TABLESAMPLE", TokenType.UNION: "UNION",
    TokenType.INTERSECT: "INTERSECT", TokenType.EXCEPT: "EXCEPT", TokenType.USING: "USING SAMPLE",
}  # fmt: skip
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}

_KNOWN = {
    "with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows",
    "order", "limit", "offset", "sample", "into",
}  # fmt: skip
"""What a SELECT may hold; INTO is refused elsewhere, with what to write instead."""
_FOREIGN = {
    "cluster": "CLUSTER BY", "distribute": "DISTRIBUTE BY", "sort": "SORT BY", "connect": "CONNECT BY",
    "laterals": "LATERAL VIEW", "locks": "LOCK", "hint": "a hint", "match": "MATCH_RECOGNIZE",
    "prewhere": "PREWHERE", "kind": "SELECT AS", "operation_modifiers": "this word after SELECT",
}  # fmt: skip
_OF_A_SELECT = ("where", "group", "having", "qualify", "windows")
_JOINED = ("kind", "match")
"""What these mean of a set operation is SQL: EXCEPT ALL, BY NAME ON (k)."""


def check_order(tokens: list[Token], text: str) -> None:
    """Refuses clauses that stand where DuckDB has none.

    Raises:
        ParseError: with the clause that should have come first, and where it stands.
    """
    levels: list[dict[str, Token]] = [{}]
    for i, token in enumerate(tokens):
        if token.token_type in _OPEN:
            levels.append({})
        elif token.token_type in _CLOSE:
            del levels[1:][-1:]
            levels = levels[:-1] or [{}]
        else:
            word = _clause(tokens, i)
            if word is not None:
                _place(word, token, levels[-1], text)


def _clause(tokens: list[Token], i: int) -> str | None:
    """The clause or the set operation that a token begins."""
    word = _WORDS.get(tokens[i].token_type)
    before = tokens[i - 1] if i else None
    after = tokens[i + 1] if i + 1 < len(tokens) else None
    if word == "FROM" and before is not None and before.token_type == TokenType.DISTINCT:
        return None  # IS DISTINCT FROM
    if word == "OFFSET" and before is not None and before.token_type == TokenType.WITH:
        return None  # UNNEST(x) WITH OFFSET
    if word == "USING SAMPLE" and (after is None or after.text.upper() != "SAMPLE"):
        return None  # USING (k)
    if word == "EXCEPT" and before is not None and before.token_type == TokenType.STAR:
        return None  # * EXCEPT (k)
    return word


def _place(word: str, token: Token, seen: dict[str, Token], text: str) -> None:
    """Notes a clause of one SELECT, where it may follow those before it."""
    span = (token.start, token.end + 1)
    if word in _SETS:
        last = next((name for name in ("ORDER BY", "LIMIT", "OFFSET", "FETCH") if name in seen), None)
        if last is not None:
            raise ParseError(
                f"{last} can't stand before {word}.", span=_span(seen[last]),
                hint=f"write it after the last SELECT, or put the SELECT before {word} in parentheses.", text=text,
            )  # fmt: skip
        seen.clear()
        return
    if word in seen and word not in _REPEATED:
        raise ParseError(f"there are two {word} clauses.", span=span, hint="join them into one.", text=text)
    if word in _REPEATED and "SELECT" in seen and ("FROM" not in seen or next(iter(seen)) == "FROM"):
        raise ParseError(f"{word} stands apart from FROM.", span=span, hint="write it after FROM.", text=text)
    from_first = word == "SELECT" and next(iter(seen), "") == "FROM" and {*seen} <= {"FROM", *_REPEATED}
    later = [name for name in seen if _RANKS[name] > _RANKS[word]]
    if later and not from_first:
        raise ParseError(
            f"{word} can't stand after {later[0]}.",
            span=span,
            hint=f"write {word} before {later[0]}.",
            text=text,
        )
    seen[word] = token


def _span(token: Token) -> Span:
    return (token.start, token.end + 1)


def check_known(tree: exp.Expr, text: str) -> None:
    """Refuses clauses that the parser takes from other dialects, for they would be left out or fail in the engine.

    Raises:
        ParseError: with what such a clause is called.
    """
    for query in tree.find_all(exp.Select, exp.SetOperation, exp.Subquery):
        for key, value in query.args.items():
            if isinstance(query, exp.Select):
                wrong = key not in _KNOWN
            elif isinstance(query, exp.SetOperation):
                wrong = key in _FOREIGN and key not in _JOINED
            else:
                wrong = key in _FOREIGN or key in _OF_A_SELECT
            if not value or not wrong:
                continue
            if key in _OF_A_SELECT:
                raise _after_parentheses(value, text)
            found = value[0] if isinstance(value, list) else value
            hint = "write FROM t, UNNEST(x) AS u(y)." if key == "laterals" else "leave it out."
            raise ParseError(
                f"{_FOREIGN.get(key, key.upper())} is not known here.",
                span=span_of(found) if isinstance(found, exp.Expr) else None, hint=hint, text=text,
            )  # fmt: skip


def put_joins_in_place(tree: exp.Expr) -> None:
    """Gives the joins of ``FROM a JOIN b [SELECT ...]`` to the SELECT, as if FROM came second; the parser leaves them at a."""
    for select in tree.find_all(exp.Select):
        from_ = select.args.get("from_")
        joins = from_.this.args.get("joins") if from_ is not None else None
        if from_ is not None and joins:
            from_.this.set("joins", None)
            select.set("joins", [*joins, *(select.args.get("joins") or [])])


def _after_parentheses(value: object, text: str) -> ParseError:
    found = value[0] if isinstance(value, list) else value
    return ParseError(
        "only ORDER BY, LIMIT and OFFSET follow a SELECT in parentheses.",
        span=span_of(found) if isinstance(found, exp.Expr) else None,
        hint="write it inside the parentheses, or SELECT * FROM (SELECT ...).", text=text,
    )  # fmt: skip


def opened(tree: exp.Subquery, text: str) -> exp.Expr:
    """The query in parentheses that are a whole statement, with what follows them.

    Raises:
        ParseError: a join or a sample follows.
    """
    for key in ("joins", "sample", "pivots"):
        if tree.args.get(key):
            raise _after_parentheses(tree.args[key], text)
    inner: exp.Expr = tree.this
    after = {key: tree.args[key] for key in ("with_", "order", "limit", "offset") if tree.args.get(key)}
    if not after:
        return inner
    if any(inner.args.get(key) for key in ("with_", "order", "limit", "offset")):
        star: exp.Expr = exp.Select(expressions=[exp.Star()])
        star.set("from_", exp.From(this=exp.Subquery(this=inner)))
        inner = star
    for key, value in after.items():
        inner.set(key, value)
    return inner
