"""`pellucid simulate`: simulates one policy on one trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features.plain import plain
from pipeline.console import bar, table, user_errors
from pipeline.errors import UserError
from pipeline.options import JSON_NO_TABLE, LOOP_HELP, POLICY, SET, TRACE, World, spread

if TYPE_CHECKING:
    from pipeline.worlds.scenario import Scenario


@spread
def simulate(
    trace: Annotated[Path, TRACE],
    world: World,
    policy: POLICY = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed. 0: submit times as recorded; otherwise, each is moved by up to 60 "
            "s. With --track, the seed also chooses which model and batch size each job trains."
        ),
    ] = 0,
    loop: Annotated[
        str | None,
        typer.Option(help=f"{LOOP_HELP} Default: open; with --track, as the track has it."),
    ] = None,
    options: SET = None,
    site: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "File of what Slurm prints of its nodes and settings (see pellucid replay "
                "--help). Makes --trace be read as output of sacct from that cluster. May be "
                "repeated."
            )
        ),
    ] = None,
    tune_every: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            min=0.1,
            help=(
                "Every DAYS days of the simulation, tune the settings of the policy pellucid on "
                "the jobs that have ended by then, as `pellucid tune --adopt` does."
            ),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write decisions, jobs (Parquet) and a summary (JSON) to. Left out: "
            "nothing is written."
        ),
    ] = None,
    as_json: JSON_NO_TABLE = False,
) -> None:
    """Simulate one policy on a trace (a record of a cluster's jobs). With --out, every decision and
    its reason are recorded.

    Examples:

      pellucid simulate --trace data/trace --cluster my-cluster.yaml --policy lucid

      pellucid simulate --trace ../shared/data/venus --track honest --policy lucid --seed 1 --json

      pellucid simulate --trace data/trace --policy pellucid --set fairness.weight=0.3

      pellucid simulate --trace data/trace --policy pellucid --tune-every 7

      pellucid simulate --trace data/trace --policy my_package.my_policy:MyPolicy

      pellucid simulate --trace dump.txt --site slurm.conf --site dump.cfg

    Then: pellucid explain JOB --run runs/lucid
    """
    with user_errors():
        from pipeline import runs
        from pipeline.pareto import LATE, NO_BOUND_S, POLICY, cost
        from pipeline.worlds.policy_options import given

        policy = policy or _usual(world, site)
        values = given(policy, options or [])
        asked = {**world.options(), "seed": seed, "loop": loop, "settings": {policy: values}}
        scenario = _open(trace, site, asked)
        if tune_every is not None:
            _tune(scenario, policy, tune_every)
        written = {
            name: str(value.resolve()) if isinstance(value, Path) else value
            for name, value in ({"trace": trace} | asked).items()
        } | ({"site": [str(path.resolve()) for path in site]} if site else {})
        written |= {"tune_every": tune_every} if tune_every is not None else {}
        with bar(f"{policy} on {scenario.name}", len(scenario.workload.jobs), as_json) as step:
            figures = runs.run(scenario, policy, out, progress=step, world=written)
        late = figures["late_share"] or 0.0
        if policy == POLICY and late > LATE:
            free = {policy: {**values, "max_wait_s": NO_BOUND_S}}
            with bar("without the bound on waiting", len(scenario.workload.jobs), as_json) as step:
                unbound = _open(trace, site, asked | {"settings": free})
                other = runs.run(unbound, policy, progress=step)
            figures["notes"].append(cost(f"{scenario.loop} loop", late, figures, other))
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


def _usual(world: World, site: Sequence[Path] | None) -> str:
    """Return the policy to simulate if none is named: "slurm" with `--site`, otherwise that of the
    cluster file, or the default."""
    from pipeline.worlds.cluster_file import DEFAULT_POLICY, read_cluster

    if site:
        return "slurm"
    return DEFAULT_POLICY if world.cluster is None else read_cluster(world.cluster).policy


def _tune(scenario: Scenario, policy: str, days: float) -> None:
    """Tune the policy of the scenario every `days` days of simulated time. Raises UserError if the
    policy cannot be tuned, or the number is not valid."""
    from pipeline.pareto import DAY_S, POLICY
    from pipeline.tuning import Tuning

    if policy != POLICY:
        raise UserError(f"--tune-every: only {POLICY} is tuned, not {policy}")
    if not isfinite(days):
        raise UserError(f"--tune-every {days}: give a number of days")
    Tuning(scenario, days * DAY_S, scenario.spec(policy).settings.plain())


def _open(trace: Path, site: Sequence[Path] | None, asked: Mapping[str, Any]) -> Scenario:
    """Return the scenario to simulate (a cluster with its jobs): that of a trace, or, with the
    files `site` of Slurm, that of a dump on the site that they describe."""
    from pipeline.replay.runs import of_files
    from pipeline.worlds import open_scenario

    if not site:
        return open_scenario(trace, **asked)
    own = World().options()
    if other := [name for name, value in own.items() if asked[name] != value]:
        raise UserError(f"--site brings its own cluster and jobs: leave out --{other[0]}")
    ((policy, values),) = asked["settings"].items()
    return of_files(
        dump=trace,
        printed=site,
        policy=policy,
        values=values,
        seed=asked["seed"],
        loop=asked["loop"] or "open",
    )
