"""`pellucid evaluate duration`: predicted durations on the trace Venus from 1 September, starting
without history, refitted daily, without knowledge of the future.

The trace has no start times, so each job is taken to start when it is submitted, and its duration
is learned when it would then have ended. Any other dataset is evaluated in the same way
(`--trace`).
"""

from __future__ import annotations

import csv
import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from features.codec import Json
from features.given import arrow_file, opened_text
from features.job import Job
from features.lifetimes import lifetimes
from features.repeats import Claim
from features.replay import Lifetime
from features.rows import DAY_S, Rows, rows_of
from features.spec import Value
from features.state import FeatureState
from features.survival import EDGES_S, ODDS, SUM, beyond
from models.training.baselines import ewma_scores
from models.training.evaluation import GPUS_UP_TO
from models.training.metrics import duration_metrics
from models.training.rolling import (
    INTERVALS,
    LEVELS,
    Forecasts,
    figures,
    interval_figures,
    roll,
    typical,
)
from pipeline.traces import ingest, read_dataset
from scheduler.core.curves import LONGEST_S, Curve, Predicted
from scheduler.core.durations import LONG_S, Duration, DurationDistribution, at_level, seconds_of
from scheduler.core.estimates import Estimate, with_claims

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Chosen on 5-12 September: size, bursts and wider histories (74 features) were no better.
FAMILIES = ("survival",)
ABLATED = (
    "size", "burst", "user", "user_gpus", "template", "vc", "running", "calendar", "queue",
    "identity",
)  # fmt: skip
TEST_DAYS = 14
WARM = 10  # ended jobs after which a user is warm
HISTORY_DAYS = (1, 3, 7, 14)
OUTLIVED_S = (0.0, 200.0, 3600.0)  # as at submission, after a profile, and of one that runs
AHEAD_DAYS = 3
PEER_FLOOR_S = 1000.0
SHORT_S = 1800.0  # believed to be shorter: where long jobs are not seen
STATED_ERROR = 0.3  # deviation of ln(stated / true), of who is right
RECALLS = (0.1, 0.25, 0.5)
CHANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


class EvaluationError(ValueError):
    """Raised for data on which models cannot be evaluated. The message names the file or the
    fault."""


class _Watched(FeatureState):
    """A feature state that also stores, with each row, the job's hazards (share of similar jobs
    that ends in each stretch of running time) and the claims about its duration."""

    def __init__(self, families: tuple[str, ...]) -> None:
        super().__init__(families)
        self.curves: list[list[float]] = []
        self.claimed: list[tuple[Claim, ...]] = []

    def row(self, job: Job, now: float) -> list[Value]:
        self.curves.append(self.hazards(job, now))
        self.claimed.append(self.claims(job, now))
        return super().row(job, now)


