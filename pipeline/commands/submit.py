"""`pellucid submit`: hand a job to the service."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.remote import JSON, SERVER, TOKEN, connect, print_json


def submit(
    command: Annotated[
        list[str], typer.Argument(help="What to run, after `--`. No shell reads it.")
    ],
    gpus: Annotated[int, typer.Option(help="GPUs, all at once.")] = 1,
    vc: Annotated[
        str | None, typer.Option(help="Virtual cluster. May be left out if you have one only.")
    ] = None,
    name: Annotated[str, typer.Option(help="A name for it, seen by you and operators.")] = "",
    workdir: Annotated[
        str | None, typer.Option(help="Where it runs on the service's host. Left out: here.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for its environment; may be repeated.")
    ] = None,
    cpus: Annotated[float | None, typer.Option(help="CPU cores it uses.")] = None,
    memory: Annotated[
        float | None, typer.Option(help="Host memory, MiB; a job that takes more is stopped.")
    ] = None,
    gpu_type: Annotated[str | None, typer.Option(help="GPU type; left out: any.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds; a job that runs longer is stopped.")
    ] = None,
    share: Annotated[
        bool, typer.Option("--share/--no-share", help="May share its GPUs with another job.")
    ] = True,
    profile: Annotated[
        bool, typer.Option("--profile/--no-profile", help="May be profiled before it runs.")
    ] = True,
    priority: Annotated[
        int, typer.Option(help="Higher goes first. Above 0 is an operator's to give.")
    ] = 0,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: submitting again under it submits nothing."),
    ] = None,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Submit a job to the service. Prints its id.

    Examples:

      pellucid submit --gpus 2 --vc vision -- python train.py --epochs 10

      pellucid submit --time-limit 3600 --no-share --env SEED=1 -- ./run.sh

    Then: pellucid why JOB
    """
    asked: dict[str, Any] = {
        "gpus": gpus, "vc": vc, "name": name, "cpus": cpus, "memory_mib": memory,
        "workdir": os.getcwd() if workdir is None else workdir,
        "environment": _environment(env or []), "gpu_type": gpu_type, "time_limit_s": time_limit,
        "share": share, "profile": profile, "priority": priority,
    }  # fmt: skip
    with user_errors(), connect(server, token) as client:
        job = client.submit(command, key=key, **asked)
    if as_json:
        print_json(job)
    else:
        typer.echo(job["job_id"])


def _environment(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for name, sign, _ in pairs:
        if not name or not sign:
            raise UserError(f"--env {name}: give NAME=VALUE")
    return {name: value for name, _, value in pairs}
