"""The policies that hand out allocations, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from scheduler.allocation.policy import AllocationPolicy
from scheduler.policies import gavel
from scheduler.policies.drf import Drf
from scheduler.policies.optimus.oracle import OptimusOracle
from scheduler.policies.optimus.policy import Optimus
from scheduler.policies.pollux import Pollux
from scheduler.policies.shortest import ShortestRemaining
from scheduler.policies.smd.policy import Smd
from scheduler.policies.tetris import Tetris
from scheduler.policies.tiresias_las import TiresiasLas

ALLOCATING: dict[str, type[AllocationPolicy]] = {
    policy.name: policy
    for policy in (Drf, Tetris, ShortestRemaining, TiresiasLas, Optimus, OptimusOracle, Smd, Pollux)
} | cast("dict[str, type[AllocationPolicy]]", gavel.POLICIES)


class UnknownPolicy(ValueError):
    """No policy of that name."""


def build(
    name: str, *, settings: Mapping[str, Any] | None = None, seed: int = 0
) -> AllocationPolicy:
    """A policy by name.

    Args:
        settings: arguments of its constructor.
        seed: for policies that draw random numbers.

    Raises:
        UnknownPolicy: there is none of that name.
    """
    if name not in ALLOCATING:
        raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(ALLOCATING)}")
    kind = ALLOCATING[name]
    given = dict(settings or {})
    if kind.random:
        given.setdefault("seed", seed)
    return kind(**given)
