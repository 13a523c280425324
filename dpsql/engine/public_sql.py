"""The SQL allowed over releases and public tables: listed functions, and nothing that reveals the machine.

The list of functions is closed, so that none can reveal the machine (settings, versions, catalogs, files), store anything for
later statements, write a log, or wait. The clock and random numbers are allowed, as neither is a secret. The check reads the
engine's text in DuckDB's own parse, so it is independent of how the text was made: functions, relations and every kind of node
must be on a list, and additions of a later version's parser are refused.

*Casts that fail whatever is released*: DuckDB detects them only when a row arrives, after payment. Its bound plan shows the
types of every cast, so that each pair of types is tried once, on a value of ours.

*Long texts.* Memory limits apply to lists and tables, but not to texts: DuckDB makes the texts of a step at once, of any
length, and nothing stops it within a step. So a query that may make long ones runs in a separate process, which can be stopped
and whose memory the system limits. It has a separate :class:`~dpsql.engine.postprocess.Finisher`, over copies of the query's
relations, and runs from its first query until one fails, since starting it takes half a second.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from dpsql.catalogue.row_names import CHANGING_FUNCTIONS, CONCATENATIONS, PUBLIC_FUNCTIONS
from dpsql.engine import sandbox
from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.errors import BindError
from dpsql.interrupts import POLL_SECONDS, is_stop_requested
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Budget, Policy, Table

_VALUES = {
    **dict.fromkeys(
        (f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")), "1"
    ),
    **dict.fromkeys(("INTEGER", "UINTEGER", "DECIMAL", "FLOAT", "DOUBLE"), "1"),
    "BOOLEAN": "true",
    "DATE": "'2000-01-01'",
    "TIME": "'00:00:00'",
    "INTERVAL": "'1 day'",
    "UUID": f"'{'0' * 32}'",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "'2000-01-01 00:00:00'"),
    "TIMESTAMP WITH TIME ZONE": "'2000-01-01 00:00:00+00'",
    "TIME WITH TIME ZONE": "'00:00:00+00'",
}
"""A value of each type, accepted in some form by all existing casts."""
_NO_CAST = "Unimplemented type for cast"
Node = Mapping[str, Any]
"""A node of DuckDB's plans and parse trees."""
_SWALLOWS = ("CASE_EXPR", "OPERATOR_TRY")
"""Kinds of nodes below which an expression may not be evaluated, or may fail silently."""
MAX_TRIED = 1000


