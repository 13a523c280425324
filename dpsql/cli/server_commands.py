"""Commands for the data owner about a server and its analysts. They stand apart from those that work on files alone."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.cli.ask_commands import (
    DEFAULT_LISTEN,
    add_actions,
    add_command,
    add_file,
    add_policy,
    require_policy,
)
from dpsql.engine import is_spark_address
from dpsql.errors import PolicyError, ServerError, did_you_mean

if TYPE_CHECKING:
    from dpsql.cli.ask_commands import Commands
    from dpsql.policy.model import Policy
    from dpsql.server.analyst_tokens import TokenFile


# -- the server


def add_serve_command(commands: Commands) -> None:
    """Add the command to those of the parser."""
    serve = add_command(
        commands,
        "serve",
        _serve,
        "answer analysts over a socket or the network",
        "It prints one line, listening on ..., when it is ready. Analysts need a token: dpsql analyst add NAME.",
        (
            "dpsql serve --policy policy.toml",
            "dpsql serve --policy policy.toml --listen unix:/run/dpsql/dpsql.sock",
        ),
    )
    add_policy(
        serve, "the policy file (repeatable; its name without the ending is the catalog)", several=True
    )
    serve.add_argument(
        "--database",
        action="append",
        metavar="FILE",
        help="a DuckDB database; default: the policy's sources (one for each policy, in their order)",
    )
    add_file(
        serve,
        "--ledger",
        "the ledger; default: in the folder of the policy (one for each, in their order)",
        action="append",
    )
    serve.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="PLACE",
        help=f"unix:/path of a socket, or HOST:PORT; port 0 takes a free one; default {DEFAULT_LISTEN}",
    )
    serve.add_argument(
        "--pg",
        metavar="PLACE",
        help="also speak PostgreSQL's protocol there, to psql and other clients: HOST:PORT, or unix:/folder",
    )
    add_file(serve, "--tls-cert", "the server's certificate, PEM")
    add_file(serve, "--tls-key", "its key, PEM")
    add_file(
        serve, "--tls-client-ca", "require a client certificate of this authority; its CN is the analyst"
    )
    serve.add_argument(
        "--console",
        metavar="PLACE",
        help="show the owner a page there: 127.0.0.1:8080, or unix:/path; the link to it is printed",
    )
    serve.add_argument(
        "--metrics",
        metavar="PLACE",
        help="serve /metrics to Prometheus, and /healthz: 127.0.0.1:9464, or unix:/path",
    )
    add_file(serve, "--metrics-token", "the token that a scrape of a port sends (Authorization: Bearer)")
    serve.add_argument(
        "--alert",
        type=Path,
        metavar="PROGRAM",
        help="run this program for a low share, a pause and other alerts; the log's line is its input",
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
        alert=given.alert,
        metrics=given.metrics,
        metrics_token=given.metrics_token,
    )


def _find_database(given: str | None) -> str:
    """Return a database's absolute path, since workers run in the root folder."""
    if given is None or given == ":memory:":
        return ":memory:"
    if is_spark_address(given):
        raise ServerError(
            "a server reads DuckDB's databases, not Spark.", hint="ask Spark with dpsql.connect."
        )
    return str(Path(given).absolute())


def _one_for_each(name: str, given: Sequence[object] | None, policies: Sequence[Path]) -> Sequence[Any]:
    """Return an argument for each policy; None if it is not given."""
    if given is None:
        return [None] * len(policies)
    if len(given) != len(policies):
        raise ServerError(
            f"{name} is given {len(given)} times, and --policy {len(policies)} times.",
            hint=f"give {name} once for each policy, in their order.",
        )
    return given


# -- the analysts of a server: tokens and pauses

USUAL_DAYS = 90
"""The days for which a new token is valid by default."""
_NO_REASON, _LONGEST_REASON = "paused by the owner", 200


def add_analyst_commands(commands: Commands) -> None:
    """Add the commands to those of the parser."""
    analyst = add_command(
        commands,
        "analyst",
        None,
        "choose the analysts of a server: make, list and end their tokens",
        examples=(
            "dpsql analyst add ann --policy policy.toml > ann.token",
            "dpsql analyst list --policy policy.toml",
        ),
    )
    actions = add_actions(analyst)
    for name, run, help in (
        ("add", _add, "make an analyst's token, which is printed once"),
        ("list", _list, "list analysts with a token, its expiry, and pauses"),
        ("rotate", _rotate, "replace an analyst's token; the old one ends at once"),
        ("remove", _remove, "end an analyst's token and sessions"),
        ("pause", _pause, "refuse an analyst's statements until the owner resumes"),
        ("resume", _resume, "accept a paused analyst's statements again"),
        ("end", _end, "end one session of an analyst, or stop one running statement"),
    ):
        whom = {"list": "", "end": "ann --session 1a2b3c4d "}.get(name, "ann ")
        example = f"dpsql analyst {name} {whom}--policy policy.toml"
        command = add_command(actions, name, run, help, examples=(example,))
        if name != "list":
            command.add_argument("name", metavar="NAME", help="as in [analysts.NAME] of the policy")
        add_policy(command, "the policy file, with the tokens in its folder")
        if name in ("add", "rotate"):
            usual = str(USUAL_DAYS) if name == "add" else "as long as the old one did"
            command.add_argument(
                "--days", metavar="N", type=int, help=f"how long the token holds; default {usual}"
            )
        if name == "end":
            what = command.add_mutually_exclusive_group(required=True)
            what.add_argument("--session", metavar="NAME", help="its name in the log and on the owner's page")
            what.add_argument("--statement", metavar="N", type=int, help="its number in the ledger")
        if name == "pause":
            command.add_argument(
                "--why",
                metavar="TEXT",
                default=_NO_REASON,
                help="the reason, which the list of analysts shows",
            )


