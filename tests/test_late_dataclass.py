"""Late dataclasses behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.late_dataclass import dataclass as late

Decorate = Callable[..., Any]
LATE: Decorate = late


def make(dataclass: Decorate) -> list[type]:
    """Return classes with every option that the package uses, made by a decorator."""

    @dataclass(frozen=True)
    class Point:
        """A point."""

        x: int
        y: float = 0.0
        tags: list[str] = field(default_factory=list, compare=False, repr=False)
        unit: str | None = field(default=None, kw_only=True)
        made: int = field(init=False, default=3)

        @cached_property
        def twice(self) -> int:
            return 2 * self.x

    @dataclass(frozen=True)
    class Named(Point):
        name: str = "origin"

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", len(self.name))

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @dataclass
    class Open:
        one: object
        seen: dict[str, int] = field(default_factory=dict, init=False)

    @dataclass(frozen=True, eq=False)
    class Alone:
        one: int

    @dataclass(frozen=True)
    class Nothing:
        pass

    @dataclass(slots=True)
    class Slotted:
        one: int
        two: int = field(init=False, default=2)

    @dataclass(frozen=True, slots=True)
    class Fixed:
        one: int

    @dataclass(frozen=True, init=False, repr=False)
    class Written:
        one: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "one", int(text))

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class Own:
        one: int

        def __eq__(self, other: object) -> bool:
            return True

    return [Point, Named, Open, Alone, Nothing, Slotted, Fixed, Written, Own]


ASKED: list[Callable[..., object]] = [
    lambda p, *_: p(1),
    lambda p, *_: p(1, 2.5, ["a"], unit="m"),
    lambda p, *_: p(1, unit="m") == p(1, tags=["b"], unit="m"),
    lambda p, *_: p(1) == p(1, unit="m"),
    lambda p, *_: p(float("nan")) == p(float("nan")),
    lambda p, *_: p(1).tags is p(1).tags,
    lambda p, *_: hash(p(1)) == hash(p(1, tags=["c"])),
    lambda p, *_: p(1, 2, [], "m"),
    lambda p, *_: p(),
    lambda p, *_: p(1, made=4),
    lambda p, *_: setattr(p(1), "x", 2),
    lambda p, *_: setattr(p(1), "other", 2),
    lambda p, *_: delattr(p(1), "x"),
    lambda p, *_: p(4).twice,
    lambda p, *_: dataclasses.replace(p(1), x=9).x,
    lambda p, *_: dataclasses.asdict(p(1)),
    lambda p, *_: [f.name for f in dataclasses.fields(p)],
    lambda p, *_: p.__match_args__,
    lambda p, *_: str(inspect.signature(p)),
    lambda p, *_: copy.deepcopy(p(1, tags=["a"])).tags,
    lambda _, n, *__: (n(1), n(1, name="far").made, n(1) == n(1, name="other"), str(inspect.signature(n))),
    lambda p, n, *_: p(1) == n(1),
    lambda _, n, *__: setattr(n(1), "name", "x"),
    lambda _, n, *__: setattr(type("Plain", (n,), {})(1), "other", 5),
    lambda _, n, *__: setattr(type("Plain", (n,), {})(1), "x", 5),
    lambda *all_: (all_[2](1), all_[2](1) == all_[2](1), all_[2](1).seen, all_[2].__hash__),
    lambda *all_: hash(all_[2](1)),
    lambda *all_: (lambda one: (setattr(one, "one", one), repr(one))[1])(all_[2](1)),
    lambda *all_: (all_[3](1) == all_[3](1), all_[3](1)),
    lambda *all_: (all_[4]() == all_[4](), hash(all_[4]()) == hash(all_[4]()), all_[4]()),
    lambda *all_: (all_[5](1), all_[5](1).two, all_[5](1) == all_[5](1), all_[5].__slots__),
    lambda *all_: (copy.copy(all_[5](1)), setattr(all_[5](1), "other", 1)),
    lambda *all_: copy.copy(all_[6](1)) == all_[6](1),
    lambda *all_: (all_[7]("5").one, hash(all_[7]("5")), all_[7]("5") == all_[7]("5")),
    lambda *all_: (all_[8](1) == all_[8](2), hash(all_[8](1)) == hash(all_[8](1))),
]


def outcome(ask: Callable[..., object], classes: list[type]) -> tuple[object, ...]:
    """Return the text of a result, or the type of an error."""
    try:
        return ("value", repr(ask(*classes)))
    except Exception as error:
        return ("error", type(error))


@pytest.mark.parametrize("place", range(len(ASKED)))
def test_they_behave_like_dataclasses(place: int) -> None:
    expected, found = make(dataclasses.dataclass), make(LATE)
    assert outcome(ASKED[place], found) == outcome(ASKED[place], expected)
    assert outcome(ASKED[place], found) == outcome(ASKED[place], expected)  # compiled now


@late(frozen=True)
class Kept:
    """Pickled by the name of its module."""

    one: int


def test_they_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(5))) == Kept(5)


def test_a_class_is_compiled_when_it_is_first_made() -> None:
    point: Any = make(LATE)[0]
    before = point.__init__
    point(1)
    assert before.__code__.co_filename != "<string>" == point.__init__.__code__.co_filename


def test_no_module_makes_dataclasses_at_import() -> None:
    for path in Path(dpsql.__file__).parent.rglob("*.py"):
        imported = re.findall(r"^from dataclasses import (.*)", path.read_text(), re.MULTILINE)
        if path.name != "late_dataclass.py":
            assert not any("dataclass" in re.split(r"\W+", names) for names in imported), path
