"""Commands for the data owner, apart from those of analysts: about the policy, the ledger, a server and its analysts."""

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
    add_database,
    add_file,
    add_place,
    add_policy,
    require_policy,
)
from dpsql.engine import is_spark_address
from dpsql.errors import ParseError, PolicyError, ServerError, did_you_mean
from dpsql.privacy.filters import ACCOUNTANTS

if TYPE_CHECKING:
    from dpsql.cli.ask_commands import Commands
    from dpsql.policy.model import Policy
    from dpsql.server.analyst_tokens import TokenFile


def _add_output(
    command: argparse.ArgumentParser, help: str = "write to this file, which must not exist"
) -> None:
    command.add_argument("-o", "--output", metavar="FILE", type=Path, help=help)


def add_policy_commands(commands: Commands) -> None:
    """Add the commands to those of the parser."""
    policy = add_command(
        commands,
        "policy",
        None,
        "write a policy for data of your own, and check it",
        examples=("dpsql policy init visits.parquet -o policy.toml", "dpsql policy check policy.toml"),
    )
    actions = add_actions(policy)
    init = add_command(
        actions,
        "init",
        _init,
        "write a first policy from names and types alone; no value is read",
        "Facts that only the owner knows become TODO, and guesses are marked: dpsql policy check insists on both.",
        (
            "dpsql policy init visits.parquet -o policy.toml",
            "dpsql policy init visits.csv wards.csv -o policy.toml",
            "dpsql policy init --database visits.duckdb --unit person_id",
        ),
    )
    init.add_argument(
        "source",
        nargs="*",
        metavar="SOURCE",
        help="Parquet, CSV or JSON files, one table each; a glob in quotes is one table; or a DuckDB file",
    )
    init.add_argument("--database", metavar="FILE", help="a DuckDB database, like SOURCE")
    init.add_argument("--unit", metavar="COLUMN", help="the column of the privacy unit, or ROW; else guessed")
    _add_output(init)
    check = add_command(
        actions,
        "check",
        _check,
        "list the declarations of a policy, and the missing ones; shows no rows",
        "The exit status is 1 if something is missing.",
        ("dpsql policy check policy.toml", "dpsql policy check policy.toml --database visits.duckdb --data"),
    )
    add_policy(check)
    add_database(check)
    check.add_argument(
        "--data", dest="rows", action="store_true", help="count rows that do not fit, for the owner's eyes"
    )
    check.add_argument(
        "--write",
        action="store_true",
        help="put the proposed types and formats of text files into the policy; comments and other lines stay",
    )
    taken = add_command(
        actions,
        "import",
        _policy_import,
        "make a policy of SmartNoise's metadata YAML",
        examples=(
            "dpsql policy import metadata.yaml --epsilon 1 --source visits=visits.parquet -o policy.toml",
        ),
    )
    taken.add_argument("metadata", metavar="METADATA", type=Path, help="the YAML file (or JSON)")
    _add_output(taken)
    taken.add_argument("--epsilon", required=True, help="the whole budget, which metadata do not have")
    taken.add_argument("--delta", default="0", help="the whole delta; default 0")
    taken.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="TABLE=FILE",
        help="where a table's data are (repeatable)",
    )


def _init(given: argparse.Namespace) -> None:
    from dpsql.owner.policy_init import init_policy

    if given.source and given.database is not None:
        raise ParseError("the data can't be in two places.", hint=f"--database {given.database}")
    source = given.database if given.database is not None else given.source
    if not source:
        raise ParseError("a policy is made for data.", hint="dpsql policy init visits.parquet -o policy.toml")
    draft = init_policy(source, given.unit, given.output)
    print(str(draft).rstrip() if given.output is None else draft.summary(given.output))


def _check(given: argparse.Namespace) -> int:
    from dpsql.owner.policy_check import check_policy, write_proposals

    require_policy(given, "policy check")
    if not given.policy.exists():
        raise PolicyError(f"there is no policy file {given.policy}.")
    findings = check_policy(given.policy, given.database or ":memory:", given.rows)
    for line in findings.lines():
        print(line)
    if given.write:
        number = write_proposals(given.policy, findings)
        done = f"{number} proposed values written to {given.policy}, marked GUESS: confirm them, then check again."
        print(f"\n{done if number else 'There is nothing to write.'}")
    return 1 if findings.missing else 0


