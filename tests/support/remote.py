"""A session on a server without the server: messages go through their bytes to the worker's side of a session at hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow.flight as flight

from dpsql.client.remote_session import RemoteSession
from dpsql.client.wire import READING, Message, decode, encode
from dpsql.policy.model import Policy
from dpsql.server.client_session import ClientSession
from dpsql.session.session import Session


def without_sources(policy: Policy) -> str:
    """Return the policy's text as a server tells it."""
    lines = policy.dumps().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("source"))


class NearChannel:
    """A channel that answers in the caller's process."""

    def __init__(self, session: Session | ClientSession, analyst: str = "ann") -> None:
        self.near = (
            session if isinstance(session, ClientSession) else ClientSession(session, session.policy.server)
        )
        self.analyst = analyst
        self.sent: list[tuple[str, Message]] = []
        self.arrived: list[Message] = []
        self.timeouts: list[tuple[str, float | None]] = []
        self.failures: list[BaseException] = []
        self.closed = False
        self.expires = "2999-01-01T00:00:00+00:00"
        self._turn = threading.Lock()

    def call(
        self, action: str, message: Message, session: str = "", timeout: float | None = None
    ) -> Iterator[Message]:
        body = encode(message)
        self.timeouts.append((action, timeout))
        self.sent.append((action, decode(body)))
        with self._turn:  # a worker does one thing after another
            replies = [decode(encode(reply)) for reply in self._answer(action.removeprefix("dpsql."), body)]
        for arrived in replies:
            self.arrived.append(arrived)
            yield arrived

    def _answer(self, operation: str, body: bytes) -> Iterator[Message]:
        if operation == "open":
            policy = without_sources(self.near.session.policy)
            yield Message({
                "kind": "value", "session": "s1", "analyst": self.analyst, "policy": policy, "version": "0", "answers": "shared",
                "answer_times": [0.25, 0.5], "expires": self.expires,
            })  # fmt: skip
            yield Message({"kind": "end"})
            return
        if operation in ("close", "interrupt"):
            yield Message({"kind": "end"})
            return
        stages: list[Message] = []
        for reply in self.near.answer(operation, body, lambda: stages.append(READING), self.failures.append):
            yield from stages
            stages.clear()
            yield decode(reply)

    def close(self) -> None:
        self.closed = True


def connect_near(session: Session | ClientSession) -> tuple[RemoteSession, NearChannel]:
    channel = NearChannel(session)
    return RemoteSession(channel, "near"), channel


class NearServer(flight.FlightServerBase):
    """A Flight server with one token and one session, without processes of its own."""

    def __init__(self, session: Session, token: str) -> None:
        self.channel = NearChannel(session)
        outer = self

        class Doorman(flight.ServerMiddlewareFactory):
            def start_call(self, info: Any, headers: Any) -> None:
                given = {key.lower(): list(values) for key, values in headers.items()}
                if given.get("authorization") != [f"Bearer {token}"]:
                    raise flight.FlightUnauthenticatedError("no valid token.")

        super().__init__("grpc+tcp://127.0.0.1:0", middleware={"doorman": Doorman()})
        self.url = f"grpc+tcp://127.0.0.1:{outer.port}"

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        for reply in self.channel.call(action.type, decode(action.body.to_pybytes())):
            yield flight.Result(encode(reply))
