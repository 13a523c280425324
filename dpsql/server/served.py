"""A served policy: its analysts, their queues and rights, and its readings.

SIGHUP reads it again. If the new policy doesn't load, doesn't fit the data, or needs more than the ledger grants, the old one
stays. Running statements end under the old one; then each queue takes a worker under the new one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dpsql.errors import Error, LedgerError, PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.state_files import take_ledger
from dpsql.ledger.upkeep import forget_before
from dpsql.policy.model import Policy
from dpsql.server.analyst_tokens import Identity, TokenFile, TokenReader, TokenRecord
from dpsql.server.event_log import EventLog
from dpsql.server.isolation import MemoryGroups, list_readable
from dpsql.server.queues import AnalystQueue, Edition, SessionRecord
from dpsql.server.rights import Lapse, RightError, count_body_bytes
from dpsql.server.worker_process import WorkerPool, WorkerSetup

_T = TypeVar("_T")


@dataclass(frozen=True)
class ServedFiles:
    """The files of a policy, its ledger, and the database of its tables without a source."""

    policy: Path
    database: str
    ledger: Path


class ServedPolicy:
    """One policy with its tokens, its ledger and its analysts' queues.

    Args:
        places: its files.
        groups: the cgroups that limit workers' memory.
        log: gets events.

    Raises:
        ServerError: another server has the ledger. LedgerError: its folder can't be written.
    """

    def __init__(self, places: ServedFiles, groups: MemoryGroups, log: EventLog) -> None:
        self.places, self._groups, self._log = places, groups, log
        self.name = places.policy.stem
        self.tokens = TokenFile(places.policy)
        self._lock = threading.Lock()
        self._queues: dict[str, AnalystQueue] = {}
        self._forgot: date | None = None
        self._old: list[Edition] = []
        self._edition: Edition | None = None
        self._share_row: tuple[int, int] = (-1, -1)
        """The ledger's last row, and the reading, for which the shares were looked at."""
        self._low: set[str] = set()
        """The analysts of whose shares little is left; an empty name is the whole."""
        self.readings = 0
        """How often the policy was read again."""
        self._ended = False
        self._held = take_ledger(places.ledger)

    # -- readings -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the policy, start a worker and open the ledger; PolicyError or LedgerError if one of these fails."""
        self._edition = self._read()

    @property
    def edition(self) -> Edition:
        """The present reading."""
        assert self._edition is not None, "it was not started"
        return self._edition

    def _read(self) -> Edition:
        path = self.places.policy
        policy = Policy.load(path)
        reader = None
        if policy.server.identity_provider is not None:
            reader = TokenReader(policy.server.identity_provider)
        setup = WorkerSetup(
            path.read_text(encoding="utf-8"),
            path.name,
            path.absolute().parent,
            self.places.database,
            policy.server,
        )
        pool = WorkerPool(
            setup,
            self._groups,
            lambda error: self._log.write("no worker", policy=self.name, why=error.message),
        )
        worker = pool.start()
        try:
            ledger = Ledger.open(self.places.ledger, policy, worker.dataset)
        except BaseException:
            worker.close()
            raise
        self.held = worker.held
        pool.keep(worker)
        return Edition(self.name, policy, ledger, pool, reader)

    @property
    def policy(self) -> Policy:
        """The present policy."""
        return self.edition.policy

    def reload(self) -> None:
        """Read the policy again, keep the old one if the new one can't be used, and log the outcome."""
        try:
            edition = self._read()
        except Error as error:
            if not self._ended:
                self._log.write("policy not taken", policy=self.name, why=error.message, hint=error.hint)
            return
        with self._lock:
            if self._ended:
                edition.pool.close()
                edition.ledger.close()
                return
            self._old.append(self.edition)
            self._edition = edition
            self.readings += 1
            queues = list(self._queues.values())
        self._old[-1].pool.close()
        for queue in queues:
            queue.take_edition(edition)
        self._log.write("policy taken", policy=self.name)
        self._close_old()

    def _close_old(self) -> None:
        """Close readings without a queue."""
        with self._lock:
            used = {id(queue.used_edition) for queue in self._queues.values()}
            done = [edition for edition in self._old if id(edition) not in used]
            self._old = [edition for edition in self._old if id(edition) in used]
        for edition in done:
            edition.ledger.close()

    # -- analysts -----------------------------------------------------------------------------------------------

    def identify(self, token: str) -> Identity | None:
        """Return a token's analyst; None if it is invalid, or the file of tokens can't be read."""
        return self.find_by_provider(token) or self._ask_tokens(lambda: self.tokens.identify(token))

    def find_by_provider(self, token: str) -> Identity | None:
        """Return the analyst of an identity provider's token. That name needs a valid token of ours, too."""
        reader = self.edition.reader
        found = None if reader is None else reader.read(token)
        name = None if found is None else self.policy.find_members_share(found.name, found.groups)
        holder = None if name is None else self.find_holder(name)
        if found is None or holder is None:
            return None
        member = "" if holder.name == found.name else found.name
        return replace(holder, expires=min(holder.expires, found.expires), member=member)

    def find_holder(self, name: str) -> Identity | None:
        """Return the analyst of a certificate's name; None if that name has no valid token."""
        return self._ask_tokens(lambda: self.tokens.find_holder(name))

    def find_token(self, name: str) -> TokenRecord | None:
        """Return the record of an analyst's token; None if there is no valid one, or the file can't be read."""
        return self._ask_tokens(lambda: self.tokens.find(name))

    def _ask_tokens(self, ask: Callable[[], _T]) -> _T | None:
        """Return the result of ``ask``; if the file of tokens can't be read, log that and return None."""
        try:
            return ask()
        except PolicyError as error:
            self._log.write("no tokens", policy=self.name, why=error.message)
            return None

    def ask_right(self, name: str, mark: str, letting_go: bool = False) -> None:
        """Check that an analyst has a right now. If the file of tokens can't be read, no analyst has one.

        Args:
            name: the analyst.
            mark: the mark of the token that the right came with.
            letting_go: whether the request only closes or stops something.

        Raises:
            RightError: the analyst has none.
        """
        held = self.find_holder(name)
        if held is None or held.mark != mark:
            raise RightError(Lapse.ENDED)
        if self.policy.find_analyst(name) is None:
            raise RightError(Lapse.NO_SHARE)
        if held.paused and not letting_go:
            raise RightError(Lapse.PAUSED)

    def find_queue(self, name: str) -> AnalystQueue | None:
        """Return an analyst's queue; None if the policy gives them no share."""
        with self._lock:
            if self.edition.policy.find_analyst(name) is None:
                return None
            if name not in self._queues:
                pause, ask = partial(self._pause, name), partial(self.ask_right, name)
                self._queues[name] = AnalystQueue(name, self.edition, self._log, pause, ask)
            return self._queues[name]

    def summarize(self) -> dict[str, Any]:
        """Return the state of its queues for the owner's page, as JSON values."""
        with self._lock:
            queues = list(self._queues.values())
        return {
            "name": self.name,
            "readings": self.readings,
            "queues": [queue.summarize() for queue in queues],
        }

    def _pause(self, name: str, why: str) -> None:
        self._log.write("pause", analyst=name, policy=self.name, why=why)
        self.tokens.pause(name, why)

    # -- upkeep -------------------------------------------------------------------------------------------------

    def end_old_sessions(self) -> None:
        """End sessions at once whose token or share has ended, or that the owner ends, and stop statements for the owner."""
        for name, queue in list(self._queues.items()):
            orders: list[str] = []
            with suppress(PolicyError):
                held = self.tokens.find(name)
                orders = [] if held is None else held.list_ended()
            for order in orders:
                if order.startswith("#") and queue.stop_statement(int(order[1:])):
                    self._log.write(
                        "statement stopped", analyst=name, policy=self.name, statement=int(order[1:])
                    )

            def holds(record: SessionRecord, name: str = name, orders: list[str] = orders) -> bool:
                if record.log_name in orders:
                    return False
                try:
                    self.ask_right(name, record.token, letting_go=True)
                except RightError:
                    return False
                return True

            ended = queue.end_sessions(holds)
            if ended:
                self._log.write("sessions ended", analyst=name, policy=self.name, count=ended)

    def list_readable(self) -> list[str]:
        """Return the files of private data that other users can read."""
        base = self.places.policy.absolute().parent
        sources = [table.source for table in self.policy.tables.values() if table.source and not table.public]
        return list_readable(
            str(base / os.path.expanduser(place)) for place in (*sources, self.places.database)
        )

    def watch_shares(self) -> None:
        """Log each share, and the whole, of which less is left than ``alert_below``: once, until more is granted."""
        edition = self.edition
        row = edition.ledger.last_row, self.readings
        if row == self._share_row:
            return
        self._share_row = row
        for name in [name for name in list(self._queues) if edition.policy.find_analyst(name) is not None]:
            share = edition.ledger.for_analyst(name).state()
            for who, state in ((name, share), ("", share.whole)):
                if state is None or 1 - state.share >= edition.policy.server.alert_below:
                    self._low.discard(who)
                elif who not in self._low:
                    self._low.add(who)
                    self._log.write("share low", analyst=who or None, policy=self.name, why=state.sentence)

    def tidy(self) -> None:
        """Close idle sessions, end workers without any, and blank texts that are older than the policy allows."""
        for queue in list(self._queues.values()):
            queue.tidy()
        self._close_old()
        with suppress(LedgerError):  # the next statement reports it
            self.watch_shares()
        days, today = self.edition.policy.server.keep_text_days, datetime.now(UTC).date()
        if days is not None and self._forgot != today:
            self._forgot = today
            try:
                forget_before(self.places.ledger, today - timedelta(days=days))
            except LedgerError as error:
                self._log.write("texts not forgotten", policy=self.name, why=error.message)

    def give_up_reading(self) -> None:
        """Reject further readings of the policy, since the server is ending."""
        with self._lock:
            self._ended = True

    def stop(self, patience: float) -> None:
        """Stop and settle what runs, and end all workers; ``patience``: seconds for a paid statement to reach its answer time."""
        run_together([partial(queue.close, patience) for queue in list(self._queues.values())], 4 * patience)

    def close(self) -> None:
        """Close the ledger, and release its lock for another server."""
        for edition in filter(None, [*self._old, self._edition]):
            edition.pool.close()
            with suppress(Error):
                edition.ledger.close()
        os.close(self._held)


