"""Compares a candidate model with the champion (the model in use) by the schedules that each makes
in the same replayed weeks.

With each model, the jobs that neither was trained on are replayed in a closed loop, in several
draws (replays with slightly moved submit times). Each figure is computed over all jobs. Its
interval comes from a bootstrap over users, with all their jobs, and over draws, the same resamples
for both models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from features.rows import DAY_S
from models.bundle import Bundle
from models.training.errors import TrainingError
from models.training.judging import (
    LEAST_ROWS,
    LEAST_USERS,
    LEVEL,
    Paired,
    drawn_again,
    most_telling,
    paired,
)
from pipeline.worlds import plain
from pipeline.worlds.playing import Playing
from scheduler.assembly import CoreSpec
from scheduler.core.decisions import Action, Decision

Floats = NDArray[np.float64]

POLICY = "pellucid"
LOOP = "closed"
DRAWS = 3
MOST_DAYS = 28  # the last weeks of a trace say enough, and take long enough
SHORT_S = 1800.0  # believed to be shorter: where long jobs are not seen
LONG_S, LONG = 21_600.0, "over_6h"
LEVELS = (("p10_s", 0.1), ("p50_s", 0.5), ("p90_s", 0.9))
LEAST_OF_VC = 100  # jobs, before the wait of the worst hundredth says something


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The comparison of two models by the schedules that they make.

    Attributes:
        figures: the figures that decide which model is better; there is one for the waits of
            each virtual cluster with at least `LEAST_OF_VC` jobs.
        jobs, users, draws: number of jobs in each draw (replay) that were compared, of their
            users, and of draws.
        days: number of days that were replayed.
    """

    figures: tuple[Paired, ...]
    jobs: int
    users: int
    draws: int
    days: float

    @property
    def about(self) -> str:
        """Return a text that says how many days, jobs and users were replayed, and how often."""
        times = "once" if self.draws == 1 else f"{self.draws} times"
        return f"{self.days:.1f} days replayed {times}, {self.jobs:,} jobs of {self.users} users"

    @property
    def reason(self) -> str:
        """Return the outcome of the comparison as one line: the figure of `most_telling`, and what
        was replayed."""
        return f"{most_telling(self.figures)}; {self.about}"

    def document(self) -> Mapping[str, object]:
        """Return the comparison with all figures as plain JSON."""
        figures = {one.title: one.document() for one in self.figures}
        return {
            "policy": POLICY, "loop": LOOP, "jobs": self.jobs, "users": self.users,
            "draws": self.draws, "days": self.days, "level": LEVEL, "figures": figures,
        }  # fmt: skip


