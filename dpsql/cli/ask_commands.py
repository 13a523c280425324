"""Commands that ask (demo, sql, explain and refresh), and the help texts and arguments that all commands share."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import BudgetExceeded, Error, ParseError, ServerError

if TYPE_CHECKING:
    from dpsql.session.interface import AnalystSession
    from dpsql.session.result import Result

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    """The commands of a parser; further ones are added to it."""
    Arguments = argparse.ArgumentParser | argparse._MutuallyExclusiveGroup
    """A parser, or a group of arguments that exclude each other."""

Run = Callable[[argparse.Namespace], int | None]
_WIDTH = 100
"""Columns of a description."""


def add_command(
    commands: Commands, name: str, run: Run | None, help: str, about: str = "", examples: tuple[str, ...] = ()
) -> argparse.ArgumentParser:
    """Add a command.

    Args:
        commands: the actions of a parser; it is added to them.
        name: its word.
        run: its function; None for a command with commands of its own, which shows its help.
        help: one line, for the list of commands.
        about: further sentences.
        examples: whole command lines.
    """
    sentence = help[:1].upper() + help[1:] + "."
    description = "\n\n".join(textwrap.fill(part, _WIDTH) for part in (sentence, about) if part)
    shown = "examples:\n" + "\n".join(f"  {line}" for line in examples) if examples else None
    made = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=shown,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=run or (lambda given: made.print_help()))
    return made


def add_actions(command: argparse.ArgumentParser) -> Commands:
    """Return the actions of a command; without one of them the command shows its help."""
    return command.add_subparsers(metavar="ACTION", title="actions")


def add_file(command: Arguments, name: str, help: str, **more: Any) -> None:
    """Add an argument that is a file's path."""
    command.add_argument(name, metavar="FILE", type=Path, help=help, **more)


def add_database(command: argparse.ArgumentParser) -> None:
    """Add ``--database`` for a command that reads data."""
    command.add_argument(
        "--database", metavar="FILE", help="a DuckDB database; default: the sources that the policy names"
    )


def add_policy(
    command: argparse.ArgumentParser, help: str = "the policy file", several: bool = False
) -> None:
    """Add the policy as an argument and as ``--policy``; :func:`take_policy` joins the two."""
    command.add_argument(
        "policy_place", nargs="*" if several else "?", type=Path, metavar="POLICY", help=help
    )
    add_file(command, "--policy", "like POLICY", action="append" if several else "store")


def take_policy(given: argparse.Namespace) -> None:
    """Use a policy that is given as an argument as ``--policy``; ParseError if both are given."""
    place = given.policy_place
    if not place:
        return
    if given.policy:
        raise ParseError(
            "the policy is given twice.",
            hint=f"--policy {given.policy if isinstance(place, Path) else place[0]}",
        )
    given.policy = place


def require_policy(given: argparse.Namespace, words: str) -> None:
    """Check that the policy is given.

    Args:
        given: the arguments.
        words: the command, for the hint.

    Raises:
        ParseError: it is not.
    """
    if not given.policy:
        raise ParseError("the policy is missing.", hint=f"dpsql {words} --policy policy.toml")


def add_place(command: argparse.ArgumentParser) -> None:
    """Add ``--policy`` and ``--ledger``, either of which gives the ledger; a command whose argument is a file takes no policy."""
    if any(action.dest == "file" for action in command._actions):
        add_file(command, "--policy", "the policy in the folder of the ledger")
    else:
        add_policy(command, "the policy in the folder of the ledger")
    add_file(command, "--ledger", "the ledger, if it is elsewhere")


DEFAULT_LISTEN = "127.0.0.1:31337"
FORMATS = ("table", "csv", "json", "arrow")
REFUSED = 3
"""The exit status of a refresh for which the budget is too small."""


