"""The part of `dataclasses` that the records of this program use, for a fortieth of what it costs to define them.

A search must answer a tenth of a second after it was started. The standard module compiles six functions for each class
when the class is defined: over the sixty records that a search imports that alone is a third of its time. Here a class
shares its methods with all others; an `__init__` of its own is compiled for a class of which many objects are made.

Measured in one interleaved run of 25 rounds on a busy machine, where `python -c pass` took 26 ms of CPU: a search over
that, alone and with `import typer` first, in ms of CPU, medians: this module 295 and 376, `msgspec.Struct` 330 and
388, `dataclasses` 415 and 484. A record costs 0.02 ms here and with msgspec (whose import costs 10), 0.9 ms with
`dataclasses`, 0.2 ms as a `NamedTuple`, which is equal to any tuple of the same values. So fewer records would gain
nothing here, and half of them, defined the standard way, would still be the dearest of the three.

Readers and type checkers see the standard names with their standard meaning. At run time the records also work with
`replace`, `fields`, `asdict` and `is_dataclass` of the standard module, and can be copied and pickled. Not covered,
because no record needs it: inheritance, `__post_init__`, ordering, keyword-only fields, classes without slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "field", "replace"]

_Record = TypeVar("_Record")

_COMPILED_FROM = 16
"""Objects of a class that share the common `__init__` (1 to 2 µs slower); compiling one costs 0.15 ms, and of most
classes a search makes one object."""


class _Factory:
    """A default that is made anew for each object."""

    __slots__ = ("make",)

    def __init__(self, *, default_factory: Callable[[], object]) -> None:
        self.make = default_factory


def _dataclass(*, slots: bool, frozen: bool = False) -> Callable[[type[Any]], type[Any]]:
    """Make a class a record of the fields that it annotates."""
    if not slots:
        raise TypeError("a record has slots")

    def define(cls: type[Any]) -> type[Any]:
        names = tuple(cls.__annotations__)
        members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        defaults = {name: members.pop(name) for name in names if name in members}
        members |= {"__slots__": names, "__match_args__": names, "__quick_defaults__": defaults}
        members |= {**_METHODS, **(_FROZEN if frozen else _MUTABLE), "__qualname__": cls.__qualname__}
        return type(cls.__name__, cls.__bases__, members)

    return define


def _replace(record: _Record, /, **changes: Any) -> _Record:
    """A copy of `record` with other values in some fields."""
    values = {name: getattr(record, name) for name in _names(record)}
    return type(record)(**(values | changes))


def _names(record: object) -> tuple[str, ...]:
    names: tuple[str, ...] = type(record).__match_args__  # type: ignore[attr-defined]
    return names


def _values(record: object) -> tuple[object, ...]:
    return tuple([getattr(record, name) for name in _names(record)])


def _compile_init(cls: Any) -> Callable[..., None]:
    """The class's own `__init__`, as one would write it by hand."""
    defaults: Mapping[str, object] = cls.__quick_defaults__
    scope: dict[str, Any] = {}
    parameters, body = ["self"], []
    for name in cls.__match_args__:
        default = defaults.get(name)
        # The slot's own setter knows nothing of frozen records, and is faster than `object.__setattr__`.
        scope[f"_set_{name}"] = getattr(cls, name).__set__
        if isinstance(default, _Factory):
            scope[f"_{name}"] = default.make
            body.append(f" _set_{name}(self, _{name}() if {name} is _{name} else {name})")
        else:
            scope[f"_{name}"] = default
            body.append(f" _set_{name}(self, {name})")
        parameters.append(f"{name}=_{name}" if name in defaults else name)
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _common_init(self: Any, *args: object, **kwargs: object) -> None:
    cls = type(self)
    names, defaults = cls.__match_args__, cls.__quick_defaults__
    values = dict(zip(names, args, strict=False)) | kwargs
    made = _MADE[cls] = _MADE.get(cls, 0) + 1
    missing = [name for name in names if name not in values]
    is_regular = len(args) + len(kwargs) + len(missing) == len(names) and all(name in defaults for name in missing)
    if made >= _COMPILED_FROM or not is_regular:
        # Wrong arguments are refused in Python's own words.
        cls.__init__ = _compile_init(cls)
        self.__init__(*args, **kwargs)
        return
    for name in missing:
        default = defaults[name]
        values[name] = default.make() if isinstance(default, _Factory) else default
    for name in names:
        object.__setattr__(self, name, values[name])


_MADE: dict[type[Any], int] = {}
"""Objects made by the common `__init__`, by class."""


def _repr(self: object) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(self))
    return f"{type(self).__qualname__}({shown})"


def _eq(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _refuse_change(self: object, name: str, value: object = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _set_state(self: object, values: tuple[object, ...]) -> None:
    for name, value in zip(_names(self), values, strict=True):
        object.__setattr__(self, name, value)


class _StandardFields:
    """`__dataclass_fields__`, made when a function of the standard module asks for it."""

    def __get__(self, record: object, cls: Any) -> Mapping[str, object]:
        import dataclasses

        def describe(name: str) -> Any:
            default = cls.__quick_defaults__.get(name, dataclasses.MISSING)
            if isinstance(default, _Factory):
                return dataclasses.field(default_factory=default.make)
            return dataclasses.field(default=default)

        kinds = cls.__annotations__
        standard: Any = dataclasses.make_dataclass(
            cls.__name__, [(name, kinds[name], describe(name)) for name in cls.__match_args__]
        )
        fields: Mapping[str, object] = standard.__dataclass_fields__
        return fields


_METHODS: Mapping[str, object] = {
    "__init__": _common_init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__getstate__": _values,
    "__setstate__": _set_state,
    "__dataclass_fields__": _StandardFields(),
}
_FROZEN: Mapping[str, object] = {
    "__hash__": _hash,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
}
_MUTABLE: Mapping[str, object] = {"__hash__": None}

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = _dataclass, _Factory, _replace