def replayed(
    candidate: Bundle,
    champion: Bundle,
    trace: pa.Table,
    spec: CoreSpec,
    since: float,
    *,
    draws: int = DRAWS,
) -> Replay:
    """Replay the jobs submitted after `since` (seconds since the epoch), but only those of the
    last `MOST_DAYS` days, with each model, `draws` times. Return the comparison.

    Raises TrainingError if there are too few jobs, and TrackError if they do not fit the cluster.
    """
    last = max(trace.column("submit_time").cast(pa.int64()).to_pylist(), default=0) / 1000
    since = max(since, last - MOST_DAYS * DAY_S)
    played = [
        [_played(bundle, trace, spec, since=since, seed=seed) for bundle in (candidate, champion)]
        for seed in range(draws)
    ]
    both = [_Jobs.together([pair[side] for pair in played], played) for side in (0, 1)]
    _, who = np.unique(both[0].user, return_inverse=True)
    users = int(who.max()) + 1 if len(who) else 0
    jobs = len(who) // draws
    if jobs < LEAST_ROWS or users < LEAST_USERS:
        raise TrainingError(
            f"{jobs} jobs of {users} users to replay: to compare schedules takes "
            f"{LEAST_ROWS} of {LEAST_USERS}"
        )
    draw = np.random.default_rng(0)
    weights = drawn_again(users, draw)[:, who] * drawn_again(draws, draw)[:, both[0].draw]
    figures = [
        paired("mean JCT", [one.mean(one.jct_s, weights) for one in both], sign=-1.0, unit="s"),
        *_waits(both, weights),
        paired("long jobs found", _found(both, weights), sign=1.0),
        paired("pinball of ln", [one.mean(one.pinball, weights) for one in both], sign=-1.0),
    ]
    known = tuple(figure for figure in figures if figure is not None)
    days = (last - since) / DAY_S
    return Replay(figures=known, jobs=jobs, users=users, draws=draws, days=days)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """The outcome of replayed jobs, and the predictions made at their submission: arrays with one
    entry per job, (n,)."""

    job_id: NDArray[np.object_]
    user: NDArray[np.object_]
    vc: NDArray[np.object_]
    draw: NDArray[np.int64]
    gpu_s: Floats
    ran_s: Floats
    jct_s: Floats
    wait_s: Floats
    believed_s: Floats
    long: Floats  # chance to run for more than six hours
    pinball: Floats

    @classmethod
    def together(cls, mine: Sequence[_Jobs], played: Sequence[Sequence[_Jobs]]) -> _Jobs:
        """Return one table of the jobs in `mine`, one entry per draw. Only jobs that ended with
        both models in the draw (`played`) are in it, and their order is the same for both
        models."""
        parts = []
        for number, (one, pair) in enumerate(zip(mine, played, strict=True)):
            common = sorted(set(pair[0].job_id) & set(pair[1].job_id))
            place = {job: i for i, job in enumerate(one.job_id.tolist())}
            at = np.array([place[job] for job in common], dtype=np.int64)
            parts.append({name: getattr(one, name)[at] for name in cls.__slots__})
            parts[-1]["draw"] = np.full(len(at), number, dtype=np.int64)
        return cls(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def mean(self, values: Floats, weights: Floats) -> Floats:
        """Return the weighted mean of `values` for each row of `weights`, an array (rows,)."""
        return np.asarray(weights @ values / weights.sum(axis=1))


def _played(bundle: Bundle, trace: pa.Table, spec: CoreSpec, since: float, seed: int) -> _Jobs:
    """Replay one draw of the weeks, with the decisions made by one model. Return the jobs that
    ended and had a prediction.

    Args:
        since: replay jobs submitted from then on, seconds since the epoch.
        seed: number of the draw; it moves the submit times.
    """
    believed = dict[str, Decision]()

    def note(decisions: list[Decision]) -> None:
        for one in decisions:
            if one.action is Action.ENQUEUE and one.score is not None:
                believed.setdefault(one.job_id, one)

    with TemporaryDirectory() as scratch:
        folder = bundle.save(Path(scratch, "bundle"))
        playing = Playing(bundle=folder, seed=seed, since=since, loop=LOOP)
        world = plain.scenario(trace, "promote", spec.cluster, spec.profiling, playing=playing)
        outcome, _ = world.simulate(POLICY, sink=note)
    done = [one for one in outcome.jobs if one.end_time is not None and one.job.job_id in believed]
    known = [dict(believed[one.job.job_id].evidence) for one in done]
    ran_s = np.array([one.duration_s for one in done], dtype=np.float64)
    at = {
        name: np.array([float(row[name]) for row in known], dtype=np.float64)
        for name in (*(name for name, _ in LEVELS), LONG)
    }
    durations_s = [believed[one.job.job_id].estimate_s or 0.0 for one in done]
    losses = []
    for name, level in LEVELS:
        error = np.log1p(ran_s) - np.log1p(at[name])
        losses.append(np.maximum(level * error, (level - 1.0) * error))
    return _Jobs(
        job_id=np.array([one.job.job_id for one in done], dtype=object),
        user=np.array([one.job.user for one in done], dtype=object),
        vc=np.array([one.job.vc for one in done], dtype=object),
        draw=np.zeros(len(done), dtype=np.int64),
        gpu_s=np.array([one.duration_s * one.job.gpus for one in done], dtype=np.float64),
        ran_s=ran_s,
        jct_s=np.array([one.jct_s for one in done], dtype=np.float64),
        wait_s=np.array([one.queue_s for one in done], dtype=np.float64),
        believed_s=np.array(durations_s, dtype=np.float64),
        long=at[LONG],
        pinball=np.mean(losses, axis=0),
    )


def _waits(both: Sequence[_Jobs], weights: Floats) -> list[Paired | None]:
    """Return the comparison of the 99th percentile of waits, for each virtual cluster with enough
    jobs; None for one in which it is not defined.

    Args:
        both: the jobs under the candidate, and under the champion.
        weights: bootstrap weights of the jobs, one row per resample.
    """
    names, counts = np.unique(both[0].vc, return_counts=True)
    chosen = names[counts >= LEAST_OF_VC].tolist()
    found = []
    for vc in chosen:
        mine = both[0].vc == vc
        values = [_p99(one.wait_s[mine], weights[:, mine]) for one in both]
        title = f"p99 wait in {vc}" if vc else "p99 wait"
        found.append(paired(title, values, sign=-1.0, unit="s", among=len(chosen)))
    return found


def _p99(values: Floats, weights: Floats) -> Floats:
    """Return the weighted 99th percentile of `values` for each row of `weights`, (rows,). NaN for a
    row of zeros."""
    order = np.argsort(values)
    reached = np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1]
    place = (reached < 0.99 * total[:, None]).sum(axis=1)
    found = values[order][np.minimum(place, len(values) - 1)]
    return np.where(total > 0, found, np.nan)


def _found(both: Sequence[_Jobs], weights: Floats) -> list[Floats]:
    """Return, for each model and resample, how well its predicted probability of running long
    finds long jobs, among the jobs that either model predicts to be short; NaN if there is no
    such long job.

    The figure is average precision, in which each long job counts by its GPU time.
    """
    short = np.minimum(both[0].believed_s, both[1].believed_s) < SHORT_S
    long, gpu_s = both[0].ran_s[short] > LONG_S, both[0].gpu_s[short]
    return [_average_precision(one.long[short], long, gpu_s, weights[:, short]) for one in both]


def _average_precision(
    by: Floats, positive: NDArray[np.bool_], worth: Floats, weights: Floats
) -> Floats:
    values, place = np.unique(-by, return_inverse=True)
    found = np.full(len(weights), np.nan)
    for i, weight in enumerate(weights):
        flagged = np.cumsum(np.bincount(place, weight, len(values)))
        hits = np.cumsum(np.bincount(place, weight * positive, len(values)))
        gained = np.bincount(place, weight * positive * worth, len(values))
        if gained.sum() > 0:
            precision = hits / np.maximum(flagged, 1e-12)
            found[i] = gained @ precision / gained.sum()
    return found
