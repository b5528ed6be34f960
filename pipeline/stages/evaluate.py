"""Stage `evaluate`: errors of the models on days after their training, beside those of baselines.

The rolling evaluation refits models as the live system would. The exported candidate is then logged
to MLflow and registered there. The stage does not change which model is champion.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.codec import Json
from features.files import write_json, write_whole
from features.rows import Rows
from features.watch import Seen, unlike
from models.bundle import Bundle
from models.training import edits
from models.training.card import model_card, similar_rows
from models.training.drift import Drift, measure_drift
from models.training.errors import TrainingError
from models.training.evaluation import (
    GPUS_UP_TO,
    DurationEvaluation,
    by_day,
    evaluate_duration,
    rows_digest,
    slices,
    tail_auc,
)
from models.training.metrics import TITLES, duration_metrics
from models.training.tracking import Registry, TrainedOn, Version, log_training
from pipeline.stages.common import (
    CANDIDATE,
    DAY_S,
    FEATURES,
    METRICS,
    PLOTS,
    TRACE,
    Params,
    Shown,
    agreed,
    test_from,
    unseen,
)
from pipeline.traces import read_dataset
from scheduler.charts.drift import alarm_words

WARM = 10  # jobs of a user after which their histories say something
IN_VIEW = "spearman", "mae_log10", "auc_6h"  # columns of MLflow's table of runs
FIGURE = "tail AUC"
LEAST_OF_A_WEEK = 50  # jobs, before its errors say something
FACTORS = np.linspace(1.0, 10.0, 37)
EXACTLY = 1 + 1e-9  # three times as long is within a factor of three, whatever the last bit says


def run(params: Params, shown: Shown = unseen) -> str:
    trace = read_dataset(TRACE)
    rows = Rows.from_table(pq.read_table(FEATURES))
    wanted = params.evaluate
    rolling = roll(
        trace,
        rows,
        test_from(trace.column("submit_time"), params.train.test_days),
        refit_days=wanted.refit_days,
        preset=wanted.preset,
        seed=wanted.seed,
        shown=shown,
    )
    found = evaluated(CANDIDATE, trace, rows, rolling)
    write_json(METRICS / "evaluate.json", found)
    tested = found["duration"]
    write_json(METRICS / "models.json", headline(found))
    write_whole(PLOTS / "errors.csv", _errors(rolling))
    registry = registry_of(params)
    version = track(CANDIDATE, found, chosen(params), registry=registry, source=TRACE)
    return (
        f"{len(rolling.rows):,} unseen jobs, Spearman {tested['ga2m']['spearman']:.3f} "
        f"(LightGBM mean {tested['lightgbm_l2']['spearman']:.3f}); candidate {version.digest[:12]} "
        f"is version {version.number}"
    )


def evaluated(bundle: Path, trace: pa.Table, rows: Rows, rolling: DurationEvaluation) -> Json:
    """Return the content of `evaluate.json`: the results of the rolling evaluation, and the errors
    of the bundle itself."""
    loaded, moved = Bundle.load(bundle), drift(bundle, rolling)
    tested = {**rolling.metrics, **edits.measured(loaded)}
    found: Json = agreed(
        {
            "test_jobs": len(rolling.rows),
            "rows": rows_digest(rolling.rows),
            "refits": rolling.refits,
            "duration": {name: dict(figures) for name, figures in tested.items()},
            "within": by_day(rolling),
            "weeks": weeks(rolling),
            "candidate_tail_auc": tail_auc(rolling.rows)(loaded.duration),
            "slices": slices(rolling, cuts(trace, rolling.rows)),
            "foils": foils(bundle, rows, rolling),
            "drift": None if moved is None else asdict(moved),
            "unlike": unlike_before(trace),
        }
    )
    return found


def weeks(rolling: DurationEvaluation) -> dict[str, dict[str, float]]:
    """Return the errors in each week with at least `LEAST_OF_A_WEEK` jobs: {number of the week
    since the epoch: {figure as MLflow names it: value}}."""
    rows, score = rolling.rows, rolling.scores["ga2m"]
    number = (rows.time // (7 * DAY_S)).astype(np.int64)
    found = {}
    for week in np.unique(number).tolist():
        mine = number == week
        if mine.sum() >= LEAST_OF_A_WEEK:
            figures = duration_metrics(score[mine], rows.y[mine], rows.gpus[mine])
            found[str(week)] = {
                TITLES[name]: float(value)
                for name, value in figures.items()
                if name in IN_VIEW and np.isfinite(value)
            }
    return found


def unlike_before(trace: pa.Table) -> list[str]:
    """Return sentences that say how the last day of a trace differs from the weeks before."""
    names = ("submit_time", "duration_s", "gpus", "vc", "user", "gpu_type")
    columns = [trace.column(name) for name in names]
    columns[0] = columns[0].cast("int64")
    jobs = [
        Seen(
            submitted=at / 1000.0,
            seconds=seconds,
            gpus=gpus,
            vc=vc or "",
            user=user or "",
            gpu_type=kind or "",
        )
        for at, seconds, gpus, vc, user, kind in zip(
            *(column.to_pylist() for column in columns), strict=True
        )
        if seconds is not None
    ]
    now = max((job.submitted for job in jobs), default=0.0)
    return [alarm_words(alarm) for alarm in unlike(jobs, now)]


def chosen(params: Params) -> dict[str, object]:
    """Return the parameters of training that MLflow shows with a run."""
    return {
        **{f"train.{name}": value for name, value in params.train.model_dump().items()},
        "features.families": ",".join(params.features.families),
    }


def registry_of(params: Params) -> Registry:
    """Return the MLflow store that the parameters name."""
    wanted = params.mlflow
    return Registry(tracking_uri=wanted.uri, artifact_root=wanted.artifacts, name=wanted.model)


def headline(found: Json) -> dict[str, float]:
    """Return the figures of the duration model, and of LightGBM, that `dvc metrics` and `dvc exp
    show` print. They are kept in git, so they are rounded to few digits."""
    tested = found["duration"]
    figures = {
        "spearman": tested["ga2m"]["spearman"],
        "spearman_lightgbm_mean": tested["lightgbm_l2"]["spearman"],
        "mae_log10": tested["ga2m"]["mae_log10"],
        "candidate_tail_auc": found["candidate_tail_auc"],
    }
    return {name: round(float(value), 3) for name, value in figures.items()}


def roll(
    trace: pa.Table,
    rows: Rows,
    cut: float,
    *,
    refit_days: float,
    preset: str,
    seed: int,
    shown: Shown = unseen,
) -> DurationEvaluation:
    """Run the rolling evaluation with baselines, with test jobs submitted from `cut` on (seconds
    since the epoch). Return its result."""
    ids, names = trace.column("job_id").to_pylist(), trace.column("user").to_pylist()
    users = dict(zip(ids, names, strict=True))
    return evaluate_duration(
        rows,
        test_from=cut,
        refit_every_s=refit_days * DAY_S,
        user=[users[job_id] for job_id in rows.job_id],
        preset=preset,
        seed=seed,
        shown=shown,
    )


def cuts(trace: pa.Table, rows: Rows) -> dict[str, list[str]]:
    """Return the groups of rows for which errors are shown separately: {property: its value for
    each row}. The properties are the number of GPUs, the virtual cluster, and how well the user is
    known."""
    place = {job: i for i, job in enumerate(trace.column("job_id").to_pylist())}
    where = [place[job] for job in rows.job_id]
    vc, user = (trace.column(name).cast("string").to_pylist() for name in ("vc", "user"))
    submitted = trace.column("submit_time").cast("int64").to_numpy()
    before: dict[str, int] = {}
    known = [0] * len(submitted)
    for i in np.argsort(submitted, kind="stable").tolist():
        known[i] = before.get(user[i], 0)
        before[user[i]] = known[i] + 1
    edges = np.array(GPUS_UP_TO)
    names = [f"at most {n}" for n in GPUS_UP_TO] + [f"over {GPUS_UP_TO[-1]}"]
    return {
        "GPUs": [names[k] for k in np.searchsorted(edges, rows.gpus, side="left").tolist()],
        "virtual cluster": [vc[i] or "-" for i in where],
        "user": [
            "fewer than 10 jobs before" if known[i] < WARM else "10 or more jobs before"
            for i in where
        ],
    }


class Alike(TypedDict):
    """An ended job, and its distance from another job by the model's terms."""

    job_id: str
    gpus: int
    duration_s: float
    distance: float


