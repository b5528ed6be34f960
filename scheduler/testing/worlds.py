"""Random worlds (cluster and jobs) in which to run a policy, and a core that is checked while it
runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from features.job import Job, Profile
from features.states import State
from scheduler.core.cluster import Cluster, ClusterSpec, part_of
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.turn import Oracle
from scheduler.simulation.engine import Engine, Outcome
from scheduler.simulation.work import PairTable, Work
from scheduler.testing.builders import Sample, a_job, pair_speeds

CONFIGS = ("light", "middling", "heavy")
GPU_MEMORY_MIB = 24_576.0


@dataclass(frozen=True)
class World:
    """A cluster, jobs with the truth about them, and the true speeds of pairs on shared GPUs.

    Attributes:
        lent: number of nodes of each virtual cluster that make up the profiling partition, for
            policies that profile.
        speeds: speed of the first configuration beside the second, for measured pairs.
        unmeasured: speed of each member of any other pair.
    """

    spec: ClusterSpec
    samples: tuple[Sample, ...]
    lent: dict[str, int] = field(default_factory=dict)
    speeds: dict[tuple[str, str], float] = field(default_factory=dict)
    unmeasured: float = 0.8

    def __repr__(self) -> str:
        """Return the call that makes the world, with a line for each job, so that the output of a
        failed test can be pasted.
        """
        jobs = "".join(f"\n        {sample!r}," for sample in self.samples)
        parts = [repr(self.spec), f"({jobs}\n    )" if jobs else "()"]
        for name in ("lent", "speeds", "unmeasured"):
            parts.append(f"{name}={getattr(self, name)!r}")
        return "World(\n    " + ",\n    ".join(parts) + ",\n)"

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """Print the world when Hypothesis shows a failing example."""
        printer.text(repr(self))

    @property
    def speed(self) -> PairTable:
        return pair_speeds(self.speeds, unmeasured=self.unmeasured, cap=None)

    @property
    def scores(self) -> dict[str, int]:
        return {
            s.id: CONFIGS.index(s.work.configuration.model)
            for s in self.samples
            if s.work.configuration is not None
        }

    @property
    def work(self) -> dict[str, Work]:
        return {s.id: s.work for s in self.samples}

    def gpus_of(self, vc: str, *, profiles: bool) -> int:
        """Return the number of GPUs that jobs of a virtual cluster can ever have. `profiles`:
        whether the nodes lent for profiling are left out.
        """
        nodes = self.spec.vcs.get(vc, 0) - (self.lent.get(vc, 0) if profiles else 0)
        return nodes * self.spec.gpus_per_node

    def admissible(self, job: Job, *, profiles: bool) -> bool:
        return 0 < job.gpus <= self.gpus_of(job.vc, profiles=profiles)

    def with_durations(self, seconds: dict[str, float]) -> World:
        """Return the same world with other durations (seconds, by job id) for some jobs."""
        samples = tuple(
            Sample(s.job, replace(s.work, duration_s=seconds.get(s.id, s.work.duration_s)))
            for s in self.samples
        )
        return replace(self, samples=samples)


# times that are not whole, so that rounding shows; simultaneous submissions are common
_gaps = st.sampled_from([0.0, 0.0, 0.0, 0.1, 1.0, 7.3, 60.0, 599.9, 3000.0])
_durations = st.one_of(
    st.sampled_from([600.0, 7200.0, 200.1, 0.0, 0.001, 0.7, 1.0, 199.9, 200.0]),
    st.floats(0.0, 5000.0),
)
_speeds = st.sampled_from([0.1, 0.44, 0.5, 0.8, 0.93, 1.0, 1.5])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Return random clusters of up to three virtual clusters, with jobs of every awkward kind.

    Most jobs are small, similar and many at a time, so that they wait, share and get in each
    other's way.
    """
    per_node = draw(st.sampled_from([8, 1, 2, 4]))
    names = ["vca", "vcb", "vcc"][: draw(st.integers(1, 3))]
    vcs = {
        name: draw(st.sampled_from([2, 1, 3, 4, 0] if i else [2, 1]))
        for i, name in enumerate(names)
    }
    lent = {name: draw(st.integers(0, min(n, 2))) for name, n in vcs.items() if n > 1}
    left = {name: n - lent.get(name, 0) for name, n in vcs.items()}
    common = draw(st.integers(1, per_node))
    start = draw(st.sampled_from([0.0, 1_600_000_000.25]))
    samples, now = [], start
    for i in range(draw(st.sampled_from([1, 2, 3, 6, 12, 20]))):
        now += draw(_gaps)
        vc = draw(st.sampled_from([*names, *names[:1] * 4]))
        most = left[vc] * per_node
        gpus = draw(
            st.one_of(st.just(common), st.sampled_from([per_node, most]), st.integers(1, most + 1))
        )
        odd = draw(st.integers(0, 29))
        samples.append(
            a_job(
                f"j{i}",
                gpus={29: 0, 28: 10_000}.get(odd, gpus),
                for_=draw(_durations),
                at=now,
                vc="elsewhere" if odd == 27 else vc,
                user=draw(st.sampled_from(["ann", "bob"])),
                mem=draw(st.sampled_from([100.0, 9_000.0, 12_288.0, 20_000.0])),
                config=draw(st.sampled_from(["light", *CONFIGS, None])),
                state=draw(st.sampled_from([State.COMPLETED, State.FAILED])),
            )
        )
    pairs = [(a, b) for a in CONFIGS for b in CONFIGS]
    speeds = {pair: draw(_speeds) for pair in pairs[: draw(st.integers(0, len(pairs)))]}
    return World(
        spec=ClusterSpec(vcs, per_node, GPU_MEMORY_MIB),
        samples=tuple(samples),
        lent=lent,
        speeds=speeds,
        unmeasured=draw(_speeds),
    )


