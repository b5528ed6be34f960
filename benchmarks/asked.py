"""What users and operators ask of a service in trials, who may not know that it cannot be."""

from __future__ import annotations

import random
from typing import Any

from scheduler.backends.events import Event, Kind

VCS, TYPES = ("left", "right", "new"), ("V100", "A100")
MOST_NODES = 16  # numbers that a trial comes to
SETTINGS: tuple[dict[str, Any], ...] = (  # what a policy does not have is turned down
    {"ageing": 0.0}, {"max_wait_s": 30.0}, {"fairness": {"weight": 0.5}}, {"borrowing": {}},
    {"gpu_types": {"speeds": {"V100": 1.0, "A100": 2.0}}}, {"sharing": {"max_gpus": 2}},
    {"sharing_limit": 1}, {"nonsense": 1}, {},
)  # fmt: skip


def asked(draw: random.Random, at: float, what: str, name: str) -> list[Event]:
    """The events of a request about a job or a node.

    Args:
        what: cancel, priority, set, drain, open, remove, add, change; `room`: every node is opened,
            and enough come that each job has its place sooner or later.
    """
    if what == "cancel":
        return [Event(Kind.CANCEL_ASKED, at, name, "ann")]
    if what == "priority":
        return [Event(Kind.PRIORITY_SET, at, name, "op", body={"priority": draw.randint(-2, 9)})]
    if what == "set":
        return [_on(Kind.SETTINGS_SET, at, settings=draw.choice(SETTINGS))]
    if what == "room":
        opened = [_on(Kind.NODE_SET, at, node=node, open=True) for node in range(MOST_NODES)]
        came = [(f"last-{vc}-{of}", a_node(vc, 8, of)) for of in TYPES for vc in VCS]
        return opened + [_on(Kind.NODE_ADDED, at, name=name, **node) for name, node in came]
    if what in ("drain", "open"):
        return [_on(Kind.NODE_SET, at, node=int(name), open=what == "open", reason="fan")]
    if what == "remove":
        return [_on(Kind.NODE_REMOVED, at, node=int(name), reason="sold")]
    node = a_node(
        draw.choice(["left", *VCS]), draw.choice([2, 4, 8]), draw.choice(["V100", *TYPES])
    )
    if what == "add":
        return [_on(Kind.NODE_ADDED, at, name=name, **node)]
    return [_on(Kind.NODE_CHANGED, at, node=int(name), **node)]


def a_node(vc: str, gpus: int, gpu_type: str = "V100") -> dict[str, Any]:
    """What the event of a node says that it has."""
    return {"vc": vc, "gpus": gpus, "gpu_type": gpu_type, "gpu_memory_mib": 24_576.0}


def _on(kind: Kind, at: float, **body: Any) -> Event:
    return Event(kind, at, actor="op", body=body)