def _policy_import(given: argparse.Namespace) -> None:
    from fractions import Fraction

    from dpsql.owner.policy_init import import_smartnoise, write_new_file

    try:
        text = given.metadata.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise PolicyError(f"the file {given.metadata} can't be read.") from None
    try:
        epsilon, delta = Fraction(given.epsilon), Fraction(given.delta)
    except (ValueError, ZeroDivisionError):
        raise PolicyError("--epsilon and --delta are numbers.", hint="--epsilon 1 --delta 1e-6") from None
    pairs = [item.partition("=") for item in given.source]
    if any(not name or not source for name, _, source in pairs):
        raise PolicyError("--source names a table and a file.", hint="--source visits=visits.parquet")
    made = import_smartnoise(text, epsilon, delta, {name: source for name, _, source in pairs})
    if given.output is None:
        print(made.text(), end="")
        return
    write_new_file(given.output, made.text())
    for note in made.notes:
        print(f"  - {note}")
    print(f"written to {given.output}; read it, then: dpsql policy check {given.output}")


# -- the ledger


def add_ledger_commands(commands: Commands) -> None:
    """Add the commands to those of the parser."""
    report = add_command(
        commands,
        "report",
        _report,
        "write the owner's report: statements, analysts and costs",
        "Sums by day and person, each statement with its charge, refusals, and the promise of the budget.",
        (
            "dpsql report policy.toml",
            "dpsql report policy.toml -o report.html",
            "dpsql report visits.ledger -o all.csv",
        ),
    )
    report.add_argument(
        "place",
        nargs="?",
        type=Path,
        metavar="POLICY",
        help="the policy with the ledger in its folder, or a ledger",
    )
    add_file(report, "--ledger", "the ledger, if it is elsewhere")
    add_file(report, "--policy", "like POLICY")
    report.add_argument(
        "--accountant", choices=tuple(ACCOUNTANTS), help="count the charges under this accountant"
    )
    report.add_argument(
        "--page",
        type=int,
        default=1,
        metavar="N",
        help="which statements: 1, the newest; the sums are of all",
    )
    report.add_argument(
        "--why", type=int, metavar="N", help="explain the charge or the refusal of statement N alone"
    )
    _add_output(report, "write to this file: .html, .csv, .json, else text")

    ledger = add_command(
        commands,
        "ledger",
        None,
        "look after a ledger: verify it, back it up, continue it under new terms",
        examples=(
            "dpsql ledger verify --policy policy.toml",
            "dpsql ledger backup --policy policy.toml visits.backup",
        ),
    )
    deeds = add_actions(ledger)
    adopt = add_command(
        deeds,
        "adopt",
        _adopt,
        "continue a ledger under the present policy; it is logged",
        "A session refuses a policy that grants more, protects other units or is about other data than the ledger, "
        "until the owner runs this. Spent budget stays spent. A server takes the policy when it is reloaded.",
        ("dpsql ledger adopt --policy policy.toml",),
    )
    add_place(adopt)
    add_database(adopt)
    adopt.add_argument("--fresh", action="store_true", help="begin anew if the ledger is gone: a new budget")
    _add_upkeep(deeds)


def _add_upkeep(actions: Commands) -> None:
    """Add the commands of :mod:`dpsql.ledger.upkeep`."""
    verify = add_command(
        actions,
        "verify",
        _verify,
        "look at every row, text, checkpoint and stored answer",
        examples=("dpsql ledger verify --policy policy.toml",),
    )
    backup = add_command(
        actions,
        "backup",
        _backup,
        "copy the ledger while sessions run, and verify the copy",
        examples=("dpsql ledger backup --policy policy.toml visits.backup",),
    )
    add_file(backup, "file", "the copy, which must not exist")
    restore = add_command(
        actions,
        "restore",
        _restore,
        "put a backup in place; later charges are written off",
        examples=(
            "dpsql ledger restore --policy policy.toml visits.backup",
            "dpsql ledger restore --policy policy.toml visits.backup --spent 0.5",
        ),
    )
    add_file(restore, "file", "the backup")
    restore.add_argument("--spent", metavar="EPSILON", help="epsilon charged since, if it can't be read")
    restore.add_argument("--spent-delta", metavar="DELTA", default="0", help="its delta; default 0")
    forget = add_command(
        actions,
        "forget",
        _forget,
        "blank texts and their stored answers; charges stay",
        "Asked again, a forgotten answer is a new one, and charged again.",
        examples=("dpsql ledger forget --policy policy.toml --before 2026-01-31",),
    )
    forget.add_argument("--before", required=True, metavar="DATE", help="a day, as 2026-01-31 (UTC)")
    upgrade = add_command(
        actions,
        "upgrade",
        _upgrade,
        "upgrade an older ledger; a copy is kept in its folder",
        examples=("dpsql ledger upgrade --policy policy.toml",),
    )
    for command in (verify, backup, restore, forget, upgrade):
        add_place(command)


