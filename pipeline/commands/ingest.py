"""`pellucid ingest`: reads a trace and writes it as a dataset."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline.traces import IngestSummary

HELP = "\n\n".join(
    (
        "Read a trace (a record of a cluster's jobs) in one of many formats, and write it as a "
        "dataset: Parquet files that all commands with --trace read.",
        "Formats: helios (cluster_log.csv), helios-full (Lucid's cluster_full_log.csv), philly "
        "(cluster_job_log, JSON), philly-csv, pai2020 (a folder), openb, spot2026, acme, swf, "
        "sacct, pellucid (what pellucid export writes), batsim, batsim-jobs, cloudbrain, dlrm2025, "
        "gavel, kestrel, muri, pm100, sia, supercloud, tiresias. For any other CSV, JSON or "
        "Parquet file, write a YAML file that names its columns, units and time zone, and give it "
        "as --format site.yaml (docs/adding-a-trace-format.md).",
        "The folder of --out gets the jobs by month of submission (month=YYYY-MM/part-*.parquet), "
        "quarantine.parquet (the rows that could not be used, each with its line and the reason), "
        "provenance.json and summary.json. A dataset that is there already is replaced once the "
        "new one is complete.",
        "Examples:",
        "  pellucid ingest cluster_log.csv --out data/venus",
        "  pellucid ingest pai/ --out data/pai --json | jq .quarantined",
        "  sacct -X -a -D -P -S 2026-01-01 -o ALL > jobs.txt",
        "  pellucid ingest jobs.txt --out data/site --timezone Europe/Berlin",
    )
)


def ingest(
    source: Annotated[
        Path, typer.Argument(help="The trace: a file; for pai2020, the folder of its tables.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder to write the dataset to. Needed unless --preview is given.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format", help="Format of the trace, see above. auto: recognised from the file."
        ),
    ] = "auto",
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            help="Time zone of times that are written without one, such as Asia/Shanghai or "
            "+08:00. Default: that of the site which published the trace; for sacct, UTC.",
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            help="For traces whose times count from 0: the time that 0 stands for, such as "
            "2023-01-01T00:00:00Z.",
        ),
    ] = None,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Write nothing. Print the number of jobs, their waits, and values that look "
            "wrong.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    from features.folders import temporary_folder
    from pipeline.errors import UserError
    from pipeline.traces import TraceError
    from pipeline.traces import ingest as run
    from pipeline.traces.preview import lines_of

    try:
        start = _instant(origin) if origin is not None else None
        with ExitStack() as stack:
            if out is None and not preview:
                raise UserError("give --out DIR, or --preview")
            if out is None or preview:
                out = Path(stack.enter_context(temporary_folder("pellucid-preview-"))) / "jobs"
            with _progress(source) as progress:
                summary = run(
                    source, out, format=format, timezone=timezone, origin=start, progress=progress
                )
            found = lines_of(out) if preview else []
    except TraceError as error:
        raise UserError(str(error)) from error
    if as_json:
        print(json.dumps(asdict(summary), indent=2, ensure_ascii=False))
    else:
        _show(summary, None if preview else out)
        for line in found:
            print(line)


ingest.__doc__ = HELP


def _instant(text: str) -> datetime:
    from pipeline.traces import TraceError

    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(
            f"origin: {text!r} is no instant; give one such as 2023-01-01T00:00:00Z"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@contextmanager
def _progress(source: Path) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that shows how many bytes of the source have been read; None without a
    terminal."""
    if not sys.stdout.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from pipeline.traces.registry import source_bytes

    columns = (TextColumn("ingest"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("ingest", total=source_bytes(source))
        yield lambda done: bar.update(task, completed=done)


def _show(summary: IngestSummary, out: Path | None) -> None:
    def line(count: int, text: str) -> None:
        print(f"{count:>12,}  {text}")

    print(f"{summary.source} as {summary.format}" + (f" -> {out}" if out is not None else ""))
    line(summary.rows_in, "rows in")
    line(summary.kept, "jobs kept")
    for reason, count in summary.quarantined.items():
        line(count, f"quarantined: {reason}")
    if summary.duplicates:
        line(summary.duplicates, "quarantined: duplicate of an earlier row")
    for kind, count in summary.skipped.items():
        line(count, f"no job of its own: {kind}")
    for count, text in (
        (summary.unsorted, "jobs submitted before one that stands before them"),
        (summary.missing_starts, "jobs without a start"),
        (summary.repeated_job_ids, "jobs whose id an earlier job has"),
    ):
        if count:
            line(count, text)
    for code, count in summary.warnings.items():
        line(count, f"warning: {code}")
    print(f"submitted from {summary.first_submit} to {summary.last_submit}")
