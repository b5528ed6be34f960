"""Stops a whole service by one SIGTERM to its process group, as init systems and terminals do.

    python -m benchmarks.stops --times 10 --json

Each time `pellucid serve` (supervisor, decider, analyst, API, maintenance) is started on the same
database, given jobs, and every process of its group is signalled at once, at a moment of its life
that differs each time: as it starts, when it decides, as it runs jobs.
A stop is clean when it ends by itself with status 0, had no process to kill, saw none die, and
leaves none behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.kills import Victim, family

MOST_S = 30.0  # a stop that takes longer has hung
READY_S = 120.0
BAD = ("process_died", "process_killed", "process_failed")


def stops(folder: Path, times: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Start and stop, so many times; what came of each."""
    victim, draw = Victim(folder, whole=True), random.Random(seed)
    victim.settings.log_level = "info"
    path = folder / "log"
    for turn in range(times):
        before = path.stat().st_size
        victim.submit(f"job{turn:04d}", 4.0)
        victim.start()
        process = victim.process
        assert process is not None
        _await(path, before, "process_started" if turn % 5 == 4 else "decides", process)
        time.sleep(draw.uniform(0.0, 1.0))
        alive = family(process.pid)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGTERM)
        try:
            status: int | None = process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            status = None
            victim.kill()
        took = time.monotonic() - began
        _, left = psutil.wait_procs(alive, 5.0)
        said = [line["event"] for line in _lines(path, before)]
        bad = [event for event in said if event in BAD]
        yield {
            "status": status,
            "seconds": round(took, 2),
            "bad": bad,
            "left": len(left),
            "clean": status == 0 and not bad and not left and "stopped" in said,
        }
    victim.store.close()
    victim.log.close()


def _await(path: Path, offset: int, event: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY_S
    while not any(line["event"] == event for line in _lines(path, offset)):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the service did not start:\n{path.read_text()[offset:][-2000:]}")
        time.sleep(0.05)


def _lines(path: Path, offset: int) -> list[dict[str, Any]]:
    with path.open("rb") as log:
        log.seek(offset)
        lines = log.read().decode(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pellucid-stops-") as folder:
        found = list(stops(Path(folder), asked.times, asked.seed))
    clean = sum(one["clean"] for one in found)
    if asked.json:
        print(json.dumps({"times": len(found), "clean": clean, "stops": found}, indent=2))
    else:
        print(f"{clean} of {len(found)} stops were clean")
    sys.exit(0 if clean == len(found) else 1)


if __name__ == "__main__":
    main()
