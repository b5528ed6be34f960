"""What a late `sbatch` leaves behind, and what is cancelled of jobs that wait: never a user's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scheduler.backends.local.host import own_user
from scheduler.backends.slurm.attempt import SlurmAttempt
from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import SlurmDown, SlurmError
from scheduler.backends.slurm.parse import Node
from scheduler.backends.slurm.queue import Queue
from scheduler.backends.slurm.shape import Shape
from scheduler.core.decisions import Action, Decision, Reason
from tests.scheduler.backends.test_slurm_late import (
    NODE,
    OURS,
    PACE,
    THEIRS,
    LateSlurm,
    a_job,
    a_launch,
)

HELD = {"admin_comment": "gpus=1"}


class Site(LateSlurm):
    """Jobs have the name and the user that they are submitted with."""

    def submit(self, options: Sequence[str], script: str) -> str:
        job_id = super().submit(options, script)
        name = next(o for o in options if o.startswith("--job-name=")).partition("=")[2]
        if job_id in self.there:
            self.there[job_id] = replace(self.there[job_id], name=name, user=own_user())
        return job_id

    def nodes(self) -> list[Node]:
        return [NODE]


@pytest.fixture
def slurm() -> Site:
    return Site()


@pytest.fixture
def backend(slurm: Site, tmp_path: Path) -> Iterator[SlurmBackend]:
    backend = SlurmBackend(tmp_path / "slurm", Shape.of([NODE]), slurm, pace=PACE)
    yield backend
    backend.close()


def works(backend: SlurmBackend, turns: int = 4) -> None:
    for _ in range(turns):
        backend.acknowledge(backend.reports(0))
        backend.timing.look_at = 0.0  # do not wait for the pauses between two looks
        if backend.queue is not None:
            backend.queue._read_at = backend.queue._show_at = 0.0
            backend.queue._refused.clear()


def late(backend: SlurmBackend, slurm: Site) -> str:
    """A launch whose `sbatch` was not heard, and was sent again; the first comes later. Its id."""
    slurm.late = [False]
    backend.launch(a_launch())
    works(backend)
    (job,) = slurm.there.values()
    assert job.state == "RUNNING"
    as_it_was = {"state": "PENDING", "start": None, "placed": False, "priority": 0}
    slurm.there["999"] = replace(job, id="999", **as_it_was)  # type: ignore[arg-type]
    return job.id


@pytest.mark.parametrize("over", [False, True])
def test_a_second_job_of_an_attempt_is_cancelled(
    backend: SlurmBackend, slurm: Site, over: bool
) -> None:
    first = late(backend, slurm)
    if over:
        at = slurm.there[first].start
        slurm.there[first] = replace(slurm.there[first], state="COMPLETED", end=at)
    with capture_logs() as log:
        works(backend)
    assert slurm.there["999"].state == "CANCELLED"
    assert slurm.there[first].state == ("COMPLETED" if over else "RUNNING")
    assert slurm.said.count("scancel") == 1
    (said,) = [line for line in log if line["event"] == "slurm_duplicate"]
    assert (said["job"], said["slurm_job"]) == (OURS, "999")


@pytest.mark.parametrize(
    "more",
    [
        {"comment": "pellucid:another-site:abc/1"},
        {"user": "mallory"},
        {"name": "x"},
        {"start": 1.0},
        {"placed": True},
        {"priority": 7},
        {"admin_comment": "gpus=1"},
    ],
)
def test_what_may_be_a_users_is_not_cancelled(
    backend: SlurmBackend, slurm: Site, more: dict[str, object]
) -> None:
    late(backend, slurm)
    slurm.there["999"] = replace(slurm.there["999"], **more)  # type: ignore[arg-type]
    works(backend)
    assert slurm.there["999"].state == "PENDING"
    assert "scancel" not in slurm.said


def test_an_attempt_without_a_job_takes_the_one_that_came_late(
    backend: SlurmBackend, slurm: Site
) -> None:
    backend.launch(a_launch())
    works(backend, 1)
    made = replace(next(iter(slurm.there.values())), id="500", state="PENDING", start=None)
    made = replace(made, placed=False)
    attempt = backend.attempts.live[OURS, 1] = SlurmAttempt((OURS, 1), a_launch())
    slurm.there = {"500": made}
    backend.commands.stray(made)
    assert attempt.slurm_id == "500"
    works(backend)
    assert [job.state for job in slurm.there.values()] == ["RUNNING"]


# --- cancelling what waits ------------------------------------------------------------------------


def cancelled(queue: Queue) -> None:
    """A held job is cancelled through the service."""
    queue.decided([Decision(0, 0.0, Action.CANCEL, Reason.CANCELLED, THEIRS, "main")])


def look(queue: Queue, slurm: Site) -> None:
    queue._show_at = 0.0
    queue.look(slurm.rows(), {THEIRS})


@pytest.fixture
def queue(backend: SlurmBackend, slurm: Site) -> Queue:
    assert backend.queue is not None
    slurm.there[THEIRS] = a_job(THEIRS, **HELD)
    return backend.queue


@pytest.mark.parametrize("done", [True, False])
def test_a_cancel_whose_answer_is_lost_waits_for_the_next_look(
    queue: Queue, slurm: Site, done: bool
) -> None:
    cancelled(queue)
    queue.show()
    assert "scancel" not in slurm.said, "nobody looked yet"
    look(queue, slurm)
    slurm.late = [done]
    with pytest.raises(SlurmDown):
        queue.show()
    queue._show_at = 0.0
    queue.show()
    assert slurm.said.count("scancel") == 1, "its rows are old"
    look(queue, slurm)
    queue.show()
    look(queue, slurm)
    queue.show()
    assert slurm.there[THEIRS].state == "CANCELLED"
    assert slurm.said.count("scancel") == (1 if done else 2)


def test_a_cancel_that_is_refused_is_not_repeated(queue: Queue, slurm: Site) -> None:
    def refuses(job_id: str) -> None:
        slurm.said.append("scancel")
        raise SlurmError("Invalid job id specified")

    slurm.cancel = refuses  # type: ignore[method-assign]
    cancelled(queue)
    for _ in range(3):
        look(queue, slurm)
        queue.show()
    assert slurm.said.count("scancel") == 1