class CastCheck:
    """Checks the casts of a connection's queries, and caches the pairs of types tried."""

    def __init__(self) -> None:
        self._tried: dict[str, str] = {}

    def check(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Raise BindError for a query with a cast that always fails. Queries that DuckDB can't describe are not refused."""
        try:
            plan = json.loads(con.execute("SELECT json_serialize_plan(?)", [sql]).fetchall()[0][0])
        except (duckdb.Error, ValueError):
            return
        for given, to, sure in _list_casts(plan):
            source, target = _write_type(given.get("return_type")), _write_type(to)
            constant = (
                given.get("value") if sure and given.get("expression_class") == "BOUND_CONSTANT" else None
            )
            if target is None or target == "VARCHAR":
                continue
            if isinstance(constant, Mapping) and constant.get("type", {}).get("id") == "VARCHAR":
                text = constant.get("value")
                if isinstance(text, str) and self._fails(con, quote_literal(text), target):
                    raise _refusal(f"{quote_literal(text[:40])} is not a valid {target}.", target, "22P02")
            elif source is not None and source != "VARCHAR":
                made = _write_value(given["return_type"])
                if made is not None and self._fails(con, made, target).startswith(_NO_CAST):
                    raise _refusal(f"{source} can't be cast to {target}.", target)

    def _fails(self, con: duckdb.DuckDBPyConnection, value: str, target: str) -> str:
        """Return DuckDB's message if a cast fails; empty otherwise."""
        sql = f"SELECT CAST({value} AS {target})"
        if sql not in self._tried:
            if len(self._tried) >= MAX_TRIED:
                self._tried.clear()
            message = ""
            try:
                con.execute(sql).fetchall()
            except duckdb.ConversionException as error:
                message = str(error).split("\n")[0].removeprefix("Conversion Error: ")
            except duckdb.Error:
                pass  # nothing follows about the cast itself
            self._tried[sql] = message
        return self._tried[sql]


def _refusal(what: str, target: str, sqlstate: str = "") -> BindError:
    hint = "nothing was charged; TRY_CAST gives NULL instead."
    error = BindError(f"above the private part: {what}", hint=hint, sqlstate=sqlstate)
    error.name = target.lower().split("(")[0].split(" ")[0].rstrip("[]")
    return error


def _list_casts(plan: object) -> Iterator[tuple[Node, object, bool]]:
    """Yield each cast's operand, type, and whether it is certainly evaluated if there is a row; TRY_CAST is excluded."""
    waiting = deque([(plan, True)])
    while waiting:
        node, sure = waiting.popleft()
        if isinstance(node, list):
            waiting.extend((item, sure) for item in node)
        if not isinstance(node, dict):
            continue
        kind = node.get("expression_class")
        if kind == "BOUND_CAST":  # DuckDB 1.5
            if not node.get("try_cast"):
                yield node["child"], node.get("return_type"), sure
        elif node.get("type") == "OPERATOR_CAST" and not (node.get("function_data") or {}).get("try_cast"):
            yield node["children"][0], node.get("return_type"), sure
        sure = sure and node.get("type") not in _SWALLOWS and kind != "BOUND_CONJUNCTION"
        waiting.extend((value, sure) for value in node.values())


def _write_type(kind: object) -> str | None:
    """Return a plan's type in SQL; None if unknown here."""
    if not isinstance(kind, Mapping):
        return None
    name, info = kind.get("id"), kind.get("type_info") or {}
    if name == "DECIMAL":
        return f"DECIMAL({info.get('width')}, {info.get('scale')})"
    if name == "LIST":
        inner = _write_type(info.get("child_type"))
        return None if inner is None else f"{inner}[]"
    if name == "STRUCT":
        fields = [(item["first"], _write_type(item["second"])) for item in info.get("child_types", [])]
        listed = ", ".join(f"{quote_identifier(label)} {inner}" for label, inner in fields)
        return None if not fields or any(inner is None for _, inner in fields) else f"STRUCT({listed})"
    return str(name) if name in _VALUES or name == "VARCHAR" else None


def _write_value(kind: Node) -> str | None:
    """Return a value of a type, as a cast of ours; None if unknown here."""
    name, info = kind.get("id"), kind.get("type_info") or {}
    if name == "LIST":
        inner = _write_value(info.get("child_type") or {})
        return None if inner is None else f"[{inner}]"
    if name == "STRUCT":
        fields = [(item["first"], _write_value(item["second"])) for item in info.get("child_types", [])]
        listed = ", ".join(f"{quote_identifier(label)}: {inner}" for label, inner in fields)
        return None if not fields or any(inner is None for _, inner in fields) else f"{{{listed}}}"
    made = _VALUES.get(str(name))
    return None if made is None else f"CAST({made} AS {_write_type(kind)})"


MAX_BINDING_SECONDS = 6
"""The most seconds for binding such a query."""
MAX_PROCESS_MEMORY = 640 << 20
"""The most bytes that the process may allocate after its start, far more than its answers."""
_TOO_LARGE = f"its texts need more memory than {MAX_PROCESS_MEMORY >> 20} MiB."
_HINT = "ask for shorter texts."
_STARTUP_SECONDS = 60
_WATCH_SECONDS = 0.02
_HEADER = struct.Struct(">QQ")
_CODE = """
from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_sql import serve
serve(Finisher)
"""


@dataclass(frozen=True)
class Sent:
    """A query for the process, with copies of its relations, or their columns alone for binding."""

    which: str
    sql: str
    relations: Mapping[str, object]
    public: Mapping[str, tuple[Sequence[tuple[str, str]], pa.Table | None]]
    most: int | None = None


class PublicProcess:
    """A process that binds and runs public SQL, started lazily."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, sent: Sent, seconds: float) -> tuple[dict[str, Any], pa.Table | None]:
        """Return a query's columns and rows; BindError if it failed or reached a limit, KeyboardInterrupt if stopped."""
        process = self._process or self._start()
        try:
            end = time.monotonic() + seconds
            data = pickle.dumps(sent)
            writer = threading.Thread(target=_write, args=(process, data), daemon=True)
            writer.start()
            said, size = _HEADER.unpack(self._read(_HEADER.size, end))
            answer = json.loads(self._read(said, end))
            rows = self._read(size, end)
        except TimeoutError:
            self.close()
            what = f"it takes longer than {seconds:g} seconds."
            raise BindError(f"above the private part: {what}", hint=_HINT) from None
        except EOFError:
            self.close()
            raise BindError(f"above the private part: {_TOO_LARGE}", hint=_HINT) from None
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            self.close()
            error = BindError(answer["error"], hint=answer["hint"])
            error.name = answer["name"]
            raise error
        return answer, pa.ipc.open_stream(rows).read_all() if size else None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "MALLOC_ARENA_MAX": "2",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        try:
            process = self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
            self._read(1, time.monotonic() + _STARTUP_SECONDS)
        except (EOFError, OSError, TypeError):  # including TimeoutError
            self.close()
            raise BindError("above the private part: no process for long texts can be started.") from None
        except BaseException:
            self.close()
            raise
        return process

    def _read(self, size: int, end: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        source, found = self._process.stdout.fileno(), bytearray()
        while len(found) < size:
            if is_stop_requested():
                raise KeyboardInterrupt
            if time.monotonic() > end:
                raise TimeoutError
            if select.select([source], [], [], POLL_SECONDS)[0]:
                piece = os.read(source, min(1 << 20, size - len(found)))
                if not piece:
                    raise EOFError
                found += piece
        return bytes(found)

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it ended: reading its answer shows that
        assert process.stdin is not None
        process.stdin.write(struct.pack(">Q", len(data)) + data)
        process.stdin.flush()


# -- in the process ----------------------------------------------------------------------------------------------------


def _bound_memory() -> None:
    """Limit the process's memory, and end it if the system doesn't enforce the limit."""
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale

    def watch() -> None:
        while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale < base + MAX_PROCESS_MEMORY:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MAX_PROCESS_MEMORY,) * 2)


