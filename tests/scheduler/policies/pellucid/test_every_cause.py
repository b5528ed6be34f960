"""What `pellucid` prints as a cause is what its decision read: turned round, it decides otherwise.

Each scene is built twice: as it is, and with nothing else changed than what its sentence names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from features.job import Job, Profile
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup
from scheduler.core.decisions import GIVES_GPUS, STARTS, Action, Decision, Reason
from scheduler.core.durations import DurationDistribution
from scheduler.core.estimates import TableEstimator
from scheduler.core.obstacles import Obstacle
from scheduler.core.profiling import ProfilingStage, WaitingStage
from scheduler.testing.builders import (
    Desk,
    Likes,
    Sample,
    a_job,
    a_stage,
    cluster_of,
    pellucid,
    play,
)

HOUR = 3600.0
Scene = Callable[[bool], list[Decision]]


def asking(sample: Sample, **asked: object) -> Sample:
    return replace(sample, job=replace(sample.job, **asked))  # type: ignore[arg-type]


# --- can it start at all --------------------------------------------------------------------------


def too_large(turned: bool) -> list[Decision]:
    return Desk(pellucid(), cluster_of(gpus=4)).submit(a_job("j", gpus=4 if turned else 5))


def of_no_type(turned: bool) -> list[Decision]:
    spec = ClusterSpec.mixed({"vc": [NodeGroup("a100", 1, 4)]})
    desk = Desk(pellucid(cluster=spec), Cluster(spec))
    return desk.submit(asking(a_job("j"), gpu_type="a100" if turned else "h100"))


def nodes_left(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(nodes=2, gpus=4))
    desk.submit(a_job("one", gpus=4), a_job("two", gpus=4))
    found = desk.submit(a_job("j", gpus=8))
    if not turned:
        desk.core.nodes.change(1, None)
    return found + desk.end("one", "two", now=2.0)


# --- who keeps it from starting -------------------------------------------------------------------


def held(reason: Reason) -> Scene:
    def scene(turned: bool) -> list[Decision]:
        desk = Desk(pellucid(), cluster_of(gpus=1))
        desk.submit(a_job("runs"))
        desk.submit(a_job("j"))
        if not turned:
            desk.core.waiting.hold("j", 1.0, reason)
        return desk.core.decide(1.0) + desk.end("runs", now=2.0)

    return scene


def released(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=1))
    desk.submit(a_job("runs"))
    desk.submit(a_job("j"))
    desk.core.waiting.hold("j", 1.0)
    found = desk.core.decide(1.0)
    if not turned:
        desk.core.waiting.release("j", 2.0)
    return found + desk.end("runs", now=3.0)


def depends(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=2))
    return desk.submit(a_job("first"), asking(a_job("j"), after="" if turned else "first"))


def array_limit(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=2))
    return desk.submit(a_job("j_0"), asking(a_job("j_1"), after_any="" if turned else "j_0"))


def never_met(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=2))
    found = desk.submit(a_job("first"), asking(a_job("j"), after="first"))
    if turned:
        return found + desk.end("first", now=9.0)
    desk.core.withdrawn("first", 9.0)
    return found + desk.core.decide(9.0)


def met(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=2))
    found = desk.submit(a_job("first"), asking(a_job("j"), after="first"))
    return found + (desk.wake(9.0) if turned else desk.end("first", now=9.0))


def changed(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=1))
    desk.submit(a_job("runs"))
    found = desk.submit(a_job("j"))
    if not turned:
        job = replace(desk.core.jobs["j"].job, time_limit_s=60.0)
        desk.core.waiting.change(job, 1.0)
    return found + desk.core.decide(1.0)


# --- what there is --------------------------------------------------------------------------------


def busy(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=4))
    desk.submit(a_job("runs", gpus=2 if turned else 3))
    return desk.submit(a_job("j", gpus=2))


def scattered(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(nodes=2, gpus=4))
    desk.submit(a_job("one", gpus=3), a_job("other", gpus=2 if turned else 3))
    return desk.submit(a_job("j", gpus=2))


def drained(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(gpus=4))
    desk.core.nodes.set_open(0, turned)
    return desk.submit(a_job("j"))


def kept(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(max_wait_s=HOUR, overload=16.0, backfill=0.0), cluster_of(gpus=8))
    desk.submit(a_job("long", gpus=4))
    desk.submit(a_job("wide", gpus=8, at=1.0), now=1.0)
    desk.wake(2 * HOUR)
    if turned:
        desk.core.withdrawn("wide", 2 * HOUR)
    return desk.submit(a_job("j", gpus=4, at=2 * HOUR), now=2 * HOUR)


def slow_type(turned: bool) -> list[Decision]:
    """Its speed on the type that is free, turned: it is fast there too."""
    spec = ClusterSpec.mixed({"vc": [NodeGroup("fast", 1, 4), NodeGroup("slow", 1, 4)]})

    class Speeds:
        def speed(self, job: Job, gpu_type: str) -> float:
            return 1.0 if gpu_type == "fast" or turned else 0.1

    policy = pellucid(cluster=spec, type_speeds=Speeds(), learns_speeds=False)
    desk = Desk(policy, Cluster(spec))
    desk.submit(asking(a_job("runs", gpus=4), gpu_type="fast"))
    return desk.submit(a_job("j", at=550.0), now=550.0)


def borrowed(turned: bool) -> list[Decision]:
    cluster = cluster_of(nodes={"vc": 1, "other": 2}, gpus=4)
    policy = pellucid(cluster=cluster.spec, borrowing={"lend_s": HOUR})
    policy.distribution = policy.pairing.distribution = DurationDistribution(weight=0)
    desk = Desk(policy, cluster)
    lasts = a_job("owner", gpus=8, vc="other")
    desk.submit(a_job("runs", gpus=4), *([lasts, a_job("waits", vc="other")] if turned else []))
    return desk.submit(a_job("j", gpus=4))


def own_gpus(turned: bool) -> list[Decision]:
    return busy(not turned)


def starving(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(max_wait_s=HOUR, overload=16.0), cluster_of(gpus=8))
    desk.submit(a_job("long", gpus=4))
    desk.submit(a_job("j", gpus=8, at=1.0), now=1.0)
    return desk.wake((0.5 if turned else 2.0) * HOUR)


def delays_the_first(turned: bool) -> list[Decision]:
    """Whether GPUs are kept for the first in line, which has not waited long."""
    return the_first("j", keeps=not turned)


def goes_first(turned: bool) -> list[Decision]:
    return the_first("wide", keeps=not turned)


def the_first(of: str, keeps: bool) -> list[Decision]:
    hours = {"long": 90.0, "wide": 1.0, "j": 200.0}
    known = {name: took * HOUR for name, took in hours.items()}
    desk = Desk(
        pellucid(keeps_for_first=keeps),
        cluster_of(gpus=8),
        TableEstimator("given", known, default=HOUR),
    )
    found = desk.submit(a_job("long", gpus=4))
    found += desk.submit(a_job("wide", gpus=8, at=1.0), now=1.0)
    found += desk.submit(a_job("j", gpus=4, at=2.0), now=2.0)
    return [replace(d, job_id="j") for d in found if d.job_id == of]


def backfilled(turned: bool) -> list[Decision]:
    """Whether it is likely to be gone before the one that GPUs are kept for can have them."""
    hours = {"long": 90.0, "wide": 1.0, "j": 200.0 if turned else 0.1}
    known = {name: took * HOUR for name, took in hours.items()}
    desk = Desk(
        pellucid(max_wait_s=10 * HOUR, overload=16.0),
        cluster_of(nodes=2),
        TableEstimator("given", known, default=HOUR),
    )
    desk.submit(a_job("long", gpus=8))
    desk.submit(a_job("wide", gpus=16, at=1.0), now=1.0)
    desk.wake(11 * HOUR)
    return desk.submit(a_job("j", gpus=8, at=12 * HOUR), now=12 * HOUR)


# --- beside another -------------------------------------------------------------------------------


def beside(
    *,
    share: bool = True,
    mem: float = 1000.0,
    speeds: tuple[float, float] = (0.95, 0.95),
) -> list[Decision]:
    """A job that may join another on the one GPU that there is."""
    pairs = Likes(speeds={("j", "runs"): speeds, ("runs", "j"): speeds[::-1]})
    policy = pellucid(pairs)
    policy.remembers = False  # a profile is set below that nobody was notified of
    desk = Desk(policy, cluster_of(gpus=1))
    desk.submit(a_job("runs"))
    desk.core.observed("runs", Profile(50.0, 30.0, 1000.0), 1.0)
    desk.core.submitted(asking(a_job("j", at=2.0), share=share).job, 2.0)
    desk.core.jobs["j"].profile = Profile(50.0, 30.0, mem)
    return desk.core.decide(2.0)


def others_out(turned: bool) -> list[Decision]:
    """Narrow jobs that wait before it for the GPUs that it would hold for longer."""
    narrow = [a_job(f"n{i}", for_=0.5 * HOUR, at=300.0) for i in range(0 if turned else 12)]
    known = {"runs": 2 * HOUR, "j": 9 * HOUR} | {one.id: 0.5 * HOUR for one in narrow}
    played = play(
        pellucid(Likes(speeds={("j", "runs"): (0.95, 0.95)}), ageing=0.0),
        cluster_of(nodes=2, profiling=1),
        a_job("runs", gpus=8, for_=2 * HOUR),
        *narrow,
        a_job("j", gpus=8, for_=9 * HOUR, at=900.0),
        stage=WaitingStage(),
        estimator=TableEstimator("given", known),
    )
    begun = next(d.time for d in played.of("j") if d.action in STARTS)
    ended = played.result("runs").end_time or 0.0
    return [d for d in played.of("j") if d.time < min(begun + 1.0, ended)]


# --- to be profiled -------------------------------------------------------------------------------


def profiling(stage: ProfilingStage, gpus: int = 8, nodes: int = 2) -> Desk:
    return Desk(pellucid(), cluster_of(nodes=nodes, gpus=gpus, profiling=1), stage=stage)


def slot(turned: bool) -> list[Decision]:
    return profiling(a_stage()).submit(asking(a_job("j"), profile=not turned))


def no_slot(turned: bool) -> list[Decision]:
    desk = profiling(a_stage())
    desk.submit(a_job("a", gpus=4 if turned else 8))
    return desk.submit(a_job("j", gpus=2))


def looked_at(turned: bool) -> list[Decision]:
    desk = profiling(a_stage(limit=200.0))
    found = desk.submit(a_job("j", for_=500.0))
    return found + (desk.wake(200.0) if turned else desk.end("j", now=200.0))


def skips(turned: bool) -> list[Decision]:
    return profiling(a_stage(max_gpus=2)).submit(a_job("j", gpus=2 if turned else 4))


def opted_out(turned: bool) -> list[Decision]:
    return profiling(a_stage()).submit(asking(a_job("j"), profile=turned))


def known(turned: bool) -> list[Decision]:
    desk = profiling(ProfilingStage(known_s=1000.0))
    desk.submit(asking(a_job("first"), name="net-1"))
    desk.end("first", now=200.0)
    again = asking(a_job("j", at=300.0), name="other" if turned else "net-2")
    return desk.submit(again, now=300.0)


def joined(turned: bool) -> list[Decision]:
    stage = profiling(a_stage())
    return stage.submit(a_job("j")) if turned else Desk(pellucid(), cluster_of()).submit(a_job("j"))


def _scaling() -> Desk:
    """Return three nodes of a GPU, of which one profiles, and one more may."""
    return profiling(
        a_stage(
            max_gpus=1,
            lender="vc",
            grow_above=1,
            grow_every_s=10,
            shrink_below=1,
            shrink_every_s=100,
        ),
        gpus=1,
        nodes=3,
    )


def backlog(turned: bool) -> list[Decision]:
    names = ("j",) if turned else ("j", "b", "c")
    return _scaling().submit(*map(a_job, names), now=10.0)


def quiet(turned: bool) -> list[Decision]:
    desk = _scaling()
    desk.submit(a_job("a"), a_job("b"), a_job("c"), now=10.0)
    desk.end("a", now=150.0)
    if not turned:
        desk.end("b", "c", now=250.0)
    return desk.wake(300.0)


def _lender() -> Desk:
    """Five nodes, two of them lent for profiling; on one of the others a job runs."""
    desk = Desk(pellucid(), cluster_of(nodes=5, gpus=8, profiling=2), stage=WaitingStage())
    desk.submit(a_job("long", gpus=8, for_=900.0))
    return desk


def missed(turned: bool) -> list[Decision]:
    return _lender().submit(a_job("j", gpus=8 if turned else 24), now=10.0)


def spared(turned: bool) -> list[Decision]:
    desk = _lender()
    desk.submit(a_job("wide", gpus=24), now=10.0)
    if turned:
        desk.submit(a_job("as wide", gpus=24), now=20.0)
    return desk.end("wide", now=600.0)


def emptied(turned: bool) -> list[Decision]:
    desk = Desk(pellucid(), cluster_of(nodes=2, gpus=4))
    desk.submit(a_job("a", gpus=4), a_job("b", gpus=4))
    (node,) = desk.run("a").nodes
    desk.core.nodes.change(node, None)
    return desk.wake(2.0) if turned else desk.end("a", now=2.0)


SCENES: dict[Reason, Scene] = {
    Reason.INVALID_REQUEST: too_large,
    Reason.NO_MATCHING_GPU_TYPE: of_no_type,
    Reason.HELD_BY_OWNER: held(Reason.HELD_BY_OWNER),
    Reason.HELD_BY_OPERATOR: held(Reason.HELD_BY_OPERATOR),
    Reason.DEPENDENCY_NEVER_MET: never_met,
    Reason.DEPENDENCY_NOT_MET: depends,
    Reason.ARRAY_LIMIT: array_limit,
    Reason.VC_TOO_SMALL: nodes_left,
    Reason.AWAITING_PROFILE: no_slot,
    Reason.GPUS_BUSY: busy,
    Reason.GPUS_FRAGMENTED: scattered,
    Reason.NODE_DRAINED: drained,
    Reason.MEMORY_GUARD: lambda turned: beside(mem=1000.0 if turned else 24_000.0),
    Reason.INTERFERENCE_GUARD: lambda turned: beside(speeds=(0.95,) * 2 if turned else (0.4, 0.4)),
    Reason.KEEPS_OTHERS_OUT: others_out,
    Reason.SHARING_OPTED_OUT: lambda turned: beside(share=turned),
    Reason.RESERVED_FOR_STARVING_JOB: kept,
    Reason.WOULD_DELAY_FIRST: delays_the_first,
    Reason.PRIORITY: goes_first,
    Reason.FASTER_GPUS_SOON: slow_type,
    Reason.EXCLUSIVE_GPUS: own_gpus,
    Reason.PARTNER_FOUND: lambda turned: beside(share=not turned),
    Reason.BORROWED: borrowed,
    Reason.BACKFILLED: backfilled,
    Reason.WAITED_TOO_LONG: starving,
    Reason.PROFILING_SLOT: slot,
    Reason.PROFILE_COMPLETE: looked_at,
    Reason.PROFILING_SKIPPED: skips,
    Reason.PROFILING_BACKLOG: backlog,
    Reason.PROFILING_IDLE: quiet,
    Reason.NODE_MISSED: missed,
    Reason.NODE_SPARED: spared,
    Reason.SUBMITTED: joined,
    Reason.REQUEST_CHANGED: changed,
    Reason.RELEASED: released,
    Reason.DEPENDENCY_MET: met,
    Reason.PROFILING_OPTED_OUT: opted_out,
    Reason.PROFILE_KNOWN: known,
    Reason.NODE_IDLE: emptied,
}
# named in the core for policies that stop jobs, keep to the line, or decide in rounds
OF_OTHERS = {Reason.SHORTER_JOB_WAITING, Reason.BEHIND_HIGHER_PRIORITY, Reason.NEXT_ROUND}
# what others than a policy report to the core, or that nothing was decided yet
REPORTED = {Reason.CANCELLED, Reason.NOT_STARTED, Reason.LOST, Reason.NOT_YET_EVALUATED}


@pytest.mark.parametrize("reason", SCENES)
def test_a_printed_cause_turned_round_changes_the_decision(reason: Reason) -> None:
    as_it_is, turned = (_of_j(SCENES[reason](flipped)) for flipped in (False, True))
    printed = [d for d in as_it_is if d.reason is reason]
    assert printed, [d.reason for d in as_it_is]
    assert reason not in {d.reason for d in turned}, [d.reason for d in turned]
    if printed[-1].action is Action.WAIT and reason is not Reason.AWAITING_PROFILE:
        assert not {d.action for d in as_it_is} & {Action.START, Action.PACK}
        assert {d.action for d in turned} & set(GIVES_GPUS), "turned round, it starts"


def _of_j(found: list[Decision]) -> list[Decision]:
    """Return the decisions about the job of a scene, and about nodes."""
    return [d for d in found if d.job_id in ("j", "j_1", "")]


def test_every_reason_that_the_policy_names_has_a_scene() -> None:
    root = Path(__file__).resolve().parents[4] / "scheduler"
    files = [*(root / "core").glob("*.py"), *(root / "policies" / "pellucid").glob("*.py")]
    named = {
        (node.value.id, node.attr)
        for file in files
        if file.name not in ("decisions.py", "obstacles.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    reasons = {one for one in Reason if ("Reason", one.name) in named}
    reasons |= {one.reason for one in Obstacle if ("Obstacle", one.name) in named}
    assert len(reasons) > 30
    assert reasons - SCENES.keys() == (REPORTED & reasons) | OF_OTHERS
