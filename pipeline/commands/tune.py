"""`pellucid tune`: chooses settings of the policy on a site's own past."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from features.codec import decode
from pipeline.cluster import WHERE_HELP, place
from pipeline.console import bar, print_table, user_errors
from pipeline.errors import UserError
from pipeline.options import DATABASE, JSON_NO_TABLE, LOOP_HELP, PREVIEW_MOVES, WORKERS, spread
from pipeline.pareto import POLICY
from pipeline.remote import Address, print_change
from pipeline.tuning import LAST_DAYS, TAIL, History, assignments, candidates, evidence, replays
from pipeline.tuning import tune as choose
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.policy_options import given
from scheduler.core.settings import value_of, with_assignments
from scheduler.service.log.header import runnable
from scheduler.service.log.store.rows import Setting

if TYPE_CHECKING:
    from pipeline.tuning import Row, Tuned, Values
    from scheduler.assembly import CoreSpec
    from scheduler.core.settings import ProfilingPartition
    from scheduler.simulation.work import Workload

MOST_JOBS = 50_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `pellucid tune`: the past to replay, and the settings to try."""

    database: DATABASE = None
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Replay the jobs in this folder, which `pellucid ingest` wrote, not a service's "
            "log."
        ),
    ] = None
    sacct: Annotated[
        Path | None,
        typer.Option(
            help="Replay the jobs in this output of sacct, as --sacct of pellucid replay."
        ),
    ] = None
    site: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "With --sacct: files with what Slurm prints about its nodes and settings, as "
                "--site of pellucid replay."
            )
        ),
    ] = None
    cluster: Annotated[
        Path | None,
        typer.Option(
            help=(
                "With --trace or --sacct: cluster file (YAML: nodes, GPUs, policy). Other settings "
                "are compared with those in it. Left out: a cluster inferred from the jobs, and "
                "the default settings."
            )
        ),
    ] = None
    timezone: Annotated[
        str | None, typer.Option(help="With --sacct: time zone of its times. Default: UTC.")
    ] = None
    last_days: Annotated[
        float,
        typer.Option(
            help="Replay the jobs of this number of days before the latest submission.",
            min=1e-3,
        ),
    ] = LAST_DAYS
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME=VALUE ...'", help="Also try these settings, together. May be repeated."
        ),
    ] = None
    tail: Annotated[
        float,
        typer.Option(
            help=(
                "By which share a tried setting may lengthen the p99 wait (which 1 % of the jobs "
                "exceed); 0.1: by 10 %. An increase that is surely above this share less 0.1 is "
                "refused, too."
            )
        ),
    ] = TAIL
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of replays of each tried setting. The first keeps the recorded submit "
            "times; the others move each by up to 60 s.",
        ),
    ] = 2
    loop: Annotated[str, typer.Option(help=LOOP_HELP)] = "closed"
    workers: WORKERS = 1
    where: Annotated[
        str | None, typer.Option(help="Where the replays are computed: " + WHERE_HELP)
    ] = None
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help=(
                "If better settings are found, set them in the running service; its log keeps "
                "the measured difference as the reason."
            ),
        ),
    ] = False
    preview: PREVIEW_MOVES = False
    as_json: JSON_NO_TABLE = False


class _Known(NamedTuple):
    """A past to tune on: jobs, cluster, the present `settings` of the policy `pellucid`, and
    `notes` about the cluster."""

    jobs: Workload
    profiling: ProfilingPartition | None
    settings: Values
    notes: Sequence[str] = ()


