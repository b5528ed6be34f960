"""Trains from a dataset that does not fit into memory: feature rows and fits are made in parallel.

The trace is cut into as many stretches of time as there are workers. A worker replays its stretch
into Parquet shards; then every shard is fitted. So that the features know the jobs before a
stretch, the latest of these are replayed first. That restores all that a group of jobs remembers,
except groups of users and templates without a job among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from math import ceil, inf
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from features.codec import Json
from features.rows import Rows, streamed_rows
from models.bundle import Bundle
from models.training.metrics import duration_metrics
from models.training.packing import fit_packing, fit_pair_hinge, fit_pair_speed
from models.training.pairs import PairMeasurements
from models.training.sharded import fit_sharded
from pipeline.cluster import Keep, mapped, question_of, workers_at
from pipeline.errors import UserError
from pipeline.traces.dataset import read_between

SHARD_ROWS = 100_000  # most jobs of a shard
LEAST_ROWS = 20_000  # fewer jobs are not worth a worker: shapes fitted to them are noise
WARM_JOBS = 100_000  # replayed before a stretch
PART_ROWS = 50_000  # of a month, replayed at a time
GROUP_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The settings of a training.

    Attributes:
        cut: time, seconds since the epoch: jobs submitted before are trained on, later ones are
            tested on.
        families: families of features to compute.
        preset: settings of the fits, by name.
        seed: seed of the fits.
    """

    cut: float
    families: tuple[str, ...]
    preset: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Jobs in a span of time; one worker writes their rows. Times are seconds since the epoch.

    Attributes:
        number: number of the stretch in time order.
        trace, folder: the dataset, and the folder for the shards.
        since, until: bounds of the submit times of its jobs.
        warm_from: jobs submitted from then until `since` are replayed first, without writing rows.
        shard_rows: number of jobs per shard.
        fit: settings of the training.
    """

    number: int
    trace: Path
    folder: Path
    since: float
    until: float
    warm_from: float
    shard_rows: int
    fit: Fit


def stretches(
    trace: Path,
    folder: Path,
    submitted: NDArray[np.float64],
    fit: Fit,
    workers: int,
    *,
    warm_jobs: int = WARM_JOBS,
    least_rows: int = LEAST_ROWS,
) -> list[Stretch]:
    """Return stretches of time, at most one per worker, with equally many jobs to train on. The
    last one extends to the end of the trace.

    Args:
        submitted: submit time of each job, in any order, seconds since the epoch, (n,).

    Raises UserError if there is no job to train on.
    """
    seen = np.sort(submitted[submitted < fit.cut])
    if not len(seen):
        raise UserError(f"{trace}: holds no job to learn from")
    count = min(workers, max(1, len(seen) // least_rows))
    each = ceil(len(seen) / count)
    # as many shards for each, so that all end together
    shard_rows = ceil(each / ceil(each / SHARD_ROWS))
    places = np.unique(np.searchsorted(seen, seen[each::each]))
    places = places[places > 0]
    starts, ends = [0, *places.tolist()], [*seen[places].tolist(), inf]
    return [
        Stretch(
            number=i,
            trace=trace,
            folder=folder,
            since=ends[i - 1] if i else -inf,
            until=ends[i],
            warm_from=float(seen[start - warm_jobs]) if start > warm_jobs else -inf,
            shard_rows=shard_rows,
            fit=fit,
        )
        for i, start in enumerate(starts)
    ]


class Written(NamedTuple):
    """The files with the feature rows of a part of the trace.

    Attributes:
        shards: files with rows of jobs that had started before the cut, as known then.
        test: file with rows of jobs submitted after the cut with a known duration, to measure
            errors. Only the last part has such jobs.
    """

    shards: list[Path]
    test: Path
    cpu_s: float


def write_stretch(one: Stretch) -> Written:
    """Write the feature rows of a stretch, in time order. Return the files."""
    started = process_time()
    files: list[Path] = []
    held: list[pa.Table] = []
    since: list[pa.Table] = []
    name = f"rows-{one.number:03d}"

    def write() -> None:
        files.append(one.folder / f"{name}-{len(files):05d}.parquet")
        _write(held, files[-1])
        held.clear()

    for rows in streamed_rows(_parts(one), families=one.fit.families):
        own = rows.where(rows.submit_time >= one.since)
        since.append(own.where((own.time >= one.fit.cut) & np.isfinite(own.y)).table())
        known = own.known_by(one.fit.cut).table()
        while known.num_rows:
            free = one.shard_rows - sum(table.num_rows for table in held)
            held.append(known.slice(0, free))
            known = known.slice(free)
            if held[-1].num_rows == free:
                write()
    last = sum(table.num_rows for table in held)
    if files and last < one.shard_rows // 4:  # a small rest would count as much as it is noisy
        held.insert(0, pq.read_table(files.pop()))
    if held:
        write()
    test = one.folder / f"{name}-test.parquet"
    _write(since, test)
    return Written(files, test, process_time() - started)


def _parts(one: Stretch) -> Iterator[pa.Table]:
    for month in read_between(one.trace, one.warm_from, one.until):
        for start in range(0, month.num_rows, PART_ROWS):
            yield month.slice(start, PART_ROWS)


def _write(tables: list[pa.Table], file: Path) -> None:
    described = tables[0].schema.metadata
    table = pa.concat_tables([one.replace_schema_metadata(described) for one in tables])
    pq.write_table(table, file, row_group_size=GROUP_ROWS, compression="zstd")


def train_sharded(
    trace: Path,
    scratch: Path,
    submitted: NDArray[np.float64],
    pairs: PairMeasurements,
    fit: Fit,
    *,
    where: str,
    keep: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Bundle, Json]:
    """Train the duration model shard by shard. Return (a bundle with this model and with models
    of pairs, figures about data, settings and errors of the fit).

    The bundle has no model of arrivals, which must be fitted in memory.

    Args:
        scratch: folder for the shards.
        submitted: see `stretches`.
        keep: folder that keeps the model of every fitted shard, to be reused after an interruption.
        progress: called with the share of the work done, 0 to 1.
    """
    work = stretches(
        trace=trace.resolve(),
        folder=scratch.resolve(),
        submitted=submitted,
        fit=fit,
        workers=workers_at(where),
    )

    def done(share: float) -> None:
        if progress is not None:
            progress(share)

    with mapped(where) as over:
        written: list[Written] = []
        for one in over(write_stretch, work):
            written.append(one)
            done(len(written) / len(work) / 2)
        files = [file for one in written for file in one.shards]
        if keep is not None:
            options = (fit.cut, fit.families, fit.preset, fit.seed, SHARD_ROWS, len(work))
            asked = question_of(options, [trace])
            over = Keep(keep, asked, label=lambda file: file.name).around(over)
        model, figures = fit_sharded(
            files,
            cut=fit.cut,
            seed=fit.seed,
            preset=fit.preset,
            map_shards=over,
            progress=lambda fitted: done(0.5 + fitted / len(files) / 2),
        )
    test = Rows.from_table(pq.read_table(written[-1].test))
    figures["test_jobs"] = len(test)
    if len(test):
        figures["test"] = duration_metrics(model.score_batch(test.X), test.y, test.gpus)
    hinge = fit_pair_hinge(pairs)
    bundle = Bundle(
        duration=model,
        pair_hinge=None if hinge is None else hinge.model,
        packing=fit_packing(pairs, seed=fit.seed).model,
        pair_speed=fit_pair_speed(pairs).model,
        # what it cost is not of the model: the same rows make the same bundle
        metadata={
            "duration": {name: value for name, value in figures.items() if name != "cpu_s"},
            "packing": pairs.provenance(),
        },
        created_by=f"pellucid {version('pellucid')}",
    )
    return bundle, figures | {"features_cpu_s": round(sum(one.cpu_s for one in written), 2)}
