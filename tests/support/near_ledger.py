"""Sessions over the two sides of a server's ledger, in one process: every call goes through the bytes of a message."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpsql.client.wire import Message, decode, encode
from dpsql.engine import open_engine
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy
from dpsql.server.ledger_service import LedgerProxy, LedgerService
from dpsql.session.session import Session

POLICY = """
[budget]
epsilon = 40
delta = 1e-3
accountant = "{accountant}"
default_epsilon = 1
default_delta = 1e-6
answers = "{answers}"
[tables.visits]
source = "visits.parquet"
privacy_unit = "person"
max_rows = 1
max_groups = 1
columns.age.bounds = [0, 100]
columns.ward.values = ["A", "B"]
[tables.wards]
source = "wards.parquet"
public = true
[analysts.ada]
epsilon = 30
releases = true
[analysts.bob]
epsilon = 20
[analysts.grace_hopper]
epsilon = 20
"""


class NearLedger:
    """A ledger that several analysts reach by messages, and what went over the wire.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path, answers: str = "shared", accountant: str = "zcdp") -> None:
        self.folder = folder
        people = range(600)
        ages = [n % 90 for n in people]
        pq.write_table(
            pa.table({"person": list(people), "age": ages, "ward": ["AB"[n % 2] for n in people]}),
            folder / "visits.parquet",
        )
        pq.write_table(pa.table({"ward": ["A", "B"], "beds": [10, 20]}), folder / "wards.parquet")
        (folder / "policy.toml").write_text(POLICY.format(answers=answers, accountant=accountant))
        self.policy = Policy.load(folder / "policy.toml")
        engine = open_engine(":memory:", self.policy, folder, None)
        self.dataset = engine.dataset
        engine.close()
        self.path = folder / "secret.ledger"
        self.root = Ledger.open(self.path, self.policy, self.dataset)
        self.calls: Counter[str] = Counter()
        self.answers: list[bytes] = []
        self.reported: list[BaseException] = []
        self.may_pay = True
        self._sessions: list[Session] = []

    def service(self, analyst: str, **more: Any) -> LedgerService:
        """Return the front's side for an analyst."""
        return LedgerService(self.root.for_analyst(analyst), report=self.reported.append, **more)

    def ask(self, service: LedgerService, head: dict[str, Any], payload: bytes = b"") -> Message:
        """Send one call, as bytes there and back."""
        sent = decode(encode(Message(head, payload)))
        self.calls[str(head.get("method"))] += 1
        answer = encode(service.call(str(sent.head.get("method")), sent.head, sent.payload, self.may_pay))
        service.finish_call()
        self.answers.append(answer)
        return decode(answer)

    def session(self, analyst: str, service: LedgerService | None = None) -> Session:
        """Open a session of an analyst over the wire."""
        held = service or self.service(analyst)
        proxy = LedgerProxy(lambda head, payload: self.ask(held, head, payload), self.policy, analyst)
        made = Session(self.policy, open_engine(":memory:", self.policy, self.folder, None), proxy)
        self._sessions.append(made)
        return made

    def direct(self, analyst: str | None, path: Path | None = None) -> Session:
        """Open a session of an analyst over a ledger of its own process."""
        ledger = Ledger.open(path or self.path, self.policy, self.dataset, analyst)
        made = Session(self.policy, open_engine(":memory:", self.policy, self.folder, None), ledger)
        self._sessions.append(made)
        return made

    def close(self) -> None:
        """Close all sessions, and the ledger."""
        for session in self._sessions:
            session.close()
        self.root.close()
