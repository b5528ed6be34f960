"""`pellucid eta`: when a job would start, before it is submitted to Slurm."""

from __future__ import annotations

from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from pipeline.options import spread
from pipeline.printed.eta import lines, with_script
from pipeline.remote import Service, print_json

OPTIONS = Annotated[
    list[str],
    typer.Argument(
        metavar="-- SBATCH-OPTIONS [SCRIPT]",
        help="As sbatch has them. The script is read for its #SBATCH lines, and is not sent.",
    ),
]


@spread
def eta(
    options: OPTIONS,
    service: Service,
    user: Annotated[str | None, typer.Option(help="Ask for this user (operators).")] = None,
    site: Annotated[
        list[Path] | None,
        typer.Option(help="No service: an empty site of these files of Slurm's, as in replay."),
    ] = None,
) -> None:
    """Say when a job would start, in each partition that takes it. Nothing is submitted.

    Asks a service in front of Slurm (serve --backend slurm), which tries it on a copy of the queue.

    Examples:

      pellucid eta -- --gres=gpu:a100:2 --time=60

      pellucid eta -- -p short,long -N2 --gpus-per-node=1 --qos=high

      pellucid eta -- --time=30 job.sh

      pellucid eta --site slurm.conf --site dump.cfg --user ada -- --gpus=2
    """
    from features.codec import decode
    from scheduler.explain.effect import Eta

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
        answer = client.eta(asked, user)
    if service.as_json:
        print_json(answer)
        return
    for line in lines(decode(Eta, answer)):
        typer.echo(line)
