"""Commands about the policy, for the data owner: init, check and import."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError


def add_policy_commands(commands: Any) -> None:
    """Add the commands to those of the parser."""
    policy = commands.add_parser("policy", help="for the data owner")
    actions = policy.add_subparsers(required=True, metavar="action")
    init = actions.add_parser(
        "init", help="write a first policy from names and types alone; no value is read"
    )
    init.add_argument("source", help="a Parquet, CSV or JSON file, a glob in quotes, or a DuckDB file")
    init.add_argument(
        "--unit", metavar="COLUMN", help="the column that says whose row it is, or ROW; else guessed"
    )
    init.add_argument("-o", "--output", type=Path, help="write to this file, which must not exist")
    init.set_defaults(run=_policy_init)
    check = actions.add_parser("check", help="what a policy declares, and what is missing; shows no rows")
    check.add_argument("policy", type=Path)
    check.add_argument("data", nargs="?", default=":memory:", help="the database that the policy speaks of")
    check.add_argument(
        "--data", dest="rows", action="store_true", help="count what does not fit, for the owner's eyes"
    )
    check.set_defaults(run=_policy_check)
    taken = actions.add_parser("import", help="make a policy of SmartNoise's metadata YAML")
    taken.add_argument("metadata", type=Path, help="the YAML file (or JSON)")
    taken.add_argument("-o", "--output", type=Path, help="write to this file, which must not exist")
    taken.add_argument("--epsilon", required=True, help="the whole budget, which metadata do not have")
    taken.add_argument("--delta", default="0", help="the whole delta; default 0")
    taken.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="TABLE=FILE",
        help="where a table's data are (repeatable)",
    )
    taken.set_defaults(run=_policy_import)


def _policy_init(given: argparse.Namespace) -> None:
    from dpsql.policy.init import init_policy

    draft = init_policy(given.source, given.unit, given.output)
    print(str(draft).rstrip() if given.output is None else draft.summary(given.output))


def _policy_check(given: argparse.Namespace) -> int:
    from dpsql.policy.lint import check_policy

    if not given.policy.exists():
        raise PolicyError(f"there is no policy file {given.policy}.")
    findings = check_policy(given.policy, given.data, given.rows)
    for line in findings.lines():
        print(line)
    return 1 if findings.missing else 0


def _policy_import(given: argparse.Namespace) -> None:
    from fractions import Fraction

    from dpsql.policy.smartnoise import import_smartnoise

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
    try:
        with given.output.open("x", encoding="utf-8") as file:
            file.write(made.text())
    except FileExistsError:
        raise PolicyError(f"{given.output} exists already; it is not overwritten.") from None
    except OSError:
        raise PolicyError(f"{given.output} can't be written.") from None
    for note in made.notes:
        print(f"  - {note}")
    print(f"written to {given.output}; read it, then: dpsql policy check {given.output}")
