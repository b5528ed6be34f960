"""`pellucid profile`: runs a command for a few minutes and measures it from outside."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.plain import plain

if TYPE_CHECKING:
    from profiler.result import ProfileResult
    from profiler.session import Options


class DeviceChoice(StrEnum):
    GPU = "gpu"
    CPU = "cpu"


class PlotChoice(StrEnum):
    SVG = "svg"
    PNG = "png"
    PDF = "pdf"
    NONE = "none"


def profile(
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to profile, after --.", show_default=False)
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", "-t", help="Run the command for at most this many seconds."),
    ] = 200.0,
    gpus: Annotated[
        str,
        typer.Option(
            help="GPUs, as in 0,1 or 0:1 (MIG) or UUIDs; default: CUDA_VISIBLE_DEVICES, else the "
            "first free one."
        ),
    ] = "",
    device: Annotated[
        DeviceChoice, typer.Option(help="cpu measures the host alone; no GPU is needed.")
    ] = DeviceChoice.GPU,
    hz: Annotated[float, typer.Option(help="Samples per second, 1 to 20.")] = 10.0,
    memory_mib: Annotated[
        float | None,
        typer.Option(
            help=(
                "Limit of host memory, MiB, of all the command's processes together. "
                "Default: 90 % of the free memory."
            )
        ),
    ] = None,
    data_mib: Annotated[
        float | None,
        typer.Option(
            help=(
                "Limit of the data segment of each process, MiB (RLIMIT_DATA, enforced by"
                " the kernel)."
            )
        ),
    ] = None,
    output_mib: Annotated[
        float,
        typer.Option(help=("Empty the command's output file when it is larger than this, MiB.")),
    ] = 256.0,
    grace: Annotated[
        float,
        typer.Option(help=("Seconds between SIGTERM and SIGKILL when the command is stopped.")),
    ] = 5.0,
    env: Annotated[
        list[str] | None,
        typer.Option(
            help=("NAME or NAME=VALUE: one more environment variable to pass to the command."),
            show_default=False,
        ),
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(help="Working directory of the command.", show_default=False)
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Profile on a GPU that somebody else is using.")
    ] = False,
    progress: Annotated[
        bool,
        typer.Option(
            help=(
                "Estimate how long the command would run from its output. No line of the "
                "output is kept."
            )
        ),
    ] = True,
    formats: Annotated[
        Path | None,
        typer.Option(
            help=("TOML file of lines in which the command reports its progress."),
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/profile/TIME.")
    ] = None,
    plot: Annotated[
        PlotChoice, typer.Option(help="Format of a picture of the samples.")
    ] = PlotChoice.SVG,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a command briefly, unchanged, and measure what it does to the GPU.

    Everything after -- is the command:

        pellucid profile --seconds 120 --gpus 0 -- python train.py --lr 0.1

    It is stopped after T_prof with all its processes, and reported as
    finished (exit 0), stopped at the limit (healthy, exit 0), failed (1) or
    out of memory (3). Other statuses: 2 bad option, 4 no such GPU, 5 GPU
    taken, 6 no driver, 126 not executable, 127 not found, 130 interrupted.
    """
    from profiler.errors import BadOption, ProfilerError
    from profiler.progress import table
    from profiler.runner import Limits
    from profiler.session import Options, default_memory_mib

    folder = out or Path("runs") / "profile" / datetime.now().strftime("%Y%m%dT%H%M%S.%f")
    try:
        if formats is not None:
            table.use(formats)
        options = Options(
            limits=Limits(
                seconds=seconds,
                grace_s=grace,
                memory_mib=default_memory_mib() if memory_mib is None else memory_mib,
                data_mib=data_mib,
                output_mib=output_mib,
            ),
            device=device.value,
            gpus=_gpu_list(gpus),
            hz=hz,
            env=tuple(env or ()),
            cwd=cwd,
            shared=shared,
            progress=progress,
        )
        result = _run(command or [], folder, options, as_json)
    except (ProfilerError, table.FormatsError) as error:
        print(f"pellucid: {plain(str(error))}", file=sys.stderr)
        raise typer.Exit(getattr(error, "exit_status", BadOption.exit_status)) from None
    if plot is not PlotChoice.NONE:
        from profiler.plot import plot as draw_plot

        draw_plot(result, folder, plot.value)
    if as_json:
        print(json.dumps(result.as_dict(), indent=1))
    else:
        from rich.console import Console

        from profiler.view import table as table_of

        Console().print(table_of(result))
        print(f"run directory: {folder}")
    raise typer.Exit(result.exit_status)


def _gpu_list(text: str) -> tuple[str, ...]:
    from profiler.errors import BadOption

    if not text:
        return ()
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise BadOption(f"--gpus {text!r}: expected a list such as 0,1")
    return parts


def _run(command: list[str], folder: Path, options: Options, as_json: bool) -> ProfileResult:
    """Profile a command and return the result. Draw a live view if the output is a terminal.
    Raises BadOption if `folder` cannot be used.
    """
    from profiler.errors import BadOption
    from profiler.session import profile as run_profile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = sys.stderr if as_json else sys.stdout
        if not stream.isatty():
            return run_profile(command, folder, options)
        from rich.console import Console

        from profiler.view import LiveView

        with LiveView(Console(file=stream)) as view:
            return run_profile(command, folder, options, on_tick=view)
    except OSError as error:
        raise BadOption(f"--out {folder}: {error.strerror or error}") from None
