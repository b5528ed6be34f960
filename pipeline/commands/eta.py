"""`pellucid eta`: when a job would start, before it is submitted to Slurm."""

from __future__ import annotations

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
    user: Annotated[str | None, typer.Option(help="For this user; operators.")] = None,
) -> None:
    """Say when a job would start, in each partition that takes it. Nothing is submitted.

    Asks a service in front of Slurm (serve --backend slurm), which tries it on a copy of the queue.

    Examples:

      pellucid eta -- --gres=gpu:a100:2 --time=60

      pellucid eta -- -p short,long -N2 --gpus-per-node=1 --qos=high

      pellucid eta -- --time=30 job.sh
    """
    from features.codec import decode
    from scheduler.explain.effect import Eta

    asked = with_script(options)
    with service.client() as client:
        answer = client.eta(asked, user)
    if service.as_json:
        print_json(answer)
        return
    for line in lines(decode(Eta, answer)):
        typer.echo(line)
