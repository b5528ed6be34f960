"""Measures which learned part matters: each is replaced by a constant, and by another job's
answers.

    python -m benchmarks.falsify --json [--seeds 0 1 2] [--jobs 1500] [--parts user template]

Draws of the demo's trace are played with and without the change, paired by seed. A part that makes
nothing worse when it is falsified does not belong on the list of what decides (docs/models.md).
Measured are the mean JCT of `pellucid`; the pinball loss of ln(1 + seconds) of what it believed of
a job when it was first decided on; and, for arrivals, the pinball loss of ln(1 + seconds) until a
waiting job starts, of forecasts that are made at the same moments of one run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from math import log1p, sqrt
from statistics import mean, stdev
from typing import Any

from benchmarks.digests import DEMO_CLUSTER
from features.job import Job
from features.state import FeatureState
from features.survival import ABSENT, LEVELS, Hazard
from models.bundle import Bundle
from pipeline.student import bound
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import Scenario, plain
from pipeline.worlds.cluster_file import read_cluster
from scheduler.core.core import Core
from scheduler.core.decisions import STARTS, Decision, PairPrediction
from scheduler.core.durations import Duration, seconds_of
from scheduler.core.estimates import (
    BundleEstimator,
    ConstantEstimator,
    Estimate,
    Estimator,
    HistoriesEstimator,
)
from scheduler.core.pairs import PairPredictor
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.futures import Arrival, Beliefs, Piece
from scheduler.explain.whatif.memory import DAY_S, Memory
from scheduler.simulation.results import summarise

POLICY = "pellucid"
LEVELS_OF = (("p10_s", 0.1), ("p50_s", 0.5), ("p90_s", 0.9))
BUNDLE = "data/prebuilt/bundle"
SAMPLES, AWAITED = 12, 6  # futures of a forecast, and waiting jobs that are forecast at a moment
APART_S = DAY_S / 3  # from one moment of forecasts to the next
HORIZON_S = DAY_S  # a wait beyond it counts as one of it


def chosen(count: int, *about: object) -> int:
    """Return a number from 0 to `count` - 1 by a hash of `about`: the same arguments always give
    the same number.
    """
    text = "/".join(map(str, about)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % count


# --- falsified parts -----------------------------------------------------------------------------


class Swapped(HistoriesEstimator):
    """A deliberately wrong estimator of durations. It gives a job the estimate of a random earlier
    job.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, Estimate] = {}
        self._order: list[Estimate] = []

    def estimate(self, job: Job, now: float) -> Estimate:
        if job.job_id not in self._said:
            self._order.append(super().estimate(job, now))
            self._said[job.job_id] = self._order[chosen(len(self._order), job.job_id)]
        return self._said[job.job_id]


class LevelState(FeatureState):
    """A feature state in which one level of the histories (all jobs, virtual cluster and size,
    user, template) is missing. If `how` is "shuffled", another group's history stands in its place.
    """

    def __init__(self, level: str, how: str):
        super().__init__({"survival"})
        self._level, self._how = LEVELS.index(level), how
        self._groups_seen: list[Hazard] = []

    def _groups(self, job: Job, template: Any) -> tuple[Hazard | None, ...]:
        groups = list(super()._groups(job, template))
        own = groups[self._level]
        groups[self._level] = ABSENT
        if self._how == "shuffled":
            if own is not None and own not in self._groups_seen:
                self._groups_seen.append(own)
            if self._groups_seen:
                at = chosen(len(self._groups_seen), job.job_id)
                groups[self._level] = self._groups_seen[at]
        return tuple(groups)


class OfLevel(HistoriesEstimator):
    """An estimator of durations by histories, of which one level is missing or shuffled."""

    def __init__(self, level: str, how: str):
        super().__init__()
        self.state = LevelState(level, how)


class WithoutHazards(HistoriesEstimator):
    """An estimator of durations that keeps a job's median, but not the curve around it: a
    "constant" estimate has no spread, a "shuffled" one has the curve of another job.
    """

    def __init__(self, how: str):
        super().__init__()
        self._how = how
        self._curves: list[Any] = []

    def estimate(self, job: Job, now: float) -> Estimate:
        found = super().estimate(job, now)
        if self._how == "constant":
            return replace(found, seconds=seconds_of(found.seconds))
        self._curves.append(found.seconds)
        other = self._curves[chosen(len(self._curves), job.job_id)]
        return replace(found, seconds=other.moved(seconds_of(found.seconds)))


