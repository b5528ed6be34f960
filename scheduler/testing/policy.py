"""The rules that every policy must keep, as tests. Subclass `PolicyContract` in a few lines:

class TestMine(PolicyContract):
    name = "mine"
"""

from __future__ import annotations

import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from features.codec import decode, encode
from scheduler.assembly import settings_of
from scheduler.core.arrivals import RecentForecaster
from scheduler.core.cluster import ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import Estimator
from scheduler.core.memory import CoreMemory, remember, restore
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy, Predictors, preemption_cost_s
from scheduler.core.profiling import ProfilingStage, Scaling, Stage, WaitingStage
from scheduler.explain.reasons import sentence
from scheduler.policies import build
from scheduler.simulation.recorder import decision_table
from scheduler.testing.builders import UserCurves, UserMeans, a_job, truth
from scheduler.testing.shadow import Shadowed
from scheduler.testing.worlds import (
    Remembered,
    Watched,
    WatchedCore,
    World,
    a_cluster,
    replay,
    watch,
    worlds,
)

SECONDS = 1e-4  # a double holds a time since the epoch to 2e-7 s; sums of a few dozen
_BEGINS = (Action.START, Action.PACK)

# @given stands on a base class: each subclass is another executor, on purpose
_common = settings(
    deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow]
)


def _shown(world: World) -> None:
    """Print the world in which a test failed, even where another pytest plug-in keeps Hypothesis
    from printing it.
    """
    note(f"in this world:\n{world!r}")


