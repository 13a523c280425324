"""Commands about the ledger, for the data owner: report, and what an owner does to a ledger."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dpsql.cli.answers import add_session_arguments
from dpsql.errors import ParseError
from dpsql.privacy.filters import ACCOUNTANTS


def add_ledger_commands(commands: Any) -> None:
    """Add the commands to those of the parser."""
    report = commands.add_parser("report", help="the owner's report: what was asked, by whom, at what cost")
    report.add_argument("place", nargs="?", type=Path, metavar="LEDGER", help="the ledger to report on")
    report.add_argument("--ledger", type=Path, help="the same")
    report.add_argument("--policy", type=Path, help="report on the ledger beside this policy")
    report.add_argument("--accountant", choices=tuple(ACCOUNTANTS), help="what it would have cost there")
    report.add_argument(
        "--page", type=int, default=1, help="which statements: 1, the newest; the sums are of all"
    )
    report.add_argument("-o", "--output", type=Path, help="write to this file: .html, .csv, .json, else text")
    report.set_defaults(run=_report)

    ledger = commands.add_parser("ledger", help="for the data owner")
    deeds = ledger.add_subparsers(required=True, metavar="action")
    adopt = deeds.add_parser("adopt", help="let a ledger go on under the policy as it is now; it is logged")
    add_session_arguments(adopt)
    adopt.add_argument(
        "--fresh", action="store_true", help="begin anew where the ledger is gone: a new budget"
    )
    adopt.set_defaults(run=_adopt)

    _ledger_actions(deeds)


def _ledger_actions(actions: Any) -> None:
    """Add what an owner does to a ledger beside granting terms."""
    verify = actions.add_parser("verify", help="look at every row, text, checkpoint and stored answer")
    verify.set_defaults(run=_verify)
    backup = actions.add_parser("backup", help="copy the ledger while sessions run, and verify the copy")
    backup.add_argument("file", type=Path, help="the copy, which must not exist")
    backup.set_defaults(run=_backup)
    restore = actions.add_parser(
        "restore", help="put a backup in place; what was charged since is written off"
    )
    restore.add_argument("file", type=Path, help="the backup")
    restore.add_argument(
        "--spent", metavar="EPSILON", help="what was charged since, where that can't be read"
    )
    restore.add_argument("--spent-delta", metavar="DELTA", default="0", help="the delta of it; default 0")
    restore.set_defaults(run=_restore)
    forget = actions.add_parser("forget", help="blank texts and their stored answers; charges stay")
    forget.add_argument("--before", required=True, metavar="DATE", help="a day, as 2026-01-31 (UTC)")
    forget.set_defaults(run=_forget)
    upgrade = actions.add_parser("upgrade", help="upgrade an older ledger; a copy is kept beside it")
    upgrade.set_defaults(run=_upgrade)
    for command in (verify, backup, restore, forget, upgrade):
        command.add_argument("--policy", type=Path, help="the ledger beside this policy")
        command.add_argument("--ledger", type=Path, help="the ledger")


def _report(given: argparse.Namespace) -> None:
    from dpsql.ledger.ledger import Ledger
    from dpsql.ledger.state_files import place_ledger
    from dpsql.report.pages import report_text, write_report

    place = given.place or given.ledger
    if (place is None) == (given.policy is None) or (given.place and given.ledger):
        raise ParseError(
            "give the ledger, or the policy that it lies beside.", hint="dpsql report x.ledger -o report.html"
        )
    with Ledger.read(place or place_ledger(given.policy)) as ledger:
        for warning in ledger.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
        if given.output is None:
            print(report_text(ledger, accountant=given.accountant, page=given.page), end="")
        else:
            where = write_report(ledger, None, given.output, accountant=given.accountant, page=given.page)
            print(f"written to {where}")


def _adopt(given: argparse.Namespace) -> None:
    from dpsql.engine.duckdb import DuckDBEngine
    from dpsql.ledger.ledger import Ledger
    from dpsql.ledger.state_files import place_ledger
    from dpsql.policy.model import Policy

    policy = Policy.load(given.policy)
    engine = DuckDBEngine(given.database, policy, given.policy.parent)
    try:
        ledger = given.ledger or place_ledger(given.policy)
        changes = Ledger.adopt(ledger, policy, engine.dataset, fresh=given.fresh)
    finally:
        engine.close()
    print("\n".join(changes) if changes else "nothing had to change.")


def _ledger_of(given: argparse.Namespace) -> Path:
    from dpsql.ledger.state_files import place_ledger

    if given.ledger is None and given.policy is None:
        raise ParseError("give the ledger, or the policy that it lies beside.", hint="--ledger visits.ledger")
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
    from datetime import date

    from dpsql.ledger.upkeep import forget_before

    try:
        before = date.fromisoformat(given.before)
    except ValueError:
        raise ParseError(f"{given.before!r} is not a day.", hint="--before 2026-01-31") from None
    print("\n".join(forget_before(_ledger_of(given), before)))


def _upgrade(given: argparse.Namespace) -> None:
    from dpsql.ledger.upkeep import upgrade

    print(upgrade(_ledger_of(given)))
