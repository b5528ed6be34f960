"""An explanation as a tree: each record in it is a finding, of a kind, with values and children.

The kind is the name under which a record stands in the one that holds it. Its JSON is the same
tree, so a program walks either without knowing any class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact that an explanation contains.

    Attributes:
        kind: subject of the fact, such as "forecast" or "groups".
        values: the values by name: numbers, codes, texts, lists and tables of these.
        children: the facts from which this one follows.
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
    """Return a record as a tree."""
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
    """Return the records that a field holds: itself, or those it lists."""
    if is_dataclass(value):
        return [value]
    if isinstance(value, list | tuple) and any(map(is_dataclass, value)):
        return value
    return []
