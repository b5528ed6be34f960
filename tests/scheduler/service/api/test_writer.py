"""Many requests in one transaction: each is answered for itself."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any

import pytest

from scheduler.backends.events import Event, Kind
from scheduler.backends.submission import Submission
from scheduler.service.api.problems import Problem
from scheduler.service.api.writer import MOST, Once, Writer
from scheduler.service.log.store.store import Store


def submission(job_id: str) -> Event:
    asked = Submission(
        job_id=job_id, command=("true",), owner="alice", vc="vision", submitted_at=5.0
    )
    return Event(Kind.SUBMITTED, 5.0, job_id, "alice", body=asked.body())


class Gate:
    """Holds back the first transaction of a store, so that what follows piles up behind it."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        self.open, self.transactions = threading.Event(), 0
        writing = store.writing

        @contextmanager
        def gated() -> Any:
            self.transactions += 1
            self.open.wait(120)
            with writing() as connection:
                yield connection

        monkeypatch.setattr(store, "writing", gated)


def test_what_piles_up_is_committed_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, writer = Gate(store, monkeypatch), Writer(store)
    done = [writer.append(submission(f"job{i}")) for i in range(50)]
    gate.open.set()
    assert [one.result(120).job_id for one in done] == [f"job{i}" for i in range(50)]
    assert gate.transactions == 2
    assert [e.job_id for e in store.read()] == [f"job{i}" for i in range(50)]
    assert all(one.result().row is not None for one in done)
    writer.close()


def test_the_events_of_one_request_are_committed_together_however_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, writer = Gate(store, monkeypatch), Writer(store)
    before = writer.append(submission("before"))
    asked = [Event(Kind.CANCEL_ASKED, 6.0, f"job{i}", "alice") for i in range(2 * MOST + 1)]
    together = writer.append_all(asked)
    behind = [writer.append(submission(f"behind{i}")) for i in range(3)]
    gate.open.set()
    for done in (before, *together, *behind):
        done.result(120)
    assert gate.transactions <= 3  # of the request before, of this one, of those behind
    assert [e.job_id for e in store.read()][1:-3] == [event.job_id for event in asked]
    assert writer.append_all([]) == []
    writer.close()


def test_in_one_transaction_a_key_still_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, writer = Gate(store, monkeypatch), Writer(store)
    first = writer.append(submission("first"), Once("alice", "k", "same"))
    again = writer.append(submission("again"), Once("alice", "k", "same"))
    other = writer.append(submission("other"), Once("alice", "k", "different"))
    free = writer.append(submission("free"))
    gate.open.set()
    assert (first.result(120).job_id, again.result(10).job_id) == ("first", "first")
    assert again.result().row is None
    with pytest.raises(Problem, match="was used for another request"):
        other.result(120)
    assert free.result(120).job_id == "free"
    assert [e.job_id for e in store.read()] == ["first", "free"]
    writer.close()


def test_when_the_database_fails_nobody_is_told_it_worked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(store)
    taken = writer.append(submission("taken")).result(120)
    assert taken.row is not None
    twice = writer.append(submission("taken"))  # the primary key of `jobs` is taken
    with pytest.raises(Exception, match=r"(?i)unique"):
        twice.result(120)
    assert writer.append(submission("next")).result(120).job_id == "next"
    assert [(e.seq, e.job_id) for e in store.read()] == [(1, "taken"), (2, "next")]
    writer.close()
    assert writer.append(submission("after")).result(120).job_id == "after"  # it begins again
    writer.close()
