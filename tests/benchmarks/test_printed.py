"""Logs of our own writing, and what a reader of them is judged by."""

from __future__ import annotations

import random
import shlex

import pytest

from benchmarks.printed import kept, shapes
from benchmarks.printed.__main__ import HALVES, KNOWN, MOMENTS, Played, drawn, judged, play
from benchmarks.printed.case import Case
from features.commands import of_command
from features.progress import Progress

NAMES = [case.name for case in HALVES["reported"][1]]


def test_every_shape_has_a_name_of_its_own_and_there_are_150_logs() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert len(NAMES) >= 150
    assert not {case.name for case in kept.CASES} & {case.name for case in KNOWN}


@pytest.mark.parametrize("case", HALVES["reported"][1], ids=NAMES)
def test_a_log_is_a_function_of_time_that_ends(case: Case) -> None:
    run, command = case.run(random.Random(f"{case.name} test"))
    times = [at for at, _ in run.parts]
    assert times == sorted(times)
    assert times[-1] <= run.now
    assert times[-1] > 0.4 * run.now  # what is longer silent says nothing of its end
    assert shlex.split(command)
    again, _ = case.run(random.Random(f"{case.name} test"))
    assert again.parts == run.parts


def test_halves_draw_other_numbers() -> None:
    one, two = (next(iter(drawn(half, 1, "bracketed")))[2] for half in HALVES)
    assert one.sizes != two.sizes


def test_a_log_is_played_to_the_product_s_follower() -> None:
    case, command, run = next(iter(drawn("chosen", 1, "bracketed")))
    played = play(run.parts, run.now, of_command(shlex.split(command)))
    assert played.reports
    assert judged([(case, played)])["read_well"] == 1.0


def _said(total_s: float, width: float) -> Played:
    one = Progress(total_s, total_s / width, total_s * width, 1, 2, "epoch", 1, 50, "epoch")
    return Played(1000.0, [(50.0, one)], 0.0)


@pytest.mark.parametrize(
    ("total_s", "width", "well", "coverage", "worst"),
    [
        (1000.0, 1.1, 1.0, 1.0, 0),
        (1150.0, 1.05, 1.0, 0.0, 0),  # near enough, though its interval is too narrow
        (1500.0, 1.1, 0.0, 0.0, 0),
        (3000.0, 1.1, 0.0, 0.0, 1),
        (3000.0, 5.0, 1.0, 1.0, 0),
    ],
)
def test_what_is_said_is_judged(
    total_s: float, width: float, well: float, coverage: float, worst: int
) -> None:
    found = judged([(shapes.CASES[0], _said(total_s, width))])
    assert (found["read_well"], found["coverage"]) == (well, coverage)
    assert (found["narrow_and_wrong"], found["said"]) == (worst, 1.0)


def test_what_is_said_late_is_not_read_well() -> None:
    late = Played(1000.0, [(800.0, _said(1000.0, 1.1).reports[0][1])], 0.0)
    found = judged([(shapes.CASES[0], late)])
    assert found["read_well"] == 0.0
    assert found["said"] == 1 / len(MOMENTS)
