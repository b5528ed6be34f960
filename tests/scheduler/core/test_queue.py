"""What is kept beside a queue is notified of all that happens to it."""

from __future__ import annotations

from scheduler.core.queue import Queue, QueuedJob
from scheduler.testing.builders import a_job


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
