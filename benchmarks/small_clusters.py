"""Small clusters from the first job on: one, four and sixteen nodes, nothing learned before.

    python -m benchmarks.small_clusters --json [--seeds 4] [--first-seed 100]
    python -m benchmarks.small_clusters --chart docs/images/small-clusters.svg

Two traces, each as one virtual cluster: the synthetic one (`demo`, for so many nodes), and Venus
thinned to users drawn, seeded, until they ask for 85 % of the cluster; gangs larger than the
cluster are left out. Workloads are drawn from the measured configurations as on track `honest`,
one for all jobs of a user that are of one template and size (Venus tells no names: every job is its
own there), and a profile is carried over from one to the next. Own predictions start from nothing.
`profiling` lends one node to a partition, which a single node cannot: there, and in the rows
`no profiling`, jobs are watched where they run and nowhere else.
Figures are mean JCT in seconds: of all jobs, the first hundred and the first thousand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from features.names import normalise
from pipeline.online import OnlineEstimator
from pipeline.traces.synthetic.config import Vc, default_config, generate
from pipeline.worlds import venus
from pipeline.worlds.honest import judge_of_strangers
from pipeline.worlds.plain import workload_of
from pipeline.worlds.scenario import ProfilingSettings, Scenario, oracle
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import Estimator
from scheduler.core.policy import Policy
from scheduler.core.profiling import KNOWN_S
from scheduler.simulation.work import PairTable, Work, Workload

SIZES = (1, 4, 16)
PER_NODE = 8
LOAD = 0.85
NAME = "all"
RATIOS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # labelled on the chart
ROWS = (
    ("pellucid", True),
    ("pellucid", False),
    ("lucid", True),
    ("fifo-skip", False),
    ("srtf", False),
)
Row = dict[str, Any]


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


def world(data: Path, workload: Workload, seed: int, *, profiling: bool) -> Scenario:
    """The rules of track `honest`, but for the partition."""
    packing = data / "packing"
    drawn = np.random.default_rng(seed).permutation(len(workload.jobs))
    kinds = venus.configurations(packing)
    work = {}
    numbers: dict[tuple[str, str, int], int] = {}  # by what profiles are carried over within
    for job, number in zip(workload.jobs, drawn, strict=True):
        own = workload.work[job.job_id]
        if template := normalise(job.name):
            number = numbers.setdefault((job.user, template, job.gpus), number)
        work[job.job_id] = Work(own.duration_s, own.state, *kinds[number % len(kinds)])
    played = Workload(workload.name, workload.jobs, work, workload.cluster)
    judge = judge_of_strangers(played, packing)
    truth = oracle(played)

    def estimator(policy: Policy) -> Estimator:
        if not policy.estimates:
            return Estimator()
        return truth if policy.oracle else OnlineEstimator(seed=seed)

    return Scenario(
        played.name,
        played,
        PairTable(venus.pair_speeds(packing), unmeasured=0.8, cap=1.0),
        estimator,
        judge=lambda: judge,
        profiling=ProfilingSettings({NAME: 1} if profiling else {}, known_s=KNOWN_S),
        seed=seed,
    )


def runs(data: Path, nodes: int, seed: int) -> Iterator[Row]:
    """Every policy on both traces."""
    for workload in (synthetic(nodes, seed), thinned(data, nodes, seed)):
        for policy, profiling in ROWS:
            if profiling and nodes == 1:
                continue
            scenario = world(data, workload, seed, profiling=profiling)
            # a lent node is missing: gangs that only the whole cluster could hold are left out
            room = (nodes - profiling) * PER_NODE
            fits = [job for job in scenario.workload.jobs if job.gpus <= max(room, PER_NODE)]
            scenario.workload.jobs = fits
            outcome, _ = scenario.simulate(policy)
            jct = [r.jct_s for r in outcome.jobs if r.end_time is not None]
            yield {
                "trace": workload.name,
                "nodes": nodes,
                "policy": policy if profiling or policy != "pellucid" else "pellucid, no profiling",
                "jobs": len(jct),
                "avg_jct_s": float(np.mean(jct)),
                "first_100_jct_s": float(np.mean(jct[:100])),
                "first_1000_jct_s": float(np.mean(jct[:1000])),
                "packings": outcome.packings,
            }


FIGURES = ("jobs", "avg_jct_s", "first_100_jct_s", "first_1000_jct_s", "packings")


def measure(data: Path, seeds: Sequence[int], *, quiet: bool) -> list[Row]:
    """Means over seeds, with the standard error of the difference to FIFO that skips."""
    found: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for seed in seeds:
        for nodes in SIZES:
            for row in runs(data, nodes, seed):
                found[row["trace"], row["nodes"], row["policy"]].append(row)
                if not quiet:
                    print(".", end="", file=sys.stderr, flush=True)
    table = []
    for (trace, nodes, policy), rows in found.items():
        fifo = found[trace, nodes, "fifo-skip"]
        gap = [r["avg_jct_s"] - f["avg_jct_s"] for r, f in zip(rows, fifo, strict=True)]
        table.append(
            {
                "trace": trace,
                "nodes": nodes,
                "policy": policy,
                **{name: float(np.mean([row[name] for row in rows])) for name in FIGURES},
                "against_fifo_s": float(np.mean(gap)),
                "against_fifo_se": float(np.std(gap, ddof=1) / len(gap) ** 0.5)
                if len(gap) > 1
                else 0,
            }
        )
    return sorted(table, key=lambda row: (row["trace"], row["nodes"]))


def chart(rows: list[Row], out: Path) -> None:
    """Mean JCT over that of FIFO that skips, by nodes; one panel per trace."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "small-clusters"
    traces = sorted({row["trace"] for row in rows})
    figure, axes = plt.subplots(1, len(traces), figsize=(8, 3.2), sharey=True)
    marks = cycle("osD^v")
    shown = {policy: next(marks) for policy in dict.fromkeys(row["policy"] for row in rows)}
    for axis, trace in zip(axes, traces, strict=True):
        mine = [row for row in rows if row["trace"] == trace]
        fifo = {row["nodes"]: row["avg_jct_s"] for row in mine if row["policy"] == "fifo-skip"}
        for policy, mark in shown.items():
            line = [row for row in mine if row["policy"] == policy]
            axis.plot(
                [row["nodes"] for row in line],
                [row["avg_jct_s"] / fifo[row["nodes"]] for row in line],
                marker=mark,
                label=policy,
            )
        axis.set(title=trace, xlabel="nodes of 8 GPUs", xscale="log", xticks=SIZES)
        axis.set_xticklabels(map(str, SIZES))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean JCT / FIFO that skips")
    axes[0].set(yscale="log", yticks=RATIOS)
    axes[0].set_yticklabels(f"{ratio:g}" for ratio in RATIOS)
    axes[0].minorticks_off()
    axes[-1].legend(fontsize=8)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--chart", type=Path, help="also draw the curves (SVG)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    rows = measure(arguments.data, seeds, quiet=arguments.json)
    if arguments.chart is not None:
        chart(rows, arguments.chart)
    if arguments.json:
        print(json.dumps({"seeds": list(seeds), "rows": rows}, indent=2))
        return
    for row in rows:
        print(
            f"{row['trace']:15} {row['nodes']:2} nodes  {row['policy']:23} {row['jobs']:6,.0f} jobs"
            f"  JCT {row['avg_jct_s']:8,.0f}  first 100 {row['first_100_jct_s']:8,.0f}"
            f"  first 1000 {row['first_1000_jct_s']:8,.0f}"
            f"  {row['against_fifo_s']:+8,.0f} +- {row['against_fifo_se']:,.0f}"
        )


if __name__ == "__main__":
    main()
