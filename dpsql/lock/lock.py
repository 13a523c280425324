"""The second lock on the way of every exact text to the engine: nothing is read that was not proved.

Proofs that hold for all texts which differ in values alone.

In a pattern some values are left open: the text has a parameter in the place of each. A proof of the pattern knows nothing of
such a value but that it is one constant, so it is a proof of every text that has a number or a quoted text there. All that a
proof does read (a cap, a bound, a place in an integer) must stand in the pattern: where it is left open nothing is proved, and
each text is proved by itself.

Which values are left open, the texts themselves say: those by which a second one differs from the first. So a pattern costs one
proof more, once.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.binding.relations.catalog import Catalog
from dpsql.errors import PolicyError
from dpsql.lock import tree
from dpsql.lock.casts import Node, Plan, list_wide_outputs, prove_casts
from dpsql.lock.check import Serialise, check, check_pattern, check_tree
from dpsql.lock.spark_reader import read_spark
from dpsql.lock.tree import Base, Hop, Known, Lent, Unproved, refuse
from dpsql.mechanisms.base import ClaimedText, LentTotals, PublicClaim, RouteClaim
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE
from dpsql.policy.model import Table, fold

MAX_FAMILIES = 1000
"""Shapes of texts whose patterns are remembered."""
_MOST_TRIED = 8
"""Patterns of one shape that are tried."""
_MOST_OPEN = 200
"""Values that one pattern leaves open."""
_KINDS = {
    "text": re.compile(r"'(?:[^']|'')*'"),
    "integer": re.compile(r"[0-9]{1,18}"),
    "number": re.compile(r"(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18})"),
}
_PLACES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$value(?P<place>[0-9]+)\b""")
_BEFORE, _AFTER = frozenset(" ("), frozenset(" ),")
"""Characters that may stand beside an open value: nothing that could be read as a part of it."""
_ODD = re.compile(r"--|/\*|\$\$")
"""The beginnings of a comment, and of a text in another kind of quotes."""


@dataclass(frozen=True)
class ShapedText:
    """A text as its shape, with ``$value0`` and so on in the place of values, and the values."""

    shape: str
    values: tuple[str, ...]

    def list_kinds(self, bound: Collection[str]) -> tuple[str, ...]:
        """Return the values without what the engine takes no type from: whole numbers that fit 32 bits are alike.

        Args:
            bound: the values of which types alone are told.

        >>> values = ("7", "12.50", "0.5", "1e3", "'x'", "12345678901")
        >>> ShapedText("", values).list_kinds(values)
        ('0', '2.2', '0.1', '1e3', "''", '12345678901')
        >>> ShapedText("", values).list_kinds(())
        ('0', '12.50', '0.5', '1e3', "'x'", '12345678901')
        """
        small = ("0" if _SMALL.fullmatch(value) else value for value in self.values)
        return tuple(_say_type(kind) if kind in bound else kind for kind in small)

    def list_ranges(self) -> tuple[str, ...]:
        """Return the values without what the engine takes no cast from: whole numbers of one length that fit the same types
        are alike.

        >>> ShapedText("", ("7", "99", "200", "300", "12.5", "'x'")).list_ranges()
        ('1:0', '2:0', '3:1', '3:2', '12.5', "'x'")
        """
        return tuple(
            f"{len(value)}:{sum(int(value) > most for most in _MOST)}" if _SMALL.fullmatch(value) else value
            for value in self.values
        )


_MOST = (127, 255, 32_767, 65_535)
"""The greatest numbers of the types of 8 and 16 bits."""
_SMALL = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"(0|[1-9][0-9]*|)\.([0-9]*)")


def _say_type(value: str) -> str:
    """Return what the type of a literal rests on; the literal itself where its value may decide."""
    if value.startswith("'"):
        return "''"
    found = _DECIMAL.fullmatch(value)
    if found is None:
        return value
    whole, rest = found.groups()
    return f"{0 if whole == '0' else len(whole) or 'none'}.{len(rest)}"


@dataclass
class _Family:
    """The findings about the texts of one shape, under one claim."""

    last: tuple[str, ...]
    """The values of the text that was proved last by itself."""
    proved: set[tuple[str, ...]] = field(default_factory=set)
    """The values of each pattern, with the kind of value (in brackets) where one is left open."""
    open: list[frozenset[int]] = field(default_factory=list)
    """The places that are open in some pattern."""
    tried: set[tuple[str, ...]] = field(default_factory=set)


