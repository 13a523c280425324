"""Handles of prepared statements: they hold what is asked, so the server keeps nothing, and are of one analyst.

    32 bytes: a code that only this server can make | JSON: the statement, and the values of its parameters

A handle of another analyst's, of another server's, or of before a restart is refused: it has to be prepared again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.errors import BindError

_CODE_BYTES = 32
_FOREIGN = "this statement was prepared by somebody else, or before the server started anew."


@dataclass(frozen=True)
class StatementHandle:
    """A statement as it was prepared.

    Args:
        text: dpsql SQL.
        bound: the values of its parameters as JSON values, by the names that the client gave them; None before they are bound.
        mark: what tells one execution from others; empty before there is one.
    """

    text: str
    bound: Mapping[str, Any] | None = None
    mark: str = ""


class HandleMaker:
    """A writer and reader of handles, whose key dies with the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_CODE_BYTES)

    def write(self, policy: str, analyst: str, handle: StatementHandle) -> bytes:
        """Return a handle as bytes.

        Args:
            policy: the name of the policy that it is asked under.
            analyst: whose it is.
            handle: what it holds.
        """
        held = {"text": handle.text, "bound": handle.bound, "mark": handle.mark}
        body = json.dumps(held, separators=(",", ":")).encode()
        return self._make_code(policy, analyst, body) + body

    def read(self, policy: str, analyst: str, data: bytes) -> StatementHandle:
        """Read a handle.

        Raises:
            BindError: it is of another analyst, or of another server.
        """
        code, body = data[:_CODE_BYTES], data[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._make_code(policy, analyst, body)):
            raise BindError(_FOREIGN, hint="prepare it again.")
        held = json.loads(body)
        return StatementHandle(held["text"], held["bound"], held["mark"])

    def _make_code(self, policy: str, analyst: str, body: bytes) -> bytes:
        whose = json.dumps([policy, analyst]).encode() + b"\n"
        return hmac.new(self._key, whose + body, hashlib.sha256).digest()


def make_mark() -> str:
    """Return what tells one execution of a statement from others of the same."""
    return secrets.token_hex(8)
