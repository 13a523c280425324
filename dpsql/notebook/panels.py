"""What the magic asks of a session, and how the budget, a plan and the tables are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.notebook.arguments import Options
from dpsql.notebook.render import Lines

if TYPE_CHECKING:
    from dpsql.result import Result
    from dpsql.session import Session

BAR = 20


def ask(session: Session, text: str, params: dict[str, Any], options: Options) -> list[Result]:
    """The results of a cell's statements, under its flags."""
    return session.run(text, params, fresh=options.fresh)


def explanation(explained: Any) -> Lines:
    """A plan in sentences, in fixed width."""
    return Lines(tuple(str(explained).splitlines()))


def schema(session: Session) -> dict[str, list[str]]:
    """Tables of the policy, and their columns, for completion; nothing when the data can't be described."""
    return {name: list(columns) for name, columns in session.schema().items()}
