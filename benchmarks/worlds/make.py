"""Makes worlds (simulated clusters with their jobs) from shared traces and generators, as
`benchmarks/worlds.yaml` describes them.

A replicate is one random copy of a world. For a recorded trace, it is a block bootstrap of the
submissions: whole days (of the trace's clock) are drawn with replacement and put one after the
other, which keeps the order within a day. For a generated trace, it is the generator under another
seed. Each job gets a training configuration drawn from the measured ones; all jobs of a user with
the same template and size get the same, as on track `honest`. Durations are learned from nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.worlds import openb
from benchmarks.worlds.small import deep, thinned
from benchmarks.worlds.small import synthetic as one_vc
from features.job import Job
from features.names import normalise
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import durations, philly, venus
from pipeline.worlds.closed_loop import in_loop
from pipeline.worlds.pairs import unseen_pair_predictor
from pipeline.worlds.plain import workload_of
from pipeline.worlds.scenario import Scenario
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.work import PairTable, Work, Workload

WORLDS = Path(__file__).parents[1] / "worlds.yaml"
DAY_S = 86_400.0
HOUR_S = 3_600.0
HALVES = ("chosen", "reported")


class World(BaseModel):
    """A world (a simulated cluster with its jobs), as one entry of `worlds.yaml` describes it.

    Attributes:
        trace: venus, philly and openb are recorded; thinned is Venus' users on few nodes;
            synthetic, one-vc and deep are generated (the demo's shape; one virtual cluster; one
            with weeks of queue).
        nodes: number of nodes of a thinned, one-vc or deep world; in a recorded world, nodes of
            each of `vcs` in place of the recorded number.
        jobs: number of jobs of a deep world.
        days: number of days that are drawn from a recorded trace.
        vcs: virtual clusters of the trace that are kept; all by default.
        gpus: fewest and most GPUs of a job; jobs outside are left out.
        seconds: shortest and longest duration of a job; jobs outside are left out.
        mix: settings of the generator that differ from its defaults.
        compress: factor on all times of submission.
        load: used in place of `compress`: the GPU time that jobs ask for, divided by the GPU time
            available while jobs are submitted.
        instant: share of the jobs that are all submitted at one time, in the middle.
        loop: open (submissions come at their times) or closed.
        isolated: False lets virtual clusters use each other's nodes.
        profiles, users, names, limits: whether jobs have these.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace: Literal["venus", "philly", "openb", "thinned", "synthetic", "one-vc", "deep"]
    nodes: int = 0
    jobs: int = 0
    days: int = Field(0, ge=0)
    vcs: tuple[str, ...] = ()
    gpus: tuple[int, int] = (1, 1_000_000)
    seconds: tuple[float, float] = (0.0, 1e12)
    mix: dict[str, Any] = {}
    compress: float = Field(1.0, gt=0)
    load: float | None = Field(None, gt=0)
    instant: float = Field(0.0, ge=0, le=1)
    loop: str = "open"
    isolated: bool = True
    profiles: bool = True
    users: bool = True
    names: bool = True
    limits: bool = False


def read_worlds(path: Path = WORLDS) -> dict[str, dict[str, World]]:
    """Return, for each half of the worlds ("chosen" and "reported"), the worlds by name. Raise
    ValueError when the file is malformed.
    """
    halves = yaml.safe_load(path.read_text())
    if set(halves) != set(HALVES):
        raise ValueError(f"{path}: expected the halves {' and '.join(HALVES)}")
    if twice := set(halves[HALVES[0]]) & set(halves[HALVES[1]]):
        raise ValueError(f"{path}: {sorted(twice)[0]} is in both halves")
    return {
        half: {name: World.model_validate(said) for name, said in worlds.items()}
        for half, worlds in halves.items()
    }


def draw_of(name: str, replicate: int) -> int:
    """Return the seed of a replicate, which depends on the world's name, too."""
    return crc32(name.encode()) % 100_000 + replicate


