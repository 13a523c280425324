"""Parses the head of ``CREATE [OR REPLACE] SYNTHETIC TABLE name [ROWS n] AS SELECT ...``, and marks its SELECT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.errors import BindError, ParseError, Span
from dpsql.sql.parse.dialect import ModeClause, span_of
from dpsql.sql.parse.tokens import is_word, token_error

SYNTHETIC = "SYNTHETIC TABLE"
"""The mode of a SELECT of synthetic rows. Its space prevents accidental use."""
MAX_SYNTHETIC_ROWS = 10_000_000
"""The most synthetic rows."""
SYNTHETIC_USAGE = (
    "write CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM visits."
)
_DP_MODES = ("DP", "DIFFERENTIAL_PRIVACY", "ANONYMIZATION", SYNTHETIC)


def begins(tokens: list[Token]) -> bool:
    """Return whether a statement begins like a synthetic table's."""
    words = [token.text.upper() for token in tokens[:4]]
    return words[:2] == ["CREATE", "SYNTHETIC"] or words == ["CREATE", "OR", "REPLACE", "SYNTHETIC"]


def read_head(tokens: list[Token], params: Mapping[str, Any]) -> tuple[str, int | None, int]:
    """Parse the tokens before the SELECT; ParseError if malformed.

    Returns:
        The table's name, the number of rows if given, and the index of the SELECT.
    """
    words = [token.text.upper() for token in tokens]
    at, rows = words.index("SYNTHETIC") + 1, None
    if words[at : at + 1] != ["TABLE"]:
        raise token_error(
            tokens[min(at, len(tokens) - 1)], "SYNTHETIC is followed by TABLE.", SYNTHETIC_USAGE
        )
    named = at + 1 < len(tokens) and (
        is_word(tokens[at + 1]) or tokens[at + 1].token_type == TokenType.IDENTIFIER
    )
    if not named or words[at + 1] in ("AS", "ROWS"):
        raise token_error(
            tokens[min(at + 1, len(tokens) - 1)], "a synthetic table needs a name.", SYNTHETIC_USAGE
        )
    name, at = str(tokens[at + 1].text), at + 2
    if words[at : at + 1] == ["ROWS"]:
        rows, at = _read_rows(tokens, at + 1, params)
    if words[at : at + 1] != ["AS"] or len(tokens) == at + 1:
        raise token_error(tokens[min(at, len(tokens) - 1)], "AS SELECT follows the name.", SYNTHETIC_USAGE)
    return name, rows, at + 1


def _read_rows(tokens: list[Token], at: int, params: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number after ROWS, or its parameter's value, and the next index."""
    place, after = tokens[min(at, len(tokens) - 1)], at + 1
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
        raise ParseError(
            "synthetic rows are those of one SELECT.", span=span_of(select) or place, hint=SYNTHETIC_USAGE
        )
    clause: ModeClause | None = select.args.get("mode")
    if clause is not None and clause.name.upper() not in _DP_MODES:
        what = f"synthetic rows are not made in mode {clause.name}."
        raise ParseError(what, span=span_of(clause.mode), hint=SYNTHETIC_USAGE)
    mode, options = exp.Literal.string(SYNTHETIC), [] if clause is None else list(clause.options)
    if clause is not None:
        mode.meta.update(clause.mode.meta)
    if rows is not None:
        options.append(exp.EQ(this=exp.column("rows"), expression=exp.Literal.number(rows)))
    select.set("mode", ModeClause(mode, options))
    return select
