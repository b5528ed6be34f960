"""An audit finds what was changed behind the log's back, and says when and under what."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from features.codec import Json
from pipeline.app import app
from pipeline.errors import UserError
from scheduler.backends.events import Event, Kind, canonical
from scheduler.core.decisions import Decision
from scheduler.core.turn import Turn
from scheduler.service.log.audit import CannotCheck, Divergence, audit
from scheduler.service.log.fold import State
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, events, jobs, nodes
from tests.scheduler.service.desk import Desk


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    """A service with a past."""
    desk = Desk(store, tmp_path)
    for i in range(5):
        desk.submit(f"job{i}", gpus=4)
        desk.turn(20.0)
    desk.until_idle()
    return desk


def divergences(desk: Desk, *, decide_again: bool = False) -> list[Divergence]:
    find = desk.bundle_store.find
    return audit(desk.store, find, decide_again=decide_again).divergences


def decided_again(desk: Desk) -> list[Divergence]:
    return divergences(desk, decide_again=True)


def change(desk: Desk, statement: object) -> None:
    with desk.store.writing() as connection:
        connection.execute(statement)  # type: ignore[call-overload]


def test_a_database_that_was_left_alone_is_clean(desk: Desk) -> None:
    found = audit(desk.store, desk.bundle_store.find)
    assert found.clean
    assert (found.jobs, found.decided_again) == (5, 0)
    assert found.events == desk.store.last_seq()
    assert found.passes == len(desk.store.read(kinds=[Kind.DECIDED]))
    with desk.store.reading() as connection:
        assert found.decisions == len(connection.execute(decisions.select()).all())
    again = audit(desk.store, desk.bundle_store.find, decide_again=True)
    assert again.clean
    assert again.decided_again == again.passes == found.passes > 5
    desk.submit("late")  # it may be live
    assert divergences(desk) == decided_again(desk) == []
    desk.turn()
    assert divergences(desk) == decided_again(desk) == []


def test_rows_of_before_waits_were_counted_are_no_divergence(desk: Desk) -> None:
    """The log counts them again; the row of an older release does not, and is shown as before."""
    row = desk.row("job4")
    assert 0.0 < row.waited_s <= row.started_at - row.submitted_at
    change(desk, update(jobs).values(waited_s=None, waits_since=None))
    assert divergences(desk) == []
    change(desk, update(jobs).where(jobs.c.job_id == "job4").values(waited_s=1.0))
    assert [(one.where, one.what) for one in divergences(desk)] == [("jobs", "job4.waited_s")]


OWN_POLICY = """
from scheduler.policies.fifo import Fifo

class Mine(Fifo):
    name = "mine"
