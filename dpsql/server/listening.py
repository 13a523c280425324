"""Places to listen: addresses of this machine alone, and sockets that keep others out by their mode."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from dpsql.errors import ServerError


def is_loopback(host: str) -> bool:
    """Tell whether an address is of this machine alone."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def bind_socket(path: Path, mask: int, backlog: int) -> socket.socket:
    """Return a socket of the file system that listens.

    Args:
        path: where; what a server left there that is gone is removed.
        mask: permissions that nobody gets.
        backlog: connections that may wait.

    Raises:
        ServerError: something else is there, a server listens on it, or the folder can't be written.
    """
    clear_socket(path)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(mask)
    try:
        made.bind(str(path))
        made.listen(backlog)
    except OSError as error:
        made.close()
        raise ServerError(f"nothing can listen on {path}: {error.strerror or error}.") from None
    finally:
        os.umask(before)
    return made


def clear_socket(path: Path) -> None:
    """Remove the socket of a server that is gone.

    Raises:
        ServerError: something else is there, or a server listens on it.
    """
    try:
        kind = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise ServerError(f"{path} is a file already.", hint="unix: names a socket, which the server makes.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise ServerError(f"another server listens on {path}.")
