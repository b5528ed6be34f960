"""`pellucid systems`: one page about every system of the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors


def systems(
    figures: Annotated[
        Path,
        typer.Option(help="JSON of `python -m benchmarks.systems --json --out FILE`."),
    ],
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="Folder or file of `pellucid compare --out`; may be given repeatedly."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path(
        "data/systems.html"
    ),
) -> None:
    """Write one self-contained page: what each system is, what it was reproduced against, and
    where it wins and loses.

    It needs no network to be read and no other file. Without --compare the page says what each
    system was held against, and leaves out how it fares among the others.

    Example:

      python -m benchmarks.systems --json --out data/figures.json

      pellucid compare --workload pollux:../shared/data/pollux/workloads/workload-6.csv
      --out data/runs/workload-6

      pellucid systems --figures data/figures.json --compare data/runs/workload-6
    """
    with user_errors():
        from pipeline.report.page import write_page
        from pipeline.report.systems import build

        write_page(out, build(figures, compare or []))
    typer.echo(f"The page is {out}.")
