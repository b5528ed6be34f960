"""Which share of a simulated cluster may be lent for profiling."""

from __future__ import annotations

import pytest

from features.job import Job
from pipeline.worlds.scenario import SHARE_WITHOUT_USERS, Scenario
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import ConstantEstimator
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.work import Workload


def a_world(*, user: str, nodes: int = 8, **chosen: float) -> Scenario:
    """Return a world of two jobs, one of them without a user, on a cluster that lends one of its
    nodes for profiling."""
    jobs = [Job(name, 0.0, 8, vc="all", user=whose) for name, whose in (("a", user), ("b", ""))]
    return Scenario(
        "a world",
        Workload("a world", jobs, {}, ClusterSpec({"all": nodes})),
        SimulatedContention(),
        lambda policy: ConstantEstimator(60.0),
        profiling=ProfilingPartition(nodes={"all": 1}, **chosen),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("world", "lent"),
    [
        (a_world(user="ada"), False),  # too large a share: ada's other jobs say what this one does
        (a_world(user=""), True),  # nobody's other jobs say it
        (a_world(user="", largest_share=0.08), False),  # as was asked for
        (a_world(user="", nodes=3), False),  # too large a share in any case
    ],
)
def test_a_node_is_lent_where_users_are_unknown(world: Scenario, lent: bool) -> None:
    assert world.spec("pellucid").folded != lent
    assert bool(world.core("pellucid").cluster.profiling.size) == lent


def test_policies_that_profile_every_job_keep_their_node() -> None:
    for user in ("ada", ""):
        assert a_world(user=user).core("lucid").cluster.profiling.size == 1
    assert 0 < SHARE_WITHOUT_USERS < 1
