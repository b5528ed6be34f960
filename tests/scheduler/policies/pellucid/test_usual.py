"""What is believed of a job that was not watched, from those of its user that were."""

from __future__ import annotations

import pytest

from features.job import Profile
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.decisions import Action
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.profiling import WaitingStage
from scheduler.core.tree_steps import assumed_step
from scheduler.policies.pellucid.usual import LEAST, MARGIN, UsualProfiles
from scheduler.testing.builders import Desk, a_job, pellucid

LIGHT = Profile(20.0, 10.0, 4000.0, False)
HEAVY = Profile(60.0, 30.0, 9000.0, True)


def test_nothing_is_believed_before_enough_jobs_of_the_user_were_watched() -> None:
    usual = UsualProfiles()
    job = a_job("new", gpus=1, user="ann").job
    for i in range(LEAST - 1):
        usual.learn(a_job(f"j{i}", gpus=1, user="ann").job, LIGHT)
    assert usual.find(job) is None
    usual.learn(a_job("last", gpus=2, user="ann").job, LIGHT)
    assert usual.find(job) is not None, "jobs of other sizes count where those of this one are few"
    assert usual.find(a_job("other", gpus=1, user="bob").job) is None
    before = usual.changes["vc"]
    usual.learn(a_job("large", gpus=1, user="ann").job, HEAVY)
    believed = usual.find(job)
    assert believed is not None
    assert believed.gpu_mem_mib == HEAVY.gpu_mem_mib * MARGIN, "the most that was seen"
    assert believed.gpu_util_pct == round(((LEAST - 1) * 20.0 + 60.0) / LEAST), "of its size"
    assert usual.changes["vc"] > before


def _desk(lent: int, user: str = "ann") -> Desk:
    """All jobs of one user, without names; one GPU a node, so that each is alone there."""
    predictor = TablePairPredictor({f"j{i}": 0 for i in range(20)}, lambda a, b: (0.95, 0.95))
    spec = ClusterSpec({"vc": LEAST + lent}, 1)
    cluster = Cluster(spec, {"vc": lent} if lent else None)
    desk = Desk(pellucid(predictor), cluster, stage=WaitingStage())
    for i in range(LEAST):
        desk.submit(a_job(f"j{i}", gpus=1, user=user))
    return desk


@pytest.mark.parametrize("user", ["ann", ""])
def test_who_was_not_watched_is_packed_as_its_users_jobs_usually_are(user: str) -> None:
    """Only once those were watched, beside one of them, and it is said; of a user if there is."""
    desk = _desk(0, user)
    taken = desk.submit(a_job("j10", gpus=1, user=user, at=100.0), now=100.0)
    assert Action.PACK not in {d.action for d in taken}
    for i in range(LEAST):
        desk.core.observed(f"j{i}", LIGHT, 200.0)
    packed = [d for d in desk.core.decide(200.0) if d.action is Action.PACK]
    assert [d.job_id for d in packed] == ["j10"]
    assert packed[0].tree_path[0].startswith("not watched yet: ")
    assert ("user" in packed[0].tree_path[0]) is bool(user)


def test_two_that_were_not_watched_share_and_it_is_said_of_both() -> None:
    desk = _desk(lent=0)
    for i in range(LEAST):
        desk.core.observed(f"j{i}", LIGHT, 200.0)
    desk.end(*(f"j{i}" for i in range(LEAST)), now=300.0)
    new = [a_job(f"j{10 + i}", gpus=1, user="ann", at=310.0) for i in range(LEAST + 1)]
    (pack,) = [d for d in desk.submit(*new, now=310.0) if d.action is Action.PACK]
    assumed = assumed_step(of_owner=True)
    assert pack.tree_path[:2] == (assumed, f"partner: {assumed}")


def test_memory_that_its_users_jobs_took_keeps_it_from_sharing() -> None:
    desk = _desk(lent=0)
    desk.submit(a_job("j10", gpus=1, user="ann", at=100.0), now=100.0)
    for i in range(LEAST):
        profile = Profile(20.0, 10.0, 4000.0 if i else 21_000.0, False)
        desk.core.observed(f"j{i}", profile, 200.0)
    assert Action.PACK not in {d.action for d in desk.core.decide(200.0)}


def test_with_a_profiling_partition_nothing_is_believed() -> None:
    desk = _desk(lent=1)
    desk.submit(a_job("j10", gpus=1, user="ann", at=100.0), now=100.0)
    for i in range(LEAST):
        desk.core.observed(f"j{i}", LIGHT, 200.0)
    assert Action.PACK not in {d.action for d in desk.core.decide(200.0)}
