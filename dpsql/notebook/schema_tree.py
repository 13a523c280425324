"""The tree of tables and columns, as text and as HTML whose tables unfold; `%dpsql tables` and JupyterLab's panel show it.

It has no table element and no script, because the panel sanitizes its HTML and reads its tables as charges.
"""

from __future__ import annotations

from dpsql.late_dataclass import dataclass
from dpsql.report.tables import NO_MATH, Display, Html, join, measure_width, quote, tag

MAX_LINES = 80
"""The most columns that are listed at once; in a larger tree the tables are folded."""
_LIST = "list-style: none; margin: 0.2em 0 0.6em; padding-left: 1.2em"


@dataclass(frozen=True)
class TreeTable:
    """A table: its name, what the policy says of it, and each column with its type and what is declared of it."""

    name: str
    words: str
    columns: tuple[tuple[str, str, str], ...]

    @property
    def title(self) -> str:
        """The line of the table itself."""
        count = len(self.columns)
        return f"{self.words} · {count} column{'' if count == 1 else 's'}"


@dataclass(frozen=True, repr=False)
class SchemaTree(Display):
    """The tables and kept results of a session."""

    tables: tuple[TreeTable, ...]

    @property
    def folded(self) -> bool:
        """Whether there are too many columns to list them all."""
        return sum(len(table.columns) for table in self.tables) > MAX_LINES

    def text(self) -> str:
        """Return one line a table, and below it one a column."""
        if not self.tables:
            return "the policy names no tables"
        lines: list[str] = []
        for table in self.tables:
            lines.append(f"{table.name} · {table.title}")
            if not self.folded:
                widths = [max((measure_width(row[i]) for row in table.columns), default=0) for i in (0, 1)]
                for name, kind, said in table.columns:
                    parts = [_pad(name, widths[0]), _pad(kind, widths[1]), said]
                    lines.append("  " + "   ".join(parts).rstrip())
        if self.folded:
            lines.append("DESCRIBE and a table's name list its columns")
        return "\n".join(lines)

    def html(self) -> Html:
        """Return each table as an element that unfolds."""
        return self.unfold(not self.folded)

    def unfold(self, unfolded: bool) -> Html:
        """Return the HTML with all tables unfolded, or with none."""
        parts = []
        for table in self.tables:
            head = tag("summary", tag("b", table.name) + f" · {table.title}")
            rows = (
                tag("li", tag("code", name) + f" {kind}" + (f" · {said}" if said else ""))
                for name, kind, said in table.columns
            )
            body = head + tag("ul", join(rows), style=_LIST)
            parts.append(tag("details", body, open="open" if unfolded else None))
        return tag("div", join(parts) or quote(self.text()), class_=f"dpsql-tables {NO_MATH}")


def _pad(text: str, width: int) -> str:
    return text + " " * (width - measure_width(text))
