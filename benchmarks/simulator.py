"""Measures the speed of the simulator: policies on a month of Venus, a burst of equal jobs, and a
million jobs.

    python -m benchmarks.simulator --json [--data ../shared/data] [--million 1000000]

The five published policies: CPU seconds and memory of the whole comparison, every decision
recorded, per policy and per decision, beside the published simulator (1,345 CPU-seconds for one
policy) and the physical limit (a compiled event loop without recording, 0.1-0.3 s a policy); in a
process of its own, so that memory is that of the comparison alone.

`pellucid` over the month: track `honest` with own predictions, which includes refitting the
duration model, and without. The burst: 5,000 equal jobs come at once to a cluster that is in use;
CPU time of the whole simulation over that of `lucid`. The million, where it is asked for: the
synthetic trace (scale `large`: 180 days, 18 virtual clusters, loads of 0.75 to 0.96) on 10,000
GPUs, every decision recorded, each virtual cluster made larger by the same factor; durations are
learned from nothing, pairs judged by models fitted on simulated pairs; time is judged by the job.
Prints whether the budget in `simulator_budget.json` holds. `benchmarks.size` times single passes.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.calibration import program
from features.job import Job
from features.schema import State
from pipeline.runs import run
from pipeline.traces.synthetic.generate import SyntheticConfig, default_config, generate
from pipeline.worlds import open_scenario, plain
from pipeline.worlds.scenario import Scenario
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import LiveEstimator
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.recorder import Recorder
from scheduler.simulation.results import summarise
from scheduler.simulation.work import Work, Workload

BUDGET = Path(__file__).with_name("simulator_budget.json")
POLICIES = ("fifo", "sjf", "srtf", "qssf", "lucid")
PUBLISHED_LUCID_CPU_S = 1345.0  # measured on the unmodified published simulator
COMPILED_LOOP_CPU_S = 0.2  # a policy, compiled, nothing recorded
BURST, BURST_GPUS = 5_000, 256
SHOWN = ("avg_jct_s", "avg_queue_s", "p999_queue_s", "max_queue_large_s", "gpu_utilisation")


def config(jobs: int, gpus: int, seed: int = 0) -> SyntheticConfig:
    """Return the configuration of a synthetic trace of about `jobs` jobs for a cluster of about
    `gpus` GPUs. Its days and loads are those of the scale `large`.
    """
    large = default_config("large", seed)
    grow = gpus / large.gpus_per_node / sum(vc.nodes for vc in large.vcs)
    share = jobs / large.jobs
    return replace(
        large,
        jobs=jobs,
        users=max(90, round(large.users * share)),
        bursts_per_week=max(2.0, large.bursts_per_week * share),
        vcs=tuple(replace(vc, nodes=max(1, round(vc.nodes * grow))) for vc in large.vcs),
    )


def large(made: SyntheticConfig) -> Scenario:
    """Return the scenario of a synthetic trace on its cluster, in which no job's duration is known
    beforehand.
    """
    vcs = {vc.name: vc.nodes for vc in made.vcs}
    nodes = max(1, sum(vcs.values()) // 200)
    lenders = sorted(vcs, key=lambda vc: -vcs[vc])[:2]
    scenario = plain.scenario(
        generate(made),
        "million",
        ClusterSpec(vcs, made.gpus_per_node, made.gpu_memory_mib),
        ProfilingPartition(nodes=dict.fromkeys(lenders, nodes), known_s=0.0),
    )
    scenario.estimators = lambda policy: LiveEstimator()
    return scenario


def million(jobs: int, gpus: int = 10_000) -> dict[str, Any]:
    """Simulate so many jobs with every decision recorded. Return CPU time and memory."""
    cpu, wall = time.process_time(), time.perf_counter()
    scenario = large(config(jobs, gpus))
    loaded_s = time.process_time() - cpu
    gc.collect()
    gc.freeze()  # a trace that is never freed need not be looked through again and again

    def progress(ended: int) -> None:
        if ended % 10_240 == 0:
            spent = time.process_time() - cpu
            print(f"{ended} ended, {spent:.0f} CPU s, {_rss_mib():.0f} MiB", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "decisions.parquet"
        with Recorder(out) as sink:
            outcome, _ = scenario.simulate("pellucid", sink=sink, progress=progress)
        recorded_mib = out.stat().st_size / 2**20
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    figures: Mapping[str, Any] = summarise(outcome, scenario.cluster_gpus())
    return {
        "jobs": figures["jobs"],
        "gpus": scenario.cluster_gpus(),
        "ended": figures["ended"],
        "decisions": figures["decisions"],
        "packed_jobs": figures["packed_jobs"],
        **{name: round(float(figures[name]), 3) for name in SHOWN},
        "load_cpu_s": round(loaded_s, 1),
        "million_cpu_s": round(cpu_s, 1),
        "wall_s": round(wall_s, 1),
        "per_job_ms": round(1000 * cpu_s / jobs, 3),
        "million_peak_rss_mib": round(_rss_mib()),
        "recorded_mib": round(recorded_mib),
    }


def _rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def burst() -> dict[str, float]:
    """Simulate a burst of equal jobs. Return the CPU time under `pellucid` divided by that under
    `lucid`, and both mean job completion times in seconds.
    """
    jobs = [Job(f"j{n}", 0.0, 1, f"u{n % 50}", "vc") for n in range(BURST)]
    work = {job.job_id: Work(600.0, State.COMPLETED) for job in jobs}
    cluster = ClusterSpec({"vc": BURST_GPUS // 8})
    found: dict[str, float] = {}
    for policy in ("lucid", "pellucid"):
        scenario = plain.of_workload(Workload("burst", jobs, work, cluster), None)
        done = run(scenario, policy)
        found |= {f"{policy}_cpu_s": done["cpu_s"], f"{policy}_jct_s": done["avg_jct_s"]}
    return found


def comparison(data: Path) -> dict[str, Any]:
    """Return CPU time and memory of comparing the five published policies, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-c", "from pipeline.cli import main; main()",
            "compare", "--trace", str(data / "venus"), "--track", "published",
            "--policies", ",".join(POLICIES), "--out", folder, "--json",
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    lucid = next(row for row in result["policies"] if row["policy"] == "lucid")
    decisions = sum(row["decisions_mean"] for row in result["policies"])
    return {
        "cpu_s": result["cpu_s"],
        "peak_rss_mib": result["peak_rss_mib"],
        "policies": {
            row["policy"]: {
                "cpu_s": row["cpu_s_mean"],
                "decisions": row["decisions_mean"],
                "avg_jct_s": row["avg_jct_s_mean"],
            }
            for row in result["policies"]
        },
        "microseconds_per_decision": 1e6 * result["cpu_s"] / decisions,
        "published_over_ours": PUBLISHED_LUCID_CPU_S / lucid["cpu_s_mean"],
        "ours_over_compiled_loop": result["cpu_s"] / len(POLICIES) / COMPILED_LOOP_CPU_S,
    }


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the simulator's speed, by name."""
    equal = burst()
    figures = comparison(asked.data) | {f"burst_{name}": value for name, value in equal.items()}
    figures["burst_over_lucid"] = round(equal["pellucid_cpu_s"] / equal["lucid_cpu_s"], 2)
    for name, durations in (("month", None), ("month_without_fits", "gpus")):
        world = open_scenario(asked.data / "venus", track="honest", seed=100, durations=durations)
        done = run(world, "pellucid")
        figures |= {f"{name}_cpu_s": done["cpu_s"], f"{name}_avg_jct_s": done["avg_jct_s"]}
    return figures | (million(asked.million) if asked.million else {})


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measure,
        data={"type": Path, "default": Path("../shared/data")},
        million={"type": int, "default": 0, "metavar": "JOBS", "help": "so many jobs, too"},
    )
