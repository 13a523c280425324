"""``session.register``: a Python function by name, with the type of what it returns.

How block results of a SUBSAMPLE are combined: by the analyst's choice, or by the type of the result.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import BindError, Error, PolicyError
from dpsql.mechanisms.order_statistics import read_cells
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest, make_stability_test
from dpsql.mechanisms.subsample.blocks import BlockSource, RegisteredFunction, ReturnKind, ReturnType
from dpsql.mechanisms.subsample.subsample import (
    BlockMean,
    BlockMedian,
    Coordinates,
    ResultRange,
    WinsorizedMean,
)
from dpsql.mechanisms.subsample.votes import Combiner, FeatureVotes, NoisyMode, Participation, StableMode
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.sql.expressions.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type
from dpsql.sql.parse.dialect import privacy_error
from dpsql.sql.relations.relation import Field

if TYPE_CHECKING:
    from dpsql.sql.subsample.block import Subsample


_PYTHON: dict[Any, Type] = {float: DOUBLE, int: BIGINT, str: TEXT, bool: BOOLEAN}
_KINDS: dict[str, ReturnKind] = {
    "DOUBLE": "DOUBLE", "DECIMAL": "DOUBLE", "INTEGER": "BIGINT", "TEXT": "VARCHAR", "BOOLEAN": "BOOLEAN",
}  # fmt: skip
_TYPES = {"DOUBLE": DOUBLE, "BIGINT": BIGINT, "VARCHAR": TEXT, "BOOLEAN": BOOLEAN}
_LONGEST = 1000
_HINT = "write returns='DOUBLE', 'BIGINT', 'VARCHAR' or 'BOOLEAN', or a list of these such as 'VARCHAR[]'."


def registered(
    name: str, function: Callable[..., object], returns: Any, length: int | None
) -> RegisteredFunction:
    """Read what ``session.register`` was given.

    Raises:
        PolicyError: the name can't be one of a function.
        BindError: a type or a length that results can't have.
    """
    if not name.isidentifier():
        raise PolicyError(f"{name!r} can't be the name of a function.")
    if returns is None:
        if length is not None:
            raise BindError(
                "a length needs the type of the elements.", hint="write returns='DOUBLE', length=3."
            )
        return RegisteredFunction(function)
    kind = _type_of(returns)
    element = kind.element if kind is not None and kind.kind == "LIST" else kind
    known = _KINDS.get(element.kind) if element is not None else None
    if kind is None or known is None:
        raise BindError(f"{name} can't return {returns!r}.", hint=_HINT)
    if length is not None and (
        isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= _LONGEST
    ):
        raise BindError(f"the length of a result lies between 1 and {_LONGEST}.", hint="write length=3.")
    return RegisteredFunction(function, ReturnType(known, kind.kind == "LIST" or length is not None, length))


def _type_of(returns: Any) -> Type | None:
    if isinstance(returns, str):
        return Type.parse(returns)
    if typing.get_origin(returns) in (list, tuple):
        inside = [part for part in typing.get_args(returns) if part is not Ellipsis]
        element = _PYTHON.get(inside[0]) if len(set(inside)) == 1 else None
        return Type("LIST", f"{element.sql}[]", element) if element is not None else None
    return _PYTHON.get(returns) if isinstance(returns, type) else None


def sql_type(returns: ReturnType) -> Type:
    """Return the SQL type of a declared result."""
    element = _TYPES[returns.kind]
    return Type("LIST", f"{element.sql}[]", element) if returns.many else element


COMBINERS = (
    "mean", "median", "trimmed_mean", "winsorized_mean", "noisy_mode", "stable_mode", "noisy_votes",
)  # fmt: skip
_POINTS = 1 << 16


NUMERIC = ("mean", "median", "trimmed_mean", "winsorized_mean")


def width(this: Subsample, f: Field) -> int | None:
    """Return how many coordinates a result has; None where it is no vector of public length."""
    element = f.typed.type.element
    known = this.returns.length if this.returns is not None else None
    return known if element is not None and element.numeric else None


def combiner_name(this: Subsample, f: Field) -> str:
    """Return the name of the combiner of one output, which its type must fit.

    Raises:
        BindError: it does not.
    """
    options, wanted = this.options, this.options.get("combine")
    vector = width(this, f) is not None
    if wanted is None:
        return "median" if f.typed.type.numeric or vector else "noisy_mode"
    element = f.typed.type.element
    if (
        wanted in NUMERIC
        and this.returns is not None
        and element is not None
        and element.numeric
        and not vector
    ):
        raise options.refuse(
            "combine", f"{wanted} needs to know how long the lists of {f.name} are.",
            "register the function with length = ..., the same for every block.",
        )  # fmt: skip
    if wanted in NUMERIC and not f.typed.type.numeric and not vector:
        raise options.refuse(
            "combine", f"{wanted} needs numbers, and {f.name} is {f.typed.type.sql}.", "use 'noisy_mode'."
        )
    kind = element if element is not None else f.typed.type
    if wanted == "noisy_votes" and kind.kind != "TEXT":
        raise options.refuse(
            "combine",
            f"noisy_votes are for texts and lists of them, and {f.name} is {f.typed.type.sql}.",
            "use 'noisy_mode'.",
        )
    return str(wanted)


def needs_delta(this: Subsample, f: Field, kind: str) -> bool:
    """Say whether a combiner needs a share of delta."""
    return kind == "stable_mode" or (kind == "noisy_mode" and candidates_of(this, f) is None)


def candidates_of(this: Subsample, f: Field) -> tuple[Any, ...] | None:
    """Return the public results that may win a vote; None where they are not known."""
    given = this.options.get("candidates")
    if given is not None:
        known = this.registered is None or (this.returns is not None and not this.returns.many)
        return _as_results(this, f, given) if known else tuple(given)
    if f.typed.values is not None:
        return tuple(f.typed.values)
    return (True, False) if f.typed.type.kind == "BOOLEAN" else None


def _as_results(this: Subsample, f: Field, given: Sequence[Any]) -> tuple[Any, ...]:
    """Return candidates as blocks will give them: a vote for 1.50 is one for a decimal, and not for a double."""
    kind = f.typed.type
    parts = ", ".join(f"CAST({exp.Literal.string(str(v)).sql('duckdb')} AS {kind.sql})" for v in given)
    try:
        table = this.binder.finish.finish(f"SELECT UNNEST([{parts}]) AS v", {}, {})
        values = read_cells(table.column("v"))
        same = kind.kind not in ("INTEGER", "DECIMAL") or all(
            Fraction(v) == Fraction(str(w)) for v, w in zip(values, given, strict=True)
        )
    except (Error, ValueError):
        same = False
    if not same:
        raise this.options.refuse("candidates", f"{f.name} is {kind.sql}, which not all candidates are.")
    return tuple(values)


def combiner(
    this: Subsample,
    f: Field,
    kind: str,
    epsilon: Fraction,
    delta: Fraction,
    participation: Participation | None,
) -> Combiner:
    """Return the combiner of one output.

    Raises:
        PrivacyError: it needs a range that was not given.
    """
    accountant = this.binder.catalog.accountant
    if kind == "stable_mode":
        slack = participation.failure if participation is not None else Fraction(0)
        if slack >= delta:
            raise this.options.refuse(
                "sampling",
                f"with {participation.runs if participation else 0:,} runs, a unit may be in too many of them more often "
                "than delta allows.",
                "write a smaller epsilon (which makes more runs), or sampling = 'rounds'.",
            )
        rounds = participation.cap if participation is not None else this.rounds
        return StableMode(f.name, make_stability_test(accountant, epsilon, delta, slack=slack), rounds)
    if kind == "noisy_mode":
        candidates = candidates_of(this, f)
        exponential = ACCOUNTANTS[accountant].has_rule
        if candidates is not None:
            return NoisyMode(f.name, epsilon, candidates, exponential=exponential)
        return NoisyMode(f.name, epsilon / 2, None, OptimalTest(epsilon / 2, delta, 2), exponential)
    bounds = this.options.get("bounds")
    if bounds is None:
        raise privacy_error(
            this.options.mode_node,
            f"{f.name} needs the range of its results.",
            "write OPTIONS (bounds = (-1, 1)).",
        )
    if bounds[0] == bounds[1]:
        raise this.options.refuse("bounds", "the bounds leave no room.")
    grid = ResultRange(bounds[0], bounds[1], _POINTS)
    if (many := width(this, f)) is not None:
        share = epsilon / many
        return Coordinates(f.name, tuple(_numeric(this, f, kind, grid, share) for _ in range(many)))
    return _numeric(this, f, kind, grid, epsilon)


def _numeric(
    this: Subsample, f: Field, kind: str, grid: ResultRange, epsilon: Fraction
) -> BlockMean | BlockMedian | WinsorizedMean:
    """Return what combines numbers, or one coordinate of vectors."""
    if kind == "median":
        return BlockMedian(f.name, grid, epsilon)
    part = this.options.get("trim")
    if part is not None and part >= Fraction(1, 2):
        raise this.options.refuse("trim", "trim must lie below 0.5.", "write trim = 0.1.")
    if kind == "winsorized_mean":
        return WinsorizedMean(f.name, grid, epsilon, trim=part)
    trim = math.floor((part or Fraction(1, 10)) * this.blocks) if kind == "trimmed_mean" else 0
    noise: LaplaceNoise | GaussianNoise = LaplaceNoise(epsilon, _POINTS)
    return BlockMean(f.name, grid, noise, trim)


def feature_votes(
    this: Subsample, source: BlockSource, f: Field, epsilon: Fraction, confidence: float
) -> FeatureVotes:
    """Return what counts lists of names: noisy votes for each of the public names, or the names with most votes."""
    features = this.options.get("candidates")
    if features is None or not all(isinstance(name, str) for name in features):
        raise privacy_error(
            this.options.mode_node,
            f"the names that {f.name} may hold must be public.",
            "write OPTIONS (candidates = ('age', 'income')).",
        )
    names = tuple(dict.fromkeys(str(name) for name in features))
    most = min(int(this.options.get("most", len(names))), len(names))
    top = this.options.get("top")
    if top is not None and int(top) > len(names):
        raise this.options.refuse("top", f"there are {len(names)} candidates.")
    if top is not None:
        return FeatureVotes(
            source, f.name, f.name, names, most, top=int(top), epsilon=epsilon, confidence=confidence
        )
    noise = LaplaceNoise(epsilon, 1, 2 * most)
    return FeatureVotes(source, f.name, f.name, names, most, noise, confidence=confidence)
