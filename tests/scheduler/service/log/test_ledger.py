"""The ledger: every move of a job is in its table, and one that is not raises with its story."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from features.progress import Progress
from features.schema import State as EndState
from scheduler.backends.events import ABOUT_NODES, Event, Kind
from scheduler.backends.submission import Submission
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.transitions import IllegalTransition
from scheduler.service.log.ledger import (
    ABOUT_NO_JOB,
    DECIDED,
    OF_NODES,
    REPORTS,
    STAYS,
    TRANSITIONS,
    Ledger,
)
from scheduler.service.log.record import Phase

Input = Kind | Action
SUBMIT, STARTED, ENDED = Kind.SUBMITTED, Kind.STARTED, Kind.ENDED
CANCEL, GO, LINE = Kind.CANCEL_ASKED, Action.START, Action.ENQUEUE
BODIES: dict[Kind, dict[str, Any]] = {
    Kind.PROGRESS: {"progress": asdict(Progress(9.0, 8.0, 10.0, 1, 3, "epoch", 3.0, 3.0, "epoch"))},
    SUBMIT: Submission(job_id="a", command=("x",), owner="ann", vc="vc", submitted_at=0.0).body(),
    Kind.PRIORITY_SET: {"priority": 3},
    Kind.HELD: {"operator": True},
    Kind.RELEASED: {"operator": True},
    Kind.CHANGED: {"gpus": 2},
    ENDED: {"state": "completed", "exit_code": 0, "ran_s": 5.0},
    Kind.LOST: {"detail": "gone"},
}
TO: dict[Phase, list[Input]] = {
    Phase.SUBMITTED: [SUBMIT],
    Phase.PROFILING: [SUBMIT, Action.PROFILE],
    Phase.QUEUED: [SUBMIT, LINE],
    Phase.HELD: [SUBMIT, LINE, Kind.HELD],
    Phase.STARTING: [SUBMIT, LINE, GO],
    Phase.RUNNING: [SUBMIT, LINE, GO, STARTED],
    Phase.ENDED: [SUBMIT, LINE, GO, STARTED, ENDED],
    Phase.CANCELLED: [SUBMIT, LINE, CANCEL],
    Phase.REFUSED: [SUBMIT, Action.REFUSE],
    Phase.LOST: [SUBMIT, LINE, GO, STARTED, Kind.LOST],
}


def event(kind: Kind, at: float, attempt: int = 1, **body: Any) -> Event:
    said = {**BODIES.get(kind, {}), **({"attempt": attempt} if kind in REPORTS else {}), **body}
    return Event(kind, at, "a", body=said, seq=int(at))


def decision(action: Action, at: float) -> Decision:
    gives = action in (GO, Action.PACK, Action.PROFILE)
    nodes, gpus = ((0,), (1,)) if gives else ((), ())
    return Decision(int(at), at, action, Reason.SUBMITTED, "a", "vc", nodes, gpus, need=1, limit=1)


def tell(ledger: Ledger, what: Input, at: float = 99.0) -> None:
    if isinstance(what, Action):
        ledger.decided([decision(what, at)])
    else:
        ledger.take(event(what, at))


def a_ledger(*told: Input) -> Ledger:
    ledger = Ledger(keep=True)
    for at, what in enumerate(told, 1):
        tell(ledger, what, float(at))
    return ledger


@pytest.mark.parametrize("phase", Phase)
def test_a_move_is_in_the_table_or_raises_with_the_story(phase: Phase) -> None:
    assert a_ledger(*TO[phase]).records["a"].phase is phase
    kinds = set(Kind) - {SUBMIT, *ABOUT_NODES, *ABOUT_NO_JOB}
    for what in (*kinds, *set(Action) - {Action.CHANGE_NODE, *OF_NODES, *STAYS}):
        ledger = a_ledger(*TO[phase])
        legal = (phase, what) in TRANSITIONS or (phase, what) in DECIDED
        if isinstance(what, Kind):
            news = (phase, what) not in ((Phase.HELD, Kind.HELD), (Phase.PROFILING, Kind.RELEASED))
            assert ledger.matters(event(what, 99.0)) is (legal and news)
            if not news:
                continue
        if legal:
            tell(ledger, what)
            ledger.validate()
        else:
            with pytest.raises(IllegalTransition) as raised:
                tell(ledger, what)
            assert str(raised.value).startswith(f"{what} while {phase}\njob a\n")
            assert str(raised.value).endswith(ledger.story("a"))


def test_nothing_happens_to_a_job_that_is_over_and_no_second_run_begins() -> None:
    assert not [what for phase, what in TRANSITIONS if phase.over]
    gives = {phase for phase, what in DECIDED if what in (GO, Action.PACK, Action.PROFILE)}
    assert gives == {Phase.SUBMITTED, Phase.QUEUED}


def test_a_wait_counts_to_the_end_of_a_job_that_never_began() -> None:
    ledger = a_ledger(SUBMIT, LINE)
    tell(ledger, CANCEL, 50.0)
    record = ledger.records["a"]
    assert (record.waited_s, record.waits_since) == (50.0, None)


def test_a_story_is_everything_that_happened_in_order() -> None:
    ledger = a_ledger(SUBMIT, Action.PROFILE, STARTED, Kind.PROFILED, LINE, Action.WAIT, GO)
    ledger.take(event(STARTED, 8.0, attempt=2))
    ledger.take(event(ENDED, 9.0, attempt=2))
    assert ledger.story("a").splitlines() == [
        "job a",
        "  1.000 submitted 1: submitted",
        "  2.000 profile 2: profiling",
        "  3.000 started 3: profiling",
        "  4.000 profiled 4: submitted",
        "  5.000 enqueue 5: queued",
        "  7.000 start 7: starting",
        "  8.000 started 8: running",
        "  9.000 ended 9: ended",
    ]
    assert "not remembered" in ledger.story("b")


def test_reports_of_another_attempt_or_told_again_do_not_matter() -> None:
    ledger = a_ledger(SUBMIT, LINE, GO)
    assert ledger.matters(event(STARTED, 9.0))
    assert not ledger.matters(event(STARTED, 9.0, attempt=2))
    assert not ledger.matters(event(SUBMIT, 9.0))
    profiling = a_ledger(SUBMIT, Action.PROFILE, STARTED)
    assert not profiling.matters(event(STARTED, 9.0))


def test_a_job_that_is_held_while_it_is_profiled_is_held_afterwards_and_can_be_let_go() -> None:
    ledger = a_ledger(SUBMIT, Action.PROFILE, STARTED)
    assert ledger.matters(event(Kind.HELD, 5.0))
    tell(ledger, Kind.HELD, 5.0)
    record = ledger.records["a"]
    assert (record.phase, record.hold is not None) == (Phase.PROFILING, True)
    tell(ledger, Kind.PROFILED, 8.0)
    assert record.phase is Phase.HELD
    assert record.hold is not None
    assert record.hold.since == 8.0
    assert ledger.matters(event(Kind.RELEASED, 9.0))
    tell(ledger, Kind.RELEASED, 9.0)
    assert (record.phase, record.hold, record.held_s) == (Phase.SUBMITTED, None, 1.0)


def test_an_operators_hold_is_not_the_owners_to_release_or_to_take_over() -> None:
    ledger = a_ledger(SUBMIT, LINE, Kind.HELD)
    assert not ledger.matters(event(Kind.RELEASED, 9.0, operator=False))
    assert not ledger.matters(event(Kind.HELD, 9.0, operator=False))
    assert ledger.matters(event(Kind.RELEASED, 9.0))
    mine = a_ledger(SUBMIT, LINE)
    mine.take(event(Kind.HELD, 3.0, operator=False))
    assert mine.matters(event(Kind.RELEASED, 9.0, operator=False))
    mine.take(event(Kind.HELD, 5.0))
    hold = mine.records["a"].hold
    assert hold is not None
    assert (hold.by, hold.since) == ("operator", 3.0)
    mine.take(event(Kind.RELEASED, 9.0))
    assert (mine.records["a"].phase, mine.records["a"].held_s) == (Phase.SUBMITTED, 6.0)


def test_an_end_says_what_was_reported() -> None:
    ledger = a_ledger(*TO[Phase.PROFILING], ENDED)
    row = ledger.records["a"].row()
    assert (row["phase"], row["state"], row["exit_code"]) == ("ended", "completed", 0)
    assert (row["started_at"], row["ended_at"]) == (-2.0, 3.0), "5 s, while it was profiled"
    assert (row["nodes"], row["partner"]) == ("[]", None)
    cancelled = a_ledger(*TO[Phase.STARTING], CANCEL, Kind.NOT_STARTED).records["a"]
    assert cancelled.phase is Phase.CANCELLED
    assert cancelled.end is not None
    assert cancelled.end.state is EndState.CANCELLED
