"""Simulations that stop at waiting jobs, for tests to look ahead from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.assembly import settings_of
from scheduler.core.arrivals import RecentForecaster
from scheduler.core.core import Core
from scheduler.core.decisions import GIVES_GPUS, Action, Decision
from scheduler.core.estimates import Estimator
from scheduler.core.policy import Policy, Predictors
from scheduler.core.profiling import WaitingStage
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.trial import Item, without
from scheduler.policies import build
from scheduler.simulation.engine import Engine
from scheduler.testing.builders import UserMeans, a_stage
from scheduler.testing.worlds import World, a_cluster

Look = Callable[[Core, Memory, list[Decision], float], None]


def replay(
    world: World, policy: Policy, look: Look, estimator: Estimator | None = None
) -> dict[str, float | None]:
    """Simulate a world; `look` is called after every pass. Start times by job."""
    stage = None
    if policy.capabilities.profiles and any(world.lent.values()):
        stage = WaitingStage() if policy.capabilities.profiles_waiting else a_stage()
    core = Core(
        a_cluster(world, profiles=policy.capabilities.profiles and stage is not None),
        policy,
        memory := Memory(estimator or UserMeans(), asks=not policy.capabilities.estimates),
        profiling=stage,
    )
    taken: list[Decision] = []

    class Looking(Engine):
        def _decided(self, now: float) -> None:
            look(core, memory, list(taken), now)
            taken.clear()

    jobs = [sample.job for sample in world.samples]
    # the sink runs before `_decided`
    engine = Looking(core, jobs, world.work, world.speed, sink=taken.extend)
    return {r.job.job_id: r.start_time for r in engine.run().jobs}


def a_policy(name: str, world: World) -> Policy:
    """A policy that may pack, with listed scores and speeds that are worth it now and then."""
    quiet = {"quiet_jobs": 2.0} if name == "lucid" else {}
    predictors = Predictors(Scores(world.scores), RecentForecaster)
    return build(name, settings_of(name, quiet), world.spec, predictors)


class Scores:
    """Judges by listed scores; jobs that come again or are asked for differently included."""

    def __init__(self, scores: dict[str, int]):
        self._scores = scores

    def predict_pair(self, newcomer, partner):  # type: ignore[no-untyped-def]
        from scheduler.core.decisions import PairPrediction

        a, b = (
            self._scores.get(queued.job.job_id.partition("~")[0], 1)
            for queued in (newcomer, partner)
        )
        speed = 1.0 - 0.15 * (a + b)
        return PairPrediction((a, b), (speed, speed))


def starts_without(futures: Futures, job_id: str, gone: Iterable[Item]) -> bool:
    """Whether a job gets its GPUs at once when some are gone from a copy of the core."""
    return futures.trial(without(gone)).decide().begins(job_id, GIVES_GPUS) is not None


def waits(decisions: list[Decision]) -> list[Decision]:
    return [d for d in decisions if d.action is Action.WAIT]
