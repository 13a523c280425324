"""The worker's side of PostgreSQL's protocol: it answers a client's text by the session, in the protocol's messages.

    postgres_run        statements with their parameters: rows, tags and notices; it may pay
    postgres_describe   one statement: its parameters, columns and price; its call can't pay

Payloads are bytes for the client, which the front passes on unread; heads are for the front's connection.
"""

from __future__ import annotations

import base64
import datetime
import itertools
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.client.wire import Head, Message, WireError, get_field, make_value
from dpsql.errors import BindError, Error, ParseError, PrivacyError
from dpsql.language.parameter_values import StandIn
from dpsql.language.parameters import list_parameter_names
from dpsql.language.postgres import (
    TextPart,
    fill_prepared,
    split_execute,
    split_parts,
    suggest_types,
)
from dpsql.language.statements import Statement, parse
from dpsql.late_dataclass import dataclass
from dpsql.server.postgres import types
from dpsql.server.postgres.commands import ClientSettings, Done, run_command
from dpsql.server.postgres.messages import (
    COPY_SIGNATURE,
    COPY_TRAILER,
    NO_DATA,
    ProtocolError,
    ResultField,
    spread_formats,
    write_copy_csv,
    write_copy_text,
    write_copy_tuple,
    write_description,
    write_notice,
    write_parameter_kinds,
    write_row,
)
from dpsql.server.postgres.messages import write as write_message
from dpsql.server.postgres.pg_catalog import (
    COLUMN_KINDS,
    Catalogue,
    list_output_names,
    open_finisher,
)
from dpsql.server.postgres.types import read_parameter
from dpsql.session.explanation import Description
from dpsql.session.interface import Question, may_keep
from dpsql.session.result import Result
from dpsql.session.session import Session

PAGE_BYTES = 1 << 20
"""The approximate size of a message with rows."""
MAX_NUMBERED = 1000
MAX_CURSORS = 16
"""Most cursors of a session."""
MAX_PREPARED_TEXTS = 100
"""Most statements that a session prepares by PREPARE."""
_CLOSE = re.compile(r'CLOSE\s+"?(?P<name>[^"]+?)"?', re.IGNORECASE)


_NO_ROWS = re.compile(
    r"\b((?P<limit>LIMIT\s+0)|WHERE\s+(1\s*=\s*0|0\s*=\s*1|1\s*=\s*2|FALSE))\s*\Z", re.IGNORECASE
)
"""The end of a query by which tools ask for its columns."""
_SETS = re.compile(r"\b(UNION|EXCEPT|INTERSECT)\b", re.IGNORECASE)
"""Operations whose other side may have rows."""
_ONE, _APART = "a prepared statement is one statement.", "send them one after another."


@dataclass(frozen=True)
class _Asked:
    """A client's text with its parameters."""

    text: str
    kinds: tuple[int, ...] = ()
    values: tuple[Any, ...] = ()
    result_formats: tuple[int, ...] = ()
    fields: tuple[ResultField, ...] | None = None
    """The columns of an earlier description, whose types the values must have."""
    bound: bool = False
    """Whether its parameters have values."""
    parts: tuple[TextPart, ...] = ()
    """The parts of the text."""

    @property
    def params(self) -> dict[str, Any] | None:
        return {str(place): value for place, value in enumerate(self.values, 1)} or None


