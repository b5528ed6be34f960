"""Stage `evaluate`: errors on days the models never saw, beside the yardsticks; then promotion.

The rolling evaluation refits as the live system would. The candidate itself is then logged to
MLflow and becomes champion unless the present one is better on the same rows.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.rows import Rows
from models.bundle import Bundle
from models.training.evaluation import DurationEvaluation, evaluate_duration, tail_auc
from models.training.tracking import TrackedRun, log_training
from pipeline.stages.common import (
    CANDIDATE,
    DAY_S,
    FEATURES,
    METRICS,
    PLOTS,
    TRACE,
    Params,
    stage,
    test_from,
)
from pipeline.traces import read_dataset
from scheduler.recorder import write_json, write_text

QUANTILES = np.linspace(0.02, 0.98, 49)


def run(params: Params) -> str:
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
    )
    chosen: dict[str, Any] = {
        **{f"train.{k}": v for k, v in params.train.model_dump().items()},
        "features.families": ",".join(params.features.families),
    }
    tracked = track(
        CANDIDATE,
        rolling,
        chosen,
        uri=params.mlflow.uri,
        artifact_root=params.mlflow.artifacts,
        name=params.mlflow.model,
    )
    tested = {name: dict(figures) for name, figures in rolling.metrics.items()}
    write_json(
        METRICS / "evaluate.json",
        {
            "test_jobs": len(rolling.rows),
            "refits": rolling.refits,
            "duration": tested,
            "candidate_tail_auc": tracked.value,
        },
    )
    write_json(
        METRICS / "tracking.json",
        {
            "run_id": tracked.run_id,
            "version": tracked.version,
            "promoted": tracked.promoted,
            "reason": tracked.reason,
        },
    )
    write_text(PLOTS / "errors.csv", _errors(rolling))
    return (
        f"{len(rolling.rows):,} unseen jobs, Spearman {tested['ga2m']['spearman']:.3f} "
        f"(LightGBM {tested['lightgbm_l2']['spearman']:.3f}); version {tracked.version} "
        f"{'is champion' if tracked.promoted else 'was not promoted'}: {tracked.reason}"
    )


def roll(
    trace: pa.Table, rows: Rows, cut: float, *, refit_days: float, preset: str, seed: int
) -> DurationEvaluation:
    """The rolling evaluation from `cut` on, with the yardsticks."""
    ids, names = trace.column("job_id").to_pylist(), trace.column("user").to_pylist()
    users = dict(zip(ids, names, strict=True))
    return evaluate_duration(
        rows,
        test_from=cut,
        refit_every_s=refit_days * DAY_S,
        user=[users[job_id] for job_id in rows.job_id],
        preset=preset,
        seed=seed,
    )


def track(
    bundle: Path, rolling: DurationEvaluation, params: dict[str, Any], *, uri: str, **where: Any
) -> TrackedRun:
    """Log a bundle with its evaluation; promote it unless the champion is better."""
    metrics = {
        f"{model}.{name}": value
        for model, figures in rolling.metrics.items()
        for name, value in figures.items()
    }
    return log_training(
        bundle,
        evaluate=tail_auc(rolling.rows),
        params=params,
        metrics=metrics,
        input_digest=str(Bundle.load(bundle).metadata["duration"]["data_digest"]),
        tracking_uri=uri,
        **where,
    )


def _errors(rolling: DurationEvaluation) -> str:
    """Quantiles of the factor between predicted and true duration, per model, for `dvc plots`."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["model", "share_of_jobs", "factor_off"])
    for name, score in rolling.scores.items():
        off = np.abs(score - np.log1p(rolling.rows.y))
        for q, value in zip(QUANTILES, np.nanquantile(off, QUANTILES), strict=True):
            writer.writerow([name, f"{q:.2f}", f"{np.exp(value):.4g}"])
    return out.getvalue()


if __name__ == "__main__":
    stage("evaluate", run)