def add_answer_commands(commands: Commands) -> None:
    """Add the commands to those of the parser."""
    demo = add_command(
        commands,
        "demo",
        _demo,
        "run cells on real health records, and show their costs",
        "The records are public. A second run is free, since answers are stored.",
        ("dpsql demo", "dpsql demo --serve --pg 127.0.0.1:5432 --console 127.0.0.1:8321"),
    )
    add_file(demo, "--ledger", "the ledger", default=Path("dpsql-demo.ledger"))
    demo.add_argument(
        "--serve", action="store_true", help="serve these records, with a token for one analyst"
    )
    demo.add_argument(
        "--listen", default=DEFAULT_LISTEN, metavar="PLACE", help=f"with --serve; default {DEFAULT_LISTEN}"
    )
    demo.add_argument(
        "--pg",
        metavar="PLACE",
        help="with --serve: HOST:PORT for clients of PostgreSQL's protocol, such as psql",
    )
    demo.add_argument("--console", metavar="PLACE", help="with --serve: HOST:PORT of the owner's page")

    sql = add_command(
        commands,
        "sql",
        _sql,
        "answer SQL; without any, open a prompt",
        "The prompt completes by Tab, takes statements of several lines that end with a semicolon, and shows what each "
        "answer cost. .help lists its commands, Ctrl-C stops a statement, Ctrl-D leaves.",
        (
            "dpsql sql --policy policy.toml",
            'dpsql sql --policy policy.toml "SELECT COUNT(*) AS n FROM visits"',
            "dpsql sql --policy policy.toml --database visits.duckdb --file q.sql --format csv",
            "dpsql sql --server grpc+tls://host:31337 --token-file ann.token",
        ),
    )
    add_session_arguments(sql, servers=True)
    _add_text_arguments(sql)
    sql.add_argument("--format", choices=FORMATS, default="table", help="how rows are written; default table")
    sql.add_argument(
        "--fresh", action="store_true", help="pay for a new draw even if this was answered before"
    )
    sql.add_argument("--no-history", action="store_true", help="keep no history of the prompt")

    explain = add_command(
        commands,
        "explain",
        _explain,
        "show the plan and the cost of SQL; spends nothing",
        "The plan in sentences, the price and the budget left, the expected error, and the exact SQL. No private row "
        "is read.",
        ('dpsql explain --policy policy.toml "SELECT COUNT(*) AS n FROM visits"',),
    )
    add_session_arguments(explain, servers=True)
    _add_text_arguments(explain)
    explain.add_argument("--format", choices=("text", "json"), default="text", help="default text")

    refresh = add_command(
        commands,
        "refresh",
        _refresh,
        "draw releases again, for a timer",
        "All releases, or the named ones, in the order of their creation. Each prints its rows and its cost. "
        "Stored answers cost nothing. The exit status is 0 if all are fresh, whether or not something was new; "
        f"{REFUSED} if the budget is too small for one, 1 after another error. The earlier answer of such a release stays.",
        (
            "dpsql refresh --policy policy.toml",
            "dpsql refresh daily weekly --server grpc+tls://host:31337 --token-file nightly.token",
        ),
    )
    refresh.add_argument("names", nargs="*", metavar="RELEASE", help="default: all")
    add_session_arguments(refresh, servers=True)


def add_session_arguments(command: argparse.ArgumentParser, servers: bool = False) -> None:
    """Add the arguments that open a session (with ``servers``, also on an owner's server), or a ledger."""
    where = command.add_mutually_exclusive_group(required=True)
    add_file(where, "--policy", "the policy file")
    add_database(command)
    add_file(command, "--ledger", "the ledger; default: in the folder of the policy")
    command.add_argument("--analyst", metavar="NAME", help="the analyst, whose share of the budget is used")
    if servers:
        where.add_argument("--server", metavar="URL", help="the address of an owner's server")
        add_file(command, "--token-file", "a file with the token; default: DPSQL_TOKEN")
        add_file(command, "--tls-ca", "the certificate of the owner's authority")
        add_file(command, "--tls-client-cert", "your own certificate, if the server asks for one")
        add_file(command, "--tls-client-key", "its key; default: in the same file")


def _add_text_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "text", nargs="?", metavar="SQL", help="the statements; without it, or -, standard input is read"
    )
    add_file(command, "--file", "read the SQL from a file")
    command.add_argument("--params", metavar="JSON", help="values of $name, as a JSON object")


def _read_text(given: argparse.Namespace) -> str:
    hint = 'dpsql sql "SELECT ..." --policy policy.toml'
    if given.text is not None and given.file is not None:
        raise ParseError("give the SQL, or --file, and not both.", hint=hint)
    if given.text is None and given.file is None:
        piped = sys.stdin is not None and not sys.stdin.isatty()
        text = sys.stdin.read() if piped else ""
        if not text.strip():
            raise ParseError("there is no SQL.", hint=f"{hint}, or --file FILE, or < FILE")
        return text
    if given.file is None:
        if given.text.endswith((".duckdb", ".db", ".sql")) and Path(given.text).exists():
            option = "--file" if given.text.endswith(".sql") else "--database"
            raise ParseError(f"{given.text} is a file, not SQL.", hint=f"{option} {given.text}")
        return sys.stdin.read() if given.text == "-" else str(given.text)
    from dpsql.notebook.guide import read_sql_file

    return read_sql_file(given.file)


