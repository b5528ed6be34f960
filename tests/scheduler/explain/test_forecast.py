"""Start and end forecasts, against worlds in which the answer is known."""

from __future__ import annotations

import random
from collections.abc import Collection
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.schema import State
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.durations import DurationDistribution
from scheduler.explain.whatif.forecasts import Futures, StartForecast, summary
from scheduler.explain.whatif.futures import Beliefs, Draw, Future
from scheduler.explain.whatif.memory import DAY_S, Memory
from scheduler.policies.fifo import FifoSkip
from scheduler.simulation.engine import Engine
from scheduler.simulation.work import PairTable
from scheduler.testing.builders import Desk, Likes, a_job, cluster_of, pellucid
from scheduler.testing.worlds import World, worlds
from tests.scheduler.explain.watched import a_policy, replay


class Sure(DurationDistribution):
    """Durations that are known: predictions come true."""

    def quantiles(
        self,
        predicted_s: float | None,
        elapsed_s: float = 0.0,
        limit_s: float | None = None,
        points: int | None = None,
    ) -> list[float]:
        assert predicted_s is not None
        return [max(predicted_s, elapsed_s)]


def a_desk(policy: object = None, **more: object) -> tuple[Desk, Memory]:
    desk = Desk(policy or FifoSkip(), cluster_of(nodes=1), **more)  # type: ignore[arg-type]
    memory = Memory(desk.estimator, asks=policy is None, durations=Sure())
    desk.core.estimator = memory
    if desk.core.policy.distribution is not None:
        desk.core.policy.distribution = Sure()
    return desk, memory


def test_where_durations_are_known_the_forecast_is_exact() -> None:
    """Everybody is predicted to run 600 s, and does."""
    desk, memory = a_desk()
    desk.submit(a_job("first", gpus=8))
    desk.submit(a_job("second", gpus=8), now=100.0)
    desk.submit(a_job("third", gpus=4), now=200.0)
    made = Futures(desk.core, memory, 200.0).forecast(["second", "third"], samples=9)
    assert (made["second"].start_p50, made["second"].start_p90) == (600.0, 600.0)
    assert (made["third"].start_p50, made["third"].end_p90) == (1200.0, 1800.0)
    running = Futures(desk.core, memory, 200.0).end_of("first")
    assert (running.start_p50, running.end_p50) == (0.0, 600.0)


def test_those_yet_to_come_may_overtake() -> None:
    """A stream of short jobs every day: under a policy that lets them pass, it counts."""
    # a bound on waiting that does not stretch with the line
    desk, memory = a_desk(pellucid(ageing=0.0, overload=1e6))
    estimates = desk.estimator
    estimates._seconds = {"long": 7000.0}  # type: ignore[attr-defined]
    for i in range(200):
        at = DAY_S * i / 200
        desk.submit(a_job(f"s{i}", gpus=8, at=at), now=at)
        desk.end(f"s{i}", now=at)
        memory.arrivals[-1].ran_s = 600.0
    now = DAY_S + 10.0
    desk.submit(a_job("running", gpus=8, at=now), now=now)
    desk.submit(a_job("long", gpus=8, at=now), now=now)
    (made,) = Futures(desk.core, memory, now).forecast(["long"], samples=9).values()
    assert made.start_p50 is not None
    assert made.start_p50 > now + 600.0
    memory.arrivals.clear()
    (made,) = Futures(desk.core, memory, now).forecast(["long"], samples=9).values()
    assert made.start_p50 == now + 600.0


def a_pair_to_be() -> tuple[Desk, Memory]:
    """Two with a profile that like each other; there is room for one."""
    policy = pellucid(Likes(speeds={("b", "a"): (0.8, 0.5)}), pack_first_above=None)
    policy.remembers = False  # it is not told of the profiles that are put in below
    desk, memory = a_desk(policy)
    a, b = a_job("a", gpus=8, for_=600), a_job("b", gpus=8, for_=100)
    desk.estimator._seconds = {"a": 600.0, "b": 100.0}  # type: ignore[attr-defined]
    desk.submit(a)
    desk.submit(b)
    for sample in (a, b):
        desk.core.jobs[sample.id].profile = sample.work.profile
    desk.core.touch("vc")
    return desk, memory


