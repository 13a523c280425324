"""Opening a session, on local data or on an owner's server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dpsql.errors import PolicyError, ServerError
from dpsql.interrupts import pausing_collection

if TYPE_CHECKING:
    from dpsql.client.remote_session import RemoteSession
    from dpsql.policy.model import Policy
    from dpsql.session.session import Session


def is_address(text: object) -> bool:
    """Return whether a text is meant as the address of a server, valid or not; no path of a database looks like one."""
    return isinstance(text, str) and re.match(r"[A-Za-z][\w.+-]*\+[\w.-]+://|grpcs?:|unix:", text) is not None


@overload
def connect_session(
    database: object = ":memory:",
    *,
    policy: Policy | str | Path,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    resources: Mapping[str, str | int] | None = None,
) -> Session: ...


@overload
def connect_session(
    database: str,
    *,
    token: str | None = None,
    tls_ca: str | Path | None = None,
    tls_client_cert: str | Path | None = None,
    tls_client_key: str | Path | None = None,
) -> RemoteSession: ...


def connect_session(
    database: Any = ":memory:",
    *,
    policy: Policy | str | Path | None = None,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    resources: Mapping[str, str | int] | None = None,
    token: str | None = None,
    tls_ca: str | Path | None = None,
    tls_client_cert: str | Path | None = None,
    tls_client_key: str | Path | None = None,
) -> Session | RemoteSession:
    """Open a session on private data under the owner's policy, or on an owner's server.

    Args:
        database: the path of a DuckDB file, ``":memory:"`` (tables come from the policy's sources), an open DuckDB
            connection, or a mapping of names to pandas, polars or Arrow tables or dicts of lists (the policy's tables,
            or their sources). For Spark: a master (``"spark://host:7077"``, ``"local[2]"``), a Spark Connect address
            (``"sc://host"``), or a SparkSession. Or the address of a server: ``"grpc+tls://host:31337"``,
            ``"grpc+unix:///path"``, on this machine ``"grpc+tcp://127.0.0.1:31337"``.
        policy: the owner's TOML file, or a :class:`dpsql.Policy`. A server has its own.
        ledger: the file of charges; by default ``<policy>.ledger`` in the folder of the policy file. With a policy made in
            Python and no path, the budget lasts for this process only. A server has its own.
        analyst: the analyst who asks, if the policy has shares. A server knows the analyst from the token.
        resources: for DuckDB: ``{"memory_limit": "1GiB", "threads": 2, "temp_directory": "/scratch"}``. Data that do
            not fit the memory are spilled to a private directory below the temporary one (by default below the user's state
            directory), which is removed with the session. Without ``threads``, there is one for each 256 MiB at most.
            ``"time_limit": 60`` stops an exact query after 60 seconds. A statement that reaches a limit fails like any
            other: it stays charged, and the message does not name the limit.
        token: for a server: the analyst's token; by default the value of ``DPSQL_TOKEN``.
        tls_ca: for a server: a file with the certificate of its authority; by default the system's authorities.
        tls_client_cert: for a server that asks for one: a file with your own certificate, whose CN is the analyst; then no
            token is needed.
        tls_client_key: a file with its key, unless the certificate's file has it.

    Raises:
        PolicyError: the policy is wrong, or does not fit the data.
        LedgerError: the ledger can't be trusted or written.
        ServerError: the server can't be reached, or refuses the token.
    """
    if is_address(database):
        given = {"policy": policy, "ledger": ledger, "analyst": analyst, "resources": resources}
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise ServerError(
                f"a server has its own {' and '.join(named)}.",
                hint="dpsql.connect(url, token=..., tls_ca=...)",
            )
        return connect_server(
            database, token, tls_ca, tls_client_cert=tls_client_cert, tls_client_key=tls_client_key
        )
    if any(given is not None for given in (token, tls_ca, tls_client_cert, tls_client_key)):
        raise ServerError(
            "a token and certificates are for servers.",
            hint='dpsql.connect("grpc+tls://host:31337", token=...)',
        )
    if policy is None:
        raise PolicyError(
            "a session needs the policy that the data owner wrote.",
            hint='dpsql.connect("visits.duckdb", policy="policy.toml"); dpsql policy init writes a first one.',
        )
    with pausing_collection(lasting=True):
        return _open_session(database, policy, ledger, analyst, resources)


def _open_session(
    database: object,
    policy: Policy | str | Path,
    ledger: str | Path | None,
    analyst: str | None,
    resources: Mapping[str, str | int] | None,
) -> Session:
    """Open a session on private data; a policy's file has its ledger in its folder."""
    from dpsql.engine import open_engine  # clients of a server need none of these
    from dpsql.ledger.ledger import Ledger
    from dpsql.ledger.state_files import place_ledger
    from dpsql.policy.model import Policy
    from dpsql.session.session import Session

    folder = Path.cwd()
    if isinstance(policy, Policy) and policy.base is not None:
        folder = policy.base
    _check_path("database", database if isinstance(database, str | Path) else "")
    _check_path("policy", policy if isinstance(policy, str | Path) else "")
    _check_path("ledger", ledger or "")
    if not isinstance(policy, Policy):
        if not isinstance(policy, str | Path):
            raise PolicyError(
                f"the policy is a {type(policy).__name__}.",
                hint="give the path of a TOML file, or a dpsql.Policy.",
            )
        path = Path(policy)
        policy, folder = Policy.load(path), path.parent
        ledger = place_ledger(path) if ledger is None else ledger
    engine = open_engine(database, policy, folder, resources)
    opened = Ledger.open(ledger, policy, engine.dataset, analyst)
    return Session(policy, engine, opened)


def _check_path(what: str, path: str | Path) -> None:
    """Raise PolicyError if a path contains a NUL or a lone surrogate, or is too long for a file name."""
    text, wrong = str(path), ""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        wrong = "holds a character that no path has"
    elif len(text) > MAX_PATH or any(len(part.encode()) > MAX_PATH_PART for part in Path(text).parts):
        wrong = "is too long"
    if wrong:
        raise PolicyError(
            f"the path of the {what} {wrong}.", hint="name an existing folder, and a file in it."
        )


MAX_PATH, MAX_PATH_PART = 4_000, 255
"""Characters of a path, and bytes of each of its parts."""


def connect_server(
    url: str,
    token: str | None = None,
    tls_ca: str | Path | None = None,
    token_file: str | Path | None = None,
    *,
    tls_client_cert: str | Path | None = None,
    tls_client_key: str | Path | None = None,
) -> RemoteSession:
    """Open a session on an owner's server.

    Args:
        url: the server's address.
        token: the analyst's token; else the first line of ``token_file``, else the value of ``DPSQL_TOKEN``.
        tls_ca: a file with the certificate of the owner's authority; by default the system's authorities.
        token_file: a file with the token.
        tls_client_cert: a file with the analyst's own certificate, instead of a token or with it.
        tls_client_key: a file with its key, unless the certificate's file has it.

    Raises:
        ServerError: there is no such server, it refuses the token or the certificate, or there is neither.
    """
    from dpsql.client.channel import (  # most sessions have no server
        FlightChannel,
        find_token,
        parse_address,
        read_authority,
        read_client_certificate,
    )
    from dpsql.client.remote_session import RemoteSession

    address, found = parse_address(url), find_token(token, token_file)
    if tls_client_cert is None and tls_client_key is not None:
        raise ServerError("a key needs its certificate.", hint='tls_client_cert="ann.pem"')
    if tls_client_cert is not None and not address.tls:
        raise ServerError(
            f"{address} speaks no TLS, and asks for no certificate.", hint="grpc+tls://host:31337"
        )
    if found is None and tls_client_cert is None:
        raise ServerError(
            "a server wants to know who asks, and there is no token.",
            hint="the owner prints one: dpsql analyst add NAME. Give it by token=..., a file, or DPSQL_TOKEN.",
        )
    authority = own = None
    if tls_ca is not None or tls_client_cert is not None:
        authority = None if tls_ca is None else read_authority(tls_ca)
        own = None if tls_client_cert is None else read_client_certificate(tls_client_cert, tls_client_key)
    channel = FlightChannel(address, found or "", authority, own)
    try:
        return RemoteSession(channel, str(address))
    except BaseException:
        channel.close()
        raise
