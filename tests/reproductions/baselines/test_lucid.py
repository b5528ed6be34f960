"""Lucid: who may share with whom, who is chosen, and when nobody shares."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.baselines.lucid import Lucid
from reproductions.published.free_profiling import LoanSchedule
from scheduler.core.arrivals import TableForecaster
from scheduler.core.decisions import STARTS, Action, Decision, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.explain.reasons import sentence
from scheduler.testing.builders import (
    Desk,
    Likes,
    Sample,
    a_job,
    actions,
    cluster_of,
)
from tests.reproductions.baselines.lucid import lucid


class Known(LoanSchedule):
    """A stage that knows every profile beforehand, and takes no time."""

    def __init__(self, *samples: Sample):
        super().__init__([], {s.id: s.work.profile for s in samples if s.work.profile})


def a_desk(policy: Lucid, *samples: Sample, nodes: int = 1, gpus: int = 8) -> Desk:
    """A desk at which every profile and every duration is known."""
    durations = TableEstimator("given", {s.id: s.work.duration_s for s in samples})
    return Desk(policy, cluster_of(nodes=nodes, gpus=gpus), durations, Known(*samples))


def pack_of(decisions: list[Decision]) -> Decision | None:
    return next((d for d in decisions if d.action is Action.PACK), None)


def shares(partner: Sample, newcomer: Sample, policy: Lucid | None = None) -> bool:
    """Whether a newcomer shares, one job running and GPUs of its own being free."""
    desk = a_desk(policy or lucid(Likes()), partner, newcomer, nodes=4)
    desk.submit(partner)
    pack = pack_of(desk.submit(newcomer, now=1.0))
    assert (desk.run(newcomer.id).partner is not None) == (pack is not None)
    return pack is not None


def test_who_fits_passes_who_does_not_whether_or_not_pairs_are_predicted() -> None:
    """Lucid's head of the line blocks nobody; without a predictor it only cannot share."""
    first = a_job("first", gpus=4, for_=100.0)
    wide, small = a_job("wide", gpus=8, for_=1.0), a_job("small", gpus=4, for_=50.0)
    for predictor in (None, Likes()):
        desk = a_desk(lucid(predictor), first, wide, small)
        desk.submit(first)
        decisions = desk.submit(wide, small, now=1.0)
        assert "small" in {d.job_id for d in decisions if d.action in STARTS}
        assert Reason.SHARING_OPTED_OUT not in {d.reason for d in decisions}


# --- the rules ------------------------------------------------------------------------------------


def test_sharing_scores_must_not_exceed_the_capacity_that_is_set() -> None:
    a, b = a_job("a"), a_job("b")
    assert not shares(a, b, lucid(TablePairPredictor({"a": 2, "b": 2})))
    assert shares(a, b, lucid(TablePairPredictor({"a": 2, "b": 2}), sharing_limit=4))


@pytest.mark.parametrize(("seconds", "fits"), [(100.0, True), (200.0, True), (200.1, False)])
def test_a_newcomer_s_priority_is_at_most_twice_its_partner_s(seconds: float, fits: bool) -> None:
    assert shares(a_job(for_=100), a_job(for_=seconds)) is fits
    assert shares(a_job(for_=100), a_job(for_=seconds), lucid(Likes(), priority_factor=1e9))


def test_a_job_of_which_too_little_is_known_does_not_share() -> None:
    a, b = a_job("a"), a_job("b")
    assert not shares(a, b, lucid(TablePairPredictor({"a": 0})))
    assert not shares(a, b, lucid(None))
    desk = a_desk(lucid(Likes()), a)  # the profile of b is unknown
    desk.submit(a)
    desk.estimator = TableEstimator("given", {}, default=600.0)
    desk.core.estimator = desk.estimator
    assert pack_of(desk.submit(b)) is None


