"""What the data owner declares: tables, privacy unit, bounds, public values, budget. TOML on disk, frozen values here.

The analyst's SQL can't change any of it.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError, Span, did_you_mean

Value = str | int | bool | float
ACCOUNTANTS = ("zcdp", "basic", "gdp")
_NUMBER = re.compile(r"[+-]?[0-9_]+(\.[0-9_]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Hop:
    """A step on the way to the privacy unit: ``column`` of ``table``, reached there by ``key`` (empty at the start)."""

    table: str
    key: str
    column: str


@dataclass(frozen=True)
class Column:
    """What is public about a column: the range its values are held to, or all values it may have as a group."""

    bounds: tuple[Fraction, Fraction] | None = None
    values: tuple[Value, ...] | None = None


@dataclass(frozen=True)
class Table:
    """A table of the policy; one that is not named does not exist for the analyst.

    ``privacy_unit`` is "ROW", a column, or a path of foreign keys (``"order_id -> orders.id, user_id"``). ``max_rows``
    is the number of rows of one unit that count in one group, ``max_groups`` the default number of groups it is in.
    """

    name: str
    public: bool = False
    source: str | None = None
    privacy_unit: str | None = None
    max_rows: int | None = None
    max_groups: int | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)

    @property
    def row_level(self) -> bool:
        return self.privacy_unit is not None and self.privacy_unit.upper() == "ROW"

    @property
    def unit_path(self) -> tuple[Hop, ...]:
        """The hops from this table to the unit's column; one hop where the unit is a column of this table."""
        if self.public or self.row_level or self.privacy_unit is None:
            return ()
        return parse_path(self.name, self.privacy_unit)

    @property
    def unit_domain(self) -> str:
        """Whose units these are: tables whose units are the same people have the same domain."""
        if self.row_level or not self.unit_path:
            return f"row of {self.name}"
        return self.unit_path[-1].column.lower()


def parse_path(table: str, text: str) -> tuple[Hop, ...]:
    """Reads ``"order_id -> orders.id, user_id"``: alternately a column, and where it points to.

    >>> parse_path("lines", "order_id -> orders.id, user_id")
    (Hop(table='lines', key='', column='order_id'), Hop(table='orders', key='id', column='user_id'))
    """
    hops: list[Hop] = []
    here, key = table, ""
    for part in text.split(","):
        column, arrow, target = (piece.strip() for piece in part.partition("->"))
        if not _NAME.fullmatch(column):
            raise PolicyError(f"the privacy unit {text!r} is not a column or a path.", hint=_PATH_HINT)
        hops.append(Hop(here, key, column))
        if arrow:
            here, dot, key = target.partition(".")
            if not (dot and _NAME.fullmatch(here) and _NAME.fullmatch(key)):
                raise PolicyError(f"the privacy unit {text!r} is not a column or a path.", hint=_PATH_HINT)
    if text.count("->") != len(hops) - 1:
        raise PolicyError(f"the privacy unit {text!r} is not a column or a path.", hint=_PATH_HINT)
    return tuple(hops)


_PATH_HINT = 'write "patient_id", or "order_id -> orders.id, user_id".'


