"""`pellucid compare`: several policies, the same world, paired over seeds."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.simulate import (
    BUNDLE,
    CLUSTER,
    COMPRESS,
    DURATIONS,
    JSON,
    QUIRKS,
    SINCE,
    TRACE,
    TRACK,
    seconds,
)
from pipeline.console import bar, table, user_errors

if TYPE_CHECKING:
    from pipeline.tracks import Scenario


def compare(
    trace: TRACE,
    policies: Annotated[str, typer.Option(help="Comma-separated.")] = "fifo,sjf,srtf,qssf,lucid",
    cluster: CLUSTER = None,
    track: TRACK = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1 (jittered replays).")] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="Start from this seed instead.")] = 0,
    durations: DURATIONS = None,
    compress: COMPRESS = 1.0,
    bundle: BUNDLE = None,
    quirks: QUIRKS = True,
    since: SINCE = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
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
    """
    with user_errors():
        from pipeline import runs
        from scheduler.policies import POLICIES, UnknownPolicy

        names = [name.strip() for name in policies.split(",") if name.strip()]
        for name in names:
            if name not in POLICIES:
                raise UnknownPolicy(f"--policies {name}: use some of {', '.join(POLICIES)}")
        if len(set(names)) < len(names):
            raise UnknownPolicy(f"--policies {policies}: a policy is named twice")
        if not names:
            raise UnknownPolicy(f"--policies is empty; use some of {', '.join(POLICIES)}")
        make = partial(
            _scenario, trace, cluster, track, durations, compress, bundle, quirks, seconds(since)
        )
        chosen = range(first_seed, first_seed + seeds)
        with bar("comparing", len(names) * seeds, as_json) as step:
            done = 0

            def tick(_: runs.Task) -> None:
                nonlocal done
                done += 1
                step(done)

            result = runs.compare(make, names, chosen, out=out, workers=workers, progress=tick)
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
    from pipeline.tracks import open_scenario

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
