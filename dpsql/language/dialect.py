"""Tokens in, sqlglot tree out: DuckDB SQL plus the mode clause and named arguments.

sqlglot's Parser, Generator and Expression are not subclassed, which fails at run time with its compiled extension.
Instead the tokens are rewritten into SQL that DuckDB's own grammar accepts:

* ``SELECT WITH DP OPTIONS (epsilon = 1) x`` is parsed with a call in place of the mode, which is then moved to the
  SELECT's :class:`ModeClause`. A tree with a mode is never written as SQL.
* ``AVG(x, epsilon => 1)`` becomes ``dpsql__avg(x, epsilon => 1)``, for calls with named arguments only.

Positions are kept, so every error has its caret.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, UnsupportedError
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.aggregate_names import (
    AGGREGATES,
    CLAMPED_PER_GROUP,
    ONE_ARGUMENT,
    SqlName,
    mode_of_aggregate,
)
from dpsql.catalogue.row_names import JSON_WORDS, REFUSED_NODES, ROW_NAMES, RowName
from dpsql.errors import BindError, ParseError, PrivacyError, Span
from dpsql.language.advice import check_other_dialects, explain_unreadable, gather_modes, is_aggregate_name
from dpsql.language.postgres_texts import spell_clocks, write_values
from dpsql.language.tokens import (
    HALF_CHARACTER,
    RESERVED_WORDS,
    find_closing,
    is_open,
    is_word,
    outer_tokens,
    replace_token,
    split_arguments,
    token_error,
    token_span,
    token_types,
    tokenize,
    translate_clauses,
    translate_googlesql,
    translate_paths,
)
from dpsql.late_dataclass import dataclass

NAMED = "dpsql__"
_MODE = "dpsql__mode"
_DISTINCT = "dpsql__distinct"

_DUCKDB = DuckDB()
_LOG = logging.getLogger("sqlglot")


@dataclass(frozen=True, eq=False)
class ModeClause:
    """The mode of a SELECT and its options as written, outside the tree: copies of the SELECT share it."""

    mode: exp.Expr
    options: list[exp.Expr]

    @property
    def name(self) -> str:
        """The mode's name."""
        return self.mode.name


def mode_clauses(tree: exp.Expr) -> Iterator[ModeClause]:
    """Yield the modes of all SELECTs in a tree."""
    for select in find_nodes(tree, exp.Select):
        if "mode" in select.args:
            yield select.args["mode"]


def _rewrite_modes(tokens: list[Token]) -> tuple[list[Token], set[int]]:
    """Return tokens with a call in place of each mode, and the positions of these calls."""
    out: list[Token] = []
    starts: set[int] = set()
    i = 0
    while i < len(tokens):
        token = tokens[i]
        out.append(token)
        i += 1
        if token.token_type != TokenType.SELECT or i >= len(tokens) or tokens[i].token_type != TokenType.WITH:
            continue
        clause, i, before = tokens[i], i + 1, len(out)
        if i >= len(tokens) or not is_word(tokens[i]):
            hint = "write SELECT WITH DP, WITH PTR, WITH STABLE, WITH SUBSAMPLE or the name of a declared threshold."
            raise token_error(clause, "SELECT WITH needs a mode.", hint)
        mode, i = tokens[i], i + 1
        if is_open(tokens, i) and is_aggregate_name(mode.text):
            named = mode_of_aggregate(mode.text)
            hint = "leave WITH out." if named == "DP" else f"write WITH {named} before {mode.text}."
            raise token_error(mode, f"WITH takes a mode, and {mode.text} is an aggregate.", hint)
        starts.add(mode.start)
        out += [replace_token(mode, TokenType.VAR, _MODE), replace_token(mode, TokenType.L_PAREN, "(")]
        out.append(replace_token(mode, TokenType.STRING, mode.text))
        if is_open(tokens, i) and i + 2 < len(tokens) and tokens[i + 1].text.upper() in ("EPSILON", "DELTA"):
            hint = f"write {mode.text} OPTIONS instead of {mode.text}."
            raise token_error(tokens[i], "the options stand after the word OPTIONS.", hint)
        if i < len(tokens) and tokens[i].text.upper() == "OPTIONS" and is_open(tokens, i + 1):
            end = find_closing(tokens, i + 1)
            inside = tokens[i + 2 : end]
            _equals(inside)
            out += [replace_token(mode, TokenType.COMMA, ","), *inside] if inside else []
            i = end + 1
        if i < len(tokens) and tokens[i].token_type == TokenType.DISTINCT:
            out.insert(before, tokens[i])
            i += 1
        out += [replace_token(mode, TokenType.R_PAREN, ")"), replace_token(mode, TokenType.COMMA, ",")]
    return out, starts


