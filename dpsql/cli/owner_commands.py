"""Commands for the data owner about the policy and the ledger; those about a server are in ``server_commands.py``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.cli.ask_commands import (
    add_actions,
    add_command,
    add_database,
    add_file,
    add_place,
    add_policy,
    require_policy,
)
from dpsql.errors import ParseError, PolicyError
from dpsql.privacy.filters import ACCOUNTANTS

if TYPE_CHECKING:
    from dpsql.cli.ask_commands import Commands


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
            f"{given.before} is yet to come: all texts and stored answers would be removed, even today's.",
            hint=f"--before {today} forgets older texts. Forgotten answers are charged again.",
        )
    print("\n".join(forget_before(_ledger_of(given), before)))


def _upgrade(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import upgrade

    print(upgrade(_ledger_of(given)))
