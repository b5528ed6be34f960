"""`pellucid replay`: replays a site's sacct dump under other policies, and writes a report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features.codec import Json
from pipeline.cluster import WHERE_HELP, Keep, place, question_of
from pipeline.console import bar, user_errors
from pipeline.errors import UserError
from pipeline.options import JSON_NO_TABLE, KEEP, LOOP_HELP, SET, WORKERS, spread
from pipeline.replay.causes import CAPACITY

if TYPE_CHECKING:
    from pipeline.replay.runs import Variant
    from pipeline.replay.site import Site

MOST_JOBS = 200_000
UNTRAINED = (
    "Packing is left out, since this install brings none of the libraries that learn which pairs "
    "to pack (pip install 'pellucid[train]')."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `pellucid replay`."""

    sacct: Annotated[
        Path,
        typer.Option(
            help="File with the output of sacct -X -a -D -P -o ALL. docs/replay.md lists the "
            "columns that are used, if you want to leave some out."
        ),
    ]
    out: Annotated[Path, typer.Option(help="HTML file to write the report to.", metavar="FILE")] = (
        Path("savings.html")
    )
    cluster: Annotated[
        Path | None,
        typer.Option(
            help="Cluster file (YAML: nodes, GPUs, policy). Its virtual clusters must be named "
            "like the partitions in sacct's output. Left out: from --site or --nodes, otherwise "
            "inferred from the jobs."
        ),
    ] = None
    nodes: Annotated[
        Path | None,
        typer.Option(
            help="File with the list of nodes, as printed by scontrol show nodes or by sinfo -N -o "
            "'%N %P %G'."
        ),
    ] = None
    site: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "File with what Slurm prints about its nodes and settings: scontrol show nodes, "
                "partition, config, licenses; sacctmgr -P show assoc, qos, reservation "
                "(docs/replay.md has the commands). All in one file, or repeat the option."
            ),
            metavar="FILE",
        ),
    ] = None
    cpu_jobs: Annotated[
        bool | None,
        typer.Option(
            "--cpu-jobs/--no-cpu-jobs",
            help="When Slurm's own schedule is replayed, let jobs without GPUs take CPUs and "
            "memory, too. Their own waits are not reported. Default: yes, if --site lists the "
            "nodes and there are at most 5,000 jobs.",
            show_default=False,
        ),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            help="Time zone of the times in sacct's output, e.g. Europe/Oslo. Default: UTC."
        ),
    ] = None
    last_days: Annotated[
        float | None,
        typer.Option(
            help="Replay only the jobs that were submitted in this number of last days. Default: "
            "all; of more than 50,000 jobs, the last days with at most that many."
        ),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of replays of each policy; every one but the first moves the submit times "
            "by up to 1 s, to show what chance does. Default: 16; of more than 25,000 jobs, 4.",
            min=1,
        ),
    ] = None
    workers: WORKERS = 1
    where: Annotated[
        str | None, typer.Option(help="Where the replays are computed: " + WHERE_HELP)
    ] = None
    loop: Annotated[str, typer.Option(help=LOOP_HELP)] = "open"
    policy: Annotated[
        str | None,
        typer.Option(
            help=(
                "Policy to which --set applies: a name from the list below, or a class of your own "
                "as module:Class. It is replayed beside the usual ones, if it is not one of them. "
                "Default: that of the cluster file, otherwise pellucid."
            )
        ),
    ] = None
    options: SET = None
    slurm_with: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Also replay your Slurm with this setting changed: one of SchedulerParameters, "
                "e.g. bf_max_job_test=500, or of slurm.conf, e.g. PriorityMaxAge=7-0. Repeat "
                "the option to change several together."
            ),
            metavar="NAME=VALUE",
        ),
    ] = None
    keep: KEEP = None
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymise",
            help="Replace the names of users, jobs and partitions by hashes, in everything that is "
            "written.",
        ),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress.")] = False
    as_json: JSON_NO_TABLE = False

    @property
    def hush(self) -> bool:
        """Return whether to show no progress: with `--quiet` or `--json`."""
        return self.quiet or self.as_json


