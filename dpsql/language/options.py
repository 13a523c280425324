"""Parses the OPTIONS clause and named arguments: literals only, each known by name, with exact numbers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

from sqlglot import exp

from dpsql.catalogue.aggregate_names import ALIASES, MECHANISMS, OFFERED_MODES, PRIVATE_CALLS
from dpsql.catalogue.date_units import UNIT_SECONDS
from dpsql.catalogue.option_names import ARGUMENT_NAMES, NULL_OPTIONS, OPTION_NAMES, OptionName
from dpsql.errors import BindError, Error, PrivacyError, did_you_mean
from dpsql.language.dialect import NAME_OF_CLASS, NAMED, ModeClause, bind_error, span_of, to_sql
from dpsql.language.parameter_values import drop_zone
from dpsql.late_dataclass import dataclass
from dpsql.policy.validate import DateBound
from dpsql.privacy.amounts import LARGEST, SMALLEST, SYMBOLS, Amount
from dpsql.privacy.periods import Days, parse_periods

_NUMBER = re.compile(
    r"[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?|\.[0-9]{1,40}([eE][+-]?[0-9]{1,3})?", re.ASCII
)
MIN_EPSILON = Fraction(1, 10**15)
"""The least epsilon: a smaller share is useless, and its noise would not fit the machine's integers."""

OptionReader = Callable[..., object]
"""Reads a value; a BindError names the option or argument."""
Readers = Mapping[str, OptionReader]
_READERS: dict[str, OptionReader] = {}
_Reading = TypeVar("_Reading", bound=OptionReader)


def reads(kind: str) -> Callable[[_Reading], _Reading]:
    """Register a reader by its name in the catalogue."""

    def register(function: _Reading) -> _Reading:
        _READERS[kind] = function
        return function

    return register


@reads("number")
def read_number(node: exp.Expr, what: str, or_else: str = "") -> Fraction:
    """Return the exact value of a numeric literal.

    ``or_else``: the alternative to a number, for the hint.

    Raises:
        BindError: it is not a finite literal number.
    """
    inner: exp.Expr | None = node
    sign = 1
    while isinstance(inner, exp.Neg | exp.Paren) or (
        type(inner) is exp.Cast and inner.is_type("FLOAT", "DOUBLE")
    ):
        sign = -sign if isinstance(inner, exp.Neg) else sign
        inner = inner.this
    if isinstance(inner, exp.Literal) and not inner.is_string and _NUMBER.fullmatch(inner.name):
        return sign * Fraction(inner.name)
    example = "3" if what.startswith(("max_", "min_")) else "0.1"
    hint = f"write {what} as a literal, such as {example}{or_else}."
    raise bind_error(node, f"{what} must be a number.", hint)


@reads("positive")
def read_positive(node: exp.Expr, what: str) -> Fraction:
    """Read a number above 0."""
    value = read_number(node, what)
    if value <= 0:
        raise bind_error(node, f"{what} must be above 0.", f"write {what} as a number such as 0.1.")
    return value


@reads("epsilon")
def read_epsilon(node: exp.Expr, what: str = "epsilon") -> Fraction:
    """Read an epsilon that is not too small; :func:`~dpsql.binding.dp.budget_split.within_limit` checks its upper limit."""
    value = read_positive(node, what)
    if value < MIN_EPSILON:
        raise bind_error(node, f"{what} is too small to be useful.", "write at least 1e-15.")
    return value


@reads("mu")
def read_mu(node: exp.Expr, what: str) -> Amount:
    """Read the mu of a whole statement."""
    return Amount.of_mu(_read_own(node, what))


@reads("rho")
def read_rho(node: exp.Expr, what: str) -> Amount:
    """Read the rho of a whole statement."""
    return Amount("rho", _read_own(node, what))


def _read_own(node: exp.Expr, what: str) -> Fraction:
    value = read_positive(node, what)
    if value < SMALLEST[what]:
        least = f"write at least {float(SMALLEST[what]):g}."
        raise bind_error(node, f"{what} is too small to be useful.", least)
    if value > LARGEST[what]:
        most = f"{what} = {float(LARGEST[what]):g} is the largest."
        raise bind_error(node, f"nothing is hidden under such a {what}.", most)
    return value


def parse_epsilon(text: str) -> Fraction:
    """Return an epsilon written outside SQL; BindError if it is not a finite positive decimal."""
    return read_epsilon(exp.Literal.number(text.strip()))


