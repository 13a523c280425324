"""Statements that a server prices together, and runs as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.client.conversation import Reply
from dpsql.declared_result import DeclaredResult
from dpsql.errors import BindError
from dpsql.interrupts import interruptible
from dpsql.parameters import Params, name_parameters
from dpsql.wire import WireError, get_field, read_event_of
from dpsql.wire_params import write_question

if TYPE_CHECKING:
    from dpsql.privacy.events import Event
    from dpsql.result import Result


class RemotePlan:
    """Statements that a server prices together before the first is run, in ``with session.plan() as plan:``."""

    def __init__(self, ask: Callable[[str, Mapping[str, Any]], Reply]) -> None:
        self._ask = ask
        self._asked: list[dict[str, Any]] = []
        self._declared: list[DeclaredResult] = []
        self._ran = False

    @interruptible
    def sql(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> DeclaredResult:
        """Declare a statement (of several, the last one is given). Nothing is spent, no data are read.

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters, or a list of values for its ``?`` marks.
            epsilon: what a statement costs that does not say.

        Raises:
            ParseError, BindError, PrivacyError: it can't be planned.
        """
        if self._ran:
            raise BindError("the plan has run already.", hint="open another: with session.plan() as plan:")
        text, values = name_parameters(text, params)
        asked = write_question(text, values, epsilon)
        count = get_field(self._ask("plan", {"statements": [asked], "run": False}).value, "count", int)
        if not 0 < count <= len(text):
            raise WireError("the server's reply holds other statements than were asked for.")
        self._asked.append(asked)
        self._declared += [DeclaredResult(text.strip()) for _ in range(count)]
        return self._declared[-1]

    @property
    def results(self) -> list[Result]:
        """The answers, in the order of the declarations.

        Raises:
            BindError: the plan has not run yet.
        """
        return [declared.result for declared in self._declared]

    @property
    def event(self) -> Event | None:
        """The cost of the whole: the composed event, or under ``basic`` its privacy loss distribution where that is less.

        Blocks that are stored are free, and equal blocks are paid once.
        """
        body = self._ask("plan", {"statements": self._asked, "run": False}).value.get("event")
        return None if body is None else read_event_of(body)

    @interruptible
    def run(self) -> list[Result]:
        """Reserve the whole as one event, run every statement, settle.

        Raises:
            BudgetExceeded: the whole does not fit; nothing was charged.
            EngineError, Interrupted: the whole stays charged.
        """
        self._ran = True
        results = self._ask("plan", {"statements": self._asked, "run": True}).results
        if len(results) != len(self._declared):
            raise WireError("the server's reply holds other results than were asked for.")
        for declared, result in zip(self._declared, results, strict=True):
            declared._result = result
        return results

    def __enter__(self) -> RemotePlan:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._declared:
            self.run()
