"""Help texts of commands, with examples, and the arguments that they share."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpsql.errors import ParseError

Run = Callable[[argparse.Namespace], int | None]
_WIDTH = 100
"""Columns of a description."""


def add_command(
    commands: Any, name: str, run: Run | None, help: str, about: str = "", examples: tuple[str, ...] = ()
) -> argparse.ArgumentParser:
    """Add a command.

    Args:
        commands: the actions of a parser, to which it is added.
        name: its word.
        run: its function; None for a command with commands of its own, which shows its help.
        help: one line, for the list of commands.
        about: further sentences.
        examples: whole command lines.
    """
    sentence = help[:1].upper() + help[1:] + "."
    description = "\n\n".join(textwrap.fill(part, _WIDTH) for part in (sentence, about) if part)
    shown = "examples:\n" + "\n".join(f"  {line}" for line in examples) if examples else None
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=shown,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=run or (lambda given: made.print_help()))
    return made


def add_actions(command: argparse.ArgumentParser) -> Any:
    """Return the actions of a command; without one of them the command shows its help."""
    return command.add_subparsers(metavar="ACTION", title="actions")


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
    command.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        action="append" if several else "store",
        help="like POLICY",
    )


def take_policy(given: argparse.Namespace) -> None:
    """Use a policy that is given as an argument as ``--policy``.

    Raises:
        ParseError: both are given.
    """
    place = getattr(given, "policy_place", None)
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
    """Add ``--policy`` and ``--ledger``, one of which gives the ledger.

    A command with a file as its argument takes no policy as an argument.
    """
    if any(action.dest == "file" for action in command._actions):
        command.add_argument(
            "--policy", metavar="FILE", type=Path, help="the policy in the folder of the ledger"
        )
    else:
        add_policy(command, "the policy in the folder of the ledger")
    command.add_argument("--ledger", metavar="FILE", type=Path, help="the ledger, if it is elsewhere")
