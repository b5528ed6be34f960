"""Small clusters of one virtual cluster: the demo trace on a few nodes, users of the Venus trace on
a few nodes, and a queue of weeks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from features.job import Job
from pipeline.traces.synthetic.config import Vc, default_config
from pipeline.traces.synthetic.generate import generate
from pipeline.worlds import venus
from pipeline.worlds.plain import workload_of
from scheduler.core.cluster import ClusterSpec
from scheduler.simulation.work import Work, Workload

PER_NODE = 8
LOAD = 0.85
NAME = "all"
# GPUs of a job on a cluster with a deep queue, and how often; besides, a few want half of it
SIZES = {1: 0.40, 2: 0.10, 4: 0.13, 8: 0.37}
HALF = 0.02
MEDIAN_S, LONGEST_S, WEEK_S = 1_500.0, 5 * 86_400.0, 7 * 86_400.0


def synthetic(nodes: int, seed: int) -> Workload:
    """Return the demo trace for `nodes` nodes, with the original number of jobs per node."""
    demo = default_config("demo", seed)
    share = nodes / sum(vc.nodes for vc in demo.vcs)
    config = replace(
        demo,
        jobs=round(demo.jobs * share),
        users=max(4, round(demo.users * share)),
        burst_jobs=(max(2, round(demo.burst_jobs[0] * share)), round(demo.burst_jobs[1] * share)),
        vcs=(Vc(NAME, nodes, 1.0, LOAD),),
    )
    cluster = ClusterSpec({NAME: nodes}, PER_NODE, name=f"{nodes} nodes")
    return workload_of(generate(config), cluster, "synthetic")


def thinned(data: Path, nodes: int, seed: int) -> Workload:
    """Return the jobs of users of the Venus trace, drawn until together they ask for a fixed load
    on `nodes` nodes. Users who alone ask for too much are left out.
    """
    whole = venus.load(data / "venus").workload
    capacity = nodes * PER_NODE
    span_s = whole.jobs[-1].submit_time - whole.jobs[0].submit_time
    work_of: dict[str, float] = defaultdict(float)
    fitting = [job for job in whole.jobs if job.gpus <= capacity]
    for job in fitting:
        work_of[job.user] += job.gpus * whole.work[job.job_id].duration_s
    users = sorted(work_of)
    chosen: set[str] = set()
    load = 0.0
    for i in np.random.default_rng(seed).permutation(len(users)):
        more = work_of[users[i]] / (capacity * span_s)
        if load + more <= LOAD * 1.05:
            chosen.add(users[i])
            load += more
        if load >= LOAD * 0.95:
            break
    jobs = [replace(job, vc=NAME) for job in fitting if job.user in chosen]
    work = {job.job_id: whole.work[job.job_id] for job in jobs}
    return Workload("venus, thinned", jobs, work, ClusterSpec({NAME: nodes}, PER_NODE))


def deep(nodes: int, jobs: int, seed: int) -> Workload:
    """Return a workload of `jobs` jobs: 37 % of them on one whole node, 2 % on half the cluster,
    the others on less. They need as many GPU-seconds as the cluster has until the last submission,
    at a rate that changes, so that a long queue forms.

    Durations are log-normal around a value for the job's size and script; each user has a few
    scripts. Submissions are a Poisson process whose rate changes from week to week.
    """
    rng = np.random.default_rng(seed)
    gpus = rng.choice(list(SIZES), jobs, p=list(SIZES.values()))
    gpus[rng.random(jobs) < HALF] = nodes * PER_NODE // 2
    scripts = np.floor((jobs / 8) ** (rng.random(jobs) ** 0.7)).astype(int)  # a few send most
    usual = rng.normal(0, 1.3, jobs)[scripts] + 0.5 * np.log(gpus)
    seconds = np.clip(MEDIAN_S * np.exp(usual + rng.normal(0, 1.3, jobs)), 10.0, LONGEST_S)
    span_s = float(gpus @ seconds) / (nodes * PER_NODE)
    weeks = max(1, round(span_s / WEEK_S))
    rates = np.exp(rng.normal(0, 0.3, weeks))
    week = rng.choice(weeks, jobs, p=rates / rates.sum())
    submits = np.sort(week + rng.random(jobs)) * (span_s / weeks)
    made = [
        Job(
            f"deep-{i}",
            float(submits[i]),
            int(gpus[i]),
            user=f"user-{scripts[i] // 4}",
            vc=NAME,
            name=f"script-{chr(97 + scripts[i] % 26)}{chr(97 + scripts[i] // 26 % 26)}",
        )
        for i in range(jobs)
    ]
    work = {job.job_id: Work(float(seconds[i])) for i, job in enumerate(made)}
    return Workload("deep", made, work, ClusterSpec({NAME: nodes}, PER_NODE))
