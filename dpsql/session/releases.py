"""Releases: named answers that the ledger keeps, which all analysts read and REFRESH draws again by the ordinary path.

A release's definition is one query. CREATE RELEASE answers it and publishes the answer; REFRESH RELEASE answers it again, and
pays only for blocks that are not stored. Both publish last: until then the earlier answer is shown. Paid blocks are stored one
by one, so a killed refresh is free when it is repeated on unchanged data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa

from dpsql.binding.plan import Plan, ReleaseDraft
from dpsql.binding.public_statement import KeptResult, list_table_names
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.relation import fold
from dpsql.engine.postprocess import Finisher
from dpsql.errors import BindError, Error, LedgerError, did_you_mean
from dpsql.language.dialect import quote_where_needed, span_of
from dpsql.language.statements import Statement, parse
from dpsql.ledger.answers import MAX_NAME, PublishedRelease, hash_release, is_release_name
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy
from dpsql.privacy.records import format_local_time
from dpsql.session.result import Result
from dpsql.session.session_state import KeptResults, OpenCell, make_kept

_COST = "no charge"


def write_definition(draft: ReleaseDraft) -> bytes:
    """Return a definition for the ledger.

    >>> read_definition(write_definition(ReleaseDraft("d", "SELECT 1", "1/2"))).text
    'SELECT 1'
    """
    return json.dumps({"name": draft.name, "text": draft.text, "epsilon": draft.epsilon}).encode()


def read_definition(content: bytes) -> ReleaseDraft:
    """Return the definition of a release, which replaces this one if it is published; LedgerError if it is none."""
    try:
        body = json.loads(content)
        name, text, epsilon = (body[key] for key in ("name", "text", "epsilon"))
        if not all(isinstance(value, str) for value in (name, text, epsilon)):
            raise TypeError("text expected")
    except (ValueError, KeyError, TypeError):
        raise LedgerError("The definition of a release can't be read.") from None
    return ReleaseDraft(name, text, epsilon, hash_release(content))


def _pack(kept: KeptResult, table: pa.Table) -> bytes:
    about = {"columns": kept.columns, "ends": kept.ends, "confidence": kept.confidence, "bins": kept.bins}
    head = json.dumps(about | {"rows": table.num_rows}).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return b"".join((struct.pack(">I", len(head)), head, sink.getvalue()))


def _unpack(name: str, content: bytes) -> tuple[KeptResult, pa.Table, int]:
    try:
        (size,) = struct.unpack(">I", content[:4])
        head = json.loads(content[4 : 4 + size])
        table = pa.ipc.open_stream(content[4 + size :]).read_all()
        ends = tuple((str(shown), str(low), str(high)) for shown, low, high in head["ends"])
        bins = tuple((str(column), float(width)) for column, width in head["bins"])
        held = f"dpsql_kept_{hash_release(content)[:24]}"
        kept = KeptResult(name, held, tuple(map(str, head["columns"])), ends, float(head["confidence"]), bins)
        return kept, table, int(head["rows"])
    except (ValueError, KeyError, TypeError, struct.error, pa.ArrowException):
        raise LedgerError(
            f"The release {name} can't be read.", hint=f"REFRESH RELEASE {name} makes it anew."
        ) from None


class Releases:
    """The releases of a ledger, as relations and as statements of one session."""

    def __init__(self, policy: Policy, ledger: Ledger, finisher: Finisher, kept: KeptResults) -> None:
        self._policy, self._ledger, self._finisher, self._kept = policy, ledger, finisher, kept
        self._loaded: dict[str, tuple[PublishedRelease, KeptResult]] = {}

    # -- as relations -------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The folded names that FROM reads as releases: those that are no table's and no kept result's."""
        return [name for name in self._ledger.list_releases() if not self._is_taken(name)]

    def _is_taken(self, name: str) -> bool:
        return name in self._kept.by_name or any(fold(table) == name for table in self._policy.tables)

    def find(self, name: str) -> KeptResult | None:
        """Return the relation of a folded name's release; None if there is none, or something else has its name."""
        possible = is_release_name(name) and not self._is_taken(name)
        found = self._ledger.find_release(name) if possible else None
        if found is None:
            return None
        known = self._loaded.get(name)
        if known is None or known[0] != found:
            kept, table, _ = _unpack(read_definition(found.definition).name, found.answer)
            self._finisher.hold(kept.table, table)
            known = self._loaded[name] = found, kept
        return known[1]

    def add_named(self, statement: Statement, catalog: Catalog) -> Catalog:
        """Return a catalog with the releases that a statement names. The ledger is asked about unknown names only."""
        tree = statement.tree
        names = [] if tree is None else [name for name in list_table_names(tree) if name not in catalog.kept]
        found = {name: kept for name in names if (kept := self.find(name)) is not None}
        return replace(catalog, kept={**catalog.kept, **found}) if found else catalog

    # -- as statements ------------------------------------------------------------------------------------------

    def read(self, statement: Statement, cell: OpenCell) -> tuple[Statement, ReleaseDraft] | None:
        """Return the query to bind for a statement that makes or refreshes a release, and its draft.

        None if nothing is drawn: the release is dropped, or is there already.

        Raises:
            BindError: the name or the definition can't be a release's, or there is no such release.
        """
        name = fold(statement.release)
        there = self._find_definition(statement, cell)
        if statement.step in ("create", "replace", "create unless there"):
            return self._read_new(statement, name, there, cell)
        if statement.step != "drop if there" and there is None:
            hint = did_you_mean(name, self._ledger.list_releases()) or "write SHOW RELEASES: it lists all."
            raise BindError(f"there is no release {statement.release}.", hint=hint, span=statement.named)
        if statement.step != "refresh":
            cell.releases[name] = None
            return None
        assert there is not None
        (query,) = parse(there.text)
        return query, there

    def _find_definition(self, statement: Statement, cell: OpenCell) -> ReleaseDraft | None:
        """Return the definition of a release after the statements of the cell so far."""
        name = fold(statement.release)
        if name in cell.releases:
            return cell.releases[name]
        if statement.step not in ("create", "refresh"):  # even one that can't be read may be replaced
            return ReleaseDraft(name, "") if name in self._ledger.list_releases() else None
        found = self._ledger.find_release(name) if is_release_name(name) else None
        return None if found is None else read_definition(found.definition)

    def _read_new(
        self, statement: Statement, name: str, there: ReleaseDraft | None, cell: OpenCell
    ) -> tuple[Statement, ReleaseDraft] | None:
        self._check_name(statement, cell)
        shown = quote_where_needed(statement.release)
        if there is not None and statement.step == "create unless there":
            return None
        if there is not None and statement.step == "create":
            hint = (
                f"CREATE OR REPLACE RELEASE {shown} ... replaces it, REFRESH RELEASE {shown} draws it again."
            )
            raise BindError(
                f"the release {statement.release} already exists.", hint=hint, span=statement.named
            )
        assert statement.tree is not None
        for used, node in list_table_names(statement.tree).items():
            if used == name:
                what, hint = "a release can't read itself.", "name the table, or another release."
            elif used in self._kept.by_name:
                what = f"a release can't read the kept result {used}, which only this session has."
                hint = f"write its query in place of {used}, or create a release of it."
            else:
                continue
            raise BindError(what, hint=hint, span=span_of(node))
        text = statement.text[slice(*statement.definition)].strip()
        epsilon = "" if cell.catalog.epsilon is None else str(cell.catalog.epsilon)
        over = None if statement.step == "replace" else ""
        return statement, ReleaseDraft(statement.release, text, epsilon, over)

    def _check_name(self, statement: Statement, cell: OpenCell) -> None:
        name, what = statement.release, ""
        if not is_release_name(name):
            what = f"a release's name is a word of at most {MAX_NAME} letters."
        elif any(fold(table) == fold(name) for table in self._policy.tables):
            what = f"{name} is a table, and no release takes its name."
        elif fold(name) in self._kept.by_name:
            what = f"{name} is a kept result of this session, and no release takes its name."
        if what:
            raise BindError(what, hint="give the release another name, such as daily.", span=statement.named)

    def finish_draft(self, plan: Plan, draft: ReleaseDraft, cell: OpenCell) -> Plan:
        """Return the plan of a release, with its draft; later statements of the cell see its columns."""
        if any(block.prepaid for block in plan.blocks):
            raise BindError(
                "a release can't ask a declared threshold, which ends with its session.",
                hint="ask the table itself.",
            )
        name = fold(draft.name)
        cell.releases[name] = draft
        cell.catalog = replace(
            cell.catalog, kept={**cell.catalog.kept, **self._kept.foretell(draft.name, plan)}
        )
        note = f"published as {draft.name}, which every analyst reads at no cost"
        return replace(plan, notes=(*plan.notes, note), draft=draft)

    def publish(self, statement: Statement, plan: Plan, result: Result) -> None:
        """Publish the answer of a release's statement; Error, with the hint that the paid blocks are stored, if that fails."""
        draft = plan.draft
        assert draft is not None
        kept, table = make_kept(draft.name, result)
        try:
            contents = write_definition(draft), _pack(kept, table)
            self._ledger.publish(fold(draft.name), statement.record, contents, draft.over)
        except Error as error:
            stored = "what was paid is stored, and free again."
            error.hint = f"{error.hint} {stored[:1].upper()}{stored[1:]}" if error.hint else stored
            raise

    def settle(self, statement: Statement) -> Result:
        """Return the answer of a statement that draws nothing: drop the release, or say that it is there."""
        status = "was there already"
        if statement.kind == "drop":
            name = fold(statement.release)
            status = "was not there"
            if name in self._ledger.list_releases():
                self._ledger.publish(name, statement.record, None)
                status = "dropped"
        return make_status(statement.release, status)

    def walk(self) -> Iterator[tuple[ReleaseDraft, str, int]]:
        """Yield the definition of each release, the time of its answer, and the number of its rows."""
        for name in self._ledger.list_releases():
            found = self._ledger.find_release(name)
            if found is not None:
                draft = read_definition(found.definition)
                yield draft, format_local_time(found.when), _unpack(name, found.answer)[2]


def make_status(name: str, status: str) -> Result:
    """Return the relation of a statement about a release that draws nothing."""
    return Result(pa.table({"release": [name], "status": [status]}), cost_line=_COST)


def default_cost(draft: ReleaseDraft) -> Fraction | None:
    """Return the default cost of a release's blocks; None for the policy's."""
    return Fraction(draft.epsilon) if draft.epsilon else None