def serve(make: Callable[..., Any]) -> None:
    """Answer queries with a finisher from ``make``, until the pipe is closed."""
    source, sink = os.dup(0), os.dup(1)
    with contextlib.closing(make(Copies({}), Policy(Budget(Fraction(1))), apart=False)) as finisher:
        finisher.finish("SELECT 1", {})  # loads what every query needs
    _bound_memory()
    os.write(sink, b"+")
    with open(source, "rb") as reader, open(sink, "wb") as writer:
        while head := reader.read(8):
            sent = pickle.loads(reader.read(struct.unpack(">Q", head)[0]))
            tables = {name: Table(name, public=True) for name in sent.public}
            finisher = make(Copies(sent.public), Policy(Budget(Fraction(1)), tables), apart=False)
            with contextlib.closing(finisher):
                said, rows = _answer(finisher, sent)
            writer.write(_HEADER.pack(len(said), len(rows)) + said)
            writer.write(rows)
            writer.flush()


class Copies:
    """The public tables sent with a query."""

    def __init__(self, public: Mapping[str, tuple[Sequence[tuple[str, str]], pa.Table | None]]) -> None:
        self._public = public

    def schema(self, table: Table) -> dict[str, str]:
        """Return names and types of a table's columns."""
        return dict(self._public[table.name][0])

    def public(self, table: Table) -> pa.Table:
        """Return a table's rows."""
        return self._public[table.name][1]

    def orders(self, table: Table) -> dict[str, tuple[str, ...]]:
        """Return none: rows that were sent have their labels in order."""
        return {}


def _answer(finisher: Any, sent: Sent) -> tuple[bytes, bytes]:
    for name, (columns, rows) in sent.public.items():
        if rows is None:
            finisher.hold(name, columns)
    ask: dict[str, Callable[[], Any]] = {
        "describe": lambda: finisher.describe(sent.sql, sent.relations, tuple(sent.public)),
        "running": lambda: finisher.finish(sent.sql, sent.relations, tuple(sent.public), sent.most),
        "lending": lambda: finisher.lend(sent.sql, sent.relations, tuple(sent.public)),
    }
    try:
        found = ask[sent.which]()
    except BindError as error:
        return json.dumps({"error": error.message, "hint": error.hint, "name": error.name}).encode(), b""
    except BaseException:
        what = f"above the private part: {_TOO_LARGE}"
        return json.dumps({"error": what, "hint": _HINT, "name": None}).encode(), b""
    if sent.which == "describe":
        return json.dumps({"columns": found}).encode(), b""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, found.schema) as stream:
        stream.write_table(found)
    return b"{}", out.getvalue().to_pybytes()


