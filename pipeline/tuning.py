"""Chooses settings of the policy `pellucid` on a site's own past, and adopts them only if they are
better there.

Every candidate (one part of the policy switched off or set differently) is replayed on the
first half of the jobs. Candidates with a lower mean JCT than the settings in force, and with a
p99 wait that is not too long (`tail_holds`), are combined up to four times: the best so far with
the best single one that changes other settings. The candidate with the lowest upper bound of its
interval is then replayed on the second half, on which nothing was chosen. It is adopted only if it
is better there beyond chance.

Other policies, as their authors describe them, are replayed on the same jobs. One that does better
in both halves, by the same rules, is recommended, but not adopted: who runs it gives up the bound
on waiting, and what is predicted and explained from it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from math import sqrt
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster import HERE, mapped
from pipeline.errors import UserError
from pipeline.pareto import DAY_S, NO_BOUND_S, POLICY
from pipeline.student import bound
from pipeline.worlds.plain import of_workload
from pipeline.worlds.playing import Playing
from pipeline.worlds.scenario import Scenario
from scheduler.assembly import settings_of
from scheduler.core.core import Core
from scheduler.core.settings import ProfilingPartition, flat, with_assignments
from scheduler.simulation.engine import Engine
from scheduler.simulation.loop import JobResult
from scheduler.simulation.work import Workload

Values = Mapping[str, Any]  # of settings

KEPT, DEFAULTS = "as it is", "the defaults"
OFF = 1e12  # of a threshold: never reached
# One part of the policy each, switched off or set otherwise; what helps is crossed.
CANDIDATES: dict[str, Values] = {
    "bound 4 days": {"max_wait_s": 4 * DAY_S},
    "bound 8 days": {"max_wait_s": 8 * DAY_S},
    "no bound": {"max_wait_s": NO_BOUND_S},
    "bound at any price": {"price": OFF},
    "bound not stretched": {"overload": OFF},
    "no backfill": {"backfill": 0.0},
    "ageing 0.3": {"ageing": 0.3},
    "no ageing": {"ageing": 0.0},
    "predicted once": {"predict_again_s": 0.0},
    "ordered by one number": {"order_by": "predicted"},
    "ordered by submission": {"order_by": "submitted"},
    "GPUs kept for the first in line": {"keeps_for_first": True},
    "ordered by GPU-time": {"gpu_exponent": 1.0},
    "ordered by duration": {"gpu_exponent": 0.0},
}
# more of them where jobs have profiles, so that some are packed
PACKING: dict[str, Values] = {
    "no packing": {"partner_searches": 0},
    "packing late": {"pack_first_above": None},
    "packing whatever it costs others": {"hold_price": 0.0},
    "narrow jobs beside wide ones": {"pack_narrower": True},
    "no profiling first": {"profile_above": OFF},
    "pair speeds as predicted": {"learns_speeds": False},
}
CROSSED = 4  # most crossings that are tried
WINDOWS = 8  # of each half, for the intervals
LEAST = 2 * WINDOWS * 20  # jobs to choose by: 20 of each window
LAST_DAYS = 56.0  # that are replayed
CHANCE = 0.95
DRAWS = 400
TAIL = 0.1  # share by which the p99 wait may be longer, if that may be chance

Times = NDArray[np.float64]  # JCT and wait (s) by seed and job: (seeds, 2, jobs); NaN: never ended
Worlds = Callable[[int, int, Values], Scenario]


class Row(TypedDict):
    """The figures of candidate settings in one half of the jobs, compared with those of the
    settings in force.

    Attributes:
        settings: the settings that the candidate changes, by dotted names.
        policy: the policy; one other than `pellucid` has its default settings.
        jct_ratio, jct_low, jct_high: its mean JCT divided by that of the settings in force, and the
            95 % interval.
        p99_more_s, p99_more_low_s, p99_more_high_s: its p99 wait less that of the settings in
            force, seconds, and the 95 % interval.
    """

    name: str
    settings: Values
    policy: str
    mean_jct_s: float
    jct_ratio: float
    jct_low: float
    jct_high: float
    p99_wait_s: float
    p99_more_s: float
    p99_more_low_s: float
    p99_more_high_s: float
    longest_wait_s: float


class Tuned(TypedDict):
    """The result of tuning.

    Attributes:
        chosen_on: rows of the settings in force, of all candidates and of the other policies,
            on the first half; `tested_on`: on the second half, rows of the settings in force,
            of the picked candidate, of the defaults and of the best other policy; empty if none
            was better.
        picked: name of the candidate that was tested; None if none was better on the first half.
        adopt: whether the candidate is better beyond chance on the second half.
        settings: the settings to set, by dotted names; {} unless `adopt`.
        before: the present values of these settings.
        policy: name of another policy that is better beyond chance on the second half than the
            settings in force and, where `adopt`, than those to set; None if there is none.
        rivals: what was found of the other policies, as a sentence; "" where none was tried.
    """

    seeds: int
    windows: int
    chosen_on: list[Row]
    tested_on: list[Row]
    picked: str | None
    adopt: bool
    settings: Values
    before: Values
    verdict: str
    policy: str | None
    rivals: str


def _since(workload: Workload, last_days: float | None) -> float:
    """Return the time so many days before the last submission, seconds since the epoch; -inf where
    `last_days` is None, or there are no jobs."""
    if not workload.jobs or last_days is None:
        return -np.inf
    return workload.jobs[-1].submit_time - last_days * DAY_S


@dataclass(frozen=True)
class History:
    """A site's past jobs, which are replayed in two halves.

    Attributes:
        workload: the jobs as recorded, in order of submission.
        last_days: number of days: only jobs submitted in the last so many days are replayed, and
            earlier ones are what the estimator has learned from. None: all are replayed.
    """

    workload: Workload
    profiling: ProfilingPartition | None
    last_days: float | None = None
    loop: str = "closed"

    def __post_init__(self) -> None:
        if (found := len(self.played)) < LEAST:
            raise UserError(
                f"{found:,} jobs that ran in the time asked for; {LEAST} are the least to choose by"
            )

    @property
    def since(self) -> float:
        """Return the time from which on jobs are replayed, seconds since the epoch; -inf: all."""
        return _since(self.workload, self.last_days)

    @property
    def played(self) -> list[float]:
        """Return the submit times of all replayed jobs (both halves), seconds since the epoch."""
        return [t for job in self.workload.jobs if (t := job.submit_time) >= self.since]

    def __call__(self, half: int, seed: int, settings: Values) -> Scenario:
        """Return the world of a half of the jobs: 0 for the first, 1 for the second. In the
        second, the estimator has learned from the first half."""
        when = self.played
        middle, work = when[len(when) // 2], self.workload
        if half == 0:
            work = replace(work, jobs=[job for job in work.jobs if job.submit_time < middle])
        since = middle if half else self.since
        world = of_workload(work, self.profiling, Playing(seed=seed, since=since, loop=self.loop))
        world.settings = {POLICY: settings}
        return world


class Cell(NamedTuple):
    """One replay of tuning: which half of the jobs (0 or 1), seed, and settings of `pellucid`, or
    another policy."""

    half: int
    seed: int
    settings: Values
    policy: str = POLICY


def play(worlds: Worlds, cell: Cell) -> Times:
    """Replay the jobs of a cell. Return the JCT and the wait of every job, in order of submission:
    (2, jobs), seconds; NaN for jobs that did not end."""
    world = worlds(cell.half, cell.seed, cell.settings)
    outcome, _ = world.simulate(cell.policy)
    ended = {
        result.job.job_id: (result.jct_s, result.queue_s)
        for result in outcome.jobs
        if result.end_time is not None
    }
    never = (np.nan, np.nan)
    return np.array([ended.get(job.job_id, never) for job in world.workload.jobs], float).T


def beside(name: str, settings: Values, times: Times, kept: Times, policy: str = POLICY) -> Row:
    """Return a candidate's figures, compared with those of the settings in force on the same jobs.

    The jobs are cut into windows of equally many successive jobs. The interval of the mean's
    ratio comes from the windows' sums and Student's t, that of the p99 wait from a bootstrap
    over windows. A job that did not end in some replay is left out.

    Args:
        times: JCT and wait with the candidate, one entry per seed.
        kept: the same with the settings in force.
    """
    both = ~np.isnan(times + kept).any(axis=1, keepdims=True)
    times, kept = (np.where(both, found, np.nan) for found in (times, kept))
    edges = np.linspace(0, times.shape[2], WINDOWS + 1).astype(int)
    windows = [slice(low, high) for low, high in pairwise(edges)]
    mine, theirs = (
        np.array([np.nansum(found[:, 0, window]) for window in windows]) for found in (times, kept)
    )
    ratio = float(mine.sum() / theirs.sum())
    off = mine - ratio * theirs
    error = sqrt(WINDOWS / (WINDOWS - 1) * float(off @ off)) / float(theirs.sum())
    wide = bound(CHANCE, WINDOWS - 1) * error
    rng = np.random.default_rng(0)
    drawn = [
        np.concatenate([np.arange(windows[k].start, windows[k].stop) for k in draw])
        for draw in rng.integers(0, WINDOWS, (DRAWS, WINDOWS))
    ]
    more = [_p99(times[:, 1, jobs]) - _p99(kept[:, 1, jobs]) for jobs in drawn]
    low, high = np.quantile(more, [(1 - CHANCE) / 2, (1 + CHANCE) / 2])
    p99 = _p99(times[:, 1])
    return {
        "name": name,
        "settings": settings,
        "policy": policy,
        "mean_jct_s": float(np.nanmean(times[:, 0])),
        "jct_ratio": ratio,
        "jct_low": ratio - wide,
        "jct_high": ratio + wide,
        "p99_wait_s": p99,
        "p99_more_s": p99 - _p99(kept[:, 1]),
        "p99_more_low_s": float(low),
        "p99_more_high_s": float(high),
        "longest_wait_s": float(np.nanmax(times[:, 1])),
    }


def _p99(waits: Times) -> float:
    return float(np.nanquantile(waits, 0.99))


def tail_holds(row: Row, tail: float = TAIL) -> bool:
    """Return whether a candidate's p99 wait is not too long: longer than that of the settings in
    force by at most the share `tail`, and by at most `tail` - `TAIL` at the lower bound of its
    interval."""
    kept = row["p99_wait_s"] - row["p99_more_s"]
    certain = row["p99_more_low_s"] <= max(0.0, tail - TAIL) * kept
    return certain and row["p99_more_s"] <= tail * kept


def candidates(now: Values, jobs: Workload, more: Mapping[str, Values]) -> dict[str, Values]:
    """Return the candidates to try: {name: settings that differ from `now`, by dotted names}.
    Candidates that change nothing are left out.

    Args:
        now: the present settings of `pellucid`, as in a cluster file.
        jobs: the jobs to replay; if none has a profile, settings of packing are not tried.
        more: further candidates, given by the caller.
    """
    packs = any(work.profile is not None for work in jobs.work.values())
    mine = flat(settings_of(POLICY, now))
    defaults = {k: v for k, v in flat(settings_of(POLICY, {})).items() if k in mine}
    every = {DEFAULTS: defaults, **CANDIDATES, **(PACKING if packs else {}), **more}
    changed = {
        name: {k: v for k, v in values.items() if mine.get(k) != v}
        for name, values in every.items()
    }
    return {name: values for name, values in changed.items() if values}


def tune(
    worlds: Worlds,
    now: Values,
    tried: Mapping[str, Values],
    seeds: int,
    *,
    others: Collection[str] = (),
    tail: float = TAIL,
    where: str = HERE,
    progress: Callable[[int], None] = lambda _: None,
) -> Tuned:
    """Choose settings on one half of the jobs, and test them on the other. Return the result.

    Args:
        worlds: returns the world for a half (0 or 1), a seed and settings; picklable if replays run
            in other processes.
        now: settings in force, as in a cluster file.
        tried: the settings to try, as `candidates` returns them.
        seeds: number of replays of each candidate, with slightly moved submit times.
        others: names of other policies to compare with.
        tail: see `tail_holds`.
        where: place to run the replays, see `pipeline.cluster.mapped`.
        progress: called with the number of replays done, of at most
            `replays(tried, seeds, others)`.
    """
    done = count(1)
    known: dict[str, Values] = {KEPT: {}, **tried}
    rules = {f"the policy {policy}": policy for policy in others}
    played: dict[tuple[int, str], Times] = {}  # by half and name

    def rows(half: int, names: Sequence[str]) -> Iterator[Row]:
        wanted = list(names) if (half, KEPT) in played else [KEPT, *names]
        cells = [cell(half, seed, name) for name in wanted for seed in range(seeds)]
        found = []
        with mapped(where) as spread:
            for times in spread(partial(play, worlds), cells):
                found.append(times)
                progress(next(done))
        for i, name in enumerate(wanted):
            times = played[half, name] = np.array(found[i * seeds : (i + 1) * seeds])
            settings, policy = known.get(name, {}), rules.get(name, POLICY)
            yield beside(name, settings, times, played[half, KEPT], policy=policy)

    def cell(half: int, seed: int, name: str) -> Cell:
        if name in rules:
            return Cell(half, seed, {}, rules[name])
        return Cell(half, seed, with_assignments(now, assignments(known[name])))

    def good(row: Row) -> bool:
        return row["jct_ratio"] < 1 and tail_holds(row, tail)

    chosen_on = list(rows(0, list(tried)))
    for _ in range(CROSSED):
        crossing = crossed([row for row in chosen_on if good(row)], tried, known)
        if crossing is None:
            break
        known |= crossing
        chosen_on += rows(0, list(crossing))
    best = min(filter(good, chosen_on), key=lambda row: row["jct_high"], default=None)
    picked = None if best is None else best["name"]
    chosen_on += (compared := list(rows(0, list(rules))) if rules else [])
    rival = min(filter(good, compared), key=lambda row: row["jct_high"], default=None)
    if rival is not None and best is not None and rival["jct_ratio"] >= best["jct_ratio"]:
        rival = None
    names = [name for name in known if name in (picked, DEFAULTS)] if picked else []
    names += [] if rival is None else [rival["name"]]
    tested_on = list(rows(1, names)) if names else []
    tested = {row["name"]: row for row in tested_on}
    row = tested[picked] if picked else None
    adopt = row is not None and good(row) and row["jct_high"] < 1
    other = None if rival is None else tested[rival["name"]]
    beaten = picked if adopt and picked else KEPT
    recommended = (
        other is not None
        and good(other)
        and other["jct_high"] < 1
        and beside("", {}, played[1, other["name"]], played[1, beaten])["jct_high"] < 1
    )
    settings = dict(known[picked]) if adopt and picked else {}
    mine = flat(settings_of(POLICY, now))
    return {
        "seeds": seeds,
        "windows": WINDOWS,
        "chosen_on": chosen_on,
        "tested_on": tested_on,
        "picked": picked,
        "adopt": adopt,
        "settings": settings,
        "before": {name: mine.get(name) for name in settings},
        "verdict": _verdict(row, adopt=adopt),
        "policy": other["policy"] if other is not None and recommended else None,
        "rivals": _of_rivals(
            other, others, better=other is not None and good(other), recommended=recommended
        ),
    }


def crossed(
    good: Sequence[Row], tried: Mapping[str, Values], known: Mapping[str, Values]
) -> dict[str, Values] | None:
    """Return the next combination of candidates to try, {name: settings}, or None if there is none
    left.

    Args:
        good: rows of candidates that help, combinations included. The best of them is combined with
            the best single candidate that changes other settings.
        tried: the single candidates.
        known: all candidates tried so far, combinations included.
    """
    in_order = sorted(good, key=lambda row: row["jct_ratio"])
    for first in in_order[:1]:
        for row in in_order[1:]:
            name, settings = f"{first['name']} + {row['name']}", row["settings"]
            single = row["name"] in tried and row["name"] != DEFAULTS
            if not single or name in known or first["settings"].keys() & settings.keys():
                continue
            return {name: {**first["settings"], **settings}}
    return None


class Tuning:
    """Tunes the policy of a simulated world at intervals, as `pellucid tune --adopt` would, on the
    jobs that have ended in the simulation by then.

    Args:
        scenario: the world. It is changed: from now on `engine` plays it.
        every_s: seconds between two tunings.
        settings: settings of `pellucid` at the start, as in a cluster file.

    Attributes:
        tries: number of tunings for which enough jobs had ended.
        adopted: (time, result) of each tuning that was adopted.
    """

    def __init__(self, scenario: Scenario, every_s: float, settings: Values):
        self.scenario, self.every_s, self.settings = scenario, every_s, settings
        self.tries = 0
        self.adopted: list[tuple[float, Tuned]] = []
        self._notes = scenario.notes
        scenario.notes += tuple(self.notes())
        scenario.engine = partial(_TunedEngine, self)

    def due(self, results: Iterable[JobResult], core: Core, now: float) -> None:
        """Tune on the jobs in `results` that have ended by `now`. If other settings are better
        beyond chance, the policy of `core` uses them from now on. Do nothing if fewer than
        `LEAST` of the last `LAST_DAYS` days have ended."""
        past = self._past(results)
        since = _since(past, LAST_DAYS)
        if sum(job.submit_time >= since for job in past.jobs) < LEAST:
            return
        found = tune(
            History(past, self.scenario.profiling, LAST_DAYS),
            self.settings,
            candidates(self.settings, past, {}),
            1,
        )
        self.tries += 1
        if found["adopt"]:
            self.adopted.append((now, found))
            self._adopt(found, core, now)
        self.scenario.notes = (*self._notes, *self.notes())

    def _adopt(self, found: Tuned, core: Core, now: float) -> None:
        self.settings = with_assignments(self.settings, assignments(found["settings"]))
        tuned = replace(self.scenario, settings={POLICY: self.settings})
        core.use_policy(tuned.policy(POLICY), now)

    def _past(self, results: Iterable[JobResult]) -> Workload:
        whole = self.scenario.workload
        ended = [result for result in results if result.end_time is not None]
        ran = {of.job.job_id: of.ran_s or of.profile_s for of in ended}
        work = {name: replace(whole.work[name], duration_s=ran_s) for name, ran_s in ran.items()}
        jobs = sorted((of.job for of in ended), key=lambda job: job.submit_time)
        ends = {of.job.job_id: of.end_time for of in ended if of.end_time is not None}
        return Workload(whole.name, jobs, work, whole.cluster, recorded_ends=ends)

    def notes(self) -> list[str]:
        """Return sentences that say how often the policy was tuned, and what was adopted."""
        start = self.scenario.workload.jobs[0].submit_time
        every = f"Tuned every {self.every_s / DAY_S:g} days on what had ended by then"
        return [f"{every}: {self.tries} tries, {len(self.adopted)} adopted."] + [
            f"Day {(at - start) / DAY_S:.0f}: {found['verdict']}" for at, found in self.adopted
        ]


class _TunedEngine(Engine):
    """A simulation engine that tunes the settings of its policy at intervals of simulated time."""

    def __init__(self, tuning: Tuning, core: Core, *args: Any, **options: Any):
        super().__init__(core, *args, **options)
        self._tuning, self._due = tuning, -np.inf

    def _decided(self, now: float) -> None:
        if now < self._due:
            return
        if self._due > -np.inf:
            self._tuning.due(self.results.values(), self.core, now)
        self._due = now + self._tuning.every_s


def replays(tried: Mapping[str, Any], seeds: int, others: Collection[str] = ()) -> int:
    """Return the largest number of replays that `tune` may make with these candidates, seeds and
    other policies."""
    crossings = min(CROSSED, max(0, len(tried) - 1))
    tested = 2 + (DEFAULTS in tried) + bool(others)
    return seeds * (len(tried) + len(others) + crossings + 1 + tested)


def _verdict(row: Row | None, *, adopt: bool) -> str:
    if row is None:
        return (
            "Keep the settings: on the first half no candidate has a lower mean JCT without a "
            "longer p99 wait."
        )
    if adopt:
        return f"Adopt {row['name']}: on the half that did not choose it, {_figures(row)}."
    return (
        f"Keep the settings: {row['name']}, chosen on the first half, has on the second "
        f"{_figures(row)}: {_but(row)}."
    )


def _figures(row: Row) -> str:
    return f"mean JCT {words(row)}, p99 wait {row['p99_more_s'] / 3600:+,.1f} h"


def _but(row: Row) -> str:
    """Return why a candidate is not adopted, by its figures on the second half."""
    if row["jct_ratio"] >= 1:
        return "it is no better there"
    return "that may be chance" if row["jct_high"] >= 1 else "the p99 wait is longer"


def _of_rivals(row: Row | None, others: Collection[str], *, better: bool, recommended: bool) -> str:
    """Return as a sentence how other policies compare, or "" where none was tried.

    Args:
        row: the best of them, on the second half; None: on the first half, none does better than
            the settings, the best new ones included.
        better: whether its mean JCT there is lower than that of the settings in force, and its p99
            wait not too long.
    """
    if not others:
        return ""
    if row is None:
        return f"No other policy does better on the first half ({', '.join(others)})."
    if recommended:
        return (
            f"Better served by {row['name']}: on the half that did not choose it, {_figures(row)}."
        )
    beyond_chance = better and row["jct_high"] < 1
    why = "the settings to adopt are as good" if beyond_chance else _but(row)
    return f"Of other policies, {row['policy']} has on the second half {_figures(row)}: {why}."


def words(row: Row) -> str:
    """Return a row's ratio of mean JCTs with its interval, as text."""
    return f"{row['jct_ratio']:.3f} times [{row['jct_low']:.3f}, {row['jct_high']:.3f}]"


def evidence(found: Tuned, jobs: int) -> str:
    """Return a text that says why settings were changed, for the service's log: at most 256
    characters."""
    row = next(row for row in found["tested_on"] if row["name"] == found["picked"])
    before = " ".join(assignments(found["before"]))
    text = (
        f"tune {time.strftime('%F', time.gmtime())}: {row['name']}: mean JCT {words(row)}, "
        f"p99 wait {row['p99_more_s'] / 3600:+.1f} h on the last half of {jobs:,} jobs; before: "
    )
    return (text + before)[:256]


def assignments(values: Values) -> list[str]:
    """Return settings as arguments of `pellucid settings set`: NAME=VALUE."""

    return [f"{name}={json.dumps(value)}" for name, value in values.items()]