class PolicyContract:
    """The contract of a policy, as tests.

    Attributes:
        name: name of the policy.
        skips: whether jobs that fit pass jobs that do not, so that no job that fits waits.
        round_s: seconds between the times at which the policy acts; 0 = it acts whenever something
            happens.
        follows: whether its `Memory` holds all that it remembers, so that it can continue from a
            log. A policy without that learns again after each start.
        chosen: settings of the policy that are not its defaults, as in a cluster file.
    """

    name = ""
    chosen: Mapping[str, Any] = MappingProxyType({})
    skips = False
    round_s = 0.0
    follows = True

    # --- what a subclass may change -----------------------------------------------------------

    def policy(self, world: World) -> Policy:
        return build(
            self.name,
            settings_of(self.name, self.chosen),
            world.spec,
            Predictors(TablePairPredictor(world.scores), RecentForecaster),
        )

    def estimator(self, world: World, policy: Policy) -> Estimator:
        return truth(world.samples) if policy.capabilities.oracle else UserMeans()

    def stage(self, world: World, policy: Policy) -> Stage | None:
        """Return a profiling stage (it measures jobs before they join a queue) for a world, with at
        most two nodes; None where the policy does not profile. The virtual cluster with most nodes
        lends further ones.
        """
        nodes = sum(world.lent.values())
        if not policy.capabilities.profiles or not nodes:
            return None
        lender = max(world.spec.vcs, key=lambda vc: world.spec.vcs[vc])
        kind = WaitingStage if policy.capabilities.profiles_waiting else ProfilingStage
        return kind(
            limit_s=200.0,
            max_gpus=world.spec.gpus_per_node,
            scaling=Scaling(lender, grow_above=2, shrink_below=2),
            forecast=RecentForecaster(),
        )

    # --- the contract -------------------------------------------------------------------------

    @settings(_common, max_examples=40)
    @given(world=worlds())
    def test_keeps_the_contract(self, world: World) -> None:
        """Run the policy in a world once, and check the result by every check."""
        _shown(world)
        watched = watch(world, self.core(world))
        policy = watched.core.policy
        check_every_job_ends_once(watched)
        check_work_is_conserved(watched)
        check_decisions_are_in_order(watched)
        check_gangs_and_sharing(watched)
        check_stories(watched)
        check_sentences(watched.decisions)
        done = {d.action for d in watched.decisions}
        if not policy.capabilities.preemptive:
            assert Action.PREEMPT not in done
            assert watched.outcome.preemptions == 0
        if not policy.capabilities.packs:
            assert Action.PACK not in done
            assert watched.outcome.packings == 0
        if not policy.capabilities.profiles:
            assert Action.PROFILE not in done

    @settings(_common, max_examples=20)
    @given(world=worlds(), every=st.integers(1, 9))
    def test_goes_on_for_one_with_the_same_settings(self, world: World, every: int) -> None:
        """Check that a new policy that takes over from another knows what that one had learned, and
        decides the same.
        """

        def decided(change: Callable[[WatchedCore, float], None]) -> list[Decision]:
            core, count = self.core(world), 0
            decide = core.decide

            def changing(now: float) -> list[Decision]:
                nonlocal count
                count += 1
                if count % every == 0:
                    change(core, now)
                return decide(now)

            core.decide = changing  # type: ignore[method-assign]
            return watch(world, core).decisions

        check_same(
            decided(lambda core, now: core.use_policy(self.policy(world), now)),
            decided(WatchedCore.wake),
        )

    def test_counts_with_predictions_that_have_a_curve(self) -> None:
        """Check that keys and terms of the queue's order are numbers where a prediction is a
        distribution, like that of a trained model.
        """
        jobs = (a_job(str(i), gpus=1 + i % 4, for_=60.0 * (1 + i), at=float(i)) for i in range(8))
        world = World(ClusterSpec({"vc": 2}, 4), tuple(jobs))
        core = self.core(world)
        decide = core.decide

        def asking(now: float) -> list[Decision]:
            for queued in core.queues["vc"]:
                assert all(math.isfinite(s) for _, s in core.policy.order_terms(queued, now))
            return decide(now)

        core.decide = asking  # type: ignore[method-assign]
        if not core.policy.capabilities.oracle:
            core.estimator = UserCurves()
        check_every_job_ends_once(watch(world, core))

    @settings(_common, max_examples=12)
    @given(world=worlds())
    def test_decides_the_same_twice_and_from_the_log(self, world: World) -> None:
        """Check that two runs give byte-identical tables of decisions, and that a core which gets
        the recorded events decides the same.
        """
        _shown(world)
        first = watch(world, self.core(world))
        check_same(first.decisions, watch(world, self.core(world)).decisions)
        fresh = self.core(world)
        fresh.oracle = Remembered(first.answers)
        check_same(first.decisions, replay(first.core.events, fresh))

    @settings(_common, max_examples=25)
    @given(world=worlds(), passes=st.integers(1, 12), seed=st.integers(0, 99))
    def test_goes_on_from_what_was_decided(self, world: World, passes: int, seed: int) -> None:
        """Check that a policy which followed another's decisions, and was restored from a record of
        its memory, then decides like the other.
        """
        if self.follows:
            self.check_goes_on(world, passes, seed)

    def check_goes_on(self, world: World, passes: int, seed: int) -> Watched:
        """Raise AssertionError where a core that followed the decisions of another decides
        otherwise. Return the simulation.

        Args:
            passes: mean number of decision passes that are followed, and then decided, in turn.
            seed: seed of these numbers.
        """
        _shown(world)

        def made_again(core: Core) -> Core:
            made = self.core(world)
            made.estimator, made.oracle = core.estimator, core.oracle
            body = json.loads(json.dumps(encode(remember(core))))
            restore(made, decode(CoreMemory, body))
            return made

        shadowed = Shadowed(
            self.core(world), lambda: self.core(world), made_again, seed=seed, passes=passes
        )
        watched = watch(world, cast(WatchedCore, shadowed))
        assert not shadowed.differences, shadowed.differences
        return watched

    @settings(_common, max_examples=20)
    @given(world=worlds(), data=st.data())
    def test_cannot_see_the_future(self, world: World, data: st.DataObject) -> None:
        """Check that a changed truth about jobs that have not ended by some time changes no
        decision before that time.
        """
        _shown(world)
        if self.policy(world).capabilities.oracle:
            return
        before = watch(world, self.core(world))
        ends = sorted(r.end_time for r in before.outcome.jobs if r.end_time is not None)
        if not ends:
            return
        time = data.draw(st.sampled_from(ends))
        stretched = {
            r.job.job_id: r.duration_s * data.draw(st.floats(1.0, 20.0)) + 1.0
            for r in before.outcome.jobs
            if r.end_time is None or r.end_time > time
        }
        other = world.with_durations(stretched)
        after = watch(other, self.core(other))
        check_same(before.decisions, after.decisions, until=time)

    def core(self, world: World) -> WatchedCore:
        policy = self.policy(world)
        stage = self.stage(world, policy)
        core = WatchedCore(
            a_cluster(world, profiles=policy.capabilities.profiles),
            policy,
            self.estimator(world, policy),
            profiling=stage,
        )
        core.skips, core.round_s = self.skips, self.round_s
        return core


