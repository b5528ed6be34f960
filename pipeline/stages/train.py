"""Stage `train`: fits the models of durations, arrivals, packing and pair speeds, and exports them
as a candidate bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.codec import Json
from features.files import write_json
from features.pictured import learned_histories
from features.rows import Rows
from features.survival import HISTORIES, History
from models.bundle import AdditiveModel, Bundle
from models.bundle.acceptance import check
from models.bundle.gputypes import GpuTypeSpeed
from models.training.arrivals import Arrivals, fit_arrivals
from models.training.duration import fit_at
from models.training.edits import Edits, apply_edits, check_names, read_edits
from models.training.errors import TrainingError
from models.training.evaluation import tail_auc
from models.training.metrics import duration_metrics
from models.training.packing import (
    evaluate_packing,
    evaluate_pair_speed,
    fit_packing,
    fit_pair_hinge,
    fit_pair_speed,
)
from models.training.pairs import PairMeasurements, read_pairs
from models.training.settled import settled
from models.training.simulated import simulated_pairs
from pipeline.stages.common import (
    CANDIDATE,
    FEATURES,
    METRICS,
    TRACE,
    Params,
    Shown,
    agreed,
    test_from,
    unseen,
)
from pipeline.traces import read_dataset


def read_measured(pairs: str, seed: int, sharing: str | None = None) -> PairMeasurements:
    """Return the pairs that the parameter `train.pairs` names: simulated ones, or those in a file
    or folder. Raises TrainingError if they cannot be read."""
    if pairs == "simulated":
        if sharing is not None:
            raise TrainingError(
                "simulated pairs come from a formula, which knows no way of sharing"
            )
        return simulated_pairs(seed)
    return read_pairs(Path(pairs), sharing=sharing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Further parts of a bundle, besides the models of durations and pairs.

    Attributes:
        arrivals: past arrivals to fit a model on; with less than two weeks, none is fitted.
        gpu_types: the model of the speeds of GPU types.
        histories: histories of groups of jobs, for charts of them.
    """

    arrivals: Arrivals | None = None
    gpu_types: GpuTypeSpeed | None = None
    histories: Sequence[History] = ()


NOTHING_BESIDE = Beside()


def fit(
    rows: Rows,
    cut: float,
    pairs: PairMeasurements,
    *,
    preset: str,
    seed: int,
    edits: Edits | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> Bundle:
    """Return a bundle with all models, fitted on the jobs known at `cut` (seconds since the epoch).

    `edits` are manual corrections of the duration model. They are refused if they lower its tail
    AUC on the days after `cut` by more than `models.training.edits` tolerates. The errors without
    and with them are stored in the bundle (`models.training.edits.measured`).

    Raises TrainingError if a model cannot be fitted, and BundleError if a service would not accept
    the models.
    """
    duration = fit_at(rows, cut, seed=seed, preset=preset)
    model, corrected = duration.model, {}
    if edits is not None and edits.edits:
        ahead = rows.where((rows.time >= cut) & np.isfinite(rows.y))
        figure = tail_auc(ahead)

        def measure(model: AdditiveModel) -> dict[str, float]:
            errors = duration_metrics(model.score_batch(ahead.X), ahead.y, ahead.gpus)
            return {"tail_auc": figure(model), **errors}

        edited = apply_edits(model, edits, measure=measure, guard="tail_auc")
        model, corrected = edited.model, dict(edited.metadata)
    packing, speed = fit_packing(pairs, seed=seed), fit_pair_speed(pairs)
    hinge = fit_pair_hinge(pairs)
    metadata: Json = {
        "duration": dict(duration.metadata) | corrected,
        "packing": dict(packing.metadata),
        "pair_speed": dict(speed.metadata),
    }
    if hinge is not None:
        metadata["pair_hinge"] = dict(hinge.metadata)
    if beside.histories:
        metadata[HISTORIES] = [one.plain() for one in beside.histories]
    coming, arrivals = None, beside.arrivals
    if arrivals is not None and arrivals.enough:
        found = fit_arrivals(arrivals, preset="fast", seed=seed)
        coming, metadata["arrivals"] = found.model, dict(found.metadata)
    bundle = settled(
        Bundle(
            duration=model,
            packing=packing.model,
            pair_speed=speed.model,
            pair_hinge=None if hinge is None else hinge.model,
            arrivals=coming,
            gpu_types=beside.gpu_types,
            metadata=metadata,
            created_by=f"pellucid {version('pellucid')}",
        )
    )
    check(bundle)
    return bundle


def arrivals_before(trace: pa.Table, cut: float) -> Arrivals | None:
    """Return the arrivals of a trace up to `cut` (seconds since the epoch), in bins of ten minutes,
    UTC; None if there are none."""
    submitted = trace.column("submit_time").cast("int64").to_numpy() / 1000  # milliseconds
    seen = submitted < cut
    if not seen.any():
        return None
    known_s = min(cut, float(submitted.max()))
    return Arrivals.of_jobs(submitted[seen], trace.column("gpus").to_numpy()[seen], until_s=known_s)


def run(params: Params, shown: Shown = unseen) -> str:
    wanted = params.train
    trace = read_dataset(TRACE)
    rows = Rows.from_table(pq.read_table(FEATURES))
    cut = test_from(trace.column("submit_time"), wanted.test_days)
    edits = read_edits(wanted.edits)
    check_names(edits, rows.features)
    pairs = read_measured(wanted.pairs, wanted.seed, wanted.sharing)
    bundle = fit(
        rows,
        cut,
        pairs,
        preset=wanted.preset,
        seed=wanted.seed,
        edits=edits,
        beside=Beside(
            arrivals=arrivals_before(trace, cut), histories=learned_histories(trace, cut)
        ),
    )
    bundle.save(CANDIDATE)
    seen = rows.ended_before(cut)
    inside = duration_metrics(bundle.duration.score_batch(seen.X), seen.y, seen.gpus)
    write_json(
        METRICS / "train.json",
        agreed(
            {
                "jobs": len(seen),
                "terms": len(bundle.duration.terms),
                "training_spearman": inside["spearman"],
                "packing": evaluate_packing(pairs, seed=wanted.seed, repeats=3),
                "pair_speed": evaluate_pair_speed(pairs),
            }
        ),
    )
    return f"{len(seen):,} ended jobs, {len(bundle.duration.terms)} terms, {bundle.digest[:12]}"
