"""The result of a declared plan's statement, for local sessions and servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpsql.errors import BindError

if TYPE_CHECKING:
    from dpsql.result import Result


class DeclaredResult:
    """A statement of a declared plan with its text, ``source``. It becomes the result once the plan has run."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """The answer; BindError if the plan has not run yet."""
        if self._result is None:
            raise BindError("this statement is declared, not run yet.", hint="leave the with block first.")
        return self._result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result, name)

    def __len__(self) -> int:
        return len(self.result)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.result)

    def __getitem__(self, key: Any) -> Any:
        return self.result[key]

    def __repr__(self) -> str:
        return f"<declared: {self.source}>" if self._result is None else repr(self._result)