def _take_modes(nodes: Iterable[exp.Expr], starts: Collection[int]) -> None:
    """Move each mode from a SELECT's items to its mode argument, except an analyst's own call of that form."""
    for select in nodes if starts else ():
        if not isinstance(select, exp.Select):
            continue
        call = select.expressions[0] if select.expressions else None
        if isinstance(call, exp.Anonymous) and call.name == _MODE and call.meta.get("start") in starts:
            mode, *options = call.expressions
            select.set("mode", ModeClause(mode, options))
            select.set("expressions", select.expressions[1:])


def _equals(options: list[Token]) -> None:
    for token in options:
        if token.token_type in (TokenType.FARROW, TokenType.COLON):
            raise token_error(token, "options are written name = value.", f"write = instead of {token.text}.")


def _rename_named_calls(tokens: list[Token]) -> list[Token]:
    out = list(tokens)
    distinct: list[tuple[int, int]] = []
    for i, token in enumerate(tokens):
        if not (is_word(token) and is_open(tokens, i + 1)) or token.token_type == TokenType.STRING:
            continue
        if token.text.upper() == "MAKE_INTERVAL":
            continue
        inside = tokens[i + 2 : find_closing(tokens, i + 1)]
        arguments = split_arguments(inside)
        # SUM(x, epsilon = 1) would not even parse; renamed, it gets the binder's hint
        signs = [item[1].token_type for item in arguments[1:] if len(item) > 1]
        equals = token.text.upper() in ONE_ARGUMENT and TokenType.EQ in signs
        if equals or any(inner.token_type == TokenType.FARROW for _, inner in outer_tokens(inside)):
            out[i] = replace_token(token, TokenType.VAR, NAMED + token.text.lower())
            if tokens[i + 2].token_type == TokenType.DISTINCT:
                distinct.append((i + 2, i + 2 + len(arguments[0])))
    # f(DISTINCT x, epsilon => e): sqlglot's DISTINCT takes everything after it, so it becomes a call around x.
    for first, last in reversed(distinct):
        out.insert(last, replace_token(tokens[last], TokenType.R_PAREN, ")"))
        opening = ((TokenType.VAR, _DISTINCT), (TokenType.L_PAREN, "("))
        out[first : first + 1] = [replace_token(tokens[first], kind, word) for kind, word in opening]
    return out


_COLUMN_WORDS = frozenset(("ALTER", "DROP", "FORCE", "GRANT", "INSERT", "INSTALL", "REVOKE", "ROLLBACK"))
"""Words that may name columns in DuckDB, but not in sqlglot, since each begins a statement of another kind."""


def _name_columns(tokens: list[Token]) -> list[Token]:
    """Return tokens in which words that begin other statements are names, such as the German ``Alter`` for an age."""
    return tokens[:1] + [
        replace_token(token, TokenType.VAR, token.text) if token.token_type.name in _COLUMN_WORDS else token
        for token in tokens[1:]
    ]