def parquet(decisions: list[Decision]) -> bytes:
    """Return decisions as the bytes of a Parquet table."""
    sink = io.BytesIO()
    pq.write_table(decision_table(decisions), sink)
    return sink.getvalue()


def check_same(one: list[Decision], other: list[Decision], *, until: float = math.inf) -> None:
    """Check that two lists of decisions give byte-identical tables, up to and including the time
    `until`.
    """
    tables = [parquet([d for d in decisions if d.time <= until]) for decisions in (one, other)]
    assert tables[0] == tables[1], "other decisions"


# --- checks on a finished run ---------------------------------------------------------------------


def check_every_job_ends_once(watched: Watched) -> None:
    """Check that jobs that can run end exactly once, after their submission, and that all others
    are refused with a reason.
    """
    world, core = watched.world, watched.core
    ends = [args[0] for name, args, _ in core.events if name == "ended"]
    assert len(ends) == len(set(ends))
    for result in watched.outcome.jobs:
        job_id = result.job.job_id
        if world.admissible(result.job, profiles=core.policy.capabilities.profiles):
            assert not result.refused
            assert job_id in ends
            assert result.start_time is not None
            assert result.end_time is not None
            assert result.job.submit_time <= result.start_time <= result.end_time
            assert result.queue_s >= -SECONDS
        else:
            assert result.refused
            assert job_id not in ends
            assert result.start_time is None
            assert result.end_time is None
            (refusal,) = [d for d in watched.decisions if d.job_id == job_id]
            assert refusal.action is Action.REFUSE
            assert refusal.reason is Reason.INVALID_REQUEST
    assert not core.cluster.runs
    assert not any(len(queue) for queue in core.queues.values())


def check_work_is_conserved(watched: Watched) -> None:
    """Check that each job's speed, summed over its time on GPUs, gives its duration plus the cost
    of its preemptions.

    Computed only from the recorded decisions and end times, not from the engine's own accounting.
    """
    stints, profiled = _stints(watched)
    shared: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for d in watched.decisions:
        if d.action is Action.PACK:
            assert d.partner is not None
            for one, other in ((d.job_id, d.partner), (d.partner, d.job_id)):
                end = min(_stop(stints[one], d.time), _stop(stints[other], d.time))
                shared[one].append((end - d.time, other))
    work, speed = watched.world.work, watched.world.speed
    for result in watched.outcome.jobs:
        job_id = result.job.job_id
        if result.end_time is None:
            continue
        on_gpus = sum(stop - start for start, stop in stints[job_id])
        lost = sum(
            seconds * (1.0 - speed.speed(work[job_id].configuration, work[other].configuration))
            for seconds, other in shared[job_id]
        )
        job = result.job
        owed = result.duration_s + result.preemptions * preemption_cost_s(job.gpus)
        if result.ended_in_profiling:
            assert not on_gpus
            (slot,) = profiled[job_id]
            assert math.isclose(result.end_time - slot, result.duration_s, abs_tol=SECONDS)
            assert math.isclose(result.profile_s, result.duration_s, abs_tol=SECONDS)
        else:
            assert math.isclose(on_gpus - lost, owed, rel_tol=1e-6, abs_tol=SECONDS)
            assert math.isclose(result.ran_s, on_gpus, rel_tol=1e-6, abs_tol=SECONDS)
            assert result.packed == len(shared[job_id])
            if not shared[job_id] and not result.preemptions:
                assert result.start_time is not None
                took = result.end_time - result.start_time
                assert math.isclose(took, result.duration_s, abs_tol=SECONDS)


def check_decisions_are_in_order(watched: Watched) -> None:
    decisions = watched.decisions
    assert decisions == watched.core.decided, "what the core decided is what was recorded"
    assert watched.outcome.decisions == len(decisions)
    assert [d.seq for d in decisions] == list(range(len(decisions)))
    times = [d.time for d in decisions]
    assert times == sorted(times)
    submit = {s.id: s.job.submit_time for s in watched.world.samples}
    assert all(d.time >= submit[d.job_id] for d in decisions if d.job_id)


