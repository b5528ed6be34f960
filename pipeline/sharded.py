"""Training from a dataset that does not fit into memory: rows month by month, a fit per shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.plain import Json
from features.rows import Rows, streamed_rows
from models.bundle import Bundle
from models.training.metrics import duration_metrics
from models.training.packing import fit_packing, fit_pair_speed
from models.training.pairs import PairMeasurements
from models.training.sharded import fit_sharded
from pipeline.cluster import Keep, mapped, question_of
from pipeline.errors import UserError
from pipeline.traces.dataset import read_months

SHARD_ROWS = 100_000
GROUP_ROWS = 20_000


def write_shards(
    trace: Path,
    folder: Path,
    *,
    cut: float,
    families: Iterable[str],
    shard_rows: int = SHARD_ROWS,
) -> tuple[list[Path], pa.Table]:
    """Training rows of a dataset, in Parquet files of about `shard_rows` ended jobs.

    Rows keep their order, so a shard is a stretch of time.

    Returns the files, of jobs that had ended before `cut` (seconds since the epoch), and a table
    of the rows taken since, whose duration is known: what to measure errors on.
    """
    files: list[Path] = []
    held: list[pa.Table] = []
    since: list[pa.Table] = []

    def flush() -> None:
        if not held:
            return
        described = held[0].schema.metadata
        table = pa.concat_tables([t.replace_schema_metadata(described) for t in held])
        files.append(folder / f"rows-{len(files):05d}.parquet")
        pq.write_table(table, files[-1], row_group_size=GROUP_ROWS, compression="zstd")
        held.clear()

    for rows in streamed_rows(read_months(trace), families=families):
        since.append(rows.where((rows.time >= cut) & np.isfinite(rows.y)).table())
        seen = rows.ended_before(cut).table()
        for start in range(0, seen.num_rows, shard_rows):
            held.append(seen.slice(start, shard_rows))
            if sum(table.num_rows for table in held) >= shard_rows:
                flush()
    last = sum(table.num_rows for table in held)
    if files and last < shard_rows // 4:  # a small rest would count as much as it is noisy
        held.insert(0, pq.read_table(files.pop()))
    flush()
    if not since:
        raise UserError(f"{trace}: holds no job")
    return files, pa.concat_tables(
        [t.replace_schema_metadata(since[0].schema.metadata) for t in since]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What is fitted, and how.

    Attributes:
        cut: jobs submitted before are trained on, the rest is tested on; seconds since the epoch.
        families: of features.
    """

    cut: float
    families: tuple[str, ...]
    preset: str
    seed: int


def train_sharded(
    trace: Path,
    scratch: Path,
    pairs: PairMeasurements,
    fit: Fit,
    *,
    where: str,
    keep: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Bundle, Json]:
    """A bundle whose duration model was fitted shard by shard, what it was made from, its errors.

    With `keep`, the model of every fitted shard is kept in that folder and taken up again.
    `progress` gets the share of shards fitted. The bundle holds no arrivals: those are fitted in
    memory.
    """
    files, since = write_shards(trace, scratch, cut=fit.cut, families=fit.families)
    kept = None
    if keep is not None:
        options = (fit.cut, fit.families, fit.preset, fit.seed, SHARD_ROWS)
        kept = Keep(keep, question_of(options, [trace]), label=lambda file: file.name)

    def fitted(done: int) -> None:
        if progress is not None:
            progress(done / len(files))

    with mapped(where, kept) as map_shards:
        model, figures = fit_sharded(
            files, seed=fit.seed, preset=fit.preset, map_shards=map_shards, progress=fitted
        )
    bundle = Bundle(
        duration=model,
        packing=fit_packing(pairs, seed=fit.seed).model,
        pair_speed=fit_pair_speed(pairs).model,
        metadata={"duration": figures, "packing": pairs.provenance()},
        created_by=f"pellucid {version('pellucid')}",
    )
    test = Rows.from_table(since)
    figures["test_jobs"] = len(test)
    if len(test):
        figures["test"] = duration_metrics(model.score_batch(test.X), test.y, test.gpus)
    return bundle, figures
