"""Outcomes of statements: charges in words, and the facts about the last statement that its explanation needs."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.errors import EngineError, Error, Interrupted, PostprocessingError
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.periods import say_charge
from dpsql.session.result import Result
from dpsql.session.stored_blocks import PreparedPlan

if TYPE_CHECKING:
    from dpsql.binding.modes.declared import Declaration

NO_CHARGE = "no charge"


def write_charge(ledger: Ledger, event: Event | None, debit: Event | None = None) -> str:
    """Return a charge with the periods that pay it, and the debit of the analyst's share, as the accountant writes them."""
    write = ledger.accountant.write_charge
    parts = [] if event is None else [say_charge(event, write)]
    return " and ".join(
        [*parts, *([] if debit is None else [f"{say_charge(debit, write)} of {ledger.analyst}'s share"])]
    )


def write_cost_line(
    ledger: Ledger, event: Event | None, charge: str, due: str = "", since: str = "", counted: str = ""
) -> str:
    """Return the line under an answer: its cost, the time its free parts were stored, and the remaining budget.

    The budget is that of the periods that pay, or of all periods if none does.

    Args:
        charge: the event's, as :func:`write_charge` writes it.
        due: the debit of the analyst's share, as written by it.
        counted: how many of its periods are stored and how many are new, if it is stored in parts.
    """
    if counted:
        paid = " and ".join(filter(None, [f"cost {charge}" if charge else "", due])) or NO_CHARGE
        return f"{counted} · {paid} · {ledger.say_left(event)}"
    if not charge and not since:
        return NO_CHARGE
    if not charge:
        return f"{since}, {due or NO_CHARGE} · {ledger.say_left()}"
    rest = f" (the rest is {since}: {due or 'free'})" if since else ""
    return f"cost {charge}{rest} · {ledger.say_left(event)}"


def list_draws(prepared: PreparedPlan) -> list[PrivateBlock]:
    """Return the blocks that would be drawn if nothing were stored, without duplicates."""
    return [item.block for item in prepared.asked if item.same is None and not item.block.prepaid]


@dataclass(frozen=True)
class AskedStatement:
    """The last statement of a session, as needed for its explanation. It contains no released row.

    Args:
        bound: its bound form; None if it was not bound, or reads nothing private.
        said: the sentences on its stored blocks.
        reserved: the event that was, or would have been, reserved.
        debit: the charge on the analyst's share alone.
        used: the final charge.
        since: the time the answer was stored.
        done: its outcome in a word; empty while it runs.
        draws: its blocks without duplicates of another's draw.
    """

    text: str
    bound: Plan | Declaration | None = None
    said: tuple[str, ...] = ()
    reserved: Event | None = None
    debit: Event | None = None
    used: Event | None = None
    notes: tuple[str, ...] = ()
    since: str = ""
    error: Error | None = field(default=None, compare=False)
    done: str = ""
    draws: tuple[PrivateBlock, ...] | None = None

    @property
    def paid_all(self) -> bool:
        """Whether its charge is the price of all of its blocks: nothing was stored."""
        events = [block.operator.event for block in self.draws or ()]
        return bool(events) and self.reserved == compose_events(events)

    def look_up(self, prepared: PreparedPlan) -> AskedStatement:
        """Return the statement with the result of its blocks' look-up."""
        return replace(
            self,
            bound=prepared.plan,
            said=prepared.sentences(),
            reserved=prepared.event,
            debit=prepared.debit,
            draws=tuple(list_draws(prepared)),
        )

    def finish(self, prepared: PreparedPlan, result: Result) -> AskedStatement:
        """Return the statement as answered."""
        done = "answered" if result.event is not None or not prepared.stored else "shown again"
        return replace(
            self,
            used=result.event,
            notes=result.notes,
            since=prepared.since,
            done=done if prepared.plan.blocks else "free",
        )

    def fail(self, error: Error) -> AskedStatement:
        """Return the statement as refused or failed."""
        done = "interrupted" if isinstance(error, Interrupted) else "refused"
        failed = isinstance(error, EngineError | PostprocessingError)
        return replace(self, error=_detach(error), done="failed" if failed else done)


def _detach(error: Error) -> Error:
    """Return a copy of an error without its traceback, whose frames may contain exact values."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == Error.__module__)
    made: Error = kind(error.message, span=error.span, hint=error.hint, text=error.text)
    return made
