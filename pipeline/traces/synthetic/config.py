"""The trace that comes with Pellucid: synthetic, seeded, calibrated to published statistics.

    from pipeline.traces.synthetic.config import default_config, generate, write
    table = generate(default_config("demo"))        # pyarrow.Table in TRACE_SCHEMA

`python -m pipeline.traces.synthetic.config` compares it with the published figures, draws the
plots of
`docs/synthetic-trace.md` (`--plots DIR`) and writes it as a dataset (`--out DIR`).

`duration_s` is the exclusive running time; start and end are null, for a simulator decides them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import SCHEMA_VERSION
from pipeline.traces.base import TraceError
from pipeline.traces.dataset import PROVENANCE, SUMMARY, DatasetWriter, replacing, write_json
from pipeline.traces.ingestion import IngestSummary
from pipeline.traces.synthetic.labels import tabulate
from pipeline.traces.synthetic.process import DAY_S, SyntheticError, draw
from pipeline.traces.synthetic.report import (
    comparison,
    draw_plots,
    leak_table,
    offered_load,
    statistics,
)

__all__ = [
    "SyntheticConfig", "SyntheticError", "Vc", "default_config", "generate", "main", "write",
]  # fmt: skip

VERSION = 1  # raise it when the same configuration comes to mean another trace


@dataclass(frozen=True, slots=True)
class Vc:
    """A virtual cluster.

    Attributes:
        name: as it appears in the trace.
        nodes: nodes it owns.
        share: of the submitted jobs, relative to the other VCs.
        load: offered load, submitted GPU-seconds over GPUs x seconds of the trace.
    """

    name: str
    nodes: int
    share: float
    load: float = 0.85


@dataclass(frozen=True, slots=True)
class SyntheticConfig:
    """What to generate. Checked when made; raises SyntheticError naming field and value.

    Attributes:
        jobs, days, users: sizes of the trace.
        vcs: the virtual clusters.
        start: first day; times are UTC and taken as the cluster's local time.
        gpus_per_node, gpu_memory_mib: the hardware.
        seed: of everything. The same seed gives the same trace, bit for bit.
        labels_seed: of job names, workloads and profiles alone, derived from `seed` when None.
            Changing it changes nothing else: times, sizes, users, durations and states stay.
        jobs_per_template: jobs per recurring script.
        user_skew: spread of the log activity of users.
        away_share: templates that run outside their user's home VC.
        bursts_per_week, burst_jobs: sweeps of one-GPU jobs within the hour, fewest and most jobs.
        median_duration_s: of all jobs, about; VCs differ around it.
        max_duration_s: no job runs longer; durations bend below it.
        failed_share, cancelled_share: of all jobs; the rest completes.
    """

    name: str
    jobs: int
    days: int
    users: int
    vcs: tuple[Vc, ...]
    start: date = date(2025, 9, 15)
    gpus_per_node: int = 8
    gpu_memory_mib: float = 32_768.0
    seed: int = 0
    labels_seed: int | None = None
    jobs_per_template: float = 12.0
    user_skew: float = 1.9
    away_share: float = 0.05
    bursts_per_week: float = 2.0
    burst_jobs: tuple[int, int] = (80, 240)
    median_duration_s: float = 200.0
    max_duration_s: float = 6.0 * DAY_S
    failed_share: float = 0.155
    cancelled_share: float = 0.221

    def __post_init__(self) -> None:
        positive = (
            "jobs", "days", "users", "gpus_per_node", "gpu_memory_mib", "jobs_per_template",
            "median_duration_s", "max_duration_s",
        )  # fmt: skip
        for name in positive:
            _check(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        for name in ("seed", "labels_seed", "user_skew", "bursts_per_week"):
            _check((getattr(self, name) or 0) >= 0, name, getattr(self, name), "at least 0")
        for name in ("away_share", "failed_share", "cancelled_share"):
            _check(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        stopped = self.failed_share + self.cancelled_share
        _check(stopped <= 1, "failed_share + cancelled_share", stopped, "at most 1")
        _check(len(self.vcs) > 0, "vcs", self.vcs, "at least one virtual cluster")
        _check(self.users >= len(self.vcs), "users", self.users, "at least one per VC")
        names = [vc.name for vc in self.vcs]
        _check(len(set(names)) == len(names), "vcs", names, "distinct names")
        for vc in self.vcs:
            good = vc.nodes > 0 and vc.share > 0 and vc.load > 0
            _check(good, "vcs", vc, "positive nodes, share and load")
        low, high = self.burst_jobs
        _check(0 < low <= high, "burst_jobs", self.burst_jobs, "0 < fewest <= most")
        expected = round(self.bursts_per_week * self.days / 7) * high
        _check(
            expected <= self.jobs / 2, "bursts_per_week", self.bursts_per_week,
            f"few enough that bursts (up to {expected} jobs) stay below half of {self.jobs} jobs",
        )  # fmt: skip


def _check(good: bool, field: str, value: object, accepted: str) -> None:
    if not good:
        raise SyntheticError(f"{field} is {value!r}; accepted: {accepted}")


def default_config(scale: str = "demo", seed: int = 0) -> SyntheticConfig:
    """`demo` (6,000 jobs, 240 GPUs), `small` (600, for tests), `large` (1,000,000, 4,688 GPUs).

    Raises SyntheticError for another scale.
    """
    demo = SyntheticConfig(
        name="demo",
        jobs=6_000,
        days=21,
        users=90,
        vcs=(
            Vc("research", 9, 0.32, 0.80),
            Vc("product", 8, 0.26, 0.78),
            Vc("platform", 6, 0.18, 0.76),
            Vc("applied", 4, 0.14, 0.78),
            Vc("campus", 3, 0.12, 0.75),
        ),
        seed=seed,
    )
    if scale == "demo":
        return demo
    if scale == "small":
        vcs = (Vc("research", 4, 0.55, 0.9), Vc("campus", 3, 0.45, 0.8))
        return replace(
            demo, name=scale, jobs=600, days=5, users=25, vcs=vcs, burst_jobs=(20, 60),
            jobs_per_template=6.0, max_duration_s=2.0 * DAY_S,
        )  # fmt: skip
    if scale == "large":
        sizes = (80, 70, 60, 56, 50, 44, 40, 36, 30, 26, 22, 18, 16, 12, 10, 8, 5, 3)
        large = tuple(
            Vc(f"team-{i:02d}", nodes, float(nodes), 0.75 + 0.015 * (i % 15))
            for i, nodes in enumerate(sizes, start=1)
        )
        return replace(
            demo, name=scale, jobs=1_000_000, days=180, users=1_200, vcs=large,
            bursts_per_week=40.0, max_duration_s=30.0 * DAY_S,
        )  # fmt: skip
    raise SyntheticError(f"scale is {scale!r}; accepted: demo, small, large")


def generate(config: SyntheticConfig) -> pa.Table:
    """The trace, one row per job in order of submission, in `features.schema.TRACE_SCHEMA`.

    Raises SyntheticError when the configured load cannot be reached with these jobs.
    """
    return tabulate(config, draw(config))


# --- files --------------------------------------------------------------------------------------


def digest(table: pa.Table) -> str:
    """SHA-256 of what the table says, whatever its chunks and whichever library wrote it."""
    sha = hashlib.sha256()
    for name in table.column_names:
        column = table[name]
        if column.null_count == len(column):
            continue
        text = pc.fill_null(pc.cast(column.combine_chunks(), pa.string()), "")
        sha.update(f"{name}\0{len(text)}\0".encode())
        for buffer in pa.array(text).buffers()[1:]:
            sha.update(memoryview(buffer))
    return sha.hexdigest()


def write(config: SyntheticConfig, out: Path) -> pa.Table:
    """Generate the trace and write it as a dataset (`pipeline.traces.dataset`); returns the table.

    `provenance.json` holds the configuration with its seed and a digest, `summary.json` what an
    ingested trace's does and the statistics. An older dataset there is replaced as a whole.

    Raises:
        SyntheticError: see `generate`.
        TraceError: `out` cannot be written, or holds something that is no dataset.
    """
    table = generate(config)
    with replacing(out) as folder:
        writer = DatasetWriter(folder)
        try:
            writer.write(table)
        finally:
            writer.close()
        write_json(folder / PROVENANCE, _provenance(config, table))
        write_json(folder / SUMMARY, _summary(config, table))
    return table


def _provenance(config: SyntheticConfig, table: pa.Table) -> dict[str, Any]:
    return {
        "source": f"synthetic:{config.name}",
        "files": [],
        "adapter": "synthetic",
        "adapter_version": VERSION,
        "schema_version": SCHEMA_VERSION,
        "config": {**asdict(config), "start": config.start.isoformat()},
        "rows_in": len(table),
        "kept": len(table),
        "sha256": digest(table),
    }


def _summary(config: SyntheticConfig, table: pa.Table) -> dict[str, Any]:
    submit = table["submit_time"]
    first, last = (end.as_py().strftime("%Y-%m-%dT%H:%M:%SZ") for end in (submit[0], submit[-1]))
    rows = IngestSummary(
        f"synthetic:{config.name}",
        "synthetic",
        rows_in=len(table),
        kept=len(table),
        missing_starts=table["start_time"].null_count,
        first_submit=first,
        last_submit=last,
    )
    found = {name: round(value, 6) for name, value in statistics(table).items()}
    load = {vc: round(value, 6) for vc, value in offered_load(config, table).items()}
    return {**rows.as_dict(), "statistics": found, "offered_load": load}


# --- command ------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, plot or write the trace; see --help. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.traces.synthetic.config", description=main.__doc__
    )
    parser.add_argument("--scale", default="demo", help="demo, small or large (default: demo)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--out", type=Path, help="write the trace there as a dataset")
    parser.add_argument(
        "--plots", type=Path, help="draw the plots of docs/synthetic-trace.md there"
    )
    parser.add_argument(
        "--leaks", type=int, metavar="SEEDS", help="print the leak checks over SEEDS"
    )
    given = parser.parse_args(arguments)
    try:
        config = default_config(given.scale, given.seed)
        table = write(config, given.out) if given.out else generate(config)
    except TraceError as error:
        print(f"synthetic: {error}", file=sys.stderr)
        return 2
    print(comparison(table))
    load = ", ".join(f"{vc} {value:.2f}" for vc, value in offered_load(config, table).items())
    print(f"\noffered load: {load}\nsha256: {digest(table)}")
    if given.leaks:
        print(f"\n{leak_table(config, given.leaks)}")
    if given.plots:
        for path in draw_plots(config, given.plots):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
