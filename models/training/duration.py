"""Trains the duration GA2M: an additive model of ln(1 + seconds), a sum of shape functions of one
feature or of two.

It is interpret-core's explainable boosting regressor, bagged over blocks of time (`blocks`), made
monotone after fitting (`monotone`) and exported as tables (`export`).
"""

from __future__ import annotations

import hashlib
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor
from numpy.typing import NDArray
from scipy.stats import norm

from features.history import RESIDUAL
from features.rows import Rows
from features.spec import FeatureSpec
from features.survival import SPREAD, SUM
from models.bundle import AdditiveModel
from models.training.blend import blended
from models.training.blocks import block_bags, time_blocks
from models.training.boosting import boost
from models.training.bounds import SEEN, bounded, seen
from models.training.errors import TrainingError
from models.training.export import HeldOut, additive_model

Floats = NDArray[np.float64]

MIN_ROWS = 50
# The features whose sum is itself an estimate of the target, and the jobs after which what the GA2M
# learned weighs as much. Chosen on 5-12 September of Venus.
LIKE = tuple(spec.name for spec in SUM)
EVIDENCE = 20_000.0
BLOCKS = 20  # stretches of time by which pairs are judged
LEAST_SPREAD = 0.3  # of ln(1 + seconds), of jobs that seem all alike


@dataclass(frozen=True, slots=True)
class DurationPreset:
    """Settings of a fit. The names are those of interpret's ExplainableBoostingRegressor."""

    outer_bags: int
    learning_rate: float
    smoothing_rounds: int
    interaction_smoothing_rounds: int
    early_stopping_rounds: int
    max_rounds: int
    max_bins: int = 32
    max_interaction_bins: int = 16
    interactions: int = 5
    min_samples_leaf: int = 50


# On 10,000-20,000 rows of 74 features "fast" takes about 2 CPU-seconds and "full" about 9, for a
# gain of 0.01 in Spearman (docs/models.md). "online" is for refits inside a simulation: of the
# histories' few features pairs say nothing more, and cost a third.
_FAST = DurationPreset(
    outer_bags=4,
    learning_rate=0.15,
    smoothing_rounds=30,
    interaction_smoothing_rounds=10,
    early_stopping_rounds=15,
    max_rounds=400,
)
PRESETS: Mapping[str, DurationPreset] = {
    "online": replace(_FAST, interactions=0),
    "fast": _FAST,
    "full": DurationPreset(
        outer_bags=8,
        learning_rate=0.05,
        smoothing_rounds=100,
        interaction_smoothing_rounds=50,
        early_stopping_rounds=50,
        max_rounds=4000,
    ),
}


@dataclass(frozen=True, slots=True)
class FittedDuration:
    """A fitted duration model.

    Attributes:
        model: the exported tables; scoring needs nothing else.
        ebm: the interpret model that the tables come from, before it was made monotone and
            purified.
        metadata: rows, window, data digest, preset, seed, terms made monotone; plain JSON.
        cpu_s: CPU seconds that the fit and the export took. Not in the metadata: a bundle must not
            depend on the machine that made it.
    """

    model: AdditiveModel
    ebm: Any
    metadata: Mapping[str, Any]
    cpu_s: float