"""


def test_decisions_that_a_release_wrote_with_fewer_fields_are_no_divergence(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, body = Desk(store, tmp_path, policy="pellucid"), Decision.body

    def without_facts(self: Decision) -> Json:
        found = body(self)
        if "score" in found:
            found["score"] = {name: of for name, of in found["score"].items() if name != "facts"}
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Decision, "body", without_facts)
        for i in range(3):
            desk.submit(f"job{i}", gpus=4)
            desk.turn(20.0)
    with store.reading() as connection:
        texts = [row.body for row in connection.execute(decisions.select())]
    assert any('"score"' in text for text in texts)
    assert not any("facts" in text for text in texts)
    found = audit(desk.store, desk.bundle_store.find, decide_again=True)
    assert found.clean, found.divergences
    assert found.decided_again == found.passes > 2


def test_a_policy_that_cannot_be_imported_is_no_divergence(
    store: Store, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "sitepolicy.py"
    module.write_text(OWN_POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    desk = Desk(store, tmp_path, policy="sitepolicy:Mine")
    desk.submit("job", gpus=4)
    desk.until_idle()
    assert divergences(desk) == []
    module.unlink()
    monkeypatch.delitem(sys.modules, "sitepolicy")
    importlib.invalidate_caches()
    with pytest.raises(CannotCheck, match=r"not checked: .*No module named 'sitepolicy'") as told:
        audit(desk.store, desk.bundle_store.find)
    assert "\n" not in str(told.value)
    done = CliRunner().invoke(app, ["audit", "--database", database, "--state-dir", str(tmp_path)])
    assert isinstance(done.exception, UserError)  # which `main` shows, with exit status 2
    assert "the database does not follow" not in done.output + str(done.exception)


def test_an_altered_decision_is_found(desk: Desk) -> None:
    with desk.store.reading() as connection:
        row = connection.execute(decisions.select().where(decisions.c.action == "start")).first()
    assert row is not None
    body = canonical({**json.loads(row.body), "nodes": [7]})
    change(desk, update(decisions).where(decisions.c.seq == row.seq).values(body=body))
    first = divergences(desk)[0]
    assert (first.seq, first.where, first.what) == (row.event, "decisions", "digest")
    [found] = decided_again(desk)
    assert (found.seq, found.where) == (row.event, "decisions")
    assert (found.logged, found.found) == ((7,), (0,))
    assert f"decision {row.seq} on job {row.job_id}: nodes" in found.sentence()


def test_an_altered_row_is_found(desk: Desk) -> None:
    seq = desk.row("job3").updated_seq
    change(desk, update(jobs).where(jobs.c.job_id == "job3").values(exit_code=9))
    change(desk, update(nodes).where(nodes.c.node == 1).values(open=False))
    change(desk, jobs.delete().where(jobs.c.job_id == "job4"))
    job, gone, node = divergences(desk)
    assert (job.seq, job.what, job.logged, job.found) == (seq, "job3.exit_code", 9, 0)
    assert (gone.what, gone.logged, gone.found) == ("job4", None, "a row")
    assert (node.where, node.what) == ("nodes", "1.open")
    spec = canonical({**json.loads(desk.row("job2").spec), "gpus": 3})
    change(desk, update(jobs).where(jobs.c.job_id == "job2").values(spec=spec))
    assert "job2.spec" in [d.what for d in divergences(desk)]


def test_an_altered_event_is_found_where_it_first_matters(desk: Desk) -> None:
    [event] = [e for e in desk.store.read() if e.job_id == "job1" and e.kind is Kind.ENDED]
    body = canonical({**event.body, "ran_s": 1.0, "state": "lost_in_time"})
    change(desk, update(events).where(events.c.seq == event.seq).values(body=body))
    first = divergences(desk)[0]
    assert first.where == "log"
    assert "lost_in_time" in first.sentence()
    body = canonical({**event.body, "attempt": 9})  # now it comes too late to matter
    change(desk, update(events).where(events.c.seq == event.seq).values(body=body))
    first = divergences(desk)[0]
    assert first.where == "log", "whoever came after it has no GPUs"
    assert first.seq > event.seq
    first = decided_again(desk)[0]
    assert first.where == "pass"
    assert first.seq > event.seq


class TestOtherCode:
    """A log is gone on with by code that would have decided otherwise."""

    @pytest.fixture
    def upgraded(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
        desk.submit("runs", gpus=4)
        desk.turn()
        desk.turn()
        desk.submit("waits", gpus=8)
        desk.turn()
        place = Turn.start

        def elsewhere(turn: Turn, queued: object, placement: object, *more: object) -> object:
            only = turn.pool.place(queued.job.gpus)  # type: ignore[attr-defined]
            if queued.job.gpus == 4 and turn.pool.is_idle(1):  # type: ignore[attr-defined]
                only = [(1, 15)]
            return place(turn, queued, only, *more)  # type: ignore[arg-type]

        monkeypatch.setattr(Turn, "start", elsewhere)
        return desk

    def test_an_audit_says_what_it_would_have_done(self, upgraded: Desk) -> None:
        assert divergences(upgraded) == []
        [first] = decided_again(upgraded)
        assert (first.where, first.logged, first.found) == ("pass", (0,), (1,))
        assert "nodes is (0,) in the database and (1,) by the log" in first.sentence()

    def test_what_runs_goes_on_where_it_is(self, upgraded: Desk) -> None:
        before = upgraded.store.last_seq()
        upgraded.restart()
        record = upgraded.decider.state.ledger.records["runs"]
        assert record.grant is not None
        assert record.grant.nodes == (0,)
        assert upgraded.decider.state.core.cluster.runs["runs"].nodes == (0,)
        upgraded.submit("new", gpus=4)
        upgraded.turn()
        assert upgraded.phase("waits") == "queued"
        upgraded.restart()
        upgraded.until_idle()
        assert upgraded.phase("runs") == upgraded.phase("waits") == upgraded.phase("new") == "ended"
        assert len([key for key in upgraded.world.begun if key[0] == "runs"]) == 1
        assert not upgraded.world.problems
        assert divergences(upgraded) == []
        assert [d.seq < before for d in decided_again(upgraded)] == [True]

    def test_what_an_operator_said_holds(self, upgraded: Desk) -> None:
        upgraded.submit("urgent", gpus=8)
        upgraded.ask(Kind.PRIORITY_SET, "urgent", priority=7)
        upgraded.ask(Kind.NODE_SET, node=1, open=False, reason="fan")
        upgraded.turn()
        upgraded.restart()
        core = upgraded.decider.state.core
        assert [(q.job.job_id, q.priority) for q in core.queues["vc"]] == [
            ("urgent", 7),
            ("waits", 0),
        ]
        assert not core.cluster.pools["vc"].is_open(1)

    def test_what_it_decided_is_as_it_was_written(self, upgraded: Desk) -> None:
        """Who decides otherwise finds an altered decision all the same."""
        upgraded.restart()
        upgraded.until_idle()
        with upgraded.store.reading() as connection:
            [*_, row] = connection.execute(decisions.select().order_by(decisions.c.seq))
        body = canonical({**json.loads(row.body), "estimate_s": 7.0})
        change(upgraded, update(decisions).where(decisions.c.seq == row.seq).values(body=body))
        for decide_again in (False, True):
            found = divergences(upgraded, decide_again=decide_again)
            assert (row.event, "decisions") in [(d.seq, d.where) for d in found]


@pytest.mark.parametrize("decide_again", [False, True])
def test_a_log_is_followed_twice_at_most(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, decide_again: bool
) -> None:
    """Older releases began a new core now and then; an audit followed the log anew at each."""
    for _ in range(5):
        desk.store.append([Event(Kind.EPOCH, desk.world.now(), body={"why": "another release"})])
        desk.submit(f"after {desk.store.last_seq()}", gpus=4)
        desk.turn()
    with desk.store.reading() as connection:
        row = connection.execute(decisions.select().where(decisions.c.action == "start")).first()
    assert row is not None
    passes, folded, follow, take = len(desk.store.read(kinds=[Kind.DECIDED])), [], *TAKEN
    monkeypatch.setattr(State, "follow", lambda *one: folded.append(one) or follow(*one))
    monkeypatch.setattr(State, "take", lambda *one: folded.append(one) or take(*one))
    divergences(desk, decide_again=decide_again)
    of_passes = [one for one in folded if getattr(one[1], "kind", "taken") in ("taken", "decided")]
    assert passes <= len(of_passes) <= 2 * passes


TAKEN = State.follow, State.take
