"""A scenario: everything a run needs besides the policy, so that policies meet the same world."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.codec import Json
from scheduler.assembly import CoreSpec, assemble, folded_note, policy_of
from scheduler.core.arrivals import ArrivalForecaster, RecentForecaster
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.estimates import Estimator
from scheduler.core.pairs import PairPredictor
from scheduler.core.policy import Policy, Predictors
from scheduler.core.profiling import Stage
from scheduler.core.settings import ProfilingPartition, SharingRules
from scheduler.simulation.engine import Engine, JobResult, Outcome
from scheduler.simulation.quirks import NONE, Quirks
from scheduler.simulation.stating import Stating
from scheduler.simulation.work import SpeedModel, Workload

Sink = Callable[[list[Decision]], None]
Progress = Callable[[int], None]


@dataclass
class Scenario:
    """A world in which policies are compared.

    Attributes:
        name: track or trace name.
        workload: jobs, truth, cluster.
        speed: nature's rule for rates.
        estimators: makes the estimator a policy uses; called once per run.
        pair_predictor: makes the predictor of pair speeds; None = nobody packs.
        pairs_from: what that was learned from, for people; "" = it goes without saying.
        arrivals: makes a forecaster of arrivals; None = there is none.
        profiling: the partition; None = nobody profiles.
        quirks: departures of the engine.
        seed: seed of the workload's permutation and jitter.
        loop: `open`, or `closed` where submissions wait for what they answer.
        notes: what a reader of its figures must know, sentences.
        settings: by policy, those that are not its defaults, as in the cluster file.
        states: who says while it runs how far it is; None: nobody.
        engine: plays a core; as `Engine` is made.
        shows: tells a policy, before any job comes, what it decides by beside the cluster.
    """

    name: str
    workload: Workload
    speed: SpeedModel
    estimators: Callable[[Policy], Estimator]
    pair_predictor: Callable[[], PairPredictor] | None = None
    pairs_from: str = ""
    arrivals: Callable[[], ArrivalForecaster] | None = RecentForecaster
    profiling: ProfilingPartition | None = None
    quirks: Quirks = NONE
    seed: int = 0
    loop: str = "open"
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    states: Stating | None = None
    engine: Callable[..., Engine] = Engine
    shows: Callable[[Policy], None] | None = None

    def cluster_gpus(self) -> int:
        """Return the number of GPUs in the whole cluster."""
        return self.workload.cluster.gpus

    def layout(self) -> Json:
        """Return the cluster, for the summary of a run."""
        cluster = self.workload.cluster
        gpus = {
            vc: sum(group.nodes * group.gpus_per_node for group in cluster.groups_of(vc))
            for vc in cluster.vcs
        }
        return {
            "cluster": dict(cluster.vcs),
            "gpus_per_node": cluster.gpus_per_node,
            "gpus_by_vc": gpus,
            **({"pairs_from": self.pairs_from} if self.pairs_from else {}),
        }

    def traits(self, policy: str) -> dict[str, bool]:
        """Return what a policy knows and may do, for the summary of a run."""
        can = self.spec(policy).kind.capabilities
        return {"oracle": can.oracle, "preemptive": can.preemptive, "estimates": can.estimates}

    def notes_on(self, policy: str) -> list[str]:
        """Return sentences that a reader of a policy's figures must know."""
        notes, jobs = list(self.notes), self.workload.jobs
        unlimited = sum(not job.time_limit_s for job in jobs)
        if self.spec(policy).kind.capabilities.by_limits and unlimited:
            whose = "of their user " if any(job.user for job in jobs) else ""
            notes.append(
                f"{unlimited:,} of {len(jobs):,} jobs have no time limit: {policy} takes them to "
                f"run for as long as the last two jobs {whose}did."
            )
        if (folded := folded_note(self.spec(policy))) is not None:
            notes.append(folded)
        if unseen := self._not_packed(policy):
            notes.append(unseen)
        if judged := self._judged_otherwise(policy):
            notes.append(judged)
        return notes

    def _judged_otherwise(self, policy: str) -> str:
        """Return a note if pairs were measured in another way than the policy lets jobs share
        GPUs; "" if not, or if no pairs are read.
        """
        spec = self.spec(policy)
        rules = getattr(spec.settings, "sharing", None)
        if not isinstance(rules, SharingRules) or rules.mode is None:
            return ""
        if rules.mode == "exclusive":
            return f"sharing.mode is exclusive: {policy} packs nobody."
        if self.pair_predictor is None or spec.kind.capabilities.own_pairs:
            return ""
        measured = getattr(self.pair_predictor(), "sharing", "") or "a mode that is not known"
        if measured == rules.mode:
            return ""
        what = "they are believed all the same" if rules.unmeasured else f"{policy} packs nobody"
        return f"GPUs are shared by {rules.mode}, pairs were measured in {measured}: {what}."

    def _not_packed(self, policy: str) -> str:
        """Return why a policy that packs packs few jobs or none here, a sentence; "" where it
        can.
        """
        spec, work = self.spec(policy), self.workload.work.values()
        can, folded = spec.kind.capabilities, spec.folded
        if not can.packs:
            return ""
        if all(of.profile is None for of in work):
            return f"The trace has no job's GPU utilisation and memory: {policy} packs nobody."
        profiles = self.profiling is not None and self.profiling.profiles and not folded
        if not can.profiles or profiles:
            return ""
        if self.profiling is None or not can.profiles_waiting:
            return f"No profiling partition: nothing is known of a job, and {policy} packs nobody."
        return (
            f"No profiling partition: {policy} packs only jobs like others that were watched where "
            "they ran (same user, name and GPUs, else as the user's usually are)."
        )

    def spec(self, policy: str) -> CoreSpec:
        """Return what the core of a policy is built from. Raises UnknownPolicy, InvalidSettings."""
        given = self.settings.get(policy, {})
        return CoreSpec.of(self.workload.cluster, policy, given, self.profiling)

    def policy(self, name: str) -> Policy:
        """Return a policy by name, with the predictors this world grants it."""
        spec = self.spec(name)
        pairs = (
            self.pair_predictor() if self.pair_predictor and spec.kind.capabilities.packs else None
        )
        made = policy_of(spec, Predictors(pairs, self.arrivals))
        if self.shows is not None:
            self.shows(made)
        return made

    def core(
        self,
        policy: str | Policy,
        estimator: Estimator | None = None,
        *,
        stage: Stage | None = None,
    ) -> Core:
        """Return a new core for a policy, given by name or built by the caller.

        Args:
            estimator, stage: instead of this world's.
        """
        made = self.policy(policy) if isinstance(policy, str) else policy
        return assemble(
            CoreSpec(self.workload.cluster, made.name, made.settings, self.profiling),
            estimator or self.estimators(made),
            Predictors(arrivals=self.arrivals),
            policy=made,
            stage=stage,
        )

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Run one policy, by name, over the workload. Return its results and its estimator."""
        return self.play(self.core(name), sink=sink, progress=progress)

    def play(
        self, core: Core, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Run a core over the workload. Return its results and its estimator."""
        engine = self.engine(
            core,
            self.workload.jobs,
            self.workload.work,
            self.speed,
            after=self.workload.after,
            sink=sink,
            quirks=self.quirks,
            progress=progress,
        )
        engine.states = self.states
        return engine.run(), core.estimator


@dataclass(slots=True)
class Cost:
    """What a run cost this process."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


class Meter:
    """Measures wall time, CPU time (user + system, all threads) and peak memory."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Cost:
        return Cost(
            time.perf_counter() - self._wall,
            time.process_time() - self._cpu,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )


@dataclass(slots=True)
class Run:
    """A finished run of one policy in one scenario."""

    policy: str
    outcome: Outcome
    figures: dict[str, float | int]
    cost: Cost
    folder: Path | None = None
    results: list[JobResult] = field(default_factory=list)
