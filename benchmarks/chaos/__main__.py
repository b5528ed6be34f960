"""Runs the whole service on one seed while everything that can go wrong does. Nothing may be lost.

    python -m benchmarks.chaos --seed 7 --steps 4000 --json   one run, again to the same digest
    python -m benchmarks.chaos --seeds 0:2000                 many
    python -m benchmarks.chaos --seed 7 --enumerate           a calm run, killed at each of its
                                                              crash points in turn
    python -m benchmarks.chaos --seeds 0:9 --strike "decider: before a signal"   only at those of
                                                              this name
    python -m benchmarks.chaos --seeds 0:100 --backlog 100000   so many jobs come at once, and each
                                                              costs the processor its time
    python -m benchmarks.chaos --seed 7 --enumerate --freeze 60  stopped there, and not killed
    python -m benchmarks.chaos --seed 7 --enumerate --power   without power there

Supervisors, deciders that compete for the lease, analysts, API, maintenance and snapshots are the
service's own, twice, on a simulated machine (`kernel`): clocks that are set, a disk that is full,
transactions that fail or whose outcome nobody learns, processes that are frozen or killed at any
step. Three clients submit, cancel, change, hold, release and reprioritise, and ask again when an
answer is lost. What they saw is judged by `tests/checker`, the database by `audit`.

The database is SQLite in memory-backed files, or the PostgreSQL that PELLUCID_TEST_DATABASE names.
Exit status 1 when anything is wrong; each line names the run, which is the same run again. Asked
to stop, it gives up the run of now and says what was played before.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.calibration import program
from benchmarks.chaos.bench import Bench, give_up, quiet
from benchmarks.chaos.run import Plan, Run
from features.folders import temporary_folder


def plans(asked: argparse.Namespace, bench: Bench) -> Iterator[Plan]:
    """Yield the plan of each run that the command line asks for."""

    def struck(seed: int, at: tuple[int, ...]) -> Plan:
        how = {"calm": True, "power": asked.power, "slurm": asked.slurm}
        return Plan(seed, asked.steps, at, asked.freeze, **how, backlog=asked.backlog)

    first, _, last = asked.seeds.partition(":") if asked.seeds else (asked.seed, "", "")
    seeds = range(int(first), int(last)) if last else [int(first)]
    for seed in seeds:
        if asked.at:
            named = tuple(map(int, asked.at.split(",")))
            yield struck(seed, named)
        elif asked.enumerate or asked.strike:
            for at in bench.points(struck(seed, ()), asked.strike)[:: asked.every]:
                yield struck(seed, (at,))
        else:
            yield Plan(seed, asked.steps, slurm=asked.slurm, backlog=asked.backlog)


def played(asked: argparse.Namespace, folder: Path) -> Iterator[tuple[Plan, Run]]:
    with Bench(folder, asked.url) as bench:
        for plan in plans(asked, bench):
            yield plan, bench.play(plan)


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play all runs that the command line asks for, with their files in `folder`. Return how many
    were played, what went wrong in which, and what happened in them.
    """
    wrong, found = list[str](), list[Run]()
    told_to_stop: list[int] = []

    def stop(number: int, _: object) -> None:
        told_to_stop.append(number)
        give_up()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    began, used = time.monotonic(), time.process_time()
    totals: Counter[str] = Counter()
    crashes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for plan, run in played(asked, folder):
        if told_to_stop:
            break
        totals.update(runs=1, points=run.points, simulated_s=round(run.seconds), **run.counts())
        crashes += run.crashes
        faults += run.faults
        lines = [f"{plan.told()}: {line}" for line in run.wrong]
        wrong += lines
        for line in lines[:3]:
            print(line, file=sys.stderr, flush=True)
        found = [run]
        if len(wrong) >= asked.most_wrong:
            break
    if asked.strike and not totals["runs"] and not told_to_stop:
        wrong.append(f"nothing was struck: no process comes by {asked.strike!r}")
        print(wrong[0], file=sys.stderr, flush=True)
    told: dict[str, Any] = {
        "database": "postgresql" if asked.url else "sqlite",
        **totals,
        "holds": not wrong,
        "wrong": len(wrong),
        "wrong_runs": len({line.partition(":")[0] for line in wrong}),
        "first_wrong": wrong[:20],
        "crashes": dict(crashes.most_common()),
        "faults": dict(faults.most_common()),
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(time.process_time() - used),
    }
    if totals["runs"] == 1:
        told["digest"] = found[0].digest
    return told


def played_in_memory(asked: argparse.Namespace) -> dict[str, Any]:
    """Play all runs with their files in /dev/shm, if this machine has it. Return the findings."""
    asked.url = os.environ.get("PELLUCID_TEST_DATABASE") if asked.database != "sqlite" else None
    if asked.database != "sqlite" and not asked.url:
        sys.exit("--database postgresql: run it by `python -m benchmarks.postgres -- ...`")
    quiet()
    memory = Path("/dev/shm")
    with temporary_folder("pellucid-chaos-", memory if memory.is_dir() else None) as folder:
        return measure(asked, folder)


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.chaos", *sys.argv[1:]])
    program(
        __doc__,
        None,
        played_in_memory,
        seed={"default": "0"},
        seeds={"default": "", "help": "FIRST:LAST, the last not included"},
        steps={"type": int, "default": 3000, "help": "in which things go wrong"},
        enumerate={"action": "store_true", "help": "every crash point of a calm run"},
        strike={
            "default": "",
            "metavar": "ROLE: NAME",
            "help": "only those of a calm run that are named so, whatever their number is today",
        },
        every={"type": int, "default": 1, "help": "only each so-manieth of them"},
        at={"default": "", "help": "a calm run, killed at these points: 12,97"},
        freeze={
            "type": float,
            "default": 0.0,
            "metavar": "SECONDS",
            "help": "stop the process there for so long, and do not kill it",
        },
        power={"action": "store_true", "help": "cut the host's power there instead"},
        slurm={"action": "store_true", "help": "two hosts in front of Slurm"},
        backlog={"type": int, "default": 0, "metavar": "JOBS", "help": "come at once"},
        database={"choices": ("sqlite", "postgresql"), "default": "sqlite"},
        most_wrong={"type": int, "default": 100, "help": "stop after so many findings"},
    )


if __name__ == "__main__":
    main()
