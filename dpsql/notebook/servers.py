"""Connections of ``%dpsql connect`` to an owner's server: the token, and flags that a server does not take."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING

from IPython.core.error import StdinNotImplementedError

from dpsql.client.channel import find_token, is_address, parse_address
from dpsql.client.connect import connect_server
from dpsql.errors import ParseError, ServerError
from dpsql.notebook.guide import CellOptions

if TYPE_CHECKING:
    from dpsql.client.session import RemoteSession

CONNECT = "%dpsql connect grpc+tls://host:31337 --token-file FILE"
SERVER_FILES = ("token_file", "tls_ca", "tls_client_cert", "tls_client_key")
"""Options of ``%dpsql connect`` that name files for a server alone."""
_NO_TOKEN = (
    "a file that holds the token, or the variable DPSQL_TOKEN: in a notebook it would be kept and shared."
)


def names_server(given: CellOptions) -> bool:
    """Return whether the line of ``%dpsql connect`` names a server."""
    return any(is_address(word) for word in given.rest)


def open_server(given: CellOptions, kernel: bool) -> RemoteSession:
    """Open a session on a server.

    Args:
        given: the line's words and flags.
        kernel: whether to ask for the token in a notebook. It is typed unseen, and not stored.

    Raises:
        ParseError: more than an address, or a flag for something that the server decides. ServerError: it can't be reached,
            or there is no token.
    """
    if len(given.rest) > 1:  # not repeated: it may be the token
        raise ParseError("%dpsql connect takes one address, and nothing else but flags.", hint=CONNECT)
    named = [flag for flag in ("policy", "ledger", "analyst") if getattr(given, flag) is not None]
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
    """Ask for the token, unseen.

    Raises:
        ServerError: there is no way to ask.
    """
    if not kernel and not sys.stdin.isatty():
        raise ServerError(f"there is no token for {address}.", hint=f"--token-file FILE: {_NO_TOKEN}")
    try:
        return find_token(getpass.getpass(f"token for {address}: ").strip())
    except (StdinNotImplementedError, EOFError, KeyboardInterrupt):
        raise ServerError(
            f"there is no token for {address}.", hint=f"--token-file FILE: {_NO_TOKEN}"
        ) from None
