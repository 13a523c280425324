"""A SUBSAMPLE's options and combiners, chosen by the analyst or by the type of the result; and ``session.register``."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from dpsql.binding.public_statement import Env
from dpsql.binding.relations.catalog import Binder
from dpsql.binding.relations.relation import Field
from dpsql.binding.values.sql_types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type
from dpsql.catalogue.option_names import NUMERIC_COMBINERS
from dpsql.errors import BindError, Error, PolicyError
from dpsql.language import options as opt
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.mechanisms.order_statistics import GeometricGrid, read_cells
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest, make_stability_test
from dpsql.mechanisms.ptr.trimmed import SCALE_STEPS
from dpsql.mechanisms.subsample import subsample as results
from dpsql.mechanisms.subsample.blocks import BlockSource, RegisteredFunction, ReturnKind, ReturnType
from dpsql.mechanisms.subsample.subsample import ConsensusMean, compare_combiners
from dpsql.mechanisms.subsample.votes import Combiner, FeatureVotes, NoisyMode, Participation, StableMode
from dpsql.privacy.filters import ACCOUNTANTS

_PYTHON: dict[Any, Type] = {float: DOUBLE, int: BIGINT, str: TEXT, bool: BOOLEAN}
_TYPES: dict[ReturnKind, Type] = {"DOUBLE": DOUBLE, "BIGINT": BIGINT, "VARCHAR": TEXT, "BOOLEAN": BOOLEAN}
_KINDS: dict[str, ReturnKind] = {str(kind.kind): name for name, kind in _TYPES.items()}
_KINDS["DECIMAL"] = "DOUBLE"
_LONGEST = 1000
_SQL_FUNCTIONS = frozenset(DuckDB.Parser.FUNCTIONS) | frozenset(DuckDB.Parser.FUNCTION_PARSERS)
"""Names that always mean SQL's own functions, whatever was registered."""
_HINT = "write returns='DOUBLE', 'BIGINT', 'VARCHAR' or 'BOOLEAN', or a list of these such as 'VARCHAR[]'."


def registered(
    name: str, function: Callable[..., object], returns: Any, length: int | None
) -> RegisteredFunction:
    """Return the function given to ``session.register``.

    Raises:
        PolicyError: the name can't be a function's.
        BindError: no function, the name of a SQL function, or a type or length that results can't have.
    """
    if not name.isidentifier():
        raise PolicyError(f"{name!r} can't be the name of a function.")
    if not callable(function):
        what = f"{name} must be a function: {type(function).__name__} objects can't be called."
        raise BindError(what, hint=f"session.register('{name}', function)")
    if name.upper() in _SQL_FUNCTIONS:
        raise BindError(
            f"SQL has a function {name} already.", hint=f"choose another name, such as my_{name}."
        )
    if returns is None:
        if length is not None:
            hint = "write returns='DOUBLE', length=3."
            raise BindError("a length needs the type of the elements.", hint=hint)
        return RegisteredFunction(function)
    kind = _type_of(returns)
    element = kind.element if kind is not None and kind.kind == "LIST" else kind
    known = _KINDS.get(element.kind) if element is not None else None
    if kind is None or known is None:
        raise BindError(f"{name} can't return {returns!r}.", hint=_HINT)
    if length is not None and (type(length) is not int or not 1 <= length <= _LONGEST):
        raise BindError(f"the length of a result must be between 1 and {_LONGEST}.", hint="write length=3.")
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


# -- options ----------------------------------------------------------------------------------------------------


@opt.reads("results")
def _read_results(node: exp.Expr, what: str) -> tuple[Any, ...]:
    """Read a tuple of literals, the results that may win a vote, as in Python: 1 is an integer, 1.0 is not."""
    items = node.expressions if isinstance(node, exp.Tuple | exp.Array) else [node]
    found: list[str | int | float] = []
    for item in items:
        if not isinstance(item.this if isinstance(item, exp.Neg) else item, exp.Literal):
            raise bind_error(node, f"{what} must be literals.", f"write {what} = ('a', 'b').")
        number = 0 if item.is_string else opt.read_number(item, what)
        whole = to_sql(item).lstrip("- ").isdigit()
        found.append(item.name if item.is_string else int(number) if whole else float(number))
    return tuple(found)


