"""A random walk of the core under `pellucid`, whatever is switched on.

Jobs of every kind come, go, are cancelled, seen and moved in line, nodes are drained; after every
step the cluster is sound, and what the decisions claim is tried on copies of the core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from features.job import Job, Profile
from features.schema import State
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.profiling import WaitingStage
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import UserMeans, a_job, pellucid
from scheduler.testing.worlds import WatchedCore
from tests.scheduler.explain.test_blockers import check_named, check_whole
from tests.scheduler.explain.test_whatif import check_counterfactuals
from tests.scheduler.explain.watched import Scores

NODES = {"a": 3, "b": 1}
PER_NODE = 4
BEGINS = (Action.START, Action.PACK)
TYPES = ("fast", "slow")
PACES = st.sampled_from([0.3, 0.7, 1.0])


@dataclass(frozen=True)
class Options:
    """What is switched on. `pellucid` are arguments of the policy."""

    pellucid: dict[str, Any]
    partition: bool
    typed: bool


options = st.builds(
    Options,
    st.fixed_dictionaries(
        {
            "max_wait_s": st.sampled_from([5.0, 200.0, 200.0, 1e6]),
            "overload": st.sampled_from([1.0, 1.0, 4.0, 1e12]),
            "fairness": st.sampled_from([{}, {"weight": 1.0}]),
            "borrowing": st.sampled_from([None, {}, {"reserve_nodes": 1}, {"lend_s": 500.0}]),
            "pack_first_above": st.sampled_from([None, 1.2, 1.8]),
            "pack_narrower": st.booleans(),
            "keeps_for_first": st.booleans(),
            "order_by": st.sampled_from(["mean", "submitted"]),
            "partner_searches": st.sampled_from([0, 1, 16]),
            "busy_above": st.sampled_from([0.0, 0.85]),
        }
    ),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)


class Belief:
    """How fast a job is believed to be on each type: jobs of one GPU lose most on slow ones."""

    def speed(self, job: Job, gpu_type: str) -> float:
        return 1.0 if gpu_type == "fast" else 0.3 if job.gpus == 1 else 0.8


class Checked(WatchedCore):
    """A core in which operators move jobs in line.

    Attributes:
        picky: where there is room a job may still wait, for faster GPUs.
    """

    picky = False

    def check_waiting(self, now: float) -> None:
        for vc, queue in self.queues.items():
            assert list(queue) == sorted(queue)
            for queued in queue:
                assert queued.reason is not None
                room = self.cluster.pools[vc].place(queued.job.gpus)
                assert self.picky or room is None, f"{queued.job} could start"


def a_policy(chosen: Options, spec: ClusterSpec) -> Pellucid:
    given = {**chosen.pellucid, "fairness": {**chosen.pellucid["fairness"], "half_life_s": 3600.0}}
    if chosen.typed:
        given |= {"borrowing": None}
    return pellucid(Scores({}), cluster=spec, type_speeds=Belief(), **given)


def a_core(chosen: Options) -> Checked:
    """A new core with these options, that remembers what an analyst needs."""
    spec = ClusterSpec(NODES, PER_NODE)
    if chosen.typed:
        groups = [NodeGroup(TYPES[0], 1, PER_NODE), NodeGroup(TYPES[1], 2, 2)]
        spec = ClusterSpec.mixed({"a": groups, "b": groups[:1]})
    partition = chosen.partition and not chosen.typed
    core = Checked(
        Cluster(spec, {"a": 1} if partition else None),
        a_policy(chosen, spec),
        Memory(UserMeans()),
        profiling=WaitingStage(max_gpus=PER_NODE) if partition else None,
    )
    core.picky = chosen.typed
    return core


class Walk(RuleBasedStateMachine):
    """Anything that may happen to the core, in any order."""

    @initialize(chosen=options)
    def begin(self, chosen: Options) -> None:
        self.chosen = chosen
        self.core = a_core(chosen)
        self.home = self.core.cluster.node_vc.copy()
        self.profiles: dict[str, Profile] = {}
        self.jobs: dict[str, Job] = {}
        self.gone: set[str] = set()
        self.shut: set[int] = set()
        self.once_held: set[str] = set()
        self.now = 0.0
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        self.decided: list[Decision] = []
        self.line: dict[str, set[str]] = {vc: set() for vc in NODES}
        for gpus in (4, 2, 2, 4):  # "a" is full, but for the node that is lent
            self.submit(gpus, "a", "ann", 1_000.0, "", 1)
        self.decide()

    def tell(self, event: str, *args: Any) -> Any:
        """Something happens to the core; it is written down."""
        self.told.append((event, args))
        return attrgetter(event)(self.core)(*args)

    # --- what may happen ----------------------------------------------------------------------

    @rule(
        gpus=st.sampled_from([1, 1, 2, 4, 4, 8]),
        vc=st.sampled_from(["a", "a", "a", "b"]),
        user=st.sampled_from(["ann", "bob"]),
        mem=st.sampled_from([1_000.0, 9_000.0, 20_000.0]),
        odd=st.sampled_from(["", "", "", "alone", "unseen", "limited", "typed"]),
        count=st.sampled_from([1, 1, 3]),
    )
    def submit(self, gpus: int, vc: str, user: str, mem: float, odd: str, count: int) -> None:
        """Jobs that are alike come together."""
        for _ in range(count):
            name = f"j{len(self.jobs)}"
            job = a_job(name, gpus=gpus, vc=vc, user=user, at=self.now)
            self.jobs[name] = replace(
                job.job,
                share=odd != "alone",
                profile=odd != "unseen",
                time_limit_s=900.0 if odd == "limited" else None,
                gpu_type=TYPES[1] if odd == "typed" and self.chosen.typed else None,
            )
            self.profiles[name] = Profile(50.0, 30.0, mem)
            self.tell("submitted", self.jobs[name], self.now)

    @precondition(lambda self: self.core.cluster.runs)
    @rule(data=st.data(), ends=st.booleans())
    def leave(self, data: st.DataObject, ends: bool) -> None:
        self.stop(data.draw(st.sampled_from(sorted(self.core.cluster.runs))), ends)

    def stop(self, job_id: str, ends: bool) -> None:
        run = self.core.cluster.runs[job_id]
        if run.profiling and not ends:
            self.tell("profile_ended", job_id, self.profiles[job_id], self.now)
        else:
            lasted = self.now - run.start_time
            self.tell("ended", job_id, State.COMPLETED, lasted, self.now)
            self.gone.add(job_id)

    @precondition(lambda self: self.core.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(list(self.core.jobs)))
        self.tell("withdrawn", job_id, self.now)
        self.gone.add(job_id)

    @precondition(lambda self: self.core.cluster.runs)
    @rule(data=st.data())
    def see(self, data: st.DataObject) -> None:
        """A run is watched: alone its profile is read, beside another its speed."""
        run = self.core.cluster.runs[data.draw(st.sampled_from(sorted(self.core.cluster.runs)))]
        job_id = run.job.job_id
        if run.partner is not None:
            self.tell("pair_speed_observed", job_id, data.draw(PACES), self.now)
        elif not run.profiling and self.core.jobs[job_id].profile is None:
            self.tell("observed", job_id, self.profiles[job_id], self.now)

    @precondition(lambda self: self.core.jobs)
    @rule(data=st.data(), priority=st.integers(-1, 1))
    def prefer(self, data: st.DataObject, priority: int) -> None:
        self.tell(
            "waiting.set_priority", data.draw(st.sampled_from(list(self.core.jobs))), priority
        )

    @precondition(lambda self: self.core.jobs)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        """A job is held back, or the one that was is released."""
        job_id = data.draw(st.sampled_from(list(self.core.jobs)))
        held = self.core.waiting.is_held(job_id)
        self.tell("waiting.release" if held else "waiting.hold", job_id, self.now)
        self.once_held.add(job_id)
        for line in self.line.values():
            line.discard(job_id)  # released, it joins again

    @rule(node=st.integers(0, len(NODES)))
    def drain(self, node: int) -> None:
        """A node is closed, or the one that was is opened."""
        opened = self.shut.pop() if self.shut else None
        if opened is None:
            self.shut.add(node)
        self.tell("nodes.set_open", node if opened is None else opened, opened is not None)

    @rule(node=st.integers(0, len(NODES)), gpus=st.sampled_from([0, 0b1, 0b10]))
    def close_gpus(self, node: int, gpus: int) -> None:
        self.tell("nodes.close_alone", node, gpus)

    @rule(seconds=st.sampled_from([0.0, 1.0, 6.0, 250.0, 5000.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tell("wake", self.now)

    @rule()
    def decide(self) -> None:
        decisions = self.tell("decide", self.now)
        self.decided += decisions
        self.follow(decisions)
        memory = self.core.estimator
        assert isinstance(memory, Memory)
        check_named(self.core, memory, decisions, self.now)

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """Why does a job wait, and what would help it?"""
        self.decide()
        waiting = [q.job.job_id for queue in self.core.queues.values() for q in queue]
        if waiting:
            job_id = data.draw(st.sampled_from(waiting))
            memory = self.core.estimator
            assert isinstance(memory, Memory)
            futures = Futures(self.core, memory, self.now)
            check_whole(futures, job_id)
            if job_id not in self.once_held:  # another core does not know for how long it was
                check_counterfactuals(futures, job_id, TYPES if self.chosen.typed else ())

    # --- what must hold -----------------------------------------------------------------------

    def follow(self, decisions: list[Decision]) -> None:
        """A virtual cluster keeps its guarantee, told from the decisions alone."""
        policy = self.core.policy
        assert isinstance(policy, Pellucid)
        for d in decisions:
            if d.action is Action.ENQUEUE:
                if not self.core.waiting.is_held(d.job_id):  # held before its pass
                    self.line[d.vc].add(d.job_id)
            elif d.action in (*BEGINS, Action.PROFILE, Action.CANCEL):
                self.line[d.vc].discard(d.job_id)
            if d.action is Action.REFUSE:
                self.gone.add(d.job_id)
            assert d.action is not Action.PREEMPT
            for vc in {self.home[node] for node in d.nodes} - {d.vc}:
                if d.action in BEGINS:
                    assert policy.capabilities.borrows
                    assert d.reason is Reason.BORROWED
                    assert not self.line[vc], "its owner was waiting"

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.cluster.validate()  # two jobs per GPU at most, gangs whole, no GPU lost
        self.core.check_sharing()  # within the memory of one
        waiting = [q.job.job_id for queue in self.core.queues.values() for q in queue]
        places = [*waiting, *self.core.cluster.runs]
        assert len(places) == len(set(places))
        assert not self.gone & set(places)

    def teardown(self) -> None:
        """Every job ends, and a core that is told the same decides the same.

        So does one that looks through every queue and for every pair as if for the first time, and
        one that is given the same settings again and again.
        """
        if not hasattr(self, "core"):
            return
        for node in sorted(self.shut):
            self.tell("nodes.set_open", node, True)
        self.shut.clear()
        for node in list(self.core.cluster.nodes):
            self.tell("nodes.close_alone", node, 0)
        for job_id in list(self.core.jobs):
            self.tell("waiting.release", job_id, self.now)
        self.decide()
        for _ in range(20 * len(self.jobs) + 20):
            if self.gone == set(self.jobs):
                break
            if self.core.cluster.runs:
                self.stop(next(iter(self.core.cluster.runs)), ends=False)
            else:
                wake = self.core.next_wake(self.now)
                assert wake is not None, "nothing runs and nothing is to come"
                self.now = wake
                self.tell("wake", wake)
            self.decide()
        assert self.gone == set(self.jobs)
        assert self.again() == self.decided
        assert self.again(remembers=False) == self.decided
        assert self.again(settles=True) == self.decided

    def again(self, *, remembers: bool = True, settles: bool = False) -> list[Decision]:
        """What a core decides that is told the same; `settles`: by a new policy at each wake."""
        core, decided = a_core(self.chosen), list[Decision]()
        policy = core.policy
        assert isinstance(policy, Pellucid)
        policy.remembers = remembers
        for event, args in self.told:
            if settles and event == "wake":
                core.use_policy(a_policy(self.chosen, core.cluster.spec), *args)
                continue
            found = attrgetter(event)(core)(*args)
            decided += found if event == "decide" else []
        return decided


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=80,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_what_is_left_of_runs_is_of_now_where_one_past_its_bound_is_placed() -> None:
    """It was what the turn before had found."""
    chosen: dict[str, Any] = {
        "max_wait_s": 5.0, "overload": 1.0, "fairness": {}, "borrowing": None,
        "pack_first_above": None, "partner_searches": 0, "busy_above": 0.0,
    }  # fmt: skip
    walk = Walk()
    walk.begin(chosen=Options(chosen, partition=False, typed=True))
    walk.stop("j0", ends=False)
    walk.pass_time(seconds=6.0)
    walk.teardown()
