"""`pellucid submit`: submits a job to the service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.errors import UserError
from pipeline.options import takes
from pipeline.remote import Service, print_json
from scheduler.core.request import FIELDS


@takes(FIELDS)
def submit(
    context: typer.Context,
    service: Service,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Command that the job runs, after `--`. No shell interprets it: `$X`, `>` and `|` "
            "have no meaning in it."
        ),
    ] = None,
    workdir: Annotated[
        str | None,
        typer.Option(
            help="Folder in which the job runs, on the service's host. Left out: the path of the "
            "current folder."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Environment variable of the job. May be repeated."
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help=(
                "Submit an array: one job for each number of a list such as 0-9, 1,3,7 or "
                "0-10:2 (every second one); 0-9%2 runs at most two at once. Each job reads its "
                "number from PELLUCID_ARRAY_TASK_ID or SLURM_ARRAY_TASK_ID."
            ),
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help=(
                "YAML file with any of these options (--print writes one). Options on the command "
                "line win over it."
            )
        ),
    ] = None,
    again: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help=(
                "Take the options of this earlier job, except its command, --env, --priority, "
                "--after and --after-any. Options on the command line win over them."
            ),
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--print", help="Submit nothing. Print the options as YAML, to be given with --file."
        ),
    ] = False,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Submit nothing. Print when the job would start, and how long it is predicted to "
            "run.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            help="Any text that you choose. Submitting again with the same key submits no second "
            "job, but prints the id of the first."
        ),
    ] = None,
    **asked: Any,
) -> None:
    """Submit a job to the service, and print its id. For an array, print the array's id.

    Examples:

      pellucid submit --gpus 2 --vc vision -- python train.py --epochs 10

      pellucid submit --time-limit 1:30:00 --no-share --env SEED=1 -- ./run.sh

      pellucid submit --array 0-9 -- ./sweep.sh

      pellucid submit --gpus 4 --print -- python train.py > job.yaml

      pellucid submit --file job.yaml --name again

      pellucid submit --again 7njjr7qk87fm --no-share -- python train.py

    Then: pellucid why JOB
    """
    from features.asked import of_files
    from pipeline.job_file import read_job, written

    whole = {} if again is None else {**_asked_by(service, again)}
    whole |= {} if file is None else read_job(file)
    given = {
        name: value
        for name, value in asked.items()
        if (source := context.get_parameter_source(name)) and source.name != "DEFAULT"
    }
    words = command or whole.pop("command", None)
    whole.pop("command", None)
    if not words:
        kept = f" ({again}'s command is not kept in full)" if again else ""
        raise UserError(f"give what to run, after `--`, or a --file with a command{kept}")
    whole = {**asked, **whole, **given}
    array = array or whole.pop("array", None)
    whole.pop("array", None)
    whole["workdir"] = workdir or whole.get("workdir") or os.getcwd()
    whole["environment"] = {**whole.get("environment", {}), **_environment(env or [])}
    if again and not whole["environment"]:
        typer.echo(f"{again}'s --env, if it had any, is not kept: give it again.", err=True)
    if show:
        _refuse_misfits(words, whole)
        typer.echo(written(words, whole, array), nl=False)
        return
    if whole["progress"]:
        whole["amounts"] = of_files(words, Path(whole["workdir"]))
    if preview:
        _preview(service, words, whole)
        return
    with service.client() as client:
        if array:
            job = client.submit_array(words, array, key=key, **whole)
        else:
            job = client.submit(words, key=key, **whole)
    if service.as_json:
        print_json(job)
    else:
        typer.echo(job["array_id" if array else "job_id"])


def _refuse_misfits(words: list[str], whole: Mapping[str, Any]) -> None:
    """Raise UserError for a value that the service would refuse whatever its cluster is."""
    from pydantic import ValidationError

    from scheduler.service.api.problems import misfit
    from scheduler.service.api.schemas import SubmitRequest

    try:
        SubmitRequest.model_validate({"command": words, **whole})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(misfit({**first, "loc": ("body", *first["loc"])})) from None


def _preview(service: Service, words: list[str], whole: Mapping[str, Any]) -> None:
    from features.codec import decode
    from scheduler.explain.effect import NewJob
    from scheduler.explain.new_job import sentences

    with service.client() as client:
        answer = client.eta_of(words, **whole)
    if service.as_json:
        print_json(answer)
        return
    for line in sentences(decode(NewJob, answer)):
        typer.echo(line)


def _asked_by(service: Service, job_id: str) -> Mapping[str, Any]:
    """Return what an earlier job asked for, and its working folder, by the names of the
    client's arguments. Its command, environment and priority, and the jobs that it waited for,
    are left out."""
    with service.client() as client:
        job = client.job(job_id)
    left = {"priority", "after", "after_any"}
    names = [name for name in (*FIELDS, "workdir") if name not in left]
    return {name: job[name] for name in names if job.get(name) not in (None, "")}


def _environment(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for name, sign, _ in pairs:
        if not name or not sign:
            raise UserError(f"--env {name}: give NAME=VALUE")
    return {name: value for name, _, value in pairs}
