"""`pellucid serve-demo`: starts a service with invented jobs, to be watched in a browser."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors


def serve_demo(
    jobs: Annotated[int, typer.Option(min=1, max=5000, help="Number of jobs to submit.")] = 300,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Minutes over which the jobs are submitted.")
    ] = 4.0,
    seed: Annotated[
        int, typer.Option(help="Random seed. With the same seed, the same jobs are submitted.")
    ] = 0,
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="Port on which the service shows its pages.")
    ] = 8401,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policy of the service: a name from the list below, or a class of your own as "
            "module:Class. Default: pellucid."
        ),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            help=("Folder of the demo's database and files. It is emptied at each start.")
        ),
    ] = Path("data/serve-demo"),
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Stop the service when the last job has ended.")
    ] = False,
) -> None:
    """Start a service with fake GPUs, and submit short jobs to it in the names of four invented
    users.

    The models are those in data/bundle, if `make demo` has made them, otherwise those in
    data/prebuilt. Without either, durations are predicted from the jobs that have ended, and no
    jobs share GPUs. Ctrl-C stops the service and its jobs.

    Example: pellucid serve-demo --jobs 600 --minutes 8
    """
    with user_errors():
        from pipeline.demo.plan import plan
        from pipeline.demo.run import BUNDLES, OPERATOR, feed, outcome, service, unfinished
        from pipeline.serving import usable

        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        bundle, refused = usable(BUNDLES)
        for line in refused:
            typer.echo(line)
        if refused:
            typer.echo(f"Durations come from {bundle or 'what has ended so far'}.")
        with service(folder, port, policy) as running:
            typer.echo(f"Open {running.address} and log in with one of these tokens:")
            for who, secret in running.secrets.items():
                sees = "sees everything" if who == OPERATOR else "sees their own jobs"
                typer.echo(f"  {who:9} {secret}  ({sees})")
            typer.echo("Or from another terminal, as one of them:")
            typer.echo(f"  export PELLUCID_SERVER={running.address}")
            typer.echo(f"  export PELLUCID_TOKEN={running.secrets[OPERATOR]}")
            typer.echo("  pellucid top")
            typer.echo(f"{jobs} jobs arrive over {minutes:g} min. Stop with Ctrl-C.")
            sent = feed(running, plan(jobs, minutes, seed), stop.is_set)
            with running.client() as client:
                while not stop.is_set() and (left := len(unfinished(client))):
                    typer.echo(f"all {sent} submitted, {left} not over", err=True)
                    stop.wait(5)
                outcomes = ", ".join(f"{n} {state}" for state, n in outcome(client).items())
                typer.echo(f"{sent} jobs: {outcomes}.")
            if not until_done and not stop.is_set():
                typer.echo(f"The pages stay at {running.address} until Ctrl-C.")
            while not until_done and not stop.is_set():
                time.sleep(0.2)
        typer.echo("Stopped; nothing runs on.")