def run(
    data: Path,
    *,
    seed: int = 0,
    ablation: bool = False,
    trace: Path | None = None,
    run: Path | None = None,
    statements: float = 0.0,
) -> Json:
    """Return all figures, by model, as plain JSON.

    Args:
        data: folder that contains `venus/`.
        trace: folder of a dataset to use instead of Venus.
        run: folder of a simulation of the same jobs; its predictions are evaluated, too.
        statements: share of the users who state how long each of their jobs will run; see
            `stating`.
        ablation: also evaluate the model without each of its families of features, and with
            each family that it lacks.
    """
    table = read_dataset(trace) if trace is not None else venus(data)
    ids, users = table["job_id"].to_pylist(), table["user"].to_pylist()
    state = _Watched((*FAMILIES, *ABLATED, "odds"))
    lives, _ = lifetimes(table)
    if statements:
        lives = stating(lives, statements, seed)
    everything = rows_of(lives, state)
    if not len(everything):
        raise EvaluationError("there is no job in the trace")
    by_id = dict(zip(ids, users, strict=True))
    user = [by_id[job] for job in everything.job_id]
    rows = of_families(everything, FAMILIES)
    last = math.ceil((float(rows.time.max()) + 1e-9) / DAY_S) * DAY_S
    test_from = last - TEST_DAYS * DAY_S
    odds = everything.X[[spec.name for spec in ODDS]].to_numpy(np.float64)
    forecasts = roll(rows, baselines_from=test_from, seed=seed, odds=odds)
    _add_baselines(forecasts, rows, user, data / "venus" if trace is None else None)
    forecasts.quantiles["hazards"] = curve_quantiles(np.array(state.curves), _limits(everything))
    forecasts.scores["history_median"] = np.log1p(
        forecasts.quantiles["hazards"][:, LEVELS.index(0.5)]
    )
    forecasts.quantiles["ratios"] = distribution_quantiles(rows, forecasts.scores["history"])
    test = rows.time >= test_from
    ended = ended_before_submission(user, rows)
    believed = Believed.of(rows, forecasts.scores["history"], np.array(state.curves), state.claimed)
    result: Json = {
        "features": [spec.name for spec in rows.features],
        "test": {"from_day": TEST_DAYS, "jobs": int(test.sum())},
        "shares": shares(rows, test),
        "cpu_s_per_refit": float(np.mean(forecasts.cpu_s)),
        "duration": figures(forecasts, rows, test),
        "cold_users": figures(forecasts, rows, test & (ended < WARM)),
        "warm_users": figures(forecasts, rows, test & (ended >= WARM)),
        "history_days": _by_history(forecasts, rows),
        "outlived": _outlived(believed, rows, forecasts.scores["history"], test),
        "ordered": ordered(believed, rows, test),
        "long": found_long(believed, rows, forecasts.scores["history"], test),
        "chances": calibration(believed, rows, test),
        "all_days": figures(forecasts, rows, np.isfinite(forecasts.scores["ga2m"])),
        "intervals": {
            name: interval_figures(quantiles, rows.y, _groups(rows, test, ended))
            for name, quantiles in forecasts.quantiles.items()
        },
    }
    if run is not None:
        result["in_schedule"] = _in_schedule(run, rows, forecasts.scores["history"], test)
    if ablation:
        result["ablation"] = _ablation(everything, test, test_from, seed)
    return dict(_plain(result))


def stating(lives: Sequence[Lifetime], share: float, seed: int) -> list[Lifetime]:
    """Return the jobs with an invented statement of the owner about the duration, for a share of
    the users.

    Half of these users are right, within `STATED_ERROR`. The others state the duration of a job
    drawn at random, so their statements are worthless.
    """
    draw = random.Random(f"statements {seed}")
    lasted = [life.duration_s for life in lives if life.duration_s is not None]
    found = list[Lifetime]()
    users = sorted({life.job.user for life in lives})
    draw.shuffle(users)
    telling = users[: round(share * len(users))]
    right = {user: place % 2 == 0 for place, user in enumerate(telling)}
    for life in lives:
        seconds, wrong = life.duration_s, draw.choice(lasted)
        off = math.exp(draw.gauss(0.0, STATED_ERROR))
        if life.job.user in right and seconds is not None:
            stated_s = seconds * off if right[life.job.user] else wrong
            job = replace(life.job, expect=f"{max(1.0, stated_s):.0f}")
            life = replace(life, job=job)
        found.append(life)
    return found


def of_families(rows: Rows, families: tuple[str, ...]) -> Rows:
    """Return the rows with only the features of the families `families`."""
    chosen = tuple(spec for spec in rows.features if spec.family in families)
    return replace(rows, features=chosen, X=rows.X[[spec.name for spec in chosen]])


def ended_before_submission(user: list[Any], rows: Rows) -> NDArray[np.int64]:
    """Return, for each row's job, how many jobs of its user had ended before it was submitted,
    (n,)."""
    ends: dict[Any, list[float]] = {}
    for who, end in zip(user, rows.end_time.tolist(), strict=True):
        if end == end:
            ends.setdefault(who, []).append(end)
    ordered = {who: np.sort(found) for who, found in ends.items()}
    none = np.empty(0)
    pairs = zip(user, rows.time.tolist(), strict=True)
    return np.array([np.searchsorted(ordered.get(who, none), now) for who, now in pairs])


