"""`pellucid simulate`: one policy on one trace."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.console import bar, table, user_errors
from pipeline.errors import UserError

TRACE = Annotated[Path, typer.Option(help="Ingested dataset; for a track, the folder of its data.")]
CLUSTER = Annotated[
    Path | None,
    typer.Option(help="Cluster YAML. Left out: inferred from the trace; tracks bring their own."),
]
TRACK = Annotated[
    str | None,
    typer.Option(
        help="published (the peers' settings, defects and all), honest, honest-open or philly."
    ),
]
DURATIONS = Annotated[
    str | None,
    typer.Option(
        help="Where predicted durations come from: own, oracle, gpus, helios (not on "
        "tracks); on tracks also ebm, lgb. "
        "Default: own (on track published: what each policy had)."
    ),
]
COMPRESS = Annotated[
    float, typer.Option(help="Multiply submit times (0.9 = a busier month). Track honest only.")
]
BUNDLE = Annotated[
    Path | None, typer.Option(help="Exported models to use instead of learning online.")
]
QUIRKS = Annotated[
    bool,
    typer.Option(
        "--quirks/--no-quirks", help="Track published: copy the defects its figures depend on."
    ),
]
SINCE = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
        help="Simulate only jobs submitted from then on (UTC); earlier ones are history.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def simulate(
    trace: TRACE,
    policy: Annotated[
        str,
        typer.Option(
            help="fifo, fifo-skip, easy, sjf, srtf, qssf, tiresias, horus, lucid or pellucid."
        ),
    ],
    cluster: CLUSTER = None,
    track: TRACK = None,
    seed: Annotated[int, typer.Option(help="Seed of the track's permutation and jitter.")] = 0,
    durations: DURATIONS = None,
    compress: COMPRESS = 1.0,
    bundle: BUNDLE = None,
    quirks: QUIRKS = True,
    since: SINCE = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="An option of pellucid that is not its default, e.g. fairness=0.3 "
            "(docs/policy.md lists them). May be given again.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for decisions.parquet, jobs.parquet, summary.json.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Simulate one policy on a trace and record every decision with its reasons.

    Examples:

      pellucid simulate --trace data/trace --cluster pipeline/worlds/clusters/demo.yaml \\
        --policy lucid

      pellucid simulate --trace ../shared/data/venus --track honest --policy lucid --seed 1 --json

    Then: pellucid explain JOB --run runs/lucid
    """
    with user_errors():
        from pipeline import runs
        from pipeline.worlds import open_scenario
        from pipeline.worlds.settings import policy_settings
        from scheduler.policies import POLICIES, UnknownPolicy

        if policy not in POLICIES:
            raise UnknownPolicy(f"--policy {policy}: use one of {', '.join(POLICIES)}")
        asked: dict[str, Any] = {
            "cluster": cluster,
            "track": track,
            "seed": seed,
            "durations": durations,
            "compress": compress,
            "bundle": bundle,
            "quirks": quirks,
            "since": seconds(since),
        }
        settings = policy_settings(options or [])
        if settings and policy != "pellucid":
            raise UserError(f"--set: {policy} has no options; pellucid has")
        scenario = open_scenario(trace, **asked)
        scenario.settings = settings
        world = {"trace": trace, **asked, "settings": settings}
        kept = {k: str(v.resolve()) if isinstance(v, Path) else v for k, v in world.items()}
        with bar(f"{policy} on {scenario.name}", len(scenario.workload.jobs), as_json) as step:
            figures = runs.run(scenario, policy, out, progress=step, world=kept)
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table(f"{policy} on {scenario.name}", [figures])
    if left_out := figures["left_out"]:
        typer.echo(f"Left out: {left_out} jobs of the trace that have no duration.")
    if refused := figures["refused"]:
        typer.echo(f"Refused: {refused} jobs that ask for what the cluster does not have.")
    if out is not None:
        typer.echo(f"Every decision is in {out}. Ask: pellucid explain JOB --run {out}")


def seconds(moment: datetime | None) -> float | None:
    """Seconds since the epoch of a moment given in UTC."""
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()
