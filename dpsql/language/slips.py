"""Slips of the pen that the parser accepts as something else, so that they would be answered and charged.

``FROM visits GROUP`` is parsed with GROUP as an alias, and so is the misspelt ``FROM visits WHER``. A position in ORDER
BY without a column sorts by nothing. DuckDB refuses most of these, and so does dpsql, before payment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.errors import ParseError
from dpsql.language.dialect import bind_error, span_of
from dpsql.language.tokens import CLOSING, RESERVED_WORDS, token_error

_CLAUSES = (
    "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "INNER", "LEFT", "RIGHT", "UNION", "QUALIFY", "WINDOW",
    "USING",
)  # fmt: skip


def check_places(tree: exp.Expr) -> None:
    """Raise BindError, with the existing positions, for one in GROUP BY or ORDER BY without a column in the SELECT."""
    for query in tree.find_all(exp.Select, exp.SetOperation):
        first = query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.left if isinstance(first, exp.SetOperation) else first.this
        if not isinstance(first, exp.Select) or _has_stars(first):
            continue
        count = len(first.expressions)
        for clause, node in _places(query):
            place = node.this if isinstance(node, exp.Ordered) else node
            negative = isinstance(place, exp.Neg)
            number = place.this if isinstance(place, exp.Neg) else place
            if isinstance(place, exp.Literal) and place.is_string:
                what = f"{clause} takes columns, and a text is the same in all rows."
                raise bind_error(place, what, f"a column is written {_quote(place.name)}.")
            if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
                continue
            if negative or not 1 <= int(number.name[:10]) <= count:
                columns = "1 column" if count == 1 else f"{count} columns"
                hint = "write 1." if count == 1 else f"write a number from 1 to {count}."
                what = f"{clause} counts the columns of the SELECT from 1, and it has {columns}."
                raise bind_error(place, what, hint)


def _places(query: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    group, order = query.args.get("group"), query.args.get("order")
    yield from (("GROUP BY", node) for node in (group.expressions if group is not None else ()))
    yield from (("ORDER BY", node) for node in (order.expressions if order is not None else ()))


def _quote(name: str) -> str:
    return str(exp.to_identifier(name, quoted=True).sql(dialect="duckdb"))


def _has_stars(select: exp.Select) -> bool:
    """Return whether an item may expand to several columns."""
    return any(item.is_star or item.find(exp.Columns, exp.Unnest) is not None for item in select.expressions)


def check_aliases(tree: exp.Expr, tokens: Sequence[Token]) -> None:
    """Refuse a clause's keyword as a name: a reserved word, or a misspelt one that nothing refers to.

    Raises:
        ParseError: with the probable keyword, and how to quote the name.
    """
    places = {token.start: i for i, token in enumerate(tokens)}
    for alias in tree.find_all(exp.TableAlias, exp.Alias):
        name = alias.this if isinstance(alias, exp.TableAlias) else alias.args.get("alias")
        span = span_of(name) if isinstance(name, exp.Identifier) and not name.quoted else None
        at = places.get(span[0]) if span is not None else None
        if at is None or tokens[at].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        word, table = tokens[at].text.upper(), isinstance(alias, exp.TableAlias)
        named = at > 0 and tokens[at - 1].token_type == TokenType.ALIAS
        if word in RESERVED_WORDS or (word == "BY" and table and not named):
            if table or not named:
                raise _refuse_word(tokens, at)
        elif table and not named and isinstance(alias.parent, exp.Table):
            meant = next((clause for clause in _CLAUSES if _is_one_slip(word, clause)), None)
            if meant is not None and not _is_named(tree, word):
                meant = f"{meant} BY" if meant in ("GROUP", "ORDER") else meant
                hint = f"did you mean {meant}? A name is written AS {tokens[at].text}."
                raise token_error(tokens[at], f"{tokens[at].text} is not a word of SQL.", hint)


def _refuse_word(tokens: Sequence[Token], at: int) -> ParseError:
    word = tokens[at].text
    ends = at + 1 == len(tokens) or tokens[at + 1].token_type in CLOSING
    what = f"nothing follows {word.upper()}." if ends else f"{word.upper()} is a word of SQL, and no name."
    return token_error(tokens[at], what, f'finish it, or leave it out; as a name it is written "{word}".')


def _is_named(tree: exp.Expr, word: str) -> bool:
    return any(column.table.upper() == word for column in tree.find_all(exp.Column))


def _is_one_slip(word: str, meant: str) -> bool:
    """Return whether a word is another with one letter missing, wrong, extra or swapped; a plural is no slip."""
    if word == meant or len(word) < 3 or word.startswith(meant):
        return False
    if len(word) == len(meant):
        different = [i for i, (a, b) in enumerate(zip(word, meant, strict=True)) if a != b]
        if len(different) == 2 and different[1] == different[0] + 1:
            return word[different[0]] == meant[different[1]] and word[different[1]] == meant[different[0]]
        return len(different) == 1 and len(word) > 4
    short, long = sorted((word, meant), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
