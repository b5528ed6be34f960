"""The judge of reason codes finds planted lies and gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.slurm.reasons import CASES, Asked, judge, report
from scheduler.explain.effect import Tried
from scheduler.explain.whatif.forecasts import StartForecast, WhyNot, kept_back
from scheduler.slurm.reason import LimitReached, SlurmReason
from scheduler.slurm.twin.known import lines

LIMIT = LimitReached("MaxTRESPU", "gres/gpu", "user u in QOS q", limit=1.0, used=1.0, asked=1.0)
RIGHT = SlurmReason("QOSMaxGRESPerUser", limit=LIMIT)
ONE = LimitReached("MaxTRESPerJob", "node", "QOS q", limit=1.0, used=0.0, asked=2.0, ever=False)
WIDE = SlurmReason("QOSMaxNodePerJobLimit", limit=ONE)
STARTS = StartForecast(0.0, 5.0, 9.0)
NEVER = kept_back(0.0, WhyNot.LIMITED)


def asked(code: str) -> Asked:
    (case,) = (case for case in CASES if case.code == code)
    return Asked(case, "7", own="QOS q", seen=code)


@pytest.mark.parametrize(
    ("code", "reason", "made", "false", "short"),
    [
        ("QOSMaxGRESPerUser", RIGHT, STARTS, 0, 0),
        ("QOSMaxGRESPerUser", RIGHT, NEVER, 1, 0),
        ("QOSMaxGRESPerUser", replace(RIGHT, limit=None, lapsed=True), None, 1, 1),
        ("QOSMaxGRESPerUser", replace(RIGHT, code="Priority"), None, 1, 0),
        ("QOSMaxNodePerJobLimit", replace(WIDE, code="Resources"), None, 0, 0),  # backfill's
        ("QOSMaxNodePerJobLimit", replace(WIDE, code="Priority"), None, 1, 0),
        ("QOSMaxGRESPerUser", replace(RIGHT, limit=replace(LIMIT, used=3.0)), None, 0, 1),
        ("JobHeldUser", SlurmReason("JobHeldUser"), None, 0, 0),
        ("JobHeldUser", SlurmReason("JobHeldUser"), STARTS, 1, 0),
    ],
)
def test_what_is_false_and_what_is_short(
    code: str, reason: SlurmReason, made: StartForecast | None, false: int, short: int
) -> None:
    one = asked(code)
    judge(one, reason, "7", made)
    assert (len(one.false), len(one.short)) == (false, short), (one.false, one.short)


def test_the_last_line_counts() -> None:
    right, wrong, absent = asked("JobHeldUser"), asked("Priority"), asked("Resources")
    wrong.false, absent.seen = ["a lie"], ""
    offered = Tried(1.0, 1.0, command="scontrol update jobid=7 timelimit=5", by_slurm=True)
    right.offer, wrong.offer, absent.offer = offered, offered, replace(offered, by_slurm=False)
    wrong.refused, absent.stayed, right.took_s, wrong.cpu_s = "Access denied", "Priority", 2.0, 1.0
    *said, last, of_offers = report([right, wrong, absent], 12.0)
    assert last == "2 of 3 codes came about in 12 s: 1 answers right, 0 short, 1 false"
    assert of_offers == (
        "3 offers (2 by sbatch --test-only, too), 1 refused; 1 of 2 that were to start at once "
        "did; a question took 2.0 s at most (1.0 of processor)"
    )
    assert "Priority: offer REFUSED: scontrol update jobid=7 timelimit=5: Access denied" in said
    assert "Resources: not at once: scontrol update jobid=7 timelimit=5: Priority" in said


def test_each_case_is_of_a_code_that_the_table_names_and_of_no_other_s() -> None:
    codes = [case.code for case in CASES]
    assert len(codes) == len(set(codes)) >= 60
    named = {line.split()[1].rstrip(":") for line in lines() if line.startswith("Reason ")}
    assert set(codes) <= named