@reads("delta")
def read_delta(node: exp.Expr, what: str = "delta") -> Fraction:
    """Read a delta of at least 0 and below 1."""
    value = read_number(node, what)
    if not 0 <= value < 1:
        raise bind_error(node, "delta must be at least 0 and below 1.", "write delta = 1e-6.")
    return value


@reads("whole")
def read_whole(node: exp.Expr, what: str, or_else: str = "") -> int:
    """Read a whole number of at least 1."""
    value = read_number(node, what, or_else)
    if value.denominator != 1 or not 1 <= value <= 10**9:
        raise bind_error(node, f"{what} must be a whole number of at least 1.")
    return int(value)


@reads("periods")
def read_periods(node: exp.Expr, what: str) -> Days:
    """Read a period, or a list of them; BindError if one is none."""
    items = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
    texts = [item.name if isinstance(item, exp.Literal) and item.is_string else "" for item in items]
    try:
        return parse_periods(texts)
    except ValueError:
        hint = "periods = ('2025-03', '2025-05 to 2025-08'): years, months or days."
        raise bind_error(node, f"{what} must be periods in quotes.", hint) from None


@reads("pair")
def read_pair(node: exp.Expr, what: str, or_else: str = "") -> tuple[Fraction, Fraction]:
    """Read a pair of bounds, the lower one first."""
    if not isinstance(node, exp.Tuple) or len(node.expressions) != 2:
        hint = f"write {or_else}a pair of numbers in parentheses, the lowest first."
        raise bind_error(node, f"{what} must be a pair.", hint)
    low, high = (_end(item, what) for item in node.expressions)
    if low > high:
        raise bind_error(node, f"{what} are the wrong way round.", "the lower bound comes first.")
    return low, high


@reads("shares")
def read_shares(node: exp.Expr, what: str) -> tuple[Fraction, ...]:
    """Read two or three shares of a budget, which must add up to 1."""
    items = node.expressions if isinstance(node, exp.Tuple) else [node]
    shares = tuple(read_positive(item, what) for item in items)
    if len(shares) not in (2, 3):
        raise bind_error(node, f"{what} has a share for each stage.", f"write {what} as (0.3, 0.7).")
    if sum(shares) != 1:
        wrong = f"the shares of {what} add up to {float(sum(shares)):g}, instead of 1."
        raise bind_error(node, wrong, "write (0.3, 0.7).")
    return shares


def _end(node: exp.Expr, what: str) -> Fraction:
    """Return a number, or the seconds of a literal date, time or interval."""
    moment = moment_of(node)
    if moment is None and isinstance(node, exp.Literal) and node.is_string:
        hint = "leave the quotes of a number out; a date and a moment have their type before them."
        if re.fullmatch(r"\d{4}-\d\d-\d\d", node.name):
            hint = f"write DATE '{node.name}'."
        elif re.fullmatch(r"-?\d+(\.\d+)?", node.name):
            hint = f"write {node.name}, without quotes."
        raise bind_error(node, f"{what} must be a number.", hint)
    return read_number(node, what) if moment is None else Fraction(moment[1])


AUTO = "AUTO"


def _is_auto(node: exp.Expr) -> bool:
    """Return whether a value is the keyword AUTO, not a column of that name."""
    return isinstance(node, exp.Column | exp.Var) and not _is_qualified(node) and node.name.upper() == AUTO


