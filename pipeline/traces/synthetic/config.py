"""The configuration of a synthetic trace: virtual clusters, sizes, shares and seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from pipeline.traces.base import TraceError

DAY_S = 86_400


class SyntheticError(TraceError):
    """Raised for a configuration that no trace can satisfy. The message names the field, its value
    and a remedy."""


@dataclass(frozen=True, slots=True)
class Vc:
    """A virtual cluster.

    Attributes:
        name: name of the virtual cluster in the trace.
        nodes: number of its nodes.
        share: share of the submitted jobs, relative to the other VCs.
        load: offered load: submitted GPU-seconds / (GPUs x seconds of the trace).
    """

    name: str
    nodes: int
    share: float
    load: float = 0.85


@dataclass(frozen=True, slots=True)
class SyntheticConfig:
    """The configuration of a synthetic trace. Creating one with an impossible value raises
    SyntheticError, which names field and value.

    Attributes:
        jobs, days, users: number of jobs, of days and of users.
        vcs: the virtual clusters.
        start: first day; times are UTC and taken as the cluster's local time.
        gpus_per_node, gpu_memory_mib: the hardware.
        seed: seed of everything. The same seed gives the same trace, bit for bit.
        labels_seed: seed of job names, workloads and profiles alone, derived from `seed` when None.
            Changing it changes nothing else: times, sizes, users, durations and states stay.
        jobs_per_template: mean number of jobs per template (recurring script).
        user_skew: standard deviation of the logarithm of users' activity.
        away_share: share of templates (recurring scripts) that run outside their user's home VC.
        bursts_per_week, burst_jobs: number per week of bursts (many one-GPU jobs within an hour),
            and their fewest and most jobs.
        median_duration_s: median duration of all jobs, approximately; VCs differ around it.
        max_duration_s: longest duration that a job can have; durations approach it smoothly.
        failed_share, cancelled_share: share of all jobs that fail, and that are cancelled; the rest
            completes.
    """

    name: str
    jobs: int
    days: int
    users: int
    vcs: tuple[Vc, ...]
    start: date = date(2025, 9, 15)
    gpus_per_node: int = 8
    gpu_memory_mib: float = 32_768.0
    seed: int = 0
    labels_seed: int | None = None
    jobs_per_template: float = 12.0
    user_skew: float = 1.9
    away_share: float = 0.05
    bursts_per_week: float = 2.0
    burst_jobs: tuple[int, int] = (80, 240)
    median_duration_s: float = 200.0
    max_duration_s: float = 6.0 * DAY_S
    failed_share: float = 0.155
    cancelled_share: float = 0.221

    def __post_init__(self) -> None:
        positive = (
            "jobs", "days", "users", "gpus_per_node", "gpu_memory_mib", "jobs_per_template",
            "median_duration_s", "max_duration_s",
        )  # fmt: skip
        for name in positive:
            _check(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("seed", "labels_seed", "user_skew", "bursts_per_week"):
            _check((getattr(self, name) or 0) >= 0, name, getattr(self, name), "at least 0")
        for name in ("away_share", "failed_share", "cancelled_share"):
            _check(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        stopped = self.failed_share + self.cancelled_share
        _check(stopped <= 1, "failed_share + cancelled_share", stopped, "at most 1")
        _check(len(self.vcs) > 0, "vcs", self.vcs, "at least one virtual cluster")
        _check(self.users >= len(self.vcs), "users", self.users, "at least one per VC")
        names = [vc.name for vc in self.vcs]
        _check(len(set(names)) == len(names), "vcs", names, "distinct names")
        for vc in self.vcs:
            good = vc.nodes > 0 and vc.share > 0 and vc.load > 0
            _check(good, "vcs", vc, "positive nodes, share and load")
        low, high = self.burst_jobs
        _check(0 < low <= high, "burst_jobs", self.burst_jobs, "0 < fewest <= most")
        expected = round(self.bursts_per_week * self.days / 7) * high
        _check(
            expected <= self.jobs / 2,
            "bursts_per_week",
            self.bursts_per_week,
            f"few enough that bursts (up to {expected} jobs) stay below half of {self.jobs} jobs",
        )


def _check(good: bool, field: str, value: object, accepted: str) -> None:
    if not good:
        raise SyntheticError(f"{field} is {value!r}; accepted: {accepted}")


def default_config(scale: str = "demo", seed: int = 0) -> SyntheticConfig:
    """Return a configuration: `demo` (6,000 jobs, 240 GPUs), `small` (600, for tests), `large`
    (1,000,000, 4,688 GPUs).

    Raises SyntheticError for any other scale.
    """
    demo = SyntheticConfig(
        name="demo",
        jobs=6_000,
        days=21,
        users=90,
        vcs=(
            Vc("research", 9, 0.32, 0.80),
            Vc("product", 8, 0.26, 0.78),
            Vc("platform", 6, 0.18, 0.76),
            Vc("applied", 4, 0.14, 0.78),
            Vc("campus", 3, 0.12, 0.75),
        ),
        seed=seed,
    )
    if scale == "demo":
        return demo
    if scale == "small":
        vcs = (Vc("research", 4, 0.55, 0.9), Vc("campus", 3, 0.45, 0.8))
        return replace(
            demo,
            name=scale,
            jobs=600,
            days=5,
            users=25,
            vcs=vcs,
            burst_jobs=(20, 60),
            jobs_per_template=6.0,
            max_duration_s=2.0 * DAY_S,
        )
    if scale == "large":
        sizes = (80, 70, 60, 56, 50, 44, 40, 36, 30, 26, 22, 18, 16, 12, 10, 8, 5, 3)
        large = tuple(
            Vc(f"team-{i:02d}", nodes, float(nodes), 0.75 + 0.015 * (i % 15))
            for i, nodes in enumerate(sizes, start=1)
        )
        return replace(
            demo,
            name=scale,
            jobs=1_000_000,
            days=180,
            users=1_200,
            vcs=large,
            bursts_per_week=40.0,
            max_duration_s=30.0 * DAY_S,
        )
    raise SyntheticError(f"scale is {scale!r}; accepted: demo, small, large")
