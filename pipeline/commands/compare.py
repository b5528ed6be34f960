"""`pellucid compare`: several policies, the same world, paired over seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features.plain import plain
from pipeline.cluster import KEEP_HELP, WHERE_HELP, Keep, place, question_of
from pipeline.commands.simulate import (
    BUNDLE,
    CLUSTER,
    COMPRESS,
    DURATIONS,
    JSON,
    LOOP_HELP,
    QUIRKS,
    SET,
    SINCE,
    TRACK,
    seconds,
)
from pipeline.console import bar, table, user_errors
from pipeline.errors import UserError

if TYPE_CHECKING:
    from pipeline import runs
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
            help="Comma-separated, by name or module:Class. Default: fifo,sjf,srtf,qssf,lucid; on "
            "a workload: all that it has the statistics for."
        ),
    ] = None,
    cluster: CLUSTER = None,
    track: TRACK = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1 (jittered replays).")] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="Start from this seed instead.")] = 0,
    durations: DURATIONS = None,
    compress: COMPRESS = 1.0,
    loop: Annotated[
        str | None,
        typer.Option(help=f"{LOOP_HELP} Default: both side by side, or as the track has it."),
    ] = None,
    bundle: BUNDLE = None,
    quirks: QUIRKS = True,
    since: SINCE = None,
    options: SET = None,
    pareto: Annotated[
        bool,
        typer.Option(
            help="Besides, `pellucid` from a short mean to a short tail: its setting `ageing` at "
            "0, 0.01, 0.05 (the default), 0.3 and 1."
        ),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes: short for local:N.")] = 1,
    where: Annotated[
        str | None, typer.Option(help="Where the runs are made: " + WHERE_HELP)
    ] = None,
    keep: Annotated[Path | None, typer.Option(help=KEEP_HELP, metavar="FOLDER")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for compare.json and the first seed's runs, one per policy."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page with figures to hover, filter and click: that of pellucid report.",
            metavar="FILE",
        ),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Compare policies side by side, on the same inputs and seeds.

    Examples:

      pellucid compare --trace ../shared/data/venus --track published --policies fifo,lucid

      pellucid compare --trace ../shared/data/venus --track honest --seeds 16 --workers 2 --json

      pellucid compare --trace ../shared/data/venus --track honest --seeds 16 --where slurm:8 \\
        --keep ~/honest16

      pellucid compare --trace data/site --policies fifo,easy,pellucid --html page.html

      pellucid compare --workload pollux:../shared/data/pollux/workloads/workload-6.csv \\
        --policies pollux,tiresias-las,drf
    """
    elsewhere = keep is not None or where is not None
    with user_errors(), _recorded(out, html, elsewhere) as folder:
        from pipeline import runs

        worlds: list[Callable[[int], runs.World]]  # one a loop
        bend: partial[list[dict[str, Any]]] | None = None  # pellucid by its knob
        if workload is not None:
            given = (trace, cluster, track, durations, bundle, since)
            if (
                any(value is not None for value in (*given, loop))
                or compress != 1.0
                or not quirks
                or pareto
            ):
                raise UserError(
                    "--workload brings its own world: only --policies, --set, --seeds, --out"
                )
            names, allocating = _allocating(workload, policies, options or [])
            worlds = [allocating]
        elif trace is None:
            raise UserError("compare needs --trace PATH, or --workload KIND:PATH")
        else:
            from pipeline.worlds.policy_options import given_to_all

            names = _names("fifo,sjf,srtf,qssf,lucid" if policies is None else policies)
            make = partial(
                _scenario,
                trace,
                cluster=cluster,
                track=track,
                durations=durations,
                compress=compress,
                bundle=bundle,
                quirks=quirks,
                since=seconds(since),
                settings=given_to_all(names, options or []),
            )
            worlds = _loops(make, loop, track, first_seed)
            bend = partial(_pareto, make, loop, track, range(first_seed, first_seed + seeds))
        chosen = range(first_seed, first_seed + seeds)
        at = place(where, workers)
        kept: list[Keep] = []
        if keep is not None:
            files = [path for path in (trace, cluster, bundle) if path is not None]
            if workload is not None:
                files = [Path(workload.partition(":")[2])]
            asked = (workload, track, durations, compress, quirks, since, out, first_seed)
            kept = [
                Keep(keep, question_of((*asked, *(options or []), loop, number), files))
                for number in range(len(worlds))
            ]
        results = []
        with bar("comparing", len(names) * seeds * len(worlds), as_json) as step:
            done = 0

            def tick(_: runs.Task) -> None:
                nonlocal done
                done += 1
                step(done)

            for number, world in enumerate(worlds):
                results.append(
                    runs.compare(
                        world,
                        names,
                        chosen,
                        out=folder / "closed" if folder is not None and number else folder,
                        where=at,
                        keep=kept[number] if kept else None,
                        progress=tick,
                    )
                )
        _page(html, folder, trace)
        points = bend(at) if pareto and bend is not None else []
    if as_json:
        nested = {"closed": results[1]} if len(results) > 1 else {}
        curve = {"pareto": points} if pareto else {}
        typer.echo(json.dumps({**results[0], **nested, **curve}))
        return
    _print(results)
    if points:
        table("pellucid, from a short mean to a short tail", points, of="ageing")
    _print_where(html, out, results)


