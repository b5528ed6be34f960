"""Gavel's measured rates on a cluster of three GPU types: what is played, and what is gained."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.heterogeneity import TYPES, GroundTruth, Truth, beliefs, simulate, world
from features.job import Job
from pipeline.evaluate.heterogeneity import read_rates
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.core.estimates import LiveEstimator
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import Work
from scheduler.testing.builders import pellucid

pytestmark = pytest.mark.shared_data
JOBS = 600  # the first days


@pytest.fixture(scope="module")
def truth(shared_data: Path) -> Truth:
    return Truth(read_rates(shared_data / "gavel" / "simulation_throughputs.json"))


def made(data: Path, truth: Truth, seed: int) -> tuple[list[Job], dict[str, Work], ClusterSpec]:
    jobs, work, spec = world(data, truth, "vcYVn", 4, 1.0, seed)
    return jobs[:JOBS], work, spec


def test_jobs_run_at_the_rates_of_the_table(shared_data: Path, truth: Truth) -> None:
    """And every job says, as it starts, what it is believed to do on every type."""
    jobs, work, spec = made(shared_data, truth, 100)
    policy = pellucid(cluster=spec, type_speeds=truth)
    decisions: list[Decision] = []
    core = Core(Cluster(spec), policy, LiveEstimator())
    outcome = Engine(core, jobs, work, GroundTruth(truth, spec), sink=decisions.extend).run()
    of_node = [group.gpu_type for group in spec.groups_of("mixed") for _ in range(group.nodes)]
    starts = {d.job_id: d for d in decisions if d.action is Action.START}
    for result in outcome.jobs:
        start = starts[result.job.job_id]
        (gpu_type,) = {of_node[node] for node in start.nodes}
        rates = truth.rows[result.job.name].rates
        assert result.ran_s * rates[gpu_type] == pytest.approx(result.duration_s * rates["v100"])
        said = dict(start.evidence)
        for other in TYPES:
            assert said[f"speed_on_{other}"] == rates[other] / rates["v100"]


def test_knowing_the_speeds_pays_even_if_predicted_for_a_family_never_seen(
    shared_data: Path, truth: Truth
) -> None:
    sums = dict.fromkeys(beliefs(truth), 0.0)
    for seed in (100, 101, 102):
        played = made(shared_data, truth, seed)
        for name, belief in beliefs(truth).items():
            figures = simulate(truth, played, belief())
            assert figures["ended"] == JOBS
            sums[name] += figures["avg_jct_s"]
    assert sums["true"] < sums["unseen batch"] < sums["blind"]
    assert sums["unseen family"] < sums["blind"]