@spread
def replay(asked: Asked) -> None:
    """Replay past weeks of your Slurm under other policies, and report who would have waited less
    or more.

    First, Slurm's own schedule is replayed and compared with the recorded starts, as a check. Then
    the report says, for all jobs and by group, how much shorter or longer the waits would have
    been, as 90 % intervals that allow for chance and for errors of the replay. Nothing is stated
    about a group of jobs whose recorded mean wait the check misses by more than a factor of 2. The
    cluster is inferred from the jobs unless it is given. Nothing leaves this machine, and nothing
    need be installed on the cluster.

    Examples:

      sacct -X -a -D -P -S 2026-01-01 -o ALL > dump.txt

      pellucid replay --sacct dump.txt --site site.txt --last-days 28 --workers 4

      pellucid replay --sacct dump.txt --anonymise --json

      pellucid replay --sacct dump.txt --where slurm:16 --keep ~/replays

      pellucid replay --sacct dump.txt --site site.txt --slurm-with bf_max_job_test=1000

      pellucid replay --sacct dump.txt --policy mine.policy:Mine --set patience=3
    """
    with user_errors():
        from features.files import write_whole
        from pipeline.online import TRAINS
        from pipeline.replay.page import render
        from pipeline.replay.runs import cells_of, seeds_for, variants_with
        from pipeline.replay.runs import replay as play

        at = place(asked.where, asked.workers)
        if asked.last_days is not None and not asked.last_days > 0:
            raise UserError(f"--last-days is {asked.last_days:g}; it must be above 0")
        _readable(asked.sacct)
        name, values = _policy(asked)
        kept = None if asked.keep is None else Keep(asked.keep, _question(asked, name, values))
        read = partial(_read, asked)
        known = read() if kept is None else kept.once("site", read)
        variants = variants_with(name, values, len(known.workload.jobs))
        variants = (*variants, *_changed(asked.slurm_with or [], known, variants))
        remarks = list(_remarks(variants, trains=TRAINS))
        known = replace(known.in_loop(asked.loop), notes=[*known.notes, *remarks])
        _few_enough(asked.sacct, len(known.workload.jobs))
        times = seeds_for(known, asked.seeds)
        cells = len(cells_of(variants, times))
        with bar("replaying", cells, asked.hush) as done:
            found = play(known, times, variants=variants, where=at, keep=kept, progress=done)
        found["changed_to"] = asked.slurm_with or []
        if found["bound"]:
            known = replace(known, notes=[*known.notes, found["bound"]])
        write_whole(asked.out, render(known, found))
    if asked.as_json:
        typer.echo(json.dumps(_plain(asked.out, known, found)))
        return
    if known.window["cut"]:
        typer.echo(
            f"Too many jobs to replay whole: the last {known.window['days']:.1f} of "
            f"{known.window['of_days']:.0f} days, {times} times. More: --last-days, --seeds."
        )
    for line in (*remarks, *_summary(found, known.nearer), f"{asked.out} is written."):
        typer.echo(line)


def _question(asked: Asked, name: str, values: Mapping[str, Any]) -> str:
    """Return a digest of everything that the result of one replay depends on: its input files,
    the settings of the policy, and the options that change it."""
    from pipeline.online import TRAINS

    paths = (asked.sacct, asked.cluster, asked.nodes, *(asked.site or []))
    how = (
        asked.timezone,
        asked.last_days,
        asked.anonymise,
        asked.cpu_jobs,
        asked.loop,
        asked.slurm_with,
    )
    return question_of((*how, name, values, TRAINS), [path for path in paths if path is not None])


def _read(asked: Asked) -> Site:
    from pipeline.replay.runs import MOST_JOBS as UNASKED
    from pipeline.replay.site import DumpOptions, read_site

    size = asked.sacct.stat().st_size
    with TemporaryDirectory() as scratch, bar("reading the dump", size, asked.hush) as done:
        return read_site(
            asked.sacct,
            Path(scratch),
            DumpOptions(
                cluster=asked.cluster,
                nodes=asked.nodes,
                printed=asked.site or [],
                timezone=asked.timezone,
                last_days=asked.last_days,
                most=UNASKED,
                anonymise=asked.anonymise,
                cpu_jobs=asked.cpu_jobs,
            ),
            progress=done,
        )


