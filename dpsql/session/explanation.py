"""Explanations as plain data, and their text, HTML and JSON: of plans, prices, answers and refusals.

They are independent of session, engine and ledger, because clients of a server read them, too.
"""

from __future__ import annotations

import json
from fractions import Fraction

import pyarrow as pa

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
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.strategies import StrategyChoice
from dpsql.numerics.exact_numbers import make_values, write_number
from dpsql.privacy.amounts import SYMBOLS
from dpsql.privacy.events import Event
from dpsql.report.tables import NO_MATH, Display, Html, Sheet, clip_text, join, tag
from dpsql.session.result import Result

SHOWN_TEXT = 400
"""The most characters of the statement that are shown."""

_RULES: tuple[tuple[type[Error], str], ...] = (
    (
        PrivacyError,
        "Rows of a private table become public only through a mechanism: a noisy aggregate, a choice among public candidates, or "
        "a test, with a public bound on the effect of one privacy unit.",
    ),
    (
        BudgetExceeded,
        "Before any data are read, the statement's loss is compared with the remaining budget, and with the policy's limit for "
        "one query.",
    ),
    (ParseError, "A text is parsed before anything is paid; no data were read."),
    (
        PostprocessingError,
        "The release is paid and stored; the SQL above it failed on released values alone.",
    ),
    (
        BindError,
        "Names, types and options are checked against policy and schema before anything is paid; no private row was read.",
    ),
    (
        EngineError,
        "The charge was durable before data were read. The reason of the failure is withheld, because it could reveal values "
        "that were not paid for.",
    ),
    (Interrupted, "A stop gives nothing back once data were read, because its time could depend on them."),
)


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
        lines = [clip_text(self.statement, SHOWN_TEXT), f"was {self.outcome}."]
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
    return Why(text, "refused", (WhyPart("Why it was refused", tuple(explain_error(error))),))


def explain_error(error: Error) -> list[str]:
    """Return an error's sentence with its excerpt, and the rule behind it."""
    rule = next((rule for kind, rule in _RULES if isinstance(error, kind)), "")
    excerpt = "\n".join(error.excerpt())
    sentence = f"{error.message}\n{excerpt}" if excerpt else error.message
    return [end_sentence(sentence), *([rule] if rule else [])]


def end_sentence(sentence: str) -> str:
    """Return a note as a sentence."""
    first, blank, _ = sentence.partition(" ")
    if (
        blank and first.isidentifier() and first[0].isascii() and first[0].islower()
    ):  # a word, neither a name nor a sign
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
    return sentence if "\n" in sentence or sentence.endswith((".", "!", "?")) else f"{sentence}."


_FIXED_WIDTH = (
    "text-align: left; white-space: pre-wrap; "
    "font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
)
SHORT_SQL = 12
"""The most lines of exact SQL that a terminal shows by default."""


