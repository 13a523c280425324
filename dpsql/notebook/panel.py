"""JupyterLab's panel: the budget, the latest charges, the price of a cell before it runs, and its layout.

It is a comm that the front end opens once the extension is loaded. It asks for the budget and for the price of a text; the
kernel also sends the budget after each cell. These messages spend nothing, read no private row, and are not written to the
ledger. Without a panel the kernel sends nothing.

The module stands apart from ``magic.py``, which works without a front end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.errors import Error
from dpsql.notebook import guide
from dpsql.notebook.guide import CellOptions
from dpsql.notebook.sessions import Sessions, show_tables
from dpsql.report.tables import BudgetPanel, Data, Html, tag

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell

    from dpsql.language.parameter_values import Params
    from dpsql.session.explanation import Explanation

TARGET = "dpsql.panel"
"""The name of the comm."""
MAX_CELLS = 2_000
"""Cells whose text is remembered, so that charges can be linked to them."""
MAX_PRICED_TEXT = 65_536
"""Characters of a cell that is priced."""

_CLIPPED = "..."
_SHORTEST = 8
"""The length of the shortest statement that is searched in cells."""


class CellTexts:
    """The texts of the cells that ran in this kernel, by the notebook's identifiers."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def note(self, cell: str, text: str) -> None:
        """Remember the text of a cell; more than `MAX_CELLS` drop the oldest."""
        self._texts.pop(cell, None)
        self._texts[cell] = _flatten(text)
        while len(self._texts) > MAX_CELLS:
            del self._texts[next(iter(self._texts))]

    def find(self, statement: str) -> str:
        """Return the last cell that ran a statement; empty if none did."""
        wanted = _flatten(statement).partition(" /* $")[0].removesuffix(_CLIPPED).rstrip()
        if len(wanted) < _SHORTEST:
            return ""
        return next((cell for cell, text in reversed(self._texts.items()) if wanted in text), "")

    def link(self, panel: BudgetPanel) -> BudgetPanel:
        """Return the panel with its charges linked to their cells."""
        charges = tuple(replace(charge, cell=self.find(charge.text)) for charge in panel.charges)
        return replace(panel, charges=charges)


def write_price(explanation: Explanation) -> Html:
    """Return the cost of a cell, and the expected errors of its answers, as HTML."""
    parts = [tag("p", explanation.price)]
    for part in explanation.parts or (explanation,):
        if part.errors is not None and part.errors.own in part.errors.epsilons:
            own = part.errors.epsilons.index(part.errors.own)
            likely = f"{part.errors.confidence:.4g}"
            parts += [
                tag("p", f"{name}: within ±{errors[own]:.4g} with {likely} probability")
                for name, errors in part.errors.rows
            ]
    return Html("".join(dict.fromkeys(parts)))


def write_refusal(error: Error) -> Html:
    """Return the reason why a cell has no price, as HTML; nothing was charged."""
    hint = [tag("p", f"Hint: {error.hint}")] if error.hint else []
    return Html("".join([tag("p", f"{type(error).__name__}: {error.message}"), *hint]))