def test_who_starts_beside_another_needs_no_gpus_to_become_free() -> None:
    desk, memory = a_pair_to_be()
    desk.estimator._seconds["c"] = 5.0  # type: ignore[attr-defined]
    futures = Futures(desk.core, memory, 0.0)
    snapshot = futures.copy()
    future = Future(snapshot, futures.beliefs, Draw(futures.beliefs, 0, 0), ["b"])
    future.submit(a_job("c", gpus=8, at=1.0).job)
    assert (future.look().starts, future.aside) == ({"b": 1.0}, {"b"})


def test_a_pair_runs_at_the_speed_it_was_predicted_and_alone_again_after_it() -> None:
    desk, memory = a_pair_to_be()
    desk.core.decide(0.0)
    assert desk.run("b").partner is desk.run("a")
    futures = Futures(desk.core, memory, 0.0)
    future = futures.follow(futures.copy(), 0, ["a", "b"])
    assert future.ends["b"] == 125.0  # 100 at 0.8
    assert future.ends["a"] == 125.0 + (600.0 - 125.0 * 0.5)


@settings(max_examples=4)
@given(world=worlds(), name=st.sampled_from(["fifo-skip", "lucid", "pellucid"]))
def test_the_same_seed_gives_the_same_forecasts(world: World, name: str) -> None:
    def look(core: Core, memory: Memory, decisions: list[Decision], now: float) -> None:
        waiting = [q.job.job_id for queue in core.queues.values() for q in queue]
        one, two, other = (
            Futures(core, memory, now, seed=seed, horizon_s=DAY_S).forecast(waiting, samples=9)
            for seed in (5, 5, 6)
        )
        assert one == two
        assert one.keys() == other.keys()
        for made in one.values():
            assert made.start_p50 is None or made.start_p50 >= now
            assert None in (made.start_p50, made.start_p90) or made.start_p50 <= made.start_p90  # type: ignore[operator]

    replay(world, a_policy(name, world), look)


def test_no_time_no_estimate_and_it_is_said() -> None:
    desk, memory = a_desk()
    desk.submit(a_job("first", gpus=8), a_job("second", gpus=8))
    futures = Futures(desk.core, memory, 0.0)
    (made,) = futures.forecast(["second"], budget_s=-1.0).values()
    assert made.start_p50 is None
    assert made.why_not == "there was no time to simulate enough possible futures"
    near = Futures(desk.core, memory, 0.0, horizon_s=60.0)
    (made,) = near.forecast(["second"], samples=9).values()
    assert (made.start_p50, made.start_p90) == (None, None)
    assert "in no future had it started" in made.why_not


def test_futures_that_were_enough_are_not_lost_with_the_one_that_time_ran_out_in() -> None:
    class Timed(Futures):
        def follow(
            self, core: Core, sample: int, awaited: Collection[str], *args: Any, **more: Any
        ) -> Future:
            more["until_cpu_s"] = inf if sample < 12 else -1.0
            return super().follow(core, sample, awaited, *args, **more)

    desk, memory = a_desk()
    desk.submit(a_job("first", gpus=8), a_job("second", gpus=8))
    (made,) = Timed(desk.core, memory, 0.0).forecast(["second"], samples=24).values()
    assert (made.samples, made.start_p50, made.why_not) == (12, 600.0, "")


def test_beyond_the_horizon_what_has_lasted_lasts_as_long_again_in_half_the_cases() -> None:
    made = summary(100.0, [110.0, *[120.0] * 8, inf, inf], [inf] * 11, 1000.0)
    assert (made.start_p50, made.why_not) == (120.0, "")
    assert made.start_p90 == pytest.approx(100.0 + 1000.0 * (2 / 11) / 0.1)
    assert made.end_p90 == pytest.approx(100.0 + 1000.0 / 0.1)


def test_arrivals_of_the_past_come_again_a_day_later_and_none_from_before_the_first_hour() -> None:
    desk, memory = a_desk()
    desk.submit(a_job("early"), now=0.0)
    assert not Beliefs.of(memory, desk.core, 60.0).pieces
    beliefs = Beliefs.of(memory, desk.core, 3 * DAY_S)
    assert (beliefs.piece_s, len(beliefs.pieces)) == (DAY_S, 3)
    assert [bool(piece) for piece in beliefs.pieces] == [False, False, True]


