"""What is said of a wait that passed the policy's bound, number by number."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.findings import Promise
from scheduler.explain.explanation import Waited
from scheduler.explain.life import Held, JobFacts
from scheduler.explain.story import build_story
from scheduler.explain.waited import (
    _over_time,
    as_predicted,
    bound_words,
    gpu_hours,
    passed_bound,
)
from scheduler.explain.words import phrase

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


@dataclass
class Spell:
    """All of a wait for one reason."""

    share: float
    reason: str = Reason.GPUS_BUSY.value
    seconds: float = HOUR_S
    spells: int = 1


def a_wait(gpus: int, vc: str | None, seconds: float, **more: object) -> Waited:
    return Waited(gpus=gpus, vc=vc, seconds=seconds, **more)  # type: ignore[arg-type]


ONE = Held("x", "vc", 1, HOUR_S, 2 * HOUR_S, None, None)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (a_wait(1, None, 2 * HOUR_S), ". 1 GPU for that long is 2 GPU hours."),
        (a_wait(2, None, 2 * HOUR_S), ". 2 GPUs for that long are 4 GPU hours."),
        (a_wait(0, None, 2 * HOUR_S), "."),  # it asks for none
        (a_wait(0, None, HOUR_S, meanwhile=[ONE]), ". Meanwhile job x had 2 GPU hours."),
        (
            a_wait(0, "vc", HOUR_S, meanwhile=[ONE], others=1, others_gpu_s=HOUR_S),
            ". Meanwhile, of the GPUs there, job x had 2 GPU hours and 1 other job had 1 GPU hour.",
        ),
        (
            a_wait(0, None, HOUR_S, others=3, others_gpu_s=HOUR_S),
            ". Meanwhile 3 jobs had 1 GPU hour together.",
        ),
    ],
)
def test_what_a_wait_was_in_gpu_hours_and_who_had_them(found: Waited, words: str) -> None:
    assert _over_time(found, [], {}) == words


@pytest.mark.parametrize(
    ("gpu_s", "words"),
    [(56.3, "56 GPU seconds"), (90, "1.50 GPU minutes"), (3540, "59 GPU minutes")],
)
def test_gpu_hours_are_in_the_largest_unit_of_which_there_is_one(gpu_s: float, words: str) -> None:
    assert gpu_hours(gpu_s) == words


def test_only_reasons_of_a_hundredth_of_a_wait_are_named() -> None:
    short, least = Reason.GPUS_FRAGMENTED.value, Reason.RESERVED_FOR_STARVING_JOB.value
    told = _over_time(
        a_wait(0, None, HOUR_S), [Spell(0.981), Spell(0.01, least), Spell(0.009, short)], {}
    )
    assert phrase(Reason.GPUS_BUSY.value) in told
    assert phrase(least) in told
    assert phrase(short) not in told


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (ONE, ""),
        (replace(ONE, estimate_s=HOUR_S), " (predicted to run 1 h)"),
        (replace(ONE, ran_s=HOUR_S), " (ran 1 h in all)"),
        (replace(ONE, ran_s=HOUR_S, runs=True), " (has run 1 h)"),
        (
            replace(ONE, estimate_s=2 * HOUR_S, ran_s=HOUR_S),
            " (predicted to run 2 h, ran 1 h in all)",
        ),
    ],
)
def test_how_long_who_had_gpus_was_to_run_is_told_beside_how_long_it_ran(
    held: Held, words: str
) -> None:
    assert as_predicted(held) == words


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


@pytest.mark.parametrize(
    ("predicted_s", "took_s", "words"),
    [
        (3599.0, 7199.0, "2 times as long as predicted"),
        (7199.0, 3599.0, "50 % of what was predicted"),
        (3599.0, 3602.0, "and that is what it took"),
        (3599.0, 0.0, "Predicted 1 h."),
        (None, 60.0, "No duration was predicted for it"),
    ],
)
def test_how_long_it_took_is_compared_with_what_was_predicted(
    predicted_s: float | None, took_s: float, words: str
) -> None:
    job = JobFacts("j", 1, 0.0, took_s, estimate_s=predicted_s)
    assert words in build_story(job, [], until=9.0).estimate
