"""Scores forecasts of starts: how often they held, by how far ahead they looked, and how wide they
were.

Forecasts of a service are read from its log (`of_log`), as recorded at submission.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from benchmarks.explanations.log import Log

HORIZONS = ("minutes", "hours", "days")  # of promised waits, and where they begin and end
SOON_S = 600.0
WAITS_S = (float("-inf"), 3600.0, 86_400.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Rule:
    """A start predicted by a simple rule: a median and a ninth decile, in seconds from now."""

    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Foretold:
    """A forecast of a waiting job's start, and the true start, in seconds from when the forecast
    was made.

    Attributes:
        batch: identifies what one user submitted within an hour.
        p50, p90: the forecast median and ninth decile; None: there was none.
        crude: the forecast was made by a simple rule, for lack of time to simulate futures.
        average: prediction from recent waits in the same virtual cluster; None: there were none.
        roughly: prediction from the work ahead of the job divided by the GPUs; None: never.
        true: seconds until the job started.
    """

    batch: str
    p50: float | None
    p90: float | None
    average: Rule | None
    roughly: float | None
    true: float
    crude: bool = False


def of_log(log: Log) -> Iterator[Foretold]:
    """Yield the forecasts recorded at submission, for a service's jobs that have started.

    Jobs that already had GPUs when the forecast was made are left out: nothing was forecast of
    them.
    """
    moment = log.until(log.head)
    for job_id, made in moment.forecasts.items():
        rows = moment.by_job.get(job_id, ())
        given = next((r["at"] for r in rows if r["body"]["action"] in ("start", "pack")), None)
        if given is None:
            continue
        asked, at = moment.asked[job_id], made["made_at"]
        if given <= at and made.get("start_p90") == given:
            continue
        p50, p90 = (
            None if made.get(name) is None else made[name] - at
            for name in ("start_p50", "start_p90")
        )
        batch = f"{asked['owner']}/{asked['submitted_at'] // 3600:.0f}"
        crude = made.get("estimate") == "crude"
        yield Foretold(batch, p50, p90, None, None, max(0.0, given - at), crude)


def forecasts(scored: Sequence[Foretold]) -> dict[str, Any]:
    """Return the shares of forecasts that held, over jobs and over batches, by promised wait, and
    the losses compared with simple rules.

    Forecasts made by the crude rule are scored apart.
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
        "under_ten_minutes": _of_wait(
            "ten minutes", [o for o in told if o.p90 is not None and o.p90 < SOON_S]
        ),
        "jobs_without_any": sum(one.p50 is None for one in scored),
        "jobs_without_p90": sum(one.p90 is None for one in scored),
        "jobs_crude": sum(one.crude for one in scored),
        "crude_p90": _kept([one for one in scored if one.crude]),
        "pinball": _losses(scored),
    }  # fmt: skip


def _of_wait(name: str, mine: Sequence[Foretold]) -> dict[str, Any]:
    """Return, for the forecasts `mine`, which look equally far ahead, the share that held at each
    level, and the median distance between the levels in seconds.
    """
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


def pinball(promised: float, true: float, level: float) -> float:
    """Return the pinball (quantile) loss of a predicted quantile `promised` at `level`, in the unit
    of the predicted value. It is smallest on average for the true quantile."""
    late = true - promised
    return late * level if late > 0 else late * (level - 1.0)


def _losses(scored: Sequence[Foretold]) -> Mapping[str, Any]:
    """Return mean pinball losses in seconds at p50 and p90: of the forecasts, of recent waits
    (`average`), and of the work ahead over the GPUs (`roughly`, one value for both levels). Only
    starts for which all of these exist count.
    """
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
