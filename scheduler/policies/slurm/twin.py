"""What is asked of a policy that decides as a site's own Slurm does (`Capabilities.twin`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from features.job import Job
from scheduler.core.policy import Policy
from scheduler.policies.slurm.passes import DOWN, PendingReason, Ranked, closed_to
from scheduler.policies.slurm.priority import Multifactor
from scheduler.policies.slurm.site import Ask, Partition, Site


class SlurmTwin(Protocol):
    """Why jobs wait, as of its last look at them; see `Slurm` for each."""

    site: Site
    weights: Multifactor
    reasons: dict[str, PendingReason]
    soon: set[str]

    def see(
        self, site: Site, names: Iterable[str], asks: Mapping[str, Ask], now: float | None = None
    ) -> None: ...

    def expect(self, asks: Mapping[str, Ask]) -> None: ...

    def ask(self, job: Job) -> Ask: ...

    def asked(self, job_id: str) -> Ask | None: ...

    def line(self) -> list[Ranked]: ...

    def suiting(
        self, ask: Ask, part: Partition, now: float, *, closed: bool = False
    ) -> list[str]: ...

    def licences_used(self) -> dict[str, int]: ...

    def evidence(self, job_id: str, now: float) -> PendingReason | None: ...


def twin_in(policy: Policy) -> SlurmTwin | None:
    """The policy as one that decides as Slurm does; None: it does not (`Capabilities.twin`)."""
    return cast(SlurmTwin, policy) if policy.capabilities.twin else None


def refused(twin: SlurmTwin, job_id: str) -> bool:
    """Whether no partition takes a job as it asks, whatever ends and comes up."""
    ask, known = twin.asked(job_id), twin.site.partitions
    parts = [known[name] for name in ask.partitions if name in known] if ask is not None else []
    return bool(parts) and all(closed_to(ask, part) not in ("", DOWN) for part in parts if ask)
