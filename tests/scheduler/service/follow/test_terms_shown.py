"""Terms of a priority are shown as `sprio` has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from scheduler.policies.slurm.passes import Ranked
from scheduler.policies.slurm.priority import Multifactor
from scheduler.policies.slurm.site import Ask, Partition, Site, SiteNode
from scheduler.policies.slurm.twin import SlurmTwin
from scheduler.service.follow.reasons import terms_shown

NOW = 1_800_000_000.0


@pytest.mark.parametrize("late_s", [0, 17, 61])
@pytest.mark.parametrize("lasted_s", [1, 192, 193, 4000])
def test_the_age_of_a_priority_is_of_whole_seconds(lasted_s: int, late_s: int) -> None:
    """It was off by one where what was cut off Slurm's sum and off ours differed."""
    weights = {"PriorityType": "priority/multifactor", "PriorityMaxAge": "1-0"}
    weights |= {"PriorityWeightAge": "100000", "PriorityWeightJobSize": "20000"}
    nodes = {f"n{n}": SiteNode(f"n{n}", 7, 64_000) for n in range(3)}
    part = Partition("main", frozenset(nodes))
    ask = Ask("1", partitions=("main",), submit=NOW, accrue=NOW)
    made = Multifactor(Site(nodes, {"main": part}, config=weights))
    slurm = made.terms(ask, part, NOW + lasted_s).total
    twin = cast("SlurmTwin", SimpleNamespace(weights=made))
    shown = terms_shown(slurm, Ranked(ask, part, slurm), twin, NOW + lasted_s + late_s)
    assert {one.name: one.points for one in shown}["age"] == pytest.approx(
        lasted_s * 100_000 / 86_400
    )