_JOINED_ROWS = frozenset(("string_agg", "listagg", "group_concat"))
_NESTING = (
    "list_value list_pack array_value struct_pack row map union_value list array_agg map_from_entries struct_insert "
    "list_zip array_zip list_append list_prepend array_append array_prepend array_push_back array_push_front"
)
_NESTED = frozenset(_NESTING.split())
"""Functions whose nested values double their quotes each time they become texts."""
_GROWING = (
    "aggregate array_aggr array_aggregate array_reduce array_to_json array_to_string "
    "array_to_string_comma_default bar base64 bin bitstring bitstring_agg format from_json from_json_strict hex "
    "json json_array json_group_array json_group_object json_group_structure json_merge_patch json_object "
    "json_pretty json_quote json_structure json_transform json_transform_strict list_aggr list_aggregate "
    "list_reduce list_string_agg lpad overlay path_join printf reduce regexp_escape regexp_replace repeat replace "
    "row_to_json rpad to_base to_base64 to_binary to_hex to_json translate url_encode"
)
GROWING_FUNCTIONS = frozenset(_GROWING.split())
"""Functions whose texts may be much longer than their arguments."""
MAX_DOUBLINGS = 6
MAX_LITERAL_GROWTH = 1 << 15
"""The most characters of a query's literals, after these doublings: two thousand rows of them are made at once."""

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
"""Every function allowed in FROM."""

_NAMES_OF_CALLS = """
current_catalog current_database current_role current_schema current_user session_user user current_query
current_setting current_connection_id
"""
SESSION_NAMES = frozenset(_NAMES_OF_CALLS.split())
"""Names without parentheses that DuckDB reads as calls, unless a column has that name."""


_EXPRESSION_CLASSES = """
BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR
POSITIONAL_REFERENCE STAR SUBQUERY WINDOW TYPE
"""
_EXPRESSIONS = frozenset(_EXPRESSION_CLASSES.split())
_REFUSED_RELATIONS = {"SHOW_REF": "a description of tables"}
_RELATION_TYPES = """
BASE_TABLE CTE EMPTY EXPRESSION_LIST JOIN PIVOT SUBQUERY TABLE_FUNCTION CTE_NODE RECURSIVE_CTE_NODE
SELECT_NODE SET_OPERATION_NODE
"""
_RELATIONS = frozenset(_RELATION_TYPES.split())
_MODIFIER_TYPES = """
DISTINCT_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER ORDER_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING
INVALID
"""
_MODIFIERS = frozenset(_MODIFIER_TYPES.split())


class PublicQuery(NamedTuple):
    """A checked query: whether it may make long texts, and whether equal relations always give equal rows."""

    grows: bool
    repeats: bool


def check_public(sql: str, relations: Iterable[str], columns: Iterable[str]) -> PublicQuery:
    """Raise BindError for SQL that does more than compute from these relations, or that DuckDB can't parse."""
    tree = json.loads(sandbox.parse_to_json(sql))
    if tree.get("error", True) or len(tree["statements"]) != 1:
        message = str(tree.get("error_message", "this is not one query"))[:200]
        hint = "dpsql only answers questions: write a query."
        raise BindError(f"above the private part: {message}", hint=hint)
    nodes = list(_walk(tree))
    named = {name.lower() for name in (*relations, *_list_with_names(nodes))}
    written = {name.lower() for name in (*columns, *_list_aliases(nodes))}
    for node in nodes:
        if "class" in node:
            _check_expression(node, written)
        elif "type" in node:
            _check_relation(node, named)
    return PublicQuery(_may_grow(nodes), not any(map(_may_change, nodes)))


def _may_change(node: Node) -> bool:
    """Return whether a node's value depends on chance or the clock."""
    names = [node["function_name"]] if "function_name" in node else node.get("column_names") or ()
    return bool(node.get("sample")) or not CHANGING_FUNCTIONS.isdisjoint(str(name).lower() for name in names)