_FOR: dict[str, tuple[str, tuple[str, ...]]] = {
    "trim": ("combine", ("trimmed_mean", "winsorized_mean")),
    "most": ("combine", ("noisy_votes",)),
    "top": ("combine", ("noisy_votes",)),
    "rounds": ("sampling", ("rounds",)),
    "units": ("sampling", ("bernoulli",)),
}
"""Options that require others: an option without effect is a mistake."""
BLOCKS = 128
"""The default number of blocks: public, and a power of two, which groups fastest."""
AUTO_BLOCKS = 512
"""The default number of blocks for bounds = AUTO: testing their consensus takes some hundreds at ε = 1."""
ROUNDS = 4
_POINTS = 1 << 16
_UNBOUNDED = GeometricGrid(-30, 64)
"""The grid of a median of block results without given bounds."""


@dataclass
class Subsample:
    """One block being bound: its options, and the combiners of its outputs."""

    binder: Binder
    select: exp.Select
    options: opt.Options
    env: Env
    registered: tuple[str, exp.Expr] | None = field(init=False)
    """The registered function that is called, with the name of its output."""
    returns: ReturnType | None = None
    """The declared type of its result."""
    unbounded: bool = field(init=False)
    """Whether numbers are combined without declared bounds."""

    def __post_init__(self) -> None:
        options = self.options
        self.registered = self._find_registered()
        if self.registered is not None:
            self.returns = self.binder.catalog.functions[self.registered[1].name.lower()].returns
        self.unbounded = options.get("bounds") == "AUTO"
        tested = self.unbounded and options.get("combine") != "median"
        self.blocks = int(options.get("blocks", AUTO_BLOCKS if tested else BLOCKS))
        if not 2 <= self.blocks <= 1_000_000:
            raise options.refuse("blocks", "blocks must be between 2 and 1,000,000.")
        stable = options.get("combine") == "stable_mode"
        self.sampling = str(options.get("sampling") or ("rounds" if stable else "partition"))
        if self.sampling != "partition" and not stable:
            what = f"{self.sampling} sampling is for the stable mode."
            raise options.refuse("sampling", what, "write combine = 'stable_mode'.")
        self.rounds = int(options.get("rounds", ROUNDS)) if self.sampling == "rounds" else 1
        for option, (other, values) in _FOR.items():
            given = self.sampling if other == "sampling" else options.get(other)
            if options.get(option) is not None and given not in values:
                listed = " or ".join(f"'{value}'" for value in values)
                raise options.refuse(option, f"{option} goes with {other} = {listed}.")

    def _find_registered(self) -> tuple[str, exp.Expr] | None:
        for item in self.select.expressions:
            inner = item.unalias()
            if isinstance(inner, exp.Anonymous) and inner.name.lower() in self.binder.catalog.functions:
                if len(self.select.expressions) != 1:
                    raise bind_error(inner, "a registered function must be the only output.")
                return item.alias or inner.name.lower(), inner
        return None

    def width(self, f: Field) -> int | None:
        """Return the number of coordinates of a result; None unless it is a vector of public length."""
        element = f.typed.type.element
        known = self.returns.length if self.returns is not None else None
        return known if element is not None and element.numeric else None

    def combiner_name(self, f: Field) -> str:
        """Return the name of the combiner of one output; BindError if the output's type doesn't fit it."""
        kind, wanted = f.typed.type, self.options.get("combine")
        number = kind.numeric or self.width(f) is not None
        if self.unbounded and wanted in (*NUMERIC_COMBINERS, None) and number:
            if wanted not in ("trimmed_mean", "median", None) or self.width(f) is not None:
                what = "bounds = AUTO is for the trimmed mean and the median of single numbers."
                hint = "write combine = 'trimmed_mean', or bounds = (-1, 1)."
                raise self.options.refuse("bounds", what, hint)
            return wanted or "trimmed_mean"
        if wanted is None:
            return "median" if number else "noisy_mode"
        why, hint = f"needs numbers, and {f.name} is {kind.sql}.", "use 'noisy_mode'."
        element = kind.element or kind
        if wanted in NUMERIC_COMBINERS and not number:
            if self.returns is not None and element.numeric:
                why = f"needs to know how long the lists of {f.name} are."
                hint = "register the function with length = ..., the same for every block."
            raise self.options.refuse("combine", f"{wanted} {why}", hint)
        if wanted == "noisy_votes" and element.kind != "TEXT":
            why = f"are for texts and lists of them, and {f.name} is {kind.sql}."
            raise self.options.refuse("combine", f"{wanted} {why}", hint)
        return str(wanted)

    def needs_delta(self, f: Field, kind: str) -> bool:
        """Return whether a combiner needs a share of delta."""
        if kind == "median" and not self.unbounded and "delta" in self.options.values:
            # for vectors, whose coordinates then get more than equal parts of epsilon
            return bool(self.options.get("delta")) and self.width(f) is not None
        unlisted = kind == "noisy_mode" and self._candidates(f) is None
        return kind == "stable_mode" or unlisted or (kind == "trimmed_mean" and self.unbounded)

    def _candidates(self, f: Field) -> tuple[Any, ...] | None:
        """Return the public results that may win a vote; None if unknown."""
        given = self.options.get("candidates")
        if given is not None:
            known = self.registered is None or (self.returns is not None and not self.returns.many)
            return self._as_results(f, given) if known else tuple(given)
        if f.typed.values is not None:
            return tuple(f.typed.values)
        return (True, False) if f.typed.type.kind == "BOOLEAN" else None

    def _as_results(self, f: Field, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return candidates with the blocks' types: a vote for 1.50 is one for a decimal, not for a double."""
        kind = f.typed.type
        parts = ", ".join(f"CAST({exp.Literal.string(str(v)).sql('duckdb')} AS {kind.sql})" for v in given)
        try:
            table = self.binder.finish.finish(f"SELECT UNNEST([{parts}]) AS v", {}, {})
            values = read_cells(table.column("v"))
            same = kind.kind not in ("INTEGER", "DECIMAL") or all(
                Fraction(v) == Fraction(str(w)) for v, w in zip(values, given, strict=True)
            )
        except (Error, ValueError):
            same = False
        if not same:
            raise self.options.refuse("candidates", f"{f.name} is {kind.sql}, which not all candidates are.")
        return tuple(values)

    def combiner(
        self, f: Field, kind: str, epsilon: Fraction, delta: Fraction, participation: Participation | None
    ) -> Combiner:
        """Return the combiner of one output; PrivacyError if it needs a range that was not given."""
        accountant = self.binder.catalog.accountant
        if kind == "stable_mode":
            slack = participation.failure if participation is not None else Fraction(0)
            if participation is not None and slack >= delta:
                what = f"with {participation.runs:,} runs, a unit may be in too many of them more often than delta allows."
                hint = "write a smaller epsilon (which makes more runs), or sampling = 'rounds'."
                raise self.options.refuse("sampling", what, hint)
            rounds = participation.cap if participation is not None else self.rounds
            test = "GAUSSIAN" if ACCOUNTANTS[accountant].has_rule else "PURE"
            return StableMode(f.name, make_stability_test(test, epsilon, delta, slack=slack), rounds)
        if kind == "noisy_mode":
            candidates = self._candidates(f)
            exponential = ACCOUNTANTS[accountant].has_rule
            if candidates is not None:
                return NoisyMode(f.name, epsilon, candidates, exponential=exponential)
            return NoisyMode(f.name, epsilon / 2, None, OptimalTest(epsilon / 2, delta, 2), exponential)
        bounds = self.options.get("bounds")
        if self.unbounded and kind == "median":
            return results.BlockMedian(f.name, results.UnboundedRange(_UNBOUNDED), epsilon)
        if self.unbounded:
            return self._consensus(f, epsilon, delta)
        if bounds is None:
            hint = "write OPTIONS (bounds = (-1, 1)), or bounds = AUTO, which needs a delta."
            raise privacy_error(self.options.mode_node, f"{f.name} needs the range of its results.", hint)
        if bounds[0] == bounds[1]:
            raise self.options.refuse("bounds", "the bounds leave no room.")
        grid = results.ResultRange(bounds[0], bounds[1], _POINTS)
        if (many := self.width(f)) is not None:
            if delta and (share := results.split_by_rho(epsilon, delta, many)) > epsilon / many:
                medians = (results.BlockMedian(f.name, grid, share),) * many
                return results.Coordinates(f.name, medians, (epsilon, delta))
            parts = (self._numeric(f, kind, grid, epsilon / many),) * many
            return results.Coordinates(f.name, parts)
        return self._numeric(f, kind, grid, epsilon)

    def _consensus(self, f: Field, epsilon: Fraction, delta: Fraction) -> ConsensusMean:
        """Return the combiner of numbers without bounds: three eighths of epsilon for each test, a quarter for the noise."""
        test = make_stability_test("AUTO", 3 * epsilon / 8, delta / 2)
        trim = self._read_trim() or Fraction(1, 4)
        return ConsensusMean(f.name, test, LaplaceNoise(epsilon / 4, SCALE_STEPS), trim)

    def _read_trim(self) -> Fraction | None:
        """Return the fraction of results to leave out at either end."""
        part: Fraction | None = self.options.get("trim")
        if part is not None and part >= Fraction(1, 2):
            raise self.options.refuse("trim", "trim must be below 0.5.", "write trim = 0.1.")
        return part

    def _numeric(
        self, f: Field, kind: str, grid: results.ResultRange, epsilon: Fraction
    ) -> results.BlockMean | results.BlockMedian | results.WinsorizedMean:
        """Return the combiner of numbers, or of one coordinate of vectors."""
        if kind == "median":
            confidence = self.options.confidence
            return results.BlockMedian.with_interval(f.name, grid, epsilon, self.blocks, confidence)
        part = self._read_trim()
        if kind == "winsorized_mean":
            return results.WinsorizedMean(f.name, grid, epsilon, trim=part)
        trim = math.floor((part or Fraction(1, 10)) * self.blocks) if kind == "trimmed_mean" else 0
        return results.BlockMean(f.name, grid, LaplaceNoise(epsilon, _POINTS), trim)

    def comparison(self, f: Field, kind: str, epsilon: Fraction) -> tuple[str, ...]:
        """Return EXPLAIN's comparison of an output's combiners."""
        bounds = self.options.get("bounds")
        if kind not in NUMERIC_COMBINERS or bounds is None or self.unbounded:
            return ()
        grid, trim = results.ResultRange(bounds[0], bounds[1], _POINTS), self.options.get("trim")
        share = epsilon / (self.width(f) or 1)
        confidence = self.options.confidence
        return (compare_combiners(f.name, kind, grid, share, self.blocks, trim, confidence),)

    def feature_votes(self, source: BlockSource, f: Field, epsilon: Fraction) -> FeatureVotes:
        """Return the combiner of lists of names: noisy votes for each public name, or the names with most votes."""
        features = self.options.get("candidates")
        if features is None or not all(isinstance(name, str) for name in features):
            hint = "write OPTIONS (candidates = ('age', 'income'))."
            what = f"the names that {f.name} may contain must be public."
            raise privacy_error(self.options.mode_node, what, hint)
        names = tuple(dict.fromkeys(str(name) for name in features))
        most = min(int(self.options.get("most", len(names))), len(names))
        top = self.options.get("top")
        if top is not None and int(top) > len(names):
            raise self.options.refuse("top", f"there are {len(names)} candidates.")
        noise, share = (LaplaceNoise(epsilon, 1, 2 * most), None) if top is None else (None, epsilon)
        return FeatureVotes(source, f.name, f.name, names, most, noise, top, share, self.options.confidence)