class Glass(BundleEstimator):
    """An estimator of durations by the bundle's GA2M. If `how` is "shuffled", what the model adds
    to the estimate by histories is taken from another job.
    """

    def __init__(self, bundle: Bundle, how: str):
        super().__init__(bundle)
        self._how = how
        self._added: list[float] = []
        self._sum = [i for i, s in enumerate(bundle.duration.features) if s.name in _SUM]

    def scored(self, row: Sequence[Any]) -> Estimate:
        found = super().scored(row)
        if self._how != "shuffled" or found.score is None:
            return found
        told = sum(float(row[i]) for i in self._sum)
        self._added.append(found.score.value - told)
        added = self._added[chosen(len(self._added), len(self._added), told)]
        return Estimate(self.bundle.duration.seconds(told + added))


_SUM = frozenset(("like_all_log_s", "like_vc_gpus", "like_user", "like_template", "like_limit"))


class Pairs:
    """A pair predictor of which one field (`what`: the speeds or the sharing scores) is replaced by
    a constant or by another pair's value.
    """

    def __init__(self, inner: PairPredictor, what: str, how: str):
        self.sharing = getattr(inner, "sharing", "")
        self._inner, self._what, self._how = inner, what, how
        self._seen: list[PairPrediction] = []

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        found = self._inner.predict_pair(newcomer, partner)
        if found is None:
            return None
        self._seen.append(found)
        if self._how == "constant":
            other = replace(found, speeds=(0.92, 0.92), scores=(1, 1))
        else:
            ids = newcomer.job.job_id, partner.job.job_id
            other = self._seen[chosen(len(self._seen), *ids)]
        return replace(found, **{self._what: getattr(other, self._what)})


def deaf(core: Core, how: str) -> None:
    """Keep a core from learning how its predictions of durations turned out. If `how` is
    "shuffled", let the core learn from each true duration paired with another job's prediction.
    Changes `core`.
    """
    distribution = core.policy.distribution
    assert distribution is not None
    learn, before = distribution.learn, list[Duration | None]()

    def learned(predicted_s: Duration | None, duration_s: float, now: float | None = None) -> None:
        before.append(predicted_s)
        if how == "shuffled":
            learn(before[chosen(len(before), len(before))], duration_s, now)

    distribution.learn = learned  # type: ignore[method-assign]


# --- one run -------------------------------------------------------------------------------------


@dataclass
class Told:
    """What one simulated run gave.

    Attributes:
        jct_s: mean job completion time in seconds.
        pinball: maps a job to the mean pinball loss of its first predicted duration.
    """

    jct_s: float
    pinball: dict[str, float] = field(default_factory=dict)


def loss(level: float, said_s: float, true_s: float) -> float:
    """Return the pinball loss of a predicted quantile (`level`) of ln(1 + seconds)."""
    off = log1p(max(0.0, true_s)) - log1p(max(0.0, said_s))
    return max(level * off, (level - 1.0) * off)


def world(seed: int, jobs: int) -> Scenario:
    """Return a scenario: the first `jobs` jobs of the demo's trace with this seed, on the demo's
    cluster.
    """
    spec = read_cluster(DEMO_CLUSTER)
    trace = generate(default_config(seed=seed)).slice(0, jobs)
    made = plain.scenario(trace, "demo", spec.cluster, spec.profiling)
    made.estimators = lambda _: HistoriesEstimator()
    return made


def played(made: Scenario, change: Callable[[Core], None] | None = None) -> Told:
    """Simulate a scenario, after `change` was applied to its core. Return the mean completion time
    and the loss of each job's first prediction.
    """
    work, found = made.workload.work, dict[str, float]()

    def sink(decisions: list[Decision]) -> None:
        for d in decisions:
            said = dict(d.evidence)
            if d.job_id in found or "p90_s" not in said:
                continue
            true = work[d.job_id].duration_s
            found[d.job_id] = mean(loss(at, float(said[name]), true) for name, at in LEVELS_OF)

    core = made.core(POLICY)
    if change is not None:
        change(core)
    outcome, _ = made.play(core, sink=sink)
    return Told(float(summarise(outcome, made.cluster_gpus())["avg_jct_s"]), found)


def falsified(part: str, how: str, seed: int, jobs: int) -> Told:
    """Simulate with one part of the policy unchanged (`how` is ""), "constant" or "shuffled".
    Return the result.
    """
    made, makes = world(seed, jobs), _ESTIMATORS.get(part)
    if makes is not None and (how or part == "glass"):
        made.estimators = lambda _: makes(how)
    if part in ("speeds", "scores") and how:
        inner = made.pair_predictor
        assert inner is not None
        made.pair_predictor = lambda: Pairs(inner(), part, how)
    change = (lambda core: deaf(core, how)) if part == "ratios" and how else None
    return played(made, change)


@cache
def as_it_is(part: str, seed: int, jobs: int) -> Told:
    """Return the result of a run in which no part is falsified. Results are cached."""
    return falsified(part, "", seed, jobs)


