"""The data owner's declarations: tables, privacy unit, bounds, public values, budget.

A policy is a TOML file, or equal frozen values in Python. It is read when a session opens, and SQL never changes it.
Tables that it does not name don't exist. All its declarations are public: they must come from the way the data were
made, never from the data.

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

The ``[server]`` section has the grid of answer times and the limits on requests. It is not part of the policy's
fingerprint: it changes no draw and no cost, only the time of answers and the refusals for size.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import write_number
from dpsql.policy import validate
from dpsql.policy.tables import Column, Format, Hop, Period, Table, parse_dependency
from dpsql.policy.toml import Section, assign, declare_field, parse_toml, read_section, write_toml
from dpsql.policy.validate import NameMapping, Value, fold
from dpsql.privacy.amounts import LARGEST, SYMBOLS, Amount
from dpsql.privacy.filters import ACCOUNTANTS, MECHANISM_SHARE
from dpsql.privacy.periods import (
    FIRST,
    Days,
    find_day_after,
    find_first_day,
    remove_days,
    unite,
    widen_to_periods,
)

MAX_ANSWER_TIMES = 1000
"""The most times of the grid that a policy may list; after the last one they double."""
_DAY = 86_400
_EARLIEST = Fraction(1, 1000)


def read_policy_file(path: Path) -> str:
    """Return the text of a policy file; PolicyError if it can't be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError:
        hint = "check the path and its permissions."
        raise PolicyError(f"the policy file {path} can't be read.", hint=hint) from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path.name}: the file is not UTF-8 text.", hint="save it as UTF-8.") from None


def settle_answer_times(key: str, value: object) -> tuple[Fraction, ...]:
    """Read rising times in seconds; an empty list switches the grid off."""
    if not isinstance(value, list | tuple) or len(value) > MAX_ANSWER_TIMES:
        raise PolicyError(
            f"{key} is a list of up to {MAX_ANSWER_TIMES:,} numbers of seconds.",
            hint=f"{key} = [0.25, 0.5, 1, 2, 4]",
        )
    times = tuple(validate.settle_positive(key, item) for item in value)
    if any(later <= earlier for earlier, later in itertools.pairwise(times)):
        raise PolicyError(f"{key} must be in ascending order.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]")
    if times and not (times[0] >= _EARLIEST and times[-1] <= _DAY):
        raise PolicyError(
            f"{key} must be between a millisecond and a day.", hint=f"{key} = [0.25, 0.5, 1, 2, 4]"
        )
    return times


def settle_time_zone(key: str, value: object) -> str:
    """Read the name of a time zone of this machine, such as UTC or Europe/Amsterdam."""
    name = validate.settle_text(key, value)
    if name == "UTC":
        return name
    import zoneinfo  # slow to import, and most policies have UTC

    try:
        datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise PolicyError(
            f"there is no time zone {name}.", hint=f'{key} = "Europe/Amsterdam", or "UTC".'
        ) from None
    return name


def settle_issuer(key: str, value: object) -> str:
    """Read the address of an identity provider: HTTPS, or plain HTTP on this machine's loopback."""
    text = validate.settle_text(key, value)
    if _ISSUER.fullmatch(text) is None:
        raise PolicyError(
            f"{key} must be an address that begins with https://.",
            hint=f'{key} = "https://login.example.org"',
        )
    return text


_ISSUER = re.compile(r"(https://[A-Za-z0-9.-]+|http://(127\.0\.0\.1|localhost))(:[0-9]{1,5})?(/[!-~]*)?")


@dataclass(frozen=True)
class IdentityProvider(Section):
    """The organisation's identity provider, whose tokens (OpenID Connect) prove analysts' names to ``dpsql serve``.

    Args:
        issuer: its address, as its discovery document and its tokens have it.
        audience: the name of this server there. A token for another audience is refused.
        claim: the claim that has the analyst's name. Choose one that the provider guarantees to be unique and that people can't
            change themselves.
        groups: the claim that lists a person's groups. A person without a share asks as the first group that has one.
    """

    issuer: str = declare_field(settle_issuer, MISSING, start='issuer = "https://login.example.org"')
    audience: str = declare_field(validate.settle_text, MISSING, start='audience = "dpsql"')
    claim: str = declare_field(validate.settle_text, "sub")
    groups: str | None = declare_field(validate.settle_text)


