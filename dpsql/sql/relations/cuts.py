"""What would choose private rows by other private rows: samples, cuts, windows without a partition. All are refused."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.dialect import span_of
from dpsql.sql.parse import PIVOTED


def refuse_samples(node: exp.Expr) -> None:
    """Refuses samples, PIVOT and the like of a FROM item that is private."""
    for key in ("sample", "pivots", "laterals", "joins"):
        if node.args.get(key):
            what = {"sample": "a sample can't", "pivots": "PIVOT and UNPIVOT can't"}.get(key, "this can't")
            hint = "aggregate all of them." if key != "pivots" else PIVOTED
            raise PrivacyError(f"{what} be taken of private rows.", span=span_of(node), hint=hint)


def refuse_cuts(query: exp.Expr) -> None:
    """Refuses LIMIT and OFFSET behind private rows in parentheses."""
    cut = query.args.get("limit") or query.args.get("offset")
    if cut is not None:
        raise PrivacyError(
            "private rows have no order to cut by.",
            span=span_of(cut) or span_of(query),
            hint="aggregate first; the answer may be ordered and cut freely.",
        )


def refuse_row_choice(select: exp.Select) -> None:
    """Refuses what chooses rows by other rows, below the aggregation."""
    for key, what in (
        ("sample", "USING SAMPLE"),
        ("cluster", "CLUSTER BY"),
        ("windows", "WINDOW"),
        ("locks", "FOR"),
    ):
        if select.args.get(key):
            hint = {"sample": "aggregate all of them.", "windows": "write the window after OVER."}.get(key)
            found = select.args[key]
            place = span_of(found[0] if isinstance(found, list) else found)
            raise PrivacyError(
                f"{what} can't be used on private rows.",
                span=place or span_of(select.expressions[0]),
                hint=hint,
            )
