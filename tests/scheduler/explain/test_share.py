"""What a user has had lately, against what is due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.job import Job
from scheduler.core.policy import Policy
from scheduler.core.queue import QueuedJob
from scheduler.explain.share import Shares, of_policy, sentences
from scheduler.policies.fifo import Fifo
from scheduler.policies.pellucid.settings import FairShare
from scheduler.policies.pellucid.shares import Fairness
from scheduler.slurm.shares import of_site
from scheduler.slurm.twin.site import Assoc, Site
from tests.scheduler.slurm.read.test_request import SITE

HOUR = 3600.0


def had(weight: float) -> tuple[Policy, Fairness]:
    """Ada held three GPUs for an hour and bob one; cy has only asked."""
    fairness = Fairness(FairShare(weight=weight, half_life_s=1e12))
    for number, (user, gpus) in enumerate((("ada", 3), ("bob", 1))):
        fairness.shares.join("v", user, 0.0)
        fairness.shares._hold(str(number), ("v", user, gpus, None), None, 0.0)
    fairness.shares.join("v", "cy", 0.0)
    policy = Fifo()
    policy.usage = fairness
    return policy, fairness


def test_a_part_is_what_the_order_charges_for() -> None:
    policy, fairness = had(weight=0.5)
    (ada,) = of_policy(policy, "ada", ["v", "w"], HOUR).shares
    assert (ada.had, ada.due) == pytest.approx((0.75, 1 / 3))
    assert (ada.of, ada.members, ada.before) == ("virtual cluster v", 3, 2)
    queued = QueuedJob(Job("9", HOUR, 1, user="ada", vc="v"), 9)
    assert ada.term == pytest.approx(fairness.on(queued, HOUR))
    (cy,) = of_policy(policy, "cy", ["v"], HOUR).shares
    assert (cy.had, cy.before) == (0.0, 0)
    said = sentences(of_policy(policy, "ada", ["v"], HOUR))
    assert said[0].startswith(
        "ada used 75 % of what was used lately of virtual cluster v; the fair share "
    )
    assert "moves a job back in line by 5 h" in said[0]
    assert of_policy(policy, "dora", ["v"], HOUR).shares == []
    assert of_policy(Fifo(), "ada", ["v"], HOUR).unavailable == "the policy knows no shares"


def test_where_shares_do_not_count_in_the_order_no_place_is_claimed() -> None:
    (ada,) = of_policy(had(weight=0.0)[0], "ada", ["v"], HOUR).shares
    assert (ada.before, ada.term, ada.unit) == (None, None, "")


def slurm() -> Site:
    """Account ai has two users of equal shares, of which ada had three quarters; chem none."""
    each = [
        Assoc("root", usage=100.0), Assoc("ai", parent="root", shares=30, usage=100.0),
        Assoc("chem", parent="root", shares=10), Assoc("ai", "ada", usage=75.0),
        Assoc("ai", "bob", usage=25.0), Assoc("chem", "cy"),
    ]  # fmt: skip
    config = {
        "PriorityType": "priority/multifactor", "PriorityWeightFairShare": "1000",
        "PriorityDecayHalfLife": "7-00:00:00",
    }  # fmt: skip
    return replace(SITE, config=config, assocs={(one.account, one.user): one for one in each})


def test_of_slurm_each_level_of_the_tree_is_a_part_and_the_user_is_ranked() -> None:
    found = of_site(slurm(), "ada")
    assert [(one.whose, one.of, one.had, one.due, one.members) for one in found.shares] == [
        ("ada", "account ai", 0.75, 0.5, 2), ("account ai", "the cluster", 1.0, 0.75, 2)
    ]  # fmt: skip
    own, above = found.shares
    assert (own.before, own.unit, above.before) == (2, "points", None)
    assert own.term == pytest.approx(1000 / 3)  # the last of three by Fair Tree
    assert of_site(slurm(), "cy").shares[0].before == 0
    assert found.half_life_s == 7 * 24 * HOUR
    assert "gives 333 points of priority" in sentences(found)[0]


def test_where_slurm_weighs_nothing_or_hides_accounts_it_says_so() -> None:
    hidden = replace(slurm(), assocs={("ai", "ada"): Assoc("ai", "ada")})
    assert "does not show" in of_site(hidden, "ada").unavailable
    basic = replace(slurm(), config={"PriorityType": "priority/basic"})
    assert "know no shares" in of_site(basic, "ada").unavailable
    assert sentences(Shares("ada", unavailable="x")) == []
