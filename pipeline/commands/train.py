"""`pellucid train`: models from a dataset, without DVC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.commands.simulate import JSON
from pipeline.console import metrics_table, step, user_errors


def train(
    trace: Annotated[Path, typer.Option(help="Ingested dataset to learn from.")],
    out: Annotated[Path, typer.Option(help="Folder of the exported bundle.")],
    test_days: Annotated[
        float, typer.Option(help="Last days, never trained on, to measure errors on.")
    ] = 7.0,
    pairs: Annotated[
        str,
        typer.Option(help="Measured pairs (Parquet, or a folder in the artifact's format)."),
    ] = "simulated",
    preset: Annotated[str, typer.Option(help="full or fast.")] = "full",
    seed: Annotated[int, typer.Option(help="Of the fits.")] = 0,
    mlflow: Annotated[
        str | None,
        typer.Option(help="Also track the run there, e.g. sqlite:///mlflow.db, and promote it."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Train the duration GA2M and the packing models, and export them as a bundle.

    The errors printed are on the last days, which the models never saw, with LightGBM, a moving
    average per user and a constant beside them on the same rows.

    Examples:

      pellucid train --trace data/trace --out data/my-bundle

      pellucid train --trace data/site --out bundle --pairs ../shared/data/packing --json
    """
    with user_errors():
        from features.rows import training_rows
        from pipeline.stages.common import test_from
        from pipeline.stages.evaluate import roll, track
        from pipeline.stages.train import fit, read_measured
        from pipeline.traces import read_dataset

        with step("reading the trace", as_json):
            table = read_dataset(trace)
            rows = training_rows(table)
            cut = test_from(table.column("submit_time"), test_days)
        with step("fitting", as_json):
            bundle = fit(rows, cut, read_measured(pairs, seed), preset=preset, seed=seed)
            bundle.save(out)
        with step("measuring errors on unseen days, refitting daily", as_json):
            rolling = roll(table, rows, cut, refit_days=1.0, preset="fast", seed=seed)
        figures: dict[str, Any] = {
            "bundle": str(out),
            "digest": bundle.digest,
            "jobs": len(rows.ended_before(cut)),
            "test_jobs": len(rolling.rows),
            "duration": {name: dict(row) for name, row in rolling.metrics.items()},
            "packing": bundle.metadata["packing"],
        }
        if mlflow is not None:
            with step("tracking", as_json):
                tracked = track(out, rolling, {"trace": trace.name, "preset": preset}, uri=mlflow)
            figures["version"], figures["promoted"] = tracked.version, tracked.promoted
    if as_json:
        typer.echo(json.dumps(figures))
        return
    metrics_table(f"Duration, {len(rolling.rows):,} unseen jobs", figures["duration"])
    typer.echo(f"Bundle {bundle.digest[:12]} is in {out}.")
