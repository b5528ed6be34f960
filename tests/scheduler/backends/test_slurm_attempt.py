"""The table that an attempt in Slurm moves by, and the journal that keeps where it stands."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.slurm.attempt import (
    TRANSITIONS,
    Did,
    SlurmAttempt,
    Stage,
)
from scheduler.backends.slurm.journal import Journal
from scheduler.core.transitions import IllegalTransition

KEY = ("abc", 1)
LAUNCH = Launch(*KEY, Purpose.RUN, ("train",), (0,), ((0, 1),), environment={"A": "1"})
TO: dict[Stage, list[Did]] = {
    Stage.ASKED: [],
    Stage.SENT: [Did.SUBMIT],
    Stage.HELD: [Did.SUBMIT, Did.ACCEPTED],
    Stage.PLACING: [Did.SUBMIT, Did.ACCEPTED, Did.PLACE],
    Stage.RELEASING: [Did.SUBMIT, Did.ACCEPTED, Did.PLACE, Did.RELEASE],
    Stage.RELEASED: [Did.SUBMIT, Did.ACCEPTED, Did.PLACE, Did.RELEASE, Did.HEARD],
    Stage.RUNNING: [Did.SUBMIT, Did.FOUND, Did.PLACE, Did.RELEASE, Did.HEARD, Did.RUNS],
    Stage.OVER: [Did.SUBMIT, Did.FOUND, Did.PLACE, Did.RELEASE, Did.RUNS, Did.ENDED],
}


def an_attempt(stage: Stage) -> SlurmAttempt:
    attempt = SlurmAttempt(KEY, LAUNCH)
    for at, did in enumerate(TO[stage], 1):
        attempt.move(did, float(at))
    assert attempt.stage is stage
    return attempt


@pytest.mark.parametrize("stage", Stage)
def test_a_move_is_in_the_table_or_raises_with_the_story(stage: Stage) -> None:
    for did in Did:
        attempt = an_attempt(stage)
        if (stage, did) in TRANSITIONS:
            attempt.move(did, 99.0)
            assert attempt.stage is TRANSITIONS[stage, did]
            assert attempt.since == 99.0
            continue
        with pytest.raises(IllegalTransition) as raised:
            attempt.move(did, 99.0)
        assert attempt.stage is stage
        assert f"{did} while {stage}\nabc, attempt 1" in str(raised.value)
        assert str(raised.value).endswith(attempt.story())


def test_what_is_over_stays_so_and_only_what_was_let_go_runs() -> None:
    assert not [did for stage, did in TRANSITIONS if stage is Stage.OVER]
    assert {stage for stage, did in TRANSITIONS if did is Did.RUNS} == {
        Stage.RELEASING,
        Stage.RELEASED,
    }
    final = {did for (_, did), to in TRANSITIONS.items() if to is Stage.OVER}
    assert {did.value for did in final} == {what.value for what in Happened if what.final}
    assert Stage.RUNNING not in {stage for stage, did in TRANSITIONS if did is Did.NOT_STARTED}


@pytest.mark.parametrize("stage", [Stage.RELEASING, Stage.RELEASED])
def test_a_job_seen_held_after_its_release_is_let_go_once_more(stage: Stage) -> None:
    """The release was not heard, or died with the controller: else it would wait for ever."""
    attempt = an_attempt(stage)
    attempt.move(Did.HELD_AGAIN, 9.0)
    assert (attempt.is_held, attempt.let_go) == (True, False)
    for did in (Did.PLACE, Did.RELEASE, Did.HEARD):
        attempt.move(did, 10.0)
    assert attempt.stage is Stage.RELEASED


def test_a_story_is_everything_that_happened_in_order() -> None:
    attempt = SlurmAttempt(KEY, LAUNCH)
    attempt.move(Did.SUBMIT, 1.0)
    attempt.found("77", 1.5, 2.0)
    attempt.end(Report(*KEY, Happened.LOST, 3.0), 3.0)
    assert attempt.story().splitlines() == [
        "abc, attempt 1, Slurm's job 77",
        "  1.000 sbatch is sent: submitted",
        "  2.000 its job was found: being placed",
        "  3.000 lost: over",
    ]


def test_the_journal_keeps_where_an_attempt_stands(tmp_path: Path) -> None:
    attempt = an_attempt(Stage.RUNNING)
    attempt.slurm_id, attempt.submitted, attempt.started_at = "77", 1.5, 6.0
    attempt.told, attempt.refusal, attempt.stop = frozenset({Happened.STARTED}), "no", True
    attempt.observed = Report(*KEY, Happened.OBSERVED, 7.0, profile=Profile(1.0, 2.0, 3.0, True))
    other = SlurmAttempt(("b", 2))
    other.end(Report("b", 2, Happened.NOT_STARTED, 1.0, State.CANCELLED, detail="stopped"), 1.0)
    journal = Journal(tmp_path / "slurm")
    journal.save(attempt, other)
    journal.close()
    attempt.cancelled_at = attempt.absent_since = 5.0  # by the clock of one process
    again = Journal(tmp_path / "slurm")
    found = {one.key: one for one in again.live()}
    again.close()
    attempt.cancelled_at = attempt.absent_since = None
    assert found == {KEY: attempt, ("b", 2): other}
    assert found[KEY].story() == attempt.story()


# what a version without stages wrote of an attempt in each of them
EARLIER: dict[Stage, list[dict[str, Any]]] = {
    Stage.ASKED: [{}],
    Stage.SENT: [{"sent_at": 1.0}],
    Stage.HELD: [{"slurm_id": "77"}],  # a user's
    Stage.PLACING: [{"slurm_id": "77", "sent_at": 1.0}],
    Stage.RELEASING: [{"slurm_id": "77", "sent_at": 1.0, "released_at": 2.0, "submitted": 1.5}],
    Stage.RUNNING: [{"slurm_id": "77", "sent_at": 1.0, "released_at": 2.0, "started_at": 3.0}],
    Stage.OVER: [
        {"launch": None, "final": ("not_started", 4.0)},
        {"slurm_id": "77", "sent_at": 1.0, "released_at": 2.0, "started_at": 3.0, "limit": True,
         "final": ("ended", 4.0)},
    ],
}  # fmt: skip


def _earlier_row(said: dict[str, Any]) -> dict[str, Any]:
    """The body of a row, with the fields of that version and no others."""
    launch = asdict(LAUNCH)
    del launch["pair_watch_s"]
    body = {
        "key": KEY, "launch": launch, "slurm_id": "", "sent_at": None, "released_at": None,
        "started_at": None, "submitted": None, "stop": False, "limit": False, "observed": None,
        "final": None, "told": [], **said,
    }  # fmt: skip
    if body["final"] is not None:
        what, at = body["final"]
        body["final"] = asdict(Report(*KEY, Happened(what), at))
        del body["final"]["speed"]
    return body


@pytest.mark.parametrize(
    ("stage", "said"), [(stage, said) for stage, rows in EARLIER.items() for said in rows]
)
def test_the_journal_of_a_version_without_stages_is_read(
    tmp_path: Path, stage: Stage, said: dict[str, Any]
) -> None:
    Journal(tmp_path / "slurm").close()
    row = _earlier_row(said)
    with sqlite3.connect(tmp_path / "slurm" / "journal.db") as db:
        begun = row["started_at"] is not None
        db.execute("INSERT INTO attempts VALUES (?, ?, ?, 0, ?)", (*KEY, begun, json.dumps(row)))
    db.close()
    journal = Journal(tmp_path / "slurm")
    (found,) = journal.live()
    assert (found.stage, found.steps) == (stage, ())
    assert found.launch == (LAUNCH if row["launch"] else None)
    same = ("slurm_id", "sent_at", "started_at", "submitted", "limit")
    assert {name: getattr(found, name) for name in same} == {name: row[name] for name in same}
    assert (found.final is not None) == found.over
    journal.save(found)
    assert list(journal.live()) == [found]
    journal.close()
