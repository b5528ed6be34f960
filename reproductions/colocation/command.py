"""`pellucid colocate`: what sharing a GPU costs, measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.profile import DeviceChoice


def colocate(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            help="Training jobs to measure: MODEL (all its batch sizes) or MODEL/BATCH, with /amp "
            "for mixed precision. Default: all.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write the measurements to. Those that it holds already are not "
            "repeated."
        ),
    ] = Path("runs/colocate"),
    minutes: Annotated[
        float,
        typer.Option(
            help="Stop measuring after this number of minutes. Run the command again to go on."
        ),
    ] = 10.0,
    pairs: Annotated[
        int | None,
        typer.Option(help="Largest number of pairs to measure. Default: all.", show_default=False),
    ] = None,
    device: Annotated[
        DeviceChoice | None,
        typer.Option(help="Device to measure. Default: gpu; with --tiny, cpu.", show_default=False),
    ] = None,
    gpu: Annotated[
        str,
        typer.Option(
            help="Number or UUID of the GPU. Default: that of CUDA_VISIBLE_DEVICES, otherwise the "
            "first free one."
        ),
    ] = "",
    tiny: Annotated[
        bool,
        typer.Option(
            "--tiny",
            help="Measure small training jobs for a second each, on the CPU, to try the command.",
        ),
    ] = False,
    mps: Annotated[
        bool,
        typer.Option(
            "--mps",
            help="Measure pairs also under NVIDIA MPS (where jobs on one GPU run at the same "
            "time), if it can be started.",
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Smallest number of measurements of each job and each pair. Default: 2.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help=(
                "Repeat each measurement (at most 5 times) until the 95 % interval of its mean is "
                "within this share of the mean. Default: 0.05."
            ),
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the order of measurements.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Measure how fast sample training jobs run alone and in pairs on one GPU.

        pellucid colocate ResNet50 BERT/32/amp --minutes 5 --out runs/colocate

    The folder of --out gets solo.parquet and pairs.parquet (speeds, use of the GPU, memory), every
    single measurement, and a page that describes them (README.md). If the command was stopped, run
    it again to go on. Exit statuses are as for `pellucid profile`.
    """
    from dataclasses import replace

    from profiler.errors import ProfilerError
    from reproductions.colocation.bench import Settings
    from reproductions.colocation.campaign import TINY, campaign

    try:
        settings = TINY if tiny else Settings()
        if device is DeviceChoice.CPU:
            settings = replace(settings, device="cpu")
        elif device is DeviceChoice.GPU:
            settings = replace(settings, device="gpu", threads=None)
        fewest = settings.min_repeats if repeats is None else repeats
        settings = replace(
            settings,
            gpu=gpu,
            min_repeats=fewest,
            max_repeats=max(settings.max_repeats, fewest),
            tolerance=settings.tolerance if tolerance is None else tolerance,
            seed=seed,
        )
        summary = campaign(
            settings,
            folder=out,
            minutes=minutes,
            names=workloads or [],
            pairs=pairs,
            with_mps=mps,
            quiet=as_json,
        )
    except ProfilerError as error:
        print(f"pellucid: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_status) from None
    except OSError as error:
        print(f"pellucid: --out {out}: {error.strerror or error}", file=sys.stderr)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps(summary, indent=1))
        return
    print(
        f"{summary['solo']} of {summary['solo_wanted']} workloads alone, "
        f"{summary['pairs']} of {summary['pairs_wanted']} pairs "
        f"({summary['tight_pairs']} within the tolerance) in {out}"
    )
    if not summary["complete"]:
        print("unfinished: run it again to go on")
