"""Statements of a cell, each with its span. Nothing is bound or spent yet."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Literal

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.aggregate_names import MODES
from dpsql.catalogue.option_names import INTERVALS, SHOW_WORDS
from dpsql.errors import BindError, Error, ParseError, Span, clip, did_you_mean, find_nearest
from dpsql.language.advice import LATERAL_HINT
from dpsql.language.dialect import (
    ModeClause,
    bind_error,
    find_nodes,
    list_nodes,
    parse_tokens,
    span_of,
    span_of_word,
    to_sql,
)
from dpsql.language.parameter_values import Params, name_parameters
from dpsql.language.parameters import list_parameters_named, make_literal, put_values
from dpsql.language.spellings import find_now, reads_clock, spell_plainly
from dpsql.language.tokens import (
    CLOSING,
    OPENING,
    RESERVED_WORDS,
    is_name,
    is_word,
    read_limit,
    replace_token,
    token_error,
    tokenize,
)
from dpsql.late_dataclass import dataclass

SYNTHETIC = "SYNTHETIC TABLE"
"""The mode of a SELECT of synthetic rows. Its space prevents accidental use."""
MAX_SYNTHETIC_ROWS = 10_000_000
"""The most synthetic rows."""
SYNTHETIC_USAGE = (
    "write CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM visits."
)


def begins(tokens: list[Token]) -> bool:
    """Return whether a statement begins like a synthetic table's."""
    words = [token.text.upper() for token in tokens[:4]]
    return words[:2] == ["CREATE", "SYNTHETIC"] or words == ["CREATE", "OR", "REPLACE", "SYNTHETIC"]


def read_head(tokens: list[Token], params: Mapping[str, object]) -> tuple[str, int | None, int]:
    """Parse the tokens before the SELECT; ParseError if malformed.

    Returns:
        The table's name, the number of rows if given, and the index of the SELECT.
    """
    words = [token.text.upper() for token in tokens]
    at, rows = words.index("SYNTHETIC") + 1, None
    if words[at : at + 1] != ["TABLE"]:
        raise token_error(_token_at(tokens, at), "SYNTHETIC is followed by TABLE.", SYNTHETIC_USAGE)
    at += 1
    if not any(map(_is_path_part, tokens[at : at + 1])) or words[at] in ("AS", "ROWS"):
        raise token_error(_token_at(tokens, at), "a synthetic table needs a name.", SYNTHETIC_USAGE)
    name, at = str(tokens[at].text), at + 1
    if words[at : at + 1] == ["ROWS"]:
        rows, at = _read_rows(tokens, at + 1, params)
    if words[at : at + 1] != ["AS"] or len(tokens) == at + 1:
        raise token_error(_token_at(tokens, at), "AS SELECT follows the name.", SYNTHETIC_USAGE)
    return name, rows, at + 1


def _token_at(tokens: Sequence[Token], at: int) -> Token:
    return tokens[min(at, len(tokens) - 1)]


def _is_path_part(token: Token) -> bool:
    return is_word(token) or token.token_type == TokenType.IDENTIFIER


def _read_rows(tokens: list[Token], at: int, params: Mapping[str, object]) -> tuple[int, int]:
    """Return the number after ROWS, or its parameter's value, and the next index."""
    place, after = _token_at(tokens, at), at + 1
    value: object = None
    if place.text == "$" and at + 1 < len(tokens):
        value, after = params.get(tokens[at + 1].text), at + 2
    elif place.token_type == TokenType.NUMBER and place.text.isascii() and place.text.isdigit():
        value = int(place.text[:12])
    try:
        return check_rows(value), after
    except BindError as error:
        raise token_error(place, error.message, "write 10000, or leave the number of rows out.") from None


def check_rows(rows: object) -> int:
    """Return a number of synthetic rows; BindError if it is no integer or out of range."""
    if isinstance(rows, int) and not isinstance(rows, bool) and 1 <= rows <= MAX_SYNTHETIC_ROWS:
        return rows
    raise BindError(f"the number of rows is a whole number from 1 to {MAX_SYNTHETIC_ROWS:,}.")


def mark(query: exp.Expr, place: Span, rows: int | None) -> exp.Select:
    """Return a SELECT in mode DP, or without a mode, marked for synthetic rows of its columns, as a copy.

    ``rows``: the number requested; None for the estimated number.

    Raises:
        ParseError: it is no such SELECT.
    """
    select = query.copy()
    if not isinstance(select, exp.Select):
        what = "synthetic rows are those of one SELECT."
        raise ParseError(what, span=span_of(select) or place, hint=SYNTHETIC_USAGE)
    clause: ModeClause | None = select.args.get("mode")
    if clause is not None and MODES.get(clause.name.upper()) != "DP" and clause.name.upper() != SYNTHETIC:
        what = f"synthetic rows are not made in mode {clause.name}."
        raise ParseError(what, span=span_of(clause.mode), hint=SYNTHETIC_USAGE)
    mode, options = exp.Literal.string(SYNTHETIC), [] if clause is None else list(clause.options)
    if clause is not None:
        mode.meta.update(clause.mode.meta)
    if rows is not None:
        options.append(exp.EQ(this=exp.column("rows"), expression=exp.Literal.number(rows)))
    select.set("mode", ModeClause(mode, options))
    return select


