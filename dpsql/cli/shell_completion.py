"""The command ``dpsql completion``: shells complete commands, options and their values, and file names by themselves.

The shell's script is a few lines: it runs ``dpsql completion words``, which reads the parser of the commands. So no word is
written twice, and neither a policy nor data are opened.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dpsql.cli.commands import add_command

SCRIPTS = {
    "bash": r"""_dpsql() {
    local IFS=$'\n'
    COMPREPLY=($(dpsql completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _dpsql dpsql
""",
    "zsh": r"""#compdef dpsql
_dpsql() {
    local line
    local -a found
    for line in "${(@f)$(dpsql completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#found )); then _describe dpsql found; else _files; fi
}
(( $+functions[compdef] )) && compdef _dpsql dpsql
""",
    "fish": r"""function __dpsql_complete
    set -l before (commandline -opc)
    set -l found (dpsql completion words -- $before[2..] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c dpsql -f -a '(__dpsql_complete)'
""",
}
"""The script of each shell."""
_INSTALL = (
    "bash:  echo 'eval \"$(dpsql completion bash)\"' >> ~/.bashrc",
    "zsh:   echo 'eval \"$(dpsql completion zsh)\"' >> ~/.zshrc      (below compinit)",
    "fish:  dpsql completion fish > ~/.config/fish/completions/dpsql.fish",
)


def add_completion_command(commands: Any, make_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command to those of the parser.

    Args:
        commands: the actions of the parser.
        make_parser: makes the parser anew, whose commands are completed.
    """

    def run(given: argparse.Namespace) -> None:
        if given.shell != "words":
            print(SCRIPTS[given.shell], end="")
            return
        words = given.words[1:] if given.words[:1] == ["--"] else given.words
        for word, help in complete_words(make_parser(), words or [""]):
            print(f"{word}\t{help}")

    command = add_command(
        commands, "completion", run, "print the lines that let a shell complete dpsql's commands",
        "Completes commands, options and their values, and files.", _INSTALL,
    )  # fmt: skip
    command.add_argument("shell", choices=(*SCRIPTS, "words"), metavar="{bash,zsh,fish}", help="which shell")
    command.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def complete_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield completions of the last word, each with one line of help; none if a file is expected.

    Args:
        parser: of the whole command line.
        words: the words after ``dpsql``, up to the cursor.
    """
    *before, typed = words
    waiting: argparse.Action | None = None
    place, ended = 0, False
    for word in before:
        if waiting is not None:
            waiting = None
        elif word == "--":
            ended = True
        elif word.startswith("-") and word != "-" and not ended:
            option = parser._option_string_actions.get(word)
            waiting = option if option is not None and option.nargs != 0 else None
        else:
            below = _find_commands(parser)
            if below is not None and word in below.choices:
                parser, place = below.choices[word], 0
            else:
                place += 1
    for word, help in _list_words(parser, waiting, place, typed, ended):
        if word.startswith(typed):
            yield word, " ".join(help.split())


def _list_words(
    parser: argparse.ArgumentParser, waiting: argparse.Action | None, place: int, typed: str, ended: bool
) -> Iterator[tuple[str, str]]:
    if waiting is None and typed.startswith("-") and not ended:
        for action in parser._actions:
            if action.help != argparse.SUPPRESS and action.option_strings:
                yield action.option_strings[-1], _expand(parser, action)
        return
    below = _find_commands(parser)
    if waiting is None and below is not None:
        for choice in below._choices_actions:
            yield choice.dest, choice.help or ""
        return
    if waiting is None:
        positional = [a for a in parser._get_positional_actions() if a.help != argparse.SUPPRESS]
        waiting = positional[min(place, len(positional) - 1)] if positional else None
    if waiting is not None and waiting.choices:
        yield from ((str(choice), "") for choice in waiting.choices if choice != "words")


def _expand(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _find_commands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[Any] | None:
    return next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