def venus(data: Path) -> pa.Table:
    source = data / "venus" / "cluster_full_log.csv"
    if not source.is_file():
        raise EvaluationError(f"--data {data}: no venus/cluster_full_log.csv there")
    with TemporaryDirectory() as scratch:
        out = Path(scratch) / "venus"
        ingest(source, out)
        return read_dataset(out)


def _limits(rows: Rows) -> Floats:
    """Return the time limit of each row, seconds, (n,); infinite where there is none."""
    limit = rows.X["time_limit_s"].to_numpy(np.float64, copy=True)
    limit[~(limit > 0)] = np.inf
    return limit


def curve_quantiles(hazards: Floats, limit_s: Floats) -> Floats:
    """Return the quantiles `LEVELS` of durations, seconds, (n, levels), by curves of hazards, (n,
    stretches).

    Within a stretch, ends are spread evenly in ln(1 + seconds); the last stretch ends at
    `LONGEST_S`. No quantile is above the job's limit.
    """
    ends = np.log1p([0.0, *EDGES_S, LONGEST_S])
    left = np.cumprod(1.0 - hazards[:, :-1], axis=1)
    none = np.zeros((len(hazards), 1))
    ended = np.concatenate([none, 1.0 - left, none + 1.0], axis=1)
    found = np.array([np.interp(LEVELS, row, ends) for row in ended]).reshape(-1, len(LEVELS))
    seconds: Floats = np.minimum(np.expm1(found), limit_s[:, None])
    return seconds


def _outlived(
    believed: Believed, rows: Rows, score: Floats, test: Mask
) -> dict[str, dict[str, dict[str, float]]]:
    """Return figures for the jobs that run longer than each time in `OUTLIVED_S`, by that time.

    "as submitted" is the prediction made at submission, with the distribution of earlier
    predictions' errors. "outlived" is the prediction that knows how long the job has run, with the
    distribution that the scheduler uses. `pinball` and `p90_held` are computed with these
    distributions.
    """
    found = {}
    limit = _limits(rows) if "time_limit_s" in rows.X else np.full(len(rows), np.inf)
    before = Believed.of(rows, score).quantiles
    for place, outlived_s in enumerate(OUTLIVED_S):
        these = test & (rows.y > outlived_s) & np.isfinite(score)
        least = math.log1p(outlived_s) if outlived_s else -math.inf
        knows = [
            beyond(believed.hazards[i].tolist(), least, float(limit[i]))
            for i in np.flatnonzero(these).tolist()
        ]
        of = {
            "as submitted": (score[these], before),
            "outlived": (np.array(knows), believed.quantiles),
        }
        y, gpus = rows.y[these], rows.gpus[these]
        at = found[f"{outlived_s:g}"] = dict[str, dict[str, float]]()
        for name, (mean, quantiles) in of.items():
            mine = quantiles[these, place]
            row = at[name] = duration_metrics(mean, y, gpus)
            row["pinball"] = interval_figures(mine, y, [("", np.full(len(y), True))])[""]["pinball"]
            row["p90_held"] = float((y <= mine[:, LEVELS.index(0.9)]).mean())
    return found


