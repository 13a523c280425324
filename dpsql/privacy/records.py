"""Records for display: the state of a budget at one moment, and its statements.

They don't depend on a ledger: a server's clients read them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from fractions import Fraction

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import DOWN, UP, write_number, write_pair, write_short
from dpsql.privacy.accountants import MANY, Accountant
from dpsql.privacy.amounts import OwnRoom, format_percent, say_what_is_left
from dpsql.privacy.events import Event
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.periods import Days, say_charge

BAR_WIDTH = 20
"""Letters of a budget's bar in text."""


@dataclass(frozen=True, repr=False)
class BudgetState:
    """The budget at one moment: of the whole, or of an analyst's share (then ``whole`` is the state of the whole).

    ``spent_epsilon`` is the plain sum over all charges; ``spent_delta`` the sum of the mechanisms' own deltas (under ``basic``:
    of all deltas), limited by ``mechanism_delta``. ``left_epsilon`` is, under every accountant, the largest epsilon of one more
    statement (for a share: that both allow). ``about`` counts further statements at the default epsilon. ``rule_used`` is the
    used part of the accountant's rule, None without one. ``rule`` equals it if the rule, not the plain sum, decides how much
    is left.
    """

    accountant: str
    limit_epsilon: Fraction
    limit_delta: Fraction
    spent_epsilon: Fraction
    spent_delta: Fraction
    left_epsilon: Fraction
    left_delta: Fraction
    detail: str
    analyst: str | None = None
    default_epsilon: Fraction | None = None
    about: int | None = None
    whole: BudgetState | None = None
    mechanism_delta: Fraction = Fraction(0)
    rule: Fraction | None = None
    rule_used: Fraction | None = None
    own: OwnRoom | None = field(default=None, repr=False)
    """The room left in the rule's own currency, if the accountant displays it."""
    promises_rule: bool = field(default=False, repr=False)
    """Whether the budget was given in that currency, so the limit itself is promised."""
    at_delta: Fraction = field(default=Fraction(0), repr=False)
    """The delta at which a budget in its own currency is shown as an epsilon."""
    share_left: Fraction | None = field(default=None, repr=False)
    """The epsilon left of a share alone, if less is left of the whole; else None."""
    share_own: OwnRoom | None = field(default=None, repr=False)
    """The room left of the share alone in the rule's own currency, if less is left of the whole."""
    answers: str = field(default="shared", repr=False)
    """The charge for a stored answer that another analyst paid for: none (``shared``), or to the reader's own share (``own``)."""
    period: str = field(default="", repr=False)
    """The periods whose budget it is, in words; empty without budgets per period."""
    days: Days = field(default=(), repr=False)
    """The days of these periods."""
    part: str = field(default="", repr=False)
    """The unit of the shortest periods, such as ``month``; empty without budgets per period."""
    stretches: tuple[BudgetState, ...] = field(default=(), repr=False)
    """The states of all stretches of periods with equal sums, in order; this one is the fullest."""

    @property
    def has_rule(self) -> bool:
        """Whether the accountant counts by a rule in addition to the plain sum."""
        return ACCOUNTANTS[self.accountant].has_rule

    @property
    def currency(self) -> str:
        """The currency of displayed amounts: ``epsilon``, ``mu`` or ``rho``."""
        return ACCOUNTANTS[self.accountant].currency if self.own is not None else "epsilon"

    @property
    def share(self) -> Fraction:
        """The spent part of the limit, from 0 to 1."""
        own = self.share_own or self.own
        if own is None:
            left = self.left_epsilon if self.share_left is None else self.share_left
            return 1 - left / self.limit_epsilon
        gone = 1 - own.left / own.limit
        return gone if own.by_sum is None else min(gone, 1 - own.by_sum / self.limit_epsilon)

    @property
    def spent(self) -> str:
        """The amount spent, ``"ε=0.2"``, rounded up; ``"μ=0.2"`` if the accountant displays mu."""
        if self.own is None:
            return write_pair(self.spent_epsilon, self.spent_delta, UP)
        delta = f", δ={write_short(self.spent_delta, UP)}" if self.spent_delta else ""
        return f"{self.own.symbol}={write_short(self.own.spent, UP)}{delta}"

    @property
    def limit(self) -> str:
        """The limit, ``"ε=1, δ=1e-06"``; ``"μ=1, δ=1e-06"`` of a budget in mu."""
        if self.own is None or not self.promises_rule:
            return write_pair(self.limit_epsilon, self.limit_delta)
        delta = f", δ={write_short(self.limit_delta)}" if self.limit_delta else ""
        return f"{self.own.symbol}={write_number(self.own.limit, up=False)}{delta}"

    @property
    def left(self) -> str:
        """The amount left, ``"ε=0.8"``, rounded down; ``"μ=0.8"`` if the accountant displays mu."""
        if self.own is not None:
            return f"{self.own.symbol}={write_short(self.own.left, DOWN)}"
        return f"ε={write_short(self.left_epsilon, DOWN)}"

    @property
    def sentence(self) -> str:
        """The amount left, ``"ε=0.8 of ε=1 left"``, with the share's owner; and the used part of the rule, if that decides.

        With less left of the whole than of a share, both are named:
        ``"ε=1.73 of ana's ε=2 left, but only ε=0.93 of the whole"``.
        """
        return f"{self._say_left()} in {self.period}" if self.period else self._say_left()

    def _say_left(self) -> str:
        mine = f"{self.analyst}'s " if self.analyst else ""
        if self.own is not None and self.share_own is not None:
            return f"{self.share_own.say(self.limit_epsilon, mine)}, but only {self.left} of the whole"
        if self.own is not None:
            return self.own.say(self.limit_epsilon, mine)
        if self.share_left is not None:
            used = (
                ""
                if self.rule is None or not self.left_epsilon
                else f" for one more, {format_percent(self.rule)} of its rule used"
            )
            share = say_what_is_left(self.share_left, self.limit_epsilon, None, mine)
            return f"{share}, but only ε={write_number(self.left_epsilon, up=False)} of the whole{used}"
        return say_what_is_left(self.left_epsilon, self.limit_epsilon, self.rule, mine)

    @property
    def rule_text(self) -> str:
        """The used part of the rule, ``"21%"``; empty without a rule."""
        return "" if self.rule_used is None else format_percent(self.rule_used)

    @property
    def about_text(self) -> str:
        """The number of further statements, ``"about 8 more questions at ε=0.1"``; empty if the policy has no default."""
        if self.about is None or self.default_epsilon is None:
            return ""
        count = "any number of" if self.about >= MANY else f"about {self.about}" if self.about else "no"
        questions = "question" if self.about == 1 else "questions"
        return f"{count} more {questions} at ε={write_short(self.default_epsilon)}"

    @property
    def title(self) -> str:
        """The title of a display, ``"budget ε=1, δ=1e-06"``, or with the share's owner."""
        whose = "budget" if self.analyst is None else f"share of {self.analyst}"
        if self.promises_rule:
            return f"{whose} {self.limit}"
        return f"{whose} ε={write_short(self.limit_epsilon)}, δ={write_short(self.limit_delta)}"

    @property
    def amounts(self) -> str:
        """The remaining amount in plain words, as in every display: ``"ε=0.8 of ε=1 left; about 8 more questions at ε=0.1"``."""
        return "; ".join(filter(None, [self.sentence, self.about_text]))

    @property
    def counting(self) -> str:
        """How the accountant counted, by the parts of its rule; empty if it has none."""
        return f"many small losses count as less than their sum: {self.detail}" if self.has_rule else ""

    @property
    def bar_line(self) -> str:
        filled = round(float(self.share) * BAR_WIDTH)
        if self.share > 0:
            filled = max(1, filled)
        if self.left_epsilon > 0:
            filled = min(BAR_WIDTH - 1, filled)
        return f"{self.amounts}     {'█' * filled}{'░' * (BAR_WIDTH - filled)}  {self.title}"

    def __repr__(self) -> str:
        return self.bar_line if self.whole is None else f"{self.bar_line}\n{self.whole.bar_line}"


