"""`pellucid compare`: several policies, the same world, paired over seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cluster import KEEP_HELP, WHERE_HELP, Keep, place, question_of
from pipeline.commands.simulate import (
    BUNDLE,
    CLUSTER,
    COMPRESS,
    DURATIONS,
    JSON,
    QUIRKS,
    SINCE,
    TRACK,
    seconds,
)
from pipeline.console import bar, table, user_errors
from pipeline.errors import UserError

if TYPE_CHECKING:
    from pipeline.worlds import Scenario
    from pipeline.worlds.workloads.scenario import AllocationScenario


def compare(
    trace: Annotated[
        Path | None,
        typer.Option(help="Ingested dataset; for a track, the folder of its data."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            help="Instead of a trace, a workload for policies that resize jobs, set batch sizes or "
            "choose GPU types: pollux:CSV, gavel:TRACE or tiresias:CSV."
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated. Default: fifo,sjf,srtf,qssf,lucid; on a workload: all that it "
            "has the statistics for."
        ),
    ] = None,
    cluster: CLUSTER = None,
    track: TRACK = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1 (jittered replays).")] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="Start from this seed instead.")] = 0,
    durations: DURATIONS = None,
    compress: COMPRESS = 1.0,
    bundle: BUNDLE = None,
    quirks: QUIRKS = True,
    since: SINCE = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes: short for local:N.")] = 1,
    where: Annotated[
        str | None, typer.Option(help="Where the runs are made: " + WHERE_HELP)
    ] = None,
    keep: Annotated[Path | None, typer.Option(help=KEEP_HELP, metavar="FOLDER")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for compare.json and the first seed's runs, one per policy."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Compare policies side by side, on the same inputs and seeds.

    Examples:

      pellucid compare --trace ../shared/data/venus --track published --policies fifo,lucid

      pellucid compare --trace ../shared/data/venus --track honest --seeds 16 --workers 2 --json

      pellucid compare --trace ../shared/data/venus --track honest --seeds 16 --where slurm:8 \\
        --keep ~/honest16

      pellucid compare --workload pollux:../shared/data/pollux/workloads/workload-6.csv \\
        --policies pollux,tiresias,drf
    """
    with user_errors():
        from pipeline import runs

        make: Callable[[int], runs.World]
        if workload is not None:
            given = (trace, cluster, track, durations, bundle, since)
            if any(value is not None for value in given) or compress != 1.0 or not quirks:
                raise UserError("--workload brings its own world: only --policies, --seeds, --out")
            names, make = _allocating(workload, policies)
        elif trace is None:
            raise UserError("compare needs --trace PATH, or --workload KIND:PATH")
        else:
            from scheduler.policies import POLICIES

            names = _names(policies or "fifo,sjf,srtf,qssf,lucid", POLICIES)
            make = partial(
                _scenario,
                trace,
                cluster,
                track,
                durations,
                compress,
                bundle,
                quirks,
                seconds(since),
            )
        chosen = range(first_seed, first_seed + seeds)
        at = place(where, workers)
        kept = None
        if keep is not None:
            files = [path for path in (trace, cluster, bundle) if path is not None]
            if workload is not None:
                files = [Path(workload.partition(":")[2])]
            options = (workload, track, durations, compress, quirks, since, out, first_seed)
            kept = Keep(keep, question_of(options, files))
        with bar("comparing", len(names) * seeds, as_json) as step:
            done = 0

            def tick(_: runs.Task) -> None:
                nonlocal done
                done += 1
                step(done)

            result = runs.compare(make, names, chosen, out=out, where=at, keep=kept, progress=tick)
    if as_json:
        typer.echo(json.dumps(result))
        return
    rows = [
        {key.removesuffix("_mean"): value for key, value in row.items() if not key.endswith("_sd")}
        for row in result["policies"]
    ]
    table(f"{result['track']}, {seeds} seed{'s' if seeds > 1 else ''}", rows)
    if seeds > 1:
        for pair in result["paired"]:
            typer.echo(
                f"{pair['policy']} - {pair['against']}: "
                f"{pair['avg_jct_s_difference_mean']:+,.0f} s "
                f"+- {pair['avg_jct_s_difference_se']:,.0f} (average JCT, paired)"
            )
    if out is not None:
        typer.echo(f"The runs are in {out}. A page of it: pellucid report --compare {out}")


def _names(policies: str, known: Iterable[str]) -> list[str]:
    names = [name.strip() for name in policies.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UserError(f"--policies {name}: use some of {', '.join(known)}")
    if len(set(names)) < len(names):
        raise UserError(f"--policies {policies}: a policy is named twice")
    if not names:
        raise UserError(f"--policies is empty; use some of {', '.join(known)}")
    return names


def _allocating(
    workload: str, policies: str | None
) -> tuple[list[str], Callable[[int], AllocationScenario]]:
    """The policies to run on a workload, each of which has there what it needs."""
    from pipeline.worlds.workloads.scenario import open_scenario, runnable
    from scheduler.peers.registry import ALLOCATING

    scenario = open_scenario(workload, 0)
    if policies is None:
        return runnable(scenario.workload), partial(open_scenario, workload)
    names = _names(policies, ALLOCATING)
    for name in names:
        scenario.check(name)
    return names, partial(open_scenario, workload)


def _scenario(
    trace: Path,
    cluster: Path | None,
    track: str | None,
    durations: str | None,
    compress: float,
    bundle: Path | None,
    quirks: bool,
    since: float | None,
    seed: int,
) -> Scenario:
    from pipeline.worlds import open_scenario

    return open_scenario(
        trace,
        cluster=cluster,
        track=track,
        seed=seed,
        durations=durations,
        compress=compress,
        bundle=bundle,
        quirks=quirks,
        since=since,
    )