def _durations(how: str) -> Estimator:
    return ConstantEstimator() if how == "constant" else Swapped()


def _glass(how: str) -> Estimator:
    return HistoriesEstimator() if how == "constant" else Glass(Bundle.load(BUNDLE), how)


_ESTIMATORS: dict[str, Callable[[str], Estimator]] = {
    "durations": _durations,
    **{level: partial(OfLevel, level) for level in LEVELS},
    "hazards": WithoutHazards,
    "glass": _glass,
}
PARTS = {
    "durations": "how long jobs last, whatever it rests on",
    "all": "the history of all jobs",
    "vc_gpus": "histories of a virtual cluster and size",
    "user": "histories of users",
    "template": "histories of users' scripts",
    "hazards": "a job's own curve",
    "ratios": "how predictions turned out",
    "glass": "the GA2M of the demo's bundle (constant: the histories alone)",
    "speeds": "pair speeds",
    "scores": "sharing scores (the packing tree)",
    "arrivals": "the days that arrivals of a future are drawn from",
}


# --- forecasts of starts -------------------------------------------------------------------------


def _nobody(beliefs: Beliefs, _: Piece) -> Beliefs:
    return replace(beliefs, pieces=(), piece_s=0.0)


def _known(beliefs: Beliefs, coming: Piece) -> Beliefs:
    return replace(beliefs, pieces=(coming,), piece_s=14 * DAY_S)


def _elsewhere(beliefs: Beliefs, _: Piece) -> Beliefs:
    """Return a copy of the beliefs in which the past arrivals of each virtual cluster are assigned
    to the next one.
    """

    def moved(piece: Piece) -> Piece:
        vcs = sorted({job.job.vc for job in beliefs.jobs.values()} | piece.keys())
        turned = [*vcs[1:], *vcs[:1]]
        return {
            to: [one._replace(job=replace(one.job, vc=to)) for one in piece.get(vc, [])]
            for vc, to in zip(vcs, turned, strict=True)
        }

    return replace(beliefs, pieces=[moved(piece) for piece in beliefs.pieces])


# "known" is no fault but the bound: each later job, when it comes and how long it runs.
_ARRIVE: dict[str, Callable[[Beliefs, Piece], Beliefs]] = {
    "": lambda beliefs, _: beliefs,
    "constant": _nobody,
    "shuffled": _elsewhere,
    "known": _known,
}


def _coming(made: Scenario, memory: Memory, now: float) -> Piece:
    """Return the jobs that a scenario submits after `now`, with their true durations."""
    found: Piece = {}
    for job in made.workload.jobs:
        if job.submit_time > now:
            predicted, work = memory.estimate(job, now).seconds, made.workload.work[job.job_id]
            one = Arrival(job.submit_time - now, job, predicted, work.profile, work.duration_s)
            found.setdefault(job.vc, []).append(one)
    return found


@dataclass(frozen=True, slots=True)
class Foretold:
    """One forecast of a start, and the start.

    Attributes:
        waits_s: forecast p10, p50 and p90 of the wait from the moment of the forecast on, seconds;
            at most `HORIZON_S`.
        waited_s: the true wait from that moment on, at most `HORIZON_S`.
    """

    waits_s: tuple[float, ...]
    waited_s: float

    @property
    def loss(self) -> float:
        """The mean pinball loss of ln(1 + seconds) over p10, p50 and p90."""
        return mean(
            loss(level, at, self.waited_s)
            for at, (_, level) in zip(self.waits_s, LEVELS_OF, strict=True)
        )

    def held(self, level: int) -> bool:
        """Return whether the job had started by p10, p50 or p90 (`level` 0, 1, 2). A quantile at
        the horizon holds: it says no more than that the job may start later.
        """
        return self.waited_s <= self.waits_s[level]