@dataclass
class Patterns:
    """The patterns that were proved in one session."""

    _families: dict[Hashable, _Family] = field(default_factory=dict)

    def cover(self, text: ShapedText, claim: Hashable) -> bool:
        """Tell whether a proved pattern covers a text under a claim."""
        family = self._families.get((text.shape, claim))
        return family is not None and any(
            _leave_open(text.values, places) in family.proved for places in family.open
        )

    def learn(self, text: ShapedText, claim: Hashable, prove: Callable[[str, frozenset[str]], None]) -> None:
        """Prove a pattern, where a text that was just proved by itself differs in values alone from one before it.

        Args:
            text: the text.
            claim: all that its proof rests on besides the text.
            prove: proves a pattern with these parameters; raises :class:`Unproved` where it can't.
        """
        family = self._families.get((text.shape, claim))
        if family is None:
            if len(self._families) >= MAX_FAMILIES:
                self._families.clear()
            self._families[text.shape, claim] = _Family(text.values)
            return
        before, family.last = family.last, text.values
        if len(before) != len(text.values):
            return
        different = (place for place, (a, b) in enumerate(zip(before, text.values, strict=True)) if a != b)
        places = frozenset(different).union(*family.open)
        pattern = _leave_open(text.values, places)
        if pattern is None or pattern in family.tried or len(family.tried) >= _MOST_TRIED:
            return
        family.tried.add(pattern)
        names = {
            place: f"{tree.WHOLE if pattern[place] == '[integer]' else tree.ANY}{place}" for place in places
        }
        written = _write_pattern(text, names)
        if written is None:
            return
        try:
            prove(written, frozenset(names.values()))
        except tree.Unproved:
            return
        family.proved.add(pattern)
        if places not in family.open:
            family.open.append(places)


def _leave_open(values: Sequence[str], places: frozenset[int]) -> tuple[str, ...] | None:
    """Return values with their kinds where they are left open; None where one is of a kind that can't be."""
    if not places or len(places) > _MOST_OPEN:
        return None
    left = list(values)
    for place in places:
        kind = next((kind for kind, form in _KINDS.items() if form.fullmatch(values[place])), None)
        if kind is None:
            return None
        left[place] = f"[{kind}]"
    return tuple(left)


def _write_pattern(text: ShapedText, names: Mapping[int, str]) -> str | None:
    """Return the text of a pattern; None where a parameter in it might be read otherwise than a value in its place.

    Args:
        text: one of its texts.
        names: the parameters, by the places of the values that they stand for.
    """
    if _ODD.search(text.shape):
        return None
    shape, sound = text.shape, True
    seen: set[int] = set()

    def write(found: re.Match[str]) -> str:
        nonlocal sound
        if found["place"] is None:
            return found[0]
        place = int(found["place"])
        if place not in names:
            return text.values[place]
        seen.add(place)
        name = names[place]
        before, after = shape[found.start() - 1 : found.start()], shape[found.end() : found.end() + 1]
        sound = sound and before in _BEFORE and (not after or after in _AFTER)
        return f"${name}"

    written = _PLACES.sub(write, shape)
    return written if sound and seen == names.keys() else None


MAX_PROVED = 2000
"""Proofs that are remembered."""

Columns = Mapping[str, Sequence[str]]
"""The columns of lent relations, by name."""


