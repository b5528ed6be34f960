"""What a policy believes about two jobs on one GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.job import Profile
from models.bundle.packing import (
    PACKING_FEATURES,
    PAIR_FEATURES,
    PackingModel,
    PairHinge,
    PairSpeedModel,
)
from models.bundle.tree import Node, Tree
from scheduler.core.findings import NotExamined
from scheduler.core.pairs import BundlePairPredictor, TablePairPredictor, believed
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import SharingRules
from scheduler.testing.builders import a_job


def a_queued(job_id: str, util: float | None = 10.0) -> QueuedJob:
    queued = QueuedJob(a_job(job_id).job, 0)
    queued.profile = None if util is None else Profile(util, 10.0, 1000.0, False)
    return queued


def by_utilisation() -> PackingModel:
    """Tiny up to 50 % GPU utilisation, jumbo above."""
    root = Node(0, 50.0, 1, 2, True, (0.5, 0.0, 0.5), 10)
    leaves = [
        Node(-1, 0.0, -1, -1, True, (1.0, 0.0, 0.0), 5),
        Node(-1, 0.0, -1, -1, True, (0.0, 0.0, 1.0), 5),
    ]
    return PackingModel(Tree(PACKING_FEATURES, [root, *leaves]))


def test_a_table_knows_the_jobs_it_lists_and_no_others() -> None:
    pair_predictor = TablePairPredictor({"a": 0, "b": 2}, lambda own, other: (0.9, 0.7))
    prediction = pair_predictor.predict_pair(a_queued("a"), a_queued("b"))
    assert prediction is not None
    assert (prediction.scores, prediction.speeds) == ((0, 2), (0.9, 0.7))
    assert prediction.path == ("listed score 0", "partner's listed score 2")
    assert pair_predictor.predict_pair(a_queued("a"), a_queued("z")) is None
    unknown = TablePairPredictor({"a": 0, "b": 2}).predict_pair(a_queued("a"), a_queued("b"))
    assert unknown is not None
    assert unknown.speeds is None


def test_a_tree_judges_both_members_and_shows_the_path_of_each() -> None:
    tiny, jumbo = a_queued("a", 10.0), a_queued("b", 90.0)
    prediction = BundlePairPredictor(by_utilisation(), None).predict_pair(tiny, jumbo)
    assert prediction is not None
    assert prediction.scores == (0, 2)
    assert prediction.speeds is None
    own = prediction.path.index("sharing score 0 (tiny)")
    other = prediction.path.index("partner: sharing score 2 (jumbo)")
    assert own < other == len(prediction.path) - 1
    steps, theirs = prediction.path[:own], prediction.path[own + 1 : other]
    assert any("gpu_util_pct" in step for step in steps)
    assert all(step.startswith("partner: ") for step in theirs)


def test_of_two_each_has_the_speed_of_its_own_side_and_the_way_to_it() -> None:
    root = Node(0, 0.0, 1, 2, True, (0.7,), 10)  # by how much more it uses of the GPU
    leaves = [Node(-1, 0.0, -1, -1, True, (speed,), 5) for speed in (0.6, 0.9)]
    speeds = PairSpeedModel(Tree(PAIR_FEATURES, [root, *leaves]))
    prediction = BundlePairPredictor(by_utilisation(), speeds).predict_pair(
        a_queued("a", 10.0), a_queued("b", 40.0)
    )
    assert prediction is not None
    assert prediction.speeds == (0.6, 0.9)
    assert [step for step in prediction.speed_path if "speed" in step] == [
        "speed 0.6",
        "partner: speed 0.9",
    ]


def test_speeds_come_of_counters_where_both_profiles_have_them() -> None:
    speeds = PairSpeedModel(Tree(PAIR_FEATURES, [Node(-1, 0.0, -1, -1, True, (0.7,), 5)]))
    hinge = PairHinge(knee_pct=60.0, slope=0.005, least=0.3)
    predictor = BundlePairPredictor(by_utilisation(), speeds, "mps", hinge)
    one, other, bare = a_queued("a"), a_queued("b"), a_queued("c")
    assert one.profile is not None
    assert other.profile is not None
    one.profile = replace(one.profile, sm_active_pct=50.0)
    other.profile = replace(other.profile, sm_active_pct=30.0)
    found = predictor.predict_pair(one, other)
    assert found is not None
    assert found.speeds == (0.9, 0.9)
    assert found.speed_path == ("sm_active_sum_pct 80 > 60", "speed 0.9")
    without = predictor.predict_pair(one, bare)
    assert without is not None
    assert without.speeds == (0.7, 0.7), "the tree's"
    assert without.speed_path


def test_without_a_profile_there_is_no_verdict() -> None:
    pair_predictor = BundlePairPredictor(by_utilisation(), None)
    assert pair_predictor.predict_pair(a_queued("a", None), a_queued("b")) is None
    assert pair_predictor.predict_pair(a_queued("a"), a_queued("b", None)) is None
    prediction = pair_predictor.predict_pair(a_queued("a"), a_queued("b", 90.0))
    assert prediction is not None
    assert prediction.scores == (0, 2)
    other_way = pair_predictor.predict_pair(a_queued("b", 90.0), a_queued("a"))
    assert other_way is not None
    assert other_way.scores == (2, 0), "a pair is judged in the order it is asked about"


@pytest.mark.parametrize(
    ("measured", "rules", "kept", "why"),
    [
        ("mps", {"mode": "mps"}, True, None),
        ("", {}, True, None),
        ("mps", {"mode": "time-slicing"}, False, NotExamined.UNMEASURED),
        ("", {"mode": "mps"}, False, NotExamined.UNMEASURED),
        ("mps", {"mode": "exclusive", "unmeasured": True}, False, NotExamined.EXCLUSIVE),
    ],
)
def test_pairs_of_another_mode_are_not_believed(
    measured: str, rules: dict[str, object], kept: bool, why: NotExamined | None
) -> None:
    predictor = BundlePairPredictor(by_utilisation(), None, measured)
    found, reason = believed(predictor, SharingRules.model_validate(rules))
    assert found is (predictor if kept else None)
    assert kept or reason is why


@pytest.mark.parametrize(
    ("measured", "rules", "mark"),
    [
        ("mps", {"mode": "time-slicing", "unmeasured": True}, "measured under mps, not under"),
        ("", {"mode": "mps", "unmeasured": True}, "measured in a mode that is not known"),
        ("mps", {}, "how GPUs are shared here is not stated"),
    ],
)
def test_pairs_that_are_believed_all_the_same_are_marked(
    measured: str, rules: dict[str, object], mark: str
) -> None:
    plain = BundlePairPredictor(by_utilisation(), None, measured)
    found, _ = believed(plain, SharingRules.model_validate(rules))
    assert found is not None
    a, b = a_queued("a"), a_queued("b", 90.0)
    prediction, unmarked = found.predict_pair(a, b), plain.predict_pair(a, b)
    assert prediction is not None
    assert unmarked is not None
    assert mark in prediction.path[0]
    assert (prediction.scores, prediction.path[1:]) == (unmarked.scores, unmarked.path)
    assert found.predict_pair(a_queued("c", None), b) is None
