"""The command ``dpsql serve``, for the data owner."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpsql.cli.commands import add_command, add_policy, require_policy
from dpsql.engine import is_spark_address
from dpsql.errors import ServerError

DEFAULT_LISTEN = "127.0.0.1:31337"


def add_serve_command(commands: Any) -> None:
    """Add the command to those of the parser."""
    serve = add_command(
        commands, "serve", _serve, "answer analysts over a socket or the network",
        "It prints one line, listening on ..., when it is ready. Analysts need a token: dpsql analyst add NAME.",
        ("dpsql serve --policy policy.toml", "dpsql serve --policy policy.toml --listen unix:/run/dpsql/dpsql.sock"),
    )  # fmt: skip
    add_policy(
        serve, "the policy file (repeatable; its name without the ending is the catalog)", several=True
    )
    serve.add_argument(
        "--database",
        action="append",
        metavar="FILE",
        help="a DuckDB database; default: the policy's sources (one for each policy, in their order)",
    )
    serve.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        action="append",
        help="the ledger; default: in the folder of the policy (one for each, in their order)",
    )
    serve.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="PLACE",
        help=f"unix:/path of a socket, or HOST:PORT; port 0 takes a free one; default {DEFAULT_LISTEN}",
    )
    serve.add_argument(
        "--pg",
        metavar="HOST:PORT",
        help="also speak PostgreSQL's protocol there, to psql and other clients; port 0 takes a free one",
    )
    serve.add_argument("--tls-cert", type=Path, metavar="FILE", help="the server's certificate, PEM")
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    serve.add_argument(
        "--tls-client-ca",
        type=Path,
        metavar="FILE",
        help="require a client certificate of this authority; its CN is the analyst",
    )
    serve.add_argument(
        "--console",
        metavar="PLACE",
        help="show the owner a page there: 127.0.0.1:8080, or unix:/path; the link to it is printed",
    )


def _serve(given: argparse.Namespace) -> int:
    from dpsql.ledger.state_files import place_ledger
    from dpsql.server.serve import run_server
    from dpsql.server.served import ServedFiles

    if (given.tls_cert is None) != (given.tls_key is None):
        raise ServerError("a certificate needs its key.", hint="--tls-cert cert.pem --tls-key key.pem")
    require_policy(given, "serve")
    policies: list[Path] = given.policy
    databases = _one_for_each("--database", given.database, policies)
    ledgers = _one_for_each("--ledger", given.ledger, policies)
    places = [
        ServedFiles(policy, _find_database(database), ledger or place_ledger(policy))
        for policy, database, ledger in zip(policies, databases, ledgers, strict=True)
    ]
    certificate = None if given.tls_cert is None else (given.tls_cert, given.tls_key)
    return run_server(
        places,
        given.listen,
        certificate,
        client_authority=given.tls_client_ca,
        console=given.console,
        postgres=given.pg,
    )


def _find_database(given: str | None) -> str:
    """Return a database's absolute path, since workers run in the root folder.

    Raises:
        ServerError: it is an address of Spark.
    """
    if given is None or given == ":memory:":
        return ":memory:"
    if is_spark_address(given):
        raise ServerError(
            "a server reads DuckDB's databases, not Spark.", hint="ask Spark with dpsql.connect."
        )
    return str(Path(given).absolute())


def _one_for_each(name: str, given: Sequence[Any] | None, policies: Sequence[Path]) -> Sequence[Any]:
    """Return an argument for each policy; None if it is not given.

    Raises:
        ServerError: its number differs from that of the policies.
    """
    if given is None:
        return [None] * len(policies)
    if len(given) != len(policies):
        raise ServerError(
            f"{name} is given {len(given)} times, and --policy {len(policies)} times.",
            hint=f"give {name} once for each policy, in their order.",
        )
    return given
