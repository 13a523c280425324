"""Every error that dpsql raises, and how each shows itself.

    Error                    the root: catch this to catch all of ours
    ├── ParseError           the text is not a dpsql statement
    ├── BindError            a name or a type does not fit
    ├── PrivacyError         well formed, but it can't be released (or its sensitivity is unknown)
    ├── BudgetExceeded       it could be released, but costs more than is left
    ├── PolicyError          the policy file is wrong
    ├── LedgerError          the ledger can't be read, written or trusted
    ├── ServerError          the owner's server can't be reached, or does not take this client
    ├── EngineError          the engine failed after data were touched; the message is withheld
    ├── PostprocessingError  the SQL over what was released failed on it: paid, and the corrected text is free
    └── Interrupted          the user stopped the statement; what was reserved stays charged

An error is about the analyst's text, never about data: it carries a message, the span of the text that it
speaks of, and a hint with something to type. It renders itself as three lines, in a notebook, a terminal or
a plain traceback alike.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable

Span = tuple[int, int]
"""Half-open character range ``(start, end)`` in the text of the cell."""


def warn_deprecated(old: str, new: str, since: str) -> None:
    """Warn that a public name still works and will go, and say what to write instead.

    The warning is a FutureWarning, which Python shows by default, and points at the caller's caller. What is deprecated in one
    minor version works in all versions of it, and may be removed in the next (page "Stability").

    Args:
        old: the name, option or policy key, as the user writes it.
        new: what to write instead.
        since: the version that deprecates it, such as ``"1.1"``.
    """
    warnings.warn(f"{old} is deprecated since dpsql {since}: write {new}.", FutureWarning, stacklevel=3)


_EXCERPT, _NARROW = 100, 72
"""Characters of a line in an excerpt; in a notebook, whose cells may be narrow."""


class Error(Exception):
    """Root of all dpsql errors.

    Args:
        message: one sentence about this cell, without data.
        span: the characters of the text that the sentence speaks of.
        hint: what to write instead.
        text: the whole text that ``span`` points into; usually added later by :meth:`located`.
        keys: of a policy, the keys that the sentence speaks of, outermost first.
        sqlstate: the SQL standard's code, if it says more than the class does.
    """

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        hint: str | None = None,
        text: str | None = None,
        keys: tuple[str, ...] = (),
        sqlstate: str = "",
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message, self.span, self.hint, self.text, self.keys = message, span, hint, text, keys
        self.answered: tuple[object, ...] = ()
        """Results of the statements before it in the cell: they were paid for, and are not lost."""

    def located(self, text: str) -> Error:
        """Remember the text that the span points into, and return the error. The first text stays."""
        if self.text is None:
            self.text = text
        return self

    def excerpt(self, width: int = _EXCERPT) -> list[str]:
        """Return the line of the text with a row of carets under it, cut to a width; nothing when there is no span."""
        if self.span is None or self.text is None:
            return []
        start = max(0, min(self.span[0], len(self.text)))
        end = max(start, min(self.span[1], len(self.text)))
        first = self.text.rfind("\n", 0, start) + 1
        last = self.text.find("\n", start)
        last = len(self.text) if last < 0 else last
        line = self.text[first:last].replace("\t", " ")
        gutter = f"  {self.text.count(chr(10), 0, start) + 1} |   "
        carets = "^" * max(1, min(end, last) - start)
        offset = start - first
        if len(line) > width:  # a line that wraps would be parted from its carets
            cut = max(0, offset - 40)
            line, offset = line[cut : cut + width], offset - cut
            carets = carets[: max(1, width - offset)]
        return [gutter + line, " " * (len(gutter) + offset) + carets]

    def lines(self, width: int = _EXCERPT) -> list[str]:
        """Return the class and the sentence, the excerpt with carets, and the hint."""
        rows = [f"{type(self).__name__}: {self.message}", *self.excerpt(width)]
        if self.hint:
            rows.append(f"Hint: {self.hint}")
        return rows

    def __str__(self) -> str:
        return "\n".join([self.message, *self.lines()[1:]])

    def _render_traceback_(self) -> list[str]:
        """Return our lines instead of a traceback, for IPython. The cell still fails."""
        return self.lines(_NARROW)


class ParseError(Error):
    """The text is not a dpsql statement. Nothing was charged."""


class BindError(Error):
    """A table, column, function, option or type does not exist or does not fit. Nothing was charged.

    ``name`` is the function that the sentence speaks of, where whoever raised it did not know the analyst's text.
    """

    name: str | None = None
    decided: bool = False
    """True where no other way to bind the statement is to be tried."""


class PrivacyError(Error):
    """The statement is well formed but can't be released privately. Nothing was charged."""


class BudgetExceeded(Error):
    """The statement costs more than is left. Nothing was charged."""


class PolicyError(Error):
    """The policy is wrong: an unknown key, reversed bounds, a table without privacy unit."""


class LedgerError(Error):
    """The ledger can't be opened, written or trusted. No answer leaves without a durable debit."""


class ServerError(Error):
    """The owner's server can't be reached, does not know the token, or does not do this. Nothing was asked of it."""


class EngineError(Error):
    """The engine failed while it read private data. The statement stays charged; the reason is withheld."""


class PostprocessingError(Error):
    """The SQL over what was released failed on the released values. These are paid and stored: the corrected text is free."""

    name: str | None = None


class Interrupted(Error):
    """The statement was stopped by the user. What was reserved stays charged; before that, nothing is."""


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``name``, or None when none is close.

    >>> find_nearest("epsilom", ["epsilon", "delta"])
    'epsilon'
    >>> find_nearest("unit", ["privacy_unit", "max_unit_rows"])
    'privacy_unit'
    """
    folded, name = {k.lower(): k for k in known}, name.lower()
    found = difflib.get_close_matches(name, folded, n=1, cutoff=0.6)
    if not found:  # of id and patient_id, one is the end of the other
        ends = {k: ((k, name) if len(k) > len(name) else (name, k)) for k in folded}
        found = [
            k
            for k, (longer, part) in ends.items()
            if longer.startswith(f"{part}_") or longer.endswith(f"_{part}")
        ]
    return folded[found[0]] if len(found) == 1 else None


def clip(text: str, most: int = 60) -> str:
    """Return a text, cut short where it is long, for a sentence that repeats it."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def did_you_mean(name: str, known: Iterable[str], write: Callable[[str], str] = str) -> str | None:
    """Return a hint with the nearest known name, else with at most eight names that exist, each as ``write`` gives it."""
    known = list(known)
    close = find_nearest(name, known)
    if close:
        return f"did you mean {write(close)}?"
    if known:
        shown = ", ".join(map(write, known[:8]))
        return f"there is {shown}{f' and {len(known) - 8} more' if len(known) > 8 else ''}."
    return None
