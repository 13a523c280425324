"""The command line of dpsql.

ask_commands.py      demo, sql and explain, for analysts
ledger_commands.py   report and ledger, for the owner
policy.py            policy init, check and import, for the owner
serving.py           serve, for the owner
analysts.py          analyst: tokens and pauses, for the owner
shell_completion.py  completion for bash, zsh and fish
commands.py          help texts and arguments that commands share

Each command has its own file, imported here alone. Answers go to standard output; costs and errors go to standard error.
The exit status is 0 for an answer, 1 for an error of ours, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dpsql import __version__
from dpsql.cli.analysts import add_analyst_commands
from dpsql.cli.ask_commands import add_answer_commands
from dpsql.cli.commands import take_policy
from dpsql.cli.ledger_commands import add_ledger_commands
from dpsql.cli.policy import add_policy_commands
from dpsql.cli.serving import add_serve_command
from dpsql.cli.shell_completion import add_completion_command
from dpsql.errors import Error

_EXAMPLES = """\
first steps:
  dpsql demo                                               look around, with real records
  dpsql policy init visits.parquet -o policy.toml          write a policy for data of your own
  dpsql sql --policy policy.toml                           ask, at a prompt
  dpsql sql --policy policy.toml "SELECT COUNT(*) AS n FROM visits"
  dpsql report policy.toml                                 see what was asked, by whom, at what cost

dpsql COMMAND --help says what a command takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the entry point of the ``dpsql`` script."""
    given = make_parser().parse_args(arguments)
    try:
        take_policy(given)
        return int(given.run(given) or 0)
    except Error as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="dpsql", description="Differentially private answers to SQL.", epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"dpsql {__version__}")
    top.set_defaults(run=lambda given: top.print_help())
    commands = top.add_subparsers(metavar="COMMAND", title="commands")
    for add in (
        add_answer_commands,
        add_ledger_commands,
        add_policy_commands,
        add_serve_command,
        add_analyst_commands,
    ):
        add(commands)
    add_completion_command(commands, make_parser)
    return top
