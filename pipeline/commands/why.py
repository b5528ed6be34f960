"""`pellucid why`: prints the service's explanation why a job waits, runs or has ended."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import UserError
from pipeline.options import CODES, spread
from pipeline.printed.why import (
    after_lines,
    lines_of,
    node_lines,
    sooner_lines,
    tree_lines,
    waits_in_slurm,
)
from pipeline.remote import Service, print_json

if TYPE_CHECKING:
    from features.codec import Json
    from scheduler.service.client import Client

NODES = Annotated[
    bool,
    typer.Option(
        "--nodes", help="On a Slurm site: print for each node what keeps the job from it."
    ),
]
JOB = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="Id of the job; on a Slurm site, Slurm's job id."),
]
ALL = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Instead of one job: count your waiting jobs (an operator's: all) by the cause for "
        "which they wait.",
    ),
]
FULL = Annotated[
    bool, typer.Option("--full", help="Print the whole answer, not only its most important parts.")
]
TREE = Annotated[
    bool,
    typer.Option(
        "--tree", help="Print the answer as a tree of names and values, without sentences."
    ),
]


@spread
def why(
    service: Service,
    job: JOB = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Explain only why this other job of yours goes, or went, before the job.",
        ),
    ] = None,
    codes: CODES = False,
    full: FULL = False,
    tree: TREE = False,
    nodes: NODES = False,
    every: ALL = False,
) -> None:
    """Say why a job waits (or runs where it does, or how it ended), and when it will start.

    The answer says what keeps the job from starting now, which jobs overtook it and why, which
    events moved its expected start by much, and which change to the job would let it start
    soonest. Each such change was tried on a copy of the scheduler; if you make it, the job
    keeps its submission time and the time that it has waited. --full adds how the place in line
    is computed, when GPUs will be kept free for the job, the other changes that would help, and
    the changes that were not tried.

    For a job array, the answer is about its first waiting task; if none waits, about its first
    running one. --all also lists the running jobs whose end would let most waiting jobs start.

    Examples:

      pellucid why 7njjr7qk87fm

      pellucid why 4711_3 --after 4715

      pellucid why --all
    """
    if every == (job is not None):
        raise UserError("give a JOB, or --all")
    if job is None:
        _print_all(service)
    elif nodes:
        _print_nodes(service, job)
    else:
        print_why(service, job, after=after, codes=codes, full=full, tree=tree)


def _print_all(service: Service) -> None:
    from features.codec import decode
    from pipeline.printed.causes import lines
    from scheduler.explain.causes import Causes
    from scheduler.explain.share import Shares, sentences

    with service.client() as client:
        answer, share = client.causes(), client.share()
    if service.as_json:
        print_json(answer | {"share": share})
    else:
        _print(lines(decode(Causes, answer)) + sentences(decode(Shares, share)))


def _print_nodes(service: Service, job: str) -> None:
    from features.codec import decode
    from scheduler.explain.effect import ByNode

    with service.client() as client:
        answer = client.by_node(job)
        now = client.now()
    print_json(answer) if service.as_json else _print(node_lines(decode(ByNode, answer), now))


def print_why(
    service: Service,
    job: str,
    *,
    after: str | None = None,
    codes: bool = False,
    full: bool = False,
    tree: bool = False,
) -> None:
    """Print the service's explanation of a job.

    Args:
        after: id of another job: explain why the job is after this one.
        codes: also print the codes of reasons.
        full: print everything, not only what matters most.
        tree: print all findings as a tree.
    """
    from features.codec import decode
    from scheduler.explain.effect import Sooner
    from scheduler.explain.effect_words import task_words
    from scheduler.explain.explanation import Compared, Explanation
    from scheduler.explain.tree import tree_of

    with service.client() as client:
        if after is not None:
            compared = client.after(job, after)
            lines = after_lines(decode(Compared, compared))
            print_json(compared) if service.as_json else _print(lines)
            return
        answer = client.explain(job, analyse=True)
        explained = decode(Explanation, answer)
        now, task = client.now(), explained.job_id
        sooner = client.sooner(task) if waits_in_slurm(explained) else None
        parts = _others(client, job, task)
    if service.as_json:
        more = {"sooner": sooner} if sooner is not None else {}
        print_json(answer | more | ({"parts": parts} if parts else {}))
        return
    if which := task_words(job, task, len(parts) + 1 if parts else 0, explained.phase):
        typer.echo(which)
    if tree:
        _print(tree_lines(tree_of(explained)))
        return
    _print(lines_of(explained, now, codes=codes, full=full))
    _print(sooner_lines(decode(Sooner, sooner)) if sooner is not None else [])
    for part in parts:
        _print(lines_of(decode(Explanation, part), now, codes=codes, full=full))


def _others(client: Client, job: str, task: str) -> list[Json]:
    """Return the explanations of the other components of a heterogeneous job; [] if `job` names a
    single job or component. `task` is the id of the component that was explained."""
    from scheduler.service.client import ServiceError

    if task != f"{job}+0":
        return []
    found: list[Json] = []
    with suppress(ServiceError):  # there is no further one
        while True:
            found.append(client.explain(f"{job}+{len(found) + 1}"))
    return found


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
