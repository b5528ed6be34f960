"""`pellucid top`: shows the cluster and a user's jobs, updated continuously."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from features.codec import decode
from pipeline.options import ONE_VC, spread
from pipeline.printed import jobs as printed
from pipeline.remote import Service, print_json
from scheduler.service.log.store.rows import JobRow, VcLoad

if TYPE_CHECKING:
    from rich.console import RenderableType

    from features.codec import Json
    from scheduler.service.client import Client

BAR = 30  # columns


class Look(TypedDict):
    """A look: the state of the cluster and its jobs at one time, as the service sends it."""

    now: float
    vcs: list[Json]
    jobs: list[Json]


@spread
def top(
    service: Service,
    vc: ONE_VC = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two updates.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print the cluster and its jobs once, and exit.")
    ] = False,
) -> None:
    """Watch how busy each virtual cluster (nodes with a queue of their own) is, and your jobs; an
    operator sees all jobs. Ctrl-C ends it.

    Example:

      pellucid top --vc vision
    """
    import sys

    from rich.console import Console
    from rich.live import Live

    with service.client() as client:
        looks = _looks(client, vc)
        if service.as_json:
            print_json(next(looks))
            return
        console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
        if once or not sys.stdout.isatty():
            console.print(drawn(next(looks)))
            return
        with Live(drawn(next(looks)), console=console, screen=True, auto_refresh=False) as live:
            try:
                for look in looks:
                    live.update(drawn(look), refresh=True)
                    time.sleep(every)
            except KeyboardInterrupt:
                return


def _looks(client: Client, vc: str | None) -> Iterator[Look]:
    """Yield looks (the present state of the cluster and of at most 40 jobs that are not over)
    without end, each read from the service when it is asked for."""
    while True:
        cluster = client.cluster()
        vcs = [one for one in cluster["vcs"] if vc in (None, one["vc"])]
        live = (job for job in client.jobs(vc=vc) if job["phase"] not in printed.OVER)
        yield {"now": cluster["now"], "vcs": vcs, "jobs": list(islice(live, 40))}


def drawn(look: Look) -> RenderableType:
    """Return a look, drawn for a terminal."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    load = Table(box=None, pad_edge=False)
    for heading in ("VC", "GPUS BUSY", "", "RUNNING", "WAITING"):
        load.add_column(heading, justify="left" if heading in ("VC", "GPUS BUSY") else "right")
    for one in decode(list[VcLoad], look["vcs"]):
        busy = one.gpus - one.free - one.closed
        filled = round(BAR * busy / one.gpus) if one.gpus else 0
        bar = f"[green]{'█' * filled}[/green][dim]{'░' * (BAR - filled)}[/dim]"
        lent = f" +{one.profiling} for profiling" if one.profiling else ""
        closed = f", {one.closed} closed" if one.closed else ""
        counts = f"{busy}/{one.gpus}{closed}{lent}", str(one.running), str(one.waiting)
        load.add_row(escape(one.vc), bar, *counts)
    jobs = decode(list[JobRow], look["jobs"])
    return Group(load, "", Text("\n".join(printed.lines(jobs, look["now"]))))