def test_promises_are_kept_in_a_world_like_the_past() -> None:
    """A busy node, lognormal durations, forecasts of everyone who waits: 90 % and 50 % hold."""
    rng = random.Random(4)
    jobs, now = [], 0.0
    for i in range(300):
        now += rng.expovariate(1 / 400.0)
        seconds = rng.lognormvariate(6.0, 1.2)
        jobs.append(a_job(f"j{i}", gpus=rng.choice([1, 2, 4, 8]), for_=seconds, at=now))
    memory = Memory(Desk(FifoSkip(), cluster_of(nodes=1)).estimator, asks=True)
    core = Core(cluster_of(nodes=1), FifoSkip(), memory)
    made: dict[str, StartForecast] = {}

    class Foreseen(Engine):
        def _decided(self, at: float) -> None:
            newest = memory.arrivals[-1].job.job_id
            waits = newest in core.jobs and newest not in core.cluster.runs
            if at > DAY_S and waits and newest not in made and rng.random() < 0.4:
                futures = Futures(core, memory, at, user_correlation=0.0)
                made[newest] = futures.forecast([newest], samples=9)[newest]

    work = {s.id: s.work for s in jobs}
    done = Foreseen(core, [s.job for s in jobs], work, PairTable({})).run()
    starts = {r.job.job_id: r.start_time or inf for r in done.jobs}
    kept = [(one, starts[job_id]) for job_id, one in made.items() if one.start_p50 is not None]
    assert len(kept) > 30
    share = {
        level: sum(start <= (getattr(s, f"start_{level}") or inf) for s, start in kept) / len(kept)
        for level in ("p50", "p90")
    }
    assert share["p50"] == pytest.approx(0.5, abs=0.17)
    assert share["p90"] == pytest.approx(0.9, abs=0.09)


def test_a_job_seen_to_end_teaches() -> None:
    memory = Memory(Desk(FifoSkip(), cluster_of()).estimator, asks=True)
    memory.submitted(a_job("a").job, 0.0)
    memory.started("a", 0.0)
    memory.ended("a", State.COMPLETED, 60.0, 60.0)
    assert memory.durations.quantiles(600.0) != DurationDistribution().quantiles(600.0)
    assert memory.of("a") is None
    assert memory.arrivals[0].ran_s == 60.0


def test_who_was_withdrawn_did_not_come_and_those_beside_it_did() -> None:
    desk, memory = a_desk()
    for name in "abc":
        desk.submit(a_job(name, gpus=8, at=5.0), now=5.0)
    desk.core.withdrawn("b", 6.0)
    assert [past.job.job_id for past in memory.came()] == ["a", "c"]
    desk.submit(a_job("d", gpus=8, at=9 * DAY_S), now=9 * DAY_S)
    desk.core.withdrawn("c", 9 * DAY_S)  # it came before the days that are remembered
    assert [past.job.job_id for past in memory.came()] == ["d"]


def test_one_told_of_long_after_it_came_is_none_of_the_last_days() -> None:
    desk, memory = a_desk()
    desk.submit(a_job("late", gpus=8, at=0.0), now=9 * DAY_S)
    assert not list(memory.came())
    assert memory.of("late") is not None


class NotBefore(FifoSkip):
    """Starts nothing before a time, and asks to be woken then."""

    opens = 300.0

    def next_wake(self, now: float) -> float | None:
        return self.opens if now < self.opens else None

    def serve(self, turn: Any) -> None:
        if turn.now >= self.opens:
            super().serve(turn)


def test_a_future_goes_on_at_the_time_a_policy_asks_for() -> None:
    """Nothing else happens then: what runs ends later."""
    policy = NotBefore()
    policy.opens = 0.0
    desk = Desk(policy, cluster_of(nodes=1))
    memory = desk.core.estimator = Memory(desk.estimator, asks=True, durations=Sure())
    desk.submit(a_job("runs", gpus=4))
    policy.opens = 300.0
    desk.submit(a_job("waits", gpus=4), now=100.0)
    made = Futures(desk.core, memory, 100.0).forecast(["waits"], samples=9)
    assert made["waits"].start_p50 == 300.0