def parse_tokens(tokens: list[Token], text: str) -> exp.Expr:
    """Return one query's tree; ParseError if it is not DuckDB SQL with our extensions."""
    check_other_dialects(tokens)
    translated = translate_googlesql(translate_clauses(tokens, CLAMPED_PER_GROUP))
    translated = spell_clocks(_name_columns(translate_paths(translated, JSON_WORDS)))
    moded, starts = _rewrite_modes(gather_modes(translated))
    rewritten = _rename_named_calls(moded)
    try:
        # On some errors the parser would log the statement in a warning; raise instead.
        _LOG.disabled = True
        trees = _DUCKDB.parser().parse(rewritten, text)
    except SqlglotParseError as error:
        raise explain_unreadable(error, tokens, text) from None
    except RecursionError:
        raise ParseError("the statement is nested too deeply.") from None
    except TypeError:  # sqlglot's compiled parser raises it for a missing operand
        raise ParseError("an operator of this statement lacks an operand.") from None
    finally:
        _LOG.disabled = False
    if len(trees) != 1 or trees[0] is None:
        raise ParseError("one statement is expected here.")
    tree: exp.Expr = trees[0]
    for node in find_nodes(tree, exp.Anonymous, exp.In, exp.Order):
        if isinstance(node, exp.In):
            _open_list(node)
        elif isinstance(node, exp.Order):
            if isinstance(node.parent, _UNORDERED) and node.this is not None:
                node.replace(node.this)
        elif node.name == _DISTINCT:
            node.replace(exp.Distinct(expressions=node.expressions))
        elif node.name.upper() == "ALL" and isinstance(node.parent, exp.NEQ) and len(node.expressions) == 1:
            _write_all(node.parent, node)
    _mark_lists(tree, tokens)
    write_values(find_nodes(tree, exp.Cast, exp.Any, exp.DateBin))
    nodes = list_nodes(tree)
    _mark_calls(tree, nodes, tokens)
    hashes = (token for token in tokens if token.token_type == TokenType.HASH)
    for token, place in zip(hashes, tree.find_all(exp.PositionalColumn, bfs=False), strict=False):
        place.meta.update(start=token.start, end=token.end + len(place.name))
    _name_clocks(tree, nodes)
    _take_modes(nodes, starts)
    return tree


_UNORDERED = (exp.Avg, exp.Count, exp.Max, exp.Median, exp.Min, exp.Stddev, exp.Sum, exp.Variance)
"""Aggregates whose result doesn't depend on ORDER BY within the call."""


def _write_all(compared: exp.NEQ, listed: exp.Expr) -> None:
    """Write ``x <> ALL (list)`` as ``NOT x = ANY (list)``, in place."""
    if compared.expression is listed:
        several = exp.Any(this=exp.paren(listed.expressions[0], copy=False))
        compared.replace(exp.Not(this=exp.paren(exp.EQ(this=compared.this, expression=several), copy=False)))


def _open_list(place: exp.In) -> None:
    """Rewrite GoogleSQL's ``x IN UNNEST(list)``, and ``x IN (VALUES (1), (2))``, in place."""
    if len(place.expressions) == 1 and isinstance(place.expressions[0], exp.Values):
        rows = [row.expressions for row in place.expressions[0].expressions]
        place.set("expressions", [row[0] if len(row) == 1 else exp.Tuple(expressions=row) for row in rows])
    held = place.args.get("unnest")
    lists = held.expressions if held is not None else []
    if len(lists) == 1:
        written = lists[0] if isinstance(lists[0], exp.Array) else None
        place.set("unnest", None)
        place.set(*("expressions", written.expressions) if written is not None else ("field", lists[0]))


_BEFORE_ITEM = token_types("L_PAREN DASH COMMA NULL TRUE FALSE")


def _mark_lists(tree: exp.Expr, tokens: list[Token]) -> None:
    """Distinguish ``x IN [a, b]`` from ``x IN (a, b)``, which the parser reads alike: NULL in a list gives no NULL."""
    if not any(token.token_type == TokenType.L_BRACKET for token in tokens):
        return
    by_start = {token.start: i for i, token in enumerate(tokens)}
    for node in find_nodes(tree, exp.In):
        # NULL, TRUE and FALSE have no position: take the first item with one, and the token before it.
        span = next((found for item in node.expressions if (found := span_of(item)) is not None), None)
        i = by_start.get(span[0]) if span is not None else None
        while i is not None and i > 1 and tokens[i - 1].token_type in _BEFORE_ITEM:
            i -= 1
        if i is None or i < 2 or tokens[i - 1].token_type != TokenType.L_BRACKET:
            continue
        if tokens[i - 2].token_type == TokenType.IN:
            node.set("field", exp.Array(expressions=node.expressions))
            node.set("expressions", None)


