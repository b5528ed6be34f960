"""Contracts for plug-ins of the scheduler, as tests that anyone can subclass.

    from scheduler.testing import PolicyContract

    class TestMine(PolicyContract):
        def policy(self, world):
            return Mine()

`PolicyContract` tests a policy, `BackendContract` a backend; `pipeline.testing` tests a trace
adapter. The world (cluster and jobs) in which a test fails is printed as the call that makes it:
paste that into a test that does `from scheduler.testing import *`. A policy's own tests use
`a_job`, `cluster_of` and `play`. Needs pytest and Hypothesis, which the installed product does not.
"""

try:
    import hypothesis  # noqa: F401
    import pytest
except ImportError as error:
    raise ImportError(
        f"scheduler.testing needs pytest and hypothesis ({error.name} is not installed): "
        "pip install pytest hypothesis"
    ) from error

pytest.register_assert_rewrite("scheduler.testing.policy", "scheduler.testing.backend")

from features.states import State
from scheduler.core.cluster import ClusterSpec
from scheduler.testing.backend import BackendContract, Does, SimulatedSite, Site
from scheduler.testing.builders import Sample, a_job, a_stage, cluster_of, pair_speeds, play
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import World, worlds

__all__ = [
    "BackendContract",
    "ClusterSpec",
    "Does",
    "PolicyContract",
    "Sample",
    "SimulatedSite",
    "Site",
    "State",
    "World",
    "a_job",
    "a_stage",
    "cluster_of",
    "pair_speeds",
    "play",
    "worlds",
]
