"""The making of commands: one line of help, a description, and examples that the help ends with."""

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
        commands: the actions of a parser that take it.
        name: its word.
        run: what it does; None for a command that has commands of its own, and shows its help alone.
        help: one line, for the list of commands.
        about: what else there is to know.
        examples: command lines, each whole.
    """
    sentence = help[:1].upper() + help[1:] + "."
    told = "\n\n".join(textwrap.fill(part, _WIDTH) for part in (sentence, about) if part)
    shown = "examples:\n" + "\n".join(f"  {line}" for line in examples) if examples else None
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=told, epilog=shown, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.set_defaults(run=run or (lambda given: made.print_help()))
    return made


def add_actions(command: argparse.ArgumentParser) -> Any:
    """Return what takes the commands of a command; without one of these it shows its help."""
    return command.add_subparsers(metavar="ACTION", title="actions")


def add_database(command: argparse.ArgumentParser) -> None:
    """Add ``--database``, which is the same in every command that reads data."""
    command.add_argument(
        "--database", metavar="FILE", help="a DuckDB database; default: the sources that the policy names"
    )


def add_policy(
    command: argparse.ArgumentParser, help: str = "the policy file", several: bool = False
) -> None:
    """Add the policy as an argument and as ``--policy``, for both are written; :func:`take_policy` makes one of them."""
    command.add_argument(
        "policy_place", nargs="*" if several else "?", type=Path, metavar="POLICY", help=help
    )
    command.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        action="append" if several else "store",
        help="the same as POLICY",
    )


def take_policy(given: argparse.Namespace) -> None:
    """Let the policy that is given as an argument be the one of ``--policy``.

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
    """Add ``--policy`` and ``--ledger``, one of which says where the ledger is.

    A command whose own argument is a file takes no policy as an argument.
    """
    if any(action.dest == "file" for action in command._actions):
        command.add_argument(
            "--policy", metavar="FILE", type=Path, help="the policy that the ledger lies beside"
        )
    else:
        add_policy(command, "the policy that the ledger lies beside")
    command.add_argument("--ledger", metavar="FILE", type=Path, help="the ledger, where it is elsewhere")
