"""Track `published`: the settings of Lucid's artifact, defects and all. It exists for fidelity.

Profiling is free, pairs that were never measured run at full speed, sharing scores and memory are
known of every job beforehand, and predictions are given. `Quirks` are on unless switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.online import OnlineEstimator
from pipeline.worlds.scenario import (
    ProfilingSettings,
    Progress,
    Scenario,
    Sink,
    by_gpu_count,
    oracle,
)
from pipeline.worlds.tie_order import restore
from pipeline.worlds.venus import TrackError, Venus
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.estimates import Estimator, TableEstimator
from scheduler.core.pairs import TableJudge
from scheduler.core.policy import Policy
from scheduler.core.profiling import ProfilingStage, Scaling
from scheduler.core.quirks import NONE, PUBLISHED
from scheduler.simulation.engine import Engine, Outcome
from scheduler.simulation.free_profiling import LoanSchedule, profile_all
from scheduler.simulation.work import PairTable

# nodes lent to profiling in the published settings
PROFILING = ProfilingSettings(nodes={"vc8Gr": 1, "vcefl": 1}, scaling=Scaling("vcYVn"))


@dataclass
class PublishedScenario(Scenario):
    """Policies that profile get it for free, before the run proper."""

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        policy = self.policy(name)
        if not policy.profiles:
            return super().simulate(name, sink=sink, progress=progress)
        stage = self.stage(policy)
        assert isinstance(stage, ProfilingStage)
        pass_ = profile_all(self.workload, lambda: self.cluster(policy), stage, self.quirks)
        estimator = self.estimators(policy)
        work = self.workload.work
        profiles = {i: w.profile for i, w in work.items() if w.profile is not None}
        core = Core(
            self.cluster(policy),
            policy,
            estimator,
            profiling=LoanSchedule(pass_.loans, profiles),
        )
        recorded = _after(pass_.decisions, sink)
        engine = Engine(
            core,
            [job for job in self.workload.jobs if job.job_id not in pass_.ended],
            work,
            self.speed,
            sink=recorded,
            quirks=self.quirks,
            progress=progress,
        )
        outcome = engine.run()
        for result in outcome.jobs:
            result.profile_wait_s = pass_.waited_s.get(result.job.job_id, 0.0)
        by_id = {r.job.job_id: r for r in outcome.jobs} | pass_.ended
        outcome.jobs = [by_id[job.job_id] for job in self.workload.jobs]
        outcome.decisions += len(pass_.decisions)
        outcome.busy_gpu_s += pass_.busy_gpu_s
        return outcome, estimator


def _after(first: list[Decision], sink: Sink | None) -> Sink | None:
    """A sink that gets the decisions of the profiling pass before those of the run."""
    if sink is None:
        return None
    sink(first)
    offset = len(first)

    def shifted(decisions: list[Decision]) -> None:
        for d in decisions:
            d.seq += offset
        sink(decisions)

    return shifted


def scenario(venus: Venus, *, durations: str | None = None, quirks: bool = True) -> Scenario:
    """The published track on the Venus folder.

    Args:
        durations: `oracle`, `ebm`, `lgb`, `gpus` or `own`; None = what each policy had (the
            truth for sjf and srtf, the EBM's predictions for qssf and lucid).
        quirks: copy the defects the published figures depend on.
    """
    workload = restore(venus.workload, venus.folder / "peer_results.csv")
    truth = oracle(workload)
    given: dict[str, Callable[[], Estimator]] = {
        "oracle": lambda: truth,
        "gpus": by_gpu_count,
        "ebm": lambda: TableEstimator("ebm", venus.predictions("ebm")),
        "lgb": lambda: TableEstimator("lgb", venus.predictions("lgb")),
        "own": OnlineEstimator,
    }
    if durations is not None and durations not in given:
        raise TrackError(
            f"--durations {durations} is not available on track published; "
            f"use one of {', '.join(given)}"
        )

    def estimator(policy: Policy) -> Estimator:
        if not policy.estimates:
            return Estimator()
        return given["oracle" if policy.oracle else durations or "ebm"]()

    speed = PairTable(venus.pair_speeds, unmeasured=1.0, cap=None)
    configurations = {i: w.configuration for i, w in workload.work.items()}
    scores = {i: venus.labels[c] for i, c in configurations.items() if c in venus.labels}

    def speeds(a: str, b: str) -> tuple[float, float]:
        own, other = configurations[a], configurations[b]
        return speed.speed(own, other), speed.speed(other, own)

    return PublishedScenario(
        "published",
        workload,
        speed,
        estimator,
        judge=lambda: TableJudge(scores, speeds),
        forecast=venus.forecast,
        profiling=PROFILING,
        quirks=PUBLISHED if quirks else NONE,
    )
