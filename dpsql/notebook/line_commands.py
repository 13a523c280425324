"""The commands of ``%dpsql`` that need a server or an owner's files: ``connect`` and ``policy``.

The module stands apart from ``magic.py``, because it needs no shell.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.error import StdinNotImplementedError

from dpsql.client.connect import connect_server, is_address
from dpsql.errors import ParseError, ServerError
from dpsql.notebook import guide
from dpsql.notebook.guide import CellOptions, parse_words
from dpsql.notebook.render import Panel
from dpsql.notebook.sessions import is_frame

if TYPE_CHECKING:
    from dpsql.session.interface import AnalystSession

# -- connections to an owner's server -------------------------------------------------------------------------------

CONNECT = "%dpsql connect grpc+tls://host:31337 --token-file FILE"
_NO_TOKEN = "a file with the token, or the variable DPSQL_TOKEN; a notebook would store and share it."


def names_server(given: CellOptions) -> bool:
    """Return whether the line of ``%dpsql connect`` names a server."""
    return any(is_address(word) for word in given.rest)


def open_server(given: CellOptions, kernel: bool) -> AnalystSession:
    """Open a session on a server.

    ``kernel``: whether to ask for the token in a notebook, unseen and without storing it.

    Raises:
        ParseError: more than an address, or a flag that the server decides.
        ServerError: it can't be reached, or there is no token.
    """
    from dpsql.client.channel import find_token, parse_address  # most notebooks have no server

    if len(given.rest) > 1:  # not repeated: it may be the token
        raise ParseError("%dpsql connect takes one address and flags.", hint=CONNECT)
    own = {"policy": given.policy, "ledger": given.ledger, "analyst": given.analyst}
    named = [flag for flag, value in own.items() if value is not None]
    if named:
        raise ParseError(f"a server has its own {' and '.join(named)}.", hint=CONNECT)
    address = str(parse_address(given.rest[0]))
    token = find_token(None, given.token_file)
    if token is None and given.tls_client_cert is None:
        token = _ask_token(address, kernel)
    return connect_server(
        address,
        token,
        given.tls_ca,
        tls_client_cert=given.tls_client_cert,
        tls_client_key=given.tls_client_key,
    )


def _ask_token(address: str, kernel: bool) -> str | None:
    """Ask for the token, unseen; ServerError without a terminal."""
    from dpsql.client.channel import find_token

    if not kernel and not sys.stdin.isatty():
        raise ServerError(f"there is no token for {address}.", hint=f"--token-file FILE: {_NO_TOKEN}")
    try:
        return find_token(getpass.getpass(f"token for {address}: ").strip())
    except (StdinNotImplementedError, EOFError, KeyboardInterrupt):
        raise ServerError(
            f"there is no token for {address}.", hint=f"--token-file FILE: {_NO_TOKEN}"
        ) from None


# -- the owner's commands -------------------------------------------------------------------------------------------

INIT = "%dpsql policy init visits.parquet -o policy.toml"
CHECK = "%dpsql policy check policy.toml"


def is_policy_command(rest: str) -> bool:
    """Return whether the words after ``%dpsql policy`` are an owner's command rather than a session's name."""
    return rest.partition(" ")[0].lower() in ("init", "check")


def run_policy_command(rest: str, space: Mapping[str, object]) -> Panel:
    """Run ``init``, which writes a first policy, or ``check``.

    A source or a database may be a variable of ``space``: a frame, a mapping of names to frames, or a connection.

    Raises:
        ParseError: words or flags that the command does not take.
        PolicyError: the source or the policy can't be read.
    """
    first, _, words = rest.partition(" ")
    return _init(words, space) if first.lower() == "init" else _check(words, space)


def _init(words: str, space: Mapping[str, object]) -> Panel:
    from dpsql.owner.policy_init import init_policy

    given, flags = parse_words(words, guide.INIT_FLAGS)
    if "--database" in flags:
        given = (*given, str(flags["--database"]))
    if len(given) != 1:
        raise ParseError("%dpsql policy init takes one source.", hint=INIT)
    source = _find(given[0], space)
    if is_frame(source):
        source = {given[0]: source}
    unit, output = (str(flags[name]) if name in flags else None for name in ("--unit", "-o"))
    draft = init_policy(source, unit, output)
    return Panel(str(draft).rstrip("\n") if output is None else draft.summary(output, "%dpsql"))


def _check(words: str, space: Mapping[str, object]) -> Panel:
    from dpsql.owner.policy_check import check_policy

    given, flags = parse_words(words, guide.CHECK_FLAGS)
    if "--database" in flags:
        given = (*given, str(flags["--database"]))
    if not 1 <= len(given) <= 2:
        raise ParseError("%dpsql policy check takes a policy, and a database if it has one.", hint=CHECK)
    data = _find(given[1], space) if len(given) > 1 else ":memory:"
    return Panel(str(check_policy(Path(given[0]), data, "--data" in flags)))


def _find(word: str, space: Mapping[str, object]) -> object:
    """Return the variable of that name, unless it is a text; else the word, which is a path."""
    found = space.get(word) if word.isidentifier() else None
    return found if found is not None and not isinstance(found, str) else word
