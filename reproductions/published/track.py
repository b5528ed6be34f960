"""The track `published`: the settings of Lucid's artifact with its defects, for comparison with its
figures.

Profiling is free, pairs that were never measured run at full speed, sharing scores and memory of
every job are known beforehand, and predictions of durations are given. The engine's `Quirks` and
the policies' `DEFECTS` are on unless switched off.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.worlds import durations as predicted
from pipeline.worlds.honest import LUCID, PROFILING
from pipeline.worlds.scenario import (
    Progress,
    Scenario,
    Sink,
)
from pipeline.worlds.venus import Venus
from reproductions.published.free_profiling import LoanSchedule, profile_all
from reproductions.published.tie_order import restore
from scheduler.assembly import cluster_of, stage_of
from scheduler.core.decisions import Decision
from scheduler.core.estimates import Estimator, TableEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy, Predictors
from scheduler.simulation.engine import Engine, Outcome
from scheduler.simulation.quirks import NONE, Quirks
from scheduler.simulation.work import PairTable

PUBLISHED = Quirks(
    tick_s=1.0,
    end_lag_s=1.0,
    counting_policies=frozenset({"srtf", "tiresias", "lucid"}),
    survivor_stays_slow=True,
)
DEFECTS = {"srtf": "ties_preempt", "qssf": "gpu_count_first", "lucid": "first_partner"}


@dataclass
class PublishedScenario(Scenario):
    """A scenario in which policies that use profiling get it for free, before the simulation
    proper.
    """

    def policy(self, name: str) -> Policy:
        made = super().policy(name)
        if self.quirks is not NONE and name in DEFECTS:
            setattr(made, DEFECTS[name], True)
        return made

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        policy, spec = self.policy(name), self.spec(name)
        stage = stage_of(spec, policy, Predictors(arrivals=self.arrivals))
        if stage is None:
            return super().simulate(name, sink=sink, progress=progress)
        pass_ = profile_all(self.workload, lambda: cluster_of(spec, policy), stage, self.quirks)
        work = self.workload.work
        profiles = {i: w.profile for i, w in work.items() if w.profile is not None}
        core = self.core(policy, stage=LoanSchedule(pass_.loans, profiles))
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
        return outcome, core.estimator


def _after(first: list[Decision], sink: Sink | None) -> Sink | None:
    """Pass the decisions of the profiling simulation to `sink`. Return a sink for the decisions of
    the simulation proper, which numbers them after the first; None without a sink.
    """
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
    """Return the scenario of the track `published` for the Venus trace.

    Args:
        durations: `ebm`, `lgb` or one of `durations.sources`; None: what each policy had in the
            artifact (the truth for sjf and srtf, the EBM's predictions for qssf and lucid).
        quirks: copy the defects on which the published figures depend.
    """
    workload = restore(venus.workload, venus.folder / "peer_results.csv")
    given = predicted.sources(
        workload,
        0,
        ebm=lambda: TableEstimator("ebm", venus.predictions("ebm")),
        lgb=lambda: TableEstimator("lgb", venus.predictions("lgb")),
    )
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
        predicted.chosen(durations, given, default="ebm"),
        pair_predictor=lambda: TablePairPredictor(scores, speeds),
        arrivals=venus.forecast,
        profiling=PROFILING,
        quirks=PUBLISHED if quirks else NONE,
        settings={"lucid": LUCID},
    )
