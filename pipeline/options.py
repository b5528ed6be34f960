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
        help="File with your token, which nobody else can read. Or put the token into "
        "PELLUCID_TOKEN: no option takes it, since everybody can see those of a running command.",
        show_default=False,
        show_envvar=True,
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print what the service answered, as JSON.")]
REASON = Annotated[
    str, typer.Option(help=("Reason, kept in the log, and shown with a drained node."))
]
PREVIEW = Annotated[
    bool, typer.Option("--preview", help="Change nothing; show what the change would do.")
]
PREVIEW_MOVES = Annotated[
    bool, typer.Option("--preview", help="Change nothing; show which starts would move.")
]
JOB = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
JOBS = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.")]
CODES = Annotated[bool, typer.Option("--codes", help="Also print reason codes.")]
ONE_VC = Annotated[str | None, typer.Option(help="Only this virtual cluster.")]


TRACE = typer.Option(help="Ingested dataset; for a track, the folder of its data.")
LOOP_HELP = (
    "open (submit times as they are) or closed: a submission at most 15 s (closed:SECONDS) after "
    "an end of the same user in the same virtual cluster waits for that end."
)
POLICY = Annotated[
    str | None,
    typer.Option(
        help="A policy by name, or module:Class. Default: that of the cluster file, else pellucid."
    ),
]
SET = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=("A setting of the policy, e.g. borrowing.lend_s=3600. May be repeated."),
    ),
]
KEEP_HELP = (
    "Keep what is finished in this folder as it comes; the same command, given again, takes it up."
)
KEEP = Annotated[Path | None, typer.Option(help=KEEP_HELP, metavar="FOLDER")]
WORKERS = Annotated[
    int,
    typer.Option(help=("Number of processes. --workers N is short for --where local:N."), min=1),
]
DATABASE = Annotated[
    str | None,
    typer.Option(
        help="sqlite:///PATH or postgresql://USER@HOST/NAME; the one of PELLUCID_DATABASE or "
        "the default of `pellucid serve` when left out."
    ),
]
CONFIG = Annotated[Path | None, typer.Option(help="The service's YAML file of settings.")]
PRINT_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
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
            help="Cluster YAML. Left out: inferred from the trace; tracks bring their own."
        ),
    ] = None
    track: Annotated[
        str | None,
        typer.Option(
            help=(
                "Track: published (the peers' settings with their defects), "
                "honest, honest-closed, honest-open or philly."
            )
        ),
    ] = None
    durations: Annotated[
        str | None,
        typer.Option(
            help=(
                "Source of predicted durations: own (histories, learned "
                "online), ga2m (histories and a model refitted daily), "
                "lightgbm (LightGBM, refitted daily; lightgbm-blended: with "
                "the histories), truth, constant:SECONDS, gpu-count (mean of "
                "jobs with as many GPUs), last (the user's last job; without "
                "users, the virtual cluster's), slurm-limit; helios on traces,"
                " ebm and lgb on Venus' tracks. Default: own (on track "
                "published: what each policy had)."
            )
        ),
    ] = None
    compress: Annotated[
        float, typer.Option(help="Multiply submit times (0.9 = a busier month).")
    ] = 1.0
    readable: Annotated[
        float,
        typer.Option(
            help=(
                "Share of the users whose jobs report how long they will run, "
                "once profiled or watched (0 to 1); of the jobs where users "
                "are unknown."
            )
        ),
    ] = 0.0
    readable_error: Annotated[
        float,
        typer.Option(
            help=(
                "Error of the durations that jobs report: standard deviation of "
                "ln(reported / true)."
            )
        ),
    ] = 0.1
    readable_commands: Annotated[
        bool,
        typer.Option(
            "--readable-commands/--no-readable-commands",
            help=(
                "Let the commands of these jobs also state the number of epochs. It is "
                "used at submission once a job with the same script has completed."
            ),
        ),
    ] = False
    bundle: Annotated[
        Path | None,
        typer.Option(
            help=("Folder of exported models. Predict with them, and learn nothing during the run.")
        ),
    ] = None
    quirks: Annotated[
        bool,
        typer.Option(
            "--quirks/--no-quirks",
            help="With --track published: copy the known defects of the published simulator.",
        ),
    ] = True
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help=(
                "Simulate only jobs submitted from this time on (UTC). Predictors learn "
                "from earlier jobs."
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