@dataclass(frozen=True)
class Believed:
    """The predictions of the scheduler's own distribution of durations for every job at its
    submission, learned from the jobs that had ended by then.

    Attributes:
        hazards: hazards of each job that the distribution uses, (n, stretches).
        quantiles: quantiles `LEVELS` of the duration, seconds, given that the job outlasts each of
            `OUTLIVED_S`, (n, times, levels).
        chances: probability to last longer than each of `LONG_S`, (n, thresholds).
        score: ln(1 + predicted seconds), corrected by the claims about the job.
        means: mean of the job's own curve, seconds, (n,): what the order goes by.
    """

    hazards: Floats
    quantiles: Floats
    chances: Floats
    score: Floats
    means: Floats

    @classmethod
    def of(
        cls,
        rows: Rows,
        score: Floats,
        hazards: Floats | None = None,
        claims: Sequence[Sequence[Claim]] | None = None,
        *,
        shift: Floats | None = None,
        distribution: DurationDistribution | None = None,
        asked: Mask | None = None,
    ) -> Believed:
        """Replay the jobs in order of submission. Return the predictions made for each at its
        submission.

        Args:
            score: predicted ln(1 + seconds) of each job; NaN: none, and then the job gets no
                prediction here.
            hazards: hazards of each job, (n, stretches). None: the distribution uses only the
                errors of earlier predictions.
            claims: claims about each job's duration; used only with `hazards`.
            shift: by how much `score` is above the mean that the hazards give, (n,); None: not.
            distribution: what learns from the jobs that end; None: a new one of the scheduler's.
            asked: mask of the jobs whose quantiles, chances and means are wanted; None: all.
        """
        distribution, running = distribution or DurationDistribution(), list[tuple[float, int]]()
        limit = _limits(rows) if "time_limit_s" in rows.X else np.full(len(rows), np.inf)
        quantiles = np.full((len(rows), len(OUTLIVED_S), len(LEVELS)), np.nan)
        chances = np.full((len(rows), len(LONG_S)), np.nan)
        means = np.full(len(rows), np.nan)
        known, score = dict[int, Duration](), score.copy()
        for i in np.flatnonzero(np.isfinite(score)).tolist():
            while running and running[0][0] < rows.time[i]:
                _, ended = heapq.heappop(running)
                distribution.learn(known.pop(ended), float(rows.y[ended]))
            most = float(limit[i]) if math.isfinite(limit[i]) else None
            by_terms_s = max(0.0, math.expm1(score[i]))
            predicted_s: Duration = by_terms_s
            if hazards is not None:
                by = 0.0 if shift is None else float(shift[i])
                own = Predicted.of(by_terms_s, hazards[i].tolist(), by, most or LONGEST_S)
                claimed = claims[i] if claims is not None else ()
                predicted_s = with_claims(Estimate(own), own, claimed).seconds
                score[i] = math.log1p(seconds_of(predicted_s))
            wanted = asked is None or bool(asked[i])
            if wanted:
                alone = distribution.alone(predicted_s)
                means[i] = seconds_of(predicted_s) if alone is None else alone.expected()
            for place, outlived_s in enumerate(OUTLIVED_S if wanted else ()):
                found = distribution.quantiles(predicted_s, outlived_s, most)
                quantiles[i, place] = [at_level(found, level) for level in LEVELS]
                if not outlived_s:
                    curve = Curve.of(found)
                    chances[i] = [curve.chance(seconds) for _, seconds in LONG_S]
            if np.isfinite(rows.end_time[i]) and np.isfinite(rows.y[i]):
                heapq.heappush(running, (float(rows.end_time[i]), i))
                known[i] = predicted_s
        behind = np.empty((len(rows), 0)) if hazards is None else hazards
        return cls(hazards=behind, quantiles=quantiles, chances=chances, score=score, means=means)


def ordered(believed: Believed, rows: Rows, test: Mask) -> dict[str, dict[str, float]]:
    """Return what an order by predicted durations is worth, by what the jobs are ordered by.

    All jobs wait at once for one machine that does their GPU time in order, the smallest product of
    duration and GPUs first. `before_h` is the mean GPU time done until a job's end, hours. `earned`
    is how far that is from the order by GPUs alone (0) to the order by true durations (1).
    """
    these = test & np.isfinite(rows.y) & np.isfinite(believed.means)
    gpus, true_s = rows.gpus[these].astype(np.float64), rows.y[these].astype(np.float64)
    keys = {
        "GPUs alone": gpus,
        "the predicted number": np.expm1(believed.score[these]) * gpus,
        "the mean of the curve": believed.means[these] * gpus,
        "truth": true_s * gpus,
    }
    before = {name: _work_before(key, true_s * gpus) / 3600.0 for name, key in keys.items()}
    whole = before["GPUs alone"] - before["truth"]
    return {
        name: {"before_h": one, "earned": (before["GPUs alone"] - one) / whole if whole else 0.0}
        for name, one in before.items()
    }


