"""The data owner's declarations: tables, privacy unit, bounds, public values, budget.

A policy is a TOML file or the same in Python (frozen values). It is read when a session opens and never changed
by SQL; a table that it does not name does not exist. Everything it says is public: it must come from how the
data were made, never from looking at them.

>>> policy = Policy.loads('''
... [budget]
... epsilon = 3
... delta = 1e-6
... [tables.visits]
... privacy_unit = "patient_id"
... max_rows = 20
... columns.amount.bounds = [0, 500]
... ''')
>>> policy.table("VISITS").columns["amount"].bounds
(Fraction(0, 1), Fraction(500, 1))

The ``[server]`` section of a policy: the grid of answer times, and the limits of what analysts may send.

None of it is part of the policy's fingerprint: it changes when answers leave and what is refused for its size, and
neither what is drawn nor what that costs.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import zoneinfo
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError
from dpsql.numerics.exact_numbers import write_number
from dpsql.policy import validate
from dpsql.policy.tables import Column, Format, Hop, Period, Table, parse_dependency
from dpsql.policy.toml import Section, assign, declare_field, parse_toml, read_section, write_toml
from dpsql.policy.validate import NameMapping, Value, fold
from dpsql.privacy.amounts import LARGEST, SYMBOLS, Amount
from dpsql.privacy.filters import ACCOUNTANTS, MECHANISM_SHARE

MAX_ANSWER_TIMES = 1000
"""Times of the grid that a policy may list; beyond the last one they double."""
_DAY = 86_400
_EARLIEST = Fraction(1, 1000)


def settle_answer_times(key: str, value: object) -> tuple[Fraction, ...]:
    """Read rising times in seconds; an empty list switches the grid off."""
    if not isinstance(value, list | tuple) or len(value) > MAX_ANSWER_TIMES:
        raise PolicyError(f"{key} are a list of seconds.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    times = tuple(validate.settle_positive(key, item) for item in value)
    if any(later <= earlier for earlier, later in itertools.pairwise(times)):
        raise PolicyError(f"{key} must rise.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    if times and not (times[0] >= _EARLIEST and times[-1] <= _DAY):
        raise PolicyError(f"{key} lie between a millisecond and a day.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    return times


def settle_time_zone(key: str, value: object) -> str:
    """Read the name of a time zone of this machine, such as UTC or Europe/Amsterdam."""
    name = validate.settle_text(key, value)
    if name == "UTC":
        return name
    try:
        datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise PolicyError(
            f"there is no time zone {name}.", hint=f'{key} = "Europe/Amsterdam", or "UTC".'
        ) from None
    return name


@dataclass(frozen=True)
class ServerRules(Section):
    """The times and limits of ``dpsql serve``.

    Args:
        answer_times: seconds after a request at which an answer that touched private data may leave; beyond the last one they
            double. An empty list switches this off: answers leave when they are ready, and their times tell about the data.
        time_zone: the time zone of all workers.
        keep_text_days: days for which the ledger keeps the texts of statements, with their stored answers; by default all are
            kept.
        max_statement_bytes: the largest text of a request.
        max_parameter_bytes: the largest parameters of a request, all together.
        max_result_bytes: the largest answer that is sent, and the largest release that is stored.
        max_requests_per_minute: requests of one analyst.
        max_sessions: open sessions of one analyst.
        max_idle_minutes: minutes after which a session that asks nothing is closed, with its thresholds.
        max_memory_mb: memory of one analyst's worker.
        max_seconds: seconds that a statement may run; one that runs longer is stopped and stays charged.
    """

    answer_times: tuple[Fraction, ...] = declare_field(
        settle_answer_times, (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
    )
    time_zone: str = declare_field(settle_time_zone, "UTC")
    keep_text_days: int | None = declare_field(validate.settle_whole)
    max_statement_bytes: int = declare_field(validate.settle_whole, 100_000)
    max_parameter_bytes: int = declare_field(validate.settle_whole, 1_000_000)
    max_result_bytes: int = declare_field(validate.settle_whole, 100_000_000)
    max_requests_per_minute: int = declare_field(validate.settle_whole, 600)
    max_sessions: int = declare_field(validate.settle_whole, 8)
    max_idle_minutes: int = declare_field(validate.settle_whole, 60)
    max_memory_mb: int = declare_field(validate.settle_whole, 4096)
    max_seconds: int = declare_field(validate.settle_whole, 600)

    def _check_together(self) -> None:
        if self.max_memory_mb < _LEAST_MEMORY:
            raise PolicyError(
                "no worker runs with so little memory.",
                keys=("max_memory_mb",),
                hint=f"{_LEAST_MEMORY} is the least.",
            )


_LEAST_MEMORY = 256


__all__ = [
    "Analyst", "Budget", "Column", "Format", "Hop", "LedgerRules", "NameMapping", "Policy", "ServerRules", "Table", "Value",
    "fold",
]  # fmt: skip


USUAL_DELTA = Fraction(1, 10**6)
"""The delta at which a mu or rho is shown as an epsilon where the budget has none."""


@dataclass(frozen=True)
class Budget(Section):
    """The privacy that may be lost in all, and by one statement.

    Args:
        epsilon, delta: the whole.
        mu, rho: the whole in the currency of gdp or of zcdp, in place of epsilon. That limit itself is what is promised then,
            delta is for mechanisms that have one of their own, and epsilon is what the limit comes to at that delta (at
            1e-6 where there is none), for comparison.
        accountant: the way losses are summed: one of :data:`dpsql.privacy.filters.ACCOUNTANTS`, by default ``"zcdp"``, and
            ``"gdp"`` beside mu.
        max_epsilon_per_query: no block may ask for more; of one that asks for a mu or rho, the epsilon at the budget's delta
            counts.
        default_epsilon, default_delta: what a block costs that does not say.
        mechanism_delta_share: the part of delta for mechanisms that have a delta of their own (groups with private
            keys, stability tests); the rest pays for the conversion of zcdp and gdp. ``basic`` sums all deltas and
            takes no notice of it. A ledger keeps the share that it was opened with.
        answers: ``"shared"``: a stored answer is free for everybody who may ask its statement. ``"own"``: it is the same draw,
            and an analyst's share is debited once for each stored answer that another analyst paid for; the whole is not.

    Numbers may be ints, Fractions, or floats (taken by the digits that print them).

    >>> Budget(1, 1e-6).delta
    Fraction(1, 1000000)
    """

    epsilon: Fraction = declare_field(validate.settle_positive)
    delta: Fraction = declare_field(validate.settle_probability, Fraction(0))
    accountant: str = declare_field(validate.settle_choice(*ACCOUNTANTS))
    max_epsilon_per_query: Fraction | None = declare_field(validate.settle_positive)
    default_epsilon: Fraction | None = declare_field(validate.settle_positive)
    default_delta: Fraction | None = declare_field(validate.settle_probability)
    mechanism_delta_share: Fraction = declare_field(validate.settle_share, MECHANISM_SHARE)
    mu: Fraction | None = declare_field(validate.settle_positive)
    rho: Fraction | None = declare_field(validate.settle_positive)
    answers: str = declare_field(validate.settle_choice("shared", "own"), "shared")

    def _check_together(self) -> None:
        self._settle_own()
        for key, limit in (
            ("default_epsilon", "max_epsilon_per_query"),
            ("default_epsilon", "epsilon"),
            ("default_delta", "delta"),
        ):
            value, most = getattr(self, key), getattr(self, limit)
            if value is not None and most is not None and value > most:
                raise PolicyError(
                    f"{key} is more than {limit}, so it could never be spent.",
                    keys=(key,),
                    hint=f"make {key} smaller, or {limit} larger.",
                )

    def _settle_own(self) -> None:
        """Find the accountant and the epsilon of a budget in mu or rho; exactly one currency says what the whole is."""
        own = self.own
        if own is None:
            if self.epsilon is None:
                raise PolicyError("[budget] has no epsilon.", hint="epsilon = 1 is a usual start.")
            assign(self, "accountant", self.accountant or "zcdp")
            return
        named = own.currency
        if self.mu is not None and self.rho is not None:
            raise PolicyError("mu and rho are both given.", keys=("rho",), hint="keep one of the two.")
        if own.amount > LARGEST[named]:
            most = f"{named} = {write_number(LARGEST[named])}"
            raise PolicyError(
                f"nothing is hidden under such a {named}.", keys=(named,), hint=f"{most} is the largest."
            )
        epsilon = own.bound_epsilon(self.at_delta)
        if self.epsilon not in (None, epsilon):
            raise PolicyError(
                f"epsilon and {named} are both given.",
                keys=(named,),
                hint="keep the one that you want to promise.",
            )
        assign(self, "epsilon", epsilon)
        kind = next(name for name, accountant in ACCOUNTANTS.items() if accountant.currency == named)
        if self.accountant not in (None, kind):
            raise PolicyError(
                f"a budget in {named} is counted by {kind}, not by {self.accountant}.", keys=("accountant",),
                hint=f'write accountant = "{kind}", or leave it out.',
            )  # fmt: skip
        assign(self, "accountant", kind)

    def collect(self) -> dict[str, Any]:
        said = super().collect()
        if self.own is not None:
            said.pop("epsilon")
        if self.own is not None or self.accountant == "zcdp":
            said.pop("accountant")
        return said

    @property
    def own(self) -> Amount | None:
        """The whole, where it is given in mu or rho."""
        if self.mu is not None:
            return Amount.of_mu(self.mu)
        return None if self.rho is None else Amount("rho", self.rho)

    @property
    def at_delta(self) -> Fraction:
        """The delta at which a mu or rho is shown as an epsilon: the budget's, or a usual one where it has none."""
        return self.delta or USUAL_DELTA

    @property
    def mechanism_delta(self) -> Fraction:
        """The delta of all mechanisms that have one of their own, together."""
        if self.own is not None:
            return self.delta
        return ACCOUNTANTS[self.accountant].split(self.delta, self.mechanism_delta_share)


