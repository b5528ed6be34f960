"""`pellucid change`: let a waiting job ask for something else, and keep its place."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pipeline.commands.hold import JOBS, PREVIEW, act
from pipeline.errors import UserError
from pipeline.remote import JSON, SERVER, TOKEN


def change(
    jobs: JOBS,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Time limit, seconds.")] = None,
    share: Annotated[
        bool | None, typer.Option("--share/--no-share", help="May share its GPUs, or not.")
    ] = None,
    vc: Annotated[str | None, typer.Option(help="Virtual cluster.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help='GPU type; "": any.')] = None,
    profile: Annotated[
        bool | None, typer.Option("--profile/--no-profile", help="May be looked at before it runs.")
    ] = None,
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Change what waiting jobs ask for. They keep their place: what they have waited counts.

    Only jobs that wait can be changed. `--preview` forecasts the start as it is and as it would be,
    and changes nothing. Each change is in the log, with who made it.

    Examples:

      pellucid change 7njjr7qk87fm --gpus 2 --preview

      pellucid change 7njjr7qk87fm --share --time-limit 3600
    """
    wanted: dict[str, Any] = {
        "gpus": gpus, "time_limit_s": time_limit, "share": share, "vc": vc, "gpu_type": gpu_type,
        "profile": profile,
    }  # fmt: skip
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if not wanted:
        raise UserError("say what is to be different: --gpus, --time-limit, --share, --vc, ...")
    act(
        jobs,
        lambda client, job: client.change(job, preview=preview, **wanted),
        "is changed, and keeps its place",
        server,
        token,
        as_json=as_json,
    )
