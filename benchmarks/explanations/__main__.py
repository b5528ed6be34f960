"""The audit of explanations: what is said of waiting jobs is tried out.

    python -m benchmarks.explanations --json [--quick] [--only WORLD ...] [--waits N]
    python -m benchmarks.explanations --forecasts 3 4 5 6
    python -m benchmarks.explanations --deep

Plays eight simulated worlds (`worlds.py`) and lets two services live (`live.py`, in one process;
`running.py`, in several and asked over HTTP), stops at moments of each, asks why some of the jobs
that wait do, and hands the answers to a judge (`judge.py`) who carries them out on the core that
decides, in a forked process:

- `named`: somebody or something is in the way beside need and free GPUs;
- `necessary`: with what is named gone, the job is given GPUs at once (or, where it was said that
  it would wait even then, it waits);
- `minimal`: with one of several that are named left, it still waits;
- `specific`: with as many others of the same kinds gone instead, it still waits;
- `fresh`: every number, in words too, is that of an account kept from decisions and ends alone;
- `sentences`: of services, every kind of sentence of an answer (`sentences.py`): asked for from
  outside, by API, command line and page, and judged by the log as it was then, which the judge
  reads by itself; `right`: of the kind that is right least;
- `services`: a thousand questions, most while the machine is busy: truly answered, the age of
  answers, and ends told at even odds, kept;
- `counterfactuals`: what would help, done; a start at once by the core itself, an earlier one
  (`earlier_true`) by playing the very world on with the change. `other_than_fewer_gpus`:
  share of the waits asked about with such a one;
- `stable`: how far the first three reasons of predictions, as they are shown, agree from one fit
  to the next;
- `ends`: worlds in which as many of the runs that were named had ended by then as the words say
  (nine in ten), within five points, over further draws of each world too;
- `readable`: words of what `pellucid why` prints; shares with a reason code, a raw feature name;
- `forecasts`: starts kept by their p90, over jobs and over batches (what one user sends within
  an hour), by promised wait (minutes, hours, days; how many) with the width between even odds and
  p90, crude ones apart, over the same draws, those of the running service as its log has them;
  pinball loss beside a moving average of recent waits and the crude rule. What forecasts are made
  of was chosen on the other half of `benchmarks/worlds.yaml`, `chosen`.

Prints whether the bounds of `explanations_budget.json` hold; what was not measured does not hold.
A world that needs the shared data is left out without it, and said to be. `--forecasts` makes only
forecasts and ends, in replicates of the simulated worlds (their seeds are given), and judges no
answer;
`--deep` times answers in a line of 10,000 (`deep.py`).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration, program
from benchmarks.explanations import deep
from benchmarks.explanations.figures import (
    NAMES,
    REPLICATES,
    draws,
    figures,
    of_forecasts,
    one,
    verdict,
)

WAITS, QUICK = 130, 12  # of each world


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of the audit, or of one of the other measurements."""
    if asked.deep:
        return deep.measure(asked.waits or deep.ANSWERS, asked.seed)
    waits = asked.waits or (QUICK if asked.quick else WAITS)
    if asked.forecasts:
        return of_forecasts(asked.only, asked.data, asked.forecasts, waits)
    calibration = Calibration()
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        begun = [
            pool.submit(one, name, asked.data, seed, waits, judged=seed == asked.seed)
            for name, seed in draws(asked.only, asked.seed, 0 if asked.quick else REPLICATES)
        ]
        told = figures([run.result() for run in begun])
    bounds = verdict(told, calibration)
    return told | {"budget": bounds, "holds": bounds["holds"]}


def main() -> None:
    program(
        __doc__,
        None,
        measure,
        only={"nargs": "+", "default": NAMES, "choices": NAMES, "metavar": "WORLD"},
        waits={"type": int, "help": "of each world; with --deep, answers (60)"},
        quick={"action": "store_true", "help": f"{QUICK} waits of each world"},
        seed={"type": int, "default": 3},
        data={"type": Path, "default": Path("../shared/data")},
        workers={"type": int, "default": 2},
        deep={"action": "store_true", "help": "time answers in a line of 10,000 instead"},
        forecasts={"nargs": "+", "type": int, "metavar": "SEED", "help": "only these"},
    )


if __name__ == "__main__":
    main()
