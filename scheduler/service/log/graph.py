"""Writes object graphs as plain records, in msgpack. Reading them runs no code of the stored
classes.

A file names its classes and their fields. Each object is a record with the values of its fields;
where it refers to another object, the record has that object's number. The reader makes all objects
without calling their constructors, then fills in their fields, so objects that were shared stay
shared. Only classes of `PACKAGES` are allowed. Objects that are not data (functions, models) are
stored as a name that the caller gives them.
"""

from __future__ import annotations

import importlib
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any

import msgpack

from features import pulse

# Packages and modules whose classes may be in a file.
PACKAGES = (
    "features.", "models.bundle.", "scheduler.assembly", "scheduler.backends.base",
    "scheduler.backends.events", "scheduler.backends.submission", "scheduler.core.",
    "scheduler.policies.", *(f"scheduler.service.log.{name}" for name in
    ("fold", "header", "ledger", "nodes", "present", "record")),
)  # fmt: skip
BEAT = 500  # objects

# kinds of msgpack's extension values
_OBJECT, _ENUM, _TUPLE, _FIELDS, _FLOATS, _NAMED, _WHOLE, _UNSET, _NUMBER = range(9)
_CONTAINERS: dict[int, type] = dict(
    enumerate((set, frozenset, deque, Counter, OrderedDict, defaultdict, array), 10)
)
_CODES = {kind: code for code, kind in _CONTAINERS.items()}
_BUILTINS: dict[str, Any] = {
    kind.__name__: kind for kind in (list, dict, set, int, float, deque, Counter)
}


Compute = Callable[[Mapping[str, Any]], Any]


class GraphError(ValueError):
    """Raised where objects cannot be written or read in this form. The message is one line."""


class _Unset:
    """The value in a record that stands for a field which the object does not have."""


@dataclass(frozen=True, slots=True)
class Migration:
    """How an older schema became the next one; classes and enumerations are named by "module:name".

    Attributes:
        classes: the new name of each class that was renamed or moved, by its old name.
        fields: for each class (new name), the new name of each renamed field; None: removed.
        new: for each class (new name), the fields that were added, with their values.
        computed: for each class (new name), the fields whose value follows from the record as it
            was before, with a function of that record's values by name.
    """

    classes: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    new: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    computed: Mapping[str, Mapping[str, Compute]] = field(default_factory=dict)


class Writer:
    """Writes objects in parts. A part may refer to objects of earlier parts.

    Args:
        name: returns the name of an object that is no data, such as a model; None for any other
            object. Called once for each object.
        fields: for some classes, by "module:name", the fields to write; of other classes all are
            written.
    """

    def __init__(
        self, name: Callable[[Any], str | None], fields: Mapping[str, Sequence[str]] | None = None
    ):
        self._name = name
        self._fields = fields or {}
        self._numbers: dict[int, msgpack.ExtType] = {}  # by id
        self._alive: list[Any] = []  # ids stay theirs meanwhile
        self._classes: dict[tuple[type, tuple[str, ...]], int] = {}
        self._types: dict[type, int] = {}
        self._packers: list[msgpack.Packer] = []  # by depth: each is at work on one value
        self._depth = 0

    def part(self, root: Any) -> dict[str, Any]:
        """Return the records of `root` and of all objects it refers to, as plain values for
        msgpack.
        """
        begun, classes, types = len(self._alive), len(self._classes), len(self._types)
        kinds, rows = array("H"), [self._pack(root)]
        for n, obj in enumerate(islice(self._alive, begun, None)):  # which grows meanwhile
            kind, row = self._row(obj)
            kinds.append(kind)
            rows.append(self._pack(row))
            if n % BEAT == 0:
                pulse.beat()
        named = [(_path(kind), fields) for kind, fields in list(self._classes)[classes:]]
        return {
            "classes": named,
            "types": [_path(kind) for kind in list(self._types)[types:]],
            "kinds": kinds.tobytes(),
            "rows": b"".join(rows),
        }

    def _pack(self, value: Any) -> bytes:
        if self._depth == len(self._packers):
            self._packers.append(
                msgpack.Packer(
                    default=self._plain,
                    strict_types=True,
                    unicode_errors="surrogatepass",
                    buf_size=1024,
                )
            )
        self._depth += 1
        packed: bytes = self._packers[self._depth - 1].pack(value)
        self._depth -= 1
        return packed

    def _row(self, obj: Any) -> tuple[int, list[Any]]:
        kind = type(obj)
        fields = tuple(self._fields.get(_path(kind)) or fields_of(obj))
        number = self._classes.setdefault((kind, fields), len(self._classes))
        if len(fields) == 1:
            return number, [getattr(obj, fields[0], _UNSET_VALUE)]
        try:
            return number, list(_getter(fields)(obj)) if fields else []
        except AttributeError:
            return number, [getattr(obj, name, _UNSET_VALUE) for name in fields]

    def _plain(self, value: Any) -> msgpack.ExtType:
        """Return the msgpack extension type that stands for a value which msgpack itself cannot
        store.
        """
        known = self._numbers.get(id(value))
        if known is not None:
            return known
        kind = type(value)
        if kind is tuple:
            if set(map(type, value)) <= {float}:
                return msgpack.ExtType(_FLOATS, array("d", value).tobytes())
            return msgpack.ExtType(_TUPLE, self._pack(list(value)))
        if issubclass(kind, tuple):
            return msgpack.ExtType(_FIELDS, self._pack([self._type(kind), list(value)]))
        if issubclass(kind, Enum):
            member = msgpack.ExtType(_ENUM, self._pack([self._type(kind), value.name]))
            return self._numbers.setdefault(id(value), member)  # it lives as long as its class
        if kind in _CODES:
            return msgpack.ExtType(_CODES[kind], self._pack(self._contents(value)))
        if kind is int:
            return msgpack.ExtType(_WHOLE, str(value).encode())
        name = self._name(value)
        if name is not None:
            return msgpack.ExtType(_NAMED, name.encode())
        return msgpack.ExtType(_UNSET, b"") if kind is _Unset else self._numbered(value)

    def _numbered(self, value: Any) -> msgpack.ExtType:
        """Give a number to an object that is met for the first time, and return the reference that
        is written for it. Raise GraphError where its class is outside `PACKAGES`.
        """
        kind = type(value)
        if not _path(kind).startswith(PACKAGES):
            raise GraphError(f"{_path(kind)} is no part of a state")
        found = msgpack.ExtType(_OBJECT, len(self._alive).to_bytes(4, "little"))
        self._numbers[id(value)] = found
        self._alive.append(value)
        return found

    def _contents(self, value: Any) -> list[Any]:
        if isinstance(value, defaultdict):
            return [self._type(value.default_factory), dict(value)]
        if isinstance(value, deque):
            return [list(value), value.maxlen]
        if isinstance(value, array):
            return [value.typecode, value.tobytes()]
        if isinstance(value, dict):
            return [dict(value)]
        return [list(value)]

    def _type(self, kind: Any) -> str | int:
        """Return the number of a class in the file, or the name of a built-in class. Raise
        GraphError for any other class outside `PACKAGES`.
        """
        name = getattr(kind, "__name__", "")
        if name and _BUILTINS.get(name) is kind:
            return str(name)
        if not isinstance(kind, type) or not _path(kind).startswith(PACKAGES):
            raise GraphError(f"{kind!r} is no part of a state")
        return self._types.setdefault(kind, len(self._types))


