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
            help="Workloads: MODEL, or MODEL/BATCH\\[/amp]. Default: all.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help=("Folder of the measurements. If it holds some, they are continued.")),
    ] = Path("runs/colocate"),
    minutes: Annotated[
        float,
        typer.Option(help=("Minutes to measure, at most. Run the command again to continue.")),
    ] = 10.0,
    pairs: Annotated[
        int | None,
        typer.Option(help="Number of pairs to measure, at most. Default: all.", show_default=False),
    ] = None,
    device: Annotated[
        DeviceChoice | None,
        typer.Option(
            help=("Device to measure. Default: the GPU, with --tiny the CPU."), show_default=False
        ),
    ] = None,
    gpu: Annotated[
        str,
        typer.Option(
            help="Label or UUID of the GPU. Default: CUDA_VISIBLE_DEVICES, else the first free."
        ),
    ] = "",
    tiny: Annotated[
        bool,
        typer.Option(
            "--tiny",
            help=("Small workloads and short measurements, for a CPU (implies --device cpu)."),
        ),
    ] = False,
    mps: Annotated[
        bool, typer.Option("--mps", help="Measure pairs under MPS too, where it can be started.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Least number of measurements of each workload and each pair.", show_default=False
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help=(
                "Repeat until the 95 % confidence interval of a mean is within this share"
                " of the mean."
            ),
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of measurements.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Measure reference workloads alone and in pairs on one GPU.

        pellucid colocate ResNet50 BERT/32/amp --minutes 5 --out runs/colocate

    Writes solo.parquet and pairs.parquet (relative speeds, utilisation,
    memory), every single measurement, and a card. Stopped or killed, it goes
    on where it was when run again. Exit statuses as for `pellucid profile`.
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
