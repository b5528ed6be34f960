"""A million jobs on ten thousand GPUs under the policy `pellucid`, every decision recorded.

    python -m benchmarks.million --json [--jobs 1000000] [--gpus 10000] [--keep FOLDER]

The trace is the synthetic one (`pipeline.traces.synthetic.generate`, scale `large`: 180 days, 18
virtual clusters, loads of 0.75 to 0.96) with every virtual cluster made larger by the same factor.
Durations are learned from nothing, from histories alone, as the service does between trainings;
pairs are judged by models fitted on simulated pairs; one node in a hundred profiles. Prints time,
memory and what it came to, and whether the budget in `million_budget.json` holds, whatever
the size: time is judged by the job.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration
from pipeline.traces.synthetic.generate import SyntheticConfig, default_config, generate
from pipeline.worlds import plain
from pipeline.worlds.scenario import Scenario
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import LiveEstimator
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.recorder import Recorder
from scheduler.simulation.results import summarise

BUDGET = Path(__file__).with_name("million_budget.json")
FULL = 1_000_000
SHOWN = ("avg_jct_s", "avg_queue_s", "p999_queue_s", "max_queue_large_s", "gpu_utilisation")


def config(jobs: int, gpus: int, seed: int = 0) -> SyntheticConfig:
    """The trace of so many jobs for about so many GPUs; days and loads stay."""
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


def world(made: SyntheticConfig) -> Scenario:
    """The trace on its cluster, where nobody knows anything yet."""
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


def measure(
    jobs: int, gpus: int, *, keep: Path | None = None, quiet: bool = True
) -> dict[str, Any]:
    """Simulate and record; every figure, and whether it is within budget."""
    calibration = Calibration()
    cpu, wall = time.process_time(), time.perf_counter()
    scenario = world(config(jobs, gpus))
    loaded_s = time.process_time() - cpu
    gc.collect()
    gc.freeze()  # a trace that is never freed need not be looked through again and again

    def told(ended: int) -> None:
        if not quiet and ended % 10_240 == 0:
            spent = time.process_time() - cpu
            print(f"{ended} ended, {spent:.0f} CPU s, {_rss_mib():.0f} MiB", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        out = (keep or Path(folder)) / "decisions.parquet"
        with Recorder(out) as sink:
            outcome, _ = scenario.simulate("pellucid", sink=sink, progress=told)
        recorded_mib = out.stat().st_size / 2**20
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    figures: Mapping[str, Any] = summarise(outcome, scenario.cluster_gpus())
    found = {
        "jobs": figures["jobs"],
        "gpus": scenario.cluster_gpus(),
        "ended": figures["ended"],
        "decisions": figures["decisions"],
        "packed_jobs": figures["packed_jobs"],
        **{name: round(float(figures[name]), 3) for name in SHOWN},
        "load_cpu_s": round(loaded_s, 1),
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(wall_s, 1),
        "per_job_ms": round(1000 * cpu_s / jobs, 3),
        "peak_rss_mib": round(_rss_mib()),
        "recorded_mib": round(recorded_mib),
    }
    verdict = calibration.judge(found, BUDGET)
    return {**found, "budget": verdict, "holds": verdict["holds"]}


def _rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=FULL)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="folder to leave the recorded decisions in")
    parser.add_argument("--json", action="store_true", help="print JSON only, no progress")
    arguments = parser.parse_args()
    figures = measure(arguments.jobs, arguments.gpus, keep=arguments.keep, quiet=arguments.json)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in figures.items() if name != "budget"))
    sys.exit(0 if figures["holds"] else 1)


if __name__ == "__main__":
    main()
