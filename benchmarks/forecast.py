"""Calibration of the start forecasts: a replay of Venus, forecasts made at submission, scored.

    python -m benchmarks.forecast --json [--data ../shared/data]

Track `honest`, policy `pellucid`, seed 0; forecasts are scored on the last two weeks (from
--from-day on). After the pass at its submission a job runs (its start is known, and counted as
such), is looked at in the profiling partition, or stands in line. Everybody in line, and of those
being looked at a random sample (--share, chosen by job id), is forecast by running the core forward
(--futures per forecast) from a snapshot taken right after that pass; the correction learns from
these alone, as their starts come in, beginning at none.

Coverage is the share of jobs that start no later than promised: `in_line` of those that had to
wait for GPUs, `later` of all that started later than they were submitted (most of them right
after a look of 200 s, as promised), `all` of everybody. Where many futures start at the same
moment a promise at 90 % is kept by more than 90 %; `randomised` counts such ties as a continuous
forecast would (Czado, Gneiting and Held, Biometrics 2009: the randomised probability integral
transform, in expectation).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from features.job import Job
from pipeline.tracks import open_scenario
from pipeline.tracks.scenario import Scenario
from scheduler.core import Core, QueuedJob
from scheduler.engine import Engine
from scheduler.service.analyst.calibration import Correction, calibration, scored
from scheduler.service.analyst.forecast import Forecast, Futures
from scheduler.service.analyst.future import AGAIN
from scheduler.service.analyst.memory import DAY_S, Memory
from scheduler.sharing import Judge, Verdict

BUDGET = Path(__file__).with_name("forecast_budget.json")
FROM_DAY = 12.0  # the trace has 26


class SameJob:
    """A judge that takes a job that comes again for the one it was.

    The track's judge looks up, by id, which models have not seen a job.
    """

    def __init__(self, judge: Judge):
        self._judge = judge

    def verdict(self, newcomer: QueuedJob, partner: QueuedJob) -> Verdict | None:
        return self._judge.verdict(_original(newcomer), _original(partner))


def _original(queued: QueuedJob) -> QueuedJob:
    job_id, again, _ = queued.job.job_id.partition(AGAIN)
    if not again:
        return queued
    found = QueuedJob(replace(queued.job, job_id=job_id), queued.seq)
    found.profile = queued.profile
    return found


class Watching(Memory):
    """Also keeps who was submitted since the last look."""

    fresh: list[str]

    def submitted(self, job: Job, now: float) -> None:
        super().submitted(job, now)
        self.fresh.append(job.job_id)


@dataclass
class Replay:
    """A replay in which forecasts are made.

    Attributes:
        raw, told: forecasts by job, before and after the correction.
        in_line: jobs forecast that stood in line.
        at_once: jobs started by the pass at their submission.
        looked_at: jobs being looked at then, forecast or not.
    """

    scenario: Scenario
    policy: str
    share: float
    futures: int
    window: tuple[float, float]
    at_once: int = 0
    looked_at: int = 0
    raw: dict[str, Forecast] = field(default_factory=dict)
    told: dict[str, Forecast] = field(default_factory=dict)
    in_line: set[str] = field(default_factory=set)
    correction: Correction = field(default_factory=Correction)
    cpu_s: float = 0.0

    def run(self) -> dict[str, float | None]:
        """Replay; start times by job."""
        scenario, name = self.scenario, self.policy
        policy = scenario.policy(name)
        if getattr(policy, "judge", None) is not None:
            policy.judge = SameJob(policy.judge)  # type: ignore[attr-defined]
        memory = Watching(scenario.estimators(policy))
        memory.fresh = []
        core = Core(scenario.cluster(policy), policy, memory, profiling=scenario.stage(policy))
        replay, first = self, scenario.workload.jobs[0].submit_time

        waits: dict[str, None] = {}

        class Foreseen(Engine):
            """Looks ahead after every pass."""

            def _decided(self, now: float) -> None:
                fresh, memory.fresh = memory.fresh, []
                for job_id in list(waits):
                    start = self.results[job_id].start_time
                    if start is not None:
                        replay.correction.started(job_id, start)
                        del waits[job_id]
                replay.correction.passed(now)
                if not replay.window[0] <= (now - first) / DAY_S < replay.window[1]:
                    return
                for job_id in fresh:
                    if replay.look(core, memory, job_id, now):
                        waits[job_id] = None

        work = scenario.workload
        engine = Foreseen(core, work.jobs, work.work, scenario.speed, quirks=scenario.quirks)
        return {r.job.job_id: r.start_time for r in engine.run().jobs}

    def look(self, core: Core, memory: Memory, job_id: str, now: float) -> bool:
        """Forecast a job just submitted; False when there is nothing to wait for."""
        run = core.cluster.runs.get(job_id)
        if job_id not in core.jobs() or (run is not None and not run.profiling):
            self.at_once += 1
            return False
        if run is not None:
            self.looked_at += 1
            drawn = int.from_bytes(blake2b(job_id.encode(), digest_size=4).digest(), "big") / 2**32
            if drawn >= self.share:
                return False
        began = time.process_time()
        raw = Futures(core, memory, now).forecast([job_id], samples=self.futures)[job_id]
        told = self.correction.corrected(raw)
        self.correction.promised(job_id, told)
        self.raw[job_id], self.told[job_id] = raw, told
        if run is None:
            self.in_line.add(job_id)
        self.cpu_s += time.process_time() - began
        return True


def kept_in_expectation(made: Forecast, start: float, level: float) -> float:
    """How far a start counts as within the level when ties are broken at random."""
    below = sum(s < start - 1e-6 for s in made.starts) / len(made.starts)
    tied = sum(abs(s - start) <= 1e-6 for s in made.starts) / len(made.starts)
    if not tied:
        return float(below < level)
    return min(1.0, max(0.0, (level - below) / tied))


def measure(
    data: Path,
    *,
    policy: str = "pellucid",
    seed: int = 0,
    share: float = 0.05,
    futures: int = 32,
    window: tuple[float, float] = (FROM_DAY, 1e9),
) -> dict[str, Any]:
    """Every figure, and whether it is within its bounds."""
    began = time.process_time()
    scenario = open_scenario(data / "venus", track="honest", seed=seed)
    replay = Replay(scenario, policy, share, futures, window)
    starts = replay.run()

    done = [job_id for job_id in replay.told if starts[job_id] is not None]
    sampled = len(done) - sum(job_id in replay.in_line for job_id in done)
    weight = {True: 1.0, False: replay.looked_at / max(1, sampled)}  # by: in line
    weights = {job_id: weight[job_id in replay.in_line] for job_id in done}
    everybody = sum(weights.values()) + replay.at_once
    bounds = json.loads(BUDGET.read_text())

    def table(made: dict[str, Forecast]) -> dict[str, Any]:
        pairs = {job_id: (made[job_id], starts[job_id] or 0.0) for job_id in done}
        all_, line = scored(pairs.values()), scored(pairs[j] for j in done if j in replay.in_line)
        return {"in_line": calibration(line)["all"], **calibration(all_)}

    told, raw = table(replay.told), table(replay.raw)
    kept = replay.at_once + sum(
        weights[j]
        for j in done
        if (p90 := replay.told[j].start_p90) is not None and (starts[j] or 0.0) <= p90 + 1e-6
    )
    ties = {j: kept_in_expectation(replay.raw[j], starts[j] or 0.0, 0.9) for j in done}
    return {
        "policy": policy,
        "seed": seed,
        "days": [window[0], min(window[1], 26.0)],
        "started_at_once": replay.at_once,
        "looked_at": replay.looked_at,
        "in_line": len(replay.in_line),
        "forecast": len(done),
        "futures": futures,
        "p90": {
            "in_line": told["in_line"]["p90"],
            "later": told["waited"]["p90"],
            "all": kept / everybody,
        },
        "p90_randomised_uncorrected": {
            "in_line": _mean([ties[j] for j in done if j in replay.in_line]),
            "later": _mean([ties[j] for j in done if starts[j] != replay.raw[j].made_at]),
            "all": (sum(ties[j] * weights[j] for j in done) + 0.9 * replay.at_once) / everybody,
        },
        "corrected": told,
        "uncorrected": raw,
        "stretch": replay.correction.stretches,
        "cpu_s_per_forecast": replay.cpu_s / max(1, len(done)),
        "cpu_s": time.process_time() - began,
        "bounds": bounds,
        "holds": bounds["p90_least"] <= told["in_line"]["p90"] <= bounds["p90_most"],
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--policy", default="pellucid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.05, help="of those looked at, forecast")
    parser.add_argument("--futures", type=int, default=32, help="run per forecast")
    parser.add_argument("--from-day", type=float, default=FROM_DAY)
    parser.add_argument("--to-day", type=float, default=1e9)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    a = parser.parse_args()
    figures = measure(
        a.data,
        policy=a.policy,
        seed=a.seed,
        share=a.share,
        futures=a.futures,
        window=(a.from_day, a.to_day),
    )
    if a.json:
        print(json.dumps(figures, indent=2))
    else:
        print(
            f"{figures['forecast']} forecasts: p90 kept by {figures['p90']['in_line']:.1%} of the "
            f"jobs in line, by {figures['p90']['all']:.1%} of all; {figures['cpu_s']:.0f} CPU s"
        )
    sys.exit(0 if figures["holds"] else 1)


if __name__ == "__main__":
    main()