@dataclass
class Lock:
    """Proves the texts of one session.

    Args:
        catalog: the policy's tables and where the engine has them.
        serialise: the engine's own parser.
    """

    catalog: Catalog
    serialise: Serialise
    _proved: set[tuple[object, ...]] = field(default_factory=set)
    _patterns: Patterns = field(default_factory=Patterns)
    _tables: dict[tuple[str, ...], Base] | None = None
    _outputs: dict[tuple[object, ...], list[tuple[str, Node]]] = field(default_factory=dict)
    """The outputs of texts whose casts were proved, by shape, by the types of values, and by what they read."""
    _held: dict[tuple[object, ...], frozenset[str] | None] = field(default_factory=dict)
    """The outputs of proved texts that are integers of at most 38 digits."""

    def prove(self, claimed: ClaimedText, lent: Columns, shaped: ShapedText | None = None) -> None:
        """Prove a text in normal form, once; or the pattern of those that differ from it in values alone.

        Args:
            claimed: the text and its claim.
            lent: the columns of the relations that are lent to it.
            shaped: the same text, as its shape and values; None where it has none.

        Raises:
            Unproved: it may do more than its operator charges for.
        """
        key = (claimed.text, *_key(claimed))
        if key in self._proved:
            return
        rests_on = _rests_on(claimed, lent)
        if shaped is not None and self._patterns.cover(shaped, rests_on):
            return
        known = self._known(lent)
        self._remember_held(key, check(claimed, known, self.serialise))
        self._remember(key)
        if shaped is None or not shaped.values:
            return

        def prove(pattern: str, names: frozenset[str]) -> None:
            found = check_pattern(replace(claimed, text=pattern), known, self.serialise, names)
            place = (shaped.shape, rests_on)
            before = self._held.get(place, found)
            self._remember_held(place, found if before is None or found is None else before & found)

        self._patterns.learn(shaped, rests_on, prove)

    def prove_typed(
        self,
        text: str,
        mine: Sequence[ClaimedText],
        lent: Columns,
        shaped: ShapedText,
        plan: Plan,
        late: bool = False,
        read: object = None,
    ) -> None:
        """Prove that no value of a text's columns can end it: by a cast that DuckDB adds, or on the way out of the engine.

        Args:
            text: the text, with values for its parameters.
            mine: the claims that are made for it.
            lent: the columns of what is lent to it besides what its operator lends.
            shaped: the text with its parameters, as its shape and values.
            plan: gives DuckDB's bound plan of a text.
            late: whether an operator wrote it as it ran. What it gives is read in Python alone, which has every integer.
            read: the names and types of all columns that are lent to it. Its plan is read once for texts of one shape whose
                values have the same types; None for each text anew.

        Raises:
            Unproved: one may.
        """
        place = (shaped.shape, shaped.list_ranges(), read)
        outputs = self._outputs.get(place) if read is not None else None
        if outputs is None:
            outputs = prove_casts(text, plan)
            if len(self._outputs) >= MAX_PROVED:
                self._outputs.clear()
            if read is not None:
                self._outputs[place] = outputs
        if late:
            return
        wide = list_wide_outputs(outputs)
        for claimed in mine if wide else ():
            if isinstance(claimed.claim, PublicClaim):  # it reads no private row: no person's value ends it
                continue
            held = self._find_held(claimed, lent, shaped, wide)
            if held is not None and not wide <= held:
                refuse("an output that is an integer of more than 38 digits, which has no way out")
        if wide and not mine:
            refuse("an output of a text that no claim is made for")

    def _find_held(
        self, claimed: ClaimedText, lent: Columns, shaped: ShapedText, wide: frozenset[str]
    ) -> frozenset[str] | None:
        """Return the outputs of a proved text that have at most 38 digits; None where all are numbers packed into one."""
        key = (claimed.text, *_key(claimed))
        for place in (key, (shaped.shape, _rests_on(claimed, lent))):
            if place in self._held:
                held = self._held[place]
                if held is None or wide <= held:
                    return held
        held = check(claimed, self._known(lent), self.serialise)
        self._remember_held(key, held)
        return held

    def _remember_held(self, key: tuple[object, ...], held: frozenset[str] | None) -> None:
        if len(self._held) >= MAX_PROVED:
            self._held.clear()
        self._held[key] = held

    def prove_late(
        self, text: str, claims: Sequence[ClaimedText], lent: Columns, shaped: ShapedText | None = None
    ) -> None:
        """Prove a text that an operator made as it ran, under one of its claims.

        Raises:
            Unproved: under none of them.
        """
        late = [replace(claimed, text=text) for claimed in claims]
        if any(self._is_covered(claimed, lent, shaped) for claimed in late):
            return
        if any(
            (text, *_key(claimed)) in self._proved
            for claimed in late
            if not isinstance(claimed.claim, RouteClaim)
        ):
            return
        _prove_under_one(late, lambda claimed: self.prove(claimed, lent, shaped))

    def _is_covered(self, claimed: ClaimedText, lent: Columns, shaped: ShapedText | None) -> bool:
        """Tell whether a proved pattern covers a text under its claim; one of a route says nothing about late texts."""
        if shaped is None or isinstance(claimed.claim, RouteClaim):
            return False
        return self._patterns.cover(shaped, _rests_on(claimed, lent))

    def prove_written(
        self,
        text: str,
        mine: Sequence[ClaimedText],
        claims: Sequence[ClaimedText],
        lent: Columns,
        salt: int | None,
    ) -> None:
        """Prove a text in Spark's SQL under each claim made for it, or under any claim where none is.

        Raises:
            Unproved: it may do more.
        """
        known = self._known(lent)
        key = (text, *map(_key, mine))
        if mine and key in self._proved:
            return
        query = read_spark(text, {path[-1]: path for path in known.tables}, salt)
        for claimed in mine:
            check_tree(query, claimed, known)
        if mine:
            self._remember(key)
        else:
            _prove_under_one(claims, lambda claimed: check_tree(query, claimed, known))

    def _remember(self, key: tuple[object, ...]) -> None:
        if len(self._proved) >= MAX_PROVED:
            self._proved.clear()
        self._proved.add(key)

    # -- what names mean ----------------------------------------------------------------------------------------

    def _known(self, lent: Columns) -> Known:
        if self._tables is None:
            self._tables = {}
            for table in self.catalog.policy.tables.values():
                with contextlib.suppress(PolicyError, Unproved):  # nobody reads a table that is not there
                    self._tables[self._path(table)] = self._base(table)
        relations = {
            name: Lent(frozenset(columns), unique=CANDIDATE_PLACE if CANDIDATE_PLACE in columns else None)
            for name, columns in lent.items()
        }
        return Known(self._tables, relations, macros=self.catalog.engine.macros)

    def _path(self, table: Table) -> tuple[str, ...]:
        engine = self.catalog.engine
        node = exp.maybe_parse(engine.relation(table), into=exp.Table, dialect=engine.dialect)
        return tuple(part.name for part in node.parts)

    def _base(self, table: Table) -> Base:
        schema = dict(self.catalog.schema(table))
        if table.public:
            return Base(schema, public=True)
        path = table.unit_path
        if not path:
            return Base(schema)
        hops = []
        for hop in path[1:]:
            target = self.catalog.find(hop.table, None)
            column = self._column(target, hop.column)
            kind = self.catalog.schema(target)[column]
            parted = hop is path[-1] and target.declared_period is not None
            kind = self._parted(target, kind)[0] if parted else kind
            hops.append(Hop(self._path(target), self._column(target, hop.key), column, kind, parted))
        unit = self._column(table, path[0].column)
        kind, period = self._parted(table, schema[unit])
        return Base(schema, False, unit, tuple(hops), kind, period)

    def _parted(self, table: Table, kind: str) -> tuple[str, tuple[str, str, str] | None]:
        """Return the type of a unit with its period, which no unit of another period is of, and the period."""
        period = table.declared_period
        if period is None:
            return kind, None
        column = self._column(table, period.column)
        taken = f"{period.function} {period.part} of {self.catalog.schema(table)[column]}"
        return f"{kind} in {taken}", (period.function, period.part, column)

    def _column(self, table: Table, name: str) -> str:
        found = next((known for known in self.catalog.schema(table) if fold(known) == fold(name)), None)
        if found is None:
            refuse("a privacy unit that is not there")
        return found


def _key(claimed: ClaimedText) -> tuple[object, ...]:
    return claimed.claim, tuple(sorted(claimed.lent))


def _rests_on(claimed: ClaimedText, lent: Columns) -> tuple[object, ...]:
    """Return all that a proof rests on besides the text and the policy."""
    return claimed.claim, repr(sorted(claimed.lent.items())), repr(sorted(lent.items()))


def _prove_under_one(claims: Sequence[ClaimedText], prove: Callable[[ClaimedText], object]) -> None:
    """Prove a text that was made late, under one of the claims that say what it may do."""
    different = {_key(claimed): claimed for claimed in claims if not isinstance(claimed.claim, RouteClaim)}
    for claimed in different.values():
        with contextlib.suppress(Unproved):
            prove(claimed)
            return
    refuse("a text that no claim is made for")


def columns_of(claimed: ClaimedText) -> dict[str, tuple[str, ...]]:
    """Return the columns of what an operator lends to a text of its own."""
    return {
        name: given.names if isinstance(given, LentTotals) else tuple(given)
        for name, given in claimed.lent.items()
    }  # fmt: skip
