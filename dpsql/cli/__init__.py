"""The command line of dpsql: for analysts demo, sql and explain; for data owners report, ledger, policy, serve and analyst.

Answers go to standard output; what they cost, and errors, go to standard error. The exit status is 0 for an
answer, 1 for an error of ours, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dpsql import __version__
from dpsql.cli.analysts import add_analyst_commands
from dpsql.cli.answers import add_answer_commands
from dpsql.cli.ledger import add_ledger_commands
from dpsql.cli.policy import add_policy_commands
from dpsql.cli.serving import add_serve_command
from dpsql.errors import Error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the entry point of the ``dpsql`` script."""
    given = make_parser().parse_args(arguments)
    try:
        return int(given.run(given) or 0)
    except Error as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe went away: that is not our error
        sys.stderr.close()
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="dpsql", description="Differentially private answers to SQL.")
    top.add_argument("--version", action="version", version=f"dpsql {__version__}")
    commands = top.add_subparsers(required=True, metavar="command")
    for add in (
        add_answer_commands,
        add_ledger_commands,
        add_policy_commands,
        add_serve_command,
        add_analyst_commands,
    ):
        add(commands)
    return top
