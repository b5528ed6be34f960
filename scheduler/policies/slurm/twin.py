"""What is asked of a policy that decides as a site's own Slurm does (`Capabilities.twin`)."""

from __future__ import annotations

from typing import Protocol

from scheduler.policies.slurm.passes import PendingReason, Ranked
from scheduler.policies.slurm.priority import Multifactor
from scheduler.policies.slurm.site import Ask, Partition, Site


class SlurmTwin(Protocol):
    """Why jobs wait, as of its last look at them; see `Slurm` for each."""

    site: Site
    weights: Multifactor
    reasons: dict[str, PendingReason]

    def asked(self, job_id: str) -> Ask | None: ...

    def line(self) -> list[Ranked]: ...

    def suiting(
        self, ask: Ask, part: Partition, now: float, *, closed: bool = False
    ) -> list[str]: ...

    def licences_used(self) -> dict[str, int]: ...

    def evidence(self, job_id: str, now: float) -> PendingReason | None: ...
