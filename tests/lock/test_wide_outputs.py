"""Outputs that are integers of more than 38 digits: only a text that reads nothing private may have them."""

from __future__ import annotations

import json
from typing import Any, cast, get_args

import pytest

from dpsql.lock.lock import Lock, ShapedText
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.base import Claim, ClaimedText, PublicClaim

OUTPUT = {
    "expression_class": "BOUND_REF",
    "type": "BOUND_REF",
    "alias": "p0",
    "return_type": {"id": "HUGEINT"},
    "index": 0,
}
WIDE = json.dumps({"plans": [{"type": "LOGICAL_PROJECTION", "expressions": [OUTPUT]}]})
TEXT = 'SELECT "r1"."c0" AS "p0" FROM "lent1" AS "r1"'
CLAIMS = get_args(Claim)
"""The kinds of claims: one that is new is refused here until its outputs are proved."""


def prove_typed(*claims: type[Any]) -> None:
    """Prove a text whose only output is wide, and of which nothing shows that it has at most 38 digits."""
    lock = Lock(cast("Any", None), lambda text: "")
    lock.prove = lambda *given: frozenset()  # type: ignore[method-assign]
    mine = [ClaimedText(TEXT, object.__new__(claim)) for claim in claims]
    lock.prove_typed(TEXT, mine, {"lent1": ["c0"]}, ShapedText(TEXT, ()), lambda text: WIDE)


def test_a_public_text_may_have_integers_of_more_than_38_digits() -> None:
    prove_typed(PublicClaim)


@pytest.mark.parametrize("claim", [kind for kind in CLAIMS if kind is not PublicClaim])
def test_a_text_of_any_other_claim_may_not(claim: type[Any]) -> None:
    for claims in ((claim,), (PublicClaim, claim), (claim, PublicClaim)):
        with pytest.raises(Unproved) as caught:
            prove_typed(*claims)
        assert "38 digits" in caught.value.why


def test_a_text_without_a_claim_may_not() -> None:
    with pytest.raises(Unproved) as caught:
        prove_typed()
    assert "a text without a claim" in caught.value.why