Event = tuple[str, tuple[Any, ...], dict[str, Any]]


class WatchedCore(Core):
    """A core that records the calls it gets, and checks itself after each.

    Attributes:
        skips: whether every job that fits must have been started, not only the first of each queue.
        round_s: seconds between the times at which the policy acts; 0 = whenever it is called.
    """

    skips = False
    round_s = 0.0

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self.events: list[Event] = []
        self.decided: list[Decision] = []
        self.timeline: list[Decision | str] = []  # decisions, and ids of jobs that left their GPUs

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None:
        self._note("submitted", job, now, priority=priority)
        super().submitted(job, now, priority=priority)
        self.cluster.validate()

    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None:
        self._note("profile_ended", job_id, profile, now)
        super().profile_ended(job_id, profile, now)
        self.timeline.append(job_id)
        self.cluster.validate()

    def observed(self, job_id: str, profile: Profile, now: float) -> None:
        self._note("observed", job_id, profile, now)
        super().observed(job_id, profile, now)

    def pair_speed_observed(self, job_id: str, speed: float, now: float) -> None:
        self._note("pair_speed_observed", job_id, speed, now)
        super().pair_speed_observed(job_id, speed, now)

    def ended(
        self, job_id: str, state: State, duration_s: float, now: float, *, keep_shut: bool = False
    ) -> None:
        self._note("ended", job_id, state, duration_s, now, keep_shut=keep_shut)
        super().ended(job_id, state, duration_s, now, keep_shut=keep_shut)
        self.timeline.append(job_id)
        self.cluster.validate()

    def wake(self, now: float) -> None:
        self._note("wake", now)
        super().wake(now)

    def decide(self, now: float) -> list[Decision]:
        self._note("decide", now)
        decisions = super().decide(now)
        self.decided.extend(decisions)
        self.timeline.extend(decisions)
        self.cluster.validate()
        self.check_places()
        self.check_sharing()
        self.check_waiting(now)
        return decisions

    def check_places(self) -> None:
        """Check that each job waits or runs, not both, and that every run counts in a virtual
        cluster or is being profiled.
        """
        waiting = [q.job.job_id for queue in self.queues.values() for q in queue]
        places = [*waiting, *self.cluster.runs]
        assert len(places) == len(set(places))
        of_vc = [job_id for runs in self.runs_by_vc.values() for job_id in runs]
        profiled = [job_id for job_id, run in self.cluster.runs.items() if run.profiling]
        assert sorted(of_vc + profiled) == sorted(self.cluster.runs)

    def check_sharing(self) -> None:
        """Check that jobs that share GPUs name each other, are on the same GPUs, and fit into the
        memory of one.
        """
        for run in self.cluster.runs.values():
            other = run.partner
            if other is None:
                continue
            assert other.partner is run
            assert self.cluster.runs[other.job.job_id] is other
            older, younger = sorted((run, other), key=lambda one: one.order)
            assert part_of(older, younger.job.gpus) == list(
                zip(younger.nodes, younger.gpus, strict=True)
            )
            assert run.job.share, "its owner allows it"
            mine, theirs = self.jobs[run.job.job_id].profile, self.jobs[other.job.job_id].profile
            if mine is not None and theirs is not None:
                memory = mine.gpu_mem_mib + theirs.gpu_mem_mib
                assert memory <= self.cluster.gpu_memory_mib(run), "no GPU holds too much"

    def check_waiting(self, now: float) -> None:
        """Check that every waiting job has a reason, and that the first job of each queue does not
        fit.
        """
        for vc, queue in self.queues.items():
            keys = [(q.key, q.seq) for q in queue]
            assert keys == sorted(keys)
            for queued in queue:
                assert queued.reason is not None, f"{queued.job} waits for no stated reason"
            if self.policy.capabilities.twin or (self.round_s and now % self.round_s):
                continue  # it acts at moments of its own
            for queued in list(queue)[: None if self.skips else 1]:
                job = queued.job
                assert self.cluster.pools[vc].place(job.gpus) is None, f"{job} could start"

    def _note(self, name: str, *args: Any, **more: Any) -> None:
        self.events.append((name, args, more))


