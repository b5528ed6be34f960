"""Makes forecasts of starts for the waits that are audited, and scores how they turned out."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from statistics import fmean, quantiles
from typing import Any

from benchmarks.explanations.foretold import Foretold, Rule
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.explain.whatif.forecasts import Futures, StartForecast, crude
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.waits import Waits
from scheduler.explain.words import ForecastKind

RECENT = 100  # starts of a virtual cluster whose waits are averaged


class Promises:
    """Makes forecasts as the service's analyst does, and remembers them until the jobs have
    started. Of each job, the first forecast is scored.
    """

    def __init__(self, memory: Memory):
        self.memory = memory
        self.waits = Waits()
        self._open: dict[str, tuple[str, StartForecast, Rule | None, float | None]] = {}
        self._scored: list[Foretold] = []
        self._recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))

    def decided(self, decisions: Sequence[Decision], core: Core, now: float) -> None:
        """Take in decisions: record which jobs were given GPUs, profiling not counted."""
        for d in decisions:
            if d.action not in (Action.START, Action.PACK):
                continue
            waited_s = now - core.jobs[d.job_id].job.submit_time
            self._recent[d.vc].append(waited_s)
            self.waits.started(d.job_id, now, waited_s)
            promised = self._open.pop(d.job_id, None)
            if promised is None:
                continue
            batch, made, average, roughly = promised
            p50, p90 = (
                None if at is None else at - made.made_at for at in (made.start_p50, made.start_p90)
            )
            true, is_crude = now - made.made_at, made.estimate == ForecastKind.CRUDE
            self._scored.append(Foretold(batch, p50, p90, average, roughly, true, is_crude))
        self.waits.look(core, self.memory, now)

    def made(
        self,
        futures: Futures,
        core: Core,
        jobs: Sequence[str],
        samples: int,
        budget_s: float,
    ) -> dict[str, dict[str, Any]]:
        """Forecast the starts of waiting jobs. Return the forecasts in the form that answers have.
        The first forecast of each job is kept to be scored.

        Args:
            samples: number of simulated futures for each forecast.
            budget_s: seconds that the forecasts may take.
        """
        now = futures.now
        raw = futures.forecast(jobs, samples=samples, budget_s=budget_s)
        roughly = crude(core, self.memory, now)
        mixed = self.waits.corrected(core, raw, roughly, now)
        told: dict[str, dict[str, Any]] = {}
        for job_id in jobs:
            job = core.jobs[job_id].job
            one = mixed[job_id]
            told[job_id] = {
                name: getattr(one, name) for name in ("start_p50", "start_p90", "why_not")
            }
            if job_id in self._open:
                continue
            batch = f"{job.user}/{job.submit_time // 3600:.0f}"
            at = roughly[job_id].start_p50
            self._open[job_id] = (
                batch,
                one,
                self._average(job.vc, now - job.submit_time),
                (None if at is None else at - now),
            )
        return told

    def _average(self, vc: str, waited_s: float) -> Rule | None:
        """Return a forecast by recent waits: their mean and ninth decile, less what the job has
        waited, at least 0. Return None with fewer than two waits.
        """
        waits = self._recent[vc]
        if len(waits) < 2:
            return None
        p90 = quantiles(waits, n=10)[-1]
        return Rule(max(0.0, fmean(waits) - waited_s), max(0.0, p90 - waited_s))

    def scored(self) -> list[Foretold]:
        """Return the kept forecasts of jobs that have started, with the true starts."""
        return self._scored
