"""Options that several commands share, each declared once, and decorators that add them to
commands.

Options that belong together are one parameter of a command: a dataclass with a field for each
option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from features.clock import TIME_HELP, read_seconds

if TYPE_CHECKING:
    from scheduler.core.request import Field

Command = Callable[..., None]

SERVER = Annotated[
    str | None,
    typer.Option(
        envvar="PELLUCID_SERVER",
        help="Address of the service. Left out: http://127.0.0.1:8400.",
        metavar="URL",
        show_default=False,
    ),
]
TOKEN = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="PELLUCID_TOKEN_FILE",
        help="File that holds your token; only you may be able to read it. Or put the token into "
        "the variable PELLUCID_TOKEN. No option takes the token itself, because other users can "
        "see the options of a running command.",
        show_default=False,
        show_envvar=True,
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print the service's answer as JSON.")]
REASON = Annotated[
    str, typer.Option(help="Your reason for the change; the service's log keeps it.")
]
PREVIEW = Annotated[
    bool, typer.Option("--preview", help="Change nothing. Print what the command would do.")
]
PREVIEW_MOVES = Annotated[
    bool,
    typer.Option("--preview", help="Change nothing. Print which jobs would start sooner or later."),
]
JOB = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
JOBS = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Ids of jobs or arrays; ARRAY_[0-4] for some tasks."),
]
CODES = Annotated[
    bool,
    typer.Option(
        "--codes",
        help="Also print each reason's code, a fixed word for programs, such as GpusBusy.",
    ),
]
ONE_VC = Annotated[
    str | None,
    typer.Option(help="Show only this virtual cluster (nodes with a queue of their own)."),
]


TRACE = typer.Option(
    help="The jobs to simulate: a folder that `pellucid ingest` wrote; with --track, the folder of "
    "the track's data."
)
LOOP_HELP = (
    "When jobs are submitted. open: at the recorded times. closed: likewise, but a job that was "
    "submitted within 15 s (closed:SECONDS) after another job of its user in the virtual cluster "
    "ended is never submitted before that job's end in the simulation."
)
POLICY = Annotated[
    str | None,
    typer.Option(
        help="Policy: a name from the list below, or a class of your own as module:Class. Default: "
        "that of the cluster file, otherwise pellucid."
    ),
]
SET = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Setting of the policy, e.g. ageing=0.1. May be repeated.",
    ),
]
KEEP_HELP = (
    "Folder in which finished parts are kept, so that the same command, if it was broken off, goes "
    "on from there when it is run again."
)
KEEP = Annotated[Path | None, typer.Option(help=KEEP_HELP, metavar="FOLDER")]
WORKERS = Annotated[
    int,
    typer.Option(help="Number of processes of this machine; the same as --where local:N.", min=1),
]
DATABASE = Annotated[
    str | None,
    typer.Option(
        help="Database of the service: sqlite:///PATH or postgresql://USER@HOST/NAME. Left out: "
        "that of PELLUCID_DATABASE, otherwise the file data/service/pellucid.db."
    ),
]
CONFIG = Annotated[
    Path | None, typer.Option(help="YAML file of the service's settings, as for `pellucid serve`.")
]
PRINT_JSON = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
JSON_OBJECT = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JSON_NO_TABLE = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of a table.")
]


@dataclass(frozen=True, kw_only=True)
class World:
    """The options that describe the simulated world in which policies are compared."""

    cluster: Annotated[
        Path | None,
        typer.Option(
            help="Cluster file (YAML: nodes, GPUs, policy). Left out: a cluster inferred from the "
            "trace; with --track, the track's own."
        ),
    ] = None
    track: Annotated[
        str | None,
        typer.Option(
            help=(
                "Simulate under the conditions of a known comparison. published: those of Lucid's "
                "published simulator, defects included. honest: the same without the defects; "
                "honest-closed: with --loop closed; honest-open: idle GPUs are lent to other "
                "virtual clusters. philly: those of the Philly trace."
            )
        ),
    ] = None
    durations: Annotated[
        str | None,
        typer.Option(
            help=(
                "Where predicted durations come from. own: similar jobs that have ended. ga2m, "
                "lightgbm-blended: own, combined with an additive model (GA2M) or with LightGBM, "
                "fitted again every day of the simulation. lightgbm: LightGBM alone. truth: the "
                "true durations. constant:SECONDS. gpu-count: the geometric mean of ended jobs "
                "with as many GPUs. last: the user's last job. slurm-limit: the time limit. An "
                "unknown name prints the list of this trace. Default: own; with --track published, "
                "as published for each policy."
            )
        ),
    ] = None
    compress: Annotated[
        float,
        typer.Option(
            help="Factor of the times between submissions. 0.9: the same jobs in nine tenths of "
            "the time."
        ),
    ] = 1.0
    readable: Annotated[
        float,
        typer.Option(
            help=(
                "Share of users (0 to 1) whose jobs report, while they are profiled or run, how "
                "long they will run in all. If the trace names no users: share of jobs."
            )
        ),
    ] = 0.0
    readable_error: Annotated[
        float,
        typer.Option(
            help=(
                "With --readable: error of what jobs report, as the standard deviation of "
                "ln(reported / true time left). 0.1 is about 10 %."
            )
        ),
    ] = 0.1
    readable_commands: Annotated[
        bool,
        typer.Option(
            "--readable-commands",
            help=(
                "With --readable: the commands of the jobs that report also state their number of "
                "epochs, from which a duration is predicted at submission once a job of the same "
                "script has completed."
            ),
        ),
    ] = False
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="Folder of exported models (`pellucid train --out`). They predict, and nothing is "
            "learned during the simulation."
        ),
    ] = None
    quirks: Annotated[
        bool,
        typer.Option(
            "--quirks/--no-quirks",
            help="Only with --track published: copy the known defects of the published simulator, "
            "or not.",
        ),
    ] = True
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            metavar="TIME",
            help=(
                "Simulate only jobs submitted from this time on (UTC): a date, 2026-01-31, or a "
                "date and a time, 2026-01-31T08:00:00. Earlier jobs only serve to learn durations."
            ),
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """Return the options as arguments of `pipeline.worlds.open_scenario`; times are seconds
        since the epoch."""
        since = None if self.since is None else self.since.replace(tzinfo=UTC).timestamp()
        return vars(self) | {"since": since}


def spread(command: Command) -> Command:
    """Return the command with the signature that typer needs: a parameter that is a dataclass is
    replaced by one option per field."""
    listed, of_values = [], []
    values: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            values[parameter.name] = parameter.annotation
            of_values += _fields(parameter.annotation)
        else:
            listed.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in values.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    _sees(run, [*listed, *of_values])
    return run


def takes(fields: Mapping[str, Field], *, different: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that does what `spread` does, and replaces a command's `**asked` by an
    option for each field of a job.

    Args:
        different: whether the options change an existing job: then an option that is not given is
            None, not the field's default.
    """

    def seen(command: Command) -> Command:
        run = spread(command)
        own = inspect.signature(run).parameters
        listed = [p for p in own.values() if p.name != "asked"]
        at = next((i for i, p in enumerate(listed) if p.default is not p.empty), len(listed))
        listed[at:at] = [_option(f, different) for f in fields.values() if f.name not in own]
        _sees(run, listed)
        return run

    return seen


def _sees(command: Command, listed: list[inspect.Parameter]) -> None:
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in listed}


def _fields(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def _seconds(text: str) -> float:
    try:
        return read_seconds(str(text))
    except ValueError:
        raise typer.BadParameter(f"{text} is no time; give {TIME_HELP}") from None


def _option(field: Field, different: bool) -> inspect.Parameter:
    left_out = different or field.default is MISSING
    both = f"{field.option}/--no-{field.option[2:]}" if field.kind is bool else field.option
    kind = field.kind | None if left_out or field.nullable else field.kind
    option = typer.Option(both, help=field.help(different=different))
    if field.ask.unit == "s":
        option = typer.Option(both, help=option.help, parser=_seconds, metavar="TIME")
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if left_out else field.default,
        annotation=Annotated[kind, option],
    )
