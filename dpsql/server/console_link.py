"""Questions that the process of the owner's page may ask the front: what runs now, and whether a one-time link is good.

It may also tell of connections that it dropped.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from dpsql.server.frames import FrameError, Frames

ANSWER_SECONDS = 10.0
"""Seconds that the front may take to answer."""


class FrontLink:
    """The questions that the page may ask the front, one at a time."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._lock = threading.Lock()

    def receive_setup(self) -> dict[str, Any]:
        """Return the policies, their files, and where the page listens."""
        return self._frames.receive(ANSWER_SECONDS).head

    def ask_live(self) -> dict[str, Any]:
        """Return what runs now, and the latest lines of the log."""
        return self._ask({"kind": "live"})

    def use_link(self, key: str) -> bool:
        """Tell whether a one-time link is good; it works no more then."""
        return self._ask({"kind": "enter", "key": key}).get("good") is True

    def tell_dropped(self, count: int, addresses: str, why: str) -> None:
        """Let the log tell of connections that were dropped."""
        self._ask({"kind": "dropped", "count": count, "addresses": addresses, "why": why})

    def _ask(self, head: dict[str, Any]) -> dict[str, Any]:
        """Ask the front. Where it is gone this process ends."""
        with self._lock:
            try:
                self._frames.send(head)
                return self._frames.receive(ANSWER_SECONDS).head
            except (FrameError, TimeoutError):
                os._exit(1)