def _open(given: argparse.Namespace) -> tuple[Policy, TokenFile]:
    from dpsql.policy.model import Policy

    tokens = _open_tokens(given)
    return Policy.load(given.policy), tokens


def _open_tokens(given: argparse.Namespace) -> TokenFile:
    from dpsql.server.analyst_tokens import TokenFile

    require_policy(given, "analyst list")
    return TokenFile(given.policy)


def _find_name(policy: Policy, name: str, path: Path) -> str:
    """Return an analyst's name as the policy writes it."""
    known = policy.find_analyst(name)
    if known is not None:
        return known
    near = did_you_mean(name, policy.analysts) if policy.analysts else None
    raise PolicyError(
        f"{path.name} has no analyst {name}.",
        hint="\n".join([*([near] if near else []), "add these lines to it:", *_write_lines(policy, name)]),
    )


def _write_lines(policy: Policy, name: str) -> list[str]:
    """Return lines of a policy that give an analyst a share, half of the whole as a start, with their meaning."""
    from dpsql.policy.toml import write_toml

    own = policy.budget.own
    whole = policy.budget.epsilon if own is None else own.amount
    return [
        *write_toml({"analysts": {name: {policy.budget.currency: whole / 2}}}).splitlines(),
        "# half of the whole, as an example: no analyst spends more than the share, all together no more than the whole",
    ]


def _add(given: argparse.Namespace) -> None:
    policy, tokens = _open(given)
    name, days = (
        _find_name(policy, given.name, given.policy),
        USUAL_DAYS if given.days is None else given.days,
    )
    _print_token(tokens.add(name, days), given.name, days)


def _rotate(given: argparse.Namespace) -> None:
    policy, tokens = _open(given)
    name = _find_name(policy, given.name, given.policy)
    days = tokens.find_days(name) if given.days is None else given.days
    _print_token(tokens.rotate(name, days), given.name, days)


def _print_token(token: str, name: str, days: int) -> None:
    _keep_from_others()
    held = f"{days} day" + ("s" if days != 1 else "")
    print(token)
    print(
        f"{name}'s token holds for {held}; it is shown this once, and only a hash of it is kept.",
        file=sys.stderr,
    )


def _list(given: argparse.Namespace) -> None:
    from dpsql.report.tables import Sheet

    policy, tokens = _open(given)
    held = {record.name: record for record in tokens.list()}
    rows = []
    for name in dict.fromkeys([*policy.analysts, *held]):
        record = held.get(name)
        if record is None:
            rows.append((name, "no token", "", ""))
            continue
        state = "expired" if record.has_expired() else "paused" if record.paused else "may ask"
        if name not in policy.analysts:
            state = "not in the policy"
        rows.append((name, state, record.expires[:10], record.paused))
    print(Sheet.of(("analyst", "state", "expires", "why"), rows).text())


def _keep_from_others() -> None:
    """Remove other users' access to the file behind standard output, if any: clients refuse a token that others can read."""
    with suppress(OSError, ValueError):
        mode = os.fstat(sys.stdout.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            os.fchmod(sys.stdout.fileno(), stat.S_IMODE(mode) & ~0o077)


def _remove(given: argparse.Namespace) -> None:
    _open_tokens(given).remove(given.name)
    print(f"{given.name}'s token has ended; a running server ends their sessions.", file=sys.stderr)


def _pause(given: argparse.Namespace) -> None:
    why = " ".join(given.why.split())[:_LONGEST_REASON] or _NO_REASON
    _open_tokens(given).pause(given.name, why)
    sentence = "over every protocol from now on; answers that were paid still arrive at their time."
    print(f"{given.name} is paused, {sentence}", file=sys.stderr)


def _resume(given: argparse.Namespace) -> None:
    why = _open_tokens(given).resume(given.name)
    sentence = (
        f"{given.name} was paused: {why}, and may ask again." if why else f"{given.name} was not paused."
    )
    print(sentence, file=sys.stderr)


def _end(given: argparse.Namespace) -> None:
    if given.session is not None and not re.fullmatch("[0-9a-f]{8}", given.session):
        raise ServerError(
            f"{given.session!r} is no session.", hint="the log and the owner's page name them: 1a2b3c4d."
        )
    what = given.session or f"#{given.statement}"
    _open_tokens(given).end(given.name, what)
    named = f"session {what}" if given.session else f"statement {given.statement}"
    print(f"a running server ends {given.name}'s {named}; its charges stay.", file=sys.stderr)
