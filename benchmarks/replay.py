"""Measures `pellucid replay` on a dump of two million lines, and compares it with `simulate` on the
Venus month.

    python -m benchmarks.replay --json [--lines 2000000] [--workers 2] [--data ../shared/data]

The large dump is made up (`benchmarks.sacct.large`) and replayed with the command's defaults. The
CPU time of all processes per line, and the sum of their resident memory (sampled; shared pages
count in each), are compared with `replay_budget.json`; exit status 1 when over. The Venus month is
scheduled under Slurm's rule, written as sacct would print it, and replayed; the averages must be
those of the same policies on the month as published.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks import sacct
from benchmarks.calibration import program

BUDGET = Path(__file__).with_name("replay_budget.json")
SAME = ("fifo", "easy", "pellucid")


def large(lines: int, workers: int) -> dict[str, Any]:
    """Make a dump of `lines` lines, and replay it in a process of its own. Return the figures."""
    with TemporaryDirectory(prefix="pellucid-replay-") as name:
        folder = Path(name)
        sacct.large(folder / "dump.txt", lines)
        sacct.nodes(folder / "nodes.txt")
        command = [
            sys.executable, "-c", "from pipeline.cli import main; main()",
            "replay", "--sacct", str(folder / "dump.txt"), "--nodes", str(folder / "nodes.txt"),
            "--out", str(folder / "page.html"), "--workers", str(workers), "--json",
        ]  # fmt: skip
        with (folder / "told.json").open("wb") as out:
            started = time.perf_counter()
            child = subprocess.Popen(
                command, stdout=out, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            peak = _peak_rss(child)
            wall = time.perf_counter() - started
        if child.returncode:
            raise SystemExit(f"replay failed with status {child.returncode}")
        usage = os.times()
        spent_s = usage.children_user + usage.children_system
        told = json.loads((folder / "told.json").read_text())
        return {
            "lines": lines,
            "dump_mib": round((folder / "dump.txt").stat().st_size / 2**20, 1),
            "page_kib": round((folder / "page.html").stat().st_size / 2**10, 1),
            "workers": workers,
            "wall_s": round(wall, 1),
            "cpu_s": round(spent_s, 1),
            "cpu_per_line_us": round(1e6 * spent_s / lines, 1),
            "peak_rss_mib": round(peak / 2**20),
            "counts": told["jobs"],
            "window_days": told["window"]["days"],
            "seeds": told["seeds"],
            "avg_wait_s": {row["key"]: round(row["avg_wait_s"], 1) for row in told["variants"]},
        }


def _peak_rss(child: subprocess.Popen[bytes]) -> int:
    """Wait until a process ends. Return the peak, in bytes, of the summed resident memory of the
    process and all its descendants.
    """
    top, peak = psutil.Process(child.pid), 0
    while child.poll() is None:
        try:
            family = [top, *top.children(recursive=True)]
            peak = max(peak, sum(process.memory_info().rss for process in family))
        except psutil.Error:
            pass  # one of them ended just now
        time.sleep(0.25)
    return peak


def venus(data: Path, jobs: int | None = None) -> dict[str, Any]:
    """Return the averages of the replay of the Venus month written as a dump, and those of the
    month itself.

    Args:
        data: folder of the public traces.
        jobs: number of first jobs to keep; None: all.
    """
    from pipeline.replay.runs import VARIANTS, Cell, cell
    from pipeline.replay.site import DumpOptions, read_site
    from pipeline.worlds import venus as track
    from pipeline.worlds.scenario import Scenario
    from pipeline.worlds.venus import jitter
    from scheduler.core.estimates import Estimator, HistoriesEstimator
    from scheduler.simulation.contention import SimulatedContention

    workload = jitter(track.load(data / "venus").workload, 0)
    workload.jobs = workload.jobs[:jobs]
    month = Scenario(
        "venus",
        workload,
        SimulatedContention(),
        lambda policy: HistoriesEstimator() if policy.capabilities.estimates else Estimator(),
    )
    outcome, _ = month.simulate("easy")
    with TemporaryDirectory(prefix="pellucid-replay-") as name:
        folder = Path(name)
        written = sacct.render(
            folder / "venus.txt", outcome.jobs, workload.work, workload.cluster.gpus_per_node
        )
        (folder / "cluster.json").write_text(json.dumps({"vcs": workload.cluster.vcs}))
        site = read_site(folder / "venus.txt", folder, DumpOptions(cluster=folder / "cluster.json"))
    told: dict[str, Any] = {"jobs": written, "replayed": site.counts["replayed"]}
    for variant in VARIANTS:
        if variant.key not in SAME:
            continue
        done = [job for job in month.simulate(variant.policy)[0].jobs if job.end_time is not None]
        found = cell(site, Cell(variant))
        assert found is not None
        told[variant.key] = {
            "simulate": {
                "avg_wait_s": sum(job.queue_s for job in done) / len(done),
                "avg_jct_s": sum(job.jct_s for job in done) / len(done),
            },
            "replay": {name: found[name] for name in ("avg_wait_s", "avg_jct_s")},
        }
        told |= {"backtest": found["backtest"]} if "backtest" in found else {}
    told["largest_difference_s"] = max(
        abs(told[key]["simulate"][name] - told[key]["replay"][name])
        for key in SAME
        for name in ("avg_wait_s", "avg_jct_s")
    )
    return told


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Replay a large dump, the Venus month, or both, as the options ask. Return the figures."""
    told: dict[str, Any] = {}
    if asked.only != "venus":
        told["large"] = large(asked.lines, asked.workers)
    if asked.only != "large":
        if not (asked.data / "venus").is_dir():
            sys.exit(f"benchmarks.replay: needs {asked.data}/venus; or give --only large")
        told["venus"] = venus(asked.data)
    return told


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measure,
        lines={"type": int, "default": 2_000_000},
        workers={"type": int, "default": 2},
        data={"type": Path, "default": Path("../shared/data")},
        only={"choices": ("large", "venus"), "help": "one of the two"},
    )