def parse_fragment(sql: str) -> exp.Expr:
    """Return the tree of generated SQL."""
    trees = _DUCKDB.parse(sql)
    assert trees[0] is not None
    return trees[0]


def parse_select(sql: str) -> exp.Select:
    """Return the tree of a generated SELECT."""
    tree = parse_fragment(sql)
    assert isinstance(tree, exp.Select)
    return tree


def text_literal(value: str, name: str, span: Span | None) -> exp.Expr:
    """Return the literal of a text parameter; BindError if it has a lone surrogate, which has no encoding."""
    if HALF_CHARACTER.search(value) is not None:
        what = f"${name} holds half of a character, which no text has."
        raise BindError(what, span=span, hint="leave it out.")
    return exp.Literal.string(value)


def join_word(join: exp.Expr, key: str) -> str:
    """Return the side, kind or method of a join in capitals; empty if it has none."""
    return str(join.args.get(key) or "").upper()


def is_not_null(node: exp.Expr) -> exp.Expr:
    """Return ``NOT node IS NULL``, over a copy of the node."""
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))


def table_named(name: str) -> exp.Table:
    """Return a table with a plain generated name, without parsing it."""
    return exp.Table(this=exp.to_identifier(name))


def _mark_calls(tree: exp.Expr, nodes: Sequence[exp.Expr], tokens: list[Token]) -> None:
    """Record the positions of each call's closing parenthesis and named arguments, for carets."""
    by_end = {token.end: i for i, token in enumerate(tokens)}
    by_start = {token.start: i for i, token in enumerate(tokens)}
    for argument in nodes:
        if not isinstance(argument, exp.Kwarg):
            continue
        value = span_of(argument.expression)
        i = by_start.get(value[0]) if value is not None else None
        while i is not None and i > 1 and tokens[i - 1].token_type in (TokenType.L_PAREN, TokenType.DASH):
            i -= 1
        if i is not None and i > 1 and tokens[i - 1].token_type == TokenType.FARROW:
            argument.meta["start"], argument.meta["end"] = tokens[i - 2].start, tokens[i - 2].end
    calls = [node for node in nodes if isinstance(node, exp.Func)]
    for node in reversed(calls):  # the inner ones first
        i = by_end.get(node.meta["end"]) if "end" in node.meta else _find_name(node, tokens, by_start)
        if i is not None and is_open(tokens, i + 1):
            node.meta.setdefault("start", tokens[i].start)
            node.meta["close"] = tokens[find_closing(tokens, i + 1)].end
            node.meta.update(end=tokens[i].end, called=tokens[i].text.lower())
    bare: dict[str, list[exp.Func]] = {}  # keywords that are calls: current_date, localtimestamp
    if any(_is_bare(node) for node in calls):
        for node in filter(_is_bare, tree.find_all(exp.Func, bfs=False)):
            bare.setdefault(node.sql_name().lower(), []).append(node)
    for name, nodes in bare.items():
        plain = [i for i, token in enumerate(tokens) if token.token_type not in _QUOTED]
        words = [tokens[i] for i in plain if tokens[i].text.lower() == name and not is_open(tokens, i + 1)]
        for node, word in zip(nodes, words, strict=False):
            node.meta.update(start=word.start, end=word.end, word=word.text)


_OPERATORS = (exp.Binary, exp.Connector, exp.Cast, exp.Case, exp.Array, exp.Struct)
"""Functions in sqlglot's sense that are written without a name."""


def _find_name(node: exp.Func, tokens: list[Token], by_start: dict[int, int]) -> int | None:
    """Return the place of the name in a call that sqlglot gives no position: before its first argument."""
    span = None if isinstance(node, _OPERATORS) else span_of(node)
    if span is None:
        return None
    i = by_start.get(span[0], 0) - 1
    while i > 0 and tokens[i].token_type == TokenType.L_PAREN:
        i -= 1
    around = node.find_ancestor(exp.Func)
    taken = (
        i < 0
        or not is_open(tokens, i + 1)
        or (around is not None and around.meta.get("start") == tokens[i].start)
    )
    return None if taken or tokens[i].token_type not in _DUCKDB.parser_class.FUNC_TOKENS else i


