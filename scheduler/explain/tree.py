"""An explanation as a tree of findings: each record in it becomes a node with a kind, values and
children.

The kind is the name of the field in which the record stands. The JSON of an explanation is the same
tree, so a program can walk either one without knowing any class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact of an explanation, a node of the tree.

    Attributes:
        kind: name of the field in which the fact stands, such as "forecast" or "groups".
        values: its values by name: numbers, codes, texts, lists and tables of these.
        children: the facts that stand in its other fields.
    """

    kind: str
    values: Mapping[str, Any]
    children: tuple[Finding, ...] = ()

    def walk(self) -> Iterator[Finding]:
        """Yield this finding, then all findings below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree_of(record: object, kind: str = "explanation") -> Finding:
    """Return a record (a dataclass), and the records in its fields, as a tree of findings. `kind`
    is the kind of its root."""
    values, children = {}, list[Finding]()
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        found = _records(value)
        if found:
            children += [tree_of(one, field.name) for one in found]
        else:
            values[field.name] = value
    return Finding(kind, values, tuple(children))


def _records(value: object) -> Sequence[object]:
    """Return the dataclass records that the value of a field holds: the value itself, or the items
    of a list; [] if there are none."""
    if is_dataclass(value):
        return [value]
    if isinstance(value, list | tuple) and any(map(is_dataclass, value)):
        return value
    return []
