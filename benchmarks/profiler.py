"""Measures what profiling costs the job, and how well it sees steps: `python -m
benchmarks.profiler`.

Overhead: one training process runs throughout; sampling is switched on and off in pairs of short
blocks, in random order within a pair, so that whatever else the machine does falls on both alike.
Each block's true steps per second, and CPU seconds per step, come from the workload. Beside them
stands the sampler's and the guard's own CPU time, which no neighbour disturbs.

`--steps` instead profiles every reference workload and compares the step time estimated from
outside with the workload's own count (six minutes on a CPU).

`--device gpu` does both on the first free GPU, with the workloads in full.

Prints whether the budget in `profiler_budget.json` holds.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.calibration import program
from profiler import session
from profiler.errors import ProfilerError
from profiler.period import CONFIDENT
from profiler.runner import Limits
from profiler.samplers import Device
from profiler.session import Options
from profiler.steady import Window
from reproductions.colocation.statistics import mean_of
from reproductions.colocation.worker import Worker
from reproductions.colocation.workloads import WORKLOADS, Size, parse_config

BUDGET = Path(__file__).with_name("profiler_budget.json")
BLOCK_S, PAIRS = 1.5, 16


def trained(device: Device) -> tuple[str, Size, int | None]:
    """Return how workloads are trained on a device: torch's name of the device, the workload's
    size, and the number of threads (None: torch's default).
    """
    return ("cuda", "full", None) if device == "gpu" else ("cpu", "tiny", 1)


def overhead(
    workload: str, pairs: int, block_s: float, seed: int = 0, device: Device = "cpu"
) -> dict[str, Any]:
    """Train a workload in one process and switch sampling on and off in pairs of blocks. Return how
    much sampling slows the training, and the CPU time of the sampler; shares are of one core.

    Args:
        pairs: number of pairs of blocks.
        block_s: seconds of a block.
    """
    source = random.Random(seed)
    where, size, threads = trained(device)
    config = parse_config(workload, size)
    target = session.open_target(Options(device=device))
    pace: list[float] = []
    cost: list[float] = []
    shares: list[float] = []
    rates: list[float] = []
    with Worker(where, size, threads=threads) as worker:
        worker.await_event("hello", timeout_s=120)
        worker.order(config)
        worker.ready(120)
        worker.follow(time.monotonic() + 1.0)
        for _ in range(pairs):
            found = {}
            for sampled in source.sample([False, True], 2):
                start = time.monotonic()
                # the worst case: fast sampling throughout, as in runs of under a minute
                recorder = session.recorder_for(target.sampler, lambda: [worker.pid], origin=start)
                if not sampled:
                    recorder.stop()
                worker.follow(start + block_s)
                recorder.stop()
                end = time.monotonic()
                worker.follow_past(end, 30)
                found[sampled] = worker.between(start, end)
                if sampled:
                    shares.append(recorder.cpu_s / (end - start))
            rate = {k: (b.steps - a.steps) / (b.t - a.t) for k, (a, b) in found.items()}
            cpu = {k: (b.cpu_s - a.cpu_s) / (b.steps - a.steps) for k, (a, b) in found.items()}
            pace.append(rate[True] / rate[False])
            cost.append(cpu[True] / cpu[False])
            rates.append(rate[False])
        worker.end()
    target.sampler.close()
    return {
        "workload": f"{config} ({size}, {where})",
        "pairs": pairs,
        "block_s": block_s,
        "steps_per_s": round(statistics.fmean(rates), 3),
        "throughput_change_pct": _change(pace),
        # what one step costs in CPU time: does not depend on who else wants the cores
        "cpu_per_step_change_pct": _change(cost),
        "sampler_cpu_pct_of_one_core": round(100 * statistics.fmean(shares), 3),
    }


def _change(ratios: list[float]) -> dict[str, float]:
    """Return the change in percent that paired ratios show: mean, median, and half width of the 95
    % interval.
    """
    mean = mean_of(ratios)
    return {
        "mean": round(100 * (mean.value - 1), 2),
        "median": round(100 * (statistics.median(ratios) - 1), 2),
        "half_width_95": round(100 * mean.half_width * mean.value, 2),
    }


def in_use(seconds: float) -> dict[str, float]:
    """Profile a busy command once for `seconds`. Return the CPU time of the sampler and of its
    guardian process, as shares of one core.
    """
    code = (
        "import time\nd = bytearray(2**26)\nend = time.time() + 600\nwhile time.time() < end: pass"
    )
    with tempfile.TemporaryDirectory() as folder:
        # more than a minute of T_prof samples fast in bursts only, as a real profile does
        options = Options(limits=Limits(seconds=max(61.0, seconds)), device="cpu")

        def enough(live: session.Live) -> None:
            if time.monotonic() - live.run.started >= seconds:
                raise KeyboardInterrupt

        result = session.profile(
            [sys.executable, "-c", code], Path(folder), options, on_tick=enough
        )
    ending = result.ending
    return {
        "seconds": round(ending.duration_s, 1),
        "sampler_in_use_pct_of_one_core": round(100 * result.sampling.cpu_share, 3),
        "guard_in_use_pct_of_one_core": round(100 * ending.guardian_cpu_s / ending.duration_s, 3),
    }


def steps(seconds: float, names: list[str], device: Device = "cpu") -> list[dict[str, Any]]:
    """Profile every reference workload for `seconds`. Return, for each, the step time estimated
    from outside and the true one.
    """
    rows = []
    where, size, threads = trained(device)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.jsonl"
            command = [
                sys.executable, "-m", "reproductions.colocation.workloads",
                name, "--device", where, "--seconds", "600", "--report", str(report),
                *(["--tiny"] if size == "tiny" else []),
                *(["--threads", str(threads)] if threads else []),
            ]  # fmt: skip
            options = Options(
                limits=Limits(seconds=seconds), device=device, cwd=Path(__file__).parents[1]
            )
            began: list[float] = []
            result = session.profile(
                command,
                Path(folder) / "run",
                options,
                on_tick=lambda live, began=began: began.append(live.run.started),  # type: ignore[misc]
            )
            truth = true_step(report, began[0], result.window)
        step = result.step
        ratio = step.seconds / truth if step.seconds else math.nan
        rows.append(
            {
                "workload": name,
                "true_step_s": round(truth, 4),
                "estimate_s": None if step.seconds is None else round(step.seconds, 4),
                "ratio": None if math.isnan(ratio) else round(ratio, 3),
                "confidence": step.confidence,
                "visible": truth >= step.shortest_s,
                "right": abs(ratio - 1) <= 0.10,
                "fast_hz": round(result.sampling.fast_samples / result.ending.duration_s, 1),
            }
        )
    return rows


def true_step(report: Path, began: float, window: Window) -> float:
    """Return the seconds per step that the workload itself reported, from the first to the last
    report within the steady window.
    """
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    points = [(r["t"] - began, r["steps"]) for r in lines if r["event"] in ("ready", "progress")]
    inside = [p for p in points if window.start_s <= p[0] <= window.end_s]
    used = inside if len(inside) > 2 else points
    (t0, n0), (t1, n1) = used[0], used[-1]
    return float((t1 - t0) / (n1 - n0))


def summarise_steps(rows: list[dict[str, Any]]) -> dict[str, Any]:
    sure = [row for row in rows if row["confidence"] >= CONFIDENT]
    return {
        "families": len(rows),
        "visible": sum(row["visible"] for row in rows),
        "right": sum(row["right"] for row in rows),
        "confident": len(sure),
        "confident_and_right": sum(row["right"] for row in sure),
    }


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the overhead of profiling. With `--steps`, return how exactly it finds the length of a
    training step.
    """
    try:
        if asked.steps is not None:
            rows = steps(asked.seconds, asked.steps or list(WORKLOADS), asked.device)
            return {"steps": rows, "summary": summarise_steps(rows)}
        found = {"overhead": overhead(asked.model, asked.pairs, asked.block, device=asked.device)}
        return found | ({"in_use": in_use(26.0)} if asked.device == "cpu" else {})
    except ProfilerError as error:
        print(f"benchmarks.profiler: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measure,
        pairs={"type": int, "default": PAIRS},
        block={"type": float, "default": BLOCK_S, "help": "seconds"},
        device={"choices": ("cpu", "gpu"), "default": "cpu"},
        model={"default": "VGG", "help": "MODEL[/BATCH][/amp]"},
        steps={"nargs": "*", "metavar": "MODEL", "help": "step-time table instead"},
        seconds={"type": float, "default": 24.0, "help": "of each profile for --steps"},
    )