StatementKind = Literal["query", "explain", "show", "set", "declare", "close", "drop"]
PRICED: tuple[StatementKind, ...] = ("query", "explain", "declare")
"""The kinds of statements that can be explained."""
ReleaseStep = Literal["", "create", "replace", "create unless there", "refresh", "drop", "drop if there"]
_STATEMENTS = ("SELECT", "WITH", "FROM", "VALUES", "PIVOT", "UNPIVOT", "EXPLAIN", "SHOW", "DECLARE", "CLOSE")


@dataclass(frozen=True)
class Statement:
    """One statement of a cell.

    ``text`` is its cell and ``span`` its place there; ``tree`` the query (of a query or an EXPLAIN), or the options and
    the threshold of a DECLARE; ``name`` the subject of SHOW, DECLARE and CLOSE, and the value of SET; ``limit`` the most
    rows of SHOW LEDGER; ``keep`` the name that its result is kept under; ``synthetic`` whether it asks for synthetic rows;
    ``release`` the release that it creates, refreshes or drops, by its ``step``. REFRESH is a query without a tree of its own.
    """

    kind: StatementKind
    text: str
    span: Span
    tree: exp.Expr | None = field(default=None, compare=False)
    name: str = ""
    json: bool = False
    keep: str = ""
    created: bool = False
    """Whether CREATE TABLE keeps its result."""
    limit: int | None = None
    release: str = ""
    step: ReleaseStep = ""
    named: Span = (0, 0)
    """The span of the release's name."""
    definition: Span = (0, 0)
    """The span of the query of CREATE RELEASE."""
    synthetic: bool = False
    rows: int | None = None
    """The number of synthetic rows; None for the estimated number."""
    values: tuple[tuple[str, str], ...] = ()
    """Its parameters, and their values as SQL."""
    now: datetime.datetime | None = None
    """Its time, if it may name the present one."""

    @property
    def source(self) -> str:
        """The statement's own text."""
        return self.text[slice(*self.span)].strip()

    @property
    def record(self) -> str:
        """The statement's own text for the ledger, followed by its parameters' values in a comment."""
        shown = [f"${name} = {value}" for name, value in self.values]
        if self.now is not None:
            shown.append(f"now = {self.now:%Y-%m-%d %H:%M:%S} UTC")
        if self.synthetic and not self.keep:
            shown.append("synthetic rows")
        return f"{self.source} /* {', '.join(shown)} */" if shown else self.source

    def find_word(self, word: str | None) -> Span | None:
        """Return the span of a word in the cell, None if it isn't there; of the statement for None."""
        return span_of_word(self.text, word) if word else self.span


MAX_VALUE = 60
"""The most characters of a parameter's value in the ledger."""


def parse(text: str, params: Params | None = None) -> list[Statement]:
    """Return the statements of a cell, in order, with ``$name``, ``$1`` and ``?`` bound as values; all have one time.

    Raises:
        ParseError: not a statement of the language.
        BindError: a parameter has no value, or one that SQL can't represent.
    """
    if not isinstance(text, str):
        what = f"a statement is a text, not a {type(text).__name__}."
        raise ParseError(what, hint='session.sql("SELECT ...")')
    remembered = params is None and len(text) <= MAX_REMEMBERED_TEXT
    found = list(_parse_remembered(text)) if remembered else _parse(text, params)
    now = find_now()
    return [replace(one, now=now) if reads_clock(text, one.tree) else one for one in found]


def parse_synthetic(text: str, params: Params | None, rows: int | None) -> list[Statement]:
    """Return the one statement of a text, a SELECT or a CREATE SYNTHETIC TABLE, marked for synthetic rows.

    Raises:
        ParseError, BindError: it is no such statement, or the number of rows is out of range.
    """
    if rows is not None:
        check_rows(rows)
    found = parse(text, params)
    one = found[0] if len(found) == 1 else None
    if one is None or one.kind != "query":
        raise ParseError("synthetic rows are asked for by one SELECT.", hint=SYNTHETIC_USAGE)
    if one.rows is not None and rows is not None:
        raise BindError("the number of rows is given twice.", hint="leave ROWS or rows= out.")
    if one.synthetic and rows is None:
        return found
    assert one.tree is not None
    try:
        return [replace(one, tree=mark(one.tree, one.span, rows), synthetic=True, rows=rows)]
    except Error as error:
        raise error.located(text) from None


MAX_REMEMBERED_TEXT = 4000
"""The most characters of a text whose statements are cached; binding copies their trees, which never change."""


@lru_cache(maxsize=64)
def _parse_remembered(text: str) -> tuple[Statement, ...]:
    return tuple(_parse(text, None))


