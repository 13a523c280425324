"""Which sessions a notebook has open, and which of them its cells mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import BindError, did_you_mean
from dpsql.notebook import guide

if TYPE_CHECKING:
    from dpsql.session import Session


class Sessions(dict[str, "Session"]):
    """The open sessions by name. It belongs to the shell, so that reloading the extension keeps it."""

    current: str = "main"

    def get_open(self, name: str | None = None) -> Session:
        """The session of that name, else the current one.

        Raises:
            BindError: there is none; the hint says how to open one.
        """
        wanted = name or self.current
        if wanted not in self:
            if name and self:
                raise BindError(f"there is no open session {name}.", hint=did_you_mean(name, self))
            raise BindError("no session is open yet.", hint=guide.NO_SESSION)
        return self[wanted]
