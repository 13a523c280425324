"""The answer of EXPLAIN: the price of a plan, the plan in numbered sentences, its expected errors, and the exact SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from dpsql.mechanisms.strategies import StrategyChoice
from dpsql.numerics.exact_numbers import write_number
from dpsql.privacy.amounts import SYMBOLS
from dpsql.privacy.events import Event
from dpsql.report.tables import NO_MATH, Html, Sheet, join, tag
from dpsql.result import Result

_FIXED_WIDTH = (
    "text-align: left; white-space: pre-wrap; "
    "font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
)
SHORT_SQL = 12
"""Lines of exact SQL that are shown with the rest in a terminal; longer ones are asked for."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """A plan in words. ``str()`` is the text, ``.sql`` the exact queries, ``.json()`` all of it for programs.

    A notebook shows it as HTML, with the exact SQL folded away; ``repr()`` leaves SQL of more than a few lines out.

    Of several statements, ``parts`` are the explanations of each, and ``price`` is that of all together.

    ``errors`` are the expected errors on a small grid of epsilons: ``errors.epsilons`` and, for each answer, its name
    and one error per epsilon.
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
    """The charge to the analyst's share alone, for stored answers that another analyst paid for."""
    mean_errors: tuple[tuple[int, tuple[tuple[str, float], ...]], ...] = ()
    """The expected absolute errors of output columns for several numbers of rows of a group, the smallest number first."""
    least_caps: bool = False
    """True where these are errors for caps of 1, because the caps are found privately."""
    strategies: tuple[StrategyChoice, ...] = ()
    """The ways in which numbers that are asked together are measured, where there was a choice."""

    @property
    def expected_error(self) -> dict[str, float]:
        """The expected absolute error by output column, in its own units, where public numbers tell it.

        It is that of the noise, and of what is public about bias (the steps of a grid, the rows that MIN and MAX are moved
        inward by). What depends on rows that only the data know (means, spreads, quantiles) is told for 1,000 rows spread
        evenly between the bounds. Where caps are to be found it is that of a cap of 1, the least that it can be: noise is as
        many times as much as the cap that is found, for which ``expected_error`` of the result tells it. Where bounds are to be
        found, only the result tells it. What caps and clipping take away is not in it: ``OPTIONS (report_cut = TRUE)`` asks
        for that.
        """
        return {name: error for part in (self, *self.parts) for name, error in part._first_errors}

    @property
    def _first_errors(self) -> tuple[tuple[str, float], ...]:
        return self.mean_errors[0][1] if self.mean_errors else ()

    def __str__(self) -> str:
        queries = _format_queries(self)
        rows = [self._tell()]
        for query in queries:
            rows += ["", "Exact SQL:", *("  " + line for line in query.split("\n"))]
        return "\n".join(rows)

    def __repr__(self) -> str:
        queries = _format_queries(self)
        lines = sum(query.count("\n") + 1 for query in queries)
        return str(self) if lines <= SHORT_SQL else f"{self._tell()}\n\nExact SQL: {lines} lines, in .sql"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": str(self.html())}

    def _tell(self) -> str:
        """Return the text up to the exact SQL: the price of all first."""
        if self.parts:
            told = (
                f"Statement {i} of {len(self.parts)}:\n{part._tell()}" for i, part in enumerate(self.parts, 1)
            )
            return "\n\n".join([self.price, *told])
        rows = [self.price, *(f"{i}. {sentence}" for i, sentence in enumerate(self.sentences, 1))]
        if said := self._say_mean_errors():
            rows.append(said)
        if self.errors is not None:
            rows += ["", *self.errors.lines()]
        return "\n".join(rows)

    def html(self) -> Html:
        """Return the same as HTML, with the exact SQL folded away."""
        parts = [self._write_words()]
        for number, part in enumerate(self.parts, 1):
            parts += [tag("h4", f"Statement {number} of {len(self.parts)}"), part._write_words()]
        queries = _format_queries(self)
        if queries:
            text = "\n\n".join(queries)
            many = f"Exact SQL ({text.count(chr(10)) + 1} lines)"
            parts.append(tag("details", join([tag("summary", many), tag("pre", text, style=_FIXED_WIDTH)])))
        return tag("div", join(parts), class_=f"dpsql-explanation {NO_MATH}")

    def _write_words(self) -> Html:
        parts = [tag("p", self.price)]
        if self.parts:
            return parts[0]
        if self.sentences:
            items = join(tag("li", sentence) for sentence in self.sentences)
            parts.append(tag("ol", items, style="list-style: decimal; padding-left: 2em"))
        if said := self._say_mean_errors():
            parts.append(tag("p", said))
        if self.errors is not None:
            parts += [tag("p", self.errors.title), self.errors.sheet.html()]
        return join(parts)

    def _say_mean_errors(self) -> str:
        """Return a sentence on the columns without an error in the table; empty where the table has all of them."""
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
        for name, errors in by_name.items():
            if name not in fixed:
                each = ", ".join(
                    f"±{_short(error)}{f' of {rows:,} rows' if not place else f' of {rows:,}'}"
                    for place, (error, (rows, _)) in enumerate(zip(errors, self.mean_errors, strict=True))
                )
                told.append(f"{name} {each}")
        rows = " (rows spread evenly between the bounds)" if len(fixed) < len(by_name) else ""
        caps = (
            ", with caps of 1 (noise grows in proportion to those that are found)" if self.least_caps else ""
        )
        return f"Expected absolute error{rows}{caps}: {'; '.join(told) if rows else ', '.join(told)}."

    def json(self) -> str:
        """Return a JSON object: sentences, price, sql, finish, errors by epsilon, the expected error of each column.

        ``strategies`` name those that were chosen, with the root mean squared error of one number by strategy and column.
        Several statements are a list of these under ``statements``, with the price of all.
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
        """Return a relation of one column, for ``EXPLAIN`` in SQL."""
        lines = [self.json()] if self.as_json else str(self).splitlines()
        return Result(pa.table({"plan": lines}), cost_line="nothing was spent", whole=True)


@dataclass(frozen=True)
class Errors:
    """Expected errors by the statement's epsilon: one row per answer, one column per epsilon."""

    epsilons: tuple[Fraction, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    own: Fraction
    confidence: float
    currency: str = "epsilon"
    """The currency of ``epsilons``: that of the statement, ``epsilon``, ``mu`` or ``rho``."""

    @property
    def title(self) -> str:
        """The rows that the table shows."""
        others = "epsilons" if self.currency == "epsilon" else self.currency
        return f"Expected error, with {self.confidence:.4g} probability, at other {others}:"

    @property
    def sheet(self) -> Sheet:
        """A small table with the statement's own epsilon in brackets."""
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
    """Return the exact SQL of an explanation, laid out; of several statements each query once."""
    if not explanation.sql:
        return []
    from dpsql.sql.exact.layout import (
        format_sql,  # a parser, which whoever reads the sentences alone need not wait for
    )

    return [format_sql(query) for query in explanation.sql]


def _short(error: float) -> str:
    """Return four significant digits; whole numbers are grouped by three."""
    if error < 1000:
        return f"{error:.4g}"
    return f"{float(f'{error:.4g}'):,.0f}".replace(",", " ")


@dataclass(frozen=True)
class Description:
    """A statement as it would be answered now.

    Args:
        schema: the columns of the answer: names and Arrow types. Whole numbers are 64-bit integers, where an answer with larger
            ones has decimals. None where the columns depend on parameters without values.
        parameters: names and types of the parameters that were given no values, in order. The types are guesses.
        price: what it would be charged, as the session's accountant writes it; empty where it is free.
    """

    schema: pa.Schema | None
    parameters: pa.Schema
    price: str
