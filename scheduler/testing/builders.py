"""Builders for tests: a test states what matters to it, and the rest has a plain value.

    played = play(Fifo(), cluster_of(nodes=1, gpus=8), a_job("a", gpus=8, for_=600), a_job("b"))
    assert played.result("b").start_time == 600

A `Sample` is a job together with the truth about it, which only nature knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from features.job import Job, Profile
from features.states import State
from features.survival import EDGES_S
from scheduler.core.cluster import Cluster, ClusterSpec, Run
from scheduler.core.core import Core
from scheduler.core.curves import Predicted
from scheduler.core.decisions import Action, Decision, PairPrediction, Reason
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import Estimate, Estimator, TableEstimator
from scheduler.core.pairs import PairPredictor
from scheduler.core.policy import NO_CLUSTER, Policy, Predictors, TypeSpeeds
from scheduler.core.profiling import ProfilingStage, Scaling, Stage
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Oracle
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.settings import PellucidSettings
from scheduler.simulation.engine import Engine, JobResult, Outcome
from scheduler.simulation.quirks import NONE, Quirks
from scheduler.simulation.work import Configuration, PairTable, SpeedModel, Work

VC = "vc"
_ids = count(1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A job, and the truth about it: how long it runs, and what its profile shows."""

    job: Job
    work: Work

    @property
    def id(self) -> str:
        return self.job.job_id

    def __repr__(self) -> str:
        """Return the call of `a_job` that makes this sample, where one does."""
        job, work = self.job, self.work
        given: dict[str, Any] = {
            "gpus": job.gpus,
            "for_": work.duration_s,
            "at": job.submit_time,
            "vc": job.vc,
            "user": job.user,
            "mem": work.profile.gpu_mem_mib if work.profile is not None else 0.0,
            "config": work.configuration.model if work.configuration is not None else None,
            "state": work.state,
        }
        if a_job(job.job_id, **given) != self:
            return f"Sample({job!r}, {work!r})"
        plain = inspect.signature(a_job).parameters
        words = [
            f"{name}={f'State.{value.name}' if isinstance(value, State) else repr(value)}"
            for name, value in given.items()
            if value != plain[name].default
        ]
        return f"a_job({', '.join([repr(job.job_id), *words])})"


def pellucid(
    pair_predictor: PairPredictor | None = None,
    *,
    cluster: ClusterSpec = NO_CLUSTER,
    type_speeds: TypeSpeeds | None = None,
    **settings: Any,
) -> Pellucid:
    """Return a `Pellucid` policy with these settings (sections as mappings), and defaults
    otherwise.
    """
    predictors = Predictors(pair_predictor, type_speeds=type_speeds)
    return Pellucid(PellucidSettings(**settings), cluster, predictors)


def a_job(
    job_id: str | None = None,
    *,
    gpus: int = 1,
    for_: float = 600.0,
    at: float = 0.0,
    vc: str = VC,
    user: str = "user",
    mem: float = 1000.0,
    config: str | None = None,
    state: State = State.COMPLETED,
) -> Sample:
    """Return a job of `gpus` GPUs, submitted at the time `at`, that runs for `for_` seconds.

    `mem`: memory that its profile shows, MiB on one GPU; `config`: name of its training
    configuration; `state`: how it ends.
    """
    return Sample(
        Job(job_id=job_id or f"job{next(_ids)}", submit_time=at, gpus=gpus, user=user, vc=vc),
        Work(for_, state, a_configuration(config), Profile(50.0, 30.0, mem)),
    )


def a_configuration(name: str | None) -> Configuration | None:
    return None if name is None else Configuration(name, "data", 32, False)


def pair_speeds(
    table: Mapping[tuple[str, str], float], *, unmeasured: float = 0.8, cap: float | None = 1.0
) -> PairTable:
    """Return a table of pair speeds for configurations given by name: `table` maps (first, second)
    to the speed of the first beside the second.
    """
    speeds = {
        (Configuration(a, "data", 32, False), Configuration(b, "data", 32, False)): speed
        for (a, b), speed in table.items()
    }
    return PairTable(speeds, unmeasured=unmeasured, cap=cap)


def a_spec(*, nodes: int | Mapping[str, int] = 1, gpus: int = 8) -> ClusterSpec:
    return ClusterSpec({VC: nodes} if isinstance(nodes, int) else dict(nodes), gpus)


def cluster_of(
    *,
    nodes: int | Mapping[str, int] = 1,
    gpus: int = 8,
    profiling: int | Mapping[str, int] = 0,
) -> Cluster:
    """Return a cluster of one virtual cluster, or of several by name, with nodes of `gpus` GPUs
    each. `profiling`: number of its nodes that belong to the profiling partition.
    """
    lent = {VC: profiling} if isinstance(profiling, int) else dict(profiling)
    return Cluster(a_spec(nodes=nodes, gpus=gpus), {vc: n for vc, n in lent.items() if n})


def a_stage(
    *, limit: float = 200.0, max_gpus: int = 8, lender: str | None = None, **more: Any
) -> ProfilingStage:
    """Return a profiling stage (it measures jobs before they join a queue). `lender`: virtual
    cluster that lends it further nodes when many jobs wait to be profiled (`more`: arguments of
    `Scaling`); None: its nodes are fixed.
    """
    forecast = more.pop("forecast", None)
    scaling = Scaling(lender, **more) if lender is not None else None
    return ProfilingStage(limit_s=limit, max_gpus=max_gpus, scaling=scaling, forecast=forecast)