def foretold(seed: int, jobs: int) -> dict[str, dict[tuple[float, str], Foretold]]:
    """Forecast the starts of waiting jobs at moments of one run, once for each assumption about
    arrivals (unchanged, none, another virtual cluster's, known). Return the forecasts by
    assumption, moment and job.

    Moments are `APART_S` apart, and each asks about jobs of one virtual cluster. Those of the first
    day are left out, as no day of arrivals is known then, and those of the last `HORIZON_S` before
    the last submission and after it: nobody comes after it, which would make "none" right. Waits
    count up to `HORIZON_S` (a quantile of a wait that is cut there is the quantile, cut there), so
    whatever can change a figure is submitted in the run.
    """
    made = world(seed, jobs)
    core = made.core(POLICY)
    memory = core.estimator = Memory(core.estimator)
    said: dict[str, dict[tuple[float, str], tuple[float, ...]]] = {how: {} for how in _ARRIVE}
    started: dict[str, float] = {}
    due = made.workload.jobs[0].submit_time + DAY_S
    last = made.workload.jobs[-1].submit_time - HORIZON_S

    def sink(decisions: list[Decision]) -> None:
        nonlocal due
        started.update({d.job_id: d.time for d in decisions if d.action in STARTS})
        queues = [[q.job.job_id for q in queue] for queue in core.queues.values() if len(queue) > 1]
        if not queues or not decisions or not due <= decisions[-1].time <= last:
            return
        now = decisions[-1].time
        due = now + APART_S
        waiting = queues[chosen(len(queues), now)]
        awaited = {waiting[chosen(len(waiting), now, i)] for i in range(AWAITED)}
        coming = _coming(made, memory, now)
        for how, change in _ARRIVE.items():
            futures = Futures(core, memory, now, seed=seed, horizon_s=HORIZON_S)
            futures.__dict__["beliefs"] = change(futures.beliefs, coming)
            for job_id, one in futures.forecast(awaited, samples=SAMPLES).items():
                if one.samples:
                    quantiles = one.start_p10, one.start_p50, one.start_p90
                    said[how][now, job_id] = tuple(
                        HORIZON_S if at is None else min(HORIZON_S, at - now) for at in quantiles
                    )

    made.play(core, sink=sink)
    common = set.intersection(*(set(of) for of in said.values()))
    return {
        how: {
            (now, job_id): Foretold(of[now, job_id], min(HORIZON_S, started[job_id] - now))
            for now, job_id in sorted(common)
            if job_id in started
        }
        for how, of in said.items()
    }


# --- what gets worse -----------------------------------------------------------------------------


def verdict(more: Sequence[float]) -> dict[str, float | str]:
    """Return the mean and 95 % interval of paired differences in loss, and whether the interval
    shows that the falsified part made things worse.
    """
    much, sure = mean(more) if more else 0.0, float("inf")
    if len(more) > 1:
        sure = bound(0.95, len(more) - 1) * stdev(more) / sqrt(len(more))
    says = "worse" if much > sure else "better" if much < -sure else "no more than chance"
    return {"more": round(much, 4), "within": round(sure, 4), "verdict": says}


def compared(part: str, seeds: Sequence[int], jobs: int) -> dict[str, Any]:
    """Run with a part unchanged, constant and shuffled. Return how much worse each figure gets when
    the part is falsified.
    """
    if part == "arrivals":
        draws = [one for seed in seeds if (one := foretold(seed, jobs))[""]]
        return {how: forecasts_of(draws, how) for how in _ARRIVE}
    whole = part if part == "glass" else "durations"
    plain_runs = [as_it_is(whole, seed, jobs) for seed in seeds]
    found = {}
    for how in ("constant", "shuffled"):
        runs = [falsified(part, how, seed, jobs) for seed in seeds]
        pairs = list(zip(runs, plain_runs, strict=True))
        found[how] = {
            "mean JCT, s": verdict([a.jct_s - b.jct_s for a, b in pairs]),
            "durations": verdict([_more(a.pinball, b.pinball) for a, b in pairs]),
        }
    return found


def forecasts_of(
    draws: Sequence[dict[str, dict[tuple[float, str], Foretold]]], how: str
) -> dict[str, Any]:
    """Return how forecasts of several draws turned out under one assumption about arrivals: their
    loss, how much more it is than with nothing changed, and the shares held by p50 and p90.
    """
    every = [one for draw in draws for one in draw[how].values()]
    losses = [
        [mean(one.loss for one in draw[which].values()) for which in (how, "")] for draw in draws
    ]
    return {
        "start forecasts": verdict([this - plain for this, plain in losses]),
        "loss": round(mean(this for this, _ in losses), 4) if losses else None,
        "forecasts": len(every),
        **{
            f"{name} held": round(mean(one.held(at) for one in every), 3)
            for at, name in ((1, "p50"), (2, "p90"))
            if every
        },
    }


def _more(these: dict[str, float], those: dict[str, float]) -> float:
    common = these.keys() & those.keys()
    return mean(these[job] - those[job] for job in common) if common else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.falsify", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    given = parser.parse_args(arguments)
    found = {}
    for part in given.parts:
        found[part] = compared(part, given.seeds, given.jobs)
        print(*_lines(part, found[part]), sep="\n", file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps({"seeds": given.seeds, "jobs": given.jobs, "parts": found}, indent=1))
    return 0


def _lines(part: str, found: dict[str, Any]) -> Iterable[str]:
    for how, figures in found.items():
        for name, said in figures.items():
            if isinstance(said, dict):
                much = f"{said['more']:+.4g} ± {said['within']:.3g}"
                yield f"{PARTS[part]}, {how}: {name} {much}: {said['verdict']}"


if __name__ == "__main__":
    sys.exit(main())
