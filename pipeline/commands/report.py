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
        typer.Option(help="Folder that `pellucid compare --out` or `simulate --out` wrote."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Folder of exported models (`pellucid train --out`) to show."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the jobs that were simulated, which `pellucid ingest` wrote, to "
            "describe."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the errors of the models, which the stage evaluate of dvc.yaml "
            "writes."
        ),
    ] = None,
    learning: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the errors of models and the JCT (time from submission to end) by "
            "the number of days learned from, which the stage learn of dvc.yaml writes."
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the page's path, size, sections and main result as JSON."
        ),
    ] = False,
) -> None:
    """Write one HTML page about a trace, the models, the compared policies, and some decisions with
    their explanations.

    The page can be read without network and without other files. A section whose input is not
    given is left out; without --trace, the jobs of --compare are described. Exit status 1 means
    that the page was written, but the numbers of a recorded explanation contradict each other.

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