def _parse(text: str, params: Params | None) -> list[Statement]:
    try:
        text, values = name_parameters(text, params)
        parts = groupby(tokenize(text), lambda token: token.token_type == TokenType.SEMICOLON)
        statements = []
        for ends, part in parts:
            if not ends:
                tokens = list(part)
                statement = _statement(tokens, text, values)
                statements.append(replace(statement, values=_list_values(tokens, values)))
        return statements
    except Error as error:
        raise error.located(text) from None


def _statement(tokens: list[Token], text: str, params: Mapping[str, object]) -> Statement:
    if _is_kept(tokens):
        if len(tokens) == 3:
            raise token_error(tokens[0], "a statement follows <<.", _KEPT, last=tokens[2])
        statement = _statement(tokens[3:], text, params)
        if statement.release:
            raise token_error(tokens[3], "a release has a name already.", "leave the name and << out.")
        return replace(statement, keep=tokens[0].text)
    span = (tokens[0].start, tokens[-1].end + 1)
    word = tokens[0].text.upper()
    if word == "EXPLAIN":
        return _explain(tokens, text, params, span)
    if word == "SHOW":
        return _show(tokens, text, span)
    if word in ("SET", "RESET"):
        return _set(tokens, text, span)
    if word in _DESCRIBING:
        return _describe(tokens, text, span)
    if begins(tokens):
        return _synthetic(tokens, text, params, span)
    if word in _RELEASING and (read := _read_release(tokens, text)) is not None:
        return _release(*read, tokens, text, params, span)
    if word == "CREATE" and (made := _read_created(tokens)) is not None:
        name, start = made
        statement = _statement(tokens[start:], text, params)
        if statement.kind != "query":
            raise token_error(tokens[start], "a table is created of a query's answer.", _CREATED)
        return replace(statement, keep=name, created=True)
    if word == "DECLARE":
        return _declare(tokens, text, params, span)
    if word == "CLOSE":
        name = _word(tokens, 1, "CLOSE needs the name of a declared threshold.")
        _nothing_after(tokens, 2)
        return Statement("close", text, span, name=name)
    if word == "TABLE" and len(tokens) > 1:  # TABLE t is FROM t
        tokens = [replace_token(tokens[0], TokenType.FROM, "FROM"), *tokens[1:]]
        word = "FROM"
    if word not in _STATEMENTS and tokens[0].token_type != TokenType.L_PAREN:
        hint = _REFUSED[word] if word in _REFUSED else did_you_mean(word, _STATEMENTS)
        raise token_error(tokens[0], f"{tokens[0].text} is not a statement of dpsql.", hint)
    return Statement("query", text, span, tree=_query(tokens, text, params))


