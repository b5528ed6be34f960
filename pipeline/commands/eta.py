"""`pellucid eta`: forecasts when a job would start, before it is submitted."""

from __future__ import annotations

import os
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import UserError
from pipeline.options import spread
from pipeline.printed.eta import lines, with_script
from pipeline.remote import Service, print_json

if TYPE_CHECKING:
    from scheduler.service.client import Client

OPTIONS = Annotated[
    list[str],
    typer.Argument(
        metavar="-- SBATCH-OPTIONS [SCRIPT]",
        help="Options of sbatch, after `--`. Of a script, only the #SBATCH lines are used, and the "
        "script is not sent.",
    ),
]


@spread
def eta(
    options: OPTIONS,
    service: Service,
    user: Annotated[
        str | None,
        typer.Option(help="Forecast a job of this user, not of yours (operators only)."),
    ] = None,
    site: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "Ask no service. Forecast the job on an idle cluster, described by these files "
                "(as --site of pellucid replay). May be repeated."
            )
        ),
    ] = None,
) -> None:
    """Forecast when a job would start, in each partition that accepts it. Nothing is submitted.

    The service tries the job on a copy of its queue. If the service runs jobs itself (without
    Slurm), only size, GPU type, time limit, sharing, job name, script and partition (there:
    virtual cluster) are considered; `submit --preview` takes all options.

    Examples:

      pellucid eta -- --gres=gpu:a100:2 --time=60

      pellucid eta -- -p short,long -N2 --gpus-per-node=1 --qos=high

      pellucid eta -- --time=30 job.sh

      pellucid eta --site slurm.conf --site dump.cfg --user ada -- --gpus=2
    """
    from features.codec import decode
    from scheduler.explain.effect import Eta
    from scheduler.service.client import ServiceError

    asked = with_script(options)
    if site:
        from pipeline.replay.empty import eta_of

        found = eta_of(site, asked, user or getuser())
        if service.as_json:
            print_json(asdict(found))
            return
        for line in lines(found):
            typer.echo(line)
        return
    with service.client() as client:
        try:
            answer = client.eta(asked, user)
        except ServiceError as refused:
            if refused.kind != "not-followed" or user:
                raise
            _of_its_own(client, asked, as_json=service.as_json)
            return
    if service.as_json:
        print_json(answer)
        return
    for line in lines(decode(Eta, answer)):
        typer.echo(line)


def _of_its_own(client: Client, options: list[str], *, as_json: bool) -> None:
    """Ask a service that schedules jobs itself (not Slurm's) when a job would start, and print the
    answer."""
    from features.codec import decode
    from scheduler.explain.effect import NewJob
    from scheduler.explain.new_job import sentences
    from scheduler.slurm.read.request import RequestError, plainly

    try:
        asked = plainly(options)
    except RequestError as error:
        raise UserError(f"these options cannot be tried: {error}") from None
    answer = client.eta_of(
        asked.command or ["job"],
        workdir=os.getcwd(),
        gpus=asked.gpus,
        gpu_type=asked.gpu_type,
        time_limit_s=asked.time_limit_s,
        vc=asked.vc,
        name=asked.name,
        share=asked.share,
    )
    if as_json:
        print_json(answer | {"not_counted": asked.left})
        return
    for line in sentences(decode(NewJob, answer)):
        typer.echo(line)
    if asked.left:
        typer.echo(f"Not counted, there is no Slurm here: {', '.join(asked.left)}.")