def _work_before(key: Floats, work: Floats) -> float:
    """Return the mean, over jobs, of the summed `work` of a job and of all jobs before it, if the
    smallest `key` goes first."""
    return float(np.cumsum(work[np.argsort(key, kind="stable")]).mean()) if len(work) else 0.0


def found_long(believed: Believed, rows: Rows, score: Floats, test: Mask) -> dict[str, object]:
    """Return how well two scores find jobs of over six hours among those with a predicted duration
    below `SHORT_S`: the predicted probability, and the sum of terms. Each has average precision,
    and precision at some recalls. Return {} if there is no such long job."""
    these = test & np.isfinite(rows.y) & (np.expm1(score) < SHORT_S)
    long = (rows.y[these] > LONG_S[1][1]).astype(np.float64)
    of = {"the sum": score[these], "what decides": believed.chances[these, 1]}
    if not long.any():
        return {}
    return {
        name: {
            "n": float(len(long)),
            "long": float(long.sum()),
            "average_precision": float(average_precision_score(long, by)),
            **{f"precision_at_{recall:.0%}": _precision(long, by, recall) for recall in RECALLS},
        }
        for name, by in of.items()
    }


def _precision(long: Floats, by: Floats, recall: float) -> float:
    """Return the precision at a given recall. Jobs are flagged in descending order of `by`, until
    the share `recall` of the long jobs is flagged; the precision is the share of long jobs among
    the flagged.

    Args:
        long: 1 for a long job, 0 for others.
    """
    hits = np.cumsum(long[np.argsort(-by, kind="stable")])
    flagged = int(np.searchsorted(hits, recall * hits[-1])) + 1
    return float(hits[flagged - 1] / flagged)


def calibration(believed: Believed, rows: Rows, test: Mask) -> dict[str, object]:
    """Return, for groups of jobs with about the same predicted probability to last over six hours,
    the mean of that probability and the share that did."""
    these = test & np.isfinite(rows.y) & np.isfinite(believed.chances[:, 1])
    chance, long = believed.chances[these, 1], rows.y[these] > LONG_S[1][1]
    found = dict[str, object]()
    for low, high in pairwise(CHANCES):
        mine = (chance >= low) & ((chance < high) | (high == 1.0))
        if mine.any():
            found[f"{low:.0%} to {high:.0%}"] = {
                "n": float(mine.sum()),
                "given": float(chance[mine].mean()),
                "was": float(long[mine].mean()),
            }
    return found


def shares(rows: Rows, mask: Mask) -> dict[str, float]:
    """Return, for each term of the sum of survival features, the share of the sum's variance that
    it carries, by name. The shares add up to 1."""
    terms = rows.X.loc[mask, [spec.name for spec in SUM]].to_numpy(np.float64)
    score = typical(rows.X[mask])
    centred = score - score.mean()
    parts = (terms - terms.mean(axis=0)).T @ centred / (centred @ centred)
    return dict(zip((spec.name for spec in SUM), parts.tolist(), strict=True))


def _add_baselines(forecasts: Forecasts, rows: Rows, user: list[Any], folder: Path | None) -> None:
    for name, weight in (("ewma_user_gpus", 0.3), ("last_user_gpus", 1.0)):
        forecasts.scores[name] = ewma_scores(
            user,
            rows.gpus,
            submit_time=rows.time,
            end_time=rows.end_time,
            duration_s=rows.y,
            weight=weight,
        )
    if folder is None:
        return
    for name in ("ebm", "lgb"):
        path = folder / f"peer_duration_{name}.csv"
        if not path.is_file():
            continue
        with opened_text(path, newline="") as file:
            priorities = {row["job_id"]: float(row["priority"]) for row in csv.DictReader(file)}
        seconds = np.array([priorities.get(str(job), math.nan) for job in rows.job_id])
        # As the peers themselves do with what is negative.
        forecasts.scores[f"peer_{name}"] = np.log1p(np.where(seconds < 0, PEER_FLOOR_S, seconds))