def _remarks(variants: Sequence[Variant], *, trains: bool) -> Iterator[str]:
    """Yield a sentence for each variant that the replay leaves out, with the reason. `trains` says
    whether the packages for training are installed."""
    from pipeline.replay.runs import MOST_SLURM

    if not trains:
        yield UNTRAINED
    if not any(variant.twin for variant in variants):
        yield (
            f"Slurm's own schedule is not replayed of more than {MOST_SLURM:,} jobs unless "
            "asked for (--policy slurm; --last-days takes fewer): plain backfill stands for it."
        )


def _changed(pairs: Sequence[str], known: Site, variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return the site's own Slurm with the settings `pairs` (NAME=VALUE) as a variant, in a tuple;
    () if `pairs` is empty.

    Raises UserError if an entry is not NAME=VALUE, if it names a setting that replays do not
    model, or if Slurm's own schedule is not replayed."""
    from scheduler.slurm.twin.known import REPLAYED, Known, parameter

    if not pairs:
        return ()
    own = next((variant for variant in variants if variant.twin), None)
    if own is None or known.twin is None:
        raise UserError("--slurm-with: Slurm's own schedule is not played; give --policy slurm")
    changed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"--slurm-with {pair}: give NAME=VALUE")
        if key not in REPLAYED and parameter(key) is not Known.MODELLED:
            raise UserError(
                f"--slurm-with {key}: a replay does not have this setting; it has "
                f"{', '.join(REPLAYED)} and what of SchedulerParameters `pellucid slurm modelled` "
                "lists as modelled"
            )
        changed[key] = value
    words = ", ".join(f"{key}={value}" for key, value in changed.items())
    return (
        replace(
            own,
            key="changed",
            short="Slurm, changed",
            title=f"Slurm's own with {words}",
            changed=changed,
        ),
    )


def _few_enough(sacct: Path, jobs: int) -> None:
    if jobs > MOST_JOBS:
        raise UserError(
            f"{sacct}: {jobs:,} jobs to replay; at most {MOST_JOBS:,}: give fewer --last-days"
        )


def _plain(out: Path, known: Site, found: Mapping[str, Any]) -> Json:
    cluster = known.workload.cluster
    return {
        "out": str(out),
        "jobs": known.counts,
        "quarantined": known.quarantined,
        "ran": known.ran,
        "window": known.window,
        "cluster": {
            "vcs": dict(cluster.vcs),
            "gpus": cluster.gpus,
            "gpus_per_node": cluster.gpus_per_node,
            "shape": known.shape,
        },
        "notes": known.notes,
        "missing": known.missing,
        "nearer": known.nearer,
        **{key: value for key, value in found.items() if key != "by_job"},
    }


def _summary(found: Mapping[str, Any], nearer: Sequence[str]) -> Iterator[str]:
    """Yield sentences that sum up a replay: first the comparison with the record, then the
    savings, or why none is stated."""
    from scheduler.explain.words import duration

    test = found["backtest"]
    if test is not None and test["jobs"]:
        now, was = test["avg_wait_replayed_s"], test["avg_wait_recorded_s"]
        what = {v["key"]: v["title"] for v in found["variants"]}[found["against"]]
        what = what[0].upper() + what[1:]
        yield (
            f"{what}, replayed: average wait {duration(now)}, recorded "
            f"{duration(was)}{_ranked(test)}; {test['within_10_min']:.0%} of {test['jobs']:,} jobs "
            "start within 10 minutes of their recorded start."
        )
    if (counted := found["counted"]) is not None and counted["jobs"]:
        yield (
            "In the replay that savings are counted in, where jobs that waited for limits and the "
            f"like come when they started: {duration(counted['avg_wait_replayed_s'])}, recorded "
            f"{duration(counted['avg_wait_recorded_s'])}{_ranked(counted)}."
        )
    hours = sum(row["hours"] for row in found["apart"] if row["cause"] != CAPACITY)
    if hours:
        yield (
            f"Not a scheduler's to reduce: {hours:,.1f} job-hours of waiting for limits, holds, "
            "other jobs and nodes that were down."
        )
    yield from _changed_slurm(found)
    if found["refused"]:
        yield from found["refused"]
        yield "No saving is stated."
        if nearer:
            yield f"What would bring the replay nearer: {'; '.join(nearer)}."
        return
    for doubt in found["misfit"]:
        yield f"Doubtful: {doubt}"
    yield from _waits(found)
    yield f"As recorded: {duration(found['recorded']['avg_wait_s'])}."
    yield from _claims(found)
    if found["misfit"] and nearer:
        yield f"What would narrow these: {'; '.join(nearer)}."
    if found["bound"]:
        yield found["bound"]


