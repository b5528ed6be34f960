"""Runs the replays: each variant (a policy with settings) replays the same weeks with slightly
moved submit times, and is compared with the record."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.job import Profile
from pipeline.cluster import HERE, Keep, mapped
from pipeline.online import TRAINS
from pipeline.pareto import LATE, NO_BOUND_S, POLICY, cost
from pipeline.replay.causes import CAPACITY
from pipeline.replay.claims import Claim, claims, refusals
from pipeline.replay.figures import (
    Figures,
    apart,
    backtest,
    by_job,
    by_name,
    ceiling,
    doubts,
    misfit,
    of_record,
    of_replay,
    over_seeds,
)
from pipeline.replay.knowledge import duration_knowledge
from pipeline.replay.site import DumpOptions, Site, read_site
from pipeline.worlds.pairs import SIMULATED, simulated
from pipeline.worlds.policy_options import over
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import jitter
from scheduler.assembly import settings_of
from scheduler.core.estimates import Estimator, HistoriesEstimator
from scheduler.core.policy import Policy
from scheduler.core.settings import ProfilingPartition, flat
from scheduler.policies import POLICIES
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.work import Workload
from scheduler.slurm.twin.passes import het_job

SEEDS = 16
# Chance, of which replays differ: submissions move by as much as a record does not tell (s), and in
# every other one Slurm prefers other nodes of equal weight.
MOVED_S = 1.0
# Many jobs (`Site.many`) get few seeds unless a number is asked for; more than the second, and no
# number of days asked for, only their last days. Three policies learn again and again in
# every replay, which is what takes the time.
FEW_SEEDS = 4
MOST_JOBS = 50_000

# Slurm's own schedule looks at the whole queue every time: some seconds for each hundred jobs.
MOST_SLURM = 5_000

# What savings are counted against: Slurm's own schedule, or else the rule of its backfill.
BASES = ("slurm", "easy")
ALONE = frozenset((CAPACITY,))
BACKFILL = "sched/backfill"  # SchedulerType by default; others refuse heterogeneous jobs
# Replays of Slurm's own schedule that are compared with the first of them (`ceiling`).
COMPARED = 3

# What packing is assumed to meet: share of jobs, GPU and memory utilisation (%), memory (MiB).
PACKING_SCENARIO: tuple[tuple[str, float, Profile], ...] = (
    ("light", 0.35, Profile(25.0, 10.0, 3_000.0)),
    ("medium", 0.35, Profile(55.0, 25.0, 8_000.0)),
    ("heavy", 0.30, Profile(92.0, 55.0, 20_000.0)),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy with its settings, under which the weeks are replayed.

    Attributes:
        short, title: names for a chart and for a table.
        values: settings of the policy that differ from its defaults.
        borrows: whether jobs may use idle GPUs of other partitions.
        packs: whether two jobs may share a GPU, with the profiles that `PACKING_SCENARIO` assumes.
        changed: changed settings of the site's own Slurm, by name.
    """

    key: str
    short: str
    title: str
    policy: str
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    borrows: bool = False
    packs: bool = False
    changed: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def twin(self) -> bool:
        """Return whether the variant imitates the site's own Slurm."""
        known = POLICIES.get(self.policy)
        return known is not None and known.capabilities.twin

    @property
    def adds(self) -> bool:
        """Return whether the variant is Pellucid extended by packing or borrowing."""
        return self.packs or self.borrows


VARIANTS: tuple[Variant, ...] = (
    Variant("fifo", "first come", "first come, first served", "fifo"),
    Variant("slurm", "Slurm's own", "Slurm's own schedule", "slurm"),
    Variant("easy", "plain backfill", "backfill by time limits alone (EASY)", "easy"),
    Variant("pellucid", "Pellucid", "Pellucid: learned order, a bound on waiting", "pellucid"),
    Variant(
        "borrow",
        "+ borrowing",
        "the same, borrowing idle GPUs of other partitions",
        "pellucid",
        borrows=True,
    ),
    Variant(
        "pack",
        "+ packing (assumed)",
        "the same within partitions, packing (ASSUMED profiles)",
        "pellucid",
        packs=True,
    ),
)


