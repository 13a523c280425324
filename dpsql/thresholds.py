"""The open thresholds of a session: reserved at DECLARE, settled at CLOSE, at the last hit, or with the session."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from dpsql.errors import BindError, Error, did_you_mean
from dpsql.ledger.ledger import Ledger, Ticket
from dpsql.mechanisms.selection.above_threshold import Stream
from dpsql.noise.entropy import Entropy
from dpsql.plan import Plan
from dpsql.sql.selection.thresholds import Declaration


@dataclass
class Alarm:
    """One open threshold. Its noisy level lives here only, and dies with the process."""

    declaration: Declaration
    ticket: Ticket
    stream: Stream


class Alarms:
    """Thresholds by name, whatever its case."""

    def __init__(self, ledger: Ledger, entropy: Entropy) -> None:
        self._ledger, self._entropy = ledger, entropy
        self.declared: dict[str, Declaration] = {}
        self._open: dict[str, Alarm] = {}
        self._used: dict[str, Alarm] = {}
        """Those that closed themselves at their last hit, and were not CLOSEd since."""

    def open(self, declaration: Declaration, text: str) -> Ticket:
        """Reserves the whole and draws the noisy threshold.

        Raises:
            BindError: the name is open already. BudgetExceeded: it does not fit.
        """
        key = declaration.name.lower()
        if key in self._open:
            raise BindError(
                f"the threshold {declaration.name} is open already.", hint=f"CLOSE {declaration.name} first."
            )
        ticket = self._ledger.reserve(declaration.event, text)
        d = declaration
        stream = Stream(d.epsilon1, d.epsilon2, d.max_hits, d.refresh, self._entropy)
        ticket.update(stream.event)
        alarm = Alarm(declaration, ticket, stream)
        declaration.ask = lambda value, threshold, sensitivity: self._ask(
            alarm, value, threshold, sensitivity
        )
        self._open[key] = alarm
        self._used.pop(key, None)
        self.declared[key] = declaration
        return ticket

    def _ask(self, alarm: Alarm, value: int, threshold: int, sensitivity: int) -> bool:
        above = alarm.stream.ask(value, threshold, sensitivity)
        # Durable before it is told: a restart must not forget a hit. Both answers are written, so that a ledger which
        # can't be written tells neither.
        alarm.ticket.update(alarm.stream.event)
        if alarm.stream.exhausted:
            self._used[alarm.declaration.name.lower()] = self.close(alarm.declaration.name)
        return above

    def close(self, name: str) -> Alarm:
        """Settles a threshold by the hits found. One that closed itself at its last hit is settled already, and is given
        once more: whether CLOSE finds it open must not depend on the answers.

        Raises:
            BindError: no such threshold is open.
        """
        key = name.lower()
        if key in self._used:
            return self._used.pop(key)
        if key not in self._open:
            names = [alarm.declaration.name for alarm in self._open.values()]
            raise BindError(f"no threshold {name} is open.", hint=did_you_mean(name, names))
        alarm = self._open.pop(key)
        alarm.declaration.ask, alarm.declaration.closed = None, True
        self._ledger.settle(alarm.ticket, alarm.stream.event, None, "released")
        return alarm

    def require(self, plan: Plan) -> None:
        """Every threshold that a plan asks must be open: an earlier statement of the cell may have used it up.

        Raises:
            BindError: one is not.
        """
        for block in plan.blocks:
            name = getattr(block.operator, "name", "") if block.prepaid else ""
            if name and name.lower() not in self._open:
                raise BindError(f"the threshold {name} is closed.", hint="DECLARE it again.")

    def close_all(self) -> None:
        for alarm in list(self._open.values()):
            with suppress(Error):
                self.close(alarm.declaration.name)
