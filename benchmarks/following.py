"""Checks whether a core that follows another core's log comes to decide exactly as that core does.

    python -m benchmarks.following [--only NAME ...] [--data ../shared/data]

Plays the runs of `benchmarks.digests` on two cores at once. The second core hears the same events.
In turns, it takes over the first core's decisions for a while, then decides for itself for a while.
Each time that it decides, its decisions have to equal the first core's to the last digit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.digests import RUNS
from features.codec import decode, encode
from pipeline.worlds import Scenario
from scheduler.core.core import Core
from scheduler.core.memory import CoreMemory, remember, restore
from scheduler.testing.shadow import Shadowed


def made_again(scenario: Scenario, policy: str) -> Callable[[Core], Core]:
    """Return a function that takes a core and returns a new one, made from the first core's state
    after that was written to JSON and read back.
    """

    def make(core: Core) -> Core:
        body = json.loads(json.dumps(encode(remember(core))))
        made = scenario.core(policy)
        made.estimator, made.oracle = core.estimator, core.oracle
        restore(made, decode(CoreMemory, body))
        return made

    return make


def play(name: str, data: Path, *, restored: bool = True, **more: Any) -> Shadowed:
    """Simulate one scenario with two cores, where the second follows the decisions of the first.
    Return the shadowed core, which counts the differences.
    """
    world, policy = RUNS[name]
    scenario = world(data)
    again = made_again(scenario, policy) if restored else None
    core = Shadowed(scenario.core(policy), lambda: scenario.core(policy), again, **more)
    scenario.play(core)  # type: ignore[arg-type]
    return core


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    of_service = [name for name in RUNS if name.endswith(("pellucid", "easy", "fifo"))]
    parser.add_argument("--only", nargs="+", default=of_service, choices=RUNS, metavar="NAME")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--thorough", action="store_true", help="also compare the memory of both cores (slow)"
    )
    arguments = parser.parse_args()
    differing = 0
    for name in arguments.only:
        began = time.perf_counter()
        found = play(name, arguments.data, thorough=arguments.thorough)
        differing += bool(found.differences)
        print(f"{name}: {found.summary()}, {time.perf_counter() - began:.0f} s", flush=True)
        for line in found.differences[:5]:
            print(f"  {line}")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
