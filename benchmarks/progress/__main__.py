"""What a job's own progress is worth: `python -m benchmarks.progress --json`.

Each training of `benchmarks.progress.trainings` runs to its end in a process of its own, unchanged,
several times over: as it is, within its first epoch when it is asked, and from a checkpoint. Its
output is followed from outside. What is said after the profiling pass (`LOOK_S`; scaled as the
trainings are) is held against how long it then ran. Last, a process that prints as fast as it can
is followed, for what that costs. Then what a command says at submission is held against runs
(`benchmarks.progress.submitted`). `--check` exits with 1 when a budget (`budget.json`) is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.progress.submitted import submitted
from benchmarks.progress.trainings import NEEDS, TRAININGS
from features.amounts import of_command
from features.progress import Progress
from profiler.progress.tail import VARIABLE, Tail

BUDGET = Path(__file__).with_name("budget.json")
LOOK_S, EVERY_S = 10.0, 0.25
NARROW = 2.0  # an interval whose ends are further apart claims nothing
SIZES = {
    "plain": {"epochs": 15, "steps": 40, "step_s": 0.05, "validate_s": 0.25},
    "first epoch": {"epochs": 3, "steps": 200, "step_s": 0.06, "validate_s": 0.6},
    "checkpoint": {"epochs": 22, "steps": 40, "step_s": 0.05, "validate_s": 0.2, "first": 8},
}
NO_CHECKPOINT = {"boosting", "folds"}  # these begin at the beginning


def follow(name: str, kind: str, seed: int) -> dict[str, Any]:
    """One training, from beginning to end."""
    sizes = SIZES[kind] | {"seed": seed, "startup_s": 0.5 + 0.1 * seed}
    command = [sys.executable, "-m", "benchmarks.progress.trainings", name]
    if name in NEEDS:
        steps = 1 if NEEDS[name] == "epochs" else sizes["steps"]
        command += [f"--{NEEDS[name]}", str(int(sizes["epochs"] * steps))]
    with tempfile.TemporaryDirectory() as folder:
        output, own = Path(folder) / "output", Path(folder) / "own"
        env = os.environ | {
            "SIZES": json.dumps(sizes), VARIABLE: str(own), "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        tail = Tail(output, of_command(command), own)
        looked: Progress | None = None
        over = False  # the profiling pass
        with output.open("wb") as file:
            began = time.monotonic()
            process = subprocess.Popen(command, stdout=file, stderr=file, env=env)
            while process.poll() is None:
                time.sleep(EVERY_S)
                at = time.monotonic() - began
                if not over:
                    tail.look(at)
                    over = at >= LOOK_S  # on a busy machine perhaps by much
                    looked = tail.progress(at) if over else None
            took_s = time.monotonic() - began
        if process.returncode:
            raise RuntimeError(f"{name}: {output.read_text('utf-8', 'replace')[-500:]}")
    return {"format": name, "kind": kind, "took_s": round(took_s, 2), **_judged(looked, took_s)}


def _judged(looked: Progress | None, took_s: float) -> dict[str, Any]:
    if looked is None:
        return {"total_s": None, "off": None, "inside": None, "misled": False}
    ratio = looked.total_s / took_s
    narrow = looked.high_s < NARROW * looked.low_s
    return {
        "total_s": round(looked.total_s, 2),
        "low_s": round(looked.low_s, 2),
        "high_s": round(looked.high_s, 2),
        "text": looked.text(),
        "source": looked.source,
        "off": round(ratio - 1, 3),
        "inside": looked.low_s <= took_s <= looked.high_s,
        "misled": narrow and not 0.5 < ratio < 2,
    }


def heavy(seconds: float = 20.0) -> dict[str, float]:
    """CPU share of following a process that prints as fast as it can."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        command = [sys.executable, "-m", "benchmarks.progress.trainings", "heavy", str(seconds)]
        tail, used_s = Tail(output), 0.0
        with output.open("wb") as file:
            began = time.monotonic()
            process = subprocess.Popen(command, stdout=file)
            while process.poll() is None:
                time.sleep(1.0)
                before = time.thread_time()
                at = time.monotonic() - began
                tail.look(at)
                tail.progress(at)
                used_s += time.thread_time() - before
                if output.stat().st_size > 2**30:  # as a backend does with what is too much
                    os.truncate(output, 0)
            took_s = time.monotonic() - began
            written = file.tell() / 2**20
    return {
        "mib_per_s": round(written / took_s, 1),
        "cpu_pct_of_one_core": round(100 * used_s / took_s, 3),
    }


def run(names: list[str], jobs: int) -> dict[str, Any]:
    tasks = [
        (name, kind, seed)
        for name in names
        for seed, kind in enumerate(SIZES)
        if not (kind == "checkpoint" and name in NO_CHECKPOINT)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda task: follow(*task), tasks))
    known = [r for r in runs if r["off"] is not None]
    near = [r for r in known if abs(r["off"]) <= 0.10]
    return {
        "formats": len(names),
        "runs": len(runs),
        "within_10_pct": round(len(near) / len(runs), 3),
        "median_off": round(statistics.median(abs(r["off"]) for r in known), 3),
        "inside_interval": round(sum(r["inside"] for r in known) / len(known), 3),
        "unknown": len(runs) - len(known),
        "misled": sum(r["misled"] for r in runs),
        "each": runs,
    }


def _broken(found: dict[str, Any]) -> list[str]:
    budget = json.loads(BUDGET.read_text("utf-8"))
    values = dict(found)
    for part in ("heavy", "submission"):
        values |= {f"{part}.{name}": value for name, value in found.get(part, {}).items()}
    return [
        f"{name} is {values[name]}, {word} {limit} is allowed"
        for word, sign in (("at most", 1), ("at least", -1))
        for name, limit in budget[word.replace(" ", "_")].items()
        if name in values and sign * values[name] > sign * limit
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.progress", description=__doc__)
    parser.add_argument("--only", default="", help="formats, with commas between them")
    parser.add_argument("--jobs", type=int, default=8, help="trainings at a time")
    parser.add_argument("--part", choices=("output", "submission"), help="the one only")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(TRAININGS)
    for name in names:
        if name not in TRAININGS:
            parser.error(f"--only {name!r}: accepted are {', '.join(TRAININGS)}")
    found: dict[str, Any] = {}
    if options.part != "submission":
        found = run(names, options.jobs) | {"heavy": heavy()}
    if options.part != "output":
        found["submission"] = submitted(options.jobs)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        for r in found.get("each", ()):
            print(f"{r['format']:16} {r['kind']:12} {r['took_s']:7.1f} s  {r.get('text', '-')}"
                  f"  off {r['off']}")  # fmt: skip
        for r in found.get("submission", {}).get("each", ()):
            print(f"{r['training']:12} {r['script']:10} {r['kind']:24} {r['took_s']:7.1f} s"
                  f"  off {r['off']}, by the simple rule {r['rule_off']}")  # fmt: skip
        figures = {key: value for key, value in found.items() if key != "each"}
        if "submission" in found:
            figures["submission"] = {k: v for k, v in found["submission"].items() if k != "each"}
        print(figures)
    broken = _broken(found)
    for line in broken:
        print(line, file=sys.stderr)
    sys.exit(1 if options.check and broken else 0)


if __name__ == "__main__":
    main()