@dataclass(frozen=True)
class Analyst(Section):
    """One analyst's share of the budget, in its currency. Without delta, the whole delta is open to them."""

    epsilon: Fraction | None = declare_field(validate.settle_positive)
    delta: Fraction | None = declare_field(validate.settle_probability)
    mu: Fraction | None = declare_field(validate.settle_positive)
    rho: Fraction | None = declare_field(validate.settle_positive)


@dataclass(frozen=True)
class LedgerRules(Section):
    """The owner's choice of what the ledger keeps beside the charges.

    Args:
        keep_answers_mb: megabytes of answers that are kept, so that to ask again is free; the oldest are dropped to make
            room, and then to ask again is charged again. By default all are kept; 0 keeps none.
        prompt_history: whether the prompt of ``dpsql sql`` may remember statements in a file of the analyst's; by default it
            may.
    """

    keep_answers_mb: int | None = declare_field(validate.settle_count)
    prompt_history: bool = declare_field(validate.settle_flag, True)

    @property
    def answer_bytes(self) -> int | None:
        """The same in bytes; None for no limit."""
        return None if self.keep_answers_mb is None else self.keep_answers_mb * 10**6


@dataclass(frozen=True)
class Policy(Section):
    """The owner's declaration as a whole.

    Args:
        budget: what may be lost.
        tables: what may be asked about, by name.
        analysts: shares of the budget, by name.
        ledger: what the ledger keeps beside the charges.
        server: the times, limits and rules of a server.
        base: the folder that relative sources start from.

    Raises:
        PolicyError: when made, if its parts do not fit each other.
    """

    budget: Budget = declare_field(
        None, MISSING, section=Budget, start="begin with [budget] and epsilon = 1."
    )
    tables: Mapping[str, Table] = declare_field(validate.settle_names, sections=Table)
    analysts: Mapping[str, Analyst] = declare_field(validate.settle_names, sections=Analyst)
    ledger: LedgerRules = declare_field(None, LedgerRules(), section=LedgerRules)
    server: ServerRules = declare_field(None, ServerRules(), section=ServerRules)
    base: Path | None = field(default=None, compare=False)

    def _check_together(self) -> None:
        for name, table in self.tables.items():
            if fold(name) != fold(table.name):
                raise PolicyError(f"the table {table.name} is listed as {name}.", keys=("tables", name))
            self._check_paths(table)
        periods = {name: self._find_period(table) for name, table in self.tables.items()}
        if any(found is not None for found in periods.values()):
            settled = {name: table.parted_by(periods[name]) for name, table in self.tables.items()}
            assign(self, "tables", NameMapping(settled))
        for name, analyst in self.analysts.items():
            own = "epsilon" if self.budget.own is None else self.budget.own.currency
            others = [key for key in SYMBOLS if key != own and getattr(analyst, key) is not None]
            if others or getattr(analyst, own) is None:
                wrong = f"has {others[0]}, and the budget is in {own}" if others else f"has no {own}"
                raise PolicyError(
                    f"the share of {name} {wrong}.", keys=("analysts", name, *others[:1]),
                    hint=f"write {own} = {write_number(getattr(self.budget, own) / 2)}.",
                )  # fmt: skip
            for key in (own, "delta"):
                share = getattr(analyst, key)
                if share is not None and share > getattr(self.budget, key):
                    raise PolicyError(
                        f"the share of {name} is more than the whole {key}.",
                        keys=("analysts", name, key),
                        hint=f"a share is at most the {key} of [budget].",
                    )

    def _check_paths(self, table: Table) -> None:
        """Check that the tables on the way to the unit are in the policy, and lead to the same unit."""
        for place, path in enumerate(table.unit_paths):
            self._check_hops(table, path, first=place == 0)

    def _check_hops(self, table: Table, path: tuple[Hop, ...], first: bool) -> None:
        for index, hop in enumerate(path[1:], start=1):
            keys = ("tables", table.name, "privacy_unit")
            if hop.table not in self.tables:
                raise PolicyError(
                    f"the path to the privacy unit of {table.name} goes through {hop.table}, which has no policy.",
                    keys=keys,
                    hint=f"add [tables.{hop.table}].",
                )
            through = self.tables[hop.table]
            rest = [fold(step.column) for step in path[index:]]
            known = [through.unit_path] if first else through.unit_paths  # the unit itself goes by the first
            if not through.public and rest not in [[fold(step.column) for step in way] for way in known]:
                raise PolicyError(
                    f"{table.name} and {hop.table} do not lead to the same privacy unit.",
                    keys=keys,
                    hint=f"from {hop.table} on, the path must be the privacy unit of {hop.table}.",
                )

    def _find_period(self, table: Table) -> Period | None:
        """Find what parts the units of a table: its own period, or that of the table which its path leads to."""
        end = table.unit_path[-1].table if len(table.unit_path) > 1 else table.name
        return self.tables[end].declared_period

    def table(self, name: str) -> Table | None:
        """Return the table of that name, whatever its case (ASCII); None where the policy names none."""
        return self.tables.get(name)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; relative sources start from its folder.

        Raises:
            PolicyError: the file is missing or wrong; the message starts with its name and shows the line.
        """
        path = Path(path).expanduser()
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError:
            raise PolicyError(f"the policy file {path} can't be read.", hint="is the path right?") from None
        except UnicodeDecodeError:
            raise PolicyError(f"{path.name}: the file is not UTF-8 text.") from None
        return cls.loads(text, base=path.absolute().parent, name=path.name)

    @classmethod
    def loads(cls, text: str, base: str | Path | None = None, name: str = "policy") -> Policy:
        """Read policy text; `name` begins each message.

        Raises:
            PolicyError: the text is not TOML, has an unknown key, or says something that can't be.
        """
        return read_section(parse_toml(text, name), (), cls, base=None if base is None else Path(base))

    def dumps(self) -> str:
        """Return TOML that :meth:`loads` reads back as an equal policy."""
        said, answers = self._collect_meaning(), self.budget.answers
        if answers != "shared":
            said["budget"]["answers"] = answers
        kept = {"ledger": self.ledger.collect(), "server": self.server.collect()}
        return write_toml({**said, **{name: rules for name, rules in kept.items() if rules}}, _INLINE)

    def find_analyst(self, name: str) -> str | None:
        """Return an analyst's name as the policy writes it, whatever the case; None for whom it gives no share."""
        return next((known for known in self.analysts if fold(known) == fold(name)), None)

    def for_analyst(self, name: str | None) -> Policy:
        """Return the policy that one analyst may read: no source of a table, no other analyst, of [server] the times alone.

        Of [ledger] it has whether a prompt may remember statements.
        """
        tables = {key: replace(table, source=None, format=None) for key, table in self.tables.items()}
        known = None if name is None else self.find_analyst(name)
        mine = {} if known is None else {known: self.analysts[known]}
        server = ServerRules(answer_times=self.server.answer_times, time_zone=self.server.time_zone)
        kept = LedgerRules(prompt_history=self.ledger.prompt_history)
        return replace(self, tables=tables, analysts=mine, ledger=kept, server=server, base=None)

    def _collect_meaning(self) -> dict[str, Any]:
        """Return all that draws and charges rest on: whose share is debited for a stored answer is no part of it."""
        said = {"budget": replace(self.budget, answers="shared").collect()}
        said["tables"] = {name: table.collect() for name, table in self.tables.items()}
        said["analysts"] = {name: analyst.collect() for name, analyst in self.analysts.items()}
        return said

    def dump(self, path: str | Path) -> None:
        """Write the policy to a file."""
        Path(path).write_text(self.dumps(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the policy says of answers and charges, however it was written down."""
        return hashlib.sha256(write_toml(self._collect_meaning(), _INLINE).encode()).hexdigest()


_INLINE = frozenset(Column.__dataclass_fields__)


def list_mentioned(policy: Policy, table: Table) -> list[str]:
    """List the columns of a table that the policy names: declared ones, and those that lead to a privacy unit or part it."""
    named = NameMapping({name: name for name in table.columns})
    met = [
        name
        for other in policy.tables.values()
        for path in other.unit_paths
        for hop in path
        if fold(hop.table) == fold(table.name)
        for name in (hop.key, hop.column)
    ]
    met += [parse_dependency(text)[0] for text in table.determines]
    met += [] if table.declared_period is None else [table.declared_period.column]
    return [*table.columns, *NameMapping({name: name for name in met if name and name not in named})]


def list_untyped(policy: Policy, table: Table) -> list[str]:
    """List the columns that the policy speaks of without saying their type."""
    types = {fold(name) for name, column in table.columns.items() if column.type is not None}
    return [name for name in list_mentioned(policy, table) if fold(name) not in types]


def list_types(policy: Policy, table: Table) -> dict[str, str]:
    """Give the columns of a source that has no types of its own, as the policy declares them.

    Raises:
        PolicyError: a column that it speaks of has no type, or none is declared; the hint has the lines to paste.
    """
    missing = list_untyped(policy, table)
    types = {name: column.type for name, column in table.columns.items() if column.type is not None}
    if missing or not types:
        raise explain_missing_types(table, missing)
    return types


def explain_missing_types(table: Table, missing: list[str]) -> PolicyError:
    """Make the error of a policy that leaves types out, with the lines to paste."""
    said = (
        f"; {', '.join(missing)} {'have' if len(missing) > 1 else 'has'} none in the policy"
        if missing
        else ""
    )
    lines = write_columns(table, dict.fromkeys(missing or ["column"]))
    return PolicyError(
        f"the source of {table.name} does not say what types its columns have{said}.",
        keys=("tables", table.name),
        hint="\n".join(["declare them (dpsql policy check proposes types), for instance:", *lines]),
    )


def write_columns(table: Table, types: Mapping[str, str | None]) -> list[str]:
    """Write lines of a policy that declare types of a table's columns, with what is said of them already.

    Args:
        table: as it is now.
        types: the columns, and the type of each; None for one that what is said of it suggests.
    """
    known = NameMapping({**dict.fromkeys(types, Column()), **table.columns})
    lines = {n: {"type": kind or known[n].suggest_type(), **known[n].collect()} for n, kind in types.items()}
    return write_toml({"tables": {table.name: {"columns": lines}}}, _INLINE).splitlines()
