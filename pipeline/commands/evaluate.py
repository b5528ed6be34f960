"""`pellucid evaluate`: recomputes the errors of the models, beside those of baselines, from public
data."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.console import step, user_errors
from pipeline.errors import UserError
from pipeline.options import PRINT_JSON

NAMES = ("duration", "arrivals", "packing", "heterogeneity", "bundle")


def evaluate(
    what: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    data: Annotated[
        Path, typer.Option(help="Folder of the public data: venus/, packing/ and so on.")
    ] = Path("../shared/data"),
    seed: Annotated[int, typer.Option(help="Random seed with which the models are fitted.")] = 0,
    ablation: Annotated[
        bool,
        typer.Option(
            "--ablation",
            help=("Also evaluate models without one family of features, for each family."),
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For duration and bundle: your own ingested dataset, in place of the public data."
            )
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For bundle: an exported bundle, edited or not. Its errors are"
                " computed on the jobs of --trace that were submitted after "
                "its window."
            )
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For duration: folder of `pellucid simulate --out`. The "
                "predictions made in that run are judged, too."
            )
        ),
    ] = None,
    statements: Annotated[
        float,
        typer.Option(
            help=(
                "For duration: share of the users who state how long each job "
                "will run (0 to 1). Half of them state it at random. Shows how"
                " well long jobs are found then."
            ),
            min=0.0,
            max=1.0,
        ),
    ] = 0.0,
    profiles: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For packing: tables of `pellucid colocate` on another GPU "
                "(solo.parquet and pairs.parquet). Adds how well each GPU's "
                "models judge the other's pairs."
            )
        ),
    ] = None,
    as_json: PRINT_JSON = False,
) -> None:
    """Recompute the figures of a model from the data, baselines beside it on the same rows.

    Examples:

      pellucid evaluate duration --trace data/trace

      pellucid evaluate bundle --trace data/trace --bundle data/bundle

      pellucid evaluate duration --trace data/trace --ablation --json

      pellucid evaluate duration --run runs/honest

      pellucid evaluate packing --profiles data/profiles/h200 --json
    """
    with user_errors():
        if what not in NAMES:
            raise UserError(f"evaluate {what}: choose one of {', '.join(NAMES)}")
        if ablation and what != "duration":
            raise UserError(f"--ablation: only duration has it, not {what}")
        if (bundle is not None) != (what == "bundle" and trace is not None):
            raise UserError("--bundle and --trace go together: evaluate bundle has both, or none")
        for option, given in (("trace", trace if bundle is None else None), ("run", run)):
            if given is not None and what != "duration":
                raise UserError(f"--{option}: only duration has it, not {what}")
        if statements and what != "duration":
            raise UserError(f"--statements: only duration has it, not {what}")
        if profiles is not None and what != "packing":
            raise UserError(f"--profiles: only packing has it, not {what}")
        module: Any = importlib.import_module(f"pipeline.evaluate.{what}")
        with step(f"evaluating {what}", as_json):
            asked: dict[str, object] = {
                "trace": trace,
                "run": run,
                "profiles": profiles,
                "ablation": ablation,
            }
            asked |= {"bundle": bundle, "statements": statements}
            extra = {name: value for name, value in asked.items() if value}
            result = module.run(data, seed=seed, **extra)
        plain = as_json or not hasattr(module, "text")
        typer.echo(json.dumps(result, indent=1) if plain else module.text(result))
