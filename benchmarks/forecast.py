"""Calibration of the start forecasts: a replay of Venus, forecasts made at submission, scored.

    python -m benchmarks.forecast --json [--data ../shared/data] [--durations-known]

Track `honest`, policy `pellucid`, seed 0. Forecasts are made and scored on the last two weeks (from
--from-day on); what becomes of those that wait is learned from the first day on (`Waits`). After
the pass at its submission a job runs (its start is known), is profiled, or stands in line. All in
line, and of those being profiled a random sample (--share, chosen by job id), is forecast by
running the core forward (--futures) from a snapshot taken right after that pass.

Coverage is the share of jobs that start no later than their p90: `in_line` of those that had to
wait for GPUs, `open` of all whose start was not certain, `all` of everybody. The jobs one user
sends within an hour, a batch, are late together, so that many jobs may be few events. Told with
every coverage are therefore `batches`, `batches_effective` (n^2 / sum n_i^2: as many batches of one
size would say as much), `p90_per_batch` (every batch counted once) and `interval`, 90 % of a
bootstrap over batches.

With --durations-known the futures know how long every job in the core will run and only who comes
later is unknown: what no better prediction of durations would exceed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.forecast_scores import calibration, scored
from features.job import Job
from pipeline.worlds import open_scenario
from pipeline.worlds.scenario import Scenario
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.core.durations import Quantiles
from scheduler.core.estimates import Estimator
from scheduler.explain.whatif.forecasts import Futures, StartForecast, crude
from scheduler.explain.whatif.memory import DAY_S, Memory, SubmittedJob
from scheduler.explain.whatif.waits import Waits
from scheduler.simulation.engine import Engine

BUDGET = Path(__file__).with_name("forecast_budget.json")
FROM_DAY, DAYS = 12.0, 26.0  # of the trace
DRAWS = 2000  # of the bootstrap


class Watching(Memory):
    """Also keeps who was submitted since the last look, and may know the truth.

    Args:
        truth: seconds each job runs; None: unknown.
    """

    def __init__(self, inner: Estimator, truth: Mapping[str, float] | None):
        super().__init__(inner)
        self.fresh: list[str] = []
        self._truth = truth

    def submitted(self, job: Job, now: float) -> None:
        super().submitted(job, now)
        self.fresh.append(job.job_id)

    def quantiles(
        self, past: SubmittedJob, elapsed_s: float = 0.0, core: Core | None = None
    ) -> Quantiles:
        if self._truth is None:
            return super().quantiles(past, elapsed_s, core)
        return (max(self._truth[past.job.job_id], elapsed_s),)


@dataclass
class Replay:
    """A replay in which forecasts are made.

    Attributes:
        raw, told: forecasts by job, of futures alone, and as told: mixed with queue figures.
        in_line: jobs forecast that stood in line.
        at_once: jobs started by the pass at their submission, in the days that are scored.
        looked_at: jobs being profiled then, forecast or not.
    """

    scenario: Scenario
    policy: str
    share: float
    futures: int
    days: tuple[float, float]
    durations_known: bool = False
    at_once: int = 0
    looked_at: int = 0
    raw: dict[str, StartForecast] = field(default_factory=dict)
    told: dict[str, StartForecast] = field(default_factory=dict)
    in_line: set[str] = field(default_factory=set)
    waits: Waits = field(default_factory=Waits)
    made: int = 0
    cpu_s: float = 0.0

    def run(self) -> dict[str, float | None]:
        """Replay; start times by job."""
        scenario, replay, work = self.scenario, self, self.scenario.workload
        policy = scenario.policy(self.policy)
        truth = {job_id: w.duration_s for job_id, w in work.work.items()}
        memory = Watching(scenario.estimators(policy), truth if self.durations_known else None)
        core = scenario.core(policy, memory)
        first = work.jobs[0].submit_time

        class Foreseen(Engine):
            """Looks ahead after every pass."""

            def _decided(self, now: float) -> None:
                fresh, memory.fresh = memory.fresh, []
                replay.waits.look(core, memory, now)
                if replay.days[0] <= (now - first) / DAY_S < replay.days[1]:
                    replay.look(core, memory, fresh, now)

            def _carry_out(self, decisions: list[Decision], now: float) -> None:
                super()._carry_out(decisions, now)
                for d in decisions:
                    if d.action in (Action.START, Action.PACK):
                        waited_s = now - core.jobs[d.job_id].job.submit_time
                        replay.waits.started(d.job_id, now, waited_s)

        engine = Foreseen(core, work.jobs, work.work, scenario.speed, quirks=scenario.quirks)
        return {r.job.job_id: r.start_time for r in engine.run().jobs}

    def look(self, core: Core, memory: Memory, fresh: Collection[str], now: float) -> None:
        """Forecast jobs just submitted, together; those that had something to wait for."""
        line, looked = [], []
        for job_id in fresh:
            run = core.cluster.runs.get(job_id)
            if job_id not in core.jobs or (run is not None and not run.profiling):
                self.at_once += 1
            elif run is None:
                line.append(job_id)
            else:
                self.looked_at += 1
                if _chance(job_id) < self.share:
                    looked.append(job_id)
        wanted = line + looked
        if not wanted:
            return
        began = time.process_time()
        made = Futures(core, memory, now).forecast(wanted, samples=self.futures)
        self.raw |= made
        self.told |= self.waits.corrected(core, made, crude(core, memory, now), now)
        self.in_line.update(line)
        self.made += len(wanted)
        self.cpu_s += time.process_time() - began
        print(f"{self.made} forecasts, {self.cpu_s:.0f} CPU s", file=sys.stderr, flush=True)


def _chance(job_id: str) -> float:
    return int.from_bytes(blake2b(job_id.encode(), digest_size=4).digest(), "big") / 2**32


def coverage(kept: Mapping[str, bool], jobs: Mapping[str, Job]) -> dict[str, Any]:
    """The share kept, over jobs and over batches, and how sure one can be of it.

    Args:
        kept: by job, whether it started by its p90.
    """
    by_batch: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for job_id, one in kept.items():
        job = jobs[job_id]
        by_batch[job.user, int(job.submit_time // 3600)].append(one)
    batches = [(sum(one), len(one)) for one in by_batch.values()]
    if not batches:
        return {"jobs": 0, "p90": None}
    rng, shares = random.Random(0), []
    for _ in range(DRAWS):
        drawn = rng.choices(batches, k=len(batches))
        shares.append(sum(k for k, _ in drawn) / sum(n for _, n in drawn))
    shares.sort()
    return {
        "jobs": len(kept),
        "p90": fmean(kept.values()),
        "interval": [shares[DRAWS // 20], shares[-DRAWS // 20]],
        "batches": len(batches),
        "batches_effective": len(kept) ** 2 / sum(n * n for _, n in batches),
        "largest_batch": max(n for _, n in batches),
        "p90_per_batch": fmean(k / n for k, n in batches),
    }


def measure(
    data: Path,
    *,
    policy: str = "pellucid",
    seed: int = 0,
    share: float = 0.03,
    futures: int = 24,
    days: tuple[float, float] = (FROM_DAY, DAYS),
    durations_known: bool = False,
) -> dict[str, Any]:
    """Every figure, and whether it is within its bounds."""
    began = time.process_time()
    scenario = open_scenario(data / "venus", track="honest", seed=seed)
    replay = Replay(scenario, policy, share, futures, days, durations_known)
    starts = replay.run()
    jobs = {job.job_id: job for job in scenario.workload.jobs}
    done = {j: start for j in replay.told if (start := starts[j]) is not None}
    line = [j for j in done if j in replay.in_line]
    looked = [j for j in done if j not in replay.in_line]
    weight = replay.looked_at / max(1, len(looked))  # of each in the sample

    def table(made: Mapping[str, StartForecast]) -> dict[str, Any]:
        p90 = {j: one.start_p90 for j, one in made.items()}
        kept = {j: at <= p + 1e-6 for j, at in done.items() if (p := p90[j]) is not None}
        of_line = {j: kept[j] for j in line if j in kept}
        of_open = {j: k for j, k in kept.items() if made[j].start_p50 != p90[j]}
        of_looked = [kept[j] for j in looked if j in kept]
        everybody = replay.at_once + len(of_line) + weight * len(of_looked)
        return {
            "in_line": coverage(of_line, jobs),
            "open": coverage(of_open, jobs),
            "all": (replay.at_once + sum(of_line.values()) + weight * sum(of_looked)) / everybody,
            "in_line_scores": calibration(scored((made[j], done[j]) for j in line)),
        }

    told, bounds = table(replay.told), json.loads(BUDGET.read_text())
    p90 = told["in_line"]["p90"]
    return {
        "policy": policy,
        "seed": seed,
        "days": list(days),
        "durations_known": durations_known,
        "futures": futures,
        "started_at_once": replay.at_once,
        "looked_at": replay.looked_at,
        "looked_at_share_forecast": share,
        "in_line": len(replay.in_line),
        "told": told,
        "futures_alone": table(replay.raw),
        "learned": replay.waits.learned,
        "cpu_s_per_forecast": replay.cpu_s / max(1, replay.made),
        "cpu_s": time.process_time() - began,
        "bounds": bounds,
        "holds": p90 is not None and bounds["p90_least"] <= p90 <= bounds["p90_most"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--policy", default="pellucid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.03, help="of those profiled, forecast")
    parser.add_argument("--futures", type=int, default=24, help="run per forecast")
    parser.add_argument("--from-day", type=float, default=FROM_DAY, help="forecasts are made")
    parser.add_argument("--to-day", type=float, default=DAYS)
    parser.add_argument("--durations-known", action="store_true", help="the bound")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    a = parser.parse_args()
    figures = measure(
        a.data,
        policy=a.policy,
        seed=a.seed,
        share=a.share,
        futures=a.futures,
        days=(a.from_day, a.to_day),
        durations_known=a.durations_known,
    )
    if a.json:
        print(json.dumps(figures, indent=2))
    else:
        line = figures["told"]["in_line"]
        print(
            f"p90 kept by {line['p90']:.1%} of {line['jobs']} jobs in line, by "
            f"{line['p90_per_batch']:.1%} of their {line['batches']} batches; "
            f"{figures['cpu_s']:.0f} CPU s"
        )
    sys.exit(0 if figures["holds"] else 1)


if __name__ == "__main__":
    main()