@dataclass(frozen=True)
class Right:
    """The right that a token or a certificate gave. A connection keeps it, and asks it at each request.

    Args:
        served: the policy.
        queue: the analyst's.
        mark: the mark of the token.
        expires: when the token ends.
        member: the person who uses a group's share; empty if the share is the analyst's own.
    """

    served: ServedPolicy
    queue: AnalystQueue
    mark: str
    expires: datetime
    member: str = ""

    @classmethod
    def of(cls, served: ServedPolicy, identity: Identity) -> Right:
        """Return the right of an analyst whose token or certificate was checked; RightError if they have none now."""
        queue = served.find_queue(identity.name)
        if queue is None:
            raise RightError(Lapse.NO_SHARE)
        right = cls(served, queue, identity.mark, identity.expires, identity.member)
        right.check()
        return right

    def check(self, letting_go: bool = False) -> None:
        """Ask whether it holds now.

        Args:
            letting_go: whether something is only given back or ended, which a pause does not forbid.

        Raises:
            RightError: it does not.
        """
        if self.expires <= datetime.now(UTC):  # a provider's token ends before ours
            raise RightError(Lapse.ENDED)
        self.served.ask_right(self.queue.analyst, self.mark, letting_go)

    def take(self, size: int, counts: bool = True) -> None:
        """Ask whether it holds now for a request, and count the request.

        Args:
            size: the bytes of the request.
            counts: whether it counts as one of the minute's.

        Raises:
            RightError: it does not hold, or a limit is reached.
        """
        self.check()
        if counts and not self.queue.rate.take():
            raise RightError(Lapse.TOO_MANY)
        most = count_body_bytes(self.queue.edition.policy.server)
        if size > most:
            raise RightError(Lapse.TOO_LARGE, f"the request has {size:,} bytes; the server takes {most:,}.")


def run_together(tasks: list[Callable[[], None]], seconds: float) -> bool:
    """Run tasks in threads, wait for all of them up to some seconds, and return whether all are done."""
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
