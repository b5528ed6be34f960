"""The policies that hand out allocations, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from scheduler.peers import gavel
from scheduler.peers.allocation.policy import AllocationPolicy
from scheduler.peers.drf import Drf
from scheduler.peers.optimus.oracle import OptimusOracle
from scheduler.peers.optimus.policy import Optimus
from scheduler.peers.pollux import Pollux
from scheduler.peers.shortest import ShortestRemaining
from scheduler.peers.smd.policy import Smd
from scheduler.peers.tetris import Tetris
from scheduler.peers.tiresias_las import TiresiasLas

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
