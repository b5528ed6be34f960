"""Options of the policy `pellucid`, as they are given on the command line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

from pipeline.errors import UserError
from scheduler.policies.pellucid import Pellucid

# what is no plain value, or comes with the trace and the track
_NOT_HERE = frozenset({"judge", "gpu_memory_mib", "borrows", "lending", "shares", "types"})


def policy_settings(given: Sequence[str]) -> dict[str, Any]:
    """Arguments of the policy from `NAME=VALUE`s. UserError for one that cannot be."""
    taken = inspect.signature(Pellucid).parameters
    known = {name: p.default for name, p in taken.items() if name not in _NOT_HERE}
    found: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        if name not in known:
            raise UserError(f"--set {one}: use NAME=VALUE with one of {', '.join(known)}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name] = value
        try:
            Pellucid(**found)
        except (TypeError, ValueError) as error:
            raise UserError(f"--set {one}: {error}") from None
        if isinstance(value, str) != isinstance(known[name], str):
            raise UserError(f"--set {one}: the default is {known[name]!r}")
    return found
