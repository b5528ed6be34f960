"""`pellucid train`: trains models on a dataset, without DVC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from features.codec import Json
from features.schema import TIME
from models.training.metrics import TITLES
from pipeline.cluster import WHERE_HELP
from pipeline.console import bar, metrics_table, step, user_errors
from pipeline.errors import UserError
from pipeline.options import JSON_NO_TABLE, KEEP_HELP

# as in params.yaml: wider histories were no better and cost five times as much (docs/models.md)
FAMILIES = ("size", "survival", "burst")


def train(
    trace: Annotated[
        Path, typer.Option(help="The jobs to learn from: a folder that `pellucid ingest` wrote.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the models to.")],
    test_days: Annotated[
        float,
        typer.Option(
            help="Number of last days of the trace on whose jobs errors are measured. The models "
            "do not learn from them."
        ),
    ] = 7.0,
    pairs: Annotated[
        str,
        typer.Option(
            help="Speeds of pairs of jobs that share a GPU, to learn from: a folder that `pellucid "
            "colocate` or Lucid's artifact wrote, a Parquet file of the like, or simulated (speeds "
            "from a formula)."
        ),
    ] = "simulated",
    sharing: Annotated[
        str | None,
        typer.Option(
            help=(
                "How the pairs of --pairs shared a GPU: mps or time-slicing. A policy with another "
                "sharing.mode does not use what is learned from them, unless its setting "
                "sharing.unmeasured is true. Left out: time-slicing for a folder of `pellucid "
                "colocate`, otherwise as the file says."
            )
        ),
    ] = None,
    gpu_rates: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the steps per second of training jobs on each GPU type, in "
            "Gavel's format. From it, a model of speeds on other GPU types is added, which the "
            "policy uses if its setting gpu_types.counted_on is given."
        ),
    ] = None,
    edits: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of corrections that a person wants made to the model of durations, "
            "such as models/edits.yaml (docs/editing-models.md)."
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="How the models are fitted: fast, or full, which takes about four times as long "
            "for slightly smaller errors."
        ),
    ] = "full",
    seed: Annotated[int, typer.Option(help="Random seed with which the models are fitted.")] = 0,
    mlflow: Annotated[
        str | None,
        typer.Option(
            help=(
                "MLflow store, e.g. sqlite:///mlflow.db, in which to record the training and to "
                "register the models, so that `pellucid promote` can judge them."
            )
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="Train in parts, for a trace that does not fit into memory; where they are "
            "computed: " + WHERE_HELP
        ),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="With --where. " + KEEP_HELP, metavar="FOLDER")
    ] = None,
    as_json: JSON_NO_TABLE = False,
) -> None:
    """Train the models that predict how long jobs run (an additive model, GA2M) and how much two
    jobs on one GPU slow each other, and write them to a folder.

    Then the errors of predicted durations are printed, on the jobs of the last days, from which
    the models did not learn. LightGBM, a moving average for each user, and a constant are
    measured on the same jobs, to compare. With --edits, also the model without and with the
    corrections. With --where, only the model itself is measured.

    Examples:

      pellucid train --trace data/trace --out data/my-bundle

      pellucid train --trace data/site --out bundle --pairs ../shared/data/packing --json

      pellucid train --trace data/trace --out data/my-bundle --edits models/edits.yaml

      pellucid train --trace data/large --out bundle --where tcp://scheduler:8786

      pellucid train --trace data/large --out bundle --where slurm:16 --keep ~/shards
    """
    with user_errors():
        from features.pictured import learned_histories
        from features.rows import training_rows
        from features.state import features_of
        from models.training.edits import check_names, measured, read_edits
        from models.training.tracking import Registry
        from pipeline.stages.common import test_from
        from pipeline.stages.evaluate import evaluated, roll, track
        from pipeline.stages.train import Beside, arrivals_before, fit, read_measured
        from pipeline.traces import read_dataset

        if where is not None and (gpu_rates, edits, mlflow) != (None, None, None):
            raise UserError("--gpu-rates, --edits and --mlflow do not go together with --where")
        types = None
        if gpu_rates is not None:
            from models.training.gputypes import fit_gpu_types
            from pipeline.evaluate.heterogeneity import read_rates

            types = fit_gpu_types(read_rates(gpu_rates))
        if where is not None:
            _sharded(
                trace,
                out,
                test_days,
                pairs,
                sharing=sharing,
                preset=preset,
                seed=seed,
                where=where,
                keep=keep,
                as_json=as_json,
            )
            return
        if keep is not None:
            raise UserError("--keep needs --where: only fits shard by shard are kept")
        corrections = None if edits is None else read_edits(edits)
        if corrections is not None:
            check_names(corrections, features_of(FAMILIES))
        with step("reading the trace", as_json):
            table = read_dataset(trace)
            rows = training_rows(table, families=tuple(FAMILIES))
            cut = test_from(table.column("submit_time"), test_days)
        with step("fitting", as_json):
            bundle = fit(
                rows,
                cut,
                read_measured(pairs, seed, sharing),
                preset=preset,
                seed=seed,
                edits=corrections,
                beside=Beside(
                    arrivals=arrivals_before(table, cut),
                    gpu_types=types,
                    histories=learned_histories(table, cut),
                ),
            )
            bundle.save(out)
        with step("measuring errors on unseen days, refitting daily", as_json):
            rolling = roll(table, rows, cut, refit_days=1.0, preset="fast", seed=seed)
        figures: Json = {
            "bundle": str(out),
            "digest": bundle.digest,
            "jobs": len(rows.ended_before(cut)),
            "test_jobs": len(rolling.rows),
            "duration": {**rolling.metrics, **measured(bundle)},
            "packing": bundle.metadata["packing"],
        }
        if mlflow is not None:
            with step("tracking", as_json):
                tracked = track(
                    out,
                    evaluated(out, table, rows, rolling),
                    {"trace": trace.name, "preset": preset},
                    registry=Registry(tracking_uri=mlflow),
                    source=trace,
                )
            figures["version"] = tracked.number
    if as_json:
        typer.echo(json.dumps(figures))
        return
    named = {TITLES.get(name, name): row for name, row in figures["duration"].items()}
    metrics_table(f"Duration, {len(rolling.rows):,} unseen jobs, refitted daily", named)
    typer.echo(f"Bundle {bundle.digest[:12]} is in {out}.")


def _sharded(
    trace: Path,
    out: Path,
    test_days: float,
    pairs: str,
    sharing: str | None,
    preset: str,
    seed: int,
    where: str,
    keep: Path | None,
    as_json: bool,
) -> None:
    from tempfile import TemporaryDirectory

    from pipeline.sharded import Fit, train_sharded
    from pipeline.stages.common import test_from
    from pipeline.stages.train import read_measured
    from pipeline.traces.dataset import read_months

    if keep is None and where.startswith("slurm:"):
        raise UserError(
            f"--where {where} needs --keep FOLDER, on a file system that all nodes see: the jobs "
            "hand their work over in it"
        )
    chunks = [c for month in read_months(trace) for c in month.column("submit_time").chunks]
    submitted = pa.chunked_array(chunks, TIME)
    cut = test_from(submitted, test_days)
    if keep is not None:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        TemporaryDirectory(dir=keep) as scratch,
        bar("fitting shard by shard, %", 100, as_json) as show,
    ):
        bundle, fitted = train_sharded(
            trace,
            scratch=Path(scratch),
            submitted=submitted.cast("int64").to_numpy() / 1000,
            pairs=read_measured(pairs, seed, sharing),
            fit=Fit(cut=cut, families=tuple(FAMILIES), preset=preset, seed=seed),
            where=where,
            keep=keep,
            progress=lambda share: show(round(100 * share)),
        )
    bundle.save(out)
    figures = {"bundle": str(out), "digest": bundle.digest, "where": where, **fitted}
    if as_json:
        typer.echo(json.dumps(figures))
        return
    cpu_s = fitted["features_cpu_s"] + fitted["cpu_s"]
    typer.echo(f"{fitted['rows']:,} jobs in {fitted['shards']} shards, {cpu_s:.0f} CPU-seconds.")
    if "test" in fitted:
        metrics_table(f"Duration, {fitted['test_jobs']:,} unseen jobs", {"ga2m": fitted["test"]})
    typer.echo(f"Bundle {bundle.digest[:12]} is in {out}.")
