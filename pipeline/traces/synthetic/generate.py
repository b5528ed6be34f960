"""Generates the trace that comes with Pellucid: synthetic, seeded, calibrated to published
statistics.

    from pipeline.traces.synthetic.generate import default_config, generate, write
    table = generate(default_config("demo"))        # pyarrow.Table in TRACE_SCHEMA

`python -m pipeline.traces.synthetic.generate` compares it with the published figures, and writes it
as a dataset (`--out DIR`).

`duration_s` is the running time on GPUs of its own; start and end are null, because a simulator
decides them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.codec import Json
from features.schema import SCHEMA_VERSION
from pipeline.traces.base import TraceError
from pipeline.traces.dataset import PROVENANCE, SUMMARY, DatasetWriter, replacing, write_json
from pipeline.traces.ingestion import IngestSummary
from pipeline.traces.synthetic.config import SyntheticConfig, SyntheticError, Vc, default_config
from pipeline.traces.synthetic.labels import tabulate
from pipeline.traces.synthetic.process import draw
from pipeline.traces.synthetic.report import (
    comparison,
    leak_table,
    offered_load,
    statistics,
)

__all__ = [
    "SyntheticConfig", "SyntheticError", "Vc", "default_config", "generate", "main", "write",
]  # fmt: skip

VERSION = 1  # raise it when the same configuration comes to mean another trace


def generate(config: SyntheticConfig) -> pa.Table:
    """Generate a synthetic trace. Return it as a table in `features.schema.TRACE_SCHEMA`, one row
    per job, in order of submission.

    Raises SyntheticError if the configured load cannot be reached with these jobs.
    """
    return tabulate(config, draw(config))


# --- files --------------------------------------------------------------------------------------


def digest(table: pa.Table) -> str:
    """Return the SHA-256 of a table's content. It does not depend on the table's chunks, nor on the
    library that wrote it."""
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
    """Generate the trace and write it as a dataset (`pipeline.traces.dataset`). Return the table.

    `provenance.json` holds the configuration with its seed and a digest; `summary.json` holds the
    counts of an ingested trace, and the statistics. An older dataset at `out` is replaced as a
    whole.

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


def _provenance(config: SyntheticConfig, table: pa.Table) -> Json:
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


def _summary(config: SyntheticConfig, table: pa.Table) -> Json:
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
    return {**asdict(rows), "statistics": found, "offered_load": load}


# --- command ------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate the synthetic trace and print its statistics beside published ones; with --out,
    also write it as a dataset. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.traces.synthetic.generate", description=main.__doc__
    )
    parser.add_argument(
        "--scale", default="demo", help="size of the trace: demo, small or large (default: demo)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the trace (default: 0)")
    parser.add_argument(
        "--out", type=Path, help="folder to which the trace is written as a dataset"
    )
    parser.add_argument(
        "--leaks",
        type=int,
        metavar="SEEDS",
        help=("check the trace for leaks of durations with this many seeds, and print the result"),
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
