"""``dataclasses.dataclass`` for modules that a session imports: its methods are made when they are first called.

Python compiles up to six functions for each dataclass: a quarter of the CPU time from ``connect`` to the first answer. Here
only ``__init__`` is compiled, at the first call; the others need no compiler. Fields, comparison, hash, ``repr``,
``FrozenInstanceError`` and signatures are those of the standard library.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, init=True, slots=False):
        """Make a dataclass. The methods that the class defines itself are kept."""
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, repr=repr, init=init, slots=slots)
        if frozen and slots:  # these can be copied by methods of the standard library only
            return dataclasses.dataclass(cls, frozen=True, eq=eq, repr=repr, init=init, slots=True)
        cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise it would be the signature
        own = {name: value for name, value in cls.__dict__.items() if name in _METHODS and value is not None}
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
        methods = {}
        if init:
            methods |= {"__init__": _wait_for_init(made, frozen), "__signature__": _Signature()}
        if repr:
            methods["__repr__"] = _write_repr(made)
        if eq:
            methods["__eq__"] = _compare_by(_get_values(made, lambda field: field.compare))
            hashed = _get_values(made, lambda field: field.compare if field.hash is None else field.hash)
            methods["__hash__"] = (lambda self: hash(hashed(self))) if frozen else None
        if frozen:
            methods |= {"__setattr__": _refuse(made, "assign to"), "__delattr__": _refuse(made, "delete")}
        for name, method in methods.items():
            if name not in own:
                setattr(made, name, method)
        return made


class _Made:
    """The default of a parameter whose value is made at each call."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()
_METHODS = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}


def _wait_for_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Return an ``__init__`` that compiles the class's own at its first call, and is replaced by it."""

    def wait(self: object, *args: object, **named: object) -> None:
        _compile_init(cls, frozen)(self, *args, **named)

    wait._waits = cls, frozen  # type: ignore[attr-defined]
    return wait


def _compile_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Compile a class's ``__init__``, put it in its place, and return it."""
    fields = dataclasses.fields(cls)
    fields = (*[f for f in fields if not f.kw_only], *[f for f in fields if f.kw_only])
    names: dict[str, Any] = {"set_": object.__setattr__, "made_": _MADE}
    listed, lines = ["self_"], []
    for field in fields:
        name = value = field.name
        if makes := field.default_factory is not dataclasses.MISSING:
            names[f"make_{name}"] = field.default_factory
        if field.default is not dataclasses.MISSING:
            names[f"default_{name}"] = field.default
        if field.init:
            if field.kw_only and "*" not in listed:
                listed.append("*")
            if makes:
                listed.append(f"{name}=made_")
                value = f"make_{name}() if {name} is made_ else {name}"
            else:
                listed.append(f"{name}=default_{name}" if f"default_{name}" in names else name)
        elif makes:
            value = f"make_{name}()"
        elif f"default_{name}" not in names or "__slots__" not in cls.__dict__:
            continue  # the class's attribute is its value
        else:
            value = f"default_{name}"
        lines.append(f"set_(self_, {name!r}, {value})" if frozen else f"self_.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self_.__post_init__()")
    exec(f"def __init__({', '.join(listed)}):\n " + "\n ".join(lines or ["pass"]), names)
    method: Callable[..., None] = names["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    cls.__init__ = method  # type: ignore[misc]
    return method


class _Signature:
    """The signature of a class, whose ``__init__`` may not be compiled yet."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("an instance has no signature of its own")
        init = owner.__init__  # type: ignore[misc]
        init = _compile_init(*init._waits) if hasattr(init, "_waits") else init
        found = inspect.signature(init)
        return found.replace(parameters=list(found.parameters.values())[1:])


def _get_values(
    cls: type, chosen: Callable[[dataclasses.Field[Any]], bool]
) -> Callable[[object], tuple[object, ...]]:
    """Return a function that returns the values of an instance's chosen fields."""
    names = [field.name for field in dataclasses.fields(cls) if chosen(field)]
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda instance: ()
    value = attrgetter(names[0])
    return lambda instance: (value(instance),)


def _compare_by(values: Callable[[object], tuple[object, ...]]) -> Callable[[object, object], bool]:
    def equals(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equals


def _write_repr(cls: type) -> Callable[[object], str]:
    @recursive_repr()
    def write(self: object) -> str:
        shown = (f.name for f in dataclasses.fields(cls) if f.repr)
        return f"{self.__class__.__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"

    return write


def _refuse(cls: type, what: str) -> Callable[..., None]:
    """Return ``__setattr__`` or ``__delattr__`` of a frozen class; a subclass that is no dataclass may have other attributes."""
    method = "__setattr__" if what == "assign to" else "__delattr__"

    def refuse(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return refuse