def scenario(
    name: str, world: World, data: Path, seed: int, predicted: str | None = None
) -> Scenario:
    """Return one random copy (a replicate) of a world, ready to simulate: a cluster with its jobs.

    Args:
        data: folder of the shared traces.
        seed: seed of the replicate.
        predicted: where predictions of durations come from; see `pipeline.worlds.durations`.
    """
    workload = _chosen(_trace(world, data, seed), world)
    if world.days:
        workload = bootstrap(workload, world.days, seed)
    lent = _lent(workload.cluster) if world.profiles else {}
    workload = _told(_fitting(workload, lent), world, seed)
    workload = _timed(in_loop(workload, world.loop), world)
    workload = _trained(workload, data, seed, bare=not world.profiles)
    packing = data / "packing"
    predictor = unseen_pair_predictor(workload, packing) if world.profiles else None
    return Scenario(
        name,
        workload,
        PairTable(venus.pair_speeds(packing), unmeasured=0.8, cap=1.0),
        durations.chosen(predicted, durations.sources(workload, seed)),
        pair_predictor=None if predictor is None else lambda: predictor,
        profiling=ProfilingPartition(nodes=lent) if world.profiles else None,
        seed=seed,
        settings={} if world.isolated else {"pellucid": {"borrowing": {}}},
        loop=world.loop,
    )


def offered_load(workload: Workload) -> float:
    """Return the load of a workload: the GPU time that its jobs need, divided by the GPU time that
    the cluster has between the first submission and the last."""
    jobs = workload.jobs
    span = max(jobs[-1].submit_time - jobs[0].submit_time, 1.0)
    asked = sum(job.gpus * workload.work[job.job_id].duration_s for job in jobs)
    return asked / (workload.cluster.gpus * span)