def distribution_quantiles(rows: Rows, score: Floats) -> Floats:
    """Return the quantiles `LEVELS` of durations, seconds, (n, levels), by the scheduler's own
    `DurationDistribution`.

    They are those of each job at its submission, from the errors of the predictions `score` (ln(1 +
    seconds)) of the jobs that had ended by then. NaN where there is no prediction.
    """
    distribution, running = DurationDistribution(), list[tuple[float, int]]()
    predicted = np.maximum(np.expm1(score), 0.0)
    limit = rows.X["time_limit_s"].to_numpy() if "time_limit_s" in rows.X else None
    found = np.full((len(rows), len(LEVELS)), np.nan)
    for i in np.flatnonzero(np.isfinite(predicted)).tolist():
        while running and running[0][0] < rows.time[i]:
            _, ended = heapq.heappop(running)
            distribution.learn(float(predicted[ended]), float(rows.y[ended]))
        most = None if limit is None or np.isnan(limit[i]) else float(limit[i])
        quantiles = distribution.quantiles(float(predicted[i]), 0.0, most)
        found[i] = [at_level(quantiles, level) for level in LEVELS]
        if np.isfinite(rows.end_time[i]) and np.isfinite(rows.y[i]):
            heapq.heappush(running, (float(rows.end_time[i]), i))
    return found


def _by_history(forecasts: Forecasts, rows: Rows) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures for the three days that follow 1, 3, 7 and 14 days of history: {number
    of days as text: figures}; {} for a number without rows."""
    first = math.floor(float(rows.time.min()) / DAY_S) * DAY_S
    found = {}
    for days in HISTORY_DAYS:
        since = first + days * DAY_S
        mask = (rows.time >= since) & (rows.time < since + AHEAD_DAYS * DAY_S)
        found[str(days)] = figures(forecasts, rows, mask) if mask.any() else {}
    return found


def _in_schedule(run: Path, rows: Rows, score: Floats, test: Mask) -> dict[str, dict[str, float]]:
    """Return the errors of the durations that a simulated run predicted when its jobs started,
    and those of `score`, which knows nothing of the queue. Raise EvaluationError if `run` is no
    folder of a run, or if none of its jobs is evaluated here."""
    try:
        with arrow_file(run / "jobs.parquet") as file:
            table = pq.read_table(file, columns=["job_id", "estimate_s", "end_time"])
    except (OSError, pa.ArrowException):
        raise EvaluationError(f"--run {run}: no jobs.parquet of a run there") from None
    estimates = {
        str(job): math.log1p(max(estimate_s, 0.0))
        for job, estimate_s, end in zip(*table.to_pydict().values(), strict=True)
        if estimate_s is not None and end is not None
    }
    then = np.array([estimates.get(str(job), math.nan) for job in rows.job_id])
    both = test & np.isfinite(then) & np.isfinite(score)
    if not both.any():
        raise EvaluationError(f"--run {run}: none of its jobs is judged here")
    of = {"in the schedule": then, "without a queue": score}
    return {n: duration_metrics(s[both], rows.y[both], rows.gpus[both]) for n, s in of.items()}


def _groups(rows: Rows, test: Mask, ended: NDArray[np.int64]) -> list[tuple[str, Mask]]:
    bounds = (0, *GPUS_UP_TO)
    groups = [("all", test)]
    for low, high in zip(bounds, GPUS_UP_TO, strict=False):
        label = f"{high} GPU" if low + 1 == high else f"{low + 1}-{high} GPUs"
        groups.append((label, test & (rows.gpus > low) & (rows.gpus <= high)))
    groups.append((f"> {GPUS_UP_TO[-1]} GPUs", test & (rows.gpus > GPUS_UP_TO[-1])))
    groups.append(("cold users", test & (ended < WARM)))
    groups.append(("warm users", test & (ended >= WARM)))
    return groups


def _ablation(
    everything: Rows, test: Mask, test_from: float, seed: int
) -> dict[str, dict[str, float]]:
    """Return the figures of the GA2M fitted without each of its families of features, and with each
    family that it lacks: {"without FAMILY" or "with FAMILY": figures}."""
    found = {}
    for family in (*FAMILIES, *ABLATED):
        kept = set(FAMILIES) ^ {family}
        rows = of_families(everything, tuple(kept | {"survival"}))
        if family == "survival":  # its columns stay readable, the models do not see them
            rows = replace(
                rows, features=tuple(spec for spec in rows.features if spec.family != family)
            )
        forecasts = roll(rows, baselines_from=math.inf, since=test_from, seed=seed, forest=False)
        row = figures(forecasts, rows, test)["ga2m"]
        row["pinball"] = interval_figures(
            distribution_quantiles(rows, forecasts.scores["ga2m"]), rows.y, [("all", test)]
        )["all"]["pinball"]
        found[("without " if family in FAMILIES else "with ") + family] = row
    return found


def _plain(value: Any) -> Any:
    """Return `value` in types that JSON has: floats rounded to five digits, NaN and infinity as
    None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 5) if math.isfinite(value) else None
    return value