def _params(given: argparse.Namespace) -> dict[str, object] | list[object] | None:
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


def _open(given: argparse.Namespace) -> AnalystSession:
    if given.server is not None:
        own = {
            "--database": given.database,
            "--ledger": given.ledger,
            "--analyst": given.analyst,
        }
        named = [name for name, value in own.items() if value]
        if named:
            raise ParseError(
                f"a server decides on {' and '.join(named)}.", hint='dpsql sql --server URL "SELECT ..."'
            )
        from dpsql.client.connect import connect_server

        try:
            return connect_server(
                given.server,
                None,
                given.tls_ca,
                given.token_file,
                tls_client_cert=given.tls_client_cert,
                tls_client_key=given.tls_client_key,
            )
        except ServerError as error:
            raise ServerError(error.message, hint=error.hint and _write_options(error.hint)) from None
    if given.token_file or given.tls_ca or given.tls_client_cert or given.tls_client_key:
        raise ParseError("a token and certificates are for servers.", hint="--server grpc+tls://host:31337")
    from dpsql.client.connect import connect_session

    return connect_session(
        given.database or ":memory:", policy=given.policy, ledger=given.ledger, analyst=given.analyst
    )


def _write_options(hint: str) -> str:
    """Write the arguments that a hint names as options of the command line.

    >>> _write_options('tls_ca="ca.pem" names it. Give it by token=..., a file, or DPSQL_TOKEN.')
    '--tls-ca ca.pem names it. Give it by --token-file FILE or DPSQL_TOKEN.'
    """
    hint = re.sub(r'\b(tls_\w+)="([^"]*)"', lambda found: f"--{found[1].replace('_', '-')} {found[2]}", hint)
    return hint.replace("token=..., a file, or DPSQL_TOKEN", "--token-file FILE or DPSQL_TOKEN")


def _demo(given: argparse.Namespace) -> int | None:
    if given.serve:
        from dpsql.demo.demo import serve_demo

        return serve_demo(Path("dpsql-demo"), given.listen, postgres=given.pg, console=given.console)
    if given.pg or given.console:
        raise ParseError(
            "--pg and --console are for a server.", hint="dpsql demo --serve --pg 127.0.0.1:5432"
        )
    from dpsql.demo.demo import run_demo

    for piece in run_demo(given.ledger):
        print(piece, flush=True)
    return None


def _sql(given: argparse.Namespace) -> None:
    if given.text is None and given.file is None and sys.stdin.isatty() and sys.stdout.isatty():
        from dpsql.notebook.prompt import run_prompt

        params = _params(given)
        with _open(given) as session:
            show = partial(print_result, style=given.format)
            run_prompt(session, show, params, fresh=given.fresh, history=not given.no_history)
        return
    text, params = _read_text(given), _params(given)
    with _open(given) as session:
        for result in session.run(text, params, fresh=given.fresh):
            print_result(result, given.format)


def print_result(result: Result, style: str) -> None:
    """Write a result to standard output; its cost goes to standard error, unless a table shows it.

    Args:
        result: a statement's.
        style: one of `FORMATS`.
    """
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


def to_json(result: Result) -> dict[str, object]:
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


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _refresh(given: argparse.Namespace) -> int:
    from dpsql.engine.sandbox import quote_identifier

    status = 0
    with _open(given) as session:
        for name in given.names or [str(row[0]) for row in session.sql("SHOW RELEASES").fetchall()]:
            try:
                result = session.sql(f"REFRESH RELEASE {quote_identifier(name)}")
            except Error as error:
                print("\n".join([f"{name}: not refreshed", *error.lines()]), file=sys.stderr)
                status = 1 if status == 1 or not isinstance(error, BudgetExceeded) else REFUSED
                continue
            rows = f"{len(result)} row{'' if len(result) == 1 else 's'}"
            print(" · ".join(filter(None, (f"{name}: {rows}", result.cost_line))), flush=True)
    return status


def _explain(given: argparse.Namespace) -> None:
    text, params = _read_text(given), _params(given)
    with _open(given) as session:
        explained = session.explain(text, params)
        print(explained.json() if given.format == "json" else explained)
