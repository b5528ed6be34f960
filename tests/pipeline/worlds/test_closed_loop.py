"""Closed-loop replay: what answers what, and when answers come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from features.schema import State
from pipeline.worlds.closed_loop import answers, closed
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.core.estimates import Estimate, Estimator
from scheduler.policies import POLICIES, build
from scheduler.simulation.engine import Engine, Outcome
from scheduler.simulation.loop import After
from scheduler.simulation.work import PairTable, Workload
from scheduler.testing.builders import Sample, a_job

SPEC = ClusterSpec({"vc": 1}, 8)


def workload_of(*samples: Sample, ends: dict[str, float] | None = None) -> Workload:
    work = {s.id: s.work for s in samples}
    return Workload("trace", [s.job for s in samples], work, SPEC, recorded_ends=ends or {})


def played(workload: Workload, policy: str = "fifo-skip", **more: object) -> Outcome:
    core = Core(Cluster(workload.cluster), build(policy, cluster=workload.cluster), Told(workload))
    return Engine(
        core, workload.jobs, workload.work, PairTable({}), after=workload.after, **more
    ).run()  # type: ignore[arg-type]


class Told(Estimator):
    """Knows the truth, and minds when and how it is told of jobs."""

    def __init__(self, workload: Workload):
        super().__init__()
        self.work = workload.work
        self.seen: list[tuple[Job, float]] = []

    def submitted(self, job: Job, now: float) -> None:
        self.seen.append((job, now))

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(self.work[job.job_id].duration_s)


# --- what answers what ----------------------------------------------------------------------


def test_a_submission_soon_after_an_end_of_the_same_user_answers_it() -> None:
    loop = closed(workload_of(a_job("a", for_=100), a_job("b", at=115), a_job("c", at=731)))
    assert loop.after == {"b": After("a", 15.0)}, "c comes 16 s after b's end, too late"


def test_others_users_and_other_virtual_clusters_are_not_answered() -> None:
    first = a_job("a", for_=100)
    for other in (a_job("b", at=101, user="else"), a_job("b", at=101, vc="other")):
        assert closed(workload_of(first, other)).after == {}


def test_nobody_answers_where_users_are_unknown() -> None:
    loop = workload_of(a_job("a", for_=100, user=""), a_job("b", at=101, user=""))
    assert closed(loop).after == {}
    assert answers(loop).submissions == 0


def test_the_latest_end_is_answered_and_of_equal_ones_the_job_submitted_last() -> None:
    loop = closed(
        workload_of(
            a_job("early", for_=95),
            a_job("tied", for_=100),
            a_job("last", at=50, for_=50),
            a_job("b", at=103),
        )
    )
    assert loop.after == {"b": After("last", 3.0)}


def test_an_end_may_have_several_answers_and_an_answer_may_come_in_the_same_second() -> None:
    loop = closed(workload_of(a_job("a", for_=100), a_job("b", at=100), a_job("c", at=101)))
    assert loop.after == {"b": After("a", 0.0), "c": After("a", 1.0)}


def test_recorded_ends_go_before_what_the_duration_would_make_of_them() -> None:
    """A job that waited ended later than its submission and its duration tell."""
    jobs = a_job("a", for_=100), a_job("b", at=105), a_job("c", at=1_102)
    loop = closed(workload_of(*jobs, ends={"a": 1_100.0, "b": 9_999.0}))
    assert loop.after == {"c": After("a", 2.0)}


def test_what_counts_as_soon_can_be_said() -> None:
    loop = workload_of(a_job("a", for_=100), a_job("b", at=140))
    assert closed(loop).after == {}
    assert closed(loop, 60.0).after == {"b": After("a", 40.0)}


def test_answers_are_counted_beside_chance() -> None:
    found = answers(
        workload_of(
            a_job("a", for_=100),
            a_job("before", at=90, for_=500),
            a_job("after", at=110, for_=500),
            a_job("far", at=300),
        )
    )
    assert (found.submissions, found.after, found.before) == (3, 1, 1)


# --- when answers come ----------------------------------------------------------------------


def test_an_answer_waits_for_the_end_that_it_answers() -> None:
    """`a` waits for `x` in the replay, so its answer comes later by as much."""
    jobs = a_job("x", gpus=8, for_=50), a_job("a", gpus=8, for_=100), a_job("b", at=110)
    loop = closed(workload_of(*jobs, ends={"x": 50.0, "a": 100.0}))
    outcome = played(loop)
    _, a, b = outcome.jobs
    assert a.end_time == 150
    assert b.job.submit_time == b.start_time == 160
    assert b.jct_s == 600, "what it waits for the end is nobody's queue"
    assert outcome.held_back == 1


def test_whoever_answers_a_refused_job_comes_at_its_own_time() -> None:
    loop = closed(workload_of(a_job("a", gpus=99, for_=100), a_job("b", at=100)))
    outcome = played(loop)
    assert outcome.jobs[0].refused
    assert outcome.jobs[1].start_time == 100


def test_whoever_answers_a_job_that_is_not_there_comes_at_its_own_time() -> None:
    loop = closed(workload_of(a_job("a", for_=100), a_job("b", at=100)))
    outcome = played(replace(loop, jobs=loop.jobs[1:]))
    assert outcome.jobs[0].start_time == 100


def test_answers_at_one_instant_come_in_the_order_of_the_trace() -> None:
    jobs = a_job("a", gpus=8, for_=100), a_job("c", gpus=8, at=100), a_job("b", gpus=8, at=100)
    outcome = played(closed(workload_of(*jobs)), "fifo")
    assert [r.start_time for r in outcome.jobs] == [0, 100, 700]


# --- properties -----------------------------------------------------------------------------

TRACES = st.lists(
    st.tuples(
        st.integers(0, 40),  # seconds to the submission before
        st.integers(1, 60),
        st.integers(1, 8),
        st.sampled_from(["u", "v", ""]),
        st.sampled_from([State.COMPLETED, State.FAILED]),
    ),
    max_size=25,
)


def drawn(rows: Sequence[tuple[int, int, int, str, State]]) -> Workload:
    now, samples = 0, []
    for i, (gap, seconds, gpus, user, state) in enumerate(rows):
        now += gap
        samples.append(a_job(f"j{i}", at=now, for_=seconds, gpus=gpus, user=user, state=state))
    return workload_of(*samples)


@given(
    TRACES,
    st.sampled_from([name for name, kind in POLICIES.items() if not kind.capabilities.oracle]),
)
def test_every_job_is_submitted_once_and_no_answer_before_its_end(
    rows: Sequence[tuple[int, int, int, str, State]], policy: str
) -> None:
    workload = closed(drawn(rows))
    decisions: list[Decision] = []
    told = Told(workload)
    core = Core(Cluster(SPEC), build(policy, cluster=SPEC), told)
    outcome = Engine(
        core,
        workload.jobs,
        workload.work,
        PairTable({}),
        after=workload.after,
        sink=decisions.extend,
    ).run()
    by_id = {r.job.job_id: r for r in outcome.jobs}
    assert list(by_id) == [job.job_id for job in workload.jobs]
    assert all(r.end_time is not None for r in outcome.jobs)
    for job in workload.jobs:
        found, answered = by_id[job.job_id], workload.after.get(job.job_id)
        earliest = job.submit_time
        if answered is not None:
            end = by_id[answered.job_id].end_time
            assert end is not None
            earliest = max(earliest, end + answered.think_s)
        assert found.job.submit_time == earliest
        # nothing else is known of the job, and nothing before it comes
        assert found.job == replace(job, submit_time=earliest)
    assert sorted(job.job_id for job, _ in told.seen) == sorted(by_id)
    assert all(job.submit_time == now for job, now in told.seen)
    assert all(b[1] >= a[1] for a, b in pairwise(told.seen))
    starts = [d for d in decisions if d.action is Action.START]
    assert all(d.time >= by_id[d.job_id].job.submit_time for d in starts)


@given(TRACES)
def test_on_a_cluster_where_nobody_waits_both_loops_are_one(
    rows: Sequence[tuple[int, int, int, str, State]],
) -> None:
    open_ = drawn(rows)
    wide = replace(open_, cluster=ClusterSpec({"vc": 40}, 8))
    outcomes = [played(workload, "fifo") for workload in (wide, closed(wide))]
    assert outcomes[0] == outcomes[1]
