"""`pellucid submit`: hand a job to the service."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from pipeline.errors import UserError
from pipeline.options import takes
from pipeline.remote import Service, print_json
from scheduler.core.request import FIELDS


@takes(FIELDS)
def submit(
    command: Annotated[
        list[str], typer.Argument(help="What to run, after `--`. No shell reads it.")
    ],
    service: Service,
    workdir: Annotated[
        str | None, typer.Option(help="Where it runs on the service's host. Left out: here.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for its environment; may be repeated.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: submitting again under it submits nothing."),
    ] = None,
    **asked: Any,
) -> None:
    """Submit a job to the service. Prints its id.

    Examples:

      pellucid submit --gpus 2 --vc vision -- python train.py --epochs 10

      pellucid submit --time-limit 1:30:00 --no-share --env SEED=1 -- ./run.sh

    Then: pellucid why JOB
    """
    asked["workdir"] = os.getcwd() if workdir is None else workdir
    asked["environment"] = _environment(env or [])
    with service.client() as client:
        job = client.submit(command, key=key, **asked)
    if service.as_json:
        print_json(job)
    else:
        typer.echo(job["job_id"])


def _environment(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for name, sign, _ in pairs:
        if not name or not sign:
            raise UserError(f"--env {name}: give NAME=VALUE")
    return {name: value for name, _, value in pairs}
