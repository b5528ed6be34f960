"""Pair speeds learned from pairs that ran: what is told, what is believed, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from features.job import Profile
from scheduler.core.decisions import Action, PairPrediction, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.core.policy import Predictors
from scheduler.core.profiling import WaitingStage
from scheduler.core.queue import QueuedJob
from scheduler.policies.pellucid.pairing import held_longer_s
from scheduler.policies.pellucid.policy import PACE_S, Pellucid
from scheduler.policies.pellucid.settings import PellucidSettings
from scheduler.policies.pellucid.speeds import Experienced, kind_of
from scheduler.testing.builders import Likes, Played, a_job, cluster_of, pair_speeds, pellucid, play

HOUR = 3600.0
LIGHT, HEAVY, OTHER = (Profile(u, u / 2, 1000.0 + u, False) for u in (20.0, 60.0, 90.0))


def queued(name: str, profile: Profile | None) -> QueuedJob:
    made = QueuedJob(a_job(name).job, 0)
    made.profile = profile
    return made


@dataclass
class Says:
    """Predicts the same speeds for every pair."""

    speeds: tuple[float, float] | None = (0.9, 0.9)

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        return PairPrediction((0, 0), self.speeds)


def speeds_of(
    pair_predictor: Experienced, a: Profile | None, b: Profile | None
) -> tuple[float, float]:
    prediction = pair_predictor.predict_pair(queued("x", a), queued("y", b))
    assert prediction is not None
    assert prediction.speeds is not None
    return prediction.speeds


def test_what_was_seen_of_a_pair_is_believed_of_the_next_like_it() -> None:
    pair_predictor = Experienced(Says(), weight=1.0)
    assert speeds_of(pair_predictor, LIGHT, HEAVY) == (0.9, 0.9)
    for _ in range(200):
        pair_predictor.learn(queued("a", LIGHT), queued("b", HEAVY), 0.6)
        pair_predictor.learn(queued("b", HEAVY), queued("a", LIGHT), 1.0)
    assert speeds_of(pair_predictor, LIGHT, HEAVY) == pytest.approx((0.6, 1.0), abs=0.01)
    assert speeds_of(pair_predictor, HEAVY, LIGHT) == pytest.approx((1.0, 0.6), abs=0.01)
    nearly = Profile(20.4, 10.2, 1021.0, False)
    assert kind_of(nearly) == kind_of(LIGHT)
    assert speeds_of(pair_predictor, nearly, HEAVY) == pytest.approx((0.6, 1.0), abs=0.01)


def test_one_look_moves_the_belief_part_of_the_way() -> None:
    pair_predictor = Experienced(Says(), weight=1.0)
    pair_predictor.learn(queued("a", LIGHT), queued("b", HEAVY), 0.5)
    once = speeds_of(pair_predictor, LIGHT, HEAVY)[0]
    assert 0.5 < once < 0.7
    # a job of that kind beside one it was never seen with: less of the way
    assert once < speeds_of(pair_predictor, LIGHT, OTHER)[0] < 0.9
    assert speeds_of(pair_predictor, OTHER, OTHER) == (0.9, 0.9)


def test_nothing_is_made_of_what_nobody_predicted() -> None:
    silent = Experienced(Says(None))
    silent.learn(queued("a", LIGHT), queued("b", HEAVY), 0.5)
    assert silent.seen == 0
    pair_predictor = Experienced(Says())
    pair_predictor.learn(queued("a", None), queued("b", HEAVY), 0.5)
    assert pair_predictor.seen == 0
    pair_predictor.learn(queued("a", LIGHT), queued("b", HEAVY), 0.5)
    assert speeds_of(pair_predictor, None, HEAVY) == (0.9, 0.9)


class Told(Pellucid):
    """Keeps what it was told of pairs."""

    def __init__(self, *, learns_speeds: bool):
        likes = Likes(speeds={("b", "a"): (0.95, 0.95)})
        chosen = PellucidSettings(learns_speeds=learns_speeds, busy_above=0.0)
        super().__init__(chosen, predictors=Predictors(likes))
        self.heard: list[tuple[str, str, float]] = []

    def pair_speed_observed(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        self.heard.append((own.job.job_id, other.job.job_id, speed))


@pytest.mark.parametrize(
    ("lasts_s", "learns", "told"), [(9 * HOUR, True, 2), (PACE_S / 2, True, 0), (HOUR, False, 0)]
)
def test_a_pair_is_told_of_once_it_was_together_for_long_enough(
    lasts_s: float, learns: bool, told: int
) -> None:
    policy = Told(learns_speeds=learns)
    a = a_job("a", gpus=8, for_=900.0 + lasts_s, config="a")
    b = a_job("b", gpus=8, for_=9 * HOUR, at=900.0, config="b")
    played = play(
        policy,
        cluster_of(nodes=3, profiling=1),
        a,
        b,
        stage=WaitingStage(),
        speed=pair_speeds({("a", "b"): 0.7, ("b", "a"): 0.8}),
    )
    assert played.of("b", Action.PACK)
    assert policy.heard == [("b", "a", 0.8), ("a", "b", 0.7)][:told]


def test_a_decision_to_pack_carries_the_pair_and_what_it_gains() -> None:
    policy = pellucid(Likes(speeds={("b", "a"): (0.95, 0.9)}))
    a, b = a_job("a", gpus=8, for_=9 * HOUR), a_job("b", gpus=8, for_=9 * HOUR, at=900.0)
    played = play(policy, cluster_of(nodes=3, profiling=1), a, b, stage=WaitingStage())
    (packed,) = played.of("b", Action.PACK)
    evidence: dict[str, Any] = dict(packed.evidence)
    assert evidence["best_partner"] == "a"
    assert (evidence["pair_speed"], evidence["pair_partner_speed"]) == (0.95, 0.9)
    assert evidence["gain_s"] > 0
    assert evidence["asked_share"] == 1.0
    entered: dict[str, Any] = dict(played.of("b", Action.ENQUEUE)[0].evidence)
    assert entered["p10_s"] <= entered["p50_s"] <= entered["p90_s"]


@pytest.mark.parametrize(("nodes", "action"), [(2, Action.PACK), (3, Action.START)])
def test_gpus_are_saved_only_where_they_are_missed(nodes: int, action: Action) -> None:
    """Two nodes are asked for: of two that is all there is, of three one would stand idle."""
    policy = pellucid(Likes(speeds={("b", "a"): (0.95, 0.95)}))
    a, b = a_job("a", gpus=8, for_=9 * HOUR), a_job("b", gpus=8, for_=9 * HOUR, at=900.0)
    played = play(policy, cluster_of(nodes=nodes + 1, profiling=1), a, b, stage=WaitingStage())
    (began,) = played.of("b", Action.START, Action.PACK)
    assert began.action is action
    assert began.time == (1100.0 if action is Action.PACK else 900.0), "profiled only to be packed"


def test_a_counter_that_could_not_be_read_is_a_kind_of_its_own() -> None:
    unread = Profile(float("nan"), 30.0, 1_000.0)
    assert kind_of(unread) == (None, 6, 1, None)
    assert kind_of(unread) != kind_of(Profile(0.0, 30.0, 1_000.0))


@pytest.mark.parametrize(
    ("newcomer_s", "partner_s", "speeds", "longer_s"),
    [
        (50.0, 100.0, (1.0, 1.0), 0.0),  # it is gone before its partner would have been
        (300.0, 100.0, (1.0, 1.0), 200.0),
        (50.0, 100.0, (0.5, 0.5), 50.0),  # the partner is slowed for as long as they share
        (300.0, 100.0, (0.5, 1.0), 250.0),
        (300.0, 100.0, (0.5, 1.2), 250.0),  # faster than alone is noise
    ],
)
def test_how_much_longer_a_pair_holds_its_gpus(
    newcomer_s: float, partner_s: float, speeds: tuple[float, float], longer_s: float
) -> None:
    assert held_longer_s(newcomer_s, partner_s, speeds) == pytest.approx(longer_s)


def wide_beside_wide(narrow: int) -> Played:
    """Play one node of eight GPUs: `a` holds all of it, `narrow` jobs of one GPU wait, then `b`."""
    others = [a_job(f"n{i}", gpus=1, for_=1800.0, at=300.0) for i in range(narrow)]
    a = a_job("a", gpus=8, for_=2 * HOUR)
    b = a_job("b", gpus=8, for_=9 * HOUR, at=900.0)
    durations = {"a": 2 * HOUR, "b": 9 * HOUR} | {one.id: 1800.0 for one in others}
    return play(
        pellucid(Likes(speeds={("b", "a"): (0.95, 0.95)}), ageing=0.0),
        cluster_of(nodes=2, profiling=1),
        a,
        *others,
        b,
        stage=WaitingStage(),
        estimator=TableEstimator("given", durations),
    )


@pytest.mark.parametrize(("narrow", "packs"), [(0, True), (12, False)])
def test_a_pair_that_keeps_jobs_before_it_waiting_for_longer_than_it_saves_is_not_made(
    narrow: int, packs: bool
) -> None:
    played = wide_beside_wide(narrow)
    assert bool(played.of("b", Action.PACK)) == packs
    refused = [d for d in played.of("b", Action.WAIT) if d.reason is Reason.KEEPS_OTHERS_OUT]
    assert bool(refused) != packs
    if refused:
        evidence: dict[str, Any] = dict(refused[0].evidence)
        assert evidence["kept_out_jobs"] == narrow
        assert evidence["hold_costs_s"] == pytest.approx(evidence["held_longer_s"] * narrow)
        assert 0 < evidence["gain_s"] < evidence["hold_costs_s"]
        ends = max(played.result(f"n{i}").end_time or 0.0 for i in range(narrow))
        assert ends < 4 * HOUR, "they get the GPUs when the first job ends"


@pytest.mark.parametrize(("wide", "packs"), [(0, True), (12, False)])
def test_a_pair_is_charged_for_wider_jobs_before_it_that_need_its_node_to_empty(
    wide: int, packs: bool
) -> None:
    """`a` and `b` ask for half a node, short jobs that need more than half of it wait before `b`:
    beside pairs that follow each other they would wait for ever."""
    others = [a_job(f"w{i}", gpus=6, for_=900.0, at=300.0) for i in range(wide)]
    a, other = (a_job(name, gpus=4, for_=2 * HOUR) for name in ("a", "other"))
    b = a_job("b", gpus=4, for_=9 * HOUR, at=900.0)
    short = {one.id: 900.0 for one in others}
    played = play(
        pellucid(Likes(speeds={("b", "a"): (0.95, 0.95)}), ageing=0.0),
        cluster_of(nodes=2, profiling=1),
        a,
        other,
        *others,
        b,
        stage=WaitingStage(),
        estimator=TableEstimator(
            "given", {"a": 2 * HOUR, "other": 2 * HOUR, "b": 9 * HOUR} | short
        ),
    )
    assert bool(played.of("b", Action.PACK)) == packs
    refused = [d for d in played.of("b", Action.WAIT) if d.reason is Reason.KEEPS_OTHERS_OUT]
    assert bool(refused) != packs
    if refused:
        evidence: dict[str, Any] = dict(refused[0].evidence)
        assert evidence["kept_out_jobs"] == wide
        ends = max(played.result(f"w{i}").end_time or 0.0 for i in range(wide))
        assert ends < 6 * HOUR, "they run as soon as the node is empty"


def narrow_beside_wide(*, consents: str = "ab", takes: float = 100.0, **chosen: Any) -> Played:
    """Play one node: `a` holds its eight GPUs for hours, and `b`, of two GPUs, comes.

    Args:
        consents: who may share. takes: memory of a GPU that each takes, MiB.
    """
    a = a_job("a", gpus=8, for_=9 * HOUR, config="a", mem=takes)
    b = a_job("b", gpus=2, for_=HOUR, at=900.0, config="b", mem=takes)
    a, b = (replace(one, job=replace(one.job, share=one.id in consents)) for one in (a, b))
    return play(
        pellucid(Likes(speeds={("b", "a"): (0.8, 0.9)}), **chosen),
        cluster_of(nodes=2, profiling=1),
        a,
        b,
        stage=WaitingStage(),
        speed=pair_speeds({("a", "b"): 0.9, ("b", "a"): 0.8}),
        estimator=TableEstimator("given", {"a": 9 * HOUR, "b": HOUR}),
    )


def test_a_narrow_job_shares_some_of_the_gpus_of_a_wider_one() -> None:
    played = narrow_beside_wide(pack_narrower=True)
    (packed,) = played.of("b", Action.PACK)
    assert (packed.partner, packed.gpus) == ("a", (0b11,))
    assert dict(packed.evidence)["partner_gpus"] == 8
    shared_s = HOUR / 0.8
    assert played.result("b").ran_s == pytest.approx(shared_s)
    assert played.result("a").ran_s == pytest.approx(9 * HOUR + 0.1 * shared_s), "all of it waits"


@pytest.mark.parametrize("chosen", [{"pack_narrower": False}, {"sharing": {"max_gpus": 4}}])
def test_it_waits_where_that_is_not_set_or_the_wider_one_is_too_wide_to_share(
    chosen: dict[str, Any],
) -> None:
    played = narrow_beside_wide(**{"pack_narrower": True, **chosen})
    assert not played.of("b", Action.PACK)


@pytest.mark.parametrize("consents", ["a", "b"])
def test_it_waits_where_the_owner_of_either_does_not_want_it(consents: str) -> None:
    assert not narrow_beside_wide(consents=consents, pack_narrower=True).of("b", Action.PACK)


@pytest.mark.parametrize(("takes", "packs"), [(12_000.0, True), (13_000.0, False)])
def test_it_waits_where_both_would_not_fit_into_the_memory_of_a_gpu(
    takes: float, packs: bool
) -> None:
    """A GPU of 24,576 MiB: that of the wider one's GPUs that are not shared is of no use."""
    played = narrow_beside_wide(takes=takes, pack_narrower=True)
    assert bool(played.of("b", Action.PACK)) == packs
    refused = [d for d in played.of("b", Action.WAIT) if d.reason is Reason.MEMORY_GUARD]
    assert bool(refused) != packs
