"""What would be, and that every counterfactual that is shown is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Node
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.core.durations import DurationDistribution, at_level, seconds_of
from scheduler.core.nodes import KnownJob
from scheduler.explain.effect import Moved, OthersMoved
from scheduler.explain.whatif.changes import Change, NotPossible
from scheduler.explain.whatif.counterfactuals import (
    Outcome,
    WhatIf,
    _forecast,
    answer_of,
    candidates,
)
from scheduler.explain.whatif.forecasts import Futures, StartForecast, WhyNot, crude, starting
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.trial import Alteration
from scheduler.policies.fifo import FifoSkip
from scheduler.testing.builders import Desk, a_job, cluster_of
from scheduler.testing.worlds import World, worlds
from tests.scheduler.explain.test_forecast import Sure, a_desk
from tests.scheduler.explain.watched import a_policy, replay, waits


def busy(policy: object = None) -> tuple[Desk, Memory]:
    """Six of eight GPUs busy until 600; `large` (4 GPUs) waits, `late` (4 GPUs) behind it."""
    desk, memory = a_desk(policy)
    desk.submit(a_job("first", gpus=6, user="ann"))
    desk.submit(a_job("large", gpus=4, user="bob", at=60.0), now=60.0)
    desk.submit(a_job("late", gpus=8, user="ann", at=61.0), now=61.0)
    return desk, memory


def test_fewer_gpus_start_at_once_and_it_is_decided_not_foreseen() -> None:
    desk, memory = busy()
    asking = WhatIf(Futures(desk.core, memory, 100.0), samples=9)
    outcome = asking.ask("large", Change({"gpus": 2}))
    assert outcome.starts_now
    assert outcome.helps
    assert (outcome.now.start_p50, outcome.then.start_p50) == (600.0, 100.0)
    assert (outcome.gain_s, outcome.earlier, outcome.futures) == (500.0, 9, 9)
    assert outcome.assumed == ("its work is the same: it takes 2 times as long",)
    assert (outcome.beside, outcome.speed, outcome.then.end_p50) == (False, 1.0, 1300.0)
    assert (outcome.costs_s, outcome.costs) == (100.0, True)
    assert desk.core.jobs["large"].job.gpus == 4


def test_a_start_that_should_have_been_by_now_says_nothing_of_a_change() -> None:
    desk, memory = busy()

    def late(job_id: str, made: StartForecast) -> StartForecast:
        return replace(made, made_at=10.0, start_p50=20.0, start_p90=40.0)

    asking = WhatIf(Futures(desk.core, memory, 100.0), samples=9, as_shown=late)
    outcome = asking.ask("late", Change(first=True), others=True)
    assert (outcome.now.start_p50, outcome.then.start_p50) == (1200.0, 600.0)
    assert (outcome.gain_s, outcome.earlier) == (600.0, 9)


def test_a_changed_job_does_not_start_before_the_end_that_it_must_wait_for() -> None:
    """What is shown of it now is sooner than in the futures, and the change as many times sooner
    than that: `late` needs the GPUs of `first` all the same."""
    desk, memory = busy()
    memory.durations = DurationDistribution()

    def sooner(job_id: str, made: StartForecast) -> StartForecast:
        figures = (made.start_p10, made.start_p50, made.start_p90)
        return starting(made, *(at and 100.0 + (at - 100.0) / 4 for at in figures))

    futures = Futures(desk.core, memory, 100.0)
    outcome = WhatIf(futures, samples=16, as_shown=sooner).ask("late", Change(first=True))
    ends = crude(desk.core, memory, 100.0)["late"].after  # of `first`
    then = (outcome.then.start_p10, outcome.then.start_p50, outcome.then.start_p90)
    assert len(ends) == 3
    assert all(at is not None and at >= end for at, end in zip(then, ends, strict=True))


def test_one_of_two_halves_is_enough_for_half_of_the_gpus_and_none_must_end() -> None:
    desk, memory = a_desk()
    halves = [a_job(name, gpus=4) for name in ("one", "two", "half")]
    desk.submit(*halves, a_job("more", gpus=5))
    found = crude(desk.core, memory, 0.0)
    assert found["half"].after == ()
    assert len(found["more"].after) == 3


def test_no_more_futures_are_run_than_are_enough_and_those_in_pairs() -> None:
    desk, memory = busy()
    futures = Futures(desk.core, memory, 100.0)
    (made,) = futures.forecast(["large"], samples=32, between=lambda: True).values()
    assert made.samples == 10


def test_of_a_forecast_is_known_in_what_share_of_futures_it_starts_beside_another() -> None:
    desk, memory = busy()
    worlds = [{"late": (200.0, 300.0, beside)} for beside in (True, False, False, False)]
    assert _forecast(Futures(desk.core, memory, 100.0), worlds, "late", None).aside == 0.25


def test_a_duration_is_believed_by_how_long_the_job_has_run() -> None:
    desk, memory = busy()
    memory.durations = DurationDistribution()
    believed = Futures(desk.core, memory, 100.0).beliefs.quantiles
    for job_id, ran_s in (("first", 100.0), ("late", 0.0)):
        assert believed[job_id] == memory.quantiles(
            memory.believed(desk.core.jobs[job_id]), ran_s, desk.core
        )
    ends = tuple(at_level(believed["first"], level) for level in (0.1, 0.5, 0.9))
    assert crude(desk.core, memory, 100.0)["late"].after == ends


def test_a_job_that_would_be_held_starts_in_none_of_the_futures_and_now_in_all() -> None:
    desk, memory = busy()
    outcome = WhatIf(Futures(desk.core, memory, 100.0), samples=9).ask("large", Change(held=True))
    assert (outcome.now.start_p50, outcome.then.start_p50, outcome.futures) == (600.0, None, 9)
    assert outcome.then.why_not is WhyNot.HELD


def test_a_preview_of_priority_says_whose_start_moves_and_names_nobody_else() -> None:
    desk, memory = busy()
    desk.submit(a_job("mine", gpus=4, user="ann", at=62.0), now=62.0)
    asking = WhatIf(Futures(desk.core, memory, 100.0), samples=9)
    outcome = asking.ask("late", Change(first=True), others=True)
    assert (outcome.now.start_p50, outcome.then.start_p50) == (1200.0, 600.0)
    assert outcome.position == 1
    assert {(m.job_id, m.by_s) for m in outcome.moved} == {("large", 600.0), ("mine", 600.0)}
    plain = answer_of(outcome, "late", "ann")
    assert plain.moved == [Moved("mine", 600.0)]
    assert plain.others_moved == OthersMoved(later=1, later_s=600.0)
    assert "large" not in str(plain)
    assert "bob" not in str(plain)
    assert "large" in str(answer_of(outcome, "late", "ann", names=True))


def test_suggestions_help_and_those_that_do_not_are_not_shown() -> None:
    desk, memory = busy()
    asking = WhatIf(Futures(desk.core, memory, 100.0), samples=9)
    shown = asking.suggestions("large", ["vc", "nowhere"])
    assert [o.change for o in shown] == [Change({"gpus": 2})]  # the least that is enough
    assert all(o.starts_now for o in shown)


def test_another_virtual_cluster_is_tried() -> None:
    desk = Desk(FifoSkip(), cluster_of(nodes={"vc": 1, "other": 1}))
    memory = desk.core.estimator = Memory(desk.estimator, asks=True, durations=Sure())
    desk.submit(a_job("first", gpus=8), a_job("large", gpus=8))
    asking = WhatIf(Futures(desk.core, memory, 100.0), samples=9)
    (best, *_) = asking.suggestions("large", ["other"])
    assert best.change == Change({"vc": "other"})
    assert best.starts_now


def test_a_job_lasts_as_long_in_another_virtual_cluster() -> None:
    """A model that has seen jobs of a minute there predicts so for this one: moved, it is the
    same job, and its end is not promised sooner than its start makes it."""
    desk = Desk(FifoSkip(), cluster_of(nodes={"vc": 1, "other": 1}))
    memory = desk.core.estimator = Memory(desk.estimator, asks=True, durations=Sure())
    desk.submit(a_job("first", gpus=8), a_job("large", gpus=8))
    asking = WhatIf(Futures(desk.core, memory, 100.0), lambda _: 60.0, samples=9)
    moved = asking.ask("large", Change({"vc": "other"}))
    before_s = asking.futures.beliefs.jobs["large"].predicted_s
    assert before_s is not None
    assert moved.then.end_p50 == 100.0 + seconds_of(before_s)
    assert moved.assumed == ("it lasts as long there as here",)


@pytest.mark.parametrize(
    ("change", "times"), [(Change({"vc": "other"}), 1), (Change({"gpus": 4}), 2)]
)
def test_a_changed_job_has_outlived_what_it_has_outlived(change: Change, times: int) -> None:
    """Its end is of the curve that its forecast as it is comes from: that of a job that did not end
    while it was profiled. On half of its GPUs its work takes twice as long."""
    desk = Desk(FifoSkip(), cluster_of(nodes={"vc": 2, "other": 1}))
    memory = desk.core.estimator = Memory(
        desk.estimator, asks=True, durations=DurationDistribution()
    )
    desk.submit(a_job("first", gpus=12), a_job("large", gpus=8))
    futures = Futures(desk.core, memory, 100.0)
    believed = futures.beliefs.jobs["large"]
    believed.outlived_s = 500.0
    as_it_is = at_level(memory.quantiles(believed, 0.0, desk.core), 0.5)
    new = DurationDistribution().quantiles(believed.predicted_s)
    assert as_it_is > 1.5 * at_level(new, 0.5)
    moved = WhatIf(futures, samples=9).ask("large", change)
    (best,) = [
        one
        for one in WhatIf(futures, samples=9).suggestions("large", ["other"], most=9)
        if one.change == change
    ]
    assert moved.starts_now
    assert best.starts_now
    ends = moved.then.end_p50
    assert ends is not None
    assert 0.5 < (ends - 100.0) / (times * as_it_is) < 2.0  # of few futures
    assert best.then.end_p50 == pytest.approx(100.0 + times * as_it_is)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change({"gpus": 9}), "virtual cluster vc has 8 GPUs, not 9"),
        (Change({"vc": "x"}), "there is no virtual cluster 'x'"),
    ],
)
def test_what_cannot_be_is_said(change: Change, why: str) -> None:
    desk, memory = busy()
    with pytest.raises(NotPossible, match=why):
        WhatIf(Futures(desk.core, memory, 100.0), samples=9).ask("large", change)
    with pytest.raises(NotPossible, match="colour cannot be changed"):
        Change.from_body({"colour": "red"})


def test_a_change_begins_a_sentence() -> None:
    assert Change({"gpus": 2}, first=True).words() == "with 2 GPUs, going before all others"
    assert [Change(held=held).words() for held in (True, False)] == ["held", "released"]


def test_what_is_tried_fits_the_job() -> None:
    job = replace(a_job(gpus=6).job, share=False, time_limit_s=7200.0, gpu_type="slow")
    tried = [change.body() for change in candidates(job, ["vc", "b"], ["Slow", "fast"])]
    assert tried == [
        {"gpus": 4},
        {"gpus": 2},
        {"gpus": 1},
        {"share": True},
        {"gpu_type": ""},
        {"gpu_type": "fast"},
        {"time_limit_s": 3600.0},
        {"vc": "b"},
    ]


def check_counterfactuals(futures: Futures, job_id: str, types: Sequence[str] = ()) -> None:
    """Checked otherwise than it was found: a core takes over the changed job where it stood."""
    core, now = futures.core, futures.now
    asking, was = WhatIf(futures, samples=0), core.jobs[job_id]
    for change in candidates(was.job, list(core.queues), types):
        try:
            starts = asking.starts(job_id, change)
        except NotPossible:
            continue
        copy, job = futures.copy(), change.job(was.job)
        copy.withdrawn(job_id, now)
        seen = job.gpus == was.job.gpus  # what it showed is not of other GPUs
        stage = copy.profiling
        known = KnownJob(
            job=job,
            order=was.seq,
            priority=was.priority,
            profile=was.profile if seen else stage and stage.known_profile(job),
            profiled=was.profiled and seen,
            queued_before=seen or stage is None or stage.skips(job) is not None,
        )
        copy.nodes.adopt(known, now)
        begun = {d.job_id for d in copy.decide(now) if d.action in (Action.START, Action.PACK)}
        assert starts == (job_id in begun), change


@settings(max_examples=40)
@given(world=worlds(), name=st.sampled_from(["fifo-skip", "lucid"]))
def test_every_counterfactual_that_says_now_is_true(world: World, name: str) -> None:
    """So it is of `pellucid`, in the random walk of `test_pellucid_walk.py`."""

    def look(core: Core, memory: Memory, decisions: list[Decision], now: float) -> None:
        for d in waits(decisions)[:1]:
            # not those in front of the profiling stage
            if any(queued.job.job_id == d.job_id for queued in core.queues[d.vc]):
                check_counterfactuals(Futures(core, memory, now), d.job_id)

    replay(world, a_policy(name, world), look)


@pytest.mark.parametrize(
    ("alter", "moved", "stuck"),
    [
        # large starts there at 100 and not at 600; late on the first node at 600 and not at 1200
        (lambda core, _: core.nodes.add(1, Node("vc", 8)), {"large": -500.0, "late": -600.0}, []),
        # it is large's only: late needs 8 on the fewest nodes, and has the first at 600
        (lambda core, _: core.nodes.add(1, Node("vc", 4)), {"large": -500.0, "late": -600.0}, []),
        (lambda core, _: core.nodes.add(1, Node("other", 8)), {}, []),
        (lambda core, _: core.nodes.set_open(0, False), {}, ["large", "late"]),
        # 4 GPUs from 600 on: large still starts then, late has not enough any more
        (lambda core, _: core.nodes.change(0, Node("vc", 4)), {}, ["late"]),
    ],
    ids=["a node", "a small one", "one elsewhere", "closed", "shrinks"],
)
def test_the_effect_of_a_change_is_whose_start_moves_by_how_much_and_who_never_starts(
    alter: Alteration, moved: dict[str, float], stuck: list[str]
) -> None:
    """At 100 s, where `first` (6 of 8 GPUs) ends at 600, then `large` (4) runs until 1200, then
    `late` (all 8) starts."""
    desk, memory = busy()
    told = WhatIf(Futures(desk.core, memory, 100.0), samples=9).effect(alter)
    assert (told.moved, told.stuck) == (moved, stuck)
    assert (told.examined, told.waiting, told.futures) == (2, 2, 9)


@pytest.mark.parametrize("n", [10, 16, 64])
def test_a_change_helps_that_is_earlier_at_each_level_near_the_median(n: int) -> None:
    """At the others, one job in a far future may decide."""
    now = tuple(1000.0 + i for i in range(n))
    outside = max(0, int(n / 2 - n**0.5))
    for later in range(n):
        then = tuple(2000.0 if i == later else at - 100.0 for i, at in enumerate(now))
        outcome = Outcome(
            Change(first=True),
            StartForecast(0.0, now[n // 2], starts=now),
            StartForecast(0.0, then[n // 2], starts=then),
            starts_now=False,
            gain_s=100.0,
            earlier=n,
            futures=n,
        )
        assert outcome.helps == (not outside <= later < n - outside), later
        assert not replace(outcome, earlier=n - 1).helps
        assert not replace(outcome, stopped=True, starts_now=True).helps
        assert replace(outcome, starts_now=True, earlier=0).helps
