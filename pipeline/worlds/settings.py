"""Options of the policy `pellucid`, as they are given on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pipeline.errors import UserError
from scheduler.policies.pellucid.policy import Pellucid

# what is no plain value, or comes with the trace and the track
_NOT_HERE = frozenset(
    {"return", "judge", "gpu_memory_mib", "borrows", "lending", "shares", "types"}
)
_FINITE = ConfigDict(strict=True, allow_inf_nan=False)


def policy_settings(given: Sequence[str]) -> dict[str, Any]:
    """Arguments of the policy from `NAME=VALUE`s. UserError for one that cannot be."""
    kinds = {name: kind for name, kind in get_type_hints(Pellucid.__init__).items()
             if name not in _NOT_HERE}  # fmt: skip
    found: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        if name not in kinds:
            raise UserError(f"--set {one}: use NAME=VALUE with one of {', '.join(kinds)}")
        try:
            value = None if text == "None" else json.loads(text)
        except ValueError:
            value = text
        try:
            found[name] = TypeAdapter(kinds[name], config=_FINITE).validate_python(value)
        except ValidationError as error:
            raise UserError(f"--set {one}: {error.errors()[0]['msg']}") from None
        if isinstance(found[name], float | int) and found[name] < 0:
            raise UserError(f"--set {one}: must be 0 or more")
        try:
            Pellucid(**found)
        except ValueError as error:
            raise UserError(f"--set {one}: {error}") from None
    return found
