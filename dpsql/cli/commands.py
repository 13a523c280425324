"""The making of commands: one line of help, a description, and examples that the help ends with."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def add_place(command: argparse.ArgumentParser) -> None:
    """Add ``--policy`` and ``--ledger``, one of which says where the ledger is."""
    command.add_argument("--policy", metavar="FILE", type=Path, help="the policy that the ledger lies beside")
    command.add_argument("--ledger", metavar="FILE", type=Path, help="the ledger, where it is elsewhere")