@dataclass(frozen=True, repr=False)
class Explanation(Display):
    """A plan in words: ``str()`` is the text, ``.sql`` the exact queries, ``.json()`` the whole for programs.

    A notebook shows it as HTML with the exact SQL folded away; ``repr()`` omits SQL of more than a few lines. For
    several statements, ``parts`` are their explanations, and ``price`` is the total.
    """

    sentences: tuple[str, ...]
    price: str
    sql: tuple[str, ...]
    finish: str
    as_json: bool = False
    errors: Errors | None = None
    event: Event | None = None
    parts: tuple[Explanation, ...] = ()
    debit: Event | None = None
    """The charge on the analyst's share alone, for stored answers that another analyst paid for."""
    mean_errors: tuple[tuple[int, tuple[tuple[str, float], ...]], ...] = ()
    """Expected absolute errors of output columns for several numbers of rows per group, in ascending order."""
    least_caps: bool = False
    """Whether these errors assume caps of 1, because the caps are found privately."""
    strategies: tuple[StrategyChoice, ...] = ()
    """The strategies for numbers that are asked together, if there was a choice."""

    @property
    def expected_error(self) -> dict[str, float]:
        """The expected absolute error by output column, in its own units, if public numbers determine it.

        It covers noise and public bias (grid steps, the ranks by which MIN and MAX move inward). It excludes the effect
        of caps and clipping, which ``OPTIONS (report_cut = TRUE)`` reports. Errors that depend on the rows (means,
        spreads, quantiles) assume 1,000 rows spread evenly between the bounds. If caps are to be found, it assumes a
        cap of 1, the smallest: noise is proportional to the cap, and the result's ``expected_error`` uses the cap
        found. If bounds are to be found, only the result knows it.
        """
        return {name: error for part in (self, *self.parts) for name, error in part._first_errors}

    @property
    def _first_errors(self) -> tuple[tuple[str, float], ...]:
        return self.mean_errors[0][1] if self.mean_errors else ()

    def __str__(self) -> str:
        queries = _format_queries(self)
        rows = [self._write_text()]
        for query in queries:
            rows += ["", "Exact SQL:", *("  " + line for line in query.split("\n"))]
        return "\n".join(rows)

    def text(self) -> str:
        """Return the text without long SQL."""
        lines = sum(query.count("\n") + 1 for query in _format_queries(self))
        short = f"{self._write_text()}\n\nExact SQL: {lines} lines, in .sql"
        return str(self) if lines <= SHORT_SQL else short

    def _write_text(self) -> str:
        """Return the text before the exact SQL, with the total price first."""
        if self.parts:
            heads = (f"Statement {i} of {len(self.parts)}:" for i in range(1, len(self.parts) + 1))
            texts = (f"{head}\n{part._write_text()}" for head, part in zip(heads, self.parts, strict=True))
            return "\n\n".join([self.price, *texts])
        rows = [self.price, *(f"{i}. {sentence}" for i, sentence in enumerate(self.sentences, 1))]
        if said := self._describe_mean_errors():
            rows.append(said)
        if self.errors is not None:
            rows += ["", *self.errors.lines()]
        return "\n".join(rows)

    def html(self) -> Html:
        """Return the explanation as HTML, with the exact SQL folded away."""
        parts = [self._write_html()]
        for number, part in enumerate(self.parts, 1):
            parts += [tag("h4", f"Statement {number} of {len(self.parts)}"), part._write_html()]
        queries = _format_queries(self)
        if queries:
            text = "\n\n".join(queries)
            many = f"Exact SQL ({text.count(chr(10)) + 1} lines)"
            parts.append(tag("details", join([tag("summary", many), tag("pre", text, style=_FIXED_WIDTH)])))
        return tag("div", join(parts), class_=f"dpsql-explanation {NO_MATH}")

    def _write_html(self) -> Html:
        parts = [tag("p", self.price)]
        if self.parts:
            return parts[0]
        if self.sentences:
            items = join(tag("li", sentence) for sentence in self.sentences)
            parts.append(tag("ol", items, style="list-style: decimal; padding-left: 2em"))
        if said := self._describe_mean_errors():
            parts.append(tag("p", said))
        if self.errors is not None:
            parts += [tag("p", self.errors.title), self.errors.sheet.html()]
        return join(parts)

    def _describe_mean_errors(self) -> str:
        """Return a sentence on the columns without an error in the table; empty if it has all of them."""
        listed = () if self.errors is None else tuple(name for name, _ in self.errors.rows)
        by_name = {
            name: [dict(errors)[name] for _, errors in self.mean_errors]
            for name, _ in self._first_errors
            if not any(row == name or row.startswith(f"{name}, of ") for row in listed)
        }
        if not by_name:
            return ""
        fixed = {name: errors[0] for name, errors in by_name.items() if len(set(errors)) == 1}
        told = [f"{name} ±{_short(error)}" for name, error in fixed.items()]
        numbers = [f"{rows:,}{'' if place else ' rows'}" for place, (rows, _) in enumerate(self.mean_errors)]
        for name, errors in by_name.items():
            if name not in fixed:
                each = (f"±{_short(e)} of {number}" for e, number in zip(errors, numbers, strict=True))
                told.append(f"{name} {', '.join(each)}")
        rows = " (rows spread evenly between the bounds)" if len(fixed) < len(by_name) else ""
        least = ", with caps of 1 (noise grows in proportion to those that are found)"
        caps = least if self.least_caps else ""
        return f"Mean absolute error{rows}{caps}: {('; ' if rows else ', ').join(told)}."

    def json(self) -> str:
        """Return a JSON object: sentences, price, sql, finish, errors by epsilon, the expected error of each column.

        ``strategies`` lists the chosen strategies, with the root mean squared error of one number by strategy and
        column. For several statements, ``statements`` is a list of such objects, with the total price.
        """
        if self.parts:
            each = [json.loads(part.json()) for part in self.parts]
            return json.dumps({"statements": each, "price": self.price}, indent=2)
        said = {"sentences": self.sentences, "price": self.price, "sql": self.sql, "finish": self.finish}
        errors = self.errors.json() if self.errors is not None else {}
        told: dict[str, object] = {**said, "errors": errors, "expected_error": self.expected_error}
        if self.strategies:
            chosen = ({"chosen": s.chosen, "expected_rmse": s.by_name()} for s in self.strategies)
            told["strategies"] = list(chosen)
        return json.dumps(told, indent=2)

    def result(self) -> Result:
        """Return EXPLAIN's answer in SQL, a relation of one column."""
        lines = [self.json()] if self.as_json else str(self).splitlines()
        return Result(pa.table({"plan": make_values(lines, pa.string())}), whole=True)


