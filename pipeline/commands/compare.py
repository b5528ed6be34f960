"""`pellucid compare`: runs several policies in the same world, and compares them seed by seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from features.plain import plain
from pipeline.cluster import WHERE_HELP, Keep, place, question_of
from pipeline.console import bar, table, user_errors
from pipeline.errors import UserError
from pipeline.options import JSON_NO_TABLE, KEEP, LOOP_HELP, SET, TRACE, WORKERS, World, spread
from pipeline.pareto import Point

if TYPE_CHECKING:
    from pipeline import runs
    from pipeline.worlds import Scenario


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `pellucid compare`, without those that describe the world (the cluster and its
    jobs) in which policies are compared."""

    trace: Annotated[Path | None, TRACE] = None
    workload: Annotated[
        str | None,
        typer.Option(
            help="Instead of --trace: a file of jobs with the measurements that policies need "
            "which resize jobs, set batch sizes or choose GPU types. pollux:FILE, gavel:FILE or "
            "tiresias:FILE."
        ),
    ] = None
    policies: Annotated[
        str | None,
        typer.Option(
            help="Policies, separated by commas: names from the lists below, or classes of your "
            "own as module:Class. Default: fifo, sjf, srtf, qssf and lucid; with --workload, all "
            "for which it has the measurements.",
            show_default=False,
        ),
    ] = None
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of simulations of each policy. That with seed 0, usually the first, keeps "
            "the recorded submit times; the others move each by up to 60 s, to show what chance "
            "does.",
        ),
    ] = 1
    first_seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Random seed of the first simulation; the others count up from it.",
        ),
    ] = 0
    loop: Annotated[
        str | None,
        typer.Option(
            help=f"{LOOP_HELP} Default: both, in separate rows, if any job of the trace followed "
            "such an end; with --track published or honest-closed, as the track has it."
        ),
    ] = None
    options: SET = None
    pareto: Annotated[
        bool,
        typer.Option(
            help=(
                "Also simulate the policy pellucid with 16 pairs of its settings ageing and "
                "max_wait_s, to show what a shorter mean wait costs those who wait longest."
            )
        ),
    ] = False
    workers: WORKERS = 1
    where: Annotated[
        str | None, typer.Option(help="Where the simulations are computed: " + WHERE_HELP)
    ] = None
    keep: KEEP = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write compare.json to, and the simulation of each policy with the "
            "first seed. Left out: nothing is written."
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the comparison as an HTML page with charts, as pellucid report does.",
            metavar="FILE",
        ),
    ] = None
    as_json: JSON_NO_TABLE = False

    @property
    def chosen(self) -> range:
        """Return the seeds to run: as many as `--seeds`, from `--first-seed` on."""
        return range(self.first_seed, self.first_seed + self.seeds)


class _Played(NamedTuple):
    """The policies to compare, and the worlds to compare them in.

    Attributes:
        worlds: functions that return the world of a seed: one for each loop that is compared
            (open: submit times as recorded; closed: some submissions wait for ends).
        make: returns the world of a trace, given seed and loop; None with `--workload`.
    """

    names: list[str]
    worlds: list[Callable[[int], runs.World]]
    make: partial[Scenario] | None = None


@spread
def compare(asked: Asked, world: World) -> None:
    """Simulate several policies on the same jobs with the same seeds, and compare how long jobs
    wait and take.

    Examples:

      pellucid compare --trace data/trace --policies fifo,easy,pellucid --html page.html

      pellucid compare --trace ../shared/data/venus --track honest --seeds 16 --workers 2 --json

      pellucid compare --trace ../shared/data/venus --track honest --seeds 16 --where slurm:8 \\
        --keep ~/honest16

      pellucid compare --trace ../shared/data/venus --track published --policies fifo,lucid

      pellucid compare --workload pollux:../shared/data/pollux/workloads/workload-6.csv \\
        --policies pollux,tiresias-las,drf
    """
    with user_errors(), _recorded(asked) as folder:
        played = (_on_trace if asked.workload is None else _on_workload)(asked, world)
        at = place(asked.where, asked.workers)
        results = _results(asked, world, played, at, folder=folder)
        _page(asked, folder)
        points = (
            _at_other_settings(asked, world, played.make, where=at, results=results)
            if played.make
            else []
        )
    if asked.as_json:
        nested = {"closed": results[1]} if len(results) > 1 else {}
        curve = {"pareto": points} if asked.pareto else {}
        typer.echo(json.dumps({**results[0], **nested, **curve}))
        return
    _print(results)
    if points:
        named = [
            {**row, "ageing, bound": f"{row['ageing']:g}, {_bound(row['max_wait_s'])}"}
            for row in points
        ]
        table("pellucid, from a short mean to a short tail", named, of="ageing, bound")
    _print_where(asked, results)


def _on_trace(asked: Asked, world: World) -> _Played:
    from pipeline.worlds.policy_options import given_to_all

    if asked.trace is None:
        raise UserError("compare needs --trace PATH, or --workload KIND:PATH")
    names = _names("fifo,sjf,srtf,qssf,lucid" if asked.policies is None else asked.policies)
    settings = given_to_all(names, asked.options or [])
    make = partial(_scenario, asked.trace, settings=settings, **world.options())
    return _Played(names, _loops(make, asked.loop, world.track, asked.first_seed), make)