def _is_qualified(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and len(node.parts) > 1


@reads("bounds")
def read_bounds(node: exp.Expr, what: str) -> tuple[Fraction, Fraction] | str:
    """Read a pair of bounds, or AUTO."""
    if _is_auto(node):
        return AUTO
    return read_pair(node, what, "AUTO, without quotes, to find them privately, or ")


@reads("word")
def read_word(node: exp.Expr, what: str) -> str:
    """Read a word."""
    if isinstance(node, exp.Column | exp.Var | exp.Literal | exp.Identifier) and node.name:
        return node.name
    raise bind_error(node, f"{what} must be a word.")


@reads("truth")
def read_truth(node: exp.Expr, what: str) -> bool:
    """Read TRUE or FALSE."""
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    raise bind_error(node, f"{what} must be TRUE or FALSE.")


def read_one_of(*allowed: str, upper: bool = True) -> Callable[[exp.Expr, str], str]:
    """Return a reader of one of these words."""

    def read(node: exp.Expr, what: str) -> str:
        """Read one of the allowed words."""
        if _is_qualified(node):
            raise bind_error(node, f"{what} must be a word, not a column.", did_you_mean(node.name, allowed))
        value = read_word(node, what)
        value = value.upper() if upper else value.lower()
        if value not in allowed:
            raise bind_error(node, f"{what} can't be {value}.", did_you_mean(value, allowed))
        return value

    return read


NONNEGATIVE = "NONNEGATIVE"


@reads("consistent")
def _consistent(node: exp.Expr, what: str) -> bool | str:
    if isinstance(node, exp.Column | exp.Var | exp.Literal) and node.name.upper() == NONNEGATIVE:
        return NONNEGATIVE
    if not isinstance(node, exp.Boolean):
        raise bind_error(node, f"{what} must be TRUE or FALSE, or NONNEGATIVE.")
    return read_truth(node, what)


@reads("cap")
def read_cap(node: exp.Expr, what: str) -> int | str:
    """Read a whole number of at least 1, or AUTO."""
    if _is_auto(node):
        return AUTO
    return read_whole(node, what, ", or as AUTO, without quotes, to find it privately")


@cache
def readers_of(taker: str, rows: tuple[OptionName, ...] = OPTION_NAMES) -> Readers:
    """Return the readers of the options, or of the named arguments, that a mode, a statement or a call takes."""
    return {row.name: _find_reader(row) for row in rows if taker in row.takers}


def _find_reader(row: OptionName) -> OptionReader:
    if row.reads == "one of":
        return read_one_of(*row.words, upper=not row.values[0].startswith("'"))
    return _READERS[row.reads]


def arguments_of(call: str) -> Readers:
    """Return the readers of the named arguments of a call, or of a mode's calls."""
    return readers_of(call, ARGUMENT_NAMES)


COMMON_OPTIONS: Readers = readers_of("DP")


@dataclass(frozen=True)
class Options:
    """The mode and its options, as written; ``nodes`` have the spans for carets."""

    mode: str
    values: Mapping[str, Any]
    nodes: Mapping[str, exp.Expr]
    mode_node: exp.Expr | None = None

    def get(self, name: str, default: object = None) -> Any:
        """Return an option's value, or a default."""
        return self.values.get(name, default)

    @property
    def amount(self) -> Amount | None:
        """The block's greatest loss, in the given currency; None if none is given, BindError if two are."""
        given = [name for name in SYMBOLS if name in self.values]
        if len(given) > 1:
            both = f"{given[0]} and {given[1]} are both given."
            raise self.refuse(given[1], both, "each of them says what the whole may lose: keep one.")
        value = self.get(given[0]) if given else None
        return Amount("epsilon", value) if isinstance(value, Fraction) else value

    @property
    def confidence(self) -> float:
        """The level of the intervals; BindError if it is not strictly between 0 and 1 as a float."""
        value = float(self.get("confidence", Fraction(95, 100)))
        if not 0 < value < 1:
            what = "confidence must lie between 0 and 1."
            raise self.refuse("confidence", what, "write confidence = 0.95.")
        return value

    def refuse(self, name: str, message: str, hint: str | None = None, *, private: bool = False) -> Error:
        """Return a BindError that points at an option, or a PrivacyError."""
        kind = PrivacyError if private else BindError
        return kind(message, span=span_of(self.nodes.get(name) or self.mode_node), hint=hint)


_SPELLED = {"kappa": "max_groups_contributed"}
"""GoogleSQL's old names of options."""
_KNOWN = frozenset(row.name for row in OPTION_NAMES)
_INSTEAD = {
    "ε": "did you mean epsilon?",
    "δ": "did you mean delta?",
    "max_rows": "did you mean max_rows_contributed?",
    "max_groups": "did you mean max_groups_contributed?",
    "delta": "leave it out: nothing here takes one.",
    "error": "write SELECT WITH DP OPTIONS (error = 5, epsilon = 1): counts, sums and what is made of them take it.",
    "k_threshold": "write delta = 1e-6, from which the threshold of private groups follows.",
}
"""Hints for GoogleSQL's options."""


def read_options(
    pairs: list[tuple[str, exp.Expr, exp.Expr]], readers: Readers, what: str
) -> tuple[dict[str, object], dict[str, exp.Expr]]:
    """Read ``(name, value, place)`` triples by a table of readers; BindError for unknown or repeated names, or values."""
    values: dict[str, object] = {}
    nodes: dict[str, exp.Expr] = {}
    for name, value, place in pairs:
        key = _SPELLED.get(name.lower(), name.lower())
        if key not in readers:
            raise bind_error(place, f"{what} has no {name}.", _INSTEAD.get(key) or did_you_mean(key, readers))
        if key in values:
            raise bind_error(place, f"{name} is given twice.", f"leave {name} out.")
        try:
            values[key] = readers[key](value, key)
        except BindError as error:  # NULL, for one, has no position
            error.span = error.span or span_of(place)
            raise
        nodes[key] = place
    return values, nodes


def _refuse_option(item: exp.Expr, before: tuple[str, exp.Expr, exp.Expr] | None, mode: exp.Expr) -> Error:
    """Return the refusal of an item of OPTIONS in another form; ``before`` is the option before it."""
    hint = "write epsilon = 0.1, or another option in this form."
    span = span_of(item)
    if isinstance(item, exp.EQ | exp.PropertyEQ) and item.this.name.lower() in _KNOWN:
        hint = f"write {item.this.name.lower()} = {to_sql(item.expression)}."
    elif isinstance(item, exp.Literal) and not item.is_string:
        hint = f"write epsilon = {item.name}."
        start = span_of(before[2]) if before is not None and before[1].is_int else None
        if before is not None and start is not None and span is not None:
            hint = f"write {before[0]} = {before[1].name}.{item.name}, with a point."
            span = (start[0], span[1])
    return BindError("options are name = value.", span=span or span_of(mode), hint=hint)


def mode_of(select: exp.Select) -> str | None:
    """Return the mode of a SELECT in capitals."""
    clause: ModeClause | None = select.args.get("mode")
    return None if clause is None else clause.name.upper()


def take_mode(select: exp.Select, readers_of: Callable[[str], Readers | None]) -> Options | None:
    """Remove the mode from a SELECT and read its options; None without one. ``readers_of`` knows each mode's."""
    clause: ModeClause | None = select.args.pop("mode", None)
    if clause is None:
        return None
    readers = readers_of(clause.name)
    if readers is None:
        hint = did_you_mean(clause.name, OFFERED_MODES)
        raise bind_error(clause.mode, f"there is no mode {clause.name}.", hint)
    triples: list[tuple[str, exp.Expr, exp.Expr]] = []
    for item in clause.options:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise _refuse_option(item, triples[-1] if triples else None, clause.mode)
        if item.this.table:
            hint = f"write {item.this.name}, without a table."
            raise bind_error(item.this, "an option has a plain name.", hint, around=item)
        if isinstance(item.expression, exp.Null) and item.this.name.lower() in (*NULL_OPTIONS, *_SPELLED):
            continue  # as if not written
        triples.append((item.this.name, item.expression, item))
    values, nodes = read_options(triples, readers, "OPTIONS")
    return Options(clause.name, values, nodes, clause.mode)


@dataclass(frozen=True)
class Call:
    """A call of an aggregate or a mechanism, in any sqlglot form."""

    name: str
    args: tuple[exp.Expr, ...]
    named: Mapping[str, tuple[exp.Expr, exp.Expr]]
    """Argument name to (value, place)."""
    node: exp.Expr
    distinct: bool = False
    where: exp.Expr | None = None
    over: str | None = None

    def read(self, readers: Readers) -> dict[str, Any]:
        """Read the named arguments by a table of readers."""
        triples = [(name, value, place) for name, (value, place) in self.named.items()]
        try:
            return read_options(triples, readers, self.name)[0]
        except BindError as error:  # TRUE and NULL have no position
            error.span = error.span or span_of(self.node)
            raise

    def read_probability(self) -> Fraction:
        """Return the second argument of a quantile; BindError unless it is a literal between 0 and 1."""
        p = read_number(self.args[1], "the quantile")
        if not 0 <= p <= 1:
            raise bind_error(self.args[1], "a quantile must be between 0 and 1.")
        return p

    def require(self, count: int, hint: str | None = None) -> None:
        """Raise BindError for any other number of arguments."""
        if len(self.args) != count:
            many = f"{count} argument{'s' if count > 1 else ''}"
            if hint is None and self.distinct and len(self.args) > count:
                hint = f"write {self.name}(DISTINCT concat_ws('|', {', '.join(map(to_sql, self.args))}))."
            elif hint is None and self.name.startswith("QUANTILE"):
                hint = f"write {self.name}({to_sql(self.args[0])}, 0.5)." if self.args else None
            raise BindError(f"{self.name} takes {many}.", span=span_of(self.node), hint=hint)


def call_of(node: exp.Expr) -> Call | None:
    """Return a call with its FILTER, DISTINCT, OVER candidates, WITHIN GROUP and named arguments; None if it is no call."""
    place, where, over = node, None, None
    if isinstance(node, exp.Window):
        alias = node.args.get("alias")
        if alias is None or node.args.get("partition_by") or node.args.get("order"):
            return None
        over, node = str(alias.name), node.this
    if isinstance(node, exp.Filter):
        where, node = node.expression.this, node.this
    ordered: exp.Expr | None = None
    if isinstance(node, exp.WithinGroup):
        order = node.expression.expressions
        ordered, node = order[0].this if len(order) == 1 else None, node.this
    if isinstance(node, exp.Anonymous):
        name = str(node.this).upper()
        name = name[len(NAMED) :] if name.startswith(NAMED.upper()) else name
        arguments = list(node.expressions)
    elif (row := NAME_OF_CLASS.get(type(node))) is not None:
        name = row.name
        # MAX(x, n) and other arguments in unusual places: one too many, not to be dropped.
        parts = [node.this, node.args.get("expression"), *node.expressions]
        parts += [part for key, part in node.args.items() if key not in ("this", "expression", "expressions")]
        arguments = [part for part in parts if isinstance(part, exp.Expr)]
    else:
        return None
    distinct = isinstance(node, exp.ApproxDistinct) or name == "APPROX_COUNT_DISTINCT"
    name = ALIASES.get(name, name)
    if ordered is not None:
        arguments = [ordered, *arguments]
    positional: list[exp.Expr] = []
    named: dict[str, tuple[exp.Expr, exp.Expr]] = {}
    for argument in arguments:
        if isinstance(argument, exp.Kwarg):
            if argument.this.name.lower() in named:
                raise bind_error(argument, f"{argument.this.name} is given twice.", around=place)
            named[argument.this.name.lower()] = (argument.expression, argument)
        elif isinstance(argument, exp.Distinct):
            distinct = True
            positional += argument.expressions
        else:
            positional.append(argument)
    return Call(name, tuple(positional), named, place, distinct, where, over)


def is_private_call(node: exp.Expr) -> bool:
    """Return whether a node is one of our aggregates or mechanisms, and not a window function."""
    if isinstance(node, exp.Window) and not node.args.get("alias"):
        return False
    around = node.parent
    while isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls) and around.this is not None:
        around = around.parent
    if isinstance(around, exp.Window) and not around.args.get("alias"):
        return False
    call = call_of(node)
    return call is not None and (call.name in PRIVATE_CALLS or isinstance(node, exp.AggFunc))