def _is_bare(node: exp.Func) -> bool:
    return "start" not in node.meta and not any(node.args.values())


_QUOTED = token_types("IDENTIFIER STRING")
_CLOCKS: dict[type[exp.Func], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "now",
    exp.CurrentTime: "get_current_time",
    exp.Localtime: "current_localtime",
    exp.Localtimestamp: "current_localtimestamp",
    exp.SessionUser: "session_user",
}
"""Keywords that are calls without parentheses, with the equivalent calls."""


def _name_clocks(tree: exp.Expr, nodes: Sequence[exp.Expr]) -> None:
    """Write CURRENT_DATE and similar words as calls, in place, if an output has such a name, to which DuckDB would refer."""
    kinds = tuple(_CLOCKS)
    if not any(isinstance(node, kinds) for node in nodes):
        return
    named: set[type[exp.Func]] = set()
    for select in (node for node in nodes if isinstance(node, exp.Select)):
        for item in select.expressions:
            if isinstance(item, kinds):
                called = item.meta.get("called")
                name = item.meta.get("word", item.sql_name()) if called is None else f"{called}()"
                item.replace(exp.alias_(item.copy(), name, quoted=True))
                named.add(type(item))
            elif isinstance(item, exp.Alias):
                named |= {kind for kind in kinds if item.alias.upper() == kind.sql_name()}
    for node in list(tree.find_all(*named)) if named else ():
        call = exp.Anonymous(this=node.meta.get("called", _CLOCKS[type(node)]))
        if call.name in ("current_timestamp", "current_time", "localtimestamp"):
            call.set("this", _CLOCKS[type(node)])
        call.meta.update(node.meta)
        node.replace(call)


def remove_modes(node: exp.Expr) -> exp.Expr:
    """Return a copy of the expression without the modes of its inner queries, as DuckDB would parse it."""
    if next(mode_clauses(node), None) is None:
        return node
    node = node.copy()
    for select in node.find_all(exp.Select):
        select.args.pop("mode", None)
    return node


def spell_statement(tree: exp.Expr) -> str:
    """Write a statement with its modes as calls: the key text of stored answers, which no engine reads."""
    if all(clause is None for clause in mode_clauses(tree)):
        return _spell(tree)
    tree = copy_tree(tree)
    for select in tree.find_all(exp.Select):
        clause = select.args.pop("mode", None)
        if clause is not None:
            parts = [copy_tree(part) for part in (clause.mode, *clause.options)]
            select.set("expressions", [exp.Anonymous(this=_MODE, expressions=parts), *select.expressions])
    return _spell(tree)


def _spell(tree: exp.Expr) -> str:
    """Return a tree's SQL, or its dump if SQL would lose a part of it."""
    try:
        return write_whole(tree)
    except UnsupportedError:
        return repr(tree)


def name_called(node: exp.Expr) -> str:
    """Return the name of a function as the analyst wrote it, in lower case; for an operator its sign."""
    written = node.meta.get("called")
    if written is not None:
        return str(written)
    if type(node) in _SIGNS:
        return _SIGNS[type(node)]
    return str(node.sql_name() if isinstance(node, exp.Func) else node.key).lower()


