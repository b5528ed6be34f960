"""Carries out what is offered to waiting jobs, and scores it: does the job start within the time
stated, and run at the speed stated?

    python -m benchmarks.explanations.advice --seeds 91 92 93 --only small --json

Each offer is carried out in a forked copy of the world for which it was made. The copy is played on
with what no forecast can know: later submissions and true durations. A job that is said to start at
once has to start within `SOON_S` seconds, any other by the p90 of the offer. A speed is right
within `SPEED`; speeds that are said to be guesses from usual jobs are not judged, nor are ends. A
trial that fails is counted, and with any such the figure does not hold.

The worlds "small" and "queued" have 600 jobs, another trace for each seed, and need no shared data.
In "queued", jobs ask for more than the GPUs can do, and share none, so that later starts are
offered; under Pellucid nearly all offers are of a start at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.calibration import program
from benchmarks.explanations.audit import FUTURES, SUGGEST_S, Audited, _Started
from benchmarks.explanations.judge import TrialFailed, aside, change
from benchmarks.explanations.worlds import WORLDS, AuditWorld
from pipeline.traces.synthetic import generate as synthetic
from pipeline.traces.synthetic.config import SyntheticConfig
from pipeline.worlds import open_scenario
from pipeline.worlds.scenario import Scenario
from scheduler.core.decisions import STARTS, Decision
from scheduler.explain.claims import GRACE_S, SOON_S, SPEED
from scheduler.explain.whatif.counterfactuals import Outcome, WhatIf
from scheduler.explain.whatif.forecasts import Futures

OF_ONE = 3  # offers of one job, as they are shown
AIM = 0.9
QUEUED = 1.3  # offered load


def _small(_: Path, seed: int) -> Scenario:
    """Return the scenario of a small synthetic trace with this seed."""
    return _made(synthetic.default_config("small", seed))


def _queued(_: Path, seed: int) -> Scenario:
    """Return the scenario of such a trace with more work than its GPUs can do in its time."""
    given = synthetic.default_config("small", seed)
    return _made(replace(given, vcs=tuple(replace(vc, load=QUEUED) for vc in given.vcs)))


def _made(config: SyntheticConfig) -> Scenario:
    with TemporaryDirectory() as folder:
        synthetic.write(config, Path(folder))
        return open_scenario(Path(folder), durations="own")


PLAYED = [
    AuditWorld("small", _small),
    AuditWorld("queued", _queued, policy="sjf"),
    *(one for one in WORLDS if one.policy == "pellucid"),
]
NAMES = [world.name for world in PLAYED]


@dataclass(frozen=True, slots=True)
class Scored:
    """One offer that was carried out.

    Attributes:
        kind: "at once" or "later".
        start, speed: whether either was as stated; None: nothing was stated.
        beside: whether the job was to share the GPUs of another.
    """

    kind: str
    beside: bool
    start: bool | None
    speed: bool | None


class Advised(Audited):
    """An engine that stops at moments of its world and carries out what jobs are offered there, in
    copies of itself.
    """

    scored: list[Scored]
    failed: list[str]  # errors of trials

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        super(Audited, self)._carry_out(decisions, now)
        tried = self._tried
        if tried and any(d.job_id == tried and d.action in STARTS for d in decisions):
            raise _Started

    def _starts(self, job_id: str, now: float) -> None:
        self._began.setdefault(job_id, []).append(now)

    def _look(self, chosen: Sequence[str], now: float) -> None:
        futures = Futures(self.core, self.memory, now)
        asking = WhatIf(futures, lambda job: self.memory.predicted(job, now), FUTURES, SUGGEST_S)
        for job_id in chosen[:2]:
            vcs = [vc for vc in self.core.queues if vc != self.core.jobs[job_id].job.vc]
            for one in asking.suggestions(job_id, vcs[:2], most=OF_ONE):
                self._looked_at += 1
                try:
                    self.scored.append(self._made(one, job_id, now))
                except TrialFailed as error:
                    self.failed.append(f"{job_id} {one.change.words()}: {error}")

    def _made(self, one: Outcome, job_id: str, now: float) -> Scored:
        """Carry out a suggested change in a forked copy of the simulation. Return how the
        suggestion turned out: whether the job started in time, and at which speed."""

        def act() -> tuple[float, float]:
            self.wanted, self._tried = 0, job_id
            with suppress(_Started):
                change(self.core, one.change.body(), job_id, now)
                self._carry_out(self.core.decide(now), now)
                self._plan_wake(now)
                self.run()
            run = self._running.get(job_id)
            return (inf, 0.0) if run is None else (run.started, run.rate / self._alone(run))

        started, speed = aside(act)
        due = now + SOON_S if one.starts_now else one.then.start_p90
        stated = None if one.beside and one.guessed else one.speed
        return Scored(
            kind="at once" if one.starts_now else "later",
            beside=one.beside,
            start=None if due is None else started <= due + GRACE_S,
            speed=None if stated is None else abs(speed - stated) <= SPEED,
        )


def advised(
    world: AuditWorld, data: Path, seed: int, wanted: int
) -> tuple[list[Scored], list[str]]:
    """Simulate a world (a cluster with its jobs) and follow at most about `wanted` of the
    suggestions made in it. Return how each turned out (whether its job started in time and ran at
    the stated speed), and the errors of those whose trial failed."""
    engine = Advised(world, data, seed, wanted)
    engine.scored, engine.failed = [], []
    engine.run()
    return engine.scored, engine.failed


def shares(found: Sequence[Scored], failed: int = 0) -> Mapping[str, Any]:
    """Return how many offers were carried out, and the shares that started in time and ran at the
    speed stated; None where none was stated. `failed`: trials that told nothing."""

    def of(values: Sequence[bool | None]) -> tuple[int, float | None]:
        known = [value for value in values if value is not None]
        return len(known), round(sum(known) / len(known), 3) if known else None

    starts, speeds = of([one.start for one in found]), of([one.speed for one in found])
    beside = of([one.speed for one in found if one.beside])
    later = of([one.start for one in found if one.kind == "later"])
    return {
        "offers": len(found),
        "failed": failed,
        "starts": starts[0],
        "started_in_time": starts[1],
        "later": later[0],
        "later_in_time": later[1],
        "speeds": speeds[0],
        "speed_right": speeds[1],
        "beside": beside[0],
        "beside_right": beside[1],
    }


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Carry out offers in each world that was asked for. Return the shares (`shares`) for each
    world and for all, and whether the aims hold."""
    found: dict[str, list[Scored]] = {}
    failed: dict[str, list[str]] = {}
    for seed in asked.seeds:
        for world in PLAYED:
            left = asked.offers - sum(map(len, found.values()))
            if world.name in asked.only and left > 0:
                each = min(left, max(1, asked.offers // (len(asked.only) * len(asked.seeds))))
                scored, errors = advised(world, asked.data, seed, each)
                found.setdefault(world.name, []).extend(scored)
                failed.setdefault(world.name, []).extend(errors)
                so_far = shares(found[world.name], len(failed[world.name]))
                print(world.name, seed, so_far, *errors, file=sys.stderr, flush=True)
    lost = sum(map(len, failed.values()))
    whole = shares([one for scored in found.values() for one in scored], lost)
    held = [whole[name] for name in ("started_in_time", "speed_right")]
    holds = not lost and all(one is not None and one >= AIM for one in held)
    return {
        **{name: shares(scored, len(failed[name])) for name, scored in found.items()},
        "all": whole,
        "holds": holds,
    }


def main() -> None:
    program(
        __doc__,
        None,
        measure,
        seeds={"nargs": "+", "type": int, "default": [41]},
        offers={"type": int, "default": 200},
        only={"nargs": "+", "default": NAMES, "choices": NAMES, "metavar": "WORLD"},
        data={"type": Path, "default": Path("../shared/data")},
    )


if __name__ == "__main__":
    main()