def truth(samples: Iterable[Sample]) -> TableEstimator:
    """Return an estimator that predicts each job's true duration."""
    return TableEstimator("oracle", {s.id: s.work.duration_s for s in samples})


class UserMeans(Estimator):
    """An estimator that learns during the run: it predicts the mean duration of the user's jobs
    that have ended.
    """

    name = "user-means"

    def __init__(self) -> None:
        super().__init__()
        self._user: dict[str, str] = {}
        self._sums: dict[str, tuple[int, float]] = {}

    def submitted(self, job: Job, now: float) -> None:
        self._user[job.job_id] = job.user

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        user = self._user[job_id]
        n, total = self._sums.get(user, (0, 0.0))
        self._sums[user] = n + 1, total + duration_s

    def estimate(self, job: Job, now: float) -> Estimate:
        n, total = self._sums.get(job.user, (0, 0.0))
        return Estimate((total + 600.0) / (n + 1))


class UserCurves(UserMeans):
    """An estimator that predicts like `UserMeans`, but as a distribution, as a trained model does:
    in each stretch of time a tenth of the jobs left ends.
    """

    def estimate(self, job: Job, now: float) -> Estimate:
        seconds = seconds_of(super().estimate(job, now).seconds)
        return Estimate(Predicted.of(seconds, [0.1] * (len(EDGES_S) + 1)))


class Likes:
    """A pair predictor that gives every pair the sharing score 0 (tiny), and speeds to the pairs
    for which it is given them.
    """

    def __init__(
        self,
        scores: Mapping[str, int] | None = None,
        speeds: Mapping[tuple[str, str], tuple[float, float]] | None = None,
    ):
        self._scores = scores or {}
        self._speeds = speeds

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        a, b = newcomer.job.job_id, partner.job.job_id
        speeds = None if self._speeds is None else self._speeds.get((a, b), (0.5, 0.5))
        return PairPrediction((self._scores.get(a, 0), self._scores.get(b, 0)), speeds)


@dataclass
class Played:
    """A finished simulation: its results, decisions and core."""

    outcome: Outcome
    decisions: list[Decision]
    core: Core

    def result(self, job: str | Sample) -> JobResult:
        job_id = job if isinstance(job, str) else job.id
        return next(r for r in self.outcome.jobs if r.job.job_id == job_id)

    def of(self, job: str | Sample, *actions: Action) -> list[Decision]:
        """Return the decisions about one job. `actions`: only decisions with these actions; none
        given: all.
        """
        job_id = job if isinstance(job, str) else job.id
        return [
            d for d in self.decisions if d.job_id == job_id and (not actions or d.action in actions)
        ]

    def actions(self, *actions: Action) -> list[Decision]:
        return [d for d in self.decisions if d.action in actions]

    def reasons(self, job: str | Sample) -> list[Reason]:
        """Return the reasons for which a job waited, in order."""
        return [d.reason for d in self.of(job, Action.WAIT)]


def play(
    policy: Policy,
    cluster: Cluster,
    *samples: Sample,
    estimator: Estimator | None = None,
    stage: Stage | None = None,
    speed: SpeedModel | None = None,
    quirks: Quirks = NONE,
) -> Played:
    """Simulate a policy on jobs, and return the result. The policy gets true durations as
    estimates, unless another estimator is given.
    """
    core = Core(cluster, policy, estimator or truth(samples), profiling=stage)
    decisions: list[Decision] = []
    engine = Engine(
        core,
        [s.job for s in samples],
        {s.id: s.work for s in samples},
        speed or PairTable({}),
        sink=decisions.extend,
        quirks=quirks,
    )
    return Played(engine.run(), decisions, core)


@dataclass
class Desk:
    """A decision core that a test drives by hand, at times of its choosing."""

    policy: Policy
    cluster: Cluster
    estimator: Estimator = field(default_factory=lambda: TableEstimator("given", {}, default=600.0))
    stage: Stage | None = None
    oracle: Oracle | None = None

    def __post_init__(self) -> None:
        self.core = Core(
            self.cluster, self.policy, self.estimator, profiling=self.stage, oracle=self.oracle
        )
        self._samples: dict[str, Sample] = {}

    def submit(self, *samples: Sample, now: float = 0.0) -> list[Decision]:
        """Submit jobs at the time `now`, and let the core decide. Return the decisions."""
        for sample in samples:
            self._samples[sample.id] = sample
            self.core.submitted(sample.job, now)
        return self.core.decide(now)

    def end(self, *job_ids: str, now: float = 0.0) -> list[Decision]:
        """End jobs at the time `now`, and let the core decide. Return the decisions. A profiling
        run that has reached its limit ends as such.
        """
        for job_id in job_ids:
            run, work = self.cluster.runs[job_id], self._samples[job_id].work
            if run.profiling and self.stage and work.duration_s > self.stage.limit_s:
                self.core.profile_ended(job_id, work.profile, now)
            else:
                self.core.ended(job_id, work.state, work.duration_s, now)
        return self.core.decide(now)

    def wake(self, now: float) -> list[Decision]:
        self.core.wake(now)
        return self.core.decide(now)

    def run(self, job_id: str) -> Run:
        return self.cluster.runs[job_id]


def actions(decisions: Iterable[Decision]) -> list[tuple[Action, str]]:
    """Return (action, job id) of each decision, for short comparisons in tests."""
    return [(d.action, d.job_id) for d in decisions]
