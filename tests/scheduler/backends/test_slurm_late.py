"""Slurm answers late, or not at all: nothing is repeated before it was seen how the job is."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.slurm import commands
from scheduler.backends.slurm.attempts import Pace
from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError
from scheduler.backends.slurm.parse import Node, Row, SlurmJob
from scheduler.backends.slurm.shape import Shape

OURS, THEIRS = "abcdefghjkmn", "77"
NODE = Node("n1", 4, "", (0, 1, 2, 3), ("main",), open=True, state="IDLE")
PACE = Pace(soon_s=0.0, calm_s=0.0, again_s=0.01)


class LateSlurm(Slurm):
    """A controller of which only the answers can fail.

    Attributes:
        late: of each command in turn, whether it is carried out before its answer is lost; None:
            it is answered. What comes after these is answered.
        refuses: what `update` is answered with.
        said: what was asked, in order; "read" for every look at all jobs.
    """

    def __init__(
        self, late: Sequence[bool | None] = (), refuses: str = "", *, ends_at_once: bool = False
    ) -> None:
        super().__init__()
        self.late, self.refuses, self.ends_at_once = list(late), refuses, ends_at_once
        self.said: list[str] = []
        self.there: dict[str, SlurmJob] = {}
        self.updates = 0

    @contextmanager
    def _answer(self, what: str) -> Iterator[bool]:
        """Whether it is carried out."""
        self.said.append(what)
        late = self.late.pop(0) if self.late else None
        yield late is not False
        if late is not None:
            raise SlurmDown("no answer")

    def submit(self, options: Sequence[str], script: str) -> str:
        job_id = str(100 + len(self.there))
        comment = next(o for o in options if o.startswith("--comment=")).partition("=")[2]
        with self._answer("sbatch") as done:
            if done:
                self.there[job_id] = a_job(job_id, comment=comment)
        return job_id

    def cancel(self, job_id: str) -> None:
        with self._answer("scancel") as done:
            if done:
                at = float(int(time.time()))
                was = self.there[job_id]
                self.there[job_id] = replace(was, state="CANCELLED", start=was.start or at, end=at)

    def write(self, lines: Sequence[str]) -> list[str]:
        return [self._line(line.split()) for line in lines]

    def _line(self, words: Sequence[str]) -> str:
        job_id = words[1].removeprefix("jobid=")
        with self._answer(words[0]) as done:
            job = self.there[job_id]
            if words[0] == "update" and (self.refuses or job.state != "PENDING"):
                return self.refuses or "Job is no longer pending execution"
            if done and words[0] == "update":
                self.updates += 1
                self.there[job_id] = replace(job, placed=True)
            elif done:
                at = float(int(time.time()))
                state, end = ("COMPLETED", at) if self.ends_at_once else ("RUNNING", None)
                self.there[job_id] = replace(job, state=state, priority=1, start=at, end=end)
        return ""

    def jobs(self) -> list[SlurmJob]:
        self.said.append("read")
        return list(self.there.values())

    def rows(self) -> dict[str, Row]:
        return {
            j.id: Row(j.id, j.state, 0, j.priority, j.submit, j.start, j.end) for j in self.jobs()
        }

    def record(self, job_id: str, submitted: float | None) -> None:
        return None


def a_job(job_id: str, **more: object) -> SlurmJob:
    job = SlurmJob(job_id, "PENDING", "ada", "x", "main", float(int(time.time())))
    return replace(job, **more)  # type: ignore[arg-type]


def a_launch(job_id: str = OURS) -> Launch:
    return Launch(job_id, 1, Purpose.RUN, ("true",), (0,), ((0,),))


Until = Callable[[list[Report]], bool]


def hears(
    slurm: LateSlurm, until: Until, job_id: str = OURS, *, stops: bool = False
) -> list[Report]:
    """What is reported of a launch; with `stops`, of one that is stopped once it runs."""
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape.of([NODE])
        backend = SlurmBackend(Path(folder) / "slurm", shape, slurm, adopts=False, pace=PACE)
        backend.launch(a_launch(job_id))
        found: list[Report] = []
        patience = time.monotonic() + 5
        while not until(found):
            assert time.monotonic() < patience, (slurm.said, found)
            new = backend.reports(0)
            backend.acknowledge(new)
            found += new
            if stops and found:
                backend.stop(job_id, 1)
        for _ in range(5):
            found += backend.reports(0)
        backend.close()
    return found


def whats(reports: Sequence[Report]) -> list[Happened]:
    return [report.what for report in reports]


def is_careful(said: Sequence[str]) -> bool:
    """Whether all jobs were read before a command came again."""
    since: set[str] = set()
    for what in said:
        if what == "read":
            since.clear()
        elif what in since:
            return False
        since.add(what)
    return True


def runs(reports: list[Report]) -> bool:
    return bool(reports)


@pytest.mark.parametrize("job_id", [OURS, THEIRS])
@settings(max_examples=40)  # each opens a journal
@given(late=st.lists(st.sampled_from([None, True, False]), max_size=8))
def test_a_job_runs_once_however_late_the_answers(job_id: str, late: list[bool | None]) -> None:
    slurm = LateSlurm(late=list(late))
    if job_id == THEIRS:
        slurm.there[job_id] = a_job(job_id)
    assert whats(hears(slurm, runs, job_id)) == [Happened.STARTED]
    assert [job.state for job in slurm.there.values()].count("RUNNING") == 1
    assert slurm.updates == 1
    assert "scancel" not in slurm.said
    assert is_careful(slurm.said)


@settings(max_examples=40)  # each opens a journal
@given(late=st.lists(st.sampled_from([True, False]), max_size=4))
def test_a_cancel_is_repeated_only_after_a_look(late: list[bool | None]) -> None:
    slurm = LateSlurm(late=[None, None, None, *late])
    found = hears(slurm, lambda told: any(r.what.final for r in told), stops=True)
    assert whats(found)[0] is Happened.STARTED
    assert {job.state for job in slurm.there.values()} == {"CANCELLED"}
    assert is_careful(slurm.said)


def test_a_job_that_is_over_before_the_answer_to_its_release_did_run() -> None:
    slurm = LateSlurm(late=[None, None, True], ends_at_once=True)
    found = hears(slurm, lambda told: any(r.what.final for r in told))
    assert whats(found) == [Happened.STARTED, Happened.ENDED]
    assert found[-1].state is State.COMPLETED


@pytest.mark.parametrize("late", [[], [None, None, True], [None, None, False]])
def test_what_slurm_will_not_place_does_not_stay(late: list[bool | None]) -> None:
    """sbatch, update, scancel: the last may be answered late."""
    slurm = LateSlurm(late=late, refuses="Requested node configuration is not available")
    (report,) = hears(slurm, runs)
    assert (report.what, report.state) == (Happened.NOT_STARTED, None)
    assert report.detail == slurm.refuses
    assert {job.state for job in slurm.there.values()} == {"CANCELLED"}
    assert is_careful(slurm.said)


def test_a_job_of_a_user_that_slurm_will_not_place_is_not_cancelled() -> None:
    slurm = LateSlurm(refuses="no")
    slurm.there[THEIRS] = a_job(THEIRS)
    assert whats(hears(slurm, runs, THEIRS)) == [Happened.NOT_STARTED]
    assert slurm.there[THEIRS].state == "PENDING"


def test_a_job_let_go_by_hand_after_a_lost_update_is_left_alone() -> None:
    class ByHand(LateSlurm):
        def write(self, lines: Sequence[str]) -> list[str]:
            at = float(int(time.time()))
            self.said.append("update")
            self.there[THEIRS] = replace(self.there[THEIRS], state="RUNNING", priority=1, start=at)
            raise SlurmDown("no answer")

    slurm = ByHand()
    slurm.there[THEIRS] = a_job(THEIRS)
    (report,) = [r for r in hears(slurm, runs, THEIRS) if r.what.final]
    assert report.what is Happened.NOT_STARTED
    assert "by hand" in report.detail
    assert slurm.there[THEIRS].state == "RUNNING"
    assert slurm.said.count("update") == 1


# --- what an outage sounds like -------------------------------------------------------------------


def says(folder: Path, words: str, *, code: int = 1) -> Slurm:
    """A Slurm whose `sbatch` says this."""
    (folder / "words").write_text(words)
    (folder / "sbatch").write_text(f"#!/bin/sh\ncat {folder}/words >&2\nexit {code}\n")
    (folder / "sbatch").chmod(0o755)
    return Slurm({"PATH": f"{folder}:{os.environ['PATH']}"})


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: invalid partition specified: backup",
        "sbatch: error: invalid partition specified: communication",
        "sbatch: error: invalid account or qos: munge-credential",
    ],
)
def test_a_name_is_no_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SlurmError):
        says(tmp_path, words).submit([], "")


@pytest.mark.parametrize(
    "words",
    [
        "Unable to contact slurm controller (connect failure)",
        "Unable to contact slurm controller (receive failure)",
        "Communication connection failure",
        "Socket timed out on send/recv operation",
        "Zero Bytes were transmitted or received",
        "Unexpected message received",
        "Slurm backup controller in standby mode",
        "Protocol authentication error",
        "Munge encode failed: Failed to access /run/munge/munge.socket.2",
        "Connection refused",
        "Resource temporarily unavailable",
    ],
)
def test_an_outage_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SlurmDown):
        says(tmp_path, f"sbatch: error: Batch job submission failed: {words}").submit([], "")


# --- which GPUs a job sees ------------------------------------------------------------------------


def test_the_prolog_asks_for_the_slots_alone(tmp_path: Path) -> None:
    """Not for a list of fields, in which a job's name could be another; nor as the job's settings
    of `squeue` would have it, nor for those of other tasks of its array."""
    squeue = tmp_path / "squeue"
    squeue.write_text(
        f'#!/bin/sh\necho "$*" > {tmp_path}/asked; env > {tmp_path}/env\n'
        "echo 7 gres:slot:g10:1,gres:slot:g2:1; echo 8 gres:slot:g3:1; echo 77 gres:slot:g4:1\n"
    )
    squeue.chmod(0o755)
    done = subprocess.run(
        ["sh", "deploy/slurm/pellucid-task-prolog"],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SLURM_JOB_PARTITION": "main",
            "SLURM_JOB_ID": "7",
            "SQUEUE_USERS": "root",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "export CUDA_VISIBLE_DEVICES=2,10\n" in done.stdout
    assert "export SLURM_GPUS_ON_NODE=2\n" in done.stdout
    asked = (tmp_path / "asked").read_text().split()
    assert " ".join(asked) == "-h -a -t all -j 7 -o %A %b"
    assert "SQUEUE_" not in (tmp_path / "env").read_text()


def test_cancelling_many_leaves_time_to_look_and_forgets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, asked = [100.0], list[str]()

    class SlowSlurm(LateSlurm):
        def cancel(self, job_id: str) -> None:
            asked.append(job_id)
            at[0] += 5.0

    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: at[0]))
    backend = SlurmBackend(
        tmp_path, Shape.of([NODE]), SlowSlurm(), adopts=False, pace=Pace(again_s=1.0)
    )
    for job_id in ("77", "78", "79"):
        backend.launch(a_launch(job_id))
        backend.stop(job_id, 1)
    for done in range(1, 4):
        backend.timing.looked = at[0]
        backend.commands.act()
        assert len(asked) == done
    assert asked == ["77", "78", "79"]
    backend.close()


def test_whoever_minds_the_process_hears_of_it_before_each_command(tmp_path: Path) -> None:
    heard: list[float] = []
    slurm = Slurm({"PATH": str(tmp_path)})
    slurm.beat = lambda: heard.append(time.monotonic())
    for done in range(1, 3):
        with pytest.raises(SlurmError, match="is Slurm installed here"):
            slurm.jobs()
        assert len(heard) == done
