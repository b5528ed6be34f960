"""A cause of a shared run that is printed decided: turned round, the job waits. What is not
printed, turned round, lets it share all the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from features.job import Profile
from models.bundle.packing import (
    ACTIVE_SUM,
    PACKING_FEATURES,
    PAIR_FEATURES,
    PackingModel,
    PairSpeedModel,
)
from models.bundle.tree import Node, Tree
from scheduler.core.decisions import Action, Decision
from scheduler.core.estimates import TableEstimator
from scheduler.core.pairs import BundlePairPredictor
from scheduler.core.tree_steps import OF_BOTH, TreeStep
from scheduler.explain.life import JobFacts
from scheduler.explain.story import build_story
from scheduler.explain.words import gain_words
from scheduler.testing.builders import Desk, a_job, cluster_of, pellucid

LIGHT = Profile(30.0, 10.0, 1000.0, False)


def leaf(*value: float) -> Node:
    return Node(-1, 0.0, -1, -1, True, value, 5)


def scores(*, jumbo: bool) -> PackingModel:
    share = (0.0, 0.0, 1.0) if jumbo else (1.0, 0.0, 0.0)
    return PackingModel(Tree(PACKING_FEATURES, (Node(0, 50.0, 1, 2, True, share, 10),
                                                leaf(*share), leaf(*share))))  # fmt: skip


def speeds(fast: float = 0.6) -> PairSpeedModel:
    """Both run at `fast` where their utilisation sums to at most 100 %, and that of memory to at
    most 40 %, else at .2."""
    return PairSpeedModel(Tree(PAIR_FEATURES, (
        Node(1, 100.0, 1, 4, True, (0.5,), 10), Node(2, 40.0, 2, 3, True, (0.5,), 8),
        leaf(fast), leaf(0.2), leaf(0.2),
    )))  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """Two jobs for one GPU: the one that runs, and the one that may join it."""

    own: Profile = LIGHT
    other: Profile = LIGHT
    own_s: float = 5_000.0
    other_s: float = 20_000.0
    jumbo: bool = False
    fast: float = 0.6

    def packs(self) -> Decision | None:
        """The decision that packs them; None: the second waits."""
        predictor = BundlePairPredictor(scores(jumbo=self.jumbo), speeds(self.fast))
        known = TableEstimator("given", {"runs": self.other_s, "new": self.own_s})
        policy = pellucid(predictor)
        policy.remembers = False  # a profile is set below that nobody was notified of
        desk = Desk(policy, cluster_of(nodes=1, gpus=1), known)
        desk.submit(a_job("runs"))
        desk.core.observed("runs", self.other, 1.0)
        desk.submit(a_job("new", at=2.0), now=2.0)
        desk.core.jobs["new"].profile = self.own
        found = desk.wake(3.0)
        return next((d for d in found if d.action is Action.PACK), None)


def test_every_printed_cause_turned_round_keeps_the_job_waiting() -> None:
    packed = Scene().packs()
    assert packed is not None
    steps = [TreeStep.of(step) for step in packed.tree_path]
    compared = [step.compared for step in steps if step.compared is not None]
    assert {name for name, *_ in compared} == {"gpu_util_sum_pct", "gpu_mem_util_sum_pct"}
    for name, seen, at_most, cut in compared:
        assert seen is not None
        field = name.replace("_sum", "")
        beyond = 2.0 * (cut - seen) + 1.0
        assert at_most
        turned = replace(LIGHT, **{field: getattr(LIGHT, field) + beyond})
        assert Scene(own=turned).packs() is None
        assert Scene(other=turned).packs() is None
    ends = [step.speed for step in steps if step.speed is not None]
    assert ends == [0.6, 0.6] == list(packed.speeds or ())
    assert Scene(fast=0.2).packs() is None, "slower"
    known = dict(packed.evidence)
    assert float(known["gain_s"]) > 0
    assert Scene(own_s=20_000.0).packs() is None, "left of its own"
    assert Scene(other_s=5_000.0).packs() is None, "left of the other"


def test_what_did_not_decide_is_not_printed() -> None:
    packed = Scene().packs()
    other = Scene(jumbo=True).packs()
    assert packed is not None
    assert other is not None
    assert packed.tree_path == other.tree_path, "the sharing score decides nothing here"
    assert not any("sharing score" in step for step in packed.tree_path)


def test_the_gain_is_printed_with_what_it_is_worked_out_from() -> None:
    packed = Scene().packs()
    assert packed is not None
    (mine,) = build_story(JobFacts("new", 1, 2.0, 0.0), [packed]).sharing
    (theirs,) = build_story(JobFacts("runs", 1, 0.0, 0.0), [], [packed]).sharing
    assert mine.gain_s == theirs.gain_s
    assert (mine.left_s, mine.partner_left_s) == (theirs.partner_left_s, theirs.left_s)
    assert mine.left_s is not None
    assert mine.partner_left_s is not None
    shared_s = min(mine.left_s, mine.partner_left_s) / 0.6
    assert mine.gain_s == pytest.approx(mine.partner_left_s - shared_s * 0.8)
    assert "shorter than if the later one waited" in gain_words(mine)
    assert "other jobs wait" not in gain_words(mine), "nobody is kept out"
    paid = replace(packed, evidence=(*packed.evidence, ("hold_costs_s", 600.0)))
    (mine,) = build_story(JobFacts("new", 1, 2.0, 0.0), [paid]).sharing
    assert "; other jobs wait 10 min longer, added up." in gain_words(mine)


@pytest.mark.parametrize("step", ["{} 95 <= 101.56", "{} missing, taken as > 20"])
@pytest.mark.parametrize("name", OF_BOTH)
def test_a_sum_over_both_is_not_shown_to_who_knows_one_of_them(name: str, step: str) -> None:
    written = TreeStep.of(step.format(name))
    shown = written.without_value()
    assert written.compared is not None
    assert shown.compared == (name, None, *written.compared[2:])
    assert "95" not in str(shown)
    assert TreeStep.of(str(shown)) == shown
    assert (*PAIR_FEATURES, ACTIVE_SUM) == OF_BOTH
