"""The profiling stage is the same simulated and live: one decides what the other does.

The engine plays a workload against nature; the service's decider plays it from the log, on the
simulated backend. Both were built from the same description of the cluster.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from features.job import Profile
from features.schema import State as EndState
from scheduler.assembly import CoreSpec
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.header import LogHeader
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import SimulatedContention, Work
from tests.scheduler.live import Live, told

START = 1_700_000_000.0
CLUSTER = ClusterSpec({"a": 4, "b": 3}, gpus_per_node=2, name="two")
PARTITION = ProfilingPartition(
    nodes={"a": 1}, limit_s=50.0, max_gpus=2, scale_from="b", known_s=2000.0
)


def a_workload(seed: int, count: int = 60) -> tuple[list[Submission], dict[str, Work]]:
    """Bursts of jobs of a few kinds; some too large, some opted out, some alike."""
    source = random.Random(seed)
    submissions, work, now = [], {}, START
    for i in range(count):
        now += source.expovariate(1 / (0.5 if i % 30 < 22 else 60.0))
        name = source.choice(["resnet", "bert", "vgg", "", "", ""])
        job_id = f"job{i:02}"
        submissions.append(
            Submission(
                job_id=job_id,
                command=("train",),
                owner=source.choice(["ada", "bob"]),
                vc=source.choice(["a", "a", "a", "b"]),
                gpus=source.choice([1, 1, 1, 2, 4]),
                submitted_at=now,
                name=f"{name}-run-{i}" if name else "",
                profile=source.random() > 0.15,
            )
        )
        profile = Profile(float(source.randint(5, 95)), 20.0, 2000.0)
        seconds = source.choice([source.uniform(1, 40), source.uniform(60, 400)])
        work[job_id] = Work(seconds, EndState.COMPLETED, profile=profile)
    return submissions, work


def simulated(header: LogHeader, submissions: list[Submission], work: dict[str, Work]) -> list[Any]:
    """What is decided in simulation."""
    decisions: list[Decision] = []
    core = header.core()
    jobs = [submission.job() for submission in submissions]
    Engine(core, jobs, work, SimulatedContention(), sink=decisions.extend).run()
    return [told(d) for d in decisions]


@pytest.mark.parametrize("policy", ["lucid", "pellucid"])
def test_simulated_and_live_decide_the_same(tmp_path: Path, policy: str) -> None:
    header = LogHeader(
        CoreSpec.of(CLUSTER, policy, profiling=PARTITION), START, backend="simulated"
    )
    submissions, work = a_workload(2)
    wanted = simulated(header, submissions, work)
    live = Live(header, work, tmp_path)
    found = live.play(submissions)
    for mine, theirs in zip(found, wanted, strict=False):
        assert mine == theirs  # the first difference says more than all of them
    assert len(found) == len(wanted)
    assert live.world.problems == []
    if policy == "lucid":
        seen = {reason for _, _, reason, *_ in found}
        assert seen >= {
            Reason.PROFILING_SLOT,
            Reason.AWAITING_PROFILE,
            Reason.PROFILE_COMPLETE,
            Reason.PROFILE_KNOWN,
            Reason.PROFILING_OPTED_OUT,
            Reason.PROFILING_SKIPPED,
            Reason.PROFILING_BACKLOG,
            Reason.PROFILING_IDLE,
        }
        assert {Action.LEND, Action.RETURN} <= {action for _, action, *_ in found}


def test_a_service_that_is_restarted_again_and_again_decides_the_same(tmp_path: Path) -> None:
    """The stage's queue, its loan and what it knows are folded from the log like all else."""
    header = LogHeader(
        CoreSpec.of(CLUSTER, "lucid", profiling=PARTITION), START, backend="simulated"
    )
    submissions, work = a_workload(1, 30)
    found = Live(header, work, tmp_path).play(submissions, crash_every=7)
    assert found == simulated(header, submissions, work)
