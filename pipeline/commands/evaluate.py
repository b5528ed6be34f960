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
    what: Annotated[
        str,
        typer.Argument(
            help="What to evaluate. duration: predicted durations. arrivals: forecast numbers of "
            "submissions. packing: predicted speeds of jobs that share a GPU. heterogeneity: "
            "predicted speeds on other GPU types. bundle: whether exported models predict as they "
            "did in training, and how fast."
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="Folder of the public data: its folders venus, packing and gavel are used."
        ),
    ] = Path("../shared/data"),
    seed: Annotated[int, typer.Option(help="Random seed with which the models are fitted.")] = 0,
    ablation: Annotated[
        bool,
        typer.Option(
            "--ablation",
            help="For duration: also evaluate the model without each of its families of features, "
            "and with each family that it lacks.",
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For duration and bundle: use your own jobs, from a folder that `pellucid ingest` "
                "wrote, not the public data."
            )
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For bundle: folder of exported models. Their errors are computed on the jobs of "
                "--trace that were submitted after those from which the models learned."
            )
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For duration: also evaluate the predictions made in a simulation, from the folder "
                "that `pellucid simulate --out` wrote."
            )
        ),
    ] = None,
    statements: Annotated[
        float,
        typer.Option(
            help=(
                "For duration: pretend that this share of users (0 to 1) state how long each job "
                "will run, half of them at random, to see how much better long jobs are predicted."
            ),
            min=0.0,
            max=1.0,
        ),
    ] = 0.0,
    profiles: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For packing: folder of `pellucid colocate` with pairs measured on another GPU "
                "type. Also evaluate how well the model of each type predicts the pairs of the "
                "other."
            )
        ),
    ] = None,
    as_json: PRINT_JSON = False,
) -> None:
    """Measure the errors of a model's predictions on data from which it did not learn, and compare
    them with simpler predictions of the same.

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