@dataclass(frozen=True)
class ServerRules(Section):
    """The times and limits of ``dpsql serve``.

    Args:
        answer_times: seconds after a request at which an answer from private data may leave; after the last one they double.
            With an empty list answers leave when they are ready, and their times depend on the data.
        time_zone: the time zone of all workers.
        keep_text_days: days for which the ledger keeps statements' texts and stored answers; for ever by default.
        max_statement_bytes: the largest text of a request.
        max_parameter_bytes: the total size of a request's parameters.
        max_result_bytes: the largest answer that is sent, and the largest stored release.
        max_requests_per_minute: requests of one analyst.
        max_sessions: open sessions of one analyst.
        max_idle_minutes: minutes after which an idle session is closed, with its thresholds.
        max_memory_mb: memory of one analyst's worker.
        max_seconds: seconds after which a running statement is stopped; it stays charged.
        alert_below: the log has an alert once less than this part of a share is left; 0 switches it off.
        identity_provider: the organisation's identity provider, whose tokens are accepted, too.
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
    max_sessions: int = declare_field(validate.settle_whole, 16)
    max_idle_minutes: int = declare_field(validate.settle_whole, 60)
    max_memory_mb: int = declare_field(validate.settle_whole, 4096)
    max_seconds: int = declare_field(validate.settle_whole, 600)
    alert_below: Fraction = declare_field(validate.settle_share, Fraction(1, 10))
    identity_provider: IdentityProvider | None = declare_field(None, section=IdentityProvider)

    def _check_together(self) -> None:
        if self.max_memory_mb < _LEAST_MEMORY:
            raise PolicyError(
                f"a worker needs at least {_LEAST_MEMORY} MB of memory.",
                keys=("max_memory_mb",),
                hint=f"max_memory_mb = {_LEAST_MEMORY}",
            )


_LEAST_MEMORY = 256


__all__ = [
    "Analyst", "Budget", "Column", "Format", "Hop", "LedgerRules", "NameMapping", "Policy", "ServerRules", "Table", "Value",
    "fold",
]  # fmt: skip


USUAL_DELTA = Fraction(1, 10**6)
"""The delta at which a mu or rho is shown as an epsilon if the budget has none."""


@dataclass(frozen=True)
class Budget(Section):
    """The limits on the privacy loss of all statements, and of one.

    Args:
        epsilon, delta: the limit on the whole.
        mu, rho: the limit in the currency of gdp or of zcdp, in place of epsilon. The guarantee is then this limit. Delta
            pays for mechanisms with a delta of their own, and epsilon is the limit converted at that delta (1e-6 by
            default), for comparison.
        accountant: the rule that adds up losses: one of :data:`dpsql.privacy.filters.ACCOUNTANTS`, by default ``"zcdp"``,
            with mu ``"gdp"``.
        max_epsilon_per_query: the limit on one block; a mu or rho counts as its epsilon at the budget's delta.
        default_epsilon, default_delta: the cost of a block that names none.
        mechanism_delta_share: the part of delta for mechanisms that have a delta of their own (groups with private
            keys, stability tests); the rest pays for the conversion of the other accountants. ``basic`` sums all deltas and
            ignores it. A ledger keeps the share that it was opened with.
        answers: ``"shared"``: a stored answer is free for all analysts who may ask its statement. ``"own"``: an analyst's
            share, but not the whole, is debited once for each stored answer that another analyst paid for.
        per_period: whether each period of the tables with ``privacy_period`` has this budget of its own. A statement is charged
            to the periods that it reads; one that reads a table without a period, to all.

    Numbers may be ints, Fractions, or floats, which count as the decimal that prints them.

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
    per_period: bool = declare_field(validate.settle_flag, False)

    def _check_together(self) -> None:
        self._settle_own()
        for key, value, limit, most in (
            ("default_epsilon", self.default_epsilon, "max_epsilon_per_query", self.max_epsilon_per_query),
            ("default_epsilon", self.default_epsilon, "epsilon", self.epsilon),
            ("default_delta", self.default_delta, "delta", self.delta),
        ):
            if value is not None and most is not None and value > most:
                raise PolicyError(
                    f"{key} is more than {limit}, so it could never be spent.",
                    keys=(key,),
                    hint=f"make {key} smaller, or {limit} larger.",
                )

    def _settle_own(self) -> None:
        """Find the accountant and the epsilon of a budget in mu or rho; exactly one currency states the whole."""
        own = self.own
        if own is None:
            if self.epsilon is None:
                raise PolicyError("[budget] has no epsilon.", hint="write epsilon = 1, a common choice.")
            assign(self, "accountant", self.accountant or "zcdp")
            return
        named = own.currency
        if self.mu is not None and self.rho is not None:
            raise PolicyError("mu and rho are both given.", keys=("rho",), hint="keep one of the two.")
        if own.amount > LARGEST[named]:
            most = f"{named} = {write_number(LARGEST[named])}"
            raise PolicyError(
                f"this {named} is so large that it protects nothing.",
                keys=(named,),
                hint=f"the largest is {most}.",
            )
        epsilon = own.bound_epsilon(self.at_delta)
        if self.epsilon not in (None, epsilon):
            raise PolicyError(
                f"epsilon and {named} are both given.",
                keys=(named,),
                hint="keep the one that the guarantee should be stated in.",
            )
        assign(self, "epsilon", epsilon)
        kind = next(name for name, accountant in ACCOUNTANTS.items() if accountant.currency == named)
        if self.accountant not in (None, kind):
            raise PolicyError(
                f"a budget in {named} is counted by {kind}, not by {self.accountant}.",
                keys=("accountant",),
                hint=f'write accountant = "{kind}", or leave it out.',
            )
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
        """The whole in mu or rho; None if it is in epsilon."""
        if self.mu is not None:
            return Amount.of_mu(self.mu)
        return None if self.rho is None else Amount("rho", self.rho)

    @property
    def currency(self) -> str:
        """The currency of the whole: ``epsilon``, ``mu`` or ``rho``."""
        return "epsilon" if self.own is None else self.own.currency

    @property
    def amounts(self) -> dict[str, Any]:
        """The whole by currency; None if it is not given."""
        return {"epsilon": self.epsilon, "mu": self.mu, "rho": self.rho, "delta": self.delta}

    @property
    def at_delta(self) -> Fraction:
        """The delta at which a mu or rho is shown as an epsilon: the budget's, or :data:`USUAL_DELTA` if it has none."""
        return self.delta or USUAL_DELTA

    @property
    def mechanism_delta(self) -> Fraction:
        """The total delta of the mechanisms that have one of their own."""
        if self.own is not None:
            return self.delta
        return ACCOUNTANTS[self.accountant].split(self.delta, self.mechanism_delta_share)