def _print_where(html: Path | None, out: Path | None, results: Sequence[dict[str, Any]]) -> None:
    if html is not None:
        of = f" (of the {results[0]['loop']} loop)" if len(results) > 1 else ""
        typer.echo(f"The page is {html}{of}.")
    elif out is not None:
        typer.echo(f"The runs are in {out}. A page of it: pellucid report --compare {out}")


@contextmanager
def _recorded(out: Path | None, html: Path | None, elsewhere: bool) -> Iterator[Path | None]:
    """Where the runs are recorded: as asked, else for a page's sake in a folder that goes again."""
    if out is not None or html is None:
        yield out
        return
    if elsewhere:
        raise UserError("--html with --where or --keep needs --out, a folder for the runs")
    with TemporaryDirectory() as scratch:
        yield Path(scratch)


def _page(html: Path | None, runs: Path | None, trace: Path | None) -> None:
    """The report on the runs; on the trace, too, where it is a dataset."""
    if html is None:
        return
    from features.files import write_whole
    from pipeline.report.build import Inputs, build
    from pipeline.traces.dataset import SUMMARY

    dataset = trace if trace is not None and (trace / SUMMARY).is_file() else None
    write_whole(html, build(Inputs(compare=runs, trace=dataset)).html)


def _print(results: Sequence[dict[str, Any]]) -> None:
    """One table: of every policy a row for each loop, side by side."""
    rows = [
        {key.removesuffix("_mean"): value for key, value in row.items() if not key.endswith("_sd")}
        | {"loop": result["loop"]}
        for of_policy in zip(*([(r, row) for row in r["policies"]] for r in results), strict=True)
        for result, row in of_policy
    ]
    seeds = len(results[0]["seeds"])
    table(f"{results[0]['track']}, {seeds} seed{'s' if seeds > 1 else ''}", rows)
    for note in dict.fromkeys(note for result in results for note in result["notes"]):
        typer.echo(plain(note))
    if seeds == 1:
        return
    for result in results:
        for pair in result["paired"]:
            typer.echo(
                f"{pair['policy']} - {pair['against']}: "
                f"{pair['avg_jct_s_difference_mean']:+,.0f} s "
                f"+- {pair['avg_jct_s_difference_se']:,.0f} "
                f"(mean JCT, paired, {result['loop']} loop)"
            )


def _pareto(
    make: partial[Scenario], loop: str | None, track: str | None, seeds: range, where: str
) -> list[dict[str, Any]]:
    """What `pellucid` does at other settings of its knob, in the same worlds."""
    from pipeline.pareto import curve

    def worlds(settings: Mapping[str, Any]) -> list[Callable[[int], runs.World]]:
        return _loops(partial(make, settings=settings), loop, track, seeds[0])

    return curve(worlds, make.keywords["settings"], seeds, where)


def _loops(
    make: Callable[..., Scenario], loop: str | None, track: str | None, first_seed: int
) -> list[Callable[[int], runs.World]]:
    """The loop that was asked for or the track has, else the open and the closed one; the open one
    alone where no submission answers anything."""
    if loop is not None or track in ("published", "honest-closed"):
        return [partial(make, loop=loop)]
    open_, closed = partial(make, loop="open"), partial(make, loop="closed")
    return [open_, closed] if closed(first_seed).workload.after else [open_]


def _names(policies: str) -> list[str]:
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if len(set(names)) < len(names):
        raise UserError(f"--policies {policies}: a policy is named twice")
    if not names:
        raise UserError("--policies is empty; name some, separated by commas")
    return names


def _allocating(
    workload: str, policies: str | None, options: Sequence[str]
) -> tuple[list[str], Callable[[int], AllocationScenario]]:
    """The policies to run on a workload, each of which has there what it needs."""
    from pipeline.worlds.policy_options import given_to_all
    from pipeline.worlds.workloads.scenario import open_scenario, runnable
    from scheduler.peers.registry import peer_named

    plain = open_scenario(workload, 0)
    names = runnable(plain.workload) if policies is None else _names(policies)
    settings = given_to_all(names, options, peer_named)
    scenario = replace(plain, settings=settings)
    for name in names:
        scenario.check(name)
    return names, partial(open_scenario, workload, settings=settings)


def _scenario(trace: Path, seed: int, **options: Any) -> Scenario:
    from pipeline.worlds import open_scenario

    return open_scenario(trace, seed=seed, **options)
