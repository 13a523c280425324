"""Commands about the policy, for the data owner: init, check and import."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dpsql.cli.commands import add_actions, add_command, add_database, add_policy, require_policy
from dpsql.errors import ParseError, PolicyError


def add_policy_commands(commands: Any) -> None:
    """Add the commands to those of the parser."""
    policy = add_command(
        commands, "policy", None, "write a policy for data of your own, and check it",
        examples=("dpsql policy init visits.parquet -o policy.toml", "dpsql policy check policy.toml"),
    )  # fmt: skip
    actions = add_actions(policy)
    init = add_command(
        actions, "init", _init, "write a first policy from names and types alone; no value is read",
        "Facts that only the owner knows become TODO, and guesses are marked: dpsql policy check insists on both.",
        ("dpsql policy init visits.parquet -o policy.toml", "dpsql policy init visits.csv wards.csv -o policy.toml",
         "dpsql policy init --database visits.duckdb --unit person_id"),
    )  # fmt: skip
    init.add_argument(
        "source",
        nargs="*",
        metavar="SOURCE",
        help="Parquet, CSV or JSON files, one table each; a glob in quotes is one table; or a DuckDB file",
    )
    init.add_argument("--database", metavar="FILE", help="a DuckDB database, like SOURCE")
    init.add_argument("--unit", metavar="COLUMN", help="the column of the privacy unit, or ROW; else guessed")
    init.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write to this file, which must not exist"
    )
    check = add_command(
        actions, "check", _check, "list the declarations of a policy, and the missing ones; shows no rows",
        "The exit status is 1 if something is missing.",
        ("dpsql policy check policy.toml", "dpsql policy check policy.toml --database visits.duckdb --data"),
    )  # fmt: skip
    add_policy(check)
    check.add_argument("place", nargs="?", help=argparse.SUPPRESS)  # the database, as it was given before
    add_database(check)
    check.add_argument(
        "--data", dest="rows", action="store_true", help="count rows that do not fit, for the owner's eyes"
    )
    taken = add_command(
        actions, "import", _policy_import, "make a policy of SmartNoise's metadata YAML",
        examples=("dpsql policy import metadata.yaml --epsilon 1 --source visits=visits.parquet -o policy.toml",),
    )  # fmt: skip
    taken.add_argument("metadata", metavar="METADATA", type=Path, help="the YAML file (or JSON)")
    taken.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write to this file, which must not exist"
    )
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


def _choose_one(what: str, place: str | None, database: str | None) -> str | None:
    """Return the only place that is given.

    Raises:
        ParseError: there are two.
    """
    if place is not None and database is not None:
        raise ParseError(f"{what} can't be in two places.", hint=f"--database {database}")
    return place if database is None else database


def _check(given: argparse.Namespace) -> int:
    from dpsql.owner.policy_check import check_policy

    require_policy(given, "policy check")
    if not given.policy.exists():
        raise PolicyError(f"there is no policy file {given.policy}.")
    data = _choose_one("the database", given.place, given.database)
    findings = check_policy(given.policy, data or ":memory:", given.rows)
    for line in findings.lines():
        print(line)
    return 1 if findings.missing else 0


def _policy_import(given: argparse.Namespace) -> None:
    from fractions import Fraction

    from dpsql.owner.smartnoise import import_smartnoise

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
