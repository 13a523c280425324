"""Proofs that hold for all texts which differ in values alone.

In a pattern some values are left open: the text has a parameter in the place of each. A proof of the pattern knows nothing of
such a value but that it is one constant, so it is a proof of every text that has a number or a quoted text there. All that a
proof does read (a cap, a bound, a place in an integer) must stand in the pattern: where it is left open nothing is proved, and
each text is proved by itself.

Which values are left open, the texts themselves say: those by which a second one differs from the first. So a pattern costs one
proof more, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.sql.lock import tree

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