def _may_grow(nodes: Sequence[Node]) -> bool:
    """Return whether a query may make texts that are much longer than its inputs and literals.

    A concatenation adds a literal, or doubles its input; so do casts of nested values. Aggregation of rows into one
    text is limited only by memory, and recursion repeats its content.
    """
    calls = [node for node in nodes if node.get("class") in ("FUNCTION", "WINDOW")]
    names = [str(node["function_name"]).lower() for node in calls]
    if not GROWING_FUNCTIONS.isdisjoint(names):
        return True
    joined = [node for node, name in zip(calls, names, strict=True) if name in CONCATENATIONS]
    repeated = any(
        node.get("class") == "LAMBDA" or node.get("type") == "RECURSIVE_CTE_NODE" for node in nodes
    )
    casts = any(node.get("class") == "CAST" for node in nodes)
    nested = sum(name in _NESTED for name in names) if casts or joined else 0
    if not joined and not nested:
        return False
    doublings = nested + sum(max(0, _count_variable(node) - 1) for node in joined)
    if (repeated or not _JOINED_ROWS.isdisjoint(names)) and doublings:
        return True
    quoted = sum(len(_quoted_text(node)) for node in nodes)
    return doublings > MAX_DOUBLINGS or quoted << doublings > MAX_LITERAL_GROWTH


def _count_variable(call: Node) -> int:
    """Return the number of non-literal arguments of a call, which versions of DuckDB write in two ways."""
    given = call.get("children")
    items = [item["expression"] for item in call["arguments"]] if given is None else given
    return sum(item.get("class") != "CONSTANT" for item in items)


def _quoted_text(node: Node) -> str:
    """Return the text of a literal; empty for any other node."""
    if node.get("class") != "CONSTANT":
        return ""
    text = (node.get("literal") or {}).get("text") or (node.get("value") or {}).get("value")
    return text if isinstance(text, str) else ""


def _make_refusal(name: str) -> BindError:
    if name.startswith("dpsql__"):  # a call with named arguments
        written = name.removeprefix("dpsql__")
        error = BindError(
            f"{written} takes no named arguments above the private part.", hint="leave them out."
        )
        error.name = written
        return error
    near = difflib.get_close_matches(name, PUBLIC_FUNCTIONS, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]}?" if near else "only functions that compute from their arguments may."
    error = BindError(f"{name} is not a function that may be called above the private part.", hint=hint)
    error.name = name
    return error


def _walk(tree: object) -> Iterator[Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            # A constant's value is data: nothing in it is a node, whatever it looks like.
            constant = node.get("class") == "CONSTANT"
            waiting.extend(value for key, value in node.items() if not constant or key != "value")
        elif isinstance(node, list):
            waiting.extend(node)


def _check_expression(node: Node, written: set[str]) -> None:
    kind = node["class"]
    if kind not in _EXPRESSIONS:
        raise BindError(f"{str(kind).lower().replace('_', ' ')} isn't supported above the private part.")
    if kind in ("FUNCTION", "WINDOW"):
        name = str(node["function_name"]).lower()
        if name not in PUBLIC_FUNCTIONS:
            raise _make_refusal(name)
    if kind == "COLUMN_REF":
        names = node["column_names"]
        if len(names) == 1 and names[0].lower() in SESSION_NAMES and names[0].lower() not in written:
            raise _make_refusal(names[0].lower())


def _check_relation(node: Node, named: set[str]) -> None:
    kind = node["type"]
    if not isinstance(kind, str) or kind.endswith("_TYPE_INFO") or "id" in node:
        return  # the type of a cast
    if kind not in _RELATIONS and kind not in _MODIFIERS:
        what = _REFUSED_RELATIONS.get(kind, kind.lower().replace("_", " "))
        hint = "SHOW TABLES lists the tables, %dpsql columns their columns."
        raise BindError(f"{what} isn't supported above the private part.", hint=hint)
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"]).lower()
        if name not in TABLE_FUNCTIONS:
            raise _make_refusal(name)
    if kind == "BASE_TABLE":
        name = str(node["table_name"])
        if node["schema_name"] or node["catalog_name"] or name.lower() not in named:
            hint = "SHOW TABLES lists the tables."
            raise BindError(f"{name} can't be read above the private part.", hint=hint)


def _list_with_names(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node.get("map"), list):
            yield from (str(item["key"]) for item in node["map"] if isinstance(item, dict) and "key" in item)
        if node.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
            yield str(node.get("cte_name", ""))


def _list_aliases(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield all column names that the query defines."""
    for node in nodes:
        if isinstance(node.get("alias"), str):
            yield node["alias"]
        for key in ("column_name_alias", "aliases"):
            if isinstance(node.get(key), list):
                yield from (name for name in node[key] if isinstance(name, str))