class Foil(TypedDict):
    """An unseen job, the kind of error that it is an example of, and the most similar ended
    jobs."""

    kind: str
    job_id: str
    gpus: int
    predicted_s: float
    duration_s: float
    alike: list[Alike]


def foils(bundle: Path, rows: Rows, rolling: DurationEvaluation) -> list[Foil]:
    """Return three unseen jobs, each with the most similar ended jobs: one with a typical
    error, and those that ran longer and shorter than predicted by the largest factors.

    Similarity is that of the exported model (`models.training.card.similar_rows`), so the similar
    jobs show why the model predicted what it did.
    """
    model, test = Bundle.load(bundle).duration, rolling.rows
    seen = rows.ended_before(float(test.time.min()))
    missed = np.log1p(test.y) - rolling.scores["ga2m"]
    order = np.argsort(missed, kind="stable")
    chosen = {"typical": order[len(order) // 2], "ran longer": order[-1], "ran shorter": order[0]}
    foils = list[Foil]()
    for kind, i in chosen.items():
        row = [test.X[spec.name].iloc[i] for spec in model.features]
        alike = similar_rows(model, seen.X, row, 5)
        foils.append(
            {
                "kind": kind,
                "job_id": str(test.job_id[i]),
                "gpus": int(test.gpus[i]),
                "predicted_s": float(model.seconds(model.score(row))),
                "duration_s": float(test.y[i]),
                "alike": [
                    {
                        "job_id": str(seen.job_id[k]),
                        "gpus": int(seen.gpus[k]),
                        "duration_s": float(seen.y[k]),
                        "distance": distance,
                    }
                    for k, distance in alike
                ],
            }
        )
    return foils


def drift(bundle: Path, rolling: DurationEvaluation) -> Drift | None:
    """Return the drift (change) of features since training, and of errors between the two halves of
    the test days.

    Return None if there are too few rows.
    """
    rows = rolling.rows
    residual = np.log1p(rows.y) - rolling.scores["ga2m"]
    residual = residual[np.isfinite(residual)]
    half = len(residual) // 2
    try:
        return measure_drift(
            Bundle.load(bundle).duration,
            rows.X,
            residual=residual[half:],
            reference=residual[:half],
        )
    except TrainingError:
        return None


def track(
    bundle: Path,
    found: Mapping[str, Any],
    params: Mapping[str, object],
    *,
    registry: Registry,
    source: Path | None = None,
) -> Version:
    """Log a bundle to MLflow with its evaluation and model card, and register it as a candidate.
    Return the version.

    Args:
        found: content of `evaluate.json`.
        source: folder of the trace.
    """
    loaded, measured, moved = Bundle.load(bundle), found["duration"], found["drift"]
    card = model_card(
        loaded,
        metrics=measured,
        slices=found["slices"],
        limits=() if moved is None else moved["warnings"],
        examples=found["foils"],
    )
    metrics = {
        f"{TITLES[model]}/{TITLES[name]}": value
        for model, figures in measured.items()
        for name, value in figures.items()
    }
    if moved is not None:
        metrics |= Drift(**moved).metrics()
    return log_training(
        bundle,
        params=params,
        metrics={**metrics, FIGURE: found["candidate_tail_auc"]},
        data=TrainedOn(
            digest=str(loaded.metadata["duration"]["data_digest"]),
            rows=found["rows"],
            source=source,
        ),
        card=card,
        registry=registry,
        by_week={int(week): figures for week, figures in found.get("weeks", {}).items()},
        columns=[
            FIGURE,
            *(
                f"{TITLES[model]}/{TITLES[name]}"
                for name in IN_VIEW
                for model in ("ga2m", "lightgbm_l2")
            ),
        ],
    )


def _errors(rolling: DurationEvaluation) -> str:
    """Return CSV for `dvc plots`: for a number of factors, the share of jobs predicted within this
    factor, one column per model."""
    true = np.log1p(rolling.rows.y)
    off = {
        name: np.exp(np.abs(score - true)[np.isfinite(score - true)])
        for name, score in rolling.scores.items()
    }
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["factor", *off])
    for factor in FACTORS:
        within = (np.mean(one <= factor * EXACTLY) for one in off.values())
        writer.writerow([f"{factor:.2f}", *(f"{share:.4f}" for share in within)])
    return out.getvalue()
