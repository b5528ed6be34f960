"""A policy like Horus: it shares GPUs by predicted utilisation. Ours, after the idea of Horus (TPDS
2022).

Horus predicts the GPU utilisation of a job before it runs, from the graph of its model, and packs
by that. Its predictor and its constants are not public, and a scheduler that does not touch user
code sees no graph. Here a job's utilisation is predicted from what similar jobs used. Two jobs may
share GPUs when their predicted utilisations sum to at most a limit; the pair with the smallest sum
is preferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from features.job import Job, Profile
from features.names import normalise
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import ClusterSpec, Run
from scheduler.core.decisions import PairPrediction, Reason
from scheduler.core.findings import Partner
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Learned, Policy, Predictors
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import PolicySettings, SharingRules, setting
from scheduler.core.turn import Turn


@dataclass(frozen=True, slots=True)
class Use:
    """The predicted use of one GPU: utilisation (percent), memory (MiB), and the number of jobs
    behind the prediction.
    """

    util_pct: float
    mem_mib: float
    seen: int


class Like(NamedTuple):
    """The key under which similar jobs are counted: the user, with the job's template or without.

    Attributes:
        name: normalised job name; "": the jobs had none and are grouped by what they asked for.
        gpus, cpus: GPUs and CPUs asked for, for jobs without a name.
    """

    user: str
    name: str = ""
    gpus: int | None = None
    cpus: float | None = None


class UtilisationBelief:
    """Predicts a job's GPU use from measured jobs of the same template or, without any, of the same
    user: their mean utilisation and, for safety, their highest memory.

    A template is a user's normalised job name or, for jobs without a name, the GPUs and CPUs asked
    for.
    """

    def __init__(self) -> None:
        self._sums: dict[Like, tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))

    def learn(self, job: Job, profile: Profile) -> None:
        """Add the measured use of a job to what predictions are made from."""
        for key in _keys(job):
            n, util, mem = self._sums[key]
            self._sums[key] = n + 1, util + profile.gpu_util_pct, max(mem, profile.gpu_mem_mib)

    def predict(self, job: Job) -> Use | None:
        """Return the predicted use of a job; None when no similar job was measured."""
        for key in _keys(job):
            if key in self._sums:
                n, util, mem = self._sums[key]
                return Use(util / n, mem, n)
        return None

    def remember(self) -> list[Seen]:
        """Return everything learned, as plain records."""
        return [
            Seen(
                like=(like.user, like.name, like.gpus, like.cpus),
                seen=n,
                util_pct=util,
                mem_mib=mem,
            )
            for like, (n, util, mem) in self._sums.items()
        ]

    def restore(self, memory: list[Seen]) -> None:
        """Replace what was learned by what `remember` returned."""
        self._sums.clear()
        for one in memory:
            self._sums[Like(*one.like)] = one.seen, one.util_pct, one.mem_mib


def _keys(job: Job) -> tuple[Like, Like]:
    name = normalise(job.name)
    template = Like(job.user, name) if name else Like(job.user, "", job.gpus, job.cpus)
    return template, Like(job.user)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the measured jobs under one key used.

    Attributes:
        like: the key; see `Like`.
        seen: number of measured jobs.
        util_pct: sum of their utilisations in percent.
        mem_mib: largest memory of any of them in MiB.
    """

    like: tuple[str, str, int | None, float | None]
    seen: int
    util_pct: float
    mem_mib: float


@dataclass(slots=True, kw_only=True)
class HorusMemory:
    """The state of the policy `horus` as a plain record, for saving. `watched` lists the running
    jobs whose use it has already learned.
    """

    belief: list[Seen]
    watched: list[str]


class HorusLearned(Learned):
    """What `horus` keeps between its turns (calls of the policy for one virtual cluster)."""

    Memory = HorusMemory

    def __init__(self, policy: Horus):
        self._policy = policy

    def begin(self, turn: Turn) -> None:
        """Learn the measured use of running jobs whose profile is known by now. Called at the start
        of a turn.
        """
        policy = self._policy
        for run in turn.runs():
            profile = turn.known(run).profile
            if profile is not None and run.job.job_id not in policy.watched_jobs:
                policy.watched_jobs.add(run.job.job_id)
                policy.belief.learn(run.job, profile)

    def remember(self) -> HorusMemory:
        policy = self._policy
        return HorusMemory(belief=policy.belief.remember(), watched=sorted(policy.watched_jobs))

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        assert isinstance(memory, HorusMemory)
        self._policy.belief.restore(memory.belief)
        self._policy.watched_jobs = set(memory.watched)


