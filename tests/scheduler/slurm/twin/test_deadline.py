"""A job whose limit goes beyond its deadline is cancelled before it starts."""

from __future__ import annotations

import pytest

from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.explain.whatif.forecasts import StartForecast, WhyNot, kept_back, too_late
from scheduler.explain.words import ForecastKind
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import PairTable, Work
from scheduler.slurm.twin.policy import Slurm
from scheduler.slurm.twin.site import Ask, Partition, Site, SiteNode

NODES = {"n1": SiteNode("n1", 8, 64_000, (("gpu", 8),))}
SITE = Site(NODES, {"p": Partition("p", frozenset(NODES))})
GPUS, BEFORE = (("gpu", 8),), (Action.ENQUEUE, Action.WAIT)


def played(deadline: float | None, limit_s: float | None) -> tuple[list[Decision], list[str]]:
    """What became of a job behind one of 600 s, and who had run by the end."""
    policy = Slurm()
    policy.see(SITE, list(NODES), {
        "first": Ask("first", partitions=("p",), gpus=GPUS, time_limit_s=900.0),
        "second": Ask("second", partitions=("p",), gpus=GPUS, submit=1.0, time_limit_s=limit_s,
                      deadline=deadline),
        "third": Ask("third", partitions=("p",), gpus=GPUS, submit=2.0, after=("second",)),
    })  # fmt: skip
    jobs = [Job(name, float(at), 8, "u", "vc") for at, name in enumerate(policy._asks)]
    decisions: list[Decision] = []
    work = {"first": Work(600.0), "second": Work(60.0), "third": Work(60.0)}
    core = Core(Cluster(ClusterSpec({"vc": 1}, 8)), policy)
    played = Engine(core, jobs, work, PairTable({}), sink=decisions.extend).run().jobs
    ran = [one.job.job_id for one in played if one.end_time is not None]
    return [d for d in decisions if d.job_id == "second"], ran


@pytest.mark.parametrize(
    ("deadline", "limit_s"), [(None, 300.0), (5000.0, 300.0), (960.0, 300.0), (650.0, None)]
)
def test_who_can_start_in_time_starts(deadline: float | None, limit_s: float | None) -> None:
    decisions, ran = played(deadline, limit_s)
    assert [d.action for d in decisions if d.action not in BEFORE] == [Action.START]
    assert ran == ["first", "second", "third"]


def test_who_cannot_is_gone_and_nobody_waits_for_it() -> None:
    decisions, ran = played(800.0, 300.0)
    (gone,) = (d for d in decisions if d.action not in BEFORE)
    assert gone.action is Action.CANCEL
    assert 500.0 < gone.time <= 560.0  # at the next pass
    assert ran == ["first", "third"]


def test_as_slurm_shows_it_a_job_is_not_gone_yet() -> None:
    policy = Slurm()
    late = Ask("late", partitions=("p",), gpus=GPUS, time_limit_s=300.0, deadline=200.0)
    policy.see(SITE, list(NODES), {"late": late}, now=100.0)
    core = Core(Cluster(ClusterSpec({"vc": 1}, 8)), policy)
    core.submitted(Job("late", 100.0, 8, "u", "vc"), 100.0)
    assert [d.action for d in core.decide(100.0)] == [Action.ENQUEUE, Action.START]
    assert policy.ask(Job("late~2", 200.0, 8, "u", "vc")).deadline is None  # comes again


@pytest.mark.parametrize(
    ("made", "late"),
    [
        (StartForecast(100.0, 150.0, 600.0, samples=64), False),
        (StartForecast(100.0, 150.0, 800.0, samples=64), True),
        (StartForecast(100.0, 800.0, estimate=ForecastKind.CRUDE), True),
        (StartForecast(100.0, samples=64, why_not="in no future"), True),
        (kept_back(100.0, WhyNot.REFUSED), False),
        (kept_back(100.0, WhyNot.HELD), False),
        (StartForecast(100.0, why_not=WhyNot.NO_TIME), False),
    ],
)
def test_what_else_is_known_of_a_job_is_not_put_down_to_its_deadline(
    made: StartForecast, late: bool
) -> None:
    policy = Slurm()
    asks = {"1": Ask("1", partitions=("p",), time_limit_s=300.0, deadline=1000.0)}
    policy.see(SITE, list(NODES), asks, now=100.0)
    core = Core(Cluster(ClusterSpec({"vc": 1}, 8)), policy)
    assert too_late(core, {"1": made, "2": made}) == ({"1": WhyNot.LATE} if late else {})


def test_a_job_that_comes_later_keeps_its_deadline_too() -> None:
    policy = Slurm()
    policy.see(SITE, list(NODES), {}, now=0.0)
    asked = Ask("1", partitions=("p",), gpus=GPUS, time_limit_s=300.0, deadline=800.0)
    policy.expect({"1": asked})
    core = Core(Cluster(ClusterSpec({"vc": 1}, 8)), policy)
    core.submitted(Job("1", 600.0, 8, "u", "vc"), 600.0)
    assert [d.action for d in core.decide(600.0)] == [Action.ENQUEUE, Action.CANCEL]
