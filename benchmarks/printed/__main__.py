"""Measures how well the reader of output predicts how long a job will run.

    python -m benchmarks.printed --json [--half chosen|reported] [--draws 2] [--only NAME]

Each log is drawn from a shape (`shapes.py`, `more.py`, `field.py`, `public.py`, `pasted.py`),
played at its own speed, and read as a service does, with what its command asks for and without. The
forecasts that stand at 10, 30, 60 and 90 % of the run are judged: one is good if it is within a
quarter of the truth, or if the truth lies in its interval (nine in ten). The reader is worked on
with the half `chosen`; `reported`, which is judged, draws other numbers and adds shapes of its own
(`kept.py`). Prints whether `printed_budget.json` holds.
"""

from __future__ import annotations

import argparse
import random
import shlex
import time
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.calibration import program
from benchmarks.printed import field, kept, more, pasted, public, shapes
from benchmarks.printed.case import Case
from features.amounts import Amount
from features.commands import of_command
from features.progress import Progress
from profiler.progress.news import Follower
from profiler.progress.tail import Tail

BUDGET = Path(__file__).parents[1] / "printed_budget.json"
MOMENTS = 0.1, 0.3, 0.6, 0.9  # shares of a run
NEAR = 1.25  # a total within this factor is good whatever its interval
NARROW = 0.35  # standard error of ln(total), below which being off by FAR is the worst there is
FAR = 2.0
KNOWN = shapes.CASES + more.CASES + field.CASES + public.CASES + pasted.CASES
HALVES = {"chosen": (1, KNOWN), "reported": (3, KNOWN + kept.CASES)}


class Played(NamedTuple):
    """What the reader said about a log over time.

    Attributes:
        reports: each forecast, with the seconds since the run began.
        read_s: CPU seconds of the follower.
    """

    took_s: float
    reports: list[tuple[float, Progress]]
    read_s: float

    def at(self, share: float) -> Progress | None:
        """Return the latest forecast reported by this share of the run; None if there was none."""
        said = [one for at, one in self.reports if at <= share * self.took_s]
        return said[-1] if said else None


def play(parts: Sequence[tuple[float, str]], took_s: float, amount: Amount | None) -> Played:
    """Write a log bit by bit, and read it as often as a service does. Return what the follower
    reported, with times."""
    reports, at, i, read_s = list[tuple[float, Progress]](), 0.0, 0, 0.0
    with TemporaryDirectory() as folder:
        output = Path(folder, "output")
        follower = Follower(Tail(output, amount))
        with output.open("ab", buffering=0) as file:
            while at < took_s:
                at += max(1.0, min(60.0, 0.02 * at))
                begin = i
                while i < len(parts) and parts[i][0] <= at:
                    i += 1
                file.write("".join(text for _, text in parts[begin:i]).encode())
                begun = time.thread_time()
                news = follower.look(at)
                read_s += time.thread_time() - begun
                if news is not None:
                    reports.append((at, news))
    return Played(took_s, reports, read_s)


def good(found: Progress, took_s: float) -> bool:
    """Return whether a forecast is within the factor `NEAR` of the truth, or its interval holds the
    truth."""
    return abs(log(found.total_s / took_s)) <= log(NEAR) or found.low_s <= took_s <= found.high_s


def wrong(found: Progress, took_s: float) -> bool:
    """Return whether a forecast is off by more than the factor `FAR`, though its stated error is
    below `NARROW`."""
    return abs(log(found.total_s / took_s)) > log(FAR) and found.error < NARROW


def drawn(half: str, draws: int, only: str) -> Iterator[tuple[Case, str, Any]]:
    """Yield `draws` logs of each case of a half whose name contains `only`: the case, its command,
    and its run."""
    seed, cases = HALVES[half]
    for case in cases:
        if only not in case.name:
            continue
        for i in range(draws):
            run, command = case.run(random.Random(f"{case.name} {seed} {i}"))
            yield case, command, run