class HorusSettings(PolicySettings):
    """Settings of `horus`."""

    limit_pct: float = setting(
        100.0,
        "two jobs may share GPUs if their predicted uses of a GPU sum to at most this",
        unit="%",
        ge=0,
        le=200,
    )
    sharing: SharingRules = setting(
        SharingRules(), "which jobs may share GPUs, by the settings of this section"
    )


class Horus(Policy):
    """A policy that starts jobs first come, first served. A job for which no GPUs are free may
    share those of a running job.
    """

    Settings = HorusSettings
    name = "horus"
    capabilities = Capabilities(packs=True, own_pairs=True, watches_runs=True, watch_s=200.0)

    def __init__(
        self,
        settings: HorusSettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        self.settings = settings or HorusSettings()
        self.limit_pct = self.settings.limit_pct
        sharing = self.settings.sharing
        self.capabilities = replace(self.capabilities, memory_margin_mib=sharing.memory_margin_mib)
        self.max_gpus = 0 if sharing.mode == "exclusive" else sharing.max_gpus
        self.learned = HorusLearned(self)
        self.belief = UtilisationBelief()
        self.watched_jobs: set[str] = set()

    def ended(self, run: Run, now: float) -> None:
        self.watched_jobs.discard(run.job.job_id)

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        if isinstance(before, Horus):
            self.belief, self.watched_jobs = before.belief, before.watched_jobs
        return True

    def serve(self, turn: Turn) -> None:
        too_many: set[int] = set()  # GPU counts that did not fit; nothing is freed during a turn
        for queued in list(turn.queue):
            gpus = queued.job.gpus
            placement = None if gpus in too_many else turn.pool.place(gpus)
            if placement is not None:
                turn.start(queued, placement)
                continue
            too_many.add(gpus)
            partner = self._partner(turn, queued)
            if isinstance(partner, Run):
                turn.pack(queued, partner)
            else:
                turn.wait(queued, partner)

    def _partner(self, turn: Turn, queued: QueuedJob) -> Run | Reason:
        """Return the running job for which the sum of its GPU utilisation and that of the queued
        job is lowest, or the reason why no running job can be the partner. Record on `queued` the
        prediction for the pair, or the refused partner."""
        job = queued.job
        reason = turn.capacity_reason(queued)
        if job.gpus > self.max_gpus:
            return reason
        if not job.share:
            return Reason.SHARING_OPTED_OUT if turn.alone(job.gpus) else reason
        own = self.belief.predict(job)
        if own is None:
            return reason
        queued.predicted_mib, queued.considered = own.mem_mib, None
        best: tuple[float, Run, PairPrediction] | None = None
        for run in turn.alone(job.gpus):
            other = self._use(turn, run)
            if other is None:
                continue
            total = own.util_pct + other.util_pct
            refused = self._refused(turn, queued, run, other, total_pct=total)
            if refused is not None:
                reason = _stronger(reason, refused)
                queued.considered = Partner(turn.now, run.job.job_id, refused)
            elif best is None or total < best[0]:
                best = total, run, self._prediction(own, other)
        if best is None:
            return reason
        queued.pair_prediction = best[2]
        return best[1]

    def _refused(
        self, turn: Turn, queued: QueuedJob, run: Run, other: Use, total_pct: float
    ) -> Reason | None:
        """Return the reason why `queued` may not share the GPUs of `run`; None if it may. Record
        for `run` the memory in `other`, its predicted use."""
        turn.known(run).predicted_mib = other.mem_mib
        rule = turn.may_share(queued, run)
        if rule is None and total_pct > self.limit_pct:
            return Reason.INTERFERENCE_GUARD
        return rule

    def _use(self, turn: Turn, run: Run) -> Use | None:
        """Return the GPU use of a running job: measured if it was profiled, otherwise predicted.
        Return None if unknown.
        """
        profile = turn.known(run).profile
        if profile is not None:
            return Use(profile.gpu_util_pct, profile.gpu_mem_mib, 1)
        return self.belief.predict(run.job)

    def _prediction(self, own: Use, other: Use) -> PairPrediction:
        """Return the predicted use of a pair as a `PairPrediction` for the log; it contains no
        speeds.
        """
        path = (
            f"predicted utilisation {own.util_pct:.0f} % (from {own.seen} jobs like it)",
            f"partner: {other.util_pct:.0f} %",
            f"sum at most {self.limit_pct:.0f} %",
        )
        return PairPrediction((0, 0), None, path)


def _stronger(reason: Reason, refused: Reason) -> Reason:
    """Return the reason to record for a waiting job after another candidate was refused.
    Interference outranks memory, and memory outranks all other reasons.
    """
    if refused is Reason.INTERFERENCE_GUARD:
        return refused
    tells = refused is Reason.MEMORY_GUARD and reason is not Reason.INTERFERENCE_GUARD
    return refused if tells else reason
