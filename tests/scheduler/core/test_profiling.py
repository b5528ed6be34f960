"""The profiling stage: who is looked at, for how long, and what it borrows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Job, Profile
from reproductions.baselines.lucid import Lucid
from scheduler.core.arrivals import RecentForecaster, TableForecaster
from scheduler.core.capabilities import Capabilities
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import Estimate, Estimator, HistoriesEstimator
from scheduler.core.policy import Policy
from scheduler.core.profiling import KnownProfiles, ProfilingStage, Scaling, WaitingStage
from scheduler.explain.reasons import sentence
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.fifo import Fifo
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import (
    Desk,
    Sample,
    a_job,
    a_stage,
    actions,
    cluster_of,
    play,
)


def a_desk(stage: ProfilingStage, *, nodes: int = 2, profiling: int = 1, gpus: int = 8) -> Desk:
    return Desk(Fifo(), cluster_of(nodes=nodes, gpus=gpus, profiling=profiling), stage=stage)


def profiled(decisions: list[Decision]) -> list[str]:
    return [d.job_id for d in decisions if d.action is Action.PROFILE]


# --- order ----------------------------------------------------------------------------------------


def test_nobody_passes_the_first_that_does_not_fit() -> None:
    desk = a_desk(a_stage())
    desk.submit(a_job("running", gpus=5))
    decisions = desk.submit(a_job("four", gpus=4), a_job("eight", gpus=8))
    assert profiled(decisions) == []
    desk = a_desk(a_stage())
    desk.submit(a_job("a", gpus=3))
    assert profiled(desk.submit(a_job("b", gpus=6), a_job("c", gpus=5))) == ["c"]
    # b still does not fit, d is smaller and goes before it; e is larger and has to wait
    assert profiled(desk.end("c")) == []
    assert profiled(desk.submit(a_job("e", gpus=7), a_job("d", gpus=2))) == ["d"]


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=15))
def test_whoever_waits_is_at_least_as_wide_as_whoever_was_taken(sizes: list[int]) -> None:
    """All at once on an idle partition: the taken are the widest prefix, smallest first."""
    desk = a_desk(a_stage(), profiling=2, nodes=3)
    desk.submit(*[a_job(f"j{i}", gpus=gpus) for i, gpus in enumerate(sizes)])
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    taken = list(desk.cluster.runs)
    assert taken == [f"j{i}" for i in order[: len(taken)]]
    rest = order[len(taken) :]
    if rest:
        assert desk.cluster.profiling.place(sizes[rest[0]]) is None


def test_waiting_to_be_looked_at_has_its_reason_and_numbers() -> None:
    desk = a_desk(a_stage())
    desk.submit(a_job("a", gpus=8))
    first, second = desk.submit(a_job("b", gpus=2), a_job("c", gpus=4))
    assert [d.reason for d in (first, second)] == [Reason.AWAITING_PROFILE] * 2
    assert (first.job_id, first.need, first.free, first.limit, first.position) == ("b", 2, 0, 8, 1)
    assert second.position == 2
    assert sentence(first) == (
        "waits to be profiled (measured in a short run): needs 2 GPUs, 0 of 8 that are set aside "
        "for profiling are free"
    )
    assert desk.wake(1.0) == [], "told once"


# --- what becomes of a job ------------------------------------------------------------------------


def test_a_long_job_is_stopped_at_the_limit_and_its_work_is_lost() -> None:
    job = a_job("x", gpus=2, for_=500)
    played = play(Lucid(), cluster_of(nodes=2, profiling=1), job, stage=a_stage(limit=200))
    result = played.result("x")
    assert (result.start_time, result.end_time) == (200, 700)
    assert (result.profile_s, result.ran_s) == (200, 500)
    assert not result.ended_in_profiling
    assert [(d.action, d.reason, d.time) for d in played.decisions] == [
        (Action.PROFILE, Reason.PROFILING_SLOT, 0),
        (Action.ENQUEUE, Reason.PROFILE_COMPLETE, 200),
        (Action.START, Reason.EXCLUSIVE_GPUS, 200),
    ]


@pytest.mark.parametrize(
    ("seconds", "ends"), [(0.0, True), (0.7, True), (200.0, True), (200.001, False)]
)
def test_a_short_job_ends_there(seconds: float, ends: bool) -> None:
    """Whatever the clock says when it begins: times that are no sum of powers of two count too."""
    holder = a_job("holder", gpus=8, for_=0.1, at=1_600_000_000.3)
    job = a_job("x", gpus=8, for_=seconds, at=1_600_000_000.3)
    played = play(Lucid(), cluster_of(nodes=2, profiling=1), holder, job, stage=a_stage())
    result = played.result("x")
    assert result.ended_in_profiling is ends
    assert result.profile_s == pytest.approx(min(seconds, 200.0), abs=1e-6)
    assert (result.ran_s == 0) is ends
    assert (Action.ENQUEUE in [d.action for d in played.of("x")]) is not ends


class Curious(Estimator):
    """Predicts the memory of the profile, once it was told it."""

    def __init__(self) -> None:
        super().__init__()
        self.profiles: dict[str, Profile] = {}

    def profiled(self, job_id: str, profile: Profile, now: float) -> None:
        self.profiles[job_id] = profile

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(self.profiles[job.job_id].gpu_mem_mib)


def test_the_estimator_knows_the_profile_before_it_is_asked() -> None:
    desk = Desk(Lucid(), cluster_of(nodes=2, profiling=1), Curious(), a_stage())
    desk.submit(a_job("x", mem=321.0))
    (enqueue, _) = desk.end("x", now=200.0)
    assert enqueue.estimate_s == 321.0


# --- who skips it ---------------------------------------------------------------------------------


def named(
    job_id: str,
    name: str,
    *,
    user: str = "ada",
    gpus: int = 1,
    for_: float = 600.0,
    at: float = 0.0,
) -> Sample:
    sample = a_job(job_id, gpus=gpus, for_=for_, user=user, at=at, mem=float(len(job_id)))
    return replace(sample, job=replace(sample.job, name=name))


def skipped(decisions: list[Decision]) -> dict[str, Reason]:
    """Reasons of the jobs that joined their queues."""
    return {d.job_id: d.reason for d in decisions if d.action is Action.ENQUEUE}


def test_one_whose_like_was_looked_at_lately_takes_over_its_profile() -> None:
    desk = a_desk(ProfilingStage(known_s=1000.0), nodes=6)
    desk.submit(named("first", "resnet50-run-1"))
    desk.end("first", now=200.0)
    found = desk.submit(
        named("again", "ResNet50_run_2", at=300.0),
        named("wider", "resnet50-run-3", gpus=2, at=300.0),
        named("other user", "resnet50-run-4", user="bob", at=300.0),
        named("other name", "vgg-run-5", at=300.0),
        named("nameless", "", at=300.0),
        now=300.0,
    )
    assert skipped(found) == {"again": Reason.PROFILE_KNOWN}
    assert desk.core.jobs["again"].profile == Profile(50.0, 30.0, float(len("first")))
    assert len(profiled(found)) == 4
    enqueue = next(d for d in found if d.job_id == "again")
    assert "a recent profile of a job of the same name" in sentence(enqueue)


def test_a_profile_is_believed_for_so_long_and_the_latest_counts() -> None:
    desk = a_desk(ProfilingStage(known_s=1000.0), nodes=6)
    desk.submit(named("a", "net"))
    desk.end("a", now=200.0)
    assert skipped(desk.submit(named("b", "net", at=1200.0), now=1200.0)) != {}
    assert profiled(desk.submit(named("cc", "net", at=1201.0), now=1201.0)) == ["cc"]
    desk.end("cc", now=1401.0)
    desk.submit(named("d", "net", at=1500.0), now=1500.0)
    known = desk.core.jobs["d"].profile
    assert known is not None
    assert known.gpu_mem_mib == 2.0


def test_what_was_seen_of_a_run_counts_too_and_a_short_look_does_not() -> None:
    """A job that ended while it was looked at was cut short by its own end."""
    desk = a_desk(ProfilingStage(limit_s=200.0, known_s=1000.0), nodes=6)
    short = replace(named("short", "debug"), work=a_job(for_=5.0).work)
    desk.submit(short)
    desk.end("short", now=5.0)
    assert profiled(desk.submit(named("next", "debug", at=10.0), now=10.0)) == ["next"]
    desk.submit(named("big", "llm", gpus=16, at=20.0), now=20.0)
    desk.core.observed("big", Profile(90.0, 60.0, 7.0), 220.0)
    assert skipped(desk.submit(named("small", "llm", gpus=16, at=300.0), now=300.0)) == {
        "small": Reason.PROFILING_SKIPPED
    }
    assert desk.core.jobs["small"].profile == Profile(90.0, 60.0, 7.0), "known all the same"


def test_an_opt_out_is_the_reason_before_any_other() -> None:
    for stage in (ProfilingStage(max_gpus=1, known_s=1e6), WaitingStage(max_gpus=1, known_s=1e6)):
        desk = a_desk(stage, nodes=4)
        sample = named("x", "net", gpus=4)
        sample = replace(sample, job=replace(sample.job, profile=False))
        assert skipped(desk.submit(sample)) == {"x": Reason.PROFILING_OPTED_OUT}


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownProfiles, "MOST", 3)
    known, profile = KnownProfiles(1e6), Profile(1.0, 1.0, 1.0)
    for name in "abcab":  # c is the one heard of least lately
        known.learn(named("x", f"net-{name}").job, profile, 0.0)
    known.learn(named("x", "net-d").job, profile, 0.0)
    assert [known.find(named("x", f"net-{n}").job, 0.0) is None for n in "abcd"] == [
        False, False, True, False
    ]  # fmt: skip


# --- scaling --------------------------------------------------------------------------------------


def scaling_desk(*, nodes: int = 3, forecast: TableForecaster | None = None) -> Desk:
    """Two 1-GPU nodes for profiling less one; one more is lent while two or more wait."""
    stage = ProfilingStage(
        max_gpus=1,
        scaling=Scaling("vc", grow_above=1, grow_every_s=10, shrink_below=1, shrink_every_s=100),
        forecast=forecast,
    )
    return a_desk(stage, nodes=nodes, gpus=1)


def test_no_node_is_lent_when_none_is_idle() -> None:
    desk = scaling_desk(nodes=2)
    desk.submit(a_job("a"), now=0.0)
    desk.end("a", now=200.0)  # runs on the only node of its virtual cluster
    assert actions(desk.submit(a_job("b"), a_job("c"), a_job("d"), now=205.0))[0] == (
        Action.PROFILE,
        "b",
    )
    assert desk.wake(210.0) == []


def test_the_node_goes_back_when_few_wait_it_is_idle_and_it_is_quiet() -> None:
    busy_then_quiet = TableForecaster(0.0, [0.0] * 30, [100.0] * 10 + [0.0] * 20)
    desk = scaling_desk(forecast=busy_then_quiet)
    desk.submit(a_job("a"), a_job("b"), a_job("c"), now=10.0)
    assert list(desk.cluster.profiling.nodes()) == [2, 1]
    assert desk.core.next_wake(10.0) == 100.0
    assert desk.wake(100.0) == [], "one still waits"
    desk.end("a", now=150.0)
    assert desk.wake(200.0) == [], "the lent node is in use"
    desk.end("b", "c", now=250.0)
    assert desk.cluster.profiling.is_idle(1)
    assert desk.wake(300.0) == [], "much is about to arrive"
    assert desk.wake(6050.0) == [], "not one of its times"
    back, start, *_ = desk.wake(6100.0)
    assert (back.action, back.reason, back.nodes) == (Action.RETURN, Reason.PROFILING_IDLE, (1,))
    assert desk.cluster.pools["vc"].gpus == 2
    assert start.action is Action.START


def test_a_clock_that_is_late_for_its_times_scales_all_the_same() -> None:
    """The live service is woken a little after the moment it asked for."""
    desk = scaling_desk()
    desk.submit(a_job("a"), a_job("b"), now=3.0)
    assert desk.core.next_wake(3.0) is None, "one waits: not more than one"
    desk.submit(a_job("c"), now=3.7)
    assert desk.core.next_wake(3.7) == 10.0
    assert desk.wake(9.999) == []
    assert desk.core.next_wake(9.999) == 10.0
    lend, profile = desk.wake(10.013)
    assert (lend.action, lend.nodes) == (Action.LEND, (1,))
    assert (
        sentence(lend)
        == "2 jobs wait to be profiled: a node of the virtual cluster is lent for that"
    )
    assert (profile.action, profile.job_id) == (Action.PROFILE, "b")
    assert desk.core.next_wake(10.013) == 100.0
    desk.end("a", "b", now=98.0)
    desk.end("c", now=99.0)
    assert desk.core.next_wake(99.0) == 100.0
    # something happens elsewhere before it is woken: who waits for the node starts all the same
    assert actions(desk.core.decide(100.021))[:2] == [(Action.RETURN, ""), (Action.START, "b")]
    assert desk.core.next_wake(100.021) is None


def test_the_forecast_hears_of_every_job_also_of_those_that_skip() -> None:
    forecast = RecentForecaster()
    desk = a_desk(ProfilingStage(max_gpus=1, forecast=forecast), nodes=4)
    desk.submit(a_job("a"), a_job("b", gpus=8), now=10.0)
    assert forecast.gpus(10.0) == 9 / 6


# --- the stage that looks at waiting jobs ---------------------------------------------------------


def test_a_spared_node_that_is_lent_for_the_backlog_is_spared_no_more_when_followed() -> None:
    stage = WaitingStage(limit_s=200.0, max_gpus=2)
    desk = a_desk(stage, nodes=2, profiling=0)
    memory = stage.remember()
    memory.spared = [0, 1]
    stage.restore(memory, {})
    why = Reason.PROFILING_BACKLOG
    lent = Decision(0, 1.0, Action.LEND, why, "", "vc", nodes=(1,), position=7)
    stage.follow(desk.core, lent)
    assert 1 in desk.cluster.profiling
    assert stage.remember().spared == [0]
    again = Decision(1, 2.0, Action.LEND, why, "", "vc", nodes=(0,))
    stage.follow(desk.core, again)
    assert stage.remember().spared == []


class Patient(Policy):
    """First come first served, with a stage for those that have to wait."""

    name = "patient"
    capabilities = Capabilities(profiles=True, profiles_waiting=True)


def test_a_job_that_can_start_is_not_looked_at_and_one_that_waits_is() -> None:
    stage = WaitingStage(max_gpus=8)
    desk = Desk(Patient(), cluster_of(nodes=2, profiling=1), stage=stage)
    assert actions(desk.submit(a_job("a", gpus=8))) == [(Action.ENQUEUE, "a"), (Action.START, "a")]
    assert actions(desk.submit(a_job("b", gpus=8), a_job("c", gpus=8))) == [
        (Action.ENQUEUE, "b"),
        (Action.ENQUEUE, "c"),
        (Action.WAIT, "b"),
        (Action.WAIT, "c"),
        (Action.PROFILE, "b"),
        (Action.WAIT, "c"),  # first in line now, and so for another reason
    ]
    assert actions(desk.end("b", now=200.0))[:1] == [(Action.ENQUEUE, "b")]
    assert sorted(desk.cluster.runs) == ["a", "c"], "looked at once; then it is the other's turn"


def test_what_it_has_outlived_there_enters_all_that_is_believed_of_it() -> None:
    policy, estimator = Pellucid(), HistoriesEstimator()
    cluster = cluster_of(nodes=2, gpus=8, profiling=1)
    desk = Desk(policy, cluster, estimator, WaitingStage(limit_s=200.0, max_gpus=8))
    for number in range(8):
        at = number * 50.0
        desk.submit(a_job(f"short{number}", gpus=8, for_=30, at=at), now=at)
        desk.end(f"short{number}", now=at + 30)
    desk.submit(a_job("holder", gpus=8, for_=300, at=900.0), now=900.0)
    desk.submit(a_job("long", gpus=8, for_=20_000, at=1000.0), now=1000.0)
    joins = desk.end("long", now=1200.0)[0]
    assert joins.reason is Reason.PROFILE_COMPLETE
    assert joins.score is not None
    assert joins.estimate_s is not None
    said = dict(joins.evidence)
    assert min(joins.estimate_s, *(said[n] for n in ("p10_s", "p50_s", "mean_s"))) >= 200.0  # type: ignore[type-var]
    assert joins.score.inputs[-1] == "ran for 200 s and did not end"
    assert sum(joins.score.terms, joins.score.intercept) == joins.score.value
    desk.end("holder", now=1200.0)
    queued, run = desk.core.jobs["long"], desk.run("long")
    believed = policy.distribution
    assert believed.quantile_s(joins.estimate_s, 0.05, queued.outlived_s) >= 200.0
    assert run.start_time + policy.left_s(run, queued, 1200.0, 0.1) >= 1400.0
    memory = Memory(estimator)
    assert min(memory.quantiles(memory.believed(queued), 0.0, desk.core)) >= 200.0
