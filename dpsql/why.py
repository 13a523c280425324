"""The explanation of an answer or a refusal as plain data, independent of session, engine and ledger.

Clients of a server read the same records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.errors import (
    BindError,
    BudgetExceeded,
    EngineError,
    Error,
    Interrupted,
    ParseError,
    PostprocessingError,
    PrivacyError,
)
from dpsql.report.tables import NO_MATH, Display, Html, clip_text, join, tag

SHOWN_TEXT = 400
"""The most characters of the statement that are repeated."""

_RULES: tuple[tuple[type[Error], str], ...] = (
    (PrivacyError, "Rows of a private table become public only through a mechanism: a noisy aggregate, a choice among public "
                   "candidates, or a test, with a public bound on what one privacy unit can move."),
    (BudgetExceeded, "What a statement may lose is compared with what is left, and with the policy's limit for one query, "
                     "before any data are read."),
    (ParseError, "A text is read before anything is paid; no data were read."),
    (PostprocessingError, "What was released is paid and stored; the SQL above it failed on released values alone."),
    (BindError, "Names, types and options are checked against the policy and the schema before anything is paid; no private row "
                "was read."),
    (EngineError, "The charge was durable before data were touched. Why the engine failed is withheld: it could tell about "
                  "values that were not paid for."),
    (Interrupted, "A stop gives nothing back once data were touched: how far a statement came could tell about them."),
)  # fmt: skip


@dataclass(frozen=True)
class WhyPart:
    """One part of an explanation: a heading and sentences."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Why(Display):
    """The explanation of the last answer or refusal: ``str()`` is the text; a notebook shows lists.

    ``outcome``: ``answered``, ``shown again``, ``refused``, ``failed``, ``interrupted``, ``declared``, ``closed`` or
    ``free``; ``parts``: in reading order.
    """

    statement: str
    outcome: str
    parts: tuple[WhyPart, ...]

    def text(self) -> str:
        lines = [f"{clip_text(self.statement, SHOWN_TEXT)}", f"was {self.outcome}."]
        for part in self.parts:
            lines += ["", f"{part.title}:"]
            for sentence in part.sentences:
                first, *rest = sentence.split("\n")
                lines += [f"  - {first}", *(f"    {line}" for line in rest)]
        return "\n".join(lines)

    def html(self) -> str:
        head = tag("p", tag("code", clip_text(self.statement, SHOWN_TEXT)) + Html(f" was {self.outcome}."))
        shown = [head]
        for part in self.parts:
            items = join(tag("li", sentence, style="white-space: pre-wrap") for sentence in part.sentences)
            shown += [tag("p", tag("strong", part.title)), tag("ul", items)]
        return tag("div", join(shown), class_=f"dpsql-why {NO_MATH}")

    def __str__(self) -> str:
        return self.text()


def explain_refusal(text: str, error: Error) -> Why:
    """Explain the refusal of a text before any session was asked."""
    return Why(text, "refused", (WhyPart("Why it was refused", tuple(say_refusal(error))),))


def say_refusal(error: Error) -> list[str]:
    """Return an error's sentence with its excerpt, and the rule behind it."""
    rule = next((rule for kind, rule in _RULES if isinstance(error, kind)), "")
    excerpt = "\n".join(error.excerpt())
    sentence = f"{error.message}\n{excerpt}" if excerpt else error.message
    return [end_sentence(sentence), *([rule] if rule else [])]


def end_sentence(sentence: str) -> str:
    """Return a note as a sentence."""
    begins = re.match(r"[a-z]\w* ", sentence)  # one of our words, neither a name nor a sign
    told = f"{sentence[:1].upper()}{sentence[1:]}" if begins else sentence
    return told if "\n" in told or told.endswith((".", "!", "?")) else f"{told}."
