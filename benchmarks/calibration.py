"""How fast this machine is just now. That is the unit in which budgets of time are stated. Also
here is the command line that benchmarks share.

The same code takes three times as long on another machine, and half as long again on this one while
it is busy: a budget in seconds says little. `calibrate` times two loops that never change, one of
plain Python and one that reaches all over memory; their CPU time together is one unit, measured in
the same run as what is judged, before and after it. A budget file states

- `units_at_most`: a time (`..._s`, `..._ms`, `..._us`) over the unit;
- `per_unit_at_least`: a rate (`..._per_s`, `..._per_cpu_s`) times the unit;
- `at_most`, `at_least`: sizes, ratios and counts, which no clock changes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

SCALES = {"_s": 1.0, "_ms": 1e3, "_us": 1e6}  # a figure's ending and its parts of a second
PASSES = 7


def python_loop() -> int:
    """Do what a scheduler written in Python does: look up, compare, keep, sort. Return a value that
    depends on all of it.
    """
    source, kept = random.Random(0), dict[int, list[int]]()
    for i in range(200_000):
        key = (i * 7919) % 5003
        kept.setdefault(key, []).append(source.getrandbits(30))
    return sum(sorted(values)[0] for values in kept.values())


def memory_loop() -> int:
    """Make half a million reads at random places in 64 MiB, four times. Return a value that depends
    on all of them.
    """
    reach = np.arange(2**23, dtype=np.int64)
    where = np.random.default_rng(0).integers(0, len(reach), 500_000)
    return int(sum(int(reach[where].sum()) for _ in range(4)))


def calibrate(passes: int = PASSES) -> float:
    """Return one unit: CPU seconds of both loops together, the median over `passes` repeats."""
    times = []
    for _ in range(passes):
        begun = time.process_time()
        python_loop()
        memory_loop()
        times.append(time.process_time() - begun)
    return statistics.median(times)


class Calibration:
    """The unit of CPU time over a whole run. It is measured again when the verdict is asked
    for.
    """

    def __init__(self) -> None:
        self._before = calibrate()

    def judge(self, figures: Mapping[str, Any], file: Path) -> dict[str, Any]:
        """Compare figures with the budget in `file`. Return `unit_s` (the length of a unit in
        seconds), each limit converted to what its figure is measured in, and which figures exceed
        their limits.

        Figures that the budget names but that were not measured this time are not judged.
        """
        unit = (self._before + calibrate()) / 2
        budget = json.loads(file.read_text())
        most = {
            name: round(units * unit * _scale(name), 3)
            for name, units in budget.get("units_at_most", {}).items()
        } | budget.get("at_most", {})
        least = {
            name: round(amount / unit, 3)
            for name, amount in budget.get("per_unit_at_least", {}).items()
        } | budget.get("at_least", {})
        exceeded = [k for k, limit in most.items() if k in figures and not figures[k] <= limit]
        exceeded += [k for k, limit in least.items() if k in figures and not figures[k] >= limit]
        return {
            "unit_s": round(unit, 4),
            "at_most": most,
            "at_least": least,
            "exceeded": exceeded,
            "holds": not exceeded,
        }


def _scale(name: str) -> float:
    plain = name.removesuffix("_by_1000")  # of so many jobs
    return next(scale for end, scale in SCALES.items() if plain.endswith(end))


def program(
    doc: str | None,
    file: Path | None,
    measure: Callable[[argparse.Namespace], Mapping[str, Any]],
    *,
    positional: Collection[str] = (),
    **options: Mapping[str, Any],
) -> NoReturn:
    """Run a benchmark's command line: measure, and print the figures and the verdict on them as
    JSON. End the process, with status 1 when figures exceed the budget or the figure `holds` is
    false.

    Args:
        doc: docstring of the module; its first line is the help.
        file: file of the budget, for figures at the top level and one level below; None: no budget.
        measure: takes the parsed options and returns the figures by name.
        positional: options that are given without their name.
        options: for each option, by name, the keyword arguments of `argparse`'s `add_argument`.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON on one line")
    for name, how in options.items():
        dashes = "" if name in positional else "--"
        parser.add_argument(f"{dashes}{name.replace('_', '-')}", **how)
    asked = parser.parse_args()
    calibration = Calibration() if file is not None else None
    figures = dict(measure(asked))
    if calibration is not None and file is not None:
        parts = [*(part for part in figures.values() if isinstance(part, Mapping)), figures]
        verdict = calibration.judge({k: v for part in parts for k, v in part.items()}, file)
        figures |= {"budget": verdict, "holds": verdict["holds"] and figures.get("holds", True)}
    print(json.dumps(figures, indent=None if asked.json else 2))
    sys.exit(0 if figures.get("holds", True) else 1)


def spent(*command: str, cwd: Path | None = None) -> tuple[str, float]:
    """Run a command. Return what it prints, and the CPU seconds that its process took, user and
    system time together.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def level(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of the values do not exceed; NaN if there
    are no values.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