def check_gangs_and_sharing(watched: Watched) -> None:
    """Repeat the recorded placements on an empty cluster, and check each: its size, its virtual
    cluster and that GPUs are shared as allowed.
    """
    world, spec = watched.world, watched.world.spec
    size = {s.id: s.job.gpus for s in world.samples}
    home = [vc for vc, n in spec.vcs.items() for _ in range(n)]
    holders: dict[tuple[int, int], list[str]] = defaultdict(list)
    holds: dict[str, list[tuple[int, int]]] = {}

    def leave(job_id: str) -> None:
        for gpu in holds.pop(job_id):
            holders[gpu].remove(job_id)

    for d in watched.core.timeline:
        if isinstance(d, str):
            leave(d)
            continue
        if d.action is Action.PREEMPT:
            leave(d.job_id)
        if d.action not in (Action.PROFILE, *_BEGINS):
            continue
        gpus = [
            (node, i)
            for node, mask in zip(d.nodes, d.gpus, strict=True)
            for i in range(mask.bit_length())
            if mask >> i & 1
        ]
        assert len(gpus) == len(set(gpus)) == size[d.job_id], "a gang is whole"
        assert all(0 <= node < len(home) and i < spec.gpus_per_node for node, i in gpus)
        if not watched.core.policy.capabilities.twin:  # Slurm takes what is free
            assert len(d.nodes) == -(-size[d.job_id] // spec.gpus_per_node), "on the fewest nodes"
        if d.action is not Action.PROFILE:
            assert {home[node] for node in d.nodes} == {d.vc}
        expected = [d.partner] if d.action is Action.PACK else []
        assert all(holders[gpu] == expected for gpu in gpus)
        holds[d.job_id] = gpus
        for gpu in gpus:
            holders[gpu].append(d.job_id)
    assert not holds


def check_stories(watched: Watched) -> None:
    """Check the recorded decisions about each job: no job starts without a recorded submission, and
    none waits without a recorded reason.
    """
    waiting = watched.core.policy.capabilities.profiles_waiting
    story: dict[str, list[Decision]] = defaultdict(list)
    for d in watched.decisions:
        story[d.job_id].append(d)
    for job_id, decisions in story.items():
        if not job_id or decisions[0].action is Action.REFUSE:
            continue  # a loan of a node, or checked elsewhere
        submit = next(s.job.submit_time for s in watched.world.samples if s.id == job_id)
        since, known, state = submit, False, "new"
        for d in decisions:
            assert d.reason is not Reason.NOT_YET_EVALUATED
            if d.action in (Action.PROFILE, *_BEGINS):
                assert known or d.time == since, f"{job_id} waited without a reason"
                allowed = ["queued", "preempted"]
                if d.action is Action.PROFILE:
                    allowed = ["new", "queued"] if waiting else ["new"]
                assert state in allowed, f"{job_id} started from nowhere"
                state = d.action.value
            elif d.action is Action.ENQUEUE:
                assert state in ("new", "profile")
                since, known, state = d.time, False, "queued"
            elif d.action is Action.WAIT:
                known = True
            elif d.action is Action.PREEMPT:
                assert state in _BEGINS
                since, known, state = d.time, True, "preempted"


def check_sentences(decisions: list[Decision]) -> None:
    """Check that every decision can be put into words, with its numbers."""
    for d in decisions:
        text = sentence(d)
        assert text
        assert "None" not in text, (d.action, text)
        assert "{" not in text
        assert "pending" not in text.lower()
        assert d.reason.value != "Pending"


Stints = dict[str, list[tuple[float, float]]]


def _stints(watched: Watched) -> tuple[Stints, dict[str, list[float]]]:
    """Return each job's spans of time on GPUs of its virtual cluster, as (start, end) in seconds,
    and the starts of its profiling runs. Raise AssertionError where starts and ends do not match.
    """
    begun: dict[str, float] = {}
    stints: dict[str, list[tuple[float, float]]] = defaultdict(list)
    profiled: dict[str, list[float]] = defaultdict(list)
    for d in watched.decisions:
        if d.action in _BEGINS:
            assert d.job_id not in begun
            begun[d.job_id] = d.time
        elif d.action is Action.PREEMPT:
            stints[d.job_id].append((begun.pop(d.job_id), d.time))
        elif d.action is Action.PROFILE:
            profiled[d.job_id].append(d.time)
    for result in watched.outcome.jobs:
        if result.job.job_id in begun:
            assert result.end_time is not None
            stints[result.job.job_id].append((begun.pop(result.job.job_id), result.end_time))
    assert not begun
    return stints, profiled


def _stop(stints: list[tuple[float, float]], time: float) -> float:
    """Return the end of the span of time that covers `time`."""
    return next(stop for start, stop in reversed(stints) if start <= time <= stop)
