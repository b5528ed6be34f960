"""GA2Ms of "does it last longer than ...?", learned from ended and from running jobs.

Whether a job outlasts a threshold is known of every job that started at least that long ago,
ended or not; of jobs that started since, only the short ones are known. So each model learns from
the former and from no other: that uses the running jobs, and is free of the bias that ended jobs
alone would bring. What the last hours can tell comes in through the `survival` features.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingClassifier
from numpy.typing import NDArray

from features.spec import FeatureSpec
from features.survival import THRESHOLDS_S
from models.bundle import AdditiveModel, Axis, Calibration, Tails, Term
from models.training.blend import blended
from models.training.blocks import block_bags
from models.training.duration import DurationPreset, checked_frame, settings_of
from models.training.errors import TrainingError
from models.training.export import additive_model

Floats = NDArray[np.float64]

# Jobs after which what the GA2M learned weighs as much as the features' own odds. Chosen on
# 5-12 September of Venus.
EVIDENCE = 10_000.0
# Of the features that are themselves odds to outlast something, a model sees its own and these.
SHARED_ODDS = ("like_over_5m", "like_over_1h", "like_over_6h")
_LEAST_OF_A_KIND = 20


@dataclass(frozen=True, slots=True)
class FittedTails:
    """Fitted chances to outlast thresholds, not yet calibrated.

    Attributes:
        tails: the exported models.
        own: the GA2Ms before blending; None where there was nothing to learn.
        metadata: rows and share of long jobs per threshold, weight of the GA2M; plain JSON.
        cpu_s: CPU seconds the fits and export took.
    """

    tails: Tails
    own: tuple[AdditiveModel | None, ...]
    metadata: Mapping[str, Any]
    cpu_s: float


def fit_tails(
    X: pd.DataFrame,
    duration_s: Floats,
    start_time: Floats,
    now: float,
    specs: Sequence[FeatureSpec],
    *,
    seed: int,
    preset: str | DurationPreset = "fast",
    thresholds_s: Mapping[str, float] = THRESHOLDS_S,
    weights: Mapping[str, float] | None = None,
    calibration: Calibration | None = None,
) -> FittedTails:
    """Fits one GA2M per threshold.

    Args:
        X: (n, features), see `fit_duration`; the rows of ended and of running jobs.
        duration_s: exclusive duration, seconds, (n,); NaN of a job still running at `now`.
        start_time: seconds since the epoch, (n,); NaN where it has not started.
        now: when this is fitted; nothing later may be in the rows.
        specs: the features. Where the odds of a threshold are among them (family `survival`),
            the model is blended with them by the jobs seen: with few, they decide.
        thresholds_s: by the name that the features use.
        weights: of the GA2M in the blend, by threshold name, where forecasts of the last days
            have earned one (`blend.earned_weight`); elsewhere it grows with the jobs seen.
        calibration: of the intervals, see `intervals`.
        seed, preset: see `fit_duration`.

    A threshold that nearly all jobs outlast, or hardly any, keeps the odds it came with.
    """
    started = clock.process_time()
    frame = checked_frame(X, specs)
    duration = np.asarray(duration_s, np.float64)
    start = np.asarray(start_time, np.float64)
    if not len(frame) == len(duration) == len(start):
        raise TrainingError(
            f"{len(frame)} rows, {len(duration)} durations and {len(start)} starts do not match"
        )
    if (duration < 0).any() or np.isinf(duration).any():
        raise TrainingError("duration_s holds a value that is negative or not finite")
    name, chosen = settings_of(preset)
    models, own, notes = [], [], {}
    for label, limit in thresholds_s.items():
        known = start + limit < now
        longer = ~(duration[known] <= limit)  # a running job (NaN) has outlasted it
        feature = f"like_over_{label}"
        alone, note = _fit_one(frame[known], longer, start[known], specs, feature, seed, chosen)
        weight = 1.0
        if feature in frame:
            n = len(longer)
            weight = 0.0 if alone is None else (weights or {}).get(label, n / (n + EVIDENCE))
            blank = AdditiveModel([Axis(spec) for spec in specs], [], 0.0, "logit")
            models.append(blended(alone or blank, feature, weight, frame[known]))
        else:
            models.append(alone or _share(specs, longer))
        own.append(alone)
        note["weight"] = weight
        notes[label] = note
    tails = Tails(thresholds_s.values(), models, calibration)
    metadata = {"preset": name, "seed": seed, "thresholds": notes}
    return FittedTails(tails, tuple(own), metadata, clock.process_time() - started)


def _fit_one(
    frame: pd.DataFrame,
    longer: NDArray[np.bool_],
    time: Floats,
    specs: Sequence[FeatureSpec],
    own: str,
    seed: int,
    chosen: DurationPreset,
) -> tuple[AdditiveModel | None, dict[str, Any]]:
    n, positive = len(frame), int(longer.sum())
    note: dict[str, Any] = {"rows": n, "longer": positive}
    if min(positive, n - positive) < _LEAST_OF_A_KIND:
        return None, note
    used = [spec for spec in specs if _sees(spec, own)]
    columns = frame[[spec.name for spec in used]].reset_index(drop=True)
    ebm = _boost(columns, longer, time, used, seed, chosen)
    return _widened(additive_model(ebm, columns, used, link="logit"), specs), note


def _share(specs: Sequence[FeatureSpec], longer: NDArray[np.bool_]) -> AdditiveModel:
    """The share seen so far, for everyone."""
    share = (longer.sum() + 0.5) / (len(longer) + 1.0)
    axes = [Axis(spec) for spec in specs]
    return AdditiveModel(axes, [], float(np.log(share / (1.0 - share))), "logit")


def _sees(spec: FeatureSpec, own: str) -> bool:
    return not spec.name.startswith("like_over_") or spec.name in (own, *SHARED_ODDS)


def _boost(
    frame: pd.DataFrame,
    longer: NDArray[np.bool_],
    time: Floats,
    specs: Sequence[FeatureSpec],
    seed: int,
    chosen: DurationPreset,
) -> Any:
    ebm = ExplainableBoostingClassifier(
        feature_names=[spec.name for spec in specs],
        feature_types=[spec.kind for spec in specs],
        n_jobs=1,
        random_state=seed,
        **{
            **asdict(chosen),
            "min_samples_leaf": max(2, min(chosen.min_samples_leaf, len(frame) // 40)),
        },
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Missing values detected")
        warnings.filterwarnings("ignore", message="All-NaN slice encountered")
        ebm.fit(frame, longer.astype(np.int64), bags=block_bags(time, chosen.outer_bags))
    return ebm


def _widened(model: AdditiveModel, specs: Sequence[FeatureSpec]) -> AdditiveModel:
    """The same model over the axes of all `specs`; those it does not see have no term."""
    known = {axis.spec.name: axis for axis in model.axes}
    place = {spec.name: i for i, spec in enumerate(specs)}
    where = [place[axis.spec.name] for axis in model.axes]
    axes = [known.get(spec.name, Axis(spec)) for spec in specs]
    terms = []
    for term in model.terms:
        key = tuple(where[i] for i in term.features)  # ascending, as the positions are
        terms.append(Term(key, term.scores, term.weights, term.spread, term.origin))
    return AdditiveModel(axes, terms, model.intercept, model.link)