def text(result: Mapping[str, Any]) -> str:
    """Return the result of an evaluation of the duration model as tables of text."""
    columns = (
        "spearman",
        "spearman_gpu_time",
        "mae_log10",
        "rmse_log10",
        "auc_1h",
        "auc_6h",
        "tail_auc_1h",
        "tail_auc_6h",
        "auc_early",
    )
    parts = [f"The last {TEST_DAYS} days: {result['test']['jobs']:,} jobs, refitted daily."]
    parts.append(_table("all users", result["duration"], columns))
    parts.append(_table("cold users", result["cold_users"], columns))
    parts.append(_table("warm users", result["warm_users"], columns))
    for days, found in result["history_days"].items():
        title = f"days of history: {days}, {AHEAD_DAYS} ahead"
        parts.append(_table(title, found, columns))
    for seconds, found in result["outlived"].items():
        parts.append(
            _table(
                f"jobs that outlive {seconds} s", found, ("n", *columns[:6], "pinball", "p90_held")
            )
        )
    at = [f"precision_at_{recall:.0%}" for recall in RECALLS]
    few = f"over 6 h, believed < {SHORT_S / 60:.0f} min"
    parts.append(_table(few, result["long"], ("n", "long", "average_precision", *at)))
    parts.append(_table("ordered by", result["ordered"], ("before_h", "earned")))
    parts.append(_table("chance of > 6 h", result["chances"], ("n", "given", "was")))
    widths = [f"{kind}_{label}" for kind in ("coverage", "width") for label in INTERVALS]
    if "in_schedule" in result:
        parts.append(_table("its jobs in the run", result["in_schedule"], columns))
    for name, found in result["intervals"].items():
        parts.append(_table(f"intervals, {name}", found, ("n", *widths, "pinball")))
    carried = ", ".join(f"{name} {share:.2f}" for name, share in result["shares"].items())
    parts.append(f"Of the variance of the sum: {carried}.")
    if "ablation" in result:
        parts.append(_table("ablation", result["ablation"], (*columns, "pinball")))
    parts.append(f"{result['cpu_s_per_refit']:.2f} CPU-s a refit.")
    return "\n\n".join(parts)


def _table(title: str, rows: Mapping[str, Mapping[str, Any]], columns: tuple[str, ...]) -> str:
    names = [len(name) for name in (title, *rows)]
    wide = max(names)
    lines = [title.ljust(wide) + "".join(f"{name:>18}" for name in columns)]
    for name, row in rows.items():
        cells = (row.get(column) for column in columns)
        shown = ("-" if cell is None else f"{cell:,.3f}" for cell in cells)
        lines.append(name.ljust(wide) + "".join(f"{cell:>18}" for cell in shown))
    return "\n".join(lines)