@dataclass(frozen=True)
class Analyst(Section):
    """One analyst's share of the budget, in its currency; without delta, the analyst may use the whole delta.

    ``releases``: whether the analyst may create, refresh and drop releases, which all analysts read.
    ``group``: whether the name is one of the identity provider's groups, whose members have this share together.
    """

    epsilon: Fraction | None = declare_field(validate.settle_positive)
    delta: Fraction | None = declare_field(validate.settle_probability)
    mu: Fraction | None = declare_field(validate.settle_positive)
    rho: Fraction | None = declare_field(validate.settle_positive)
    releases: bool = declare_field(validate.settle_flag, False)
    group: bool = declare_field(validate.settle_flag, False)

    @property
    def amounts(self) -> dict[str, Any]:
        """The share by currency; None if it is not given."""
        return {"epsilon": self.epsilon, "mu": self.mu, "rho": self.rho, "delta": self.delta}


@dataclass(frozen=True)
class LedgerRules(Section):
    """The owner's choice of the data that the ledger keeps in addition to charges.

    Args:
        keep_answers_mb: megabytes of stored answers, which are free; the oldest are dropped to make room, and cost again
            afterwards. By default all are kept; 0 keeps none.
        prompt_history: whether the prompt of ``dpsql sql`` may keep its history in a file of the analyst's.
    """

    keep_answers_mb: int | None = declare_field(validate.settle_count)
    prompt_history: bool = declare_field(validate.settle_flag, True)

    @property
    def answer_bytes(self) -> int | None:
        """The limit on stored answers in bytes; None for no limit."""
        return None if self.keep_answers_mb is None else self.keep_answers_mb * 10**6


