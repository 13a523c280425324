"""The command line of dpsql.

ask_commands.py     demo, sql, explain and refresh, for analysts; the arguments that all commands share
owner_commands.py   policy, report and ledger, for the owner
server_commands.py  serve and analyst, for the owner

A command's heavy modules are imported when it runs, so help and completion stay fast. Answers go to standard output; costs and
errors go to standard error. The exit status is 0 for an answer, 1 for an error of ours, 2 for wrong usage; refresh has 3 for a
refusal for lack of budget.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dpsql import __version__
from dpsql.cli.ask_commands import add_answer_commands, add_command, take_policy
from dpsql.cli.owner_commands import add_ledger_commands, add_policy_commands
from dpsql.cli.server_commands import add_analyst_commands, add_serve_command
from dpsql.errors import Error

_EXAMPLES = """\
first steps:
  dpsql demo                                               look around, with real records
  dpsql policy init visits.parquet -o policy.toml          write a policy for data of your own
  dpsql sql --policy policy.toml                           ask, at a prompt
  dpsql sql --policy policy.toml "SELECT COUNT(*) AS n FROM visits"
  dpsql report policy.toml                                 see what was asked, by whom, at what cost

dpsql COMMAND --help says what a command takes."""


_INSTALL = (
    "bash:  echo 'eval \"$(dpsql completion bash)\"' >> ~/.bashrc",
    "zsh:   echo 'eval \"$(dpsql completion zsh)\"' >> ~/.zshrc      (below compinit)",
    "fish:  dpsql completion fish > ~/.config/fish/completions/dpsql.fish",
)


_NEEDED = ("duckdb", "sqlglot", "numpy", "pyarrow", "ipython")
"""The packages whose versions decide how a statement is read, run and shown; IPython is there for notebooks alone."""


class _PrintVersions(argparse.Action):
    """Prints versions, one a line, and ends the process: dpsql's first, then Python's, then the packages'."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import platform
        from importlib import metadata, util

        compiled = " (compiled)" if util.find_spec("sqlglotc") else ""
        print(f"dpsql {__version__}")
        print(f"python {platform.python_version()} ({platform.system()} {platform.machine()})")
        for name in _NEEDED:
            if name == "ipython" and util.find_spec("IPython") is None:
                continue
            print(f"{name} {metadata.version(name)}{compiled if name == 'sqlglot' else ''}")
        parser.exit()


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
        prog="dpsql",
        description="Differentially private answers to SQL.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version",
        action=_PrintVersions,
        nargs=0,
        help="print this version, and the versions that a bug report needs",
    )
    top.set_defaults(run=lambda given: top.print_help(), policy_place=None)
    commands = top.add_subparsers(metavar="COMMAND", title="commands")
    for add in (
        add_answer_commands,
        add_ledger_commands,
        add_policy_commands,
        add_serve_command,
        add_analyst_commands,
    ):
        add(commands)
    completion = add_command(
        commands,
        "completion",
        lambda given: _print_completion(top, given.shell),
        "print a script that lets a shell complete dpsql's commands",
        "It completes commands, options, their values, and files.",
        _INSTALL,
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    return top


def _print_completion(top: argparse.ArgumentParser, shell: str) -> None:
    import shtab

    todo = [top]
    for parser in todo:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                todo += action.choices.values()
            elif action.type is Path or action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(top, shell))
