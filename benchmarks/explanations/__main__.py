"""The audit of explanations: checks by trial what answers state about waiting jobs.

    python -m benchmarks.explanations --json [--quick] [--only WORLD ...] [--waits N]
    python -m benchmarks.explanations --forecasts 3 4 5 6
    python -m benchmarks.explanations --deep

Plays eight simulated worlds (`worlds.py`) and runs two services (`live.py` in one process;
`running.py` in several, asked over HTTP). At moments of each, it asks why some of the waiting jobs
wait. A judge (`judge.py`) carries out what the answers say on the deciding core, in a forked
process. The first figures are shares of the answers:

- `named`: it names somebody or something in the way, besides the GPUs needed and free;
- `necessary`: with all that is named gone, the job gets GPUs at once (or, where the answer says
  that it would wait even then, it waits);
- `minimal`: with one of several named obstacles left, it still waits;
- `specific`: with as many other obstacles of the same kinds gone instead, it still waits;
- `fresh`: every number, in words too, is that of an account kept from decisions and ends alone.

Further figures:

- `sentences`: of the services, how often each kind of sentence (`sentences.py`) is right in the
  answers of API, command line and page, by the log as it was then, which the judge reads by itself;
  `right`: of the kind that is right least often;
- `services`: about a thousand questions, most while the machine is busy: the share that was
  answered, and not wrongly, and the age of the answers;
- `counterfactuals`: the share of suggested changes that came true: a start at once is tried on the
  core, an earlier start (`earlier_true`) by playing the same world on with the change.
  `other_than_fewer_gpus`: share of the waits asked about with a suggestion other than fewer GPUs;
- `stable`: how far the first three reasons of predictions, as users see them, agree from one fit of
  the model to the next;
- `ends`: the number of worlds in which as many of the named runs had ended by the stated time as
  the words say (nine in ten), within five points; further draws of each world count, too;
- `readable`: words of what `pellucid why` prints, and the shares with a reason code or a raw
  feature name;
- `forecasts`: the shares of jobs, and of batches (what one user sends within an hour), that started
  by the p90 of their forecast, also by length of the promised wait, with the distance from p50 to
  p90. Crude forecasts are counted apart. Pinball losses stand beside those of a moving average of
  recent waits and of the crude rule. Forecasts of the running service are read from its log. How
  forecasts are made was chosen on the other half of `benchmarks/worlds.yaml`, `chosen`.

Prints whether the bounds of `explanations_budget.json` hold; a bound on what was not measured does
not. A world that needs the shared data is left out without it, and named. `--forecasts` makes only
forecasts and ends, in replicates of the simulated worlds (their seeds are given), and judges no
answer. `--deep` times answers in a line of 10,000 jobs (`deep.py`).
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
