"""Small clusters of one virtual cluster: the demo trace, and users of Venus, on a few nodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.traces.synthetic.config import Vc, default_config
from pipeline.traces.synthetic.generate import generate
from pipeline.worlds import venus
from pipeline.worlds.plain import workload_of
from scheduler.core.cluster import ClusterSpec
from scheduler.simulation.work import Workload

PER_NODE = 8
LOAD = 0.85
NAME = "all"


def synthetic(nodes: int, seed: int) -> Workload:
    """The demo trace for so many nodes; as many jobs per node."""
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
    """Users of Venus, drawn until they ask for the load; nobody who alone asks for too much."""
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