_SIGNS: dict[type[exp.Expr], str] = {
    exp.JSONExtractScalar: "->>",
    exp.JSONExtract: "->",
    exp.ArrayOverlaps: "&&",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def make_identifier(name: str) -> exp.Identifier:
    """Return the identifier of a column, a table, or a part of a table's name, quoted if necessary."""
    return exp.to_identifier(
        name, quoted=_PLAIN_NAME.fullmatch(name) is None or name.upper() in RESERVED_WORDS
    )


def quote_where_needed(name: str) -> str:
    """Return a column's or a table's name in SQL, quoted if necessary.

    >>> quote_where_needed("age"), quote_where_needed("my id"), quote_where_needed("group")
    ('age', '"my id"', '"group"')
    """
    return to_sql(make_identifier(name))


def quote_path(name: str) -> str:
    """Return a table's name of up to three parts in SQL.

    >>> quote_path("my data.visits")
    '"my data".visits'
    """
    return ".".join(map(quote_where_needed, name.split(".")))


def span_of(node: exp.Expr | None) -> Span | None:
    """Return a node's span in the cell; None for a generated node."""
    if node is None:
        return None
    start: int | None = None
    end = -1
    for part in list_nodes(node):
        if "start" in part.meta:
            start = part.meta["start"] if start is None else min(start, part.meta["start"])
            end = max(end, part.meta["end"], part.meta.get("close", -1))
    return None if start is None else (start, end + 1)


def stand_in(name: str, place: exp.Expr) -> exp.Column:
    """Return a column of this name with a node's span."""
    made = exp.column(name)
    if (span := span_of(place)) is not None:
        made.this.meta.update(start=span[0], end=span[1] - 1)
    return made


def bind_error(
    place: exp.Expr | None,
    message: str,
    hint: str | None = None,
    *,
    around: exp.Expr | None = None,
    sqlstate: str = "",
) -> BindError:
    """Return a BindError that points at a node, or at the one ``around`` a generated node."""
    return BindError(message, span=span_of(place) or span_of(around), hint=hint, sqlstate=sqlstate)


def privacy_error(
    place: exp.Expr | None, message: str, hint: str | None = None, *, around: exp.Expr | None = None
) -> PrivacyError:
    """Return a PrivacyError that points at a node, or at the one ``around`` a generated node."""
    return PrivacyError(message, span=span_of(place) or span_of(around), hint=hint)


def span_of_word(text: str, word: str) -> Span | None:
    """Return the span of a word's first occurrence in a cell outside strings and comments."""
    found = (token for token in tokenize(text) if token.token_type != TokenType.STRING)
    return next((token_span(token) for token in found if token.text.lower() == word), None)


def to_sql(tree: exp.Expr) -> str:
    """Write a tree in DuckDB's SQL, without positions and comments.

    Raises:
        BindError: a SELECT with a mode is in it, which would be answered exactly; or a part of the tree can't be written.
    """
    try:
        return write_whole(tree)
    except UnsupportedError:
        message = "this can't be written in DuckDB's SQL without losing a part of it."
        hint = "write optional arguments as literals, or leave them out."
        raise bind_error(_find_unwritten(tree), message, hint, around=tree) from None


def _find_unwritten(tree: exp.Expr) -> exp.Expr:
    for child in tree.iter_expressions():
        try:
            write_whole(child)
        except UnsupportedError:
            return _find_unwritten(child)
    return tree


def write_whole(tree: exp.Expr) -> str:
    """Write a tree in DuckDB's SQL, without dropping parts as sqlglot's writer would.

    Raises:
        BindError: it has a SELECT with a mode.
        UnsupportedError: a part of the tree can't be written.
    """
    if isinstance(tree, exp.Column) and (name := write_column(tree)) is not None:
        return name
    level = ErrorLevel.IMMEDIATE
    return _DUCKDB.generate(
        _copy(tree, bare=True), copy=False, comments=False, normalize_functions=False, unsupported_level=level
    )


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def write_column(node: exp.Column) -> str | None:
    """Return a column as the generator writes it, in a tenth of its time; None if it is more than one or two names."""
    names: list[str] = []
    for key, part in node.args.items():
        if part is None:
            continue
        if key not in ("table", "this") or not isinstance(part, exp.Identifier):
            return None
        name = part.name
        if part.quoted:
            name = '"' + name.replace('"', '""') + '"'
        elif _PLAIN_NAME.fullmatch(name) is None or name.lower() in _RESERVED:
            return None
        names.insert(0 if key == "table" else len(names), name)
    return ".".join(names)


_RESERVED = DuckDB.Generator.RESERVED_KEYWORDS
_BASES = {"2": "log2", "10": "log10"}


def restore_logarithm(node: exp.Expr) -> exp.Expr:
    """Return LOG2 and LOG10 as calls by name: sqlglot reads them as LOG(2, x), whose quotient differs in the last digit."""
    base, inner = node.args.get("this"), node.args.get("expression")
    known = isinstance(base, exp.Literal) and not base.is_string and base.name in _BASES
    if base is None or inner is None or not known or node.meta.get("called") == "log":
        return node
    return exp.Anonymous(this=_BASES[base.name], expressions=[inner])


def list_nodes(tree: exp.Expr, without: Collection[int] = ()) -> list[exp.Expr]:
    """Return the nodes of a tree, without the subtrees in ``without``, in the order of ``tree.walk()`` but quicker."""
    nodes = [tree]
    for node in nodes:
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                if id(value) not in without:
                    nodes.append(value)
            elif type(value) is list:
                nodes += [item for item in value if isinstance(item, exp.Expr) and id(item) not in without]
    return nodes


def has_more_nodes(node: exp.Expr, most: int) -> bool:
    """Return whether a tree has more than ``most`` nodes, without visiting further nodes."""
    return any(count >= most for count, _ in enumerate(node.walk()))


def list_children(node: exp.Expr) -> list[exp.Expr]:
    """Return the direct subtrees of a node."""
    found = []
    for value in node.args.values():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, exp.Expr):
                found.append(item)
    return found


