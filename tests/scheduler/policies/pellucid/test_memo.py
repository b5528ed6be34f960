"""What a pass carries over to the next saves work, and changes no decision."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job import Profile
from features.schema import State
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.core.durations import DurationDistribution
from scheduler.core.estimates import TableEstimator
from scheduler.testing.builders import Desk, UserMeans, a_job, cluster_of, pellucid
from tests.scheduler.explain.watched import Scores


def test_a_reservation_that_ends_frees_those_who_wait_for_its_gpus() -> None:
    """No GPU becomes free or busy when its holder leaves: only the hold is another."""
    desk = Desk(pellucid(max_wait_s=HOUR, overload=16.0, backfill=0.0), cluster_of(gpus=8))
    desk.submit(a_job("long", gpus=4))
    desk.submit(a_job("wide", gpus=8, at=1.0), now=1.0)
    desk.wake(2 * HOUR)
    desk.submit(a_job("small", gpus=4, at=2 * HOUR), now=2 * HOUR)
    assert desk.core.jobs["small"].reason is Reason.RESERVED_FOR_STARVING_JOB
    desk.core.withdrawn("wide", 2 * HOUR + 1)
    begun = [d.job_id for d in desk.core.decide(2 * HOUR + 1) if d.action is Action.START]
    assert begun == ["small"]


HOUR = 3600.0
SMALL, LARGE = Profile(10.0, 10.0, 1_000.0), Profile(10.0, 10.0, 24_000.0)


def test_a_partner_whose_profile_is_replaced_is_judged_anew() -> None:
    """What was carried over from a job like it is not what is seen of the job itself."""
    core = Core(
        Cluster(ClusterSpec({"vc": 1}, 1, 24_576.0)),
        pellucid(Scores({})),
        TableEstimator("given", {"runs": 50_000.0, "waits": 50_000.0}),
    )
    core.submitted(a_job("runs").job, 0.0)
    core.jobs["runs"].profile = LARGE
    core.decide(0.0)
    core.submitted(a_job("waits", at=10.0).job, 10.0)
    core.jobs["waits"].profile = SMALL
    core.decide(10.0)
    assert core.jobs["waits"].reason is Reason.MEMORY_GUARD
    core.observed("runs", SMALL, 20.0)
    assert [d.action for d in core.decide(20.0)] == [Action.PACK]


@pytest.mark.parametrize("happens", ["nothing", "a start"])
def test_a_pass_after_one_event_costs_alike_however_many_wait(happens: str) -> None:
    """Jobs of every kind: known and unknown, of owners who share and who do not."""

    def calls(jobs: int) -> int:
        spec = ClusterSpec({"vc": 4}, 4, 24_576.0)
        core = Core(Cluster(spec), pellucid(Scores({})), UserMeans())
        for n in range(4):
            core.submitted(a_job(f"runs{n}", gpus=4).job, 0.0)
        core.decide(0.0)
        for n in range(jobs):
            job = a_job(f"j{n}", gpus=(1, 2, 4, 8)[n % 4], at=1.0, user=f"u{n % 3}").job
            core.submitted(replace(job, share=n % 20 != 2), 1.0)  # of four GPUs
            core.jobs[job.job_id].profile = SMALL if n % 3 else None
        core.decide(1.0)
        if happens == "nothing":
            core.submitted(a_job("one more", gpus=4, at=2.0).job, 2.0)
        else:
            core.ended("runs0", State.COMPLETED, 2.0, 2.0)
        made = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            core.decide(2.0)
        finally:
            sys.setprofile(None)
        return made

    assert calls(2_000) < 2 * calls(100)


@given(
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e5),
    st.floats(0.0, 0.999),
    st.lists(st.floats(1.0, 1e6), max_size=30),
)
def test_what_is_left_only_falls_for_as_long_as_it_is_said_to(
    predicted_s: float, elapsed_s: float, share: float, ran: list[float]
) -> None:
    distribution = DurationDistribution()
    for duration_s in ran:
        distribution.learn(predicted_s, duration_s)
    falls_for_s = distribution.falls_for_s(predicted_s, elapsed_s)
    later_s = elapsed_s + share * max(falls_for_s - 0.001, 0.0)
    left_s = distribution.expected_s(predicted_s, elapsed_s)
    assert distribution.expected_s(predicted_s, later_s) <= left_s


def test_a_job_that_may_be_backfilled_since_the_last_pass_is_looked_at() -> None:
    """Whoever stood before the holder of reserved GPUs left; nothing else changed."""

    def played(*, remembers: bool) -> list[tuple[Action, str]]:
        spec = ClusterSpec({"a": 2}, 4)
        lasts = {"L": 1e5, "S": 1e5, "H": 1000.0, "A": 2000.0, "quick": 10.0}
        policy = pellucid(cluster=spec, max_wait_s=200.0, backfill=1000.0, price=1e12)
        policy.remembers = remembers
        core, taken = Core(Cluster(spec), policy, TableEstimator("told", lasts)), []

        def decide(now: float) -> None:
            taken.extend((now, d.action, d.job_id) for d in core.decide(now))

        for name, gpus, at in (("L", 4, 0.0), ("S", 4, 0.0), ("H", 8, 1.0), ("A", 8, 2.0)):
            core.submitted(a_job(name, gpus=gpus, at=at, vc="a").job, at)
            decide(at)
        for at in (900.0, 1500.0):  # both are past their bound
            core.wake(at)
            decide(at)
        core.ended("S", State.COMPLETED, 1510.0, 1510.0)
        decide(1510.0)
        core.waiting.set_priority("A", 1)
        decide(1520.0)
        core.submitted(a_job("quick", gpus=4, at=1530.0, vc="a").job, 1530.0)
        decide(1530.0)
        core.waiting.set_priority("A", 0)
        decide(1540.0)
        return [(action, job_id) for now, action, job_id in taken if now == 1540.0]

    assert (Action.START, "quick") in played(remembers=True)
    assert played(remembers=True) == played(remembers=False)


def test_each_step_of_a_pass_says_what_it_did(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(pellucid(max_wait_s=HOUR, overload=16.0, backfill=0.0), cluster_of(gpus=8))
    desk.submit(a_job("long", gpus=4))
    desk.submit(a_job("wide", gpus=8, at=1.0), now=1.0)
    with caplog.at_level("DEBUG", logger="scheduler.policies.pellucid.pass_"):
        desk.submit(a_job("small", gpus=4, at=2 * HOUR), now=2 * HOUR)
    assert [line.partition(": ")[0] for line in caplog.messages] == [
        "1 line up", "2 reserve", "3 weigh demand", "4 recall", "5 offer", "6 close"
    ]  # fmt: skip
    assert "waiting=2" in caplog.messages[0]
    assert caplog.messages[1].endswith("for=wide")
    assert caplog.messages[4].endswith("looked_at=1 served=0")