@spread
def tune(asked: Asked, address: Address) -> None:
    """Search better settings of the policy pellucid, by replaying your own past jobs.

    The jobs of the last weeks, from the service's log, are replayed with other settings, each
    of which changes one part of the policy; those that help are also tried together. Of those
    that lower the mean JCT (time from a job's submission to its end) on the first half of the
    jobs, and lengthen the p99 wait by no more than --tail allows, the surest is chosen (by the
    upper end of the 95 % interval of the mean JCT). It is then replayed on the second half, and
    recommended only if it does the same there, beyond chance. --adopt sets it in the service,
    and prints the command that undoes it. The other policies that a service can run are
    replayed, too, and one that does better by the same rules is named.

    Examples:

      pellucid tune --database sqlite:///data/service/pellucid.db

      pellucid tune --adopt --preview        # says who would start sooner; sets nothing

      pellucid tune --adopt                  # every night, from cron

      pellucid tune --sacct dump.txt --site site.txt --last-days 28 --workers 4

      pellucid tune --trace data/site --cluster my.yaml --also 'max_wait_s=3e5 ageing=0.1'
    """
    with user_errors():
        if asked.preview and not asked.adopt:
            raise UserError("--preview is of --adopt: give both")
        where = place(asked.where, asked.workers)
        known = _known(asked)
        past = History(
            known.jobs, known.profiling, None if asked.sacct else asked.last_days, asked.loop
        )
        if (jobs := len(past.played)) > MOST_JOBS:
            raise UserError(f"{jobs:,} jobs; at most {MOST_JOBS:,}: give fewer --last-days")
        now = _in_force(address) if asked.adopt else known.settings
        tried = candidates(now, known.jobs, dict(map(_also, asked.also or [])))
        others = [name for name in runnable() if name != POLICY]
        with bar("replaying", replays(tried, asked.seeds, others), asked.as_json) as step:
            found = choose(
                past,
                now,
                tried,
                asked.seeds,
                others=others,
                tail=asked.tail,
                where=where,
                progress=step,
            )
    answer = _adopted(asked, address, found, jobs) if asked.adopt and found["adopt"] else None
    if asked.as_json:
        typer.echo(json.dumps({"jobs": jobs, **found, "change": answer}))
        return
    for line in known.notes:
        typer.echo(line)
    _print(found, jobs)
    typer.echo(found["rivals"])
    if found["policy"]:
        typer.echo(
            f"A log keeps its policy: to run {found['policy']}, begin another with "
            f"pellucid serve --policy {found['policy']} and a new --database."
        )
    if found["adopt"]:
        _print_adoption(asked, found, answer)


def _known(asked: Asked) -> _Known:
    """Return the past to tune on (jobs, cluster and present settings), read from a dump, a trace or
    the service's log. Raises UserError for options that exclude each other."""
    if asked.trace is not None and asked.sacct is not None:
        raise UserError("--trace and --sacct: give one of them")
    if asked.site and asked.sacct is None:
        raise UserError("--site goes with --sacct")
    if asked.sacct is not None:
        return _of_dump(asked, asked.sacct)
    if asked.trace is not None:
        return _of_trace(asked, asked.trace)
    if asked.cluster is not None:
        raise UserError("--cluster goes with --trace or --sacct: a service's log has its own")
    return _of_log(asked)


def _of_dump(asked: Asked, dump: Path) -> _Known:
    from pipeline.replay.runs import ALONE
    from pipeline.replay.site import DumpOptions, read_site

    if not dump.is_file():
        raise UserError(f"--sacct {dump}: no such file")
    options = DumpOptions(
        cluster=asked.cluster,
        printed=asked.site or (),
        timezone=asked.timezone,
        last_days=asked.last_days,
        cpu_jobs=False,
    )
    with TemporaryDirectory() as scratch:
        known = read_site(dump, Path(scratch), options)
    settings = {} if asked.cluster is None else _settings(read_cluster(asked.cluster))
    return _Known(known.arriving(ALONE), None, settings, [known.shape])


def _of_trace(asked: Asked, trace: Path) -> _Known:
    from pipeline.traces import read_dataset
    from pipeline.worlds.plain import workload_of
    from pipeline.worlds.shape import cluster_of
    from scheduler.core.settings import ProfilingPartition

    if not trace.exists():
        raise UserError(f"--trace {trace}: no such file or folder")
    table = read_dataset(trace)
    if asked.cluster is not None:
        file = read_cluster(asked.cluster)
        return _Known(workload_of(table, file.cluster, trace.name), file.profiling, _settings(file))
    table, spec, notes = cluster_of(table)
    return _Known(workload_of(table, spec, trace.name), ProfilingPartition(), {}, list(notes))