def judged(played: Sequence[tuple[Case, Played]]) -> dict[str, float]:
    """Return the figures of logs that were played."""
    at = [(one.at(share), one.took_s) for _, one in played for share in MOMENTS]
    said = [(found, took_s) for found, took_s in at if found is not None]
    late = [one.at(share) for _, one in played for share in MOMENTS[2:]]
    worst = [case.name for case, one in played if any(wrong(f, one.took_s) for _, f in one.reports)]
    well = [_well(one) for _, one in played]
    return {
        "logs": len(played),
        "read_well": round(sum(well) / len(played), 4),
        "said": round(len(said) / len(at), 4),
        "said_from_60": round(sum(found is not None for found in late) / len(late), 4),
        "coverage": round(sum(f.low_s <= t <= f.high_s for f, t in said) / max(1, len(said)), 4),
        "loss": round(sum(abs(log(f.total_s / t)) for f, t in said) / max(1, len(said)), 4),
        "width": round(
            exp(sum(log(f.high_s / max(f.low_s, 1)) for f, _ in said) / max(1, len(said))), 3
        ),
        "narrow_and_wrong": len(worst),
    }


def _well(one: Played) -> bool:
    """Return whether all judged forecasts are good, and there is one at 30, 60 and 90 % of the run."""
    said = [one.at(share) for share in MOMENTS]
    return all(found is not None for found in said[1:]) and all(
        good(found, one.took_s) for found in said if found is not None
    )


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Play every log with its command and without. Return the figures."""
    with_command, without = list[tuple[Case, Played]](), list[tuple[Case, Played]]()
    written, read_s, took_s, rows = 0, 0.0, 0.0, []
    for case, command, run in drawn(asked.half, asked.draws, asked.only):
        amount = of_command(shlex.split(command))
        one = play(run.parts, run.now, amount)
        with_command.append((case, one))
        without.append((case, play(run.parts, run.now, None)))
        written += sum(len(text) for _, text in run.parts)
        read_s, took_s = read_s + one.read_s, took_s + run.now
        if asked.show:
            rows.append(_row(case, one, without[-1][1]))
    if asked.show:
        print(*rows, sep="\n")
    if not with_command:
        raise SystemExit(f"no shape has {asked.only!r} in its name")
    new = {case.name for case in kept.CASES}
    unseen = [pair for pair in with_command if pair[0].name in new]
    figures = {
        "half": asked.half,
        "with_command": judged(with_command),
        "without_command": {f"bare_{k}": v for k, v in judged(without).items()},
        "written_mib": round(written / 2**20, 1),
        "core_pct": round(100 * read_s / took_s, 3),
        "unread": sorted({case.name for case, one in with_command if not one.reports}),
    }
    if unseen:
        figures["unseen"] = {f"unseen_{k}": v for k, v in judged(unseen).items()}
    return figures


def _row(case: Case, one: Played, bare: Played) -> str:
    words = []
    for played in (one, bare):
        for share in MOMENTS:
            found = played.at(share)
            if found is None:
                words.append("-".ljust(17))
                continue
            low, mid, high = (x / played.took_s for x in (found.low_s, found.total_s, found.high_s))
            sign = (
                "" if good(found, played.took_s) else "!!" if wrong(found, played.took_s) else "!"
            )
            words.append(f"{mid:.2f} ({low:.2f}-{high:.2f}){sign}".ljust(17))
        words.append("|")
    last = one.reports[-1][1] if one.reports else None
    how = f"{last.source}/{last.unit}/{last.of:g} {last.doubts}" if last else "UNREAD"
    worst = "WORST " if any(wrong(f, one.took_s) for _, f in one.reports) else ""
    return f"{'ok ' if _well(one) else 'BAD'} {worst}{case.name[:30]:30s} {one.took_s:7.0f} {' '.join(words)} {how}"


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measured,
        half={"choices": sorted(HALVES), "default": "reported"},
        draws={"type": int, "default": 2, "help": "logs of each shape"},
        only={"default": "", "help": "shapes with this in their name"},
        show={"action": "store_true", "help": "a line a log, and what was said of it"},
    )