def _find_ledger(place: Path) -> Path:
    """Return the ledger of a path: the policy's default ledger, or the file itself."""
    from dpsql.ledger.state_files import place_ledger

    beside = place_ledger(place)
    return beside if place.suffix == ".toml" or (not place.exists() and beside.exists()) else place


def _report(given: argparse.Namespace) -> None:
    from dpsql.ledger.ledger import Ledger
    from dpsql.report.pages import report_text, write_report

    named = [place for place in (given.place, given.ledger, given.policy) if place is not None]
    if len(named) != 1 and not (given.place is None and given.ledger is not None):
        raise ParseError(
            "give the policy, or its ledger if that is elsewhere.",
            hint="dpsql report policy.toml -o report.html",
        )
    with Ledger.read(given.ledger or _find_ledger(named[0])) as ledger:
        for warning in ledger.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
        if given.why is not None:
            from dpsql.report.data import explain_statement

            print(explain_statement(ledger, given.why))
        elif given.output is None:
            print(report_text(ledger, accountant=given.accountant, page=given.page), end="")
        else:
            where = write_report(ledger, None, given.output, accountant=given.accountant, page=given.page)
            print(f"written to {where}")


def _adopt(given: argparse.Namespace) -> None:
    from dpsql.engine.duckdb import DuckDBEngine
    from dpsql.ledger.ledger import Ledger
    from dpsql.ledger.state_files import is_served, place_ledger
    from dpsql.policy.model import Policy

    if given.policy is None:
        raise ParseError(
            "a ledger goes on under a policy.",
            hint="dpsql ledger adopt --policy policy.toml --ledger visits.ledger",
        )
    policy = Policy.load(given.policy)
    engine = DuckDBEngine(given.database or ":memory:", policy, given.policy.parent)
    try:
        place = given.ledger or place_ledger(given.policy)
        changes = Ledger.adopt(place, policy, engine.dataset, fresh=given.fresh)
    finally:
        engine.close()
    warnings = [text for text in changes if text.startswith("WARNING")]
    print("\n".join(text for text in changes if text not in warnings) or "nothing had to change.")
    for text in warnings:
        print(text, file=sys.stderr)
    if not changes:
        return
    with Ledger.read(place) as ledger:
        print(f"Spent budget stays spent: {ledger.state().sentence}.", file=sys.stderr)
    if is_served(place):
        print(
            "A server has this ledger: it goes on under the old terms until it is reloaded (SIGHUP, or systemctl reload).",
            file=sys.stderr,
        )


def _ledger_of(given: argparse.Namespace) -> Path:
    from dpsql.ledger.state_files import place_ledger

    if given.ledger is None and given.policy is None:
        raise ParseError("give the ledger, or the policy in its folder.", hint="--ledger visits.ledger")
    return Path(given.ledger) if given.ledger is not None else place_ledger(given.policy)


def _verify(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import verify_ledger

    print(verify_ledger(_ledger_of(given)).sentence())


def _backup(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import back_up

    made = back_up(_ledger_of(given), given.file)
    print(f"written to {given.file}; {made.sentence()}")


def _restore(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import restore_ledger
    from dpsql.policy.toml import parse_number

    try:
        spent = None if given.spent is None else (parse_number(given.spent), parse_number(given.spent_delta))
    except ValueError:
        raise ParseError(
            "--spent and --spent-delta are numbers.", hint="--spent 0.5 --spent-delta 1e-7"
        ) from None
    print("\n".join(restore_ledger(_ledger_of(given), given.file, spent)))


def _forget(given: argparse.Namespace) -> None:
    from datetime import UTC, date, datetime

    from dpsql.ledger.upkeep import forget_before

    try:
        before = date.fromisoformat(given.before)
    except ValueError:
        raise ParseError(f"{given.before!r} is not a day.", hint="--before 2026-01-31") from None
    today = datetime.now(UTC).date()
    if before > today:
        raise ParseError(
            f"{given.before} is yet to come: all texts and stored answers would go, also today's.",
            hint=f"--before {today} forgets older texts. Forgotten answers are charged again.",
        )
    print("\n".join(forget_before(_ledger_of(given), before)))


def _upgrade(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import upgrade

    print(upgrade(_ledger_of(given)))


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