def variants_with(policy: str, values: Mapping[str, Any], jobs: int = 0) -> tuple[Variant, ...]:
    """Return the variants to replay, with the settings `values` for `policy`. If no variant is of
    that policy, one is added at the end.

    Without the extra `train`, variants that pack jobs are left out, because the choice of pairs
    is learned. If there are more than `MOST_SLURM` jobs (`jobs`), Slurm's own schedule is left
    out unless it is `policy`."""
    played = [
        variant
        for variant in VARIANTS
        if (TRAINS or not variant.packs)
        and (not variant.twin or variant.policy == policy or jobs <= MOST_SLURM)
    ]
    found = tuple(replace(v, values=values) if v.policy == policy else v for v in played)
    if any(variant.policy == policy for variant in found):
        return found
    name = policy.rpartition(":")[2]
    return (
        *found,
        Variant(key=name, short=name, title=f"policy {policy}", policy=policy, values=values),
    )


def scenario(site: Site, variant: Variant, seed: int, modelled: frozenset[str] = ALONE) -> Scenario:
    """Return the scenario of one replay: the site's jobs under a variant of its scheduler. Each
    submission is moved by a random 0 to 1 s, except with seed 0. With odd seeds, Slurm's own
    schedule also prefers other nodes of equal weight.

    Args:
        modelled: causes of waiting that the replay models; a job that waited for another cause is
            submitted at its recorded start.
    """
    jobs = site.arriving(modelled)
    twin = site.twin.with_settings(variant.changed) if site.twin and variant.twin else None
    if twin is not None and seed % 2:
        twin = twin.choosing_otherwise(seed)
    workload = jitter(_profiled(jobs, seed) if variant.packs else jobs, seed, most_s=MOVED_S)
    if twin is not None:  # after the jitter: jobs that are in other variants move as they do there
        beside = None if site.beside is None else site.beside.arriving(modelled)
        others = None if beside is None else jitter(beside, seed, most_s=MOVED_S)
        workload = twin.workload(workload, others)

    def estimator(policy: Policy) -> Estimator:
        return HistoriesEstimator() if policy.capabilities.estimates else Estimator()

    return Scenario(
        variant.key,
        workload,
        SimulatedContention(),
        estimator,
        pair_predictor=(lambda: simulated(seed)) if variant.packs else None,
        pairs_from=SIMULATED if variant.packs else "",
        profiling=profiling(site) if variant.packs else None,
        seed=seed,
        settings={
            variant.policy: over(variant.values, {"borrowing": {}})
            if variant.borrows
            else variant.values
        },
        shows=None if twin is None else twin.shown(workload.jobs),
    )


def of_files(
    dump: Path,
    printed: Sequence[Path],
    policy: str,
    values: Mapping[str, Any],
    seed: int,
    loop: str,
) -> Scenario:
    """Return the scenario of a ``sacct`` dump under one policy. The files `printed` by Slurm's
    commands describe the site.

    Raises UserError if a file cannot be used.
    """
    with TemporaryDirectory() as scratch:
        site = read_site(dump, Path(scratch), DumpOptions(printed=printed)).in_loop(loop)
    played = (one for one in variants_with(policy, values) if one.policy == policy)
    variant = next(played)
    notes = site.notes if site.twin is None or not variant.twin else [*site.notes, *site.twin.notes]
    made = scenario(site, variant, seed, site.modelled if variant.twin else ALONE)
    return replace(made, name=dump.name, loop=loop, notes=tuple(notes))


