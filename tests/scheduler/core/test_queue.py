"""A queue is in order, and what is kept beside it is notified of all that happens to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.queue import Queue, QueuedJob
from scheduler.testing.builders import a_job


def queued(key: float, seq: int) -> QueuedJob:
    entry = QueuedJob(a_job().job, seq)
    entry.key = key
    return entry


@settings(max_examples=100)
@given(keys=st.lists(st.sampled_from([0.0, 1.0, 2.5, float("inf")]), max_size=12), data=st.data())
def test_a_queue_is_sorted_by_key_then_arrival(keys: list[float], data: st.DataObject) -> None:
    queue = Queue()
    entries = [queued(key, seq) for seq, key in enumerate(keys)]
    for entry in data.draw(st.permutations(entries)):
        queue.add(entry)
    expected = sorted(entries, key=lambda q: (q.key, q.seq))
    assert list(queue) == expected
    assert [queue.position(q) for q in expected] == list(range(1, len(expected) + 1))
    gone = data.draw(st.sets(st.sampled_from(range(len(entries)))) if entries else st.just(set()))
    for index in gone:
        queue.remove(entries[index])
    assert list(queue) == [q for q in expected if entries.index(q) not in gone]
    queue.replace(entries)
    assert list(queue) == expected


@settings(max_examples=100)
@given(
    keys=st.lists(st.tuples(st.integers(-1, 1), st.sampled_from([0.0, 1.0, 2.5])), max_size=12),
    before=st.integers(0, 12),
    heard=st.booleans(),
)
def test_jobs_that_join_together_join_as_one_by_one(
    keys: list[tuple[int, float]], before: int, heard: bool
) -> None:
    jobs = [queued(key, seq) for seq, (_, key) in enumerate(keys)]
    for job, (priority, _) in zip(jobs, keys, strict=True):
        job.priority = priority
    together, one_by_one = Queue(), Queue()
    for queue in (together, one_by_one):
        queue.index = Heard() if heard else None
        for job in jobs[:before]:
            queue.add(job)
    together.extend(jobs[before:])
    for job in jobs[before:]:
        one_by_one.add(job)
    assert list(together) == list(one_by_one)
    assert together.fresh == one_by_one.fresh
    if heard:
        assert together.index.of == one_by_one.index.of  # type: ignore[union-attr]


def test_a_queue_refuses_to_remove_a_stranger() -> None:
    queue = Queue()
    queue.add(queued(0.0, 0))
    with pytest.raises(ValueError, match="is not in this queue"):
        queue.remove(queued(0.0, 0))


class Heard:
    """An index that writes down what it hears."""

    def __init__(self) -> None:
        self.of: list[str] = []

    def joined(self, queued: QueuedJob) -> None:
        self.of.append(f"{queued.job.job_id} joined")

    def left(self, queued: QueuedJob) -> None:
        self.of.append(f"{queued.job.job_id} left")

    def reordered(self) -> None:
        self.of.append("reordered")


def test_an_index_hears_who_joins_who_leaves_and_of_a_new_order() -> None:
    queue, heard = Queue(), Heard()
    queue.index = heard
    first, second = (QueuedJob(a_job(name).job, 0) for name in ("first", "second"))
    queue.add(first)
    queue.insert(second)
    queue.remove(first)
    queue.replace([second, first])
    assert heard.of == ["first joined", "second joined", "first left", "reordered"]
