"""Errors as PostgreSQL's clients get them: severity, SQLSTATE, sentence, hint, and the place in the client's text."""

from __future__ import annotations

from dpsql import errors
from dpsql.client.wire import Message
from dpsql.errors import Error
from dpsql.server.lapses import Lapse, RightError
from dpsql.server.postgres.messages import write_response

SQLSTATES: dict[type[Error], str] = {
    errors.ParseError: "42601",
    errors.BindError: "42000",
    errors.PrivacyError: "42501",
    errors.BudgetExceeded: "53400",
    errors.PolicyError: "F0000",
    errors.LedgerError: "58000",
    errors.ServerError: "08004",
    errors.EngineError: "58000",
    errors.PostprocessingError: "22000",
    errors.Interrupted: "57014",
}
"""Codes of our classes of errors: syntax, names and types, privileges, limits, configuration, system, data, canceled."""
PROTOCOL_VIOLATION, NO_PASSWORD, NO_AUTHORIZATION, NO_DATABASE = "08P01", "28P01", "28000", "3D000"
TOO_MANY, TOO_LARGE, NOT_SUPPORTED, SHUTDOWN, IDLE, INTERNAL = (
    "53300",
    "54000",
    "0A000",
    "57P01",
    "57P05",
    "XX000",
)
UNKNOWN_STATEMENT, UNKNOWN_PORTAL = "26000", "34000"
_PARAMETER_STATES = frozenset({"22P02", "22P03"})
_MAX_SENTENCE = 500


_LAPSES = {
    Lapse.ENDED: SHUTDOWN,
    Lapse.NO_SHARE: NO_AUTHORIZATION,
    Lapse.PAUSED: NO_AUTHORIZATION,
    Lapse.TOO_MANY: "53400",
    Lapse.TOO_LARGE: TOO_LARGE,
}
"""The SQLSTATE that tells why a right does not hold."""


class RefusedMessage(Exception):
    """A client's message that is answered with an error, as bytes; ``last`` says that the connection ends with it."""

    def __init__(self, report: bytes, last: bool = False) -> None:
        super().__init__()
        self.report, self.last = report, last


def write_problem(severity: str, state: str, sentence: str, hint: str = "", position: int = 0) -> bytes:
    """Return an ``ErrorResponse``.

    Args:
        severity: ``ERROR``, or ``FATAL`` where the connection ends.
        state: the SQLSTATE.
        sentence: what is wrong.
        hint: what to do instead.
        position: the character of the client's text that it speaks of, counted from 1; 0 for none.
    """
    fields = [("S", severity), ("V", severity), ("C", state), ("M", sentence), ("H", hint)]
    return write_response(b"E", [*fields, ("P", str(position) if position > 0 else "")])


def refuse_right(refusal: RightError) -> RefusedMessage:
    """Return the refusal of a message whose right does not hold; with one that has ended, the connection ends."""
    severity = "FATAL" if refusal.is_final else "ERROR"
    report = write_problem(severity, _LAPSES[refusal.lapse], str(refusal))
    return RefusedMessage(report, last=refusal.is_final)


def write_bad_parameter(message: Message) -> bytes:
    """Return the ``ErrorResponse`` of a parameter whose bytes are no value of its type, which the worker has found."""
    head = message.head
    state = head.get("state")
    said, hint = (str(head.get(part, ""))[:_MAX_SENTENCE] for part in ("sentence", "hint"))
    return write_problem("ERROR", state if state in _PARAMETER_STATES else INTERNAL, said, hint)


def write_own_error(error: Error, asked: str) -> bytes:
    """Return the ``ErrorResponse`` of an error of ours.

    Args:
        error: the error; its span is in characters of the text.
        asked: what the client asked: a place beyond it is left out.
    """
    state = next((SQLSTATES[kind] for kind in type(error).__mro__ if kind in SQLSTATES), INTERNAL)
    place = 0 if error.span is None or error.span[0] >= len(asked) else error.span[0] + 1
    return write_problem("ERROR", state, error.message, error.hint or "", place)