_Node = TypeVar("_Node", bound=exp.Expr)


def find_nodes(tree: exp.Expr, kind: type[_Node], *more: type[_Node]) -> list[_Node]:
    """Return the nodes of some classes in a tree, in the order of ``tree.find_all()``."""
    kinds = (kind, *more)
    return [node for node in list_nodes(tree) if isinstance(node, kinds)]


def copy_tree(tree: exp.Expr) -> exp.Expr:
    """Return a copy, with positions, in a quarter of the time of ``tree.copy()``."""
    return _copy(tree, bare=False)


def _copy(tree: exp.Expr, bare: bool) -> exp.Expr:
    """Return a copy; a ``bare`` one is for a generator, without positions and comments."""
    tree = restore_logarithm(tree.copy()) if bare and isinstance(tree, exp.Log) else tree
    root = tree.__class__()
    stack = [(tree, root)]
    while stack:
        node, copy = stack.pop()
        copy._type = node._type
        if not bare:
            copy.comments = node.comments
            if node._meta:
                copy._meta = dict(node._meta)
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                value = restore_logarithm(value.copy()) if bare and isinstance(value, exp.Log) else value
                child = copy.args[key] = value.__class__()
                child.parent, child.arg_key = copy, key
                stack.append((value, child))
            elif type(value) is list:
                copy.args[key] = held = list(value)
                for i, item in enumerate(value):
                    if isinstance(item, exp.Expr):
                        item = restore_logarithm(item.copy()) if bare and isinstance(item, exp.Log) else item
                        child = held[i] = item.__class__()
                        child.parent, child.arg_key, child.index = copy, key, i
                        stack.append((item, child))
            elif bare and type(value) is ModeClause:
                hint = "write it as a named query before the statement, and use its name."
                raise bind_error(value.mode, "a private SELECT can't stand here.", hint)
            else:
                copy.args[key] = value
    return root


# -- the catalogue by sqlglot's class


def _class_named(name: str) -> Any:
    return vars(exp)[name]


NAME_OF_CLASS: dict[type[exp.Expr], SqlName] = {
    _class_named(kind): row for row in AGGREGATES for kind in row.classes
}
ROW_OF_CLASS: dict[type[exp.Expr], RowName] = {_class_named(row.node): row for row in ROW_NAMES if row.node}
REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    _class_named(node): name for node, name in REFUSED_NODES.items()
}
"""DuckDB's names of some refused calls."""
MOVING_CLASSES: tuple[type[exp.AggFunc], ...] = tuple(
    _class_named(row.classes[0]) for row in AGGREGATES if row.moving
)
"""Aggregates that a window computes over its frame."""
