"""Commands that ask: demo, sql and explain."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.cli.serving import DEFAULT_LISTEN
from dpsql.errors import ParseError

if TYPE_CHECKING:
    from dpsql.client.session import RemoteSession
    from dpsql.result import Result
    from dpsql.session import Session

FORMATS = ("table", "csv", "json", "arrow")


def add_answer_commands(commands: Any) -> None:
    """Add the commands to those of the parser."""
    demo = commands.add_parser("demo", help="private answers about real health records")
    demo.add_argument("--ledger", type=Path, default=Path("dpsql-demo.ledger"), help="where charges are kept")
    demo.add_argument(
        "--serve", action="store_true", help="serve these records, with a token for one analyst"
    )
    demo.add_argument(
        "--listen", default=DEFAULT_LISTEN, metavar="PLACE", help=f"with --serve; default {DEFAULT_LISTEN}"
    )
    demo.set_defaults(run=_demo)

    sql = commands.add_parser("sql", help="answer SQL")
    add_session_arguments(sql, servers=True)
    _text_arguments(sql)
    sql.add_argument("--format", choices=FORMATS, default="table")
    sql.add_argument(
        "--fresh", action="store_true", help="pay for a new draw even if this was answered before"
    )
    sql.set_defaults(run=_sql)

    explain = commands.add_parser("explain", help="say what SQL would do and cost; spends nothing")
    add_session_arguments(explain, servers=True)
    _text_arguments(explain)
    explain.add_argument("--format", choices=("text", "json"), default="text")
    explain.set_defaults(run=_explain)


def add_session_arguments(command: argparse.ArgumentParser, servers: bool = False) -> None:
    """Add the arguments that open a session, or the ledger of one.

    Args:
        command: takes them.
        servers: whether the session may be one on an owner's server.
    """
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument("--policy", type=Path, help="the policy file")
    command.add_argument(
        "--database", help="a DuckDB database; default: the policy's sources", default=":memory:"
    )
    command.add_argument("--ledger", type=Path, help="where charges are kept; default: beside the policy")
    command.add_argument("--analyst", help="whose share of the budget is used")
    if servers:
        where.add_argument("--server", metavar="URL", help="the address of an owner's server")
        command.add_argument("--token-file", type=Path, help="a file with the token; default: DPSQL_TOKEN")
        command.add_argument("--tls-ca", type=Path, help="the certificate of the owner's authority")


def _text_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="?", help="the SQL; - reads standard input")
    command.add_argument("--file", type=Path, help="read the SQL from a file")
    command.add_argument("--params", help="values of $name, as a JSON object")


def _text(given: argparse.Namespace) -> str:
    if (given.text is None) == (given.file is None):
        raise ParseError(
            "give the SQL, or --file, and not both.", hint='dpsql sql "SELECT ..." --policy policy.toml'
        )
    if given.file is None:
        return sys.stdin.read() if given.text == "-" else str(given.text)
    try:
        return str(given.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise ParseError(f"the file {given.file} can't be read.") from None


def _params(given: argparse.Namespace) -> dict[str, Any] | list[Any] | None:
    if given.params is None:
        return None
    try:
        params = json.loads(given.params)
    except json.JSONDecodeError:
        params = None
    if not isinstance(params, dict | list):
        raise ParseError(
            "--params takes a JSON object, or a list for ? marks.", hint="""--params '{"city": "Delft"}'"""
        )
    return params


def _open(given: argparse.Namespace) -> Session | RemoteSession:
    if given.server is not None:
        own = {
            "--database": given.database != ":memory:",
            "--ledger": given.ledger,
            "--analyst": given.analyst,
        }
        named = [name for name, value in own.items() if value]
        if named:
            raise ParseError(
                f"a server decides on {' and '.join(named)}.", hint='dpsql sql --server URL "SELECT ..."'
            )
        from dpsql.client.connect import connect_server

        return connect_server(given.server, None, given.tls_ca, given.token_file)
    if given.token_file or given.tls_ca:
        raise ParseError("a token and an authority are for servers.", hint="--server grpc+tls://host:31337")
    from dpsql.session import open_session

    return open_session(given.database, policy=given.policy, ledger=given.ledger, analyst=given.analyst)


def _demo(given: argparse.Namespace) -> int | None:
    if given.serve:
        from dpsql.demo.serving import serve_demo

        return serve_demo(Path("dpsql-demo"), given.listen)
    from dpsql.demo.demo import run_demo

    for piece in run_demo(given.ledger):
        print(piece, flush=True)
    return None


def _sql(given: argparse.Namespace) -> None:
    with _open(given) as session:
        for result in session.run(_text(given), _params(given), fresh=given.fresh):
            _write(result, given.format)


def _write(result: Result, style: str) -> None:
    if style == "table":
        print(result)
        return
    if style == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows(result.fetchall())
    elif style == "json":
        print(json.dumps(to_json(result), ensure_ascii=False))
    else:
        import pyarrow as pa

        with pa.ipc.new_stream(sys.stdout.buffer, result.table.schema) as stream:
            stream.write_table(result.table)
    if result.cost_line:
        print(result.cost_line, file=sys.stderr)


def to_json(result: Result) -> dict[str, Any]:
    """Return a result for JSON: rows as objects, intervals by column, the cost. NaN becomes null."""
    return {
        "rows": [{name: _plain(value) for name, value in row.items()} for row in result.dicts()],
        "intervals": {
            column: [None if pair is None else [_plain(end) for end in pair] for pair in pairs]
            for column, pairs in result.intervals.items()
        },
        "confidence": result.confidence,
        "loss": result.loss,
        "cost": result.cost_line,
        "notes": list(result.notes),
        "statement_id": result.statement_id,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _explain(given: argparse.Namespace) -> None:
    with _open(given) as session:
        explained = session.explain(_text(given), _params(given))
        print(explained.json() if given.format == "json" else explained)