def find_problem(error: Error, source: str) -> Data | None:
    """Return the characters of a cell that an error is about, as a front end counts them; None if it names none."""
    text, span = error.text, error.span
    if not text or span is None:
        return None
    start = len(source) - len(text)  # blanks replace a name before <<
    if start < 0 or any(a != b != " " for a, b in zip(source[start:], text, strict=True)):
        start = source.find(text)
    if start < 0:
        return None
    ends = (start + span[0], start + max(span[1], span[0] + 1))
    first, last = (len(source[:end].encode("utf-16-le")) // 2 for end in ends)
    return {"from": first, "to": last, "message": " ".join(filter(None, (error.message, error.hint)))}


def lay_out(source: str) -> str:
    """Return a cell with its SQL laid out in lines; ParseError if a quote or a comment does not end."""
    from dpsql.language.formatter import format_statements  # loads the parser, which clients don't need

    head, _, text = source.partition("\n")
    return f"{head.rstrip()}\n{format_statements(text).rstrip()}"


class Comm(Protocol):
    """A channel of Jupyter between the kernel and the front end."""

    comm_id: str

    def send(self, data: Data) -> object: ...
    def on_msg(self, callback: Callable[[Data], object]) -> object: ...
    def on_close(self, callback: Callable[[Data], object]) -> object: ...
    def close(self) -> object: ...


class PanelComms:
    """The open panels of a kernel, and their messages."""

    def __init__(
        self,
        shell: InteractiveShell,
        cells: CellTexts,
        sessions: Sessions,
        find_parameters: Callable[[CellOptions, str], Params],
    ) -> None:
        self._shell = shell
        self._cells = cells
        self._sessions = sessions
        self._find_parameters = find_parameters
        self._comms: dict[str, Comm] = {}

    def start(self) -> None:
        """Note each cell that runs and, in a kernel, wait for panels."""
        self._shell.events.register("pre_run_cell", self._begin_cell)
        self._shell.events.register("post_run_cell", self._end_cell)
        manager = self._find_manager()
        if manager is not None:
            manager.register_target(TARGET, self._open)

    def stop(self) -> None:
        """Close the panels and accept no more."""
        for event, function in (("pre_run_cell", self._begin_cell), ("post_run_cell", self._end_cell)):
            with suppress(ValueError):
                self._shell.events.unregister(event, function)
        manager = self._find_manager()
        if manager is not None:
            manager.targets.pop(TARGET, None)
        for comm in list(self._comms.values()):
            with suppress(Exception):
                comm.close()
        self._comms.clear()

    def _find_manager(self) -> Any:
        return getattr(getattr(self._shell, "kernel", None), "comm_manager", None)

    def _begin_cell(self, info: ExecutionInfo) -> None:
        if info.cell_id and info.raw_cell:
            self._cells.note(info.cell_id, info.raw_cell)

    def _end_cell(self, result: object) -> None:
        for comm in list(self._comms.values()):
            self._send(comm, self._write_budget)

    def _open(self, comm: Comm, message: Data) -> None:
        self._comms[comm.comm_id] = comm
        comm.on_msg(lambda received: self._receive(comm, received))
        comm.on_close(lambda _: self._comms.pop(comm.comm_id, None))
        self._send(comm, self._write_budget)

    def _receive(self, comm: Comm, message: Data) -> None:
        asked = message.get("content", {}).get("data", {})
        if not isinstance(asked, Mapping):
            return
        if asked.get("want") == "price" and isinstance(asked.get("text"), str):
            self._send(comm, lambda: {**self._write_price(asked["text"]), "number": asked.get("number")})
        elif asked.get("want") == "layout" and isinstance(asked.get("text"), str):
            self._send(comm, lambda: self._write_layout(asked["text"]))
        else:
            self._send(comm, self._write_budget)

    def _send(self, comm: Comm, write: Callable[[], Data]) -> None:
        """Send a message. Failures are ignored, so a panel never disturbs the notebook."""
        with suppress(Exception, KeyboardInterrupt):
            comm.send(write())

    def _write_budget(self) -> Data:
        session = self._sessions.get(self._sessions.current)
        html = ""
        if session is not None:
            with session.asking_briefly():
                tables = show_tables(session).unfold(False)
                html = self._cells.link(session.budget_panel()).html() + tag("h2", "Tables") + tables
        return {"kind": "budget", "open": session is not None, "html": html}

    def explain(self, source: str) -> Explanation | None:
        """Return the plan of a cell's text, None if nothing in it could be paid; Error without a session or a binding."""
        from dpsql.language.statements import PRICED, parse

        found = re.match(r"\s*(?:[\w.]+\s*=\s*)?(%%?)(\w+)([^\n]*)\n?", source)
        if found is None or not guide.is_ours(self._shell, "cell" if found[1] == "%%" else "line", found[2]):
            return None
        if found[1] == "%%":
            options, text = guide.parse_cell_line(found[3]), source[found.end() :]
        else:
            options, text = guide.parse_statement_line(found[3].strip())
        _, text = guide.split_name(text)
        if options.file or options.help or not guide.says_anything(text):
            return None
        if found[1] == "%" and text.split(None, 1)[0].upper() not in guide.STATEMENTS:
            return None  # a command, not a statement
        guide.refuse_templates(text)
        session = self._sessions.get_open(options.session)
        params = self._find_parameters(options, text)
        if not any(statement.kind in PRICED for statement in parse(text, params)):
            return None
        with session.asking_briefly():
            return session.explain(text, params, epsilon=options.epsilon)

    def _write_price(self, text: str) -> Data:
        source, said = text[:MAX_PRICED_TEXT], {"kind": "price", "of": text, "problem": None}
        try:
            explanation = self.explain(source)
        except Error as error:
            return said | {
                "known": False,
                "html": write_refusal(error),
                "problem": find_problem(error, source),
            }
        html = "" if explanation is None else write_price(explanation)
        return said | {"known": explanation is not None, "html": html}

    def _write_layout(self, text: str) -> Data:
        found, said = re.match(r"\s*%%(\w+)", text), {"kind": "layout", "of": text}
        if found is None or not guide.is_ours(self._shell, "cell", found[1]):
            return said | {"text": text}
        try:
            return said | {"text": lay_out(text[:MAX_PRICED_TEXT]) + text[MAX_PRICED_TEXT:]}
        except Error as error:
            return said | {"refused": error.message}


def _flatten(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