@settings(max_examples=60)
@given(
    mems=st.tuples(*[st.floats(0, 24_576.0)] * 2),
    scores=st.tuples(*[st.integers(0, 2)] * 2),
    seconds=st.tuples(*[st.floats(1, 1000)] * 2),
    gpus=st.tuples(*[st.sampled_from([1, 2, 8, 16])] * 2),
)
def test_the_rules_together(
    mems: tuple[float, float],
    scores: tuple[int, int],
    seconds: tuple[float, float],
    gpus: tuple[int, int],
) -> None:
    a, b = (a_job(n, gpus=gpus[i], for_=seconds[i], mem=mems[i]) for i, n in enumerate("ab"))
    policy = lucid(TablePairPredictor({"a": scores[0], "b": scores[1]}))
    desk = a_desk(policy, a, b, nodes=4)
    desk.submit(a)
    expected = (
        gpus[0] == gpus[1] <= 8
        and sum(mems) < 24_576.0
        and sum(scores) <= 2
        and seconds[1] * gpus[1] <= 2 * seconds[0] * gpus[0]
    )
    pack = pack_of(desk.submit(b, now=0.5))
    assert (pack is not None) == expected
    if pack is not None:
        assert pack.partner == "a"
        assert (pack.nodes, pack.gpus) == (desk.run("a").nodes, desk.run("a").gpus)
        assert pack.tree_path == (
            f"listed score {scores[1]}",
            f"partner's listed score {scores[0]}",
        )


# --- the choice -----------------------------------------------------------------------------------


SPEEDS = {("x", "first"): (0.7, 0.7), ("x", "second"): (0.9, 0.8)}


def choose(*, first_partner: bool, speeds: dict[tuple[str, str], tuple[float, float]]) -> Decision:
    jobs = [a_job("first"), a_job("second"), a_job("x")]
    scores = {"first": 2, "second": 2, "x": 0}  # so that first and second do not pair up
    desk = a_desk(lucid(Likes(scores, speeds), first_partner=first_partner), *jobs)
    desk.submit(jobs[0])
    assert pack_of(desk.submit(jobs[1])) is None
    pack = pack_of(desk.submit(jobs[2]))
    assert pack is not None
    return pack


def test_the_best_partner_is_chosen_and_its_speeds_are_recorded() -> None:
    pack = choose(first_partner=False, speeds=SPEEDS)
    assert (pack.partner, pack.speeds) == ("second", (0.9, 0.8))
    assert sentence(pack) == "shares the GPUs of job second"


def test_the_oldest_partner_is_chosen_when_asked_for_or_when_all_are_alike() -> None:
    assert choose(first_partner=True, speeds=SPEEDS).partner == "first"
    alike = dict.fromkeys(SPEEDS, (0.9, 0.9))
    assert choose(first_partner=False, speeds=alike).partner == "first"


def test_three_never_share_and_a_survivor_is_open_again() -> None:
    a, b, c = (a_job(name, for_=100) for name in "abc")
    desk = a_desk(lucid(Likes()), a, b, c, gpus=1)
    desk.submit(a)
    assert pack_of(desk.submit(b)) is not None
    assert actions(desk.submit(c)) == [(Action.ENQUEUE, "c"), (Action.WAIT, "c")]
    pack = pack_of(desk.end("a", now=50.0))
    assert pack is not None
    assert (pack.job_id, pack.partner) == ("c", "b")


# --- the mode -------------------------------------------------------------------------------------


def test_nobody_shares_while_few_are_expected_and_the_head_blocks() -> None:
    quiet_then_busy = TableForecaster(0.0, [2.0] * 6 + [100.0] * 20, [0.0] * 26)
    policy = lucid(Likes(), quiet_then_busy)
    a, b, c = a_job("a", gpus=1), a_job("b", gpus=1), a_job("c", gpus=1, mem=24_000.0)
    desk = a_desk(policy, a, b, c, gpus=1)
    desk.submit(a)
    assert pack_of(desk.submit(c, b, now=10.0)) is None
    assert desk.core.next_wake(10.0) == 600.0
    assert not policy.packing_on(1199.0), "a mean of two jobs per ten minutes is quiet"
    assert policy.packing_on(1200.0)
    assert pack_of(desk.wake(600.0)) is None
    pack = pack_of(desk.wake(1200.0))
    assert pack is not None
    assert (pack.job_id, pack.partner) == ("b", "a"), "c, before it in line, has no room"


# --- reasons and order ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newcomer", "reason"),
    [
        (a_job("x", mem=24_000.0), Reason.MEMORY_GUARD),
        (a_job("x", for_=1e6), Reason.GPUS_BUSY),
        (a_job("x", gpus=8), Reason.GPUS_BUSY),
    ],
)
def test_a_waiting_job_is_told_which_guard_kept_it_out(newcomer: Sample, reason: Reason) -> None:
    jobs = [a_job(f"j{i}") for i in range(8)]
    desk = a_desk(lucid(TablePairPredictor({s.id: 2 for s in jobs} | {"x": 0})), *jobs, newcomer)
    desk.submit(*jobs)
    assert [d.reason for d in desk.submit(newcomer) if d.action is Action.WAIT] == [reason]
