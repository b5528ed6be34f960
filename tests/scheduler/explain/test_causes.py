"""All that wait, counted by cause."""

from __future__ import annotations

from pipeline.printed.causes import lines
from scheduler.core.decisions import Reason
from scheduler.explain.causes import HOLDERS, Other, Waiting, causes_of, of_slurm
from scheduler.explain.reasons import next_step
from scheduler.slurm.reason import LimitReached, SlurmReason

NOW = 10_000.0
BUSY = Reason.GPUS_BUSY.value


def test_each_job_is_counted_once_and_the_cause_of_most_gpus_is_first() -> None:
    waits = [
        Waiting("1", 2, BUSY, since=NOW - 60),
        Waiting("2", 1, "", since=None),
        Waiting("3", 4, BUSY, since=NOW - 3600),
        Waiting("4", 9, "held", since=NOW),
    ]
    found = causes_of(waits, {}, NOW)
    assert (found.waiting, found.gpus) == (4, 16)
    assert [(one.code, one.jobs, one.gpus) for one in found.causes] == [
        ("held", 1, 9), (BUSY, 2, 6), ("", 1, 1)
    ]  # fmt: skip
    assert [(one.example, one.oldest) for one in found.causes] == [
        ("4", NOW), ("3", NOW - 3600), ("2", None)
    ]  # fmt: skip
    assert found.causes[1].step == next_step(Reason.GPUS_BUSY)
    assert found.causes[2].text == "not evaluated yet"
    said = lines(found)
    assert said[0] == "4 jobs wait, for 16 GPUs in all."
    assert [line.split()[:2] for line in said[2:5]] == [["1", "9"], ["2", "6"], ["1", "1"]]


def test_only_who_may_be_shown_is_named_and_nobody_waits_for_themselves() -> None:
    waits = [
        Waiting("1", 2, BUSY, waits_for=frozenset({"1", "7", "another job"})),
        Waiting("2", 5, BUSY, waits_for=frozenset({"7", "8"})),
    ]
    others = {"1": Other("1", "ada", "queued"), "7": Other("7", "bob", "running")}
    found = causes_of(waits, others, NOW)
    assert [(one.job_id, one.owner, one.jobs, one.gpus) for one in found.waited_for] == [
        ("7", "bob", 2, 7)
    ]
    many = {str(n): Other(str(n), "ada", "running") for n in range(2 * HOLDERS)}
    for_all = [Waiting("x", 1, BUSY, waits_for=frozenset(many))]
    assert len(causes_of(for_all, many, NOW).waited_for) == HOLDERS


def test_those_whom_the_same_limit_of_slurms_keeps_are_of_one_cause() -> None:
    def at(whose: str) -> SlurmReason:
        limit = LimitReached("MaxTRESPU", "gres/gpu", whose, 8.0, 8.0, 4.0)
        return SlurmReason("QOSMaxGRESPerUser", limit=limit)

    depends = SlurmReason("Dependency", dependency="afterok:12(unfulfilled),afterany:13_4")
    waits = [
        *(of_slurm(str(n), 1, None, at("QOS limited")) for n in range(3)),
        of_slurm("5", 1, None, at("QOS other")),
        of_slurm("6", 1, None, depends),
    ]
    assert waits[-1].waits_for == {"12", "13_4"}
    found = causes_of(waits, {}, NOW)
    assert [(one.jobs, one.text) for one in found.causes] == [
        (3, "QOSMaxGRESPerUser: QOS limited (MaxTRESPU gres/gpu)"),
        (1, "Dependency: other jobs have to end first"),
        (1, "QOSMaxGRESPerUser: QOS other (MaxTRESPU gres/gpu)"),
    ]


def test_where_nobody_waits_a_line_says_so() -> None:
    assert lines(causes_of([], {}, NOW)) == ["No job waits."]


def test_a_row_of_several_jobs_counts_as_all_of_them_everywhere() -> None:
    """What the database groups comes as one row; who waits for 7 is three jobs, not one."""
    rows = [Waiting("1", 6, BUSY, jobs=3, waits_for=frozenset({"7"}))]
    found = causes_of(rows, {"7": Other("7", "bob", "running")}, NOW)
    assert (found.waiting, found.causes[0].jobs, found.waited_for[0].jobs) == (3, 3, 3)