class Reader:
    """Makes Python objects from what a `Writer` wrote, part by part.

    Args:
        named: returns the object that a saved name stands for.
        fields: by "module:name" of a class, the fields that it must have, and no others.
        migrations: the steps from the schema of the file to the present one, in order.
    """

    def __init__(
        self,
        named: Callable[[str], Any],
        fields: Mapping[str, Sequence[str]] | None = None,
        migrations: Sequence[Migration] = (),
    ):
        self._named = named
        self._fields = fields or {}
        self._migrations = migrations
        self._objects: list[Any] = []
        self._classes: list[tuple[type, _Fill]] = []
        self._types: list[Any] = []
        self._members: dict[bytes, Any] = {}  # of enumerations, by how a file holds them
        self._how: dict[str, Any] = {
            "ext_hook": self._value,
            "strict_map_key": False,
            "unicode_errors": "surrogatepass",
        }

    def part(self, part: Mapping[str, Any]) -> Any:
        """Return the root object of one part. Raise GraphError where the part does not fit the
        schema; a wrong value may raise any other exception.
        """
        self._classes += [self._record(path, fields) for path, fields in part["classes"]]
        self._types += [_class(self._renamed(path)) for path in part["types"]]
        kinds = array("H", part["kinds"])
        new: list[Any] = [object.__new__(self._classes[number][0]) for number in kinds]
        self._objects += new
        fill = [fill for _, fill in self._classes]
        rows = msgpack.Unpacker(max_buffer_size=len(part["rows"]), **self._how)
        rows.feed(part["rows"])
        root = rows.unpack()
        for n, (obj, kind, row) in enumerate(zip(new, kinds, rows, strict=True)):
            fill[kind](obj, row)
            if n % BEAT == 0:
                pulse.beat()
        return root

    def _renamed(self, path: str) -> str:
        for migration in self._migrations:
            path = migration.classes.get(path, path)
        return path

    def _record(self, path: str, fields: Sequence[str]) -> tuple[type, _Fill]:
        """Return the class that a file calls `path`, and a function that sets the fields of its
        objects, both after migrations. Raise GraphError where the fields are not those that the
        class must have.
        """
        now: list[str | None] = list(fields)
        new: dict[str, Any] = {}
        computed: dict[str, _Computed] = {}
        for migration in self._migrations:
            path = migration.classes.get(path, path)
            moved = migration.fields.get(path, {})
            now = [moved.get(name, name) if name is not None else None for name in now]
            new = {moved.get(name) or name: value for name, value in new.items()}
            new |= migration.new.get(path, {})
            computed = {moved.get(name) or name: one for name, one in computed.items()}
            steps = migration.computed.get(path, {})
            computed |= {name: (of, tuple(now), dict(new)) for name, of in steps.items()}
            now = [None if name in steps else name for name in now]
            new = {name: value for name, value in new.items() if name not in steps}
        wanted = self._fields.get(path)
        has = [*new, *computed, *(name for name in now if name is not None)]
        if wanted is not None and sorted(has) != sorted(wanted):
            odd = sorted(set(has) ^ set(wanted)) or has
            raise GraphError(f"{path} has another schema: {odd[0]}")
        kind = _class(path)
        return kind, _filler(kind, now, new, computed)

    def _value(self, code: int, data: bytes) -> Any:
        if code == _OBJECT:
            return self._objects[int.from_bytes(data, "little")]
        if code == _ENUM and data in self._members:
            return self._members[data]
        if code == _FLOATS:
            return tuple(array("d", data))
        if code == _WHOLE:
            return int(data)
        if code == _NAMED:
            return self._named(data.decode())
        if code == _UNSET:
            return _UNSET_VALUE
        inside = msgpack.unpackb(data, **self._how)
        return tuple(inside) if code == _TUPLE else self._typed(code, inside, data)

    def _typed(self, code: int, inside: Sequence[Any], data: bytes) -> Any:
        if code == _FIELDS:
            return tuple.__new__(self._types[inside[0]], inside[1])
        if code == _NUMBER:  # a float with fields, of a file written when there were such
            return inside[1][0]
        if code == _ENUM:
            return self._members.setdefault(data, self._types[inside[0]].__members__[inside[1]])
        return self._container(_CONTAINERS[code], inside)

    def _container(self, kind: type, inside: Sequence[Any]) -> Any:
        if kind is array:
            found = array(inside[0])
            found.frombytes(inside[1])
            return found
        if kind is not defaultdict:
            return kind(*inside)
        of, items = inside
        return defaultdict(_BUILTINS[of] if isinstance(of, str) else self._types[of], items)