Answer = tuple[str, float, float]  # job, time, work left


class Overheard:
    """An oracle (it knows true durations) whose answers are recorded, for use in a replay."""

    def __init__(self, oracle: Oracle):
        self._oracle = oracle
        self.answers: list[Answer] = []

    def remaining_s(self, job_id: str, now: float) -> float:
        left = self._oracle.remaining_s(job_id, now)
        self.answers.append((job_id, now, left))
        return left


class Remembered:
    """The oracle of a replay. It gives recorded answers, and must be asked the same questions in
    the same order.
    """

    def __init__(self, answers: list[Answer]):
        self._answers = iter(answers)

    def remaining_s(self, job_id: str, now: float) -> float:
        about, when, left = next(self._answers)
        assert (about, when) == (job_id, now)
        return left


@dataclass
class Watched:
    """A finished simulation of a world under a core that was checked meanwhile."""

    world: World
    outcome: Outcome
    core: WatchedCore
    decisions: list[Decision]
    answers: list[Answer]


def watch(world: World, core: WatchedCore) -> Watched:
    """Simulate a world under a core that is checked meanwhile, and return the result."""
    sunk: list[Decision] = []
    engine = Engine(core, [s.job for s in world.samples], world.work, world.speed, sink=sunk.extend)
    overheard = Overheard(engine)
    if core.oracle is not None:
        core.oracle = overheard
    outcome = engine.run()
    return Watched(
        world=world, outcome=outcome, core=core, decisions=sunk, answers=overheard.answers
    )


def replay(events: list[Event], core: Core) -> list[Decision]:
    """Repeat the recorded calls of a core on another core. Return the other core's decisions."""
    decisions: list[Decision] = []
    for name, args, more in events:
        answer = getattr(core, name)(*args, **more)
        if name == "decide":
            decisions.extend(answer)
    return decisions


def a_cluster(world: World, *, profiles: bool) -> Cluster:
    return Cluster(world.spec, {vc: n for vc, n in world.lent.items() if n} if profiles else None)
