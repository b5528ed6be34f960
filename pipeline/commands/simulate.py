"""`pellucid simulate`: one policy on one trace."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from features.plain import plain
from pipeline.console import bar, table, user_errors

TRACE = Annotated[Path, typer.Option(help="Ingested dataset; for a track, the folder of its data.")]
CLUSTER = Annotated[
    Path | None,
    typer.Option(help="Cluster YAML. Left out: inferred from the trace; tracks bring their own."),
]
TRACK = Annotated[
    str | None,
    typer.Option(
        help="published (the peers' settings, defects and all), honest, honest-closed, "
        "honest-open or philly."
    ),
]
DURATIONS = Annotated[
    str | None,
    typer.Option(
        help="Where predicted durations come from: own (histories, learned online), ga2m (the same "
        "with a model refitted daily), lightgbm (refitted likewise; lightgbm-blended: "
        "mixed with the histories likewise), truth, constant:SECONDS, gpu-count, last (of the same "
        "user; of the virtual cluster, where users are not known), slurm-limit; helios on "
        "traces, ebm and lgb on Venus' tracks. "
        "Default: own (on track published: what each policy had)."
    ),
]
COMPRESS = Annotated[float, typer.Option(help="Multiply submit times (0.9 = a busier month).")]
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
LOOP_HELP = (
    "open (submit times as they are) or closed: a submission at most 15 s (closed:SECONDS) after "
    "an end of the same user in the same virtual cluster waits for that end."
)
POLICY = Annotated[
    str | None,
    typer.Option(
        help="A policy by name, or module:Class. Default: that of the cluster file, else pellucid."
    ),
]
SET = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the policy, e.g. borrowing.lend_s=3600. May be given again.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def simulate(
    trace: TRACE,
    policy: POLICY = None,
    cluster: CLUSTER = None,
    track: TRACK = None,
    seed: Annotated[
        int, typer.Option(help="Of the jitter of submit times and, on tracks, the permutation.")
    ] = 0,
    durations: DURATIONS = None,
    compress: COMPRESS = 1.0,
    loop: Annotated[
        str | None, typer.Option(help=f"{LOOP_HELP} Default: open, or as the track has it.")
    ] = None,
    bundle: BUNDLE = None,
    quirks: QUIRKS = True,
    since: SINCE = None,
    options: SET = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for decisions.parquet, jobs.parquet, summary.json.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Simulate one policy on a trace and record every decision with its reasons.

    Examples:

      pellucid simulate --trace data/trace --cluster my-cluster.yaml --policy lucid

      pellucid simulate --trace ../shared/data/venus --track honest --policy lucid --seed 1 --json

      pellucid simulate --trace data/trace --policy pellucid --set fairness.weight=0.3

      pellucid simulate --trace data/trace --policy my_package.my_policy:MyPolicy

    Then: pellucid explain JOB --run runs/lucid
    """
    with user_errors():
        from pipeline import runs
        from pipeline.worlds import open_scenario
        from pipeline.worlds.cluster_file import DEFAULT_POLICY, read_cluster
        from pipeline.worlds.policy_options import given

        if policy is None:
            policy = read_cluster(cluster).policy if cluster is not None else DEFAULT_POLICY
        values = given(policy, options or [])
        asked: dict[str, Any] = {
            "cluster": cluster,
            "track": track,
            "seed": seed,
            "durations": durations,
            "compress": compress,
            "bundle": bundle,
            "quirks": quirks,
            "since": seconds(since),
            "loop": loop,
            "settings": {policy: values},
        }
        scenario = open_scenario(trace, **asked)
        world = {"trace": trace, **asked}
        kept = {k: str(v.resolve()) if isinstance(v, Path) else v for k, v in world.items()}
        with bar(f"{policy} on {scenario.name}", len(scenario.workload.jobs), as_json) as step:
            figures = runs.run(scenario, policy, out, progress=step, world=kept)
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table(f"{policy} on {scenario.name}", [figures])
    for note in figures["notes"]:
        typer.echo(plain(note))
    if left := runs.not_over([figures]):
        typer.echo(plain(left))
    if left_out := figures["left_out"]:
        typer.echo(f"Left out: {left_out} jobs of the trace that have no duration.")
    if refused := figures["refused"]:
        typer.echo(f"Refused: {refused} jobs that ask for what the cluster does not have.")
    pairs_from = scenario.layout().get("pairs_from")
    if pairs_from and figures["packed_jobs"]:
        typer.echo(f"Which pairs to pack was predicted by {pairs_from}.")
    if out is None:
        typer.echo("Nothing was kept: --out FOLDER keeps every decision, for pellucid explain.")
    else:
        typer.echo(f"Every decision is in {out}. Ask: pellucid explain JOB --run {out}")


def seconds(moment: datetime | None) -> float | None:
    """Seconds since the epoch of a moment given in UTC."""
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()