OTHERS = "others"
"""Analyst and outcome of the entry that sums up other analysts' charges."""


@dataclass(frozen=True)
class Entry:
    """One statement in the ledger, with its charge.

    ``event`` counts against the budget: the reserved event until it is settled, None if the statement was refused.
    ``asked`` is the reserved event, or the event that a refused statement asked for (None if unknown).
    ``outcome`` is ``released``, ``failed``, ``interrupted``, ``refused``, ``open``, ``unsettled`` or ``written off``;
    ``debited`` if only a share was charged; ``published`` if it made, changed or dropped a release; ``others`` for the total of
    other analysts.
    """

    statement_id: int
    when: str
    analyst: str
    text: str
    outcome: str
    event: Event | None
    asked: Event | None
    reason: str = ""
    key: str = ""
    user: str = ""
    process: str = ""
    progress: Event | None = None
    release: str | None = None
    blocks: Mapping[str, str] = field(default_factory=dict)
    """Digests of the stored answers of its private blocks, by their keys."""
    debit: Event | None = None
    """The charge to the analyst's share alone, for stored answers that another analyst paid for."""
    debited: Mapping[str, str] = field(default_factory=dict)
    """Digests of these answers, by the keys of their blocks."""
    parts: Mapping[str, Event] = field(default_factory=dict)
    """The loss of each private block, if there are several, by its key."""

    def lost(self, key: str) -> Event | None:
        """Return the loss of one of its private blocks; without a separate loss, that of the whole statement."""
        return self.parts.get(key, self.event)

    def kept(self, key: str) -> str | None:
        """Return the digest of the answer stored under a key; None if there is none."""
        if self.outcome != "released":
            return None
        return self.blocks.get(key) or (self.release if key == self.key else None)

    @property
    def loss(self) -> str:
        """The loss for display; ``"0"`` for a refused statement."""
        return "0" if self.event is None else self.event.sentence()

    def charge(self, accountant: Accountant | str) -> str:
        """Return the charge of an accountant for display; ``"0"`` for a refused statement."""

        def write(event: Event) -> str:
            return say_charge(
                event, Event.sentence if isinstance(accountant, str) else accountant.write_charge
            )

        event = self.charged(accountant)
        parts = [] if event is None else [write(event)]
        parts += [] if self.debit is None else [f"{write(self.debit)} of the share"]
        return " and ".join(parts) or "0"

    def charged(self, accountant: Accountant | str) -> Event | None:
        """Return the charge as an accountant counts it; None for a refused statement."""
        kind = ACCOUNTANTS[accountant] if isinstance(accountant, str) else accountant
        return None if self.event is None else kind.charge(self.event)

    @property
    def when_text(self) -> str:
        """The time in the reader's time zone: the hour, with the date unless it was today; empty if unknown."""
        return format_local_time(self.when) if self.when else ""


_zone = {"told": False}
"""The setting that makes local times name their zone."""


def tell_time_zone() -> None:
    """Make the local times of this process name their zone, for readers in another one."""
    _zone["told"] = True


def format_local_time(when: str) -> str:
    """Format a time of the ledger in this process's time zone; without the date if it was today."""
    moment = datetime.fromisoformat(when).astimezone()
    today = moment.date() == datetime.now().astimezone().date()
    zone = f" {moment.tzname()}" if _zone["told"] else ""
    return moment.strftime("%H:%M" if today else "%Y-%m-%d %H:%M") + zone