def _of_log(asked: Asked) -> _Known:
    """Return the past to tune on from a service's log: its finished jobs, with its present nodes
    and settings. Raises UserError if the log is empty."""
    from pipeline.worlds.plain import workload_of
    from scheduler.service.log.export import finished
    from scheduler.service.log.present import Present
    from scheduler.service.log.store.schema import check
    from scheduler.service.log.store.store import Store, must_exist
    from scheduler.service.settings import read_settings

    database = read_settings(database=asked.database).database
    must_exist(database)
    store = Store(database)
    check(store)
    with store.reading() as connection:
        present = Present.read(store, connection)
    if present is None:
        raise UserError(f"database {database}: its log is empty")
    jobs = workload_of(finished(store), present.nodes.spec(), "the service's log")
    return _Known(jobs, present.spec.profiling, _settings(present.spec))


def _settings(spec: CoreSpec) -> Values:
    """Return the present settings of the policy. Raises UserError if it is not `pellucid`, the
    policy that is tuned."""
    if spec.policy != POLICY:
        raise UserError(f"the policy is {spec.policy}; only {POLICY} is tuned")
    return spec.settings.plain()


def _in_force(address: Address) -> Values:
    """Return the present settings of the running service, by name."""
    with address.client() as client:
        found = decode(list[Setting], client.settings())
    return with_assignments({}, assignments({one.name: one.value for one in found}))


def _also(text: str) -> tuple[str, Values]:
    """Return a candidate that the user gave with `--also`: (`text` as its name, the settings in
    it)."""
    given(POLICY, text.split())
    pairs = (one.partition("=") for one in text.split())
    return text, {name: value_of(value) for name, _, value in pairs}


def _adopted(asked: Asked, address: Address, found: Tuned, jobs: int) -> Values:
    """Change the settings of the running service to those of `found`, or preview the change. Return
    the service's answer."""
    reason = evidence(found, jobs)
    with address.client() as client:
        return client.set_settings(found["settings"], reason=reason, preview=asked.preview)


def _print(found: Tuned, jobs: int) -> None:
    half = f"half of {jobs:,} jobs, {found['seeds']} replays each"
    _table(f"Chosen on the first {half}", found["chosen_on"])
    if found["tested_on"]:
        _table(f"Tested on the second {half}", found["tested_on"])
    typer.echo(found["verdict"])


def _table(title: str, rows: Sequence[Row]) -> None:
    from rich.table import Table

    out = Table(title=title, title_justify="left")
    out.add_column("settings")
    for heading in ("mean JCT, s", "ratio, 95 %", "p99 wait, h", "more, 95 %", "longest, h"):
        out.add_column(heading, justify="right")
    for row in rows:
        low, high = row["p99_more_low_s"] / 3600, row["p99_more_high_s"] / 3600
        out.add_row(
            row["name"],
            f"{row['mean_jct_s']:,.0f}",
            f"{row['jct_ratio']:.3f} [{row['jct_low']:.3f}, {row['jct_high']:.3f}]",
            f"{row['p99_wait_s'] / 3600:,.1f}",
            f"{row['p99_more_s'] / 3600:+,.1f} [{low:+,.1f}, {high:+,.1f}]",
            f"{row['longest_wait_s'] / 3600:,.1f}",
        )
    print_table(out)


def _print_adoption(asked: Asked, found: Tuned, answer: Values | None) -> None:
    settings, before = (shlex.join(assignments(found[of])) for of in ("settings", "before"))
    if answer is None:
        typer.echo(f"To set it: pellucid settings set {settings} (or give --adopt)")
        return
    print_change(dict(answer), "is set")
    if not asked.preview:
        typer.echo(f"To go back: pellucid settings set {before}")
