"""Optimus (EuroSys'18) on all-reduce training, from statistics that jobs report.

The paper's scheme is marginal gains of predicted completion times. Added here is what it needs
without parameter servers, with real losses and with restarts that take time: see `speed`, `outlook`
and `resizing`. No part of it reads the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reproductions.allocation.allocation import Allocation, total_gpus
from reproductions.allocation.placement import consolidated, place_counts
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Evidence,
    Grant,
)
from reproductions.allocation.statistics import MOST_GPUS, STEP_PROFILE
from reproductions.optimus.marginal import GpuGrant, GpuJob, Objective, allocate_gpus
from reproductions.optimus.outlook import Outlook, Source, outlook
from reproductions.optimus.report import TRAINING_REPORT, TrainingReport
from reproductions.optimus.resizing import Resizing
from reproductions.optimus.speed import AllReduceSpeed, StepObservation
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings, setting

UNSEEN_S = 600.0  # seconds on one GPU believed of a job that has not run yet


@dataclass(slots=True)
class _Belief:
    """What the policy predicts of one job in one round of allocation.

    Attributes:
        left_s: function that returns the predicted seconds to completion on a number of GPUs.
        ahead: the predicted epochs left.
        most: largest number of GPUs that the job can use.
    """

    left_s: Callable[[int], float]
    ahead: Outlook
    most: int


class OptimusSettings(PolicySettings):
    """Settings of `optimus`."""

    objective: Objective = setting(
        "relative",
        "GPUs go to the job that gains most by them: `seconds` saved, or `relative`, seconds saved "
        "divided by seconds left",
    )
    threshold: float = setting(
        0.0,
        "a job counts as finished when an epoch improves its loss by less than this share; 0: when "
        "it has run the epochs that its owner asked for",
        ge=0,
    )
    resize_cost_s: float = setting(
        30.0,
        "time assumed for a change of a job's GPUs (checkpoint and restart) until one was "
        "measured; 0: change at every gain",
        unit="s",
        ge=0,
    )
    restart_share: float = setting(
        0.25, "share of its time that a job may spend on restarts with other GPUs", gt=0, le=1
    )


class Optimus(AllocationPolicy):
    """A policy that gives GPUs to the jobs whose predicted completion they bring forward most."""

    Settings = OptimusSettings
    name = "optimus"
    round_s = 60.0
    changes = frozenset({Capability.GPUS, Capability.PREEMPT})
    needs = (STEP_PROFILE, TRAINING_REPORT, MOST_GPUS)

    def __init__(self, settings: OptimusSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        given = settings or OptimusSettings()
        self.objective = given.objective
        self.threshold = given.threshold
        self.resize_cost_s = given.resize_cost_s
        self.restart_share = given.restart_share
        self._resizing: dict[str, Resizing] = {}
        self._speeds: dict[str, tuple[int, AllReduceSpeed]] = {}  # observations they are from
        self._outlooks: dict[str, tuple[int, Outlook]] = {}  # and losses

    def ended(self, job: ActiveJob, now: float) -> None:
        self._resizing.pop(job.id, None)
        self._speeds.pop(job.id, None)
        self._outlooks.pop(job.id, None)

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        node_gpus = max((node.gpus for node in snapshot.nodes), default=1)
        beliefs = {job.id: self._belief(job, node_gpus) for job in snapshot.jobs}
        found = allocate_gpus(
            [
                GpuJob(job_id, belief.left_s, belief.most, sure=belief.ahead.sure)
                for job_id, belief in beliefs.items()
            ],
            total_gpus(snapshot.nodes),
            node_gpus=node_gpus,
            objective=self.objective,
        )
        counts = {job_id: grant.gpus for job_id, grant in found.items() if grant.gpus}
        stays = self._stay(snapshot, counts, beliefs)
        placed = place_counts(snapshot, counts)
        grants = {}
        for job in snapshot.jobs:
            given = placed.get(job.id)
            self._remember(job, given, snapshot.now)
            grants[job.id] = Grant(
                given,
                Reason.GAIN if given is not None else Reason.GPUS_BUSY,
                self._evidence(
                    job_id=job.id,
                    given=given,
                    grant=found[job.id],
                    belief=beliefs[job.id],
                    stays=job.id in stays,
                ),
            )
        return grants

    # --- beliefs ----------------------------------------------------------------------------

    def _belief(self, job: ActiveJob, node_gpus: int) -> _Belief:
        report = job.report(TRAINING_REPORT)
        ahead = self._ahead(job.id, report)
        speed = self._speed(job)
        most = max(job.report(MOST_GPUS), 1)
        if speed is None:  # linear, until it has run: whoever is new is worth a try
            return _Belief(lambda gpus: UNSEEN_S / gpus, ahead, 1)
        tried = max(seen.gpus for seen in job.report(STEP_PROFILE))
        epochs = ahead.epochs
        if not ahead.sure:  # as long again as it has run: what attained service alone says
            epochs = max(report.epochs_done, 1.0)
        steps = epochs * report.steps_per_epoch
        seconds: dict[int, float] = {}

        def left_s(gpus: int) -> float:
            if gpus not in seconds:
                batch = report.split(gpus)
                nodes = len(consolidated(gpus, node_gpus))
                step_s = speed.step_s(nodes, gpus, batch.per_gpu, batch.accumulation)
                seconds[gpus] = steps * step_s
            return seconds[gpus]

        return _Belief(left_s, ahead, min(most, 2 * tried))

    def _ahead(self, job_id: str, report: TrainingReport) -> Outlook:
        """Return the predicted epochs left: from the number that the owner asked for if `threshold`
        is 0, otherwise from the losses.
        """
        if self.threshold <= 0:
            left = max(report.epochs - report.epochs_done, 0.0)
            return Outlook(left, left, left, Source.SCHEDULE)
        known = self._outlooks.get(job_id)
        if known is None or known[0] != len(report.losses):
            found = outlook(report.losses, threshold=self.threshold)
            known = self._outlooks[job_id] = len(report.losses), found
        return known[1]

    def _speed(self, job: ActiveJob) -> AllReduceSpeed | None:
        profile = job.report(STEP_PROFILE)
        if not profile:
            return None
        known = self._speeds.get(job.id)
        if known is None or known[0] != len(profile):
            seen = [
                StepObservation(c.nodes, c.gpus, c.per_gpu, times.step_s)
                for c, times in profile.items()
            ]
            known = self._speeds[job.id] = len(profile), AllReduceSpeed.fit(seen)
        return known[1]

    # --- resizing ---------------------------------------------------------------------------

    def _stay(
        self, snapshot: DecisionInput, counts: dict[str, int], beliefs: dict[str, _Belief]
    ) -> set[str]:
        """Return the ids of running jobs that keep their number of GPUs: those for which more
        GPUs are not worth a restart, and those whose GPUs nobody else would take. Set their
        entries in `counts` to the numbers that they hold. Return none if a restart costs nothing.
        """
        stays: set[str] = set()
        if not self.resize_cost_s:
            return stays
        moves = [job for job in snapshot.jobs if 0 < job.gpus != counts.get(job.id, 0) > 0]
        for job in moves:  # growing has to pay for itself
            left_s, wanted = beliefs[job.id].left_s, counts[job.id]
            worth = self._cost(job.id).worth(left_s(job.gpus), left_s(wanted), snapshot.now)
            if wanted > job.gpus and not worth:
                counts[job.id] = job.gpus
                stays.add(job.id)
        spare = total_gpus(snapshot.nodes) - sum(counts.values())
        for job in moves:  # and nobody shrinks for GPUs that nobody takes
            more = job.gpus - counts[job.id]
            if 0 < more <= spare:
                counts[job.id] += more
                spare -= more
                stays.add(job.id)
        return stays

    def _cost(self, job_id: str) -> Resizing:
        return self._resizing.setdefault(
            job_id, Resizing(self.resize_cost_s, share=self.restart_share)
        )

    def _remember(self, job: ActiveJob, given: Allocation | None, now: float) -> None:
        if given is not None and not given.same_gpus(job.allocation):
            self._cost(job.id).changed(now)

    def _evidence(
        self,
        job_id: str,
        given: Allocation | None,
        grant: GpuGrant,
        belief: _Belief,
        stays: bool,
    ) -> Evidence:
        told: Evidence = (
            ("marginal gain", grant.gain),
            ("epochs left", belief.ahead.epochs),
            ("epochs from", belief.ahead.source.value),
        )
        if given is not None:
            told += (("seconds left", belief.left_s(given.count)),)
        if stays:
            told += (("a resize would cost", self._cost(job_id).cost_s),)
        return told
