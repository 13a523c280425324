"""``dataclasses.dataclass`` for modules that a session imports: a class makes its methods and its fields at first use.

The standard library inspects every field and compiles up to six functions for each dataclass: a third of the CPU time from
``connect`` to the first answer. Here only ``__init__`` is compiled; the others need no compiler. Fields, comparison, hash,
``repr``, ``FrozenInstanceError`` and signatures are those of the standard library.
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
        own = {name for name, value in cls.__dict__.items() if name in _METHODS and value is not None}
        given = _take_fields(cls)
        if slots:
            cls = _make_slots(cls)
        late = {name: partial(_inspect, name, given) for name in _INSPECTED}
        if init:
            late["__init__"] = partial(_compile_init, frozen)
        if repr:
            late["__repr__"] = _write_repr
        if eq:
            late["__eq__"] = _compare
        methods = {name: _Late(cls, name, make) for name, make in late.items()}
        if eq:
            methods["__hash__"] = _Late(cls, "__hash__", _hash) if frozen else None
        if frozen:
            methods |= {"__setattr__": _refuse(cls, "assign to"), "__delattr__": _refuse(cls, "delete")}
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        return cls


_METHODS = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}
_INSPECTED = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
"""Attributes of a dataclass that the standard library makes from its fields."""


class _Late:
    """A class's attribute that is made when it is first asked for, and replaces this one."""

    def __init__(self, cls: type, name: str, make: Callable[[type], Any]) -> None:
        self.cls, self.name, self.make = cls, name, make

    def __get__(self, instance: object, owner: type) -> Any:
        made = self.make(self.cls)
        setattr(self.cls, self.name, made)
        return made.__get__(instance, owner) if inspect.isfunction(made) else made


def _take_fields(cls: type) -> dict[str, object]:
    """Replace a class's calls of ``field`` by their defaults, and return them by name with all other values of the class."""
    values = dict(cls.__dict__)
    for name, value in values.items():
        if isinstance(value, dataclasses.Field):
            if value.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
    return values


def _make_slots(cls: type) -> type:
    """Return a class again, with a slot for each field that its bases don't have."""
    names = inspect.get_annotations(cls)
    inherited = {name for base in cls.__mro__[1:] for name in vars(base).get("__slots__", ())}
    left_out = {*names, "__dict__", "__weakref__"}
    body = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    return type(cls)(cls.__name__, cls.__bases__, body | {"__qualname__": cls.__qualname__})


def _inspect(attribute: str, values: dict[str, object], cls: type) -> object:
    """Return an attribute that the standard library makes from the fields: here of another class, as threads use this one."""
    listed = inspect.get_annotations(cls)
    given = {name: values[name] for name in listed if name in values}
    kept = {"__annotations__": listed, "__module__": cls.__module__, "__doc__": "without a signature"}
    bare: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), given | kept))
    if attribute == "__dataclass_params__":
        return vars(bare)[attribute]
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in (*cls.__mro__[:0:-1], bare):
        fields |= getattr(base, "__dataclass_fields__", {})
    if attribute == "__match_args__":
        return tuple(field.name for field in fields.values() if field.init and not field.kw_only)
    return fields


class _Made:
    """The default of a parameter whose value is made at each call."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


def _compile_init(frozen: bool, cls: type) -> Callable[..., None]:
    """Compile a class's ``__init__``."""
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
    return method


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


def _compare(cls: type) -> Callable[[object, object], bool]:
    values = _get_values(cls, lambda field: field.compare)

    def equals(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equals


def _hash(cls: type) -> Callable[[object], int]:
    values = _get_values(cls, lambda field: field.compare if field.hash is None else field.hash)
    return lambda self: hash(values(self))


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
