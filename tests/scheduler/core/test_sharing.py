"""What a policy believes about two jobs on one GPU."""

from __future__ import annotations

from features.job import Profile
from models.bundle.packing import PACKING_FEATURES, PackingModel
from models.bundle.tree import Node, Tree
from scheduler.core.core import QueuedJob
from scheduler.core.pairs import BundleJudge, TableJudge, tree_verdict
from tests.scheduler.builders import a_job


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
    judge = TableJudge({"a": 0, "b": 2}, lambda own, other: (0.9, 0.7))
    verdict = judge.verdict(a_queued("a"), a_queued("b"))
    assert verdict is not None
    assert (verdict.scores, verdict.speeds) == ((0, 2), (0.9, 0.7))
    assert verdict.path == ("listed score 0", "partner's listed score 2")
    assert judge.verdict(a_queued("a"), a_queued("z")) is None
    unknown = TableJudge({"a": 0, "b": 2}).verdict(a_queued("a"), a_queued("b"))
    assert unknown is not None
    assert unknown.speeds is None


def test_a_tree_judges_both_members_and_shows_the_path_of_each() -> None:
    tiny, jumbo = Profile(10.0, 10.0, 1000.0, False), Profile(90.0, 10.0, 1000.0, False)
    verdict = tree_verdict(by_utilisation(), None, tiny, jumbo)
    assert verdict.scores == (0, 2)
    assert verdict.speeds is None
    own = verdict.path.index("sharing score 0 (tiny)")
    other = verdict.path.index("partner: sharing score 2 (jumbo)")
    assert own < other == len(verdict.path) - 1
    steps, theirs = verdict.path[:own], verdict.path[own + 1 : other]
    assert any("gpu_util_pct" in step for step in steps)
    assert all(step.startswith("partner: ") for step in theirs)
    assert tree_verdict(by_utilisation(), None, jumbo, tiny).scores == (2, 0)


def test_without_a_profile_there_is_no_verdict() -> None:
    judge = BundleJudge(by_utilisation(), None)
    assert judge.verdict(a_queued("a", None), a_queued("b")) is None
    assert judge.verdict(a_queued("a"), a_queued("b", None)) is None
    verdict = judge.verdict(a_queued("a"), a_queued("b", 90.0))
    assert verdict is not None
    assert verdict.scores == (0, 2)
    other_way = judge.verdict(a_queued("b", 90.0), a_queued("a"))
    assert other_way is not None
    assert other_way.scores == (2, 0), "a pair is judged in the order it is asked about"