def profiling(site: Site) -> ProfilingPartition:
    """Return a profiling partition of one node of the largest partition, or of no node if that
    partition has only one."""
    vcs = site.workload.cluster.vcs
    largest = max(vcs, key=lambda vc: vcs[vc])
    return ProfilingPartition(nodes={largest: 1} if vcs[largest] > 1 else {}, known_s=0.0)


def one(site: Site, variant: Variant, seed: int, modelled: frozenset[str] = ALONE) -> pa.Table:
    """Run one replay. Return a table (job_id, wait_s, jct_s, start) with one row per job that ended
    in it. `start` is in seconds since the epoch.

    Args:
        modelled: causes of waiting that the replay models; see `scenario`.
    """
    outcome, _ = scenario(site, variant, seed, modelled).simulate(variant.policy)
    done = [result for result in outcome.jobs if result.end_time is not None]
    return pa.table(
        {
            "job_id": pa.array([r.job.job_id for r in done], pa.string()),
            "wait_s": pa.array([r.queue_s for r in done], pa.float64()),
            "jct_s": pa.array([r.jct_s for r in done], pa.float64()),
            "start": pa.array([r.start_time for r in done], pa.float64()),
        }
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """One task: a replay, or, without a variant, an evaluation of predicted durations.

    Attributes:
        limits: whether jobs may also wait for limits of the site's own Slurm. If not, a job that
            waited for a limit is submitted at its recorded start, as are jobs that waited for
            causes that are not modelled.
        whole: whether parts of heterogeneous jobs are in the figures.
    """

    variant: Variant | None
    seed: int = 0
    limits: bool = False
    whole: bool = True

    def __str__(self) -> str:
        if self.variant is None:
            return "known"
        plain = "-limits" * self.limits + "-whole" * (not self.whole)
        return f"{self.variant.key}-{self.seed}{plain}"


def cell(site: Site, wanted: Cell) -> Figures | None:
    """Run the task and return its figures; None if it is the evaluation of predicted durations
    and there are too few jobs. Without `limits`, the figures of a replay of Slurm's own
    schedule, or of plain backfill, with seed 0 include a back-test (comparison with the
    record). If that back-test is of another replay, in which jobs also wait for limits, a
    second one (`counted`) is of this replay."""
    variant = wanted.variant
    if variant is None:
        return duration_knowledge(site)
    if wanted.limits:
        record = _compared(site, whole=wanted.whole)
        return of_replay(one(site, variant, wanted.seed, site.modelled), record)
    frame = one(site, variant, wanted.seed)
    figures = of_replay(frame, site.judged)
    if wanted.seed == 0 or (variant.key in BASES and wanted.seed <= COMPARED):
        figures["by_job"] = by_job(frame, site.judged)
    if variant.key in BASES and wanted.seed == 0:
        figures["backtest"] = backtest(frame, site.judged)
        if variant.twin and site.modelled != ALONE:
            figures["counted"] = figures["backtest"]
            figures["backtest"] = backtest(one(site, variant, 0, site.modelled), site.replayable)
    return figures


def _compared(site: Site, *, whole: bool) -> pa.Table:
    """Return the recorded jobs on which Slurm with other settings is compared; without parts of
    heterogeneous jobs unless `whole`."""
    if whole or site.twin is None:
        return site.replayable
    parts = [bool(het_job(site.twin.asks[one])) for one in site.replayable["job_id"].to_pylist()]
    return site.replayable.filter(pc.invert(pa.array(parts, pa.bool_())))


def _takes_all(variants: Sequence[Variant]) -> bool:
    """Return whether Slurm accepts heterogeneous jobs under the changed settings of every
    variant."""
    types = [variant.changed.get("SchedulerType", BACKFILL) for variant in variants]
    return all(one.endswith("backfill") for one in types)


def seeds_for(site: Site, asked: int | None) -> int:
    """Return the number of replays (with slightly moved submit times) of each variant: `asked`, or
    if that is None a default, which is smaller for sites with many jobs."""
    if asked is not None:
        return asked
    return FEW_SEEDS if site.many else SEEDS


def cells_of(variants: Sequence[Variant], seeds: int) -> list[Cell]:
    """Return all tasks. Slurm with changed settings is compared with Slurm's own schedule in
    replays in which jobs also wait for limits."""
    plain = [variant for variant in variants if not variant.changed]
    twins = [variant for variant in variants if variant.twin] if plain != list(variants) else []
    whole = _takes_all(variants)
    return [
        Cell(None),
        *(Cell(variant, seed) for seed in range(seeds) for variant in plain),
        *(Cell(variant, seed, True, whole) for seed in range(seeds) for variant in twins),
    ]


def replay(
    site: Site,
    seeds: int,
    *,
    variants: Sequence[Variant] = VARIANTS,
    where: str = HERE,
    keep: Keep | None = None,
    progress: Callable[[int], None] | None = None,
) -> Figures:
    """Replay every variant on every seed. Return the figures, compared with the record.

    Args:
        site: the site to replay.
        seeds: number of replays of each variant.
        where, keep: see `pipeline.cluster.mapped`; kept results must belong to this site.
        progress: called with the number of tasks done, of all of `cells_of`.

    Returns ``{seeds, moved_s, backtest, backtests, ceiling, misfit, refused, claims, changed,
    recorded, counted, apart, against, variants: [figures with standard errors], bound, by_user,
    by_vc, by_job, duration_model}``. `misfit` lists reasons to doubt the savings, `refused` why
    none is stated at all. `claims` are the statements of `pipeline.replay.claims`; `changed`
    are those about Slurm with other settings. `against` is the variant that savings are counted
    against. `counted` is the back-test of its replay, if `backtest` is of another replay that
    models more. `bound` is a sentence about the cost of Pellucid's bound on waiting, if many
    jobs waited for longer, otherwise ""."""
    cells = cells_of(variants, seeds)
    known: Figures | None = None
    limited: dict[str, list[Figures]] = {}
    played = [variant for variant in variants if not variant.changed]
    found: dict[str, list[Figures]] = {variant.key: [] for variant in played}
    with _task(site, where, keep) as task, mapped(where, keep) as over:
        for done, (made, figures) in enumerate(zip(cells, over(task, cells), strict=True), start=1):
            if made.variant is None:
                known = figures
            elif made.limits:
                limited.setdefault(made.variant.key, []).append(figures)
            else:
                found[made.variant.key].append(figures)
            if progress is not None:
                progress(done)
        bound = _bound(
            site, variants=played, found=found, over_cells=partial(over, task), seeds=seeds
        )
    record = site.judged
    base = next((key for key in BASES if key in found), None)
    tests = {key: cells[0]["backtest"] for key, cells in found.items() if "backtest" in cells[0]}
    checked = tests.get(base) if base is not None else None
    against = found[base][0] if checked is not None and base is not None else None
    lost, too_many = site.lost
    most = ceiling(found[base]) if base is not None else 1.0
    doubted = doubts(against, most)
    if doubted or too_many:  # jobs that are not there make no others wait
        doubted = [*lost, *doubted, *site.unlike]
    stated = claims(record, found, base if checked is not None else None)
    refused = _refused(stated, checked, lost if too_many else [])
    return {
        "seeds": seeds,
        "moved_s": MOVED_S,
        "backtest": checked,
        "backtests": tests,
        "ceiling": most,
        "misfit": doubted,
        "refused": refused,
        "claims": [] if refused else [claim.plain() for claim in stated],
        "changed": [
            claim.plain()
            for claim in claims(_compared(site, whole=_takes_all(variants)), limited, base)
        ]
        if limited
        else [],
        "recorded": of_record(record),
        "counted": against.get("counted") if against is not None else None,
        "apart": apart(site.submitted),
        "against": base,
        "variants": [
            {
                "key": variant.key,
                "label": variant.short,
                "title": variant.title,
                "assumed": variant.packs,
                **over_seeds(
                    found[variant.key],
                    None if refused or base in (None, variant.key) else found[str(base)],
                    len(record),
                    found.get("pellucid") if variant.adds else None,
                ),
            }
            for variant in played
        ],
        "bound": bound,
        "by_user": by_name(found, record, "user"),
        "by_vc": by_name(found, record, "vc"),
        "by_job": {key: cells[0]["by_job"] for key, cells in found.items()},
        "duration_model": known,
    }


def _refused(stated: Sequence[Claim], checked: Figures | None, lost: Sequence[str]) -> list[str]:
    """Return why no saving is stated at all, one sentence each; [] if some are.

    Args:
        stated: all statements.
        checked: the back-test.
        lost: why replays cannot be trusted, because too many lines of the dump could not be read.
    """
    if checked is None or not checked["jobs"]:
        return misfit(checked)
    if lost:
        return list(lost)
    if not stated or stated[0].by or stated[0].refused:
        return [*refusals(stated), "No partition is left."]
    return []


def _bound(
    site: Site,
    variants: Sequence[Variant],
    found: Mapping[str, Sequence[Figures]],
    over_cells: Callable[[Sequence[Cell]], Iterator[Figures]],
    seeds: int,
) -> str:
    """Return a sentence about the cost of Pellucid's bound on waiting, found by replays without
    it; "" if few jobs waited for longer, or if Pellucid was not replayed."""
    variant = next((variant for variant in variants if variant.key == POLICY), None)
    if variant is None:
        return ""
    bound_s = flat(settings_of(POLICY, variant.values))["max_wait_s"]
    waits = [wait for wait in found[POLICY][0]["by_job"]["wait_s"] if wait is not None]
    late = sum(wait > bound_s for wait in waits) / max(1, len(waits))
    if late <= LATE:
        return ""
    free = replace(variant, key="unbound", values={**variant.values, "max_wait_s": NO_BOUND_S})
    cells = [list(over_cells([Cell(free, seed) for seed in range(seeds)])), found[POLICY]]
    named = {"avg_jct_s": "mean JCT", "p99_wait_s": "p99 wait", "longest_wait_s": "longest wait"}
    without, with_it = ({key: np.mean([c[key] for c in of]) for key in named} for of in cells)
    return cost(where="replayed", late=late, bound=with_it, free=without, named=named)


@contextmanager
def _task(site: Site, where: str, keep: Keep | None) -> Iterator[Callable[[Cell], Figures | None]]:
    """Yield a function that runs a task on the site. In other processes, it reads the site from a
    file, once per process."""
    if where == HERE:
        yield lambda wanted: cell(site, wanted)
        return
    with TemporaryDirectory(dir=keep.folder if keep else None) as folder:
        path = Path(folder) / "site.pickle"
        path.write_bytes(pickle.dumps(site, protocol=pickle.HIGHEST_PROTOCOL))
        yield _Read(path)


@dataclass(frozen=True, slots=True)
class _Read:
    path: Path

    def __call__(self, wanted: Cell) -> Figures | None:
        return cell(_site(self.path), wanted)


@lru_cache(maxsize=1)
def _site(path: Path) -> Site:
    site: Site = pickle.loads(path.read_bytes())
    return site


def _profiled(workload: Workload, seed: int) -> Workload:
    """Return the same jobs, each with a profile drawn at random from `PACKING_SCENARIO`."""
    rng = np.random.default_rng(seed)
    shares = [share for _, share, _ in PACKING_SCENARIO]
    drawn = rng.choice(len(shares), len(workload.jobs), p=shares)
    work = {
        job.job_id: replace(workload.work[job.job_id], profile=PACKING_SCENARIO[k][2])
        for job, k in zip(workload.jobs, drawn.tolist(), strict=True)
    }
    return replace(workload, work=work)
