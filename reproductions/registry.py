"""The registry of policies that assign allocations, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from features.plugins import load_class
from reproductions import gavel
from reproductions.allocation.policy import AllocationPolicy
from reproductions.drf import Drf
from reproductions.optimus.oracle import OptimusOracle
from reproductions.optimus.policy import Optimus
from reproductions.pollux import Pollux
from reproductions.shortest import ShortestRemaining
from reproductions.smd.policy import Smd
from reproductions.tetris import Tetris
from reproductions.tiresias_las import TiresiasLas
from scheduler.core.settings import InvalidSettings, UnknownPolicy, read

ALLOCATING: dict[str, type[AllocationPolicy]] = {
    policy.name: policy
    for policy in (Drf, Tetris, ShortestRemaining, TiresiasLas, Optimus, OptimusOracle, Smd, Pollux)
} | cast("dict[str, type[AllocationPolicy]]", gavel.POLICIES)


def peer_named(name: str) -> type[AllocationPolicy]:
    """Return the class of a policy that assigns allocations, given by its name or as
    `module:Class`.

    Raises UnknownPolicy where there is no such class.
    """
    if name in ALLOCATING:
        return ALLOCATING[name]
    if ":" not in name:
        raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(ALLOCATING)}")
    try:
        return load_class(name, AllocationPolicy)  # type: ignore[type-abstract]
    except ValueError as error:
        raise UnknownPolicy(f"policy {error}") from None


def build(name: str, values: Mapping[str, Any] | None = None, *, seed: int = 0) -> AllocationPolicy:
    """Return a new policy, given by name.

    Args:
        values: values of its settings that differ from the defaults.
        seed: seed of the policy's random numbers.

    Raises UnknownPolicy where no policy has the name, InvalidSettings where it rejects a value.
    """
    kind = peer_named(name)
    try:
        return kind(read(kind.Settings, values or {}), seed=seed)
    except InvalidSettings as error:
        raise InvalidSettings(f"policy {name}: {error}") from None