def fit_duration(
    X: pd.DataFrame,
    duration_s: Floats,
    time: Floats,
    specs: Sequence[FeatureSpec],
    *,
    seed: int,
    preset: str | DurationPreset = "fast",
    n_jobs: int = 1,
    elapsed_s: Floats | None = None,
) -> FittedDuration:
    """Fit the duration GA2M on ended jobs and on running jobs. Return the model with the data,
    settings and CPU time of its fit.

    A running job counts with its expected duration, given how long it has run (`imputed_s`; Buckley
    and James, Biometrika 1979). If the `survival` features are there, the model is blended with
    their sum, by the number of jobs seen (`blend`), so that predictions do not jump when it is
    first trained.

    Args:
        X: (n, features), columns named as in `specs`; continuous float64 with NaN, nominal object
            with None.
        duration_s: exclusive duration, seconds, (n,), finite and >= 0; NaN for a running job.
        elapsed_s: how long each job has run so far, (n,); read where `duration_s` is NaN.
        time: time of each row, seconds since the epoch, (n,); the bags are made by it.
        specs: the features, in the order of a row.
        seed: seed of the boosting; the same seed and rows give the same model.
        preset: "online", "fast", "full" or settings of the caller's own.
        n_jobs: processes; 1 keeps everything in this one.

    Raises TrainingError when the rows are too few or do not fit the specs.
    """
    started = clock.process_time()
    frame = checked_frame(X, specs)
    duration_s = np.asarray(duration_s, np.float64)
    if elapsed_s is not None and len(elapsed_s) == len(frame) == len(duration_s):
        running = np.isnan(duration_s)
        duration_s = duration_s.copy()
        duration_s[running] = imputed_s(frame[running], np.asarray(elapsed_s)[running])
    else:
        running = np.zeros(len(frame), bool)
    y = _checked_target(frame, duration_s, time)
    name, chosen = settings_of(preset)
    n = len(frame)
    ebm = ExplainableBoostingRegressor(
        feature_names=[spec.name for spec in specs],
        feature_types=[spec.kind for spec in specs],
        n_jobs=n_jobs,
        random_state=seed,
        **{**asdict(chosen), "min_samples_leaf": max(2, min(chosen.min_samples_leaf, n // 40))},
    )
    when = np.asarray(time, np.float64)
    bags = block_bags(when, chosen.outer_bags)
    boost(ebm, frame, y, bags)
    held_out = HeldOut(y, bags, time_blocks(when, BLOCKS), seed)
    fitted = additive_model(ebm, frame, specs, held_out=held_out)
    model, weight = with_histories(fitted, n, frame)
    metadata = {
        "rows": n,
        "running": int(running.sum()),
        "weight": weight,
        SEEN: seen(model, frame),
        "window_from": _iso(float(np.min(time))),
        "window_to": _iso(float(np.max(time))),
        "data_digest": data_digest(frame, y),
        "target": "ln(1 + duration_s)",
        "preset": name,
        "settings": asdict(chosen),
        "seed": seed,
        "monotone_terms": [
            term_name
            for term_name, term in zip(model.term_names, model.terms, strict=True)
            if term.origin == "monotone"
        ],
    }
    return FittedDuration(model, ebm, metadata, clock.process_time() - started)


def fit_at(
    rows: Rows, cut: float, *, seed: int, preset: str | DurationPreset = "fast"
) -> FittedDuration:
    """Return the model that `fit_duration` fits on the data known at `cut` (seconds since the
    epoch): jobs that had ended by then, and jobs that were running."""
    known = rows.known_by(cut)
    return fit_duration(
        known.X,
        known.y,
        known.time,
        known.features,
        seed=seed,
        preset=preset,
        elapsed_s=np.maximum(cut - known.start_time, 0.0),
    )


def checked_frame(X: pd.DataFrame, specs: Sequence[FeatureSpec]) -> pd.DataFrame:
    """Return the columns of `specs`, continuous as float64 and nominal as object with None.

    Raises TrainingError naming the first column that is missing or of another kind.
    """
    columns: dict[str, Any] = {}
    for spec in specs:
        if spec.name not in X.columns:
            raise TrainingError(f"feature {spec.name!r} is not among the columns")
        if spec.monotone and (spec.kind != "continuous" or spec.monotone not in (-1, 1)):
            raise TrainingError(
                f"feature {spec.name!r}: monotone must be -1 or +1 and on a continuous feature"
            )
        column = X[spec.name]
        if spec.kind == "continuous":
            try:
                columns[spec.name] = column.to_numpy(dtype=np.float64, na_value=np.nan)
            except (TypeError, ValueError):
                raise TrainingError(f"feature {spec.name!r} must hold numbers") from None
        else:
            values = column.astype(object).where(column.notna(), None)
            wrong = next((v for v in values if v is not None and not isinstance(v, str)), None)
            if wrong is not None:
                raise TrainingError(f"feature {spec.name!r} holds {wrong!r}, must be str or None")
            columns[spec.name] = pd.Series(values.to_numpy(), dtype=object)
    return pd.DataFrame(columns, index=pd.RangeIndex(len(X)))


def knows_histories(frame: pd.DataFrame) -> bool:
    """Return whether the `survival` features whose sum estimates the duration are all in
    `frame`."""
    return all(name in frame for name in LIKE)


def with_histories(
    model: AdditiveModel, rows: int, frame: pd.DataFrame
) -> tuple[AdditiveModel, float]:
    """Return (blended model, weight of `model` in it): `model`, fitted on `rows` jobs, blended with
    the sum of the `survival` features (`blend`), and bounded to the range of the rows (`bounds`).

    If these features are not all there, the model is only bounded, and its weight is 1.

    Args:
        frame: the rows or a sample of them, which shows where values of the features lie.
    """
    if not knows_histories(frame):
        return bounded(model), 1.0
    weight = rows / (rows + EVIDENCE)
    return bounded(blended(model, LIKE, weight, frame)), weight


def imputed_s(frame: pd.DataFrame, elapsed_s: Floats) -> Floats:
    """Return the expected total duration of running jobs, seconds, (n,): exp of the mean logarithm,
    given that the job has already run `elapsed_s` seconds.

    The logarithm is taken to be normal, with the mean and spread of the `survival` features, cut
    off below the elapsed time. Without these features the result is twice the elapsed time: a job
    found running has on average half its time ahead of it.
    """
    elapsed = np.where(np.isnan(elapsed_s), 0.0, elapsed_s)
    if not (knows_histories(frame) and SPREAD.name in frame):
        return RESIDUAL * elapsed
    mean = frame[list(LIKE)].to_numpy(np.float64).sum(axis=1)
    spread = np.maximum(frame[SPREAD.name].to_numpy(np.float64), LEAST_SPREAD)
    lived = np.log1p(elapsed)
    z = (lived - mean) / spread
    left = np.exp(norm.logpdf(z) - norm.logsf(z))  # inverse Mills ratio
    return np.asarray(np.expm1(np.maximum(mean + spread * left, lived)))


def data_digest(frame: pd.DataFrame, y: Floats) -> str:
    """Return the sha256 (hex) of training rows and target, both rounded to float32, on which all
    processors agree."""
    digest = hashlib.sha256(repr([str(name) for name in frame.columns]).encode())
    agreed = frame.astype(dict.fromkeys(frame.select_dtypes("float64"), np.float32))
    digest.update(pd.util.hash_pandas_object(agreed, index=False).to_numpy().tobytes())
    digest.update(np.ascontiguousarray(y, dtype=np.float32).tobytes())
    return digest.hexdigest()


def _checked_target(frame: pd.DataFrame, duration_s: Floats, time: Floats) -> Floats:
    duration, when = np.asarray(duration_s, np.float64), np.asarray(time, np.float64)
    if not len(frame) == len(duration) == len(when):
        raise TrainingError(
            f"{len(frame)} rows, {len(duration)} durations and {len(when)} times do not match"
        )
    if len(frame) < MIN_ROWS:
        raise TrainingError(f"{len(frame)} ended jobs to learn from, at least {MIN_ROWS} needed")
    if not (np.isfinite(duration).all() and (duration >= 0).all()):
        raise TrainingError("duration_s holds a value that is negative or not finite")
    if not np.isfinite(when).all():
        raise TrainingError("time holds a value that is not finite")
    y: Floats = np.log1p(duration)
    return y


def settings_of(preset: str | DurationPreset) -> tuple[str, DurationPreset]:
    """Return (name, settings) of a preset; the name is "custom" for settings of the caller's own.
    Raise TrainingError if no preset has this name."""
    if isinstance(preset, DurationPreset):
        return "custom", preset
    if preset not in PRESETS:
        raise TrainingError(f"preset is {preset!r}, must be one of {', '.join(PRESETS)}")
    return preset, PRESETS[preset]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