@dataclass(frozen=True)
class Policy(Section):
    """The owner's declaration as a whole.

    Args:
        budget: the limits on the privacy loss.
        tables: the tables that statements may name, by name.
        analysts: shares of the budget, by name.
        ledger: the data that the ledger keeps in addition to charges.
        server: the times and limits of a server.
        base: the folder that relative sources start from.

    Raises:
        PolicyError: its parts contradict each other.
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
        self._check_periods()
        own, whole = self.budget.currency, self.budget.amounts
        for name, analyst in self.analysts.items():
            shares = analyst.amounts
            others = [key for key in SYMBOLS if key != own and shares[key] is not None]
            if others or shares[own] is None:
                wrong = f"has {others[0]}, but the budget is in {own}" if others else f"has no {own}"
                raise PolicyError(
                    f"the share of {name} {wrong}.",
                    keys=("analysts", name, *others[:1]),
                    hint=f"write {own} = {write_number(whole[own] / 2)}.",
                )
            for key in (own, "delta"):
                share = shares[key]
                if share is not None and share > whole[key]:
                    raise PolicyError(
                        f"the share of {name} is more than the whole {key}.",
                        keys=("analysts", name, key),
                        hint=f"a share is at most the {key} of [budget].",
                    )

    def _check_periods(self) -> None:
        """Check that a budget per period has periods, and each of them public ends."""
        per_period = self.budget.per_period
        for name, table in self.tables.items():
            try:
                table.check_budget(per_period)
            except PolicyError as error:
                error.keys = ("tables", name, *error.keys)
                raise
        if per_period and all(table.declared_period is None for table in self.tables.values()):
            raise PolicyError(
                "the budget is per period, and no table has a privacy_period.",
                keys=("budget", "per_period"),
                hint="""add privacy_period = "date_trunc('month', day)" to a table, or remove per_period.""",
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
            known = [through.unit_path] if first else through.unit_paths  # the first path decides the unit
            if not through.public and rest not in [[fold(step.column) for step in way] for way in known]:
                raise PolicyError(
                    f"{table.name} and {hop.table} do not lead to the same privacy unit.",
                    keys=keys,
                    hint=f"from {hop.table} on, the path must be the privacy unit of {hop.table}.",
                )

    def _find_period(self, table: Table) -> Period | None:
        """Return the period of a table's units: its own, or that of the table at the end of its path."""
        return self.find_holder(table).declared_period

    def table(self, name: str) -> Table | None:
        """Return the table of a name in any (ASCII) case; None if there is none."""
        return self.tables.get(name)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; relative sources start from its folder.

        Raises:
            PolicyError: the file is missing or wrong; the message starts with its name and shows the line.
        """
        path = Path(path).expanduser()
        return cls.loads(read_policy_file(path), base=path.absolute().parent, name=path.name)

    @classmethod
    def loads(cls, text: str, base: str | Path | None = None, name: str = "policy") -> Policy:
        """Read policy text; ``name`` begins each message.

        Raises:
            PolicyError: the text is not TOML, or has an unknown key or a wrong value.
        """
        return read_section(parse_toml(text, name), (), cls, base=None if base is None else Path(base))

    def dumps(self) -> str:
        """Return TOML that :meth:`loads` reads back as an equal policy."""
        said, answers = self._collect_meaning(described=True), self.budget.answers
        if answers != "shared":
            said["budget"]["answers"] = answers
        kept = {"ledger": self.ledger.collect(), "server": self.server.collect()}
        return write_toml({**said, **{name: rules for name, rules in kept.items() if rules}}, _INLINE)

    @property
    def today(self) -> datetime.date:
        """Today in the policy's time zone, which ends the data of tables whose ``data_until`` is a word."""
        name = self.server.time_zone
        if name == "UTC":
            return datetime.datetime.now(datetime.UTC).date()
        import zoneinfo

        return datetime.datetime.now(zoneinfo.ZoneInfo(name)).date()

    @property
    def today_per_period(self) -> datetime.date | None:
        """Today, if each period has a budget of its own; None with one budget for all."""
        return self.today if self.budget.per_period else None

    def find_holder(self, table: Table) -> Table:
        """Return the table at the end of a table's path to its unit, which declares the period of its units."""
        return self.tables[table.unit_path[-1].table] if len(table.unit_path) > 1 else table

    def find_domain(self, today: datetime.date) -> Days:
        """Return the whole periods of all tables with a budget per period; none without one."""
        dated = [(table.find_days(today), table.declared_period) for table in self.tables.values()]
        return unite(p for days, period in dated if period for p in widen_to_periods(days, period.part))

    @property
    def shortest_period(self) -> str:
        """The unit of the shortest periods of its tables, such as ``month``; empty without one."""
        return min(self._period_parts, key=lambda part: (find_day_after(FIRST, part), part), default="")

    @property
    def _period_parts(self) -> set[str]:
        return {table.declared_period.part for table in self.tables.values() if table.declared_period}

    def has_periods(self, days: Days, today: datetime.date) -> bool:
        """Return whether days are whole periods of tables with a budget per period; ``today`` ends the data."""
        parts, ends = self._period_parts, (end for pair in days for end in pair)
        whole = all(any(find_first_day(end, part) == end for part in parts) for end in ends)
        return whole and not remove_days(days, self.find_domain(today))

    def may_publish(self, analyst: str | None) -> bool:
        """Return whether somebody may create, refresh and drop releases; without shares for analysts, everybody may."""
        known = None if analyst is None else self.find_analyst(analyst)
        return analyst is None or not self.analysts or (known is not None and self.analysts[known].releases)

    def find_analyst(self, name: str) -> str | None:
        """Return an analyst's name as the policy writes it, given any case; None for analysts without a share."""
        return next((known for known in self.analysts if fold(known) == fold(name)), None)

    def find_members_share(self, person: str, groups: Sequence[str]) -> str | None:
        """Return whose share a person of the identity provider uses: their own, or that of the first group with one.

        A person's name never stands for a group, nor a group's for a person, since the provider may name both alike.
        """
        known = self.find_analyst(person)
        if known is not None and not self.analysts[known].group:
            return person
        return next((name for name, one in self.analysts.items() if one.group and name in groups), None)

    def for_analyst(self, name: str | None) -> Policy:
        """Return the policy that one analyst may read: without sources, other analysts, or server settings other than times."""
        tables = {key: replace(table, source=None, format=None) for key, table in self.tables.items()}
        known = None if name is None else self.find_analyst(name)
        mine = {} if known is None else {known: self.analysts[known]}
        server = ServerRules(answer_times=self.server.answer_times, time_zone=self.server.time_zone)
        kept = LedgerRules(prompt_history=self.ledger.prompt_history)
        return replace(self, tables=tables, analysts=mine, ledger=kept, server=server, base=None)

    def _collect_meaning(self, described: bool = False) -> dict[str, Any]:
        """Return all settings that decide draws and charges; the share that pays for stored answers is not one.

        Args:
            described: whether descriptions are included, which decide nothing.
        """
        said = {"budget": replace(self.budget, answers="shared").collect()}
        said["tables"] = {name: table.collect() for name, table in self.tables.items()}
        for table in () if described else said["tables"].values():
            table.pop("description", None)
            columns = table.get("columns", {})
            for name in [
                name for name, column in columns.items() if column.pop("description", None) and not column
            ]:
                del columns[name]
            if not columns:
                table.pop("columns", None)
        said["analysts"] = {name: analyst.collect() for name, analyst in self.analysts.items()}
        for analyst in () if described else said["analysts"].values():
            analyst.pop("releases", None)
            analyst.pop("group", None)
        return said

    def dump(self, path: str | Path) -> None:
        """Write the policy to a file."""
        Path(path).write_text(self.dumps(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the settings that decide answers and charges, independent of their spelling."""
        return hashlib.sha256(write_toml(self._collect_meaning(), _INLINE).encode()).hexdigest()


_INLINE = frozenset(Column.__dataclass_fields__)


def list_mentioned(policy: Policy, table: Table) -> list[str]:
    """List the columns of a table that the policy names: declared ones, and those of paths to a privacy unit and of periods."""
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
    """List the columns that the policy names without a type."""
    types = {fold(name) for name, column in table.columns.items() if column.type is not None}
    return [name for name in list_mentioned(policy, table) if fold(name) not in types]


def list_types(policy: Policy, table: Table) -> dict[str, str]:
    """Return the declared column types of a source without types of its own.

    Raises:
        PolicyError: a named column has no type, or there is none; the hint has the lines to paste.
    """
    missing = list_untyped(policy, table)
    types = {name: column.type for name, column in table.columns.items() if column.type is not None}
    if missing or not types:
        raise explain_missing_types(table, missing)
    return types


def explain_missing_types(table: Table, missing: list[str]) -> PolicyError:
    """Return the error about missing types, with the lines to paste."""
    lacks = f", and the policy declares none for {', '.join(missing)}" if missing else ""
    lines = write_columns(table, dict.fromkeys(missing or ["column"]))
    return PolicyError(
        f"the source of {table.name} has no column types{lacks}.",
        keys=("tables", table.name),
        hint="\n".join(["declare them (dpsql policy check proposes types), for example:", *lines]),
    )


def write_columns(table: Table, types: Mapping[str, str | None]) -> list[str]:
    """Return lines that declare columns' types (None: suggested by their settings) and repeat their other settings."""
    known = NameMapping({**dict.fromkeys(types, Column()), **table.columns})
    lines = {n: {"type": kind or known[n].suggest_type(), **known[n].collect()} for n, kind in types.items()}
    return write_toml({"tables": {table.name: {"columns": lines}}}, _INLINE).splitlines()
