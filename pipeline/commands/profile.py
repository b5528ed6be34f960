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
        typer.Option("--seconds", "-t", help="Stop the command after this number of seconds."),
    ] = 200.0,
    gpus: Annotated[
        str,
        typer.Option(
            help="GPUs to use, by number (0,1), as part of one (0:1, MIG) or by UUID. Default: "
            "those of CUDA_VISIBLE_DEVICES, otherwise the first free one (with --shared: the "
            "first one)."
        ),
    ] = "",
    device: Annotated[
        DeviceChoice,
        typer.Option(
            help="gpu: measure the GPUs and the host. cpu: only the host; no GPU is needed."
        ),
    ] = DeviceChoice.GPU,
    hz: Annotated[float, typer.Option(help="Measurements per second, 1 to 20.")] = 10.0,
    memory_mib: Annotated[
        float | None,
        typer.Option(
            help=(
                "Host memory (RAM) that all of the command's processes together may take, MiB. If "
                "they take more, they are stopped. Default: 90 % of the free memory."
            )
        ),
    ] = None,
    data_mib: Annotated[
        float | None,
        typer.Option(
            help=(
                "Data memory that each single process may take, MiB; more is refused by the kernel "
                "(RLIMIT_DATA). Default: no limit."
            )
        ),
    ] = None,
    output_mib: Annotated[
        float,
        typer.Option(help="Size at which the file with the command's output is emptied, MiB."),
    ] = 256.0,
    grace: Annotated[
        float,
        typer.Option(
            help="Seconds that the command gets to end (SIGTERM) before it is killed (SIGKILL)."
        ),
    ] = 5.0,
    env: Annotated[
        list[str] | None,
        typer.Option(
            help="Pass this environment variable to the command: NAME=VALUE, or NAME with its "
            "present value. Only common variables are passed without this. May be repeated.",
            show_default=False,
        ),
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which the command runs. Default: the current one.", show_default=False
        ),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Run even on a GPU that another process uses; without this, it is refused.",
        ),
    ] = False,
    progress: Annotated[
        bool,
        typer.Option(
            help=(
                "Read the command's progress in its output, to estimate how long it would run in "
                "all. The result holds no line of the output."
            )
        ),
    ] = True,
    formats: Annotated[
        Path | None,
        typer.Option(
            help="TOML file that describes how the command prints its progress, beside the forms "
            "that are known (docs/progress.md).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the results to. Default: runs/profile/TIME."),
    ] = None,
    plot: Annotated[
        PlotChoice, typer.Option(help="Format of the chart of the measurements; none: no chart.")
    ] = PlotChoice.SVG,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a command for some minutes, unchanged, and measure its use of the GPU.

    Everything after -- is the command:

        pellucid profile --seconds 120 --gpus 0 -- python train.py --lr 0.1

    After --seconds, the command is stopped with all its processes.

    Exit status 0: it ended well by then, or was stopped then. 1: it failed. 3: it ran out of
    memory. 2: wrong option. 4: no such GPU. 5: the GPU is in use. 6: no GPU driver. 7: this
    machine lacks something else that is needed. 126: the command cannot be executed. 127: it
    was not found. 130: you interrupted it."""
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