@dataclass(frozen=True)
class Errors:
    """Expected errors by the statement's epsilon: one row per answer, one column per epsilon."""

    epsilons: tuple[Fraction, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    own: Fraction
    confidence: float
    currency: str = "epsilon"
    """The currency of ``epsilons``, that of the statement: ``epsilon``, ``mu`` or ``rho``."""

    @property
    def title(self) -> str:
        """The description of the table's rows."""
        others = "epsilons" if self.currency == "epsilon" else self.currency
        return f"Error that {self.confidence:.4g} of all answers stay within, at other {others}:"

    @property
    def sheet(self) -> Sheet:
        """A small table, with the statement's own epsilon in brackets."""
        sign = SYMBOLS[self.currency]
        heads = [
            f"[{sign}={write_number(e)}]" if e == self.own else f"{sign}={write_number(e)}"
            for e in self.epsilons
        ]
        rows = [[name, *("±" + _short(error) for error in errors)] for name, errors in self.rows]
        return Sheet.of(["", *heads], rows, heads)

    def lines(self) -> list[str]:
        """Return the title and the table as lines of text."""
        return [self.title, *(" " + line for line in self.sheet.text().split("\n"))]

    def json(self) -> dict[str, dict[str, float]]:
        """Return the errors by answer and epsilon."""
        return {
            name: {write_number(e): error for e, error in zip(self.epsilons, errors, strict=True)}
            for name, errors in self.rows
        }


def _format_queries(explanation: Explanation) -> list[str]:
    """Return an explanation's exact SQL, laid out; over several statements without duplicates."""
    if not explanation.sql:
        return []
    from dpsql.exact.normal_form import (
        format_sql,  # imports a parser, which the sentences alone don't need
    )

    return [format_sql(query) for query in explanation.sql]


def _short(error: float) -> str:
    """Return four significant digits; integers have thousands separators."""
    if error < 1000:
        return f"{error:.4g}"
    return f"{float(f'{error:.4g}'):,.0f}".replace(",", " ")


@dataclass(frozen=True)
class Description:
    """A statement as it would be answered now.

    Args:
        schema: names and Arrow types of the answer's columns; None if they depend on parameters without values.
            Integers are int64 here, decimals in an answer with larger ones.
        parameters: names and guessed types of the parameters without values, in order.
        price: the charge, as the session's accountant writes it; empty if free.
    """

    schema: pa.Schema | None
    parameters: pa.Schema
    price: str