@dataclass(frozen=True)
class Budget:
    """The limits: epsilon and delta in all, the accountant that guards them, and the defaults of a query."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    accountant: str = "zcdp"
    max_epsilon_per_query: Fraction | None = None
    default_epsilon: Fraction | None = None
    default_delta: Fraction | None = None


@dataclass(frozen=True)
class Analyst:
    """An analyst's own share of the budget. The whole's limit holds besides."""

    epsilon: Fraction
    delta: Fraction | None = None


@dataclass(frozen=True)
class Policy:
    """Everything the owner declares.

    >>> policy = Policy.loads('''
    ... [budget]
    ... epsilon = 1
    ... [tables.visits]
    ... privacy_unit = "patient_id"
    ... max_rows = 20
    ... [tables.visits.columns]
    ... amount = { bounds = [0, 500] }
    ... ''')
    >>> policy.tables["visits"].columns["amount"].bounds
    (Fraction(0, 1), Fraction(500, 1))
    """

    budget: Budget
    tables: Mapping[str, Table] = field(default_factory=dict)
    analysts: Mapping[str, Analyst] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Reads a policy file.

        Raises:
            PolicyError: it can't be read, is not TOML, or declares something impossible.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            raise PolicyError(f"there is no policy file {path}.") from None
        except UnicodeDecodeError:
            raise PolicyError(f"the policy file {path} is not text.") from None
        return cls.loads(text, name=path.name)

    @classmethod
    def loads(cls, text: str, name: str = "the policy") -> Policy:
        """The same from text."""
        try:
            data = tomllib.loads(text, parse_float=_exact)
        except (tomllib.TOMLDecodeError, ValueError) as error:
            reason = str(error)
            raise PolicyError(f"{name} is not TOML: {reason}.") from None
        return _Reader(text).policy(data)

    def dumps(self) -> str:
        """The policy as TOML; loading it back gives an equal policy."""
        return _dump(self)

    def dump(self, path: str | Path) -> None:
        Path(path).write_text(self.dumps(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything declared."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()


def _exact(text: str) -> Fraction:
    if not _NUMBER.fullmatch(text) or len(text) > 60:
        raise ValueError(f"{text} is not a finite number")
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > 300:
        raise ValueError(f"{text} is out of range")
    return Fraction(text.replace("_", ""))


class _Reader:
    """Turns parsed TOML into a policy; knows the text, for carets."""

    def __init__(self, text: str) -> None:
        self.text = text

    def at(self, word: str) -> Span | None:
        found = re.search(rf"(?<![\w]){re.escape(word)}(?![\w])", self.text)
        return found.span() if found else None

    def error(self, message: str, word: str, hint: str | None = None) -> PolicyError:
        return PolicyError(message, span=self.at(word), hint=hint, text=self.text)

    def keys(self, data: Any, known: Iterable[str], where: str) -> Mapping[str, Any]:
        known = list(known)
        if not isinstance(data, Mapping):
            raise self.error(f"{where} must be a table of keys.", where.split(".")[-1].strip("[]"))
        for key in data:
            if key not in known:
                raise self.error(f"{where} has no {key}.", key, did_you_mean(key, known))
        return data

    def policy(self, data: Mapping[str, Any]) -> Policy:
        self.keys(data, ("budget", "tables", "analysts"), "the policy")
        if "budget" not in data:
            raise PolicyError("the policy has no budget.", hint="write [budget] and epsilon = 1 below it.")
        tables = self.named(data.get("tables", {}), "tables", self.table)
        analysts = self.named(data.get("analysts", {}), "analysts", self.analyst)
        try:
            return Policy(self.budget(data["budget"]), tables, analysts)
        except PolicyError as error:
            error.span = error.span or self.at(str(error.message.split(" ")[0]))
            raise error.located(self.text) from None

    def named(self, data: Any, where: str, read: Callable[[str, Any], Any]) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise self.error(f"{where} must be tables.", where)
        return {name: read(name, item) for name, item in data.items()}

    def budget(self, data: Any) -> Budget:
        names = list(Budget.__dataclass_fields__)
        self.keys(data, names, "[budget]")
        if "epsilon" not in data:
            raise self.error("the budget needs an epsilon.", "budget", "write epsilon = 1 under [budget].")
        values: dict[str, Any] = {n: self.number(data[n], n) for n in names if n in data and n != "accountant"}
        if "accountant" in data:
            values["accountant"] = data["accountant"]
        return Budget(**values)

    def analyst(self, name: str, data: Any) -> Analyst:
        self.keys(data, ("epsilon", "delta"), f"[analysts.{name}]")
        if "epsilon" not in data:
            raise self.error(f"the share of {name} needs an epsilon.", name)
        return Analyst(**{key: self.number(value, key) for key, value in data.items()})

    def table(self, name: str, data: Any) -> Table:
        known = ("source", "privacy_unit", "max_rows", "max_groups", "columns", "public")
        self.keys(data, known, f"[tables.{name}]")
        values = {key: value for key, value in data.items() if key != "columns"}
        for key, kind, what in (("source", str, "a text"), ("privacy_unit", str, "a text"), ("public", bool, "true or false"),
                                ("max_rows", int, "a whole number"), ("max_groups", int, "a whole number")):  # fmt: skip
            if key in values and (type(values[key]) is not kind):
                raise self.error(f"{key} of {name} must be {what}.", key)
        columns = self.named(data.get("columns", {}), "columns", self.column)
        return Table(name, columns=columns, **values)

    def column(self, name: str, data: Any) -> Column:
        self.keys(data, ("bounds", "values"), f"column {name}")
        bounds = values = None
        if "bounds" in data:
            pair = data["bounds"]
            if not isinstance(pair, list) or len(pair) != 2:
                raise self.error(f"bounds of {name} must be a pair.", name, "write bounds = [0, 100].")
            bounds = (self.number(pair[0], name), self.number(pair[1], name))
        if "values" in data:
            values = data["values"]
            if not isinstance(values, list) or not values:
                raise self.error(f"values of {name} must be a list that is not empty.", name)
            if not all(isinstance(v, str | int | bool | Fraction) for v in values):
                raise self.error(f"values of {name} must be texts, numbers or booleans.", name)
            values = tuple(float(v) if isinstance(v, Fraction) else v for v in values)
        return Column(bounds, values)

    def number(self, value: Any, name: str) -> Fraction:
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            raise self.error(f"{name} must be a number.", name)
        return Fraction(value)


def _check(policy: Policy) -> None:
    """What no policy may declare, however it was made."""
    budget = policy.budget
    if budget.epsilon <= 0:
        raise PolicyError("epsilon of the budget must be above 0.")
    if not 0 <= budget.delta < 1:
        raise PolicyError("delta of the budget must be at least 0 and below 1.")
    if budget.accountant not in ACCOUNTANTS:
        raise PolicyError(
            f"there is no accountant {budget.accountant!r}.", hint=did_you_mean(str(budget.accountant), ACCOUNTANTS)
        )
    for name in ("max_epsilon_per_query", "default_epsilon", "default_delta"):
        value = getattr(budget, name)
        if value is not None and (value <= 0 or (name == "default_delta" and value >= 1)):
            raise PolicyError(f"{name} must be above 0" + (" and below 1." if name == "default_delta" else "."))
    for name, analyst in policy.analysts.items():
        if analyst.epsilon <= 0 or not 0 <= (analyst.delta or 0) < 1:
            raise PolicyError(f"{name} has a share that is no budget.", hint="epsilon above 0, delta below 1.")
    folded: set[str] = set()
    for table in policy.tables.values():
        _check_table(table, policy)
        if table.name.lower() in folded:
            raise PolicyError(f"{table.name} is declared twice: names differ by more than case.")
        folded.add(table.name.lower())


def _check_table(table: Table, policy: Policy) -> None:
    if not _NAME.fullmatch(table.name):
        raise PolicyError(f"{table.name!r} can't be the name of a table.", hint="use letters, digits and _.")
    if table.public and table.privacy_unit is not None:
        raise PolicyError(f"{table.name} is public and has a privacy unit.", hint="declare one of the two.")
    if not table.public and table.privacy_unit is None:
        raise PolicyError(
            f"{table.name} needs a privacy unit: whose presence is hidden?",
            hint='write privacy_unit = "patient_id", "ROW", or public = true.',
        )
    for hop in table.unit_path[1:]:
        if hop.table.lower() not in {t.lower() for t in policy.tables}:
            raise PolicyError(
                f"{table.name} finds its privacy unit in {hop.table}, which the policy does not name.",
                hint=did_you_mean(hop.table, policy.tables),
            )
    for key in ("max_rows", "max_groups"):
        value = getattr(table, key)
        if value is not None and value < 1:
            raise PolicyError(f"{key} of {table.name} must be at least 1.")
    if table.row_level and (table.max_rows or 1) != 1:
        raise PolicyError(f"{table.name} protects rows: max_rows must be 1.")
    seen: set[str] = set()
    for name, column in table.columns.items():
        if name.lower() in seen:
            raise PolicyError(f"{table.name}.{name} is declared twice.")
        seen.add(name.lower())
        if column.bounds is not None and column.bounds[0] > column.bounds[1]:
            raise PolicyError(f"bounds of {name} are the wrong way round.", hint="write bounds = [lowest, highest].")
        if column.values is not None and len(set(map(repr, column.values))) != len(column.values):
            raise PolicyError(f"values of {name} repeat.")
        if column.values is not None and len({isinstance(v, str) for v in column.values}) > 1:
            raise PolicyError(f"values of {name} mix texts and numbers.")


def _dump(policy: Policy) -> str:
    rows = ["[budget]"]
    for name in Budget.__dataclass_fields__:
        value = getattr(policy.budget, name)
        if value is not None:
            rows.append(f"{name} = {_toml(value)}")
    for table in policy.tables.values():
        rows += ["", f"[tables.{table.name}]"]
        for key in ("public", "source", "privacy_unit", "max_rows", "max_groups"):
            value = getattr(table, key)
            if value is not None and value is not False:
                rows.append(f"{key} = {_toml(value)}")
        if table.columns:
            rows.append(f"[tables.{table.name}.columns]")
        for name, column in table.columns.items():
            parts = []
            if column.bounds is not None:
                parts.append(f"bounds = {_toml(list(column.bounds))}")
            if column.values is not None:
                parts.append(f"values = {_toml(list(column.values))}")
            rows.append(f"{_key(name)} = {{ {', '.join(parts)} }}" if parts else f"{_key(name)} = {{}}")
    for name, analyst in policy.analysts.items():
        rows += ["", f"[analysts.{_key(name)}]", f"epsilon = {_toml(analyst.epsilon)}"]
        if analyst.delta is not None:
            rows.append(f"delta = {_toml(analyst.delta)}")
    return "\n".join(rows) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, Fraction):
        return _decimal(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        escaped = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)
        return f'"{escaped}"'
    return repr(value)


def _decimal(value: Fraction) -> str:
    """The exact decimal of a fraction that came from one."""
    if value.denominator == 1:
        return str(value.numerator)
    digits = 0
    scaled = value
    while scaled.denominator != 1 and digits < 400:
        scaled *= 10
        digits += 1
    if scaled.denominator != 1:
        raise PolicyError(f"{value} has no finite decimal.", hint="use numbers with finitely many decimals.")
    return f"{scaled.numerator}e-{digits}"
