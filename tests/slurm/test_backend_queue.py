"""Jobs of ordinary users in place mode, on real daemons: adopted, placed, paired, left alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose
from scheduler.backends.events import Event, Kind
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import Slurm, SlurmDown
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.testing.backend import Does, a_launch, await_start, hear, last
from tests.slurm.site import SlurmSite, client, shape_of

WITHIN_S = 20.0
OURS = "abcdefghjkmn"  # a job that was submitted to the service


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmSite]:
    tmp_path.chmod(0o755)
    site = SlurmSite(cluster, tmp_path)
    yield site
    cluster.run("scancel", "--user=nobody", check=False)
    site.close()


def sbatch(site: SlurmSite, *options: str, seconds: float = 60.0) -> str:
    wrapped = ["--output=/dev/null", "--chdir=/tmp", "--wrap", f"sleep {seconds}"]
    told = site.cluster.run("sbatch", "--parsable", *options, *wrapped, user="nobody")
    return told.stdout.strip()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def news(backend: SlurmBackend, kind: Kind, count: int = 1) -> list[Event]:
    found: list[Event] = []

    def enough() -> bool:
        backend.reports(0.1)
        found[:] = [event for event in backend.news() if event.kind is kind]
        return len(found) >= count

    until(enough)
    return found


def job(site: SlurmSite, job_id: str) -> parse.SlurmJob:
    return next(job for job in client(site.cluster).jobs() if job.id == job_id)


def on(job_id: str, *gpus: int, node: int = 0, partner: str | None = None) -> Launch:
    return Launch(job_id, 1, Purpose.RUN, ("sbatch",), (node,), (gpus,), partner=partner)


def adopted(backend: SlurmBackend, count: int = 1) -> list[str]:
    events = news(backend, Kind.SUBMITTED, count)
    backend.heard(events)
    return [event.job_id for event in events]


def test_a_users_job_is_adopted_placed_and_reported(site: SlurmSite) -> None:
    backend = site.open()
    job_id = sbatch(site, "--gpus=2", "--job-name=a b", "--time=5", seconds=0.5)
    (event,) = news(backend, Kind.SUBMITTED)
    assert event.body.items() >= {
        "job_id": job_id, "owner": "nobody", "vc": "main", "gpus": 2, "name": "a b",
        "time_limit_s": 300.0, "profile": False, "share": True,
    }.items()  # fmt: skip
    assert [e.job_id for e in news(backend, Kind.SUBMITTED)] == [job_id], "again until heard"
    backend.heard([event])
    assert not [e for e in backend.news() if e.kind is Kind.SUBMITTED]
    why = Decision(0, 0.0, Action.START, Reason.EXCLUSIVE_GPUS, job_id, "main", need=2)
    backend.decided([why])
    backend.launch(on(job_id, 5, 6, node=2))
    reports = hear(backend, site)
    assert [r.what for r in reports] == [Happened.STARTED, Happened.ENDED]
    assert last(reports).state is State.COMPLETED
    found = job(site, job_id)
    assert found.nodes == (site.shape.names[2],)
    assert found.admin_comment.startswith(f"gpus=2; on {found.nodes[0]}:5,6; ExclusiveGpus: 2 GPU")


def test_tasks_of_an_array_are_placed_one_by_one(site: SlurmSite) -> None:
    backend = site.open()
    array = sbatch(site, "--gpus=1", "--array=1-3", seconds=0.2)
    ids = adopted(backend, 3)
    assert sorted(ids) == [f"{array}_{i}" for i in (1, 2, 3)]
    for place, job_id in enumerate(ids):
        backend.launch(on(job_id, place))
    ends: dict[str, State | None] = {}
    while len(ends) < len(ids):
        reports = hear(backend, site)
        backend.acknowledge(reports)
        ends |= {r.job_id: r.state for r in reports if r.what.final}
    assert ends == dict.fromkeys(ids, State.COMPLETED)


def test_two_jobs_share_a_gpu_and_a_third_waits(site: SlurmSite) -> None:
    backend = site.open()
    for _ in range(3):
        sbatch(site, "--gpus=2")
    first, second, third = adopted(backend, 3)
    backend.launch(on(first, 0, 1))
    await_start(backend, site, first)
    backend.launch(on(second, 0, 1, partner=first))
    await_start(backend, site, second)
    backend.launch(on(third, 1, 2))
    until(lambda: bool(backend.reports(0.1)) and job(site, third).placed)
    time.sleep(2.0)
    assert job(site, third).state == "PENDING", "Slurm itself keeps the third off"
    assert [job(site, j).held_gpus for j in (first, second)] == [((0, 1),)] * 2
    site.cluster.run("scancel", first)
    await_start(backend, site, third)


def test_a_job_cancelled_while_it_waits_leaves(site: SlurmSite) -> None:
    backend = site.open()
    job_id = sbatch(site, "--gpus=1")
    adopted(backend)
    site.cluster.run("scancel", job_id, user="nobody")
    (event,) = news(backend, Kind.CANCEL_ASKED)
    assert (event.job_id, event.actor) == (job_id, "slurm")
    backend.heard([event])
    assert not backend.journal.adopted()


def test_a_job_cancelled_through_the_service_is_cancelled_in_slurm(site: SlurmSite) -> None:
    backend = site.open()
    job_id = sbatch(site, "--gpus=1")
    adopted(backend)
    backend.decided([Decision(0, 0.0, Action.CANCEL, Reason.CANCELLED, job_id, "main")])

    def cancelled() -> bool:
        backend.reports(0.1)
        return job(site, job_id).state == "CANCELLED"

    until(cancelled)


def test_what_is_no_job_of_ours_is_left_alone(site: SlurmSite) -> None:
    backend = site.open()
    by_root = ["--hold", "--output=/dev/null", "--wrap", "sleep 1"]
    held = site.cluster.run("sbatch", "--parsable", *by_root).stdout.strip()
    wide = sbatch(site, "--gpus=2", "--nodes=2")
    until(lambda: "left alone" in (backend.reports(0.1), job(site, wide).admin_comment)[1])
    assert not [e for e in backend.news() if e.kind is Kind.SUBMITTED]
    assert job(site, held).held
    assert job(site, wide).held
    site.cluster.run("scancel", held)


def test_reasons_are_shown_where_slurms_users_look(site: SlurmSite) -> None:
    backend = site.open()
    job_id = sbatch(site, "--gpus=4")
    adopted(backend)
    busy = Decision(
        0, 0.0, Action.WAIT, Reason.GPUS_BUSY, job_id, "main", need=4, free=1, limit=32
    )  # fmt: skip
    backend.decided([busy])
    want = "gpus=4; GpusBusy: needs 4 GPUs, 1 of 32 is free"
    until(lambda: (backend.reports(0.1), job(site, job_id).admin_comment)[1] == want)
    assert parse.ask(want) == (4, ""), "what was asked for still stands first"
    assert job(site, job_id).held, "saying why releases nothing"


def test_a_drained_node_is_closed_and_opened_again(site: SlurmSite) -> None:
    backend = site.open()
    name = site.shape.names[1]
    site.cluster.mark(name, "drain")
    try:
        (event,) = news(backend, Kind.NODE_SET)
        assert event.body == {"node": 1, "open": False}
        backend.heard([event])
    finally:
        site.cluster.mark(name, "resume")
    again = site.open()
    (event,) = news(again, Kind.NODE_SET)
    assert event.body == {"node": 1, "open": True}


def test_a_reserved_node_is_closed_and_who_asks_for_it_is_left_alone(site: SlurmSite) -> None:
    backend = site.open()
    name = site.shape.names[2]
    made = [
        "reservation=upkeep",
        f"nodes={name}",
        "starttime=now",
        "duration=60",
        "users=root,nobody",
    ]
    site.cluster.run("scontrol", "create", *made, "flags=maint,ignore_jobs")
    try:
        asks = sbatch(site, "--gpus=1", "--reservation=upkeep")
        (event,) = news(backend, Kind.NODE_SET)
        assert event.body == {"node": 2, "open": False}
        backend.heard([event])
        said = "gpus=1; left alone: it asks for a reservation"
        until(lambda: (backend.reports(0.1), job(site, asks).admin_comment)[1] == said)
        assert job(site, asks).held
        site.cluster.run("scancel", asks)
    finally:
        site.cluster.run("scontrol", "delete", "reservation=upkeep")
    (event,) = news(backend, Kind.NODE_SET)
    assert event.body == {"node": 2, "open": True}
    backend.heard([event])


def test_a_users_job_past_its_limit_is_ended_by_slurm(site: SlurmSite) -> None:
    backend = site.open()
    job_id = sbatch(site, "--gpus=1", "--time=5")
    adopted(backend)
    backend.launch(on(job_id, 0))
    backend.acknowledge([await_start(backend, site, job_id)])
    soon = datetime.fromtimestamp(time.time() + 2).isoformat(timespec="seconds")
    site.cluster.run("scontrol", "update", f"jobid={job_id}", f"EndTime={soon}")
    report = last(hear(backend, site, tries=400))
    assert (report.what, report.state) == (Happened.ENDED, State.TIMEOUT)


def test_a_users_own_scancel_of_a_running_job_is_its_end(site: SlurmSite) -> None:
    backend = site.open()
    job_id = sbatch(site, "--gpus=1")
    adopted(backend)
    backend.launch(on(job_id, 0))
    backend.acknowledge([await_start(backend, site, job_id)])
    site.cluster.run("scancel", job_id, user="nobody")
    report = last(hear(backend, site))
    assert (report.what, report.state) == (Happened.ENDED, State.CANCELLED)


def test_a_job_put_back_in_the_queue_is_lost_to_the_service(site: SlurmSite) -> None:
    backend = site.open()
    backend.launch(a_launch(site.command(Does.STAYS)))
    await_start(backend, site)
    slurm_id = next(iter(backend.attempts.live.values())).slurm_id
    site.cluster.run("scontrol", "update", f"jobid={slurm_id}", "requeue=1")
    site.cluster.run("scontrol", "requeuehold", slurm_id)
    report = last(hear(backend, site))
    assert report.what is Happened.LOST
    assert "put back in the queue" in report.detail


def test_a_launch_is_made_once_though_the_controller_is_away(site: SlurmSite) -> None:
    backend = site.open()
    site.cluster.stop_controller()
    try:
        backend.launch(a_launch(site.command(Does.ENDS)))
        began = time.monotonic()
        assert list(backend.reports(0.1)) == []
        assert time.monotonic() - began < 8.0, "nobody waits for long"
        assert list(backend.reports(0.1)) == []
        again = site.open()  # and the service dies meanwhile
    finally:
        site.cluster.start_controller()
    assert last(hear(again, site)).state is State.COMPLETED
    assert site.begins("a") == 1


def test_a_service_that_dies_before_it_knows_the_id_finds_its_job(site: SlurmSite) -> None:
    first = site.open()
    launch = a_launch(site.command(Does.ENDS))
    submit = first.slurm.submit

    def dies(options: list[str], script: str) -> str:
        submit(options, script)
        raise SlurmDown("the service dies here")

    first.slurm.submit = dies  # type: ignore[method-assign, assignment]
    first.launch(launch)
    first.reports(0.0)
    again = site.open()
    assert last(hear(again, site)).state is State.COMPLETED
    assert site.begins("a") == 1
    comments = [job.comment for job in client(site.cluster).jobs()]
    assert comments.count(f"pellucid:{again.journal.site}:a/1") == 1


def test_a_dry_run_shows_every_command_and_changes_nothing(site: SlurmSite, tmp_path: Path) -> None:
    shown: list[str] = []
    slurm = Slurm(site.cluster.environment, show=shown.append)
    backend = SlurmBackend(tmp_path / "dry", shape_of(site.cluster), slurm)
    job_id = sbatch(site, "--gpus=2")
    adopted(backend)
    backend.launch(on(job_id, 3, 4))
    backend.launch(replace(a_launch(site.command(Does.ENDS)), time_limit_s=30.0))
    backend.reports(0.5)
    name = site.shape.names[0]
    assert f"scontrol update jobid={job_id} NumNodes=1 ReqNodeList={name} " in "\n".join(shown)
    assert f"scontrol release {job_id}" in shown
    assert any(line.startswith("sbatch --parsable --hold") for line in shown)
    assert job(site, job_id).held
    assert not job(site, job_id).placed
    backend.close()


def test_a_submission_that_came_late_leaves_no_second_job(
    site: SlurmSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = site.open()
    sbatch, asked = backend.slurm.submit, list[tuple[Sequence[str], str]]()

    def submit(options: Sequence[str], script: str) -> str:
        asked.append((options, script))
        if len(asked) == 1:
            raise SlurmDown("no answer")
        return sbatch(options, script)

    monkeypatch.setattr(backend.slurm, "submit", submit)
    backend.launch(a_launch(site.command(Does.STAYS), OURS))
    backend.acknowledge([await_start(backend, site, OURS)])
    second = sbatch(*asked[0])  # slurmctld comes to it only now
    assert job(site, second).held

    def cancelled() -> bool:
        backend.reports(0.1)
        return job(site, second).state == "CANCELLED"

    until(cancelled)
    (runs,) = [job for job in client(site.cluster).jobs() if job.state == "RUNNING"]
    assert (runs.name, runs.comment) == (f"{OURS}.1", job(site, second).comment)
    until(lambda: site.begins(OURS) == 1)
