"""Measures how well the reader of output predicts how long real trainings by real libraries take.

    python -m benchmarks.printed.libraries --json [--only keras lightning] [--seconds 60] [--clock
    cpu]

Trains with each library of `trainings.py` that is installed, and plays what it printed, at the
times when it did, through the product's follower. Two predictions are judged: the one when a third
of the run is over (a profiling pass sees less of a longer job), and the one that is made from the
first run for a second run with another amount, at its submission. Libraries that are not installed
are named. `--clock cpu` takes all times in processor seconds of the training, which other programs
on the machine hardly change. `--keep` names a folder that keeps what was printed; what is there
already is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from math import log
from pathlib import Path
from typing import Any

from benchmarks.printed.__main__ import play
from benchmarks.printed.trainings import AMOUNTS, EPOCHS, TRAININGS
from features.amounts import Ran
from features.commands import of_command, work_of
from features.throughput import asked as at_submission

NEAR, NEAR_AGAIN = 1.1, 1.15  # what counts as right: of a run seen, of one at its submission
SEEN = 1 / 3  # share of a run after which it is judged
TRIAL_EPOCHS = 2
PLAIN_S = (
    4.0  # of processor time that a longer trial takes more: start-ups differ by about a second
)
MOST_TRIAL_EPOCHS = 200
SECOND = 0.6  # share of the first run's amount that the second asks for
PROGRAM = [sys.executable, "-m", "benchmarks.printed.trainings"]
NAMED = {"torch_plain": "torch", "torch_tqdm": "torch", "sklearn": "sklearn", "boosting": "sklearn"}


def trained(
    name: str, amount: int, rows: int, clock: str
) -> tuple[list[str], list[tuple[float, str]], float]:
    """Train with a library in a process of its own. Return the command, the pieces of its output,
    each with the seconds when it came, and the seconds that the training took. Raise SystemExit
    where it fails."""
    option, _ = AMOUNTS.get(name, EPOCHS)
    options = [name, option, str(amount), "--rows", str(rows)]
    parts, begun = list[tuple[float, str]](), time.monotonic()
    with subprocess.Popen(
        PROGRAM + options,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 65536):
            at = _processor_s(process.pid) if clock == "cpu" else time.monotonic() - begun
            parts.append((at, piece.decode(errors="replace")))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        at = _processor_s(process.pid) if clock == "cpu" else 0.0
    took_s = at or time.monotonic() - begun
    if process.returncode:
        raise SystemExit(f"{name} failed:\n" + "".join(text for _, text in parts)[-2000:])
    return ["python", "trainings.py", *options], parts, took_s


def _processor_s(pid: int) -> float:
    """Return the seconds of processor time that a process has used so far. The process may have
    ended, if nobody has waited for it yet."""
    return time.clock_gettime((~pid << 3) | 2)


def _an_epoch_s(name: str, rows: int) -> float:
    """Return the CPU seconds of one epoch (or of the rounds or steps that count as one), by the
    difference of two short runs. The second is made longer until it takes plainly longer than the
    first, or has at least `MOST_TRIAL_EPOCHS` epochs."""
    epochs, first_s = TRIAL_EPOCHS, _trial_s(name, TRIAL_EPOCHS, rows)
    while True:
        epochs *= 3
        longer_s = _trial_s(name, epochs, rows) - first_s
        if longer_s >= PLAIN_S or epochs >= MOST_TRIAL_EPOCHS:
            return max(0.001, longer_s / (epochs - TRIAL_EPOCHS))


def _trial_s(name: str, epochs: int, rows: int) -> float:
    """Return the CPU seconds of a run of so many epochs, its start included."""
    _, many = AMOUNTS.get(name, EPOCHS)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    trained(name, epochs * many, rows, "wall")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def run_twice(wanted: argparse.Namespace, name: str) -> Any:
    """Return the amount of the first run by a library, and both runs. The first takes about
    `wanted.seconds`; the second trains `SECOND` times the amount."""
    kept = Path(wanted.keep, f"{name}.json") if wanted.keep else None
    if kept is not None and kept.exists():
        return json.loads(kept.read_text("utf-8"))
    _, many = AMOUNTS.get(name, EPOCHS)
    amount = many * max(4, round(wanted.seconds / _an_epoch_s(name, wanted.rows)))
    runs = [
        trained(name, some, wanted.rows, wanted.clock) for some in (amount, round(SECOND * amount))
    ]
    if kept is not None:
        kept.write_text(json.dumps([amount, *runs]), "utf-8")
    return [amount, *runs]


def row(wanted: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return how the reader's predictions of two runs by a library compare with the true times,
    which are given too. A prediction is given as a share of the true time."""
    amount, (command, parts, took_s), (again, _, again_s) = run_twice(wanted, name)
    played = play(parts, took_s, of_command(command))
    bare = play(parts, took_s, None)
    seen, unasked = played.at(SEEN), bare.at(SEEN)
    first, second = work_of(command), work_of(again)
    assert first is not None
    assert second is not None
    foreseen = at_submission(second, 1, (Ran(first, 1, took_s),))
    return {
        "library": name,
        "amount": amount,
        "took_s": round(took_s, 1),
        "said": round(seen.total_s / took_s, 3) if seen else None,
        "said_without_command": round(unasked.total_s / took_s, 3) if unasked else None,
        "interval_holds": seen.low_s <= took_s <= seen.high_s if seen else None,
        "second_took_s": round(again_s, 1),
        "second_foreseen": round(foreseen.total_s / again_s, 3) if foreseen else None,
    }


def right(of: list[float | None], near: float) -> float:
    """Return the share of relative forecasts that are within a factor of the truth."""
    return round(sum(x is not None and abs(log(x)) <= log(near) for x in of) / max(1, len(of)), 3)


def main() -> None:
    """Measure every library that is installed. Print a row each, and how many were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="*", default=sorted(TRAININGS), choices=sorted(TRAININGS))
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="approximate length of the first run, seconds"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=4000,
        help=("number of rows of the data set; more rows make an epoch longer"),
    )
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--keep", default="", help="folder of what was printed")
    wanted = parser.parse_args()
    missing = [name for name in wanted.only if find_spec(NAMED.get(name, name)) is None]
    rows = list[dict[str, Any]]()
    for name in wanted.only:
        if name not in missing:
            rows.append(row(wanted, name))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    figures = {
        "libraries": len(rows),
        "right": right([one["said"] for one in rows], NEAR),
        "right_without_command": right([one["said_without_command"] for one in rows], NEAR),
        "second_right": right([one["second_foreseen"] for one in rows], NEAR_AGAIN),
        "not_installed": missing,
    }
    if not wanted.json:
        print(*rows, sep="\n")
    print(json.dumps(figures | ({"rows": rows} if wanted.json else {})))


if __name__ == "__main__":
    main()