class PostgresSession:
    """A PostgreSQL client's session: its settings, catalogue, cursors and prepared statements beside dpsql's own session.

    Args:
        session: the analyst's.
        startup: the parameters that the client connected with.
        database: the policy's name.
        note_kept: called with the name and the question of each kept result.
    """

    def __init__(
        self,
        session: Session,
        startup: Head,
        database: str,
        note_kept: Callable[[str, Question], None],
    ) -> None:
        analyst = next(iter(session.policy.analysts), "")
        self._session, self._note_kept, self._database = session, note_kept, database
        self.settings = ClientSettings.begin(analyst, startup)
        self.catalogue = Catalogue(session, analyst, database)
        self.cursors: dict[str, Result] = {}
        """The rows of declared cursors that were not fetched yet, by name."""
        self.prepared: dict[str, TextPart] = {}
        """The statements of PREPARE by name."""

    def prepare(self, part: TextPart) -> None:
        """Keep the statement of a PREPARE; BindError if its name is in use, or there are too many."""
        name = part.words[0]
        if name in self.prepared:
            raise BindError(
                f"there is a prepared statement {name} already.", hint=f"DEALLOCATE {name}", sqlstate="42P05"
            )
        if len(self.prepared) >= MAX_PREPARED_TEXTS:
            raise BindError(f"a session may prepare {MAX_PREPARED_TEXTS} statements.", hint="DEALLOCATE ALL")
        self.prepared[name] = part

    def find_prepared(self, text: str) -> str:
        """Return the query of an EXECUTE, with its values; BindError for an unknown name or other values."""
        name, given = split_execute(text)
        if name not in self.prepared:
            hint = f"PREPARE {name} AS SELECT ..."
            raise BindError(f"there is no prepared statement {name}.", hint=hint, sqlstate="26000")
        part = self.prepared[name]
        return fill_prepared(part.own, part.words[1:], given)

    def forget_prepared(self, name: str) -> None:
        """Forget a prepared statement; ``*`` means all."""
        self.prepared = (
            {} if name == "*" else {known: part for known, part in self.prepared.items() if known != name}
        )

    def declare(self, name: str, result: Result) -> None:
        """Keep a cursor in place of an older one of its name; the oldest makes room."""
        self.cursors.pop(name, None)
        while len(self.cursors) >= MAX_CURSORS:
            del self.cursors[next(iter(self.cursors))]
        self.cursors[name] = result

    def find_cursor(self, name: str) -> Result:
        """Return the remaining rows of a cursor; BindError if there is none of that name."""
        if name not in self.cursors:
            hint = f"DECLARE {name} CURSOR FOR SELECT ..."
            raise BindError(f"there is no cursor {name}.", hint=hint, sqlstate="34000")
        return self.cursors[name]

    # -- answers -----------------------------------------------------------------------------------------------

    def run(self, head: Head) -> Iterator[Message]:
        """Answer each statement of a text: columns, rows, end. ``head``: the text, and parameters' types, values, formats."""
        asked = self._read_asked(head)
        if not get_field(head, "simple", bool, False) and sum(part.count for part in asked.parts) > 1:
            raise ParseError(_ONE, hint=_APART)
        if not asked.parts:
            yield make_value(part="end", tag="")
        for part in asked.parts:
            with _elsewhere() if part.kind == "execute" else nullcontext():
                yield from self._answer_part(self._find_executed(part), asked)

    def _find_executed(self, part: TextPart) -> TextPart:
        """Return the part that an EXECUTE stands for, or another part itself."""
        return self._split(self.find_prepared(part.own))[0] if part.kind == "execute" else part

    def _check_prepared(self, part: TextPart) -> None:
        """Raise ParseError or BindError unless the text is a query that can be prepared."""
        (inner,) = self._split(part.text)
        if inner.kind == "query":
            _parse_unbound(part.text)
        elif inner.kind != "catalog":
            raise ParseError("only a query can be prepared.", hint="PREPARE p AS SELECT ...")

    def _answer_part(self, part: TextPart, asked: _Asked) -> Iterator[Message]:
        if part.kind == "command":
            done = run_command(part.words, self.settings)
            self.forget_prepared(done.forget)
            if done.tag in ("DISCARD ALL", "CLOSE CURSOR ALL"):
                self.cursors.clear()
            yield from self._write_done(done, asked)
        elif part.kind == "prepare":
            self._check_prepared(part)
            self.prepare(part)
            yield make_value(part="end", tag="PREPARE")
        elif part.kind in ("fetch", "move"):
            yield from self._fetch(part, asked)
        elif (
            part.kind == "query" and (closed := _CLOSE.fullmatch(part.own)) and closed["name"] in self.cursors
        ):
            del self.cursors[closed["name"]]
            yield make_value(part="end", tag="CLOSE CURSOR")
        else:
            yield from self._answer_queries(part, asked)

    def _answer_queries(self, part: TextPart, asked: _Asked) -> Iterator[Message]:
        layout = _read_layout(part.words) if part.kind == "copy" else None
        failed: Error | None = None
        try:
            results = self._ask(part, asked)
        except Error as error:
            failed, results = error, [result for result in error.answered if isinstance(result, Result)]
        statements: Sequence[Statement] = []
        if not part.catalog and (may_keep(part.own) or any(map(_has_written_names, results))):
            statements = _parse_unbound(part.text)
        for result, statement in itertools.zip_longest(results, statements[: len(results)]):
            if statement is not None and statement.keep:
                self._note_kept(statement.keep, Question(statement.source, asked.params))
            shown = result if statement is None else _name_columns(result, statement)
            if part.kind == "declare":
                self.declare(part.words[0], shown)
                yield self._write_end(result, "DECLARE CURSOR")
            elif layout is not None:
                yield from self._write_copy(shown, *layout)
                yield self._write_end(result, f"COPY {len(result)}")
            else:
                fields = _find_catalog_fields(result) if part.catalog else None
                yield from self._write_rows(shown, asked, fields)
                yield self._write_end(result, f"SELECT {len(result)}")
        if failed is not None:
            raise failed

    def _ask(self, part: TextPart, asked: _Asked) -> Sequence[Result]:
        """Return the results of a part's queries."""
        if part.catalog:
            return [Result(self.catalogue.answer(part, asked.values, self.settings))]
        self._session.interval_columns = self.settings.interval_columns
        empty = self._find_empty(part, asked.params)
        if empty is not None:
            return [Result(empty)]
        try:
            return self._session.run(part.text, asked.params)
        except BindError as error:
            typed = None if error.answered else self._type_texts(part, asked)
            if typed is None:
                raise
        return self._session.run(part.text, typed)

    def _type_texts(self, part: TextPart, asked: _Asked) -> dict[str, Any] | None:
        """Return the values after texts without a type were read in the types that fit; None if that changes none.

        Node sends ``SELECT SUM(x) * $1`` in this way, and PostgreSQL reads the text as a number.
        """
        told = [*asked.kinds, *[0] * (len(asked.values) - len(asked.kinds))]
        open_texts = [
            isinstance(value, str) and not kind for value, kind in zip(asked.values, told, strict=True)
        ]
        if not any(open_texts):
            return None
        try:
            kinds = self._complete_kinds(part, asked.kinds)
        except Error:
            return None
        values = list(asked.values)
        for place, kind in enumerate(kinds[: len(values)]):
            if open_texts[place] and kind in (*_NUMBERS, types.BOOL):
                values[place] = read_parameter(place + 1, kind, 0, values[place].encode())
        return replace(asked, values=tuple(values)).params if tuple(values) != asked.values else None

    def _find_empty(self, part: TextPart, params: dict[str, Any] | None) -> pa.Table | None:
        """Return the answer of a query by which tools ask for columns only; None for another query.

        It is free: the columns are those of the description, or of the query over empty copies of the tables, which may name each
        row. A query that has a row even there is none of these.
        """
        asked = _NO_ROWS.search(part.own)
        if asked is None or part.count > 1 or (_SETS.search(part.own) and not asked["limit"]):
            return None
        try:
            schema = self._session.describe(part.text, params).schema
        except PrivacyError:
            empty = {name: columns.empty_table() for name, columns in self._session.table_schemas().items()}
            found = open_finisher().finish(part.text, empty)
            return None if found.num_rows else found
        return schema.empty_table() if schema is not None and asked["limit"] else None

    def _fetch(self, part: TextPart, asked: _Asked) -> Iterator[Message]:
        """Yield the next rows of a cursor, which are paid already; for MOVE, skip them."""
        name, most = _read_fetch(part.words)
        held = self.find_cursor(name)
        count = len(held) if most is None else most
        rows, self.cursors[name] = Result(held.table.slice(0, count)), Result(held.table.slice(count))
        if part.kind == "fetch":
            yield from self._write_rows(rows, asked)
        yield self._write_end(rows, f"{part.kind.upper()} {len(rows)}")

    def _write_rows(
        self, result: Result, asked: _Asked, found: Sequence[ResultField] | None = None
    ) -> Iterator[Message]:
        """Yield the messages of a result's columns and rows, of some :data:`PAGE_BYTES`."""
        fields = asked.fields if asked.fields is not None else found or _find_fields(result)
        if len(fields) != len(result.columns):
            raise BindError("the statement's columns are others than they were.", hint="prepare it again.")
        formats = _spread(asked.result_formats, len(fields))
        yield make_value(write_description(fields, formats), part="fields")
        rows = _encode_rows(result, fields, formats, self.settings.iso_intervals)
        yield from _send_pages("rows", map(write_row, rows))

    def _write_copy(self, result: Result, form: str, header: bool) -> Iterator[Message]:
        """Yield the messages of a result's rows as COPY has them."""
        fields, binary = _find_fields(result), form == "BINARY"
        formats = [int(binary)] * len(fields)
        rows = _encode_rows(result, fields, formats, self.settings.iso_intervals)
        if header and not binary:
            rows = itertools.chain([tuple(item.name.encode() for item in fields)], rows)
        write = {"TEXT": write_copy_text, "CSV": write_copy_csv, "BINARY": write_copy_tuple}[form]
        lines: Iterator[bytes] = map(write, rows)
        if binary:  # clients expect the signature before the first row, in one message
            lines = itertools.chain(lines, [COPY_TRAILER])
            lines = itertools.chain([COPY_SIGNATURE + next(lines)], lines)
        begin = write_message(b"H", struct.pack(f">bh{len(fields)}h", binary, len(fields), *formats))
        data = (write_message(b"d", line) for line in lines)
        yield from _send_pages("copy", itertools.chain([begin], data, [write_message(b"c")]))

    def _write_end(self, result: Result, tag: str) -> Message:
        """Return the end of a statement: its tag, and a notice with its cost and notes.

        The notice is in the head, since the front fills in the budget left there only (:mod:`dpsql.server.frames`).
        """
        more: dict[str, object] = {}
        if not self.settings.quiet and (result.loss or result.notes):
            more["notice"] = [
                result.cost_line or "no charge",
                "\n".join([*result.notes, *_say_errors(result)]),
            ]
        return make_value(part="end", tag=tag, **more)

    def _write_done(self, done: Done, asked: _Asked) -> Iterator[Message]:
        if done.names:
            columns = (pa.array(column, pa.string()) for column in zip(*done.rows, strict=True))
            yield from self._write_rows(Result(pa.table(list(columns), names=list(done.names))), asked)
        changed = [list(pair) for pair in done.changed]
        yield make_value(
            part="end",
            tag=done.tag,
            transaction=done.transaction,
            forget=done.forget,
            changed=changed,
            timeout=self.settings.timeout,
        )

    # -- schema before payment -----------------------------------------------------------------------------------

    def describe(self, head: Head) -> Iterator[Message]:
        """Describe a statement: its parameters (without ``portal``), price and columns. Spends nothing; reads no private row."""
        asked = self._read_asked(head)
        if sum(part.count for part in asked.parts) > 1:
            raise ParseError(_ONE, hint=_APART)
        kinds, fields, price = asked.kinds, None, ""
        if "cursor" in head:
            fields = _find_fields(self.find_cursor(get_field(head, "cursor", str)))
        for part in map(self._find_executed, asked.parts):
            if part.kind == "command":
                names = run_command(part.words, self.settings, only_describe=True).names
                fields = [types.PgType(types.TEXT).name_field(name) for name in names] or None
            elif part.kind == "fetch":
                fields = _find_fields(self.find_cursor(_read_fetch(part.words)[0]))
            elif part.catalog:
                kinds = self._complete_kinds(part, kinds)
                values = asked.values if asked.bound else tuple(_sample(kind) for kind in kinds)
                found = self.catalogue.answer(part, values, self.settings, described=True)
                fields = _find_catalog_fields(Result(found)) if part.kind == "catalog" else None
            elif part.kind not in ("prepare", "move"):
                self._session.interval_columns = self.settings.interval_columns
                kinds, listed, price = self._describe_query(part, asked)
                fields = listed if part.kind == "query" else None
        kinds = tuple(kind or types.TEXT for kind in kinds)
        written = b"" if get_field(head, "portal", bool, False) else write_parameter_kinds(kinds)
        if fields is None:
            yield make_value(written + NO_DATA, kinds=list(kinds))
            return
        if price and not self.settings.quiet:
            written += write_notice(f"it would cost {price}; nothing was charged")
        formats = _spread(asked.result_formats, len(fields))
        columns = [[item.name, item.kind, item.size, item.modifier] for item in fields]
        yield make_value(written + write_description(fields, formats), kinds=list(kinds), fields=columns)

    def _describe_query(
        self, part: TextPart, asked: _Asked
    ) -> tuple[tuple[int, ...], list[ResultField], str]:
        """Return types of parameters, columns and price of a query. Values that are missing are those of types that fit."""
        kinds, tries = asked.kinds, [asked.params]
        if not asked.bound:
            kinds = self._complete_kinds(part, kinds)
            samples = [_make_samples(kinds, text) for text in _TEXT_SAMPLES] if kinds else []
            first = [] if any(asked.kinds) or self._suggest_kinds([part]) else tries
            tries = [*first, *samples]
        empty = self._find_empty(part, tries[0])
        if empty is not None:
            return kinds, _find_fields(Result(empty)), ""
        found = self._describe_first(part.text, tries)
        if found.schema is None:
            raise BindError(
                "the columns depend on the parameters.",
                hint="name the types of the parameters, as $1::INTEGER.",
            )
        described = Result(found.schema.empty_table())
        if _has_written_names(described):
            described = _name_columns(described, _parse_unbound(part.text)[0])
        return kinds, _find_fields(described), found.price

    def _describe_first(self, text: str, tries: Sequence[dict[str, Any] | None]) -> Description:
        """Return the first description that has columns, or else the first; if none fits, raise the error of the first."""
        failed: Error | None = None
        found: Description | None = None
        for params in tries:
            try:
                described = self._session.describe(text, params)
            except Error as error:
                failed = failed or error
                continue
            if described.schema is not None:
                return described
            found = found or described
        if found is None:
            assert failed is not None
            raise failed
        return found

    def _complete_kinds(self, part: TextPart, given: Sequence[int]) -> tuple[int, ...]:
        """Return the types of a part's parameters: the client's, then those of casts and columns, and else those that fit.

        Those of a catalogue query are else texts.
        """
        kinds, hints = list(given), self._suggest_kinds([part])
        for name in list_parameter_names(part.text):
            if not name.isdigit() or not 1 <= int(name) <= MAX_NUMBERED:
                raise BindError(
                    f"the parameter ${name} has no number.", hint="parameters are $1, $2 and so on here."
                )
            kinds += [0] * (int(name) - len(kinds))
        kinds = [kind or hints.get(place, 0) for place, kind in enumerate(kinds, 1)]
        if not part.catalog and not all(kinds):
            with suppress(Error):  # as a format of dates that is no format; its own error follows
                found = self._session.describe(part.text).parameters
                for name, kind in zip(found.names, found.types, strict=True):
                    kinds[int(name) - 1] = kinds[int(name) - 1] or types.find_arrow_type(kind).kind
        return tuple(kind or types.TEXT for kind in kinds)

    # -- parameters ----------------------------------------------------------------------------------------------

    def _read_asked(self, head: Head) -> _Asked:
        """Read what the front passes on."""
        text, kinds = get_field(head, "text", str), tuple(_read_numbers(head, "kinds"))
        given, formats = get_field(head, "values", list, []), _read_numbers(head, "formats")
        if len(given) > MAX_NUMBERED or len(kinds) > MAX_NUMBERED:
            raise BindError(f"a statement may have {MAX_NUMBERED:,} parameters.")
        if len(formats) != len(given) or not all(value is None or isinstance(value, str) for value in given):
            raise WireError("parameters arrived that are none.")
        known = [*kinds, *[0] * (len(given) - len(kinds))]
        described, parts = _read_numbers(head, "described"), self._split(text)
        if any(form and not kind for form, kind in zip(formats, known, strict=False)) and len(parts) == 1:
            # as a description would tell them
            described = described or list(self._complete_kinds(parts[0], kinds))
        hints = self._suggest_kinds(parts) if given and not all(known) else {}
        values = []
        for place, (value, form) in enumerate(zip(given, formats, strict=True)):
            kind = known[place]
            if not kind and form:
                kind = described[place] if place < len(described) else 0
            data = None if value is None else base64.b64decode(value)
            if not kind and not form:  # other texts may be compared as they are
                hint, told = hints.get(place + 1, 0), described[place] if place < len(described) else 0
                kind = hint if types.needs_type(hint, data) else told * (not hint and told in _NUMBERS)
            values.append(read_parameter(place + 1, kind, form, data))
        fields = (
            None if head.get("fields") is None else tuple(map(_read_field, get_field(head, "fields", list)))
        )
        shown = tuple(_read_numbers(head, "result_formats"))
        return _Asked(text, kinds, tuple(values), shown, fields, bool(given), tuple(parts))

    def _suggest_kinds(self, parts: Sequence[TextPart]) -> dict[int, int]:
        """Return the types of a text's parameters by number, as far as they follow from their place."""
        found: dict[int, int] = {}
        for part in parts:
            if "$" in part.text:
                listed = suggest_types(part.text, COLUMN_KINDS if part.catalog else self._list_columns())
                found |= {number: types.find_sql_type(kind, 0).kind for number, kind in listed.items()}
        return {number: kind for number, kind in found.items() if kind in _SAMPLES}

    def _list_columns(self) -> dict[str, str]:
        """Return the types of all tables' columns by folded name; those with two types have an empty one."""
        columns: dict[str, str] = {}
        for table in (*self._session.policy.tables, *self._session.relations):
            for name, kind in self._session.columns(table).items():
                columns[name.lower()] = kind if columns.get(name.lower(), kind) == kind else ""
        return columns

    def _split(self, text: str) -> list[TextPart]:
        """Return the parts of a client's text."""
        tables = {name.lower() for name in (*self._session.policy.tables, *self._session.relations)}
        return split_parts(text, tables, self._database)


