"""Stage `evaluate`: errors on days the models never saw, beside the baselines; then promotion.

The rolling evaluation refits as the live system would. The candidate itself is then logged to
MLflow and becomes champion if it is better than the present one on the same rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.files import write_json, write_whole
from features.rows import Rows
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
from models.training.metrics import TITLES
from models.training.tracking import Contest, Registry, TrackedRun, log_training
from pipeline.stages.common import (
    CANDIDATE,
    DAY_S,
    FEATURES,
    METRICS,
    PLOTS,
    TRACE,
    Params,
    Shown,
    test_from,
    unseen,
    write_figures,
)
from pipeline.traces import read_dataset

WARM = 10  # jobs of a user after which their histories say something
IN_VIEW = "spearman", "mae_log10", "auc_6h"  # columns of MLflow's table of runs
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
    chosen = {
        **{f"train.{k}": v for k, v in params.train.model_dump().items()},
        "features.families": ",".join(params.features.families),
    }
    by_slice = slices(rolling, cuts(trace, rolling.rows))
    moved = drift(CANDIDATE, rolling)
    examples = foils(CANDIDATE, rows, rolling)
    tracked = track(
        CANDIDATE,
        rolling,
        chosen,
        by_slice=by_slice,
        moved=moved,
        examples=examples,
        registry=Registry(
            tracking_uri=params.mlflow.uri,
            artifact_root=params.mlflow.artifacts,
            name=params.mlflow.model,
        ),
    )
    corrected = edits.measured(Bundle.load(CANDIDATE))
    tested = {name: dict(row) for name, row in {**rolling.metrics, **corrected}.items()}
    write_figures(
        METRICS / "evaluate.json",
        {
            "test_jobs": len(rolling.rows),
            "refits": rolling.refits,
            "duration": tested,
            "within": by_day(rolling),
            "candidate_tail_auc": tracked.value,
            "slices": by_slice,
            "foils": examples,
            "drift": None
            if moved is None
            else {
                "rows": moved.rows,
                "features": dict(moved.features),
                "residual_shift": moved.residual_shift,
                "residual_spread": moved.residual_spread,
                "warnings": list(moved.warnings),
            },
        },
    )
    write_json(METRICS / "models.json", headline(tested))
    write_json(
        METRICS / "tracking.json",
        {
            "run_id": tracked.run_id,
            "version": tracked.version,
            "promoted": tracked.promoted,
            "reason": tracked.reason,
        },
    )
    write_whole(PLOTS / "errors.csv", _errors(rolling))
    return (
        f"{len(rolling.rows):,} unseen jobs, Spearman {tested['ga2m']['spearman']:.3f} "
        f"(LightGBM mean {tested['lightgbm_l2']['spearman']:.3f}); version {tracked.version} "
        f"{'is champion' if tracked.promoted else 'was not promoted'}: {tracked.reason}"
    )


def headline(tested: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """What `dvc metrics show` prints of the duration model and of LightGBM beside it."""
    models = {"spearman": "ga2m", "spearman_lightgbm_mean": "lightgbm_l2"}
    return {name: round(float(tested[model]["spearman"]), 3) for name, model in models.items()}


def roll(
    trace: pa.Table, rows: Rows, cut: float, *, refit_days: float, preset: str, seed: int,
    shown: Shown = unseen,
) -> DurationEvaluation:  # fmt: skip
    """The rolling evaluation from `cut` on, with the baselines."""
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
    """What errors are shown by: gang size, virtual cluster, how well the user is known."""
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
    """An ended job, and how far it is from another as the model sees both."""

    job_id: str
    gpus: int
    duration_s: float
    distance: float


class Foil(TypedDict):
    """An unseen job, what kind of miss it is, and the ended jobs most like it."""

    kind: str
    job_id: str
    gpus: int
    predicted_s: float
    duration_s: float
    alike: list[Alike]


def foils(bundle: Path, rows: Rows, rolling: DurationEvaluation) -> list[Foil]:
    """For a typical unseen job and the two worst misses: the ended jobs most like it.

    Alike as the exported model sees it (`models.training.card.similar_rows`), so a miss shows what
    the model took the job for.
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
    """Features against training, errors of the later half of the test days against the earlier.

    None when there are too few rows to say.
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
    rolling: DurationEvaluation,
    params: Mapping[str, object],
    *,
    registry: Registry,
    by_slice: Mapping[str, Any] | None = None,
    moved: Drift | None = None,
    examples: Sequence[Mapping[str, Any]] = (),
) -> TrackedRun:
    """Log a bundle with its evaluation and card; promote it if it is better than the champion."""
    loaded = Bundle.load(bundle)
    measured = {**rolling.metrics, **edits.measured(loaded)}
    card = model_card(
        loaded,
        metrics=measured,
        slices=by_slice,
        limits=moved.warnings if moved is not None else (),
        examples=examples,
    )
    metrics = {
        f"{TITLES[model]}/{TITLES[name]}": value
        for model, figures in measured.items()
        for name, value in figures.items()
    }
    if moved is not None:
        metrics |= moved.metrics()
    return log_training(
        bundle,
        Contest(evaluate=tail_auc(rolling.rows), rows=rows_digest(rolling.rows)),
        params=params,
        metrics=metrics,
        input_digest=str(loaded.metadata["duration"]["data_digest"]),
        card=card,
        registry=registry,
        columns=[
            f"{TITLES[model]}/{TITLES[name]}"
            for name in IN_VIEW
            for model in ("ga2m", "lightgbm_l2")
        ],
    )


def _errors(rolling: DurationEvaluation) -> str:
    """Share of jobs predicted within a factor, a column per model, for `dvc plots`."""
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
