"""`pellucid report`: writes one HTML page about a trace, its models and the policies compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from features.plain import plain
from pipeline.console import user_errors


def report(
    out: Annotated[Path, typer.Option(help="HTML file to write.", metavar="FILE")] = Path(
        "report.html"
    ),
    compare: Annotated[
        Path | None,
        typer.Option(help="Folder of `pellucid compare --out` (or of one simulation)."),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(help="Exported models that the report shows.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Ingested dataset that the runs are of.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="JSON with the models' errors (stage evaluate).")
    ] = None,
    learning: Annotated[
        Path | None, typer.Option(help="JSON with errors and JCT by history (stage learn).")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help=("Print the path, size, sections and headline of the page as JSON.")
        ),
    ] = False,
) -> None:
    """Write one self-contained page: trace, models, policies compared, sample decisions explained.

    It needs no network to be read and no other file. A section whose input is not given is left
    out, and the page says so. Exit status 1 means that the page was written, but a recorded
    explanation does not add up.

    Example:

      pellucid report --compare data/runs --bundle data/bundle --trace data/trace
      --metrics data/metrics/evaluate.json --out report.html
    """
    with user_errors():
        from features.files import write_whole
        from pipeline.report.build import Inputs, build

        made = build(
            Inputs(compare=compare, bundle=bundle, trace=trace, metrics=metrics, learning=learning)
        )
        write_whole(out, made.html)
    if as_json:
        size = len(made.html.encode())
        typer.echo(
            json.dumps(
                {
                    "out": str(out),
                    "bytes": size,
                    "sections": made.sections,
                    "headline": made.headline,
                    "problems": made.problems,
                }
            )
        )
    else:
        for sentence in made.headline:
            typer.echo(plain(sentence))
        for problem in made.problems:
            typer.echo(plain(f"Contradiction: {problem}"), err=True)
        typer.echo(f"The page is {out}.")
    if made.problems:
        raise typer.Exit(1)
