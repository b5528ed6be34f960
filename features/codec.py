"""Dataclasses as JSON and back. JSON written by an older or newer version can be read, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Json = dict[str, Any]  # an object of a document that is handed on: whoever reads it knows its keys


def encode(value: Any) -> Any:
    """Return `value` in types that JSON has: a dataclass becomes a dict, without the fields that
    have their default value."""
    if is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: encode(one) for f, one in pairs if one != _default(f)}
    if isinstance(value, list | tuple):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {name: encode(one) for name, one in value.items()}
    return value.value if isinstance(value, Enum) else value


def decode(kind: type[T], body: Any) -> T:
    """Return the value of type `kind` that `encode` turned into `body`.

    A missing field takes its default, and an unknown field is ignored. Raises TypeError if a field
    without a default is missing, and ValueError for a value that an enum does not have.
    """
    read: Callable[[Any], T] = _reader(kind)  # type: ignore[arg-type]
    return read(body)


def _default(field: Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is MISSING else made()


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return a function that turns parsed JSON into a value of type `kind`. It builds dataclasses,
    enums, and lists, tuples, mappings and optional values of these; other values are returned
    unchanged."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _reader(args[0])
    if origin in (Union, UnionType):
        some = [_reader(one) for one in args if one is not NoneType]
        return lambda body: body if body is None or len(some) > 1 else some[0](body)
    if origin in (list, tuple):
        item = _reader(args[0])
        return lambda body: origin(map(item, body))
    if origin in (dict, Mapping):
        item = _reader(args[1])
        return lambda body: {name: item(one) for name, one in body.items()}
    if is_dataclass(kind):
        make: Any = kind
        readers = {name: _reader(one) for name, one in get_type_hints(kind).items()}
        return lambda body: make(**{n: read(body[n]) for n, read in readers.items() if n in body})
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda body: body
