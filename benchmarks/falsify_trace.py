"""Measures which part of predicted durations matters, by the predictions of a whole trace.

    python -m benchmarks.falsify_trace --json [--trace FOLDER | --draws 8] [--parts user claims]

`benchmarks.falsify` asks the same of schedules, and a schedule of a few thousand jobs leaves most
of the answer to chance. Here nothing is scheduled: each job starts when it is submitted. A part is
left out ("constant") or taken from another job ("shuffled"), and the pinball loss of ln(1 +
seconds) is compared at submission, after 200 s and after an hour: by day over the last 14 days of a
trace (Venus without `--trace`), or by draw over draws of the demo's trace.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.falsify import LevelState, chosen, verdict
from features.job import Job
from features.lifetimes import lifetimes
from features.repeats import Claim
from features.replay import Lifetime
from features.rows import DAY_S, Rows, rows_of
from features.spec import Value
from features.state import FeatureState
from features.survival import LEVELS as GROUPS
from models.training.rolling import LEVELS, roll, typical
from pipeline.evaluate.duration import (
    OUTLIVED_S,
    TEST_DAYS,
    WARM,
    Believed,
    ended_before_submission,
    venus,
)
from pipeline.traces import read_dataset
from pipeline.traces.synthetic.generate import default_config, generate
from scheduler.core.durations import TYPICAL_S, Duration, DurationDistribution

PARTS = {
    "durations": "how long jobs last, whatever it rests on",
    "all": "the history of all jobs",
    "vc_gpus": "histories of a virtual cluster and size",
    "user": "histories of users",
    "template": "histories of users' scripts",
    "claims": "claims by last runs",
    "hazards": "a job's own curve",
    "ratios": "how predictions turned out",
    "glass": "the GA2M, refitted daily (constant: the histories alone)",
}
HOW = ("constant", "shuffled")
FIRST_DAYS = 3  # of a trace, on which nothing is judged
CLAIMS = tuple[tuple[Claim, ...], ...]
Floats = NDArray[np.float64]


class _Watched(FeatureState):
    """A feature state that also keeps the hazards and claims of each job at its submission."""

    def __init__(self) -> None:
        super().__init__({"survival"})
        self.curves: list[list[float]] = []
        self.claimed: list[tuple[Claim, ...]] = []

    def row(self, job: Job, now: float) -> list[Value]:
        self.curves.append(self.hazards(job, now))
        self.claimed.append(self.claims(job, now))
        return super().row(job, now)


class _OfLevel(_Watched, LevelState):
    """A `_Watched` in which one level of the histories is left out, or taken from another group."""

    def __init__(self, level: str, how: str):
        LevelState.__init__(self, level, how)
        self.curves, self.claimed = [], []


class Deaf(DurationDistribution):
    """A distribution that does not learn how predictions turned out. If it is "shuffled", it learns
    from each true duration paired with another job's prediction.
    """

    def __init__(self, how: str):
        super().__init__()
        self._how, self._before = how, list[Duration | None]()

    def learn(
        self, predicted_s: Duration | None, duration_s: float, now: float | None = None
    ) -> None:
        self._before.append(predicted_s)
        if self._how == "shuffled":
            n = len(self._before)
            super().learn(self._before[chosen(n, n)], duration_s, now)


@dataclass(frozen=True)
class Inputs:
    """What the predictions of a trace's jobs are made of.

    Attributes:
        rows: features at submission, with the true durations.
        score: predicted ln(1 + seconds), (n,).
        shift: by how much `score` is above the mean that the hazards give, (n,).
        hazards: own hazards of each job, (n, stretches); None: it has none.
        claims: claims about each job's duration.
        ratios: how predictions turned out; "", "constant" or "shuffled".
    """

    rows: Rows
    score: Floats
    shift: Floats
    hazards: Floats | None
    claims: CLAIMS
    ratios: str = ""

    @classmethod
    def of(cls, lives: Sequence[Lifetime], level: str = "", how: str = "") -> Inputs:
        """Return the inputs that follow from the histories alone. The level `level` of these is
        falsified as `how` says; "": none is."""
        state = _OfLevel(level, how) if level else _Watched()
        rows = rows_of(lives, state)
        score = typical(rows.X)
        return cls(rows, score, np.zeros(len(rows)), np.array(state.curves), tuple(state.claimed))

    def losses(self, asked: NDArray[np.bool_]) -> Floats:
        """Return the pinball loss of each job of a mask at each of `OUTLIVED_S`, (n, moments); NaN
        where the job had ended by then, and for other jobs."""
        believed = Believed.of(
            self.rows,
            self.score,
            self.hazards,
            self.claims,
            shift=self.shift,
            distribution=Deaf(self.ratios) if self.ratios else None,
            asked=asked,
        )
        off = np.log1p(self.rows.y)[:, None, None] - np.log1p(believed.quantiles)
        levels = np.array(LEVELS)
        loss: Floats = np.maximum(levels * off, (levels - 1.0) * off).mean(axis=2)
        return np.where(self.rows.y[:, None] > np.array(OUTLIVED_S), loss, np.nan)


def falsified(true: Inputs, lives: Sequence[Lifetime], part: str, how: str) -> Inputs:
    """Return the inputs with one part constant or shuffled.

    Args:
        true: the inputs as they are; of "glass", those with the GA2M.
    """
    n = len(true.rows)
    if part in GROUPS:
        return Inputs.of(lives, part, how)
    if part == "ratios":
        return replace(true, ratios=how)
    other = np.array([chosen(i + 1, part, i) for i in range(n)])  # that came no later
    if how == "constant":
        alike = np.full(n, np.log1p(TYPICAL_S))
        changes: dict[str, dict[str, Any]] = {
            "durations": {"score": alike, "hazards": None},
            "claims": {"claims": ((),) * n},
            "hazards": {"hazards": None},
            "glass": {"score": true.score - true.shift, "shift": np.zeros(n)},
        }
        return replace(true, **changes[part])
    assert true.hazards is not None
    claims = tuple(true.claims[i] for i in other)
    hazards, score = true.hazards[other], true.score[other]
    mean = true.score - true.shift
    changes = {
        "durations": {"score": score, "hazards": hazards, "claims": claims},
        "claims": {"claims": claims},
        "hazards": {"hazards": hazards, "shift": true.score - mean[other]},
        "glass": {"score": mean + true.shift[other], "shift": true.shift[other]},
    }
    return replace(true, **changes[part])


def with_glass(true: Inputs, seed: int) -> Inputs:
    """Return the inputs whose score is the GA2M's, fitted anew each day, from its first fit on."""
    found = roll(true.rows, baselines_from=np.inf, seed=seed, forest=False).scores.get("ga2m")
    if found is None:
        return true
    score = np.where(np.isfinite(found), found, true.score)
    return replace(true, score=score, shift=score - true.score)


