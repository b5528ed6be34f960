"""The hard rules on every path to GPUs, seen from outside: what was decided, against plain tables.

Random worlds are driven through everything that can happen to a core: submissions, ends, drained
nodes, changed requests, holds, priorities, profiling runs, stopped jobs, other settings. `Outside`
knows the nodes and the jobs as they were given, follows the decisions one by one, and asks nothing
of `scheduler.core.rules` or `scheduler.core.capacity`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from features.job import Job, Profile
from features.schema import State
from scheduler.core.capacity import capacity_of, counted, nodes_of
from scheduler.core.cluster import Cluster, ClusterSpec, Node, NodeGroup
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.core.policy import Policy
from scheduler.core.profiling import ProfilingStage, WaitingStage
from scheduler.policies import build
from scheduler.testing.builders import Likes, pellucid
from tests.reproductions.baselines.lucid import lucid

MEMORY_MIB = 16_384.0
TYPES = ("A100", "V100")
MEMORY_OF = {"ann": 1_000.0, "bob": 9_000.0}  # MiB that the jobs of a user take
Where = tuple[int, int]  # node, GPU


@dataclass
class Outside:
    """Nodes, jobs and who is on which GPU, as told and as decided.

    Attributes:
        borrows: the policy may use other virtual clusters' GPUs.
        lent: nodes in the profiling partition.
        on: who is on each GPU.
        profiled: of those, who is being profiled.
        memory: MiB that a job is known to take.
    """

    nodes: dict[int, Node]
    lent: set[int]
    most_profiled: int
    borrows: bool = False
    shut: set[int] = field(default_factory=set)
    jobs: dict[str, Job] = field(default_factory=dict)
    on: dict[Where, list[str]] = field(default_factory=lambda: defaultdict(list))
    profiled: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    memory: dict[str, float] = field(default_factory=dict)

    def running(self) -> set[str]:
        return {job_id for there in self.on.values() for job_id in there}

    def gone(self, job_id: str) -> None:
        """A job has left its GPUs."""
        for there in self.on.values():
            if job_id in there:
                there.remove(job_id)
        self.profiled.discard(job_id)

    def here(self, job: Job, *, lent: bool = False) -> list[int]:
        """Nodes that a job may be placed on: of the type it asks for, drained ones too."""
        return [
            node
            for node, has in self.nodes.items()
            if (node in self.lent) is lent
            and (lent or has.vc == job.vc)
            and job.gpu_type in (None, has.gpu_type)
        ]

    def free(self, nodes: list[int]) -> int:
        """GPUs of open nodes that nobody is on."""
        return sum(
            not self.on[node, gpu]
            for node in nodes
            if node not in self.shut
            for gpu in range(self.nodes[node].gpus)
        )

    def follow(self, decisions: list[Decision]) -> None:
        for d in decisions:
            if d.action in (Action.START, Action.PROFILE):
                self._own(d)
            elif d.action is Action.PACK:
                self._beside(d)
            elif d.action is Action.PREEMPT:
                self.gone(d.job_id)
            elif d.action is Action.WAIT:
                self._waits(d)
            elif d.action is Action.CANCEL:
                self.gone(d.job_id)

    def _given(self, d: Decision) -> list[Where]:
        return [
            (node, gpu)
            for node, mask in zip(d.nodes, d.gpus, strict=True)
            for gpu in range(mask.bit_length())
            if mask >> gpu & 1
        ]

    def _own(self, d: Decision) -> None:
        job, given = self.jobs[d.job_id], self._given(d)
        assert d.job_id not in self.running(), "it runs already"
        assert d.job_id not in self.held, "it is held"
        assert len(given) == len(set(given)) == job.gpus, "as many GPUs as it asks for"
        for node, gpu in given:
            has = self.nodes[node]
            assert gpu < has.gpus, "there is no such GPU"
            assert not self.on[node, gpu], "somebody is on it"
            assert node not in self.shut, "the node is drained"
            assert job.gpu_type in (None, has.gpu_type), "of another type than it asks for"
            assert (node in self.lent) is (d.action is Action.PROFILE), "the wrong partition"
            assert d.action is Action.PROFILE or self.borrows or has.vc == job.vc
        if d.action is Action.START:
            assert len({self.nodes[node].gpu_type for node, _ in given}) == 1, "of one type"
        else:
            assert job.gpus <= self.most_profiled, "larger than any that is profiled"
            assert job.profile, "its owner does not want it profiled"
            self.profiled.add(d.job_id)
        for where in given:
            self.on[where].append(d.job_id)

    def _beside(self, d: Decision) -> None:
        job, given = self.jobs[d.job_id], self._given(d)
        assert d.partner is not None
        other = self.jobs[d.partner]
        assert d.job_id not in self.running() | self.held
        assert d.partner not in self.profiled
        theirs = [where for where, there in self.on.items() if d.partner in there]
        assert sorted(given) == sorted(theirs), "exactly the GPUs of the other"
        assert len(given) == job.gpus
        for node, gpu in given:
            assert self.on[node, gpu] == [d.partner], "the other is alone there"
            assert node not in self.shut, "the node is drained"
            assert self.nodes[node].vc == job.vc, "of another virtual cluster"
            assert job.gpu_type in (None, self.nodes[node].gpu_type)
            self.on[node, gpu].append(d.job_id)
        assert job.share, "its owner does not share"
        assert other.share, "the other's owner does not share"
        assert self.memory[d.job_id] + self.memory[d.partner] < MEMORY_MIB, "memory"

    def _waits(self, d: Decision) -> None:
        """What a waiting job is told of GPUs is so at that moment."""
        if d.reason not in COUNTED:
            return
        job = self.jobs[d.job_id]
        nodes = self.here(job, lent=d.reason is Reason.AWAITING_PROFILE)
        free = self.free(nodes)
        assert (d.need, d.free) == (job.gpus, free), f"{d.reason}: {free} are free"
        assert d.limit == sum(self.nodes[node].gpus for node in nodes)
        if d.reason is Reason.NODE_DRAINED:
            assert not self.would_hold(job, shut=True)
            assert self.would_hold(job, shut=False)
            closed = sum(self.nodes[node].gpus for node in nodes if node in self.shut)
            assert dict(d.evidence)["closed_gpus"] == closed > 0
        elif d.reason in (Reason.GPUS_BUSY, Reason.GPUS_FRAGMENTED):
            assert (job.gpus > free) is (d.reason is Reason.GPUS_BUSY)
            assert self.would_hold(job, shut=True) or not self.would_hold(job, shut=False)

    def would_hold(self, job: Job, *, shut: bool) -> bool:
        """Whether the nodes, idle, would hold a job on the fewest of them (all are of one size)."""
        sizes = [self.nodes[n].gpus for n in self.here(job) if not (shut and n in self.shut)]
        return sum(sizes) >= job.gpus


COUNTED = (Reason.NODE_DRAINED, Reason.GPUS_BUSY, Reason.GPUS_FRAGMENTED, Reason.AWAITING_PROFILE)
Built = tuple[Policy, type[ProfilingStage] | None]


def _pellucid(spec: ClusterSpec, **more: Any) -> Policy:
    sharing = {"max_gpus": 4, "mode": None}
    return pellucid(Likes(), cluster=spec, sharing=sharing, max_wait_s=900.0, **more)


POLICIES: dict[str, Callable[[ClusterSpec], Built]] = {
    "fifo": lambda spec: (build("fifo", cluster=spec), None),
    "fifo-skip": lambda spec: (build("fifo-skip", cluster=spec), None),
    "easy": lambda spec: (build("easy", cluster=spec), None),
    "lucid": lambda spec: (lucid(Likes()), ProfilingStage),
    "pellucid": lambda spec: (_pellucid(spec), WaitingStage),
    "pellucid-profiles-less": lambda spec: (
        _pellucid(spec, profile_above=0.1, busy_above=0.0), WaitingStage),
    "pellucid-alone": lambda spec: (_pellucid(spec), None),
    "pellucid-lends": lambda spec: (
        _pellucid(spec, borrowing={"reserve_nodes": 0, "lend_s": None}), WaitingStage),
}  # fmt: skip


@dataclass
class Driven:
    """A core, and what is known of it outside."""

    core: Core
    outside: Outside
    now: float = 0.0
    number: int = 0
    cluster_types: tuple[str, ...] = ("",)

    def decide(self) -> None:
        self.outside.follow(self.core.decide(self.now))
        self.core.cluster.validate()
        self.check_accounts()

    def check_accounts(self) -> None:
        """The statement of what there is counts each GPU once."""
        for job_id, queued in self.core.jobs.items():
            if job_id in self.core.cluster.runs:
                continue
            there, outside = capacity_of(self.core, queued), self.outside
            parts = (there.lent, there.unsuited, there.closed, there.used, there.free)
            assert there.owned == sum(parts)
            assert min(parts) >= 0
            owned = [has.gpus for has in outside.nodes.values() if has.vc == queued.job.vc]
            assert there.owned == sum(owned)
            here = outside.here(queued.job)
            assert there.free == outside.free(here)
            assert 0 <= there.kept <= there.free
            both = [
                len(on) == 2
                for (node, _), on in outside.on.items()
                if outside.nodes[node].vc == queued.job.vc and node not in outside.lent
            ]
            assert there.shared == sum(both)
            job = queued.job
            listed = counted(nodes_of(self.core.cluster), job.vc, job.gpus, job.gpu_type)
            assert listed == replace(there, kept=0), "a list of nodes tells the same"

    def submit(self, gpus: int, kind: tuple[Any, ...], vc: str) -> None:
        share, profile, gpu_type, user = kind
        self.number += 1
        wanted = gpu_type if gpu_type in self.cluster_types else None
        job = Job(
            f"j{self.number}", self.now, gpus, user, vc, f"name{self.number}",
            gpu_type=wanted, share=share, profile=profile,
        )  # fmt: skip
        self.outside.jobs[job.job_id] = job
        self.outside.memory[job.job_id] = MEMORY_OF[user]
        self.core.submitted(job, self.now)

    def profile_of(self, job_id: str) -> Profile:
        return Profile(40.0, 20.0, self.outside.memory[job_id])

    def end(self, which: int) -> None:
        runs = list(self.core.cluster.runs.values())
        if not runs:
            return
        run = runs[which % len(runs)]
        job_id = run.job.job_id
        self.outside.gone(job_id)
        if run.profiling and which % 2:
            self.core.profile_ended(job_id, self.profile_of(job_id), self.now)
        else:
            self.core.ended(job_id, State.COMPLETED, 500.0, self.now)

    def watch(self, which: int) -> None:
        """Every run, or every second one, has been watched for long enough."""
        runs = [run for run in self.core.cluster.runs.values() if not run.profiling]
        for run in runs[:: 1 + which % 2]:
            self.core.observed(run.job.job_id, self.profile_of(run.job.job_id), self.now)

    def node(self, which: int) -> None:
        node = which % len(self.outside.nodes)
        self.core.nodes.set_open(node, node in self.outside.shut)
        self.outside.shut ^= {node}

    def waiting(self, which: int) -> str | None:
        found = [one for one in self.core.jobs if one not in self.core.cluster.runs]
        return found[which % len(found)] if found else None

    def change(self, which: int, gpus: int, kind: tuple[Any, ...]) -> None:
        job_id = self.waiting(which)
        if job_id is None:
            return
        share, profile, _, _ = kind
        job = replace(self.core.jobs[job_id].job, gpus=gpus, share=share, profile=profile)
        if self.core.nodes.refusal(job) is None:
            self.outside.jobs[job_id] = job
            self.core.waiting.change(job, self.now)

    def hold(self, which: int) -> None:
        job_id = self.waiting(which)
        if job_id is None:
            return
        if job_id in self.outside.held:
            self.core.waiting.release(job_id, self.now)
        else:
            self.core.waiting.hold(job_id, self.now)
        self.outside.held ^= {job_id}

    def leave(self, which: int) -> None:
        job_id = self.waiting(which)
        if job_id is not None:
            self.outside.held.discard(job_id)
            self.core.withdrawn(job_id, self.now)

    def requeue(self, which: int) -> None:
        """A run is lost and its job comes again, under another name."""
        runs = list(self.core.cluster.runs.values())
        if runs:
            job = runs[which % len(runs)].job
            self.core.withdrawn(job.job_id, self.now, Reason.LOST)
            self.outside.gone(job.job_id)
            again = replace(job, job_id=f"{job.job_id}again{self.number}", submit_time=self.now)
            if again.job_id not in self.core.jobs:
                self.outside.jobs[again.job_id] = again
                self.outside.memory[again.job_id] = self.outside.memory[job.job_id]
                self.core.submitted(again, self.now)

    def prefer(self, which: int) -> None:
        job_id = self.waiting(which)
        if job_id is not None:
            self.core.waiting.set_priority(job_id, which % 3 * 10)


_kinds = st.tuples(
    st.sampled_from([True, True, False]), st.sampled_from([True, True, False]),
    st.sampled_from([None, None, *TYPES]), st.sampled_from(["ann", "bob"]),
)  # fmt: skip
_n = st.integers(0, 40)
_sizes = st.sampled_from([2, 2, 1, 4, 3, 8])
_submits = st.tuples(st.just("submit"), _sizes, _kinds, st.sampled_from(["a", "a", "a", "b"]))
STEPS = st.one_of(
    _submits,
    _submits,
    _submits,
    st.tuples(st.sampled_from(["end", "end", "watch", "watch"]), _n),
    st.tuples(st.sampled_from(["node", "hold", "leave", "requeue", "prefer"]), _n),
    st.tuples(st.just("change"), _n, _sizes, _kinds),
)


def _driven(name: str, *, mixed: bool, most: int) -> Driven:
    types = TYPES if mixed else ("V100",)
    groups = {
        "a": [NodeGroup(gpu_type, 2, 4, MEMORY_MIB) for gpu_type in types],
        "b": [NodeGroup("V100", 1, 4, MEMORY_MIB)],
    }
    spec = ClusterSpec.mixed(groups)
    policy, stage = POLICIES[name](spec)
    if mixed and not policy.capabilities.mixes_types:
        return _driven(name, mixed=False, most=most)
    cluster = Cluster(spec, {"a": 1} if stage else None)
    core = Core(
        cluster,
        policy,
        TableEstimator("given", {}, default=600.0),
        profiling=stage(max_gpus=most) if stage else None,
    )
    lent = set(cluster.profiling.nodes())
    borrows = policy.capabilities.borrows
    outside = Outside(dict(cluster.nodes), lent, most, borrows)
    return Driven(core, outside, cluster_types=types)


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=60, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(STEPS, st.sampled_from([0.0, 1.0, 500.0])), min_size=15, max_size=60),
    mixed=st.booleans(),
    most=st.sampled_from([1, 1, 2, 4]),
)
def test_no_decision_on_any_path_breaks_a_hard_rule(
    name: str, steps: list[tuple[tuple[Any, ...], float]], mixed: bool, most: int
) -> None:
    driven = _driven(name, mixed=mixed, most=most)
    for (what, *how), later_s in steps:
        getattr(driven, what)(*how)
        driven.now += later_s
        if later_s:
            driven.core.wake(driven.now)
        driven.decide()


@pytest.mark.parametrize("name", ["fifo-skip", "easy", "pellucid-alone"])
def test_who_waits_for_closed_nodes_is_told_so(name: str) -> None:
    driven = _driven(name, mixed=False, most=1)
    driven.submit(8, (True, True, None, "ann"), "a")
    driven.decide()
    driven.submit(8, (True, True, None, "bob"), "a")
    driven.now = 1.0
    driven.node(0)
    driven.decide()
    queued = driven.core.jobs["j2"]
    assert queued.reason is Reason.NODE_DRAINED
    driven.node(0)
    driven.decide()
    assert queued.reason is Reason.GPUS_BUSY
