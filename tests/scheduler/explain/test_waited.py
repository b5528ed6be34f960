"""What is said of a wait that passed the policy's bound, number by number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.findings import Promise
from scheduler.explain.life import JobFacts
from scheduler.explain.story import build_story
from scheduler.explain.waited import bound_words, passed_bound

HOUR_S = 3600.0
WAITS = Decision(0, 4 * HOUR_S, Action.WAIT, Reason.GPUS_BUSY, "a", "vc")


@pytest.mark.parametrize(
    ("promise", "evidence", "words"),
    [
        (Promise(4 * HOUR_S, 0.0), {}, ""),
        (
            Promise(3 * HOUR_S, 60.0, demand=1.5),
            {"bound_s": 3 * HOUR_S, "bound_left_s": 60.0, "bound_times": 1.5},
            "3 h, but the bound does not apply yet: all jobs together asked for 1.50 times as many "
            "GPUs as there are for this job, and such demand makes the bound longer.",
        ),
        (
            Promise(9 * HOUR_S, 60.0, priced_s=2 * HOUR_S, costs_s=HOUR_S),
            {"bound_s": 2 * HOUR_S, "bound_left_s": 60.0, "bound_costs_s": HOUR_S},
            "2 h, but the bound does not apply yet: if it went first, the other jobs would wait "
            "1 h "
            "longer, added up.",
        ),
        (
            Promise(9 * HOUR_S, 60.0, priced_s=2 * HOUR_S),
            {"bound_s": 2 * HOUR_S, "bound_left_s": 60.0},
            "2 h, but the bound does not apply yet: what going first would cost the others had not "
            "been worked out.",
        ),
        (
            Promise(3 * HOUR_S, 0.0),
            {"bound_s": 3 * HOUR_S, "bound_left_s": 0.0},
            "3 h, and so it went before all jobs that had waited less than the bound; GPUs are "
            "kept "
            "for one such job at a time, and that was job second.",
        ),
    ],
)
def test_what_is_recorded_of_the_bound_and_said_of_it(
    promise: Promise, evidence: dict[str, float], words: str
) -> None:
    late = promise.late(4 * HOUR_S)
    assert dict(late) == evidence
    kept = replace(WAITS, reason=Reason.RESERVED_FOR_STARVING_JOB, blocker="first")
    own = [kept, replace(kept, blocker="second"), replace(WAITS, evidence=late)]
    told = bound_words(passed_bound(JobFacts("a", 1, 0.0, 0.0), own), still=True)
    begins = "the bound after which a job goes first"
    said = words.replace(" h,", f" h, {begins},", 1)
    assert told == (words and f"It waited longer than {said}")


def test_what_came_of_it_where_gpus_were_kept_for_it() -> None:
    kept = replace(WAITS, action=Action.RESERVE, evidence=(("bound_s", HOUR_S),))
    began = replace(WAITS, time=6 * HOUR_S, action=Action.START)
    found = passed_bound(JobFacts("a", 1, HOUR_S, 0.0), [kept, began])
    assert bound_words(found, still=False) == (
        "It waited longer than 1 h, the bound after which a job goes first. GPUs were kept for "
        "it 3 "
        "h after its submission. It then waited 2 h more for the jobs on them to end."
    )


def test_what_held_up_gpus_that_were_kept_late_is_said() -> None:
    promise = Promise(3 * HOUR_S, 60.0, demand=3.58)
    waits = replace(WAITS, evidence=promise.late(4 * HOUR_S))
    kept = replace(WAITS, time=5 * HOUR_S, action=Action.RESERVE)
    late = (("bound_s", 3 * HOUR_S), ("bound_left_s", 0.0))
    began = replace(WAITS, time=6 * HOUR_S, action=Action.START, evidence=late)
    found = passed_bound(JobFacts("a", 1, 0.0, 0.0), [waits, kept, began])
    assert bound_words(found, still=False) == (
        "It waited longer than 3 h, the bound after which a job goes first. GPUs were kept for it "
        "only 5 h after its submission: all jobs together asked for 3.58 times as many GPUs as "
        "there are for this job, and such demand makes the bound longer. It then waited 1 h "
        "more for the jobs on them to end."
    )


def test_gpus_kept_for_the_first_in_line_are_not_kept_for_its_wait() -> None:
    """Where `keeps_for_first` keeps them from the start, no bound has to pass."""
    first = replace(WAITS, action=Action.RESERVE, reason=Reason.PRIORITY)
    late = (("bound_s", 2 * HOUR_S), ("bound_left_s", 0.0))
    waits = replace(WAITS, time=4 * HOUR_S, evidence=late)
    found = passed_bound(JobFacts("a", 1, 0.0, 0.0), [first, waits])
    assert "GPUs were kept for it" not in bound_words(found, still=True)


THAT = "that does not count as waiting."


@pytest.mark.parametrize(
    ("started", "words"),
    [
        (
            9.5,
            "did not have to wait. Besides, it was kept from starting for 9 s (waits for a job "
            f"that it depends on); {THAT}",
        ),
        (
            None,
            "has not waited. Besides, it was kept from starting for 9 s (waits for a job that it "
            f"depends on); {THAT}",
        ),
    ],
)
def test_what_is_evaluated_at_once_has_not_waited_for_that(
    started: float | None, words: str
) -> None:
    decisions = [
        Decision(0, 0.25, Action.WAIT, Reason.DEPENDENCY_NOT_MET, "j", "vc"),
        Decision(1, 9.25, Action.ENQUEUE, Reason.DEPENDENCY_MET, "j", "vc"),
        Decision(2, 9.5, Action.START, Reason.EXCLUSIVE_GPUS, "j", "vc"),
    ][: 3 if started else 1]
    job = JobFacts("j", 4, 0.0, 0.0, start_time=started)
    told = build_story(job, decisions, until=20.0 if started else 9.25)
    assert told.wait == f"Job j (4 GPUs) {words}"


def test_what_its_array_keeps_back_depends_on_nothing() -> None:
    """Of --array 0-9%1 a task waits for the one before, which its owner did not ask for."""
    behind = Decision(0, 0.25, Action.WAIT, Reason.ARRAY_LIMIT, "a_1", "vc", blocker="a_0")
    told = build_story(JobFacts("a_1", 4, 0.0, 0.0), [behind], until=9.25)
    assert "kept from starting for 9 s (array limit: its other tasks go first)" in told.wait
    another = replace(behind, reason=Reason.DEPENDENCY_NOT_MET, blocker="b")
    other = build_story(JobFacts("a_1", 4, 0.0, 0.0), [another], until=9.25)
    assert "(waits for a job that it depends on)" in other.wait
