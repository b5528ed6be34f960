"""Trains the duration GA2M (additive model) on rows that do not fit into memory: in shards (files
of rows), which are fitted one by one and merged.

A sample fixes what all shards must share: the cuts of every feature, the categories, and which
pairs interact. Every shard is then fitted alone, anywhere, and the tables are averaged bin by bin,
each shard weighted by its number of rows in the bin. The mean of additive models over common axes
is an additive model; the merge is exact; only the separate fitting is an approximation.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from interpret.glassbox import ExplainableBoostingRegressor
from numpy.typing import NDArray

from features.given import arrow_file
from features.rows import Rows
from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, Term
from models.training.blocks import block_bags
from models.training.boosting import boost
from models.training.bounds import SEEN, seen
from models.training.duration import (
    DurationPreset,
    checked_frame,
    imputed_s,
    settings_of,
    with_histories,
)
from models.training.errors import TrainingError
from models.training.export import additive_model, purified
from models.training.monotone import monotonise

Floats = NDArray[np.float64]
Pair = tuple[int, int]

SAMPLE_ROWS = 100_000
CATEGORIES = 1_000  # the most frequent ones of the sample; the rest share the bin of the unknown


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings that all shards are fitted with.

    Attributes:
        specs: the features.
        bins: cuts of a continuous feature, categories of a nominal one.
        pairs: interactions, as positions of features.
        preset: settings of the fits.
        seed: seed of the fits.
        cut: time of the fit, seconds since the epoch. Jobs that still run then count as in
            `fit_duration`.
        sample_rows: number of rows that the plan was made from.
    """

    specs: tuple[FeatureSpec, ...]
    bins: tuple[tuple[float, ...] | tuple[str, ...], ...]
    pairs: tuple[Pair, ...]
    preset: DurationPreset
    seed: int
    cut: float
    sample_rows: int


@dataclass(frozen=True, slots=True)
class Shard:
    """The model fitted on one shard, not yet made monotone or purified.

    Attributes:
        tables: term -> (shape function, its spread over bags, number of rows per bin).
    """

    rows: int
    intercept: float
    tables: dict[tuple[int, ...], tuple[Floats, Floats, Floats]]
    cpu_s: float


Fit = Callable[[Path], Shard]
Map = Callable[[Fit, Sequence[Path]], Iterable[Shard]]


