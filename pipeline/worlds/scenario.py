"""A scenario: everything that a simulation needs besides the policy, so that all policies are
compared in the same world."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.codec import Json
from models.bundle.arrivals import ArrivalModel
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

# GPUs that may be lent for profiling where no job has a user: a policy that does without them takes
# a job to be as its user's others, and so would pack nearly nobody (docs/policy-figures.md)
SHARE_WITHOUT_USERS = 0.25


@dataclass
class Scenario:
    """A cluster with its jobs, ready to be simulated under several policies.

    Attributes:
        name: track or trace name.
        workload: the jobs, the truth about them, and the cluster.
        speed: how fast jobs really run, alone and sharing GPUs.
        estimators: returns the estimator of durations for a policy; called once per run.
        pair_predictor: returns the predictor of pair speeds; None: a policy that has none of its
            own packs no jobs.
        pairs_from: the source of that predictor, in words; "": not shown.
        arrivals: returns a forecaster of arrivals; None: there is none.
        arrival_model: a bundle's model of arrivals; None: there is none.
        arrived: earlier submissions that are not simulated, each with its number of GPUs.
        profiling: the profiling partition; None: no job is profiled.
        quirks: known defects of published simulations that the engine copies.
        seed: seed of the workload's permutation and jitter.
        loop: `open`: fixed submit times; or `closed`: submissions wait for the ends that they
            answer.
        notes: sentences that a reader of the figures must know.
        settings: policy -> its settings that differ from the defaults, as in a cluster file.
        states: which jobs report their progress while they run; None: none.
        engine: returns an engine that simulates a core; it takes the arguments of `Engine`.
        shows: called with each new policy, to give it further information before the first job;
            None: not called.
    """

    name: str
    workload: Workload
    speed: SpeedModel
    estimators: Callable[[Policy], Estimator]
    pair_predictor: Callable[[], PairPredictor] | None = None
    pairs_from: str = ""
    arrivals: Callable[[], ArrivalForecaster] | None = RecentForecaster
    arrival_model: ArrivalModel | None = None
    arrived: Sequence[tuple[float, int]] = ()
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

    @property
    def partition(self) -> ProfilingPartition | None:
        """Return the profiling partition that policies are given: `profiling`. If no job has a
        user, and no share was asked for, it may be a larger share of the cluster."""
        given = self.profiling
        if given is None or "largest_share" in given.model_fields_set:
            return given
        if any(job.user for job in self.workload.jobs):
            return given
        return given.model_copy(update={"largest_share": SHARE_WITHOUT_USERS})

    def layout(self) -> Json:
        """Return a description of the cluster, for the summary of a run."""
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
        """Return what a policy can do, for the summary of a run: whether it knows the truth,
        preempts jobs, and uses predicted durations."""
        can = self.spec(policy).kind.capabilities
        return {"oracle": can.oracle, "preemptive": can.preemptive, "estimates": can.estimates}

    def notes_on(self, policy: str) -> list[str]:
        """Return sentences that a reader of a policy's figures in this world must know."""
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
        """Return a note if the policy shares GPUs in another way than the one in which the
        pairs behind its predictor were measured. Also return a note if its setting sharing.mode
        lets no jobs share. Return "" otherwise, or if it uses no predictor."""
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
        """Return a sentence that says why a policy that can pack jobs packs few or none in this
        world; "" if nothing prevents it."""
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
        """Return the description from which the core of a policy is built. Raises UnknownPolicy if
        there is no such policy, InvalidSettings if its settings are wrong."""
        given = self.settings.get(policy, {})
        return CoreSpec.of(self.workload.cluster, policy, given, self.partition)

    def policy(self, name: str) -> Policy:
        """Return a new policy, by name, with the predictors that this world gives it."""
        spec = self.spec(name)
        pairs = (
            self.pair_predictor() if self.pair_predictor and spec.kind.capabilities.packs else None
        )
        predictors = Predictors(
            pairs, self.arrivals, arrival_model=self.arrival_model, arrived=self.arrived
        )
        made = policy_of(spec, predictors)
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
        """Return a new core (cluster, queues and policy) of this scenario. The policy is given by
        name, or built by the caller.

        Args:
            estimator, stage: used instead of those of this world.
        """
        made = self.policy(policy) if isinstance(policy, str) else policy
        return assemble(
            CoreSpec(self.workload.cluster, made.name, made.settings, self.partition),
            estimator or self.estimators(made),
            Predictors(arrivals=self.arrivals),
            policy=made,
            stage=stage,
        )

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Simulate one policy, by name, over the workload. Return the outcome and the estimator
        that it used."""
        return self.play(self.core(name), sink=sink, progress=progress)

    def play(
        self, core: Core, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Simulate a core over the workload. Return the outcome and the core's estimator.

        Args:
            sink: gets every decision.
            progress: called as the simulation goes on.
        """
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
    """The time and memory that this process used for a run."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


class Meter:
    """Measures wall time and CPU time (user + system, all threads) of this process from the
    meter's creation on, and the peak of its memory since the process began."""

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
    """A finished simulation of one policy in one scenario."""

    policy: str
    outcome: Outcome
    figures: dict[str, float | int]
    cost: Cost
    folder: Path | None = None
    results: list[JobResult] = field(default_factory=list)