def bootstrap(workload: Workload, days: int, seed: int) -> Workload:
    """Return a workload of `days` whole days of the given one, drawn with replacement and put one
    after the other.
    """
    first = workload.jobs[0].submit_time
    by_day: dict[int, list[Job]] = {}
    for job in workload.jobs:
        by_day.setdefault(int((job.submit_time - first) // DAY_S), []).append(job)
    drawn = np.random.default_rng(seed).choice(sorted(by_day), days)
    jobs: list[Job] = []
    work: dict[str, Work] = {}
    for place, day in enumerate(drawn.tolist()):
        for job in by_day[day]:
            job_id = f"{job.job_id}-{place}"
            moved = job.submit_time + (place - day) * DAY_S
            jobs.append(replace(job, job_id=job_id, submit_time=moved))
            work[job_id] = workload.work[job.job_id]
    jobs.sort(key=lambda job: job.submit_time)
    return replace(workload, jobs=jobs, work=work, recorded_ends={})


# --- traces ---------------------------------------------------------------------------------------


def _trace(world: World, data: Path, seed: int) -> Workload:
    if world.trace == "thinned":
        return thinned(data, world.nodes, seed)
    if world.trace == "one-vc":
        return one_vc(world.nodes, seed)
    if world.trace == "deep":
        return deep(world.nodes, world.jobs, seed)
    if world.trace == "synthetic":
        config = replace(default_config("demo", seed), **world.mix)
        cluster = ClusterSpec({vc.name: vc.nodes for vc in config.vcs}, config.gpus_per_node)
        return workload_of(generate(config), cluster, "synthetic")
    return _recorded(world.trace, data)


@cache
def _recorded(trace: str, data: Path) -> Workload:
    if trace == "venus":
        return venus.load(data / "venus").workload
    if trace == "philly":
        return philly.load(data / "philly", bare=True)
    return _openb(data / "openb")


OPENB_SINCE_S = 10_000_000.0  # the pods of the trace's last five weeks; few came before
OPENB_SHARE = 40  # one node in so many


def _openb(folder: Path) -> Workload:
    """Return the pods of the openb trace on a small cluster with the same types of GPU; each type
    is a virtual cluster of its own.

    The trace does not record which type a pod asked for, so a type is drawn for each, in proportion
    to the numbers of GPUs.
    """
    whole = openb.cluster(folder).groups["openb"]
    groups = {
        group.gpu_type: replace(group, gpu_type="", nodes=max(1, group.nodes // OPENB_SHARE))
        for group in sorted(whole, key=lambda group: group.nodes * group.gpus_per_node)
    }
    spec = ClusterSpec.mixed({kind: [group] for kind, group in groups.items()}, name="openb")
    room = {kind: group.nodes * group.gpus_per_node for kind, group in groups.items()}
    rng = np.random.default_rng(0)
    jobs: list[Job] = []
    work: dict[str, Work] = {}
    for row in venus.read_rows(folder / "openb_pod_list_default.csv"):
        submit, gpus = float(row["creation_time"]), int(row["num_gpu"])
        if not gpus or submit < OPENB_SINCE_S or not row["deletion_time"]:
            continue
        fitting = [kind for kind in room if room[kind] >= gpus]
        weights = np.array([room[kind] for kind in fitting], float)
        kind = str(rng.choice(fitting, p=weights / weights.sum()))
        jobs.append(Job(row["name"], submit, gpus, vc=kind))
        started = float(row["scheduled_time"] or submit)
        work[row["name"]] = Work(float(row["deletion_time"]) - started)
    jobs.sort(key=lambda job: job.submit_time)
    return Workload("openb", jobs, work, spec)


# --- what a world makes of a trace ---------------------------------------------------------------


def _chosen(workload: Workload, world: World) -> Workload:
    """Return the part of the workload that the world keeps: jobs in certain virtual clusters, with
    certain numbers of GPUs and certain durations."""
    spec = workload.cluster
    if world.vcs:
        spec = replace(spec, vcs={vc: world.nodes or spec.vcs[vc] for vc in world.vcs})
    jobs = [
        job
        for job in workload.jobs
        if job.vc in spec.vcs
        and world.gpus[0] <= job.gpus <= world.gpus[1]
        and world.seconds[0] <= workload.work[job.job_id].duration_s <= world.seconds[1]
    ]
    return replace(workload, jobs=jobs, cluster=spec)


def _told(workload: Workload, world: World, seed: int) -> Workload:
    """Return the workload with what jobs state in this world: users, names, and time limits of 1 to
    5 times their durations, in whole hours."""
    rng = np.random.default_rng(seed)
    jobs = []
    for job in workload.jobs:
        limit = workload.work[job.job_id].duration_s * rng.uniform(1.0, 5.0)
        jobs.append(
            replace(
                job,
                user=job.user if world.users else "",
                name=job.name if world.names else "",
                time_limit_s=HOUR_S * np.ceil(limit / HOUR_S) if world.limits else None,
            )
        )
    return replace(workload, jobs=jobs)


def _timed(workload: Workload, world: World) -> Workload:
    """Return the workload with submissions closer together as `compress` or `load` ask, and the
    share `instant` at one time.
    """
    jobs = workload.jobs
    first, last = jobs[0].submit_time, jobs[-1].submit_time
    factor = world.compress if world.load is None else offered_load(workload) / world.load
    middle = first + factor * (last - first) / 2
    every = round(1 / world.instant) if world.instant else 0
    moved = [
        replace(
            job,
            submit_time=middle
            if every and i % every == 0
            else first + factor * (job.submit_time - first),
        )
        for i, job in enumerate(jobs)
    ]
    return replace(workload, jobs=sorted(moved, key=lambda job: job.submit_time))


def _lent(spec: ClusterSpec) -> dict[str, int]:
    """Return, by virtual cluster, the number of nodes that it lends for profiling: one node of the
    largest virtual cluster, or none if that has only one.
    """
    largest = max(spec.vcs, key=lambda vc: spec.vcs[vc])
    return {largest: 1} if spec.vcs[largest] > 1 else {}


def _fitting(workload: Workload, lent: dict[str, int]) -> Workload:
    """Return the workload without jobs that are too large for their virtual cluster. `lent` maps a
    virtual cluster to its nodes that are lent for profiling and do not count.
    """
    spec = workload.cluster
    room = {
        vc: sum(group.nodes * group.gpus_per_node for group in spec.groups_of(vc))
        - lent.get(vc, 0) * spec.groups_of(vc)[-1].gpus_per_node
        for vc in spec.vcs
    }
    return replace(workload, jobs=[job for job in workload.jobs if job.gpus <= room[job.vc]])


def _trained(workload: Workload, data: Path, seed: int, *, bare: bool) -> Workload:
    """Return the workload with a training configuration drawn for every job. Jobs of the same user
    and name share it. With `bare`, no job has one.
    """
    kinds = venus.configurations(data / "packing")
    drawn = np.random.default_rng(seed).permutation(len(workload.jobs))
    numbers: dict[tuple[str, str, int], int] = {}
    work = {}
    for job, number in zip(workload.jobs, drawn.tolist(), strict=True):
        own = workload.work[job.job_id]
        if template := normalise(job.name):
            number = numbers.setdefault((job.user, template, job.gpus), number)
        trained = (None, None) if bare else kinds[number % len(kinds)]
        work[job.job_id] = Work(own.duration_s, own.state, *trained)
    return replace(workload, work=work)