def calls_mechanism(node: exp.Expr) -> bool:
    """Return whether an expression is a call of a selection mechanism."""
    call = call_of(node)
    return call is not None and call.name in MECHANISMS


def refuse_equals(call: Call, known: Readers) -> None:
    """Refuse ``epsilon = 0.1`` inside a call, which is a comparison in SQL."""
    for argument in call.args[1:]:
        name = argument.this.name if isinstance(argument, exp.EQ) else ""
        if name.lower() in known and isinstance(argument.this, exp.Column):
            hint = f"write {name.lower()} => {to_sql(argument.expression)}."
            raise bind_error(argument, f"{name} = ... inside a call is a comparison.", hint)


def interval_seconds(node: exp.Interval) -> Fraction | None:
    """Return the seconds of an INTERVAL literal, with months of 30 days; None for other units of varying length."""
    unit = node.args.get("unit")
    name = str(unit.name).upper() if unit is not None else ""
    per = UNIT_SECONDS.get(name) or UNIT_SECONDS.get(name.removesuffix("S"))
    amount = node.this.name if isinstance(node.this, exp.Literal) else ""
    whole = amount.removeprefix("-")
    return int(amount) * per if per is not None and whole.isdigit() and len(whole) <= 7 else None


def moment_of(node: exp.Expr) -> tuple[str, Fraction] | None:
    """Return the kind and the seconds of a literal DATE, TIMESTAMP, TIME or INTERVAL; None for other nodes."""
    if isinstance(node, exp.Interval):
        length = interval_seconds(node)
        return None if length is None else ("INTERVAL", length)
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal):
        return None
    kind, text = to_sql(node.args["to"]), node.this.name.strip()
    try:
        if kind == "DATE":
            return kind, DateBound(datetime.date.fromisoformat(text))
        if kind == "TIMESTAMP":
            return kind, DateBound(drop_zone(datetime.datetime.fromisoformat(text)))
        if kind == "TIME":
            return kind, DateBound(datetime.time.fromisoformat(text))
    except (ValueError, OverflowError):
        pass
    return None
