"""How busy a virtual cluster is: counts that events of jobs update."""

from __future__ import annotations

from dataclasses import dataclass

from features.spec import FeatureSpec

SPECS = tuple(
    FeatureSpec(name=name, kind="continuous", family="queue", unit=unit, text=text)
    for name, unit, text in (
        ("vc_queued", "jobs", "how many other jobs wait in this VC"),
        ("vc_queued_gpus", "GPUs", "how many GPUs the other jobs waiting in this VC ask for"),
        ("vc_running", "jobs", "how many other jobs run in this VC"),
        ("vc_running_gpus", "GPUs", "how many GPUs the other jobs running in this VC hold"),
    )
)


@dataclass(slots=True)
class VcQueue:
    """Numbers of jobs, and of their GPUs, that wait and that run in one virtual cluster."""

    queued: int = 0
    queued_gpus: int = 0
    running: int = 0
    running_gpus: int = 0

    def enqueue(self, gpus: int, sign: int = 1) -> None:
        self.queued += sign
        self.queued_gpus += sign * gpus

    def run(self, gpus: int, sign: int = 1) -> None:
        self.running += sign
        self.running_gpus += sign * gpus