def compared(
    traces: Sequence[pa.Table],
    parts: Sequence[str],
    since_days: float | None,
    every: int = 1,
    cold: bool = False,
) -> dict[str, dict[str, dict[str, dict[str, float | str]]]]:
    """Return, by part, how it is falsified, and moment, how much more the predictions lose.

    Args:
        since_days: judge this many last days of a trace, each for itself; None: judge each trace as
            a whole, from `FIRST_DAYS` on.
        every: judge one job in so many; all of them are learned from.
        cold: judge only jobs of users of whom fewer than `WARM` jobs had ended.
    """
    more: dict[tuple[str, str], list[list[float]]] = {}
    for seed, trace in enumerate(traces):
        lives, _ = lifetimes(trace)
        plain = Inputs.of(lives)
        some = np.arange(len(plain.rows)) % every == 0
        if cold:
            of = {life.job.job_id: life.job.user for life in lives}
            users = [of[job_id] for job_id in plain.rows.job_id]
            some &= ended_before_submission(users, plain.rows) < WARM
        units = [unit & some for unit in _units(plain.rows, since_days)]
        asked = np.logical_or.reduce(units)
        as_it_is = plain.losses(asked) if set(parts) != {"glass"} else None
        for part in parts:
            true = with_glass(plain, seed) if part == "glass" else plain
            before = true.losses(asked) if part == "glass" or as_it_is is None else as_it_is
            for how in HOW:
                off = falsified(true, lives, part, how).losses(asked) - before
                more.setdefault((part, how), []).extend(_means(off, units))
    found: dict[str, dict[str, dict[str, dict[str, float | str]]]] = {}
    for (part, how), rows in more.items():
        columns = zip(*rows, strict=True)
        found.setdefault(part, {})[how] = {
            f"{at:g} s": verdict([one for one in column if np.isfinite(one)])
            for at, column in zip(OUTLIVED_S, columns, strict=True)
        }
    return found


def _units(rows: Rows, since_days: float | None) -> list[NDArray[np.bool_]]:
    """Return the masks of the jobs that are judged together: those of one day, or of a trace."""
    day = np.floor(rows.time / DAY_S).astype(int)
    if since_days is None:
        return [(day >= day.min() + FIRST_DAYS) & np.isfinite(rows.y)]
    last = int(day.max())
    first = max(last + 1 - int(since_days), int(day.min()) + FIRST_DAYS)
    return [(day == d) & np.isfinite(rows.y) for d in range(first, last + 1)]


def _means(off: Floats, units: Iterable[NDArray[np.bool_]]) -> list[list[float]]:
    """Return the mean of each column over each unit; NaN for a unit without a job."""
    found = []
    for unit in units:
        seen = np.isfinite(off[unit])
        count = seen.sum(axis=0)
        summed = np.where(seen, off[unit], 0.0).sum(axis=0)
        found.append(np.where(count, summed / np.maximum(count, 1), np.nan).tolist())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.falsify_trace", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--trace", type=Path, help="a dataset instead of Venus")
    parser.add_argument("--draws", type=int, default=0, help="draws of the demo, not a trace")
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--every", type=int, default=1, help="judge one job in so many")
    parser.add_argument("--cold", action="store_true", help="judge new users' jobs, on all days")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    given = parser.parse_args(arguments)
    if given.draws:
        seeds = range(given.first_seed, given.first_seed + given.draws)
        traces = [generate(default_config(seed=seed)) for seed in seeds]
    else:
        traces = [read_dataset(given.trace) if given.trace else venus(given.data)]
    days = None if given.draws else 365 if given.cold else TEST_DAYS
    found = compared(traces, given.parts, days, given.every, given.cold)
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    for part, of in found.items():
        for how, moments in of.items():
            for at, said in moments.items():
                much = f"{said['more']:+.4f} ± {said['within']:.4f}"
                print(f"{PARTS[part]}, {how}, after {at}: {much}: {said['verdict']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