def _claims(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about what each variant saves compared with the variant that savings are
    counted against, and about the partitions for which nothing is stated."""
    from pipeline.replay.claims import COVERED

    titles = {variant["key"]: variant["title"] for variant in found["variants"]}
    yield (
        f"Against {titles[found['against']]}, mean wait ({COVERED:.0%} intervals, over chance and "
        "what a replay may have wrong):"
    )
    played = {key: title for key, title in titles.items() if key != found["against"]}
    yield from _savings(found["claims"], played)


def _savings(stated: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Iterator[str]:
    from scheduler.explain.words import duration

    for key, saving in stated[0]["savings"].items():
        less, more = duration(saving["high_s"]), duration(-saving["low_s"])
        words = {
            "less": f"{duration(saving['low_s'])} to {less} less",
            "more": f"{duration(-saving['high_s'])} to {more} longer",
            "unclear": f"between {less} less and {more} longer",
        }
        yield (
            f"  {titles[key]}: {words[saving['which']]}; shorter in {saving['shorter']} of "
            f"{saving['draws']} replays"
        )
    for key, title in titles.items():
        if key not in stated[0]["savings"]:
            yield f"  {title}: nothing is stated; more than one in ten jobs never start in a replay"
    for claim in stated:
        if claim["by"] == "vc" and claim["refused"]:
            yield f"Partition {claim['name']} is left out: {claim['refused']}."


def _changed_slurm(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about what other settings of Slurm would have changed; none without
    `--slurm-with`."""
    stated = found["changed"]
    if not found["changed_to"]:
        return
    words = f"Your Slurm with {', '.join(found['changed_to'])}"
    if not stated or stated[0]["by"] or stated[0]["refused"]:
        yield f"{words}: nothing is stated; the replay of your Slurm is too far from the record."
        return
    yield f"{words}, against your Slurm as it was, mean wait of all jobs it knows the causes of:"
    yield from _savings(stated, {"changed": words})


def _waits(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each variant with its average wait, and with its long waits if they
    are over a minute longer than in the variant that savings are counted against."""
    from scheduler.explain.words import duration

    base = next((v for v in found["variants"] if v["key"] == found["against"]), None)
    for variant in found["variants"]:
        worse = [
            f"{what} {duration(variant[key])} ({duration(base[key])})"
            for key, what in (("p99_wait_s", "99 % wait less than"), ("longest_wait_s", "longest"))
            if base is not None and variant[key] > base[key] + 60
        ]
        than = f"; worse than {base['title']}: {', '.join(worse)}" if base and worse else ""
        yield f"{variant['title']}: average wait {duration(variant['avg_wait_s'])}{than}"


def _ranked(test: Mapping[str, Any]) -> str:
    rank = test["rank_correlation"]
    return "" if rank is None else f", rank correlation {rank:.2f}"


def _policy(asked: Asked) -> tuple[str, Json]:
    """Return (name of the policy, its settings): that of `--policy`, otherwise of the cluster
    file, otherwise `pellucid`. Its settings are those in the cluster file, if that names the
    policy, overridden by `--set`."""
    from pipeline.worlds.cluster_file import DEFAULT_POLICY, read_cluster
    from pipeline.worlds.policy_options import given, over

    file = read_cluster(asked.cluster) if asked.cluster is not None else None
    name = asked.policy or (file.policy if file is not None else DEFAULT_POLICY)
    written = file.settings.plain() if file is not None and file.policy == name else {}
    return name, over(written, given(name, asked.options or []))


def _readable(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"--sacct {path}: is a folder; give the file that sacct wrote")
    if not path.exists():
        raise UserError(f"--sacct {path}: no such file")