def _on_workload(asked: Asked, world: World) -> _Played:
    """Return the policies to compare with `--workload`, and the world (cluster and jobs) of that
    workload. Raises UserError if an option was given that cannot be used with `--workload`."""
    from pipeline.systems import systems
    from pipeline.worlds.policy_options import given_to_all

    if world != World() or asked.trace is not None or asked.loop is not None or asked.pareto:
        raise UserError("--workload brings its own world: only --policies, --set, --seeds, --out")
    found = systems()
    scenario = found.open_scenario(str(asked.workload), 0)
    names = scenario.runnable() if asked.policies is None else _names(asked.policies)
    scenario.settings = settings = given_to_all(names, asked.options or [], found.peer_named)
    for name in names:
        scenario.check(name)
    return _Played(names, [partial(found.open_scenario, str(asked.workload), settings=settings)])


def _results(
    asked: Asked, world: World, played: _Played, at: str, folder: Path | None
) -> list[runs.Comparison]:
    """Run the comparison in each of the worlds. Return the results, in the order of the worlds."""
    from pipeline import runs

    done = count(1)
    total = len(played.names) * asked.seeds * len(played.worlds)
    with bar("comparing", total, asked.as_json) as step:
        return [
            runs.compare(
                make,
                played.names,
                asked.chosen,
                out=folder / "closed" if folder is not None and number else folder,
                where=at,
                keep=_kept(asked, world, number),
                progress=lambda _: step(next(done)),
            )
            for number, make in enumerate(played.worlds)
        ]


def _kept(asked: Asked, world: World, number: int) -> Keep | None:
    """Return the folder (`--keep`) in which the results of the world `number` are kept; None
    without `--keep`."""
    if asked.keep is None:
        return None
    files = [path for path in (asked.trace, world.cluster, world.bundle) if path is not None]
    if asked.workload is not None:
        files = [Path(asked.workload.partition(":")[2])]
    how = asked.workload, world.track, world.durations, world.compress, world.quirks, world.since
    readable = (world.readable, world.readable_error) if world.readable else ()
    commands = (True,) if world.readable and world.readable_commands else ()
    run = asked.out, asked.first_seed, *(asked.options or []), asked.loop, number
    return Keep(asked.keep, question_of((*how, *run, *readable, *commands), files))


def _print_where(asked: Asked, results: Sequence[runs.Comparison]) -> None:
    if asked.html is not None:
        of = f" (of the {results[0]['loop']} loop)" if len(results) > 1 else ""
        typer.echo(f"The page is {asked.html}{of}.")
    elif (out := asked.out) is not None:
        typer.echo(f"The runs are in {out}. A page of it: pellucid report --compare {out}")


@contextmanager
def _recorded(asked: Asked) -> Iterator[Path | None]:
    """Yield the folder in which the runs are recorded: that of `--out`, or a temporary one if only
    a page is made; None if none is needed. Raises UserError if options need `--out`."""
    if asked.out is not None or asked.html is None:
        yield asked.out
        return
    if asked.keep is not None or asked.where is not None:
        raise UserError("--html with --where or --keep needs --out, a folder for the runs")
    with TemporaryDirectory() as scratch:
        yield Path(scratch)


def _page(asked: Asked, runs: Path | None) -> None:
    """Write the HTML page about the runs, if `--html` was given. It also describes the trace if
    that is a dataset."""
    if asked.html is None:
        return
    from features.files import write_whole
    from pipeline.report.build import Inputs, build
    from pipeline.traces.dataset import SUMMARY

    trace = asked.trace
    dataset = trace if trace is not None and (trace / SUMMARY).is_file() else None
    write_whole(asked.html, build(Inputs(compare=runs, trace=dataset)).html)


def _print(results: Sequence[runs.Comparison]) -> None:
    """Print the results as one table, with a row for each policy and loop, and their notes.
    With several seeds, also print the difference in mean JCT between each two policies."""
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


def _at_other_settings(
    asked: Asked,
    world: World,
    make: partial[Scenario],
    where: str,
    results: Sequence[runs.Comparison],
) -> list[Point]:
    """Return the figures of `pellucid` at other values of its settings `ageing` and `max_wait_s`,
    in the same worlds; [] without `--pareto`. If many jobs waited past the bound, add a note about
    its cost to the results."""
    from pipeline.pareto import cost_of_bound, curve

    def worlds(settings: Mapping[str, Any]) -> list[Callable[[int], runs.World]]:
        bent = partial(make, settings=settings)
        return _loops(bent, asked.loop, world.track, asked.first_seed)

    settings = make.keywords["settings"]
    cost_of_bound(loops=worlds, settings=settings, seeds=asked.chosen, where=where, results=results)
    return curve(worlds, settings, asked.chosen, where) if asked.pareto else []


def _bound(seconds: float) -> str:
    return "none" if seconds >= 1e12 else f"{seconds / 86_400:g} d"


def _loops(
    make: Callable[..., Scenario], loop: str | None, track: str | None, first_seed: int
) -> list[Callable[[int], runs.World]]:
    """Return functions that make a world (a cluster with its jobs) from a seed, one per loop: the
    loop of the option or of the track, otherwise one with fixed submit times ("open") and one in
    which users wait for ends ("closed"). If no submission of the trace answers an end, only the
    open one is returned."""
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


def _scenario(trace: Path, seed: int, **options: Any) -> Scenario:
    from pipeline.worlds import open_scenario

    return open_scenario(trace, seed=seed, **options)
