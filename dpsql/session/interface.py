"""The interface of a session: the local one and the one on an owner's server implement it.

The module imports no engine and no ledger, because clients of a server have neither.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from dpsql.errors import BindError, EngineError, Error
from dpsql.interrupts import interruptible
from dpsql.language.parameter_values import Params
from dpsql.late_dataclass import dataclass
from dpsql.session.result import DeclaredResult, Result, import_notebook

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpsql.ledger.ledger import Ledger
    from dpsql.policy.model import Policy
    from dpsql.privacy.events import Event
    from dpsql.privacy.records import BudgetState, Entry
    from dpsql.report.tables import BudgetPanel
    from dpsql.session.explanation import Description, Explanation, Why


_S = TypeVar("_S", bound="Guarded")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_ENGINES = ("duckdb", "_duckdb", "pyspark", "py4j")


def guarded(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Decorate a session's method: refuse it once the session is closed, hide the text of foreign errors, and let a stop end it.

    Engines already withhold errors that may quote values. This covers the rest: a missing file, a closed connection.
    """

    @wraps(method)
    def checked(session: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        session.check_open()
        value: list[_T] = []
        try:
            value.append(method(session, *args, **kwargs))
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _ENGINES:
                raise
        if not value:  # raised here, so that the engine's error is not in the new error's context
            raise EngineError(
                "the engine failed.",
                hint="check that the data still exist; SHOW LEDGER shows whether it was charged.",
            )
        return value[0]

    return interruptible(checked)


def hide_frames(error: Error) -> None:
    """Drop an error's traceback in a marimo notebook, which would print it below the sentence."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        error.__traceback__ = None


class Guarded(ABC):
    """A session or a plan: the abstract methods of its interface are guarded wherever they are implemented, except ``close``."""

    def __init_subclass__(cls) -> None:
        for base in cls.__bases__:
            for name in base.__dict__.get("__abstractmethods__", frozenset()) - {"close", "check_open"}:
                method = cls.__dict__.get(name)
                if isinstance(method, FunctionType):
                    setattr(cls, name, guarded(method))

    @abstractmethod
    def check_open(self) -> None:
        """Raise an error if the session is closed."""


@dataclass(frozen=True)
class Question:
    """A cell's text as it can be asked again: with parameters, and the default cost of a statement."""

    text: str
    params: Params | None = None
    epsilon: str | Fraction | None = None
    synthetic: bool = False
    """Whether it asks for synthetic rows."""
    rows: int | None = None
    """The number of synthetic rows."""


def may_keep(text: str) -> bool:
    """Return whether a statement of a text may keep its result, or change the releases; False is certain."""
    lowered = text.lower()
    return "<<" in text or "create" in lowered or "release" in lowered


class SessionPlan(Guarded):
    """Statements that are priced together before the first is run, in ``with session.plan() as plan:``.

    Only such a list may use the privacy loss distribution: it is no valid bound for statements chosen from earlier answers.
    """

    def __init__(self, owner: Guarded) -> None:
        self._owner = owner
        self._declared: list[DeclaredResult] = []
        self._ran = False

    def check_open(self) -> None:
        self._owner.check_open()

    def sql(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> DeclaredResult:
        """Declare a text's statements and return the last. Spends nothing and reads no data.

        ``params``: values of its ``$name`` parameters, or a list of values for its ``?`` marks; ``epsilon``: the
        default cost of a statement.

        Raises:
            ParseError, BindError, PrivacyError: it can't be planned.
        """
        if self._ran:
            raise BindError("the plan has run already.", hint="open another: with session.plan() as plan:")
        self._declare(Question(text, params, epsilon))
        return self._declared[-1]

    @property
    def results(self) -> list[Result]:
        """The answers, in the order of declaration; BindError if the plan has not run yet."""
        return [declared.result for declared in self._declared]

    @property
    @abstractmethod
    def event(self) -> Event | None:
        """The total cost: the composed event, or under ``basic`` its privacy loss distribution if that is smaller.

        Gaussian noise is calibrated once for all statements. Stored blocks are free, and equal blocks are paid once.
        """

    def run(self) -> list[Result]:
        """Reserve the total cost as one event, run every statement, and settle.

        Raises:
            BudgetExceeded: the budget is too small; nothing was charged.
            EngineError, Interrupted: the total stays charged.
        """
        self._ran = True
        self._answer()
        return self.results

    @abstractmethod
    def _declare(self, question: Question) -> None:
        """Add the text's statements to the declared ones."""

    @abstractmethod
    def _answer(self) -> None:
        """Answer the declared statements."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._declared:
            self.run()


class AnalystSession(Guarded):
    """An analyst's session, on data of this process or on an owner's server. Use it as a context manager, or close it."""

    analyst: str | None
    closed = False
    _process: int
    """The process that opened the session. A fork of it has none of the engine's threads, and a statement there could hang."""
    _schema: dict[str, dict[str, str]] | None = None

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The owner's policy; from a server, the part that the analyst may see."""

    @property
    def stage(self) -> str:
        """The stage of the running statement, from a server: ``"reading"`` once private data may be read."""
        return ""

    def check_open(self) -> None:
        if self.closed:
            raise BindError(
                "the session is closed.", hint="open another: dpsql.connect(...), or %dpsql connect."
            )
        if self.is_forked:
            raise BindError(
                "the session was opened before this process was forked.",
                hint="connect in the new process: dpsql.connect(...).",
            )

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that opened the session."""
        return self._process != os.getpid()

    # -- statements ---------------------------------------------------------------------------------------------

    def sql(self, text: str, params: Params | None = None, *, fresh: bool = False) -> Result:
        """Answer a text's statements, and return the result of the last.

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters, or a list of values for its ``?`` marks.
            fresh: pay for a new answer even if a stored one is free.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
            PostprocessingError: the SQL above the private part failed on released values; the corrected text is free.
            ServerError: a server can't be reached; SHOW LEDGER says whether a statement that was sent was charged.
        """
        try:
            results = self.answer(Question(text, params), fresh)
        except Error as error:
            hide_frames(error)
            raise
        return results[-1] if results else Result(pa.table({}))

    def run(
        self,
        text: str,
        params: Params | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> list[Result]:
        """Answer each statement of a cell. All are bound before the first is paid.

        ``epsilon`` is the default cost of a statement. If one fails, the earlier results are in the error's ``answered``.
        """
        try:
            return self.answer(Question(text, params, epsilon), fresh)
        except Error as error:
            hide_frames(error)
            raise

    def synthesise(
        self,
        text: str,
        rows: int | None = None,
        params: Params | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> Result:
        """Return synthetic rows from a model that is fitted to noisy marginals.

        Args:
            text: a SELECT of columns with public values, ``SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM
                visits``, or a CREATE SYNTHETIC TABLE of one, which keeps the rows under its name.
            rows: the number of rows, by default the noisy total of the marginals. Another number of rows is free.
            params: values of its parameters.
            fresh: pay for new marginals even if stored ones are free.
            epsilon: the cost if the statement gives none.

        Raises:
            MissingLibrary: the extra ``synthetic`` is not installed; nothing was charged.
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
        """
        return self.answer(Question(text, params, epsilon, True, rows), fresh)[-1]

    @abstractmethod
    def answer(self, question: Question, fresh: bool = False) -> list[Result]:
        """Answer each statement of a cell, as :meth:`run` and :meth:`synthesise` do."""

    @abstractmethod
    def plan(self) -> SessionPlan:
        """Return a plan: in ``with session.plan() as plan:`` statements are declared, priced together as one event, then run.

        No statement can depend on another's answer, so they may be charged by their privacy loss distribution. Inside
        the block, ``plan.sql(...)`` returns a handle that becomes the result when the block ends.
        """

    def explain(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> Explanation:
        """Explain the effect and the cost of statements, each and together. Spends nothing and reads no private data.

        ``epsilon`` is the default cost of a statement.
        """
        return self._explain(Question(text, params, epsilon))

    @abstractmethod
    def _explain(self, question: Question) -> Explanation:
        """Explain a cell."""

    @abstractmethod
    def describe(self, text: str, params: Params | None = None) -> Description:
        """Return an answer's columns and price before it is paid. Spends nothing and reads no private data.

        Args:
            text: dpsql SQL; of several statements, the last one's columns and the price of all.
            params: values of its parameters; their types are guessed if they are missing.

        Raises:
            ParseError, BindError, PrivacyError: the text can't be answered.
        """

    @abstractmethod
    def why(self) -> Why:
        """Explain the last answer or refusal: the privacy unit, the bounds, the origin of its cost, and better variants.

        It spends nothing, reads no private row, and repeats no released value. BindError if nothing was asked yet.
        """

    # -- everything else ----------------------------------------------------------------------------------------

    @abstractmethod
    def budget(self) -> BudgetState:
        """Return the spent and the remaining budget, of the whole and of the analyst's own share."""

    @abstractmethod
    def budget_panel(self) -> BudgetPanel:
        """Return the budget as a bar, with the latest charges, for terminals and notebooks."""

    @abstractmethod
    def ledger(self, last: int | None = None) -> list[Entry]:
        """Return every charge and refusal in order, or only the ``last`` ones; from a server, the analyst's own."""

    @property
    @abstractmethod
    def account(self) -> Ledger:
        """The ledger itself, for displays and reports; read only. ServerError on a server: it is the owner's."""

    @abstractmethod
    def columns(self, table: str) -> Mapping[str, str]:
        """Return names and SQL types of a table's columns, in order, without reading rows; BindError if unknown."""

    @abstractmethod
    def table_schemas(self) -> Mapping[str, pa.Schema]:
        """Return the Arrow schemas of the policy's tables, and of releases. No row is read."""

    @abstractmethod
    def tables(self) -> Result:
        """Return the policy's tables and the kept results."""

    def schema(self) -> Mapping[str, Mapping[str, str]]:
        """Return tables and kept results after the last statement, with their columns and SQL types, for completion.

        Raises:
            ServerError: the server is busy with another statement of the analyst, or gone.
        """
        if self._schema is None:
            with self.asking_briefly():
                names = [str(row[0]) for row in self.tables().fetchall()]
                self._schema = {name: dict(self.columns(name)) for name in names}
        return self._schema

    @contextmanager
    def asking_briefly(self) -> Iterator[None]:
        """Limit waiting for replies within the block: a server may answer another session of the analyst first.

        Raises:
            ServerError: instead of a reply that does not arrive in time.
        """
        yield

    def plot(self, what: str = "budget") -> Axes:
        """Draw the ledger as a matplotlib Axes.

        Args:
            what: ``"budget"`` for what is left after each charge, or ``"tradeoff"`` for the trade-off curves of the
                budget and of the charges.

        Raises:
            MissingLibrary: matplotlib is not installed.
            BindError: there is no picture of that name.
        """
        drawn: Axes = import_notebook("plots").draw_pictures(self._find_pictures(what))
        return drawn

    @abstractmethod
    def _find_pictures(self, what: str) -> dict[str, object]:
        """Return the figures of a picture."""

    @abstractmethod
    def keep(self, name: str, result: object) -> None:
        """Keep a result as a public relation of later statements, as ``name << SELECT ...`` does; replaces an older one.

        Args:
            name: a word that is not the name of a private table.
            result: a :class:`Result`, or a pandas, polars or Arrow table. A server takes only a result of its session, and has
                its rows already.

        Raises:
            BindError: the name can't be taken, or ``result`` is no table.
        """

    @abstractmethod
    def check_name(self, name: str) -> None:
        """Refuse a name that no result can take: it is no word, or the name of a private table."""

    @property
    def open_thresholds(self) -> list[str]:
        """The names of declared thresholds that are still open, as far as this process knows them."""
        return []

    @abstractmethod
    def register(
        self, name: str, function: Callable[..., object], *, returns: object = None, length: int | None = None
    ) -> None:
        """Register a Python function for ``SELECT WITH SUBSAMPLE``, which runs it on each block's rows.

        Args:
            name: its name in SQL.
            function: takes the columns as numpy arrays.
            returns: its return type, an SQL type (``"DOUBLE"``, ``"VARCHAR[]"``) or a Python type (``float``,
                ``list[str]``). If declared, a combiner that doesn't fit it is refused before payment.
            length: the result is a list of this length; numbers are then combined coordinate by coordinate.

        Raises:
            PolicyError, BindError: a name, type or length that a function can't have.
            ServerError: on a server, because the function would run where the data are.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the session: open thresholds are settled, kept results are forgotten. The charges stay. Never raises."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