def _read_numbers(head: Head, name: str) -> list[int]:
    found = get_field(head, name, list, [])
    if not all(type(number) is int for number in found):
        raise WireError("parameters arrived that are none.")
    return found


def _read_field(item: Any) -> ResultField:
    if not isinstance(item, list) or len(item) != 4 or not isinstance(item[0], str):
        raise WireError("columns arrived that are none.")
    return ResultField(item[0], *(int(number) for number in item[1:]))


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Drop the places of errors in a prepared statement, which aren't in the client's text."""
    try:
        yield
    except Error as error:
        error.span = None
        raise


def _find_catalog_fields(result: Result) -> list[ResultField]:
    """Return the columns of a catalogue query; lists of numbers are of ``oid`` there, and drivers rely on it."""
    numbers, oids = types.ARRAYS[types.INT8], types.ARRAYS[types.OID]
    return [replace(item, kind=oids) if item.kind == numbers else item for item in _find_fields(result)]


def _parse_unbound(text: str) -> list[Statement]:
    """Return the statements of a text, with NULL for each parameter."""
    return parse(text, dict.fromkeys(list_parameter_names(text)) or None)


def _has_written_names(result: Result) -> bool:
    """Return whether a column may be named after its expression, as ``count_star()``."""
    return not all(name.isidentifier() for name in result.columns)


def _name_columns(result: Result, statement: Statement) -> Result:
    """Return the rows with columns named as PostgreSQL names them, unless later statements know them by their names."""
    names = list_output_names(statement.tree)
    if statement.keep or len(names) != len(result.columns):
        return result
    return Result(result.table.rename_columns(names))


def _find_fields(result: Result) -> list[ResultField]:
    kinds = [types.find_arrow_type(kind) for kind in result.table.schema.types]
    return [kind.name_field(name) for name, kind in zip(result.columns, kinds, strict=True)]


def _spread(formats: Sequence[int], count: int) -> list[int]:
    """Return a format for each column."""
    try:
        return spread_formats(formats, count)
    except ProtocolError as error:
        raise BindError(str(error)) from None


def _encode_rows(
    result: Result, fields: Sequence[ResultField], formats: Sequence[int], iso_intervals: bool
) -> Iterator[tuple[bytes | None, ...]]:
    """Return the rows with their values as bytes."""
    pairs = zip(fields, formats, strict=True)
    encoders = [types.find_encoder(item.kind, form, iso_intervals) for item, form in pairs]
    written: list[list[bytes | None]] = []
    for column, encode in zip(result.table.columns, encoders, strict=True):
        written.append([None if value is None else encode(value) for value in types.read_values(column)])
    return zip(*written, strict=True)


def _send_pages(part: str, pieces: Iterable[bytes]) -> Iterator[Message]:
    page = bytearray()
    for piece in pieces:
        page += piece
        if len(page) > PAGE_BYTES:
            yield make_value(bytes(page), part=part)
            page.clear()
    if page:
        yield make_value(bytes(page), part=part)


def _read_layout(words: Sequence[str]) -> tuple[str, bool]:
    """Return the format of a COPY and whether a line has the names; BindError if an option isn't supported."""
    named = [word for word in words if word not in ("(", ")", ",", "WITH", "FORMAT", "TRUE", "ON", "1")]
    forms = [word for word in named if word in ("TEXT", "CSV", "BINARY")]
    if set(named) - {"TEXT", "CSV", "BINARY", "HEADER"} or len(forms) > 1:
        hint = "COPY (SELECT ...) TO STDOUT WITH (FORMAT csv, HEADER)"
        raise BindError("COPY has the options FORMAT and HEADER only.", hint=hint)
    return (forms or ["TEXT"])[0], "HEADER" in named