def sampled(files: Sequence[Path], *, seed: int, rows: int = SAMPLE_ROWS) -> Rows:
    """Return about `rows` rows of ended jobs, equally many from each shard.

    Args:
        files: Parquet files of `Rows.table`, one per shard.

    Raises TrainingError when there are no shards or they differ in their features.
    """
    if not files:
        raise TrainingError("no shard to train on")
    rng = np.random.default_rng(seed)
    samples = [_sample(file, max(1, rows // len(files)), rng) for file in files]
    first = samples[0]
    for file, sample in zip(files, samples, strict=True):
        if sample.features != first.features:
            raise TrainingError(f"{file}: its features differ from those of {files[0]}")
    tables = [sample.table() for sample in samples]
    described = tables[0].schema.metadata
    return Rows.from_table(pa.concat_tables([t.replace_schema_metadata(described) for t in tables]))


def plan(
    sample: Rows,
    *,
    cut: float,
    seed: int,
    preset: str | DurationPreset = "fast",
    interactions: int | None = None,
) -> Plan:
    """Return the plan for all shards, from a sample of them: cuts, categories and interactions.
    There are `interactions` interactions, by default as many as the preset has."""
    _, chosen = settings_of(preset)
    specs = sample.features
    frame = checked_frame(sample.X, specs)
    bins = tuple(_bins(frame[spec.name], spec, chosen.max_bins) for spec in specs)
    wanted = chosen.interactions if interactions is None else interactions
    pairs: tuple[Pair, ...] = ()
    if wanted:
        brief = DurationPreset(**{**asdict(chosen), "outer_bags": 2, "max_rounds": 100})
        ebm = _boosted(
            frame,
            y=np.log1p(sample.y),
            time=sample.time,
            specs=specs,
            bins=bins,
            interactions=wanted,
            chosen=brief,
            seed=seed,
        )
        pairs = tuple(tuple(key) for key in ebm.term_features_ if len(key) == 2)
    return Plan(
        specs=specs,
        bins=bins,
        pairs=pairs,
        preset=chosen,
        seed=seed,
        cut=cut,
        sample_rows=len(frame),
    )


def fit_shard(file: Path, shared: Plan) -> Shard:
    """Fit the model of one shard and return it. Raises TrainingError if the shard is empty, has no
    ended job, or has other features than the plan."""
    started = clock.process_time()
    rows = _read(file)
    if rows.features != shared.specs:
        raise TrainingError(f"{file}: its features differ from the plan's")
    running = np.isnan(rows.y)
    if running.all():
        raise TrainingError(f"{file}: no ended job to learn from")
    frame = checked_frame(rows.X, shared.specs)
    lasts = rows.y.copy()
    lasts[running] = imputed_s(frame[running], shared.cut - rows.start_time[running])
    ebm = _boosted(
        frame,
        y=np.log1p(lasts),
        time=rows.time,
        specs=shared.specs,
        bins=shared.bins,
        interactions=list(shared.pairs),
        chosen=shared.preset,
        seed=shared.seed,
    )
    # promises are kept once, on the whole
    free = [FeatureSpec(**{**asdict(spec), "monotone": 0}) for spec in shared.specs]
    model = additive_model(ebm, frame, free)
    tables = {term.features: (term.scores, term.spread, term.weights) for term in model.terms}
    return Shard(len(frame), model.intercept, tables, clock.process_time() - started)


def merge(shards: Sequence[Shard], shared: Plan) -> AdditiveModel:
    """Return the mean of the shards' models, bin by bin, each weighted by its number of rows in the
    bin.

    The spread of the result combines that within the shards and that between them.
    """
    if not shards:
        raise TrainingError("no shard to merge")
    axes = [_axis(spec, bins) for spec, bins in zip(shared.specs, shared.bins, strict=True)]
    stacks, weights = {}, {}
    for key in shards[0].tables:
        scores, spreads, rows = (
            np.stack([shard.tables[key][i] for shard in shards]) for i in range(3)
        )
        # a bin no shard saw: all count alike
        share = np.where(rows.sum(axis=0) > 0, rows, 1.0)
        share = share / share.sum(axis=0)
        mean = (share * scores).sum(axis=0)
        variance = (share * (spreads**2 + (scores - mean) ** 2)).sum(axis=0)
        stacks[key] = np.stack([mean, np.sqrt(variance)])
        weights[key] = rows.sum(axis=0)
    directions = {
        i: spec.monotone for i, spec in enumerate(shared.specs) if spec.monotone and (i,) in stacks
    }
    flat, changed = monotonise({key: s[0] for key, s in stacks.items()}, weights, directions)
    means = {key: flat[key][None].copy() for key in stacks}
    shift = purified(means, weights)
    terms = [
        Term(
            features=key,
            scores=means[key][0],
            weights=weights[key],
            spread=stacks[key][1],
            origin="monotone" if key in changed else "fit",
        )
        for key in stacks
    ]
    rows_in = np.array([shard.rows for shard in shards], dtype=np.float64)
    base = float(np.average([shard.intercept for shard in shards], weights=rows_in))
    return AdditiveModel(axes, terms, base + shift, "log1p")


def fit_sharded(
    files: Sequence[Path],
    *,
    cut: float,
    seed: int,
    preset: str | DurationPreset = "fast",
    map_shards: Map = map,
    progress: Callable[[int], None] | None = None,
) -> tuple[AdditiveModel, dict[str, Any]]:
    """Fit the duration GA2M shard by shard, and blend it with the histories as `fit_duration` does.
    Return the model and the data and settings of its fit.

    Args:
        files: Parquet files of `Rows.table`, one per shard; `y` is NaN for jobs that still run.
        map_shards: applies the fit to every shard: `map`, or a map of `pipeline.cluster` over
            several processes or a Dask cluster.
        progress: called with the number of shards done.
        cut, seed, preset: see `plan`.

    Returns:
        the model, and the data and settings of its fit as plain JSON.
    """
    started = clock.process_time()
    sample = sampled(files, seed=seed)
    shared = plan(sample, cut=cut, seed=seed, preset=preset)
    planned = clock.process_time() - started
    shards = []
    for done, shard in enumerate(map_shards(_Fit(shared), files), start=1):
        shards.append(shard)
        if progress is not None:
            progress(done)
    rows = sum(shard.rows for shard in shards)
    model, weight = with_histories(
        merge(shards, shared), rows, checked_frame(sample.X, shared.specs)
    )
    return model, {
        "shards": len(shards),
        "rows": rows,
        "weight": weight,
        SEEN: seen(model, sample.X),
        "sample_rows": shared.sample_rows,
        "pairs": [list(pair) for pair in shared.pairs],
        "cpu_s": round(planned + sum(shard.cpu_s for shard in shards), 2),
        "seed": seed,
        "target": "ln(1 + duration_s)",
    }


@dataclass(frozen=True, slots=True)
class _Fit:
    """A callable that runs `fit_shard` with its plan, and can be sent to another process."""

    shared: Plan

    def __call__(self, file: Path) -> Shard:
        return fit_shard(file, self.shared)


def _boosted(
    frame: pd.DataFrame,
    y: Floats,
    time: Floats,
    specs: Sequence[FeatureSpec],
    bins: Sequence[tuple[float, ...] | tuple[str, ...]],
    interactions: int | list[Pair],
    chosen: DurationPreset,
    seed: int,
) -> Any:
    settings = asdict(chosen)
    settings["interactions"] = interactions
    for spec, found in zip(specs, bins, strict=True):
        if spec.kind == "nominal" and found:  # a category that the sample lacks is refused
            column = frame[spec.name]
            frame = frame.assign(**{spec.name: column.where(column.isin(found), None)})
    leaf = max(2, min(chosen.min_samples_leaf, len(frame) // 40))
    ebm = ExplainableBoostingRegressor(
        feature_names=[spec.name for spec in specs],
        feature_types=[list(b) if b else spec.kind for spec, b in zip(specs, bins, strict=True)],
        n_jobs=1,
        random_state=seed,
        **{**settings, "min_samples_leaf": leaf},
    )
    boost(ebm, frame, y, block_bags(np.asarray(time, np.float64), chosen.outer_bags))
    return ebm


def _bins(column: pd.Series, spec: FeatureSpec, most: int) -> tuple[float, ...] | tuple[str, ...]:
    known = column.dropna()
    if spec.kind == "nominal":
        return tuple(known.value_counts().index[:CATEGORIES].sort_values().tolist())
    values = known.to_numpy(dtype=np.float64)
    if not len(values):
        return ()
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, most - 1)[1:-1]))
    return tuple(edges[edges > values.min()].tolist())


def _axis(spec: FeatureSpec, bins: tuple[float, ...] | tuple[str, ...]) -> Axis:
    if spec.kind == "continuous":
        return Axis(spec, cuts=tuple(float(b) for b in bins))
    return Axis(spec, categories=tuple(str(b) for b in bins))


def _read(file: Path) -> Rows:
    try:
        with arrow_file(file) as source:
            return Rows.from_table(pq.read_table(source))
    except (OSError, pa.ArrowException) as error:
        raise TrainingError(f"{file}: {str(error).splitlines()[0]}") from None


def _sample(file: Path, most: int, rng: np.random.Generator) -> Rows:
    """Return at most `most` rows of ended jobs, drawn at random from as few row groups of the shard
    as suffice. Raises TrainingError if the file cannot be read or is no table of rows."""
    try:
        with arrow_file(file) as source:
            parquet = pq.ParquetFile(source)
            groups = rng.permutation(parquet.num_row_groups)
            tables, have = [], 0
            for group in groups.tolist():
                tables.append(parquet.read_row_group(group))
                have += tables[-1].num_rows
                if have >= 2 * most:
                    break
    except (OSError, pa.ArrowException) as error:
        raise TrainingError(f"{file}: {str(error).splitlines()[0]}") from None
    if not tables:
        raise TrainingError(f"{file}: holds no rows")
    table = pa.concat_tables(tables).replace_schema_metadata(parquet.schema_arrow.metadata)
    kept = np.sort(rng.choice(table.num_rows, min(most, table.num_rows), replace=False))
    rows = Rows.from_table(table.take(pa.array(kept)))
    return rows.where(np.isfinite(rows.y))
