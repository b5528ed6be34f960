"""Forecasts made for the waits that are audited, and what came of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, quantiles
from typing import Any

from benchmarks.forecast_scores import pinball
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision
from scheduler.explain.whatif.forecasts import Futures, StartForecast, crude
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.waits import Waits
from scheduler.explain.words import Estimate

RECENT = 100  # starts of a virtual cluster whose waits are averaged
HORIZONS = ("minutes", "hours", "days")  # of promised waits, and where they begin and end
WAITS_S = (0.0, 3600.0, 86_400.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Rule:
    """A start that a simple rule foresees, seconds from now."""

    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Foretold:
    """A forecast of a waiting job, seconds from when it was made, and what came of it.

    Attributes:
        batch: what one user sent within an hour.
        p50, p90: as told; None: there was none.
        crude: there was no time for futures.
        average: by the waits of late in its virtual cluster; None before any.
        roughly: work ahead of it over GPUs; None: never.
        true: seconds until it started.
    """

    batch: str
    p50: float | None
    p90: float | None
    average: Rule | None
    roughly: float | None
    true: float
    crude: bool = False


class Promises:
    """Makes forecasts as the analyst does, and remembers them until the job has started.

    The first made of a job is the one that is scored.
    """

    def __init__(self, memory: Memory):
        self.memory = memory
        self.waits = Waits()
        self._open: dict[str, tuple[str, StartForecast, Rule | None, float | None]] = {}
        self._scored: list[Foretold] = []
        self._recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))

    def decided(self, decisions: Sequence[Decision], core: Core, now: float) -> None:
        """Who was given GPUs, profiling apart."""
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
            true, is_crude = now - made.made_at, made.estimate == Estimate.CRUDE
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
        """Forecasts of waiting jobs as they are told; the first of each is kept to be scored."""
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
        """The mean wait of late and the ninth decile, less what it has waited."""
        waits = self._recent[vc]
        if len(waits) < 2:
            return None
        p90 = quantiles(waits, n=10)[-1]
        return Rule(max(0.0, fmean(waits) - waited_s), max(0.0, p90 - waited_s))

    def scored(self) -> list[Foretold]:
        """Forecasts of jobs that have started since."""
        return self._scored


def forecasts(scored: Sequence[Foretold]) -> dict[str, Any]:
    """Coverage over jobs and over batches, by promised wait, and the loss beside simple rules.

    Crude forecasts are scored apart.
    """
    told = [one for one in scored if one.p90 is not None and not one.crude]
    return {
        "jobs": len(scored),
        "jobs_p90": _kept(told),
        "batches_p90": _batches(told),
        "batches": len({one.batch for one in told}),
        "by_wait": [
            _of_wait(name, mine)
            for name, (low, high) in zip(HORIZONS, pairwise(WAITS_S), strict=True)
            if (mine := [o for o in told if o.p90 is not None and low <= o.p90 < high])
        ],
        "jobs_without_any": sum(one.p50 is None for one in scored),
        "jobs_without_p90": sum(one.p90 is None for one in scored),
        "jobs_crude": sum(one.crude for one in scored),
        "crude_p90": _kept([one for one in scored if one.crude]),
        "pinball": _losses(scored),
    }  # fmt: skip


def _of_wait(name: str, mine: Sequence[Foretold]) -> dict[str, Any]:
    """Of forecasts of one horizon: kept at either level, and how wide between them, seconds."""
    even = [one.true <= one.p50 + 1e-6 for one in mine if one.p50 is not None]
    widths = [one.p90 - one.p50 for one in mine if one.p90 is not None and one.p50 is not None]
    return {
        "horizon": name,
        "jobs": len(mine),
        "p50": round(fmean(even), 4) if even else None,
        "p90": _kept(mine),
        "batches_p90": _batches(mine),
        "width_s": round(median(widths), 1) if widths else None,
    }


def _kept(told: Sequence[Foretold]) -> float | None:
    kept = [one.true <= one.p90 + 1e-6 for one in told if one.p90 is not None]
    return round(fmean(kept), 4) if kept else None


def _batches(told: Sequence[Foretold]) -> float | None:
    by: dict[str, list[Foretold]] = defaultdict(list)
    for one in told:
        by[one.batch].append(one)
    shares = [share for mine in by.values() if (share := _kept(mine)) is not None]
    return round(fmean(shares), 4) if shares else None


def _losses(scored: Sequence[Foretold]) -> Mapping[str, Any]:
    """Mean pinball loss in seconds, over forecasts for which all three rules say something."""
    rows = [(one, one.p50, one.p90, one.average, one.roughly) for one in scored]
    full = [
        (one.true, p50, p90, average, roughly)
        for one, p50, p90, average, roughly in rows
        if p50 is not None and p90 is not None and average is not None and roughly is not None
    ]
    if not full:
        return {"jobs": 0}

    def mean(values: list[float]) -> float:
        return round(fmean(values), 1)

    return {
        "jobs": len(full),
        "p50_s": mean([pinball(p50, true, 0.5) for true, p50, _, _, _ in full]),
        "p90_s": mean([pinball(p90, true, 0.9) for true, _, p90, _, _ in full]),
        "moving_average_p50_s": mean([pinball(a.p50, true, 0.5) for true, _, _, a, _ in full]),
        "moving_average_p90_s": mean([pinball(a.p90, true, 0.9) for true, _, _, a, _ in full]),
        "crude_p50_s": mean([pinball(r, true, 0.5) for true, _, _, _, r in full]),
        "crude_p90_s": mean([pinball(r, true, 0.9) for true, _, _, _, r in full]),
    }
