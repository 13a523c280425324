"""Options and named arguments: literals only, read exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from sqlglot import exp

from dpsql.errors import BindError
from dpsql.language.dialect import span_of
from dpsql.language.options import COMMON_OPTIONS, Options, call_of, take_mode
from dpsql.language.statements import parse


def options(clause: str) -> Options:
    tree = parse(f"SELECT WITH DP OPTIONS ({clause}) COUNT(*) FROM t")[0].tree
    assert isinstance(tree, exp.Select)
    found = take_mode(tree, lambda mode: COMMON_OPTIONS if mode == "DP" else None)
    assert found is not None
    assert len(tree.expressions) == 1
    return found


def test_numbers_are_read_exactly() -> None:
    found = options(
        "epsilon = 0.1, delta = 1e-7, max_groups_contributed = 3, noise = gaussian, consistent = FALSE"
    )
    assert found.values == {
        "epsilon": Fraction(1, 10), "delta": Fraction(1, 10**7), "max_groups_contributed": 3,
        "noise": "GAUSSIAN",
        "consistent": False,
    }  # fmt: skip
    assert options("epsilon = .5").get("epsilon") == Fraction(1, 2)
    assert options("noise = 'laplace'").get("noise") == "LAPLACE"
    assert options("EPSILON = (1.)").get("epsilon") == 1


@pytest.mark.parametrize(
    ("clause", "word"),
    [
        ("epsilon = 0", "above 0"), ("epsilon = -1", "above 0"), ("epsilon = NaN", "number"),
        ("epsilon = 'NaN'", "number"),
        ("epsilon = 1e-400", "too small"), ("epsilon = 1 + 1", "number"),
        ("epsilon = NULL", "number"), ("epsilon = infinity", "number"), ("epsilon = '0.1'", "number"),
        ("epsilon = (SELECT 1)", "number"), ("delta = 1", "below 1"), ("delta = -1e-9", "at least 0"),
        ("max_groups_contributed = 1.5", "whole"), ("max_rows_contributed = 0", "whole"),
        ("noise = CAUCHY", "CAUCHY"),
        ("consistent = 1", "TRUE or FALSE"), ("epsilon = 1, EPSILON = 1", "twice"), ("nonsense = 1",
        "nonsense"),
        ("epsilon", "name = value"),  ("0.1 = epsilon", "name = value"),
    ],
)  # fmt: skip
def test_other_values_are_refused_with_a_caret(clause: str, word: str) -> None:
    with pytest.raises(BindError, match=word) as caught:
        options(clause)
    assert caught.value.span is not None


def test_calls_are_read_however_they_are_written() -> None:
    cases = {
        "COUNT(*)": ("COUNT", 1), "count(DISTINCT a)": ("COUNT", 1), "SUM(a) FILTER (WHERE b)": ("SUM", 1),
        "quantile_cont(a, 0.5)": ("QUANTILE_CONT", 2), "percentile_cont(0.5) WITHIN GROUP (ORDER BY "
        "a)": ("QUANTILE_CONT", 2),
        "var_samp(a)": ("VARIANCE", 1), "ABOVE_THRESHOLD(COUNT(*), 3, epsilon => 1) OVER "
        "c": ("ABOVE_THRESHOLD", 2),
    }  # fmt: skip
    for text, (name, count) in cases.items():
        tree = parse(f"SELECT {text} FROM t")[0].tree
        call = call_of(tree.expressions[0])
        assert call is not None, text
        assert (call.name, len(call.args)) == (name, count), text
        assert call.distinct == ("DISTINCT" in text)
        assert (call.where is not None) == ("FILTER" in text)
        assert call.over == ("c" if "OVER" in text else None)
        assert span_of(call.node) is not None