def _read_fetch(words: Sequence[str]) -> tuple[str, int | None]:
    """Return the cursor and the most rows (None: all) of ``FETCH FORWARD 10 FROM name``; else BindError."""
    *how, name = words or ("",)
    named = [word.upper() for word in how if word.upper() not in ("FORWARD", "NEXT", "FROM", "IN")]
    if named == ["ALL"]:
        return name, None
    if len(named) > 1 or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in named):
        raise BindError(
            "cursors go forward only.", hint="FETCH FORWARD 100 FROM name, or FETCH ALL FROM name"
        )
    return name, int(named[0]) if named else 1


def _say_errors(result: Result) -> list[str]:
    """Return a line with the widest interval of each column; empty without intervals of numbers."""
    said = []
    for name, (low, high) in result.ends.items():
        half = pc.max(pc.subtract(high, low)).as_py() if pa.types.is_floating(low.type) else None
        if half and math.isfinite(half):
            step = 10.0 ** (math.floor(math.log10(half / 2)) - 1)
            said.append(f"{name} ± {math.ceil(half / 2 / step) * step:.10g}")
    level = f"{result.confidence * 100:g}% interval, at most: "
    return [f"{level}{', '.join(said)} (SET intervals = 'columns' has each)"] if said else []


_NUMBERS = frozenset(
    {types.INT2, types.INT4, types.INT8, types.FLOAT4, types.FLOAT8, types.NUMERIC, types.OID}
)
_SAMPLES: dict[int, Any] = {
    types.TEXT: "1", types.BOOL: True, types.DATE: datetime.date(2000, 1, 1), types.TIMESTAMP: datetime.datetime(2000, 1, 1),
    types.TIMESTAMPTZ: datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
    types.TIME: datetime.time(), types.INTERVAL: datetime.timedelta(1),
    types.BYTEA: b"", types.UUID: uuid.UUID(int=0), **dict.fromkeys(_NUMBERS, 1),
}  # fmt: skip
_SAMPLES |= {types.ARRAYS[kind]: [value] for kind, value in _SAMPLES.items()}
"""A value of each type that is described."""


_TEXT_SAMPLES = ("1", "day", "YYYY")
"""Texts that are tried in a description: one that can be cast to a number, a unit of time, and a format of dates."""


def _make_samples(kinds: Sequence[int], text: str) -> dict[str, Any]:
    """Return stand-ins for the values of parameters of these types: ``text`` for texts, and different numbers."""
    samples: dict[str, Any] = {}
    for place, kind in enumerate(kinds, 1):
        value = text if kind == types.TEXT else place if kind in _NUMBERS else _sample(kind)
        samples[str(place)] = StandIn(value)
    return samples


def _sample(kind: int) -> Any:
    return _SAMPLES.get(kind, ["1"] if kind in types.ARRAYS.values() else "1")