def _list_values(tokens: Sequence[Token], params: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the parameters in tokens, without duplicates, with their values as shortened SQL."""
    names = [name for name in list_parameters_named(tokens) if name in params]
    written = ((name, to_sql(make_literal(params[name], name))) for name in names)
    return tuple((name, clip(" ".join(text.split()), MAX_VALUE)) for name, text in written)


def _is_kept(tokens: list[Token]) -> bool:
    """Return whether a statement has the form ``name << ...``."""
    if len(tokens) < 3 or not tokens[1].text == tokens[2].text == "<" or tokens[2].start != tokens[1].end + 1:
        return False
    return tokens[0].text.isidentifier() or tokens[0].token_type == TokenType.IDENTIFIER


_KEPT = "a name and << before a query keep its answer; within a statement, a query may have a name too."
_READ_ONLY = "dpsql only answers questions: write a query."
_WRITING = """
    INSERT UPDATE DELETE CREATE DROP ALTER COPY ATTACH DETACH PRAGMA LOAD INSTALL CALL USE
    EXPORT IMPORT VACUUM CHECKPOINT PREPARE EXECUTE BEGIN COMMIT ROLLBACK MERGE TRUNCATE"""
_REFUSED = dict.fromkeys(_WRITING.split(), _READ_ONLY) | {
    **dict.fromkeys(
        ("PREPARE", "EXECUTE"), "write the query with parameters, and give their values with it."
    ),
    "INSERT": _KEPT,
    "CREATE": f"{_KEPT} A synthetic table is created of rows that look like private ones.",
    **dict.fromkeys(
        ("COPY", "EXPORT"), "ask the query alone, and write the data frame of its answer to a file."
    ),
}


def _check_selects(tokens: Sequence[Token]) -> None:
    """Raise ParseError for a SELECT without items, which may be meant as a column's name."""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        alone = after is None or after.token_type in (TokenType.COMMA, *CLOSING)
        if token.token_type == TokenType.SELECT and alone:
            hint = f'the column of that name is written "{token.text}".'
            raise token_error(token, "this SELECT has no columns.", hint)


def _query(tokens: list[Token], text: str, params: Mapping[str, object]) -> exp.Expr:
    check_clause_order(tokens)
    _check_selects(tokens)
    tree = _write_out_pivots(put_values(parse_tokens(_enclose_pivot(tokens), text), params, text))
    nodes = list_nodes(tree)
    check_clauses(nodes)
    check_places(nodes)
    check_aliases(nodes, tokens)
    put_joins_in_place(nodes)
    spell_plainly(nodes)
    if isinstance(tree, exp.Values) and not tree.args.get("joins"):
        tree.set("alias", exp.TableAlias(this=exp.to_identifier("valueslist")))
        tree = exp.Select(expressions=[exp.Star()]).from_(tree, copy=False)
    while isinstance(tree, exp.Subquery) and not tree.alias and isinstance(tree.this, exp.Query):
        tree = open_parentheses(tree)
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        raise ParseError("only queries are answered here.", span=span_of(tree), hint=_READ_ONLY)
    return tree


def _enclose_pivot(tokens: list[Token]) -> list[Token]:
    """Rewrite a PIVOT statement with ORDER BY or LIMIT as ``SELECT * FROM (PIVOT ...) ORDER BY ...``."""
    if tokens[0].text.upper() not in ("PIVOT", "UNPIVOT"):
        return tokens
    depth = 0
    for i, token in enumerate(tokens):
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        if depth == 0 and token.token_type in (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET):
            words = {"SELECT": "SELECT", "*": "STAR", "FROM": "FROM", "(": "L_PAREN"}
            before = [replace_token(tokens[0], TokenType[kind], word) for word, kind in words.items()]
            return [*before, *tokens[:i], replace_token(tokens[i - 1], TokenType.R_PAREN, ")"), *tokens[i:]]
    return tokens


def _names_values(node: exp.Expr) -> bool:
    """Return whether a pivot is on a column with values; ``x || y IN (...)`` is a boolean, in DuckDB too."""
    return isinstance(node, exp.In) and isinstance(node.this, exp.Column | exp.Tuple)


def _write_out_pivots(tree: exp.Expr) -> exp.Expr:
    """Rewrite ``PIVOT t ON x IN (...) USING f(y) GROUP BY z`` as ``SELECT * FROM t PIVOT (f(y) FOR x IN (...) GROUP BY z)``."""
    for node in find_nodes(tree, exp.Pivot):
        if not isinstance(node.this, exp.Table | exp.Subquery):
            continue
        source, on = node.this, node.expressions
        made = exp.Pivot(group=node.args.get("group"), unpivot=bool(node.args.get("unpivot")))
        if made.args["unpivot"]:
            into = node.args.get("into")
            given = [into.this.name, *(value.name for value in into.expressions)] if into is not None else []
            label, *values = given or ["name", "value"]
            made.set("expressions", [exp.to_identifier(value, quoted=True) for value in values])
            made.set("fields", [exp.In(this=exp.to_identifier(label, quoted=True), expressions=on)])
        else:
            fields = [item if _names_values(item) else exp.In(this=item, expressions=[]) for item in on]
            made.set("expressions", node.args.get("using") or [exp.Count(this=exp.Star())])
            made.set("fields", fields)
        source.append("pivots", made)
        select = exp.Select(expressions=[exp.Star()], with_=node.args.get("with_"))
        select.set("from_", exp.From(this=source))
        if node is tree:
            tree = select
        else:
            node.replace(select)
    return tree


_EXPLAIN_WORDS = "ANALYZE BUFFERS COSTS FORMAT GENERIC_PLAN SETTINGS SUMMARY TIMING VERBOSE WAL"
"""PostgreSQL's options of EXPLAIN; besides ANALYZE and FORMAT they mean nothing here."""


def _explain(tokens: list[Token], text: str, params: Mapping[str, object], span: Span) -> Statement:
    rest, json = tokens[1:], False
    words = [token.text.upper() for token in rest]
    end = next((at for at, word in enumerate(words) if word not in ("ANALYZE", "VERBOSE")), len(words))
    if words[:1] == ["("] and words[1:2] and words[1] in _EXPLAIN_WORDS.split() and ")" in words:
        end = words.index(")") + 1
    for at, word in enumerate(words[:end]):
        value = words[at + 1] if at + 1 < end else ""
        if word == "FORMAT" and value not in ("TEXT", "JSON"):
            what = f"EXPLAIN has no format {rest[at + 1].text}."
            raise token_error(rest[at + 1], what, "write TEXT, or JSON.")
        if word == "ANALYZE" and value not in ("FALSE", "OFF", "0"):
            hint = "leave it out: EXPLAIN tells the cost before."
            raise token_error(rest[at], "EXPLAIN ANALYZE would run the statement.", hint)
        json = json or (word == "FORMAT" and value == "JSON")
    rest = rest[end:]
    if not rest:
        raise token_error(tokens[0], "EXPLAIN needs a statement.")
    inner = _statement(rest, text, params)
    if inner.kind not in ("query", "declare"):
        raise ParseError("EXPLAIN is for queries.", span=inner.span)
    return replace(inner, kind="explain", span=span, json=json, keep="", created=False)


def _show(tokens: list[Token], text: str, span: Span) -> Statement:
    usage = f"write SHOW {', SHOW '.join(word for word in SHOW_WORDS if word != 'VALUES')}."
    name = _word(tokens, 1, "SHOW needs a word.", usage).upper()
    if name not in SHOW_WORDS:
        near = find_nearest(name, SHOW_WORDS)
        hint = f"did you mean {near}?" if near else f"there is {', '.join(SHOW_WORDS)}."
        if name in ("COLUMNS", "FIELDS") and len(tokens) > 3:
            hint = f"write DESCRIBE {tokens[3].text}."
        elif near is None:
            hint = (
                "write SHOW TABLES."
                if name in ("ALL", "DATABASES")
                else f"write DESCRIBE {tokens[1].text}, or {usage[6:]}"
            )
        raise token_error(tokens[1], f"there is no SHOW {tokens[1].text}.", hint)
    if name == "TRADEOFF" and [token.text.upper() for token in tokens[2:]] == ["SPENT"]:
        return Statement("show", text, span, name="TRADEOFF SPENT")
    if name == "VALUES":
        path = _read_path(tokens[2:])
        if path is None:
            hint = "write SHOW VALUES ward, or SHOW VALUES visits.ward."
            raise token_error(tokens[1], "SHOW VALUES takes a column's name.", hint, last=tokens[-1])
        return Statement("show", text, span, name=f"VALUES {path}")
    limit = read_limit(tokens, 2) if name == "LEDGER" else None
    _nothing_after(tokens, 2 if limit is None else 4)
    return Statement("show", text, span, name=name, limit=limit)


_SETTING = "the only setting is intervals, by which their ends are columns of the answers."


def _set(tokens: list[Token], text: str, span: Span) -> Statement:
    words = [token.text.lower() for token in tokens]
    if words == ["reset", "intervals"]:
        return Statement("set", text, span, name="off")
    if len(words) == 4 and words[1] == "intervals" and words[2] in ("=", "to") and words[3] in INTERVALS:
        return Statement("set", text, span, name=words[3])
    if words[1:2] == ["intervals"]:
        raise token_error(tokens[0], "intervals is 'columns' or 'off'.", _SETTING, last=tokens[-1])
    raise token_error(tokens[0], f"{tokens[0].text} is not a statement of dpsql.", _SETTING)


_DESCRIBING = ("DESCRIBE", "DESC", "SUMMARIZE")
_CREATED = "write CREATE TABLE counts AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward."


def _read_created(tokens: list[Token]) -> tuple[str, int] | None:
    """Return the name and the index of the query of CREATE TABLE ... AS; None for other statements."""
    words = [token.text.upper() for token in tokens[:8]]
    at = 3 if words[1:3] == ["OR", "REPLACE"] else 1
    at += words[at : at + 1] in (["TEMP"], ["TEMPORARY"])
    if words[at : at + 1] != ["TABLE"] or words[at + 2 : at + 3] != ["AS"] or len(tokens) <= at + 3:
        return None
    return str(tokens[at + 1].text), at + 3


_RELEASING = ("CREATE", "REFRESH", "DROP")
_FIRST_RELEASE = "write CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward."
_VIEWS = {
    "CREATE": _FIRST_RELEASE,
    "REFRESH": "write REFRESH RELEASE daily.",
    "DROP": "write DROP RELEASE daily.",
}


MAX_VIEW = 100
"""The most characters of a view's query in a hint."""


def _read_release(tokens: list[Token], text: str) -> tuple[ReleaseStep, int] | None:
    """Return a release statement's step and the index of its name, or None; ParseError if it is meant as one."""
    words = [token.text.upper() for token in tokens[:8]]
    word, at = words[0], 1
    step: ReleaseStep = "create" if word == "CREATE" else "refresh" if word == "REFRESH" else "drop"
    if word == "CREATE" and words[1:3] == ["OR", "REPLACE"]:
        step, at = "replace", 3
    if words[at : at + 1] != ["RELEASE"]:
        kind = [w for w in words[at : at + 3] if w not in ("TEMP", "TEMPORARY", "MATERIALIZED")]
        if word == "REFRESH" or kind[:1] == ["VIEW"]:
            said = f"{tokens[0].text} VIEW" if kind[:1] == ["VIEW"] else tokens[0].text
            hint = _VIEWS[word]
            if kind[:1] == ["VIEW"] and word == "CREATE" and "MATERIALIZED" not in words and "AS" in words:
                at = words.index("AS")
                rest = text[tokens[at + 1].start : tokens[-1].end + 1] if at + 1 < len(tokens) else ""
                if at > 1 and rest and len(rest) < MAX_VIEW:
                    name = text[tokens[at - 1].start : tokens[at - 1].end + 1]
                    hint = f"write WITH {name} AS ({rest}) SELECT COUNT(*) FROM {name}."
            raise token_error(tokens[0], f"{said} is not a statement of dpsql.", hint)
        return None
    if word == "CREATE" and words[at + 1 : at + 4] == ["IF", "NOT", "EXISTS"]:
        if step == "replace":
            raise token_error(
                tokens[at + 1], "OR REPLACE and IF NOT EXISTS exclude each other.", "leave one out."
            )
        return "create unless there", at + 4
    if word == "DROP" and words[at + 1 : at + 3] == ["IF", "EXISTS"]:
        return "drop if there", at + 3
    return step, at + 1


def _release(
    step: ReleaseStep, at: int, tokens: list[Token], text: str, params: Mapping[str, object], span: Span
) -> Statement:
    word = tokens[0].text.upper()
    if not any(map(_is_path_part, tokens[at : at + 1])):
        raise token_error(_token_at(tokens, at), "a release needs a name.", _VIEWS[word])
    name, named = str(tokens[at].text), (tokens[at].start, tokens[at].end + 1)
    if word != "CREATE":
        _nothing_after(tokens, at + 1)
        return Statement(
            "drop" if word == "DROP" else "query", text, span, release=name, step=step, named=named
        )
    if len(tokens) < at + 3 or tokens[at + 1].text.upper() != "AS":
        what = "AS and a query follow a release's name."
        raise token_error(_token_at(tokens, at + 1), what, _FIRST_RELEASE)
    query = tokens[at + 2 :]
    if list_parameters_named(query):
        given = next(token for token in query if token.text == "$")
        hint = "write its value; an answer with parameters may be kept in this session, name << SELECT ..."
        raise token_error(given, "a release has no parameters: it is drawn again without them.", hint)
    made = _statement(query, text, params)
    if made.kind != "query" or made.keep or made.release or made.synthetic:
        raise token_error(query[0], "a release is of a query's answer.", _FIRST_RELEASE)
    return replace(made, span=span, release=name, step=step, named=named, definition=made.span)


def _describe(tokens: list[Token], text: str, span: Span) -> Statement:
    """Read DESCRIBE and SUMMARIZE of a table; without a table, DESCRIBE lists all."""
    word = "SUMMARIZE" if tokens[0].text.upper() == "SUMMARIZE" else "DESCRIBE"
    rest = tokens[2:] if [token.text.upper() for token in tokens[1:2]] == ["TABLE"] else tokens[1:]
    if not rest and word == "DESCRIBE":
        return Statement("show", text, span, name="TABLES")
    path = _read_path(rest)
    if path is None or rest[0].text.upper() in _STATEMENTS:
        hint = "write SHOW TABLES, which lists the tables."
        if rest and rest[0].text.upper() in _STATEMENTS:
            hint = f"write EXPLAIN instead of {tokens[0].text.upper()}."
        raise token_error(tokens[0], f"{tokens[0].text.upper()} takes a table's name.", hint, last=tokens[-1])
    return Statement("show", text, span, name=f"{word} {path}")


def _read_path(tokens: Sequence[Token]) -> str | None:
    """Return a name of at most three parts; None if these are other tokens."""
    names = [token for token in tokens if token.token_type != TokenType.DOT]
    whole = 0 < len(names) * 2 - 1 == len(tokens) <= 5
    if not whole or not all(map(_is_path_part, names)):
        return None
    return ".".join(token.text for token in names)


def _declare(tokens: list[Token], text: str, params: Mapping[str, object], span: Span) -> Statement:
    kind = tokens[2].text.upper() if len(tokens) > 2 else ""
    stable = kind == "STABLE"
    usage = "write DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 3)."
    if stable:
        usage = "write DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6, max_unstable = 5)."
    name = _word(tokens, 1, "DECLARE needs a name.", hint=usage)
    if not stable and (len(tokens) < 4 or kind != "ABOVE_THRESHOLD"):
        at = _token_at(tokens, 2)
        if any(token.text.upper() == "CURSOR" for token in tokens[2:6]):
            usage = "ask the SELECT itself, without a cursor: its rows come all at once."
        raise token_error(at, "only ABOVE_THRESHOLD and STABLE can be declared.", usage)
    depths = accumulate((t.token_type in OPENING) - (t.token_type in CLOSING) for t in tokens)
    words = (i for i, depth in enumerate(depths) if depth == 0 and tokens[i].text.upper() == "OPTIONS")
    options = next(words, len(tokens))
    if stable and len(tokens) > 3 and (options > 3 or tokens[-1].text != ")"):
        raise token_error(tokens[3], "only OPTIONS follow STABLE.", usage, last=tokens[-1])
    head = tokens[2]
    clause = [replace_token(head, TokenType.SELECT, "SELECT")]
    if stable or options < len(tokens):  # reuse the mode clause: SELECT WITH <kind> OPTIONS (...) threshold
        clause += [replace_token(head, TokenType.WITH, "WITH"), head, *tokens[options:]]
    clause += [replace_token(head, TokenType.NUMBER, "0")] if stable else []
    clause += tokens[3:options]
    tree = put_values(parse_tokens(clause, text), params, text)
    given = {key for key, value in tree.args.items() if value and key != "mode"}
    if not isinstance(tree, exp.Select) or given != {"expressions"}:  # arguments in parentheses, or a clause
        raise token_error(tokens[3], "DECLARE takes one threshold, and OPTIONS.", usage, last=tokens[-1])
    return Statement("declare", text, span, tree=tree, name=name)


def _synthetic(tokens: list[Token], text: str, params: Mapping[str, object], span: Span) -> Statement:
    name, rows, start = read_head(tokens, params)
    tree = mark(_query(tokens[start:], text, params), span, rows)
    return Statement("query", text, span, tree=tree, keep=name, synthetic=True, rows=rows)


def _word(tokens: list[Token], i: int, message: str, hint: str | None = None) -> str:
    if i >= len(tokens) or not is_name(tokens[i].text):
        raise token_error(_token_at(tokens, i), message, hint)
    return str(tokens[i].text)


def _nothing_after(tokens: list[Token], i: int) -> None:
    if len(tokens) > i:
        raise token_error(tokens[i], f"nothing may follow here, but there is {tokens[i].text}.")


# -- clauses and their order ------------------------------------------------------------------------------------

_CLAUSES = "SELECT, FROM, JOIN, WHERE, GROUP BY, HAVING, WINDOW, QUALIFY, USING SAMPLE, ORDER BY, LIMIT"
_RANKS = {word: place for place, word in enumerate(_CLAUSES.split(", "))}
_RANKS |= {"TABLESAMPLE": _RANKS["JOIN"], "OFFSET": _RANKS["LIMIT"], "FETCH": _RANKS["LIMIT"]}
_REPEATED = ("JOIN", "TABLESAMPLE")
_SETS = ("UNION", "INTERSECT", "EXCEPT")
_WORDS = {
    TokenType[word.replace(" ", "_")]: word for word in {*_RANKS, *_SETS} - {"TABLESAMPLE", "USING SAMPLE"}
}
_WORDS |= {TokenType.TABLE_SAMPLE: "TABLESAMPLE", TokenType.USING: "USING SAMPLE"}
_OTHERWISE_AFTER = {"FROM": TokenType.DISTINCT, "OFFSET": TokenType.WITH, "EXCEPT": TokenType.STAR}
"""IS DISTINCT FROM, UNNEST(x) WITH OFFSET and * EXCEPT (k) begin no clause."""
_OF_SELECT = "with_ expressions distinct from_ joins where group having qualify windows order limit offset sample into mode"
_KNOWN = frozenset(_OF_SELECT.split())
"""The clauses that a SELECT may have; INTO is refused elsewhere, with a hint."""
_FOREIGN = {word: f"{word.upper()} BY" for word in ("cluster", "distribute", "sort", "connect")}
_FOREIGN |= {"laterals": "LATERAL VIEW", "locks": "LOCK", "hint": "a hint", "match": "MATCH_RECOGNIZE"}
_FOREIGN |= {"prewhere": "PREWHERE", "kind": "SELECT AS", "operation_modifiers": "this word after SELECT"}
_OF_A_SELECT = ("where", "group", "having", "qualify", "windows")
_JOINED = ("kind", "match")
"""Keys of a set operation with SQL text: EXCEPT ALL, BY NAME ON (k)."""


def check_clause_order(tokens: list[Token]) -> None:
    """Refuse clauses in places where DuckDB has none.

    Raises:
        ParseError: with the clause that should come first, and its position.
    """
    levels: list[dict[str, Token]] = [{}]
    for i, token in enumerate(tokens):
        if token.token_type in OPENING:
            levels.append({})
        elif token.token_type in CLOSING:
            del levels[1:][-1:]
            levels = levels[:-1] or [{}]
        else:
            word = _clause(tokens, i)
            if word is not None:
                _place(word, token, levels[-1])


def _clause(tokens: list[Token], i: int) -> str | None:
    word = _WORDS.get(tokens[i].token_type)
    if word is not None and i and tokens[i - 1].token_type == _OTHERWISE_AFTER.get(word):
        return None
    if word == "USING SAMPLE" and tokens[i + 1 : i + 2] and tokens[i + 1].text.upper() == "SAMPLE":
        return word
    return None if word == "USING SAMPLE" else word  # USING (k)


def _place(word: str, token: Token, seen: dict[str, Token]) -> None:
    """Record a clause of one SELECT, if it may follow the previous ones."""
    if word in _SETS:
        last = next((name for name in ("ORDER BY", "LIMIT", "OFFSET", "FETCH") if name in seen), None)
        if last is not None:
            hint = f"write it at the end of the statement, or put the query before {word} in parentheses."
            raise token_error(seen[last], f"{last} can't stand before {word}.", hint)
        seen.clear()
        return
    if word in seen and word not in _REPEATED:
        raise token_error(token, f"there are two {word} clauses.", "join them into one.")
    if word in _REPEATED and "SELECT" in seen and ("FROM" not in seen or next(iter(seen)) == "FROM"):
        raise token_error(token, f"{word} stands apart from FROM.", "write it after FROM.")
    from_first = word == "SELECT" and next(iter(seen), "") == "FROM" and {*seen} <= {"FROM", *_REPEATED}
    later = [name for name in seen if _RANKS[name] > _RANKS[word]]
    if later and not from_first:
        raise token_error(token, f"{word} can't stand after {later[0]}.", f"write {word} before {later[0]}.")
    seen[word] = token


def check_clauses(nodes: Iterable[exp.Expr]) -> None:
    """Raise ParseError for clauses of other dialects, which would be dropped or fail in the engine."""
    for query in nodes:
        if not isinstance(query, exp.Select | exp.SetOperation | exp.Subquery):
            continue
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
                raise _after_parentheses(value)
            hint = LATERAL_HINT if key == "laterals" else "leave it out."
            raise _refuse_clause(value, f"{_FOREIGN.get(key, key.upper())} is not supported here.", hint)


def put_joins_in_place(nodes: Iterable[exp.Expr]) -> None:
    """Move the joins of ``FROM a JOIN b [SELECT ...]`` from a to the SELECT, as if FROM came second."""
    for select in nodes:
        if not isinstance(select, exp.Select):
            continue
        from_ = select.args.get("from_")
        joins = from_.this.args.get("joins") if from_ is not None else None
        if from_ is not None and joins:
            from_.this.set("joins", None)
            select.set("joins", [*joins, *(select.args.get("joins") or [])])


def _after_parentheses(value: object) -> ParseError:
    what = "only ORDER BY, LIMIT and OFFSET follow a SELECT in parentheses."
    return _refuse_clause(value, what, "write it inside of the parentheses.")


def _refuse_clause(value: object, what: str, hint: str) -> ParseError:
    found = value[0] if isinstance(value, list) else value
    return ParseError(what, span=span_of(found) if isinstance(found, exp.Expr) else None, hint=hint)


def open_parentheses(tree: exp.Subquery) -> exp.Expr:
    """Return the query of a fully parenthesised statement, with its trailing clauses; ParseError for a join or a sample."""
    for key in ("joins", "sample", "pivots"):
        if tree.args.get(key):
            raise _after_parentheses(tree.args[key])
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


# -- typing errors ----------------------------------------------------------------------------------------------------
#
# The parser accepts some as something else, and they would be answered and charged: in ``FROM visits GROUP`` and the
# misspelt ``FROM visits WHER``, the last word is an alias. ORDER BY a position without a column does nothing. DuckDB
# refuses most of these, and so does dpsql, before payment.

_KEYWORDS = "WHERE GROUP HAVING ORDER LIMIT OFFSET JOIN INNER LEFT RIGHT UNION QUALIFY WINDOW USING"
_MISSPELT = _KEYWORDS.split()


def check_places(nodes: Iterable[exp.Expr]) -> None:
    """Raise BindError, with the existing positions, for one in GROUP BY or ORDER BY without a column in the SELECT."""
    for query in nodes:
        places = list(_places(query)) if isinstance(query, exp.Select | exp.SetOperation) else []
        if not places:
            continue
        first = query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.left if isinstance(first, exp.SetOperation) else first.this
        if not isinstance(first, exp.Select) or _has_stars(first):
            continue
        count = len(first.expressions)
        for clause, node in places:
            place = node.this if isinstance(node, exp.Ordered) else node
            negative = isinstance(place, exp.Neg)
            number = place.this if negative else place
            if isinstance(place, exp.Literal) and place.is_string:
                what = f"{clause} takes columns, and a text is the same in all rows."
                raise bind_error(place, what, f"a column is written {_quote(place.name)}.")
            if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
                continue
            if negative or not 1 <= int(number.name[:10]) <= count:
                columns = "1 column" if count == 1 else f"{count} columns"
                hint = "write 1." if count == 1 else f"write a number from 1 to {count}."
                what = f"{clause} counts the columns from 1, and it has {columns}."
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


def check_aliases(nodes: Sequence[exp.Expr], tokens: Sequence[Token]) -> None:
    """Refuse a clause's keyword as a name: a reserved word, or a misspelt one that nothing refers to.

    Raises:
        ParseError: with the probable keyword, and how to quote the name.
    """
    places = {token.start: i for i, token in enumerate(tokens)}
    for alias in nodes:
        if not isinstance(alias, exp.TableAlias | exp.Alias):
            continue
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
            meant = next((clause for clause in _MISSPELT if _is_one_slip(word, clause)), None)
            if meant is not None and not _is_named(nodes, word):
                meant = f"{meant} BY" if meant in ("GROUP", "ORDER") else meant
                hint = f"did you mean {meant}? A name is written AS {tokens[at].text}."
                raise token_error(tokens[at], f"{tokens[at].text} is not a word of SQL.", hint)


def _refuse_word(tokens: Sequence[Token], at: int) -> ParseError:
    word = tokens[at].text
    ends = at + 1 == len(tokens) or tokens[at + 1].token_type in CLOSING
    what = f"nothing follows {word.upper()}." if ends else f"{word.upper()} is a word of SQL, and no name."
    return token_error(tokens[at], what, f'finish it, or leave it out; as a name it is written "{word}".')


def _is_named(nodes: Iterable[exp.Expr], word: str) -> bool:
    return any(isinstance(node, exp.Column) and node.table.upper() == word for node in nodes)


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
