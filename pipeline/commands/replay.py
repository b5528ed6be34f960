"""`pellucid replay`: a site's own sacct dump under other policies, as a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.commands.simulate import JSON
from pipeline.console import bar, step, user_errors
from pipeline.errors import UserError

TEST_DAYS = 7.0
MOST_JOBS = 200_000


def replay(
    sacct: Annotated[
        Path,
        typer.Option(help="Dump of sacct -X -a -D -P -o ALL (or the columns of docs/replay.md)."),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path(
        "savings.html"
    ),
    cluster: Annotated[
        Path | None, typer.Option(help="Cluster file (YAML); vcs are the dump's partitions.")
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(help="Output of scontrol show nodes, or of sinfo -N -o '%N %P %G'."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Of the dump's clock times, e.g. Europe/Oslo; default UTC.")
    ] = None,
    last_days: Annotated[
        float | None, typer.Option(help="Replay only jobs submitted in the last so many days.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Jittered replays of every variant.", min=1)] = 16,
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Hash users, job names and partitions.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: JSON = False,
) -> None:
    """What would it have saved us? Replay a site's weeks under other policies and write a report.

    Reads the dump, infers the cluster where it is not given, checks itself by replaying Slurm's
    own rule against the recorded starts, and says who would gain and who would lose. Nothing
    leaves the machine and nothing needs to be installed on the cluster.

    Examples:

      sacct -X -a -D -P -S 2026-01-01 -o ALL > dump.txt

      pellucid replay --sacct dump.txt --nodes nodes.txt --last-days 28 --workers 4

      pellucid replay --sacct dump.txt --anonymise --json
    """
    with user_errors():
        from tempfile import TemporaryDirectory

        from pipeline.replay.knowledge import duration_knowledge
        from pipeline.replay.page import render
        from pipeline.replay.runs import VARIANTS
        from pipeline.replay.runs import replay as play
        from pipeline.replay.site import read_site
        from pipeline.report.look import write_page

        hush = quiet or as_json
        if last_days is not None and not last_days > 0:
            raise UserError(f"--last-days is {last_days:g}; it must be above 0")
        if not sacct.is_file():
            raise UserError(f"--sacct {sacct}: no such file")
        with TemporaryDirectory() as scratch, step("reading the dump", hush):
            site = read_site(
                sacct,
                Path(scratch),
                cluster=cluster,
                nodes=nodes,
                timezone=timezone,
                last_days=last_days,
                anonymise=anonymise,
            )
        jobs = len(site.workload.jobs)
        if jobs > MOST_JOBS:
            raise UserError(
                f"{sacct}: {jobs:,} jobs to replay; at most {MOST_JOBS:,}: give --last-days"
            )
        with bar("replaying", len(VARIANTS) * seeds, hush) as done:
            found = play(site, seeds, workers=workers, progress=done)
        with step("measuring the duration model", hush):
            known = duration_knowledge(site)
        write_page(out, render(site, found, known))
    if as_json:
        told: dict[str, Any] = {
            "out": str(out),
            "jobs": site.counts,
            "cluster": {
                "vcs": dict(site.workload.cluster.vcs),
                "gpus_per_node": site.workload.cluster.gpus_per_node,
                "shape": site.shape,
            },
            "notes": site.notes,
            "missing": site.missing,
            "duration_model": known,
            **found,
        }
        typer.echo(json.dumps(told))
        return
    for variant in found["variants"]:
        typer.echo(f"{variant['title']}: average wait {variant['avg_wait_s'] / 3600:,.2f} h")
    typer.echo(f"As recorded: {found['recorded']['avg_wait_s'] / 3600:,.2f} h. {out} is written.")