_UNSET_VALUE = _Unset()
_PATHS: dict[type, str] = {}
_Fill = Callable[[Any, Sequence[Any]], None]
# a function of a record's values, with their names then, and the values that had been added by then
_Computed = tuple[Compute, tuple[str | None, ...], Mapping[str, Any]]


def fields_of(obj: Any) -> tuple[str, ...]:
    """Return the names of all attributes of an object, in a fixed order."""
    return (*_all_slots(type(obj)), *getattr(obj, "__dict__", ()))  # type: ignore[arg-type]


@cache
def _all_slots(kind: type) -> list[str]:
    return [name for base in kind.__mro__ for name in _slots(base)]


@cache
def _getter(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*fields)


def _slots(kind: type) -> list[str]:
    """Return the names of the slots that a class itself declares, without those of its
    bases."""
    return [name for name, one in vars(kind).items() if isinstance(one, MemberDescriptorType)]


def _path(kind: type) -> str:
    found = _PATHS.get(kind)
    if found is None:
        found = _PATHS[kind] = f"{kind.__module__}:{kind.__qualname__}"
    return found


def _class(path: str) -> type:
    module, _, name = path.partition(":")
    if not module.startswith(PACKAGES):
        raise GraphError(f"{path} is no part of a state")
    found = vars(importlib.import_module(module)).get(name)
    if not isinstance(found, type) or found.__module__ != module:  # what it imports is not its own
        raise GraphError(f"there is no class {path}")
    return found


def _computed(computed: Mapping[str, _Computed], row: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are computed from a row, with their values."""
    for field_name, (compute, names, added) in computed.items():
        was = {name: value for name, value in zip(names, row, strict=True) if name is not None}
        yield field_name, compute({**added, **was})


def _filler(
    kind: type,
    fields: Sequence[str | None],
    new: Mapping[str, Any],
    computed: Mapping[str, _Computed],
) -> _Fill:
    """Return a function that sets the fields of an object of this class from a row, without
    calling anything of the class."""
    slots = {name: vars(base)[name].__set__ for base in kind.__mro__ for name in _slots(base)}
    setters = [slots[name] for name in fields if name in slots]
    quick = len(setters) == len(fields) and not new and not computed

    def fill(obj: Any, row: Sequence[Any]) -> None:
        if len(row) != len(fields):
            raise GraphError(f"a record of {_path(kind)} has not {len(fields)} fields")
        if quick:
            for setter, value in zip(setters, row, strict=True):
                if value is not _UNSET_VALUE:
                    setter(obj, value)
            return
        for name, value in chain(
            zip(fields, row, strict=True), deepcopy(new).items(), _computed(computed, row)
        ):
            if name is None or value is _UNSET_VALUE:
                continue
            if name in slots:
                slots[name](obj, value)
            else:
                obj.__dict__[name] = value

    return fill
