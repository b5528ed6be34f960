"""Corrects crude forecasts of starts by what became of earlier jobs that waited in a similar place.

At intervals, the crude rule (work ahead over GPUs) is applied to a few waiting jobs, and their
later true starts are kept beside its answers. For a job that waits now, the latest similar cases
(about as much work ahead, as long a prediction, as many GPUs) show by which factor the rule was
off. This is a Kaplan-Meier estimate, since jobs that still wait have waited at least so long. Jobs
that one user submitted within the length of such a wait, or an hour, count as one. Beyond the
observed times, a job that has waited for t is assumed to wait for another t in half the cases.

No model of the cluster is involved, so the correction also works where simulated futures are wrong
about all jobs alike. Kaplan and Meier, JASA 53 (1958); conformal prediction of survival times:
Candes, Lei and Ren, JRSS B 85 (2023).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, log2
from random import Random
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from scheduler.core.core import Core
from scheduler.core.durations import TYPICAL_S
from scheduler.explain.whatif.forecasts import SOON_S, StartForecast, crude, crudely, starting
from scheduler.explain.whatif.memory import Memory

Floats = NDArray[np.float64]
LEVELS = (0.1, 0.5, 0.9)
WINDOW = 6000  # latest notes that are kept
ALIKE = 1000  # of them, those that are asked about a job
# before anything was seen, of ln(true / crude), below and above: since later jobs may go first, it
# is more often far too short than far too long
SPREAD = {False: 1.5, True: 2.5}
PRIOR = tuple(z * SPREAD[z > 0] for z in (NormalDist().inv_cdf((i + 0.5) / 10) for i in range(10)))
BATCH_S = 3600.0  # at most
PRIOR_WEIGHT = 4.0  # batches that it is worth
FUTURES = {
    0.1: 0.5,
    0.5: 0.5,
    0.9: 0.25,
}  # how far futures count, by level; the rest are queue figures
SAME = 0.15  # medians of starts and ends that are as far apart, as logarithms, are of one moment
FEW = 0.15  # of the weight that waited longest: of times beyond, what was seen says nothing
AT_ONCE = 6  # of those that wait, and of those new among them, noted in one look
LOOKS = 15.0  # looks in the time that jobs wait on average
LOOK_S = 0.03  # seconds between looks for every job that waits: a look takes microseconds for each


@dataclass(slots=True)
class _Note:
    """A crude forecast of a job's start (work ahead over GPUs), and what became of it.

    Attributes:
        at: time of the forecast.
        sent: the job's user, and its submission time.
        over: time when it started, or left without a start; None: it still waits.
    """

    at: float
    log_crude: float
    sent: tuple[str, float]
    over: float | None = None
    started: bool = False


class Waits:
    """Start forecasts of one cluster's jobs, learned from crude forecasts (work ahead over GPUs)
    and true starts.

    The process that follows the core's decisions calls `look` after each round of decisions, and
    `started` and `left` for jobs. The same calls give the same forecasts.
    """

    def __init__(self) -> None:
        self._notes: list[_Note] = []  # the latest, as a ring
        self._next = 0  # where the next one stands
        self._stands: Floats = np.zeros((WINDOW, 3))  # of the notes
        self._open: dict[str, list[_Note]] = {}
        self._recent: deque[float] = deque(maxlen=100)  # waits of those that started last
        self._looked = self._look_at = -inf
        self._cells: tuple[float, dict[tuple[float, ...], tuple[float, ...]]] = (-inf, {})
        self.learned = 0

    # --- what happens -----------------------------------------------------------------------

    def look(self, core: Core, memory: Memory, now: float) -> None:
        """Record crude forecasts (work ahead over GPUs) of the starts of a few waiting jobs, to be
        compared with their true starts later. Do nothing if the last call was too recent."""
        if now < self._look_at:
            return
        waiting = [job_id for job_id in core.jobs if job_id not in core.cluster.runs]
        usual_s = fmean(self._recent) / LOOKS if self._recent else 0.0
        self._look_at = now + max(1.0, usual_s, LOOK_S * len(waiting))
        if not waiting:
            return
        new = [j for j in waiting if core.jobs[j].job.submit_time > self._looked]
        self._looked = now
        draw = Random(repr(now))
        chosen = [draw.sample(those, min(AT_ONCE, len(those))) for those in (waiting, new)]
        roughly = crude(core, memory, now)
        for job_id in dict.fromkeys(chosen[0] + chosen[1]):
            at = roughly[job_id].start_p50
            if at is not None:
                self._note(core, job_id, at - now, now)

    def _note(self, core: Core, job_id: str, crude_s: float, now: float) -> None:
        job = core.jobs[job_id].job
        note = _Note(now, log(SOON_S + crude_s), (job.user, job.submit_time))
        self._notes[self._next : self._next + 1] = [note]
        self._stands[self._next] = _stands(core, job_id, crude_s)
        self._next = (self._next + 1) % WINDOW
        self._open.setdefault(job_id, []).append(note)

    def started(self, job_id: str, at: float, waited_s: float) -> None:
        """Record that a job got its GPUs at the time `at`, after it had waited `waited_s`
        seconds."""
        self._recent.append(waited_s)
        self._closed(job_id, at, started=True)

    def left(self, job_id: str, at: float) -> None:
        """Record that a job left without having started, or was changed."""
        self._closed(job_id, at, started=False)

    def _closed(self, job_id: str, at: float, *, started: bool) -> None:
        notes = self._open.pop(job_id, ())
        for note in notes:
            note.over, note.started = at, started
        self.learned += len(notes) if started else 0
        if notes:
            self._cells = (-inf, {})

    # --- what it says -----------------------------------------------------------------------

    def corrected(
        self,
        core: Core,
        made: Mapping[str, StartForecast],
        roughly: Mapping[str, StartForecast],
        now: float,
    ) -> dict[str, StartForecast]:
        """Return the forecasts in `made`, moved (in logarithms of the wait) towards the corrected
        crude forecasts.

        Where there was no time to simulate futures, return the corrected crude forecasts, marked as
        crude. A job without a crude start keeps its forecast from futures; without that, too, it
        gets the reason.

        Args:
            made: forecasts from simulated futures, by job id.
            roughly: forecasts by the crude rule, by job id.
        """
        return {
            job_id: self._mixed(
                core=core, job_id=job_id, made=one, rough=roughly.get(job_id), now=now
            )
            for job_id, one in made.items()
        }

    def _mixed(
        self, core: Core, job_id: str, made: StartForecast, rough: StartForecast | None, now: float
    ) -> StartForecast:
        if rough is None or rough.start_p50 is None:
            return made if rough is None or made.start_p50 is not None else rough
        p50, p90 = made.start_p50, made.start_p90
        if p50 is not None and p50 == p90:
            return made  # nothing is left open
        ahead_s = SOON_S + max(0.0, rough.start_p50 - now)
        waits = self._levels(_stands(core, job_id, rough.start_p50 - now), now)
        own = [now + max(0.0, ahead_s * off - SOON_S) for off in waits]
        if p50 is None or p90 is None:
            lasts = (rough.end_p50 or rough.start_p50) - rough.start_p50
            # not before an end that it must wait for; how far beyond, waits have shown
            alone = [*map(max, own, rough.after[:2] or own[:2]), own[2]]
            return starting(crudely(now, rough.start_p50, lasts), *alone)
        p10 = p50 if made.start_p10 is None else made.start_p10
        mixed = (
            _between(now, at, figures, FUTURES[level])
            for at, figures, level in zip((p10, p50, p90), own, LEVELS, strict=True)
        )
        return starting(made, *not_before(rough.after, made, tuple(mixed), now))

    def _levels(self, stands: tuple[float, ...], now: float) -> tuple[float, ...]:
        """Return the factors, for p10, p50 and p90, by which to multiply the wait that the crude
        rule (work ahead over GPUs) gives for a job with the figures `stands` (see `_stands`)."""
        if self._cells[0] != now:
            self._cells = now, {}
        cells = self._cells[1]
        cell = tuple(round(2 * x) / 2 for x in stands)
        if cell not in cells:
            cells[cell] = self._of_those_alike(cell, now)
        return cells[cell]

    def _of_those_alike(self, cell: Sequence[float], now: float) -> tuple[float, ...]:
        notes = self._notes
        apart: Floats = ((self._stands[: len(notes)] - cell) ** 2).sum(axis=1)
        nearest = np.argsort(apart, kind="stable")[:ALIKE]
        wide = max(float(np.median(apart[nearest])), 1e-6) if len(nearest) else 1.0
        alike = [notes[i] for i in nearest.tolist()]
        waited = [max(0.0, (now if n.over is None else n.over) - n.at) for n in alike]
        span_s = min(BATCH_S, max(1.0, fmean(waited))) if waited else BATCH_S
        batches = [(user, at // span_s) for user, at in (note.sent for note in alike)]
        of_batch = Counter(batches)
        weights = np.exp(-apart[nearest] / (2 * wide))
        weights /= np.array([of_batch[batch] for batch in batches], float)
        off = [log(SOON_S + s) - n.log_crude for s, n in zip(waited, alike, strict=True)]
        ended = [note.started for note in alike] + [True] * len(PRIOR)
        weights = np.concatenate((weights, np.full(len(PRIOR), PRIOR_WEIGHT / len(PRIOR))))
        return tuple(exp(x) for x in kaplan_meier([*off, *PRIOR], ended, weights, LEVELS))


def kaplan_meier(
    logs: Iterable[float], ended: Iterable[bool], weights: Floats, levels: Iterable[float]
) -> list[float]:
    """Return quantiles of the logarithm of times, some of which are known only as lower bounds.

    Beyond the times at which less than `FEW` of the weight is left, the share that lasts longer
    falls as 1 / t.

    Args:
        logs: logarithms of the times, shape (n,).
        ended: False where a time is only a lower bound, shape (n,).
        weights: weights of the times, shape (n,).
        levels: levels of the quantiles, 0 to 1.
    """
    y, over = np.fromiter(logs, float), np.fromiter(ended, bool)
    order = np.argsort(y, kind="stable")
    y, over, w = y[order], over[order], weights[order]
    left = np.cumsum(w[::-1])[::-1]
    gone = np.divide(w, left, out=np.zeros_like(left), where=left > 0)  # 0 beyond all weight
    survival = np.cumprod(np.where(over, 1.0 - gone, 1.0))
    last = max(0, int(np.count_nonzero(left >= FEW * left[0])) - 1)
    found = []
    for level in levels:
        place = int(np.searchsorted(-survival[: last + 1], level - 1.0 - 1e-12))
        if place <= last:
            found.append(float(y[place]))
        else:
            found.append(float(y[last]) + log(max(1.0, float(survival[last]) / (1.0 - level))))
    return found


def not_before(
    ends: Sequence[float], made: StartForecast, mixed: Sequence[float], now: float
) -> Sequence[float]:
    """Return quantiles of a job's start that do not lie before those of the end for which it must
    wait. If the futures show that it waits for nothing else, the medians are equal. Return `mixed`
    unchanged where there is no such end, or where the job needs none in at least half of the
    futures.

    Args:
        ends: quantiles of that end (`StartForecast.after`).
        made: the forecast from simulated futures.
        mixed: p10, p50 and p90 of the start.
    """
    if not ends or made.start_p50 is None or made.aside >= 0.5:
        return mixed
    late = log(SOON_S + max(0.0, made.start_p50 - now)) - log(SOON_S + max(0.0, ends[1] - now))
    p10, p50, p90 = map(max, mixed, ends)
    return p10, ends[1] if late < SAME else p50, p90


def _stands(core: Core, job_id: str, crude_s: float) -> tuple[float, float, float]:
    """Return three figures by which waiting jobs are compared, as logarithms: the wait until the
    start by the crude rule (work ahead over GPUs), the predicted duration, and the number of GPUs.
    """
    queued = core.jobs[job_id]
    lasts = TYPICAL_S if queued.predicted_s is None else queued.predicted_s
    return log(SOON_S + max(0.0, crude_s)), log(SOON_S + max(0.0, lasts)), log2(queued.job.gpus + 1)


def _between(now: float, one: float, other: float, share: float) -> float:
    """Return a time between two times: the mean of the logarithms of their distances from now, with
    weight `share` for the first."""
    first, second = (log(SOON_S + max(0.0, at - now)) for at in (one, other))
    return now + exp(share * first + (1.0 - share) * second) - SOON_S
